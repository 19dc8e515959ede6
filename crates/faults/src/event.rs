//! Perf events of one thread, and the memory through which the kernel hands their records over.

use crate::record::{self, Fault, REGISTERS};
use runahead_kernel::PAGE;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Every fault, before it is handled; nobody is woken.
    Every,
    /// Each fault for which a disk was asked, afterwards; wakes whoever polls.
    Waited,
}

/// Pages of a ring, a power of two. 128 KB hold 710 faults: at one in 0.5 us, as long as several looks.
const RING_PAGES_EVERY: usize = 32;
const RING_PAGES_WAITED: usize = 1;

/// `struct perf_event_attr` up to its fifth version (Linux 4.1).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<Attributes>() == 112);

impl Attributes {
    /// Of an event that is not yet counting, and records each: instruction, time and address.
    fn of(config: u64) -> Attributes {
        Attributes {
            kind: TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config,
            sample_period: 1,
            sample_type: SAMPLE_IP | SAMPLE_TIME | SAMPLE_ADDR,
            flags: DISABLED | EXCLUDE_KERNEL | EXCLUDE_HV,
            ..Attributes::default()
        }
    }

    fn waited() -> Attributes {
        Attributes { wakeup: 1, ..Attributes::of(COUNT_PAGE_FAULTS_MAJ) }
    }

    fn every(registers: bool) -> Attributes {
        let all = Attributes::of(COUNT_PAGE_FAULTS);
        Attributes {
            sample_type: all.sample_type | if registers { SAMPLE_REGS_USER } else { 0 },
            sample_regs_user: if registers { REGISTERS } else { 0 },
            flags: all.flags | WATERMARK,
            // The whole ring; the kernel takes no more.
            wakeup: u32::MAX,
            ..all
        }
    }
}

const TYPE_SOFTWARE: u32 = 1;
const COUNT_PAGE_FAULTS: u64 = 2;
const COUNT_PAGE_FAULTS_MAJ: u64 = 6;
const SAMPLE_IP: u64 = 1;
const SAMPLE_TIME: u64 = 4;
const SAMPLE_ADDR: u64 = 8;
const SAMPLE_REGS_USER: u64 = 1 << 12;
const DISABLED: u64 = 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
/// `wakeup` is in bytes, not in records.
const WATERMARK: u64 = 1 << 14;
const FD_CLOEXEC: u64 = 1 << 3;
const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
/// `_IOW('$', 4, u64)`.
const IOC_PERIOD: libc::c_ulong = 0x4008_2404;

/// Where the first page of the mapping tells how far the kernel has written, and we have read
/// (`struct perf_event_mmap_page`).
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;

/// Opens an event of one thread.
///
/// The first one that there is on the whole machine switches perf's part of the scheduler on, and the call waits until all processors
/// have noticed (`account_event` in the kernel's `kernel/events/core.c`, a grace period of RCU: 4 to 14 ms on two processors).
/// Switched off it is a second after the last one.
fn open(attributes: &Attributes, thread: i32) -> io::Result<OwnedFd> {
    // SAFETY: the structure is the kernel's, of the size it says; the call makes a descriptor.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, ptr::from_ref(attributes), thread, -1, -1, FD_CLOEXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new, and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// One event of one thread.
pub struct Event {
    fd: OwnedFd,
    base: *mut u8,
    pages: usize,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Event {}

impl Event {
    /// Opens an event, not yet counting. Fails with EACCES where `perf_event_paranoid` forbids it.
    pub fn open(thread: i32, kind: Kind) -> io::Result<Event> {
        let (attributes, pages) = match kind {
            Kind::Every => (Attributes::every(true), RING_PAGES_EVERY),
            Kind::Waited => (Attributes::waited(), RING_PAGES_WAITED),
        };
        let fd = open(&attributes, thread)?;
        // SAFETY: a new mapping.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                (pages + 1) * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Event { fd, base: base.cast(), pages })
    }

    /// How many there have been while it was enabled.
    pub fn count(&self) -> u64 {
        let mut bytes = [0; 8];
        match rustix::io::read(&self.fd, &mut bytes) {
            Ok(8) => u64::from_ne_bytes(bytes),
            _ => 0,
        }
    }

    pub fn enable(&self, on: bool) {
        enable(&self.fd, on);
    }

    /// From now on one of so many is recorded. The others cost the program next to nothing. False: as many as before.
    pub fn record_one_in(&self, period: u64) -> bool {
        record_one_in(&self.fd, period)
    }

    /// From now on none is recorded (but perhaps the next one), or each. A record of a fault that waited also wakes whoever polls,
    /// and raises an interrupt for that whether anybody polls or not.
    pub fn only_count(&self, only: bool) {
        const NEVER: u64 = 1 << 40;
        self.record_one_in(if only { NEVER } else { 1 });
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.fd.as_fd()
    }

    /// Takes out what was recorded since the last time.
    pub fn take(&mut self, each: impl FnMut(Fault)) {
        let head = self.word(HEAD_AT).load(Ordering::Acquire);
        let tail = self.word(TAIL_AT).load(Ordering::Relaxed);
        if head == tail {
            return;
        }
        // SAFETY: the ring behind the first page. The kernel writes outside of tail..head only, and what is
        // read there is any bytes.
        let ring = unsafe { std::slice::from_raw_parts(self.base.add(PAGE), self.pages * PAGE) };
        record::faults(ring, tail, head, each);
        self.word(TAIL_AT).store(head, Ordering::Release);
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: inside the first page, aligned.
        unsafe { &*self.base.add(at).cast() }
    }
}

/// Whether a thread's faults may be seen: tries each kind of event. The error tells why not.
pub fn may_watch(thread: i32) -> io::Result<()> {
    [Kind::Every, Kind::Waited].into_iter().try_for_each(|kind| Event::open(thread, kind).map(drop))
}

/// An event that records every fault of a thread without its registers, into another one's ring.
pub struct Sharing {
    fd: OwnedFd,
}

impl Sharing {
    /// Opens it, not yet counting. Both must be the same thread's.
    pub fn open(thread: i32, ring: &Event) -> io::Result<Sharing> {
        let fd = open(&Attributes::every(false), thread)?;
        // SAFETY: takes a descriptor, and no address.
        match unsafe { libc::ioctl(fd.as_raw_fd(), IOC_SET_OUTPUT as libc::Ioctl, ring.fd.as_raw_fd()) } {
            0 => Ok(Sharing { fd }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// See [`Event::enable`].
    pub fn enable(&self, on: bool) {
        enable(&self.fd, on);
    }

    /// See [`Event::record_one_in`].
    pub fn record_one_in(&self, period: u64) -> bool {
        record_one_in(&self.fd, period)
    }
}

fn enable(event: &OwnedFd, on: bool) {
    let request = if on { IOC_ENABLE } else { IOC_DISABLE };
    // SAFETY: takes no address. A thread that has ended has nothing to count.
    unsafe { libc::ioctl(event.as_raw_fd(), request as libc::Ioctl, 0) };
}

fn record_one_in(event: &OwnedFd, period: u64) -> bool {
    // SAFETY: the kernel reads one word.
    unsafe { libc::ioctl(event.as_raw_fd(), IOC_PERIOD as libc::Ioctl, &raw const period) == 0 }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: our mapping; nobody else knows of it.
        unsafe { libc::munmap(self.base.cast(), (self.pages + 1) * PAGE) };
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// 512 pages are written to for the first time.
    pub(crate) fn fault_on_512_pages() {
        let mut map = memmap2::MmapMut::map_anon(512 * PAGE).unwrap();
        map.advise(memmap2::Advice::NoHugePage).unwrap();
        map.chunks_mut(PAGE).for_each(|page| page[0] = 1);
    }

    fn recorded(event: &mut Event) -> usize {
        event.enable(true);
        fault_on_512_pages();
        event.enable(false);
        let mut recorded = 0;
        event.take(|_| recorded += 1);
        recorded
    }

    #[test]
    fn one_in_so_many_is_recorded() {
        // SAFETY: takes no address.
        let thread = unsafe { libc::gettid() };
        let mut event = match Event::open(thread, Kind::Every) {
            Ok(event) => event,
            Err(error) => return eprintln!("SKIPPED: {error}"),
        };
        assert!((512..520).contains(&recorded(&mut event)));
        event.record_one_in(8);
        assert!((63..=66).contains(&recorded(&mut event)));
        event.record_one_in(1);
        assert!((512..520).contains(&recorded(&mut event)));
    }

    #[test]
    fn what_is_only_counted_is_not_recorded() {
        // SAFETY: takes no address.
        let thread = unsafe { libc::gettid() };
        let mut event = match Event::open(thread, Kind::Every) {
            Ok(event) => event,
            Err(error) => return eprintln!("SKIPPED: {error}"),
        };
        event.only_count(true);
        let before = event.count();
        // The first may be, before the kernel looks at the number.
        assert!(recorded(&mut event) <= 1);
        assert!(event.count() - before >= 512);
        event.only_count(false);
        assert!((512..520).contains(&recorded(&mut event)));
    }
}
