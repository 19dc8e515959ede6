//! x86-64: the way from the one place where musl and newer glibc make all calls that may be cancelled, to the
//! entry code and back (`runahead_abi::sites::form::CANCELLATION` and `CALLED`).

use super::stub::{DESCRIPTION_AT, Description, ONWARD_AT};
use crate::state::Fixed;
use core::arch::global_asm;
use core::mem::offset_of;
use runahead_kernel::uapi::general as n;

// The place where a C library makes all calls that may be cancelled. A function's arguments come in: rdi
// points to the thread's state of cancellation, rsi is the number, rdx, rcx, r8, r9 and two words above the
// return address are the call's own arguments; rax, r10 and r11 are free, as for any function. What the
// agent does not look at goes on at once. The others are brought to where the kernel wants them, as the
// code at the site will do again (rdi is kept where that keeps it, in a word that belongs to the function
// called), and go the way of all stubs; the way back undoes it. Both end at the stub's way onward, to the
// place's beginning. A handler that cancels meanwhile finds a program counter that is not the site's: it
// marks the thread and leaves it, and the site's own look comes after.
//
// SAFETY: reads and writes what the site's own code reads and writes next, and registers that are free.
global_asm!(
    ".globl runahead_agent_cancellation",
    ".hidden runahead_agent_cancellation",
    ".type runahead_agent_cancellation, @function",
    "runahead_agent_cancellation:",
    ".cfi_startproc",
    ".cfi_signal_frame",
    ".cfi_def_cfa rsp, 0",
    ".cfi_escape 0x16, 0x10, 3, 0x7a, 0, 0x06", // the caller: *r10
    "  cmp esi, {read}",
    "  je 71f",
    "  cmp esi, {pread}",
    "  je 71f",
    "  cmp esi, {readv}",
    "  je 71f",
    "  cmp esi, {preadv}",
    "  je 71f",
    "  cmp esi, {preadv2}",
    "  je 71f",
    "  cmp esi, {copy_file_range}",
    "  je 71f",
    "  cmp esi, {splice}",
    "  je 71f",
    "  cmp esi, {openat}",
    "  je 73f",
    "  cmp esi, {open}",
    "  je 73f",
    "  cmp esi, {close}",
    "  je 72f",
    "  cmp esi, {fcntl}",
    "  je 72f",
    "70:",
    "  lea r10, [r10 + {onward}]",
    ".cfi_escape 0x16, 0x10, 2, 0x7a, 0", // the caller: r10
    "  jmp r10",
    ".cfi_escape 0x16, 0x10, 3, 0x7a, 0, 0x06",
    "71:",
    "  dec dword ptr [r11 + {calm}]",
    "  jns 70b",
    "  jmp 72f",
    "73:",
    "  dec dword ptr [r11 + {openings}]",
    "  jns 70b",
    "72:",
    "  mov rax, rsi",
    "  mov r11, rdi",
    "  mov rdi, rdx",
    "  mov rsi, rcx",
    "  mov rcx, r10",
    ".cfi_escape 0x16, 0x10, 3, 0x72, 0, 0x06", // the caller: *rcx
    "  mov rdx, r8",
    "  mov r10, r9",
    "  mov r8, [rsp + 8]",
    "  mov r9, [rsp + 16]",
    "  mov [rsp + 8], r11",
    "  mov r11, [rcx + {d_state}]",
    "  jmp [r11 + {entry}]",
    ".cfi_endproc",
    ".size runahead_agent_cancellation, . - runahead_agent_cancellation",
    ".globl runahead_agent_cancellation_back",
    ".hidden runahead_agent_cancellation_back",
    ".type runahead_agent_cancellation_back, @function",
    "runahead_agent_cancellation_back:",
    ".cfi_startproc",
    ".cfi_signal_frame",
    ".cfi_def_cfa rsp, 0",
    ".cfi_escape 0x16, 0x10, 3, 0x72, 0, 0x06",
    "  mov r11, [rsp + 8]",
    "  mov [rsp + 8], r8",
    "  mov r9, r10",
    "  mov r8, rdx",
    "  lea r10, [rcx + {onward}]",
    ".cfi_escape 0x16, 0x10, 2, 0x7a, 0",
    "  mov rcx, rsi",
    "  mov rdx, rdi",
    "  mov rsi, rax",
    "  mov rdi, r11",
    "  jmp r10",
    ".cfi_endproc",
    ".size runahead_agent_cancellation_back, . - runahead_agent_cancellation_back",
    read = const n::__NR_read,
    pread = const n::__NR_pread64,
    readv = const n::__NR_readv,
    preadv = const n::__NR_preadv,
    preadv2 = const n::__NR_preadv2,
    copy_file_range = const n::__NR_copy_file_range,
    splice = const n::__NR_splice,
    openat = const n::__NR_openat,
    open = const n::__NR_open,
    close = const n::__NR_close,
    fcntl = const n::__NR_fcntl,
    onward = const ONWARD_AT as isize - DESCRIPTION_AT as isize,
    calm = const offset_of!(Fixed, calm),
    openings = const offset_of!(Fixed, openings),
    entry = const offset_of!(Fixed, entry),
    d_state = const offset_of!(Description, state),
);

unsafe extern "C" {
    fn runahead_agent_cancellation();
    fn runahead_agent_cancellation_back();
}

/// Where the stub of a cancellable place goes, with r10 = description and r11 = state.
pub fn cancellation_address() -> usize {
    runahead_agent_cancellation as *const () as usize
}

/// Where it goes back through, with rcx = description.
pub fn cancellation_back_address() -> usize {
    runahead_agent_cancellation_back as *const () as usize
}
