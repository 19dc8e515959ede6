//! A folder or a file: on what it lies, and what can be known of what is cached there.
//!
//! Harmless: files are opened for reading, without following links and without waiting; what is read is three
//! blocks at most, and as little of them as the file system lets anybody read.

use super::machine::Surroundings;
use super::number;
use crate::disks;
use crate::doctor::apart::Say;
use crate::doctor::verdicts::place as say;
use runahead_kernel::files::{self, IoVec, RWF_NOWAIT};
use runahead_kernel::memory::{self, PROT_READ};
use runahead_kernel::process::monotonic_ns;
use runahead_kernel::uapi::general as n;
use runahead_kernel::{Errno, PAGE};
use rustix::fs::{Advice, AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags, fadvise, openat, statx};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Looks at `path`, and says what it finds as it finds it.
pub fn look(path: &Path, around: &Surroundings, to: &mut Say) {
    let told = match fs::metadata(path) {
        Ok(told) => told,
        Err(error) => return to.line(&say::missing(path, number(&error))),
    };
    // The path itself may be a link.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mount = Mount::of(path, told.dev());
    to.line(&say::file_system(path, mount.as_ref()));
    let kind = mount.as_ref().map_or("", |mount| &mount.kind);
    if say::is_in_memory(kind) {
        return;
    }
    if let Some(device) = Device::find(told.dev()) {
        to.line(&say::device(&device));
    }
    let sample = Sample::take(path, &told, kind == "overlay");
    say::sample(&sample, path, kind, around).iter().for_each(|line| to.line(line));
}

/// What is mounted there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    pub kind: String,
    pub source: String,
}

impl Mount {
    fn of(path: &Path, device: u64) -> Option<Mount> {
        let told = statx(CWD, path, AtFlags::empty(), StatxFlags::from_bits_retain(STATX_MNT_ID)).ok()?;
        // Before Linux 5.8 there is no such number.
        let number = (told.stx_mask & STATX_MNT_ID != 0).then_some(told.stx_mnt_id);
        Mount::find(&fs::read_to_string("/proc/self/mountinfo").ok()?, number, device)
    }

    /// The line of `mountinfo` (proc(5)) with this number, or else the last one of this device.
    fn find(lines: &str, number: Option<u64>, device: u64) -> Option<Mount> {
        let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let line = lines.lines().rev().find(|line| {
            let mut words = line.split(' ');
            let id = words.next().and_then(|word| word.parse::<u64>().ok());
            match number {
                Some(number) => id == Some(number),
                None => words.nth(1) == Some(&device),
            }
        })?;
        let mut words = line.split_once(" - ")?.1.split(' ');
        Some(Mount { kind: words.next()?.into(), source: words.next()?.into() })
    }
}

const STATX_MNT_ID: u32 = 0x1000;

/// The disk below, where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub name: String,
    pub read_ahead_kb: Option<u64>,
    pub rotates: bool,
}

impl Device {
    fn find(number: u64) -> Option<Device> {
        let disk = disks::counts(number)?.parent()?.canonicalize().ok()?;
        let read = |name: &str| fs::read_to_string(disk.join("queue").join(name)).ok();
        Some(Device {
            name: disk.file_name()?.to_string_lossy().into_owned(),
            read_ahead_kb: read("read_ahead_kb").and_then(|text| text.trim().parse().ok()),
            rotates: read("rotational").is_some_and(|text| text.trim() == "1"),
        })
    }
}

/// What came of looking at files there.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Regular files with something in them that were opened, and why another could not be.
    pub files: usize,
    pub refused: Option<i32>,
    /// A read that may not wait (`RWF_NOWAIT`), of the first.
    pub may_not_wait: Option<Result<(), i32>>,
    /// Whether a mapping of it tells what is cached (mincore).
    pub is_told: bool,
    pub owner: u32,
    /// `cachestat` on it.
    pub cachestat: Option<Result<(), i32>>,
    /// The file system goes past the page cache (DAX).
    pub is_dax: bool,
    /// What was read is cached since; None: nobody can tell, or nothing was read.
    pub is_kept: Option<bool>,
    pub cold: Vec<ColdRead>,
}

/// A read that waited for the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColdRead {
    pub file: PathBuf,
    pub bytes: usize,
    pub ns: u64,
}

/// Bounds of the search for something that is not cached.
const ENTRIES_MOST: usize = 5000;
const SEARCHES: Duration = Duration::from_millis(800);
const COLD_MOST: usize = 3;

impl Sample {
    fn take(path: &Path, told: &fs::Metadata, is_overlay: bool) -> Sample {
        let mut sample = Sample::default();
        let end = Instant::now() + SEARCHES;
        if told.is_file() {
            sample.consider(path, is_overlay);
            return sample;
        }
        let (mut folders, mut entries) = (vec![path.to_owned()], 0);
        while let Some(folder) = folders.pop() {
            let listed = match fs::read_dir(&folder) {
                Ok(listed) => listed,
                Err(error) => {
                    sample.refused = Some(number(&error));
                    continue;
                }
            };
            for entry in listed.flatten() {
                entries += 1;
                if entries > ENTRIES_MOST || Instant::now() > end || sample.cold.len() >= COLD_MOST {
                    return sample;
                }
                let Ok(kind) = entry.file_type() else { continue };
                let is_here = || entry.metadata().is_ok_and(|found| found.dev() == told.dev());
                if kind.is_file() && is_here() {
                    sample.consider(&entry.path(), is_overlay);
                } else if kind.is_dir() && is_here() {
                    folders.push(entry.path());
                }
            }
        }
        sample
    }

    /// Looks at a file, and reads something of it that is not cached.
    fn consider(&mut self, path: &Path, is_overlay: bool) {
        let file = match open(path) {
            Ok(file) => file,
            Err(error) => return self.refused = Some(number(&error)),
        };
        let Ok(told) = file.metadata() else { return };
        if !told.is_file() || told.size() == 0 {
            return;
        }
        // What is read around it would be more than was asked for.
        let _ = fadvise(&file, 0, None, Advice::Random);
        if self.files == 0 {
            self.introduce(&file, &told);
        }
        self.files += 1;
        let tells = Tells::of(self, is_overlay);
        for place in places(told.size()) {
            if self.cold.len() >= COLD_MOST {
                return;
            }
            if let Some((bytes, ns)) = read_if_cold(&file, place, tells) {
                self.cold.push(ColdRead { file: path.to_owned(), bytes, ns });
                if self.is_kept.is_none() {
                    self.is_kept = tells.is_cached(&file, place);
                }
            }
        }
    }

    /// What the first file tells of all.
    fn introduce(&mut self, file: &File, told: &fs::Metadata) {
        self.may_not_wait = Some(match read_without_waiting(file, 0) {
            Ok(_) | Err(Errno::EAGAIN) => Ok(()),
            Err(error) => Err(error.0),
        });
        self.is_told = is_told(file, told.size());
        self.owner = told.uid();
        let cached = files::cached_pages(file.as_raw_fd(), 0, PAGE as u64);
        self.cachestat = Some(cached.map(drop).map_err(|error| error.0));
        let attributes = statx(file.as_fd(), c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
        self.is_dax = attributes.is_ok_and(|told| told.stx_attributes.contains(StatxAttributes::DAX));
    }
}

/// Who tells whether a page of a file is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tells {
    Read,
    Mapping,
    Cachestat,
    Nobody,
}

impl Tells {
    fn of(sample: &Sample, is_overlay: bool) -> Tells {
        match sample.may_not_wait {
            Some(Ok(())) => Tells::Read,
            _ if sample.is_told => Tells::Mapping,
            // An overlay's says that nothing ever is.
            _ if !is_overlay && sample.cachestat == Some(Ok(())) => Tells::Cachestat,
            _ => Tells::Nobody,
        }
    }

    fn is_cached(self, file: &File, place: u64) -> Option<bool> {
        match self {
            Tells::Read => match read_without_waiting(file, place) {
                Ok(got) => Some(got > 0),
                Err(error) => (error == Errno::EAGAIN).then_some(false),
            },
            Tells::Mapping => mapped_is_cached(file, place),
            Tells::Cachestat => Some(files::cached_pages(file.as_raw_fd(), place, PAGE as u64).ok()? > 0),
            Tells::Nobody => None,
        }
    }
}

/// Reads a page, if it is known not to be cached: its bytes, and how long it took.
fn read_if_cold(file: &File, place: u64, tells: Tells) -> Option<(usize, u64)> {
    // The question may have started the read already.
    let began = monotonic_ns();
    if tells.is_cached(file, place)? {
        return None;
    }
    let began = if tells == Tells::Read { began } else { monotonic_ns() };
    let got = file.read_at(&mut [0; PAGE], place).ok()?;
    Some((got, monotonic_ns() - began))
}

fn read_without_waiting(file: &File, place: u64) -> Result<usize, Errno> {
    let mut page = [0u8; PAGE];
    let piece = [IoVec { base: (&raw mut page) as usize, length: PAGE }];
    // SAFETY: the piece is `page`.
    unsafe { files::preadv2(file.as_raw_fd(), &piece, place as i64, RWF_NOWAIT) }
}

/// To who may not know, all is said to be cached, what lies behind a file's end as well.
fn is_told(file: &File, size: u64) -> bool {
    mapped_is_cached(file, size.next_multiple_of(PAGE as u64)) == Some(false)
}

fn mapped_is_cached(file: &File, place: u64) -> Option<bool> {
    let mut told = [0];
    let fd = file.as_raw_fd();
    // SAFETY: a new mapping, which nobody touches.
    let address = unsafe { memory::map(0, PAGE, PROT_READ, n::MAP_PRIVATE, fd, place) }.ok()?;
    let answer = memory::cached_pages(address, PAGE, &mut told);
    // SAFETY: what was mapped above.
    let _ = unsafe { memory::unmap(address, PAGE) };
    answer.ok().map(|()| told[0] & 1 != 0)
}

/// Pages of a file that lie apart.
fn places(size: u64) -> Vec<u64> {
    let mut places: Vec<u64> =
        [size / 2, size / 4, size / 4 * 3, 0].map(|place| place & !(PAGE as u64 - 1)).into();
    places.dedup();
    if places.iter().all(|place| *place == 0) {
        places.truncate(1);
    }
    places
}

/// Opens a file without being noticed, as far as that is allowed.
fn open(path: &Path) -> io::Result<File> {
    let quietly = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    // The owner's alone.
    let opened = openat(CWD, path, quietly | OFlags::NOATIME, Mode::empty())
        .or_else(|_| openat(CWD, path, quietly, Mode::empty()))?;
    Ok(File::from(opened))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number_or_device() {
        let lines = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
                     37 35 0:45 / / rw - overlay overlay rw,lowerdir=/a\n";
        let device = rustix::fs::makedev(98, 0);
        let ext3 = Mount { kind: "ext3".into(), source: "/dev/root".into() };
        assert_eq!(Mount::find(lines, Some(36), 0), Some(ext3.clone()));
        assert_eq!(Mount::find(lines, None, device), Some(ext3));
        assert_eq!(Mount::find(lines, Some(37), device).unwrap().kind, "overlay");
        assert_eq!(Mount::find(lines, Some(1), device), None);
        assert_eq!(Mount::find("", None, device), None);
    }

    #[test]
    fn places_are_pages_within_the_file() {
        assert_eq!(places(1), [0]);
        assert_eq!(places(4096), [0]);
        let large = places(1 << 20);
        assert_eq!(large.len(), 4);
        assert!(large.iter().all(|place| place % 4096 == 0 && *place < 1 << 20));
        for size in [5000, 9000, 20_000] {
            let places = places(size);
            assert!(places.iter().all(|place| *place < size), "{size}: {places:?}");
        }
    }

    #[test]
    fn a_file_of_ours_is_sampled() {
        let path = std::env::current_exe().unwrap();
        let told = fs::metadata(&path).unwrap();
        let sample = Sample::take(&path, &told, false);
        assert_eq!((sample.files, sample.owner), (1, told.uid()));
        assert!(sample.cold.iter().all(|read| read.bytes <= PAGE));
        assert!(Mount::of(&path, told.dev()).is_some());
    }
}
