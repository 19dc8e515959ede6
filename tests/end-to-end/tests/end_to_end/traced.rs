//! `--trace`: whatever becomes of the run there is a timeline that keeps the format's rules, and nobody
//! inside notices.

use crate::contract::{BLIND_CALL, expect_code, expect_message, expect_not_started, run, text};
use crate::slow_disk::{Disk, WANTS};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::c_program::compiled;
use runahead_end_to_end::compare::Outcome;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::locate::{Runahead, build_folder};
use runahead_end_to_end::scenario::{Mode, Scenario, bytes};
use runahead_end_to_end::supervise::{Harm, Torture};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Outside of what is compared.
const TRACED: Mode = Mode { name: "traced", options: Some(&["--trace", "../trace.json"]), cold: true };
const ON_DISK: Mode = Mode {
    name: "traced on a disk",
    options: Some(&["--trace", "trace.json", "--report", "report.json"]),
    cold: false,
};

pub fn add(suite: &mut Suite) {
    let built = |check: fn(&Runahead) -> Verdict| move || check(&Runahead::built()?);
    suite.add_plain("traced::a file that cannot be had is 125 before the command starts", built(unwritable));
    suite.add_plain("traced::whatever becomes of the run, the trace is JSON", built(always_json));
    suite.add_plain("traced::where the file may not grow it stays whole", built(limited));
    suite.add(
        "traced::on a full disk it stays whole or is not there",
        ["root", "command unshare"],
        built(full_disk),
    );
    suite.add_plain("traced::nobody inside notices", unnoticed);
    suite.add_plain("traced::garbage in the shared memory makes no bad trace", garbage);
    suite.add("traced::waits and speculations on a slow disk", WANTS, on_slow_disk);
    suite.add_plain("traced::a page with a timeline, and what is no trace", page);
}

/// The records of a trace, if it keeps the rules of the format, and ours.
pub fn checked(text: &[u8]) -> Result<Value, String> {
    let trace: Value = serde_json::from_slice(text).map_err(|error| {
        format!("not JSON: {error}: {}", String::from_utf8_lossy(&text[text.len().saturating_sub(300)..]))
    })?;
    let records = trace["traceEvents"].as_array().ok_or("no records")?;
    let closing = &trace["runahead"];
    if closing["records"].as_u64() != Some(records.len() as u64) && closing["disk_full"] != true {
        return Err(format!("{} records, but it says {closing}", records.len()));
    }
    let elapsed = closing["elapsed_ns"].as_u64().ok_or("no time")?;
    let mut tracks: HashMap<(u64, u64), Vec<(u64, u64)>> = HashMap::new();
    for record in records {
        let bad = |what: &str| Err(format!("{what}: {record}"));
        let ns = |field: &str| record[field].as_f64().map(|us| (us * 1000.0).round());
        let number = |field: &str| record[field].as_u64().filter(|&number| number > 0);
        let (Some(kind), Some(_), Some(process), Some(begin)) =
            (record["ph"].as_str(), record["name"].as_str(), number("pid"), ns("ts"))
        else {
            return bad("a field is missing");
        };
        if begin < 0.0 || begin > elapsed as f64 {
            return bad("not within the run");
        }
        match kind {
            "X" => {
                let (Some(took), Some(thread)) = (ns("dur"), number("tid")) else { return bad("no span") };
                if took < 0.0 || begin + took > elapsed as f64 {
                    return bad("it ends after the run");
                }
                tracks.entry((process, thread)).or_default().push((begin as u64, (begin + took) as u64));
            }
            "i" if matches!(record["s"].as_str(), Some("t" | "g")) && number("tid").is_some() => {}
            "C" if record["args"]["value"].is_u64() => {}
            "M" if record["args"].is_object() => {}
            _ => return bad("no record of ours"),
        }
    }
    for (track, spans) in &mut tracks {
        spans.sort_by_key(|&(begin, end)| (begin, std::cmp::Reverse(end)));
        let mut open: Vec<u64> = Vec::new();
        for &(begin, end) in spans.iter() {
            open.retain(|&before| before > begin);
            if open.iter().any(|&before| end > before) {
                return Err(format!("{track:?}: {begin}..{end} overlaps one that ends at {open:?}"));
            }
            open.push(end);
        }
    }
    Ok(trace)
}

fn trace_in(outcome: &Outcome, name: &str) -> Result<Value, String> {
    let entry = outcome.tree.get(Path::new(name)).ok_or_else(|| format!("{name}: no trace was written"))?;
    checked(&entry.contents).map_err(|why| format!("{name}: {why}"))
}

fn count(trace: &Value, name: &str) -> usize {
    trace["traceEvents"]
        .as_array()
        .map_or(0, |records| records.iter().filter(|one| one["name"] == name).count())
}

fn unwritable(runahead: &Runahead) -> Verdict {
    for (path, about) in [
        ("/proc/nonexistent/trace.json", "/proc/nonexistent/trace.json"),
        ("folder", "folder"),
        ("plain-file/trace", "plain-file/trace"),
        ("pipe", "pipe"),
        ("/dev/full", "no regular file"),
        ("same.json --report same.json", "the report's file"),
    ] {
        let line = format!("mkfifo pipe; set -- $UNDER; exec $1 run --trace {path} -- touch started");
        let outcome = run("unwritable trace", &[], &line, runahead)?;
        expect_code(&outcome, 125).map_err(|why| format!("--trace {path}: {why}"))?;
        expect_not_started(&outcome)?;
        expect_message(&outcome, about)?;
    }
    Ok(())
}

fn always_json(runahead: &Runahead) -> Verdict {
    let blind = compiled(
        "traced-blind",
        &format!("{BLIND_CALL} int main(void) {{ return blind() <= 0; }}"),
        &["-O1"],
    )?;
    let blind = blind.to_string_lossy();
    for (name, command, says) in [
        ("ok", "md5sum tree/*/*.txt", ""),
        ("fails", "false", ""),
        ("killed", "bash -c 'cat tree/*/*.txt; kill -9 $$'", ""),
        ("forks", "bash -c 'for one in tree/*/*.txt; do cat $one & done; wait; sort tree/*/*.txt'", ""),
        ("executes", "bash -c 'exec sh -c \"cat tree/*/*.txt; exec cat tree/noise.bin\"'", ""),
        ("outlives", "bash -c '(sleep 0.3; cat tree/*/*.txt) > /dev/null 2>&1 & exit 0'", ""),
        ("blind", &blind, ""),
        ("not-found", "/nonexistent", ""),
        ("odd", "'a \"\\ \u{7}' 2> /dev/null", ""),
        ("off", "env", "the command runs plainly: RUNAHEAD=off"),
    ] {
        let off = if name == "off" { "export RUNAHEAD=off; " } else { "" };
        let line = format!(
            "{off}set -- $UNDER; $1 run --trace {name}.json -- {command} > /dev/null; cp {name}.json at-once; \
             for wait in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do \
             grep -q '\"complete\":true' {name}.json && break; sleep 0.05; done; exit 0"
        );
        let outcome = run("traced", &[], &line, runahead)?;
        expect_code(&outcome, 0)?;
        trace_in(&outcome, "at-once")?;
        let trace = trace_in(&outcome, &format!("{name}.json"))?;
        if trace["runahead"]["complete"] != true {
            return Err(format!("{command}: it is never complete: {}", trace["runahead"]));
        }
        if !trace.to_string().contains(says) {
            return Err(format!("{command}: it does not say '{says}'"));
        }
        // What ends by itself has waited for the trace.
        let is_waited_for = ["ok", "fails", "forks", "executes", "outlives", "off"].contains(&name);
        if is_waited_for && trace_in(&outcome, "at-once")?["runahead"]["complete"] != true {
            return Err(format!("{command}: not complete when the command returns"));
        }
    }
    Ok(())
}

/// `ulimit -f` below what the session needs lets nothing of ours begin; the trace's own limit is tried in
/// unit tests.
fn limited(runahead: &Runahead) -> Verdict {
    for kilobytes in ["0", "1", "200000"] {
        let line = format!(
            "set -- $UNDER; (ulimit -f {kilobytes}; exec $1 run --trace small.json -- cat tree/noise.bin) | cksum; exit 0"
        );
        let outcome = run("trace of no size", &[], &line, runahead)?;
        expect_code(&outcome, 0)?;
        let written = outcome.tree.get(Path::new("small.json")).map_or(&[][..], |entry| &entry.contents);
        if !written.is_empty() {
            checked(written).map_err(|why| format!("{kilobytes} KB: {why}"))?;
        } else if kilobytes != "0" {
            return Err(format!("{kilobytes} KB: nothing was written"));
        }
    }
    Ok(())
}

fn full_disk(runahead: &Runahead) -> Verdict {
    for (kilobytes, is_there) in [(0, false), (4, true), (8, true), (400, true)] {
        let script = format!(
            "mount -t tmpfs -o size=1M tmpfs folder && head -c 2M /dev/zero > folder/zeros 2> /dev/null; \
             truncate -s -{kilobytes}K folder/zeros; \
             $1 run --verbose --trace folder/trace.json -- bash -c 'for n in $(seq 30); do cat tree/*/*.txt | cksum; done'; \
             cp folder/trace.json copy.json"
        );
        let line = format!(
            "set -- $UNDER; exec unshare --mount bash -c \"$(cat <<'END'\n{script}\nEND\n)\" bash $1"
        );
        let outcome = run("trace on a full disk", &[], &line, runahead)?;
        expect_code(&outcome, 0)?;
        let written = outcome.tree.get(Path::new("copy.json")).map_or(&[][..], |entry| &entry.contents);
        if written.is_empty() == is_there {
            return Err(format!(
                "{kilobytes} KB: {} bytes were written: {}",
                written.len(),
                text(&outcome.stderr)
            ));
        }
        if is_there {
            checked(written).map_err(|why| format!("{kilobytes} KB: {why}"))?;
        } else if !text(&outcome.stderr).contains("the trace is not whole") {
            return Err(format!("{kilobytes} KB: it is not said: {}", text(&outcome.stderr)));
        }
    }
    Ok(())
}

/// Everything that can be observed is as alone.
fn unnoticed() -> Verdict {
    let runahead = Runahead::built()?;
    let wanted = [
        "guest::observe::",
        "guest::threads_own_files::",
        "guest::executes::many",
        "guest::lowest_descriptor",
    ];
    let mut seen = 0;
    for guest in Guest::all()? {
        for run in guest.runs().into_iter().filter(|run| wanted.iter().any(|name| run.name.starts_with(name)))
        {
            let mut scenario = guest.scenario(&run)?.modes([TRACED]);
            scenario.name = format!("traced {}", run.name);
            scenario.check(&runahead).map_err(|why| format!("{}: {why}", run.name))?;
            seen += 1;
            if runahead.label == "built" {
                let path = scenario.directory(&runahead).join("../trace.json");
                let trace = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                checked(&trace).map_err(|why| format!("{}: {why}", run.name))?;
            }
        }
    }
    if seen < 4 { Err(format!("only {seen} guests were found")) } else { Ok(()) }
}

fn garbage() -> Verdict {
    let runahead = Runahead::built()?;
    for seed in 1..=12 {
        let torture =
            Torture { harm: Harm::Scribble, seed, longest_pause_us: [300, 3000][seed as usize % 2] };
        let scenario = Scenario::new("traced garbage", ["bash", "-c", "cat plain/* | cksum; md5sum plain/*"])
            .prepare(|directory| {
                fs::create_dir(directory.join("plain"))?;
                (0..200)
                    .try_for_each(|at| fs::write(directory.join(format!("plain/{at}")), bytes(at + 1, 9000)))
            })
            .torture(torture)
            .modes([TRACED]);
        scenario.check(&runahead).map_err(|why| format!("seed {seed}: {why}"))?;
        if runahead.label == "built" {
            let path = scenario.directory(&runahead).join("../trace.json");
            let trace = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            // Nothing at all where the host was told of no process.
            checked(&trace).map_err(|why| format!("seed {seed}: {why}"))?;
        }
    }
    Ok(())
}

/// Reads that depend on nothing: waits at first, then speculation.
fn on_slow_disk() -> Verdict {
    let program = compiled("traced-disk", include_str!("situations.c"), &["-O1"])?;
    let disk = Disk::new("traced", "cloud", |folder| fs::write(folder.join("data"), bytes(7, 32 << 20)))?;
    let words = |mount: &Path| vec![program.clone(), "random".into(), mount.join("data"), "2000".into()];
    let mut why = String::new();
    for _ in 0..5 {
        let Some(outcome) = disk.run(&words, &ON_DISK)? else { return Ok(()) };
        if Runahead::built()?.label != "built" {
            return Ok(());
        }
        let trace = trace_in(&outcome, "trace.json")?;
        let report = outcome.tree.get(Path::new("report.json")).ok_or("no report")?;
        let report: Value = serde_json::from_slice(&report.contents).map_err(|error| error.to_string())?;
        why = match as_reported(&trace, &report) {
            Ok(()) => {
                let _ = fs::remove_file(&program);
                return Ok(());
            }
            Err(why) => why,
        };
    }
    Err(why)
}

fn as_reported(trace: &Value, report: &Value) -> Verdict {
    let counted = |name: &str| report["counts"][name].as_u64().unwrap_or(0) as usize;
    let waits = count(trace, "read") + count(trace, "read, on its way");
    let (stalls, posts) = (counted("stalls"), counted("posts"));
    let restarts = count(trace, "restart");
    let spans = trace["traceEvents"].as_array().ok_or("no records")?;
    let waited: f64 = spans
        .iter()
        .filter(|one| one["name"].as_str().is_some_and(|name| name.starts_with("read")))
        .filter_map(|one| one["dur"].as_f64())
        .sum();
    let reported = report["counts"]["stall_ns"].as_f64().unwrap_or(0.0) / 1000.0;
    let speculations = count(trace, "speculation");
    let depth = count(trace, "operations ahead");
    if waits != stalls || restarts != posts || stalls < 2 {
        return Err(format!("{waits} waits of {stalls}, {restarts} restarts of {posts}"));
    }
    // A wait that is not over at the end is not counted.
    if (waited - reported).abs() > 0.1 * reported + 20_000.0 {
        return Err(format!("waited {waited} us, and reported are {reported}"));
    }
    let asked =
        spans.iter().any(|one| one["name"].as_str().is_some_and(|name| name.starts_with("asked ahead")));
    if speculations == 0 || depth == 0 || !asked || count(trace, "sync") == 0 {
        return Err(format!("{speculations} speculations, {depth} depths, asked: {asked}"));
    }
    Ok(())
}

fn page() -> Verdict {
    let runahead = Runahead::built()?;
    if runahead.label != "built" {
        return Ok(());
    }
    let folder = build_folder().join(format!("traced-page-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&runahead.command);
        let output = command.args(arguments).current_dir(&folder).stdin(Stdio::null()).output();
        let output = output.map_err(|error| error.to_string())?;
        Ok::<_, String>((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    run(&["run", "--report", "report.json", "--trace", "trace.json", "--", "cat", "/etc/passwd"])?;
    let made = run(&["report", "report.json", "--trace", "trace.json", "-o", "page.html"])?;
    let page = fs::read_to_string(folder.join("page.html")).map_err(|error| format!("{made:?}: {error}"))?;
    if made != (Some(0), String::new()) || !page.contains("Over time") || page.contains("http") {
        return Err(format!("{made:?}: {page}"));
    }
    let whole = fs::read_to_string(folder.join("trace.json")).map_err(|error| error.to_string())?;
    let cut = &whole[..whole.len() / 2];
    let other = whole.replacen("\"version\":1", "\"version\":9", 1);
    for (name, text, says) in [
        ("cut.json", cut, "it is cut short"),
        ("other.json", &other, "version 9, and this Runahead reads version 1"),
        ("empty.json", "", "it is empty"),
        ("none.json", "hello", "it is no trace"),
    ] {
        fs::write(folder.join(name), text).map_err(|error| error.to_string())?;
        let (status, said) = run(&["report", "report.json", "--trace", name, "-o", "none.html"])?;
        let is_clear = said.starts_with(&format!("runahead: {name}: ")) && said.contains(says);
        if status != Some(1) || !is_clear || said.lines().count() != 1 || folder.join("none.html").exists() {
            return Err(format!("{name}: {status:?}, {said}"));
        }
    }
    let _ = fs::remove_dir_all(&folder);
    Ok(())
}
