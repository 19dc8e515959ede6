//! Leaves events for the host, where the run is traced (`runahead_abi::trace`). Else one look at a
//! word that is there.

use crate::attach;
use crate::state::Fixed;
use runahead_abi::environment::flags;
use runahead_abi::trace::Event;
use runahead_kernel::process::{monotonic_ns, thread_id};

/// Something happens now.
pub fn trace(state: &Fixed, kind: u8, a: u64, b: u64) {
    if state.has(flags::TRACE) {
        write(state, monotonic_ns(), kind, a, b);
    }
}

/// Something has happened at `time`, ns.
pub fn trace_at(state: &Fixed, time: u64, kind: u8, a: u64, b: u64) {
    if state.has(flags::TRACE) {
        write(state, time, kind, a, b);
    }
}

#[cold]
#[inline(never)]
fn write(state: &Fixed, time: u64, kind: u8, a: u64, b: u64) {
    let Some(slot) = state.slot() else { return };
    let is_half_full = slot.agent.trace.write(&Event { time, kind, thread: thread_id() as u32, a, b });
    if is_half_full {
        attach::ring_host(state);
    }
}
