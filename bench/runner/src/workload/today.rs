//! More of what people run.

use std::ffi::{OsStr, OsString};

use super::commands::*;
use super::{PLAIN, Touches, Workload};

const GIT: &[(&str, &str)] = &[("git", "git")];
const RSYNC: &[(&str, &str)] = &[("rsync", "rsync")];
const ZSTD: &[(&str, &str)] = &[("zstd", "zstd")];
const MAKE: &[(&str, &str)] = &[("make", "make"), ("gcc", "gcc")];
const PYTHON: &[(&str, &str)] = &[("python3", "python3")];
const TODAY: &[&str] = &["today", "all"];

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "git-status",
        about: "git status in a repository of 9000 files",
        data: &["git"],
        needs: GIT,
        lists: TODAY,
        touches: Touches::Names("git"),
        command: |_| {
            // No lock, so that the index is not refreshed on the disk under test.
            let safe = ["git", "--no-optional-locks", "-c", "safe.directory=*", "-C", "git"];
            words(&[&safe[..], &["status", "--short"]].concat())
        },
        ..PLAIN
    },
    Workload {
        name: "rsync",
        about: "rsync --dry-run -c of 1000 files against 9000: checksums of both",
        data: &["kernel", "small"],
        needs: RSYNC,
        lists: TODAY,
        touches: Touches::Contents("small", EVERY),
        command: |_| words(&["rsync", "-rnc", "--out-format=%n", "small/", "kernel/"]),
        ..PLAIN
    },
    Workload {
        name: "zstd",
        about: "zstd of 3000 files to a pipe, one after another",
        data: &["kernel"],
        needs: ZSTD,
        lists: TODAY,
        touches: Touches::Contents("kernel", 3000),
        command: |place| with_files(place, &["zstd", "-q", "-1", "-c", "--single-thread"], "kernel", 3000),
        ..PLAIN
    },
    Workload {
        name: "wc",
        about: "wc of 9000 files",
        data: &["kernel"],
        lists: TODAY,
        touches: Touches::Contents("kernel", EVERY),
        command: |place| with_files(place, &["wc"], "kernel", EVERY),
        ..PLAIN
    },
    Workload {
        name: "cp-r",
        about: "cp -r of the tree of 9000 files into memory",
        data: &["kernel"],
        lists: TODAY,
        touches: Touches::Contents("kernel", EVERY),
        command: |place| {
            let copy = place.scratch.join("copy");
            Ok(vec!["cp".into(), "-r".into(), "kernel".into(), copy.into()])
        },
        ..PLAIN
    },
    Workload {
        name: "make",
        about: "make of a library of 60 C files, the objects into memory",
        data: &["library"],
        needs: MAKE,
        lists: TODAY,
        touches: Touches::Contents("library", EVERY),
        command: |place| {
            let set = place.disk.join("library");
            let mut all = words(&["make", "--no-print-directory", "-C"])?;
            all.push(place.scratch.clone().into());
            all.push("-f".into());
            all.push(set.join("Makefile").into());
            all.push(OsString::from_iter([OsStr::new("SOURCE="), set.as_os_str()]));
            Ok(all)
        },
        helpers: &["gcc", "cc1", "as", "ar"],
        ..PLAIN
    },
    Workload {
        name: "loader",
        about: "python3 data loader: 9000 small files in a shuffled order, each taken apart",
        data: &["kernel"],
        needs: PYTHON,
        lists: TODAY,
        touches: Touches::Contents("kernel", EVERY),
        command: |place| {
            let script = place.bench.join("workloads/loader.py");
            Ok(vec![python(), script.into(), list(place, "kernel", EVERY)?.into()])
        },
        ..PLAIN
    },
    Workload {
        name: "python-import",
        about: "python3 imports numpy and pandas",
        data: &["python"],
        needs: PYTHON,
        lists: TODAY,
        touches: Touches::Contents("python", EVERY),
        command: |_| {
            let script = "import numpy, pandas; print(numpy.__version__, pandas.DataFrame({'a': [1]}))";
            numeric_python(&["-c", script])
        },
        helpers: &["/usr/bin/python3"],
        ..PLAIN
    },
];
