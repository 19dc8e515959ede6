//! "Why is it not faster?": `--stats` names it in prepared situations, with what helps; and `runahead stat`
//! says in bounds what a run comes to. What the program prints and how it ends is compared with the run
//! alone.

use crate::contract::BLIND_CALL;
use crate::memory::Group;
use crate::slow_disk::{Disk, WANTS};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::c_program::compiled;
use runahead_end_to_end::compare::Outcome;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::locate::{Runahead, build_folder};
use runahead_end_to_end::scenario::{ALONE, Mode, bytes};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SOURCE: &str = include_str!("situations.c");

const STATS: Mode = Mode { name: "stats", options: Some(&["--stats"]), cold: false };
const WATCHED: Mode = Mode {
    name: "watched",
    options: Some(&["--no-speculate", "--stats", "--report", "report.json"]),
    cold: false,
};
const REPORTED: Mode = Mode { name: "reported", options: Some(&["--report", "report.json"]), cold: false };

/// What a loaded machine spoils is tried again.
const TIMES: u32 = 5;

/// Bytes of the file on the slow disk.
const SIZE: usize = 32 << 20;

/// A situation on a slow disk: how the program reads, how often, the system calls that are refused, what is
/// to be said, and what is to be tried.
struct Situation {
    name: &'static str,
    /// What its disk is called.
    disk: &'static str,
    way: &'static str,
    count: &'static str,
    refused: Option<[&'static str; 2]>,
    says: &'static str,
    remedy: &'static str,
    flags: &'static [&'static str],
}

const PLAIN: Situation = Situation {
    name: "",
    disk: "",
    way: "",
    count: "",
    refused: None,
    says: "",
    remedy: "",
    flags: &["-O1"],
};

const SITUATIONS: [Situation; 9] = [
    Situation {
        name: "reads that depend on each other",
        disk: "told-hangs",
        way: "chain",
        count: "700",
        says: "each read hangs on the one before",
        remedy: "the program itself would have to ask for more at a time",
        ..PLAIN
    },
    Situation {
        name: "no page cache",
        disk: "told-direct",
        way: "direct",
        count: "400",
        says: "or reads that pass the page cache by (O_DIRECT",
        remedy: "buffered reads",
        ..PLAIN
    },
    Situation {
        name: "a start that reads, and then clients",
        disk: "told-serves",
        way: "serves",
        count: "20",
        says: "it waits for something that is no file",
        ..PLAIN
    },
    Situation {
        name: "computing",
        disk: "told-computes",
        way: "computes",
        count: "40",
        says: "it computes: its processors are busy",
        ..PLAIN
    },
    Situation {
        name: "page faults that are not shown",
        disk: "told-unshown",
        way: "mapped",
        count: "400",
        refused: Some(["errno", "298"]),
        says: "waits in mapped files were seen by the pages that came alone",
        remedy: "perf_event_open|seccomp=unconfined",
        ..PLAIN
    },
    Situation {
        name: "a container that lets no process be read",
        disk: "told-unread",
        way: "random",
        count: "100",
        refused: Some(["errno", "process_vm_readv"]),
        says: "running the command plainly: the kernel lets no process be read",
        remedy: "process_vm_readv|seccomp=unconfined",
        ..PLAIN
    },
    Situation {
        name: "a filter that ends who makes a call",
        disk: "told-ended",
        way: "random",
        count: "100",
        refused: Some(["kill", "preadv2"]),
        says: "running the command plainly: a filter of system calls (seccomp) ends a process",
        remedy: "SystemCallErrorNumber=EPERM|seccomp=unconfined",
        ..PLAIN
    },
    Situation {
        name: "a static program that may not be traced",
        disk: "told-static",
        way: "random",
        count: "100",
        refused: Some(["errno", "101"]),
        says: "it is statically linked",
        remedy: "ptrace|seccomp=unconfined",
        flags: &["-O1", "-static"],
    },
    Situation {
        name: "nothing is in the way",
        disk: "told-helped",
        way: "random",
        count: "2000",
        says: "left to gain",
        ..PLAIN
    },
];

pub fn add(suite: &mut Suite) {
    for situation in SITUATIONS {
        let name = format!("told::{}", situation.name);
        suite.add(name, WANTS.into_iter().chain(["command gcc"]), move || on_slow_disk(&situation));
    }
    suite.add("told::all is in memory", ["command gcc"], all_cached);
    suite.add_plain("told::it waits for no file", waits_for_no_file);
    suite.add_plain("told::a switch that is off", switched_off);
    suite.add("told::code that makes calls nobody can see", ["command gcc"], blind);
    suite.add("told::rights at the start", ["root", "command setpriv"], rights);
    suite.add("told::memory is full", ["root", "memory-cgroup"], memory_full);
    suite.add("told::what a run comes to lies in the bounds of what was said", WANTS, in_bounds);
    suite.add_plain("told::a page of a report, and what is none", page);
    suite.add_plain("told::without the helper the reasons are said all the same", without_helper);
}

/// The words in one line, without what stands before each.
fn words(outcome: &[u8]) -> String {
    let text = String::from_utf8_lossy(outcome);
    let words: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("runahead: "))
        .flat_map(|line| line.split_whitespace())
        .collect();
    words.join(" ")
}

/// One of the remedies, which `|` sets apart; none is wanted where that is empty.
fn expect(said: &str, says: &str, remedy: &str) -> Verdict {
    let tried = said.split_once("try: ").map_or("", |(_, tried)| tried);
    let helps =
        if remedy.is_empty() { tried.is_empty() } else { remedy.split('|').any(|one| tried.contains(one)) };
    match said.contains(says) && helps {
        true => Ok(()),
        false => Err(format!("expected '{says}', to try '{remedy}', but it says: {said}")),
    }
}

fn same_result(alone: &Outcome, under: &Outcome) -> Verdict {
    let ends = |outcome: &Outcome| format!("{:?}", outcome.report.ending);
    match alone.stdout == under.stdout && !alone.stdout.is_empty() && ends(alone) == ends(under) {
        true => Ok(()),
        false => {
            Err(format!("not as alone: {:?}, {:?}", ends(under), String::from_utf8_lossy(&under.stdout)))
        }
    }
}

fn is_built() -> Result<bool, String> {
    Ok(Runahead::built()?.label == "built")
}

fn file_of_random_words(folder: &Path) -> std::io::Result<()> {
    fs::write(folder.join("data"), bytes(7, SIZE))
}

fn guest(name: &str) -> Result<String, String> {
    let guest = Guest::all()?.into_iter().find(|guest| guest.name() == name).ok_or("no such guest")?;
    Ok(guest.build()?.to_string_lossy().into_owned())
}

/// What is said is tried again: a loaded machine may make it say that it had no processor.
fn on_slow_disk(situation: &Situation) -> Verdict {
    if !is_built()? {
        return Ok(());
    }
    let program = compiled(&format!("told-{}", situation.name.replace(' ', "-")), SOURCE, situation.flags)?;
    let around = match situation.refused {
        None => Vec::new(),
        Some([how, calls]) => vec![guest("filtered")?, how.to_owned(), calls.to_owned()],
    };
    let disk = Disk::new(situation.disk, "cloud", file_of_random_words)?.around(around);
    let words_of = |mount: &Path| {
        vec![program.clone(), situation.way.into(), mount.join("data"), situation.count.into()]
    };
    let mut verdict = Ok(());
    for _ in 0..TIMES {
        let Some(alone) = disk.run(&words_of, &ALONE)? else { return Ok(()) };
        let Some(under) = disk.run(&words_of, &STATS)? else { return Ok(()) };
        same_result(&alone, &under)?;
        verdict = expect(&words(&under.stderr), situation.says, situation.remedy);
        if verdict.is_ok() {
            break;
        }
    }
    let _ = fs::remove_file(program);
    verdict
}

/// Runs `words` with `--stats` in a shell line's surroundings and gives what is said.
fn said(before: &[&str], command: &str, words_of: &[&str]) -> Result<String, String> {
    let all: Vec<&str> = [before, &[command, "run", "--stats", "--"], words_of].concat();
    let mut process = Command::new(all[0]);
    let output = process.args(&all[1..]).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(words(&output.stderr)),
        false => Err(format!("{all:?}: {output:?}")),
    }
}

fn all_cached() -> Verdict {
    if !is_built()? {
        return Ok(());
    }
    let program = compiled("told-cached", SOURCE, &["-O1"])?;
    let data = build_folder().join(format!("told-data-{}", std::process::id()));
    fs::write(&data, bytes(7, SIZE)).map_err(|error| error.to_string())?;
    let words =
        [&*program.to_string_lossy(), "computes", &*data.to_string_lossy(), "20000"].map(str::to_owned);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let told = said(&[], &Runahead::built()?.command, &words);
    let _ = (fs::remove_file(data), fs::remove_file(program));
    // It may say before that the machine is busy.
    expect(&told?, "all that it reads is in memory already", "|run less")
}

fn waits_for_no_file() -> Verdict {
    if !is_built()? {
        return Ok(());
    }
    let told = said(&[], &Runahead::built()?.command, &["sleep", "0.4"])?;
    expect(&told, "it waits for something that is no file", "")
}

fn switched_off() -> Verdict {
    if !is_built()? {
        return Ok(());
    }
    let told = said(&["env", "RUNAHEAD=off"], &Runahead::built()?.command, &["true"])?;
    expect(&told, "RUNAHEAD=off in the environment", "unset RUNAHEAD")
}

fn blind() -> Verdict {
    if !is_built()? {
        return Ok(());
    }
    let source = format!("{BLIND_CALL} int main(void) {{ return blind() <= 0; }}");
    let program = compiled("told-blind", &source, &["-O1"])?;
    let told = said(&[], &Runahead::built()?.command, &[&*program.to_string_lossy()]);
    let _ = fs::remove_file(program);
    expect(&told?, "makes, or may make, system calls that cannot be seen", "")
}

fn rights() -> Verdict {
    if !is_built()? {
        return Ok(());
    }
    let folder = build_folder().join(format!("told-rights-{}", std::process::id()));
    let error = |error: std::io::Error| error.to_string();
    fs::create_dir_all(&folder).map_err(error)?;
    let runahead = Runahead::built()?.copied(&folder, &[])?;
    let program = folder.join("program");
    fs::copy("/bin/true", &program).map_err(error)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).map_err(error)?;
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    let told = said(&nobody, &runahead.command, &[&*program.to_string_lossy()]);
    let _ = fs::remove_dir_all(&folder);
    expect(&told?, "it gets rights at its start (setuid", "sudo runahead run -- COMMAND")
}

fn memory_full() -> Verdict {
    let group = Group::make("told", crate::memory::FULL)?;
    let Some(outcome) = crate::memory::fills(&group, &Mode { cold: true, ..STATS })? else { return Ok(()) };
    expect(&words(&outcome.stderr), "the command was left alone: memory", "MemoryMax=1G|--memory 1g")
}

/// A run's time lies between the bounds that a watched one has said, as far as a busy machine lets that be
/// told: with a quarter of the lower bound, twice the upper one.
fn in_bounds() -> Verdict {
    if !is_built()? {
        return Ok(());
    }
    let program = compiled("told-bounds", SOURCE, &["-O1"])?;
    let disk = Disk::new("told-bounds", "cloud", file_of_random_words)?;
    // Somebody's mount namespace may keep the disk, and what is cached of it, over from one run to the next:
    // such a run has nothing to wait for.
    for way in ["random", "chain", "mapped"] {
        let mut verdict = Ok(());
        for _ in 0..TIMES {
            verdict = is_in_bounds(&disk, &program, way);
            if verdict.is_ok() {
                break;
            }
        }
        verdict?;
    }
    let _ = fs::remove_file(program);
    Ok(())
}

fn is_in_bounds<Fill: Fn(&Path) -> std::io::Result<()>>(
    disk: &Disk<Fill>,
    program: &Path,
    way: &str,
) -> Verdict {
    let words_of = |mount: &Path| vec![program.to_owned(), way.into(), mount.join("data"), "800".into()];
    let Some(watched) = disk.run(&words_of, &WATCHED)? else { return Ok(()) };
    let Some(run) = disk.run(&words_of, &REPORTED)? else { return Ok(()) };
    let said = words(&watched.stderr);
    let bounds = said.split_once("between ").and_then(|(_, rest)| {
        let (best, rest) = rest.split_once(" (64 at a time) and ")?;
        Some((seconds(best)?, seconds(rest.split_once(" (where")?.0)?))
    });
    let Some((best, worst)) = bounds else { return Err(format!("{way}: no bounds: {said}")) };
    let entry = run.tree.get(Path::new("report.json")).ok_or("no report was written")?;
    let report: serde_json::Value =
        serde_json::from_slice(&entry.contents).map_err(|error| format!("not JSON: {error}"))?;
    let took = report["elapsed_ns"].as_f64().ok_or("no elapsed time")? / 1e9;
    match took < best / 4.0 || took > worst * 2.0 || best >= worst {
        true => Err(format!("{way}: it took {took} s, and was to take between {best} and {worst}")),
        false => Ok(()),
    }
}

/// `0.12 s`, `96.1 ms`.
fn seconds(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ')?;
    let number: f64 = number.parse().ok()?;
    Some(if unit == "ms" { number / 1e3 } else { number })
}

fn without_helper() -> Verdict {
    if !is_built()? {
        return Ok(());
    }
    let folder = build_folder().join(format!("told-helper-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let runahead = Runahead::built()?.copied(&folder, &["runahead-report"])?;
    let began = Instant::now();
    let told = said(&[], &runahead.command, &["true"]);
    let _ = fs::remove_dir_all(&folder);
    if began.elapsed() > Duration::from_secs(2) {
        return Err(format!("it took {:?}", began.elapsed()));
    }
    expect(&told?, "runahead-report cannot tell more", "")
}

/// `runahead report`: a page, or one clear line and no page.
fn page() -> Verdict {
    if !is_built()? {
        return Ok(());
    }
    let runahead = Runahead::built()?.command;
    let folder = build_folder().join(format!("told-page-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let run = |arguments: &[&str]| {
        let output =
            Command::new(&runahead).args(arguments).current_dir(&folder).stdin(Stdio::null()).output();
        let output = output.map_err(|error| error.to_string())?;
        Ok::<_, String>((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    run(&["run", "--report", "report.json", "--", "cat", "/etc/passwd"])?;
    let made = run(&["report", "report.json", "-o", "page.html"])?;
    let page = fs::read_to_string(folder.join("page.html")).map_err(|error| format!("{made:?}: {error}"))?;
    if made != (Some(0), String::new()) || !page.contains("cat /etc/passwd") || page.contains("http") {
        return Err(format!("{made:?}: {page}"));
    }
    let whole = fs::read_to_string(folder.join("report.json")).map_err(|error| error.to_string())?;
    let cut = &whole[..whole.len() / 2];
    let other = whole.replacen("\"version\": 1", "\"version\": 9", 1);
    for (name, text, says) in [
        ("cut.json", cut, "it is cut short"),
        ("other.json", &other, "version 9, and this Runahead reads version 1"),
        ("empty.json", "", "it is empty"),
        ("none.json", "hello", "it is no report"),
    ] {
        fs::write(folder.join(name), text).map_err(|error| error.to_string())?;
        let (status, said) = run(&["report", name, "-o", "none.html"])?;
        let is_clear = said.starts_with(&format!("runahead: {name}: ")) && said.contains(says);
        if status != Some(1) || !is_clear || said.lines().count() != 1 || folder.join("none.html").exists() {
            return Err(format!("{name}: {status:?}, {said}"));
        }
    }
    let huge = fs::File::create(folder.join("huge.json")).and_then(|file| file.set_len(5 << 30));
    huge.map_err(|error| error.to_string())?;
    let (status, said) = run(&["report", "huge.json"])?;
    if status != Some(1) || !said.contains("larger than 64 MB") {
        return Err(format!("huge: {status:?}, {said}"));
    }
    let (status, _) = run(&["report", "no-such-file"])?;
    let _ = fs::remove_dir_all(&folder);
    if status == Some(1) { Ok(()) } else { Err(format!("a file that is not there: {status:?}")) }
}
