//! Which files, and how many.
//!
//! The program says of each file that it begins to read whether it waited for it ([`Choice::waited`]) or found it there
//! ([`Choice::used`]). Where it has waited for two files of one directory with the same ending (once
//! companions have proved right, for one), the others there with that ending are asked for, those whose names come
//! after it first, then those before.
//!
//! What holds: of the files that were asked for and not in the cache, at most `FIRST + PER_USED * used` in all.

use runahead_names::look::Identity;
use runahead_names::walk::Name;
use std::collections::{HashMap, HashSet};
use std::ffi::CString;

/// Files that may be asked for before one of them has been used.
const FIRST: u64 = 8;

/// And for each that was used so many more.
const PER_USED: u64 = 3;

/// So many used ones make one wait in a directory enough.
const PROVED: u64 = 16;

/// Directories and files that are remembered; beyond, all is forgotten but the counts.
const REMEMBERED: usize = 1 << 16;

/// A file, as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct File {
    pub device: u64,
    pub inode: u64,
}

#[derive(Debug, Default)]
struct Directory {
    /// Files, by name. None: not listed yet.
    names: Option<Vec<Name>>,
    /// How often the program has waited for a file with this ending.
    waits: HashMap<Vec<u8>, u32>,
}

/// What is known of a run's programs.
#[derive(Debug, Default)]
pub struct Choice {
    directories: HashMap<Identity, Directory>,
    /// What the program has begun to read, or was asked for.
    met: HashSet<File>,
    /// What was asked for and not used yet.
    open: HashSet<File>,
    asked: u64,
    used: u64,
}

impl Choice {
    /// Whether `directory` is to be listed, since the program has waited for a file with this name in it.
    pub fn waited(&mut self, directory: Identity, name: &[u8]) -> bool {
        if self.directories.len() >= REMEMBERED {
            self.directories.clear();
        }
        let enough = if self.used >= PROVED { 1 } else { 2 };
        let known = self.directories.entry(directory).or_default();
        let waits = known.waits.entry(ending(name).to_vec()).or_default();
        *waits += 1;
        *waits >= enough && known.names.is_none()
    }

    /// The names in a directory.
    pub fn listed(&mut self, directory: Identity, mut names: Vec<Name>) {
        names.retain(|name| !name.is_directory);
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        if let Some(known) = self.directories.get_mut(&directory) {
            known.names = Some(names);
        }
    }

    /// The files to be asked for now, after a wait for the one with this name. They count as asked.
    pub fn companions(&mut self, directory: Identity, name: &[u8]) -> Vec<CString> {
        let room = (FIRST + PER_USED * self.used).saturating_sub(self.asked) as usize;
        let Some(Directory { names: Some(names), .. }) = self.directories.get(&directory) else {
            return Vec::new();
        };
        if self.met.len() >= REMEMBERED {
            self.met.clear();
            self.open.clear();
        }
        let after = names.partition_point(|other| other.name.to_bytes() <= name);
        let mut chosen = Vec::new();
        let around = names.iter().skip(after).chain(names.iter().take(after));
        for other in around.filter(|other| ending(other.name.to_bytes()) == ending(name)) {
            if chosen.len() >= room {
                break;
            }
            let file = File { device: directory.device, inode: other.inode };
            if self.met.insert(file) {
                self.open.insert(file);
                chosen.push(other.name.clone());
            }
        }
        self.asked += chosen.len() as u64;
        chosen
    }

    /// One that was asked for turned out to be in the cache, to be too large, or not to be had.
    pub fn not_asked(&mut self, file: File) {
        if self.open.remove(&file) {
            self.asked -= 1;
        }
    }

    /// The program begins to read a file.
    pub fn used(&mut self, file: File) {
        self.met.insert(file);
        if self.open.remove(&file) {
            self.used += 1;
        }
    }

    /// Files asked for, and those of them that were used.
    pub fn counts(&self) -> (u64, u64) {
        (self.asked, self.used)
    }
}

/// What follows the last dot of a name; nothing where there is none.
fn ending(name: &[u8]) -> &[u8] {
    name.iter().rposition(|&byte| byte == b'.').and_then(|dot| name.get(dot..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HERE: Identity = Identity { device: 1, inode: 1000 };

    fn names(count: u64) -> Vec<Name> {
        let name = |number| CString::new(format!("{number:05}.pyc")).unwrap();
        (0..count).map(|number| Name { name: name(number), inode: number, is_directory: false }).collect()
    }

    fn file(inode: u64) -> File {
        File { device: 1, inode }
    }

    /// The program waits for the file; what is asked for then, by inode.
    fn wait(choice: &mut Choice, inode: u64, all: u64) -> Vec<u64> {
        let name = format!("{inode:05}.pyc").into_bytes();
        choice.used(file(inode));
        if choice.waited(HERE, &name) {
            choice.listed(HERE, names(all));
        }
        let chosen = choice.companions(HERE, &name);
        chosen.iter().map(|name| name.to_str().unwrap()[..5].parse().unwrap()).collect()
    }

    #[test]
    fn two_waits_make_companions_and_their_use_makes_more() {
        let mut choice = Choice::default();
        assert_eq!(wait(&mut choice, 40, 50), []);
        assert_eq!(wait(&mut choice, 43, 50), [44, 45, 46, 47, 48, 49, 0, 1]);
        assert_eq!(wait(&mut choice, 20, 50), []);
        choice.used(file(45));
        choice.used(file(45));
        assert_eq!(wait(&mut choice, 21, 50), [22, 23, 24]);
        assert_eq!(choice.counts(), (11, 1));
    }

    #[test]
    fn what_was_there_or_cannot_be_had_makes_room() {
        let mut choice = Choice::default();
        wait(&mut choice, 1, 50);
        let asked = wait(&mut choice, 3, 50);
        asked.iter().for_each(|&inode| choice.not_asked(file(inode)));
        choice.not_asked(file(77));
        assert_eq!(choice.counts(), (0, 0));
        assert_eq!(wait(&mut choice, 4, 50).len(), 8);
    }

    #[test]
    fn other_endings_and_directories_are_no_companions() {
        let mut choice = Choice::default();
        wait(&mut choice, 1, 4);
        let mut listing = names(4);
        listing.push(Name { name: c"00002.py".into(), inode: 70, is_directory: false });
        listing.push(Name { name: c"00009.pyc".into(), inode: 71, is_directory: true });
        choice.used(file(2));
        assert!(choice.waited(HERE, b"00002.pyc"));
        choice.listed(HERE, listing);
        let chosen = choice.companions(HERE, b"00002.pyc");
        assert_eq!(chosen, [c"00003.pyc".to_owned(), c"00000.pyc".to_owned()]);
        assert_eq!(choice.companions(Identity { inode: 3, ..HERE }, b"00002.pyc"), Vec::<CString>::new());
    }

    #[test]
    fn proved_right_one_wait_is_enough() {
        let mut choice = Choice { used: PROVED, ..Choice::default() };
        assert!(choice.waited(HERE, b"a.pyc"));
        assert!(!Choice::default().waited(HERE, b"a.pyc"));
    }

    #[test]
    fn endings() {
        assert_eq!(ending(b"a.cpython-311.pyc"), b".pyc");
        assert_eq!(ending(b"Makefile"), b"");
        assert_eq!(ending(b"a."), b".");
    }

    proptest! {
        /// Whatever the program does, a wrong guess stays small, and nothing is asked for twice.
        #[test]
        fn bounded(steps in prop::collection::vec((0u64..200, any::<bool>()), 0..300)) {
            let mut choice = Choice::default();
            let mut ever = HashSet::new();
            for (inode, waits) in steps {
                if waits {
                    for asked in wait(&mut choice, inode, 200) {
                        prop_assert!(ever.insert(asked));
                    }
                } else {
                    choice.used(file(inode));
                }
                let (asked, used) = choice.counts();
                prop_assert!(asked <= FIRST + PER_USED * used);
                prop_assert!(used <= asked);
            }
        }
    }
}
