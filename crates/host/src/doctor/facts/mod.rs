//! What is found by trying.

pub mod command;
pub mod libraries;
pub mod machine;
pub mod place;

use std::io;

/// The number of an error; EIO where it has none.
pub fn number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}
