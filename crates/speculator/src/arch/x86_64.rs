//! x86-64: start, entering the program's code, coming back from it, signal frames.

use crate::cell::Global;
use crate::layout::{STACK_BYTES, STACKS};
use core::arch::{asm, global_asm};
use core::ffi::c_void;
use runahead_abi::registers::{FaultRegisters, Registers, VECTOR_STATE_MASK};

/// One intercepted system call of the program's code, from a stub or a trap.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub number: usize,
    pub arguments: [usize; 6],
    /// It came through a stub: the program's own agent sees this call too.
    pub through_stub: bool,
}

/// What the stub entry below pushes.
#[repr(C)]
pub struct Frame {
    description: *const Description,
    number: u64,
    rdi: u64,
    rsi: u64,
    rdx: u64,
    r10: u64,
    r8: u64,
    r9: u64,
    _program_stack: u64,
}

/// What a stub hands over: the agent's (`agent::arch::Description`, in the program's memory) or one of
/// our own.
#[repr(C)]
struct Description {
    syscall_address: u64,
    owner: u64,
}

/// In a description's `owner`: the site is rewritten in the mirror only, the program's agent does not see
/// its calls.
const OURS: u64 = 1;

#[repr(C)]
pub struct Answer {
    rax: u64,
    target: u64,
}

/// Bytes of a `syscall` instruction.
pub const SYSCALL_BYTES: usize = 2;

extern "C" fn stub_call(frame: &Frame) -> Answer {
    // SAFETY: rcx points into a stub that this code was jumped through; if the program's wild jump
    // made it up, the fault ends the speculation.
    let description = unsafe { &*frame.description };
    let call = Call {
        number: frame.number as usize,
        arguments: [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9].map(|r| r as usize),
        through_stub: description.owner != OURS,
    };
    let returned = crate::emulate::call(&call);
    Answer { rax: returned as u64, target: description.syscall_address + SYSCALL_BYTES as u64 }
}

// SAFETY (of the whole block). The start: the kernel enters with rsp at the argument count. The stub
// entry: jumped to by stubs with rax = number, r11 = state, rcx = description; rcx, r11 and flags are
// free; everything else comes back as it was. The program's stack is not touched: the runtime has its
// own, which is free whenever the program's code runs. Registers that Rust keeps (rbx, rbp, r12-r15)
// need no saving; the SSE registers do, the upper vector halves are never touched.
global_asm!(
    ".text",
    ".globl runahead_speculator_start",
    "runahead_speculator_start:",
    "  mov rdi, rsp",
    "  and rsp, -16",
    "  call {start}",
    "  ud2",
    ".globl runahead_stub_entry",
    ".hidden runahead_stub_entry",
    "runahead_stub_entry:",
    "  mov r11, rsp",
    "  movabs rsp, {stack_top}",
    "  push r11",
    "  push r9",
    "  push r8",
    "  push r10",
    "  push rdx",
    "  push rsi",
    "  push rdi",
    "  push rax",
    "  push rcx",
    "  mov rdi, rsp",
    "  sub rsp, 264",
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
    "  cld",
    "  call {stub_call}",
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
    "  add rsp, 264",
    "  mov rcx, rdx",
    "  pop rdi", // the description's place
    "  pop rdi", // the number's
    "  pop rdi",
    "  pop rsi",
    "  pop rdx",
    "  pop r10",
    "  pop r8",
    "  pop r9",
    "  pop rsp",
    "  jmp rcx",
    // Where signal handlers return through.
    ".globl runahead_signal_return",
    ".hidden runahead_signal_return",
    "runahead_signal_return:",
    "  mov eax, 15",
    "  syscall",
    "  ud2",
    start = sym crate::start,
    stub_call = sym stub_call,
    stack_top = const STACKS + STACK_BYTES,
);

unsafe extern "C" {
    fn runahead_stub_entry();
    pub fn runahead_signal_return();
}

/// Where the stubs of the mirrored program enter the runtime.
pub fn stub_entry_address() -> usize {
    runahead_stub_entry as *const () as usize
}

/// Leaves whatever is running, on whichever stack, and goes on in `crate::serve` on an empty runtime
/// stack. Nothing below is unwound: the runtime keeps nothing that wants it.
pub fn leave_for_server() -> ! {
    // SAFETY: the runtime's stack is free: nobody returns to what is on it.
    unsafe {
        asm!("mov rsp, {top}", "cld", "call {serve}", "ud2",
            top = in(reg) STACKS + STACK_BYTES,
            serve = sym crate::serve,
            options(noreturn))
    }
}

/// Becomes the program: loads its registers and vector state, as they are right after the system call
/// at `registers.rip` has returned `returned`.
///
/// # Safety
/// The mirror must be ready: the next instruction is the program's.
pub unsafe fn enter_program(registers: &Registers, vector_state: *const u8, returned: isize) -> ! {
    set_thread_base(registers.fs_base);
    // SAFETY: `vector_state` is a standard-format XSAVE area (checked by `vector_state_is_sound`); all
    // registers are replaced, control does not come back here.
    unsafe {
        asm!(
            "xrstor64 [rcx]",
            "mov rbx, [rdi + {rbx}]",
            "mov rsi, [rdi + {rsi}]",
            "mov rbp, [rdi + {rbp}]",
            "mov rsp, [rdi + {rsp}]",
            "mov r8, [rdi + {r8}]",
            "mov r9, [rdi + {r9}]",
            "mov r10, [rdi + {r10}]",
            "mov r12, [rdi + {r12}]",
            "mov r13, [rdi + {r13}]",
            "mov r14, [rdi + {r14}]",
            "mov r15, [rdi + {r15}]",
            "mov rdx, [rdi + {rdx}]",
            "mov rax, r11",
            "mov rcx, [rdi + {rip}]",
            "add rcx, 2",
            "mov rdi, [rdi + {rdi_at}]",
            "jmp rcx",
            in("rdi") registers,
            in("rcx") vector_state,
            in("r11") returned,
            in("eax") VECTOR_STATE_MASK as u32,
            in("edx") 0u32,
            rbx = const core::mem::offset_of!(Registers, rbx),
            rsi = const core::mem::offset_of!(Registers, rsi),
            rbp = const core::mem::offset_of!(Registers, rbp),
            rsp = const core::mem::offset_of!(Registers, rsp),
            r8 = const core::mem::offset_of!(Registers, r8),
            r9 = const core::mem::offset_of!(Registers, r9),
            r10 = const core::mem::offset_of!(Registers, r10),
            r12 = const core::mem::offset_of!(Registers, r12),
            r13 = const core::mem::offset_of!(Registers, r13),
            r14 = const core::mem::offset_of!(Registers, r14),
            r15 = const core::mem::offset_of!(Registers, r15),
            rdx = const core::mem::offset_of!(Registers, rdx),
            rip = const core::mem::offset_of!(Registers, rip),
            rdi_at = const core::mem::offset_of!(Registers, rdi),
            options(noreturn)
        )
    }
}

/// Where [`enter_at_fault`] goes: all registers are the program's by then.
static FAULTED_AT: Global<u64> = Global::new(0);

/// Becomes the program at an instruction that faulted, which is executed again.
///
/// # Safety
/// As [`enter_program`].
pub unsafe fn enter_at_fault(faulted: &FaultRegisters, vector_state: *const u8) -> ! {
    /// The flags that computing sets, and the direction of string instructions; none that trap.
    const FLAGS: u64 = 0xcd5;
    set_thread_base(faulted.registers.fs_base);
    *FAULTED_AT.get() = faulted.registers.rip;
    // SAFETY: as in `enter_program`; the flags go through the runtime's stack, which is free from here on.
    unsafe {
        asm!(
            "xrstor64 [rcx]",
            "push r11",
            "popfq",
            "mov rbx, [rdi + {rbx}]",
            "mov rsi, [rdi + {rsi}]",
            "mov rbp, [rdi + {rbp}]",
            "mov rsp, [rdi + {rsp}]",
            "mov r8, [rdi + {r8}]",
            "mov r9, [rdi + {r9}]",
            "mov r10, [rdi + {r10}]",
            "mov r11, [rdi + {r11}]",
            "mov r12, [rdi + {r12}]",
            "mov r13, [rdi + {r13}]",
            "mov r14, [rdi + {r14}]",
            "mov r15, [rdi + {r15}]",
            "mov rdx, [rdi + {rdx}]",
            "mov rax, [rdi + {rax}]",
            "mov rcx, [rdi + {rcx}]",
            "mov rdi, [rdi + {rdi_at}]",
            "jmp qword ptr [rip + {target}]",
            in("rdi") faulted,
            in("rcx") vector_state,
            in("r11") faulted.registers.rflags & FLAGS,
            in("eax") VECTOR_STATE_MASK as u32,
            in("edx") 0u32,
            rax = const core::mem::offset_of!(FaultRegisters, registers.rax),
            rbx = const core::mem::offset_of!(FaultRegisters, registers.rbx),
            rsi = const core::mem::offset_of!(FaultRegisters, registers.rsi),
            rbp = const core::mem::offset_of!(FaultRegisters, registers.rbp),
            rsp = const core::mem::offset_of!(FaultRegisters, registers.rsp),
            r8 = const core::mem::offset_of!(FaultRegisters, registers.r8),
            r9 = const core::mem::offset_of!(FaultRegisters, registers.r9),
            r10 = const core::mem::offset_of!(FaultRegisters, registers.r10),
            r11 = const core::mem::offset_of!(FaultRegisters, r11),
            r12 = const core::mem::offset_of!(FaultRegisters, registers.r12),
            r13 = const core::mem::offset_of!(FaultRegisters, registers.r13),
            r14 = const core::mem::offset_of!(FaultRegisters, registers.r14),
            r15 = const core::mem::offset_of!(FaultRegisters, registers.r15),
            rdx = const core::mem::offset_of!(FaultRegisters, registers.rdx),
            rcx = const core::mem::offset_of!(FaultRegisters, rcx),
            rdi_at = const core::mem::offset_of!(FaultRegisters, registers.rdi),
            target = sym FAULTED_AT,
            options(noreturn)
        )
    }
}

/// A vector state as a process starts with: nobody tells what is in these registers at a fault.
pub fn fresh_vector_state(area: &mut [u8]) {
    const MXCSR_AT: usize = 24;
    const MXCSR: u32 = 0x1f80;
    area.fill(0);
    if let Some(mxcsr) = area.get_mut(MXCSR_AT..MXCSR_AT + 4) {
        mxcsr.copy_from_slice(&MXCSR.to_le_bytes());
    }
}

fn set_thread_base(base: u64) {
    const ARCH_SET_FS: usize = 0x1002;
    const ARCH_PRCTL: usize = 158;
    // SAFETY: the runtime itself uses no thread-local storage.
    unsafe { runahead_kernel::arch::syscall(ARCH_PRCTL, [ARCH_SET_FS, base as usize, 0, 0, 0, 0]) };
}

/// Makes a copied XSAVE area one that `xrstor` cannot refuse: only the components that we post, the
/// standard format, zeros where zeros must be, and no reserved bit in MXCSR.
pub fn make_vector_state_sound(area: &mut [u8]) {
    const MXCSR_AT: usize = 24;
    const HEADER_AT: usize = 512;
    const MXCSR_DEFINED: u32 = 0xffbf;
    let Some(header) = area.get_mut(HEADER_AT..HEADER_AT + 64) else {
        return;
    };
    let mut components = [0u8; 8];
    components.copy_from_slice(header.get(..8).unwrap_or(&[0; 8]));
    let components = u64::from_le_bytes(components) & VECTOR_STATE_MASK;
    header.fill(0);
    for (to, from) in header.iter_mut().zip(components.to_le_bytes()) {
        *to = from;
    }
    if let Some(mxcsr) = area.get_mut(MXCSR_AT..MXCSR_AT + 4) {
        let value = u32::from_le_bytes([mxcsr[0], mxcsr[1], mxcsr[2], mxcsr[3]]) & MXCSR_DEFINED;
        mxcsr.copy_from_slice(&value.to_le_bytes());
    }
}

/// The general registers in a signal's context (`ucontext_t.uc_mcontext`), in the kernel's order.
#[repr(C)]
struct SignalRegisters {
    r8: u64,
    r9: u64,
    r10: u64,
    r11: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rbx: u64,
    rdx: u64,
    rax: u64,
    rcx: u64,
    rsp: u64,
    rip: u64,
}

/// Bytes before the registers in `ucontext_t`: flags, link, alternate stack.
const REGISTERS_AT: usize = 40;

/// A signal's context, as the kernel passes it to a handler.
pub struct SignalContext(&'static mut SignalRegisters);

impl SignalContext {
    /// # Safety
    /// `context` is the third argument of a running signal handler, and the value is not used after it
    /// returns.
    pub unsafe fn new(context: *mut c_void) -> Self {
        // SAFETY: inside the context, by the kernel's layout.
        Self(unsafe { &mut *context.byte_add(REGISTERS_AT).cast() })
    }

    pub fn instruction(&self) -> usize {
        self.0.rip as usize
    }

    pub fn stack(&self) -> usize {
        self.0.rsp as usize
    }

    /// The system call that was trapped.
    pub fn call(&self) -> Call {
        let r = &*self.0;
        Call {
            number: r.rax as usize,
            arguments: [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9].map(|r| r as usize),
            through_stub: false,
        }
    }

    pub fn set_returned(&mut self, value: isize) {
        self.0.rax = value as u64;
    }
}

/// `mov eax, number; syscall; ret`: what replaces a vDSO function in the mirror.
pub fn system_call_function(number: u32) -> [u8; 8] {
    let n = number.to_le_bytes();
    [0xb8, n[0], n[1], n[2], n[3], 0x0f, 0x05, 0xc3]
}

/// Bytes of `mov eax, imm32; syscall`.
pub const SITE_BYTES: usize = 7;

/// Bytes of one stub.
pub const STUB_BYTES: usize = 64;

/// Whether the bytes at `site` read `mov eax, number; syscall`.
///
/// # Safety
/// `SITE_BYTES` bytes at `site` must be readable.
pub unsafe fn loads_number(site: usize, number: u32) -> bool {
    let n = number.to_le_bytes();
    // SAFETY: the caller's promise.
    let found = unsafe { *(site as *const [u8; SITE_BYTES]) };
    found == [0xb8, n[0], n[1], n[2], n[3], 0x0f, 0x05]
}

/// `jmp rel32` from `at` to `target`; None if it is out of reach.
pub fn near_jump(at: usize, target: usize) -> Option<[u8; 5]> {
    let distance = i32::try_from(target as i64 - (at as i64 + 5)).ok()?;
    let d = distance.to_le_bytes();
    Some([0xe9, d[0], d[1], d[2], d[3]])
}

/// Writes a stub like the agent's, for a site that only the mirror has rewritten.
///
/// # Safety
/// `STUB_BYTES` bytes at `at` must be writable and unused.
pub unsafe fn write_stub(at: usize, state_page: usize, syscall_address: usize, number: u32) {
    const DESCRIPTION_AT: usize = 48;
    let s = state_page.to_le_bytes();
    let n = number.to_le_bytes();
    #[rustfmt::skip]
    let code = [
        0xb8, n[0], n[1], n[2], n[3], // mov eax, number
        0x49, 0xbb, s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], // mov r11, state page
        0x48, 0x8d, 0x0d, DESCRIPTION_AT as u8 - 22, 0, 0, 0, // lea rcx, [description]
        0x41, 0xff, 0x23, // jmp [r11]
    ];
    // SAFETY: the caller's promise.
    unsafe {
        core::ptr::copy_nonoverlapping(code.as_ptr(), at as *mut u8, code.len());
        let description = Description { syscall_address: syscall_address as u64, owner: OURS };
        ((at + DESCRIPTION_AT) as *mut Description).write(description);
    }
}
