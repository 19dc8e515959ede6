//! x86-64: the way from the beginning of a function that makes any call, C's `syscall()`, to the entry code
//! and back (`runahead_abi::sites::form::ENTRANCE`).

use super::stub::{DESCRIPTION_AT, Description, ONWARD_AT};
use crate::calls::SEEN_AHEAD;
use crate::state::Fixed;
use core::arch::global_asm;
use core::mem::offset_of;

// A function's arguments: rdi is the number, rsi, rdx, rcx, r8, r9 and the word above the return address are
// the call's own; r10 and r11 are free, as for any function, and so is rax, which this one ignores. The calls
// that have to be seen are brought to where the kernel wants them and go the way of all stubs; the way back
// undoes it. The agent makes none of them.
//
// SAFETY: reads what the function reads, and writes registers that are free, or puts them back.
global_asm!(
    ".globl runahead_agent_any_call",
    ".hidden runahead_agent_any_call",
    ".type runahead_agent_any_call, @function",
    "runahead_agent_any_call:",
    ".cfi_startproc",
    ".cfi_signal_frame",
    ".cfi_def_cfa rsp, 0",
    ".cfi_escape 0x16, 0x10, 3, 0x7a, 0, 0x06", // the caller: *r10
    "  cmp edi, {numbers}", // as the kernel, which leaves the upper half out
    "  jae 70f",
    "  bt dword ptr [rip + {seen}], edi",
    "  jc 71f",
    "70:",
    "  lea r10, [r10 + {onward}]",
    ".cfi_escape 0x16, 0x10, 2, 0x7a, 0", // the caller: r10
    "  jmp r10",
    ".cfi_escape 0x16, 0x10, 3, 0x7a, 0, 0x06",
    "71:",
    "  mov rax, rdi",
    "  mov rdi, rsi",
    "  mov rsi, rdx",
    "  mov rdx, rcx",
    "  mov rcx, r10",
    ".cfi_escape 0x16, 0x10, 3, 0x72, 0, 0x06", // the caller: *rcx
    "  mov r10, r8",
    "  mov r8, r9",
    "  mov r9, [rsp + 8]",
    "  mov r11, [rcx + {d_state}]",
    "  jmp [r11 + {entry}]",
    ".cfi_endproc",
    ".size runahead_agent_any_call, . - runahead_agent_any_call",
    ".globl runahead_agent_any_call_back",
    ".hidden runahead_agent_any_call_back",
    ".type runahead_agent_any_call_back, @function",
    "runahead_agent_any_call_back:",
    ".cfi_startproc",
    ".cfi_signal_frame",
    ".cfi_def_cfa rsp, 0",
    ".cfi_escape 0x16, 0x10, 3, 0x72, 0, 0x06",
    "  mov r9, r8",
    "  mov r8, r10",
    "  lea r10, [rcx + {onward}]",
    ".cfi_escape 0x16, 0x10, 2, 0x7a, 0",
    "  mov rcx, rdx",
    "  mov rdx, rsi",
    "  mov rsi, rdi",
    "  mov rdi, rax",
    "  jmp r10",
    ".cfi_endproc",
    ".size runahead_agent_any_call_back, . - runahead_agent_any_call_back",
    numbers = const 32 * SEEN_AHEAD.len(),
    seen = sym SEEN_AHEAD,
    onward = const ONWARD_AT as isize - DESCRIPTION_AT as isize,
    entry = const offset_of!(Fixed, entry),
    d_state = const offset_of!(Description, state),
);

unsafe extern "C" {
    fn runahead_agent_any_call();
    fn runahead_agent_any_call_back();
}

/// Where the stub of such a function goes, with r10 = description.
pub fn any_call_address() -> usize {
    runahead_agent_any_call as *const () as usize
}

/// Where it goes back through, with rcx = description.
pub fn any_call_back_address() -> usize {
    runahead_agent_any_call_back as *const () as usize
}
