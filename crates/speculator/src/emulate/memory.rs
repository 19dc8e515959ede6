//! Memory calls act on the mirror.
//!
//! What speculation maps comes from two arenas, which the next sync empties in one call each: zero
//! pages from one, pages of files from the other, filled when they are touched with what is cached
//! (and zeros, and a prefetch, where it is not). Giving memory back is mostly ignored: nobody runs long
//! enough to miss it.

use super::{Outcome, UNKNOWN};
use crate::absent::{ABSENT, Area};
use crate::arch::Call;
use crate::aside::read_cached;
use crate::cell::Global;
use crate::descriptors::{Kind, TABLE};
use crate::late;
use crate::layout::{ANONYMOUS_ARENA, ANONYMOUS_ARENA_BYTES, BOUNCE, FILE_ARENA, FILE_ARENA_BYTES};
use crate::mirror::{MIRROR, NoPage};
use crate::run::{self, RUN};
use runahead_abi::reads::LARGE_MAPPING;
use runahead_abi::reads::maps_small_file;
use runahead_abi::session::ended;
use runahead_kernel::files::{self, IoVec};
use runahead_kernel::memory::{self, PROT_EXEC, PROT_READ, PROT_WRITE};
use runahead_kernel::uapi::general as n;
use runahead_kernel::{Errno, PAGE, Result};

/// Files that one speculation may have mapped at a time.
const FILE_MAPPINGS: usize = 256;

/// Bytes of a mapped file that a touch reads or asks for: the kernel's own fault-around is 64 KB. After
/// `MADV_RANDOM` it is a page.
const AROUND: usize = 64 * 1024;

#[derive(Clone, Copy)]
struct FileMapping {
    start: usize,
    end: usize,
    real: i32,
    /// Offset in the file of `start`, bytes.
    offset: u64,
    /// Bytes of the file, when it was mapped.
    size: u64,
    device: u64,
    identity: u64,
    /// Of which a touch asks for a page only.
    random: bool,
    /// The program waits in this very call, and for what it touches of it.
    programs_own: bool,
}

impl FileMapping {
    /// Zero pages.
    const fn none(start: usize, end: usize) -> FileMapping {
        FileMapping {
            start,
            end,
            real: -1,
            offset: 0,
            size: 0,
            device: 0,
            identity: 0,
            random: false,
            programs_own: false,
        }
    }
}

struct Arenas {
    anonymous_next: usize,
    file_next: usize,
    /// Where the arenas end.
    anonymous_end: usize,
    file_end: usize,
    mappings: [FileMapping; FILE_MAPPINGS],
    mapping_count: usize,
    /// The present break; grows into the anonymous arena's spirit but at the program's address.
    break_now: usize,
    break_mapped: usize,
}

static ARENAS: Global<Arenas> = Global::new(Arenas {
    anonymous_next: ANONYMOUS_ARENA,
    file_next: FILE_ARENA,
    anonymous_end: ANONYMOUS_ARENA,
    file_end: FILE_ARENA,
    mappings: [FileMapping::none(0, 0); FILE_MAPPINGS],
    mapping_count: 0,
    break_now: 0,
    break_mapped: 0,
});

/// The arena of files. Its pages are missing where a file is mapped.
const FILES: Area = Area {
    start: FILE_ARENA,
    end: FILE_ARENA + FILE_ARENA_BYTES,
    protection: PROT_READ | PROT_WRITE | PROT_EXEC,
};

/// Reserves the arenas, smaller ones where there is a limit on addresses (RLIMIT_AS). Called once.
pub fn map_arenas() -> Result<()> {
    let flags = n::MAP_PRIVATE | n::MAP_ANONYMOUS | n::MAP_FIXED_NOREPLACE | n::MAP_NORESERVE;
    let arenas = ARENAS.get();
    let bytes = largest(ANONYMOUS_ARENA_BYTES, |bytes| {
        // SAFETY: a new mapping at a place of our own.
        let mapped = unsafe { memory::map(ANONYMOUS_ARENA, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) }?;
        if mapped == ANONYMOUS_ARENA { Ok(()) } else { Err(Errno::EEXIST) }
    })?;
    arenas.anonymous_end = ANONYMOUS_ARENA + bytes;
    let bytes =
        largest(FILE_ARENA_BYTES, |bytes| ABSENT.get().reserve(Area { end: FILE_ARENA + bytes, ..FILES }))?;
    arenas.file_end = FILE_ARENA + bytes;
    Ok(())
}

/// The largest arena that is to be had: of so many bytes, or of a 16th, and so on.
fn largest(most: usize, mut reserve: impl FnMut(usize) -> Result<()>) -> Result<usize> {
    const LEAST: usize = 16 << 20;
    let mut bytes = most;
    loop {
        match reserve(bytes) {
            Ok(()) => return Ok(bytes),
            Err(Errno::ENOMEM) if bytes / 16 >= LEAST => bytes /= 16,
            Err(error) => return Err(error),
        }
    }
}

/// Empties the arenas and takes back what was changed in the mirror.
pub fn reset() {
    let arenas = ARENAS.get();
    ABSENT.get().narrow();
    drop_zeros(ANONYMOUS_ARENA, arenas.anonymous_next);
    drop_files(FILE_ARENA, arenas.file_next);
    arenas.anonymous_next = ANONYMOUS_ARENA;
    arenas.file_next = FILE_ARENA;
    close_files();
    if arenas.break_mapped > arenas.break_now && arenas.break_now != 0 {
        // SAFETY: zero pages of our own above the program's break.
        let _ = unsafe { memory::unmap(arenas.break_now, arenas.break_mapped - arenas.break_now) };
    }
    arenas.break_now = 0;
    arenas.break_mapped = 0;
}

/// Closes the files that speculation has mapped.
pub fn close_files() {
    let arenas = ARENAS.get();
    for mapping in arenas.mappings.iter().take(arenas.mapping_count).filter(|m| m.real >= 0) {
        let _ = files::close(mapping.real);
    }
    arenas.mapping_count = 0;
}

fn drop_zeros(start: usize, end: usize) {
    if end > start {
        // SAFETY: pages of the anonymous arena, which are zeros again.
        let _ = unsafe { memory::advise(start, end - start, n::MADV_DONTNEED) };
    }
}

fn drop_files(start: usize, end: usize) {
    if end > start {
        ABSENT.get().drop(FILES, start, end);
    }
}

pub fn dispatch(call: &Call) -> Option<Outcome> {
    let a = call.arguments;
    Some(match call.number as u32 {
        n::__NR_brk => set_break(a[0]),
        n::__NR_mmap => map(call),
        n::__NR_munmap => unmap(a[0], a[1]),
        n::__NR_mprotect => protect(a[0], a[1], a[2] as u32),
        n::__NR_mremap => remap(a),
        n::__NR_madvise => advise(a[0], a[1], a[2] as u32),
        n::__NR_msync | n::__NR_mlock | n::__NR_munlock => Outcome::Return(0),
        _ => return None,
    })
}

fn round_up(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(PAGE).filter(|&b| b > 0)
}

/// Without it reads into a heap that had grown since the post were passed over: agrep's, with 1349 files.
pub fn grown_break() -> core::ops::Range<usize> {
    let arenas = ARENAS.get();
    arenas.break_now..arenas.break_mapped
}

/// The break grows by zero pages behind the program's own; the next sync takes them back.
fn set_break(wanted: usize) -> Outcome {
    let arenas = ARENAS.get();
    let begin = RUN.get().program_break as usize;
    if arenas.break_now == 0 {
        arenas.break_now = begin.next_multiple_of(PAGE);
        arenas.break_mapped = arenas.break_now;
    }
    const GROWTH_MOST: usize = 256 << 20;
    if wanted < begin {
        return Outcome::Return(begin as isize);
    }
    if wanted > begin + GROWTH_MOST {
        return Outcome::End(ended::MEMORY);
    }
    let end = wanted.next_multiple_of(PAGE);
    if end > arenas.break_mapped {
        if is_too_much(end - arenas.break_now) {
            return Outcome::End(ended::MEMORY);
        }
        let flags = n::MAP_PRIVATE | n::MAP_ANONYMOUS | n::MAP_FIXED_NOREPLACE | n::MAP_NORESERVE;
        let length = end - arenas.break_mapped;
        // SAFETY: replaces nothing.
        let mapped =
            unsafe { memory::map(arenas.break_mapped, length, PROT_READ | PROT_WRITE, flags, -1, 0) };
        if mapped != Ok(arenas.break_mapped) {
            return Outcome::End(ended::MEMORY);
        }
        arenas.break_mapped = end;
    }
    Outcome::Return(wanted as isize)
}

fn map(call: &Call) -> Outcome {
    let a = call.arguments;
    let Some(length) = round_up(a[1]) else {
        return Errno::EINVAL.into();
    };
    let flags = a[3] as u32;
    let fixed = flags & (n::MAP_FIXED | n::MAP_FIXED_NOREPLACE) != 0;
    if flags & n::MAP_ANONYMOUS != 0 {
        return if fixed { map_fixed(a, length) } else { map_anonymous(length, a[2] as u32) };
    }
    // The program has made it by now. Nobody follows touches of another one of the file, so that none is made.
    if run::is_late() && a[1] >= LARGE_MAPPING {
        let found = late::mapped_since(length, a[5] as u64, fixed.then_some(a[0]));
        return found.map_or(Outcome::End(ended::DESCRIPTOR), |start| Outcome::Return(start as isize));
    }
    map_file(call, length, fixed)
}

/// Whether a mapping with these arguments is written to its file.
fn flags_share_writes(a: [usize; 6]) -> bool {
    a[3] as u32 & n::MAP_SHARED != 0 && a[2] as u32 & PROT_WRITE != 0
}

/// Whether so many bytes are more than a speculator may have altogether.
fn is_too_much(bytes: usize) -> bool {
    (bytes / PAGE) as u64 > run::own_most()
}

fn map_anonymous(length: usize, protection: u32) -> Outcome {
    if protection & PROT_EXEC != 0 {
        return UNKNOWN;
    }
    if protection & PROT_WRITE != 0 && is_too_much(length) {
        return Outcome::End(ended::MEMORY);
    }
    let arenas = ARENAS.get();
    let start = arenas.anonymous_next;
    match start.checked_add(length) {
        Some(end) if end <= arenas.anonymous_end => {
            arenas.anonymous_next = end;
            Outcome::Return(start as isize)
        }
        _ => Outcome::End(ended::MEMORY),
    }
}

fn in_file_arena(start: usize, length: usize) -> bool {
    start >= FILE_ARENA && start.saturating_add(length) <= ARENAS.get().file_next
}

/// Zero pages at a given place: only inside what speculation itself has reserved for a file.
fn map_fixed(a: [usize; 6], length: usize) -> Outcome {
    if !in_file_arena(a[0], length) {
        return UNKNOWN;
    }
    drop_files(a[0], a[0] + length);
    if add_mapping(FileMapping::none(a[0], a[0] + length)) {
        Outcome::Return(a[0] as isize)
    } else {
        Outcome::End(ended::MEMORY)
    }
}

fn map_file(call: &Call, length: usize, fixed: bool) -> Outcome {
    let a = call.arguments;
    let table = TABLE.get();
    let entry = match table.get(a[4] as i32) {
        None => return Outcome::End(ended::DESCRIPTOR),
        Some(Err(e)) => return e.into(),
        Some(Ok(entry)) => *entry,
    };
    if entry.kind != Kind::File || entry.written || flags_share_writes(a) || !a[5].is_multiple_of(PAGE) {
        return UNKNOWN;
    }
    let arenas = ARENAS.get();
    let start = if fixed {
        if !in_file_arena(a[0], length) || !a[0].is_multiple_of(PAGE) {
            return UNKNOWN;
        }
        drop_files(a[0], a[0] + length);
        a[0]
    } else {
        let start = arenas.file_next;
        if start + length > arenas.file_end {
            return Outcome::End(ended::MEMORY);
        }
        if ABSENT.get().watch(start, length).is_err() {
            return Outcome::End(ended::MEMORY);
        }
        arenas.file_next = start + length;
        start
    };
    let Ok(real) = super::files::duplicate_real(entry.real) else {
        return Outcome::End(ended::DESCRIPTOR);
    };
    table.is_shared(a[4] as i32);
    let mapping = FileMapping {
        start,
        end: start + length,
        real,
        offset: a[5] as u64,
        size: files::fstat(real).map_or(0, |stat| stat.st_size as u64),
        device: entry.device,
        identity: entry.identity(),
        random: false,
        programs_own: run::is_programs_own(),
    };
    if !add_mapping(mapping) {
        let _ = files::close(real);
        return Outcome::End(ended::MEMORY);
    }
    // The agent does not look at mappings of empty files.
    if maps_small_file(&a) && entry.size > 0 {
        // What the program will touch first, most likely.
        let (place, first) = (a[5] as i64, a[1].min(PAGE) as i64);
        let bytes = entry.size.saturating_sub(place).clamp(0, first) as usize;
        super::files::log_mapping(call, &entry, a[1], place, bytes);
    }
    Outcome::Return(start as isize)
}

fn add_mapping(mapping: FileMapping) -> bool {
    let arenas = ARENAS.get();
    match arenas.mappings.get_mut(arenas.mapping_count) {
        Some(place) => {
            *place = mapping;
            arenas.mapping_count += 1;
            true
        }
        None => false,
    }
}

/// Whether a bad address is a page of the file arena that is missing.
pub fn misses_file_page(page: usize) -> bool {
    let absent = ABSENT.get();
    in_file_arena(page, 1) && absent.raises_segv() && !absent.is_shown(FILES, page)
}

/// A page of the file arena is missing: fills it and its neighbours with what is cached, zeros
/// elsewhere, and asks for the rest. False if the address is not there. Called where a
/// page is missing.
pub fn fill_file_page(address: usize) -> bool {
    if !in_file_arena(address, 1) {
        return false;
    }
    let arenas = ARENAS.get();
    // The latest mapping that holds the address: later ones were placed over earlier ones.
    let found =
        arenas.mappings.iter().take(arenas.mapping_count).rev().find(|m| (m.start..m.end).contains(&address));
    let Some(mapping) = found else {
        return false;
    };
    let around = if mapping.random { PAGE } else { AROUND };
    let start = (address & !(around - 1)).max(mapping.start);
    let end = (start + around).min(mapping.end);
    let length = end - start;
    // SAFETY: the bounce buffer is ours and longer than `AROUND`.
    unsafe { core::ptr::write_bytes(BOUNCE as *mut u8, 0, length) };
    let mut placed = (start, length);
    if mapping.real >= 0 {
        let offset_of = |address: usize| mapping.offset + (address - mapping.start) as u64;
        let read = |start: usize, length: usize| {
            let piece = [IoVec { base: BOUNCE, length }];
            // SAFETY: as above.
            unsafe { read_cached(mapping.real, &piece, offset_of(start), mapping.size) }
        };
        let mut got = read(start, length);
        if got == Err(Errno::EOPNOTSUPP) && length > PAGE {
            // Where all or nothing is told the page itself may be there.
            let page = address & !(PAGE - 1);
            if let Ok(bytes) = read(page, PAGE) {
                (placed, got) = ((page, PAGE), Ok(bytes));
            }
        }
        let got = got.unwrap_or(0);
        if placed.1 == length && got < length {
            let (place, rest) = (offset_of(start) + got as u64, (length - got) as u64);
            let earlier = run::is_programs_own();
            run::programs_own(earlier || mapping.programs_own);
            super::files::ask_for_touched(mapping.real, mapping.device, mapping.identity, place, rest);
            run::programs_own(earlier);
        }
    }
    let (start, length) = placed;
    // SAFETY: the bounce buffer is ours and longer than `AROUND`.
    match unsafe { ABSENT.get().place(FILES, start, BOUNCE, length) } {
        Ok(()) => true,
        Err(NoPage::Full) => run::end(ended::MEMORY, 0),
        Err(NoPage::Absent) => false,
    }
}

fn unmap(start: usize, length: usize) -> Outcome {
    let Some(length) = round_up(length) else {
        return Errno::EINVAL.into();
    };
    let arenas = ARENAS.get();
    // Give the latest anonymous memory back: programs map and unmap a buffer for each file.
    if start >= ANONYMOUS_ARENA && start + length <= arenas.anonymous_next {
        drop_zeros(start, start + length);
        if start + length == arenas.anonymous_next {
            arenas.anonymous_next = start;
        }
    } else if in_file_arena(start, length) {
        drop_files(start, start + length);
        if start + length == arenas.file_next
            && let Some(last) = arenas.mapping_count.checked_sub(1)
            && arenas.mappings[last].start == start
            && arenas.mappings[last].end == start + length
        {
            let _ = files::close(arenas.mappings[last].real);
            arenas.mapping_count = last;
            arenas.file_next = start;
        }
    }
    Outcome::Return(0)
}

fn protect(start: usize, length: usize, protection: u32) -> Outcome {
    let Some(length) = round_up(length) else {
        return Outcome::Return(0);
    };
    if start >= ANONYMOUS_ARENA {
        // The arenas allow everything that is asked for, but execution of zero pages.
        let executes_zeros = protection & PROT_EXEC != 0 && !in_file_arena(start, length);
        return if executes_zeros && start < FILE_ARENA { UNKNOWN } else { Outcome::Return(0) };
    }
    let Some(region) = MIRROR.get().region_at(start) else {
        return Errno::ENOMEM.into();
    };
    // Less than there is changes nothing for a program that does what it may.
    if protection & !region.protection == 0 {
        return Outcome::Return(0);
    }
    if start + length > region.end {
        return UNKNOWN;
    }
    match ABSENT.get().widen(region.area(), start, start + length, protection) {
        Ok(()) => Outcome::Return(0),
        Err(Errno::ENOMEM) => Outcome::End(ended::MEMORY),
        Err(_) => UNKNOWN,
    }
}

fn remap(a: [usize; 6]) -> Outcome {
    let (start, old, new, flags) = (a[0], a[1], a[2], a[3] as u32);
    if new <= old {
        return Outcome::Return(start as isize);
    }
    if flags & n::MREMAP_MAYMOVE == 0 || flags & n::MREMAP_FIXED != 0 {
        return Errno::ENOMEM.into();
    }
    let Some(length) = round_up(new) else {
        return Errno::EINVAL.into();
    };
    match map_anonymous(length, PROT_READ | PROT_WRITE) {
        Outcome::Return(moved) => {
            // Large blocks move rarely and are mostly buffers; but what is in them may be needed.
            // SAFETY: mirror memory, or a fault that ends the speculation.
            unsafe { core::ptr::copy(start as *const u8, moved as *mut u8, old) };
            Outcome::Return(moved)
        }
        end => end,
    }
}

fn advise(start: usize, length: usize, advice: u32) -> Outcome {
    // Dropping contents is the one piece of advice that changes what is read.
    if advice == n::MADV_DONTNEED && (ANONYMOUS_ARENA..FILE_ARENA).contains(&start) {
        let arenas = ARENAS.get();
        let end = start.saturating_add(length).min(arenas.anonymous_next);
        drop_zeros(start & !(PAGE - 1), end);
    }
    if matches!(advice, n::MADV_NORMAL | n::MADV_RANDOM | n::MADV_SEQUENTIAL) && in_file_arena(start, length)
    {
        let arenas = ARENAS.get();
        let mappings = arenas.mappings.iter_mut().take(arenas.mapping_count);
        for mapping in mappings.filter(|m| (start..start + length).contains(&m.start)) {
            mapping.random = advice == n::MADV_RANDOM;
        }
    }
    Outcome::Return(0)
}
