//! Programs that run another machine's programs (qemu's user mode) hand their environment on to these, whose
//! loader complains of an agent that it cannot load. They copy it before they look at what they run, so it is
//! asked at their start whether they are given such a program, as an argument. Of no other program's arguments
//! is anything asked: they may name what the program would never touch, or what does not answer.

use crate::arch;
use crate::loader::file_name;
use core::ffi::CStr;
use runahead_kernel::files::{Stat, close, open_at, read, stat_at_address};
use runahead_kernel::uapi::general as n;

/// How the names of those begin that are known.
const NAMES: [&[u8]; 4] = [b"qemu-", b"box64", b"box86", b"FEX"];

/// Arguments that are looked at: options, and what these are given, stand before the program.
pub const ARGUMENTS: usize = 12;

/// Bytes of an ELF file's header up to its machine.
const HEAD: usize = 20;

/// What says in it that the most significant byte of a number comes first.
const BIG: u8 = 2;

const ANY_MAY_EXECUTE: u32 = 0o111;

/// Whether what is executed by this path is such a program, by its name.
pub fn is_emulator(executed: &CStr) -> bool {
    NAMES.iter().any(|name| file_name(executed.to_bytes()).starts_with(name))
}

/// Whether this argument names an executable file of a program that is not for this machine.
pub fn is_foreign(argument: &CStr) -> bool {
    if argument.is_empty() || argument.to_bytes().starts_with(b"-") {
        return false;
    }
    // SAFETY: plain words, for which zeros are a value.
    let mut stat: Stat = unsafe { core::mem::zeroed() };
    let (path, into) = (argument.as_ptr() as usize, &raw mut stat as usize);
    // SAFETY: a `stat` of ours, and a terminated string.
    let told = unsafe { stat_at_address(n::AT_FDCWD, path, into, n::AT_NO_AUTOMOUNT) };
    let is_file = told.is_ok() && stat.st_mode & n::S_IFMT == n::S_IFREG;
    if !is_file || stat.st_mode & ANY_MAY_EXECUTE == 0 {
        return false;
    }
    let flags = n::O_RDONLY | n::O_CLOEXEC | n::O_NONBLOCK | n::O_NOCTTY;
    // Its access time is nobody's to change who may leave it.
    let untouched = open_at(n::AT_FDCWD, argument, flags | n::O_NOATIME, 0);
    let Ok(file) = untouched.or_else(|_| open_at(n::AT_FDCWD, argument, flags, 0)) else { return false };
    let mut head = [0; HEAD];
    let got = read(file, &mut head);
    let _ = close(file);
    got == Ok(HEAD) && is_foreign_program(&head)
}

/// Whether a file that begins so is an ELF program that this machine cannot run itself (elf(5)).
fn is_foreign_program(head: &[u8; HEAD]) -> bool {
    const EXECUTABLE: u16 = 2;
    const SHARED: u16 = 3;
    let [0x7f, b'E', b'L', b'F', class, order, .., kind, kind_high, machine, machine_high] = *head else {
        return false;
    };
    let half = if order == BIG { u16::from_be_bytes } else { u16::from_le_bytes };
    let machine = half([machine, machine_high]);
    let is_ours = class == arch::CLASS && order != BIG && machine == arch::MACHINE;
    !is_ours && matches!(half([kind, kind_high]), EXECUTABLE | SHARED)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: [u8; HEAD] = *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0";

    /// A program's first bytes with these in the place of ours.
    fn with<const COUNT: usize>(changed: [(usize, u8); COUNT]) -> [u8; HEAD] {
        let mut head = OURS;
        changed.iter().for_each(|&(at, byte)| head[at] = byte);
        head
    }

    #[test]
    fn emulators_are_known_by_their_names() {
        assert!([c"/usr/bin/qemu-aarch64-static", c"qemu-arm", c"/opt/box64"].into_iter().all(is_emulator));
        assert!(![c"/usr/bin/git", c"/qemu-8/bin/tool", c""].into_iter().any(is_emulator));
    }

    #[test]
    fn another_machines_programs_are_foreign() {
        assert!(is_foreign_program(&with([(18, 0xb7)])), "aarch64");
        assert!(is_foreign_program(&with([(5, 2), (16, 0), (17, 2), (18, 0), (19, 0x16)])), "big endian");
        assert!(is_foreign_program(&with([(4, 1), (18, 3)])), "of 32 bits");
        assert!(is_foreign_program(&with([(4, 1)])), "of 32 bits, for this processor");
    }

    #[test]
    fn own_programs_objects_and_what_is_no_program_are_not() {
        assert!(!is_foreign_program(&OURS));
        assert!(!is_foreign_program(&with([(16, 2)])), "not to be moved");
        assert!(!is_foreign_program(&with([(16, 1), (18, 0xb7)])), "an object");
        assert!(!is_foreign_program(b"#!/usr/bin/python3 -S"[..HEAD].try_into().unwrap()));
    }
}
