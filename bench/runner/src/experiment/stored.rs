//! What results say about a program on a disk.

use serde_json::Value;

use super::table::Figure;
use crate::results::{Figures, Record, Run, median};

/// Results to fill tables from; a later record counts more than an earlier one.
pub struct Stored<'a> {
    pub records: &'a [Record],
}

/// One workload's runs under one configuration on one disk.
pub struct Found<'a> {
    pub record: &'a Record,
    pub figures: &'a Figures,
    pub runs: Vec<&'a Run>,
}

impl<'a> Stored<'a> {
    pub fn find(&self, workload: &str, profile: &str, configuration: &str) -> Option<Found<'a>> {
        let of = |record: &&Record| record.workload == workload && record.disk.profile == profile;
        let with = |record: &'a Record| {
            let figures = record.summary.configurations.get(configuration)?;
            let runs = record.runs.iter().filter(|run| run.configuration == configuration).collect();
            Some(Found { record, figures, runs })
        };
        let mut found: Vec<Found> = self.records.iter().filter(of).filter_map(with).collect();
        found.sort_by_key(|found| found.record.time);
        found.pop()
    }

    /// Elapsed seconds, median.
    pub fn seconds(&self, workload: &str, profile: &str, configuration: &str) -> Option<f64> {
        self.find(workload, profile, configuration).map(|found| found.figures.median)
    }

    /// Percent of the time of the program alone that a configuration saves.
    pub fn improvement(&self, workload: &str, profile: &str, configuration: &str) -> Option<f64> {
        let found = self.find(workload, profile, configuration)?;
        let alone = found.record.summary.configurations.get("alone")?;
        Some(100.0 * (1.0 - found.figures.median / alone.median))
    }

    /// Commits and disks of what was found, and its reservations: the foot of every table.
    pub fn origin(&self, workloads: &[&str], profiles: &[&str]) -> Vec<String> {
        let used = self.records.iter().filter(|record| {
            workloads.contains(&record.workload.as_str()) && profiles.contains(&record.disk.profile.as_str())
        });
        let mut lines = Vec::new();
        for record in used {
            let line = format!(
                "ours: commit {} on disk {}, {} with {} processors",
                record.commit, record.disk.profile, record.machine.processor, record.machine.processors
            );
            if !lines.contains(&line) {
                lines.push(line);
            }
            if !record.equal() {
                lines.push(format!("! {} on {}: OUTPUTS DIFFER", record.workload, record.disk.profile));
            }
            if !record.marks.is_empty() {
                let (workload, disk) = (&record.workload, &record.disk.profile);
                lines.push(format!(
                    "! {workload} on {disk}: {} reservations, the first: {}",
                    record.marks.len(),
                    record.marks[0]
                ));
            }
        }
        lines
    }
}

impl Found<'_> {
    /// Median over the runs; None if any has none.
    pub fn median(&self, value: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        let values: Option<Vec<f64>> = self.runs.iter().map(|run| value(run)).collect();
        values.filter(|values| !values.is_empty()).map(median)
    }

    /// Median of a number in Runahead's own report, by its path (`/counts/reads`).
    pub fn reported(&self, path: &str) -> Option<f64> {
        self.median(|run| run.report.as_ref()?.pointer(path).and_then(Value::as_f64))
    }

    /// One reported number in percent of another.
    pub fn reported_percent(&self, part: &str, whole: &str) -> Option<f64> {
        let (part, whole) = (self.reported(part)?, self.reported(whole)?);
        (whole > 0.0).then(|| 100.0 * part / whole)
    }
}

/// Why a figure of ours is missing.
pub const NOT_MEASURED: &str = "not measured yet";

/// Who is killed reports nothing.
pub const ENDED: &str = "the run was ended before it was over, as it took too long";

/// What `value` makes of the runs found, or why there is none.
pub fn figure(found: Option<&Found>, value: impl Fn(&Found) -> Option<f64>) -> Figure {
    match found {
        None => Figure::Missing(NOT_MEASURED.into()),
        Some(found) if found.figures.late => Figure::Missing(ENDED.into()),
        Some(found) => Figure::or(value(found), "the runs' reports do not say"),
    }
}

/// Whether Runahead speculates from page faults: its report counts them then.
pub fn speculates_on_faults(found: &Found) -> bool {
    found.reported("/counts/faults/seen").is_some()
}
