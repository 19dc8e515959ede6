//! What a hint costs its giver: singly, in batches of 32, and when it repeats one of the last seconds.
//! Prints nanoseconds for each hint, the median over rounds. The files do not exist, so that the disk is no
//! part of it; hints that overflow would be cheaper than others, so their share is printed.

use runahead_hints::{Batch, counts, hint};
use std::time::{Duration, Instant};

const ROUNDS: usize = 400;
const TOGETHER: usize = 32;

fn main() {
    let paths: Vec<String> =
        (0..TOGETHER).map(|number| format!("/not/there/but/of/usual/length/file-{number:04}.dat")).collect();
    let mut offset = 0;
    let mut fresh = || {
        offset += 4096;
        offset
    };
    hint(&paths[0], 0, 1);
    report("singly", || {
        let offset = fresh();
        paths.iter().for_each(|path| hint(path, offset, 4096));
    });
    report("batched by 32", || {
        let offset = fresh();
        let mut batch = Batch::new();
        paths.iter().for_each(|path| batch.add(path, offset, 4096));
        batch.send();
    });
    report("repeated, singly", || paths.iter().for_each(|path| hint(path, 0, 0)));
    let counts = counts();
    println!("of {} hints {} overflowed, {} were repeated", counts.hints, counts.overflowed, counts.repeated);
}

fn report(what: &str, mut give: impl FnMut()) {
    let mut rounds: Vec<u128> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            give();
            let took = began.elapsed().as_nanos() / TOGETHER as u128;
            // The library's threads need their time too.
            std::thread::sleep(Duration::from_millis(2));
            took
        })
        .collect();
    rounds.sort_unstable();
    println!(
        "{what}: {} ns a hint (least {}, 95th percentile {})",
        rounds[ROUNDS / 2],
        rounds[0],
        rounds[ROUNDS * 95 / 100]
    );
}
