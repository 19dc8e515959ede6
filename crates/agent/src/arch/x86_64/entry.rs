//! x86-64: the way from a stub into the agent and back.
//!
//! Nothing of the program's stack is used, not even below the red zone: a stack may end right there
//! (goroutines, coroutines, small alternate stacks). A call claims one of the agent's own *areas*, a
//! stack with a guard below it and a [`Frame`] on top, saves the registers in the frame, and has all
//! signals but SIGTRAP blocked **before** it moves to that stack and until it has left it. So:
//!
//! - no handler but SIGTRAP's ever runs on a stack of ours, and the kernel never takes an alternate stack for free
//!   on which a handler of the program's has called us;
//! - a signal that arrives meanwhile is pending, and is delivered with the program's own stack pointer
//!   as soon as the mask is back: what it interrupts then are a few instructions of ours, or the
//!   program's own call;
//! - the agent's locks are never held by a frame that a handler has jumped out of.
//!
//! What may still be interrupted are the instructions before the mask is set and after it is put back,
//! and a measured call (below). There the stack pointer is the program's, the area is claimed and keeps
//! what is needed to go on. A handler may read (it claims another area), fork (the child has the
//! area as well), throw or be cancelled (the unwind information leads to the site). One that jumps out
//! leaves its area claimed: when all are, calls pass the agent by.
//!
//! A *measured* call is one that the agent makes itself to see how long it takes. It is made with the
//! program's registers, stack pointer and signal mask, so that a signal interrupts it as it would at
//! the site.

use super::execute::execute_address;
use super::stub::Description;
use super::thread_base;
use crate::state::{
    AREA_BYTES, AREAS, Fixed, OFFSET_OF_AREAS, OFFSET_OF_HEADER, OFFSET_OF_SLOT, Process, WINDOW_BYTES,
};
use crate::unchecked::{LOOKED_AT, Wait};
use core::arch::{asm, global_asm};
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};
use runahead_abi::check::{self, Check, Checks, Unchecked, verdict};
use runahead_abi::environment::flags;
use runahead_abi::owner::CLOSING;
use runahead_abi::registers::Registers;
use runahead_abi::release::{COUNTS, Closings, NUMBERS};
use runahead_abi::session::{AgentPart, HOLDERS_AT, Header, SLOTS, Slot, SpeculatorPart, remembering, watch};
use runahead_kernel::PAGE;
use runahead_kernel::process::{SLEEPS, THREAD, Usage};
use runahead_kernel::uapi::general as n;
use runahead_kernel::uapi::prctl::{
    PR_CAP_AMBIENT, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_PTRACER, PR_SET_SECCOMP, PR_SET_SECUREBITS,
    PR_SET_SYSCALL_USER_DISPATCH,
};

/// The sixteen SSE registers as the program left them.
pub type SseRegisters = [[u64; 2]; 16];

/// What the entry code saves; the assembly below reads and writes it. The first five fields have
/// offsets that fit into one byte of unwind information.
#[repr(C, align(64))]
pub struct Frame {
    /// 1: a call is using the area.
    busy: AtomicU32,
    _gap: u32,
    description: *const Description,
    /// Where the program goes on.
    target: u64,
    rbx: u64,
    rsp: u64,
    /// The system call's number.
    pub rax: u64,
    rdi: u64,
    rsi: u64,
    rdx: u64,
    r10: u64,
    r8: u64,
    r9: u64,
    rbp: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rflags: u64,
    /// The signal mask that the program has.
    mask: u64,
    /// What rax is when the program goes on.
    result: u64,
    /// Not 0: the call has been made, from `began` (monotonic: seconds and ns) on, and returned this.
    measured: u64,
    began: [u64; 2],
    returned: i64,
    /// What getrusage(2) told of the thread before that call; where it was not asked the sleeps are
    /// [`NOT_TOLD`], and the rest is nothing.
    usage: Usage,
    pub sse: SseRegisters,
}

const NOT_TOLD: u64 = u64::MAX;

/// The flag by which a processor stops at each instruction.
const TRAP_FLAG: u32 = 0x100;

/// The signals that wait. Not SIGTRAP: what makes the processor or the kernel raise it (stepping, breakpoints, counters that
/// overflow) would end a process that blocks it.
const BLOCKED: i64 = !(1 << (n::SIGTRAP - 1));

/// Where in its area a frame lies, bytes.
const FRAME_AT: usize = AREA_BYTES - size_of::<Frame>();

/// A call that the agent has made in the program's stead.
#[derive(Clone, Copy)]
pub struct Measured {
    pub returned: isize,
    /// Monotonic time of its beginning, ns.
    pub began: u64,
    /// How often the thread had given its processor away by itself before; None: it was not asked
    /// (`Fixed::asks_sleeps`).
    pub sleeps: Option<u64>,
}

impl Frame {
    /// Where a frame says which stub was jumped through.
    pub const DESCRIPTION_AT: usize = offset_of!(Frame, description);

    fn description(&self) -> &Description {
        // SAFETY: points into the stub that was jumped through, which is there as long as its site is.
        unsafe { &*self.description }
    }

    /// The program makes the call itself, whatever is answered (`write_stub_ahead`).
    pub fn is_ahead(&self) -> bool {
        self.description().behind == 0
    }

    pub fn state(&self) -> &'static Fixed {
        // SAFETY: the stub holds the address of the agent's block, mapped for good.
        unsafe { &*self.description().state }
    }

    /// Where the program goes on if the call has been made.
    pub fn behind(&self) -> usize {
        let description = self.description();
        let place = description.syscall_address.wrapping_add_signed(description.detour as isize);
        place + usize::from(description.behind)
    }

    /// The page below the stack of this call's area, which nobody touches.
    pub fn guard(&self) -> usize {
        self as *const Frame as usize - FRAME_AT
    }

    pub fn arguments(&self) -> [usize; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9].map(|r| r as usize)
    }

    /// What the call returned, if the agent has made it.
    pub fn measured(&self) -> Option<Measured> {
        let [seconds, ns] = self.began;
        let began = seconds.wrapping_mul(1_000_000_000).wrapping_add(ns);
        let sleeps = Some(self.usage[SLEEPS]).filter(|&told| told != NOT_TOLD);
        (self.measured != 0).then_some(Measured { returned: self.returned as isize, began, sleeps })
    }

    /// The registers as the program left them at the site.
    pub fn registers(&self) -> Registers {
        Registers {
            rax: self.rax,
            rbx: self.rbx,
            rdx: self.rdx,
            rsi: self.rsi,
            rdi: self.rdi,
            rbp: self.rbp,
            rsp: self.rsp,
            r8: self.r8,
            r9: self.r9,
            r10: self.r10,
            r12: self.r12,
            r13: self.r13,
            r14: self.r14,
            r15: self.r15,
            rflags: self.rflags,
            rip: self.description().syscall_address as u64,
            fs_base: thread_base(self.state()) as u64,
        }
    }
}

/// What the agent answers to the entry code, in rax and rdx.
#[repr(C)]
pub struct Answer {
    /// The value of rax when the program goes on.
    rax: u64,
    /// Where it goes on.
    target: u64,
}

impl Answer {
    /// The program's own instruction makes the call; or goes on behind it, if the agent has made it.
    pub fn plain(frame: &Frame) -> Answer {
        match frame.measured() {
            Some(measured) => Answer::done(frame, measured.returned as usize),
            None => {
                let description = frame.description();
                let place = description.syscall_address.wrapping_add_signed(description.detour as isize);
                Answer { rax: frame.rax, target: place as u64 }
            }
        }
    }

    /// The call is done and returned `value`. (Where the thread may be cancelled instead, it makes the call
    /// again: one that has been made here has changed nothing but its own buffer.)
    pub fn done(frame: &Frame, value: usize) -> Answer {
        if frame.is_ahead() {
            return Answer::plain(frame);
        }
        Answer { rax: value as u64, target: frame.behind() as u64 }
    }

    /// The call, an execution, is made with the block's `Substitute`, which is the caller's.
    pub fn executes(frame: &Frame) -> Answer {
        Answer { rax: frame.rax, target: execute_address() as u64 }
    }
}

/// Number of the agent's areas that are in use. The caller's own is one of them.
pub fn areas_in_use(state: &Fixed) -> usize {
    (0..AREAS).filter(|&area| frame_of(state, area).busy.load(Ordering::SeqCst) != 0).count()
}

fn frame_of(state: &Fixed, area: usize) -> &Frame {
    let address = state as *const Fixed as usize + OFFSET_OF_AREAS + area * AREA_BYTES + FRAME_AT;
    // SAFETY: inside the agent's block; of somebody else's frame only the atomic word is looked at.
    unsafe { &*(address as *const Frame) }
}

/// Where the frame of area number `area` is, bytes from the state page.
const fn frame_offset(area: usize) -> usize {
    OFFSET_OF_AREAS + area * AREA_BYTES + FRAME_AT
}

// The unwind information, in bytes: for DW_CFA_val_expression (0x16) and DW_CFA_expression (0x10) of a
// register, DW_OP_breg<n> is 0x70 + n, DW_OP_deref 0x06; register 16 is the return address, 3 rbx, 2 rcx,
// 7 rsp. Each piece of code is a "signal frame" whose caller is the program at its site, with the same
// stack pointer: unwinders take its address as it is and not as one behind a call.
//
// SAFETY (of the whole routine): entered by `jmp` from a stub with rax = the call's number, rcx =
// description; r11 and the arithmetic flags are free, as the system call destroys them or the site file
// says so. Everything else is kept: in the frame, or untouched. The Rust code keeps rbp and r12 to r15
// (System V ABI); they are saved because a post needs them. The area is this call's alone from the claim
// (`lock bts`) to the store that gives it back.
global_asm!(
    ".text",
    ".hidden _end",
    ".hidden __ehdr_start",
    ".globl runahead_agent_entry",
    ".hidden runahead_agent_entry",
    ".type runahead_agent_entry, @function",
    "runahead_agent_entry:",
    ".cfi_startproc",
    ".cfi_signal_frame",
    ".cfi_def_cfa rsp, 0",
    ".cfi_escape 0x16, 0x10, 3, 0x72, 0, 0x06", // the caller: *rcx
    // ---- What closes descriptors concerns who has a slot; memory calls, what is ours; look-ups, names.
    "  cmp eax, {read}",
    "  je 20f",
    "  cmp eax, {newfstatat}",
    "  je 38f",
    "  cmp eax, {close}",
    "  je 37f",
    "  cmp eax, {fcntl}",
    "  je 39f",
    "  cmp eax, {dup2}",
    "  je 35f",
    "  cmp eax, {dup3}",
    "  je 35f",
    "  cmp eax, {mmap}",
    "  je 30f",
    "  cmp eax, {munmap}",
    "  je 36f",
    "  cmp eax, {mprotect}",
    "  je 40f",
    "  cmp eax, {madvise}",
    "  je 40f",
    // ---- Claims an area: its frame's address in r11.
    "20:",
    "  mov r11, [rcx + {d_state}]",
    "  lock bts dword ptr [r11 + {a0}], 0",
    "  lea r11, [r11 + {a0}]",
    "  jnc 21f",
    "  lea r11, [r11 + {area}]",
    "  lock bts dword ptr [r11], 0",
    "  jnc 21f",
    "  lea r11, [r11 + {area}]",
    "  lock bts dword ptr [r11], 0",
    "  jnc 21f",
    "  lea r11, [r11 + {area}]",
    "  lock bts dword ptr [r11], 0",
    "  jnc 21f",
    "  lea r11, [r11 + {area}]",
    "  lock bts dword ptr [r11], 0",
    "  jnc 21f",
    "  lea r11, [r11 + {area}]",
    "  lock bts dword ptr [r11], 0",
    "  jnc 21f",
    "  lea r11, [r11 + {area}]",
    "  lock bts dword ptr [r11], 0",
    "  jnc 21f",
    "  lea r11, [r11 + {area}]",
    "  lock bts dword ptr [r11], 0",
    "  jnc 21f",
    // All are taken. Who is about to be filtered is not to find anybody inside later.
    "  cmp eax, {seccomp}",
    "  je 48f",
    "  cmp eax, {prctl}",
    "  jne 49f",
    "  cmp edi, {set_seccomp}",
    "  je 48f",
    "  cmp edi, {set_dispatch}",
    "  jne 49f",
    "48:",
    "  mov r11, [rcx + {d_state}]",
    "  mov dword ptr [r11 + {off}], 1",
    "49:",
    "  movsxd r11, dword ptr [rcx + {d_detour}]",
    "  add r11, [rcx + {d_syscall}]",
    "  jmp r11",
    // ---- Saves the registers.
    "21:",
    "  mov [r11 + {rbx}], rbx",
    "  mov [r11 + {description}], rcx",
    "  mov [r11 + {rsp}], rsp",
    "  mov [r11 + {rax}], rax",
    "  mov [r11 + {rdi}], rdi",
    "  mov [r11 + {rsi}], rsi",
    "  mov [r11 + {rdx}], rdx",
    "  mov [r11 + {r10}], r10",
    "  mov [r11 + {r8}], r8",
    "  mov [r11 + {r9}], r9",
    "  mov [r11 + {rbp}], rbp",
    "  mov [r11 + {r12}], r12",
    "  mov [r11 + {r13}], r13",
    "  mov [r11 + {r14}], r14",
    "  mov [r11 + {r15}], r15",
    "  mov rbx, r11",
    ".cfi_escape 0x10, 3, 2, 0x73, 24",               // rbx is in the frame
    ".cfi_escape 0x16, 0x10, 4, 0x73, 8, 0x06, 0x06", // the caller: *description
    "  mov qword ptr [rbx + {measured}], 0",
    // The area is claimed now: whoever has stood down and waits for others sees it, or this sees that.
    "  mov rdx, [rcx + {d_state}]",
    "  cmp dword ptr [rdx + {off}], 0",
    "  jne 60f",
    "  cmp dword ptr [rdx + {unchecked}], 0",
    "  jne 170f",
    "122:",
    "  cmp word ptr [rcx + {d_measured}], 0",
    "  jne 50f",
    // ---- Blocks all signals.
    "23:",
    "  mov eax, {rt_sigprocmask}",
    "  xor edi, edi", // SIG_BLOCK
    "  lea rsi, [rip + 90f]",
    "  lea rdx, [rbx + {mask}]",
    "  mov r10d, 8",
    "  syscall",
    "  test eax, eax",
    "  jnz 60f",
    // The flags, as the system call has left them in r11: a program that steps through itself is not gone on with.
    "  test r11d, {trap_flag}",
    "  jnz 62f",
    // ---- On the agent's stack.
    "  mov rsp, rbx",
    ".cfi_escape 0x0f, 3, 0x73, 32, 0x06", // the stack pointer is in the frame
    "  pushfq",
    "  pop qword ptr [rbx + {rflags}]",
    "  cld",
    // Nothing of ours is to be stopped for its alignment.
    "  test dword ptr [rbx + {rflags}], 0x40000",
    "  jz 26f",
    "  pushfq",
    "  and dword ptr [rsp], -0x40001",
    "  popfq",
    "26:",
    "  movaps [rbx + {sse} + 0x00], xmm0",
    "  movaps [rbx + {sse} + 0x10], xmm1",
    "  movaps [rbx + {sse} + 0x20], xmm2",
    "  movaps [rbx + {sse} + 0x30], xmm3",
    "  movaps [rbx + {sse} + 0x40], xmm4",
    "  movaps [rbx + {sse} + 0x50], xmm5",
    "  movaps [rbx + {sse} + 0x60], xmm6",
    "  movaps [rbx + {sse} + 0x70], xmm7",
    "  movaps [rbx + {sse} + 0x80], xmm8",
    "  movaps [rbx + {sse} + 0x90], xmm9",
    "  movaps [rbx + {sse} + 0xa0], xmm10",
    "  movaps [rbx + {sse} + 0xb0], xmm11",
    "  movaps [rbx + {sse} + 0xc0], xmm12",
    "  movaps [rbx + {sse} + 0xd0], xmm13",
    "  movaps [rbx + {sse} + 0xe0], xmm14",
    "  movaps [rbx + {sse} + 0xf0], xmm15",
    "  mov rdi, rbx",
    "  call {call}",
    "  mov [rbx + {result}], rax",
    "  mov [rbx + {target}], rdx",
    "  movaps xmm0, [rbx + {sse} + 0x00]",
    "  movaps xmm1, [rbx + {sse} + 0x10]",
    "  movaps xmm2, [rbx + {sse} + 0x20]",
    "  movaps xmm3, [rbx + {sse} + 0x30]",
    "  movaps xmm4, [rbx + {sse} + 0x40]",
    "  movaps xmm5, [rbx + {sse} + 0x50]",
    "  movaps xmm6, [rbx + {sse} + 0x60]",
    "  movaps xmm7, [rbx + {sse} + 0x70]",
    "  movaps xmm8, [rbx + {sse} + 0x80]",
    "  movaps xmm9, [rbx + {sse} + 0x90]",
    "  movaps xmm10, [rbx + {sse} + 0xa0]",
    "  movaps xmm11, [rbx + {sse} + 0xb0]",
    "  movaps xmm12, [rbx + {sse} + 0xc0]",
    "  movaps xmm13, [rbx + {sse} + 0xd0]",
    "  movaps xmm14, [rbx + {sse} + 0xe0]",
    "  movaps xmm15, [rbx + {sse} + 0xf0]",
    // The direction flag is the one flag that a caller could rely on across a system call.
    "  test dword ptr [rbx + {rflags}], 0x400",
    "  jz 24f",
    "  std",
    "24:",
    "  test dword ptr [rbx + {rflags}], 0x40000",
    "  jz 27f",
    "  pushfq",
    "  or dword ptr [rsp], 0x40000",
    "  popfq",
    "27:",
    "  mov r8, [rbx + {r8}]",
    "  mov r9, [rbx + {r9}]",
    "  mov rsp, [rbx + {rsp}]",
    ".cfi_def_cfa rsp, 0",
    ".cfi_escape 0x16, 0x10, 3, 0x73, 16, 0x06", // the caller: target
    // ---- The program's mask again: what is pending is delivered behind this call.
    "  mov eax, {rt_sigprocmask}",
    "  mov edi, 2", // SIG_SETMASK
    "  lea rsi, [rbx + {mask}]",
    "  xor edx, edx",
    "  mov r10d, 8",
    "  syscall",
    "25:",
    "  mov rdi, [rbx + {rdi}]",
    "  mov rsi, [rbx + {rsi}]",
    "  mov rdx, [rbx + {rdx}]",
    "  mov r10, [rbx + {r10}]",
    "  mov rax, [rbx + {result}]",
    "  mov rcx, [rbx + {target}]",
    "  mov r11, rbx",
    "  mov rbx, [r11 + {rbx}]",
    ".cfi_same_value rbx",
    ".cfi_escape 0x16, 0x10, 2, 0x72, 0", // the caller: rcx
    "  mov dword ptr [r11 + {busy}], 0",
    "  jmp rcx",
    // ---- mmap: the agent looks at those over something of its own, at code, at files, and, while
    // it counts them, at memory of the program's own.
    ".cfi_escape 0x16, 0x10, 3, 0x72, 0, 0x06",
    "30:",
    "  test r10d, {map_fixed}",
    "  jnz 40f",
    "31:",
    "  test r10d, {map_anonymous}",
    "  jz 32f",
    "  mov r11, [rcx + {d_state}]",
    "  cmp dword ptr [r11 + {counts_memory}], 0",
    "  jne 20b",
    "  jmp 49b",
    "32:",
    "  test edx, {prot_exec}",
    "  jnz 20b",
    "  cmp rsi, {watched_least}",
    "  jae 20b",
    // A small file's is a read: some pass unseen while the agent is calm.
    "  mov r11, [rcx + {d_state}]",
    "  dec dword ptr [r11 + {calm}]",
    "  js 20b",
    "  jmp 49b",
    "35:",
    "  mov r11, [rcx + {d_state}]",
    "  cmp dword ptr [r11 + {attached}], 0",
    "  jne 20b",
    "  jmp 49b",
    // ---- close: is counted (`abi::release::Closings::closes`), and looked at only if the speculator holds the number.
    "37:",
    "  mov r11, [rcx + {d_state}]",
    "  cmp dword ptr [r11 + {attached}], 0",
    "  je 49b",
    "  cmp rdi, {counted_apart}",
    "  jae 20b",
    "  lock inc dword ptr [r11 + rdi * 4 + {closings}]",
    "  bt dword ptr [r11 + {held}], edi",
    "  jc 20b",
    "  jmp 49b",
    // ---- newfstatat of an open file: no name.
    "38:",
    "  test r10d, {at_empty_path}",
    "  jz 20b",
    "  jmp 49b",
    // ---- fcntl: leases and watches. (musl makes one for each file that it opens.)
    "39:",
    "  cmp esi, {set_lease}",
    "  je 20b",
    "  cmp esi, {notify}",
    "  je 20b",
    "  jmp 49b",
    // ---- munmap: of a process whose page faults are watched the agent looks at all.
    "36:",
    "  mov r11, [rcx + {d_state}]",
    "  cmp dword ptr [r11 + {watched}], 0",
    "  jne 20b",
    // ---- Does the range of rsi bytes from rdi overlap what is ours? (rdi below our end, and our start no
    // further than rsi behind it.)
    "40:",
    "  mov r11, [rcx + {d_state}]",
    "  add r11, {window}",
    "  cmp rdi, r11",
    "  jae 41f",
    "  sub r11, {window}",
    "  sub r11, rdi",
    "  jbe 20b",
    "  cmp rsi, r11",
    "  ja 20b",
    "41:",
    "  lea r11, [rip + _end]",
    "  cmp rdi, r11",
    "  jae 42f",
    "  lea r11, [rip + __ehdr_start]",
    "  sub r11, rdi",
    "  jbe 20b",
    "  cmp rsi, r11",
    "  ja 20b",
    "42:",
    "  mov r11, [rcx + {d_state}]",
    "  mov r11, [r11 + {far_end}]",
    "  cmp rdi, r11",
    "  jae 43f",
    "  mov r11, [rcx + {d_state}]",
    "  mov r11, [r11 + {far_start}]",
    "  sub r11, rdi",
    "  jbe 20b",
    "  cmp rsi, r11",
    "  ja 20b",
    "43:",
    "  cmp eax, {mmap}",
    "  je 31b",
    "  jmp 49b",
    // ---- A measured call. Where names may be cold it is asked how often the thread has slept before.
    ".cfi_escape 0x10, 3, 2, 0x73, 24",
    ".cfi_escape 0x16, 0x10, 4, 0x73, 8, 0x06, 0x06",
    "50:",
    "  mov qword ptr [rbx + {sleeps}], -1",
    "  cmp dword ptr [rdx + {asks_sleeps}], 0",
    "  jle 51f",
    "  dec dword ptr [rdx + {asks_sleeps}]",
    "  mov eax, {getrusage}",
    "  mov edi, {thread}",
    "  lea rsi, [rbx + {usage}]",
    "  syscall",
    "51:",
    "  mov eax, {clock_gettime}",
    "  mov edi, 1", // CLOCK_MONOTONIC
    "  lea rsi, [rbx + {began}]",
    "  syscall",
    "  mov rdi, [rbx + {rdi}]",
    "  mov rsi, [rbx + {rsi}]",
    "  mov rdx, [rbx + {rdx}]",
    "  mov r10, [rbx + {r10}]",
    "  mov rax, [rbx + {rax}]",
    "  syscall",
    "  mov [rbx + {returned}], rax",
    "  mov qword ptr [rbx + {measured}], 1",
    // Another thread may have left the agent meanwhile, for a filter that forbids us whatever we would call.
    "  mov rdx, [rbx + {description}]",
    "  mov rdx, [rdx + {d_state}]",
    "  cmp dword ptr [rdx + {off}], 0",
    "  je 23b",
    "62:",
    // ---- The mask again, and on as if it had not been touched.
    "  mov eax, {rt_sigprocmask}",
    "  mov edi, 2",
    "  lea rsi, [rbx + {mask}]",
    "  xor edx, edx",
    "  mov r10d, 8",
    "  syscall",
    "60:",
    // ---- No signals were blocked: on with the program, which has everything but these.
    "  mov rdx, [rbx + {description}]",
    "  movsxd rdi, dword ptr [rdx + {d_detour}]",
    "  add rdi, [rdx + {d_syscall}]",
    "  mov rax, [rbx + {rax}]",
    "  cmp qword ptr [rbx + {measured}], 0",
    "  je 61f",
    "  mov rax, [rbx + {returned}]",
    "  movzx edx, word ptr [rdx + {d_behind}]",
    "  add rdi, rdx",
    "61:",
    "  mov [rbx + {result}], rax",
    "  mov [rbx + {target}], rdi",
    "  jmp 25b",
    // ---- Some code is not analysed, and may have forbidden any call but the program's own: what can be done
    // without one is done here. rcx: the description; rdx: the block; r8 and r9 are the program's.
    "170:",
    "  mov r11, [rdx + {check}]",
    "  mov rax, [r11 + {answer}]",
    "  mov r10, [rdx + {expected}]",
    "  test r10, r10",
    "  jz 172f",
    "  cmp rax, r10",
    "  je 122b",
    "  cmp eax, {unseen}",
    "  jne 172f",
    "  shr rax, 32",
    "  shr r10, 32",
    "  cmp eax, r10d",
    "  jne 172f",
    // It is left alone, for good.
    "  mov dword ptr [rdx + {off}], 1",
    "  lea rax, [rip + runahead_agent_past]",
    "  mov [rdx + {entry}], rax",
    "  mov dword ptr [rdx + {calm}], 0x7fffffff",
    // Nobody will see its end, so what earlier runs have opened is not opened from now on; if this is the end
    // it is waited for.
    "  test dword ptr [rdx + {flags}], {remembers}",
    "  jz 168f",
    "  mov dword ptr [rdx + {openings}], 0x7fffffff",
    "  lea r10, [rip + 174f]",
    "  cmp dword ptr [rbx + {rax}], {exit_group}",
    "  je 178f",
    "  mov eax, [rdx + {asked_as}]",
    "  cmp eax, [rdx + {main_process}]",
    "  jne 168f",
    "  mov dword ptr [rdx + {remembering}], {nobody_any_more}",
    "168:",
    "  lea r10, [rip + 60b]",
    "  jmp 178f",
    "172:",
    "  mov eax, [rbx + {rax}]",
    "  cmp eax, {numbers}",
    "  jae 60b",
    "  bt dword ptr [rdx + {looked_at}], eax",
    "  jnc 60b",
    "  cmp eax, {exit_group}",
    "  je 173f",
    "  cmp eax, {mmap}",
    "  je 175f",
    "  cmp eax, {fcntl}",
    "  je 195f",
    "  cmp eax, {prctl}",
    "  je 196f",
    "  cmp eax, {mremap}",
    "  je 197f",
    "  cmp eax, {unlink}",
    "  je 189f",
    "  cmp eax, {unlinkat}",
    "  je 189f",
    "  cmp eax, {rmdir}",
    "  je 189f",
    "  cmp eax, {rename}",
    "  je 189f",
    "  cmp eax, {renameat}",
    "  je 189f",
    "  cmp eax, {renameat2}",
    "  je 189f",
    "  jmp 23b",
    // ---- The end: the check is given up, and what the host holds for it is waited for, for 20 to 200 ms. A
    // report or a trace is waited for by calls. (A child of fork that has not been here before has no check.)
    "173:",
    "  test dword ptr [rdx + {flags}], {report}",
    "  jnz 23b",
    "  lea r10, [rip + 174f]",
    "  jmp 178f",
    "174:",
    "  cmp dword ptr [rdx + {begun}], 0",
    "  je 60b",
    "  mov ecx, [rdx + {asked_as}]",
    "  test ecx, ecx",
    "  jz 60b",
    "  cmp ecx, [rdx + {main_process}]",
    "  jne 177f",
    "  mov dword ptr [rdx + {over}], 1",
    // Nor is anything opened any more that earlier runs have opened (`opened::ends`): as long as fewer become
    // open, that is waited for.
    "  test dword ptr [rdx + {flags}], {remembers}",
    "  jz 177f",
    "  mov dword ptr [rdx + {remembering}], {nobody_any_more}",
    "  mfence",
    "  mov r11d, 16 * {spins}",
    "167:",
    "  mov r10d, [rdx + {replaying}]",
    "  mov eax, 4 * {spins}",
    "171:",
    "  cmp dword ptr [rdx + {replaying}], 0",
    "  je 177f",
    "  cmp r10d, [rdx + {replaying}]",
    "  jne 167b",
    "  pause",
    "  dec r11d",
    "  jz 177f",
    "  dec eax",
    "  jnz 171b",
    "177:",
    "  mfence",
    "  mov eax, 2 * {spins}",
    "176:",
    "  cmp [rdx + {check_held}], ecx",
    "  jne 60b",
    "  pause",
    "  dec eax",
    "  jnz 176b",
    "  jmp 60b",
    // ---- Gives the check up (`Check::free`), and goes on at r10.
    "178:",
    "  cmp dword ptr [rdx + {begun}], 0",
    "  je 179f",
    "  mov eax, [rdx + {asked_as}]",
    "  test eax, eax",
    "  jz 179f",
    "  mov ecx, {closing}",
    "  lock cmpxchg [r11 + {process}], ecx",
    "  jne 179f",
    "  mov dword ptr [r11 + {ready}], 0",
    "  mov rax, [r11 + {answer}]",
    "  shr rax, 32",
    "  inc eax",
    "  shl rax, 32",
    "  mov [r11 + {answer}], rax",
    "  mov dword ptr [r11 + {process}], 0",
    "179:",
    "  jmp r10",
    // ---- mmap.
    "175:",
    "  lea r10, [rip + 181f]",
    "  test dword ptr [rbx + {r10}], {map_fixed}",
    "  jnz 188f",
    "181:",
    "  mov r10, [rbx + {r10}]",
    "  mov rcx, [rbx + {rdx}]",
    "  test r10d, {map_anonymous}",
    "  jnz 182f",
    "  test ecx, {prot_exec}",
    "  jz 183f",
    "  mov eax, r10d",
    "  and eax, {map_type}",
    "  cmp eax, {map_private}",
    "  je 184f",
    "183:",
    "  cmp rsi, {watched_least}",
    "  jb 60b",
    "  mov eax, {watch_file}",
    "  cmp [rdx + {watch_later}], eax",
    "  jae 60b",
    "  mov [rdx + {watch_later}], eax",
    // Who only touches what it maps from now on comes here no more: the answer is waited for, once, for 2 to
    // 20 ms.
    "  mov r11, [rdx + {check}]",
    "  mov r10, [rdx + {expected}]",
    "  test r10, r10",
    "  jz 60b",
    "  mov ecx, {spins} / 4",
    "198:",
    "  mov rax, [r11 + {answer}]",
    "  cmp rax, r10",
    "  je 199f",
    "  test eax, eax",
    "  jnz 60b",
    // No answer to another turn.
    "  xor rax, r10",
    "  shr rax, 32",
    "  jnz 60b",
    "  pause",
    "  dec ecx",
    "  jnz 198b",
    "  jmp 60b",
    "199:",
    // Another thread may have left the agent meanwhile, for a filter.
    "  cmp dword ptr [rdx + {off}], 0",
    "  jne 60b",
    "  mov rcx, [rbx + {description}]",
    "  jmp 122b",
    "185:",
    "  cmp [rdx + {watch_later}], eax",
    "  jae 60b",
    "  mov [rdx + {watch_later}], eax",
    "  jmp 60b",
    // As `calls::maps_memory`.
    "182:",
    "  cmp dword ptr [rdx + {counts_memory}], 0",
    "  je 60b",
    "  and ecx, {prot_read_write}",
    "  cmp ecx, {prot_read_write}",
    "  jne 60b",
    "  test r10d, {map_not_counted}",
    "  jnz 60b",
    "  mov rax, rsi",
    "  lock xadd [rdx + {mapped}], rax",
    "  add rax, rsi",
    "  cmp rax, {swapped_least}",
    "  jb 60b",
    "  mov dword ptr [rdx + {mapped_told}], 1",
    "  mov eax, {watch_memory}",
    "  jmp 185b",
    // Code is mapped: it is counted after it is there (`Unchecked::has_mapped`). Mapping neither blocks nor
    // is it a cancellation point.
    "184:",
    "  cmp dword ptr [rdx + {begun}], 0",
    "  jne 186f",
    // A child of fork, whose parent's answer is its own no more.
    "  mov qword ptr [rdx + {expected}], 0",
    "  jmp 60b",
    "186:",
    "  mov rdx, rcx",
    "  mov eax, {mmap}",
    "  syscall",
    "  mov [rbx + {returned}], rax",
    "  mov qword ptr [rbx + {measured}], 1",
    "  cmp rax, -4096",
    "  ja 60b",
    "  mov rdx, [rbx + {description}]",
    "  mov rdx, [rdx + {d_state}]",
    "  mov r11, [rdx + {check}]",
    "  mov rsi, [rbx + {rsi}]",
    "  add rsi, 4095",
    "  and rsi, -4096",
    "  lock add [rdx + {wait_code}], rsi",
    "  mov eax, [rdx + {asked_as}]",
    "  cmp [r11 + {process}], eax",
    "  jne 194f", // it has been given up
    "  lock add [r11 + {code}], rsi",
    "  mov rax, [r11 + {answer}]",
    "187:",
    "  mov r10, rax",
    "  shr r10, 32",
    "  inc r10d",
    "  shl r10, 32",
    "  lock cmpxchg [r11 + {answer}], r10",
    "  jne 187b",
    "194:",
    "  mov r10, {turn}",
    "  lock add [rdx + {expected}], r10",
    "  cmp dword ptr [rdx + {unchecked}], {waits}",
    "  je 60b",
    // Another thread has the answer meanwhile: whatever is known but this is clean.
    "  jmp 23b",
    // ---- Goes on at r10 if the range of rsi bytes from rdi overlaps nothing of ours; else it is looked at.
    "188:",
    "  mov rax, rdx",
    "  lea rcx, [rdx + {window}]",
    "  cmp rdi, rcx",
    "  jae 190f",
    "  sub rax, rdi",
    "  jbe 23b",
    "  cmp rsi, rax",
    "  ja 23b",
    "190:",
    "  lea rax, [rip + __ehdr_start]",
    "  lea rcx, [rip + _end]",
    "  cmp rdi, rcx",
    "  jae 191f",
    "  sub rax, rdi",
    "  jbe 23b",
    "  cmp rsi, rax",
    "  ja 23b",
    "191:",
    "  mov rax, [rdx + {far_start}]",
    "  mov rcx, [rdx + {far_end}]",
    "  cmp rdi, rcx",
    "  jae 192f",
    "  sub rax, rdi",
    "  jbe 23b",
    "  cmp rsi, rax",
    "  ja 23b",
    "192:",
    "  jmp r10",
    // ---- Names are removed or renamed: looked at while somebody holds something. (Whoever looks at our code
    // does so for short.)
    "189:",
    "  mov eax, {spins}",
    "193:",
    "  cmp dword ptr [rdx + {host_files}], 0",
    "  je 198f",
    "  pause",
    "  dec eax",
    "  jnz 193b",
    "  jmp 23b",
    "198:",
    "  cmp dword ptr [rdx + {host_nameless}], 0",
    "  jne 23b",
    "  lea r10, [rdx + {speculators}]",
    "  mov ecx, {slots}",
    "199:",
    "  cmp dword ptr [r10], 0",
    "  jne 23b",
    "  add r10, 4",
    "  dec ecx",
    "  jnz 199b",
    "  jmp 60b",
    "195:",
    "  cmp esi, {set_lease}",
    "  je 23b",
    "  cmp esi, {notify}",
    "  je 23b",
    "  jmp 60b",
    "196:",
    "  cmp edi, {set_ptracer}",
    "  je 23b",
    "  cmp edi, {set_dispatch}",
    "  je 23b",
    "  cmp edi, {set_seccomp}",
    "  je 23b",
    "  cmp edi, {no_new_privileges}",
    "  je 23b",
    "  cmp edi, {drop_bounding}",
    "  je 23b",
    "  cmp edi, {ambient}",
    "  je 23b",
    "  cmp edi, {secure_bits}",
    "  je 23b",
    "  jmp 60b",
    "197:",
    "  lea r10, [rip + 60b]",
    "  test dword ptr [rbx + {r10}], {mremap_fixed}",
    "  jz 188b",
    "  jmp 23b",
    ".cfi_endproc",
    ".size runahead_agent_entry, . - runahead_agent_entry",
    ".p2align 3",
    "90: .quad {blocked}",
    call = sym crate::calls::runahead_agent_call,
    read = const n::__NR_read,
    newfstatat = const n::__NR_newfstatat,
    close = const n::__NR_close,
    dup2 = const n::__NR_dup2,
    dup3 = const n::__NR_dup3,
    mmap = const n::__NR_mmap,
    munmap = const n::__NR_munmap,
    mprotect = const n::__NR_mprotect,
    madvise = const n::__NR_madvise,
    seccomp = const n::__NR_seccomp,
    prctl = const n::__NR_prctl,
    set_seccomp = const PR_SET_SECCOMP,
    set_dispatch = const PR_SET_SYSCALL_USER_DISPATCH,
    rt_sigprocmask = const n::__NR_rt_sigprocmask,
    clock_gettime = const n::__NR_clock_gettime,
    at_empty_path = const n::AT_EMPTY_PATH,
    map_fixed = const n::MAP_FIXED,
    map_anonymous = const n::MAP_ANONYMOUS,
    prot_exec = const n::PROT_EXEC,
    watched_least = const crate::calls::WATCHED_LEAST,
    calm = const offset_of!(Fixed, calm),
    d_syscall = const offset_of!(Description, syscall_address),
    d_detour = const offset_of!(Description, detour),
    d_state = const offset_of!(Description, state),
    d_measured = const offset_of!(Description, measured),
    d_behind = const offset_of!(Description, behind),
    a0 = const frame_offset(0),
    area = const AREA_BYTES,
    window = const WINDOW_BYTES,
    off = const offset_of!(Fixed, off),
    attached = const runahead_kernel::PAGE + offset_of!(Process, attached),
    watched = const runahead_kernel::PAGE + offset_of!(Process, watched),
    counted_apart = const COUNTS,
    closings = const OFFSET_OF_SLOT + offset_of!(Slot, agent) + offset_of!(AgentPart, closings),
    held = const OFFSET_OF_SLOT + offset_of!(Slot, speculator) + offset_of!(SpeculatorPart, held),
    counts_memory = const offset_of!(Fixed, counts_memory),
    far_start = const offset_of!(Fixed, far_start),
    far_end = const offset_of!(Fixed, far_end),
    busy = const offset_of!(Frame, busy),
    description = const offset_of!(Frame, description),
    target = const offset_of!(Frame, target),
    rbx = const offset_of!(Frame, rbx),
    rsp = const offset_of!(Frame, rsp),
    rax = const offset_of!(Frame, rax),
    rdi = const offset_of!(Frame, rdi),
    rsi = const offset_of!(Frame, rsi),
    rdx = const offset_of!(Frame, rdx),
    r10 = const offset_of!(Frame, r10),
    r8 = const offset_of!(Frame, r8),
    r9 = const offset_of!(Frame, r9),
    rbp = const offset_of!(Frame, rbp),
    r12 = const offset_of!(Frame, r12),
    r13 = const offset_of!(Frame, r13),
    r14 = const offset_of!(Frame, r14),
    r15 = const offset_of!(Frame, r15),
    rflags = const offset_of!(Frame, rflags),
    mask = const offset_of!(Frame, mask),
    result = const offset_of!(Frame, result),
    measured = const offset_of!(Frame, measured),
    began = const offset_of!(Frame, began),
    usage = const offset_of!(Frame, usage),
    sleeps = const offset_of!(Frame, usage) + 8 * SLEEPS,
    asks_sleeps = const offset_of!(Fixed, asks_sleeps),
    getrusage = const n::__NR_getrusage,
    thread = const THREAD,
    returned = const offset_of!(Frame, returned),
    sse = const offset_of!(Frame, sse),
    trap_flag = const TRAP_FLAG,
    blocked = const BLOCKED,
    entry = const offset_of!(Fixed, entry),
    flags = const offset_of!(Fixed, flags),
    report = const flags::REPORT | flags::TRACE,
    remembers = const flags::REMEMBERS,
    remembering = const OFFSET_OF_HEADER + offset_of!(Header, remembering),
    replaying = const OFFSET_OF_HEADER + offset_of!(Header, replaying),
    openings = const offset_of!(Fixed, openings),
    nobody_any_more = const remembering::OVER,
    unchecked = const offset_of!(Fixed, wait) + offset_of!(Wait, unchecked) + offset_of!(Unchecked, state),
    expected = const offset_of!(Fixed, wait) + offset_of!(Wait, unchecked) + offset_of!(Unchecked, expected),
    check = const offset_of!(Fixed, wait) + offset_of!(Wait, check),
    looked_at = const offset_of!(Fixed, wait) + offset_of!(Wait, looked_at),
    asked_as = const offset_of!(Fixed, wait) + offset_of!(Wait, asked_as),
    watch_later = const offset_of!(Fixed, wait) + offset_of!(Wait, watch_later),
    wait_code = const offset_of!(Fixed, wait) + offset_of!(Wait, code),
    numbers = const 64 * LOOKED_AT,
    waits = const check::WAITS,
    answer = const offset_of!(Check, answer),
    process = const offset_of!(Check, process),
    ready = const offset_of!(Check, ready),
    code = const offset_of!(Check, code),
    unseen = const verdict::UNSEEN,
    turn = const check::TURN,
    closing = const CLOSING,
    spins = const 1 << 21,
    begun = const PAGE + offset_of!(Process, begun),
    mapped = const PAGE + offset_of!(Process, mapped),
    mapped_told = const PAGE + offset_of!(Process, mapped_told),
    main_process = const OFFSET_OF_HEADER + offset_of!(Header, main_process),
    host_files = const OFFSET_OF_HEADER + offset_of!(Header, host_files),
    host_nameless = const OFFSET_OF_HEADER + offset_of!(Header, host_nameless),
    speculators = const OFFSET_OF_HEADER + HOLDERS_AT,
    slots = const SLOTS,
    over = const OFFSET_OF_HEADER + offset_of!(Header, checks) + offset_of!(Checks, over),
    check_held = const OFFSET_OF_HEADER + offset_of!(Header, checks) + offset_of!(Checks, held),
    watch_file = const watch::FILE,
    watch_memory = const watch::MEMORY,
    swapped_least = const crate::calls::SWAPPED_LEAST,
    map_type = const n::MAP_TYPE,
    map_private = const n::MAP_PRIVATE,
    map_not_counted = const n::MAP_STACK | n::MAP_NORESERVE,
    prot_read_write = const n::PROT_READ | n::PROT_WRITE,
    mremap_fixed = const n::MREMAP_FIXED,
    exit_group = const n::__NR_exit_group,
    fcntl = const n::__NR_fcntl,
    mremap = const n::__NR_mremap,
    unlink = const n::__NR_unlink,
    unlinkat = const n::__NR_unlinkat,
    rmdir = const n::__NR_rmdir,
    rename = const n::__NR_rename,
    renameat = const n::__NR_renameat,
    renameat2 = const n::__NR_renameat2,
    set_lease = const n::F_SETLEASE,
    notify = const n::F_NOTIFY,
    set_ptracer = const PR_SET_PTRACER,
    no_new_privileges = const PR_SET_NO_NEW_PRIVS,
    drop_bounding = const PR_CAPBSET_DROP,
    ambient = const PR_CAP_AMBIENT,
    secure_bits = const PR_SET_SECUREBITS,
);

// SAFETY: as above, and nothing is touched: the program's own instruction makes the call.
global_asm!(
    ".globl runahead_agent_past",
    ".hidden runahead_agent_past",
    ".type runahead_agent_past, @function",
    "runahead_agent_past:",
    ".cfi_startproc",
    ".cfi_signal_frame",
    ".cfi_def_cfa rsp, 0",
    ".cfi_escape 0x16, 0x10, 3, 0x72, 0, 0x06",
    "  movsxd r11, dword ptr [rcx + {d_detour}]",
    "  add r11, [rcx + {d_syscall}]",
    "  jmp r11",
    ".cfi_endproc",
    ".size runahead_agent_past, . - runahead_agent_past",
    d_syscall = const offset_of!(Description, syscall_address),
    d_detour = const offset_of!(Description, detour),
);

// While the process's code is not all known (`crate::unchecked`): once there is an answer, and until then for
// the calls that are looked at even so, on to where it is seen whether the answer is for this process and all
// of its code; else past the agent.
//
// SAFETY: as above; reads words of the agent's block and of the session's, which are mapped for good.
global_asm!(
    ".globl runahead_agent_unchecked",
    ".hidden runahead_agent_unchecked",
    ".type runahead_agent_unchecked, @function",
    "runahead_agent_unchecked:",
    ".cfi_startproc",
    ".cfi_signal_frame",
    ".cfi_def_cfa rsp, 0",
    ".cfi_escape 0x16, 0x10, 3, 0x72, 0, 0x06",
    "  mov r11, [rcx + {d_state}]",
    "  mov r11, [r11 + {check}]",
    "  cmp dword ptr [r11 + {answer}], 0",
    "  jne runahead_agent_entry",
    "  cmp eax, {numbers}",
    "  jae runahead_agent_past",
    "  mov r11, [rcx + {d_state}]",
    "  bt dword ptr [r11 + {looked_at}], eax",
    "  jc runahead_agent_entry",
    "  jmp runahead_agent_past",
    ".cfi_endproc",
    ".size runahead_agent_unchecked, . - runahead_agent_unchecked",
    d_state = const offset_of!(Description, state),
    check = const offset_of!(Fixed, wait) + offset_of!(Wait, check),
    answer = const offset_of!(Check, answer),
    looked_at = const offset_of!(Fixed, wait) + offset_of!(Wait, looked_at),
    numbers = const 64 * LOOKED_AT,
);

unsafe extern "C" {
    fn runahead_agent_entry();
    fn runahead_agent_past();
    fn runahead_agent_unchecked();
}

/// Where the agent's image is in memory. (The linker's symbols: its beginning and its end.)
pub fn image() -> Range<usize> {
    let (start, end): (usize, usize);
    // SAFETY: takes two addresses.
    unsafe {
        asm!("lea {start}, [rip + __ehdr_start]", "lea {end}, [rip + _end]", start = out(reg) start, end = out(reg) end,
            options(nomem, nostack, preserves_flags));
    }
    start..end
}

/// The agent's own code: where it begins in our file, and its bytes. None: our header says nothing of it.
pub fn own_code() -> Option<(u64, &'static [u8])> {
    const HEADER: usize = 64;
    const SEGMENT: usize = 56;
    let image = image();
    let slice = |start: usize, length: usize| {
        let end = start.checked_add(length)?;
        // SAFETY: inside our own image, which is readable and stays.
        (end <= image.len())
            .then(|| unsafe { core::slice::from_raw_parts((image.start + start) as *const u8, length) })
    };
    let word = |bytes: &[u8], at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
    let header = slice(0, HEADER)?;
    let (table, count) = (word(header, 32)?, u16::from_le_bytes(*header.get(56..)?.first_chunk()?));
    (0..usize::from(count)).find_map(|index| {
        let segment = slice(table + index * SEGMENT, SEGMENT)?;
        let kind = u32::from_le_bytes(*segment.first_chunk()?);
        let flags = u32::from_le_bytes(*segment.get(4..)?.first_chunk()?);
        let is_code = (kind, flags & PF_X) == (PT_LOAD, PF_X);
        let (offset, address, bytes) = (word(segment, 8)?, word(segment, 16)?, word(segment, 32)?);
        is_code.then(|| Some((offset as u64, slice(address, bytes)?))).flatten()
    })
}

const PT_LOAD: u32 = 1;
const PF_X: u32 = 1;

/// Address of the entry code, for [`Fixed::entry`].
pub fn entry_address() -> usize {
    runahead_agent_entry as *const () as usize
}

/// Address of the code that passes most calls by, for [`Fixed::entry`] too.
pub fn unchecked_address() -> usize {
    runahead_agent_unchecked as *const () as usize
}

/// Address of the code that goes past the agent, for [`Fixed::entry`] too.
pub fn past_address() -> usize {
    runahead_agent_past as *const () as usize
}

// What the unwind information above says in numbers, and what the assembly unrolls.
const _: () = assert!(offset_of!(Frame, description) == 8 && offset_of!(Frame, target) == 16);
const _: () = assert!(offset_of!(Frame, rbx) == 24 && offset_of!(Frame, rsp) == 32);
const _: () = assert!(offset_of!(Frame, busy) == 0 && offset_of!(Frame, sse).is_multiple_of(16));
const _: () = assert!(offset_of!(Description, syscall_address) == 0);
// A set of numbers is found by `bt` as far as there is a count for each.
const _: () = assert!(COUNTS <= NUMBERS && size_of::<Closings>() == 4 * COUNTS);
const _: () = assert!(AREAS == 8 && AREA_BYTES.is_multiple_of(64));
