//! What holds whatever programs and disks do.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use runahead_policy::hold::{CREDIT_FIRST, CREDIT_PART, SAVED_PART};
use runahead_policy::regret::{FIRST, SHARE};
use runahead_replay::device::{Device, Trouble};
use runahead_replay::engine::{Clock, Outcome, TICK, replay};
use runahead_replay::trace::{Costs, Known, PAGE, Step, Trace, What};
use slowdisk::profile::{Kind, Profile};

fn known() -> impl Strategy<Value = Known> {
    prop_oneof![6 => Just(Known::Always), 3 => Just(Known::AfterData), 1 => Just(Known::Never)]
}

fn what() -> impl Strategy<Value = What> {
    let read = |file, page: u64, length| What::Read { file, place: page * PAGE, length };
    prop_oneof![
        8 => (0u32..4, 0u64..4096, 1u64..9).prop_map(move |(file, page, pages)| read(file, page, pages * PAGE)),
        // Small files.
        6 => (10u32..200).prop_map(move |file| read(file, 0, 16 << 10)),
        // Bytes of one.
        2 => (0u64..64).prop_map(|place| What::Read { file: 500, place, length: 1 }),
        2 => (0u32..5_000).prop_map(|number| What::Name { number }),
        2 => (0u64..4096).prop_map(|page| What::Touch { file: 600, page, instruction: 1 }),
    ]
}

/// A stretch of steps of one kind, as programs have them.
fn stretch() -> impl Strategy<Value = Vec<Step>> {
    let compute = prop_oneof![0u64..5_000, 0u64..200_000, 0u64..20_000_000];
    (what(), known(), compute, 1usize..40, any::<bool>()).prop_map(|(what, known, compute, times, scans)| {
        (0..times as u64)
            .map(|number| {
                let what = match what {
                    What::Read { file, place, length } if scans => {
                        What::Read { file, place: place + number * length, length }
                    }
                    What::Read { file, place, length } if file < 4 => {
                        What::Read { file, place: place ^ (number * 37 % 256 * PAGE), length }
                    }
                    What::Read { file, place, length } => {
                        What::Read { file: file + number as u32, place, length }
                    }
                    What::Name { number: name } => What::Name { number: name + number as u32 },
                    What::Touch { file, page, instruction } => {
                        What::Touch { file, page: page + number * 3, instruction }
                    }
                };
                Step { compute, what, known }
            })
            .collect()
    })
}

fn trace() -> impl Strategy<Value = Trace> {
    let thread = || prop::collection::vec(stretch(), 1..25).prop_map(|stretches| stretches.concat());
    let threads = prop_oneof![
        3 => prop::collection::vec(thread(), 1..2),
        1 => prop::collection::vec(thread(), 2..6),
    ];
    let costs =
        (100_000u64..10_000_000, 20_000u64..5_000_000, 2_000u64..100_000, 200u64..5_000, 1_000u64..50_000)
            .prop_map(|(start, sync, restart, look, operation)| Costs {
                start,
                sync,
                restart,
                look,
                operation,
            });
    (threads, costs, 1u32..5, prop::bool::weighted(0.1)).prop_map(|(threads, costs, processors, warm)| {
        Trace { name: "any".to_owned(), processors, warm, costs, threads, ..Trace::default() }
    })
}

/// Any disk, in any trouble.
fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => (20_000u64..20_000_000, 1usize..100)
            .prop_map(|(latency_ns, parallel)| Kind::Fixed { latency_ns, parallel }),
        1 => (100_000u64..5_000_000, 100u64..20_000, 1_000_000u64..1_000_000_000).prop_map(
            |(latency_ns, requests_per_second, bytes_per_second)| Kind::Capped {
                latency_ns,
                parallel: 64,
                requests_per_second,
                bytes_per_second,
            }
        ),
        1 => Just(Kind::Hydrating {
            first_ns: 40_000_000,
            block: 512 << 10,
            latency_ns: 1_000_000,
            parallel: 64,
        }),
        1 => prop_oneof![Just("disk1"), Just("array4")].prop_map(|name| Profile::by_name(name).unwrap().kind),
    ]
}

fn troubles() -> impl Strategy<Value = Vec<Trouble>> {
    let trouble = (0u64..3_000_000_000, 1_000_000u64..2_000_000_000, any::<bool>(), any::<bool>()).prop_map(
        |(from, lasts, is_silent, is_slow)| {
            let to = from + lasts;
            match is_silent {
                true => Trouble::Silence { from, to: from + 1_000_000_000 },
                false => Trouble::Pace { from, to, percent: if is_slow { 10_000 } else { 1 } },
            }
        },
    );
    prop::collection::vec(trouble, 0..4)
}

fn clock() -> impl Strategy<Value = Clock> {
    let jump = (0u64..5_000_000_000, prop_oneof![-2_000_000_000i64..2_000_000_000, -1_000_000i64..1_000_000]);
    prop::collection::vec(jump, 0..4).prop_map(|jumps| Clock { jumps })
}

/// Processor time that may be lost for sure: `policy::regret`'s rule. (The speculation at hand has not told
/// yet what it takes when the next one begins.)
fn may_spend(outcome: &Outcome) -> u64 {
    FIRST + outcome.whole / SHARE + outcome.most_saved + 2 * outcome.dearest
}

/// The same cases each time: who changes the policy is to see what that changes.
const CASES: RngSeed = RngSeed::Fixed(35);

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000, failure_persistence: None, rng_seed: CASES, ..ProptestConfig::default()
    })]

    /// Whatever the program, the disk and the clock do.
    #[test]
    fn what_is_spent_stays_within_the_regret(
        trace in trace(), kind in kind(), troubles in troubles(), clock in clock(),
    ) {
        let play = |ours| replay(&trace, Device::of(kind.clone()).with(troubles.clone()), ours, &clock);
        let ours = play(true);
        prop_assert!(ours.spent <= may_spend(&ours), "{ours:?}");
        // The same input gives the same outcome, to the bit.
        prop_assert_eq!(&ours, &play(true));
        let alone = play(false);
        prop_assert_eq!((alone.spent, alone.looked, alone.held, alone.prefetched), (0, 0, 0, 0));
        prop_assert_eq!(alone.reads, ours.reads);
    }

    /// Where the disk serves many at once, and there are processors enough, the program loses what looks,
    /// restarts and holds take of its time, and that is bounded.
    #[test]
    fn no_program_is_slower_than_alone_by_more_than_it_may_be(
        trace in trace(), latency in 20_000u64..20_000_000, troubles in troubles(), clock in clock(),
    ) {
        let trace = without_faults(Trace { processors: trace.threads.len() as u32 + 1, ..trace });
        let kind = Kind::Fixed { latency_ns: latency, parallel: 1 << 16 };
        let play = |ours| replay(&trace, Device::of(kind.clone()).with(troubles.clone()), ours, &clock);
        let (alone, ours) = (play(false), play(true));
        let costs = trace.costs;
        prop_assert!(ours.looked <= ours.reads * costs.look + ours.stalls * costs.restart, "{ours:?}");
        let may = may_hold(&trace, &ours, latency);
        prop_assert!(ours.held <= may, "{} of {may}: {ours:?}", ours.held);
        let most = alone.elapsed + ours.looked + ours.held + bad_luck(&troubles, latency);
        // Pages that are there already lead the kernel's read-ahead elsewhere: one wait more where a
        // speculation ends.
        let most = most + alone.elapsed / 100 + latency * (trace.threads.len() as u64 + ours.restarts);
        prop_assert!(ours.elapsed <= most, "{} for {}: {ours:?}", ours.elapsed, most);
    }
}

/// Names in the place of page faults: pages asked for one by one are no longer read around, which
/// `policy::strides` bounds by trials and nobody in ns.
fn without_faults(mut trace: Trace) -> Trace {
    for step in trace.threads.iter_mut().flatten() {
        if let What::Touch { page, .. } = step.what {
            step.what = What::Name { number: page as u32 };
        }
    }
    trace
}

/// What is asked for while the disk is in trouble comes late, though the program alone would have asked before
/// or afterwards.
fn bad_luck(troubles: &[Trouble], latency: u64) -> u64 {
    let late = |trouble: &Trouble| match *trouble {
        Trouble::Silence { from, to } => to - from,
        Trouble::Pace { from, to, percent } => to - from + latency * percent / 100,
    };
    troubles.iter().map(late).sum()
}

/// What holds may last beyond the arrival of what was waited for: what `policy::hold` pays from credit, and
/// each what the speculator needs to be in step, where a stall is believed to be that long. (It may be
/// computing, or wait for a name, when it is called.)
fn may_hold(trace: &Trace, outcome: &Outcome, latency: u64) -> u64 {
    let threads = trace.threads.len() as u64;
    let credit = outcome.stalled / CREDIT_PART + outcome.most_saved.max(outcome.saved) / SAVED_PART;
    threads * CREDIT_FIRST + credit + outcome.holds * (trace.costs.sync + TICK + latency)
}
