//! Words of a memory larger than there is, at places that are computed: most of it lies on swap.
//!
//! The memory is filled first, and goes to swap as it is. There is no system call in the hot phase: what it waits for
//! are page faults on memory of its own. The time of that phase goes to standard error on request, as filling takes a
//! good part of the whole.

use std::time::Instant;

use anyhow::{Result, ensure};
use bench_programs::{Checksum, scramble};
use clap::Parser;

#[derive(Parser)]
#[command(about = "Words at computed places of a large memory, and a checksum of them")]
struct Arguments {
    /// So many megabytes of memory
    #[arg(long)]
    memory_mb: usize,
    /// So many words
    #[arg(long)]
    count: u64,
    /// Each place follows from the word before: nobody can know it
    #[arg(long)]
    chain: bool,
    /// Print how long it took to read them
    #[arg(long)]
    time: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let words = (arguments.memory_mb << 20) / size_of::<u64>();
    ensure!(words > 0, "it needs memory");
    let mut memory = Vec::with_capacity(words);
    memory.extend((0..words as u64).map(|at| scramble(at + 1)));
    let began = Instant::now();
    let mut checksum = Checksum::default();
    let mut before = 0;
    for number in 0..arguments.count {
        let place = scramble(number.wrapping_add(if arguments.chain { before } else { 0 }));
        before = memory[(place % words as u64) as usize];
        checksum.add(&before.to_le_bytes());
    }
    if arguments.time {
        eprintln!("{:.3} s", began.elapsed().as_secs_f64());
    }
    println!("checksum {:016x}", checksum.value());
    Ok(())
}
