//! Random 4 KiB reads of one file, at offsets that are computed, or that depend on what was just read.
//!
//! With `--every N`, each Nth offset is taken from the block just read, as an index or a linked list
//! would have it: 0 never (the best case for running ahead), 1 always (a pure chain, where nobody can).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use bench_programs::{Checksum, Random, scramble};
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
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const BLOCK: usize = 4096;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let file =
        File::open(&arguments.file).with_context(|| format!("cannot open {}", arguments.file.display()))?;
    let blocks = file.metadata()?.len() / BLOCK as u64;
    anyhow::ensure!(blocks > 0, "{} is smaller than one block", arguments.file.display());
    let mut random = Random::new(arguments.seed);
    let mut checksum = Checksum::default();
    let mut block = [0u8; BLOCK];
    for number in 1..=arguments.reads {
        let depends = arguments.every != 0 && number % arguments.every == 0;
        // The checksum holds every block so far; only the last one's words are new to a guesser.
        let choice = if depends { scramble(checksum.value() ^ number) } else { random.number() };
        file.read_exact_at(&mut block, choice % blocks * BLOCK as u64)?;
        checksum.add(&block);
    }
    println!("{} reads, checksum {:016x}", arguments.reads, checksum.value());
    Ok(())
}
