//! The files in which it stands: one for each executable, in a folder of the user's own beside the site file.
//!
//! A file is written aside and renamed, so a reader finds a whole one or none; of several writers the last
//! one's stays. All of them together are bounded, and those that were written longest ago go first. Nothing
//! here is needed: where something fails, nothing is remembered.

use crate::memory::{MOST_BYTES, Memory};
use crate::{hash, look, memory};
use runahead_abi::trust;
use runahead_sites::{directories, effective_user, private_directory, unmask_file};
use rustix::fs::OFlags;
use rustix::process::{Resource, getrlimit};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The folder's name, beside the site file.
const NAME: &str = "remembered";

/// Bytes of all files.
const MOST_IN_ALL: u64 = 64 << 20;

/// Files that are looked at.
const MOST_FILES: usize = 8192;

/// What a writer that has died has left aside is removed after that.
const ASIDE: Duration = Duration::from_secs(3600);

/// One writer in so many looks at all of them.
const TRIMMED_EVERY: u32 = 16;

const ENDING: &str = "run";

/// The rights of each file.
const PRIVATE: u32 = 0o600;

#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Beside the site file, whose folder is the user's alone. Nothing is made yet.
    pub fn beside(site_file: &Path) -> Store {
        Store { folder: site_file.with_file_name(NAME) }
    }

    /// Wherever the user's site file may be.
    pub fn all() -> Vec<Store> {
        directories().map(|directory| Store { folder: directory.join(NAME) }).collect()
    }

    fn place(&self, executable: &[u8]) -> PathBuf {
        self.folder.join(format!("{:016x}.{ENDING}", hash(0, executable)))
    }

    /// Whether anything is there, which need not be of use.
    pub fn has(&self, executable: &[u8]) -> bool {
        fs::symlink_metadata(self.place(executable)).is_ok()
    }

    /// Whether anything is there that is not in the kernel's cache, where whatever was read or written lately
    /// is.
    pub fn has_cold(&self, executable: &[u8]) -> bool {
        self.open(executable).is_some_and(|file| look::would_wait(file, 0))
    }

    fn open(&self, executable: &[u8]) -> Option<File> {
        // Whoever else can write there could have us open what he likes.
        is_private(&self.folder).ok()?;
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        OpenOptions::new().read(true).custom_flags(flags).open(self.place(executable)).ok()
    }

    /// What is remembered of the executable at this path. None: nothing, or what is there is not to be used.
    pub fn read(&self, executable: &[u8]) -> Option<Memory> {
        let file = self.open(executable)?;
        let there = file.metadata().ok()?;
        let found = trust::Found { mode: there.mode(), owner: there.uid(), size: there.len() };
        if trust::site_file(&found, effective_user()).is_err() || there.len() > MOST_BYTES as u64 {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes).ok()?;
        Memory::decode(&bytes).ok().filter(|memory| memory.path == executable)
    }

    /// Keeps it. `own`: what nobody else writes to at the same time, say a process id.
    pub fn write(&self, memory: &Memory, own: u32) -> io::Result<()> {
        let mut memory = memory.clone();
        let mut bytes = memory.encode();
        while bytes.len() > MOST_BYTES && memory.variants.pop().is_some() {
            bytes = memory.encode();
        }
        private_directory(&self.folder)?;
        let aside = self.folder.join(format!(".{own}.{:016x}", hash(1, &memory.path)));
        write_aside(&aside, &self.place(&memory.path), &bytes, PRIVATE)?;
        // The program waits; and a file more does no harm.
        if own.is_multiple_of(TRIMMED_EVERY) {
            self.trim(MOST_IN_ALL);
        }
        Ok(())
    }

    /// Removes what was written longest ago, until no more than `most` bytes are left.
    fn trim(&self, most: u64) {
        let now = SystemTime::now();
        let mut all = Vec::new();
        let mut sum = 0u64;
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten().take(MOST_FILES) {
            let Ok(there) = entry.metadata() else { continue };
            let written = there.modified().unwrap_or(now);
            let is_aside = entry.file_name().as_encoded_bytes().starts_with(b".");
            if is_aside && now.duration_since(written).is_ok_and(|age| age > ASIDE) {
                let _ = fs::remove_file(entry.path());
            } else if there.is_file() {
                sum = sum.saturating_add(there.len());
                all.push((written, there.len(), entry.path()));
            }
        }
        all.sort();
        for (_, length, path) in all {
            if sum <= most {
                return;
            }
            if fs::remove_file(path).is_ok() {
                sum -= length;
            }
        }
    }

    /// Removes what is remembered of an executable, or everything. Returns how many files that were.
    pub fn forget(&self, executable: Option<&[u8]>) -> io::Result<u64> {
        // Whoever else may write to one of the two could have another folder stand here, and its files
        // removed.
        let above = self.folder.parent().unwrap_or(Path::new("/"));
        match is_private(above).and_then(|()| is_private(&self.folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            checked => checked?,
        }
        if let Some(executable) = executable {
            return match fs::remove_file(self.place(executable)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
                removed => removed.map(|()| 1),
            };
        }
        let mut count = 0;
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let is_aside = entry.file_name().as_encoded_bytes().starts_with(b".");
            let is_kept = entry.path().extension().is_some_and(|ending| ending == ENDING);
            if is_aside || is_kept {
                fs::remove_file(entry.path())?;
                count += u64::from(is_kept && !is_aside);
            }
        }
        Ok(count)
    }
}

fn is_private(folder: &Path) -> io::Result<()> {
    let there = fs::symlink_metadata(folder)?;
    let is_private = there.is_dir() && there.uid() == effective_user() && there.mode() & 0o022 == 0;
    if is_private { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Whether a file may have so many bytes: to write them would not fail but end us (SIGXFSZ).
pub(crate) fn may_write(bytes: &[u8]) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < bytes.len() as u64 => Err(io::ErrorKind::FileTooLarge.into()),
        _ => Ok(()),
    }
}

/// Writes a file aside, and then puts it into its place: whoever reads finds the one before or this one.
/// `mode`: its rights, which the user's mask lessens unless the file is the user's alone: then what he may not
/// read himself would be of no use to the next run.
pub(crate) fn write_aside(aside: &Path, place: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let result = write_new(aside, bytes, mode).and_then(|()| fs::rename(aside, place));
    if result.is_err() {
        let _ = fs::remove_file(aside);
    }
    result
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    may_write(bytes)?;
    // Of a process with this number that has died.
    let _ = fs::remove_file(path);
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    if mode == PRIVATE {
        unmask_file(&file, PRIVATE)?;
    }
    file.write_all(bytes)
}

const _: () = assert!(memory::MOST_BYTES as u64 <= MOST_IN_ALL);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Variant, Want, What};
    use std::os::unix::fs::PermissionsExt;

    fn memory(path: &str, names: usize) -> Memory {
        let want =
            |number| Want { path: format!("/{number:0200}").into_bytes(), what: What::Name, unseen: 0 };
        let variant = Variant { wants: (0..names).map(want).collect(), ..Variant::default() };
        Memory { path: path.into(), variants: vec![variant], ..Memory::default() }
    }

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::beside(&folder.path().join("sites"));
        (folder, store)
    }

    #[test]
    fn what_is_kept_is_the_users_alone_and_is_read() {
        let (_folder, store) = store();
        assert_eq!(store.read(b"/bin/a"), None);
        store.write(&memory("/bin/a", 3), 7).unwrap();
        store.write(&memory("/bin/a", 2), 8).unwrap();
        assert_eq!(store.read(b"/bin/a"), Some(memory("/bin/a", 2)));
        assert_eq!(store.read(b"/bin/b"), None);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(&store.folder), mode(&store.place(b"/bin/a"))), (0o700, 0o600));
        assert_eq!(fs::read_dir(&store.folder).unwrap().count(), 1, "nothing is left aside");
    }

    #[test]
    fn what_others_may_write_is_no_memory() {
        let (_folder, store) = store();
        store.write(&memory("/bin/a", 3), 7).unwrap();
        let place = store.place(b"/bin/a");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o620)).unwrap();
        assert_eq!(store.read(b"/bin/a"), None);
        fs::set_permissions(&place, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(store.read(b"/bin/a").is_some());
        fs::set_permissions(&store.folder, fs::Permissions::from_mode(0o770)).unwrap();
        assert_eq!(store.read(b"/bin/a"), None);
        assert!(store.write(&memory("/bin/a", 1), 7).is_err());
        fs::set_permissions(&store.folder, fs::Permissions::from_mode(0o700)).unwrap();
        fs::rename(&place, store.folder.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", &place).unwrap();
        assert_eq!(store.read(b"/bin/a"), None);
        fs::remove_file(&place).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &place, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        assert_eq!(store.read(b"/bin/a"), None, "and it is not waited for");
    }

    #[test]
    fn cut_and_changed_files_are_no_memory_and_are_replaced() {
        let (_folder, store) = store();
        for garbage in [&b""[..], b"RArem001", &[0xff; 5000]] {
            store.write(&memory("/bin/a", 3), 7).unwrap();
            fs::write(store.place(b"/bin/a"), garbage).unwrap();
            assert_eq!(store.read(b"/bin/a"), None);
        }
        store.write(&memory("/bin/a", 3), 7).unwrap();
        File::options()
            .write(true)
            .open(store.place(b"/bin/a"))
            .unwrap()
            .set_len(MOST_BYTES as u64 + 1)
            .unwrap();
        assert_eq!(store.read(b"/bin/a"), None);
        store.write(&memory("/bin/a", 3), 7).unwrap();
        assert!(store.read(b"/bin/a").is_some());
    }

    #[test]
    fn the_oldest_go_first() {
        let (_folder, store) = store();
        let names = ["/bin/a", "/bin/b", "/bin/c"];
        for (age, name) in names.iter().enumerate() {
            store.write(&memory(name, 100), 7).unwrap();
            let time = SystemTime::now() - Duration::from_secs(100 - age as u64);
            File::options()
                .write(true)
                .open(store.place(name.as_bytes()))
                .unwrap()
                .set_modified(time)
                .unwrap();
        }
        let size = fs::metadata(store.place(b"/bin/a")).unwrap().len();
        store.trim(2 * size);
        assert_eq!(names.map(|name| store.read(name.as_bytes()).is_some()), [false, true, true]);
        store.trim(0);
        assert_eq!(fs::read_dir(&store.folder).unwrap().count(), 0);
    }

    #[test]
    fn what_is_forgotten_is_gone() {
        let (_folder, store) = store();
        assert_eq!(store.forget(None).unwrap(), 0);
        for name in ["/bin/a", "/bin/b", "/bin/c"] {
            store.write(&memory(name, 1), 7).unwrap();
        }
        assert_eq!((store.forget(Some(b"/bin/a")).unwrap(), store.forget(Some(b"/bin/a")).unwrap()), (1, 0));
        assert!(store.read(b"/bin/a").is_none() && store.read(b"/bin/b").is_some());
        assert_eq!(store.forget(None).unwrap(), 2);
    }

    #[test]
    fn what_is_not_ours_is_not_forgotten() {
        let (folder, store) = store();
        store.write(&memory("/bin/a", 1), 7).unwrap();
        fs::write(store.folder.join("thesis"), "precious").unwrap();
        assert_eq!(store.forget(None).unwrap(), 1);
        assert!(store.folder.join("thesis").exists(), "it is none of ours");
        // A link to a folder of the user's, in the place of ours or of the one above it.
        let elsewhere = tempfile::tempdir().unwrap();
        for place in ["x.run", "remembered/x.run"] {
            let kept = elsewhere.path().join(place);
            fs::create_dir_all(kept.parent().unwrap()).unwrap();
            fs::write(kept, "precious").unwrap();
        }
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("above")).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("link")).unwrap();
        for folder in [folder.path().join("above").join(NAME), folder.path().join("link")] {
            assert!(Store { folder }.forget(None).is_err());
        }
        assert!(
            elsewhere.path().join("x.run").exists() && elsewhere.path().join("remembered/x.run").exists()
        );
        // Others may exchange what is in the folder above.
        store.write(&memory("/bin/a", 1), 7).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(store.forget(None).is_err() && store.forget(Some(b"/bin/a")).is_err());
    }

    #[test]
    fn many_writers_leave_a_whole_file() {
        let (_folder, store) = store();
        let writers: Vec<_> = (0..20u32)
            .map(|own| {
                let store = store.clone();
                std::thread::spawn(move || store.write(&memory("/bin/a", own as usize + 1), own).unwrap())
            })
            .collect();
        for _ in 0..100 {
            if let Some(found) = store.read(b"/bin/a") {
                assert_eq!(found, memory("/bin/a", found.variants[0].wants.len()));
            }
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert!(store.read(b"/bin/a").is_some());
        assert_eq!(fs::read_dir(&store.folder).unwrap().count(), 1);
    }
}
