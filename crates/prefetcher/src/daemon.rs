//! `runahead daemon`: one view for the programs of all users.
//!
//! Without it the programs of one user share a small file ([`crate::view`]), and users know nothing of each other.
//! A file that all may write would do, but somebody has to make it, and be its owner, and nobody may be able to
//! truncate it. So this daemon holds one in memory, sealed in its size, and hands a descriptor of it to whoever
//! connects: a fresh one each time, since slots belong to open file descriptions, with a slot's lock taken on it. That is
//! all it does. It keeps no connection; whoever dies leaves his slot as he would in the file, and whoever
//! scribbles over all of it does as much harm as there: absent for a moment. When the daemon ends, those who
//! have the view keep it, and later ones fall back to their user's file.
//!
//! *One user cannot take all slots* ([`Slots`]): who has as many as are left gets no more, so one user alone has half of
//! them, a second half of the rest. Further programs of his have his file. Whoever locks slots that he was not given
//! makes the daemon begin a new view for those who come after.
//!
//! A client waits for an answer at most [`PATIENCE`], in a thread of ours.

use crate::view::{SLOTS, View, is_free, take};
use runahead_prefetch::shares::SLOT;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use std::convert::Infallible;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Said in place of a slot's number: there is none to be had.
const NONE_LEFT: u8 = u8::MAX;

/// Where the daemon listens, if the variable [`VARIABLE`] does not say otherwise.
const SOCKET: &str = "/run/runahead/view.socket";
const VARIABLE: &str = "RUNAHEAD_DAEMON";

/// The daemon answers at once; one that is stopped is as good as none.
const PATIENCE: Duration = Duration::from_millis(50);

/// The place of the socket.
pub fn socket() -> PathBuf {
    std::env::var_os(VARIABLE).map_or_else(|| SOCKET.into(), PathBuf::from)
}

/// Hands out the view for ever. An error is a reason not to begin.
pub fn serve(path: &Path) -> io::Result<Infallible> {
    let (listener, mut slots) =
        begin(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    loop {
        match listener.accept() {
            Ok((client, _)) => drop(hand_out(&client, &mut slots)),
            // Too many open files, at most, and those pass.
            Err(_) => std::thread::sleep(PATIENCE),
        }
    }
}

/// The view, and whom its slots were given to.
struct Slots {
    view: OwnedFd,
    /// By user; None: free, as far as was seen.
    given_to: [Option<u32>; SLOTS],
}

impl Slots {
    fn new() -> io::Result<Slots> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let view = rustix::fs::memfd_create("runahead-view", flags)?;
        rustix::fs::ftruncate(&view, (SLOTS * SLOT) as u64)?;
        rustix::fs::fcntl_add_seals(&view, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        rustix::fs::fchmod(&view, Mode::from_raw_mode(0o666))?;
        Ok(Slots { view, given_to: [None; SLOTS] })
    }

    /// A slot for a program of this user, and a description of the view that holds it; None: he has enough.
    fn give(&mut self, user: u32) -> io::Result<Option<(usize, OwnedFd)>> {
        if self.are_stolen() {
            *self = Slots::new()?;
        }
        let left = self.given_to.iter().filter(|holder| holder.is_none()).count();
        let his = self.given_to.iter().filter(|holder| **holder == Some(user)).count();
        let slot = self.given_to.iter().position(Option::is_none).filter(|_| his < left);
        let Some(slot) = slot else { return Ok(None) };
        let again = format!("/proc/self/fd/{}", self.view.as_raw_fd());
        let own = rustix::fs::open(&*again, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let taken = take(&own, slot);
        self.given_to[slot] = taken.then_some(user);
        Ok(taken.then_some((slot, own)))
    }

    /// Looks who has left. Whether somebody has locked a slot that he was not given.
    fn are_stolen(&mut self) -> bool {
        let mut stolen = false;
        for (slot, holder) in self.given_to.iter_mut().enumerate() {
            match is_free(&self.view, slot) {
                true => *holder = None,
                false => stolen |= holder.is_none(),
            }
        }
        stolen
    }
}

fn begin(path: &Path) -> io::Result<(UnixListener, Slots)> {
    let slots = Slots::new()?;
    if UnixStream::connect(path).is_ok() {
        return Err(io::Error::other("a daemon is listening there already"));
    }
    make_folder(path)?;
    remove_left_over(path)?;
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok((listener, slots))
}

/// The folder of the socket, where only that is missing: all users have to reach it.
fn make_folder(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists())
    else {
        return Ok(());
    };
    std::fs::create_dir(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))
}

/// What a daemon before us has left: a socket that nobody listens on. Anything else is somebody's file.
fn remove_left_over(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => std::fs::remove_file(path),
        Ok(_) => Err(io::Error::other("there is something else than a socket")),
        Err(_) => Ok(()),
    }
}

/// A slot's number in one byte, and a descriptor that holds it. Never waits: a client that does not read loses.
fn hand_out(client: &UnixStream, slots: &mut Slots) -> io::Result<()> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let user = sockopt::socket_peercred(client)?.uid.as_raw();
    let Some((slot, own)) = slots.give(user)? else {
        rustix::net::send(client, &[NONE_LEFT], flags)?;
        return Ok(());
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [own.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    rustix::net::sendmsg(client, &[IoSlice::new(&[slot as u8])], &mut control, flags)?;
    Ok(())
}

/// The view of all users, if there is a daemon.
pub(crate) fn join(path: &Path) -> Option<View> {
    // Most machines have no daemon, and a program may be forbidden sockets on pain of death.
    rustix::fs::stat(path).ok()?;
    let kind = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, kind, None).ok()?;
    // A daemon whose queue is full is none.
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).ok()?).ok()?;
    rustix::io::ioctl_fionbio(&socket, false).ok()?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE)).ok()?;
    let (slot, file) = receive(socket.as_fd())?;
    // It has to be what it says: a file that cannot shrink below us and that nobody waits for.
    let seals = rustix::fs::fcntl_get_seals(&file).ok()?;
    let size = rustix::fs::fstat(&file).ok()?.st_size;
    let sound = seals.contains(SealFlags::SHRINK) && size == (SLOTS * SLOT) as i64;
    if sound { View::with_slot(file, slot) } else { None }
}

fn receive(socket: BorrowedFd) -> Option<(usize, OwnedFd)> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags).ok()?;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })?;
    Some((byte[0].into(), file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Part, machine_now};
    use runahead_prefetch::benefit::WHOLE;
    use runahead_prefetch::shares::{Claim, Slot};

    fn claims() -> Slot {
        let claim = Claim { device: 7, wants: 64, concurrency: 64, latency: 1_000_000, accuracy: WHOLE };
        let none = Claim::default();
        Slot { written: machine_now(), pages: 0, claims: [claim, none, none, none] }
    }

    fn daemon(folder: &Path) -> PathBuf {
        let path = folder.join("socket");
        let (listener, mut slots) = begin(&path).unwrap();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let _ = hand_out(&client, &mut slots);
            }
        });
        path
    }

    #[test]
    fn all_who_connect_share_and_who_dies_leaves() {
        let folder = tempfile::tempdir().unwrap();
        let path = daemon(folder.path());
        let first = join(&path).unwrap();
        assert_eq!(first.exchange(&claims())[0], Part::Alone);
        let second = join(&path).unwrap();
        second.exchange(&claims());
        assert_eq!(first.exchange(&claims())[0], Part::Of(32));
        drop(second);
        // A slot's lock goes with the last descriptor of its description, and the daemon may not yet have closed
        // the one it sent. It serves one client after the other, so whoever is served now comes after that; and it says
        // nothing of what was wanted before it.
        let _later = join(&path).unwrap();
        assert_eq!(first.exchange(&claims())[0], Part::Alone);
    }

    #[test]
    fn who_scribbles_is_absent_for_a_moment_and_cannot_truncate() {
        let folder = tempfile::tempdir().unwrap();
        let path = daemon(folder.path());
        let (first, second) = (join(&path).unwrap(), join(&path).unwrap());
        let scribbler = UnixStream::connect(&path).unwrap();
        let (_, file) = receive(scribbler.as_fd()).unwrap();
        second.exchange(&claims());
        rustix::io::pwrite(&file, &vec![0xa5; SLOTS * SLOT], 0).unwrap();
        assert!(rustix::fs::ftruncate(&file, 0).is_err());
        assert_eq!(first.exchange(&claims())[0], Part::Alone);
        second.exchange(&claims());
        assert_eq!(first.exchange(&claims())[0], Part::Of(32));
    }

    #[test]
    fn without_a_daemon_or_with_a_dumb_one_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert!(join(&path).is_none());
        // It listens, and never answers.
        let listener = UnixListener::bind(&path).unwrap();
        assert!(join(&path).is_none());
        // It answers with something else: a file that could shrink.
        let other = rustix::fs::memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&other, (SLOTS * SLOT) as u64).unwrap();
        let mut slots = Slots { view: other, given_to: [None; SLOTS] };
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let _ = hand_out(&client, &mut slots);
            }
        });
        assert!(join(&path).is_none());
    }

    #[test]
    fn one_user_cannot_take_all_slots() {
        let folder = tempfile::tempdir().unwrap();
        let path = daemon(folder.path());
        let mut views: Vec<View> = (0..SLOTS).filter_map(|_| join(&path)).collect();
        assert_eq!(views.len(), SLOTS / 2);
        // Who leaves makes room. (The daemon closes its own descriptor of a slot before it serves the next.)
        views.truncate(SLOTS / 4);
        views.extend((0..SLOTS).filter_map(|_| join(&path)));
        assert_eq!(views.len(), SLOTS / 2);

        let mut slots = Slots::new().unwrap();
        let mut take_all = |user| -> Vec<_> { std::iter::from_fn(|| slots.give(user).unwrap()).collect() };
        let users: Vec<_> = (0..6).map(&mut take_all).collect();
        let counts: Vec<usize> = users.iter().map(Vec::len).collect();
        assert_eq!(counts, [32, 16, 8, 4, 2, 1]);
        let mut numbers: Vec<usize> = users.iter().flatten().map(|(slot, _)| *slot).collect();
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..63));
    }

    #[test]
    fn who_takes_slots_that_he_was_not_given_is_left_alone_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = daemon(folder.path());
        let thief = UnixStream::connect(&path).unwrap();
        let (_, file) = receive(thief.as_fd()).unwrap();
        (0..SLOTS).for_each(|slot| assert!(take(&file, slot)));
        let (first, second) = (join(&path).unwrap(), join(&path).unwrap());
        second.exchange(&claims());
        assert_eq!(first.exchange(&claims())[0], Part::Of(32));
    }

    #[test]
    fn a_missing_folder_is_made_and_somebodys_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("runahead");
        drop(begin(&made.join("socket")).unwrap());
        assert_eq!(std::fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o755);
        assert!(begin(&folder.path().join("no/such/socket")).is_err());
        let file = folder.path().join("file");
        std::fs::write(&file, "precious").unwrap();
        assert!(begin(&file).is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    }

    #[test]
    fn one_daemon_at_a_place_and_a_new_one_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let first = begin(&path).unwrap();
        assert!(begin(&path).is_err());
        drop(first);
        assert!(begin(&path).is_ok());
    }
}
