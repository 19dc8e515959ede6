//! Checks: a process whose code is not all analysed yet runs on, and the host looks at its code meanwhile.
//!
//! To analyse a large file takes longer than many a program lives. So an agent that finds one at its start
//! does not wait: it has the sites rewritten of what is known, asks for a check, and until that is answered
//! its stubs pass nearly everything by without a system call of the agent's. The host goes through the
//! process's mappings. If all code there makes no system calls but at rewritten sites, the verdict is
//! [`verdict::CLEAN`], and the agent begins; else it stays out of the program's way, for what is not rewritten
//! at the start cannot be rewritten later: other threads may be executing it.
//!
//! One word holds the answer: whose *turn* it is for, and the verdict. A turn ends when the process maps code
//! (after it is mapped), and when the check is given up. The host answers by a compare-and-swap from "no
//! answer yet" of the turn in which it has looked, so an answer that comes too late, or that is about whoever
//! had the check before, is none. What was mapped and is gone again may have run, and nobody has looked at it:
//! so the process tells how much code there has to be. An agent that begins says so first and then looks at
//! the word once more, so that either it sees a new mapping, or whoever has mapped sees that the check is
//! over.
//!
//! Nothing here is trusted: an answer of garbage is none, and what it concerns is the process's own memory
//! alone.

use crate::owner;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Processes of a session that may be checked at a time; more wait for the analysis.
pub const CHECKS: usize = 64;

/// Mappings with rewritten sites that a process may have to be checked.
pub const REWRITTEN: usize = 27;

/// What the host has found.
pub mod verdict {
    /// No code makes a system call that cannot be seen. (Letters, so that garbage is hardly it.)
    pub const CLEAN: u32 = u32::from_le_bytes(*b"seen");
    /// Some code makes, or may make, such calls; or could not be looked at.
    pub const UNSEEN: u32 = u32::from_le_bytes(*b"hide");
}

/// One more turn, in [`Check::answer`].
pub const TURN: u64 = 1 << 32;

/// [`Check::code`]: the host takes what is there when it looks first.
pub const CODE_UNKNOWN: u64 = 1 << 63;

/// One process's check.
#[repr(C, align(64))]
#[derive(Debug)]
#[cfg_attr(any(loom, test), derive(Default))]
pub struct Check {
    /// Process id, as the host knows it, of who asks; or what [`owner`] says.
    pub process: AtomicU32,
    /// The same once all below is filled in.
    pub ready: AtomicU32,
    /// The turn, and below it 0, no answer yet, or one of [`verdict`]. The agent's entry code looks at it,
    /// and ends turns ([`Unchecked::has_mapped`], [`Check::free`]).
    pub answer: AtomicU64,
    /// Bytes of private mappings of files' code but the agent's that the process has to have, or
    /// [`CODE_UNKNOWN`] and those since it asked.
    pub code: AtomicU64,
    /// The agent's own image: start and end.
    pub image: [AtomicU64; 2],
    /// Where mappings start whose sites are rewritten; 0: none.
    pub rewritten: [AtomicU64; REWRITTEN],
}

impl Check {
    /// Takes a free one for `process`, which fills it in. Async-signal-safe, as all here.
    pub fn claim(&self, process: u32) -> bool {
        owner::claim(&self.process, process)
    }

    /// The check is asked for: whoever has claimed it has filled it in.
    pub fn asks(&self) {
        self.ready.store(self.process.load(Ordering::Relaxed), Ordering::Release);
    }

    /// Who has asked, if somebody has.
    pub fn asker(&self) -> Option<u32> {
        let process = owner::process(&self.process)?;
        (self.ready.load(Ordering::Acquire) == process).then_some(process)
    }

    /// Gives up what `process` has; nothing if it is somebody else's by now. (The agent's entry code does the
    /// same.)
    pub fn free(&self, process: u32) {
        let (mine, closing) = (process, owner::CLOSING);
        if self.process.compare_exchange(mine, closing, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return;
        }
        self.ready.store(0, Ordering::Relaxed);
        self.ends_turn();
        owner::release(&self.process);
    }

    /// The present turn.
    pub fn turn(&self) -> u32 {
        (self.answer.load(Ordering::Acquire) >> 32) as u32
    }

    /// What was found in `turn`.
    pub fn verdict(&self, turn: u32) -> Option<u32> {
        let answer = self.answer.load(Ordering::Acquire);
        ((answer >> 32) as u32 == turn && answer as u32 != 0).then_some(answer as u32)
    }

    /// The host's answer for `turn`. False: that is over.
    pub fn say(&self, verdict: u32, turn: u32) -> bool {
        let (none, answer) = (u64::from(turn) << 32, u64::from(turn) << 32 | u64::from(verdict));
        self.answer.compare_exchange(none, answer, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn ends_turn(&self) {
        let next = |answer: u64| Some((answer | (TURN - 1)).wrapping_add(1));
        let _ = self.answer.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
    }
}

/// The checks of a session, pages by themselves: most sessions never touch them.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Checks {
    /// Checks that were ever asked for: the host looks when this changes.
    pub asked: AtomicU32,
    /// Not 0: the host has a file open for a check of that process. A futex for one that ends meanwhile.
    pub held: AtomicU32,
    /// Not 0: the main process ends, or somebody watches files, and nothing is to be opened any more but for
    /// who asks.
    pub over: AtomicU32,
    pub each: [Check; CHECKS],
}

/// What an agent knows of its own process, in memory of the process.
#[repr(C)]
#[derive(Debug)]
#[cfg_attr(any(loom, test), derive(Default))]
pub struct Unchecked {
    pub state: AtomicU32,
    _gap: u32,
    /// What [`Check::answer`] is where all is known that is mapped. 0: that is not to be found out in this
    /// process.
    pub expected: AtomicU64,
}

/// Some code is not analysed: an answer is waited for.
pub const WAITS: u32 = 1;
/// One thread has an answer and looks whether it still holds.
const DECIDES: u32 = 2;

impl Unchecked {
    /// The process has claimed a check, and asks or is to ask.
    pub fn begins(&self, check: &Check) {
        self.expected.store(u64::from(check.turn()) << 32 | u64::from(verdict::CLEAN), Ordering::Relaxed);
        self.state.swap(WAITS, Ordering::SeqCst);
    }

    /// It does not after all.
    pub fn gives_up(&self) {
        self.state.store(0, Ordering::SeqCst);
    }

    /// Whether the process waits for an answer. Async-signal-safe, as all here.
    pub fn is_so(&self) -> bool {
        self.state.load(Ordering::SeqCst) != 0
    }

    fn verdict(&self, check: &Check) -> Option<u32> {
        check.verdict((self.expected.load(Ordering::Acquire) >> 32) as u32)
    }

    /// Whether there is a verdict on all that is mapped. It is given to one caller, once, and the process is
    /// checked then.
    pub fn decide(&self, check: &Check) -> Option<u32> {
        self.verdict(check)?;
        self.state.compare_exchange(WAITS, DECIDES, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        // Who has mapped something since finds that this is being decided, or this finds the mapping.
        fence(Ordering::SeqCst);
        let verdict = self.verdict(check);
        let state = if verdict.is_some() { 0 } else { WAITS };
        // Whoever has found that this is being decided may have begun anew.
        let is_ours =
            self.state.compare_exchange(DECIDES, state, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        verdict.filter(|_| is_ours)
    }

    /// The process has mapped code of so many bytes. True if the check will look at it; else it is the
    /// caller's to look at. (For the models; the entry code does the same.)
    pub fn has_mapped(&self, check: &Check, bytes: u64) -> bool {
        check.code.fetch_add(bytes, Ordering::AcqRel);
        check.ends_turn();
        self.expected.fetch_add(TURN, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        self.state.load(Ordering::Acquire) == WAITS
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Check>() == 256);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_for_what_was_mapped_when_it_was_looked_at() {
        let (check, unchecked) = (Check::default(), Unchecked::default());
        assert!(check.claim(7) && !check.claim(8) && !unchecked.is_so());
        unchecked.begins(&check);
        let first = check.turn();
        assert_eq!(unchecked.decide(&check), None);
        check.say(verdict::CLEAN, first);
        assert!(unchecked.has_mapped(&check, 4096), "the check goes on");
        assert_eq!(unchecked.decide(&check), None, "the answer is too old");
        check.say(verdict::CLEAN, first);
        assert_eq!((unchecked.decide(&check), check.code.load(Ordering::Relaxed)), (None, 4096));
        check.say(verdict::CLEAN, check.turn());
        assert_eq!(unchecked.decide(&check), Some(verdict::CLEAN));
        assert_eq!((unchecked.is_so(), unchecked.decide(&check)), (false, None), "once");
        assert!(!unchecked.has_mapped(&check, 0));
        assert_eq!(check.asker(), None, "it is not filled in yet");
        check.asks();
        assert_eq!(check.asker(), Some(7));
        check.free(8);
        assert!(!check.claim(9));
        check.free(7);
        assert!(check.claim(9) && check.asker().is_none());
    }

    #[test]
    fn an_answer_is_for_whoever_asked_and_nobody_after() {
        let (check, [first, next]) = (Check::default(), [Unchecked::default(), Unchecked::default()]);
        assert!(check.claim(7));
        first.begins(&check);
        check.asks();
        let turn = check.turn();
        check.free(7);
        assert!(check.claim(9));
        next.begins(&check);
        check.asks();
        check.say(verdict::CLEAN, turn);
        assert_eq!(next.decide(&check), None, "that was about process 7");
        check.say(verdict::CLEAN, check.turn());
        assert_eq!((first.decide(&check), next.decide(&check)), (None, Some(verdict::CLEAN)));
    }
}
