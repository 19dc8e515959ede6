//! A process whose code is not all analysed yet runs on, and the host looks at its code meanwhile
//! ([`runahead_abi::check`]).
//!
//! Until it has answered nobody knows whether some code has forbidden calls of ours, so there are next to
//! none: stubs go through [`arch::unchecked_address`], which passes by all but the calls after which we have
//! to be out of the way, and those that map code. Of these the entry code does, without a system call, what
//! ordinary programs do under a filter of their own: to map code, to remove and rename, to end, and most of
//! fcntl and prctl. The others come here. Nothing is held and nobody attached, so nothing has to be let go.

use crate::arch::{self, Answer, Frame};
use crate::calls::{is_measured, is_opening, is_wanted};
use crate::state::Fixed;
use crate::{attach, opened, reads};
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use runahead_abi::check::{CODE_UNKNOWN, Check, REWRITTEN, Unchecked, verdict};
use runahead_abi::reads::of as read_call;
use runahead_kernel::PAGE;
use runahead_kernel::memory::PROT_EXEC;
use runahead_kernel::process::{futex_wait, monotonic_ns};
use runahead_kernel::uapi::general as n;

/// Bytes of all files of a process that are not known yet whose analysis is waited for at the start: it takes
/// about a ms. What has sites of its own beside a C library is mostly small.
const WAITED_FOR: u64 = 512 << 10;

/// How the names of C libraries begin, of their parts for threads, and of their loaders: what has to be
/// rewritten for anything to be gained. glibc's takes 5 ms.
const C_LIBRARIES: [&[u8]; 5] = [b"libc.so.", b"libc-2.", b"libc.musl-", b"libpthread", b"ld-"];

/// Whether the analysis of a file of `size` bytes is waited for; `waited_for`: bytes of those for which it
/// has been.
pub fn is_waited_for(path: &[u8], size: u64, waited_for: &mut u64) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    if C_LIBRARIES.iter().any(|begin| name.starts_with(begin)) {
        return true;
    }
    let with_it = waited_for.saturating_add(size);
    let is_so = with_it <= WAITED_FOR;
    if is_so {
        *waited_for = with_it;
    }
    is_so
}

/// How long a process that ends waits until the host has closed its files.
const LONGEST_NS: u64 = 200_000_000;

/// What the agent keeps of it, in its block's first page: a child of fork has it as well.
#[repr(C)]
pub struct Wait {
    pub unchecked: Unchecked,
    /// Which of the session's checks is ours, and the process id that it is in the name of.
    index: AtomicU32,
    pub asked_as: AtomicU32,
    /// One of `session::watch`, to be asked for when the process is checked; 0: none.
    pub watch_later: AtomicU32,
    /// 1: more than there is room for.
    has_more: AtomicU32,
    /// As [`Check::code`], for a child of fork.
    pub code: AtomicU64,
    /// Address of the check. The entry code goes by all of these.
    pub check: AtomicUsize,
    /// Numbers of the calls that the agent looks at meanwhile, a bit each.
    pub looked_at: [AtomicU64; LOOKED_AT],
    /// Where mappings start whose sites are rewritten.
    rewritten: [AtomicU64; REWRITTEN],
}

/// Words for all system calls that there are, and some more.
pub const LOOKED_AT: usize = 8;

/// Whether the process is still unchecked. Ends that where there is an answer. To be called by a visit.
pub fn is_so(frame: &Frame) -> bool {
    let state = frame.state();
    if !state.wait.unchecked.is_so() {
        return false;
    }
    let Some(check) = ours(state) else { return true };
    match state.wait.unchecked.decide(check) {
        None => return true,
        Some(verdict::CLEAN) => {
            let (unchecked, entry) = (arch::unchecked_address(), arch::entry_address());
            leads(state, unchecked, entry);
            // Another thread may have begun anew just now.
            if state.wait.unchecked.is_so() {
                leads(state, entry, unchecked);
            }
            free(state, check);
            let reason = state.wait.watch_later.load(Ordering::Relaxed);
            if reason != 0 {
                reads::with_process(frame, |visit| attach::want_watch(visit.state, reason));
            }
        }
        Some(_) => {
            // Nobody is attached, and calls of ours may be forbidden.
            state.stand_down();
            free(state, check);
        }
    }
    state.is_off()
}

/// Has stubs lead elsewhere, if nobody has stood down.
fn leads(state: &Fixed, from: usize, to: usize) {
    let _ = state.entry.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
}

/// What becomes of a call meanwhile that the entry code has not done itself. None: it is looked at as at any
/// time.
pub fn call(frame: &Frame, a: [usize; 6]) -> Option<Answer> {
    let number = frame.rax as u32;
    let (protection, flags) = (a[2] as u32, a[3] as u32);
    let is_code = protection & PROT_EXEC != 0 && flags & (n::MAP_ANONYMOUS | n::MAP_TYPE) == n::MAP_PRIVATE;
    (passes(number) || number == n::__NR_mmap && !is_code).then(|| Answer::plain(frame))
}

/// The process's page faults are to be watched once it is checked, if it is not yet. False: it is.
pub fn watch_later(state: &Fixed, reason: u32) -> bool {
    let is_so = state.wait.unchecked.is_so();
    if is_so {
        state.wait.watch_later.fetch_max(reason, Ordering::Relaxed);
    }
    is_so
}

/// The calls that nobody has to see while nothing is held and nobody is ahead.
fn passes(number: u32) -> bool {
    let short = number as u16;
    read_call(number as usize).is_some()
        || is_measured(short)
        || is_opening(short)
        || matches!(number, n::__NR_brk | n::__NR_close | n::__NR_close_range | n::__NR_dup2 | n::__NR_dup3)
}

/// Claims a check, at the start, which has found code that is not analysed among so many bytes. False: too
/// many processes wait for theirs.
pub fn begin(state: &Fixed, code: usize) -> bool {
    for number in 0..64 * LOOKED_AT as u32 {
        if is_wanted(number as u16)
            && !passes(number)
            && let Some(word) = state.wait.looked_at.get(number as usize / 64)
        {
            word.fetch_or(1 << (number % 64), Ordering::Relaxed);
        }
    }
    state.wait.code.store(code as u64, Ordering::Relaxed);
    claim(state).is_some_and(|check| {
        wait(state, check);
        true
    })
}

/// A mapping's sites are being rewritten, by the start or by the holder of the lock for that; or it is our
/// own code, whose sites nobody calls.
pub fn has_rewritten(state: &Fixed, mapping: usize) {
    let is_empty = |place: &&AtomicU64| place.load(Ordering::Relaxed) == 0;
    match state.wait.rewritten.iter().find(is_empty) {
        Some(place) => place.store(mapping as u64, Ordering::Relaxed),
        None => state.wait.has_more.store(1, Ordering::Relaxed),
    }
}

/// Other code is mapped there now. To be called by the holder of the lock for rewriting.
pub fn is_replaced(state: &Fixed, range: Range<usize>) {
    for place in &state.wait.rewritten {
        if range.contains(&(place.load(Ordering::Relaxed) as usize)) {
            place.store(0, Ordering::Relaxed);
        }
    }
}

/// A process that is checked and of which nobody knows has just mapped a large file that is not analysed: it
/// waits for a check again. False: it cannot, or somebody is attached to it.
pub fn again(state: &Fixed) -> bool {
    /// Some visits; one that waits for a disk is not waited for.
    const OTHERS_NS: u64 = 2_000_000;
    let process = state.process();
    if !process.lock.try_take() {
        return false;
    }
    let may = state.slot().is_none() && state.wait.has_more.load(Ordering::Relaxed) == 0;
    let check = if may { claim(state) } else { None };
    let check = check.filter(|check| {
        state.wait.code.store(CODE_UNKNOWN, Ordering::Relaxed);
        wait(state, check);
        // A call of ours that another thread is about to make may be forbidden soon.
        let may = state.is_alone_within(OTHERS_NS) && {
            ask(state, check);
            is_looked_at(check, state.wait.asked_as.load(Ordering::Relaxed))
        };
        if may {
            state.wait.code.store(check.code.load(Ordering::Relaxed), Ordering::Relaxed);
        } else {
            state.wait.unchecked.gives_up();
            leads(state, arch::unchecked_address(), arch::entry_address());
            free(state, check);
        }
        may
    });
    process.lock.release();
    check.is_some()
}

/// Whether the host has seen, within some time, what code there is.
fn is_looked_at(check: &Check, me: u32) -> bool {
    const LONGEST_NS: u64 = 20_000_000;
    const AGAIN_NS: u64 = 1_000_000;
    let end = monotonic_ns().saturating_add(LONGEST_NS);
    while check.code.load(Ordering::Acquire) & CODE_UNKNOWN != 0 {
        if monotonic_ns() >= end {
            return false;
        }
        futex_wait(&check.ready, me, Some(AGAIN_NS));
    }
    true
}

/// A child of fork is unchecked as its parent was, and may go another way from here.
pub fn forked(state: &Fixed) {
    if !state.wait.unchecked.is_so() {
        return;
    }
    match claim(state) {
        Some(check) => {
            wait(state, check);
            ask(state, check);
        }
        None => {
            // What it finds is its parent's.
            state.wait.asked_as.store(0, Ordering::Relaxed);
            attach::withdraw(state);
        }
    }
}

/// Takes a free check.
fn claim(state: &Fixed) -> Option<&'static Check> {
    let me = attach::id_for_the_host()?;
    let checks = &state.header().checks.each;
    let index = checks.iter().position(|check| check.claim(me))?;
    state.wait.index.store(index as u32, Ordering::Relaxed);
    state.wait.asked_as.store(me, Ordering::Relaxed);
    checks.get(index)
}

/// From now on calls go by.
fn wait(state: &Fixed, check: &Check) {
    opened::misses(state);
    state.wait.check.store(&raw const *check as usize, Ordering::Relaxed);
    state.wait.unchecked.begins(check);
    leads(state, arch::entry_address(), arch::unchecked_address());
}

/// Hands the check to the host: what is rewritten is known.
pub fn asks(state: &Fixed) {
    if state.wait.unchecked.is_so()
        && let Some(check) = ours(state)
    {
        ask(state, check);
    }
}

fn ask(state: &Fixed, check: &Check) {
    let Range { start, end } = arch::image();
    for (word, value) in check.image.iter().zip([start, end]) {
        word.store(value as u64, Ordering::Relaxed);
    }
    for (word, from) in check.rewritten.iter().zip(&state.wait.rewritten) {
        word.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    check.code.store(state.wait.code.load(Ordering::Relaxed), Ordering::Relaxed);
    check.asks();
    state.header().checks.asked.fetch_add(1, Ordering::Release);
    attach::ring_host(state);
}

/// The process has mapped so many bytes of code, which the entry code has not counted. True: the check looks
/// at it.
pub fn has_mapped(state: &Fixed, bytes: usize) -> bool {
    let wait = &state.wait;
    wait.unchecked.is_so()
        && ours(state).is_some_and(|check| {
            let bytes = bytes.next_multiple_of(PAGE) as u64;
            wait.code.fetch_add(bytes, Ordering::Relaxed);
            wait.unchecked.has_mapped(check, bytes)
        })
}

/// The process ends, or is left alone: the host is told, and has closed what it had open. Makes no system call
/// unless it has. (At most ends the entry code does this.)
///
/// (A child of vfork that ends gives up its parent's check: that one stays unchecked.)
pub fn leave(state: &Fixed) {
    if !state.wait.unchecked.is_so() {
        return;
    }
    let Some(check) = ours(state) else { return };
    let header = state.header();
    free(state, check);
    if state.wait.asked_as.load(Ordering::Relaxed) == header.main_process.load(Ordering::Relaxed) {
        header.checks.over.store(1, Ordering::Release);
    }
    wait_for_host(state);
}

/// The process is about to execute another program. Where it cannot it stays unchecked. A child of vfork
/// leaves its parent's check alone.
pub fn executes(state: &Fixed) {
    if state.wait.unchecked.is_so()
        && let Some(check) = ours(state)
        && attach::id_for_the_host() == Some(state.wait.asked_as.load(Ordering::Relaxed))
    {
        free(state, check);
        wait_for_host(state);
    }
}

/// Waits until the host has closed what it had open for the check that has been given up.
fn wait_for_host(state: &Fixed) {
    fence(Ordering::SeqCst);
    let held = &state.header().checks.held;
    let me = state.wait.asked_as.load(Ordering::Relaxed);
    if me == 0 || held.load(Ordering::Acquire) != me {
        return;
    }
    let end = monotonic_ns().saturating_add(LONGEST_NS);
    while held.load(Ordering::Acquire) == me {
        let now = monotonic_ns();
        if now >= end {
            return;
        }
        futex_wait(held, me, Some(end - now));
    }
}

/// Our check. None: it has been given up.
fn ours(state: &Fixed) -> Option<&'static Check> {
    let index = state.wait.index.load(Ordering::Relaxed) as usize;
    let check = state.header().checks.each.get(index)?;
    (check.process.load(Ordering::Relaxed) == state.wait.asked_as.load(Ordering::Relaxed)).then_some(check)
}

fn free(state: &Fixed, check: &Check) {
    check.free(state.wait.asked_as.load(Ordering::Relaxed));
}
