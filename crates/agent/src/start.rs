//! The agent's start, called by the loader before the program's own initialisers.

use crate::executions::PRELOAD_KEPT;
use crate::own_calls::Program;
use crate::session::{Address, Open};
use crate::state::{self, Fixed, NO_DESCRIPTOR};
use crate::{
    arch, attach, emulators, enabled, loader, opened, own_run, patch, prepared, release, rooms, session,
    unchecked,
};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use runahead_abi::enabled::filters as enabled_filters;
use runahead_abi::environment::{self, Session, find_preloaded, flags, least};
use runahead_abi::insertion::Inserted;
use runahead_abi::lives;
use runahead_abi::session::{HEADER_BYTES, LIVES_AT, care, watch};
use runahead_kernel::files::{close, open_at, pread, pwrite, read};
use runahead_kernel::memory;
use runahead_kernel::process::{self, major_faults_and_blocks, total_swap};
use runahead_kernel::text;
use runahead_kernel::uapi::general as n;

/// Code of which on a program's own page faults are worth watching, bytes: a compiler's, an interpreter's, a browser's
/// start goes through tens of megabytes of its files by page faults alone. What is smaller, the kernel's read-around has
/// brought in after some of them. (Tried, on a disk of 1 ms: from 1 MB and 4 waits on, python3, git, perl, gdb and ld
/// started 1 to 28 ms later than unwatched, and none earlier.)
const LARGE: usize = 8 << 20;

/// Page faults that waited for the disk while the program was being loaded from which on it is taken for cold; or blocks of
/// 512 bytes that were brought in for it meanwhile, where the launcher has asked for them before it could wait (1 MB). Warm,
/// there are none of either, and to watch nevertheless cost the start of a compiler 2 ms of 16. Cold, as a shell's child, the
/// compiler had met 10 faults, node 68, clang 512; as the command itself the compiler one, and 4 MB.
const COLD_FAULTS: u64 = 4;
const COLD_BLOCKS: u64 = 2048;

/// What the loader calls (DT_INIT). glibc passes what `main` gets; where the arguments are not that
/// (musl passes nothing), there is no agent.
///
/// # Safety
/// Called once, by the loader, in a process whose thread-local storage is set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runahead_agent_start(
    count: isize,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    // On a glibc start the environment lies right behind the arguments; garbage does not.
    if !(0..1 << 24).contains(&count) || environment != arguments.wrapping_offset(count + 1) {
        return;
    }
    // SAFETY: checked to be the process's own arguments and environment, null-terminated arrays of C strings.
    let mut told = unsafe { Told::find(arguments, environment) };
    if told.session.is_some_and(|session| session.flags & flags::HIDDEN != 0) {
        // SAFETY: as above; nothing of the program's has looked at it yet.
        unsafe { hide(environment.cast_mut()) };
    }
    if !has_room() {
        patch::give_back_pool();
        return;
    }
    // Whether it works here or not: it is loaded.
    // SAFETY: the loader has called.
    unsafe { loader::step_aside() };
    if let Some(most) = told.enabled.filter(|_| !told.is_off)
        && process::limit(n::RLIMIT_STACK) >= least::STACK
        && filters(&told).is_some_and(|filters| filters <= most)
    {
        // SAFETY: as above.
        told.session = unsafe { enabled::session(environment) };
    }
    // SAFETY: as for the environment, behind which it lies.
    let hwcap2 = unsafe { auxiliary_value(environment, AT_HWCAP2) };
    if let Begun::Elsewhere(session) = begin(&told, hwcap2, patch::Unknown::MayRun)
        // Of a process with hidden variables nobody would hide those of the second execution.
        && session.flags & (flags::OWN_RUNS | flags::HIDDEN) == flags::OWN_RUNS
    {
        let start = own_run::Start { count: count as usize, arguments, environment };
        // SAFETY: the loader is calling, before all other initialisers.
        unsafe { own_run::begin(&session, &start) };
    }
}

/// What the image's entrance calls, on a stack that is gone afterwards, in a program that no loader has
/// brought the agent into, before its first instruction.
///
/// # Safety
/// Called once; `inserted` and what it names are as the tracer has written them.
pub unsafe extern "C" fn runahead_agent_insert(inserted: &Inserted) {
    clean(inserted);
    if !has_room() {
        patch::give_back_pool();
        return;
    }
    let stack = inserted.stack as *const usize;
    // SAFETY: the kernel's first stack: the number of arguments, as many addresses, a null, the environment,
    // which is as for `Told::find`.
    let environment = unsafe { stack.add(*stack + 2) }.cast::<*const c_char>();
    // SAFETY: as above.
    let mut told = unsafe { Told::find(stack.add(1).cast(), environment) };
    let text = inserted.session.split(|&byte| byte == 0).next().unwrap_or_default();
    told.session = Session::parse(text).filter(|_| !told.is_off);
    told.enabled = None;
    // SAFETY: as above.
    let hwcap2 = unsafe { auxiliary_value(environment, AT_HWCAP2) };
    begin(&told, hwcap2, patch::Unknown::Waits);
}

/// The instructions that brought the image in are nobody's any more. (Where memory that was written to may
/// not be executed they stay.)
fn clean(inserted: &Inserted) {
    let Inserted { code, code_bytes, pages, pages_bytes, protection, .. } = *inserted;
    let protect = |protection| {
        // SAFETY: pages of code that has not run yet, but for those instructions.
        unsafe { memory::protect(pages as usize, pages_bytes as usize, protection) }
    };
    if protect(protection as u32 | memory::PROT_READ | memory::PROT_WRITE).is_ok() {
        // SAFETY: bytes of those pages, where zeros were.
        unsafe { core::ptr::write_bytes(code as *mut u8, 0, code_bytes as usize) };
        let _ = protect(protection as u32);
    }
}

/// Has the program find its environment as it was started: without the last two entries, which are ours. What
/// is left between its end and the auxiliary vector, which is looked for behind it, is filled with an entry
/// that says nothing (`AT_IGNORE`, getauxval(3)).
///
/// # Safety
/// The process's own environment, with two entries at least and the vector behind it; nobody else looks at it.
unsafe fn hide(environment: *mut *const c_char) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut end = environment;
        while !(*end).is_null() {
            end = end.add(1);
        }
        if end < environment.add(2) {
            return;
        }
        *end.sub(2) = core::ptr::null();
        *end.sub(1) = core::ptr::without_provenance(AT_IGNORE);
        *end = core::ptr::null();
    }
}

const AT_IGNORE: usize = 1;

/// What has become of an agent's start.
enum Begun {
    /// It works, or is not to.
    Here,
    /// It may work here, and cannot join the run that is meant.
    Elsewhere(Session),
}

/// Joins the run and leads the program's sites through stubs, in whatever way the agent has come in.
fn begin(told: &Told, hwcap2: usize, unknown: patch::Unknown) -> Begun {
    let Some(session) = told.session.filter(|_| !told.is_off) else {
        return Begun::Here;
    };
    // Of a program that is served without having been named, that is known: there are no more than where it
    // was said, and the host is under as many as all of the user's.
    let may_run = || match told.enabled {
        Some(most) => most <= u64::from(session.filters),
        None => may_run(told, session.filters),
    };
    // Asked last where most are left alone: in a virtual machine each question to the processor takes some us.
    let is_able = || arch::can_save_vector_state() && !arch::under_valgrind();
    let asks_last = told.enabled.is_some();
    if !may_run() || !asks_last && !is_able() {
        return Begun::Here;
    }
    let Some((fixed, sites)) = join(&session, hwcap2, told, || !asks_last || is_able()) else {
        return Begun::Elsewhere(session);
    };
    if fixed.has(flags::RESTRICTED_TRACING) {
        attach::let_host_read(fixed);
    }
    // To read it is a fifth of what it takes to copy from its mapping through the kernel.
    let number = sites.as_ref().map_or(NO_DESCRIPTOR, Open::number);
    fixed.site_descriptor.store(number, Ordering::Relaxed);
    // Who waits for all of it at once has not been loaded: there is no loader, or it has gone on.
    fixed.prepared_tried.store((unknown == patch::Unknown::Waits).into(), Ordering::Relaxed);
    // SAFETY: it is the kernel's, as `Told` promises.
    let program = unsafe { Program::find(told.environment) };
    let visited = patch::whole_process(fixed, unknown, &program);
    fixed.site_descriptor.store(NO_DESCRIPTOR, Ordering::Relaxed);
    drop(sites);
    prepared::close_file(fixed);
    if told.executed().is_some_and(emulators::is_emulator)
        && told.arguments(emulators::ARGUMENTS).any(emulators::is_foreign)
    {
        told.leave();
    }
    let how = match (visited.is_blind, visited.is_unknown) {
        (true, true) => care::UNKNOWN_AT_START,
        (true, false) => care::BLIND_AT_START,
        (false, _) => care::HELPED,
    };
    if visited.is_blind {
        // Whoever executed it has counted on us.
        release::lets_all_go(fixed);
    }
    attach::cares(fixed, how);
    if !visited.is_blind && visited.code >= LARGE && was_cold() && !unchecked::watch_later(fixed, watch::FILE)
    {
        attach::want_watch(fixed, watch::FILE);
    }
    Begun::Here
}

/// Whether the limits on addresses and on memory of the process's own leave room for what the agent needs
/// beside the program.
pub fn has_room() -> bool {
    process::limit(n::RLIMIT_AS) >= least::ADDRESSES && process::limit(n::RLIMIT_DATA) >= least::DATA
}

/// Nearly all of the agent's addresses: its image but for 0.1 MB, the block, the site file, stubs.
const ADDRESSES: usize = arch::POOL_BYTES + state::WINDOW_BYTES + SITE_FILE_GROWTH + patch::FAR_BYTES;
const _: () = assert!((least::SHARE * ADDRESSES) as u64 <= least::ADDRESSES);
const _: () = assert!((least::SHARE * state::WINDOW_BYTES) as u64 <= least::DATA);

/// Whether the limit on addresses leaves room for so many bytes more.
pub fn has_room_for(bytes: usize) -> bool {
    process::limit(n::RLIMIT_AS) >= (least::SHARE * ADDRESSES.saturating_add(bytes)) as u64
}

/// Makes everything of ours in the process, while it has one thread and runs nothing of the program's: the
/// block with the session in it, and the site file, which is open until the start is over. None: this is not
/// the run that is meant, or it is over.
fn join(
    session: &Session,
    hwcap2: usize,
    told: &Told,
    is_able: impl FnOnce() -> bool,
) -> Option<(&'static Fixed, Option<Open>)> {
    let idle_ns = process::idle_ns();
    let Session { host, descriptor, flags, cookie, sites, .. } = *session;
    let address = Address { cookie, host, descriptor, sites };
    let is_lasting = flags & flags::LASTING != 0;
    let key = if is_lasting { attach::executable_key().unwrap_or(0) } else { 0 };
    let is_wanted = |session: &Open| {
        let is_served = key == 0 || was_cold() || !is_left_alone(session, key);
        is_served && is_able()
    };
    let files = session::open(&address, is_wanted).ok()??;
    let fixed = state::create(arch::entry_address(), files.session.number())?;
    fixed.address = address;
    fixed.flags = flags;
    fixed.preload = told.preload;
    fixed.preload_at = told.preload_at;
    fixed.reads_thread_base = AtomicU32::new(arch::may_read_thread_base(hwcap2).into());
    fixed.counts_memory = AtomicU32::new((total_swap() != 0).into());
    let fixed: &'static Fixed = fixed;
    fixed.process().begin();
    if key != 0 {
        fixed.process().executable.store(key, Ordering::Relaxed);
        fixed.process().tells_of_life.store(1, Ordering::Relaxed);
    }
    fixed.calm.store(-1, Ordering::Relaxed);
    let sites = session::open_sites(&files, &address, fixed.header()).ok().map(|(file, size)| {
        map_site_file(fixed, file.number(), size);
        file
    });
    // Who opens the site file has said by then whether the run may be cold.
    opened::begins(fixed);
    counts_own_waits(fixed, idle_ns);
    Some((fixed, sites))
}

/// What the program has waited for while it was being loaded, which nobody of ours has seen, are waits like others.
fn counts_own_waits(state: &Fixed, idle_ns: u64) {
    /// It may have been stopped.
    const LONGEST_NS: u64 = 1_000_000_000;
    let waited = state.header().latest.waited(process::process_id() as u32, idle_ns);
    if let Some(ns) = waited.filter(|_| was_cold()) {
        attach::has_waited(state, ns.min(LONGEST_NS));
        opened::has_waited(state);
    }
}

/// Whether the session says that processes of this executable hardly ever wait, and this is not one that is
/// tried. It is not in our memory yet.
fn is_left_alone(session: &Open, key: u64) -> bool {
    // A write beyond this limit would be a signal.
    if process::limit(n::RLIMIT_FSIZE) < HEADER_BYTES as u64 {
        return false;
    }
    let at = (LIVES_AT + lives::place(key)) as i64;
    let mut word = [0; 8];
    if pread(session.number(), &mut word, at) != Ok(word.len()) {
        return false;
    }
    let then = lives::is_left_alone(u64::from_le_bytes(word), key);
    then.is_some_and(|then| pwrite(session.number(), &then.to_le_bytes(), at).is_ok())
}

/// How much the site file may grow while the process lives, for libraries that are loaded later.
const SITE_FILE_GROWTH: usize = 1 << 20;

fn map_site_file(state: &Fixed, file: i32, size: usize) {
    map_hidden(file, size + SITE_FILE_GROWTH, &state.site_file, &state.site_file_length);
}

/// Maps a file whose bytes nobody is to meet, into the two words; or leaves these as they are.
pub fn map_hidden(file: i32, length: usize, at: &AtomicUsize, its_length: &AtomicUsize) {
    // Whoever reads all that is readable (a collector, a debugger) would read behind the file's end.
    // SAFETY: a new mapping.
    if let Ok(address) = unsafe { memory::map(0, length, memory::PROT_NONE, n::MAP_SHARED, file, 0) } {
        at.store(address, Ordering::Relaxed);
        its_length.store(length, Ordering::Relaxed);
    }
}

/// What the processor can do, as the kernel tells (getauxval(3)), and by which path the program was executed.
const AT_HWCAP2: usize = 26;
const AT_EXECFN: usize = 31;

/// The value of `kind` in the auxiliary vector, which lies behind the environment; 0: none.
///
/// # Safety
/// `environment` is the kernel's: null-terminated, with the vector behind it.
pub unsafe fn auxiliary_value(environment: *const *const c_char, kind: usize) -> usize {
    let mut word = environment.cast::<usize>();
    // SAFETY: the caller's promise; the vector ends with a pair of kind 0.
    unsafe {
        while *word != 0 {
            word = word.add(1);
        }
        word = word.add(1);
        while *word != 0 {
            if *word == kind {
                return *word.add(1);
            }
            word = word.add(2);
        }
    }
    0
}

/// Whether the program had to be read from a disk to be loaded.
fn was_cold() -> bool {
    let (faults, blocks) = major_faults_and_blocks();
    faults >= COLD_FAULTS || blocks >= COLD_BLOCKS
}

/// What the environment says.
struct Told {
    session: Option<Session>,
    /// That of all of the user's programs is meant, where there are no more filters of system calls than this.
    enabled: Option<u64>,
    /// The user wants nothing of us.
    is_off: bool,
    /// How the agent's name begins where it is preloaded, and where the variable stands; 0: there is none.
    preload: [u8; PRELOAD_KEPT],
    preload_at: usize,
    arguments: *const *const c_char,
    environment: *const *const c_char,
}

impl Told {
    /// # Safety
    /// Both are null-terminated arrays of C strings that live as long as the process, the kernel's own: the auxiliary
    /// vector lies behind the environment.
    unsafe fn find(arguments: *const *const c_char, environment: *const *const c_char) -> Told {
        let mut told = Told {
            session: None,
            enabled: None,
            is_off: false,
            preload: [0; PRELOAD_KEPT],
            preload_at: 0,
            arguments,
            environment,
        };
        for index in 0.. {
            // SAFETY: below the terminator.
            let entry = unsafe { *environment.add(index) };
            if entry.is_null() {
                break;
            }
            // SAFETY: a C string.
            let (address, entry) = (entry as usize, unsafe { CStr::from_ptr(entry) }.to_bytes());
            if let Some(value) = value_of(entry, environment::SESSION) {
                told.session = Session::parse(value);
                told.enabled = enabled_filters(value);
            } else if let Some(value) = value_of(entry, "LD_PRELOAD") {
                told.preload = [0; PRELOAD_KEPT];
                told.preload_at = address;
                let name = find_preloaded(value, rooms::is_ours).unwrap_or_default();
                for (to, from) in told.preload.iter_mut().zip(name) {
                    *to = *from;
                }
            } else if value_of(entry, environment::SWITCH) == Some(b"off") {
                told.is_off = true;
            }
        }
        told
    }

    /// Takes the agent out of what the program's own programs are to preload.
    fn leave(&self) {
        // SAFETY: the kernel has laid the variable down there, and nothing of the program's runs yet.
        unsafe { rooms::leave_at_start(self.preload_at) };
    }

    /// By which path the program was executed.
    fn executed(&self) -> Option<&CStr> {
        // SAFETY: as `find` was promised.
        let executed = unsafe { auxiliary_value(self.environment, AT_EXECFN) };
        // SAFETY: a C string of the kernel's.
        (executed != 0).then(|| unsafe { CStr::from_ptr(executed as *const c_char) })
    }

    /// The program's first arguments, at most so many, behind its name.
    fn arguments(&self, most: usize) -> impl Iterator<Item = &CStr> {
        // SAFETY: as `find` was promised: up to the null, which ends this, each is a C string.
        let all = (0..).map(|index| unsafe { *self.arguments.add(index) }).take_while(|one| !one.is_null());
        // SAFETY: as above.
        all.skip(1).take(most).map(|one| unsafe { CStr::from_ptr(one) })
    }
}

fn value_of<'a>(entry: &'a [u8], name: &str) -> Option<&'a [u8]> {
    entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

/// Whether the process is one that the agent may work in: not traced, and under no seccomp filter
/// that the host is not under as well.
fn may_run(told: &Told, host_filters: u32) -> bool {
    filters(told).is_some_and(|filters| filters <= u64::from(host_filters))
}

/// How many seccomp filters the process is under, found out by calls that its loader makes too. None: it is
/// traced, and what it executes goes without the agent, or it cannot be found out.
fn filters(told: &Told) -> Option<u64> {
    let fd = open_at(n::AT_FDCWD, c"/proc/self/status", n::O_RDONLY | n::O_CLOEXEC, 0).ok()?;
    let mut buffer = [0u8; 3072];
    let length = read(fd, &mut buffer);
    let _ = close(fd);
    let length = length.ok()?;
    let status = buffer.get(..length).unwrap_or(&[]);
    let number = |name: &[u8]| {
        let line = status.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(name))?;
        Some(text::decimal(line).0)
    };
    let traced = number(b"TracerPid:\t").unwrap_or(0) != 0;
    let mode = number(b"Seccomp:\t").unwrap_or(0);
    // Before Linux 5.9 there is no count: any filter is then taken for one of the program's own.
    let filters = number(b"Seccomp_filters:\t").unwrap_or(mode);
    if traced {
        told.leave();
    }
    (!traced && mode != 1).then_some(filters)
}
