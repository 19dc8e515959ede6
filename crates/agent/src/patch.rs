//! Leading system call sites through stubs.
//!
//! At the start all executable mappings of files are visited, later each new one when it is mapped,
//! before any thread can run it. For each file the site file says where the sites are; their bytes are
//! compared, stubs are written and made executable, and only then the instruction before each `syscall`
//! becomes a jump. Whatever does not fit (no room in reach, other bytes, no permission) stays as it is.
//! What is written to is private to the process: a shared mapping may be the file itself.
//!
//! Stubs lie in the agent's pool or, for what is out of its reach (a program's own text), in one area
//! that is mapped at the start. So nothing of ours appears later in a hole that the program has made.
//! Each file has pages of stubs of its own, which are free again when its code is gone: that is found
//! out when pages are wanted, by looking whether one of its sites still holds our jump.

use crate::arch::{
    self, Ahead, CODE_BYTES, Description, Frame, HOOK_BYTES, Load, POOL_BYTES, Patch, STUB_BYTES,
    SYSCALL_BYTES, Tail, Way,
};
use crate::attach;
use crate::calls::{is_measured, is_opening, is_wanted, sampled};
use crate::own_calls::Program;
use crate::state::{Fixed, NO_DESCRIPTOR};
use crate::{prepared, unchecked, unwind};
use core::ffi::CStr;
use core::sync::atomic::Ordering;
use runahead_abi::environment::flags;
use runahead_abi::sites::{
    self, ANY_NUMBER, CANCELLATION_START, FileKey, NEAR_JUMP, SHORT_BRANCH, Site, form,
};
use runahead_kernel::PAGE;
use runahead_kernel::files::{self, IoVec, Stat, close, fstat, open_at};
use runahead_kernel::memory::{self, PROT_EXEC, PROT_NONE, PROT_READ, PROT_WRITE};
use runahead_kernel::process::process_id;
use runahead_kernel::text::{self, Text};
use runahead_kernel::uapi::general as n;

/// How long the first program ever to map a file waits for its analysis: libc takes some 20 ms.
const ANALYSIS_WAIT_NS: u64 = 1_000_000_000;

/// An executable mapping of a file.
#[derive(Clone, Copy)]
pub struct Mapping {
    pub start: usize,
    /// In bytes.
    pub length: usize,
    /// Where in the file it starts, bytes.
    pub offset: u64,
}

/// What was found at the start.
#[derive(Default)]
pub struct Visited {
    /// Bytes of files' code that are mapped.
    pub code: usize,
    /// Some code makes, or may make, calls that cannot be seen, and nobody knows which.
    pub is_blind: bool,
    /// So it is as there is code that could not be looked at.
    pub is_unknown: bool,
    /// Some code is being analysed.
    pub is_unchecked: bool,
    /// Bytes of files whose analysis was waited for.
    waited_for: u64,
}

/// A mapping of code that was found at the start.
#[derive(Clone, Copy)]
pub struct Candidate {
    mapping: Mapping,
    protection: u32,
    key: FileKey,
}

/// What is done where a large file is not analysed yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Its analysis is waited for: a static program makes all of its system calls there.
    Waits,
    /// The process runs on and is checked meanwhile.
    MayRun,
}

/// Visits every executable mapping of the process. Called once, at the start, when no code of the
/// program has run yet and there is one thread.
///
/// All are looked at before any is rewritten: code that makes calls which nobody can see speaks against
/// rewriting anything at all. What turns out not to be rewritten is such code, too.
pub fn whole_process(state: &Fixed, unknown: Unknown, program: &Program) -> Visited {
    let mut visited = Visited::default();
    // SAFETY: the start is alone.
    let (lines, path, candidates) = unsafe { state.start_buffers() };
    let mut count = 0;
    each_mapping(lines, |map| {
        let candidate = look_at(state, map, path, (unknown, program), &mut visited)?;
        match candidates.get_mut(count) {
            Some(place) => *place = candidate,
            None => visited.is_blind = true,
        }
        count += 1;
        Some(())
    });
    if visited.is_unchecked && !visited.is_blind && !unchecked::begin(state, visited.code) {
        return whole_process(state, Unknown::Waits, program);
    }
    let rewrite =
        |found: &Candidate| rewrite(state, &found.key, found.mapping, found.protection, Phase::Start);
    if !visited.is_blind && !candidates.iter().take(count).all(rewrite) {
        visited.is_blind = true;
        undo(state);
    }
    if visited.is_blind {
        unchecked::leave(state)
    } else {
        unchecked::asks(state)
    }
    visited
}

/// Calls `action` with each private executable mapping of a file but our own. `lines`: room for some of them.
fn each_mapping(lines: &mut [u8], mut action: impl FnMut(&text::MapsLine) -> Option<()>) {
    each_line(lines, |map| {
        let is_code = map.protection & PROT_EXEC != 0 && !map.shared && map.name.first() == Some(&b'/');
        // Our own calls must not come back to us.
        if is_code && !memory::overlap(&(map.start..map.end), &arch::image()) {
            let _ = action(map);
        }
    });
}

/// Calls `action` with each mapping, in the order of their addresses. `lines`: room for some of them.
fn each_line(lines: &mut [u8], mut action: impl FnMut(&text::MapsLine)) {
    let Ok(fd) = open_at(n::AT_FDCWD, c"/proc/self/maps", n::O_RDONLY | n::O_CLOEXEC, 0) else {
        return;
    };
    let mut held = 0;
    while let Some(room) = lines.get_mut(held..) {
        match files::read(fd, room) {
            Ok(0) | Err(_) => break,
            Ok(length) => held += length,
        }
        // Visit what is complete, keep the rest of a cut line.
        let filled = lines.get(..held).unwrap_or(&[]);
        let complete = filled.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        for line in filled.get(..complete).unwrap_or(&[]).split(|&b| b == b'\n') {
            if let Some(map) = text::maps_line(line) {
                action(&map);
            }
        }
        if complete <= held && held <= lines.len() {
            lines.copy_within(complete..held, 0);
        }
        held = held.saturating_sub(complete);
    }
    let _ = close(fd);
}

/// Makes sure that the file is analysed, or is being, and notes what it means for the process: what cannot be
/// looked at may do anything. None: there is nothing to be rewritten. `room`: for its path.
fn look_at(
    state: &Fixed,
    map: &text::MapsLine,
    room: &mut [u8],
    (unknown, program): (Unknown, &Program),
    visited: &mut Visited,
) -> Option<Candidate> {
    let mapping = Mapping { start: map.start, length: map.end - map.start, offset: map.offset };
    visited.code += mapping.length;
    let Some((key, name)) = find(map, room) else {
        (visited.is_blind, visited.is_unknown) = (true, true);
        return None;
    };
    let mut entry = entry_of(state, &key);
    if entry.is_none() {
        let waits = unchecked::is_waited_for(map.name, key.size, &mut visited.waited_for);
        let may_run = unknown == Unknown::MayRun && !waits && !program.calls_from(map.start..map.end);
        // Of who is left alone anyway nothing more is waited for.
        let is_of_use = !may_run && !visited.is_blind;
        if is_of_use || state.has(flags::RECORDS) {
            entry = analysed(state, &key, name.to_bytes());
        }
        if may_run && entry.is_none() {
            visited.is_unchecked = true;
            return None;
        }
    }
    let Some(entry) = entry else {
        (visited.is_blind, visited.is_unknown) = (true, true);
        return None;
    };
    visited.is_blind |= entry.is_blind();
    Some(Candidate { mapping, protection: map.protection, key })
}

/// The file of a mapping, with its path in `room`. None: it is not there any more.
fn find<'a>(map: &text::MapsLine, room: &'a mut [u8]) -> Option<(FileKey, &'a CStr)> {
    room.get_mut(map.name.len()..)?.fill(0);
    for (to, from) in room.iter_mut().zip(map.name) {
        *to = *from;
    }
    let name = CStr::from_bytes_until_nul(room).ok()?;
    let stat = files::stat_at(n::AT_FDCWD, name, 0).ok()?;
    if stat.st_ino != map.inode {
        return None; // replaced on disk since it was mapped
    }
    Some((key_of(&stat), name))
}

/// Visits a mapping that the program has just made from descriptor `fd`. False if its code makes calls
/// that cannot be seen.
pub fn new_mapping(frame: &Frame, fd: i32, mapping: Mapping, protection: u32) -> bool {
    let state = frame.state();
    let lock = &state.process().scratch_lock;
    if !lock.try_take() {
        return false;
    }
    // What was there is gone.
    unchecked::is_replaced(state, mapping.start..mapping.start.saturating_add(mapping.length));
    if let Some(end) = end_of_our_own(mapping) {
        hide_behind(end, mapping);
        unchecked::has_rewritten(state, mapping.start);
        lock.release();
        return true;
    }
    let mut is_blind = true;
    if let Ok(stat) = fstat(fd) {
        let path = Text::<64>::new()
            .push(b"/proc/")
            .push_number(process_id() as u64)
            .push(b"/fd/")
            .push_number(fd as u64);
        let key = key_of(&stat);
        let mut entry = entry_of(state, &key);
        if entry.is_none() && state.has(flags::RECORDS) {
            entry = analysed(state, &key, path.as_c_str().to_bytes());
        }
        if entry.is_none() && !unchecked::is_waited_for(b"", key.size, &mut 0) && unchecked::again(state) {
            lock.release();
            return true;
        }
        entry = entry.or_else(|| analysed(state, &key, path.as_c_str().to_bytes()));
        // As at the start: what is not known may be anything.
        is_blind = entry.is_none_or(|known| known.is_blind());
        if !is_blind {
            is_blind = !rewrite(state, &key, mapping, protection, Phase::Later);
        }
    }
    lock.release();
    !is_blind
}

/// Where the code ends, if the mapping is of our own code once more: musl's loader loads what LD_PRELOAD
/// names, though we are there already. What is called of it does nothing (`start::runahead_agent_start`).
fn end_of_our_own(mapping: Mapping) -> Option<usize> {
    const AT_ONCE: usize = 1024;
    let (offset, ours) = arch::own_code()?;
    let theirs = mapped_bytes(mapping, offset, ours.len())?;
    let mut piece = [0; AT_ONCE];
    let is_same = ours.chunks(AT_ONCE).enumerate().all(|(index, ours)| {
        let room = piece.get_mut(..ours.len());
        room.is_some_and(|room| read_own(theirs + index * AT_ONCE, room) && room == ours)
    });
    is_same.then_some(theirs + ours.len())
}

/// Takes away what lies behind the code: that loader maps a section without content from the file,
/// beyond whose end nobody may read.
fn hide_behind(end: usize, mapping: Mapping) {
    let (start, end) = (end.next_multiple_of(PAGE), mapping.start + mapping.length);
    if start < end {
        // SAFETY: stubs of a copy of us that nobody uses.
        let _ = unsafe { memory::protect(start, end - start, PROT_NONE) };
    }
}

fn key_of(stat: &Stat) -> FileKey {
    let ns = |seconds: u64, ns: u64| seconds.wrapping_mul(1_000_000_000).wrapping_add(ns);
    FileKey {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: stat.st_size as u64,
        modified: ns(stat.st_mtime, stat.st_mtime_nsec),
        changed: ns(stat.st_ctime, stat.st_ctime_nsec),
    }
}

/// What the site file says of a file once it is analysed, which it is not yet.
fn analysed(state: &Fixed, key: &FileKey, path: &[u8]) -> Option<sites::Entry<'static>> {
    if attach::request_analysis(state, path, ANALYSIS_WAIT_NS) { entry_of(state, key) } else { None }
}

/// A site file as this process has it.
struct SiteFile {
    /// Where it is mapped, hidden, and for how many bytes; 0: nowhere.
    address: usize,
    length: usize,
    /// While it is open.
    descriptor: i32,
}

/// The entry of a file in the user's site file, else in what comes with the installation.
fn entry_of(state: &Fixed, key: &FileKey) -> Option<sites::Entry<'static>> {
    let own = SiteFile {
        address: state.site_file.load(Ordering::Relaxed),
        length: state.site_file_length.load(Ordering::Relaxed),
        descriptor: state.site_descriptor.load(Ordering::Relaxed),
    };
    let is_starting = own.descriptor != NO_DESCRIPTOR;
    entry_in(state, &own, key).or_else(|| {
        if is_starting {
            prepared::look_for(state);
        }
        let prepared = SiteFile {
            address: state.prepared.load(Ordering::Relaxed),
            length: state.prepared_length.load(Ordering::Relaxed),
            descriptor: state.prepared_descriptor.load(Ordering::Relaxed),
        };
        entry_in(state, &prepared, key)
    })
}

/// The entry of a file, in the scratch pages, copied there through the kernel: somebody may cut the
/// site file while it is mapped.
fn entry_in(state: &Fixed, file: &SiteFile, key: &FileKey) -> Option<sites::Entry<'static>> {
    let SiteFile { address, length, descriptor } = *file;
    // SAFETY: the caller is the start, or holds the lock; the pages are aligned, and any bytes are valid.
    let room = unsafe {
        let scratch = state.scratch();
        core::slice::from_raw_parts_mut(
            scratch.as_mut_ptr().cast::<Site>(),
            scratch.len() / size_of::<Site>(),
        )
    };
    let read = |offset: usize, bytes: &mut [u8]| match descriptor {
        NO_DESCRIPTOR => {
            let is_within = offset.checked_add(bytes.len()).is_some_and(|end| end <= length);
            is_within && read_own(address + offset, bytes)
        }
        open => files::pread(open, bytes, offset as i64) == Ok(bytes.len()),
    };
    if descriptor != NO_DESCRIPTOR {
        return sites::lookup_copied(read, key, room);
    }
    // SAFETY: the mapping is ours, and nobody else reads it: the caller holds the lock.
    let shown = |rights| unsafe { memory::protect(address, length, rights) };
    if length == 0 || shown(PROT_READ).is_err() {
        return None;
    }
    let entry = sites::lookup_copied(read, key, room);
    // It can be joined with nothing, so the change needs no memory that the one before did not.
    let _ = shown(PROT_NONE);
    entry
}

/// Copies bytes of our own process through the kernel; false if they are not all there.
pub fn read_own(address: usize, bytes: &mut [u8]) -> bool {
    let local = [IoVec { base: bytes.as_mut_ptr() as usize, length: bytes.len() }];
    let remote = [IoVec { base: address, length: bytes.len() }];
    // SAFETY: the local piece is as long as said.
    let got = unsafe { memory::read_process(process_id(), &local, &remote) };
    got == Ok(bytes.len())
}

/// Whether these bytes are there now.
fn holds<const N: usize>(address: usize, expected: &[u8; N]) -> bool {
    let mut found = [0u8; N];
    read_own(address, &mut found) && found == *expected
}

/// Whether anything may still be mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Start,
    Later,
}

/// Which of a file's sites are there and wanted: one bit each. All are compared before the first is
/// written, since the bytes behind one may hold another's padding.
struct Usable([u64; MOST_SITES / 64]);

/// More sites than the scratch pages hold.
const MOST_SITES: usize = 1408;

impl Usable {
    /// `opens`: sites that open files are wanted.
    fn find(sites: &[Site], mapping: Mapping, opens: bool) -> Usable {
        let mut usable = Usable([0; MOST_SITES / 64]);
        for (index, site) in sites.iter().enumerate().take(MOST_SITES) {
            if (is_wanted(site.number) || opens && is_opening(site.number))
                && is_there(mapping, site)
                && let Some(word) = usable.0.get_mut(index / 64)
            {
                *word |= 1 << (index % 64);
            }
        }
        usable
    }

    fn has(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}

/// Rewrites the sites of a mapping, as far as that can be done. False if one is left, for whatever reason,
/// that may forbid calls of ours: it would not be seen, and the next of them would end the program.
#[must_use]
fn rewrite(state: &Fixed, key: &FileKey, mapping: Mapping, protection: u32, phase: Phase) -> bool {
    let Some(entry) = entry_of(state, key) else {
        return false;
    };
    let is_here = |site: &&Site| mapped_bytes(mapping, site.patch_offset, 1).is_some();
    if entry.sites.iter().any(|site| is_here(&site)) {
        unchecked::has_rewritten(state, mapping.start);
    }
    let forbidding = entry.sites.iter().filter(is_here).filter(|site| may_forbid(site)).count();
    // What can only be executed cannot be compared: some processors refuse to read it.
    let rewritten = match protection & PROT_READ {
        0 => 0,
        _ => rewrite_sites(state, &entry, mapping, protection, phase).unwrap_or(0),
    };
    rewritten == forbidding
}

/// Whether a site's call may forbid calls of ours: a filter, or whatever the number is. (None of those is
/// cancelled.)
fn may_forbid(site: &Site) -> bool {
    let number = site.number;
    let forbids = [n::__NR_seccomp, n::__NR_prctl].contains(&u32::from(number)) || number == ANY_NUMBER;
    forbids && !matches!(site.form, form::CANCELLATION | form::CALLED)
}

/// As [`rewrite`]; returns how many of those that may forbid calls of ours are rewritten. None: nothing is.
fn rewrite_sites(
    state: &Fixed,
    entry: &sites::Entry<'_>,
    mapping: Mapping,
    protection: u32,
    phase: Phase,
) -> Option<usize> {
    let usable = Usable::find(entry.sites, mapping, state.has(flags::REMEMBERS));
    let count = usable.count();
    if count == 0 {
        return None;
    }
    // SAFETY: the caller is the start, or holds the lock.
    let table = unsafe { state.stubs() };
    let place = table.room(state, mapping, count, phase)?;
    // Only the pool has unwind information.
    let is_in_pool = (arch::pool_address()..arch::pool_address() + POOL_BYTES).contains(&place.address);
    if entry.unwinds() && !is_in_pool {
        return None;
    }
    // The code that brings the arguments of such a call is a near jump from the pool.
    let fits = |site: &Site| is_in_pool || !site.is_ahead();
    let chosen = || {
        let sites = entry.sites.iter().enumerate();
        sites.filter(|(index, site)| usable.has(*index) && fits(site)).map(|(_, site)| site)
    };
    let stub_at = |index: usize| place.address + index * STUB_BYTES;
    let bytes = pages_of(count) * PAGE;
    // SAFETY: pages of stubs that nobody uses yet.
    unsafe { memory::protect(place.address, bytes, PROT_READ | PROT_WRITE) }.ok()?;
    let mut drafts = 0;
    for (index, site) in chosen().enumerate() {
        // SAFETY: inside the pages just made writable.
        let stub = unsafe { &mut *(stub_at(index) as *mut [u8; STUB_BYTES]) };
        if draft(state, mapping, site, stub, is_in_pool).is_none() {
            break;
        }
        drafts += 1;
    }
    // A jump to a stub that cannot be executed would end the program.
    // SAFETY: the same pages, to which nothing leads yet.
    if unsafe { memory::protect(place.address, bytes, PROT_READ | PROT_EXEC) }.is_err() || drafts == 0 {
        return None;
    }
    // SAFETY: the file's code, private to this process, whose bytes change only at proven sites. It can be executed
    // throughout: other threads may run other code in it.
    unsafe { memory::protect(mapping.start, mapping.length, protection | PROT_READ | PROT_WRITE) }.ok()?;
    // Kept before anything leads there: a child of fork that is made meanwhile must not take the pages for free.
    table.keep(Allocation {
        text: mapping.start,
        length: mapping.length,
        stubs: place.address,
        count: drafts as u16,
        protection: protection as u16,
        _gap: 0,
    });
    for index in 0..drafts {
        // SAFETY: just written there.
        let description = unsafe { arch::description_at(stub_at(index)) };
        lead_through(description, stub_at(index));
    }
    // SAFETY: the same code, protected as the program has asked for.
    let _ = unsafe { memory::protect(mapping.start, mapping.length, protection) };
    Some(chosen().take(drafts).filter(|site| may_forbid(site)).count())
}

/// Whether the site is there and is what the site file says. Where a cancellation may be acted on, unwinding
/// works at its padding, too.
fn is_there(mapping: Mapping, site: &Site) -> bool {
    let found = |offset: u64, expected: &[u8]| {
        mapped_bytes(mapping, offset, expected.len()).is_some_and(|address| {
            // SAFETY: inside a readable mapping.
            let bytes = unsafe { core::slice::from_raw_parts(address as *const u8, expected.len()) };
            bytes == expected
        })
    };
    let covered = || {
        let place = |offset: u64, length: usize| mapped_bytes(mapping, offset, length);
        let base = mapping.start.wrapping_sub(mapping.offset as usize);
        place(site.patch_offset, CODE_BYTES)
            .zip(place(site.pad_offset, NEAR_JUMP))
            .is_some_and(|(code, padding)| unwind::cover(base, code, padding))
    };
    found(site.patch_offset, &site.expected)
        && (site.pad_offset == 0 || found(site.pad_offset, &site.expected_pad))
        && (site.form != form::CANCELLATION || covered())
}

/// Address of `length` bytes at `offset` of the mapped file; None if they are not all mapped here.
fn mapped_bytes(mapping: Mapping, offset: u64, length: usize) -> Option<usize> {
    let within = usize::try_from(offset.checked_sub(mapping.offset)?).ok()?;
    (within.checked_add(length)? <= mapping.length).then_some(mapping.start + within)
}

/// Writes the stub of one site. None if it cannot have one. `has_unwinding`: unwinders find their way from
/// there, so a call may be made there.
fn draft(
    state: &Fixed,
    mapping: Mapping,
    site: &Site,
    stub: &mut [u8; STUB_BYTES],
    has_unwinding: bool,
) -> Option<()> {
    let distance = usize::from(site.syscall_distance);
    let address = mapped_bytes(mapping, site.patch_offset, site.expected.len())?;
    let before = |bytes: &[u8]| -> Option<[u8; CODE_BYTES]> { bytes.get(..CODE_BYTES)?.try_into().ok() };
    let own = Patch { address, before: before(&site.expected)? };
    let place = || mapped_bytes(mapping, site.pad_offset, site.expected_pad.len());
    let padding = if site.is_short() {
        let address = place()?;
        arch::short_jump(mapped_bytes(mapping, site.patch_offset, CODE_BYTES)?, address)?;
        Patch { address, before: before(&site.expected_pad)? }
    } else {
        Patch::default()
    };
    let describe = |syscall| Description::new(state, syscall, is_measured(site.number), own, padding);
    let description = describe(address + distance);
    let load = match site.form {
        form::CANCELLATION => {
            let start = address + CANCELLATION_START;
            let ahead = Ahead {
                way: Way::Cancellable,
                displaced: site.expected.get(..CANCELLATION_START)?,
                onward: start,
            };
            return arch::write_stub_ahead(stub, &ahead, &description).then_some(());
        }
        form::CALLED => {
            let ahead = Ahead { way: Way::Cancellable, displaced: &[], onward: place()? };
            return arch::write_stub_ahead(stub, &ahead, &describe(place()? + distance)).then_some(());
        }
        form::ENTRANCE => {
            let displaced = site.expected.get(..distance)?;
            let ahead = Ahead { way: Way::Any, displaced, onward: address + distance };
            // Speculation goes on where the function returns.
            let returns = place()?.checked_sub(SYSCALL_BYTES)?;
            return arch::write_stub_ahead(stub, &ahead, &describe(returns)).then_some(());
        }
        form::TAKEN => {
            let (before, jump) = site.expected.get(..distance)?.split_last_chunk()?;
            let (jump, end): (&[u8; SHORT_BRANCH], usize) = (jump, address + distance);
            let syscall = end.wrapping_add_signed(isize::from(jump[1].cast_signed()));
            let load = Load::Taken { before, jump: *jump, end };
            return arch::write_stub(stub, load, &describe(syscall), sampled(site.number), None)
                .then_some(());
        }
        form::MOV_IMM32 | form::SHORT_VIA_PAD => Load::Number(site.number),
        form::DISPLACED | form::SHORT_DISPLACED => Load::Displaced(site.expected.get(..distance)?),
        form::BRANCHED => {
            let (before, jump) = site.expected.get(..distance)?.split_last_chunk()?;
            Load::Branched { before, jump: *jump, end: address + distance }
        }
        _ => return None,
    };
    let into_function = site.into_function as usize;
    let may_be_hooked = has_unwinding && (1..HOOK_BYTES).contains(&into_function);
    let behind = if may_be_hooked { site.expected.get(distance + SYSCALL_BYTES..) } else { None };
    let tail = behind.map(|code| Tail { code, into_function: into_function + SYSCALL_BYTES });
    arch::write_stub(stub, load, &description, sampled(site.number), tail).then_some(())
}

/// Makes the site jump to its stub. The site's code is writable.
fn lead_through(description: &Description, stub: usize) {
    let Description { site, padding, .. } = description;
    let from = if padding.address != 0 { padding } else { site };
    let Some(near) = arch::lead(from, stub) else {
        return;
    };
    // SAFETY: proven padding, then a proven site; the padding is complete first.
    unsafe { write_code(from.address, &near) };
    if padding.address != 0
        && let Some(short) = arch::short_jump(site.address, padding.address)
    {
        // SAFETY: as above.
        unsafe { write_code(site.address, &short) };
    }
}

/// Writes up to 8 bytes of code in one store, so that no thread ever sees half of them.
///
/// # Safety
/// The bytes at `address` must be writable, and so must the rest of the 8 (they are rewritten with what
/// they are).
unsafe fn write_code(address: usize, code: &[u8]) {
    let place = address as *mut u64;
    // SAFETY: the caller's promise.
    let mut word = unsafe { place.read_unaligned() }.to_le_bytes();
    for (to, from) in word.iter_mut().zip(code) {
        *to = *from;
    }
    // SAFETY: the caller's promise.
    unsafe { place.write_unaligned(u64::from_le_bytes(word)) };
}

/// Makes everything as it was before the start: the program does something to memory of ours. Called
/// after [`Fixed::stand_down`], or by the start.
pub fn undo(state: &Fixed) {
    let lock = &state.process().scratch_lock;
    if !lock.try_take() {
        // Another thread is at it, or maps a library just now, whose sites stay with stubs that go by.
        return;
    }
    // SAFETY: the lock is held.
    for allocation in unsafe { state.stubs() }.kept.iter_mut().filter(|kept| kept.count != 0) {
        allocation.undo();
        allocation.count = 0;
    }
    lock.release();
}

/// Pages of stubs and the code that they are for.
#[repr(C)]
#[derive(Clone, Copy)]
struct Allocation {
    /// The code: address and bytes.
    text: usize,
    length: usize,
    /// Address of the first stub.
    stubs: usize,
    /// Number of stubs; 0: nothing is allocated.
    count: u16,
    /// The code's protection.
    protection: u16,
    _gap: u32,
}

impl Allocation {
    /// Its stubs: the address of each, and what it was made for.
    fn stubs(&self) -> impl Iterator<Item = (usize, &'static Description)> {
        let first = self.stubs;
        // SAFETY: allocated pages hold as many stubs.
        (0..usize::from(self.count))
            .map(move |index| first + index * STUB_BYTES)
            .map(|stub| (stub, unsafe { arch::description_at(stub) }))
    }

    /// Whether some code still jumps to its stubs. (The program may have unmapped or replaced a part of it.)
    fn is_live(&self) -> bool {
        self.stubs().any(|(stub, description)| {
            let Description { site, padding, .. } = description;
            let from = if padding.address != 0 { padding } else { site };
            arch::lead(from, stub).is_some_and(|jump| holds(from.address, &jump))
        })
    }

    /// Makes what still holds a jump of ours as it was, and touches nothing else: behind it in what was mapped
    /// together there may be the program's data by now.
    fn undo(&self) {
        for (stub, Description { site, padding, .. }) in self.stubs() {
            if padding.address == 0 {
                self.undo_one(site, arch::lead(site, stub).as_ref());
            } else {
                // The site first: nothing leads to its padding then. Somebody else has written over a site
                // that leads there no more, and may have kept a copy that does.
                if self.undo_one(site, arch::short_jump(site.address, padding.address).as_ref()) {
                    self.undo_one(padding, arch::near_jump(padding.address, stub).as_ref());
                }
            }
        }
    }

    /// False if no jump of ours is there.
    fn undo_one<const N: usize>(&self, patch: &Patch, jump: Option<&[u8; N]>) -> bool {
        let Some(before) = patch.before.first_chunk::<N>() else { return false };
        if !jump.is_some_and(|jump| holds(patch.address, jump)) {
            return false;
        }
        let protection = u32::from(self.protection);
        let page = patch.address & !(PAGE - 1);
        let bytes = (patch.address + CODE_BYTES - page).next_multiple_of(PAGE);
        // SAFETY: code that holds our jump, private, whose bytes become what the file has; then protected as it was.
        unsafe {
            if memory::protect(page, bytes, protection | PROT_READ | PROT_WRITE).is_ok() {
                write_code(patch.address, before);
                let _ = memory::protect(page, bytes, protection);
                return true;
            }
        }
        false
    }

    fn pages(&self) -> core::ops::Range<usize> {
        self.stubs..self.stubs + pages_of(usize::from(self.count)) * PAGE
    }
}

/// Files with sites that a process may have mapped at a time.
const ALLOCATIONS: usize = 120;

/// Bytes of the area for code that is out of the pool's reach.
pub const FAR_BYTES: usize = POOL_BYTES;

/// Gives the pool's addresses back. For the start, where there will be no stubs.
pub fn give_back_pool() {
    // SAFETY: pages of our image, a whole number of them, to which nothing leads: no stub was ever written.
    let _ = unsafe { memory::unmap(arch::pool_address(), POOL_BYTES) };
}

/// Which pages hold stubs, and for what. Zeros are its start.
#[repr(C)]
pub struct Stubs {
    kept: [Allocation; ALLOCATIONS],
}

/// Room for stubs.
struct Place {
    address: usize,
}

impl Stubs {
    /// Room for `count` stubs within a near jump of the mapping.
    fn room(&mut self, state: &Fixed, mapping: Mapping, count: usize, phase: Phase) -> Option<Place> {
        let bytes = pages_of(count) * PAGE;
        let area = [(arch::pool_address(), POOL_BYTES), far_area(state, mapping, phase)]
            .into_iter()
            .find(|&(start, length)| length != 0 && is_in_reach(start, length, mapping))?;
        // What was mapped there before is gone, or a part of it.
        let end = mapping.start + mapping.length;
        for kept in self.kept.iter_mut().filter(|kept| kept.count != 0) {
            if kept.text < end && mapping.start < kept.text + kept.length && !kept.is_live() {
                kept.count = 0;
            }
        }
        self.free_in(area, bytes).or_else(|| {
            self.kept
                .iter_mut()
                .filter(|kept| kept.count != 0 && !kept.is_live())
                .for_each(|kept| kept.count = 0);
            self.free_in(area, bytes)
        })
    }

    /// The first gap of `bytes` in `area`, if there is a record to keep for it.
    fn free_in(&self, (start, length): (usize, usize), bytes: usize) -> Option<Place> {
        self.kept.iter().position(|kept| kept.count == 0)?;
        let mut address = start;
        while address + bytes <= start + length {
            let wanted = address..address + bytes;
            let taken = self.kept.iter().filter(|kept| kept.count != 0).map(Allocation::pages);
            match taken.filter(|pages| memory::overlap(pages, &wanted)).map(|pages| pages.end).max() {
                None => return Some(Place { address }),
                Some(end) => address = end,
            }
        }
        None
    }

    fn keep(&mut self, allocation: Allocation) {
        if let Some(place) = self.kept.iter_mut().find(|kept| kept.count == 0) {
            *place = allocation;
        }
    }
}

fn pages_of(stubs: usize) -> usize {
    (stubs * STUB_BYTES).div_ceil(PAGE)
}

fn is_in_reach(start: usize, length: usize, mapping: Mapping) -> bool {
    // The whole of both lies within the farthest jump, with some slack for the instructions.
    const REACH: usize = 0x7fff_0000;
    let low = start.min(mapping.start);
    let high = (start + length).max(mapping.start + mapping.length);
    high - low < REACH
}

/// The area for code that is out of the pool's reach. At the start it is mapped when it is first wanted:
/// below that code (above a program's own text grows its heap).
fn far_area(state: &Fixed, mapping: Mapping, phase: Phase) -> (usize, usize) {
    let start = state.far_start.load(Ordering::Relaxed);
    if start != 0 {
        return (start, FAR_BYTES);
    }
    let pool_reaches = is_in_reach(arch::pool_address(), POOL_BYTES, mapping);
    if phase == Phase::Later || pool_reaches {
        return (0, 0);
    }
    // Right below it there are the program's names and constants, if it has many.
    let area = far_below(mapping, mapping.start & !(PAGE - 1))
        .or_else(|| far_below(mapping, end_of_room_below(state, mapping.start)?));
    let Some(address) = area else { return (0, 0) };
    state.far_start.store(address, Ordering::Relaxed);
    state.far_end.store(address + FAR_BYTES, Ordering::Relaxed);
    (address, FAR_BYTES)
}

/// Bytes between the area and what is above it.
const FAR_GAP: usize = 16 * PAGE;

/// Maps the area some pages below the address `end`, if nothing is there and the code can be reached.
fn far_below(mapping: Mapping, end: usize) -> Option<usize> {
    let below = end.checked_sub(FAR_GAP + FAR_BYTES)?;
    let flags = n::MAP_PRIVATE | n::MAP_ANONYMOUS | n::MAP_NORESERVE;
    // SAFETY: a new mapping; without MAP_FIXED nothing is replaced.
    let address = unsafe { memory::map(below, FAR_BYTES, PROT_READ | PROT_EXEC, flags, -1, 0) }.ok()?;
    if is_in_reach(address, FAR_BYTES, mapping) {
        return Some(address);
    }
    // SAFETY: just mapped, not used.
    let _ = unsafe { memory::unmap(address, FAR_BYTES) };
    None
}

/// Where the highest room below `code` ends that is large enough for the area. At the start.
fn end_of_room_below(state: &Fixed, code: usize) -> Option<usize> {
    // SAFETY: this is the start, which has gone through all lines by now.
    let lines = unsafe { state.start_lines() };
    let (mut end, mut found) = (0, None);
    each_line(lines, |map| {
        let room = map.start.saturating_sub(end);
        if map.start <= code && room >= FAR_BYTES + 2 * FAR_GAP {
            found = Some(map.start);
        }
        end = map.end;
    });
    found
}

const _: () = assert!(MOST_SITES >= crate::state::SCRATCH_BYTES / size_of::<Site>());
