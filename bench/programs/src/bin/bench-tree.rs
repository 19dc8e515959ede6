//! Look-ups in a B-tree that is mapped, and a checksum of what they found. What it waits for are page faults: inner
//! pages first, then a leaf for nearly each look-up.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use bench_programs::{Checksum, btree, scramble};
use clap::Parser;
use memmap2::{Advice, Mmap};

#[derive(Parser)]
#[command(about = "Look-ups in a mapped B-tree, and a checksum of what they found")]
struct Arguments {
    file: PathBuf,
    /// Entries of the tree
    entries: u64,
    /// Look-ups
    count: u64,
    /// Tell the kernel that the order is random: it reads nothing around what is touched
    #[arg(long)]
    random: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.entries > 0, "a tree has entries");
    let file =
        File::open(&arguments.file).with_context(|| format!("cannot open {}", arguments.file.display()))?;
    // SAFETY: nobody writes to the bench's data while it is measured; a file cut short would end the program
    // with SIGBUS, which the bench reports.
    let tree = unsafe { Mmap::map(&file) }?;
    if arguments.random {
        tree.advise(Advice::Random)?;
    }
    let (mut checksum, mut missing) = (Checksum::default(), 0);
    for number in 0..arguments.count {
        match btree::look_up(&tree, btree::key(scramble(number) % arguments.entries)) {
            Some(value) => checksum.add(value),
            None => missing += 1,
        }
    }
    println!("checksum {:016x}, {missing} not found", checksum.value());
    Ok(())
}
