//! Files at the same place in directories that stand side by side.
//!
//! A program that loads packages (`node_modules/*/package.json`), reads a data set by classes (`cats/17.jpg`,
//! `dogs/4.jpg`) or a store by hashes (`objects/3f/9a01`) waits in many directories, a few times in each, so that
//! what stands beside its files says little. But it is the same place in each. Two kinds of it are told apart by
//! what the program has waited for:
//!
//! - *Named*: the same name, in two of the directories at least. It is asked for in the others.
//! - *Ending*: always other names, in several of the directories, with the same ending. The others are listed,
//!   and what ends so is asked for.
//!
//! How many: [`crate::guesses`], for each pattern and for all together. A name that is not there is a wrong guess
//! too: to find that out has taken a look-up.

use crate::guesses::{Guesses, is_covered, unproved};
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::sync::Arc;

/// Files that may be asked for before one of them has been used, for one pattern and for all together.
const FIRST: u64 = 4;
const FIRST_OF_ALL: u64 = 16;

/// Directories in which a name was waited for that make it a pattern.
const NAMED: usize = 2;

/// Directories in which names of an ending were waited for that make it a pattern, and names that were new each
/// time.
const ENDING: usize = 3;
const NEW: u64 = 4;

/// Of the names of an ending at most one in so many may have been seen in another directory: else it is the name
/// that says it.
const SEEN: u64 = 4;

/// Directories listed at a time for an ending, at most.
const LISTED_MOST: u64 = 16;

/// Files of an ending that a directory is taken to have before one was listed.
const IN_ONE: u64 = 4;

/// Names from a file up to the directory whose subdirectories stand side by side, but its own.
const LEVELS: usize = 3;

/// Names that are remembered, and patterns, of which each takes as much memory as `PATTERN` names; beyond, all is
/// forgotten but the counts.
const REMEMBERED: usize = 1 << 16;
const PATTERN: usize = 8;

/// One pattern of this run's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(u64);

/// Where a file stands below one of several directories that stand side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level<'a> {
    /// The directory that those stand in: an absolute path.
    pub above: &'a [u8],
    /// Which one it is.
    pub sibling: &'a [u8],
    /// Where the file's own directory is in it: a path of no or a few names.
    pub through: &'a [u8],
}

impl<'a> Level<'a> {
    /// Those of a file in this directory (an absolute path), from the nearest on.
    pub fn of(directory: &'a [u8]) -> impl Iterator<Item = Level<'a>> {
        let slash = |before: usize| directory.get(..before)?.iter().rposition(|&byte| byte == b'/');
        let mut end = directory.len();
        let levels = std::iter::from_fn(move || {
            let at = slash(end)?;
            let level = Level {
                above: directory.get(..at.max(1))?,
                sibling: directory.get(at + 1..end)?,
                through: directory.get(end + 1..).unwrap_or_default(),
            };
            end = at;
            (!level.sibling.is_empty()).then_some(level)
        });
        levels.take(LEVELS)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Last {
    Named(Vec<u8>),
    Ending(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pattern {
    device: u64,
    above: Vec<u8>,
    through: Vec<u8>,
    last: Last,
}

#[derive(Debug)]
struct Known {
    pattern: Pattern,
    /// Of the directories beside each other: where the program has waited, and what was chosen.
    met: HashSet<Vec<u8>>,
    /// Directories where the program has waited.
    waited: usize,
    /// Names that the program has waited for, with the directory in which it did first; how often it was one
    /// that was not among them, and how often one that was, in another directory.
    names: HashMap<Vec<u8>, Vec<u8>>,
    new: u64,
    seen: u64,
    /// All of the directories, by name. None: not listed yet.
    siblings: Option<Arc<[CString]>>,
    /// From which of them on to choose.
    next: usize,
    /// Directories that were listed, files found there, and lists that have not come.
    lists: u64,
    found: u64,
    listing: u64,
    guesses: Guesses,
    /// Somebody was told to choose more.
    told: bool,
    /// All of the directories were met.
    over: bool,
}

/// What to ask for in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The file of this name.
    Named(CString),
    /// What ends so; [`Cousins::listed`] says which of it.
    Ending(Vec<u8>),
}

/// What to ask for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    pub id: Id,
    pub siblings: Vec<CString>,
    /// From each of them down to the file's own directory.
    pub through: Vec<CString>,
    pub what: What,
}

/// What is known of a run's programs.
#[derive(Debug)]
pub struct Cousins {
    patterns: HashMap<Pattern, Id>,
    known: HashMap<Id, Known>,
    /// The directories in a directory that was listed: by device and path.
    beside: HashMap<(u64, Vec<u8>), Arc<[CString]>>,
    /// Ids that were given so far: what is forgotten leaves none behind that mean something else.
    ids: u64,
    /// Names in `known` and `beside`.
    names: usize,
    guesses: Guesses,
    /// How long the disk takes, ns.
    disk_ns: u64,
}

impl Default for Cousins {
    fn default() -> Cousins {
        Cousins {
            patterns: HashMap::new(),
            known: HashMap::new(),
            beside: HashMap::new(),
            ids: 0,
            names: 0,
            guesses: Guesses::new(FIRST_OF_ALL),
            disk_ns: 0,
        }
    }
}

impl Cousins {
    /// The program has waited for a file.
    pub fn counts_wait(&mut self) {
        self.guesses.counts_wait();
    }

    /// The disk takes so long, ns.
    pub fn disk_takes(&mut self, ns: u64) {
        self.disk_ns = ns;
    }

    /// The program has waited for the file with this name there. The patterns of which more may be asked for
    /// now.
    pub fn waited(&mut self, device: u64, level: Level, name: &[u8]) -> Vec<Id> {
        if self.known.len() * PATTERN + self.names >= REMEMBERED {
            self.forget();
        }
        let lasts = [Last::Named(name.to_vec()), Last::Ending(crate::choice::ending(name).to_vec())];
        let ids = lasts.map(|last| {
            let id = self.id(device, level, last);
            self.counts_wait_in(id, level, name);
            id
        });
        ids.into_iter().filter(|&id| self.wants_more(id)).collect()
    }

    fn id(&mut self, device: u64, level: Level, last: Last) -> Id {
        let pattern = Pattern { device, above: level.above.to_vec(), through: level.through.to_vec(), last };
        if let Some(&id) = self.patterns.get(&pattern) {
            return id;
        }
        let id = Id(self.ids);
        self.ids += 1;
        self.known.insert(id, Known::of(pattern.clone()));
        self.patterns.insert(pattern, id);
        id
    }

    fn counts_wait_in(&mut self, id: Id, level: Level, name: &[u8]) {
        let Some(known) = self.known.get_mut(&id) else { return };
        if known.met.insert(level.sibling.to_vec()) {
            known.waited += 1;
            self.names += 1;
        }
        if matches!(known.pattern.last, Last::Ending(_)) {
            match known.names.get(name) {
                Some(first) => known.seen += u64::from(first != level.sibling),
                None => {
                    known.names.insert(name.to_vec(), level.sibling.to_vec());
                    known.new += 1;
                    self.names += 1;
                }
            }
        }
    }

    /// Files that may be asked for because of a pattern.
    fn room_of(&self, id: Id) -> u64 {
        let Some(known) = self.known.get(&id).filter(|known| known.is_pattern()) else { return 0 };
        let proved = known.guesses.room_at_a_time().min(self.guesses.room());
        match known.waited_of_all() {
            Some(waited) => {
                let all = self.guesses.room_and(unproved(self.guesses.waits(), self.disk_ns));
                proved.max(known.guesses.room_and(unproved(waited, self.disk_ns)).min(all))
            }
            None => proved,
        }
    }

    /// Whether there is anything to choose because of a pattern. (To look for it in vain would take a look at
    /// each of the directories, at each file that is used.)
    fn wants_more(&self, id: Id) -> bool {
        self.known.get(&id).is_some_and(|known| !known.over) && self.room_of(id) > 0
    }

    /// Where a pattern's directories stand, and on which device; and whether they are to be listed.
    pub fn place(&mut self, id: Id) -> Option<(&[u8], u64, bool)> {
        let known = self.known.get_mut(&id)?;
        if known.siblings.is_none() {
            known.siblings = self.beside.get(&(known.pattern.device, known.pattern.above.clone())).cloned();
        }
        Some((&known.pattern.above, known.pattern.device, known.siblings.is_none()))
    }

    /// The directories that stand beside each other there.
    pub fn siblings(&mut self, id: Id, mut directories: Vec<CString>) {
        directories.sort_unstable();
        let count = directories.len();
        if let Some(known) = self.known.get_mut(&id) {
            let directories: Arc<[CString]> = directories.into();
            known.siblings = Some(directories.clone());
            self.beside.insert((known.pattern.device, known.pattern.above.clone()), directories);
            self.names += count;
        }
    }

    /// What to ask for now: in the directories behind `beside`, or else behind those chosen last. They count as
    /// asked for.
    pub fn choose(&mut self, id: Id, beside: Option<&[u8]>) -> Option<Chosen> {
        let room = self.room_of(id);
        let known = self.known.get_mut(&id)?;
        known.told = false;
        if known.over {
            return None;
        }
        let count = match known.pattern.last {
            Last::Named(_) => room,
            Last::Ending(_) => match room.saturating_sub(known.listing * known.in_one()) {
                0 => 0,
                room => (room / known.in_one()).clamp(1, LISTED_MOST),
            },
        };
        let siblings = known.siblings.as_ref()?;
        let through = parts(&known.pattern.through)?;
        let what = match &known.pattern.last {
            Last::Named(name) => What::Named(CString::new(name.clone()).ok()?),
            Last::Ending(ending) => What::Ending(ending.clone()),
        };
        if let Some(beside) = beside {
            known.next = siblings.partition_point(|other| other.to_bytes() <= beside);
        }
        let mut chosen = Vec::new();
        let mut next = known.next;
        for _ in 0..siblings.len() {
            if chosen.len() as u64 >= count {
                break;
            }
            let Some(sibling) = siblings.get(next % siblings.len()) else { break };
            next += 1;
            if known.met.insert(sibling.to_bytes().to_vec()) {
                chosen.push(sibling.clone());
            }
        }
        known.next = next % siblings.len().max(1);
        known.over = (chosen.len() as u64) < count;
        let asked = chosen.len() as u64;
        match what {
            What::Named(_) => {
                known.guesses.ask(asked);
                self.guesses.ask(asked);
            }
            What::Ending(_) => known.listing += asked,
        }
        self.names += chosen.len();
        (!chosen.is_empty()).then_some(Chosen { id, siblings: chosen, through, what })
    }

    /// A directory that was chosen for its endings has been listed, and so many files found, of which so many are
    /// not known yet; how many of these to ask for. They count as asked for.
    pub fn listed(&mut self, id: Id, found: usize, unknown: usize) -> usize {
        let room = self.room_of(id);
        let Some(known) = self.known.get_mut(&id) else { return 0 };
        known.listing = known.listing.saturating_sub(1);
        known.lists += 1;
        known.found += found as u64;
        let asked = room.min(unknown as u64);
        known.guesses.ask(asked);
        self.guesses.ask(asked);
        asked as usize
    }

    /// A directory that was chosen is not listed.
    pub fn not_listed(&mut self, id: Id) {
        if let Some(known) = self.known.get_mut(&id) {
            known.listing = known.listing.saturating_sub(1);
        }
    }

    /// One that counts as asked for is in the cache, or nobody has asked for it.
    pub fn not_asked(&mut self, id: Id) {
        if let Some(known) = self.known.get_mut(&id) {
            known.guesses.not_asked();
        }
        self.guesses.not_asked();
    }

    /// The program has begun to read one that was asked for. True if somebody is to choose more.
    pub fn used(&mut self, id: Id) -> bool {
        self.guesses.use_one();
        let Some(known) = self.known.get_mut(&id) else { return false };
        known.guesses.use_one();
        self.wants_more(id)
            && self.known.get_mut(&id).is_some_and(|known| !std::mem::replace(&mut known.told, true))
    }

    /// Who was told to choose more has not.
    pub fn not_told(&mut self, id: Id) {
        if let Some(known) = self.known.get_mut(&id) {
            known.told = false;
        }
    }

    /// Files asked for, and those of them that were used.
    pub fn counts(&self) -> (u64, u64) {
        self.guesses.counts()
    }

    fn forget(&mut self) {
        self.patterns.clear();
        self.known.clear();
        self.beside.clear();
        self.names = 0;
    }
}

impl Known {
    fn of(pattern: Pattern) -> Known {
        Known {
            pattern,
            met: HashSet::new(),
            waited: 0,
            names: HashMap::new(),
            new: 0,
            seen: 0,
            siblings: None,
            next: 0,
            lists: 0,
            found: 0,
            listing: 0,
            guesses: Guesses::new(FIRST),
            told: false,
            over: false,
        }
    }

    fn is_pattern(&self) -> bool {
        match self.pattern.last {
            Last::Named(_) => self.waited >= NAMED,
            Last::Ending(_) => self.waited >= ENDING && self.new >= NEW && self.seen * SEEN <= self.new,
        }
    }

    /// For how many of all that there is the program has waited, where that is a part of it.
    fn waited_of_all(&self) -> Option<u64> {
        let (waited, in_one) = match self.pattern.last {
            Last::Named(_) => (self.waited as u64, 1),
            Last::Ending(_) => (self.new, self.in_one()),
        };
        let siblings = self.siblings.as_ref()?.len() as u64;
        is_covered(waited, in_one * siblings).then_some(waited)
    }

    /// Files of the ending in one directory.
    fn in_one(&self) -> u64 {
        self.found.checked_div(self.lists).map_or(IN_ONE, |files| files.max(1))
    }
}

/// The names of a path. None: one of them is no name to go down to.
fn parts(path: &[u8]) -> Option<Vec<CString>> {
    let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
    names
        .map(|name| {
            CString::new(name).ok().filter(|name| name.as_c_str() != c"." && name.as_c_str() != c"..")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn level<'a>(sibling: &'a str, through: &'a str) -> Level<'a> {
        Level { above: b"/m", sibling: sibling.as_bytes(), through: through.as_bytes() }
    }

    fn directories(count: usize) -> Vec<CString> {
        (0..count).map(|number| CString::new(format!("d{number:03}")).unwrap()).collect()
    }

    /// The program waits for a file; in which directories something is asked for then.
    fn wait(cousins: &mut Cousins, sibling: &str, through: &str, name: &str) -> Vec<Chosen> {
        cousins.counts_wait();
        let ids = cousins.waited(1, level(sibling, through), name.as_bytes());
        let mut chosen = Vec::new();
        for id in ids {
            if cousins.place(id).unwrap().2 {
                cousins.siblings(id, directories(50));
            }
            chosen.extend(cousins.choose(id, Some(sibling.as_bytes())));
        }
        chosen
    }

    fn names(chosen: &[Chosen]) -> Vec<&str> {
        chosen.iter().flat_map(|chosen| &chosen.siblings).map(|name| name.to_str().unwrap()).collect()
    }

    #[test]
    fn levels_go_up_from_the_files_directory() {
        let levels: Vec<_> = Level::of(b"/a/bc/d/e").collect();
        let level = |above, sibling, through| Level { above, sibling, through };
        let expected: [Level; 3] = [
            level(&b"/a/bc/d"[..], &b"e"[..], &b""[..]),
            level(b"/a/bc", b"d", b"e"),
            level(b"/a", b"bc", b"d/e"),
        ];
        assert_eq!(levels, expected);
        assert_eq!(Level::of(b"/a").collect::<Vec<_>>(), [level(b"/", b"a", b"")]);
        assert_eq!(Level::of(b"/").count(), 0);
        assert_eq!(Level::of(b"").count(), 0);
    }

    #[test]
    fn a_name_in_two_directories_is_asked_for_in_others() {
        let mut cousins = Cousins::default();
        assert_eq!(wait(&mut cousins, "d010", "lib", "index.js"), []);
        let chosen = wait(&mut cousins, "d011", "lib", "index.js");
        assert_eq!(names(&chosen), ["d012", "d013", "d014", "d015"]);
        let [Chosen { id, through, what, .. }] = &chosen[..] else { panic!("{chosen:?}") };
        assert_eq!((&through[..], what), (&[c"lib".to_owned()][..], &What::Named(c"index.js".into())));
        // No more until some were used, or many waits have shown that a wrong one costs little.
        assert_eq!(wait(&mut cousins, "d020", "lib", "index.js"), []);
        assert!(cousins.used(*id) && !cousins.used(*id));
        let more = cousins.choose(*id, None).unwrap();
        assert_eq!(names(&[more]), ["d016", "d017", "d018", "d019", "d021", "d022"]);
        assert_eq!(cousins.counts(), (10, 2));
    }

    #[test]
    fn most_guesses_wrong_and_few_are_made() {
        let mut cousins = Cousins::default();
        wait(&mut cousins, "d010", "", "a");
        let chosen = wait(&mut cousins, "d011", "", "a");
        assert!(cousins.used(chosen[0].id));
        assert_eq!(names(&wait(&mut cousins, "d030", "", "a")), ["d031", "d032"]);
    }

    #[test]
    fn who_has_waited_for_a_part_of_all_wants_the_rest() {
        let mut cousins = Cousins::default();
        cousins.disk_takes(1_100_000);
        // Every seventh of 50; nothing that was asked for is used yet.
        let mut asked = 0;
        for number in [3, 10, 17, 24, 31, 38, 45] {
            asked += names(&wait(&mut cousins, &format!("d{number:03}"), "", "a")).len();
        }
        // Two for each wait, and those that may be made at first.
        assert_eq!(asked as u64, 2 * 7 + FIRST);
    }

    #[test]
    fn the_same_name_elsewhere_is_no_pattern() {
        let mut cousins = Cousins::default();
        wait(&mut cousins, "d010", "", "a");
        cousins.counts_wait();
        assert_eq!(cousins.waited(2, level("d011", ""), b"a"), []);
        assert_eq!(wait(&mut cousins, "d012", "lib", "a"), []);
        assert_eq!(wait(&mut cousins, "d010", "", "a"), []);
    }

    #[test]
    fn new_names_in_each_directory_make_an_ending() {
        let mut cousins = Cousins::default();
        assert_eq!(wait(&mut cousins, "d001", "", "a1"), []);
        assert_eq!(wait(&mut cousins, "d009", "", "a2"), []);
        // Programs may wait for a file more than once.
        assert_eq!(wait(&mut cousins, "d009", "", "a2"), []);
        assert_eq!(wait(&mut cousins, "d005", "", "a3"), []);
        let chosen = wait(&mut cousins, "d005", "", "a4");
        assert_eq!(names(&chosen), ["d006"]);
        assert_eq!(chosen[0].what, What::Ending(Vec::new()));
        let id = chosen[0].id;
        // The list that is under way may bring as many as may be asked for.
        assert_eq!(wait(&mut cousins, "d020", "", "a5"), []);
        assert_eq!(cousins.listed(id, 6, 6), 4);
        assert_eq!(wait(&mut cousins, "d021", "", "a6"), []);
        (0..4).for_each(|_| _ = cousins.used(id));
        // Twelve more files, six in a directory.
        assert_eq!(names(&[cousins.choose(id, None).unwrap()]), ["d022", "d023"]);
    }

    #[test]
    fn names_that_return_are_no_ending() {
        let mut cousins = Cousins::default();
        for directory in 0..20 {
            for name in ["a.js", "b.js", "c.js"] {
                let chosen = wait(&mut cousins, &format!("d{directory:03}"), "", name);
                assert!(chosen.iter().all(|chosen| matches!(chosen.what, What::Named(_))), "{chosen:?}");
            }
        }
    }

    #[test]
    fn what_is_forgotten_means_nothing() {
        let mut cousins = Cousins::default();
        let chosen = wait(&mut cousins, "d010", "", "a");
        assert_eq!(chosen, []);
        let id = wait(&mut cousins, "d011", "", "a")[0].id;
        cousins.forget();
        wait(&mut cousins, "d010", "", "b");
        assert!(!cousins.used(id) && cousins.place(id).is_none() && cousins.choose(id, None).is_none());
        assert_eq!(cousins.listed(id, 3, 3), 0);
    }

    #[test]
    fn nobody_goes_up() {
        assert_eq!(parts(b"a/b"), Some(vec![c"a".into(), c"b".into()]));
        assert_eq!(parts(b""), Some(Vec::new()));
        assert_eq!(parts(b"../a"), None);
        assert_eq!(parts(b"a/./b"), None);
    }

    proptest! {
        /// Whatever the program does, wrong guesses stay few, and no directory is asked twice for the same.
        #[test]
        fn bounded(steps in prop::collection::vec((0u32..60, 0u32..4, any::<bool>(), 0usize..9), 0..200)) {
            let mut cousins = Cousins::default();
            cousins.disk_takes(1_100_000);
            let mut ever = HashSet::new();
            let mut open: Vec<Id> = Vec::new();
            for (directory, name, uses, found) in steps {
                if uses {
                    if let Some(id) = open.pop() {
                        cousins.used(id);
                    }
                    continue;
                }
                for chosen in wait(&mut cousins, &format!("d{directory:03}"), "", &format!("{name}.x")) {
                    for sibling in &chosen.siblings {
                        prop_assert!(ever.insert((chosen.id, sibling.clone())));
                        match chosen.what {
                            What::Named(_) => open.push(chosen.id),
                            What::Ending(_) => {
                                let asked = cousins.listed(chosen.id, found, found);
                                prop_assert!(asked <= found);
                                open.extend((0..asked).map(|_| chosen.id));
                            }
                        }
                    }
                }
                let (asked, used) = cousins.counts();
                let unproved = unproved(cousins.guesses.waits(), 1_100_000);
                prop_assert!(asked <= FIRST_OF_ALL + 3 * used + unproved);
                prop_assert!(used <= asked && open.len() as u64 == asked - used);
            }
        }
    }

    #[test]
    fn who_has_met_all_directories_is_not_told_to_look_for_more() {
        let mut cousins = Cousins::default();
        wait(&mut cousins, "d010", "", "a");
        let id = wait(&mut cousins, "d011", "", "a")[0].id;
        loop {
            (0..4).for_each(|_| _ = cousins.used(id));
            if cousins.choose(id, None).is_none() {
                break;
            }
        }
        assert_eq!(cousins.counts().0, 48);
        assert!((0..20).all(|_| !cousins.used(id)));
        assert_eq!(cousins.waited(1, level("d012", ""), b"a"), []);
    }

    #[test]
    fn directories_are_listed_once_for_all_names() {
        let mut cousins = Cousins::default();
        let (mut lists, mut chosen) = (0, 0);
        for number in 0..200 {
            cousins.counts_wait();
            let (sibling, name) = (format!("d{:03}", number / 2), format!("{}", number / 40));
            for id in cousins.waited(1, level(&sibling, ""), name.as_bytes()) {
                if cousins.place(id).unwrap().2 {
                    cousins.siblings(id, directories(1000));
                    lists += 1;
                }
                chosen += cousins.choose(id, None).map_or(0, |chosen| chosen.siblings.len());
            }
        }
        assert!(lists == 1 && chosen > 0, "{lists} {chosen}");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut cousins = Cousins::default();
        for number in 0..REMEMBERED {
            cousins.waited(1, level(&format!("{number}"), ""), format!("{number}.x").as_bytes());
            assert!(cousins.known.len() * PATTERN + cousins.names <= REMEMBERED + 2 * PATTERN + 8);
        }
    }
}
