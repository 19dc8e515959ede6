//! Searches a list of files for a word, one file after another, as agrep does: open, read in pieces of
//! 48 KB, close. Prints the lines that have it, counted for each file.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;

#[derive(Parser)]
#[command(about = "Count the lines with a word in each file of a list")]
struct Arguments {
    word: String,
    /// File with the names, one on each line
    list: PathBuf,
    /// Disclose the list beforehand, by Runahead's hint interface
    #[arg(long)]
    manual: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let list = std::fs::read_to_string(&arguments.list)
        .with_context(|| format!("cannot read the list {}", arguments.list.display()))?;
    if arguments.manual {
        runahead_hints::Batch::new().extend(list.lines().map(|name| (name, 0, 0))).send();
    }
    let word = arguments.word.as_bytes();
    let mut piece = vec![0; 48 << 10];
    for name in list.lines() {
        let mut file = File::open(name).with_context(|| format!("cannot open {name}"))?;
        let mut contents = Vec::new();
        loop {
            let length = file.read(&mut piece)?;
            if length == 0 {
                break;
            }
            contents.extend_from_slice(&piece[..length]);
        }
        let lines = contents.split(|byte| *byte == b'\n').filter(|line| contains(line, word)).count();
        if lines > 0 {
            println!("{name}: {lines}");
        }
    }
    Ok(())
}

fn contains(line: &[u8], word: &[u8]) -> bool {
    let Some((&first, rest)) = word.split_first() else { return true };
    let starts = line.iter().enumerate().filter(|(_, byte)| **byte == first);
    starts.into_iter().any(|(at, _)| line[at + 1..].starts_with(rest))
}
