//! x86-64: the stub of a site, the way from it into the agent and back, and the vector state.
//!
//! # A rewritten site
//! ```text
//! before: mov eax, NUMBER       after: jmp stub
//!         syscall                      syscall          <- the stub jumps here ("plain") ...
//!         cmp rax, -4096               cmp rax, -4096   <- ... or here ("done")
//! ```
//! The stub may use rcx, r11 and the flags: the `syscall` destroys the first two by itself, and the
//! site file only lists sites after which the flags are dead. It must not touch anything else, the red
//! zone below the stack pointer included.

use crate::loader::Debug;
use crate::state::Fixed;
use core::arch::{asm, global_asm};
use runahead_abi::registers::{Registers, VECTOR_STATE_MASK};

/// Bytes of one stub with its description.
pub const STUB_BYTES: usize = 64;
/// Where in a stub its [`Description`] lies.
const DESCRIPTION_AT: usize = 48;

/// What a stub hands to the agent.
#[repr(C)]
pub struct Description {
    /// Address of the `syscall` instruction.
    pub syscall_address: usize,
    /// For the speculator: this site is the agent's own.
    pub zero: u64,
}

/// Bytes of the `syscall` instruction.
pub const SYSCALL_BYTES: usize = 2;

/// What the entry code pushes; the order is that of the assembly below.
#[repr(C)]
pub struct Frame {
    pub description: *const Description,
    /// The system call's number.
    pub rax: u64,
    pub state: *const Fixed,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub r10: u64,
    pub r8: u64,
    pub r9: u64,
    pub rbx: u64,
    pub rbp: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rflags: u64,
}

/// The sixteen SSE registers as the program left them.
pub type SseRegisters = [[u64; 2]; 16];

const RED_ZONE: usize = 128;

impl Frame {
    /// The program's stack pointer at the site.
    pub fn stack(&self) -> usize {
        self as *const Frame as usize + size_of::<Frame>() + RED_ZONE
    }

    pub fn description(&self) -> &Description {
        // SAFETY: points into the stub that was jumped through, which is never unmapped.
        unsafe { &*self.description }
    }

    pub fn state(&self) -> &'static Fixed {
        // SAFETY: the stub holds the address of the agent's block, mapped for good.
        unsafe { &*self.state }
    }

    pub fn arguments(&self) -> [usize; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9].map(|r| r as usize)
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
            rsp: self.stack() as u64,
            r8: self.r8,
            r9: self.r9,
            r10: self.r10,
            r12: self.r12,
            r13: self.r13,
            r14: self.r14,
            r15: self.r15,
            rflags: self.rflags,
            rip: self.description().syscall_address as u64,
            fs_base: fs_base(),
        }
    }
}

/// Base of the thread's local storage: the C library keeps it at offset 0 as well (System V ABI).
fn fs_base() -> u64 {
    // SAFETY: the agent runs in threads that a C library set up.
    unsafe { runahead_kernel::arch::thread_word() as u64 }
}

/// What the agent answers to the entry code, in rax and rdx.
#[repr(C)]
pub struct Answer {
    /// The value of rax when the program goes on.
    pub rax: u64,
    /// Where it goes on.
    pub target: u64,
}

impl Answer {
    /// The program's own instruction makes the call.
    pub fn plain(frame: &Frame) -> Answer {
        Answer { rax: frame.rax, target: frame.description().syscall_address as u64 }
    }

    /// The call is done and returned `value`.
    pub fn done(frame: &Frame, value: usize) -> Answer {
        let after = frame.description().syscall_address + SYSCALL_BYTES;
        Answer { rax: value as u64, target: after as u64 }
    }
}

// SAFETY (of the whole routine): entered by `jmp` from a stub with rax = the call's number, r11 = state,
// rcx = description, flags free. All other registers are saved or untouched; the System V ABI's callee-saved ones are
// kept by the Rust code, and pushed because a post needs them. The stack below the red zone is free.
global_asm!(
    ".text",
    ".globl runahead_agent_entry",
    ".hidden runahead_agent_entry",
    ".type runahead_agent_entry, @function",
    "runahead_agent_entry:",
    "  lea rsp, [rsp - 128]",
    "  pushfq",
    "  cld",
    "  push r15",
    "  push r14",
    "  push r13",
    "  push r12",
    "  push rbp",
    "  push rbx",
    "  push r9",
    "  push r8",
    "  push r10",
    "  push rdx",
    "  push rsi",
    "  push rdi",
    "  push r11",
    "  push rax",
    "  push rcx",
    "  mov rbx, rsp",
    "  sub rsp, 256",
    "  and rsp, -16",
    "  movaps [rsp + 0x00], xmm0",
    "  movaps [rsp + 0x10], xmm1",
    "  movaps [rsp + 0x20], xmm2",
    "  movaps [rsp + 0x30], xmm3",
    "  movaps [rsp + 0x40], xmm4",
    "  movaps [rsp + 0x50], xmm5",
    "  movaps [rsp + 0x60], xmm6",
    "  movaps [rsp + 0x70], xmm7",
    "  movaps [rsp + 0x80], xmm8",
    "  movaps [rsp + 0x90], xmm9",
    "  movaps [rsp + 0xa0], xmm10",
    "  movaps [rsp + 0xb0], xmm11",
    "  movaps [rsp + 0xc0], xmm12",
    "  movaps [rsp + 0xd0], xmm13",
    "  movaps [rsp + 0xe0], xmm14",
    "  movaps [rsp + 0xf0], xmm15",
    "  mov rdi, rbx",
    "  mov rsi, rsp",
    "  call {call}",
    "  movaps xmm0, [rsp + 0x00]",
    "  movaps xmm1, [rsp + 0x10]",
    "  movaps xmm2, [rsp + 0x20]",
    "  movaps xmm3, [rsp + 0x30]",
    "  movaps xmm4, [rsp + 0x40]",
    "  movaps xmm5, [rsp + 0x50]",
    "  movaps xmm6, [rsp + 0x60]",
    "  movaps xmm7, [rsp + 0x70]",
    "  movaps xmm8, [rsp + 0x80]",
    "  movaps xmm9, [rsp + 0x90]",
    "  movaps xmm10, [rsp + 0xa0]",
    "  movaps xmm11, [rsp + 0xb0]",
    "  movaps xmm12, [rsp + 0xc0]",
    "  movaps xmm13, [rsp + 0xd0]",
    "  movaps xmm14, [rsp + 0xe0]",
    "  movaps xmm15, [rsp + 0xf0]",
    "  mov rsp, rbx",
    "  mov rcx, rdx",
    "  add rsp, 24",
    "  pop rdi",
    "  pop rsi",
    "  pop rdx",
    "  pop r10",
    "  pop r8",
    "  pop r9",
    "  pop rbx",
    "  pop rbp",
    "  pop r12",
    "  pop r13",
    "  pop r14",
    "  pop r15",
    // The direction flag is the one flag that a caller could rely on across a system call.
    "  test qword ptr [rsp], 0x400",
    "  lea rsp, [rsp + 136]",
    "  jz 2f",
    "  std",
    "2: jmp rcx",
    call = sym crate::calls::runahead_agent_call,
);

// SAFETY: as above, and nothing is touched: the program's own instruction makes the call.
global_asm!(
    ".globl runahead_agent_past",
    ".hidden runahead_agent_past",
    ".type runahead_agent_past, @function",
    "runahead_agent_past:",
    "  jmp qword ptr [rcx + {syscall_address}]",
    syscall_address = const core::mem::offset_of!(Description, syscall_address),
);

unsafe extern "C" {
    fn runahead_agent_entry();
    fn runahead_agent_past();
}

/// Address of the code that goes past the agent, for [`Fixed::entry`] too.
pub fn past_address() -> usize {
    runahead_agent_past as *const () as usize
}

/// Address of the entry code, for [`Fixed::entry`].
pub fn entry_address() -> usize {
    runahead_agent_entry as *const () as usize
}

/// What a stub does first: it brings the system call's number into eax.
pub enum Load<'a> {
    /// `mov eax, NUMBER`.
    Number(u16),
    /// The site's own instruction, which may stand anywhere and does that, or comes after it.
    Displaced(&'a [u8]),
}

/// Writes the stub for a site at `at`. `sampled`: the call may pass unseen while the agent is calm.
/// False if the site's `syscall` is out of a near jump's reach, or the instruction too long.
pub fn write_stub(
    at: &mut [u8; STUB_BYTES],
    state: usize,
    load: Load,
    syscall_address: usize,
    sampled: bool,
) -> bool {
    let base = at.as_ptr() as usize;
    let mut code = Code { bytes: at, length: 0 };
    match load {
        Load::Number(number) => {
            code.put(&[0xb8]); // mov eax, number
            code.put(&u32::from(number).to_le_bytes());
        }
        Load::Displaced(instruction) => code.put(instruction),
    }
    code.put(&[0x49, 0xbb]); // mov r11, state
    code.put(&state.to_le_bytes());
    if sampled {
        code.put(&[0x41, 0xff, 0x4b, core::mem::offset_of!(Fixed, calm) as u8]); // dec dword [r11 + calm]
        code.put(&[0x78, 5]); // js over the jump
        let next = base + code.length + 5;
        let Ok(distance) = i32::try_from(syscall_address as i64 - next as i64) else {
            return false;
        };
        code.put(&[0xe9]); // jmp syscall
        code.put(&distance.to_le_bytes());
    }
    code.put(&[0x48, 0x8d, 0x0d]); // lea rcx, [description]
    let after = code.length + 4;
    code.put(&(DESCRIPTION_AT as i32 - after as i32).to_le_bytes());
    code.put(&[0x41, 0xff, 0x63, core::mem::offset_of!(Fixed, entry) as u8]); // jmp [r11 + entry]
    if code.length > DESCRIPTION_AT {
        return false;
    }
    code.length = DESCRIPTION_AT;
    code.put(&syscall_address.to_le_bytes());
    code.put(&0u64.to_le_bytes());
    true
}

struct Code<'a> {
    bytes: &'a mut [u8; STUB_BYTES],
    length: usize,
}

impl Code<'_> {
    fn put(&mut self, more: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(self.length).zip(more) {
            *to = *from;
        }
        self.length += more.len();
    }
}

/// `jmp rel32` from `at` to `target`; None if it is out of reach.
pub fn near_jump(at: usize, target: usize) -> Option<[u8; 5]> {
    let distance = i32::try_from(target as i64 - (at as i64 + 5)).ok()?;
    let d = distance.to_le_bytes();
    Some([0xe9, d[0], d[1], d[2], d[3]])
}

/// `jmp rel8` from `at` to `target`; None if it is out of reach.
pub fn short_jump(at: usize, target: usize) -> Option<[u8; 2]> {
    let distance = i8::try_from(target as i64 - (at as i64 + 2)).ok()?;
    Some([0xeb, distance as u8])
}

/// Whether the processor and kernel keep the vector state in the way that a post uses.
pub fn can_save_vector_state() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    core::arch::x86_64::__cpuid(1).ecx & OSXSAVE != 0
}

/// The loader's account of what it has loaded: its exported `_r_debug`, null where there is none.
pub fn loader_debug() -> *const Debug {
    let debug: *const Debug;
    // SAFETY: reads an entry of our own table of addresses, which the loader has filled.
    unsafe {
        asm!(".weak _r_debug", "mov {debug}, qword ptr [rip + _r_debug@GOTPCREL]", debug = out(reg) debug,
            options(nostack, readonly, preserves_flags));
    }
    debug
}

/// Whether valgrind executes this process, a translation of its code and not the code itself: its own question, a
/// sequence that changes nothing on a processor. It would blame the program for what the agent asks of the
/// kernel, and for call numbers that it does not know.
pub fn under_valgrind() -> bool {
    const RUNNING_ON_VALGRIND: u64 = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let answer: u64;
    // SAFETY: rdi is turned round once, rbx exchanged with itself; valgrind reads `request` and sets rdx.
    unsafe {
        asm!("rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") &raw const request, inout("rdx") 0u64 => answer, inout("rdi") 0u64 => _,
            options(nostack));
    }
    answer != 0
}

/// Saves the program's vector and floating point state (64-byte aligned `area` of
/// `VECTOR_STATE_BYTES`).
///
/// # Safety
/// `area` must be valid for writes. The agent's own code has used SSE registers meanwhile, but never
/// the upper halves (it is compiled for the baseline), so `sse`, saved at the entry, completes it.
pub unsafe fn save_vector_state(area: *mut u8, sse: &SseRegisters) {
    const SSE_AT: usize = 160;
    const HEADER_AT: usize = 512;
    const HEADER_BYTES: usize = 64;
    // SAFETY: xsave writes into `area` as the caller promises; the header must be zero beforehand.
    unsafe {
        core::ptr::write_bytes(area.add(HEADER_AT), 0, HEADER_BYTES);
        asm!("xsave64 [{area}]", area = in(reg) area,
            in("eax") VECTOR_STATE_MASK as u32, in("edx") 0u32, options(nostack));
        core::ptr::copy_nonoverlapping(
            sse.as_ptr().cast::<u8>(),
            area.add(SSE_AT),
            size_of::<SseRegisters>(),
        );
        // The SSE registers are in use now even if xsave found them in their initial state.
        let components = area.add(HEADER_AT).cast::<u64>();
        *components |= 2;
    }
}
