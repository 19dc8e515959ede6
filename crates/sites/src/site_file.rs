//! The file in which the results are kept; its layout and its readers are `runahead_abi::sites`.
//!
//! # Rules
//! - Whoever appends holds an exclusive `flock` on the file, and has made sure, holding it, that the
//!   file is still the one at the path.
//! - Order of an append: the sites, then their count in the header, then the index entry without its
//!   `key_hash`, then `key_hash`. A writer that dies in between leaves an empty slot and some records
//!   that nobody names: at any instant a reader finds what was published before.
//! - What is published is never changed. A file that is full, or that was written by other rules, is
//!   replaced by a new one, made aside and renamed; the directory is locked while that is done. Maps
//!   of the old one stay good.
//! - Only one lock order: file, then directory.
//!
//! Agents read the file through the host's descriptor, whose number is the same for as long as it is open:
//! a file that takes the place of another takes its descriptor.
//!
//! Where the user has no directory for it the file is in memory, for this run alone, and is not replaced when
//! it is full.
//!
//! Nothing here is needed for correctness: without the file programs run, unpatched.

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use memmap2::Mmap;
use runahead_abi::sites::{
    BLIND, Entry, FileHeader, FileKey, HASH_SLOTS, Index, Plain, SITES_OFFSET, Site, UNWINDS, lookup_entry,
    slot_offset,
};
use runahead_abi::trust;
use runahead_kernel::filesystem::FileSystem;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::process::{Resource, getrlimit};

use crate::analysis::{Analysis, analyse_source};
use crate::known::Known;
use crate::location::{directories, effective_user, private_directory, unmask_file};
use crate::source::{InTurns, Source, Turns};

/// The file's name in its directory.
const NAME: &str = "sites";

/// In how many slots entries may be before the file is started afresh: three quarters, beyond which
/// probing gets long.
const FULL_SLOTS: u32 = (HASH_SLOTS / 4 * 3) as u32;

/// In how many sites, likewise: 48 MiB; a C library has some 400, most programs none.
const FULL_SITES: usize = 1 << 20;

/// A file that changed more recently than this before its analysis is not remembered: the kernel's
/// file times advance in ticks of up to 10 ms, so within one tick it may change again, size and times
/// equal. Twice that.
const SETTLED_NANOSECONDS: u64 = 20_000_000;

/// An open site file.
#[derive(Debug)]
pub struct SiteFile {
    place: Place,
    open: Mutex<Open>,
    /// Where analyses are that others have made; opened when the first file is not known.
    known_at: Option<PathBuf>,
    known: OnceLock<Option<Known>>,
}

/// Where a site file is.
#[derive(Clone, Debug)]
enum Place {
    At(PathBuf),
    /// In memory, of this run alone.
    Memory,
}

impl Place {
    /// The path, or what stands for it in an error.
    fn name(&self) -> &Path {
        match self {
            Place::At(path) => path,
            Place::Memory => Path::new("(in memory)"),
        }
    }
}

#[derive(Debug)]
struct Open {
    file: File,
    mapping: Mmap,
}

/// What is kept of an analysis.
#[derive(Debug)]
pub(crate) struct Found {
    pub sites: Vec<Site>,
    /// As [`Index::unproven`].
    pub unproven: u32,
}

impl From<&Analysis> for Found {
    fn from(analysis: &Analysis) -> Found {
        let unproven = u32::try_from(analysis.unproven().count()).unwrap_or(u32::MAX).min(UNWINDS - 1);
        let flag = |is_so: bool, flag: u32| if is_so { flag } else { 0 };
        let unproven = unproven | flag(analysis.is_blind(), BLIND) | flag(analysis.unwinds, UNWINDS);
        Found { sites: analysis.sites.clone(), unproven }
    }
}

/// What [`SiteFile::ensure`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The file was analysed before.
    Known { sites: usize, unproven: u32 },
    /// It has been analysed now, and the result is kept.
    Analysed { sites: usize, unproven: u32 },
    /// It has only just changed, or changed meanwhile: nothing is kept; ask again later.
    Unsettled,
}

/// What failed, with which file, and why.
#[derive(Debug)]
pub struct SiteFileError {
    what: &'static str,
    path: PathBuf,
    cause: io::Error,
}

impl SiteFileError {
    pub fn cause(&self) -> &io::Error {
        &self.cause
    }
}

impl fmt::Display for SiteFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.what, self.path.display(), self.cause)
    }
}

impl std::error::Error for SiteFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

type Result<T> = std::result::Result<T, SiteFileError>;

fn failed<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> SiteFileError + 'a {
    move |cause| SiteFileError { what, path: path.to_owned(), cause }
}

/// Opens an executable file. (It may be something else by now that is waited for when it is opened; then its
/// key is another, too.)
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// The key of a file with this metadata.
pub fn file_key(metadata: &Metadata) -> FileKey {
    let nanoseconds =
        |seconds: i64, rest: i64| seconds.wrapping_mul(1_000_000_000).wrapping_add(rest).cast_unsigned();
    FileKey {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.size(),
        modified: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        changed: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
    }
}

impl SiteFile {
    /// Opens the site file in the first of the user's directories that serves, or else one in memory.
    pub fn open_or_make() -> Result<SiteFile> {
        let kept = directories().find_map(|directory| SiteFile::open_in(&directory).ok());
        kept.map_or_else(SiteFile::in_memory, Ok)
    }

    /// Why [`SiteFile::open_or_make`] keeps nothing: what failed in the first of the user's directories.
    /// None: there is no such directory, or something is kept.
    pub fn kept_nowhere_because() -> Option<SiteFileError> {
        let mut tried = directories().map(|directory| SiteFile::open_in(&directory));
        let first = tried.next()?.err()?;
        tried.all(|other| other.is_err()).then_some(first)
    }

    /// One for this run alone, of which nothing is left.
    pub fn in_memory() -> Result<SiteFile> {
        let place = Place::Memory;
        let file = make_in_memory().map_err(failed("make a site file", place.name()))?;
        let mapping = map(&file, place.name())?;
        Ok(SiteFile::new(place, Open { file, mapping }))
    }

    /// The one that another process of ours has open as `file` and has left to this one; `at`: as its
    /// [`path`](SiteFile::path) said.
    pub fn inherit(at: Option<PathBuf>, file: File) -> Result<SiteFile> {
        let place = at.map_or(Place::Memory, Place::At);
        let mapping = map(&file, place.name())?;
        let open = Open { file, mapping };
        let is_ours = open.is_ours();
        let site_file = SiteFile::new(place.clone(), open);
        match is_ours {
            true => Ok(site_file),
            false => Err(failed("use the site file", place.name())(io::ErrorKind::InvalidData.into())),
        }
    }

    fn new(place: Place, open: Open) -> SiteFile {
        SiteFile { place, open: Mutex::new(open), known_at: None, known: OnceLock::new() }
    }

    /// Lets it take analyses from the file at `path` ([`crate::prepare`]), if one is there.
    pub fn with_known(self, path: PathBuf) -> SiteFile {
        SiteFile { known_at: Some(path), ..self }
    }

    fn known(&self) -> Option<&Known> {
        self.known.get_or_init(|| Known::open(self.known_at.as_deref()?)).as_ref()
    }

    fn open_in(directory: &Path) -> Result<SiteFile> {
        private_directory(directory).map_err(failed("use the directory", directory))?;
        SiteFile::open_or_create(&directory.join(NAME))
    }

    /// Opens the site file at `path`, whose directory exists and is the user's alone; makes it, or
    /// starts it afresh, if what is there is no site file of this build.
    pub fn open_or_create(path: &Path) -> Result<SiteFile> {
        let open = match Open::at(path) {
            Ok(open) => open,
            Err(error) if error.cause.kind() == io::ErrorKind::NotFound => {
                replace(path, None)?;
                Open::at(path)?
            }
            Err(error) => return Err(error),
        };
        let place = Place::At(path.to_owned());
        let site_file = SiteFile::new(place.clone(), open);
        let mut open = site_file.opened();
        if !open.is_ours() {
            open.lock(&place)?;
            // Somebody else may have mended it while we waited for the lock.
            if !open.is_ours() {
                open.start_afresh(&place)?;
            }
            open.unlock(&place)?;
        }
        drop(open);
        Ok(site_file)
    }

    /// Where the file is, if it is not in memory.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::At(path) => Some(path),
            Place::Memory => None,
        }
    }

    /// The descriptor through which agents read the file: the same one for as long as this lives.
    pub fn descriptor(&self) -> i32 {
        self.opened().file.as_raw_fd()
    }

    /// Has the file under the number of `descriptor` from now on, in place of what that was.
    pub fn move_to(self, mut descriptor: OwnedFd) -> io::Result<SiteFile> {
        let mut open = self.opened();
        rustix::io::dup3(&open.file, &mut descriptor, rustix::io::DupFlags::CLOEXEC)?;
        open.file = descriptor.into();
        drop(open);
        Ok(self)
    }

    /// What the file says of the executable with this key: its sites, and the count of unproven ones.
    pub fn lookup(&self, key: &FileKey) -> Option<(Vec<Site>, u32)> {
        let mut open = self.opened();
        open.refresh(&self.place).ok()?;
        let entry = lookup_entry(&open.mapping, key)?;
        Some((entry.sites.to_vec(), entry.unproven))
    }

    /// Makes sure that the executable file at `executable` has its entry: analyses it if it has none.
    /// For a known file this is a `stat` and a look-up; the file is not opened.
    pub fn ensure(&self, executable: &Path) -> Result<Outcome> {
        let (key, known) = self.look(executable)?;
        if let Some(known) = known {
            return Ok(known);
        }
        let started = SystemTime::now();
        let file = open_to_read(executable).map_err(failed("open", executable))?;
        let opened = file.metadata().map_err(failed("look at", executable))?;
        if file_key(&opened) != key {
            return Ok(Outcome::Unsettled);
        }
        let watched = file.try_clone().map_err(failed("open", executable))?;
        let found = self.found(Source::new(Rc::new(file), key.size), key.size);
        let after = watched.metadata().map_err(failed("look at", executable))?;
        if file_key(&opened) != key || file_key(&after) != key || !settled(&key, started) {
            return Ok(Outcome::Unsettled);
        }
        self.append(&key, &found)
    }

    /// The same; the file is open only while a piece of it is read, in its `turns`. Fails when there are no
    /// more.
    pub fn ensure_in_turns(&self, executable: &Path, turns: Rc<dyn Turns>) -> Result<Outcome> {
        let (key, known) = self.look(executable)?;
        if let Some(known) = known {
            return Ok(known);
        }
        let started = SystemTime::now();
        let pieces = Rc::new(InTurns::new(executable.to_owned(), key, turns));
        let found = self.found(Source::new(pieces.clone(), key.size), key.size);
        let after = fs::metadata(executable).map_err(failed("look at", executable))?;
        if file_key(&after) != key || !settled(&key, started) {
            return Ok(Outcome::Unsettled);
        }
        if pieces.has_failed() {
            return Err(failed("read", executable)(io::ErrorKind::TimedOut.into()));
        }
        self.append(&key, &found)
    }

    /// What somebody has found out about a file, or its analysis.
    fn found(&self, source: Source, size: u64) -> Found {
        let known = self.known().and_then(|known| known.lookup(&source, size));
        known.map_or_else(
            || Found::from(&analyse_source(source)),
            |(sites, unproven)| Found { sites, unproven },
        )
    }

    /// Keeps the analysis of a file with this key.
    pub(crate) fn keep(&self, key: &FileKey, analysis: &Analysis) -> Result<()> {
        self.append(key, &Found::from(analysis)).map(drop)
    }

    /// The size of the file at `executable` in bytes, if it has no entry and can have one; else 0.
    pub fn unknown_size(&self, executable: &Path) -> u64 {
        match self.look(executable) {
            Ok((key, None)) => key.size,
            Ok((_, Some(_))) | Err(_) => 0,
        }
    }

    /// The key of the file at `executable`, and what is known of it.
    fn look(&self, executable: &Path) -> Result<(FileKey, Option<Outcome>)> {
        let metadata = fs::metadata(executable).map_err(failed("look at", executable))?;
        if !metadata.is_file() {
            return Err(failed("analyse", executable)(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not a regular file",
            )));
        }
        let key = file_key(&metadata);
        let mut open = self.opened();
        // Another process may have appended since the file was mapped; or somebody who knows nothing of our
        // rules has cut it, and to look at what it no longer has would end the host.
        open.refresh(&self.place)?;
        Ok((key, open.known(&key)))
    }

    fn append(&self, key: &FileKey, found: &Found) -> Result<Outcome> {
        let Found { sites, unproven } = found;
        let mut open = self.opened();
        open.lock(&self.place)?;
        let outcome = match open.known(key) {
            Some(known) => Ok(known),
            None => open
                .append(&self.place, key, sites, *unproven)
                .map(|()| Outcome::Analysed { sites: sites.len(), unproven: *unproven }),
        };
        open.unlock(&self.place)?;
        outcome
    }

    fn opened(&self) -> MutexGuard<'_, Open> {
        // A panic of another thread leaves at worst an old map behind.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn at(path: &Path) -> Result<Open> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(path)
            .map_err(failed("open the site file", path))?;
        let metadata = file.metadata().map_err(failed("open the site file", path))?;
        let found = trust::Found { mode: metadata.mode(), owner: metadata.uid(), size: metadata.len() };
        // The agents ask the same.
        if trust::site_file(&found, effective_user()).is_err() {
            return Err(failed("use the site file", path)(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it is not a regular file of this user that only he may write",
            )));
        }
        take_room(&file).map_err(failed("use the site file", path))?;
        let mapping = map(&file, path)?;
        Ok(Open { file, mapping })
    }

    fn is_ours(&self) -> bool {
        self.header().is_some_and(|header| header.is_ours()) && self.mapping.len() >= SITES_OFFSET
    }

    fn header(&self) -> Option<FileHeader> {
        FileHeader::read(&self.mapping)
    }

    fn known(&self, key: &FileKey) -> Option<Outcome> {
        let Entry { sites, unproven } = lookup_entry(&self.mapping, key)?;
        Some(Outcome::Known { sites: sites.len(), unproven })
    }

    /// Takes up what other processes have done: the file at the path, in its present length.
    fn refresh(&mut self, place: &Place) -> Result<()> {
        let name = place.name();
        let ours = self.file.metadata().map_err(failed("look at the site file", name))?;
        if let Place::At(path) = place {
            let now = fs::metadata(path).map_err(failed("look at the site file", path))?;
            if (now.dev(), now.ino()) != (ours.dev(), ours.ino()) {
                return self.give_way_to(Open::at(path)?).map_err(failed("open the site file", path));
            }
        }
        if ours.len() != self.mapping.len() as u64 {
            self.mapping = map(&self.file, name)?;
        }
        Ok(())
    }

    /// `other` takes this one's place, and its descriptor's number.
    fn give_way_to(&mut self, other: Open) -> io::Result<()> {
        let mut descriptor: OwnedFd = std::mem::replace(&mut self.file, other.file).into();
        self.mapping = other.mapping;
        let moved = rustix::io::dup3(&self.file, &mut descriptor, rustix::io::DupFlags::CLOEXEC);
        // Where that fails the number is another from now on, and agents that come later find nothing there.
        moved.map(|()| self.file = descriptor.into()).map_err(io::Error::from)
    }

    /// Locks the file that is at the path once the lock is held, with all that is in it.
    fn lock(&mut self, place: &Place) -> Result<()> {
        let name = place.name();
        loop {
            lock_patiently(&self.file).map_err(failed("lock the site file", name))?;
            let locked = self.file.metadata().map_err(failed("look at the site file", name))?.ino();
            // Opening another file gives up the lock with the old one.
            self.refresh(place)?;
            let now = self.file.metadata().map_err(failed("look at the site file", name))?.ino();
            if now == locked {
                return Ok(());
            }
        }
    }

    fn unlock(&self, place: &Place) -> Result<()> {
        self.file.unlock().map_err(failed("unlock the site file", place.name()))
    }

    /// Replaces the file, whose lock is held, by an empty one, and locks that. One in memory stays as it is.
    fn start_afresh(&mut self, place: &Place) -> Result<()> {
        let Place::At(path) = place else { return Ok(()) };
        replace(path, Some(&self.file))?;
        self.lock(place)
    }

    /// Appends one entry; the lock is held.
    fn append(&mut self, place: &Place, key: &FileKey, sites: &[Site], unproven: u32) -> Result<()> {
        let name = place.name();
        let room = match self.room_for(key, sites.len()) {
            Some(room) => room,
            None => {
                self.start_afresh(place)?;
                self.room_for(key, sites.len()).ok_or_else(|| {
                    failed("append to the site file", name)(io::Error::other("it does not fit"))
                })?
            }
        };
        self.write(room, key, sites, unproven).map_err(failed("append to the site file", name))?;
        self.refresh(place)
    }

    /// Where the entry goes; `None` if the file is full or its header contradicts its length.
    fn room_for(&self, key: &FileKey, count: usize) -> Option<Room> {
        let header = self.header().filter(|_| self.is_ours())?;
        let first = header.sites as usize;
        let room = (self.mapping.len() - SITES_OFFSET) / size_of::<Site>();
        if first > room || first + count > FULL_SITES || header.used_slots >= FULL_SLOTS {
            return None;
        }
        let hash = key.hash();
        let slot = (0..HASH_SLOTS)
            .map(|probe| slot_offset(hash, probe))
            .find(|offset| self.mapping[*offset..][..8] == [0; 8])?;
        Some(Room { header, first, slot: slot as u64 })
    }

    fn write(&self, room: Room, key: &FileKey, sites: &[Site], unproven: u32) -> io::Result<()> {
        let writes = room.writes(key, sites, unproven);
        let ends = writes.iter().map(|(start, bytes)| start + bytes.len() as u64);
        check_size_limit(ends.max().unwrap_or_default())?;
        // Each write is a system call that copies into the page that the readers have mapped, and this
        // machine's processors keep stores in order: who sees the hash sees what came before it.
        writes.iter().try_for_each(|(start, bytes)| self.file.write_all_at(bytes, *start))
    }
}

struct Room {
    header: FileHeader,
    /// Number of the first site's record.
    first: usize,
    /// File offset of the index slot.
    slot: u64,
}

impl Room {
    /// The writes of an append, each with its file offset, in the order in which they must be done.
    fn writes(&self, key: &FileKey, sites: &[Site], unproven: u32) -> [(u64, Vec<u8>); 4] {
        // `room_for` has checked that the sums are far below 2^32.
        let header = FileHeader {
            sites: (self.first + sites.len()) as u32,
            used_slots: self.header.used_slots + 1,
            ..self.header
        };
        let index = Index::new(*key, self.first as u32, sites, unproven);
        let (hash, rest) = index.bytes().split_at(size_of::<u64>());
        let sites_start = SITES_OFFSET + self.first * size_of::<Site>();
        [
            (sites_start as u64, sites.iter().flat_map(Plain::bytes).copied().collect()),
            (0, header.bytes().to_vec()),
            (self.slot + hash.len() as u64, rest.to_vec()),
            (self.slot, hash.to_vec()),
        ]
    }
}

fn map(file: &File, path: &Path) -> Result<Mmap> {
    // SAFETY: the file is in a directory that only this user can write, nobody who follows this
    // module's rules ever cuts it, whoever looks at it has just asked for its length (`refresh`), and
    // readers take its content as untrusted (`lookup_entry`).
    unsafe { Mmap::map(file) }.map_err(failed("map the site file", path))
}

/// Puts an empty site file at `path`, unless somebody else was faster: `old` is what was to be
/// replaced (`None`: nothing was there).
fn replace(path: &Path, old: Option<&File>) -> Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let lock = File::open(directory).map_err(failed("open the directory", directory))?;
    lock_patiently(&lock).map_err(failed("lock the directory", directory))?;
    let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let there = fs::symlink_metadata(path).ok().map(identity);
    let expected = old.and_then(|file| file.metadata().ok()).map(identity);
    if there != expected {
        return Ok(());
    }
    let aside = path.with_extension("new");
    write_empty(&aside).and_then(|()| fs::rename(&aside, path)).map_err(|error| {
        // On a full disk a part of it is there.
        let _ = fs::remove_file(&aside);
        failed("make the site file", path)(error)
    })
}

/// An empty site file that only this user's processes can open, and that nobody can cut.
fn make_in_memory() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let name = "runahead-sites";
    // What is not to be executed says so where the kernel knows that (Linux 6.3).
    let file = rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create(name, flags))?;
    rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    check_size_limit(SITES_OFFSET as u64)?;
    let file = File::from(file);
    file.write_all_at(FileHeader::EMPTY.bytes(), 0)?;
    file.set_len(SITES_OFFSET as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK)?;
    Ok(file)
}

fn write_empty(path: &Path) -> io::Result<()> {
    check_size_limit(SITES_OFFSET as u64)?;
    // A leftover of a writer that died: the directory's lock says that nobody is at it.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    unmask_file(&file, 0o600)?;
    // Written whole, the index lies in one piece on the disk: a cold start had 21 requests for it otherwise.
    let mut empty = vec![0; SITES_OFFSET];
    let header = FileHeader::EMPTY;
    empty[..header.bytes().len()].copy_from_slice(header.bytes());
    file.write_all_at(&empty, 0)
}

/// Gives a file in memory all of its pages: to look at one that was never written takes a page there as well,
/// and where there is none left it is SIGBUS for whoever looks at a mapping.
fn take_room(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if metadata.blocks() * 512 < metadata.len()
        && FileSystem::of(rustix::fs::fstatfs(file)?.f_type).is_in_memory()
    {
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, metadata.len())?;
    }
    Ok(())
}

/// How long to wait for a lock. Holders write some kilobytes and let go; one that does not has been
/// stopped in the middle, and nobody's command shall hang for that.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

fn lock_patiently(file: &File) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if start.elapsed() > LOCK_PATIENCE => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "another process has held its lock for a second",
                ));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// A write beyond the process's file size limit would not fail but kill us with SIGXFSZ.
fn check_size_limit(end: u64) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < end => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "the process's file size limit (ulimit -f) is too low",
        )),
        _ => Ok(()),
    }
}

/// Whether the file had last changed long enough before `now` for its times to tell it apart from what
/// it may become. Times in the future tell nothing, now or later, and are taken as they are.
pub(crate) fn settled(key: &FileKey, now: SystemTime) -> bool {
    let Ok(now) = now.duration_since(UNIX_EPOCH) else {
        return true;
    };
    let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    let last = key.changed.max(key.modified.min(now));
    last > now || now - last >= SETTLED_NANOSECONDS
}

#[cfg(test)]
mod tests {
    use super::*;
    use runahead_abi::sites::form;

    fn key(inode: u64) -> FileKey {
        FileKey { device: 1, inode, size: 2, modified: 3, changed: 4 }
    }

    fn analysis(seeds: std::ops::Range<u8>) -> Analysis {
        let site = |seed| Site {
            patch_offset: u64::from(seed),
            pad_offset: 0,
            number: 9,
            form: form::MOV_IMM32,
            syscall_distance: 5,
            into_function: 0,
            expected: [seed; 16],
            expected_pad: [0; 8],
        };
        Analysis { sites: seeds.map(site).collect(), ..Analysis::default() }
    }

    /// Every instant of an append, as a crash would leave the file: the writes as the writer does
    /// them, cut in the middle of each and after it.
    #[test]
    fn a_crash_at_any_instant_leaves_a_good_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        let (first, second) = (analysis(1..4), analysis(10..15));
        let file = SiteFile::open_or_create(&path).unwrap();
        file.keep(&key(1), &first).unwrap();
        let writes = {
            let open = file.opened();
            let room = open.room_for(&key(2), second.sites.len()).unwrap();
            room.writes(&key(2), &second.sites, 0)
        };
        let before = fs::read(&path).unwrap();
        let steps: Vec<(usize, u8)> =
            writes.iter().flat_map(|(start, bytes)| (*start as usize..).zip(bytes.iter().copied())).collect();
        // The last write is one aligned word, which the readers see whole or not at all.
        let last = steps.len() - size_of::<u64>();
        for done in (0..=last).chain([steps.len()]) {
            let mut image = before.clone();
            for (position, byte) in &steps[..done] {
                image.resize(image.len().max(position + 1), 0);
                image[*position] = *byte;
            }
            fs::remove_file(&path).unwrap();
            fs::write(&path, image).unwrap();
            let file = SiteFile::open_or_create(&path).unwrap();
            let published = done == steps.len();
            assert_eq!(file.lookup(&key(1)), Some((first.sites.clone(), 0)));
            assert_eq!(file.lookup(&key(2)).is_some(), published, "after {done}");
            // And the next writer goes on from there.
            file.keep(&key(2), &second).unwrap();
            assert_eq!(file.lookup(&key(1)), Some((first.sites.clone(), 0)));
            assert_eq!(file.lookup(&key(2)), Some((second.sites.clone(), 0)));
            let slots = file.opened().header().unwrap().used_slots;
            assert!((2..=3).contains(&slots));
            // Nothing half-written is left in the way of others.
            let hashes = fs::read(&path).unwrap()[runahead_abi::sites::INDEX_OFFSET..SITES_OFFSET]
                .chunks(size_of::<Index>())
                .filter(|slot| slot[..8] != [0; 8])
                .count();
            assert_eq!(hashes, 2);
        }
    }
}
