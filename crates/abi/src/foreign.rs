//! Programs of another machine, and those that run them: whose loader takes no agent of ours, and says so.

/// Bytes of an ELF file's header up to its machine.
pub const HEAD: usize = 20;

/// What says in it that the most significant byte of a number comes first.
const BIG: u8 = 2;

/// How the names of emulators begin that are known.
const EMULATORS: [&[u8]; 4] = [b"qemu-", b"box64", b"box86", b"FEX"];

/// Whether a program of this name (of its file, without folders) runs another machine's programs.
pub fn is_emulator(name: &[u8]) -> bool {
    EMULATORS.iter().any(|begin| name.starts_with(begin))
}

/// Whether a file that begins so is an ELF program that a machine of this class and kind cannot run itself
/// (elf(5)).
pub fn is_foreign(head: &[u8; HEAD], own_class: u8, own_machine: u16) -> bool {
    const EXECUTABLE: u16 = 2;
    const SHARED: u16 = 3;
    let [0x7f, b'E', b'L', b'F', class, order, .., kind, kind_high, machine, machine_high] = *head else {
        return false;
    };
    let half = if order == BIG { u16::from_be_bytes } else { u16::from_le_bytes };
    let is_ours = class == own_class && order != BIG && half([machine, machine_high]) == own_machine;
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

    fn is_foreign_program(head: &[u8; HEAD]) -> bool {
        is_foreign(head, 2, 0x3e)
    }

    #[test]
    fn emulators_are_known_by_their_names() {
        assert!([&b"qemu-aarch64-static"[..], b"qemu-arm", b"box64"].into_iter().all(is_emulator));
        assert!(![&b"git"[..], b"a-qemu-arm", b""].into_iter().any(is_emulator));
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
