//! Where an exception may land in a function: its landing pads, which nothing in its instructions points at,
//! by the table of call sites that C++, Rust and C with clean-ups have for their unwinder (LSB, "Exception
//! Frames" and what GCC and LLVM write into `.gcc_except_table`).

use gimli::{LittleEndian, Reader as _};

/// How a number is written (DWARF exception header encoding).
const OMITTED: u8 = 0xff;
const ULEB: u8 = 0x01;
const UDATA4: u8 = 0x03;

/// Bytes of a table that are read at most; a function with more is not looked at.
pub const MAX_BYTES: u64 = 8 << 10;

/// The landing pads of the function with this range, in order; `table` begins where its table does. None: it
/// says so in a way that is not known here, or contradicts itself, or they are elsewhere.
pub fn pads(table: &[u8], start: u64, end: u64) -> Option<Vec<u64>> {
    let mut bytes = gimli::EndianSlice::new(table, LittleEndian);
    // Counted from anywhere but the function's start they may be in another one.
    if bytes.read_u8().ok()? != OMITTED {
        return None;
    }
    if bytes.read_u8().ok()? != OMITTED {
        bytes.read_uleb128().ok()?;
    }
    let encoding = bytes.read_u8().ok()?;
    let length = bytes.read_uleb128().ok()?;
    let mut sites = bytes.split(usize::try_from(length).ok()?).ok()?;
    let mut pads = Vec::new();
    let mut last = 0;
    while !sites.is_empty() {
        let mut number = || match encoding {
            ULEB => sites.read_uleb128().ok(),
            UDATA4 => sites.read_u32().ok().map(u64::from),
            _ => None,
        };
        let (site, bytes, pad) = (number()?, number()?, number()?);
        let _action = sites.read_uleb128().ok()?;
        let after = site.checked_add(bytes)?;
        if site < last || after > end - start || pad >= end - start {
            return None;
        }
        last = after;
        pads.extend((pad != 0).then_some(start + pad));
    }
    pads.sort_unstable();
    pads.dedup();
    Some(pads)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No start of its own, no types; then how numbers are written, and how many bytes there are of call
    /// sites.
    fn table(encoding: u8, sites: &[u8]) -> Vec<u8> {
        [&[OMITTED, OMITTED, encoding, sites.len() as u8], sites].concat()
    }

    #[test]
    fn pads_are_counted_from_the_functions_start() {
        let found = |sites: &[u8]| pads(&table(ULEB, sites), 0x1000, 0x1100);
        assert_eq!(
            found(&[0, 5, 0x20, 1, 5, 7, 0, 0, 12, 4, 0x20, 1, 16, 1, 0x10, 0]),
            Some(vec![0x1010, 0x1020])
        );
        assert_eq!(found(&[]), Some(Vec::new()));
        let wide = [0, 0, 0, 0, 5, 0, 0, 0, 0x20, 0, 0, 0, 1];
        assert_eq!(pads(&table(UDATA4, &wide), 0x1000, 0x1100), Some(vec![0x1020]));
        // With types behind it.
        let with_types = [&[OMITTED, 0x9b, 60, ULEB, 4][..], &[0, 5, 0x20, 1]].concat();
        assert_eq!(pads(&with_types, 0x1000, 0x1100), Some(vec![0x1020]));
    }

    #[test]
    fn what_contradicts_itself_tells_nothing() {
        let found = |sites: &[u8]| pads(&table(ULEB, sites), 0x1000, 0x1040);
        assert_eq!(found(&[0, 5, 0x40, 1]), None, "a pad behind the function");
        assert_eq!(found(&[0, 0x41, 0x20, 1]), None, "a site behind it");
        assert_eq!(found(&[4, 5, 0x20, 1, 2, 1, 0x20, 1]), None, "out of order");
        assert_eq!(found(&[0, 5, 0x20]), None, "cut off");
        assert_eq!(pads(&table(0x10, &[0; 13]), 0x1000, 0x1040), None, "another encoding");
        assert_eq!(pads(&[0, 0, 0, 0], 0x1000, 0x1040), None, "a start of its own");
        assert_eq!(pads(&[OMITTED, OMITTED, ULEB, 9, 0], 0x1000, 0x1040), None, "longer than it is");
        assert_eq!(pads(&[], 0x1000, 0x1040), None);
    }
}
