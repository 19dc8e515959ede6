//! Programs of ours that the host starts while it acts for programs.
//!
//! A child of fork has whatever its parent has open, files and directories of the programs' among it, until it
//! executes something; on a busy machine, or where that is to be read first, that is long after a program has
//! unmounted what is held so. (Closing on execution comes too late for that as well: vfork returns before.) So
//! a child closes all of it at once, and until it has, the host holds it.

use runahead_abi::release::What;
use runahead_abi::session::speculator_exit::NOT_EXECUTED;
use runahead_gate::{Gate, Pass};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

/// A pass for [`start`]: all that the host has open. None: something is being given back just now, and nothing
/// may be held. (Of the kind for whose end every call that gives something back waits.)
pub(crate) fn pass(gate: Gate) -> Option<Pass> {
    gate.pass_to_our_own(What::Mapping)
}

/// Starts what `command` says, an absolute path, in the environment that it names, and no more. Of what is
/// open here it gets its standard streams, and what `keep` puts behind them: that runs in the child, and says
/// which descriptor is the first that is not kept. `step_back` runs there when nothing is held any more. A
/// child that cannot execute the program exits with [`NOT_EXECUTED`].
///
/// # Safety
///
/// Both run between fork and exec: they make system calls only, and allocate nothing.
pub(crate) unsafe fn start(
    mut command: Command,
    pass: Pass,
    mut keep: impl FnMut() -> io::Result<RawFd> + Send + Sync + 'static,
    step_back: fn(),
) -> io::Result<Child> {
    let words = Words::of(&command)?;
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let writing = write.as_raw_fd();
    // SAFETY: system calls only, by our caller's word and as written here; what they read is this closure's
    // own.
    unsafe {
        command.pre_exec(move || {
            let first = keep()?;
            // The last one to be closed: then all others are.
            if libc::dup2(writing, first) < 0 {
                return Err(io::Error::last_os_error());
            }
            let others = first as libc::c_uint + 1;
            if libc::syscall(libc::SYS_close_range, others, libc::c_uint::MAX, 0) != 0 {
                // Forbidden, or before Linux 5.9: all is closed on execution.
                libc::fcntl(first, libc::F_SETFD, libc::FD_CLOEXEC);
                step_back();
                return Ok(());
            }
            libc::close(first);
            step_back();
            // Not by the library, whose way to say that it cannot is closed.
            libc::execve(words.program.as_ptr(), words.arguments.pointers(), words.environment.pointers());
            libc::_exit(NOT_EXECUTED)
        })
    };
    let started = command.spawn();
    drop(write);
    // Until nobody has the other end any more.
    let _ = io::Read::read_exact(&mut File::from(read), &mut [0]);
    drop(pass);
    started
}

/// What execve(2) takes.
struct Words {
    program: CString,
    arguments: Strings,
    environment: Strings,
}

impl Words {
    fn of(command: &Command) -> io::Result<Words> {
        let text = |text: &[u8]| CString::new(text).map_err(io::Error::from);
        let program = command.get_program();
        let arguments = std::iter::once(program).chain(command.get_args()).map(OsStr::as_bytes).map(text);
        let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let variables =
            variables.map(|(name, value)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat()));
        Ok(Words {
            program: text(program.as_bytes())?,
            arguments: Strings::new(arguments.collect::<io::Result<_>>()?),
            environment: Strings::new(variables.collect::<io::Result<_>>()?),
        })
    }
}

/// Strings, and an array of their addresses that ends with 0.
struct Strings {
    _strings: Vec<CString>,
    addresses: Vec<usize>,
}

impl Strings {
    fn new(strings: Vec<CString>) -> Strings {
        let addresses = strings.iter().map(|string| string.as_ptr() as usize).chain([0]).collect();
        Strings { _strings: strings, addresses }
    }

    fn pointers(&self) -> *const *const libc::c_char {
        self.addresses.as_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runahead_abi::release::{Holding, Releasing};
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

    /// Words that a child has as well.
    fn shared_words() -> &'static runahead_gate::Words {
        // SAFETY: new memory, never unmapped, of zeros, which are a value of atomics; it has room for all of
        // them.
        let page = unsafe {
            mmap_anonymous(std::ptr::null_mut(), 4096, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
        };
        let page = page.unwrap().cast::<u8>();
        let holding = |number: usize| {
            // SAFETY: inside the page, each with a line of its own.
            unsafe { &*page.add(64 * number).cast::<Holding>() }
        };
        // SAFETY: as above.
        let releasing = unsafe { &*page.cast::<Releasing>() };
        Box::leak(Box::new(runahead_gate::Words {
            releasing,
            files: holding(1),
            places: holding(2),
            nameless: holding(3),
        }))
    }

    fn nothing() {}

    fn shell(line: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", line]).env_clear();
        command
    }

    #[test]
    fn a_child_has_nothing_of_the_host_s_before_it_executes_anything() {
        let words = shared_words();
        let gate = Gate::new(words);
        let (open, _close) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        // One that execution would not close.
        // SAFETY: makes a descriptor, which is closed below.
        let there = unsafe { libc::fcntl(open.as_raw_fd(), libc::F_DUPFD, 100) };
        let keep = move || {
            // Still open here, so it is held.
            // SAFETY: asks.
            let is_open = unsafe { libc::fcntl(there, libc::F_GETFD) } >= 0;
            if is_open && words.nameless.is_any() { Ok(3) } else { Err(io::Error::other("not held")) }
        };
        // What the shell has open once it runs, and whether the command's environment is all that it has.
        let line =
            format!("[ ! -e /proc/self/fd/{there} ] && [ ! -e /proc/self/fd/3 ] && [ \"$A\" = b ] && exit 5");
        let mut command = shell(&line);
        command.env("A", "b");
        // SAFETY: one system call.
        let mut child = unsafe { start(command, pass(gate).unwrap(), keep, nothing) }.unwrap();
        assert!(!words.nameless.is_any(), "it has closed all of it");
        assert_eq!(child.wait().unwrap().code(), Some(5));
        // SAFETY: made above.
        unsafe { libc::close(there) };
    }

    #[test]
    fn none_is_started_while_something_is_given_back() {
        let words = shared_words();
        let gate = Gate::new(words);
        words.releasing.begins(What::All, u64::MAX);
        assert!(pass(gate).is_none());
        words.releasing.ends(What::All);
        // SAFETY: calls nothing.
        let mut child = unsafe { start(shell("exit 6"), pass(gate).unwrap(), || Ok(3), nothing) }.unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(6));
    }

    #[test]
    fn whatever_goes_wrong_nothing_stays_held() {
        let words = shared_words();
        let gate = Gate::new(words);
        // SAFETY: calls nothing.
        let refused = unsafe {
            start(shell("exit 0"), pass(gate).unwrap(), || Err(io::Error::other("refused")), nothing)
        };
        assert!(refused.is_err() && !words.nameless.is_any());
        // SAFETY: calls nothing.
        let absent =
            unsafe { start(Command::new("/absent/program"), pass(gate).unwrap(), || Ok(3), nothing) };
        assert_eq!(absent.unwrap().wait().unwrap().code(), Some(NOT_EXECUTED));
        assert!(!words.nameless.is_any());
    }
}
