//! What is run: real programs where one exists, over sets of [`crate::data`].
//!
//! A workload's command starts in the directory that holds the data sets on the disk under test, names
//! its files relative to it, and writes nothing there: what it must write goes to a scratch directory in
//! memory and is compared like its output.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::configuration::Configuration;
use crate::data;

mod commands;
mod containers;
mod controls;
mod manager;
mod mapped;
mod papers;
mod table;
mod today;

use commands::EVERY;

/// Every workload, in the order of reports.
pub fn every() -> impl Iterator<Item = &'static Workload> {
    [
        papers::WORKLOADS,
        table::WORKLOADS,
        today::WORKLOADS,
        manager::WORKLOADS,
        mapped::WORKLOADS,
        containers::WORKLOADS,
        controls::WORKLOADS,
    ]
    .into_iter()
    .flatten()
}

/// Puts a command together: the program and its arguments.
type MakeCommand = fn(&Place) -> Result<Vec<OsString>>;

/// One program on one set of data.
pub struct Workload {
    pub name: &'static str,
    pub about: &'static str,
    /// Sets that must be on the disk.
    pub data: &'static [&'static str],
    /// Commands and the Debian packages that hold them.
    pub needs: &'static [(&'static str, &'static str)],
    /// What is asked for: alone over ours, at least.
    pub floor: Option<Floor>,
    /// Lists of workloads that this one belongs to.
    pub lists: &'static [&'static str],
    /// What it touches on the disk.
    pub touches: Touches,
    command: MakeCommand,
    /// The same with hints written into the program by hand, where its source is ours.
    manual: Option<MakeCommand>,
    /// The same with hints through Runahead's own interface.
    hinted: Option<MakeCommand>,
    /// A file from which somebody else reads meanwhile ([`crate::neighbour`]).
    pub neighbour: Option<&'static str>,
    /// How it ends by itself when all is well.
    pub exit: i32,
    /// Programs that it starts besides its first word: they are read in beforehand like that one.
    pub helpers: &'static [&'static str],
    /// Megabytes of memory that the run may use, page cache included; None: what the machine has.
    pub memory_mb: Option<u64>,
    /// Megabytes of swap on the disk under test.
    pub swap_mb: Option<u64>,
    /// Percent of its files' pages that are cached when it begins, here and there.
    pub resident_percent: u64,
    /// Megabytes that it writes on the disk under test, to a file without a name.
    pub writes_mb: u64,
    /// Its program refuses to run as root: Runahead and it are started as `nobody` there.
    pub never_root: bool,
    /// What it asks of Runahead that reads alone do not.
    pub wants: Option<Capability>,
}

/// What a workload of the papers needs to gain anything, beyond speculation over reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Speculation from page faults: the program's data are mapped or swapped, it makes no reads.
    PageFaults,
}

/// What most workloads have in common; the empty name belongs to none.
const PLAIN: Workload = Workload {
    name: "",
    about: "",
    data: &[],
    needs: &[],
    floor: None,
    lists: &[],
    touches: Touches::Contents("", 0),
    command: |_| Ok(Vec::new()),
    manual: None,
    hinted: None,
    neighbour: None,
    exit: 0,
    helpers: &[],
    memory_mb: None,
    swap_mb: None,
    resident_percent: 0,
    writes_mb: 0,
    never_root: false,
    wants: None,
};

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
pub const LISTS: [(&str, &str); 10] = [
    ("core", "issue 2's table"),
    ("papers", "the papers' programs, the nearest that there is of each"),
    ("today", "more of what people run"),
    ("hints", "programs that can give hints themselves: --configurations alone,runahead,hinted"),
    ("manager", "what has to hold beside others: hints, little memory, two at once, neighbours"),
    ("mapped", "those that read through mappings, and wait in page faults"),
    ("containers", "files on an overlay, which tells nobody what is cached (as root only)"),
    ("controls", "those that cannot gain: nothing to wait for, or nothing to foresee"),
    ("smoke", "small ones, to see that everything works"),
    ("all", "every workload"),
];

/// The workloads of that name or list; an unknown name fails with all that exist.
pub fn by_name(name: &str) -> Result<Vec<&'static Workload>> {
    let found: Vec<_> =
        every().filter(|workload| workload.name == name || workload.lists.contains(&name)).collect();
    if found.is_empty() {
        anyhow::bail!("there is no workload '{name}'; these exist:\n{}", known());
    }
    Ok(found)
}

/// All lists and workloads, one a line.
pub fn known() -> String {
    let lists = LISTS.iter().map(|(name, about)| format!("  {name:<16} {about}\n"));
    let workloads = every().map(|workload| format!("  {:<16} {}\n", workload.name, workload.about));
    lists.chain(workloads).collect()
}

impl Workload {
    /// The program and its arguments.
    pub fn command(&self, place: &Place) -> Result<Vec<OsString>> {
        (self.command)(place).with_context(|| format!("cannot put the command of '{}' together", self.name))
    }

    /// Whether it can be run in this way at all.
    pub fn possible(&self, configuration: &Configuration) -> bool {
        // What does not fit into its memory is never all cached.
        (!configuration.manual || self.manual.is_some())
            && (!configuration.hinted || self.hinted.is_some())
            && (!configuration.warm || self.memory_mb.is_none())
    }

    /// What stands before the command line, Runahead's part of it included. `home` is a directory that
    /// belongs to `nobody`: Runahead keeps what it learns about libraries in the user's home.
    pub fn prefix(&self, home: &Path) -> Vec<OsString> {
        let nobody = data::postgres::as_nobody();
        if !self.never_root || nobody.is_empty() {
            return Vec::new();
        }
        let mut all: Vec<OsString> = nobody.iter().map(OsString::from).collect();
        all.push("env".into());
        all.push(OsString::from_iter([OsStr::new("HOME="), home.as_os_str()]));
        all
    }

    /// The program with hints written into it, and its arguments; None: there is no such program.
    pub fn manual(&self, place: &Place) -> Option<Result<Vec<OsString>>> {
        self.manual.map(|manual| manual(place))
    }

    /// The same with hints through Runahead's interface.
    pub fn hinted(&self, place: &Place) -> Option<Result<Vec<OsString>>> {
        self.hinted.map(|hinted| hinted(place))
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
        for workload in every() {
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
