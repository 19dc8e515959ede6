//! Real programs on real files, alone and under Runahead.

mod building;
mod languages;
mod shells;
mod tools;

use crate::suite::Suite;
use runahead_end_to_end::compare::Outcome;
use runahead_end_to_end::locate::Runahead;
use runahead_end_to_end::scenario::{COLD, Scenario, bytes};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

pub fn suite(suite: &mut Suite) {
    tools::suite(suite);
    building::suite(suite);
    languages::suite(suite);
    shells::suite(suite);
}

/// A program's test: cold only (a warm second run of a real program shows nothing that the guests
/// do not), with the tree of [`files`] as `tree`.
fn add(suite: &mut Suite, needs: &[&str], scenario: Scenario) {
    let name = scenario.name.clone();
    suite.add(name, needs.iter().map(|need| need.to_string()), move || scenario.check(&Runahead::built()?));
}

fn program(name: &str, argv: &[&str]) -> Scenario {
    Scenario::new(format!("program::{name}"), argv.iter().copied()).prepare(files).modes([COLD])
}

fn script(name: &str, text: &str) -> Scenario {
    Scenario::shell(format!("program::{name}"), text).prepare(files).modes([COLD])
}

/// 160 text files of 2 to 40 KB in 8 folders, with a rare word, links of both kinds, an empty file,
/// a sparse one, a closed one, one of incompressible bytes.
pub fn files(directory: &Path) -> io::Result<()> {
    let words = ["alpha", "beta", "gamma", "delta", "epsilon", "needle", "zeta", "eta", "theta"];
    for folder in 0..8 {
        let place = directory.join(format!("tree/folder-{folder}/deeper"));
        fs::create_dir_all(&place)?;
        for number in 0..20 {
            let seed = bytes(folder * 100 + number + 1, 8000);
            let length = 2000 + usize::from(seed[0]) * 150;
            let mut text = String::new();
            for at in 0.. {
                if text.len() >= length {
                    break;
                }
                let pick = usize::from(seed[at % seed.len()]) + at;
                text += words[pick % words.len()];
                text.push(if pick % 11 == 0 { '\n' } else { ' ' });
            }
            text.push('\n');
            let place = if number % 4 == 0 { place.clone() } else { place.join("..") };
            fs::write(place.join(format!("file-{number}.txt")), text)?;
        }
    }
    let tree = directory.join("tree");
    File::create(tree.join("empty"))?;
    File::create(tree.join("sparse"))?.set_len(300_000)?;
    fs::write(tree.join("closed"), "nobody may read this\n")?;
    fs::set_permissions(tree.join("closed"), fs::Permissions::from_mode(0o000))?;
    fs::write(tree.join("noise.bin"), bytes(77, 1 << 20))?;
    fs::write(tree.join("with spaces and ünïcode"), "contents\n")?;
    symlink("folder-1/file-1.txt", tree.join("link"))?;
    symlink("nowhere", tree.join("dangling"))?;
    fs::hard_link(tree.join("noise.bin"), tree.join("noise-again.bin"))
}

/// Runs a preparing command, which must succeed.
fn setup(directory: &Path, text: &str) -> io::Result<()> {
    let status = Command::new("bash")
        .args(["-e", "-c", text])
        .current_dir(directory)
        .env("HOME", directory)
        .env_remove("CARGO_TARGET_DIR")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("'{text}' failed"))) }
}

/// Keeps, of each line of standard output, what `keep` makes of it.
fn each_line(outcome: &mut Outcome, keep: impl Fn(&str) -> Option<String>) {
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    outcome.stdout = text.lines().filter_map(keep).map(|line| line + "\n").collect::<String>().into_bytes();
}

fn sort_lines(outcome: &mut Outcome) {
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    outcome.stdout = lines.join("\n").into_bytes();
}
