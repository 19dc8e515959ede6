//! All of a file's code at once, for a file whose unwind information tells of next to nothing: musl's C
//! library.
//!
//! # The proof
//! Each section of instructions is decoded from its first byte to its last. The boundaries so found are true
//! if nothing that is executed leads anywhere else, and that is looked at for the whole file:
//! 1. Every direct branch and call lands on a boundary.
//! 2. So does every address of code that the file gives away: symbols, relocations, where the loader begins,
//!    what instructions take the address of.
//! 3. Nothing reads or writes what lies among the instructions.
//! 4. So does every entry of what may be a table of jumps: words behind an address that some instruction
//!    takes, each the distance from there to code, up to the next address that some instruction names. An
//!    indirect jump that computes its target in any other way speaks against the file.
//!
//! A program begins at one of the addresses of 2, and from a boundary execution only gets to the next one or
//! to one of these. Whatever fails, nothing is taken from here.

use std::collections::{BTreeMap, HashSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::function::{direct_target, leaves};
use crate::image::Range;

/// A section of the file as it is in memory.
pub struct Section<'data> {
    pub address: u64,
    pub bytes: &'data [u8],
    pub is_code: bool,
}

impl Section<'_> {
    fn end(&self) -> u64 {
        self.address + self.bytes.len() as u64
    }

    fn contains(&self, address: u64) -> bool {
        (self.address..self.end()).contains(&address)
    }
}

/// What is proven of a file's code.
#[derive(Debug)]
pub struct Swept {
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
}

impl Swept {
    /// The arrivals from `start` (inclusive) to `end` (exclusive).
    pub fn arrivals_in(&self, start: u64, end: u64) -> &[u64] {
        within(&self.arrivals, start, end)
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

fn within(sorted: &[u64], start: u64, end: u64) -> &[u64] {
    let place = |address| sorted.partition_point(|other| *other < address);
    &sorted[place(start)..place(end)]
}

/// Code with more bytes than this is not looked at: a C library has a tenth of it.
const CODE_LIMIT: usize = 8 << 20;

/// Instructions before an indirect jump among which its table is looked up.
const LOOKED_UP_WITHIN: usize = 12;

/// `given`: all addresses of code that the file gives away but for those in instructions. None: not proven.
pub fn sweep(sections: &[Section<'_>], given: &[u64]) -> Option<Swept> {
    let code = || sections.iter().filter(|section| section.is_code);
    if code().map(|section| section.bytes.len()).sum::<usize>() > CODE_LIMIT {
        return None;
    }
    let is_code = |address: u64| code().any(|section| section.contains(address));
    let mut found = Found::default();
    for section in code() {
        found.add(section, &is_code)?;
    }
    found.boundaries.sort_unstable();
    let is_boundary = |address: &u64| found.boundaries.binary_search(address).is_ok();
    let is_arrival = |address: &u64| {
        // A jump over a `lock` prefix: the rest is the same instruction.
        is_boundary(address) || address.checked_sub(1).is_some_and(|prefix| found.locks.contains(&prefix))
    };
    let given: Vec<u64> = given.iter().copied().filter(|address| is_code(*address)).collect();
    let called = found.calls.iter().map(|(_, target)| *target);
    let mut starts: Vec<u64> = given.into_iter().chain(found.taken.iter().copied()).chain(called).collect();
    if !starts.iter().all(is_boundary) || !found.jumps.iter().all(|(_, target)| is_arrival(target)) {
        return None;
    }
    let tables = tables(sections, &mut found.named, &found.taken_data, &is_code);
    if !tables.iter().flat_map(|table| &table.targets).all(is_boundary) {
        return None;
    }
    starts.extend(code().map(|section| section.address));
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
            && found.indirect_jumps.iter().any(is_own);
        let may_belong = |target: &&u64| {
            is_boundary(target)
                && table.targets.iter().any(|known| function_of(*known) == function_of(**target))
        };
        let further = table.further.iter().take_while(may_belong);
        if is_theirs_alone { &mut by_tables } else { &mut arrivals }
            .extend(table.targets.iter().chain(further));
    }
    arrivals.extend(
        found
            .jumps
            .iter()
            .filter(|(from, target)| function_of(*from) != function_of(*target))
            .map(|(_, target)| *target),
    );
    let mut jumps: Vec<u64> = found.jumps.iter().map(|(_, target)| *target).collect();
    let mut called: Vec<u64> = found.calls.iter().map(|(_, target)| *target).collect();
    for addresses in [&mut arrivals, &mut by_tables, &mut called, &mut jumps] {
        sort(addresses);
    }
    Some(Swept {
        functions: functions(&starts, code()),
        arrivals,
        by_tables,
        calls: found.calls,
        called,
        jumps,
    })
}

fn sort(addresses: &mut Vec<u64>) {
    addresses.sort_unstable();
    addresses.dedup();
}

/// What the instructions say.
#[derive(Default)]
struct Found {
    /// Sorted, once all sections are there.
    boundaries: Vec<u64>,
    /// Instructions with a `lock` prefix.
    locks: HashSet<u64>,
    calls: Vec<(u64, u64)>,
    /// Jumps, each with where it goes.
    jumps: Vec<(u64, u64)>,
    /// Addresses of code that instructions take.
    taken: Vec<u64>,
    /// Addresses of anything else that they take, each behind the instruction's.
    taken_data: Vec<(u64, u64)>,
    /// Jumps to where a register says.
    indirect_jumps: Vec<u64>,
    /// Those of them that find it by a table.
    looked_up: Vec<u64>,
    /// Every address that they name.
    named: Vec<u64>,
}

impl Found {
    /// None: the section is not one instruction behind the other, or something is against it.
    fn add(&mut self, section: &Section<'_>, is_code: &dyn Fn(u64) -> bool) -> Option<()> {
        let mut decoder = Decoder::with_ip(64, section.bytes, section.address, DecoderOptions::NONE);
        let mut latest: Vec<Instruction> = Vec::with_capacity(2 * LOOKED_UP_WITHIN);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return None;
            }
            let address = instruction.ip();
            self.boundaries.push(address);
            if instruction.has_lock_prefix() {
                self.locks.insert(address);
            }
            if let Some(target) = direct_target(&instruction) {
                // Where a jump leaves the file's code nobody knows anything.
                if !is_code(target) {
                    return None;
                }
                match instruction.flow_control() {
                    FlowControl::Call => self.calls.push((address, target)),
                    _ => self.jumps.push((address, target)),
                }
            }
            if instruction.is_ip_rel_memory_operand() {
                let named = instruction.ip_rel_memory_address();
                let is_taken = instruction.mnemonic() == Mnemonic::Lea;
                match (is_code(named), is_taken) {
                    (true, false) => return None,
                    (true, true) => self.taken.push(named),
                    (false, true) => self.taken_data.push((address, named)),
                    (false, false) => {}
                }
                self.named.push(named);
            }
            if instruction.flow_control() == FlowControl::IndirectBranch
                && instruction.op0_kind() == OpKind::Register
            {
                let before = latest.get(latest.len().saturating_sub(LOOKED_UP_WITHIN)..)?;
                if before.iter().any(looks_up_elsewhere) {
                    return None;
                }
                match target_of(before, instruction.op0_register(), is_code)? {
                    Target::Pointer => {}
                    Target::Table => self.looked_up.push(address),
                }
                self.indirect_jumps.push(address);
            }
            if latest.len() == 2 * LOOKED_UP_WITHIN {
                latest.drain(..LOOKED_UP_WITHIN);
            }
            latest.push(instruction);
        }
        Some(())
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

/// What may be a table of jumps.
struct Table {
    /// The instructions that take its address; one at least.
    taken_by: Vec<u64>,
    targets: Vec<u64>,
    /// What would follow them if the next address that is named were an array's whose elements are counted
    /// from below its first.
    further: Vec<u64>,
}

/// `named`: every address that instructions name; `taken`: those that they take, behind the instructions'.
fn tables(
    sections: &[Section<'_>],
    named: &mut Vec<u64>,
    taken: &[(u64, u64)],
    is_code: &dyn Fn(u64) -> bool,
) -> Vec<Table> {
    const ENTRY: usize = 4;
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
        let entries = section.bytes[(table - section.address) as usize..]
            .chunks_exact(ENTRY)
            .filter_map(|entry| entry.first_chunk())
            .map(|entry| table.wrapping_add_signed(i64::from(i32::from_le_bytes(*entry))));
        let mut targets: Vec<u64> = entries.take_while(|target| is_code(*target)).collect();
        let further = targets.split_off(targets.len().min((end - table) as usize / ENTRY));
        if !targets.is_empty() {
            tables.insert(table, Table { taken_by: vec![by], targets, further });
        }
    }
    tables.into_values().collect()
}

fn functions<'a>(starts: &[u64], code: impl Iterator<Item = &'a Section<'a>>) -> Vec<Range> {
    let mut functions = Vec::new();
    for section in code {
        let own = starts.iter().copied().filter(|start| section.contains(*start));
        let next = own.clone().skip(1).chain([section.end()]);
        functions.extend(own.zip(next).map(|(start, end)| Range {
            start,
            end,
            landing_pads: false,
            trampoline: false,
            has_traps: false,
            contradicted: false,
        }));
    }
    functions.sort_unstable_by_key(|function| function.start);
    functions
}
