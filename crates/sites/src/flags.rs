//! Whether the status flags are dead after a system call.
//!
//! The kernel gives the flags back as they were; a stub does not. So a site is rewritten only where
//! the code behind the `syscall` overwrites every status flag before it reads one. The walk follows
//! straight-line code and unconditional direct jumps inside the function, for a bounded number of
//! steps; at a `call` or `ret` the flags are dead, since no calling convention on this platform passes
//! anything in them. Whatever else ends the walk means: not proven.

use iced_x86::{FlowControl, Instruction, Mnemonic, RflagsBits};

use crate::function::Function;
use crate::sweep::Swept;

/// The flags that arithmetic writes. The direction flag is not among them: the stub keeps it.
const STATUS: u32 =
    RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::AF | RflagsBits::CF | RflagsBits::PF;

/// Compilers test the result within a few instructions; who has not by then is left alone.
const STEPS: usize = 64;

/// Whether the flags are dead on arrival at the instruction with this index. A jump to a place that others
/// call is the end of a function as well; where all code is proven these are known.
pub fn dead_at(function: &Function, mut index: usize, swept: Option<&Swept>) -> bool {
    let mut live = STATUS;
    for _ in 0..STEPS {
        let Some(instruction) = function.instructions().get(index) else {
            return false;
        };
        if instruction.rflags_read() & live != 0 {
            return false;
        }
        live &= !surely_written(instruction);
        if live == 0 {
            return true;
        }
        match instruction.flow_control() {
            FlowControl::Next => index += 1,
            FlowControl::Return => return is_plain_return(instruction),
            // iced counts `syscall` among the calls, and that one keeps the flags.
            FlowControl::Call if instruction.mnemonic() == Mnemonic::Syscall => index += 1,
            FlowControl::Call | FlowControl::IndirectCall => {
                return instruction.mnemonic() == Mnemonic::Call;
            }
            FlowControl::UnconditionalBranch => match function.index_of(instruction.near_branch_target()) {
                Some(target) => index = target,
                None => return swept.is_some_and(|swept| swept.is_called(instruction.near_branch_target())),
            },
            _ => return false,
        }
    }
    false
}

fn is_plain_return(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Ret
}

/// The status flags that the instruction writes on every execution.
fn surely_written(instruction: &Instruction) -> u32 {
    // A shift by zero, and a repeated comparison of nothing, leave the flags as they were.
    let perhaps_not = matches!(
        instruction.mnemonic(),
        Mnemonic::Shl
            | Mnemonic::Sal
            | Mnemonic::Shr
            | Mnemonic::Sar
            | Mnemonic::Shld
            | Mnemonic::Shrd
            | Mnemonic::Rol
            | Mnemonic::Ror
            | Mnemonic::Rcl
            | Mnemonic::Rcr
    ) || instruction.has_rep_prefix()
        || instruction.has_repne_prefix();
    if perhaps_not { 0 } else { instruction.rflags_modified() & STATUS }
}
