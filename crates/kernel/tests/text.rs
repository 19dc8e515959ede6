//! `/proc` lines and numbers: what the kernel writes is understood, anything else does no harm.

use proptest::prelude::*;
use runahead_kernel::text::{MapsLine, Text, decimal, hex, maps_line};

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// As the kernel prints it: addresses of eight digits at least, the name behind padding.
    #[test]
    fn a_mapping_is_read_back(
        (start, end, offset) in any::<(usize, usize, u64)>(),
        (bits, shared) in (0u32..8, any::<bool>()),
        (major, minor, inode) in any::<(u8, u8, u64)>(),
        name in "(|/[ -~]{1,60}|\\[heap\\]|/memfd:x \\(deleted\\))",
    ) {
        let flag = |bit: u32, letter: char| if bits & bit != 0 { letter } else { '-' };
        let permissions: String =
            [flag(1, 'r'), flag(2, 'w'), flag(4, 'x'), if shared { 's' } else { 'p' }].iter().collect();
        let mut line =
            format!("{start:08x}-{end:08x} {permissions} {offset:08x} {major:02x}:{minor:02x} {inode}");
        if !name.is_empty() {
            line = format!("{line:<72} {name}");
        }
        let expected =
            MapsLine { start, end, protection: bits, shared, offset, device: (major.into(), minor.into()), inode, name: name.trim_start().as_bytes() };
        prop_assert_eq!(maps_line(line.as_bytes()), Some(expected));
    }

    /// Cut anywhere, or with any byte changed: no panic, and never a name that is not in the line.
    #[test]
    fn broken_lines_do_no_harm(at in 0usize..90, byte in any::<u8>(), cut in 0usize..90) {
        let line = b"7f0000001000-7f0000002000 r-xp 00001000 fe:00 123456                     /usr/lib/libc.so.6";
        let mut broken = line.to_vec();
        if let Some(place) = broken.get_mut(at) {
            *place = byte;
        }
        broken.truncate(cut);
        if let Some(map) = maps_line(&broken) {
            prop_assert!(broken.ends_with(map.name));
        }
    }

    #[test]
    fn any_bytes_do_no_harm(line in prop::collection::vec(any::<u8>(), 0..120)) {
        if let Some(map) = maps_line(&line) {
            prop_assert!(line.ends_with(map.name));
            prop_assert!(map.protection < 8);
        }
        for (_, rest) in [decimal(&line), hex(&line)] {
            prop_assert!(line.ends_with(rest));
        }
    }

    #[test]
    fn numbers_are_read_back(number in any::<u64>(), rest in "[ g-z:][0-9a-z]{0,9}|") {
        let text = format!("{number}{rest}");
        prop_assert_eq!(decimal(text.as_bytes()), (number, rest.as_bytes()));
        let text = format!("{number:x}{rest}");
        prop_assert_eq!(hex(text.as_bytes()), (number, rest.as_bytes()));
        let (written, expected) = (Text::<32>::new().push_number(number), number.to_string());
        prop_assert_eq!(written.as_c_str().to_bytes(), expected.as_bytes());
    }

    /// Whatever is pushed: all of it with a zero behind, or nothing.
    #[test]
    fn a_text_is_whole_or_empty(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 0..6)) {
        let text = parts.iter().fold(Text::<24>::new(), |text, part| text.push(part));
        let all = parts.concat();
        let fits = all.len() < 24 && !all.contains(&0);
        let expected: &[u8] = if fits { &all } else { b"" };
        prop_assert_eq!(text.as_c_str().to_bytes(), expected);
    }
}
