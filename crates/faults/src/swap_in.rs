//! Pages of a program brought in from swap.
//!
//! The kernel is advised that the program will need them (`process_madvise` with `MADV_WILLNEED`): it asks the disk and does not
//! wait. They lie in memory then, first in line to be evicted again, and the program finds them when it faults.
//!
//! **This takes privilege (CAP_SYS_NICE); without it nothing is brought in.** There is a way without: to read the program's
//! memory (`process_vm_readv`) has the kernel bring it in, too. But a page that is read so counts as used twice, which
//! the kernel takes for worth keeping. A memory control group then runs out of pages to evict before the kernel notices
//! (it goes by counts of the group's lists that are up to two seconds old), and *the program is killed* (Linux 6.18, 256 MB
//! in a group of 96 MB: eight of fifteen runs, with two threads as with eight). Reading only every eighth page, around which the
//! kernel reads the others, made a scan no faster than it is alone.
//!
//! Whoever asks never waits: a queue that is full says so. Advice costs some us a page, so threads give it, called one by one,
//! each calling the next as long as there is work.

use crate::PAGE;
use runahead_kernel::files::IoVec;
use runahead_kernel::memory::will_need;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

/// Pages of a request, at most.
const TOGETHER: usize = runahead_policy::swapped::TOGETHER as usize;

/// Requests that wait, at most: those of four streams at their deepest.
const WAITING_MOST: usize = 4 * runahead_policy::swapped::DEPTH_MOST as usize / TOGETHER;

/// It is work for the processor, but where the disk's queue is full.
const THREADS_MOST: usize = 2;

const STACK: usize = 64 * 1024;
/// Addresses, one in each page.
#[derive(Clone, Copy)]
pub struct Pages {
    addresses: [u64; TOGETHER],
    count: usize,
}

impl Pages {
    pub const NONE: Pages = Pages { addresses: [0; TOGETHER], count: 0 };

    /// Adds one; false if there is no room.
    pub fn add(&mut self, address: u64) -> bool {
        let Some(place) = self.addresses.get_mut(self.count) else { return false };
        *place = address;
        self.count += 1;
        true
    }

    pub fn is_full(&self) -> bool {
        self.count == TOGETHER
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// The stretches that they make up, and how many these are. The kernel asks the disk for what it is advised of as one piece together,
    /// and for each piece by itself. (Page by page the four passes of `matvec-swap` took 232 s on four old disks, 251 alone.)
    fn pieces(&self) -> ([IoVec; TOGETHER], usize) {
        let mut pieces = [IoVec { base: 0, length: 0 }; TOGETHER];
        let mut numbers = self.addresses.map(|address| address / PAGE);
        let numbers = numbers.get_mut(..self.count).unwrap_or(&mut []);
        // Of a scan that goes backwards as well.
        numbers.sort_unstable();
        let mut count = 0;
        for stretch in numbers.chunk_by(|one, next| next - one <= 1) {
            if let (Some(piece), [first, .., last] | [first @ last]) = (pieces.get_mut(count), stretch) {
                *piece =
                    IoVec { base: (first * PAGE) as usize, length: ((last - first + 1) * PAGE) as usize };
                count += 1;
            }
        }
        (pieces, count)
    }
}

/// The threads; they end with it.
pub struct SwapIn {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    /// The process that is advised for.
    handle: OwnedFd,
    queue: Mutex<Queue>,
    bell: Condvar,
    over: AtomicBool,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Pages>,
    idle: usize,
}

impl SwapIn {
    /// Fails with EPERM without the privilege.
    pub fn new(process: u32) -> io::Result<SwapIn> {
        let process = Pid::from_raw(process as i32).ok_or(io::ErrorKind::NotFound)?;
        let handle = pidfd_open(process, PidfdFlags::empty())?;
        // Advice about nothing tells whether one may.
        will_need(handle.as_raw_fd(), &[]).map_err(|error| io::Error::from_raw_os_error(error.0))?;
        let shared =
            Shared { handle, queue: Mutex::default(), bell: Condvar::new(), over: AtomicBool::new(false) };
        Ok(SwapIn { shared: Arc::new(shared), threads: Vec::new() })
    }

    /// Has pages brought in. False if too many wait already.
    pub fn bring(&mut self, pages: Pages) -> bool {
        let mut queue = self.shared.queue();
        if queue.waiting.len() >= WAITING_MOST {
            return false;
        }
        queue.waiting.push_back(pages);
        let (waiting, idle) = (queue.waiting.len(), queue.idle);
        drop(queue);
        if idle > 0 {
            if waiting <= 2 {
                self.shared.bell.notify_one();
            }
            return true;
        }
        if self.threads.len() < THREADS_MOST {
            let shared = self.shared.clone();
            let thread = thread::Builder::new().name("runahead-swap-in".into()).stack_size(STACK);
            self.threads.extend(thread.spawn(move || shared.work()));
        }
        // Without a single thread nothing is brought in.
        !self.threads.is_empty()
    }

    /// Forgets what waits.
    pub fn clear(&self) {
        self.shared.queue().waiting.clear();
    }
}

impl Drop for SwapIn {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        self.clear();
        self.shared.bell.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nobody panics while holding it.
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn work(&self) {
        while let Some(pages) = self.next() {
            self.advise(&pages);
        }
    }

    /// What is to be done next; None: it is over.
    fn next(&self) -> Option<Pages> {
        let mut queue = self.queue();
        while !self.over.load(Ordering::Acquire) {
            if let Some(pages) = queue.waiting.pop_front() {
                if !queue.waiting.is_empty() && queue.idle > 0 {
                    self.bell.notify_one();
                }
                return Some(pages);
            }
            queue.idle += 1;
            queue = self.bell.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
            queue.idle -= 1;
        }
        None
    }

    /// Pages that are gone are nothing to us.
    fn advise(&self, pages: &Pages) {
        let (pieces, count) = pages.pieces();
        let mut left = pieces.get(..count).unwrap_or(&[]);
        while !left.is_empty() && !self.over.load(Ordering::Acquire) {
            let mut done = will_need(self.handle.as_raw_fd(), left).unwrap_or(0);
            let taken = left.iter().take_while(|piece| {
                let is_taken = done >= piece.length;
                done = done.saturating_sub(piece.length);
                is_taken
            });
            // One in which something is gone ends the call.
            left = left.get(taken.count() + 1..).unwrap_or(&[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn collected(addresses: impl IntoIterator<Item = u64>) -> Pages {
        let mut pages = Pages::NONE;
        addresses.into_iter().for_each(|address| assert!(pages.add(address)));
        pages
    }

    /// None where it is not allowed.
    fn made() -> Option<SwapIn> {
        SwapIn::new(std::process::id()).inspect_err(|error| eprintln!("SKIPPED: {error}")).ok()
    }

    #[test]
    fn no_more_than_fit() {
        let mut full = collected((0..TOGETHER as u64).map(|page| page * PAGE));
        assert!(full.is_full() && !full.add(99 * PAGE) && full.count() == TOGETHER);
    }

    #[test]
    fn what_lies_together_is_one_piece() {
        let pieces = |pages: &[u64]| -> Vec<(u64, u64)> {
            let (pieces, count) = collected(pages.iter().map(|page| page * PAGE + 8)).pieces();
            let of = |piece: &IoVec| (piece.base as u64 / PAGE, piece.length as u64 / PAGE);
            pieces[..count].iter().map(of).collect()
        };
        assert_eq!(pieces(&[]), []);
        assert_eq!(pieces(&[3]), [(3, 1)]);
        assert_eq!(pieces(&[3, 4, 5, 6, 7, 8, 9, 10]), [(3, 8)]);
        assert_eq!(pieces(&[10, 9, 8, 7, 3, 2, 1, 0]), [(0, 4), (7, 4)]);
        assert_eq!(pieces(&[7, 1, 7, 5]), [(1, 1), (5, 1), (7, 1)]);
        let last = u64::MAX / PAGE;
        assert_eq!(pieces(&[last, 0]), [(0, 1), (last, 1)]);
    }

    #[test]
    fn pages_that_are_gone_do_no_harm() {
        let Some(mut swap_in) = made() else { return };
        assert!(swap_in.bring(collected([0, PAGE, 1 << 50, u64::MAX])));
        let waiting = || swap_in.shared.queue().waiting.len();
        let end = Instant::now() + Duration::from_secs(10);
        while waiting() > 0 && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(waiting(), 0);
    }

    #[test]
    fn a_full_queue_says_so_and_the_end_does_not_wait_for_it() {
        let Some(mut swap_in) = made() else { return };
        let refused = (0..200_000).any(|_| !swap_in.bring(collected((0..8).map(|page| page * PAGE))));
        assert!(refused);
        assert!(swap_in.threads.len() <= THREADS_MOST);
    }

    #[test]
    fn nobody_is_advised_for_who_is_not_there() {
        assert!(SwapIn::new(0).is_err());
        assert!(SwapIn::new(u32::MAX >> 1).is_err());
    }
}
