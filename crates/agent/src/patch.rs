//! Leading system call sites through stubs.
//!
//! At the start all executable mappings of files are visited, later each new one when it is mapped,
//! before any thread can run it. For each file the site file says where the sites are; their bytes are
//! compared, stubs are written near them, and the instruction before each `syscall` becomes a jump.
//! Whatever does not fit (no room in reach, other bytes, no permission) stays as it is.

use crate::arch::{self, Frame, Load, STUB_BYTES};
use crate::attach;
use crate::calls::{sampled, wanted};
use crate::session;
use crate::state::Fixed;
use core::ffi::CStr;
use runahead_abi::sites::{self, FileKey, Site, form};
use runahead_kernel::PAGE;
use runahead_kernel::files::{self, Stat, close, fstat, open_at};
use runahead_kernel::memory::{self, PROT_EXEC, PROT_READ, PROT_WRITE};
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

/// Visits every executable mapping of the process; returns how many bytes of files' code are mapped. Called once, at the
/// start.
pub fn whole_process(state: &Fixed) -> usize {
    let mut code = 0;
    let mut known = Known::open(state);
    // SAFETY: the start-up is alone.
    let (lines, path) = unsafe { state.scratch() }.split_at_mut(7 * PAGE);
    let Ok(fd) = open_at(n::AT_FDCWD, c"/proc/self/maps", n::O_RDONLY | n::O_CLOEXEC, 0) else {
        return code;
    };
    let mut held = 0;
    while let Some(room) = lines.get_mut(held..) {
        match files::read(fd, room) {
            Ok(0) | Err(_) => break,
            Ok(length) => held += length,
        }
        // Patch what is complete, keep the rest of a cut line.
        let filled = lines.get(..held).unwrap_or(&[]);
        let complete = filled.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        for line in filled.get(..complete).unwrap_or(&[]).split(|&b| b == b'\n') {
            code += visit_line(state, &mut known, line, path).unwrap_or(0);
        }
        if complete <= held && held <= lines.len() {
            lines.copy_within(complete..held, 0);
        }
        held = held.saturating_sub(complete);
    }
    let _ = close(fd);
    code
}

/// Returns the length of the mapping, bytes, if it is one of a file's code.
fn visit_line(state: &Fixed, known: &mut Known, line: &[u8], path: &mut [u8]) -> Option<usize> {
    let map = text::maps_line(line)?;
    if map.protection & PROT_EXEC == 0 || map.shared || map.name.first() != Some(&b'/') {
        return None;
    }
    // Our own calls must not come back to us.
    if (map.start..map.end).contains(&arch::entry_address()) {
        return None;
    }
    if map.name.len() + 1 > path.len() {
        return None;
    }
    path.fill(0);
    for (to, from) in path.iter_mut().zip(map.name) {
        *to = *from;
    }
    let name = CStr::from_bytes_until_nul(path).ok()?;
    let stat = files::stat_at(n::AT_FDCWD, name, 0).ok()?;
    if stat.st_ino != map.inode {
        return None; // replaced on disk since it was mapped
    }
    let mapping = Mapping { start: map.start, length: map.end - map.start, offset: map.offset };
    patch_file(state, known, &stat, map.name, mapping, map.protection);
    Some(mapping.length)
}

/// Visits a mapping that the program has just made from descriptor `fd`.
pub fn new_mapping(frame: &Frame, fd: i32, mapping: Mapping, protection: u32) {
    let state = frame.state();
    if !state.scratch_lock.try_take(frame.stack()) {
        return;
    }
    if let Ok(stat) = fstat(fd) {
        let path = Text::<64>::new()
            .push(b"/proc/")
            .push_number(process_id() as u64)
            .push(b"/fd/")
            .push_number(fd as u64);
        let mut known = Known::open(state);
        patch_file(state, &mut known, &stat, path.as_c_str().to_bytes(), mapping, protection);
    }
    state.scratch_lock.release();
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

fn patch_file(state: &Fixed, known: &mut Known, stat: &Stat, path: &[u8], mapping: Mapping, protection: u32) {
    let key = key_of(stat);
    if sites::lookup(known.bytes(), &key).is_none() && attach::request_analysis(state, path, ANALYSIS_WAIT_NS)
    {
        *known = Known::open(state);
    }
    if let Some(sites) = sites::lookup(known.bytes(), &key) {
        patch_mapping(state, sites, mapping, protection);
    }
}

/// The site file as it is now, mapped for as long as this lives. Not longer: whoever truncated the file later
/// on would end the program at its next `dlopen`.
struct Known {
    address: usize,
    /// In bytes; 0: there is no site file yet, and the analysis that is asked for makes one.
    length: usize,
}

impl Known {
    fn open(state: &Fixed) -> Known {
        Self::map(state).unwrap_or(Known { address: 0, length: 0 })
    }

    fn map(state: &Fixed) -> Option<Known> {
        let (file, length) = session::open_sites(state).ok()?;
        // SAFETY: a new mapping.
        let address = unsafe { memory::map(0, length, PROT_READ, n::MAP_SHARED, file.number(), 0) }.ok()?;
        Some(Known { address, length })
    }

    fn bytes(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: mapped, read-only, until this is dropped.
        unsafe { core::slice::from_raw_parts(self.address as *const u8, self.length) }
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: the mapping of `map`, and nobody borrows from it any more.
            let _ = unsafe { memory::unmap(self.address, self.length) };
        }
    }
}

/// Bytes at `offset` of the file, as mapped; None if they lie outside the mapping.
fn mapped_bytes(mapping: Mapping, offset: u64, length: usize) -> Option<usize> {
    let inside = usize::try_from(offset.checked_sub(mapping.offset)?).ok()?;
    (inside.checked_add(length)? <= mapping.length).then_some(mapping.start + inside)
}

/// Sites of one file that are looked at; a C library has some 400.
const SITES: usize = 2048;

/// Which of a file's sites are there and wanted: one bit each. All are compared before the first is
/// written, since the bytes behind one may hold another's padding.
struct Usable([u64; SITES / 64]);

impl Usable {
    fn find(sites: &[Site], mapping: Mapping) -> Usable {
        let mut usable = Usable([0; SITES / 64]);
        for (index, site) in sites.iter().enumerate().take(SITES) {
            if wanted(site.number)
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

fn patch_mapping(state: &Fixed, sites: &[Site], mapping: Mapping, protection: u32) {
    let usable = Usable::find(sites, mapping);
    let count = usable.count();
    if count == 0 {
        return;
    }
    let Some(stubs) = stub_room(mapping, count) else {
        return;
    };
    // Execution stays possible throughout: at a late mapping other threads run other code of ours.
    // SAFETY: the file's text is private to this process; its bytes change only at proven sites.
    if unsafe { memory::protect(mapping.start, mapping.length, protection | PROT_READ | PROT_WRITE) }.is_ok()
    {
        let chosen = sites.iter().enumerate().filter(|(index, _)| usable.has(*index));
        for (place, (_, site)) in chosen.enumerate() {
            let at = (stubs + place * STUB_BYTES) as *mut [u8; STUB_BYTES];
            // SAFETY: inside the stub area, which nobody else knows.
            patch_site(state, mapping, site, unsafe { &mut *at });
        }
        // SAFETY: as it was before.
        let _ = unsafe { memory::protect(mapping.start, mapping.length, protection) };
    }
    let length = stub_bytes(count);
    // SAFETY: the stub area is complete; from here on it is only executed.
    let _ = unsafe { memory::protect(stubs, length, PROT_READ | PROT_EXEC) };
}

/// Whether the site is there and is what the site file says.
fn is_there(mapping: Mapping, site: &Site) -> bool {
    let found = |offset: u64, expected: &[u8]| {
        mapped_bytes(mapping, offset, expected.len()).is_some_and(|address| {
            // SAFETY: inside a readable mapping.
            let bytes = unsafe { core::slice::from_raw_parts(address as *const u8, expected.len()) };
            bytes == expected
        })
    };
    found(site.patch_offset, &site.expected)
        && (!site.is_short() || found(site.pad_offset, &site.expected_pad))
}

fn stub_bytes(count: usize) -> usize {
    (count * STUB_BYTES).next_multiple_of(PAGE)
}

/// Room for `count` stubs within a near jump of the mapping. Where the kernel puts mappings by itself
/// is near every library; the program's own text may lie elsewhere: then right below it (above it
/// grows the heap).
fn stub_room(mapping: Mapping, count: usize) -> Option<usize> {
    let length = stub_bytes(count);
    let below = (mapping.start & !(PAGE - 1)).saturating_sub(16 * PAGE + length);
    for hint in [0, below] {
        let flags = n::MAP_PRIVATE | n::MAP_ANONYMOUS;
        // SAFETY: a new mapping; without MAP_FIXED nothing is replaced.
        let Ok(address) = (unsafe { memory::map(hint, length, PROT_READ | PROT_WRITE, flags, -1, 0) }) else {
            return None;
        };
        let farthest = address.abs_diff(mapping.start).max(address.abs_diff(mapping.start + mapping.length));
        // The mapping's and the area's own lengths are within the slack to 2 GiB.
        if farthest < 0x7fff_0000 - length {
            return Some(address);
        }
        // SAFETY: just mapped, not used.
        let _ = unsafe { memory::unmap(address, length) };
    }
    None
}

fn patch_site(state: &Fixed, mapping: Mapping, site: &Site, stub: &mut [u8; STUB_BYTES]) {
    let distance = usize::from(site.syscall_distance);
    let Some(address) = mapped_bytes(mapping, site.patch_offset, site.expected.len()) else {
        return;
    };
    let load = match site.form {
        form::MOV_IMM32 | form::SHORT_VIA_PAD => Load::Number(site.number),
        form::DISPLACED | form::SHORT_DISPLACED => match site.expected.get(..distance) {
            Some(instruction) => Load::Displaced(instruction),
            None => return,
        },
        _ => return,
    };
    let target = stub.as_ptr() as usize;
    let state_address = state as *const Fixed as usize;
    if !arch::write_stub(stub, state_address, load, address + distance, sampled(site.number)) {
        return;
    }
    if !site.is_short() {
        if let Some(jump) = arch::near_jump(address, target) {
            // SAFETY: a proven site, writable now.
            unsafe { write_code(address, &jump) };
        }
        return;
    }
    let Some(pad) = mapped_bytes(mapping, site.pad_offset, site.expected_pad.len()) else {
        return;
    };
    if let (Some(near), Some(short)) = (arch::near_jump(pad, target), arch::short_jump(address, pad)) {
        // SAFETY: proven padding, then a proven site; the padding is complete first.
        unsafe {
            write_code(pad, &near);
            write_code(address, &short);
        }
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
