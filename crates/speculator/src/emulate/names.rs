//! Names: opens, stats, links and listings happen for real, read-only, but for what speculation itself has
//! changed ([`super::overlay`]).
//!
//! They answer the speculation truthfully and warm the kernel's name and inode caches on the way: half
//! of what a program with many files waits for. Pseudo file systems are left alone: reading there can
//! have effects, and `/proc/self` would be us.

use super::changes::{self, Opened};
use super::overlay::{self, Answer, Question};
use super::{Outcome, UNKNOWN, files::ask_whole, put_bytes, room};
use crate::arch::Call;
use crate::cell::Global;
use crate::descriptors::{Descriptor, Kind, TABLE, open_quietly, process_directory};
use crate::notes;
use crate::rights;
use crate::shared::speculator;
use core::sync::atomic::Ordering;
use runahead_abi::session::ended;
use runahead_kernel::arch::syscall;
use runahead_kernel::files::{self, Stat};
use runahead_kernel::filesystem::FileSystem;
use runahead_kernel::memory::bytes;
use runahead_kernel::process::monotonic_ns;
use runahead_kernel::uapi::general as n;
use runahead_kernel::{Errno, check};

/// PATH_MAX.
const PATH_MOST: usize = 4096;

pub fn dispatch(call: &Call) -> Option<Outcome> {
    let a = call.arguments;
    let here = n::AT_FDCWD;
    let no_follow = n::AT_SYMLINK_NOFOLLOW;
    let stat_bytes = size_of::<Stat>();
    Some(match call.number as u32 {
        n::__NR_open => open(here, a[0], a[1] as u32, a[2] as u32),
        n::__NR_openat => open(a[0] as i32, a[1], a[2] as u32, a[3] as u32),
        n::__NR_creat => open(here, a[0], n::O_CREAT | n::O_TRUNC | n::O_WRONLY, a[1] as u32),
        // Flags and mode lie in memory: the program's agent makes this call for the program, see `agent`.
        n::__NR_openat2 => match room(a[2], 16) {
            true => {
                // SAFETY: two plain words.
                let [flags, mode] = unsafe { super::get::<[u64; 2]>(a[2]) };
                open(a[0] as i32, a[1], flags as u32, mode as u32)
            }
            false => UNKNOWN,
        },
        n::__NR_stat => ask((here, a[0], 0), Question::Status(a[1]), a[1], stat_bytes, |base| {
            stat_call(base, a[0], a[1], 0)
        }),
        n::__NR_lstat => ask((here, a[0], no_follow), Question::Status(a[1]), a[1], stat_bytes, |base| {
            stat_call(base, a[0], a[1], no_follow)
        }),
        n::__NR_newfstatat => stat_at(a),
        n::__NR_statx => statx(a),
        n::__NR_access => ask((here, a[0], 0), Question::Access(a[1] as u32), 0, 0, |base| {
            (n::__NR_faccessat, [base as usize, a[0], a[1], 0, 0, 0])
        }),
        n::__NR_faccessat => ask((a[0] as i32, a[1], 0), Question::Access(a[2] as u32), 0, 0, |base| {
            (n::__NR_faccessat, [base as usize, a[1], a[2], 0, 0, 0])
        }),
        n::__NR_faccessat2 => {
            ask((a[0] as i32, a[1], a[3] as u32), Question::Access(a[2] as u32), 0, 0, |base| {
                (n::__NR_faccessat2, [base as usize, a[1], a[2], a[3], 0, 0])
            })
        }
        n::__NR_readlink => ask((here, a[0], no_follow), Question::Link, a[1], a[2], |base| {
            (n::__NR_readlinkat, [base as usize, a[0], a[1], a[2], 0, 0])
        }),
        n::__NR_readlinkat => ask((a[0] as i32, a[1], no_follow), Question::Link, a[2], a[3], |base| {
            (n::__NR_readlinkat, [base as usize, a[1], a[2], a[3], 0, 0])
        }),
        n::__NR_getdents64 => list(a[0] as i32, a[1], a[2]),
        n::__NR_getcwd => working_directory(a[0], a[1]),
        n::__NR_chdir => change_directory(a[0]),
        n::__NR_fchdir => change_directory_to(a[0] as i32),
        _ => return None,
    })
}

/// Length of the path at `address`. Touches it, so that it is there for the kernel.
pub fn path_length(address: usize) -> Option<usize> {
    // SAFETY: mirror memory, or a fault that ends the speculation.
    (0..PATH_MOST).find(|&index| unsafe { ((address + index) as *const u8).read_volatile() } == 0)
}

pub fn starts_with(address: usize, prefix: &[u8]) -> bool {
    // SAFETY: as above; stops at the first difference, so never past the path's end.
    prefix.iter().enumerate().all(|(i, &byte)| unsafe { *((address + i) as *const u8) } == byte)
}

/// Names that speculation does not look up. (Below `/dev/shm` are files like others.)
pub fn is_off_limits(address: usize) -> bool {
    starts_with(address, b"/proc")
        || starts_with(address, b"/sys")
        || (starts_with(address, b"/dev") && !starts_with(address, b"/dev/shm/"))
}

/// Makes the call that `build` builds from a base to resolve from, after the checks that all names need.
/// `out`, `out_length`: memory that the kernel will write. The name: where it begins, its address, and flags
/// that say whether a link at its end is followed. `question`: the same, for what the kernel does not know.
fn ask(
    (directory, path, flags): (i32, usize, u32),
    question: Question,
    out: usize,
    out_length: usize,
    build: impl FnOnce(i32) -> (u32, [usize; 6]),
) -> Outcome {
    let Some(length) = path_length(path) else {
        return Errno::ENAMETOOLONG.into();
    };
    if is_off_limits(path) || !room(out, out_length) {
        return UNKNOWN;
    }
    match overlay::whom_to_ask(directory, path, length, flags & n::AT_SYMLINK_NOFOLLOW == 0) {
        Ok(Answer::Kernel) => {}
        Ok(Answer::Made(file)) => return overlay::answer(question, file),
        Err(outcome) => return outcome,
    }
    let base = match base_for(directory, path, length) {
        None => return Outcome::End(ended::DESCRIPTOR),
        Some(Err(e)) => return e.into(),
        Some(Ok(base)) => base,
    };
    rights::hold();
    let (number, arguments) = build(base);
    let began = monotonic_ns();
    // SAFETY: a call that only asks; what it writes is mirror memory that is there.
    let returned = unsafe { syscall(number as usize, arguments) };
    let took = monotonic_ns().saturating_sub(began);
    notes::looked_up_at(directory, path, length, bytes(out, out_length), took);
    if returned == 0 && question.changed().is_some_and(|at| overlay::is_of_the_future(at, base, path, flags))
    {
        return Errno::ENOENT.into();
    }
    if returned == 0 {
        question.corrects();
    }
    check(returned).into()
}

/// What to resolve the path from: nothing for an absolute one.
pub fn base_for(directory: i32, path: usize, length: usize) -> Option<runahead_kernel::Result<i32>> {
    if length > 0 && starts_with(path, b"/") {
        return Some(Ok(n::AT_FDCWD));
    }
    TABLE.get().base(directory)
}

fn stat_call(base: i32, path: usize, out: usize, flags: u32) -> (u32, [usize; 6]) {
    (n::__NR_newfstatat, [base as usize, path, out, flags as usize, 0, 0])
}

/// Whether a call about a descriptor looks a name up.
pub fn looks_up(call: &Call) -> bool {
    let a = call.arguments;
    call.number as u32 == n::__NR_newfstatat && !is_about_descriptor(a)
}

/// Whether newfstatat with these arguments is fstat.
fn is_about_descriptor(a: [usize; 6]) -> bool {
    a[3] as u32 & n::AT_EMPTY_PATH != 0 && path_length(a[1]) == Some(0)
}

fn stat_at(a: [usize; 6]) -> Outcome {
    if is_about_descriptor(a) {
        let fstat =
            Call { number: n::__NR_fstat as usize, arguments: [a[0], a[2], 0, 0, 0, 0], through_stub: false };
        return super::files::dispatch(&fstat).unwrap_or(UNKNOWN);
    }
    let name = (a[0] as i32, a[1], a[3] as u32);
    ask(name, Question::Status(a[2]), a[2], size_of::<Stat>(), |base| {
        stat_call(base, a[1], a[2], a[3] as u32)
    })
}

fn statx(a: [usize; 6]) -> Outcome {
    let name = (a[0] as i32, a[1], a[2] as u32);
    if a[2] as u32 & n::AT_EMPTY_PATH != 0
        && path_length(a[1]) == Some(0)
        && let Some(Ok(entry)) = TABLE.get().get(name.0)
        && !entry.made.is_none()
    {
        return overlay::answer(Question::Extended(a[4]), entry.made);
    }
    ask(name, Question::Extended(a[4]), a[4], size_of::<n::statx>(), |base| {
        (n::__NR_statx, [base as usize, a[1], a[2] | n::AT_NO_AUTOMOUNT as usize, a[3], a[4], 0])
    })
}

fn open(directory: i32, path: usize, flags: u32, mode: u32) -> Outcome {
    let Some(length) = path_length(path) else {
        return Errno::ENAMETOOLONG.into();
    };
    if is_off_limits(path) {
        return open_device(path, flags);
    }
    match open_changed(directory, path, length, flags, mode) {
        Ok(None) => {}
        Ok(Some(descriptor)) => return install(descriptor),
        Err(outcome) => return outcome,
    }
    let base = match base_for(directory, path, length) {
        None => return Outcome::End(ended::DESCRIPTOR),
        Some(Err(e)) => return e.into(),
        Some(Ok(base)) => base,
    };
    rights::hold();
    match open_for_real(base, path, flags, |took| notes::looked_up_at(directory, path, length, 0..0, took)) {
        Ok(descriptor) => install(descriptor),
        Err(outcome) => outcome,
    }
}

/// Opens what the kernel knows nothing of; None: it knows.
fn open_changed(
    directory: i32,
    path: usize,
    length: usize,
    flags: u32,
    mode: u32,
) -> Result<Option<Descriptor>, Outcome> {
    let only_names = flags & n::O_PATH != 0;
    if flags & n::O_TMPFILE == n::O_TMPFILE && !only_names {
        return changes::open_nameless(directory, path, flags, mode).map(Some);
    }
    if flags & (n::O_CREAT | n::O_TRUNC) != 0 && !only_names {
        return Ok(match changes::open(directory, path, flags, mode)? {
            Opened::Made(descriptor) => Some(descriptor),
            Opened::AsItIs => None,
        });
    }
    Ok(match overlay::whom_to_ask(directory, path, length, flags & n::O_NOFOLLOW == 0)? {
        Answer::Kernel => None,
        Answer::Made(file) => Some(overlay::descriptor(file, flags)?),
    })
}

fn install(descriptor: Descriptor) -> Outcome {
    match TABLE.get().add(descriptor, 0) {
        Some(number) => Outcome::Return(number as isize),
        None => {
            let _ = files::close(descriptor.real);
            Outcome::End(ended::DESCRIPTOR)
        }
    }
}

fn open_device(path: usize, _: u32) -> Outcome {
    const NULL: &[u8] = b"/dev/null\0";
    if starts_with(path, NULL) { install(Descriptor::sink()) } else { UNKNOWN }
}

/// Opens a file or directory for reading, whatever the program wants to do with it.
/// `looked_up` is told how long the name took, ns.
fn open_for_real(
    base: i32,
    path: usize,
    flags: u32,
    looked_up: impl FnOnce(u64),
) -> Result<Descriptor, Outcome> {
    let changes = flags & (n::O_WRONLY | n::O_RDWR) != 0;
    // Look before opening: opening a device can have effects.
    // SAFETY: all zeros is a value of `stat`.
    let mut stat: Stat = unsafe { core::mem::zeroed() };
    let follow = if flags & n::O_NOFOLLOW != 0 { n::AT_SYMLINK_NOFOLLOW } else { 0 };
    let began = monotonic_ns();
    // SAFETY: `stat` is ours.
    let found = unsafe { files::stat_at_address(base, path, &raw mut stat as usize, follow) };
    looked_up(monotonic_ns().saturating_sub(began));
    found.map_err(Outcome::from)?;
    let kind = stat.st_mode & n::S_IFMT;
    let directory = match kind {
        n::S_IFDIR if changes => return Err(Errno::EISDIR.into()),
        n::S_IFDIR => n::O_DIRECTORY,
        n::S_IFREG if flags & n::O_DIRECTORY != 0 => return Err(Errno::ENOTDIR.into()),
        n::S_IFREG => 0,
        n::S_IFLNK => return Err(Errno::ELOOP.into()),
        _ => return Err(UNKNOWN),
    };
    let real = match open_quietly(base, path, directory) {
        Ok(real) => real,
        // Not readable for us, but the program only wants to write.
        Err(Errno::EACCES) if flags & n::O_WRONLY != 0 => return Ok(Descriptor::sink()),
        Err(e) => return Err(e.into()),
    };
    if is_pseudo(real, stat.st_dev) {
        let _ = files::close(real);
        return Err(UNKNOWN);
    }
    let mut descriptor = Descriptor::new(real, &stat);
    if flags & n::O_WRONLY == 0 {
        ask_whole(&descriptor);
    }
    if flags & n::O_APPEND != 0 {
        (descriptor.position, descriptor.appends) = (stat.st_size, true);
    }
    Ok(descriptor)
}

/// Devices (file systems) that were asked about: number, and what the file system is like.
static ASKED: Global<(Asked, usize)> = Global::new(([None; 16], 0));
type Asked = [Option<(u64, FileSystem)>; 16];

/// Whether reading the file may have effects, or answers about the reader.
fn is_pseudo(fd: i32, device: u64) -> bool {
    file_system(fd, device).is_none_or(FileSystem::is_made_up)
}

/// What the file system with this number, on which `fd` is open, is like. The program's agent wants to know
/// which of them are a server's.
pub fn file_system(fd: i32, device: u64) -> Option<FileSystem> {
    let (asked, next) = ASKED.get();
    let known = asked.iter().flatten().find(|(known, _)| *known == device && device != 0);
    let kind = match known {
        Some(&(_, kind)) => kind,
        None => {
            let kind = FileSystem::of(files::file_system_type(fd).ok()?);
            asked[*next % asked.len()] = Some((device, kind));
            *next += 1;
            kind
        }
    };
    if kind.is_fuse() {
        speculator().server.store(device, Ordering::Relaxed);
    }
    Some(kind)
}

fn list(fd: i32, out: usize, length: usize) -> Outcome {
    let table = TABLE.get();
    let (kind, real, position) = match table.get(fd) {
        None => return Outcome::End(ended::DESCRIPTOR),
        Some(Err(e)) => return e.into(),
        Some(Ok(entry)) if entry.kind == Kind::Directory && overlay::has_changed(entry) => return UNKNOWN,
        Some(Ok(entry)) => (entry.kind, entry.real, entry.position),
    };
    if kind != Kind::Directory {
        return Errno::ENOTDIR.into();
    }
    // What speculation has made and put nothing into: no program lists it to copy from it.
    if real < 0 {
        return UNKNOWN;
    }
    if position < 0 {
        // Our own descriptor goes on where the program's is.
        match table.position(fd) {
            Some(position) => {
                let _ = files::seek(real, position, n::SEEK_SET);
            }
            None => return Outcome::End(ended::DESCRIPTOR),
        }
    }
    if !room(out, length) {
        return Errno::EFAULT.into();
    }
    let a = [real as usize, out, length, 0, 0, 0];
    // SAFETY: mirror memory that is there.
    check(unsafe { syscall(n::__NR_getdents64 as usize, a) }).into()
}

fn working_directory(out: usize, length: usize) -> Outcome {
    let mut buffer = [0u8; PATH_MOST];
    let a = [
        process_directory() as usize,
        c"cwd".as_ptr() as usize,
        buffer.as_mut_ptr() as usize,
        buffer.len(),
        0,
        0,
    ];
    // What is told is the program's, and new.
    rights::copied();
    // SAFETY: our own buffer.
    match check(unsafe { syscall(n::__NR_readlinkat as usize, a) }) {
        Ok(got) if got < length && got < PATH_MOST => {
            put_bytes(out, buffer.get(..=got).unwrap_or(&[]));
            Outcome::Return(got as isize + 1)
        }
        Ok(_) => Errno::ERANGE.into(),
        Err(_) => Outcome::End(ended::DESCRIPTOR),
    }
}

fn change_directory(path: usize) -> Outcome {
    let Some(length) = path_length(path) else {
        return Errno::ENAMETOOLONG.into();
    };
    if is_off_limits(path) {
        return UNKNOWN;
    }
    match overlay::whom_to_ask(n::AT_FDCWD, path, length, true) {
        Ok(Answer::Kernel) => overlay::forget_directories(),
        Ok(Answer::Made(_)) => return UNKNOWN,
        Err(outcome) => return outcome,
    }
    match base_for(n::AT_FDCWD, path, length) {
        None => Outcome::End(ended::DESCRIPTOR),
        Some(Err(e)) => e.into(),
        Some(Ok(base)) => {
            let flags = n::O_PATH | n::O_DIRECTORY | n::O_CLOEXEC;
            rights::hold();
            // SAFETY: opens no file, only names a directory.
            match unsafe { files::open_at_address(base, path, flags, 0) } {
                Ok(directory) => {
                    TABLE.get().set_working_directory(directory);
                    Outcome::Return(0)
                }
                Err(e) => e.into(),
            }
        }
    }
}

fn change_directory_to(fd: i32) -> Outcome {
    let table = TABLE.get();
    match table.get(fd) {
        Some(Ok(entry)) if entry.kind == Kind::Directory => {
            overlay::forget_directories();
            let flags = n::O_PATH | n::O_DIRECTORY | n::O_CLOEXEC;
            match files::open_at(entry.real, c".", flags, 0) {
                Ok(directory) => {
                    table.is_shared(fd);
                    table.set_working_directory(directory);
                    Outcome::Return(0)
                }
                Err(e) => e.into(),
            }
        }
        _ => Outcome::End(ended::DESCRIPTOR),
    }
}
