//! Programs of other releases, with their own loader and C library: the same result, and run ahead of.

use crate::programs;
use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::locate::{self, LOADER, Runahead};
use runahead_end_to_end::scenario::{COLD, Scenario, WARM, bytes};
use std::fs;
use std::path::{Path, PathBuf};

/// Releases whose C library makes calls in other ways than this machine's, each with its package of tools.
const RELEASES: [&str; 1] = ["bullseye"];

const FILES: u64 = 200;
const FILE_BYTES: usize = 6000;

/// Bytes that the guest reads of its file.
const READ: usize = 16 << 20;

pub fn add(suite: &mut Suite) {
    let wants = slow_disk::WANTS.into_iter().chain(["release trixie libc6"]);
    suite.add(
        "release::trixie::reads beside a second thread are run ahead of",
        wants,
        beside_a_second_thread,
    );
    for release in RELEASES {
        let library = format!("release {release} libc6");
        let tools = format!("file {}", tool(release, "md5sum").display());
        let needs = [library.as_str(), &tools];
        suite.add(format!("release::{release}::tools"), needs, move || tools_are_as_alone(release));
        let needs = needs.into_iter().chain(slow_disk::WANTS);
        let name = format!("release::{release}::reads are run ahead of");
        suite.add(name, needs, move || reads_are_run_ahead_of(release));
    }
}

/// Releases before 12 have a `/bin` of its own.
fn tool(release: &str, name: &str) -> PathBuf {
    let package = locate::unpacked(&format!("{release} coreutils"));
    let [first, second] = ["bin", "usr/bin"].map(|folder| package.join(folder).join(name));
    if first.exists() { first } else { second }
}

/// A tool of the release, by its loader.
fn words(release: &str, name: &str) -> [PathBuf; 4] {
    let libraries = locate::other_release(&format!("{release} libc6"));
    [libraries.join(LOADER), "--library-path".into(), libraries, tool(release, name)]
}

fn tools_are_as_alone(release: &str) -> Verdict {
    let runahead = Runahead::built()?;
    for (name, arguments) in [
        ("md5sum", "tree/*/*.txt tree/*"),
        ("cat", "tree/*/*.txt tree/closed tree/folder-1"),
        ("wc", "tree/*/*.txt tree/empty"),
        ("od", "-c tree/*/file-1.txt"),
        ("tac", "tree/*/*.txt"),
        ("head", "-n 2 tree/*/*.txt"),
    ] {
        let words = words(release, name).map(|word| word.to_string_lossy().into_owned()).join(" ");
        let line = format!("{words} {arguments}; echo $?");
        let scenario = Scenario::new(format!("release {release} {name}"), ["bash", "-c", &line]);
        scenario.prepare(programs::files).modes([COLD, WARM]).check(&runahead)?;
    }
    Ok(())
}

fn reads_are_run_ahead_of(release: &str) -> Verdict {
    let fill = |folder: &Path| {
        (0..FILES)
            .try_for_each(|number| fs::write(folder.join(number.to_string()), bytes(number, FILE_BYTES)))
    };
    let disk = Disk::new("release", "cloud", fill)?;
    let words = |mount: &Path| -> Vec<PathBuf> {
        words(release, "md5sum")
            .into_iter()
            .chain((0..FILES).map(|number| mount.join(number.to_string())))
            .collect()
    };
    disk.until(&words, 1, |counts| match (number(counts, "reads")?, number(counts, "reads_hinted")?) {
        (_, hinted) if hinted > FILES / 2 => Ok(()),
        (reads, hinted) => Err(format!("{hinted} of {reads} reads foretold")),
    })
}

/// From glibc 2.41 on these are made where all calls are made that may be cancelled.
fn beside_a_second_thread() -> Verdict {
    let guest =
        Guest::all()?.into_iter().find(|guest| guest.name() == "second_thread").ok_or("no such guest")?;
    let program = guest.build()?;
    let fill = |folder: &Path| fs::write(folder.join("cold.bin"), bytes(1, READ));
    let disk = Disk::new("second", "cloud", fill)?;
    let words = |mount: &Path| -> Vec<PathBuf> {
        let line = format!("cd {} && exec {} reads", mount.display(), program.display());
        ["bash", "-c", &line].map(PathBuf::from).to_vec()
    };
    disk.until(&words, 1, |counts| match (number(counts, "reads")?, number(counts, "reads_hinted")?) {
        (_, hinted) if hinted > 1000 => Ok(()),
        (reads, hinted) => Err(format!("{hinted} of {reads} reads foretold")),
    })
}
