//! Reads that are started by one call: the kernel's asynchronous I/O (io_setup(2), io_submit(2); Linux 2.6).
//!
//! What is of use here is not that it is asynchronous, which buffered reads are not, but that the kernel plugs the disk's queue while
//! it goes through the reads: all that they start goes to the disk at once, at the price of one doorbell.

use crate::arch::syscall;
use crate::uapi::general as n;
use crate::{PAGE, Result, check};
use core::sync::atomic::{AtomicU32, Ordering};

/// One read, as the kernel lays it out (`struct iocb`, little-endian).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Read {
    data: u64,
    key: u32,
    flags: u32,
    operation: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    more_flags: u32,
    told: u32,
}

impl Read {
    /// A read of `length` bytes from `offset` to the address `buffer`. With `RWF_NOWAIT` in `flags` what is not
    /// cached is started and not waited for.
    pub fn new(descriptor: i32, offset: u64, buffer: usize, length: usize, flags: u32) -> Read {
        Read {
            descriptor: descriptor as u32,
            buffer: buffer as u64,
            length: length as u64,
            offset: offset as i64,
            flags,
            ..Read::NOTHING
        }
    }

    /// Reads nothing, from no file.
    pub const NOTHING: Read = Read {
        data: 0,
        key: 0,
        flags: 0,
        operation: 0,
        priority: 0,
        descriptor: u32::MAX,
        buffer: 0,
        length: 0,
        offset: 0,
        reserved: 0,
        more_flags: 0,
        told: 0,
    };
}

/// The head of the ring in which the kernel says what has ended.
#[repr(C)]
struct Ring {
    id: u32,
    places: u32,
    head: AtomicU32,
    tail: AtomicU32,
}

/// A context, whose ring lies in our memory. Lasts as long as the process: the kernel takes 30 ms to end it (a grace period
/// of its own), the process's end included.
pub struct Context {
    ring: usize,
}

impl Context {
    /// Opens a context for so many reads at a time, with its ring at `place`, where whatever was mapped is gone.
    ///
    /// # Safety
    /// What lies at `place` is ours to replace: a few pages, or with hundreds of processors some tens.
    pub unsafe fn open(reads: usize, place: usize) -> Result<Context> {
        let mut found = 0usize;
        // SAFETY: the kernel writes one word.
        check(unsafe { syscall(n::__NR_io_setup as usize, [reads, &raw mut found as usize, 0, 0, 0, 0]) })?;
        // SAFETY: the kernel maps the ring there.
        let places = unsafe { (*(found as *const Ring)).places };
        const EVENT_BYTES: usize = 32;
        let length = ((places as usize + 1) * EVENT_BYTES).next_multiple_of(PAGE);
        let flags = n::MREMAP_MAYMOVE | n::MREMAP_FIXED;
        let a = [found, length, length, flags as usize, place, 0];
        // SAFETY: the ring is nobody's yet, and the caller promises the place.
        check(unsafe { syscall(n::__NR_mremap as usize, a) }).map(|ring| Context { ring })
    }

    /// Starts the reads, each by itself; what their results are, nobody learns. How many were taken.
    ///
    /// # Safety
    /// What the reads name may be overwritten.
    pub unsafe fn start(&self, reads: &[*const Read]) -> Result<usize> {
        let a = [self.ring, reads.len(), reads.as_ptr() as usize, 0, 0, 0];
        // SAFETY: the caller's promise.
        let taken = check(unsafe { syscall(n::__NR_io_submit as usize, a) });
        // SAFETY: mapped by `open`, for as long as the process lives.
        let ring = unsafe { &*(self.ring as *const Ring) };
        ring.head.store(ring.tail.load(Ordering::Acquire), Ordering::Release);
        taken
    }
}
