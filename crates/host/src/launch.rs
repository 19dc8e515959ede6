//! `runahead run`: everything from the command line to the command's first instruction.
//!
//! The process that the user started becomes the command itself (exec), so pid, parent, job control
//! and exit status are the command's own. Who is beside it is forked off twice before that: the command must
//! not find a child that it did not start.

use crate::apart::leave_the_terminal;
use crate::confined::confined_because;
use crate::counts::Counts;
use crate::executions;
use crate::filter::{self, Verdict};
use crate::installation::Installation;
use crate::limits::{self, Limits};
use crate::own_files;
use crate::program::{self, Program};
use crate::progress::SayHowFar;
use crate::remembered::{Command, Remember, Remembering};
use crate::report::{Detail, Report, VERSION};
use crate::run::{PutIn, Run, Sites, Wishes};
use crate::session::{Session, Shared};
use crate::standing;
use crate::start_files::Cold;
use crate::supervise::{Host, Lasting};
use crate::trace::{Made, Recorder, TraceTo};
use runahead_abi::environment::{self, SESSION, SWITCH, TELLING, flags, least};
use runahead_abi::session::{SESSION_BYTES, remembering};
use runahead_insert::file::Reason;
use runahead_kernel::process::{idle_ns, monotonic_ns};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::{PidfdFlags, Resource, getrlimit, pidfd_open};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Tell what was gained on stderr after the run.
    pub stats: Option<Detail>,
    /// Write the counts as JSON to this file after the run.
    pub report: Option<PathBuf>,
    /// Write a timeline.
    pub trace: Option<TraceTo>,
    /// Say now and then how far it is.
    pub progress: Option<SayHowFar>,
    /// Intercept and compare, but do not speculate.
    pub no_speculate: bool,
    /// Say why something runs plainly.
    pub verbose: bool,
    /// What speculators may ask for.
    pub limits: crate::Limits,
    /// Begin with what earlier runs wanted, and remember what this one does.
    pub remember: Option<Remember>,
    /// The program was executed already, and is executed [again](environment::again).
    pub again: bool,
}

impl Options {
    /// Whether anything may be said on stderr.
    pub fn speaks(&self) -> bool {
        self.verbose || self.stats.is_some() || self.records()
    }

    /// Whether the run is to be recorded: whoever wants that is told if it is not.
    fn records(&self) -> bool {
        self.remember.as_ref().is_some_and(Remember::records)
    }

    fn may_speculate(&self) -> bool {
        !self.no_speculate && self.limits.allow_any()
    }

    /// Whether files may be asked for that nobody has foretold. Whoever sets limits wants nothing beside speculation, which
    /// keeps them.
    fn may_guess(&self) -> bool {
        !self.no_speculate && self.limits == crate::Limits::default()
    }

    /// How what is opened is remembered, and asked for in the next run, if it is.
    fn remembers(&self) -> Option<Remember> {
        self.remember.clone().filter(|how| (self.may_guess() || how.records()) && !self.again)
    }
}

/// Why the command was not started. The variants are the documented exit statuses.
#[derive(Debug)]
pub enum Failure {
    /// 125: our own affair; nothing was started.
    Ours(String),
    /// 126: found, but cannot be executed.
    NotExecutable(String),
    /// 127: not found.
    NotFound(String),
}

impl Failure {
    /// Exit status where something is wrong with our own command line or files.
    pub const OURS: u8 = 125;

    pub fn status(&self) -> u8 {
        match self {
            Failure::Ours(_) => Failure::OURS,
            Failure::NotExecutable(_) => 126,
            Failure::NotFound(_) => 127,
        }
    }

    pub fn message(&self) -> &str {
        match self {
            Failure::Ours(m) | Failure::NotExecutable(m) | Failure::NotFound(m) => m,
        }
    }
}

/// Why a profile is left out.
const KEEPS_NO_LIMITS: &str = "what it has is asked for beside speculation, which alone keeps limits (--max-memory and \
                               the like), and is not with --no-speculate";

/// What goes on in the process beside the command: [`crate::attend`], or [`crate::serve`], which is the whole
/// host.
pub type Beside = fn(Run) -> !;

/// Becomes the command that begins at our own argument number `first`, with Runahead beside it, if that is `allowed`
/// ([`check_filters`]). Returns only on failure.
/// `beside` serves the run.
pub fn run(options: Options, first: usize, allowed: Result<(), String>, beside: Beside) -> Failure {
    let Some(name) = program::file_name(first) else {
        return Failure::Ours("no command given".into());
    };
    let report_file = match &options.report {
        None => None,
        Some(path) => match File::create(path) {
            Ok(file) => Some(file),
            Err(e) => {
                return Failure::Ours(format!(
                    "cannot write the report to {}: {e}; nothing was started",
                    path.display()
                ));
            }
        },
    };
    let trace = match &options.trace {
        None => None,
        Some(to) => match make_trace(to, report_file.as_ref(), first) {
            Ok(trace) => Some(trace),
            Err(e) => {
                return Failure::Ours(format!(
                    "cannot write the trace to {}: {e}; nothing was started",
                    to.path.display()
                ));
            }
        },
    };
    let mut program = Program::new(first);
    if std::env::var_os(SWITCH).as_deref() == Some(OsStr::new("off")) {
        let reason = format!("{SWITCH}=off in the environment");
        if options.stats.is_some() || options.records() {
            say_plainly(&reason, options.stats.is_some());
        }
        trace_plainly(trace, &reason);
        report_plainly(report_file, first, reason);
        return became(name, &program.become_it());
    }
    let telling = TELLING.into_iter().find(|name| std::env::var_os(name).is_some());
    let allowed = match telling {
        Some(name) => Err(format!("the loader would name the agent ({name})")),
        None => allowed,
    };
    if let Err(reason) = allowed {
        if options.speaks() {
            say_plainly(&reason, options.stats.is_some());
        }
        trace_plainly(trace, &reason);
        report_plainly(report_file, first, reason);
        return became(name, &program.become_it());
    }
    // As early as can be: the disk is at work while the rest is made ready. (What was executed already has
    // been read, and is not opened: that it is closed would give up the locks that the process has on it.)
    let cold = (options.may_guess() && !options.again).then(|| Cold::find(name)).flatten();
    let spare = report_file.as_ref().and_then(|file| file.try_clone().ok());
    let progress = options.progress.and_then(|begin| begin());
    let (stats, reasons) = (options.stats, options.verbose);
    let wishes = Wishes { stats, reasons, report: report_file, trace, progress };
    let say = |reason: &str| {
        if options.speaks() {
            say_plainly(reason, options.stats.is_some());
        }
    };
    let alone = if options.again { None } else { program::has_no_loader_because(name) };
    if options.verbose && !options.may_guess() && options.remember.as_ref().is_some_and(Remember::has_profile)
    {
        program::without_write_signals(|| {
            let _ = writeln!(io::stderr(), "runahead: the profile is not used: {KEEPS_NO_LIMITS}");
        });
    }
    // Asked last: by now a cold executable's first page may be here.
    let foreign = || if options.again { None } else { program::foreign(name) };
    let prepared = prepare(&options, wishes, cold, first, alone.is_some(), beside);
    match prepared.map(|begun| (begun, foreign())) {
        Ok((_, Some(foreign))) => say(foreign.because()),
        Ok((begun, None)) => {
            program.set_variables(begun.variables);
            if let Some((reason, path)) = alone
                && !executions::ask_for_command(begun.session, begun.host, &path)
            {
                // Nobody in it could wait for the report, so that is written now. What it starts is helped
                // all the same.
                let reason = match reason {
                    Reason::Static => "it is statically linked, and the agent could not be put in",
                    Reason::OtherLoader => "its loader is not glibc's, and the agent could not be put in",
                };
                // Else it is told already why nobody could.
                if begun.session.header().reported.load(Ordering::Acquire) == 0 {
                    say(reason);
                    report_plainly(spare, first, reason.into());
                }
            }
        }
        Err(reason) => {
            say(&reason);
            // What took the descriptors that were left to us is closed by now.
            let again = || options.report.as_ref().and_then(|path| File::create(path).ok());
            let trace = options.trace.as_ref().and_then(|to| make_trace(to, None, first).ok());
            trace_plainly(trace, &reason);
            report_plainly(spare.or_else(again), first, reason);
        }
    }
    became(name, &program.become_it())
}

/// Whether what we do is allowed by the filters of system calls that the command is under with us; if not, why not. To be
/// asked before anything else is done.
pub fn check_filters() -> Result<(), String> {
    if standing::filters() == 0 {
        return Ok(());
    }
    match filter::look() {
        Verdict::AllAllowed => {
            own_files::ask_for_ourselves();
            Ok(())
        }
        Verdict::Forbidden(name) => {
            Err(format!("a filter of system calls (seccomp) ends a process that calls {name}"))
        }
        Verdict::Unknown(error) => {
            Err(format!("it could not be found out what the filter of system calls allows: {error}"))
        }
    }
}

/// Makes the trace's file.
fn make_trace(to: &TraceTo, report: Option<&File>, first: usize) -> Made {
    let command: Vec<&OsStr> = program::arguments().skip(first).collect();
    let mut made = Err(io::Error::from(io::ErrorKind::Other));
    program::without_write_signals(|| made = (to.make)(&to.path, report, &command));
    made
}

/// Says in the trace of a command that runs without us that it does.
fn trace_plainly(trace: Option<Box<dyn Recorder>>, reason: &str) {
    if let Some(mut trace) = trace {
        program::without_write_signals(|| trace.runs_plainly(reason));
    }
}

/// Writes the report of a command that runs without us, which nobody will be there to write later.
pub(crate) fn report_plainly(file: Option<File>, first: usize, reason: String) {
    let Some(mut file) = file else {
        return;
    };
    let report = Report {
        version: VERSION,
        command: program::arguments().skip(first).map(OsStr::to_string_lossy).collect(),
        elapsed_ns: 0,
        plainly_because: Some(reason),
        left_because: None,
        speculated: false,
        program: None,
        counts: Counts::default(),
    };
    let text = report.json();
    program::without_write_signals(|| {
        if file.write_all(text.as_bytes()).is_err() {
            // Rather none than half of one.
            let _ = file.set_len(0);
        }
    });
}

/// `helps`: with what helps.
pub(crate) fn say_plainly(reason: &str, helps: bool) {
    program::without_write_signals(|| {
        let mut said = format!("runahead: running the command plainly: {reason}\n");
        let around = runahead_remedies::Surroundings::look(standing::filters());
        if let Some(remedy) = runahead_remedies::of(reason, &around).filter(|_| helps) {
            said += &format!("runahead: try: {remedy}\n");
        }
        let _ = io::stderr().write_all(said.as_bytes());
    });
}

/// What a failed exec means.
fn became(name: &OsStr, error: &io::Error) -> Failure {
    let name = name.to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::NotFound(format!("{name}: command not found")),
        _ => Failure::NotExecutable(format!("{name}: cannot be executed: {error}")),
    }
}

/// A limit (getrlimit(2)) with too little room for us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needed {
    pub resource: Resource,
    /// Bytes.
    pub least: u64,
    /// As `ulimit` and prlimit(1) call it.
    pub option: char,
    pub long: &'static str,
    pub reason: &'static str,
}

/// What the command's limits must leave. Of the stack the loader and the agent's start take some.
pub(crate) const NEEDED: [Needed; 4] = [
    Needed {
        resource: Resource::Stack,
        least: least::STACK,
        option: 's',
        long: "stack",
        reason: "the limit on the stack (ulimit -s) leaves no room for the agent's start",
    },
    Needed {
        resource: Resource::As,
        least: least::ADDRESSES,
        option: 'v',
        long: "as",
        reason: "the limit on memory (ulimit -v or -d) leaves no room for the agent",
    },
    Needed {
        resource: Resource::Data,
        least: least::DATA,
        option: 'd',
        long: "data",
        reason: "the limit on memory (ulimit -v or -d) leaves no room for the agent",
    },
    Needed {
        resource: Resource::Fsize,
        least: SESSION_BYTES as u64,
        option: 'f',
        long: "fsize",
        reason: "the limit on file sizes (ulimit -f) leaves no room for shared memory",
    },
];

/// The first limit that leaves too little.
pub(crate) fn too_low() -> Option<Needed> {
    let is_below =
        |needed: &Needed| getrlimit(needed.resource).current.is_some_and(|limit| limit < needed.least);
    NEEDED.into_iter().find(is_below)
}

/// What the host was started for.
struct Begun {
    /// The variables that put the agent into the command.
    variables: Vec<(OsString, OsString)>,
    session: Shared,
    host: u32,
}

/// Makes the session and starts the host; `asks`: the launcher will ask that the agent be put into the
/// command.
fn prepare(
    options: &Options,
    wishes: Wishes,
    cold: Option<Cold>,
    first: usize,
    asks: bool,
    beside: Beside,
) -> Result<Begun, String> {
    if let Some(reason) = confined_because() {
        return Err(reason.into());
    }
    let installation = Installation::find().map_err(|e| e.to_string())?;
    if let Some(limit) = too_low() {
        return Err(limit.reason.into());
    }
    let session = Session::create().map_err(|e| format!("no shared memory for the session: {e}"))?;
    session.share().header().is_cold.store(own_files::were_cold().into(), Ordering::Relaxed);
    let descriptor = session.descriptor.as_raw_fd();
    let cookie = session.cookie;
    let sites = Sites::reserve(&session).map_err(|e| format!("no descriptor for the site file: {e}"))?;
    let mut flag_bits = 0;
    if !options.may_speculate() {
        flag_bits |= flags::NO_SPECULATION;
    }
    if options.speaks() || options.report.is_some() || wishes.progress.is_some() {
        flag_bits |= flags::REPORT;
    }
    if wishes.trace.is_some() {
        flag_bits |= flags::TRACE;
        session.header().traces.store(1, Ordering::Relaxed);
    }
    if is_tracing_restricted() {
        flag_bits |= flags::RESTRICTED_TRACING;
    }
    // What the user asked for on our command line another user's run would not know of.
    if options.may_guess() && !options.again {
        flag_bits |= flags::OWN_RUNS;
    }
    if Descent::needed() == Descent::Unseen {
        flag_bits |= flags::REAPS;
    }
    let main_process = std::process::id();
    session.header().main_process.store(main_process, Ordering::Relaxed);
    let is_cold = cold.is_some();
    let remember = options.remembers().map(|how| Remembering { how, command: Command::find(first), is_cold });
    if remember.is_some() {
        flag_bits |= flags::REMEMBERS;
        if options.records() {
            flag_bits |= flags::RECORDS;
        }
        let whose = if is_cold || options.records() { remembering::ALL } else { remembering::WAITING };
        session.header().remembering.store(whose, Ordering::Relaxed);
    }
    session.header().in_order_most.store(limits::ahead_of_reads(&options.limits), Ordering::Relaxed);
    let address = environment::Session {
        host: 0,
        descriptor: descriptor.cast_unsigned(),
        flags: flag_bits,
        filters: standing::filters(),
        cookie,
        sites: sites.descriptor().unwrap_or_default().cast_unsigned(),
    };
    let shared = session.share();
    let agent = installation.agent.clone();
    let run = Run {
        session,
        sites,
        installed: installation.identity(),
        installation,
        wishes,
        limits: Limits::new(options.limits),
        guesses: options.may_guess(),
        cold: cold.filter(|_| !asks),
        remember,
        command: first,
        address,
        asks,
        put_in: PutIn::default(),
        began: monotonic_ns(),
        main: pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).ok(),
        main_process,
    };
    let host = start_beside(run, beside).map_err(|e| format!("cannot start the host: {e}"))?;
    let address = environment::Session { host, ..address };
    shared.header().latest.executes(main_process, idle_ns());
    let mut preload = agent.into_os_string();
    if let Some(before) = std::env::var_os("LD_PRELOAD").map(without_agent).filter(|v| !v.is_empty()) {
        preload.push(":");
        preload.push(before);
    }
    let variables = vec![("LD_PRELOAD".into(), preload), (SESSION.into(), address.to_string().into())];
    Ok(Begun { variables, session: shared, host })
}

/// What is preloaded besides an agent that comes first: that of all of the user's programs
/// ([`runahead_abi::enabled`]) may be of another version than ours.
fn without_agent(preload: OsString) -> OsString {
    let bytes = preload.as_encoded_bytes();
    let mut parts = bytes.splitn(2, |&byte| byte == b':');
    let first = parts.next().unwrap_or_default();
    match first.ends_with(b"/librunahead_agent.so") {
        true => OsStr::from_bytes(parts.next().unwrap_or_default()).to_owned(),
        false => preload,
    }
}

/// Why nothing can be served from here.
pub(crate) fn may_serve() -> Result<(), String> {
    check_filters()?;
    let reason = confined_because().or_else(|| too_low().map(|limit| limit.reason));
    reason.map_or(Ok(()), |reason| Err(reason.into()))
}

/// Serves, as this process, the programs of whoever finds the session. Returns only why it does not.
pub(crate) fn serve_all(lasting: Box<dyn Lasting>, installation: Installation) -> Result<(), String> {
    may_serve()?;
    let session = Session::create().map_err(|e| format!("no shared memory for the session: {e}"))?;
    let sites = Sites::reserve(&session).map_err(|e| format!("no descriptor for the site file: {e}"))?;
    let limits = crate::Limits::from_environment();
    let mut flag_bits = flags::LASTING;
    if !limits.allow_any() {
        flag_bits |= flags::NO_SPECULATION;
    }
    if is_tracing_restricted() {
        flag_bits |= flags::RESTRICTED_TRACING;
    }
    session.header().in_order_most.store(limits::ahead_of_reads(&limits), Ordering::Relaxed);
    let address = environment::Session {
        host: 0,
        descriptor: session.descriptor.as_raw_fd().cast_unsigned(),
        flags: flag_bits,
        filters: standing::filters(),
        cookie: session.cookie,
        sites: sites.descriptor().unwrap_or_default().cast_unsigned(),
    };
    let mut run = Run {
        session,
        sites,
        installed: installation.identity(),
        installation,
        wishes: Wishes::NONE,
        limits: Limits::new(limits),
        guesses: limits == crate::Limits::default(),
        cold: None,
        remember: None,
        command: 1,
        address,
        asks: false,
        put_in: PutIn::default(),
        began: monotonic_ns(),
        main: None,
        main_process: std::process::id(),
    };
    leave_the_terminal(&run, Some(lasting.descriptor()));
    // There is no command, whose end would be ours: who ends us means us.
    // SAFETY: the default action needs no handler.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_DFL) };
    run.open_sites(&AtomicBool::new(false), None::<fn()>)?;
    match Host::new(run) {
        Some(host) => host.lasting(lasting).serve(),
        None => Err("there is no site file".to_owned()),
    }
}

/// Whether a process may read another of its user only where that one says so: Yama's scope 1 (the kernel's
/// Documentation/admin-guide/LSM/Yama.rst).
pub(crate) fn is_tracing_restricted() -> bool {
    std::fs::read("/proc/sys/kernel/yama/ptrace_scope").is_ok_and(|scope| scope.first() == Some(&b'1'))
}

/// Bytes of the stack that the host runs on, an untouched mapping.
const HOST_STACK: usize = 1 << 20;

/// A stack for a child.
pub struct HostStack(*mut libc::c_void);

impl HostStack {
    /// Asked for as a mapping: a vector that is not to be had would end us.
    pub fn new() -> io::Result<HostStack> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping.
        Ok(HostStack(unsafe { mmap_anonymous(ptr::null_mut(), HOST_STACK, protection, flags) }?))
    }

    /// The end of the mapping is a place to grow down from, and as even as the processors want it.
    fn top(&self) -> *mut libc::c_void {
        self.0.wrapping_byte_add(HOST_STACK)
    }
}

impl Drop for HostStack {
    fn drop(&mut self) {
        // SAFETY: our mapping, and nobody of this process is on it: a child has ended, or has a copy.
        let _ = unsafe { munmap(self.0, HOST_STACK) };
    }
}

/// Whose child the host is. Nobody may find a child that he did not start, least of all the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Descent {
    /// An orphan: its parent, a go-between, has ended.
    Orphan,
    /// A child of the command, to which an orphan would come back: the first process of a pid namespace, or a child
    /// subreaper. It gives no signal at its end, so that no wait sees it but one for clones (`__WALL`, `__WCLONE`): not
    /// `while (wait(0) > 0)`.
    Unseen,
}

impl Descent {
    fn needed() -> Descent {
        let mut reaper = 0;
        // SAFETY: asks, into an integer of ours.
        let asked = unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut reaper, 0, 0, 0) };
        match std::process::id() == 1 || (asked == 0 && reaper != 0) {
            true => Descent::Unseen,
            false => Descent::Orphan,
        }
    }
}

/// What the go-between gets and leaves.
struct Between {
    run: Option<Run>,
    beside: Beside,
    /// Process id of who serves the run, or the error's number, negative.
    process: i32,
}

/// Forks off who serves the run; returns its process id.
fn start_beside(run: Run, beside: Beside) -> io::Result<u32> {
    let stack = HostStack::new()?;
    let mut between = Between { run: Some(run), beside, process: -libc::EAGAIN };
    match Descent::needed() {
        Descent::Unseen => {
            // SAFETY: this process has one thread; the child has a copy of all memory, and does not return.
            let cloned = unsafe { libc::clone(serve_unseen, stack.top(), 0, (&raw mut between).cast()) };
            between.process = or_error(cloned);
        }
        // By way of a go-between that shares our memory: half the cost of two forks, and no pipe to say the number through.
        // SAFETY: it runs on its own stack while we stand still, and puts nothing out of order: it forks and ends.
        Descent::Orphan => unsafe {
            brief_child(&stack, go_between, (&raw mut between).cast(), libc::CLONE_VM)?;
        },
    }
    match between.process {
        process if process > 0 => Ok(process as u32),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// What a call that gives a process id has given, or the error's number, negative.
fn or_error(process: i32) -> i32 {
    match process {
        -1 => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN),
        process => process,
    }
}

/// Runs in the host, which is the command's child.
extern "C" fn serve_unseen(between: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the copy of what `start_host` has, which nobody else has.
    let between = unsafe { &mut *between.cast::<Between>() };
    // SAFETY: it waits for its speculators, whatever the command was told.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    match between.run.take() {
        Some(run) => (between.beside)(run),
        None => 0,
    }
}

/// Runs `function` in a child, with `flags` of clone(2), and waits until it has ended; it leaves nothing behind that the
/// command could see. The kernel leaves no trace of a child while SIGCHLD is ignored; but where we have children already, or
/// SIGCHLD is pending, neither may be lost: then we wait for it, and its few us count as a child's.
///
/// # Safety
/// This process has one thread; `function` bears `argument`, ends the child, and with `CLONE_VM` leaves our memory in
/// order.
pub unsafe fn brief_child(
    stack: &HostStack,
    function: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: *mut libc::c_void,
    flags: libc::c_int,
) -> io::Result<()> {
    // SAFETY: asks whether there are children, and takes none away.
    let childless = unsafe {
        let mut found = std::mem::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
        libc::waitid(libc::P_ALL, 0, &mut found, how) != 0
    };
    let flags = flags | libc::CLONE_VFORK;
    // SAFETY: the caller's promise; the stack is the child's alone.
    unsafe {
        if !childless || program::is_pending(libc::SIGCHLD) {
            let cloned = libc::clone(function, stack.top(), flags, argument);
            if cloned < 0 {
                return Err(io::Error::last_os_error());
            }
            libc::waitpid(cloned, ptr::null_mut(), libc::__WCLONE);
            return Ok(());
        }
        let before = libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        let cloned = libc::clone(function, stack.top(), flags | libc::SIGCHLD, argument);
        let error = io::Error::last_os_error();
        if cloned > 0 {
            // Until it is gone; it reports nothing (ECHILD).
            libc::waitpid(cloned, ptr::null_mut(), 0);
        }
        libc::signal(libc::SIGCHLD, before);
        if cloned < 0 { Err(error) } else { Ok(()) }
    }
}

/// Runs in the go-between; its child is the host.
extern "C" fn go_between(between: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `start_host` waits for us, and gives us its `between` alone.
    let between = unsafe { &mut *between.cast::<Between>() };
    // SAFETY: of this process alone: the host waits for its speculators.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    // SAFETY: one thread; the child has a copy of all memory and may go on as it pleases.
    between.process = or_error(unsafe { libc::fork() });
    if between.process == 0
        && let Some(run) = between.run.take()
    {
        (between.beside)(run)
    }
    // SAFETY: ends the go-between without running anybody's exit handlers.
    unsafe { libc::_exit(0) }
}
