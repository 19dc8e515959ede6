//! Becoming the command.
//!
//! The standard library's start-up ignores SIGPIPE and opens closed standard descriptors, and its exec
//! resets the signal mask; the command must find exactly what we were started with. So both are noted
//! before the standard library starts, put back at the end, and the rest is left alone.

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The disposition of SIGPIPE that this process was started with. Written once, before `main`.
static PIPE_DISPOSITION: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

/// Which of the descriptors 0 to 2 were closed, one bit each. Written once, before `main`.
static CLOSED: AtomicUsize = AtomicUsize::new(0);

/// The arguments of this process, as the kernel gave them. Written once, before `main`.
static ARGUMENTS: AtomicPtr<*const libc::c_char> = AtomicPtr::new(ptr::null_mut());

/// Runs before the standard library; glibc gives it what it gives `main`.
extern "C" fn note_inheritance(_: libc::c_int, arguments: *mut *const libc::c_char) {
    ARGUMENTS.store(arguments, Ordering::Relaxed);
    for descriptor in 0..3 {
        // SAFETY: asking changes nothing.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << descriptor, Ordering::Relaxed);
        }
    }
    // SAFETY: asking for a disposition changes nothing; zeros are a valid `sigaction`.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGPIPE, ptr::null(), &mut action) == 0 {
            PIPE_DISPOSITION.store(action.sa_sigaction, Ordering::Relaxed);
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_INHERITANCE: extern "C" fn(libc::c_int, *mut *const libc::c_char) = note_inheritance;

/// The command: the end of our own command line, which is handed on as it is (a command may well have ten
/// thousand arguments), and the variables that are added to the environment.
pub struct Program {
    /// Number of the command's name among our own arguments.
    first: usize,
    variables: Vec<(OsString, OsString)>,
}

impl Program {
    /// `first` is less than the number of our arguments.
    pub fn new(first: usize) -> Program {
        assert!(first < std::env::args_os().len(), "the command is a part of the command line");
        Program { first, variables: Vec::new() }
    }

    pub fn set_variables(&mut self, variables: Vec<(OsString, OsString)>) {
        self.variables = variables;
    }

    /// Replaces this process; returns only if that fails.
    pub fn become_it(self) -> io::Error {
        let Some(environment) = self.environment() else {
            return io::Error::from(io::ErrorKind::InvalidInput);
        };
        // SAFETY: the kernel's null-terminated array of C strings, which `first` is within (see `new`).
        let arguments = unsafe { ARGUMENTS.load(Ordering::Relaxed).add(self.first) };
        // SAFETY: one thread; null-terminated arrays of C strings that live until the call returns.
        unsafe {
            libc::signal(libc::SIGPIPE, PIPE_DISPOSITION.load(Ordering::Relaxed));
            for descriptor in (0..3).filter(|d| CLOSED.load(Ordering::Relaxed) >> d & 1 != 0) {
                libc::close(descriptor);
            }
            libc::execvpe(*arguments, arguments, pointers(&environment).as_ptr());
        }
        io::Error::last_os_error()
    }
}

impl Program {
    /// The environment that we were given, entry by entry as it is (odd ones too), with our variables in
    /// the place of those of the same name, or at the end.
    fn environment(&self) -> Option<Vec<CString>> {
        let mut entries = inherited_environment();
        for (name, value) in &self.variables {
            let mut entry = name.clone();
            entry.push("=");
            let prefix = entry.as_bytes().to_vec();
            entry.push(value);
            let entry = CString::new(entry.into_vec()).ok()?;
            match entries.iter_mut().find(|old| old.as_bytes().starts_with(&prefix)) {
                Some(old) => *old = entry,
                None => entries.push(entry),
            }
        }
        Some(entries)
    }
}

fn inherited_environment() -> Vec<CString> {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    let mut entries = Vec::new();
    // SAFETY: one thread, which does not change the environment: a null-terminated array of C strings.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            entries.push(CStr::from_ptr(*entry).to_owned());
            entry = entry.add(1);
        }
    }
    entries
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain(std::iter::once(ptr::null())).collect()
}
