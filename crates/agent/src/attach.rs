//! Joining the session, at the first stall, and leaving it.

use crate::state::{Fixed, Process};
use core::sync::atomic::Ordering;
use runahead_abi::environment::flags;
use runahead_abi::session::{
    AGENT_BYTES, HEADER_BYTES, Header, MAGIC, SLOT_BYTES, SLOTS, SPECULATOR_BYTES, Slot, activity, owner,
    slot_offset,
};
use runahead_kernel::files::{close, open_at};
use runahead_kernel::memory::{PROT_READ, PROT_WRITE, advise, map};
use runahead_kernel::process::{futex_wait, futex_wake, monotonic_ns, prctl, process_id};
use runahead_kernel::text::Text;
use runahead_kernel::uapi::{general as n, prctl::PR_SET_PTRACER};

/// How long an exiting program waits for the report to be printed, when one was asked for.
const REPORT_WAIT_NS: u64 = 2_000_000_000;

/// The slot of this process; claims one at the first call. None: run plainly.
pub fn slot(state: &Fixed) -> Option<&'static Slot> {
    let process = state.process();
    if let Some(slot) = process.slot() {
        return Some(slot);
    }
    if process.refused.load(Ordering::Relaxed) != 0 {
        return None;
    }
    let joined = join(state, process);
    if joined.is_none() {
        process.refused.store(1, Ordering::Relaxed);
    }
    joined
}

/// The session's header, mapped at the first call.
fn header(state: &Fixed, process: &Process) -> Option<&'static Header> {
    if let Some(header) = process.header() {
        return Some(header);
    }
    let address = map_session(state, 0, HEADER_BYTES, PROT_READ | PROT_WRITE)?;
    // SAFETY: just mapped, of the header's size; zeros or garbage are valid values of its fields.
    if unsafe { &*(address as *const Header) }.magic != MAGIC {
        return None;
    }
    process.header.store(address, Ordering::Release);
    process.header()
}

fn join(state: &Fixed, process: &Process) -> Option<&'static Slot> {
    let header = header(state, process)?;
    let me = process_id() as u32;
    let index = (0..SLOTS).find(|&index| {
        header.owners[index].load(Ordering::Relaxed) == owner::FREE
            && header.owners[index]
                .compare_exchange(owner::FREE, me, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    })?;
    let Some(address) = map_session(state, slot_offset(index), SLOT_BYTES, PROT_READ | PROT_WRITE) else {
        header.owners[index].store(owner::FREE, Ordering::Release);
        return None;
    };
    // What the speculator writes is read-only here: a stray write of the program into it faults as it
    // would have without us.
    let speculators = address + AGENT_BYTES;
    // SAFETY: part of the mapping just made.
    let _ = unsafe { runahead_kernel::memory::protect(speculators, SLOT_BYTES - AGENT_BYTES, PROT_READ) };
    const _: () = assert!(AGENT_BYTES + SPECULATOR_BYTES < SLOT_BYTES);
    // SAFETY: just mapped, of a slot's size, never unmapped.
    let slot = unsafe { &*(address as *const Slot) };
    // Under Yama's restricted scope nobody may read us unless we say so. Refused where there is no Yama.
    // SAFETY: names a process that may read this one; changes nothing else.
    let _ = unsafe { prctl(PR_SET_PTRACER, state.host as usize, 0, 0, 0) };
    slot.agent.state_address.store(state as *const Fixed as u64, Ordering::Relaxed);
    slot.agent.state_cookie.store(state.cookie, Ordering::Relaxed);
    process.slot.store(address, Ordering::Release);
    ring(header);
    Some(slot)
}

/// Maps a part of the session: the descriptor is open for some microseconds only.
fn map_session(state: &Fixed, offset: usize, length: usize, protection: u32) -> Option<usize> {
    let path = Text::<48>::new()
        .push(b"/proc/")
        .push_number(u64::from(state.host))
        .push(b"/fd/")
        .push_number(u64::from(state.descriptor));
    let fd = open_at(n::AT_FDCWD, path.as_c_str(), n::O_RDWR | n::O_CLOEXEC, 0).ok()?;
    // SAFETY: a new mapping.
    let mapped = unsafe { map(0, length, protection, n::MAP_SHARED, fd, offset as u64) };
    let _ = close(fd);
    let address = mapped.ok()?;
    // A child of fork is a program of its own and must not write into its parent's slot.
    // SAFETY: affects only what a child inherits of this mapping.
    let _ = unsafe { advise(address, length, n::MADV_DONTFORK) };
    Some(address)
}

fn ring(header: &Header) {
    header.doorbell.fetch_add(1, Ordering::Release);
    futex_wake(&header.doorbell);
}

/// Asks the host to analyse the file at `path` (at most 1023 bytes) and waits for the answer, at most
/// `timeout_ns`. True if the site file may know it now.
pub fn request_analysis(state: &Fixed, path: &[u8], timeout_ns: u64) -> bool {
    let Some(header) = header(state, state.process()) else {
        return false;
    };
    let request = &header.analysis;
    if path.len() >= 8 * request.path.len() {
        return false;
    }
    let me = process_id() as u32;
    if request.holder.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // Somebody else is asking; this file is analysed for the next program that maps it.
        return false;
    }
    for (index, word) in request.path.iter().enumerate() {
        let mut bytes = [0u8; 8];
        for (to, from) in bytes.iter_mut().zip(path.iter().skip(8 * index)) {
            *to = *from;
        }
        word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }
    request.state.store(1, Ordering::Release);
    ring(header);
    let answered =
        futex_wait(&request.state, 1, Some(timeout_ns)) || request.state.load(Ordering::Acquire) == 2;
    request.state.store(0, Ordering::Relaxed);
    request.holder.store(0, Ordering::Release);
    answered
}

/// Sends the speculator away for good and waits until it has gone, at most a second: whatever it holds
/// open is closed then. For calls that another holder of a file disturbs (leases).
pub fn dismiss(state: &Fixed) {
    const LONGEST_NS: u64 = 1_000_000_000;
    state.stand_down();
    let Some(slot) = state.process().slot() else {
        return;
    };
    slot.agent.retire.store(1, Ordering::Release);
    futex_wake(&slot.agent.posted);
    futex_wake(&slot.agent.passed);
    let end = monotonic_ns() + LONGEST_NS;
    loop {
        let activity = slot.speculator.activity.load(Ordering::Acquire);
        let now = monotonic_ns();
        if activity == activity::GONE || now >= end {
            return;
        }
        futex_wait(&slot.speculator.activity, activity, Some(end - now));
    }
}

/// The process is about to exit. With a report wanted, the main process lets the host print it first,
/// so that it is there when the command is over.
pub fn leave(state: &Fixed) {
    if !state.has(flags::REPORT) {
        return;
    }
    let Some(header) = header(state, state.process()) else {
        return;
    };
    if header.main_process.load(Ordering::Relaxed) != process_id() as u32 {
        return;
    }
    header.main_leaves.store(1, Ordering::Release);
    ring(header);
    futex_wait(&header.reported, 0, Some(REPORT_WAIT_NS));
}
