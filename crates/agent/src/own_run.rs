//! Programs of another user than the host's: they become a run of their own.
//!
//! Who starts a command as root and has it change to another user (`setpriv`, `gosu`, `runuser`, a
//! container's entry point) finds that Runahead does not act for what comes then, as it would act with root's
//! rights. So the first program that the other user's process executes is started anew, by the launcher, as
//! if that user had typed `runahead run` before it: with a host that has his rights and no others. Nothing is
//! shared with the run that he comes from.
//!
//! It happens where the loader calls, before the program's first instruction and before any library's. What a
//! process keeps at an execution it keeps at two. What the loader of a program has done by then it does
//! again. Where a second execution might do another thing than the first, or might be refused, the program
//! goes on plainly.

use crate::loader::{OWN_NAME, file_name};
use crate::loader_messages;
use crate::session::{Open, read_file};
use crate::start::auxiliary_value;
use core::ffi::{CStr, c_char};
use core::ptr;
use runahead_abi::environment::{SESSION, Session, again, flags, least};
use runahead_kernel::files::{fstat, may_execute, open_at, open_without_magic_links, stat_at};
use runahead_kernel::process::{effective_user, execute, kernel_release, limit, prctl, process_id};
use runahead_kernel::text::Text;
use runahead_kernel::uapi::general as n;
use runahead_kernel::{PAGE, memory};

/// Entries of the auxiliary vector (getauxval(3)): the path that was executed, where the loader is, and
/// whether the kernel was told to keep the name besides the interpreter's arguments (binfmt_misc).
const AT_EXECFN: usize = 31;
const AT_BASE: usize = 7;
const AT_FLAGS: usize = 8;

/// The first kernel that says the last.
const SAYS_FLAGS: (u32, u32) = (5, 12);

/// Bytes of a label of the security modules that are compared.
const LABEL_BYTES: usize = 256;

/// Longest path that the kernel takes.
const PATH_BYTES: usize = n::PATH_MAX as usize;

/// Arguments among which are those that the kernel has put before a script's, two for each interpreter on the
/// way.
const BEFORE_SCRIPTS: usize = 12;

/// `prctl`: whether the process may be looked at by others of its user (1).
const PR_GET_DUMPABLE: u32 = 3;
const PR_GET_CHILD_SUBREAPER: u32 = 37;

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// Entries before the command in the launcher's arguments: its own name, the word, the descriptor, the file.
const BEFORE: usize = again::FIRST;

/// The process's start as the kernel has laid it out.
#[derive(Clone, Copy)]
pub struct Start {
    /// Number of the arguments.
    pub count: usize,
    pub arguments: *const *const c_char,
    /// Behind it lies the auxiliary vector.
    pub environment: *const *const c_char,
}

/// Executes the launcher in place of the program, where this is another user's process than the `session`'s
/// host. Returns where it is not, or where it cannot be done: the program then goes on, plainly.
///
/// # Safety
/// The loader is calling, nothing of the program's has run, there is one thread; `start` is the kernel's.
pub unsafe fn begin(session: &Session, start: &Start) {
    let host = session.host;
    if !is_another_users(host) || !is_under_the_same_label(host) || !is_ordinary() {
        return;
    }
    // The host would come to the command as a child that it has not started, unless that is this process.
    if session.flags & flags::REAPS != 0 && !reaps() {
        return;
    }
    // SAFETY: the caller's promise.
    let (path, base) = unsafe {
        (auxiliary_value(start.environment, AT_EXECFN), auxiliary_value(start.environment, AT_BASE))
    };
    // Without a base the loader is the program, and what it is told of the program is not what the kernel was
    // told.
    if path == 0 || base == 0 {
        return;
    }
    // SAFETY: a C string of the kernel's.
    let path = unsafe { CStr::from_ptr(path as *const c_char) };
    // SAFETY: the caller's promise.
    let Some(executed) = (unsafe { what_was_executed(path, start) }) else { return };
    // SAFETY: as above.
    let (entries, preload) = unsafe { inherited(start.environment) };
    let Some(preload) = preload else { return };
    let agent = preload.split(|&byte| byte == b':' || byte == b' ').next().unwrap_or_default();
    let rest = preload.get(agent.len() + 1..).unwrap_or_default();
    let name = file_name(agent);
    // SAFETY: the loader is calling.
    if name != OWN_NAME || unsafe { loader_messages::may_be_there(rest) } {
        return;
    }
    let folder = agent.get(..agent.len() - name.len()).unwrap_or_default();
    if !folder.starts_with(b"/") {
        return;
    }
    let skipped = executed.skipped;
    let descriptor = match &executed.file {
        Some(file) => Text::<16>::new().push_number(file.number() as u64),
        None => Text::new().push(again::NONE.to_bytes()),
    };
    let rest_bytes = if rest.is_empty() { 0 } else { PRELOAD.len() + rest.len() + 1 };
    let words = BEFORE + start.count + 2 + entries + 1;
    let length = (words * size_of::<usize>() + rest_bytes).next_multiple_of(PAGE);
    let (protection, kind) = (memory::PROT_READ | memory::PROT_WRITE, n::MAP_PRIVATE | n::MAP_ANONYMOUS);
    // SAFETY: a new mapping.
    let Ok(address) = (unsafe { memory::map(0, length, protection, kind, -1, 0) }) else { return };
    let arguments = address as *mut *const c_char;
    // SAFETY: the arrays and the string lie in the mapping, which is as long as they are; what they name is
    // the kernel's, and nobody writes to it.
    unsafe {
        arguments.write(c"runahead".as_ptr());
        arguments.add(1).write(again::WORD.as_ptr());
        arguments.add(again::DESCRIPTOR).write(descriptor.as_c_str().as_ptr());
        arguments.add(again::FILE).write(path.as_ptr());
        // Of a script the kernel has put the interpreter before the path; the path is its name now.
        for number in skipped..start.count {
            arguments.add(BEFORE + number - skipped).write(*start.arguments.add(number));
        }
        let environment = arguments.add(BEFORE + start.count + 2);
        let text = environment.add(entries + 1).cast::<u8>();
        ptr::copy_nonoverlapping(PRELOAD.as_ptr(), text, if rest.is_empty() { 0 } else { PRELOAD.len() });
        ptr::copy_nonoverlapping(rest.as_ptr(), text.add(PRELOAD.len()), rest.len());
        let mut to = environment;
        for number in 0..entries {
            let entry = *start.environment.add(number);
            let bytes = CStr::from_ptr(entry).to_bytes();
            let kept = if bytes.starts_with(PRELOAD) { text.cast() } else { entry };
            // Without ours, so that a launcher that fails is not started again by what it runs plainly.
            let is_ours = is_session(bytes) || bytes.starts_with(PRELOAD) && rest.is_empty();
            if !is_ours {
                to.write(kept);
                to = to.add(1);
            }
        }
        for launcher in [b"runahead".as_slice(), b"../../bin/runahead"] {
            let file = Text::<PATH_BYTES>::new().push(folder).push(launcher);
            let _ = execute(file.as_c_str(), arguments.cast(), environment.cast());
        }
        let _ = memory::unmap(address, length);
    }
}

fn is_session(entry: &[u8]) -> bool {
    entry.strip_prefix(SESSION.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
}

/// What the host is called, and for a moment where an attendant becomes it (`host::attendant`).
const NAMES: [&[u8]; 2] = [b"runahead\n", b"runahead-host\n"];

/// Whether the host is there, a host by its name, and another user's.
fn is_another_users(host: u32) -> bool {
    let path = Text::<32>::new().push(b"/proc/").push_number(u64::from(host));
    let owner = stat_at(n::AT_FDCWD, path.as_c_str(), 0).map(|stat| stat.st_uid);
    let mut name = [0; 16];
    let comm = Text::<48>::new().push(path.as_c_str().to_bytes()).push(b"/comm");
    let named = read_file(comm.as_c_str(), &mut name);
    owner.is_ok_and(|owner| owner != effective_user()) && named.is_some_and(|name| NAMES.contains(&name))
}

/// Whether security modules (apparmor(7), SELinux) confine the process as they do the host. Who is in another
/// domain since it was executed may not be allowed to execute the launcher from there, or itself.
fn is_under_the_same_label(host: u32) -> bool {
    let (mut own, mut others) = ([0; LABEL_BYTES], [0; LABEL_BYTES]);
    let own = read_file(c"/proc/self/attr/current", &mut own);
    let path = Text::<48>::new().push(b"/proc/").push_number(u64::from(host)).push(b"/attr/current");
    match (own, read_file(path.as_c_str(), &mut others)) {
        // There is no such module.
        (None, _) => true,
        (Some(own), None) => own.starts_with(b"unconfined\n"),
        (Some(own), Some(others)) => own == others && own.len() < LABEL_BYTES,
    }
}

/// Whether the process is as executions leave one, and has room for a run's processes.
fn is_ordinary() -> bool {
    // Not where the file may not be read, or where rights have changed at the execution itself: a second one
    // would not find them changing. SAFETY: asks.
    let dumpable = unsafe { prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) };
    dumpable == Ok(1) && limit(n::RLIMIT_NPROC) >= least::PROCESSES
}

/// Whether the process gets the orphans of its descendants.
fn reaps() -> bool {
    let mut reaper = 0i32;
    // SAFETY: asks, into an integer of ours.
    let asked = unsafe { prctl(PR_GET_CHILD_SUBREAPER, &raw mut reaper as usize, 0, 0, 0) };
    process_id() == 1 || asked.is_ok() && reaper != 0
}

/// What executing the path anew takes.
struct Executed {
    /// How many of the arguments are not the command's own: of a script those that the kernel has put before
    /// it.
    skipped: usize,
    /// The program that runs, open only as a place and kept by an execution. None: the path is a script.
    file: Option<Open>,
}

/// None: executing the path anew might not do the same.
///
/// # Safety
/// `start` is the kernel's.
unsafe fn what_was_executed(path: &CStr, start: &Start) -> Option<Executed> {
    // `/proc/self/exe` and its like would lead to the launcher.
    let place = Open::new(open_without_magic_links(path, n::O_PATH | n::O_CLOEXEC).ok()?);
    // Nothing is opened for reading: closing that would give up the locks (fcntl(2)) that the process has on
    // it.
    let running = Open::new(open_at(n::AT_FDCWD, c"/proc/self/exe", n::O_PATH, 0).ok()?);
    let (there, runs) = (fstat(place.number()).ok()?, fstat(running.number()).ok()?);
    // The first execution may have had rights that are gone since.
    if start.count == 0 || !may_execute(path) {
        return None;
    }
    if (there.st_dev, there.st_ino) == (runs.st_dev, runs.st_ino) {
        return Some(Executed { skipped: 0, file: Some(running) });
    }
    // SAFETY: there is an argument; the environment is the kernel's.
    let (first, flags) =
        unsafe { (CStr::from_ptr(*start.arguments), auxiliary_value(start.environment, AT_FLAGS)) };
    let interpreter = stat_at(n::AT_FDCWD, first, 0).ok()?;
    if (interpreter.st_dev, interpreter.st_ino) != (runs.st_dev, runs.st_ino)
        || !may_execute(first)
        || flags != 0
        || kernel_release() < SAYS_FLAGS
    {
        return None;
    }
    // The interpreter, perhaps one argument of its own, the script's path (execve(2)). Where the path is
    // there twice it is not known which one the kernel has put there.
    let is_path = |&number: &usize| {
        // SAFETY: below the number of arguments; each is a C string.
        unsafe { CStr::from_ptr(*start.arguments.add(number)) == path }
    };
    let mut paths = (1..start.count.min(BEFORE_SCRIPTS)).filter(is_path);
    let skipped = paths.next()?;
    paths.next().is_none().then_some(Executed { skipped, file: None })
}

/// The number of the environment's entries, and what is preloaded: None also where the loader was told to
/// talk.
///
/// # Safety
/// `environment` is a null-terminated array of C strings that live as long as the process.
unsafe fn inherited(environment: *const *const c_char) -> (usize, Option<&'static [u8]>) {
    let (mut entries, mut preload, mut is_in_the_way) = (0, None, false);
    loop {
        // SAFETY: not behind the terminator.
        let entry = unsafe { *environment.add(entries) };
        if entry.is_null() {
            return (entries, preload.filter(|_| !is_in_the_way));
        }
        // SAFETY: a C string that stays.
        let entry = unsafe { CStr::from_ptr(entry) }.to_bytes();
        // More than one entry of the name: the loader believes the last, and we none.
        is_in_the_way |= loader_messages::is_heard(entry);
        if let Some(value) = entry.strip_prefix(PRELOAD) {
            is_in_the_way |= preload.is_some();
            preload = Some(value);
        }
        entries += 1;
    }
}
