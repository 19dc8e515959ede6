//! Memory that is not to be had ends no program. What a giver's call needs is asked for in a way that may fail
//! (`runahead_prefetcher::intake`); our own threads, here, wait until there is some.

use std::alloc::{GlobalAlloc, Layout, System};
use std::time::Duration;

struct Patient;

#[global_allocator]
static PATIENT: Patient = Patient;

const PAUSE: Duration = Duration::from_millis(20);

fn until_had(allocate: impl Fn() -> *mut u8) -> *mut u8 {
    loop {
        let memory = allocate();
        if !memory.is_null() || !runahead_prefetcher::is_ours() {
            return memory;
        }
        std::thread::sleep(PAUSE);
    }
}

// SAFETY: all is the system's allocator's, asked once more where it had nothing.
unsafe impl GlobalAlloc for Patient {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        until_had(|| unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        until_had(|| unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise; where it fails the old memory is as it was.
        until_had(|| unsafe { System.realloc(memory, layout, size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) };
    }
}
