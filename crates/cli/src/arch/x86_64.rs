//! The executable's entry on x86-64 (the linker is told by `build.rs`), before the C library's.
//!
//! Until the C library has come as far as calling anybody, a cold start has waited eight times for pages of
//! its own, and five times more in the few functions of Rust's that asked for the rest: where a read takes 1
//! ms, for 13 ms. So this is one piece of code, with what it says in it, and asks for all of the executable
//! at once.
//!
//! The kernel enters with the stack as it is to be for `_start` (System V ABI, AMD64 supplement, 3.4.1).
//! `rdx`, a function for atexit(3), is null for an executable without a loader.
//!
//! Under a filter of system calls (seccomp) nothing is asked for: `madvise` might be this process's last. To
//! read a file is taken for granted; what was read is left for `host::standing`.

use core::arch::global_asm;
use runahead_kernel::uapi::general as n;

/// `ru_majflt` in `struct rusage` (getrusage(2)), bytes from its beginning, and the length of that.
const MAJOR_FAULTS: usize = 72;
const RUSAGE_BYTES: usize = 144;
/// Longer requests are cut off silently by some kernels (`force_page_cache_readahead`).
const CHUNK: usize = 128 << 10;

/// Eight bytes of text as the processor has them in a register.
const fn word(text: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*text)
}

global_asm!(
    ".globl runahead_start",
    ".type runahead_start, @function",
    "runahead_start:",
    // The path, on the stack.
    "push {end}",
    "movabs rax, {middle}",
    "push rax",
    "movabs rax, {begin}",
    "push rax",
    "mov eax, {openat}",
    "mov edi, {here}",
    "mov rsi, rsp",
    "mov edx, {o_cloexec}",
    "xor r10d, r10d",
    "syscall",
    "add rsp, 24",
    "test eax, eax",
    "js 9f",
    "mov r12d, eax",
    "mov edi, eax",
    "mov eax, {read}",
    "lea rsi, [rip + {text}]",
    "mov edx, {text_bytes}",
    "syscall",
    "mov r13, rax",
    "mov eax, {close}",
    "mov edi, r12d",
    "syscall",
    "cmp r13, 10",
    "jl 9f",
    "mov [rip + {length}], r13",
    // The line that says that there is no filter.
    "lea rsi, [rip + {text}]",
    "lea rdi, [rsi + r13 - 10]",
    "movabs rcx, {line}",
    "2: cmp [rsi], rcx",
    "je 3f",
    "inc rsi",
    "cmp rsi, rdi",
    "jbe 2b",
    "jmp 9f",
    "3: cmp word ptr [rsi + 8], {none}",
    "jne 9f",
    // Whether this page had to be waited for.
    "sub rsp, {rusage}",
    "mov eax, {getrusage}",
    "xor edi, edi",
    "mov rsi, rsp",
    "syscall",
    "mov rcx, [rsp + {major_faults}]",
    "add rsp, {rusage}",
    "test rax, rax",
    "jnz 9f",
    "test rcx, rcx",
    "jz 9f",
    "lea r12, [rip + __executable_start]",
    "lea r13, [rip + edata]",
    "4: mov eax, {madvise}",
    "mov rdi, r12",
    "mov esi, {chunk}",
    "mov edx, {will_need}",
    "syscall",
    "add r12, {chunk}",
    "cmp r12, r13",
    "jb 4b",
    "9: xor edx, edx",
    "jmp _start",
    begin = const word(b"/proc/se"),
    middle = const word(b"lf/statu"),
    end = const b's',
    line = const word(b"Seccomp:"),
    none = const u16::from_le_bytes(*b"\t0"),
    text = sym runahead_host::STATUS_TEXT,
    length = sym runahead_host::STATUS_LENGTH,
    text_bytes = const runahead_host::STATUS_BYTES,
    here = const n::AT_FDCWD,
    o_cloexec = const n::O_CLOEXEC,
    rusage = const RUSAGE_BYTES,
    major_faults = const MAJOR_FAULTS,
    chunk = const CHUNK,
    will_need = const n::MADV_WILLNEED,
    openat = const n::__NR_openat,
    read = const n::__NR_read,
    close = const n::__NR_close,
    getrusage = const n::__NR_getrusage,
    madvise = const n::__NR_madvise,
);
