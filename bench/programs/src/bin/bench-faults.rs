//! Page faults by the ten thousand, of which nearly none waits and none can be foretold.
//!
//! What watching faults costs shows here. Each round takes fresh memory, touches its pages in an order that follows from what
//! stands in them, and gives it back; then it reads a few words of a mapped file, each at a place that
//! follows from the word before. Those wait for the disk, which is what makes Runahead look.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use bench_programs::scramble;
use clap::Parser;
use memmap2::{Advice, Mmap, MmapMut};

#[derive(Parser)]
#[command(about = "Touch fresh memory over and over, and now and then a word of a mapped file")]
struct Arguments {
    file: PathBuf,
    #[arg(long, default_value_t = 60)]
    rounds: u64,
    /// Fresh memory in each round
    #[arg(long, default_value_t = 64)]
    memory_mb: usize,
    /// Words of the file in each round
    #[arg(long, default_value_t = 20)]
    words: u64,
}

const PAGE: usize = 4096;
const WORD: usize = size_of::<u64>();

fn word(map: &[u8], place: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| map[place + byte]))
}

/// Touches every page of the memory once on the average, and leaves something there.
fn touch(memory: &mut [u8], from: u64) -> u64 {
    let pages = memory.len() / PAGE;
    (0..pages).fold(from, |at, _| {
        let place = at as usize % pages * PAGE;
        let next = scramble(at ^ word(memory, place));
        memory[place..place + WORD].copy_from_slice(&next.to_le_bytes());
        next
    })
}

fn read(file: &[u8], from: u64, words: u64) -> u64 {
    let places = file.len() / WORD;
    (0..words).fold(from, |at, _| scramble(at ^ word(file, at as usize % places * WORD)))
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let path = &arguments.file;
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    // SAFETY: nobody writes to the bench's data while it is measured; a file cut short would end the program
    // with SIGBUS, which the bench reports.
    let file = unsafe { Mmap::map(&file) }.with_context(|| format!("cannot map {}", path.display()))?;
    ensure!(file.len() >= WORD, "{} is smaller than one word", path.display());
    file.advise(Advice::Random)?;
    let mut at = 1;
    for _ in 0..arguments.rounds {
        let mut memory = MmapMut::map_anon(arguments.memory_mb << 20).context("no memory")?;
        ensure!(memory.len() >= PAGE, "less than a page of memory");
        // Huge pages would leave next to no faults.
        memory.advise(Advice::NoHugePage)?;
        at = touch(&mut memory, at);
        at = read(&file, at, arguments.words);
    }
    println!("checksum {at:016x}");
    Ok(())
}
