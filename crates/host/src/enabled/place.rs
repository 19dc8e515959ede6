//! Where the host of all of a user's programs is found: a folder of the user's, with the file that
//! `runahead_abi::enabled` describes and one that a living host has locked.

use runahead_abi::enabled::{FILE, LOCK, PLACES, Published};
use runahead_sites::location::{effective_user, private_directory, unmask_file};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A folder of this user's in which a host may be found.
#[derive(Clone, Debug)]
pub(super) struct Place(PathBuf);

/// What there is to be known of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host {
    Lives(u32),
    /// None, or it says nothing of itself.
    None,
}

impl Place {
    /// All that an agent looks into, in its order. None of them need be there.
    pub(super) fn all() -> [Place; 2] {
        let user = effective_user();
        PLACES.map(|(before, behind)| Place(format!("{before}{user}{behind}").into()))
    }

    /// The one for a new host, made if need be: the login manager's folder, else one that stays.
    pub(super) fn make() -> io::Result<Place> {
        let [first, second] = Place::all();
        let is_ours = |folder: &Path| {
            fs::symlink_metadata(folder).is_ok_and(|found| {
                found.is_dir() && found.uid() == effective_user() && found.mode() & 0o022 == 0
            })
        };
        let place = if first.0.parent().is_some_and(is_ours) { first } else { second };
        private_directory(&place.0).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot use the folder {}: {error}", place.0.display()))
        })?;
        Ok(place)
    }

    /// Whether it is there, and nobody else's.
    pub(super) fn is_ours(&self) -> bool {
        fs::symlink_metadata(&self.0).is_ok_and(|found| found.is_dir() && found.uid() == effective_user())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    fn file(&self) -> PathBuf {
        self.0.join(FILE)
    }

    /// The place's lock, if nobody has it. `waits`: until that is so.
    pub(super) fn lock(&self, waits: bool) -> io::Result<Option<File>> {
        let how =
            if waits { FlockOperation::LockExclusive } else { FlockOperation::NonBlockingLockExclusive };
        let path = self.0.join(LOCK);
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
                .open(&path)?;
            unmask_file(&file, 0o600)?;
            match flock(&file, how) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            // Who has had it before may have removed the file: then this is a lock on nothing.
            let ours = file.metadata()?;
            if fs::symlink_metadata(&path)
                .is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()))
            {
                return Ok(Some(file));
            }
        }
    }

    /// Who has the lock.
    pub(super) fn host(&self) -> Host {
        let Ok(mut file) = File::open(self.0.join(LOCK)) else { return Host::None };
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return Host::None;
        }
        let mut text = String::new();
        let _ = file.read_to_string(&mut text);
        text.trim().parse().map_or(Host::None, Host::Lives)
    }

    /// Says in the lock's file who has it.
    pub(super) fn sign(lock: &File) -> io::Result<()> {
        lock.set_len(0)?;
        let mut lock = lock;
        lock.write_all(format!("{}\n", std::process::id()).as_bytes())
    }

    /// Publishes the text, whole.
    pub(super) fn publish(&self, text: &[u8]) -> io::Result<()> {
        let (new, file) = (self.0.join(format!("{FILE}.{}", std::process::id())), self.file());
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)
            .and_then(|mut open| unmask_file(&open, 0o600).and_then(|()| open.write_all(text)))
            .and_then(|()| fs::rename(&new, &file));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }

    /// The process id of the host that is published.
    pub(super) fn published(&self) -> Option<u32> {
        Some(Published::parse(&fs::read(self.file()).ok()?)?.session.host)
    }

    /// Whether exactly this is published.
    pub(super) fn says(&self, text: &[u8]) -> bool {
        fs::read(self.file()).is_ok_and(|there| there == text)
    }

    /// Takes back what is published.
    pub(super) fn take_back(&self) -> io::Result<()> {
        match fs::remove_file(self.file()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// So that nobody takes it for forgotten (tmpfiles.d(5) empties `/var/tmp` of what is old).
    pub(super) fn touch(&self) {
        for path in [self.file(), self.0.join(LOCK), self.0.clone()] {
            if let Ok(file) = File::open(path) {
                let _ = file.set_modified(std::time::SystemTime::now());
            }
        }
    }

    /// Leaves nothing of ours there; the folder goes if nothing else is in it.
    pub(super) fn clear(&self) {
        let _ = self.take_back();
        let _ = fs::remove_file(self.0.join(LOCK));
        let _ = fs::remove_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, Place) {
        let directory = tempfile::tempdir().unwrap();
        let place = Place(directory.path().join("runahead"));
        private_directory(place.path()).unwrap();
        (directory, place)
    }

    #[test]
    fn one_host_has_the_lock() {
        let (_directory, place) = place();
        assert_eq!(place.host(), Host::None);
        let lock = place.lock(false).unwrap().unwrap();
        Place::sign(&lock).unwrap();
        assert_eq!(place.host(), Host::Lives(std::process::id()));
        assert!(place.lock(false).unwrap().is_none());
        drop(lock);
        assert_eq!(place.host(), Host::None);
        assert!(place.lock(false).unwrap().is_some());
    }

    #[test]
    fn what_is_published_is_whole_and_can_be_taken_back() {
        let (_directory, place) = place();
        let text = b"12:3:2:0:0123456789abcdeffedcba9876543210:5\nend\n";
        assert_eq!(place.published(), None);
        place.publish(text).unwrap();
        place.publish(text).unwrap();
        assert!(place.says(text) && !place.says(b"end\n"));
        assert_eq!(place.published(), Some(12));
        place.take_back().unwrap();
        place.take_back().unwrap();
        assert_eq!(place.published(), None);
        place.clear();
        assert!(!place.path().exists());
    }

    #[test]
    fn what_else_is_in_the_folder_stays() {
        let (_directory, place) = place();
        fs::write(place.path().join("sites"), "x").unwrap();
        place.publish(b"x").unwrap();
        place.clear();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
