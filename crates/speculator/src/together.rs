//! Reads that are started together, of pages of mapped files and of large files: see [`runahead_policy::together`] for why and when.
//!
//! What is not cached is blank to speculation, whether its read has been started or soon will be. Whatever makes
//! speculation pause or end sends what is held back, and so does every emulated call but reads and seeks: it may close a file.

use crate::cell::Global;
use crate::layout::{BOUNCE, BOUNCE_BYTES, READS, RING};
use crate::missing;
use runahead_kernel::files;
use runahead_kernel::process::monotonic_ns;
use runahead_kernel::submission::{Context, Read};
use runahead_policy::together::{MOST, Together};

const _: () = assert!(MOST == READS);

pub struct Held {
    policy: Together,
    reads: [Read; MOST as usize],
    count: usize,
    /// Opened when it is first wanted: it costs the end of this process 30 ms.
    context: Option<Context>,
    refused: bool,
    /// Whether the latest page was not cached. Where it was, asking first whether the next one is costs more than it saves.
    was_missing: bool,
}

pub static TOGETHER: Global<Held> = Global::new(Held {
    policy: Together::new(),
    reads: [Read::NOTHING; MOST as usize],
    count: 0,
    context: None,
    refused: false,
    was_missing: false,
});

impl Held {
    /// Takes a read of so many bytes (128 KB at most) on, to be started with others. False if some of that is cached, or
    /// it is to be read by itself.
    pub fn holds(&mut self, descriptor: i32, offset: u64, bytes: usize) -> bool {
        if self.refused || !self.was_missing || !missing::starts() {
            return false;
        }
        let sends = self.policy.asks(monotonic_ns());
        if sends && self.count == 0 {
            return false;
        }
        if files::cached_pages(descriptor, offset, bytes as u64) != Ok(0) || !self.open() {
            if sends {
                self.send();
            }
            return false;
        }
        if let Some(place) = self.reads.get_mut(self.count) {
            *place = Read::new(descriptor, offset, BOUNCE, bytes.min(BOUNCE_BYTES), files::RWF_NOWAIT);
            self.count += 1;
        }
        if sends {
            self.send();
        }
        true
    }

    /// A page was there, or not. What is held back waits for others only while nothing is there: behind pages that are, the next one may
    /// be long in coming.
    pub fn found(&mut self, missing: bool) {
        self.was_missing = missing;
        if !missing {
            self.send_all();
        }
    }

    fn open(&mut self) -> bool {
        if self.context.is_none() && !self.refused {
            // SAFETY: nothing else is put there.
            self.context = unsafe { Context::open(MOST as usize, RING) }.ok();
            self.refused = self.context.is_none();
        }
        !self.refused
    }

    /// Starts what is held back.
    fn send(&mut self) {
        let mut pointers = [core::ptr::null(); MOST as usize];
        for (pointer, read) in pointers.iter_mut().zip(&self.reads) {
            *pointer = read;
        }
        let mut left = pointers.get(..core::mem::take(&mut self.count)).unwrap_or(&[]);
        while let (Some(context), [_, after @ ..]) = (&self.context, left) {
            // SAFETY: they write into the bounce buffer, which nobody uses at present.
            left = match unsafe { context.start(left) } {
                Ok(taken @ 1..) => left.get(taken..).unwrap_or(&[]),
                // The first of them was not to be had.
                _ => after,
            };
        }
    }

    /// Starts what is held back, as speculation goes no farther for now.
    pub fn send_all(&mut self) {
        if self.count > 0 {
            self.send();
            self.policy.sent();
        }
    }
}
