//! Executables whose processes are short and never wait, where a host serves all of a user's programs: the
//! agent's coming costs such a process more than it will ever save it, so most of them are left alone.
//!
//! A table of words in the session's header, each with an executable's key and what is counted of it. Read
//! and written by processes at their start and at their end, without a lock: of two at once one is not
//! counted. Forgotten by the host whenever nothing happens for a while.

use core::sync::atomic::{AtomicU64, Ordering};

pub const ENTRIES: usize = 64;

/// A process that computes for longer is no short one, ns.
pub const SHORT_NS: u64 = 100_000_000;

/// So many in a row are enough. More: a program that is cold for the first time behind them is helped more
/// surely; fewer: a build's processes are cheaper sooner.
const USELESS: u64 = 8;

/// Of those that follow so many are left alone for one that is not.
const LEFT_ALONE: u64 = 15;

/// What stands beside a key: the latest that were useless, and those left alone since one was not, a byte
/// each.
const NOTE: u64 = 0xffff;
const LEFT: u64 = 0x100;

#[repr(C)]
#[derive(Debug)]
pub struct Lives {
    words: [AtomicU64; ENTRIES],
}

/// Where a key's word is, bytes from the table's start.
pub fn place(key: u64) -> usize {
    index(key) * size_of::<u64>()
}

fn index(key: u64) -> usize {
    (key >> NOTE.count_ones()) as usize % ENTRIES
}

/// Whether a process of this executable is to be left alone, by the word in the key's place; and the word
/// that is to stand there then.
pub fn is_left_alone(word: u64, key: u64) -> Option<u64> {
    let is_known = word & !NOTE == key & !NOTE;
    let (useless, left) = (word & 0xff, (word & NOTE) / LEFT);
    match is_known && useless >= USELESS {
        true if left < LEFT_ALONE => Some(word + LEFT),
        _ => None,
    }
}

impl Lives {
    /// A process that was not left alone has ended: it was short and has not waited.
    pub fn was_useless(&self, key: u64) {
        let Some(place) = self.words.get(index(key)) else { return };
        let word = place.load(Ordering::Relaxed);
        let is_known = word & !NOTE == key & !NOTE;
        let useless = if is_known { word & 0xff } else { 0 };
        place.store(key & !NOTE | (useless + 1).min(USELESS), Ordering::Relaxed);
    }

    /// One has waited, or computed for longer.
    pub fn was_useful(&self, key: u64) {
        let Some(place) = self.words.get(index(key)) else { return };
        if place.load(Ordering::Relaxed) & !NOTE == key & !NOTE {
            place.store(0, Ordering::Relaxed);
        }
    }

    pub fn forget(&self) {
        self.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u64 = 1 << 63 | 0x1234_5678_9abc;

    fn table() -> Lives {
        Lives { words: [const { AtomicU64::new(0) }; ENTRIES] }
    }

    fn starts(lives: &Lives, key: u64) -> bool {
        let word = &lives.words[place(key) / 8];
        match is_left_alone(word.load(Ordering::Relaxed), key) {
            Some(then) => {
                word.store(then, Ordering::Relaxed);
                false
            }
            None => true,
        }
    }

    #[test]
    fn most_of_those_that_never_wait_are_left_alone() {
        let lives = table();
        for _ in 0..USELESS {
            assert!(starts(&lives, KEY));
            lives.was_useless(KEY);
        }
        let begun = (0..160).filter(|_| {
            let begins = starts(&lives, KEY);
            if begins {
                lives.was_useless(KEY);
            }
            begins
        });
        assert_eq!(begun.count(), 10);
    }

    #[test]
    fn one_that_has_waited_has_all_of_them_served_again() {
        let lives = table();
        (0..100).for_each(|_| lives.was_useless(KEY));
        assert!(!starts(&lives, KEY));
        lives.was_useful(KEY);
        assert!(starts(&lives, KEY));
    }

    #[test]
    fn another_executable_at_the_same_place_is_another() {
        let lives = table();
        (0..100).for_each(|_| lives.was_useless(KEY));
        let other = KEY + (ENTRIES as u64) * 0x10000;
        assert_eq!(place(other), place(KEY));
        assert!(starts(&lives, other));
        lives.was_useful(other);
        assert!(!starts(&lives, KEY));
        lives.was_useless(other);
        assert!(starts(&lives, KEY));
        lives.forget();
        assert!(starts(&lives, other));
    }
}
