//! Joining the session, at the first stall, and leaving it.

use crate::arch::thread_base;
use crate::reads::ring_speculator;
use crate::state::{Fixed, Process};
use crate::{opened, release, unchecked};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use runahead_abi::environment::flags;
use runahead_abi::kin;
use runahead_abi::lives::SHORT_NS;
use runahead_abi::owner;
use runahead_abi::session::{
    AGENT_BYTES, ANALYSIS_CLOSED, ANALYSIS_GIVEN_UP, Header, SLOT_BYTES, SLOTS, SPECULATOR_BYTES, Slot,
    activity, care, companions, names_ahead, reported, retire, slot_offset, watching,
};
use runahead_kernel::files::{read_link, stat_at};
use runahead_kernel::memory::{PROT_NONE, PROT_READ, PROT_WRITE, protect, show_other_part};
use runahead_kernel::process::{
    futex_wait, futex_wake, major_faults_and_blocks, monotonic_ns, prctl, process_id, processor_ns, sleep_ns,
    thread_id,
};
use runahead_kernel::text::decimal;
use runahead_kernel::uapi::{general as n, prctl::PR_SET_PTRACER};
use runahead_kernel::{PAGE, Result};
use runahead_policy::kin::{Known, Life};
use runahead_policy::regret::is_worth_a_start;

/// How long an exiting program waits for the report to be printed, when one was asked for.
const REPORT_WAIT_NS: u64 = 2_000_000_000;

/// How long a main process whose run is remembered waits at its end in all, unless for a report: the host
/// takes some us for each file. It may be stopped.
const REMEMBER_WAIT_NS: u64 = 250_000_000;

/// The slot of this process; claims one at the first call. None: run plainly. The caller holds the process's
/// lock, or is the start: so a process that becomes unchecked ([`unchecked::again`]) is not attached at the
/// same time.
pub fn slot(state: &Fixed) -> Option<&'static Slot> {
    if state.wait.unchecked.is_so() { None } else { slot_in_any_case(state) }
}

fn slot_in_any_case(state: &Fixed) -> Option<&'static Slot> {
    let process = state.process();
    if let Some(slot) = state.slot() {
        return Some(slot);
    }
    if process.refused.load(Ordering::Relaxed) != 0 || is_borrowed(state) {
        return None;
    }
    let joined = join(state, process);
    if joined.is_none() {
        process.refused.store(1, Ordering::Relaxed);
    }
    joined
}

fn join(state: &Fixed, process: &Process) -> Option<&'static Slot> {
    let header = state.header();
    let me = id_for_the_host()?;
    let index = (0..SLOTS).find(|&index| owner::claim(&header.owners[index], me))?;
    if show_slot(state.slot_address(), index).is_err() {
        owner::release(&header.owners[index]);
        return None;
    }
    // A child of fork has not passed the start, where this is said for a program.
    if state.has(flags::RESTRICTED_TRACING) && state.names_tracer.load(Ordering::Relaxed) == 0 {
        let_host_read(state);
    }
    // SAFETY: just shown there, of a slot's size, for the life of the process.
    let slot = unsafe { &*(state.slot_address() as *const Slot) };
    slot.agent.state_cookie.store(state.cookie, Ordering::Relaxed);
    slot.agent.number.store(index as u32, Ordering::Relaxed);
    // Last: the host starts nothing for a slot before it finds the address there.
    slot.agent.state_address.store(state as *const Fixed as u64, Ordering::Release);
    process.claimed_by.store(process_id() as u32, Ordering::Relaxed);
    learn_of_kin(process, header);
    process.attached.store(1, Ordering::Release);
    Some(slot)
}

/// Has slot `index` appear at its place in the agent's block. No descriptor is needed, so none that another
/// thread may be about to open is taken.
fn show_slot(address: usize, index: usize) -> Result<()> {
    // SAFETY: the slot's place is the agent's. A child of fork finds its parent's slot there, of which it
    // uses nothing.
    unsafe {
        protect(address, SLOT_BYTES, PROT_NONE)?;
        show_other_part(address, SLOT_BYTES, slot_offset(index) / PAGE)?;
        // What the speculator writes is read-only here: a stray write of the program into it faults as it
        // would have without us.
        protect(address, AGENT_BYTES, PROT_READ | PROT_WRITE)?;
        protect(address + AGENT_BYTES, SLOT_BYTES - AGENT_BYTES, PROT_READ)
    }
}

const _: () = assert!(AGENT_BYTES + SPECULATOR_BYTES < SLOT_BYTES);

/// Under Yama's restricted scope nobody may read a process unless it says so. Said before the program's first
/// instruction, so that what the program says itself stands.
pub fn let_host_read(state: &Fixed) {
    // SAFETY: names a process that may read this one; changes nothing else.
    let _ = unsafe { prctl(PR_SET_PTRACER, state.address.host as usize, 0, 0, 0) };
}

/// What earlier processes of this executable have left behind.
fn learn_of_kin(process: &Process, header: &Header) {
    let Some(key) = executable_key() else { return };
    header.lives.was_useful(key);
    process.executable.store(key, Ordering::Relaxed);
    if let Some(word) = header.kin.word(key) {
        process.patience.store(Known::of(word.load(Ordering::Relaxed)).patience(), Ordering::Relaxed);
    }
}

/// By which the tables in the session's header know the executable.
pub fn executable_key() -> Option<u64> {
    let stat = stat_at(n::AT_FDCWD, c"/proc/self/exe", 0).ok()?;
    Some(kin::key(stat.st_dev, stat.st_ino))
}

/// Leaves behind that this process was not worth being looked at, or that it was. (By the processor's time: on
/// a busy machine everybody lives long.)
fn tell_of_life(state: &Fixed) {
    let process = state.process();
    if process.tells_of_life.load(Ordering::Relaxed) == 0 || own_slot(state).is_some() {
        return;
    }
    let key = process.executable.load(Ordering::Relaxed);
    let lives = &state.header().lives;
    match processor_ns() < SHORT_NS && major_faults_and_blocks() == (0, 0) {
        true => lives.was_useless(key),
        false => lives.was_useful(key),
    }
}

/// Leaves behind what this process has been through.
fn tell_kin(process: &Process, slot: &Slot, header: &Header) {
    let Some(word) = header.kin.word(process.executable.load(Ordering::Relaxed)) else {
        return;
    };
    let counts = &slot.agent.counts;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let life = Life {
        stalls: count(&counts.stalls),
        stalled_ns: count(&counts.stall_ns),
        partial: count(&counts.partial),
        posts: count(&counts.posts),
        foretold: count(&counts.reads_hinted),
    };
    word.store(Known::of(word.load(Ordering::Relaxed)).after(life).word(), Ordering::Relaxed);
}

/// Our process id as the host knows it: in the pid namespace of the `/proc` through which we have found the
/// host. The program may have gone into another one since.
pub fn id_for_the_host() -> Option<u32> {
    let mut buffer = [0u8; 16];
    let digits = read_link(c"/proc/self", &mut buffer).ok()?;
    u32::try_from(decimal(digits).0).ok().filter(|&id| id != 0)
}

/// Nobody sees the process's calls from now on. To be called before it has given up rights: it may not be
/// allowed what this takes.
pub fn goes_unseen(state: &Fixed) {
    if !state.has(flags::LASTING)
        && let Some(id) = id_for_the_host()
    {
        state.header().unseen.note(id);
    }
}

/// The program's page faults are to be watched, for one of the reasons in [`watch`]. Attaches if need be.
pub fn want_watch(state: &Fixed, reason: u32) {
    if state.has(flags::NO_SPECULATION) {
        return;
    }
    let Some(slot) = slot(state) else {
        return;
    };
    let agent = &slot.agent;
    if agent.watch_wanted.load(Ordering::Relaxed) < reason {
        agent.watch_thread.store(thread_id() as u32, Ordering::Relaxed);
        agent.watch_thread_base.store(thread_base(state) as u64, Ordering::Relaxed);
        // Before anybody watches.
        state.process().watched.store(1, Ordering::Release);
        agent.watch_wanted.store(reason, Ordering::Release);
        ring(state.header());
    }
}

/// Tells the host that there is something new in this process's slot.
pub fn ring_host(state: &Fixed) {
    ring(state.header());
}

/// The same of the header.
pub fn ring(header: &Header) {
    header.doorbell.fetch_add(1, Ordering::Release);
    futex_wake(&header.doorbell);
}

/// The program has waited for so many ns.
pub fn has_waited(state: &Fixed, ns: u64) {
    // Beyond that nobody asks.
    if !runs_long(state.header()) {
        state.header().waited_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

/// Whether the run has waited for so long that somebody is to be called who may have to be started.
pub fn is_worth_a_call(state: &Fixed) -> bool {
    state.has(flags::ALWAYS_ACTIVE) || runs_long(state.header())
}

/// Whether the run has waited for so long, or somebody is there already.
fn runs_long(header: &Header) -> bool {
    let is_cold = header.is_cold.load(Ordering::Relaxed) != 0 && header.serves.load(Ordering::Relaxed) == 0;
    is_worth_a_start(header.waited_ns.load(Ordering::Relaxed), is_cold)
}

/// Tells the host that there is something new in this process's slot, if it is worth a call; else it is found
/// there later.
pub fn call_host(state: &Fixed) {
    if is_worth_a_call(state) {
        ring_host(state);
    }
}

/// Asks the host to analyse the file at `path` (at most 1023 bytes) and waits for the answer, at most
/// `timeout_ns`, until others have had theirs as well. True if the site file may know it now.
pub fn request_analysis(state: &Fixed, path: &[u8], timeout_ns: u64) -> bool {
    let header = state.header();
    let request = &header.analysis;
    // Nobody opens it where a program of the run is told who does.
    if path.len() >= 8 * request.path.len() || header.releasing.is_watched() {
        return false;
    }
    let end = monotonic_ns().saturating_add(timeout_ns);
    let me = id_for_the_host().unwrap_or(process_id() as u32);
    if !is_our_turn(header, me, end) {
        return false;
    }
    for (index, word) in request.path.iter().enumerate() {
        let mut bytes = [0u8; 8];
        for (to, from) in bytes.iter_mut().zip(path.iter().skip(8 * index)) {
            *to = *from;
        }
        word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }
    // Else nobody answers any more.
    if request.state.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        let _ = request.holder.compare_exchange(me, 0, Ordering::AcqRel, Ordering::Relaxed);
        return false;
    }
    ring(header);
    // (What wakes us may be meant for who asked before us.)
    let is_answered = || request.state.load(Ordering::Acquire) != 1;
    while !is_answered() {
        let now = monotonic_ns();
        if now >= end {
            break;
        }
        futex_wait(&request.state, 1, Some(end - now));
    }
    let answered = is_answered();
    // Taken, so that nobody else waits for who does not come (who is stopped, say).
    let gives_up = || {
        let state = &request.state;
        state.compare_exchange(1, ANALYSIS_GIVEN_UP, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    if !answered && gives_up() {
        return false;
    }
    // Who is in a pid namespace of his own may be taken for gone, and somebody else ask by now.
    if request.holder.load(Ordering::Relaxed) != me {
        return answered;
    }
    let _ = request.state.compare_exchange(2, 0, Ordering::AcqRel, Ordering::Relaxed);
    // The host has it for good, when it has left the command.
    let _ = request.holder.compare_exchange(me, 0, Ordering::AcqRel, Ordering::Relaxed);
    futex_wake(&request.holder);
    answered
}

/// Takes the mailbox as `me`, once others have had their answers, at most until `end` (monotonic ns): the
/// programs of a pipeline start at once, and all of them have libraries that nobody knows yet. False: nobody
/// answers, or not by then, or who has it does nothing (stopped, or killed, say).
fn is_our_turn(header: &Header, me: u32, end: u64) -> bool {
    const AGAIN_NS: u64 = 5_000_000;
    /// Longer than a busy machine keeps one that runs from its processor, mostly.
    const IDLE_NS: u64 = 50_000_000;
    let request = &header.analysis;
    let (mut seen, mut since) = ((0, 0), monotonic_ns());
    loop {
        let taken = request.holder.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed);
        let Err(holder) = taken else { return true };
        let is = request.state.load(Ordering::Acquire);
        let now = monotonic_ns();
        if seen != (holder, is) {
            (seen, since) = ((holder, is), now);
        }
        // Only an analysis takes long.
        let is_idle = is != 1 && now.saturating_sub(since) >= IDLE_NS;
        if matches!(is, ANALYSIS_GIVEN_UP | ANALYSIS_CLOSED) || is_idle || now >= end {
            return false;
        }
        if !futex_wait(&request.holder, holder, Some(AGAIN_NS.min(end.saturating_sub(now)))) {
            // Who is gone is found by the host.
            ring(header);
        }
    }
}

/// Sends everybody away who looks at files on this process's behalf, for good, and waits until they have gone,
/// at most `longest` ns: whatever they hold open is closed then. For calls that another holder of a file
/// disturbs (leases), and for the end: who runs a command and then unmounts must find nobody there.
fn dismiss(slot: &Slot, header: &Header, why: u32, longest: u64) {
    let (agent, speculator) = (&slot.agent, &slot.speculator);
    let end = monotonic_ns().saturating_add(longest);
    let mut names = agent.names.written() != 0 || speculator.names.written() != 0;
    // The host says that it watches and then looks at this once more: one of us sees the other. (A program that watches
    // files goes on watching at its end.)
    agent.retire.fetch_max(why, Ordering::SeqCst);
    // Who comes later finds that, and takes no notes: nobody is started to be sent away.
    names &= header.serves.load(Ordering::SeqCst) != 0;
    let watched = slot.faults.watching.load(Ordering::SeqCst) == watching::ON;
    let watches = why == retire::WATCHES;
    if names || watched || watches {
        ring(header);
    }
    // First, since who watches page faults may want a speculator.
    if watched {
        wait_for(&slot.faults.watching, watching::GONE, end);
    }
    let wanted = |word: &AtomicU32| word.load(Ordering::Relaxed) != 0;
    let ahead = wanted(&agent.speculator_wanted) || wanted(&slot.faults.speculator_wanted);
    // The host says that it is about to start one, and then looks whether it may.
    if ahead && speculator.activity.load(Ordering::SeqCst) != activity::NONE {
        call_away(slot, end);
        // Its last note may have come after we looked.
        if !names && speculator.names.written() != 0 {
            names = true;
            ring(header);
        }
    }
    if names {
        wait_for(&speculator.names_ahead, names_ahead::GONE, end);
    }
    if names || watches {
        wait_for(&speculator.companions, companions::NONE, end);
    }
}

/// Wakes the speculator until it has gone, at most until `end` (monotonic ns).
///
/// Time and again: ahead of a fault it looks whether it is to go and then falls asleep on a word that nobody
/// writes any more, so one call that comes in between is lost. (Of 200 programs whose speculation had come to
/// its end as well, 6 exited 200 ms late.)
fn call_away(slot: &Slot, end: u64) {
    let speculator = &slot.speculator;
    const AGAIN_NS: u64 = 1_000_000;
    while speculator.activity.load(Ordering::Acquire) != activity::GONE && monotonic_ns() < end {
        ring_speculator(slot);
        futex_wake(&slot.faults.passed);
        wait_for(&speculator.activity, activity::GONE, end.min(monotonic_ns() + AGAIN_NS));
    }
}

/// Waits until `word` is `wanted`, at most until `end` (monotonic ns).
fn wait_for(word: &AtomicU32, wanted: u32, end: u64) {
    loop {
        let seen = word.load(Ordering::Acquire);
        let now = monotonic_ns();
        if seen == wanted || now >= end {
            return;
        }
        futex_wait(word, seen, Some(end - now));
    }
}

/// The process does something that bears no onlooker: from now on it has none.
pub fn retire(state: &Fixed) {
    leave_alone(state, retire::BEARS_NOBODY);
}

/// The process does something after which system calls of ours may harm it, or our memory be gone: nobody
/// looks on, and no thread is inside the agent but the caller's, when this returns.
pub fn withdraw(state: &Fixed) {
    /// A visit takes some us, a hold some ms.
    const LONGEST_NS: u64 = 1_000_000_000;
    match state.wait.asked_as.load(Ordering::Relaxed) {
        // Where its code is not known yet calls of ours may be forbidden already. It has asked for a check.
        asked_as if state.wait.unchecked.is_so() => {
            if asked_as != 0 && !is_borrowed(state) && !state.has(flags::LASTING) {
                state.header().unseen.note(asked_as);
            }
        }
        _ => goes_unseen(state),
    }
    retire(state);
    state.wait_for_others(LONGEST_NS);
}

/// The process is about to give up rights. Those that are there for it keep theirs, and what it is afterwards may be in
/// other hands: it is left alone, and the session is not in its memory any more.
pub fn give_up(state: &Fixed) {
    if is_borrowed(state) {
        return;
    }
    cares(state, care::WITHOUT_RIGHTS);
    withdraw(state);
    refuse(state);
    state.forget_session();
}

/// Nobody is to do anything for the process any more.
pub fn refuse(state: &Fixed) {
    if !is_borrowed(state) {
        state.process().refused.store(1, Ordering::Relaxed);
    }
}

/// The same of a filter for system calls. One of a child of vfork's is not its parent's; but the child has no agent but
/// its parent's, which must not make a call any more.
pub fn is_filtered(state: &Fixed) {
    if is_borrowed(state) { retire(state) } else { give_up(state) }
}

/// Whether this is a child of vfork, whose rights are not its parent's, and which has no agent but its
/// parent's: it uses nothing of a slot that it finds here, and claims none.
pub fn is_borrowed(state: &Fixed) -> bool {
    state.process().begun_by.load(Ordering::Relaxed) != process_id() as u32
}

/// The process has asked to be told who opens files. The host is told even if it knew nothing of it.
pub fn watches(state: &Fixed) {
    let _ = slot_in_any_case(state);
    // Nor is a file looked at for the next program.
    state.header().checks.over.store(1, Ordering::SeqCst);
    opened::ends_replay(state);
    leave_alone(state, retire::WATCHES);
    // All of a user's programs do not go without for one that may watch for ever.
    if !state.has(flags::LASTING) {
        release::watches(state);
    }
}

fn leave_alone(state: &Fixed, why: u32) {
    const LONGEST_NS: u64 = 1_000_000_000;
    state.stand_down();
    unchecked::leave(state);
    // Also a parent's, of whose memory a child of vfork has just sent the agent away.
    if let Some(slot) = state.slot() {
        dismiss(slot, state.header(), why, LONGEST_NS);
    }
}

/// The slot, if this very process has claimed it: a child of vfork finds its parent's, whose onlookers are
/// not its to send away.
pub fn own_slot(state: &Fixed) -> Option<&'static Slot> {
    let process = state.process();
    state.slot().filter(|_| process.claimed_by.load(Ordering::Relaxed) == process_id() as u32)
}

/// The process is about to exit: nobody is left with its files open. With a report wanted, the main process lets the host print it first,
/// so that it is there when the command is over.
pub fn leave(state: &Fixed) {
    settle(state);
    let header = state.header();
    if is_main(header) {
        // Who unmounts what the run was in finds nobody there, mostly: its own end has nobody else to tell of it.
        header.main_exits.store(1, Ordering::Release);
        ring(header);
    }
}

fn settle(state: &Fixed) {
    // A speculator that is inside a look-up on a slow disk takes some ms to notice, and one that shares its processor
    // with four others takes its turn. (With 20 ms, one unmount of fifteen failed on a machine under load 9.)
    const LONGEST_NS: u64 = 200_000_000;
    let header = state.header();
    let remembers = state.has(flags::REMEMBERS) && is_main(header);
    let end = if remembers { monotonic_ns().saturating_add(REMEMBER_WAIT_NS) } else { 0 };
    unchecked::leave(state);
    tell_of_life(state);
    if let Some(slot) = own_slot(state) {
        tell_kin(state.process(), slot, header);
        dismiss(slot, header, retire::BEARS_NOBODY, LONGEST_NS);
    }
    let waited = state.has(flags::REPORT | flags::TRACE).then_some(REPORT_WAIT_NS);
    if !remembers {
        have_reported(state, waited);
        return;
    }
    let has_entered =
        || opened::enters(state) && state.slot().is_some_and(|slot| slot.agent.opened.written() != 0);
    let is_recorded = header.remembers.load(Ordering::Relaxed) != 0 || has_entered();
    have_reported(state, waited.or_else(|| is_recorded.then(|| end.saturating_sub(monotonic_ns()))));
    // Files that earlier runs have opened may just be looked at, whatever this one has done, and whoever has
    // said that no more are to be: the host has waited for its threads no longer than it may.
    match header.reported.load(Ordering::Acquire) {
        reported::DONE_WITH_THREADS => opened::says_over(state),
        _ => opened::ends(state, end),
    }
}

/// Says what becomes of the program, one of [`care`], for the report. What is left alone at its start has no
/// agent at its end, which would wait until that is written: so it is written now, and once more then.
pub fn cares(state: &Fixed, how: u32) {
    let header = state.header();
    if matches!(how, care::BLIND_AT_START | care::UNKNOWN_AT_START) {
        goes_unseen(state);
    }
    if !is_main(header) {
        return;
    }
    header.care.store(how, Ordering::Release);
    if matches!(how, care::BLIND_AT_START | care::UNKNOWN_AT_START) && state.has(flags::REPORT | flags::TRACE)
    {
        have_host_come_by(header);
    }
}

/// Waits until the host, which may have to begin, has looked at what is in the session now.
fn have_host_come_by(header: &Header) {
    const AGAIN_NS: u64 = 200_000;
    let (rounds, end) =
        (header.rounds.load(Ordering::Acquire), monotonic_ns().saturating_add(REPORT_WAIT_NS));
    // There may be no host any more, or none can begin.
    let is_there = || {
        header.reported.load(Ordering::Acquire) == reported::NOT_YET
            && header.analysis.state.load(Ordering::Acquire) != ANALYSIS_CLOSED
    };
    // The round under way may have passed it.
    while is_there() && header.rounds.load(Ordering::Acquire).wrapping_sub(rounds) < 2 && monotonic_ns() < end
    {
        ring(header);
        sleep_ns(AGAIN_NS);
    }
}

/// The agent stands down, so that nobody waits at the main process's end for who opens what earlier runs have
/// opened: that is not opened any more.
pub fn sees_no_end(state: &Fixed) {
    if !state.has(flags::REMEMBERS) {
        return;
    }
    let header = state.header();
    let is_main = match state.wait.asked_as.load(Ordering::Relaxed) {
        0 => is_main(header),
        // A call of ours may be forbidden.
        asked_as => asked_as == header.main_process.load(Ordering::Relaxed),
    };
    if is_main {
        opened::says_over(state);
    }
}

fn is_main(header: &Header) -> bool {
    header.main_process.load(Ordering::Relaxed) == process_id() as u32
}

/// Lets the host look at what is to be remembered and write the report, if this is the main process, for so
/// long at most; None: nothing is wanted.
fn have_reported(state: &Fixed, longest: Option<u64>) {
    let header = state.header();
    let Some(longest) = longest.filter(|_| is_main(header)) else { return };
    header.main_leaves.store(1, Ordering::Release);
    ring(header);
    futex_wait(&header.reported, reported::NOT_YET, Some(longest));
}
