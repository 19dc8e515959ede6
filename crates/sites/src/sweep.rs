//! All at once of the code whose functions no unwind table lists: musl's C library, as a file or as a part of
//! a static program.
//!
//! # The proof
//! Each stretch of such code is decoded from its first byte to its last. The boundaries so found are true
//! if nothing that is executed leads anywhere else, and that is looked at for the whole file (for the code whose
//! functions tables list, in [`crate::outside`]):
//! 1. Every direct branch and call lands on a boundary.
//! 2. So does every address of code that the file gives away: symbols, relocations, where the loader begins,
//!    what instructions take the address of.
//! 3. Nothing reads or writes what lies among the instructions.
//! 4. So does every entry of what may be a table of jumps: words behind an address that some instruction
//!    takes, each the distance from there to code, up to the next address that some instruction names. An
//!    indirect jump that computes its target in any other way speaks against the file.
//!
//! A program begins at one of the addresses of 2, and from a boundary execution only gets to the next one or
//! to one of these. Whatever fails, nothing is taken from here; but in a program with other code as well a
//! stretch that is not one instruction behind the other is only looked at for what may be executed
//! ([`crate::reached`]).
//!
//! Where nothing falls through to, and nothing in the function leads over, a function may begin whose address
//! is made in a way that nobody sees: it is taken for one.

use std::collections::{BTreeMap, HashMap, HashSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use object::ReadRef as _;

use crate::function::{direct_target, is_padding, leaves, never_goes_on};
use crate::image::{Cached, Lands, Range};
use crate::reached;

/// A section of the file as it is in memory, or a stretch of one.
pub struct Section<'data> {
    pub address: u64,
    pub is_code: bool,
    /// In bytes.
    size: u64,
    content: Content<'data>,
}

enum Content<'data> {
    Here(&'data [u8]),
    /// In the file, from this offset on, of which little is looked at: what is asked for is read, and kept.
    There(&'data Cached, u64),
}

impl<'data> Section<'data> {
    pub fn code(address: u64, bytes: &'data [u8]) -> Section<'data> {
        Section { address, is_code: true, size: bytes.len() as u64, content: Content::Here(bytes) }
    }

    /// The same with all of its bytes at hand. None: they cannot be read.
    pub fn loaded(self) -> Option<Section<'data>> {
        let bytes = self.bytes();
        let content = Content::Here(bytes);
        (bytes.len() as u64 == self.size).then_some(Section { content, ..self })
    }

    pub fn stored(
        address: u64,
        is_code: bool,
        file: &'data Cached,
        offset: u64,
        size: u64,
    ) -> Section<'data> {
        Section { address, is_code, size, content: Content::There(file, offset) }
    }

    fn end(&self) -> u64 {
        self.address + self.size
    }

    fn contains(&self, address: u64) -> bool {
        (self.address..self.end()).contains(&address)
    }

    /// At most so many bytes from an address on; none where it is elsewhere, or cannot be read.
    pub fn from(&self, address: u64, most: u64) -> &'data [u8] {
        let Some(at) = address.checked_sub(self.address).filter(|at| *at < self.size) else { return &[] };
        let length = most.min(self.size - at);
        match self.content {
            Content::Here(bytes) => bytes.get(at as usize..(at + length) as usize).unwrap_or_default(),
            Content::There(file, offset) => file.read_bytes_at(offset + at, length).unwrap_or_default(),
        }
    }

    pub fn bytes(&self) -> &'data [u8] {
        self.from(self.address, self.size)
    }
}

/// Sections of code, or stretches of them, in the order of their addresses.
pub struct Stretches<'a> {
    sorted: Vec<&'a Section<'a>>,
}

impl<'a> Stretches<'a> {
    fn of(sections: impl IntoIterator<Item = &'a Section<'a>>) -> Stretches<'a> {
        let mut sorted: Vec<&Section<'_>> = sections.into_iter().collect();
        sorted.sort_unstable_by_key(|section| section.address);
        Stretches { sorted }
    }

    fn each(&self) -> impl Iterator<Item = &'a Section<'a>> {
        self.sorted.iter().copied()
    }

    fn bytes(&self) -> usize {
        self.each().map(|section| section.size as usize).sum()
    }

    fn ranges(&self) -> Vec<(u64, u64)> {
        self.each().map(|section| (section.address, section.end())).collect()
    }

    fn overlap(&self) -> bool {
        self.sorted.windows(2).any(|two| two[0].end() > two[1].address)
    }

    fn hull(&self) -> Option<std::ops::Range<u64>> {
        Some(self.sorted.first()?.address..self.sorted.last()?.end())
    }

    fn section_of(&self, address: u64) -> Option<&'a Section<'a>> {
        let next = self.sorted.partition_point(|section| section.address <= address);
        self.sorted.get(next.checked_sub(1)?).copied().filter(|section| section.contains(address))
    }

    /// What stands from an address on.
    pub fn from(&self, address: u64) -> Option<&'a [u8]> {
        self.section_of(address).map(|section| section.from(address, u64::MAX))
    }

    pub fn contains(&self, address: u64) -> bool {
        self.section_of(address).is_some()
    }
}

/// What an instruction may have to do with.
pub struct Around<'a> {
    /// Whether this is an address of code that is looked at.
    pub is_code: &'a dyn Fn(u64) -> bool,
    /// Of any of the file's.
    pub is_any_code: &'a dyn Fn(u64) -> bool,
    /// The file is loaded where it says, so that numbers may be addresses.
    pub is_fixed: bool,
}

/// What is not swept of the file's code: functions that tables list, and what lies between them.
pub trait Outside {
    fn is_nothing(&self) -> bool {
        false
    }

    /// Whether this is an address of such code.
    fn contains(&self, address: u64) -> bool;

    /// What it has to do with the code that is swept. None: something in it speaks against that, or it cannot
    /// be told.
    fn looks_in(&self, seen: &Seen<'_>) -> Option<Arriving>;
}

/// What the sweep has seen when it asks for what is outside.
pub struct Seen<'a> {
    /// From the first address that is swept to behind the last one.
    pub hull: std::ops::Range<u64>,
    pub is_code: &'a dyn Fn(u64) -> bool,
    /// Whether there may be data among the instructions at an address.
    pub may_hold_data: &'a dyn Fn(u64) -> bool,
    /// Whether execution may arrive at an address.
    pub is_arrival: &'a dyn Fn(u64) -> bool,
    /// Where tables of jumps may lie.
    pub tables: std::ops::Range<u64>,
}

/// What arrives from outside.
#[derive(Default)]
pub struct Arriving {
    /// Direct calls: where each is, and where it goes.
    pub calls: Vec<(u64, u64)>,
    /// Direct jumps, likewise.
    pub jumps: Vec<(u64, u64)>,
    /// Where those of both go that are surely what they look like.
    pub sure: Vec<u64>,
    /// Addresses of swept code that are taken.
    pub taken: Vec<u64>,
    /// Numbers that may be such addresses.
    pub numbers: Vec<u64>,
    /// Addresses of data, where tables may lie, that are named.
    pub named: Vec<u64>,
}

/// All code is swept.
pub struct Nothing;

impl Outside for Nothing {
    fn is_nothing(&self) -> bool {
        true
    }

    fn contains(&self, _: u64) -> bool {
        false
    }

    fn looks_in(&self, _: &Seen<'_>) -> Option<Arriving> {
        Some(Arriving::default())
    }
}

/// What is proven of a file's code.
#[derive(Debug)]
pub struct Swept {
    /// What was swept, from each stretch's first address to behind its last; sorted.
    stretches: Vec<(u64, u64)>,
    /// Likewise, what is not one instruction behind the other.
    data: Vec<(u64, u64)>,
    /// Where instructions may begin there that are executed; sorted. None: anywhere.
    executed: Option<Vec<u64>>,
    /// From one place that is called, or whose address is known to somebody, to the next.
    pub functions: Vec<Range>,
    /// Addresses that something arrives at from elsewhere than its own function; sorted.
    pub arrivals: Vec<u64>,
    /// Addresses that only the indirect jumps of their own function lead to, by its tables; sorted.
    pub by_tables: Vec<u64>,
    /// Direct calls: the address of each, and where it goes.
    pub calls: Vec<(u64, u64)>,
    /// Where direct calls go; sorted.
    called: Vec<u64>,
    /// Where direct jumps go; sorted.
    pub jumps: Vec<u64>,
    /// Addresses that are given away, or may be, or are taken; sorted.
    taken: Vec<u64>,
}

impl Swept {
    /// Whether the code at this address was swept.
    pub fn covers(&self, address: u64) -> bool {
        is_in(&self.stretches, address)
    }

    /// Whether what stands at this address, among data, may be executed from there. None: nobody knows.
    pub fn is_executed(&self, address: u64) -> Option<bool> {
        let executed = self.executed.as_ref().filter(|_| is_in(&self.data, address))?;
        Some(executed.binary_search(&address).is_ok())
    }

    /// Whether some of the code from `start` (inclusive) to `end` (exclusive) was swept.
    pub fn touches(&self, start: u64, end: u64) -> bool {
        let next = self.stretches.partition_point(|(_, after)| *after <= start);
        self.stretches.get(next).is_some_and(|(first, _)| *first < end)
    }

    /// The arrivals from `start` (inclusive) to `end` (exclusive).
    pub fn arrivals_in(&self, start: u64, end: u64) -> &[u64] {
        within(&self.arrivals, start, end)
    }

    /// Whether a stretch begins at this address, and nothing leads there but what stands before it.
    pub fn is_only_gone_on_to(&self, address: u64) -> bool {
        self.stretches.binary_search_by_key(&address, |(start, _)| *start).is_ok()
            && !self.is_called(address)
            && self.jumps.binary_search(&address).is_err()
            && self.taken.binary_search(&address).is_err()
    }

    /// Whether some instruction calls this address.
    pub fn is_called(&self, address: u64) -> bool {
        self.called.binary_search(&address).is_ok()
    }

    /// Of those that tables lead to, likewise.
    pub fn by_tables_in(&self, start: u64, end: u64) -> &[u64] {
        within(&self.by_tables, start, end)
    }
}

/// Whether one of these ranges, which are sorted and disjoint, holds the address.
pub fn is_in(ranges: &[(u64, u64)], address: u64) -> bool {
    let next = ranges.partition_point(|(start, _)| *start <= address);
    next.checked_sub(1).and_then(|last| ranges.get(last)).is_some_and(|(_, end)| address < *end)
}

fn within(sorted: &[u64], start: u64, end: u64) -> &[u64] {
    let place = |address| sorted.partition_point(|other| *other < address);
    &sorted[place(start)..place(end)]
}

/// Code with more bytes than this is not looked at: a C library has a tenth of it.
pub const CODE_LIMIT: usize = 8 << 20;

/// Instructions before an indirect jump among which its table is looked up.
const LOOKED_UP_WITHIN: usize = 12;

/// What the file gives away of its addresses of code, but for those in instructions.
#[derive(Default)]
pub struct Given {
    pub addresses: Vec<u64>,
    /// Those of them where something surely begins that is executed.
    pub entrances: Vec<u64>,
    /// Numbers in data that may be addresses or not, where the file is loaded where it says.
    pub numbers: Vec<u64>,
}

/// None: not proven. A section, or stretch, that is not one instruction behind the other leaves all unproven
/// where nothing is outside; else it is only looked at what may be executed of it ([`crate::reached`]).
pub fn sweep(
    sections: &[Section<'_>],
    given: &Given,
    outside: &dyn Outside,
    is_fixed: bool,
) -> Option<Swept> {
    let code = Stretches::of(sections.iter().filter(|section| section.is_code));
    // Numbers that may be addresses are looked for in four bytes.
    let is_far = is_fixed && code.hull()?.end > u64::from(u32::MAX);
    if code.bytes() > CODE_LIMIT || code.overlap() || is_far {
        return None;
    }
    let is_code = |address: u64| code.contains(address);
    let around = Around {
        is_code: &is_code,
        is_any_code: &|address| is_code(address) || outside.contains(address),
        is_fixed,
    };
    let mut found = Found::default();
    let (mut whole, mut broken) = (Vec::new(), Vec::new());
    for section in code.each() {
        match Found::of(section, &around) {
            Some(more) => {
                found.append(more);
                whole.push(section);
            }
            None if outside.is_nothing() => return None,
            None => broken.push(section),
        }
    }
    let (whole, broken) = (Stretches::of(whole), Stretches::of(broken));
    let is_whole = |address: &u64| whole.contains(*address);
    let is_boundary = |address: &u64| found.boundaries.binary_search(address).is_ok();
    let is_arrival = |address: &u64| {
        // A jump over a `lock` prefix: the rest is the same instruction.
        is_boundary(address) || address.checked_sub(1).is_some_and(|prefix| found.locks.contains(&prefix))
    };
    let table_of = |(_, table): &(u64, u64)| *table;
    let first_table = found.taken_data.iter().map(table_of).min().unwrap_or(0);
    let last_table = found.taken_data.iter().map(table_of).max().unwrap_or(0);
    let mut arriving = outside.looks_in(&Seen {
        hull: code.hull()?,
        is_code: &is_code,
        may_hold_data: &|address| broken.contains(address),
        is_arrival: &|address| is_arrival(&address) || broken.contains(address),
        tables: first_table..last_table.saturating_add(TABLE_MOST),
    })?;
    let led_to = [&found.calls, &found.jumps, &arriving.calls, &arriving.jumps];
    let led_to = led_to.into_iter().flatten().map(|(_, target)| (*target, true));
    let named =
        [&given.addresses, &given.numbers, &found.taken, &found.numbers, &arriving.taken, &arriving.numbers];
    let named = named.into_iter().flatten().map(|address| (*address, false));
    // What stands before a stretch may go on there.
    let begun = broken.each().map(|section| (section.address, false));
    let roots = led_to.chain(named).chain(begun).filter(|(address, _)| broken.contains(*address)).collect();
    let reached = reached::from(&broken, roots, &around)?;
    let entrances = given.entrances.iter().copied();
    let surely: Vec<u64> = arriving.sure.iter().copied().chain(entrances).collect();
    arriving.calls.extend(&reached.calls);
    arriving.jumps.extend(&reached.jumps);
    arriving.taken.extend(&reached.taken);
    arriving.numbers.extend(given.numbers.iter().chain(&found.numbers).chain(&reached.numbers));
    let called = || found.calls.iter().chain(&arriving.calls).map(|(_, target)| *target);
    let taken = given.addresses.iter().chain(&found.taken).chain(&arriving.taken).copied();
    let mut taken: Vec<u64> = taken.filter(is_whole).collect();
    let mut starts: Vec<u64> = taken.iter().copied().chain(called()).filter(is_whole).collect();
    let jumped_to = found.jumps.iter().chain(&arriving.jumps).map(|(_, target)| *target);
    let mut jumps: Vec<u64> = jumped_to.filter(is_whole).collect();
    let names_data = reached.named.iter().any(is_whole);
    if names_data || !starts.iter().all(is_boundary) || !jumps.iter().all(is_arrival) {
        return None;
    }
    sort(&mut arriving.named);
    found.named.extend(&arriving.named);
    let tables = tables(sections, &mut found.named, &found.taken_data, &is_code)?;
    if !tables.iter().flat_map(|table| &table.targets).all(is_boundary) {
        return None;
    }
    starts.extend(whole.each().map(|section| section.address));
    arriving.numbers.retain(is_whole);
    let (numbers, no_addresses): (Vec<u64>, Vec<u64>) =
        arriving.numbers.iter().copied().partition(is_boundary);
    if !found.all_executed(surely, &no_addresses) {
        return None;
    }
    starts.extend(&numbers);
    taken.extend(numbers);
    sort(&mut starts);
    starts.extend(found.hidden(&starts, &arriving.jumps, &tables));
    sort(&mut starts);
    let function_of = |address: u64| starts.partition_point(|start| *start <= address);
    let with_table: HashSet<usize> =
        tables.iter().flat_map(|table| &table.taken_by).map(|by| function_of(*by)).collect();
    if !found.looked_up.iter().all(|jump| with_table.contains(&function_of(*jump))) {
        return None;
    }
    let mut by_tables = Vec::new();
    let mut arrivals = starts.clone();
    for table in &tables {
        // Where its address is taken it is used.
        let own = function_of(table.taken_by[0]);
        let is_own = |address: &u64| function_of(*address) == own;
        let is_theirs_alone = table.taken_by.iter().chain(&table.targets).all(is_own)
            && arriving.named.binary_search(&table.address).is_err()
            && found.indirect_jumps.iter().any(is_own);
        // Too much arrives rather than too little.
        let further = table.further.iter().take_while(|target| is_boundary(target));
        if is_theirs_alone { &mut by_tables } else { &mut arrivals }
            .extend(table.targets.iter().chain(further));
    }
    let comes_from_elsewhere = |(from, target): &&(u64, u64)| function_of(*from) != function_of(*target);
    let from_elsewhere = found.jumps.iter().filter(comes_from_elsewhere).chain(&arriving.jumps);
    arrivals.extend(from_elsewhere.map(|(_, target)| *target).filter(is_whole));
    let mut called: Vec<u64> = called().collect();
    for addresses in [&mut arrivals, &mut by_tables, &mut called, &mut jumps, &mut taken] {
        sort(addresses);
    }
    found.calls.append(&mut arriving.calls);
    Some(Swept {
        functions: functions(&starts, &whole),
        stretches: whole.ranges(),
        data: broken.ranges(),
        executed: reached.executed,
        arrivals,
        by_tables,
        calls: found.calls,
        called,
        jumps,
        taken,
    })
}

/// No table of jumps is larger, in bytes.
const TABLE_MOST: u64 = 64 << 10;

fn sort(addresses: &mut Vec<u64>) {
    addresses.sort_unstable();
    addresses.dedup();
}

/// What comes behind an instruction.
#[derive(Clone, Copy)]
struct Onward {
    /// Where the next one would be.
    next: u64,
    /// Where it says that it goes.
    target: Option<u64>,
    kind: Flow,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// The next one.
    Next,
    /// The next one, if what is called returns.
    Call,
    Return,
    /// Neither.
    Elsewhere,
}

impl Onward {
    fn of(instruction: &Instruction) -> Onward {
        let kind = match instruction.flow_control() {
            FlowControl::Return => Flow::Return,
            FlowControl::Call if instruction.mnemonic() == Mnemonic::Call => Flow::Call,
            _ if never_goes_on(instruction) => Flow::Elsewhere,
            _ => Flow::Next,
        };
        Onward { next: instruction.next_ip(), target: direct_target(instruction), kind }
    }
}

/// What the instructions say.
#[derive(Default)]
struct Found {
    /// Sorted.
    boundaries: Vec<u64>,
    /// What comes behind the instruction at each of them.
    onward: Vec<Onward>,
    /// Instructions with a `lock` prefix.
    locks: HashSet<u64>,
    calls: Vec<(u64, u64)>,
    /// Jumps, each with where it goes.
    jumps: Vec<(u64, u64)>,
    /// Addresses of code that instructions take.
    taken: Vec<u64>,
    /// Numbers in instructions that may be addresses of code.
    numbers: Vec<u64>,
    /// Addresses of anything else that they take, each behind the instruction's.
    taken_data: Vec<(u64, u64)>,
    /// Jumps to where a register says.
    indirect_jumps: Vec<u64>,
    /// Those of them that find it by a table.
    looked_up: Vec<u64>,
    /// Every address that they name.
    named: Vec<u64>,
    /// Addresses that nothing falls through to from what stands before them; sorted.
    apart: Vec<u64>,
    /// Those of them where what does nothing, or traps, stands; sorted.
    paddings: Vec<u64>,
}

impl Found {
    /// Adds what stands behind all that is here.
    fn append(&mut self, mut more: Found) {
        self.boundaries.append(&mut more.boundaries);
        self.onward.append(&mut more.onward);
        self.locks.extend(more.locks);
        self.calls.append(&mut more.calls);
        self.jumps.append(&mut more.jumps);
        self.taken.append(&mut more.taken);
        self.numbers.append(&mut more.numbers);
        self.taken_data.append(&mut more.taken_data);
        self.indirect_jumps.append(&mut more.indirect_jumps);
        self.looked_up.append(&mut more.looked_up);
        self.named.append(&mut more.named);
        self.apart.append(&mut more.apart);
        self.paddings.append(&mut more.paddings);
    }

    fn index_of(&self, address: u64) -> Option<usize> {
        self.boundaries.binary_search(&address).ok()
    }

    /// Marks what direct flow leads to from an instruction on; calls are taken to return as `returns` says.
    fn flow(&self, from: usize, seen: &mut [bool], returns: &mut dyn FnMut(u64) -> bool) {
        let mut work = vec![from];
        while let Some(index) = work.pop() {
            if seen.get(index) != Some(&false) {
                continue;
            }
            seen[index] = true;
            let Onward { next, target, kind } = self.onward[index];
            work.extend(target.and_then(|target| self.index_of(target)));
            let goes_on = match kind {
                Flow::Next => true,
                Flow::Call => target.is_none_or(&mut *returns),
                Flow::Return | Flow::Elsewhere => false,
            };
            work.extend(if goes_on { self.index_of(next) } else { None });
        }
    }

    /// Whether direct flow from some addresses surely leads to all instructions that these others belong to.
    fn all_executed(&self, from: Vec<u64>, addresses: &[u64]) -> bool {
        if addresses.is_empty() {
            return true;
        }
        let mut known: HashMap<u64, bool> = HashMap::new();
        let mut returns = |target: u64| *known.entry(target).or_insert_with(|| self.has_return(target));
        let mut executed = vec![false; self.boundaries.len()];
        for index in from.into_iter().filter_map(|address| self.index_of(address)) {
            self.flow(index, &mut executed, &mut returns);
        }
        let holder = |address: u64| self.boundaries.partition_point(|start| *start <= address).checked_sub(1);
        addresses.iter().all(|address| holder(*address).is_some_and(|index| executed[index]))
    }

    /// Whether a function returns on some way that is seen.
    fn has_return(&self, target: u64) -> bool {
        /// A function has fewer instructions.
        const MAX_STEPS: usize = 4096;
        let mut seen = HashSet::new();
        let mut work: Vec<usize> = self.index_of(target).into_iter().collect();
        while let Some(index) = work.pop() {
            if !seen.insert(index) || seen.len() > MAX_STEPS {
                continue;
            }
            let Onward { next, target, kind } = self.onward[index];
            match kind {
                Flow::Return => return true,
                Flow::Next => {
                    work.extend(target.into_iter().chain([next]).filter_map(|to| self.index_of(to)))
                }
                Flow::Call => work.extend(self.index_of(next)),
                Flow::Elsewhere => work.extend(target.and_then(|target| self.index_of(target))),
            }
        }
        false
    }

    /// Where functions begin that nobody is seen to call: where nothing falls through to, and nothing in the
    /// function that they would else be a part of leads over. Those that something jumps to, as its last call or for
    /// another reason; and those that nothing leads to, whose address may be made in a way that nobody sees.
    /// `starts`: of the functions that are known, sorted.
    fn hidden(&self, starts: &[u64], arriving: &[(u64, u64)], tables: &[Table]) -> Vec<u64> {
        let function_of = |address: u64| starts.partition_point(|start| *start <= address);
        let of_tables = || {
            tables.iter().flat_map(|table| {
                table.targets.iter().chain(&table.further).map(|target| (table.taken_by[0], *target))
            })
        };
        // Of the jumps within each function: where they begin in its order, and the farthest that those up to
        // there go.
        let mut within: HashMap<usize, Vec<(u64, u64)>> = HashMap::new();
        let is_last =
            |from: u64| self.index_of(from).is_some_and(|index| self.onward[index].kind == Flow::Elsewhere);
        for (from, target) in self.jumps.iter().copied().chain(of_tables()) {
            if function_of(from) == function_of(target) {
                // Where a function ends by a jump another one may begin.
                let end = if from < target && is_last(from) { target - 1 } else { from.max(target) };
                within.entry(function_of(from)).or_default().push((from.min(target), end));
            }
        }
        for jumps in within.values_mut() {
            jumps.sort_unstable();
            let mut farthest = 0;
            for (_, high) in jumps {
                farthest = farthest.max(*high);
                *high = farthest;
            }
        }
        let nothing_leads_over = |target: u64| {
            let jumps = within.get(&function_of(target)).map_or(&[][..], Vec::as_slice);
            let before = jumps.partition_point(|(low, _)| *low < target);
            before.checked_sub(1).is_none_or(|last| jumps[last].1 < target)
        };
        let mut found: Vec<u64> = self
            .jumps
            .iter()
            .chain(arriving)
            .map(|(_, target)| *target)
            .filter(|target| self.apart.binary_search(target).is_ok())
            .chain(self.led_to_by_nobody(starts, arriving, of_tables().map(|(_, target)| target)))
            .filter(|target| starts.binary_search(target).is_err())
            .collect();
        sort(&mut found);
        found.retain(|target| nothing_leads_over(*target));
        found
    }

    /// Where what begins that no direct flow leads to; the padding in front of it is a part of it.
    fn led_to_by_nobody(
        &self,
        starts: &[u64],
        arriving: &[(u64, u64)],
        of_tables: impl Iterator<Item = u64>,
    ) -> Vec<u64> {
        let arrivals =
            starts.iter().copied().chain(arriving.iter().map(|(_, target)| *target)).chain(of_tables);
        let mut seen = vec![false; self.boundaries.len()];
        for index in arrivals.filter_map(|address| self.index_of(address)) {
            self.flow(index, &mut seen, &mut |_| true);
        }
        let mut found = Vec::new();
        let mut begun = None;
        for index in 0..self.boundaries.len() {
            let address = self.boundaries[index];
            let is_apart = self.apart.binary_search(&address).is_ok();
            begun =
                begun.filter(|_| is_apart && !seen[index]).or((is_apart && !seen[index]).then_some(address));
            if let Some(start) = begun
                && self.paddings.binary_search(&address).is_err()
            {
                found.push(start);
                self.flow(index, &mut seen, &mut |_| true);
                begun = None;
            }
        }
        found
    }

    /// None: the section is not one instruction behind the other, or something is against it.
    fn of(section: &Section<'_>, around: &Around<'_>) -> Option<Found> {
        let Around { is_code, is_any_code, is_fixed } = *around;
        let mut found = Found::default();
        let mut decoder = Decoder::with_ip(64, section.bytes(), section.address, DecoderOptions::NONE);
        let mut latest: Vec<Instruction> = Vec::with_capacity(2 * LOOKED_UP_WITHIN);
        let mut is_apart = true;
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return None;
            }
            let address = instruction.ip();
            found.boundaries.push(address);
            found.onward.push(Onward::of(&instruction));
            if is_apart {
                found.apart.push(address);
                found.paddings.extend(is_padding(&instruction).then_some(address));
            }
            is_apart = never_goes_on(&instruction) || is_apart && is_padding(&instruction);
            if instruction.has_lock_prefix() {
                found.locks.insert(address);
            }
            if let Some(target) = direct_target(&instruction) {
                // Where a jump leaves the file's code nobody knows anything.
                // A weak function that is not there is at 0, and is not called.
                if !is_any_code(target) && target != 0 {
                    return None;
                }
                match instruction.flow_control() {
                    FlowControl::Call => found.calls.push((address, target)),
                    _ => found.jumps.push((address, target)),
                }
            }
            if instruction.is_ip_rel_memory_operand() {
                let named = instruction.ip_rel_memory_address();
                let is_taken = instruction.mnemonic() == Mnemonic::Lea;
                match (is_code(named), is_taken) {
                    (true, false) => return None,
                    (true, true) => found.taken.push(named),
                    (false, true) => found.taken_data.push((address, named)),
                    (false, false) => {}
                }
                found.named.push(named);
            }
            if is_fixed {
                if displacement(&instruction).is_some_and(is_code) {
                    return None;
                }
                found.numbers.extend(plain_addresses(&instruction).filter(|address| is_code(*address)));
            }
            if instruction.flow_control() == FlowControl::IndirectBranch
                && instruction.op0_kind() == OpKind::Register
            {
                let before = latest.get(latest.len().saturating_sub(LOOKED_UP_WITHIN)..)?;
                if before.iter().any(looks_up_elsewhere) {
                    return None;
                }
                match target_of(before, instruction.op0_register(), is_any_code)? {
                    Target::Pointer => {}
                    Target::Table => found.looked_up.push(address),
                }
                found.indirect_jumps.push(address);
            }
            if latest.len() == 2 * LOOKED_UP_WITHIN {
                latest.drain(..LOOKED_UP_WITHIN);
            }
            latest.push(instruction);
        }
        Some(found)
    }
}

/// Whether the instruction reads a distance from elsewhere than the beginning of a table that a register
/// points to.
fn looks_up_elsewhere(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Movsxd
        && instruction.op1_kind() == OpKind::Memory
        && instruction.memory_index() != Register::None
        && (instruction.memory_displacement64() != 0 || instruction.memory_index_scale() != 4)
}

/// How an indirect jump comes by its target.
enum Target {
    /// It is an address that was given away, as a whole.
    Pointer,
    /// The sum of a table's address and a distance in it.
    Table,
}

/// `before`: the instructions that end at the jump; `register`: where it takes the target from. None: it is
/// computed in another way.
fn target_of(
    before: &[Instruction],
    mut register: Register,
    is_code: &dyn Fn(u64) -> bool,
) -> Option<Target> {
    let writes = |instruction: &Instruction, register: Register| {
        instruction.op0_register().full_register() == register
            && !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push)
    };
    for (index, instruction) in before.iter().enumerate().rev() {
        if leaves(instruction) {
            break;
        }
        if !writes(instruction, register) {
            continue;
        }
        let summands = match instruction.mnemonic() {
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => {
                register = instruction.op1_register().full_register();
                continue;
            }
            // One of two, the other of which is looked at as well.
            Mnemonic::Cmove | Mnemonic::Cmovne => continue,
            Mnemonic::Mov | Mnemonic::Pop => return Some(Target::Pointer),
            Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => return Some(Target::Pointer),
            // musl's loader adds where a file is to what a symbol says.
            Mnemonic::Add if instruction.op1_kind() == OpKind::Memory => return Some(Target::Pointer),
            Mnemonic::Add if instruction.op1_kind() == OpKind::Register => {
                [register, instruction.op1_register()]
            }
            Mnemonic::Lea
                if instruction.memory_displacement64() == 0 && instruction.memory_index_scale() == 1 =>
            {
                [instruction.memory_base(), instruction.memory_index()]
            }
            _ => return None,
        };
        let (earlier, distance) = before[..index]
            .iter()
            .enumerate()
            .rev()
            .find(|(_, earlier)| summands.iter().any(|summand| writes(earlier, *summand)))?;
        let table = distance.memory_base();
        let is_distance = distance.mnemonic() == Mnemonic::Movsxd
            && distance.op1_kind() == OpKind::Memory
            && distance.memory_index() != Register::None
            && summands.contains(&table);
        let taken = before[..earlier].iter().rev().find(|earlier| writes(earlier, table));
        let is_elsewhere = taken
            .is_none_or(|taken| !taken.is_ip_rel_memory_operand() || !is_code(taken.ip_rel_memory_address()));
        return (is_distance && is_elsewhere).then_some(Target::Table);
    }
    Some(Target::Pointer)
}

/// The numbers in an instruction that may be addresses, where the file is loaded where it says.
pub fn plain_addresses(instruction: &Instruction) -> impl Iterator<Item = u64> {
    let operands = 0..instruction.op_count();
    let wide =
        |kind: OpKind| matches!(kind, OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64);
    let immediate = operands
        .clone()
        .find(|operand| wide(instruction.op_kind(*operand)))
        .map(|at| instruction.immediate(at));
    immediate.into_iter().chain(displacement(instruction))
}

/// The distance in a memory operand that may be an address: it counts from no instruction.
fn displacement(instruction: &Instruction) -> Option<u64> {
    let mut operands = 0..instruction.op_count();
    let is_wide = operands.any(|operand| instruction.op_kind(operand) == OpKind::Memory)
        && !instruction.is_ip_rel_memory_operand()
        && instruction.memory_displ_size() >= 4;
    is_wide.then(|| instruction.memory_displacement64())
}

/// What may be a table of jumps.
struct Table {
    address: u64,
    /// The instructions that take its address; one at least.
    taken_by: Vec<u64>,
    targets: Vec<u64>,
    /// What would follow them if the next address that is named were an array's whose elements are counted
    /// from below its first.
    further: Vec<u64>,
}

/// `named`: every address that instructions name; `taken`: those that they take, behind the instructions'. None:
/// there is too much of them.
fn tables(
    sections: &[Section<'_>],
    named: &mut Vec<u64>,
    taken: &[(u64, u64)],
    is_code: &dyn Fn(u64) -> bool,
) -> Option<Vec<Table>> {
    const ENTRY: usize = 4;
    /// More than a C library has, by far.
    const MAX_ENTRIES: usize = 1 << 20;
    let mut all = 0;
    sort(named);
    let mut tables: BTreeMap<u64, Table> = BTreeMap::new();
    for &(by, table) in taken {
        if let Some(known) = tables.get_mut(&table) {
            known.taken_by.push(by);
            continue;
        }
        let Some(section) = sections.iter().find(|section| !section.is_code && section.contains(table))
        else {
            continue;
        };
        let next = named.get(named.partition_point(|address| *address <= table)).copied();
        let end = next.map_or(section.end(), |next| next.min(section.end()));
        let first = section.from(table, ENTRY as u64).first_chunk().map(|entry| i32::from_le_bytes(*entry));
        if !first.is_some_and(|distance| is_code(table.wrapping_add_signed(distance.into()))) {
            continue;
        }
        let entries = section
            .from(table, TABLE_MOST)
            .chunks_exact(ENTRY)
            .filter_map(|entry| entry.first_chunk())
            .map(|entry| table.wrapping_add_signed(i64::from(i32::from_le_bytes(*entry))));
        let mut targets: Vec<u64> = entries.take_while(|target| is_code(*target)).collect();
        all += targets.len();
        if all > MAX_ENTRIES {
            return None;
        }
        let further = targets.split_off(targets.len().min((end - table) as usize / ENTRY));
        if !targets.is_empty() {
            tables.insert(table, Table { address: table, taken_by: vec![by], targets, further });
        }
    }
    Some(tables.into_values().collect())
}

/// `starts`: sorted.
fn functions(starts: &[u64], code: &Stretches<'_>) -> Vec<Range> {
    let mut functions = Vec::new();
    for section in code.each() {
        let own = within(starts, section.address, section.end()).iter().copied();
        let next = own.clone().skip(1).chain([section.end()]);
        functions.extend(own.zip(next).map(|(start, end)| Range {
            start,
            end,
            lands: Lands::Nowhere,
            trampoline: false,
            has_traps: false,
            contradicted: false,
            is_named: false,
        }));
    }
    functions
}
