//! The queue: hints that wait for the disk, in their giver's order.
//!
//! Bounded by its type: a giver that discloses faster than anything could be fetched loses the newest
//! hints, which are the furthest from use. Neighbours merge: a hint that goes on where the latest one ends,
//! or repeats a part of it, lengthens it (programs read files in pieces; the disk should not). What is taken
//! is cut into chunks of at most [`CHUNK_PAGES`].
//!
//! Each hint has an *ordinal*, its number in the giver's order. The distance of a hint, from which its
//! urgency follows, is its ordinal less the accesses that the program has done.
//!
//! Cancelled hints stay in their places, empty, until the head passes them: cancelling costs one pass over
//! what is queued and moves nothing.

use crate::CHUNK_PAGES;
use crate::hint::{Hint, Refusal, Subject};

#[derive(Clone, Copy, Debug)]
struct Waiting {
    hint: Hint,
    /// Number of the (first) hint in the giver's order.
    ordinal: u64,
}

const EMPTY: Waiting =
    Waiting { hint: Hint { subject: Subject::Name(0), first: 0, pages: 0, token: 0 }, ordinal: 0 };

/// Where numbering begins: nobody puts so much first that it would come to 0.
const BEGIN: u64 = 1 << 62;

/// A piece to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub subject: Subject,
    pub first: u64,
    /// 1 to [`CHUNK_PAGES`].
    pub pages: u64,
    pub token: u64,
    pub ordinal: u64,
}

/// What to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    All,
    Of(Subject),
    Token(u64),
}

/// At most `N` hints. A queue of 0 takes none.
#[derive(Debug)]
pub struct Queue<const N: usize> {
    waiting: [Waiting; N],
    /// Numbers of the next to be taken and the next to be put; at their number modulo `N`.
    head: u64,
    tail: u64,
    /// Hints given so far.
    given: u64,
    /// Pages in the queue.
    pages: u64,
}

impl<const N: usize> Default for Queue<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Queue<N> {
    pub const fn new() -> Self {
        Self { waiting: [EMPTY; N], head: BEGIN, tail: BEGIN, given: 0, pages: 0 }
    }

    /// Puts a hint behind the others.
    pub fn put(&mut self, hint: Hint) -> Result<(), Refusal> {
        self.given += 1;
        if self.tail > self.head && self.lengthen(&hint) {
            return Ok(());
        }
        if self.tail - self.head >= N as u64 {
            return Err(Refusal::Full);
        }
        self.waiting[(self.tail % N as u64) as usize] = Waiting { hint, ordinal: self.given - 1 };
        self.tail += 1;
        self.pages = self.pages.saturating_add(hint.pages);
        Ok(())
    }

    /// Puts a hint before the others: what remains of one that was taken already.
    pub fn put_first(&mut self, hint: Hint) -> Result<(), Refusal> {
        let ordinal = self.peek().map_or(self.given, |front| front.ordinal);
        if self.tail - self.head >= N as u64 {
            return Err(Refusal::Full);
        }
        self.head -= 1;
        self.waiting[(self.head % N as u64) as usize] = Waiting { hint, ordinal };
        self.pages = self.pages.saturating_add(hint.pages);
        Ok(())
    }

    /// Whether the latest hint could take this one in.
    fn lengthen(&mut self, hint: &Hint) -> bool {
        let latest = &mut self.waiting[((self.tail - 1) % N as u64) as usize].hint;
        let adjacent = latest.pages > 0
            && latest.subject == hint.subject
            && latest.token == hint.token
            && hint.first >= latest.first
            && hint.first <= latest.end();
        if adjacent {
            let longer = hint.end().max(latest.end()) - latest.first;
            self.pages = self.pages.saturating_add(longer - latest.pages);
            latest.pages = longer;
        }
        adjacent
    }

    /// The next piece, which leaves the queue.
    pub fn take(&mut self) -> Option<Chunk> {
        self.take_up_to(CHUNK_PAGES)
    }

    /// No more of it than `most` pages.
    pub fn take_up_to(&mut self, most: u64) -> Option<Chunk> {
        let chunk = self.peek()?;
        let chunk = Chunk { pages: chunk.pages.min(most.max(1)), ..chunk };
        let front = &mut self.waiting[(self.head % N as u64) as usize];
        front.hint.first += chunk.pages;
        front.hint.pages -= chunk.pages;
        self.pages = self.pages.saturating_sub(chunk.pages);
        Some(chunk)
    }

    /// The next piece, which stays.
    pub fn peek(&mut self) -> Option<Chunk> {
        while self.head < self.tail {
            let front = &self.waiting[(self.head % N as u64) as usize];
            if front.hint.pages > 0 {
                let Waiting { hint, ordinal } = *front;
                let pages = hint.pages.min(CHUNK_PAGES);
                return Some(Chunk {
                    subject: hint.subject,
                    first: hint.first,
                    pages,
                    token: hint.token,
                    ordinal,
                });
            }
            self.head += 1;
        }
        None
    }

    /// Pages that leave the front hint beyond its first `keep`: a long sequential run whose rest the
    /// kernel's own read-ahead fetches as well. Returns how many.
    pub fn leave_rest(&mut self, keep: u64) -> u64 {
        if self.peek().is_none() {
            return 0;
        }
        let front = &mut self.waiting[(self.head % N as u64) as usize].hint;
        let left = front.pages.saturating_sub(keep);
        front.pages -= left;
        self.pages = self.pages.saturating_sub(left);
        left
    }

    /// Pages of the front hint.
    pub fn front_pages(&mut self) -> u64 {
        match self.peek() {
            Some(_) => self.waiting[(self.head % N as u64) as usize].hint.pages,
            None => 0,
        }
    }

    /// Leaves out what lies before page `first` of a subject; returns how many pages.
    pub fn skip(&mut self, subject: Subject, first: u64) -> u64 {
        let before = self.pages;
        for number in self.head..self.tail {
            let hint = &mut self.waiting[(number % N as u64) as usize].hint;
            if hint.subject == subject {
                let less = first.saturating_sub(hint.first).min(hint.pages);
                hint.first += less;
                hint.pages -= less;
                self.pages = self.pages.saturating_sub(less);
            }
        }
        before - self.pages
    }

    /// Forgets hints; returns how many pages.
    pub fn cancel(&mut self, which: Which) -> u64 {
        let before = self.pages;
        for number in self.head..self.tail {
            let hint = &mut self.waiting[(number % N as u64) as usize].hint;
            let meant = match which {
                Which::All => true,
                Which::Of(subject) => hint.subject == subject,
                Which::Token(token) => hint.token == token,
            };
            if meant {
                self.pages = self.pages.saturating_sub(hint.pages);
                hint.pages = 0;
            }
        }
        if which == Which::All {
            self.head = self.tail;
            self.pages = 0;
        }
        before - self.pages
    }

    /// Places left.
    pub fn room(&self) -> usize {
        N - (self.tail - self.head) as usize
    }

    pub fn is_empty(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Hints given so far, the refused ones too: the next one's ordinal.
    pub fn given(&self) -> u64 {
        self.given
    }

    /// Pages in the queue.
    pub fn pages(&self) -> u64 {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hint(file: u64, first: u64, pages: u64) -> Hint {
        Hint { subject: Subject::File(file), first, pages, token: file }
    }

    fn drain<const N: usize>(queue: &mut Queue<N>) -> Vec<(Subject, u64, u64)> {
        std::iter::from_fn(|| queue.take()).map(|c| (c.subject, c.first, c.pages)).collect()
    }

    #[test]
    fn neighbours_merge_and_long_ones_are_cut() {
        let mut queue = Queue::<8>::new();
        queue.put(hint(1, 0, 20)).unwrap();
        queue.put(hint(1, 20, 20)).unwrap();
        queue.put(hint(1, 30, 5)).unwrap();
        queue.put(hint(2, 0, 1)).unwrap();
        assert_eq!(queue.pages(), 41);
        let one = Subject::File(1);
        assert_eq!(drain(&mut queue), [(one, 0, 32), (one, 32, 8), (Subject::File(2), 0, 1)]);
        assert_eq!(queue.pages(), 0);
    }

    #[test]
    fn what_is_taken_may_be_shorter() {
        let mut queue = Queue::<8>::new();
        queue.put(hint(1, 0, 40)).unwrap();
        assert_eq!([5, 0].map(|most| queue.take_up_to(most).unwrap().pages), [5, 1]);
        assert_eq!((queue.pages(), queue.take().unwrap().first), (34, 6));
    }

    #[test]
    fn a_hint_before_the_latest_or_with_another_token_stays_apart() {
        let mut queue = Queue::<8>::new();
        queue.put(hint(1, 10, 1)).unwrap();
        queue.put(hint(1, 9, 1)).unwrap();
        queue.put(Hint { token: 7, ..hint(1, 10, 1) }).unwrap();
        assert_eq!(drain(&mut queue).len(), 3);
    }

    #[test]
    fn ordinals_count_the_givers_hints_merged_ones_too() {
        let mut queue = Queue::<8>::new();
        queue.put(hint(1, 0, 1)).unwrap();
        queue.put(hint(1, 1, 1)).unwrap();
        queue.put(hint(2, 0, 1)).unwrap();
        assert_eq!(queue.take().unwrap().ordinal, 0);
        assert_eq!(queue.take().unwrap().ordinal, 2);
    }

    #[test]
    fn what_is_put_first_comes_first() {
        let mut queue = Queue::<3>::new();
        queue.put(hint(1, 0, 1)).unwrap();
        queue.put_first(hint(2, 0, 1)).unwrap();
        queue.put_first(hint(3, 0, 40)).unwrap();
        assert_eq!(queue.put_first(hint(4, 0, 1)), Err(Refusal::Full));
        assert_eq!(queue.pages(), 42);
        let file = Subject::File;
        assert_eq!(drain(&mut queue), [(file(3), 0, 32), (file(3), 32, 8), (file(2), 0, 1), (file(1), 0, 1)]);
    }

    #[test]
    fn a_full_queue_refuses_and_what_was_there_stays() {
        let mut queue = Queue::<2>::new();
        queue.put(hint(1, 0, 1)).unwrap();
        queue.put(hint(2, 0, 1)).unwrap();
        assert_eq!(queue.put(hint(3, 0, 1)), Err(Refusal::Full));
        assert_eq!(queue.room(), 0);
        assert_eq!(drain(&mut queue).len(), 2);
        assert_eq!(Queue::<0>::new().put(hint(1, 0, 1)), Err(Refusal::Full));
    }

    #[test]
    fn cancelling() {
        let mut queue = Queue::<8>::new();
        for file in [1, 2, 1, 3] {
            queue.put(hint(file, 0, 2)).unwrap();
        }
        assert_eq!(queue.cancel(Which::Of(Subject::File(1))), 4);
        assert_eq!(queue.cancel(Which::Token(3)), 2);
        assert_eq!(drain(&mut queue), [(Subject::File(2), 0, 2)]);
        queue.put(hint(1, 0, 2)).unwrap();
        assert_eq!(queue.cancel(Which::All), 2);
        assert!(queue.is_empty());
        assert_eq!(queue.room(), 8);
    }

    #[test]
    fn what_lies_before_a_page_of_one_subject_is_left_out() {
        let mut queue = Queue::<8>::new();
        for (file, first) in [(1, 0), (2, 0), (1, 50)] {
            queue.put(hint(file, first, 20)).unwrap();
        }
        assert_eq!(queue.skip(Subject::File(1), 60), 30);
        assert_eq!(queue.pages(), 30);
        assert_eq!(drain(&mut queue), [(Subject::File(2), 0, 20), (Subject::File(1), 60, 10)]);
        queue.put(hint(1, 0, 20)).unwrap();
        assert_eq!(queue.skip(Subject::File(1), u64::MAX), 20);
        assert!(queue.is_empty());
    }

    #[test]
    fn the_rest_of_a_run_can_be_left() {
        let mut queue = Queue::<8>::new();
        queue.put(hint(1, 0, 1000)).unwrap();
        assert_eq!(queue.front_pages(), 1000);
        assert_eq!(queue.leave_rest(64), 936);
        assert_eq!(queue.pages(), 64);
        assert_eq!(drain(&mut queue).len(), 2);
    }

    proptest! {
        /// Every page put and not cancelled comes out exactly once per run of merged hints, in order, and
        /// the count of pages is right all the time.
        #[test]
        fn nothing_is_lost_or_invented(
            hints in proptest::collection::vec((0..4u64, 0..50u64, 1..80u64), 0..60),
        ) {
            let mut queue = Queue::<16>::new();
            let mut accepted: Vec<Hint> = Vec::new();
            let mut out: Vec<(Subject, u64)> = Vec::new();
            for (index, (file, first, pages)) in hints.into_iter().enumerate() {
                let hint = hint(file, first, pages);
                if queue.put(hint).is_ok() { accepted.push(hint) }
                if index % 3 == 0 && let Some(chunk) = queue.take() {
                    out.extend((0..chunk.pages).map(|p| (chunk.subject, chunk.first + p)));
                }
            }
            while let Some(chunk) = queue.take() {
                prop_assert!((1..=CHUNK_PAGES).contains(&chunk.pages));
                out.extend((0..chunk.pages).map(|p| (chunk.subject, chunk.first + p)));
            }
            prop_assert_eq!(queue.pages(), 0);
            for hint in &accepted {
                for page in hint.first..hint.end() {
                    prop_assert!(out.contains(&(hint.subject, page)));
                }
            }
            for (subject, page) in out {
                prop_assert!(accepted.iter().any(|h| h.subject == subject && h.first <= page && page < h.end()));
            }
        }
    }
}
