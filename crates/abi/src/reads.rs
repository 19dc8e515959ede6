//! The calls that read a file: where each has its descriptor, its length and its offset.
//!
//! One table for the agent, which looks at them, and for the speculator, which emulates them. What is
//! read goes to memory, or to another descriptor ([`Target::Descriptor`]): then the program's own
//! instruction alone makes the call.

use linux_raw_sys::general as n;

/// What of a call's arguments is its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// The argument with this index, bytes.
    Bytes(usize),
    /// Pieces of memory: their address at this index, their number behind it.
    Pieces(usize),
}

/// What of a call's arguments is the place that it reads from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offset {
    /// None: the descriptor's own position.
    Own,
    Given(usize),
    /// As [`Offset::Given`], but -1 is the descriptor's own position.
    GivenOrOwn(usize),
    /// The address of a word that holds it; null: the descriptor's own position.
    At(usize),
}

/// Where the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    Memory,
    /// The descriptor in the argument with this index.
    Descriptor(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadCall {
    pub number: u32,
    /// Index of the descriptor that is read from.
    pub descriptor: usize,
    pub length: Length,
    pub offset: Offset,
    pub target: Target,
}

const fn to_memory(number: u32, length: Length, offset: Offset) -> ReadCall {
    ReadCall { number, descriptor: 0, length, offset, target: Target::Memory }
}

const CALLS: [ReadCall; 8] = [
    to_memory(n::__NR_read, Length::Bytes(2), Offset::Own),
    to_memory(n::__NR_pread64, Length::Bytes(2), Offset::Given(3)),
    to_memory(n::__NR_readv, Length::Pieces(1), Offset::Own),
    to_memory(n::__NR_preadv, Length::Pieces(1), Offset::Given(3)),
    to_memory(n::__NR_preadv2, Length::Pieces(1), Offset::GivenOrOwn(3)),
    ReadCall {
        number: n::__NR_copy_file_range,
        descriptor: 0,
        length: Length::Bytes(4),
        offset: Offset::At(1),
        target: Target::Descriptor(2),
    },
    ReadCall {
        number: n::__NR_splice,
        descriptor: 0,
        length: Length::Bytes(4),
        offset: Offset::At(1),
        target: Target::Descriptor(2),
    },
    ReadCall {
        number: n::__NR_sendfile,
        descriptor: 1,
        length: Length::Bytes(3),
        offset: Offset::At(2),
        target: Target::Descriptor(0),
    },
];

/// Bytes of a file's mapping from which on page faults are watched: those of smaller ones are over after some
/// of the kernel's own read-ahead, so to map one is where the program begins to wait.
pub const LARGE_MAPPING: usize = 8 << 20;

/// Whether mmap(2) with these arguments shows a small file, which the program is going to read.
pub fn maps_small_file(a: &[usize; 6]) -> bool {
    let [_, length, protection, flags, ..] = *a;
    let shows = protection as u32 & (n::PROT_READ | n::PROT_EXEC) == n::PROT_READ;
    let anywhere = flags as u32 & (n::MAP_ANONYMOUS | n::MAP_FIXED | n::MAP_FIXED_NOREPLACE) == 0;
    shows && anywhere && (1..LARGE_MAPPING).contains(&length)
}

/// What is known of the call with this number, if it reads.
pub const fn of(number: usize) -> Option<&'static ReadCall> {
    let mut rest: &[ReadCall] = &CALLS;
    while let [call, others @ ..] = rest {
        if call.number as usize == number {
            return Some(call);
        }
        rest = others;
    }
    None
}

impl ReadCall {
    /// The descriptor that is read from.
    pub fn source(&self, arguments: &[usize; 6]) -> i32 {
        arguments.get(self.descriptor).map_or(-1, |&fd| fd as i32)
    }

    /// Whether a call with these arguments reads at the descriptor's own position.
    pub fn is_at_own_position(&self, arguments: &[usize; 6]) -> bool {
        match self.offset {
            Offset::Own => true,
            Offset::Given(_) => false,
            Offset::GivenOrOwn(index) => arguments.get(index).is_some_and(|&offset| offset as i64 == -1),
            Offset::At(index) => arguments.get(index) == Some(&0),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_call_reads_from_its_own_argument() {
        let source = |number: u32| of(number as usize).unwrap().source(&[10, 11, 12, 13, 14, 15]);
        assert_eq!(source(n::__NR_read), 10);
        assert_eq!(source(n::__NR_copy_file_range), 10);
        assert_eq!(source(n::__NR_splice), 10);
        assert_eq!(source(n::__NR_sendfile), 11);
        assert_eq!(of(n::__NR_write as usize), None);
    }

    #[test]
    fn a_null_address_and_minus_one_mean_the_descriptors_own_position() {
        let own = |number: u32, a: [usize; 6]| of(number as usize).unwrap().is_at_own_position(&a);
        assert!(own(n::__NR_read, [0; 6]));
        assert!(!own(n::__NR_pread64, [0; 6]));
        assert!(own(n::__NR_preadv2, [3, 0, 0, usize::MAX, 0, 0]));
        assert!(!own(n::__NR_preadv2, [0; 6]));
        assert!(own(n::__NR_copy_file_range, [3, 0, 4, 0, 100, 0]));
        assert!(!own(n::__NR_copy_file_range, [3, 0x1000, 4, 0, 100, 0]));
        assert!(own(n::__NR_sendfile, [4, 3, 0, 100, 0, 0]));
        assert!(!own(n::__NR_sendfile, [4, 3, 0x1000, 100, 0, 0]));
    }
}
