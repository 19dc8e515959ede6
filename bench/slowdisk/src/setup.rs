//! Sets a disk up, step by step, each written down before it is taken.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::control::{self, Ask};
use crate::profile::{Kind, Profile};
use crate::read_ahead::Ledger;
use crate::state::{self, Lock, State};
use crate::teardown::undo;
use crate::{check, system};

/// What `slowdisk up` was asked for.
#[derive(Clone, Debug)]
pub struct Options {
    pub profile: Profile,
    /// Of the disk, for the other commands; the profile's name by default.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Where to mount it; a directory of our own by default.
    pub directory: Option<PathBuf>,
    /// ext4, xfs or btrfs.
    pub filesystem: String,
    pub read_ahead_kb: u64,
    /// `net` only: pass this directory through, instead of a tmpfs of our own.
    pub source: Option<PathBuf>,
    /// The program to run as daemon, with `serve NAME`: this one.
    pub program: PathBuf,
    /// The process without which the disk is of no use; None: it stays until it is taken down.
    pub owner: Option<system::Process>,
}

/// The file systems that the image may hold, and how each is made without a long preparation.
const FILE_SYSTEMS: [(&str, &str, &[&str]); 3] = [
    // No lazy initialisation: it would write in the background during measurements.
    ("ext4", "mkfs.ext4", &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]),
    ("xfs", "mkfs.xfs", &["-q", "-f", "-K"]),
    ("btrfs", "mkfs.btrfs", &["-q", "-f", "-K"]),
];

/// What a file system's maker is called, and its options.
type Maker = (&'static str, &'static [&'static str]);

/// Fails where such a disk can never be set up here, and says why.
pub fn possible(profile: &Profile, filesystem: &str) -> Result<Maker> {
    if profile.kind != Kind::Native
        && let Some(reason) = system::missing()
    {
        bail!("cannot emulate the disk '{}': {reason}", profile.name);
    }
    let maker = FILE_SYSTEMS.iter().find(|(name, ..)| *name == filesystem);
    let Some((_, make, make_options)) = maker else {
        bail!("the file system '{filesystem}' is not one of ext4, xfs, btrfs");
    };
    Ok((make, make_options))
}

/// Sets the disk up and measures its overhead. On failure what was made is undone again.
pub fn up(options: &Options) -> Result<State> {
    let (make, make_options) = possible(&options.profile, &options.filesystem)?;
    if options.name.is_empty() || options.name.contains(['/', '.', ' ']) {
        bail!("'{}' cannot be a disk's name: it becomes a directory's", options.name);
    }
    let _lock = Lock::take()?;
    if State::load(&options.name)?.is_some() {
        bail!(
            "the disk '{0}' is set up already; `slowdisk down {0}` takes it down, another --name makes a second",
            options.name
        );
    }
    let mut state = write_down(options)?;
    let made = match state.profile.kind {
        Kind::Native => native(&mut state, options),
        Kind::Names { .. } => names(&mut state, options),
        _ => block(&mut state, options, make, make_options),
    };
    match made.and_then(|()| finish(&mut state)) {
        Ok(()) => Ok(state),
        Err(error) => {
            let log = fs::read_to_string(state.directory().join("log")).unwrap_or_default();
            let undone = undo(&state);
            let left = if undone.left.is_empty() {
                String::new()
            } else {
                format!("; left: {}", undone.left.join(", "))
            };
            let said = if log.trim().is_empty() {
                String::new()
            } else {
                format!("; the daemon said: {}", log.trim())
            };
            Err(error.context(format!("the disk '{}' could not be set up{said}{left}", options.name)))
        }
    }
}

fn write_down(options: &Options) -> Result<State> {
    let run = state::directory(&options.name);
    let native = options.profile.kind == Kind::Native;
    let mount = match &options.directory {
        Some(directory) => std::path::absolute(directory).context("the mount directory makes no sense")?,
        None => run.join("mnt"),
    };
    refuse_used(&mount, native)?;
    let names = matches!(options.profile.kind, Kind::Names { .. });
    let state = State {
        name: options.name.clone(),
        profile: options.profile.clone(),
        size: if native { 0 } else { options.size },
        filesystem: if native || names { String::new() } else { options.filesystem.clone() },
        made_directories: mount
            .ancestors()
            .take_while(|ancestor| !ancestor.exists() && !ancestor.starts_with(&run))
            .map(Path::to_path_buf)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect(),
        mount,
        source: names.then(|| options.source.clone().unwrap_or_else(|| run.join("source"))),
        own_source: names && options.source.is_none(),
        loop_device: None,
        read_ahead_kb: None,
        read_ahead_before: None,
        owner: options.owner,
        overhead_ns: 0,
        ready: false,
    };
    fs::create_dir_all(&run).with_context(|| format!("cannot make {}", run.display()))?;
    state.save()?;
    fs::create_dir_all(&state.mount).with_context(|| format!("cannot make {}", state.mount.display()))?;
    // From here on the path is free of symbolic links, as the kernel's list of mounts has it.
    let state = State { mount: state.mount.canonicalize()?, ..state };
    state.save()?;
    Ok(state)
}

/// Nothing of anybody's is mounted over. A native disk mounts nothing, so its directory may hold data.
fn refuse_used(directory: &Path, native: bool) -> Result<()> {
    if native || !directory.exists() {
        return Ok(());
    }
    let inside =
        fs::read_dir(directory).with_context(|| format!("{} is no directory", directory.display()))?.next();
    if inside.is_some() {
        bail!("{} is not empty: choose an empty or new directory to mount on", directory.display());
    }
    if system::is_mount_point(&directory.canonicalize()?) {
        bail!("{} is a mount point already: choose another directory", directory.display());
    }
    Ok(())
}

fn native(state: &mut State, options: &Options) -> Result<()> {
    if !system::is_root() {
        // The machine's own disk as it is: the state says what that is.
        state.read_ahead_kb =
            system::read_ahead_file(&state.mount).and_then(|file| system::read_number(&file)).ok();
        return Ok(());
    }
    set_read_ahead(state, &state.mount.clone(), options.read_ahead_kb)
}

fn names(state: &mut State, options: &Options) -> Result<()> {
    if let Some(source) = state.source.clone().filter(|_| state.own_source) {
        fs::create_dir_all(&source)?;
        let size = format!("size={}", options.size);
        system::run("mount", &["-t", "tmpfs", "-o", &size, "slowdisk-source", &source.to_string_lossy()])?;
    }
    start_daemon(state, options)?;
    set_read_ahead(state, &state.mount.clone(), options.read_ahead_kb)
}

fn block(state: &mut State, options: &Options, make: &str, make_options: &[&str]) -> Result<()> {
    let room = available_memory().unwrap_or(u64::MAX);
    if options.size > room / 10 * 9 {
        bail!("an image of {} MB does not fit into the {} MB of free memory", options.size >> 20, room >> 20);
    }
    fs::create_dir_all(state.image_mount())?;
    start_daemon(state, options)?;
    control::ask(&state.socket(), Ask::Paced(false))?;
    let image = state.image_file().to_string_lossy().into_owned();
    let device = system::run("losetup", &["--direct-io=on", "--find", "--show", &image])?;
    let device = PathBuf::from(device.trim());
    state.loop_device = Some(device.clone());
    state.save()?;
    let direct = format!("/sys/block/{}/loop/dio", device.file_name().unwrap_or_default().to_string_lossy());
    if system::read_number(Path::new(&direct))? != 1 {
        bail!(
            "{} does not do direct I/O on this kernel, so the page cache would hold everything twice",
            device.display()
        );
    }
    set_read_ahead(state, &device, options.read_ahead_kb)?;
    let device = device.to_string_lossy().into_owned();
    let mut words = make_options.to_vec();
    words.push(&device);
    system::run(make, &words)?;
    system::run(
        "mount",
        &["-o", "noatime", "-t", &options.filesystem, &device, &state.mount.to_string_lossy()],
    )?;
    control::ask(&state.socket(), Ask::Paced(true))?;
    Ok(())
}

fn finish(state: &mut State) -> Result<()> {
    if state.profile.kind != Kind::Native {
        state.overhead_ns = check::calibrate(state)?;
    }
    state.ready = true;
    state.save()
}

fn start_daemon(state: &State, options: &Options) -> Result<()> {
    let log = File::create(state.directory().join("log"))?;
    let mut command = Command::new(&options.program);
    command.arg("serve").arg(&state.name).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.current_dir("/");
    // SAFETY: detach is async-signal-safe and touches no memory.
    unsafe { command.pre_exec(system::detach) };
    let mut daemon =
        command.spawn().with_context(|| format!("cannot start the daemon {}", options.program.display()))?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while control::ask(&state.socket(), Ask::Status).is_err() {
        if let Some(status) = daemon.try_wait()? {
            bail!("the daemon ended at once ({status})");
        }
        if Instant::now() > deadline {
            let _ = daemon.kill();
            bail!("the daemon did not answer within 10 s");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Sets the read-ahead of the disk that holds `path`, having written down what it was.
fn set_read_ahead(state: &mut State, path: &Path, kilobytes: u64) -> Result<()> {
    let file = system::read_ahead_file(path)?;
    state.read_ahead_before = Some((file.clone(), system::read_number(&file)?));
    state.save()?;
    let before = Ledger::of_machine().set(&file, &state.directory(), state.owner, kilobytes)?;
    state.read_ahead_before = Some((file.clone(), before));
    state.read_ahead_kb = Some(system::read_number(&file)?);
    state.save()
}

fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}
