//! The agent's file as an image that is mapped without a loader: the calls that do it.

use crate::PAGE;
use object::elf::{self, FileHeader64, PF_R, PF_W, PF_X};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{LittleEndian, Object, ObjectSymbol};
use runahead_abi::insertion::{Call, END, Inserted, SESSION_TEXT, STACK_BYTES, call};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where the image is entered: an exported symbol of the agent's.
const ENTER: &str = "runahead_agent_inserted";

/// Numbers of the calls.
#[derive(Clone, Copy)]
pub struct Numbers {
    pub open: u32,
    pub map: u32,
    pub close: u32,
}

/// What is to be known of the agent's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    path: CString,
    bytes: u64,
    segments: Vec<Segment>,
    relocations: (u64, u64),
    read_only: (u64, u64),
    enter: u64,
}

/// Pages of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    /// Of the file, and of memory in all.
    file_bytes: u64,
    bytes: u64,
    offset: u64,
    protection: u64,
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the agent's file has {what}"))
}

impl Image {
    /// Reads the file at `path`, by which a program will open it: one that stays the same file. Fails if it
    /// cannot be read, or has something that is not provided for here.
    pub fn read(path: &Path) -> io::Result<Image> {
        let data = fs::read(path)?;
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| wrong("an impossible name"))?;
        Image::parse(path, &data)
    }

    fn parse(path: CString, data: &[u8]) -> io::Result<Image> {
        let bad = |_| wrong("no sense");
        let header = FileHeader64::<LittleEndian>::parse(data).map_err(bad)?;
        let endian = header.endian().map_err(bad)?;
        let (mut segments, mut read_only) = (Vec::new(), (0, 0));
        for segment in header.program_headers(endian, data).map_err(bad)? {
            let (address, bytes) = (segment.p_vaddr(endian), segment.p_memsz(endian));
            match segment.p_type(endian) {
                elf::PT_LOAD => {
                    let flags = segment.p_flags(endian);
                    let kinds = [(PF_R, libc::PROT_READ), (PF_W, libc::PROT_WRITE), (PF_X, libc::PROT_EXEC)];
                    let has = kinds.into_iter().filter(|(flag, _)| (flags & *flag).0 != 0);
                    let protection = has.fold(0, |all, (_, means)| all | means);
                    let before = address % PAGE;
                    segments.push(Segment {
                        address: address - before,
                        file_bytes: (segment.p_filesz(endian) + before).next_multiple_of(PAGE),
                        bytes: (bytes + before).next_multiple_of(PAGE),
                        offset: segment.p_offset(endian) - before,
                        protection: protection as u64,
                    });
                }
                elf::PT_GNU_RELRO => read_only = (address & !(PAGE - 1), bytes.next_multiple_of(PAGE)),
                elf::PT_TLS => return Err(wrong("memory of its threads'")),
                _ => {}
            }
        }
        let file = object::File::parse(data).map_err(bad)?;
        let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(ENTER));
        let enter = symbol.map(|symbol| symbol.address()).filter(|&address| address != 0);
        let end = segments.iter().map(|segment| segment.address + segment.bytes).max();
        Ok(Image {
            path,
            bytes: end.ok_or_else(|| wrong("nothing in it"))?,
            segments,
            relocations: relocations(header, endian, data).ok_or_else(|| wrong("odd relocations"))?,
            read_only,
            enter: enter.ok_or_else(|| wrong("no entrance"))?,
        })
    }

    /// The calls that map it and the start's stack, in order, and their end; `path`: where the file's name
    /// will be in the program.
    pub fn calls(&self, path: u64, numbers: Numbers) -> Vec<Call> {
        let quietly = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
        let private = libc::MAP_PRIVATE as u64;
        let own = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
        let none = u64::MAX;
        let fixed = libc::MAP_FIXED as u64;
        let call = |number, how, arguments| Call { number, how, arguments };
        let mut calls = vec![
            call(numbers.open, call::IS_FILE, [libc::AT_FDCWD as u64, path, quietly, 0, 0, 0]),
            call(numbers.map, call::IS_IMAGE, [0, self.bytes, libc::PROT_NONE as u64, own, none, 0]),
        ];
        for segment in &self.segments {
            let Segment { address, file_bytes, bytes, offset, protection } = *segment;
            let of_file = call::IN_IMAGE | call::OF_FILE;
            calls.push(call(
                numbers.map,
                of_file,
                [address, file_bytes, protection, private | fixed, 0, offset],
            ));
            if bytes > file_bytes {
                let rest = [address + file_bytes, bytes - file_bytes, protection, own | fixed, none, 0];
                calls.push(call(numbers.map, call::IN_IMAGE, rest));
            }
        }
        let writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        calls.push(call(numbers.close, call::CLOSES, [0; 6]));
        calls.push(call(numbers.map, call::IS_STACK, [0, STACK_BYTES, writable, own, none, 0]));
        calls.push(call(END, 0, [0; 6]));
        calls
    }

    /// The name of its file, terminated.
    pub fn path(&self) -> &[u8] {
        self.path.as_bytes_with_nul()
    }

    /// What the agent is told about its image, in the words that stand for it; the rest is the caller's.
    pub fn told(&self, session: &str) -> Option<Inserted> {
        let mut text = [0; SESSION_TEXT];
        text.get_mut(..session.len())?.copy_from_slice(session.as_bytes());
        Some(Inserted {
            entry: 0,
            stack: 0,
            scratch: 0,
            scratch_bytes: 0,
            code: 0,
            code_bytes: 0,
            pages: 0,
            pages_bytes: 0,
            protection: 0,
            image_bytes: self.bytes,
            enter: self.enter,
            relocations: self.relocations.0,
            relocation_bytes: self.relocations.1,
            read_only: self.read_only.0,
            read_only_bytes: self.read_only.1,
            session: text,
        })
    }
}

/// Where the relocations are, and their bytes. None if one of them is not relative, unless it is of a symbol
/// that is nowhere here and need not be.
fn relocations(header: &FileHeader64<LittleEndian>, endian: LittleEndian, data: &[u8]) -> Option<(u64, u64)> {
    const ENTRY: u64 = 24;
    let sections = header.sections(endian, data).ok()?;
    let mut found = (0, 0);
    for section in sections.iter() {
        use object::read::elf::SectionHeader as _;
        let Ok(Some((entries, _))) = section.rela(endian, data) else { continue };
        if found.1 != 0 {
            return None;
        }
        let relative = |kind: u32| kind == crate::arch::RELATIVE;
        let weak = |kind: u32| kind == crate::arch::OF_SYMBOL;
        let known = entries.iter().all(|entry| {
            let kind = entry.r_type(endian, false).0;
            relative(kind) || weak(kind)
        });
        if !known {
            return None;
        }
        found = (section.sh_addr(endian), entries.len() as u64 * ENTRY);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_agent_is_an_error() {
        assert!(Image::read(Path::new("/nowhere")).is_err());
        assert!(Image::read(&std::env::current_exe().unwrap()).is_err());
        assert!(Image::parse(CString::default(), b"garbage").is_err());
    }
}
