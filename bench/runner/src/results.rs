//! What is kept of a workload's runs: one line of JSON each.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::cold::Sample;
use crate::configuration;
use crate::machine::Machine;
use crate::run::Measured;
use crate::workload::Floor;

/// Changes when a field changes its meaning.
pub const FORMAT: u32 = 1;

/// One workload on one disk, all its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub format: u32,
    /// Seconds since 1970, at the end.
    pub time: u64,
    pub commit: String,
    /// What the subject calls itself.
    pub subject: String,
    pub machine: Machine,
    pub disk: Disk,
    pub workload: String,
    /// The sets that it reads.
    #[serde(default)]
    pub data: Vec<DataSize>,
    /// Of the run, if limited.
    #[serde(default)]
    pub memory_mb: Option<u64>,
    #[serde(default)]
    pub swap_mb: Option<u64>,
    /// Of the data, in memory when a cold run begins.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resident_percent: u64,
    pub floor: Option<f64>,
    pub runs: Vec<Run>,
    /// Seconds of each replay (see [`crate::limit`]).
    pub replays: Vec<f64>,
    pub summary: Summary,
    /// Why this result should not be believed as it stands; empty: nothing known.
    pub marks: Vec<String>,
    /// Seconds after which a run was ended.
    #[serde(default = "usual_patience")]
    pub patience: u64,
    /// There are no runs: the command alone, which is run beforehand, was not over by then even on a disk that
    /// answers at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hopeless: bool,
}

/// The default of `--patience`, with which all was measured before it was stored.
fn usual_patience() -> u64 {
    900
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    pub profile: String,
    pub filesystem: String,
    pub read_ahead_kb: Option<u64>,
    /// The self-check's verdict, word for word.
    pub check: serde_json::Value,
}

/// A data set as it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataSize {
    pub name: String,
    /// Of its recipe.
    pub version: u32,
    /// In its list, of so many bytes together.
    pub files: usize,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub configuration: String,
    pub round: usize,
    /// Before the run; absent for warm runs.
    pub cold: Option<Sample>,
    /// Seconds of prefetching before the command, where the configuration has it.
    pub prefetch: Option<f64>,
    /// How often somebody else dropped the machine's caches meanwhile, in the last of several attempts: 0, unless none came
    /// through undisturbed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spoilt: u64,
    /// How long somebody else waited for his reads, where the workload has such a neighbour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour: Option<crate::neighbour::Beside>,
    #[serde(flatten)]
    pub measured: Measured,
    /// What Runahead reported of itself.
    pub report: Option<serde_json::Value>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Figures that reports show.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub configurations: BTreeMap<String, Figures>,
    /// Seconds that a perfect prefetcher would take: the greater of warm run and replay.
    pub limit: Option<f64>,
    /// (alone - ours) / (alone - limit).
    pub share_of_possible_gain: Option<f64>,
}

/// Of one configuration, over its runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub runs: usize,
    pub median: f64,
    pub least: f64,
    pub most: f64,
    /// The base configuration's median over this one's.
    pub ratio: Option<f64>,
    /// Median processor time of all the run's processes.
    pub processor: f64,
    pub machine_processor: f64,
    pub device_reads: Option<f64>,
    pub device_read_bytes: Option<f64>,
    /// A run was ended when patience was over. The times are less than the truth, and no ratio is told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
}

/// The middle value, or the mean of the two in the middle; 0 of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (length, middle) if length % 2 == 1 => values[middle],
        (_, middle) => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// Name and base of a configuration, as [`Summary::of`] wants to know it; one that is no more is its own.
pub fn base_of(name: &str) -> String {
    configuration::by_name(name).map_or_else(|_| name.to_string(), |found| found.base.to_string())
}

impl Record {
    /// Records from before it was stored that a run was ended say so in words only.
    fn brought_up_to_date(mut self) -> Record {
        let words =
            |run: &Run| run.measured.difference.as_ref().is_some_and(|said| said.starts_with("ended after"));
        if self.runs.iter().any(|run| words(run) && !run.measured.late) {
            for run in self.runs.iter_mut().filter(|run| words(run)) {
                run.measured.late = true;
                self.patience = run.measured.wall as u64;
            }
            self.summary = Summary::of(&self.runs, &self.replays, base_of);
        }
        self
    }

    /// Whether every run that was not ended early had the first one's output.
    pub fn equal(&self) -> bool {
        self.runs.iter().all(|run| run.measured.same || run.measured.late)
    }

    /// Whether the two measured the same thing in the same circumstances, so that their runs can be pooled. What ended
    /// before its time says nothing of how long it takes, and is no part of any pool.
    pub fn alike(&self, other: &Record) -> bool {
        let whole = |one: &Record| !one.hopeless && !one.runs.iter().any(|run| run.measured.late);
        let what =
            |one: &Record| (one.workload.clone(), one.commit.clone(), one.subject.clone(), one.data.clone());
        let disk = |one: &Record| {
            (
                one.disk.profile.clone(),
                one.disk.filesystem.clone(),
                one.disk.read_ahead_kb,
                one.resident_percent,
            )
        };
        let machine = |one: &Record| (one.machine.processors, one.memory_mb, one.swap_mb);
        whole(self)
            && whole(other)
            && what(self) == what(other)
            && disk(self) == disk(other)
            && machine(self) == machine(other)
    }

    /// One record of two that are alike: all runs of both.
    pub fn together(mut self, other: &Record) -> Record {
        self.runs.extend(other.runs.iter().cloned());
        self.replays.extend(&other.replays);
        self.marks.extend(other.marks.iter().cloned());
        self.time = self.time.max(other.time);
        self.summary = Summary::of(&self.runs, &self.replays, base_of);
        self
    }

    /// Whether the floor was missed. A floor of 1.0 asks for "never slower", which is 1.02 in the
    /// issue's words, for noise.
    pub fn below_floor(&self) -> bool {
        let ratio = self.summary.configurations.get("runahead").and_then(|figures| figures.ratio);
        match (ratio, self.floor) {
            (Some(ratio), Some(floor)) => ratio < if floor > 1.0 { floor } else { 1.0 / 1.02 },
            _ => false,
        }
    }
}

impl Run {
    /// Seconds, prefetching included.
    pub fn seconds(&self) -> f64 {
        self.measured.wall + self.prefetch.unwrap_or(0.0)
    }

    /// Processor time of the run's processes: all of them where that is known.
    pub fn processor(&self) -> f64 {
        self.measured.group_processor.unwrap_or(self.measured.user + self.measured.system)
    }
}

impl Summary {
    /// `base_of` names each configuration's base.
    pub fn of(runs: &[Run], replays: &[f64], base_of: impl Fn(&str) -> String) -> Summary {
        let mut configurations: BTreeMap<String, Figures> = BTreeMap::new();
        for name in runs.iter().map(|run| &run.configuration) {
            let of: Vec<&Run> = runs.iter().filter(|run| run.configuration == *name).collect();
            configurations.entry(name.clone()).or_insert_with(|| Figures::of(&of));
        }
        let medians: BTreeMap<String, f64> = configurations
            .iter()
            .filter(|(_, figures)| !figures.late)
            .map(|(name, figures)| (name.clone(), figures.median))
            .collect();
        for (name, figures) in &mut configurations {
            let base = base_of(name);
            let ratio = || Some(medians.get(&base)? / medians.get(name)?);
            figures.ratio = (base != *name).then(ratio).flatten();
        }
        let warm = medians.get("alone-warm").copied();
        let replay = (!replays.is_empty()).then(|| median(replays.iter().copied()));
        let limit = match (warm, replay) {
            (Some(warm), Some(replay)) => Some(warm.max(replay)),
            (one, other) => one.or(other),
        };
        let share = match (medians.get("alone"), medians.get("runahead"), limit) {
            // Where a hundredth or less is to be gained, the share of it is noise.
            (Some(alone), Some(ours), Some(limit)) if alone - limit > 0.01 * alone => {
                Some((alone - ours) / (alone - limit))
            }
            _ => None,
        };
        Summary { configurations, limit, share_of_possible_gain: share }
    }
}

impl Figures {
    fn of(runs: &[&Run]) -> Figures {
        let times = || runs.iter().map(|run| run.seconds());
        let optional = |value: fn(&Measured) -> Option<u64>| {
            let values: Option<Vec<f64>> =
                runs.iter().map(|run| value(&run.measured).map(|value| value as f64)).collect();
            values.map(median)
        };
        Figures {
            runs: runs.len(),
            median: median(times()),
            least: times().fold(f64::INFINITY, f64::min),
            most: times().fold(0.0, f64::max),
            ratio: None,
            processor: median(runs.iter().map(|run| run.processor())),
            machine_processor: median(runs.iter().map(|run| run.measured.machine_processor)),
            device_reads: optional(|measured| measured.device_reads),
            device_read_bytes: optional(|measured| measured.device_read_bytes),
            late: runs.iter().any(|run| run.measured.late),
        }
    }
}

/// The text without half a line at its end, as who was killed while writing may have left it.
/// Bytes, as the half may end inside a letter.
fn whole_lines(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if serde_json::from_slice::<serde_json::Value>(&text[end..]).is_ok() { text } else { &text[..end] }
}

/// Adds a record to a file of JSON lines, in place of half a line that somebody may have left.
pub fn append(path: &Path, record: &Record) -> Result<()> {
    let cannot = || format!("cannot write results to {}", path.display());
    let mut file = open(path)?;
    // What looks like half a line may be one that another session is writing.
    file.lock().with_context(cannot)?;
    let before = fs::read(path).with_context(cannot)?;
    let whole = whole_lines(&before);
    if whole.len() < before.len() {
        file.set_len(whole.len() as u64).with_context(cannot)?;
    }
    let newline = if whole.is_empty() || whole.ends_with(b"\n") { "" } else { "\n" };
    // One write, which only a kill can cut short.
    file.write_all(format!("{newline}{}\n", serde_json::to_string(record)?).as_bytes()).with_context(cannot)
}

fn make_directory_of(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), |directory| {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))
    })
}

fn open(path: &Path) -> Result<File> {
    make_directory_of(path)?;
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.with_context(|| format!("cannot write results to {}", path.display()))
}

/// Fails where [`append`] would. Makes no file: a session that fails leaves none.
pub fn can_append(path: &Path) -> Result<()> {
    if path.exists() {
        return open(path).map(drop);
    }
    make_directory_of(path)?;
    let directory = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = CString::new(directory.as_os_str().as_encoded_bytes())?;
    // SAFETY: the name ends with a zero byte.
    if unsafe { libc::access(name.as_ptr(), libc::W_OK) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(error).with_context(|| format!("cannot write results to {}", path.display()));
    }
    Ok(())
}

/// Arguments of a command that are kept: nine thousand file names in each run made a result of 20 MB.
const ARGUMENTS_KEPT: usize = 12;

/// A report of Runahead's as it is stored: of a long command the beginning.
pub fn shortened(mut report: serde_json::Value) -> serde_json::Value {
    if let Some(command) = report.get_mut("command").and_then(|command| command.as_array_mut()) {
        let left_out = command.len().saturating_sub(ARGUMENTS_KEPT);
        command.truncate(ARGUMENTS_KEPT);
        if left_out > 0 {
            command.push(format!("… {left_out} more").into());
        }
    }
    report
}

/// A record as it is stored, shown and reported: without the `places` of this machine, in whatever text of it
/// they stand (a command, a reservation, what the subject calls itself). They are nobody's business, and
/// make two results differ that are alike.
pub fn for_the_record(record: Record, places: &[PathBuf]) -> Result<Record> {
    let mut places: Vec<String> = places.iter().map(|place| place.to_string_lossy().into_owned()).collect();
    // What lies inside another goes first: of /a and /a/b, the second's files are not called b/c. A place that
    // is the root would make every path a relative one.
    places.retain(|place| place.len() > 1);
    places.sort_by_key(|place| std::cmp::Reverse(place.len()));
    let mut value = serde_json::to_value(record)?;
    each_text(&mut value, &|text| {
        *text = places.iter().fold(std::mem::take(text), |text, place| without(&text, place))
    });
    Ok(serde_json::from_value(value)?)
}

fn each_text(value: &mut serde_json::Value, change: &impl Fn(&mut String)) {
    use serde_json::Value;
    match value {
        Value::String(text) => change(text),
        Value::Array(values) => values.iter_mut().for_each(|value| each_text(value, change)),
        Value::Object(fields) => fields.values_mut().for_each(|value| each_text(value, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// `text` with paths in `place` relative to it, and the place itself a dot. A longer name that begins alike is
/// another place: /a/tree2 is not in /a/tree.
fn without(text: &str, place: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(place) {
        let (before, after) = (&rest[..at], &rest[at + place.len()..]);
        result += before;
        match after.chars().next() {
            Some('/') => rest = &after[1..],
            Some(letter) if letter.is_alphanumeric() || "-_.+~".contains(letter) => {
                result += place;
                rest = after;
            }
            _ => {
                result.push('.');
                rest = after;
            }
        }
    }
    result + rest
}

/// Whether a line is of ours at all. The compiler's measurements lie in the same folder, in a form of their own.
fn is_record(line: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(line).map_or(true, |value| value.get("format").is_some())
}

/// The records of one file.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    String::from_utf8_lossy(whole_lines(&text))
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty() && is_record(line))
        .map(|(number, line)| {
            serde_json::from_str(line)
                .map(Record::brought_up_to_date)
                .with_context(|| format!("{} line {} is no result", path.display(), number + 1))
        })
        .collect()
}

/// All records in a folder; none if there is no such folder.
pub fn all(directory: &Path) -> Result<Vec<Record>> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    files.sort();
    Ok(files.iter().map(|file| read(file)).collect::<Result<Vec<_>>>()?.concat())
}

/// The records that `name` means: a file, or in `directory` all those of the commit that begins so.
pub fn find(directory: &Path, name: &str) -> Result<Vec<Record>> {
    if Path::new(name).is_file() {
        return read(Path::new(name));
    }
    let mut found = all(directory)?;
    let mut commits: Vec<String> = found.iter().map(|record| record.commit.clone()).collect();
    commits.sort();
    commits.dedup();
    found.retain(|record| record.commit.starts_with(name));
    if found.is_empty() {
        bail!(
            "'{name}' is neither a file of results nor a commit with results in {}; those are: {}",
            directory.display(),
            if commits.is_empty() { "none yet".into() } else { commits.join(", ") }
        );
    }
    Ok(found)
}

/// The floor that counts for a profile: the issue names the machine's own disk and the disk of 1 ms.
pub fn floor_for(floor: Option<Floor>, profile: &str) -> Option<f64> {
    match profile {
        "native" => floor.map(|floor| floor.native),
        "cloud" => floor.map(|floor| floor.cloud),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn run(configuration: &str, wall: f64) -> Run {
        Run {
            configuration: configuration.into(),
            round: 0,
            cold: None,
            prefetch: None,
            spoilt: 0,
            neighbour: None,
            measured: Measured { wall, user: 0.1, same: true, device_reads: Some(7), ..Measured::default() },
            report: None,
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median([]), 0.0);
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn the_summary_has_ratio_limit_and_share() {
        let base = |name: &str| if name.ends_with("warm") { "alone-warm" } else { "alone" }.to_string();
        let mut runs = vec![run("alone", 10.0), run("alone", 12.0), run("alone", 8.0), run("runahead", 2.0)];
        runs.push(run("alone-warm", 1.0));
        let summary = Summary::of(&runs, &[0.5, 0.6], base);
        assert_eq!(summary.configurations["alone"].median, 10.0);
        assert_eq!(
            (summary.configurations["alone"].least, summary.configurations["alone"].most),
            (8.0, 12.0)
        );
        assert_eq!(summary.configurations["runahead"].ratio, Some(5.0));
        assert_eq!(summary.limit, Some(1.0));
        assert_eq!(summary.share_of_possible_gain, Some(8.0 / 9.0));
        assert_eq!(Summary::of(&runs, &[4.0], base).limit, Some(4.0));
        assert_eq!(Summary::of(&runs[..3], &[], base).limit, None);
    }

    #[test]
    fn a_run_that_was_ended_gives_no_ratio() {
        let base = |_: &str| "alone".to_string();
        let mut runs = vec![run("alone", 900.0), run("runahead", 2.0)];
        runs[0].measured.late = true;
        let summary = Summary::of(&runs, &[1.0], base);
        assert!(summary.configurations["alone"].late && !summary.configurations["runahead"].late);
        assert_eq!((summary.configurations["runahead"].ratio, summary.share_of_possible_gain), (None, None));
        runs[0].measured.late = false;
        assert_eq!(Summary::of(&runs, &[1.0], base).configurations["runahead"].ratio, Some(450.0));
    }

    /// On the disk of 1 ms, alone and under Runahead, once each.
    pub fn record(workload: &str, time: u64, alone: f64, ours: f64) -> Record {
        let runs = vec![run("alone", alone), run("runahead", ours)];
        Record {
            format: FORMAT,
            time,
            commit: "abc".into(),
            subject: "runahead 0".into(),
            machine: Machine::this(),
            disk: Disk {
                profile: "cloud".into(),
                filesystem: "ext4".into(),
                read_ahead_kb: Some(128),
                check: serde_json::json!({ "ok": true }),
            },
            workload: workload.into(),
            data: vec![DataSize { name: "kernel".into(), version: 1, files: 9000, bytes: 70 << 20 }],
            memory_mb: Some(60),
            swap_mb: None,
            resident_percent: 0,
            floor: Some(9.0),
            summary: Summary::of(&runs, &[], |name| match name {
                "runahead" => "alone".into(),
                other => other.to_string(),
            }),
            runs,
            replays: vec![],
            marks: vec!["not cold".into()],
            patience: 900,
            hopeless: false,
        }
    }

    #[test]
    fn of_a_long_command_the_beginning_is_stored() {
        let command: Vec<String> = (0..100).map(|number| format!("file-{number}")).collect();
        let stored = shortened(serde_json::json!({ "command": command, "counts": { "reads": 3 } }));
        let command = stored["command"].as_array().unwrap();
        assert_eq!(command.len(), ARGUMENTS_KEPT + 1);
        assert_eq!((&command[0], &command[ARGUMENTS_KEPT]), (&"file-0".into(), &"… 88 more".into()));
        assert_eq!(stored["counts"]["reads"], 3);
        let short = serde_json::json!({ "command": ["cat", "x"] });
        assert_eq!(shortened(short.clone()), short);
    }

    #[test]
    fn a_record_names_no_place_of_this_machine() {
        let mut record = record("grep", 1, 0.125, 0.25);
        record.subject = "/home/me/checkout/target/release/runahead".into();
        record.marks = vec!["ended with '/home/me/checkout', /mnt/disk2/b and /mnt/disk/a".into()];
        record.runs[0].measured.difference = Some("/mnt/disk/a differs".into());
        record.runs[1].report =
            Some(serde_json::json!({ "command": ["/home/me/checkout/target/x", "--list=/mnt/disk/a"] }));
        let places = ["/home/me/checkout", "/home/me/checkout/target", "/mnt/disk", "/"].map(PathBuf::from);
        let stored = for_the_record(record, &places).unwrap();
        assert_eq!(stored.subject, "release/runahead");
        assert_eq!(stored.marks, ["ended with '.', /mnt/disk2/b and a"]);
        assert_eq!(stored.runs[0].measured.difference, Some("a differs".into()));
        let command = &stored.runs[1].report.as_ref().unwrap()["command"];
        assert_eq!(*command, serde_json::json!(["x", "--list=a"]));
        let text = serde_json::to_string(&stored).unwrap();
        assert!(!text.contains("/home/me") && !text.contains("/mnt/disk/"), "{text}");
    }

    #[test]
    fn half_a_line_is_passed_over_and_written_over() {
        let directory = std::env::temp_dir().join(format!("runahead-bench-half-{}", std::process::id()));
        let path = directory.join("results.jsonl");
        let record = record("grep", 1, 0.125, 0.25);
        append(&path, &record).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{whole}{}", &whole[..whole.len() / 2])).unwrap();
        assert_eq!(read(&path).unwrap(), vec![record.clone()]);
        append(&path, &record).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), whole.repeat(2));
        fs::write(&path, whole.trim_end()).unwrap();
        append(&path, &record).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            whole.repeat(2),
            "a line that lacks but its end is whole"
        );
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_line_that_was_cut_inside_a_letter_is_written_over_too() {
        let directory = std::env::temp_dir().join(format!("runahead-bench-letter-{}", std::process::id()));
        let path = directory.join("results.jsonl");
        let mut record = record("grep", 1, 0.125, 0.25);
        record.marks = vec!["… was cut".into()];
        append(&path, &record).unwrap();
        let whole = fs::read(&path).unwrap();
        let letter = whole.windows(3).position(|bytes| bytes == "…".as_bytes()).unwrap();
        fs::write(&path, [&whole, &whole[..letter + 1]].concat()).unwrap();
        assert_eq!(read(&path).unwrap(), vec![record.clone()]);
        append(&path, &record).unwrap();
        assert_eq!(fs::read(&path).unwrap(), whole.repeat(2));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn who_appends_waits_for_who_writes() {
        let directory = std::env::temp_dir().join(format!("runahead-bench-append-{}", std::process::id()));
        let path = directory.join("results.jsonl");
        let record = record("grep", 1, 0.125, 0.25);
        append(&path, &record).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        let (first, second) = whole.split_at(whole.len() / 2);
        let mut writer = OpenOptions::new().append(true).open(&path).unwrap();
        writer.lock().unwrap();
        writer.write_all(first.as_bytes()).unwrap();
        std::thread::scope(|scope| {
            let appended = scope.spawn(|| append(&path, &record));
            // Long enough for one that does not wait to cut the half line off.
            std::thread::sleep(std::time::Duration::from_millis(200));
            writer.write_all(second.as_bytes()).unwrap();
            writer.unlock().unwrap();
            appended.join().unwrap().unwrap();
        });
        assert_eq!(fs::read_to_string(&path).unwrap(), whole.repeat(3));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn records_survive_the_file() {
        let record = record("grep", 1, 0.125, 0.25);
        let directory = std::env::temp_dir().join(format!("runahead-bench-results-{}", std::process::id()));
        let path = directory.join("deep/results.jsonl");
        append(&path, &record).unwrap();
        append(&path, &record).unwrap();
        assert_eq!(read(&path).unwrap(), vec![record.clone(), record]);
        assert_eq!(find(&directory.join("deep"), "ab").unwrap().len(), 2);
        assert!(find(&directory.join("deep"), "zz").unwrap_err().to_string().contains("abc"));
        let other = directory.join("deep/compiler.jsonl");
        fs::write(&other, "{\"code\": \"MG\", \"disk\": \"cloud\"}\n").unwrap();
        assert_eq!(all(&directory.join("deep")).unwrap().len(), 2, "somebody else's results are passed over");
        fs::write(&other, "{\"format\": 1, \"disk\": \"cloud\"}\n").unwrap();
        assert!(all(&directory.join("deep")).is_err(), "ours that cannot be read are no reason for silence");
        fs::write(&other, "{\"format\": 1, \"di\n").unwrap();
        assert!(all(&directory.join("deep")).is_err());
        fs::remove_dir_all(directory).unwrap();
    }
}
