//! What the speculator needs to become the program at a system call.

/// The general registers at a system call site, as the program left them before the `syscall`
/// instruction. `rcx` and `r11` are missing: the instruction itself destroys them.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The system call's number.
    pub rax: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub rsp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rflags: u64,
    /// Address of the `syscall` instruction.
    pub rip: u64,
    /// Base of the thread's local storage.
    pub fs_base: u64,
}

/// The general registers in the middle of the program's code, at an instruction that faulted: those at a call
/// (`rip` is the instruction's address), and the two that a call destroys.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRegisters {
    pub registers: Registers,
    pub rcx: u64,
    pub r11: u64,
}

#[cfg(target_arch = "x86_64")]
impl Registers {
    /// The system call's six arguments.
    pub fn arguments(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }
}

/// Bytes kept for the vector and floating point state: the standard XSAVE format up to and including
/// AVX-512 ends at 2688; AMX tiles (8 KB more) are not part of the state that a system call keeps
/// across a speculation.
pub const VECTOR_STATE_BYTES: usize = 4096;

/// The XSAVE components that are posted: x87, SSE, AVX and the three of AVX-512.
pub const VECTOR_STATE_MASK: u64 = 0xe7;
