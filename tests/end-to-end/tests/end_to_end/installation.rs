//! `./x install`: what lies below a prefix works from there, a C program finds the library by pkg-config, and
//! `./x uninstall` takes everything away again.

use crate::suite::Suite;
use runahead_end_to_end::{Verdict, locate};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub fn add(suite: &mut Suite) {
    let needs = || ["command pkg-config", "command cc"].map(str::to_owned);
    suite.add("installation::installed, used and removed again", needs(), installed_and_removed);
    suite.add_plain("installation::packed below DESTDIR", packed);
    suite.add_plain("installation::a prefix that cannot work is refused", refused);
}

/// A fresh folder.
fn folder(name: &str) -> Result<PathBuf, String> {
    let folder = locate::scratch().join(format!("installation-{name}"));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    folder.canonicalize().map_err(|error| error.to_string())
}

fn workspace() -> PathBuf {
    locate::tests_folder().parent().unwrap_or(Path::new("/")).to_owned()
}

fn x(arguments: &[&str], staging: Option<&Path>) -> Result<Output, String> {
    let mut command = Command::new(workspace().join("x"));
    command.args(arguments).env_remove("DESTDIR");
    staging.map(|folder| command.env("DESTDIR", folder));
    command.output().map_err(|error| format!("./x: {error}"))
}

/// What it printed, if it went well.
fn well(what: &str, output: Output) -> Result<String, String> {
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() && said.is_empty() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{what}: {}, {said}", output.status)),
    }
}

fn run(what: &str, command: &mut Command) -> Result<String, String> {
    well(what, command.output().map_err(|error| format!("{what}: {error}"))?)
}

/// The files below a folder, in order.
fn files(folder: &Path) -> Vec<String> {
    let output = Command::new("find").arg(folder).args(["-type", "f", "-printf", "%P\\n"]).output();
    let listed =
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let mut files: Vec<String> = listed.lines().map(str::to_owned).collect();
    files.sort();
    files
}

/// What is made where it is installed.
const MADE: [&str; 2] = ["lib/runahead/runahead-sites", "lib/runahead/runahead-sites-here"];

const FILES: [&str; 33] = [
    "bin/runahead",
    "include/runahead.h",
    "lib/librunahead.a",
    "lib/librunahead.so",
    "lib/pkgconfig/runahead.pc",
    "lib/runahead/librunahead_agent.so",
    "lib/runahead/runahead-host",
    "lib/runahead/runahead-report",
    "lib/runahead/runahead-speculator",
    "lib/runahead/runahead-tools",
    "lib/systemd/system/runahead.service",
    "share/bash-completion/completions/runahead",
    "share/fish/vendor_completions.d/runahead.fish",
    "share/man/man1/runahead-daemon.1",
    "share/man/man1/runahead-disable.1",
    "share/man/man1/runahead-doctor.1",
    "share/man/man1/runahead-enable.1",
    "share/man/man1/runahead-forget.1",
    "share/man/man1/runahead-prepare.1",
    "share/man/man1/runahead-profile-check.1",
    "share/man/man1/runahead-profile-merge.1",
    "share/man/man1/runahead-profile-show.1",
    "share/man/man1/runahead-profile-trim.1",
    "share/man/man1/runahead-profile.1",
    "share/man/man1/runahead-record.1",
    "share/man/man1/runahead-report.1",
    "share/man/man1/runahead-run.1",
    "share/man/man1/runahead-serve.1",
    "share/man/man1/runahead-stat.1",
    "share/man/man1/runahead-status.1",
    "share/man/man1/runahead-warm.1",
    "share/man/man1/runahead.1",
    "share/zsh/site-functions/_runahead",
];

fn expect_files(folder: &Path, expected: &[&str]) -> Verdict {
    let found = files(folder);
    match found == expected {
        true => Ok(()),
        false => Err(format!("below {} are {found:?}", folder.display())),
    }
}

fn installed_and_removed() -> Verdict {
    let folder = folder("prefix")?;
    let prefix = folder.join("prefix");
    // Whatever was built of the compiler before.
    let wanted = ["--only=core", "--prefix", &prefix.to_string_lossy()];
    well("install", x(&[&["install"][..], &wanted].concat(), None)?)?;
    let mut with_sites = FILES.to_vec();
    with_sites.extend(MADE);
    with_sites.sort_unstable();
    expect_files(&prefix, &with_sites)?;

    let data = folder.join("data");
    fs::write(&data, [3; 20_000]).map_err(|error| error.to_string())?;
    let flags = run(
        "pkg-config",
        Command::new("pkg-config")
            .args(["--cflags", "--libs", "runahead"])
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")),
    )?;
    let program = folder.join("sum");
    let source = workspace().join("crates/hints-c/examples/sum.c");
    run("cc", Command::new("cc").arg(source).args(flags.split_whitespace()).arg("-o").arg(&program))?;
    let output = Command::new(&program)
        .arg(&data)
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .env("SHOW_COUNTS", "1")
        .output()
        .map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.stdout != b"60000\n" || !said.starts_with("hints 1, ") {
        return Err(format!("the example said {} and {said}", String::from_utf8_lossy(&output.stdout)));
    }

    // It would say why if it had to run plainly.
    let mut command = Command::new(prefix.join("bin/runahead"));
    let printed = run("runahead", command.args(["run", "--verbose", "--", "wc", "-c"]).arg(&data))?;
    if !printed.starts_with("20000 ") {
        return Err(format!("wc under the installed command said {printed}"));
    }

    // Somebody else's file stays, in a folder of ours too.
    fs::write(prefix.join("lib/runahead/other"), "").map_err(|error| error.to_string())?;
    well("uninstall", x(&[&["uninstall"][..], &wanted].concat(), None)?)?;
    expect_files(&prefix, &["lib/runahead/other"])?;
    well("uninstall, again", x(&[&["uninstall"][..], &wanted].concat(), None)?).map(drop)
}

fn packed() -> Verdict {
    let staging = folder("staging")?;
    well("install", x(&["install", "--only=core", "--prefix=/usr"], Some(&staging))?)?;
    expect_files(&staging.join("usr"), &FILES)?;
    for (file, line) in [
        ("lib/pkgconfig/runahead.pc", "prefix=/usr"),
        ("lib/systemd/system/runahead.service", "ExecStart=/usr/bin/runahead daemon"),
    ] {
        let text = fs::read_to_string(staging.join("usr").join(file)).map_err(|error| error.to_string())?;
        if !text.lines().any(|found| found == line) {
            return Err(format!("{file} has no line {line}: {text}"));
        }
    }
    well("uninstall", x(&["uninstall", "--only=core", "--prefix=/usr"], Some(&staging))?)?;
    expect_files(&staging, &[])
}

fn refused() -> Verdict {
    let staging = folder("refused")?;
    for arguments in
        [&["--prefix", "/a b"][..], &["--prefix", "/a:b"], &["--prefix", "a"], &["--prefix"], &["/a"]]
    {
        let output = x(&[&["install"], arguments].concat(), Some(&staging))?;
        if output.status.success() || output.stderr.is_empty() {
            return Err(format!("{arguments:?} was not refused"));
        }
    }
    expect_files(&staging, &[])
}
