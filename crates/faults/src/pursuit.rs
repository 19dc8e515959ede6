//! Speculation from a fault: when it is restarted, and how far the program has followed it.

use crate::PAGE;
use crate::mappings::Mappings;
use crate::memory::Memory;
use crate::record::Fault;
use crate::waits::Waits;
use runahead_policy::touches::{self, Seen, Then, Touches};
use std::collections::{HashMap, HashSet};
use std::io;
use std::time::Instant;

/// Entries of the log that are remembered; what is farther back is found in memory.
const REMEMBERED: usize = 1 << 16;

/// How long a thread is looked at before it is said that it hardly waits, ns: thirty waits of a quick disk; half of that
/// before speculation would begin, as it costs more than being watched.
const SPAN: u64 = 4_000_000;
const LEAST_SPAN: u64 = SPAN / 2;
/// One alone may be of a moment. (Of spans of 2 ms of a thread that waits for two fifths one in six said that it hardly does.)
const SPANS: u32 = 2;

/// A page that speculation has touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    pub address: u64,
    /// It was not in memory, and has been asked for.
    pub fetched: bool,
    /// It is on swap, and ours to be brought in.
    pub on_swap: bool,
}

/// What was seen of faults at a look, and done.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct CameTo {
    pub faults: u64,
    /// Pages that were asked for.
    pub asked: u64,
    /// Waits that these have spared the program: a page that was asked for and is reached counts as one, the first of many that were
    /// asked for together as two.
    pub useful: u64,
    /// Pages that had been asked for and that the program has come to.
    pub used: u64,
}

/// How a process's faults are seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeenBy {
    /// By records of each.
    Events,
    /// By what is present afterwards.
    Pagemap,
}

/// What the watcher is connected to: counts, and the speculator. Called from the watching thread.
pub trait Link: Send {
    /// The kernel does not let us see the process's faults by perf events, nor which of its pages are
    /// present, and why. Nothing else follows.
    fn refused(&self, events: &io::Error, pagemap: &io::Error);
    /// How its faults are seen.
    fn seen_by(&self, way: SeenBy);
    /// Watching is about to begin. False if the process is not any more what it was.
    fn arms(&self) -> bool;
    /// Whether nothing may be asked for at present, as memory is short.
    fn is_paused(&self) -> bool;
    /// Pages on swap that may be brought in ahead of the process; 0: none, as swap is all but full.
    fn room(&mut self) -> u32;
    /// Bytes of mapped files that may be brought in ahead of the process in blocks.
    fn file_room(&mut self) -> u64;
    /// What is on swap cannot be brought in, and why.
    fn swap_refused(&self, error: &io::Error);
    /// Tells speculation that so many pages may be ahead, which may be none; None: nothing is on swap.
    fn swapping(&self, room: Option<u32>);
    /// What a look came to.
    fn looked(&self, came_to: CameTo);
    /// The thread that speculation is for.
    fn followed(&self) -> i32;
    /// Speculation is for this thread from now on, if that can be: it restarts at one of its faults.
    fn follow(&mut self, thread: i32);
    /// Whether the latest post was of a fault of this thread.
    fn is_posted(&self, thread: i32) -> bool;
    /// Whether speculation could be restarted from this fault: it is the thread's that speculation is for, and its registers are known.
    fn takes(&self, thread: i32, fault: &Fault) -> bool;
    /// Restarts speculation from a thread's fault, to be so many missing pages ahead at most. False where there is none for this thread.
    fn post(&mut self, thread: i32, fault: &Fault, ahead: u32) -> bool;
    /// Restarts speculation where the program has left its latest snapshot of itself, to be so many missing
    /// pages ahead at most. False: there is none.
    fn post_snapshot(&mut self, ahead: u32) -> bool;
    /// Whether reads were foretold lately. What is foretold of them would be ended by a post. To be asked in
    /// each look.
    fn are_reads_foretold(&mut self) -> bool;
    /// Asks the program for a snapshot at its next read or mapping, unless it was asked and has not left one.
    fn want_snapshot(&mut self);
    /// Processor time that speculation has taken so far, ns, but for its views of mapped files: these last. (Those of
    /// 1 GB take 40 ms, nearly all that may be spent before a page is of use.)
    fn spent(&self) -> u64;
    /// Whether speculation runs from the latest post.
    fn has_begun(&self) -> bool;
    /// Whether speculation from the latest post has ended since it had copied as much as it may.
    fn is_full(&self) -> bool;
    /// Ends speculation from the latest post: nobody will read what it writes.
    fn cancel(&self);
    /// Sees to it that the latest post is not overlooked.
    fn nudge(&self);
    /// What speculation touched at a position of its log.
    fn touch(&self, position: u32) -> Option<Touch>;
    /// The program has passed so many positions; so many of those since the last time had been asked for. So
    /// many missing pages may be asked for ahead of it.
    fn passed(&self, positions: u32, fetched: u32, ahead: u32);
    /// Whether speculation has run into a scan since the latest post.
    fn met_scan(&self) -> bool;
}

/// How a fault stands: it is the last recorded one, in which the thread may be waiting (where one in several is recorded, it may
/// wait in one that nobody sees); the program is in the midst of scans, so that a
/// wait is no reason to restart speculation. (Three scans at once restarted it 60 to 160 times, which copied up to 400 MB.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    pub latest: bool,
    pub scans: bool,
}

/// What a fault was: the thread waits in it for a page that was not foretold; the page had been foretold (the program
/// follows speculation), and asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    pub waits: bool,
    pub follows: bool,
    pub useful: bool,
}

/// A page's place in the log, in the log since which restart, and whether it was asked for.
#[derive(Clone, Copy)]
struct Entry {
    position: u32,
    restart: u32,
    fetched: bool,
}

#[derive(Default)]
pub struct Pursuit {
    touches: Touches,
    /// Pages of the log.
    log: HashMap<u64, Entry>,
    written: u32,
    restarts: u32,
    scan_seen: bool,
    /// When it was restarted last.
    restarted: Option<Instant>,
    /// Pages that the program has faulted on since the latest restart and that were not in the log then.
    ahead_of_log: HashSet<u64>,
    /// Since watching began, or this was last looked at.
    waits: Option<Waits>,
    /// The latest spans, one after the other, in which it hardly waited.
    little: u32,
}

impl Pursuit {
    /// Pages that the program may pass without speculation noticing that it was not told: an eighth of what it may be ahead.
    pub fn slack(&self) -> u32 {
        self.touches.ahead() / 8
    }

    /// Watching begins; `waits`: from now on, where that is counted.
    pub fn begin(&mut self, waits: Option<Waits>) {
        (self.waits, self.little) = (waits, 0);
    }

    /// Whether the thread has waited for so little lately, since watching began, that nothing can be gained.
    pub fn waits_little(&mut self) -> bool {
        if let Some((whole, waited)) = self.waits.as_mut().and_then(|waits| waits.take(SPAN)) {
            self.little = if touches::is_little(whole, waited) { self.little + 1 } else { 0 };
        }
        self.little >= SPANS
    }

    /// A fault of the thread was foreseen without speculation.
    pub fn served(&mut self) {
        self.touches.served();
    }

    /// Whether one of the next faults may be where speculation is to begin, for which its registers are needed.
    pub fn may_restart(&self, link: &dyn Link) -> bool {
        // One that has copied all that it may begins anew before its log is used up, at any fault.
        link.is_full() || self.touches.may_restart()
    }

    /// Takes in what speculation has written since the last time, and has brought in what of it is on swap. Not
    /// of another thread's.
    pub fn read_log(&mut self, link: &dyn Link, memory: &mut Memory, thread: i32) {
        if !link.is_posted(thread) {
            return;
        }
        let before = self.touches.passed();
        while let Some(touch) = link.touch(self.written) {
            if self.log.len() >= REMEMBERED {
                self.log.clear();
            }
            let (page, position) = (touch.address / PAGE, self.written);
            // A page that speculation has dropped meanwhile comes twice; the program reaches the first place first.
            let restart = self.restarts;
            let ahead = |entry: &Entry| entry.restart == restart && entry.position >= before;
            if !self.log.get(&page).is_some_and(ahead) {
                self.log.insert(page, Entry { position, restart, fetched: touch.fetched });
            }
            self.written += 1;
            if touch.on_swap && !self.ahead_of_log.contains(&page) {
                memory.bring_page(touch.address);
            }
            // The program was there first: speculation follows it and is not off track. (Taken for that, each
            // restart of a late speculation made it later still.)
            if self.ahead_of_log.remove(&page) {
                self.touches.fault(Seen::Foretold { position, fetched: false }, Some(self.written));
            }
        }
        memory.no_more_pages();
        if self.touches.passed() > before {
            link.passed(self.touches.passed(), 0, self.touches.ahead());
        }
        // Last: who says how far the program has come says also that speculation may go on.
        if self.touches.is_dear(link.spent()) {
            link.cancel();
        }
        if !self.scan_seen && link.met_scan() {
            self.scan_seen = true;
            self.touches.met_scan();
        }
    }

    /// A fault of the thread.
    pub fn fault(
        &mut self,
        link: &mut dyn Link,
        (mappings, memory): (&mut Mappings, &mut Memory),
        thread: i32,
        fault: &Fault,
        Standing { latest, scans }: Standing,
    ) -> Found {
        let page = fault.address / PAGE;
        let entry = self.log.get(&page).copied();
        // Positions before the latest restart say nothing of how far the program is now. (Taken for that they let
        // speculation, which is behind after a restart, run on unread, and watching it end.)
        // Nor do those of a run that was ended, of which what was fetched is still reached.
        // Nor those of a run that another thread's has ended.
        let is_on = link.is_posted(thread) && self.touches.is_on();
        let current = entry.filter(|entry| entry.restart == self.restarts && is_on);
        if current.is_none() && self.ahead_of_log.len() < REMEMBERED {
            self.ahead_of_log.insert(page);
        }
        let seen = match current {
            Some(Entry { position, fetched, .. }) => Seen::Foretold { position, fetched },
            None if !latest => Seen::Cached,
            None => match mappings.at(fault.address).map(|map| mappings.is_missing(map, fault.address)) {
                Some(Some(true)) => Seen::Missing,
                None if memory.is_waited_for(fault.address) => Seen::Missing,
                _ => Seen::Cached,
            },
        };
        let mut found = Found { waits: seen == Seen::Missing, follows: false, useful: false };
        if let (Seen::Cached, Some(earlier)) = (seen, entry) {
            (found.follows, found.useful) = (true, earlier.fetched);
            self.log.remove(&page);
        }
        let age = self.restarted.map_or(u64::MAX, |at| at.elapsed().as_nanos() as u64);
        let let_be = scans || self.touches.is_young(age);
        let seen = if let_be && seen == Seen::Missing { Seen::Cached } else { seen };
        let mut then = self.touches.fault(seen, link.has_begun().then_some(self.written));
        if then == Then::Passed && latest && link.is_full() {
            then = self.touches.passed_of(self.written);
        }
        match then {
            Then::Nothing => {}
            Then::Passed => {
                let fetched = matches!(seen, Seen::Foretold { fetched: true, .. });
                link.passed(self.touches.passed(), u32::from(fetched), self.touches.ahead());
                (found.follows, found.useful) = (true, fetched);
            }
            Then::Post => {
                let (was_on, takes) = (self.touches.is_on(), link.takes(thread, fault));
                let span = self.waits.as_ref().filter(|_| takes).and_then(|waits| waits.look(LEAST_SPAN));
                if span.is_some_and(|(whole, waited)| self.touches.waits_little(whole, waited)) {
                    if was_on {
                        link.cancel();
                    }
                } else if takes && link.post(thread, fault, self.touches.ahead()) {
                    memory.forget();
                    self.restarted = Some(Instant::now());
                    self.touches.posted(link.spent());
                    self.written = 0;
                    self.restarts = self.restarts.wrapping_add(1);
                    self.ahead_of_log.clear();
                    // The page at which speculation begins is the first that it touches.
                    self.ahead_of_log.insert(page);
                    self.scan_seen = false;
                }
            }
        }
        found
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// A speculator that writes what it is told to.
    pub(crate) struct Made {
        pub log: Vec<Touch>,
        pub posts: u32,
        full: bool,
        pub has_snapshot: bool,
        pub wanted: u32,
        /// The latest post was taken.
        pub begun: bool,
        pub reads: bool,
        pub passed: std::cell::Cell<u32>,
        ahead: std::cell::Cell<u32>,
        pub spent: u64,
        pub cancelled: std::cell::Cell<bool>,
        refusals: Option<std::sync::mpsc::Sender<Option<i32>>>,
    }

    impl Default for Made {
        fn default() -> Made {
            Made {
                log: Vec::new(),
                posts: 0,
                full: false,
                has_snapshot: false,
                wanted: 0,
                begun: true,
                reads: false,
                passed: 0.into(),
                ahead: 0.into(),
                spent: 0,
                cancelled: false.into(),
                refusals: None,
            }
        }
    }

    impl Made {
        /// One that says over a channel why nothing can be watched.
        pub(crate) fn telling(refusals: std::sync::mpsc::Sender<Option<i32>>) -> Made {
            Made { refusals: Some(refusals), ..Made::default() }
        }
    }

    impl Link for Made {
        fn refused(&self, events: &io::Error, _: &io::Error) {
            let _ = self.refusals.as_ref().map(|refusals| refusals.send(events.raw_os_error()));
        }
        fn seen_by(&self, _: SeenBy) {}
        fn arms(&self) -> bool {
            true
        }
        fn is_paused(&self) -> bool {
            false
        }
        fn room(&mut self) -> u32 {
            0
        }
        fn file_room(&mut self) -> u64 {
            0
        }
        fn swap_refused(&self, _: &io::Error) {}
        fn swapping(&self, _: Option<u32>) {}
        fn looked(&self, _: CameTo) {}
        fn followed(&self) -> i32 {
            1
        }
        fn follow(&mut self, _: i32) {}
        fn is_posted(&self, thread: i32) -> bool {
            thread == 1
        }
        fn takes(&self, _: i32, _: &Fault) -> bool {
            true
        }
        fn post(&mut self, _: i32, _: &Fault, _: u32) -> bool {
            self.posts += 1;
            self.log.clear();
            true
        }
        fn are_reads_foretold(&mut self) -> bool {
            self.reads
        }
        fn want_snapshot(&mut self) {
            self.wanted += 1;
        }
        fn post_snapshot(&mut self, _: u32) -> bool {
            self.posts += 1;
            self.log.clear();
            self.has_snapshot
        }
        fn spent(&self) -> u64 {
            self.spent
        }
        fn has_begun(&self) -> bool {
            self.begun
        }
        fn is_full(&self) -> bool {
            self.full
        }
        fn cancel(&self) {
            self.cancelled.set(true);
            self.ahead.set(0);
        }
        fn nudge(&self) {}
        fn touch(&self, position: u32) -> Option<Touch> {
            self.log.get(position as usize).copied()
        }
        fn passed(&self, positions: u32, _: u32, ahead: u32) {
            self.passed.set(positions);
            self.ahead.set(ahead);
        }
        fn met_scan(&self) -> bool {
            false
        }
    }

    /// The program faults on page `at`. There is no mapping, so a page that is not in the log counts as one in memory.
    fn fault(pursuit: &mut Pursuit, made: &mut Made, at: u64) -> bool {
        let fault = Fault { instruction: 1, time: 0, address: at * PAGE, registers: None };
        let mut memory = Memory::new(0);
        pursuit.read_log(made, &mut memory, 1);
        let memories = (&mut Mappings::new(0), &mut memory);
        pursuit.fault(made, memories, 1, &fault, Standing { latest: true, scans: false }).useful
    }

    fn touch(at: u64) -> Touch {
        Touch { address: at * PAGE, fetched: true, on_swap: false }
    }

    fn on_track() -> Pursuit {
        let mut pursuit = Pursuit::default();
        pursuit.touches.posted(0);
        pursuit
    }

    #[test]
    fn pages_of_the_log_are_found_wherever_they_stand() {
        let (mut pursuit, mut made) = (on_track(), Made::default());
        made.log = (0..100).map(touch).collect();
        assert!(fault(&mut pursuit, &mut made, 0));
        assert!(fault(&mut pursuit, &mut made, 50));
        assert_eq!(made.passed.get(), 51);
        assert!(!fault(&mut pursuit, &mut made, 20), "passed already");
        assert!(!fault(&mut pursuit, &mut made, 500), "not foretold");
    }

    #[test]
    fn a_full_speculation_is_begun_anew_before_its_log_is_used_up() {
        let (mut pursuit, mut made) = (on_track(), Made::default());
        made.log = (0..1000).map(touch).collect();
        (0..990).for_each(|at| assert!(fault(&mut pursuit, &mut made, at)));
        assert_eq!(made.posts, 0, "it goes on");
        let (mut pursuit, mut made) = (on_track(), Made { full: true, ..Made::default() });
        made.log = (0..1000).map(touch).collect();
        let before = (0..990).position(|at| {
            fault(&mut pursuit, &mut made, at);
            made.posts > 0
        });
        assert!(before.is_some_and(|before| (900..960).contains(&before)), "{before:?}");
    }

    #[test]
    fn a_page_that_comes_twice_is_reached_at_its_first_place() {
        let (mut pursuit, mut made) = (on_track(), Made::default());
        made.log = (0..100).chain(10..20).map(touch).collect();
        assert!(fault(&mut pursuit, &mut made, 10));
        assert_eq!(made.passed.get(), 11);
        made.log.extend((0..5).map(touch));
        assert!(fault(&mut pursuit, &mut made, 3), "a second time, after the first was passed");
        assert_eq!(made.passed.get(), 114);
    }

    #[test]
    fn what_was_foretold_before_a_restart_is_useful_and_says_nothing_of_the_position() {
        let (mut pursuit, mut made) = (on_track(), Made::default());
        made.log = (0..100).map(touch).collect();
        pursuit.read_log(&made, &mut Memory::new(0), 1);
        (pursuit.written, pursuit.restarts) = (0, 1);
        made.log.clear();
        assert!(fault(&mut pursuit, &mut made, 50));
        assert!(!fault(&mut pursuit, &mut made, 50), "a second time");
        assert_eq!((pursuit.touches.passed(), made.passed.get()), (0, 0));
        made.log = (40..60).map(touch).collect();
        pursuit.read_log(&made, &mut Memory::new(0), 1);
        assert_eq!(made.passed.get(), 11, "the program was there first");
    }

    #[test]
    fn speculation_that_is_not_worth_its_processor_time_is_ended() {
        let (mut pursuit, mut made) = (on_track(), Made::default());
        fault(&mut pursuit, &mut made, 0);
        assert!(!made.cancelled.get());
        made.spent = 1_000_000_000;
        fault(&mut pursuit, &mut made, 1);
        assert!(made.cancelled.get());
    }

    #[test]
    fn what_is_ended_stays_ended_where_the_program_has_come_farther_in_the_same_look() {
        let (mut pursuit, mut made) = (on_track(), Made::default());
        (0..5).for_each(|at| assert!(!fault(&mut pursuit, &mut made, at)));
        (made.log, made.spent) = ((0..3).map(touch).collect(), 1_000_000_000);
        pursuit.read_log(&made, &mut Memory::new(0), 1);
        assert_eq!((made.passed.get(), made.cancelled.get(), made.ahead.get()), (3, true, 0));
    }

    #[test]
    fn what_an_ended_speculation_has_fetched_is_useful_once_and_does_not_set_it_going() {
        let (mut pursuit, mut made) = (on_track(), Made::default());
        made.log = (0..100).map(touch).collect();
        assert!(fault(&mut pursuit, &mut made, 0));
        made.spent = 1_000_000_000;
        assert!(fault(&mut pursuit, &mut made, 50));
        assert!(made.cancelled.get());
        assert!(!fault(&mut pursuit, &mut made, 50), "a second time");
        assert_eq!((made.passed.get(), made.ahead.get()), (1, 0));
    }

    #[test]
    fn a_log_that_comes_late_counts_as_passed() {
        let (mut pursuit, mut made) = (on_track(), Made::default());
        (0..5).for_each(|at| assert!(!fault(&mut pursuit, &mut made, at)));
        made.log = (0..3).map(touch).collect();
        pursuit.read_log(&made, &mut Memory::new(0), 1);
        assert_eq!(made.passed.get(), 3);
        // What it has touched, the program had passed: it is late, and not off track.
        assert_eq!(pursuit.touches.fault(Seen::Missing, Some(3)), Then::Nothing);
        assert_eq!(made.posts, 0);
    }

    /// A mapped file of which nothing is in memory.
    struct Cold {
        _folder: tempfile::TempDir,
        map: memmap2::Mmap,
        mappings: Mappings,
    }

    /// Pages from one that is looked at to the next, so that the kernel does not read it meanwhile; holes lie between.
    const APART: u64 = 512;
    const PLACES: u64 = 32;

    impl Cold {
        fn new() -> Cold {
            let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
            let file = std::fs::File::create_new(folder.path().join("cold")).unwrap();
            (1..=PLACES).for_each(|place| {
                file.write_all_at(&[7; PAGE as usize], place * APART * PAGE).unwrap();
            });
            file.sync_all().unwrap();
            let file = std::fs::File::open(folder.path().join("cold")).unwrap();
            // SAFETY: nobody cuts the file short.
            let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            let mut mappings = Mappings::new(std::process::id());
            mappings.refresh().unwrap();
            Cold { _folder: folder, map, mappings }
        }

        /// The program faults on such a page, one after the other.
        fn fault(&mut self, pursuit: &mut Pursuit, made: &mut Made, place: u64, scans: bool) -> Found {
            let address = self.map.as_ptr() as u64 + (1 + place) * APART * PAGE;
            let fault = Fault { instruction: 1, time: 0, address, registers: None };
            let mut memory = Memory::new(0);
            pursuit.read_log(made, &mut memory, 1);
            let memories = (&mut self.mappings, &mut memory);
            pursuit.fault(made, memories, 1, &fault, Standing { latest: true, scans })
        }
    }

    #[test]
    fn waits_restart_speculation_and_amid_scans_they_do_not() {
        let posts = |scans| {
            let (mut cold, mut pursuit, mut made) = (Cold::new(), Pursuit::default(), Made::default());
            for number in 0..PLACES {
                assert!(cold.fault(&mut pursuit, &mut made, number, scans).waits, "{number}");
            }
            made.posts
        };
        assert!(posts(false) > 0);
        assert_eq!(posts(true), 0);
    }

    #[test]
    fn what_was_foretold_and_is_gone_again_was_of_no_use() {
        for scans in [false, true] {
            let (mut cold, mut pursuit, mut made) = (Cold::new(), on_track(), Made::default());
            made.log = vec![touch(cold.map.as_ptr() as u64 / PAGE + APART)];
            pursuit.read_log(&made, &mut Memory::new(0), 1);
            (pursuit.written, pursuit.restarts) = (0, 1);
            made.log.clear();
            assert!(!cold.fault(&mut pursuit, &mut made, 0, scans).useful, "{scans}");
        }
    }
}
