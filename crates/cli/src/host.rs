//! `runahead-host`: what an attendant becomes once there is something to do (`host::attendant`). No command
//! line is taken apart here.
#![cfg_attr(not(test), no_main)]

use std::ffi::c_char;

#[global_allocator]
static ALLOCATOR: runahead_host::Allocator = runahead_host::Allocator;

/// Bytes of stack: the command's limit, which is ours as well, may leave too little.
const ROOM: usize = 1 << 20;

/// Called by the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn main(_count: i32, _arguments: *const *const c_char) -> i32 {
    runahead_host::ask_for_ourselves();
    runahead_host::take_name();
    match std::thread::Builder::new().stack_size(ROOM).spawn(runahead_host::serve_as_told) {
        Ok(served) => drop(served.join()),
        // As many processes as there may be. Better on what stack there is than nobody.
        Err(_) => runahead_host::serve_as_told(),
    }
    // Nobody types this.
    eprintln!("runahead-host: this is a part of runahead, which starts it");
    1
}
