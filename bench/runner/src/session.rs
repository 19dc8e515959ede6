//! A session: one disk, some workloads, every configuration, round by round.
//!
//! For each workload: on a disk that is not emulated all its data are read once (see [`cold`]). A first run
//! fills the reference that all later outputs are compared with, a second
//! one leaves in the cache just what the workload reads (a machine that pages out idle memory may have
//! lost the beginning of a long first run), and that is captured. Then the warm runs, the cold rounds with
//! a turning order, and the replays. The lock is held for one run at a time.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use slowdisk::control::{self, Ask};
use slowdisk::profile::{Kind, Profile};
use slowdisk::read_ahead::Ledger;
use slowdisk::setup;
use slowdisk::state::State;
use slowdisk::system::Process;

use crate::certainty::{self, Way};
use crate::cold::{self, Sample};
use crate::configuration::{Builds, Configuration};
use crate::drops::{self, Watch};
use crate::guard::{self, Guard};
use crate::limit::{self, Requests};
use crate::machine::{self, Machine};
use crate::memory::{self, Swap};
use crate::neighbour::{self, Beside, Neighbour};
use crate::packages::{self, find_program};
use crate::plan::Job;
use crate::results::{self, FORMAT, Record, Run, Summary};
use crate::run::{self, Measured, Start};
use crate::workload::{Place, Workload};
use crate::{data, lock, marks};

/// What was asked for.
#[derive(Clone)]
pub struct Options {
    pub checkout: PathBuf,
    pub builds: Builds,
    pub profile: Profile,
    pub filesystem: String,
    pub read_ahead_kb: u64,
    pub jobs: Vec<Job>,
    /// Of each configuration, for each workload.
    pub runs: usize,
    /// Of a configuration whose ratio is not sure with so many (see [`certainty`]).
    pub most_runs: usize,
    /// Replays for the limit; 0: none, and no captured requests either.
    pub replays: usize,
    /// Where the results go.
    pub results: PathBuf,
    /// A run that takes longer is ended.
    pub patience: Duration,
}

impl Options {
    fn workloads(&self) -> impl Iterator<Item = &'static Workload> {
        self.jobs.iter().map(|job| job.workload)
    }

    fn configurations(&self) -> impl Iterator<Item = &Configuration> {
        self.jobs.iter().flat_map(|job| &job.configurations)
    }

    /// The builds of Runahead that are run, some of them more than once.
    fn subjects(&self) -> impl Iterator<Item = &Path> {
        self.configurations().filter_map(|configuration| self.builds.of(configuration.subject))
    }
}

/// What came of it.
pub struct Outcome {
    pub records: Vec<Record>,
    /// What could not be measured, and why.
    pub failed: Vec<String>,
}

/// Runs it all. Each workload's record is appended to the results as soon as it is complete.
pub fn run(options: &Options) -> Result<Outcome> {
    // Before any data set is made, which takes minutes, or anything measured.
    missing_subjects(options)?;
    setup::possible(&options.profile, &options.filesystem)?;
    results::can_append(&options.results)?;
    let data = data::root(&options.checkout);
    let (jobs, mut failed) = possible(options, &data);
    // What is missing keeps nobody else from being measured.
    failed.iter().for_each(|failure| eprintln!("bench: {failure}"));
    ensure!(!jobs.is_empty(), "{}", failed.join("; "));
    let options = &Options { jobs, ..options.clone() };
    // Only one at a time on a machine: sessions share the names of their disks.
    let path = format!("/tmp/runahead-bench-{}.lock", guard::instance());
    let session_lock = lock::open(Path::new(&path))?;
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
    for job in &options.jobs {
        let (workload, disk) = (job.workload, &options.profile.name);
        match session.measure(job) {
            Ok(record) => {
                results::append(&options.results, &record)?;
                records.push(record);
            }
            // The others are still worth measuring; the session fails at its end.
            Err(error) => {
                let failure =
                    format!("the workload '{}' failed on the disk '{disk}': {error:#}", workload.name);
                eprintln!("bench: {failure}");
                failed.push(failure);
            }
        }
    }
    failed.extend(session.end()?.into_iter().map(|left| format!("left behind: {left}")));
    Ok(Outcome { records, failed })
}

/// The jobs whose commands and data are here or can be made, and why the others are none.
fn possible(options: &Options, data: &Path) -> (Vec<Job>, Vec<String>) {
    let (mut jobs, mut failed) = (Vec::new(), Vec::new());
    let mut made: HashMap<&str, std::result::Result<(), String>> = HashMap::new();
    for job in &options.jobs {
        let missing = packages::missing(job.workload.needs);
        let mut why = (!missing.is_empty())
            .then(|| format!("these Debian packages are missing: {}; install them", missing.join(" ")));
        for set in job.workload.data.iter().filter(|_| missing.is_empty()) {
            let make = || data::by_name(set).and_then(|set| data::ensure_made(data, set));
            let made = made.entry(*set).or_insert_with(|| make().map_err(|error| format!("{error:#}")));
            why = why.or(made.clone().err());
        }
        match why {
            None => jobs.push(job.clone()),
            Some(why) => {
                failed.push(format!("the workload '{}' cannot be measured: {why}", job.workload.name))
            }
        }
    }
    (jobs, failed)
}

fn missing_subjects(options: &Options) -> Result<()> {
    for subject in options.subjects() {
        ensure!(
            subject.is_file(),
            "there is no {}; ./x bench builds it, or name another with --subject or --forked",
            subject.display()
        );
    }
    Ok(())
}

/// Megabytes of swap and of other files that the disk must have room for.
fn most_written(options: &Options) -> u64 {
    let megabytes = |workload: &Workload| workload.swap_mb.unwrap_or(0) + workload.writes_mb;
    options.workloads().map(megabytes).max().unwrap_or(0)
}

fn data_sets(options: &Options) -> Vec<&'static str> {
    let mut sets: Vec<&str> = Vec::new();
    for set in options.workloads().flat_map(|workload| workload.data) {
        if !sets.contains(set) {
            sets.push(set);
        }
    }
    sets
}

/// Megabytes of a disk that has inodes for all files of a set and a directory to each fourth: mkfs.ext4 makes one for
/// each 16 KB. (The set `tree` has 48,000 files of 4 KB at most: without `database` beside it they did not fit.)
fn megabytes_of_inodes(data: &Path, set: &str) -> u64 {
    let files = data::files(data, set).map_or(0, |files| files.len() as u64);
    files * 5 / 4 * 16 / 1024
}

/// Beyond the command, what shapes a run.
struct Conditions {
    one_core: bool,
    memory_mb: Option<u64>,
}

/// How preparations run.
const ALONE_UNLIMITED: Conditions = Conditions { one_core: false, memory_mb: None };

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
    /// With what stands before it.
    alone: Vec<OsString>,
    /// With hints written in by hand.
    manual: Option<Vec<OsString>>,
    /// With hints through Runahead's interface.
    hinted: Option<Vec<OsString>>,
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
            .map(|set| data::by_name(set).map(|known| known.megabytes.max(megabytes_of_inodes(data, set))))
            .sum::<Result<u64>>()?;
        let disk = setup::up(&setup::Options {
            name: format!("{}{}", guard::DISK_PREFIX, options.profile.name),
            profile: options.profile.clone(),
            // A tenth for the file system's own tables, and room for its journal.
            size: (megabytes * 11 / 10 + 200 + most_written(options)) << 20,
            directory: native.then(|| data.to_path_buf()),
            filesystem: options.filesystem.clone(),
            read_ahead_kb: options.read_ahead_kb,
            source: None,
            // Our own program is a disk's daemon too (see main).
            program: std::env::current_exe()?,
            owner: Process::find(std::process::id() as i32),
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
            subject: describe(&options.builds.usual),
        };
        fs::create_dir_all(&session.place.scratch)?;
        if options.workloads().any(|workload| workload.never_root) {
            // Reports are written there by whoever runs.
            fs::set_permissions(guard::scratch(), fs::Permissions::from_mode(0o1777))?;
            fs::create_dir_all(session.home())?;
            if slowdisk::system::is_root() {
                slowdisk::system::run("chown", &["nobody:nogroup".as_ref(), session.home().as_os_str()])?;
            }
        }
        if !native {
            session.fill(data)?;
            session.check = session.self_check()?;
        }
        Ok(session)
    }

    /// Copies the data sets to the disk.
    fn fill(&self, data: &Path) -> Result<()> {
        self.at_full_speed(|| {
            for set in data_sets(self.options) {
                eprintln!("bench: putting '{set}' on the disk '{}'", self.options.profile.name);
                let from = data.join(set);
                slowdisk::system::run("cp", &[Path::new("-a"), &from, self.disk.fill_directory()])?;
            }
            // SAFETY: sync has no preconditions and cannot fail.
            unsafe { libc::sync() };
            Ok(())
        })
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

    fn measure(&self, job: &Job) -> Result<Record> {
        let swap = job.workload.swap_mb.map(|megabytes| self.swap(megabytes)).transpose()?;
        let record = self.measure_with_swap(job);
        if swap.is_some() {
            self.at_full_speed(|| {
                drop(swap);
                Ok(())
            })?;
        }
        record
    }

    fn measure_with_swap(&self, job: &Job) -> Result<Record> {
        let workload = job.workload;
        let (prepared, mut spoilt) =
            self.undisturbed(workload, "preparation", |watch| self.prepare(workload, watch))?;
        let Some(prepared) = prepared else { return self.hopeless(workload) };
        let (warm, cold): (Vec<Configuration>, Vec<_>) = job.configurations.iter().partition(|one| one.warm);
        let mut runs = Vec::new();
        for group in [warm, cold] {
            runs.extend(self.rounds(workload, &prepared, &group)?);
        }
        let mut replays = Vec::new();
        for _ in 0..self.options.replays {
            let (seconds, others) = self.undisturbed(workload, "replay", |watch| {
                let _hold = watch.after(lock::hold)?;
                self.make_ready(workload, &prepared.files, watch)?;
                limit::replay(&self.place.disk, &prepared.files, &prepared.requests)
            })?;
            replays.push(seconds);
            spoilt += others;
        }
        let summary = Summary::of(&runs, &replays, results::base_of);
        let expected = marks::Expected { warm: prepared.warm, percent: workload.resident_percent };
        let mut marks = marks::of(&runs, &self.check, expected, self.machine.processors);
        marks.extend((spoilt > 0).then(|| format!("preparation and replays: {}", marks::spoilt(spoilt))));
        let record = Record { marks, runs, replays, summary, ..self.empty_record(workload)? };
        results::for_the_record(record, &self.places())
    }

    /// Of a command that takes longer than anybody wants to wait: it is known so far, and does not come again.
    fn hopeless(&self, workload: &Workload) -> Result<Record> {
        let seconds = self.options.patience.as_secs();
        let mark = format!(
            "not measured: alone, on a disk that does not make it wait, it was not over after {seconds} s"
        );
        eprintln!("bench: {:<12} {}  {mark}", workload.name, self.options.profile.name);
        let record = Record { marks: vec![mark], hopeless: true, ..self.empty_record(workload)? };
        results::for_the_record(record, &self.places())
    }

    fn empty_record(&self, workload: &Workload) -> Result<Record> {
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
            data: workload.data.iter().map(|set| self.size(set)).collect::<Result<_>>()?,
            memory_mb: workload.memory_mb,
            swap_mb: workload.swap_mb,
            resident_percent: workload.resident_percent,
            floor: results::floor_for(workload.floor, &self.options.profile.name),
            marks: Vec::new(),
            runs: Vec::new(),
            replays: Vec::new(),
            summary: Summary::default(),
            patience: self.options.patience.as_secs(),
            hopeless: false,
        })
    }

    /// Every configuration so often as was asked for, in turning order; then, in further rounds, those whose median
    /// leaves a ratio unsure. One whose run was ended for taking too long is not run again.
    fn rounds(&self, workload: &Workload, prepared: &Prepared, group: &[Configuration]) -> Result<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        for round in 0..self.options.most_runs.max(self.options.runs) {
            let of = |name: &'static str| runs.iter().filter(move |run| run.configuration == name);
            let ways = group.iter().map(|one| Way {
                name: one.name,
                base: one.base,
                seconds: of(one.name).map(Run::seconds).collect(),
                asked: self.options.runs,
            });
            let unsure = certainty::unsure(&ways.collect::<Vec<_>>());
            let goes_on = |one: &Configuration| {
                let late = of(one.name).any(|run| run.measured.late);
                !late && (round < self.options.runs || unsure.contains(&one.name))
            };
            let mut wanted: Vec<Configuration> = group.iter().copied().filter(goes_on).collect();
            if wanted.is_empty() {
                break;
            }
            let turned = round % wanted.len();
            wanted.rotate_left(turned);
            for configuration in wanted {
                let (mut run, others) = self.undisturbed(workload, configuration.name, |watch| {
                    self.one_run(workload, prepared, configuration, round, watch)
                })?;
                run.spoilt = others;
                progress(workload, &self.options.profile.name, &run, self.options.runs);
                runs.push(run);
            }
        }
        Ok(runs)
    }

    /// See [`drops::undisturbed`].
    fn undisturbed<T>(
        &self,
        workload: &Workload,
        what: &str,
        attempt: impl FnMut(&mut Watch) -> Result<T>,
    ) -> Result<(T, u64)> {
        let disk = &self.options.profile.name;
        drops::undisturbed(attempt, |others| {
            eprintln!(
                "bench: {:<12} {disk} {what}: thrown away and measured again, since {}",
                workload.name,
                marks::spoilt(others)
            );
        })
    }

    /// Where things lie on this machine.
    fn places(&self) -> Vec<PathBuf> {
        let (place, options) = (&self.place, self.options);
        let mut places = vec![
            place.disk.clone(),
            place.data.clone(),
            place.scratch.clone(),
            place.programs.clone(),
            options.checkout.clone(),
            guard::scratch(),
            self.home(),
        ];
        // Under another name where there are links on the way.
        let real = places.iter().filter_map(|place| place.canonicalize().ok()).collect::<Vec<_>>();
        places.extend(real);
        let subjects = [&options.builds.usual, &options.builds.forked];
        places.extend(subjects.into_iter().filter_map(|subject| subject.parent()).map(Path::to_path_buf));
        places
    }

    /// None: the command takes longer than patience lasts.
    fn prepare(&self, workload: &Workload, watch: &mut Watch) -> Result<Option<Prepared>> {
        let _hold = watch.after(lock::hold)?;
        let _ = fs::remove_dir_all(self.reference());
        let command = workload.command(&self.place)?;
        // How the command is started alone, in preparations too.
        let alone: Vec<OsString> = workload.prefix(&self.home()).into_iter().chain(command.clone()).collect();
        let manual = workload.manual(&self.place).transpose()?;
        let hinted = workload.hinted(&self.place).transpose()?;
        let files = workload.files(&self.place)?;
        let mut programs = closure(&command[0]);
        programs.extend(manual.iter().flat_map(|command| closure(&command[0])));
        programs.extend(workload.helpers.iter().flat_map(|helper| closure(helper.as_ref())));
        let mut subjects: Vec<&Path> = self.options.subjects().collect();
        subjects.sort();
        subjects.dedup();
        programs.extend(subjects.into_iter().flat_map(|subject| closure(subject.as_os_str())));
        if self.options.profile.kind == Kind::Native {
            for set in workload.data {
                cold::read_once(&self.place.disk, &data::files(&self.place.data, set)?);
            }
        }
        cold::make_cold(&self.place.disk, &files, watch)?;
        // The first fills the reference; the second brings back what was paged out meanwhile. Neither is
        // measured, and on the papers' disks either would take minutes.
        for _ in 0..2 {
            let measured = self.at_full_speed(|| self.start(&alone, &ALONE_UNLIMITED))?;
            if measured.late {
                return Ok(None);
            }
            ensure!(
                measured.exit == workload.exit && measured.same,
                "the command alone ended with status {} ({}): {}",
                measured.exit,
                measured.difference.unwrap_or_default(),
                self.said()
            );
        }
        let requests = if self.options.replays > 0 || self.options.configurations().any(|one| one.prefetch) {
            limit::capture(&self.place.disk, &files, workload.reads_contents())?
        } else {
            Requests::default()
        };
        let warm = cold::sample(&self.place.disk, &files)?;
        Ok(Some(Prepared { command, alone, manual, hinted, files, programs, requests, warm }))
    }

    /// Makes the files as cold as the workload wants them.
    fn make_ready(&self, workload: &Workload, files: &[String], watch: &mut Watch) -> Result<Sample> {
        let cold = cold::make_cold(&self.place.disk, files, watch)?;
        if workload.resident_percent == 0 {
            return Ok(cold);
        }
        self.at_full_speed(|| cold::bring_in(&self.place.disk, files, workload.resident_percent))
    }

    fn one_run(
        &self,
        workload: &Workload,
        prepared: &Prepared,
        configuration: Configuration,
        round: usize,
        watch: &mut Watch,
    ) -> Result<Run> {
        let _hold = watch.after(lock::hold)?;
        let (disk, files) = (&self.place.disk, &prepared.files);
        let sample = if configuration.warm {
            // Idle pages may have been paged out since the last run.
            self.start(&prepared.alone, &ALONE_UNLIMITED)?;
            cold::sample(disk, files)?
        } else {
            let sample = self.make_ready(workload, files, watch)?;
            warm_programs(&prepared.programs);
            if let Kind::Fixed { .. } | Kind::Capped { .. } = self.options.profile.kind {
                slowdisk::check::calibrate(&self.disk)?;
            }
            sample
        };
        let report = guard::scratch().join("report.json");
        let _ = fs::remove_file(&report);
        let by_hand = prepared.manual.as_ref().filter(|_| configuration.manual);
        let hinted = prepared.hinted.as_ref().filter(|_| configuration.hinted);
        let command = by_hand.or(hinted).unwrap_or(&prepared.command);
        let wrapped =
            configuration.wrap(&workload.prefix(&self.home()), &self.options.builds, &report, command);
        let _read_ahead =
            configuration.read_ahead_kb.map(|kilobytes| ReadAhead::of(&self.disk, kilobytes)).transpose()?;
        let prefetch =
            configuration.prefetch.then(|| limit::replay(disk, files, &prepared.requests)).transpose()?;
        let conditions = Conditions { one_core: configuration.one_core, memory_mb: workload.memory_mb };
        let beside = workload.neighbour.map(|file| disk.join(file));
        let waits = beside.as_deref().map(neighbour::alone).transpose()?;
        let reading = beside.as_deref().map(Neighbour::start).transpose()?;
        let measured = self.start(&wrapped, &conditions);
        let neighbour = waits.zip(reading).map(|(alone, reading)| Beside { alone, beside: reading.end() });
        let report = fs::read(&report).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let report = report.map(results::shortened);
        Ok(Run {
            configuration: configuration.name.to_string(),
            round,
            cold: Some(sample),
            prefetch,
            spoilt: 0,
            neighbour,
            measured: measured
                .with_context(|| format!("{} under '{}'", workload.name, configuration.name))?,
            report,
        })
    }

    fn start(&self, command: &[OsString], conditions: &Conditions) -> Result<Measured> {
        guard::empty(&self.place.scratch);
        run::run(&Start {
            command,
            directory: &self.place.disk,
            scratch: &self.place.scratch,
            one_core: conditions.one_core,
            memory_mb: conditions.memory_mb,
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

    /// Of whoever a workload runs as that is never run as root.
    fn home(&self) -> PathBuf {
        guard::scratch().join("home")
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

    /// Swap on the disk, made at full speed.
    fn swap(&self, megabytes: u64) -> Result<Swap> {
        self.at_full_speed(|| Swap::on(&self.place.disk, &guard::instance(), megabytes))
    }

    /// Does something with an emulated disk that does not make anybody wait.
    fn at_full_speed<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.options.profile.kind == Kind::Native {
            return act();
        }
        control::ask(&self.disk.socket(), Ask::Paced(false))?;
        let done = act();
        control::ask(&self.disk.socket(), Ask::Paced(true))?;
        done
    }

    /// What the set is, as it lies there.
    fn size(&self, name: &str) -> Result<results::DataSize> {
        let files = data::files(&self.place.data, name)?;
        let lengths = files
            .iter()
            .map(|file| self.place.data.join(file).symlink_metadata().map_or(0, |metadata| metadata.len()));
        let version = data::by_name(name)?.version;
        Ok(results::DataSize { name: name.into(), version, files: files.len(), bytes: lengths.sum() })
    }

    fn end(self) -> Result<Vec<String>> {
        let swap = memory::clean_up(&guard::instance());
        ensure!(swap.is_empty(), "cannot turn off {}; its disk stays up", swap.join(", "));
        let left = slowdisk::teardown::down(&self.disk.name)?.left;
        let _ = fs::remove_dir_all(guard::scratch());
        Ok(left)
    }
}

/// Another read-ahead of the disk for the time of a run.
struct ReadAhead<'a>(&'a State, &'a Path, u64);

impl<'a> ReadAhead<'a> {
    fn of(disk: &'a State, kilobytes: u64) -> Result<ReadAhead<'a>> {
        let Some(((file, _), usual)) = disk.read_ahead_before.as_ref().zip(disk.read_ahead_kb) else {
            bail!("the read-ahead of this disk cannot be set");
        };
        Ledger::of_machine().set(file, &disk.directory(), disk.owner, kilobytes)?;
        Ok(ReadAhead(disk, file, usual))
    }
}

impl Drop for ReadAhead<'_> {
    fn drop(&mut self) {
        let ReadAhead(disk, file, usual) = self;
        if let Err(error) = Ledger::of_machine().set(file, &disk.directory(), disk.owner, *usual) {
            eprintln!("bench: the read-ahead is not {usual} KB again: {error:#}");
        }
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
    let name = program.to_string_lossy();
    let Some(path) = find_program(&name).or_else(|| part_of_compiler(&name)) else {
        return Vec::new();
    };
    let output = Command::new("ldd").arg(&path).stderr(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let libraries = text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
    let mut all: Vec<PathBuf> = libraries.collect();
    all.push(path);
    all
}

/// The compiler's own programs lie in a directory that only it knows.
fn part_of_compiler(name: &str) -> Option<PathBuf> {
    let said = slowdisk::system::run("gcc", &[format!("-print-prog-name={name}")]).ok()?;
    Some(PathBuf::from(said.trim())).filter(|path| path.is_absolute())
}

/// Reads programs and libraries into memory: what is measured is the data's disk, and programs lie on
/// another one. The same for every configuration.
fn warm_programs(programs: &[PathBuf]) {
    for path in programs {
        // One that cannot be read will say so itself when it is started.
        let _ = fs::read(path);
    }
}
