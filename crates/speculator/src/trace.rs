//! Leaves events for the host, where the run is traced (`runahead_abi::trace`).

use crate::shared;
use runahead_abi::trace::Event;
use runahead_kernel::process::monotonic_ns;

/// Something happens now.
pub fn trace(kind: u8, a: u64, b: u64) {
    if shared::is_traced() {
        write(kind, a, b);
    }
}

#[cold]
#[inline(never)]
fn write(kind: u8, a: u64, b: u64) {
    let is_half_full =
        shared::speculator().trace.write(&Event { time: monotonic_ns(), kind, thread: 0, a, b });
    if is_half_full {
        shared::wake_host();
    }
}
