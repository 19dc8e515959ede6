//! What may be executed of code that has data among its instructions, as hand-written code does.
//!
//! From each address that something leads to, instructions are followed to where they lead. What is data and
//! has its address taken is decoded as if it were executed: so too much is rather taken for an instruction
//! than too little, and what looks like a call of the system elsewhere is none.

use std::collections::HashMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind};

use crate::forms::SYSCALL;
use crate::function::{direct_target, leaves};
use crate::numbers;
use crate::sweep::{Around, Stretches, plain_addresses};

#[derive(Default)]
pub struct Reached {
    /// Where instructions begin that may be executed; sorted. None: it cannot be told, as something jumps to
    /// where a register says.
    pub executed: Option<Vec<u64>>,
    /// What leads from them to other code that is looked at: direct calls and jumps, each with where it goes,
    pub calls: Vec<(u64, u64)>,
    pub jumps: Vec<(u64, u64)>,
    /// addresses that they take,
    pub taken: Vec<u64>,
    /// those that they read or write,
    pub named: Vec<u64>,
    /// and numbers that may be addresses.
    pub numbers: Vec<u64>,
}

/// `roots`: addresses in these stretches that may be arrived at, each with whether that is sure: data may have its
/// address taken, too. None: there is too much of it.
pub fn from(stretches: &Stretches<'_>, roots: Vec<(u64, bool)>, around: &Around<'_>) -> Option<Reached> {
    /// Many times what the largest such code has.
    const MAX_STEPS: usize = 1 << 21;
    let mut reached = Reached::default();
    let mut is_known = true;
    let mut executed: HashMap<u64, bool> = HashMap::new();
    let mut calls = Vec::new();
    let mut work = roots;
    while let Some((address, is_sure)) = work.pop() {
        let Some(bytes) = stretches.from(address) else { continue };
        let before = executed.insert(address, is_sure);
        if before == Some(true) || before == Some(is_sure) {
            executed.insert(address, is_sure || before == Some(true));
            continue;
        }
        if executed.len() > MAX_STEPS {
            return None;
        }
        let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            // A processor of tomorrow may know it.
            is_known &= !is_sure;
            continue;
        }
        let is_elsewhere = |target: u64| (around.is_code)(target) && !stretches.contains(target);
        if let Some(target) = direct_target(&instruction) {
            if is_elsewhere(target) {
                let is_call = instruction.flow_control() == FlowControl::Call;
                if is_call { &mut reached.calls } else { &mut reached.jumps }.push((address, target));
            }
            work.push((target, is_sure));
        }
        if instruction.is_ip_rel_memory_operand() {
            let named = instruction.ip_rel_memory_address();
            let is_taken = instruction.mnemonic() == Mnemonic::Lea;
            if is_elsewhere(named) {
                if is_taken { &mut reached.taken } else { &mut reached.named }.push(named);
            }
            work.extend(is_taken.then_some((named, false)));
        }
        if around.is_fixed {
            let numbers = || plain_addresses(&instruction);
            reached.numbers.extend(numbers().filter(|number| is_elsewhere(*number)));
            work.extend(numbers().map(|number| (number, false)));
        }
        if numbers::is_syscall(&instruction) {
            // Whatever prefixes it has.
            calls.push(instruction.next_ip() - SYSCALL.len() as u64);
        }
        let is_indirect =
            matches!(instruction.flow_control(), FlowControl::IndirectBranch | FlowControl::IndirectCall);
        let returns_to_pushed = instruction.mnemonic() == Mnemonic::Push
            && stretches.from(instruction.next_ip()).is_some_and(|next| next[0] == RET);
        is_known &= !(is_indirect && instruction.op0_kind() == OpKind::Register || returns_to_pushed);
        // A handler may go on behind a trap. What stands behind a jump or a return may be a function whose
        // address is made in a way that nobody sees.
        work.push((instruction.next_ip(), is_sure && !leaves(&instruction)));
    }
    if is_known {
        let mut executed: Vec<u64> = executed.into_keys().chain(calls).collect();
        executed.sort_unstable();
        reached.executed = Some(executed);
    }
    Some(reached)
}

/// The `ret` that has no operand.
const RET: u8 = 0xc3;
