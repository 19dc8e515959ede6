//! The agent: Runahead's guest inside the program.
//!
//! It is a preloaded object without libc. At the program's start it finds the system call sites that
//! were proven safe to rewrite ([`patch`]) and leads them through stubs; from then on it runs inside
//! the program's read-type calls only: it compares each with the hint log, finds out whether it would
//! wait for the disk, and if the speculator is off track posts the program's registers ([`reads`]).
//!
//! # The rules of a guest
//! - **The program's own instruction does the program's call.** What the agent does before it is free
//!   of side effects (asking what is cached; a positioned read that is complete and would have given
//!   exactly this). Everything else goes back to the original `syscall` instruction, so that errors,
//!   positions, restarts, cancellation and unwinding are the kernel's and the program's affair.
//! - No descriptor stays open, no signal handler or mask is touched, no thread is started, nothing is
//!   printed, libc is never called: its `errno`, heap and locks are not ours.
//! - The program's stack is borrowed, below the red zone, for less than 2.5 KB; vector registers and
//!   flags come back as they were. Where a handler's own stack may not have that, the agent withdraws.
//! - All memory is one private block ([`state`]) and, after the first stall, shared pages. No `.data`,
//!   `.bss` or writable table of the linker: the mirror must never meet a page that our code writes.
//! - A handler may interrupt or even long-jump out of the agent at any instruction; locks are tried,
//!   never waited for.
//! - Whatever is odd (another thread, a full table, no host): the call goes through plainly.
#![no_std]

mod arch;
mod attach;
mod calls;
#[cfg(feature = "forked")]
mod forked;
mod loader;
mod names;
mod patch;
mod reads;
mod session;
mod start;
mod state;

runahead_kernel::freestanding_memory!();

/// Nothing in the agent can panic (a test looks for it in the binary); the compiler wants a handler.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    runahead_kernel::process::exit(125)
}
