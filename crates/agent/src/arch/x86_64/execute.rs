//! x86-64: executes a program with another environment than the program has given (`crate::substitute`).

use super::entry::Frame;
use super::stub::Description;
use crate::state::OFFSET_OF_SUBSTITUTE;
use crate::substitute::Substitute;
use core::arch::global_asm;
use core::mem::offset_of;
use runahead_kernel::Errno;
use runahead_kernel::uapi::general as n;

// Where a visit goes on instead of at the site: the area is free again, the stack, the mask and all registers
// are the program's, but rcx and r11, which a system call destroys; r11 points to the frame, of which only
// what is the same in all frames is read. The call is made with the substitute's first environment; if the
// kernel finds that too long (E2BIG), with its second. Whoever comes back goes on behind the site, with the
// register that names the environment as it was, and the substitute is free.
//
// rbx points to the substitute meanwhile, for unwinders too: DW_CFA_expression of rbx (3), as in the entry
// code.
//
// SAFETY: writes the substitute alone, which is this thread's (`Substitute::holder`). A handler that jumps out
// leaves it taken.
global_asm!(
    ".text",
    ".globl runahead_agent_execute",
    ".hidden runahead_agent_execute",
    ".type runahead_agent_execute, @function",
    "runahead_agent_execute:",
    ".cfi_startproc",
    ".cfi_signal_frame",
    ".cfi_def_cfa rsp, 0",
    ".cfi_escape 0x16, 0x10, 4, 0x7b, 8, 0x06, 0x06", // the caller: *description, which is in the frame
    "  mov rcx, [r11 + {description}]",
    "  mov rcx, [rcx + {d_state}]",
    "  lea rcx, [rcx + {at}]",
    "  mov [rcx + {rbx}], rbx",
    "  mov rbx, rcx",
    ".cfi_escape 0x10, 3, 2, 0x73, {rbx}",
    ".cfi_escape 0x16, 0x10, 3, 0x73, {behind}, 0x06", // the caller: behind
    "  cmp eax, {execveat}",
    "  je 4f",
    "  mov rdx, [rbx + {first}]",
    "  syscall",
    "  cmp rax, -{too_long}",
    "  jne 3f",
    "  mov rdx, [rbx + {second}]",
    "  test rdx, rdx",
    "  jz 3f",
    "  mov eax, {execve}",
    "  syscall",
    "3:",
    "  mov rdx, [rbx + {given}]",
    "  jmp 6f",
    "4:",
    "  mov r10, [rbx + {first}]",
    "  syscall",
    "  cmp rax, -{too_long}",
    "  jne 5f",
    "  mov r10, [rbx + {second}]",
    "  test r10, r10",
    "  jz 5f",
    "  mov eax, {execveat}",
    "  syscall",
    "5:",
    "  mov r10, [rbx + {given}]",
    "6:",
    "  mov r11, [rbx + {behind}]",
    ".cfi_escape 0x16, 0x10, 2, 0x7b, 0", // the caller: r11
    "  mov rcx, rbx",
    "  mov rbx, [rcx + {rbx}]",
    ".cfi_same_value rbx",
    "  mov dword ptr [rcx + {holder}], 0",
    "  jmp r11",
    ".cfi_endproc",
    ".size runahead_agent_execute, . - runahead_agent_execute",
    at = const OFFSET_OF_SUBSTITUTE,
    description = const Frame::DESCRIPTION_AT,
    d_state = const offset_of!(Description, state),
    holder = const offset_of!(Substitute, holder),
    rbx = const offset_of!(Substitute, rbx),
    given = const offset_of!(Substitute, given),
    behind = const offset_of!(Substitute, behind),
    first = const offset_of!(Substitute, first),
    second = const offset_of!(Substitute, second),
    execve = const n::__NR_execve,
    execveat = const n::__NR_execveat,
    too_long = const Errno::E2BIG.0,
);

unsafe extern "C" {
    fn runahead_agent_execute();
}

/// Where a visit goes on whose execution is made with the substitute.
pub fn execute_address() -> usize {
    runahead_agent_execute as *const () as usize
}

// The unwind information has offsets of one byte.
const _: () = assert!(Frame::DESCRIPTION_AT == 8);
const _: () = assert!(offset_of!(Substitute, rbx) < 64 && offset_of!(Substitute, behind) < 64);
