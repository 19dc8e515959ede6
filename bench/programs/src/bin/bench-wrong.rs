//! Gives hints that are all wrong: random pages of a file that it never reads, as fast as a loader might, for two
//! seconds.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench_programs::Random;
use clap::Parser;

#[derive(Parser)]
#[command(about = "Give wrong hints by Runahead's hint interface")]
struct Arguments {
    file: PathBuf,
    #[arg(long, default_value_t = 2)]
    seconds: u64,
}

const PAGE: u64 = 4096;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let file =
        File::open(&arguments.file).with_context(|| format!("cannot open {}", arguments.file.display()))?;
    let pages = file.metadata()?.len() / PAGE;
    ensure!(pages > 0, "{} is empty", arguments.file.display());
    let mut random = Random::new(1);
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    while Instant::now() < end {
        let mut hints = runahead_hints::Batch::new();
        (0..100).for_each(|_| hints.add_file(&file, random.below(pages) * PAGE, PAGE));
        hints.send();
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
