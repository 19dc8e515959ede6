//! What comes with the installation: which sites the machine's own programs and libraries have, by what `stat`
//! says of them (`runahead_sites::known`).
//!
//! A user's site file knows nothing in a fresh home, and who analyses is another program, which has to be
//! started for that. So what the site file lacks is looked up there, at the start, as long as there is one
//! thread and descriptors are nobody else's.

use crate::loader::{self, OWN_NAME};
use crate::session::{Open, look};
use crate::start::{has_room_for, map_hidden};
use crate::state::{Fixed, NO_DESCRIPTOR};
use core::sync::atomic::Ordering;
use runahead_abi::sites::PREPARED_NAME;
use runahead_abi::trust;
use runahead_kernel::files::{close, open_at};
use runahead_kernel::process::effective_user;
use runahead_kernel::text::Text;
use runahead_kernel::uapi::general as n;

/// Bytes of the longest path that is made.
const PATH_BYTES: usize = 512;

/// A larger file is none of ours: its index has a few thousand slots, and most files no site at all.
const BYTES_MOST: usize = 8 << 20;

/// Opens and maps it, if that was not tried yet. At the start alone.
pub fn look_for(state: &Fixed) {
    if state.prepared_tried.swap(1, Ordering::Relaxed) != 0 {
        return;
    }
    // SAFETY: the loader is calling, as it was not tried yet.
    let Some(own) = (unsafe { loader::own_path() }) else { return };
    let folder = own.get(..own.len() - OWN_NAME.len()).unwrap_or_default();
    if folder.len() + PREPARED_NAME.len() >= PATH_BYTES {
        return;
    }
    let path = Text::<PATH_BYTES>::new().push(folder).push(PREPARED_NAME.as_bytes());
    let flags = n::O_RDONLY | n::O_CLOEXEC | n::O_NONBLOCK | n::O_NOCTTY | n::O_NOFOLLOW;
    let Ok(file) = open_at(n::AT_FDCWD, path.as_c_str(), flags, 0).map(Open::new) else { return };
    let Ok(found) = look(&file) else { return };
    let is_trusted = |user| trust::site_file(&found, user).is_ok();
    let Some(size) = usize::try_from(found.size).ok().filter(|size| (1..=BYTES_MOST).contains(size)) else {
        return;
    };
    if !is_trusted(0) && !is_trusted(effective_user()) {
        return;
    }
    // For libraries that are loaded later.
    if has_room_for(size) {
        map_hidden(file.number(), size, &state.prepared, &state.prepared_length);
    }
    state.prepared_descriptor.store(file.number(), Ordering::Relaxed);
    // Closed at the end of the start.
    core::mem::forget(file);
}

/// The start is over: the descriptors are the program's.
pub fn close_file(state: &Fixed) {
    state.prepared_tried.store(1, Ordering::Relaxed);
    match state.prepared_descriptor.swap(NO_DESCRIPTOR, Ordering::Relaxed) {
        NO_DESCRIPTOR => {}
        file => drop(close(file)),
    }
}
