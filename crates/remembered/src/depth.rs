//! How much is asked of the disks at a time: so little that a look-up in between takes no longer than
//! [`LONGEST`].
//!
//! Whoever ends, or unmounts, waits for what is just being opened, and a thread that has asked for more than
//! the disk's queue holds waits until that has room. A disk with one arm serves a hundred requests a second,
//! one of a network ten thousand: so the depth is found out by how long names take.

use std::collections::HashMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A look-up that took longer had too much before it.
const LONGEST: Duration = Duration::from_millis(25);
/// One that took less may have more beside it.
const SHORT: Duration = Duration::from_millis(8);

const INITIAL: u32 = 2;
const MIN: u32 = 1;
const MAX: u32 = 32;
/// As long as all that was looked up was cached, no disk is known to be quick.
const MODEST: u32 = 8;

/// Requests in flight at a device, for each name that is looked up at a time.
const FOR_EACH: u64 = 2;

#[derive(Debug)]
pub struct Depth {
    /// Names that may be looked up at a time, and those that are.
    limit: AtomicU32,
    now: AtomicU32,
    /// Where a device's requests in flight are told; none: nobody tells.
    places: Mutex<HashMap<u64, Option<String>>>,
}

impl Default for Depth {
    fn default() -> Depth {
        Depth { limit: AtomicU32::new(INITIAL), now: AtomicU32::new(0), places: Mutex::default() }
    }
}

impl Depth {
    /// One more name is looked up; false: not now.
    pub fn begins(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let more = |now: u32| (now < limit).then_some(now + 1);
        self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// It is not looked up after all.
    pub fn is_left(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }

    /// `has_waited`: it was not cached.
    pub fn ends(&self, took: Duration, has_waited: bool) {
        self.now.fetch_sub(1, Ordering::Relaxed);
        self.learns(took, has_waited);
    }

    fn learns(&self, took: Duration, has_waited: bool) {
        let next = |limit: u32| match took {
            _ if !has_waited => Some((limit + 1).min(MODEST.max(limit))),
            took if took >= LONGEST => Some((limit / 2).max(MIN)),
            took if took >= SHORT => None,
            _ => Some((limit + 1).min(MAX)),
        };
        let _ = self.limit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Whether a disk has so much to do that nothing more is to be asked of it now.
    pub fn is_reached(&self, device: u64) -> bool {
        let Some(place) = self.place(device) else { return false };
        let told = fs::read_to_string(place).unwrap_or_default();
        in_flight(&told) >= FOR_EACH * u64::from(self.limit.load(Ordering::Relaxed))
    }

    /// Whether it is told how much this device has to do. (Of btrfs or an overlay nobody tells which disks are
    /// behind it.)
    pub fn is_told(&self, device: u64) -> bool {
        self.place(device).is_some()
    }

    /// Whether none of the disks that were looked at has anything to do.
    pub fn is_idle(&self) -> bool {
        let Ok(places) = self.places.lock() else { return true };
        let told = |place: &String| fs::read_to_string(place).unwrap_or_default();
        places.values().flatten().all(|place| in_flight(&told(place)) == 0)
    }

    fn place(&self, device: u64) -> Option<String> {
        let mut places = self.places.lock().ok()?;
        let find = || {
            let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
            let place = format!("/sys/dev/block/{major}:{minor}/inflight");
            fs::metadata(&place).is_ok().then_some(place)
        };
        places.entry(device).or_insert_with(find).clone()
    }
}

/// Reads and writes.
fn in_flight(told: &str) -> u64 {
    told.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_disk_gets_little_and_a_quick_one_much() {
        let depth = Depth::default();
        let held = || (0..2 * MAX).take_while(|_| depth.begins()).count() as u32;
        assert_eq!(held(), INITIAL);
        (0..INITIAL).for_each(|_| depth.ends(Duration::from_millis(100), true));
        assert_eq!(held(), MIN);
        (0..MIN).for_each(|_| depth.ends(Duration::from_millis(10), true));
        (0..MAX).for_each(|_| depth.learns(Duration::ZERO, false));
        assert_eq!(held(), MODEST, "what is cached tells nothing");
        (0..MODEST).for_each(|_| depth.is_left());
        (0..MAX).for_each(|_| depth.learns(Duration::from_millis(1), true));
        assert_eq!(held(), MAX);
        assert_eq!(in_flight("       3       12\n"), 15);
        assert!(!depth.is_reached(0) && !depth.is_told(0), "nobody tells");
    }
}
