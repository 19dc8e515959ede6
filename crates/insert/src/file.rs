//! What an executable file tells before it runs: how the agent comes into it, and whether its start may be
//! traced.

use object::elf;
use std::ffi::{CString, OsStr};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// As much of a file as is looked at; the kernel wants the table of segments in its first page as well.
const HEAD_BYTES: u64 = 4096;

/// How many scripts may stand one behind the other, as in the kernel.
pub const SCRIPTS: usize = 4;

/// How the file names of glibc's loaders begin.
const LOADER: &[u8] = b"ld-linux";

/// Whether a file of this name is one of glibc's loaders.
pub fn is_loader(name: &OsStr) -> bool {
    let name = name.as_bytes();
    // Up to glibc 2.33 that is a link's, to `ld-2.33.so`.
    let is_numbered = name.strip_prefix(b"ld-").and_then(<[u8]>::first).is_some_and(u8::is_ascii_digit);
    name.starts_with(LOADER) || (is_numbered && name.ends_with(b".so"))
}

/// How the agent comes into a program of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entrance {
    /// glibc's loader brings it in, where the environment names it.
    Loader,
    /// No loader does: it has none, or another one.
    Image(Reason),
}

/// Why no loader brings the agent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Static,
    OtherLoader,
}

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    Program(Entrance),
    /// A script for this interpreter.
    Script(PathBuf),
    /// Nothing for us: another machine's program, or none.
    Other,
}

/// What the file's first bytes tell. `name`: what it is called, since glibc's loader is a program without a
/// loader.
pub fn look(head: &[u8], name: &OsStr) -> Look {
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let word = line.split(|byte| matches!(byte, b' ' | b'\t')).find(|word| !word.is_empty());
        return word.map_or(Look::Other, |word| Look::Script(OsStr::from_bytes(word).into()));
    }
    match entrance(head) {
        Some(Entrance::Image(_)) if is_loader(name) => Look::Program(Entrance::Loader),
        Some(entrance) => Look::Program(entrance),
        None => Look::Other,
    }
}

/// None: it is no program for this machine, or not one that can be read so.
fn entrance(head: &[u8]) -> Option<Entrance> {
    const SEGMENT_BYTES: usize = size_of::<elf::ProgramHeader64<object::LittleEndian>>();
    let word = |at: usize| Some(u64::from_le_bytes(*head.get(at..)?.first_chunk()?) as usize);
    let half = |at: usize| Some(u16::from_le_bytes(*head.get(at..)?.first_chunk()?));
    if !head.starts_with(b"\x7fELF\x02\x01") || half(18)? != crate::arch::MACHINE {
        return None;
    }
    let (table, count) = (word(32)?, usize::from(half(56)?));
    for at in (0..count).map(|index| table.saturating_add(index * SEGMENT_BYTES)) {
        if u32::from_le_bytes(*head.get(at..)?.first_chunk()?) == elf::PT_INTERP.0 {
            let (place, length) = (word(at.checked_add(8)?)?, word(at.checked_add(32)?)?);
            let loader = head.get(place..place.checked_add(length)?)?;
            let name = loader.rsplit(|&byte| byte == b'/').next()?;
            let is_glibcs = name.starts_with(LOADER);
            return Some(if is_glibcs { Entrance::Loader } else { Entrance::Image(Reason::OtherLoader) });
        }
    }
    Some(Entrance::Image(Reason::Static))
}

/// The file at `path`, opened for reading without waiting for what is no regular file.
pub fn open(path: &Path) -> Option<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().is_ok_and(|told| told.is_file()).then_some(file)
}

/// What an open file is.
pub fn look_at(file: &File, name: &OsStr) -> Look {
    let mut head = Vec::new();
    match file.take(HEAD_BYTES).read_to_end(&mut head) {
        Ok(_) => look(&head, name),
        Err(_) => Look::Other,
    }
}

/// How the agent comes into what will run if `path` is executed, an interpreter in the place of its script.
/// None: nothing for us, we may not execute it, or something on the way may get rights at its start.
pub fn program_of(path: &Path) -> Option<Entrance> {
    let mut path = path.to_owned();
    for _ in 0..=SCRIPTS {
        let file = open(&path)?;
        let told = file.metadata().ok()?;
        // Who is traced and cannot execute this may execute another file next, which gives rights.
        if !may_be_traced(&file, &told) || !may_be_executed(&path) {
            return None;
        }
        let real = std::fs::canonicalize(&path).ok()?;
        match look_at(&file, real.file_name()?) {
            Look::Program(entrance) => return Some(entrance),
            Look::Script(interpreter) => path = interpreter,
            Look::Other => return None,
        }
    }
    None
}

/// Whether what will run if `path` is executed is a program of 32 bits, or one of another machine that an
/// emulator is registered for (binfmt_misc), whose loader takes no agent of ours and says so. `directory`:
/// where who executes is.
pub fn is_foreign(path: &Path, directory: &Path) -> bool {
    let mut path = path.to_owned();
    for _ in 0..=SCRIPTS {
        let Some(file) = open(&path) else { return false };
        let mut head = Vec::new();
        if file.take(HEAD_BYTES).read_to_end(&mut head).is_err() {
            return false;
        }
        match look(&head, OsStr::new("")) {
            Look::Script(interpreter) => path = directory.join(interpreter),
            Look::Program(_) => return false,
            Look::Other => return has_foreign_loader(&head),
        }
    }
    false
}

/// Whether a file that begins so is a program of 32 bits, or of another machine, that a loader is to load.
/// (Others know nothing of `LD_PRELOAD`.)
fn has_foreign_loader(head: &[u8]) -> bool {
    const WIDE: u8 = 2;
    const BIG: u8 = 2;
    let [class, order] = match head {
        [0x7f, b'E', b'L', b'F', class, order, ..] => [*class, *order],
        _ => return false,
    };
    let number = |at: usize, bytes: usize| {
        let bytes = head.get(at..at.checked_add(bytes)?)?;
        let add = |value: usize, byte: &u8| value << 8 | usize::from(*byte);
        Some(if order == BIG { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) })
    };
    // Where the table's place and its number of entries stand, and how long these are.
    let (word, places, segment) = match class {
        WIDE => (8, [32, 56], size_of::<elf::ProgramHeader64<object::LittleEndian>>()),
        _ => (4, [28, 44], size_of::<elf::ProgramHeader32<object::LittleEndian>>()),
    };
    let is_ours = class == WIDE && order != BIG && number(18, 2) == Some(crate::arch::MACHINE.into());
    let [Some(table), Some(count)] = [number(places[0], word), number(places[1], 2)] else { return false };
    !is_ours
        && (0..count)
            .any(|index| number(table.saturating_add(index * segment), 4) == Some(elf::PT_INTERP.0 as usize))
}

/// Whether the kernel lets us execute it, as far as its mode and its file system's tell (faccessat(2)).
pub fn may_be_executed(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: a terminated string.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}

/// Whether a program of this file starts as it does untraced: it gets no rights by it (execve(2)). Whoever
/// cannot find that out does not trace it.
pub fn may_be_traced(file: &File, told: &Metadata) -> bool {
    if told.mode() & (libc::S_ISUID | libc::S_ISGID) != 0 {
        return false;
    }
    // SAFETY: asks how long the attribute is; the name is terminated.
    let length = unsafe {
        libc::fgetxattr(file.as_raw_fd(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0)
    };
    let error = std::io::Error::last_os_error().raw_os_error();
    length < 0 && matches!(error, Some(libc::ENODATA | libc::EOPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn own() -> (PathBuf, File) {
        let path = std::env::current_exe().unwrap();
        let file = open(&path).unwrap();
        (path, file)
    }

    #[test]
    fn a_test_is_a_program_that_the_loader_serves() {
        let (path, file) = own();
        let interpreted = Look::Program(Entrance::Loader);
        assert_eq!(look_at(&file, path.file_name().unwrap()), interpreted);
        assert_eq!(program_of(&path), Some(Entrance::Loader));
    }

    #[test]
    fn foreign_is_what_a_loader_of_32_bits_or_of_another_machine_loads() {
        let mut head = vec![0; 200];
        head[..6].copy_from_slice(b"\x7fELF\x01\x01");
        head[28..32].copy_from_slice(&52u32.to_le_bytes());
        head[44..46].copy_from_slice(&2u16.to_le_bytes());
        assert!(!has_foreign_loader(&head), "static");
        head[52 + 32..][..4].copy_from_slice(&elf::PT_INTERP.0.to_le_bytes());
        assert!(has_foreign_loader(&head));
        assert!(!has_foreign_loader(&head[..80]), "cut");
        head[4] = 2;
        assert!(!has_foreign_loader(&head), "64 bits");
        let mut head = vec![0; 200];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[18] = 0xb7;
        head[32] = 64;
        head[56] = 2;
        assert!(!has_foreign_loader(&head), "static");
        head[64 + 56] = 3;
        assert!(has_foreign_loader(&head));
        head[18] = 62;
        assert!(!has_foreign_loader(&head), "ours");
        let mut head = vec![0; 200];
        head[..6].copy_from_slice(b"\x7fELF\x02\x02");
        (head[19], head[39], head[57], head[67]) = (22, 64, 1, 3);
        assert!(has_foreign_loader(&head), "big endian");
        assert!(!is_foreign(&own().0, Path::new("/")));
    }

    #[test]
    fn loaders_are_known_by_either_name() {
        for name in ["ld-linux-x86-64.so.2", "ld-2.31.so"] {
            assert!(is_loader(OsStr::new(name)), "{name}");
        }
        for name in ["ld", "ld-musl-x86_64.so.1", "ld-2", "libld-2.31.so", "ld-x.so"] {
            assert!(!is_loader(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn scripts_lead_to_their_interpreters_and_circles_nowhere() {
        assert_eq!(look(b"#! /bin/a b\nc", OsStr::new("x")), Look::Script("/bin/a".into()));
        assert_eq!(look(b"#!\n", OsStr::new("x")), Look::Other);
        let directory = std::env::temp_dir().join(format!("runahead-insert-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let script = directory.join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(program_of(&script), None, "nobody may execute it");
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(program_of(&script), Some(Entrance::Loader));
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(program_of(&script).is_none(), "setuid");
        std::fs::write(&script, format!("#!{}\n", script.display())).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(program_of(&script).is_none(), "a circle");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn garbage_is_nothing() {
        for head in [&b""[..], b"\x7fELF", b"\x7fELF\x02\x01", b"\x7fELF\x01\x01", &[0xff; 100]] {
            assert_eq!(look(head, OsStr::new("x")), Look::Other, "{head:?}");
        }
    }
}
