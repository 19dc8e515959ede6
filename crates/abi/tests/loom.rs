//! What the processes share, in every order in which a processor may show it.
//!
//! Loom runs each model again and again, once for every interleaving and every value that the memory
//! model lets a load return. So weakening one ordering in `abi` must make a model fail; each was seen to
//! (see the note at each model). Run by `./x test`: `RUSTFLAGS="--cfg loom" cargo test -p runahead-abi`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use runahead_abi::check::{Check, Unchecked, WAITS, verdict};
use runahead_abi::log::{LOG_ENTRIES, Log, Prediction, kind};
use runahead_abi::names::Ring;
use runahead_abi::opened;
use runahead_abi::release::{Closings, Holding, Numbers, Releasing, What};
use runahead_abi::trace::{self, Cursor, Event, Found};
use runahead_abi::{owner, pace, post};

/// What a writer says at a position of an epoch: a mixture of two such predictions is none.
fn prediction(epoch: u32, position: u32) -> Prediction {
    let word = u64::from(epoch) * 100 + u64::from(position);
    Prediction { kind: kind::READ_AT, marks: 0, file: 0, subject: word as i32, detail: word, place: word }
}

/// The ring holds two entries; the writer laps the reader. Whatever the reader gets is what was written
/// for that epoch and position.
///
/// Fails without the fence after the tag's first store, with a relaxed last store of the tag, with a
/// relaxed first look at the tag, and without the reader's second look.
#[test]
fn an_overrun_log_shows_no_mixtures() {
    loom::model(|| {
        let log = Arc::new(Log::default());
        let writers = Arc::clone(&log);
        let lap = LOG_ENTRIES as u32;
        let writer = thread::spawn(move || {
            writers.write(1, 0, &prediction(1, 0));
            writers.write(1, lap, &prediction(1, lap));
        });
        for position in [0, lap] {
            if let Some(found) = log.read(1, position) {
                assert_eq!(found, prediction(1, position));
            }
        }
        writer.join().unwrap();
        assert_eq!(log.read(1, lap), Some(prediction(1, lap)));
        assert_eq!(log.read(1, 0), None);
    });
}

/// A reader of an old epoch never takes an entry of the new one, nor the other way round.
#[test]
fn epochs_are_kept_apart() {
    loom::model(|| {
        let log = Arc::new(Log::default());
        log.write(1, 0, &prediction(1, 0));
        let writers = Arc::clone(&log);
        let writer = thread::spawn(move || writers.write(2, 0, &prediction(2, 0)));
        let (old, new) = (log.read(1, 0), log.read(2, 0));
        assert!(old.is_none() || old == Some(prediction(1, 0)));
        assert!(new.is_none() || new == Some(prediction(2, 0)));
        writer.join().unwrap();
        assert_eq!((log.read(1, 0), log.read(2, 0)), (None, Some(prediction(2, 0))));
    });
}

/// The speculator announces how much it has written; an agent that has seen the number sees the entries.
#[test]
fn what_is_announced_is_there() {
    loom::model(|| {
        let shared = Arc::new((Log::default(), AtomicU32::new(0)));
        let speculators = Arc::clone(&shared);
        let speculator = thread::spawn(move || {
            for position in 0..2 {
                speculators.0.write(1, position, &prediction(1, position));
                speculators.1.store(position + 1, Ordering::Release);
            }
        });
        for position in 0..shared.1.load(Ordering::Acquire) {
            assert_eq!(shared.0.read(1, position), Some(prediction(1, position)));
        }
        speculator.join().unwrap();
    });
}

/// The agent leaves more notes than the ring holds while the host reads: what it gets is what was written
/// under that number.
///
/// Fails without the fence after the number's first store, with a relaxed last store of the number, and
/// without the fence before the second look.
#[test]
fn an_overrun_ring_of_notes_shows_no_mixtures() {
    loom::model(|| {
        let ring = Arc::new(Ring::default());
        let agents = Arc::clone(&ring);
        let path = |directory: i32| [b'a' + directory as u8; 9];
        let agent = thread::spawn(move || {
            for directory in 1..=3 {
                agents.write(directory as u32, directory, &path(directory), directory as u32);
            }
        });
        for before in 0..ring.written().min(1) + 1 {
            if let Some(note) = ring.read(before) {
                let expected = before as i32 + 1;
                let words = (note.kind, note.directory, note.generation);
                assert_eq!(words, (expected as u32, expected, expected as u32));
                assert_eq!(note.path[..9], path(expected));
            }
        }
        agent.join().unwrap();
        assert!(ring.read(0).is_none() && ring.read(1).is_some() && ring.read(2).is_some());
    });
}

/// The ring of events holds one; the writer laps the reader. Whatever comes out is what was entered there.
///
/// Fails without the fence after the first store, with a relaxed last store, with a relaxed first look, and
/// without the reader's second look.
#[test]
fn an_overrun_ring_of_events_shows_no_mixtures() {
    loom::model(|| {
        let ring = Arc::new(trace::Ring::<1>::default());
        let event = |number: u64| Event { time: number, kind: 1, thread: 7, a: number, b: number };
        let writers = Arc::clone(&ring);
        let writer = thread::spawn(move || {
            writers.write(&event(1));
            writers.write(&event(2));
        });
        if let Found::Event(found) = ring.read(0) {
            assert_eq!(found, event(1));
        }
        writer.join().unwrap();
        assert_eq!((ring.read(0), ring.read(1)), (Found::Lost, Found::Event(event(2))));
    });
}

/// Two threads of a program enter an event each.
#[test]
fn events_of_two_threads_stay_apart() {
    loom::model(|| {
        let ring = Arc::new(trace::Ring::<2>::default());
        let event =
            |number: u64| Event { time: number, kind: 1, thread: number as u32, a: number, b: number };
        let writers = Arc::clone(&ring);
        let other = thread::spawn(move || writers.write(&event(1)));
        ring.write(&event(2));
        other.join().unwrap();
        let (mut cursor, mut taken) = (Cursor::default(), Vec::new());
        cursor.take(&ring, |found| taken.push(found.a));
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    });
}

/// The agent enters more names than the ring holds while the host reads: whatever comes out is what was
/// entered.
///
/// Fails without the fence after what is reserved, without the one before the reader's second look, and with
/// a relaxed store or load of what is written.
#[test]
fn an_overrun_ring_of_names_shows_no_mixtures() {
    loom::model(|| {
        let ring = Arc::new(opened::Ring::default());
        let agents = Arc::clone(&ring);
        let path = |number: u32| [b'a' + number as u8; 3];
        agents.write(1, 1, &path(1));
        let agent = thread::spawn(move || {
            for number in 2..=3 {
                agents.write(number, number as i32, &path(number));
            }
        });
        let mut read = 0;
        for _ in 0..2 {
            if let Some(entry) = ring.read(&mut read) {
                assert_eq!(entry.directory, entry.kind as i32);
                assert_eq!(entry.path(), path(entry.kind));
            }
        }
        agent.join().unwrap();
        // Two of them are there still.
        let (mut read, mut last) = (2, Vec::new());
        while read != ring.written() {
            last.extend(ring.read(&mut read).map(|entry| entry.kind));
        }
        assert_eq!(last, [2, 3]);
    });
}

/// What is about to be opened as it was opened in an earlier run, and a process that bears nobody who opens
/// files: one of them sees the other.
///
/// Fails without either of the fences.
#[test]
fn a_replay_opens_nothing_for_who_bears_nobody() {
    loom::model(|| {
        let shared = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
        let hosts = Arc::clone(&shared);
        let host = thread::spawn(move || opened::begins_to_replay(&hosts.0, &hosts.1));
        opened::ends_replay(&shared.0);
        let waits = shared.1.load(Ordering::Acquire) != 0;
        assert!(waits || !host.join().unwrap());
    });
}

/// A post: its number, two of its words, and whether the program waits for the answer.
#[derive(Default)]
struct Posted {
    number: AtomicU32,
    first: AtomicU64,
    second: AtomicU64,
    holding: AtomicU32,
    synced: AtomicU32,
}

impl Posted {
    fn post(&self, epoch: u32) {
        post::begin(&self.number, epoch);
        self.first.store(u64::from(epoch), Ordering::Relaxed);
        self.holding.store(epoch, Ordering::Relaxed);
        self.second.store(u64::from(epoch), Ordering::Relaxed);
        post::publish(&self.number, epoch);
    }

    /// What a reader believes: the epoch, and the words.
    fn take(&self) -> Option<(u32, u64, u64)> {
        let number = post::latest(&self.number)?;
        let (first, second) = (self.first.load(Ordering::Relaxed), self.second.load(Ordering::Relaxed));
        post::is_whole(&self.number, number).then_some((post::epoch_of(number), first, second))
    }
}

/// The program posts anew while the speculator copies: what it believes is one post, whole.
///
/// Fails without the fence in `begin`, with a relaxed store in `publish`, with a relaxed load in `latest`
/// and without the fence in `is_whole`.
#[test]
fn a_post_is_believed_whole_or_not_at_all() {
    loom::model(|| {
        let posted = Arc::new(Posted::default());
        let agents = Arc::clone(&posted);
        let agent = thread::spawn(move || {
            agents.post(1);
            agents.post(2);
        });
        if let Some((epoch, first, second)) = posted.take() {
            assert_eq!((first, second), (u64::from(epoch), u64::from(epoch)));
        }
        agent.join().unwrap();
        assert_eq!(posted.take(), Some((2, 2, 2)));
    });
}

/// A program that holds is woken: a speculator that took the post sees that it is held for.
#[test]
fn who_took_a_post_sees_that_the_program_holds() {
    loom::model(|| {
        let posted = Arc::new(Posted::default());
        let agents = Arc::clone(&posted);
        let agent = thread::spawn(move || agents.post(1));
        if posted.take().is_some() {
            posted.synced.store(1, Ordering::Release);
            assert_eq!(posted.holding.load(Ordering::Acquire), 1);
        }
        agent.join().unwrap();
    });
}

/// The speculator asks to be woken while the program passes the operation that it waits for: either the
/// program sees the wish, or the speculator sees that there is nothing to wait for.
///
/// Fails without either of the two fences in `pace`.
#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let words = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
        let programs = Arc::clone(&words);
        let program = thread::spawn(move || {
            let wakes_at_one = pace::pass(&programs.0, 1, &programs.1);
            wakes_at_one | pace::pass(&programs.0, 2, &programs.1)
        });
        pace::ask_to_be_woken(&words.1, 2);
        let sleeps = words.0.load(Ordering::Acquire) < 2;
        let woken = program.join().unwrap();
        assert!(woken || !sleeps, "asleep for good");
    });
}

/// Two threads post in lanes of their own and ring; the speculator listens, looks at both lanes, and sleeps
/// while the bell says what it has heard. Whoever has rung by then has been seen.
///
/// Fails with a relaxed addition in `ring`, with a relaxed load in `heard`, and if the speculator listens
/// after it has looked.
#[test]
fn no_post_is_slept_over() {
    loom::model(|| {
        let shared = Arc::new((AtomicU32::new(0), [Posted::default(), Posted::default()]));
        let threads: Vec<_> = (0..2)
            .map(|lane| {
                let agents = Arc::clone(&shared);
                thread::spawn(move || {
                    agents.1[lane].post(lane as u32 + 1);
                    post::ring(&agents.0);
                })
            })
            .collect();
        let rings = post::heard(&shared.0);
        let seen = shared.1.iter().filter(|lane| post::latest(&lane.number).is_some()).count();
        assert!(rings <= seen as u32, "asleep over a post");
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// The speculator says that an epoch is over: a thread that finds that finds all that was written in it.
///
/// Fails with a relaxed store or a relaxed load of `over`.
#[test]
fn what_is_over_is_all_there() {
    loom::model(|| {
        let shared = Arc::new((Log::default(), AtomicU32::new(0), AtomicU32::new(0)));
        let speculators = Arc::clone(&shared);
        let speculator = thread::spawn(move || {
            let (log, written, over) = &*speculators;
            log.write_lane(1, 3, 0, &prediction(3, 0));
            written.store(1, Ordering::Relaxed);
            over.store(3, Ordering::Release);
        });
        let (log, written, over) = &*shared;
        if over.load(Ordering::Acquire) == 3 {
            assert_eq!(written.load(Ordering::Relaxed), 1);
            assert_eq!(log.read_lane(1, 3, 0), Some(prediction(3, 0)));
        }
        assert_eq!(log.read_lane(0, 3, 0), None, "another lane's");
        speculator.join().unwrap();
    });
}

/// The speculator settles what a lane has passed while its thread posts anew: a number is taken for the epoch
/// that it is of.
///
/// Fails with a relaxed load of `passed`.
#[test]
fn what_is_passed_is_of_the_epoch_that_it_is_taken_for() {
    loom::model(|| {
        let shared = Arc::new((AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0)));
        post::begin(&shared.0, 1);
        post::publish(&shared.0, 1);
        let agents = Arc::clone(&shared);
        let agent = thread::spawn(move || {
            let (posted, passed, wake_at) = &*agents;
            pace::pass(passed, 1, wake_at);
            post::begin(posted, 2);
            passed.store(0, Ordering::Relaxed);
            pace::pass(passed, 7, wake_at);
            post::publish(posted, 2);
        });
        let passed = shared.1.load(Ordering::Acquire);
        if shared.0.load(Ordering::Acquire) == 2 {
            assert_ne!(passed, 7, "of the epoch behind");
        }
        agent.join().unwrap();
    });
}

/// A slot, and what its owners keep in it.
type OwnedSlot = Arc<(AtomicU32, AtomicU64)>;

/// A process claims the slot and writes into it; whether it got it.
fn attach(slot: &OwnedSlot, me: u32) -> bool {
    if !owner::claim(&slot.0, me) {
        return false;
    }
    assert_eq!(slot.1.load(Ordering::Relaxed), 0, "not cleared");
    slot.1.store(u64::from(me), Ordering::Relaxed);
    true
}

/// Two processes claim one slot at a time: one gets it.
///
/// Fails if `claim` looks and stores instead of exchanging.
#[test]
fn a_slot_has_one_owner() {
    loom::model(|| {
        let slot = OwnedSlot::default();
        let others = Arc::clone(&slot);
        let other = thread::spawn(move || attach(&others, 2));
        let one = attach(&slot, 1);
        let other = other.join().unwrap();
        assert!(one != other, "two owners, or none");
        assert_eq!(slot.1.load(Ordering::Relaxed), if one { 1 } else { 2 });
        assert_eq!(owner::process(&slot.0), Some(if one { 1 } else { 2 }));
    });
}

/// The host clears up after a process that has ended while another one tries to get the slot: the next
/// owner finds zeros, and nobody clears what it writes.
///
/// Fails with a relaxed store in `release`, and with a relaxed success of `claim`'s exchange.
#[test]
fn the_next_owner_starts_with_zeros() {
    loom::model(|| {
        let slot = OwnedSlot::default();
        assert!(attach(&slot, 1));
        let others = Arc::clone(&slot);
        let other = thread::spawn(move || attach(&others, 2));
        assert_eq!(owner::process(&slot.0), Some(1));
        owner::close(&slot.0);
        slot.1.store(0, Ordering::Relaxed);
        owner::release(&slot.0);
        if other.join().unwrap() {
            assert_eq!(slot.1.load(Ordering::Relaxed), 2);
        }
    });
}

/// A call that gives something back and somebody who is about to hold it: the one waits, or the other does not.
///
/// Fails without the fence in `Releasing::begins`, `Holding::begins` or `Holding::begins_again`.
#[test]
fn nothing_is_held_while_it_is_given_back() {
    for again in [false, true] {
        held_or_given_back(again);
    }
}

fn held_or_given_back(again: bool) {
    loom::model(move || {
        let shared = Arc::new((Releasing::default(), Holding::default(), AtomicU32::new(0)));
        let holders = Arc::clone(&shared);
        let holder = thread::spawn(move || {
            let (releasing, holding, open) = &*holders;
            let may = match again {
                true => holding.begins_again(releasing, What::Files, || 0),
                false => holding.begins(releasing, What::Files, || 0),
            };
            match may {
                true => open.store(1, Ordering::Release),
                false if again => holding.ends_all(),
                false => holding.ends(),
            }
        });
        let (releasing, holding, open) = &*shared;
        releasing.begins(What::Files, 1);
        if !holding.is_any() {
            // The call is made here: nobody has the file open, and nobody will have.
            assert_eq!(open.load(Ordering::Acquire), 0);
            holder.join().unwrap();
            assert_eq!(open.load(Ordering::Acquire), 0);
        } else {
            holder.join().unwrap();
        }
    });
}

/// A program begins that does not ask, and somebody is about to hold what was to be opened for the one before.
///
/// Fails without the look at the generation, or with one before the pass.
#[test]
fn nothing_is_held_for_those_before_a_program_that_does_not_ask() {
    loom::model(|| {
        let shared = Arc::new((Releasing::default(), Holding::default(), AtomicU32::new(0)));
        let holders = Arc::clone(&shared);
        let holder = thread::spawn(move || {
            let (releasing, holding, runs) = &*holders;
            if holding.begins(releasing, What::All, || 0) && releasing.generation() == 0 {
                assert_eq!(runs.load(Ordering::Acquire), 0);
            }
            holding.ends();
        });
        let (releasing, holding, runs) = &*shared;
        releasing.begins_unasked();
        releasing.begins(What::All, 1);
        let is_let_go = !holding.is_any();
        releasing.ends(What::All);
        if is_let_go {
            runs.store(1, Ordering::Release);
        }
        holder.join().unwrap();
    });
}

/// A descriptor that is closed and the speculator that is about to open what is behind it.
///
/// Fails without the fence in `Closings::closes` or the one in `Closings::may_hold`.
#[test]
fn a_descriptor_that_is_closed_is_not_held() {
    loom::model(|| {
        let shared = Arc::new((Closings::default(), Numbers::default()));
        let speculators = Arc::clone(&shared);
        let speculator = thread::spawn(move || speculators.0.may_hold(&[0; 2], &speculators.1, 3));
        let waits = shared.0.closes(&shared.1, 3, 3);
        assert!(waits || !speculator.join().unwrap());
    });
}

/// A process maps code while the host looks at its mappings and the agent asks for the answer: whoever has
/// mapped it looks at it himself, or the verdict that the agent takes is one on that code too.
///
/// Fails if the agent does not look at the count once more, if it looks before it says that it decides, and if
/// the process counts before it has mapped.
#[test]
fn no_code_is_missed_by_a_check() {
    loom::model(|| {
        let shared = Arc::new((Check::default(), Unchecked::default(), AtomicU32::new(0), AtomicU32::new(0)));
        shared.1.begins(&shared.0);
        let maps = Arc::clone(&shared);
        let mapper = thread::spawn(move || {
            let (check, unchecked, mapped, _) = &*maps;
            mapped.store(1, Ordering::SeqCst);
            unchecked.has_mapped(check, 0)
        });
        let looks = Arc::clone(&shared);
        let host = thread::spawn(move || {
            let (check, _, mapped, seen) = &*looks;
            let turn = check.turn();
            seen.store(mapped.load(Ordering::SeqCst), Ordering::Relaxed);
            check.say(verdict::CLEAN, turn);
        });
        let (check, unchecked, _, seen) = &*shared;
        let decided = unchecked.decide(check);
        let was_seen = seen.load(Ordering::Relaxed) == 1;
        let left_to_the_check = mapper.join().unwrap();
        host.join().unwrap();
        assert!(decided.is_none() || was_seen || !left_to_the_check);
    });
}

/// A thread has an answer and decides, another has mapped code that is to be checked in its turn: in the end
/// the process is unchecked.
///
/// Fails if whoever decides stores what becomes of it without looking whether that is still its own.
#[test]
fn whoever_decides_ends_no_new_check() {
    loom::model(|| {
        let shared = Arc::new((Check::default(), Check::default(), Unchecked::default()));
        let (check, _, unchecked) = &*shared;
        unchecked.begins(check);
        check.say(verdict::CLEAN, check.turn());
        let maps = Arc::clone(&shared);
        let mapper = thread::spawn(move || {
            let (check, again, unchecked) = &*maps;
            if !unchecked.has_mapped(check, 0) {
                unchecked.begins(again);
            }
        });
        let _ = unchecked.decide(check);
        mapper.join().unwrap();
        // The latest value, which a load of the model need not find.
        assert_eq!(unchecked.state.swap(0, Ordering::SeqCst), WAITS);
    });
}
