//! The runner must notice a Runahead that changes a verdict, must not mind one that changes none, and must
//! tell both from what is flaky alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SUITE: &str = r#"# about: a suite of the runner's own tests
# limit: 3
cases() { printf '%s\n' firm sturdy flaky slow; }

run() {
  case "$1" in
    firm) [ -z "${BROKEN:-}" ] ;;
    sturdy) printf 'ok 1 - one\n%s 2 - two\n' "${BROKEN:-ok}" ;;
    flaky) [ "$(($(date +%N | cut -c 6,7 | sed 's/^0*//;s/^$/0/') % 2))" = 0 ] ;;
    slow) sleep "${BROKEN:+30}" 2>/dev/null; true ;;
  esac
}

verdicts() { tap_verdicts "$1"; }
"#;

/// A false Runahead: `run -- COMMAND` with this before it.
fn stand_in(folder: &Path, name: &str, before: &str) -> PathBuf {
    let path = folder.join(name);
    let session = "export RUNAHEAD_SESSION=1:3:0:0:0123456789abcdeffedcba9876543210:5";
    fs::write(&path, format!("#!/bin/sh\n{session}\n{before}\nshift 2\nexec \"$@\"\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn run(name: &str, before: &str, case: &str) -> (Output, serde_json::Value) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    let suites = folder.join("suites");
    fs::create_dir_all(&suites).unwrap();
    fs::write(suites.join(format!("{name}.sh")), SUITE).unwrap();
    let store = folder.join("results.jsonl");
    let output = Command::new(env!("CARGO_BIN_EXE_runahead-conformance"))
        .env("CONFORMANCE_SUITES", &suites)
        .env("RUNAHEAD_BIN", stand_in(&folder, "stand-in", before))
        .args(["run", "--again", "16", "--case", case, "--store"])
        .arg(&store)
        .output()
        .unwrap();
    let record = fs::read_to_string(&store).unwrap_or_default();
    let record = serde_json::from_str(&record).unwrap_or_else(|_| panic!("no record: {output:?}"));
    let _ = fs::remove_dir_all(&folder);
    (output, record)
}

#[test]
fn one_that_changes_nothing_is_not_minded() {
    let (output, record) = run("canary-honest", ":", "");
    assert!(output.status.success(), "{output:?}");
    assert_eq!((&record["different"], &record["cases"]), (&0.into(), &4.into()), "{record}");
}

#[test]
fn another_ending_is_noticed() {
    let (output, record) = run("canary-ending", "export BROKEN=not", "firm");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(record["differences"][0]["alone"]["exit 0"], 2 + 16, "{record}");
    assert_eq!(record["differences"][0]["under"]["exit 1"], 6, "{record}");
}

#[test]
fn another_verdict_within_a_case_is_noticed() {
    let (output, record) = run("canary-verdict", "export BROKEN='not ok'", "sturdy");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!((&record["different"], &record["same"]), (&1.into(), &2.into()), "{record}");
    assert_eq!(record["differences"][0]["name"], "2", "{record}");
}

#[test]
fn a_case_that_hangs_is_noticed() {
    let (output, record) = run("canary-hang", "export BROKEN=1; exec 1>&2", "slow");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(record["differences"][0]["under"]["time limit"], 6, "{record}");
}

#[test]
fn what_is_flaky_alone_is_no_difference() {
    let (output, record) = run("canary-flaky", ":", "flaky");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(record["different"], 0, "{record}");
}
