//! Rings our own doorbell when a process ends, however it does: what is held open on its behalf is closed
//! then, and not at the next look.

use crate::futex::wake;
use crate::session::Shared;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of the stack of a thread that only waits.
const STACK: usize = 32 * 1024;

/// Ends that are taken at once.
const EVENTS: usize = 64;

/// One thread for all processes.
#[derive(Default)]
pub struct Ends {
    watched: Option<Arc<OwnedFd>>,
}

impl Ends {
    /// Watches a process until it ends or its descriptor is closed. Where that cannot be, the next look finds
    /// the end.
    pub fn watch(&mut self, session: &Shared, process: &OwnedFd) {
        if self.watched.is_none() {
            self.watched = begin(session);
        }
        if let Some(watched) = &self.watched {
            // Once each.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            let _ = epoll::add(watched, process.as_fd(), epoll::EventData::new_u64(0), flags);
        }
    }
}

fn begin(session: &Shared) -> Option<Arc<OwnedFd>> {
    let watched = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).ok()?);
    let (ends, session) = (watched.clone(), *session);
    let thread = std::thread::Builder::new().name("runahead-watch".into()).stack_size(STACK);
    let begun = thread.spawn(move || {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            match epoll::wait(&*ends, spare_capacity(&mut events), None) {
                Ok(_) => {
                    let doorbell = &session.header().doorbell;
                    doorbell.fetch_add(1, Ordering::Release);
                    wake(doorbell);
                }
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    });
    begun.is_ok().then_some(watched)
}
