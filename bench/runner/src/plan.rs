//! What a command line asks for, disk by disk.
//!
//! Names are workloads, lists of them and experiments. An experiment brings its own disks and
//! configurations, and only its own workloads go there: `table3 fig6` measures the 2003 paper's on one disk and the 1999
//! paper's on five, not everything on six. What several of them want on a disk is measured once, in one session.

use anyhow::{Result, bail};
use slowdisk::profile::Profile;

use crate::configuration::{self, Configuration};
use crate::experiment::{self, Experiment};
use crate::results::Record;
use crate::workload::{self, Workload};

/// A name for all experiments.
pub const EXPERIMENTS: &str = "experiments";

/// Disks and configurations of workloads that are named by themselves.
const USUAL_DISK: &[&str] = &["native"];
const USUAL_CONFIGURATIONS: &[&str] = &["alone", "runahead", "alone-warm", "runahead-warm"];

/// What is asked for in place of that.
#[derive(Default)]
pub struct Asked<'a> {
    pub profiles: &'a [String],
    pub configurations: &'a [String],
    /// Only workloads with this in their name or description.
    pub pattern: Option<&'a str>,
}

/// One disk's session.
#[derive(Clone)]
pub struct Part {
    pub profile: Profile,
    pub jobs: Vec<Job>,
}

/// A workload and the ways to run it that are possible.
#[derive(Clone)]
pub struct Job {
    pub workload: &'static Workload,
    pub configurations: Vec<Configuration>,
}

/// The experiments among the names.
pub fn experiments(names: &[String]) -> Vec<&'static Experiment> {
    experiment::every()
        .filter(|one| names.iter().any(|name| name == one.name || name == EXPERIMENTS))
        .collect()
}

/// An experiment's name becomes its workloads'.
pub fn workload_names(names: &[String]) -> Vec<String> {
    let of_experiments =
        experiments(names).into_iter().flat_map(|one| one.workloads).map(|name| name.to_string());
    let others = names.iter().filter(|name| !is_experiment(name)).cloned();
    others.chain(of_experiments).collect()
}

fn is_experiment(name: &str) -> bool {
    name == EXPERIMENTS || experiment::by_name(name).is_some()
}

/// The sessions that the names ask for, in the order of their disks' first mention.
pub fn plan(names: &[String], asked: &Asked) -> Result<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    let mut add = |workloads: Vec<&'static Workload>, disks: &[&str], ways: &[&str]| -> Result<()> {
        for disk in chosen(asked.profiles, disks) {
            let profile = Profile::by_name(disk)?;
            if !parts.iter().any(|part| part.profile == profile) {
                parts.push(Part { profile: profile.clone(), jobs: Vec::new() });
            }
            let Some(part) = parts.iter_mut().find(|part| part.profile == profile) else { continue };
            for workload in &workloads {
                part.add(workload, &chosen(asked.configurations, ways))?;
            }
        }
        Ok(())
    };
    for name in names.iter().filter(|name| !is_experiment(name)) {
        add(workload::by_name(name)?, USUAL_DISK, USUAL_CONFIGURATIONS)?;
    }
    for one in experiments(names) {
        let workloads = workload::every().filter(|workload| one.workloads.contains(&workload.name));
        add(workloads.collect(), one.profiles, one.configurations)?;
    }
    if let Some(pattern) = asked.pattern {
        for part in &mut parts {
            part.jobs
                .retain(|job| job.workload.name.contains(pattern) || job.workload.about.contains(pattern));
        }
    }
    parts.retain(|part| !part.jobs.is_empty());
    if parts.is_empty() {
        bail!("no workload is left; these exist:\n{}", workload::known());
    }
    Ok(parts)
}

fn chosen<'a>(asked: &'a [String], own: &[&'a str]) -> Vec<&'a str> {
    if asked.is_empty() { own.to_vec() } else { asked.iter().map(String::as_str).collect() }
}

impl Part {
    fn add(&mut self, workload: &'static Workload, ways: &[&str]) -> Result<()> {
        let ways = ways.iter().map(|name| configuration::by_name(name)).collect::<Result<Vec<_>>>()?;
        let ways = ways.into_iter().filter(|one| workload.possible(one));
        let index =
            self.jobs.iter().position(|job| job.workload.name == workload.name).unwrap_or_else(|| {
                self.jobs.push(Job { workload, configurations: Vec::new() });
                self.jobs.len() - 1
            });
        let known = &mut self.jobs[index].configurations;
        for way in ways {
            if !known.contains(&way) {
                known.push(way);
            }
        }
        Ok(())
    }

    /// Without the jobs that `done` holds a complete record of, from this commit, with so many runs. What was ended
    /// after `patience` seconds or more is complete with that: it would be ended again.
    pub fn without(&self, done: &[Record], commit: &str, runs: usize, patience: u64) -> Part {
        let is_done = |job: &Job| {
            done.iter().any(|record| {
                let known = &record.summary.configurations;
                let ended = |late: bool| late && record.patience >= patience;
                record.workload == job.workload.name
                    && record.disk.profile == self.profile.name
                    && record.commit == commit
                    && (ended(record.hopeless)
                        || job.configurations.iter().all(|one| {
                            known.get(one.name).is_some_and(|found| match found.late {
                                true => ended(true),
                                false => found.runs >= runs,
                            })
                        }))
            })
        };
        let jobs = self.jobs.iter().filter(|job| !is_done(job)).cloned().collect();
        Part { profile: self.profile.clone(), jobs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::record;

    fn planned(names: &[&str], asked: &Asked) -> Vec<(String, Vec<(&'static str, usize)>)> {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let parts = plan(&names, asked).unwrap();
        let job = |job: &Job| (job.workload.name, job.configurations.len());
        parts.iter().map(|part| (part.profile.name.clone(), part.jobs.iter().map(job).collect())).collect()
    }

    #[test]
    fn an_experiment_takes_its_own_workloads_to_its_own_disks() {
        let all = planned(&["table3", "fig3", "fig5", "smoke-grep"], &Asked::default());
        let disks: Vec<&str> = all.iter().map(|(disk, _)| disk.as_str()).collect();
        assert_eq!(disks, ["native", "array4", "disk1", "disk2", "disk10", "cloud"]);
        assert_eq!(all[0].1, [("smoke-grep", 4)]);
        // fig3's and fig5's, each once; by hand where that exists.
        let array4 = [("agrep-1999", 2), ("search", 3), ("gnuld", 2), ("xds", 3), ("xds-few", 3)];
        assert_eq!(all[1].1, array4);
        assert!(all[2].1.iter().all(|(name, _)| *name != "xds"), "{all:?}");
        assert_eq!(all[5].1, [("resident-1", 3), ("resident-100", 3), ("resident-1000", 3)]);
    }

    #[test]
    fn what_two_experiments_want_of_a_workload_is_measured_together() {
        let all = planned(&["fig3", "fig4"], &Asked::default());
        // alone, runahead, manual; alone, ignored, alone-warm, runahead-warm.
        assert_eq!(all[0].1, [("agrep-1999", 5), ("search", 3), ("gnuld", 5), ("xds", 6)]);
    }

    #[test]
    fn what_is_asked_for_counts_more() {
        let (profiles, ways) = (["cloud".to_string(), "native".to_string()], ["alone".to_string()]);
        let asked = Asked { profiles: &profiles, configurations: &ways, pattern: Some("grep") };
        let all = planned(&["fig3", "smoke"], &asked);
        let jobs = vec![("smoke-grep", 1), ("agrep-1999", 1), ("search", 1)];
        assert_eq!(all, [("cloud".to_string(), jobs.clone()), ("native".to_string(), jobs)]);
        let nothing = Asked { pattern: Some("no such thing"), ..Asked::default() };
        assert!(plan(&["smoke".to_string()], &nothing).is_err());
        assert!(plan(&["solitaire".to_string()], &Asked::default()).is_err());
    }

    #[test]
    fn every_experiment_has_one_name() {
        let all = experiments(&[EXPERIMENTS.to_string()]);
        assert_eq!(all.len(), experiment::every().count());
        assert!(workload_names(&[EXPERIMENTS.to_string()]).contains(&"sphinx".to_string()));
    }

    #[test]
    fn what_is_done_is_left_out_and_only_that() {
        let names = ["grep".to_string(), "grep-r".to_string()];
        let profiles = ["cloud".to_string()];
        let ways = ["alone".to_string(), "runahead".to_string()];
        let asked = Asked { profiles: &profiles, configurations: &ways, pattern: None };
        let part = &plan(&names, &asked).unwrap()[0];
        let left = |done: &[Record], commit, runs| -> Vec<&str> {
            part.without(done, commit, runs, 900).jobs.iter().map(|job| job.workload.name).collect()
        };
        let done = [record("grep", 1, 2.0, 1.0)];
        assert_eq!(left(&done, "abc", 1), ["grep-r"]);
        assert_eq!(left(&done, "abd", 1), ["grep", "grep-r"], "another commit");
        assert_eq!(left(&done, "abc", 3), ["grep", "grep-r"], "too few runs");
        assert_eq!(left(&[], "abc", 1), ["grep", "grep-r"]);
        let elsewhere = Part { profile: Profile::by_name("native").unwrap(), ..part.clone() };
        assert_eq!(elsewhere.without(&done, "abc", 1, 900).jobs.len(), 2, "another disk");
        let mut ended = done.clone();
        ended[0].summary.configurations.get_mut("alone").unwrap().late = true;
        assert_eq!(left(&ended, "abc", 1), ["grep-r"], "it would be ended again");
        ended[0].patience = 100;
        assert_eq!(left(&ended, "abc", 1), ["grep", "grep-r"], "there is more patience now");
        ended[0].summary.configurations.clear();
        ended[0].hopeless = true;
        assert_eq!(left(&ended, "abc", 1), ["grep", "grep-r"], "there is more patience now");
        ended[0].patience = 900;
        assert_eq!(left(&ended, "abc", 1), ["grep-r"], "it would be ended again");
    }
}
