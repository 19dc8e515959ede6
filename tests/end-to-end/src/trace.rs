//! What the stepper needs of ptrace(2): stops, steps, memory.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr;

/// A thread that is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracee(pub i32);

/// Why a thread has stopped.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    /// It is no more; the status is waitpid(2)'s.
    Ended { status: i32 },
    /// It is stopped by job control.
    Group,
    /// It is new, or has made a new one.
    New,
    /// A step is done, or it came to a breakpoint.
    Trap,
    /// A signal is to be delivered.
    Signal(i32),
}

/// Traces `thread` and the threads that it makes; its children as well, if `children`.
pub fn seize(thread: Tracee, children: bool) -> Result<(), String> {
    let mut options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
    if children {
        options |= libc::PTRACE_O_TRACEFORK;
    }
    thread.request(libc::PTRACE_SEIZE, options as usize, "seize").map(drop)
}

/// Puts `thread`, and what it makes, on the processor on which we are, and us: a step is a switch from one
/// to the other and back, which is ten times as fast there.
pub fn share_processor(thread: Tracee) -> Result<(), String> {
    // SAFETY: the set is plain data, and ours.
    let failed = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        let length = size_of::<libc::cpu_set_t>();
        libc::sched_setaffinity(0, length, &set) | libc::sched_setaffinity(thread.0, length, &set)
    };
    if failed != 0 { Err(io::Error::last_os_error().to_string()) } else { Ok(()) }
}

extern "C" fn nothing(_: i32) {}

/// Lets an alarm end a [`wait`].
pub fn catch_alarm() {
    // SAFETY: the handler does nothing; without SA_RESTART it interrupts waitpid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        libc::sigaction(libc::SIGALRM, &action, ptr::null_mut());
    }
}

/// The next alarm comes after so many seconds.
pub fn set_alarm(seconds: u32) {
    // SAFETY: takes no pointer.
    unsafe { libc::alarm(seconds) };
}

/// Waits for the next stop of any thread; None if the alarm went off.
pub fn wait() -> Result<Option<(Tracee, Stop)>, String> {
    let mut status = 0;
    // SAFETY: writes the status only.
    let thread = unsafe { libc::waitpid(-1, &mut status, libc::__WALL) };
    if thread < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(None) } else { Err(error.to_string()) };
    }
    let stop = if !libc::WIFSTOPPED(status) {
        Stop::Ended { status }
    } else {
        match (status >> 16, libc::WSTOPSIG(status)) {
            (libc::PTRACE_EVENT_STOP, libc::SIGTRAP) => Stop::New,
            (libc::PTRACE_EVENT_STOP, _) => Stop::Group,
            (0, libc::SIGTRAP) => Stop::Trap,
            (0, number) => Stop::Signal(number),
            _ => Stop::New,
        }
    };
    Ok(Some((Tracee(thread), stop)))
}

impl Tracee {
    fn request(self, request: libc::c_uint, data: usize, what: &str) -> Result<i64, String> {
        // SAFETY: of the requests made here none writes to our memory.
        let got = unsafe { libc::ptrace(request, self.0, 0usize, data) };
        match io::Error::last_os_error() {
            // Ended meanwhile, which waitpid tells next.
            error if got < 0 && error.raw_os_error() == Some(libc::ESRCH) => Ok(0),
            error if got < 0 => Err(format!("{what} {}: {error}", self.0)),
            _ => Ok(got),
        }
    }

    pub fn step(self) -> Result<(), String> {
        self.request(libc::PTRACE_SINGLESTEP, 0, "step").map(drop)
    }

    /// Lets it run on, with a signal (0: none).
    pub fn resume(self, signal: i32) -> Result<(), String> {
        self.request(libc::PTRACE_CONT, signal as usize, "resume").map(drop)
    }

    pub fn listen(self) -> Result<(), String> {
        self.request(libc::PTRACE_LISTEN, 0, "listen").map(drop)
    }

    /// Address of its next instruction.
    pub fn instruction(self) -> Result<u64, String> {
        // SAFETY: `user` is plain data, which the call fills.
        let (got, registers) = unsafe {
            let mut registers: libc::user_regs_struct = std::mem::zeroed();
            let got = libc::ptrace(libc::PTRACE_GETREGS, self.0, 0usize, &raw mut registers);
            (got, registers)
        };
        if got < 0 { Err(format!("registers: {}", io::Error::last_os_error())) } else { Ok(registers.rip) }
    }

    /// Sends it a signal as another thread of its process would.
    pub fn send(self, signal: i32) -> Result<(), String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0));
        let status = status.map_err(|error| error.to_string())?;
        let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")).unwrap_or("");
        let process: i32 = process.trim().parse().map_err(|_| "no Tgid".to_owned())?;
        // SAFETY: sends a signal to a thread of the guest's.
        match unsafe { libc::syscall(libc::SYS_tgkill, process, self.0, signal) } {
            0 => Ok(()),
            _ => Err(format!("tgkill: {}", io::Error::last_os_error())),
        }
    }

    pub fn read(self, at: u64, bytes: &mut [u8]) -> Result<(), String> {
        let memory = OpenOptions::new().read(true).open(format!("/proc/{}/mem", self.0));
        memory
            .and_then(|memory| memory.read_exact_at(bytes, at))
            .map_err(|error| format!("read {at:#x}: {error}"))
    }

    pub fn read_word(self, at: u64) -> Result<u32, String> {
        let mut word = [0; 4];
        self.read(at, &mut word)?;
        Ok(u32::from_ne_bytes(word))
    }

    /// Writes, over what is not writable as well.
    pub fn write(self, at: u64, bytes: &[u8]) -> Result<(), String> {
        let memory = OpenOptions::new().write(true).open(format!("/proc/{}/mem", self.0));
        memory
            .and_then(|memory| memory.write_all_at(bytes, at))
            .map_err(|error| format!("write {at:#x}: {error}"))
    }
}
