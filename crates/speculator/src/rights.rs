//! Acting for the program only while it is allowed what we are.
//!
//! The speculator keeps the rights that it was started with; the program may give some of its own
//! up, and be somebody else's from then on. So nothing is looked up, opened or read on behalf of
//! what the program's memory says before it is known that the program is still allowed the same
//! **after** that memory was copied: whatever was copied before has been written by one who was.
//! Each copy marks what is known as old ([`copied`]), and each call of the program's that reaches
//! the outside asks anew if it is ([`hold`]). What reads what the program itself reads, or acts on the
//! mirror alone, finds out nothing that the program could not: it need not ask, as long as the
//! speculation has found out nothing else ([`has_found_out`]).
//!
//! A difference is for good: this process ends.

use crate::cell::Global;
use crate::run;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use runahead_abi::rights::{Rights, STATUS_BYTES, moves_freely};
use runahead_kernel::arch::syscall;
use runahead_kernel::check;
use runahead_kernel::files::{self, open_at};
use runahead_kernel::process::monotonic_ns;
use runahead_kernel::uapi::general as n;

/// Bytes of what a link to a namespace says: its kind and a number.
const LINK: usize = 32;

/// What of a process is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Situation {
    rights: Rights,
    /// Mount, device and inode of its root.
    root: (u64, u32, u32, u64),
    /// Its mounts.
    mounts: [u8; LINK],
    /// Those to whom its user numbers mean something.
    users: [u8; LINK],
    /// It may enter any mount namespace, and take any root.
    moves_freely: bool,
}

impl Situation {
    /// Whether it is allowed the same as the other. Other mounts, or another root, confine only who could not leave them.
    fn is_as(&self, other: &Situation) -> bool {
        let is_confined = (self.mounts, self.root) != (other.mounts, other.root) && !self.moves_freely;
        self.rights == other.rights && self.users == other.users && !is_confined
    }
}

struct Known {
    /// The program's directory in `/proc`, and its `status`.
    directory: i32,
    status: i32,
    first: Option<Situation>,
}

static KNOWN: Global<Known> = Global::new(Known { directory: -1, status: -1, first: None });

/// Something of the program's was copied since it was last asked.
static OLD: AtomicBool = AtomicBool::new(true);

static BUFFER: Global<[u8; STATUS_BYTES]> = Global::new([0; STATUS_BYTES]);

/// Whether the program, whose directory this is, is allowed what we are. Asked before anything is
/// taken from us.
pub fn begin(directory: i32) -> bool {
    let open = |directory, name| open_at(directory, name, n::O_RDONLY | n::O_CLOEXEC, 0);
    let (Ok(status), Ok(own)) = (open(directory, c"status"), open(n::AT_FDCWD, c"/proc/self/status")) else {
        return false;
    };
    let flags = n::O_PATH | n::O_DIRECTORY | n::O_CLOEXEC;
    let Ok(us) = open_at(n::AT_FDCWD, c"/proc/self", flags, 0) else { return false };
    let ours = situation(us, own);
    let _ = files::close(us);
    let _ = files::close(own);
    let first = situation(directory, status);
    *KNOWN.get() = Known { directory, status, first };
    ours.zip(first).is_some_and(|(ours, first)| first.is_as(&ours))
}

/// Something of the program's memory, descriptors or mappings was copied.
pub fn copied() {
    OLD.store(true, Ordering::Relaxed);
}

/// Since the last sync speculation has been told something by the outside that the program has not
/// asked for itself, such as what is in a file that it has not opened.
static FOUND_OUT: AtomicBool = AtomicBool::new(false);

/// Speculation is about to be told something by the outside.
pub fn finds_out() {
    FOUND_OUT.store(true, Ordering::Relaxed);
}

/// Whether it knows more than the program can.
pub fn has_found_out() -> bool {
    FOUND_OUT.load(Ordering::Relaxed)
}

/// What it has found out is gone: the mirror is as the program's memory is.
pub fn is_in_step() {
    FOUND_OUT.store(false, Ordering::Relaxed);
}

/// A page was copied that the program's code goes on with at once. It could lead that anywhere,
/// past [`hold`] too, so it is asked if that was not done for a while: to ask at each of them would
/// take three times as long as to copy it.
pub fn copied_for_code() {
    copied();
    hold_lately();
}

/// Asks if anything was copied, and that was not done for a while.
pub fn hold_lately() {
    if OLD.load(Ordering::Relaxed) && monotonic_ns().saturating_sub(ASKED.load(Ordering::Relaxed)) > LATELY_NS
    {
        hold();
    }
}

/// When it was asked last, and for how long that will do, ns.
static ASKED: AtomicU64 = AtomicU64::new(0);
const LATELY_NS: u64 = 1_000_000;

/// Ends this process, for good, if the program is not allowed any more what it was. To be called
/// when all that is about to be acted on has been copied.
pub fn hold() {
    // Marked first: what a handler copies meanwhile is not known yet.
    if OLD.swap(false, Ordering::Relaxed) {
        ASKED.store(monotonic_ns(), Ordering::Relaxed);
        let known = KNOWN.get();
        let now = situation(known.directory, known.status);
        if now.is_none() || now != known.first {
            run::leave()
        }
    }
}

/// Which bits of a mode the program's new files do not get.
pub fn mask() -> Option<u32> {
    let buffer = BUFFER.get();
    let length = files::pread(KNOWN.get().status, buffer, 0).ok()?;
    runahead_abi::rights::mask(buffer.get(..length)?)
}

/// None where the kernel does not tell all of it (any more).
fn situation(directory: i32, status: i32) -> Option<Situation> {
    let buffer = BUFFER.get();
    let length = files::pread(status, buffer, 0).ok()?;
    let told = buffer.get(..length)?;
    let (rights, moves_freely) = (Rights::of(told)?, moves_freely(told));
    let mut namespaces = [[0u8; LINK]; 2];
    for (name, link) in [c"ns/mnt", c"ns/user"].into_iter().zip(&mut namespaces) {
        let a = [directory as usize, name.as_ptr() as usize, link.as_mut_ptr() as usize, LINK, 0, 0];
        // SAFETY: the name is a C string, the buffer as long as said.
        check(unsafe { syscall(n::__NR_readlinkat as usize, a) }).ok()?;
    }
    let mut root = MaybeUninit::<n::statx>::zeroed();
    let a = [
        directory as usize,
        c"root".as_ptr() as usize,
        (n::AT_STATX_DONT_SYNC | n::AT_NO_AUTOMOUNT) as usize,
        (n::STATX_INO | n::STATX_MNT_ID) as usize,
        root.as_mut_ptr() as usize,
        0,
    ];
    // SAFETY: the name is a C string, the structure the kernel's.
    check(unsafe { syscall(n::__NR_statx as usize, a) }).ok()?;
    // SAFETY: zeros are a valid value, and the kernel has written another one.
    let root = unsafe { root.assume_init() };
    let root = (root.stx_mnt_id, root.stx_dev_major, root.stx_dev_minor, root.stx_ino);
    let [mounts, users] = namespaces;
    Some(Situation { rights, root, mounts, users, moves_freely })
}
