//! Makes the data cold, and looks whether they are.
//!
//! Page cache, names and inodes are dropped for the whole machine, then a sample of the workload's files
//! is asked for resident pages. Asking opens the files, which warms their names again: those are
//! dropped once more, which leaves pages alone.
//!
//! Some workloads begin with a part of their data cached: so many percent of the pages, in no order. Each stretch of
//! them is asked for by itself, with nothing read around it.
//!
//! An ordinary user can only ask the kernel to drop the files' own pages. Names stay cached then, and
//! results say so.
//!
//! A real disk may have a cache of its own that nobody can drop: a virtual machine's has its host's. What was ever read
//! takes 65 us there, what was not some milliseconds. A program alone reads the same places in each run, and finds them
//! all there but for the first; a wrong request goes to a place that nobody has read. (A chain of 4000 reads took
//! 0.33 s alone and 1.2 to 7.2 under Runahead, by 1000 requests in vain; 0.32 after all of the file had been read once.) So all of
//! the data are read once before anything is measured, and each configuration finds that cache alike.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench_programs::scramble;

use crate::drops::{Watch, What};
use crate::limit;

/// At most so many files are asked: enough to see a cache that was not dropped, in a few milliseconds.
const SAMPLE: usize = 200;

/// What the sample showed.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Sample {
    pub files: usize,
    pub pages: u64,
    /// Of these pages, in memory: 0 is cold.
    pub resident: u64,
}

/// Whether this process may drop caches; otherwise only the files' own pages go.
pub fn may_drop_caches() -> bool {
    fs::OpenOptions::new().write(true).open("/proc/sys/vm/drop_caches").is_ok()
}

/// A page that somebody reads or holds at the moment is not dropped, so the sample may ask for another
/// go; more than this means that the data are in use.
const ATTEMPTS: usize = 4;

/// Drops all caches, or what may be dropped, and samples `files` below `disk`.
/// `watch` is told.
pub fn make_cold(disk: &Path, files: &[String], watch: &mut Watch) -> Result<Sample> {
    let all = may_drop_caches();
    let mut found = Sample::default();
    for _ in 0..ATTEMPTS {
        // SAFETY: sync has no preconditions and cannot fail.
        unsafe { libc::sync() };
        if all {
            drop_caches(What::All, watch)?;
        } else {
            files.iter().for_each(|name| drop_pages(&disk.join(name)));
        }
        found = sample(disk, files)?;
        if found.resident == 0 {
            break;
        }
    }
    if all {
        drop_caches(What::Names, watch)?;
    }
    Ok(found)
}

/// How long what was asked for may take to arrive: a hundred times what a fast disk needs for a gigabyte.
const ARRIVING: Duration = Duration::from_secs(60);

/// What has not come by then is asked for again: a machine that throws idle pages out takes some back while the others come.
/// (Asked for once, a run was prepared for a minute and had 380 of 2000 pages.)
const ASKED_AGAIN: Duration = Duration::from_secs(1);

/// Brings so many percent of the files' pages in and returns when they are there. Samples them then.
pub fn bring_in(disk: &Path, files: &[String], percent: u64) -> Result<Sample> {
    for name in files {
        let path = disk.join(name);
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        let wanted: Vec<bool> =
            (0..file.metadata()?.len().div_ceil(PAGE)).map(|page| scramble(page) % 100 < percent).collect();
        let begin = Instant::now();
        loop {
            let missing = missing(&file, &wanted)?;
            if !missing.contains(&true) || begin.elapsed() >= ARRIVING {
                break;
            }
            ask(&file, &missing);
            let asked = Instant::now();
            while self::missing(&file, &missing)?.contains(&true) && asked.elapsed() < ASKED_AGAIN {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    sample(disk, files)
}

fn ask(file: &File, wanted: &[bool]) {
    for (offset, length) in limit::runs(wanted) {
        // SAFETY: advice on a descriptor of our own.
        unsafe {
            libc::posix_fadvise(file.as_raw_fd(), offset as i64, length as i64, libc::POSIX_FADV_WILLNEED)
        };
    }
}

/// Which of the wanted pages are not there.
fn missing(file: &File, wanted: &[bool]) -> Result<Vec<bool>> {
    Ok(resident(file)?.iter().zip(wanted).map(|(there, wanted)| *wanted && !*there).collect())
}

/// Reads so many files at a time: a disk that answers in milliseconds what it has not cached is asked for much at once.
const READERS: usize = 16;

/// Reads all of the files from the disk, past what the page cache holds of them: once what was written lately has gone out, since
/// pages that wait for that stay. What cannot be read is left out: it is the workload that will say so.
pub fn read_once(disk: &Path, files: &[String]) {
    // SAFETY: sync has no preconditions and cannot fail.
    unsafe { libc::sync() };
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                while let Some(name) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let path = disk.join(name);
                    // Neither links, whose files have their own turn, nor what one could wait at forever.
                    if path.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
                        drop_pages(&path);
                        let _ = File::open(&path).map(|mut file| io::copy(&mut file, &mut io::sink()));
                    }
                }
            });
        }
    });
}

/// One file's pages; what cannot be opened has none.
fn drop_pages(path: &Path) {
    if let Ok(file) = File::open(path) {
        // SAFETY: advice on a descriptor of our own.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
}

fn drop_caches(what: What, watch: &mut Watch) -> Result<()> {
    let number = match what {
        What::Names => "2",
        What::All => "3",
    };
    fs::write("/proc/sys/vm/drop_caches", number).context("cannot drop caches; run the bench as root")?;
    watch.dropped(what);
    Ok(())
}

/// Resident pages of evenly spread files.
pub fn sample(disk: &Path, files: &[String]) -> Result<Sample> {
    let mut sample = Sample::default();
    let step = files.len().div_ceil(SAMPLE).max(1);
    for name in files.iter().step_by(step) {
        let path = disk.join(name);
        // Of a link only the name is read.
        if !path.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
            continue;
        }
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        let pages = resident(&file)?;
        sample.files += 1;
        sample.pages += pages.len() as u64;
        sample.resident += pages.iter().filter(|page| **page).count() as u64;
    }
    Ok(sample)
}

pub const PAGE: u64 = 4096;

/// For each page of the file, whether it is in memory (mincore: pages still in flight do not count).
pub fn resident(file: &File) -> Result<Vec<bool>> {
    let length = usize::try_from(file.metadata()?.len())?;
    if length == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: a fresh read-only mapping at an address that the kernel chooses; it is never read through.
    let start = unsafe {
        libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    ensure!(
        start != libc::MAP_FAILED,
        "cannot map a file to see what is cached: {}",
        std::io::Error::last_os_error()
    );
    let mut pages = vec![0u8; length.div_ceil(PAGE as usize)];
    // SAFETY: the range is the mapping just made, and the vector holds a byte for each of its pages.
    let result = unsafe { libc::mincore(start, length, pages.as_mut_ptr()) };
    let error = std::io::Error::last_os_error();
    // SAFETY: the mapping is ours and nothing refers to it.
    unsafe { libc::munmap(start, length) };
    ensure!(result == 0, "mincore failed: {error}");
    Ok(pages.into_iter().map(|page| page & 1 == 1).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, PoisonError};

    /// Held by whoever has much read from the disk, or counts what is.
    static READING: Mutex<()> = Mutex::new(());

    #[test]
    fn a_file_just_written_is_resident_and_a_cold_one_is_not() {
        let directory = std::env::temp_dir().join(format!("runahead-bench-cold-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("file"), vec![1u8; 10 * PAGE as usize]).unwrap();
        let files = vec!["file".to_string()];
        let warm = sample(&directory, &files).unwrap();
        assert_eq!((warm.files, warm.pages, warm.resident), (1, 10, 10));
        File::open(directory.join("file")).unwrap().sync_all().unwrap();
        drop_pages(&directory.join("file"));
        assert_eq!(sample(&directory, &files).unwrap().resident, 0);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn all_files_are_read_past_the_page_cache() {
        let _reading = READING.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile("once");
        let names: Vec<String> = (0..40).map(|number| format!("file-{number}")).collect();
        // Nothing that a file system could make less of.
        let contents: Vec<u8> = (0..50 * PAGE / 8).flat_map(|word| scramble(word).to_le_bytes()).collect();
        // Just written: all of them are in memory, and nowhere else.
        for name in &names {
            fs::write(directory.join(name), &contents).unwrap();
        }
        assert_eq!(sample(&directory, &names).unwrap().resident, 2000);
        let with_others = [&["missing".to_string(), ".".to_string()], &names[..]].concat();
        // Of all threads, since it makes some.
        let before = bytes_read("self");
        read_once(&directory, &with_others);
        let read = bytes_read("self") - before;
        let found = sample(&directory, &names).unwrap();
        assert_eq!((found.files, found.resident), (40, 2000));
        if is_counted(&directory) {
            let bytes = 2000 * PAGE;
            assert!(read >= bytes, "{read} bytes of {bytes} came from the disk");
        } else {
            eprintln!(
                "SKIPPED whether files come from the disk: the file system here does not count what does"
            );
        }
        fs::remove_dir_all(directory).unwrap();
    }

    /// Bytes that came from disks: of all threads of the process ("self") or of this one ("thread-self").
    fn bytes_read(of: &str) -> u64 {
        let counts = fs::read_to_string(format!("/proc/{of}/io")).unwrap();
        let line = counts.lines().find_map(|line| line.strip_prefix("read_bytes: "));
        line.unwrap().parse().unwrap()
    }

    /// Whether what is read there counts: one page that was written out and dropped is read again.
    fn is_counted(directory: &Path) -> bool {
        let path = directory.join("counted");
        fs::write(&path, vec![1u8; PAGE as usize]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        drop_pages(&path);
        let before = bytes_read("thread-self");
        fs::read(&path).unwrap();
        bytes_read("thread-self") > before
    }

    #[test]
    fn a_share_of_the_pages_is_brought_in() {
        let _reading = READING.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile("share");
        fs::write(directory.join("file"), vec![1u8; 2000 * PAGE as usize]).unwrap();
        File::open(directory.join("file")).unwrap().sync_all().unwrap();
        drop_pages(&directory.join("file"));
        let files = vec!["file".to_string()];
        let share = bring_in(&directory, &files, 90).unwrap();
        assert!((1740..=1860).contains(&share.resident), "{share:?}");
        fs::remove_dir_all(directory).unwrap();
    }

    /// Not in memory, where nothing is ever cold.
    fn tempfile(name: &str) -> std::path::PathBuf {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../target/runahead-bench-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        directory
    }
}
