//! The mark that Go's linker leaves in a program: a note in the name of Go that holds the build's identity
//! (Go's cmd/internal/buildid; segments and notes: elf(5)). All async-signal-safe.

/// Bytes of a program header of 64 bits.
pub const HEADER: usize = 56;

const VIRTUAL_ADDRESS: usize = 16;
const FILE_SIZE: usize = 32;
const PT_NOTE: u32 = 4;
const PT_PHDR: u32 = 6;

/// The notes of a program whose headers lie at the address `headers_at` in memory and are these bytes: where
/// each segment of them is there, and its size in bytes. Both are as the file has them, so may be anything.
pub fn segments(headers: &[u8], headers_at: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
    let of_kind =
        move |kind: u32| headers.chunks_exact(HEADER).filter(move |header| word(header, 0) == Some(kind));
    let own = of_kind(PT_PHDR).find_map(|header| wide(header, VIRTUAL_ADDRESS));
    let moved = own.map_or(0, |address| headers_at.wrapping_sub(address));
    of_kind(PT_NOTE).filter_map(move |header| {
        Some((moved.wrapping_add(wide(header, VIRTUAL_ADDRESS)?), wide(header, FILE_SIZE)?))
    })
}

/// Whether Go's is among these notes.
pub fn is_among(mut notes: &[u8]) -> bool {
    const HEAD: usize = 12;
    const BUILD_IDENTITY: u32 = 4;
    const NAME: &[u8] = b"Go\0\0";
    let padded = |size: u32| (size as usize).checked_next_multiple_of(4);
    while let [Some(name), Some(content), Some(kind)] = [0, 4, 8].map(|at| word(notes, at)) {
        let is_go = |rest: &[u8]| name as usize == NAME.len() && rest.starts_with(NAME);
        if kind == BUILD_IDENTITY && notes.get(HEAD..).is_some_and(is_go) {
            return true;
        }
        let end = padded(name).zip(padded(content));
        let end = end.and_then(|(name, content)| HEAD.checked_add(name)?.checked_add(content));
        let Some(rest) = end.and_then(|end| notes.get(end..)) else { return false };
        notes = rest;
    }
    false
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

fn wide(bytes: &[u8], at: usize) -> Option<usize> {
    bytes.get(at..)?.first_chunk().map(|word| usize::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], content: &[u8], kind: u32) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [name.len() as u32, content.len() as u32, kind] {
            note.extend(word.to_le_bytes());
        }
        for part in [name, content] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn go_is_found_behind_others() {
        let [gnu, go] = [note(b"GNU\0", b"12345", 3), note(b"Go\0\0", b"identity", 4)];
        assert!(is_among(&go));
        assert!(is_among(&[gnu.clone(), go.clone()].concat()));
        assert!(!is_among(&gnu));
        assert!(!is_among(&note(b"Go\0\0", b"identity", 3)));
        assert!(!is_among(&note(b"Go\0\0\0", b"identity", 4)));
        // Whatever is cut, or says that it is longer than there is.
        for length in 0..16 {
            assert!(!is_among(&go[..length]), "{length}");
        }
        assert!(!is_among(&[0xff; 64]));
    }

    #[test]
    fn segments_move_with_the_headers() {
        let header = |kind: u32, address: usize, size: usize| {
            let mut header = [0u8; HEADER];
            header[..4].copy_from_slice(&kind.to_le_bytes());
            header[VIRTUAL_ADDRESS..][..8].copy_from_slice(&address.to_le_bytes());
            header[FILE_SIZE..][..8].copy_from_slice(&size.to_le_bytes());
            header
        };
        let [own, note] = [header(PT_PHDR, 0x40, 0x118), header(PT_NOTE, 0x370, 32)];
        let found = |headers: &[[u8; HEADER]]| segments(&headers.concat(), 0x7000_0040).collect::<Vec<_>>();
        assert_eq!(found(&[own, note]), [(0x7000_0370, 32)]);
        assert_eq!(found(&[note]), [(0x370, 32)]);
        assert_eq!(found(&[own, header(1, 0, 5)]), []);
        assert_eq!(segments(&[0xff; 100], 5).count(), 0);
    }
}
