//! What the machine lets us do: each thing is tried as a run does it.

use super::number;
use crate::installation::Installation;
use crate::launch::{self, Needed};
use crate::rights::Watched;
use crate::session::Session;
use crate::{confined, program};
use runahead_abi::environment::SWITCH;
use runahead_abi::session::speculator_exit;
use runahead_insert::{Image, Traced, bytes_at};
use runahead_kernel::{files, memory as pages, process};
use runahead_prefetcher::limits::Group;
use runahead_sites::SiteFile;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};
use rustix::process::{Resource, getrlimit};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

pub use runahead_remedies::Surroundings;

#[derive(Clone, Debug, Default)]
pub struct Release {
    pub major: u32,
    pub minor: u32,
    /// As uname(2) says it.
    pub text: String,
    pub machine: String,
}

pub fn release() -> Release {
    let told = rustix::system::uname();
    let (major, minor) = process::kernel_release();
    let text = |word: &std::ffi::CStr| word.to_string_lossy().into_owned();
    Release { major, minor, text: text(told.release()), machine: text(told.machine()) }
}

/// What is said of this process that leaves a run nothing to do.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// `RUNAHEAD=off` in the environment.
    pub is_off: bool,
    /// Who traces us, and would the command.
    pub tracer: Option<u32>,
    pub proc: Proc,
    pub refuses_exec_gain: bool,
    /// Our rights are more than can be compared (too many groups).
    pub has_odd_rights: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proc {
    #[default]
    Own,
    /// Of another namespace of processes.
    Others,
    None,
}

pub fn standing() -> Standing {
    let has_proc = Path::new("/proc/self").exists() || fs::read_link("/proc/self").is_ok();
    let proc = match (confined::has_others_proc(), has_proc) {
        (true, _) => Proc::Others,
        (false, true) => Proc::Own,
        (false, false) => Proc::None,
    };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")?.trim().parse().ok());
    Standing {
        is_off: std::env::var_os(SWITCH).is_some_and(|value| value == "off"),
        tracer: tracer.filter(|&tracer| tracer != 0),
        proc,
        refuses_exec_gain: confined::refuses_exec_gain(),
        has_odd_rights: proc == Proc::Own && Watched::ourselves().is_none(),
    }
}

/// What is wrong with the files that a run needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// They are not where they belong, or cannot be used from there.
    Missing(String),
    /// The agent's file cannot be read, or is none (EIO).
    Agent(PathBuf, i32),
    /// The agent's file cannot be mapped as code.
    NotMapped(PathBuf, i32),
    /// The speculator cannot be executed, or is none (EIO).
    Speculator(PathBuf, i32),
}

/// The folder of both files, which have been tried.
pub fn installation() -> Result<PathBuf, Broken> {
    let found = Installation::find().map_err(|error| Broken::Missing(error.to_string()))?;
    let Installation { agent, speculator, .. } = found;
    if let Err(error) = Image::read(&agent) {
        return Err(Broken::Agent(agent, number(&error)));
    }
    if let Err(error) = may_be_mapped_as_code(&agent) {
        return Err(Broken::NotMapped(agent, number(&error)));
    }
    // Without arguments it does nothing but say so.
    let quiet = Stdio::null;
    let ran = Command::new(&speculator).stdin(quiet()).stdout(quiet()).stderr(quiet()).status();
    match ran {
        Ok(status) if status.code() == Some(speculator_exit::USAGE) => {
            Ok(agent.parent().unwrap_or(Path::new("/")).to_owned())
        }
        Ok(_) => Err(Broken::Speculator(speculator, libc::EIO)),
        Err(error) => Err(Broken::Speculator(speculator, number(&error))),
    }
}

/// What lies on a file system mounted `noexec` may not.
fn may_be_mapped_as_code(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    // SAFETY: a new mapping, which nobody jumps into; this process is only there to look.
    unsafe { mmap(ptr::null_mut(), 4096, ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE, &file, 0) }?;
    Ok(())
}

/// Limits (getrlimit(2)).
#[derive(Clone, Copy, Debug, Default)]
pub struct Resources {
    pub too_low: Option<Needed>,
    /// Without privilege.
    pub may_be_raised: bool,
    /// Bytes of addresses, if they are limited, and what they may be raised to.
    pub addresses: Option<u64>,
    pub addresses_most: Option<u64>,
}

pub fn resources() -> Resources {
    let too_low = launch::too_low();
    let most = too_low.and_then(|needed| Some((needed.least, getrlimit(needed.resource).maximum?)));
    let addresses = getrlimit(Resource::As);
    Resources {
        too_low,
        may_be_raised: most.is_none_or(|(least, most)| most >= least),
        addresses: addresses.current,
        addresses_most: addresses.maximum,
    }
}

/// Whether memory can be had that processes share.
pub fn shared() -> Result<(), i32> {
    let mut made = Ok(());
    // A limit on file sizes raises a signal.
    program::without_write_signals(|| made = Session::create().map(drop).map_err(|error| number(&error)));
    made
}

/// The ways in which the mirror notices what it lacks.
#[derive(Clone, Debug)]
pub struct Mirror {
    pub userfault: Result<(), i32>,
    /// `vm.unprivileged_userfaultfd`.
    pub unprivileged: Option<u32>,
    pub has_guards: bool,
    pub may_execute_written: Result<(), i32>,
}

pub fn mirror() -> Mirror {
    // SAFETY: a new descriptor, which nobody else knows.
    let drop_it = |descriptor| drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    Mirror {
        userfault: pages::userfault_sigbus().map(drop_it).map_err(|error| error.0),
        unprivileged: setting("/proc/sys/vm/unprivileged_userfaultfd").and_then(|set| set.try_into().ok()),
        has_guards: pages::has_guards(),
        may_execute_written: pages::may_execute_written().map_err(|error| error.0),
    }
}

fn setting(path: &str) -> Option<i64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// What one process may do to another that is neither its parent nor its child, as speculator and host to a
/// program.
#[derive(Clone, Debug)]
pub struct Peers {
    /// Copying its memory (process_vm_readv).
    pub read: Result<(), i32>,
    /// `/proc/PID/pagemap`.
    pub pagemap: Result<(), i32>,
    /// Seeing its page faults (perf_event_open).
    pub faults: Result<(), i32>,
    /// Tracing it (ptrace).
    pub trace: Result<(), i32>,
    /// Bringing its memory in from swap (process_madvise).
    pub swap_in: Result<(), i32>,
    pub yama: Option<i64>,
    /// `kernel.perf_event_paranoid`.
    pub paranoid: Option<i64>,
    /// Bytes of swap of the machine.
    pub swap: u64,
}

/// Answers of the process that looks: error numbers, 0 for none.
#[derive(Default)]
struct Answers {
    /// The other one is ready to be looked at.
    ready: AtomicI32,
    read: AtomicI32,
    pagemap: AtomicI32,
    faults: AtomicI32,
    trace: AtomicI32,
    swap_in: AtomicI32,
}

/// How long the two processes may take to come up.
const COMES_UP: Duration = Duration::from_secs(1);

pub fn peers() -> Peers {
    let answers = try_peers();
    let answer = |of: fn(&Answers) -> &AtomicI32| match answers.as_deref() {
        Ok(answers) => match of(answers).load(Ordering::Acquire) {
            0 => Ok(()),
            number => Err(number),
        },
        Err(number) => Err(*number),
    };
    Peers {
        read: answer(|answers| &answers.read),
        pagemap: answer(|answers| &answers.pagemap),
        faults: answer(|answers| &answers.faults),
        trace: answer(|answers| &answers.trace),
        swap_in: answer(|answers| &answers.swap_in),
        yama: setting("/proc/sys/kernel/yama/ptrace_scope"),
        paranoid: setting("/proc/sys/kernel/perf_event_paranoid"),
        swap: process::total_swap(),
    }
}

/// Starts two children, one of which looks at the other.
fn try_peers() -> Result<&'static Answers, i32> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping, of zeros, that stays as long as this process.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), size_of::<Answers>(), protection, flags) }
        .map_err(rustix::io::Errno::raw_os_error)?;
    // SAFETY: as above; all of it is atomic, and zeros are a value.
    let answers: &'static Answers = unsafe { &*page.cast() };
    let parent = std::process::id();
    let watched = child(&|| {
        if launch::is_tracing_restricted() {
            // As the agent says who may read the program: the host, and who descends from it.
            // SAFETY: names a process; changes nothing else.
            unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(parent)) };
        }
        answers.ready.store(1, Ordering::Release);
        std::thread::sleep(10 * COMES_UP);
    })?;
    let looks = child(&|| {
        let since = Instant::now();
        while answers.ready.load(Ordering::Acquire) == 0 && since.elapsed() < COMES_UP {
            std::thread::sleep(Duration::from_micros(100));
        }
        look_at_peer(watched, answers);
    });
    if let Ok(looks) = looks {
        // SAFETY: our own child; nothing is told.
        unsafe { libc::waitpid(looks, ptr::null_mut(), 0) };
    }
    // SAFETY: our own child, not waited for yet.
    unsafe {
        libc::kill(watched, libc::SIGKILL);
        libc::waitpid(watched, ptr::null_mut(), 0);
    }
    looks.map(|_| answers)
}

/// A child that does something and ends.
fn child(does: &dyn Fn()) -> Result<libc::pid_t, i32> {
    // SAFETY: one thread; the child goes on with a copy of all memory, and ends itself.
    match unsafe { libc::fork() } {
        -1 => Err(number(&io::Error::last_os_error())),
        0 => {
            // SAFETY: of this process alone; it is survived by nobody.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
            does();
            // SAFETY: ends the child without running anybody's exit handlers.
            unsafe { libc::_exit(0) }
        }
        child => Ok(child),
    }
}

/// Runs in the process that looks. Tracing comes last: it is let go when this process ends.
fn look_at_peer(peer: libc::pid_t, answers: &Answers) {
    let note = |answer: &AtomicI32, done: io::Result<()>| {
        answer.store(done.err().map_or(0, |error| number(&error)), Ordering::Release);
    };
    // A copy of us has everything where we have it.
    let place = (&raw const *answers) as u64;
    note(&answers.read, bytes_at(runahead_insert::Bytes(peer), place, 4).map(drop));
    note(&answers.pagemap, read_pagemap(peer, place));
    note(&answers.faults, runahead_faults::may_watch(peer));
    let peer = peer.cast_unsigned();
    note(&answers.swap_in, runahead_faults::memory::is_allowed(peer));
    note(&answers.trace, Traced::seize(peer).map(drop));
}

fn read_pagemap(process: libc::pid_t, address: u64) -> io::Result<()> {
    const WORD: usize = size_of::<u64>();
    let pagemap = File::open(format!("/proc/{process}/pagemap"))?;
    pagemap.read_exact_at(&mut [0; WORD], address / 4096 * WORD as u64)
}

/// Whether the kernel tells of a file of ours what is cached. None: there is no such file.
pub fn cachestat() -> Option<Result<(), i32>> {
    let file = rustix::fs::memfd_create("runahead-doctor", MemfdFlags::CLOEXEC).ok()?;
    Some(files::cached_pages(file.as_raw_fd(), 0, 4096).map(drop).map_err(|error| error.0))
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Bytes, of the machine or the tightest control group.
    pub limit: u64,
    pub free: u64,
    /// The group limits, not the machine.
    pub is_group: bool,
    /// All but used up: Runahead would leave.
    pub at_the_edge: bool,
}

pub fn memory() -> Memory {
    let group = Group::find();
    let memory = group.memory(u64::MAX);
    // SAFETY: zeros are a valid value, and the kernel writes no more than the structure.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let told = unsafe { libc::sysinfo(&raw mut info) } == 0;
    let machine = if told { info.totalram.saturating_mul(u64::from(info.mem_unit)) } else { u64::MAX };
    Memory {
        limit: memory.limit,
        free: memory.free(),
        is_group: memory.limit < machine / 100 * 95,
        at_the_edge: group.is_at_the_edge(0),
    }
}

/// Where the site file is kept; if nowhere, why not, as far as something failed.
pub fn known() -> Result<PathBuf, Option<String>> {
    let mut opened = None;
    program::without_write_signals(|| opened = Some(SiteFile::open_or_make()));
    match opened.and_then(Result::ok).as_ref().and_then(SiteFile::path) {
        Some(path) => Ok(path.to_owned()),
        None => Err(SiteFile::kept_nowhere_because().map(|error| error.to_string())),
    }
}

/// Processors that we may use.
pub fn processors() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count())
}
