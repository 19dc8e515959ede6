//! How many names the program is known to have passed, where its agent does not count them.
//!
//! Where speculation is ahead all names that the program looks up are cached, the agent is calm and counts few of them; and
//! opens it never counts. Speculation knows which names come before which read, and the agent says which reads of the log the
//! program has passed: whoever has passed a read has looked up the names before it. Only these count. (All that speculation
//! had looked up was once taken for the program's progress. It begins anew at each restart, so that a program that
//! restarts often looked as though it were thousands of names ahead of itself, and look-ups ahead knew no bound.)
//!
//! What the agent has counted meanwhile is left out, since the two are added up: a difference that once was right stays right when
//! only the agent counts on. Both begin at the post: what the program looks up between that and the end of the sync the agent may count, and
//! speculation looks it up again. (So the post brings the agent's count along. With the count of the sync's end such names were counted twice.)

/// Operations that are remembered: more than speculation is ever ahead.
const OPERATIONS: usize = 1024;

/// Zeros are its start.
pub struct PassedNames {
    /// Names looked up in this speculation.
    looked_up: u32,
    /// Operations written, and the names before each of the latest.
    written: u32,
    before: [u32; OPERATIONS],
    /// Of the names, those up to which nothing is known, and what the agent had counted by then.
    unknown: u32,
    seen_before: u64,
    /// Names that have been told since.
    told: u32,
}

impl PassedNames {
    pub const fn new() -> PassedNames {
        PassedNames { looked_up: 0, written: 0, before: [0; OPERATIONS], unknown: 0, seen_before: 0, told: 0 }
    }

    /// A speculation begins, from a post by which the agent had counted `seen` names in all. The program had passed `before` operations
    /// of the one before it, if that is known. Returns what [`PassedNames::passed`] does for these.
    pub fn begins(&mut self, before: Option<u32>, seen: u64) -> u32 {
        let more = before.map_or(0, |operations| self.passed(operations, seen));
        (self.looked_up, self.written) = (0, 0);
        self.begin_here(seen);
        more
    }

    /// Speculation has looked a name up.
    pub fn looked_up(&mut self) {
        self.looked_up = self.looked_up.saturating_add(1);
    }

    /// It has written the next operation to the log. `late`: the program had passed that already, with nothing to compare
    /// it with, so that nobody knows whether it looked the same names up.
    pub fn wrote(&mut self, late: bool, seen: u64) {
        self.before[self.written as usize % OPERATIONS] = self.looked_up;
        self.written = self.written.wrapping_add(1);
        if late {
            self.begin_here(seen);
        }
    }

    /// The program has passed so many operations, and its agent has counted `seen` names in all. Returns how many names
    /// more than known before it has passed without having been counted.
    pub fn passed(&mut self, operations: u32, seen: u64) -> u32 {
        let operations = operations.min(self.written);
        if operations == 0 || self.written - operations >= OPERATIONS as u32 {
            return 0;
        }
        let names = self.before[(operations - 1) as usize % OPERATIONS].saturating_sub(self.unknown);
        let counted = u32::try_from(seen.saturating_sub(self.seen_before)).unwrap_or(u32::MAX);
        let uncounted = names.saturating_sub(counted);
        let more = uncounted.saturating_sub(self.told);
        self.told += more;
        more
    }

    fn begin_here(&mut self, seen: u64) {
        self.unknown = self.looked_up;
        self.seen_before = seen;
        self.told = 0;
    }
}

impl Default for PassedNames {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A speculation that looks three names up before each of its operations.
    fn ahead(operations: u32) -> PassedNames {
        let mut names = PassedNames::new();
        names.begins(None, 100);
        write(&mut names, operations);
        names
    }

    fn write(names: &mut PassedNames, operations: u32) {
        for _ in 0..operations {
            (0..3).for_each(|_| names.looked_up());
            names.wrote(false, 100);
        }
    }

    #[test]
    fn only_what_the_program_has_passed_counts() {
        let mut names = ahead(10);
        assert_eq!(names.passed(0, 100), 0);
        assert_eq!(names.passed(4, 100), 12);
        assert_eq!(names.passed(4, 100), 0);
        // Not more than there is, whatever the agent says that it has passed.
        assert_eq!(names.passed(1000, 100), 18);
        assert_eq!(names.passed(3, 100), 0);
    }

    #[test]
    fn restarts_do_not_add_up() {
        let mut names = PassedNames::new();
        let mut known = 0;
        for _ in 0..1000 {
            names.begins(None, 0);
            write(&mut names, 20);
            known += names.passed(1, 0);
        }
        assert_eq!(known, 3000);
    }

    #[test]
    fn what_the_agent_counts_itself_is_left_out() {
        let mut names = ahead(10);
        assert_eq!(names.passed(4, 105), 7);
        // It counts on, and is told of nothing twice.
        assert_eq!(names.passed(5, 110), 0);
        assert_eq!(names.passed(10, 110), 13);
    }

    #[test]
    fn what_comes_between_the_post_and_the_sync_is_counted_once() {
        // Twelve names, five of them counted by the agent before its next post.
        let mut names = ahead(4);
        assert_eq!(names.begins(Some(4), 105), 7);
        // It counts three more by the end of the sync, which speculation looks up as well.
        write(&mut names, 2);
        assert_eq!(names.passed(2, 108), 3);
    }

    #[test]
    fn what_nobody_compared_is_not_known() {
        let mut names = PassedNames::new();
        names.begins(None, 0);
        for late in [true, true, false] {
            (0..3).for_each(|_| names.looked_up());
            names.wrote(late, 0);
        }
        assert_eq!(names.passed(2, 0), 0);
        assert_eq!(names.passed(3, 0), 3);
    }

    #[test]
    fn more_operations_than_are_remembered_harm_nothing() {
        let mut names = ahead(3 * OPERATIONS as u32);
        assert_eq!(names.passed(1, 100), 0);
        assert_eq!(names.passed(3 * OPERATIONS as u32, 100), 9 * OPERATIONS as u32);
    }
}
