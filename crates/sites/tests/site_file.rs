//! The site file: what is written is found again, whatever happens to the file in between.

mod common;

use std::fs::{self, FileTimes, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use common::{TAIL, assemble, function};
use proptest::prelude::*;
use runahead_abi::sites::{
    FileHeader, FileKey, HASH_SLOTS, INDEX_OFFSET, Index, Plain, SITES_OFFSET, Site, form, lookup,
    lookup_copied, lookup_entry, slot_offset,
};
use runahead_sites::{Outcome, SiteFile, analyse, file_key};
use tempfile::TempDir;

/// A directory with a small executable file in it that has settled, and a place for a site file.
struct Fixture {
    directory: TempDir,
    executable: PathBuf,
}

impl Fixture {
    fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let body = "mov $257, %eax\nsyscall\ntest %eax, %eax\nret";
        let assembly = format!("{}{TAIL}", function("f", body));
        let executable = assemble(directory.path(), "small", &assembly);
        std::thread::sleep(Duration::from_millis(30));
        Fixture { directory, executable }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("sites")
    }

    fn open(&self) -> SiteFile {
        SiteFile::open_or_create(&self.path()).unwrap()
    }

    fn key(&self) -> FileKey {
        file_key(&fs::metadata(&self.executable).unwrap())
    }

    /// Overwrites bytes of the site file.
    fn damage(&self, offset: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(self.path()).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }
}

const NEW: Outcome = Outcome::Analysed { sites: 1, unproven: 0 };
const KNOWN: Outcome = Outcome::Known { sites: 1, unproven: 0 };

#[test]
fn a_file_that_is_cut_while_it_is_open_is_made_anew() {
    let fixture = Fixture::new();
    let file = fixture.open();
    assert_eq!(file.ensure(&fixture.executable).unwrap(), NEW);
    for length in [0, 1, 4096] {
        OpenOptions::new().write(true).open(fixture.path()).unwrap().set_len(length).unwrap();
        assert_eq!(file.lookup(&fixture.key()), None, "{length}");
        assert_eq!(file.ensure(&fixture.executable).unwrap(), NEW, "{length}");
        assert_eq!(file.ensure(&fixture.executable).unwrap(), KNOWN, "{length}");
    }
}

#[test]
fn what_is_ensured_is_found() {
    let fixture = Fixture::new();
    let file = fixture.open();
    assert_eq!(file.lookup(&fixture.key()), None);
    assert_eq!(file.ensure(&fixture.executable).unwrap(), NEW);
    assert_eq!(file.ensure(&fixture.executable).unwrap(), KNOWN);
    let analysis = analyse(&fixture.executable).unwrap();
    assert_eq!(file.lookup(&fixture.key()), Some((analysis.sites.clone(), 0)));
    // By another process, and as the agent reads it.
    assert_eq!(fixture.open().ensure(&fixture.executable).unwrap(), KNOWN);
    let bytes = aligned(&fs::read(fixture.path()).unwrap());
    assert_eq!(lookup(as_bytes(&bytes), &fixture.key()), Some(&*analysis.sites));
    assert_eq!(fs::metadata(fixture.path()).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn one_that_is_open_sees_what_another_appends() {
    let fixture = Fixture::new();
    let (first, second) = (fixture.open(), fixture.open());
    assert_eq!(first.ensure(&fixture.executable).unwrap(), NEW);
    let before = bytes_read();
    assert_eq!(second.ensure(&fixture.executable).unwrap(), KNOWN);
    // It did not analyse the file only to find that it need not have.
    assert!(bytes_read() - before < 1000);
}

#[test]
fn files_with_nothing_to_patch_are_remembered_too() {
    let fixture = Fixture::new();
    let script = fixture.directory.path().join("script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    std::thread::sleep(Duration::from_millis(30));
    let file = fixture.open();
    let (sites, unproven) = (0, 0);
    assert_eq!(file.ensure(&script).unwrap(), Outcome::Analysed { sites, unproven });
    assert_eq!(file.ensure(&script).unwrap(), Outcome::Known { sites, unproven });
    assert!(file.ensure(fixture.directory.path()).is_err());
    let error = file.ensure(Path::new("/nonexistent")).unwrap_err();
    assert!(error.to_string().contains("/nonexistent"), "{error}");
}

#[test]
fn a_file_that_has_only_just_changed_is_not_remembered() {
    let fixture = Fixture::new();
    let file = fixture.open();
    let copy = fixture.directory.path().join("copy");
    fs::copy(&fixture.executable, &copy).unwrap();
    assert_eq!(file.ensure(&copy).unwrap(), Outcome::Unsettled);
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(file.ensure(&copy).unwrap(), NEW);
}

#[test]
fn a_changed_file_is_another_file() {
    let fixture = Fixture::new();
    let file = fixture.open();
    assert_eq!(file.ensure(&fixture.executable).unwrap(), NEW);
    // The same bytes and size, an older time.
    let times = FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(100));
    let executable = OpenOptions::new().write(true).open(&fixture.executable).unwrap();
    executable.set_times(times).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(file.ensure(&fixture.executable).unwrap(), NEW);
}

#[test]
fn a_file_that_is_none_of_ours_is_started_afresh() {
    for content in [&b""[..], b"short", &[0xff; 300_000], &[0; 300_000]] {
        let fixture = Fixture::new();
        fs::write(fixture.path(), content).unwrap();
        assert_eq!(fixture.open().ensure(&fixture.executable).unwrap(), NEW);
        assert_eq!(fixture.open().ensure(&fixture.executable).unwrap(), KNOWN);
    }
    // Written by other rules, or for other records.
    for field in [8, 20, 24] {
        let fixture = Fixture::new();
        fixture.open().ensure(&fixture.executable).unwrap();
        fixture.damage(field, &99u32.to_le_bytes());
        assert_eq!(fixture.open().ensure(&fixture.executable).unwrap(), NEW);
    }
}

#[test]
fn what_is_not_the_users_own_file_is_refused() {
    let fixture = Fixture::new();
    let elsewhere = fixture.directory.path().join("elsewhere");
    fs::write(&elsewhere, "precious").unwrap();
    std::os::unix::fs::symlink(&elsewhere, fixture.path()).unwrap();
    assert!(SiteFile::open_or_create(&fixture.path()).is_err());
    assert_eq!(fs::read(&elsewhere).unwrap(), b"precious");
    assert!(SiteFile::open_or_create(Path::new("/nonexistent/sites")).is_err());
}

#[test]
fn a_full_file_is_started_afresh() {
    let fixture = Fixture::new();
    fixture.open().ensure(&fixture.executable).unwrap();
    let three_quarters = (HASH_SLOTS / 4 * 3) as u32;
    // One below: still room.
    fixture.damage(12, &(three_quarters - 1).to_le_bytes());
    let other = fixture.directory.path().join("other");
    fs::copy(&fixture.executable, &other).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    let file = fixture.open();
    assert_eq!(file.ensure(&other).unwrap(), NEW);
    assert_eq!(file.ensure(&fixture.executable).unwrap(), KNOWN);
    let third = fixture.directory.path().join("third");
    fs::copy(&fixture.executable, &third).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    let before = fs::metadata(fixture.path()).unwrap().ino();
    assert_eq!(file.ensure(&third).unwrap(), NEW);
    assert_ne!(fs::metadata(fixture.path()).unwrap().ino(), before);
    assert_eq!(file.ensure(&third).unwrap(), KNOWN);
    assert_eq!(file.ensure(&fixture.executable).unwrap(), NEW);
}

/// What an agent reads through the host's descriptor.
fn behind(descriptor: i32) -> Vec<u64> {
    aligned(&fs::read(format!("/proc/self/fd/{descriptor}")).unwrap())
}

#[test]
fn a_file_that_takes_anothers_place_takes_its_descriptor() {
    let fixture = Fixture::new();
    let file = fixture.open();
    let descriptor = file.descriptor();
    fs::remove_file(fixture.path()).unwrap();
    let other = fixture.open();
    assert_eq!(other.ensure(&fixture.executable).unwrap(), NEW);
    assert_eq!(lookup(as_bytes(&behind(descriptor)), &fixture.key()), None);
    assert_eq!(file.ensure(&fixture.executable).unwrap(), KNOWN);
    assert_eq!(file.descriptor(), descriptor);
    assert!(lookup(as_bytes(&behind(descriptor)), &fixture.key()).is_some());
    // It is still locked and written to through that.
    assert_eq!(file.ensure(&fixture.executable.with_file_name("missing")).ok(), None);
    let copy = fixture.directory.path().join("copy");
    fs::copy(&fixture.executable, &copy).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(file.ensure(&copy).unwrap(), NEW);
    assert_eq!(other.ensure(&copy).unwrap(), KNOWN);
}

#[test]
fn a_file_in_memory_is_read_through_its_descriptor_and_cannot_be_cut() {
    let fixture = Fixture::new();
    let file = SiteFile::in_memory().unwrap();
    assert_eq!(file.path(), None);
    assert_eq!(file.ensure(&fixture.executable).unwrap(), NEW);
    assert_eq!(file.ensure(&fixture.executable).unwrap(), KNOWN);
    assert!(lookup(as_bytes(&behind(file.descriptor())), &fixture.key()).is_some());
    let path = format!("/proc/self/fd/{}", file.descriptor());
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    assert!(OpenOptions::new().write(true).open(path).unwrap().set_len(0).is_err());
}

#[test]
fn one_in_memory_that_is_full_takes_no_more() {
    let fixture = Fixture::new();
    let file = SiteFile::in_memory().unwrap();
    let path = format!("/proc/self/fd/{}", file.descriptor());
    let header = OpenOptions::new().write(true).open(path).unwrap();
    header.write_all_at(&(HASH_SLOTS as u32).to_le_bytes(), 12).unwrap();
    let error = file.ensure(&fixture.executable).unwrap_err();
    assert!(error.to_string().contains("it does not fit"), "{error}");
}

#[test]
fn a_file_that_others_may_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new();
    drop(fixture.open());
    fs::set_permissions(fixture.path(), fs::Permissions::from_mode(0o620)).unwrap();
    assert!(SiteFile::open_or_create(&fixture.path()).is_err());
}

#[test]
fn a_header_that_counts_wrong_costs_nothing_that_is_published() {
    // As after a crash between two writes, or worse.
    for sites in [0u32, 2, 1 << 19, u32::MAX] {
        let fixture = Fixture::new();
        fixture.open().ensure(&fixture.executable).unwrap();
        fixture.damage(16, &sites.to_le_bytes());
        let other = fixture.directory.path().join("other");
        fs::copy(&fixture.executable, &other).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        let file = fixture.open();
        assert_eq!(file.ensure(&other).unwrap(), NEW, "{sites}");
        assert_eq!(file.ensure(&other).unwrap(), KNOWN, "{sites}");
        // Overwritten or not: what is said of the first one is true, or it is analysed again.
        let again = file.ensure(&fixture.executable).unwrap();
        assert!(again == NEW || again == KNOWN);
        let truth = analyse(&fixture.executable).unwrap().sites;
        assert_eq!(file.lookup(&fixture.key()), Some((truth, 0)));
    }
}

#[test]
fn many_writers_and_readers_at_once() {
    let fixture = Fixture::new();
    let copies: Vec<PathBuf> = (0..40)
        .map(|number| {
            let copy = fixture.directory.path().join(format!("copy{number}"));
            fs::copy(&fixture.executable, &copy).unwrap();
            copy
        })
        .collect();
    std::thread::sleep(Duration::from_millis(30));
    let truth = analyse(&fixture.executable).unwrap().sites;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    // Each with an open file of its own, as processes have; flock tells them apart.
                    let file = fixture.open();
                    for copy in &copies {
                        file.ensure(copy).unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for copy in &copies {
                    let key = file_key(&fs::metadata(copy).unwrap());
                    if let Some((sites, _)) = fixture.open().lookup(&key) {
                        assert_eq!(sites, truth);
                    }
                }
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    let file = fixture.open();
    for copy in &copies {
        assert_eq!(file.ensure(copy).unwrap(), KNOWN);
    }
    // Nobody's entry was written twice.
    let length = fs::metadata(fixture.path()).unwrap().len() as usize;
    assert_eq!(length, SITES_OFFSET + copies.len() * size_of::<Site>());
}

#[test]
fn a_lock_that_is_never_released_hangs_nobody() {
    let fixture = Fixture::new();
    let file = fixture.open();
    let holder = OpenOptions::new().read(true).open(fixture.path()).unwrap();
    holder.lock().unwrap();
    let error = file.ensure(&fixture.executable).unwrap_err();
    assert_eq!(error.cause().kind(), std::io::ErrorKind::TimedOut);
    drop(holder);
    assert_eq!(file.ensure(&fixture.executable).unwrap(), NEW);
}

/// Bytes that this thread has read through system calls so far.
fn bytes_read() -> u64 {
    let counters = fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = counters.lines().find(|line| line.starts_with("rchar: "));
    line.unwrap()[7..].parse().unwrap()
}

#[test]
fn a_known_file_is_not_read() {
    let fixture = Fixture::new();
    let file = fixture.open();
    let before = bytes_read();
    assert_eq!(file.ensure(&fixture.executable).unwrap(), NEW);
    assert!(bytes_read() - before > 1000);
    let before = bytes_read();
    let start = Instant::now();
    for _ in 0..100 {
        assert_eq!(file.ensure(&fixture.executable).unwrap(), KNOWN);
    }
    println!("ensure, known: {:?}", start.elapsed() / 100);
    // Reading the counter is all that was read.
    assert!(bytes_read() - before < 1000);
}

/// Bytes at an address divisible by 8, as a mapping's are.
fn aligned(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks(8)
        .map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        })
        .collect()
}

fn as_bytes(words: &[u64]) -> &[u8] {
    // SAFETY: any u64 is eight valid bytes, and the slice covers exactly them.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

fn site(seed: u64) -> Site {
    Site {
        patch_offset: seed,
        pad_offset: 0,
        number: seed as u16,
        form: form::MOV_IMM32,
        syscall_distance: 5,
        into_function: 0,
        expected: [seed as u8; 16],
        expected_pad: [0; 8],
    }
}

fn key(seed: u64) -> FileKey {
    FileKey { device: 1, inode: seed, size: 2, modified: 3, changed: 4 }
}

/// A site file in memory with these entries, and room for damage.
fn image(entries: &[(FileKey, Vec<Site>)]) -> Vec<u64> {
    let mut bytes = vec![0u8; SITES_OFFSET];
    bytes[..size_of::<FileHeader>()].copy_from_slice(FileHeader::EMPTY.bytes());
    for (key, sites) in entries {
        let first = (bytes.len() - SITES_OFFSET) / size_of::<Site>();
        let slot = (0..HASH_SLOTS)
            .map(|probe| slot_offset(key.hash(), probe))
            .find(|offset| bytes[*offset..][..8] == [0; 8])
            .unwrap();
        let index = Index::new(*key, first as u32, sites, 7);
        bytes[slot..slot + size_of::<Index>()].copy_from_slice(index.bytes());
        bytes.extend(sites.iter().flat_map(Plain::bytes));
    }
    aligned(&bytes)
}

#[test]
fn an_index_without_an_empty_slot_ends_the_search() {
    let entries: Vec<_> = (0..HASH_SLOTS as u64).map(|n| (key(n), vec![])).collect();
    let words = image(&entries);
    assert_eq!(lookup(as_bytes(&words), &key(5)), Some(&[][..]));
    assert_eq!(lookup(as_bytes(&words), &key(1 << 40)), None);
}

#[test]
fn a_mapping_that_is_too_short_or_crooked_is_refused() {
    let words = image(&[(key(1), vec![site(1), site(2)])]);
    let bytes = as_bytes(&words);
    assert_eq!(lookup(bytes, &key(1)).unwrap().len(), 2);
    for length in (0..bytes.len()).rev().take(200).chain([0, 1, 63, 64, 65]) {
        assert_eq!(lookup(&bytes[..length], &key(1)), None, "{length}");
    }
    for shift in 1..8 {
        let mut room = vec![0u64; words.len() + 1];
        // SAFETY: the room has eight bytes more than `bytes`, and any bytes are valid words.
        let shifted =
            unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<u8>().add(shift), bytes.len()) };
        shifted.copy_from_slice(bytes);
        assert_eq!(lookup(shifted, &key(1)), None);
    }
}

#[test]
fn another_key_with_the_same_hash_is_another_key() {
    let mut index = Index::new(key(2), 0, &[], 0);
    index.key_hash = key(1).hash();
    let mut words = image(&[]);
    let slot = slot_offset(key(1).hash(), 0) / 8;
    words[slot..slot + 8].copy_from_slice(&aligned(index.bytes()));
    assert_eq!(lookup(as_bytes(&words), &key(1)), None);
}

/// The same from a copy, piece by piece, as of a file that may be cut at any moment. None also for more sites than fit.
fn copied(bytes: &[u8], key: &FileKey) -> Option<Vec<Site>> {
    let mut room = vec![site(0); 8];
    let read = |offset: usize, to: &mut [u8]| {
        let from = offset.checked_add(to.len()).and_then(|end| bytes.get(offset..end));
        from.is_some_and(|from| {
            to.copy_from_slice(from);
            true
        })
    };
    lookup_copied(read, key, &mut room).map(|entry| entry.sites.to_vec())
}

#[test]
fn more_sites_than_there_is_room_for_are_none() {
    let words = image(&[(key(1), (0..9).map(site).collect()), (key(2), vec![site(3)])]);
    assert_eq!(copied(as_bytes(&words), &key(1)), None);
    assert_eq!(copied(as_bytes(&words), &key(2)), Some(vec![site(3)]));
}

proptest! {
    #[test]
    fn an_entry_is_found_whole_or_not_at_all(
        entries in prop::collection::btree_map(0u64..1000, prop::collection::vec(any::<u64>(), 0..5), 1..50),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 0..20),
        in_sites in any::<bool>(),
    ) {
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(n, seeds)| (key(n), seeds.into_iter().map(site).collect::<Vec<_>>()))
            .collect();
        let mut words = image(&entries);
        for (key, sites) in &entries {
            let entry = lookup_entry(as_bytes(&words), key).unwrap();
            prop_assert_eq!((entry.sites, entry.unproven), (&**sites, 7));
        }
        let start = if in_sites { SITES_OFFSET / 8 } else { INDEX_OFFSET / 8 };
        for (position, value) in damage {
            if words.len() > start {
                let position = start + position.index(words.len() - start);
                words[position] = value;
            }
        }
        for (key, sites) in &entries {
            let found = lookup(as_bytes(&words), key);
            if let Some(found) = found {
                prop_assert_eq!(found, &**sites);
            }
            prop_assert_eq!(copied(as_bytes(&words), key), found.map(<[Site]>::to_vec));
        }
    }

    #[test]
    fn garbage_is_survived(words in prop::collection::vec(any::<u64>(), 0..2000), seed in any::<u64>()) {
        let mut words = words;
        prop_assert_eq!(lookup(as_bytes(&words), &key(seed)), None);
        // The same behind a good header, with a slot that points anywhere.
        let header = aligned(FileHeader::EMPTY.bytes());
        words.splice(0..header.len().min(words.len()), header);
        let _ = lookup(as_bytes(&words), &key(seed));
        let _ = copied(as_bytes(&words), &key(seed));
    }

    #[test]
    fn an_index_entry_that_points_anywhere_is_survived(
        first in any::<u32>(), count in any::<u32>(), checksum in any::<u32>(), length in 0usize..100,
    ) {
        let key = key(1);
        let mut index = Index::new(key, first, &[], 0);
        index.site_count = count;
        index.checksum = checksum;
        let mut words = image(&[]);
        let slot = slot_offset(key.hash(), 0) / 8;
        words[slot..slot + 8].copy_from_slice(&aligned(index.bytes()));
        words.resize(SITES_OFFSET / 8 + length, 0);
        let found = lookup(as_bytes(&words), &key).map(<[Site]>::to_vec);
        prop_assert_eq!(copied(as_bytes(&words), &key), found);
    }
}
