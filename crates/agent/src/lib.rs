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
//! - No descriptor stays open, no signal handler is touched, no thread is started, nothing is
//!   printed, libc is never called: its `errno`, heap and locks are not ours.
//! - The program's stack is not used, not a byte of it (but for a word that the code at a cancellable
//!   call writes next itself): the agent has stacks of its own, and all signals but SIGTRAP are blocked
//!   while it is on one (`arch::entry`). Vector registers and flags come back as they were. Its table of
//!   unwind information is changed where padding is jumped through ([`unwind`]).
//! - All memory has its place before the program's first instruction: one block ([`state`]), the agent's image with the
//!   stubs, and one more place for stubs near the program's own code. Nothing is mapped later where the program may have
//!   made a hole, and no descriptor is opened then. What the program does to those places is seen: then everything is
//!   as it was without us, before it is done ([`patch::undo`]).
//! - No `.bss`, and no `.data` that is written to: the mirror must never meet a page that our code writes.
//! - No thread-local storage is read, the program's or a library's: a thread need not have any.
//! - Locks are tried, never waited for.
//! - Whatever is odd (another thread, a full table, no host): the call goes through plainly.
#![no_std]

mod arch;
mod aside;
mod attach;
mod calls;
mod emulators;
mod enabled;
mod executions;
#[cfg(feature = "forked")]
mod forked;
mod loader;
mod loader_messages;
mod names;
mod opened;
mod own_calls;
mod own_run;
mod patch;
mod prepared;
mod reads;
mod release;
mod rooms;
mod session;
mod snapshots;
mod start;
mod state;
mod substitute;
mod trace;
mod unchecked;
mod unwind;

runahead_kernel::freestanding_memory!();

/// Nothing in the agent can panic (a test looks for it in the binary); the compiler wants a handler.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    runahead_kernel::process::exit(125)
}
