//! Giving back: before the program closes, removes, renames or unmounts something, nobody of ours holds it.
//!
//! Three ways, all in `runahead_abi::release`.
//!
//! - *Files, names, file systems* ([`call`]): all of the session's speculators and the host's threads are asked, as any of them
//!   may have opened what this program removes. While nobody holds anything that takes no system call but a look at
//!   the clock. The call is made here, since nobody may open anything before it has been made.
//! - *Mappings*: whoever watches page faults opens files that have no name any more for single questions only; one that
//!   is under way is waited for.
//! - *Descriptors* ([`closes`]): the program's own speculator is asked, and only if it says that it holds one of the
//!   numbers. The program's own instruction closes them: from the count on they are not looked at any more.
//!
//! Waiting is bounded: whoever does not come forward in time is ended, and where that cannot be done either,
//! taken for gone, which costs exactness and no more.

use crate::arch::{Answer, Frame};
use crate::executions::Next;
use crate::reads::ring_speculator;
use crate::state::Fixed;
use crate::{attach, executions, opened, substitute, unchecked};
use core::sync::atomic::{AtomicU32, Ordering, fence};
use runahead_abi::environment::flags;
use runahead_abi::release::{BELIEVED_NS, Holding, NUMBERS, UNASKED_LONGEST_NS, What};
use runahead_abi::session::{Header, Slot, activity, retire};
use runahead_kernel::arch::syscall;
use runahead_kernel::process::{futex_wait, futex_wake, idle_ns, monotonic_ns, process_id};
use runahead_kernel::uapi::general as n;

/// How long a call waits for those who hold something before they are ended: some look-ups of a slow network,
/// or a speculator, last in every queue, getting a busy processor (0.3 s were seen). Twice that it keeps
/// others from opening anything, if its thread is stopped or gone.
const LONGEST_NS: u64 = 1_000_000_000;

/// How long in all, while the host goes round: a call of a thread of its own may wait for a disk that is busy
/// for seconds, and so may one that is being ended.
const ALIVE_LONGEST_NS: u64 = 10_000_000_000;

/// How often sleepers are woken: one may look, and fall asleep behind our call.
const AGAIN_NS: u64 = 1_000_000;

/// The calls that give something back, and the one by which a program serves its own page faults.
pub const fn wanted(number: u16) -> bool {
    let number = number as u32;
    gives_back(number).is_some()
        || matches!(
            number,
            n::__NR_close
                | n::__NR_close_range
                | n::__NR_munmap
                | n::__NR_dup2
                | n::__NR_dup3
                | n::__NR_execve
                | n::__NR_execveat
                | n::__NR_userfaultfd
        )
}

/// What a call gives back that others may hold.
const fn gives_back(number: u32) -> Option<What> {
    match number {
        n::__NR_unlink
        | n::__NR_unlinkat
        | n::__NR_rmdir
        | n::__NR_rename
        | n::__NR_renameat
        | n::__NR_renameat2 => Some(What::Files),
        n::__NR_umount2 | n::__NR_pivot_root => Some(What::All),
        _ => None,
    }
}

/// Makes the call, or lets the program make it. None: it is not one of these.
pub fn call(frame: &Frame, number: u32, a: [usize; 6]) -> Option<Answer> {
    if let Some(what) = gives_back(number) {
        return Some(give_back(frame, what, number, a));
    }
    match number {
        n::__NR_close => closes(frame.state(), a[0] as u32 as usize, a[0] as u32 as usize),
        n::__NR_close_range => closes(frame.state(), a[0] as u32 as usize, a[1] as u32 as usize),
        // Where nobody watches its page faults, none of its munmaps comes here but of what is ours.
        n::__NR_munmap if frame.state().process().watched.load(Ordering::Relaxed) != 0 => {
            return Some(give_back(frame, What::Mapping, number, a));
        }
        // What has the second number until then is closed.
        n::__NR_dup2 | n::__NR_dup3 => closes(frame.state(), a[1] as u32 as usize, a[1] as u32 as usize),
        n::__NR_execve | n::__NR_execveat => {
            is_replaced(frame.state());
            unchecked::executes(frame.state());
            // Before it is announced: whoever is traced makes no call but the execution any more.
            let mut answer = substitute::execution(frame, number, a);
            let me = process_id() as u32;
            let id = if frame.state().has(flags::LASTING) { None } else { attach::id_for_the_host() };
            let next = executions::announce(frame.state(), number, a);
            // It may be traced by now: no call but those that lead out (`runahead_insert`), of which the
            // clocks and futexes are.
            if !matches!(next, Next::ByItself | Next::PutIn) {
                lets_all_go(frame.state());
                if let Some(id) = id {
                    frame.state().header().unseen.note(id);
                }
            }
            frame.state().header().latest.executes(me, idle_ns());
            if next == Next::Narrow {
                answer = substitute::narrow(frame, number, a, answer);
            }
            if let Some(answer) = answer {
                return Some(answer);
            }
        }
        // Its page faults are its own to see from now on.
        n::__NR_userfaultfd => attach::retire(frame.state()),
        _ => return None,
    }
    Some(Answer::plain(frame))
}

fn give_back(frame: &Frame, what: What, number: u32, a: [usize; 6]) -> Answer {
    let (state, header) = (frame.state(), frame.state().header());
    Wait::begin(state, what, Patience::insists(header)).for_all(what);
    if frame.is_ahead() {
        header.releasing.ends(what);
        return Answer::plain(frame);
    }
    // SAFETY: the program's own call with the program's own arguments. It is no cancellation point.
    let returned = unsafe { syscall(number as usize, a) };
    header.releasing.ends(what);
    Answer::done(frame, returned as usize)
}

/// The program is about to notice who opens files for reading: by a lease that is broken so, and which nobody gets
/// while another has the file open, or as it watches. So nothing of the run's is open when this returns, and
/// nothing will be.
pub fn notices(state: &Fixed) {
    state.header().releasing.begins_to_notice();
    all_is_let_go(state);
}

/// The same of who watches, who is told of code as well.
pub fn watches(state: &Fixed) {
    state.header().releasing.begins_to_watch();
    all_is_let_go(state);
}

fn all_is_let_go(state: &Fixed) {
    let header = state.header();
    let releasing = &header.releasing;
    // Those who hold something let go while such a call is under way.
    Wait::begin(state, What::All, Patience::insists(header)).for_all(What::All);
    releasing.ends(What::All);
    // A host without a command is not to find just now that nothing happens.
    attach::ring(header);
}

/// A program is about to be executed in which there will be no agent, or has begun without: nobody will ask,
/// whatever it gives back. So all that is held now is let go, and neither what earlier runs have opened nor
/// what was guessed from this one is opened any more: that would go on meanwhile, unlike speculation, which
/// waits for the program.
#[inline(never)]
pub fn lets_all_go(state: &Fixed) {
    let header = state.header();
    opened::ends_replay(state);
    header.releasing.begins_unasked();
    let mut wait = Wait::begin(state, What::All, Patience::within(header, UNASKED_LONGEST_NS));
    // Our own speculator was asked before, and to look whose the slot is takes a call that would end the
    // tracing, where there is one.
    wait.wakes_ours = false;
    wait.for_all(What::All);
    header.releasing.ends(What::All);
}

/// How long somebody is waited for.
struct Patience<'a> {
    header: &'a Header,
    /// Monotonic ns.
    end: u64,
    /// Whoever is late is ended, and that is waited for until then (monotonic ns; 0: nobody is), while the
    /// host goes round.
    last: u64,
    rounds: u32,
    /// The slot of the speculator that is waited for, if it is one.
    late: Option<u32>,
    /// Somebody was late: no other one is given so much time again.
    is_spent: bool,
}

impl<'a> Patience<'a> {
    /// For `longest` ns.
    fn within(header: &'a Header, longest: u64) -> Patience<'a> {
        Patience {
            header,
            end: monotonic_ns().saturating_add(longest),
            last: 0,
            rounds: 0,
            late: None,
            is_spent: false,
        }
    }

    /// For [`LONGEST_NS`], and longer while the host lives.
    fn insists(header: &'a Header) -> Patience<'a> {
        let (now, rounds) = (monotonic_ns(), header.rounds.load(Ordering::Acquire));
        let (end, last) = (now.saturating_add(LONGEST_NS), now.saturating_add(ALIVE_LONGEST_NS));
        Patience { header, end, last, rounds, late: None, is_spent: false }
    }

    /// Until when the call is to be believed in, monotonic ns: past the next time that it is looked at.
    fn believed(&self) -> u64 {
        self.end.saturating_add(BELIEVED_NS)
    }

    /// The host is to end the speculator that is late.
    fn has_it_ended(&self) {
        if let Some(slot) = self.late {
            self.header.overdue.store(slot.saturating_add(1), Ordering::Release);
        }
        attach::ring(self.header);
    }

    /// Whether nobody is waited for any longer. Where somebody is late, the host is told to end who can be
    /// ended.
    fn is_over(&mut self) -> bool {
        let now = monotonic_ns();
        if now < self.end {
            return false;
        }
        if self.last == 0 {
            return true;
        }
        self.is_spent = true;
        self.has_it_ended();
        let rounds = self.header.rounds.load(Ordering::Acquire);
        let lives = core::mem::replace(&mut self.rounds, rounds) != rounds;
        if lives && now < self.last {
            self.end = now.saturating_add(LONGEST_NS).min(self.last);
            return false;
        }
        self.header.kept_open.fetch_add(1, Ordering::Relaxed);
        true
    }
}

/// A call that waits until nobody holds anything.
struct Wait<'a> {
    state: &'a Fixed,
    header: &'a Header,
    patience: Patience<'a>,
    /// The host has been told.
    rung: bool,
    /// The process's own speculator is woken each time, wherever it sleeps.
    wakes_ours: bool,
}

impl<'a> Wait<'a> {
    /// From now on nobody may take hold of such, until that is ended.
    fn begin(state: &'a Fixed, what: What, patience: Patience<'a>) -> Wait<'a> {
        let header = state.header();
        header.releasing.begins(what, patience.believed());
        Wait { state, header, patience, rung: false, wakes_ours: true }
    }

    fn for_all(&mut self, what: What) {
        let header = self.header;
        self.for_nothing(&header.host_nameless);
        if what != What::Mapping {
            if header.holders.is_any() {
                for (slot, holding) in header.holders.speculators.iter().enumerate() {
                    self.patience.late = Some(slot as u32);
                    if self.patience.is_spent && holding.is_any() {
                        self.patience.has_it_ended();
                    }
                    self.for_nothing(holding);
                }
                self.patience.late = None;
            }
            self.for_nothing(&header.host_files);
        }
        if what == What::All {
            self.for_nothing(&header.host_places);
        }
    }

    fn for_nothing(&mut self, holding: &Holding) {
        loop {
            let seen = holding.0.load(Ordering::Acquire);
            if seen == 0 {
                return;
            }
            if self.patience.is_over() {
                if self.patience.last != 0 {
                    // Nobody waits for it again. (Where there is no host any more there are no speculators
                    // either.)
                    let _ = holding.0.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
                }
                return;
            }
            self.header.releasing.lasts(self.patience.believed());
            if !self.rung {
                self.rung = true;
                attach::ring(self.header);
            }
            if self.wakes_ours
                && let Some(slot) = attach::own_slot(self.state)
            {
                wake(slot);
            }
            futex_wait(&holding.0, seen, Some(AGAIN_NS));
        }
    }
}

/// Wakes the speculator, wherever it sleeps.
fn wake(slot: &Slot) {
    ring_speculator(slot);
    futex_wake(&slot.faults.passed);
}

/// The slot of a process that has, or may have, a speculator.
fn speculated(state: &Fixed) -> Option<&'static Slot> {
    let wanted = |word: &AtomicU32| word.load(Ordering::Relaxed) != 0;
    let slot = state.slot()?;
    (wanted(&slot.agent.speculator_wanted) || wanted(&slot.faults.speculator_wanted)).then_some(slot)
}

/// The program is about to close its descriptors from `first` to `last`.
fn closes(state: &Fixed, first: usize, last: usize) {
    if let Some(slot) = speculated(state)
        && slot.agent.closings.closes(&slot.speculator.held, first, last)
        && attach::own_slot(state).is_some()
    {
        have_closed(state, slot, first, last.min(NUMBERS - 1));
    }
}

/// Waits until the speculator holds none of these.
#[inline(never)]
fn have_closed(state: &Fixed, slot: &Slot, first: usize, last: usize) {
    let (agent, speculator) = (&slot.agent, &slot.speculator);
    (first..=last).filter(|&number| speculator.held.has(number)).for_each(|number| agent.closing.add(number));
    agent.closing_requests.fetch_add(1, Ordering::AcqRel);
    let is_held = |_: u32| speculator.held.has_any(first, last);
    let header = state.header();
    if !comes_forward(slot, &speculator.let_go, Patience::within(header, LONGEST_NS), is_held) {
        // It is ended, and there will be no other.
        agent.retire.fetch_max(retire::BEARS_NOBODY, Ordering::SeqCst);
        let late = Some(agent.number.load(Ordering::Relaxed));
        let patience = Patience { late, ..Patience::insists(header) };
        patience.has_it_ended();
        if !comes_forward(slot, &speculator.let_go, patience, is_held) {
            // That is not to be waited for again.
            state.stand_down();
        }
    }
    (first..=last).for_each(|number| agent.closing.remove(number));
}

/// The program is about to become another one: what was posted so far is void, and its speculator lets go, or
/// is ended. If the call fails, speculation goes on at the next stall, if there is a speculator.
fn is_replaced(state: &Fixed) {
    let Some(slot) = speculated(state) else { return };
    if attach::own_slot(state).is_none() {
        return;
    }
    slot.agent.voids.fetch_add(1, Ordering::AcqRel);
    fence(Ordering::SeqCst);
    let number = slot.agent.number.load(Ordering::Relaxed) as usize;
    let header = state.header();
    let Some(Holding(word)) = header.holders.speculators.get(number) else { return };
    let is_held = |holding| holding != 0;
    if !comes_forward(slot, word, Patience::within(header, LONGEST_NS), is_held) {
        let patience = Patience { late: Some(number as u32), ..Patience::within(header, LONGEST_NS) };
        // The host ends those alone that keep somebody waiting.
        header.releasing.begins(What::Files, patience.believed());
        patience.has_it_ended();
        comes_forward(slot, word, patience, is_held);
        header.releasing.ends(What::Files);
    }
}

/// Waits while something is held; `is_held` is given what is found in `word`, on which the speculator wakes us. False if it does
/// not let go in time.
fn comes_forward(
    slot: &Slot,
    word: &AtomicU32,
    mut patience: Patience,
    is_held: impl Fn(u32) -> bool,
) -> bool {
    loop {
        let seen = word.load(Ordering::Acquire);
        let gone = slot.speculator.activity.load(Ordering::Acquire) == activity::GONE;
        if gone || !is_held(seen) {
            return true;
        }
        if patience.is_over() {
            return false;
        }
        wake(slot);
        futex_wait(word, seen, Some(AGAIN_NS));
    }
}
