//! What of a program's mappings speculation leaves out rather than copy from the program.
//!
//! A page that speculation touches comes from the file, where that can be opened, or from the program's memory, where nothing
//! bounds the copies and the kernel reads what is not cached. A large file that is shared and has lost its name is
//! what codes with data out of core keep their arrays in; where nobody may open it speculation ends there. (Copied, 60 MB of
//! NAS FT's arrays stood in its 128 MB, and its own pages were gone before it came to them.)

/// Bytes from which on a mapping is large: as long as those whose page faults are watched.
pub const LARGE: usize = 8 << 20;

/// A mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    pub length: usize,
    pub shared: bool,
    /// It is a file on a disk that has no name any more.
    pub nameless: bool,
    /// Its pages can be had from the file.
    pub opened: bool,
}

impl Mapping {
    pub fn is_left_out(&self) -> bool {
        !self.opened && self.shared && self.nameless && self.length >= LARGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_shared_files_that_nobody_may_open_are_left_out() {
        let arrays = Mapping { length: LARGE, shared: true, nameless: true, opened: false };
        assert!(arrays.is_left_out());
        assert!(!Mapping { opened: true, ..arrays }.is_left_out());
        assert!(
            !Mapping { shared: false, ..arrays }.is_left_out(),
            "what was written to is the program's own"
        );
        assert!(!Mapping { nameless: false, ..arrays }.is_left_out());
        assert!(!Mapping { length: LARGE - 1, ..arrays }.is_left_out());
    }
}
