//! Notes of the agents, taken to the threads that look names up ahead, and to those that ask for the companions of files.
//!
//! Where a name was waited for that is one of the program's arguments, or stands in a list that it was given, those behind it come next,
//! else what is beside it.
//!
//! The programs of a run share one pool: what one looks up is what the next will find. A note's path is
//! resolved as its program would resolve it, through the program's own entries in /proc.

use crate::disks;
use crate::futex::wake;
use crate::session::Shared;
use runahead_abi::begun;
use runahead_abi::names::{NOTES, Note, Ring, directory_mark, directory_of, kind, may_be_argument};
use runahead_abi::session::{Slot, companions, names_ahead, retire};
use runahead_companions::choice;
use runahead_companions::cousins;
use runahead_companions::{Companions, Wants};
use runahead_gate::Gate;
use runahead_names::Lookahead;
use runahead_names::arguments::{self, Words};
use runahead_names::lists::List;
use runahead_names::pool::Done;
use runahead_names::restraint;
use runahead_names::walk::Name;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long stopping may take: some look-ups of a slow network.
const STOP_LONGEST: Duration = Duration::from_millis(100);

/// A program that has waited for no file for so long is not asked any more which ones it begins to read.
const INTEREST: Duration = Duration::from_millis(250);

/// What was taken of a program's rings so far.
#[derive(Debug, Default)]
pub struct Taken {
    program: Place,
    speculator: Place,
    begun: u32,
    /// It has left notes about names.
    names: bool,
    /// Its speculator has.
    speculated: bool,
    /// The disk on which it was last said to look names up in many threads at once, and what its counts tell.
    disk: (u64, restraint::Disk),
    /// When it was first said so.
    since: Option<Instant>,
    /// Number of the process under which its arguments are known.
    arguments: u64,
    /// The file system where it was met last is left to it.
    left: Arc<AtomicBool>,
    /// When it last waited for a file.
    waited: Option<Instant>,
}

/// What was left in a slot's rings.
#[derive(Default)]
pub struct Notes {
    program: Vec<Note>,
    speculator: Vec<Note>,
    /// The program has used cousins that were asked for: more of them may be.
    more: Vec<cousins::Id>,
}

impl Notes {
    pub fn is_empty(&self) -> bool {
        self.program.is_empty() && self.speculator.is_empty() && self.more.is_empty()
    }
}

/// How far one ring was read.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    notes: u32,
    /// Mark of the directory of the latest one.
    mark: u64,
}

/// The pools, and what programs that have ended had done.
pub struct Names {
    lookahead: Lookahead,
    gate: Gate,
    /// None: nothing is asked for on a guess.
    companions: Option<Companions>,
    /// What it had asked for when it was given up.
    guessed: (u64, u64),
    ended: Arc<[AtomicU64; 3]>,
    /// Processes whose arguments were asked for.
    numbered: u64,
    given: HashMap<u64, Given>,
}

/// The names that a process was given, read at its first note.
struct Given {
    words: Words,
    /// Those in lists, as far as they were read; and how often that was.
    lists: Arc<OnceLock<Vec<List>>>,
    readings: u64,
    /// Names that it was met at since, and that it was not given.
    elsewhere: u32,
}

/// Processes whose names are remembered: a MB each at most, and 2 MB of lists with as much again for their hashes, until they end.
const PROCESSES_MOST: usize = 32;

/// After so many names that a process was not given its lists are read, and again after twice as many more each time, as it may have read
/// on in them; so often at most. Then they are forgotten.
const ELSEWHERE: u32 = 4;
const READINGS_MOST: u64 = 4;

/// Readings of lists are told apart by what is added to the process's number.
const READING: u64 = 1 << 48;

/// Bytes of a program's arguments that are looked at.
const ARGUMENTS_MOST: u64 = 4 << 20;

impl Names {
    pub fn new(session: Shared, gate: Gate) -> Names {
        let ended = Arc::new([const { AtomicU64::new(0) }; 3]);
        let before = ended.clone();
        let done = move || {
            let mut done = Done {
                looked_up: before[0].load(Ordering::Relaxed),
                listed: before[1].load(Ordering::Relaxed),
                waited: before[2].load(Ordering::Relaxed),
            };
            for slot in session.owned_slots() {
                let counts = &slot.agent.counts;
                done.looked_up = done.looked_up.wrapping_add(looked_up(slot));
                done.listed = done.listed.wrapping_add(counts.listings.load(Ordering::Relaxed));
                done.waited = done.waited.wrapping_add(counts.name_stall_ns.load(Ordering::Relaxed));
            }
            done
        };
        let lookahead = Lookahead::new(gate, done);
        Names {
            lookahead,
            gate,
            companions: None,
            guessed: (0, 0),
            ended,
            numbered: 0,
            given: HashMap::new(),
        }
    }

    /// What comes next has nothing to do with what was before. `guesses`: as for [`Names::guess`].
    pub fn begin_anew(&mut self, session: Shared, guesses: bool) {
        self.lookahead.stop(STOP_LONGEST);
        if let Some(companions) = &self.companions {
            companions.stop(STOP_LONGEST);
        }
        // Numbers that programs were given stay theirs.
        let numbered = self.numbered;
        *self = Names { numbered, ..Names::new(session, self.gate) };
        if guesses {
            self.guess();
        }
    }

    /// Files may be asked for that nobody has foretold.
    pub fn guess(&mut self) {
        self.companions = Some(Companions::new(self.gate));
    }

    /// What agent and speculator of `slot` have left since; to be acted on by [`Names::take`].
    pub fn notes(&self, slot: &Slot, taken: &mut Taken) -> Notes {
        let more = self.begun(slot, taken);
        let program = since(&slot.agent.names, &mut taken.program.notes);
        let speculator = since(&slot.speculator.names, &mut taken.speculator.notes);
        Notes { program, speculator, more }
    }

    /// Acts on what the agent in `slot` has left.
    pub fn take(&mut self, process: u32, slot: &Slot, taken: &mut Taken, notes: Notes) {
        let news = !notes.program.is_empty();
        self.act_on(process, slot, taken, notes);
        if (taken.names || taken.speculated)
            && slot.speculator.names_ahead.load(Ordering::Relaxed) != names_ahead::GONE
        {
            if self.lookahead.is_pointless() {
                self.stop_names(slot);
            } else if taken.names {
                // The speculator is the one to be followed otherwise, and it always counts.
                let ahead = match self.lookahead.is_busy() {
                    false if taken.left.load(Ordering::Relaxed) => names_ahead::LEFT,
                    is_busy if is_busy || news => names_ahead::BUSY,
                    _ => names_ahead::IDLE,
                };
                slot.speculator.names_ahead.store(ahead, Ordering::Relaxed);
            }
        }
        self.tell(slot, taken);
    }

    /// Tells the agent which files are of interest.
    fn tell(&self, slot: &Slot, taken: &Taken) {
        let interested = taken.waited.is_some_and(|waited| waited.elapsed() < INTEREST);
        let wanted = match self.companions.as_ref().map(Companions::wants) {
            None | Some(Wants::Nothing) => companions::NONE,
            Some(Wants::Begun) if interested => companions::ALL,
            Some(_) => companions::WAITS,
        };
        let word = &slot.speculator.companions;
        if word.load(Ordering::Relaxed) != companions::NONE {
            word.store(wanted, Ordering::Relaxed);
            if wanted == companions::NONE {
                // A program that is about to end may wait for that.
                wake(word);
            }
        }
    }

    fn act_on(&mut self, process: u32, slot: &Slot, taken: &mut Taken, notes: Notes) {
        let gone = || slot.speculator.names_ahead.load(Ordering::Relaxed) == names_ahead::GONE;
        for note in notes.program {
            match note {
                note if note.kind == kind::READ => {
                    if let Some(companions) = &mut self.companions
                        && companions.waited(process, note.directory, name(&note), note.generation)
                    {
                        taken.waited = Some(Instant::now());
                    }
                }
                note if note.kind == kind::HELPS_ITSELF => self.helps_itself(slot, &note, taken),
                note if !gone() => {
                    taken.names = true;
                    let is_news = taken.program.is_news(&note);
                    self.waited(process, &note, is_news, taken);
                }
                _ => {}
            }
        }
        if let Some(companions) = &mut self.companions
            && !notes.more.is_empty()
        {
            // It waits for nothing since it was foretold, which is to go on.
            taken.waited = Some(Instant::now());
            let generation = slot.agent.begun.generation();
            notes.more.into_iter().for_each(|more| companions.goes_on(process, more, generation));
        }
        for note in notes.speculator.into_iter().filter(|_| !gone()) {
            taken.speculated = true;
            let is_news = taken.speculator.is_news(&note);
            self.waited(process, &note, is_news, taken);
        }
    }

    /// The program looks names up in many threads at once. (The pool is everybody's: others of the run will leave notes again.)
    fn helps_itself(&self, slot: &Slot, note: &Note, taken: &mut Taken) {
        let gone = slot.speculator.names_ahead.load(Ordering::Relaxed) == names_ahead::GONE;
        if !gone && taken.needs_nobody(note.device()) {
            self.stop_names(slot);
        }
    }

    /// The program, or its speculator, has waited for a name or a listing. `is_news`: not in the directory of its note before.
    fn waited(&mut self, process: u32, note: &Note, is_news: bool, taken: &mut Taken) {
        let name = name(note);
        if note.kind == kind::LISTED {
            let path = path(process, note.directory, name);
            return self.lookahead.note(path, true, &taken.left, note.generation);
        }
        if taken.arguments == 0 {
            self.numbered += 1;
            taken.arguments = self.numbered;
        }
        if may_be_argument(note.directory, name)
            && let Some(whose) = self.gave(process, taken.arguments, name, note.generation)
        {
            if self.lookahead.has_arguments(whose) {
                return;
            }
            let behind = self.behind(process, taken.arguments, name);
            if behind.is_empty() {
                // It was the last one, or nothing there is to be looked up.
                self.forget_lists(taken.arguments);
            } else {
                let absolute = name.first() == Some(&b'/');
                let from = path(process, note.directory, if absolute { b"/" } else { b"" });
                return self.lookahead.arguments(whose, from, behind, note.generation);
            }
        }
        if is_news {
            let directory = path(process, note.directory, directory_of(name));
            self.lookahead.note(directory, false, &taken.left, note.generation);
        }
    }

    /// Whether a name is one that the process was given, as an argument or in a list, and as whose arguments those there are known.
    /// `generation`: of the note that says so.
    fn gave(&mut self, process: u32, number: u64, name: &[u8], generation: u32) -> Option<u64> {
        if self.given.len() >= PROCESSES_MOST && !self.given.contains_key(&number) {
            self.given.clear();
        }
        let given = self.given.entry(number).or_insert_with(|| Given::to(process));
        if given.words.contain(name) {
            return Some(number);
        }
        if given.list_of(name).is_some() {
            given.elsewhere = 0;
            return Some(number + given.readings * READING);
        }
        if given.wants_to_read_lists() {
            let folder = format!("/proc/{process}").into();
            match self.lookahead.lists(folder, command_line(process), generation) {
                Some(lists) => given.lists = lists,
                None => given.readings -= 1,
            }
        }
        None
    }

    /// The names behind it there.
    fn behind(&self, process: u32, number: u64, name: &[u8]) -> Vec<Name> {
        let Some(given) = self.given.get(&number) else { return Vec::new() };
        if given.words.contain(name) {
            return arguments::after(&command_line(process), name);
        }
        given.list_of(name).map(|list| arguments::after(list.as_arguments(), name)).unwrap_or_default()
    }

    fn forget_lists(&mut self, number: u64) {
        if let Some(given) = self.given.get_mut(&number) {
            given.lists = Arc::default();
        }
    }

    /// Takes in which files the program has begun to read. The cousins of which more may be asked for then.
    fn begun(&self, slot: &Slot, taken: &mut Taken) -> Vec<cousins::Id> {
        let Some(companions) = &self.companions else { return Vec::new() };
        let (files, read) = slot.agent.begun.since(taken.begun);
        taken.begun = read;
        let used = |begun::File { device, inode }| companions.used(choice::File { device, inode });
        files.into_iter().filter_map(used).collect()
    }

    /// The program in `slot` is about to end, or cannot bear that its directories are open: stops. Programs of
    /// the same run that go on will leave notes again.
    pub fn retire(&mut self, slot: &Slot, taken: &Taken) {
        self.given.remove(&taken.arguments);
        let watches = slot.agent.retire.load(Ordering::Acquire) == retire::WATCHES;
        if watches && let Some(companions) = self.companions.take() {
            self.guessed = companions.counts();
            companions.stop(STOP_LONGEST);
        }
        if slot.agent.names.written() == 0 && slot.speculator.names.written() == 0 && !watches {
            return;
        }
        if taken.names || taken.speculated {
            self.stop_names(slot);
        } else {
            slot.speculator.names_ahead.store(names_ahead::GONE, Ordering::Release);
            wake(&slot.speculator.names_ahead);
        }
        let word = &slot.speculator.companions;
        if word.load(Ordering::Relaxed) != companions::NONE
            && self.companions.as_ref().is_none_or(|companions| companions.stop(STOP_LONGEST))
        {
            word.store(companions::NONE, Ordering::Release);
            wake(word);
        }
    }

    /// A program gives a file system back: nothing of it stays open.
    pub fn let_go(&self) {
        self.lookahead.let_go();
        self.companions.iter().for_each(Companions::let_go);
    }

    fn stop_names(&self, slot: &Slot) {
        let ahead = &slot.speculator.names_ahead;
        if ahead.load(Ordering::Relaxed) != names_ahead::GONE && self.lookahead.stop(STOP_LONGEST) {
            ahead.store(names_ahead::GONE, Ordering::Release);
            wake(ahead);
        }
    }

    /// A program has ended; its slot is about to be cleared.
    pub fn part(&self, slot: &Slot) {
        self.ended[0].fetch_add(looked_up(slot), Ordering::Relaxed);
        self.ended[1].fetch_add(slot.agent.counts.listings.load(Ordering::Relaxed), Ordering::Relaxed);
        self.ended[2].fetch_add(slot.agent.counts.name_stall_ns.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Files asked for on a guess, and those of them that programs have begun to read.
    pub fn companions(&self) -> (u64, u64) {
        self.companions.as_ref().map_or(self.guessed, Companions::counts)
    }

    /// Names looked up and directories listed ahead so far.
    pub fn looked_up(&self) -> u64 {
        self.lookahead.looked_up()
    }
}

impl Given {
    fn to(process: u32) -> Given {
        let words = Words::of(&command_line(process));
        Given { words, lists: Arc::default(), readings: 0, elsewhere: 0 }
    }

    fn list_of(&self, name: &[u8]) -> Option<&List> {
        self.lists.get()?.iter().find(|list| list.contains(name))
    }

    /// A name is in none of the lists as far as they were read. True if they are to be read now.
    fn wants_to_read_lists(&mut self) -> bool {
        self.elsewhere = self.elsewhere.saturating_add(1);
        let due = ELSEWHERE << self.readings.min(READINGS_MOST);
        if self.elsewhere != due {
            return false;
        }
        if self.readings == READINGS_MOST {
            self.lists = Arc::default();
            return false;
        }
        (self.elsewhere, self.readings) = (0, self.readings + 1);
        true
    }
}

impl Taken {
    /// Whether a program that looks names up in many threads at once is better left alone, as the disk is quick on which it does.
    /// Asks the disk's counts only: nobody may wait for a file system here. Where there are none it is left as it was.
    fn needs_nobody(&mut self, device: u64) -> bool {
        let Some(done) = disks::counts(device).and_then(|counts| disks::done(&counts)) else { return false };
        if self.disk.0 != device {
            self.disk = (device, restraint::Disk::default());
        }
        let now = self.since.get_or_insert_with(Instant::now).elapsed().as_nanos() as u64;
        self.disk.1.is_quick(now, done.reads, done.read_ns)
    }
}

impl Place {
    /// Whether this note, the next one, is of another directory than the one before. (A program that goes on where it is may
    /// have left it since the name may be an argument.)
    fn is_news(&mut self, note: &Note) -> bool {
        let mark = directory_mark(note.directory, directory_of(name(note)));
        std::mem::replace(&mut self.mark, mark) != mark
    }
}

/// Notes of a ring after so many, which are then more.
fn since(ring: &Ring, taken: &mut u32) -> Vec<Note> {
    let written = ring.written();
    // Of more notes than the ring holds only the last are there.
    if written.wrapping_sub(*taken) > NOTES as u32 {
        *taken = written.wrapping_sub(NOTES as u32);
    }
    let mut notes = Vec::new();
    while *taken != written {
        notes.extend(ring.read(*taken));
        *taken = taken.wrapping_add(1);
    }
    notes
}

/// Names that a program is known to have looked up.
fn looked_up(slot: &Slot) -> u64 {
    let counted = slot.agent.counts.names.load(Ordering::Relaxed);
    counted.wrapping_add(slot.speculator.counts.names_passed.load(Ordering::Relaxed))
}

fn command_line(process: u32) -> Vec<u8> {
    let mut line = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{process}/cmdline")) {
        let _ = file.take(ARGUMENTS_MOST).read_to_end(&mut line);
    }
    line
}

/// A note's path.
fn name(note: &Note) -> &[u8] {
    note.path.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Where a note's directory is to be found from here: `name` from a descriptor of the program's.
fn path(process: u32, directory: i32, name: &[u8]) -> PathBuf {
    let name = OsStr::from_bytes(name);
    let base = PathBuf::from(format!("/proc/{process}"));
    if let Some(b'/') = name.as_bytes().first() {
        let mut whole = base.join("root").into_os_string();
        whole.push(name);
        return whole.into();
    }
    let base = if directory < 0 { base.join("cwd") } else { base.join(format!("fd/{directory}")) };
    // With a slash at the end the link itself is followed.
    base.join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_note_of_a_directory_is_no_news() {
        let ring: Box<Ring> =
            // SAFETY: zeros are the ring's start.
            unsafe { Box::new_zeroed().assume_init() };
        for (directory, path) in [(-100, "a/b"), (-100, "a/c"), (3, "a/d"), (3, "e"), (-100, "a/b")] {
            ring.write(kind::LOOKED_UP, directory, path.as_bytes(), 0);
        }
        let mut place = Place::default();
        let news: Vec<bool> = since(&ring, &mut place.notes).iter().map(|note| place.is_news(note)).collect();
        assert_eq!(news, [true, false, true, true, true]);
    }

    #[test]
    fn paths_are_the_programs() {
        assert_eq!(path(7, 3, b""), PathBuf::from("/proc/7/fd/3/"));
        assert_eq!(path(7, 3, b"a/b"), PathBuf::from("/proc/7/fd/3/a/b"));
        assert_eq!(path(7, -100, b"a"), PathBuf::from("/proc/7/cwd/a"));
        assert_eq!(path(7, 3, b"/usr/lib"), PathBuf::from("/proc/7/root/usr/lib"));
    }
}
