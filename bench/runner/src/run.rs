//! One run of one command, measured.
//!
//! Time is from just before the start to the end of the process that was started. Its output goes
//! through pipes that are always drained, is compared on the way with the first run's, which lies in a
//! file in memory, and takes part in the verdict byte by byte, as do the exit status and the files that it
//! wrote.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::group::Group;

/// What to start, and how.
pub struct Start<'a> {
    pub command: &'a [OsString],
    pub directory: &'a Path,
    /// What the command writes is here; it is empty before the run.
    pub scratch: &'a Path,
    /// On the first processor only.
    pub one_core: bool,
    /// Holds the first run's outputs. The first run with an empty one fills it.
    pub reference: &'a Path,
    /// Requests and bytes read at the device so far, where it counts them.
    pub device: &'a dyn Fn() -> Option<(u64, u64)>,
    /// Of the run's control group.
    pub owner: &'a str,
    /// A run that takes longer is ended, and counts as different.
    pub patience: Duration,
}

/// What was measured. Times in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub wall: f64,
    /// Processor time of the processes that were waited for (rusage).
    pub user: f64,
    pub system: f64,
    /// Of every process of the run (its control group).
    pub group_processor: Option<f64>,
    /// Of the whole machine meanwhile, other users included (/proc/stat, in steps of 10 ms).
    pub machine_processor: f64,
    /// At the device: requests and bytes.
    pub device_reads: Option<u64>,
    pub device_read_bytes: Option<u64>,
    pub major_faults: i64,
    /// Exit code, or 128 + the signal.
    pub exit: i32,
    pub output_bytes: u64,
    /// Standard output, standard error, exit status and written files are those of the first run.
    pub same: bool,
    /// Where they differ, in words.
    pub difference: Option<String>,
    /// Processes of the run that were still there a second after its end.
    pub left_behind: bool,
}

/// How long the processes of a run may outlive it before that is noted.
const LEAVING: Duration = Duration::from_secs(1);

/// Runs it. An error means that it could not be started or measured; a command that fails is a result.
pub fn run(start: &Start) -> Result<Measured> {
    let group = Group::new(start.owner);
    let (program, arguments) = start.command.split_first().context("an empty command")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(start.directory)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (entrance, one_core) = (group.as_ref().map(Group::entrance), start.one_core);
    // SAFETY: between fork and exec only write and sched_setaffinity are called, both of them
    // async-signal-safe, on values that were ready before the fork.
    unsafe {
        command.pre_exec(move || {
            if let Some(entrance) = entrance {
                libc::write(entrance, b"0".as_ptr().cast(), 1);
            }
            if one_core {
                let mut first: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(0, &mut first);
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &first);
            }
            Ok(())
        });
    }
    let reference = Reference::open(start.reference)?;
    let device_before = (start.device)();
    let machine_before = machine_processor()?;
    let begin = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {}", program.to_string_lossy()))?;
    let id = child.id() as libc::pid_t;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let ended = std::thread::scope(|scope| {
        let reading =
            [("stdout", stdout.map(Pipe::Out)), ("stderr", stderr.map(Pipe::Err))].map(|(name, pipe)| {
                let reference = &reference;
                scope.spawn(move || pipe.map_or(Ok(Compared::default()), |pipe| reference.drain(name, pipe)))
            });
        let (ended, end_of_run) = mpsc::channel::<()>();
        let (patience, group_of_run) = (start.patience, group.as_ref());
        let watching = scope.spawn(move || {
            let late = end_of_run.recv_timeout(patience) == Err(RecvTimeoutError::Timeout);
            if late {
                // SAFETY: the child has not been waited for yet, so the id is still its own.
                unsafe { libc::kill(id, libc::SIGKILL) };
                group_of_run.inspect(|group| group.kill());
            }
            late
        });
        let (status, usage) = wait(id)?;
        let wall = begin.elapsed();
        drop(ended);
        let late = watching.join().unwrap_or(false);
        // Whoever is left may hold the pipes, and our reading threads would wait for it.
        let left_behind = group.as_ref().is_some_and(|group| !group.wait_until_empty(LEAVING));
        if left_behind {
            group.as_ref().inspect(|group| group.kill());
        }
        let outputs = reading
            .map(|thread| thread.join().unwrap_or_else(|_| anyhow::bail!("a reading thread panicked")));
        anyhow::Ok(Ended { status, usage, wall, late, left_behind, outputs })
    })?;
    let machine_after = machine_processor()?;
    let device_after = (start.device)();

    let exit = ended.status.code().unwrap_or_else(|| 128 + ended.status.signal().unwrap_or(0));
    let mut difference = ended.late.then(|| format!("ended after {} s", start.patience.as_secs()));
    let mut output_bytes = 0;
    for output in ended.outputs {
        let output = output?;
        output_bytes += output.bytes;
        difference = difference.or(output.difference);
    }
    difference = difference.or(reference.compare_status(exit)?);
    difference = difference.or(reference.compare_files(start.scratch)?);
    reference.complete()?;
    let used = |counts: fn(&(u64, u64)) -> u64| Some(counts(&device_after?) - counts(&device_before?));
    Ok(Measured {
        wall: ended.wall.as_secs_f64(),
        user: seconds(ended.usage.ru_utime),
        system: seconds(ended.usage.ru_stime),
        group_processor: group.as_ref().map(Group::processor_seconds).transpose()?,
        machine_processor: machine_after - machine_before,
        device_reads: used(|counts| counts.0),
        device_read_bytes: used(|counts| counts.1),
        major_faults: ended.usage.ru_majflt,
        exit,
        output_bytes,
        same: difference.is_none(),
        difference,
        left_behind: ended.left_behind,
    })
}

/// What is known when the command has ended.
struct Ended {
    status: ExitStatus,
    usage: libc::rusage,
    wall: Duration,
    late: bool,
    left_behind: bool,
    outputs: [Result<Compared>; 2],
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

fn wait(id: libc::pid_t) -> Result<(ExitStatus, libc::rusage)> {
    let mut status = 0;
    // SAFETY: rusage is plain numbers, of which zero is one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to values of our own; the child is ours and not yet waited for.
        if unsafe { libc::wait4(id, &mut status, 0, &mut usage) } == id {
            return Ok((ExitStatus::from_raw(status), usage));
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error).context("cannot wait for the command");
        }
    }
}

/// Completed reads and bytes read, from a block device's `stat` in sysfs.
pub fn device_counts(stat: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(stat).ok()?;
    let fields: Vec<u64> = text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    // Sectors are 512 bytes here whatever the device's own are.
    Some((*fields.first()?, fields.get(2)? * 512))
}

/// Seconds of processor time that the machine has used since its start, idle and waiting apart.
fn machine_processor() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<f64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, (idle, waiting), interrupts, soft interrupts
    let used = [0, 1, 2, 5, 6].iter().filter_map(|index| fields.get(*index)).sum::<f64>();
    // SAFETY: sysconf has no preconditions.
    Ok(used / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64)
}

enum Pipe {
    Out(std::process::ChildStdout),
    Err(std::process::ChildStderr),
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Pipe::Out(pipe) => pipe.read(buffer),
            Pipe::Err(pipe) => pipe.read(buffer),
        }
    }
}

/// The first run's outputs, a file each.
struct Reference {
    directory: PathBuf,
    /// There is none yet: this run's outputs become it.
    first: bool,
}

#[derive(Default)]
struct Compared {
    bytes: u64,
    difference: Option<String>,
}

impl Reference {
    fn open(directory: &Path) -> Result<Reference> {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(Reference { directory: directory.to_path_buf(), first: !directory.join("complete").exists() })
    }

    fn complete(&self) -> Result<()> {
        fs::write(self.directory.join("complete"), "").context("cannot keep the first run's outputs")
    }

    fn drain(&self, name: &str, mut pipe: Pipe) -> Result<Compared> {
        let descriptor = match &pipe {
            Pipe::Out(pipe) => pipe.as_raw_fd(),
            Pipe::Err(pipe) => pipe.as_raw_fd(),
        };
        // SAFETY: a setting of a descriptor of our own. A megabyte, the most that an ordinary user may
        // have: the command should not wait for us. If refused, 64 KB will do.
        unsafe { libc::fcntl(descriptor, libc::F_SETPIPE_SZ, 1 << 20) };
        let path = self.directory.join(name);
        let mut file = if self.first { File::create(&path)? } else { File::open(&path)? };
        let mut buffer = vec![0; 256 << 10];
        let mut expected = vec![0; buffer.len()];
        let mut compared = Compared::default();
        loop {
            let count = pipe.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            if self.first {
                file.write_all(&buffer[..count])?;
            } else if compared.difference.is_none() {
                let found = read_fully_at(&file, &mut expected[..count], compared.bytes)?;
                if expected[..found] != buffer[..count] {
                    let at = (0..count).find(|index| *index >= found || expected[*index] != buffer[*index]);
                    compared.difference =
                        Some(format!("{name} differs at byte {}", compared.bytes + at.unwrap_or(0) as u64));
                }
            }
            compared.bytes += count as u64;
        }
        let length = file.metadata()?.len();
        if compared.difference.is_none() && compared.bytes != length {
            compared.difference =
                Some(format!("{name} has {} bytes, the first run's {length}", compared.bytes));
        }
        Ok(compared)
    }

    fn compare_status(&self, exit: i32) -> Result<Option<String>> {
        let path = self.directory.join("exit");
        if self.first {
            fs::write(&path, exit.to_string())?;
            return Ok(None);
        }
        let first = fs::read_to_string(&path)?;
        Ok((first != exit.to_string()).then(|| format!("exit status {exit}, the first run's {first}")))
    }

    /// Files in the scratch directory, by name.
    fn compare_files(&self, scratch: &Path) -> Result<Option<String>> {
        let kept = self.directory.join("files");
        fs::create_dir_all(&kept)?;
        let names = |directory: &Path| -> Result<Vec<OsString>> {
            let mut names: Vec<OsString> =
                fs::read_dir(directory)?.flatten().map(|entry| entry.file_name()).collect();
            names.sort();
            Ok(names)
        };
        let written = names(scratch)?;
        if self.first {
            for name in &written {
                fs::copy(scratch.join(name), kept.join(name))?;
            }
            return Ok(None);
        }
        if written != names(&kept)? {
            return Ok(Some("other files were written than in the first run".into()));
        }
        for name in &written {
            if !same_contents(&scratch.join(name), &kept.join(name))? {
                return Ok(Some(format!("the written file {} differs", name.to_string_lossy())));
            }
        }
        Ok(None)
    }
}

fn read_fully_at(file: &File, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64)? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(filled)
}

fn same_contents(one: &Path, other: &Path) -> Result<bool> {
    let (one, other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut first, mut second) = (vec![0; 256 << 10], vec![0; 256 << 10]);
    let mut offset = 0;
    loop {
        let count = read_fully_at(&one, &mut first, offset)?;
        if read_fully_at(&other, &mut second, offset)? != count || first[..count] != second[..count] {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
        offset += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench(PathBuf);

    impl Bench {
        fn new(name: &str) -> Bench {
            let path = std::env::temp_dir().join(format!("runahead-bench-run-{name}-{}", std::process::id()));
            fs::create_dir_all(path.join("scratch")).unwrap();
            Bench(path)
        }

        fn run(&self, script: &str) -> Measured {
            crate::guard::empty(&self.0.join("scratch"));
            let command: Vec<OsString> = vec!["sh".into(), "-c".into(), script.into()];
            run(&Start {
                command: &command,
                directory: &self.0,
                scratch: &self.0.join("scratch"),
                one_core: false,
                reference: &self.0.join("reference"),
                device: &|| None,
                owner: "unit-test",
                patience: Duration::from_secs(5),
            })
            .unwrap()
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn equal_runs_are_the_same_and_times_are_taken() {
        let bench = Bench::new("equal");
        for _ in 0..3 {
            let measured = bench.run("echo out; echo err >&2; echo file > scratch/file; sleep 0.05; exit 3");
            assert!(measured.same, "{:?}", measured.difference);
            assert_eq!((measured.exit, measured.output_bytes), (3, 8));
            assert!((0.05..2.0).contains(&measured.wall), "{}", measured.wall);
            assert!(!measured.left_behind);
        }
    }

    #[test]
    fn each_kind_of_difference_is_seen() {
        let different = [
            ("stdout", "echo other; echo err >&2; echo file > scratch/file"),
            ("stdout has", "printf ou; echo err >&2; echo file > scratch/file"),
            ("stderr", "echo out; echo eRr >&2; echo file > scratch/file"),
            ("exit status", "echo out; echo err >&2; echo file > scratch/file; exit 1"),
            ("written file", "echo out; echo err >&2; echo f1le > scratch/file"),
            ("other files", "echo out; echo err >&2"),
        ];
        for (kind, script) in different {
            let bench = Bench::new("different");
            assert!(bench.run("echo out; echo err >&2; echo file > scratch/file").same);
            let measured = bench.run(script);
            assert!(!measured.same);
            assert!(
                measured.difference.as_ref().unwrap().contains(kind),
                "{kind}: {:?}",
                measured.difference
            );
        }
    }

    #[test]
    fn a_long_output_is_compared_to_its_last_byte() {
        let bench = Bench::new("long");
        assert!(bench.run("yes runahead | head -c 3000000").same);
        assert!(bench.run("yes runahead | head -c 3000000").same);
        let measured = bench.run("yes runahead | head -c 2999999; printf x");
        assert_eq!(measured.difference.unwrap(), "stdout differs at byte 2999999");
    }

    #[test]
    fn a_signal_is_an_exit_status() {
        assert_eq!(Bench::new("signal").run("kill -9 $$").exit, 137);
    }

    #[test]
    fn a_run_without_end_is_ended() {
        let measured = Bench::new("endless").run("sleep 3600");
        assert!(measured.wall < 60.0 && !measured.same, "{measured:?}");
    }

    #[test]
    fn who_outlives_the_run_is_noted_and_ended() {
        if Group::new("unit-test").is_none() {
            eprintln!("SKIPPED: no version 2 control groups for this user");
            return;
        }
        let measured = Bench::new("outlive").run("sleep 60 & echo out");
        assert!(measured.left_behind);
    }
}
