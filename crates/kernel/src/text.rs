//! Numbers and `/proc` lines without allocation.
//!
//! Any bytes may be given; nothing here can panic, not even in the compiler's eyes (the agent's binary is
//! searched for what a panic would need).

use core::ffi::CStr;

/// A C string under construction in a fixed buffer of `N` bytes; too long means empty.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
    overflow: bool,
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Text<N> {
    pub const fn new() -> Self {
        Self { bytes: [0; N], length: 0, overflow: false }
    }

    pub fn push(mut self, part: &[u8]) -> Self {
        // The last byte stays zero.
        let room = self.bytes.get_mut(self.length..N.saturating_sub(1)).unwrap_or(&mut []);
        self.overflow |= part.len() > room.len() || part.contains(&0);
        for (to, from) in room.iter_mut().zip(part) {
            *to = *from;
        }
        self.length = self.length.saturating_add(part.len());
        self
    }

    pub fn push_number(self, number: u64) -> Self {
        self.push_digits::<10>(number)
    }

    /// Hexadecimal, as in the names of `/proc/PID/map_files`.
    pub fn push_hex(self, number: u64) -> Self {
        self.push_digits::<16>(number)
    }

    fn push_digits<const BASE: u64>(self, mut number: u64) -> Self {
        // 2^64 has 20 digits.
        let mut digits = [0u8; 20];
        let mut used = 0;
        for place in digits.iter_mut().rev() {
            *place = b"0123456789abcdef".get((number % BASE) as usize).copied().unwrap_or(b'0');
            number /= BASE;
            used += 1;
            if number == 0 {
                break;
            }
        }
        self.push(digits.get(digits.len() - used..).unwrap_or(&[]))
    }

    /// The string; empty if a part did not fit or held a zero byte.
    pub fn as_c_str(&self) -> &CStr {
        if self.overflow {
            return c"";
        }
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

/// Reads a hexadecimal number from the front of `bytes`; returns it (modulo 2^64; 0 if there is none) and
/// the rest.
pub fn hex(bytes: &[u8]) -> (u64, &[u8]) {
    number(bytes, 16)
}

/// Reads a decimal number from the front of `bytes`; returns it (modulo 2^64; 0 if there is none) and the rest.
pub fn decimal(bytes: &[u8]) -> (u64, &[u8]) {
    number(bytes, 10)
}

fn number(bytes: &[u8], base: u64) -> (u64, &[u8]) {
    let mut value = 0u64;
    let mut used = 0;
    for &byte in bytes {
        let digit = match byte {
            b'0'..=b'9' => u64::from(byte - b'0'),
            b'a'..=b'f' => u64::from(byte - b'a') + 10,
            _ => break,
        };
        if digit >= base {
            break;
        }
        value = value.wrapping_mul(base).wrapping_add(digit);
        used += 1;
    }
    (value, bytes.get(used..).unwrap_or(&[]))
}

/// One line of `/proc/PID/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapsLine<'a> {
    pub start: usize,
    pub end: usize,
    /// `PROT_*` bits.
    pub protection: u32,
    pub shared: bool,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Major and minor number; a file system without a device of its own has major 0.
    pub device: (u32, u32),
    pub inode: u64,
    /// Path, `[heap]`-like name, or empty.
    pub name: &'a [u8],
}

impl MapsLine<'_> {
    /// Whether it is a file on a disk that has lost its name.
    pub fn is_nameless_file(&self) -> bool {
        self.name.ends_with(b" (deleted)") && self.device.0 != 0
    }
}

/// Takes one line of `/proc/PID/maps` apart (proc(5)); None if it is not one.
pub fn maps_line(line: &[u8]) -> Option<MapsLine<'_>> {
    let (start, rest) = hex(line);
    let (end, rest) = hex(rest.strip_prefix(b"-")?);
    let rest = rest.strip_prefix(b" ")?;
    let (permissions, rest) = rest.split_at_checked(4)?;
    let (offset, rest) = hex(rest.strip_prefix(b" ")?);
    let rest = rest.strip_prefix(b" ")?;
    let (major, rest) = hex(rest);
    let (minor, rest) = hex(rest.strip_prefix(b":")?);
    let (inode, rest) = decimal(rest.strip_prefix(b" ")?);
    let name_start = rest.iter().position(|&b| b != b' ').unwrap_or(rest.len());
    let flag =
        |index: usize, letter: u8, bit: u32| if permissions.get(index) == Some(&letter) { bit } else { 0 };
    Some(MapsLine {
        start: start as usize,
        end: end as usize,
        protection: flag(0, b'r', 1) | flag(1, b'w', 2) | flag(2, b'x', 4),
        shared: permissions.get(3) == Some(&b's'),
        offset,
        device: (major as u32, minor as u32),
        inode,
        name: rest.get(name_start..).unwrap_or(&[]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_name_lies_on_a_disk() {
        let is = |line: &[u8]| maps_line(line).unwrap().is_nameless_file();
        assert!(is(b"7f12-7f34 rw-s 00000000 fe:01 1234   /data/#12 (deleted)"));
        assert!(!is(b"7f12-7f34 rw-s 00000000 fe:01 1234   /data/12"));
        assert!(!is(b"7f12-7f34 rw-s 00000000 00:01 1234   /memfd:shared (deleted)"), "in memory");
        assert!(!is(b"7f12-7f34 rw-p 00000000 00:00 0"));
    }

    #[test]
    fn takes_a_maps_line_apart() {
        let line = b"7f12-7f34 r-xp 00001000 fe:01 1234   /usr/lib/a b.so";
        let parsed = maps_line(line).unwrap();
        assert_eq!(parsed.start, 0x7f12);
        assert_eq!(parsed.end, 0x7f34);
        assert_eq!(parsed.protection, 5);
        assert!(!parsed.shared);
        assert_eq!(parsed.offset, 0x1000);
        assert_eq!(parsed.device, (0xfe, 1));
        assert_eq!(parsed.inode, 1234);
        assert_eq!(parsed.name, b"/usr/lib/a b.so");
        assert_eq!(maps_line(b"55-66 rw-s 00000000 00:00 0").unwrap().name, b"");
        assert_eq!(maps_line(b"garbage"), None);
        assert_eq!(maps_line(b"12-34 r"), None);
    }

    #[test]
    fn text_that_does_not_fit_is_empty() {
        assert_eq!(Text::<8>::new().push(b"/proc/").as_c_str(), c"/proc/");
        assert_eq!(Text::<8>::new().push(b"/proc/12").as_c_str(), c"");
        assert_eq!(Text::<24>::new().push_number(u64::MAX).as_c_str(), c"18446744073709551615");
        assert_eq!(Text::<24>::new().push_number(0).as_c_str(), c"0");
        assert_eq!(Text::<24>::new().push_hex(0x7ff0_89ab_cdef).as_c_str(), c"7ff089abcdef");
    }
}
