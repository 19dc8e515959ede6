//! What is set up, written down so that it can be undone by anyone at any time.
//!
//! Each disk has a directory below [`base`]: `state.json` here, the daemon's `pid`, `socket` and `log`,
//! and the FUSE mount `image`. The rule: a thing is named in `state.json` **before** it is made. Undoing
//! what was never made is easy; finding what nobody wrote down is not.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::profile::Profile;
use crate::system::{self, Process};

/// One disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// Also the name of its directory.
    pub name: String,
    pub profile: Profile,
    /// Bytes of the image, or of the tmpfs behind `net`; 0 for native.
    pub size: u64,
    /// The file system on the loop device; empty where there is none.
    pub filesystem: String,
    /// Where programs find it.
    pub mount: PathBuf,
    /// Directories that did not exist before us, outermost first.
    pub made_directories: Vec<PathBuf>,
    /// What `net` passes through. Data goes here, not to the mount.
    pub source: Option<PathBuf>,
    /// We mounted a tmpfs at `source`.
    pub own_source: bool,
    pub loop_device: Option<PathBuf>,
    /// Read-ahead in force, and what was there before at which file of sysfs.
    pub read_ahead_kb: Option<u64>,
    pub read_ahead_before: Option<(PathBuf, u64)>,
    /// Whose death ends the disk, if anybody's.
    pub owner: Option<Process>,
    /// The way between daemon and program, taken off each deadline.
    pub overhead_ns: u64,
    /// Set-up went through to its end.
    pub ready: bool,
}

/// Where the disks are written down: `$SLOWDISK_RUN`, or /run/runahead-slowdisk; an ordinary user's in
/// `$XDG_RUNTIME_DIR`, or in a directory of their own in /tmp.
pub fn base() -> PathBuf {
    if let Some(named) = std::env::var_os("SLOWDISK_RUN") {
        return PathBuf::from(named);
    }
    if system::is_root() {
        return PathBuf::from("/run/runahead-slowdisk");
    }
    // SAFETY: geteuid has no preconditions and cannot fail.
    let user = unsafe { libc::geteuid() };
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(
        || PathBuf::from(format!("/tmp/runahead-slowdisk-{user}")),
        |directory| PathBuf::from(directory).join("runahead-slowdisk"),
    )
}

/// The directory of the disk `name`.
pub fn directory(name: &str) -> PathBuf {
    base().join(name)
}

impl State {
    pub fn directory(&self) -> PathBuf {
        directory(&self.name)
    }

    /// Where the image's file system is mounted.
    pub fn image_mount(&self) -> PathBuf {
        self.directory().join("image")
    }

    pub fn image_file(&self) -> PathBuf {
        self.image_mount().join(crate::block::FILE_NAME)
    }

    pub fn socket(&self) -> PathBuf {
        self.directory().join("socket")
    }

    /// Where data for this disk is to be put: the mount itself except for the read-only `net`.
    pub fn fill_directory(&self) -> &Path {
        self.source.as_deref().unwrap_or(&self.mount)
    }

    /// Replaces what is written down; a reader sees the old or the new, whole.
    pub fn save(&self) -> Result<()> {
        let path = self.directory().join("state.json");
        let new = path.with_extension("new");
        let mut file = File::create(&new).with_context(|| format!("cannot write {}", new.display()))?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        fs::rename(&new, &path).with_context(|| format!("cannot write {}", path.display()))
    }

    /// `None`: there is no such disk.
    pub fn load(name: &str) -> Result<Option<State>> {
        let path = directory(name).join("state.json");
        match fs::read(&path) {
            Ok(text) => Ok(Some(
                serde_json::from_slice(&text)
                    .with_context(|| format!("{} makes no sense", path.display()))?,
            )),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }
}

/// The names of all disks that are written down, sorted.
pub fn names() -> Vec<String> {
    let entries = fs::read_dir(base()).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().join("state.json").exists())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// Held while disks are set up or torn down, so that two commands do not meet halfway.
pub struct Lock(#[expect(dead_code, reason = "the lock is the open file; it ends with it")] File);

impl Lock {
    /// Waits up to a minute, which a set-up never takes.
    pub fn take() -> Result<Lock> {
        fs::create_dir_all(base()).with_context(|| format!("cannot make {}", base().display()))?;
        let path = base().join("lock");
        let file = File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock(file)),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(TryLockError::WouldBlock) => {
                    bail!("another slowdisk command has held {} for a minute", path.display())
                }
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("cannot lock {}", path.display()));
                }
            }
        }
    }
}
