//! Where a thread is at a call, left for speculation that may begin there later on
//! ([`Snapshot`](runahead_abi::session::Snapshot)). All of it is async-signal-safe.

use crate::arch::Frame;
use crate::attach;
use crate::reads::program_break;
use crate::state::Fixed;
use core::sync::atomic::Ordering;
use runahead_abi::environment::flags;
use runahead_abi::post;
use runahead_abi::registers::{FaultRegisters, Registers};
use runahead_abi::session::{SNAPSHOT_BELOW, SNAPSHOT_STACK, Slot, retire, seen_by, watching};
use runahead_kernel::PAGE;
use runahead_kernel::files::IoVec;
use runahead_kernel::memory::{cached_pages, read_process};
use runahead_kernel::process::{process_id, thread_id};

/// Stacks that are longer are not known to end where they are thought to.
const STACK_MOST: usize = 8 << 20;

/// Leaves one of a call that is about to be made, if it may be of use: the host wants one that it has not
/// got, or this is the first mapping of a large file (`maps`). By any thread, without a lock.
pub fn take_if_wanted(frame: &Frame, maps: bool) {
    let state = frame.state();
    let Some(slot) = state.slot() else { return };
    let wanted = slot.faults.snapshots_wanted.load(Ordering::Relaxed);
    let given = &state.process().snapshots_given;
    let is_asked = given.load(Ordering::Relaxed) != wanted;
    let is_first = || maps && slot.agent.snapshot.taken.load(Ordering::Relaxed) == 0;
    if (is_asked || is_first()) && may_take(state, slot) && take(frame, slot) {
        given.store(wanted, Ordering::Relaxed);
    }
}

/// Whether anybody may be there for whom one is. (A child of vfork has its parent's slot.)
fn may_take(state: &Fixed, slot: &Slot) -> bool {
    let is_left = slot.agent.retire.load(Ordering::Relaxed) != retire::NOT;
    let is_over = slot.faults.watching.load(Ordering::Relaxed) == watching::GONE;
    let is_seen = slot.faults.seen_by.load(Ordering::Relaxed) == seen_by::EVENTS;
    let is_left_alone = is_left || is_over || is_seen || state.has(flags::NO_SPECULATION);
    !is_left_alone && attach::own_slot(state).is_some()
}

/// Up to where the memory above a thread's stack pointer is known to be its stack: its local storage lies at a
/// thread's stack's end (ELF's thread-local storage, variant II), the environment at the first one's. Else, as
/// of a coroutine, up to the end of the page.
fn known_stack(state: &Fixed, registers: &Registers) -> usize {
    let pointer = registers.rsp as usize;
    let ends = [state.preload_at, registers.fs_base as usize];
    let is_near = |&end: &usize| end > pointer && end - pointer <= STACK_MOST;
    ends.into_iter().find(is_near).unwrap_or((pointer | (PAGE - 1)).saturating_add(1))
}

/// The part of memory from `start` up to `end`, in which `pointer` lies, that is there: what is not would be a
/// fault in the program's name. From `start` on, or from the pointer's page on where nothing is below it.
fn in_memory(start: usize, pointer: usize, end: usize) -> (usize, usize) {
    let page_of = |address: usize| address & !(PAGE - 1);
    let is_there = |page: &usize| {
        let mut told = [0];
        cached_pages(*page, PAGE, &mut told).is_ok() && told[0] & 1 != 0
    };
    let from = if is_there(&page_of(start)) { start } else { page_of(pointer) };
    let pages = (page_of(from)..end).step_by(PAGE).take_while(is_there).count();
    (from, (page_of(from) + pages * PAGE).min(end).saturating_sub(from))
}

/// Leaves one. False: another thread is at it. Takes some 15 us the first time.
fn take(frame: &Frame, slot: &Slot) -> bool {
    let state = frame.state();
    let lock = &state.process().snapshot_lock;
    if !lock.try_take() {
        return false;
    }
    let (agent, snapshot) = (&slot.agent, &slot.agent.snapshot);
    let registers = frame.registers();
    let number = post::epoch_of(snapshot.taken.load(Ordering::Relaxed)).wrapping_add(1) & (u32::MAX >> 1);
    let number = number.max(1);
    post::begin(&snapshot.taken, number);
    let (pointer, copy) = (registers.rsp as usize, state.snapshot_stack());
    let start = pointer.wrapping_sub(SNAPSHOT_BELOW);
    let end = known_stack(state, &registers).min(start.saturating_add(SNAPSHOT_STACK));
    let (from, length) = in_memory(start, pointer, end);
    let local = [IoVec { base: copy, length }];
    let remote = [IoVec { base: from, length }];
    // By the kernel: another thread may have unmapped it meanwhile.
    // SAFETY: pages of the agent's block for this, `SNAPSHOT_STACK` bytes, and nobody else writes to them
    // while the lock is held.
    let copied = unsafe { read_process(process_id(), &local, &remote) };
    agent.program_break.store(program_break(), Ordering::Relaxed);
    snapshot.stack_bytes.store(copied.unwrap_or(0) as u32, Ordering::Relaxed);
    snapshot.stack_from.store(from as u64, Ordering::Relaxed);
    snapshot.stack_copy.store(copy as u64, Ordering::Relaxed);
    snapshot.thread.store(thread_id() as u32, Ordering::Relaxed);
    snapshot.voids.store(agent.voids.load(Ordering::Relaxed), Ordering::Relaxed);
    let there = FaultRegisters { registers, rcx: registers.rip, r11: registers.rflags };
    // SAFETY: the agent's own part of the slot; the odd number above tells readers to stay away.
    unsafe { snapshot.registers.0.get().write_volatile(there) };
    post::publish(&snapshot.taken, number);
    lock.release();
    true
}
