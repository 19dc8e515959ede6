//! Every workload, one entry each, and what their commands are put together from.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Floor, Place, Touches, Workload};
use crate::data;

/// All files of a set.
pub(super) const EVERY: usize = usize::MAX;

const AGREP: &[(&str, &str)] = &[("agrep", "glimpse")];
const RIPGREP: &[(&str, &str)] = &[("rg", "ripgrep")];
const GIT: &[(&str, &str)] = &[("git", "git")];
const PYTHON: &[(&str, &str)] = &[("python3", "python3")];
const CSCOPE: &[(&str, &str)] = &[("cscope", "cscope")];
const SQLITE: &[(&str, &str)] = &[("sqlite3", "sqlite3")];
const LD: &[(&str, &str)] = &[("ld", "binutils"), ("gcc", "gcc"), ("make", "make")];

const RSYNC: &[(&str, &str)] = &[("rsync", "rsync")];
const ZSTD: &[(&str, &str)] = &[("zstd", "zstd")];
const XZ: &[(&str, &str)] = &[("xz", "xz-utils")];

const CORE: &[&str] = &["core", "all"];
const TODAY: &[&str] = &["today", "all"];
const CONTROLS: &[&str] = &["controls", "all"];
const SMOKE: &[&str] = &["smoke"];

const fn floor(native: f64, cloud: f64) -> Option<Floor> {
    Some(Floor { native, cloud })
}

/// Every workload, in the order of reports.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "agrep",
        about: "agrep for a word in 9000 kernel source files",
        data: &["kernel"],
        needs: AGREP,
        floor: floor(1.7, 7.0),
        lists: CORE,
        touches: Touches::Contents("kernel", EVERY),
        command: |place| with_files(place, &["agrep", "spin_lock_irqsave"], "kernel", EVERY),
    },
    Workload {
        name: "grep",
        about: "grep -c over the same files as arguments",
        data: &["kernel"],
        needs: &[],
        floor: floor(1.7, 9.0),
        lists: CORE,
        touches: Touches::Contents("kernel", EVERY),
        command: |place| with_files(place, &["grep", "-c", "spin_lock_irqsave"], "kernel", EVERY),
    },
    Workload {
        name: "grep-r",
        about: "grep -r over the same tree",
        data: &["kernel"],
        needs: &[],
        floor: floor(1.7, 9.0),
        lists: CORE,
        touches: Touches::Contents("kernel", EVERY),
        command: |_| words(&["grep", "-rc", "spin_lock_irqsave", "kernel"]),
    },
    Workload {
        name: "ripgrep",
        about: "ripgrep -j1 over the same tree",
        data: &["kernel"],
        needs: RIPGREP,
        floor: floor(1.7, 9.0),
        lists: CORE,
        touches: Touches::Contents("kernel", EVERY),
        command: |_| words(&["rg", "--no-config", "-j1", "-c", "spin_lock_irqsave", "kernel"]),
    },
    Workload {
        name: "md5sum",
        about: "md5sum of 3000 files",
        data: &["kernel"],
        needs: &[],
        floor: floor(1.4, 8.0),
        lists: CORE,
        touches: Touches::Contents("kernel", 3000),
        command: |place| with_files(place, &["md5sum"], "kernel", 3000),
    },
    Workload {
        name: "cat",
        about: "cat of 3000 files to a pipe",
        data: &["kernel"],
        needs: &[],
        floor: floor(1.4, 8.0),
        lists: CORE,
        touches: Touches::Contents("kernel", 3000),
        command: |place| with_files(place, &["cat"], "kernel", 3000),
    },
    Workload {
        name: "tar",
        about: "tar of the tree of 9000 files to a pipe",
        data: &["kernel"],
        needs: &[],
        floor: floor(1.3, 8.0),
        lists: CORE,
        touches: Touches::Contents("kernel", EVERY),
        command: |_| words(&["tar", "-cf", "-", "kernel"]),
    },
    Workload {
        name: "git-grep",
        about: "git grep, 1 thread, 9000 files",
        data: &["git"],
        needs: GIT,
        floor: floor(1.5, 9.0),
        lists: CORE,
        touches: Touches::Contents("git", EVERY),
        command: |_| {
            // The tree belongs to whoever made it, and git asks about that.
            let safe = ["git", "-c", "safe.directory=*", "-c", "grep.threads=1", "-C", "git"];
            words(&[&safe[..], &["grep", "-c", "spin_lock_irqsave"]].concat())
        },
    },
    Workload {
        name: "python",
        about: "python3 reading 3000 files in a loop",
        data: &["kernel"],
        needs: PYTHON,
        floor: floor(1.4, 8.0),
        lists: CORE,
        touches: Touches::Contents("kernel", 3000),
        command: |place| {
            let list = list(place, "kernel", 3000)?;
            let script = place.bench.join("workloads/readall.py");
            // The system's own where there is one: version managers put a script in its place.
            let system = Path::new("/usr/bin/python3");
            let python = if system.exists() { system } else { Path::new("python3") };
            Ok(vec![python.into(), script.into(), list.into()])
        },
    },
    Workload {
        name: "preads",
        about: "20,000 random 4 KiB preads, offsets computed",
        data: &["blocks"],
        needs: &[],
        floor: floor(6.5, 20.0),
        lists: CORE,
        touches: Touches::Contents("blocks", EVERY),
        command: |place| own(place, "bench-preads", &["--reads", "20000", "blocks/blocks.raw"]),
    },
    Workload {
        name: "slices",
        about: "25 slices of a 512^3 float volume, a pread for each row segment",
        data: &["volume"],
        needs: &[],
        floor: floor(6.0, 20.0),
        lists: CORE,
        touches: Touches::Contents("volume", EVERY),
        command: |place| {
            let scratch = place.scratch.to_string_lossy().into_owned();
            own(place, "bench-slices", &["--out", &scratch, "volume/volume.raw"])
        },
    },
    Workload {
        name: "cscope",
        about: "cscope -b, 3000 files",
        data: &["kernel"],
        needs: CSCOPE,
        floor: floor(1.15, 4.5),
        lists: CORE,
        touches: Touches::Contents("kernel", 3000),
        command: |place| {
            let list = list(place, "kernel", 3000)?;
            let out = place.scratch.join("cscope.out");
            Ok(vec!["cscope".into(), "-b".into(), "-f".into(), out.into(), "-i".into(), list.into()])
        },
    },
    Workload {
        name: "sqlite-index",
        about: "sqlite3, 1500 look-ups by index in 1 GB",
        data: &["database"],
        needs: SQLITE,
        floor: floor(1.0, 7.0),
        lists: CORE,
        touches: Touches::Contents("database", EVERY),
        command: |place| look_up(place, "by-key.sql"),
    },
    Workload {
        name: "sqlite-rowid",
        about: "sqlite3, 1500 look-ups by row number in 1 GB",
        data: &["database"],
        needs: SQLITE,
        floor: floor(1.0, 7.0),
        lists: CORE,
        touches: Touches::Contents("database", EVERY),
        command: |place| look_up(place, "by-number.sql"),
    },
    Workload {
        name: "ld",
        about: "GNU ld, 490 objects with debug information",
        data: &["objects"],
        needs: LD,
        floor: floor(1.0, 2.2),
        lists: CORE,
        touches: Touches::Contents("objects", EVERY),
        command: link,
    },
    Workload {
        name: "du",
        about: "du -s, 48,000 files",
        data: &["tree"],
        needs: &[],
        floor: floor(1.0, 1.0),
        lists: CORE,
        touches: Touches::Names("tree"),
        command: |_| words(&["du", "-s", "tree"]),
    },
    Workload {
        name: "find",
        about: "find -ls, 48,000 files",
        data: &["tree"],
        needs: &[],
        floor: floor(1.0, 1.0),
        lists: CORE,
        touches: Touches::Names("tree"),
        command: |_| words(&["find", "tree", "-ls"]),
    },
    Workload {
        name: "every-2nd",
        about: "6000 preads, every 2nd offset depends on the data just read",
        data: &["blocks"],
        needs: &[],
        floor: floor(1.0, 1.0),
        lists: CORE,
        touches: Touches::Contents("blocks", EVERY),
        command: |place| {
            own(place, "bench-preads", &["--reads", "6000", "--every", "2", "blocks/blocks.raw"])
        },
    },
    Workload {
        name: "chain",
        about: "4000 preads, each offset depends on the data just read",
        data: &["blocks"],
        needs: &[],
        floor: floor(1.0, 1.0),
        lists: CORE,
        touches: Touches::Contents("blocks", EVERY),
        command: |place| {
            own(place, "bench-preads", &["--reads", "4000", "--every", "1", "blocks/blocks.raw"])
        },
    },
    Workload {
        name: "git-status",
        about: "git status in a repository of 9000 files",
        data: &["git"],
        needs: GIT,
        floor: None,
        lists: TODAY,
        touches: Touches::Names("git"),
        command: |_| {
            // No lock, so that the index is not refreshed on the disk under test.
            let safe = ["git", "--no-optional-locks", "-c", "safe.directory=*", "-C", "git"];
            words(&[&safe[..], &["status", "--short"]].concat())
        },
    },
    Workload {
        name: "rsync",
        about: "rsync --dry-run -c of 1000 files against 9000: checksums of both",
        data: &["kernel", "small"],
        needs: RSYNC,
        floor: None,
        lists: TODAY,
        touches: Touches::Contents("small", EVERY),
        command: |_| words(&["rsync", "-rnc", "--out-format=%n", "small/", "kernel/"]),
    },
    Workload {
        name: "zstd",
        about: "zstd of 3000 files to a pipe, one after another",
        data: &["kernel"],
        needs: ZSTD,
        floor: None,
        lists: TODAY,
        touches: Touches::Contents("kernel", 3000),
        command: |place| with_files(place, &["zstd", "-q", "-1", "-c", "--single-thread"], "kernel", 3000),
    },
    Workload {
        name: "wc",
        about: "wc of 9000 files",
        data: &["kernel"],
        needs: &[],
        floor: None,
        lists: TODAY,
        touches: Touches::Contents("kernel", EVERY),
        command: |place| with_files(place, &["wc"], "kernel", EVERY),
    },
    Workload {
        name: "xz",
        about: "xz of 1000 files: the processor is the limit",
        data: &["small"],
        needs: XZ,
        floor: floor(1.0, 1.0),
        lists: CONTROLS,
        touches: Touches::Contents("small", EVERY),
        command: |place| with_files(place, &["xz", "-6", "-c", "-T1"], "small", EVERY),
    },
    Workload {
        name: "parallel",
        about: "xargs -P16 over 9000 files: many read at once already",
        data: &["kernel"],
        needs: &[],
        floor: floor(1.0, 1.0),
        lists: CONTROLS,
        touches: Touches::Contents("kernel", EVERY),
        command: |place| {
            let list = list(place, "kernel", EVERY)?;
            // Sorted, as the order of parallel processes is anyone's guess.
            let script = "xargs -P16 -n50 grep -c spin_lock_irqsave < \"$1\" | sort";
            Ok(vec!["sh".into(), "-c".into(), script.into(), "sh".into(), list.into()])
        },
    },
    Workload {
        name: "smoke-grep",
        about: "grep over 1000 files: small, for tests of the bench itself",
        data: &["small"],
        needs: &[],
        floor: None,
        lists: SMOKE,
        touches: Touches::Contents("small", EVERY),
        command: |place| with_files(place, &["grep", "-c", "spin_lock_irqsave"], "small", EVERY),
    },
    Workload {
        name: "smoke-find",
        about: "find over the same 1000 files",
        data: &["small"],
        needs: &[],
        floor: None,
        lists: SMOKE,
        touches: Touches::Names("small"),
        command: |_| words(&["find", "small", "-type", "f", "-size", "+3"]),
    },
];

fn words(words: &[&str]) -> Result<Vec<OsString>> {
    Ok(words.iter().map(OsString::from).collect())
}

fn with_files(place: &Place, command: &[&str], set: &str, count: usize) -> Result<Vec<OsString>> {
    let mut all = words(command)?;
    all.extend(data::files(&place.data, set)?.into_iter().take(count).map(OsString::from));
    Ok(all)
}

/// A file that holds the first names of a set's list; the same for every run.
fn list(place: &Place, set: &str, count: usize) -> Result<PathBuf> {
    let which = if count == EVERY { "all".to_string() } else { format!("first-{count}") };
    let path = place.data.join(format!("{set}.{which}"));
    let names =
        data::files(&place.data, set)?.into_iter().take(count).map(|name| name + "\n").collect::<String>();
    if std::fs::read_to_string(&path).is_ok_and(|found| found == names) {
        return Ok(path);
    }
    std::fs::write(&path, names).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn own(place: &Place, program: &str, arguments: &[&str]) -> Result<Vec<OsString>> {
    let mut all = vec![place.programs.join(program).into_os_string()];
    all.extend(words(arguments)?);
    Ok(all)
}

fn look_up(place: &Place, queries: &str) -> Result<Vec<OsString>> {
    // The script lies beside the database's original, not on the disk under test.
    let script = place.data.join("database").join(queries);
    let read = format!(".read {}", script.display());
    words(&["sqlite3", "-init", "/dev/null", "-batch", "-readonly", "database/rows.db", &read])
}

fn link(place: &Place) -> Result<Vec<OsString>> {
    let files = data::files(&place.data, "objects")?;
    let named = |name: &str| OsString::from(format!("objects/{name}"));
    let mut all = words(&["ld", "-o"])?;
    all.push(place.scratch.join("objdump").into());
    all.extend(words(&["-dynamic-linker", "/lib64/ld-linux-x86-64.so.2"])?);
    all.extend(["crt1.o", "crti.o", "crtbegin.o"].map(named));
    let start_files = ["crt1.o", "crti.o", "crtn.o", "crtbegin.o", "crtend.o"];
    let ours = |name: &&String| {
        name.ends_with(".o") && !start_files.iter().any(|start| Path::new(name.as_str()).ends_with(start))
    };
    all.extend(files.iter().filter(ours).map(OsString::from));
    all.extend(["libctf.a", "libsframe.a", "libiberty.a", "libz.a", "libgcc.a"].map(named));
    all.extend(words(&["-L/usr/lib/x86_64-linux-gnu", "-lc"])?);
    all.extend(["libgcc.a", "crtend.o", "crtn.o"].map(named));
    Ok(all)
}
