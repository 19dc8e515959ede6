//! Names: do look-ups wait for the disk, and where.
//!
//! Looking up a name and listing a directory are not cancelled, so the agent may do them in the program's
//! stead and see how long they take (`arch::entry`: a *measured* call, made with the program's own registers and
//! signal mask). The result is the kernel's, whatever it is. One that took long says that names are cold here: the agent leaves a note of the name for the
//! host, which looks up what comes next (see `runahead_abi::names`), and counts from then on what the
//! program looks up, so that the host stays close ahead.
//!
//! Opening is left alone: it may wait for other reasons than the disk (a pipe's other end, a lease).

use crate::arch::{Answer, Frame, Measured, areas_in_use};
use crate::reads::{Visit, with_process};
use crate::state::count;
use crate::trace::trace;
use crate::{attach, opened};
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::Ordering;
use runahead_abi::names::{PATH_BYTES, device_number, directory_mark, directory_of, kind, may_be_argument};
use runahead_abi::session::{Slot, names_ahead};
use runahead_abi::trace::kind as event;
use runahead_kernel::files::{IoVec, Stat};
use runahead_kernel::memory::{bytes, overlap};
use runahead_kernel::process::{monotonic_ns, process_id, sleeps_and_blocks, thread_id};
use runahead_kernel::uapi::general as n;
use runahead_policy::coldness::{Coldness, Sleeps, WAITED_NS};
use runahead_policy::crowd::{Crowd, Wait};
use runahead_policy::noting::Noting;

/// What the agent remembers about names. Zeros are its start.
#[derive(Clone, Copy, Default)]
pub struct Names {
    coldness: Coldness,
    sleeps: Sleeps,
    /// The descriptor that is being listed, plus 1.
    listing: u32,
    crowd: Crowd,
    noting: Noting,
    /// Waits of which the host was not told, as it leaves the file system to the program.
    untold: u32,
}

/// While the host leaves the file system to the program it may be told of one wait in so many. A note wakes
/// it, and takes as much processor time as a server at hand needs for one of the program's requests.
const TOLD: u32 = 64;

/// A look-up that is over.
struct LookedUp {
    directory: i32,
    path: usize,
    /// Where the kernel has told what was found, if it was; as statx does.
    told: Range<usize>,
    found: bool,
    extended: bool,
}

/// How long a call took, ns, and how often its thread had slept before, if that was asked.
#[derive(Clone, Copy)]
struct Took {
    ns: u64,
    sleeps: Option<u64>,
}

impl Took {
    /// Makes a system call.
    fn of(call: &Measured) -> Took {
        Took { ns: monotonic_ns().saturating_sub(call.began), sleeps: call.sleeps }
    }
}

/// `newfstatat`, `statx`, `stat`, `lstat`.
pub fn look_up(frame: &Frame, number: u32, a: [usize; 6]) -> Answer {
    let flags = match number {
        n::__NR_newfstatat => a[3],
        n::__NR_statx => a[2],
        _ => 0,
    };
    // An open file is asked about: no name. (What the agent has not measured is of a site for any call.)
    let Some(call) = frame.measured().filter(|_| flags as u32 & n::AT_EMPTY_PATH == 0) else {
        return Answer::plain(frame);
    };
    let (directory, path, told) = match number {
        n::__NR_stat | n::__NR_lstat => (n::AT_FDCWD, a[0], bytes(a[1], size_of::<Stat>())),
        n::__NR_statx => (a[0] as i32, a[1], bytes(a[4], size_of::<n::statx>())),
        _ => (a[0] as i32, a[1], bytes(a[2], size_of::<Stat>())),
    };
    let found = call.returned == 0;
    let looked_up = LookedUp { directory, path, told, found, extended: number == n::__NR_statx };
    let took = Took::of(&call);
    // Whoever else is inside the agent is looking a name up, but for some us, or holds.
    let holds = frame.state().process().holds.load(Ordering::Relaxed);
    let beside = (areas_in_use(frame.state()).saturating_sub(1) as u32).saturating_sub(holds);
    with_process(frame, |visit| visit.looked_up(&looked_up, took, beside));
    Answer::plain(frame)
}

/// `getdents64`.
pub fn list(frame: &Frame, a: [usize; 6]) -> Answer {
    if let Some(call) = frame.measured() {
        let took = Took::of(&call);
        with_process(frame, |visit| visit.listed(a[0] as i32, call.returned > 0, took));
    }
    Answer::plain(frame)
}

impl Visit<'_> {
    /// A look-up is over; so many other threads are looking names up.
    fn looked_up(&mut self, looked_up: &LookedUp, took: Took, beside: u32) {
        if self.names_are_off() || !self.name_passed(took) {
            return;
        }
        let mut copied = [0u8; PATH_BYTES];
        if opened::enters(self.state)
            && let Some(path) = path_at(looked_up.path, &looked_up.told, &mut copied)
        {
            self.enter_waited(looked_up.directory, path);
        }
        if self.need_not_tell() {
            return;
        }
        match self.inner.names.crowd.waited(beside) {
            Wait::Alone => {
                if let Some(path) = path_at(looked_up.path, &looked_up.told, &mut copied) {
                    self.note(kind::LOOKED_UP, looked_up.directory, path, took.ns);
                }
            }
            Wait::Tell => {
                if let Some(device) = looked_up.device() {
                    self.tell(kind::HELPS_ITSELF, n::AT_FDCWD, &device.to_le_bytes());
                }
            }
            Wait::Crowd => {}
        }
    }

    fn listed(&mut self, fd: i32, more: bool, took: Took) {
        if self.names_are_off() {
            return;
        }
        self.name_passed(took);
        let mark = fd as u32 + 1;
        let first = more && self.inner.names.listing != mark;
        self.inner.names.listing = if more { mark } else { 0 };
        if !first {
            return;
        }
        if let Some(slot) = self.state.slot() {
            count(&slot.agent.counts.listings, 1);
        }
        if self.inner.names.coldness.is_cold() && !self.need_not_tell() {
            // Each listing is news, though the descriptor's number may be the same.
            self.inner.names.noting.forget();
            self.note(kind::LISTED, fd, &[], took.ns);
        }
    }

    /// True if names are not looked at any more. Such a call still helps the agent to calm down: reaching it
    /// at all costs more than a cached look-up's tenth.
    fn names_are_off(&mut self) -> bool {
        let off = self.state.names_off.load(Ordering::Relaxed) != 0;
        if off {
            self.calms_down();
        }
        off
    }

    /// Counts a look-up; true if it had to wait.
    fn name_passed(&mut self, took: Took) -> bool {
        let Names { coldness, sleeps, .. } = &mut self.inner.names;
        let waited =
            coldness.passed(took.ns, || sleeps.since(thread_id() as u32, took.sleeps, sleeps_and_blocks().0));
        let took = took.ns;
        if took >= WAITED_NS {
            self.state.asks_sleeps.store(coldness.lasts() as i32, Ordering::Relaxed);
        }
        if waited {
            attach::has_waited(self.state, took);
            self.attention_stall();
            self.state.calm.store(0, Ordering::Relaxed);
            opened::has_waited(self.state);
        } else {
            self.calms_down();
        }
        let Some(slot) = self.state.slot() else {
            return waited;
        };
        let counts = &slot.agent.counts;
        count(&counts.names, 1);
        if waited {
            count(&counts.name_stalls, 1);
            count(&counts.name_stall_ns, took);
            trace(self.state, event::NAME_WAITED, took, 0);
            if self.is_left_alone(slot) {
                return false;
            }
        }
        waited
    }

    /// Leaves a note for the host, if one is due.
    fn note(&mut self, kind: u32, directory: i32, path: &[u8], took: u64) {
        let mark = directory_mark(directory, directory_of(path));
        if self.inner.names.noting.wants(mark, may_be_argument(directory, path), took) {
            self.tell(kind, directory, path);
        }
    }

    /// Whether the host need not hear of a wait.
    fn need_not_tell(&mut self) -> bool {
        let ahead = |slot: &Slot| slot.speculator.names_ahead.load(Ordering::Relaxed);
        if self.state.slot().is_none_or(|slot| ahead(slot) != names_ahead::LEFT) {
            return false;
        }
        self.inner.names.untold = (self.inner.names.untold + 1) % TOLD;
        self.inner.names.untold != 0
    }

    /// Tells the host, with which it attaches.
    fn tell(&mut self, kind: u32, directory: i32, path: &[u8]) {
        let Some(slot) = attach::slot(self.state) else {
            self.state.stand_down();
            return;
        };
        if !self.is_left_alone(slot) {
            let generation = self.state.header().releasing.generation();
            slot.agent.names.write(kind, directory, path, generation);
            attach::call_host(self.state);
        }
    }

    /// Whether the host has found that it does not pay. Then looking does not pay either: find on a disk of 35 us took 0.36 s
    /// watched, 0.31 alone.
    fn is_left_alone(&self, slot: &Slot) -> bool {
        let left_alone = slot.speculator.names_ahead.load(Ordering::Relaxed) == names_ahead::GONE;
        if left_alone {
            self.state.names_off.store(1, Ordering::Relaxed);
        }
        left_alone
    }
}

impl LookedUp {
    /// `st_dev` of what was found, if it is still there: the program may have unmapped it since.
    fn device(&self) -> Option<u64> {
        if !self.found {
            return None;
        }
        if self.extended {
            let major = bytes_at(self.told.start + offset_of!(n::statx, stx_dev_major))?;
            let minor = bytes_at(self.told.start + offset_of!(n::statx, stx_dev_minor))?;
            return Some(device_number(u32::from_ne_bytes(major), u32::from_ne_bytes(minor)));
        }
        bytes_at(self.told.start + offset_of!(Stat, st_dev)).map(u64::from_ne_bytes)
    }
}

/// Copies bytes of the program's own memory through the kernel, so that a bad address is no fault. Returns how many there are.
pub fn copy(address: usize, to: &mut [u8]) -> usize {
    let local = [IoVec { base: to.as_mut_ptr() as usize, length: to.len() }];
    let remote = [IoVec { base: address, length: to.len() }];
    // SAFETY: the local piece is as long as said.
    unsafe { runahead_kernel::memory::read_process(process_id(), &local, &remote) }.unwrap_or(0)
}

/// The `N` bytes at `address`; None if they are not all there.
fn bytes_at<const N: usize>(address: usize) -> Option<[u8; N]> {
    let mut copied = [0; N];
    (copy(address, &mut copied) == N).then_some(copied)
}

/// The path at `address`. None if it is too long for a note, or if the call has written over it.
fn path_at<'a>(address: usize, written: &Range<usize>, copied: &'a mut [u8; PATH_BYTES]) -> Option<&'a [u8]> {
    let got = copy(address, copied);
    let path = copied.get(..got)?;
    let path = path.get(..path.iter().position(|&byte| byte == 0)?)?;
    (!overlap(&bytes(address, path.len() + 1), written)).then_some(path)
}
