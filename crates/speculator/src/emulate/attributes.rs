//! Extended attributes, and what file systems say of themselves: those of files that exist are read for real,
//! those of speculation's own are none, and setting them succeeds where it is known to.

use super::names::{is_off_limits, path_length};
use super::overlay::{self, table, user};
use super::{Outcome, UNKNOWN, put, room};
use crate::arch::Call;
use crate::descriptors::TABLE;
use crate::rights;
use runahead_abi::session::ended;
use runahead_kernel::arch::syscall;
use runahead_kernel::files;
use runahead_kernel::text::Text;
use runahead_kernel::uapi::{errno, general as n};
use runahead_kernel::{Errno, check};
use runahead_policy::overlay::{FileId, Seen};

const ENODATA: Errno = Errno(errno::ENODATA as i32);

pub fn dispatch(call: &Call) -> Option<Outcome> {
    let a = call.arguments;
    let done = match call.number as u32 {
        n::__NR_getxattr => by_name(a[0], true, |file| read(file, Some(a[1]), a[2], a[3])),
        n::__NR_lgetxattr => by_name(a[0], false, |file| read(file, Some(a[1]), a[2], a[3])),
        n::__NR_fgetxattr => open(a[0] as i32, |file| read(file, Some(a[1]), a[2], a[3])),
        n::__NR_listxattr => by_name(a[0], true, |file| read(file, None, a[1], a[2])),
        n::__NR_llistxattr => by_name(a[0], false, |file| read(file, None, a[1], a[2])),
        n::__NR_flistxattr => open(a[0] as i32, |file| read(file, None, a[1], a[2])),
        n::__NR_setxattr => by_name(a[0], true, |file| change(file, a[1])),
        n::__NR_lsetxattr => by_name(a[0], false, |file| change(file, a[1])),
        n::__NR_fsetxattr => open(a[0] as i32, |file| change(file, a[1])),
        n::__NR_removexattr => by_name(a[0], true, |file| remove(file, a[1])),
        n::__NR_lremovexattr => by_name(a[0], false, |file| remove(file, a[1])),
        n::__NR_fremovexattr => open(a[0] as i32, |file| remove(file, a[1])),
        n::__NR_statfs => by_name(a[0], true, |file| file_system(file, a[1])),
        n::__NR_fstatfs => open(a[0] as i32, |file| file_system(file, a[1])),
        _ => return None,
    };
    Some(match done {
        Ok(value) => Outcome::Return(value as isize),
        Err(outcome) => outcome,
    })
}

type Done = Result<usize, Outcome>;

/// The file that is asked about.
#[derive(Clone, Copy)]
enum File {
    Made(FileId),
    /// A descriptor of ours.
    Real(i32),
}

fn open(fd: i32, then: impl FnOnce(File) -> Done) -> Done {
    match TABLE.get().get(fd) {
        None => Err(Outcome::End(ended::DESCRIPTOR)),
        Some(Err(e)) => Err(e.into()),
        Some(Ok(entry)) if !entry.made.is_none() => {
            let made = entry.made;
            then(File::Made(made))
        }
        Some(Ok(entry)) if entry.real >= 0 => {
            let real = entry.real;
            then(File::Real(real))
        }
        Some(Ok(_)) => Err(UNKNOWN),
    }
}

fn by_name(path: usize, follows: bool, then: impl FnOnce(File) -> Done) -> Done {
    let Some(length) = path_length(path) else { return Err(Errno::ENAMETOOLONG.into()) };
    if is_off_limits(path) {
        return Err(UNKNOWN);
    }
    let named = overlay::resolve(n::AT_FDCWD, overlay::path_at(path, length))?;
    match named.seen {
        Seen::Removed => Err(Errno::ENOENT.into()),
        Seen::Made(id) => match table().file(id) {
            Some(file) if file.kind() == n::S_IFLNK || file.opaque => Err(UNKNOWN),
            _ => then(File::Made(id)),
        },
        Seen::Untouched => {
            let base = match super::names::base_for(n::AT_FDCWD, path, length) {
                Some(Ok(base)) => base,
                _ => return Err(Outcome::End(ended::DESCRIPTOR)),
            };
            rights::hold();
            let more = if follows { 0 } else { n::O_NOFOLLOW };
            // SAFETY: opens no file, only names it.
            let named = unsafe { files::open_at_address(base, path, n::O_PATH | n::O_CLOEXEC | more, 0) };
            let named = named.map_err(Outcome::from)?;
            let done = then(File::Real(named));
            let _ = files::close(named);
            done
        }
    }
}

/// One attribute, or the list of all.
fn read(file: File, name: Option<usize>, out: usize, length: usize) -> Done {
    let real = match file {
        File::Made(_) => return if name.is_some() { Err(ENODATA.into()) } else { Ok(0) },
        File::Real(real) => real,
    };
    if let Some(name) = name
        && path_length(name).is_none()
    {
        return Err(Errno::ERANGE.into());
    }
    if !room(out, length) {
        return Err(UNKNOWN);
    }
    rights::hold();
    // By this way it works for what is only named as well.
    let path = Text::<32>::new().push(b"/proc/self/fd/").push_number(real as u64);
    let path = path.as_c_str().as_ptr() as usize;
    // SAFETY: calls that only ask; what they write is mirror memory that is there.
    let returned = unsafe {
        match name {
            Some(name) => syscall(n::__NR_getxattr as usize, [path, name, out, length, 0, 0]),
            None => syscall(n::__NR_listxattr as usize, [path, out, length, 0, 0, 0]),
        }
    };
    check(returned).map_err(Outcome::from)
}

/// `FS_IOC_GETFLAGS`, which archivers ask of each file (that is not to be dumped, say): those of the flags
/// that statx(2) tells as well, where they are the same bits.
pub fn flags(fd: i32, out: usize) -> Outcome {
    const ENOTTY: Errno = Errno(errno::ENOTTY as i32);
    let asked = open(fd, |file| {
        let File::Real(real) = file else { return Err(UNKNOWN) };
        if !room(out, size_of::<u32>()) {
            return Err(UNKNOWN);
        }
        rights::hold();
        let path = c"".as_ptr() as usize;
        let flags = n::AT_EMPTY_PATH | n::AT_NO_AUTOMOUNT;
        let status = overlay::status_of(real, path, flags).map_err(Outcome::from)?;
        if status.stx_attributes_mask == 0 {
            return Err(ENOTTY.into());
        }
        put(out, &((status.stx_attributes & status.stx_attributes_mask) as u32));
        Ok(0)
    });
    asked.map_or_else(|outcome| outcome, |value: usize| Outcome::Return(value as isize))
}

/// What the file system says of itself: `struct statfs`.
fn file_system(file: File, out: usize) -> Done {
    const BYTES: usize = size_of::<n::statfs>();
    let File::Real(real) = file else { return Err(UNKNOWN) };
    if !room(out, BYTES) {
        return Err(UNKNOWN);
    }
    rights::hold();
    // SAFETY: a call that only asks; what it writes is mirror memory that is there.
    check(unsafe { syscall(n::__NR_fstatfs as usize, [real as usize, out, 0, 0, 0, 0]) })
        .map_err(Outcome::from)
}

/// The kinds of attributes that whoever owns a file may set.
fn is_his(name: usize) -> bool {
    super::names::starts_with(name, b"user.") || is_access_list(name)
}

fn is_access_list(name: usize) -> bool {
    super::names::starts_with(name, b"system.posix_acl_")
}

fn owner(file: File) -> Result<u32, Outcome> {
    match file {
        File::Made(id) => table().file(id).map(|file| file.user).ok_or(UNKNOWN),
        File::Real(real) => Ok(files::fstat(real).map_err(Outcome::from)?.st_uid),
    }
}

/// Setting one. It is not kept.
fn change(file: File, name: usize) -> Done {
    if user() == 0 || (is_his(name) && user() == owner(file)?) { Ok(0) } else { Err(UNKNOWN) }
}

fn remove(file: File, name: usize) -> Done {
    let is_owner = user() == 0 || user() == owner(file)?;
    match file {
        // An access list that is not there is removed all the same.
        _ if is_access_list(name) && is_owner => Ok(0),
        File::Made(_) if is_his(name) && is_owner => Err(ENODATA.into()),
        _ => Err(UNKNOWN),
    }
}
