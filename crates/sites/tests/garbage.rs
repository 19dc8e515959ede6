//! Broken files: the analysis never panics, never loops, and never says more than the file does.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use common::{TAIL, assemble, function};
use proptest::prelude::*;
use runahead_abi::sites::form;
use runahead_sites::{Analysis, analyse};

fn analyse_bytes(bytes: &[u8]) -> Analysis {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    let analysis = analyse(file.path()).unwrap();
    for site in &analysis.sites {
        // Whatever the headers say: what is recorded is what the file has there.
        let patch = site.patch_offset as usize;
        assert_eq!(bytes[patch..patch + 16], site.expected);
        if site.is_short() {
            let pad = site.pad_offset as usize;
            assert_eq!(bytes[pad..pad + 8], site.expected_pad);
        }
        let call = patch + usize::from(site.syscall_distance);
        let is_before_call = ![form::CALLED, form::ENTRANCE, form::TAKEN].contains(&site.form);
        assert!(!is_before_call || bytes[call..call + 2] == [0x0f, 0x05]);
    }
    analysis
}

/// A small object with everything in it: calls of each form, paddings, unwind tables, symbols.
fn small() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let assembly = [
            function(
                "reader",
                "xor %eax, %eax\nsyscall\ncmp $-4095, %rax\njae 1f\nret\nnopw 0(%rax,%rax,1)\n1: ret",
            ),
            function("opener", "mov $257, %eax\nsyscall\ntest %eax, %eax\nret"),
            function("any", "mov %rdi, %rax\nmov 8(%rsp), %r9\nsyscall\ntest %eax, %eax\nret"),
            TAIL.to_owned(),
        ]
        .concat();
        let path = assemble(directory.path(), "small", &assembly);
        fs::read(path).unwrap()
    })
}

/// Static programs with code that no table lists, data in some of it, tables of jumps and landing pads: one
/// that is loaded anywhere, and one that is loaded where it says.
fn programs() -> &'static [Vec<u8>; 2] {
    static BYTES: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    BYTES.get_or_init(|| {
        let text = format!(
            ".text\n.globl _start\n{}{}\
             f: mov $257, %eax\nsyscall\ntest %eax, %eax\nret\nlea 5f(%rip), %rdx\nmovslq (%rdx,%rdi,4), %rax\n\
             add %rdx, %rax\njmp *%rax\n1: mov %r15, %rax\nsyscall\nret\n{}\
             g: ret\n.byte 0x06, 0x0f, 0x05, 0x06\n{TAIL}\
             .section .rodata\n.p2align 2\n5: .long 1b-5b, 1b-5b\n.data\n.quad f, 1b\n\
             .section .gcc_except_table,\"a\",@progbits\n8: .byte 0xff, 0xff, 1, 4, 0, 5, 5, 0\n\
             .section .note.GNU-stack,\"\",@progbits\n",
            function("_start", "call f\ncall g\nlea f(%rip), %rdi\nhlt"),
            function("lands", ".cfi_personality 0x1b, _start\n.cfi_lsda 0x1b, 8f\ncall f\nnop\nret"),
            function("between", "mov $9, %eax\nsyscall\ntest %eax, %eax\nret"),
        );
        [&["-static-pie"][..], &["-static", "-no-pie"]].map(|how| {
            let directory = tempfile::tempdir().unwrap();
            let (source, program) = (directory.path().join("program.s"), directory.path().join("program"));
            fs::write(&source, &text).unwrap();
            let status = Command::new("cc")
                .args(["-nostdlib", "-Wl,--build-id=none", "-o"])
                .args([&program, &source])
                .args(how)
                .status()
                .expect("these tests need cc (Debian: gcc)");
            assert!(status.success());
            fs::read(program).unwrap()
        })
    })
}

fn libc() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| fs::read("/lib/x86_64-linux-gnu/libc.so.6").unwrap())
}

#[test]
fn the_small_object_is_a_real_one() {
    assert_eq!(analyse_bytes(small()).sites.len(), 3);
}

#[test]
fn the_programs_are_swept() {
    for program in programs() {
        let numbers: Vec<u16> = analyse_bytes(program).sites.iter().map(|site| site.number).collect();
        assert!(numbers.contains(&257) && numbers.contains(&9), "{numbers:?}");
    }
}

#[test]
fn what_is_no_program_has_nothing() {
    for bytes in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", &[0x0f, 0x05].repeat(1000)] {
        let analysis = analyse_bytes(bytes);
        assert!(!analysis.understood && analysis.sites.is_empty());
    }
    // Another machine's: the same file as aarch64, and as a 32-bit one.
    for (position, value) in [(18, 183), (4, 1)] {
        let mut bytes = small().to_vec();
        bytes[position] = value;
        assert!(!analyse_bytes(&bytes).understood);
    }
    assert!(analyse(Path::new("/nonexistent")).is_err());
}

#[test]
fn a_file_without_section_headers_has_the_same_sites() {
    let whole = analyse_bytes(small());
    let mut bytes = small().to_vec();
    // e_shoff, and e_shentsize, e_shnum, e_shstrndx.
    bytes[0x28..0x30].fill(0);
    bytes[0x3a..0x40].fill(0);
    let bare = analyse_bytes(&bytes);
    assert!(bare.understood);
    assert_eq!(bare.sites, whole.sites);
}

#[test]
fn every_cut_is_survived() {
    for length in (0..small().len()).step_by(7) {
        analyse_bytes(&small()[..length]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn mutated_small_objects_are_survived(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
    ) {
        let mut bytes = small().to_vec();
        for (position, value) in changes {
            let position = position.index(bytes.len());
            bytes[position] = value;
        }
        analyse_bytes(&bytes);
    }

    #[test]
    fn mutated_headers_are_survived(
        changes in prop::collection::vec((0usize..64 + 56 * 12, any::<u8>()), 1..6),
    ) {
        let mut bytes = small().to_vec();
        for (position, value) in changes {
            bytes[position] = value;
        }
        analyse_bytes(&bytes);
    }

    #[test]
    fn mutated_words_in_headers_are_survived(
        changes in prop::collection::vec(
            (0usize..(64 + 56 * 12) / 8, prop_oneof![
                any::<u64>(), Just(0), Just(u64::MAX), Just(u64::MAX / 2), 0u64..0x10000,
            ]),
            1..4,
        ),
    ) {
        let mut bytes = small().to_vec();
        for (word, value) in changes {
            bytes[word * 8..word * 8 + 8].copy_from_slice(&value.to_le_bytes());
        }
        analyse_bytes(&bytes);
    }

    #[test]
    fn mutated_programs_are_survived(
        which in 0usize..2,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        words in prop::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![
                any::<u64>(), Just(0), Just(u64::MAX), Just(u64::MAX / 2), 0u64..0x10000,
            ]),
            0..4,
        ),
    ) {
        let mut bytes = programs()[which].clone();
        // Of the section headers, which are the last thing in the file.
        let sections = u64::from_le_bytes(*bytes[0x28..].first_chunk().unwrap()) as usize;
        for (word, value) in words {
            let at = sections + word.index((bytes.len() - sections) / 8) * 8;
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        for (position, value) in changes {
            let position = position.index(bytes.len());
            bytes[position] = value;
        }
        analyse_bytes(&bytes);
    }

    #[test]
    fn noise_behind_a_magic_is_survived(noise in prop::collection::vec(any::<u8>(), 0..4096)) {
        let mut bytes = small()[..20].to_vec();
        bytes.extend(noise);
        analyse_bytes(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_mutated_c_library_is_survived(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3000),
        headers in prop::collection::vec((0usize..0x350, any::<u8>()), 0..3),
    ) {
        let mut bytes = libc().to_vec();
        for (position, value) in changes {
            let position = position.index(bytes.len());
            bytes[position] = value;
        }
        for (position, value) in headers {
            bytes[position] = value;
        }
        analyse_bytes(&bytes);
    }
}
