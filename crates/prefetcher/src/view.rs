//! The other programs of this user (of all users, where [`crate::daemon`] runs): who prefetches from which device, and what our part is.
//!
//! A small file, in the user's runtime directory or else in shared memory (`/dev/shm`), holds a slot for
//! each program. It is read and written with `pread` and `pwrite`, some hundred times a second while there
//! is something to say, and never mapped: another program that truncates it, or writes nonsense over all of
//! it, makes slots empty, and costs nobody a fault. Each writes its own slot anew each time and keeps its
//! own figures in its own memory, so nonsense is gone at the next tick.
//!
//! Where a daemon runs, the view is its own: each sends it its slot, and only reads the others'.
//!
//! In the user's own file a slot belongs to whoever holds the lock on its range (a lock of the open file description). The kernel
//! drops it with the last descriptor: a program that dies, however it dies, leaves its share at once, and no
//! process number has to be trusted, which containers would make ambiguous.
//!
//! Without such a file (no permission, a read-only machine) every program takes itself for alone.

use runahead_prefetch::shares::{self, SLOT, Slot};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use std::path::{Path, PathBuf};

/// Programs with a slot; further ones take themselves for alone.
pub const SLOTS: usize = 64;

/// A slot that was not written for this long wants nothing: its program is stopped, or has nothing to read.
const STALE_NS: u64 = 200_000_000;

/// How often one tries to come in while others leave.
const JOINS: u32 = 4;

/// How long a turn lasts where there are more programs than a device has arms.
const TURN_NS: u64 = 50_000_000;

#[derive(Debug)]
pub struct View {
    file: OwnedFd,
    own: usize,
    whose: Whose,
}

/// Whose the file is.
#[derive(Debug)]
enum Whose {
    /// The user's; and where it is.
    Users(Option<PathBuf>),
    /// A daemon's, to whom our slot is sent.
    Daemons(OwnedFd),
}

/// What others leave us of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Nobody else wants it.
    Alone,
    /// Requests that we may have in flight.
    Of(u32),
}

impl View {
    /// Joins the view of all users, if there is a daemon, else that of this user, and takes a slot.
    pub fn join() -> Option<View> {
        crate::daemon::join(&crate::daemon::socket())
            .or_else(|| places().iter().find_map(|path| Self::join_at(path)))
    }

    /// The same for whoever must leave nothing behind, however it ends: a view that is there already, or none.
    pub fn join_existing() -> Option<View> {
        crate::daemon::join(&crate::daemon::socket())
            .or_else(|| places().iter().filter(|path| path.exists()).find_map(|path| Self::join_at(path)))
    }

    pub fn join_at(path: &Path) -> Option<View> {
        // The last to leave removes the file; who comes in at that moment makes a new one.
        (0..JOINS).find_map(|_| {
            let mut view = Self::join_once(path)?;
            let same = rustix::fs::stat(path).is_ok_and(|there| is_at(&view.file, &there));
            view.whose = Whose::Users(same.then(|| path.to_path_buf()));
            same.then_some(view)
        })
    }

    fn join_once(path: &Path) -> Option<View> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).ok()?;
        // Somebody else may have put something there before us.
        let status = rustix::fs::fstat(&file).ok()?;
        let ours = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
            && status.st_uid == rustix::process::geteuid().as_raw()
            && status.st_mode & 0o077 == 0
            && status.st_nlink == 1;
        if ours { Self::take_slot(file) } else { None }
    }

    /// Takes a slot in a file that nobody else has this description of.
    fn take_slot(file: OwnedFd) -> Option<View> {
        let first = std::process::id() as usize;
        let own = (0..SLOTS).map(|step| (first + step) % SLOTS).find(|&slot| take(&file, slot))?;
        Some(Self::begin(file, own))
    }

    /// The slot that a daemon has given us in its file, for as long as it is connected.
    pub(crate) fn of_daemon(file: OwnedFd, own: usize, connection: OwnedFd) -> Option<View> {
        (own < SLOTS).then_some(View { file, own, whose: Whose::Daemons(connection) })
    }

    fn begin(file: OwnedFd, own: usize) -> View {
        // What somebody who was there before wanted.
        let _ = rustix::io::pwrite(&file, &[0; SLOT], (own * SLOT) as u64);
        View { file, own, whose: Whose::Users(None) }
    }

    fn say(&self, mine: &Slot) {
        match &self.whose {
            Whose::Users(_) => {
                let _ = rustix::io::pwrite(&self.file, &mine.encode(), (self.own * SLOT) as u64);
            }
            Whose::Daemons(connection) => {
                // A daemon that is stopped, or over, hears nothing; then nobody says anything new, and each is alone.
                let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
                let _ = rustix::net::send(connection, &mine.encode(), flags);
            }
        }
    }

    /// Writes our slot, and reads what others leave us of each device that it claims.
    pub fn exchange(&self, mine: &Slot) -> [Part; shares::DEVICES] {
        self.say(mine);
        let mut bytes = [0; SLOTS * SLOT];
        let length = rustix::io::pread(&self.file, &mut bytes, 0).unwrap_or(0);
        let mut others: Vec<(usize, Slot)> = bytes[..length]
            .chunks_exact(SLOT)
            .enumerate()
            .filter(|(at, _)| *at != self.own)
            .filter_map(|(at, bytes)| Some((at, Slot::decode(bytes)?)))
            .filter(|(_, slot)| mine.written.abs_diff(slot.written) < STALE_NS)
            .collect();
        // A lock that can be had means that nobody holds it: its program is gone. (Only asked about. A daemon knows who is there.)
        if let Whose::Users(_) = self.whose {
            others.retain(|(at, _)| !is_free(&self.file, *at));
        }
        let mut parts = [Part::Alone; shares::DEVICES];
        for (part, claim) in parts.iter_mut().zip(&mine.claims) {
            if claim.device == 0 {
                continue;
            }
            let claims: Vec<(usize, shares::Claim)> = others
                .iter()
                .filter_map(|(at, slot)| Some((*at, *slot.claim(claim.device)?)))
                .filter(|(_, claim)| claim.wants > 0)
                .chain([(self.own, *claim)])
                .collect();
            if claims.len() < 2 {
                continue;
            }
            // All see the same order, so that turns fit together.
            let mut claims = claims;
            claims.sort_by_key(|(at, _)| *at);
            let wants: Vec<u32> = claims.iter().map(|(_, claim)| claim.wants).collect();
            let weights: Vec<u32> = claims.iter().map(|(_, claim)| claim.accuracy).collect();
            let mut divided = vec![0; claims.len()];
            let capacity =
                shares::capacity(claim.concurrency, claims.iter().map(|(_, claim)| claim.concurrency));
            shares::divide(capacity, &wants, &weights, mine.written / TURN_NS, &mut divided);
            let own = claims.iter().position(|(at, _)| *at == self.own).map_or(1, |at| divided[at]);
            *part = Part::Of(own);
        }
        parts
    }
}

impl Drop for View {
    /// Whoever is the last to leave takes the file along: a run leaves nothing behind.
    fn drop(&mut self) {
        let Whose::Users(Some(path)) = &self.whose else { return };
        // All slots at once, which works if nobody else has one. Our own lock is no hindrance.
        let alone = lock_range(&self.file, 0, (SLOTS * SLOT) as libc::off_t, true);
        if alone && rustix::fs::stat(path).is_ok_and(|there| is_at(&self.file, &there)) {
            let _ = rustix::fs::unlink(path);
        }
    }
}

/// Whether this is the file that a path led to.
fn is_at(file: &OwnedFd, there: &rustix::fs::Stat) -> bool {
    rustix::fs::fstat(file).is_ok_and(|here| (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino))
}

/// Nanoseconds of a clock that all programs of this machine share.
pub fn machine_now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

/// A place that the environment names. Not in a program that runs with more rights than who started it: it would make
/// files, and have an ear, where he likes.
pub(crate) fn named_place(variable: &str) -> Option<PathBuf> {
    // SAFETY: asks only.
    let has_more_rights = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    place_if(!has_more_rights, std::env::var_os(variable))
}

fn place_if(believed: bool, value: Option<std::ffi::OsString>) -> Option<PathBuf> {
    value.filter(|_| believed).map(PathBuf::from)
}

fn places() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let runtime = named_place("XDG_RUNTIME_DIR")
        .filter(|path| path.is_absolute())
        .unwrap_or_else(|| PathBuf::from(format!("/run/user/{user}")));
    vec![runtime.join("runahead.view"), PathBuf::from(format!("/dev/shm/runahead-{user}.view"))]
}

/// Takes a slot, if it is free or ours.
fn take(file: &OwnedFd, slot: usize) -> bool {
    lock_range(file, (slot * SLOT) as libc::off_t, SLOT as libc::off_t, true)
}

/// Whether nobody else has a slot.
fn is_free(file: &OwnedFd, slot: usize) -> bool {
    lock_range(file, (slot * SLOT) as libc::off_t, SLOT as libc::off_t, false)
}

fn lock_range(file: &OwnedFd, start: libc::off_t, length: libc::off_t, take: bool) -> bool {
    // SAFETY: all zeros is a valid flock structure.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = libc::F_WRLCK as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_start = start;
    range.l_len = length;
    let command = if take { libc::F_OFD_SETLK } else { libc::F_OFD_GETLK };
    // SAFETY: both commands take a flock structure, which is ours; neither waits.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut range) };
    result == 0 && (take || range.l_type == libc::F_UNLCK as libc::c_short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use runahead_prefetch::benefit::WHOLE;
    use runahead_prefetch::shares::Claim;

    fn slot(wants: u32, accuracy: u32) -> Slot {
        let claim = Claim { device: 7, wants, concurrency: 64, latency: 1_000_000, accuracy };
        Slot {
            written: machine_now(),
            pages: 0,
            claims: [claim, Claim::default(), Claim::default(), Claim::default()],
        }
    }

    #[test]
    fn shares_come_and_go_with_their_programs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("view");
        let first = View::join_at(&path).unwrap();
        assert_eq!(first.exchange(&slot(64, WHOLE))[0], Part::Alone);
        let second = View::join_at(&path).unwrap();
        assert_ne!(first.own, second.own);
        assert_eq!(second.exchange(&slot(64, WHOLE))[0], Part::Of(32));
        assert_eq!(first.exchange(&slot(64, WHOLE))[0], Part::Of(32));
        assert_eq!(first.exchange(&slot(64, WHOLE))[1], Part::Alone);
        // A wrong source keeps its floor and no more.
        second.exchange(&slot(64, 0));
        assert_eq!(first.exchange(&slot(64, WHOLE))[0], Part::Of(48));
        // Gone: its lock went with it.
        drop(second);
        assert_eq!(first.exchange(&slot(64, WHOLE))[0], Part::Alone);
    }

    #[test]
    fn the_last_to_leave_takes_the_file_along() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("view");
        let (first, second) = (View::join_at(&path).unwrap(), View::join_at(&path).unwrap());
        drop(first);
        assert!(path.exists());
        // Another file there by now is not ours to remove.
        std::fs::remove_file(&path).unwrap();
        let third = View::join_at(&path).unwrap();
        drop(second);
        assert!(path.exists());
        drop(third);
        assert!(!path.exists());
        // Many at once, in and out: whoever is in shares with all who are.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..200).for_each(|_| drop(View::join_at(&path))));
            }
        });
        assert!(!path.exists());
    }

    #[test]
    fn a_sleeper_wants_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("view");
        let (first, second) = (View::join_at(&path).unwrap(), View::join_at(&path).unwrap());
        second.exchange(&Slot { written: machine_now() - 2 * STALE_NS, ..slot(64, WHOLE) });
        assert_eq!(first.exchange(&slot(64, WHOLE))[0], Part::Alone);
    }

    #[test]
    fn whoever_scribbles_or_truncates_harms_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("view");
        let (first, second) = (View::join_at(&path).unwrap(), View::join_at(&path).unwrap());
        second.exchange(&slot(64, WHOLE));
        std::fs::write(&path, vec![0xa5; SLOTS * SLOT + 17]).unwrap();
        assert_eq!(first.exchange(&slot(64, WHOLE))[0], Part::Alone);
        second.exchange(&slot(64, WHOLE));
        assert_eq!(first.exchange(&slot(64, WHOLE))[0], Part::Of(32));
        std::fs::File::create(&path).unwrap();
        assert_eq!(first.exchange(&slot(64, WHOLE))[0], Part::Alone);
        // Forged slots that nobody holds the lock of count for nothing.
        let forged: Vec<u8> = (0..SLOTS).flat_map(|_| slot(256, WHOLE).encode()).collect();
        std::fs::write(&path, forged).unwrap();
        assert!(matches!(first.exchange(&slot(64, WHOLE))[0], Part::Of(part) if part >= 16));
    }

    #[test]
    fn a_place_is_believed_of_who_has_no_fewer_rights() {
        assert_eq!(place_if(true, Some("/place".into())), Some("/place".into()));
        assert_eq!(place_if(false, Some("/place".into())), None);
    }

    #[test]
    fn what_is_not_ours_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::fs::write(folder.path().join("target"), "").unwrap();
        std::os::unix::fs::symlink("target", &link).unwrap();
        assert!(View::join_at(&link).is_none());
        let open = folder.path().join("open");
        std::fs::write(&open, "").unwrap();
        std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        assert!(View::join_at(&open).is_none());
        assert!(View::join_at(folder.path()).is_none());
        assert!(View::join_at(&folder.path().join("no/such/folder")).is_none());
    }
}
