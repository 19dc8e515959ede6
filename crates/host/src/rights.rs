//! Acting for a process only while it is allowed what we are.
//!
//! The host keeps the rights that it was started with. A process of the run that has others
//! (another user, fewer groups or capabilities, a filter more, another root) is not served, and one
//! that gives rights up is not served any more. As in the speculator: what a process has left is
//! acted on only if it was allowed all that **after** it was taken.

use runahead_abi::rights::{Rights, STATUS_BYTES, moves_freely};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::pread;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// What of a process is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Situation {
    rights: Rights,
    /// Mount, device and inode of its root.
    root: (u64, u32, u32, u64),
    /// Its mounts.
    mounts: CString,
    /// Those to whom its user numbers mean something.
    users: CString,
    /// It may enter any mount namespace, and take any root.
    moves_freely: bool,
}

/// A process, and what it was allowed when it was first looked at.
#[derive(Debug)]
pub(crate) struct Watched {
    directory: OwnedFd,
    status: OwnedFd,
    first: Situation,
}

impl Watched {
    /// The process itself, by its directory in `/proc`: nobody who gets its number later is looked
    /// at.
    pub(crate) fn begin(directory: &Path) -> Option<Watched> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, directory, flags, Mode::empty()).ok()?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let status = rustix::fs::openat(&directory, c"status", flags, Mode::empty()).ok()?;
        let first = Situation::of(directory.as_fd(), status.as_fd())?;
        Some(Watched { directory, status, first })
    }

    /// This process.
    pub(crate) fn ourselves() -> Option<Watched> {
        Watched::begin(Path::new("/proc/self"))
    }

    /// Whether it is allowed the same as the other one was. Other mounts, or another root, confine only who could not leave
    /// them.
    pub(crate) fn is_as(&self, other: &Watched) -> bool {
        let (one, other) = (&self.first, &other.first);
        let is_confined = (&one.mounts, one.root) != (&other.mounts, other.root) && !one.moves_freely;
        one.rights == other.rights && one.users == other.users && !is_confined
    }

    /// What it is allowed now, beside what it was at first.
    pub(crate) fn look(&self) -> Look {
        match Situation::of(self.directory.as_fd(), self.status.as_fd()) {
            None => Look::Unknown,
            Some(now) if now == self.first => Look::Same,
            Some(_) => Look::Changed,
        }
    }

    pub(crate) fn still_is(&self) -> bool {
        self.look() == Look::Same
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Same,
    Changed,
    /// The kernel does not tell: the process, or its first thread, is over. Nothing is to be done
    /// for it at present.
    Unknown,
}

impl Situation {
    /// None where the kernel does not tell all of it, as where the process is over.
    fn of(directory: BorrowedFd, status: BorrowedFd) -> Option<Situation> {
        let mut buffer = [0u8; STATUS_BYTES];
        let length = pread(status, &mut buffer, 0).ok()?;
        let status = buffer.get(..length)?;
        let rights = Rights::of(status)?;
        let link = |name| rustix::fs::readlinkat(directory, name, Vec::new()).ok();
        let (mounts, users) = (link(c"ns/mnt")?, link(c"ns/user")?);
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let wanted = StatxFlags::INO | StatxFlags::MNT_ID;
        let root = rustix::fs::statx(directory, c"root", flags, wanted).ok()?;
        let root = (root.stx_mnt_id, root.stx_dev_major, root.stx_dev_minor, root.stx_ino);
        Some(Situation { rights, root, mounts, users, moves_freely: moves_freely(status) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn child(around: &[&str]) -> Child {
        let (program, arguments) = around.split_first().unwrap_or((&"sleep", &["60"]));
        Command::new(program).args(arguments).spawn().unwrap()
    }

    fn watched(child: &Child) -> Watched {
        // Until it has become what it is to be.
        std::thread::sleep(std::time::Duration::from_millis(200));
        Watched::begin(Path::new(&format!("/proc/{}", child.id()))).unwrap()
    }

    #[test]
    fn a_child_of_ours_is_as_we_are_and_one_with_less_is_not() {
        let ours = Watched::ourselves().unwrap();
        assert!(ours.still_is());
        let mut same = child(&[]);
        let seen = watched(&same);
        assert!(seen.is_as(&ours) && seen.still_is());
        same.kill().unwrap();
        same.wait().unwrap();
        assert!(!seen.still_is(), "it is over");
        let mut ways: Vec<&[&str]> = vec![&["setpriv", "--no-new-privs", "sleep", "60"]];
        if rustix::process::geteuid().is_root() {
            ways.push(&["setpriv", "--reuid=65534", "--clear-groups", "sleep", "60"]);
            ways.push(&["setpriv", "--bounding-set=-sys_boot", "sleep", "60"]);
            ways.push(&["setpriv", "--groups=4711", "sleep", "60"]);
            ways.push(&["unshare", "--user", "--mount", "sleep", "60"]);
        }
        for way in ways {
            let mut other = child(way);
            let seen = watched(&other);
            other.kill().unwrap();
            other.wait().unwrap();
            assert!(!seen.is_as(&ours), "{way:?}");
        }
    }
}
