//! What runs have wanted, to be taken along: a file of the user's choice, in the form in which a
//! [`Memory`] stands in the user's cache folder, so that one of those is a profile as well.
//!
//! What is written into a profile has no inodes and no devices: on another machine, or in a copy of an image,
//! they are others. A file is found by its path, which [`Prefixes`] may lead elsewhere, and is what was meant
//! if it has the same size: its time may be another in a copy, and what is asked for in vain costs time alone.

use crate::look::{self, Found, Mounts, Opened};
use crate::memory::{Flaw, MOST_BYTES, MOST_PATH, MOST_WANTS, Memory, Variant, Want, What};
use crate::store::{may_write, write_aside};
use crate::{Identity, PAGE, hash};
use rustix::fs::{CWD, Mode, OFlags, fstat, open, openat};
use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

/// Rights of a new profile: others may have a look at it, as at a program.
const MODE: u32 = 0o644;

/// Why a file is no profile that is used.
#[derive(Debug)]
pub enum Unusable {
    Unread(io::Error),
    NotAFile,
    /// It belongs to this user.
    Anothers(u32),
    OthersMayWrite,
    Flawed(Flaw),
}

impl fmt::Display for Unusable {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Unusable::Unread(error) => write!(to, "it cannot be read: {error}"),
            Unusable::NotAFile => to.write_str("it is no regular file"),
            Unusable::Anothers(user) => {
                write!(to, "it belongs to user {user}, who could change it; a copy of your own can be used")
            }
            Unusable::OthersMayWrite => to.write_str("others may write to it (chmod go-w helps)"),
            Unusable::Flawed(flaw) => to.write_str(match flaw {
                Flaw::Empty => "it is empty: nothing was recorded, or the command was killed",
                Flaw::TooLong => "it is longer than a profile can be",
                Flaw::Foreign => "it is no profile",
                Flaw::OtherVersion => "another version of Runahead has written it",
                Flaw::Damaged => "it was cut or changed",
                Flaw::OutOfBounds => "numbers or names in it are out of bounds",
            }),
        }
    }
}

/// Reads a profile. Nothing but a regular file is opened, which is the user's or the superuser's and which
/// only they can have written; a group may write to it if it is the user's own.
pub fn read(path: &Path) -> Result<Memory, Unusable> {
    let unread = |error: rustix::io::Errno| Unusable::Unread(error.into());
    // As a place first, which has no effect whatever it is.
    let place = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(unread)?;
    let there = fstat(&place).map_err(unread)?;
    if !is_file(there.st_mode) {
        return Err(Unusable::NotAFile);
    }
    may_use(there.st_mode, there.st_uid, there.st_gid)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(CWD, format!("/proc/self/fd/{}", place.as_raw_fd()), flags, Mode::empty());
    let mut bytes = Vec::new();
    let read = File::from(file.map_err(unread)?).take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes);
    read.map_err(Unusable::Unread)?;
    Memory::decode(&bytes).map_err(Unusable::Flawed)
}

fn is_file(mode: u32) -> bool {
    rustix::fs::FileType::from_raw_mode(mode) == rustix::fs::FileType::RegularFile
}

fn may_use(mode: u32, owner: u32, group: u32) -> Result<(), Unusable> {
    let user = rustix::process::geteuid().as_raw();
    if owner != user && owner != 0 {
        return Err(Unusable::Anothers(owner));
    }
    let others = if group == rustix::process::getegid().as_raw() { 0o002 } else { 0o022 };
    if mode & others != 0 { Err(Unusable::OthersMayWrite) } else { Ok(()) }
}

/// Opens the file that a run is to be recorded into, and makes it if there is none. What it has stays until
/// [`write`].
pub fn open_to_record(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    // What is there already and is no file is not opened.
    let is_other = fs::metadata(path).is_ok_and(|there| !there.is_file());
    let kind = |kind: &str| io::Error::new(io::ErrorKind::InvalidInput, kind.to_owned());
    if is_other {
        return Err(kind("it is no regular file"));
    }
    let opened: OwnedFd = open(path, flags, Mode::from_raw_mode(MODE))?;
    let file = File::from(opened);
    let there = file.metadata()?.file_type();
    if there.is_fifo() || !there.is_file() {
        return Err(kind("it is no regular file"));
    }
    Ok(file)
}

/// Writes a profile over what the file has.
pub fn write(file: &File, memory: &Memory) -> io::Result<()> {
    let bytes = encoded(memory)?;
    let write = || {
        file.set_len(0)?;
        file.write_all_at(&bytes, 0)
    };
    write().inspect_err(|_| {
        // Rather none than half of one.
        let _ = file.set_len(0);
    })
}

/// Puts a profile into the place of what is at this path.
pub fn save(path: &Path, memory: &Memory) -> io::Result<()> {
    let bytes = encoded(memory)?;
    // What a name leads to is written, not a link replaced.
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&place).is_ok_and(|there| !there.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut name = std::ffi::OsString::from(".");
    name.push(place.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    write_aside(&place.with_file_name(name), &place, &bytes, MODE)
}

fn encoded(memory: &Memory) -> io::Result<Vec<u8>> {
    let bytes = portable(memory.clone()).encode();
    if bytes.len() > MOST_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    may_write(&bytes).map(|()| bytes)
}

/// Without what is so on one machine only.
fn portable(mut memory: Memory) -> Memory {
    let without = |identity: Identity| Identity { device: 0, inode: 0, ..identity };
    memory.identity = without(memory.identity);
    for want in memory.variants.iter_mut().flat_map(|variant| &mut variant.wants) {
        match &mut want.what {
            What::File { identity, .. } => *identity = without(*identity),
            What::Directory { device, inode } => (*device, *inode) = (0, 0),
            What::Name => {}
        }
    }
    memory
}

/// All that it has, each path once, in the order of the runs.
pub fn wants(memory: &Memory) -> Vec<Want> {
    let mut all: Vec<Want> = Vec::new();
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    for want in memory.variants.iter().flat_map(|variant| &variant.wants) {
        match places.get(&want.path[..]) {
            None => {
                places.insert(&want.path, all.len());
                all.push(Want { unseen: 0, ..want.clone() });
            }
            Some(&at) => all[at].what = joined(&all[at].what, &want.what),
        }
    }
    all
}

/// What two runs wanted of one name.
fn joined(first: &What, second: &What) -> What {
    match (first, second) {
        (
            What::File { identity, pages, wrong },
            What::File { identity: other, pages: others, wrong: other_wrong },
        ) => match identity.size == other.size {
            true => {
                What::File { identity: *identity, pages: pages.with(others), wrong: *wrong.min(other_wrong) }
            }
            // Two versions: the newer one.
            false if other.modified > identity.modified => second.clone(),
            false => first.clone(),
        },
        (What::Name, _) => second.clone(),
        _ => first.clone(),
    }
}

/// One profile of several. None: they have more names than one can have.
pub fn merge(all: &[Memory]) -> Option<Memory> {
    let variants = all.iter().flat_map(|one| one.variants.iter().cloned()).collect();
    let whole = Memory { variants, ..Memory::default() };
    let wants = wants(&whole);
    let (first, rest) = all.split_first()?;
    let is_one = rest.iter().all(|other| other.path == first.path);
    let (path, identity) = if is_one { (first.path.clone(), first.identity) } else { Default::default() };
    (wants.len() <= MOST_WANTS).then(|| of(path, identity, wants))
}

/// A profile of one executable's run, or of several executables' (no path).
pub fn of(path: Vec<u8>, identity: Identity, wants: Vec<Want>) -> Memory {
    let key = hash(0, &path);
    Memory { path, identity, variants: vec![Variant { key, wrong: 0, wants }] }
}

/// What is kept of a profile that is trimmed.
#[derive(Clone, Debug, Default)]
pub struct Trim {
    /// Names below these folders, or all; and none below those.
    pub only: Vec<Vec<u8>>,
    pub except: Vec<Vec<u8>>,
    /// Bytes, the first that were wanted.
    pub most: Option<u64>,
}

pub fn trim(memory: &Memory, how: &Trim) -> Memory {
    let is_in = |folders: &[Vec<u8>], path: &[u8]| folders.iter().any(|folder| below(path, folder).is_some());
    let mut left = how.most.unwrap_or(u64::MAX);
    let kept = wants(memory).into_iter().filter_map(|mut want| {
        let is_kept =
            (how.only.is_empty() || is_in(&how.only, &want.path)) && !is_in(&how.except, &want.path);
        if let What::File { pages, .. } = &mut want.what
            && is_kept
            && !pages.is_empty()
        {
            *pages = pages.cut(left / PAGE, usize::MAX);
            left -= pages.pages() * PAGE;
            // Of a file of which nothing is wanted nothing has to be opened.
            return (!pages.is_empty()).then_some(want);
        }
        is_kept.then_some(want)
    });
    of(memory.path.clone(), memory.identity, kept.collect())
}

/// What follows on a folder in a path below it, with its slash; empty: it is that folder.
fn below<'a>(path: &'a [u8], folder: &[u8]) -> Option<&'a [u8]> {
    let folder = folder.strip_suffix(b"/").unwrap_or(folder);
    path.strip_prefix(folder).filter(|rest| matches!(rest.first(), None | Some(b'/')))
}

/// Folders that are elsewhere than where the profile was recorded: old and new.
#[derive(Clone, Debug, Default)]
pub struct Prefixes(pub Vec<(Vec<u8>, Vec<u8>)>);

impl Prefixes {
    /// Where a path is here: the longest old folder that it is below counts. None: it would be too long.
    fn lead(&self, path: &[u8]) -> Option<Vec<u8>> {
        let fits = self.0.iter().filter_map(|(old, new)| Some((old.len(), new, below(path, old)?)));
        let Some((_, new, rest)) = fits.max_by_key(|(length, ..)| *length) else {
            return Some(path.to_vec());
        };
        let new = new.strip_suffix(b"/").unwrap_or(new);
        let led = [new, rest].concat();
        let led = if led.is_empty() { b"/".to_vec() } else { led };
        (led.first() == Some(&b'/') && led.len() <= MOST_PATH).then_some(led)
    }
}

/// What a profile has, as it is to be asked for on this machine.
pub fn here(memory: &Memory, prefixes: &Prefixes, mounts: &Mounts) -> Vec<Want> {
    let memory = portable(memory.clone());
    let lead = |mut want: Want| {
        want.path = prefixes.lead(&want.path)?;
        // How much a disk has to do is asked by its number.
        match &mut want.what {
            What::File { identity, .. } => identity.device = mounts.device(&want.path),
            What::Directory { device, .. } => *device = mounts.device(&want.path),
            What::Name => {}
        }
        Some(want)
    };
    wants(&memory).into_iter().filter_map(lead).collect()
}

/// What has become of a file that a profile has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Of the same size and time.
    Same,
    /// Of the same size: asked for all the same.
    Touched,
    /// Of another size, or something else.
    Changed,
    Missing,
    /// It may not be opened, or is on no disk.
    Refused,
    /// Only looked up.
    Name,
}

impl Standing {
    /// Whether it would be asked for.
    pub fn is_asked_for(self) -> bool {
        matches!(self, Standing::Same | Standing::Touched | Standing::Name)
    }

    pub fn word(self) -> &'static str {
        match self {
            Standing::Same => "same",
            Standing::Touched => "touched",
            Standing::Changed => "changed",
            Standing::Missing => "missing",
            Standing::Refused => "refused",
            Standing::Name => "name",
        }
    }
}

/// Looks at a name without opening what it leads to.
pub fn standing(want: &Want, mounts: &Mounts) -> Standing {
    if want.what == What::Name {
        return if mounts.has(&want.path) { Standing::Name } else { Standing::Refused };
    }
    let Some(name) = look::name(&want.path) else { return Standing::Refused };
    let (place, found) = match look::at(&name, mounts) {
        Ok(both) => both,
        Err(Opened::Other) => return Standing::Missing,
        Err(_) => return Standing::Refused,
    };
    let may_read = |is| if look::may_be_read(&place) { is } else { Standing::Refused };
    match (&want.what, found) {
        (What::File { identity, .. }, Some(Found::File(found))) if identity.is(&found) => {
            may_read(if is_same_time(identity.modified, found.modified) {
                Standing::Same
            } else {
                Standing::Touched
            })
        }
        (What::Directory { .. }, Some(Found::Directory { .. })) => may_read(Standing::Same),
        _ => Standing::Changed,
    }
}

/// Archives and images keep seconds only.
fn is_same_time(one: u64, other: u64) -> bool {
    const SECOND: u64 = 1_000_000_000;
    let is_whole = |time: u64| time.is_multiple_of(SECOND);
    one == other || (one / SECOND == other / SECOND && (is_whole(one) || is_whole(other)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MOST_VARIANTS;
    use crate::ranges::Ranges;
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;

    fn file(path: &str, size: u64, pages: std::ops::Range<u32>) -> Want {
        let identity = Identity { device: 5, inode: 7, size, modified: 9 };
        let mut ranges = Ranges::default();
        ranges.push(pages);
        Want { path: path.into(), what: What::File { identity, pages: ranges, wrong: 0 }, unseen: 1 }
    }

    fn named(path: &str) -> Want {
        Want { path: path.into(), what: What::Name, unseen: 0 }
    }

    fn profile(wants: &[Want]) -> Memory {
        of(b"/bin/program".to_vec(), Identity::default(), wants.to_vec())
    }

    fn paths(wants: &[Want]) -> Vec<&str> {
        wants.iter().map(|want| std::str::from_utf8(&want.path).unwrap()).collect()
    }

    fn pages(want: &Want) -> u64 {
        if let What::File { pages, .. } = &want.what { pages.pages() } else { 0 }
    }

    #[test]
    fn what_is_written_has_no_inodes_and_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile");
        let written = profile(&[file("/a", 5000, 0..2), named("/b")]);
        // In the place of a longer one.
        fs::write(&path, [1; 9000]).unwrap();
        write(&open_to_record(&path).unwrap(), &written).unwrap();
        let found = read(&path).unwrap();
        assert_eq!(found, portable(written.clone()));
        assert!(found.variants[0].wants[0].what != written.variants[0].wants[0].what);
        let other = folder.path().join("other");
        std::os::unix::fs::symlink("profile", &other).unwrap();
        save(&other, &profile(&[named("/c")])).unwrap();
        assert_eq!(paths(&wants(&read(&path).unwrap())), ["/c"], "the link stays");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left aside");
        assert!(save(folder.path(), &written).is_err() && open_to_record(folder.path()).is_err());
    }

    #[test]
    fn what_is_no_profile_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let why = |name: &str| read(&at(name)).map_err(|why| why.to_string()).expect_err(name);
        assert!(why("none").contains("cannot be read"));
        fs::create_dir(at("folder")).unwrap();
        rustix::fs::mknodat(CWD, at("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for name in ["folder", "pipe", "/dev/zero"] {
            assert!(why(name).contains("no regular file"), "{name}");
        }
        assert!(open_to_record(&at("pipe")).is_err() && open_to_record(Path::new("/dev/zero")).is_err());
        let good = profile(&[named("/a")]).encode();
        for (contents, says) in [
            (&b""[..], "empty"),
            (b"#!/bin/sh\n", "no profile"),
            (b"RArem", "cut"),
            (&good[..good.len() - 1], "cut"),
            (b"RArem999 and what may come", "another version"),
        ] {
            fs::write(at("file"), contents).unwrap();
            assert!(why("file").contains(says), "{contents:?}");
        }
        File::create(at("file")).unwrap().set_len(1 << 40).unwrap();
        assert!(why("file").contains("longer"));
        fs::write(at("file"), &good).unwrap();
        fs::set_permissions(at("file"), fs::Permissions::from_mode(0o646)).unwrap();
        assert!(why("file").contains("others may write"));
        fs::set_permissions(at("file"), fs::Permissions::from_mode(0o444)).unwrap();
        assert!(read(&at("file")).is_ok());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(at("file"), Some(65534), Some(65534)).unwrap();
            assert!(why("file").contains("user 65534"));
        }
    }

    #[test]
    fn of_several_runs_each_name_is_there_once() {
        let first = profile(&[file("/a", 40_960, 0..2), named("/b"), file("/c", 40_960, 0..1)]);
        let newer = |path: &str| {
            let mut newer = file(path, 50_000, 3..4);
            if let What::File { identity, .. } = &mut newer.what {
                identity.modified = 10;
            }
            newer
        };
        let second = profile(&[file("/a", 40_960, 1..3), file("/b", 4096, 0..1), newer("/c"), named("/d")]);
        let merged = merge(&[first.clone(), second.clone()]).unwrap();
        let [variant] = &merged.variants[..] else { panic!() };
        assert_eq!(paths(&variant.wants), ["/a", "/b", "/c", "/d"]);
        assert_eq!(variant.wants.iter().map(pages).collect::<Vec<_>>(), [3, 1, 1, 0]);
        assert_eq!((&merged.path[..], &variant.wants[2].what), (&b"/bin/program"[..], &newer("/c").what));
        // What stands in the cache folder is one as well.
        let variants = vec![first.variants[0].clone(), second.variants[0].clone()];
        assert_eq!(wants(&Memory { variants, ..first.clone() }), variant.wants);
        let other = Memory { path: b"/bin/other".to_vec(), ..second };
        assert!(merge(&[first.clone(), other]).unwrap().path.is_empty());
        let many = |start: usize| {
            profile(&(start..start + MOST_WANTS).map(|at| named(&format!("/{at}"))).collect::<Vec<_>>())
        };
        assert!(merge(&[many(0), many(0)]).is_some() && merge(&[many(0), many(1)]).is_none());
    }

    #[test]
    fn a_part_is_kept() {
        let whole = profile(&[
            file("/usr/lib/a", 40_960, 0..5),
            named("/usr/lib"),
            file("/usr/library", 40_960, 0..5),
            file("/home/b", 40_960, 0..5),
        ]);
        let kept = |only: &[&str], except: &[&str], most| {
            let folders = |all: &[&str]| all.iter().map(|one| one.as_bytes().to_vec()).collect();
            let trimmed = trim(&whole, &Trim { only: folders(only), except: folders(except), most });
            let wants = wants(&trimmed);
            (paths(&wants).join(" "), wants.iter().map(pages).sum::<u64>())
        };
        assert_eq!(kept(&["/usr/lib"], &[], None), ("/usr/lib/a /usr/lib".to_owned(), 5));
        assert_eq!(kept(&["/usr/"], &["/usr/lib"], None), ("/usr/library".to_owned(), 5));
        assert_eq!(kept(&["/"], &[], Some(7 * PAGE)), ("/usr/lib/a /usr/lib /usr/library".to_owned(), 7));
        assert_eq!(kept(&[], &[], Some(0)), ("/usr/lib".to_owned(), 0));
    }

    #[test]
    fn folders_are_elsewhere() {
        let prefixes = |all: &[(&str, &str)]| {
            Prefixes(
                all.iter().map(|(old, new)| (old.as_bytes().to_vec(), new.as_bytes().to_vec())).collect(),
            )
        };
        let lead = |all: &[(&str, &str)], path: &str| {
            prefixes(all).lead(path.as_bytes()).map(|led| String::from_utf8(led).unwrap())
        };
        let both = [("/a", "/x"), ("/a/b/", "/y/")];
        for (path, expected) in
            [("/a", "/x"), ("/a/c", "/x/c"), ("/a/b/c", "/y/c"), ("/ab", "/ab"), ("/a/b", "/y")]
        {
            assert_eq!(lead(&both, path).as_deref(), Some(expected), "{path}");
        }
        assert_eq!(lead(&[("/", "/image")], "/a").as_deref(), Some("/image/a"));
        assert_eq!(lead(&[("/image", "/")], "/image").as_deref(), Some("/"));
        assert_eq!(lead(&[("/a", &format!("/{}", "x".repeat(MOST_PATH)))], "/a/b"), None);
        assert_eq!(lead(&[("/a", "relative")], "/a/b"), None);
    }

    #[test]
    fn what_has_become_of_a_file_is_told_without_opening_it() {
        let folder = crate::folder_on_a_disk();
        let mounts = Mounts::look();
        let at = |name: &str| folder.path().join(name);
        if !mounts.has(folder.path().as_os_str().as_bytes()) {
            return eprintln!("SKIPPED: {} is on no disk", folder.path().display());
        }
        for name in ["same", "touched", "shorter", "gone", "pipe"] {
            fs::write(at(name), [1; 5000]).unwrap();
        }
        let found = |name: &str| {
            let name = look::name(at(name).as_os_str().as_bytes()).unwrap();
            match look::find(&name, &mounts) {
                Some(Found::File(identity)) => identity,
                other => panic!("{other:?}"),
            }
        };
        let mut all = Vec::new();
        for name in ["same", "touched", "shorter", "gone", "pipe"] {
            let pages = Ranges::first(2);
            let what = What::File { identity: found(name), pages, wrong: 0 };
            all.push(Want { path: at(name).as_os_str().as_bytes().to_vec(), what, unseen: 0 });
        }
        let directory = What::Directory { device: 1, inode: 1 };
        let process = b"/proc/self/status".to_vec();
        all.push(Want {
            path: folder.path().as_os_str().as_bytes().to_vec(),
            what: directory.clone(),
            unseen: 0,
        });
        all.push(Want { path: at("same").as_os_str().as_bytes().to_vec(), what: directory, unseen: 0 });
        all.push(Want { path: process, what: all[0].what.clone(), unseen: 0 });
        // A copy keeps whole seconds, or nothing of the time.
        let seconds = std::time::Duration::from_secs(found("same").modified / 1_000_000_000);
        let set = |name: &str, since| {
            File::options().write(true).open(at(name)).unwrap().set_modified(std::time::UNIX_EPOCH + since)
        };
        set("same", seconds).unwrap();
        set("touched", seconds + std::time::Duration::from_secs(100)).unwrap();
        fs::write(at("shorter"), [1; 4999]).unwrap();
        fs::remove_file(at("gone")).unwrap();
        fs::remove_file(at("pipe")).unwrap();
        rustix::fs::mknodat(CWD, at("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let all: Vec<Want> = all
            .into_iter()
            .map(|want| here(&profile(&[want]), &Prefixes::default(), &mounts).remove(0))
            .collect();
        let words: Vec<&str> = all.iter().map(|want| standing(want, &mounts).word()).collect();
        assert_eq!(words, ["same", "touched", "changed", "missing", "changed", "same", "changed", "refused"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 300, ..ProptestConfig::default() })]

        /// Whatever stands in the file, nothing is out of bounds, and what is made of it can be read again.
        #[test]
        fn any_file_is_bounded_or_refused(
            start in 0usize..3,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            garbage in prop::collection::vec(any::<u8>(), 0..300),
            is_signed: bool,
        ) {
            let wants = [
                file("/usr/lib/a", 1 << 40, 0..1 << 20),
                named("/usr/lib/b"),
                file("/usr/lib/../lib/c", 40_960, 2..9),
            ];
            let good = profile(&wants[..=start]).encode();
            let mut body = if garbage.len() % 2 == 0 { good[16..].to_vec() } else { garbage };
            for (at, byte) in changes {
                if !body.is_empty() {
                    let at = at.index(body.len());
                    body[at] = byte;
                }
            }
            let head = if is_signed { hash(0, &body).to_le_bytes() } else { [1; 8] };
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("profile");
            fs::write(&path, [&good[..8], &head, &body].concat()).unwrap();
            let read = match super::read(&path) {
                Ok(read) => read,
                Err(why) => {
                    prop_assert!(!why.to_string().is_empty());
                    return Ok(());
                }
            };
            prop_assert!(is_signed && read.variants.len() <= MOST_VARIANTS);
            let mounts = Mounts::look();
            let prefixes = Prefixes(vec![(b"/usr".to_vec(), folder.path().as_os_str().as_bytes().to_vec())]);
            for want in here(&read, &prefixes, &mounts) {
                prop_assert!(want.path.len() <= MOST_PATH && !want.path.contains(&0) && !(want.what.is_exact() && want.what != What::Name));
                // Whatever it names is looked at only.
                let _ = standing(&want, &mounts);
            }
            let trimmed = trim(&read, &Trim { most: Some(PAGE), ..Trim::default() });
            for made in [trimmed, merge(&[read]).unwrap()] {
                write(&open_to_record(&path).unwrap(), &made).unwrap();
                prop_assert_eq!(super::read(&path).unwrap(), portable(made));
            }
        }
    }
}
