//! Finding the session and the site file, and making sure that they are what the environment means.
//!
//! Both are descriptors of the host. Its directory in `/proc` is opened once: whatever else
//! gets the host's number meanwhile is not found through it. What has to be true of a file is
//! `runahead_abi::trust`'s; nothing of it is mapped before.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};
use runahead_abi::environment::Cookie;
use runahead_abi::session::{Header, MAGIC, SESSION_BYTES, sites};
use runahead_abi::trust::{self, Found, Refusal};
use runahead_kernel::files::{close, fstat, open_at, pread, read, seals};
use runahead_kernel::process::{effective_user, futex_wait, monotonic_ns};
use runahead_kernel::text::Text;
use runahead_kernel::uapi::general as n;

type Result<T> = core::result::Result<T, Refusal>;

/// Where session and site file are, as the environment says it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Address {
    /// What stands in the session's header.
    pub cookie: Cookie,
    pub host: u32,
    /// Number of the session's descriptor in the host.
    pub descriptor: u32,
    /// Number of the site file's.
    pub sites: u32,
}

/// A descriptor, closed when this is dropped.
pub struct Open(i32);

impl Open {
    /// Takes over a descriptor that is open and nobody else's.
    pub fn new(number: i32) -> Open {
        Open(number)
    }

    pub fn number(&self) -> i32 {
        self.0
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = close(self.0);
    }
}

/// What is open of the host's.
pub struct Files {
    /// The session, for reading and writing.
    pub session: Open,
    /// The host's directory in `/proc`.
    host: Open,
}

/// Opens the session, at the start: it tells that the host is the host. None: `is_wanted`, which is given it,
/// says that we are not to join it.
pub fn open(address: &Address, is_wanted: impl FnOnce(&Open) -> bool) -> Result<Option<Files>> {
    let host = host(address)?;
    let session = open_session(&host, address)?;
    Ok(is_wanted(&session).then_some(Files { session, host }))
}

/// The site file, for reading, and its size in bytes; or why it is not used. Waits until it is there.
pub fn open_sites(files: &Files, address: &Address, header: &Header) -> Result<(Open, usize)> {
    if !is_there(&header.sites) {
        return Err(Refusal::NotThere);
    }
    let host = &files.host;
    let file = descriptor(host, address.sites, n::O_RDONLY)?;
    let found = look(&file)?;
    trust::site_file(&found, effective_user())?;
    Ok((file, found.size as usize))
}

/// Waits until the site file has its descriptor, which takes as long as some names are looked up: who is
/// beside the program opens it while that is loaded. False: it has none, or nobody comes to it.
fn is_there(word: &AtomicU32) -> bool {
    /// Longer than a disk takes on which all of these names are cold.
    const LONGEST_NS: u64 = 200_000_000;
    let end = monotonic_ns().saturating_add(LONGEST_NS);
    while word.load(Ordering::Acquire) == sites::OPENING {
        let now = monotonic_ns();
        if now >= end {
            return false;
        }
        futex_wait(word, sites::OPENING, Some(end - now));
    }
    word.load(Ordering::Acquire) == sites::THERE
}

/// Whether the host, or who has its number now, is there and not stopped: the letter behind its name in
/// `/proc/PID/stat` (proc(5)).
pub fn host_runs(address: &Address) -> bool {
    let path = Text::<32>::new().push(b"/proc/").push_number(u64::from(address.host)).push(b"/stat");
    let mut stat = [0; 64];
    let stat = read_file(path.as_c_str(), &mut stat).unwrap_or_default();
    // A name may hold parentheses, and has 15 bytes at most.
    let state = stat.iter().rposition(|&byte| byte == b')').and_then(|at| stat.get(at + 2));
    state.is_some_and(|state| !b"TtZX".contains(state))
}

/// The beginning of a file; None if it cannot be read.
pub fn read_file<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let file = Open::new(open_at(n::AT_FDCWD, path, n::O_RDONLY | n::O_CLOEXEC, 0).ok()?);
    let length = read(file.number(), buffer).ok()?;
    buffer.get(..length)
}

/// The host's directory in `/proc`, or that of who has its number now.
fn host(address: &Address) -> Result<Open> {
    let path = Text::<32>::new().push(b"/proc/").push_number(u64::from(address.host));
    let flags = n::O_PATH | n::O_DIRECTORY | n::O_CLOEXEC;
    open_at(n::AT_FDCWD, path.as_c_str(), flags, 0).map(Open).map_err(|_| Refusal::NotThere)
}

fn open_session(host: &Open, address: &Address) -> Result<Open> {
    let file = descriptor(host, address.descriptor, n::O_RDWR)?;
    let found = look(&file)?;
    // What has no seals is no file in memory.
    let seals = seals(file.number()).map_err(|_| Refusal::NotSealed)?;
    trust::session(&found, seals, SESSION_BYTES as u64, effective_user())?;
    if is_meant(&file, &address.cookie) { Ok(file) } else { Err(Refusal::AnotherSession) }
}

/// Opens what the host has open as `number`, but nothing that opening does something to.
fn descriptor(host: &Open, number: u32, access: u32) -> Result<Open> {
    let path = Text::<32>::new().push(b"fd/").push_number(u64::from(number));
    // Looked at first: a device may act when it is opened. What is there may be another thing
    // afterwards, and then it is opened without waiting and refused.
    let place = open_at(host.number(), path.as_c_str(), n::O_PATH | n::O_CLOEXEC, 0).map(Open);
    let place = place.map_err(|_| Refusal::NotThere)?;
    if look(&place)?.mode & n::S_IFMT != n::S_IFREG {
        return Err(Refusal::NotAFile);
    }
    let flags = access | n::O_NONBLOCK | n::O_NOCTTY | n::O_CLOEXEC;
    open_at(host.number(), path.as_c_str(), flags, 0).map(Open).map_err(|_| Refusal::NotThere)
}

/// What the kernel says of it.
pub fn look(file: &Open) -> Result<Found> {
    let stat = fstat(file.number()).map_err(|_| Refusal::NotThere)?;
    Ok(Found { mode: stat.st_mode, owner: stat.st_uid, size: stat.st_size as u64 })
}

/// Whether the session's header says what the environment says.
fn is_meant(file: &Open, cookie: &Cookie) -> bool {
    const BEGIN: usize = 24;
    const _: () = assert!(core::mem::offset_of!(Header, cookie) + size_of::<Cookie>() == BEGIN);
    let mut begin = [0u8; BEGIN];
    let mut expected = [0u8; BEGIN];
    let words = [MAGIC, cookie[0], cookie[1]];
    for (to, from) in expected.iter_mut().zip(words.iter().flat_map(|word| word.to_le_bytes())) {
        *to = from;
    }
    pread(file.number(), &mut begin, 0) == Ok(BEGIN) && begin == expected
}
