//! x86-64: the instructions that bring the image in, and a new program's registers.
//!
//! They are entered with rbx = the table of calls and rbp = [`Inserted`], with the program's stack pointer,
//! of which they use nothing, and leave to the agent with r12 = where its image begins and r14 = where the
//! start's stack begins. Where a call fails all is given back, and the program begins.

use core::arch::global_asm;
use core::mem::offset_of;
use runahead_abi::insertion::{Call, END, Inserted, STACK_BYTES, call};

/// e_machine of the processor's programs.
pub const MACHINE: u16 = 62;

/// Kinds of relocations: the image's address added, and a symbol's address.
pub const RELATIVE: u32 = 8;
pub const OF_SYMBOL: u32 = 6;

pub const NUMBERS: crate::image::Numbers = crate::image::Numbers { open: 257, map: 9, close: 3 };

const MUNMAP: u32 = 11;

// Only data here: it runs in another process. At the end the registers are zeros, as at a program's start,
// but for rcx, which has the address of the first instruction (as where the kernel goes back by `sysret`).
global_asm!(
    ".pushsection .rodata.runahead_insert, \"a\", @progbits",
    ".p2align 3",
    "runahead_insert_code:",
    "xor r12d, r12d",
    "mov r13, -1",
    "xor r14d, r14d",
    "2:",
    "mov eax, [rbx + {number}]",
    "cmp eax, {end}",
    "je 9f",
    "mov r15d, [rbx + {how}]",
    "mov rdi, [rbx + {arguments}]",
    "mov rsi, [rbx + {arguments} + 8]",
    "mov rdx, [rbx + {arguments} + 16]",
    "mov r10, [rbx + {arguments} + 24]",
    "mov r8, [rbx + {arguments} + 32]",
    "mov r9, [rbx + {arguments} + 40]",
    "test r15b, {in_image}",
    "jz 3f",
    "add rdi, r12",
    "3:",
    "test r15b, {closes}",
    "cmovnz rdi, r13",
    "test r15b, {of_file}",
    "cmovnz r8, r13",
    "syscall",
    "cmp rax, -4096",
    "ja 8f",
    "test r15b, {is_image}",
    "cmovnz r12, rax",
    "test r15b, {is_file}",
    "cmovnz r13, rax",
    "test r15b, {is_stack}",
    "cmovnz r14, rax",
    "test r15b, {closes}",
    "jz 4f",
    "mov r13, -1",
    "4:",
    "add rbx, {call_bytes}",
    "jmp 2b",
    // Refused.
    "8:",
    "test r13d, r13d",
    "js 5f",
    "mov eax, {close}",
    "mov edi, r13d",
    "syscall",
    "5:",
    "test r12, r12",
    "jz 6f",
    "mov eax, {munmap}",
    "mov rdi, r12",
    "mov rsi, [rbp + {image_bytes}]",
    "syscall",
    "6:",
    "test r14, r14",
    "jz 7f",
    "mov eax, {munmap}",
    "mov rdi, r14",
    "mov esi, {stack_bytes}",
    "syscall",
    "7:",
    "mov rcx, [rbp + {entry}]",
    "xor eax, eax",
    "xor ebx, ebx",
    "xor edx, edx",
    "xor esi, esi",
    "xor edi, edi",
    "xor ebp, ebp",
    "xor r8d, r8d",
    "xor r9d, r9d",
    "xor r10d, r10d",
    "xor r11d, r11d",
    "xor r12d, r12d",
    "xor r13d, r13d",
    "xor r14d, r14d",
    "xor r15d, r15d",
    "jmp rcx",
    // All is there.
    "9:",
    "mov rax, [rbp + {enter}]",
    "add rax, r12",
    "jmp rax",
    ".globl runahead_insert_code_end",
    ".hidden runahead_insert_code_end",
    ".globl runahead_insert_code",
    ".hidden runahead_insert_code",
    "runahead_insert_code_end:",
    ".popsection",
    number = const offset_of!(Call, number),
    how = const offset_of!(Call, how),
    arguments = const offset_of!(Call, arguments),
    end = const END as i32,
    in_image = const call::IN_IMAGE,
    closes = const call::CLOSES,
    of_file = const call::OF_FILE,
    is_image = const call::IS_IMAGE,
    is_file = const call::IS_FILE,
    is_stack = const call::IS_STACK,
    call_bytes = const size_of::<Call>(),
    close = const NUMBERS.close,
    munmap = const MUNMAP,
    image_bytes = const offset_of!(Inserted, image_bytes),
    stack_bytes = const STACK_BYTES,
    entry = const offset_of!(Inserted, entry),
    enter = const offset_of!(Inserted, enter),
);

unsafe extern "C" {
    static runahead_insert_code: u8;
    static runahead_insert_code_end: u8;
}

/// The instructions; they may stand anywhere.
pub fn code() -> &'static [u8] {
    let (start, end) = (&raw const runahead_insert_code, &raw const runahead_insert_code_end);
    // SAFETY: bytes of the section above, which is read-only data of this program.
    unsafe { std::slice::from_raw_parts(start, end as usize - start as usize) }
}

/// Whether a call executes another program.
pub fn executes(number: u64) -> bool {
    [EXECVE, EXECVEAT].contains(&number)
}

/// Whether a call is one of those that lead out of the agent: it wakes up, and puts the mask of signals back.
pub fn leads_out(number: u64) -> bool {
    [FUTEX, RESTART_SYSCALL, RT_SIGPROCMASK, CLOCK_GETTIME, RT_SIGRETURN].contains(&number)
}

const EXECVE: u64 = 59;
const EXECVEAT: u64 = 322;
const FUTEX: u64 = 202;
const RESTART_SYSCALL: u64 = 219;
const RT_SIGPROCMASK: u64 = 14;
const CLOCK_GETTIME: u64 = 228;
const RT_SIGRETURN: u64 = 15;

/// A new program's first instruction and stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    pub entry: u64,
    pub stack: u64,
}

/// Where a new program will begin. None: it is another machine's (a 32-bit program).
pub fn start(registers: &libc::user_regs_struct) -> Option<Start> {
    const USER_CS: u64 = 0x33;
    (registers.cs == USER_CS).then_some(Start { entry: registers.rip, stack: registers.rsp })
}

/// Has it begin with the instructions at `code` instead.
pub fn enter(registers: &mut libc::user_regs_struct, code: u64, calls: u64, told: u64) {
    registers.rip = code;
    registers.rbx = calls;
    registers.rbp = told;
}

/// Has it begin with another stack pointer.
pub fn set_stack(registers: &mut libc::user_regs_struct, stack: u64) {
    registers.rsp = stack;
}
