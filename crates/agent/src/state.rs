//! The agent's memory: one block, made before the program's first instruction.
//!
//! | what | content | after fork |
//! |---|---|---|
//! | page 0 | [`Fixed`]: what stubs and the entry code read | inherited |
//! | page 1 | [`Process`]: the track, the slot | zeros (`MADV_WIPEONFORK`) |
//! | [`Stubs`] | which stubs belong to which mapping | inherited |
//! | scratch | the sites of one file, used under the lock; the start's buffers | inherited |
//! | [`Substitute`] | an environment without what is ours | inherited |
//! | areas | stacks of the agent's own, each with a guard below it (`arch::entry`) | inherited |
//! | header | the session's header, shared | shared |
//! | slot | the process's slot, shared; unreadable until one is claimed | shared |
//!
//! A child of fork finds `Process` zeroed: that is how it knows that it is a program of its own, with
//! no speculator yet. The areas it must find as they were: a handler that has interrupted the last
//! instructions of a visit may have forked. A child of vfork shares everything with its parent, which
//! sleeps meanwhile.

use crate::arch;
use crate::executions::PRELOAD_KEPT;
use crate::names::Names;
use crate::patch::{Candidate, Stubs};
use crate::session::Address;
use crate::substitute::Substitute;
use crate::unchecked::Wait;
use core::cell::UnsafeCell;
use core::ops::Range;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use runahead_abi::opened::OPENINGS_AT;
use runahead_abi::session::{HEADER_BYTES, Header, LANES, SLOT_BYTES, SNAPSHOT_STACK, Slot, slot_offset};
use runahead_abi::sites::ENTRY_BY_NUMBER_AT;
use runahead_kernel::memory::{self, PROT_NONE, PROT_READ, PROT_WRITE};
use runahead_kernel::uapi::general as n;
use runahead_kernel::{PAGE, process};
use runahead_policy::attention::Attention;
use runahead_policy::following::Following;
use runahead_policy::futile::Futile;
use runahead_policy::hold::Hold;
use runahead_policy::in_order::InOrder;
use runahead_policy::mapped::Mapped;
use runahead_policy::pieces::Pieces;
use runahead_policy::served::Served;
use runahead_policy::track::Track;
use runahead_policy::untold::{Asking, Untold};
use runahead_policy::worth::Worth;

/// Room for the sites of one file.
pub const SCRATCH_BYTES: usize = 16 * PAGE;
/// Room for the start alone: lines of the list of mappings, a path, what was found.
const START_BYTES: usize = 5 * PAGE;
/// Mappings of code that are rewritten at the start.
const CANDIDATES: usize = 2 * PAGE / size_of::<Candidate>();

/// How many calls may be inside the agent at a time; more pass it by.
pub const AREAS: usize = 8;
/// Bytes of an area: a guard page, and a stack of which the agent uses less than half.
pub const AREA_BYTES: usize = 4 * PAGE;

const OFFSET_OF_STUBS: usize = 2 * PAGE;
const OFFSET_OF_SCRATCH: usize = 3 * PAGE;
pub const OFFSET_OF_SUBSTITUTE: usize = OFFSET_OF_SCRATCH + SCRATCH_BYTES + START_BYTES;
const OFFSET_OF_SNAPSHOT: usize = OFFSET_OF_SUBSTITUTE + PAGE;
pub const OFFSET_OF_AREAS: usize = OFFSET_OF_SNAPSHOT + SNAPSHOT_STACK;
pub const OFFSET_OF_HEADER: usize = OFFSET_OF_AREAS + AREAS * AREA_BYTES;
pub const OFFSET_OF_SLOT: usize = OFFSET_OF_HEADER + HEADER_BYTES;
/// Bytes of the block.
pub const WINDOW_BYTES: usize = OFFSET_OF_SLOT + SLOT_BYTES;

/// No descriptor of ours is open.
pub const NO_DESCRIPTOR: i32 = -1;

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
    /// As `calm`, of calls that open files (`opened`).
    pub openings: AtomicI32,
    /// 1: look-ups of names are not looked at any more.
    pub names_off: AtomicU32,
    /// `cachestat` is missing (before Linux 6.5).
    pub no_cachestat: AtomicU32,
    /// 1: files are not to be looked at aside ([`crate::aside`]).
    pub no_aside: AtomicU32,
    /// 1: the processor tells the thread's base by itself.
    pub reads_thread_base: AtomicU32,
    /// 1: there is swap, so memory that the program gets is counted. The entry code reads it.
    pub counts_memory: AtomicU32,
    /// 1: the program has said itself who may trace it.
    pub names_tracer: AtomicU32,
    /// Where a stub enters whose call may be any; leads to `entry`. The speculator replaces it, too.
    pub entry_by_number: AtomicUsize,
    /// Where stubs lie that are out of the pool's reach; both 0: nowhere. The entry code reads them.
    pub far_start: AtomicUsize,
    pub far_end: AtomicUsize,
    /// Measured calls before which it is still asked how often their thread has slept (`names`). The entry
    /// code counts it down, and below zero where several threads do at once.
    pub asks_sleeps: AtomicI32,
    /// The site file's mapping, which reaches beyond its end; length 0: there is none. Only ever read
    /// through the kernel, as somebody may cut the file, and readable for that moment alone.
    pub site_file: AtomicUsize,
    pub site_file_length: AtomicUsize,
    /// Its descriptor, during the start alone; else [`NO_DESCRIPTOR`].
    pub site_descriptor: AtomicI32,
    /// While the process's code is not all known.
    pub wait: Wait,
    /// How what the loader preloads begins, where it begins with the agent; zeros behind it.
    pub preload: [u8; PRELOAD_KEPT],
    /// Where the variable stood that names the agent, at the program's start; 0: nowhere.
    pub preload_at: usize,
    /// As the three of the site file, of what comes with the installation (`sites::known`), which is looked
    /// for once, at the start, where the site file lacks something.
    pub prepared: AtomicUsize,
    pub prepared_length: AtomicUsize,
    pub prepared_descriptor: AtomicI32,
    /// 1: it has been looked for, or may not be any more.
    pub prepared_tried: AtomicU32,
    /// How many calls have been let pass so far, at most. It wraps.
    pub skipped: AtomicU32,
    /// Of threads that have no lane, and of each lane: what is read in order. (`Process` is full. A child of
    /// fork has the same files open, and at the same places.)
    in_order: [UnsafeCell<InOrder>; 1 + LANES],
}

/// Page 1: what belongs to this very process.
#[repr(C, align(4096))]
pub struct Process {
    pub lock: Lock,
    /// For the scratch pages and [`Stubs`], after the start.
    pub scratch_lock: Lock,
    /// 1: the process has been inside the agent, or passed its start.
    pub begun: AtomicU32,
    /// Process id of whoever began. A child of vfork finds its parent's.
    pub begun_by: AtomicU32,
    /// Process id of a child of vfork that is cut off (`rooms`).
    pub cut_off: AtomicU32,
    /// Areas that were in use when a child of fork was inside the agent for the first time: of its parent's threads, and of a
    /// visit that its handler has interrupted.
    pub lost_areas: AtomicUsize,
    /// 1: the slot is this process's.
    pub attached: AtomicU32,
    /// 1: the page faults are watched, or may be. The entry code reads it.
    pub watched: AtomicU32,
    /// Process id of whoever claimed the slot. A child of vfork finds its parent's here.
    pub claimed_by: AtomicU32,
    /// 1: it has waited for the disk. For [`crate::opened`], as is the lock of whoever writes to the ring of
    /// names.
    pub has_waited: AtomicU32,
    pub opened_lock: Lock,
    /// Attaching failed: do not try again.
    pub refused: AtomicU32,
    /// Key of the executable in the session's tables, 0: not known. Set when the process attaches, or at its
    /// start where `tells_of_life` is.
    pub executable: AtomicU64,
    /// Stalls to let pass before it speculates, for what its kin have gained.
    pub patience: AtomicU32,
    /// [`Attention`] of all threads, as a word.
    pub attention: AtomicU64,
    /// Lanes that have, or had, a thread; the first ones.
    pub lanes_used: AtomicU32,
    /// Lanes whose thread is on track, or each read of which must be seen for another reason, one bit each.
    pub on_track: AtomicU32,
    /// The lane that was visited last, and visits of one lane after which its thread is thought to be alone.
    pub latest_lane: AtomicU32,
    pub company: AtomicU32,
    /// Epochs that have begun, in all lanes.
    pub epochs: AtomicU32,
    /// The lane, and 1, whose thread may post where a server brings the data; 0: none has yet.
    pub server_lane: AtomicU32,
    /// Threads that hold at present.
    pub holds: AtomicU32,
    /// Of whoever writes the slot's snapshot, and how many the host had asked for at the latest.
    pub snapshot_lock: Lock,
    pub snapshots_given: AtomicU32,
    /// Bytes of memory of the program's own, mapped or behind the break.
    pub mapped: AtomicUsize,
    /// The host has been told of that, or need not be.
    pub mapped_told: AtomicU32,
    /// 1: it is of interest what becomes of the program ([`runahead_abi::lives`]). A child of fork is none.
    pub tells_of_life: AtomicU32,
    /// Where the program last asked its heap to end; 0: it has not.
    pub heap_end: AtomicUsize,
    /// The program's copy of its latest post; 0: there is none.
    #[cfg(feature = "forked")]
    pub copy: AtomicI32,
    /// For threads that have no lane, and for names.
    inner: UnsafeCell<Inner>,
    pub lanes: [Lane; LANES],
}

/// A thread that is run ahead of, or was. A lane is taken over when its thread has done nothing for a while.
#[repr(C)]
pub struct Lane {
    pub lock: Lock,
    /// Visits of the thread's, so that one that sleeps is told from one that reads.
    pub visits: AtomicU32,
    /// [`arch::thread_base`] of the thread; 0: there was none yet. Written by the holder of both locks.
    pub thread: AtomicUsize,
    /// What `visits` was when another thread looked, and since when, ns.
    pub visits_seen: AtomicU32,
    pub seen_at: AtomicU64,
    inner: UnsafeCell<Inner>,
}

/// What only the holder of the lock, [`Process::lock`] or that of a lane, touches.
pub struct Inner {
    /// Set by the first visit; `Worth` has no all-zero start.
    pub awake: bool,
    /// How closely a thread without a lane is looked at while others must be, and calls of it that pass
    /// unseen.
    pub bystander: Attention,
    pub unseen: u32,
    /// Hits at which others that are on track may be asleep.
    pub sleepers_unseen: u32,
    pub track: Track,
    pub following: Following,
    pub pieces: Pieces,
    pub hold: Hold,
    pub worth: Worth,
    pub futile: Futile,
    pub served: Served,
    pub untold: Untold,
    pub asking: Asking,
    pub mapped: Mapped,
    /// The device of the latest read of which the kernel does not tell.
    pub untold_device: u64,
    /// A device, and whether squashfs is on it; 0: none was asked about yet.
    pub asked_device: u64,
    pub is_unpacked: bool,
    pub names: Names,
    pub epoch: u32,
    /// Operations passed in this epoch.
    pub passed: u32,
    /// When the present stall began, ns; 0: none is being measured.
    pub stall_began: u64,
    /// Nothing had been asked ahead for it.
    pub stall_is_whole: bool,
    /// It is for a file that is read in order.
    pub stall_is_in_order: bool,
}

/// A lock that is only ever tried. No handler of the program's runs while it is held (`arch::entry`), so
/// it is always given back; a child of fork finds it free.
#[repr(C)]
pub struct Lock(AtomicU32);

impl Lock {
    pub fn try_take(&self) -> bool {
        self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    pub fn release(&self) {
        self.0.store(0, Ordering::Release);
    }
}

impl Process {
    /// The process has been inside the agent.
    pub fn begin(&self) {
        self.begun_by.store(process::process_id() as u32, Ordering::Relaxed);
        self.begun.store(1, Ordering::Relaxed);
    }
}

impl Fixed {
    /// What a lane's thread reads in order; of threads that have none where that is None.
    ///
    /// # Safety
    /// The lock of the lane is held, or without one the process's.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn in_order(&self, lane: Option<usize>) -> &mut InOrder {
        let own = lane.and_then(|lane| self.in_order.get(1 + lane));
        // SAFETY: each is used under its own lock alone, which the caller holds.
        unsafe { &mut *own.unwrap_or(&self.in_order[0]).get() }
    }

    pub fn is_off(&self) -> bool {
        self.off.load(Ordering::Relaxed) != 0
    }

    /// Lets everything through from now on, without a system call of ours and without a look at
    /// anything but the stub.
    pub fn stand_down(&self) {
        crate::opened::misses(self);
        crate::attach::sees_no_end(self);
        self.off.store(1, Ordering::SeqCst);
        self.entry.store(arch::past_address(), Ordering::SeqCst);
        self.calm.store(i32::MAX, Ordering::Relaxed);
        self.openings.store(i32::MAX, Ordering::Relaxed);
        #[cfg(feature = "forked")]
        crate::forked::end(self.process());
    }

    /// Called first in each visit: a child of fork finds out which areas nobody will give back. True: it is
    /// the first visit of such a child.
    pub fn begin(&self) -> bool {
        let process = self.process();
        let is_first = process.begun.load(Ordering::Relaxed) == 0;
        if is_first {
            process.lost_areas.store(arch::areas_in_use(self).saturating_sub(1), Ordering::Relaxed);
            process.begin();
        }
        is_first
    }

    /// Waits until no other thread is inside the agent, at most `longest` ns; for after [`Fixed::stand_down`].
    pub fn wait_for_others(&self, longest: u64) {
        let _ = self.is_alone_within(longest);
    }

    /// Whether no other thread is inside the agent, or none is any more within `longest` ns.
    pub fn is_alone_within(&self, longest: u64) -> bool {
        let lost = self.process().lost_areas.load(Ordering::Relaxed);
        let is_alone = || arch::areas_in_use(self) <= 1 + lost;
        if is_alone() {
            return true;
        }
        let end = process::monotonic_ns().saturating_add(longest);
        while process::monotonic_ns() < end {
            process::yield_processor();
            if is_alone() {
                return true;
            }
        }
        false
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
        let address = self as *const Fixed as usize + OFFSET_OF_SCRATCH;
        // SAFETY: the block's scratch pages; exclusive by the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(address as *mut u8, SCRATCH_BYTES) }
    }

    /// Room for lines, the first of [`Fixed::start_buffers`].
    ///
    /// # Safety
    /// The caller is the start-up, which has no such room in use.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn start_lines(&self) -> &'static mut [u8] {
        let address = self as *const Fixed as usize + OFFSET_OF_SCRATCH + SCRATCH_BYTES;
        // SAFETY: pages of the block's; exclusive by the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(address as *mut u8, 2 * PAGE) }
    }

    /// What only the start uses: lines, a path, candidates.
    ///
    /// # Safety
    /// The caller is the start-up.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn start_buffers(&self) -> (&'static mut [u8], &'static mut [u8], &'static mut [Candidate]) {
        let address = self as *const Fixed as usize + OFFSET_OF_SCRATCH + SCRATCH_BYTES;
        // SAFETY: pages of the block's, apart from each other; zeros are valid candidates; exclusive by the
        // caller's promise.
        unsafe {
            (
                self.start_lines(),
                core::slice::from_raw_parts_mut((address + 2 * PAGE) as *mut u8, PAGE),
                core::slice::from_raw_parts_mut((address + 3 * PAGE) as *mut Candidate, CANDIDATES),
            )
        }
    }

    /// Which stubs belong to which mapping.
    ///
    /// # Safety
    /// As for [`Fixed::scratch`].
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn stubs(&self) -> &'static mut Stubs {
        let address = self as *const Fixed as usize + OFFSET_OF_STUBS;
        // SAFETY: a page of the block's; zeros are a valid value; exclusive by the caller's promise.
        unsafe { &mut *(address as *mut Stubs) }
    }

    /// What a program is executed with instead of what this one gives.
    pub fn substitute(&self) -> &'static Substitute {
        // SAFETY: a page of the block's, mapped for the life of the process; zeros are a valid value.
        unsafe { &*((self as *const Fixed as usize + OFFSET_OF_SUBSTITUTE) as *const Substitute) }
    }

    /// Where the stack of the slot's snapshot is copied to, [`SNAPSHOT_STACK`] bytes.
    pub fn snapshot_stack(&self) -> usize {
        self as *const Fixed as usize + OFFSET_OF_SNAPSHOT
    }

    /// Where everything of the agent's is: its block, its image with the pool, the stubs beyond the pool's reach.
    pub fn own_ranges(&self) -> [Range<usize>; 3] {
        let block = self as *const Fixed as usize;
        let far = self.far_start.load(Ordering::Relaxed)..self.far_end.load(Ordering::Relaxed);
        [block..block + WINDOW_BYTES, arch::image(), far]
    }

    /// The session's header.
    pub fn header(&self) -> &'static Header {
        // SAFETY: mapped by `create` for the life of the process, of a file that cannot be cut (sealed).
        unsafe { &*((self as *const Fixed as usize + OFFSET_OF_HEADER) as *const Header) }
    }

    /// Puts memory of the process's own where the session is. Another thread may be at it: it finds zeros, which are as good
    /// there as anything.
    pub fn forget_session(&self) {
        let flags = n::MAP_PRIVATE | n::MAP_ANONYMOUS | n::MAP_FIXED | n::MAP_NORESERVE;
        let header = self as *const Fixed as usize + OFFSET_OF_HEADER;
        // SAFETY: the end of the block, from the header on; all that looks at it bears any values.
        let _ = unsafe {
            memory::map(header, WINDOW_BYTES - OFFSET_OF_HEADER, PROT_READ | PROT_WRITE, flags, -1, 0)
        };
    }

    /// Where the slot is mapped; [`Fixed::slot`] once it is this process's.
    pub fn slot_address(&self) -> usize {
        self as *const Fixed as usize + OFFSET_OF_SLOT
    }

    /// The slot, if the process has claimed one.
    pub fn slot(&self) -> Option<&'static Slot> {
        let attached = self.process().attached.load(Ordering::Acquire) != 0;
        // SAFETY: `attach` has shown the claimed slot there, for the life of the process.
        attached.then(|| unsafe { &*(self.slot_address() as *const Slot) })
    }
}

impl Process {
    /// # Safety
    /// The caller holds the lock.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn inner(&self) -> &mut Inner {
        // SAFETY: exclusive by the caller's promise.
        let inner = unsafe { &mut *self.inner.get() };
        if !inner.awake {
            inner.awake = true;
            inner.bystander = Attention::default();
            inner.worth = Worth::default();
        }
        inner
    }

    /// Lane `index`, and what it holds, which `common` is where it was never used.
    ///
    /// # Safety
    /// The caller holds the lane's lock.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn lane_inner(&self, lane: &Lane, common: Option<&Inner>) -> &mut Inner {
        // SAFETY: exclusive by the caller's promise.
        let inner = unsafe { &mut *lane.inner.get() };
        if !inner.awake {
            inner.awake = true;
            inner.bystander = Attention::default();
            inner.worth = Worth::default();
            if let Some(common) = common {
                inner.following = common.following;
                inner.hold = common.hold;
                inner.worth = common.worth;
                inner.futile = common.futile;
                inner.served = common.served;
                (inner.asked_device, inner.is_unpacked) = (common.asked_device, common.is_unpacked);
            }
        }
        inner
    }
}

/// Maps the block, with the session behind `session` in it. Returns None where the kernel refuses: then
/// there is no agent.
pub fn create(entry: usize, session: i32) -> Option<&'static mut Fixed> {
    let flags = n::MAP_PRIVATE | n::MAP_ANONYMOUS | n::MAP_NORESERVE;
    // SAFETY: a new mapping.
    let address = unsafe { memory::map(0, WINDOW_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0) }.ok()?;
    if furnish(address, session).is_err() {
        // SAFETY: nobody knows of it yet.
        let _ = unsafe { memory::unmap(address, WINDOW_BYTES) };
        return None;
    }
    // SAFETY: zeros are a valid `Fixed`; exclusive, as nobody else knows the address.
    let fixed = unsafe { &mut *(address as *mut Fixed) };
    fixed.entry = AtomicUsize::new(entry);
    fixed.entry_by_number = AtomicUsize::new(arch::by_number_address());
    fixed.site_descriptor = AtomicI32::new(NO_DESCRIPTOR);
    fixed.prepared_descriptor = AtomicI32::new(NO_DESCRIPTOR);
    // Not a secret: it only has to differ between processes that could be mistaken for each other.
    fixed.cookie = process::monotonic_ns().rotate_left(20) ^ address as u64 ^ process::process_id() as u64;
    Some(fixed)
}

fn furnish(address: usize, session: i32) -> runahead_kernel::Result<()> {
    let shared = n::MAP_SHARED | n::MAP_FIXED;
    // SAFETY: all of it lies in the block, which is new and unused.
    unsafe {
        memory::advise(address + PAGE, PAGE, n::MADV_WIPEONFORK)?;
        for area in 0..AREAS {
            let guard = address + OFFSET_OF_AREAS + area * AREA_BYTES;
            // Not MADV_GUARD_INSTALL: what /proc/self/maps calls readable is read by collectors and debuggers.
            memory::protect(guard, PAGE, PROT_NONE)?;
        }
        let header = address + OFFSET_OF_HEADER;
        memory::map(header, HEADER_BYTES, PROT_READ | PROT_WRITE, shared, session, 0)?;
        // Any slot does: which one is shown is said when one is claimed.
        let first = slot_offset(0) as u64;
        memory::map(address + OFFSET_OF_SLOT, SLOT_BYTES, PROT_NONE, shared, session, first)?;
    }
    Ok(())
}

/// Counts one event.
pub fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

const _: () = assert!(size_of::<Fixed>() == PAGE);
const _: () = assert!(size_of::<Process>() == PAGE);
const _: () = assert!(size_of::<Stubs>() <= PAGE);
const _: () = assert!(core::mem::offset_of!(Fixed, cookie) == 16);
const _: () = assert!(core::mem::offset_of!(Fixed, openings) == OPENINGS_AT);
const _: () = assert!(core::mem::offset_of!(Fixed, entry_by_number) == ENTRY_BY_NUMBER_AT);
