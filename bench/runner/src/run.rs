//! One run of one command, measured.
//!
//! Time is from just before the start to the end of the process that was started. Its output goes
//! through pipes that are always drained, and is compared on the way ([`crate::outputs`]). What else was
//! going on is looked at before and after ([`crate::load`]).

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::group::Group;
use crate::load::{Busy, Look};
use crate::memory::Limit;
use crate::outputs::{Compared, Pipe, Reference};

/// What to start, and how.
pub struct Start<'a> {
    pub command: &'a [OsString],
    pub directory: &'a Path,
    /// What the command writes is here; it is empty before the run.
    pub scratch: &'a Path,
    /// On the first processor only.
    pub one_core: bool,
    /// Megabytes that it may use.
    pub memory_mb: Option<u64>,
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
    /// Page faults that waited for the disk, of the processes that were waited for.
    pub major_faults: i64,
    /// Those that did not.
    #[serde(default)]
    pub minor_faults: i64,
    /// The largest of these processes, in KB.
    #[serde(default)]
    pub most_resident_kb: i64,
    /// Read calls and bytes, from whatever kind of file, of the process that was started.
    #[serde(default)]
    pub read_calls: Option<u64>,
    #[serde(default)]
    pub read_bytes: Option<u64>,
    /// What else the machine did meanwhile.
    #[serde(default)]
    pub busy: Busy,
    /// Exit code, or 128 + the signal.
    pub exit: i32,
    pub output_bytes: u64,
    /// Standard output, standard error, exit status and written files are those of the first run.
    pub same: bool,
    /// Where they differ, in words.
    pub difference: Option<String>,
    /// It was ended when patience was over: it would have taken longer than `wall`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// Processes of the run that were still there a second after its end.
    pub left_behind: bool,
}

/// How long the processes of a run may outlive it before that is noted.
const LEAVING: Duration = Duration::from_secs(1);

/// Runs it. An error means that it could not be started or measured; a command that fails is a result.
pub fn run(start: &Start) -> Result<Measured> {
    let group = Group::new(start.owner);
    let limit = match (start.memory_mb, &group) {
        (None, _) => None,
        (Some(megabytes), Some(group)) => Some(Limit::new(group, megabytes)?),
        (Some(_), None) => bail!("the run's memory cannot be limited without control groups; run as root"),
    };
    let (program, arguments) = start.command.split_first().context("an empty command")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(start.directory)
        .env("LC_ALL", "C.UTF-8")
        // Each run stands for a first one.
        .env("RUNAHEAD_REMEMBER", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let entrances = [group.as_ref().map(Group::entrance), limit.as_ref().and_then(Limit::entrance)];
    let one_core = start.one_core;
    // SAFETY: between fork and exec only write, sched_setaffinity and close_range are called, all of them
    // async-signal-safe, on values that were ready before the fork.
    unsafe {
        command.pre_exec(move || {
            for entrance in entrances.into_iter().flatten() {
                libc::write(entrance, b"0".as_ptr().cast(), 1);
            }
            if one_core {
                let mut first: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(0, &mut first);
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &first);
            }
            // The guard ends the run by its group; it must not wait for it (see Guard).
            slowdisk::system::keep_descriptors()
        });
    }
    let reference = Reference::open(start.reference)?;
    let before = Look::now();
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
        ended_but_not_waited_for(id)?;
        let wall = begin.elapsed();
        let reads = reads(id);
        let (status, usage) = wait(id)?;
        drop(ended);
        let late = watching.join().unwrap_or(false);
        // Whoever is left may hold the pipes, and our reading threads would wait for it.
        let left_behind = group.as_ref().is_some_and(|group| !group.wait_until_empty(LEAVING));
        if left_behind {
            group.as_ref().inspect(|group| group.kill());
        }
        let outputs = reading
            .map(|thread| thread.join().unwrap_or_else(|_| anyhow::bail!("a reading thread panicked")));
        anyhow::Ok(Ended { status, usage, reads, wall, late, left_behind, outputs })
    })?;
    let machine_after = machine_processor()?;
    let device_after = (start.device)();
    let group_processor = group.as_ref().map(Group::processor_seconds).transpose()?;
    let (user, system) = (seconds(ended.usage.ru_utime), seconds(ended.usage.ru_stime));
    let busy = before.since(group_processor.map_or(0.0, |all| all - user - system));

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
        user,
        system,
        group_processor,
        machine_processor: machine_after - machine_before,
        device_reads: used(|counts| counts.0),
        device_read_bytes: used(|counts| counts.1),
        major_faults: ended.usage.ru_majflt,
        minor_faults: ended.usage.ru_minflt,
        most_resident_kb: ended.usage.ru_maxrss,
        read_calls: ended.reads.map(|(calls, _)| calls),
        read_bytes: ended.reads.map(|(_, bytes)| bytes),
        busy,
        exit,
        output_bytes,
        same: difference.is_none(),
        difference,
        late: ended.late,
        left_behind: ended.left_behind,
    })
}

/// What is known when the command has ended.
struct Ended {
    status: ExitStatus,
    usage: libc::rusage,
    reads: Option<(u64, u64)>,
    wall: Duration,
    late: bool,
    left_behind: bool,
    outputs: [Result<Compared>; 2],
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

/// Returns when the child has ended; its remains are still there to be looked at.
fn ended_but_not_waited_for(id: libc::pid_t) -> Result<()> {
    loop {
        // SAFETY: siginfo_t is plain numbers, of which zero is one.
        let mut information: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let flags = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: the result goes to a value of our own; the child is ours and not yet waited for.
        if unsafe { libc::waitid(libc::P_PID, id as libc::id_t, &mut information, flags) } == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error).context("cannot wait for the command");
        }
    }
}

/// Read calls and bytes of a process, its threads included; children are not.
fn reads(id: libc::pid_t) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{id}/io")).ok()?;
    let number = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
    Some((number("syscr:")?, number("rchar:")?))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

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
                memory_mb: None,
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
    fn written_directories_are_compared_at_any_depth() {
        let bench = Bench::new("deep");
        let tree = "mkdir -p scratch/a/b; echo 1 > scratch/a/b/c; ln -s b scratch/a/link";
        assert!(bench.run(tree).same);
        assert!(bench.run(tree).same);
        for (change, kind) in [
            ("echo 2 > scratch/a/b/c", "a/b/c differs"),
            ("ln -sfn c scratch/a/link", "a/link differs"),
            ("rm scratch/a/b/c", "other files"),
            ("rm scratch/a/b/c; mkdir scratch/a/b/c", "a/b/c differs"),
        ] {
            let measured = bench.run(&format!("{tree}; {change}"));
            assert!(measured.difference.as_ref().is_some_and(|said| said.contains(kind)), "{measured:?}");
        }
    }

    #[test]
    fn reads_are_counted() {
        let measured =
            Bench::new("reads").run("exec dd if=/dev/zero of=/dev/null bs=1000 count=300 status=none");
        let (calls, bytes) = (measured.read_calls.unwrap(), measured.read_bytes.unwrap());
        // The loader's own come on top.
        assert!((300..330).contains(&calls) && (300_000..400_000).contains(&bytes), "{calls} {bytes}");
        assert!(measured.most_resident_kb > 500 && measured.minor_faults > 10, "{measured:?}");
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
        assert!(measured.wall < 60.0 && !measured.same && measured.late, "{measured:?}");
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
