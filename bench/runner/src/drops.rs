//! Did somebody else empty the machine's caches meanwhile?
//!
//! A run that began cold, warm or with a share of its data cached is not what it claims to be once another program has
//! dropped the caches in its course: what speculation had brought in is gone, and the program waits for it once more.
//! The kernel counts how often each kind was dropped, whoever asked. So a [`Watch`] is opened before the run is
//! prepared, is told of each drop of our own, and says at the end whether there were others. Such a run is *spoilt*: it
//! is thrown away and made again ([`undisturbed`]).
//!
//! Only dropping is seen. Memory that others take from the page cache shows in the device's counts, and on machines as
//! small as ours in the times.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;

/// How often a run is made again before it is kept as it is, with a mark: who drops caches again and again will not
/// stop for us, and other workloads still want to be measured.
pub const AGAIN: usize = 3;

/// Nor for longer than this: some programs take a quarter of an hour on the papers' disks.
const WITHIN: Duration = Duration::from_secs(600);

/// As the kernel has counted since its start; of kernels that do not, nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    pages: i64,
    names: i64,
}

impl Counts {
    fn now() -> Counts {
        Counts::parse(&fs::read_to_string("/proc/vmstat").unwrap_or_default())
    }

    fn parse(text: &str) -> Counts {
        let number = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
        Counts { pages: number("drop_pagecache ").unwrap_or(0), names: number("drop_slab ").unwrap_or(0) }
    }
}

/// What a drop takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    Names,
    All,
}

/// Open from before a run's preparation to after its end.
#[derive(Debug)]
pub struct Watch {
    expected: Counts,
}

impl Watch {
    pub fn begin() -> Watch {
        Watch { expected: Counts::now() }
    }

    /// What `wait` brings, and the watch from then on: who holds the lock that we wait for drops caches lawfully, and
    /// nothing of ours is prepared yet.
    pub fn after<T>(&mut self, wait: impl FnOnce() -> Result<T>) -> Result<T> {
        let waited_for = wait()?;
        *self = Watch::begin();
        Ok(waited_for)
    }

    /// To be told after each drop of our own.
    pub fn dropped(&mut self, what: What) {
        self.expected.names += 1;
        self.expected.pages += i64::from(what == What::All);
    }

    /// How often others have dropped something so far.
    pub fn others(&self) -> u64 {
        self.beyond(Counts::now())
    }

    /// A drop of everything counts once.
    fn beyond(&self, now: Counts) -> u64 {
        let more = (now.pages - self.expected.pages).max(now.names - self.expected.names);
        more.max(0) as u64
    }
}

/// What `attempt` makes while nobody else drops caches, and how often others did in the last attempt: 0, unless none
/// of [`AGAIN`] more came through. `told` hears of each that is thrown away.
pub fn undisturbed<T>(
    mut attempt: impl FnMut(&mut Watch) -> Result<T>,
    mut told: impl FnMut(u64),
) -> Result<(T, u64)> {
    let mut left = AGAIN;
    let began = Instant::now();
    loop {
        let mut watch = Watch::begin();
        // One that failed failed perhaps for that reason.
        let made = attempt(&mut watch);
        let others = watch.others();
        if others == 0 || left == 0 || began.elapsed() > WITHIN {
            return Ok((made?, others));
        }
        told(others);
        left -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What others do on the machine must not fail this test: drops are pretended by not counting on them.
    fn pretended(watch: &mut Watch, drops: i64) {
        watch.expected = Counts { pages: watch.expected.pages - drops, names: watch.expected.names - drops };
    }

    fn watch_of_many() -> Watch {
        Watch { expected: Counts { pages: 100, names: 200 } }
    }

    #[test]
    fn the_kernels_counts_are_read() {
        let text = "nr_free_pages 7\ndrop_pagecache 12\ndrop_slab 34\ndrop_slabs 9\n";
        assert_eq!(Counts::parse(text), Counts { pages: 12, names: 34 });
        assert_eq!(Counts::parse("nr_free_pages 7\n"), Counts::default());
        let kernel = fs::read_to_string("/proc/vmstat").unwrap();
        assert!(kernel.contains("\ndrop_pagecache ") && kernel.contains("\ndrop_slab "));
    }

    #[test]
    fn our_own_drops_are_expected_and_others_are_counted() {
        let mut watch = watch_of_many();
        watch.dropped(What::All);
        watch.dropped(What::Names);
        assert_eq!(watch.beyond(Counts { pages: 101, names: 202 }), 0);
        assert_eq!(watch.beyond(Counts { pages: 102, names: 203 }), 1, "everything, once");
        assert_eq!(watch.beyond(Counts { pages: 102, names: 202 }), 1, "pages only");
        assert_eq!(watch.beyond(Counts { pages: 101, names: 204 }), 2, "names only, twice");
    }

    #[test]
    fn what_others_dropped_while_we_waited_for_the_lock_is_theirs_to_drop() {
        let mut watch = Watch::begin();
        pretended(&mut watch, 1000);
        assert!(watch.others() >= 1000);
        assert_eq!(watch.after(|| Ok("held")).unwrap(), "held");
        assert!(watch.others() < 1000, "{}", watch.others());
        pretended(&mut watch, 1000);
        assert!(watch.others() >= 1000, "and what they drop from then on is seen");
    }

    #[test]
    fn what_was_spoilt_is_made_again_a_few_times() {
        let attempts = |spoilt: usize| {
            let (mut made, mut told) = (0, Vec::new());
            let outcome = undisturbed(
                |watch| {
                    made += 1;
                    pretended(watch, i64::from(made <= spoilt) * 1000);
                    Ok(made)
                },
                |others| told.push(others),
            );
            (outcome.unwrap(), told.len())
        };
        let (kept, told) = attempts(2);
        assert_eq!((kept.0, told), (3, 2));
        let (kept, told) = attempts(usize::MAX);
        assert_eq!((kept.0, told), (AGAIN + 1, AGAIN));
        assert!(kept.1 >= 1000, "the last one is kept and known to be spoilt: {kept:?}");
    }

    #[test]
    fn a_failure_that_was_spoilt_is_tried_again() {
        let mut made = 0;
        let outcome = undisturbed(
            |watch| {
                made += 1;
                pretended(watch, i64::from(made == 1) * 1000);
                if made == 1 { anyhow::bail!("the file was gone") } else { Ok(()) }
            },
            |_| (),
        );
        assert!(outcome.is_ok());
    }
}
