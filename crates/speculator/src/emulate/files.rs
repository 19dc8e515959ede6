//! Descriptors: reads, writes, positions.

use super::overlay::{self, Question};
use super::{Outcome, UNKNOWN, attributes, get, put, room, transfers};
use crate::arch::Call;
use crate::aside::read_cached;
use crate::cell::Global;
use crate::descriptors::{Descriptor, Kind, TABLE};
use crate::ledger;
use crate::missing;
use crate::together::TOGETHER;
use crate::{run, shared};
use core::sync::atomic::Ordering;
use runahead_abi::log::{Prediction, kind, mark};
use runahead_abi::session::ended;
use runahead_kernel::files::{self, IoVec};
use runahead_kernel::uapi::{general as n, ioctl as c};
use runahead_kernel::{Errno, PAGE};
use runahead_policy::overlay::{File, moved};
use runahead_policy::scattered::{self, Advice, Neighbourhoods};
use runahead_policy::windows::Windows;

/// The most memory pieces of a vectored call; more end the speculation.
const PIECES: usize = 64;

/// The kernel silently truncates a longer request.
const CHUNK: u64 = 128 * 1024;

/// Bytes of one read beyond which nothing more is asked for: a long sequential read is the kernel's
/// read-ahead's business once it has begun.
const HINT_MOST: u64 = 2 << 20;

/// Files up to this size are asked for whole, when they are opened and when the program waits for a part of
/// them: programs that decide by a file's head what to read next (linkers, archivers) end speculation on a
/// blind head, and the rest of the file is what comes next; and programs that compute between opening and
/// reading (agrep) give the disk that time. Asking at the first read instead cost agrep a quarter. With 256 KB GNU ld over 490 objects of 284 KB on average kept 1793 stalls.
pub const WHOLE_FILE: i64 = 1024 * 1024;

pub fn dispatch(call: &Call) -> Option<Outcome> {
    let a = call.arguments;
    let fd = a[0] as i32;
    Some(match call.number as u32 {
        n::__NR_read => read(call, fd, Pieces::one(a[1], a[2]), None),
        n::__NR_pread64 => read(call, fd, Pieces::one(a[1], a[2]), Some(a[3] as i64)),
        n::__NR_readv => match Pieces::copy(a[1], a[2]) {
            Some(pieces) => read(call, fd, pieces, None),
            None => UNKNOWN,
        },
        n::__NR_preadv | n::__NR_preadv2 => match Pieces::copy(a[1], a[2]) {
            Some(pieces) => {
                let here = call.number as u32 == n::__NR_preadv2 && a[3] as i64 == -1;
                read(call, fd, pieces, (!here).then_some(a[3] as i64))
            }
            None => UNKNOWN,
        },
        n::__NR_write => write(fd, a[2], None),
        n::__NR_pwrite64 => write(fd, a[2], Some(a[3] as i64)),
        n::__NR_writev | n::__NR_pwritev => match Pieces::copy(a[1], a[2]) {
            Some(pieces) => {
                let given = call.number as u32 == n::__NR_pwritev;
                write(fd, pieces.bytes(), given.then_some(a[3] as i64))
            }
            None => UNKNOWN,
        },
        n::__NR_lseek => seek(fd, a[1] as i64, a[2] as u32),
        n::__NR_close => match TABLE.get().close(fd) {
            // The program has closed it since.
            Err(Errno::EBADF) if run::is_late() => Outcome::Return(0),
            Ok(()) => Outcome::Return(0),
            Err(e) => e.into(),
        },
        n::__NR_dup => duplicate(fd, 0, None),
        n::__NR_dup2 | n::__NR_dup3 => duplicate(fd, 0, Some(a[1])),
        n::__NR_fcntl => control(fd, a[1] as u32, a[2]),
        n::__NR_fstat => status(fd, a[1]),
        n::__NR_fadvise64
        | n::__NR_readahead
        | n::__NR_fsync
        | n::__NR_fdatasync
        | n::__NR_sync_file_range
        | n::__NR_flock => Outcome::Return(0),
        n::__NR_ftruncate => resize(fd, Resize::To(a[1] as i64)),
        n::__NR_fallocate => match a[1] as u32 {
            0 => resize(fd, Resize::AtLeast((a[2] as i64).saturating_add(a[3] as i64))),
            _ => resize(fd, Resize::Not),
        },
        n::__NR_ioctl => input_output_control(fd, a[1] as u32, a[2]),
        _ => return None,
    })
}

/// Whether a call reads or seeks, and leaves descriptors as they are.
pub fn is_read(number: usize) -> bool {
    number as u32 == n::__NR_lseek || runahead_abi::reads::of(number).is_some()
}

/// The program waits for a small file: the rest of it comes next, whether speculation gets that far or not.
pub fn ask_whole_of_stalled(fd: i32) {
    if let Some(Ok(entry)) = TABLE.get().get(fd) {
        ask_whole(entry);
    }
}

/// The memory of a vectored call.
struct Pieces {
    pieces: [IoVec; PIECES],
    count: usize,
}

impl Pieces {
    fn one(base: usize, length: usize) -> Pieces {
        let mut pieces = [IoVec { base: 0, length: 0 }; PIECES];
        pieces[0] = IoVec { base, length };
        Pieces { pieces, count: 1 }
    }

    fn copy(address: usize, count: usize) -> Option<Pieces> {
        if count > PIECES {
            return None;
        }
        let mut pieces = [IoVec { base: 0, length: 0 }; PIECES];
        for (index, piece) in pieces.iter_mut().enumerate().take(count) {
            // SAFETY: two plain words.
            *piece = unsafe { get::<IoVec>(address + index * size_of::<IoVec>()) };
        }
        Some(Pieces { pieces, count })
    }

    fn bytes(&self) -> usize {
        self.as_slice().iter().fold(0usize, |sum, piece| sum.saturating_add(piece.length))
    }

    /// How many of the bytes from `place` on a file of `size` bytes has for a call over this memory.
    fn returned(&self, size: i64, place: i64) -> usize {
        moved(self.bytes(), size, place)
    }

    fn as_slice(&self) -> &[IoVec] {
        self.pieces.get(..self.count).unwrap_or(&[])
    }

    /// Blank lines for memory that holds nothing yet and gets nothing. What an earlier read left there is the
    /// better guess at what comes (it is of the same kind), but zeros make programs that search text take the
    /// file for binary and leave it: ripgrep then mispredicted every file.
    fn fill_if_empty(&self, mut bytes: usize) {
        const LINE: usize = 64;
        for piece in self.as_slice() {
            let length = piece.length.min(bytes);
            bytes -= length;
            if length == 0 {
                continue; // its address may be anything
            }
            // SAFETY: mirror memory that is present.
            let target = unsafe { core::slice::from_raw_parts_mut(piece.base as *mut u8, length) };
            if target.first() == Some(&0) {
                target.fill(b' ');
                target.iter_mut().skip(LINE - 1).step_by(LINE).for_each(|byte| *byte = b'\n');
            }
        }
    }

    /// A newline as the last of `bytes` bytes: where a file ends that is not there yet, for files of text end
    /// so. Programs that read by lines ask once more for a line that has no end; ripgrep mispredicted one in
    /// forty files for that.
    fn end_line(&self, bytes: usize) {
        let Some(mut last) = bytes.checked_sub(1) else { return };
        for piece in self.as_slice() {
            if last < piece.length {
                // SAFETY: mirror memory that is present.
                unsafe { ((piece.base + last) as *mut u8).write(b'\n') };
                return;
            }
            last -= piece.length;
        }
    }

    /// Makes the first `bytes` bytes of the memory present.
    fn room(&self, mut bytes: usize) -> bool {
        self.as_slice().iter().all(|piece| {
            let length = piece.length.min(bytes);
            bytes -= length;
            room(piece.base, length)
        })
    }
}

/// A read at `offset`, or at the descriptor's position.
fn read(call: &Call, fd: i32, pieces: Pieces, offset: Option<i64>) -> Outcome {
    let table = TABLE.get();
    match table.get(fd) {
        None => return Outcome::End(ended::DESCRIPTOR),
        Some(Err(e)) => return e.into(),
        Some(Ok(entry)) if entry.kind == Kind::Directory => return Errno::EISDIR.into(),
        Some(Ok(entry)) if entry.kind != Kind::File => return Outcome::End(ended::WAITS),
        Some(Ok(_)) => {}
    }
    let length = pieces.bytes();
    let place = match offset {
        Some(offset) if offset < 0 => return Errno::EINVAL.into(),
        Some(offset) => offset,
        None => match table.position(fd) {
            Some(position) => position,
            None => return Outcome::End(ended::DESCRIPTOR),
        },
    };
    let entry = match source_of(fd, place) {
        Ok(entry) => entry,
        Err(outcome) => return outcome,
    };
    let returned = pieces.returned(entry.size, place);
    if let Some(Ok(entry)) = table.get(fd) {
        advise(entry, place, returned);
    }
    let mut windows = entry.windows;
    let Taken { asked, before, missed } = hold(&entry, &pieces, place, returned)
        .unwrap_or_else(|| take(&entry, &pieces, place, returned, &mut windows));
    TOGETHER.get().found(missed);
    if let Some(Ok(entry)) = table.get(fd) {
        entry.tells |= missed;
        entry.windows = windows;
        if offset.is_none() {
            entry.position = place.saturating_add(returned as i64);
        }
    }
    count_read(call, fd, Logged { length, offset, place, returned, asked, before });
    Outcome::Return(returned as isize)
}

/// The file of `fd`, of which speculation is to read from `place` on. Ends where it has written there: what
/// it would read back is kept nowhere.
pub fn source_of(fd: i32, place: i64) -> Result<Descriptor, Outcome> {
    let table = TABLE.get();
    let entry = match table.get(fd) {
        None => return Err(Outcome::End(ended::DESCRIPTOR)),
        Some(Err(e)) => return Err(e.into()),
        Some(Ok(entry)) => *entry,
    };
    if let Some(file) = overlay::table().file(entry.made) {
        let size = file.size;
        return if size <= place { Ok(Descriptor { size: 0, ..entry }) } else { Err(WRITTEN) };
    }
    if entry.kind != Kind::File || entry.written || table.was_written(entry.device, entry.inode) {
        return Err(WRITTEN);
    }
    Ok(entry)
}

const WRITTEN: Outcome = Outcome::End(ended::DESCRIPTOR);

/// A read of `bytes` bytes at `place` that go to another descriptor, of `count` that were asked for;
/// `offset`: as the program has given it.
pub fn read_nowhere(
    call: &Call,
    entry: &Descriptor,
    fd: i32,
    count: usize,
    offset: Option<i64>,
    place: i64,
    bytes: usize,
) {
    let (mut asked, mut before) = (0, false);
    if bytes > 0 && entry.real >= 0 {
        let (first, length) = (place as u64, bytes as u64);
        let looked = length.min(hint_most());
        // Who may not be told asks for what may be there.
        let cached = files::cached_pages(entry.real, first, looked).unwrap_or(0);
        if cached < u64::from(pages(first, looked)) {
            let end = end_of_request(entry, first + length);
            ask(entry.real, first, end - first);
            asked = asked_for(entry, first, end - first);
        } else {
            before = found_cached(entry, first, looked);
        }
    }
    count_read(call, fd, Logged { length: count, offset, place, returned: bytes, asked, before });
}

/// A read as the log has it.
#[derive(Clone, Copy)]
pub struct Logged {
    /// Bytes that were asked for.
    pub length: usize,
    /// As the program has given it.
    pub offset: Option<i64>,
    /// Where it begins in the file.
    pub place: i64,
    pub returned: usize,
    /// Pages that were asked for because of it.
    pub asked: u32,
    /// What is there was asked for before.
    pub before: bool,
}

/// Counts a read, and writes it to the log.
fn count_read(call: &Call, fd: i32, read: Logged) {
    let counts = &shared::speculator().counts;
    shared::count(&counts.reads, 1);
    shared::count(&counts.read_bytes, read.returned as u64);
    if read.asked > 0 && !run::is_programs_own() {
        shared::count(&counts.prefetches, 1);
    }
    log_read(call, fd, read);
}

/// Writes a read to the log, where the agent sees it too.
pub fn log_read(call: &Call, fd: i32, read: Logged) {
    if !call.through_stub {
        return;
    }
    let Logged { length, offset, place, returned, asked, before } = read;
    let mut marks = 0;
    if asked > 0 || before {
        marks |= mark::PREFETCHED;
        if let Some(Ok(entry)) = TABLE.get().get(fd)
            && entry.alone.waits(place, returned as i64)
        {
            marks |= mark::SPARES;
        }
    }
    run::log(&Prediction {
        file: TABLE.get().file_mark(fd),
        kind: if offset.is_some() { kind::READ_AT } else { kind::READ },
        marks,
        subject: fd,
        detail: length as u64,
        place: offset.map_or(returned as u64, |offset| offset as u64),
    });
}

/// What was read lately of files that are not asked for whole.
static NEIGHBOURHOODS: Global<Neighbourhoods> = Global::new(Neighbourhoods::new());

/// Tells the kernel how far to read ahead of a read of `bytes` bytes at `place`. Small files are asked for whole
/// anyway.
fn advise(entry: &mut Descriptor, place: i64, bytes: usize) {
    if entry.size <= WHOLE_FILE {
        return;
    }
    let waits = &shared::agent().counts;
    let slow =
        scattered::is_slow(waits.stalls.load(Ordering::Relaxed), waits.stall_ns.load(Ordering::Relaxed));
    // On other disks nothing is kept of it: where ld jumps about that took a tenth of its time.
    let may = slow && {
        let neighbourhoods = NEIGHBOURHOODS.get();
        neighbourhoods.read(entry.identity(), place as u64, bytes as u64);
        neighbourhoods.are_sparse()
    };
    let advice = match entry.scattered.read(place as u64, bytes as u64, may) {
        Some(Advice::Random) => n::POSIX_FADV_RANDOM,
        Some(Advice::Normal) => n::POSIX_FADV_NORMAL,
        None => return,
    };
    let _ = files::fadvise(entry.real, 0, 0, advice);
}

/// What became of a read.
#[derive(Clone, Copy, Default)]
struct Taken {
    /// Pages asked for.
    asked: u32,
    /// What is there was asked for when the file was opened.
    before: bool,
    /// Nothing was there, and the file's system said so.
    missed: bool,
}

/// Leaves a read of a large file of which nothing is cached to be started with others; None: it is to be done at once.
fn hold(entry: &Descriptor, pieces: &Pieces, place: i64, bytes: usize) -> Option<Taken> {
    let fits = entry.tells && entry.size > WHOLE_FILE && bytes > 0 && bytes as u64 <= CHUNK;
    if !fits || run::is_programs_own() || !pieces.room(bytes) {
        return None;
    }
    let first = place as u64;
    if !TOGETHER.get().holds(entry.real, first, bytes) {
        return None;
    }
    pieces.fill_if_empty(bytes);
    if place + bytes as i64 == entry.size {
        pieces.end_line(bytes);
    }
    Some(Taken { asked: asked_for(entry, first, bytes as u64), before: false, missed: true })
}

/// Reads `bytes` bytes at `place` as far as they are cached and asks for the rest. Where nothing is cached the
/// program's memory stays as it is. `windows`: what was asked for of the file where its system does not tell.
fn take(entry: &Descriptor, pieces: &Pieces, place: i64, bytes: usize, windows: &mut Windows) -> Taken {
    if bytes == 0 || !pieces.room(bytes) {
        return Taken::default();
    }
    let first = place as u64;
    let got = match may_have_come(entry, first) {
        // SAFETY: mirror memory that is present.
        true => unsafe { read_cached(entry.real, pieces.as_slice(), first, entry.size as u64) },
        // SAFETY: as above.
        false => unsafe { missing::read(entry.real, pieces.as_slice(), first) },
    };
    let there = match got {
        Ok(got) => (got as u64).min(bytes as u64),
        Err(error @ (Errno::EAGAIN | Errno::EOPNOTSUPP)) => {
            pieces.fill_if_empty(bytes);
            if place + bytes as i64 == entry.size {
                pieces.end_line(bytes);
            }
            let missed = error == Errno::EAGAIN;
            let end = end_of_request(entry, first + bytes as u64);
            // The miss has started a read of the size of the request, up to the kernel's read-ahead window;
            // but not where the file system does not tell what is a miss.
            let (from, started, end) = if missed {
                (first, first + CHUNK.min(bytes as u64), end)
            } else {
                let Some((from, to)) = windows.read(first, bytes as u64) else {
                    return Taken { asked: 0, before: true, missed };
                };
                (from, from, to.min(entry.size as u64).max(end))
            };
            ask(entry.real, started, end.saturating_sub(started));
            return Taken { asked: asked_for(entry, from, end - from), before: false, missed };
        }
        Err(_) => return Taken::default(),
    };
    windows.hits(first, there);
    let before = there > 0 && found_cached(entry, first, there);
    let rest = bytes as u64 - there;
    if rest == 0 {
        return Taken { before, ..Taken::default() };
    }
    ask(entry.real, first + there, rest);
    Taken { asked: asked_for(entry, first + there, rest), before, missed: false }
}

/// Whether what is at `place` may be cached, so that it is worth a question where the file system does
/// not tell. A small file that speculation has opened is taken for one that nobody has read.
fn may_have_come(entry: &Descriptor, place: u64) -> bool {
    let asked = || ledger::ledger().was_asked_for(entry.identity(), place / PAGE as u64, run::now());
    !entry.speculative || entry.size > WHOLE_FILE || asked()
}

/// Up to where a request that ends at `end` is worth extending: to the end of a small file.
fn end_of_request(entry: &Descriptor, end: u64) -> u64 {
    if entry.size <= WHOLE_FILE { end.max(entry.size as u64) } else { end }
}

/// Books what was asked for; returns the number of pages.
fn asked_for(entry: &Descriptor, place: u64, bytes: u64) -> u32 {
    book(entry.device, entry.identity(), place, bytes)
}

/// Enters that bytes were found in the cache. Whether some of them had been asked for when the file was
/// opened.
fn found_cached(entry: &Descriptor, place: u64, bytes: u64) -> bool {
    let (identity, now) = (entry.identity(), run::now());
    let (first, count) = (place / PAGE as u64, pages(place, bytes));
    ledger::with(|ledger, depth| ledger.found(depth, identity, first, count, now))
}

fn book(device: u64, identity: u64, place: u64, bytes: u64) -> u32 {
    let count = pages(place, bytes.min(hint_most()));
    if run::is_programs_own() {
        return count;
    }
    let now = run::now();
    let entered =
        ledger::with(|ledger, depth| ledger.enter(depth, identity, place / PAGE as u64, count, now));
    shared::count(&shared::speculator().counts.prefetched_pages, u64::from(entered));
    run::asked(device, count);
    count
}

/// Asks for `bytes` bytes at `place` of a file of `device`, where speculation has touched what it maps of it.
pub fn ask_for_touched(real: i32, device: u64, identity: u64, place: u64, bytes: u64) {
    ask(real, place, bytes);
    book(device, identity, place, bytes);
}

/// Logs a mapping of `bytes` bytes at `place`, of `length` that were wanted. What is not cached is asked for
/// where it is touched: the log says that it will have been.
pub fn log_mapping(call: &Call, entry: &Descriptor, length: usize, place: i64, bytes: usize) {
    let (fd, offset) = (call.arguments[4] as i32, Some(place));
    if bytes == 0 {
        return log_read(call, fd, Logged { length, offset, place, returned: 0, asked: 0, before: false });
    }
    let (first, looked) = (place as u64, bytes as u64);
    let is_missing = entry.real >= 0
        && files::cached_pages(entry.real, first, looked).unwrap_or(0) < u64::from(pages(first, looked));
    let before = is_missing || found_cached(entry, first, looked);
    log_read(call, fd, Logged { length, offset, place, returned: bytes, asked: 0, before });
}

fn pages(place: u64, bytes: u64) -> u32 {
    let first = place / PAGE as u64;
    ((place + bytes).div_ceil(PAGE as u64) - first) as u32
}

/// Bytes that one operation asks for at most.
fn hint_most() -> u64 {
    HINT_MOST.min(u64::from(run::allowed().requests).saturating_mul(CHUNK))
}

/// Asks the disk for a range, in pieces that the kernel does not truncate.
fn ask(fd: i32, place: u64, bytes: u64) {
    let end = place + bytes.min(hint_most());
    let mut at = place;
    while at < end {
        let length = CHUNK.min(end - at);
        let _ = files::readahead(fd, at, length);
        at += length;
    }
}

/// Asks for all of a small file, unless it is there.
pub fn ask_whole(entry: &Descriptor) {
    if entry.kind != Kind::File || entry.real < 0 || entry.size == 0 || entry.size > WHOLE_FILE {
        return;
    }
    let wanted = pages(0, entry.size as u64);
    // Who may not be told (CVE-2025-21691), or cannot, asks for what may be there.
    let cached = files::cached_pages(entry.real, 0, entry.size as u64).unwrap_or(0);
    if cached < u64::from(wanted) {
        ask(entry.real, 0, entry.size as u64);
        if !run::is_programs_own() {
            shared::count(&shared::speculator().counts.prefetches, 1);
        }
        let count = asked_for(entry, 0, entry.size as u64);
        if !run::is_programs_own() {
            ledger::with(|ledger, _| ledger.unread(count));
        }
    }
}

/// What is written vanishes; a file that only speculation has is as long then as it would be.
fn write(fd: i32, bytes: usize, offset: Option<i64>) -> Outcome {
    let entry = match TABLE.get().get(fd) {
        None => return Outcome::End(ended::DESCRIPTOR),
        Some(Err(e)) => return e.into(),
        Some(Ok(entry)) => entry,
    };
    let made = file_of(entry);
    let place = match (offset, &made) {
        (_, Some(file)) if entry.appends => file.size,
        (Some(offset), _) => offset,
        _ => entry.position,
    };
    entry.written = true;
    if place >= 0 {
        let end = place.saturating_add(bytes as i64);
        if let Some(file) = made {
            file.reaches(end);
        }
        if offset.is_none() {
            entry.position = end;
        }
    }
    Outcome::Return(bytes as isize)
}

/// Something was copied to a file, up to `end`.
pub fn is_written(fd: i32, end: i64) {
    if let Some(Ok(entry)) = TABLE.get().get(fd) {
        entry.written = true;
        if let Some(file) = file_of(entry) {
            file.reaches(end);
        }
    }
}

/// What speculation says of a file that it writes to.
fn file_of(entry: &Descriptor) -> Option<&'static mut File> {
    match entry.kind {
        _ if !entry.made.is_none() => overlay::table().file_mut(entry.made),
        Kind::File if entry.real >= 0 => overlay::change_real(entry.real),
        _ => None,
    }
}

/// The descriptor's position is there from now on.
pub fn move_on(fd: i32, position: i64) {
    if let Some(Ok(entry)) = TABLE.get().get(fd) {
        entry.position = position;
    }
}

/// How the size of a file is set.
enum Resize {
    To(i64),
    AtLeast(i64),
    Not,
}

fn resize(fd: i32, size: Resize) -> Outcome {
    let entry = match TABLE.get().get(fd) {
        None => return Outcome::End(ended::DESCRIPTOR),
        Some(Err(e)) => return e.into(),
        Some(Ok(entry)) => entry,
    };
    entry.written = true;
    if let Some(file) = file_of(entry) {
        match size {
            Resize::To(size @ 0..) => file.size = size,
            Resize::To(_) => return Errno::EINVAL.into(),
            Resize::AtLeast(size) => file.reaches(size),
            Resize::Not => {}
        }
    }
    Outcome::Return(0)
}

fn seek(fd: i32, offset: i64, whence: u32) -> Outcome {
    let table = TABLE.get();
    let (kind, size, real) = match table.get(fd) {
        None => return Outcome::End(ended::DESCRIPTOR),
        Some(Err(e)) => return e.into(),
        Some(Ok(entry)) => {
            let made = overlay::table().file(entry.made);
            let said = made.or_else(|| overlay::said_of(entry.device, entry.inode));
            (entry.kind, said.map_or(entry.size, |file| file.size), entry.real)
        }
    };
    match kind {
        _ if real < 0 && whence > n::SEEK_END => return UNKNOWN,
        Kind::File => {}
        Kind::Directory if real < 0 => return UNKNOWN,
        // A listing's position is our own descriptor's.
        Kind::Directory => return files::seek(real, offset, whence).map(|at| at as usize).into(),
        _ => return Errno::ESPIPE.into(),
    }
    let base = match whence {
        n::SEEK_SET => 0,
        n::SEEK_END => size,
        n::SEEK_CUR => match table.position(fd) {
            Some(position) => position,
            None => return Outcome::End(ended::DESCRIPTOR),
        },
        // Where holes are our own descriptor knows.
        _ => {
            let found = files::seek(real, offset, whence);
            if let Ok(place) = found {
                move_on(fd, place);
            }
            return found.map(|at| at as usize).into();
        }
    };
    let Some(position) = base.checked_add(offset).filter(|&p| p >= 0) else {
        return Errno::EINVAL.into();
    };
    if let Some(Ok(entry)) = table.get(fd) {
        entry.position = position;
    }
    Outcome::Return(position as isize)
}

fn duplicate(fd: i32, lowest: usize, target: Option<usize>) -> Outcome {
    let table = TABLE.get();
    let entry = match table.get(fd) {
        None => return Outcome::End(ended::DESCRIPTOR),
        Some(Err(e)) => return e.into(),
        Some(Ok(entry)) => *entry,
    };
    if target == Some(fd as usize) {
        return Outcome::Return(fd as isize);
    }
    let mut copy = entry;
    if entry.kind == Kind::File {
        copy.position = table.position(fd).unwrap_or(0);
    }
    if entry.real >= 0 {
        match duplicate_real(entry.real) {
            Ok(real) => copy.real = real,
            Err(_) => return Outcome::End(ended::DESCRIPTOR),
        }
        table.is_shared(fd);
    }
    let number = match target {
        Some(target) => table.put(target, copy),
        None => table.add(copy, lowest),
    };
    match number {
        Some(number) => Outcome::Return(number as isize),
        None => Outcome::End(ended::DESCRIPTOR),
    }
}

pub fn duplicate_real(fd: i32) -> runahead_kernel::Result<i32> {
    let a = [fd as usize, n::F_DUPFD_CLOEXEC as usize, 0, 0, 0, 0];
    // SAFETY: makes a descriptor, touches no memory.
    let returned = unsafe { runahead_kernel::arch::syscall(n::__NR_fcntl as usize, a) };
    runahead_kernel::check(returned).map(|fd| fd as i32)
}

fn control(fd: i32, command: u32, argument: usize) -> Outcome {
    match command {
        n::F_DUPFD | n::F_DUPFD_CLOEXEC => duplicate(fd, argument, None),
        n::F_GETFD => Outcome::Return(n::FD_CLOEXEC as isize),
        n::F_SETFD | n::F_SETFL => Outcome::Return(0),
        n::F_GETFL => Outcome::Return((n::O_RDWR | n::O_LARGEFILE) as isize),
        // Locks are granted in speculation; nobody sees them.
        n::F_SETLK | n::F_SETLKW | F_OFD_SETLK | F_OFD_SETLKW => Outcome::Return(0),
        n::F_GETLK | F_OFD_GETLK => {
            const UNLOCKED: i16 = n::F_UNLCK as i16;
            put(argument, &UNLOCKED);
            Outcome::Return(0)
        }
        _ => UNKNOWN,
    }
}

const F_OFD_GETLK: u32 = 36;
const F_OFD_SETLK: u32 = 37;
const F_OFD_SETLKW: u32 = 38;

fn status(fd: i32, out: usize) -> Outcome {
    let table = TABLE.get();
    match table.get(fd) {
        None => Outcome::End(ended::DESCRIPTOR),
        Some(Err(e)) => e.into(),
        Some(Ok(entry)) if !entry.made.is_none() => {
            let made = entry.made;
            overlay::answer(Question::Status(out), made)
        }
        Some(Ok(entry)) if entry.real >= 0 => match files::fstat(entry.real) {
            Ok(stat) => {
                put(out, &stat);
                Question::Status(out).corrects();
                Outcome::Return(0)
            }
            Err(e) => e.into(),
        },
        // A pipe or terminal: programs ask for its kind to choose their buffering.
        Some(Ok(_)) => {
            let path = runahead_kernel::text::Text::<32>::new().push(b"fd/").push_number(fd as u64);
            match files::stat_at(crate::descriptors::process_directory(), path.as_c_str(), 0) {
                Ok(stat) => {
                    put(out, &stat);
                    Outcome::Return(0)
                }
                Err(_) => Outcome::End(ended::DESCRIPTOR),
            }
        }
    }
}

fn input_output_control(fd: i32, request: u32, argument: usize) -> Outcome {
    let (kind, no_terminal, size) = match TABLE.get().get(fd) {
        None => return Outcome::End(ended::DESCRIPTOR),
        Some(Err(e)) => return e.into(),
        Some(Ok(entry)) => (entry.kind, !entry.may_be_terminal, entry.size),
    };
    let regular = kind != Kind::Sink;
    const ENOTTY: Errno = Errno(25);
    match request {
        // "Is this a terminal?", "how wide is it?": of a file or a pipe, never.
        c::TCGETS | c::TIOCGWINSZ | c::TIOCGPGRP if no_terminal => ENOTTY.into(),
        // How much is there to be read.
        c::FIONREAD if kind == Kind::File => {
            let Some(position) = TABLE.get().position(fd) else { return Outcome::End(ended::DESCRIPTOR) };
            // As the kernel cuts it.
            put(argument, &(size.saturating_sub(position) as i32));
            Outcome::Return(0)
        }
        c::FS_IOC_GETFLAGS if matches!(kind, Kind::File | Kind::Directory) => attributes::flags(fd, argument),
        c::FIONBIO => Outcome::Return(0),
        c::FICLONE if regular => transfers::share_blocks(fd, argument as i32),
        // The source's descriptor is the first word.
        // SAFETY: one plain word.
        c::FICLONERANGE if regular => transfers::share_blocks(fd, unsafe { get::<i64>(argument) } as i32),
        c::FIOCLEX | c::FIONCLEX => Outcome::Return(0),
        _ => UNKNOWN,
    }
}
