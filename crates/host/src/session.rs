//! The session's memory, from the host's side.

use runahead_abi::owner;
use runahead_abi::session::{
    HEADER_BYTES, Header, MAGIC, SESSION_BYTES, SLOT_BYTES, SLOTS, Slot, slot_offset,
};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr;

/// The session: a memfd, mapped whole. Untouched slots take no memory.
pub struct Session {
    pub descriptor: OwnedFd,
    base: *mut u8,
}

impl Session {
    pub fn create() -> io::Result<Session> {
        // The name shows in the programs' mappings; the speculator knows the session by it.
        let descriptor = memfd_create("runahead-session", MemfdFlags::CLOEXEC)?;
        ftruncate(&descriptor, SESSION_BYTES as u64)?;
        // SAFETY: a new mapping.
        let base = unsafe {
            mmap(
                ptr::null_mut(),
                SESSION_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &descriptor,
                0,
            )
        }?;
        // SAFETY: the mapping is as long as a header, and nobody else has it yet.
        unsafe { (&raw mut (*base.cast::<Header>()).magic).write(MAGIC) };
        Ok(Session { descriptor, base: base.cast() })
    }

    pub fn header(&self) -> &Header {
        // SAFETY: mapped for the life of the session; all of its shared fields are atomics.
        unsafe { &*self.base.cast::<Header>() }
    }

    pub fn slot(&self, index: usize) -> &Slot {
        assert!(index < runahead_abi::session::SLOTS);
        // SAFETY: inside the mapping.
        unsafe { &*self.base.add(slot_offset(index)).cast::<Slot>() }
    }

    /// The session for another thread of this process. It stays mapped as long as the process lives.
    pub fn share(&self) -> Shared {
        Shared { base: self.base }
    }

    /// One slot for another thread of this process, which must be done with it before the slot is freed.
    pub fn share_slot(&self, index: usize) -> SharedSlot {
        SharedSlot(self.slot(index))
    }

    /// Gives a slot's memory back; it reads as zeros afterwards.
    pub fn clear_slot(&self, index: usize) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.descriptor, flags, slot_offset(index) as u64, SLOT_BYTES as u64)?)
    }
}

/// A slot, from another thread.
#[derive(Clone, Copy)]
pub struct SharedSlot(*const Slot);

// SAFETY: the mapping is never undone, and all that is written through it is atomic.
unsafe impl Send for SharedSlot {}

impl SharedSlot {
    pub fn get(&self) -> &Slot {
        // SAFETY: mapped for the life of the process.
        unsafe { &*self.0 }
    }
}

/// The session's memory, from another thread.
#[derive(Clone, Copy)]
pub struct Shared {
    base: *mut u8,
}

// SAFETY: the mapping is never undone, and all that is reached through it is atomic.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    pub fn header(&self) -> &Header {
        // SAFETY: mapped for the life of the process.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// The slots that somebody owns; looking at others would fill them with memory.
    pub fn owned_slots(&self) -> impl Iterator<Item = &Slot> {
        let header = self.header();
        (0..SLOTS).filter(|&index| owner::process(&header.owners[index]).is_some()).map(|index| {
            // SAFETY: inside the mapping.
            unsafe { &*self.base.add(slot_offset(index)).cast::<Slot>() }
        })
    }
}

const _: () = assert!(HEADER_BYTES.is_multiple_of(4096) && SLOT_BYTES.is_multiple_of(4096));
