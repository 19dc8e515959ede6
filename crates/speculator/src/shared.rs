//! The slot that this speculator serves, as it sees it: the agent's part read-only, its own part and
//! the log writable. Of the session's header it sees the doorbell, to wake the host: it cannot write there.

use crate::layout::{HEADER, SLOT};
use core::mem::offset_of;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use runahead_abi::log::Log;
use runahead_abi::post;
use runahead_abi::registers::{FaultRegisters, Registers, VECTOR_STATE_BYTES};
use runahead_abi::release::{Holding, What};
use runahead_abi::session::{
    AGENT_BYTES, AgentPart, FaultPart, HOLDERS_AT, HOLDERS_BYTES, Header, LANES, LaneAnswer, LanePost,
    SLOT_BYTES, SPECULATOR_BYTES, Slot, SpeculatorPart, slot_offset,
};
use runahead_kernel::memory::{self, PROT_READ, PROT_WRITE};
use runahead_kernel::process::{futex_wake, monotonic_ns};
use runahead_kernel::uapi::general as n;

/// The program's process id.
pub static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Number of the slot.
static NUMBER: AtomicI32 = AtomicI32::new(0);

/// Maps slot `index` of the session behind `fd` at its place. False if the kernel refuses.
pub fn map_slot(fd: i32, index: usize) -> bool {
    NUMBER.store(index as i32, Ordering::Relaxed);
    let flags = n::MAP_SHARED | n::MAP_FIXED_NOREPLACE;
    let offset = slot_offset(index);
    // SAFETY: a new mapping inside our window.
    let agent = unsafe { memory::map(SLOT, AGENT_BYTES, PROT_READ, flags, fd, offset as u64) };
    let own_offset = (offset + AGENT_BYTES) as u64;
    // SAFETY: as above.
    let own = unsafe {
        memory::map(
            SLOT + AGENT_BYTES,
            SLOT_BYTES - AGENT_BYTES,
            PROT_READ | PROT_WRITE,
            flags,
            fd,
            own_offset,
        )
    };
    // SAFETY: as above.
    let header = unsafe { memory::map(HEADER, HOLDERS_AT, PROT_READ, flags, fd, 0) };
    let holders_at = HEADER + HOLDERS_AT;
    let both = PROT_READ | PROT_WRITE;
    // SAFETY: as above.
    let holders = unsafe { memory::map(holders_at, HOLDERS_BYTES, both, flags, fd, HOLDERS_AT as u64) };
    agent == Ok(SLOT) && own == Ok(SLOT + AGENT_BYTES) && header == Ok(HEADER) && holders == Ok(holders_at)
}

/// The session's header, read-only as far as it is not for us to write. Async-signal-safe.
pub fn header() -> &'static Header {
    // SAFETY: mapped by `map_slot` before anything else runs, for good.
    unsafe { &*(HEADER as *const Header) }
}

/// What this speculator says of what it holds.
fn holding() -> &'static Holding {
    let speculators = &header().holders.speculators;
    &speculators[NUMBER.load(Ordering::Relaxed) as usize % speculators.len()]
}

/// Whether the run is traced.
pub fn is_traced() -> bool {
    header().traces.load(Ordering::Relaxed) != 0
}

/// Says that files of the program's are held from now on. False if they may not be at present: then nothing is to be opened,
/// and what is open to be closed.
pub fn begins_to_hold() -> bool {
    holding().begins_again(&header().releasing, What::Files, monotonic_ns)
}

/// Says that nothing is held any more.
pub fn holds_nothing() {
    let holding = holding();
    holding.ends_all();
    futex_wake(&holding.0);
}

/// Whether somebody waits until nothing is held.
pub fn is_asked_to_let_go() -> bool {
    header().releasing.forbids_opening(monotonic_ns)
}

/// Wakes the host, if it sleeps; else it may find what there is for it at its next look only.
///
/// The doorbell's number stays: a speculation that runs wild must not be able to write where everybody reads.
pub fn wake_host() {
    futex_wake(&header().doorbell);
}

pub fn agent() -> &'static AgentPart {
    // SAFETY: mapped by `map_slot` before anything else runs, for good.
    unsafe { &*(SLOT as *const AgentPart) }
}

pub fn speculator() -> &'static SpeculatorPart {
    // SAFETY: as above.
    unsafe { &*((SLOT + AGENT_BYTES) as *const SpeculatorPart) }
}

pub fn log() -> &'static Log {
    // SAFETY: as above.
    unsafe { &*((SLOT + AGENT_BYTES + SPECULATOR_BYTES) as *const Log) }
}

/// The log of touches.
pub fn touches() -> &'static Log {
    // SAFETY: as above.
    unsafe { &*((SLOT + offset_of!(Slot, touches)) as *const Log) }
}

/// The host's part about page faults.
pub fn faults() -> &'static FaultPart {
    // SAFETY: as above.
    unsafe { &*((SLOT + offset_of!(Slot, faults)) as *const FaultPart) }
}

/// Adds to a count that only this process writes.
pub fn count(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// Raises a count to at least `value`.
pub fn at_least(counter: &AtomicU64, value: u64) {
    if counter.load(Ordering::Relaxed) < value {
        counter.store(value, Ordering::Relaxed);
    }
}

/// A post, copied out of the shared memory.
#[derive(Clone, Copy)]
pub struct Post {
    pub lane: usize,
    pub epoch: u32,
    /// The lane's epoch before.
    pub epoch_before: u32,
    /// What `AgentPart::voids` was.
    pub voids: u32,
    /// Operations that the program had passed when it left the epoch before.
    pub passed_before: u32,
    /// Names that its agent had counted by then.
    pub names_before: u64,
    pub registers: Registers,
    pub thread: u32,
    pub position: i64,
    pub program_break: u64,
}

/// What the agent says in lane `lane`.
pub fn lane(lane: usize) -> &'static LanePost {
    &agent().lanes[lane % LANES]
}

/// What we answer there.
pub fn answer(lane: usize) -> &'static LaneAnswer {
    &speculator().lanes[lane % LANES]
}

/// The number of lane `number`'s latest complete post; `None` while one is being written or there is none.
pub fn latest_post(number: usize) -> Option<u32> {
    post::latest(&lane(number).posted)
}

/// Copies the post numbered `posted` of lane `number`; None if the agent has begun another.
pub fn take_post(number: usize, posted: u32, vector_state: &mut [u8; VECTOR_STATE_BYTES]) -> Option<Post> {
    let lane = lane(number);
    // SAFETY: plain words in shared memory; what is copied is believed only if no other post was begun.
    let registers = unsafe { lane.registers.0.get().read_volatile() };
    // SAFETY: as above.
    unsafe {
        core::ptr::copy_nonoverlapping(
            lane.vector_state.0.get().cast::<u8>(),
            vector_state.as_mut_ptr(),
            VECTOR_STATE_BYTES,
        );
    }
    let copy = Post {
        lane: number,
        epoch: post::epoch_of(posted),
        epoch_before: lane.epoch_before.load(Ordering::Relaxed),
        voids: lane.posted_voids.load(Ordering::Relaxed),
        passed_before: lane.passed_before.load(Ordering::Relaxed),
        names_before: lane.names_before.load(Ordering::Relaxed),
        registers,
        thread: lane.thread.load(Ordering::Relaxed),
        position: lane.position.load(Ordering::Relaxed) as i64,
        program_break: lane.program_break.load(Ordering::Relaxed),
    };
    post::is_whole(&lane.posted, posted).then_some(copy)
}

/// The number of the host's latest complete post of a fault.
pub fn latest_fault() -> Option<u32> {
    post::latest(&faults().posted)
}

/// Copies the registers of the fault posted as `posted`, and the number of the snapshot that was posted
/// instead (0: none); None if the host has begun another.
pub fn take_fault(posted: u32) -> Option<(FaultRegisters, u32)> {
    // SAFETY: plain words in shared memory; what is copied is believed only if no other post was begun.
    let registers = unsafe { faults().registers.0.get().read_volatile() };
    let snapshot = faults().snapshot.load(Ordering::Relaxed);
    post::is_whole(&faults().posted, posted).then_some((registers, snapshot))
}
