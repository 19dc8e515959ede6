//! A new program's first stack, as the kernel lays it out (the processor supplement of the System V ABI,
//! "Initial Stack and Register State"): the number of arguments, their addresses, those of the environment,
//! the auxiliary vector; strings above.

use crate::process::{Bytes, string_at};
use std::io;

/// Bytes of the block that are looked at: the kernel takes more arguments than that, but below it there is no
/// room either.
const BLOCK_MOST: usize = 96 << 10;

/// Bytes below the stack pointer that are there at the start, and may be written by somebody else: the kernel
/// makes the first mapping 128 KB longer than it needs (`setup_arg_pages`).
pub const ROOM: u64 = 120 << 10;

/// Bytes of a string of the environment that are looked at.
const STRING_MOST: usize = 64 << 10;

const AT_NULL: u64 = 0;
const AT_IGNORE: u64 = 1;
const AT_SECURE: u64 = 23;
const AT_SYSINFO_EHDR: u64 = 33;

/// The block at the stack pointer, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    words: Vec<u64>,
    /// Number of the environment's first word, and of the null behind its last.
    environment: usize,
    environment_end: usize,
}

impl Block {
    /// Reads it at the stack pointer `at`.
    pub fn read(process: Bytes, at: u64) -> io::Result<Block> {
        let mut words = Vec::new();
        loop {
            // Pieces that end with a page: the strings' end is the mapping's.
            let from = at + 8 * words.len() as u64;
            let piece = crate::bytes_at(process, from, (4096 - from % 4096) as usize)?;
            words.extend(
                piece.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())),
            );
            if let Some(block) = Block::of(&words) {
                return Ok(block);
            }
            if 8 * words.len() > BLOCK_MOST {
                return Err(io::Error::from_raw_os_error(libc::E2BIG));
            }
        }
    }

    /// The block that these words begin with. None: it is longer, or there is none.
    pub fn of(words: &[u64]) -> Option<Block> {
        let arguments = usize::try_from(*words.first()?).ok()?;
        let environment = arguments.checked_add(2)?;
        if *words.get(environment - 1)? != 0 {
            return None;
        }
        let environment_end = environment + words.get(environment..)?.iter().position(|&word| word == 0)?;
        let vector = words.get(environment_end + 1..)?;
        let last = vector.chunks_exact(2).position(|pair| pair[0] == AT_NULL)?;
        let end = environment_end + 1 + 2 * (last + 1);
        Some(Block { words: words[..end].to_vec(), environment, environment_end })
    }

    fn auxiliary(&self, kind: u64) -> Option<u64> {
        let vector = &self.words[self.environment_end + 1..];
        vector.chunks_exact(2).find(|pair| pair[0] == kind).map(|pair| pair[1])
    }

    /// Whether the program is to be careful with its environment: it may do more than who has started it
    /// (getauxval(3)).
    pub fn is_secure(&self) -> bool {
        self.auxiliary(AT_SECURE).is_none_or(|word| word != 0)
    }

    /// Where the kernel's own code for all programs lies.
    pub fn vdso(&self) -> Option<u64> {
        self.auxiliary(AT_SYSINFO_EHDR).filter(|&address| address != 0)
    }

    /// The environment, entry by entry; entries that cannot be read are left out.
    pub fn environment(&self, process: Bytes) -> Vec<Vec<u8>> {
        let entries = &self.words[self.environment..self.environment_end];
        entries.iter().filter_map(|&entry| string_at(process, entry, STRING_MOST).ok()).collect()
    }

    /// The block and the strings below `stack` with two more entries at the environment's end, behind which
    /// two words more are left: so much room there is for what closes the gap once they are taken away
    /// (`AT_IGNORE`, getauxval(3)). Returns where the block begins, and all of it.
    ///
    /// At the end, as the loader believes the last of several.
    pub fn with_variables(&self, stack: u64, variables: [&[u8]; 2]) -> Option<(u64, Vec<u8>)> {
        let mut strings = Vec::new();
        let places = variables.map(|variable| {
            let place = strings.len() as u64;
            strings.extend_from_slice(variable);
            strings.push(0);
            place
        });
        let above = stack.checked_sub(strings.len() as u64)? & !15;
        let words = self.words.len() + variables.len();
        let begin = above.checked_sub(8 * words as u64)? & !15;
        if stack - begin > ROOM {
            return None;
        }
        let (before, behind) = self.words.split_at(self.environment_end);
        let added = places.map(|place| above + place);
        let mut bytes: Vec<u8> =
            before.iter().chain(&added).chain(behind).flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize((above - begin) as usize, 0);
        bytes.extend_from_slice(&strings);
        Some((begin, bytes))
    }
}

/// What closes the gap in front of the auxiliary vector.
pub const FILLER: [u64; 2] = [AT_IGNORE, 0];

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Vec<u64> {
        vec![2, 0x10, 0x20, 0, 0x30, 0, 33, 0x7000, 23, 0, 0, 0, 0xdead]
    }

    #[test]
    fn the_parts_are_found_and_nothing_behind_them() {
        let block = Block::of(&words()).unwrap();
        assert_eq!(block.words.len(), 12);
        assert_eq!((block.environment, block.environment_end), (4, 5));
        assert_eq!(block.vdso(), Some(0x7000));
        assert!(!block.is_secure());
        for cut in 0..12 {
            assert!(Block::of(&words()[..cut]).is_none(), "{cut}");
        }
        assert!(Block::of(&[u64::MAX, 1, 2]).is_none());
    }

    #[test]
    fn variables_come_last_and_all_else_stays() {
        let stack = 0x7fff_0000_0000;
        let (begin, bytes) = Block::of(&words()).unwrap().with_variables(stack, [b"A=1", b"B=22"]).unwrap();
        assert_eq!(begin % 16, 0);
        assert!(begin + bytes.len() as u64 <= stack);
        let got: Vec<u64> =
            bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(got[..5], words()[..5]);
        assert_eq!((got[7], &got[8..14]), (0, &words()[6..12]));
        let string = |address: u64| {
            let from = &bytes[(address - begin) as usize..];
            from[..from.iter().position(|&byte| byte == 0).unwrap()].to_vec()
        };
        assert_eq!([string(got[5]), string(got[6])], [b"A=1".to_vec(), b"B=22".to_vec()]);
        let long = vec![b'x'; ROOM as usize];
        assert!(Block::of(&words()).unwrap().with_variables(stack, [&long, b""]).is_none());
    }

    #[test]
    fn ones_own_cannot_be_read_as_one() {
        let own = Bytes(std::process::id() as i32);
        assert!(Block::read(own, 8).is_err());
    }
}
