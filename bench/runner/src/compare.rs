//! Two sets of results side by side: did it become faster or slower?

use std::fmt::Write;

use crate::results::{Record, median};

/// Two measurements of the same thing on an emulated disk are to agree within this.
pub const AGREEMENT: f64 = 0.08;

/// Consecutive measurements of one workload on one disk at one commit: how well do they agree?
pub struct Repetition<'a> {
    pub first: &'a Record,
    pub second: &'a Record,
    /// The ratio alone over ours in each.
    pub ratios: (f64, f64),
}

impl Repetition<'_> {
    pub fn change(&self) -> f64 {
        self.ratios.1 / self.ratios.0
    }

    pub fn agrees(&self) -> bool {
        (self.change() - 1.0).abs() <= AGREEMENT
    }
}

/// Every record with the latest earlier one of the same kind.
pub fn repetitions(records: &[Record]) -> Vec<Repetition<'_>> {
    let ratio = |one: &Record| one.summary.configurations.get("runahead").and_then(|figures| figures.ratio);
    let alike = |one: &Record, other: &Record| {
        (&one.workload, &one.disk.profile, &one.commit, one.machine.processors)
            == (&other.workload, &other.disk.profile, &other.commit, other.machine.processors)
    };
    let mut sorted: Vec<&Record> = records.iter().filter(|record| ratio(record).is_some()).collect();
    sorted.sort_by_key(|record| record.time);
    let pair = |(index, second): (usize, &&'_ Record)| {
        let first = sorted[..index].iter().rev().find(|first| alike(first, second))?;
        Some((index, *first))
    };
    let pairs: Vec<(usize, &Record)> = sorted.iter().enumerate().filter_map(pair).collect();
    pairs
        .into_iter()
        .filter_map(|(index, first)| {
            let second = sorted[index];
            Some(Repetition { first, second, ratios: (ratio(first)?, ratio(second)?) })
        })
        .collect()
}

/// The repetitions within one set of results, and whether each agrees within 8%.
pub fn agreement(records: &[Record]) -> String {
    let repetitions = repetitions(records);
    let mut text = format!(
        "{:<16}{:<10}{:<15}{:>10}{:>10}{:>10}\n",
        "workload", "disk", "commit", "ratio 1st", "2nd", "2nd/1st"
    );
    for one in &repetitions {
        let marked = !one.first.marks.is_empty() || !one.second.marks.is_empty();
        let _ = writeln!(
            text,
            "{:<16}{:<10}{:<15}{:>10.2}{:>10.2}{:>10.2}  {}{}",
            one.first.workload,
            one.first.disk.profile,
            one.first.commit,
            one.ratios.0,
            one.ratios.1,
            one.change(),
            if one.agrees() { "agrees within 8%" } else { "DISAGREES by more than 8%" },
            if marked { " (marked)" } else { "" },
        );
    }
    let agreeing = repetitions.iter().filter(|one| one.agrees()).count();
    let _ = match repetitions.len() {
        0 => writeln!(
            text,
            "nothing was measured twice at one commit, so how well repetitions agree is not known"
        ),
        all => writeln!(text, "{agreeing} of {all} repetitions agree within 8%"),
    };
    text
}

/// For each workload and disk that both have: the ratio alone over ours in both, and the change.
pub fn show(before: &[Record], after: &[Record]) -> String {
    let mut text = format!(
        "{:<14}{:<9}{:>12}{:>12}{:>10}{:>12}{:>12}\n",
        "workload", "disk", "ratio A", "ratio B", "B over A", "ours A s", "ours B s"
    );
    let mut pairs = 0;
    let mut keys: Vec<(&str, &str)> =
        before.iter().map(|record| (record.workload.as_str(), record.disk.profile.as_str())).collect();
    keys.sort_unstable();
    keys.dedup();
    for (workload, profile) in keys {
        let of = |records: &[Record]| -> Option<(f64, f64, bool)> {
            let same: Vec<&Record> = records
                .iter()
                .filter(|one| one.workload == workload && one.disk.profile == profile)
                .collect();
            let ours = |record: &&Record| record.summary.configurations.get("runahead").cloned();
            let figures: Vec<_> =
                same.iter().filter_map(ours).filter(|figures| figures.ratio.is_some()).collect();
            let marked = same.iter().any(|record| !record.marks.is_empty());
            (!figures.is_empty()).then(|| {
                (
                    median(figures.iter().filter_map(|one| one.ratio)),
                    median(figures.iter().map(|one| one.median)),
                    marked,
                )
            })
        };
        let (Some(a), Some(b)) = (of(before), of(after)) else {
            continue;
        };
        pairs += 1;
        let change = b.0 / a.0;
        let verdict = match change {
            change if change > 1.0 + AGREEMENT => "better",
            change if change < 1.0 - AGREEMENT => "WORSE",
            _ => "same within 8%",
        };
        let marked = if a.2 || b.2 { " (marked)" } else { "" };
        let _ = writeln!(
            text,
            "{workload:<14}{profile:<9}{:>12.2}{:>12.2}{change:>10.2}{:>12.3}{:>12.3}  {verdict}{marked}",
            a.0, b.0, a.1, b.1
        );
    }
    if pairs == 0 {
        text += "no workload was measured on the same disk in both\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::record;

    #[test]
    fn consecutive_repetitions_agree_or_not() {
        let mut records =
            [record("grep", 1, 10.0, 2.0), record("grep", 3, 10.0, 1.5), record("grep", 2, 10.0, 2.1)];
        let text = agreement(&records);
        // By time: 5.0, 4.76, 6.67.
        assert!(text.contains("1 of 2 repetitions agree") && text.contains("DISAGREES"), "{text}");
        records[1].commit = "other".into();
        assert!(agreement(&records).contains("1 of 1 repetitions agree"));
        records[2].workload = "tar".into();
        assert!(agreement(&records).contains("nothing was measured twice"));
    }

    #[test]
    fn two_sets_are_compared() {
        let (before, after) = ([record("grep", 1, 10.0, 2.0)], [record("grep", 2, 10.0, 4.0)]);
        assert!(show(&before, &after).contains("WORSE"));
        assert!(show(&after, &before).contains("better"));
        assert!(show(&before, &before).contains("same within 8%"));
        assert!(show(&before, &[record("tar", 1, 1.0, 1.0)]).contains("no workload"));
    }
}
