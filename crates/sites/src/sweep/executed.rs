//! What of the swept code is surely executed: a number that would be an address in the middle of an instruction is none
//! if that instruction is.
//!
//! From where a program begins direct flow leads to little of it, since `main` and whatever is called through a pointer
//! have their address in an instruction or in data. What such an address leads to may be data among the code as well,
//! however, and data goes over into the first instructions of the function behind it. So of what stands in one row with
//! such a place, up to the first instruction that does not go on, nothing is known by that, before the first call or
//! jump whose distance takes four bytes: that such a one leads to where an instruction begins is not by chance, so it is
//! code, and what it leads to as well. A number that stands where no compiler puts an address is believed to be none
//! all the same.

use std::collections::{HashMap, HashSet};

use super::{Flow, Found, Onward, Section, TABLE_MOST, Table, sort};

/// Where execution begins.
pub(super) struct Begun<'a> {
    pub surely: Vec<u64>,
    /// Pointers in data: to functions, or to anything else.
    pub perhaps: &'a [u64],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    Nothing,
    /// In one row with a place whose address is taken.
    Perhaps,
    Surely,
}

/// Numbers that would be addresses in the middle of instructions.
pub(super) struct NoAddresses {
    /// They stand where compilers put addresses.
    pub placed: Vec<u64>,
    /// They do not: they are a part of other data, or of two.
    pub elsewhere: Vec<u64>,
}

impl NoAddresses {
    /// Whether none of them is an address. `tables`: those that may be tables of distances. What jumps find through
    /// arrays of addresses is looked up in `sections`.
    pub fn are_such(
        self,
        found: &Found,
        begun: Begun<'_>,
        tables: &[Table],
        sections: &[Section<'_>],
    ) -> bool {
        if self.placed.is_empty() && self.elsewhere.is_empty() {
            return true;
        }
        let known = Search::new(found, tables, sections).run(begun);
        let hold = |mut addresses: Vec<u64>, least: Known| {
            sort(&mut addresses);
            let is_padding = |index: &usize| found.paddings.binary_search(&found.boundaries[*index]).is_ok();
            // Padding that stands together, and what stands behind it: no function begins within it.
            let (mut run, mut behind) = (0..0, 0);
            addresses.into_iter().all(|address| {
                let next = found.boundaries.partition_point(|start| *start <= address);
                let Some(index) = next.checked_sub(1) else { return false };
                if !run.contains(&index) {
                    let goes_on = |index: &usize| {
                        is_padding(index)
                            && found.boundaries.get(index + 1) == Some(&found.onward[*index].next)
                    };
                    behind = (index..known.len()).find(|index| !goes_on(index)).unwrap_or(known.len());
                    run = index..behind + 1;
                }
                known.get(behind).is_some_and(|known| *known >= least)
            })
        };
        hold(self.placed, Known::Surely) && hold(self.elsewhere, Known::Perhaps)
    }
}

struct Search<'a> {
    found: &'a Found,
    sections: &'a [Section<'a>],
    tables: &'a [Table],
    /// Addresses of code that instructions name, tables that they take the address of, and arrays that they jump
    /// through; each behind the instruction's address, sorted.
    named: Vec<(u64, u64)>,
    taken: Vec<(u64, usize)>,
    jumped_through: &'a [(u64, u64)],
    /// Tables and arrays that have been followed.
    followed: (HashSet<usize>, HashSet<u64>),
    entries: usize,
    returns: HashMap<(u64, u32), bool>,
    known: Vec<Known>,
    /// The last instruction in one row with each.
    row_ends: Vec<usize>,
    sure: Vec<usize>,
    perhaps: Vec<usize>,
}

/// Calls that are followed to see whether they return.
const CALLS_DEEP: u32 = 3;

/// More entries of tables are not followed.
const MAX_ENTRIES: usize = 1 << 20;

impl<'a> Search<'a> {
    fn new(found: &'a Found, tables: &'a [Table], sections: &'a [Section<'a>]) -> Search<'a> {
        let mut named = found.naming.clone();
        named.sort_unstable();
        let by = |(at, table): (usize, &'a Table)| table.taken_by.iter().map(move |by| (*by, at));
        let mut taken: Vec<(u64, usize)> = tables.iter().enumerate().flat_map(by).collect();
        taken.sort_unstable();
        let count = found.boundaries.len();
        let mut row_ends = vec![0; count];
        let mut last = count.saturating_sub(1);
        for (index, row_end) in row_ends.iter_mut().enumerate().rev() {
            let Onward { next, kind, .. } = found.onward[index];
            let goes_on =
                matches!(kind, Flow::Next | Flow::Call) && found.boundaries.get(index + 1) == Some(&next);
            if !goes_on {
                last = index;
            }
            *row_end = last;
        }
        Search {
            found,
            sections,
            tables,
            named,
            taken,
            jumped_through: &found.jumped_through,
            followed: (HashSet::new(), HashSet::new()),
            entries: 0,
            returns: HashMap::new(),
            known: vec![Known::Nothing; count],
            row_ends,
            sure: Vec::new(),
            perhaps: Vec::new(),
        }
    }

    /// What is known of each instruction, in the order of their addresses.
    fn run(mut self, begun: Begun<'_>) -> Vec<Known> {
        self.sure.extend(begun.surely.into_iter().filter_map(|address| self.found.index_of(address)));
        for address in begun.perhaps {
            self.may_begin(*address);
        }
        loop {
            if let Some(index) = self.sure.pop() {
                self.is_executed(index);
            } else if let Some(index) = self.perhaps.pop() {
                self.row(index);
            } else {
                return self.known;
            }
        }
    }

    /// A function may begin at this address.
    fn may_begin(&mut self, address: u64) {
        if self.found.can_begin(address) {
            self.perhaps.extend(self.found.index_of(address));
        }
    }

    fn is_executed(&mut self, index: usize) {
        if self.known[index] == Known::Surely {
            return;
        }
        self.known[index] = Known::Surely;
        let Onward { next, target, kind, .. } = self.found.onward[index];
        self.sure.extend(target.and_then(|target| self.found.index_of(target)));
        let goes_on = match kind {
            Flow::Next => true,
            Flow::Call => target.is_none_or(|target| self.has_return(target, CALLS_DEEP)),
            Flow::Return | Flow::Indirect | Flow::Elsewhere => false,
        };
        self.sure.extend(if goes_on { self.found.index_of(next) } else { None });
        self.names(index);
        self.jumps_by_tables(index);
    }

    /// What stands in one row from an instruction on may be executed; the first near call or jump of it is.
    fn row(&mut self, from: usize) {
        let end = self.row_ends[from];
        for index in from..=end {
            // Another one has come from in front, or from elsewhere.
            if self.known[index] != Known::Nothing {
                return;
            }
            self.known[index] = Known::Perhaps;
            let Onward { target, is_near, .. } = self.found.onward[index];
            match target.and_then(|target| self.found.index_of(target)) {
                Some(_) if is_near => return self.sure.push(index),
                // What one byte says may be data.
                Some(target) => self.perhaps.push(target),
                None => {}
            }
        }
    }

    /// Functions whose address an instruction names.
    fn names(&mut self, index: usize) {
        let address = self.found.boundaries[index];
        let first = self.named.partition_point(|(by, _)| *by < address);
        let mut at = first;
        while let Some((_, named)) = self.named.get(at).copied().filter(|(by, _)| *by == address) {
            self.may_begin(named);
            at += 1;
        }
    }

    /// What the tables lead to that an executed instruction uses.
    fn jumps_by_tables(&mut self, index: usize) {
        let address = self.found.boundaries[index];
        let mut at = self.taken.partition_point(|(by, _)| *by < address);
        while let Some((_, table)) = self.taken.get(at).copied().filter(|(by, _)| *by == address) {
            if self.followed.0.insert(table) && self.found.may_be_looked_up(&self.tables[table]) {
                self.follow(self.tables[table].targets.iter().copied());
            }
            at += 1;
        }
        let through = self.jumped_through;
        let mut at = through.partition_point(|(by, _)| *by < address);
        while let Some((_, array)) = through.get(at).copied().filter(|(by, _)| *by == address) {
            if self.followed.1.insert(array) {
                let data = self.sections.iter().find(|section| !section.is_code && section.contains(array));
                let words = data.map_or(&[][..], |section| section.from(array, TABLE_MOST)).chunks_exact(8);
                let words = words.filter_map(|word| word.first_chunk()).map(|word| u64::from_le_bytes(*word));
                let found = self.found;
                self.follow(words.take_while(|word| found.index_of(*word).is_some()));
            }
            at += 1;
        }
    }

    /// Where a table ends is not known for sure: what stands behind it may lead to data.
    fn follow(&mut self, targets: impl Iterator<Item = u64>) {
        for target in targets {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return;
            }
            self.perhaps.extend(self.found.index_of(target));
        }
    }

    /// Whether a function returns, as far as is seen: what ends the process, or calls what does, does not.
    fn has_return(&mut self, target: u64, deep: u32) -> bool {
        if let Some(known) = self.returns.get(&(target, deep)) {
            return *known;
        }
        let found = self.found;
        let mut returns = |called: u64| deep == 0 || self.has_return(called, deep - 1);
        let has = found.has_return(target, &mut returns);
        self.returns.insert((target, deep), has);
        has
    }
}
