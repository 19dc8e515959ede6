//! Hard surroundings: Runahead's processes killed at random instants, no room on the disk, no memory,
//! no processes to be had, one core, an ordinary user.

use crate::programs::files;
use crate::suite::Suite;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::locate::{self, Runahead};
use runahead_end_to_end::scenario::{COLD, Scenario, WARM, bytes};
use runahead_end_to_end::supervise::{Harm, Torture};
use runahead_end_to_end::{Verdict, needs};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the killing goes on, and the scribbling; `RUNAHEAD_TORTURE_SECONDS` lengthens it.
fn torture_time() -> Duration {
    let seconds = std::env::var("RUNAHEAD_TORTURE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(20))
}

pub fn add(suite: &mut Suite) {
    suite.add_plain("torture::helpers killed at random instants", || harm_all(Harm::Kill));
    suite.add_plain("torture::garbage written over the shared memory", || harm_all(Harm::Scribble));
    surroundings(suite);
    suite.add("torture::memory cgroup with too little", ["root", "memory-cgroup"], memory_cgroup);
    suite.add("torture::a full disk", ["root", "command unshare"], full_disk);
    suite.add_plain("cold::eviction leaves nothing in the page cache", eviction);
}

/// Readers of different kinds: files by name, dependent blocks, children, threads.
fn victims() -> Result<Vec<Scenario>, String> {
    let mut scenarios = vec![
        Scenario::new(
            "torture md5sum",
            ["bash", "-c", "find tree -name '*.txt' | sort | xargs -n 40 md5sum"],
        )
        .prepare(files),
        Scenario::new("torture tar", ["tar", "--sort=name", "-cf", "-", "tree"]).prepare(files),
        Scenario::new("torture grep", ["bash", "-c", "exec grep -c needle tree/*/*.txt"]).prepare(files),
    ];
    let guests = Guest::all()?;
    let alone: Vec<_> = guests.iter().filter_map(|guest| guest.statically().map(Arc::new)).collect();
    for guest in guests.into_iter().chain(alone) {
        for run in guest.runs() {
            let wanted = [
                "guest::observe::streams",
                "guest::threads_own_files::fork",
                "guest::alarm_storm::reading-handler",
                "guest::fork_shared::fork",
                "guest::children::fork",
                "guest::pipe_ends",
                "guest::registers::general",
                "guest::executes::empty",
                "guest::executes::many",
                "static::executes::many",
                "static::observe::streams",
            ];
            if wanted.contains(&run.name.as_str()) {
                let mut scenario = guest.scenario(&run)?;
                scenario.name = format!("torture {}", run.name);
                scenarios.push(scenario);
            }
        }
    }
    Ok(scenarios)
}

/// Runs the victims again and again, each time with other instants, until the time is up.
fn harm_all(harm: Harm) -> Verdict {
    let runahead = Runahead::built()?;
    let started = Instant::now();
    let mut seed = std::process::id().into();
    let mut rounds = 0;
    while rounds == 0 || started.elapsed() < torture_time() {
        for mut scenario in victims()? {
            seed += 1;
            // Both kinds of harm are done at the same time, each in directories of its own.
            scenario.name = format!("{harm:?} {}", scenario.name);
            // Now hardly ever, now all the time.
            let longest_pause_us = [500, 5_000, 40_000][seed as usize % 3];
            let name = scenario.name.clone();
            let torture = Torture { harm, seed, longest_pause_us };
            let verdict = scenario.torture(torture).modes([COLD]).check(&runahead);
            verdict.map_err(|why| {
                format!("{name}, {harm:?}, seed {seed}, pauses up to {longest_pause_us} us: {why}")
            })?;
            if rounds > 0 && started.elapsed() > torture_time() {
                break;
            }
        }
        rounds += 1;
    }
    Ok(())
}

/// Commands that set a scene, around a reader that stalls a few hundred times.
fn surroundings(suite: &mut Suite) {
    let as_nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"];
    let limits = |limit: &str| {
        vec!["bash".to_owned(), "-c".to_owned(), format!("{limit}; exec \"$@\""), "bash".to_owned()]
    };
    let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    let scenes: Vec<(&str, Vec<&str>, Vec<String>)> = vec![
        ("one core", vec!["command taskset"], words(&["taskset", "-c", "0"])),
        ("an ordinary user", vec!["root", "command setpriv"], words(&as_nobody)),
        (
            "an ordinary user without new privileges",
            vec!["root", "command setpriv"],
            words(&[
                "setpriv",
                "--reuid",
                "65534",
                "--regid",
                "65534",
                "--clear-groups",
                "--no-new-privs",
                "--bounding-set=-all",
                "--",
            ]),
        ),
        ("an ordinary user, no processes to be had", vec!["root", "command setpriv"], {
            let mut both = words(&as_nobody);
            both.extend(limits("ulimit -u 1"));
            both
        }),
        ("few processes", vec![], limits("ulimit -u 3")),
        ("little address space", vec![], limits("ulimit -v 200000")),
        ("few descriptors", vec![], limits("ulimit -n 8")),
        ("no locked memory", vec![], limits("ulimit -l 0")),
        ("small files only", vec![], limits("ulimit -f 100")),
        ("no core files", vec![], limits("ulimit -c 0")),
        ("unlimited stack", vec![], limits("ulimit -s unlimited")),
        ("lowest priority", vec![], words(&["nice", "-n", "19"])),
        ("idle class", vec!["command chrt"], words(&["chrt", "-i", "0"])),
        ("real-time class", vec!["root", "command chrt"], words(&["chrt", "-f", "1"])),
        ("no random addresses", vec!["command setarch"], words(&["setarch", "-R"])),
        ("legacy address layout", vec!["command setarch"], words(&["setarch", "-L"])),
        ("empty environment", vec![], words(&["env", "-i"])),
        (
            "own process namespace",
            vec!["root", "command unshare"],
            words(&["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]),
        ),
        (
            "own user namespace",
            vec!["command unshare", "file /proc/self/ns/user"],
            words(&["unshare", "--user", "--map-root-user"]),
        ),
        ("no network", vec!["root", "command unshare"], words(&["unshare", "--net"])),
        ("signals ignored", vec![], limits("trap '' HUP INT TERM USR1 USR2 CHLD")),
        (
            "temporary directory not writable",
            vec![],
            words(&[
                "env",
                "TMPDIR=/proc/nonexistent",
                "XDG_RUNTIME_DIR=/proc/nonexistent",
                "HOME=/proc/nonexistent",
            ]),
        ),
        ("nohup", vec![], words(&["nohup"])),
        ("time limit", vec!["command timeout"], words(&["timeout", "50"])),
    ];
    for (name, needs, around) in scenes {
        let around_own = around.clone();
        suite.add(format!("torture::{name}"), needs, move || {
            let runahead = Runahead::built()?;
            for scenario in [reader("by name"), reader("python")] {
                scenario.around(around_own.clone()).modes([COLD, WARM]).check(&runahead)?;
            }
            Ok(())
        });
    }
}

/// A reader whose files everybody may read.
fn reader(kind: &str) -> Scenario {
    let argv = match kind {
        "python" => vec![
            "/usr/bin/python3",
            "-B",
            "-S",
            "-c",
            "import os, zlib\nfor at in range(60): print(at, zlib.crc32(open(f'plain/{at}', 'rb').read()))",
        ],
        _ => vec!["bash", "-c", "exec md5sum plain/*"],
    };
    Scenario::new(format!("torture reader {kind} {:?}", std::thread::current().id()), argv).prepare(
        |directory| {
            fs::create_dir(directory.join("plain"))?;
            for at in 0..60 {
                fs::write(directory.join(format!("plain/{at}")), bytes(at + 1, 9000 + at as usize * 500))?;
            }
            Ok(())
        },
    )
}

/// The program fits into its cgroup, and little more does; the page cache has to go around too.
fn memory_cgroup() -> Verdict {
    let (parent, limit_file) = needs::memory_cgroup().ok_or("the memory cgroup has gone")?;
    let folder = parent.join(format!("runahead-test-{}", std::process::id()));
    fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let attempt = || -> Verdict {
        let runahead = Runahead::built()?;
        for limit in ["64M", "24M", "12M"] {
            fs::write(folder.join(limit_file), limit).map_err(|error| format!("{limit_file}: {error}"))?;
            let join = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", folder.display());
            for scenario in [reader("by name"), reader("python")] {
                let scenario = scenario.around(["bash", "-c", &join, "bash"]).modes([COLD, WARM]);
                scenario.check(&runahead).map_err(|why| format!("limit {limit}: {why}"))?;
            }
        }
        Ok(())
    };
    let verdict = attempt();
    // The kernel takes a moment to let go of the last process.
    for _ in 0..100 {
        if fs::remove_dir(&folder).is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    verdict
}

/// A file system with no byte left, for the run's files, its TMPDIR and /dev/shm alike.
fn full_disk() -> Verdict {
    let runahead = Runahead::built()?;
    // In a mount namespace of its own, so nothing is left to clean up. A checkout below /tmp stays in sight.
    let fill = "mount -t tmpfs -o size=4M tmpfs plain/full && head -c 5M /dev/zero > plain/full/zeros 2> /dev/null; \
                mount --bind plain/full /dev/shm; \
                case \"$PWD $*\" in /tmp/* | *' /tmp/'*) ;; *) mount --bind plain/full /tmp;; esac; \
                TMPDIR=$PWD/plain/full XDG_RUNTIME_DIR=$PWD/plain/full exec \"$@\"";
    let scenario = Scenario::new(
        "torture full disk",
        ["bash", "-c", "md5sum plain/[0-9]*; cp plain/1 plain/full/copy; echo $?; wc -c < plain/full/copy; rm plain/full/copy"],
    )
    .prepare(|directory| {
        fs::create_dir_all(directory.join("plain/full"))?;
        for at in 0..60 {
            fs::write(directory.join(format!("plain/{at}")), bytes(at + 1, 9000 + at as usize * 500))?;
        }
        Ok(())
    })
    .around(["unshare", "--mount", "bash", "-c", fill, "bash"])
    .modes([COLD, WARM]);
    scenario.check(&runahead)
}

/// The premise of every cold run.
fn eviction() -> Verdict {
    let directory = locate::scratch().join("eviction");
    let attempt = || -> std::io::Result<(usize, usize, usize)> {
        fs::create_dir_all(&directory)?;
        let path = directory.join("file");
        fs::write(&path, bytes(1, 1 << 20))?;
        let (before, pages) = runahead_end_to_end::cold::resident_pages(&path)?;
        runahead_end_to_end::cold::evict(&directory)?;
        let (after, _) = runahead_end_to_end::cold::resident_pages(&path)?;
        fs::remove_dir_all(Path::new(&directory))?;
        Ok((before, after, pages))
    };
    let (before, after, pages) = attempt().map_err(|error| error.to_string())?;
    if before == pages && after == 0 {
        return Ok(());
    }
    Err(format!(
        "of {pages} pages {before} were in memory before and {after} after: on this file system the cold runs are warm; \
         name a directory on another in RUNAHEAD_SLOW_DIR"
    ))
}
