//! x86-64: the way into the entry code from a stub whose site makes any call: musl's `__syscall_cp`, Go's
//! `Syscall6`. What need not be seen passes, as it does at the sites of one call ([`Sampled`]).

use super::stub::{Description, Sampled};
use crate::calls::{is_measured, is_opening, is_wanted, sampled};
use crate::state::Fixed;
use core::arch::global_asm;
use core::mem::offset_of;
use runahead_kernel::uapi::general as n;

/// Numbers of calls, a bit each. Those above go on to the entry code.
type Numbers = [u32; 16];

/// (What is measured elsewhere is not at such a site, and then nothing is learned of it.)
const fn is_looked_at(number: u16) -> bool {
    (is_wanted(number) || is_opening(number)) && !is_measured(number)
}

/// The calls that are looked at of which so many may pass.
const fn numbers(which: Sampled) -> Numbers {
    let mut numbers = [0; 16];
    let mut number = 0;
    while number < 32 * numbers.len() {
        if is_looked_at(number as u16) && sampled(number as u16) as u8 == which as u8 {
            numbers[number / 32] |= 1 << (number % 32);
        }
        number += 1;
    }
    numbers
}

static CALM: Numbers = numbers(Sampled::Calm);
static OPENINGS: Numbers = numbers(Sampled::Openings);
static NEVER: Numbers = numbers(Sampled::Never);

// SAFETY: as of the entry code: entered by `jmp` from a stub with rax = the call's number, rcx = description;
// r11 and the arithmetic flags are free, and nothing else is written but the counts that every stub counts
// down.
global_asm!(
    ".globl runahead_agent_by_number",
    ".hidden runahead_agent_by_number",
    ".type runahead_agent_by_number, @function",
    "runahead_agent_by_number:",
    ".cfi_startproc",
    ".cfi_signal_frame",
    ".cfi_def_cfa rsp, 0",
    ".cfi_escape 0x16, 0x10, 3, 0x72, 0, 0x06", // the caller: *rcx
    "  mov r11, [rcx + {d_state}]",
    "  cmp eax, {numbers}", // as the kernel, which leaves the upper half out
    "  jae 72f",
    "  bt dword ptr [rip + {calm_numbers}], eax",
    "  jc 71f",
    "  bt dword ptr [rip + {never}], eax",
    "  jc 72f",
    "  bt dword ptr [rip + {opening_numbers}], eax",
    "  jc 73f",
    "70:",
    "  movsxd r11, dword ptr [rcx + {d_detour}]",
    "  add r11, [rcx + {d_syscall}]",
    "  jmp r11",
    "71:",
    "  dec dword ptr [r11 + {calm}]",
    "  jns 70b",
    "72:",
    "  jmp [r11 + {entry}]",
    "73:",
    "  dec dword ptr [r11 + {openings}]",
    "  jns 70b",
    "  jmp [r11 + {entry}]",
    ".cfi_endproc",
    ".size runahead_agent_by_number, . - runahead_agent_by_number",
    numbers = const 32 * CALM.len(),
    calm_numbers = sym CALM,
    opening_numbers = sym OPENINGS,
    never = sym NEVER,
    calm = const offset_of!(Fixed, calm),
    openings = const offset_of!(Fixed, openings),
    entry = const offset_of!(Fixed, entry),
    d_state = const offset_of!(Description, state),
    d_syscall = const offset_of!(Description, syscall_address),
    d_detour = const offset_of!(Description, detour),
);

unsafe extern "C" {
    fn runahead_agent_by_number();
}

/// Address of that way, for [`Fixed::entry_by_number`].
pub fn by_number_address() -> usize {
    runahead_agent_by_number as *const () as usize
}

const fn has(numbers: &Numbers, number: u32) -> bool {
    numbers[number as usize / 32] >> (number % 32) & 1 != 0
}

const _: () = assert!(has(&numbers(Sampled::Calm), n::__NR_pread64));
const _: () = assert!(has(&numbers(Sampled::Openings), n::__NR_openat));
// Those that the agent may have to see: in one set, and no other call in any.
const _: () = {
    let sets = [numbers(Sampled::Calm), numbers(Sampled::Openings), numbers(Sampled::Never)];
    let mut number = 0;
    while number < 32 * CALM.len() as u32 {
        let [calm, openings, never] = &sets;
        let found = has(calm, number) as u8 + has(openings, number) as u8 + has(never, number) as u8;
        assert!(found == is_looked_at(number as u16) as u8);
        number += 1;
    }
};
