//! Unwind information for padding that is jumped through.
//!
//! A short site (`runahead_abi::sites`) leads to its stub through padding between two functions, which no
//! unwind information covers: whoever is interrupted right there could not be unwound, by an exception or a
//! cancellation. So the range of the function before is stretched over it, in the process's own copy of the
//! file's table (LSB 5.0, `.eh_frame` and `.eh_frame_hdr`). That is right where nothing is on the function's
//! stack at its end, as at its start.

use crate::patch::read_own;
use runahead_kernel::PAGE;
use runahead_kernel::memory::{self, PROT_READ, PROT_WRITE};

/// `.eh_frame_hdr`: version 1; the pointer relative to its place, the count as it is, the table relative to
/// the header.
const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const TABLE_AT: usize = 12;
const ENTRY_BYTES: usize = 8;

const LOAD: u32 = 1;
const EH_FRAME: u32 = 0x6474_e550;
const READABLE: u32 = 4;
const SEGMENT_BYTES: usize = 56;
const MOST_SEGMENTS: u16 = 64;

/// A mapped ELF file whose addresses count from `base`, where its header is.
struct Image {
    base: usize,
    segments: usize,
    count: u16,
}

fn number<const N: usize>(address: usize) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    read_own(address, &mut bytes).then_some(bytes)
}

fn word(address: usize) -> Option<u32> {
    number(address).map(u32::from_le_bytes)
}

fn signed(address: usize) -> Option<isize> {
    Some(word(address)?.cast_signed() as isize)
}

impl Image {
    fn at(base: usize) -> Option<Image> {
        let header: [u8; 64] = number(base)?;
        let (_, place) = header.split_at_checked(32)?;
        let segments = u64::from_le_bytes(*place.first_chunk()?) as usize;
        let count = u16::from_le_bytes([*header.get(56)?, *header.get(57)?]);
        let is_ours =
            header.starts_with(b"\x7fELF\x02\x01") && header.get(54..56)? == [SEGMENT_BYTES as u8, 0];
        (is_ours && count <= MOST_SEGMENTS).then_some(Image {
            base,
            segments: base.checked_add(segments)?,
            count,
        })
    }

    /// Kind, flags, address and bytes in the file of each segment.
    fn segments(&self) -> impl Iterator<Item = (u32, u32, usize, usize)> {
        (0..usize::from(self.count)).map_while(|index| {
            let bytes: [u8; SEGMENT_BYTES] = number(self.segments + index * SEGMENT_BYTES)?;
            let four = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
            let eight = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
            Some((four(0)?, four(4)?, self.base.checked_add(eight(16)?)?, eight(32)?))
        })
    }

    /// Whether the bytes from `address` on are in a segment that can only be read.
    fn only_reads(&self, address: usize, bytes: usize) -> bool {
        self.segments().any(|(kind, flags, start, length)| {
            kind == LOAD
                && flags == READABLE
                && address >= start
                && address + bytes <= start.saturating_add(length)
        })
    }
}

/// Sees to it that unwinding works at each of the five bytes from `padding` on, for the function that the
/// code at `site` belongs to. `base`: where the file's header is mapped. False if it does not.
pub fn cover(base: usize, site: usize, padding: usize) -> bool {
    stretch(base, site, padding).is_some()
}

fn stretch(base: usize, site: usize, padding: usize) -> Option<()> {
    let image = Image::at(base)?;
    let (_, _, header, _) = image.segments().find(|segment| segment.0 == EH_FRAME)?;
    if number(header)? != HEADER {
        return None;
    }
    let count = word(header + 8)? as usize;
    let entry = |index: usize| header + TABLE_AT + index * ENTRY_BYTES;
    let start_of = |index: usize| Some(header.wrapping_add_signed(signed(entry(index))?));
    // The last function that begins at the site, or before it.
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if start_of(middle)? <= site { low = middle + 1 } else { high = middle }
    }
    let index = low.checked_sub(1)?;
    let start = start_of(index)?;
    let description = header.wrapping_add_signed(signed(entry(index) + 4)?);
    let (begin_at, range_at) = (description + 8, description + 12);
    let range = word(range_at)? as usize;
    let end = start.checked_add(range)?;
    let wanted = padding.checked_add(runahead_abi::sites::NEAR_JUMP)?;
    let is_right = begin_at.wrapping_add_signed(signed(begin_at)?) == start && (start..end).contains(&site);
    if !is_right || padding < end && wanted > end || padding < start {
        return None;
    }
    if wanted <= end {
        return Some(());
    }
    if index + 1 < count && start_of(index + 1)? < wanted || !image.only_reads(range_at, 4) {
        return None;
    }
    let longer = u32::try_from(wanted - start).ok()?;
    let page = range_at & !(PAGE - 1);
    let bytes = (range_at + 4).next_multiple_of(PAGE) - page;
    // SAFETY: a part of the file's table, private to this process. It can be read throughout. Four bytes of
    // it change; any reader finds the old range or the new one.
    unsafe {
        memory::protect(page, bytes, PROT_READ | PROT_WRITE).ok()?;
        (range_at as *mut u32).write_unaligned(longer);
        memory::protect(page, bytes, PROT_READ).ok()
    }
}
