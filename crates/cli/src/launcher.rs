//! The `runahead` command: becomes a command with Runahead beside it.
//!
//! A cold start waits until all of this file has come in, and each of its pages takes the kernel time. So
//! what a plain run does not need is in two others: `runahead-tools` (`main.rs`), the other subcommands, and
//! whatever is out of the ordinary about a command line; `runahead-host` (`host.rs`), what is done for a
//! program once it waits.
//!
//! `main` is the C library's: the standard library's start-up changes what a command inherits
//! (`host::program`).
#![cfg_attr(not(test), no_main)]

mod again;
mod arch;
mod words;

use runahead_host::Failure;
use std::io::Write as _;
use words::Words;

#[global_allocator]
static ALLOCATOR: runahead_host::Allocator = runahead_host::Allocator;

/// Called by the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn main(_count: i32, _arguments: *const *const std::ffi::c_char) -> i32 {
    if again::is_again() {
        return again::run(runahead_host::attend).into();
    }
    let Some(words) = Words::take_apart(runahead_host::arguments()) else {
        let error = runahead_host::become_tools();
        let _ = writeln!(std::io::stderr(), "runahead: cannot run runahead-tools, a part of it: {error}");
        return Failure::OURS.into();
    };
    let allowed = runahead_host::check_filters();
    // What may not be done is not done for the last resort's sake either.
    if allowed.is_ok() {
        runahead_host::arm_last_resort(words.first, words.speaks());
    }
    act(&words, allowed).into()
}

/// Does what the command line says; returns the exit status. The command has taken this process over by then,
/// if it could.
///
/// Not a part of `main`: should there be no room for all that this has on the stack, the last resort is armed
/// by then.
#[inline(never)]
fn act(words: &Words, allowed: Result<(), String>) -> u8 {
    runahead_host::fill_standard_descriptors();
    let failure = runahead_host::run(words.options(), words.first, allowed, runahead_host::attend);
    eprintln!("runahead: {}", failure.message());
    failure.status()
}
