//! Programs that have code in them whose functions nothing lists, beside such that unwind tables list: a C
//! library without tables in a static program. That code is proven as a whole, or none of it is.

mod common;

use common::TAIL;
use runahead_abi::sites::{ANY_NUMBER, Site, form};
use runahead_sites::{Analysis, Reason, analyse};
use std::process::Command;

/// How a static program is linked: loaded anywhere, or where it says.
const LINKED: [&[&str]; 2] = [&["-static-pie"], &["-static", "-no-pie"]];

/// The analysis of a program that begins in a function that is listed, which does `listed`; `unlisted` is the rest, and
/// `other` further functions that are listed.
fn linked(how: &[&str], listed: &str, unlisted: &str, other: &str) -> Analysis {
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("program.s"), directory.path().join("program"));
    let text = format!(
        ".text\n.globl _start\n_start:\n.cfi_startproc\n{listed}\nhlt\n.cfi_endproc\n{other}\n{unlisted}\n{TAIL}\n\
         .section .note.GNU-stack,\"\",@progbits\n"
    );
    std::fs::write(&source, text).unwrap();
    let status = Command::new("cc")
        .args(["-nostdlib", "-Wl,--build-id=none", "-s"])
        .args(how)
        .arg("-o")
        .args([&program, &source])
        .status()
        .expect("these tests need cc (Debian: gcc)");
    assert!(status.success(), "cc failed on {unlisted}");
    analyse(&program).unwrap()
}

/// The same of both kinds of programs, of which the same is expected.
fn programs(listed: &str, unlisted: &str, other: &str) -> [Analysis; 2] {
    LINKED.map(|how| linked(how, listed, unlisted, other))
}

const F: &str = "f: mov $257, %eax\nsyscall\ncmp $-4095, %rax\njae 9f\nret\n9: neg %eax\nret\n";

fn listed(name: &str, body: &str) -> String {
    format!("{name}:\n.cfi_startproc\n{body}\n.cfi_endproc\n")
}

#[test]
fn what_nothing_tells_is_proven_in_a_program() {
    for analysis in programs("call f", F, "") {
        let found: Vec<_> = analysis.sites.iter().map(|site| (site.form, site.number)).collect();
        assert_eq!(found, [(form::MOV_IMM32, 257)]);
        assert!(!analysis.is_blind());
    }
}

/// Each leads, or may lead, from there or from code that is listed, to where no instruction begins, or makes data of
/// what was decoded as instructions.
#[test]
fn whatever_speaks_against_one_instruction_speaks_against_all() {
    const G: &str = "g: ret\n1: mov $1, %eax\nret\n";
    let traps = [
        ("a jump into an instruction", "call f", "g: jmp 1f+1\n1: mov $1, %eax\nret\n", ""),
        ("a call from what is listed", "call f\ncall 1f+1", G, ""),
        ("a jump from what is listed", "call f\njmp 1f+1", G, ""),
        ("a conditional one", "call f\nje 1f+1\n.skip 300, 0x90", G, ""),
        (
            "one where the segment begins",
            ".byte 0xe8\n.long 1f+1 - (. + 4)\ncall f",
            G,
            "h:\n.cfi_startproc\n.skip 200, 0x90\nret\n.cfi_endproc\n",
        ),
        ("a near one", "call f", G, "h:\n.cfi_startproc\nje 1f+1\nret\n.cfi_endproc\n"),
        (
            "one behind data that is read",
            "call f\nmov 5f(%rip), %eax\nret\n5: .byte 0x48, 0xb8\ncall 1f+1\n.skip 16, 0x90",
            G,
            "",
        ),
        (
            "one behind data that is jumped over",
            "call f\njmp 6f\n.byte 0x48, 0xb8\n6: call 1f+1\n.skip 16, 0x90",
            G,
            "",
        ),
        ("an address from what is listed", "call f\nlea 1f+1(%rip), %rax", G, ""),
        ("data that what is listed reads", "call f\nmov 1f(%rip), %eax", G, ""),
        ("data that it compares with a number", "call f\ncmpl $5, 1f(%rip)", G, ""),
    ];
    for (what, start, unlisted, other) in traps {
        for analysis in programs(start, &format!("{F}{unlisted}"), other) {
            assert_eq!(analysis.sites, [], "{what}");
            assert_eq!(analysis.others.len(), 1, "{what}");
        }
    }
    // The same without the trap.
    for start in ["call 1f", "jmp 1f", "je 1f\n.skip 300, 0x90", "lea 1f(%rip), %rax"] {
        for analysis in programs(&format!("call f\n{start}"), &format!("{F}{G}"), "") {
            assert_eq!(analysis.sites.len(), 1, "{start}");
        }
    }
}

#[test]
fn a_pointer_into_an_instruction_speaks_against_all() {
    let with =
        |place: &str| format!("{F}g: ret\n1: mov $1, %eax\nret\n.data\n.p2align 3\n.quad {place}\n.text\n");
    // Loaders are told of pointers in a short form as well.
    const SHORT: &[&str] = &["-static-pie", "-Wl,-z,pack-relative-relocs"];
    for how in LINKED.into_iter().chain([SHORT]) {
        for (place, sites) in [("1b", 1), ("1b+1", 0)] {
            assert_eq!(linked(how, "call f", &with(place), "").sites.len(), sites, "{how:?} {place}");
        }
    }
}

/// Where a program is loaded where it says, a number may be an address. That of the middle of an instruction that is
/// surely executed is none.
#[test]
fn numbers_are_addresses_where_they_may_be() {
    let g = "g: ret\n1: mov $1, %eax\nret\n";
    let sites =
        |start: &str, unlisted: &str| linked(LINKED[1], start, &format!("{F}{unlisted}"), "").sites.len();
    assert_eq!(sites("call f\nmov $1f, %edi", g), 1);
    assert_eq!(sites("call f\nmov $1f+1, %edi", g), 0);
    assert_eq!(sites("call f\ncall g\nmov $1f+1, %edi", "g: nop\n1: mov $1, %eax\nret\n"), 1);
    assert_eq!(sites("call f", &format!("{g}2: push $1b+1\nret\n")), 0);
    // And it brings no constants along.
    let number = |number: &str| {
        let f = "f: mov %rdi, %r8\nmov $2, %eax\nmov %rsi, %rdi\n3: mov %rdx, %rsi\nsyscall\nret\n";
        let analysis = linked(LINKED[1], &format!("call f\nmov ${number}, %edi"), f, "");
        analysis.sites.iter().map(|site| site.number).collect::<Vec<_>>()
    };
    assert_eq!(number("5"), [2]);
    assert_eq!(number("3f"), []);
    // In a packed structure as well.
    let f = "f: mov %rdi, %r8\nmov $2, %eax\nmov %rsi, %rdi\n3: mov %rdx, %rsi\nsyscall\nret\n";
    let packed = |place: &str| format!("{f}.data\n.p2align 3\n.byte 1\n.quad {place}\n.text\n");
    for (place, number) in [("f", 2), ("3b", ANY_NUMBER)] {
        let analysis = linked(LINKED[1], "call f", &packed(place), "");
        assert_eq!(analysis.sites.iter().map(|site| site.number).collect::<Vec<_>>(), [number], "{place}");
    }
}

/// Hand-written code has its tables beside it, and they may look like anything.
#[test]
fn data_among_instructions_makes_no_calls() {
    // No instruction begins with 0x06, but behind it something may.
    let data = |before: &str| {
        format!(
            "g: {before}ret\n.p2align 4\n5: .byte 0x06\n.skip 64, 0x90\n.byte 0x0f, 0x05, 0xc3, 0x06, 0x06\n"
        )
    };
    let other = listed("h", "ret");
    for (what, before, is_blind) in [
        ("a table that is read", "mov 5f(%rip), %eax\n", false),
        ("one whose address is taken", "lea 5f(%rip), %rax\n", false),
        ("one from whose middle something is executed", "lea 5f+1(%rip), %rax\n", true),
        ("a jump there", "je 5f+1\n", true),
        ("a jump to nobody knows where", "add %rdi, %rax\njmp *%rax\n", true),
        ("a call", "add %rdi, %rax\ncall *%rax\n", true),
        ("a return", "push %rax\n", true),
    ] {
        for analysis in programs("call f\ncall g", &data(before), &format!("{F}{other}")) {
            assert_eq!(analysis.is_blind(), is_blind, "{what}: {:x?}", analysis.others);
        }
    }
}

#[test]
fn what_looks_like_a_jump_in_data_is_none() {
    let gap = ".byte 0x06, 0xe9\n.long 1f+1 - (. + 4)\n.skip 16, 0x06\n";
    let g = "g: ret\n1: mov $1, %eax\nret\n";
    for (name, sites) in [("nobody", 1), ("4f+1", 0)] {
        let start = if name == "nobody" { "call f".to_owned() } else { format!("call f\njmp {name}") };
        let other = format!("{}4: {gap}{}", listed("h", "ret"), listed("k", "ret"));
        for analysis in programs(&start, &format!("{F}{g}"), &other) {
            assert_eq!(analysis.sites.len(), sites, "{name}");
        }
    }
}

#[test]
fn what_is_executed_beside_data_is_a_call() {
    // Behind data that is no instruction; where the stretch begins, in which something goes on that is listed; with a
    // prefix.
    for (what, start, unlisted) in [
        ("called", "call g", "h: ret\n.skip 64, 0x06\ng: mov %rdi, %rax\nsyscall\nret\n.byte 0x06, 0x06\n"),
        ("gone on to", "nop", "mov %rdi, %rax\nsyscall\nret\n.byte 0x06, 0x06\n"),
        ("prefixed", "call g", "g: mov %rdi, %rax\n.byte 0x48\nsyscall\nret\n.byte 0x06, 0x06\n"),
    ] {
        let start = format!("{start}\n.cfi_endproc\n{unlisted}\nk:\n.cfi_startproc\nnop");
        for analysis in programs(&start, "", "") {
            assert!(analysis.is_blind(), "{what}: {:x?}", analysis.others);
        }
    }
}

/// Its address may be made in a way that nobody sees.
#[test]
fn what_nothing_leads_to_may_be_a_function() {
    let g = "g: mov %rdi, %rax\nmov (%rsi), %rdi\nsyscall\nret\n";
    for analysis in programs("call f", &format!("{F}{g}"), "") {
        assert!(analysis.is_blind(), "{:x?}", analysis.others);
    }
    let g = "g: mov $218, %eax\nlea f(%rip), %rdi\nsyscall\nret\n";
    for analysis in programs("call f", &format!("{F}{g}"), "") {
        assert!(!analysis.is_blind(), "{:x?}", analysis.others);
    }
    // But what it may jump to has the numbers of those that surely do.
    let with = |dead: &str| {
        let f = format!(
            "f: mov $3, %r8d\nje 2f\njmp 2f\nhlt\n{dead}2: mov %r8, %rax\nmov %rsi, %r10\nsyscall\ntest %eax, %eax\nret\n"
        );
        programs("call f", &f, "").map(|analysis| analysis.sites.first().map(|site| site.number))
    };
    assert_eq!(with(""), [Some(3); 2]);
    assert_eq!(with("nop\njmp 2f\n"), [Some(3); 2]);
    assert_eq!(with("ret\n3: mov $9, %r8d\njmp 2f\n"), [Some(3); 2]);
}

/// glibc's `clone` is one of them.
#[test]
fn what_is_told_up_to_its_call_makes_the_call_that_it_says() {
    let is_blind = |number: u32, rest: &str| {
        let other = format!("h:\n.cfi_startproc\nmov ${number}, %eax\n.cfi_endproc\n1: syscall\nret\n{rest}");
        programs("call h", "", &other).map(|analysis| analysis.is_blind())
    };
    assert_eq!(is_blind(56, ""), [false; 2]);
    assert_eq!(is_blind(317, ""), [true; 2]);
    for arrives in ["jmp 1b", "call 1b", "lea 1b(%rip), %rax"] {
        assert_eq!(is_blind(56, &listed("k", arrives)), [true; 2], "{arrives}");
    }
}

/// Calls `g` by a distance in a table, so that nothing is seen to lead there.
const CALLS_HIDDEN: &str = "call f\nlea 5f(%rip), %rdx\nmovslq (%rdx), %rax\nadd %rdx, %rax\ncall *%rax\nret\n\
    .section .rodata\n.p2align 2\n5: .long g-5b\n.text";

#[test]
fn a_function_that_nobody_is_seen_to_call_has_numbers_of_its_own() {
    let numbers = |unlisted: &str| {
        programs(CALLS_HIDDEN, unlisted, "")
            .map(|analysis| analysis.sites.iter().map(|site| site.number).collect::<Vec<_>>())
    };
    let any = "mov %rdi, %rax\nmov %rsi, %r10\nsyscall\ntest %eax, %eax\nret\n";
    // Its neighbour ends by a jump to it.
    let neighbour = format!("f: mov $39, %edi\njmp g\n.p2align 4\ng: {any}");
    assert_eq!(numbers(&neighbour), [vec![ANY_NUMBER], vec![ANY_NUMBER]]);
    // Both have a table of jumps.
    let tables = |name: &str, first: &str| {
        format!(
            "{name}: {first}lea 6f(%rip), %rdx\nmovslq (%rdx,%rsi,4), %rcx\nadd %rdx, %rcx\njmp *%rcx\n\
             1: mov %rsi, %r10\nsyscall\ntest %eax, %eax\nret\n.section .rodata\n6: .long 1b-6b, 1b-6b\n.text\n"
        )
    };
    let both = format!("{}{}", tables("f", "mov $39, %eax\n"), tables("g", "mov %rdi, %rax\n"));
    for analysis in programs(CALLS_HIDDEN, &both, "") {
        let of_sites = analysis.sites.iter().map(|site| u32::from(site.number));
        let numbers: Vec<u32> =
            of_sites.chain(analysis.others.iter().filter_map(|other| other.number)).collect();
        assert!(
            analysis.found == 2 && numbers.iter().filter(|number| **number == 39).count() < 2,
            "{numbers:?}"
        );
    }
}

#[test]
fn what_is_known_of_a_place_is_not_believed_of_what_stands_behind_it() {
    let hidden = "g: mov %rdi, %rax\nmov (%rsi), %rdi\nsyscall\nret\n";
    for analysis in programs(CALLS_HIDDEN, &format!("{SYSCALL}{hidden}"), "") {
        assert!(analysis.is_blind(), "{:x?}", analysis.others);
    }
    // Nor are the bytes in front of a stretch, where they are no instruction that goes on there.
    let other = "h:\n.cfi_startproc\nmov $0x1b8, %ecx\nret\n.cfi_endproc\ng: syscall\nret\n";
    for analysis in programs(CALLS_HIDDEN, F, &format!("{other}{}", listed("k", "ret"))) {
        assert!(analysis.is_blind(), "{:x?}", analysis.others);
    }
}

#[test]
fn what_a_function_that_nobody_is_seen_to_call_begins_with_is_no_padding() {
    let with = |g: &str| {
        let f = format!(
            "f: xor %eax, %eax\nsyscall\ntest %eax, %eax\nret\n{g}nopl 0x12345678(%rax)\nmov $39, %eax\nsyscall\ntest %eax, %eax\nret\n.skip 200, 0xc3\n"
        );
        linked(LINKED[0], if g.is_empty() { "call f" } else { CALLS_HIDDEN }, &f, "")
    };
    let is_short = |site: &&Site| site.is_short();
    assert_eq!(with("g: ").sites.iter().filter(is_short).count(), 0);
}

#[test]
fn a_weak_function_that_is_not_there_is_not_called() {
    let f = format!("{F}g: test %rax, %rax\nje 1f\ncall nowhere\n1: ret\n.weak nowhere\n");
    for analysis in programs("call f\ncall g", &f, "") {
        assert_eq!(analysis.sites.len(), 1);
    }
}

/// All of its arguments but the first are saved in their order, and the first is the number.
const SYSCALL: &str = "f: sub $88, %rsp\nmov %rdi, %rax\nmov %rsi, 40(%rsp)\nmov %rdx, 48(%rsp)\nmov %rcx, 56(%rsp)\n\
    mov %r8, 64(%rsp)\nmov %r9, 72(%rsp)\nmov 40(%rsp), %rdi\ncmp $9, %edx\njbe 1f\nmov 96(%rsp), %rcx\n\
    1: mov (%rcx), %r9\nsyscall\nadd $88, %rsp\nret\n";

#[test]
fn the_function_that_makes_any_call_is_known_by_what_it_does() {
    for analysis in programs("call f", SYSCALL, "") {
        let found: Vec<_> = analysis.sites.iter().map(|site| (site.form, site.number)).collect();
        assert_eq!(found, [(form::ENTRANCE, ANY_NUMBER)], "{:x?}", analysis.others);
        assert!(analysis.others.iter().any(|other| other.reason == Reason::SeenBefore));
        assert!(!analysis.is_blind());
    }
    for (what, from, to) in [
        ("another number", "mov %rdi, %rax", "mov %rsi, %rax"),
        ("a number that has changed", "jbe 1f\n", "jbe 1f\ninc %rax\n"),
        ("a first argument that has", "mov %rdi, %rax\n", "inc %rdi\nmov %rdi, %rax\n"),
        ("another order", "mov %rsi, 40(%rsp)\nmov %rdx, 48(%rsp)", "mov %rdx, 40(%rsp)\nmov %rsi, 48(%rsp)"),
        ("one that is not saved", "mov %rcx, 56(%rsp)\n", ""),
        ("one that is saved too late", "mov %rsi, 40(%rsp)", "inc %rsi\nmov %rsi, 40(%rsp)"),
        ("another call on the way", "jbe 1f\n", "jbe 1f\ncall tail\n"),
        ("a way back to before it", "jbe 1f\n", "jbe f\n"),
        ("a way back", "add $88, %rsp\n", "test %eax, %eax\njs 1b\nadd $88, %rsp\n"),
    ] {
        assert!(SYSCALL.contains(from), "{what}");
        for analysis in programs("call f", &SYSCALL.replace(from, to), "") {
            assert_eq!(analysis.sites, [], "{what}");
            assert!(analysis.is_blind(), "{what}");
        }
    }
}

/// A function that others only jump to, at their end, is one of its own: the call at its end is where its arguments
/// are what the function is told.
#[test]
fn what_is_only_jumped_to_is_a_function() {
    let last = |before: &str| {
        format!(
            "f: {before}test %esi, %esi\njne 1f\nret\n1: jmp h\ng: mov %rdi, %rax\nmov %rsi, %rdi\n\
             mov 8(%rsp), %r9\nmov %rcx, %rdx\nsyscall\nret\nh: jmp g\n"
        )
    };
    let forms = |unlisted: &str| {
        programs("call f\ncall h", unlisted, "")
            .map(|analysis| analysis.sites.iter().map(|site| (site.form, site.number)).collect::<Vec<_>>())
    };
    // Where functions begin as those that make cancellable calls, nothing in them is rewritten.
    assert_eq!(
        forms(&last("mov (%rdi), %eax\n")),
        [vec![(form::DISPLACED, ANY_NUMBER)], vec![(form::DISPLACED, ANY_NUMBER)]]
    );
}

fn lands(table: &str) -> Vec<Site> {
    // The number goes through to behind a jump; a pad lies between.
    let body = format!(
        ".cfi_personality 0x1b, personality\n.cfi_lsda 0x1b, 8f\nmov $9, %eax\ncmp %rdi, %rsi\njne 1f\nret\n\
         2: call f\nud2\n1: mov %rdx, %r10\nmov %rsi, %r8\nsyscall\ntest %eax, %eax\nret\n\
         .section .gcc_except_table,\"a\",@progbits\n8: {table}\n.text"
    );
    let other = format!("{}{}", listed("h", &body), listed("personality", "ret"));
    linked(LINKED[0], "call h", "f: ret\n", &other).sites
}

#[test]
fn constants_are_followed_beside_landing_pads_that_are_known() {
    let table = |pad: &str| {
        format!(
            ".byte 0xff, 0xff, 1\n.uleb128 7f-6f\n6: .uleb128 2b-h\n.uleb128 5\n.uleb128 {pad}\n.uleb128 0\n7:"
        )
    };
    let numbers = |table: &str| lands(table).iter().map(|site| site.number).collect::<Vec<_>>();
    assert_eq!(numbers(&table("0")), [9]);
    assert_eq!(numbers(&table("2b-h")), [9]);
    // What an exception brings along nobody knows.
    assert_eq!(numbers(&table("1b-h")), [ANY_NUMBER]);
    // Nor where it lands.
    assert_eq!(numbers(&table("1b-h+1")), []);
    assert_eq!(numbers(".byte 0xff, 0xff, 0x10\n.uleb128 1\n.byte 0"), []);
}

/// What stands in front of it decodes to nothing from most places: a table, and few instructions behind.
#[test]
fn a_call_behind_data_is_seen_however_its_number_is_set() {
    for number in [
        "xor %eax, %eax\nmov $157, %al",
        "mov $317, %ax",
        "push $126\npop %rax\nadd $31, %al",
        "push $157 - 256\npop %rax",
    ] {
        let unlisted = format!(
            "{F}g: mov $5f, %edx\nmov (%rdx,%rdi,8), %rax\njmp *%rax\n5: .quad h\nh: {number}\nsyscall\nret\n"
        );
        let analysis = linked(LINKED[1], "call f\ncall g", &unlisted, "");
        assert_eq!(analysis.found, 2, "{number}");
        assert!(analysis.others.iter().any(|other| other.number != Some(257)), "{number}");
    }
    let blind = |number: &str| {
        let unlisted = format!("{F}.byte 6, 6, 6\n5: .quad h\nh: {number}\nsyscall\nret\n");
        linked(LINKED[1], "call f", &unlisted, "").is_blind()
    };
    assert!(blind("mov $157, %al") && blind("mov $317, %ax") && blind("push $39\npop %rax"));
    assert!(!blind("mov $39, %eax"));
}
