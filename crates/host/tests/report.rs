//! The report's JSON: what docs/report.md says it holds, whatever the processes have counted.

use proptest::prelude::*;
use runahead_abi::session::Slot;
use runahead_host::counts::Counts;
use runahead_host::report::{ProgramCounts, Report};
use serde_json::Value;
use std::collections::BTreeSet;

const MANUAL: &str = include_str!("../../../docs/report.md");

/// A slot in which all words hold what `word` gives.
fn slot(mut word: impl FnMut() -> u64) -> Box<Slot> {
    // SAFETY: all zeros is a valid slot.
    let mut slot = unsafe { Box::<Slot>::new_zeroed().assume_init() };
    let words = size_of::<Slot>() / 8;
    let start = (&raw mut *slot).cast::<u64>();
    for at in 0..words {
        // SAFETY: inside the slot, whose fields are words of which any value is valid.
        unsafe { start.add(at).write(word()) };
    }
    slot
}

fn report(slots: &[Box<Slot>]) -> Report {
    let mut counts = Counts::default();
    for slot in slots {
        counts.add(slot);
    }
    let command = vec!["grep".to_owned(), "\"\u{fffd}\n\\".to_owned()];
    Report {
        version: 1,
        command: command.into_iter().map(Into::into).collect(),
        elapsed_ns: u64::MAX,
        plainly_because: Some("a reason".to_owned()),
        left_because: None,
        speculated: true,
        program: Some(ProgramCounts {
            processor_ns: 1,
            queued_ns: 2,
            major_faults: 3,
            device_bytes: 4,
            read_ahead_bytes: 5,
        }),
        counts,
    }
}

/// A field whose own fields are named by what was seen.
const FREE: &str = "counts.speculator.endings.system_calls";

/// The names of all fields, with those they lie in: `counts.speculator.syncs`.
fn names(value: &Value, before: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if before != FREE => {
            for (name, field) in fields {
                let name = if before.is_empty() { name.clone() } else { format!("{before}.{name}") };
                names(field, &name, into);
            }
        }
        _ => assert!(into.insert(before.to_owned())),
    }
}

/// The first cells of the manual's tables.
fn documented() -> BTreeSet<String> {
    MANUAL
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[test]
fn the_manual_names_every_field_and_no_other() {
    // All ones: every optional field is there.
    let value = serde_json::to_value(report(&[slot(|| 1)])).unwrap();
    let mut written = BTreeSet::new();
    names(&value, "", &mut written);
    let documented = documented();
    let missing: Vec<_> = written.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&written).collect();
    assert!(missing.is_empty(), "not in docs/report.md: {missing:?}");
    assert!(gone.is_empty(), "in docs/report.md, but not in the report: {gone:?}");
}

#[test]
fn the_manual_tells_the_version() {
    let said = format!("always {}", report(&[]).version);
    assert!(MANUAL.contains(&said), "docs/report.md does not say '{said}'");
}

#[test]
fn the_manuals_example_is_a_report() {
    let (_, rest) = MANUAL.split_once("```json\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("the example's end");
    let example: Value = serde_json::from_str(example).expect("the example is JSON");
    let (mut shown, mut written) = (BTreeSet::new(), BTreeSet::new());
    names(&example, "", &mut shown);
    names(&serde_json::to_value(report(&[])).unwrap(), "", &mut written);
    assert_eq!(shown, written);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// A process may have written anything into its slot.
    #[test]
    fn garbage_counts_make_a_sound_report(seed in any::<u64>(), slots in 1usize..4) {
        let mut state = seed | 1;
        let mut noise = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if state >> 62 == 0 { u64::MAX - (state >> 60) } else { state }
        };
        let slots: Vec<_> = (0..slots).map(|_| slot(&mut noise)).collect();
        let report = report(&slots);
        let text = serde_json::to_string_pretty(&report).unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&read["command"][1], "\"\u{fffd}\n\\");
        prop_assert_eq!(&read["counts"]["reads"], report.counts.reads);
        prop_assert_eq!(&read["counts"]["processes"], slots.len());
    }
}
