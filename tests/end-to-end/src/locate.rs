//! Where things are: the command under test, the stand-ins, the scratch space; and the count of what
//! the runs under Runahead were seen to do.

use crate::supervise::RunReport;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The command under test, and what its environment needs (stand-ins are told what to break).
#[derive(Clone, Debug)]
pub struct Runahead {
    /// What sets it apart from others under test: two of them may run one scenario at the same time.
    pub label: String,
    pub command: String,
    pub environment: Vec<(String, String)>,
}

impl Runahead {
    /// The built command: `RUNAHEAD_BIN` (from the workspace's folder, since that is where one types
    /// it and not where cargo starts a test), or `target/release/runahead` of this workspace.
    /// `RUNAHEAD_BIN=stand-in` is the stand-in that does nothing but run the command.
    pub fn built() -> Result<Runahead, String> {
        let wanted = std::env::var("RUNAHEAD_BIN").ok();
        if wanted.as_deref() == Some("stand-in") {
            return crate::guest::stand_in("none");
        }
        let path =
            wanted.map_or_else(|| workspace().join("target/release/runahead"), |path| workspace().join(path));
        if !path.is_file() {
            return Err(format!(
                "there is no command to test at {}: build it with './x build', or name another in RUNAHEAD_BIN",
                path.display()
            ));
        }
        Ok(Runahead {
            label: "built".to_owned(),
            command: path.to_string_lossy().into_owned(),
            environment: Vec::new(),
        })
    }

    /// What a run may need beside the command.
    pub const PARTS: [&str; 5] =
        ["runahead-host", "runahead-tools", "librunahead_agent.so", "runahead-speculator", "runahead-report"];

    /// A copy of the command and of its parts but `without` some in `folder`, where every user may run them.
    pub fn copied(&self, folder: &Path, without: &[&str]) -> Result<Runahead, String> {
        for part in ["runahead"].into_iter().chain(Self::PARTS).filter(|part| !without.contains(part)) {
            let to = folder.join(part);
            fs::copy(Path::new(&self.command).with_file_name(part), &to)
                .and_then(|_| fs::set_permissions(&to, fs::Permissions::from_mode(0o755)))
                .map_err(|error| format!("{part}: {error}"))?;
        }
        Ok(Runahead { command: folder.join("runahead").to_string_lossy().into_owned(), ..self.clone() })
    }

    /// The build with a copy of the program at each sync, whether it is there or not.
    pub fn forked() -> Runahead {
        let path = workspace().join("target/forked/release/runahead");
        Runahead {
            label: "forked".to_owned(),
            command: path.to_string_lossy().into_owned(),
            environment: Vec::new(),
        }
    }
}

/// The command that sets slow disks up, whether it is there or not.
pub fn slow_disks() -> PathBuf {
    workspace().join("target/release/slowdisk")
}

/// What a release's C library is loaded by.
pub const LOADER: &str = "ld-linux-x86-64.so.2";

/// The folder of the libraries of another release's package (`trixie libc6`), as `./x` fetches it, whether it is
/// there or not.
pub fn other_release(release_and_package: &str) -> PathBuf {
    let package = unpacked(release_and_package);
    // Releases before 12 have no `/lib` that is `/usr/lib`.
    let folders = ["lib", "usr/lib"].map(|below| package.join(below).join("x86_64-linux-gnu"));
    let folder = folders.iter().find(|folder| folder.join(LOADER).exists()).unwrap_or(&folders[1]);
    std::fs::canonicalize(folder).unwrap_or(folder.clone())
}

/// The folder into which another release's package (`trixie libc6`) is unpacked.
pub fn unpacked(release_and_package: &str) -> PathBuf {
    workspace().join("target/conformance").join(release_and_package.replace(' ', "/"))
}

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The folder `tests/`.
pub fn tests_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/")).to_owned()
}

static SUPERVISOR: OnceLock<PathBuf> = OnceLock::new();
static BUILD_FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Told once by the test binary, to which alone cargo tells them.
pub fn set_paths(supervisor: &str, temporary: &str) {
    let _ = SUPERVISOR.set(PathBuf::from(supervisor));
    let _ = BUILD_FOLDER.set(PathBuf::from(temporary));
}

pub fn supervisor() -> &'static Path {
    SUPERVISOR.get().expect("set_paths comes first")
}

/// Where guests and stand-ins are built.
pub fn build_folder() -> PathBuf {
    BUILD_FOLDER.get().expect("set_paths comes first").join("end-to-end")
}

/// Where the runs' directories are: `RUNAHEAD_SLOW_DIR` (a directory on a slow disk) or a folder of
/// the build's, on whatever disk that is.
pub fn scratch() -> PathBuf {
    let base = std::env::var_os("RUNAHEAD_SLOW_DIR").map_or_else(build_folder, PathBuf::from);
    // The process number keeps two suites on one machine apart.
    base.join(format!("runs-{}", std::process::id()))
}

static RUNS: AtomicU32 = AtomicU32::new(0);
/// Beside how many runs each of Runahead's process names was seen.
static HELPERS: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());
static KILLED: AtomicU32 = AtomicU32::new(0);
static SCRIBBLES: AtomicU32 = AtomicU32::new(0);

/// Counts a run under Runahead. A suite in which no helper was ever seen tested interception alone,
/// and has to say so.
pub fn note_run(report: &RunReport) {
    RUNS.fetch_add(1, Ordering::Relaxed);
    let mut helpers = HELPERS.lock().unwrap_or_else(PoisonError::into_inner);
    for name in &report.helpers_seen {
        *helpers.entry(name.clone()).or_default() += 1;
    }
    KILLED.fetch_add(report.helpers_killed, Ordering::Relaxed);
    SCRIBBLES.fetch_add(report.scribbles, Ordering::Relaxed);
}

/// The counts, as a sentence.
pub fn runs_summary() -> String {
    let helpers = HELPERS.lock().unwrap_or_else(PoisonError::into_inner);
    let beside = |(name, runs): (&String, &u32)| format!("{name} beside {runs}");
    let seen: Vec<String> = helpers.iter().map(beside).collect();
    format!(
        "{} runs under Runahead (or a stand-in); of its processes were seen: {}; torture ended {}, and scribbled {} times",
        RUNS.load(Ordering::Relaxed),
        if seen.is_empty() { "none".to_owned() } else { seen.join(", ") },
        KILLED.load(Ordering::Relaxed),
        SCRIBBLES.load(Ordering::Relaxed)
    )
}
