//! Words that processes of a run sleep on (futex(2)).

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps as long as `word` is `expected`, at most `longest`; may return before.
pub(crate) fn wait(word: &AtomicU32, expected: u32, longest: Duration) {
    let time = rustix::thread::futex::Timespec {
        tv_sec: longest.as_secs() as i64,
        tv_nsec: i64::from(longest.subsec_nanos()),
    };
    let _ = rustix::thread::futex::wait(word, rustix::thread::futex::Flags::empty(), expected, Some(&time));
}

/// Wakes all who sleep on the word.
pub(crate) fn wake(word: &AtomicU32) {
    let _ = rustix::thread::futex::wake(word, rustix::thread::futex::Flags::empty(), u32::MAX >> 1);
}
