//! A folder, or a file.

use super::{about, size};
use crate::doctor::facts::machine::Surroundings;
use crate::doctor::facts::place::{ColdRead, Device, Mount, Sample};
use crate::doctor::line::{Line, errno};
use runahead_kernel::filesystem::FileSystem;
use std::path::Path;

pub fn missing(path: &Path, number: i32) -> Line {
    let why = if number == libc::ENOENT { "there is no such folder or file" } else { "cannot be looked at" };
    Line::stops(about::PATH, format!("{}: {why} ({})", path.display(), errno(number)))
}

pub fn is_in_memory(kind: &str) -> bool {
    !FileSystem::named(kind).is_stored()
}

/// Servers in user space that do one thing at a time as they are by default.
const ONE_AT_A_TIME: [&str; 3] = ["fuse.sshfs", "fuse.squashfuse", "fuse.fuse-overlayfs"];

pub fn file_system(path: &Path, mount: Option<&Mount>) -> Line {
    let path = path.display();
    let Some(Mount { kind, source }) = mount else {
        return Line::ok(about::FILE_SYSTEM, format!("of {path}: not known"));
    };
    let found = format!("{kind}, {source}, holds {path}");
    match kind.as_str() {
        kind if is_in_memory(kind) => {
            let line =
                Line::stops(about::FILE_SYSTEM, format!("{found}: memory, there is no disk to wait for"));
            line.mended_by("runahead doctor FOLDER   (one on a disk)")
        }
        kind if ONE_AT_A_TIME.contains(&kind) => Line::limits(
            about::FILE_SYSTEM,
            format!("{found}: its server does one thing at a time, unless told otherwise; little is gained"),
        ),
        "squashfs" => Line::limits(
            about::FILE_SYSTEM,
            format!("{found}: it unpacks few blocks at a time; little is gained"),
        ),
        _ => Line::ok(about::FILE_SYSTEM, found),
    }
}

pub fn device(device: &Device) -> Line {
    let read_ahead = match device.read_ahead_kb {
        Some(kb) => format!(", read-ahead {}", size(kb << 10)),
        None => String::new(),
    };
    let rotates = if device.rotates { ", said to rotate" } else { "" };
    Line::ok(about::DEVICE, format!("{}{read_ahead}{rotates}", device.name))
}

/// What looking at files came to. `kind`: of the file system.
pub fn sample(sample: &Sample, path: &Path, kind: &str, around: &Surroundings) -> Vec<Line> {
    let Some(may_not_wait) = sample.may_not_wait else {
        let why = sample.refused.map_or(String::new(), |number| format!(" ({})", errno(number)));
        let found = format!("no file to look at in {}{why}: nothing was tried", path.display());
        return vec![Line::ok(about::COLD_READ, found)];
    };
    if sample.is_dax {
        let line = Line::stops(about::PAGE_CACHE, "passed by (DAX): the device is as quick as memory");
        return vec![line.mended_by("mount it with -o dax=never")];
    }
    if sample.is_kept == Some(false) {
        let line =
            Line::stops(about::PAGE_CACHE, "passed by: what is read is not there for who reads it next");
        return vec![line.perhaps_mended_by(match kind {
            kind if kind.starts_with("fuse") => Some("mount it without direct_io"),
            "9p" => Some("mount it with -o cache=loose"),
            _ => None,
        })];
    }
    vec![told(sample, may_not_wait, kind, around), cold(sample, kind)]
}

fn told(sample: &Sample, may_not_wait: Result<(), i32>, kind: &str, around: &Surroundings) -> Line {
    let Err(number) = may_not_wait else {
        return Line::ok(about::CACHED, "reads that may not wait tell (RWF_NOWAIT)");
    };
    let refused = format!("RWF_NOWAIT: {}", errno(number));
    if kind.starts_with("fuse") && sample.cachestat != Some(Ok(())) {
        let why = match sample.cachestat {
            Some(Err(number)) => errno(number),
            _ => "not tried".to_owned(),
        };
        let found = format!("not told ({refused}; cachestat: {why}): reads gain nothing");
        return Line::limits(about::CACHED, found).mended_by(as_owner(sample.owner, around));
    }
    if sample.is_told {
        return Line::ok(
            about::CACHED,
            format!("a mapping tells (mincore), as you own the files; {refused}"),
        );
    }
    let found = format!("not told, as the files are not yours ({refused}): less is foretold");
    Line::limits(about::CACHED, found).mended_by(as_owner(sample.owner, around))
}

/// Who owns the files is told more of them.
fn as_owner(owner: u32, around: &Surroundings) -> String {
    match owner {
        owner if around.in_container => format!("docker (or podman) run --user {owner} ..."),
        0 => "sudo runahead run -- COMMAND".to_owned(),
        owner => format!("sudo -u '#{owner}' runahead run -- COMMAND"),
    }
}

/// A cold read that takes longer, ns, is worth it for whoever reads much; one that takes less than the second
/// figure is over before a speculator is in step.
const SLOW_NS: u64 = 500_000;
const QUICK_NS: u64 = 100_000;

fn cold(sample: &Sample, kind: &str) -> Line {
    let mut reads: Vec<&ColdRead> = sample.cold.iter().collect();
    reads.sort_unstable_by_key(|read| read.ns);
    let Some(middle) = reads.get(reads.len() / 2) else {
        let by_cachestat = kind != "overlay" && sample.cachestat == Some(Ok(()));
        let untold = sample.may_not_wait != Some(Ok(())) && !sample.is_told && !by_cachestat;
        let found = match untold {
            true => format!("not tried: nobody tells what of {} files is cached", sample.files),
            false => format!("none: of {} files all that was asked about is cached", sample.files),
        };
        return Line::ok(about::COLD_READ, found);
    };
    let takes = format!("takes {}", milliseconds(middle.ns));
    let bytes: usize = reads.iter().map(|read| read.bytes).sum();
    let of = format!("{}, {bytes} bytes, of {}", times(reads.len()), middle.file.display());
    match middle.ns {
        SLOW_NS.. => Line::ok(about::COLD_READ, format!("{takes}: programs that read much will gain ({of})")),
        QUICK_NS.. => Line::ok(
            about::COLD_READ,
            format!("{takes}: programs that read much gain, short ones may not ({of})"),
        ),
        _ => Line::limits(about::COLD_READ, format!("{takes}: a quick disk, little to gain ({of})"))
            .mended_by("runahead stat -- COMMAND   (says how much of its time it waits)"),
    }
}

fn times(count: usize) -> String {
    if count == 1 { "one read".to_owned() } else { format!("{count} reads") }
}

fn milliseconds(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    if ms < 1.0 { format!("{ms:.2} ms") } else { format!("{ms:.1} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::line::Verdict;

    const HERE: &str = "/data";

    fn told(sample: &Sample, kind: &str) -> Vec<Line> {
        super::sample(sample, Path::new(HERE), kind, &Surroundings::default())
    }

    fn verdicts(lines: &[Line]) -> Vec<(&str, Verdict)> {
        lines.iter().map(|line| (&line.about[..], line.verdict)).collect()
    }

    fn plain() -> Sample {
        Sample {
            files: 3,
            may_not_wait: Some(Ok(())),
            is_told: true,
            cachestat: Some(Ok(())),
            is_kept: Some(true),
            ..Sample::default()
        }
    }

    fn reads(times: &[u64]) -> Vec<ColdRead> {
        times.iter().map(|&ns| ColdRead { file: "/data/x".into(), bytes: 4096, ns }).collect()
    }

    #[test]
    fn memory_and_servers_of_one_thread_are_told_from_disks() {
        let of = |kind: &str| {
            let mount = Mount { kind: kind.into(), source: "a".into() };
            file_system(Path::new(HERE), Some(&mount)).verdict
        };
        assert_eq!(of("ext4"), Verdict::Ok);
        assert_eq!(of("overlay"), Verdict::Ok);
        assert_eq!(of("tmpfs"), Verdict::Stops);
        assert_eq!(of("fuse.sshfs"), Verdict::Limits);
        assert_eq!(of("squashfs"), Verdict::Limits);
        assert_eq!(file_system(Path::new(HERE), None).verdict, Verdict::Ok);
    }

    #[test]
    fn the_middle_one_of_the_cold_reads_counts() {
        for (times, verdict) in [
            (&[1_100_000, 20_000, 900_000][..], Verdict::Ok),
            (&[200_000], Verdict::Ok),
            (&[60_000, 50_000, 3_000_000], Verdict::Limits),
        ] {
            let lines = told(&Sample { cold: reads(times), ..plain() }, "ext4");
            assert_eq!(verdicts(&lines), [(about::CACHED, Verdict::Ok), (about::COLD_READ, verdict)]);
        }
        let lines = told(&Sample { cold: reads(&[1_100_000]), ..plain() }, "ext4");
        assert!(lines[1].found.starts_with("takes 1.1 ms"), "{lines:?}");
        assert!(lines[1].found.contains("4096 bytes") && lines[1].found.contains("/data/x"));
        let lines = told(&plain(), "ext4");
        assert!(lines[1].found.contains("all that was asked about is cached"));
    }

    #[test]
    fn where_only_the_owner_is_told_others_gain_less() {
        let refused = Sample { may_not_wait: Some(Err(libc::EOPNOTSUPP)), owner: 1000, ..plain() };
        assert_eq!(told(&refused, "overlay")[0].verdict, Verdict::Ok);
        let strange = Sample { is_told: false, ..refused };
        let lines = told(&strange, "overlay");
        assert_eq!(lines[0].verdict, Verdict::Limits);
        assert_eq!(lines[0].remedy.as_deref(), Some("sudo -u '#1000' runahead run -- COMMAND"));
        assert!(lines[1].found.contains("nobody tells"), "{lines:?}");
        let around = Surroundings { in_container: true, ..Surroundings::default() };
        let lines = super::sample(&strange, Path::new(HERE), "overlay", &around);
        assert!(lines[0].remedy.as_deref().unwrap().contains("--user 1000"));
        // By cachestat, which FUSE has and an overlay has not.
        assert!(told(&strange, "fuse.x")[1].found.contains("all that was asked about is cached"));
        let closed = Sample { cachestat: Some(Err(libc::EPERM)), ..strange };
        assert!(told(&closed, "fuse.x")[0].found.contains("cachestat: EPERM"));
    }

    #[test]
    fn without_a_page_cache_nothing_is_gained() {
        let passed = Sample { is_kept: Some(false), ..plain() };
        for (kind, helps) in [("fuse", Some("direct_io")), ("9p", Some("cache=loose")), ("x", None)] {
            let lines = told(&passed, kind);
            assert_eq!(verdicts(&lines), [(about::PAGE_CACHE, Verdict::Stops)]);
            assert_eq!(lines[0].remedy.is_some(), helps.is_some());
            assert!(helps.is_none_or(|helps| lines[0].remedy.as_deref().unwrap().contains(helps)));
        }
        let dax = told(&Sample { is_dax: true, ..plain() }, "xfs");
        assert_eq!(verdicts(&dax), [(about::PAGE_CACHE, Verdict::Stops)]);
    }

    #[test]
    fn an_empty_folder_says_so() {
        let lines = told(&Sample { refused: Some(libc::EACCES), ..Sample::default() }, "ext4");
        assert_eq!(verdicts(&lines), [(about::COLD_READ, Verdict::Ok)]);
        assert!(lines[0].found.contains("EACCES"));
        assert_eq!(missing(Path::new("/x"), libc::ENOENT).verdict, Verdict::Stops);
    }

    #[test]
    fn a_disk_is_named_with_what_it_reads_ahead() {
        let vda = Device { name: "vda".into(), read_ahead_kb: Some(128), rotates: true };
        assert_eq!(device(&vda).found, "vda, read-ahead 128 KB, said to rotate");
        let sda = Device { read_ahead_kb: Some(8192), rotates: false, ..vda };
        assert_eq!(device(&sda).found, "vda, read-ahead 8 MB");
    }
}
