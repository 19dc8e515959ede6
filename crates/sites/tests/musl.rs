//! musl's C library, of which no unwind information tells: all of its code is proven at once, or nothing is.

mod common;

use common::{Disassembly, TAIL, symbol};
use runahead_abi::sites::{ANY_NUMBER, NEAR_JUMP, SHORT_BRANCH, Site, form};
use runahead_sites::{Analysis, Reason, analyse};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The libraries that there are: this machine's, and other releases' where `./x test` could fetch them. More
/// can be named, separated by colons, in `SITES_TEST_MUSL`.
fn libraries() -> Vec<PathBuf> {
    let fetched = |release: &str, below: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/conformance").join(release);
        folder.join("musl").join(below).join("x86_64-linux-musl/libc.so")
    };
    let wanted =
        [PathBuf::from("/lib/ld-musl-x86_64.so.1"), fetched("bullseye", "lib"), fetched("trixie", "usr/lib")];
    let further = std::env::var_os("SITES_TEST_MUSL").unwrap_or_default();
    wanted
        .into_iter()
        .chain(std::env::split_paths(&further).filter(|path| !path.as_os_str().is_empty()))
        .filter(|path| {
            if !path.exists() {
                eprintln!("SKIPPED: {} is not there; './x test' fetches it", path.display());
            }
            path.exists()
        })
        .collect()
}

#[test]
fn no_release_of_musl_is_left_alone_and_what_matters_is_seen() {
    for path in libraries() {
        let analysis = analyse(&path).unwrap();
        let name = path.display();
        assert!(!analysis.is_blind(), "{name}: {:x?}", analysis.others);
        let of = |form: u8| analysis.sites.iter().filter(move |site| site.form == form);
        // Reads that may be cancelled, and those of stdio: some bytes, and one.
        assert_eq!(of(form::CALLED).count(), 1, "{name}");
        let reads = analysis.sites.iter().filter(|site| [0, 19].contains(&site.number));
        assert!(reads.filter(|site| site.form == form::DISPLACED).count() >= 2, "{name}");
        assert_eq!(of(form::TAKEN).map(|site| site.number).collect::<Vec<_>>(), [0], "{name}");
        let within = |function: &str, wanted: &[u16]| {
            let (start, size) = symbol(&path, function).unwrap();
            analysis.sites.iter().any(|site| {
                (start..start + size).contains(&site.patch_offset) && wanted.contains(&site.number)
            })
        };
        for (function, numbers) in [
            ("syscall", &[ANY_NUMBER][..]),
            ("prctl", &[157]),
            ("mmap", &[9]),
            ("munmap", &[11]),
            ("mprotect", &[10]),
            ("execve", &[59]),
            ("_Exit", &[231]),
            ("getdents", &[217]),
            ("ptrace", &[101]),
            ("umount2", &[166]),
            ("unlink", &[87]),
            ("rename", &[82]),
            ("rmdir", &[84]),
        ] {
            assert!(within(function, numbers), "{name}: {function}");
        }
        // Every call whose number may forbid others is a site, or is seen where its function begins.
        for other in &analysis.others {
            let is_known = other.number.is_some_and(|number| ![157, 317].contains(&number));
            let reasons = [Reason::CLibrarys, Reason::SeenBefore];
            assert!(is_known || other.is_harmless || reasons.contains(&other.reason), "{name}: {other:x?}");
        }
    }
}

/// Boundaries are binutils', nobody jumps into what is rewritten, and no byte of it is rewritten twice.
#[test]
fn every_site_of_musl_stands_up_to_binutils() {
    let mut compared = 0;
    for path in libraries() {
        let analysis = analyse(&path).unwrap();
        let disassembly = Disassembly::of(&path);
        let text_at = |offset: u64| disassembly.at(offset).unwrap_or(("no boundary", 0));
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for site in &analysis.sites {
            let name = format!("{}: {site:x?}", path.display());
            let distance = u64::from(site.syscall_distance);
            let end = site.patch_offset + distance;
            let length = if site.is_short() { 2 } else { NEAR_JUMP as u64 };
            // Whole instructions, of which only the first is entered.
            let mut covered = 0;
            while covered < length {
                let (text, bytes) = text_at(site.patch_offset + covered);
                assert!(bytes > 0, "{name}: {text}");
                covered += bytes;
            }
            assert!(!disassembly.is_entered(site.patch_offset + 1, site.patch_offset + covered), "{name}");
            let call = match site.form {
                form::CALLED => {
                    assert_eq!(text_at(site.patch_offset).1, NEAR_JUMP as u64, "{name}");
                    assert!(text_at(site.patch_offset).0.starts_with("call"), "{name}");
                    site.pad_offset + distance
                }
                form::ENTRANCE => {
                    assert_eq!(text_at(site.pad_offset).0, "ret", "{name}");
                    continue;
                }
                form::TAKEN => {
                    let (text, bytes) = text_at(end - SHORT_BRANCH as u64);
                    assert!(text.starts_with('j') && bytes == 2, "{name}: {text}");
                    end.wrapping_add_signed(i64::from(site.expected[distance as usize - 1].cast_signed()))
                }
                _ => end,
            };
            assert_eq!(text_at(call).0, "syscall", "{name}");
            taken.push((site.patch_offset, site.patch_offset + length));
            if site.is_short() {
                let bytes = disassembly.touching(site.pad_offset, site.pad_offset + NEAR_JUMP as u64);
                assert!(
                    !bytes.is_empty() && bytes.iter().all(|text| common::is_padding_text(text)),
                    "{name}"
                );
                assert!(
                    !disassembly.is_entered(site.pad_offset, site.pad_offset + NEAR_JUMP as u64),
                    "{name}"
                );
                taken.push((site.pad_offset, site.pad_offset + NEAR_JUMP as u64));
            }
            compared += 1;
        }
        taken.sort_unstable();
        assert!(taken.windows(2).all(|two| two[0].1 <= two[1].0), "{}", path.display());
    }
    assert!(compared == 0 || compared > 250, "only {compared}");
}

/// A library that says of itself that it is musl's, with these functions in it; `f` is a function that is
/// called and of which nothing tells.
fn library(functions: &str) -> (Analysis, PathBuf, tempfile::TempDir) {
    built("_dlstart", functions)
}

fn built(start: &str, functions: &str) -> (Analysis, PathBuf, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let (source, object) = (directory.path().join("library.s"), directory.path().join("library.so"));
    let text = format!(
        ".text\n.globl {start}\n{start}: call f\nhlt\n{functions}\n{TAIL}\n.section .note.GNU-stack,\"\",@progbits\n"
    );
    std::fs::write(&source, text).unwrap();
    let status = Command::new("cc")
        .args(["-shared", "-nostdlib", "-Wl,--build-id=none", &format!("-Wl,-e,{start}"), "-o"])
        .args([&object, &source])
        .status()
        .expect("these tests need cc (Debian: gcc)");
    assert!(status.success(), "cc failed on {functions}");
    (analyse(&object).unwrap(), object, directory)
}

const F: &str = "f: mov $257, %eax\nsyscall\ncmp $-4095, %rax\njae 9f\nret\n9: neg %eax\nret\n";

fn sites(functions: &str) -> Vec<Site> {
    library(functions).0.sites
}

#[test]
fn a_function_of_which_nothing_tells_is_proven() {
    let found = sites(F);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].form, found[0].number), (form::MOV_IMM32, 257));
    // Whoever it is.
    assert_eq!(built("start", F).0.sites, found);
}

/// Each leads, or may lead, to where no instruction begins, or makes data of what was decoded as instructions.
#[test]
fn whatever_speaks_against_one_instruction_speaks_against_all() {
    let traps = [
        ("a jump into an instruction", "g: jmp 1f+1\n1: mov $1, %eax\nret\n"),
        ("a call into an instruction", "g: call 1f+1\n1: mov $1, %eax\nret\n"),
        ("an address inside an instruction", "g: lea 1f+1(%rip), %rax\n1: mov $1, %eax\nret\n"),
        ("a symbol inside an instruction", "g: .byte 0xb8\n.globl inside\ninside: .long 1\nret\n"),
        ("a pointer into an instruction", "g: ret\n1: mov $1, %eax\nret\n.data\n.quad 1b+1\n.text\n"),
        ("data that is read", "g: mov 1f(%rip), %eax\nret\n1: .long 0x90909090\nret\n"),
        ("no instruction", "g: ret\n.byte 0x06\n"),
        ("a jump out of the file's code", "g: jmp 0x7fff0000\n"),
        (
            "a table of jumps with an entry into an instruction",
            "g: lea 5f(%rip), %rdx\nmovslq (%rdx,%rdi,4), %rax\nadd %rdx, %rax\njmp *%rax\n1: mov $1, %eax\nret\n\
             .section .rodata\n.p2align 2\n5: .long 1b-5b, 1b+1-5b\n.text\n",
        ),
        (
            "a table that does not begin where it is said to",
            "g: lea 5f(%rip), %rdx\nmovslq 4(%rdx,%rdi,4), %rax\nadd %rdx, %rax\njmp *%rax\n1: mov $1, %eax\nret\n\
             .section .rodata\n.p2align 2\n5: .long 0x7fffffff, 1b-5b\n.text\n",
        ),
    ];
    for (what, trap) in traps {
        let (analysis, ..) = library(&format!("{F}{trap}"));
        assert_eq!(analysis.sites, [], "{what}");
    }
    // The same without the trap.
    let table = "g: lea 5f(%rip), %rdx\nmovslq (%rdx,%rdi,4), %rax\nadd %rdx, %rax\njmp *%rax\n1: mov $1, %eax\nret\n\
                 .section .rodata\n.p2align 2\n5: .long 1b-5b, 1b+5-5b\n.text\n";
    assert_eq!(sites(&format!("{F}{table}")).len(), 1);
}

/// What arrives from anywhere else is no part of what is displaced, and brings no number along.
#[test]
fn what_is_arrived_at_from_elsewhere_is_not_displaced() {
    let f = |label: &str| {
        format!(
            "f: mov %rdi, %r8\nmov $2, %eax\nmov %rsi, %rdi\n{label} mov %rdx, %rsi\nsyscall\nret\n\
             .globl g\ng: xor %eax, %eax\nret\n"
        )
    };
    assert_eq!(sites(&f("")).iter().map(|site| site.form).collect::<Vec<_>>(), [form::DISPLACED]);
    for arrival in ["jmp there", "call there", "lea there(%rip), %rcx"] {
        let (analysis, ..) = library(&format!("{}h: {arrival}\nret\n", f("there:")));
        assert_eq!(analysis.sites, [], "{arrival}");
        // Nobody knows what it brings.
        assert!(analysis.is_blind(), "{arrival}");
    }
}

#[test]
fn a_number_that_is_one_of_some_is_harmless_if_all_of_them_are() {
    let with = |second: u32| {
        let body = format!("f: mov $3, %eax\ntest %edi, %edi\nje 1f\nmov ${second}, %eax\n1: syscall\nret\n");
        library(&body).0.is_blind()
    };
    assert!(!with(4));
    assert!(with(157));
    assert!(with(317));
    // Through a table, and beside a call that does not return.
    let (analysis, ..) = library(
        "f: mov $3, %r15d\nlea 5f(%rip), %rdx\nmovslq (%rdx,%rdi,4), %rax\nadd %rdx, %rax\njmp *%rax\n\
         1: mov %r15, %rax\nsyscall\nret\n2: mov $157, %r15d\ncall ends\n3: mov %r15, %rax\nsyscall\nret\n\
         ends: mov $60, %eax\nsyscall\njmp ends\n\
         .section .rodata\n.p2align 2\n5: .long 1b-5b, 2b-5b, 3b-5b\n.text\n",
    );
    assert!(!analysis.is_blind(), "{:x?}", analysis.others);
}

/// The place where musl makes its cancellable calls.
const PLACE: &str = "place: mov (%rdi), %eax\ntest %eax, %eax\njne 1f\nmov %rdi, %r11\nmov %rsi, %rax\n\
    mov %rdx, %rdi\nmov %rcx, %rsi\nmov %r8, %rdx\nmov %r9, %r10\nmov 8(%rsp), %r8\nmov 16(%rsp), %r9\n\
    mov %r11, 8(%rsp)\nsyscall\nret\n1: jmp tail\n";

#[test]
fn cancellable_calls_are_seen_at_their_one_call() {
    let f = "f: sub $8, %rsp\ncall place\nadd $8, %rsp\nret\n";
    let (analysis, path, _directory) = library(&format!("{f}{PLACE}"));
    let called: Vec<&Site> = analysis.sites.iter().filter(|site| site.form == form::CALLED).collect();
    let [site] = called[..] else { panic!("{analysis:x?}") };
    let bytes = std::fs::read(path).unwrap();
    let at = |offset: u64, bytes_wanted: &[u8]| bytes[offset as usize..].starts_with(bytes_wanted);
    assert!(at(site.patch_offset, &[0xe8]));
    assert!(at(site.pad_offset, &[0x8b, 0x07, 0x85, 0xc0]));
    assert!(at(site.pad_offset + u64::from(site.syscall_distance), &[0x0f, 0x05, 0xc3]));
    assert!(!analysis.is_blind());
    for more in ["call place\n", "jmp place\n"] {
        let (analysis, ..) = library(&format!("{f}h: {more}ret\n{PLACE}"));
        assert!(analysis.sites.iter().all(|site| site.form != form::CALLED), "{more}");
    }
}

#[test]
fn a_function_that_makes_any_call_is_seen_where_it_begins() {
    let function = |first: &str| {
        format!(
            "f: ret\n.globl syscall\n.type syscall, @function\nsyscall: {first}mov %rdi, %rax\nmov %rsi, %rdi\n\
             cmp $9, %edx\njbe 1f\nmov 16(%rsp), %rcx\n1: mov (%rcx), %r9\nsyscall\nadd $88, %rsp\nret\n\
             .size syscall, .-syscall\n"
        )
    };
    let (analysis, path, _directory) = library(&function("sub $88, %rsp\n"));
    let [site] = analysis.sites[..] else { panic!("{analysis:x?}") };
    assert_eq!((site.form, site.number, site.syscall_distance), (form::ENTRANCE, ANY_NUMBER, 7));
    assert_eq!(Some(site.patch_offset), symbol(&path, "syscall").map(|(start, _)| start));
    assert_eq!(site.expected_pad[0], 0xc3);
    assert!(!analysis.is_blind());
    // rax is an argument, or somebody arrives behind the beginning.
    for first in ["push %rax\nsub $80, %rsp\n", "sub $88, %rsp\n2: "] {
        let back = if first.contains("2:") { "g: jmp 2b\n" } else { "" };
        let (analysis, ..) = library(&format!("{}{back}", function(first)));
        assert_eq!(analysis.sites, [], "{first}");
        assert!(analysis.is_blind(), "{first}");
    }
}

#[test]
fn a_jump_straight_to_a_call_is_displaced_where_it_says_that_the_number_is_zero() {
    let f = |tested: &str| {
        format!(
            "f: mov %rax, 8(%rsp)\ntest {tested}, {tested}\nje 1f\nmov $19, %eax\nmov $2, %edx\nsyscall\nret\n\
             1: syscall\nret\n"
        )
    };
    let forms = |functions: &str| -> Vec<u8> { sites(functions).iter().map(|site| site.form).collect() };
    assert_eq!(forms(&f("%rax")), [form::TAKEN, form::DISPLACED]);
    assert_eq!(forms(&f("%rbx")), [form::DISPLACED]);
}

/// Where an indirect jump goes must be in a table that is known, or the address of a whole function.
#[test]
fn a_jump_that_no_known_table_explains_speaks_against_all() {
    let with = |jump: &str| {
        format!(
            "{F}g: {jump}\n1: mov $1, %eax\nret\n.section .rodata\n.p2align 3\n6: .quad 1b-6b, 1b-6b\n.text\n"
        )
    };
    let traps = [
        (
            "a table among the instructions",
            "lea 5f(%rip), %rdx\nmovslq (%rdx,%rdi,4), %rax\nadd %rdx, %rax\njmp *%rax\n5: .long 1f-5b, 1f-5b",
        ),
        ("wide distances", "lea 6f(%rip), %rdx\nmov (%rdx,%rdi,8), %rax\nadd %rdx, %rax\njmp *%rax"),
        ("a computed distance", "lea 1f(%rip), %rdx\nlea (%rdx,%rdi,4), %rax\njmp *%rax"),
        ("a computed distance, added", "lea 1f(%rip), %rax\nadd %rdi, %rax\njmp *%rax"),
        ("another one", "lea 1f(%rip), %rax\nadd $5, %rax\njmp *%rax"),
    ];
    for (what, trap) in traps {
        assert_eq!(sites(&with(trap)), [], "{what}");
    }
    for harmless in ["jmp *%rdi", "mov 8(%rdi), %rax\njmp *%rax", "lea 1f(%rip), %rax\njmp *%rax"] {
        assert_eq!(sites(&with(harmless)).len(), 1, "{harmless}");
    }
}

/// Compilers count an array's elements from below its first, which may be in a table.
#[test]
fn an_address_that_is_named_in_a_table_does_not_end_it() {
    let numbers = |named: &str, second: &str| {
        let found = sites(&format!(
            "f: mov $3, %r12d\nlea 5f(%rip), %rdx\nmovslq (%rdx,%rdi,4), %rax\nadd %rdx, %rax\njmp *%rax\n\
             1: mov $257, %r12d\n2: jne 3f\njmp 3f\nnop\nnop\n4: ret\n3: mov %r12, %rax\nmov %rdx, %rsi\nsyscall\nret\n\
             h: lea {named}(%rip), %rcx\nmov 4(%rcx,%rdi,4), %eax\nret\n\
             .section .rodata\n.p2align 2\n5: .long 1b-5b, {second}-5b\n6: .long 0x7fffffff\n.text\n"
        ));
        found.iter().map(|site| site.number).collect::<Vec<_>>()
    };
    assert_eq!(numbers("6f", "1b"), [257]);
    assert_eq!(numbers("6f", "2b"), [ANY_NUMBER]);
    assert_eq!(numbers("6f-4", "2b"), [ANY_NUMBER]);
}

#[test]
fn a_call_with_a_prefix_is_not_rewritten() {
    // Linkers make an `addr32 call` of a call through a pointer: it is six bytes long.
    let f = "f: sub $8, %rsp\n.byte 0x67\ncall place\nadd $8, %rsp\nret\n";
    let (analysis, ..) = library(&format!("{f}{PLACE}"));
    assert!(analysis.sites.iter().all(|site| site.form != form::CALLED), "{:x?}", analysis.sites);
}

#[test]
fn what_is_never_rewritten_is_not_in_any_form() {
    let f = |number: u32| {
        format!("f: mov ${number}, %eax\nmov 8(%rsp), %rdi\ntest %rdi, %rdi\nje 1f\nsyscall\n1: ret\n")
    };
    let forms = |number| -> Vec<u8> { sites(&f(number)).iter().map(|site| site.form).collect() };
    assert_eq!(forms(3), [form::BRANCHED]);
    for number in [15, 56, 57, 58, 60, 202, 435] {
        assert_eq!(forms(number), [], "{number}");
    }
}

/// No byte is rewritten for two sites, and none goes on into what another has rewritten.
#[test]
fn sites_do_not_overlap() {
    let found = sites("f: mov $0, %eax\ntest %edi, %edi\nje 1f\nsyscall\nret\n1: syscall\nret\n");
    assert_eq!(found.len(), 1, "{found:x?}");
    // Of two calls in a function that begins with what is displaced for the first, the other is not seen.
    let function = |first: &str| {
        format!(
            "f: ret\n.globl syscall\n.type syscall, @function\nsyscall: mov %rdi, %rax\nmov %rsi, %rdi\n{first}\
             test %rax, %rax\nje 1f\nret\n1: mov (%rcx), %rax\nmov (%rcx), %r9\nsyscall\nret\n\
             .size syscall, .-syscall\n"
        )
    };
    for (first, expected) in [("mov %rdx, %rsi\nsyscall\n", 2), ("syscall\n", 1)] {
        let (analysis, ..) = library(&function(first));
        assert_eq!(analysis.sites.len(), expected, "{:x?}", analysis.sites);
        assert_eq!(analysis.is_blind(), expected == 1);
    }
}
