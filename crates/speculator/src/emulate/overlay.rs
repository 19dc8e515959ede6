//! Names that speculation has changed, and files that it alone has: [`runahead_policy::overlay`] with
//! the kernel's answers around it.
//!
//! A path is resolved here only while something was changed, or is about to be; otherwise the kernel
//! resolves it. Its directories are known by device and inode. Those that the kernel was asked about are
//! remembered until speculation changes one, or goes into another one.
//!
//! The kernel answers of now, speculation is at the moment of the post. Where it is slower than its program, a
//! name is there already that it is about to make: what was born since is taken for missing.
//!
//! Nothing here changes anything outside this process: the sandbox lets nothing be made or written.

use super::{Outcome, UNKNOWN, get, put};
use crate::cell::Global;
use crate::descriptors::{Descriptor, Kind, TABLE};
use crate::notes;
use crate::rights;
use core::sync::atomic::{AtomicU32, Ordering};
use runahead_abi::names::device_number;
use runahead_abi::session::ended;
use runahead_kernel::arch::syscall;
use runahead_kernel::files::Stat;
use runahead_kernel::process::{file_time_ns, monotonic_ns, realtime_ns};
use runahead_kernel::uapi::general as n;
use runahead_kernel::{Errno, PAGE, check};
use runahead_policy::overlay::{Directory, File, FileId, Full, Maker, Overlay, Seen, Split, split};

/// PATH_MAX.
const PATH_MOST: usize = 4096;

/// Directories that are remembered; a power of two.
const KNOWN: usize = 64;

/// Longer ways to a name end the speculation: each directory on it takes some stack.
const MAX_DEPTH: usize = 64;

static OVERLAY: Global<Overlay> = Global::new(Overlay::new());

pub fn table() -> &'static mut Overlay {
    OVERLAY.get()
}

/// Where a path begins: the root, the working directory, or one of speculation's descriptors.
#[derive(Clone, Copy)]
pub struct Base {
    /// To ask the kernel from; -1: only speculation has it.
    real: i32,
    /// What it is remembered by.
    key: Directory,
    made: FileId,
}

/// A directory in which names are looked up.
#[derive(Clone, Copy)]
pub struct Parent {
    pub directory: Directory,
    pub mount: u64,
    pub mode: u32,
    pub user: u32,
    group: u32,
    /// Only speculation has it, if this is a file of the table.
    pub made: FileId,
}

impl Parent {
    fn of_made(id: FileId, file: &File) -> Parent {
        Parent {
            directory: file.directory(),
            mount: file.mount,
            mode: file.mode,
            user: file.user,
            group: file.group,
            made: id,
        }
    }

    pub fn is_made(&self) -> bool {
        !self.made.is_none()
    }

    /// A new file in it.
    pub fn make(&self, kind: u32, mode: u32) -> Result<File, Outcome> {
        let maker = Maker {
            user: user(),
            group: group(),
            mask: mask()?,
            directory_mode: self.mode,
            directory_group: self.group,
        };
        Ok(maker.make(kind, mode, self.directory, self.mount, realtime_ns()))
    }
}

#[derive(Clone, Copy)]
struct Remembered {
    base: Directory,
    /// Of the path.
    hash: u64,
    parent: Parent,
    /// What the kernel says of whoever makes a name in it: 0, or an error's number; -1: it was not asked.
    change: i32,
}

const NOBODY: Directory = Directory { device: 0, inode: 0 };
const NOTHING: Remembered = Remembered {
    base: NOBODY,
    hash: 0,
    parent: Parent { directory: NOBODY, mount: 0, mode: 0, user: 0, group: 0, made: FileId::NONE },
    change: 0,
};

struct State {
    /// A hash of 0 is nobody's.
    known: [Remembered; KNOWN],
    /// The program's, or what speculation has made of it.
    mask: Option<u32>,
    /// When the program was as speculation has it, by the clock of file systems, ns since 1970.
    began: i64,
    /// A path with a zero behind it, for the kernel.
    path: [u8; PATH_MOST + 1],
}

static STATE: Global<State> =
    Global::new(State { known: [NOTHING; KNOWN], mask: None, began: 0, path: [0; PATH_MOST + 1] });

/// All is as the program has it.
pub fn reset() {
    table().clear();
    forget_directories();
    let state = STATE.get();
    (state.mask, state.began) = (None, file_time_ns());
}

/// A directory may have got another name, or a name may lead to another one.
pub fn forget_directories() {
    STATE.get().known.iter_mut().for_each(|known| known.hash = 0);
}

impl From<Full> for Outcome {
    fn from(_: Full) -> Self {
        Outcome::End(ended::NAMES)
    }
}

/// A name, with the directory that it is in.
pub struct Named<'a> {
    pub base: Base,
    pub parent: Parent,
    pub split: Split<'a>,
    pub seen: Seen,
    /// As the program gave it: from where, and which.
    at: i32,
    path: &'a [u8],
}

/// What the bytes of a path are. Whoever measured its length has touched it.
pub fn path_at<'a>(address: usize, length: usize) -> &'a [u8] {
    // SAFETY: mirror memory that is present: the path's length was found by reading it.
    unsafe { core::slice::from_raw_parts(address as *const u8, length) }
}

/// Where a path begins.
fn base_of(directory: i32, absolute: bool) -> Result<Base, Outcome> {
    const ROOT: Directory = Directory { device: u64::MAX, inode: 0 };
    const WORKING: Directory = Directory { device: u64::MAX, inode: 1 };
    if absolute {
        return Ok(Base { real: n::AT_FDCWD, key: ROOT, made: FileId::NONE });
    }
    let table = TABLE.get();
    if directory == n::AT_FDCWD {
        let real = match table.base(directory) {
            Some(Ok(real)) => real,
            _ => return Err(Outcome::End(ended::DESCRIPTOR)),
        };
        return Ok(Base { real, key: WORKING, made: FileId::NONE });
    }
    match table.get(directory) {
        None => Err(Outcome::End(ended::DESCRIPTOR)),
        Some(Err(e)) => Err(e.into()),
        Some(Ok(entry)) if entry.kind != Kind::Directory => Err(Errno::ENOTDIR.into()),
        Some(Ok(entry)) => {
            let key = Directory { device: entry.device, inode: entry.inode };
            Ok(Base { real: entry.real, key, made: entry.made })
        }
    }
}

/// Finds the directory that a path's last name is in, and what is known of the name.
pub fn resolve(directory: i32, path: &[u8]) -> Result<Named<'_>, Outcome> {
    if path.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    if path.iter().filter(|&&byte| byte == b'/').count() > MAX_DEPTH {
        return Err(UNKNOWN);
    }
    let split = split(path);
    let base = base_of(directory, split.absolute)?;
    if split.is_special() {
        let parent = walk(&base, if split.name.is_empty() { b"" } else { path })?;
        let seen = if parent.is_made() { Seen::Made(parent.made) } else { Seen::Untouched };
        return Ok(Named { base, parent, split, seen, at: directory, path });
    }
    let parent = walk(&base, split.parent)?;
    let seen = match table().look(parent.directory, split.name) {
        // In what speculation has made there is only what it has made.
        Seen::Untouched if parent.is_made() => Seen::Removed,
        seen => seen,
    };
    Ok(Named { base, parent, split, seen, at: directory, path })
}

/// The directory that a path leads to.
fn walk(base: &Base, path: &[u8]) -> Result<Parent, Outcome> {
    if path.is_empty() && !base.made.is_none() {
        return made_directory(base.made);
    }
    let hash = hash_of(path);
    if let Some(known) = remembered(base, hash) {
        return Ok(known.parent);
    }
    let parent = if path.is_empty() {
        ask_kernel(base, path)?
    } else {
        let split = split(path);
        let above = walk(base, split.parent)?;
        match (split.name, table().look(above.directory, split.name)) {
            (b".", _) => above,
            (b"..", _) if above.is_made() => return Err(UNKNOWN),
            (b"..", _) => ask_kernel(base, path)?,
            (_, Seen::Made(id)) => made_directory(id)?,
            (_, Seen::Removed) => return Err(Errno::ENOENT.into()),
            (_, Seen::Untouched) if above.is_made() => return Err(Errno::ENOENT.into()),
            (_, Seen::Untouched) => ask_kernel(base, path)?,
        }
    };
    let slot = &mut STATE.get().known[hash as usize % KNOWN];
    *slot = Remembered { base: base.key, hash, parent, change: -1 };
    Ok(parent)
}

fn remembered(base: &Base, hash: u64) -> Option<&'static mut Remembered> {
    let known = &mut STATE.get().known[hash as usize % KNOWN];
    (known.hash == hash && known.base == base.key).then_some(known)
}

/// Never 0.
fn hash_of(path: &[u8]) -> u64 {
    let hash = path.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ hash >> 32) | 1 << 63
}

fn made_directory(id: FileId) -> Result<Parent, Outcome> {
    match table().file(id) {
        Some(file) if file.is_directory() => Ok(Parent::of_made(id, file)),
        // Where a link leads is not kept.
        Some(file) if file.kind() == n::S_IFLNK || file.opaque => Err(UNKNOWN),
        _ => Err(Errno::ENOTDIR.into()),
    }
}

/// The path with a zero behind it; where it is empty, the directory itself.
fn for_kernel(base: &Base, path: &[u8]) -> usize {
    let buffer = &mut STATE.get().path;
    let path = match path {
        b"" if base.real == n::AT_FDCWD => b"/",
        b"" => b".",
        path => path.get(..path.len().min(PATH_MOST)).unwrap_or(b"."),
    };
    for (to, from) in buffer.iter_mut().zip(path.iter().chain(b"\0")) {
        *to = *from;
    }
    buffer.as_ptr() as usize
}

fn ask_kernel(base: &Base, path: &[u8]) -> Result<Parent, Outcome> {
    if base.real < 0 && base.real != n::AT_FDCWD {
        return Err(UNKNOWN);
    }
    let address = for_kernel(base, path);
    rights::hold();
    let found = status_of(base.real, address, n::AT_NO_AUTOMOUNT).map_err(Outcome::from)?;
    if u32::from(found.stx_mode) & n::S_IFMT != n::S_IFDIR {
        return Err(Errno::ENOTDIR.into());
    }
    Ok(Parent {
        directory: Directory {
            device: device_number(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
        },
        mount: found.stx_mnt_id,
        mode: u32::from(found.stx_mode),
        user: found.stx_uid,
        group: found.stx_gid,
        made: FileId::NONE,
    })
}

pub fn status_of(directory: i32, path: usize, flags: u32) -> runahead_kernel::Result<n::statx> {
    // SAFETY: zeros are a valid value of this structure of numbers.
    let mut status: n::statx = unsafe { core::mem::zeroed() };
    let what = n::STATX_BASIC_STATS | n::STATX_BTIME | n::STATX_MNT_ID;
    let a = [directory as usize, path, flags as usize, what as usize, &raw mut status as usize, 0];
    // SAFETY: the structure is the kernel's, the path ends with a zero.
    check(unsafe { syscall(n::__NR_statx as usize, a) })?;
    Ok(status)
}

/// The mount that a descriptor of ours is on.
pub fn mount_of(real: i32) -> Option<u64> {
    let flags = n::AT_EMPTY_PATH | n::AT_NO_AUTOMOUNT;
    status_of(real, c"".as_ptr() as usize, flags).ok().map(|status| status.stx_mnt_id)
}

impl Named<'_> {
    /// What the kernel says of the name itself, not of where it leads.
    pub fn look(&self) -> runahead_kernel::Result<File> {
        let address = for_kernel(&self.base, self.path);
        rights::hold();
        let began = monotonic_ns();
        let status = status_of(self.base.real, address, n::AT_SYMLINK_NOFOLLOW | n::AT_NO_AUTOMOUNT);
        notes::looked_up(self.at, self.path, monotonic_ns().saturating_sub(began));
        match status? {
            status if is_born_later(&status, 0) => Err(Errno::ENOENT),
            status => Ok(opaque(&status)),
        }
    }

    /// Whether the program may do with the file of this name, which exists, what is `wanted` (bits as of
    /// access(2)).
    pub fn may(&self, wanted: u32) -> runahead_kernel::Result<()> {
        let address = for_kernel(&self.base, self.path);
        may(self.base.real, address, wanted)
    }

    /// Whether the program may make or remove names beside this one.
    pub fn may_change(&self) -> Result<(), Outcome> {
        const WRITE_AND_PASS: u32 = 2 | 1;
        if let Some(file) = table().file(self.parent.made) {
            return match file.allows(user(), group(), WRITE_AND_PASS) {
                Some(true) => Ok(()),
                Some(false) => Err(Errno::EACCES.into()),
                None => Err(UNKNOWN),
            };
        }
        let hash = hash_of(self.split.parent);
        let known = remembered(&self.base, hash).map_or(-1, |known| known.change);
        let answer = if known >= 0 {
            known
        } else {
            let address = for_kernel(&self.base, self.split.parent);
            rights::hold();
            let answer = may(self.base.real, address, WRITE_AND_PASS).map_or_else(|Errno(e)| e, |()| 0);
            if let Some(known) = remembered(&self.base, hash) {
                known.change = answer;
            }
            answer
        };
        if answer == 0 { Ok(()) } else { Err(Errno(answer).into()) }
    }

    /// Whether the program may remove this name, of a file of `owner`'s, from a directory that it may change.
    pub fn may_remove(&self, owner: u32) -> Result<(), Outcome> {
        const S_ISVTX: u32 = 0o1000;
        self.may_change()?;
        let user = user();
        let is_his = user == 0 || user == owner || user == self.parent.user;
        if self.parent.mode & S_ISVTX != 0 && !is_his { Err(Errno::EPERM.into()) } else { Ok(()) }
    }

    /// From now on the name is this file's.
    pub fn give(&self, id: FileId) -> Result<(), Outcome> {
        Ok(table().name(self.parent.directory, self.split.name, id)?)
    }

    /// From now on there is no such name.
    pub fn take_away(&self) -> Result<(), Outcome> {
        Ok(table().remove(self.parent.directory, self.split.name)?)
    }
}

fn may(directory: i32, path: usize, wanted: u32) -> runahead_kernel::Result<()> {
    let a = [directory as usize, path, wanted as usize, n::AT_EACCESS as usize, 0, 0];
    // SAFETY: asks only; the path ends with a zero.
    check(unsafe { syscall(n::__NR_faccessat2 as usize, a) }).map(drop)
}

/// Who knows what a path leads to.
pub enum Answer {
    Kernel,
    /// It is a file that only speculation has.
    Made(FileId),
}

/// Whom to ask about a path. `follows`: about what a link at its end leads to.
pub fn whom_to_ask(directory: i32, path: usize, length: usize, follows: bool) -> Result<Answer, Outcome> {
    if table().is_empty() {
        return Ok(Answer::Kernel);
    }
    let named = resolve(directory, path_at(path, length))?;
    let id = match named.seen {
        Seen::Untouched => return Ok(Answer::Kernel),
        Seen::Removed => return Err(Errno::ENOENT.into()),
        Seen::Made(id) => id,
    };
    match table().file(id) {
        Some(file) if file.kind() == n::S_IFLNK && (follows || named.split.slashed) => Err(UNKNOWN),
        Some(file) if named.split.slashed && !file.is_directory() => Err(Errno::ENOTDIR.into()),
        _ => Ok(Answer::Made(id)),
    }
}

/// Whether names in an open directory are not what the kernel would list.
pub fn has_changed(entry: &Descriptor) -> bool {
    let within = Directory { device: entry.device, inode: entry.inode };
    !table().is_empty() && table().has_changed(within)
}

/// What a program asks about a file.
#[derive(Clone, Copy)]
pub enum Question {
    /// `stat`, to be put there.
    Status(usize),
    /// `statx`, the same.
    Extended(usize),
    /// What it may do with it.
    Access(u32),
    /// Where it leads.
    Link,
}

impl Question {
    /// Puts what speculation says in the place of the kernel's answer, where it has changed the file.
    pub fn corrects(&self) {
        if table().is_empty() {
            return;
        }
        match *self {
            Question::Status(out) => {
                // SAFETY: a `stat` that the kernel has just written.
                let told = unsafe { get::<Stat>(out) };
                if let Some(file) = said_of(told.st_dev, told.st_ino) {
                    put(out, &status(file));
                }
            }
            Question::Extended(out) => {
                // SAFETY: the same of a `statx`.
                let told = unsafe { get::<n::statx>(out) };
                let device = device_number(told.stx_dev_major, told.stx_dev_minor);
                if let Some(file) = said_of(device, told.stx_ino) {
                    put(out, &extended_status(file));
                }
            }
            _ => {}
        }
    }

    /// When the file was last changed that it was answered for, by the kernel; ns since 1970. The path must
    /// be there still, and is where the answer cannot be.
    pub fn changed(&self) -> Option<i64> {
        match *self {
            Question::Status(out) => {
                // SAFETY: a `stat` that the kernel has just written.
                let stat = unsafe { get::<Stat>(out) };
                Some((stat.st_ctime as i64).saturating_mul(SECOND).saturating_add(stat.st_ctime_nsec as i64))
            }
            // SAFETY: the same of a `statx`.
            Question::Extended(out) => Some(time_of(&unsafe { get::<n::statx>(out) }.stx_ctime)),
            _ => None,
        }
    }
}

/// Answers it for a file that only speculation has.
pub fn answer(question: Question, id: FileId) -> Outcome {
    let Some(file) = table().file(id) else { return UNKNOWN };
    match question {
        Question::Status(out) => put(out, &status(file)),
        Question::Extended(out) => put(out, &extended_status(file)),
        Question::Access(wanted) => match file.allows(user(), group(), wanted) {
            Some(true) => {}
            Some(false) => return Errno::EACCES.into(),
            None => return UNKNOWN,
        },
        Question::Link if file.kind() == n::S_IFLNK => return UNKNOWN,
        Question::Link => return Errno::EINVAL.into(),
    }
    Outcome::Return(0)
}

const SECOND: i64 = 1_000_000_000;
/// Bytes of a block, as `st_blocks` counts them.
const BLOCK: i64 = 512;

fn blocks(size: i64) -> i64 {
    size.saturating_add(PAGE as i64 - 1) / PAGE as i64 * (PAGE as i64 / BLOCK)
}

pub fn status(file: &File) -> Stat {
    // SAFETY: all zeros is a value of `stat`.
    let mut stat: Stat = unsafe { core::mem::zeroed() };
    (stat.st_dev, stat.st_ino) = (file.device, file.inode);
    (stat.st_mode, stat.st_nlink) = (file.mode, u64::from(file.links) as _);
    (stat.st_uid, stat.st_gid) = (file.user, file.group);
    (stat.st_size, stat.st_blksize, stat.st_blocks) = (file.size, PAGE as _, blocks(file.size) as _);
    let (seconds, rest) = (file.time.div_euclid(SECOND), file.time.rem_euclid(SECOND));
    (stat.st_atime, stat.st_mtime, stat.st_ctime) = (seconds as _, seconds as _, seconds as _);
    (stat.st_atime_nsec, stat.st_mtime_nsec, stat.st_ctime_nsec) = (rest as _, rest as _, rest as _);
    stat
}

fn extended_status(file: &File) -> n::statx {
    // SAFETY: zeros are a valid value of this structure of numbers.
    let mut status: n::statx = unsafe { core::mem::zeroed() };
    status.stx_mask = n::STATX_BASIC_STATS | n::STATX_BTIME | n::STATX_MNT_ID;
    status.stx_blksize = PAGE as u32;
    (status.stx_nlink, status.stx_mode) = (file.links, file.mode as u16);
    (status.stx_uid, status.stx_gid) = (file.user, file.group);
    (status.stx_ino, status.stx_size) = (file.inode, file.size as u64);
    (status.stx_blocks, status.stx_mnt_id) = (blocks(file.size) as u64, file.mount);
    // As `device_number` puts them together.
    status.stx_dev_major = (file.device >> 8) as u32 & 0xfff;
    status.stx_dev_minor = file.device as u32 & 0xff | (file.device >> 12) as u32 & !0xff;
    for time in [&mut status.stx_atime, &mut status.stx_mtime, &mut status.stx_ctime, &mut status.stx_btime] {
        time.tv_sec = file.time.div_euclid(SECOND);
        time.tv_nsec = file.time.rem_euclid(SECOND) as u32;
    }
    status
}

/// What speculation says of a file that exists and that it changes. None: it is not kept in mind.
pub fn change_real(real: i32) -> Option<&'static mut File> {
    let flags = n::AT_EMPTY_PATH | n::AT_NO_AUTOMOUNT;
    let status = status_of(real, c"".as_ptr() as usize, flags).ok()?;
    change_existing(opaque(&status))
}

/// The same, of one that was looked at.
pub fn change_existing(file: File) -> Option<&'static mut File> {
    let id = table().change(file).ok()?;
    table().file_mut(id)
}

/// What is said of a file that exists, by device and inode, if speculation has changed that.
pub fn said_of(device: u64, inode: u64) -> Option<&'static File> {
    table().file(table().changed(device, inode)?)
}

/// A descriptor of a file that only speculation has.
pub fn descriptor(id: FileId, flags: u32) -> Result<Descriptor, Outcome> {
    let Some(file) = table().file(id) else { return Err(UNKNOWN) };
    let writes = flags & (n::O_WRONLY | n::O_RDWR) != 0;
    let wanted = match flags & n::O_ACCMODE {
        n::O_RDONLY => 4,
        n::O_WRONLY => 2,
        _ => 4 | 2,
    };
    match file.kind() {
        n::S_IFDIR if writes || flags & n::O_CREAT != 0 => return Err(Errno::EISDIR.into()),
        n::S_IFDIR => {}
        n::S_IFLNK if flags & n::O_NOFOLLOW != 0 => return Err(Errno::ELOOP.into()),
        n::S_IFREG if flags & n::O_DIRECTORY != 0 => return Err(Errno::ENOTDIR.into()),
        n::S_IFREG if !file.opaque => {}
        _ => return Err(UNKNOWN),
    }
    match file.allows(user(), group(), wanted) {
        Some(true) => Ok(Descriptor::made(id, file, flags)),
        Some(false) => Err(Errno::EACCES.into()),
        None => Err(UNKNOWN),
    }
}

/// Makes a file and gives it its name.
pub fn make(named: &Named, kind: u32, mode: u32) -> Result<FileId, Outcome> {
    named.may_change()?;
    let id = table().add(named.parent.make(kind, mode)?)?;
    named.give(id)?;
    Ok(id)
}

/// What is there by the kernel's word, as a file that is known no further.
fn opaque(status: &n::statx) -> File {
    File {
        device: device_number(status.stx_dev_major, status.stx_dev_minor),
        inode: status.stx_ino,
        mount: status.stx_mnt_id,
        mode: u32::from(status.stx_mode),
        user: status.stx_uid,
        group: status.stx_gid,
        links: status.stx_nlink,
        size: status.stx_size as i64,
        time: time_of(&status.stx_mtime),
        opaque: true,
    }
}

fn time_of(time: &n::statx_timestamp) -> i64 {
    time.tv_sec.saturating_mul(SECOND).saturating_add(i64::from(time.tv_nsec))
}

/// Whether a file was made when the program was further than speculation: by more than so many ns, as file
/// systems tell the time by ticks of the clock.
fn is_born_later(status: &n::statx, surely: i64) -> bool {
    let birth = time_of(&status.stx_btime);
    status.stx_mask & n::STATX_BTIME != 0 && birth >= STATE.get().began.saturating_add(surely)
}

/// Whether the file of a name that was last changed at `changed` (ns since 1970) is one that the program
/// cannot have found: the same question, where an error is worse than none.
pub fn is_of_the_future(changed: i64, base: i32, path: usize, flags: u32) -> bool {
    /// A tick, at a hundred a second.
    const TICK: i64 = 10_000_000;
    if changed < STATE.get().began.saturating_add(TICK) {
        return false;
    }
    let flags = flags & n::AT_SYMLINK_NOFOLLOW | n::AT_NO_AUTOMOUNT;
    status_of(base, path, flags).is_ok_and(|status| is_born_later(&status, TICK))
}

/// Effective user and group, which the program shares with us: [`crate::rights`] sees to that.
pub fn user() -> u32 {
    static USER: AtomicU32 = AtomicU32::new(u32::MAX);
    own(&USER, n::__NR_geteuid)
}

pub fn group() -> u32 {
    static GROUP: AtomicU32 = AtomicU32::new(u32::MAX);
    own(&GROUP, n::__NR_getegid)
}

fn own(known: &AtomicU32, number: u32) -> u32 {
    let before = known.load(Ordering::Relaxed);
    if before != u32::MAX {
        return before;
    }
    // SAFETY: asks only.
    let asked = unsafe { syscall(number as usize, [0; 6]) } as u32;
    known.store(asked, Ordering::Relaxed);
    asked
}

/// The bits that new files do not get.
fn mask() -> Result<u32, Outcome> {
    let state = STATE.get();
    if state.mask.is_none() {
        state.mask = rights::mask();
    }
    state.mask.ok_or(UNKNOWN)
}

/// `umask`: returns the one before.
pub fn set_mask(new: u32) -> Outcome {
    match mask() {
        Ok(before) => {
            STATE.get().mask = Some(new & 0o777);
            Outcome::Return(before as isize)
        }
        Err(outcome) => outcome,
    }
}
