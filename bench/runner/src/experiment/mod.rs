//! The papers' experiments, one command each, with the paper's figures beside ours.
//!
//! An experiment names workloads, disks and configurations; the session measures them like any others, and
//! the experiment fills its table from the results. `./x bench show NAME` fills it from stored ones. Rows
//! whose capability Runahead does not have yet are printed as such, and fill themselves once its reports
//! hold the figures.

mod fraser;
mod spechint;
mod stored;
mod table;

pub use stored::Stored;
pub use table::{Column, Figure, Row, Table};

use anyhow::{Context, Result};

use crate::results::Record;

/// One table or figure of a paper.
pub struct Experiment {
    pub name: &'static str,
    pub about: &'static str,
    pub workloads: &'static [&'static str],
    pub profiles: &'static [&'static str],
    pub configurations: &'static [&'static str],
    /// Title and origin come on top.
    table: fn(&Stored, &[&str]) -> Table,
}

/// All of them, those of 1999 first.
pub fn every() -> impl Iterator<Item = &'static Experiment> {
    spechint::EXPERIMENTS.iter().chain(fraser::EXPERIMENTS)
}

/// The experiment of that name, if it is one.
pub fn by_name(name: &str) -> Option<&'static Experiment> {
    every().find(|experiment| experiment.name == name)
}

/// As [`by_name`]; an unknown name fails with the list.
pub fn named(name: &str) -> Result<&'static Experiment> {
    by_name(name).with_context(|| format!("there is no experiment '{name}'; these exist:\n{}", known()))
}

/// One line for each.
pub fn known() -> String {
    every().map(|one| format!("  {:<8} {} [{}]\n", one.name, one.about, one.profiles.join(", "))).collect()
}

impl Experiment {
    /// Filled from `records` on the disks asked for, or on its own. Those with one disk show the first.
    pub fn table(&self, records: &[Record], profiles: &[String]) -> Table {
        let asked: Vec<&str> = profiles.iter().map(String::as_str).collect();
        let disks = if asked.is_empty() { self.profiles } else { &asked[..] };
        let stored = Stored { records };
        let mut table = (self.table)(&stored, disks);
        table.other_disk = disks.iter().any(|disk| !self.profiles.contains(disk));
        table.title = format!("{}: {}", self.name, self.about);
        table.notes.extend(stored.origin(self.workloads, disks));
        if table.other_disk {
            let own = self.profiles.join(", ");
            table.notes.push(format!("disk {}; the experiment's is {own}", disks.join(", ")));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{configuration, workload};
    use slowdisk::profile::Profile;

    #[test]
    fn what_an_experiment_names_exists() {
        for experiment in every() {
            assert!(workload::by_name(experiment.name).is_err(), "{} is a workload too", experiment.name);
            for name in experiment.workloads {
                assert!(workload::every().any(|workload| workload.name == *name), "{name}");
            }
            for name in experiment.configurations {
                configuration::by_name(name).unwrap();
            }
            for name in experiment.profiles {
                Profile::by_name(name).unwrap();
            }
        }
        assert!(named("table99").err().unwrap().to_string().contains("fig6"));
    }

    #[test]
    fn an_empty_table_shows_the_papers_figures_and_says_that_ours_are_missing() {
        for experiment in every() {
            let table = experiment.table(&[], &[]);
            let text = table.show();
            assert!(text.contains("not measured yet"), "{text}");
            for row in &table.rows {
                assert_eq!(row.cells.len(), table.columns.len(), "{}: {}", experiment.name, row.label);
            }
        }
        let table4 = named("table4").unwrap().table(&[], &[]).show();
        assert!(table4.contains("13037") && table4.contains("54.9"), "{table4}");
    }
}
