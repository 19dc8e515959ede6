//! Tracing a process as far as the first instruction of the program that it executes next (ptrace(2)).
//!
//! All of it belongs to one thread: the kernel takes requests from the thread that has seized a process only,
//! and lets the process go when that thread ends.

use crate::PAGE;
use crate::arch::{self, Start};
use crate::image::Image;
use crate::process::{Bytes, bytes_at};
use crate::stack::Block;
use runahead_abi::insertion::{Call, Inserted};
use std::io;

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

/// A process that is traced and runs. Dropped, it is let go when the calling thread ends, without being
/// stopped.
#[derive(Debug)]
pub struct Traced {
    process: libc::pid_t,
    /// Only the thread that has seized it may use this.
    _thread: std::marker::PhantomData<*const ()>,
}

/// Stops between the first and the execution: at system calls that lead out of the agent, which may wait for a
/// second before it executes, a millisecond at a time, and for signals.
const STOPS_MOST: usize = 8192;

/// What the process may do before it executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// It executes once. Where that fails it is let go.
    Program,
    /// It is our own code, which does nothing else before its end, and may try one path after the other: it is
    /// not stopped at its calls.
    Launcher,
}

impl Traced {
    /// Begins. The process does not notice. Fails where the kernel forbids it or somebody else traces it.
    pub fn seize(process: u32) -> io::Result<Traced> {
        let process =
            libc::pid_t::try_from(process).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        let options = (libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACESYSGOOD) as usize;
        request(libc::PTRACE_SEIZE, process, 0, options)?;
        Ok(Traced { process, _thread: std::marker::PhantomData })
    }

    /// Stops the process, which waits for us in code of ours with all signals blocked: nothing of the
    /// program's is interrupted. False: it has got a stop of somebody else's, or is over.
    pub fn stop(&self) -> bool {
        request(libc::PTRACE_INTERRUPT, self.process, 0, 0).is_ok()
            && matches!(self.next(), Some(Stop { event: libc::PTRACE_EVENT_STOP, signal: libc::SIGTRAP }))
    }

    /// Goes with the stopped process, a program's from system call to system call, until the next program is
    /// there, or it does something else; a failed execution of a program's is over then, and has not returned
    /// yet.
    ///
    /// Stops are looked at and never taken (`WNOWAIT`): if we end, the kernel delivers what they are for.
    pub fn wait_for_program(self, who: Who) -> Reached {
        let mut signal = 0;
        let mut executes = false;
        let how = match who {
            Who::Program => libc::PTRACE_SYSCALL,
            Who::Launcher => libc::PTRACE_CONT,
        };
        for _ in 0..STOPS_MOST {
            if request(how, self.process, 0, signal).is_err() {
                return Reached::Nothing;
            }
            signal = 0;
            let Some(stop) = self.next() else { return Reached::Nothing };
            match stop.event {
                libc::PTRACE_EVENT_EXEC => return Reached::Program(Fresh { process: self.process }),
                0 if stop.signal == SYSTEM_CALL => match self.call() {
                    Some(Passage::Enters(number)) if arch::executes(number) => executes = true,
                    Some(Passage::Enters(number)) if arch::leads_out(number) => {}
                    Some(Passage::Returns) if !executes => {}
                    _ => break,
                },
                // A handler may run first, and execute nothing.
                0 => signal = stop.signal as usize,
                // It is to stand still.
                _ => break,
            }
        }
        Reached::Other(Held { process: self.process, signal })
    }

    /// The next stop. None: the process is over, and whoever waits for it is told so now.
    fn next(&self) -> Option<Stop> {
        // SAFETY: plain words, for which zeros are a value.
        let mut told: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let kinds = libc::WSTOPPED | libc::WEXITED | libc::__WALL;
        let id = self.process as libc::id_t;
        loop {
            // SAFETY: what is told is ours.
            match unsafe { libc::waitid(libc::P_PID, id, &mut told, kinds | libc::WNOWAIT) } {
                0 => break,
                _ if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
                _ => return None,
            }
        }
        if told.si_code != libc::CLD_TRAPPED && told.si_code != libc::CLD_STOPPED {
            // SAFETY: as above.
            unsafe { libc::waitid(libc::P_PID, id, &mut told, libc::WEXITED | libc::WNOHANG | libc::__WALL) };
            return None;
        }
        // SAFETY: what a child's stop tells has a status.
        let status = unsafe { told.si_status() };
        Some(Stop { signal: status & 0xff, event: status >> 8 })
    }

    /// What a stop at a system call is. None: the kernel does not tell (before Linux 5.3).
    fn call(&self) -> Option<Passage> {
        let mut told = CallTold::default();
        let (length, place) = (size_of_val(&told), (&raw mut told) as usize);
        request(GET_SYSCALL_INFO, self.process, length, place).ok()?;
        match told.kind {
            CallTold::ENTRY => Some(Passage::Enters(told.number)),
            CallTold::EXIT => Some(Passage::Returns),
            _ => None,
        }
    }
}

/// How far a traced process has come.
#[derive(Debug)]
pub enum Reached {
    /// The next program is there.
    Program(Fresh),
    /// It does something else than to execute it.
    Other(Held),
    /// It is over, or nobody's to trace any more.
    Nothing,
}

/// A process that stands still until this is dropped, and goes on untraced then.
#[derive(Debug)]
pub struct Held {
    process: libc::pid_t,
    /// What is delivered to it; 0: nothing.
    signal: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = request(libc::PTRACE_DETACH, self.process, 0, self.signal);
    }
}

/// Why a process stands still: a signal, or an event of ptrace's in the place of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stop {
    signal: i32,
    event: i32,
}

/// The signal that stands for a system call (`PTRACE_O_TRACESYSGOOD`).
const SYSTEM_CALL: i32 = libc::SIGTRAP | 0x80;

/// `PTRACE_GET_SYSCALL_INFO`, and what it tells (`struct ptrace_syscall_info`, ptrace(2)); some C libraries'
/// headers have neither.
const GET_SYSCALL_INFO: i32 = 0x420e;

#[repr(C)]
#[derive(Default)]
struct CallTold {
    kind: u8,
    _gap: [u8; 3],
    _machine: u32,
    _instruction: u64,
    _stack: u64,
    /// Of a call that begins.
    number: u64,
    _arguments: [u64; 7],
}

impl CallTold {
    const ENTRY: u8 = 1;
    const EXIT: u8 = 2;
}

enum Passage {
    Enters(u64),
    Returns,
}

/// A process with a new program in it that has not begun, until this is dropped.
#[derive(Debug)]
pub struct Fresh {
    process: libc::pid_t,
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let _ = request(libc::PTRACE_DETACH, self.process, 0, 0);
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
    pub fn add_variables(&self, variables: [&[u8]; 2]) -> Result<(), Refusal> {
        let (mut registers, start, block) = self.start()?;
        let (stack, bytes) = block.with_variables(start.stack, variables).ok_or(Refusal::NoRoom)?;
        self.memory().write(stack, &bytes)?;
        arch::set_stack(&mut registers, stack);
        Ok(self.set_registers(registers)?)
    }

    /// Has the program begin with the image's start; `session`: what that is told (`environment::Session`).
    pub fn put_in(&self, image: &Image, session: &str) -> Result<(), Refusal> {
        let (mut registers, start, block) = self.start()?;
        let place = self.place(&block)?.ok_or(Refusal::NoPlace)?;
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

    /// A place for the instructions where nothing of the program's is: behind the end of the kernel's own
    /// code for all programs.
    fn place(&self, block: &Block) -> Result<Option<Place>, Refusal> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.process))?;
        let vdso =
            maps.lines().filter_map(Mapping::parse).find(|mapping| Some(mapping.start) == block.vdso());
        let Some(Mapping { start, end, is_code: true }) = vdso else { return Ok(None) };
        let wanted = arch::code().len().next_multiple_of(8);
        let last = bytes_at(self.memory(), end - PAGE, PAGE as usize)?;
        // With some to spare, which may be the end of something.
        let zeros = last.iter().rev().take_while(|&&byte| byte == 0).count();
        let protection = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        // The kernel does not let this mapping be cut, so its protection is changed as a whole.
        let place = Place { code: end - wanted as u64, pages: start, pages_bytes: end - start, protection };
        Ok((zeros >= wanted + SPARE).then_some(place))
    }
}

const SPARE: usize = 64;

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
    // SAFETY: each caller gives what the request wants: numbers, or the address of a structure of its own
    // that is as long as it says.
    match unsafe { libc::syscall(libc::SYS_ptrace, what, process, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
