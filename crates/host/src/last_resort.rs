//! What becomes of the launcher when something fails that it cannot answer for: no memory, no stack, a panic, a
//! system call that a filter traps.
//!
//! Whoever types `runahead run -- COMMAND` wants the command. So from the first line of `main` on all of these end in
//! the command, run plainly: this takes nothing but what the kernel has put on the stack, and some static memory. Other
//! processes (the host, the go-between) end as usual. The handlers are put in and taken out by system calls of our own:
//! with musl's functions the first handler lets signals in that may be blocked, and pending.

use crate::program;
use dlmalloc::GlobalDlmalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// Process id of the launcher, while it is on its way to the command; else 0.
static LAUNCHER: AtomicI32 = AtomicI32::new(0);

/// Number of the command's name among our own arguments.
static FIRST: AtomicUsize = AtomicUsize::new(0);

/// Whether it is to be said that the command runs plainly.
static VERBOSE: AtomicBool = AtomicBool::new(false);

/// What the processor, the kernel and `abort` tell a process that cannot go on.
const FATAL: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGSYS, libc::SIGABRT];

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

const NO_ACTION: Action = Action { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 };

/// `SA_RESTORER` of the kernel's x86: it delivers nothing without.
const RESTORER: usize = 0x0400_0000;

/// Where the handler runs: the stack may be what there is too little of.
const STACK_BYTES: usize = 32 << 10;

struct Kept {
    before: [Action; FATAL.len()],
    stack: [u8; STACK_BYTES],
}

/// What the launcher's one thread alone touches.
struct Own(UnsafeCell<Kept>);

// SAFETY: only the launcher's one thread touches it, and its handler, which does not return there.
unsafe impl Sync for Own {}

static KEPT: Own = Own(UnsafeCell::new(Kept { before: [NO_ACTION; FATAL.len()], stack: [0; STACK_BYTES] }));

/// # Safety
/// `new`, if there is one, is an action that this process can bear.
unsafe fn set_action(signal: i32, new: Option<&Action>) -> Action {
    let mut old = NO_ACTION;
    let new = new.map_or(ptr::null(), |new| new as *const Action);
    // SAFETY: both are the kernel's structure, or null.
    unsafe {
        libc::syscall(libc::SYS_rt_sigaction, signal, new, &raw mut old, program::SIGNAL_SET_BYTES);
    }
    old
}

/// Takes what ends a process for what it is to the launcher.
fn catch() {
    // SAFETY: the launcher's one thread, which nobody else has a reference from.
    let kept = unsafe { &mut *KEPT.0.get() };
    let stack = libc::stack_t { ss_sp: kept.stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: STACK_BYTES };
    // SAFETY: memory that stays, and that nobody else uses.
    unsafe { libc::sigaltstack(&stack, ptr::null_mut()) };
    let flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    let action = Action {
        handler: caught as *const () as usize,
        flags: flags as usize | RESTORER,
        restorer: not_to_be_returned_from as *const () as usize,
        mask: 0,
    };
    for (signal, before) in FATAL.into_iter().zip(&mut kept.before) {
        // SAFETY: the handler does not return.
        *before = unsafe { set_action(signal, Some(&action)) };
    }
}

/// The actions of the signals as this process was started with them.
pub fn put_back_signals() {
    // SAFETY: the launcher's one thread; nobody has a reference that is still used.
    let before = unsafe { (*KEPT.0.get()).before };
    if IN_PLACE.swap(false, Ordering::Relaxed) {
        for (signal, before) in FATAL.into_iter().zip(before) {
            // SAFETY: as it was.
            unsafe { set_action(signal, Some(&before)) };
        }
    }
}

/// Whether the handlers are.
static IN_PLACE: AtomicBool = AtomicBool::new(false);

extern "C" fn caught(signal: i32, told: *const libc::siginfo_t, _: *const libc::c_void) {
    // SAFETY: the kernel's.
    let told = unsafe { &*told };
    // Not what somebody sends: that is for the command, which takes this process over.
    // SAFETY: for a signal that a process has sent, its number is there.
    let ours = || unsafe { told.si_code == libc::SI_TKILL && told.si_pid() == libc::getpid() };
    if told.si_code > 0 || ours() {
        become_the_command(b"a fault of the launcher's");
    }
    put_back_signals();
    // SAFETY: sends a signal to this process, which is blocked while its handler runs; the mask is the kernel's.
    unsafe {
        libc::syscall(libc::SYS_kill, libc::getpid(), signal);
        let (none, nothing) = (0u64, ptr::null_mut::<u64>());
        let how = libc::SIG_SETMASK;
        libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const none, nothing, program::SIGNAL_SET_BYTES);
    }
    not_to_be_returned_from()
}

extern "C" fn not_to_be_returned_from() -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(125) }
}

/// From now on what fails in this process ends in the command at argument number `first`. To be called again once that,
/// or whether to say anything, is known for sure.
pub fn arm(first: usize, verbose: bool) {
    if first == 0 || program::arguments().nth(first).is_none() {
        return;
    }
    FIRST.store(first, Ordering::Relaxed);
    VERBOSE.store(verbose, Ordering::Relaxed);
    let process = std::process::id() as i32;
    if LAUNCHER.swap(process, Ordering::Relaxed) != process {
        catch();
        IN_PLACE.store(true, Ordering::Relaxed);
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            become_the_command(b"a panic");
            usual(panic);
        }));
    }
}

/// Becomes the command, plainly, if this process is the launcher. Allocates nothing.
fn become_the_command(reason: &[u8]) {
    // SAFETY: asks for a number.
    if LAUNCHER.load(Ordering::Relaxed) != unsafe { libc::getpid() } {
        return;
    }
    // A failure on this way must not lead here again.
    LAUNCHER.store(0, Ordering::Relaxed);
    let first = FIRST.load(Ordering::Relaxed);
    if VERBOSE.load(Ordering::Relaxed) {
        say(&[b"runahead: running the command plainly: ", reason, b"\n"]);
    }
    // SAFETY: the launcher has one thread; `arm` has found an argument of this number, and `environ` is the
    // C library's null-terminated array, which nobody has changed.
    let error = unsafe { program::execute(first, program::environment_pointer()) };
    let name = program::arguments().nth(first).unwrap_or_default();
    let status = match error {
        libc::ENOENT => 127,
        _ => 126,
    };
    say(&[b"runahead: ", name.as_encoded_bytes(), b": cannot be executed\n"]);
    // SAFETY: nothing is left to be done at the exit.
    unsafe { libc::_exit(status) }
}

fn say(pieces: &[&[u8]]) {
    program::without_write_signals(|| {
        for piece in pieces {
            // SAFETY: the piece is as long as it says. What cannot be said is not said.
            unsafe { libc::write(2, piece.as_ptr().cast(), piece.len()) };
        }
    });
}

/// dlmalloc; where there is no more memory in the launcher, the command is run plainly. musl's allocator asks
/// the kernel for many small mappings: to analyse a C library took 11 ms with it, 6 with this one (by hand,
/// first time in a process).
pub struct Allocator;

impl Allocator {
    fn checked(memory: *mut u8) -> *mut u8 {
        if memory.is_null() {
            become_the_command(b"there is no memory for more");
        }
        memory
    }
}

// SAFETY: passes everything on to dlmalloc, and returns what that returns or not at all.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is dlmalloc's.
        Self::checked(unsafe { GlobalDlmalloc.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is dlmalloc's.
        Self::checked(unsafe { GlobalDlmalloc.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is dlmalloc's.
        Self::checked(unsafe { GlobalDlmalloc.realloc(memory, layout, size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is dlmalloc's.
        unsafe { GlobalDlmalloc.dealloc(memory, layout) }
    }
}
