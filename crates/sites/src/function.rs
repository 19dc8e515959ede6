//! One decoded function: where its instructions start, where its branches go, what is surely executed.
//!
//! # The proof
//! 1. The start comes from the unwind tables or a sized symbol, and so does the end.
//! 2. Decoding from start to end meets no invalid instruction and ends exactly at the end.
//! 3. Every direct branch and call in the function that lands inside it lands on an instruction's
//!    start, and so does every function symbol inside it. One exception is understood: a jump over
//!    the `lock` prefix of an instruction, after which both readings of the bytes end together.
//! 4. Nothing in the function addresses the function's own bytes as data (a table in the text would be
//!    decoded as if it were instructions).
//! 5. An instruction counts as *reached* only if direct flow (falling through, direct branches, returns
//!    from calls) leads to it from the start, a function symbol or a landing pad; in code that was swept
//!    ([`crate::sweep`]) also from what nothing is seen to lead to. Only reached ones are ever patched:
//!    what looks like code behind data in the text is not reached by anything.
//!
//! What may speak against a function from outside (another function, such as its cold part, jumping
//! into the middle of an instruction) is checked by the analysis, which knows the other functions.

use iced_x86::{Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use crate::image::Range;
use crate::sweep::Swept;

/// Larger "functions" are not decoded: real ones stay far below, and forty bytes are kept for each
/// instruction.
const SIZE_LIMIT: usize = 4 << 20;

/// Why a function's instruction boundaries are not proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Distrust {
    /// Its range overlaps another function's.
    Contradicted,
    /// A signal trampoline, whose range starts before its first instruction.
    Trampoline,
    /// Too large, or not wholly inside one executable segment.
    Range,
    /// The bytes are no instruction, or the last one runs over the function's end.
    Invalid,
    /// A direct branch lands in the middle of an instruction.
    BranchIntoInstruction,
    /// A function symbol points into the middle of an instruction.
    EntryInsideInstruction,
    /// The function reads its own bytes, or takes the address of one that starts no instruction.
    DataInside,
}

/// A function whose instruction boundaries are proven.
#[derive(Debug)]
pub struct Function {
    range: Range,
    instructions: Vec<Instruction>,
    /// Addresses of the instructions that start with a `lock` prefix and are valid without it.
    lock_prefixes: Vec<u64>,
    reached: Vec<bool>,
    /// Of these, what something is seen to lead to.
    led_to: Vec<bool>,
    /// Indices of the instructions where flow may come in from elsewhere: the start, function symbols,
    /// what the function itself calls.
    entries: Vec<usize>,
    /// Addresses inside the function that its own branches, calls and address computations name, and
    /// function symbols in it other than its start; sorted.
    targets: Vec<u64>,
    /// Where direct jumps (not calls) leave the function for.
    exits: Vec<u64>,
    indirect: bool,
    /// Exceptions may land anywhere in it.
    lands_anywhere: bool,
    /// Whatever arrives in it is known ([`crate::sweep`]).
    closed: bool,
    /// Indices of the instructions that its indirect jumps lead to, where it is closed.
    by_tables: Vec<usize>,
}

impl Function {
    /// Decodes `bytes`, the content of `range`. `symbols` are the addresses of all function symbols of the
    /// file, sorted. `pads`: where exceptions land in it; None: anywhere. `swept`: what this is a part of that
    /// was proven as a whole.
    pub fn decode(
        range: Range,
        bytes: &[u8],
        symbols: &[u64],
        pads: Option<&[u64]>,
        swept: Option<&Swept>,
    ) -> Result<Function, Distrust> {
        if range.contradicted {
            return Err(Distrust::Contradicted);
        }
        if range.trampoline {
            return Err(Distrust::Trampoline);
        }
        if bytes.len() > SIZE_LIMIT {
            return Err(Distrust::Range);
        }
        let (instructions, lock_prefixes) = decode_all(range.start, bytes)?;
        let mut function = Function {
            range,
            instructions,
            lock_prefixes,
            reached: Vec::new(),
            led_to: Vec::new(),
            entries: vec![0],
            targets: Vec::new(),
            exits: Vec::new(),
            indirect: false,
            lands_anywhere: pads.is_none(),
            closed: swept.is_some(),
            by_tables: Vec::new(),
        };
        let called = function.collect_targets()?;
        function.add_pads(pads.unwrap_or_default());
        match swept {
            None => function.add_entries(symbols)?,
            Some(swept) => {
                function.add_entries(&swept.arrivals)?;
                let by_tables = swept.by_tables_in(range.start, range.end);
                function.targets.extend(by_tables);
                let indices = by_tables.iter().map(|target| function.index_of(*target));
                function.by_tables = indices.collect::<Option<_>>().ok_or(Distrust::BranchIntoInstruction)?;
            }
        }
        function.targets.sort_unstable();
        function.targets.dedup();
        function.follow_flow(function.entries.clone());
        function.led_to = function.reached.clone();
        if function.closed {
            function.enter_the_rest();
        }
        // Only now: what is called by something that is not reached is not reached either.
        function.entries.extend(called);
        Ok(function)
    }

    pub fn range(&self) -> Range {
        self.range
    }

    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Whether direct flow from where it may be entered leads to this instruction.
    pub fn is_reached(&self, index: usize) -> bool {
        self.reached[index]
    }

    /// Whether something is seen to lead to this instruction; what is reached and is not may be executed, but
    /// leads to nothing in the function that is (compilers do not jump into another function's middle).
    pub fn is_led_to(&self, index: usize) -> bool {
        !self.closed || self.led_to[index]
    }

    /// Indices of the instructions where flow may come in from elsewhere.
    pub fn entries(&self) -> &[usize] {
        &self.entries
    }

    /// Indices of the instructions that an indirect jump of the function may lead to, by its tables.
    pub fn by_tables(&self) -> &[usize] {
        &self.by_tables
    }

    /// Where direct jumps leave the function for, and, with them, its cold parts or neighbours.
    pub fn exits(&self) -> &[u64] {
        &self.exits
    }

    /// It has jumps whose targets are not in the instruction: a jump table, or addresses of its own
    /// code that it computes.
    pub fn has_indirect_flow(&self) -> bool {
        !self.closed && (self.indirect || self.lands_anywhere)
    }

    /// Whether whatever arrives in it is known.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether a branch, call or address computation of the function itself names this address.
    pub fn is_target(&self, address: u64) -> bool {
        self.targets.binary_search(&address).is_ok()
    }

    /// Whether any address from `start` (inclusive) to `end` (exclusive) is such a target.
    pub fn has_target_in(&self, start: u64, end: u64) -> bool {
        let first = self.targets.partition_point(|target| *target < start);
        self.targets.get(first).is_some_and(|target| *target < end)
    }

    /// The instruction that starts at `address`.
    pub fn index_of(&self, address: u64) -> Option<usize> {
        self.instructions.binary_search_by_key(&address, Instruction::ip).ok()
    }

    /// The instruction that is executed when flow arrives at `address`, if that does not upset the
    /// boundaries: `address` is an instruction's start, or the byte behind a `lock` prefix.
    pub fn arrival(&self, address: u64) -> Option<usize> {
        if let Some(index) = self.index_of(address) {
            return Some(index);
        }
        // `je 1f; lock; 1: cmpxchg …`: the prefix is the first byte, the rest is the same instruction.
        let prefix = address.checked_sub(1)?;
        self.lock_prefixes.binary_search(&prefix).ok()?;
        self.index_of(prefix)
    }

    /// Whether nothing falls out of the function's end: its last instruction is a jump or a return.
    pub fn ends_for_good(&self) -> bool {
        self.instructions.last().is_some_and(leaves)
    }

    /// Checks where branches land and what is addressed; fills `targets`, `exits` and `indirect`.
    /// Returns the indices of the instructions that the function itself calls.
    fn collect_targets(&mut self) -> Result<Vec<usize>, Distrust> {
        let (start, end) = (self.range.start, self.range.end);
        let inside = |address: u64| (start..end).contains(&address);
        let mut targets = Vec::new();
        let mut exits = Vec::new();
        let mut called = Vec::new();
        for instruction in &self.instructions {
            if let Some(target) = direct_target(instruction) {
                if inside(target) {
                    let index = self.arrival(target).ok_or(Distrust::BranchIntoInstruction)?;
                    if instruction.flow_control() == FlowControl::Call {
                        called.push(index);
                    }
                    targets.push(target);
                } else if instruction.flow_control() != FlowControl::Call {
                    exits.push(target);
                }
            }
            if instruction.flow_control() == FlowControl::IndirectBranch {
                self.indirect = true;
            }
            if instruction.is_ip_rel_memory_operand() {
                let address = instruction.ip_rel_memory_address();
                if inside(address) {
                    let is_label =
                        instruction.mnemonic() == Mnemonic::Lea && self.index_of(address).is_some();
                    if !is_label {
                        return Err(Distrust::DataInside);
                    }
                    self.indirect |= address != start;
                    targets.push(address);
                }
            }
        }
        exits.sort_unstable();
        exits.dedup();
        self.targets = targets;
        self.exits = exits;
        Ok(called)
    }

    /// Where exceptions land flow comes in as well.
    fn add_pads(&mut self, pads: &[u64]) {
        let indices = pads.iter().map(|pad| self.index_of(*pad));
        match indices.collect::<Option<Vec<_>>>() {
            Some(indices) => {
                self.targets.extend(pads);
                self.entries.extend(indices);
            }
            // Then the table is not what it was taken for.
            None => self.lands_anywhere = true,
        }
    }

    /// Function symbols inside the range are entries too.
    fn add_entries(&mut self, symbols: &[u64]) -> Result<(), Distrust> {
        let first = symbols.partition_point(|symbol| *symbol <= self.range.start);
        for symbol in symbols[first..].iter().take_while(|s| **s < self.range.end) {
            let index = if self.closed { self.arrival(*symbol) } else { self.index_of(*symbol) };
            let index = index.ok_or(Distrust::EntryInsideInstruction)?;
            self.targets.push(*symbol);
            self.entries.push(index);
        }
        Ok(())
    }

    /// What nothing is seen to lead to may be a function whose address is made in a way that nobody sees (code
    /// of the large model, a packed pointer): where nothing falls through to it, flow may come in.
    fn enter_the_rest(&mut self) {
        let mut is_apart = false;
        for index in 0..self.instructions.len() {
            let instruction = &self.instructions[index];
            let pads = is_padding(instruction);
            if is_apart && !pads && !self.reached[index] {
                self.entries.push(index);
                self.targets.push(instruction.ip());
                self.follow_flow(vec![index]);
            }
            is_apart = never_goes_on(&self.instructions[index]) || is_apart && pads;
        }
        self.targets.sort_unstable();
    }

    /// Marks what direct flow reaches from these instructions.
    fn follow_flow(&mut self, mut work: Vec<usize>) {
        self.reached.resize(self.instructions.len(), false);
        while let Some(mut index) = work.pop() {
            while index < self.instructions.len() && !self.reached[index] {
                self.reached[index] = true;
                let instruction = &self.instructions[index];
                if let Some(target) = direct_target(instruction) {
                    work.extend(self.arrival(target));
                }
                if instruction.flow_control() == FlowControl::IndirectBranch {
                    work.extend(&self.by_tables);
                }
                if never_goes_on(instruction) {
                    break;
                }
                index += 1;
            }
        }
    }
}

/// All instructions of `bytes`, and the addresses of those that a jump over `lock` may enter.
fn decode_all(start: u64, bytes: &[u8]) -> Result<(Vec<Instruction>, Vec<u64>), Distrust> {
    // Four bytes an instruction is a little below what compilers make.
    let mut instructions = Vec::with_capacity(bytes.len() / 4);
    let mut lock_prefixes = Vec::new();
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    while decoder.can_decode() {
        let position = decoder.position();
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(Distrust::Invalid);
        }
        if instruction.has_lock_prefix() && bytes[position] == LOCK {
            let rest = &bytes[position + 1..decoder.position()];
            let without = Decoder::new(64, rest, DecoderOptions::NONE).decode();
            if !without.is_invalid() && without.len() == rest.len() {
                lock_prefixes.push(instruction.ip());
            }
        }
        instructions.push(instruction);
    }
    if instructions.is_empty() {
        return Err(Distrust::Invalid);
    }
    Ok((instructions, lock_prefixes))
}

/// The `lock` prefix.
const LOCK: u8 = 0xf0;

/// Where the instruction itself says that it goes: jumps, conditional jumps, loops, calls, `xbegin`.
pub fn direct_target(instruction: &Instruction) -> Option<u64> {
    let direct = match instruction.flow_control() {
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => true,
        FlowControl::Call => instruction.code() == Opcode::Call_rel32_64,
        FlowControl::XbeginXabortXend => instruction.mnemonic() == Mnemonic::Xbegin,
        _ => false,
    };
    direct.then(|| instruction.near_branch_target())
}

/// Whether execution never passes from this instruction to the one behind it, as far as the proof of
/// reachability is concerned: a trap may be skipped by a handler, but nobody may count on it.
pub fn never_goes_on(instruction: &Instruction) -> bool {
    leaves(instruction)
        || instruction.flow_control() == FlowControl::Exception
        || matches!(instruction.mnemonic(), Mnemonic::Hlt | Mnemonic::Int3)
}

/// Whether the instruction always goes elsewhere: a jump or a return. What stands behind it is executed
/// only if something else leads there.
pub fn leaves(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
    )
}

/// Whether the instruction does nothing, or traps: what padding is made of.
pub fn is_padding(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}
