//! Who is beside the command becomes the host only once there is something to do (`host::attendant`), and what
//! comes of it where it cannot.

use crate::suite::Suite;
use runahead_end_to_end::locate::{Runahead, build_folder};
use runahead_end_to_end::scenario::{COLD, Mode, NO_SPECULATION, Scenario, WARM, bytes};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Waits some hundred times for a page.
const READS: &str = "import os, random\n\
    random.seed(3)\n\
    data = os.open('data', os.O_RDONLY)\n\
    print(sum(os.pread(data, 100, random.randrange(16 << 20))[0] for _ in range(400)))\n";

const REPORTED: Mode = Mode { name: "reported", options: Some(&["--report", "report.json"]), cold: true };

/// A host that tells of its start.
const MARKS: &str = "#!/bin/sh\necho x >> $(dirname $0)/mark\nexec $(dirname $0)/real \"$@\"\n";

pub fn add(suite: &mut Suite) {
    suite.add_plain("attendant::who waits for nothing has no host, and who waits has one", || {
        let copy = Copy::make("needed", MARKS)?;
        // What is not known yet has somebody look at it.
        waits_for_nothing()?.modes([WARM]).check(&copy.runahead)?;
        let _ = fs::remove_file(copy.folder.join("mark"));
        waits_for_nothing()?.modes([WARM]).check(&copy.runahead)?;
        if copy.folder.join("mark").exists() {
            return Err("a host was started for what waits for nothing".to_owned());
        }
        waits()?.modes([COLD]).check(&copy.runahead)?;
        match fs::read_to_string(copy.folder.join("mark")).as_deref() {
            Ok("x\n") => Ok(()),
            hosts => Err(format!("not one host was started for what waits: {hosts:?}")),
        }
    });
    suite.add(
        "attendant::a command's root is left soon after it",
        ["root", "command unshare"],
        leaves_its_root,
    );
    suite.add_plain("attendant::whom the installation knows has none in a fresh home either", || {
        let unknown = Copy::make("unknown", MARKS)?;
        waits_for_nothing_at_first()?.modes([WARM]).check(&unknown.runahead)?;
        if !unknown.folder.join("mark").exists() {
            return Err("nothing is unknown in a fresh home".to_owned());
        }
        let known = Copy::make("known", MARKS)?;
        known.prepare()?;
        waits_for_nothing_at_first()?.modes([WARM]).check(&known.runahead)?;
        match known.folder.join("mark").exists() {
            true => Err("a host was started for what the installation knows".to_owned()),
            false => Ok(()),
        }
    });
    suite.add_plain("attendant::what others may write to is not known to the installation", || {
        let copy = Copy::make("others", MARKS)?;
        copy.prepare()?;
        for entry in fs::read_dir(&copy.folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("runahead-sites") {
                fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o666))
                    .map_err(|error| error.to_string())?;
            }
        }
        waits_for_nothing_at_first()?.modes([WARM]).check(&copy.runahead)?;
        match copy.folder.join("mark").exists() {
            true => Ok(()),
            false => Err("what anybody may have written was believed".to_owned()),
        }
    });
    suite.add_plain("attendant::who outlives the command waits for nobody", outlives);
    suite.add_plain("attendant::a host that ends at once is missed by nobody", || {
        let copy = Copy::make("ends", "#!/bin/sh\nexit 0\n")?;
        waits()?.modes([COLD, NO_SPECULATION]).check(&copy.runahead)
    });
    suite.add_plain("attendant::a host that cannot be executed is missed by nobody, and told of", || {
        let copy = Copy::make("fails", "")?;
        waits()?.modes([COLD]).check(&copy.runahead)?;
        let told = waits()?.run(&REPORTED, &copy.runahead).map_err(|error| error.to_string())?;
        let report = told.tree.get(Path::new("report.json")).ok_or("there is no report")?;
        let report = String::from_utf8_lossy(&report.contents);
        match report.contains("runahead-host cannot be executed") {
            true => Ok(()),
            false => Err(format!("the report does not say why: {report}")),
        }
    });
    suite.add_plain("attendant::a static command does not wait for a host that cannot be executed", || {
        let copy = Copy::make("static", "")?;
        let line = format!("$UNDER {} --version", copy.runahead.command);
        let scenario = || Scenario::shell("static and no host", &line);
        scenario().modes([COLD, WARM]).check(&copy.runahead)?;
        let began = Instant::now();
        let told = scenario().run(&REPORTED, &copy.runahead).map_err(|error| error.to_string())?;
        if began.elapsed() > Duration::from_millis(1800) {
            return Err(format!("it took {:?}", began.elapsed()));
        }
        let report = told.tree.get(Path::new("report.json")).ok_or("there is no report")?;
        let report = String::from_utf8_lossy(&report.contents);
        match report.matches("\"version\"").count() {
            1 if report.contains("runahead-host cannot be executed") => Ok(()),
            _ => Err(format!("not one report, or not of what is wrong: {report}")),
        }
    });
    suite.add_plain("attendant::a host that was replaced meanwhile is not executed, and told of", || {
        // On a busy machine the command's start may have waited, and called the host, before it is replaced.
        (0..4).find_map(|_| replaced().ok()).map_or_else(replaced, Ok)
    });
    suite.add(
        "attendant::who is installed traces no program that its loader serves",
        ["command strace"],
        || {
            let copy = Copy::installed()?;
            let line = "$UNDER sh -c 'sleep 0.3; host=${RUNAHEAD_SESSION%%:*}; \
            strace -qq -f -e trace=ptrace -e signal=none -o traced -p $host & \
            sleep 1; uname > told; dirname / >> told; kill $!'; grep -c SEIZE traced";
            let told = Scenario::shell("installed", line).run(&WARM, &copy.runahead);
            let told = told.map_err(|error| error.to_string())?;
            match told.stdout.ends_with(b"0\n") {
                true => Ok(()),
                false => Err(format!("traced: {}", String::from_utf8_lossy(&told.stdout))),
            }
        },
    );
}

/// Another version's host lies there when the command begins to wait.
fn replaced() -> Result<(), String> {
    let copy = Copy::make("replaced", "#!/bin/sh\nexec $(dirname $0)/real \"$@\"\n")?;
    // Its files are known from then on, so that nobody is needed before it waits.
    waits()?.modes([WARM]).check(&copy.runahead)?;
    let folder = copy.folder.display();
    let other = copy.folder.join("other");
    fs::write(&other, format!("#!/bin/sh\ntouch {folder}/mark\n"))
        .and_then(|()| fs::set_permissions(&other, fs::Permissions::from_mode(0o755)))
        .map_err(|error| error.to_string())?;
    let line = format!(
        "$UNDER python3 -S -c 'import os; os.rename(\"{folder}/other\", \"{folder}/runahead-host\"); \
         exec(open(\"reads.py\").read())'"
    );
    let scenario = Scenario::shell("replaced", &line).prepare(|directory| {
        fs::write(directory.join("reads.py"), READS)?;
        fs::write(directory.join("data"), bytes(5, 17 << 20))
    });
    let told = scenario.run(&REPORTED, &copy.runahead).map_err(|error| error.to_string())?;
    let report = told.tree.get(Path::new("report.json")).ok_or("there is no report")?;
    let report = String::from_utf8_lossy(&report.contents);
    match (copy.folder.join("mark").exists(), report.contains("files were replaced")) {
        (false, true) => Ok(()),
        (was_executed, _) => Err(format!("executed: {was_executed}; the report: {report}")),
    }
}

/// A command's root is mounted and unmounted around it, on each line how long that was in vain, ms.
const LEAVES_ITS_ROOT: &str = r#"
    set -e; mkdir root; mount -t tmpfs tmpfs root; trap 'umount -l root' EXIT
    for file in /bin/sh /bin/true $(ldd /bin/sh /bin/true | grep -o '/[^ :]* ' | sort -u); do
      mkdir -p "root$(dirname "$file")"; cp -L "$file" "root$file"
    done
    mkdir -p root/runahead root/proc root/var/tmp root/dev; cp "$FROM"/* root/runahead
    mkdir kept; mount --bind root kept; umount root
    for round in 1 2 3 4 5 6 7 8 9; do
      mount --bind kept root; mount -t proc proc root/proc
      chroot root /runahead/runahead run $OPTIONS -- /bin/sh -c "$LINE"
      begin=$(date +%s%N)
      until umount root/proc 2>&-; do sleep 0.002; done; until umount root 2>&-; do sleep 0.002; done
      echo $((($(date +%s%N) - begin) / 1000000))
    done
    umount -l kept; trap - EXIT; cd /; rm -r "$OLDPWD""#;

/// What is beside a command is in its root: who unmounts that finds it busy as long as somebody is there. On a
/// busy machine too most of nine rounds are quick.
fn leaves_its_root() -> Result<(), String> {
    const LONGEST_MS: u64 = 50;
    let runahead = Runahead::built()?;
    for options in ["", "--report /report.json"] {
        for line in ["/bin/true; exit 0", "exit 0"] {
            let folder = build_folder().join(format!("attendant-root-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            let from = folder.join("installed");
            fs::create_dir_all(&from).map_err(|error| error.to_string())?;
            runahead.copied(&from, &[])?;
            let output = Command::new("unshare")
                .args(["--mount", "--propagation", "private", "bash", "-c", LEAVES_ITS_ROOT])
                .current_dir(&folder)
                .env("FROM", &from)
                .env("OPTIONS", options)
                .env("LINE", line)
                .output()
                .map_err(|error| error.to_string())?;
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            let rounds: Vec<u64> = told.lines().filter_map(|line| line.parse().ok()).collect();
            if !output.status.success() || rounds.len() != 9 {
                return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
            }
            if rounds.iter().filter(|&&ms| ms > LONGEST_MS).count() > 4 {
                return Err(format!("run {options} -- sh -c '{line}': its root is busy for {rounds:?} ms"));
            }
        }
    }
    Ok(())
}

/// Nobody is beside it any more when it executes what is known, and what is not. Each would wait for a second; of
/// three tries, as a busy machine may take as long once.
fn outlives() -> Result<(), String> {
    let line = "best=9; for try in 1 2 3; do begin=$(date +%s%N); \
        $UNDER sh -c '(sleep 0.4; env -i /bin/true; /bin/true; date +%s%N > told) & exit 0'; \
        for at in $(seq 100); do [ \"$(cat told 2>&- | wc -l)\" = 1 ] && break; sleep 0.1; done; \
        took=$((($(cat told) - begin) / 1300000000)); rm told; [ $took -lt $best ] && best=$took; done; echo $best";
    Scenario::shell("outlives", line).modes([WARM, COLD]).check(&Runahead::built()?)
}

fn waits_for_nothing() -> Result<Scenario, String> {
    Ok(Scenario::shell(
        "waits for nothing",
        "$UNDER true; $UNDER sh -c '/bin/true; /bin/echo it; exit 3'; echo $?",
    ))
}

/// The same in a home of its own, in which nothing is known.
fn waits_for_nothing_at_first() -> Result<Scenario, String> {
    let line = "export XDG_CACHE_HOME=$(mktemp -d); $UNDER true; $UNDER sh -c '/bin/true; /bin/echo it; exit 3'; \
        echo $?; rm -rf \"$XDG_CACHE_HOME\" 2>&-";
    Ok(Scenario::shell("waits for nothing at first", line))
}

fn waits() -> Result<Scenario, String> {
    let scenario = Scenario::shell("waits", "$UNDER python3 -S reads.py; echo $?");
    Ok(scenario.prepare(|directory| {
        fs::write(directory.join("reads.py"), READS)?;
        fs::write(directory.join("data"), bytes(5, 17 << 20))
    }))
}

/// A copy of what is installed, with something else as its host.
struct Copy {
    folder: PathBuf,
    runahead: Runahead,
}

impl Copy {
    /// `host`: a script, or nothing, which cannot be executed.
    fn make(name: &str, host: &str) -> Result<Copy, String> {
        let folder = build_folder().join(format!("attendant-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let runahead = Runahead::built()?.copied(&folder, &[])?;
        let runahead = Runahead { label: format!("attendant-{name}"), ..runahead };
        let copy = Copy { folder, runahead };
        let file = copy.folder.join("runahead-host");
        let mode = if host.is_empty() { 0o644 } else { 0o755 };
        fs::rename(&file, copy.folder.join("real"))
            .and_then(|()| fs::write(&file, host))
            .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(mode)))
            .map_err(|error| error.to_string())?;
        Ok(copy)
    }
}

impl Copy {
    /// Looks at the programs of [`waits_for_nothing`] for all users, as an installation does.
    fn prepare(&self) -> Result<(), String> {
        let told = Command::new("ldd").arg("/bin/sh").output().map_err(|error| error.to_string())?;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let libraries = told.split_whitespace().filter(|word| word.starts_with('/'));
        let mut command = Command::new(&self.runahead.command);
        command.arg("prepare").args(["/bin/sh", "/bin/true", "/bin/echo"]).args(libraries);
        let output = command.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// As `./x install` lays the files out.
    fn installed() -> Result<Copy, String> {
        let folder = build_folder().join(format!("attendant-installed-{}", std::process::id()));
        let (programs, parts) = (folder.join("bin"), folder.join("lib/runahead"));
        let error = |error: std::io::Error| error.to_string();
        fs::create_dir_all(&programs).and_then(|()| fs::create_dir_all(&parts)).map_err(error)?;
        let runahead = Runahead::built()?.copied(&parts, &[])?;
        fs::rename(parts.join("runahead"), programs.join("runahead")).map_err(error)?;
        let command = programs.join("runahead").to_string_lossy().into_owned();
        let runahead = Runahead { label: "attendant-installed".to_owned(), command, ..runahead };
        Ok(Copy { folder, runahead })
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
