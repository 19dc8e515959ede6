//! Our own files at a cold start.
//!
//! Who needs Runahead most starts it when little is cached, and then it waits for the disk like everybody else: its
//! code came in by page faults, 128 KB each, one after the other; 2.3 of the 3 MB that the launcher was then, and all of the
//! agent and the site file. So the first thing that a launcher does which was not cached is to ask for the rest
//! of itself, and the first thing that its host does is to ask for the other files, all at once. (On a
//! local disk, a cold `perl -e 1`, medians of 14 in alternation, twice: alone 1.8 and 2.2 ms, with Runahead 5.9 and 6.9
//! without this, 5.4 and 5.8 with it. What it saves is waits, so a slower disk should show more; not measured.)
//!
//! Whether the start was cold the kernel tells for one system call: a process that is running already has had a major
//! fault for its own code, or it has not.

use crate::reading::{self, CHUNK};
use runahead_abi::sites::PREPARED_NAME;
use runahead_kernel::memory::advise;
use runahead_kernel::process::major_faults_and_blocks;
use runahead_kernel::uapi::general as n;
use std::ffi::CStr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest of our files, with room to grow: nobody's disk is kept busy for a mistake.
const LONGEST: u64 = 16 << 20;

static COLD: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    // The linker's: where the executable begins in memory, and where what is in the file ends.
    static __executable_start: u8;
    static edata: u8;
}

/// If this process had to wait for its own code, asks for the rest of it. Costs a system call where everything is cached.
///
/// To be called before the standard library starts. (Where that can be, the executable's entry has asked
/// before: `cli::arch`.)
pub fn ask_for_ourselves() {
    if major_faults_and_blocks().0 == 0 {
        return;
    }
    COLD.store(true, Ordering::Relaxed);
    let begin = (&raw const __executable_start) as usize;
    let length = ((&raw const edata) as usize).saturating_sub(begin).min(LONGEST as usize);
    for offset in (0..length).step_by(CHUNK as usize) {
        let chunk = (CHUNK as usize).min(length - offset);
        // SAFETY: the range is our own code and data, and the advice changes nothing but the page cache.
        let _ = unsafe { advise(begin + offset, chunk, n::MADV_WILLNEED) };
    }
    ask_for_agents_files();
}

/// What the command's agent waits for first once it is loaded: its own file, and what is known of the machine's
/// programs, which it searches page by page. They come while we wait for ourselves. Takes no memory.
fn ask_for_agents_files() {
    const FOLDERS: [&[u8]; 2] = [b"", b"../lib/runahead/"];
    let mut path = [0u8; libc::PATH_MAX as usize];
    // SAFETY: a string, and as many bytes as are said.
    let length = unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), path.len()) };
    let own = path.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default();
    let Some(behind) = own.iter().rposition(|&byte| byte == b'/').map(|slash| slash + 1) else { return };
    for folder in FOLDERS {
        let mut ask = |name: &[u8]| match put(&mut path, behind, &[folder, name, b"\0"]) {
            true => ask_for_first(&path),
            false => false,
        };
        if ask(AGENT) {
            ask(PREPARED_NAME.as_bytes());
            return;
        }
    }
}

/// Puts these parts into `path`, from `at` on; false if there is no room.
fn put(path: &mut [u8], mut at: usize, parts: &[&[u8]]) -> bool {
    for part in parts {
        let Some(to) = path.get_mut(at..at + part.len()) else { return false };
        to.copy_from_slice(part);
        at += part.len();
    }
    true
}

/// Asks for the first pieces of the file at `path`, which ends with a null; false if it cannot be opened.
fn ask_for_first(path: &[u8]) -> bool {
    let Ok(path) = CStr::from_bytes_until_nul(path) else { return false };
    // SAFETY: a string; the descriptor is ours and closed at once.
    unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = libc::open(path.as_ptr(), flags);
        if file < 0 {
            return false;
        }
        for chunk in 0..FIRST_CHUNKS {
            libc::readahead(file, chunk * CHUNK as i64, CHUNK as usize);
        }
        libc::close(file);
    }
    true
}

const AGENT: &[u8] = b"librunahead_agent.so";

/// Pieces that are asked for of each: more than the agent has, and than what is known of a machine's programs takes. None is
/// read behind a file's end.
const FIRST_CHUNKS: i64 = 8;

/// Whether our own code had to be waited for.
pub(crate) fn were_cold() -> bool {
    COLD.load(Ordering::Relaxed)
}

/// Asks for all of these files, if our own code had to be waited for.
pub(crate) fn ask_for<'a>(files: impl IntoIterator<Item = &'a Path>) {
    if !COLD.load(Ordering::Relaxed) {
        return;
    }
    for file in files {
        if let Some(file) = reading::open(file) {
            reading::ask(&file, LONGEST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_code_lies_between_the_linkers_marks() {
        let here = our_own_code_lies_between_the_linkers_marks as *const () as usize;
        let (begin, end) = ((&raw const __executable_start) as usize, (&raw const edata) as usize);
        assert!(begin < here && here < end, "{begin:#x} {here:#x} {end:#x}");
        assert!(((end - begin) as u64) < LONGEST);
    }
}
