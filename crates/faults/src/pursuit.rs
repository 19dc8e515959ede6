//! Speculation from a fault: when it is restarted, and how far the program has followed it.

use crate::mappings::Mappings;
use crate::record::Fault;
use runahead_policy::touches::{Seen, Then, Touches};
use std::collections::HashMap;

/// Entries of the log that are remembered; what is farther back is found in memory.
const REMEMBERED: usize = 1 << 16;

const PAGE: u64 = 4096;

/// A page that speculation has touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    pub address: u64,
    /// It was not in memory, and has been asked for.
    pub fetched: bool,
}

/// What the watcher is connected to: counts, and the speculator. Called from the watching thread.
pub trait Link: Send {
    /// Watching is about to begin. False if the process is not any more what it was.
    fn arms(&self) -> bool;
    /// Faults looked at, pages asked for, and such pages reached by the program.
    fn looked(&self, faults: u64, asked: u64, useful: u64);
    /// Restarts speculation from a thread's fault, to be so many missing pages ahead at most. False where there is none for this thread.
    fn post(&mut self, thread: i32, fault: &Fault, ahead: u32) -> bool;
    /// Whether speculation runs from the latest post.
    fn has_begun(&self) -> bool;
    /// Sees to it that the latest post is not overlooked.
    fn nudge(&self);
    /// What speculation touched at a position of its log.
    fn touch(&self, position: u32) -> Option<Touch>;
    /// The program has passed so many positions; the latest of them one that had been asked for, or not. So many
    /// missing pages may be asked for ahead of it.
    fn passed(&self, positions: u32, fetched: bool, ahead: u32);
    /// Whether speculation has run into a scan since the latest post.
    fn met_scan(&self) -> bool;
}

#[derive(Default)]
pub struct Pursuit {
    touches: Touches,
    /// Pages of the log, each with its position.
    log: HashMap<u64, (u32, bool)>,
    written: u32,
    scan_seen: bool,
}

impl Pursuit {
    /// Takes in what speculation has written since the last time.
    pub fn read_log(&mut self, link: &dyn Link) {
        while let Some(touch) = link.touch(self.written) {
            if self.log.len() >= REMEMBERED {
                self.log.clear();
            }
            self.log.insert(touch.address / PAGE, (self.written, touch.fetched));
            self.written += 1;
        }
        if !self.scan_seen && link.met_scan() {
            self.scan_seen = true;
            self.touches.met_scan();
        }
    }

    /// A fault of the thread; `latest`: it is the last one, in which the thread may be waiting. Returns whether
    /// the page had been foretold and asked for.
    pub fn fault(
        &mut self,
        link: &mut dyn Link,
        mappings: &mut Mappings,
        thread: i32,
        fault: &Fault,
        latest: bool,
    ) -> bool {
        let seen = match self.log.get(&(fault.address / PAGE)) {
            Some(&(position, fetched)) => Seen::Foretold { position, fetched },
            None if !latest => Seen::Cached,
            None => match mappings.at(fault.address).map(|map| mappings.is_missing(map, fault.address)) {
                Some(Some(true)) => Seen::Missing,
                _ => Seen::Cached,
            },
        };
        match self.touches.fault(seen, link.has_begun().then_some(self.written)) {
            Then::Nothing => false,
            Then::Passed => {
                let fetched = matches!(seen, Seen::Foretold { fetched: true, .. });
                link.passed(self.touches.passed(), fetched, self.touches.ahead());
                fetched
            }
            Then::Post => {
                if link.post(thread, fault, self.touches.ahead()) {
                    self.touches.posted();
                    self.written = 0;
                    self.scan_seen = false;
                }
                false
            }
        }
    }
}
