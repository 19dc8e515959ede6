//! x86-64: where the image is entered in a program that no loader has brought it into.

use crate::start::runahead_agent_insert;
use core::arch::naked_asm;
use core::mem::offset_of;
use runahead_abi::insertion::{Inserted, STACK_BYTES};
use runahead_kernel::memory::PROT_READ;
use runahead_kernel::uapi::general as n;

/// The kind of relocation that adds the image's address.
const RELATIVE: u32 = 8;

/// Jumped to by the instructions that have mapped the image, with rbp = [`Inserted`], r12 = where the image
/// begins, r14 = where the start's stack begins; everything else is as at the program's first instruction,
/// where it goes on. The registers are zeros there, as the kernel leaves them, but for the address in rcx,
/// which is there where the kernel goes back by `sysret`.
///
/// The relocations come first: until they are made the agent's own code must not run.
///
/// # Safety
/// As said; by nobody else.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runahead_agent_inserted() {
    naked_asm!(
        "mov rax, [rbp + {relocations}]",
        "add rax, r12",
        "mov rcx, [rbp + {relocation_bytes}]",
        "add rcx, rax",
        "2:",
        "cmp rax, rcx",
        "jae 4f",
        "cmp dword ptr [rax + 8], {relative}",
        "jne 3f",
        "mov rdx, [rax]",
        "mov rsi, [rax + 16]",
        "add rsi, r12",
        "mov [r12 + rdx], rsi",
        "3:",
        "add rax, 24",
        "jmp 2b",
        "4:",
        "mov eax, {mprotect}",
        "mov rdi, [rbp + {read_only}]",
        "add rdi, r12",
        "mov rsi, [rbp + {read_only_bytes}]",
        "mov edx, {prot_read}",
        "syscall",
        "lea rsp, [r14 + {stack_bytes}]",
        "mov rdi, rbp",
        "call {insert}",
        "mov r12, [rbp + {entry}]",
        "mov r13, [rbp + {stack}]",
        "mov rdi, [rbp + {scratch}]",
        "mov rcx, [rbp + {scratch_bytes}]",
        "xor eax, eax",
        "rep stosb",
        "pxor xmm0, xmm0",
        "pxor xmm1, xmm1",
        "pxor xmm2, xmm2",
        "pxor xmm3, xmm3",
        "pxor xmm4, xmm4",
        "pxor xmm5, xmm5",
        "pxor xmm6, xmm6",
        "pxor xmm7, xmm7",
        "pxor xmm8, xmm8",
        "pxor xmm9, xmm9",
        "pxor xmm10, xmm10",
        "pxor xmm11, xmm11",
        "pxor xmm12, xmm12",
        "pxor xmm13, xmm13",
        "pxor xmm14, xmm14",
        "pxor xmm15, xmm15",
        "xor ebx, ebx",
        "xor ebp, ebp",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "xor r15d, r15d",
        // The flags of a new program: only that interrupts are let in.
        "push 0x202",
        "popfq",
        "mov rsp, r13",
        "mov eax, {munmap}",
        "mov rdi, r14",
        "mov esi, {stack_bytes}",
        "syscall",
        "mov rcx, r12",
        "mov eax, 0",
        "mov edx, 0",
        "mov esi, 0",
        "mov edi, 0",
        "mov r11d, 0",
        "mov r12d, 0",
        "mov r13d, 0",
        "mov r14d, 0",
        "jmp rcx",
        relocations = const offset_of!(Inserted, relocations),
        relocation_bytes = const offset_of!(Inserted, relocation_bytes),
        relative = const RELATIVE,
        mprotect = const n::__NR_mprotect,
        read_only = const offset_of!(Inserted, read_only),
        read_only_bytes = const offset_of!(Inserted, read_only_bytes),
        prot_read = const PROT_READ,
        stack_bytes = const STACK_BYTES,
        insert = sym runahead_agent_insert,
        entry = const offset_of!(Inserted, entry),
        stack = const offset_of!(Inserted, stack),
        scratch = const offset_of!(Inserted, scratch),
        scratch_bytes = const offset_of!(Inserted, scratch_bytes),
        munmap = const n::__NR_munmap,
    )
}
