//! Analyses that come with the installation, by what the files hold.
//!
//! A user's site file knows files by what `stat` says of them, so in a fresh home, container or CI job it
//! knows none. Its C library is the distribution's all the same, and was looked at when Runahead was installed
//! (`runahead prepare`). To read a file and take its hash (XXH3, 128 bits) takes 0.5 ms for libc instead of 5.
//!
//! The format is the site file's, whose keys hold the hash here. Whoever may write to the file may have sites
//! rewritten in programs of whoever reads it, so it must be the user's own or the superuser's.
//!
//! Beside it lies a file of the same format with the keys of a site file, by what `stat` says: agents look up
//! there what the user's own lacks, without reading any file or asking anybody ([`PREPARED_NAME`]). It holds
//! for this very machine, or a copy of its disk, and has an index as large as it needs.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use memmap2::Mmap;
use runahead_abi::sites::{
    FileHeader, FileKey, HASH_SLOTS, INDEX_OFFSET, Index, MOST_SLOTS, PREPARED_NAME, Plain as _, Site,
    lookup_entry, sites_offset, slot_offset_of,
};
use runahead_abi::trust::{self, Found};
use xxhash_rust::xxh3::Xxh3;

use crate::analysis::{Analysis, analyse_source};
use crate::location::effective_user;
use crate::site_file::{Found as Kept, SiteFile, file_key, open_to_read, settled};
use crate::source::Source;

/// The file's name in the installation.
pub const NAME: &str = "runahead-sites";

/// Bytes that are hashed at a time.
const PIECE: usize = 64 << 10;

/// Files that are kept at most: there is room for some more.
const MOST: usize = HASH_SLOTS / 2;

/// Files below this, bytes, that have nothing to rewrite are not kept: their analysis is as quick.
const SMALL: u64 = 128 << 10;

/// The key of no file.
const NOTHING: FileKey = FileKey { device: 0, inode: 0, size: 0, modified: 0, changed: 0 };

/// Stands where a file's device does: no hash is taken for a real file.
const BY_CONTENT: u64 = u64::from_le_bytes(*b"content1");

/// The analyses of an installation.
#[derive(Debug)]
pub struct Known {
    file: fs::File,
    mapping: Mmap,
}

impl Known {
    /// None: there are none, or none that are to be believed.
    pub fn open(path: &Path) -> Option<Known> {
        let file = open_to_read(path).ok()?;
        let metadata = file.metadata().ok()?;
        let found = Found { mode: metadata.mode(), owner: metadata.uid(), size: metadata.len() };
        let is_trusted = |user| trust::site_file(&found, user).is_ok();
        if !is_trusted(effective_user()) && !is_trusted(0) {
            return None;
        }
        // SAFETY: it is replaced as a whole, never cut or changed, by those who may.
        let mapping = unsafe { Mmap::map(&file) }.ok()?;
        FileHeader::read(&mapping)?.is_ours().then_some(Known { file, mapping })
    }

    /// Whether somebody who knows nothing of our rules has cut it: to look at what it no longer has would end
    /// the host.
    fn is_whole(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.len() >= self.mapping.len() as u64)
    }

    /// Whether a file of so many bytes may be known: else nobody need read it.
    fn has_size(&self, size: u64) -> bool {
        let index = self.mapping.get(INDEX_OFFSET..).unwrap_or_default();
        index.chunks_exact(size_of::<Index>()).take(HASH_SLOTS).any(|slot| {
            let mut entry = Index::new(NOTHING, 0, &[], 0);
            entry.bytes_mut().copy_from_slice(slot);
            entry.key_hash != 0 && entry.key.size == size
        })
    }

    /// The sites of a file of `size` bytes, and what is said of the others.
    pub fn lookup(&self, source: &Source, size: u64) -> Option<(Vec<Site>, u32)> {
        if !self.is_whole() || !self.has_size(size) {
            return None;
        }
        let key = content_key(source, size).ok().filter(|_| self.is_whole())?;
        let entry = lookup_entry(&self.mapping, &key)?;
        Some((entry.sites.to_vec(), entry.unproven))
    }
}

/// The key of what a file holds.
fn content_key(source: &Source, size: u64) -> io::Result<FileKey> {
    let mut hash = Xxh3::new();
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < size {
        let bytes = &mut piece[..PIECE.min(usize::try_from(size - at).unwrap_or(PIECE))];
        source.read_exact_at(bytes, at)?;
        hash.update(bytes);
        at += bytes.len() as u64;
    }
    let hash = hash.digest128();
    Ok(FileKey { device: BY_CONTENT, inode: hash as u64, size, modified: (hash >> 64) as u64, changed: 0 })
}

/// What [`prepare`] has found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prepared {
    /// Executable files that were looked at, and those that are kept by what they hold.
    pub files: usize,
    pub kept: usize,
}

/// Where the file is whose keys say what `stat` says, beside the one at `known`.
pub fn here(known: &Path) -> PathBuf {
    let suffix = PREPARED_NAME.strip_prefix(NAME).unwrap_or(PREPARED_NAME);
    let mut path = known.to_path_buf().into_os_string();
    path.push(suffix);
    path.into()
}

/// Analyses the executable files below `places`, and those that are named there, into new files at `to` and
/// [beside it](here), on as many threads as there are processors. What cannot be read is passed over.
pub fn prepare(places: &[PathBuf], to: &Path) -> io::Result<Prepared> {
    let mut files = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let mut work = places.to_vec();
    while let Some(path) = work.pop() {
        let named = places.contains(&path);
        let Ok(metadata) = (if named { fs::metadata(&path) } else { fs::symlink_metadata(&path) }) else {
            continue;
        };
        if metadata.is_dir() {
            work.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else if metadata.is_file() && seen.insert((metadata.dev(), metadata.ino())) {
            files.push((path, metadata.len()));
        }
    }
    // The largest first: no thread is left with one at the end.
    files.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    let aside = to.with_extension("new");
    let _ = fs::remove_file(&aside);
    let site_file = SiteFile::open_or_create(&aside).map_err(io::Error::other)?;
    let prepared = Mutex::new(Prepared::default());
    let all = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let full = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((path, size)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some((key, by_stat, analysis)) = look(path, *size) else { continue };
                    if let Some(by_stat) = by_stat {
                        let mut all = all.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        all.push((by_stat, Kept::from(&analysis)));
                    }
                    let mut prepared = prepared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    prepared.files += 1;
                    if analysis.sites.is_empty() && analysis.others.is_empty() && *size < SMALL {
                        continue;
                    }
                    if prepared.kept == MOST {
                        continue;
                    }
                    match site_file.keep(&key, &analysis) {
                        Ok(()) => prepared.kept += 1,
                        Err(error) => {
                            *full.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error)
                        }
                    }
                }
            });
        }
    });
    if let Some(error) = full.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        let _ = fs::remove_file(&aside);
        return Err(io::Error::other(error));
    }
    publish(&aside, to)?;
    let here = here(to);
    let aside = here.with_extension("new");
    let all = all.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    fs::write(&aside, by_stat(&all))?;
    publish(&aside, &here)?;
    Ok(prepared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// Lets everybody read what has been made aside, in its place.
fn publish(aside: &Path, to: &Path) -> io::Result<()> {
    fs::set_permissions(aside, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    fs::rename(aside, to)
}

/// A site file of these, whose index is at most half full unless they are more than it may hold.
fn by_stat(all: &[(FileKey, Kept)]) -> Vec<u8> {
    let slots = (2 * all.len()).next_power_of_two().clamp(HASH_SLOTS, MOST_SLOTS);
    let mut bytes = vec![0; sites_offset(slots)];
    let mut header = FileHeader { hash_slots: slots as u32, ..FileHeader::EMPTY };
    for (key, Kept { sites, unproven }) in all.iter().take(slots / 4 * 3) {
        let entry = Index::new(*key, header.sites, sites, *unproven);
        let offsets = (0..slots).map(|probe| slot_offset_of(entry.key_hash, probe, slots));
        let free = offsets.map(|at| at..at + size_of::<Index>()).find(|slot| {
            let mut there = entry;
            there.bytes_mut().copy_from_slice(&bytes[slot.clone()]);
            there.key_hash == 0
        });
        let Some(free) = free else { break };
        bytes[free].copy_from_slice(entry.bytes());
        bytes.extend(sites.iter().flat_map(|site| site.bytes()));
        (header.used_slots, header.sites) = (header.used_slots + 1, header.sites + sites.len() as u32);
    }
    bytes[..INDEX_OFFSET].copy_from_slice(header.bytes());
    bytes
}

/// The analysis of a file, the key of what it holds, and that of what `stat` says unless it has only just
/// changed. None: it is no program or library for this machine.
fn look(path: &Path, size: u64) -> Option<(FileKey, Option<FileKey>, Analysis)> {
    let file = open_to_read(path).ok()?;
    let started = SystemTime::now();
    let by_stat = Some(file_key(&file.metadata().ok()?)).filter(|key| settled(key, started));
    let mut begin = [0; 4];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut begin, 0).ok()?;
    if begin != object::elf::ELFMAG {
        return None;
    }
    let source = Source::new(Rc::new(file), size);
    let key = content_key(&source, size).ok()?;
    let analysis = analyse_source(source);
    let by_stat = by_stat.filter(|key| fs::metadata(path).is_ok_and(|now| file_key(&now) == *key));
    analysis.understood.then_some((key, by_stat, analysis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site_file::Outcome;
    use crate::source::Turns;
    use crate::{analyse, file_key};
    use runahead_abi::sites::{CHECKED_BYTES, lookup_copied};
    use std::cell::Cell;

    fn c_library() -> PathBuf {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.contains("/libc.so.6")).unwrap();
        line[line.find('/').unwrap()..].into()
    }

    /// A copy that nobody has just written.
    fn copy(from: &Path, to: &Path) {
        fs::copy(from, to).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
    }

    #[test]
    fn a_copy_of_a_prepared_file_is_known_and_a_changed_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (places, known) = (folder.path().join("places"), folder.path().join(NAME));
        fs::create_dir(&places).unwrap();
        let (first, again) = (places.join("libc.so.6"), folder.path().join("again"));
        copy(&c_library(), &first);
        fs::write(places.join("text"), "no program").unwrap();
        std::os::unix::fs::symlink("libc.so.6", places.join("link")).unwrap();
        let prepared = prepare(std::slice::from_ref(&places), &known).unwrap();
        assert_eq!((prepared.files, prepared.kept), (1, 1));
        let found = Known::open(&known).unwrap();
        let source = |path: &Path| {
            Source::new(Rc::new(fs::File::open(path).unwrap()), fs::metadata(path).unwrap().len())
        };
        let size = fs::metadata(&first).unwrap().len();
        copy(&first, &again);
        let (sites, _) = found.lookup(&source(&again), size).expect("the copy is known");
        assert_eq!(sites, analyse(&first).unwrap().sites);
        let mut bytes = fs::read(&again).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&again, bytes).unwrap();
        assert!(found.lookup(&source(&again), size).is_none(), "another file of the same size");
    }

    /// What an agent reads of the file beside it.
    fn entry(here: &Path, key: &FileKey) -> Option<(Vec<Site>, u32)> {
        let bytes = fs::read(here).unwrap();
        let nothing = Site {
            patch_offset: 0,
            pad_offset: 0,
            number: 0,
            form: 0,
            syscall_distance: 0,
            into_function: 0,
            expected: [0; CHECKED_BYTES],
            expected_pad: [0; 8],
        };
        let mut room = vec![nothing; 4096];
        let read = |offset: usize, to: &mut [u8]| {
            let from = bytes.get(offset..).and_then(|rest| rest.get(..to.len()));
            from.map(|from| to.copy_from_slice(from)).is_some()
        };
        let found = lookup_copied(read, key, &mut room)?;
        Some((found.sites.to_vec(), found.unproven))
    }

    #[test]
    fn agents_find_what_is_here_and_nothing_that_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (places, known) = (folder.path().join("places"), folder.path().join(NAME));
        fs::create_dir(&places).unwrap();
        let (library, small) = (places.join("libc.so.6"), places.join("small"));
        copy(&c_library(), &library);
        copy(Path::new("/bin/true"), &small);
        prepare(std::slice::from_ref(&places), &known).unwrap();
        let here = here(&known);
        assert_eq!(here.file_name().unwrap(), PREPARED_NAME);
        let key = |path: &Path| file_key(&fs::metadata(path).unwrap());
        let (sites, _) = entry(&here, &key(&library)).expect("it is known by what stat says");
        assert_eq!(sites, analyse(&library).unwrap().sites);
        assert!(entry(&here, &key(&small)).is_some(), "so is what has nothing to rewrite");
        let changed = FileKey { changed: key(&library).changed + 1, ..key(&library) };
        assert!(entry(&here, &changed).is_none());
    }

    /// More files than the smallest index holds.
    #[test]
    fn its_index_is_as_large_as_it_has_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join(PREPARED_NAME);
        let key = |inode| FileKey { inode, size: 1, ..NOTHING };
        let kept = |inode: u64| Kept { sites: Vec::new(), unproven: inode as u32 };
        let all: Vec<_> = (1..9000).map(|inode| (key(inode), kept(inode))).collect();
        fs::write(&here, by_stat(&all)).unwrap();
        for inode in [1, 4097, 8999] {
            assert_eq!(entry(&here, &key(inode)), Some((Vec::new(), inode as u32)));
        }
        assert_eq!(entry(&here, &key(9000)), None);
    }

    /// A file that says of a C library, its content here as a source of `u64` bytes, that there is nothing in
    /// it.
    fn says_nothing(folder: &Path) -> (PathBuf, PathBuf, Source, u64) {
        let (known, library) = (folder.join(NAME), folder.join("library"));
        copy(&c_library(), &library);
        let size = fs::metadata(&library).unwrap().len();
        let source = Source::new(Rc::new(fs::File::open(&library).unwrap()), size);
        let kept = SiteFile::open_or_create(&known).unwrap();
        kept.keep(&content_key(&source, size).unwrap(), &Analysis::default()).unwrap();
        (known, library, source, size)
    }

    #[test]
    fn nothing_is_known_of_one_that_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let (known, _, source, size) = says_nothing(folder.path());
        let found = Known::open(&known).unwrap();
        assert!(found.lookup(&source, size).is_some());
        fs::File::options().write(true).open(&known).unwrap().set_len(100).unwrap();
        assert!(found.lookup(&source, size).is_none());
    }

    /// What is known is taken, and nothing analysed: here it is something else than an analysis would find.
    #[test]
    fn a_run_takes_what_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let (known, library, ..) = says_nothing(folder.path());
        let run = SiteFile::in_memory().unwrap().with_known(known.clone());
        assert_eq!(run.ensure(&library).unwrap(), Outcome::Analysed { sites: 0, unproven: 0 });
        // Where others may write to it, it is nothing.
        fs::set_permissions(&known, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        let run = SiteFile::in_memory().unwrap().with_known(known);
        let outcome = run.ensure(&library).unwrap();
        assert!(matches!(outcome, Outcome::Analysed { sites: 100.., .. }), "{outcome:?}");
    }

    /// Turns that are left, and whether one is under way.
    struct Left(Cell<u32>, Cell<u32>);

    impl Turns for Left {
        fn begin(&self) -> bool {
            assert_eq!(self.1.replace(1), 0, "one piece at a time");
            let left = self.0.get();
            self.0.set(left.saturating_sub(1));
            if left == 0 {
                self.1.set(0);
            }
            left != 0
        }

        fn end(&self) {
            self.1.set(0);
        }
    }

    #[test]
    fn a_file_in_turns_is_analysed_whole_or_not_at_all() {
        let library = c_library();
        let whole = analyse(&library).unwrap();
        for turns in [0, 1, 2, 7] {
            let file = SiteFile::in_memory().unwrap();
            let turns = Rc::new(Left(Cell::new(turns), Cell::new(0)));
            assert!(file.ensure_in_turns(&library, turns).is_err());
            assert_eq!(file.lookup(&file_key(&fs::metadata(&library).unwrap())), None);
        }
        let file = SiteFile::in_memory().unwrap();
        let outcome =
            file.ensure_in_turns(&library, Rc::new(Left(Cell::new(u32::MAX), Cell::new(0)))).unwrap();
        assert!(
            matches!(outcome, Outcome::Analysed { sites, .. } if sites == whole.sites.len()),
            "{outcome:?}"
        );
    }
}
