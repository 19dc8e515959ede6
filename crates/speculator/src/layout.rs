//! Where things are in the speculator's address space.
//!
//! The program's memory appears in the mirror at the program's own addresses, so everything that is
//! *ours* lies in one window that programs do not use: position-independent programs start at
//! 0x5555..., libraries, mappings and stacks lie above 0x7000..., non-PIE programs below 4 GiB, and
//! sanitizers' shadows elsewhere. A program that does map something here is not speculated for.
//!
//! | from | what |
//! |---|---|
//! | [`WINDOW`] | the runtime's image: text, tables |
//! | [`SLOT`] | the session's slot |
//! | [`HEADER`] | the session's header: who holds what, and who gives back |
//! | [`STACKS`] | the runtime's stack and the signal stack |
//! | [`BOUNCE`] | where pages are put together before they appear in the mirror |
//! | [`RING`] | what the kernel says of reads that were started together |
//! | [`ANONYMOUS_ARENA`] | memory that speculation maps for itself |
//! | [`FILE_ARENA`] | files that speculation maps |
//! | [`VIEWED`] | a part of a file, to see what of it is cached |
//! | [`ASIDE`] | the same for the moment of a question |

use runahead_kernel::PAGE;
pub use runahead_sandbox::{READS, RING, WINDOW, WINDOW_END};

pub const SLOT: usize = 0x6a10_0000_0000;
/// Only to be read, but for the page in which each speculator says whether it holds something.
pub const HEADER: usize = 0x6a10_8000_0000;

pub const STACKS: usize = 0x6a11_0000_0000;
/// The runtime's own stack. Emulation needs a few KB; the rest is for directory and path buffers.
pub const STACK_BYTES: usize = 256 * 1024;
pub const SIGNAL_STACK: usize = 0x6a12_0000_0000;
/// A signal frame with AVX-512 and AMX state takes 11 KB, and frames nest (a page fill inside an
/// emulated call inside a trap).
pub const SIGNAL_STACK_BYTES: usize = 256 * 1024;

pub const BOUNCE: usize = 0x6a13_0000_0000;
pub const BOUNCE_BYTES: usize = 128 * 1024;

/// Arenas lie outside the window: the sandbox lets their protection change, the window's never.
pub const ANONYMOUS_ARENA: usize = 0x6c00_0000_0000;
pub const ANONYMOUS_ARENA_BYTES: usize = 1 << 30;

pub const FILE_ARENA: usize = 0x6d00_0000_0000;
pub const FILE_ARENA_BYTES: usize = 64 << 30;

pub const VIEWED: usize = 0x6e00_0000_0000;
pub const VIEWED_BYTES: usize = 4 << 30;

/// Not where a large page may begin: a file of such pages (hugetlbfs) would be mapped by whole ones, which do
/// not go away with less.
pub const ASIDE: usize = VIEWED + VIEWED_BYTES + PAGE;
/// More than a program reads at once as a rule.
pub const ASIDE_BYTES: usize = 1 << 20;

/// Whether a range overlaps what is ours.
pub fn is_ours(start: usize, end: usize) -> bool {
    let overlaps = |from: usize, to: usize| start < to && end > from;
    overlaps(WINDOW, WINDOW_END)
        || overlaps(ANONYMOUS_ARENA, ANONYMOUS_ARENA + ANONYMOUS_ARENA_BYTES)
        || overlaps(FILE_ARENA, FILE_ARENA + FILE_ARENA_BYTES)
        || overlaps(VIEWED, ASIDE + ASIDE_BYTES)
}
