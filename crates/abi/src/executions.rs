//! Programs that are about to be executed, of which the loader will not bring the agent in: by whom, and the
//! answer.
//!
//! The agent of the process that executes asks; the host traces the process as far as the new program's first
//! instruction and puts the agent in there (`runahead_insert`). One mailbox for a run: whoever finds it taken
//! waits for its turn for a moment, and else executes plainly.
//!
//! So that programs which the loader serves ask once for each file and not each time, the host notes what it
//! has found out of files. What stands there may be outdated or garbage: then a program runs plainly, or is
//! looked at in vain.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Files that are remembered.
pub const FILES: usize = 440;

/// No process's id: the host has left, and has the mailbox for good.
pub const CLOSED: u32 = u32::MAX;

/// Which process has executed something last, and how long it had been off its processors by then. So the program
/// that comes next can tell how long its own start has waited; of several at once the last one can, and may be told what is
/// as wrong as their processor times differ.
#[repr(C)]
#[derive(Debug)]
pub struct Latest {
    /// Its process id; 0: nobody's.
    process: AtomicU32,
    /// Monotonic time less the processor time that the process has taken, ns.
    idle_ns: AtomicU64,
}

impl Latest {
    /// The calling process, `process`, is about to execute something. Async-signal-safe.
    pub fn executes(&self, process: u32, idle_ns: u64) {
        self.process.store(0, Ordering::Relaxed);
        self.idle_ns.store(idle_ns, Ordering::Release);
        self.process.store(process, Ordering::Release);
    }

    /// How long this process has been off its processors since it was executed, ns, now that it is `idle_ns`; asked
    /// once. None: another one has executed something since, or it was asked. Async-signal-safe.
    pub fn waited(&self, process: u32, idle_ns: u64) -> Option<u64> {
        let before = || self.process.load(Ordering::Acquire) == process;
        let since = before().then(|| self.idle_ns.load(Ordering::Acquire)).filter(|_| before())?;
        let _ = self.process.compare_exchange(process, 0, Ordering::Relaxed, Ordering::Relaxed);
        Some(idle_ns.saturating_sub(since))
    }
}

/// One page of the session's header.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Executions {
    /// Process id of who asks, 0: free, [`CLOSED`]: nobody is answered any more. Taken by compare-and-swap.
    pub holder: AtomicU32,
    /// One of [`state`], with the request's number ([`state::of`]): futex for both sides.
    pub state: AtomicU32,
    /// Address of the agent's state page in that process, by which the host knows that it is one of the run's
    /// (`agent::state`).
    pub state_address: AtomicU64,
    /// execveat(2)'s directory, and the addresses of the path and of the environment.
    pub directory: AtomicU32,
    /// Numbers the requests.
    pub number: AtomicU32,
    pub path: AtomicU64,
    pub environment: AtomicU64,
    /// Device and inode of the file that is meant.
    pub device: AtomicU64,
    pub inode: AtomicU64,
    files: [AtomicU64; FILES],
}

/// ```text
/// EMPTY -> ASKED -> TAKEN -> TRACING -> TRACED -> EMPTY
///   ^        |        |  \-> LEFT --------------> EMPTY
///   |        |        |
///   |    ABANDONED    |    who asks gives up: it was not even looked at, and the mailbox stays taken
///   \-----------------/    the same, and it is let go
/// ```
/// Each step is a compare-and-swap of the word with the number in it: who comes late changes nothing of a
/// later request.
pub mod state {
    pub const EMPTY: u32 = 0;
    pub const ASKED: u32 = 1;
    /// The host looks at file and environment.
    pub const TAKEN: u32 = 2;
    /// It is about to stop who asks, who waits where that does no harm and does not give up any more.
    pub const TRACING: u32 = 3;
    /// It is traced: go on.
    pub const TRACED: u32 = 4;
    /// It is not, and need not be or cannot: go on.
    pub const LEFT: u32 = 5;
    /// The host has not looked at it: it is not asked any more, by nobody, until it takes the mailbox back.
    pub const ABANDONED: u32 = 6;

    const BITS: u32 = 3;

    /// The word of a request in this state.
    pub const fn word(number: u32, state: u32) -> u32 {
        number << BITS | state
    }

    /// The state in a word.
    pub const fn of(word: u32) -> u32 {
        word & ((1 << BITS) - 1)
    }

    /// The same request in another state.
    pub const fn to(word: u32, state: u32) -> u32 {
        word & !((1 << BITS) - 1) | state
    }
}

/// How the agent comes into a program of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing is known of it.
    No,
    /// glibc's loader brings it in, or nobody can.
    ByItself,
    /// It is to be put in.
    ToBePutIn,
    /// Nobody can, and its loader says so where it is named (a program of 32 bits, or of another machine).
    Narrow,
    /// It has been put in often enough for nothing.
    LeaveAlone,
}

/// What stands beside a key: 0, 1 and all ones, or by one more than how many executions to leave alone.
const NOTE: u64 = 0xff;
const BY_ITSELF: u64 = 0;
const PUT_IN: u64 = 1;
const NARROW: u64 = NOTE;

/// Executions that are left alone before it is tried once more.
const LEFT_ALONE: u64 = 64;

const _: () = assert!(PUT_IN + LEFT_ALONE < NARROW);

impl Executions {
    /// What is known of the file with this key (`kin::key`), which is about to be executed. Async-signal-safe.
    pub fn known(&self, key: u64) -> Known {
        let place = self.place(key);
        let word = place.load(Ordering::Relaxed);
        match word & NOTE {
            _ if word & !NOTE != key & !NOTE => Known::No,
            BY_ITSELF => Known::ByItself,
            PUT_IN => Known::ToBePutIn,
            NARROW => Known::Narrow,
            _ => {
                // Of two that do this at once one is not counted.
                place.store(word - 1, Ordering::Relaxed);
                Known::LeaveAlone
            }
        }
    }

    /// Remembers it, in the place of whatever stood there.
    pub fn note(&self, key: u64, known: Known) {
        let note = match known {
            Known::No => return,
            Known::ByItself => BY_ITSELF,
            Known::ToBePutIn => PUT_IN,
            Known::Narrow => NARROW,
            Known::LeaveAlone => PUT_IN + LEFT_ALONE,
        };
        self.place(key).store(key & !NOTE | note, Ordering::Relaxed);
    }

    /// Forgets what is known of files.
    pub fn forget(&self) {
        self.files.iter().for_each(|file| file.store(0, Ordering::Relaxed));
    }

    fn place(&self, key: u64) -> &AtomicU64 {
        &self.files[(key >> NOTE.count_ones()) as usize % FILES]
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Executions>() == 4096);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn empty() -> Executions {
        // SAFETY: zeros are a value of each field.
        unsafe { core::mem::zeroed() }
    }

    #[test]
    fn a_word_has_a_number_and_a_state() {
        let word = state::word(7, state::ASKED);
        assert_eq!(state::of(word), state::ASKED);
        assert_eq!(state::to(word, state::LEFT), state::word(7, state::LEFT));
        assert_ne!(word, state::word(8, state::ASKED));
    }

    #[test]
    fn what_is_noted_is_known_and_nothing_else() {
        let executions = empty();
        let [one, other] = [1 << 63 | 0x12_3400, 1 << 63 | 0x12_3500];
        assert_eq!(executions.known(one), Known::No);
        executions.note(one, Known::ToBePutIn);
        executions.note(other, Known::ByItself);
        assert_eq!((executions.known(one), executions.known(other)), (Known::ToBePutIn, Known::ByItself));
        // Another file at the same place.
        let third = one + (FILES << 8) as u64;
        assert_eq!(executions.known(third), Known::No);
        executions.note(third, Known::ByItself);
        assert_eq!((executions.known(one), executions.known(third)), (Known::No, Known::ByItself));
        executions.note(other, Known::Narrow);
        assert_eq!((executions.known(other), executions.known(other)), (Known::Narrow, Known::Narrow));
    }

    #[test]
    fn what_is_left_alone_is_tried_again() {
        let executions = empty();
        let key = 1 << 63 | 0x7700;
        executions.note(key, Known::LeaveAlone);
        for _ in 0..LEFT_ALONE {
            assert_eq!(executions.known(key), Known::LeaveAlone);
        }
        assert_eq!(executions.known(key), Known::ToBePutIn);
    }
}
