//! Random 4 KiB reads of one file, at offsets that are computed, or that depend on what was just read.
//!
//! With `--every N`, each Nth offset is taken from the block just read, as an index or a linked list
//! would have it: 0 never (the best case for running ahead), 1 always (a pure chain, where nobody can).
//! With `--hints N` it is the same program with hints written in by hand: it tells the kernel, N reads
//! ahead, each offset that it can compute by then. With `--resident-mb N` it holds so much memory and
//! writes to one page of it, here and there, at each read: what a sync has to cope with.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use bench_programs::{Checksum, Random, hint, scramble};
use clap::Parser;

#[derive(Parser)]
#[command(about = "Random reads of one file, and a checksum of what they found")]
struct Arguments {
    file: PathBuf,
    /// How many reads
    #[arg(long, default_value_t = 20_000)]
    reads: u64,
    /// Each so many-th offset depends on the data just read; 0: none does
    #[arg(long, default_value_t = 0)]
    every: u64,
    /// Tell the kernel of the reads to come, so many ahead; 0: tell nothing
    #[arg(long, default_value_t = 0)]
    hints: usize,
    /// Hold so many megabytes of memory, and write to it
    #[arg(long, default_value_t = 0)]
    resident_mb: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const BLOCK: usize = 4096;

/// The blocks to read, in order: a number where it can be computed, none where data decide.
struct Plan {
    random: Random,
    every: u64,
    blocks: u64,
    number: u64,
    reads: u64,
}

impl Iterator for Plan {
    type Item = Option<u64>;

    fn next(&mut self) -> Option<Option<u64>> {
        if self.number == self.reads {
            return None;
        }
        self.number += 1;
        let depends = self.every != 0 && self.number.is_multiple_of(self.every);
        Some((!depends).then(|| self.random.number() % self.blocks))
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let file =
        File::open(&arguments.file).with_context(|| format!("cannot open {}", arguments.file.display()))?;
    let blocks = file.metadata()?.len() / BLOCK as u64;
    anyhow::ensure!(blocks > 0, "{} is smaller than one block", arguments.file.display());
    let random = Random::new(arguments.seed);
    let mut plan = Plan { random, every: arguments.every, blocks, number: 0, reads: arguments.reads };
    let mut ahead = VecDeque::new();
    let mut resident = vec![1u8; arguments.resident_mb << 20];
    let mut checksum = Checksum::default();
    let mut block = [0u8; BLOCK];
    for number in 1..=arguments.reads {
        while ahead.len() <= arguments.hints {
            let Some(next) = plan.next() else { break };
            if let Some(known) = next.filter(|_| arguments.hints > 0) {
                hint(&file, known * BLOCK as u64, BLOCK as u64);
            }
            ahead.push_back(next);
        }
        // The checksum holds every block so far; only the last one's words are new to a guesser.
        let choice = ahead.pop_front().flatten();
        let choice = choice.unwrap_or_else(|| scramble(checksum.value() ^ number) % blocks);
        file.read_exact_at(&mut block, choice * BLOCK as u64)?;
        checksum.add(&block);
        if !resident.is_empty() {
            let place = scramble(number) as usize % resident.len();
            resident[place] = resident[place].wrapping_add(block[0]);
        }
    }
    let sum: u64 = resident.iter().map(|byte| u64::from(*byte)).sum();
    println!("{} reads, checksum {:016x}", arguments.reads, checksum.value() ^ sum);
    Ok(())
}
