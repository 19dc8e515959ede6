//! A session: one disk, some workloads, every configuration, round by round.
//!
//! For each workload: a first run fills the reference that all later outputs are compared with, a second
//! one leaves in the cache just what the workload reads (a machine that pages out idle memory may have
//! lost the beginning of a long first run), and that is captured. Then the warm runs, the cold rounds with
//! a turning order, and the replays. The lock is held for one run at a time.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use slowdisk::control::{self, Ask};
use slowdisk::profile::{Kind, Profile};
use slowdisk::setup;
use slowdisk::state::State;

use crate::cold::{self, Sample};
use crate::configuration::{self, Configuration, Subject};
use crate::guard::{self, Guard};
use crate::limit::{self, Requests};
use crate::machine::{self, Machine};
use crate::results::{self, FORMAT, Record, Run, Summary};
use crate::run::{self, Measured, Start};
use crate::workload::{Place, Workload};
use crate::{data, lock};

/// What was asked for.
pub struct Options {
    pub checkout: PathBuf,
    /// The runahead to test.
    pub subject: PathBuf,
    pub profile: Profile,
    pub filesystem: String,
    pub read_ahead_kb: u64,
    pub workloads: Vec<&'static Workload>,
    pub configurations: Vec<Configuration>,
    /// Of each configuration, for each workload.
    pub runs: usize,
    /// Replays for the limit; 0: none, and no captured requests either.
    pub replays: usize,
    /// Where the results go.
    pub results: PathBuf,
    /// A run that takes longer is ended.
    pub patience: Duration,
}

/// Runs it all. Each workload's record is appended to the results as soon as it is complete.
pub fn run(options: &Options) -> Result<Vec<Record>> {
    missing_commands(options)?;
    let data = data::root(&options.checkout);
    for set in data_sets(options) {
        data::ensure_made(&data, data::by_name(set)?)?;
    }
    // Only one at a time on a machine: sessions share the names of their disks.
    let path = format!("/tmp/runahead-bench-{}.lock", guard::instance());
    let session_lock = fs::File::create(&path).with_context(|| format!("cannot open {path}"))?;
    ensure!(
        session_lock.try_lock().is_ok(),
        "another bench session is running on this machine (it holds {path})"
    );
    for left in guard::clean_up() {
        eprintln!("bench: an earlier session left {left}");
    }
    let _guard = Guard::start()?;
    let session = Session::begin(options, &data)?;
    let mut records = Vec::new();
    for workload in &options.workloads {
        let record =
            session.measure(workload).with_context(|| format!("the workload '{}' failed", workload.name))?;
        results::append(&options.results, &record)?;
        records.push(record);
    }
    let left = session.end()?;
    ensure!(left.is_empty(), "left behind: {}", left.join(", "));
    Ok(records)
}

/// Packages whose commands are missing here.
pub fn missing_packages(workloads: &[&Workload]) -> Vec<&'static str> {
    let mut missing: Vec<&str> = workloads
        .iter()
        .flat_map(|workload| workload.needs)
        .filter(|(command, _)| find_program(command).is_none())
        .map(|(_, package)| *package)
        .collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}

fn missing_commands(options: &Options) -> Result<()> {
    let missing = missing_packages(&options.workloads);
    ensure!(
        missing.is_empty(),
        "these Debian packages are missing: {}; install them, or name other workloads",
        missing.join(" ")
    );
    if options.configurations.iter().any(|configuration| configuration.subject != Subject::None) {
        ensure!(
            options.subject.is_file(),
            "there is no {}; build it with ./x build, or name another with --subject",
            options.subject.display()
        );
    }
    Ok(())
}

fn data_sets(options: &Options) -> Vec<&'static str> {
    let mut sets: Vec<&str> = Vec::new();
    for set in options.workloads.iter().flat_map(|workload| workload.data) {
        if !sets.contains(set) {
            sets.push(set);
        }
    }
    sets
}

/// Where a command lies: itself if it has a slash, else the first in `$PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Path::new(name).is_file().then(|| PathBuf::from(name));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|candidate| candidate.is_file())
}

struct Session<'a> {
    options: &'a Options,
    disk: State,
    place: Place,
    check: serde_json::Value,
    machine: Machine,
    commit: String,
    subject: String,
}

/// What is prepared for one workload.
struct Prepared {
    command: Vec<OsString>,
    files: Vec<String>,
    /// The command, Runahead, and the libraries of both.
    programs: Vec<PathBuf>,
    requests: Requests,
    /// Resident in a sample of the files when all that the workload reads is cached.
    warm: Sample,
}

impl<'a> Session<'a> {
    fn begin(options: &'a Options, data: &Path) -> Result<Session<'a>> {
        let native = options.profile.kind == Kind::Native;
        let megabytes: u64 = data_sets(options)
            .iter()
            .map(|set| data::by_name(set).map(|set| set.megabytes))
            .sum::<Result<u64>>()?;
        let disk = setup::up(&setup::Options {
            name: format!("{}{}", guard::DISK_PREFIX, options.profile.name),
            profile: options.profile.clone(),
            // A tenth for the file system's own tables, and room for its journal.
            size: (megabytes * 11 / 10 + 200) << 20,
            directory: native.then(|| data.to_path_buf()),
            filesystem: options.filesystem.clone(),
            read_ahead_kb: options.read_ahead_kb,
            source: None,
            // Our own program is a disk's daemon too (see main).
            program: std::env::current_exe()?,
        })?;
        let mut session = Session {
            options,
            place: Place {
                disk: disk.mount.clone(),
                data: data.to_path_buf(),
                scratch: guard::scratch().join("files"),
                programs: std::env::current_exe()?.parent().context("no program directory")?.to_path_buf(),
                bench: options.checkout.join("bench"),
            },
            disk,
            check: serde_json::Value::Null,
            machine: Machine::this(),
            commit: machine::commit(&options.checkout),
            subject: describe(&options.subject),
        };
        fs::create_dir_all(&session.place.scratch)?;
        if !native {
            session.fill(data)?;
            session.check = session.self_check()?;
        }
        Ok(session)
    }

    /// Copies the data sets to the disk, at full speed.
    fn fill(&self, data: &Path) -> Result<()> {
        control::ask(&self.disk.socket(), Ask::Paced(false))?;
        for set in data_sets(self.options) {
            eprintln!("bench: putting '{set}' on the disk '{}'", self.options.profile.name);
            let from = data.join(set);
            slowdisk::system::run("cp", &[Path::new("-a"), &from, self.disk.fill_directory()])?;
        }
        // SAFETY: sync has no preconditions and cannot fail.
        unsafe { libc::sync() };
        control::ask(&self.disk.socket(), Ask::Paced(true))?;
        Ok(())
    }

    /// The verdict; the best of three, as a neighbour's load may disturb one.
    fn self_check(&self) -> Result<serde_json::Value> {
        let _hold = lock::hold()?;
        let mut verdict = slowdisk::check::check(&self.disk)?;
        for _ in 0..2 {
            if verdict.ok {
                break;
            }
            verdict = slowdisk::check::check(&self.disk)?;
        }
        if !verdict.ok {
            eprintln!(
                "bench: the disk's self-check failed, results will be marked: {}",
                verdict.failures.join("; ")
            );
        }
        Ok(serde_json::to_value(verdict)?)
    }

    fn measure(&self, workload: &Workload) -> Result<Record> {
        let prepared = self.prepare(workload)?;
        let configurations = &self.options.configurations;
        let (warm, cold): (Vec<_>, Vec<_>) = configurations.iter().copied().partition(|one| one.warm);
        let mut runs = Vec::new();
        for group in [warm, cold] {
            for round in 0..self.options.runs {
                for index in 0..group.len() {
                    let configuration = group[(index + round) % group.len()];
                    let run = self.one_run(workload, &prepared, configuration, round)?;
                    progress(workload, &self.options.profile.name, &run, self.options.runs);
                    runs.push(run);
                }
            }
        }
        let mut replays = Vec::new();
        for _ in 0..self.options.replays {
            let _hold = lock::hold()?;
            cold::make_cold(&self.place.disk, &prepared.files)?;
            replays.push(limit::replay(&self.place.disk, &prepared.files, &prepared.requests)?);
        }
        let summary = Summary::of(&runs, &replays, |name| {
            configuration::by_name(name).map_or_else(|_| name.to_string(), |found| found.base.to_string())
        });
        Ok(Record {
            format: FORMAT,
            time: machine::now(),
            commit: self.commit.clone(),
            subject: self.subject.clone(),
            machine: self.machine.clone(),
            disk: results::Disk {
                profile: self.options.profile.name.clone(),
                filesystem: self.disk.filesystem.clone(),
                read_ahead_kb: self.disk.read_ahead_kb,
                check: self.check.clone(),
            },
            workload: workload.name.to_string(),
            floor: results::floor_for(workload.floor, &self.options.profile.name),
            marks: self.marks(&runs, &prepared),
            runs,
            replays,
            summary,
        })
    }

    fn prepare(&self, workload: &Workload) -> Result<Prepared> {
        let _hold = lock::hold()?;
        let _ = fs::remove_dir_all(self.reference());
        let command = workload.command(&self.place)?;
        let files = workload.files(&self.place)?;
        let mut programs = closure(&command[0]);
        programs.extend(closure(self.options.subject.as_os_str()));
        cold::make_cold(&self.place.disk, &files)?;
        // The first fills the reference; the second brings back what was paged out meanwhile.
        for _ in 0..2 {
            let measured = self.start(&command, false)?;
            ensure!(
                measured.exit == 0 && measured.same,
                "the command alone ended with status {} ({}): {}",
                measured.exit,
                measured.difference.unwrap_or_default(),
                self.said()
            );
        }
        let requests =
            if self.options.replays > 0 || self.options.configurations.iter().any(|one| one.prefetch) {
                limit::capture(&self.place.disk, &files, workload.reads_contents())?
            } else {
                Requests::default()
            };
        let warm = cold::sample(&self.place.disk, &files)?;
        Ok(Prepared { command, files, programs, requests, warm })
    }

    fn one_run(
        &self,
        workload: &Workload,
        prepared: &Prepared,
        configuration: Configuration,
        round: usize,
    ) -> Result<Run> {
        let _hold = lock::hold()?;
        let (disk, files) = (&self.place.disk, &prepared.files);
        let sample = if configuration.warm {
            // Idle pages may have been paged out since the last run.
            self.start(&prepared.command, false)?;
            cold::sample(disk, files)?
        } else {
            let sample = cold::make_cold(disk, files)?;
            warm_programs(&prepared.programs);
            sample
        };
        let report = guard::scratch().join("report.json");
        let _ = fs::remove_file(&report);
        let wrapped = configuration.wrap(&self.options.subject, &report, &prepared.command);
        let read_ahead =
            configuration.read_ahead_kb.map(|kilobytes| self.read_ahead(kilobytes)).transpose()?;
        let prefetch =
            configuration.prefetch.then(|| limit::replay(disk, files, &prepared.requests)).transpose()?;
        let measured = self.start(&wrapped, configuration.one_core);
        if let Some(before) = read_ahead {
            self.read_ahead(before)?;
        }
        let report = fs::read(&report).ok().and_then(|text| serde_json::from_slice(&text).ok());
        Ok(Run {
            configuration: configuration.name.to_string(),
            round,
            cold: Some(sample),
            prefetch,
            measured: measured
                .with_context(|| format!("{} under '{}'", workload.name, configuration.name))?,
            report,
        })
    }

    fn start(&self, command: &[OsString], one_core: bool) -> Result<Measured> {
        guard::empty(&self.place.scratch);
        run::run(&Start {
            command,
            directory: &self.place.disk,
            scratch: &self.place.scratch,
            one_core,
            reference: &self.reference(),
            device: &|| self.device_counts(),
            owner: &guard::instance(),
            patience: self.options.patience,
        })
    }

    /// The end of what the first run wrote to standard error.
    fn said(&self) -> String {
        let text = fs::read(self.reference().join("stderr")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(500)..]).into_owned();
        text.trim().to_string()
    }

    fn reference(&self) -> PathBuf {
        guard::scratch().join("reference")
    }

    /// Requests and bytes read so far: of the block device, or of the daemon where there is none.
    fn device_counts(&self) -> Option<(u64, u64)> {
        let of_device = |device: u64| {
            let stat = format!("/sys/dev/block/{}:{}/stat", libc::major(device), libc::minor(device));
            run::device_counts(Path::new(&stat))
        };
        match self.options.profile.kind {
            Kind::Names { .. } => control::ask(&self.disk.socket(), Ask::Status)
                .ok()
                .map(|status| (status.requests, status.bytes)),
            _ => of_device(fs::metadata(&self.place.disk).ok()?.dev()),
        }
    }

    /// Sets the disk's read-ahead, returns what it was.
    fn read_ahead(&self, kilobytes: u64) -> Result<u64> {
        let Some((file, _)) = &self.disk.read_ahead_before else {
            bail!("the read-ahead of this disk cannot be set");
        };
        let before = slowdisk::system::read_number(file)?;
        fs::write(file, kilobytes.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(before)
    }

    fn marks(&self, runs: &[Run], prepared: &Prepared) -> Vec<String> {
        let mut marks = Vec::new();
        if self.check["ok"] == false {
            let failures: Vec<&str> = self.check["failures"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|failure| failure.as_str())
                .collect();
            marks.push(format!("the disk's self-check failed: {}", failures.join("; ")));
        }
        if !cold::may_drop_caches() {
            marks.push("names were not cold: dropping them takes root".into());
        }
        for run in runs {
            let which = format!("{} round {}", run.configuration, run.round + 1);
            let sample = run.cold.unwrap_or_default();
            let warm = configuration::by_name(&run.configuration).is_ok_and(|found| found.warm);
            if !warm && sample.resident > 0 {
                marks.push(format!(
                    "{which}: not cold, {} of {} pages were cached",
                    sample.resident, sample.pages
                ));
            }
            // A fiftieth may go between two looks on a machine that pages out idle memory.
            if warm && sample.resident * 50 < prepared.warm.resident * 49 {
                marks.push(format!(
                    "{which}: not warm, {} of {} pages were cached",
                    sample.resident, prepared.warm.resident
                ));
            }
            if let Some(difference) = &run.measured.difference {
                marks.push(format!("{which}: {difference}"));
            }
            if run.measured.left_behind {
                marks.push(format!("{which}: processes outlived the command by a second"));
            }
        }
        marks
    }

    fn end(self) -> Result<Vec<String>> {
        let left = slowdisk::teardown::down(&self.disk.name)?.left;
        let _ = fs::remove_dir_all(guard::scratch());
        Ok(left)
    }
}

fn progress(workload: &Workload, profile: &str, run: &Run, runs: usize) {
    let verdict = match &run.measured.difference {
        None => String::new(),
        Some(difference) => format!("  DIFFERENT: {difference}"),
    };
    eprintln!(
        "bench: {:<12} {profile} {}/{runs} {:<18} {:8.3} s{verdict}",
        workload.name,
        run.round + 1,
        run.configuration,
        run.seconds()
    );
}

/// What the subject calls itself: the first line of `--version`, or its path.
fn describe(subject: &Path) -> String {
    let output = Command::new(subject).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let said =
        output.ok().filter(|output| output.status.success()).map(|output| output.stdout).unwrap_or_default();
    match String::from_utf8_lossy(&said).lines().next() {
        Some(line) if !line.trim().is_empty() => line.trim().to_string(),
        _ => subject.display().to_string(),
    }
}

/// A program's file and the libraries that it is linked with.
fn closure(program: &std::ffi::OsStr) -> Vec<PathBuf> {
    let Some(path) = find_program(&program.to_string_lossy()) else {
        return Vec::new();
    };
    let output = Command::new("ldd").arg(&path).stderr(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let libraries = text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
    let mut all: Vec<PathBuf> = libraries.collect();
    all.push(path);
    all
}

/// Reads programs and libraries into memory: what is measured is the data's disk, and programs lie on
/// another one. The same for every configuration.
fn warm_programs(programs: &[PathBuf]) {
    for path in programs {
        // One that cannot be read will say so itself when it is started.
        let _ = fs::read(path);
    }
}
