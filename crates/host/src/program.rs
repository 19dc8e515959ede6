//! Becoming the command.
//!
//! The standard library's start-up ignores SIGPIPE and opens closed standard descriptors, and its exec
//! resets the signal mask; the command must find exactly what we were started with. So both are noted
//! before the standard library starts, put back at the end, and the rest is left alone.

use crate::own_files;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The disposition of SIGPIPE that this process was started with. Written once, before `main`.
static PIPE_DISPOSITION: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

/// Which of the descriptors 0 to 2 were closed, one bit each. Written once, before `main`.
static CLOSED: AtomicUsize = AtomicUsize::new(0);

/// The arguments of this process, as the kernel gave them. Written once, before `main`.
static ARGUMENTS: AtomicPtr<*const libc::c_char> = AtomicPtr::new(ptr::null_mut());

/// Runs before the standard library, when the C library has noted the environment and nothing else.
extern "C" fn note_inheritance() {
    own_files::ask_for_ourselves();
    ARGUMENTS.store(kernel_arguments(), Ordering::Relaxed);
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

/// The arguments where the kernel has put them: below the environment, after their number. (glibc hands them to
/// whoever runs before `main`, musl does not.)
fn kernel_arguments() -> *mut *const libc::c_char {
    // SAFETY: one thread, and the environment is still the kernel's: a word that is the number of arguments, so many
    // pointers, a null pointer, the environment. No pointer is as small as a number of arguments.
    unsafe {
        let mut word = environ.cast_mut().sub(1);
        let mut count = 0;
        while *word.sub(1) as usize != count {
            word = word.sub(1);
            count += 1;
        }
        word
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_INHERITANCE: extern "C" fn() = note_inheritance;

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// Our own arguments, where the kernel has put them, from the program's name on. (The standard library copies all of
/// them at each look, which took 6 ms in all with a command of nine thousand arguments.)
pub fn arguments() -> impl Iterator<Item = &'static OsStr> {
    let mut next = ARGUMENTS.load(Ordering::Relaxed).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: the kernel's null-terminated array of C strings, which nobody writes to; `next` stays at its end.
        unsafe {
            let argument = *next;
            (!argument.is_null()).then(|| {
                next = next.add(1);
                OsStr::from_bytes(CStr::from_ptr(argument).to_bytes())
            })
        }
    })
}

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
        assert!(arguments().nth(first).is_some(), "the command is a part of the command line");
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
            execute(CStr::from_ptr(*arguments), arguments, &pointers(&environment))
        }
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

/// Where commands are looked for without `PATH`, as in glibc.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// The files that a command of this name may be, in order.
pub fn candidates(name: &OsStr) -> Vec<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return vec![name.into()];
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
    let directories = path.as_bytes().split(|&byte| byte == b':');
    directories.map(|directory| Path::new(OsStr::from_bytes(directory)).join(name)).collect()
}

/// Whether the command `name` is a 32-bit program, whose loader would complain about a 64-bit agent.
pub fn is_32_bit(name: &OsStr) -> bool {
    const IDENTITY_32_BIT: [u8; 5] = *b"\x7fELF\x01";
    let mut identity = [0; 5];
    candidates(name)
        .iter()
        .find(|path| path.is_file())
        .and_then(|path| crate::reading::open(path))
        .is_some_and(|mut file| file.read_exact(&mut identity).is_ok() && identity == IDENTITY_32_BIT)
}

/// Replaces this process by the command `name`, found as execvp(3) of glibc finds it, whichever C library we are
/// built with: `env` and `nice` do so. Returns only if that fails.
///
/// # Safety
/// One thread; `arguments` and `environment` are null-terminated arrays of C strings, of at least one argument.
unsafe fn execute(
    name: &CStr,
    arguments: *const *const libc::c_char,
    environment: &[*const libc::c_char],
) -> io::Error {
    if name.to_bytes().is_empty() {
        return io::Error::from_raw_os_error(libc::ENOENT);
    }
    if name.to_bytes().contains(&b'/') {
        // SAFETY: the caller's.
        return unsafe { execute_file(name, arguments, environment) };
    }
    let mut refused = None;
    for file in candidates(OsStr::from_bytes(name.to_bytes())) {
        let Ok(file) = CString::new(file.into_os_string().into_vec()) else { continue };
        // SAFETY: the caller's.
        let error = unsafe { execute_file(&file, arguments, environment) };
        match error.raw_os_error() {
            Some(libc::EACCES) => refused = Some(error),
            Some(libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ENODEV | libc::ETIMEDOUT) => {}
            _ => return error,
        }
    }
    refused.unwrap_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
}

/// Replaces this process by `file`; what the kernel cannot run is a script for the shell.
///
/// # Safety
/// As [`execute`].
unsafe fn execute_file(
    file: &CStr,
    arguments: *const *const libc::c_char,
    environment: &[*const libc::c_char],
) -> io::Error {
    // SAFETY: the caller's arrays, and one of ours, all alive and null-terminated.
    unsafe {
        libc::execve(file.as_ptr(), arguments, environment.as_ptr());
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ENOEXEC) {
            return error;
        }
        let mut script = vec![c"/bin/sh".as_ptr(), file.as_ptr()];
        let mut next = arguments.add(1);
        while !(*next).is_null() {
            script.push(*next);
            next = next.add(1);
        }
        script.push(ptr::null());
        libc::execve(c"/bin/sh".as_ptr(), script.as_ptr(), environment.as_ptr());
    }
    io::Error::last_os_error()
}

fn inherited_environment() -> Vec<CString> {
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
