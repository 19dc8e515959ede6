//! Signals of the speculator's own process.
//!
//! | signal | means |
//! |---|---|
//! | SIGBUS | a page of the mirror is missing ([`crate::absent`]): fill it and go on |
//! | SIGSEGV | the same, or memory that the program has mapped since; otherwise as the others |
//! | SIGSYS | the program's code made a system call at a site without a stub: emulate it |
//! | SIGALRM | look whether the program has gone on without us |
//! | others | a wild jump, a bad address, an illegal instruction: the speculation ends |
//!
//! Handlers run on their own stack, nest (a fill inside an emulated call inside a trap), and may leave
//! for the loop without returning.

use crate::arch::{SignalContext, runahead_signal_return};
use crate::layout::{SIGNAL_STACK, SIGNAL_STACK_BYTES, WINDOW, WINDOW_END};
use crate::mirror::{self, MIRROR, NoPage};
use crate::views::VIEWS;
use crate::{descriptors, emulate, run, shared, stubs};
use core::ffi::c_void;
use core::sync::atomic::Ordering;
use runahead_abi::session::ended;
use runahead_kernel::PAGE;
use runahead_kernel::signals::{self, set_handler};
use runahead_kernel::uapi::general as n;

/// Installs all handlers. False if the kernel refuses.
pub fn install() -> bool {
    let flags = u64::from(n::SA_ONSTACK | n::SA_NODEFER);
    // SAFETY: the signal stack is mapped for this alone.
    if unsafe { signals::set_alternate_stack(SIGNAL_STACK, SIGNAL_STACK_BYTES) }.is_err() {
        return false;
    }
    let handlers: [(u32, signals::Handler); 8] = [
        (n::SIGBUS, missing_page),
        (n::SIGSEGV, bad_address),
        (n::SIGSYS, system_call),
        (n::SIGALRM, alarm),
        (n::SIGILL, broken),
        (n::SIGFPE, broken),
        (n::SIGTRAP, broken),
        (n::SIGPIPE, broken),
    ];
    let _ = signals::set_mask(0);
    handlers.into_iter().all(|(signal, handler)| {
        // SAFETY: the handlers below are written to interrupt anything.
        unsafe { set_handler(signal, handler, flags, runahead_signal_return) }.is_ok()
    })
}

/// Ends the speculation because of a signal, leaving word where and why.
fn fault(signal: u32, instruction: usize, address: usize) -> ! {
    let part = shared::speculator();
    part.fault_instruction.store(instruction as u64, Ordering::Relaxed);
    part.fault_address.store(address as u64, Ordering::Relaxed);
    run::end(ended::FAULT, signal)
}

fn address_of(info: *mut n::siginfo_t) -> usize {
    const ADDRESS_AT: usize = 16;
    // SAFETY: the kernel's layout of siginfo: the address follows three words of header.
    unsafe { info.cast::<u8>().add(ADDRESS_AT).cast::<usize>().read() }
}

unsafe extern "C" fn missing_page(_: i32, info: *mut n::siginfo_t, context: *mut c_void) {
    shared::count(&shared::speculator().counts.signals, 1);
    // SAFETY: we are a handler.
    let instruction = unsafe { SignalContext::new(context) }.instruction();
    fill(n::SIGBUS, instruction, address_of(info));
}

/// Fills a page that is missing, or ends the speculation.
fn fill(signal: u32, instruction: usize, address: usize) {
    if emulate::memory::fill_file_page(address) {
        return;
    }
    match MIRROR.get().fill(mirror::process(), address) {
        Ok(()) => {}
        Err(NoPage::Full) => run::end(ended::MEMORY, 0),
        Err(NoPage::Absent) => fault(signal, instruction, address),
    }
}

unsafe extern "C" fn bad_address(_: i32, info: *mut n::siginfo_t, context: *mut c_void) {
    shared::count(&shared::speculator().counts.signals, 1);
    // SAFETY: we are a handler.
    let context = unsafe { SignalContext::new(context) };
    let address = address_of(info);
    let mirror = MIRROR.get();
    let page = address & !(PAGE - 1);
    // In a view what it says, elsewhere what is known of missing pages.
    let is_missing = VIEWS
        .get()
        .show(page)
        .map_or_else(|| mirror.misses(page) || emulate::memory::misses_file_page(page), |is_there| !is_there);
    if is_missing {
        return fill(n::SIGSEGV, context.instruction(), address);
    }
    // The program may have mapped more since we looked: its heap grew, a thread's stack came.
    if mirror.region_at(address).is_none()
        && address >= LOWEST_MAPPED
        && mirror.adopt_mappings(descriptors::process_directory()).is_ok()
        && mirror.region_at(address).is_some()
    {
        return;
    }
    if mirror.grow_stack(address, context.stack()) {
        return;
    }
    fault(n::SIGSEGV, context.instruction(), address)
}

/// Addresses below are never mapped (`vm.mmap_min_addr`): null pointers need no look.
const LOWEST_MAPPED: usize = 65536;

unsafe extern "C" fn system_call(_: i32, _: *mut n::siginfo_t, context: *mut c_void) {
    // SAFETY: we are a handler.
    let mut context = unsafe { SignalContext::new(context) };
    if (WINDOW..WINDOW_END).contains(&context.instruction()) {
        // The sandbox refused something of the runtime's own: somebody jumped into it.
        fault(n::SIGSYS, context.instruction(), 0);
    }
    shared::count(&shared::speculator().counts.trapped_calls, 1);
    let call = context.call();
    stubs::adopt(context.instruction(), call.number);
    let returned = emulate::call(&call);
    context.set_returned(returned);
}

unsafe extern "C" fn alarm(_: i32, _: *mut n::siginfo_t, context: *mut c_void) {
    // SAFETY: we are a handler.
    let context = unsafe { SignalContext::new(context) };
    // The runtime looks by itself, and is not to be interrupted in the middle of its tables.
    if !(WINDOW..WINDOW_END).contains(&context.instruction()) {
        run::tick();
    }
}

unsafe extern "C" fn broken(signal: i32, info: *mut n::siginfo_t, context: *mut c_void) {
    // SAFETY: we are a handler.
    let context = unsafe { SignalContext::new(context) };
    fault(signal as u32, context.instruction(), address_of(info))
}
