//! What is run: real programs where one exists, over sets of [`crate::data`].
//!
//! A workload's command starts in the directory that holds the data sets on the disk under test, names
//! its files relative to it, and writes nothing there: what it must write goes to a scratch directory in
//! memory and is compared like its output.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::data;

mod table;

use table::EVERY;
pub use table::WORKLOADS;

/// One program on one set of data.
pub struct Workload {
    pub name: &'static str,
    pub about: &'static str,
    /// Sets that must be on the disk.
    pub data: &'static [&'static str],
    /// Commands and the Debian packages that hold them.
    pub needs: &'static [(&'static str, &'static str)],
    /// What issue 2 asks for: alone over ours, at least.
    pub floor: Option<Floor>,
    /// Lists of workloads that this one belongs to.
    pub lists: &'static [&'static str],
    /// What it touches on the disk.
    pub touches: Touches,
    command: fn(&Place) -> Result<Vec<OsString>>,
}

#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Floor {
    pub native: f64,
    /// On the disk of 1 ms.
    pub cloud: f64,
}

/// Which of a set's files a workload touches, and how.
pub enum Touches {
    /// The contents of the first so many files of the set's list.
    Contents(&'static str, usize),
    /// Names and attributes only.
    Names(&'static str),
}

/// Where a workload finds things.
pub struct Place {
    /// Holds the sets; the command's working directory.
    pub disk: PathBuf,
    /// Holds the lists (`NAME.files`), not on the disk under test.
    pub data: PathBuf,
    /// For what the command writes; emptied before each run.
    pub scratch: PathBuf,
    /// Our own programs.
    pub programs: PathBuf,
    /// The checkout's `bench` folder.
    pub bench: PathBuf,
}

/// The names of lists, each with what it is.
pub const LISTS: [(&str, &str); 5] = [
    ("core", "issue 2's table"),
    ("today", "more of what people run"),
    ("controls", "those that cannot gain: nothing to wait for, or nothing to foresee"),
    ("smoke", "small ones, to see that everything works"),
    ("all", "every workload"),
];

/// The workloads of that name or list; an unknown name fails with all that exist.
pub fn by_name(name: &str) -> Result<Vec<&'static Workload>> {
    let found: Vec<_> =
        WORKLOADS.iter().filter(|workload| workload.name == name || workload.lists.contains(&name)).collect();
    if found.is_empty() {
        anyhow::bail!("there is no workload '{name}'; these exist:\n{}", known());
    }
    Ok(found)
}

/// All lists and workloads, one a line.
pub fn known() -> String {
    let lists = LISTS.iter().map(|(name, about)| format!("  {name:<14} {about}\n"));
    let workloads = WORKLOADS.iter().map(|workload| format!("  {:<14} {}\n", workload.name, workload.about));
    lists.chain(workloads).collect()
}

impl Workload {
    /// The program and its arguments.
    pub fn command(&self, place: &Place) -> Result<Vec<OsString>> {
        (self.command)(place).with_context(|| format!("cannot put the command of '{}' together", self.name))
    }

    /// The files that it touches, relative to [`Place::disk`].
    pub fn files(&self, place: &Place) -> Result<Vec<String>> {
        let (set, count) = match self.touches {
            Touches::Contents(set, count) => (set, count),
            Touches::Names(set) => (set, EVERY),
        };
        let mut files = data::files(&place.data, set)?;
        files.truncate(count);
        Ok(files)
    }

    pub fn reads_contents(&self) -> bool {
        matches!(self.touches, Touches::Contents(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_their_data_exist() {
        let mut seen: HashSet<&str> = LISTS.iter().map(|(name, _)| *name).collect();
        for workload in WORKLOADS {
            assert!(seen.insert(workload.name), "{} twice", workload.name);
            for set in workload.data {
                assert!(data::by_name(set).is_ok(), "{set}");
            }
        }
    }

    #[test]
    fn every_list_has_workloads_and_core_has_floors() {
        for (list, _) in LISTS {
            assert!(!by_name(list).unwrap().is_empty());
        }
        assert!(by_name("core").unwrap().iter().all(|workload| workload.floor.is_some()));
    }

    #[test]
    fn an_unknown_name_fails_with_the_list() {
        let message = by_name("solitaire").err().unwrap().to_string();
        assert!(message.contains("agrep") && message.contains("smoke"), "{message}");
    }
}
