//! What the host's threads hold of the programs' files is counted, and let go when a program gives something back.
//!
//! A [`Pass`] is taken before a file is opened or a name looked up, and lives as long as what was opened: field order
//! sees to it that the descriptor is closed first. None is to be had while a program gives something back
//! ([`runahead_abi::release`]): what was to be opened is passed over then, as if it had not been there. Whoever
//! keeps passes for long is told when to drop them (the host's loop, `is_closed`).

use runahead_abi::release::{Holding, Releasing, What};
use runahead_kernel::process::{futex_wake, monotonic_ns};

/// The words that are shared with the programs. They stay mapped as long as this process lives.
#[derive(Debug)]
pub struct Words {
    pub releasing: &'static Releasing,
    pub files: &'static Holding,
    pub places: &'static Holding,
    pub nameless: &'static Holding,
}

/// Where passes are had. Without words (in tests) everything may be opened at any time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gate(Option<&'static Words>);

impl Gate {
    pub fn new(words: &'static Words) -> Gate {
        Gate(Some(words))
    }

    /// A pass to open files, or to hold directories and look names up. None while that is given back, and none
    /// while a program of the run notices who opens something.
    pub fn pass(&self, what: What) -> Option<Pass> {
        let pass = self.pass_to_our_own(what);
        // Counted before: one of us sees the other.
        pass.filter(|_| self.0.is_none_or(|words| words.releasing.noticing() == 0))
    }

    /// The same for files that a process executes or maps as code, which it opens itself just then: nobody has a
    /// lease on those that a reader breaks. None while a program of the run watches: it would be told of us.
    pub fn pass_to_code(&self, what: What) -> Option<Pass> {
        self.pass_to_our_own(what).filter(|_| !self.is_watched())
    }

    /// Whether a program of the run watches who opens files: no pass to code is had any more.
    pub fn is_watched(&self) -> bool {
        self.0.is_some_and(|words| words.releasing.is_watched())
    }

    /// The same for files of ours.
    pub fn pass_to_our_own(&self, what: What) -> Option<Pass> {
        let pass = Pass(self.0.map(|words| (words, what)));
        let may = self.0.is_none_or(|words| words.of(what).begins(words.releasing, what, monotonic_ns));
        // Where it may not, dropping it counts it down again.
        may.then_some(pass)
    }

    /// How often a program has begun that gives back without asking: what was to be opened before the last
    /// time is not to be opened any more. To be asked once a pass is held.
    pub fn generation(&self) -> u32 {
        self.0.map_or(0, |words| words.releasing.generation())
    }

    /// Whether nothing of this may be held at present.
    pub fn is_closed(&self, what: What) -> bool {
        self.0.is_some_and(|words| words.releasing.forbids(what, monotonic_ns))
    }
}

impl Words {
    /// Words that nobody else has, for tests of those who take passes. They are never freed.
    pub fn unshared() -> &'static Words {
        fn zeros<T>() -> &'static T {
            // SAFETY: the words are atomics, of which zeros are a value.
            Box::leak(unsafe { Box::<T>::new_zeroed().assume_init() })
        }
        let words = Words { releasing: zeros(), files: zeros(), places: zeros(), nameless: zeros() };
        Box::leak(Box::new(words))
    }

    fn of(&self, what: What) -> &'static Holding {
        match what {
            What::Files => self.files,
            What::All => self.places,
            What::Mapping => self.nameless,
        }
    }
}

/// One thing that is held, or about to be.
#[derive(Debug)]
pub struct Pass(Option<(&'static Words, What)>);

impl Drop for Pass {
    fn drop(&mut self) {
        let Some((words, what)) = self.0 else { return };
        let holding = words.of(what);
        holding.ends();
        if words.releasing.forbids(what, monotonic_ns) {
            futex_wake(&holding.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_pass_is_had_while_a_call_is_under_way() {
        let words = Words::unshared();
        let gate = Gate::new(words);
        let directory = gate.pass(What::All).unwrap();
        assert!(words.places.is_any() && !words.files.is_any());
        words.releasing.begins(What::Files, u64::MAX);
        assert!(gate.is_closed(What::Files) && gate.pass(What::Files).is_none());
        assert!(!words.files.is_any(), "what is refused is not held");
        assert!(gate.pass(What::All).is_some(), "a name that is removed needs no directory to be closed");
        words.releasing.begins(What::All, u64::MAX);
        assert!(gate.pass(What::All).is_none() && words.places.is_any());
        drop(directory);
        assert!(!words.places.is_any());
        words.releasing.ends(What::All);
        words.releasing.ends(What::Files);
        assert!(gate.pass(What::Files).is_some() && Gate::default().pass(What::All).is_some());
    }

    #[test]
    fn nothing_is_opened_while_somebody_notices() {
        let words = Words::unshared();
        let gate = Gate::new(words);
        words.releasing.begins_to_notice();
        assert!([What::Files, What::Mapping, What::All].iter().all(|&what| gate.pass(what).is_none()));
        assert!(!words.files.is_any() && !words.nameless.is_any(), "what is refused is not held");
        assert!(!words.places.is_any() && gate.pass_to_code(What::Files).is_some());
        words.releasing.begins_to_notice();
        words.releasing.forget_noticing(1);
        assert!(gate.pass(What::Files).is_none(), "another one has begun meanwhile");
        words.releasing.forget_noticing(2);
        assert!(gate.pass(What::Files).is_some());
    }

    #[test]
    fn no_code_is_opened_while_somebody_watches() {
        let words = Words::unshared();
        let gate = Gate::new(words);
        words.releasing.begins_to_notice();
        words.releasing.begins_to_watch();
        assert!(gate.pass_to_code(What::Files).is_none() && gate.pass(What::Files).is_none());
        assert!(!words.files.is_any(), "what is refused is not held");
        assert!(gate.pass_to_our_own(What::Mapping).is_some());
        words.releasing.forget_noticing(words.releasing.noticing());
        assert!(gate.pass_to_code(What::Files).is_some());
    }
}
