//! Sums the bytes of the files that it is given, each disclosed before the first is read.
//!
//! `cargo run --example sum -- FILES...`

fn main() -> std::io::Result<()> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    runahead_hints::Batch::new().extend(files.iter().map(|file| (file, 0, 0))).send();

    let mut sum = 0u64;
    for file in &files {
        sum += std::fs::read(file)?.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    }
    println!("{sum}");

    if std::env::var_os("SHOW_COUNTS").is_some() {
        let counts = runahead_hints::counts();
        eprintln!("hints {}, pages {}", counts.hints, counts.asked_pages + counts.cached_pages);
    }
    Ok(())
}
