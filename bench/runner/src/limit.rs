//! What could be reached at best.
//!
//! Two bounds, both measured. The *warm* run: everything cached, so the program never waits. The
//! *replay*: the very requests of a cold run, made 64 at a time by nobody who computes; the disk cannot
//! deliver faster. Which requests those are is read off the page cache after a cold run. A perfect
//! prefetcher hides the shorter behind the longer, so the limit is the greater of the two.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::cold::{PAGE, resident};

/// Requests in flight during a replay.
pub const DEPTH: usize = 64;

/// The longest single request, the kernel's read-ahead by default.
const REQUEST: u64 = 128 << 10;

/// Requests of one file that one thread makes in a row: the whole of a source file, a small part of a
/// database.
const TOGETHER: usize = 4;

/// What a cold run left in the page cache.
#[derive(Debug, Default)]
pub struct Requests {
    tasks: Vec<Task>,
    pub pages: u64,
}

#[derive(Debug)]
struct Task {
    /// Index into the list of files.
    file: usize,
    /// Offset and length; none: the name alone.
    parts: Vec<(u64, u64)>,
}

/// Looks up what is resident of `files` below `disk`. With `contents` false, names alone count.
pub fn capture(disk: &Path, files: &[String], contents: bool) -> Result<Requests> {
    let mut requests = Requests::default();
    for (index, name) in files.iter().enumerate() {
        let path = disk.join(name);
        let mut parts = Vec::new();
        if contents && path.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
            let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
            let pages = resident(&file)?;
            requests.pages += pages.iter().filter(|page| **page).count() as u64;
            parts = runs(&pages);
        }
        if parts.is_empty() {
            requests.tasks.push(Task { file: index, parts });
        } else {
            requests
                .tasks
                .extend(parts.chunks(TOGETHER).map(|parts| Task { file: index, parts: parts.to_vec() }));
        }
    }
    Ok(requests)
}

/// Stretches of resident pages, cut into requests.
pub fn runs(pages: &[bool]) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for (index, _) in pages.iter().enumerate().filter(|(_, resident)| **resident) {
        let offset = index as u64 * PAGE;
        match found.last_mut() {
            Some((start, length)) if *start + *length == offset && *length < REQUEST => *length += PAGE,
            _ => found.push((offset, PAGE)),
        }
    }
    found
}

/// Makes the requests, [`DEPTH`] at a time. Returns seconds.
pub fn replay(disk: &Path, files: &[String], requests: &Requests) -> Result<f64> {
    let next = AtomicUsize::new(0);
    let begin = Instant::now();
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..DEPTH)
            .map(|_| {
                scope.spawn(|| {
                    let mut buffer = vec![0; REQUEST as usize];
                    while let Some(task) = requests.tasks.get(next.fetch_add(1, Relaxed)) {
                        perform(&disk.join(&files[task.file]), &task.parts, &mut buffer)?;
                    }
                    Ok(())
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| anyhow::bail!("a thread panicked")))
            .collect()
    });
    results.into_iter().collect::<Result<()>>()?;
    Ok(begin.elapsed().as_secs_f64())
}

fn perform(path: &Path, parts: &[(u64, u64)], buffer: &mut [u8]) -> Result<()> {
    if parts.is_empty() {
        // The look-up is the request; what it says is nobody's concern.
        let _ = fs::symlink_metadata(path);
        return Ok(());
    }
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    for (offset, length) in parts {
        file.read_at(&mut buffer[..*length as usize], *offset)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_joined_and_cut() {
        let mut pages = vec![true; 40];
        pages[35] = false;
        assert_eq!(runs(&pages), vec![(0, REQUEST), (REQUEST, 3 * PAGE), (36 * PAGE, 4 * PAGE)]);
        assert_eq!(runs(&[]), vec![]);
        assert_eq!(runs(&[false, false]), vec![]);
    }

    #[test]
    fn what_is_cached_is_captured_and_replayed() {
        let directory = std::env::temp_dir().join(format!("runahead-bench-limit-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("a"), vec![1u8; 300 << 10]).unwrap();
        fs::write(directory.join("empty"), "").unwrap();
        let files = vec!["a".to_string(), "empty".to_string()];
        let requests = capture(&directory, &files, true).unwrap();
        assert_eq!(requests.pages, 75);
        assert_eq!(requests.tasks.len(), 2);
        assert!(replay(&directory, &files, &requests).unwrap() > 0.0);
        assert!(capture(&directory, &files, false).unwrap().tasks.iter().all(|task| task.parts.is_empty()));
        fs::remove_dir_all(directory).unwrap();
    }
}
