//! Who is beside the command as long as there is nothing to do.
//!
//! Most starts are short, and many programs never wait for anything. So the launcher, which is small, forks
//! off a process that asks for what a cold command's loader reads, and then sleeps on the session's doorbell.
//! Who is about to execute something that its loader serves it answers itself, and into a command that has no
//! such loader it puts the agent. It becomes the host
//! (`runahead-host`) when somebody has a slot, asks for more, or is to be told of at the command's end; else
//! it ends with the command, and the host was never read from the disk. Its process id, its descriptors and
//! what it ignores stay, so nobody notices (execve(2)).
//!
//! To a process that gets its orphans the command's first process would find a child with a signal at its
//! end: so there the host is a child of ours, and this process stays for it (execve(2) has a process tell of
//! its end again).

use crate::apart::leave_the_terminal;
use crate::executions::Executions;
use crate::futex::{wait, wake};
use crate::launch::{report_plainly, say_plainly};
use crate::own_files;
use crate::processes::has_ended;
use crate::program;
use crate::reasons::REPLACED;
use crate::run::Run;
use crate::start_files::Cold;
use crate::watchers::Watchers;
use runahead_abi::environment::flags;
use runahead_abi::session::{care, reported};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long it sleeps at most when nobody rings: it looks whether the command has ended. Sooner where that is
/// to be told of, with the time that it took: a command that is killed says nothing.
const LOOK: Duration = Duration::from_millis(200);
const LOOK_TO_TELL: Duration = Duration::from_millis(10);

/// Serves a run until somebody needs more. Runs in a process of its own, of one thread.
pub fn attend(mut run: Run) -> ! {
    leave_the_terminal(&run, None);
    let (session, gate) = (run.session.share(), run.session.gate());
    let is_wanted = || session.is_wanted();
    let watchers = Watchers::of(&run, gate);
    let mut executions = Executions::new(&mut run, gate, watchers);
    // The command begins with what is remembered of it.
    let begins = AtomicBool::new(false);
    let has_more = || is_wanted() || begins.load(Ordering::Relaxed);
    let mut run = open_sites(run, &begins, |cold| cold.ask_for_libraries(gate, has_more));
    // Where the host is another process the command would look for the agent's file there.
    let serves_launcher = run.asks && run.address.flags & flags::REAPS == 0;
    if serves_launcher {
        executions.begin(Vec::new());
    }
    let look = if run.wishes.any() { LOOK_TO_TELL } else { LOOK };
    let mut awaited = 0;
    let stuck = Cell::default();
    loop {
        session.free_analysis(&stuck);
        let header = session.header();
        let doorbell = header.doorbell.load(Ordering::Acquire);
        let has_ended = run.main.as_ref().is_none_or(has_ended);
        let is_over = has_ended || header.main_leaves.load(Ordering::Acquire) != 0;
        let is_left_alone =
            matches!(header.care.load(Ordering::Acquire), care::BLIND_AT_START | care::UNKNOWN_AT_START);
        let is_wanted = if has_ended { session.is_still_wanted() } else { is_wanted() };
        if serves_launcher && run.asks && !begins.load(Ordering::Relaxed) && executions.serve_launcher() {
            run.asks = false;
            run.put_in = executions.hand_on();
            continue;
        }
        if run.asks && !serves_launcher
            || begins.load(Ordering::Relaxed)
            || is_wanted
            || !run.asks && executions.need_tracer()
            || ((is_over || is_left_alone) && run.wishes.any())
        {
            become_host(run);
        }
        if has_ended && !session.has_anybody() {
            // Who outlives the command is not to wait for answers.
            run.session.shut();
            std::process::exit(0);
        }
        if is_over && header.reported.load(Ordering::Acquire) == reported::NOT_YET {
            // It has not waited for so much that it would be worth to remember that.
            header.reported.store(reported::DONE, Ordering::Release);
            wake(&header.reported);
        }
        match &run.main {
            Some(main) if !has_ended && header.main_exits.load(Ordering::Acquire) != 0 => {
                awaited = if await_end(main) { awaited + 1 } else { AWAITED_MOST };
                // A handler may have led it elsewhere, or it is another process of that number.
                if awaited >= AWAITED_MOST {
                    header.main_exits.store(0, Ordering::Release);
                    awaited = 0;
                }
            }
            _ => wait(&header.doorbell, doorbell, look),
        }
    }
}

/// So many times at most an announced end is waited for with deaf ears, [`AWAITED`] each.
const AWAITED_MOST: u32 = 20;
const AWAITED: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Waits for the end of a process that has said that it exits. Who outlives it and rings is heard afterwards: the
/// kernel may have gigabytes of it to give back. False if that cannot be waited for.
fn await_end(main: &OwnedFd) -> bool {
    match poll(&mut [PollFd::new(main, PollFlags::IN)], Some(&AWAITED)) {
        Ok(_) | Err(Errno::INTR) => true,
        Err(_) => false,
    }
}

/// Opens the site file, while `meanwhile` is done for a command that is not in the cache. `begins` says
/// afterwards whether the command begins with what is remembered of it.
pub(crate) fn open_sites(mut run: Run, begins: &AtomicBool, meanwhile: impl FnOnce(Cold)) -> Run {
    let cold = run.cold.take();
    if let Err(why) = run.open_sites(begins, cold.map(|cold| || meanwhile(cold))) {
        give_up(run, &format!("there is no site file: {why}"));
    }
    run
}

/// Goes on as the host. Its file comes beside the speculator's where ours had to be waited for.
fn become_host(run: Run) -> ! {
    // Another version's would not serve this run.
    if run.installation.identity() != run.installed {
        give_up(run, REPLACED);
    }
    own_files::ask_for([run.installation.host.as_path(), run.installation.speculator.as_path()]);
    if run.address.flags & flags::REAPS != 0 {
        let parent = std::process::id();
        // SAFETY: this process has one thread; the child has a copy of all memory.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: concerns the calling process alone. It dies with us; if we have died already,
                // nobody would ever end it.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                if std::os::unix::process::parent_id() != parent {
                    std::process::exit(0);
                }
            }
            child if child > 0 => {
                // SAFETY: our child, of which nothing is asked but that it has ended.
                while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } < 0
                    && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
                {}
                std::process::exit(0);
            }
            _ => give_up(run, &format!("there is no process for the host: {}", io::Error::last_os_error())),
        }
    }
    let error = execute(&run);
    let why = format!("{} cannot be executed: {error}", run.installation.host.display());
    give_up(run, &why)
}

/// Executes the host with the run's descriptors. Returns only why it could not.
fn execute(run: &Run) -> io::Error {
    let error = execute_with(run, usize::MAX);
    match error.raw_os_error() {
        // With our own words it may be just too much; a report tells as much of the command as there is room for.
        Some(libc::E2BIG) => execute_with(run, LEAST_WORDS),
        _ => error,
    }
}

/// How many words of the command are told of where there is no room for all.
const LEAST_WORDS: usize = 1;

/// `most`: words of the command.
fn execute_with(run: &Run, most: usize) -> io::Error {
    let terminated = |word: OsString| CString::new(word.into_vec()).ok();
    let words: Option<Vec<CString>> = run.words(most).into_iter().map(terminated).collect();
    let environment = program::environment_with(&[run.variable()]);
    let file = terminated(run.installation.host.clone().into_os_string());
    let (Some(words), Some(environment), Some(file)) = (words, environment, file) else {
        return io::ErrorKind::InvalidInput.into();
    };
    let (words, environment) = (program::pointers(&words), program::pointers(&environment));
    for descriptor in run.descriptors() {
        // SAFETY: a descriptor of ours.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) };
    }
    // SAFETY: strings and null-terminated arrays that live until the call returns.
    unsafe { libc::execve(file.as_ptr(), words.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// There will be no host: nobody waits for one, and what is to be told is that.
fn give_up(mut run: Run, reason: &str) -> ! {
    if run.wishes.speak() {
        say_plainly(reason, run.wishes.stats.is_some());
    }
    report_plainly(run.wishes.report.take(), run.command, reason.to_owned());
    // A launcher that has asked in vain looks at it once it is answered.
    let header = run.session.header();
    header.reported.store(1, Ordering::Release);
    wake(&header.reported);
    run.session.shut();
    run.session.say_that_nobody_comes();
    std::process::exit(1)
}
