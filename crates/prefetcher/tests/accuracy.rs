//! A source is judged by whether its program reads what it named. In a process of its own, since it is the
//! process's reads that count. The files are sparse: no disk is worn out.

use runahead_prefetcher::{Counts, Hint, Options, Place, Prefetcher};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

fn hint(path: &Path, length: u64) -> Hint<'_> {
    Hint { place: Place::Path(path.as_os_str().as_bytes()), offset: 0, length, token: 0 }
}

/// Waits for a state, however long a busy machine takes.
fn until(prefetcher: &Prefetcher, condition: impl Fn(&Counts) -> bool) -> Counts {
    let began = Instant::now();
    loop {
        let counts = prefetcher.counts();
        if condition(&counts) {
            return counts;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{counts:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What anybody may have fetched and not used, in pages: 128 MB, and the jobs that ran at that moment.
const ON_TRUST: u64 = 34_000;

#[test]
fn who_is_right_may_go_on_and_who_is_wrong_is_stopped() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let sparse = |name: String, length| {
        let path = folder.path().join(name);
        std::fs::File::create(&path).unwrap().set_len(length).unwrap();
        path
    };

    // Reads what it names, 160 MB, more than the 128 that anybody may have fetched and not used. (In 160 files:
    // the rest of a long run would be left to the kernel's read-ahead, once the reads show that it keeps up.)
    let files: Vec<_> = (0..160).map(|number| sparse(format!("file{number}"), 1 << 20)).collect();
    let right = Prefetcher::new(Options::default());
    right.hint(&files.iter().map(|file| hint(file, 0)).collect::<Vec<_>>());
    until(&right, |counts| counts.asked_pages > 4_000);
    for file in &files {
        std::fs::read(file).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    let after = until(&right, |counts| counts.asked_pages + counts.cached_pages == 40_960);
    // On a busy machine some wait so long for their reader that they count as not used.
    assert!(after.used_pages > after.unused_pages, "{after:?}");
    drop(right);

    // Reads nothing of what it names, 1 GB: 128 MB are fetched on trust, and then next to nothing.
    let other = sparse("other".into(), 1 << 30);
    let wrong = Prefetcher::new(Options::default());
    wrong.hint(&[hint(&other, 0)]);
    let given_up =
        |counts: &Counts| counts.asked_pages > 4_000 && counts.unused_pages > counts.asked_pages / 10 * 7;
    let counts = until(&wrong, given_up);
    assert!(counts.asked_pages < ON_TRUST, "{counts:?}");
    std::thread::sleep(Duration::from_secs(1));
    let counts = wrong.counts();
    assert!(counts.asked_pages < ON_TRUST, "{counts:?}");
    // The kernel's figures under /proc count as read, too.
    assert!(counts.used_pages < 32, "{counts:?}");
    assert_eq!(counts.left_pages, 0, "{counts:?}");
}
