//! Checks: a process whose code is not all analysed yet runs on, and the host looks at its code meanwhile.
//!
//! To analyse a large file takes longer than many a program lives. So an agent that finds one at its start does not
//! wait: it has the sites rewritten of what is known, asks for a check, and until that is answered its stubs pass nearly
//! everything by without a system call of the agent's. The host goes through the process's mappings. If all code
//! there makes no system calls but at rewritten sites, the verdict is [`verdict::CLEAN`], and the agent begins; else it
//! stays out of the program's way, for what is not rewritten at the start cannot be rewritten later: other threads
//! may be executing it.
//!
//! What the process maps meanwhile it counts ([`Check::mapped`]) after it is mapped, and an answer says which count it
//! is for. An agent that begins says so first and then looks at the count once more, so that either it sees a new
//! mapping, or whoever has mapped sees that the check is over.
//!
//! Nothing here is trusted: an answer of garbage is none, and what it concerns is the process's own memory alone.

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

/// One process's check.
#[repr(C, align(64))]
#[derive(Debug)]
#[cfg_attr(any(loom, test), derive(Default))]
pub struct Check {
    /// Process id, as the host knows it, of who asks; or what [`owner`] says.
    pub process: AtomicU32,
    /// The same once all below is filled in.
    ready: AtomicU32,
    /// Mappings of code that the process has made since it asked.
    pub mapped: AtomicU32,
    /// 0: no answer yet; else `mapped` as it was when all of it was looked at, and one.
    pub answered: AtomicU32,
    /// 0, or one of [`verdict`]; written before `answered`. The agent's entry code looks at nothing else.
    pub verdict: AtomicU32,
    _gap: u32,
    /// The agent's own image: start and end.
    pub image: [AtomicU64; 2],
    /// Where mappings start whose sites are rewritten; 0: none.
    pub rewritten: [AtomicU64; REWRITTEN],
}

impl Check {
    /// Takes a free one for `process`, all zeros. Async-signal-safe, as all here.
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

    /// Gives up what `process` has; nothing if it is somebody else's by now.
    pub fn free(&self, process: u32) {
        let (mine, closing) = (process, owner::CLOSING);
        if self.process.compare_exchange(mine, closing, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return;
        }
        for word in [&self.ready, &self.mapped, &self.answered, &self.verdict] {
            word.store(0, Ordering::Relaxed);
        }
        self.rewritten.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        owner::release(&self.process);
    }

    /// The verdict on all that is mapped now, if there is one.
    pub fn answer(&self) -> Option<u32> {
        let answered = self.answered.load(Ordering::Acquire);
        (answered != 0 && answered == self.mapped.load(Ordering::Acquire).wrapping_add(1))
            .then(|| self.verdict.load(Ordering::Relaxed))
    }

    /// The host's answer for the mappings up to number `mapped`.
    pub fn say(&self, verdict: u32, mapped: u32) {
        self.verdict.store(verdict, Ordering::Release);
        self.answered.store(mapped.wrapping_add(1), Ordering::Release);
    }
}

/// The checks of a session, pages by themselves: most sessions never touch them.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Checks {
    /// Checks that were ever asked for: the host looks when this changes.
    pub asked: AtomicU32,
    /// 1: the host has a file open for a check. A futex for a process that ends meanwhile.
    pub held: AtomicU32,
    /// Not 0: the main process ends, and nothing is to be opened any more but for who asks.
    pub over: AtomicU32,
    pub each: [Check; CHECKS],
}

/// What an agent knows of its own process, in memory of the process.
#[repr(C)]
#[derive(Debug)]
#[cfg_attr(any(loom, test), derive(Default))]
pub struct Unchecked(AtomicU32);

/// Some code is not analysed: an answer is waited for.
const WAITS: u32 = 1;
/// One thread has an answer and looks whether it still holds.
const DECIDES: u32 = 2;

impl Unchecked {
    /// The process has asked, or is to ask again.
    pub fn begins(&self) {
        self.0.store(WAITS, Ordering::Release);
    }

    /// Whether the process waits for an answer. Async-signal-safe, as all here.
    pub fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Whether there is a verdict on all that is mapped. It is given to one caller, once, and the process is checked then.
    pub fn decide(&self, check: &Check) -> Option<u32> {
        check.answer()?;
        self.0.compare_exchange(WAITS, DECIDES, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        // Who has mapped something since finds that this is being decided, or this finds the mapping.
        fence(Ordering::SeqCst);
        let verdict = check.answer();
        self.0.store(if verdict.is_some() { 0 } else { WAITS }, Ordering::Release);
        verdict
    }

    /// The process has mapped code. True if the check will look at it; else it is the caller's to look at.
    pub fn has_mapped(&self, check: &Check) -> bool {
        check.mapped.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Acquire) == WAITS
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
        unchecked.begins();
        assert_eq!(unchecked.decide(&check), None);
        check.say(verdict::CLEAN, 0);
        assert!(unchecked.has_mapped(&check), "the check goes on");
        assert_eq!(unchecked.decide(&check), None, "the answer is too old");
        check.say(verdict::CLEAN, 1);
        assert_eq!(unchecked.decide(&check), Some(verdict::CLEAN));
        assert_eq!((unchecked.is_so(), unchecked.decide(&check)), (false, None), "once");
        assert!(!unchecked.has_mapped(&check));
        assert_eq!(check.asker(), None, "it is not filled in yet");
        check.asks();
        assert_eq!(check.asker(), Some(7));
        check.free(8);
        assert!(!check.claim(9));
        check.free(7);
        assert!(check.claim(9));
        assert_eq!((check.asker(), check.answer()), (None, None), "the next one finds zeros");
    }
}
