//! How far a long run is, on the terminal (`--progress`): a few words at the right end of the line
//! where the cursor is.
//!
//! The terminal is the program's. So the host writes to it rarely, and only if by all that can be
//! known it disturbs nothing:
//!
//! - the command is in the foreground of this very terminal;
//! - the terminal works by lines and echoes, as it did when the command was started. Editors,
//!   pagers, and who asks for a password change that;
//! - nobody has written to it for some seconds. The kernel tells by the time of the terminal's
//!   file, which it sets once in each eight seconds ([`BLOCK`]), so this is looked at, and written,
//!   at the end of such a block.
//!
//! The cursor stays where it is, so what the program writes next stands where it would have stood,
//! and a program's line without an end stays whole. Once the cursor has gone on the words cannot be
//! taken away any more; so where the program's output goes to this terminal they stand there for
//! two seconds of each block only. Writing never waits: the terminal is opened anew, as O_NONBLOCK
//! on the descriptor that we were started with would be the program's too. The host has no
//! controlling terminal, so no signal comes of it (SIGTTOU).

use runahead_abi::names::device_number;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::termios::{InputModes, LocalModes, OutputModes, tcgetattr, tcgetwinsize};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Runs shorter than this show nothing.
const LONG: Duration = Duration::from_secs(5);

/// Seconds within which the kernel sets the time of a terminal's file only once
/// (`tty_update_time`).
const BLOCK: u64 = 8;

/// In which second of a block the words come: the last one, or where they are to go with its end,
/// the one before.
const LAST_SECOND: u64 = BLOCK - 1;
const SHORT_FROM: u64 = BLOCK - 2;

/// Columns that are left free beside the words, at least.
const FREE: usize = 20;

/// How long the end of a run waits at most for a terminal that is busy.
const LAST_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Begins; None: standard error is no terminal, or none that shows such words. Only who wants it
/// has the code for it, as with a trace.
pub type SayHowFar = fn() -> Option<Box<dyn Shown>>;

/// Words on the terminal.
pub trait Shown {
    /// The terminal's.
    fn descriptor(&self) -> RawFd;
    /// Says how far it is, if it is time and nobody is disturbed. `main`: the command's process.
    /// False: the terminal is gone.
    fn look(&mut self, main: u32, so_far: &dyn Fn() -> SoFar) -> bool;
    /// The command is over.
    fn end(self: Box<Self>, main: u32);
}

pub fn begin() -> Option<Box<dyn Shown>> {
    Some(Box::new(Progress::begin()?))
}

struct Progress {
    terminal: OwnedFd,
    device: u64,
    began: Instant,
    modes: Modes,
    /// The program's output goes here.
    is_shared: bool,
    /// The block in which something was last written or it was decided not to.
    block: u64,
    /// Where the words begin that stand there, and the block in which they were written.
    shown: Option<(usize, u64)>,
}

/// What is gained and what is not, so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoFar {
    pub read_bytes: u64,
    pub waited_ns: u64,
    pub gained_ns: u64,
}

type Modes = (InputModes, OutputModes, LocalModes);

impl Progress {
    fn begin() -> Option<Progress> {
        let stderr = std::io::stderr();
        let modes = modes(&stderr)?;
        let is_dumb = |term: &OsStr| term.is_empty() || term == "dumb";
        if std::env::var_os("TERM").is_none_or(|term| is_dumb(&term)) || !works_by_lines(modes) {
            return None;
        }
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = open("/proc/self/fd/2", flags, Mode::empty()).ok()?;
        let (ours, given) = (fstat(&terminal).ok()?, fstat(&stderr).ok()?);
        let is_same = (ours.st_rdev, ours.st_ino) == (given.st_rdev, given.st_ino);
        let device = device_number(rustix::fs::major(ours.st_rdev), rustix::fs::minor(ours.st_rdev));
        let is_shared = fstat(std::io::stdout())
            .is_ok_and(|out| out.st_rdev == ours.st_rdev && out.st_ino == ours.st_ino);
        let began = Instant::now();
        is_same.then_some(Progress { terminal, device, began, modes, is_shared, block: 0, shown: None })
    }
}

impl Shown for Progress {
    fn descriptor(&self) -> RawFd {
        self.terminal.as_raw_fd()
    }

    fn look(&mut self, main: u32, so_far: &dyn Fn() -> SoFar) -> bool {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let block = second / BLOCK;
        if self.is_shared && self.shown.is_some_and(|(_, before)| before < block) {
            self.take_away(main);
        }
        let is_time = second % BLOCK >= if self.is_shared { SHORT_FROM } else { LAST_SECOND };
        if self.began.elapsed() < LONG || !is_time || block == self.block {
            return true;
        }
        self.block = block;
        let Some(modes) = modes(&self.terminal) else { return false };
        if modes != self.modes || !self.is_in_foreground(main) || self.written_in() >= block {
            return true;
        }
        let words = words(self.began.elapsed(), &so_far());
        let columns = tcgetwinsize(&self.terminal).map_or(0, |size| size.ws_col as usize);
        // The last column is left free: some terminals begin a new line there.
        let Some(column) = columns.checked_sub(words.len()).filter(|&column| column >= FREE) else {
            return true;
        };
        let before = self.shown.map_or(column, |(before, _)| before.min(column));
        if self.write(&format!("\x1b7\x1b[{before}G\x1b[K\x1b[{column}G{words}\x1b8")) {
            self.shown = Some((column, block));
        }
        true
    }

    fn end(mut self: Box<Self>, main: u32) {
        if self.shown.is_some() {
            let _ = poll(&mut [PollFd::new(&self.terminal, PollFlags::OUT)], Some(&LAST_WAIT));
        }
        self.take_away(main);
    }
}

impl Progress {
    /// The words go, if they are where they were by all that is known.
    fn take_away(&mut self, main: u32) {
        let Some((column, block)) = self.shown.take() else { return };
        // (Who has ended is in the foreground still, while nobody has waited for him.)
        if modes(&self.terminal) == Some(self.modes)
            && self.is_in_foreground(main)
            && self.written_in() <= block
        {
            self.write(&format!("\x1b7\x1b[{column}G\x1b[K\x1b8"));
        }
    }

    /// The latest block in which something was written to the terminal, as far as its file tells.
    fn written_in(&self) -> u64 {
        fstat(&self.terminal).map_or(u64::MAX, |stat| stat.st_mtime as u64 / BLOCK)
    }

    fn is_in_foreground(&self, process: u32) -> bool {
        let line = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        is_in_foreground(&line, self.device)
    }

    /// Writes all of `text`, or nothing if there is no room for it at present.
    fn write(&self, text: &str) -> bool {
        let mut ready = [PollFd::new(&self.terminal, PollFlags::OUT)];
        let is_ready = poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
            && ready[0].revents() == PollFlags::OUT;
        if !is_ready {
            return false;
        }
        let mut rest = text.as_bytes();
        let until = Instant::now() + Duration::from_millis(20);
        while !rest.is_empty() && Instant::now() < until {
            match rustix::io::write(&self.terminal, rest) {
                Ok(written) => rest = &rest[written..],
                // Half of an escape sequence would swallow what the program writes next: a moment
                // more.
                Err(Errno::AGAIN | Errno::INTR) if rest.len() < text.len() => {
                    let _ = poll(&mut [PollFd::new(&self.terminal, PollFlags::OUT)], Some(&LAST_WAIT));
                }
                Err(_) => return false,
            }
        }
        true
    }
}

fn modes(terminal: impl AsFd) -> Option<Modes> {
    let modes = tcgetattr(terminal).ok()?;
    Some((modes.input_modes, modes.output_modes, modes.local_modes))
}

fn works_by_lines((_, output, local): Modes) -> bool {
    local.contains(LocalModes::ICANON | LocalModes::ECHO) && output.contains(OutputModes::OPOST)
}

/// Whether the process of which /proc/PID/stat says `line` is in the foreground of the terminal
/// `device`.
fn is_in_foreground(line: &str, device: u64) -> bool {
    // Behind its name, which may hold anything: state, parent, group, session, terminal, the
    // terminal's group.
    let fields = line.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let mut fields = fields.split_whitespace().skip(2).map(|field| field.parse::<i64>().ok());
    let (group, terminal, foreground) =
        (fields.next().flatten(), fields.nth(1).flatten(), fields.next().flatten());
    group.is_some() && group == foreground && terminal.map(|number| number as u32) == Some(device as u32)
}

fn words(elapsed: Duration, so_far: &SoFar) -> String {
    let seconds = |ns: u64| match ns as f64 / 1e9 {
        seconds if seconds < 10.0 => format!("{seconds:.1} s"),
        seconds => format!("{seconds:.0} s"),
    };
    let SoFar { read_bytes, waited_ns, gained_ns } = *so_far;
    let elapsed = seconds(elapsed.as_nanos() as u64);
    match read_bytes {
        0 => format!("runahead: {elapsed}, nothing has waited for a file"),
        _ => format!(
            "runahead: {elapsed}, {} read, waited {}, gained {}",
            bytes(read_bytes),
            seconds(waited_ns),
            seconds(gained_ns)
        ),
    }
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_group_has_the_terminal_is_in_the_foreground() {
        // The first pseudo-terminal is 136:0.
        let terminal = device_number(136, 0);
        let line = |group: i32, device: i64, foreground: i32| {
            format!("7 (a) S 1) S 6 {group} 5 {device} {foreground} 4194304 1 0 0 0\n")
        };
        assert!(is_in_foreground(&line(7, 34816, 7), terminal));
        assert!(!is_in_foreground(&line(7, 34816, 9), terminal), "in the background");
        assert!(!is_in_foreground(&line(7, 34817, 7), terminal), "of another terminal");
        assert!(!is_in_foreground(&line(7, 0, -1), terminal), "of none");
        assert!(!is_in_foreground("", terminal));
    }

    #[test]
    fn the_words_are_short() {
        let so_far =
            SoFar { read_bytes: u64::MAX >> 16, waited_ns: 3_140_000_000, gained_ns: 92_000_000_000 };
        let told = words(Duration::from_secs(7_200), &so_far);
        assert_eq!(told, "runahead: 7200 s, 281474.98 GB read, waited 3.1 s, gained 92 s");
        assert!(told.len() < 70);
        let nothing = words(Duration::from_secs(6), &SoFar::default());
        assert_eq!(nothing, "runahead: 6.0 s, nothing has waited for a file");
    }
}
