//! Prints what the analysis finds in the files named on the command line, one row each:
//! `cargo run --release -p runahead-sites --example sites_of -- /lib/x86_64-linux-gnu/libc.so.6`.
//! With `-v` first, also each site, and each system call that is left alone, and why.

use std::path::PathBuf;
use std::time::Instant;

use runahead_sites::analyse;

fn main() {
    let mut paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let verbose = paths.first().is_some_and(|first| first.as_os_str() == "-v");
    if verbose {
        paths.remove(0);
    }
    println!("found  sites  short  unproven  others    ms  file");
    for path in paths {
        let start = Instant::now();
        let analysis = match analyse(&path) {
            Ok(analysis) => analysis,
            Err(error) => {
                println!("{}: {error}", path.display());
                continue;
            }
        };
        println!(
            "{:5}  {:5}  {:5}  {:8}  {:6}  {:4}  {}{}",
            analysis.found,
            analysis.sites.len(),
            analysis.sites.iter().filter(|s| s.is_short()).count(),
            analysis.unproven().count(),
            analysis.others.len(),
            start.elapsed().as_millis(),
            path.display(),
            match (analysis.understood, analysis.is_blind()) {
                (false, _) => " (not a program for this machine)",
                (_, true) => " (makes calls that cannot be seen)",
                _ => "",
            },
        );
        if verbose {
            for site in &analysis.sites {
                let short = if site.is_short() { " short" } else { "" };
                println!("    {:#x} number {} form {}{short}", site.patch_offset, site.number, site.form);
            }
            for other in &analysis.others {
                println!(
                    "    {:#x} number {} {:?}",
                    other.address,
                    other.number.map_or("unknown".into(), |n| n.to_string()),
                    other.reason
                );
            }
        }
    }
}
