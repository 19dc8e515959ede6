//! What is made of notes of names, on emulated disks (`bench/slowdisk`): what the local one is like nobody knows.
//!
//! - The speculator's notes, of which the program's arguments are looked up, or the names in a list that it was given. On 1 ms: local disks answer sooner than such a note is worth
//!   (`runahead_policy::coldness`). The program opens its arguments and asks for no name otherwise; openings its agent does not look at. So
//!   who finds out that names are waited for is the speculator, or nobody.
//! - A name that the look-up itself has written over is nobody's. What stands there then is another directory's, where there is much to
//!   look up.
//! - A look-up that takes long without giving the processor away has not waited, whatever its thread does
//!   between two of them.
//! - A program that looks names up in many threads is left alone on a quick disk, and its agent looks at names no more. One that does
//!   so in a single thread is not: that few were counted comes of the crowd, and not of names that were cached.

use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::scenario::bytes;
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const DIRECTORIES: u64 = 24;
/// Of these two blocks of inodes each.
const FILES: u64 = 32;
const FILE_BYTES: usize = 6000;
/// Where their names stand, each with a zero behind it.
const LIST: &str = "list";

/// Names and listings that must have been looked up ahead: more than one for each directory, as its listing alone would be.
const AHEAD: u64 = 2 * DIRECTORIES;

/// Directories with one file each. A crowd takes some hundred waits to be left alone: two of its notes at least, and 16 answers of the disk
/// between any two.
const APART: u64 = 60;
const CROWDS: u64 = 1500;

/// Crowds in a row of which few names were looked at: one may have had a lucky disk.
const CROWDS_IN_A_ROW: u32 = 2;

/// Runs with the name where the call writes.
const TIMES_OVER: u32 = 6;

/// Files in the first directory that the program asks nothing of, in 25 blocks of inodes: look-ups ahead, if somebody takes a note of it.
const BESIDE: u64 = 400;

/// The size of each such file: "d0/x", as the kernel writes the number over a name.
const SPELT: u64 = u64::from_le_bytes(*b"d0/x\0\0\0\0");

pub fn add(suite: &mut Suite) {
    let wants = slow_disk::WANTS;
    suite.add(
        "names::arguments are looked up where the speculator waits for one",
        wants,
        arguments_are_looked_up,
    );
    suite.add("names::those in a list are looked up like arguments", wants, lists_are_looked_up);
    suite.add("names::one that the look-up has written over is not noted", wants, overwritten);
    suite.add("names::many threads at once are left alone on a quick disk", wants, left_alone);
    suite.add("names::what takes long and does not wait is not taken for a wait", wants, long);
}

fn arguments_are_looked_up() -> Verdict {
    told("arguments", |mount| {
        let words = (0..DIRECTORIES * FILES).map(|number| mount.join(told_name(number)));
        [PathBuf::from("sha256sum")].into_iter().chain(words).collect()
    })
}

fn lists_are_looked_up() -> Verdict {
    told("lists", |mount| {
        let list = format!("--files0-from={}", mount.join(LIST).display());
        vec!["wc".into(), "-c".into(), "-l".into(), list.into()]
    })
}

fn told_name(number: u64) -> String {
    format!("directory{}/file{}", number / FILES, number % FILES)
}

/// A program that opens what it is told, one after the other, and asks for no other name.
fn told(name: &'static str, words: impl Fn(&Path) -> Vec<PathBuf>) -> Verdict {
    let files: Vec<(PathBuf, Vec<u8>)> = (0..DIRECTORIES * FILES)
        .map(|number| (PathBuf::from(told_name(number)), bytes(number, FILE_BYTES)))
        .collect();
    let disk = Disk::new(name, "cloud", move |mount| {
        let mut list = Vec::new();
        for (path, contents) in &files {
            fs::create_dir_all(mount.join(path).parent().unwrap_or(mount))?;
            fs::write(mount.join(path), contents)?;
            list.extend(mount.join(path).as_os_str().as_encoded_bytes());
            list.push(0);
        }
        fs::write(mount.join(LIST), list)
    })?;
    disk.until(&words, 1, |counts| {
        let noted = number(&counts["speculator"], "names_noted")?;
        let ahead = number(counts, "names_looked_ahead")?;
        if noted > 0 && ahead >= AHEAD { Ok(()) } else { Err(format!("{noted} notes, {ahead} names")) }
    })
}

/// The guest that looks names up, `how`, in so many directories.
fn look_up(how: &'static str, directories: u64) -> Result<impl Fn(&Path) -> Vec<PathBuf>, String> {
    let guest = Guest::all()?.into_iter().find(|guest| guest.name() == "look_up").ok_or("no such guest")?;
    let program = guest.build()?;
    let words =
        move |mount: &Path| vec![program.clone(), how.into(), mount.into(), directories.to_string().into()];
    Ok(words)
}

/// So many directories, the first with so many files `beside` its own.
fn directories(count: u64, beside: u64) -> impl Fn(&Path) -> io::Result<()> {
    move |mount| {
        for number in 0..count {
            let directory = mount.join(format!("d{number}"));
            fs::create_dir(&directory)?;
            fs::File::create(directory.join("x"))?.set_len(SPELT)?;
        }
        for number in 0..beside {
            fs::File::create(mount.join(format!("d0/beside{number}")))?;
        }
        Ok(())
    }
}

fn overwritten() -> Verdict {
    let disk = Disk::new("overwritten", "cloud", directories(APART, BESIDE))?;
    // The same names in memory of their own are noted, so that what follows says something.
    disk.until(&look_up("apart", APART)?, 1, |counts| match number(counts, "names_looked_ahead")? {
        0 => Err("none".to_owned()),
        _ => Ok(()),
    })?;
    // Where nobody was there in time to take a note, nothing is wrong and nothing is shown: so more than once.
    for _ in 0..TIMES_OVER {
        let Some(counts) = disk.counts(&look_up("over", APART)?)? else { return Ok(()) };
        let ahead = number(&counts, "names_looked_ahead")?;
        if ahead > 0 {
            return Err(format!("{ahead} names were looked up ahead of a name that was gone"));
        }
    }
    Ok(())
}

/// Long look-ups of one name, and of these how many may have waited: those of a cold disk, and a few that had to
/// wait for somebody else by chance.
const LONG: u64 = 400;
const LONG_WAITED: u64 = LONG / 10;

fn long() -> Verdict {
    let disk = Disk::new("long", "cloud", directories(APART, 0))?;
    let waited = |counts: &Value| number(counts, "name_stalls");
    // Those that wait are seen to.
    disk.until(&look_up("apart", APART)?, 1, |counts| match waited(counts)? {
        0 => Err("none".to_owned()),
        _ => Ok(()),
    })?;
    for how in ["long", "between"] {
        disk.until(&look_up(how, LONG)?, 1, |counts| match waited(counts)? {
            ..LONG_WAITED => Ok(()),
            waited => Err(format!("{how}: {waited} have waited")),
        })?;
    }
    Ok(())
}

fn left_alone() -> Verdict {
    let disk = Disk::new("crowd", "nvme", directories(CROWDS, 0))?;
    let looked_at = |counts: &Value| number(counts, "names");
    disk.until(&look_up("apart", CROWDS)?, 1, |counts| match looked_at(counts)? {
        names if names > CROWDS / 10 * 9 => Ok(()),
        names => Err(format!("{names} looked at without a crowd")),
    })?;
    disk.until(&look_up("crowd", CROWDS)?, CROWDS_IN_A_ROW, |counts| match looked_at(counts)? {
        // Where none is counted nobody was there to leave it alone.
        names if (1..CROWDS / 2).contains(&names) => Ok(()),
        names => Err(format!("{names} looked at")),
    })
}
