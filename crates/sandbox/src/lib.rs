//! The sandbox: a seccomp filter over the speculator, deny by default.
//!
//! Speculation runs arbitrary machine code on made-up data, wrong paths and wild jumps included. What
//! keeps it harmless is not that code, nor ours, but this filter:
//!
//! - From outside the runtime's window only reading a clock is allowed; every other call raises
//!   SIGSYS, where it is emulated or ends the speculation.
//! - From inside, each call the runtime needs is allowed with the arguments that keep it harmless
//!   whoever makes it (a wild jump may land on any `syscall` instruction with any registers): opening
//!   only for reading, never creating, never waiting for a device or taking a terminal; waking only who
//!   sleeps on our own words; mappings only private and outside the window, so the runtime cannot be
//!   remapped, of files only to be read; memory read from the one program only; `ioctl` only to fill pages.
//!
//! No descriptor is open for writing when the filter goes up, and none can be opened after.
//!
//! This room only makes the instructions, so that tests can run the very filter: over made-up calls in
//! an interpreter, against a specification written apart from it, and over real calls in a child
//! process. The speculator puts it up.
#![cfg_attr(not(test), no_std)]

use runahead_kernel::memory::{
    MADV_GUARD_INSTALL, MADV_GUARD_REMOVE, UFFDIO_COPY, UFFDIO_REGISTER, UFFDIO_ZEROPAGE,
};
use runahead_kernel::uapi::general as n;
use runahead_kernel::uapi::ptrace::{SECCOMP_RET_ALLOW, SECCOMP_RET_TRAP};

/// The addresses of the runtime: calls from here are the runtime's own. A whole number of 4 GiB units,
/// so that one word of an address tells.
pub const WINDOW: usize = 0x6a00_0000_0000;
pub const WINDOW_END: usize = 0x6b00_0000_0000;

/// Where in the window the ring of reads that are started together is put, and how many of them at most.
pub const RING: usize = 0x6a14_0000_0000;
pub const READS: u32 = 16;

/// One instruction of the filter machine (classic BPF).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    pub jump_true: u8,
    pub jump_false: u8,
    pub operand: u32,
}

/// What is tested: offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const INSTRUCTION_HIGH: u32 = 12;

const fn argument_low(index: u32) -> u32 {
    16 + 8 * index
}

const fn argument_high(index: u32) -> u32 {
    20 + 8 * index
}

const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER_EQUAL: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

#[cfg(target_arch = "x86_64")]
const THIS_ARCHITECTURE: u32 = 0xc000_003e;

const MOST: usize = 256;

/// The filter. Made on the stack: nothing is allocated.
pub struct Filter {
    code: [Instruction; MOST],
    length: usize,
}

impl Filter {
    /// The filter of a speculator whose program has process id `program`.
    pub fn new(program: i32) -> Filter {
        let nothing = Instruction { code: 0, jump_true: 0, jump_false: 0, operand: 0 };
        let mut filter = Filter { code: [nothing; MOST], length: 0 };
        filter.build(program as u32);
        filter
    }

    /// What the kernel is given. None if the rules have outgrown the room for them.
    pub fn instructions(&self) -> Option<&[Instruction]> {
        self.code.get(..self.length)
    }

    fn push(&mut self, code: u16, jump_true: u8, jump_false: u8, operand: u32) {
        if let Some(place) = self.code.get_mut(self.length) {
            *place = Instruction { code, jump_true, jump_false, operand };
        }
        // Counted even if it did not fit: `instructions` refuses a filter that is too long.
        self.length += 1;
    }

    fn load(&mut self, what: u32) {
        self.push(LOAD, 0, 0, what);
    }

    fn allow(&mut self) {
        self.push(RETURN, 0, 0, SECCOMP_RET_ALLOW);
    }

    fn trap(&mut self) {
        self.push(RETURN, 0, 0, SECCOMP_RET_TRAP);
    }

    /// Allows call `number` if all `rules` hold. Expects the number to be loaded; a call that is not
    /// this one jumps over the tests and finds it loaded still.
    fn rule(&mut self, number: u32, rules: &[Rule]) {
        let body: u8 = rules.iter().map(Rule::length).sum::<u8>() + 1;
        // Not this call: over the body (and its final trap).
        self.push(JUMP_EQUAL, 0, body + 1, number);
        let mut left = body;
        for rule in rules {
            left -= rule.length();
            rule.write(self, left);
        }
        self.allow();
        self.trap();
    }

    /// Allows `ioctl` with one of these requests.
    fn ioctl<const COUNT: usize>(&mut self, requests: [u32; COUNT]) {
        self.push(JUMP_EQUAL, 0, COUNT as u8 + 3, n::__NR_ioctl);
        self.load(argument_low(1));
        for (number, request) in requests.into_iter().enumerate() {
            // Over the others and the trap.
            self.push(JUMP_EQUAL, (COUNT - number) as u8, 0, request);
        }
        self.trap();
        self.allow();
    }
}

/// A test of one argument. Where it fails, control goes to the trap that ends the rule.
#[derive(Clone, Copy)]
enum Rule {
    /// The low 32 bits of an argument are this.
    Is(u32, u32),
    /// The low 32 bits of an argument are one of these.
    Among(u32, [u32; 3]),
    /// All 64 bits of an argument are zero: a pointer to nothing.
    Null(u32),
    /// All 64 bits of an argument are this.
    Address(u32, usize),
    /// None of these bits is set in the low 32.
    NoneOf(u32, u32),
    /// This bit is set in the low 32.
    Has(u32, u32),
    /// What is opened is only named (`O_PATH`), or opened without waiting and without taking a terminal.
    NamedOrQuiet(u32),
    /// The address in the argument is in the window.
    InsideWindow(u32),
    /// The mapping is anonymous, or a file's that can be neither written to nor executed.
    AnonymousOrReadOnly,
    /// The address in the first argument, with the length in the second, stays outside the window.
    OutsideWindow,
}

impl Rule {
    fn length(&self) -> u8 {
        match self {
            Rule::Is(..) | Rule::NoneOf(..) | Rule::Has(..) => 2,
            Rule::Among(..) | Rule::Null(_) | Rule::Address(..) | Rule::AnonymousOrReadOnly => 4,
            Rule::InsideWindow(_) => 3,
            Rule::NamedOrQuiet(_) => 4,
            Rule::OutsideWindow => 5,
        }
    }

    /// `left`: instructions of the rule after this test, the allowing one included.
    fn write(&self, filter: &mut Filter, left: u8) {
        match *self {
            Rule::Is(argument, value) => {
                filter.load(argument_low(argument));
                filter.push(JUMP_EQUAL, 0, left, value);
            }
            Rule::Among(argument, [first, second, third]) => {
                filter.load(argument_low(argument));
                filter.push(JUMP_EQUAL, 2, 0, first);
                filter.push(JUMP_EQUAL, 1, 0, second);
                filter.push(JUMP_EQUAL, 0, left, third);
            }
            Rule::Null(argument) => Rule::Address(argument, 0).write(filter, left),
            Rule::Address(argument, address) => {
                filter.load(argument_low(argument));
                filter.push(JUMP_EQUAL, 0, left + 2, address as u32);
                filter.load(argument_high(argument));
                filter.push(JUMP_EQUAL, 0, left, (address >> 32) as u32);
            }
            Rule::NoneOf(argument, bits) => {
                filter.load(argument_low(argument));
                filter.push(JUMP_ANY_BIT, left, 0, bits);
            }
            Rule::Has(argument, bit) => {
                filter.load(argument_low(argument));
                filter.push(JUMP_ANY_BIT, 0, left, bit);
            }
            Rule::NamedOrQuiet(argument) => {
                filter.load(argument_low(argument));
                filter.push(JUMP_ANY_BIT, 2, 0, n::O_PATH);
                filter.push(JUMP_ANY_BIT, 0, left + 1, n::O_NONBLOCK);
                filter.push(JUMP_ANY_BIT, 0, left, n::O_NOCTTY);
            }
            Rule::InsideWindow(argument) => {
                filter.load(argument_high(argument));
                filter.push(JUMP_GREATER_EQUAL, 0, left + 1, (WINDOW >> 32) as u32);
                filter.push(JUMP_GREATER_EQUAL, left, 0, (WINDOW_END >> 32) as u32);
            }
            Rule::AnonymousOrReadOnly => {
                filter.load(argument_low(3));
                filter.push(JUMP_ANY_BIT, 2, 0, n::MAP_ANONYMOUS);
                filter.load(argument_low(2));
                filter.push(JUMP_ANY_BIT, left, 0, n::PROT_WRITE | n::PROT_EXEC);
            }
            Rule::OutsideWindow => {
                // In units of 4 GiB: below the window by more than the longest length allowed (0x80
                // units, 512 GiB), or above it.
                let low = (WINDOW >> 32) as u32;
                let high = (WINDOW_END >> 32) as u32;
                const LONGEST: u32 = 0x80;
                filter.load(argument_high(1));
                filter.push(JUMP_GREATER_EQUAL, left + 3, 0, LONGEST);
                filter.load(argument_high(0));
                filter.push(JUMP_GREATER_EQUAL, 1, 0, high);
                filter.push(JUMP_GREATER_EQUAL, left, 0, low - LONGEST);
            }
        }
    }
}

/// Everything that opening may not do.
const OPEN_FORBIDDEN: u32 =
    n::O_WRONLY | n::O_RDWR | n::O_CREAT | n::O_TRUNC | n::O_EXCL | n::O_APPEND | (0o20000000);

impl Filter {
    fn build(&mut self, program: u32) {
        self.load(ARCHITECTURE);
        self.push(JUMP_EQUAL, 1, 0, THIS_ARCHITECTURE);
        self.trap();

        // Is the instruction ours? The window is a whole number of 4 GiB units, so the high word tells.
        self.load(INSTRUCTION_HIGH);
        self.push(JUMP_GREATER_EQUAL, 0, 1, (WINDOW >> 32) as u32);
        self.push(JUMP_GREATER_EQUAL, 0, 4, (WINDOW_END >> 32) as u32);
        // The program's code: a clock (the mirrored vDSO asks here), nothing else.
        self.load(NUMBER);
        self.push(JUMP_EQUAL, 0, 1, n::__NR_clock_gettime);
        self.allow();
        self.trap();

        self.load(NUMBER);
        for number in [
            n::__NR_close,
            n::__NR_read,
            n::__NR_pread64,
            n::__NR_preadv2,
            n::__NR_lseek,
            n::__NR_fstat,
            n::__NR_newfstatat,
            n::__NR_fstatfs,
            n::__NR_faccessat,
            n::__NR_faccessat2,
            n::__NR_readlinkat,
            n::__NR_getxattr,
            n::__NR_listxattr,
            n::__NR_getdents64,
            n::__NR_readahead,
            n::__NR_cachestat,
            n::__NR_mincore,
            // No descriptor is open for writing: what can be started are reads, and syncs of what others have written.
            n::__NR_io_submit,
            n::__NR_setitimer,
            n::__NR_clock_gettime,
            n::__NR_clock_getres,
            n::__NR_gettimeofday,
            n::__NR_time,
            n::__NR_getcpu,
            n::__NR_getuid,
            n::__NR_geteuid,
            n::__NR_getgid,
            n::__NR_getegid,
            n::__NR_uname,
            n::__NR_sysinfo,
            n::__NR_getrandom,
            n::__NR_getrlimit,
            n::__NR_sched_getaffinity,
            n::__NR_sched_yield,
            n::__NR_rt_sigreturn,
            n::__NR_exit_group,
        ] {
            self.push(JUMP_EQUAL, 0, 1, number);
            self.allow();
        }
        self.ioctl([UFFDIO_COPY as u32, UFFDIO_ZEROPAGE as u32, UFFDIO_REGISTER as u32]);
        self.rule(n::__NR_openat, &[Rule::NoneOf(2, OPEN_FORBIDDEN), Rule::NamedOrQuiet(2)]);
        // The other calls that look at names never mount what is mounted on demand at their end.
        self.rule(n::__NR_statx, &[Rule::Has(2, n::AT_NO_AUTOMOUNT)]);
        // Normal and random: how far the kernel reads ahead for a descriptor of ours. Other advice touches the cache.
        self.rule(n::__NR_fadvise64, &[Rule::NoneOf(3, !n::POSIX_FADV_RANDOM)]);
        self.rule(n::__NR_fcntl, &[Rule::Is(1, n::F_DUPFD_CLOEXEC)]);
        self.rule(n::__NR_process_vm_readv, &[Rule::Is(0, program)]);
        self.rule(n::__NR_arch_prctl, &[Rule::Is(0, 0x1002)]);
        self.rule(n::__NR_prlimit64, &[Rule::Null(2)]);
        // FUTEX_WAIT (0) and FUTEX_WAKE (1), on words of the session: a file that the program has mapped as well as others
        // has sleepers of theirs.
        self.rule(n::__NR_futex, &[Rule::NoneOf(1, !1), Rule::InsideWindow(0)]);
        // Nor memory that is short for everybody: locked, or of large pages that were set aside.
        let private = n::MAP_SHARED | n::MAP_LOCKED | n::MAP_HUGETLB;
        self.rule(n::__NR_mmap, &[Rule::OutsideWindow, Rule::NoneOf(3, private), Rule::AnonymousOrReadOnly]);
        self.rule(n::__NR_munmap, &[Rule::OutsideWindow]);
        // Contexts that can be had without limit would leave none for others. The ring goes to its place in the window, and
        // nothing goes anywhere else.
        self.rule(n::__NR_io_setup, &[Rule::Is(0, READS)]);
        self.rule(n::__NR_mremap, &[Rule::OutsideWindow, Rule::Address(4, RING)]);
        self.rule(n::__NR_mprotect, &[Rule::OutsideWindow]);
        self.rule(
            n::__NR_madvise,
            &[Rule::OutsideWindow, Rule::Among(2, [n::MADV_DONTNEED, MADV_GUARD_INSTALL, MADV_GUARD_REMOVE])],
        );
        self.trap();
    }
}
