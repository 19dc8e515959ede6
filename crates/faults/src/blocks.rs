//! What a block of a drift costs on the disk it comes from, as it is seen the first few times.
//!
//! The watcher asks for a block in requests and goes on with its looks; at each it is seen whether the last of the requests has been
//! answered. Nobody waits, and nothing is read for it. How long one request takes, the program's own waits tell. What was learned of a
//! disk ([`Cost`]) is known to all watchers of one run: a compiler's start is over before a block was measured, but a build starts many.

use crate::mappings::{Mapping, Mappings};
use crate::sampled::Shared;
use runahead_policy::drift::Cost;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Requests of a block, the rest of it being cached, from which on its time says something.
const REQUESTS_LEAST: u32 = 6;

/// To send a request takes 20 us. Where it takes much longer, something has to be evicted first, and that is no time of the disk's. (NAS MG in a
/// full group, 1 ms disk: 8 ms for 15 requests.)
const SENDING_MOST: Duration = Duration::from_micros(100);

/// A disk that answers no sooner is busy with others.
const LONGEST: Duration = Duration::from_secs(1);

/// The time under way is measured to one part in so many.
const EXACT: u64 = 8;

/// Major and minor number.
pub type Device = (u32, u32);

/// What is known of the disks, for all watchers; and what those take together that sample.
#[derive(Default, Debug)]
pub struct BlockCosts {
    disks: Mutex<HashMap<Device, Cost>>,
    pub(crate) sampled: Shared,
}

impl BlockCosts {
    /// Waits in one block of a disk that make it a drift.
    pub fn dense(&self, device: Device) -> u32 {
        self.of(device).dense()
    }

    fn of(&self, device: Device) -> Cost {
        let costs = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        costs.get(&device).copied().unwrap_or_default()
    }

    /// A thread waited for one request, for so many ns at most.
    pub fn waited(&self, device: Device, ns: u64) {
        let mut costs = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        costs.entry(device).or_default().waited(ns);
    }

    fn measured(&self, device: Device, requests: u32, all: Duration) {
        let mut costs = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        costs.entry(device).or_default().measured(u64::from(requests), all.as_nanos() as u64);
    }
}

/// A block under way.
pub struct Probe {
    device: Device,
    mapping: Mapping,
    begun: Instant,
    /// Requests so far, and the last page of the latest that had not been answered when it was sent.
    requests: u32,
    last: Option<u64>,
}

impl Probe {
    /// Begins, unless enough is known of the disk.
    pub fn begin(costs: &BlockCosts, device: Device, mapping: Mapping) -> Option<Probe> {
        (!costs.of(device).is_known()).then(|| Probe {
            device,
            mapping,
            begun: Instant::now(),
            requests: 0,
            last: None,
        })
    }

    /// A request was sent, for what is below this address.
    pub fn sent(&mut self, end: u64, mappings: &mut Mappings) {
        self.requests += 1;
        if mappings.is_missing(self.mapping, end - 1) == Some(true) {
            self.last = Some(end - 1);
        }
    }

    /// The last request was sent. None if there were too few, it took too long, or all are answered.
    pub fn all_sent(self) -> Option<Probe> {
        let in_time = self.begun.elapsed() <= SENDING_MOST * self.requests;
        (self.requests >= REQUESTS_LEAST && in_time && self.last.is_some()).then_some(self)
    }

    /// How long to sleep at most until the next look.
    pub fn next_look(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64 / EXACT
    }

    /// Looks, and says what it has cost if it is all there. True: it is over.
    pub fn look(&mut self, costs: &BlockCosts, mappings: &mut Mappings) -> bool {
        let took = self.begun.elapsed();
        match self.last.and_then(|last| mappings.is_missing(self.mapping, last)) {
            Some(true) => took > LONGEST,
            Some(false) => {
                costs.measured(self.device, self.requests, took);
                true
            }
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_of_a_disk_is_of_that_disk() {
        let costs = BlockCosts::default();
        let usual = costs.dense((1, 1));
        for _ in 0..3 {
            costs.waited((1, 1), 130_000);
            costs.measured((1, 1), 16, Duration::from_micros(2000));
        }
        assert!(costs.dense((1, 1)) > usual);
        assert_eq!(costs.dense((1, 2)), usual);
    }
}
