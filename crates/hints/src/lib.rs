//! Say what your program will read, and have it read ahead.
//!
//! A program that knows its next reads discloses them, in order; threads of the library bring them into the
//! page cache, as many at once as the device can serve. The program then reads as it always did, and waits
//! less. Hints are only hints: they change no result, cost well under a microsecond each, never wait and
//! never fail. A wrong one costs a needless read at most.
//!
//! ```no_run
//! let files = ["a.dat", "b.dat", "c.dat"];
//! runahead_hints::Batch::new().extend(files.iter().map(|file| (file, 0, 0))).send();
//! for file in files {
//!     let data = std::fs::read(file)?;
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Works in any process, under `runahead run` or not. With `RUNAHEAD_HINTS=off` in the environment nothing
//! happens; so too where threads or descriptor tables of their own are forbidden. See docs/hints.md.
//!
//! Every function is thread-safe, and none is async-signal-safe (they allocate). None changes `errno` as C
//! callers see it. After `fork` the child begins anew.

pub use runahead_prefetcher::{Counts, Lookup};
use runahead_prefetcher::{Hint, Place, global};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Discloses a read of bytes `offset..offset + length` of a file; length 0 means to its end.
pub fn hint(path: impl AsRef<Path>, offset: u64, length: u64) {
    let place = Place::Path(path.as_ref().as_os_str().as_bytes());
    global().hint(&[Hint { place, offset, length, token: 0 }]);
}

/// The same of an open file. If it is closed before the hint is taken up, soon after, the hint is dropped.
pub fn hint_file(file: impl AsFd, offset: u64, length: u64) {
    let place = Place::Descriptor(file.as_fd().as_raw_fd());
    global().hint(&[Hint { place, offset, length, token: 0 }]);
}

/// Discloses accesses to memory that is mapped from a file, or may be swapped out. The address is not
/// looked into. Where nothing is mapped nothing is done; the rest of the range is fetched all the same.
pub fn hint_memory<T>(memory: *const [T]) {
    let length = (memory.len() as u64).saturating_mul(size_of::<T>() as u64);
    let offset = memory.cast::<u8>() as u64;
    global().hint(&[Hint { place: Place::Memory, offset, length, token: 0 }]);
}

/// Discloses that a name will be looked up: `stat`, `open`, `readlink`, or the listing of a directory.
pub fn hint_name(path: impl AsRef<Path>, lookup: Lookup) {
    let place = Place::Name(path.as_ref().as_os_str().as_bytes(), lookup);
    global().hint(&[Hint { place, offset: 0, length: 0, token: 0 }]);
}

/// These bytes will not be needed again, by anybody: the page cache may drop them.
pub fn release(path: impl AsRef<Path>, offset: u64, length: u64) {
    global().release(Place::Path(path.as_ref().as_os_str().as_bytes()), offset, length);
}

/// The same of an open file.
pub fn release_file(file: impl AsFd, offset: u64, length: u64) {
    global().release(Place::Descriptor(file.as_fd().as_raw_fd()), offset, length);
}

/// Forgets all hints that have not been carried out.
pub fn cancel_all() {
    global().cancel_all();
}

/// Forgets those that were given with this token.
pub fn cancel_token(token: u64) {
    global().cancel_token(token);
}

/// Forgets those for this path, spelt the same way.
pub fn cancel_path(path: impl AsRef<Path>) {
    global().cancel_path(path.as_ref().as_os_str().as_bytes());
}

/// What became of this process's hints so far.
pub fn counts() -> Counts {
    global().counts()
}

/// Hints that are given together: cheaper than single ones.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    paths: Vec<u8>,
    hints: Vec<Segment>,
    token: u64,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    subject: Subject,
    offset: u64,
    length: u64,
    token: u64,
}

#[derive(Clone, Copy, Debug)]
enum Subject {
    /// Where the path ends in the batch's buffer; it begins where the one before ends.
    PathUpTo(usize),
    Descriptor(i32),
}

impl Batch {
    pub fn new() -> Self {
        Self::default()
    }

    /// The hints that are added from here on have this token.
    pub fn token(mut self, token: u64) -> Self {
        self.token = token;
        self
    }

    /// Adds bytes `offset..offset + length` of a file.
    pub fn add(&mut self, path: impl AsRef<Path>, offset: u64, length: u64) {
        self.paths.extend_from_slice(path.as_ref().as_os_str().as_bytes());
        let subject = Subject::PathUpTo(self.paths.len());
        self.hints.push(Segment { subject, offset, length, token: self.token });
    }

    /// The same of an open file, which has to stay open until the hints are taken up, soon after `send`.
    pub fn add_file(&mut self, file: impl AsFd, offset: u64, length: u64) {
        let subject = Subject::Descriptor(file.as_fd().as_raw_fd());
        self.hints.push(Segment { subject, offset, length, token: self.token });
    }

    /// Adds many.
    pub fn extend<P: AsRef<Path>>(mut self, hints: impl IntoIterator<Item = (P, u64, u64)>) -> Self {
        for (path, offset, length) in hints {
            self.add(path, offset, length);
        }
        self
    }

    pub fn len(&self) -> usize {
        self.hints.len()
    }

    pub fn is_empty(&self) -> bool {
        self.hints.is_empty()
    }

    /// Gives them, and leaves the batch empty.
    pub fn send(&mut self) {
        let mut begin = 0;
        let hints: Vec<Hint> = self
            .hints
            .iter()
            .map(|&Segment { subject, offset, length, token }| {
                let place = match subject {
                    Subject::Descriptor(number) => Place::Descriptor(number),
                    Subject::PathUpTo(end) => {
                        let path = &self.paths[begin..end];
                        begin = end;
                        Place::Path(path)
                    }
                };
                Hint { place, offset, length, token }
            })
            .collect();
        global().hint(&hints);
        self.paths.clear();
        self.hints.clear();
    }
}
