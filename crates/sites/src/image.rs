//! What an ELF file says about itself: executable ranges, and where its functions start and end.
//!
//! Everything in the file is untrusted: numbers are checked against the ranges they index, ranges that
//! contradict each other are marked and never used. Only the parts that are needed are read, and they
//! are read, not mapped: a file that is cut short meanwhile ends in an error, not in a signal.

use std::collections::HashMap;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, LittleEndian, UnwindSection};
use iced_x86::{Decoder, DecoderOptions};
use memchr::memmem;
use object::elf::{
    DT_FINI, DT_INIT, DT_RELASZ, DT_RELRSZ, EM_X86_64, ET_EXEC, PF_X, PT_DYNAMIC, PT_GNU_EH_FRAME, PT_INTERP,
    SHF_ALLOC, SHF_EXECINSTR, SHT_DYNAMIC, SHT_NOBITS,
};
use object::read::elf::{
    Dyn as _, ElfFile64, FileHeader as _, ProgramHeader as _, Rela as _, SectionHeader as _, Sym as _,
};
use object::{
    LittleEndian as ElfEndian, Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache, ReadRef as _,
    SectionFlags, SegmentFlags, SymbolKind,
};

use crate::forms::SYSCALL;
use crate::go;
use crate::landing;
use crate::outside::Listed;
use crate::source::Source;
use crate::sweep::{CODE_LIMIT as SWEEP_LIMIT, Given, Nothing, Section, Swept, is_in, sweep};

/// The file, with a cache of what is looked at again.
pub type Cached = ReadCache<Source>;

type Elf<'data> = ElfFile64<'data, ElfEndian, &'data Cached>;

/// One executable segment: its bytes, where they are in memory and where in the file.
pub struct Code<'data> {
    pub address: u64,
    pub file_offset: u64,
    size: u64,
    content: Content<'data>,
}

/// How the bytes of a segment are had.
enum Content<'data> {
    Whole(&'data [u8]),
    /// Piece by piece: little of a large segment is looked at, and to read it all takes memory as large
    /// and three times as long as to search it.
    Pieces(&'data Cached, &'data Source),
}

/// A segment with more bytes than this is read in pieces.
const WHOLE_MOST: u64 = 4 << 20;

/// Bytes that are asked for before they are read: whoever waits for the analysis does not wait for one request
/// after the other.
const AHEAD: u64 = 8 << 20;

/// Bytes that are searched at a time: they stay in the processor's cache.
const PIECE: usize = 256 << 10;

impl<'data> Code<'data> {
    pub fn end(&self) -> u64 {
        self.address + self.size
    }

    /// At most so many bytes before an address.
    pub fn before(&self, address: u64, most: u64) -> &'data [u8] {
        self.slice(address.saturating_sub(most).max(self.address), address).unwrap_or_default()
    }

    /// At most so many bytes from an address on. None: they cannot be read any more.
    pub fn from(&self, address: u64, most: u64) -> Option<&'data [u8]> {
        self.slice(address, address.saturating_add(most).min(self.end()))
    }

    /// Where this pair of bytes occurs: addresses, in order. None: the file cannot be read to the segment's
    /// end any more.
    fn find(&self, pair: &[u8; 2]) -> Option<Vec<u64>> {
        let finder = memmem::Finder::new(pair);
        let mut found = Vec::new();
        // A pair may lie across the border of two pieces.
        self.each_piece(1, |address, bytes| {
            found.extend(finder.find_iter(bytes).map(|at| address + at as u64));
        })?;
        Some(found)
    }

    /// Calls `action` with all of the segment, in pieces of which each begins with the last `common` bytes of
    /// the one before, and with their addresses. None: the file cannot be read to the segment's end any more.
    pub fn each_piece(&self, common: u64, mut action: impl FnMut(u64, &[u8])) -> Option<()> {
        match self.content {
            Content::Whole(bytes) => action(self.address, bytes),
            Content::Pieces(_, file) => {
                let mut piece = vec![0; PIECE];
                let mut at = 0;
                file.will_read(self.file_offset, AHEAD.min(self.size));
                while at + common < self.size {
                    let length = PIECE.min((self.size - at) as usize);
                    let bytes = piece.get_mut(..length)?;
                    if let Some(left) = self.size.checked_sub(at + AHEAD) {
                        file.will_read(self.file_offset + at + AHEAD, left.min(length as u64));
                    }
                    file.read_exact_at(bytes, self.file_offset + at).ok()?;
                    action(self.address + at, bytes);
                    at += length as u64 - common;
                }
            }
        }
        Some(())
    }

    pub fn contains(&self, address: u64) -> bool {
        (self.address..self.end()).contains(&address)
    }

    /// The bytes from `start` to `end` (addresses), if all of them are in the segment.
    pub fn slice(&self, start: u64, end: u64) -> Option<&'data [u8]> {
        let (from, to) = (start.checked_sub(self.address)?, end.checked_sub(self.address)?);
        if from > to || to > self.size {
            return None;
        }
        match self.content {
            Content::Whole(bytes) => bytes.get(usize::try_from(from).ok()?..usize::try_from(to).ok()?),
            Content::Pieces(file, _) => file.read_bytes_at(self.file_offset + from, to - from).ok(),
        }
    }

    pub fn file_offset_of(&self, address: u64) -> u64 {
        self.file_offset + (address - self.address)
    }
}

/// A function's range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub start: u64,
    pub end: u64,
    /// It is said to last until the next one begins: the linker's traps are at its end.
    pub has_traps: bool,
    /// Where exceptions land in it, which nothing in its instructions points at.
    pub lands: Lands,
    /// A signal trampoline: its range starts one byte early, for the unwinders' sake.
    pub trampoline: bool,
    /// Overlaps another range: one of them is wrong, so neither is used.
    pub contradicted: bool,
    /// A symbol alone tells of it.
    pub is_named: bool,
}

/// Where exceptions land in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lands {
    Nowhere,
    /// Where the table at this address says.
    Table(u64),
    Anywhere,
}

impl Lands {
    /// Where two tables tell of one function.
    fn and(self, other: Lands) -> Lands {
        match (self, other) {
            (Lands::Nowhere, lands) | (lands, Lands::Nowhere) => lands,
            (one, other) if one == other => one,
            _ => Lands::Anywhere,
        }
    }
}

/// All that the analysis needs to know of a file.
pub struct Image<'data> {
    pub code: Vec<Code<'data>>,
    /// Sorted by start; disjoint but for those marked as contradicted.
    pub functions: Vec<Range>,
    /// Addresses of all symbols in executable code, sorted.
    pub symbols: Vec<u64>,
    /// Addresses of the symbols that are functions, sorted.
    pub entries: Vec<u64>,
    /// Ranges of addresses that hold instructions, by the section headers; by the segments without. Sorted,
    /// disjoint.
    pub instruction_sections: Vec<(u64, u64)>,
    /// It is a program by itself, without a loader: its C library is a part of it.
    pub is_static: bool,
    /// Go has built it.
    pub is_go: bool,
    /// What of its code is proven at once ([`crate::sweep`]).
    pub swept: Option<Swept>,
    /// Where the two bytes of `syscall` stand in executable segments; sorted.
    pub calls: Vec<u64>,
    /// What is in memory of the file that is no code: addresses, bytes, and where it is in the file.
    data: Vec<(u64, u64, u64)>,
    /// Read past the cache: each piece is wanted once.
    file: &'data Source,
}

/// Why there is nothing to analyse.
#[derive(Debug)]
pub enum NoImage {
    /// Not an ELF64 x86-64 executable or shared object, or a broken one: there is nothing to patch.
    NotForUs,
    /// Has more code, or in more pieces, than a sane file.
    TooLarge,
}

/// More executable bytes than this are not analysed: the largest programs known (browsers) have a
/// third of it, and reading it must not exhaust the machine's memory.
const CODE_LIMIT: u64 = 512 << 20;

/// Real files have one executable segment, a few tools make two.
const SEGMENT_LIMIT: usize = 16;

impl<'data> Image<'data> {
    /// `again`: the same file once more, for what is read past `file`'s cache.
    pub fn parse(file: &'data Cached, again: &'data Source) -> Result<Image<'data>, NoImage> {
        let elf = Elf::parse(file).map_err(|_| NoImage::NotForUs)?;
        let header = elf.elf_header();
        if header.e_machine(ElfEndian) != EM_X86_64 {
            return Err(NoImage::NotForUs);
        }
        let code = executable_segments(&elf, file, again)?;
        let mut calls = Vec::new();
        for segment in &code {
            calls.extend(segment.find(&SYSCALL).ok_or(NoImage::NotForUs)?);
        }
        calls.sort_unstable();
        let (symbols, entries, sized) = symbols_in(&elf, &code);
        let mut functions = unwind_ranges(&elf, &code);
        add_ranges(&mut functions, sized, Teller::Symbol);
        let of_go = go::functions(&elf, again, &code);
        for function in functions.iter_mut().filter(|function| function.is_named) {
            function.is_named = of_go.binary_search_by_key(&function.start, |(start, _)| *start).is_err();
        }
        add_ranges(&mut functions, of_go, Teller::Go);
        mark_contradictions(&mut functions);
        let instruction_sections = instruction_sections(&elf, &code);
        let segments = elf.elf_program_headers();
        let is_interpreted = segments.iter().any(|segment| segment.p_type(ElfEndian) == PT_INTERP);
        let is_static = header.e_entry(ElfEndian) != 0 && !is_interpreted;
        Ok(Image {
            code,
            functions,
            symbols,
            entries,
            instruction_sections,
            is_static,
            is_go: go::has_built(&elf),
            swept: None,
            calls,
            data: data_segments(&elf),
            file: again,
        })
    }

    /// Looks at all of the code at once, in the place of what tables say. Nothing changes where that proves
    /// nothing.
    pub fn sweep(&mut self, file: &'data Cached) {
        // Nothing in the instructions points at a landing pad.
        if self.functions.iter().any(|function| function.lands != Lands::Nowhere) {
            return;
        }
        let Ok(elf) = Elf::parse(file) else { return };
        let Some((sections, mut addresses)) = sections_and_pointers(&elf, file) else { return };
        let listed = self.functions.iter().filter(|function| !function.trampoline);
        addresses.extend(listed.map(|function| function.start));
        self.add_entrances(&elf, &mut addresses);
        let load = |section: Section<'data>| if section.is_code { section.loaded() } else { Some(section) };
        let Some(sections) = sections.into_iter().map(load).collect::<Option<Vec<_>>>() else { return };
        let swept = sweep(&sections, &Given { addresses, ..Given::default() }, &Nothing, false);
        self.take(swept, Vec::new());
    }

    /// Looks, in a program that has its C library in it, at all of the code at once that makes system calls
    /// and has no table that tells its functions. The same holds.
    pub fn sweep_unlisted(&mut self, file: &'data Cached) {
        let Ok(elf) = Elf::parse(file) else { return };
        let listed: Vec<Range> =
            self.functions.iter().copied().filter(|function| !function.is_named).collect();
        let Some(stretches) = self.unlisted(&listed).filter(|stretches| !stretches.is_empty()) else {
            return;
        };
        let size: u64 = stretches.iter().map(|(start, end)| end - start).sum();
        if size > SWEEP_LIMIT as u64 {
            return;
        }
        let Some((mut sections, addresses)) = sections_and_pointers(&elf, file) else { return };
        sections.retain(|section| !section.is_code);
        let mut entrances = self.entries.clone();
        entrances.push(elf.elf_header().e_entry(ElfEndian));
        let mut given = Given { addresses, entrances, ..Given::default() };
        let is_fixed = elf.elf_header().e_type(ElfEndian) == ET_EXEC;
        let stretch = |&(start, end): &(u64, u64)| {
            let bytes = self.code_at(start)?.slice(start, end)?;
            Some(Section::code(start, bytes))
        };
        let Some(code) = stretches.iter().map(stretch).collect::<Option<Vec<_>>>() else { return };
        sections.extend(code);
        if is_fixed {
            // Tables of addresses stand among instructions as well.
            let Some(numbers) = self.numbers(&elf, &sections, &stretches) else { return };
            given.numbers = numbers;
        }
        self.add_entrances(&elf, &mut given.addresses);
        let contradicted = listed.iter().filter(|function| function.contradicted);
        let contradicted = merged(contradicted.map(|function| (function.start, function.end)).collect());
        let outside = Listed {
            image: self,
            functions: &listed,
            contradicted: &contradicted,
            stretches: &stretches,
            is_fixed,
        };
        let swept = sweep(&sections, &given, &outside, is_fixed);
        let mut kept = self.functions.clone();
        let is_apart = |function: &Range| {
            swept.as_ref().is_none_or(|swept| !swept.touches(function.start, function.end))
        };
        kept.retain(is_apart);
        self.take(swept, kept);
    }

    /// Numbers that may be addresses in these stretches, where a file is loaded where it says. Nobody
    /// relocates them, so nothing tells which they are, nor where they are: structures may be packed. None:
    /// they cannot be read.
    fn numbers(&self, elf: &Elf<'_>, sections: &[Section<'_>], stretches: &[(u64, u64)]) -> Option<Vec<u64>> {
        let mut numbers = Vec::new();
        let mut look = |bytes: &[u8]| {
            let words = bytes.windows(size_of::<u64>()).filter_map(|word| word.first_chunk());
            let addresses = words.map(|word| u64::from_le_bytes(*word));
            numbers.extend(addresses.filter(|number| is_in(stretches, *number)));
        };
        for segment in elf.segments() {
            let SegmentFlags::Elf { p_flags, .. } = segment.flags() else { continue };
            let (offset, size) = segment.file_range();
            if p_flags.0 & PF_X.0 != 0 || size == 0 {
                continue;
            }
            if offset.checked_add(size)? > elf.data().len().ok()? {
                return None;
            }
            let mut bytes = vec![0; usize::try_from(size).ok()?];
            self.file.read_exact_at(&mut bytes, offset).ok()?;
            look(&bytes);
        }
        let beside_code = |section: &&Section<'_>| self.code_at(section.address).is_some();
        for section in sections.iter().filter(beside_code) {
            look(section.bytes());
        }
        Some(numbers)
    }

    fn add_entrances(&self, elf: &Elf<'_>, given: &mut Vec<u64>) {
        given.extend(&self.symbols);
        given.push(elf.elf_header().e_entry(ElfEndian));
    }

    /// `kept`: functions that were not swept.
    fn take(&mut self, swept: Option<Swept>, mut kept: Vec<Range>) {
        let is_whole = |range: &Range| {
            self.code.iter().any(|code| code.contains(range.start) && range.end <= code.end())
        };
        let Some(mut swept) = swept.filter(|swept| swept.functions.iter().all(is_whole)) else { return };
        kept.append(&mut swept.functions);
        kept.sort_unstable_by_key(|function| function.start);
        self.functions = kept;
        self.swept = Some(swept);
    }

    /// The stretches between functions that are listed which have to be looked at: system calls may be made
    /// there, or what stands there is not one instruction behind the other, so that nobody can say what else
    /// it does. Sorted. None: the file cannot be read any more.
    fn unlisted(&self, listed: &[Range]) -> Option<Vec<(u64, u64)>> {
        /// Between functions there are fewer bytes than this of what fills up to where the next one begins.
        const PADDING: u64 = 16;
        let mut wanted = Vec::new();
        let mut makes_calls = false;
        for (start, end) in self.gaps(listed) {
            let call = self.calls.partition_point(|call| *call < start);
            let calls = self.calls.get(call).is_some_and(|call| *call < end);
            makes_calls |= calls;
            let has_data =
                || Some(end - start >= PADDING && !are_instructions(self.code_at(start)?.slice(start, end)?));
            if calls || has_data()? {
                wanted.push((start, end));
            }
        }
        // Without any there is nothing to prove.
        Some(if makes_calls { wanted } else { Vec::new() })
    }

    /// What lies in sections of instructions, and in no function that is listed; sorted.
    fn gaps(&self, listed: &[Range]) -> Vec<(u64, u64)> {
        let covered = merged(listed.iter().map(|function| (function.start, function.end)).collect());
        let mut gaps = Vec::new();
        for &(first, end) in &self.instruction_sections {
            let mut start = first;
            let from = covered.partition_point(|(_, after)| *after <= first);
            let within = covered[from..].iter().copied().take_while(|(next, _)| *next < end);
            for (next, after) in within.chain([(end, end)]) {
                if start < next {
                    gaps.push((start, next));
                }
                start = start.max(after);
            }
        }
        gaps
    }

    /// Where exceptions land in a function, in order. None: nobody knows.
    pub fn landing_pads(&self, function: &Range) -> Option<Vec<u64>> {
        let table = match function.lands {
            Lands::Nowhere => return Some(Vec::new()),
            Lands::Table(address) => address,
            Lands::Anywhere => return None,
        };
        let holds =
            |(start, size, _): &&(u64, u64, u64)| table.checked_sub(*start).is_some_and(|at| at < *size);
        let (start, size, offset) = self.data.iter().find(holds)?;
        let at = table - start;
        let mut bytes = vec![0; landing::MAX_BYTES.min(size - at) as usize];
        self.file.read_exact_at(&mut bytes, offset + at).ok()?;
        landing::pads(&bytes, function.start, function.end)
    }

    /// Whether what stands at this address, in no function, may be executed from there. None: nobody knows.
    pub fn is_executed(&self, address: u64) -> Option<bool> {
        self.swept.as_ref()?.is_executed(address)
    }

    /// What was swept, if that is code at this address.
    pub fn swept_at(&self, address: u64) -> Option<&Swept> {
        self.swept.as_ref().filter(|swept| swept.covers(address))
    }

    /// The position of the function that holds `address`.
    pub fn function_at(&self, address: u64) -> Option<usize> {
        let next = self.functions.partition_point(|f| f.start <= address);
        let index = next.checked_sub(1)?;
        (address < self.functions[index].end).then_some(index)
    }

    pub fn code_at(&self, address: u64) -> Option<&Code<'data>> {
        self.code.iter().find(|code| code.contains(address))
    }

    pub fn holds_instructions(&self, address: u64) -> bool {
        is_in(&self.instruction_sections, address)
    }
}

/// Whether the file is the GNU C library, or what was its part for threads before 2.34.
pub fn is_c_library(file: &Cached) -> bool {
    const NAMES: [&[u8]; 3] = [b"__libc_start_main", b"__pthread_initialize_minimal", b"_rtld_global"];
    has_dynamic_symbol(file, &NAMES, true) && !is_musl(file)
}

/// Whether the file is musl's C library, which is its loader as well.
pub fn is_musl(file: &Cached) -> bool {
    const NAMES: [&[u8]; 1] = [b"_dlstart"];
    has_dynamic_symbol(file, &NAMES, true)
}

/// Address of a function that others may call by this name.
pub fn function_named(file: &Cached, name: &[u8]) -> Option<u64> {
    let elf = Elf::parse(file).ok()?;
    let mut symbols = elf.dynamic_symbols().filter(|symbol| symbol.name_bytes() == Ok(name));
    let symbol = symbols.find(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)?;
    Some(symbol.address())
}

/// What is in memory of the file as it stands there, and the addresses that it tells its loader. None: not all
/// of it is in sections.
fn sections_and_pointers<'data>(
    elf: &Elf<'data>,
    file: &'data Cached,
) -> Option<(Vec<Section<'data>>, Vec<u64>)> {
    let mut sections = Vec::new();
    let mut pointers = Vec::new();
    // Places whose content is a pointer before it is relocated; and bytes, of both kinds of relocations.
    let mut places = Vec::new();
    let (mut bytes_found, mut bytes_said) = (0_u64, 0_u64);
    for header in elf.elf_section_table().iter() {
        let flags = header.sh_flags(ElfEndian);
        let is_in_memory = flags.0 & SHF_ALLOC.0 != 0;
        let is_code = flags.0 & SHF_EXECINSTR.0 != 0;
        if let Some((relocations, _)) = header.rela(ElfEndian, file).ok()? {
            bytes_found = header
                .sh_size(ElfEndian)
                .checked_add(bytes_found)
                .filter(|_| is_in_memory)
                .unwrap_or(bytes_found);
            for relocation in relocations {
                let index = relocation.symbol(ElfEndian, false);
                let symbol = match index {
                    Some(index) => elf.elf_dynamic_symbol_table().symbol(index).ok()?.st_value(ElfEndian),
                    None => 0,
                };
                pointers.push(symbol.wrapping_add_signed(relocation.r_addend(ElfEndian)));
            }
        }
        if let Some(relocations) = header.relr(ElfEndian, file).ok()? {
            bytes_found = header.sh_size(ElfEndian).checked_add(bytes_found)?;
            places.extend(relocations);
        }
        for entry in header.dynamic(ElfEndian, file).ok()?.map_or(&[][..], |(entries, _)| entries) {
            match entry.d_tag(ElfEndian) {
                DT_INIT | DT_FINI => pointers.push(entry.d_val(ElfEndian)),
                DT_RELASZ | DT_RELRSZ => bytes_said = entry.d_val(ElfEndian).checked_add(bytes_said)?,
                _ => {}
            }
        }
        if !is_in_memory || header.sh_type(ElfEndian) == SHT_NOBITS {
            if is_code {
                return None;
            }
            continue;
        }
        let (address, offset, size) =
            (header.sh_addr(ElfEndian), header.sh_offset(ElfEndian), header.sh_size(ElfEndian));
        address.checked_add(size)?;
        let end = offset.checked_add(size)?;
        if end > file.len().ok()? {
            return None;
        }
        if size != 0 {
            sections.push(Section::stored(address, is_code, file, offset, size));
        }
    }
    let has_dynamic = elf.elf_program_headers().iter().any(|header| header.p_type(ElfEndian) == PT_DYNAMIC);
    let has_section = || {
        let is_dynamic =
            |header: &object::elf::SectionHeader64<ElfEndian>| header.sh_type(ElfEndian) == SHT_DYNAMIC;
        elf.elf_section_table().iter().any(is_dynamic)
    };
    if sections.is_empty() || bytes_found < bytes_said || has_dynamic && !has_section() {
        return None;
    }
    places.sort_unstable();
    sections.sort_unstable_by_key(|section| section.address);
    for place in places {
        let next = sections.partition_point(|section| section.address <= place);
        let section = next.checked_sub(1).map(|last| &sections[last]);
        let section = section?;
        let word = section.bytes().get(usize::try_from(place.checked_sub(section.address)?).ok()?..)?;
        pointers.push(u64::from_le_bytes(*word.first_chunk()?));
    }
    Some((sections, pointers))
}

/// Whether one instruction stands behind the other here, to the last byte.
fn are_instructions(bytes: &[u8]) -> bool {
    Decoder::new(64, bytes, DecoderOptions::NONE).iter().all(|instruction| !instruction.is_invalid())
}

/// Whether frames of the file have something to be done when they are unwound by an exception or a
/// cancellation: it names what the compilers of C++, and of C with clean-ups, have done that by.
pub fn unwinds(file: &Cached) -> bool {
    const NAMES: [&[u8]; 2] = [b"__gxx_personality_v0", b"__gcc_personality_v0"];
    has_dynamic_symbol(file, &NAMES, false)
}

/// Whether the file names one of these, or, if it must, defines it.
fn has_dynamic_symbol(file: &Cached, names: &[&[u8]], defines: bool) -> bool {
    let Ok(elf) = Elf::parse(file) else {
        return false;
    };
    let table = elf.elf_dynamic_symbol_table();
    // Read at once: asked for one by one, each name is a read of the file.
    let section = elf.elf_section_table().section(table.string_section());
    let Ok(strings) = section.and_then(|section| section.data(ElfEndian, file)) else { return false };
    table.iter().any(|symbol| {
        let name = strings.get(symbol.st_name(ElfEndian) as usize..).unwrap_or_default();
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        names.contains(&name) && (!defines || symbol.is_definition(ElfEndian, table.strings()))
    })
}

fn executable_segments<'data>(
    elf: &Elf<'data>,
    file: &'data Cached,
    again: &'data Source,
) -> Result<Vec<Code<'data>>, NoImage> {
    let mut code = Vec::new();
    let mut total = 0u64;
    for segment in elf.segments() {
        let SegmentFlags::Elf { p_flags, .. } = segment.flags() else {
            continue;
        };
        let (file_offset, size) = segment.file_range();
        if p_flags.0 & PF_X.0 == 0 || size == 0 {
            continue;
        }
        total = total.saturating_add(size);
        if total > CODE_LIMIT || code.len() == SEGMENT_LIMIT {
            return Err(NoImage::TooLarge);
        }
        let address = segment.address();
        let is_there =
            file_offset.checked_add(size).is_some_and(|end| file.len().is_ok_and(|length| end <= length));
        if !is_there || address.checked_add(size).is_none() {
            return Err(NoImage::NotForUs);
        }
        let content = match size {
            0..=WHOLE_MOST => Content::Whole(segment.data().map_err(|_| NoImage::NotForUs)?),
            _ => Content::Pieces(file, again),
        };
        code.push(Code { address, file_offset, size, content });
    }
    Ok(code)
}

fn data_segments(elf: &Elf<'_>) -> Vec<(u64, u64, u64)> {
    let sound = |segment: object::read::elf::ElfSegment64<'_, '_, ElfEndian, &Cached>| {
        let (offset, size) = segment.file_range();
        let (address, length) = (segment.address(), elf.data().len().ok()?);
        let is_sound =
            address.checked_add(size).is_some() && offset.checked_add(size).is_some_and(|end| end <= length);
        is_sound.then_some((address, size, offset))
    };
    elf.segments().filter_map(sound).collect()
}

fn instruction_sections(elf: &Elf<'_>, code: &[Code<'_>]) -> Vec<(u64, u64)> {
    let by_section: Vec<(u64, u64)> = elf
        .sections()
        .filter(|section| {
            matches!(section.flags(), SectionFlags::Elf { sh_flags, .. }
                if sh_flags.0 & SHF_EXECINSTR.0 != 0)
        })
        .map(|section| (section.address(), section.address().saturating_add(section.size())))
        .collect();
    merged(if by_section.is_empty() {
        code.iter().map(|code| (code.address, code.end())).collect()
    } else {
        by_section
    })
}

/// The same ranges, sorted and disjoint.
fn merged(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match all.last_mut() {
            Some(last) if start < last.1 => last.1 = last.1.max(end),
            _ => all.push((start, end)),
        }
    }
    all
}

/// Addresses of all symbols in the code, those of functions, and the functions' ranges where a size
/// is given.
fn symbols_in(elf: &Elf<'_>, code: &[Code<'_>]) -> (Vec<u64>, Vec<u64>, Vec<(u64, u64)>) {
    let mut all = Vec::new();
    let mut entries = Vec::new();
    let mut sized = Vec::new();
    for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
        let address = symbol.address();
        if symbol.is_undefined() || !code.iter().any(|c| c.contains(address)) {
            continue;
        }
        all.push(address);
        if symbol.kind() == SymbolKind::Text {
            entries.push(address);
            if let Some(end) = address.checked_add(symbol.size())
                && end > address
            {
                sized.push((address, end));
            }
        }
    }
    for list in [&mut all, &mut entries] {
        list.sort_unstable();
        list.dedup();
    }
    sized.sort_unstable();
    sized.dedup();
    (all, entries, sized)
}

/// Adds the functions that only this list tells of, which is sorted: those that touch no range that is known.
/// Where they overlap each other, the marking that follows sees it.
fn add_ranges(functions: &mut Vec<Range>, sized: Vec<(u64, u64)>, teller: Teller) {
    functions.sort_unstable_by_key(|f| (f.start, f.end));
    let known = functions.len();
    for (start, end) in sized {
        let next = functions[..known].partition_point(|f| f.end <= start);
        if next < known && functions[next].start < end {
            continue;
        }
        functions.push(Range {
            start,
            end,
            has_traps: teller == Teller::Go,
            lands: Lands::Nowhere,
            trampoline: false,
            contradicted: false,
            is_named: teller == Teller::Symbol,
        });
    }
}

/// Who tells of functions beside the unwind tables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Teller {
    Symbol,
    /// The table that Go's own unwinder goes by.
    Go,
}

fn mark_contradictions(functions: &mut Vec<Range>) {
    functions.sort_unstable_by_key(|f| (f.start, f.end));
    functions.dedup_by(|later, earlier| {
        let same = later.start == earlier.start && later.end == earlier.end;
        if same {
            earlier.lands = earlier.lands.and(later.lands);
        }
        earlier.trampoline |= same && later.trampoline;
        same
    });
    // The widest range so far: a later one may lie inside it although its direct neighbour does not
    // touch it.
    let mut widest = 0;
    for index in 1..functions.len() {
        if functions[index].start < functions[widest].end {
            functions[index].contradicted = true;
            functions[widest].contradicted = true;
        }
        if functions[index].end > functions[widest].end {
            widest = index;
        }
    }
}

/// Function ranges from the unwind tables. A table that cannot be read ends the list: the functions
/// behind are then unknown, and their sites unproven.
fn unwind_ranges(elf: &Elf<'_>, code: &[Code<'_>]) -> Vec<Range> {
    let Some((address, bytes)) = unwind_table(elf) else {
        return Vec::new();
    };
    let table = EhFrame::new(bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(address);
    let mut cies = HashMap::new();
    let mut ranges = Vec::new();
    let mut entries = table.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let parsed = partial.parse(|section, bases, offset| {
            if let Some(cie) = cies.get(&offset.0) {
                return Ok(gimli::CommonInformationEntry::clone(cie));
            }
            let cie = section.cie_from_offset(bases, offset)?;
            cies.insert(offset.0, cie.clone());
            Ok(cie)
        });
        let Ok(fde) = parsed else { continue };
        let start = fde.initial_address();
        let Some(end) = start.checked_add(fde.len()) else {
            continue;
        };
        if end > start && code.iter().any(|c| c.contains(start) && end <= c.end()) {
            ranges.push(Range {
                start,
                end,
                has_traps: false,
                lands: match fde.lsda() {
                    None => Lands::Nowhere,
                    Some(gimli::Pointer::Direct(address)) => Lands::Table(address),
                    Some(gimli::Pointer::Indirect(_)) => Lands::Anywhere,
                },
                trampoline: fde.is_signal_trampoline(),
                contradicted: false,
                is_named: false,
            });
        }
    }
    ranges
}

/// Address and bytes of the unwind table: by its section, or, in a file without section headers,
/// through the segment that points at it.
fn unwind_table<'data>(elf: &Elf<'data>) -> Option<(u64, &'data [u8])> {
    if let Some(section) = elf.section_by_name(".eh_frame") {
        return Some((section.address(), section.data().ok()?));
    }
    let headers = elf.elf_program_headers();
    let header = headers.iter().find(|h| h.p_type(ElfEndian) == PT_GNU_EH_FRAME)?;
    let address = header.p_vaddr(ElfEndian);
    let bytes = header.data(ElfEndian, elf.data()).ok()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(address);
    let parsed = EhFrameHdr::new(bytes, LittleEndian).parse(&bases, 8).ok()?;
    let gimli::Pointer::Direct(table) = parsed.eh_frame_ptr() else {
        return None;
    };
    elf.segments().find_map(|segment| {
        let data = segment.data().ok()?;
        let skip = usize::try_from(table.checked_sub(segment.address())?).ok()?;
        Some((table, data.get(skip..).filter(|rest| !rest.is_empty())?))
    })
}
