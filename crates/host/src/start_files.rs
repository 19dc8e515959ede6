//! What a cold command's start reads: its executable and its libraries.
//!
//! Before a program's first instruction there is nothing to run ahead of, and yet it waits: the kernel reads
//! the executable, the loader each library that this names, then each that those name, one after the other
//! and by page faults. But all of it is written in the files. So the launcher asks for the executable before
//! it does anything else, and who is beside it, while the command is being loaded, for the libraries, found
//! as ld.so(8) finds them. Nothing is asked where the executable's first page is in the cache: to know that
//! costs a warm start 4 us.
//!
//! A guess that is wrong costs the reading of a library. What is not looked at: libraries for one kind of processor
//! (`glibc-hwcaps`), and what a program opens later.

use crate::program;
use crate::reading::{ask, open};
use object::LittleEndian;
use object::ReadCache;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, FileHeader64};
use object::read::elf::FileHeader as _;
use runahead_abi::release::What::Files;
use runahead_gate::Gate;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Of each file so many bytes at most, from its beginning: of a compiler's 100 MB a start needs few.
const LONGEST: u64 = 4 << 20;

/// Libraries of one program, more than any that was looked at (a browser has 150).
const LIBRARIES_MOST: usize = 256;

/// Where libraries are that no list names.
const USUAL: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];

const LIST: &str = "/etc/ld.so.cache";

/// A command whose executable is not in the cache.
pub struct Cold {
    executable: PathBuf,
}

impl Cold {
    /// Asks for the executable of the command `name`, if it is not in the cache. To be called before the command is
    /// loaded.
    pub fn find(name: &OsStr) -> Option<Cold> {
        let executable = program::candidates(name).into_iter().find(|path| path.is_file())?;
        let file = open(&executable)?;
        if !is_cold(&file) {
            return None;
        }
        ask(&file, LONGEST);
        Some(Cold { executable })
    }

    /// Asks for what the executable's loader will read, unless it is `over`. Waits for the disk. Nothing is
    /// open while a program of the run gives something back.
    pub(crate) fn ask_for_libraries(self, gate: Gate, over: impl Fn() -> bool) {
        let library_path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let directories = library_path.as_bytes().split(|&b| b == b':').filter(|d| !d.is_empty());
        let directories: Vec<PathBuf> = directories.map(|d| OsStr::from_bytes(d).into()).collect();
        // The command's loader has it open at that time as well.
        let list = std::fs::read(LIST).unwrap_or_default();
        let mut asked = HashSet::new();
        let Some(_pass) = gate.pass_to_code(Files) else { return };
        let mut files = Vec::from_iter(open(&self.executable).map(|file| (file, self.executable)));
        while let Some((file, path)) = files.pop() {
            let Some(needs) = Needs::read(file, &path) else { continue };
            for name in needs.libraries {
                if over() || gate.is_closed(Files) {
                    return;
                }
                if asked.len() >= LIBRARIES_MOST || !asked.insert(name.clone()) {
                    continue;
                }
                let places = needs.directories.iter().chain(&directories).map(|d| d.join(as_path(&name)));
                let places = places
                    .chain(listed(&list, &name).map(|p| as_path(p).to_owned()))
                    .chain(USUAL.iter().map(|d| Path::new(d).join(as_path(&name))));
                if let Some(found) = places.into_iter().find_map(|place| Some((open(&place)?, place))) {
                    ask(&found.0, LONGEST);
                    files.push(found);
                }
            }
        }
    }
}

fn as_path(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

/// Whether a read of the first byte would wait.
fn is_cold(file: &File) -> bool {
    let mut byte = [0];
    let read = preadv2(file, &mut [IoSliceMut::new(&mut byte)], 0, ReadWriteFlags::NOWAIT);
    read == Err(Errno::AGAIN)
}

/// What an ELF file says that it needs.
struct Needs {
    libraries: Vec<Vec<u8>>,
    /// Where it says that they are.
    directories: Vec<PathBuf>,
}

impl Needs {
    /// None for what is no 64-bit executable or library.
    fn read(file: File, path: &Path) -> Option<Needs> {
        let data = &ReadCache::new(file);
        let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let table = header.sections(endian, data).ok()?.dynamic_table(endian, data).ok()?;
        let mut needs = Needs { libraries: Vec::new(), directories: Vec::new() };
        for entry in table.iter().take(4 * LIBRARIES_MOST) {
            let Ok(string) = table.string(entry) else { continue };
            match entry.tag {
                DT_NEEDED => needs.libraries.push(string.to_vec()),
                DT_RPATH | DT_RUNPATH => {
                    let own = path.parent().unwrap_or(Path::new("/"));
                    needs.directories.extend(string.split(|&b| b == b':').map(|d| with_origin(d, own)));
                }
                _ => {}
            }
        }
        Some(needs)
    }
}

/// A directory of a run path; `$ORIGIN` is where the file is that has it.
fn with_origin(directory: &[u8], own: &Path) -> PathBuf {
    for name in [&b"$ORIGIN"[..], b"${ORIGIN}"] {
        if let Some(rest) = directory.strip_prefix(name) {
            let rest = rest.strip_prefix(b"/").unwrap_or(rest);
            return own.join(OsStr::from_bytes(rest));
        }
    }
    as_path(directory).to_owned()
}

/// The place of the library `name` in ldconfig(8)'s list (glibc's `sysdeps/generic/dl-cache.h`: a head of 48 bytes with
/// the number of entries; entries of 24: flags, the name's and the path's place, a version, 8 bytes of what the
/// processor must have).
fn listed<'a>(list: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEAD: usize = 48;
    const ENTRY: usize = 24;
    /// A library of glibc's time, for this processor.
    const FLAGS: u32 = if cfg!(target_arch = "aarch64") { 0x0a03 } else { 0x0303 };
    let word = |at: usize| Some(u32::from_le_bytes(*list.get(at..)?.first_chunk()?));
    let string = |at: usize| list.get(at..)?.split(|&b| b == 0).next();
    if !list.starts_with(MAGIC) {
        return None;
    }
    let entries = word(MAGIC.len())? as usize;
    (0..entries).map(|number| HEAD + number * ENTRY).take_while(|at| at + ENTRY <= list.len()).find_map(
        |at| {
            let plain = word(at)? == FLAGS && list.get(at + 16..at + ENTRY)? == [0; 8];
            (plain && string(word(at + 4)? as usize)? == name).then(|| string(word(at + 8)? as usize))?
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_dynamic_program_needs_the_c_library_and_it_is_found() {
        let own = std::env::current_exe().unwrap();
        let needs = Needs::read(File::open(&own).unwrap(), &own).unwrap();
        let libc = needs.libraries.iter().find(|name| name.starts_with(b"libc.so")).expect("libc is needed");
        let list = std::fs::read(LIST).unwrap();
        let place = as_path(listed(&list, libc).expect("libc is listed"));
        assert!(place.is_file(), "{place:?}");
        assert!(listed(&list, b"libnosuch.so.1").is_none());
    }

    #[test]
    fn what_is_cached_is_not_asked_for() {
        let own = std::env::current_exe().unwrap();
        assert!(!is_cold(&File::open(&own).unwrap()));
        assert!(Cold::find(own.as_os_str()).is_none());
        assert!(Cold::find(OsStr::new("/nonexistent")).is_none());
        assert!(Cold::find(OsStr::new("/dev")).is_none());
    }

    #[test]
    fn origins() {
        let own = Path::new("/a/bin");
        assert_eq!(with_origin(b"$ORIGIN/../lib", own), Path::new("/a/bin/../lib"));
        assert_eq!(with_origin(b"${ORIGIN}", own), Path::new("/a/bin"));
        assert_eq!(with_origin(b"/opt/lib", own), Path::new("/opt/lib"));
    }

    #[test]
    fn what_is_no_program_needs_nothing() {
        assert!(Needs::read(File::open("/etc/passwd").unwrap(), Path::new("/etc/passwd")).is_none());
    }

    proptest! {
        #[test]
        fn garbage_lists_are_harmless(
            mut list in prop::collection::vec(any::<u8>(), 0..400),
            magic: bool,
            entries: u32,
        ) {
            if magic && list.len() >= 24 {
                list[..20].copy_from_slice(b"glibc-ld.so.cache1.1");
                list[20..24].copy_from_slice(&entries.to_le_bytes());
            }
            let _ = listed(&list, b"libc.so.6");
        }
    }
}
