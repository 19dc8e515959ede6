//! Two sets of results side by side: did it become faster or slower?

use std::fmt::Write;

use crate::results::{Record, median};

/// Two measurements of the same thing on an emulated disk are to agree within this.
pub const AGREEMENT: f64 = 0.08;

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
