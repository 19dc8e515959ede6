//! Hints: disclosures of future accesses.
//!
//! A hint is a promise without obligation: "this will be read, after what I named before". The order of the
//! hints is the order of the accesses. What is named is a segment of a file, a range of a mapping, or a
//! name to look up; the front end maps paths, descriptors and addresses to [`Subject`]s, whose numbers mean
//! nothing here but sameness. A *token* is the giver's own mark, to cancel a group of hints by.
//!
//! Givers err: offsets past any file's end, lengths that overflow. Such a hint is refused with a reason,
//! which is counted, and never an error.

use crate::PAGE;

/// What will be accessed. The number is the front end's; equal numbers are the same file (mapping, name).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    File(u64),
    Mapping(u64),
    /// Something to look up: it has no pages, only itself.
    Name(u64),
}

/// A disclosure that makes sense: pages `first..first + pages` of the subject (0 and 1 for a name).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    pub subject: Subject,
    pub first: u64,
    pub pages: u64,
    pub token: u64,
}

/// Why a disclosure was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No file reaches to such an offset: it does not fit into a signed 64-bit number.
    Absurd,
    /// Begins at or behind the end of the file, or of a file without contents.
    BehindEnd,
    /// The queue is full: the giver is further ahead than anything could use.
    Full,
}

impl Hint {
    /// Bytes `offset..offset + length` of a file of `size` bytes, widened to whole pages and cut at the
    /// file's end. A length of 0 means: to the end.
    pub fn segment(
        subject: Subject,
        offset: u64,
        length: u64,
        size: u64,
        token: u64,
    ) -> Result<Hint, Refusal> {
        if offset > i64::MAX as u64 || length > i64::MAX as u64 {
            return Err(Refusal::Absurd);
        }
        if offset >= size {
            return Err(Refusal::BehindEnd);
        }
        let end = if length == 0 { size } else { offset.saturating_add(length).min(size) };
        let first = offset / PAGE;
        Ok(Hint { subject, first, pages: end.div_ceil(PAGE) - first, token })
    }

    /// A name to look up.
    pub fn name(name: u64, token: u64) -> Hint {
        Hint { subject: Subject::Name(name), first: 0, pages: 1, token }
    }

    /// The page behind the last one.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE: Subject = Subject::File(1);

    #[test]
    fn whole_pages_within_the_file() {
        let hint =
            |offset, length, size| Hint::segment(FILE, offset, length, size, 0).map(|h| (h.first, h.pages));
        assert_eq!(hint(0, 0, 10_000), Ok((0, 3)));
        assert_eq!(hint(4095, 2, 10_000), Ok((0, 2)));
        assert_eq!(hint(4096, 4096, 10_000), Ok((1, 1)));
        assert_eq!(hint(8192, 1 << 40, 10_000), Ok((2, 1)));
        assert_eq!(hint(10_000, 1, 10_000), Err(Refusal::BehindEnd));
        assert_eq!(hint(0, 0, 0), Err(Refusal::BehindEnd));
        assert_eq!(hint(u64::MAX, 1, u64::MAX), Err(Refusal::Absurd));
        assert_eq!(hint(0, u64::MAX, 10_000), Err(Refusal::Absurd));
    }

    proptest! {
        #[test]
        fn covers_what_was_named_and_nothing_behind_the_end(offset: u64, length: u64, size: u64) {
            if let Ok(hint) = Hint::segment(FILE, offset, length, size, 0) {
                prop_assert!(hint.pages > 0);
                prop_assert!(hint.first <= offset / PAGE);
                prop_assert!(hint.end() <= size.div_ceil(PAGE));
                let last = if length == 0 { size - 1 } else { (offset + (length - 1).min(size - offset - 1)).min(size - 1) };
                prop_assert!(hint.end() > last / PAGE);
            }
        }
    }
}
