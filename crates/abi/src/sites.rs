//! The site file: which system call sites of which executable files may be rewritten.
//!
//! Finding a provably safe site means decoding a whole function, far too slow for the 0.5 ms that a
//! program may pay at its start. So `runahead` analyses each executable file once, keeps the result
//! in a *site file* in the user's cache, and the agent inside the program only looks its mapped files
//! up, compares the bytes, and writes.
//!
//! # Layout
//! One file: a [`FileHeader`], then `HASH_SLOTS` [`Index`] entries (open addressing, linear probing,
//! keyed by [`FileKey`]), then the sites, an array of [`Site`] that only ever grows. A writer holds an
//! exclusive lock on the file, appends the sites first, then publishes the index entry by storing
//! `key_hash` last (release). A reader maps the file read-only and never locks; it takes everything in
//! the file as untrusted and checks each number against the size of the mapping.

/// First eight bytes of a site file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RAsites1");

/// Entries of the index; a power of two. 4096 executable files are more than one user runs; when
/// three quarters are in use the writer starts the file afresh.
pub const HASH_SLOTS: usize = 4096;

/// Bytes at a site that the reader compares before it believes the entry: from
/// [`Site::patch_offset`] on.
pub const CHECKED_BYTES: usize = 16;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FileHeader {
    pub magic: u64,
    /// Number of [`Index`] slots: [`HASH_SLOTS`].
    pub hash_slots: u32,
    /// Number of index slots in use.
    pub used_slots: u32,
    /// Number of [`Site`] records that are complete.
    pub sites: u32,
    /// `size_of::<Site>()`: a reader built differently refuses the file.
    pub site_size: u32,
    pub reserved: [u64; 5],
}

/// What identifies one version of one executable file without reading it: `fstat` alone.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileKey {
    pub device: u64,
    pub inode: u64,
    /// In bytes.
    pub size: u64,
    /// Modification time, ns since the epoch.
    pub modified: u64,
    /// Change time, ns since the epoch.
    pub changed: u64,
}

impl FileKey {
    /// A hash that is never 0 (0 marks an empty index slot).
    pub const fn hash(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let words = [
            self.device,
            self.inode,
            self.size,
            self.modified,
            self.changed,
        ];
        let mut i = 0;
        while i < words.len() {
            hash = (hash ^ words[i]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 29;
            i += 1;
        }
        hash | 1
    }
}

/// One analysed file. `key_hash` is 0 in an empty slot and is written last.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Index {
    pub key_hash: u64,
    pub key: FileKey,
    /// Index of the file's first [`Site`].
    pub first_site: u32,
    /// How many sites it has (0: analysed, nothing to patch).
    pub site_count: u32,
    /// System call instructions that were found but could not be proven safe to rewrite and whose
    /// number is one that the agent must see (see [`Site::number`]), or is unknown.
    pub unproven: u32,
    pub reserved: u32,
}

/// How a site is rewritten.
///
/// All forms leave the `syscall` instruction itself where it is: the stub jumps back to it whenever
/// the call may block, so that cancellation ranges, restarts and unwinders see what they always saw.
/// What is overwritten is the instruction *right before* it, the one that loads the call's number.
pub mod form {
    /// `mov eax, imm32` (5 bytes) directly before `syscall`: becomes `jmp rel32` to the stub.
    pub const MOV_IMM32: u8 = 1;
    /// `xor eax, eax` (2 bytes) directly before `syscall`: becomes `jmp rel8` to unreachable padding
    /// at [`Site::pad_offset`], which becomes `jmp rel32` to the stub.
    pub const SHORT_VIA_PAD: u8 = 2;
}

/// One site that may be rewritten. Offsets are bytes from the start of the *file* (not addresses).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Where the first rewritten byte is: the instruction that loads the number.
    pub patch_offset: u64,
    /// Where the five bytes of padding are ([`form::SHORT_VIA_PAD`]), else 0.
    pub pad_offset: u64,
    /// The system call's number, known from the instruction that loads it.
    pub number: u16,
    /// One of [`form`].
    pub form: u8,
    /// Bytes from `patch_offset` to the `syscall` instruction: length of the rewritten instruction.
    pub syscall_distance: u8,
    pub reserved: u32,
    /// What must be found at `patch_offset`.
    pub expected: [u8; CHECKED_BYTES],
    /// What must be found at `pad_offset`.
    pub expected_pad: [u8; 8],
}

const _: () = assert!(core::mem::size_of::<FileHeader>() == 64);
const _: () = assert!(core::mem::size_of::<Index>() == 64);
const _: () = assert!(core::mem::size_of::<Site>() == 48);
