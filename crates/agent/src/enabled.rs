//! Finding the session of all of the user's programs, where the environment names no other
//! (`runahead_abi::enabled`).
//!
//! The user is who the process acts as: under another one it finds that one's, or none. Where there is none,
//! or the program is one that is to be left out, it runs plainly.

use crate::session::{Open, look};
use crate::start::auxiliary_value;
use core::ffi::{CStr, c_char};
use runahead_abi::enabled::{FILE, FILE_BYTES, PLACES, Published, file_name};
use runahead_abi::environment::Session;
use runahead_abi::trust;
use runahead_kernel::files::{open_at, read, read_link};
use runahead_kernel::process::effective_user;
use runahead_kernel::text::Text;
use runahead_kernel::uapi::general as n;

/// Entry of the auxiliary vector (getauxval(3)): the path that was executed.
const AT_EXECFN: usize = 31;

/// Longest path of an executable of which the name is looked at.
const PATH_BYTES: usize = 1024;

/// The session, if there is one that takes this program.
///
/// # Safety
/// `environment` is the kernel's, with the auxiliary vector behind it.
pub unsafe fn session(environment: *const *const c_char) -> Option<Session> {
    let mut text = [0u8; FILE_BYTES];
    let length = PLACES.iter().find_map(|place| published(place, &mut text))?;
    let published = Published::parse(text.get(..length)?)?;
    // SAFETY: the caller's promise.
    let executed = unsafe { auxiliary_value(environment, AT_EXECFN) };
    let executed = match executed {
        0 => c"",
        // SAFETY: a C string of the kernel's.
        address => unsafe { CStr::from_ptr(address as *const c_char) },
    };
    let mut path = [0u8; PATH_BYTES];
    let file = read_link(c"/proc/self/exe", &mut path).unwrap_or_default();
    // Of a script its own name and its interpreter's.
    let names = [file_name(executed.to_bytes()), file_name(file)];
    published.takes(names.into_iter()).then_some(published.session)
}

/// The length of what is published in a folder of the user's own.
fn published((before, behind): &(&str, &str), text: &mut [u8]) -> Option<usize> {
    let user = effective_user();
    let path = Text::<64>::new().push(before.as_bytes()).push_number(u64::from(user)).push(behind.as_bytes());
    let flags = n::O_PATH | n::O_DIRECTORY | n::O_NOFOLLOW | n::O_CLOEXEC;
    let folder = Open::new(open_at(n::AT_FDCWD, path.as_c_str(), flags, 0).ok()?);
    trust::folder(&look(&folder).ok()?, user).ok()?;
    let name = Text::<16>::new().push(FILE.as_bytes());
    let flags = n::O_RDONLY | n::O_NOFOLLOW | n::O_NONBLOCK | n::O_NOCTTY | n::O_CLOEXEC;
    let file = Open::new(open_at(folder.number(), name.as_c_str(), flags, 0).ok()?);
    trust::published(&look(&file).ok()?, user).ok()?;
    read(file.number(), text).ok()
}
