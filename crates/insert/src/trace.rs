//! Tracing a process as far as the first instruction of the program that it executes next (ptrace(2)).
//!
//! All of it belongs to one thread: the kernel takes requests from the thread that has seized a process only, and lets the process go
//! when that thread ends.

use crate::arch::{self, Start};
use crate::image::Image;
use crate::process::{Bytes, bytes_at};
use crate::stack::Block;
use runahead_abi::insertion::{Call, Inserted};
use std::io;
use std::time::{Duration, Instant};

/// Why nothing was put into a program.
#[derive(Debug)]
pub enum Refusal {
    /// The kernel does not let it be traced, looked at or changed.
    Forbidden(io::Error),
    /// It is to be careful with its environment, or is another machine's.
    NotForUs,
    /// No place for some instructions was found in it.
    NoPlace,
    /// Its arguments and environment leave no room below its stack pointer.
    NoRoom,
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal::Forbidden(error)
    }
}

/// A process that is traced and runs.
#[derive(Debug)]
pub struct Traced {
    process: libc::pid_t,
    /// Only the thread that has seized it may use this.
    _thread: std::marker::PhantomData<*const ()>,
}

/// How long it is looked for the stop often, and how often; then less often.
const QUICKLY: Duration = Duration::from_millis(20);
const STEP_QUICKLY: Duration = Duration::from_micros(50);
const STEP: Duration = Duration::from_millis(1);

impl Traced {
    /// Begins. The process does not notice. Fails where the kernel forbids it or somebody else traces it.
    pub fn seize(process: u32) -> io::Result<Traced> {
        let process =
            libc::pid_t::try_from(process).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        let options = libc::PTRACE_O_TRACEEXEC as usize;
        request(libc::PTRACE_SEIZE, process, 0, options)?;
        Ok(Traced { process, _thread: std::marker::PhantomData })
    }

    /// Waits until the next program is there, for `longest` at most. None: something else has come, and the process goes on
    /// with it; or nothing has, and it is let go when the calling thread ends.
    pub fn wait_for_program(self, longest: Duration) -> Option<Fresh> {
        let begun = Instant::now();
        loop {
            let mut status = 0;
            // SAFETY: the status is ours.
            let who = unsafe { libc::waitpid(self.process, &mut status, libc::WNOHANG | libc::__WALL) };
            match who {
                0 if begun.elapsed() > longest => return None,
                0 => std::thread::sleep(if begun.elapsed() < QUICKLY { STEP_QUICKLY } else { STEP }),
                who if who == self.process => return self.stopped(status),
                _ => return None,
            }
        }
    }

    fn stopped(self, status: i32) -> Option<Fresh> {
        if !libc::WIFSTOPPED(status) {
            // It is over; who waits for it is told so now.
            return None;
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        if event == libc::PTRACE_EVENT_EXEC {
            return Some(Fresh { process: self.process, is_let_go: false });
        }
        // A signal that is about to be delivered is; who is to stand still goes on standing still.
        let signal = if event == 0 { signal } else { 0 };
        let _ = request(libc::PTRACE_DETACH, self.process, 0, signal as usize);
        None
    }
}

/// A process with a new program in it that has not begun, until this is dropped.
#[derive(Debug)]
pub struct Fresh {
    process: libc::pid_t,
    is_let_go: bool,
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if !self.is_let_go {
            let _ = request(libc::PTRACE_DETACH, self.process, 0, 0);
        }
    }
}

impl Fresh {
    fn memory(&self) -> Bytes {
        Bytes(self.process)
    }

    fn registers(&self) -> io::Result<libc::user_regs_struct> {
        // SAFETY: plain words, for which zeros are a value.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let mut place =
            libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of_val(&registers) };
        request(libc::PTRACE_GETREGSET, self.process, GENERAL, (&raw mut place) as usize)?;
        if place.iov_len != size_of_val(&registers) {
            return Err(io::Error::from_raw_os_error(libc::ENOTSUP));
        }
        Ok(registers)
    }

    /// The one call after which the process does something else.
    fn set_registers(&self, mut registers: libc::user_regs_struct) -> io::Result<()> {
        let mut place =
            libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of_val(&registers) };
        request(libc::PTRACE_SETREGSET, self.process, GENERAL, (&raw mut place) as usize)
    }

    fn start(&self) -> Result<(libc::user_regs_struct, Start, Block), Refusal> {
        let registers = self.registers()?;
        let start = arch::start(&registers).ok_or(Refusal::NotForUs)?;
        let block = Block::read(self.memory(), start.stack)?;
        if block.is_secure() {
            return Err(Refusal::NotForUs);
        }
        Ok((registers, start, block))
    }

    /// The environment that the program was started with. Fails where it may not be looked at.
    pub fn environment(&self) -> Result<Vec<Vec<u8>>, Refusal> {
        let (_, _, block) = self.start()?;
        Ok(block.environment(self.memory()))
    }

    /// Gives the program two more variables, at the end of its environment.
    pub fn add_variables(self, variables: [&[u8]; 2]) -> Result<(), Refusal> {
        let (mut registers, start, block) = self.start()?;
        let (stack, bytes) = block.with_variables(start.stack, variables).ok_or(Refusal::NoRoom)?;
        self.memory().write(stack, &bytes)?;
        arch::set_stack(&mut registers, stack);
        Ok(self.set_registers(registers)?)
    }

    /// Has the program begin with the image's start; `session`: what that is told (`environment::Session`).
    pub fn put_in(self, image: &Image, session: &str) -> Result<(), Refusal> {
        let (mut registers, start, block) = self.start()?;
        let place = self.place(&block, start.entry)?.ok_or(Refusal::NoPlace)?;
        let mut told = image.told(session).ok_or(Refusal::NoRoom)?;
        told.entry = start.entry;
        told.stack = start.stack;
        told.code = place.code;
        told.code_bytes = arch::code().len() as u64;
        (told.pages, told.pages_bytes, told.protection) = (place.pages, place.pages_bytes, place.protection);
        let layout = Layout::below(start.stack, image);
        told.scratch = layout.begin;
        told.scratch_bytes = start.stack - layout.begin;
        let calls = image.calls(layout.path, arch::NUMBERS);
        self.memory().write(layout.begin, &layout.bytes(&told, &calls, image.path()))?;
        self.write_code(place.code, arch::code())?;
        arch::enter(&mut registers, place.code, layout.calls, layout.told);
        Ok(self.set_registers(registers)?)
    }

    /// Words of code, whatever its protection.
    fn write_code(&self, address: u64, code: &[u8]) -> io::Result<()> {
        for (word, at) in code.chunks(8).zip((address..).step_by(8)) {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            request(libc::PTRACE_POKEDATA, self.process, at as usize, usize::from_le_bytes(whole))?;
        }
        Ok(())
    }

    /// A place for the instructions where nothing is: in the last page of some code, behind its end; or in the kernel's own code
    /// for all programs, which ends with zeros.
    fn place(&self, block: &Block, entry: u64) -> Result<Option<Place>, Refusal> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.process))?;
        let mut mappings: Vec<Mapping> = maps.lines().filter_map(Mapping::parse).collect();
        // The program's own first, then the kernel's.
        mappings.retain(|m| m.is_code && (m.range().contains(&entry) || Some(m.start) == block.vdso()));
        mappings.sort_by_key(|mapping| Some(mapping.start) == block.vdso());
        let wanted = arch::code().len().next_multiple_of(8);
        for mapping in mappings {
            let last = bytes_at(self.memory(), mapping.end - PAGE, PAGE as usize)?;
            let zeros = last.iter().rev().take_while(|&&byte| byte == 0).count();
            // With some to spare, which may be the code's last operand.
            if zeros < wanted + 16 {
                continue;
            }
            let is_kernels = Some(mapping.start) == block.vdso();
            // The kernel does not let its own mapping be cut.
            let pages = if is_kernels { mapping.start } else { mapping.end - PAGE };
            let code = mapping.end - wanted as u64;
            let protection = (libc::PROT_READ | libc::PROT_EXEC) as u64;
            return Ok(Some(Place { code, pages, pages_bytes: mapping.end - pages, protection }));
        }
        Ok(None)
    }
}

const PAGE: u64 = 4096;

/// The general registers (elf.h's NT_PRSTATUS).
const GENERAL: usize = 1;

/// Where the instructions go.
struct Place {
    code: u64,
    pages: u64,
    pages_bytes: u64,
    protection: u64,
}

/// A line of `/proc/PID/maps`.
struct Mapping {
    start: u64,
    end: u64,
    is_code: bool,
}

impl Mapping {
    fn parse(line: &str) -> Option<Mapping> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Mapping { start: number(start)?, end: number(end)?, is_code: words.next()? == "r-xp" })
    }

    fn range(&self) -> std::ops::Range<u64> {
        self.start..self.end
    }
}

/// Where the things below the stack pointer are.
struct Layout {
    begin: u64,
    told: u64,
    calls: u64,
    path: u64,
}

impl Layout {
    /// Bytes below the stack pointer that nobody may write to without moving it (the ABI's red zone).
    const RED_ZONE: u64 = 128;

    fn below(stack: u64, image: &Image) -> Layout {
        let calls = image.calls(0, arch::NUMBERS).len() * size_of::<Call>();
        let path = stack - Layout::RED_ZONE - (image.path().len() as u64).next_multiple_of(16);
        let calls = path - (calls as u64).next_multiple_of(16);
        let told = calls - (size_of::<Inserted>() as u64).next_multiple_of(16);
        Layout { begin: told, told, calls, path }
    }

    fn bytes(&self, told: &Inserted, calls: &[Call], path: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; (self.path - self.begin) as usize + path.len()];
        let mut put =
            |at: u64, from: &[u8]| bytes[(at - self.begin) as usize..][..from.len()].copy_from_slice(from);
        put(self.told, as_bytes(std::slice::from_ref(told)));
        put(self.calls, as_bytes(calls));
        put(self.path, path);
        bytes
    }
}

/// Plain words without gaps, as bytes.
trait Plain {}
impl Plain for Call {}
impl Plain for Inserted {}

fn as_bytes<T: Plain>(of: &[T]) -> &[u8] {
    // SAFETY: as long as it is, of a type that has no gaps (see `Plain`).
    unsafe { std::slice::from_raw_parts(of.as_ptr().cast(), size_of_val(of)) }
}

/// The C libraries do not agree on the type of the first argument.
fn request(what: impl Into<i64>, process: libc::pid_t, address: usize, data: usize) -> io::Result<()> {
    let what: i64 = what.into();
    // SAFETY: each caller gives what the request wants: numbers, or the address of a structure of its own that is as long as
    // it says.
    match unsafe { libc::syscall(libc::SYS_ptrace, what, process, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
