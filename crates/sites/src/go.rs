//! Functions of a Go program, by the table that its own run-time finds them in, which is there where symbols
//! have been stripped: Go's linker writes unwind information for nothing but what is C (runtime/symtab.go,
//! debug/gosym).
//!
//! From Go 1.18 on its addresses are distances from where the run-time's code begins, which the table says
//! itself, and from 1.26 on the description of the program that leads to it (`runtime.moduledata`).
//!
//! A function lasts there until the next one begins, with the traps between them.

use memchr::memmem;
use object::elf::{R_X86_64_RELATIVE, SHF_ALLOC};
use object::read::elf::{ElfFile64, Rela as _, SectionHeader as _};
use object::{LittleEndian, Object as _, ObjectSection as _, ReadRef as _};

use crate::image::{Cached, Code};
use crate::source::Source;

type Elf<'data> = ElfFile64<'data, LittleEndian, &'data Cached>;

/// How the section is called, also where its addresses are relocated.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// Where the description is, and where in it the table's address is, the least and the greatest address of a
/// function, and what distances are counted from; bytes.
const MODULE: &str = ".go.module";
const MODULE_TABLE: u64 = 0;
const MODULE_LEAST: u64 = 160;
const MODULE_MOST: u64 = 168;
const MODULE_TEXT: u64 = 176;

/// A section that every program of Go's has, and that in which C's linker puts what is relocated.
const BUILT_BY_GO: &str = ".go.buildinfo";
const RELOCATED: &str = ".data.rel.ro";

/// How a table begins: with a word for its layout, two zeros, the size of the least instruction, and that of a
/// pointer.
const MAGICS: [u32; 4] = [0xffff_fff0, 0xffff_fff1, 0xffff_fffa, 0xffff_fffb];
const SIZES: [u8; 4] = [0, 0, 1, 8];

/// What its address is a multiple of, bytes.
const ALIGNED: u64 = 8;

/// Bytes that are searched at a time, and places that are looked at.
const PIECE: usize = 256 << 10;
const PLACES_MOST: usize = 16;

/// Bytes of the table's head that are looked at.
const HEAD: usize = 72;

/// Bytes that a function has at least, with the traps behind it: fewer than any has, as C's may be among them.
const FUNCTION_LEAST: u64 = 4;

/// Where in its head a table says things, bytes; which of these there are is said by its first word.
struct Layout {
    /// Where addresses are counted from; None: from 0.
    text: Option<usize>,
    /// Where it is said where the functions stand, bytes from the table's start; None: behind their number.
    functions: Option<usize>,
    /// Bytes of an address, of which there are two for each function.
    word: usize,
}

/// Where the number of functions stands.
const COUNT: usize = 8;

impl Layout {
    /// None: no such table, or one of a release that is not known.
    fn of(head: &[u8]) -> Option<Layout> {
        if head.get(4..8)? != SIZES {
            return None;
        }
        let [text, functions, word] = match number(head, 0, 4)? {
            0xffff_fff0 | 0xffff_fff1 => [Some(24), Some(64), Some(4)],
            0xffff_fffa => [None, Some(56), Some(8)],
            0xffff_fffb => [None, None, Some(8)],
            _ => return None,
        };
        Some(Layout { text, functions, word: word? })
    }
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// Start and end of each function, in order and disjoint; none where the file has no such table, or one that
/// contradicts itself, or the `code`. `again`: the same file, for what is read past the cache.
pub fn functions(elf: &Elf<'_>, again: &Source, code: &[Code<'_>]) -> Vec<(u64, u64)> {
    let named = SECTIONS.iter().find_map(|name| elf.section_by_name(name));
    let places = match named.as_ref().and_then(Place::of) {
        Some(place) => vec![place],
        None => places_among_data(elf, again).unwrap_or_default(),
    };
    let found = places.iter().filter_map(|place| read(elf, place, code));
    found.max_by_key(Vec::len).unwrap_or_default()
}

/// Whether Go has built the file.
pub fn has_built(elf: &Elf<'_>) -> bool {
    elf.section_by_name(BUILT_BY_GO).is_some()
}

/// Where a table may be.
struct Place {
    address: u64,
    offset: u64,
    /// Bytes from there to the end of its section.
    size: u64,
}

impl Place {
    fn of<'data>(section: &impl object::ObjectSection<'data>) -> Option<Place> {
        let (offset, size) = section.file_range()?;
        Some(Place { address: section.address(), offset, size })
    }
}

/// Where C's linker has joined it with other data that are relocated: what begins as a table does, in a
/// program of Go's.
fn places_among_data(elf: &Elf<'_>, again: &Source) -> Option<Vec<Place>> {
    let data = Place::of(&elf.section_by_name(RELOCATED).filter(|_| has_built(elf))?)?;
    let finders = MAGICS.map(|magic| {
        let begin = [&magic.to_le_bytes()[..], &SIZES].concat();
        memmem::Finder::new(&begin).into_owned()
    });
    let mut places = Vec::new();
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < data.size {
        let length = PIECE.min(usize::try_from(data.size - at).ok()?);
        let bytes = piece.get_mut(..length)?;
        again.read_exact_at(bytes, data.offset.checked_add(at)?).ok()?;
        for found in finders.iter().flat_map(|finder| finder.find_iter(bytes)) {
            let from = at + found as u64;
            let address = data.address.checked_add(from)?;
            if address.is_multiple_of(ALIGNED) && places.len() < PLACES_MOST {
                places.push(Place {
                    address,
                    offset: data.offset.checked_add(from)?,
                    size: data.size - from,
                });
            }
        }
        // One may lie across the border of two pieces; pieces begin where tables may.
        at += (length as u64).saturating_sub(ALIGNED).max(ALIGNED);
    }
    Some(places)
}

fn read(elf: &Elf<'_>, place: &Place, code: &[Code<'_>]) -> Option<Vec<(u64, u64)>> {
    let part = |at: u64, length: u64| {
        let is_inside = at.checked_add(length).is_some_and(|end| end <= place.size);
        let from = place.offset.checked_add(at).filter(|_| is_inside)?;
        elf.data().read_bytes_at(from, length).ok()
    };
    let head = part(0, HEAD as u64)?;
    let layout = Layout::of(head)?;
    let bytes: u64 = code.iter().map(|code| code.end() - code.address).sum();
    let count = number(head, COUNT, 8).filter(|&count| count <= bytes / FUNCTION_LEAST)?;
    let start = match layout.functions {
        Some(at) => number(head, at, 8)?,
        None => COUNT as u64 + 8,
    };
    // Behind the last one stands where that ends.
    let table = part(start, (2 * count + 1) * layout.word as u64)?;
    let base = match layout.text {
        None => 0,
        Some(at) => {
            let said = number(head, at, 8).filter(|&text| text != 0);
            let said = said.or_else(|| relocated(elf, place.address.checked_add(at as u64)?));
            said.or_else(|| text_of_module(elf, place.address, table, &layout))?
        }
    };
    let ranges = ranges(table, base, &layout)?;
    let (first, last) = (ranges.first()?.0, ranges.last()?.1);
    code.iter().any(|code| code.contains(first) && last <= code.end()).then_some(ranges)
}

/// What distances are counted from, by a description that says the same as the table.
fn text_of_module(elf: &Elf<'_>, table_address: u64, table: &[u8], layout: &Layout) -> Option<u64> {
    let section = elf.section_by_name(MODULE)?;
    let (offset, size) = section.file_range()?;
    let word = |at: u64| {
        let stands = || number(elf.data().read_bytes_at(offset.checked_add(at)?, 8).ok()?, 0, 8);
        let is_inside = at + 8 <= size;
        relocated(elf, section.address().checked_add(at)?).or_else(stands).filter(|_| is_inside)
    };
    let text = word(MODULE_TEXT)?;
    let first = text.checked_add(number(table, 0, layout.word)?)?;
    let last = text.checked_add(number(table, table.len().checked_sub(layout.word)?, layout.word)?)?;
    let agrees =
        word(MODULE_TABLE)? == table_address && word(MODULE_LEAST)? == first && word(MODULE_MOST)? == last;
    agrees.then_some(text)
}

/// None where a function begins before the one before it.
fn ranges(table: &[u8], base: u64, layout: &Layout) -> Option<Vec<(u64, u64)>> {
    let address = |entry: &[u8]| base.checked_add(number(entry, 0, layout.word)?);
    let starts = || table.chunks(2 * layout.word).map(address);
    let ranges = || starts().zip(starts().skip(1)).map(|(start, end)| Some((start?, end?)));
    // Before there is room for them.
    let are_in_order = ranges().all(|range| range.is_some_and(|(start, end)| start < end));
    if are_in_order { ranges().collect() } else { None }
}

/// What the loader puts at an address in a file that is loaded anywhere.
fn relocated(elf: &Elf<'_>, address: u64) -> Option<u64> {
    elf.elf_section_table().iter().find_map(|header| {
        if header.sh_flags(LittleEndian).0 & SHF_ALLOC.0 == 0 {
            return None;
        }
        let (relocations, _) = header.rela(LittleEndian, elf.data()).ok()??;
        let found = relocations.iter().find(|relocation| relocation.r_offset(LittleEndian) == address)?;
        let is_plain = found.r_type(LittleEndian, false) == R_X86_64_RELATIVE;
        u64::try_from(found.r_addend(LittleEndian)).ok().filter(|_| is_plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(magic: u32) -> Vec<u8> {
        [&magic.to_le_bytes()[..], &[0, 0, 1, 8], &[0; HEAD - 8]].concat()
    }

    #[test]
    fn tables_of_known_releases_are_read() {
        let word = |magic| Layout::of(&head(magic)).map(|layout| layout.word);
        assert_eq!([0xffff_fff0, 0xffff_fff1, 0xffff_fffa, 0xffff_fffb].map(word), [4, 4, 8, 8].map(Some));
        assert_eq!([0, 0xffff_fff2, 0xf0ff_ffff].map(word), [None; 3]);
        let mut narrow = head(0xffff_fff1);
        narrow[7] = 4;
        assert!(Layout::of(&narrow).is_none() && Layout::of(&narrow[..6]).is_none());
    }

    #[test]
    fn functions_last_until_the_next_one_begins() {
        let layout = Layout::of(&head(0xffff_fff1)).unwrap();
        let table = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let found = ranges(&table(&[0, 9, 32, 9, 96]), 0x1000, &layout);
        assert_eq!(found, Some(vec![(0x1000, 0x1020), (0x1020, 0x1060)]));
        assert_eq!(ranges(&table(&[0, 9, 32, 9, 32]), 0x1000, &layout), None, "one begins where it ends");
        assert_eq!(ranges(&table(&[32, 9, 0, 9, 96]), 0x1000, &layout), None, "one begins before");
        assert_eq!(ranges(&table(&[0, 9, 32]), u64::MAX, &layout), None, "past the last address");
        assert_eq!(ranges(&table(&[7]), 0, &layout), Some(Vec::new()));
        assert_eq!(ranges(&table(&[0, 9, 32, 9, 96])[..18], 0, &layout), None, "cut off");
    }
}
