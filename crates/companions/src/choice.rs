//! Which files, and how many.
//!
//! The program says of each file that it begins to read whether it waited for it ([`Choice::waited`]) or found it there
//! ([`Choice::used`]). Where it has waited for two files of one directory with the same ending (once
//! companions have proved right, for one), the others there with that ending are asked for, those whose names come
//! after it first, then those before.
//!
//! How many: [`crate::guesses`]. So many at a time as it says, and for who has waited for a part of a directory's
//! what needs no proof.

use crate::cousins::{self, Cousins};
use crate::guesses::{Guesses, is_covered, unproved};
use runahead_names::look::Identity;
use runahead_names::walk::Name;
use std::collections::{HashMap, HashSet};
use std::ffi::CString;

/// Files that may be asked for before one of them has been used.
const FIRST: u64 = 8;

/// Waits after which it is over if no guess has come true.
const HOPELESS: u64 = 256;

/// So many used ones make one wait in a directory enough.
const PROVED: u64 = 16;

/// Names, endings and files that are remembered, in all directories together; beyond, all is forgotten but the counts.
const REMEMBERED: usize = 1 << 16;

/// A file, as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct File {
    pub device: u64,
    pub inode: u64,
}

/// The files of a directory with one ending.
#[derive(Debug, Default)]
struct Kind {
    /// How often the program has waited for one.
    waits: u32,
    /// Files of it that were asked for.
    asked: u64,
    /// By name. None: not listed yet.
    names: Option<Vec<Name>>,
}

/// What is known of a run's programs.
#[derive(Debug)]
pub struct Choice {
    kinds: HashMap<(Identity, Vec<u8>), Kind>,
    /// Names in `kinds`.
    names: usize,
    /// What the program has begun to read, or was asked for.
    met: HashSet<File>,
    /// What was asked for and not used yet, and as whose cousin, if it stands beside nothing that was waited
    /// for.
    open: HashMap<File, Option<cousins::Id>>,
    pub cousins: Cousins,
    guesses: Guesses,
    /// How long the disk takes that was waited for last, ns.
    disk_ns: u64,
}

impl Default for Choice {
    fn default() -> Choice {
        Choice {
            kinds: HashMap::new(),
            names: 0,
            met: HashSet::new(),
            open: HashMap::new(),
            cousins: Cousins::default(),
            guesses: Guesses::new(FIRST),
            disk_ns: 0,
        }
    }
}

impl Choice {
    /// The program has waited for a file.
    pub fn counts_wait(&mut self) {
        self.guesses.counts_wait();
        self.cousins.counts_wait();
    }

    /// The disk on which it was takes so long, as far as is known.
    pub fn disk_takes(&mut self, ns: u64) {
        self.disk_ns = ns;
        self.cousins.disk_takes(ns);
    }

    /// Whether it is over.
    pub fn is_hopeless(&self) -> bool {
        self.counts().1 == 0 && self.guesses.waits() >= HOPELESS
    }

    /// Whether it is worth knowing which files the program begins to read.
    pub fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether `directory` is to be listed, since the program has waited for a file with this name in it.
    pub fn waited(&mut self, directory: Identity, name: &[u8]) -> bool {
        if self.kinds.len() + self.names >= REMEMBERED {
            self.kinds.clear();
            self.names = 0;
        }
        let enough = if self.guesses.counts().1 >= PROVED { 1 } else { 2 };
        let kind = self.kinds.entry((directory, ending(name).to_vec())).or_default();
        kind.waits = kind.waits.saturating_add(1);
        kind.waits >= enough && kind.names.is_none()
    }

    /// The names in a directory, of which those are kept that end as `name` does.
    pub fn listed(&mut self, directory: Identity, name: &[u8], mut names: Vec<Name>) {
        names.retain(|other| !other.is_directory && ending(other.name.to_bytes()) == ending(name));
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        if let Some(kind) = self.kinds.get_mut(&(directory, ending(name).to_vec())) {
            self.names += names.len();
            kind.names = Some(names);
        }
    }

    /// The files to be asked for now, after a wait for the one with this name. They count as asked.
    pub fn companions(&mut self, directory: Identity, name: &[u8]) -> Vec<(File, CString)> {
        if self.met.len() >= REMEMBERED {
            self.met.clear();
            self.open.clear();
        }
        let Some(kind) = self.kinds.get_mut(&(directory, ending(name).to_vec())) else { return Vec::new() };
        let Some(names) = &kind.names else { return Vec::new() };
        let waits = u64::from(kind.waits);
        let is_covered = is_covered(waits, names.len() as u64);
        let needs_no_proof =
            if is_covered { unproved(waits, self.disk_ns).saturating_sub(kind.asked) } else { 0 };
        let room = self.guesses.room_at_a_time().max(needs_no_proof);
        let after = names.partition_point(|other| other.name.to_bytes() <= name);
        let mut chosen = Vec::new();
        for other in names.iter().skip(after).chain(names.iter().take(after)) {
            if chosen.len() as u64 >= room {
                break;
            }
            let file = File { device: directory.device, inode: other.inode };
            if self.met.insert(file) {
                self.open.insert(file, None);
                chosen.push((file, other.name.clone()));
            }
        }
        kind.asked += chosen.len() as u64;
        self.guesses.ask(chosen.len() as u64);
        chosen
    }

    /// A directory beside one in which the program has waited was listed for files of an ending: which of them
    /// to ask for now. They count as asked.
    pub fn cousins(
        &mut self,
        id: cousins::Id,
        directory: Identity,
        ending: &[u8],
        mut names: Vec<Name>,
    ) -> Vec<(File, CString)> {
        let file = |name: &Name| File { device: directory.device, inode: name.inode };
        names.retain(|name| !name.is_directory && self::ending(name.name.to_bytes()) == ending);
        let found = names.len();
        names.retain(|name| !self.met.contains(&file(name)));
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        names.truncate(self.cousins.listed(id, found, names.len()));
        for name in &names {
            self.met.insert(file(name));
            self.open.insert(file(name), Some(id));
        }
        names.into_iter().map(|name| (file(&name), name.name)).collect()
    }

    /// A cousin that counts as asked for is this file, and it was not in the cache.
    pub fn cousin_is(&mut self, id: cousins::Id, file: File) {
        // The program may have been sooner.
        if self.met.insert(file) {
            self.open.insert(file, Some(id));
        } else {
            self.cousins.not_asked(id);
        }
    }

    /// One that was chosen turned out to be in the cache, or not to be had.
    pub fn not_asked(&mut self, file: File) {
        match self.open.remove(&file) {
            Some(Some(id)) => self.cousins.not_asked(id),
            Some(None) => self.guesses.not_asked(),
            None => {}
        }
    }

    /// What a directory calls `listed` is `file` to whoever opens it (overlays).
    pub fn is_really(&mut self, listed: File, file: File) {
        if listed != file
            && let Some(whose) = self.open.remove(&listed)
        {
            self.met.insert(file);
            self.open.insert(file, whose);
        }
    }

    /// The program begins to read a file. The cousins of which more may be chosen now.
    pub fn used(&mut self, file: File) -> Option<cousins::Id> {
        self.met.insert(file);
        match self.open.remove(&file)? {
            Some(id) => self.cousins.used(id).then_some(id),
            None => {
                self.guesses.use_one();
                None
            }
        }
    }

    /// Files asked for, and those of them that were used.
    pub fn counts(&self) -> (u64, u64) {
        let ((asked, used), (cousins_asked, cousins_used)) = (self.guesses.counts(), self.cousins.counts());
        (asked + cousins_asked, used + cousins_used)
    }
}

/// What follows the last dot of a name; nothing where there is none.
pub(crate) fn ending(name: &[u8]) -> &[u8] {
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
        choice.counts_wait();
        if choice.waited(HERE, &name) {
            choice.listed(HERE, &name, names(all));
        }
        let chosen = choice.companions(HERE, &name);
        chosen.iter().map(|(_, name)| name.to_str().unwrap()[..5].parse().unwrap()).collect()
    }

    #[test]
    fn two_waits_make_companions_and_their_use_makes_more() {
        let mut choice = Choice::default();
        assert_eq!(wait(&mut choice, 40, 50), []);
        assert_eq!(wait(&mut choice, 43, 50), [44, 45, 46, 47, 48, 49, 0, 1]);
        assert_eq!(wait(&mut choice, 20, 50), []);
        choice.used(file(45));
        choice.used(file(45));
        // Few, as most were wrong so far; then more.
        assert_eq!(wait(&mut choice, 21, 50), [22, 23]);
        [44, 46, 47, 48].iter().for_each(|&inode| _ = choice.used(file(inode)));
        assert_eq!(wait(&mut choice, 24, 50), [25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37]);
        assert_eq!(choice.counts(), (23, 5));
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
        choice.listed(HERE, b"00002.pyc", listing);
        let chosen: Vec<CString> =
            choice.companions(HERE, b"00002.pyc").into_iter().map(|(_, name)| name).collect();
        assert_eq!(chosen, [c"00003.pyc".to_owned(), c"00000.pyc".to_owned()]);
        assert!(choice.companions(Identity { inode: 3, ..HERE }, b"00002.pyc").is_empty());
    }

    #[test]
    fn proved_right_one_wait_is_enough() {
        let mut choice = Choice::default();
        (0..PROVED).for_each(|_| choice.guesses.use_one());
        assert!(choice.waited(HERE, b"a.pyc"));
        assert!(!Choice::default().waited(HERE, b"a.pyc"));
    }

    #[test]
    fn eight_wrong_ones_and_it_is_over() {
        let mut choice = Choice::default();
        wait(&mut choice, 100, 2000);
        assert_eq!(wait(&mut choice, 102, 2000).len(), 8);
        assert!(choice.guesses.room() == 0 && choice.is_open());
        // One more now and then, until it is hopeless.
        let asked: usize = (0..40).map(|step| wait(&mut choice, 112 + 2 * step, 2000).len()).sum();
        assert_eq!(asked, 5);
        assert!(!choice.is_hopeless());
        (0..HOPELESS).for_each(|_| choice.counts_wait());
        assert!(choice.is_hopeless());
    }

    #[test]
    fn who_has_waited_for_a_part_of_all_wants_the_rest() {
        let mut choice = Choice::default();
        choice.disk_takes(1_100_000);
        // Every second of 64, of which nothing that was asked for is used.
        let asked: usize = (0..16).map(|step| wait(&mut choice, 2 * step, 64).len()).sum();
        // Eight by the first two waits, as ever; one for eight waits, and two for each.
        assert_eq!(asked, 36);
    }

    #[test]
    fn overlays_have_two_names_for_a_file() {
        let mut choice = Choice::default();
        wait(&mut choice, 100, 200);
        wait(&mut choice, 102, 200);
        let seen = File { device: 9, inode: 9 };
        choice.is_really(file(103), seen);
        choice.is_really(file(103), file(1));
        choice.used(file(103));
        assert_eq!(choice.counts(), (8, 0));
        choice.used(seen);
        assert_eq!(choice.counts(), (8, 1));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut choice = Choice::default();
        for inode in 0..3 * REMEMBERED as u64 {
            choice.waited(Identity { device: 1, inode }, format!("file.{inode}").as_bytes());
            assert!(choice.kinds.len() + choice.names <= REMEMBERED);
        }
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
            choice.disk_takes(1_100_000);
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
                let waits = choice.guesses.waits();
                prop_assert!(asked <= FIRST + 3 * used + waits / 8 + unproved(waits, 1_100_000));
                prop_assert!(used <= asked);
            }
        }
    }
}
