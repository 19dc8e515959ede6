//! The agent's memory: one private block, mapped at the start.
//!
//! | pages | content | after fork |
//! |---|---|---|
//! | 0 | [`Fixed`]: what stubs read, set up once | inherited |
//! | 1 | [`Process`]: the track, the session's mapping | zeros (`MADV_WIPEONFORK`) |
//! | 2.. | scratch for start-up and for newly mapped files, used under the lock | inherited |
//!
//! A child of fork finds `Process` zeroed: that is how it knows that it is a program of its own, with
//! no speculator yet. A child of vfork shares everything with its parent, which sleeps meanwhile.

use crate::arch;
use crate::names::Names;
use crate::session::Address;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use runahead_abi::session::{Header, Slot};
use runahead_kernel::arch::thread_word;
use runahead_kernel::memory::{self, PROT_READ, PROT_WRITE};
use runahead_kernel::uapi::general as n;
use runahead_kernel::{PAGE, process};
use runahead_policy::attention::Attention;
use runahead_policy::following::Following;
use runahead_policy::hold::Hold;
use runahead_policy::track::Track;
use runahead_policy::untold::Untold;
use runahead_policy::worth::Worth;

pub const SCRATCH_BYTES: usize = 8 * PAGE;
pub const BLOCK_BYTES: usize = 2 * PAGE + SCRATCH_BYTES;

/// Page 0. The first two fields are read by every stub, see `arch`.
#[repr(C, align(4096))]
pub struct Fixed {
    /// Where a stub enters the agent. The speculator replaces it in its own copy.
    pub entry: AtomicUsize,
    /// Read-type calls that may still pass unseen; negative: look at each.
    pub calm: AtomicI32,
    /// 1: let everything through, for good.
    pub off: AtomicU32,
    /// Tells the speculator that this page is what the post says it is.
    pub cookie: u64,
    /// Where the session and the site file are. Its cookie, behind ours, tells the host that this is one of the run's.
    pub address: Address,
    pub flags: u32,
    /// 1: look-ups of names are not looked at any more.
    pub names_off: AtomicU32,
    /// `cachestat` is missing (before Linux 6.5).
    pub no_cachestat: AtomicU32,
    /// A lock for the scratch pages (after the start): address of the stack frame that holds it.
    pub scratch_lock: Lock,
}

/// Page 1: what belongs to this very process.
#[repr(C, align(4096))]
pub struct Process {
    pub lock: Lock,
    /// Address of the session's header page, 0 while not attached.
    pub header: AtomicUsize,
    pub slot: AtomicUsize,
    /// Process id of whoever claimed the slot. A child of vfork finds its parent's here.
    pub claimed_by: AtomicU32,
    /// Attaching failed: do not try again.
    pub refused: AtomicU32,
    /// Key of the executable in the session's table, 0: not known. Set when the process attaches.
    pub executable: AtomicU64,
    /// Stalls to let pass before it speculates, for what its kin have gained.
    pub patience: AtomicU32,
    /// [`thread_word`] of the thread whose reads are compared with the log.
    pub thread: AtomicUsize,
    /// Threads that look a name up at present. (A handler that jumps out of one leaves it too high: three of those,
    /// and the program is taken for one that helps itself.)
    pub looking_up: AtomicU32,
    /// Bytes of memory of the program's own, mapped or behind the break.
    pub mapped: AtomicUsize,
    /// The host has been told of that, or need not be.
    pub mapped_told: AtomicU32,
    /// Where the program last asked its heap to end; 0: it has not.
    pub heap_end: AtomicUsize,
    /// The program's copy of its latest post; 0: there is none.
    #[cfg(feature = "forked")]
    pub copy: AtomicI32,
    inner: UnsafeCell<Inner>,
}

/// What only the holder of [`Process::lock`] touches.
pub struct Inner {
    /// Set by the first visit; `Attention` and `Worth` have no all-zero start.
    pub awake: bool,
    pub attention: Attention,
    pub track: Track,
    pub following: Following,
    pub hold: Hold,
    pub worth: Worth,
    pub untold: Untold,
    /// Descriptor and place of the latest read of which the kernel does not tell.
    pub untold_at: (i32, i64),
    pub names: Names,
    pub epoch: u32,
    /// Operations passed in this epoch.
    pub passed: u32,
    /// When the present stall began, ns; 0: none is being measured.
    pub stall_began: u64,
}

/// A lock that is only ever tried. It remembers which thread holds it and how deep that thread's stack
/// was: if the same thread asks again from a shallower stack, the holder's frame is gone (a signal
/// handler jumped out of it), and the lock is free in truth.
#[repr(C)]
pub struct Lock {
    thread: AtomicUsize,
    stack: AtomicUsize,
}

impl Lock {
    /// Tries to take the lock; `stack` is the stack pointer at the system call site.
    pub fn try_take(&self, stack: usize) -> bool {
        // SAFETY: the agent runs in threads that a C library set up (see `start`).
        let me = unsafe { thread_word() };
        match self.thread.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => {
                self.stack.store(stack, Ordering::Relaxed);
                true
            }
            Err(holder) if holder == me && self.stack.load(Ordering::Relaxed) < stack => {
                self.stack.store(stack, Ordering::Relaxed);
                true
            }
            Err(_) => false,
        }
    }

    pub fn release(&self) {
        self.thread.store(0, Ordering::Release);
    }
}

impl Fixed {
    pub fn is_off(&self) -> bool {
        self.off.load(Ordering::Relaxed) != 0
    }

    /// Lets everything through from now on.
    pub fn stand_down(&self) {
        self.off.store(1, Ordering::Relaxed);
        self.calm.store(i32::MAX, Ordering::Relaxed);
        #[cfg(feature = "forked")]
        crate::forked::end(self.process());
    }

    /// The same, without a byte of the program's stack from now on.
    pub fn withdraw(&self) {
        self.entry.store(arch::past_address(), Ordering::Relaxed);
        self.stand_down();
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// The process's own page.
    pub fn process(&self) -> &'static Process {
        // SAFETY: page 1 of the block, mapped for the life of the process; zeros are a valid value.
        unsafe { &*((self as *const Fixed as usize + PAGE) as *const Process) }
    }

    /// The scratch pages.
    ///
    /// # Safety
    /// The caller holds `scratch_lock`, or is the start-up.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn scratch(&self) -> &'static mut [u8] {
        let address = self as *const Fixed as usize + 2 * PAGE;
        // SAFETY: pages 2.. of the block; exclusive by the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(address as *mut u8, SCRATCH_BYTES) }
    }
}

impl Process {
    pub fn header(&self) -> Option<&'static Header> {
        let address = self.header.load(Ordering::Acquire);
        // SAFETY: set by `attach` to a mapping that stays for the life of the process.
        (address != 0).then(|| unsafe { &*(address as *const Header) })
    }

    pub fn slot(&self) -> Option<&'static Slot> {
        let address = self.slot.load(Ordering::Acquire);
        // SAFETY: as for the header.
        (address != 0).then(|| unsafe { &*(address as *const Slot) })
    }

    /// # Safety
    /// The caller holds the lock.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn inner(&self) -> &mut Inner {
        // SAFETY: exclusive by the caller's promise.
        let inner = unsafe { &mut *self.inner.get() };
        if !inner.awake {
            inner.awake = true;
            inner.attention = Attention::default();
            inner.worth = Worth::default();
        }
        inner
    }
}

/// Maps the block. Returns None where the kernel refuses: then there is no agent.
pub fn create(entry: usize) -> Option<&'static mut Fixed> {
    let flags = n::MAP_PRIVATE | n::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let address = unsafe { memory::map(0, BLOCK_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0) }.ok()?;
    // SAFETY: the process page is ours and still all zeros.
    if unsafe { memory::advise(address + PAGE, PAGE, n::MADV_WIPEONFORK) }.is_err() {
        // SAFETY: nobody knows of it yet.
        let _ = unsafe { memory::unmap(address, BLOCK_BYTES) };
        return None;
    }
    // SAFETY: zeros are a valid `Fixed`; exclusive, as nobody else knows the address.
    let fixed = unsafe { &mut *(address as *mut Fixed) };
    fixed.entry = AtomicUsize::new(entry);
    // Not a secret: it only has to differ between processes that could be mistaken for each other.
    fixed.cookie = process::monotonic_ns().rotate_left(20) ^ address as u64 ^ process::process_id() as u64;
    Some(fixed)
}

/// Unmaps a block that no stub, and nobody else, knows of.
pub fn destroy(fixed: &Fixed) {
    // SAFETY: the block of `create`; by what is said above nobody looks at it any more.
    let _ = unsafe { memory::unmap(fixed as *const Fixed as usize, BLOCK_BYTES) };
}

/// Counts one event; the counts are written by whoever holds the lock, so no read-modify-write.
pub fn count(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

const _: () = assert!(size_of::<Fixed>() == PAGE);
const _: () = assert!(size_of::<Process>() == PAGE);
