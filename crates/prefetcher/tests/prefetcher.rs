//! The whole prefetcher on real files: what is hinted gets cached, what cannot be done is counted and dropped.

use runahead_prefetcher::limits::Options;
use runahead_prefetcher::{Counts, Hint, Lookup, Place, Prefetcher};
use rustix::fs::{Advice, FileType, Mode};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn path(path: &Path) -> Hint<'_> {
    Hint { place: Place::Path(path.as_os_str().as_bytes()), offset: 0, length: 0, token: 0 }
}

/// A folder on a real disk: what lies in memory only cannot be dropped from the cache.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// `count` files of `size` bytes, out of the page cache.
fn cold_files(folder: &Path, count: usize, size: usize) -> Vec<PathBuf> {
    let files: Vec<PathBuf> = (0..count).map(|number| folder.join(format!("file{number}"))).collect();
    for path in &files {
        std::fs::write(path, vec![7; size]).unwrap();
    }
    files.iter().for_each(|path| drop_cache(path));
    files
}

fn drop_cache(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    assert_eq!(cached_pages(path), 0, "{}", path.display());
}

fn cached_pages(path: &Path) -> usize {
    let file = std::fs::File::open(path).unwrap();
    let length = file.metadata().unwrap().len() as usize;
    let mut pages = vec![0u8; length.div_ceil(4096)];
    // SAFETY: a private mapping of the file, asked about and unmapped again.
    unsafe {
        let address =
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
        assert_ne!(address, libc::MAP_FAILED);
        assert_eq!(libc::mincore(address, length, pages.as_mut_ptr()), 0);
        libc::munmap(address, length);
    }
    pages.iter().filter(|page| **page & 1 == 1).count()
}

/// Waits until the condition holds; a prefetcher that never gets there fails the test.
fn until(prefetcher: &Prefetcher, what: &str, condition: impl Fn(&Counts) -> bool) -> Counts {
    let began = Instant::now();
    loop {
        let counts = prefetcher.counts();
        if condition(&counts) {
            return counts;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "never happened: {what}; {counts:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn hinted_files_are_cached_whole_and_others_are_not() {
    let folder = folder();
    let files = cold_files(folder.path(), 40, 300_000);
    let prefetcher = Prefetcher::new(Options::default());
    // Each again at once: dropped at the door. (Later it may not be: the door remembers some seconds, and of two
    // hints that share a place in its table the later.)
    files[..30].iter().for_each(|file| prefetcher.hint(&[path(file), path(file)]));
    assert_eq!(prefetcher.counts().repeated, 30);
    until(&prefetcher, "30 files of 74 pages", |counts| counts.asked_pages + counts.cached_pages == 30 * 74);
    assert!(files[..30].iter().all(|file| cached_pages(file) == 74));
    assert!(files[30..].iter().all(|file| cached_pages(file) == 0));
}

/// More pieces of one file than may wait for its opening: all are carried out, none is lost. (Not so many that a busy
/// machine's prefetcher would lose its trust in a giver who reads nothing.)
#[test]
fn thousands_of_pieces_of_one_file() {
    let folder = folder();
    let path = folder.path().join("sparse");
    std::fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    let open = std::fs::File::open(&path).unwrap();
    let prefetcher = Prefetcher::new(Options::default());
    let hints: Vec<Hint> = (0..2_000)
        .map(|at| Hint {
            place: Place::Descriptor(open.as_raw_fd()),
            offset: at * 3 * 4096,
            length: 2048,
            token: 0,
        })
        .collect();
    prefetcher.hint(&hints);
    let counts = until(&prefetcher, "2,000 pages", |counts| counts.jobs >= 2_000);
    assert_eq!((counts.asked_pages, counts.overflowed), (2_000, 0));
}

#[test]
fn segments_by_path_and_by_descriptor() {
    let folder = folder();
    let files = cold_files(folder.path(), 2, 1 << 20);
    let prefetcher = Prefetcher::new(Options::default());
    let open = std::fs::File::open(&files[1]).unwrap();
    for at in 0..8 {
        let (offset, length) = (at * 100_000, 4096);
        prefetcher.hint(&[
            Hint { offset, length, ..path(&files[0]) },
            Hint { place: Place::Descriptor(open.as_raw_fd()), offset, length, token: 0 },
        ]);
    }
    until(&prefetcher, "all jobs", |counts| counts.jobs == 16);
    for file in &files {
        // Each segment touches one or two pages, and nothing around them.
        assert!((8..=16).contains(&cached_pages(file)), "{}", cached_pages(file));
    }
}

#[test]
fn released_pages_leave_the_cache() {
    let folder = folder();
    let files = cold_files(folder.path(), 1, 409_600);
    std::fs::read(&files[0]).unwrap();
    let prefetcher = Prefetcher::new(Options::default());
    prefetcher.release(Place::Path(files[0].as_os_str().as_bytes()), 0, 204_800);
    until(&prefetcher, "50 pages", |counts| counts.released_pages == 50);
    assert_eq!(cached_pages(&files[0]), 50);
}

#[test]
fn memory_that_is_mapped_from_a_file() {
    let folder = folder();
    let files = cold_files(folder.path(), 1, 1 << 20);
    let file = std::fs::File::open(&files[0]).unwrap();
    // SAFETY: a private mapping that lives as long as the process.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), 1 << 20, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
    };
    let prefetcher = Prefetcher::new(Options::default());
    let hint = |offset| Hint { place: Place::Memory, offset, length: 65536, token: 0 };
    prefetcher.hint(&[hint(address as u64 + 131_072), hint(0), hint(1 << 60), hint(i64::MAX as u64)]);
    until(&prefetcher, "all jobs", |counts| counts.jobs >= 4);
    assert!((16..=33).contains(&cached_pages(&files[0])), "{}", cached_pages(&files[0]));
}

/// Maps a whole file at a place that nothing else of this process is near.
fn map_at(address: u64, path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    let length = file.metadata().unwrap().len() as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: takes no place that is taken; lives as long as the process, and is never looked into.
    let mapped =
        unsafe { libc::mmap(address as *mut _, length, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
    assert_eq!(mapped as u64, address);
}

/// Two files that adjoin, a hole in the middle of a request, a third file, a hole longer than any request, a fourth.
#[test]
fn memory_with_holes_is_fetched_where_it_is_mapped() {
    let folder = folder();
    let files = cold_files(folder.path(), 4, 256 << 10);
    let begin = 64 << 30;
    let places = [0, 256 << 10, 576 << 10, 8 << 20];
    places.iter().zip(&files).for_each(|(place, file)| map_at(begin + place, file));
    let prefetcher = Prefetcher::new(Options::default());
    let (offset, length) = (begin, 9 << 20);
    prefetcher.hint(&[Hint { place: Place::Memory, offset, length, token: 0 }]);
    let unmapped = (9 << 20) / 4096 - 4 * 64;
    let counts = until(&prefetcher, "all pages", |counts| counts.asked_pages + counts.unmapped_pages == 2304);
    assert_eq!((counts.asked_pages, counts.unmapped_pages, counts.absurd), (256, unmapped, 1));
    assert!(files.iter().all(|file| cached_pages(file) == 64));
    // Each request that meets a hole goes on behind it.
    assert!(counts.jobs < 60, "{counts:?}");
}

#[test]
fn a_short_hint_for_memory_that_is_not_there_is_counted() {
    let prefetcher = Prefetcher::new(Options::default());
    prefetcher.hint(&[Hint { place: Place::Memory, offset: 4096, length: 8192, token: 0 }]);
    let counts = until(&prefetcher, "two pages", |counts| counts.unmapped_pages == 2);
    assert_eq!(counts.absurd, 1);
}

#[test]
fn a_hint_for_all_memory_ends_where_nothing_is_mapped() {
    let prefetcher = Prefetcher::new(Options::default());
    prefetcher.hint(&[Hint { place: Place::Memory, offset: 4096, length: 1 << 46, token: 0 }]);
    let counts = until(&prefetcher, "the hint is dropped", |counts| counts.absurd == 1);
    assert!(counts.jobs < 100_000, "{counts:?}");
}

#[test]
fn a_file_that_grows_is_read_to_its_present_end() {
    let folder = folder();
    let file = folder.path().join("file");
    std::fs::write(&file, vec![1; 4096]).unwrap();
    let prefetcher = Prefetcher::new(Options::default());
    let other = &cold_files(folder.path(), 1, 4096)[0];
    prefetcher.hint(&[path(&file)]);
    until(&prefetcher, "the file", |counts| counts.jobs == 1);
    std::fs::write(&file, vec![1; 5 * 4096]).unwrap();
    prefetcher.hint(&[path(other), Hint { place: path(&file).place, offset: 4096, length: 0, token: 0 }]);
    until(&prefetcher, "four more pages", |counts| counts.asked_pages + counts.cached_pages == 6);
}

/// Whether a thread of this process has the file open.
fn is_open(path: &Path) -> bool {
    let tables = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    tables
        .filter_map(|task| std::fs::read_dir(task.path().join("fd")).ok())
        .flat_map(|table| table.flatten())
        .any(|descriptor| std::fs::read_link(descriptor.path()).is_ok_and(|file| file == path))
}

#[test]
fn files_whose_pages_nobody_reads_do_not_stay_open() {
    let folder = folder();
    let file = &cold_files(folder.path(), 1, 4 << 20)[0];
    let prefetcher = Prefetcher::new(Options::default());
    prefetcher.hint(&[path(file)]);
    until(&prefetcher, "the file", |counts| counts.asked_pages + counts.cached_pages == 1024);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!is_open(file));
}

#[test]
fn names_are_looked_up_and_listings_followed() {
    let folder = folder();
    cold_files(folder.path(), 20, 10);
    let prefetcher = Prefetcher::new(Options::default());
    let place = Place::Name(folder.path().as_os_str().as_bytes(), Lookup::Entries);
    prefetcher.hint(&[Hint { place, offset: 0, length: 0, token: 0 }]);
    until(&prefetcher, "the listing and 20 entries", |counts| counts.names == 21 && counts.jobs == 21);
}

#[test]
fn what_cannot_be_done_is_counted_and_dropped() {
    let folder = folder();
    let fifo = folder.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let vanished = folder.path().join("vanished");
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let small = folder.path().join("small");
    std::fs::write(&small, "x").unwrap();
    let closed = {
        let file = std::fs::File::open(&small).unwrap();
        file.as_raw_fd() + 500
    };
    let prefetcher = Prefetcher::new(Options::default());
    let far = Hint { offset: 1 << 50, length: 1 << 50, ..path(&small) };
    prefetcher.hint(&[
        path(&fifo),
        path(Path::new("/dev/zero")),
        path(folder.path()),
        path(&vanished),
        path(&empty),
        far,
        Hint { place: Place::Descriptor(closed), offset: 0, length: 0, token: 0 },
        Hint { place: Place::Descriptor(i32::MAX), offset: 0, length: 0, token: 0 },
        Hint { offset: u64::MAX, length: u64::MAX, ..path(&small) },
    ]);
    let counts =
        until(&prefetcher, "all judged", |counts| counts.not_a_file + counts.unreadable + counts.absurd == 9);
    assert_eq!((counts.not_a_file, counts.unreadable, counts.absurd), (3, 3, 3));
    // And it still works.
    prefetcher.hint(&[path(&small)]);
    until(&prefetcher, "one page", |counts| counts.asked_pages + counts.cached_pages == 1);
}

#[test]
fn cancelling_stops_what_has_not_begun() {
    let folder = folder();
    let files = cold_files(folder.path(), 1, 4096);
    // So slow that nearly everything still waits: one page each 40 ms.
    let slow = Options { bandwidth: 100_000, ..Options::default() };
    let prefetcher = Prefetcher::new(slow);
    let hints: Vec<Hint> = (0..500)
        .map(|at| Hint { offset: 0, length: 4096 + at, token: 1 + at % 2, ..path(&files[0]) })
        .collect();
    prefetcher.hint(&hints);
    prefetcher.cancel_all();
    assert!(prefetcher.counts().asked_pages < 20, "{:?}", prefetcher.counts());
    // On a busy machine the first may be carried out before we get to cancelling it, but not every time.
    let cancelled = (0..20).any(|_| {
        let again = cold_files(folder.path(), 3, 4096);
        prefetcher.hint(&[Hint { token: 9, ..path(&again[1]) }, Hint { token: 8, ..path(&again[2]) }]);
        prefetcher.cancel_token(9);
        until(&prefetcher, "the one that was not cancelled", |_| cached_pages(&again[2]) == 1);
        cached_pages(&again[1]) == 0
    });
    assert!(cancelled);
}

/// A page of memory whose first reader waits until it is told to go on: it keeps one thread of the pool busy.
struct Gate {
    faults: libc::c_int,
    address: u64,
}

impl Gate {
    /// None: this user may not hold up the kernel.
    fn new() -> Option<Gate> {
        const API: libc::c_ulong = 0xc018_aa3f;
        const REGISTER: libc::c_ulong = 0xc020_aa00;
        const MISSING: u64 = 1;
        let flags = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a page and a descriptor of our own; the numbers that the calls read and write are ours.
        unsafe {
            let faults = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as libc::c_int;
            if faults < 0 {
                eprintln!("SKIPPED: no userfaultfd for this user");
                return None;
            }
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let address = libc::mmap(std::ptr::null_mut(), 4096, flags, kind, -1, 0) as u64;
            assert_eq!(libc::ioctl(faults, API, &mut [0xaa_u64, 0, 0]), 0);
            assert_eq!(libc::ioctl(faults, REGISTER, &mut [address, 4096, MISSING, 0]), 0);
            Some(Gate { faults, address })
        }
    }

    fn hint(&self) -> Hint<'static> {
        Hint { place: Place::Memory, offset: self.address, length: 4096, token: 0 }
    }

    /// Waits until somebody stands before it.
    fn wait(&self) {
        let mut message = [0u64; 4];
        // SAFETY: a message of the kernel's has 32 bytes.
        assert_eq!(unsafe { libc::read(self.faults, message.as_mut_ptr().cast(), 32) }, 32);
    }

    fn open(&self) {
        const ZERO_PAGE: libc::c_ulong = 0xc020_aa04;
        // SAFETY: fills our own page.
        assert_eq!(unsafe { libc::ioctl(self.faults, ZERO_PAGE, &mut [self.address, 4096, 0, 0]) }, 0);
    }
}

#[test]
fn cancelling_reaches_what_waits_for_a_thread() {
    let Some(gate) = Gate::new() else { return };
    let folder = folder();
    let files = cold_files(folder.path(), 5, 65_536);
    let [by_token, by_path, shared, other, open] = &files[..] else { panic!("five files") };
    let prefetcher = Prefetcher::new(Options { in_flight: 1, ..Options::default() });
    let piece = |file, offset, token| Hint { offset, length: 4096, token, ..path(file) };
    prefetcher.hint(&[piece(open, 0, 9)]);
    until(&prefetcher, "the first page", |counts| counts.jobs == 1);
    prefetcher.hint(&[gate.hint()]);
    gate.wait();
    prefetcher.hint(&[
        piece(by_token, 0, 9),
        piece(open, 40_960, 9),
        path(by_path),
        piece(shared, 0, 9),
        piece(shared, 40_960, 8),
        piece(other, 0, 8),
    ]);
    // Until they stand in the pool's lines. (Cancelled before they do they are not fetched either.)
    std::thread::sleep(Duration::from_millis(200));
    prefetcher.cancel_token(9);
    prefetcher.cancel_path(by_path.as_os_str().as_bytes());
    // Until the manager has heard of it.
    until(&prefetcher, "two cancellations", |counts| counts.cancelled >= 2);
    gate.open();
    until(&prefetcher, "what was not cancelled", |_| cached_pages(other) == 1 && cached_pages(shared) == 1);
    let cached = [by_token, by_path, open].map(|file| cached_pages(file));
    assert_eq!(cached, [0, 0, 1]);
    // They can be hinted again.
    prefetcher.hint(&[piece(by_token, 0, 9), piece(by_path, 0, 9), piece(open, 40_960, 9)]);
    until(&prefetcher, "all of them", |_| {
        [by_token, by_path, open].iter().all(|file| cached_pages(file) > 0)
    });
}

#[test]
fn cancelling_reaches_the_rest_of_a_file_that_was_begun() {
    let folder = folder();
    let long = folder.path().join("long");
    std::fs::File::create(&long).unwrap().set_len(8 << 20).unwrap();
    let others = cold_files(folder.path(), 2, 4096);
    let prefetcher = Prefetcher::new(Options { bandwidth: 1 << 20, ..Options::default() });
    for (at, other) in others.iter().enumerate() {
        let begun = prefetcher.counts().jobs;
        prefetcher.hint(&[Hint { token: 9, offset: at as u64 * (4 << 20), ..path(&long) }]);
        until(&prefetcher, "its first chunk", |counts| counts.jobs > begun);
        match at {
            0 => prefetcher.cancel_token(9),
            _ => prefetcher.cancel_all(),
        }
        prefetcher.hint(&[path(other)]);
        until(&prefetcher, "another file", |_| cached_pages(other) == 1);
    }
    // Of 2048 pages.
    assert!(cached_pages(&long) < 1000, "{}", cached_pages(&long));
}

#[test]
fn files_that_the_kernel_makes_up_are_not_opened() {
    let version = std::fs::File::open("/proc/version").unwrap();
    let prefetcher = Prefetcher::new(Options::default());
    prefetcher.hint(&[
        path(Path::new("/proc/version")),
        path(Path::new("/sys/kernel/mm/transparent_hugepage/enabled")),
        Hint { place: Place::Descriptor(version.as_raw_fd()), offset: 0, length: 0, token: 0 },
    ]);
    prefetcher.release(Place::Path(b"/proc/self/status"), 0, 0);
    let counts = until(&prefetcher, "four refusals", |counts| counts.not_a_file == 4);
    assert_eq!((counts.jobs, counts.asked_pages, counts.absurd), (4, 0, 0));
}

/// From the first page on, and for a file that is longer than all that may be held.
#[test]
fn a_small_memory_limit_is_kept() {
    let folder = folder();
    let files = cold_files(folder.path(), 2, 1 << 20);
    for pages in [1, 16, 40] {
        let prefetcher = Prefetcher::new(Options { memory: pages * 4096, ..Options::default() });
        prefetcher.hint(&[path(&files[0]), path(&files[1])]);
        let within = |counts: &Counts| {
            let held = counts.asked_pages.saturating_sub(counts.used_pages + counts.unused_pages);
            assert!(held <= pages, "{counts:?}");
        };
        until(&prefetcher, "more than the limit, in time", |counts| {
            within(counts);
            counts.asked_pages > pages
        });
        drop(prefetcher);
        files.iter().for_each(|file| drop_cache(file));
    }
}

#[test]
fn without_memory_or_bandwidth_hints_have_no_effect() {
    let folder = folder();
    let files = cold_files(folder.path(), 1, 4096);
    for limits in
        [Options { memory: 4095, ..Options::default() }, Options { bandwidth: 0, ..Options::default() }]
    {
        let prefetcher = Prefetcher::new(limits);
        prefetcher.hint(&[path(&files[0])]);
        std::thread::sleep(Duration::from_millis(50));
        // No thread looks every few milliseconds whether there is some.
        assert_eq!(prefetcher.counts(), Counts::default());
        assert_eq!(cached_pages(&files[0]), 0);
    }
}

#[test]
fn bandwidth_and_memory_options_are_kept() {
    let folder = folder();
    let files = cold_files(folder.path(), 100, 131_072);
    let hints: Vec<Hint> = files.iter().map(|file| path(file)).collect();
    let prefetcher = Prefetcher::new(Options { bandwidth: 2 << 20, ..Options::default() });
    let began = Instant::now();
    prefetcher.hint(&hints);
    let counts = until(&prefetcher, "200 pages", |counts| counts.asked_pages >= 200);
    // 512 pages a second, and a tenth of a second's worth at once.
    let most = 512 * began.elapsed().as_millis() as u64 / 1000 + 52;
    assert!(counts.asked_pages <= most, "{counts:?}");
    drop(prefetcher);

    files.iter().for_each(|file| drop_cache(file));
    let prefetcher = Prefetcher::new(Options { memory: 1 << 20, ..Options::default() });
    prefetcher.hint(&hints);
    until(&prefetcher, "200 pages", |counts| counts.asked_pages >= 200);
    std::thread::sleep(Duration::from_millis(200));
    let counts = prefetcher.counts();
    // A megabyte and what ran at that moment; not all 12.
    assert!(counts.asked_pages < 1000, "{counts:?}");
}

#[test]
fn a_million_hints_from_many_threads() {
    let folder = folder();
    let files = cold_files(folder.path(), 8, 65_536);
    let prefetcher = Prefetcher::new(Options::default());
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (prefetcher, files) = (&prefetcher, &files);
            scope.spawn(move || {
                for round in 0..8000u64 {
                    let hints: Vec<Hint> = (0..32)
                        .map(|at| Hint {
                            offset: (round * 32 + at) * 7 % 65_536,
                            length: thread + 1,
                            ..path(&files[at as usize % 8])
                        })
                        .collect();
                    prefetcher.hint(&hints);
                }
            });
        }
    });
    let counts = prefetcher.counts();
    assert_eq!(counts.hints, 4 * 8000 * 32);
    let resident = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = resident.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(pages * 4096 < 300 << 20, "{} MB", pages >> 8);
    // Most were dropped; what comes after the flood is served as ever.
    std::thread::sleep(Duration::from_millis(500));
    prefetcher.hint(&files.iter().map(|file| path(file)).collect::<Vec<_>>());
    until(&prefetcher, "everything is cached", |_| files.iter().all(|file| cached_pages(file) == 16));
}

/// The program's descriptors keep their numbers: ours are in another table.
#[test]
fn nothing_of_ours_is_among_the_programs_descriptors() {
    let folder = folder();
    let files = cold_files(folder.path(), 20, 4096);
    let prefetcher = Prefetcher::new(Options::default());
    prefetcher.hint(&files.iter().map(|file| path(file)).collect::<Vec<_>>());
    until(&prefetcher, "20 pages", |counts| counts.asked_pages + counts.cached_pages == 20);
    let ours = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .filter(|target| target.starts_with(folder.path()))
        .count();
    assert_eq!(ours, 0);
}

#[test]
fn switched_off_means_off() {
    let folder = folder();
    let files = cold_files(folder.path(), 1, 4096);
    let prefetcher = Prefetcher::new(Options { enabled: false, ..Options::default() });
    prefetcher.hint(&[path(&files[0])]);
    prefetcher.cancel_all();
    prefetcher.release(Place::Path(b"/x"), 0, 0);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(prefetcher.counts(), Counts::default());
    assert_eq!(cached_pages(&files[0]), 0);
}
