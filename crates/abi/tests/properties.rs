//! The hint log against a model, and the environment variable that strangers may set.
#![cfg(not(loom))]

use proptest::prelude::*;
use runahead_abi::environment::Session;
use runahead_abi::log::{LOG_ENTRIES, Log, Prediction, kind};
use std::collections::HashMap;

fn ring() -> Box<Log> {
    // SAFETY: all zeros is a valid ring: every entry's tag is 0.
    unsafe { Box::<Log>::new_zeroed().assume_init() }
}

fn predictions() -> impl Strategy<Value = Prediction> {
    (any::<u8>(), any::<u8>(), any::<i32>(), any::<u64>(), any::<u64>()).prop_map(
        |(kind, marks, subject, detail, place)| Prediction {
            kind,
            marks,
            file: marks.into(),
            subject,
            detail,
            place,
        },
    )
}

/// Positions that fall onto each other in the ring, and some at the end of all numbers.
fn positions() -> impl Strategy<Value = u32> {
    let lap = LOG_ENTRIES as u32;
    prop_oneof![0..8u32, lap - 4..lap + 4, 3 * lap..3 * lap + 8, u32::MAX - 8..u32::MAX]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// The model: each place of the ring holds the latest entry written to it, under its epoch and position.
    #[test]
    fn the_log_holds_the_latest_of_each_place(
        writes in prop::collection::vec((1u32..5, positions(), predictions()), 0..60),
        reads in prop::collection::vec((0u32..6, positions()), 0..60),
    ) {
        let log = ring();
        let mut model = HashMap::new();
        for (epoch, position, prediction) in &writes {
            log.write(*epoch, *position, prediction);
            model.insert(*position as usize % LOG_ENTRIES, (*epoch, *position, *prediction));
        }
        let written = writes.iter().map(|(epoch, position, _)| (*epoch, *position));
        for (epoch, position) in reads.iter().copied().chain(written) {
            let expected = model
                .get(&(position as usize % LOG_ENTRIES))
                .filter(|(e, p, _)| (*e, *p) == (epoch, position))
                .map(|(_, _, prediction)| *prediction);
            prop_assert_eq!(log.read(epoch, position), expected);
        }
    }

    /// What decides whether the program went as foretold: all of a read at an offset, the descriptor alone of
    /// a read at its own position; never the marks.
    #[test]
    fn marks_do_not_matter_for_the_track(mut one in predictions(), marks in any::<u8>(), length in any::<u64>(), own in any::<bool>()) {
        if own {
            one.kind = kind::READ;
        }
        let marked = Prediction { marks, ..one };
        prop_assert!(one.same_operation(&marked));
        let longer = Prediction { detail: length, ..one };
        prop_assert_eq!(one.same_operation(&longer), length == one.detail || one.kind == kind::READ);
        let elsewhere = Prediction { subject: one.subject.wrapping_add(1), ..one };
        prop_assert!(!one.same_operation(&elsewhere));
        let other = Prediction { kind: one.kind.wrapping_add(1), ..one };
        prop_assert!(!one.same_operation(&other));
    }

    #[test]
    fn what_the_host_writes_is_read_back(
        numbers in prop::array::uniform5(0u32..1_000_000_000),
        cookie in prop::array::uniform2(1u64..),
    ) {
        let [host, descriptor, flags, filters, sites] = numbers;
        let session = Session { host, descriptor, flags, filters, cookie, sites };
        prop_assert_eq!(Session::parse(session.to_string().as_bytes()), Some(session));
    }

    /// Any bytes: no panic, and nothing is made of what is not there.
    #[test]
    fn garbage_in_the_environment_is_refused_or_meant(
        value in "[0-9:x/ -]{0,40}|([0-9]{0,13}:){4}[0-9a-g]{31,33}:[0-9a-z/:]{0,10}|([0-9]{1,9}:){4}[0-9a-f]{32}:[0-9]{1,10}",
    ) {
        if let Some(session) = Session::parse(value.as_bytes()) {
            let Session { host, descriptor, flags, filters, cookie, sites } = session;
            let fields: Vec<&str> = value.split(':').collect();
            prop_assert_eq!(fields.len(), 6);
            let number = |at: usize| fields[at].parse::<u32>().unwrap();
            prop_assert_eq!([0, 1, 2, 3, 5].map(number), [host, descriptor, flags, filters, sites]);
            prop_assert_eq!(u128::from_str_radix(fields[4], 16).unwrap(), u128::from(cookie[0]) << 64 | u128::from(cookie[1]));
        }
    }
}
