//! The program's descriptors, as speculation sees them.
//!
//! Speculation uses the program's numbers; behind each regular file or directory stands a descriptor of
//! our own, opened read-only through `/proc/PID/fd`, so that nothing of the program's is shared: no
//! position moves, no lock and no pipe is held. Descriptors are looked at when they are first used
//! after a sync; which numbers are in use, and so which number an open returns, is read at the sync.
//!
//! What the program gives back is not held: [`SpeculatorPart::held`] says which of its numbers have a
//! descriptor of ours behind them, and one that it closes is let go first (`runahead_abi::release`). Once it
//! has closed any, no number is looked at anew before the next sync. A file without a name is not opened
//! at all: its space comes back when the program closes it.
//!
//! [`SpeculatorPart::held`]: runahead_abi::session::SpeculatorPart::held

use crate::cell::Global;
use crate::emulate::names::file_system;
use crate::rights;
use crate::run::{self, RUN};
use crate::shared::{agent, speculator};
use crate::together::TOGETHER;
use core::ffi::CStr;
use core::sync::atomic::Ordering;
use runahead_abi::log::file_mark;
use runahead_abi::release::{COUNTS, NUMBERS, Seen};
use runahead_abi::session::ended;
use runahead_kernel::files::{self, Stat, open_at, read_link_at};
use runahead_kernel::process::futex_wake;
use runahead_kernel::text::{self, Text};
use runahead_kernel::uapi::general as n;
use runahead_kernel::{Errno, Result};
use runahead_policy::overlay::{File, FileId};
use runahead_policy::scattered::Scattered;
use runahead_policy::waits_alone::WaitsAlone;
use runahead_policy::windows::Windows;

/// Descriptor numbers that speculation can deal with; higher ones end it.
pub const MOST: usize = NUMBERS;

/// Their major number (the kernel's Documentation/admin-guide/devices.txt).
const MEMORY_DEVICES: u64 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Open in the program; not looked at since the sync.
    Unknown,
    Closed,
    File,
    Directory,
    /// Something that speculation may write to (which is swallowed) but cannot read from.
    Sink,
}

/// What came of a look at a descriptor of the program's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// It is closed meanwhile, or may be.
    Gone,
    /// Nothing was opened for it.
    AsBefore,
    /// There is a new descriptor of ours behind it.
    Anew,
}

#[derive(Clone, Copy)]
pub struct Descriptor {
    pub kind: Kind,
    /// Our own descriptor, -1 if there is none.
    pub real: i32,
    /// Opened by speculation itself: gone at the next sync.
    pub speculative: bool,
    /// The program has waited in a read of it, so it may read it.
    pub read_by_program: bool,
    /// Another descriptor of ours, or a mapping, is behind the same open file.
    pub shared: bool,
    /// Where the next read starts (files), bytes; -1: not known yet.
    pub position: i64,
    /// Size of the file when it was looked at, bytes.
    pub size: i64,
    pub device: u64,
    pub inode: u64,
    /// Speculation has written to it: what it would read back is not in the file.
    pub written: bool,
    /// The file of the overlay that it is, if only speculation has it.
    pub made: FileId,
    /// What is written goes behind its end.
    pub appends: bool,
    /// It was seen to start a read without waiting for it: its reads may be started together.
    pub tells: bool,
    /// It may be a terminal.
    pub may_be_terminal: bool,
    /// Whether the kernel is to read ahead for our own descriptor.
    pub scattered: Scattered,
    /// Which of its reads would be waited in alone.
    pub alone: WaitsAlone,
    /// What was asked for of it, where that is not told.
    pub windows: Windows,
}

const NOTHING: Descriptor = Descriptor {
    kind: Kind::Closed,
    real: -1,
    speculative: false,
    read_by_program: false,
    shared: false,
    position: -1,
    size: 0,
    device: 0,
    inode: 0,
    written: false,
    made: FileId::NONE,
    appends: false,
    tells: false,
    may_be_terminal: false,
    scattered: Scattered::new(),
    alone: WaitsAlone::new(),
    windows: Windows::new(),
};

pub struct Table {
    entries: [Descriptor; MOST],
    /// One more than the highest number in use.
    used: usize,
    process_directory: i32,
    descriptor_directory: i32,
    /// The program's working directory, opened when a relative name is first used after a sync.
    working_directory: i32,
    /// It is another than the program's.
    moved: bool,
    /// Closings that the program had begun when the numbers in use were read.
    closings_seen: Seen,
    /// Requests to let a number go that were seen.
    requests_seen: u32,
    /// Numbers in use of which it is known that no user faults are behind them.
    harmless: [u64; MOST / 64],
}

pub static TABLE: Global<Table> = Global::new(Table {
    entries: [NOTHING; MOST],
    used: 0,
    process_directory: -1,
    descriptor_directory: -1,
    working_directory: -1,
    moved: false,
    closings_seen: [0; COUNTS],
    requests_seen: 0,
    harmless: [0; MOST / 64],
});

/// Begins with `directory`, the program's `/proc/PID`.
pub fn start(directory: i32) {
    let table = TABLE.get();
    table.process_directory = directory;
    let flags = n::O_RDONLY | n::O_DIRECTORY | n::O_CLOEXEC;
    table.descriptor_directory = open_at(directory, c"fd", flags, 0).unwrap_or(-1);
}

pub fn process_directory() -> i32 {
    TABLE.get().process_directory
}

/// Forgets what speculation opened, and reads which numbers the program has in use.
pub fn sync() {
    TABLE.get().sync();
}

/// Closes every file and directory that we hold open of the program's: only a sync may follow.
pub fn let_go() {
    TABLE.get().let_go();
}

/// Lets go of descriptors that the program waits with closing. Ends the speculation where that is not all that is held.
pub fn let_go_if_asked() {
    let requests = agent().closing_requests.load(Ordering::Acquire);
    let table = TABLE.get();
    if core::mem::replace(&mut table.requests_seen, requests) != requests {
        table.let_go_of_closing();
    }
}

impl Table {
    fn let_go(&mut self) {
        (0..self.used).for_each(|index| self.forget(index));
        self.leave_working_directory();
    }

    /// Closes our own descriptor behind a number, if there is one, and forgets what was known of it.
    fn forget(&mut self, index: usize) {
        let Some(entry) = self.entries.get_mut(index) else { return };
        let Descriptor { real, speculative, .. } = core::mem::replace(entry, NOTHING);
        if real >= 0 {
            let _ = files::close(real);
            if !speculative {
                speculator().held.remove(index);
            }
        }
    }

    fn let_go_of_closing(&mut self) {
        // What is held back may be of a descriptor that is closed now.
        TOGETHER.get().send_all();
        for index in 0..self.used {
            let entry = self.entries[index];
            if entry.real < 0 || entry.speculative || !agent().closing.has(index) {
                continue;
            }
            if entry.shared {
                run::end(ended::RELEASED, 0);
            }
            self.forget(index);
            // To speculation, which is behind, it is open still; but it is not looked at any more.
            self.entries[index].kind = Kind::Unknown;
        }
        let word = &speculator().let_go;
        word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        futex_wake(word);
    }

    fn leave_working_directory(&mut self) {
        if self.working_directory >= 0 {
            let _ = files::close(self.working_directory);
            self.working_directory = -1;
        }
        self.moved = false;
    }

    fn sync(&mut self) {
        self.leave_working_directory();
        agent().closings.see(&mut self.closings_seen);
        for index in 0..self.used {
            if self.entries[index].speculative {
                self.forget(index);
            } else {
                // What it was is kept: if it still is, our own descriptor serves on.
                let entry = &mut self.entries[index];
                (entry.kind, entry.position) = (Kind::Closed, -1);
                (entry.written, entry.shared) = (false, false);
                entry.windows = Windows::new();
            }
        }
        let harmless = core::mem::replace(&mut self.harmless, [0; MOST / 64]);
        self.read_numbers(&harmless);
        for index in 0..self.used {
            if self.entries[index].kind == Kind::Closed {
                self.forget(index);
            }
        }
    }

    fn read_numbers(&mut self, harmless: &[u64]) {
        let directory = self.descriptor_directory;
        let mut buffer = [0u8; 4096];
        let _ = files::seek(directory, 0, n::SEEK_SET);
        while let Ok(length @ 1..) = files::read_directory(directory, &mut buffer) {
            let mut at = 0;
            while at + 19 < length {
                let record = u16::from_le_bytes([buffer[at + 16], buffer[at + 17]]) as usize;
                let name = buffer.get(at + 19..length).unwrap_or(&[]);
                if name.first().is_some_and(u8::is_ascii_digit) {
                    self.in_use(text::decimal(name).0 as usize, harmless);
                }
                at += record.max(1);
            }
        }
    }

    fn in_use(&mut self, number: usize, harmless: &[u64]) {
        let (word, bit) = (number / 64, 1 << (number % 64));
        if harmless.get(word).is_none_or(|word| word & bit == 0) {
            self.refuse_user_faults(number);
        }
        if let Some(entry) = self.entries.get_mut(number) {
            entry.kind = Kind::Unknown;
            self.harmless[word] |= bit;
            self.used = self.used.max(number + 1);
        }
    }

    /// A program that serves its own page faults must not be told of any of ours: it is left alone for good.
    fn refuse_user_faults(&self, number: usize) {
        const USER_FAULTS: &[u8] = b"anon_inode:[userfaultfd]";
        let path = Text::<32>::new().push(b"fd/").push_number(number as u64);
        let mut target = [0; USER_FAULTS.len()];
        if read_link_at(self.process_directory, path.as_c_str(), &mut target) == Ok(USER_FAULTS) {
            run::leave();
        }
    }

    /// The descriptor `number`, looked at if it was not. EBADF if it is closed; `None` if it is not one
    /// that speculation can deal with.
    pub fn get(&mut self, number: i32) -> Option<Result<&mut Descriptor>> {
        let index = usize::try_from(number).ok()?;
        let kind = self.entries.get(index)?.kind;
        if kind == Kind::Unknown && !self.look(index) {
            return None;
        }
        let entry = &mut self.entries[index];
        Some(if entry.kind == Kind::Closed { Err(Errno::EBADF) } else { Ok(entry) })
    }

    /// Finds out what the program's descriptor is. False if it is gone meanwhile, or may be.
    fn look(&mut self, index: usize) -> bool {
        match self.find(index) {
            Found::Gone => false,
            Found::AsBefore => true,
            Found::Anew => {
                rights::hold();
                true
            }
        }
    }

    /// Looks at the descriptor of the read that the program waits with, while it waits: it may be closed soon after. Nothing
    /// of it is acted on before the next [`rights::hold`].
    pub fn find_posted(&mut self, number: i32) {
        if let Ok(index) = usize::try_from(number)
            && self.entries.get(index).is_some_and(|entry| entry.kind == Kind::Unknown)
        {
            self.find(index);
        }
    }

    /// As [`Table::look`], but for the question about rights.
    fn find(&mut self, index: usize) -> Found {
        let path = Text::<32>::new().push(b"fd/").push_number(index as u64);
        if self.entries[index].real >= 0 {
            let Ok(stat) = files::stat_at(self.process_directory, path.as_c_str(), 0) else {
                return Found::Gone;
            };
            let entry = &mut self.entries[index];
            let same = entry.device == stat.st_dev && entry.inode == stat.st_ino;
            if same && stat.st_nlink > 0 {
                entry.describe(&stat);
                return Found::AsBefore;
            }
            self.forget(index);
        }
        let held = &speculator().held;
        if !agent().closings.may_hold(&self.closings_seen, held, index) {
            return Found::Gone;
        }
        let found = look_at(self.process_directory, path.as_c_str());
        if !found.is_ok_and(|found| found.real >= 0) {
            held.remove(index);
        }
        let Ok(found) = found else { return Found::Gone };
        if found.kind == Kind::Sink {
            self.refuse_user_faults(index);
        }
        self.entries[index] = found;
        if found.real >= 0 {
            // The program may be another by now, that has it open for less than reading.
            rights::copied();
            return Found::Anew;
        }
        Found::AsBefore
    }

    /// The position of the program's file descriptor `number`, read from the program if need be.
    pub fn position(&mut self, number: i32) -> Option<i64> {
        let directory = self.process_directory;
        let index = usize::try_from(number).ok()?;
        let entry = self.entries.get_mut(index)?;
        if entry.position < 0 {
            let path = Text::<32>::new().push(b"fdinfo/").push_number(index as u64);
            let fd = open_at(directory, path.as_c_str(), files::QUIETLY, 0).ok()?;
            let mut buffer = [0u8; 256];
            let length = files::read(fd, &mut buffer);
            let _ = files::close(fd);
            let text = buffer.get(..length.ok()?)?;
            let digits = text.strip_prefix(b"pos:\t")?;
            entry.position = text::decimal(digits).0 as i64;
        }
        Some(entry.position)
    }

    /// Puts a new descriptor at the lowest free number, as the kernel would.
    pub fn add(&mut self, descriptor: Descriptor, lowest: usize) -> Option<i32> {
        let index = (lowest..MOST).find(|&at| self.entries[at].kind == Kind::Closed)?;
        self.put(index, descriptor)
    }

    /// Puts a descriptor at `index`, closing what is there.
    pub fn put(&mut self, index: usize, descriptor: Descriptor) -> Option<i32> {
        self.forget(index);
        *self.entries.get_mut(index)? = Descriptor { speculative: true, ..descriptor };
        self.used = self.used.max(index + 1);
        Some(index as i32)
    }

    pub fn close(&mut self, number: i32) -> Result<()> {
        let entry = usize::try_from(number).ok().and_then(|index| self.entries.get(index));
        match entry {
            None => Err(Errno::EBADF),
            Some(entry) if entry.kind == Kind::Closed => Err(Errno::EBADF),
            Some(_) => {
                self.forget(number as usize);
                Ok(())
            }
        }
    }

    /// A descriptor to resolve relative names from: `directory` is the program's number or AT_FDCWD.
    /// None if there is none.
    pub fn base(&mut self, directory: i32) -> Option<Result<i32>> {
        if directory != n::AT_FDCWD {
            return Some(match self.get(directory)? {
                Ok(entry) if entry.real >= 0 => Ok(entry.real),
                // The kernel does not know it.
                Ok(entry) if !entry.made.is_none() => return None,
                Ok(_) => Err(Errno::ENOTDIR),
                Err(e) => Err(e),
            });
        }
        if self.working_directory < 0 {
            let flags = n::O_PATH | n::O_DIRECTORY | n::O_CLOEXEC;
            self.working_directory = open_at(self.process_directory, c"cwd", flags, 0).ok()?;
            rights::copied();
        }
        Some(Ok(self.working_directory))
    }

    /// Speculation changes its working directory; the next sync changes it back.
    pub fn set_working_directory(&mut self, directory: i32) {
        self.leave_working_directory();
        self.working_directory = directory;
        self.moved = true;
    }

    /// Whether `directory`, a number or AT_FDCWD, means the same to the program.
    pub fn is_programs(&self, directory: i32) -> bool {
        if directory == n::AT_FDCWD {
            return !self.moved;
        }
        let entry = usize::try_from(directory).ok().and_then(|index| self.entries.get(index));
        entry.is_some_and(|entry| !entry.speculative && entry.kind != Kind::Closed)
    }

    /// Tells the file behind `number` from others, as the log does; 0: nothing is known of it.
    pub fn file_mark(&self, number: i32) -> u16 {
        let entry = usize::try_from(number).ok().and_then(|index| self.entries.get(index));
        match entry {
            Some(entry) if entry.real >= 0 => file_mark(entry.device, entry.inode),
            _ => 0,
        }
    }

    /// Whether the number is open in the program, which reads it itself.
    pub fn is_read_by_program(&mut self, number: i32) -> bool {
        // What it is now: by the same number the program may have something else open.
        let Some(Ok(entry)) = self.get(number) else { return false };
        entry.kind == Kind::File && entry.read_by_program && !entry.speculative && entry.real >= 0
    }

    /// Something else of ours is behind the same open file now.
    pub fn is_shared(&mut self, number: i32) {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        if let Some(entry) = self.entries.get_mut(index) {
            entry.shared = true;
        }
    }

    /// Whether speculation has written to the file of this device and inode through any descriptor.
    pub fn was_written(&self, device: u64, inode: u64) -> bool {
        self.entries.iter().take(self.used).any(|e| e.written && e.device == device && e.inode == inode)
    }

    /// The program waits in a read of `number`.
    pub fn note_programs_read(&mut self, number: i32) {
        if let Some(Ok(entry)) = self.get(number) {
            entry.read_by_program = true;
        }
    }

    /// The stalled read's position, which the agent posted.
    pub fn set_posted_position(&mut self, number: i32) {
        let position = RUN.get().position;
        if let Some(Ok(entry)) = self.get(number) {
            entry.position = position;
        }
    }
}

impl Descriptor {
    pub fn new(real: i32, stat: &Stat) -> Descriptor {
        let mut descriptor = Descriptor { real, position: 0, ..NOTHING };
        descriptor.describe(stat);
        descriptor
    }

    /// The file, in one word.
    pub fn identity(&self) -> u64 {
        self.device.rotate_left(40) ^ self.inode
    }

    /// One of a file, or directory, that only speculation has.
    pub fn made(id: FileId, file: &File, flags: u32) -> Descriptor {
        let (kind, written) = if file.is_directory() { (Kind::Directory, false) } else { (Kind::File, true) };
        let File { device, inode, size, .. } = *file;
        let appends = flags & n::O_APPEND != 0;
        Descriptor { kind, position: 0, size, device, inode, written, made: id, appends, ..NOTHING }
    }

    pub fn sink() -> Descriptor {
        Descriptor { kind: Kind::Sink, ..NOTHING }
    }

    fn describe(&mut self, stat: &Stat) {
        self.kind = match stat.st_mode & n::S_IFMT {
            n::S_IFREG => Kind::File,
            n::S_IFDIR => Kind::Directory,
            _ => Kind::Sink,
        };
        // The devices of memory (/dev/null, /dev/zero) are none.
        self.may_be_terminal = stat.st_mode & n::S_IFMT == n::S_IFCHR && stat.st_rdev >> 8 != MEMORY_DEVICES;
        self.size = stat.st_size;
        self.device = stat.st_dev;
        self.inode = stat.st_ino;
    }
}

/// What is behind a name in the program's directory in /proc, with a descriptor of our own if that is a regular file that has a
/// name, or a directory.
///
/// It is looked at before it is opened, and what is opened is what was looked at: the program may have put something else there
/// meanwhile, of which the opening has effects.
pub fn look_at(process_directory: i32, path: &CStr) -> Result<Descriptor> {
    let seen = open_at(process_directory, path, n::O_PATH | n::O_CLOEXEC, 0)?;
    let described = files::fstat(seen).map(|stat| {
        let mut found = NOTHING;
        found.describe(&stat);
        let more = if found.kind == Kind::Directory { n::O_DIRECTORY } else { 0 };
        match found.kind {
            Kind::Sink => {}
            // It can be written to, which is swallowed. What is in it nobody reads.
            Kind::File if stat.st_nlink == 0 => found.written = true,
            _ => {
                let same = Text::<32>::new().push(b"/proc/self/fd/").push_number(seen as u64);
                match open_quietly(n::AT_FDCWD, same.as_c_str().as_ptr() as usize, more) {
                    Ok(real) => {
                        found.real = real;
                        let _ = file_system(real, found.device);
                    }
                    Err(_) => found.kind = Kind::Sink,
                }
            }
        }
        found
    });
    let _ = files::close(seen);
    described
}

/// Opens for reading without leaving a trace where that is allowed: no access time, no terminal, no
/// waiting for a FIFO's other end. `path`: address of the name.
pub fn open_quietly(directory: i32, path: usize, more: u32) -> Result<i32> {
    let flags = files::QUIETLY | more;
    // SAFETY: opening for reading; a bad address is an error.
    match unsafe { files::open_at_address(directory, path, flags | n::O_NOATIME, 0) } {
        // Only the owner may ask for that.
        // SAFETY: as above.
        Err(Errno::EPERM) => unsafe { files::open_at_address(directory, path, flags, 0) },
        answer => answer,
    }
}
