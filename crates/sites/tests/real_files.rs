//! The analysis of real files against an independent disassembly (binutils), and against what is known
//! of the C library. Prints a table of what was found: `cargo test -p runahead-sites --test real_files
//! -- --nocapture`. Further files can be named, separated by colons, in `SITES_TEST_FILES`.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use common::{Disassembly, is_padding_text, rewritten, symbol};
use runahead_abi::sites::{ANY_NUMBER, NEAR_JUMP, Site, form};
use runahead_sites::{Analysis, MUST_SEE, NEVER_PATCHED, analyse};

/// The file that this very process has mapped under this name.
fn mapped(name: &str) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .map(PathBuf::from)
        .find(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(name)))
}

fn libc() -> PathBuf {
    mapped("libc.so").expect("this test runs on a machine with glibc, dynamically linked")
}

/// A library of another release of Debian, if `./x test` could fetch it.
fn of_release(release: &str, library: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/conformance").join(release);
    let folders = ["libc6/lib/x86_64-linux-gnu", "libc6/usr/lib/x86_64-linux-gnu"];
    let path = folders.iter().map(|below| folder.join(below).join(library)).find(|path| path.is_file());
    if path.is_none() {
        eprintln!("SKIPPED: {library} of {release} is not there; './x test' fetches it");
    }
    path
}

/// From glibc 2.41 on.
fn libc_with_one_cancellation_site() -> Option<PathBuf> {
    of_release("trixie", "libc.so.6")
}

/// Up to glibc 2.35 who has one thread makes his calls elsewhere than who has several.
fn libraries_with_single_threaded_calls() -> Vec<PathBuf> {
    ["libc-2.31.so", "libpthread-2.31.so"].iter().filter_map(|name| of_release("bullseye", name)).collect()
}

fn real_files() -> Vec<PathBuf> {
    let wanted = [
        "/usr/lib/x86_64-linux-gnu/libpthread.so.0",
        "/usr/lib/x86_64-linux-gnu/libgomp.so.1",
        "/usr/lib/x86_64-linux-gnu/libasan.so.8",
        "/usr/bin/git",
        "/usr/bin/python3",
        "/usr/bin/sqlite3",
        "/bin/busybox",
        "/sbin/ldconfig",
        "/usr/bin/agrep",
    ];
    let mut files = vec![libc(), mapped("ld-linux").unwrap()];
    for path in wanted.map(PathBuf::from) {
        if path.exists() {
            files.push(path);
        } else {
            eprintln!("SKIPPED: {} is not on this machine", path.display());
        }
    }
    files.extend(libc_with_one_cancellation_site());
    files.extend(libraries_with_single_threaded_calls());
    let further = std::env::var_os("SITES_TEST_FILES").unwrap_or_default();
    files.extend(std::env::split_paths(&further).filter(|path| path.is_file()));
    files
}

#[test]
fn every_site_of_real_files_stands_up_to_binutils() {
    println!("  found  proven  of them short  unproven  ms  file");
    let mut compared = 0;
    for path in real_files() {
        let start = Instant::now();
        let analysis = analyse(&path).unwrap();
        let elapsed = start.elapsed().as_millis();
        println!(
            "{:7}  {:6}  {:13}  {:8}  {:2}  {}",
            analysis.found,
            analysis.sites.len(),
            analysis.sites.iter().filter(|s| s.is_short()).count(),
            analysis.unproven().count(),
            elapsed,
            path.display()
        );
        if analysis.sites.is_empty() {
            continue;
        }
        compare(&path, &analysis);
        compared += analysis.sites.len();
    }
    assert!(compared > 300, "only {compared} sites compared");
}

fn compare(path: &Path, analysis: &Analysis) {
    let disassembly = Disassembly::of(path);
    let content = std::fs::read(path).unwrap();
    let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
    for site in &analysis.sites {
        let at = |offset| disassembly.at(offset).unwrap_or(("no boundary", 0));
        let name = format!("{}: {site:x?}", path.display());
        let (text, length) = at(site.patch_offset);
        let distance = u64::from(site.syscall_distance);
        assert_eq!(at(site.patch_offset + distance).0, "syscall", "{name}");
        if site.form == form::CANCELLATION {
            assert_eq!(text, "mov (%rdi),%eax", "{name}");
        } else if site.form == form::BRANCHED {
            let (test, more) = at(site.patch_offset + length);
            let (jump, last) = at(site.patch_offset + length + more);
            assert_eq!(test, "test %eax,%eax", "{name}");
            assert!(jump.starts_with("jne"), "{name}: {jump}");
            assert_eq!(length + more + last, distance, "{name}");
        } else if site.form == form::DISPLACED && length != distance {
            // Several, none of which is jumped to but the first.
            let mut covered = 0;
            while covered < distance {
                let (text, length) = at(site.patch_offset + covered);
                assert!(length > 0, "{name}: {text}");
                check_form(site, text, &name);
                covered += length;
            }
            assert_eq!(covered, distance, "{name}");
            let (second, end) = (site.patch_offset + 1, site.patch_offset + distance + 1);
            assert!(!disassembly.is_entered(second, end), "{name}");
        } else {
            assert_eq!(length, distance, "{name}: {text}");
        }
        check_form(site, text, &name);
        let patch = site.patch_offset as usize;
        assert_eq!(content[patch..patch + 16], site.expected, "{name}");
        if site.is_short() {
            let pad = site.pad_offset as usize;
            assert_eq!(content[pad..pad + 8], site.expected_pad, "{name}");
            let reach = site.pad_offset as i64 - (site.patch_offset as i64 + 2);
            assert!(i8::try_from(reach).is_ok(), "{name}: {reach}");
            let bytes = disassembly.touching(site.pad_offset, site.pad_offset + NEAR_JUMP as u64);
            assert!(!bytes.is_empty(), "{name}");
            assert!(bytes.iter().all(|t| is_padding_text(t)), "{name}: {bytes:?}");
        }
        for (start, end) in rewritten(site) {
            let before = taken.range(..end).next_back();
            assert!(before.is_none_or(|(_, other)| *other <= start), "{name}");
            taken.insert(start, end);
        }
    }
    let left: usize = analysis.others.len();
    assert!(analysis.sites.len() + left >= disassembly.count("syscall"));
}

fn check_form(site: &Site, text: &str, name: &str) {
    let number = site.number;
    assert!(!NEVER_PATCHED.contains(&number), "{name}");
    match site.form {
        form::MOV_IMM32 => {
            let five = format!("mov $0x{number:x},%eax");
            let seven = format!("mov $0x{number:x},%rax");
            assert!(text == five || text == seven, "{name}: {text}");
        }
        form::SHORT_VIA_PAD => {
            assert_eq!((number, text), (0, "xor %eax,%eax"), "{name}");
        }
        form::DISPLACED | form::SHORT_DISPLACED => {
            assert!(number == ANY_NUMBER || MUST_SEE.contains(&number), "{name}");
            let stack_only = !text.contains('(') || text.contains("(%rsp)");
            assert!(stack_only && !text.contains("%rip"), "{name}: {text}");
        }
        form::CANCELLATION => assert_eq!(number, ANY_NUMBER, "{name}"),
        form::BRANCHED => assert_eq!((number, text), (0, "mov %fs:0x18,%eax"), "{name}"),
        other => panic!("{name}: form {other}"),
    }
    let is_short = site.syscall_distance < NEAR_JUMP as u8 || site.form == form::CANCELLATION;
    assert_eq!(text.len() > 1 && site.is_short(), is_short, "{name}");
}

/// Each must be there, or programs stall unseen.
const IN_LIBC: &[(&str, u16)] = &[
    ("read", 0),
    ("pread64", 17),
    ("readv", 19),
    ("preadv64", 295),
    ("preadv64v2", 327),
    ("open64", 257),
    ("openat64", 257),
    ("fstatat64", 262),
    ("statx", 332),
    ("getdents64", 217),
    ("faccessat", 439),
    ("readlink", 89),
    ("readlinkat", 267),
    ("mmap64", 9),
    ("prctl", 157),
    ("sigaltstack", 131),
    ("ptrace", 101),
    ("execve", 59),
    ("_exit", 231),
    ("syscall", ANY_NUMBER),
];

#[test]
fn the_c_library_has_what_the_agent_lives_on() {
    let path = libc();
    let analysis = analyse(&path).unwrap();
    for (name, number) in IN_LIBC {
        let (start, size) = symbol(&path, name).unwrap_or_else(|| panic!("no symbol {name}"));
        let found = analysis
            .sites
            .iter()
            .any(|site| site.number == *number && (start..start + size).contains(&site.patch_offset));
        assert!(found, "{name} ({number}) is not a site of {}", path.display());
    }
    let known_unproven: Vec<_> = analysis.unproven().filter(|other| other.number.is_some()).collect();
    assert!(known_unproven.is_empty(), "{known_unproven:x?}");
}

/// From 2.41 on glibc makes its cancellable calls at one place. A thread is cancelled while it is between two
/// addresses there, so it is rewritten where it begins, and nowhere else.
#[test]
fn the_place_where_all_cancellable_calls_are_made_is_rewritten_where_it_begins() {
    // mov (%rdi),%eax; testb $8,(%rdi); jne ...
    const BEGINNING: &[u8] = &[0x8b, 0x07, 0xf6, 0x07, 0x08, 0x0f, 0x85];
    // mov %r11,8(%rsp); syscall; ret
    const END: &[u8] = &[0x4c, 0x89, 0x5c, 0x24, 0x08, 0x0f, 0x05, 0xc3];
    let Some(path) = libc_with_one_cancellation_site() else { return };
    let content = std::fs::read(&path).unwrap();
    let places = |wanted: &[u8]| -> Vec<usize> {
        let windows = content.windows(wanted.len()).enumerate();
        windows.filter(|(_, bytes)| *bytes == wanted).map(|(place, _)| place).collect()
    };
    let [end] = places(END)[..] else { panic!("{:x?} in {}", places(END), path.display()) };
    let begin = places(BEGINNING).into_iter().rfind(|begin| *begin < end).unwrap() as u64;
    let call = (end + END.len() - 3) as u64;
    let analysis = analyse(&path).unwrap();
    let (ours, others): (Vec<&Site>, Vec<&Site>) =
        analysis.sites.iter().partition(|site| site.form == form::CANCELLATION);
    assert_eq!(ours.len(), 1);
    assert_eq!((ours[0].patch_offset, ours[0].number), (begin, ANY_NUMBER));
    assert_eq!(begin + u64::from(ours[0].syscall_distance), call);
    let pad = ours[0].pad_offset;
    assert!(!(begin - 4..call + 2).contains(&pad), "{pad:x}");
    for site in others {
        for (start, end) in rewritten(site) {
            assert!(end <= begin || start >= call + 2, "{site:x?} in {begin:x} to {call:x}");
        }
    }
}

/// Else every program of that release would run plainly.
#[test]
fn no_release_of_the_c_library_is_left_alone_as_a_whole() {
    let libraries =
        ["libc.so.6", "ld-linux-x86-64.so.2", "libpthread.so.0", "libdl.so.2", "libm.so.6", "librt.so.1"];
    let files = ["trixie", "bullseye"]
        .iter()
        .flat_map(|release| libraries.iter().filter_map(|library| of_release(release, library)))
        .chain([libc(), mapped("ld-linux").unwrap()]);
    for path in files {
        let analysis = analyse(&path).unwrap();
        assert!(!analysis.is_blind(), "{}: {:x?}", path.display(), analysis.others);
    }
}

#[test]
fn reads_of_programs_without_threads_are_sites_in_older_libraries() {
    for path in libraries_with_single_threaded_calls() {
        let analysis = analyse(&path).unwrap();
        let (start, size) = symbol(&path, "read").unwrap();
        let forms: Vec<u8> = analysis
            .sites
            .iter()
            .filter(|site| site.number == 0 && (start..start + size).contains(&site.patch_offset))
            .map(|site| site.form)
            .collect();
        // With one thread and with several.
        assert_eq!(forms.len(), 2, "{}", path.display());
        assert!(forms.contains(&form::BRANCHED), "{}", path.display());
    }
}

#[test]
fn all_ways_to_read_in_the_c_library_are_sites() {
    let path = libc();
    let analysis = analyse(&path).unwrap();
    let disassembly = Disassembly::of(&path);
    let reads = |number: u16| {
        let load = match number {
            0 => "xor %eax,%eax".to_owned(),
            other => format!("mov $0x{other:x},%eax"),
        };
        disassembly.count_pairs(&load, "syscall")
    };
    for number in [0, 17, 19, 295, 327, 257, 262, 217, 9] {
        let sites = analysis
            .sites
            .iter()
            .filter(|site| site.number == number)
            .filter(|site| !matches!(site.form, form::DISPLACED | form::SHORT_DISPLACED))
            .count();
        assert_eq!(sites, reads(number), "number {number}");
        assert!(sites > 0);
    }
}

/// Not a limit to be tuned against, but a bound on what a first run under Runahead may cost.
#[test]
fn the_c_library_is_analysed_in_a_tenth_of_a_second() {
    let path = libc();
    let fastest = (0..5)
        .map(|_| {
            let start = Instant::now();
            analyse(&path).unwrap();
            start.elapsed()
        })
        .min()
        .unwrap();
    let bound = if cfg!(debug_assertions) { 3000 } else { 100 };
    assert!(fastest.as_millis() < bound, "{fastest:?}");
}

/// Go's own programs, if it is installed.
fn go_programs() -> Vec<PathBuf> {
    let told = std::process::Command::new("go").args(["env", "GOROOT"]).output();
    let Some(root) = told.ok().and_then(|told| String::from_utf8(told.stdout).ok()) else {
        return Vec::new();
    };
    let programs = ["bin/go", "bin/gofmt"].map(|program| Path::new(root.trim()).join(program));
    programs.into_iter().filter(|program| program.is_file()).collect()
}

#[test]
fn a_go_program_that_is_stripped_has_the_same_sites() {
    let programs = go_programs();
    if programs.is_empty() {
        eprintln!("SKIPPED: there is no Go");
    }
    for program in programs {
        let folder = std::env::temp_dir().join(format!("runahead-stripped-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let stripped = folder.join("stripped");
        let status = std::process::Command::new("strip").arg("-o").arg(&stripped).arg(&program).status();
        assert!(status.unwrap().success());
        let [whole, less] = [&program, &stripped].map(|path| analyse(path).unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
        let places = |analysis: &Analysis| -> Vec<(u64, u64)> {
            analysis.sites.iter().map(|site| (site.patch_offset, site.number.into())).collect()
        };
        assert!(whole.sites.len() > 20, "{}", program.display());
        // Its profiler does not bear a jump behind a function's last instruction: where it makes most calls
        // there is none.
        for analysis in [&whole, &less] {
            let short = analysis.sites.iter().filter(|site| site.is_short());
            assert!(short.count() <= 1, "{}: beside that which forks", program.display());
        }
        assert_eq!(places(&whole), places(&less), "{}", program.display());
        assert_eq!(
            (whole.others.len(), less.unproven().count()),
            (less.others.len(), whole.unproven().count())
        );
    }
}
