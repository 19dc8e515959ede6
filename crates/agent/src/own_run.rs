//! Programs of another user than the host's: they become a run of their own.
//!
//! Who starts a command as root and has it change to another user (`setpriv`, `gosu`, `runuser`, a container's
//! entry point) finds that Runahead does not act for what comes then, as it would act with root's rights. So the
//! first program that the other user's process executes is started anew, by the launcher, as if that user had
//! typed `runahead run` before it: with a host that has his rights and no others. Nothing is shared with the
//! run that he comes from.
//!
//! It happens where the loader calls, before the program's first instruction and before any library's. What a
//! process keeps at an execution it keeps at two. What the loader of a program has done by then it does again.

use crate::session::Open;
use core::ffi::{CStr, c_char};
use core::ptr;
use runahead_abi::environment::{SESSION, again};
use runahead_kernel::files::{open_at, read, stat_at};
use runahead_kernel::process::{effective_user, execute};
use runahead_kernel::text::Text;
use runahead_kernel::uapi::general as n;
use runahead_kernel::{PAGE, memory};

/// The auxiliary vector's entry with the path that was executed (getauxval(3)).
pub const AT_EXECFN: usize = 31;

/// Bytes of a label of the security modules that are compared.
const LABEL_BYTES: usize = 256;

/// Longest path that the kernel takes.
const PATH_BYTES: usize = n::PATH_MAX as usize;

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// Variables that change what the loader does, or have it say so: who sets them may see it twice.
const LOADERS: [&[u8]; 3] = [b"LD_AUDIT=", b"LD_DEBUG=", b"LD_PROFILE="];

/// Entries before the command in the launcher's arguments: its own name, the word, the file.
const BEFORE: usize = again::FIRST;

/// The process's start as the kernel has laid it out.
#[derive(Clone, Copy)]
pub struct Start {
    /// Number of the arguments.
    pub count: usize,
    pub arguments: *const *const c_char,
    pub environment: *const *const c_char,
    /// What was executed ([`AT_EXECFN`]); null if the kernel does not say.
    pub path: *const c_char,
}

/// Executes the launcher in place of the program, where this is another user's process than the `host`'s. Returns
/// where it is not, or where it cannot be done: the program then goes on, plainly.
///
/// # Safety
/// The loader is calling, nothing of the program's has run, there is one thread; `start` is the kernel's.
pub unsafe fn begin(host: u32, start: &Start) {
    if !is_another_users(host) || !is_under_the_same_label(host) || start.path.is_null() {
        return;
    }
    // SAFETY: a C string of the kernel's.
    let path = unsafe { CStr::from_ptr(start.path) };
    // SAFETY: the caller's promise.
    let Some(skipped) = (unsafe { skipped_arguments(path, start) }) else { return };
    // SAFETY: as above.
    let (entries, preload) = unsafe { inherited(start.environment) };
    let Some(preload) = preload else { return };
    let agent = preload.split(|&byte| byte == b':' || byte == b' ').next().unwrap_or_default();
    let rest = preload.get(agent.len() + 1..).unwrap_or_default();
    let slash = agent.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    let folder = agent.get(..slash).unwrap_or_default();
    if !folder.starts_with(b"/") {
        return;
    }
    let rest_bytes = if rest.is_empty() { 0 } else { PRELOAD.len() + rest.len() + 1 };
    let words = BEFORE + start.count + 2 + entries + 1;
    let length = (words * size_of::<usize>() + rest_bytes).next_multiple_of(PAGE);
    let (protection, flags) = (memory::PROT_READ | memory::PROT_WRITE, n::MAP_PRIVATE | n::MAP_ANONYMOUS);
    // SAFETY: a new mapping.
    let Ok(address) = (unsafe { memory::map(0, length, protection, flags, -1, 0) }) else { return };
    let arguments = address as *mut *const c_char;
    // SAFETY: the arrays and the string lie in the mapping, which is as long as they are; what they name is the
    // kernel's, and nobody writes to it.
    unsafe {
        arguments.write(c"runahead".as_ptr());
        arguments.add(1).write(again::WORD.as_ptr());
        arguments.add(again::FILE).write(start.path);
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
        for launcher in [b"/runahead".as_slice(), b"/../../bin/runahead"] {
            let file = Text::<PATH_BYTES>::new().push(folder).push(launcher);
            let _ = execute(file.as_c_str(), arguments.cast(), environment.cast());
        }
        let _ = memory::unmap(address, length);
    }
}

fn is_session(entry: &[u8]) -> bool {
    entry.strip_prefix(SESSION.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
}

/// Whether the host is there, a host by its name, and another user's.
fn is_another_users(host: u32) -> bool {
    let path = Text::<32>::new().push(b"/proc/").push_number(u64::from(host));
    let owner = stat_at(n::AT_FDCWD, path.as_c_str(), 0).map(|stat| stat.st_uid);
    let mut name = [0; 16];
    let comm = Text::<48>::new().push(path.as_c_str().to_bytes()).push(b"/comm");
    let named = read_file(comm.as_c_str(), &mut name);
    owner.is_ok_and(|owner| owner != effective_user()) && named == Some(b"runahead\n".as_slice())
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

/// The beginning of a file; None if it cannot be read.
fn read_file<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let file = Open::new(open_at(n::AT_FDCWD, path, n::O_RDONLY | n::O_CLOEXEC, 0).ok()?);
    let length = read(file.number(), buffer).ok()?;
    buffer.get(..length)
}

/// How many of the arguments are not the command's own: none where the path is the program that runs; of a script
/// those that the kernel has put before its path. None: executing the path anew would not do the same.
///
/// # Safety
/// `start` is the kernel's.
unsafe fn skipped_arguments(path: &CStr, start: &Start) -> Option<usize> {
    let file = stat_at(n::AT_FDCWD, path, 0).ok()?;
    let running = stat_at(n::AT_FDCWD, c"/proc/self/exe", 0).ok()?;
    if (file.st_dev, file.st_ino) == (running.st_dev, running.st_ino) {
        return (start.count > 0).then_some(0);
    }
    let mut beginning = [0; 2];
    if file.st_mode & n::S_IFMT != n::S_IFREG || read_file(path, &mut beginning) != Some(b"#!".as_slice()) {
        return None;
    }
    // The interpreter, perhaps one argument of its own, the script's path (execve(2)).
    // SAFETY: below the number of arguments; each is a C string.
    (1..start.count.min(3)).find(|&number| unsafe { CStr::from_ptr(*start.arguments.add(number)) } == path)
}

/// The number of the environment's entries, and what is preloaded: None also where variables for the loader are in
/// the way.
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
        is_in_the_way |= LOADERS.iter().any(|name| entry.starts_with(name));
        if let Some(value) = entry.strip_prefix(PRELOAD) {
            is_in_the_way |= preload.is_some();
            preload = Some(value);
        }
        entries += 1;
    }
}
