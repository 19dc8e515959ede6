//! Becoming the command.
//!
//! The command must find exactly what we were started with. So `main` is the C library's and not the standard
//! library's, whose start-up ignores SIGPIPE, opens closed standard descriptors and installs handlers (with musl
//! that lets signals 33 and 34 in, which may be blocked, and pending). Those of the standard descriptors that
//! were closed and the signal mask are noted before `main`, by system calls of our own, and put back at the end.

use crate::{installation, own_files, standing};
use runahead_insert::file::{self, Reason};
use runahead_insert::{Entrance, MACHINE};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// The signals that were blocked when this process was started, as the kernel has them. Written once, before `main`.
static BLOCKED: AtomicU64 = AtomicU64::new(0);

/// Which of the descriptors 0 to 2 were closed, one bit each. Written once, before `main`.
static CLOSED: AtomicUsize = AtomicUsize::new(0);

/// The arguments of this process, as the kernel gave them. Written once, before `main`.
static ARGUMENTS: AtomicPtr<*const libc::c_char> = AtomicPtr::new(ptr::null_mut());

/// Number of the argument that is the path of the file to execute, where that is not the command's name; else
/// 0.
static FILE: AtomicUsize = AtomicUsize::new(0);

/// That file, open as a place; negative: it is found by its path.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

/// The command is the file at the path that argument number `number` is, whatever its own name is, and
/// wherever commands are looked for. The argument numbered `descriptor` says as which descriptor it is open,
/// if it is.
pub fn set_file(number: usize, descriptor: usize) {
    let open = arguments().nth(descriptor).and_then(OsStr::to_str).and_then(|text| text.parse().ok());
    if let Some(open) = open {
        // SAFETY: sets a flag of a descriptor that was handed to us.
        unsafe { libc::fcntl(open, libc::F_SETFD, libc::FD_CLOEXEC) };
        DESCRIPTOR.store(open, Ordering::Relaxed);
    }
    FILE.store(number, Ordering::Relaxed);
}

/// What says which file is executed: the command's name, argument number `first`, unless [`set_file`] has
/// told of another.
pub fn file_name(first: usize) -> Option<&'static OsStr> {
    let number = match FILE.load(Ordering::Relaxed) {
        0 => first,
        number => number,
    };
    arguments().nth(number)
}

/// Bytes of the kernel's set of signals. (The C libraries' are longer, and their functions pass some signals over.)
pub const SIGNAL_SET_BYTES: usize = 8;

/// Runs before `main`, when the C library has noted the environment and nothing else.
extern "C" fn note_inheritance() {
    let mut blocked = 0u64;
    // SAFETY: asks for the mask, which has the size that is said.
    unsafe {
        let nothing = ptr::null::<u64>();
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            nothing,
            &raw mut blocked,
            SIGNAL_SET_BYTES,
        );
    }
    BLOCKED.store(blocked, Ordering::Relaxed);
    standing::note();
    if standing::filters() == 0 {
        own_files::ask_for_ourselves();
    }
    ARGUMENTS.store(kernel_arguments(), Ordering::Relaxed);
    for descriptor in 0..3 {
        if standing::is_closed(descriptor) {
            CLOSED.fetch_or(1 << descriptor, Ordering::Relaxed);
        }
    }
}

/// Opens the standard descriptors that are closed, so that no file of ours gets such a number. (Where that fails it
/// may, and is closed before the command.)
pub fn fill_standard_descriptors() {
    for _ in 0..CLOSED.load(Ordering::Relaxed).count_ones() {
        // SAFETY: a terminated string; the lowest free number is a standard one.
        unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    }
}

/// The signals that a write may raise: where files may not grow (ulimit -f), and where nobody reads.
const OF_WRITES: [i32; 2] = [libc::SIGXFSZ, libc::SIGPIPE];

/// Lets what is written fail without a signal, which would end us before the command has begun.
///
/// They are blocked meanwhile, and what has come by then is taken out. (Ignoring them would discard what was pending
/// before, which is the command's.)
pub fn without_write_signals(write: impl FnOnce()) {
    // SAFETY: sets of our own, for which all zeros is a value; this process has one thread.
    unsafe {
        let (mut signals, mut new) = std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>();
        libc::sigemptyset(&mut signals);
        for signal in OF_WRITES {
            libc::sigaddset(&mut signals, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &signals, ptr::null_mut());
        libc::sigemptyset(&mut new);
        for signal in OF_WRITES.into_iter().filter(|&signal| !is_pending(signal)) {
            libc::sigaddset(&mut new, signal);
        }
        write();
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        while libc::sigtimedwait(&new, ptr::null_mut(), &now) > 0 {}
        let blocked = BLOCKED.load(Ordering::Relaxed);
        for signal in OF_WRITES.into_iter().filter(|signal| blocked >> (signal - 1) & 1 != 0) {
            libc::sigdelset(&mut signals, signal);
        }
        libc::sigprocmask(libc::SIG_UNBLOCK, &signals, ptr::null_mut());
    }
}

/// Whether a signal waits to be let in.
pub fn is_pending(signal: i32) -> bool {
    // SAFETY: a set of our own, for which all zeros is a value.
    unsafe {
        let mut pending = std::mem::zeroed();
        libc::sigpending(&mut pending) == 0 && libc::sigismember(&pending, signal) == 1
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
        // SAFETY: one thread; `first` is an argument's number (see `new`); the array and its strings live until the call
        // returns.
        let error = unsafe { execute(self.first, pointers(&environment).as_ptr()) };
        // Our variables may be just what is too much; what there was before has been taken with us.
        if error == libc::E2BIG && !self.variables.is_empty() {
            // SAFETY: as above; the environment is the kernel's.
            return io::Error::from_raw_os_error(unsafe { execute(self.first, environment_pointer()) });
        }
        io::Error::from_raw_os_error(error)
    }
}

impl Program {
    fn environment(&self) -> Option<Vec<CString>> {
        environment_with(&self.variables)
    }
}

/// The environment that we were given, entry by entry as it is (odd ones too), with `variables` in the place
/// of those of the same name, or at the end.
pub(crate) fn environment_with(variables: &[(OsString, OsString)]) -> Option<Vec<CString>> {
    let mut entries = inherited_environment();
    for (name, value) in variables {
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

/// Whose loader would complain about our agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    Narrow,
    /// An emulator runs it (binfmt_misc).
    OtherMachine,
}

impl Foreign {
    pub fn because(self) -> &'static str {
        match self {
            Foreign::Narrow => "it is a 32-bit program",
            Foreign::OtherMachine => "it is another machine's program",
        }
    }
}

/// What the command `name` is, where it is no program of this machine's 64 bits.
pub fn foreign(name: &OsStr) -> Option<Foreign> {
    const LITTLE: u8 = 1;
    let mut head = [0; 20];
    let path = candidates(name).into_iter().find(|path| path.is_file())?;
    crate::reading::open(&path)?.read_exact(&mut head).ok()?;
    let [0x7f, b'E', b'L', b'F', class, order, .., machine, machine_high] = head else { return None };
    match [class, order] {
        [1, LITTLE] => Some(Foreign::Narrow),
        [_, LITTLE] if u16::from_le_bytes([machine, machine_high]) == MACHINE => None,
        _ => Some(Foreign::OtherMachine),
    }
}

/// Why no loader brings the agent into the program that the command `name` is, and its path, as the file
/// tells. None also where that does not tell.
pub fn has_no_loader_because(name: &OsStr) -> Option<(Reason, PathBuf)> {
    let path = candidates(name).into_iter().find(|path| path.is_file())?;
    match file::program_of(&path)? {
        Entrance::Image(reason) => Some((reason, path)),
        Entrance::Loader => None,
    }
}

/// The longest path that the kernel takes, with its end.
const PATH_BYTES: usize = libc::PATH_MAX as usize;

/// Where [`execute`] puts a path together.
struct PathBuffer(std::cell::UnsafeCell<[u8; PATH_BYTES]>);

// SAFETY: only `execute` touches it, whose caller has one thread.
unsafe impl Sync for PathBuffer {}

static PATH: PathBuffer = PathBuffer(std::cell::UnsafeCell::new([0; PATH_BYTES]));

/// Replaces this process by the command at argument number `first`, found as execvp(3) of glibc finds it, whichever C
/// library we are built with: `env` and `nice` do so. Returns only if that fails, the error's number. Allocates nothing:
/// it is the last resort as well.
///
/// # Safety
/// One thread; `first` is the number of an argument, and not 0, and the one that [`set_file`] was told is one; `environment` is a
/// null-terminated array of C strings.
pub unsafe fn execute(first: usize, environment: *const *const libc::c_char) -> i32 {
    // SAFETY: the kernel's null-terminated array of C strings, which `first` is within.
    let arguments = unsafe { ARGUMENTS.load(Ordering::Relaxed).add(first) };
    put_back_inheritance();
    match FILE.load(Ordering::Relaxed) {
        0 => {}
        // SAFETY: the caller's arrays and number.
        number => unsafe {
            let path = CStr::from_ptr(*ARGUMENTS.load(Ordering::Relaxed).add(number));
            return execute_meant(path, arguments, environment);
        },
    }
    // SAFETY: within that array.
    let name = unsafe { CStr::from_ptr(*arguments) };
    if name.is_empty() {
        return libc::ENOENT;
    }
    if name.to_bytes().contains(&b'/') {
        // SAFETY: the caller's arrays; there is a word before the argument, as its number is not 0.
        return unsafe { execute_file(name, arguments, environment) };
    }
    // SAFETY: one thread, and nobody further down uses it.
    let buffer = unsafe { &mut *PATH.0.get() };
    let mut refused = libc::ENOENT;
    for directory in search_path().split(|&byte| byte == b':') {
        let Some(file) = join(directory, name, buffer) else { return libc::ENAMETOOLONG };
        // SAFETY: the caller's arrays; there is a word before the argument, as its number is not 0.
        match unsafe { execute_file(file, arguments, environment) } {
            libc::EACCES => refused = libc::EACCES,
            libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ENODEV | libc::ETIMEDOUT => {}
            error => return error,
        }
    }
    refused
}

/// Replaces this process by the file that [`set_file`] has told of: by its path, as the program finds that,
/// but not by another file that has taken its place meanwhile.
///
/// # Safety
/// Null-terminated arrays of C strings.
unsafe fn execute_meant(
    path: &CStr,
    arguments: *const *const libc::c_char,
    environment: *const *const libc::c_char,
) -> i32 {
    let descriptor = DESCRIPTOR.load(Ordering::Relaxed);
    // SAFETY: two structures of our own, for which all zeros is a value; the caller's arrays, alive and
    // null-terminated.
    unsafe {
        let (mut there, mut meant) = std::mem::zeroed::<(libc::stat, libc::stat)>();
        let is_meant = descriptor < 0
            || libc::stat(path.as_ptr(), &mut there) == 0
                && libc::fstat(descriptor, &mut meant) == 0
                && (there.st_dev, there.st_ino) == (meant.st_dev, meant.st_ino);
        let mut refused = libc::ENOENT;
        if is_meant {
            libc::execve(path.as_ptr(), arguments, environment);
            refused = last_error();
        }
        if descriptor >= 0 && refused != libc::E2BIG {
            let flags = libc::AT_EMPTY_PATH;
            libc::syscall(libc::SYS_execveat, descriptor, c"".as_ptr(), arguments, environment, flags);
            refused = last_error();
        }
        refused
    }
}

fn last_error() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOENT)
}

/// The mask of blocked signals, and closed standard descriptors, as they were.
fn put_back_inheritance() {
    crate::last_resort::put_back_signals();
    let blocked = BLOCKED.load(Ordering::Relaxed);
    for descriptor in (0..3).filter(|d| CLOSED.load(Ordering::Relaxed) >> d & 1 != 0) {
        // SAFETY: was closed when we were started, so nobody but us uses it.
        unsafe { libc::close(descriptor) };
    }
    // SAFETY: sets the mask, which has the size that is said.
    unsafe {
        let nothing = ptr::null_mut::<u64>();
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const blocked,
            nothing,
            SIGNAL_SET_BYTES,
        );
    }
}

/// Where commands are looked for: directories with colons between them.
fn search_path() -> &'static [u8] {
    // SAFETY: one thread, which does not change the environment.
    let path = unsafe { libc::getenv(c"PATH".as_ptr()) };
    if path.is_null() {
        return USUAL_PATH.as_bytes();
    }
    // SAFETY: a string of the environment.
    unsafe { CStr::from_ptr(path) }.to_bytes()
}

/// `directory/name` in `buffer`; an empty directory is the current one. None: too long.
fn join<'a>(directory: &[u8], name: &CStr, buffer: &'a mut [u8]) -> Option<&'a CStr> {
    let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
    let pieces = [directory, slash, name.to_bytes_with_nul()];
    let length = pieces.iter().map(|piece| piece.len()).sum();
    let mut rest = buffer.get_mut(..length)?;
    for piece in pieces {
        let (to, behind) = rest.split_at_mut(piece.len());
        to.copy_from_slice(piece);
        rest = behind;
    }
    CStr::from_bytes_with_nul(buffer.get(..length)?).ok()
}

/// Replaces this process by `file`; what the kernel cannot run is a script for the shell.
///
/// # Safety
/// `arguments` and `environment` are null-terminated arrays of C strings, the first of at least one; the word before it
/// is ours to write.
unsafe fn execute_file(
    file: &CStr,
    arguments: *mut *const libc::c_char,
    environment: *const *const libc::c_char,
) -> i32 {
    // SAFETY: the caller's arrays, alive and null-terminated.
    unsafe {
        libc::execve(file.as_ptr(), arguments, environment);
        let refused = last_error();
        if refused != libc::ENOEXEC {
            return refused;
        }
        // The shell's name and the script's take the place of the command's and of whatever of ours stands before it.
        let shell = arguments.sub(1);
        let before = (*shell, *arguments);
        (*shell, *arguments) = (c"/bin/sh".as_ptr(), file.as_ptr());
        libc::execve(c"/bin/sh".as_ptr(), shell, environment);
        let refused = last_error();
        (*shell, *arguments) = before;
        refused
    }
}

/// Has `runahead-tools` go on in this process, which is as it was started. Returns only if that fails.
pub fn become_tools() -> io::Error {
    let file = match installation::tools() {
        Ok(file) => CString::new(file.into_os_string().into_vec()).unwrap_or_default(),
        Err(error) => return error,
    };
    // SAFETY: the kernel's null-terminated arrays of C strings.
    unsafe { libc::execve(file.as_ptr(), ARGUMENTS.load(Ordering::Relaxed), environment_pointer()) };
    io::Error::last_os_error()
}

/// Calls this process what it is, whichever of our executables it runs: an agent knows the host by that
/// (`agent::own_run`).
pub fn take_name() {
    // SAFETY: sets the calling thread's name (proc_pid_comm(5)), which the next execution sets anew.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"runahead".as_ptr()) };
}

/// The environment as the C library has it.
pub fn environment_pointer() -> *const *const libc::c_char {
    // SAFETY: one thread, which does not change the environment.
    unsafe { environ }
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

pub(crate) fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain(std::iter::once(ptr::null())).collect()
}
