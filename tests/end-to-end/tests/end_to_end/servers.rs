//! File systems of which somebody serves each request: FUSE servers that do one thing at a time (`bindfs -s`),
//! over a disk of 1 ms, and squashfs. What is asked for ahead stands in line there before the program's own
//! requests, or is unpacked once more, whatever was predicted; so little of it is asked for.
//!
//! Counted, not timed: all that is asked for in vain is the program's loss there.

use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::scenario::bytes;
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Places of a file of 16 MB that are read, each with a look at a name that is not there, as sqlite does.
const RECORDS: u64 = 1200;
const FILE_BYTES: usize = 16 << 20;

/// A tree beside that file.
const DIRECTORIES: u64 = 20;
const FILES: u64 = 40;

/// Reads that may have been predicted: those of a few stretches in which it is tried out.
const MAX_PREDICTED: u64 = RECORDS / 3;

/// Runs in a row of which few were: one may be, whatever is done.
const IN_A_ROW: u32 = 3;

const RECORDS_READ: &str = "
import os, zlib
file = os.open('data', os.O_RDONLY)
found = 0
for number in range(1200):
    try:
        os.stat('data-journal')
    except OSError:
        pass
    found = zlib.crc32(os.pread(file, 4096, number * 1201 % 4096 * 4096), found)
print(found)
";

/// Of each file its data is read once, and it is closed: its descriptor is another file's when the next is
/// read.
const ONE_READ_EACH: &str = "
import os, zlib
found = 0
for number in range(800):
    file = os.open(f'beside{number // 40}/{number % 40}', os.O_RDONLY)
    found = zlib.crc32(os.read(file, 65536), found)
    os.close(file)
print(found)
";

pub fn add(suite: &mut Suite) {
    let wants = slow_disk::WANTS.into_iter().chain(["command unshare"]);
    let bindfs = wants.clone().chain(["command bindfs", "command python3"]);
    suite.add("servers::names of a server at hand are not looked up ahead", bindfs.clone(), names);
    suite.add("servers::files of one read each are seen to wait", bindfs.clone(), one_read_each);
    suite.add("servers::nor are those of several threads", bindfs.clone(), reads_of_threads);
    suite.add("servers::reads that stand in line are not run ahead of for long", bindfs, reads);
    let squashfs = wants.chain(["command mksquashfs", "filesystem squashfs"]);
    suite.add("servers::what squashfs unpacks is left to the program", squashfs, unpacked);
}

fn fill(folder: &Path) -> io::Result<()> {
    fs::write(folder.join("records.py"), RECORDS_READ)?;
    fs::write(folder.join("data"), bytes(1, FILE_BYTES))?;
    for directory in 0..DIRECTORIES {
        let directory = folder.join(format!("beside{directory}"));
        fs::create_dir(&directory)?;
        (0..FILES).try_for_each(|file| fs::write(directory.join(file.to_string()), "x"))?;
    }
    Ok(())
}

fn names() -> Verdict {
    on_a_server("servers-names", "du -a . | sort", 1, |counts| {
        let (stalls, ahead) = (number(counts, "name_stalls")?, number(counts, "names_looked_ahead")?);
        match ahead {
            0 if stalls > DIRECTORIES => Ok(()),
            _ => Err(format!("{ahead} names were looked up ahead, {stalls} stalls")),
        }
    })
}

fn reads() -> Verdict {
    on_a_server("servers-reads", "python3 -B records.py", IN_A_ROW, |counts| {
        let (stalls, posts) = (number(counts, "stalls")?, number(counts, "posts")?);
        // Where nothing was tried nothing is shown.
        match number(counts, "reads_hinted")? {
            predicted if posts > 0 && predicted < MAX_PREDICTED => Ok(()),
            predicted => Err(format!("{predicted} reads were predicted, {posts} posts, {stalls} stalls")),
        }
    })
}

/// The 1600 reads of four threads.
fn reads_of_threads() -> Verdict {
    let program = Guest::named("thread_pools")?.build()?;
    let fill = |mount: &Path| fs::write(mount.join("lower/cold.bin"), bytes(1, FILE_BYTES));
    let line = format!("{} 4", program.display());
    served("servers-threads", fill, "bindfs -s lower served", &line, IN_A_ROW, |counts| {
        let (stalls, posts) = (number(counts, "stalls")?, number(counts, "posts")?);
        match number(counts, "reads_hinted")? {
            predicted if posts > 0 && predicted < MAX_PREDICTED => Ok(()),
            predicted => Err(format!("{predicted} reads were predicted, {posts} posts, {stalls} stalls")),
        }
    })
}

fn one_read_each() -> Verdict {
    let fill = |mount: &Path| {
        fill(&mount.join("lower"))?;
        fs::write(mount.join("lower/one_read.py"), ONE_READ_EACH)
    };
    let line = "python3 -B -S one_read.py";
    served("servers-one-read", fill, "bindfs lower served", line, 1, |counts| {
        match (number(counts, "stalls")?, number(counts, "posts")?) {
            (4.., 1..) => Ok(()),
            (stalls, posts) => Err(format!("{stalls} stalls, {posts} posts")),
        }
    })
}

fn unpacked() -> Verdict {
    let fill = |mount: &Path| {
        fill(&mount.join("lower"))?;
        let image = Command::new("mksquashfs").arg(mount.join("lower")).arg(mount.join("image")).output()?;
        if image.status.success() { Ok(()) } else { Err(io::Error::other(format!("{image:?}"))) }
    };
    served(
        "servers-unpacked",
        fill,
        "mount -t squashfs -o ro,loop image served",
        "cat */* data | sha256sum",
        1,
        |counts| {
            let (posts, ahead) = (number(counts, "posts")?, number(counts, "names_looked_ahead")?);
            match (posts, ahead) {
                (0, 0) => Ok(()),
                _ => Err(format!("{posts} posts, {ahead} names were looked up ahead")),
            }
        },
    )
}

fn on_a_server(name: &'static str, line: &str, in_a_row: u32, good: impl Fn(&Value) -> Verdict) -> Verdict {
    served(name, |mount| fill(&mount.join("lower")), "bindfs -s lower served", line, in_a_row, good)
}

/// What `serve` mounts is the scene: Runahead has nothing to do with the server, which ends with its mount.
/// What the program has is a relative path, whose directory is no argument.
fn served(
    name: &'static str,
    fill: impl Fn(&Path) -> io::Result<()>,
    serve: &str,
    line: &str,
    in_a_row: u32,
    good: impl Fn(&Value) -> Verdict,
) -> Verdict {
    let disk = Disk::new(name, "cloud", |mount| {
        fs::create_dir(mount.join("served"))?;
        fs::create_dir(mount.join("lower"))?;
        fill(mount)
    })?;
    let mount = disk.mount();
    let mount = mount.display();
    let scene =
        format!(r#"(cd {mount} && {serve}) && "$@"; status=$?; umount -l {mount}/served; exit $status"#);
    let words = |mount: &Path| -> Vec<PathBuf> {
        let script = format!("cd {}/served && {line}", mount.display());
        ["sh", "-c", &script].map(PathBuf::from).into()
    };
    disk.around(["unshare", "-m", "sh", "-c", &scene, "sh"]).until(&words, in_a_row, good)
}
