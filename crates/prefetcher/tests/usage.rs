//! What the process reads, told apart from what we read. Alone in its process: whatever another test read
//! would count.

use runahead_prefetcher::usage::{Meter, Own, Usage};

#[test]
fn reads_from_the_cache_are_seen_and_our_own_are_not() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![1; 16 << 20]).unwrap();
    let own = Own::default();
    let mut usage = Usage::new(&own);
    std::fs::read(file.path()).unwrap();
    // A little less than 16 MB: pages of this very program that faults bring in count as delivered.
    let hits = usage.hits(&own).unwrap();
    assert!(hits >= 12 << 20, "{hits}");

    let mut meter = Meter::new();
    std::fs::read(file.path()).unwrap();
    meter.settle(&own);
    let hits = usage.hits(&own).unwrap();
    assert!(hits < 1 << 20, "{hits}");
}
