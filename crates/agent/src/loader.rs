//! The loader's list of loaded files, and the agent's place in it.
//!
//! A preloaded file comes first in that list. AddressSanitizer's shared run-time (gcc's default) ends a program
//! in which another file with a name is ahead of it, for whatever stands there could take its functions'
//! place. The agent exports none, so there it goes without a name; everywhere else it keeps its own. The check
//! is among the program's first initialisers: that is why the agent asks to come before them (build.rs).

use crate::arch;
use core::ffi::{CStr, c_char};

/// glibc's `struct r_debug`, as far as needed.
#[repr(C)]
pub struct Debug {
    _version: i32,
    first: *mut Loaded,
}

impl Debug {
    pub fn first(&self) -> *const Loaded {
        self.first
    }
}

/// glibc's `struct link_map`, the part that is an interface.
#[repr(C)]
pub struct Loaded {
    pub offset: usize,
    pub name: *const c_char,
    pub dynamic: usize,
    pub next: *mut Loaded,
    _previous: *mut Loaded,
}

/// What the shared run-times are called, gcc's and clang's.
const RUN_TIMES: [&[u8]; 2] = [b"libasan.so", b"libclang_rt.asan"];
pub const OWN_NAME: &[u8] = b"librunahead_agent.so";

/// The path by which the loader has loaded the agent, if that is an absolute one.
///
/// # Safety
/// Called while the loader runs initialisers, so that nobody else changes its list; the path is to be read
/// while that lasts.
pub unsafe fn own_path() -> Option<&'static [u8]> {
    let debug = arch::loader_debug();
    if debug.is_null() {
        return None;
    }
    // SAFETY: the loader's own list; its end is null, its names are C strings.
    unsafe {
        let mut at = (*debug).first;
        while !at.is_null() {
            if !(*at).name.is_null() {
                let path = CStr::from_ptr((*at).name).to_bytes();
                if path.starts_with(b"/") && file_name(path) == OWN_NAME {
                    return Some(path);
                }
            }
            at = (*at).next;
        }
    }
    None
}

/// Takes the agent's name from the list, if AddressSanitizer's run-time is in it.
///
/// # Safety
/// Called while the loader runs initialisers, so that nobody else changes its list.
pub unsafe fn step_aside() {
    let debug = arch::loader_debug();
    if debug.is_null() {
        return;
    }
    let mut own: *mut Loaded = core::ptr::null_mut();
    let mut sanitized = false;
    // SAFETY: the loader's own list; its end is null, its names are C strings.
    unsafe {
        let mut at = (*debug).first;
        while !at.is_null() {
            if !(*at).name.is_null() {
                let file = file_name(CStr::from_ptr((*at).name).to_bytes());
                sanitized |= RUN_TIMES.iter().any(|name| file.starts_with(name));
                if file == OWN_NAME {
                    own = at;
                }
            }
            at = (*at).next;
        }
        if sanitized && !own.is_null() {
            (*own).name = c"".as_ptr();
        }
    }
}

pub fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}
