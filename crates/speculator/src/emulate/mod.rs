//! Emulation of the program's system calls during speculation.
//!
//! Each call ends in one of two ways: a return value, or the end of the speculation ([`Outcome`]). The
//! default is the end: only what is known to be harmless is answered.
//!
//! - [`files`]: reads take what is cached and hint the rest; writes are swallowed;
//! - [`names`]: opens, stats and listings happen for real, read-only, and so warm the kernel's caches;
//! - [`transfers`]: reads whose bytes go to another descriptor;
//! - [`changes`], [`attributes`]: what would be made, removed or changed is noted in the [`overlay`], where
//!   later calls find it; nothing of it is done;
//! - [`memory`]: acts on the mirror;
//! - [`others`]: clocks and identities are real, signals private, waiting ends the speculation.
//!
//! Addresses in arguments are the program's and may be garbage. The runtime touches them like the
//! program would: a page that is missing is filled, a bad one ends the speculation. Where the kernel is
//! to touch them, [`room`] makes the pages be there first.

mod attributes;
mod changes;
pub mod files;
pub mod memory;
pub mod names;
mod others;
mod overlay;
mod transfers;

use crate::arch::Call;
use crate::descriptors::TABLE;
use crate::mirror::{self, MIRROR};
use crate::together::TOGETHER;
use crate::{rights, run, shared};
use runahead_abi::reads::{Target, maps_small_file, of as read_call};
use runahead_abi::registers::Registers;
use runahead_abi::session::ended;
use runahead_kernel::uapi::general as n;
use runahead_kernel::{Errno, Result};

/// How an emulated call ends.
pub enum Outcome {
    Return(isize),
    End(u32),
}

impl From<Result<usize>> for Outcome {
    fn from(result: Result<usize>) -> Self {
        Outcome::Return(match result {
            Ok(value) => value as isize,
            Err(Errno(number)) => -number as isize,
        })
    }
}

impl From<Errno> for Outcome {
    fn from(Errno(number): Errno) -> Self {
        Outcome::Return(-number as isize)
    }
}

/// Ends because of the call itself.
const UNKNOWN: Outcome = Outcome::End(ended::SYSTEM_CALL);

/// Forgets what the last speculation did.
pub fn reset() {
    memory::reset();
    overlay::reset();
}

/// Emulates one call; does not return if that ends the speculation.
pub fn call(call: &Call) -> isize {
    shared::count(&shared::speculator().counts.system_calls, 1);
    if !files::is_read(call.number) {
        TOGETHER.get().send_all();
    }
    run::check();
    if !finds_out_nothing(call) {
        rights::finds_out();
    }
    // Whatever it is, somebody may see it: a read starts the disk.
    if rights::has_found_out() {
        rights::hold()
    } else {
        rights::hold_lately()
    }
    MIRROR.get().keep_calm_off();
    match dispatch(call) {
        Outcome::Return(value) => value,
        Outcome::End(reason) => run::end(reason, call.number as u32),
    }
}

/// Whether the call tells speculation only what the program's own call would tell it, whatever the program
/// may do by now: it acts on the mirror, asks for the time, or reads what the program itself reads.
fn finds_out_nothing(call: &Call) -> bool {
    match call.number as u32 {
        n::__NR_read
        | n::__NR_pread64
        | n::__NR_readv
        | n::__NR_preadv
        | n::__NR_preadv2
        | n::__NR_lseek
        | n::__NR_fstat
        | n::__NR_newfstatat
        | n::__NR_fcntl => TABLE.get().is_read_by_program(call.arguments[0] as i32) && !names::looks_up(call),
        // Whatever is written is swallowed.
        n::__NR_write | n::__NR_pwrite64 | n::__NR_writev | n::__NR_pwritev | n::__NR_close => true,
        n::__NR_mmap => call.arguments[3] as u32 & n::MAP_ANONYMOUS != 0,
        n::__NR_munmap
        | n::__NR_mprotect
        | n::__NR_madvise
        | n::__NR_brk
        | n::__NR_clock_gettime
        | n::__NR_gettimeofday
        | n::__NR_getpid
        | n::__NR_gettid
        | n::__NR_rt_sigprocmask
        | n::__NR_rt_sigaction => true,
        _ => false,
    }
}

/// Looks at the descriptor of the read at which the program has stalled, while it waits there.
pub fn find_posted(registers: &Registers) {
    if let Some(read) = read_call(registers.rax as usize) {
        let arguments = registers.arguments().map(|r| r as usize);
        TABLE.get().find_posted(read.source(&arguments));
        // What it copies to may be closed soon as well.
        if let Target::Descriptor(index) = read.target
            && let Some(&target) = arguments.get(index)
        {
            TABLE.get().find_posted(target as i32);
        }
    } else if let Some(file) = mapped_file(registers.rax as usize, &registers.arguments().map(|r| r as usize))
    {
        TABLE.get().find_posted(file);
    }
}

/// The descriptor of a small file that the call maps.
fn mapped_file(number: usize, arguments: &[usize; 6]) -> Option<i32> {
    (number as u32 == n::__NR_mmap && maps_small_file(arguments)).then_some(arguments[4] as i32)
}

/// Emulates the call at which the program stalled.
pub fn stalled_call(registers: &Registers) -> isize {
    let stalled = Call {
        number: registers.rax as usize,
        arguments: registers.arguments().map(|r| r as usize),
        through_stub: true,
    };
    if let Some(read) = read_call(stalled.number) {
        let source = read.source(&stalled.arguments);
        TABLE.get().note_programs_read(source);
        if read.is_at_own_position(&stalled.arguments) {
            // The agent knows it.
            TABLE.get().set_posted_position(source);
        }
        files::ask_whole_of_stalled(source);
    } else if let Some(file) = mapped_file(stalled.number, &stalled.arguments) {
        TABLE.get().note_programs_read(file);
    }
    run::programs_own(true);
    let returned = call(&stalled);
    run::programs_own(false);
    returned
}

fn dispatch(call: &Call) -> Outcome {
    files::dispatch(call)
        .or_else(|| transfers::dispatch(call))
        .or_else(|| names::dispatch(call))
        .or_else(|| changes::dispatch(call))
        .or_else(|| attributes::dispatch(call))
        .or_else(|| memory::dispatch(call))
        .or_else(|| others::dispatch(call))
        .unwrap_or(UNKNOWN)
}

/// What speculation has added behind the program's break, by address.
pub fn grown_break() -> core::ops::Range<usize> {
    memory::grown_break()
}

/// Makes `length` bytes of mirror at `address` present. False if the program has no memory there.
pub fn room(address: usize, length: usize) -> bool {
    let mirror = MIRROR.get();
    mirror.populate(mirror::process(), address, length)
        || (mirror.adopt_mappings(crate::descriptors::process_directory()).is_ok()
            && mirror.populate(mirror::process(), address, length))
}

/// Copies `bytes` to the program's `address`.
fn put_bytes(address: usize, bytes: &[u8]) {
    for (index, &byte) in bytes.iter().enumerate() {
        // SAFETY: mirror memory, or a fault that ends the speculation.
        unsafe { ((address + index) as *mut u8).write_volatile(byte) };
    }
}

/// Copies a value of plain data to the program's `address`.
fn put<T: Copy>(address: usize, value: &T) {
    // SAFETY: any value is bytes.
    let bytes = unsafe { core::slice::from_raw_parts((value as *const T).cast::<u8>(), size_of::<T>()) };
    put_bytes(address, bytes);
}

/// Reads a value of plain data at the program's `address`.
///
/// # Safety
/// Every bit pattern must be a valid `T`.
unsafe fn get<T: Copy>(address: usize) -> T {
    // SAFETY: mirror memory, or a fault that ends the speculation.
    unsafe { (address as *const T).read_unaligned() }
}
