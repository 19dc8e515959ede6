//! The session's memory, from the host's side.

use crate::supervise::wake;
use runahead_abi::environment::Cookie;
use runahead_abi::owner;
use runahead_abi::session::{
    HEADER_BYTES, Header, MAGIC, SESSION_BYTES, SLOT_BYTES, SLOTS, Slot, slot_offset,
};
use runahead_gate::{Gate, Words};
use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::Ordering;

/// The session: a memfd, mapped whole. Untouched slots take no memory.
pub struct Session {
    pub descriptor: OwnedFd,
    /// What stands in the header, where anybody may write by now.
    pub cookie: Cookie,
    base: *mut u8,
}

impl Session {
    pub fn create() -> io::Result<Session> {
        // The name shows in the programs' mappings; the speculator knows the session by it.
        let name = "runahead-session";
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // What is not to be executed says so where the kernel knows that (Linux 6.3).
        let descriptor =
            memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL).or_else(|_| memfd_create(name, flags))?;
        fchmod(&descriptor, Mode::RUSR | Mode::WUSR)?;
        ftruncate(&descriptor, SESSION_BYTES as u64)?;
        // Whoever has it open may write to it, but nobody takes a page away from those who have it mapped.
        fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let cookie = random()?;
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
        let header = base.cast::<Header>();
        // SAFETY: the mapping is as long as a header, and nobody else has it yet.
        unsafe {
            (&raw mut (*header).magic).write(MAGIC);
            (&raw mut (*header).cookie).write(cookie);
        }
        Ok(Session { descriptor, cookie, base: base.cast() })
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

    /// Through which whatever is the programs' is opened.
    pub fn gate(&self) -> Gate {
        // SAFETY: mapped for the life of the process, and all of it that is used so is atomic.
        let header: &'static Header = unsafe { &*self.base.cast::<Header>() };
        let Header { releasing, host_files: files, host_places: places, host_nameless: nameless, .. } =
            header;
        Gate::new(Box::leak(Box::new(Words { releasing, files, places, nameless })))
    }

    /// The session for another thread of this process. It stays mapped as long as the process lives.
    pub fn share(&self) -> Shared {
        Shared { base: self.base }
    }

    /// One slot for another thread of this process, which must be done with it before the slot is freed.
    pub fn share_slot(&self, index: usize) -> SharedSlot {
        SharedSlot(self.slot(index))
    }

    /// The speculator of a slot is gone, and with it whatever it held.
    pub fn holds_nothing(&self, index: usize) {
        self.slot(index).speculator.held.clear();
        let word = &self.header().holders.speculators[index].0;
        if word.swap(0, Ordering::AcqRel) != 0 {
            wake(word);
        }
    }

    /// Gives a slot's memory back; it reads as zeros afterwards.
    pub fn clear_slot(&self, index: usize) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.descriptor, flags, slot_offset(index) as u64, SLOT_BYTES as u64)?)
    }
}

/// What tells this session from all others.
fn random() -> io::Result<Cookie> {
    let mut bytes = [0u8; size_of::<Cookie>()];
    // SAFETY: as many bytes of ours are written.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    // So few come whole, or not at all.
    if got != bytes.len() as isize {
        return Err(io::Error::last_os_error());
    }
    let [first, second] = [0, 8].map(|at| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    });
    // Zeros are none.
    Ok([first | 1, second])
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
    pub fn header(&self) -> &'static Header {
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
