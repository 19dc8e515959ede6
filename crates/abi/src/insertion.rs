//! How the agent comes into a program that no loader brings it into: what the tracer, the code that it leaves
//! in the new program and the agent's image tell each other.
//!
//! The tracer (`runahead_insert`) writes [`Inserted`] and a table of [`Call`]s below the new program's first
//! stack pointer, and a few instructions where nothing is; these make the calls, which bring the agent's
//! image in, and enter it. The agent puts all of that back to zeros and goes on at the program's first
//! instruction.

/// A system call that brings the image in, or the end of the table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// [`END`] ends the table.
    pub number: u32,
    /// Of [`call`]: what stands in for an argument, and what the result is.
    pub how: u32,
    pub arguments: [u64; 6],
}

/// Behind the last call.
pub const END: u32 = u32::MAX;

/// Bits of [`Call::how`].
pub mod call {
    /// The first argument is an offset into the image.
    pub const IN_IMAGE: u32 = 1;
    /// The first argument is the file that was opened.
    pub const CLOSES: u32 = 2;
    /// The fifth argument is the file that was opened.
    pub const OF_FILE: u32 = 4;
    /// The result is where the image begins.
    pub const IS_IMAGE: u32 = 8;
    /// The result is the file.
    pub const IS_FILE: u32 = 16;
    /// The result is where the start's own stack begins.
    pub const IS_STACK: u32 = 32;
}

/// Bytes of the stack on which the agent starts. It is gone before the program's first instruction.
pub const STACK_BYTES: u64 = 64 << 10;

/// Room for the session's address as text, zeros behind it.
pub const SESSION_TEXT: usize = 128;

/// What the agent is told.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Inserted {
    /// The program's first instruction.
    pub entry: u64,
    /// Its stack pointer there.
    pub stack: u64,
    /// All that was written below the stack pointer, this among it: address and bytes.
    pub scratch: u64,
    pub scratch_bytes: u64,
    /// The few instructions: address and bytes.
    pub code: u64,
    pub code_bytes: u64,
    /// Pages around them of which the protection is changed together: address, bytes, and what it is.
    pub pages: u64,
    pub pages_bytes: u64,
    pub protection: u64,
    /// Bytes of the image, and the offset at which it is entered.
    pub image_bytes: u64,
    pub enter: u64,
    /// The image's relocations, all of which are relative: offset and bytes (the ELF specification's DT_RELA).
    pub relocations: u64,
    pub relocation_bytes: u64,
    /// What is only to be read once they are made: offset and bytes.
    pub read_only: u64,
    pub read_only_bytes: u64,
    /// As the environment would say it ([`crate::environment::Session`]).
    pub session: [u8; SESSION_TEXT],
}
