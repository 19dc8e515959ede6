//! Words of a mapped file, in an order that read-ahead does not see: down the columns of a matrix, or gathered at
//! indices that are computed, read from a second mapped file, or found there through an index themselves.
//!
//! There is no system call in the hot phase: what it waits for are page faults.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bench_programs::{Checksum, scramble};
use clap::{Parser, Subcommand};
use memmap2::{Advice, Mmap};

#[derive(Parser)]
#[command(about = "Words of a mapped file in a scattered order, and a checksum of them")]
struct Arguments {
    file: PathBuf,
    /// Tell the kernel that the order is random: it reads nothing around what is touched
    #[arg(long)]
    random: bool,
    #[command(subcommand)]
    order: Order,
}

#[derive(Subcommand)]
enum Order {
    /// Down the first columns of a matrix
    Columns {
        /// Bytes of a row
        #[arg(long, default_value_t = 65536)]
        row: usize,
        #[arg(long, default_value_t = 1)]
        columns: usize,
    },
    /// At indices that are computed
    Computed { count: u64 },
    /// At indices that stand one after the other in a second file
    Indexed { index: PathBuf, count: u64 },
    /// At indices that stand at computed places of a second file
    Twice { index: PathBuf, count: u64 },
    /// Each at a place that follows from the word before: nobody can know it
    Chain { count: u64 },
}

const WORD: usize = size_of::<u64>();

fn word(map: &[u8], at: u64) -> u64 {
    let words = (map.len() / WORD) as u64;
    let place = (at % words) as usize * WORD;
    u64::from_le_bytes(std::array::from_fn(|byte| map[place + byte]))
}

fn map(path: &Path, random: bool) -> Result<Mmap> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    // SAFETY: nobody writes to the bench's data while it is measured; a file cut short would end the program
    // with SIGBUS, which the bench reports.
    let map = unsafe { Mmap::map(&file) }.with_context(|| format!("cannot map {}", path.display()))?;
    ensure!(map.len() >= WORD, "{} is smaller than one word", path.display());
    if random {
        map.advise(Advice::Random)?;
    }
    Ok(map)
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let data = map(&arguments.file, arguments.random)?;
    let mut checksum = Checksum::default();
    let mut take = |at: u64| checksum.add(&word(&data, at).to_le_bytes());
    match &arguments.order {
        Order::Columns { row, columns } => {
            let row = (row / WORD).max(1);
            for column in 0..*columns {
                (column..data.len() / WORD).step_by(row).for_each(|at| take(at as u64));
            }
        }
        Order::Computed { count } => (0..*count).for_each(|number| take(scramble(number))),
        Order::Indexed { index, count } => {
            let index = map(index, arguments.random)?;
            (0..*count).for_each(|number| take(scramble(word(&index, number))));
        }
        Order::Twice { index, count } => {
            let index = map(index, arguments.random)?;
            (0..*count).for_each(|number| take(scramble(word(&index, scramble(number)))));
        }
        Order::Chain { .. } => {}
    }
    if let Order::Chain { count } = arguments.order {
        let last = (0..count).fold(1, |at, _| scramble(at ^ word(&data, at)));
        checksum.add(&last.to_le_bytes());
    }
    println!("checksum {:016x}", checksum.value());
    Ok(())
}
