//! Which system call a `syscall` instruction makes.
//!
//! Often the number is loaded right before it; else constants are followed through the function: moves
//! of constants into registers and between registers, along every direct path, a join keeping what all
//! paths agree on, or the few constants that they differ in. A register that was tested is zero where the
//! branch says so. In a function with indirect jumps whose targets are not known only straight lines are
//! followed.

use std::collections::{HashMap, HashSet};

use iced_x86::{
    Code as Opcode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
    RflagsBits,
};

use crate::function::{Function, direct_target, never_goes_on};

/// System calls that the agent must see, each with its number: those that it serves, and those that
/// change what it relies on. A site of one of these that stays unpatched is counted in
/// `runahead_abi::sites::Index::unproven`, so that the agent knows that it may miss some.
///
/// | why | calls |
/// |---|---|
/// | served: reads | `read`, `pread64`, `readv`, `preadv`, `preadv2` |
/// | served: names | `open`, `openat`, `openat2`, `stat`, `fstat`, `lstat`, `newfstatat`, `statx`, `getdents`, `getdents64`, `access`, `faccessat`, `faccessat2`, `readlink`, `readlinkat` |
/// | new code appears | `mmap` |
/// | the sandbox or the dumpable flag changes | `prctl`, `seccomp` |
/// | something of the agent's may go away | `munmap`, `mremap`, `mprotect`, `madvise` |
/// | the image goes away | `execve`, `execveat`, `exit_group` |
/// | somebody else takes control | `ptrace` |
pub const MUST_SEE: &[u16] = &[
    0,   // read
    17,  // pread64
    19,  // readv
    295, // preadv
    327, // preadv2
    2,   // open
    257, // openat
    437, // openat2
    4,   // stat
    5,   // fstat
    6,   // lstat
    262, // newfstatat
    332, // statx
    217, // getdents64
    78,  // getdents
    21,  // access
    269, // faccessat
    439, // faccessat2
    89,  // readlink
    267, // readlinkat
    9,   // mmap
    11,  // munmap
    25,  // mremap
    10,  // mprotect
    28,  // madvise
    157, // prctl
    317, // seccomp
    59,  // execve
    322, // execveat
    231, // exit_group
    101, // ptrace
];

/// System calls whose sites are never rewritten: those that return in a new thread or process with
/// another stack or the same one twice (`clone`, `fork`, `vfork`, `clone3`), the one that unwinders
/// and debuggers recognise by its bytes (`rt_sigreturn`), and two that an agent has nothing to do with
/// (`exit` of a thread, `futex`).
pub const NEVER_PATCHED: &[u16] = &[
    56,  // clone
    57,  // fork
    58,  // vfork
    435, // clone3
    RT_SIGRETURN,
    60,  // exit
    202, // futex
];

pub const RT_SIGRETURN: u16 = 15;
const PRCTL: u32 = 157;
pub const EXIT_GROUP: u16 = 231;

/// Whether a call with this number and this first argument, where known, can forbid others, the agent's among them: `seccomp`,
/// and `prctl` with PR_SET_SECCOMP or PR_SET_SYSCALL_USER_DISPATCH.
pub fn may_forbid(number: u32, first_argument: Option<u32>) -> bool {
    const SECCOMP: u32 = 317;
    match number {
        SECCOMP => true,
        PRCTL => first_argument.is_none_or(|option| [22, 59].contains(&option)),
        _ => false,
    }
}

/// How the instruction right before a `syscall` loads the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// `mov eax, imm32` (five bytes), `mov rax, imm32` (seven).
    Constant(u32),
    /// `xor eax, eax` (two bytes).
    Zero,
}

/// What `instruction` loads into `eax`, if it is one of the two loads that have a form of their own.
pub fn load_of(instruction: &Instruction) -> Option<Load> {
    match instruction.code() {
        Opcode::Mov_r32_imm32 if instruction.op0_register() == Register::EAX => {
            // Five bytes: no prefix that would mean something else to somebody.
            (instruction.len() == 5).then(|| Load::Constant(instruction.immediate32()))
        }
        Opcode::Mov_rm64_imm32 if instruction.op0_register() == Register::RAX => {
            let value = u32::try_from(instruction.immediate(1)).ok()?;
            (instruction.len() == 7).then_some(Load::Constant(value))
        }
        Opcode::Xor_rm32_r32 | Opcode::Xor_r32_rm32 => {
            let zeroes = instruction.op0_register() == Register::EAX
                && instruction.op1_kind() == OpKind::Register
                && instruction.op1_register() == Register::EAX
                && instruction.len() == 2;
            zeroes.then_some(Load::Zero)
        }
        _ => None,
    }
}

/// The number at the raw bytes in front of a `syscall` that is in no proven function: a guess for
/// counting, not for patching.
pub fn guess_from_bytes(before: &[u8]) -> Option<u32> {
    match before {
        [.., 0xb8, a, b, c, d] => Some(u32::from_le_bytes([*a, *b, *c, *d])),
        [.., 0x48, 0xc7, 0xc0, a, b, c, d] => Some(u32::from_le_bytes([*a, *b, *c, *d])),
        [.., 0x31, 0xc0] => Some(0),
        _ => None,
    }
}

/// How many bytes in front of a `syscall` set its number, or a part of it, in a way of which nothing is
/// guessed: `mov` to a part of the register, or `push` and `pop`.
pub fn sets_otherwise(before: &[u8]) -> Option<usize> {
    match before {
        [.., 0xb0, _] => Some(2),
        [.., 0x6a, _, 0x58] => Some(3),
        [.., 0x66, 0xb8, _, _] => Some(4),
        _ => None,
    }
}

/// What a whole register is known to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Unknown,
    /// One of these, sorted; `count` of them.
    Constants {
        count: u8,
        of: [u32; CHOICES],
    },
    /// An address in its function's own part of the stack.
    Stack,
}

/// Constants that a register may be one of.
const CHOICES: usize = 6;

impl Value {
    fn constant(value: u32) -> Value {
        let mut of = [0; CHOICES];
        of[0] = value;
        Value::Constants { count: 1, of }
    }

    fn choices(&self) -> Option<&[u32]> {
        match self {
            Value::Constants { count, of } => of.get(..usize::from(*count)),
            Value::Unknown | Value::Stack => None,
        }
    }

    fn single(&self) -> Option<u32> {
        match self.choices() {
            Some([only]) => Some(*only),
            _ => None,
        }
    }

    /// What is known where either may be.
    fn or(self, other: Value) -> Value {
        if self == other {
            return self;
        }
        let (Some(ours), Some(theirs)) = (self.choices(), other.choices()) else { return Value::Unknown };
        let mut all: Vec<u32> = ours.iter().chain(theirs).copied().collect();
        all.sort_unstable();
        all.dedup();
        let mut of = [0; CHOICES];
        let Some(room) = of.get_mut(..all.len()) else { return Value::Unknown };
        room.copy_from_slice(&all);
        Value::Constants { count: all.len() as u8, of }
    }
}

/// What the sixteen general registers hold; of constants the upper half is zero.
type Known = [Value; 16];

const UNKNOWN: Known = [Value::Unknown; 16];

/// What a function may change for its caller, by the platform's calling convention.
const CALL_CLOBBERS: [Register; 9] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

/// The numbers of the `syscall` instructions of one function, as far as constants tell.
#[derive(Default)]
pub struct Numbers {
    /// By index of the instruction: what `eax` and `edi` hold on arrival.
    of: HashMap<usize, [Value; 2]>,
    /// By index of the conditional jump: what `eax` holds where it is taken.
    taken: HashMap<usize, Value>,
    /// Instructions, by index, that read memory in their function's own part of the stack.
    on_stack: HashSet<usize>,
}

impl Numbers {
    /// The number of the `syscall` instruction with this index.
    pub fn at(&self, index: usize) -> Option<u32> {
        self.of.get(&index)?[0].single()
    }

    /// All that its number may be.
    pub fn choices_at(&self, index: usize) -> Option<&[u32]> {
        self.of.get(&index)?[0].choices()
    }

    /// Its first argument.
    pub fn first_argument_at(&self, index: usize) -> Option<u32> {
        self.of.get(&index)?[1].single()
    }

    /// The number of a `syscall` instruction where the conditional jump with this index leads to it.
    pub fn where_taken(&self, index: usize) -> Option<u32> {
        self.taken.get(&index)?.single()
    }

    /// Whether the instruction with this index reads memory of its function's own, through whatever register.
    pub fn reads_stack(&self, index: usize) -> bool {
        self.on_stack.contains(&index)
    }

    /// Where each of the function's `calls` has its number loaded right before it, nothing arrives
    /// between the two, and nobody asks for its first argument. None: they have to be followed.
    pub fn beside(function: &Function, calls: &[usize], from_outside: Option<&[u64]>) -> Option<Numbers> {
        let from_outside = from_outside?;
        let number = |&call: &usize| {
            let instructions = function.instructions();
            let address = instructions.get(call)?.ip();
            let number = match load_of(instructions.get(call.checked_sub(1)?)?)? {
                Load::Constant(number) => number,
                Load::Zero => 0,
            };
            let is_alone = !function.is_target(address) && !from_outside.contains(&address);
            (is_alone && number != PRCTL).then_some((call, [Value::constant(number), Value::Unknown]))
        };
        Some(Numbers { of: calls.iter().map(number).collect::<Option<_>>()?, ..Numbers::default() })
    }

    /// `from_outside`: addresses in the function that other functions jump to; `None`: unknown. `without_end`:
    /// functions, by their addresses, that do not return.
    pub fn follow(function: &Function, from_outside: Option<&[u64]>, without_end: &HashSet<u64>) -> Numbers {
        let mut numbers = Numbers::default();
        let instructions = function.instructions();
        let mut info = InstructionInfoFactory::new();
        let (Some(from_outside), false) = (from_outside, function.has_indirect_flow()) else {
            numbers.follow_blocks(function, &mut info);
            return numbers;
        };
        let mut arrivals = Arrivals::default();
        for entry in function.entries() {
            arrivals.join(*entry, &UNKNOWN);
        }
        for address in from_outside {
            if let Some(index) = function.arrival(*address) {
                arrivals.join(index, &UNKNOWN);
            }
        }
        let mut starts = vec![false; instructions.len()];
        let targets = instructions.iter().filter_map(direct_target).chain(from_outside.iter().copied());
        let arrived_at = targets.filter_map(|target| function.arrival(target));
        for index in arrived_at.chain(function.by_tables().iter().copied()) {
            starts[index] = true;
        }
        // Of an instruction that is gone through again the latest visit counts: it knows no more than those
        // before, as no visit goes on over a place that is arrived at.
        while let Some((start, mut known)) = arrivals.next() {
            // Registers that are zero if and only if the last result is said to be.
            let mut zeros = 0;
            for (index, instruction) in instructions.iter().enumerate().skip(start) {
                let leads_to = |target: usize| function.is_led_to(index) || !function.is_led_to(target);
                if index > start && (starts[index] || function.is_target(instruction.ip())) {
                    if function.is_led_to(index - 1) || !function.is_led_to(index) {
                        arrivals.join(index, &known);
                    }
                    break;
                }
                if is_syscall(instruction) {
                    numbers.of.insert(index, call_of(&known));
                }
                if reads_through(&known, instruction) == Some(Value::Stack) {
                    numbers.on_stack.insert(index);
                } else {
                    numbers.on_stack.remove(&index);
                }
                apply(&mut known, instruction, &mut info);
                zeros = zeros_after(zeros, instruction, &mut info);
                // Both instructions before it are on the way to it: nobody arrives behind the first.
                let tested = match (index.checked_sub(2).filter(|first| *first >= start), instruction.code())
                {
                    (Some(first), Opcode::Je_rel8_64 | Opcode::Je_rel32_64) => {
                        tested_for_zero(&instructions[first..index]).map(|register| (register, true))
                    }
                    (Some(first), Opcode::Jne_rel8_64 | Opcode::Jne_rel32_64) => {
                        tested_for_zero(&instructions[first..index]).map(|register| (register, false))
                    }
                    _ => None,
                };
                let (is_taken_at_zero, goes_on_at_zero) = match instruction.code() {
                    Opcode::Je_rel8_64 | Opcode::Je_rel32_64 => (zeros, 0),
                    Opcode::Jne_rel8_64 | Opcode::Jne_rel32_64 => (0, zeros),
                    _ => (0, 0),
                };
                let target = jump_target(instruction).and_then(|target| function.arrival(target));
                if let Some(target) = target.filter(|target| leads_to(*target)) {
                    let mut there = known;
                    if let Some((register, true)) = tested {
                        there[register.number()] = Value::constant(0);
                    }
                    set_to_zero(&mut there, is_taken_at_zero);
                    if instruction.flow_control() == FlowControl::ConditionalBranch {
                        numbers.taken.insert(index, there[Register::RAX.number()]);
                    }
                    arrivals.join(target, &there);
                }
                if let Some((register, false)) = tested {
                    known[register.number()] = Value::constant(0);
                }
                set_to_zero(&mut known, goes_on_at_zero);
                if instruction.flow_control() == FlowControl::IndirectBranch {
                    for target in function.by_tables() {
                        arrivals.join(*target, &known);
                    }
                }
                let ends = instruction.flow_control() == FlowControl::Call
                    && direct_target(instruction).is_some_and(|target| without_end.contains(&target));
                if never_goes_on(instruction) || ends {
                    break;
                }
            }
        }
        numbers
    }

    /// Where paths are unknown: follows constants in straight lines only, from one instruction that
    /// something is seen to arrive at to the next. An arrival in between that nothing shows (a jump
    /// table's) cannot be excluded, so these numbers are good for counting, not for trust.
    fn follow_blocks(&mut self, function: &Function, info: &mut InstructionInfoFactory) {
        let mut known = UNKNOWN;
        for (index, instruction) in function.instructions().iter().enumerate() {
            if function.is_target(instruction.ip()) {
                known = UNKNOWN;
            }
            if is_syscall(instruction) {
                self.of.insert(index, call_of(&known));
            }
            apply(&mut known, instruction, info);
            if never_goes_on(instruction) {
                known = UNKNOWN;
            }
        }
    }
}

/// The number of a call, and its first argument.
fn call_of(known: &Known) -> [Value; 2] {
    [Register::RAX, Register::RDI].map(|register| known[register.number()])
}

/// What is known on arrival at the starts of blocks, and which of them are to be gone through (again).
#[derive(Default)]
struct Arrivals {
    known: HashMap<usize, Known>,
    work: Vec<usize>,
}

impl Arrivals {
    /// One more path arrives at the instruction `index`, with this knowledge.
    fn join(&mut self, index: usize, known: &Known) {
        let Some(before) = self.known.get_mut(&index) else {
            self.known.insert(index, *known);
            self.work.push(index);
            return;
        };
        let mut after = *before;
        for (register, value) in after.iter_mut().zip(known) {
            *register = register.or(*value);
        }
        // Knowledge only ever shrinks, so this comes to an end.
        if after != *before {
            *before = after;
            self.work.push(index);
        }
    }

    fn next(&mut self) -> Option<(usize, Known)> {
        let index = self.work.pop()?;
        Some((index, self.known[&index]))
    }
}

fn apply(known: &mut Known, instruction: &Instruction, info: &mut InstructionInfoFactory) {
    if is_syscall(instruction) {
        for register in [Register::RAX, Register::RCX, Register::R11] {
            known[register.number()] = Value::Unknown;
        }
        return;
    }
    if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
        for register in CALL_CLOBBERS {
            known[register.number()] = Value::Unknown;
        }
        return;
    }
    let value = value_of(known, instruction);
    for_each_written(instruction, info, |register| known[register] = Value::Unknown);
    if value != Value::Unknown {
        known[instruction.op0_register().full_register().number()] = value;
    }
}

/// Calls `action` with the number of each general register that the instruction may write to, or to a part of.
fn for_each_written(
    instruction: &Instruction,
    info: &mut InstructionInfoFactory,
    mut action: impl FnMut(usize),
) {
    for used in info.info(instruction).used_registers() {
        let register = used.register().full_register();
        let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
        if writes && register.is_gpr64() {
            action(register.number());
        }
    }
}

/// What the instruction puts into its first operand, a register.
fn value_of(known: &Known, instruction: &Instruction) -> Value {
    let (target, source) = (instruction.op0_register(), instruction.op1_register());
    let immediate = || match instruction.op1_kind() {
        OpKind::Immediate8 | OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64 => {
            Some(instruction.immediate(1))
        }
        _ => None,
    };
    let low_byte = |register: Register| register.is_gpr8() && !HIGH_BYTES.contains(&register);
    if instruction.mnemonic() == Mnemonic::Mov && low_byte(target) {
        // The rest stays as it is.
        let before = known[target.full_register().number()].single();
        return match (before, immediate()) {
            (Some(before), Some(low)) => Value::constant(before & !0xff | (low as u32 & 0xff)),
            _ => Value::Unknown,
        };
    }
    if !(target.is_gpr32() || target.is_gpr64()) {
        return Value::Unknown;
    }
    match instruction.mnemonic() {
        Mnemonic::Mov if source != Register::None => match source.is_gpr() {
            // A register of the same size, so the whole value moves; of an address in 64 bits only.
            true => match known[source.number()] {
                Value::Stack if target.is_gpr32() => Value::Unknown,
                value => value,
            },
            false => Value::Unknown,
        },
        Mnemonic::Mov => {
            let value =
                immediate().map(|value| if target.is_gpr32() { value & u64::from(u32::MAX) } else { value });
            value.and_then(|value| u32::try_from(value).ok()).map_or(Value::Unknown, Value::constant)
        }
        Mnemonic::Xor | Mnemonic::Sub if target == source => Value::constant(0),
        Mnemonic::Lea if target.is_gpr64() && is_near(instruction.memory_displacement64()) => {
            let is_own = instruction.memory_base() == Register::RSP
                || instruction.memory_base().is_gpr64()
                    && known[instruction.memory_base().number()] == Value::Stack;
            if is_own && instruction.memory_index() == Register::None { Value::Stack } else { Value::Unknown }
        }
        Mnemonic::Add if target.is_gpr64() && source.is_gpr64() => {
            match (known[target.number()], known[source.number()]) {
                (Value::Stack, other) | (other, Value::Stack)
                    if other.single().is_some_and(|more| is_near(more.into())) =>
                {
                    Value::Stack
                }
                _ => Value::Unknown,
            }
        }
        _ => Value::Unknown,
    }
}

const HIGH_BYTES: [Register; 4] = [Register::AH, Register::BH, Register::CH, Register::DH];

/// Farthest above the stack pointer that a function's own part of the stack is taken to reach, with what its
/// caller has put there for it.
const STACK_NEAR: u64 = 512;

fn is_near(distance: u64) -> bool {
    distance < STACK_NEAR
}

/// What is known of the register through which the instruction reads memory, a fixed distance from there.
fn reads_through(known: &Known, instruction: &Instruction) -> Option<Value> {
    let base = instruction.memory_base();
    let reads = instruction.op1_kind() == OpKind::Memory
        && instruction.memory_index() == Register::None
        && instruction.segment_prefix() == Register::None
        && base.is_gpr64()
        && is_near(instruction.memory_displacement64());
    reads.then(|| known[base.number()])
}

/// Which registers, a bit each, are zero if and only if the flags behind the instruction say that the last
/// result was, where those in `before` were it in front of it.
fn zeros_after(before: u16, instruction: &Instruction, info: &mut InstructionInfoFactory) -> u16 {
    let (target, source) = (instruction.op0_register(), instruction.op1_register());
    let bit = |register: Register| 1 << register.full_register().number();
    if !matches!(
        instruction.flow_control(),
        FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    ) {
        return 0;
    }
    if instruction.rflags_modified() & RflagsBits::ZF != 0 {
        let is_whole = target.is_gpr32() || target.is_gpr64();
        return match instruction.mnemonic() {
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::And | Mnemonic::Or | Mnemonic::Xor if is_whole => {
                bit(target)
            }
            Mnemonic::Test if target.is_gpr64() && target == source => bit(target),
            _ => 0,
        };
    }
    let mut after = before;
    for_each_written(instruction, info, |register| after &= !(1 << register));
    let moves = instruction.mnemonic() == Mnemonic::Mov && target.is_gpr64() && source.is_gpr64();
    if moves && before & bit(source) != 0 {
        after |= bit(target);
    }
    after
}

fn set_to_zero(known: &mut Known, registers: u16) {
    for (number, register) in known.iter_mut().enumerate() {
        if registers >> number & 1 != 0 {
            *register = Value::constant(0);
        }
    }
}

/// The register that two instructions fill and test against zero: a load of its lower half, which clears the
/// upper one, and a test of that half.
fn tested_for_zero(pair: &[Instruction]) -> Option<Register> {
    let [load, test] = pair else { return None };
    let register = load.op0_register();
    let loads = load.mnemonic() == Mnemonic::Mov && register.is_gpr32();
    let tests = test.code() == Opcode::Test_rm32_r32
        && test.op0_kind() == OpKind::Register
        && (test.op0_register(), test.op1_register()) == (register, register);
    (loads && tests).then(|| register.full_register())
}

fn jump_target(instruction: &Instruction) -> Option<u64> {
    matches!(instruction.flow_control(), FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch)
        .then(|| instruction.near_branch_target())
}

pub fn is_syscall(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Syscall
}
