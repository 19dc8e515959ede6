//! `runahead doctor`: in prepared situations it says what is there, with the exit status that goes with it;
//! what it says stops a run does so (`run --verbose`), and what it says mends that does so, too.
//!
//! Each examination is made as text and as JSON, which must have the same lines.

use crate::contract::BLIND_CALL;
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::locate::{self, Runahead};
use runahead_end_to_end::scenario::bytes;
use serde_json::Value;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

pub fn add(suite: &mut Suite) {
    suite.add_plain("doctor::a folder on a disk, cold and warm", || on(cold_and_warm));
    suite.add_plain("doctor::what is not there", || on(not_there));
    suite.add_plain("doctor::wrong usage is 125", || on(wrong_usage));
    suite.add_plain("doctor::a switch that is off", || on(switched_off));
    suite.add_plain("doctor::limits that are too low", || on(limits));
    suite.add("doctor::memory instead of a disk", ["file /dev/shm"], || on(memory_instead));
    suite.add("doctor::filters of system calls", ["command cc"], || on(filters));
    suite.add("doctor::a static command", ["command cc"], || on(static_command));
    suite.add("doctor::code that makes calls nobody can see", ["command gcc"], || on(blind));
    suite.add_plain("doctor::a 32-bit command", || on(narrow));
    suite.add("doctor::rights, as an ordinary user and as root", ["root", "command setpriv"], || on(rights));
    suite.add("doctor::no place for the site file", ["root", "command unshare"], || on(no_place));
    suite.add("doctor::a /proc of other processes", ["root", "command unshare"], || on(others_proc));
    suite.add("doctor::a part of the installation is missing", ["root", "command setpriv"], || {
        on(installation)
    });
    let fuse = ["root", "command bindfs", "file /dev/fuse"];
    suite.add("doctor::a device that hangs", fuse, || on(hangs));
    suite.add("doctor::a file system without a page cache", fuse, || on(no_page_cache));
}

/// Stand-ins only run commands.
fn on(check: fn(&Runahead) -> Verdict) -> Verdict {
    let runahead = Runahead::built()?;
    if runahead.label == "built" { check(&runahead) } else { Ok(()) }
}

/// A fresh folder that every user may enter.
fn folder(name: &str) -> Result<PathBuf, String> {
    let folder = locate::scratch().join(format!("doctor-{name}"));
    let _ = fs::remove_dir_all(&folder);
    let made = fs::create_dir_all(&folder)
        .and_then(|()| fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)))
        .and_then(|()| folder.canonicalize());
    made.map_err(|error| format!("{}: {error}", folder.display()))
}

/// What an examination has said.
struct Told {
    status: i32,
    lines: Vec<Value>,
    text: String,
}

impl Told {
    /// The line about something says so, and names this as the remedy if it names one.
    fn expect(&self, about: &str, verdict: &str, found: &str, remedy: &str) -> Verdict {
        let Some(line) = self.line(about) else {
            return Err(format!("nothing is said of '{about}': {}", self.text));
        };
        let says = |field: &str| line[field].as_str().unwrap_or("").to_owned();
        let is_mended = says("remedy").contains(remedy) && (remedy.is_empty() == line["remedy"].is_null());
        if says("verdict") == verdict && says("found").contains(found) && is_mended {
            return Ok(());
        }
        Err(format!("expected {verdict}, '{found}', remedy '{remedy}', but it says {line}"))
    }

    fn expect_verdict(&self, about: &str, verdict: &str) -> Verdict {
        match self.line(about) {
            Some(line) if line["verdict"] == verdict => Ok(()),
            _ => Err(format!("expected {verdict} of '{about}': {}", self.text)),
        }
    }

    fn expect_status(&self, status: i32) -> Verdict {
        if self.status == status {
            return Ok(());
        }
        Err(format!("expected exit status {status}, got {}: {}", self.status, self.text))
    }

    fn expect_nothing_of(&self, about: &str) -> Verdict {
        self.line(about).map_or(Ok(()), |line| Err(format!("it says {line}")))
    }

    fn line(&self, about: &str) -> Option<&Value> {
        self.lines.iter().find(|line| line["about"] == about)
    }
}

/// Runs `around RUNAHEAD doctor arguments` as text and as JSON. Whatever the situation is: the same lines, no
/// wider than a screen but for what is to be pasted, and the worst of them as the exit status.
fn examine(
    runahead: &Runahead,
    around: &[&str],
    prepare: impl Fn(&mut Command),
    arguments: &[&str],
) -> Result<Told, String> {
    let run = |json: bool| {
        let mut words: Vec<&str> = [around, &[&runahead.command, "doctor"]].concat();
        words.extend(json.then_some("--json"));
        words.extend(arguments);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).env("XDG_CACHE_HOME", cache()?);
        prepare(&mut command);
        let output = command.output().map_err(|error| format!("{words:?}: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let status = output.status.code().ok_or_else(|| format!("{words:?}: {}, {said}", output.status))?;
        if !said.is_empty() {
            return Err(format!("{words:?}, on standard error: {said}"));
        }
        Ok((status, String::from_utf8_lossy(&output.stdout).into_owned()))
    };
    let (status, text) = run(false)?;
    let (json_status, json) = run(true)?;
    let document: Value = serde_json::from_str(&json).map_err(|error| format!("{error}: {json}"))?;
    let lines = document["lines"].as_array().cloned().unwrap_or_default();
    let starts: Vec<String> = text
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| !line.starts_with(' '))
        .map(|line| line.chars().take(24).collect())
        .collect();
    let is_same = |(shown, line): (&String, &Value)| {
        let about = format!("{:<16}", as_text(&line["about"]));
        // How long a read takes is another thing each time.
        let verdict = if about.starts_with("cold read") { "" } else { as_text(&line["verdict"]) };
        shown.starts_with(verdict) && shown.get(8..) == Some(&about)
    };
    if starts.len() != lines.len() || !starts.iter().zip(&lines).all(is_same) {
        return Err(format!("text and JSON differ: {text}\n{json}"));
    }
    // What is to be pasted is one line, and a long path one word.
    let is_wide = |line: &&str| {
        let one_word = line.chars().skip(24).all(|letter| letter != ' ');
        line.chars().count() > 98 && !line.trim_start().starts_with("try: ") && !one_word
    };
    let wide = text.lines().find(is_wide);
    if let Some(wide) = wide {
        return Err(format!("wider than a screen: {wide}"));
    }
    let worst = starts.iter().map(|line| weight(line)).max().unwrap_or(0);
    let json_worst = lines.iter().map(|line| weight(as_text(&line["verdict"]))).max().unwrap_or(0);
    if (status, json_status) != (worst, json_worst) || document["status"] != json_worst {
        return Err(format!("exit statuses {status} and {json_status}, lines: {text}"));
    }
    if document["version"] != 1 {
        return Err(format!("the version: {json}"));
    }
    Ok(Told { status, lines, text })
}

/// The exit status that a line, or its verdict, comes to.
fn weight(line: &str) -> i32 {
    match line.split(' ').next() {
        Some("ok") => 0,
        Some("limits") => 1,
        _ => 2,
    }
}

fn as_text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn nothing(_: &mut Command) {}

fn with_much_environment(command: &mut Command) {
    command.env("MUCH", "x".repeat(12_000));
}

/// What is known of executables stays with the tests.
fn cache() -> Result<PathBuf, String> {
    let cache = locate::scratch().join("cache");
    fs::create_dir_all(&cache).map_err(|error| error.to_string())?;
    Ok(cache)
}

/// Why a run of the command in the same situation is plain; empty if it is not.
fn plainly_because(
    runahead: &Runahead,
    around: &[&str],
    prepare: impl Fn(&mut Command),
    words: &[&str],
) -> Result<String, String> {
    let all: Vec<&str> = [around, &[&runahead.command, "run", "--verbose", "--"], words].concat();
    let mut command = Command::new(all[0]);
    command.args(&all[1..]).stdin(Stdio::null()).env("XDG_CACHE_HOME", cache()?);
    prepare(&mut command);
    let output = command.output().map_err(|error| format!("{all:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(said.lines().filter(|line| line.contains("plainly")).collect())
}

fn expect_plain(
    runahead: &Runahead,
    around: &[&str],
    prepare: impl Fn(&mut Command),
    words: &[&str],
) -> Verdict {
    match plainly_because(runahead, around, prepare, words)?.is_empty() {
        false => Ok(()),
        true => Err(format!("the doctor says that it stops, but {around:?} {words:?} does not run plainly")),
    }
}

fn resident_pages(path: &Path) -> Result<usize, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let length = file.metadata().map_err(|error| error.to_string())?.len() as usize;
    let mut told = vec![0u8; length.div_ceil(4096)];
    // SAFETY: a new mapping of the file, which nobody touches; there is a byte for each of its pages.
    let asked = unsafe {
        let map =
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
        let asked = map != libc::MAP_FAILED && libc::mincore(map, length, told.as_mut_ptr()) == 0;
        libc::munmap(map, length);
        asked
    };
    if asked { Ok(told.iter().filter(|byte| **byte & 1 != 0).count()) } else { Err("mincore".into()) }
}

fn cold_and_warm(runahead: &Runahead) -> Verdict {
    let folder = folder("cold")?;
    let file = folder.join("data");
    let name = folder.to_string_lossy().into_owned();
    // Beside what is no file to be opened.
    nix::unistd::mkfifo(&folder.join("fifo"), nix::sys::stat::Mode::S_IRWXU)
        .map_err(|error| error.to_string())?;
    let evict = || -> Result<(), String> {
        let written = File::open(&file).map_err(|error| error.to_string())?;
        written.sync_all().map_err(|error| error.to_string())?;
        // SAFETY: takes no address.
        unsafe { libc::posix_fadvise(written.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        Ok(())
    };
    fs::write(&file, bytes(1, 4 << 20)).map_err(|error| error.to_string())?;
    evict()?;
    let before = resident_pages(&file)?;
    if before != 0 {
        return Err(format!("{before} pages stay in memory here: nothing is proven"));
    }
    let told = examine(runahead, &[], |_| evict().unwrap_or(()), &[&name])?;
    let line = told.line("cold read").ok_or("no cold read")?;
    let says = as_text(&line["found"]);
    if !says.contains("takes ") || !says.contains(&*file.to_string_lossy()) || !says.contains("12288 bytes") {
        return Err(format!("the cold read: {line}"));
    }
    told.expect("file system", "ok", &name, "")?;
    let after = resident_pages(&file)?;
    // Larger pages of the cache are possible.
    if !(1..=3 * 16).contains(&after) {
        return Err(format!("{after} pages of {} were brought in", (4 << 20) / 4096));
    }
    fs::read(&file).map_err(|error| error.to_string())?;
    let told = examine(runahead, &[], nothing, &[&name])?;
    told.expect("cold read", "ok", "is cached", "")?;
    let inside = |command: &mut Command| {
        command.current_dir(&folder);
    };
    examine(runahead, &[], inside, &[])?.expect("file system", "ok", &name, "")
}

fn not_there(runahead: &Runahead) -> Verdict {
    let folder = folder("not-there")?;
    let inside = |command: &mut Command| {
        command.current_dir(&folder);
    };
    let told = examine(runahead, &[], inside, &["./nothing"])?;
    told.expect("path", "stops", "ENOENT", "")?;
    told.expect_status(2)?;
    for (words, found, remedy) in [
        (["--", "no-such-command-anywhere"], "ENOENT", "PATH"),
        (["--", "./file"], "EACCES", "chmod +x ./file"),
        (["--", "./script"], "/nonexistent/interpreter", ""),
    ] {
        fs::write(folder.join("file"), "x").map_err(|error| error.to_string())?;
        let script = folder.join("script");
        fs::write(&script, "#!/nonexistent/interpreter\n").map_err(|error| error.to_string())?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(|error| error.to_string())?;
        let told = examine(runahead, &[], inside, &words)?;
        told.expect("command", "stops", found, remedy)?;
        told.expect_status(2)?;
    }
    let script = folder.join("good-script");
    fs::write(&script, "#!/bin/sh\ntouch was-run\n").map_err(|error| error.to_string())?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(|error| error.to_string())?;
    let told = examine(runahead, &[], inside, &["--", "./good-script", "--version"])?;
    told.expect("command", "ok", "./good-script, a script for /bin/sh", "")?;
    told.expect("system calls", "ok", "can be seen", "")?;
    match folder.join("was-run").exists() {
        true => Err("the command was run".into()),
        false => Ok(()),
    }
}

fn wrong_usage(runahead: &Runahead) -> Verdict {
    for arguments in [&["doctor", "a", "--", "true"][..], &["doctor", "a", "b"], &["doctor", "--nonsense"]] {
        let output =
            Command::new(&runahead.command).args(arguments).output().map_err(|error| error.to_string())?;
        if output.status.code() != Some(125) || output.stderr.is_empty() || !output.stdout.is_empty() {
            return Err(format!("{arguments:?}: {output:?}"));
        }
    }
    Ok(())
}

fn switched_off(runahead: &Runahead) -> Verdict {
    let off = |command: &mut Command| {
        command.env("RUNAHEAD", "off");
    };
    let told = examine(runahead, &[], off, &["--", "true"])?;
    told.expect("switch", "stops", "RUNAHEAD=off", "unset RUNAHEAD")?;
    told.expect_status(2)?;
    examine(runahead, &[], nothing, &["--", "true"])?.expect_nothing_of("switch")
}

/// The remedy is given to the same shell.
fn limits(runahead: &Runahead) -> Verdict {
    for limit in ["-Sv 100000", "-Sd 1000", "-Ss 32", "-Sf 100"] {
        let lower = format!("ulimit {limit}; exec \"$@\"");
        let around = ["sh", "-c", &lower, "sh"];
        // Arguments and environment are on the stack as well.
        let told = examine(runahead, &around, with_much_environment, &["--", "true"])?;
        let option = limit.get(2..3).unwrap_or_default();
        told.expect("ulimit", "stops", "ulimit", &format!("ulimit -{option} "))?;
        told.expect_nothing_of("shared memory")?;
        expect_plain(runahead, &around, nothing, &["true"])?;
        let remedy = told.line("ulimit").map_or("", |line| as_text(&line["remedy"]));
        let mended = format!("ulimit {limit}; {remedy}; exec \"$@\"");
        let told = examine(runahead, &["sh", "-c", &mended, "sh"], nothing, &["--", "true"])?;
        if told.line("ulimit").is_none_or(|line| line["verdict"] == "stops") {
            return Err(format!("{remedy} did not help: {}", told.text));
        }
        let why = plainly_because(runahead, &["sh", "-c", &mended, "sh"], nothing, &["true"])?;
        if !why.is_empty() {
            return Err(format!("{remedy} did not help: {why}"));
        }
    }
    let around = ["sh", "-c", "ulimit -Sv 600000; exec \"$@\"", "sh"];
    let told = examine(runahead, &around, nothing, &["--", "true"])?;
    told.expect("ulimit", "limits", "585 MB", "ulimit -v unlimited")?;
    // By whom it cannot be raised again.
    let around = ["sh", "-c", "ulimit -v 100000; exec \"$@\"", "sh"];
    let told = examine(runahead, &around, nothing, &["--", "true"])?;
    told.expect("ulimit", "stops", "ulimit -v", "sudo prlimit --pid $$ --as=301989888")
}

fn memory_instead(runahead: &Runahead) -> Verdict {
    let told = examine(runahead, &[], nothing, &["/dev/shm"])?;
    told.expect("file system", "stops", "tmpfs", "runahead doctor FOLDER")?;
    told.expect_nothing_of("cold read")?;
    told.expect_status(2)
}

fn guest(name: &str) -> Result<String, String> {
    let guest = Guest::all()?.into_iter().find(|guest| guest.name() == name).ok_or("no such guest")?;
    Ok(guest.build()?.to_string_lossy().into_owned())
}

fn filters(runahead: &Runahead) -> Verdict {
    let filtered = guest("filtered")?;
    let number = |number: libc::c_long| number.to_string();
    let both = format!("{},{}", libc::SYS_userfaultfd, libc::SYS_perf_event_open);
    let told = examine(runahead, &[&filtered, "errno", &both], nothing, &["--", "true"])?;
    told.expect("page faults", "limits", "perf_event_open: EPERM", "perf_event_open")
        .or_else(|_| told.expect("page faults", "limits", "perf_event_open: EPERM", "seccomp=unconfined"))?;
    let mirror = told.line("memory copies").ok_or("no memory copies")?;
    if !as_text(&mirror["found"]).contains("no userfaultfd (EPERM)") || mirror["verdict"] == "stops" {
        return Err(format!("without userfaultfd it says {mirror}"));
    }
    told.expect_verdict("filters", "ok")?;
    told.expect_status(1)?;

    let around = [&filtered[..], "errno", "process_vm_readv"];
    let told = examine(runahead, &around, nothing, &["--", "true"])?;
    told.expect_verdict("processes", "stops")?;
    expect_plain(runahead, &around, nothing, &["true"])?;

    let memfd = number(libc::SYS_memfd_create);
    let around = [&filtered[..], "errno", &memfd];
    let told = examine(runahead, &around, nothing, &["--", "true"])?;
    told.expect_verdict("shared memory", "stops")?;
    expect_plain(runahead, &around, nothing, &["true"])?;

    for killed in ["preadv2", &number(libc::SYS_perf_event_open), &number(libc::SYS_ptrace)] {
        let around = [&filtered[..], "kill", killed];
        let told = examine(runahead, &around, nothing, &["--", "true"])?;
        let line = told.line("filters").ok_or("no filters")?;
        if line["verdict"] != "stops" || line["remedy"].is_null() || told.lines.len() != 1 {
            return Err(format!("{killed}: {}", told.text));
        }
        expect_plain(runahead, &around, nothing, &["true"])?;
    }
    // None of ours, but one of the doctor's own.
    let own = number(libc::SYS_statfs);
    examine(runahead, &[&filtered, "kill", &own], nothing, &["/usr"]).map(drop)
}

fn static_command(runahead: &Runahead) -> Verdict {
    let program = guest("static_program")?;
    let told = examine(runahead, &[], nothing, &["--", &program])?;
    told.expect("program", "ok", "statically linked", "")?;
    let filtered = guest("filtered")?;
    let ptrace = libc::SYS_ptrace.to_string();
    let around = [&filtered[..], "errno", &ptrace];
    let told = examine(runahead, &around, nothing, &["--", &program])?;
    told.expect("program", "stops", "statically linked", "")?;
    told.expect_verdict("tracing", "limits")?;
    expect_plain(runahead, &around, nothing, &[&program])
}

fn build(folder: &Path, source: &str, words: &[&str]) -> Result<(), String> {
    let file = folder.join("source.c");
    fs::write(&file, source).map_err(|error| error.to_string())?;
    let done = Command::new("gcc").arg(&file).args(words).current_dir(folder).status();
    match done {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("gcc {words:?}: {other:?}")),
    }
}

fn blind(runahead: &Runahead) -> Verdict {
    let folder = folder("blind")?;
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    build(
        &folder,
        &format!("{BLIND_CALL} int main(void) {{ return blind() <= 0; }}"),
        &["-O1", "-o", "program"],
    )?;
    let told = examine(runahead, &[], nothing, &["--", &path("program")])?;
    told.expect("system calls", "stops", &path("program"), "")?;
    told.expect_status(2)?;

    // In a library that it brings along.
    fs::create_dir_all(folder.join("lib")).map_err(|error| error.to_string())?;
    build(&folder, BLIND_CALL, &["-O1", "-shared", "-fPIC", "-o", "lib/libblind.so"])?;
    let uses = "long blind(void); int main(void) { return blind() <= 0; }";
    build(&folder, uses, &["-o", "uses", "-Llib", "-lblind", "-Wl,-rpath,$ORIGIN/lib"])?;
    let told = examine(runahead, &[], nothing, &["--", &path("uses")])?;
    told.expect("system calls", "stops", &path("lib/libblind.so"), "")?;

    // In one that is preloaded.
    let preload = |command: &mut Command| {
        command.env("LD_PRELOAD", folder.join("lib/libblind.so"));
    };
    let env = ["env", &format!("LD_PRELOAD={}", path("lib/libblind.so"))].map(str::to_owned);
    let env: Vec<&str> = env.iter().map(String::as_str).collect();
    let told = examine(runahead, &env, nothing, &["--", "true"])?;
    told.expect("LD_PRELOAD", "ok", "libblind.so", "")?;
    told.expect("system calls", "stops", "libblind.so", "")?;

    // What was built this moment is not analysed by a run.
    std::thread::sleep(Duration::from_millis(200));
    for program in ["program", "uses"] {
        expect_plain(runahead, &[], nothing, &[&path(program)])?;
    }
    expect_plain(runahead, &[], preload, &["true"])
}

fn narrow(runahead: &Runahead) -> Verdict {
    let program = folder("narrow")?.join("program");
    let header = [&b"\x7fELF\x01\x01\x01"[..], &[0; 45]].concat();
    fs::write(&program, header)
        .and_then(|()| fs::set_permissions(&program, fs::Permissions::from_mode(0o755)))
        .map_err(|error| error.to_string())?;
    let told = examine(runahead, &[], nothing, &["--", &program.to_string_lossy()])?;
    told.expect("program", "stops", "32-bit", "64-bit")?;
    told.expect_status(2)
}

fn rights(runahead: &Runahead) -> Verdict {
    let folder = folder("rights")?;
    let runahead = &runahead.copied(&folder, &[])?;
    let program = folder.join("program");
    let name = program.to_string_lossy().into_owned();
    let with =
        |mode| fs::set_permissions(&program, fs::Permissions::from_mode(mode)).map_err(|e| e.to_string());
    fs::copy("/bin/true", &program).map_err(|error| error.to_string())?;
    with(0o755)?;
    examine(runahead, &NOBODY, nothing, &["--", &name])?.expect_nothing_of("its rights")?;
    with(0o4755)?;
    let told = examine(runahead, &NOBODY, nothing, &["--", &name])?;
    told.expect("its rights", "stops", "setuid, as user 0", "sudo runahead run --")?;
    told.expect_status(2)?;
    // The remedy: root gets nothing by it, and the run is none that is plain.
    examine(runahead, &[], nothing, &["--", &name])?.expect_nothing_of("its rights")?;
    let why = plainly_because(runahead, &[], nothing, &[&name])?;
    if !why.is_empty() {
        return Err(format!("as root it runs plainly: {why}"));
    }
    // Nobody gets a right where no rights are given.
    let careful = [&["setpriv", "--no-new-privs"], &NOBODY[1..]].concat();
    examine(runahead, &careful, nothing, &["--", &name])?.expect_nothing_of("its rights")?;
    with(0o2755)?;
    let told = examine(runahead, &NOBODY, nothing, &["--", &name])?;
    told.expect("its rights", "stops", "setgid, as group 0", "sudo -g '#0'")?;
    with(0o711)?;
    let told = examine(runahead, &NOBODY, nothing, &["--", &name])?;
    told.expect("program", "stops", "EACCES", "sudo")
}

/// Everywhere that it may be nothing can be written, or there is no room.
fn no_place(runahead: &Runahead) -> Verdict {
    let places = [
        ("mount -t tmpfs none /var/tmp && mkdir /var/tmp/home && mount -o remount,ro /var/tmp", "Read-only"),
        (
            "mount -t tmpfs -o size=16k none /var/tmp && mkdir /var/tmp/home && \
             { head -c 100000 /dev/zero > /var/tmp/full; } 2> /dev/null",
            "No space left",
        ),
        // The beginning of the file fits in, what is not written in it yet does not.
        ("mount -t tmpfs -o size=12k none /var/tmp && mkdir /var/tmp/home", "No space left"),
    ];
    let report = folder("no-place")?.join("report.json");
    for (prepared, why) in places {
        let line = format!("{prepared}; export XDG_CACHE_HOME=/var/tmp/home; exec \"$@\"");
        let around = ["unshare", "--mount", "sh", "-c", &line, "sh"];
        let told = examine(runahead, &around, nothing, &["--", "true"])?;
        told.expect("site file", "limits", why, "export XDG_CACHE_HOME=$(mktemp -d)")?;
        let mut command = Command::new(around[0]);
        command.args(&around[1..]).args([&runahead.command, "run", "--report"]).arg(&report).arg("true");
        let status = command.status().map_err(|error| error.to_string())?;
        let text = fs::read_to_string(&report).map_err(|error| error.to_string())?;
        if !status.success() || serde_json::from_str::<Value>(&text).is_err() {
            return Err(format!("{prepared}: {status}, report: {text}"));
        }
        let mended = line.replace("exec", "export XDG_CACHE_HOME=$(mktemp -d); exec");
        let around = ["unshare", "--mount", "sh", "-c", &mended, "sh"];
        let told = examine(runahead, &around, nothing, &["--", "true"])?;
        told.expect("site file", "ok", "/sites", "")?;
    }
    Ok(())
}

fn others_proc(runahead: &Runahead) -> Verdict {
    let around = ["unshare", "--pid", "--fork"];
    let told = examine(runahead, &around, nothing, &["--", "true"])?;
    told.expect("/proc", "stops", "another namespace", "mount -t proc proc /proc")?;
    expect_plain(runahead, &around, nothing, &["true"])?;
    let around = ["unshare", "--pid", "--fork", "--mount-proc"];
    examine(runahead, &around, nothing, &["--", "true"])?.expect_nothing_of("/proc")
}

fn installation(runahead: &Runahead) -> Verdict {
    let folder = folder("installation")?;
    let runahead = &runahead.copied(&folder, &[])?;
    let speculator = folder.join("runahead-speculator");
    let agent = folder.join("librunahead_agent.so");
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|error| error.to_string())
    };
    let told = |found: &str, remedy: &str| {
        examine(runahead, &NOBODY, nothing, &["--", "true"])?.expect("installation", "stops", found, remedy)
    };
    examine(runahead, &NOBODY, nothing, &["--", "true"])?.expect("installation", "ok", "agent and", "")?;
    mode(&speculator, 0o644)?;
    told("speculator cannot be used (EACCES)", "chmod a+rx ")?;
    mode(&speculator, 0o755)?;
    mode(&agent, 0o600)?;
    told("agent cannot be used (EACCES)", "chmod a+r ")?;
    fs::write(&agent, "nothing").map_err(|error| error.to_string())?;
    mode(&agent, 0o644)?;
    told("not Runahead's agent", "./x install")?;
    fs::remove_file(&agent).map_err(|error| error.to_string())?;
    told("librunahead_agent.so", "./x install")
}

/// A folder that a server in user space shows elsewhere, until this is dropped.
struct Mounted {
    server: Child,
    mount: PathBuf,
}

impl Mounted {
    fn begin(name: &str, options: &[&str]) -> Result<Mounted, String> {
        let folder = folder(name)?;
        let (from, mount) = (folder.join("from"), folder.join("mount"));
        for made in [&from, &mount] {
            fs::create_dir_all(made).map_err(|error| error.to_string())?;
        }
        fs::write(from.join("data"), bytes(2, 1 << 20)).map_err(|error| error.to_string())?;
        let server = Command::new("bindfs").args(options).arg("-f").args([&from, &mount]).spawn();
        let mounted = Mounted { server: server.map_err(|error| error.to_string())?, mount };
        let end = Instant::now() + Duration::from_secs(10);
        while !mounted.mount.join("data").exists() {
            if Instant::now() > end {
                return Err("bindfs does not come up".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(mounted)
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: our own child, not waited for yet.
        unsafe { libc::kill(self.server.id().cast_signed(), signal) };
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.signal(libc::SIGCONT);
        let _ = Command::new("umount").arg("--lazy").arg(&self.mount).status();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn hangs(runahead: &Runahead) -> Verdict {
    let mounted = Mounted::begin("hangs", &[])?;
    let name = mounted.mount.to_string_lossy().into_owned();
    examine(runahead, &[], nothing, &[&name])?.expect("file system", "ok", "fuse", "")?;
    mounted.signal(libc::SIGSTOP);
    let began = Instant::now();
    let told = examine(runahead, &[], nothing, &[&name])?;
    told.expect("path", "stops", "does not answer within 3 s", "")?;
    if as_text(&told.lines[told.lines.len() - 1]["found"]) != format!("{name} does not answer within 3 s") {
        return Err(told.text);
    }
    told.expect_status(2)?;
    // Twice: as text and as JSON.
    match began.elapsed() {
        took if took < Duration::from_secs(20) => Ok(()),
        took => Err(format!("it took {took:?}")),
    }
}

fn no_page_cache(runahead: &Runahead) -> Verdict {
    let mounted = Mounted::begin("direct", &["-o", "direct_io"])?;
    let name = mounted.mount.to_string_lossy().into_owned();
    let told = examine(runahead, &[], nothing, &[&name])?;
    told.expect("page cache", "stops", "passed by", "direct_io")?;
    told.expect_status(2)?;
    let mended = Mounted::begin("not-direct", &[])?;
    let name = mended.mount.to_string_lossy().into_owned();
    examine(runahead, &[], nothing, &[&name])?.expect_nothing_of("page cache")
}
