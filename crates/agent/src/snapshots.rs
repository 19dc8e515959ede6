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

/// Leaves one of a call that is about to be made, which maps a large file, if it may be of use: nobody sees the
/// process's page faults, or nobody has looked yet and this is the first such call.
pub fn take_at_mapping(frame: &Frame) {
    if let Some(slot) = attach::own_slot(frame.state())
        && is_wanted(frame, slot, |seen, taken| {
            seen == seen_by::PAGEMAP || seen == seen_by::NOBODY && taken == 0
        })
    {
        take(frame, slot);
    }
}

/// Leaves one of a call that is about to be made, if the host wants one that it has not got.
pub fn take_if_wanted(frame: &Frame) {
    // Not [`attach::own_slot`], which takes a system call.
    let Some(slot) = frame.state().slot() else { return };
    let wanted = slot.faults.snapshots_wanted.load(Ordering::Relaxed);
    let given = &frame.state().process().snapshots_given;
    if given.load(Ordering::Relaxed) != wanted {
        given.store(wanted, Ordering::Relaxed);
        if attach::own_slot(frame.state()).is_some()
            && is_wanted(frame, slot, |seen, _| seen == seen_by::PAGEMAP)
        {
            take(frame, slot);
        }
    }
}

/// `by`: whether it is by how faults are seen, and what was taken so far.
fn is_wanted(frame: &Frame, slot: &Slot, by: impl FnOnce(u32, u32) -> bool) -> bool {
    let is_left = slot.agent.retire.load(Ordering::Relaxed) != retire::NOT;
    let is_over = slot.faults.watching.load(Ordering::Relaxed) == watching::GONE;
    let seen = slot.faults.seen_by.load(Ordering::Relaxed);
    // Where the program makes the call whatever is answered, its site is elsewhere.
    let may = !frame.is_ahead() && !frame.state().has(flags::NO_SPECULATION);
    may && !is_left && !is_over && by(seen, slot.agent.snapshot.taken.load(Ordering::Relaxed))
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

/// Of memory from `start` up to `end`, bytes up to the first page that is not there: to copy that would be a
/// fault in the program's name.
fn in_memory(start: usize, end: usize) -> usize {
    let first = start & !(PAGE - 1);
    let is_there = |page: &usize| {
        let mut told = [0];
        cached_pages(*page, PAGE, &mut told).is_ok() && told[0] & 1 != 0
    };
    let pages = (first..end).step_by(PAGE).take_while(is_there).count();
    (first + pages * PAGE).min(end).saturating_sub(start)
}

/// Leaves one, unless another thread is at it. Takes some 15 us the first time.
fn take(frame: &Frame, slot: &Slot) {
    let state = frame.state();
    let lock = &state.process().snapshot_lock;
    if !lock.try_take() {
        return;
    }
    let (agent, snapshot) = (&slot.agent, &slot.agent.snapshot);
    let registers = frame.registers();
    let number = post::epoch_of(snapshot.taken.load(Ordering::Relaxed)).wrapping_add(1) & (u32::MAX >> 1);
    let number = number.max(1);
    post::begin(&snapshot.taken, number);
    let from = (registers.rsp as usize).wrapping_sub(SNAPSHOT_BELOW);
    let end = known_stack(state, &registers).min(from.saturating_add(SNAPSHOT_STACK));
    let length = in_memory(from, end);
    let local = [IoVec { base: snapshot.stack.0.get() as usize, length }];
    let remote = [IoVec { base: from, length }];
    // By the kernel: another thread may have unmapped it meanwhile.
    // SAFETY: the agent's own part of the slot; the odd number above tells readers to stay away.
    let copied = unsafe { read_process(process_id(), &local, &remote) };
    agent.program_break.store(program_break(), Ordering::Relaxed);
    snapshot.stack_bytes.store(copied.unwrap_or(0) as u32, Ordering::Relaxed);
    snapshot.thread.store(thread_id() as u32, Ordering::Relaxed);
    snapshot.voids.store(agent.voids.load(Ordering::Relaxed), Ordering::Relaxed);
    let there = FaultRegisters { registers, rcx: registers.rip, r11: registers.rflags };
    // SAFETY: as above.
    unsafe { snapshot.registers.0.get().write_volatile(there) };
    post::publish(&snapshot.taken, number);
    lock.release();
}
