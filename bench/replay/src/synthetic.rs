//! Programs that nobody has recorded: the kinds that policies are argued about.

use crate::trace::{Known, PAGE, Step, Trace, What};

/// Numbers that look like chance, the same each time (Steele and others, SplitMix, 2014).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// A number below `most`, which is not 0.
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }
}

/// A program of one thread.
fn of(name: &str, steps: Vec<Step>) -> Trace {
    Trace { name: format!("made-{name}"), processors: 2, threads: vec![steps], ..Trace::default() }
}

fn read(compute: u64, file: u32, place: u64, length: u64, known: Known) -> Step {
    Step { compute, what: What::Read { file, place, length }, known }
}

/// Reads at random places of one file, of which one in `dependent` follows from the data before it; 0: none.
pub fn random(name: &str, reads: u64, dependent: u64, compute: u64) -> Trace {
    let mut chance = Chance::new(reads ^ (dependent << 32));
    let steps = (0..reads).map(|number| {
        let known = if dependent > 0 && number % dependent == 0 { Known::AfterData } else { Known::Always };
        read(compute, 1, chance.below(1 << 20) * PAGE, PAGE, known)
    });
    of(name, steps.collect())
}

/// Small files, one after the other.
pub fn files(name: &str, count: u32, compute: u64) -> Trace {
    let steps = (0..count).flat_map(|file| {
        [
            read(compute, file, 0, 16 << 10, Known::Always),
            read(compute / 10, file, 16 << 10, 16 << 10, Known::Always),
        ]
    });
    of(name, steps.collect())
}

/// One large file from end to end.
pub fn scan(name: &str, bytes: u64, compute: u64) -> Trace {
    let steps = (0..bytes >> 16).map(|number| read(compute, 1, number << 16, 1 << 16, Known::Always));
    of(name, steps.collect())
}

/// Pages of a mapped file: at random (of which one in `dependent` follows from the page before), or each so
/// many pages from the one before.
fn touches(name: &str, count: u64, dependent: u64, stride: u64) -> Trace {
    let mut chance = Chance::new(count ^ (stride << 32) ^ (dependent << 48));
    let steps = (0..count).map(|number| {
        let page = if stride > 0 { number * stride } else { chance.below(1 << 16) };
        let known = if dependent > 0 && number % dependent != 0 { Known::AfterData } else { Known::Always };
        Step { compute: 5_000, what: What::Touch { file: 1, page, instruction: 1 }, known }
    });
    of(name, steps.collect())
}

/// What policies are argued about, with names.
pub fn all() -> Vec<Trace> {
    let mut warm = files("warm", 3_000, 5_000);
    warm.warm = true;
    let mut busy = files("busy-files", 300, 300_000);
    busy.processors = 1;
    vec![
        random("random", 3_000, 0, 20_000),
        random("chain", 1_000, 1, 20_000),
        random("every-second", 2_000, 2, 20_000),
        random("every-tenth", 2_000, 10, 20_000),
        files("files", 600, 100_000),
        scan("scan", 64 << 20, 50_000),
        warm,
        busy,
        touches("gather", 2_000, 0, 0),
        touches("gather-by-index", 2_000, 2, 0),
        touches("gather-chain", 1_000, 1_000_000, 0),
        touches("column", 1_500, 0, 40),
        touches("mapped-scan", 1_500, 0, 16),
    ]
}
