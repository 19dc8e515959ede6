//! x86-64: [`entry`] from a stub into the agent and back, [`cancellation`] to there from one place of a C
//! library, [`any_call`] from C's `syscall()`, [`by_number`] from where any call is made, the [`stub`] of a
//! site, and what else the processor decides.

mod any_call;
mod by_number;
mod cancellation;
mod entry;
mod execute;
mod insert;
mod stub;

use crate::loader::Debug;
use crate::state::Fixed;
pub use by_number::by_number_address;
use core::arch::asm;
use core::sync::atomic::Ordering;
pub use entry::{
    Answer, Frame, Measured, SseRegisters, areas_in_use, entry_address, image, own_code, past_address,
    unchecked_address,
};
use runahead_abi::registers::VECTOR_STATE_MASK;
pub use stub::{
    Ahead, CODE_BYTES, Description, HOOK_BYTES, Load, POOL_BYTES, Patch, STUB_BYTES, Sampled, Tail, Way,
    description_at, lead, near_jump, pool_address, short_jump, write_stub, write_stub_ahead,
};

/// What an ELF file says of its machine and the width of its addresses (elf(5)).
pub const MACHINE: u16 = 62;
pub const CLASS: u8 = 2;

/// Bytes of the `syscall` instruction.
pub const SYSCALL_BYTES: usize = 2;

/// AT_HWCAP2's bit that says that user code may read its thread's base (the kernel's
/// Documentation/arch/x86/x86_64/fsgs.rst).
const HWCAP2_FSGSBASE: usize = 1 << 1;

/// Whether `rdfsbase` may be used, by the kernel's AT_HWCAP2.
pub fn may_read_thread_base(hwcap2: usize) -> bool {
    hwcap2 & HWCAP2_FSGSBASE != 0
}

/// The thread's base (`fs`): what tells the threads of a process apart. It may be anything, and nothing
/// is read there: a thread need not be a C library's.
pub fn thread_base(state: &Fixed) -> usize {
    if state.reads_thread_base.load(Ordering::Relaxed) == 0 {
        return runahead_kernel::arch::thread_base();
    }
    let base: usize;
    // SAFETY: the kernel has said that the instruction is allowed; it reads a register.
    unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// Whether the processor and kernel keep the vector state in the way that a post uses.
pub fn can_save_vector_state() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    core::arch::x86_64::__cpuid(1).ecx & OSXSAVE != 0
}

/// The loader's account of what it has loaded: its exported `_r_debug`, null where there is none.
pub fn loader_debug() -> *const Debug {
    let debug: *const Debug;
    // SAFETY: reads an entry of our own table of addresses, which the loader has filled.
    unsafe {
        asm!(".weak _r_debug", "mov {debug}, qword ptr [rip + _r_debug@GOTPCREL]", debug = out(reg) debug,
            options(nostack, readonly, preserves_flags));
    }
    debug
}

/// `R_X86_64_COPY`: a variable of a library's for which the program has the room.
pub const COPY_RELOCATION: u32 = 5;

/// Whether valgrind executes this process, a translation of its code and not the code itself: its own question, a
/// sequence that changes nothing on a processor. It would blame the program for what the agent asks of the
/// kernel, and for call numbers that it does not know.
pub fn under_valgrind() -> bool {
    const RUNNING_ON_VALGRIND: u64 = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let answer: u64;
    // SAFETY: rdi is turned round once, rbx exchanged with itself; valgrind reads `request` and sets rdx.
    unsafe {
        asm!("rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") &raw const request, inout("rdx") 0u64 => answer, inout("rdi") 0u64 => _,
            options(nostack));
    }
    answer != 0
}

/// Saves the program's vector and floating point state (64-byte aligned `area` of
/// `VECTOR_STATE_BYTES`).
///
/// # Safety
/// `area` must be valid for writes. The agent's own code has used SSE registers meanwhile, but never
/// the upper halves (it is compiled for the baseline), so `sse`, saved at the entry, completes it.
pub unsafe fn save_vector_state(area: *mut u8, sse: &SseRegisters) {
    const SSE_AT: usize = 160;
    const HEADER_AT: usize = 512;
    const HEADER_BYTES: usize = 64;
    // SAFETY: xsave writes into `area` as the caller promises; the header must be zero beforehand.
    unsafe {
        core::ptr::write_bytes(area.add(HEADER_AT), 0, HEADER_BYTES);
        asm!("xsave64 [{area}]", area = in(reg) area,
            in("eax") VECTOR_STATE_MASK as u32, in("edx") 0u32, options(nostack));
        core::ptr::copy_nonoverlapping(
            sse.as_ptr().cast::<u8>(),
            area.add(SSE_AT),
            size_of::<SseRegisters>(),
        );
        // The SSE registers are in use now even if xsave found them in their initial state.
        let components = area.add(HEADER_AT).cast::<u64>();
        *components |= 2;
    }
}
