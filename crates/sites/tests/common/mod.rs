//! What the tests share: assembling small objects, and an independent disassembly to compare with.
#![allow(dead_code)] // Each test binary uses its own part of this.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSegment, ObjectSymbol};
use runahead_abi::sites::{CANCELLATION_START, Site, form};

/// Assembles and links `assembly` (AT&T syntax) into a shared object in `directory`.
pub fn assemble(directory: &Path, name: &str, assembly: &str) -> PathBuf {
    let source = directory.join(format!("{name}.s"));
    let object = directory.join(format!("{name}.so"));
    let text = format!(".text\n{assembly}\n.section .note.GNU-stack,\"\",@progbits\n");
    fs::write(&source, text).unwrap();
    let status = Command::new("cc")
        .args(["-shared", "-nostdlib", "-Wl,--build-id=none", "-o"])
        .args([&object, &source])
        .status()
        .expect("these tests need cc (Debian: gcc)");
    assert!(status.success(), "cc failed on {}", source.display());
    object
}

/// A function with unwind information around `body`, and some room behind it so that nothing is near
/// the end of the segment.
pub fn function(name: &str, body: &str) -> String {
    format!(
        ".globl {name}\n.type {name}, @function\n.p2align 4\n{name}:\n.cfi_startproc\n{body}\n\
         .cfi_endproc\n.size {name}, .-{name}\n"
    )
}

/// Ends an object: a function that keeps the end of the segment away.
pub const TAIL: &str = ".p2align 4\n.type tail, @function\ntail:\n.cfi_startproc\n\
    .rept 40\nincl %eax\n.endr\nret\n.cfi_endproc\n.size tail, .-tail\n";

/// Where in the file the symbol is, and how many bytes it has.
pub fn symbol(path: &Path, name: &str) -> Option<(u64, u64)> {
    let data = fs::read(path).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let found =
        file.dynamic_symbols().chain(file.symbols()).find(|s| s.name() == Ok(name) && s.address() != 0)?;
    Some((offset_of(&file, found.address())?, found.size()))
}

fn offset_of(file: &object::File<'_>, address: u64) -> Option<u64> {
    file.segments().find_map(|segment| {
        let inside = address.checked_sub(segment.address())?;
        (inside < segment.size()).then(|| segment.file_range().0 + inside)
    })
}

/// The disassembly that binutils make of a file: by file offset, the instruction's text and length.
pub struct Disassembly {
    lines: BTreeMap<u64, (String, u64)>,
    /// Where direct jumps and calls lead.
    targets: BTreeSet<u64>,
}

impl Disassembly {
    pub fn of(path: &Path) -> Disassembly {
        let output = Command::new("objdump")
            .args(["-d", "-w", "--insn-width=16"])
            .arg(path)
            .output()
            .expect("these tests need objdump (Debian: binutils)");
        assert!(output.status.success());
        let data = fs::read(path).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let (mut lines, mut targets) = (BTreeMap::new(), BTreeSet::new());
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let mut columns = line.split('\t');
            let (Some(address), Some(bytes), Some(text)) = (columns.next(), columns.next(), columns.next())
            else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address.trim().trim_end_matches(':'), 16) else {
                continue;
            };
            let length = bytes.split_whitespace().count() as u64;
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            // "jne 1234 <name+0x5>"
            let target = text.split(' ').nth(1).filter(|_| text.starts_with('j') || text.starts_with("call"));
            let target = target.and_then(|word| u64::from_str_radix(word, 16).ok());
            targets.extend(target.and_then(|target| offset_of(&file, target)));
            if let Some(offset) = offset_of(&file, address) {
                lines.insert(offset, (text, length));
            }
        }
        Disassembly { lines, targets }
    }

    pub fn at(&self, offset: u64) -> Option<(&str, u64)> {
        self.lines.get(&offset).map(|(text, length)| (text.as_str(), *length))
    }

    /// Whether some jump or call names an offset in the range.
    pub fn is_entered(&self, start: u64, end: u64) -> bool {
        self.targets.range(start..end).next().is_some()
    }

    /// All instructions that have a byte in the range.
    pub fn touching(&self, start: u64, end: u64) -> Vec<&str> {
        let first = self.lines.range(..=start).next_back().map_or(start, |(offset, _)| *offset);
        self.lines.range(first..end).map(|(_, (text, _))| text.as_str()).collect()
    }

    /// How often the second instruction stands right behind the first.
    pub fn count_pairs(&self, first: &str, second: &str) -> usize {
        self.lines
            .iter()
            .filter(|(offset, (text, length))| {
                text == first && self.at(*offset + length).is_some_and(|at| at.0 == second)
            })
            .count()
    }

    pub fn count(&self, text: &str) -> usize {
        self.lines.values().filter(|line| line.0 == text).count()
    }
}

/// Whether binutils' text is a no-op or a trap.
pub fn is_padding_text(text: &str) -> bool {
    text.contains("nop") || text == "int3" || text == "xchg %ax,%ax"
}

/// All offsets that a site rewrites: the instruction and the padding.
pub fn rewritten(site: &Site) -> Vec<(u64, u64)> {
    let bytes = match site.form {
        form::CANCELLATION => CANCELLATION_START as u64,
        _ => u64::from(site.syscall_distance),
    };
    let patch = (site.patch_offset, site.patch_offset + bytes);
    if site.is_short() { vec![patch, (site.pad_offset, site.pad_offset + 5)] } else { vec![patch] }
}
