//! Rooms that a command makes and goes into: other roots, sandboxes, other rights.

use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::locate::Runahead;
use runahead_end_to_end::scenario::{Mode, Scenario, bytes};
use std::path::Path;

const REPORTED: Mode = Mode { name: "reported", options: Some(&["--report", "report.json"]), cold: true };
const REPORTED_WARM: Mode = Mode { name: "reported, warm", cold: false, ..REPORTED };

pub fn add(suite: &mut Suite) {
    suite.add(
        "rooms::without /dev there is speculation, and it is told of",
        ["root", "command unshare"],
        no_null,
    );
    suite.add_plain("rooms::a command with as many arguments as there may be", many_arguments);
    suite.add_plain("rooms::a command that is killed is told of at once", told_at_once);
}

/// Nothing is there that nothing comes from.
fn no_null() -> Verdict {
    let reads = "import os, random\nrandom.seed(3)\ndata = os.open('data', os.O_RDONLY)\n\
        print(sum(os.pread(data, 100, random.randrange(16 << 20))[0] for _ in range(400)))\n";
    let line = "exec unshare -m bash -c 'mount -t tmpfs none /dev; exec $UNDER python3 -S reads.py'";
    let scenario = Scenario::shell("rooms no null", line).prepare(move |directory| {
        std::fs::write(directory.join("reads.py"), reads)?;
        std::fs::write(directory.join("data"), bytes(5, 17 << 20))
    });
    let runahead = Runahead::built()?;
    let told = scenario.run(&TOLD_COLD, &runahead).map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    if said.contains("cannot tell more") || !said.contains("runahead: took") {
        return Err(format!("not told of: {said}"));
    }
    let told = scenario.run(&REPORTED, &runahead).map_err(|error| error.to_string())?;
    let report = told.tree.get(Path::new("report.json")).ok_or("there is no report")?;
    let report = String::from_utf8_lossy(&report.contents).into_owned();
    match report.contains("\"sync_ns\": 0,") {
        false => Ok(()),
        true => Err(format!("nobody ran ahead: {report}")),
    }
}

/// With the host's own words these would be too many.
fn many_arguments() -> Verdict {
    let runahead = Runahead::built()?;
    // The most that the launcher itself is started with, and some less.
    let line = "ulimit -s 512; most() { low=60000; high=131072; while [ $((high - low)) -gt 8 ]; do \
        mid=$(((low + high) / 2)); if /bin/true $(printf '%*s' $mid '' | tr ' ' x) 2> /dev/null; \
        then low=$mid; else high=$mid; fi; done; echo $low; }; most=$(most); \
        for less in 200 260 320 380 440 500 600 700; do \
        python3 -S -c 'import os, sys; os.execvp(sys.argv[2], sys.argv[2:] + [\"x\" * int(sys.argv[1])])' \
        $((most - less)) $UNDER true; done";
    let told = Scenario::shell("rooms many arguments", line).run(&TOLD, &runahead);
    let told = told.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    match said.contains("cannot be executed") || !said.contains("runahead: took") {
        false => Ok(()),
        true => Err(format!("not told of: {said}")),
    }
}

/// Nobody of ours sees its end.
fn told_at_once() -> Verdict {
    let line = "$UNDER sh -c 'kill -9 $$'; sleep 0.6";
    let (scenario, runahead) = (Scenario::shell("rooms told at once", line), Runahead::built()?);
    // What is not known yet has a host, which hears of every end.
    scenario.run(&REPORTED_WARM, &runahead).map_err(|error| error.to_string())?;
    let told = scenario.run(&REPORTED_WARM, &runahead).map_err(|error| error.to_string())?;
    let report = told.tree.get(Path::new("report.json")).ok_or("there is no report")?;
    let report = String::from_utf8_lossy(&report.contents).into_owned();
    let elapsed = report.lines().find_map(|line| line.trim().strip_prefix("\"elapsed_ns\": "));
    let elapsed: u64 = elapsed.and_then(|ns| ns.trim_end_matches(',').parse().ok()).unwrap_or(u64::MAX);
    match elapsed {
        0..150_000_000 => Ok(()),
        _ => Err(format!("it is said to have taken {elapsed} ns: {report}")),
    }
}

const TOLD_COLD: Mode = Mode { name: "told, cold", options: Some(&["--stats"]), cold: true };
const TOLD: Mode = Mode { name: "told", options: Some(&["--stats"]), cold: false };
