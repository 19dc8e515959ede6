//! The site file: which system call sites of which executable files may be rewritten.
//!
//! Finding a provably safe site means decoding a whole function, far too slow for the 0.5 ms that a
//! program may pay at its start. So `runahead` analyses each executable file once, keeps the result
//! in a *site file* in the user's cache, and the agent inside the program only looks its mapped files
//! up, compares the bytes, and writes.
//!
//! # Layout
//! One file: a [`FileHeader`], then [`HASH_SLOTS`] [`Index`] entries (open addressing, linear probing,
//! keyed by [`FileKey`]), then the sites, an array of [`Site`] that only ever grows. A writer holds an
//! exclusive lock on the file, appends the sites first, then counts them in the header, then publishes
//! the index entry by storing `key_hash` last (release). What is published never changes again, and the
//! file is never cut: a fresh start is a new file, renamed over the old one. A reader maps the file
//! read-only and never locks; it takes everything in the file as untrusted and checks each number
//! against the size of the mapping, and each entry with its sites against the entry's checksum: after
//! a loss of power the entry may have reached the disk and its sites not.
//!
//! # Rules for whoever patches
//! - Compare [`Site::expected`] and [`Site::expected_pad`] of **all** sites of a file before the first
//!   byte is written: the sixteen bytes behind one site may hold the next site, or a padding.
//! - The stub may clobber the status flags (CF, PF, AF, ZF, SF, OF), `rcx` and `r11`, and must keep
//!   everything else, the direction flag included.
//! - Paddings are never shared between sites and never overlap one.
//! - `expected` never reaches beyond the end of the executable segment, so that comparing it does not
//!   touch a page that the segment does not have.

use core::mem::{align_of, size_of};
use core::sync::atomic::{AtomicU64, Ordering};

/// First eight bytes of a site file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RAsites1");

/// What the file is called, beside the agent, in which the sites of a machine's own programs and libraries are
/// looked up by [`FileKey`].
pub const PREPARED_NAME: &str = "runahead-sites-here";

/// Version of the rules by which sites are found. A file written under other rules is not read, and
/// replaced by the next writer: raise it whenever the analysis learns to distrust something.
pub const ANALYSIS_VERSION: u32 = 16;

/// Entries of the index; a power of two. 4096 executable files are more than one user runs; when
/// three quarters are in use the writer starts the file afresh.
pub const HASH_SLOTS: usize = 4096;

/// Slots of the largest file that anybody reads: one for all programs of a machine ([`lookup_copied`]).
pub const MOST_SLOTS: usize = 1 << 16;

/// Bytes at a site that the reader compares before it believes the entry: from
/// [`Site::patch_offset`] on.
pub const CHECKED_BYTES: usize = 16;

/// Bytes of a `jmp rel32`: what a padding must have room for, and a long form's instruction.
pub const NEAR_JUMP: usize = 5;

/// Bytes of a conditional jump with a distance of one byte.
pub const SHORT_BRANCH: usize = 2;

/// Bytes of the instruction that [`form::CANCELLATION`] rewrites.
pub const CANCELLATION_START: usize = 2;

/// [`Site::number`] of a displaced form whose number is not the same at every call, as in the C
/// library's `syscall()`: only `eax` tells.
pub const ANY_NUMBER: u16 = u16::MAX;

/// Where in the agent's state page (`agent::state::Fixed`) it stands where the stubs of such sites enter.
pub const ENTRY_BY_NUMBER_AT: usize = 88;

/// Where the index starts in the file.
pub const INDEX_OFFSET: usize = size_of::<FileHeader>();

/// Where the sites start in the file.
pub const SITES_OFFSET: usize = sites_offset(HASH_SLOTS);

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    pub magic: u64,
    /// Number of [`Index`] slots: [`HASH_SLOTS`].
    pub hash_slots: u32,
    /// Number of index slots in use. For writers; a reader does not need it.
    pub used_slots: u32,
    /// Number of [`Site`] records that are complete. For writers; a reader does not need it.
    pub sites: u32,
    /// `size_of::<Site>()`: a reader built differently refuses the file.
    pub site_size: u32,
    /// [`ANALYSIS_VERSION`] of the writer.
    pub analysis: u32,
    pub reserved: [u32; 9],
}

impl FileHeader {
    /// The header of a file that holds nothing yet.
    pub const EMPTY: FileHeader = FileHeader {
        magic: MAGIC,
        hash_slots: HASH_SLOTS as u32,
        used_slots: 0,
        sites: 0,
        site_size: size_of::<Site>() as u32,
        analysis: ANALYSIS_VERSION,
        reserved: [0; 9],
    };

    /// The header of a mapped file; `None` if it is too short for one.
    pub fn read(mapping: &[u8]) -> Option<FileHeader> {
        read_at(mapping, 0)
    }

    /// Whether this build can read (and append to) a file with this header.
    pub const fn is_ours(&self) -> bool {
        self.is_readable() && self.hash_slots as usize == HASH_SLOTS
    }

    /// Whether this build can read a file with this header, whatever the size of its index.
    pub const fn is_readable(&self) -> bool {
        self.magic == MAGIC
            && self.hash_slots.is_power_of_two()
            && self.hash_slots as usize <= MOST_SLOTS
            && self.site_size as usize == size_of::<Site>()
            && self.analysis == ANALYSIS_VERSION
    }
}

/// What identifies one version of one executable file without reading it: `stat` alone. (Not the device
/// that `/proc/PID/maps` shows: on btrfs and overlay that is another one.)
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
        let words = self.words();
        let mut hash = HASH_SEED;
        let mut i = 0;
        while i < words.len() {
            hash = mix(hash, words[i]);
            i += 1;
        }
        hash | 1
    }

    const fn words(&self) -> [u64; 5] {
        [self.device, self.inode, self.size, self.modified, self.changed]
    }
}

/// FNV-1a's offset basis: any odd-looking start does.
const HASH_SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// One step of the hash: multiply by 2^64 over the golden ratio, and bring the high bits down.
const fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}

/// One analysed file. `key_hash` is 0 in an empty slot and is written last.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    pub key_hash: u64,
    pub key: FileKey,
    /// Index of the file's first [`Site`].
    pub first_site: u32,
    /// How many sites it has (0: analysed, nothing to patch).
    pub site_count: u32,
    /// System call instructions that were found but could not be proven safe to rewrite and whose
    /// number is one that the agent must see (see [`Site::number`]), or is unknown; and [`BLIND`], [`UNWINDS`].
    pub unproven: u32,
    /// Over the entry and its sites: [`Index::checksum_of`].
    pub checksum: u32,
}

impl Index {
    /// The entry for a file whose `sites` start at record `first_site`.
    pub fn new(key: FileKey, first_site: u32, sites: &[Site], unproven: u32) -> Index {
        let mut index = Index {
            key_hash: key.hash(),
            key,
            first_site,
            site_count: sites.len() as u32,
            unproven,
            checksum: 0,
        };
        index.checksum = index.checksum_of(sites);
        index
    }

    /// The checksum that this entry has if `sites` are its sites: against loss and garbage, not
    /// against malice (the file is as trusted as the user's own home).
    pub fn checksum_of(&self, sites: &[Site]) -> u32 {
        let mut hash = mix(self.key.hash(), u64::from(self.first_site));
        hash = mix(hash, u64::from(self.site_count));
        hash = mix(hash, u64::from(self.unproven));
        for site in sites {
            for word in site.words() {
                hash = mix(hash, word);
            }
        }
        (hash >> 32) as u32
    }
}

/// How a site is rewritten.
///
/// All forms leave the `syscall` instruction itself where it is: the stub jumps back to it whenever
/// the call may block, so that cancellation ranges, restarts and unwinders see what they always saw.
/// What is overwritten is the instruction *right before* it.
///
/// A *short* form has only two to four bytes: they become `jmp rel8` to unreachable padding at
/// [`Site::pad_offset`], which becomes `jmp rel32` to the stub.
///
/// A *displaced* form overwrites an instruction that only moves or combines registers and constants or
/// loads from a slot above `rsp`, or pops (no other memory, no `rip`, no branch). The stub executes it first,
/// with the registers, `rsp` included, that it was entered with: copy the first
/// [`Site::syscall_distance`] bytes of [`Site::expected`] to the stub's start. Only then does `eax` hold
/// the number; the analysis has followed constants to learn it, but the stub must go by `eax`, not by
/// [`Site::number`].
pub mod form {
    /// `mov eax, imm32` (5 bytes) or `mov rax, imm32` (7) directly before `syscall`: becomes
    /// `jmp rel32` to the stub.
    pub const MOV_IMM32: u8 = 1;
    /// `xor eax, eax` (2 bytes) directly before `syscall`: short.
    pub const SHORT_VIA_PAD: u8 = 2;
    /// Another instruction of five bytes or more: displaced, becomes `jmp rel32` to the stub.
    pub const DISPLACED: u8 = 3;
    /// Another instruction of two to four bytes: displaced and short.
    pub const SHORT_DISPLACED: u8 = 4;
    /// An instruction of five bytes or more with others behind it up to the `syscall`, all displaced; the
    /// last is a conditional jump of two bytes ([`super::SHORT_BRANCH`]) that is not taken on the way to the
    /// `syscall`. Only the first is rewritten: whoever is between them goes on as before.
    pub const BRANCHED: u8 = 5;
    /// The place where glibc makes all calls that may be cancelled (2.41 and later), short: `mov (%rdi),%eax`
    /// ([`super::CANCELLATION_START`] bytes), where it begins. Behind it stand the look whether the thread is
    /// cancelled, the moves that bring number and arguments from where functions have them to where the
    /// kernel wants them, and the `syscall`. A handler that cancels believes a program counter between the
    /// two: whoever has been in the stub goes through all of it again.
    pub const CANCELLATION: u8 = 6;
    /// The one call of the place where musl makes all calls that may be cancelled: the `call` itself (5 bytes)
    /// becomes one of the stub, which goes on to that place, from its very beginning. That is at
    /// [`super::Site::pad_offset`] and stays as it is; [`super::Site::syscall_distance`] counts from there.
    /// Registers and stack are as with [`CANCELLATION`].
    pub const CALLED: u8 = 7;
    /// The beginning of a function that makes any call, its number and arguments being the function's own (C's
    /// `syscall()`), where nothing can be rewritten at the `syscall` itself. [`super::Site::syscall_distance`]
    /// bytes of instructions that may stand anywhere: the stub looks at the number, does them, and goes on
    /// behind them. [`super::Site::pad_offset`] is where the function returns.
    pub const ENTRANCE: u8 = 8;
    /// As [`BRANCHED`], but the conditional jump is taken on the way to the `syscall`, which is where it
    /// leads to. [`super::Site::syscall_distance`] is to the end of the jump.
    pub const TAKEN: u8 = 9;
}

/// One site that may be rewritten. Offsets are bytes from the start of the *file* (not addresses).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Where the first rewritten byte is: the instruction before the `syscall`, or the first of some.
    pub patch_offset: u64,
    /// Where the five bytes of padding are (the short forms), or what the form says; else 0.
    pub pad_offset: u64,
    /// The system call's number, known from the instruction that loads it, or [`ANY_NUMBER`].
    pub number: u16,
    /// One of [`form`].
    pub form: u8,
    /// Bytes from `patch_offset` to the `syscall` instruction: length of what the stub does in its place.
    pub syscall_distance: u8,
    /// Bytes from where its function, or the last name before it, begins to the `syscall`; 0: not known.
    pub into_function: u32,
    /// What must be found at `patch_offset`.
    pub expected: [u8; CHECKED_BYTES],
    /// What must be found at `pad_offset`, where there is one; else zeros.
    pub expected_pad: [u8; 8],
}

impl Site {
    /// Whether the site is reached through padding.
    pub const fn is_short(&self) -> bool {
        matches!(self.form, form::SHORT_VIA_PAD | form::SHORT_DISPLACED | form::CANCELLATION)
    }

    /// Whether the site's call is seen before it is made, on its way there: the agent makes it never.
    pub const fn is_ahead(&self) -> bool {
        matches!(self.form, form::CANCELLATION | form::CALLED | form::ENTRANCE)
    }

    fn words(&self) -> [u64; 6] {
        let (low, high) = self.expected.split_at(8);
        [
            self.patch_offset,
            self.pad_offset,
            u64::from(self.number)
                | u64::from(self.form) << 16
                | u64::from(self.syscall_distance) << 24
                | u64::from(self.into_function) << 32,
            word_of(low),
            word_of(high),
            u64::from_le_bytes(self.expected_pad),
        ]
    }
}

fn word_of(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// What a site file says of one executable file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub sites: &'a [Site],
    /// As [`Index::unproven`].
    pub unproven: u32,
}

/// In [`Index::unproven`]: some system call instruction that is left alone may be any call, or one that forbids calls
/// (`seccomp`, `prctl`): what a process does there nobody sees.
pub const BLIND: u32 = 1 << 31;

/// In [`Index::unproven`]: there are frames with something to be done when they are unwound. An unwinder that starts in a
/// stub must find its way then.
pub const UNWINDS: u32 = 1 << 30;

impl Entry<'_> {
    /// Whether unwinding must work from each instruction: [`UNWINDS`].
    pub const fn unwinds(&self) -> bool {
        self.unproven & UNWINDS != 0
    }

    /// Whether calls may be made there of which nobody knows what they are: [`BLIND`].
    pub const fn is_blind(&self) -> bool {
        self.unproven & BLIND != 0
    }
}

/// The sites of the file `key`: see [`lookup_entry`].
pub fn lookup<'a>(mapping: &'a [u8], key: &FileKey) -> Option<&'a [Site]> {
    lookup_entry(mapping, key).map(|entry| entry.sites)
}

/// Looks `key` up in a mapped site file. `None`: never analysed, or the file is not to be believed.
/// An empty slice of sites: analysed, and there is nothing to patch.
///
/// `mapping` must start at an address divisible by 8, as every mapping does (else: `None`); any content
/// whatever is allowed, and another process may append meanwhile. Async-signal-safe; allocates nothing; visits at
/// most [`HASH_SLOTS`] slots; cannot panic.
pub fn lookup_entry<'a>(mapping: &'a [u8], key: &FileKey) -> Option<Entry<'a>> {
    let aligned = mapping.as_ptr().cast::<Site>().is_aligned();
    if !aligned || !FileHeader::read(mapping)?.is_ours() {
        return None;
    }
    let hash = key.hash();
    for probe in 0..HASH_SLOTS {
        let offset = slot_offset(hash, probe);
        let published = load_published(mapping, offset)?;
        if published == 0 {
            return None;
        }
        if published != hash {
            continue;
        }
        let index: Index = read_at(mapping, offset)?;
        if index.key != *key {
            continue;
        }
        // An entry that fails its check is passed over: the writer adds a better one behind it.
        if let Some(sites) = sites_of(mapping, &index)
            && index.checksum == index.checksum_of(sites)
        {
            return Some(Entry { sites, unproven: index.unproven });
        }
    }
    None
}

/// As [`lookup_entry`], of a site file that may be cut at any moment, with an index of any size up to
/// [`MOST_SLOTS`]: `read(offset, bytes)` copies its bytes from `offset` on, false if they are not all there.
/// The sites are put into `room`; `None` also if they are more than it holds.
pub fn lookup_copied<'a>(
    mut read: impl FnMut(usize, &mut [u8]) -> bool,
    key: &FileKey,
    room: &'a mut [Site],
) -> Option<Entry<'a>> {
    let mut header = FileHeader::EMPTY;
    if !(read(0, header.bytes_mut()) && header.is_readable()) {
        return None;
    }
    let slots = header.hash_slots as usize;
    let hash = key.hash();
    let mut index = Index::new(*key, 0, &[], 0);
    for probe in 0..slots {
        if !read(slot_offset_of(hash, probe, slots), index.bytes_mut()) || index.key_hash == 0 {
            return None;
        }
        if index.key_hash != hash || index.key != *key {
            continue;
        }
        let count = index.site_count as usize;
        let start = (index.first_site as usize).checked_mul(size_of::<Site>());
        // An entry that fails its check is passed over, as by `lookup_entry`.
        let (Some(copied), Some(start)) = (room.get_mut(..count), start) else { continue };
        if read(sites_offset(slots).saturating_add(start), Site::slice_bytes_mut(copied))
            && index.checksum == index.checksum_of(copied)
        {
            return Some(Entry { sites: room.get(..count)?, unproven: index.unproven });
        }
    }
    None
}

/// File offset of the slot that is looked at as number `probe` (from 0) for a key with this hash.
pub const fn slot_offset(hash: u64, probe: usize) -> usize {
    slot_offset_of(hash, probe, HASH_SLOTS)
}

/// The same in a file with so many `slots`, at least one.
pub const fn slot_offset_of(hash: u64, probe: usize, slots: usize) -> usize {
    // The low bit of a hash is always set; the slot comes from the bits above it.
    let slot = ((hash >> 1) as usize).wrapping_add(probe) % slots;
    INDEX_OFFSET + slot * size_of::<Index>()
}

/// Where the sites start in a file with so many `slots`.
pub const fn sites_offset(slots: usize) -> usize {
    INDEX_OFFSET + slots * size_of::<Index>()
}

/// `key_hash` of the slot at `offset`, with acquire order: what the writer stored before it is seen.
fn load_published(mapping: &[u8], offset: usize) -> Option<u64> {
    let bytes = mapping.get(offset..)?.get(..size_of::<u64>())?;
    let pointer = bytes.as_ptr().cast::<AtomicU64>();
    // SAFETY: the eight bytes lie inside the mapping and are aligned, as the mapping is (the caller has
    // checked) and every slot's offset is (asserted below); any value is a valid u64, and
    // an atomic load is the one way to read what another process may be writing.
    Some(unsafe { (*pointer).load(Ordering::Acquire) })
}

/// A copy of the plain record at `offset`.
fn read_at<T: Plain>(mapping: &[u8], offset: usize) -> Option<T> {
    let bytes = mapping.get(offset..)?.get(..size_of::<T>())?;
    // SAFETY: the slice has size_of::<T>() bytes, the read asks for no alignment, and T is Plain: any
    // bytes are a valid value.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// The sites that an index entry names, if they all lie inside the mapping.
fn sites_of<'a>(mapping: &'a [u8], index: &Index) -> Option<&'a [Site]> {
    let start = (index.first_site as usize).checked_mul(size_of::<Site>())?.checked_add(SITES_OFFSET)?;
    let count = index.site_count as usize;
    let length = count.checked_mul(size_of::<Site>())?;
    let bytes = mapping.get(start..)?.get(..length)?;
    let pointer = bytes.as_ptr().cast::<Site>();
    // SAFETY: `count` records lie inside the mapping, aligned, as the mapping is (the caller has checked)
    // and the records' offsets are (asserted below); Site is Plain; published sites are
    // never written again, so that nobody changes them under the shared reference.
    Some(unsafe { core::slice::from_raw_parts(pointer, count) })
}

/// Records without padding of which any bytes are a valid value.
///
/// # Safety
/// `repr(C)`, made of integers only, no padding bytes.
pub unsafe trait Plain: Copy {
    /// The record's bytes, for the writer.
    fn bytes(&self) -> &[u8] {
        // SAFETY: Plain records have no padding, so every byte is initialised.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast::<u8>(), size_of::<Self>()) }
    }

    /// The record's bytes, for a reader.
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: any bytes are a valid value of a Plain record.
        unsafe { core::slice::from_raw_parts_mut(core::ptr::from_mut(self).cast::<u8>(), size_of::<Self>()) }
    }

    /// The same of several records.
    fn slice_bytes_mut(records: &mut [Self]) -> &mut [u8] {
        // SAFETY: as above; a slice has no gaps between its records.
        unsafe { core::slice::from_raw_parts_mut(records.as_mut_ptr().cast::<u8>(), size_of_val(records)) }
    }
}

// SAFETY: integers only; the size below is the sum of the fields' sizes.
unsafe impl Plain for FileHeader {}
// SAFETY: as above.
unsafe impl Plain for Index {}
// SAFETY: as above.
unsafe impl Plain for Site {}

const _: () = assert!(size_of::<FileHeader>() == 8 + 5 * 4 + 9 * 4);
const _: () = assert!(size_of::<Index>() == 8 + 5 * 8 + 4 * 4);
const _: () = assert!(size_of::<Site>() == 2 * 8 + 2 + 1 + 1 + 4 + 16 + 8);
const _: () = assert!(INDEX_OFFSET.is_multiple_of(align_of::<AtomicU64>()));
const _: () = assert!(size_of::<Index>().is_multiple_of(align_of::<AtomicU64>()));
const _: () = assert!(SITES_OFFSET.is_multiple_of(align_of::<Site>()));
const _: () = assert!(align_of::<Site>() >= align_of::<AtomicU64>());
const _: () = assert!(HASH_SLOTS.is_power_of_two());
