//! Does speculation pay where a server brings the data?
//!
//! What is asked of a FUSE server ahead may stand in line before the program's own requests, though all of it
//! was predicted. So how much is predicted decides nothing there; the program's own time for a read does.
//! Stretches of reads without and with speculation alternate, and are compared. What was predicted before a
//! stretch without is passed first, as its requests are still being served. A server that answers quickly
//! without is left to the program at once.
//!
//! Only what is seen to gain goes on; else speculation ends, for a while. What it costs is bounded by the
//! stretches of one verdict.
//!
//! Driven by the agent. All is counted in reads that it looks at.

use crate::worth::LONG_STALL;

/// Reads between two looks at the time.
const LOOK: u32 = 8;

/// A stretch: so many reads and so much time, ns, or longer with fewer reads. The longest time between two
/// looks does not count: in it the program may have done something else, or nothing.
const READS: u32 = 64;
const MIN_READS: u32 = 2 * LOOK;
const SHORT: u64 = 4_000_000;
const LONG: u64 = 25_000_000;

/// What was predicted is passed for so long at most, ns: a queue of 64, served one by one in 1 to 2 ms each.
const MAX_PASSING: u64 = 120_000_000;

/// What counts as a loss, in percent of the time without, behind the first pair of stretches, the second and
/// the third; what gains as much as the next figure is none at once. Behind the third only a gain is none: a
/// tenth is what three pairs tell from chance, and where a server does one thing at a time nothing can be
/// gained, while each restart costs.
const LOSS: [u64; 3] = [200, 125, 90];
const GAIN: u64 = 67;

/// Reads for which a verdict stands; twice as many each time that it is confirmed.
const INITIAL_STANDS: u32 = 4096;
const MAX_STANDS: u32 = 65_536;

/// Calls that may pass unseen at a time while a verdict against speculation stands: as [`crate::worth`]'s.
const UNSEEN: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stretch {
    /// What is being predicted is to end.
    #[default]
    Ending,
    /// What was predicted is being passed, up to this read.
    Passing {
        until: u64,
    },
    Without,
    With,
}

/// Time and reads.
#[derive(Clone, Copy, Debug, Default)]
struct Took {
    ns: u64,
    reads: u32,
    /// The longest of the present stretch, which is not in them.
    longest: u64,
}

impl Took {
    /// One look more.
    fn looked(&mut self, ns: u64) {
        if self.longest != 0 {
            self.ns = self.ns.saturating_add(ns.min(self.longest));
            self.reads = self.reads.saturating_add(LOOK);
        }
        self.longest = self.longest.max(ns);
    }

    fn add(&mut self, stretch: Took) {
        self.ns = self.ns.saturating_add(stretch.ns);
        self.reads = self.reads.saturating_add(stretch.reads);
    }

    /// Time of a read, ns.
    fn each(self) -> u64 {
        self.ns / u64::from(self.reads.max(1))
    }

    fn is_enough(self) -> bool {
        (self.ns >= LONG && self.reads >= MIN_READS) || (self.ns >= SHORT && self.reads >= READS)
    }
}

/// Zeros are its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// The device of the latest read that waited, if the kernel did not tell so; 0 otherwise.
    device: u64,
    /// The server's file system that all below is about; 0: none is known.
    server: u64,
    stretch: Stretch,
    /// When it was looked at the time last, ns; 0: not yet.
    looked: u64,
    present: Took,
    with: Took,
    without: Took,
    pairs: usize,
    /// Whether it pays; for so many more reads.
    verdict: Option<bool>,
    left: u32,
    /// The latest one, and for how long it stood.
    latest: Option<bool>,
    stands: u32,
    reads: u64,
}

impl Served {
    /// Speculation may restart at a read on `device`; 0: of which the kernel tells whether it waits.
    pub fn may_restart(&self, device: u64) -> bool {
        device == 0 || device != self.server || self.may()
    }

    /// The program waits there.
    pub fn stalls(&mut self, device: u64) {
        self.device = device;
    }

    /// Whether each read must be seen, as its time is being compared.
    pub fn watches(&self) -> bool {
        self.is_asked() && self.verdict.is_none()
    }

    /// How many calls may pass unseen from here. They are thought to pass.
    pub fn look_away(&mut self) -> u32 {
        if !self.is_asked() || self.verdict != Some(false) {
            return 0;
        }
        let unseen = UNSEEN.min(self.left.saturating_sub(1));
        self.left -= unseen;
        unseen
    }

    /// The agent looked at a read. `server`: the device that a server was met behind; `ahead`: reads that
    /// have been predicted and not passed; `now` tells the time in ns. True: speculation is to end here.
    pub fn read(&mut self, server: u64, ahead: u32, now: impl FnOnce() -> u64) -> bool {
        if server != self.server {
            *self = Served { device: self.device, server, ..Served::default() };
        }
        if server == 0 {
            return false;
        }
        // Those elsewhere as well: a program may go to and fro between files of both kinds.
        self.reads += 1;
        if self.verdict.is_some() {
            self.left = self.left.saturating_sub(1);
            if self.left == 0 {
                self.begin();
            }
            return false;
        }
        self.reads.is_multiple_of(u64::from(LOOK)) && self.look(now(), ahead) && self.is_asked()
    }

    /// Whether the program is at the server.
    fn is_asked(&self) -> bool {
        self.device != 0 && self.device == self.server
    }

    fn may(&self) -> bool {
        self.verdict.unwrap_or(self.stretch == Stretch::With)
    }

    fn begin(&mut self) {
        (self.stretch, self.looked, self.present) = (Stretch::Ending, 0, Took::default());
        (self.with, self.without, self.pairs) = (Took::default(), Took::default(), 0);
        self.verdict = None;
    }

    fn look(&mut self, ns: u64, ahead: u32) -> bool {
        let before = core::mem::replace(&mut self.looked, ns);
        if before == 0 {
            return false;
        }
        self.present.looked(ns.saturating_sub(before));
        let until = self.reads + u64::from(ahead);
        match self.stretch {
            Stretch::Ending => {
                self.next(Stretch::Passing { until });
                return true;
            }
            Stretch::Passing { until } if self.reads >= until || self.present.ns >= MAX_PASSING => {
                self.next(Stretch::Without);
            }
            Stretch::Without if self.present.is_enough() => {
                let present = self.next(Stretch::With);
                self.without.add(present);
                if self.without.each() < LONG_STALL {
                    self.decide(false);
                }
            }
            Stretch::With if self.present.is_enough() => {
                let present = self.next(Stretch::Passing { until });
                self.with.add(present);
                self.compare();
                return self.verdict != Some(true);
            }
            _ => {}
        }
        false
    }

    /// Begins the next stretch. Returns what the one before took.
    fn next(&mut self, stretch: Stretch) -> Took {
        self.stretch = stretch;
        core::mem::take(&mut self.present)
    }

    fn compare(&mut self) {
        let percent = self.with.each().saturating_mul(100) / self.without.each().max(1);
        let loss = LOSS.get(self.pairs).copied().unwrap_or(u64::MAX);
        self.pairs += 1;
        if percent >= loss {
            self.decide(false);
        } else if percent <= GAIN || self.pairs >= LOSS.len() {
            self.decide(true);
        }
    }

    fn decide(&mut self, pays: bool) {
        let confirmed = self.latest == Some(pays);
        self.stands = if confirmed { self.stands.saturating_mul(2).min(MAX_STANDS) } else { INITIAL_STANDS };
        (self.verdict, self.latest, self.left) = (Some(pays), Some(pays), self.stands);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: u64 = 1_000_000;
    const SERVER: u64 = 41;

    /// A program that takes so many ns for a read `with` speculation and `without`, of which `ahead` reads
    /// are predicted. Returns the reads that were speculated for, of so many.
    fn run(served: &mut Served, reads: u32, with: u64, without: u64, ahead: u32) -> u32 {
        let (mut now, mut speculated, mut on) = (1, 0, false);
        for _ in 0..reads {
            if !on && served.may_restart(SERVER) {
                served.stalls(SERVER);
                on = true;
            }
            now += if on { with } else { without };
            speculated += u32::from(on);
            if served.read(SERVER, ahead, || now) {
                on = false;
            }
        }
        speculated
    }

    #[test]
    fn a_server_that_does_one_thing_at_a_time_is_left_to_the_program() {
        let mut served = Served::default();
        let speculated = run(&mut served, 4000, 2 * STALL, STALL, 16);
        assert!(speculated <= 7 * LOOK, "{speculated}");
        assert!(!served.may_restart(SERVER) && served.may_restart(SERVER + 1) && served.may_restart(0));
    }

    #[test]
    fn a_small_loss_is_found_as_well() {
        let speculated = run(&mut Served::default(), 4000, STALL * 12 / 10, STALL, 16);
        assert!(speculated < 120, "{speculated}");
    }

    #[test]
    fn what_gains_is_stopped_for_moments() {
        for with in [STALL / 10, STALL / 2, STALL * 8 / 10] {
            let speculated = run(&mut Served::default(), 20_000, with, STALL, 64);
            assert!(speculated > 19_000, "{speculated}");
        }
    }

    #[test]
    fn what_makes_no_difference_is_left_to_the_program() {
        for with in [STALL * 95 / 100, STALL] {
            let speculated = run(&mut Served::default(), 4000, with, STALL, 16);
            assert!(speculated < 4 * READS, "{speculated}");
        }
    }

    #[test]
    fn a_quick_server_is_left_to_the_program_without_a_trial() {
        let speculated = run(&mut Served::default(), 4000, STALL / 20, STALL / 10, 64);
        assert!(speculated <= 2 * LOOK, "{speculated}");
    }

    #[test]
    fn files_of_no_server_are_not_asked_about() {
        let mut served = Served::default();
        for (device, server) in [(0, 0), (0, SERVER), (SERVER, 0), (SERVER + 1, SERVER)] {
            served.stalls(device);
            assert!((1..10_000).all(|number| !served.read(server, 0, || number * 9 * STALL)));
            assert!(served.may_restart(device) && !served.watches() && served.look_away() == 0);
        }
    }

    #[test]
    fn another_server_is_another_question() {
        let mut served = Served::default();
        run(&mut served, 4000, 2 * STALL, STALL, 16);
        assert!(!served.may_restart(SERVER));
        served.stalls(SERVER + 1);
        served.read(SERVER + 1, 0, || 1);
        assert!(served.may_restart(SERVER) && served.verdict.is_none());
    }

    #[test]
    fn a_stretch_ends_wherever_the_program_reads() {
        let mut served = Served::default();
        let (mut now, mut may) = (1, 0);
        for number in 0..4000u64 {
            served.stalls(if number % 2 == 0 { SERVER } else { 0 });
            let is_ahead = served.may_restart(SERVER);
            now += if is_ahead { STALL / 2 } else { STALL };
            may += u64::from(is_ahead);
            served.read(SERVER, 0, || now);
        }
        assert!(may > 3000, "{may}");
    }

    #[test]
    fn what_the_program_does_besides_is_not_held_against_it() {
        for at in (0..100).step_by(LOOK as usize) {
            let (mut served, mut now) = (Served::default(), 1);
            served.stalls(SERVER);
            for number in 0..4000 {
                // A minute of thought.
                let read = if served.may_restart(SERVER) { STALL / 2 } else { STALL };
                now += if number == at { 60_000_000_000 } else { read };
                served.read(SERVER, 0, || now);
            }
            assert_eq!(served.latest, Some(true), "at {at}");
        }
    }

    #[test]
    fn a_verdict_is_looked_at_again_later_and_later() {
        let mut served = Served::default();
        let speculated = run(&mut served, 100_000, 2 * STALL, STALL, 16);
        assert!((10 * LOOK..40 * LOOK).contains(&speculated), "{speculated}");
    }

    #[test]
    fn while_it_stands_the_agent_looks_away() {
        let mut served = Served::default();
        assert_eq!(served.look_away(), 0);
        run(&mut served, 400, 2 * STALL, STALL, 16);
        assert_eq!(served.look_away(), UNSEEN);
        // The verdict ends all the same.
        assert!((0..10_000).any(|_| served.look_away() == 0));
    }

    #[test]
    fn no_number_is_too_large_or_too_small() {
        let mut served = Served::default();
        let numbers = [0, 1, u64::MAX, u64::MAX / 2, 7];
        for number in 0..100_000usize {
            let pick = |step: usize| numbers[number / step % numbers.len()];
            served.stalls(SERVER);
            served.read(SERVER, pick(3) as u32, || pick(5));
            served.look_away();
        }
    }
}
