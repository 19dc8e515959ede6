//! What stands at a `syscall` and around it: in which form the call can be rewritten there, if in any.
//!
//! Looks at the instructions of one function, which is proven by then; whatever a jump may lead to is the
//! caller's question.

use crate::flags;
use crate::function::{Function, direct_target};
use crate::numbers::{self, MUST_SEE, NEVER_PATCHED, Numbers};
use crate::sweep::Swept;
use iced_x86::{
    Code as Opcode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use runahead_abi::sites::{ANY_NUMBER, CANCELLATION_START, CHECKED_BYTES, NEAR_JUMP, SHORT_BRANCH, form};

/// The two bytes of `syscall`.
pub const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// What the instruction before a `syscall` allows, before a padding is found.
pub struct Draft {
    /// Index of the rewritten instruction.
    pub index: usize,
    pub number: u16,
    pub form: u8,
    pub short: bool,
}

/// Several instructions in front of the `syscall` with index `call` that can be displaced together, for want
/// of padding. `is_entered`: whether something may jump to an address.
pub fn run(
    function: &Function,
    call: usize,
    number: u16,
    may_be_displaced: impl Fn(usize) -> bool,
    is_entered: impl Fn(u64) -> bool,
) -> Option<Draft> {
    if function.has_indirect_flow() {
        return None;
    }
    let instructions = function.instructions();
    let mut length = 0;
    for index in (0..call).rev() {
        let instruction = &instructions[index];
        let is_plain = (may_be_displaced(index) && instruction.mnemonic() != Mnemonic::Pop)
            || stores_to_stack(instruction);
        // Whoever jumps to what follows it would land in the jump that is written here.
        if !is_plain || !function.is_reached(index) || is_entered(instructions[index + 1].ip()) {
            return None;
        }
        length += instruction.len();
        if length + SYSCALL.len() > CHECKED_BYTES {
            return None;
        }
        if length >= NEAR_JUMP {
            return Some(Draft { index, number, form: form::DISPLACED, short: false });
        }
    }
    None
}

/// Instructions of a site of [`form::TAKEN`]: one of five bytes or more, another one, and the jump.
pub const TAKEN_INSTRUCTIONS: usize = 3;

/// Conditional jumps straight to a `syscall` that can be displaced, with what stands before them.
pub fn taken<'a>(
    function: &'a Function,
    numbers: &'a Numbers,
    swept: Option<&'a Swept>,
) -> impl Iterator<Item = Draft> + 'a {
    let instructions = function.instructions();
    let draft = move |index: usize| {
        let jump = &instructions[index];
        if !jump.is_jcc_short() || jump.len() != SHORT_BRANCH {
            return None;
        }
        let call = function.index_of(jump.near_branch_target())?;
        let is_call = numbers::is_syscall(&instructions[call]) && instructions[call].len() == SYSCALL.len();
        let number = u16::try_from(numbers.where_taken(index)?).ok()?;
        let is_wanted = MUST_SEE.contains(&number) && !NEVER_PATCHED.contains(&number);
        let first = (index + 1).checked_sub(TAKEN_INSTRUCTIONS)?;
        let [load, test] = &instructions[first..index] else { return None };
        let length = load.len() + test.len() + jump.len();
        let is_plain = may_be_displaced(load) && load.mnemonic() != Mnemonic::Pop || stores_to_stack(load);
        let is_test = matches!(test.mnemonic(), Mnemonic::Test | Mnemonic::Cmp | Mnemonic::Mov)
            && takes_registers(test);
        let fits = load.len() >= NEAR_JUMP && length + SYSCALL.len() <= CHECKED_BYTES;
        let is_reached = (first..=index).chain([call]).all(|index| function.is_reached(index));
        (is_call
            && is_wanted
            && is_plain
            && is_test
            && fits
            && is_reached
            && flags::dead_at(function, call + 1, swept))
        .then_some(Draft { index: first, number, form: form::TAKEN, short: false })
    };
    (0..instructions.len().saturating_sub(1)).filter_map(draft)
}

/// Whether the instruction, at a function's beginning, may stand anywhere: it makes room on the stack, saves a
/// register there or moves one.
pub fn begins_anywhere(instruction: &Instruction) -> bool {
    let makes_room = instruction.mnemonic() == Mnemonic::Sub
        && instruction.op0_register() == Register::RSP
        && instruction.op1_kind() != OpKind::Register
        && instruction.op1_kind() != OpKind::Memory;
    let saves = instruction.mnemonic() == Mnemonic::Push
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().is_gpr64();
    let moves = may_be_displaced(instruction) && instruction.mnemonic() != Mnemonic::Pop;
    makes_room || saves || moves || stores_to_stack(instruction)
}

/// Whether the function writes rax before it reads it, and before its first branch. (A function that takes
/// any number of arguments may be told there how many are in vector registers. Nobody is told anything in
/// r10 and r11.)
pub fn ignores_rax(instructions: &[Instruction]) -> bool {
    let mut info = InstructionInfoFactory::new();
    for instruction in instructions {
        let used = info.info(instruction).used_registers();
        let mut of_rax = used.iter().filter(|used| used.register().full_register() == Register::RAX);
        if of_rax.clone().any(|used| used.access() != OpAccess::Write) {
            return false;
        }
        if of_rax.any(|used| used.register().is_gpr64() || used.register().is_gpr32()) {
            return true;
        }
        if instruction.flow_control() != FlowControl::Next {
            return false;
        }
    }
    false
}

/// Whether this is C's `syscall()`, where nothing says its name: a function that takes any number of
/// arguments, saves all of them but its first, in their order, and makes the call whose number that first one
/// is.
pub fn makes_the_call_it_is_told(function: &Function, call: usize) -> bool {
    const SAVED: [Register; 5] = [Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];
    let Some(before) = function.instructions().get(..call) else { return false };
    let is_straight = |instruction: &&Instruction| instruction.flow_control() == FlowControl::Next;
    let first = before.iter().take_while(is_straight).count();
    let mut info = InstructionInfoFactory::new();
    // How many of the first ones leave a register as it is.
    let mut kept = |instructions: &[Instruction], register: Register| {
        let mut leaves = |instruction: &Instruction| {
            let used = info.info(instruction).used_registers();
            used.iter().all(|used| {
                used.register().full_register() != register
                    || matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
            })
        };
        instructions.iter().take_while(|instruction| leaves(instruction)).count()
    };
    let mut places = Vec::new();
    for register in SAVED {
        let saves = |instruction: &&Instruction| {
            instruction.code() == Opcode::Mov_rm64_r64
                && instruction.op1_register() == register
                && is_stack_slot(instruction)
        };
        let as_told = kept(&before[..first], register);
        places.extend(before[..as_told].iter().find(saves).map(Instruction::memory_displacement64));
    }
    let is_area =
        places.len() == SAVED.len() && places.windows(2).all(|two| two[1] == two[0].wrapping_add(8));
    let moves_number = |instruction: &Instruction| {
        instruction.mnemonic() == Mnemonic::Mov
            && (instruction.op0_register(), instruction.op1_register()) == (Register::RAX, Register::RDI)
    };
    let Some(moved) = before[..first].iter().position(moves_number) else { return false };
    let from_moved = &before[moved + 1..];
    // On the way to the call nothing else is called, and no way leads back to before it.
    let goes_on = |instruction: &Instruction| {
        matches!(
            instruction.flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        )
    };
    let leads_back = |instruction: &Instruction| {
        let target = direct_target(instruction).and_then(|target| function.arrival(target));
        target
            .is_some_and(|target| target <= call && function.instructions()[target].ip() <= instruction.ip())
    };
    is_area
        && kept(&before[..moved], Register::RDI) == moved
        && kept(from_moved, Register::RAX) == from_moved.len()
        && from_moved.iter().all(goes_on)
        && !function.instructions().iter().any(leads_back)
}

/// Whether the function begins as those that make calls which may be cancelled: it looks at the thread's
/// state. A handler believes the program counter between that and the call, so nothing there may be
/// elsewhere.
pub fn looks_at_cancellation(function: &Function) -> bool {
    const WITHIN: usize = 4;
    let Some([load, then @ ..]) = function.instructions().get(..WITHIN) else { return false };
    load.mnemonic() == Mnemonic::Mov
        && load.op0_register() == Register::EAX
        && load.op1_kind() == OpKind::Memory
        && load.memory_base() == Register::RDI
        && then.iter().any(|instruction| instruction.flow_control() == FlowControl::ConditionalBranch)
}

/// Whether this is where glibc does in one thread what another has asked of all (`setxid`): number and three
/// arguments come from one record.
pub fn changes_identity(function: &Function, call: usize) -> bool {
    const FIELDS: [(Register, u64); 4] =
        [(Register::EAX, 0), (Register::RDI, 8), (Register::RSI, 16), (Register::RDX, 24)];
    let Some(loads) =
        call.checked_sub(FIELDS.len()).and_then(|first| function.instructions().get(first..call))
    else {
        return false;
    };
    let base = loads[0].memory_base();
    let is_field = |load: &Instruction| {
        load.mnemonic() == Mnemonic::Mov
            && load.op1_kind() == OpKind::Memory
            && load.memory_base() == base
            && load.memory_index() == Register::None
    };
    let loaded = |(register, displacement): (Register, u64)| {
        loads
            .iter()
            .any(|load| load.op0_register() == register && load.memory_displacement64() == displacement)
    };
    base.is_gpr64() && loads.iter().all(is_field) && FIELDS.into_iter().all(loaded)
}

/// Whether it is the one of the two that is a signal's handler: it looks whether a thread of its own process
/// has sent the signal (`si_code` is SI_TKILL).
pub fn is_identity_handler(function: &Function, call: usize) -> bool {
    const SI_CODE_AT: u64 = 8;
    const SI_TKILL: u32 = (-6_i32).cast_unsigned();
    changes_identity(function, call)
        && function.instructions()[..call].iter().any(|instruction| {
            instruction.mnemonic() == Mnemonic::Cmp
                && instruction.op0_kind() == OpKind::Memory
                && instruction.memory_displacement64() == SI_CODE_AT
                && is_immediate(instruction.op1_kind())
                && instruction.immediate(1) as u32 == SI_TKILL
        })
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(kind, OpKind::Immediate8to32 | OpKind::Immediate32)
}

/// The number to record for a displaced form, if such a site is worth its stub and its padding: a call
/// that must be seen, or one that can be any (`syscall()` of the C library). `choices`: all that it may be.
pub fn displaced_number(function: &Function, number: Option<u32>, choices: Option<&[u32]>) -> Option<u16> {
    /// Those that read into memory of the caller's.
    const READS: [u32; 5] = [0, 17, 19, 295, 327];
    match (number, choices) {
        // Where all code is proven, room is not that scarce: the agent has a use for others, too.
        (Some(number), _) => {
            u16::try_from(number).ok().filter(|n| function.is_closed() || MUST_SEE.contains(n))
        }
        // With indirect flow, unknown rather means that constants could not be followed.
        (None, _) if function.has_indirect_flow() => None,
        // Any of these stands for all.
        (None, Some([first, rest @ ..])) if rest.iter().chain([first]).all(|n| READS.contains(n)) => {
            u16::try_from(*first).ok()
        }
        (None, _) => Some(ANY_NUMBER),
    }
}

/// The place where glibc makes all calls that may be cancelled, if the `syscall` with index `call` is its. It
/// is known by each of its instructions, as the agent does again what they do ([`form::CANCELLATION`]).
pub fn cancellation(function: &Function, call: usize) -> Option<Draft> {
    use iced_x86::Code::{Jne_rel32_64, Test_rm8_imm8};
    /// The bit of the thread's state that says that it is cancelled.
    const CANCELLED: u8 = 8;
    let (first, [load, test, jump]) = cancellable_calls(function, call)?;
    let looks = load.len() == CANCELLATION_START
        && test.code() == Test_rm8_imm8
        && test.immediate8() == CANCELLED
        && is_at(&test, Register::RDI, 0)
        && jump.code() == Jne_rel32_64;
    let is_sound = looks
        && (first..=call).all(|index| function.is_reached(index))
        && flags::dead_at(function, call + 1, None);
    is_sound.then_some(Draft { index: first, number: ANY_NUMBER, form: form::CANCELLATION, short: true })
}

/// Whether this is where a C library makes all calls that may be cancelled, glibc's or musl's.
pub fn makes_cancellable_calls(function: &Function, call: usize) -> bool {
    use iced_x86::Code::{Jne_rel8_64, Jne_rel32_64, Test_rm8_imm8, Test_rm32_r32};
    cancellable_calls(function, call).is_some_and(|(first, [_, test, jump])| {
        first == 0
            && matches!(test.code(), Test_rm8_imm8 | Test_rm32_r32)
            && matches!(jump.code(), Jne_rel8_64 | Jne_rel32_64)
    })
}

/// The first of the instructions of such a place, its index, and the two behind it; what follows these is the
/// same in both C libraries.
fn cancellable_calls(function: &Function, call: usize) -> Option<(usize, [Instruction; 3])> {
    use Register::{EAX, R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI, RSP};
    use iced_x86::Code::{Mov_r32_rm32, Mov_r64_rm64, Mov_rm64_r64};
    let first = call.checked_sub(12)?;
    let [load, test, jump, moves @ ..] = function.instructions().get(first..call)? else { return None };
    let moved = [(R11, RDI), (RAX, RSI), (RDI, RDX), (RSI, RCX), (RDX, R8), (R10, R9)];
    let [registers @ .., fifth, sixth, kept] = moves else { return None };
    let moves = registers.len() == moved.len()
        && registers.iter().zip(moved).all(|(instruction, (to, from))| {
            instruction.mnemonic() == Mnemonic::Mov
                && instruction.op1_kind() == OpKind::Register
                && (instruction.op0_register(), instruction.op1_register()) == (to, from)
        })
        && [(fifth, R8, 8), (sixth, R9, 16)].into_iter().all(|(instruction, to, displacement)| {
            instruction.code() == Mov_r64_rm64
                && instruction.op0_register() == to
                && is_at(instruction, RSP, displacement)
        })
        && kept.code() == Mov_rm64_r64
        && kept.op1_register() == R11
        && is_at(kept, RSP, 8);
    let loads = load.code() == Mov_r32_rm32 && load.op0_register() == EAX && is_at(load, RDI, 0);
    (loads && moves).then_some((first, [*load, *test, *jump]))
}

/// Whether the memory operand is so far from what the register points to, and nothing else.
fn is_at(instruction: &Instruction, base: Register, displacement: u64) -> bool {
    instruction.segment_prefix() == Register::None
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == displacement
        && instruction.memory_base() == base
}

/// Index of the first of the instructions at the end of these that can be displaced together: a load of five
/// bytes or more, a test, a short conditional jump.
pub fn branched(before: &[Instruction]) -> Option<usize> {
    let [.., load, test, jump] = before else { return None };
    let length = load.len() + test.len() + jump.len();
    let fits = load.len() >= NEAR_JUMP && length + SYSCALL.len() <= CHECKED_BYTES;
    let is_short_branch = jump.flow_control() == FlowControl::ConditionalBranch
        && jump.is_jcc_short()
        && jump.len() == SHORT_BRANCH;
    let is_test = matches!(test.mnemonic(), Mnemonic::Test | Mnemonic::Cmp) && takes_registers(test);
    (fits && is_short_branch && is_test && may_be_displaced(load)).then(|| before.len() - 3)
}

/// Whether all operands are general registers or constants.
fn takes_registers(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).all(|operand| match instruction.op_kind(operand) {
        OpKind::Register => instruction.op_register(operand).is_gpr(),
        OpKind::Memory => false,
        _ => true,
    })
}

/// Whether the instruction does the same wherever it stands, and cannot fault: it moves or combines general
/// registers (not the stack pointer) and constants, loads from the stack or from the thread's own block, or
/// pops.
pub fn may_be_displaced(instruction: &Instruction) -> bool {
    let plain = matches!(
        instruction.mnemonic(),
        Mnemonic::Mov
            | Mnemonic::Xor
            | Mnemonic::And
            | Mnemonic::Or
            | Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::Movsxd
            | Mnemonic::Not
            | Mnemonic::Pop
    );
    let operands = (0..instruction.op_count()).all(|operand| match instruction.op_kind(operand) {
        OpKind::Register => {
            let register = instruction.op_register(operand);
            register.is_gpr() && register.full_register() != Register::RSP
        }
        OpKind::Memory => operand > 0 && (is_stack_slot(instruction) || is_thread_slot(instruction)),
        _ => true,
    });
    plain && operands && instruction.len() >= 2
}

/// Whether the instruction stores a constant or a register where its function has made room for it.
fn stores_to_stack(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Memory
        && is_stack_slot(instruction)
        && (instruction.op1_kind() != OpKind::Register || instruction.op1_register().is_gpr())
}

/// Whether the memory operand is a fixed distance above the start of the thread's control block, where C
/// libraries keep what they know of a thread.
fn is_thread_slot(instruction: &Instruction) -> bool {
    const BLOCK_BYTES: u64 = 4096;
    instruction.segment_prefix() == Register::FS
        && instruction.memory_base() == Register::None
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() < BLOCK_BYTES
}

/// Whether the memory operand is a fixed distance above the stack pointer.
fn is_stack_slot(instruction: &Instruction) -> bool {
    instruction.memory_base() == Register::RSP
        && instruction.memory_index() == Register::None
        && instruction.segment_prefix() == Register::None
        && instruction.memory_displacement64().cast_signed() >= 0
}
