//! Each trap that a patcher may fall into, as a few lines of assembly. Every trap stands beside a twin
//! without it, which must become a site: a test that the analysis passes by finding nothing at all
//! would be none.

mod common;

use common::{TAIL, assemble, function, symbol};
use runahead_abi::sites::{ANY_NUMBER, Site, form};
use runahead_sites::{Analysis, Distrust, Reason, analyse};
use tempfile::TempDir;

struct Object {
    analysis: Analysis,
    path: std::path::PathBuf,
    _directory: TempDir,
}

fn object(assembly: &str) -> Object {
    let directory = tempfile::tempdir().unwrap();
    let path = assemble(directory.path(), "object", &format!("{assembly}{TAIL}"));
    Object { analysis: analyse(&path).unwrap(), path, _directory: directory }
}

impl Object {
    fn range(&self, name: &str) -> std::ops::Range<u64> {
        let (start, size) = symbol(&self.path, name).unwrap();
        start..start + size
    }

    fn sites(&self, name: &str) -> Vec<Site> {
        let range = self.range(name);
        let inside = |site: &&Site| range.contains(&site.patch_offset);
        self.analysis.sites.iter().filter(inside).copied().collect()
    }

    fn reasons(&self, name: &str) -> Vec<Reason> {
        let range = self.range(name);
        self.analysis
            .others
            .iter()
            .filter(|other| range.contains(&other.file_offset))
            .map(|other| other.reason)
            .collect()
    }
}

/// The one site of the only function `f`.
fn only_site(body: &str) -> Site {
    let object = object(&function("f", body));
    let sites = object.sites("f");
    assert_eq!(sites.len(), 1, "{:?}", object.analysis);
    sites[0]
}

/// Processors take prefixes before a `syscall` and ignore them; its length is another then. Random changes to a C library made
/// one.
#[test]
fn a_prefix_before_the_call_is_a_trap() {
    only_site("mov $257, %eax\nsyscall\nret\n");
    for prefix in ["0x66", "0x48", "0xf3"] {
        let reasons = refused(&format!("mov $257, %eax\n.byte {prefix}\nsyscall\nret\n"));
        assert_eq!(reasons, vec![Reason::Prefixed], "{prefix}");
    }
}

/// `f` has no site; its system calls are left for these reasons.
fn refused(body: &str) -> Vec<Reason> {
    let object = object(&function("f", body));
    assert_eq!(object.sites("f"), vec![], "{:?}", object.analysis);
    object.reasons("f")
}

const CHECK_AND_RETURN: &str = "cmp $-4095, %rax\njae 9f\nret\n9: neg %eax\nret\n";

#[test]
fn a_plain_call_is_a_site() {
    let site = only_site(&format!("mov $257, %eax\nsyscall\n{CHECK_AND_RETURN}"));
    assert_eq!((site.form, site.number), (form::MOV_IMM32, 257));
    assert_eq!((site.syscall_distance, site.pad_offset), (5, 0));
    assert_eq!(site.expected[..7], [0xb8, 1, 1, 0, 0, 0x0f, 0x05]);
}

#[test]
fn the_long_move_is_a_site() {
    let site = only_site(".byte 0x48, 0xc7, 0xc0, 9, 0, 0, 0\nsyscall\nret\n");
    assert_eq!((site.form, site.number), (form::MOV_IMM32, 9));
    assert_eq!(site.syscall_distance, 7);
}

#[test]
fn a_branch_to_the_load_or_the_syscall_is_harmless() {
    let site = only_site("1: mov $257, %eax\nsyscall\ncmp $-4, %rax\nje 1b\nret\n");
    assert_eq!(site.number, 257);
    let object = object(&function(
        "f",
        "test %edi, %edi\nmov $0, %eax\nje 1f\nmov $257, %eax\n1: syscall\ntest %eax, %eax\nret\n",
    ));
    assert_eq!(object.sites("f").len(), 1);
    // The other path stays as it is, and is counted, since it may be anything.
    assert_eq!(object.reasons("f"), vec![Reason::Bypassed]);
    assert_eq!(object.analysis.unproven().count(), 1);
}

#[test]
fn a_branch_into_the_load_is_seen() {
    // The last four bytes of the constant are an instruction of their own for whoever jumps there.
    let reasons = refused("test %edi, %edi\nje 1f + 1\n1: mov $0x90909090, %eax\nsyscall\nret\n");
    let expected = Reason::Function(Distrust::BranchIntoInstruction);
    assert_eq!(reasons, vec![expected]);
    refused("test %edi, %edi\nje 1f + 1\n1: mov $257, %eax\nsyscall\nret\n");
}

#[test]
fn a_branch_into_the_load_from_a_cold_part_is_seen() {
    let cold = |offset| {
        format!(
            "{}{}",
            function(
                "f",
                "test %edi, %edi\njne f_cold\ntarget: mov $257, %eax\nsyscall\ntest %eax, %eax\nret\n"
            ),
            function("f_cold", &format!("incl %esi\njmp target + {offset}\n"))
        )
    };
    assert_eq!(object(&cold(0)).sites("f").len(), 1);
    let trap = object(&cold(1));
    assert_eq!(trap.sites("f"), vec![]);
    assert_eq!(trap.reasons("f"), vec![Reason::Function(Distrust::BranchIntoInstruction)]);
}

#[test]
fn a_jump_over_the_lock_prefix_is_understood() {
    let body = |jump: &str| {
        format!(
            "cmpl $0, (%rsi)\nje {jump}\n1: lock cmpxchg %edx, (%rdi)\nmov $257, %eax\nsyscall\n\
             test %eax, %eax\nret\n"
        )
    };
    only_site(&body("1f + 1"));
    refused(&body("1f + 2"));
}

#[test]
fn a_jump_table_outside_the_text_is_no_obstacle() {
    let body = "cmp $1, %edi\nja 3f\nlea table(%rip), %rax\nmovslq (%rax,%rdi,4), %rdx\n\
        add %rdx, %rax\njmp *%rax\n1: mov $1, %eax\nsyscall\ntest %eax, %eax\nret\n2: ret\n\
        3: mov $257, %eax\nsyscall\ntest %eax, %eax\nret\n\
        .pushsection .rodata\ntable: .long 1b - table, 2b - table\n.popsection\n";
    let object = object(&function("f", body));
    // Only what direct flow reaches is proven; the jump table's cases are not.
    let numbers: Vec<u16> = object.sites("f").iter().map(|site| site.number).collect();
    assert_eq!(numbers, vec![257]);
    assert_eq!(object.reasons("f"), vec![Reason::NotReached]);
}

#[test]
fn data_in_the_text_is_not_taken_for_code() {
    // The table ends in what looks like a call; only the real one is reached.
    let object = object(&function(
        "f",
        "mov $257, %eax\nsyscall\ntest %eax, %eax\nret\n\
         .byte 0xb8, 1, 0, 0, 0, 0x0f, 0x05, 0x85, 0xc0, 0xc3\n",
    ));
    assert_eq!(object.sites("f").len(), 1);
    assert_eq!(object.sites("f")[0].number, 257);
    assert_eq!(object.reasons("f"), vec![Reason::NotReached]);
    // A function that reads its own bytes is not trusted at all.
    let reasons = refused("mov 1f(%rip), %edi\nmov $257, %eax\nsyscall\nret\n1: .long 0x90909090\n");
    assert_eq!(reasons, vec![Reason::Function(Distrust::DataInside)]);
    // Nor one whose bytes do not decode to the end, or run over it.
    for junk in [".byte 0x06", ".byte 0xb8, 0"] {
        let reasons = refused(&format!("mov $257, %eax\nsyscall\nret\n{junk}\n"));
        assert_eq!(reasons, vec![Reason::Function(Distrust::Invalid)]);
    }
}

#[test]
fn a_symbol_into_the_load_is_seen() {
    let reasons = refused(
        "mov $257, %eax\nsyscall\ntest %eax, %eax\nret\n.type g, @function\n.globl g\n.set g, f + 2\n",
    );
    assert_eq!(reasons, vec![Reason::Function(Distrust::EntryInsideInstruction)]);
}

#[test]
fn ranges_that_contradict_each_other_are_not_used() {
    let assembly = ".type f, @function\nf:\n.cfi_startproc\nmov $257, %eax\nsyscall\ntest %eax, %eax\n\
        ret\n.size f, .-f\n.cfi_endproc\n";
    assert_eq!(object(assembly).sites("f").len(), 1);
    // Two symbols without unwind information that overlap: one of them lies.
    let overlapping = ".globl f, g\n.type f, @function\n.type g, @function\nf:\nincl %edi\ng:\n\
        mov $257, %eax\nsyscall\ntest %eax, %eax\nret\n.size f, .-f - 2\n.size g, .-g\n";
    let object = object(overlapping);
    assert_eq!(object.sites("g"), vec![]);
    assert_eq!(object.reasons("g"), vec![Reason::Function(Distrust::Contradicted)]);
}

#[test]
fn a_range_inside_another_is_seen_behind_a_third() {
    // `outer` holds `first` and `f`, which do not touch each other.
    let with = |outer_size: &str| {
        let assembly = format!(
            ".globl f\n.type outer, @function\n.type first, @function\n.type f, @function\n\
             outer: incl %eax\nret\nfirst: incl %eax\nret\n.size first, .-first\nincl %eax\nret\n\
             f: mov $257, %eax\nsyscall\ntest %eax, %eax\nret\n.size f, .-f\n\
             .size outer, {outer_size}\n"
        );
        object(&assembly).sites("f").len()
    };
    assert_eq!(with("first - outer"), 1);
    assert_eq!(with(". - outer"), 0);
}

#[test]
fn a_symbol_alone_makes_a_function() {
    let assembly = ".globl f\n.type f, @function\nf: mov $257, %eax\nsyscall\ntest %eax, %eax\nret\n";
    let with = object(&format!("{assembly}.size f, .-f\n"));
    assert_eq!(with.analysis.sites.len(), 1);
    let without = object(assembly);
    assert_eq!(without.analysis.sites.len(), 0);
    assert_eq!(without.analysis.others[0].reason, Reason::NoFunction);
    assert_eq!(without.analysis.unproven().count(), 1);
}

#[test]
fn live_flags_are_seen() {
    let live = vec![Reason::FlagsLive];
    let with = |after: &str| format!("cmp %edi, %esi\nmov $257, %eax\nsyscall\n{after}\n");
    for after in [
        "je 1f\ntest %eax, %eax\n1: ret",
        "mov %rax, %rdx\nsetc %al\nret",
        "pushf\npop %rax\nret",
        "lahf\nret",
        // Leaves the carry flag alone.
        "inc %eax\nadc $0, %edx\nret",
        // Writes nothing if cl is zero.
        "shl %cl, %edx\nje 1f\n1: ret",
        // Nothing at all if rcx is zero.
        "repe cmpsb\nje 1f\n1: ret",
        "jmp 2f\n2: cmovc %edx, %eax\nret",
        "jmp *%rdx",
        "jrcxz 1f\n1: ret",
    ] {
        assert_eq!(refused(&with(after)), live, "{after}");
    }
    for after in [
        "test %eax, %eax\nje 1f\n1: ret",
        "ret",
        "mov %rax, %rdx\ncall 1f\n1: ret",
        "jmp 2f\nincl %eax\n2: add $1, %eax\nret",
        "inc %eax\ntest %edx, %edx\nje 1f\n1: ret",
    ] {
        only_site(&with(after));
    }
}

#[test]
fn a_call_at_the_end_of_the_function_is_left_alone() {
    assert_eq!(refused("mov $257, %eax\nsyscall\n"), vec![Reason::FlagsLive]);
}

#[test]
fn a_call_at_the_end_of_the_segment_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let body = "mov $257, %eax\nsyscall\nret\n";
    let at_end = assemble(directory.path(), "at-end", &function("f", body));
    let analysis = analyse(&at_end).unwrap();
    assert_eq!(analysis.sites, vec![]);
    assert_eq!(analysis.others[0].reason, Reason::SegmentEnd);
    // Across a page's end is fine, as long as the segment goes on.
    let across = format!(
        ".p2align 12\n.skip 4096 - 16 - 3, 0x90\n.globl f\n.type f, @function\nf:\n\
        .cfi_startproc\n.skip 13, 0x90\n{body}.cfi_endproc\n.size f, .-f\n{TAIL}"
    );
    let analysis = analyse(&assemble(directory.path(), "across", &across)).unwrap();
    assert_eq!(analysis.sites.len(), 1);
    assert!(analysis.sites[0].patch_offset % 4096 > 4096 - 7);
}

/// A short call and a padding behind its return.
fn short(padding: &str) -> String {
    format!("xor %eax, %eax\nsyscall\ntest %eax, %eax\nje 1f\nret\n{padding}\n1: incl %eax\nret\n")
}

#[test]
fn a_short_call_takes_the_padding_behind_a_return() {
    let object = object(&function("f", &short(".byte 0x0f, 0x1f, 0x44, 0, 0")));
    let sites = object.sites("f");
    assert_eq!((sites[0].form, sites[0].number), (form::SHORT_VIA_PAD, 0));
    let pads: Vec<u64> = sites.iter().map(|site| site.pad_offset).collect();
    let range = object.range("f");
    // Inside the function, or between it and the next.
    assert!(pads[0] >= range.start && pads[0] + 5 <= range.end + 16);
    assert_eq!(sites[0].expected_pad.len(), 8);
}

/// The functions before and behind `f` leave no padding between, so that only inner ones count.
fn tight(body: &str) -> Object {
    let assembly = format!(
        ".globl f\n.type f, @function\nf:\n.cfi_startproc\n{body}\n.cfi_endproc\n.size f, .-f\n\
         .type g, @function\ng:\n.cfi_startproc\nincl %eax\nret\n.cfi_endproc\n.size g, .-g\n"
    );
    object(&assembly)
}

const NOP5: &str = ".byte 0x0f, 0x1f, 0x44, 0, 0";

#[test]
fn padding_inside_is_used_only_if_nothing_leads_to_it() {
    assert_eq!(tight(&short(NOP5)).sites("f").len(), 1);
    let none = |body: String| {
        let object = tight(&body);
        assert_eq!(object.sites("f"), vec![], "{body}");
        assert_eq!(object.reasons("f"), vec![Reason::NoPadding], "{body}");
    };
    // Too short; code, not padding; behind something that goes on.
    none(short("nopl (%rax)"));
    none(short("incl %eax\nincl %eax\nincl %eax"));
    none(format!("xor %eax, %eax\nsyscall\ntest %eax, %eax\njne 1f\n{NOP5}\n1: ret\n"));
    none(format!("xor %eax, %eax\nsyscall\ntest %eax, %eax\ncall tail\n{NOP5}\nret\n"));
    // A debugger's trap may be stepped over.
    none(format!("xor %eax, %eax\nsyscall\ntest %eax, %eax\nint3\n{NOP5}\nret\n"));
    // A branch to the padding, or to the middle of it.
    none(format!("xor %eax, %eax\nsyscall\ntest %eax, %eax\nje 2f\nret\n2: {NOP5}\nret\n"));
    none("xor %eax, %eax\nsyscall\ntest %eax, %eax\nje 2f\nret\nnop\nnop\n2: nop\nnop\nnop\nret\n".into());
    // A branch from code that nothing is seen to reach: whoever gets there goes on to the padding.
    none(format!("xor %eax, %eax\nsyscall\ntest %eax, %eax\nret\n2: {NOP5}\nret\njmp 2b\n"));
    // A jump table somewhere: it may lead to a label in front of the padding.
    none(format!("xor %eax, %eax\nsyscall\ntest %eax, %eax\nje 1f\njmp *%rdx\n{NOP5}\n1: ret\n"));
    // The function computes an address of its own code.
    none(format!("lea 3f(%rip), %rdx\n{}\n3: ret\n", short(NOP5)));
    // Out of reach.
    none(format!(
        "xor %eax, %eax\nsyscall\ntest %eax, %eax\n.rept 70\nincl %eax\n.endr\nret\n{NOP5}\n1: ret\n"
    ));
}

#[test]
fn padding_is_not_used_if_the_cold_part_jumps_to_it() {
    let with = |target: &str| {
        let hot =
            format!("xor %eax, %eax\nsyscall\ntest %eax, %eax\njne f_cold\nret\ninside: {NOP5}\nbehind: ret");
        let assembly = format!(
            ".globl f\n.type f, @function\nf:\n.cfi_startproc\n{hot}\n.cfi_endproc\n.size f, .-f\n\
             .type f_cold, @function\nf_cold:\n.cfi_startproc\nincl %eax\njmp {target}\n\
             .cfi_endproc\n.size f_cold, .-f_cold\n"
        );
        object(&assembly).sites("f").len()
    };
    assert_eq!(with("behind"), 1);
    assert_eq!(with("inside"), 0);
}

#[test]
fn padding_between_functions_is_used_once() {
    let body = "xor %eax, %eax\nsyscall\ntest %eax, %eax\nret\n";
    let two = "xor %eax, %eax\nsyscall\nxor %eax, %eax\nsyscall\ntest %eax, %eax\nret\n";
    let with = |body: &str, gap: &str| {
        object(&format!(
            ".globl f\n.type f, @function\nf:\n.cfi_startproc\n{body}.cfi_endproc\n.size f, .-f\n\
             {gap}\n.type g, @function\ng:\n.cfi_startproc\nincl %eax\nret\n.cfi_endproc\n\
             .size g, .-g\n"
        ))
    };
    assert_eq!(with(body, NOP5).sites("f").len(), 1);
    assert_eq!(with(body, "int3\nint3\nint3\nint3\nint3").sites("f").len(), 1);
    assert_eq!(with(body, "nop\nnop\nnop\nnop").sites("f").len(), 0);
    assert_eq!(with(body, "nop\nnop\nincl %eax\nnop").sites("f").len(), 0);
    assert_eq!(with(body, &format!("h: {NOP5}")).sites("f").len(), 0);
    assert_eq!(with(body, &format!("{NOP5}\nincl %eax")).sites("f").len(), 0);
    // Falls through: the padding is executed.
    let falls = "xor %eax, %eax\nsyscall\ntest %eax, %eax\n";
    assert_eq!(with(falls, NOP5).sites("f").len(), 0);
    let once = with(two, NOP5);
    assert_eq!(once.sites("f").len(), 1);
    assert_eq!(once.reasons("f"), vec![Reason::NoPadding]);
    let twice = with(two, &format!("{NOP5}\n{NOP5}"));
    let pads: Vec<u64> = twice.sites("f").iter().map(|s| s.pad_offset).collect();
    assert_eq!(pads.len(), 2);
    assert!(pads[0].abs_diff(pads[1]) >= 5);
}

#[test]
fn two_functions_share_no_padding() {
    let body = "xor %eax, %eax\nsyscall\ntest %eax, %eax\nret\n";
    let one = |name: &str| {
        format!(
            ".globl {name}\n.type {name}, @function\n{name}:\n.cfi_startproc\n{body}.cfi_endproc\n\
             .size {name}, .-{name}\n"
        )
    };
    let object = object(&format!("{}{NOP5}\n{}", one("f"), one("g")));
    let first: Vec<Site> = [object.sites("f"), object.sites("g")].concat();
    // Behind `g` the alignment of the tail may give it another one.
    let mut pads: Vec<u64> = first.iter().map(|site| site.pad_offset).collect();
    pads.dedup();
    assert_eq!(pads.len(), first.len());
    assert!(!first.is_empty());
}

#[test]
fn calls_that_return_twice_or_elsewhere_are_never_patched() {
    for number in [56, 57, 58, 435, 15, 60, 202] {
        let reasons = refused(&format!("mov ${number}, %eax\nsyscall\ntest %eax, %eax\nret\n"));
        assert_eq!(reasons, vec![Reason::Never]);
    }
    // Nor anything beside an rt_sigreturn, whose function unwinders know by its bytes.
    let beside = "mov $257, %eax\nsyscall\ntest %eax, %eax\nmov $15, %eax\nsyscall\n";
    assert_eq!(refused(beside), vec![Reason::Never, Reason::Never]);
}

#[test]
fn a_trampolines_range_starts_one_byte_early() {
    let assembly = "nop\n.globl f\n.type f, @function\n.cfi_startproc\n.cfi_signal_frame\nnop\n\
        f: mov $257, %eax\nsyscall\nret\n.cfi_endproc\n.size f, .-f\n";
    let object = object(assembly);
    assert_eq!(object.sites("f"), vec![]);
    assert_eq!(object.reasons("f"), vec![Reason::Function(Distrust::Trampoline)]);
}

#[test]
fn a_number_loaded_earlier_makes_a_displaced_site() {
    let site = only_site("mov $257, %eax\nmov $-100, %edi\nsyscall\ntest %eax, %eax\nret\n");
    assert_eq!((site.form, site.number), (form::DISPLACED, 257));
    let site = only_site(&format!(
        "mov $231, %esi\n1: mov %esi, %eax\nsyscall\ncmp $-4, %eax\nje 1b\nret\n{NOP5}\n"
    ));
    assert_eq!((site.form, site.number), (form::SHORT_DISPLACED, 231));
    // Any number: the C library's syscall().
    let site = only_site("mov %rdi, %rax\nmov 8(%rsp), %r9\nsyscall\ntest %eax, %eax\nret\n");
    assert_eq!((site.form, site.number), (form::DISPLACED, ANY_NUMBER));
    // Known, and nobody need see it.
    let reasons = refused("mov $39, %eax\nmov $-100, %edi\nsyscall\ntest %eax, %eax\nret\n");
    assert_eq!(reasons, vec![Reason::NoForm]);
    for displaced in [
        "mov 8(%rdi), %rsi",     // may fault
        "mov -8(%rsp), %rsi",    // below the stack pointer
        "lea 1f(%rip), %rsi",    // means something else elsewhere
        "mov %fs:8(%rsp), %rsi", // not the stack
        "add $8, %rsp",          // moves the stack
        "mov %rdi, 8(%rsp)",     // writes memory
        "mov %rsp, %rsi",        // the stub may have moved it
        "cpuid",                 // not plain
    ] {
        let body = format!("mov $257, %eax\n{displaced}\nsyscall\ntest %eax, %eax\nret\n{NOP5}\n1: ret\n");
        refused(&body);
    }
}

/// As `read` is made in C libraries up to 2.35.
#[test]
fn a_number_that_a_branch_implies_makes_a_branched_site() {
    let behind = "syscall\ncmp $-4096, %rax\nja 1f\nret\n1: call tail\nret\n";
    let site = only_site(&format!("mov %fs:0x18, %eax\ntest %eax, %eax\njne 1f\n{behind}"));
    assert_eq!((site.form, site.number, site.syscall_distance), (form::BRANCHED, 0, 12));
    assert_eq!(site.expected[..2], [0x64, 0x8b]);
    // The other register may be anything.
    refused(&format!("mov %fs:0x18, %ecx\ntest %ecx, %ecx\njne 1f\n{behind}"));
    for (what, trap) in [
        ("the branch is taken for zero", "mov %fs:0x18, %eax\ntest %eax, %eax\nje 1f\n"),
        ("not the register that was loaded", "mov %fs:0x18, %eax\ntest %ecx, %ecx\njne 1f\n"),
        ("no test against itself", "mov %fs:0x18, %eax\ntest %ecx, %eax\njne 1f\n"),
        ("the upper half is anything", "mov %fs:0x18, %al\ntest %al, %al\njne 1f\n"),
        ("may fault", "mov 0x11223344(%rdi), %eax\ntest %eax, %eax\njne 1f\n"),
        ("an address that is not known", "mov %fs:0x18(%rdi), %eax\ntest %eax, %eax\njne 1f\n"),
        ("beyond the thread's block", "mov %fs:0x12345678, %eax\ntest %eax, %eax\njne 1f\n"),
        ("no room for a jump", "mov 8(%rsp), %eax\ntest %eax, %eax\njne 1f\n"),
        ("another condition", "mov %fs:0x18, %eax\ntest %eax, %eax\njs 1f\n"),
    ] {
        let object = object(&function("f", &format!("{trap}{behind}")));
        let branched = object.sites("f").into_iter().filter(|site| site.form == form::BRANCHED).count();
        assert_eq!(branched, 0, "{what}");
    }
}

#[test]
fn whoever_arrives_behind_the_load_of_a_branched_site_is_seen() {
    let body = |target: u32| {
        let label = |number: u32| if number == target { "2: " } else { "" };
        format!(
            "test %edi, %edi\njs 2f\nmov %fs:0x18, %eax\n{}test %eax, %eax\n{}jne 1f\n{}syscall\n\
             cmp $-4096, %rax\nja 1f\nret\n1: call tail\nret\n",
            label(1),
            label(2),
            label(3)
        )
    };
    for target in [1, 2, 3] {
        let object = object(&function("f", &body(target)));
        // Who arrives brings a number of his own: what eax is is not known any more.
        assert!(object.sites("f").iter().all(|site| site.form != form::BRANCHED), "{target}");
        assert!(!object.reasons("f").is_empty(), "{target}");
    }
}

/// glibc's one place for cancellable calls, and whatever only looks like it.
#[test]
fn a_place_of_cancellation_is_believed_in_the_c_library_alone() {
    let place = |moves: &str| {
        let body = format!(
            "mov (%rdi), %eax\ntestb $8, (%rdi)\n.byte 0x0f, 0x85\n.long tail - . - 4\nmov %rdi, %r11\n\
             mov %rsi, %rax\nmov %rdx, %rdi\n{moves}\nmov %r9, %r10\nmov 8(%rsp), %r8\nmov 16(%rsp), %r9\n\
             mov %r11, 8(%rsp)\nsyscall\nret"
        );
        format!("{}{NOP5}\n{NOP5}\n", function("f", &body))
    };
    let right = "mov %rcx, %rsi\nmov %r8, %rdx";
    let library = |assembly: &str| {
        object(&format!(".globl __pthread_initialize_minimal\n__pthread_initialize_minimal: ret\n{assembly}"))
    };
    let object_of = library(&place(right));
    let sites = object_of.sites("f");
    assert_eq!(sites.len(), 1, "{:?}", object_of.analysis);
    assert_eq!((sites[0].form, sites[0].number), (form::CANCELLATION, ANY_NUMBER));
    assert_eq!(sites[0].patch_offset, object_of.range("f").start);
    // Anybody else's may be any call, and nobody sees which.
    let elsewhere = object(&place(right));
    assert_eq!(elsewhere.sites("f"), vec![]);
    assert!(elsewhere.analysis.is_blind());
    for wrong in
        ["mov %r8, %rdx\nmov %rcx, %rsi", "mov %rcx, %rsi\nmov %r9, %rdx", "mov %ecx, %esi\nmov %r8, %rdx"]
    {
        let object = library(&place(wrong));
        assert!(object.sites("f").iter().all(|site| site.form != form::CANCELLATION), "{wrong}");
    }
}

#[test]
fn numbers_are_followed_through_branches() {
    let number_of = |body: &str| {
        let object = object(&function("f", body));
        assert_eq!(object.analysis.others.len(), 1, "{body}");
        object.analysis.others[0].number
    };
    // `push` before the call: no form, so it is listed with what is known of its number.
    let tail = "push %rdi\nsyscall\npop %rdi\ntest %eax, %eax\nret\n";
    assert_eq!(number_of(&format!("mov $5, %eax\n{tail}")), Some(5));
    assert_eq!(number_of(&format!("mov $5, %ebx\ncall tail\nmov %ebx, %eax\n{tail}")), Some(5));
    assert_eq!(number_of(&format!("mov $5, %eax\ncall tail\n{tail}")), None);
    let join = |other: u32| {
        format!("mov $5, %r8d\ntest %edi, %edi\nje 1f\nmov ${other}, %r8d\n1: mov %r8d, %eax\n{tail}")
    };
    assert_eq!(number_of(&join(5)), Some(5));
    assert_eq!(number_of(&join(6)), None);
    assert_eq!(number_of(&format!("mov $5, %eax\nmov %dil, %al\n{tail}")), None);
    assert_eq!(number_of(&format!("mov %edi, %eax\nsub %eax, %eax\n{tail}")), Some(0));
    assert_eq!(number_of(&format!("mov $-1, %rax\n{tail}")), None);
    // What a test has told.
    let told = |load: &str, branch: &str| {
        number_of(&format!("{load}\ntest %edx, %edx\n{branch}\nmov %edx, %eax\n{tail}"))
    };
    assert_eq!(told("mov (%rdi), %edx", "jne tail"), Some(0));
    assert_eq!(told("mov (%rdi), %edx", "je tail"), None);
    assert_eq!(told("mov (%rdi), %rdx", "jne tail"), None);
    assert_eq!(told("mov (%rdi), %ecx", "jne tail"), None);
    // A loop that changes it.
    let round = "mov $5, %eax\n1: push %rdi\nsyscall\npop %rdi\nmov $6, %eax\ntest %edi, %edi\nje 1b\nret\n";
    assert_eq!(number_of(round), None);
}

/// What is done at a `syscall` that is no site (flags are read behind it) decides whether the file is touched at all.
#[test]
fn code_that_may_forbid_calls_is_told_from_other_code() {
    let is_blind = |body: &str| tight(&format!("{body}\nsyscall\njc 9f\n9: ret\n")).analysis.is_blind();
    for body in [
        "mov $317, %eax",
        "mov $157, %eax",
        "mov $22, %edi\nmov $157, %eax",
        "mov $59, %edi\nmov $157, %eax",
        "mov (%rsi), %eax",
    ] {
        assert!(is_blind(body), "{body}");
    }
    for body in ["mov $0, %eax", "mov $231, %eax", "mov $0x41555856, %edi\nmov $157, %eax"] {
        assert!(!is_blind(body), "{body}");
    }
}

/// The place of cancellation without padding must not become a displaced site.
#[test]
fn a_place_of_cancellation_without_padding_is_left() {
    let body = "mov (%rdi), %eax\ntestb $8, (%rdi)\n.byte 0x0f, 0x85\n.long tail - . - 4\nmov %rdi, %r11\n\
             mov %rsi, %rax\nmov %rdx, %rdi\nmov %rcx, %rsi\nmov %r8, %rdx\nmov %r9, %r10\nmov 8(%rsp), %r8\nmov 16(%rsp), %r9\n\
             mov %r11, 8(%rsp)\nsyscall\nret";
    let object = object(&format!(
        ".globl __pthread_initialize_minimal\n__pthread_initialize_minimal: ret\n{}",
        function("f", body)
    ));
    assert_eq!(object.sites("f"), vec![]);
}

/// A label in the middle of a run, as handlers compare program counters with.
#[test]
fn a_symbol_in_the_middle_of_a_run_is_left() {
    let body = "push %rbx\nmovabs $0x1122334455667788, %rcx\nmov %edi, %eax\nmov %rsi, %rdi\ninside:\nmov %rdx, %rsi\nsyscall\npop %rbx\ncmp $-4096, %rax\nret";
    let object = object(&format!(".globl inside\n{}", function("f", body)));
    assert_eq!(object.sites("f"), vec![]);
}

/// The numbers that are known of the calls of the function `f`, sites or not.
fn known_numbers(object: &Object) -> Vec<Option<u32>> {
    let of_site = |site: &Site| (site.number != ANY_NUMBER).then_some(u32::from(site.number));
    let range = object.range("f");
    let others = object.analysis.others.iter().filter(|other| range.contains(&other.file_offset));
    object.sites("f").iter().map(of_site).chain(others.map(|other| other.number)).collect()
}

/// A number that one way to the call brings along is not the number of all of them.
#[test]
fn every_way_to_a_call_brings_its_number() {
    // What is arrived at behind a `lock` prefix is arrived at, whichever way is looked at first.
    for (first, second) in [(157, 3), (3, 157)] {
        let body = format!(
            "mov ${first}, %r12d\ntest %edi, %edi\nje 1f + 1\nmov ${second}, %r12d\n\
             1: lock cmpxchg %edx, (%rsi)\nmov %r12, %rax\nsyscall\nret\n"
        );
        assert_eq!(known_numbers(&object(&function("f", &body))), [None], "{first} {second}");
    }
    // Nor is what a cold part brings forgotten.
    let own = "mov $3, %r12d\ntest %edi, %edi\njne f_cold\ntarget: inc %edx\nmov %r12, %rax\nsyscall\nret\n";
    for (cold, number) in [("jmp target\n", None), ("ret\n", Some(3))] {
        let object = object(&format!(
            "{}{}",
            function("f", own),
            function("f_cold", &format!("mov $157, %r12d\n{cold}"))
        ));
        assert_eq!(known_numbers(&object), [number], "{cold}");
    }
}

#[test]
fn a_register_is_what_the_flags_say_until_it_or_they_change() {
    let number = |between: &str| {
        let body = format!("sub %esi, %ecx\n{between}\njne 1f\nmov %rcx, %rax\nsyscall\n1: ret\n");
        known_numbers(&object(&function("f", &body)))
    };
    for between in ["nop", "mov %rdx, %rsi", "jc 1f", "mov %ecx, (%rsi)"] {
        assert_eq!(number(between), [Some(0)], "{between}");
    }
    let changes = [
        // It counts down, and leaves the flags.
        "loop 1f",
        "dec %edx",
        "lea 1(%rcx), %rcx",
        "mov $1, %cl",
        "cmove %rdx, %rcx",
        "shl %cl, %edx",
        "xchg %rcx, %rdx",
        "mov %rcx, %rdx\nmov %rdx, %rcx\ntest %edx, %edx\nsete %cl",
        "call *%rdi",
        "xadd %ecx, %edx",
        "bsf %ecx, %ecx",
        "pop %rcx",
    ];
    for between in changes {
        assert_eq!(number(between), [None], "{between}");
    }
}
