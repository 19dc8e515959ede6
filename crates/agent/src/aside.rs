//! What is cached of a file whose system does not tell.
//!
//! An overlay (a container's root) refuses `RWF_NOWAIT`, and its `cachestat` says 0 whatever there is. A
//! mapping of the file is of the one below, and `mincore` tells of that. So the guard below the agent's stack
//! of this call shows the file for a moment: nobody may touch it either way, it is no new place, and it is as
//! before when the call goes on.
//!
//! Files of large pages (hugetlbfs) map a whole one wherever it fits, and so would replace what lies behind
//! the guard: not from where one may begin.
//!
//! Only in a process of one thread: a child that another one forked in that moment would keep the file mapped.

use crate::arch::Frame;
use core::ffi::CStr;
use core::sync::atomic::Ordering;
use runahead_kernel::PAGE;
use runahead_kernel::files::stat_at;
use runahead_kernel::memory::{self, PROT_NONE};
use runahead_kernel::uapi::general as n;

/// Has a link for each thread, beside the two of any directory.
const THREADS: &CStr = c"/proc/self/task";
const LINKS_OF_ONE: u64 = 3;

/// The smallest of the processor's large pages, bytes.
const LARGE_PAGE: usize = 2 << 20;

/// Whether the page at `place` of a file of `size` bytes is cached; None: that is not to be known.
/// Async-signal-safe where signals are blocked, as they are in a visit.
pub fn is_cached(frame: &Frame, fd: i32, place: u64, size: u64) -> Option<bool> {
    let state = frame.state();
    let guard = frame.guard();
    if guard.is_multiple_of(LARGE_PAGE)
        || place >= size
        || state.no_aside.load(Ordering::Relaxed) != 0
        || !has_one_thread()
    {
        return None;
    }
    let page = PAGE as u64;
    let shown = ask(guard, fd, place & !(page - 1));
    let answer = shown.and_then(|cached| {
        // To who neither owns the file nor may write to it (Linux 5.2) everything is said to be cached,
        // what lies behind its end too. Nothing is cached there.
        let says_all = cached && ask(guard, fd, size.next_multiple_of(page)) != Some(false);
        (!says_all).then_some(cached)
    });
    // Even where nothing was shown: a mapping that fails may leave a hole.
    let flags = n::MAP_PRIVATE | n::MAP_ANONYMOUS | n::MAP_FIXED | n::MAP_NORESERVE;
    // SAFETY: the guard of this call's own area, which nobody touches.
    if unsafe { memory::map(guard, PAGE, PROT_NONE, flags, -1, 0) }.is_err() {
        state.no_aside.store(1, Ordering::Relaxed);
        if shown.is_some() {
            // The file must not stay. What the agent uses of its stack ends far above.
            // SAFETY: as above.
            let _ = unsafe { memory::unmap(guard, PAGE) };
        }
    }
    answer
}

fn has_one_thread() -> bool {
    stat_at(n::AT_FDCWD, THREADS, 0).is_ok_and(|stat| stat.st_nlink == LINKS_OF_ONE)
}

/// Shows one page of a file at the guard, and asks whether it is cached.
fn ask(guard: usize, fd: i32, offset: u64) -> Option<bool> {
    let flags = n::MAP_PRIVATE | n::MAP_FIXED | n::MAP_NORESERVE;
    // SAFETY: the guard of this call's own area, which nobody touches: it is not to be touched there either.
    unsafe { memory::map(guard, PAGE, PROT_NONE, flags, fd, offset) }.ok()?;
    let mut told = [0];
    // It does not fail where something is mapped.
    let is_told = memory::cached_pages(guard, PAGE, &mut told).is_ok();
    let [told] = told;
    Some(is_told && told & 1 != 0)
}
