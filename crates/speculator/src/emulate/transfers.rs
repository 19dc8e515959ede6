//! Reads whose bytes go to another descriptor: `copy_file_range`, `sendfile`, `splice`, and the sharing of
//! blocks that is tried before (`FICLONE`).
//!
//! Nothing is moved. What the source has is asked for as by a read; both positions go on as if all had
//! been copied. Where the kernel would refuse, it is refused here, as programs then go another way.

use super::files::{self, Logged, move_on, source_of};
use super::overlay;
use super::{Outcome, UNKNOWN, get, put};
use crate::arch::Call;
use crate::cell::Global;
use crate::descriptors::{Descriptor, Kind, TABLE};
use runahead_abi::reads::{Length, Offset, of as read_call};
use runahead_abi::session::ended;
use runahead_kernel::files::file_system_type;
use runahead_kernel::uapi::{errno, general as n};
use runahead_kernel::{Errno, process};
use runahead_policy::overlay::{Cloning, clone_of, moved, overlaps};

pub fn dispatch(call: &Call) -> Option<Outcome> {
    let a = call.arguments;
    let done = match call.number as u32 {
        n::__NR_copy_file_range if a[5] as u32 != 0 => Err(Errno::EINVAL.into()),
        n::__NR_copy_file_range => copy(call, End::at(a[0], a[1]), End::at(a[2], a[3]), a[4]),
        n::__NR_sendfile => send(call, End::at(a[1], a[2]), End::at(a[0], 0), a[3]),
        n::__NR_splice => splice(call, End::at(a[0], a[1]), End::at(a[2], a[3]), a[4]),
        _ => return None,
    };
    Some(match done {
        Ok(bytes) => Outcome::Return(bytes as isize),
        Err(outcome) => {
            if matches!(outcome, Outcome::Return(_)) {
                is_refused(call);
            }
            outcome
        }
    })
}

/// The agent counts such a call before it knows what becomes of it: so it stands in the log.
fn is_refused(call: &Call) {
    let Some(read) = read_call(call.number) else { return };
    let (Length::Bytes(length), Offset::At(offset)) = (read.length, read.offset) else { return };
    let a = call.arguments;
    let fd = read.source(&a);
    let has_position =
        matches!(TABLE.get().get(fd), Some(Ok(entry)) if matches!(entry.kind, Kind::File | Kind::Directory));
    // SAFETY: one plain word.
    let given = (a[offset] != 0).then(|| unsafe { get::<i64>(a[offset]) });
    if has_position && given.is_none_or(|offset| offset >= 0) {
        let place = given.unwrap_or_default();
        let read = Logged { length: a[length], offset: given, place, returned: 0, asked: 0, before: false };
        files::log_read(call, fd, read);
    }
}

const EOVERFLOW: Errno = Errno(errno::EOVERFLOW as i32);

/// One end of a transfer.
#[derive(Clone, Copy)]
struct End {
    fd: i32,
    /// Address of the offset; 0: the descriptor's own position.
    offset_at: usize,
}

impl End {
    fn at(fd: usize, offset_at: usize) -> End {
        End { fd: fd as i32, offset_at }
    }

    /// `negative`: what the call says to a place before the beginning.
    fn place(&self, negative: Errno) -> Result<i64, Outcome> {
        let place = match self.offset_at {
            0 => TABLE.get().position(self.fd).ok_or(Outcome::End(ended::DESCRIPTOR))?,
            // SAFETY: one plain word.
            address => unsafe { get::<i64>(address) },
        };
        if place < 0 { Err(negative.into()) } else { Ok(place) }
    }

    /// So many bytes have come from here, or gone there.
    fn moves(&self, place: i64, bytes: usize) {
        let end = place.saturating_add(bytes as i64);
        match self.offset_at {
            0 => move_on(self.fd, end),
            address => put(address, &end),
        }
    }
}

fn target_of(fd: i32) -> Result<Descriptor, Outcome> {
    match TABLE.get().get(fd) {
        None => Err(Outcome::End(ended::DESCRIPTOR)),
        Some(Err(e)) => Err(e.into()),
        Some(Ok(entry)) => Ok(*entry),
    }
}

/// What comes of a source from `place` on: it is asked for.
fn take(call: &Call, from: End, place: i64, count: usize) -> Result<usize, Outcome> {
    let entry = source_of(from.fd, place)?;
    let bytes = moved(count, entry.size, place);
    files::read_nowhere(call, &entry, from.fd, count, (from.offset_at != 0).then_some(place), place, bytes);
    Ok(bytes)
}

/// `copy_file_range`.
fn copy(call: &Call, from: End, to: End, count: usize) -> Result<usize, Outcome> {
    let source = target_of(from.fd)?;
    let target = target_of(to.fd)?;
    for kind in [source.kind, target.kind] {
        match kind {
            Kind::File => {}
            Kind::Directory => return Err(Errno::EISDIR.into()),
            _ => return Err(Outcome::End(ended::DESCRIPTOR)),
        }
    }
    if target.appends {
        return Err(Errno::EBADF.into());
    }
    if !are_on_one_file_system(&source, &target) && refuses_other_file_systems() {
        return Err(Errno::EXDEV.into());
    }
    let (place, to_place) = (from.place(EOVERFLOW)?, to.place(EOVERFLOW)?);
    if place.checked_add_unsigned(count as u64).is_none() {
        return Err(EOVERFLOW.into());
    }
    let bytes = moved(count, source_of(from.fd, place)?.size, place);
    let is_one_file = source.identity() == target.identity();
    if is_one_file && overlaps(place, to_place, bytes) {
        return Err(Errno::EINVAL.into());
    }
    let bytes = take(call, from, place, count)?;
    from.moves(place, bytes);
    to.moves(to_place, bytes);
    files::is_written(to.fd, to_place.saturating_add(bytes as i64));
    Ok(bytes)
}

/// `sendfile`.
fn send(call: &Call, from: End, to: End, count: usize) -> Result<usize, Outcome> {
    let target = target_of(to.fd)?;
    match target.kind {
        Kind::Directory => return Err(Errno::EINVAL.into()),
        Kind::File if target.appends => return Err(Errno::EINVAL.into()),
        _ => {}
    }
    let place = from.place(Errno::EINVAL)?;
    let bytes = take(call, from, place, count)?;
    from.moves(place, bytes);
    if target.kind == Kind::File {
        let to_place = to.place(Errno::EINVAL)?;
        to.moves(to_place, bytes);
        files::is_written(to.fd, to_place.saturating_add(bytes as i64));
    }
    Ok(bytes)
}

/// `splice` from a file to a pipe, of which it is taken that it is empty and as large as pipes are made.
/// What comes out of a pipe only the program can bring about.
fn splice(call: &Call, from: End, to: End, count: usize) -> Result<usize, Outcome> {
    const PIPE_BYTES: usize = 16 * runahead_kernel::PAGE;
    let source = target_of(from.fd)?;
    let target = target_of(to.fd)?;
    match (source.kind, target.kind) {
        (Kind::File, Kind::Sink) => {}
        (Kind::File, Kind::File) => return Err(Errno::EINVAL.into()),
        _ => return Err(Outcome::End(ended::WAITS)),
    }
    if to.offset_at != 0 {
        return Err(Errno::ESPIPE.into());
    }
    let place = from.place(Errno::EINVAL)?;
    // The call is compared by the length that the program has asked for.
    let entry = source_of(from.fd, place)?;
    let bytes = moved(count.min(PIPE_BYTES), entry.size, place);
    files::read_nowhere(call, &entry, from.fd, count, (from.offset_at != 0).then_some(place), place, bytes);
    from.moves(place, bytes);
    Ok(bytes)
}

/// FICLONE and its like, to `to`.
pub fn share_blocks(to: i32, from: i32) -> Outcome {
    let (source, target) = match (target_of(from), target_of(to)) {
        (Ok(source), Ok(target)) => (source, target),
        (Err(outcome), _) | (_, Err(outcome)) => return outcome,
    };
    if source.kind != Kind::File || target.kind != Kind::File {
        return UNKNOWN;
    }
    // What has no descriptor of ours is on the other's file system, or refused anyway.
    let some = if source.real >= 0 { source.real } else { target.real };
    let kind = if some >= 0 { file_system_type(some) } else { Err(Errno::EBADF) };
    let is_same = are_on_one_file_system(&source, &target);
    match kind.map(|kind| clone_of(is_same, kind)) {
        Ok(Cloning::Refuses) => Errno::EOPNOTSUPP.into(),
        Ok(Cloning::Apart) => Errno::EXDEV.into(),
        _ => UNKNOWN,
    }
}

/// By device; an overlay gives its files devices of other file systems, so by mount as well.
fn are_on_one_file_system(one: &Descriptor, other: &Descriptor) -> bool {
    one.device == other.device || mount_of(one).is_some_and(|mount| Some(mount) == mount_of(other))
}

fn mount_of(entry: &Descriptor) -> Option<u64> {
    match overlay::table().file(entry.made) {
        Some(file) => Some(file.mount),
        None if entry.real >= 0 => overlay::mount_of(entry.real),
        None => None,
    }
}

/// Before Linux 5.19 it copied from one file system to another.
fn refuses_other_file_systems() -> bool {
    static RELEASE: Global<(u32, u32)> = Global::new((0, 0));
    let release = RELEASE.get();
    if *release == (0, 0) {
        *release = process::kernel_release();
    }
    *release >= (5, 19)
}
