//! Calls that change names and what is said of files: done to the overlay alone ([`super::overlay`]).
//!
//! What cannot be known without doing it ends the speculation: where a link leads that speculation has
//! made, what is in a directory that would be removed, the way to what is in one that was renamed.

use super::names::{is_off_limits, path_length};
use super::overlay::{self, Named, resolve, table, user};
use super::{Outcome, UNKNOWN, get};
use crate::arch::Call;
use crate::descriptors::{Descriptor, TABLE};
use runahead_abi::session::ended;
use runahead_kernel::process::realtime_ns;
use runahead_kernel::uapi::general as n;
use runahead_kernel::{Errno, PAGE};
use runahead_policy::overlay::{File, FileId, Seen};

const HERE: i32 = n::AT_FDCWD;
const NO_FOLLOW: u32 = n::AT_SYMLINK_NOFOLLOW;

type Answer = Result<(), Outcome>;

pub fn dispatch(call: &Call) -> Option<Outcome> {
    let a = call.arguments;
    let (fd, second) = (a[0] as i32, a[2] as i32);
    let (mode, owner) =
        (|at: usize| Change::Mode(a[at] as u32), |at: usize| Change::Owner(a[at] as u32, a[at + 1] as u32));
    let done = match call.number as u32 {
        n::__NR_mkdir => make_directory(HERE, a[0], a[1] as u32),
        n::__NR_mkdirat => make_directory(fd, a[1], a[2] as u32),
        n::__NR_unlink => remove(HERE, a[0], false),
        n::__NR_rmdir => remove(HERE, a[0], true),
        n::__NR_unlinkat => remove(fd, a[1], a[2] as u32 & n::AT_REMOVEDIR != 0),
        n::__NR_rename => rename((HERE, a[0]), (HERE, a[1]), 0),
        n::__NR_renameat => rename((fd, a[1]), (second, a[3]), 0),
        n::__NR_renameat2 => rename((fd, a[1]), (second, a[3]), a[4] as u32),
        n::__NR_link => link((HERE, a[0]), (HERE, a[1]), 0),
        n::__NR_linkat => link((fd, a[1]), (second, a[3]), a[4] as u32),
        n::__NR_symlink => make_link(a[0], HERE, a[1]),
        n::__NR_symlinkat => make_link(a[0], a[1] as i32, a[2]),
        n::__NR_chmod => change_name(HERE, a[0], 0, mode(1)),
        n::__NR_fchmod => change_open(fd, mode(1)),
        n::__NR_fchmodat => change_name(fd, a[1], 0, mode(2)),
        n::__NR_fchmodat2 => change_name(fd, a[1], a[3] as u32, mode(2)),
        n::__NR_chown => change_name(HERE, a[0], 0, owner(1)),
        n::__NR_lchown => change_name(HERE, a[0], NO_FOLLOW, owner(1)),
        n::__NR_fchown => change_open(fd, owner(1)),
        n::__NR_fchownat => change_name(fd, a[1], a[4] as u32, owner(2)),
        n::__NR_utimensat => set_times(fd, a[1], a[2], a[3] as u32),
        n::__NR_utime | n::__NR_utimes => change_name(HERE, a[0], 0, Change::Time(realtime_ns())),
        n::__NR_futimesat => change_name(fd, a[1], 0, Change::Time(realtime_ns())),
        n::__NR_truncate => truncate(a[0], a[1] as i64),
        _ => return None,
    };
    Some(match done {
        Ok(()) => Outcome::Return(0),
        Err(outcome) => outcome,
    })
}

/// The name that a path ends with, where it is one that may be changed.
fn name_at<'a>(directory: i32, path: usize) -> Result<Named<'a>, Outcome> {
    let Some(length) = path_length(path) else { return Err(Errno::ENAMETOOLONG.into()) };
    if is_off_limits(path) {
        return Err(UNKNOWN);
    }
    resolve(directory, overlay::path_at(path, length))
}

/// What has a name.
enum There {
    Made(FileId, File),
    Real(File),
    Nothing,
}

fn what_is(named: &Named) -> Result<There, Outcome> {
    match named.seen {
        Seen::Removed => Ok(There::Nothing),
        Seen::Made(id) => table().file(id).map(|file| There::Made(id, *file)).ok_or(UNKNOWN),
        Seen::Untouched => match named.look() {
            Ok(file) => Ok(There::Real(file)),
            Err(Errno::ENOENT) => Ok(There::Nothing),
            Err(e) => Err(e.into()),
        },
    }
}

impl There {
    fn kind(&self) -> u32 {
        match self {
            There::Made(_, file) | There::Real(file) => file.kind(),
            There::Nothing => 0,
        }
    }

    fn owner(&self) -> u32 {
        match self {
            There::Made(_, file) | There::Real(file) => file.user,
            There::Nothing => 0,
        }
    }

    fn identity(&self) -> (u64, u64) {
        match self {
            There::Made(_, file) | There::Real(file) => (file.device, file.inode),
            There::Nothing => (0, 0),
        }
    }
}

fn make_directory(directory: i32, path: usize, mode: u32) -> Answer {
    let named = name_at(directory, path)?;
    if named.split.is_special() {
        return Err(Errno::EEXIST.into());
    }
    match what_is(&named)? {
        There::Nothing => overlay::make(&named, n::S_IFDIR, mode).map(drop),
        _ => Err(Errno::EEXIST.into()),
    }
}

/// A link that leads to what stands at `target`.
fn make_link(target: usize, directory: i32, path: usize) -> Answer {
    let Some(length @ 1..) = path_length(target) else { return Err(UNKNOWN) };
    let named = name_at(directory, path)?;
    if named.split.is_special() || named.split.slashed {
        return Err(UNKNOWN);
    }
    match what_is(&named)? {
        There::Nothing => {
            let id = overlay::make(&named, n::S_IFLNK, 0)?;
            if let Some(file) = table().file_mut(id) {
                file.size = length as i64;
            }
            Ok(())
        }
        _ => Err(Errno::EEXIST.into()),
    }
}

/// unlink, rmdir.
fn remove(directory: i32, path: usize, is_directory: bool) -> Answer {
    let named = name_at(directory, path)?;
    if named.split.is_special() {
        return Err(UNKNOWN);
    }
    let there = what_is(&named)?;
    match (&there, there.kind() == n::S_IFDIR) {
        (There::Nothing, _) => return Err(Errno::ENOENT.into()),
        (_, true) if !is_directory => return Err(Errno::EISDIR.into()),
        (_, false) if is_directory || named.split.slashed => return Err(Errno::ENOTDIR.into()),
        // What else is in it nobody knows.
        (There::Real(_), true) => return Err(UNKNOWN),
        (There::Made(_, file), true) if table().has_made_in(file.directory()) => {
            return Err(Errno(runahead_kernel::uapi::errno::ENOTEMPTY as i32).into());
        }
        _ => {}
    }
    named.may_remove(there.owner())?;
    if let There::Made(id, _) = there
        && let Some(file) = table().file_mut(id)
    {
        file.links = file.links.saturating_sub(1);
    }
    named.take_away()?;
    if is_directory {
        overlay::forget_directories();
    }
    Ok(())
}

/// The file of a name, taken into the table if it is not there. Directories that exist keep their names.
fn adopt(there: &There) -> Result<FileId, Outcome> {
    match there {
        There::Nothing => Err(Errno::ENOENT.into()),
        There::Made(id, _) => Ok(*id),
        There::Real(_) if there.kind() == n::S_IFDIR => Err(UNKNOWN),
        There::Real(file) => Ok(table().add(*file)?),
    }
}

fn rename(from: (i32, usize), to: (i32, usize), flags: u32) -> Answer {
    if flags & !n::RENAME_NOREPLACE != 0 {
        return Err(UNKNOWN);
    }
    let (old, new) = (name_at(from.0, from.1)?, name_at(to.0, to.1)?);
    if old.parent.mount != new.parent.mount {
        return Err(Errno::EXDEV.into());
    }
    if old.split.is_special() || new.split.is_special() || old.split.slashed || new.split.slashed {
        return Err(UNKNOWN);
    }
    let (source, target) = (what_is(&old)?, what_is(&new)?);
    let is_directory = source.kind() == n::S_IFDIR;
    match (&source, &target) {
        (There::Nothing, _) => return Err(Errno::ENOENT.into()),
        (_, There::Nothing) => {}
        _ if flags & n::RENAME_NOREPLACE != 0 => return Err(Errno::EEXIST.into()),
        _ if source.identity() == target.identity() => return Ok(()),
        // Into what may not be empty.
        _ if is_directory => return Err(UNKNOWN),
        _ if target.kind() == n::S_IFDIR => return Err(Errno::EISDIR.into()),
        _ => {}
    }
    // One that is moved may be moved into itself.
    if is_directory && old.parent.directory != new.parent.directory {
        return Err(UNKNOWN);
    }
    old.may_remove(source.owner())?;
    match target {
        There::Nothing => new.may_change()?,
        _ => new.may_remove(target.owner())?,
    }
    let id = adopt(&source)?;
    new.give(id)?;
    old.take_away()?;
    if is_directory {
        overlay::forget_directories();
    }
    Ok(())
}

fn link(from: (i32, usize), to: (i32, usize), flags: u32) -> Answer {
    if flags & n::AT_EMPTY_PATH != 0 {
        return Err(UNKNOWN);
    }
    let (old, new) = (name_at(from.0, from.1)?, name_at(to.0, to.1)?);
    if old.split.is_special() || new.split.is_special() || old.split.slashed || new.split.slashed {
        return Err(UNKNOWN);
    }
    let source = what_is(&old)?;
    let follows = flags & n::AT_SYMLINK_FOLLOW != 0 && source.kind() == n::S_IFLNK;
    // Of a file of somebody else's it may be forbidden.
    let is_foreign = user() != 0 && user() != source.owner();
    match what_is(&new)? {
        _ if matches!(source, There::Nothing) => return Err(Errno::ENOENT.into()),
        There::Nothing if old.parent.mount != new.parent.mount => return Err(Errno::EXDEV.into()),
        There::Nothing if source.kind() == n::S_IFDIR => return Err(Errno::EPERM.into()),
        There::Nothing if follows || is_foreign => return Err(UNKNOWN),
        There::Nothing => {}
        _ => return Err(Errno::EEXIST.into()),
    }
    new.may_change()?;
    let id = adopt(&source)?;
    new.give(id)?;
    // Both names are of one file from now on, whichever is changed.
    old.give(id)?;
    if let Some(file) = table().file_mut(id) {
        file.links = file.links.saturating_add(1);
    }
    Ok(())
}

/// What is changed about a file.
#[derive(Clone, Copy)]
enum Change {
    Mode(u32),
    /// User and group; all ones: as it is.
    Owner(u32, u32),
    /// ns since 1970.
    Time(i64),
    Size(i64),
}

/// Whether the program may make a change to a file of `user` and `group`.
fn may_make(change: Change, owner: u32, its_group: u32) -> Answer {
    let is_owner = user() == 0 || user() == owner;
    match change {
        Change::Owner(new, group) if user() != 0 => {
            let stays = |new: u32, is: u32| new == u32::MAX || new == is;
            match (stays(new, owner), stays(group, its_group) || group == overlay::group()) {
                (true, true) if is_owner => Ok(()),
                (false, _) => Err(Errno::EPERM.into()),
                // He may be in that group.
                _ => Err(UNKNOWN),
            }
        }
        // Whoever may write to it may set its times to the present.
        Change::Time(_) if !is_owner => Err(UNKNOWN),
        Change::Mode(_) if !is_owner => Err(Errno::EPERM.into()),
        _ => Ok(()),
    }
}

fn apply(change: Change, file: &mut File) {
    match change {
        Change::Mode(mode) => file.mode = file.mode & n::S_IFMT | mode & 0o7777,
        Change::Owner(user, group) => {
            let new = |new: u32, is: u32| if new == u32::MAX { is } else { new };
            (file.user, file.group) = (new(user, file.user), new(group, file.group));
        }
        Change::Time(time) => file.time = time,
        Change::Size(size) => file.size = size,
    }
}

fn change_made(id: FileId, change: Change) -> Answer {
    let Some(file) = table().file_mut(id) else { return Err(UNKNOWN) };
    may_make(change, file.user, file.group)?;
    apply(change, file);
    Ok(())
}

fn change_name(directory: i32, path: usize, flags: u32, change: Change) -> Answer {
    if flags & n::AT_EMPTY_PATH != 0 {
        // Of a descriptor, as a rule; the overlay need not know any other use of it.
        return if path_length(path) == Some(0) { change_open(directory, change) } else { Err(UNKNOWN) };
    }
    let named = name_at(directory, path)?;
    let follows = flags & NO_FOLLOW == 0;
    match what_is(&named)? {
        There::Nothing => Err(Errno::ENOENT.into()),
        there if there.kind() == n::S_IFLNK && (follows || named.split.slashed) => Err(UNKNOWN),
        There::Made(id, _) => change_made(id, change),
        There::Real(file) => {
            // A file system that is only read, and files that nobody may change, say so to whoever asks.
            if let Err(e @ (Errno::EROFS | Errno::EPERM)) = named.may(2) {
                return Err(e.into());
            }
            change_real(change, overlay::change_existing(file), file)
        }
    }
}

/// A file that exists: what is changed about it is kept in mind, if there is room.
fn change_real(change: Change, said: Option<&mut File>, file: File) -> Answer {
    let is = said.as_deref().copied().unwrap_or(file);
    may_make(change, is.user, is.group)?;
    if let Some(said) = said {
        apply(change, said);
    }
    Ok(())
}

fn change_open(fd: i32, change: Change) -> Answer {
    match open_file(fd)? {
        entry if !entry.made.is_none() => change_made(entry.made, change),
        entry if entry.real >= 0 => {
            let Some(file) = overlay::change_real(entry.real) else { return Err(UNKNOWN) };
            may_make(change, file.user, file.group)?;
            apply(change, file);
            Ok(())
        }
        _ => Err(UNKNOWN),
    }
}

fn open_file(fd: i32) -> Result<Descriptor, Outcome> {
    match TABLE.get().get(fd) {
        None => Err(Outcome::End(ended::DESCRIPTOR)),
        Some(Err(e)) => Err(e.into()),
        Some(Ok(entry)) => Ok(*entry),
    }
}

fn set_times(fd: i32, path: usize, times: usize, flags: u32) -> Answer {
    let time = modified(times).unwrap_or_else(realtime_ns);
    match path {
        0 => change_open(fd, Change::Time(time)),
        path => change_name(fd, path, flags, Change::Time(time)),
    }
}

/// The time of modification among those at `times`, ns; None: the present one.
fn modified(times: usize) -> Option<i64> {
    const NOW_OR_AS_IT_IS: i64 = (1 << 30) - 2;
    if times == 0 {
        return None;
    }
    // SAFETY: four plain words.
    let [_, _, seconds, rest] = unsafe { get::<[i64; 4]>(times) };
    (rest < NOW_OR_AS_IT_IS).then(|| seconds.saturating_mul(1_000_000_000).saturating_add(rest))
}

/// A file that exists is not emptied by half.
fn truncate(path: usize, size: i64) -> Answer {
    let named = name_at(HERE, path)?;
    match what_is(&named)? {
        There::Made(id, file) if file.kind() == n::S_IFREG && !file.opaque && size >= 0 => {
            change_made(id, Change::Size(size))
        }
        _ => Err(UNKNOWN),
    }
}

/// An open that makes, or empties, a file.
pub fn open(directory: i32, path: usize, flags: u32, mode: u32) -> Result<Opened, Outcome> {
    let named = name_at(directory, path)?;
    if named.split.is_special() {
        return Err(UNKNOWN);
    }
    let creates = flags & n::O_CREAT != 0;
    let there = what_is(&named)?;
    match &there {
        There::Nothing if !creates => return Err(Errno::ENOENT.into()),
        There::Nothing if named.split.slashed => return Err(Errno::EISDIR.into()),
        There::Nothing => {
            let id = overlay::make(&named, n::S_IFREG, mode)?;
            let Some(file) = table().file(id) else { return Err(UNKNOWN) };
            // Whoever makes it may use it as he asks, whatever its mode.
            return Ok(Opened::Made(Descriptor::made(id, file, flags)));
        }
        _ if creates && flags & n::O_EXCL != 0 => return Err(Errno::EEXIST.into()),
        _ => {}
    }
    let id = match there {
        There::Made(id, _) => id,
        There::Real(file) => match file.kind() {
            n::S_IFDIR if creates => return Err(Errno::EISDIR.into()),
            n::S_IFLNK if flags & n::O_NOFOLLOW != 0 => return Err(Errno::ELOOP.into()),
            // Where it leads, what is there, and whether that is to be made.
            n::S_IFLNK => return Err(UNKNOWN),
            n::S_IFREG if flags & n::O_TRUNC != 0 && flags & n::O_DIRECTORY == 0 => {
                named.may(if flags & n::O_ACCMODE == n::O_RDWR { 4 | 2 } else { 2 })?;
                let emptied = File { size: 0, opaque: false, ..file };
                let id = table().add(emptied)?;
                named.give(id)?;
                id
            }
            _ => return Ok(Opened::AsItIs),
        },
        There::Nothing => return Err(UNKNOWN),
    };
    let descriptor = overlay::descriptor(id, flags)?;
    if flags & n::O_TRUNC != 0
        && let Some(file) = table().file_mut(id)
        && file.kind() == n::S_IFREG
    {
        file.size = 0;
    }
    Ok(Opened::Made(descriptor))
}

pub enum Opened {
    Made(Descriptor),
    /// Nothing is changed by opening it.
    AsItIs,
}

/// `O_TMPFILE`: a file without a name, in the directory that the path leads to.
pub fn open_nameless(directory: i32, path: usize, flags: u32, mode: u32) -> Result<Descriptor, Outcome> {
    let Some(length) = path_length(path) else { return Err(Errno::ENAMETOOLONG.into()) };
    if is_off_limits(path) || length + 2 >= PAGE {
        return Err(UNKNOWN);
    }
    // As a name in it.
    let mut buffer = [0u8; PAGE];
    let text = overlay::path_at(path, length).iter().chain(b"/#");
    let count = buffer.iter_mut().zip(text).map(|(to, from)| *to = *from).count();
    let named = resolve(directory, buffer.get(..count).unwrap_or(&[]))?;
    named.may_change()?;
    let file = File { links: 0, ..named.parent.make(n::S_IFREG, mode)? };
    let id = table().add(file)?;
    let Some(file) = table().file(id) else { return Err(UNKNOWN) };
    Ok(Descriptor::made(id, file, flags))
}
