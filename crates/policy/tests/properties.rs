//! What the state machines promise for any sequence of events.

use proptest::prelude::*;
use runahead_policy::attention::{Attention, CALM_AFTER, SKIP_LONGEST, SKIP_MOST};
use runahead_policy::depth::{Depth, Disk, MOST, START};
use runahead_policy::hold::{
    CREDIT_FIRST, CREDIT_MOST, CREDIT_PART, Hold, LONGEST_PERCENT, LONGEST_STALL, SHORTEST_STALL,
    WORTH_PERCENT, Wait,
};
use runahead_policy::strides::{DEPTH_MOST, Strides};
use runahead_policy::touches::{AHEAD_MOST, Seen, Then, Touches};
use runahead_policy::track::{AtStall, LAG_STALLS, Next, Passing, Track};
use runahead_policy::worth::Worth;

fn next() -> impl Strategy<Value = Next> {
    prop_oneof![
        8 => Just(Next::Foretold),
        4 => Just(Next::NotYet),
        1 => Just(Next::Different),
        1 => Just(Next::Never),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A program's reads: what the log says of each, whether it waits, and how far behind the speculator is.
    /// The agent posts when it is told to, as it does in truth.
    #[test]
    fn track_keeps_its_promises(
        stretches in prop::collection::vec((next(), 0u32..10, 0u32..4, 1usize..12), 0..40),
    ) {
        let reads = stretches.into_iter().flat_map(|(next, stalls, gap, times)| {
            std::iter::repeat_n((next, stalls > 2, gap), times)
        });
        let mut track = Track::default();
        let mut cancels = 0;
        let mut posts = 0;
        // Gaps found by the stalls of the present lag.
        let mut gaps = Vec::new();
        for (next, stalls, gap) in reads {
            let was_on = track.is_on();
            let passing = track.passes(next);
            match passing {
                Passing::Pass => {
                    prop_assert!(was_on, "nothing passes off track");
                    prop_assert!(matches!(next, Next::Foretold | Next::NotYet));
                    prop_assert!(track.is_on());
                }
                Passing::Off { cancel } => {
                    prop_assert!(!track.is_on());
                    // A mismatch cancels, and nothing else does.
                    prop_assert_eq!(cancel, was_on && next == Next::Different);
                    prop_assert!(!was_on || matches!(next, Next::Different | Next::Never));
                    cancels += u32::from(cancel);
                }
            }
            // At most once an epoch: between two posts (before the first there is nothing to cancel).
            prop_assert!(cancels <= posts);
            if passing == Passing::Pass && next == Next::Foretold {
                gaps.clear();
            }
            if !stalls {
                continue;
            }
            let on = track.is_on();
            let answer = track.stalls(gap);
            if on && next == Next::Foretold {
                prop_assert_eq!(answer, AtStall::Block, "a foretold stall never posts");
            }
            if !on {
                prop_assert_eq!(answer, AtStall::Post, "off track each stall posts");
            }
            if on && next == Next::NotYet {
                gaps.push(gap);
                // Let be while it comes closer; at the last of so many in a row that did not, no more.
                let (closest, _) = gaps.iter().enumerate().min_by_key(|&(at, gap)| (gap, at)).unwrap();
                let in_vain = gaps.len() - 1 - closest;
                prop_assert_eq!(answer == AtStall::Post, in_vain >= LAG_STALLS as usize);
            }
            if answer == AtStall::Post {
                prop_assert!(!track.is_on());
                track.posted();
                prop_assert!(track.is_on());
                posts += 1;
                cancels = cancels.min(posts - 1);
                gaps.clear();
            }
        }
    }

    /// Whatever the device and the program do: a hold is a part of the expected stall, and only where a
    /// sync is known to fit, or it is paid for.
    #[test]
    fn holds_are_bounded(
        stalls in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..10_000_000], 0..40),
        sync in prop_oneof![any::<u64>(), 0u64..10_000_000],
    ) {
        let mut hold = Hold::default();
        for &ns in &stalls {
            hold.stalled(ns);
            prop_assert!(hold.expected_stall() <= LONGEST_STALL);
        }
        let wait = hold.wait(sync);
        if wait != Wait::Not {
            prop_assert!(sync > 0 && hold.expected_stall() >= SHORTEST_STALL);
        }
        match wait {
            Wait::Not => {}
            Wait::Within(longest) => {
                prop_assert!(longest <= hold.expected_stall() / 100 * LONGEST_PERCENT);
                prop_assert!(sync <= hold.expected_stall() / 100 * WORTH_PERCENT);
            }
            Wait::Invest(longest) => {
                prop_assert!(longest > sync);
                prop_assert!(longest <= hold.expected_stall() + CREDIT_FIRST + CREDIT_MOST);
            }
        }
    }

    /// Holds beyond their stalls cost no more than the credit at the start, a part of all stalls, and a part
    /// of what they brought.
    #[test]
    fn investments_are_paid_for(posts in prop::collection::vec(
        (30_000u64..1_000_000, 1_000u64..3_000_000, 0u32..100), 1..300,
    )) {
        let mut hold = Hold::default();
        let (mut stalled, mut brought, mut cost) = (0, 0, 0);
        for (stall, sync, saved) in posts {
            hold.stalled(stall);
            stalled += stall;
            if let Wait::Invest(longest) = hold.wait(sync) {
                hold.invested(longest);
                cost += longest.saturating_sub(hold.expected_stall());
            }
            brought += u64::from(saved) * hold.expected_stall();
            (0..saved).for_each(|_| hold.saved());
            hold.posts();
        }
        prop_assert!(cost <= CREDIT_FIRST + stalled / CREDIT_PART + brought, "{cost} of {stalled}");
    }

    /// The estimate lies within what was seen, and follows a device that has become another one.
    #[test]
    fn the_expected_stall_is_of_this_device(
        before in 1_000u64..20_000_000,
        after in 1_000u64..20_000_000,
        outlier in 0u64..u64::MAX,
    ) {
        let mut hold = Hold::default();
        for _ in 0..200 {
            hold.stalled(before);
        }
        let steady = hold.expected_stall();
        prop_assert!(steady.abs_diff(before) <= before / 100 + 64, "{steady} for stalls of {before}");
        hold.stalled(outlier);
        prop_assert!(hold.expected_stall() <= steady / 8 * 12 + 64, "one outlier counts for little");
        for _ in 0..200 {
            hold.stalled(after);
        }
        let steady = hold.expected_stall();
        prop_assert!(steady.abs_diff(after) <= after / 100 + 64, "{steady} for stalls of {after}");
    }

    /// The depth is at least one, never beyond the greatest, and never grows by waste.
    #[test]
    fn depth_stays_within_bounds(events in prop::collection::vec(prop_oneof![
        Just(Some(true)), Just(Some(false)), Just(None)
    ], 0..1000), disk in prop_oneof![Just(Disk::Usual), Just(Disk::Slow), Just(Disk::Crowded)]) {
        let mut depth = Depth::new();
        for event in events {
            let before = depth.operations(disk);
            match event {
                Some(useful) => {
                    depth.judged(useful);
                    if !useful {
                        prop_assert!(depth.operations(disk) <= before);
                    }
                }
                None => {
                    depth.grow(disk);
                    prop_assert!(depth.operations(disk) >= before);
                }
            }
            prop_assert!((1..=MOST).contains(&depth.operations(disk)));
        }
        // From wherever it stands: nothing but waste makes it small, nothing but use brings it back.
        for _ in 0..1000 {
            depth.judged(false);
            depth.grow(disk);
        }
        prop_assert!(depth.operations(disk) < START / 8);
        for _ in 0..1000 {
            depth.judged(true);
        }
        prop_assert!(depth.operations(disk) >= START);
    }

    /// While all is waste there is no growth that use could bring to light later.
    #[test]
    fn waste_does_not_grow(growths in 1usize..20) {
        let mut depth = Depth::new();
        for _ in 0..1000 {
            depth.judged(false);
        }
        for _ in 0..growths {
            depth.grow(Disk::Usual);
        }
        for _ in 0..1000 {
            depth.judged(true);
        }
        prop_assert_eq!(depth.operations(Disk::Usual), START);
    }

    /// Posts that do not pay are hardly made, those that do are hardly ever left out, whatever the stretches'
    /// times are.
    #[test]
    fn the_better_way_is_kept(
        fast in 1_000u64..5_000_000,
        percent in 200u64..2000,
        pays in any::<bool>(),
        seed in 0u64..1000,
    ) {
        let slow = fast * percent / 100;
        let (with, without) = if pays { (fast, slow) } else { (slow, fast) };
        let mut worth = Worth::default();
        let (mut now, mut noise, mut posting) = (0u64, seed, 0u32);
        const READS: u32 = 20_000;
        for _ in 0..READS {
            let posts = worth.posting();
            if posts {
                posting += 1;
                worth.posted(false);
            }
            // A fifth up or down.
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let took = if posts { with } else { without };
            now += took - took / 5 + took * 2 / 5 * (noise >> 54) / 1024;
            worth.read(false, 50_000, 10_000, || now);
        }
        let wrong = if pays { READS - posting } else { posting };
        prop_assert!(wrong < READS / 25, "{wrong} of {READS} the wrong way");
    }

    /// After a stall every read is looked at for a while; a program that only hits is hardly looked at.
    #[test]
    fn attention_wakes_at_once_and_calms_down(hits_before in 0u32..2000, hits in 0u32..2000) {
        let mut attention = Attention::default();
        for _ in 0..hits_before {
            prop_assert!(attention.hit() <= SKIP_LONGEST);
        }
        attention.stall();
        let (mut skipped_in_all, mut looks) = (0, 0);
        for at in 0..hits {
            let skipped = attention.hit();
            prop_assert_eq!(attention.active(), at + 1 < CALM_AFTER);
            prop_assert_eq!(skipped == 0, attention.active());
            prop_assert!(skipped <= SKIP_LONGEST);
            if at > CALM_AFTER + 10 {
                (skipped_in_all, looks) = (skipped_in_all + skipped, looks + 1);
            }
        }
        if looks > 200 {
            prop_assert!((SKIP_MOST * 8 / 10..=SKIP_MOST * 12 / 10).contains(&(skipped_in_all / looks)));
        }
    }

    /// Whatever faults: what is asked for stays bounded, and every number is survived.
    #[test]
    fn strides_survive_any_faults(
        faults in prop::collection::vec((0u64..20, any::<u64>(), 0u8..4, any::<bool>(), 0u32..300), 0..400),
        room in 0u32..100_000,
    ) {
        let mut strides = Strides::default();
        let mut address = 0u64;
        for (instruction, number, how, cached, new) in faults {
            address = match how {
                0 => number,
                1 => address.wrapping_add(number % 1_000_000),
                2 => address.wrapping_add(65536),
                _ => address.wrapping_sub(1 << 20),
            };
            let outcome = strides.fault(instruction, address, room);
            if outcome.look.is_some() {
                strides.judged(outcome.stream, cached);
            }
            if let Some(ask) = outcome.ask {
                prop_assert!(ask.count <= DEPTH_MOST && ask.first + ask.count <= DEPTH_MOST + 1);
                prop_assert!(ask.addresses().all(|asked| asked != address));
                strides.asked(outcome.stream, new);
            }
        }
    }

    /// A walk is asked for once each, in order, never behind the program, whatever its stride, and however many
    /// of its faults are missing since pages were there already: but for eight times in a row as many, which is another stride.
    #[test]
    fn a_walk_is_asked_for_once(
        start in (1u64 << 40)..(1 << 41),
        stride in prop_oneof![8192i64..10_000_000, -10_000_000i64..-8191],
        skips in prop::collection::vec(1u64..6, 10..300),
    ) {
        let mut strides = Strides::default();
        let (mut step, mut next) = (0u64, None);
        for (number, skip) in skips.into_iter().enumerate() {
            // The stride is learnt where every step faults.
            step += if number < 5 || number % 7 == 0 { 1 } else { skip };
            let outcome = strides.fault(1, start.wrapping_add_signed(stride * step as i64), 1000);
            if outcome.look.is_some() {
                strides.judged(outcome.stream, false);
            }
            let Some(ask) = outcome.ask else { continue };
            strides.asked(outcome.stream, ask.count);
            for asked in ask.addresses() {
                let at = asked.wrapping_sub(start) as i64;
                prop_assert_eq!(at % stride, 0);
                let at = (at / stride) as u64;
                prop_assert!(at > step);
                // Where the program skipped past all that was asked for, it goes on from there.
                prop_assert!(next.is_none_or(|next| at == next || (at > next && at == step + 1)));
                next = Some(at + 1);
            }
        }
        prop_assert!(next.is_some());
    }

    /// Whatever faults: positions only grow from one restart to the next, only a page that waits restarts, and one
    /// that is merely in memory says nothing.
    #[test]
    fn touches_keep_their_promises(
        faults in prop::collection::vec((0u8..4, 0u32..100, any::<bool>(), 0u32..100, 0u8..20), 0..500),
    ) {
        let mut touches = Touches::default();
        let mut passed = 0;
        for (kind, position, fetched, written, scan) in faults {
            let seen = match kind {
                0 | 1 => Seen::Foretold { position, fetched },
                2 => Seen::Cached,
                _ => Seen::Missing,
            };
            let then = touches.fault(seen, (written > 5).then_some(written));
            prop_assert!(touches.passed() >= passed);
            prop_assert!((1..=AHEAD_MOST).contains(&touches.ahead()));
            passed = touches.passed();
            match then {
                Then::Nothing => {}
                Then::Passed => prop_assert_eq!(Seen::Foretold { position: passed - 1, fetched }, seen),
                Then::Post => {
                    prop_assert_eq!(seen, Seen::Missing);
                    touches.posted(0);
                    passed = 0;
                }
            }
            if scan == 0 {
                touches.met_scan();
            }
        }
    }
}
