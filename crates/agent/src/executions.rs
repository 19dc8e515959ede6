//! Programs that the process is about to execute, of which no loader will bring the agent in: the host is
//! asked to do it (`runahead_abi::executions`).
//!
//! That is so where the new environment does not name the agent (it was emptied, or the program preloads
//! something else), and where the file is known, or not known not to be, a program without glibc's loader.
//! All others cost a look at the environment and at the file, some us.
//!
//! Everything here is read through the kernel: addresses are the program's, and a bad one is the kernel's to
//! refuse.

use crate::attach;
use crate::patch::read_own;
use crate::rooms::{STRING_BYTES, read_beginning};
use crate::start;
use crate::state::Fixed;
use crate::substitute;
use core::sync::atomic::Ordering;
use runahead_abi::environment::{SESSION, SWITCH, find_preloaded, has_loader_tell};
use runahead_abi::executions::{CLOSED, Executions, Known, state as answer};
use runahead_abi::kin;
use runahead_kernel::files::{IoVec, Stat, stat_at_address};
use runahead_kernel::memory::read_process;
use runahead_kernel::process::{futex_wait, monotonic_ns, prctl, process_id, thread_id};
use runahead_kernel::uapi::general as n;

/// How long the host is waited for, ns: until others are answered, until it has looked, and, once it is about
/// to stop us, until it has. Whoever finds nobody there leaves the mailbox taken, so that nobody else waits.
/// (With a tenth of it, programs on a machine with every processor busy began without an agent, and nobody was
/// asked to let go of what they unmounted at once.)
const LONGEST_NS: u64 = 1_000_000_000;
const STOPPED_LONGEST_NS: u64 = 2_000_000_000;

/// How long one waits at a time for others to be answered, ns: who lets go of the mailbox wakes nobody.
const TURN_AGAIN_NS: u64 = 500_000;

/// prctl(2)'s question whether memory that was written to may be executed; the answer is inherited.
const PR_GET_MDWE: u32 = 66;

/// Entries of an environment that are looked at at a time, and in all.
pub const ENTRIES: usize = 16;
pub const ENTRIES_MOST: usize = 1024;

/// Bytes of an entry that tell what it is.
pub const HEAD: usize = 16;

pub const PRELOAD: &[u8; 11] = b"LD_PRELOAD=";

/// Bytes kept of the name by which the loader has the agent.
pub const PRELOAD_KEPT: usize = 64;

/// execve(2)'s arguments.
struct Execution {
    directory: i32,
    path: usize,
    environment: usize,
    flags: u32,
}

impl Execution {
    fn of(number: u32, a: [usize; 6]) -> Execution {
        match number {
            n::__NR_execve => Execution { directory: n::AT_FDCWD, path: a[0], environment: a[2], flags: 0 },
            _ => Execution { directory: a[0] as i32, path: a[1], environment: a[3], flags: a[4] as u32 },
        }
    }

    /// What the kernel tells of the file.
    fn file(&self) -> Option<Stat> {
        // SAFETY: plain words, for which zeros are a value.
        let mut stat: Stat = unsafe { core::mem::zeroed() };
        let Execution { directory, path, flags, .. } = *self;
        // SAFETY: a `stat` of ours; the kernel checks the path.
        unsafe { stat_at_address(directory, path, &raw mut stat as usize, flags) }.ok()?;
        Some(stat)
    }
}

/// The program that comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The loader brings the agent in.
    ByItself,
    /// Its loader cannot, and says so if it is told to; or it would name the agent among what it loads.
    Narrow,
    /// The host has the process on a lead and puts the agent in, or lets all go on its behalf.
    PutIn,
    /// Whatever else: it is left alone, or a tracer may fail.
    Other,
}

/// Has the host put the agent into the program that comes next, where that is needed. Waits for it as long as
/// [`LONGEST_NS`].
pub fn announce(state: &Fixed, number: u32, a: [usize; 6]) -> Next {
    // Of a process with several threads the kernel makes the one that executes the first one. It is left
    // alone.
    let is_left = state.process().refused.load(Ordering::Relaxed) != 0 || substitute::is_cut_off(state);
    if is_left || thread_id() != process_id() {
        return Next::Other;
    }
    // There is no room for an agent in what comes next either (`start::has_room`).
    if !start::has_room() {
        return Next::Other;
    }
    // SAFETY: asks.
    if unsafe { prctl(PR_GET_MDWE, 0, 0, 0, 0) }.is_ok_and(|refuses| refuses != 0) {
        return Next::Other;
    }
    let execution = Execution::of(number, a);
    let carries = match environment(state, execution.environment) {
        Carried::SwitchedOff => return Next::Other,
        Carried::ToBeNamed => return Next::Narrow,
        Carried::Ours => true,
        Carried::Others => false,
    };
    let executions = &state.header().executions;
    // What is not there will not be executed either.
    let Some(file) = execution.file() else { return Next::ByItself };
    let key = kin::key(file.st_dev, file.st_ino);
    let mut known = executions.known(key);
    let is_unanswered =
        |known| matches!(known, Known::No | Known::ToBePutIn) || known == Known::ByItself && !carries;
    if is_unanswered(known) {
        // Whoever is answered before may ask the same.
        if ask(state, executions, &execution, &file, || is_unanswered(executions.known(key))) {
            return Next::PutIn;
        }
        // Asked once more it would count as left alone once more.
        let now = executions.known(key);
        known = if carries || now == Known::ToBePutIn { now } else { Known::No };
    }
    match known {
        Known::Narrow => Next::Narrow,
        // Not into a program that gets rights from its file.
        Known::ByItself if file.st_mode & (n::S_ISUID | n::S_ISGID) == 0 => Next::ByItself,
        _ => Next::Other,
    }
}

/// What an environment says of us.
enum Carried {
    /// It names the agent and the session.
    Ours,
    Others,
    /// The loader would name the agent among what it loads.
    ToBeNamed,
    /// The user wants nothing of us.
    SwitchedOff,
}

fn environment(state: &Fixed, address: usize) -> Carried {
    let (mut session, mut preload, mut names) = (false, false, false);
    for first in (0..ENTRIES_MOST).step_by(ENTRIES) {
        let mut pointers = [0usize; ENTRIES];
        let count = entries(address.wrapping_add(first * size_of::<usize>()), &mut pointers);
        let mut heads = [[0u8; HEAD]; ENTRIES];
        for (head, pointer) in heads_of(&pointers, count, &mut heads) {
            if head.starts_with(SESSION.as_bytes()) {
                session = true;
            } else if head.starts_with(PRELOAD) {
                // The loader believes the last of several.
                preload = names_agent(state, pointer + PRELOAD.len());
            } else if has_loader_tell(head) {
                names = true;
            } else if head.strip_prefix(SWITCH.as_bytes()).is_some_and(|rest| rest.starts_with(b"=off\0")) {
                return Carried::SwitchedOff;
            }
        }
        if count < ENTRIES {
            break;
        }
    }
    match (session && preload, names) {
        (true, true) => Carried::ToBeNamed,
        (true, false) => Carried::Ours,
        (false, _) => Carried::Others,
    }
}

/// The addresses in a null-terminated array, and how many there are before its end.
pub fn entries(address: usize, pointers: &mut [usize; ENTRIES]) -> usize {
    let mut bytes = [0u8; ENTRIES * size_of::<usize>()];
    let local = [IoVec { base: bytes.as_mut_ptr() as usize, length: bytes.len() }];
    let remote = [IoVec { base: address, length: bytes.len() }];
    // SAFETY: the local piece is as long as said.
    let got = unsafe { read_process(process_id(), &local, &remote) }.unwrap_or(0);
    let words = bytes.get(..got).unwrap_or_default().chunks_exact(size_of::<usize>());
    let mut count = 0;
    for (pointer, word) in pointers.iter_mut().zip(words) {
        *pointer = word.try_into().map_or(0, usize::from_le_bytes);
        if *pointer == 0 {
            break;
        }
        count += 1;
    }
    count
}

/// The first bytes of `count` strings, as far as they can be read, each with its address. (What follows a
/// shorter one is read as well.)
pub fn heads_of<'a>(
    pointers: &'a [usize; ENTRIES],
    count: usize,
    heads: &'a mut [[u8; HEAD]; ENTRIES],
) -> impl Iterator<Item = (&'a [u8], usize)> {
    let local = [IoVec { base: heads.as_mut_ptr() as usize, length: count * HEAD }];
    let mut remote = [const { IoVec { base: 0, length: 0 } }; ENTRIES];
    for (piece, pointer) in remote.iter_mut().zip(pointers) {
        *piece = IoVec { base: *pointer, length: HEAD };
    }
    // SAFETY: the local piece is the heads, or some of them.
    let got = unsafe { read_process(process_id(), &local, remote.get(..count).unwrap_or_default()) };
    if got != Ok(count * HEAD) {
        // One of them ends with the mapping that it is in: one by one.
        for (head, pointer) in heads.iter_mut().zip(pointers).take(count) {
            if !read_own(*pointer, head) {
                *head = [0; HEAD];
            }
        }
    }
    heads.iter().map(|head| head.as_slice()).zip(pointers.iter().copied()).take(count)
}

/// Whether the agent, by this process's name for it, is among what the loader is to preload. (The loader calls it
/// before others wherever it stands.)
pub fn names_agent(state: &Fixed, address: usize) -> bool {
    let ours = state.preload.split(|&byte| byte == 0).next().unwrap_or_default();
    let is_whole = ours.len() < PRELOAD_KEPT;
    let is_ours = |name: &[u8]| if is_whole { name == ours } else { name.starts_with(ours) };
    // A name that is cut off behind the first of them is not ours: it is asked about, then.
    let mut value = [0; STRING_BYTES];
    let bytes = read_beginning(address, &mut value);
    !ours.is_empty() && find_preloaded(value.get(..bytes).unwrap_or_default(), is_ours).is_some()
}

/// Asks the host about a file. Whether the process is traced now.
fn ask(
    state: &Fixed,
    executions: &Executions,
    execution: &Execution,
    file: &Stat,
    is_unanswered: impl Fn() -> bool,
) -> bool {
    let Some(me) = attach::id_for_the_host() else { return false };
    if !has_turn(executions, me, &is_unanswered) {
        return false;
    }
    if !is_unanswered() {
        let _ = executions.holder.compare_exchange(me, 0, Ordering::AcqRel, Ordering::Relaxed);
        return false;
    }
    executions.state_address.store(state as *const Fixed as u64, Ordering::Relaxed);
    executions.directory.store(execution.directory.cast_unsigned(), Ordering::Relaxed);
    executions.path.store(execution.path as u64, Ordering::Relaxed);
    executions.environment.store(execution.environment as u64, Ordering::Relaxed);
    executions.device.store(file.st_dev, Ordering::Relaxed);
    executions.inode.store(file.st_ino, Ordering::Relaxed);
    let number = executions.number.fetch_add(1, Ordering::Relaxed);
    let asked = answer::word(number, answer::ASKED);
    executions.state.store(asked, Ordering::Release);
    attach::ring(state.header());
    let answer = wait_for_answer(executions, asked);
    if answer != Answer::Nothing {
        // The host has it for good, when it has left the command.
        let _ = executions.holder.compare_exchange(me, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
    answer == Answer::Traced
}

/// What a request has come to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Nobody has even looked.
    Nothing,
    /// The process is not traced, or it is not known any more whether it is.
    Other,
    Traced,
}

/// Whether it is this process's turn to ask, for which it waits while others are answered: a shell starts the
/// parts of a pipe at the same time, and who is left alone for that would be one that bears nobody.
fn has_turn(executions: &Executions, me: u32, is_unanswered: impl Fn() -> bool) -> bool {
    let end = monotonic_ns().saturating_add(LONGEST_NS);
    let mut first = None;
    loop {
        let Err(holder) = executions.holder.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed)
        else {
            return true;
        };
        let seen = executions.state.load(Ordering::Acquire);
        let kind = answer::of(seen);
        // The host has left, or has not looked at what somebody asked; or that was the same.
        if holder == CLOSED || kind == answer::ABANDONED || !is_unanswered() {
            return false;
        }
        let is_as_at_first = *first.get_or_insert((holder, seen)) == (holder, seen);
        if monotonic_ns() >= end {
            // Who has it is gone, unless the host is at it: nobody waits for him again.
            if is_as_at_first && !matches!(kind, answer::TAKEN | answer::TRACING) {
                let left = answer::to(seen, answer::ABANDONED);
                let _ = executions.state.compare_exchange(seen, left, Ordering::AcqRel, Ordering::Relaxed);
            }
            return false;
        }
        futex_wait(&executions.state, seen, Some(TURN_AGAIN_NS));
    }
}

/// Waits for the answer to a request, or gives it up.
fn wait_for_answer(executions: &Executions, asked: u32) -> Answer {
    let mut end = monotonic_ns().saturating_add(LONGEST_NS);
    let mut is_stopping = false;
    loop {
        let seen = executions.state.load(Ordering::Acquire);
        if answer::to(seen, answer::ASKED) != asked {
            return Answer::Other;
        }
        let kind = answer::of(seen);
        if kind == answer::ABANDONED {
            return Answer::Nothing;
        }
        if !matches!(kind, answer::ASKED | answer::TAKEN | answer::TRACING) {
            executions.state.store(answer::EMPTY, Ordering::Release);
            return if kind == answer::TRACED { Answer::Traced } else { Answer::Other };
        }
        let now = monotonic_ns();
        if kind == answer::TRACING && !is_stopping {
            is_stopping = true;
            end = now.saturating_add(STOPPED_LONGEST_NS);
        }
        if now < end {
            futex_wait(&executions.state, seen, Some(end - now));
        } else {
            let is_looked_at = kind != answer::ASKED;
            let left = if is_looked_at { answer::EMPTY } else { answer::to(seen, answer::ABANDONED) };
            if executions.state.compare_exchange(seen, left, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return if is_looked_at { Answer::Other } else { Answer::Nothing };
            }
        }
    }
}
