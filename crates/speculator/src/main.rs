//! The speculator: runs ahead of one program, in the program's own code.
//!
//! A small static binary without libc, started by the host for a program that has stalled. It lives in
//! a window of addresses that programs do not use ([`layout`]), and copies the program's memory to the
//! program's own addresses as it touches it ([`mirror`]). For each post of the agent it brings the
//! mirror up to date, loads the registers and runs the program's machine code at full speed until that
//! meets a system call: those come back to it through the agent's stubs or, where there is none,
//! through seccomp, and are [`emulate`]d.
//!
//! # Why a fresh process and not a clone of the program
//! A fork copies page tables (11 ms for 1 GB) and makes every later write of the program fault (2 us a
//! page); it inherits descriptors, locks and timers that have to be shed; the program can find it among
//! its children. A fresh process costs the program nothing whatever its size, and has nothing that
//! would have to be taken away from it.
//!
//! # Rules
//! - One thread, no allocation, no libc. State is global and small ([`cell::Global`]).
//! - Nothing is trusted: not the program's memory, not its registers, not the slot. Whatever goes wrong
//!   ends the speculation ([`run::end`]), which costs nothing but speed.
//! - The sandbox ([`sandbox`]) does not believe this code either.
#![no_std]
#![no_main]

mod absent;
mod arch;
mod aside;
mod backing;
mod cell;
mod descriptors;
mod emulate;
mod late;
mod layout;
mod ledger;
mod mapped;
mod mirror;
mod missing;
mod notes;
mod pagemap;
mod rights;
mod run;
mod sandbox;
mod shared;
mod stubs;
mod together;
mod trace;
mod traps;
mod usage;
mod vdso;
mod views;

use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering;
use runahead_abi::session::speculator_exit;
use runahead_kernel::Errno;
use runahead_kernel::files::{self, open_at};
use runahead_kernel::memory::{self, PROT_READ, PROT_WRITE};
use runahead_kernel::process;
use runahead_kernel::text::{self, Text};
use runahead_kernel::uapi::general as n;
use runahead_kernel::uapi::prctl;

runahead_kernel::freestanding_memory!();

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    process::exit(speculator_exit::PANIC)
}

/// The descriptor that the host passes: the session.
const SESSION: i32 = 3;

/// Called with the kernel's initial stack: argument count, arguments, environment, auxiliary vector.
extern "C" fn start(stack: *const usize) -> ! {
    // SAFETY: the kernel's layout of a new process.
    let arguments = unsafe { Arguments::read(stack) };
    let Some(arguments) = arguments else { process::exit(speculator_exit::USAGE) };
    prepare_process();
    if let Err(status) = make_room(arguments.process, arguments.slot) {
        process::exit(status)
    }
    // Our own vDSO is the program's as well, only elsewhere: learn its functions while it is there.
    let vdso = vdso::Functions::find(arguments.vdso);
    SETUP.get().replace(Setup { process: arguments.process, vdso });
    // The kernel's stack may lie where the program has something: go on on our own.
    arch::leave_for_server()
}

/// What is still to be done when [`serve`] is entered for the first time.
struct Setup {
    process: i32,
    vdso: vdso::Functions,
}

static SETUP: cell::Global<Option<Setup>> = cell::Global::new(None);

/// The runtime's loop; entered on an empty runtime stack, at the start and after each speculation.
extern "C" fn serve() -> ! {
    if let Some(setup) = SETUP.get().take() {
        match set_up(setup) {
            Ok(()) => {}
            Err(status) => process::exit(status),
        }
    }
    run::serve()
}

fn set_up(setup: Setup) -> Result<(), i32> {
    let directory = program_directory(setup.process)?;
    if !rights::begin(directory) {
        return Err(speculator_exit::OTHER_RIGHTS);
    }
    unmap_the_rest();
    descriptors::start(directory);
    // What cannot be had in time, as something is given back, is not to be waited for: the first post comes later.
    while !run::may_hold(shared::agent().voids.load(Ordering::Acquire)) {}
    make_mirror(directory, &setup.vdso)?;
    run::let_go();
    run::begin();
    if !traps::install() || !sandbox::enter() {
        return Err(speculator_exit::NO_SANDBOX);
    }
    // Whether it may still be read with what has been kept.
    is_the_program(setup.process)
}

/// What the host says on the command line.
struct Arguments {
    process: i32,
    slot: usize,
    /// Address of our own vDSO.
    vdso: usize,
}

impl Arguments {
    /// # Safety
    /// `stack` is the initial stack pointer.
    unsafe fn read(stack: *const usize) -> Option<Arguments> {
        // SAFETY: the kernel's layout: count, that many pointers, null, environment, null, pairs.
        unsafe {
            let count = *stack;
            if count != 3 {
                return None;
            }
            let number = |index: usize| {
                let bytes = CStr::from_ptr(*stack.add(1 + index) as *const c_char).to_bytes();
                text::decimal(bytes).0
            };
            let mut word = stack.add(count + 2);
            while *word != 0 {
                word = word.add(1);
            }
            word = word.add(1);
            let mut vdso = 0;
            const AT_SYSINFO_EHDR: usize = 33;
            while *word != 0 {
                if *word == AT_SYSINFO_EHDR {
                    vdso = *word.add(1);
                }
                word = word.add(2);
            }
            Some(Arguments { process: number(1) as i32, slot: number(2) as usize, vdso })
        }
    }
}

/// Makes the process harmless and last in every queue.
fn prepare_process() {
    // SAFETY: no pointers but a valid parameter block; each call only affects this process.
    unsafe {
        let _ = process::prctl(prctl::PR_SET_PDEATHSIG, n::SIGKILL as usize, 0, 0, 0);
    }
    // First to go when memory runs out.
    if let Ok(fd) = open_at(n::AT_FDCWD, c"/proc/self/oom_score_adj", n::O_WRONLY | n::O_CLOEXEC, 0) {
        files::write_all(fd, b"1000");
        let _ = files::close(fd);
    }
    usage::start();
    // No core file; after the line above, which wants to be the file's owner.
    // SAFETY: as above.
    let _ = unsafe { process::prctl(prctl::PR_SET_DUMPABLE, 0, 0, 0, 0) };
}

fn make_room(process: i32, slot: usize) -> Result<(), i32> {
    shared::PROCESS.store(process, Ordering::Relaxed);
    if slot >= runahead_abi::session::SLOTS || !shared::map_slot(SESSION, slot) {
        return Err(speculator_exit::NO_MEMORY);
    }
    let _ = files::close(SESSION);
    absent::ABSENT.get().begin().map_err(|_| speculator_exit::NO_MIRROR)?;
    let private = |address: usize, length: usize, protection: u32| {
        let flags = n::MAP_PRIVATE | n::MAP_ANONYMOUS | n::MAP_FIXED_NOREPLACE | n::MAP_NORESERVE;
        // SAFETY: a new mapping at a place of our own.
        unsafe { memory::map(address, length, protection, flags, -1, 0) == Ok(address) }
    };
    let is_there = private(layout::STACKS, layout::STACK_BYTES, PROT_READ | PROT_WRITE)
        && private(layout::SIGNAL_STACK, layout::SIGNAL_STACK_BYTES, PROT_READ | PROT_WRITE)
        && private(layout::BOUNCE, layout::BOUNCE_BYTES, PROT_READ | PROT_WRITE);
    if !is_there {
        return Err(speculator_exit::NO_MEMORY);
    }
    emulate::memory::map_arenas().map_err(|error| match error {
        Errno::ENOMEM => speculator_exit::NO_ADDRESSES,
        // Memory that can be written to may not be executed.
        Errno::EACCES | Errno::EPERM => speculator_exit::NO_MIRROR,
        _ => speculator_exit::NO_MEMORY,
    })
}

/// A descriptor for the program's directory in `/proc`, if the process there is the one that posted.
fn program_directory(process: i32) -> Result<i32, i32> {
    let path = Text::<32>::new().push(b"/proc/").push_number(process as u64);
    let flags = n::O_PATH | n::O_DIRECTORY | n::O_CLOEXEC;
    let directory =
        open_at(n::AT_FDCWD, path.as_c_str(), flags, 0).map_err(|_| speculator_exit::NOT_THE_PROGRAM)?;
    is_the_program(process).map(|()| directory)
}

/// Whether the process is the one that posted, and may be read. Process ids mean different things in
/// different namespaces: it is known by the agent's cookie.
fn is_the_program(process: i32) -> Result<(), i32> {
    let agent = shared::agent();
    let mut cookie = 0u64;
    let local = [files::IoVec { base: &raw mut cookie as usize, length: 8 }];
    let address = agent.state_address.load(Ordering::Relaxed) as usize;
    let remote = [files::IoVec { base: address + COOKIE_AT, length: 8 }];
    // SAFETY: eight bytes of ours are overwritten.
    match unsafe { memory::read_process(process, &local, &remote) } {
        Ok(8) if cookie == agent.state_cookie.load(Ordering::Relaxed) => Ok(()),
        Err(Errno::EPERM | Errno::ENOSYS) => Err(speculator_exit::NOTHING_READ),
        _ => Err(speculator_exit::NOT_THE_PROGRAM),
    }
}

/// Offset of the cookie in `agent::state::Fixed`.
const COOKIE_AT: usize = 16;

/// Unmaps what the kernel put outside our window: its stack, vDSO and the like. The program's memory
/// goes there.
fn unmap_the_rest() {
    let Ok(fd) = open_at(n::AT_FDCWD, c"/proc/self/maps", n::O_RDONLY | n::O_CLOEXEC, 0) else {
        return;
    };
    // A process as young as this has about ten lines.
    let mut buffer = [0u8; 8192];
    let mut held = 0;
    while let Ok(length @ 1..) = files::read(fd, &mut buffer[held..]) {
        held += length;
    }
    let _ = files::close(fd);
    for line in buffer[..held].split(|&b| b == b'\n') {
        if let Some(map) = text::maps_line(line)
            && !layout::is_ours(map.start, map.end)
            && !map.name.starts_with(b"[vsyscall")
        {
            // SAFETY: nothing of it is used any more.
            let _ = unsafe { memory::unmap(map.start, map.end - map.start) };
        }
    }
}

fn make_mirror(directory: i32, vdso: &vdso::Functions) -> Result<(), i32> {
    let mirror = mirror::MIRROR.get();
    mirror.create(directory).map_err(|reason| reason.exit_status())?;
    let state = shared::agent().state_address.load(Ordering::Relaxed) as usize;
    if !mirror.set_state_page(state, arch::stub_entry_address()) {
        return Err(speculator_exit::NO_MIRROR);
    }
    vdso.replace(mirror, directory);
    Ok(())
}
