//! Which disks are worth it.
//!
//! A companion costs processor time and the disk's, and half of them are wrong: on a quick disk the program is better off
//! waiting. What a disk is like is told by a few answers of its own, one asked for at a time and waited for; many asked for at
//! once would measure the queue. (What speculation has under way there is measured with it.)

use std::collections::HashMap;

/// A disk that answers sooner, in ns, is left to the program: half of the companions are used, and each costs some 110 us
/// on two processors. (Importing numpy and pandas from a disk of some 170 us: 965 asked for, 500 used, 20 ms slower than
/// without; of the program's own waits there were 296 left of 970, and they were longer in all, 100 ms for 64.)
const WORTH_NS: u64 = 250_000;

/// A disk is quick that has answered so quickly so many times, and is not one that has been slow as many times as the second
/// figure before. Nothing makes an answer quicker than the disk is, and much makes it later: speculation's own requests, a processor that has
/// something else to do. (Where most of five answers decided, a disk of 50 us, which answered that import in 71 to 1048 us, was taken for a slow one
/// in every second run, and 774 files asked for: 0.70 s, 0.63 where it was known, 0.59 alone.)
const QUICK: u32 = 2;
const SLOW: u32 = 4;

/// So often there was nothing to learn: nobody can tell, and it is taken for slow.
const SILENT: u32 = 5;

/// What is known of a disk.
#[derive(Clone, Copy, Debug, Default)]
struct Disk {
    /// Somebody waits for an answer now.
    asked: bool,
    /// Answers, and those that came too soon for all this to be worth while.
    answers: u32,
    quick: u32,
    /// The soonest of the others, ns; 0: none yet.
    soonest: u64,
    /// How often there was nothing to learn.
    silent: u32,
    /// Somebody serves each request there.
    served: bool,
}

/// How to ask for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// And go on.
    AndGoOn,
    /// And wait, and tell [`Disks::answered`].
    AndWait,
    /// Later: somebody waits for this disk's answer.
    Later,
    /// Not at all.
    Never,
}

/// The disks of a run, by device number.
#[derive(Debug, Default)]
pub struct Disks(HashMap<u64, Disk>);

impl Disks {
    /// How to ask for a file on this disk now. After [`Ask::AndWait`] nobody else asks before the answer is told.
    pub fn ask(&mut self, device: u64) -> Ask {
        let disk = self.0.entry(device).or_default();
        if disk.is_left() {
            return Ask::Never;
        }
        if disk.is_known() {
            return Ask::AndGoOn;
        }
        if std::mem::replace(&mut disk.asked, true) { Ask::Later } else { Ask::AndWait }
    }

    /// There was nothing to wait for.
    pub fn not_asked(&mut self, device: u64) {
        self.0.entry(device).or_default().asked = false;
    }

    /// The disk has answered after so many ns. None: nobody can tell how long it takes, since somebody else had asked before.
    pub fn answered(&mut self, device: u64, took: Option<u64>) {
        let disk = self.0.entry(device).or_default();
        disk.asked = false;
        match took {
            Some(took) => {
                disk.answers += 1;
                disk.quick += u32::from(took < WORTH_NS);
                if took >= WORTH_NS && (disk.soonest == 0 || took < disk.soonest) {
                    disk.soonest = took;
                }
            }
            None => disk.silent += 1,
        }
    }

    /// Somebody serves each request on this file system: what is asked for beside what the program waits for
    /// takes the time in which that is served, and opening a file of a FUSE server's drops what is cached of
    /// it.
    pub fn is_served(&mut self, device: u64) {
        self.0.entry(device).or_default().served = true;
    }

    /// Whether files on this disk may be asked for, many at a time.
    pub fn is_worth_it(&self, device: u64) -> bool {
        self.0.get(&device).is_some_and(|disk| disk.is_known() && !disk.is_left())
    }

    /// How long this disk takes, ns, as far as is known: not less.
    pub fn takes(&self, device: u64) -> u64 {
        self.0.get(&device).map_or(WORTH_NS, |disk| disk.soonest.max(WORTH_NS))
    }

    /// Whether files on this disk are not to be asked for.
    pub fn is_left(&self, device: u64) -> bool {
        self.0.get(&device).is_some_and(Disk::is_left)
    }
}

impl Disk {
    fn is_left(&self) -> bool {
        self.served || self.quick >= QUICK
    }

    fn is_known(&self) -> bool {
        self.answers - self.quick >= SLOW || self.silent >= SILENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(disks: &mut Disks, device: u64, all: &[Option<u64>]) {
        for &took in all {
            assert_eq!(disks.ask(device), Ask::AndWait);
            assert_eq!(disks.ask(device), Ask::Later);
            disks.answered(device, took);
        }
    }

    #[test]
    fn a_quick_disk_is_left_to_the_program_and_another_is_not() {
        let mut disks = Disks::default();
        let some = [Some(713_000), Some(60_000), None, Some(694_000), Some(1_048_000), Some(170_000)];
        answers(&mut disks, 1, &some);
        assert_eq!(disks.ask(1), Ask::Never);
        let others = [Some(1_000_000), Some(50_000), Some(1_000_000), Some(400_000), Some(1_100_000)];
        answers(&mut disks, 2, &others);
        assert_eq!(disks.ask(2), Ask::AndGoOn);
        assert!(disks.is_left(1) && !disks.is_left(2) && !disks.is_left(3));
        assert_eq!((disks.takes(2), disks.takes(3)), (400_000, WORTH_NS));
    }

    #[test]
    fn a_disk_of_which_nothing_can_be_told_is_asked() {
        let mut disks = Disks::default();
        assert!(!disks.is_worth_it(1));
        answers(&mut disks, 1, &[None; SILENT as usize]);
        assert_eq!(disks.ask(1), Ask::AndGoOn);
        assert!(disks.is_worth_it(1));
    }

    #[test]
    fn what_was_there_says_nothing() {
        let mut disks = Disks::default();
        for _ in 0..20 {
            assert_eq!(disks.ask(1), Ask::AndWait);
            disks.not_asked(1);
        }
        answers(&mut disks, 1, &[Some(60_000); 2]);
        assert_eq!(disks.ask(1), Ask::Never);
    }
}
