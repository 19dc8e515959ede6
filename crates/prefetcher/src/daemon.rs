//! `runahead daemon`: one view for the programs of all users.
//!
//! Without it the programs of one user share a small file ([`crate::view`]), and users know nothing
//! of each other. A file that all may write would let each write what he likes of all others. So
//! this daemon holds one in memory that it alone writes to: whoever connects gets a descriptor of
//! it to read, and a slot, which is his for as long as he is connected. What he sends is what
//! stands in it. Whoever dies, however he dies, leaves at once.
//!
//! *Who may write where*: each his own slot, by the connection that it was given to. *What is
//! counted*: slots, by account. Who has as many as are left gets no more, so one account alone has
//! half of them, a second half of the rest; further programs of his have his file. An account is a
//! user with all the numbers that are at his disposal: subordinate ones (`/etc/subuid`), and those
//! in user namespaces of his.
//!
//! When the daemon ends nobody hears of others any more, and later programs fall back to their
//! user's file. Nobody is waited for here, and of each client one message is taken at a time.

use crate::view::{SLOTS, View, named_place};
use runahead_prefetch::shares::SLOT;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use std::convert::Infallible;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Said in place of a slot's number: there is none to be had.
const NONE_LEFT: u8 = u8::MAX;

/// Where the daemon listens, if the variable [`VARIABLE`] does not say otherwise.
const SOCKET: &str = "/run/runahead/view.socket";
const VARIABLE: &str = "RUNAHEAD_DAEMON";

/// The daemon answers at once; one that is stopped is as good as none.
const PATIENCE: Duration = Duration::from_millis(50);

/// Who wait to be let in.
const BACKLOG: i32 = 64;

/// The place of the socket.
pub fn socket() -> PathBuf {
    named_place(VARIABLE).unwrap_or_else(|| SOCKET.into())
}

/// Hands out the view for ever. An error is a reason not to begin.
pub fn serve(path: &Path) -> io::Result<Infallible> {
    let (listener, mut slots) =
        begin(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    loop {
        slots.attend(&listener);
    }
}

/// Who has a slot.
struct Client {
    connection: OwnedFd,
    account: Account,
}

/// The view, and whom its slots were given to.
struct Slots {
    view: OwnedFd,
    given_to: [Option<Client>; SLOTS],
}

impl Slots {
    fn new() -> io::Result<Slots> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let view = rustix::fs::memfd_create("runahead-view", flags)?;
        rustix::fs::ftruncate(&view, (SLOTS * SLOT) as u64)?;
        rustix::fs::fcntl_add_seals(&view, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // Whoever has a descriptor of it could open it again, for writing, if its mode let him.
        rustix::fs::fchmod(&view, Mode::from_raw_mode(0o444))?;
        Ok(Slots { view, given_to: [const { None }; SLOTS] })
    }

    /// Waits until there is something to do, and does it.
    fn attend(&mut self, listener: &OwnedFd) {
        let there: Vec<usize> = (0..SLOTS).filter(|slot| self.given_to[*slot].is_some()).collect();
        let connections = there.iter().filter_map(|slot| self.given_to[*slot].as_ref());
        let mut waits = vec![PollFd::new(listener, PollFlags::IN)];
        waits.extend(connections.map(|client| PollFd::new(&client.connection, PollFlags::IN)));
        if poll(&mut waits, None).is_err() {
            return;
        }
        let ready: Vec<bool> = waits.iter().map(|wait| !wait.revents().is_empty()).collect();
        drop(waits);
        for (slot, _) in there.into_iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            self.hear(slot);
        }
        if ready[0] {
            match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(client) => drop(self.let_in(client)),
                // Too many open files, at most, and those pass.
                Err(_) => std::thread::sleep(PATIENCE),
            }
        }
    }

    /// Takes one message of a client, or sees that he has left.
    fn hear(&mut self, slot: usize) {
        let Some(client) = &self.given_to[slot] else { return };
        // One byte more: a longer message is cut to what there is room for.
        let mut said = [0; SLOT + 1];
        let (length, _) = match rustix::net::recv(&client.connection, &mut said, RecvFlags::DONTWAIT) {
            Ok(heard) => heard,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            Err(_) => (0, 0),
        };
        // What is no slot is none of ours to understand: he is as one who has left.
        if length != SLOT {
            said = [0; SLOT + 1];
            self.given_to[slot] = None;
        }
        let _ = rustix::io::pwrite(&self.view, &said[..SLOT], (slot * SLOT) as u64);
    }

    /// A slot's number in one byte, and a descriptor to read the view. Never waits: a client that
    /// does not read loses.
    fn let_in(&mut self, client: OwnedFd) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let peer = sockopt::socket_peercred(&client)?;
        let account = Account::of(peer.uid.as_raw(), peer.pid.as_raw_nonzero().get());
        let Some(slot) = self.place_for(&account) else {
            rustix::net::send(&client, &[NONE_LEFT], flags)?;
            return Ok(());
        };
        let again = format!("/proc/self/fd/{}", self.view.as_raw_fd());
        let view = rustix::fs::open(&*again, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [view.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        rustix::net::sendmsg(&client, &[IoSlice::new(&[slot as u8])], &mut control, flags)?;
        self.given_to[slot] = Some(Client { connection: client, account });
        Ok(())
    }

    /// A free slot, if this account has not enough.
    fn place_for(&self, account: &Account) -> Option<usize> {
        let left = self.given_to.iter().filter(|holder| holder.is_none()).count();
        let is_his = |holder: &&Option<Client>| holder.as_ref().is_some_and(|h| h.account == *account);
        let his = self.given_to.iter().filter(is_his).count();
        self.given_to.iter().position(Option::is_none).filter(|_| his < left)
    }
}

/// By whom slots are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Account {
    User(u32),
    /// An owner of subordinate numbers whom the machine's own list of users does not have.
    Named(String),
}

impl Account {
    /// The account of a process, whose user the kernel tells.
    fn of(user: u32, process: i32) -> Account {
        let user = founder(process).unwrap_or(user);
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Account::from(user, &read("/etc/subuid"), &read("/etc/passwd"))
    }

    /// Who has this number at his disposal, by the lists of subordinate numbers (subuid(5)) and of
    /// users (passwd(5)).
    fn from(user: u32, subordinate: &str, users: &str) -> Account {
        let owner = subordinate.lines().find_map(|line| {
            let mut fields = line.split(':');
            let owner = fields.next()?;
            let first: u32 = fields.next()?.parse().ok()?;
            let count: u32 = fields.next()?.trim().parse().ok()?;
            (user.checked_sub(first)? < count).then_some(owner)
        });
        let Some(owner) = owner else { return Account::User(user) };
        let number = |line: &str| {
            let mut fields = line.split(':');
            (fields.next()? == owner).then(|| fields.nth(1)?.parse().ok()).flatten()
        };
        let number = owner.parse().ok().or_else(|| users.lines().find_map(number));
        number.map_or_else(|| Account::Named(owner.to_owned()), Account::User)
    }
}

/// Who made the outermost user namespace that a process is in and we are not; None: there is none,
/// or it cannot be known.
fn founder(process: i32) -> Option<u32> {
    // linux/nsfs.h.
    const NS_GET_PARENT: libc::c_ulong = 0xb702;
    const NS_GET_OWNER_UID: libc::c_ulong = 0xb704;
    let ours = std::fs::metadata("/proc/self/ns/user").ok()?.ino();
    let mut namespace = std::fs::File::open(format!("/proc/{process}/ns/user")).ok()?;
    let mut founder = None;
    while namespace.metadata().ok()?.ino() != ours {
        let mut owner: libc::uid_t = 0;
        // SAFETY: writes one user number, which is ours.
        if unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID as _, &raw mut owner) } != 0 {
            return founder;
        }
        founder = Some(owner);
        // SAFETY: takes no argument; returns a new descriptor.
        let parent = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_PARENT as _) };
        if parent < 0 {
            return founder;
        }
        // SAFETY: just opened, and nobody else's.
        namespace = unsafe { <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(parent) };
    }
    founder
}

fn begin(path: &Path) -> io::Result<(OwnedFd, Slots)> {
    let slots = Slots::new()?;
    if connect(path).is_some() {
        return Err(io::Error::other("a daemon is listening there already"));
    }
    make_folder(path)?;
    remove_left_over(path)?;
    let listener =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&listener, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&listener, BACKLOG)?;
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

/// What a daemon before us has left: a socket that nobody listens on. Anything else is somebody's
/// file.
fn remove_left_over(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => std::fs::remove_file(path),
        Ok(_) => Err(io::Error::other("there is something else than a socket")),
        Err(_) => Ok(()),
    }
}

fn connect(path: &Path) -> Option<OwnedFd> {
    let kind = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, kind, None).ok()?;
    // A daemon whose queue is full is none.
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).ok()?).ok()?;
    Some(socket)
}

/// The view of all users, if there is a daemon.
pub(crate) fn join(path: &Path) -> Option<View> {
    // Most machines have no daemon, and a program may be forbidden sockets on pain of death.
    rustix::fs::stat(path).ok()?;
    let socket = connect(path)?;
    rustix::io::ioctl_fionbio(&socket, false).ok()?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE)).ok()?;
    let (slot, file) = receive(socket.as_fd())?;
    // It has to be what it says: a file that cannot shrink below us and that nobody waits for.
    let seals = rustix::fs::fcntl_get_seals(&file).ok()?;
    let size = rustix::fs::fstat(&file).ok()?.st_size;
    let sound = seals.contains(SealFlags::SHRINK) && size == (SLOTS * SLOT) as i64;
    if sound { View::of_daemon(file, slot, socket) } else { None }
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
    use std::time::Instant;

    fn claims() -> Slot {
        let claim = Claim { device: 7, wants: 64, concurrency: 64, latency: 1_000_000, accuracy: WHOLE };
        let none = Claim::default();
        Slot { written: machine_now(), pages: 0, claims: [claim, none, none, none] }
    }

    fn daemon(folder: &Path) -> PathBuf {
        let path = folder.join("socket");
        let (listener, mut slots) = begin(&path).unwrap();
        std::thread::spawn(move || {
            loop {
                slots.attend(&listener);
            }
        });
        path
    }

    /// What `view` comes to have, while the others that are named say their claims again and again.
    fn comes_to(view: &View, others: &[&View], part: Part) -> bool {
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            for other in others {
                other.exchange(&claims());
            }
            if view.exchange(&claims())[0] == part {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    #[test]
    fn all_who_connect_share_and_who_dies_leaves() {
        let folder = tempfile::tempdir().unwrap();
        let path = daemon(folder.path());
        let first = join(&path).unwrap();
        assert_eq!(first.exchange(&claims())[0], Part::Alone);
        let second = join(&path).unwrap();
        assert!(comes_to(&first, &[&second], Part::Of(32)));
        drop(second);
        // At once, and not when what it has said has become old.
        let began = Instant::now();
        assert!(comes_to(&first, &[], Part::Alone));
        assert!(began.elapsed() < Duration::from_millis(150), "{:?}", began.elapsed());
    }

    #[test]
    fn nobody_writes_to_the_view_but_the_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let path = daemon(folder.path());
        let scribbler = connect(&path).unwrap();
        rustix::io::ioctl_fionbio(&scribbler, false).unwrap();
        let (_, file) = receive(scribbler.as_fd()).unwrap();
        assert!(rustix::io::pwrite(&file, &vec![0xa5; SLOTS * SLOT], 0).is_err());
        assert!(rustix::fs::ftruncate(&file, 0).is_err());
        let mode = rustix::fs::fstat(&file).unwrap().st_mode;
        assert_eq!(mode & 0o777, 0o444, "opened again, it is for reading as well");
    }

    #[test]
    fn a_client_says_what_is_in_his_own_slot_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = daemon(folder.path());
        let (first, second) = (join(&path).unwrap(), join(&path).unwrap());
        let scribbler = connect(&path).unwrap();
        rustix::io::ioctl_fionbio(&scribbler, false).unwrap();
        let (slot, file) = receive(scribbler.as_fd()).unwrap();
        assert!(comes_to(&first, &[&second], Part::Of(32)));
        // As many bytes as the whole view, and every other length: he is let go, and his slot is
        // empty.
        for length in [SLOTS * SLOT, 0, 1, SLOT - 1, SLOT + 1] {
            let again = connect(&path).unwrap();
            rustix::io::ioctl_fionbio(&again, false).unwrap();
            receive(again.as_fd()).unwrap();
            let _ = rustix::net::send(&again, &vec![0xa5; length], SendFlags::NOSIGNAL);
            assert!(comes_to(&first, &[&second], Part::Of(32)), "{length}");
        }
        // What is as long as a slot is where his is.
        rustix::net::send(&scribbler, &[0xa5; SLOT], SendFlags::NOSIGNAL).unwrap();
        let end = Instant::now() + Duration::from_secs(5);
        let mut bytes = vec![0; SLOTS * SLOT];
        // A read beside a write may see a part of it.
        while bytes[slot * SLOT..][..SLOT] != [0xa5; SLOT] && Instant::now() < end {
            rustix::io::pread(&file, &mut bytes, 0).unwrap();
        }
        let elsewhere = bytes.chunks(SLOT).enumerate().filter(|(at, _)| *at != slot);
        assert!(elsewhere.into_iter().all(|(_, bytes)| bytes != [0xa5; SLOT]));
        assert_eq!(bytes[slot * SLOT..][..SLOT], [0xa5; SLOT]);
        assert!(comes_to(&first, &[&second], Part::Of(32)));
    }

    #[test]
    fn without_a_daemon_or_with_a_dumb_one_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert!(join(&path).is_none());
        // It listens, and never answers.
        let (listener, mut slots) = begin(&path).unwrap();
        assert!(join(&path).is_none());
        // It answers with something else: a file that could shrink.
        let other = rustix::fs::memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&other, (SLOTS * SLOT) as u64).unwrap();
        slots.view = other;
        std::thread::spawn(move || {
            loop {
                slots.attend(&listener);
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
        // Who leaves makes room, once the daemon has seen it.
        views.truncate(SLOTS / 4);
        let end = Instant::now() + Duration::from_secs(5);
        while views.len() < SLOTS / 2 && Instant::now() < end {
            views.extend(join(&path));
        }
        assert_eq!(views.len(), SLOTS / 2);
        assert!(join(&path).is_none());
    }

    /// Slots that each of the accounts comes to have, one after the other.
    fn counts(accounts: &[Account]) -> Vec<usize> {
        let mut slots = Slots::new().unwrap();
        let mut take_all = |account: &Account| {
            let mut count = 0;
            while let Some(slot) = slots.place_for(account) {
                let connection = std::fs::File::open("/dev/null").unwrap().into();
                slots.given_to[slot] = Some(Client { connection, account: account.clone() });
                count += 1;
            }
            count
        };
        accounts.iter().map(&mut take_all).collect()
    }

    #[test]
    fn each_account_has_half_of_what_is_left() {
        let users: Vec<Account> = (0..6).map(Account::User).collect();
        assert_eq!(counts(&users), [32, 16, 8, 4, 2, 1]);
    }

    #[test]
    fn subordinate_numbers_are_their_owners() {
        let subordinate = "ann:100000:65536\nbob:165536:65536\n1003:300000:10\nnobodys:400000:10\nbroken\n";
        let users = "root:x:0:0::/root:/bin/sh\nann:x:1001:1001::/home/ann:/bin/sh\nbob:x:1002:1002:::\n";
        let account = |user| Account::from(user, subordinate, users);
        for own in [1001, 100_000, 165_535] {
            assert_eq!(account(own), Account::User(1001));
        }
        assert_eq!(account(165_536), Account::User(1002));
        assert_eq!(account(300_009), Account::User(1003));
        assert_eq!(account(300_010), Account::User(300_010));
        assert_eq!(account(400_000), Account::Named("nobodys".into()));
        assert_eq!(account(0), Account::User(0));
        // All of his numbers together have what one has.
        let all: Vec<Account> = (100_000..100_020).chain([1001]).map(account).collect();
        assert_eq!(counts(&all).iter().sum::<usize>(), SLOTS / 2);
    }

    #[test]
    fn a_namespace_is_its_founders() {
        assert_eq!(founder(std::process::id() as i32), None);
        let mut within = match std::process::Command::new("unshare").args(["--user", "sleep", "60"]).spawn() {
            Ok(within) => within,
            Err(_) => return eprintln!("SKIPPED: no unshare"),
        };
        std::thread::sleep(Duration::from_millis(300));
        let found = founder(within.id() as i32);
        let _ = within.kill();
        let _ = within.wait();
        assert_eq!(found, Some(rustix::process::geteuid().as_raw()));
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
