//! Bytes that are never executed, five at a time, for sites too short for a near jump.
//!
//! Three kinds are believed:
//! - **Between functions**: from the end of one range to the start of the next, all of it no-ops or
//!   traps that decode exactly up to the next start, no symbol in it, and the function before it proven
//!   to end in a jump or a return. (Hand-written functions may fall through alignment
//!   into the next one: then the no-ops are executed.)
//! - **Inside a proven function**: a run of no-ops right behind a jump or a return, with no
//!   target in it or right in front of it. Not in functions with indirect flow (jump tables, landing
//!   pads, addresses of its own code, unless all of these are known): a label there may stand in front of the
//!   alignment of the next one, reached by nothing that can be seen. Nor where another function jumps into
//!   the run.
//! - **At the end of a proven function of Go's**: traps behind a jump or a return that nothing leads to. Go's
//!   linker puts them between functions, and its table has a function last until the next one begins.
//!
//! The end of a run may be a target, and mostly is: it is what the run aligns. It is not part of it.

use runahead_abi::sites::NEAR_JUMP;

use iced_x86::{Decoder, DecoderOptions, Mnemonic};

use crate::function::{Function, is_padding, leaves};

/// A run of bytes that are never executed: addresses, end exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub start: u64,
    pub end: u64,
}

/// The runs inside a function. `from_outside`: addresses in it that other functions jump to.
pub fn runs_inside(function: &Function, from_outside: &[u64]) -> Vec<Run> {
    let mut runs = Vec::new();
    if function.has_indirect_flow() {
        return runs;
    }
    let instructions = function.instructions();
    let mut index = 0;
    while index < instructions.len() {
        let ends_here = leaves(&instructions[index]);
        index += 1;
        if !ends_here {
            continue;
        }
        let first = index;
        while instructions.get(index).is_some_and(is_padding) {
            index += 1;
        }
        if index == first {
            continue;
        }
        let run = Run { start: instructions[first].ip(), end: instructions[index - 1].next_ip() };
        let jumped_into = from_outside.iter().any(|target| (run.start..run.end).contains(target));
        // A reached no-op is an executed one, whatever else was concluded.
        let executed = (first..index).any(|padding| function.is_reached(padding));
        if !jumped_into && !executed && !function.has_target_in(run.start, run.end) {
            runs.push(run);
        }
    }
    runs
}

/// The linker's traps at the end of a proven function. `symbols`: addresses of all symbols, sorted.
pub fn traps_at_end(function: &Function, symbols: &[u64]) -> Option<Run> {
    if !function.range().has_traps || function.has_indirect_flow() {
        return None;
    }
    let instructions = function.instructions();
    let is_trap = |index: usize| instructions[index].mnemonic() == Mnemonic::Int3;
    let first = (0..instructions.len()).rev().take_while(|&index| is_trap(index)).last()?;
    let run = Run { start: instructions[first].ip(), end: function.range().end };
    let is_behind_the_end = leaves(instructions.get(first.checked_sub(1)?)?);
    let is_reached = (first..instructions.len()).any(|index| function.is_reached(index));
    let is_named = symbols[symbols.partition_point(|&symbol| symbol < run.start)..]
        .first()
        .is_some_and(|&symbol| symbol < run.end);
    (is_behind_the_end && !is_reached && !is_named && !function.has_target_in(run.start, run.end))
        .then_some(run)
}

/// The run between the proven function `before` and the next function's start, if `bytes` (all that is
/// between them) are padding. `symbols`: addresses of all symbols, sorted.
pub fn run_between(before: &Function, bytes: &[u8], symbols: &[u64]) -> Option<Run> {
    let start = before.range().end;
    let end = start + bytes.len() as u64;
    if bytes.len() < NEAR_JUMP || !before.ends_for_good() {
        return None;
    }
    let next_symbol = symbols.partition_point(|symbol| *symbol < start);
    if symbols.get(next_symbol).is_some_and(|symbol| *symbol < end) {
        return None;
    }
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    while decoder.can_decode() {
        if !is_padding(&decoder.decode()) {
            return None;
        }
    }
    Some(Run { start, end })
}

/// Runs to take paddings from; what is taken is gone.
#[derive(Default)]
pub struct Paddings {
    runs: Vec<Run>,
}

impl Paddings {
    pub fn add(&mut self, run: Run) {
        self.runs.push(run);
    }

    /// Forgets the runs that end before `address`.
    pub fn forget_before(&mut self, address: u64) {
        self.runs.retain(|run| run.end >= address);
    }

    /// Takes five bytes that a `jmp rel8` ending at `from` can reach, the farthest ones first: sites in
    /// the middle of a function can reach less than those at its ends.
    pub fn take(&mut self, from: u64) -> Option<u64> {
        let reach = |address: u64| i8::try_from(address.wrapping_sub(from).cast_signed()).ok();
        let mut best: Option<(u8, usize, bool)> = None;
        for (position, run) in self.runs.iter().enumerate() {
            let Some(last) = run.end.checked_sub(NEAR_JUMP as u64).filter(|l| *l >= run.start) else {
                continue;
            };
            for (address, at_end) in [(run.start, false), (last, true)] {
                if let Some(distance) = reach(address).map(i8::unsigned_abs)
                    && best.is_none_or(|(farthest, ..)| distance > farthest)
                {
                    best = Some((distance, position, at_end));
                }
            }
        }
        let (_, position, at_end) = best?;
        let run = &mut self.runs[position];
        let address = if at_end {
            run.end -= NEAR_JUMP as u64;
            run.end
        } else {
            run.start += NEAR_JUMP as u64;
            run.start - NEAR_JUMP as u64
        };
        Some(address)
    }
}
