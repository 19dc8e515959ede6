//! What the manager knows by number: files that are being opened or are open, names that wait to be looked
//! up. The queue in [`runahead_prefetch`] knows them by these numbers only.
//!
//! At most [`OPEN`] files stay open, the latest; a hint for an earlier one opens it again.

use crate::carry::File;
use crate::intake::Lookup;
use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::sync::Arc;

/// Files kept open. A quarter of the usual limit of 1024 descriptors, which our threads' table has, too.
pub const OPEN: usize = 256;

/// Hints that may wait for one file to be opened.
const WAITING: usize = 1024;

/// Whose name a file goes by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    Path(Vec<u8>),
    /// A descriptor of the program, and the device and inode behind it when the hint came.
    Descriptor(i32, u64, u64),
}

/// Bytes of a file that are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub offset: u64,
    pub length: u64,
    pub token: u64,
}

#[derive(Debug)]
pub enum Entry {
    /// Waits for its turn to be opened, for the first of these pieces.
    ToOpen {
        path: CString,
        pieces: Vec<Piece>,
    },
    /// Is being opened, for a piece with this token. None: that was cancelled, and what the opening leaves of it is not
    /// wanted.
    Opening {
        begun: Option<u64>,
        pieces: Vec<Piece>,
    },
    Open(Arc<File>),
    /// A name to look up.
    Name {
        path: CString,
        lookup: Lookup,
    },
    /// A name that is being looked up, with its hint's token. None: cancelled, and what its listing brings is not wanted.
    LookingUp(Option<u64>),
}

#[derive(Debug, Default)]
pub struct Files {
    entries: HashMap<u32, (Entry, Option<Key>)>,
    by_key: HashMap<Key, u32>,
    open: VecDeque<u32>,
    next: u32,
}

impl Files {
    pub fn find(&self, key: &Key) -> Option<u32> {
        self.by_key.get(key).copied()
    }

    pub fn get(&mut self, number: u32) -> Option<&mut Entry> {
        self.entries.get_mut(&number).map(|(entry, _)| entry)
    }

    pub fn add(&mut self, entry: Entry, key: Option<Key>) -> u32 {
        self.next = self.next.wrapping_add(1);
        if let Some(key) = &key {
            self.by_key.insert(key.clone(), self.next);
        }
        self.entries.insert(self.next, (entry, key));
        self.next
    }

    /// One more piece for a file that is not open yet. False: too many.
    pub fn add_piece(&mut self, number: u32, piece: Piece) -> bool {
        match self.get(number) {
            Some(Entry::ToOpen { pieces, .. } | Entry::Opening { pieces, .. }) if pieces.len() < WAITING => {
                pieces.push(piece);
                true
            }
            _ => false,
        }
    }

    /// The file is open; returns the pieces that waited for it.
    pub fn opened(&mut self, number: u32, file: Arc<File>) -> Vec<Piece> {
        let Some((entry, _)) = self.entries.get_mut(&number) else { return Vec::new() };
        let before = std::mem::replace(entry, Entry::Open(file));
        self.open.push_back(number);
        while self.open.len() > OPEN {
            if let Some(oldest) = self.open.pop_front() {
                self.remove(oldest);
            }
        }
        match before {
            Entry::Opening { pieces, .. } => pieces,
            _ => Vec::new(),
        }
    }

    /// It is not being opened after all: what it was being opened for was cancelled. Returns the token of the first piece
    /// that wants it opened all the same; without one it is forgotten.
    pub fn not_opened(&mut self, number: u32, path: CString) -> Option<u64> {
        let Some(entry @ Entry::Opening { .. }) = self.get(number) else { return None };
        let pieces = match entry {
            Entry::Opening { pieces, .. } => std::mem::take(pieces),
            _ => Vec::new(),
        };
        let Some(first) = pieces.first() else {
            self.remove(number);
            return None;
        };
        let token = first.token;
        *entry = Entry::ToOpen { path, pieces };
        Some(token)
    }

    /// Forgets it.
    pub fn remove(&mut self, number: u32) -> Option<Entry> {
        let (entry, key) = self.entries.remove(&number)?;
        if let Some(key) = key
            && self.by_key.get(&key) == Some(&number)
        {
            self.by_key.remove(&key);
        }
        Some(entry)
    }

    /// Forgets what waits for one file. It stays known if it is open, or being opened.
    pub fn cancel_file(&mut self, number: u32) {
        match self.get(number) {
            Some(Entry::Opening { begun, pieces }) => {
                *begun = None;
                pieces.clear();
            }
            Some(Entry::ToOpen { .. }) => drop(self.remove(number)),
            _ => {}
        }
    }

    /// Forgets the pieces with this token. Returns the files, each with the token of its first other piece,
    /// whose turn in the queue was this token's, so that they need a new one.
    pub fn cancel_token(&mut self, token: u64) -> Vec<(u32, u64)> {
        let mut again = Vec::new();
        let mut gone = Vec::new();
        for (&number, (entry, _)) in &mut self.entries {
            match entry {
                Entry::Opening { begun, pieces } => {
                    *begun = begun.filter(|of| *of != token);
                    pieces.retain(|piece| piece.token != token);
                }
                Entry::LookingUp(of) => *of = of.filter(|of| *of != token),
                Entry::ToOpen { pieces, .. } => {
                    let had_its_turn = pieces.first().is_some_and(|piece| piece.token == token);
                    pieces.retain(|piece| piece.token != token);
                    match pieces.first() {
                        Some(first) if had_its_turn => again.push((number, first.token)),
                        Some(_) => {}
                        None => gone.push(number),
                    }
                }
                _ => {}
            }
        }
        for number in gone {
            self.remove(number);
        }
        again
    }

    /// Closes all files and forgets all names that nobody is busy with.
    pub fn clear(&mut self) {
        self.entries.retain(|_, (entry, _)| match entry {
            Entry::Opening { begun, pieces } => {
                *begun = None;
                pieces.clear();
                true
            }
            Entry::LookingUp(of) => {
                *of = None;
                true
            }
            _ => false,
        });
        self.by_key.retain(|_, number| self.entries.contains_key(number));
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_open(tokens: &[u64]) -> Entry {
        let pieces = tokens.iter().map(|&token| Piece { offset: 0, length: 1, token }).collect();
        Entry::ToOpen { path: c"x".into(), pieces }
    }

    fn key(name: &str) -> Key {
        Key::Path(name.into())
    }

    #[test]
    fn a_cancelled_file_can_be_hinted_again() {
        let mut files = Files::default();
        let number = files.add(to_open(&[1]), Some(key("a")));
        files.cancel_file(number);
        assert!(files.find(&key("a")).is_none());
        files.add(to_open(&[1]), Some(key("b")));
        assert_eq!(files.cancel_token(2), []);
        assert!(files.find(&key("b")).is_some());
        assert_eq!(files.cancel_token(1), []);
        assert!(files.find(&key("b")).is_none());
    }

    #[test]
    fn what_is_under_way_knows_that_it_was_cancelled() {
        let mut files = Files::default();
        let mut under_way = || {
            let pieces = vec![Piece { offset: 0, length: 1, token: 2 }];
            [
                files.add(Entry::Opening { begun: Some(1), pieces }, None),
                files.add(Entry::LookingUp(Some(1)), None),
            ]
        };
        let (by_token, cleared) = (under_way(), under_way());
        let wanted = |files: &mut Files, numbers: [u32; 2]| {
            numbers.map(|number| match files.get(number) {
                Some(Entry::Opening { begun, .. }) => *begun,
                Some(Entry::LookingUp(of)) => *of,
                other => panic!("{other:?}"),
            })
        };
        files.cancel_token(2);
        assert_eq!(wanted(&mut files, by_token), [Some(1); 2]);
        files.cancel_token(1);
        assert_eq!(wanted(&mut files, by_token), [None; 2]);
        files.clear();
        assert_eq!(wanted(&mut files, cleared), [None; 2]);
        assert_eq!(files.not_opened(cleared[0], c"x".into()), None);
        assert!(files.get(cleared[0]).is_none());
    }

    #[test]
    fn others_pieces_get_a_turn_of_their_own() {
        let mut files = Files::default();
        let first = files.add(to_open(&[1, 2, 1, 3]), Some(key("a")));
        let second = files.add(to_open(&[2, 1]), Some(key("b")));
        assert_eq!(files.cancel_token(1), [(first, 2)]);
        for (number, tokens) in [(first, vec![2, 3]), (second, vec![2])] {
            let Some(Entry::ToOpen { pieces, .. }) = files.get(number) else { panic!("gone") };
            assert_eq!(pieces.iter().map(|piece| piece.token).collect::<Vec<_>>(), tokens);
        }
    }
}
