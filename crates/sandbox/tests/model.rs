//! The filter, run by an interpreter over made-up calls, against a specification written apart from it.
//!
//! The specification says in plain conditions what ARCHITECTURE.md promises, with the C library's names
//! for the numbers. The interpreter knows no more of the filter machine than the filter uses; an
//! instruction that it does not know is a failure. That the comparison can fail is tested as well: each
//! rule of the filter is removed and each trap opened once, and each time a call must tell.
// The C library's names of system calls stand in patterns.
#![allow(non_upper_case_globals)]

use libc::*;
use proptest::prelude::*;
use runahead_sandbox::{Filter, Instruction, READS, RING, WINDOW, WINDOW_END};

const PROGRAM: i32 = 4711;
const X86_64: u32 = 0xc000_003e;
const I386: u32 = 0x4000_0003;
const UFFDIO_COPY: u64 = 0xc028_aa03;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_ZEROPAGE: u64 = 0xc020_aa04;
const ARCH_SET_FS: u64 = 0x1002;
/// Lengths from here on are refused, wherever they start.
const LONGEST: u64 = 512 << 30;

/// A system call as the kernel shows it to a filter.
#[derive(Clone, Copy, Debug)]
struct Call {
    number: u32,
    architecture: u32,
    /// Address of the instruction behind the `syscall`.
    instruction: u64,
    arguments: [u64; 6],
}

impl Call {
    /// The aligned 32-bit word at `offset` of `struct seccomp_data`.
    fn word(&self, offset: u32) -> Option<u32> {
        let half = |value: u64| if offset.is_multiple_of(8) { value as u32 } else { (value >> 32) as u32 };
        match offset {
            _ if !offset.is_multiple_of(4) => None,
            0 => Some(self.number),
            4 => Some(self.architecture),
            8 | 12 => Some(half(self.instruction)),
            _ => self.arguments.get((offset as usize - 16) / 8).map(|argument| half(*argument)),
        }
    }
}

/// What the filter machine answers. Err: the program is not one that the kernel would take.
fn interpret(code: &[Instruction], call: &Call) -> Result<bool, String> {
    let mut accumulator = 0u32;
    let mut at = 0;
    loop {
        let Some(instruction) = code.get(at) else { return Err(format!("runs off the end at {at}")) };
        at += 1;
        let operand = instruction.operand;
        let holds = match instruction.code {
            0x20 => {
                accumulator = call.word(operand).ok_or(format!("bad load of {operand} before {at}"))?;
                continue;
            }
            0x06 if operand == SECCOMP_RET_ALLOW => return Ok(true),
            0x06 if operand == SECCOMP_RET_TRAP => return Ok(false),
            0x15 => accumulator == operand,
            0x35 => accumulator >= operand,
            0x45 => accumulator & operand != 0,
            other => return Err(format!("instruction {other:#x}, operand {operand:#x}, before {at}")),
        };
        at += usize::from(if holds { instruction.jump_true } else { instruction.jump_false });
    }
}

/// What the sandbox is to allow.
fn specified(call: &Call) -> bool {
    if call.architecture != X86_64 {
        return false;
    }
    let number = c_long::from(call.number);
    let window = WINDOW as u64..WINDOW_END as u64;
    let inside = window.contains(&call.instruction);
    if !inside {
        return number == SYS_clock_gettime;
    }
    let a = call.arguments;
    // The kernel looks at the low half of what it declares as `int`.
    let int = |index: usize| a[index] as u32 as i32;
    let outside_window = || {
        let clear_below = a[0] >> 32 < (WINDOW as u64 - LONGEST) >> 32;
        a[1] < LONGEST && (clear_below || a[0] >= WINDOW_END as u64)
    };
    match number {
        // On descriptors of its own, all of them read-only.
        SYS_close | SYS_read | SYS_pread64 | SYS_preadv2 | SYS_lseek | SYS_fstat | SYS_fstatfs
        | SYS_getdents64 | SYS_readahead | SYS_io_submit => true,
        SYS_io_setup => int(0) == READS as i32,
        451 | SYS_mincore => true, // 451: cachestat
        SYS_fadvise64 => [POSIX_FADV_NORMAL, POSIX_FADV_RANDOM].contains(&int(3)),
        // Looking at names.
        SYS_newfstatat | SYS_faccessat | SYS_faccessat2 | SYS_readlinkat | SYS_getxattr | SYS_listxattr => {
            true
        }
        SYS_statx => int(2) & AT_NO_AUTOMOUNT != 0,
        // Its own alarm, its own end.
        SYS_setitimer | SYS_rt_sigreturn | SYS_exit_group | SYS_sched_yield => true,
        // Questions.
        SYS_clock_gettime
        | SYS_clock_getres
        | SYS_gettimeofday
        | SYS_time
        | SYS_getcpu
        | SYS_getuid
        | SYS_geteuid
        | SYS_getgid
        | SYS_getegid
        | SYS_uname
        | SYS_sysinfo
        | SYS_getrandom
        | SYS_getrlimit
        | SYS_sched_getaffinity => true,
        SYS_prlimit64 => a[2] == 0,
        SYS_ioctl => [UFFDIO_COPY, UFFDIO_ZEROPAGE, UFFDIO_REGISTER].contains(&u64::from(a[1] as u32)),
        SYS_openat => {
            int(2) & O_ACCMODE == O_RDONLY
                && int(2) & (O_CREAT | O_TRUNC | O_EXCL | O_APPEND) == 0
                && int(2) & (O_TMPFILE & !O_DIRECTORY) == 0
                && (int(2) & O_PATH != 0 || int(2) & O_NONBLOCK != 0 && int(2) & O_NOCTTY != 0)
        }
        SYS_fcntl => int(1) == F_DUPFD_CLOEXEC,
        SYS_process_vm_readv => int(0) == PROGRAM,
        SYS_arch_prctl => a[0] as u32 == ARCH_SET_FS as u32,
        SYS_futex => [FUTEX_WAIT, FUTEX_WAKE].contains(&int(1)) && window.contains(&a[0]),
        SYS_mmap => {
            let only_read = int(2) & (PROT_WRITE | PROT_EXEC) == 0;
            let short = MAP_SHARED | MAP_LOCKED | MAP_HUGETLB;
            outside_window() && int(3) & short == 0 && (int(3) & MAP_ANONYMOUS != 0 || only_read)
        }
        SYS_munmap | SYS_mprotect => outside_window(),
        SYS_mremap => outside_window() && a[4] == RING as u64,
        SYS_madvise => outside_window() && [MADV_DONTNEED, 102, 103].contains(&int(2)), // guards
        _ => false,
    }
}

/// Every number that has a rule, and some that must have none.
fn numbers() -> Vec<u32> {
    (0..=470).chain([512, 547, 0x4000_0000, 0x4000_0001, 0x4000_0101, u32::MAX]).collect()
}

fn instructions() -> [u64; 10] {
    let (start, end) = (WINDOW as u64, WINDOW_END as u64);
    [0, 2, start - 1, start, start + 2, end - 1, end, end + 1, 0x7fff_f7ff_0000, u64::MAX]
}

fn interesting_arguments() -> Vec<u64> {
    let (start, end) = (WINDOW as u64, WINDOW_END as u64);
    let mut values = vec![0, 1, 2, 3, 4, u64::MAX, u32::MAX.into(), 1 << 31, 1 << 32, 1 << 63];
    values.extend([LONGEST - 1, LONGEST, start - LONGEST - 1, start - LONGEST, start - 1, start]);
    values.extend([start + 4096, end - 1, end, end + 4096, PROGRAM as u64, PROGRAM as u64 + 1]);
    values.extend([
        UFFDIO_COPY,
        UFFDIO_REGISTER,
        UFFDIO_ZEROPAGE,
        UFFDIO_COPY + 1,
        RING as u64,
        RING as u64 + 4096,
        READS.into(),
        ARCH_SET_FS,
        ARCH_SET_FS + 1,
    ]);
    values.extend([F_DUPFD, F_DUPFD_CLOEXEC, F_SETFL, F_SETLK, 1024].map(|v| v as u64));
    values.extend([O_RDONLY, O_WRONLY, O_RDWR, O_ACCMODE, O_CREAT, O_EXCL].map(|v| v as u64));
    values.extend([O_TRUNC, O_APPEND, O_TMPFILE, O_CLOEXEC, O_DIRECTORY | O_NOFOLLOW].map(|v| v as u64));
    values.extend([O_PATH, O_PATH | O_RDWR, O_NONBLOCK, O_NOCTTY, O_NONBLOCK | O_NOCTTY].map(|v| v as u64));
    values.extend(
        [O_NONBLOCK | O_NOCTTY | O_CREAT, AT_NO_AUTOMOUNT, MAP_LOCKED, MAP_HUGETLB].map(|v| v as u64),
    );
    values.extend([MAP_ANONYMOUS | MAP_LOCKED, MAP_ANONYMOUS | MAP_HUGETLB].map(|v| v as u64));
    values.extend([MAP_ANONYMOUS, MAP_ANONYMOUS | MAP_PRIVATE, MAP_ANONYMOUS | MAP_SHARED].map(|v| v as u64));
    values.extend(
        [MADV_DONTNEED, 101, 102, 103, 104, MADV_REMOVE, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, FUTEX_REQUEUE]
            .map(|v| v as u64),
    );
    // The low half is what a rule wants, the high half is not.
    values.extend([PROGRAM as u64 | 1 << 40, 0x7000_0000_0000, 0x1_0000_0000_0000]);
    values
}

/// Calls whose arguments decide.
const WITH_RULES: [c_long; 14] = [
    SYS_statx,
    SYS_ioctl,
    SYS_openat,
    SYS_fcntl,
    SYS_process_vm_readv,
    SYS_arch_prctl,
    SYS_prlimit64,
    SYS_futex,
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_madvise,
    SYS_mremap,
    SYS_io_setup,
];

/// Calls that reach every rule, both ways, each with what is specified for it: each number from each side of
/// each border, and those that have rules with pairs of values in the arguments that rules look at.
fn corpus() -> Vec<(Call, bool)> {
    let mut calls = Vec::new();
    for number in numbers() {
        for instruction in instructions() {
            for architecture in [X86_64, I386] {
                calls.push(Call { number, architecture, instruction, arguments: [0; 6] });
            }
        }
        for value in interesting_arguments() {
            let instruction = WINDOW as u64 + 2;
            calls.push(Call { number, architecture: X86_64, instruction, arguments: [value; 6] });
        }
    }
    let start = WINDOW as u64;
    let others = [0, 1, 4096, start + 64, LONGEST, MADV_DONTNEED as u64, WINDOW_END as u64, u64::MAX];
    for number in WITH_RULES.map(|number| number as u32) {
        for (index, value) in
            (0..5).flat_map(|index| interesting_arguments().into_iter().map(move |v| (index, v)))
        {
            let made = [(0, 0), (0x22, 0), (3, RING as u64)];
            for (other, (flags, to)) in others.iter().flat_map(|value| made.map(|made| (*value, made))) {
                let mut arguments = [other, other, other, flags, to, 0];
                arguments[index] = value;
                calls.push(Call { number, architecture: X86_64, instruction: WINDOW as u64 + 2, arguments });
            }
        }
    }
    calls.into_iter().map(|call| (call, specified(&call))).collect()
}

/// The first call of `corpus` that `code` judges otherwise than specified.
fn first_difference(code: &[Instruction], corpus: &[(Call, bool)]) -> Option<String> {
    let wrong = corpus.iter().find(|(call, allowed)| interpret(code, call).as_ref() != Ok(allowed))?;
    Some(format!("{:x?}: the filter says {:?}", wrong.0, interpret(code, &wrong.0)))
}

fn filter() -> Vec<Instruction> {
    Filter::new(PROGRAM).instructions().expect("the filter fits").to_vec()
}

#[test]
fn the_filter_says_what_the_specification_says() {
    assert_eq!(first_difference(&filter(), &corpus()), None);
}

#[test]
fn every_rule_matters_and_every_trap_is_tested() {
    let (filter, corpus) = (filter(), corpus());
    let mut mutants = 0;
    for (at, instruction) in filter.iter().enumerate() {
        let mut mutant = filter.clone();
        let what = match (instruction.code, instruction.operand) {
            (0x06, SECCOMP_RET_TRAP) => {
                mutant[at].operand = SECCOMP_RET_ALLOW;
                "a trap opened"
            }
            (0x06, _) => {
                mutant[at].operand = SECCOMP_RET_TRAP;
                "a permission removed"
            }
            (0x20, _) => {
                mutant[at].operand ^= 4;
                "the wrong half loaded"
            }
            _ => {
                let jump = &mut mutant[at];
                (jump.jump_true, jump.jump_false) = (jump.jump_false, jump.jump_true);
                "a test turned round"
            }
        };
        mutants += 1;
        assert!(
            first_difference(&mutant, &corpus).is_some(),
            "{what} at {at} of the filter, and no call tells"
        );
    }
    assert!(mutants > 100, "only {mutants} mutants");
}

fn any_argument() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => proptest::sample::select(interesting_arguments()),
        2 => (proptest::sample::select(interesting_arguments()), any::<u32>())
            .prop_map(|(value, noise)| value ^ u64::from(noise)),
        1 => any::<u64>(),
    ]
}

fn any_call() -> impl Strategy<Value = Call> {
    let number = prop_oneof![9 => proptest::sample::select(numbers()), 1 => any::<u32>()];
    let instruction = prop_oneof![
        6 => WINDOW as u64..WINDOW_END as u64,
        2 => proptest::sample::select(instructions().to_vec()),
        1 => any::<u64>(),
    ];
    let architecture = prop_oneof![20 => Just(X86_64), 1 => Just(I386), 1 => any::<u32>()];
    (number, architecture, instruction, proptest::array::uniform6(any_argument())).prop_map(
        |(number, architecture, instruction, arguments)| Call {
            number,
            architecture,
            instruction,
            arguments,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(50_000) })]

    #[test]
    fn any_call_is_judged_as_specified(call in any_call()) {
        prop_assert_eq!(interpret(&filter(), &call), Ok(specified(&call)));
    }
}
