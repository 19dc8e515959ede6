//! The speculator sleeps when it is far enough ahead, and the program wakes it without asking the kernel
//! at each read whether anybody sleeps.
//!
//! Two words, each written by one side: `passed` (the program's operations, a futex) and `wake_at` (from
//! which number on the speculator wants to be woken, 0: it does not sleep). Each side writes its own word
//! and then looks at the other's; the fences see to it that at least one of the two sees what the other
//! has written, so that no wake-up is lost.

use crate::sync::{AtomicU32, Ordering, fence};

/// The program has passed `passed` operations. True if the speculator is to be woken (futex on
/// `passed_word`). Async-signal-safe.
pub fn pass(passed_word: &AtomicU32, passed: u32, wake_at: &AtomicU32) -> bool {
    passed_word.store(passed, Ordering::Release);
    fence(Ordering::SeqCst);
    let wake_at = wake_at.load(Ordering::Relaxed);
    wake_at != 0 && passed.wrapping_sub(wake_at) as i32 >= 0
}

/// The speculator wants to be woken at `at`. It must look at `passed` again before it sleeps.
pub fn ask_to_be_woken(wake_at: &AtomicU32, at: u32) {
    wake_at.store(at, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}
