//! Executions with another environment than the program has given: without what is ours in it.
//!
//! glibc's loader says on standard error which files of `LD_PRELOAD` it could not load, and a program for
//! which arguments and environment just have room alone does not have it with ours. Where the process is a
//! program of its own [`crate::rooms`] takes the agent out of the variable. A child of vfork cannot: the
//! variable is its parent's. So the kernel is given another array, in memory of the agent's:
//!
//! - where the program is one of 32 bits, or of another machine;
//! - where a child of vfork has gone where the agent's file is not, or is cut off ([`crate::rooms`]);
//! - where the kernel finds arguments and environment too long, which it is asked about first.
//!
//! There is one [`Substitute`] in a process. A child of vfork that has executed something leaves it taken in
//! its parent's memory, so whoever wants it looks whether its holder is still there
//! ([`Substitute::is_left`]); in doubt the program executes with what it has given.

use crate::arch::{Answer, Frame};
use crate::attach;
use crate::executions::{self, ENTRIES, ENTRIES_MOST, HEAD, PRELOAD};
use crate::patch::read_own;
use crate::rooms::{STRING_BYTES, is_ours, read_string};
use crate::state::Fixed;
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use runahead_abi::environment::{SESSION, find_preloaded, preload_without};
use runahead_kernel::files::{IoVec, may_read};
use runahead_kernel::memory::read_process;
use runahead_kernel::process::{futex_wait, limit, monotonic_ns, parent_id, process_id, thread_id};
use runahead_kernel::uapi::general as n;
use runahead_kernel::{Errno, PAGE};

/// Entries of an environment that fit. Whoever has more executes with what he has given.
const POINTERS: usize = 432;

/// Arguments from which on, and room for the stack below which, it is worth looking whether the kernel finds
/// them too long: fewer would have to be of 128 KB each, the longest that it takes.
const MANY: usize = ENTRIES;
const LITTLE_STACK: u64 = 8 << 20;

/// How long another thread's execution is waited for, ns: until the kernel has copied what it is given. It
/// may be stopped. And how often it is looked.
const LONGEST_NS: u64 = 100_000_000;
const AGAIN_NS: u64 = 100_000;

/// The page of the block with which a program is executed. The assembly reads its first fields
/// (`arch::execute`).
#[repr(C, align(4096))]
pub struct Substitute {
    /// Thread id of whoever executes with it; 0: it is free.
    pub holder: AtomicU32,
    _gap: u32,
    /// Tells this memory from a copy of it.
    mark: AtomicU64,
    /// The program's register, while the routine needs it.
    pub rbx: AtomicU64,
    /// What the register that names the environment is when the program goes on.
    pub given: AtomicU64,
    /// Where it goes on.
    pub behind: AtomicU64,
    /// The environment, and the one where that is too long; 0: none.
    pub first: AtomicU64,
    pub second: AtomicU64,
    inner: UnsafeCell<Inner>,
}

/// What the holder alone writes.
struct Inner {
    pointers: [usize; POINTERS],
    /// What is preloaded beside the agent.
    preload: [u8; PRELOAD.len() + STRING_BYTES],
}

impl Substitute {
    /// Takes it, waiting for others as long as [`LONGEST_NS`].
    fn take(&self) -> bool {
        let (me, end) = (thread_id().cast_unsigned(), monotonic_ns().saturating_add(LONGEST_NS));
        // In another namespace of processes numbers are others'.
        if parent_id() == 0 {
            return false;
        }
        loop {
            let holder = self.holder.load(Ordering::Acquire);
            let is_free = holder == 0 || holder != me && self.is_left(holder);
            if is_free
                && self.holder.compare_exchange(holder, me, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                return true;
            }
            // A handler has interrupted an execution of this very thread's.
            if holder == me || monotonic_ns() >= end {
                return false;
            }
            futex_wait(&self.holder, holder, Some(AGAIN_NS));
        }
    }

    fn release(&self) {
        self.holder.store(0, Ordering::Release);
    }

    /// Whether its holder is in this memory no more: it has executed something, or has ended.
    fn is_left(&self, holder: u32) -> bool {
        let mark = monotonic_ns() ^ (thread_id().cast_unsigned() as u64) << 40;
        self.mark.store(mark, Ordering::SeqCst);
        let mut there = 0u64;
        let local = [IoVec { base: &raw mut there as usize, length: size_of::<u64>() }];
        let remote = [IoVec { base: &raw const self.mark as usize, length: size_of::<u64>() }];
        // SAFETY: the local piece is one word.
        match unsafe { read_process(holder.cast_signed(), &local, &remote) } {
            // Of two that ask at once, one finds the other's.
            Ok(_) => there != mark && self.mark.load(Ordering::SeqCst) == mark,
            Err(error) => error == Errno::ESRCH || error == Errno::EFAULT,
        }
    }
}

/// The program executes something, of which more is not known. None: with what it has given.
pub fn execution(frame: &Frame, number: u32, a: [usize; 6]) -> Option<Answer> {
    let state = frame.state();
    let (arguments, given) = words(number, a);
    let (is_borrowed, is_much) = (attach::is_borrowed(state), is_much(arguments));
    if frame.is_ahead() || !is_borrowed && !is_much {
        return None;
    }
    let Filled { without, is_readable } = fill(state, given)?;
    if is_borrowed && (!is_readable || is_cut_off(state)) {
        Some(execute(frame, given, without, 0))
    } else if is_much {
        Some(execute(frame, given, given, without))
    } else {
        state.substitute().release();
        None
    }
}

/// The same of a program of 32 bits, whatever [`execution`] has answered.
pub fn narrow(frame: &Frame, number: u32, a: [usize; 6], answer: Option<Answer>) -> Option<Answer> {
    if let Some(answer) = answer {
        let substitute = frame.state().substitute();
        let second = substitute.second.load(Ordering::Relaxed);
        if second != 0 {
            substitute.first.store(second, Ordering::Relaxed);
        }
        return Some(answer);
    }
    if frame.is_ahead() {
        return None;
    }
    let (_, given) = words(number, a);
    let Filled { without, .. } = fill(frame.state(), given)?;
    Some(execute(frame, given, without, 0))
}

/// Where a call has its arguments and its environment.
fn words(number: u32, a: [usize; 6]) -> (usize, usize) {
    if number == n::__NR_execve { (a[1], a[2]) } else { (a[2], a[3]) }
}

/// With the substitute, which is the caller's.
fn execute(frame: &Frame, given: usize, first: usize, second: usize) -> Answer {
    let substitute = frame.state().substitute();
    substitute.first.store(first as u64, Ordering::Relaxed);
    substitute.second.store(second as u64, Ordering::Relaxed);
    substitute.given.store(given as u64, Ordering::Relaxed);
    substitute.behind.store(frame.behind() as u64, Ordering::Relaxed);
    Answer::executes(frame)
}

/// Whether this child of vfork has gone where nobody of ours is.
pub fn is_cut_off(state: &Fixed) -> bool {
    state.process().cut_off.load(Ordering::Relaxed) == process_id().cast_unsigned()
}

/// Whether these arguments may be as much as the kernel takes.
fn is_much(arguments: usize) -> bool {
    let mut pointers = [0; ENTRIES];
    limit(n::RLIMIT_STACK) < LITTLE_STACK || executions::entries(arguments, &mut pointers) >= MANY
}

/// What the substitute has been filled with.
struct Filled {
    without: usize,
    /// The agent's file can be read from here.
    is_readable: bool,
}

/// Takes the substitute, with the environment there, without what is ours. None: it is somebody else's, or
/// nothing of ours is in there, or it does not fit.
fn fill(state: &Fixed, environment: usize) -> Option<Filled> {
    let substitute = state.substitute();
    if !substitute.take() {
        return None;
    }
    // SAFETY: it is this thread's now, and no handler runs before it is released or executed with.
    let inner = unsafe { &mut *substitute.inner.get() };
    let is_readable = copy(state, inner, environment);
    if is_readable.is_none() {
        substitute.release();
    }
    Some(Filled { without: inner.pointers.as_ptr() as usize, is_readable: is_readable? })
}

/// The environment there, without what is ours, and whether the agent's file can be read from here.
fn copy(state: &Fixed, inner: &mut Inner, environment: usize) -> Option<bool> {
    let mut is_readable = None;
    let mut kept = 0;
    for first in (0..ENTRIES_MOST).step_by(ENTRIES) {
        let mut pointers = [0usize; ENTRIES];
        let count = executions::entries(environment.wrapping_add(first * size_of::<usize>()), &mut pointers);
        let mut heads = [[0u8; HEAD]; ENTRIES];
        for (head, pointer) in executions::heads_of(&pointers, count, &mut heads) {
            let mut keep = pointer;
            if is_session(head) {
                continue;
            } else if head.starts_with(PRELOAD) && executions::names_agent(state, pointer + PRELOAD.len()) {
                let mut value = [0; STRING_BYTES];
                let bytes = read_string(pointer + PRELOAD.len(), &mut value)?;
                let value = value.get(..bytes)?;
                let name = find_preloaded(value, is_ours)?;
                is_readable = Some(is_readable_at(name));
                if name.len() == bytes {
                    continue;
                }
                inner.preload.fill(0);
                let (name, left) = inner.preload.split_at_mut(PRELOAD.len());
                name.copy_from_slice(PRELOAD);
                preload_without(value, left, is_ours);
                keep = inner.preload.as_ptr() as usize;
            }
            *inner.pointers.get_mut(kept)? = keep;
            kept += 1;
        }
        if count < ENTRIES {
            // An array that cannot be read ends it as well: the kernel is to say so.
            let mut end = [1; size_of::<usize>()];
            let at = environment.wrapping_add((first + count) * size_of::<usize>());
            if !read_own(at, &mut end) || end != [0; size_of::<usize>()] {
                return None;
            }
            *inner.pointers.get_mut(kept)? = 0;
            return is_readable;
        }
    }
    None
}

fn is_session(head: &[u8]) -> bool {
    // As much of the name as there is room for tells it.
    let name = SESSION.as_bytes();
    head.starts_with(name.get(..HEAD).unwrap_or(name))
}

fn is_readable_at(name: &[u8]) -> bool {
    let mut path = [0; STRING_BYTES + 1];
    path.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    CStr::from_bytes_until_nul(&path).is_ok_and(may_read)
}

const _: () = assert!(size_of::<Substitute>() == PAGE);
