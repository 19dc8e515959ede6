//! What the processes of a run leave behind for later ones of the same executable: a table in the session's header.
//!
//! Each entry has a key and one word of knowledge, which nobody here understands. A key is set once, by compare-and-swap;
//! words are read and written whole, and of two processes that exit at once the later one's word stays. A full table
//! knows nothing of further executables.

use core::sync::atomic::{AtomicU64, Ordering};

/// Executables that are remembered: a build has some ten.
pub const ENTRIES: usize = 64;

/// Entries that are looked at for a key before it is given up.
const PROBES: usize = 8;

#[repr(C)]
#[derive(Debug)]
pub struct Table {
    entries: [Entry; ENTRIES],
}

#[repr(C)]
#[derive(Debug)]
struct Entry {
    /// 0: free.
    key: AtomicU64,
    word: AtomicU64,
}

impl Table {
    /// The word of a key, to be read or written; zero where it is new, None where there is no room. Async-signal-safe.
    pub fn word(&self, key: u64) -> Option<&AtomicU64> {
        if key == 0 {
            return None;
        }
        let places = (0..PROBES).map(|probe| (key as usize).wrapping_add(probe) % ENTRIES);
        let entry = places.filter_map(|place| self.entries.get(place)).find(|entry| entry.is(key))?;
        Some(&entry.word)
    }

    /// Forgets all of them. Whoever writes at the same time may leave a word behind for another executable,
    /// which is a guess less that is right.
    pub fn clear(&self) {
        for Entry { key, word } in &self.entries {
            word.store(0, Ordering::Relaxed);
            key.store(0, Ordering::Relaxed);
        }
    }
}

impl Entry {
    /// Whether this is the key's entry, which a free one becomes.
    fn is(&self, key: u64) -> bool {
        match self.key.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(there) => there == key,
        }
    }
}

/// The key of an executable file. Never 0.
pub fn key(device: u64, inode: u64) -> u64 {
    let mixed = (device.rotate_left(32) ^ inode).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 7) | 1 << 63
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Table {
        Table { entries: core::array::from_fn(|_| Entry { key: AtomicU64::new(0), word: AtomicU64::new(0) }) }
    }

    #[test]
    fn each_key_has_a_word_of_its_own_until_there_is_no_room() {
        let table = empty();
        for inode in 1..=20 {
            table.word(key(7, inode)).unwrap().store(inode, Ordering::Relaxed);
        }
        for inode in 1..=20 {
            assert_eq!(table.word(key(7, inode)).unwrap().load(Ordering::Relaxed), inode);
        }
        let known = (1..1000).filter(|&inode| table.word(key(7, inode)).is_some()).count();
        assert!((ENTRIES / 2..=ENTRIES).contains(&known), "{known}");
        assert_eq!(table.word(key(7, 1)).unwrap().load(Ordering::Relaxed), 1);
        assert!(table.word(0).is_none());
    }

    #[test]
    fn garbage_is_survived() {
        let table = empty();
        for entry in &table.entries {
            entry.key.store(u64::MAX, Ordering::Relaxed);
        }
        assert!(table.word(key(1, 2)).is_none());
        assert!(table.word(u64::MAX).is_some());
    }
}
