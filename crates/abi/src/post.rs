//! The protocol of a post: one writer hands a record over, again and again, and never waits.
//!
//! The number of the latest post is twice its epoch; while the record is being written the number is odd.
//! The reader takes a number, copies the record, and believes the copy only if the number is still the
//! same. The record itself may be anything that is read and written without the compiler's knowledge of
//! its order (relaxed atomics, volatile words): the fences here are what orders it.
//!
//! Epochs are below 2^31 and never 0: a number of 0 means that there was no post yet.

use crate::sync::{AtomicU32, Ordering, fence};

/// The writer is about to change the record. Async-signal-safe.
pub fn begin(posted: &AtomicU32, epoch: u32) {
    posted.store(epoch.wrapping_mul(2).wrapping_sub(1), Ordering::Relaxed);
    // No change of the record may be seen before the odd number: whoever copies such a change finds, at
    // his second look, this number or a later one.
    fence(Ordering::Release);
}

/// The record of `epoch` is complete.
pub fn publish(posted: &AtomicU32, epoch: u32) {
    posted.store(epoch.wrapping_mul(2), Ordering::Release);
}

/// The number of the latest complete post; `None` while one is being written or there is none.
pub fn latest(posted: &AtomicU32) -> Option<u32> {
    let number = posted.load(Ordering::Acquire);
    (number != 0 && number.is_multiple_of(2)).then_some(number)
}

/// Whether what was copied after [`latest`] returned `number` is the record of that post, whole.
pub fn is_whole(posted: &AtomicU32, number: u32) -> bool {
    // The copy comes before the second look.
    fence(Ordering::Acquire);
    posted.load(Ordering::Relaxed) == number
}

/// The next epoch of a process, of which `begun` have begun so far: no two posts have the same one until all
/// were used.
pub fn next_epoch(begun: &AtomicU32) -> u32 {
    loop {
        let epoch = begun.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & (u32::MAX >> 1);
        if epoch != 0 {
            return epoch;
        }
    }
}

/// The epoch of the post with this number.
pub fn epoch_of(number: u32) -> u32 {
    number / 2
}

/// There is something new for the speculator, which sleeps on `bell` and looks at everything between a look
/// at the bell and its sleep. The bell is to be woken then.
pub fn ring(bell: &AtomicU32) {
    bell.fetch_add(1, Ordering::Release);
}

/// What the bell says, before the speculator looks whether there is something for it: it may sleep while it
/// says the same.
pub fn heard(bell: &AtomicU32) -> u32 {
    bell.load(Ordering::Acquire)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn epochs_begin_anew_when_all_were_used_and_none_is_0() {
        for before in [0, u32::MAX >> 1, u32::MAX - 2] {
            let begun = AtomicU32::new(before);
            let epochs: Vec<u32> = (0..4).map(|_| next_epoch(&begun)).collect();
            assert!(epochs.iter().all(|&epoch| epoch != 0 && epoch <= u32::MAX >> 1), "{epochs:?}");
            assert!(epochs.windows(2).all(|two| two[0] != two[1] && two[0] != two[1] + 1), "{epochs:?}");
        }
        let begun = AtomicU32::new(u32::MAX - 1);
        assert_eq!([(); 3].map(|()| next_epoch(&begun)), [u32::MAX >> 1, 1, 2]);
    }
}
