//! The memory functions that the compiler calls by itself, for binaries without libc.
//!
//! `memcpy` and friends are called by generated code wherever a large value moves. A binary without
//! libc must bring its own, and the agent's must stay invisible to the program: a plain exported
//! `memcpy` in a preloaded object would replace the program's. Hence assembly with hidden symbols.
//! `rep movsb` is not the fastest for a few bytes, but touches no vector register.

/// Defines `memcpy`, `memmove`, `memset`, `memcmp`, `bcmp` and `strlen` with hidden visibility. Call
/// once, at the root of a binary that links no libc.
#[macro_export]
macro_rules! freestanding_memory {
    () => {
        #[cfg(target_arch = "x86_64")]
        core::arch::global_asm!(
            ".macro runahead_function name",
            "  .globl \\name",
            "  .hidden \\name",
            "  .type \\name, @function",
            "  \\name:",
            ".endm",
            ".text",
            "runahead_function memcpy",
            "  mov rax, rdi",
            "  mov rcx, rdx",
            "  rep movsb",
            "  ret",
            "runahead_function memmove",
            "  mov rax, rdi",
            "  mov rcx, rdi",
            "  sub rcx, rsi",
            "  cmp rcx, rdx",
            "  mov rcx, rdx",
            "  jb 2f",
            "  rep movsb",
            "  ret",
            // Overlapping with the target above the source: backwards.
            "2: lea rdi, [rdi + rdx - 1]",
            "  lea rsi, [rsi + rdx - 1]",
            "  std",
            "  rep movsb",
            "  cld",
            "  ret",
            "runahead_function memset",
            "  mov r8, rdi",
            "  mov eax, esi",
            "  mov rcx, rdx",
            "  rep stosb",
            "  mov rax, r8",
            "  ret",
            "runahead_function memcmp",
            "3: test rdx, rdx",
            "  jz 4f",
            "  movzx eax, byte ptr [rdi]",
            "  movzx ecx, byte ptr [rsi]",
            "  sub eax, ecx",
            "  jnz 5f",
            "  inc rdi",
            "  inc rsi",
            "  dec rdx",
            "  jmp 3b",
            "4: xor eax, eax",
            "5: ret",
            "runahead_function bcmp",
            "  jmp memcmp",
            "runahead_function strlen",
            "  xor eax, eax",
            "6: cmp byte ptr [rdi + rax], 0",
            "  je 7f",
            "  inc rax",
            "  jmp 6b",
            "7: ret",
            // Named by the unwind tables of the precompiled core; nothing unwinds here.
            "runahead_function rust_eh_personality",
            "  ud2",
        );
    };
}
