//! Where the bytes of a file that is analysed come from.
//!
//! For a program that waits the file is open meanwhile. For one that runs on it is opened for one piece at a
//! time, by its name, and only when whoever asks says that it may be: nobody is to find it held.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;

use runahead_abi::sites::FileKey;
use rustix::fs::{Advice, fadvise};

use crate::site_file::{file_key, open_to_read};

/// Bytes that are read at a time: who wants the file closed does not wait for long.
const TURN: usize = 256 << 10;

/// Says when a file may be held open.
pub trait Turns {
    /// It is about to be opened: waits until that may be. False: not any more.
    fn begin(&self) -> bool;
    /// It is closed again.
    fn end(&self);
}

/// A file of which pieces are read.
pub trait Pieces {
    /// Fills `bytes` from `offset` on.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// So many bytes from `offset` on will be read soon.
    fn will_read(&self, _offset: u64, _length: u64) {}
}

impl Pieces for File {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, offset)
    }

    fn will_read(&self, offset: u64, length: u64) {
        /// The kernel brings in no more at once than a disk's read-ahead, which is this at least as
        /// distributed (Documentation/block/queue-sysfs.rst).
        const AT_ONCE: u64 = 128 << 10;
        let end = offset.saturating_add(length);
        let mut at = offset;
        while let Some(part) = NonZeroU64::new(AT_ONCE.min(end - at)) {
            // A hint.
            let _ = fadvise(self, at, Some(part), Advice::WillNeed);
            at += part.get();
        }
    }
}

/// A file that is open only while a piece of it is read.
pub struct InTurns {
    path: PathBuf,
    key: FileKey,
    turns: Rc<dyn Turns>,
    /// A piece could not be had: what was made of the others is nothing.
    failed: Cell<bool>,
}

impl InTurns {
    /// `key`: what the file at `path` has to be.
    pub fn new(path: PathBuf, key: FileKey, turns: Rc<dyn Turns>) -> InTurns {
        InTurns { path, key, turns, failed: Cell::new(false) }
    }

    pub fn has_failed(&self) -> bool {
        self.failed.get()
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let file = open_to_read(&self.path)?;
        if file_key(&file.metadata()?) != self.key {
            return Err(io::ErrorKind::NotFound.into());
        }
        FileExt::read_exact_at(&file, bytes, offset)
    }
}

impl Pieces for InTurns {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        if self.failed.get() || !self.turns.begin() {
            self.failed.set(true);
            // Not "interrupted": that is tried again for ever.
            return Err(io::ErrorKind::TimedOut.into());
        }
        let read = self.read(bytes, offset);
        self.turns.end();
        self.failed.set(read.is_err());
        read
    }
}

/// The bytes in order, as `object` reads them.
#[derive(Clone)]
pub struct Source {
    pieces: Rc<dyn Pieces>,
    length: u64,
    position: u64,
}

impl Source {
    pub fn new(pieces: Rc<dyn Pieces>, length: u64) -> Source {
        Source { pieces, length, position: 0 }
    }

    pub fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.pieces.read_exact_at(bytes, offset)
    }

    /// So many bytes from `offset` on will be read soon.
    pub fn will_read(&self, offset: u64, length: u64) {
        self.pieces.will_read(offset, length);
    }
}

impl Read for Source {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.length.saturating_sub(self.position)).unwrap_or(usize::MAX);
        let count = bytes.len().min(left).min(TURN);
        self.pieces.read_exact_at(&mut bytes[..count], self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for Source {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(distance) => self.length.checked_add_signed(distance),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
        };
        self.position = to.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
