//! The program goes where the agent's file may not be, or where nobody may serve what it executes: another
//! root, a user namespace, Landlock's domain, no new privileges (with which sandboxes begin).
//!
//! glibc's loader says on standard error which files of `LD_PRELOAD` it could not load. So before such a call
//! the agent takes itself out of the variable, where that stood when the program began: what the program
//! preloads itself stays. So it does before the process asks to be traced, and in one that is traced from its
//! start: the tracer may lead it into a root that nobody else sees (proot). An execution afterwards is looked
//! at by nobody (`attach::give_up`), so it cannot be done there. It is done in a process's own memory alone: a
//! child of vfork has its parent's ([`crate::substitute`]).
//!
//! Everything is read and written through the kernel: whatever is there now is the program's. If the call
//! fails, what the process executes runs plainly.

use crate::attach;
use crate::executions::PRELOAD;
use crate::loader::{OWN_NAME, file_name};
use crate::patch::read_own;
use crate::state::Fixed;
use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering;
use runahead_abi::environment::{find_preloaded, preload_without};
use runahead_kernel::files::{IoVec, is_there, may_read, read_link};
use runahead_kernel::memory::{read_process, write_process};
use runahead_kernel::process::{prctl, process_id};
use runahead_kernel::text::Text;
use runahead_kernel::uapi::general as n;
use runahead_kernel::uapi::prctl::{PR_GET_NO_NEW_PRIVS, PR_SET_NO_NEW_PRIVS};

/// Longest value of the variable, and longest path of a root, that are looked at, with their ends.
pub const STRING_BYTES: usize = 512;

/// The program is about to make this call, which may take rights from it or lead it elsewhere.
pub fn before(state: &Fixed, number: u32, a: [usize; 6]) {
    let is_root = matches!(number, n::__NR_chroot | n::__NR_pivot_root);
    let is_cut_off = match number {
        n::__NR_unshare => a[0] as u32 & n::CLONE_NEWUSER != 0,
        // What is in there is another's.
        n::__NR_setns if a[1] as u32 == 0 => is_room(a[0] as i32),
        n::__NR_setns => a[1] as u32 & (n::CLONE_NEWUSER | n::CLONE_NEWNS) != 0,
        // It may be forbidden to read the agent's file from then on.
        n::__NR_landlock_restrict_self => true,
        n::__NR_prctl => a[0] as u32 == PR_SET_NO_NEW_PRIVS && !has_no_new_privileges(),
        // The tracer may lead its files elsewhere, and sees each call with which an agent is loaded.
        n::__NR_ptrace => true,
        _ => false,
    };
    if !is_root && !is_cut_off {
        return;
    }
    if attach::is_borrowed(state) {
        if is_cut_off {
            state.process().cut_off.store(process_id() as u32, Ordering::Relaxed);
        }
        return;
    }
    let Some(variable) = Variable::find(state.preload_at) else { return };
    if is_cut_off || variable.is_not_below(a[0]) {
        variable.leave();
    }
}

/// The same before the program begins, without a call that a tracer would see.
///
/// # Safety
/// `entry` is 0, or where the kernel has laid the variable down, and nobody else looks at it.
pub unsafe fn leave_at_start(entry: usize) {
    if entry == 0 {
        return;
    }
    let at = entry + PRELOAD.len();
    // SAFETY: the caller's promise: `NAME=value`, with its end.
    let value = unsafe { CStr::from_ptr(at as *const c_char) }.to_bytes();
    let (bytes, mut left) = (value.len(), [0; STRING_BYTES]);
    if bytes < STRING_BYTES {
        preload_without(value, &mut left, is_ours);
        // SAFETY: the value's own bytes, on the process's stack; `value` is not used any more.
        unsafe { core::ptr::copy_nonoverlapping(left.as_ptr(), at as *mut u8, bytes) };
    }
}

/// Whether a descriptor is a mount or user namespace's.
fn is_room(descriptor: i32) -> bool {
    let Ok(descriptor) = u64::try_from(descriptor) else { return false };
    let link = Text::<48>::new().push(b"/proc/thread-self/fd/").push_number(descriptor);
    let mut kind = [0; 8];
    let kind = read_link(link.as_c_str(), &mut kind).unwrap_or_default();
    kind.starts_with(b"mnt:[") || kind.starts_with(b"user:[")
}

fn has_no_new_privileges() -> bool {
    // SAFETY: a question.
    let told = unsafe { prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) };
    told == Ok(1)
}

/// The variable's value, in which the agent is named.
struct Variable {
    at: usize,
    value: [u8; STRING_BYTES],
    bytes: usize,
}

impl Variable {
    /// None: what is at `entry` is no such variable (any more).
    fn find(entry: usize) -> Option<Variable> {
        let mut name = [0; PRELOAD.len()];
        if entry == 0 || !read_own(entry, &mut name) || name != *PRELOAD {
            return None;
        }
        let at = entry + PRELOAD.len();
        let mut value = [0; STRING_BYTES];
        let bytes = read_string(at, &mut value)?;
        let variable = Variable { at, value, bytes };
        variable.own_name()?;
        Some(variable)
    }

    fn value(&self) -> &[u8] {
        self.value.get(..self.bytes).unwrap_or_default()
    }

    fn own_name(&self) -> Option<&[u8]> {
        find_preloaded(self.value(), is_ours)
    }

    /// Whether there is a root at this path of the program's, and the agent's file is not in it.
    fn is_not_below(&self, root: usize) -> bool {
        let mut path = [0; 2 * STRING_BYTES];
        let Some(bytes) = path.get_mut(..STRING_BYTES).and_then(|root_path| read_string(root, root_path))
        else {
            return false;
        };
        if !CStr::from_bytes_until_nul(&path).is_ok_and(is_there) {
            return false;
        }
        // As long as each fits into its half, both with the end fit into the whole.
        let own = self.own_name().unwrap_or_default();
        path.iter_mut().skip(bytes).zip(own).for_each(|(to, from)| *to = *from);
        !CStr::from_bytes_until_nul(&path).is_ok_and(may_read)
    }

    /// Takes the agent out. What is left of the old value are zeros.
    fn leave(&self) {
        let mut left = [0; STRING_BYTES];
        preload_without(self.value(), &mut left, is_ours);
        let local = [IoVec { base: left.as_ptr() as usize, length: self.bytes }];
        let remote = [IoVec { base: self.at, length: self.bytes }];
        // SAFETY: the variable has just been found to name us there, and stays as long. Where it may not be
        // written to the kernel says so.
        let _ = unsafe { write_process(process_id(), &local, &remote) };
    }
}

/// The length of the string that is there, which is read with its end. None: it is longer than `into`, or not
/// to be read.
pub fn read_string(address: usize, into: &mut [u8]) -> Option<usize> {
    let local = [IoVec { base: into.as_mut_ptr() as usize, length: into.len() }];
    let remote = [IoVec { base: address, length: into.len() }];
    // SAFETY: the local piece is as long as said.
    let got = unsafe { read_process(process_id(), &local, &remote) }.ok()?;
    let end = into.get(..got)?.iter().position(|&byte| byte == 0)?;
    // What lies behind it is something else.
    into.get_mut(end..)?.fill(0);
    Some(end)
}

/// What is there of a string, of which the end may not be; the number of its bytes. 0: it is not to be read.
pub fn read_beginning(address: usize, into: &mut [u8]) -> usize {
    let local = [IoVec { base: into.as_mut_ptr() as usize, length: into.len() }];
    let remote = [IoVec { base: address, length: into.len() }];
    // SAFETY: the local piece is as long as said.
    let got = unsafe { read_process(process_id(), &local, &remote) }.unwrap_or(0);
    let got = into.get(..got).unwrap_or_default();
    got.iter().position(|&byte| byte == 0).unwrap_or(got.len())
}

pub fn is_ours(name: &[u8]) -> bool {
    name.starts_with(b"/") && file_name(name) == OWN_NAME
}
