//! Which processes' page faults are watched, and what is counted about them.

use crate::futex::wake;
use crate::processes::{Standing, standing};
use crate::rights::Watched;
use crate::session::{Session, Shared, SharedSlot};
use runahead_abi::environment::Cookie;
use runahead_abi::log::mark;
use runahead_abi::post;
use runahead_abi::registers::{FaultRegisters, Registers};
use runahead_abi::session::{NO_ROOM, Slot, activity, ended, seen_by, watch, watching};
use runahead_faults::memory::{is_allowed, on_swap};
use runahead_faults::{BlockCosts, CameTo, Fault, Link, REGISTERS_COUNT, REQUEST, SeenBy, Touch, Watch};
use runahead_gate::Gate;
use runahead_prefetch::PAGE;
use runahead_prefetcher::limits::Group;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often it is looked whether a process with much memory has any of it on swap: 30 us each time.
const SWAP_EVERY: Duration = Duration::from_millis(50);

/// Of the memory that there is, one part in so many may be brought in from swap, or in blocks of files, ahead of all programs
/// together: what they have in use is to stay, and what was brought in is not to be pushed out before it is reached.
const ROOM: u64 = 16;

/// So much swap must be free, of the machine's and of what each group above us may use, or twice as much as the memory that
/// there is: it is looked at ten times a second. A page that was brought in keeps its place on swap until the program
/// touches it; where that leaves no place for what has to go, the kernel kills the program. (104 MB in a group of 48 MB with
/// 80 MB of swap: one of four runs.)
const FREE_MOST: u64 = 2 << 30;

/// A read was foretold lately, if it is no longer ago: some waits of a slow disk.
const READS_LATELY: Duration = Duration::from_millis(100);

/// Bytes of the machine's swap that are free; 0 where the kernel does not say.
fn free_swap() -> u64 {
    // SAFETY: zeros are a valid value, and the kernel writes no more than the structure.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let said = unsafe { libc::sysinfo(&raw mut info) } == 0;
    if said { info.freeswap.saturating_mul(u64::from(info.mem_unit)) } else { 0 }
}

/// The watch over one process, from its first large mapping on.
pub struct Faults {
    /// What is known of the disks, from all processes.
    costs: Arc<BlockCosts>,
    gate: Gate,
    watch: Option<Watch>,
    begun: bool,
    swap_looked: Option<Instant>,
    swap_refused: bool,
}

impl Faults {
    pub fn new(costs: Arc<BlockCosts>, gate: Gate) -> Faults {
        Faults { costs, gate, watch: None, begun: false, swap_looked: None, swap_refused: false }
    }

    /// Begins, or ends for good, as the program in the slot wants it. `most`: bytes that the user lets be in memory ahead.
    pub fn attend(&mut self, process: u32, session: &Session, index: usize, most: u64) {
        let slot = session.slot(index);
        let wanted = slot.agent.watch_wanted.load(Ordering::Acquire);
        if wanted == watch::NOT {
            return;
        }
        if slot.agent.retire.load(Ordering::Acquire) != 0 {
            self.begun = true;
            self.stop();
            say(slot, watching::GONE);
        } else if !self.begun && (wanted == watch::FILE || self.is_swapping(process, slot)) {
            self.begun = true;
            // A program that does not find this at its end waits for nobody, so it must be there before we look whether
            // the program is at its end.
            say(slot, watching::ON);
            if slot.agent.retire.load(Ordering::SeqCst) != 0 {
                say(slot, watching::GONE);
                return;
            }
            let (shared_slot, cookie, session) = (session.share_slot(index), session.cookie, session.share());
            let link = InSlot {
                process,
                slot: shared_slot,
                session,
                cookie,
                rights: Watched::begin(Path::new(&format!("/proc/{process}"))),
                epoch: 0,
                followed: None,
                lists_at: lists_at(slot),
                posted: 0,
                asked_at: None,
                hinted: (0, None),
                group: None,
                most,
            };
            match Watch::start(process, wanted == watch::FILE, link, self.costs.clone(), self.gate) {
                Ok(watch) => self.watch = Some(watch),
                Err(error) => refuse(slot, &error, &error),
            }
        }
    }

    /// Whether some of the process's memory is on swap, and can be brought in. Nobody watches a process before.
    fn is_swapping(&mut self, process: u32, slot: &Slot) -> bool {
        if self.swap_looked.is_some_and(|at| at.elapsed() < SWAP_EVERY) {
            return false;
        }
        self.swap_looked = Some(Instant::now());
        let swapped = on_swap(process) > 0;
        if swapped && !self.swap_refused {
            match is_allowed(process) {
                Ok(()) => return true,
                Err(error) => self.swap_refused = refuse_swap(slot, &error),
            }
        }
        // Speculation from reads is to leave it there all the same.
        slot.faults.room.store(if swapped { NO_ROOM } else { 0 }, Ordering::Relaxed);
        false
    }

    /// Ends it: from now on nothing is held open, and nothing written into the slot.
    pub fn stop(&mut self) {
        self.watch = None;
    }
}

/// Notes why faults are not seen. Nobody is to be waited for.
fn refuse(slot: &Slot, events: &io::Error, pagemap: &io::Error) {
    slot.faults.pagemap_refused.store(number_of(pagemap), Ordering::Relaxed);
    slot.faults.refused.store(number_of(events), Ordering::Relaxed);
    say(slot, watching::GONE);
}

/// Notes why what is on swap cannot be brought in; true.
fn refuse_swap(slot: &Slot, error: &io::Error) -> bool {
    slot.faults.swap_refused.store(number_of(error), Ordering::Relaxed);
    true
}

fn number_of(error: &io::Error) -> u32 {
    error.raw_os_error().unwrap_or(libc::EIO) as u32
}

fn say(slot: &Slot, state: u32) {
    if slot.faults.watching.swap(state, Ordering::SeqCst) != state {
        wake(&slot.faults.watching);
    }
}

/// A process's slot, and the present fault epoch. The watch ends before the slot is freed.
struct InSlot {
    process: u32,
    slot: SharedSlot,
    session: Shared,
    cookie: Cookie,
    rights: Option<Watched>,
    epoch: u32,
    /// The thread that speculation is for and the base of its local storage, if not that because of which is
    /// watched.
    followed: Option<(i32, u64)>,
    /// How far from that base a thread's list of robust mutexes is, if it is known.
    lists_at: Option<u64>,
    /// Whose fault the latest post was.
    posted: i32,
    /// Number of the snapshot that there was when the latest was asked for.
    asked_at: Option<u32>,
    /// Reads that had been foretold at the latest look, and when one more was last.
    hinted: (u64, Option<Instant>),
    /// From the first time on that it is watched.
    group: Option<Group>,
    /// Bytes that the user lets be in memory ahead.
    most: u64,
}

/// Where a thread is from which speculation is to begin.
struct Handed {
    thread: i32,
    registers: FaultRegisters,
    /// `AgentPart::voids` then.
    voids: u32,
    /// Number of the snapshot; 0: it is at a fault.
    snapshot: u32,
}

impl InSlot {
    /// Posts it, and sees to it that there is somebody who takes it.
    fn hand_over(&mut self, handed: &Handed, ahead: u32) {
        let slot = self.slot.get();
        let part = &slot.faults;
        self.posted = handed.thread;
        self.epoch = self.epoch.wrapping_add(1) & (u32::MAX >> 1);
        post::begin(&part.posted, self.epoch);
        part.passed.store(0, Ordering::Relaxed);
        part.ahead.store(ahead, Ordering::Relaxed);
        part.thread.store(handed.thread.cast_unsigned(), Ordering::Relaxed);
        part.posted_voids.store(handed.voids, Ordering::Relaxed);
        part.snapshot.store(handed.snapshot, Ordering::Relaxed);
        // SAFETY: the host's own part of the slot; the odd number above tells readers to stay away.
        unsafe { part.registers.0.get().write_volatile(handed.registers) };
        post::publish(&part.posted, self.epoch);
        add(&part.posts, 1);
        // Wherever it sleeps.
        post::ring(&slot.agent.bell);
        wake(&slot.agent.bell);
        wake(&part.passed);
        if part.speculator_wanted.swap(1, Ordering::Relaxed) == 0 {
            // Speculators are the host's main thread's to start: they die with whoever did.
            let doorbell = &self.session.header().doorbell;
            doorbell.fetch_add(1, Ordering::Release);
            wake(doorbell);
        }
    }

    /// Processes for which pages are brought in from swap, this one among them: they share what there is.
    fn processes(&self) -> u64 {
        let own: *const Slot = self.slot.get();
        let brings = |slot: &Slot| slot.faults.room.load(Ordering::Relaxed) > NO_ROOM;
        let others = self.session.owned_slots().filter(|&slot| !std::ptr::eq(slot, own) && brings(slot));
        1 + others.count() as u64
    }
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Link for InSlot {
    fn refused(&self, events: &io::Error, pagemap: &io::Error) {
        refuse(self.slot.get(), events, pagemap);
    }

    fn seen_by(&self, way: SeenBy) {
        let way = match way {
            SeenBy::Events => seen_by::EVENTS,
            SeenBy::Pagemap => seen_by::PAGEMAP,
        };
        self.slot.get().faults.seen_by.store(way, Ordering::Relaxed);
    }

    fn arms(&self) -> bool {
        let slot = self.slot.get();
        // A process that has executed another program since is none of ours until it attaches again.
        let same = standing(self.process, slot, self.cookie) == Standing::Program
            && self.rights.as_ref().is_some_and(Watched::still_is);
        add(&slot.faults.armed, u64::from(same));
        same
    }

    fn is_paused(&self) -> bool {
        self.slot.get().speculator.allowance.off.load(Ordering::Relaxed) != 0
    }

    fn room(&mut self) -> u32 {
        let group = self.group.get_or_insert_with(Group::find);
        let limit = group.memory(self.most).limit;
        if group.free_swap(free_swap()) < limit.saturating_mul(2).min(FREE_MOST) {
            return 0;
        }
        let bytes = (limit / ROOM).min(self.most) / self.processes();
        u32::try_from(bytes / PAGE).unwrap_or(u32::MAX)
    }

    fn file_room(&mut self) -> u64 {
        let allowance = &self.slot.get().speculator.allowance;
        // Where the user limits bandwidth, nothing of it goes to guesses.
        if allowance.bytes_a_second.load(Ordering::Relaxed) != 0 {
            return 0;
        }
        // What courtesy and memory leave to speculation; 0 is no limit.
        let left = |count: &AtomicU32, bytes| match count.load(Ordering::Relaxed) {
            0 => u64::MAX,
            count => u64::from(count) * bytes,
        };
        let left = left(&allowance.requests, REQUEST).min(left(&allowance.pages, PAGE));
        let group = self.group.get_or_insert_with(Group::find);
        ((group.memory(self.most).limit / ROOM).min(self.most) / self.processes()).min(left)
    }

    fn swap_refused(&self, error: &io::Error) {
        refuse_swap(self.slot.get(), error);
    }

    fn swapping(&self, room: Option<u32>) {
        self.slot.get().faults.room.store(room.map_or(0, |room| room.max(NO_ROOM)), Ordering::Relaxed);
    }

    fn looked(&self, came_to: CameTo) {
        let part = &self.slot.get().faults;
        add(&part.faults, came_to.faults);
        add(&part.asked, came_to.asked);
        add(&part.useful, came_to.useful);
        add(&part.used, came_to.used);
    }

    fn followed(&self) -> i32 {
        let first = || self.slot.get().agent.watch_thread.load(Ordering::Relaxed).cast_signed();
        self.followed.map_or_else(first, |(thread, _)| thread)
    }

    fn follow(&mut self, thread: i32) {
        let base = self.lists_at.and_then(|at| thread_base(self.process, thread, at));
        let Some(base) = base else { return };
        // What is under way is nobody's from now on.
        self.cancel();
        self.posted = 0;
        self.followed = Some((thread, base));
    }

    fn is_posted(&self, thread: i32) -> bool {
        self.posted == thread
    }

    fn takes(&self, thread: i32, fault: &Fault) -> bool {
        let slot = self.slot.get();
        let gone = slot.speculator.activity.load(Ordering::Relaxed) == activity::GONE;
        fault.registers.is_some() && !gone && self.followed() == thread
    }

    fn post(&mut self, thread: i32, fault: &Fault, ahead: u32) -> bool {
        let slot = self.slot.get();
        let (Some(words), true) = (fault.registers, self.takes(thread, fault)) else { return false };
        let first = slot.agent.watch_thread_base.load(Ordering::Relaxed);
        let base = self.followed.map_or(first, |(_, base)| base);
        let voids = slot.agent.voids.load(Ordering::Acquire);
        self.hand_over(&Handed { thread, registers: registers(&words, base), voids, snapshot: 0 }, ahead);
        true
    }

    fn are_reads_foretold(&mut self) -> bool {
        let (before, at) = &mut self.hinted;
        let now = self.slot.get().agent.counts.reads_hinted.load(Ordering::Relaxed);
        if std::mem::replace(before, now) != now {
            *at = Some(Instant::now());
        }
        at.is_some_and(|at| at.elapsed() < READS_LATELY)
    }

    fn want_snapshot(&mut self) {
        let slot = self.slot.get();
        let taken = slot.agent.snapshot.taken.load(Ordering::Relaxed);
        if self.asked_at != Some(taken) {
            self.asked_at = Some(taken);
            slot.faults.snapshots_wanted.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn post_snapshot(&mut self, ahead: u32) -> bool {
        let slot = self.slot.get();
        let snapshot = &slot.agent.snapshot;
        let Some(number) = post::latest(&snapshot.taken) else { return false };
        let thread = snapshot.thread.load(Ordering::Relaxed).cast_signed();
        let voids = snapshot.voids.load(Ordering::Relaxed);
        // SAFETY: plain words in shared memory; what is copied is believed only if no other was begun.
        let registers = unsafe { snapshot.registers.0.get().read_volatile() };
        if voids != slot.agent.voids.load(Ordering::Acquire) {
            // The program has become another one since, or tried to.
            self.asked_at = None;
            return false;
        }
        let gone = slot.speculator.activity.load(Ordering::Relaxed) == activity::GONE;
        if gone || !post::is_whole(&snapshot.taken, number) {
            return false;
        }
        self.hand_over(&Handed { thread, registers, voids, snapshot: number }, ahead);
        true
    }

    fn spent(&self) -> u64 {
        let counts = &self.slot.get().speculator.counts;
        let (all, views) =
            (counts.processor_ns.load(Ordering::Relaxed), counts.view_ns.load(Ordering::Relaxed));
        all.saturating_sub(views)
    }

    fn has_begun(&self) -> bool {
        self.slot.get().speculator.fault_synced.load(Ordering::Acquire) == self.epoch
    }

    fn is_full(&self) -> bool {
        let part = &self.slot.get().speculator;
        let idle = part.activity.load(Ordering::Acquire) == activity::IDLE;
        idle && self.has_begun() && part.ended.load(Ordering::Relaxed) == ended::MEMORY
    }

    fn cancel(&self) {
        let part = &self.slot.get().faults;
        part.ahead.store(0, Ordering::Relaxed);
        wake(&part.passed);
    }

    fn nudge(&self) {
        // It may have looked for posts just before this one and gone to sleep after the wake-up.
        if self.epoch != 0 && !self.has_begun() {
            wake(&self.slot.get().agent.bell);
        }
    }

    fn touch(&self, position: u32) -> Option<Touch> {
        let entry = self.slot.get().touches.read(self.epoch, position)?;
        let marked = |bit: u8| entry.marks & bit != 0;
        Some(Touch {
            address: entry.place,
            fetched: marked(mark::PREFETCHED),
            on_swap: marked(mark::ON_SWAP),
        })
    }

    fn passed(&self, positions: u32, fetched: u32, ahead: u32) {
        let part = &self.slot.get().faults;
        part.ahead.store(ahead, Ordering::Relaxed);
        part.passed.store(positions, Ordering::Release);
        wake(&part.passed);
        add(&part.foretold, u64::from(fetched));
    }

    fn met_scan(&self) -> bool {
        self.epoch != 0 && self.slot.get().speculator.fault_scan.load(Ordering::Acquire) == self.epoch
    }
}

/// How far from the base of a thread's local storage its list of robust mutexes is (get_robust_list(2)): in glibc
/// the same for all threads. Told by the thread because of which is watched, whose base is known.
fn lists_at(slot: &Slot) -> Option<u64> {
    let thread = slot.agent.watch_thread.load(Ordering::Relaxed).cast_signed();
    robust_list(thread)?.checked_sub(slot.agent.watch_thread_base.load(Ordering::Relaxed))
}

/// The base of a thread's local storage, which the kernel's records leave out: where its own address stands, as the
/// processor's convention has it (ELF's thread-local storage, variant II). None: it is not to be found.
fn thread_base(process: u32, thread: i32, lists_at: u64) -> Option<u64> {
    let base = robust_list(thread)?.checked_sub(lists_at)?;
    let mut word = [0; 8];
    File::open(format!("/proc/{process}/mem")).ok()?.read_exact_at(&mut word, base).ok()?;
    (u64::from_ne_bytes(word) == base).then_some(base)
}

/// Where the thread's list of robust mutexes is. None: it has none, or it is not ours to know.
fn robust_list(thread: i32) -> Option<u64> {
    let (mut head, mut length) = (0u64, 0u64);
    // SAFETY: the kernel writes two words.
    let told = unsafe { libc::syscall(libc::SYS_get_robust_list, thread, &raw mut head, &raw mut length) };
    (told == 0 && head != 0).then_some(head)
}

/// The registers from the kernel's record, whose order is that of `runahead_faults`.
fn registers(words: &[u64; REGISTERS_COUNT], fs_base: u64) -> FaultRegisters {
    let &[rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, rip, rflags, r8, r9, r10, r11, r12, r13, r14, r15] = words;
    let registers = Registers {
        rax,
        rbx,
        rdx,
        rsi,
        rdi,
        rbp,
        rsp,
        r8,
        r9,
        r10,
        r12,
        r13,
        r14,
        r15,
        rflags,
        rip,
        fs_base,
    };
    FaultRegisters { registers, rcx, r11 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The base, which glibc and musl take for the thread's name, and its number.
    fn here() -> (u64, i32) {
        // SAFETY: neither takes an address.
        unsafe { (libc::pthread_self() as u64, libc::gettid()) }
    }

    #[test]
    fn a_threads_base_is_found_by_another_ones() {
        let (base, thread) = here();
        let Some(list) = robust_list(thread) else { return eprintln!("SKIPPED: no list of robust mutexes") };
        let at = list.checked_sub(base).unwrap();
        let (sent, told) = std::sync::mpsc::channel();
        let (over, ends) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            sent.send(here()).unwrap();
            let _ = ends.recv();
        });
        let (base, thread) = told.recv().unwrap();
        assert_eq!(thread_base(std::process::id(), thread, at), Some(base));
        assert_eq!(thread_base(std::process::id(), thread, at + 8), None);
        assert_eq!(thread_base(std::process::id(), 1 << 30, at), None);
        drop(over);
        other.join().unwrap();
    }
}
