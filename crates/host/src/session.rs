//! The session's memory, from the host's side.

use crate::futex::{wait, wake};
use crate::processes;
use runahead_abi::environment::Cookie;
use runahead_abi::executions::{CLOSED, Executions, state};
use runahead_abi::owner;
use runahead_abi::session::{
    ANALYSIS_CLOSED, ANALYSIS_GIVEN_UP, HEADER_BYTES, Header, MAGIC, SESSION_BYTES, SLOT_BYTES, SLOTS, Slot,
    activity, companions, names_ahead, sites, slot_offset, watching,
};
use runahead_gate::{Gate, Words};
use runahead_policy::regret::is_worth_a_start;
use rustix::fs::{
    MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The session: a memfd, mapped whole. Untouched slots take no memory.
pub struct Session {
    pub descriptor: OwnedFd,
    /// What stands in the header, where anybody may write by now.
    pub cookie: Cookie,
    base: *mut u8,
}

impl Session {
    pub fn create() -> io::Result<Session> {
        // The name shows in the programs' mappings; the speculator knows the session by it.
        let name = "runahead-session";
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // What is not to be executed says so where the kernel knows that (Linux 6.3).
        let descriptor =
            memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL).or_else(|_| memfd_create(name, flags))?;
        fchmod(&descriptor, Mode::RUSR | Mode::WUSR)?;
        ftruncate(&descriptor, SESSION_BYTES as u64)?;
        // Whoever has it open may write to it, but nobody takes a page away from those who have it mapped.
        fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let cookie = random()?;
        let base = map(&descriptor)?;
        let header = base.cast::<Header>();
        // SAFETY: the mapping is as long as a header, and nobody else has it yet.
        unsafe {
            (&raw mut (*header).magic).write(MAGIC);
            (&raw mut (*header).cookie).write(cookie);
        }
        Ok(Session { descriptor, cookie, base })
    }

    /// The session that another process of ours has made with this `cookie`; an error if this is not it.
    pub fn open(descriptor: OwnedFd, cookie: Cookie) -> io::Result<Session> {
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        // What stands in the header tells nothing: by now anybody may have written there.
        if fstat(&descriptor)?.st_size != SESSION_BYTES as i64
            || !fcntl_get_seals(&descriptor)?.contains(SealFlags::SHRINK)
        {
            return Err(wrong());
        }
        Ok(Session { base: map(&descriptor)?, descriptor, cookie })
    }

    /// Nobody serves this session from now on: who comes finds no place, and who asks for something has his
    /// answer.
    pub fn shut(&self) {
        let header = self.header();
        header.owners.iter().for_each(owner::shut);
        // An agent that asks for an analysis, or waits for its turn, sees that nobody answers; one that has
        // asked is answered.
        let request = &header.analysis;
        request.holder.store(std::process::id(), Ordering::Release);
        request.state.store(ANALYSIS_CLOSED, Ordering::Release);
        wake(&request.state);
        wake(&request.holder);
        leave_executions(&header.executions);
    }

    /// Leaves word for all who have a slot that nobody looks at files on their behalf any more.
    pub fn say_that_nobody_comes(&self) {
        for index in 0..SLOTS {
            if owner::process(&self.header().owners[index]).is_some() {
                say_that_nobody_comes(self.slot(index));
            }
        }
    }

    pub fn header(&self) -> &Header {
        // SAFETY: mapped for the life of the session; all of its shared fields are atomics.
        unsafe { &*self.base.cast::<Header>() }
    }

    pub fn slot(&self, index: usize) -> &Slot {
        self.share().slot(index)
    }

    /// Through which whatever is the programs' is opened.
    pub fn gate(&self) -> Gate {
        // SAFETY: mapped for the life of the process, and all of it that is used so is atomic.
        let header: &'static Header = unsafe { &*self.base.cast::<Header>() };
        let Header { releasing, host_files: files, host_places: places, host_nameless: nameless, .. } =
            header;
        Gate::new(Box::leak(Box::new(Words { releasing, files, places, nameless })))
    }

    /// The session for another thread of this process. It stays mapped as long as the process lives.
    pub fn share(&self) -> Shared {
        Shared { base: self.base }
    }

    /// One slot for another thread of this process, which must be done with it before the slot is freed.
    pub fn share_slot(&self, index: usize) -> SharedSlot {
        SharedSlot(self.slot(index))
    }

    /// Ends a child and waits until it is gone, which takes as long as the call of a disk that it is in:
    /// whoever waits for what it holds sees that we live, for some time. (It may be waited for by who serves
    /// that call.)
    pub fn ends(&self, child: &mut Child) {
        const AGAIN: Duration = Duration::from_micros(500);
        const SHOWN: Duration = Duration::from_secs(2);
        let _ = child.kill();
        let began = Instant::now();
        while let Ok(None) = child.try_wait() {
            if began.elapsed() < SHOWN {
                self.header().rounds.fetch_add(1, Ordering::Release);
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// The speculator of a slot is gone, and with it whatever it held.
    pub fn holds_nothing(&self, index: usize) {
        self.slot(index).speculator.held.clear();
        let word = &self.header().holders.speculators[index].0;
        if word.swap(0, Ordering::AcqRel) != 0 {
            wake(word);
        }
    }

    /// Gives a slot's memory back; it reads as zeros afterwards.
    pub fn clear_slot(&self, index: usize) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.descriptor, flags, slot_offset(index) as u64, SLOT_BYTES as u64)?)
    }
}

/// Who has held the mailbox of analyses, gone as it seems, and since when.
pub type Stuck = Option<(u32, Instant)>;

/// Takes the mailbox for good, and leaves alone who is about to execute something.
fn leave_executions(mailbox: &Executions) {
    let asked_by_somebody = mailbox.holder.swap(CLOSED, Ordering::AcqRel) != 0;
    let end = Instant::now() + ASKING_LONGEST;
    while asked_by_somebody && Instant::now() < end {
        let word = mailbox.state.load(Ordering::Acquire);
        match state::of(word) {
            // Taken, and not asked yet; or a thread of ours is about to stop who asks, who waits for that.
            state::EMPTY | state::TRACING => wait(&mailbox.state, word, Duration::from_millis(1)),
            state::ASKED | state::TAKEN => {
                let left = state::to(word, state::LEFT);
                if mailbox.state.compare_exchange(word, left, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    wake(&mailbox.state);
                    return;
                }
            }
            _ => return,
        }
    }
}

/// How long it takes at most from taking the mailbox to asking, unless who has taken it is gone.
const ASKING_LONGEST: Duration = Duration::from_millis(20);

/// Leaves word for the agent of a speculator that is no more: nothing will come, and nobody is to be
/// waited for (a hold lasts up to the expected stall, at each post).
pub(crate) fn say_gone(slot: &Slot) {
    slot.speculator.sync_cost_ns.store(0, Ordering::Relaxed);
    slot.speculator.activity.store(activity::GONE, Ordering::Release);
    wake(&slot.speculator.activity);
}

/// Leaves word for an agent that from now on nobody will look at files on its behalf: it waits for none of
/// these.
pub(crate) fn say_that_nobody_comes(slot: &Slot) {
    say_gone(slot);
    let words = [
        (&slot.faults.watching, watching::GONE),
        (&slot.speculator.names_ahead, names_ahead::GONE),
        (&slot.speculator.companions, companions::NONE),
    ];
    for (word, gone) in words {
        word.store(gone, Ordering::Release);
        wake(word);
    }
}

fn map(descriptor: &OwnedFd) -> io::Result<*mut u8> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping.
    let base = unsafe { mmap(ptr::null_mut(), SESSION_BYTES, protection, MapFlags::SHARED, descriptor, 0) }?;
    Ok(base.cast())
}

/// What tells this session from all others.
fn random() -> io::Result<Cookie> {
    let mut bytes = [0u8; size_of::<Cookie>()];
    // SAFETY: as many bytes of ours are written.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    // So few come whole, or not at all.
    if got != bytes.len() as isize {
        return Err(io::Error::last_os_error());
    }
    let [first, second] = [0, 8].map(|at| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    });
    // Zeros are none.
    Ok([first | 1, second])
}

/// A slot, from another thread.
#[derive(Clone, Copy)]
pub struct SharedSlot(*const Slot);

// SAFETY: the mapping is never undone, and all that is written through it is atomic.
unsafe impl Send for SharedSlot {}

impl SharedSlot {
    pub fn get(&self) -> &Slot {
        // SAFETY: mapped for the life of the process.
        unsafe { &*self.0 }
    }
}

/// The session's memory, from another thread.
#[derive(Clone, Copy)]
pub struct Shared {
    base: *mut u8,
}

// SAFETY: the mapping is never undone, and all that is reached through it is atomic.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    pub fn header(&self) -> &'static Header {
        // SAFETY: mapped for the life of the process.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// Whether somebody has to come: a process asks for code to be looked at, for its page faults to be watched,
    /// or for a speculator, or the run has waited for so long that it is worth a start.
    pub fn is_wanted(&self) -> bool {
        self.asks_of_code() || self.slots_want(|_| true)
    }

    /// Whether any of the slots does whose processes are such.
    fn slots_want(&self, are: impl Fn(u32) -> bool) -> bool {
        let header = self.header();
        let is_cold = header.is_cold.load(Ordering::Relaxed) != 0;
        let is_worth = is_worth_a_start(header.waited_ns.load(Ordering::Relaxed), is_cold);
        self.slots_of(are).any(|Slot { agent, faults, .. }| {
            let words = [&agent.watch_wanted, &agent.speculator_wanted, &faults.speculator_wanted];
            is_worth || words.iter().any(|word| word.load(Ordering::Relaxed) != 0)
        })
    }

    /// Whether anybody has a slot who is there, and may yet want something.
    pub fn has_anybody(&self) -> bool {
        self.slots_of(processes::may_ask).next().is_some()
    }

    /// The slots whose processes are such; looking at others would fill them with memory.
    fn slots_of(&self, are: impl Fn(u32) -> bool) -> impl Iterator<Item = &'static Slot> {
        let header = self.header();
        let is_such = move |&index: &usize| owner::process(&header.owners[index]).is_some_and(&are);
        (0..SLOTS).filter(is_such).map(|index| self.slot(index))
    }

    fn asks_of_code(&self) -> bool {
        let header = self.header();
        header.analysis.state.load(Ordering::Acquire) == 1 || header.checks.asked.load(Ordering::Acquire) != 0
    }

    /// Frees the mailbox of analyses where who has asked does not wait any more: nobody was there for a while
    /// (stopped, say), or he was killed, before he could ask even. `stuck`: what was found at the latest call.
    pub fn free_analysis(&self, stuck: &Cell<Stuck>) {
        /// Who seems to be gone may be in another pid namespace, and about to go on.
        const LONGEST: Duration = Duration::from_millis(200);
        let request = &self.header().analysis;
        let holder = request.holder.load(Ordering::Acquire);
        let is_left = match request.state.load(Ordering::Acquire) {
            ANALYSIS_GIVEN_UP => true,
            0 | 2 if holder != 0 && !processes::is_there(holder) => {
                let since = stuck.get().filter(|&(found, _)| found == holder);
                let (_, since) = since.unwrap_or_else(|| (holder, Instant::now()));
                stuck.set(Some((holder, since)));
                since.elapsed() >= LONGEST
            }
            _ => {
                stuck.set(None);
                false
            }
        };
        // Else somebody has it by now. Until it is free nobody takes it.
        let takes = |to| request.holder.compare_exchange(holder, to, Ordering::AcqRel, Ordering::Relaxed);
        if is_left && takes(std::process::id()).is_ok() {
            request.state.store(0, Ordering::Release);
            request.holder.store(0, Ordering::Release);
            wake(&request.holder);
        }
    }

    /// Tells agents that start whether the site file is there.
    pub fn tell_of_sites(&self, is_there: bool) {
        let word = &self.header().sites;
        word.store(if is_there { sites::THERE } else { sites::NONE }, Ordering::Release);
        wake(word);
    }

    /// Whether one of those who need somebody may be there yet: who has claimed a slot and rung nobody may
    /// have ended since.
    pub fn is_still_wanted(&self) -> bool {
        self.asks_of_code() || self.slots_want(processes::is_there)
    }

    /// The slots that somebody owns.
    pub fn owned_slots(&self) -> impl Iterator<Item = &'static Slot> {
        self.slots_of(|_| true)
    }

    /// The slot with this number, below [`SLOTS`].
    fn slot(&self, index: usize) -> &'static Slot {
        assert!(index < SLOTS);
        // SAFETY: inside the mapping, which is never undone.
        unsafe { &*self.base.add(slot_offset(index)).cast::<Slot>() }
    }
}

const _: () = assert!(HEADER_BYTES.is_multiple_of(4096) && SLOT_BYTES.is_multiple_of(4096));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_slot_by_its_number_alone_is_nobody() {
        let session = Session::create().expect("a session");
        let owner = &session.header().owners[7];
        assert!(!session.share().has_anybody());
        owner.store(1, Ordering::Release);
        assert!(!session.share().has_anybody(), "the machine's first process is none of the run's");
        owner.store(i32::MAX as u32, Ordering::Release);
        assert!(!session.share().has_anybody());
        owner.store(std::process::id(), Ordering::Release);
        assert!(session.share().has_anybody(), "who has it mapped");
    }
}
