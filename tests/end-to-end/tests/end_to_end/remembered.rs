//! What a run has wanted is asked for at the start of the next one, on an emulated disk of 1 ms that is
//! mounted anew before each run.
//!
//! The program finds in each file the name of the next one, so that nobody can foretell them. Whatever was
//! changed between two runs, and whatever stands in the files in which it is remembered, it prints what it
//! prints alone.

use crate::slow_disk::{self, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::locate::{Runahead, build_folder, slow_disks};
use runahead_end_to_end::scenario::bytes;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// What is wanted of `run`.
const REMEMBER: &[&str] = &["--remember"];
const USUAL: &[&str] = &[];
const OFF: &[&str] = &["--no-remember"];

pub const FILES: u64 = 200;
const FILE_BYTES: usize = 6000;

/// A larger one, of which the program reads a piece here and there.
const LARGE: &str = "large";
const LARGE_BYTES: usize = 8 << 20;

/// Where the program itself is, and no script that starts it.
pub const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Prints the sum of what it finds; a name that leads to nothing, or to no file, is printed as well.
const FOLLOWS: &str = "
import os, stat, sys, zlib
if 'QUICK' in os.environ:
    sys.exit()
os.chdir(sys.argv[1])
name, found = 'd0/f0', 0
for number in range(int(sys.argv[2])):
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):
            raise OSError('no file')
        with open(name, 'rb') as file:
            data = file.read()
    except OSError:
        print('nothing at', name)
        name = f'd{(number + 1) % 10}/f{number + 1}'
        continue
    found = zlib.crc32(data, found)
    name = data[:16].split(b' ')[0].decode()
with open('large', 'rb', 0) as large:
    for place in range(0, 8 << 20, 1 << 20):
        large.seek(place)
        found = zlib.crc32(large.read(4096), found)
print(found)
";

/// Goes through all files; as HOW says it asks before that to be told who opens them, or takes leases on all
/// of them: nobody but itself may be seen.
const BEARS_NOBODY: &str = "
import ctypes, fcntl, os, sys, time
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
names = [f'd{number % 10}/f{number}' for number in range(int(sys.argv[2]))]
how = os.environ.get('HOW')
if how:
    # Something is being asked for by then.
    time.sleep(0.05)
if how == 'watches':
    IN_ACCESS, IN_OPEN, IN_NONBLOCK = 0x1, 0x20, 0x800
    watch = libc.inotify_init1(IN_NONBLOCK)
    for number in range(10):
        assert libc.inotify_add_watch(watch, f'd{number}'.encode(), IN_ACCESS | IN_OPEN) > 0
    time.sleep(0.1)
    try:
        print('seen', len(os.read(watch, 65536)))
    except BlockingIOError:
        print('nobody was seen')
elif how == 'leases':
    held = []
    for name in names:
        file = os.open(name, os.O_RDONLY)
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            held.append(file)
        except OSError as error:
            print(name, error)
    time.sleep(0.05)
    print(sum(fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_WRLCK for file in held), 'are held')
    for file in held:
        os.close(file)
print(sum(len(open(name, 'rb').read()) for name in names))
";

pub fn add(suite: &mut Suite) {
    let wants = || slow_disk::WANTS.into_iter().chain(["command python3", "command mkfifo"]);
    suite.add("remembered::what a run has wanted is asked for in the next", wants(), next_run);
    suite.add("remembered::what has changed since is passed over", wants(), changed);
    suite.add("remembered::files that are cut, crafted or another's are nothing", wants(), garbage);
    suite.add("remembered::where nothing can be kept it runs all the same", wants(), nowhere);
    suite.add("remembered::nothing is kept where that is not wanted", wants(), switched_off);
    suite.add("remembered::nothing is touched where that is not wanted", wants(), unwanted);
    suite.add("remembered::names that are not to be kept are nowhere", wants(), excepted);
    suite.add("remembered::who may open few files ends no later", wants(), few_descriptors);
    suite.add("remembered::nobody has to ask for it", wants(), unasked);
    suite.add("remembered::what has not run for long begins with it", wants(), cold_memory);
    suite.add("remembered::twenty runs at once", wants(), many);
    for how in ["watches", "leases"] {
        let name = format!("remembered::who {how} files meets nobody");
        suite.add(name, wants(), move || bears_nobody(how));
    }
    suite.add("remembered::what is mounted can be unmounted right afterwards", wants(), unmounted);
    suite.add("remembered::a run that ends at once leaves nothing open", wants(), || {
        ends_at_once("at-once", false)
    });
    suite.add("remembered::nor does one whose code is not known yet", wants(), || {
        ends_at_once("unknown", true)
    });
    suite.add("remembered::who unmounts without an agent finds nobody", wants(), unmounted_unseen);
    suite.add("remembered::short processes are remembered", wants(), short);
    let and_compiler = || wants().chain(["command cc"]);
    suite.add("remembered::a program without a loader ends nothing", and_compiler(), without_loader);
    suite.add("remembered::programs that start at the same time bear it", wants(), pipes);
    suite.add("remembered::not all is told of what nobody waits for", wants(), idle);
    suite.add("remembered::threads enter all that they open", wants(), threads);
    suite.add("remembered::a host that is stopped is not waited for", wants(), stopped);
    suite.add("remembered::what a program waits for while it is loaded counts", wants(), loads);
    suite.add("remembered::a mask takes nothing from the user himself", wants(), masked);
}

/// A slow disk with the program's files, and a cache folder; both gone with the value.
pub struct Kept {
    tool: PathBuf,
    folder: PathBuf,
    name: &'static str,
    device: String,
    runahead: Runahead,
}

/// What a run has left.
pub struct Ran {
    pub output: Output,
    took: Duration,
    pub counts: Value,
}

impl Kept {
    /// None, and said why, where there can be none.
    pub fn new(name: &'static str) -> Result<Option<Kept>, String> {
        Kept::on("cloud", name)
    }

    /// The same on a disk of that kind.
    fn on(profile: &str, name: &'static str) -> Result<Option<Kept>, String> {
        let runahead = Runahead::built()?;
        if runahead.label != "built" {
            eprintln!("SKIPPED {name}: a stand-in remembers nothing");
            return Ok(None);
        }
        let folder = build_folder().join(format!("remembered-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("cache")).map_err(|error| error.to_string())?;
        let mut kept = Kept { tool: slow_disks(), folder, name, device: String::new(), runahead };
        let mount = kept.mount();
        let up = ["up", profile, "--name", name, "--size", "64M", "--dir", &mount.to_string_lossy()];
        match kept.tool(&up) {
            Ok(said) => kept.device = said["loop_device"].as_str().unwrap_or_default().to_owned(),
            Err(why) if why.contains("not permitted") => {
                eprintln!("SKIPPED {name}: no slow disk can be had here: {}", why.trim());
                return Ok(None);
            }
            Err(why) => return Err(why),
        }
        kept.tool(&["pace", name, "off"])?;
        kept.fill().map_err(|error| error.to_string())?;
        // What has just been written is taken for what a run has written.
        std::thread::sleep(Duration::from_millis(50));
        Ok(Some(kept))
    }

    pub fn mount(&self) -> PathBuf {
        self.folder.join("mount")
    }

    pub fn cache(&self) -> PathBuf {
        self.folder.join("cache")
    }

    pub fn path(number: u64) -> String {
        format!("d{}/f{number}", number % 10)
    }

    fn fill(&self) -> std::io::Result<()> {
        let mount = self.mount();
        for number in 0..FILES {
            // Each names one far away, and all are met.
            let path = mount.join(Self::path(number));
            fs::create_dir_all(path.parent().unwrap_or(&mount))?;
            let mut contents = format!("{} ", Self::path((number + 77) % FILES)).into_bytes();
            contents.extend(bytes(number, FILE_BYTES));
            fs::write(path, contents)?;
        }
        fs::write(mount.join(LARGE), bytes(1, LARGE_BYTES))
    }

    fn tool(&self, arguments: &[&str]) -> Result<Value, String> {
        slow_disk::run_tool(&self.tool, &self.folder, arguments)
    }

    /// Does something to the files, quickly.
    pub fn change(&self, what: impl FnOnce(&Path) -> std::io::Result<()>) -> Verdict {
        self.tool(&["pace", self.name, "off"])?;
        what(&self.mount()).map_err(|error| error.to_string())?;
        std::thread::sleep(Duration::from_millis(50));
        Ok(())
    }

    /// From now on nothing of it is cached.
    pub fn chill(&self) -> Verdict {
        self.tool(&["pace", self.name, "off"])?;
        let end = Instant::now() + Duration::from_secs(60);
        unmount(&self.mount())?;
        let mounted = Path::new("/sys/fs/ext4").join(Path::new(&self.device).file_name().unwrap_or_default());
        while mounted.exists() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.mount_again()
    }

    fn mount_again(&self) -> Verdict {
        command("mount", &[&self.device, &self.mount().to_string_lossy()])?;
        self.tool(&["pace", self.name, "on"]).map(drop)
    }

    fn command(&self, options: Option<&[&str]>) -> Command {
        let mut command = match options {
            None => Command::new("python3"),
            Some(options) => {
                let mut under = Command::new(&self.runahead.command);
                under.arg("run").args(options).args(["--", "python3"]);
                under
            }
        };
        let hops = FILES.to_string();
        command.args(["-c", FOLLOWS, &self.mount().to_string_lossy(), &hops]);
        command.env("XDG_CACHE_HOME", self.cache()).env_remove("RUNAHEAD_REMEMBER").stdin(Stdio::null());
        command.env("PATH", PATH);
        command
    }

    /// What is under test.
    pub fn command_under_test(&self) -> &str {
        &self.runahead.command
    }

    /// The program and its arguments.
    pub fn words(&self) -> Vec<String> {
        let command = self.command(None);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// Makes the command go through a copy of the files.
    pub fn on_copy(&self, command: &mut Command, copy: &Path) {
        let mount = self.mount();
        let mut other = Command::new(command.get_program());
        other.args(
            command.get_args().map(|word| if word == mount.as_os_str() { copy.as_os_str() } else { word }),
        );
        other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
        *command = other;
    }

    /// Makes the command run another script.
    fn script(command: &mut Command, script: &str) {
        let mut other = Command::new(command.get_program());
        other.args(command.get_args().map(|word| if word == FOLLOWS { OsStr::new(script) } else { word }));
        other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
        *command = other;
    }

    pub fn run(&self, options: Option<&[&str]>) -> Result<Ran, String> {
        self.run_so(options, |_| ())
    }

    /// Runs it cold.
    pub fn run_so(&self, options: Option<&[&str]>, so: impl FnOnce(&mut Command)) -> Result<Ran, String> {
        self.chill()?;
        let report = self.folder.join("report.json");
        let file = report.to_string_lossy().into_owned();
        let options: Option<Vec<&str>> =
            options.map(|options| options.iter().copied().chain(["--report", &file]).collect());
        let mut command = self.command(options.as_deref());
        so(&mut command);
        let began = Instant::now();
        let output = command.output().map_err(|error| error.to_string())?;
        let took = began.elapsed();
        let counts = match options {
            None => Value::Null,
            Some(_) => {
                let report = written(&report)?;
                report["counts"]["remembered"].clone()
            }
        };
        Ok(Ran { output, took, counts })
    }

    /// Runs it alone and then so often under Runahead: it must print the same each time. Returns what was
    /// counted.
    fn same(&self, times: usize) -> Result<Vec<Ran>, String> {
        let alone = self.run(None)?;
        if alone.output.stdout.is_empty() {
            return Err(format!(
                "it prints nothing alone: {}",
                String::from_utf8_lossy(&alone.output.stderr)
            ));
        }
        let mut all = vec![alone];
        for _ in 0..times {
            let under = self.run(Some(REMEMBER))?;
            is_same(&all[0].output, &under.output)?;
            all.push(under);
        }
        Ok(all)
    }

    /// The files in which it is remembered.
    pub fn remembered(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.cache().join("runahead/remembered")).into_iter().flatten();
        entries.flatten().map(|entry| entry.path()).collect()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut command = Command::new(&self.tool);
        let _ = command.args(["down", "--all"]).env("SLOWDISK_RUN", self.folder.join("run")).output();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Waits for a child that another test forks at this moment, and that has our files open until it executes
/// its program.
fn unmount(folder: &Path) -> Verdict {
    until_done(|| command("umount", &[&folder.to_string_lossy()]))
}

/// Does something to a mount as often as that is busy.
fn until_done(does: impl Fn() -> Verdict) -> Verdict {
    let end = Instant::now() + Duration::from_secs(60);
    while let Err(why) = does() {
        if !why.contains("busy") || Instant::now() > end {
            return Err(why);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The report, which comes a moment after a command that is left alone before its end.
fn written(report: &Path) -> Result<Value, String> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let text = fs::read(report).map_err(|error| error.to_string())?;
        match serde_json::from_slice(&text) {
            Err(error) if Instant::now() > end => return Err(error.to_string()),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
            Ok(read) => return Ok(read),
        }
    }
}

fn command(name: &str, arguments: &[&str]) -> Verdict {
    let output = Command::new(name).args(arguments).output().map_err(|error| format!("{name}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

pub fn is_same(alone: &Output, under: &Output) -> Verdict {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if (alone.status, &alone.stdout, &alone.stderr) == (under.status, &under.stdout, &under.stderr) {
        return Ok(());
    }
    Err(format!(
        "alone {} {:?} {:?}, under {} {:?} {:?}",
        alone.status,
        text(&alone.stdout),
        text(&alone.stderr),
        under.status,
        text(&under.stdout),
        text(&under.stderr)
    ))
}

fn next_run() -> Verdict {
    let Some(kept) = Kept::new("next")? else { return Ok(()) };
    let all = kept.same(3)?;
    let [alone, first, second, third] = &all[..] else { return Err("four runs".to_owned()) };
    if number(&first.counts, "files")? != 0 || number(&first.counts, "kept")? < FILES / 2 {
        return Err(format!("of the first run: {}", first.counts));
    }
    // Where the first run was calm, the beginning is missing: the second has all.
    for (run, least) in [(second, FILES / 2), (third, FILES)] {
        let (files, used) = (number(&run.counts, "files")?, number(&run.counts, "used")?);
        if files < least || used < least || number(&run.counts, "changed")? != 0 {
            return Err(format!("of the next run: {}", run.counts));
        }
    }
    // 200 waits of 1 ms and more, in a row, and the large file's; with 32 threads a few. (A loaded machine
    // may keep the threads from it.)
    let mut took = vec![second.took, third.took];
    while took.iter().min().is_some_and(|best| *best * 2 > alone.took) && took.len() < 10 {
        took.push(kept.run(Some(REMEMBER))?.took);
    }
    match took.len() {
        10 => Err(format!("alone it took {:?}, and then {took:?}", alone.took)),
        _ => Ok(()),
    }
}

fn changed() -> Verdict {
    let Some(kept) = Kept::new("changed")? else { return Ok(()) };
    // What the first run was too calm to see the second has.
    kept.same(2)?;
    kept.change(|mount| {
        // Gone, of the same length, shorter, another file of the same contents, a link, a directory, a pipe,
        // a device.
        let at = |number: u64| mount.join(Kept::path(number));
        fs::remove_file(at(3))?;
        let mut contents = fs::read(at(4))?;
        contents[100] ^= 1;
        fs::write(at(4), contents)?;
        let contents = fs::read(at(5))?;
        fs::write(at(5), &contents[..100])?;
        fs::rename(at(6), mount.join("other"))?;
        fs::copy(mount.join("other"), at(6))?;
        fs::rename(at(7), mount.join("elsewhere"))?;
        std::os::unix::fs::symlink("../elsewhere", at(7))?;
        fs::remove_file(at(8))?;
        fs::create_dir(at(8))?;
        for number in [9, 10] {
            fs::remove_file(at(number))?;
        }
        let made = |status: std::process::ExitStatus| {
            status.success().then_some(()).ok_or(std::io::ErrorKind::Other)
        };
        made(Command::new("mkfifo").arg(at(9)).status()?)?;
        made(Command::new("mknod").arg(at(10)).args(["c", "1", "5"]).status()?)?;
        Ok(())
    })?;
    let began = Instant::now();
    let all = kept.same(2)?;
    if began.elapsed() > Duration::from_secs(60) {
        return Err("something waited for the pipe".to_owned());
    }
    // The link leads to what was there, and the one that is gone, the directory, the pipe and the device are
    // not what they were.
    let changed = number(&all[1].counts, "changed")?;
    if !(6..=8).contains(&changed) {
        return Err(format!("of eight files that have changed: {}", all[1].counts));
    }
    match number(&all[2].counts, "changed")? {
        0 => Ok(()),
        _ => Err(format!("what has changed is remembered again: {}", all[2].counts)),
    }
}

fn garbage() -> Verdict {
    let Some(kept) = Kept::new("garbage")? else { return Ok(()) };
    kept.same(1)?;
    let [file] = &kept.remembered()[..] else { return Err(format!("{:?}", kept.remembered())) };
    let good = fs::read(file).map_err(|error| error.to_string())?;
    let mut crafted = good.clone();
    crafted.truncate(16);
    crafted.extend([0xff; 4000]);
    let others = |file: &Path| chown(file, Some(65534), Some(65534));
    let open = |file: &Path| fs::set_permissions(file, fs::Permissions::from_mode(0o666));
    let link = |file: &Path| {
        let place = file.with_extension("elsewhere");
        fs::rename(file, &place)?;
        std::os::unix::fs::symlink(&place, file)
    };
    let nothing = |_: &Path| Ok(());
    type Harm<'a> = &'a dyn Fn(&Path) -> std::io::Result<()>;
    let harms: [(&str, &[u8], Harm); 7] = [
        ("cut", &good[..good.len() / 2], &nothing),
        ("empty", b"", &nothing),
        ("crafted", &crafted, &nothing),
        ("long", &vec![7; 9 << 20], &nothing),
        ("another's", &good, &others),
        ("open", &good, &open),
        ("a link", &good, &link),
    ];
    let expected = kept.run(None)?;
    for (name, contents, harm) in harms {
        let done = fs::remove_file(file).and_then(|()| fs::write(file, contents));
        done.and_then(|()| harm(file)).map_err(|error| error.to_string())?;
        for asked in [false, true] {
            let ran = kept.run(Some(REMEMBER))?;
            is_same(&expected.output, &ran.output).map_err(|why| format!("{name}: {why}"))?;
            if (number(&ran.counts, "files")? > 0) != asked || number(&ran.counts, "kept")? == 0 {
                return Err(format!("{name}, then asked for {asked}: {}", ran.counts));
            }
        }
    }
    Ok(())
}

/// Cache folders in which nothing can be kept, as the user's own or below `/var/tmp`: made so by a script.
fn nowhere() -> Verdict {
    let Some(kept) = Kept::new("nowhere")? else { return Ok(()) };
    let expected = kept.run(None)?;
    let cache = kept.cache();
    let folder = cache.join("runahead");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let place = folder.to_string_lossy().into_owned();
    for name in ["read-only", "full"] {
        command("mount", &["-t", "tmpfs", "-o", "mode=700,size=2m", "tmpfs", &place])?;
        // What is learned of its code has room, and nothing else has.
        let ran = kept.run(Some(&[])).and_then(|_| {
            match name {
                "full" => drop(fs::write(folder.join("filler"), vec![1; 2 << 20])),
                // The host has the folder open a moment longer.
                _ => until_done(|| command("mount", &["-o", "remount,ro", &place]))?,
            }
            kept.run(Some(REMEMBER))
        });
        unmount(&folder)?;
        let ran = ran.and_then(|ran| is_same(&expected.output, &ran.output).map(|()| ran));
        let counts = ran.map_err(|why| format!("{name}: {why}"))?.counts;
        // Where the first folder does not serve, another may.
        if name == "full" && (number(&counts, "kept")? != 0 || counts["left_because"].is_null()) {
            return Err(format!("{name}: {counts}"));
        }
    }
    // Another user's.
    chown(&folder, Some(65534), Some(65534)).map_err(|error| error.to_string())?;
    let ran = kept.run(Some(REMEMBER))?;
    is_same(&expected.output, &ran.output)?;
    if !kept.remembered().is_empty() {
        return Err("something was written into another user's folder".to_owned());
    }
    Ok(())
}

fn switched_off() -> Verdict {
    let Some(kept) = Kept::new("off")? else { return Ok(()) };
    let expected = kept.run(None)?;
    type So<'a> = &'a dyn Fn(&mut Command);
    let off: So = &|command| {
        command.env("RUNAHEAD_REMEMBER", "off");
    };
    let ways: [(&[&str], So); 4] = [
        (&[], off),
        (&["--no-remember"], &|_| ()),
        (&["--remember", "--no-speculate"], &|_| ()),
        (&["--remember", "--max-inflight", "4"], &|_| ()),
    ];
    let check = |asks: bool| -> Verdict {
        for (options, so) in ways {
            let ran = kept.run_so(Some(options), so)?;
            is_same(&expected.output, &ran.output)?;
            if number(&ran.counts, "kept")? != 0 || number(&ran.counts, "files")? != 0 {
                return Err(format!("with {options:?}: {}", ran.counts));
            }
            if !asks && !kept.remembered().is_empty() {
                return Err(format!("with {options:?} something is remembered"));
            }
        }
        Ok(())
    };
    check(false)?;
    let by_environment = kept.run_so(Some(&[]), |command| {
        command.env("RUNAHEAD_REMEMBER", "on");
    })?;
    is_same(&expected.output, &by_environment.output)?;
    if number(&by_environment.counts, "kept")? == 0 {
        return Err(format!("with RUNAHEAD_REMEMBER=on: {}", by_environment.counts));
    }
    check(true)?;
    let forgets = |arguments: &[&str]| {
        let mut command = Command::new(&kept.runahead.command);
        command.arg("forget").args(arguments).env("XDG_CACHE_HOME", kept.cache());
        let output = command.env("PATH", PATH).output();
        output.map(|output| output.status.success()).map_err(|error| error.to_string())
    };
    if !forgets(&["true"])? || kept.remembered().is_empty() {
        return Err("another program's runs were forgotten".to_owned());
    }
    if !forgets(&["python3"])? || !kept.remembered().is_empty() {
        return Err(format!("not forgotten: {:?}", kept.remembered()));
    }
    Ok(())
}

/// Says in how many functions that open files the C library's code in memory differs from its file, and in
/// how many bytes in all.
const LOOKS: &str = "
import ctypes, os, sys
libc = ctypes.CDLL(None)
changed = total = 0
for line in open('/proc/self/maps'):
    words = line.split()
    if 'x' not in words[1] or len(words) < 6 or 'libc.so' not in words[5]:
        continue
    start, end = (int(word, 16) for word in words[0].split('-'))
    with open('/proc/self/mem', 'rb') as memory, open(words[5], 'rb') as file:
        memory.seek(start)
        file.seek(int(words[2], 16))
        here, there = memory.read(end - start), file.read(end - start)
    total += sum(a != b for a, b in zip(here, there))
    for name in ('open64', 'openat64'):
        at = ctypes.cast(getattr(libc, name), ctypes.c_void_p).value - start
        changed += here[at:at + 256] != there[at:at + 256]
print(changed, total)
";

/// Where it is not wanted no call that opens files is led elsewhere, and the folder is neither made nor
/// opened.
fn unwanted() -> Verdict {
    let Some(kept) = Kept::new("unwanted")? else { return Ok(()) };
    let looks = |options: &[&str]| {
        let ran = kept.run_so(Some(options), |command| Kept::script(command, LOOKS))?;
        match ran.output.status.success() {
            true => {
                let said = String::from_utf8_lossy(&ran.output.stdout);
                let mut counts = said.split_whitespace().map(|count| count.parse::<u32>());
                match (counts.next(), counts.next()) {
                    (Some(Ok(changed)), Some(Ok(total))) => Ok((changed, total)),
                    _ => Err(format!("it says {said}")),
                }
            }
            false => Err(String::from_utf8_lossy(&ran.output.stderr).into_owned()),
        }
    };
    let plain = looks(OFF)?;
    if plain.0 != 0 || plain.1 == 0 {
        return Err(format!("a site that opens files was rewritten, or none at all: {plain:?}"));
    }
    kept.run(Some(OFF))?;
    let folder = kept.cache().join("runahead/remembered");
    if folder.exists() {
        return Err("the folder was made".to_owned());
    }
    let remembering = looks(REMEMBER)?;
    if remembering.1 <= plain.1 {
        return Err(format!(
            "the look tells nothing: {plain:?}, and {remembering:?} of a run that remembers"
        ));
    }
    kept.run(Some(REMEMBER))?;
    let opened = Opened::of(&folder)?;
    kept.run(Some(OFF))?;
    if opened.any()? {
        return Err("the folder was opened".to_owned());
    }
    kept.run(Some(REMEMBER))?;
    if opened.any()? { Ok(()) } else { Err("nobody opens it even if asked".to_owned()) }
}

/// Names that are meant are in no file of the cache folder and not asked for, whether a run before was told of
/// them or not.
fn excepted() -> Verdict {
    const EXCEPT: &str = "RUNAHEAD_REMEMBER_EXCEPT";
    let Some(kept) = Kept::new("excepted")? else { return Ok(()) };
    let alone = kept.run(None)?;
    let run = |except: &str| {
        let ran = kept.run_so(Some(REMEMBER), |command| {
            command.env(EXCEPT, except);
        })?;
        is_same(&alone.output, &ran.output)?;
        Ok::<_, String>(ran.counts)
    };
    // Names are written without what they share with the one before, so the file's bytes tell only of what
    // nothing else begins with.
    let meant = |kept: &Kept| {
        for file in all_below(&kept.cache().join("runahead"))? {
            let bytes = fs::read(&file).map_err(|error| error.to_string())?;
            let mut shown = Vec::new();
            if file.extension().is_some() {
                let mut show = Command::new(kept.command_under_test());
                shown = show
                    .args(["profile", "show", "--json"])
                    .arg(&file)
                    .output()
                    .map_err(|error| error.to_string())?
                    .stdout;
                if shown.len() < 1000 {
                    return Err(format!("nothing is shown of {}", file.display()));
                }
            }
            let has =
                |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
            if has(&bytes, "large") || ["/d3/", "/f17", "/large"].iter().any(|text| has(&shown, text)) {
                return Ok(true);
            }
        }
        Ok::<_, String>(false)
    };
    let patterns = format!("{}/d3:f17*:mount/large", kept.mount().display());
    // What nobody is told of is there: the search finds something.
    run("")?;
    run("")?;
    if !meant(&kept)? {
        return Err("nothing of what is meant was remembered before".to_owned());
    }
    for is_new in [false, true] {
        if is_new {
            for file in kept.remembered() {
                fs::remove_file(&file).map_err(|error| error.to_string())?;
            }
        }
        for _ in 0..2 {
            let counts = run(&patterns)?;
            if number(&counts, "kept")? < FILES / 2 || meant(&kept)? {
                return Err(format!(
                    "from nothing {is_new}, and meant names are there {}: {counts}",
                    meant(&kept)?
                ));
            }
        }
    }
    let asked = run(&patterns)?;
    if number(&asked, "files")? < FILES / 2 {
        return Err(format!("of {FILES} files without those that are meant: {asked}"));
    }
    // A recorded profile has none either.
    kept.chill()?;
    let profile = kept.cache().join("runahead/taken.profile");
    let mut record = Command::new(kept.command_under_test());
    record.args(["record", "-o"]).arg(&profile).arg("--").args(kept.words());
    record.env("XDG_CACHE_HOME", kept.cache()).env("PATH", PATH).env(EXCEPT, &patterns).stdin(Stdio::null());
    let recorded = record.output().map_err(|error| error.to_string())?;
    is_same(&alone.output, &recorded)?;
    if fs::metadata(&profile).map_or(0, |found| found.len()) < 5000 || meant(&kept)? {
        return Err("the profile is not as it should be".to_owned());
    }
    // Nor is what another profile has of them asked for.
    let all = kept.folder.join("all.profile");
    let file = all.to_string_lossy().into_owned();
    kept.chill()?;
    let mut record = Command::new(kept.command_under_test());
    record.args(["record", "-o"]).arg(&all).arg("--").args(kept.words());
    record.env("XDG_CACHE_HOME", kept.cache()).env("PATH", PATH).stdin(Stdio::null());
    is_same(&alone.output, &record.output().map_err(|error| error.to_string())?)?;
    for (except, least, most) in [("", FILES / 2, u64::MAX), ("*", 0, 0)] {
        let ran = kept.run_so(Some(&["--profile", &file]), |command| {
            command.env(EXCEPT, except);
        })?;
        is_same(&alone.output, &ran.output)?;
        let asked = number(&ran.counts, "files")?;
        if asked < least || asked > most {
            return Err(format!("with a profile, but for {except:?}, {asked} are asked for"));
        }
    }
    // A command that is meant itself.
    for file in kept.remembered() {
        fs::remove_file(&file).map_err(|error| error.to_string())?;
    }
    let counts = run("python3*")?;
    match (number(&counts, "kept")?, kept.remembered().is_empty(), counts["left_because"].is_null()) {
        (0, true, false) => Ok(()),
        _ => Err(format!("of a command that is meant: {counts}, {:?}", kept.remembered())),
    }
}

/// Where the host may open no more files than are open, it can neither look at a process nor at what that has
/// opened; the program does not wait for that at its end.
fn few_descriptors() -> Verdict {
    const RUNS: usize = 8;
    const ROUNDS: usize = 3;
    /// Less than an agent waits for who does not answer, more than all else takes.
    const LONGEST: Duration = Duration::from_millis(180);
    let Some(kept) = Kept::new("few")? else { return Ok(()) };
    let files: Vec<String> = (0..40).map(Kept::path).collect();
    let ran = |under: bool, most: u32| {
        kept.chill()?;
        let before = if under { format!("'{}' run --", kept.command_under_test()) } else { String::new() };
        let line = format!("ulimit -n {most} && exec {before} md5sum {}", files.join(" "));
        let mut command = Command::new("sh");
        command.args(["-c", &line]).current_dir(kept.mount()).stdin(Stdio::null()).env("PATH", PATH);
        command.env("XDG_CACHE_HOME", kept.cache()).env_remove("RUNAHEAD_REMEMBER");
        let began = Instant::now();
        let output = command.output().map_err(|error| error.to_string())?;
        Ok::<_, String>((output, began.elapsed()))
    };
    let alone = [ran(false, 9)?, ran(false, 9)?];
    let quickest = alone[0].1.min(alone[1].1);
    // A loaded machine may keep all of it.
    let mut seen = Vec::new();
    for most in [7, 9] {
        let (mut late, mut rounds) = (RUNS, 0);
        while late > RUNS / 2 {
            if rounds == ROUNDS {
                return Err(format!("with {most} descriptors, alone {quickest:?}: {seen:?}"));
            }
            (late, rounds) = (0, rounds + 1);
            for _ in 0..RUNS {
                let (output, took) = ran(true, most)?;
                is_same(&alone[0].0, &output)?;
                late += usize::from(took > quickest + LONGEST);
                seen.push(took);
            }
        }
    }
    Ok(())
}

/// All files below a folder.
fn all_below(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in
            fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?.flatten()
        {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    Ok(files)
}

/// The program is cached and its files are not: what it opens until it has waited is not seen.
fn unasked() -> Verdict {
    let Some(kept) = Kept::new("unasked")? else { return Ok(()) };
    let alone = kept.run(None)?;
    let first = kept.run(Some(USUAL))?;
    is_same(&alone.output, &first.output)?;
    if number(&first.counts, "files")? != 0 || number(&first.counts, "kept")? < FILES / 2 {
        return Err(format!("of the first run: {}", first.counts));
    }
    for _ in 0..2 {
        let next = kept.run(Some(USUAL))?;
        is_same(&alone.output, &next.output)?;
        let (files, used) = (number(&next.counts, "files")?, number(&next.counts, "used")?);
        if files < FILES / 2 || used < FILES / 2 {
            return Err(format!("of the next run: {}", next.counts));
        }
    }
    // Nothing of it is cold any more, and nobody asks.
    let mut warm = kept.command(Some(USUAL));
    let output = warm.output().map_err(|error| error.to_string())?;
    is_same(&alone.output, &output)
}

/// What is remembered is itself not in the cache: then it is asked for before the program has waited for
/// anything.
fn cold_memory() -> Verdict {
    const OPENS: &str = "
import os, sys, time
if 'IDLE' in os.environ:
    time.sleep(0.5)
else:
    for number in range(100):
        open(f'{sys.argv[1]}/d{number % 10}/f{number}', 'rb').read()
";
    let Some(kept) = Kept::new("cold-memory")? else { return Ok(()) };
    let run = |options: &[&str], idle: &[(&str, &str)]| {
        let so = |command: &mut Command| {
            Kept::script(command, OPENS);
            command.envs(idle.iter().copied());
        };
        kept.run_so(Some(options), so)
    };
    // What the first run was too calm to see the second has.
    run(REMEMBER, &[])?;
    let kept_names = number(&run(REMEMBER, &[])?.counts, "kept")?;
    for is_cold in [true, false] {
        let memories = kept.remembered();
        let [memory] = &memories[..] else { return Err(format!("{memories:?}, of {kept_names} names")) };
        evict(memory, is_cold)?;
        let ran = run(USUAL, &[("IDLE", "1")])?;
        let files = number(&ran.counts, "files")?;
        if (is_cold && files < 50) || (!is_cold && files != 0) {
            return Err(format!("remembered in the cache: {}, {}", !is_cold, ran.counts));
        }
    }
    Ok(())
}

/// Drops a file from the kernel's cache, or reads it.
fn evict(file: &Path, is_cold: bool) -> Verdict {
    let act = || -> std::io::Result<()> {
        let file = fs::File::open(file)?;
        file.sync_all()?;
        if is_cold {
            nix::fcntl::posix_fadvise(&file, 0, 0, nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        } else {
            std::io::copy(&mut &file, &mut std::io::sink())?;
        }
        Ok(())
    };
    act().map_err(|error| format!("{}: {error}", file.display()))
}

/// Whether anybody opens what is in a folder.
struct Opened(nix::sys::inotify::Inotify);

impl Opened {
    fn of(folder: &Path) -> Result<Opened, String> {
        use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
        let watch = || -> nix::Result<Inotify> {
            let watch = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
            watch.add_watch(folder, AddWatchFlags::IN_OPEN | AddWatchFlags::IN_ACCESS)?;
            Ok(watch)
        };
        watch().map(Opened).map_err(|error| format!("{}: {error}", folder.display()))
    }

    /// Since the last time.
    fn any(&self) -> Result<bool, String> {
        match self.0.read_events() {
            Ok(events) => Ok(!events.is_empty()),
            Err(nix::errno::Errno::EAGAIN) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn many() -> Verdict {
    let Some(kept) = Kept::new("many")? else { return Ok(()) };
    let expected = kept.run(None)?;
    for _ in 0..2 {
        kept.chill()?;
        let spawn = |_| {
            let mut command = kept.command(Some(REMEMBER));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|error| error.to_string())
        };
        let children: Vec<Child> = (0..20).map(spawn).collect::<Result<_, _>>()?;
        for child in children {
            let output = child.wait_with_output().map_err(|error| error.to_string())?;
            is_same(&expected.output, &output)?;
        }
    }
    let ran = kept.run(Some(REMEMBER))?;
    is_same(&expected.output, &ran.output)?;
    if number(&ran.counts, "files")? < FILES / 2 || kept.remembered().len() != 1 {
        return Err(format!("{} {:?}", ran.counts, kept.remembered()));
    }
    Ok(())
}

fn bears_nobody(how: &'static str) -> Verdict {
    let Some(kept) = Kept::new(how)? else { return Ok(()) };
    let plain = |command: &mut Command| Kept::script(command, BEARS_NOBODY);
    let first = kept.run_so(Some(REMEMBER), plain)?;
    // A loaded machine may leave no time for all of them.
    if number(&first.counts, "kept")? < FILES / 4 {
        return Err(format!("of the first run: {}", first.counts));
    }
    let told = |command: &mut Command| {
        plain(command);
        command.env("HOW", how);
    };
    let alone = kept.run_so(None, told)?;
    if !alone.output.status.success() {
        return Err(format!("alone: {}", String::from_utf8_lossy(&alone.output.stderr)));
    }
    let (mut asked, mut last) = (0, Value::Null);
    for _ in 0..6 {
        let under = kept.run_so(Some(REMEMBER), told)?;
        is_same(&alone.output, &under.output)?;
        asked += number(&under.counts, "files")?;
        last = under.counts;
    }
    // Until the program says so, some were asked for.
    if asked == 0 { Err(format!("nothing was asked for: {last}")) } else { Ok(()) }
}

/// As a script does that mounts, runs and unmounts: at the first try, each time.
fn unmounted() -> Verdict {
    let Some(kept) = Kept::new("unmounted")? else { return Ok(()) };
    (0..6).try_for_each(|round| {
        runs_and_unmounts(&kept, |_| ()).map_err(|why| format!("in round {round}: {why}"))
    })
}

/// What earlier runs wanted is being asked for, of a disk that is slow at that, and the command is over.
/// `forgets`: its code is looked at meanwhile.
fn ends_at_once(name: &'static str, forgets: bool) -> Verdict {
    let Some(kept) = Kept::on("disk1", name)? else { return Ok(()) };
    kept.same(2)?;
    let [file] = &kept.remembered()[..] else { return Err(format!("{:?}", kept.remembered())) };
    let all = fs::read(file).map_err(|error| error.to_string())?;
    (0..6).try_for_each(|round| {
        // A run that ends at once wants little, and that is remembered in its place.
        fs::write(file, &all).map_err(|error| error.to_string())?;
        if forgets {
            let sites = kept.cache().join("runahead/sites");
            fs::remove_file(&sites).map_err(|error| format!("{}: {error}", sites.display()))?;
        }
        runs_and_unmounts(&kept, |command| {
            command.env("QUICK", "1");
        })
        .map_err(|why| format!("in round {round}: {why}"))
    })
}

/// Reads the files, or unmounts their disk by a program that has no agent (one that gets rights from its file
/// has none either).
const UNMOUNTS: &str = "
import os, subprocess, sys, time
folder = sys.argv[1]
if os.environ.get('UNMOUNT'):
    time.sleep(0.2)
    sys.exit(subprocess.run(['umount', folder], env={**os.environ, 'RUNAHEAD': 'off'}).returncode)
for number in range(int(sys.argv[2])):
    open(f'{folder}/d{number % 10}/f{number}', 'rb').read()
";

fn unmounted_unseen() -> Verdict {
    let Some(kept) = Kept::on("disk1", "unseen")? else { return Ok(()) };
    for _ in 0..2 {
        kept.run_so(Some(REMEMBER), |command| Kept::script(command, UNMOUNTS))?;
    }
    let [file] = &kept.remembered()[..] else { return Err(format!("{:?}", kept.remembered())) };
    let all = fs::read(file).map_err(|error| error.to_string())?;
    (0..6).try_for_each(|round| {
        // What such a run wanted is remembered in its place.
        fs::write(file, &all).map_err(|error| error.to_string())?;
        kept.chill()?;
        let mut inner = kept.command(Some(REMEMBER));
        Kept::script(&mut inner, UNMOUNTS);
        let mut outer = Command::new("unshare");
        outer.args(["--mount", "--propagation", "private"]).arg(inner.get_program()).args(inner.get_args());
        outer.env("XDG_CACHE_HOME", kept.cache()).env("PATH", PATH).env("UNMOUNT", "1");
        let output = outer.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("in round {round}: {}", String::from_utf8_lossy(&output.stderr))),
        }
    })
}

/// Starts a process for each of the first sixty files.
const SHORT_ONES: &str = "
import os, subprocess, sys
os.chdir(sys.argv[1])
for number in range(60):
    subprocess.run(['cksum', f'd{number % 10}/f{number}'], check=True)
";

/// Each process has one file, and waits for no other.
fn short() -> Verdict {
    const SHORT: u64 = 60;
    let Some(kept) = Kept::new("short")? else { return Ok(()) };
    let so = |command: &mut Command| Kept::script(command, SHORT_ONES);
    // Some may be gone before the host has looked at them.
    comes_to(&kept, so, "used", SHORT - SHORT / 6)
}

/// In one of some runs there are so many of that.
fn comes_to(kept: &Kept, so: impl Fn(&mut Command), what: &str, least: u64) -> Verdict {
    let alone = kept.run_so(None, &so)?;
    let mut last = Value::Null;
    for _ in 0..5 {
        let under = kept.run_so(Some(REMEMBER), &so)?;
        is_same(&alone.output, &under.output)?;
        last = under.counts;
        if number(&last, what)? >= least {
            return Ok(());
        }
    }
    Err(format!("after some runs: {last}"))
}

/// It executes a program that no loader brings the agent into, before it reads anything.
const STATIC_FIRST: &str = "
import os, subprocess, sys, zlib
os.chdir(sys.argv[1])
subprocess.run([os.environ['STATIC']], check=True)
print(sum(zlib.crc32(open(f'd{number % 10}/f{number}', 'rb').read()) for number in range(int(sys.argv[2]))))
";

fn without_loader() -> Verdict {
    let Some(kept) = Kept::new("without-loader")? else { return Ok(()) };
    let program = kept.folder.join("static");
    let source = kept.folder.join("static.c");
    fs::write(&source, "int main(void) { return 0; }").map_err(|error| error.to_string())?;
    let compiled = Command::new("cc").arg("-static").arg("-o").args([&program, &source]).status();
    if !compiled.is_ok_and(|status| status.success()) {
        return Err("no static program can be made".to_owned());
    }
    let so = |command: &mut Command| {
        Kept::script(command, STATIC_FIRST);
        command.env("STATIC", &program);
    };
    comes_to(&kept, so, "files", FILES / 2)
}

/// It waits, and then looks for files that are not there, each of another name, no faster than the host hears.
const IDLE: &str = "
import os, sys, time
os.chdir(sys.argv[1])
for number in range(50):
    open(f'd{number % 10}/f{number}', 'rb').read()
for number in range(8000):
    try:
        open(f'nothing{number}')
    except OSError:
        pass
    if number % 50 == 0:
        time.sleep(0.005)
";

fn idle() -> Verdict {
    let Some(kept) = Kept::new("idle")? else { return Ok(()) };
    let so = |command: &mut Command| Kept::script(command, IDLE);
    let alone = kept.run_so(None, so)?;
    let under = kept.run_so(Some(REMEMBER), so)?;
    is_same(&alone.output, &under.output)?;
    let names = number(&under.counts, "kept")?;
    // Those that were on their way when it was seen are told of as well.
    if !(FILES / 8..4000).contains(&names) {
        return Err(format!("it keeps {names} names: {}", under.counts));
    }
    Ok(())
}

/// A shell starts the parts of a pipe at the same time, and the host looks at one after the other.
const PIPES: &str = "
import os, subprocess, sys
os.chdir(sys.argv[1])
def some(first):
    for number in range(first, first + 50):
        open(f'd{number % 10}/f{number}', 'rb').read()
some(0)
for _ in range(10):
    subprocess.run('true | cat | sort | head -1 | wc -l | tr 0 1 | uniq | cut -c 1', shell=True, check=True)
some(50)
";

fn pipes() -> Verdict {
    let Some(kept) = Kept::new("pipes")? else { return Ok(()) };
    let so = |command: &mut Command| Kept::script(command, PIPES);
    let alone = kept.run_so(None, so)?;
    for _ in 0..3 {
        let under = kept.run_so(Some(REMEMBER), so)?;
        is_same(&alone.output, &under.output)?;
        if number(&under.counts, "kept")? < 50 {
            return Err(format!("some part of a pipe bore nobody: {}", under.counts));
        }
    }
    Ok(())
}

/// Eight threads open files of their own all the time; two are still there at the end.
const THREADS: &str = "
import os, sys, threading, time, zlib
os.chdir(sys.argv[1])
open('large', 'rb').read(1)
def some(number):
    found = 0
    for name in range(number, int(sys.argv[2]), 8):
        handle = os.open(f'd{name % 10}/f{name}', os.O_RDONLY)
        found = zlib.crc32(os.read(handle, 10000), found)
        os.close(handle)
    sums[number] = found
sums = [0] * 8
all = [threading.Thread(target=some, args=(number,)) for number in range(8)]
for one in all:
    one.start()
for one in all:
    one.join()
for number in range(2):
    threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
print(sums)
";

fn threads() -> Verdict {
    let Some(kept) = Kept::new("threads")? else { return Ok(()) };
    let so = |command: &mut Command| Kept::script(command, THREADS);
    let alone = kept.run_so(None, so)?;
    let (mut kept_names, mut last) = (Vec::new(), String::new());
    // The first to wait are not seen by the others at once, and a loaded machine may keep the host from it.
    for run in 1..=6 {
        let under = kept.run_so(Some(REMEMBER), so)?;
        is_same(&alone.output, &under.output)?;
        let names = number(&under.counts, "kept")?;
        kept_names.push((names, number(&under.counts, "wait_ns")?));
        last = under.counts.to_string();
        if run >= 3 && names >= FILES {
            break;
        }
    }
    if kept_names.last().is_none_or(|(names, _)| *names < FILES) {
        return Err(format!("of {FILES} names and more: {kept_names:?}, {last}"));
    }
    // Its other threads run on meanwhile. (Once of three: a loaded machine may keep the host from it.)
    match kept_names.iter().any(|(_, wait_ns)| *wait_ns < 8_000_000) {
        true => Ok(()),
        false => Err(format!("the exit waited {kept_names:?}")),
    }
}

/// Stops the host, says which it was and when, and ends.
const STOPS: &str = "
import os, signal, sys, time
os.chdir(sys.argv[1])
found = sum(len(open(f'd{number % 10}/f{number}', 'rb').read()) for number in range(int(sys.argv[2])))
session = os.environ.get('RUNAHEAD_SESSION')
host = int(session.split(':')[0]) if session else 0
if host:
    os.kill(host, signal.SIGSTOP)
print(host, time.clock_gettime_ns(time.CLOCK_MONOTONIC), flush=True)
";

fn stopped() -> Verdict {
    let Some(kept) = Kept::new("stopped")? else { return Ok(()) };
    let mut all = Vec::new();
    for _ in 0..4 {
        kept.chill()?;
        let mut command = kept.command(Some(REMEMBER));
        Kept::script(&mut command, STOPS);
        let output = command.output().map_err(|error| error.to_string())?;
        let end = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
        let end = Duration::from(end.map_err(|error| error.to_string())?);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut words = said.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        let (Some(host @ 1..), Some(began)) = (words.next(), words.next()) else {
            return Err(format!("it says {said:?}, {}", String::from_utf8_lossy(&output.stderr)));
        };
        let host = nix::unistd::Pid::from_raw(host as i32);
        let ended = nix::sys::signal::kill(host, nix::sys::signal::Signal::SIGKILL);
        ended.map_err(|error| format!("the host: {error}"))?;
        all.push(end.saturating_sub(Duration::from_nanos(began)));
    }
    // A loaded machine may take longer, but not each time.
    match all.iter().min() {
        Some(best) if *best < Duration::from_millis(400) => Ok(()),
        _ => Err(format!("from the stop to the end it took {all:?}")),
    }
}

/// Waits for nothing that an agent sees, and says whether a host has come all the same.
const LOADED: &str = r#"
host=${RUNAHEAD_SESSION%%:*}
for n in $(seq 100); do
  case $(readlink "/proc/$host/exe") in */runahead-host) echo "a host has come"; exit;; esac
  sleep 0.01 < /dev/null
done
echo "none has come"
"#;

fn loads() -> Verdict {
    let Some(kept) = Kept::new("loads")? else { return Ok(()) };
    let shell = kept.mount().join("bash");
    kept.change(|_| fs::copy("/bin/bash", &shell).map(drop))?;
    let run = || {
        let mut command = Command::new(kept.command_under_test());
        command.args(["run", "--"]).arg(&shell).args(["-c", LOADED]);
        command.env("XDG_CACHE_HOME", kept.cache()).env("PATH", PATH).stdin(Stdio::null());
        command.env_remove("RUNAHEAD_REMEMBER");
        let output = command.output().map_err(|error| error.to_string())?;
        Ok::<_, String>(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // The first time its code may have to be analysed, by the host.
    run()?;
    let mut said = Vec::new();
    // A loaded machine may have read the shell before it is executed.
    for _ in 0..3 {
        kept.chill()?;
        said.push(run()?);
    }
    match said.iter().any(|said| said == "a host has come") {
        true => Ok(()),
        false => Err(format!("cold: {said:?}")),
    }
}

fn masked() -> Verdict {
    let Some(kept) = Kept::new("masked")? else { return Ok(()) };
    let expected = kept.run(None)?;
    let mut last = Value::Null;
    for _ in 0..2 {
        let ran = kept.run_so(Some(REMEMBER), |command| {
            let mut outer = Command::new("sh");
            outer.args(["-c", "umask 777; exec \"$@\"", "sh"]).arg(command.get_program());
            outer.args(command.get_args()).stdin(Stdio::null());
            outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            *command = outer;
        })?;
        is_same(&expected.output, &ran.output)?;
        last = ran.counts;
    }
    let own = kept.cache().join("runahead");
    let places = [own.join("sites"), own.join("remembered"), own].into_iter().chain(kept.remembered());
    for place in places {
        let there = fs::metadata(&place).map_err(|error| format!("{}: {error}", place.display()))?;
        let expected = if there.is_dir() { 0o700 } else { 0o600 };
        let mode = there.permissions().mode() & 0o7777;
        if mode != expected {
            return Err(format!("{} has mode {mode:o}", place.display()));
        }
    }
    match number(&last, "files")? {
        0 => Err(format!("of the next run: {last}")),
        _ => Ok(()),
    }
}

fn runs_and_unmounts(kept: &Kept, so: impl FnOnce(&mut Command)) -> Verdict {
    kept.chill()?;
    let mount = kept.mount();
    let script = "\"$@\" && exec umount \"$MOUNT\"";
    let inner = kept.command(Some(REMEMBER));
    // In a mount namespace of its own, where no other test's child has it open.
    let mut outer = Command::new("unshare");
    outer.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
    outer.arg(inner.get_program()).args(inner.get_args());
    outer.env("XDG_CACHE_HOME", kept.cache()).env("PATH", PATH).env("MOUNT", &mount).stdin(Stdio::null());
    so(&mut outer);
    let output = outer.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
