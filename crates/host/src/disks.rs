//! What the kernel counts of a disk, for everybody who reads from it.

use std::path::{Path, PathBuf};

/// What a disk has done since the machine's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub reads: u64,
    pub bytes: u64,
    /// Sum of the response times.
    pub read_ns: u64,
}

/// `stat` of the whole disk behind an `st_dev`; None: no disk, but a network, a union of others.
pub fn counts(device: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let own = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // Who reads from another partition stands in the same line.
    let disk = if own.join("partition").exists() { own.join("..") } else { own };
    Some(disk.join("stat")).filter(|path| path.exists())
}

/// What such a file says now.
pub fn done(counts: &Path) -> Option<Done> {
    parse(&std::fs::read_to_string(counts).ok()?)
}

/// Requests that a disk has at present, by such a file.
pub fn in_flight(counts: &Path) -> Option<u64> {
    const IN_FLIGHT: usize = 8;
    std::fs::read_to_string(counts).ok()?.split_whitespace().nth(IN_FLIGHT)?.parse().ok()
}

/// The kernel's Documentation/block/stat.rst.
fn parse(text: &str) -> Option<Done> {
    const SECTOR: u64 = 512;
    let mut words = text.split_whitespace().map(|word| word.parse::<u64>().ok());
    let reads = words.next()??;
    let sectors = words.nth(1)??;
    let milliseconds = words.next()??;
    let (bytes, read_ns) = (sectors.wrapping_mul(SECTOR), milliseconds.wrapping_mul(1_000_000));
    Some(Done { reads, bytes, read_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disks_counts() {
        let line =
            " 2754707   346387 107609140   911714   213154   182832 52843824   329608        0   161960";
        let done = Done { reads: 2_754_707, bytes: 107_609_140 * 512, read_ns: 911_714_000_000 };
        assert_eq!(parse(line), Some(done));
        assert_eq!(parse("1 2 3"), None);
        assert_eq!(parse("a b c d"), None);
    }
}
