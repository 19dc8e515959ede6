//! Which pages of the mirror are there, and which of these change: what fills and drops have left.
//!
//! A page that is there may be missing here, after a drop, and is found out when it is filled anew. One that
//! is here is there.

use super::Mirror;
use crate::views::VIEWS;
use runahead_kernel::PAGE;

impl Mirror {
    /// Pages that lie together have their places in the table together: spread over all of it a thousand of
    /// them made the whole table resident, 1 MB.
    fn slot_of(page: usize) -> usize {
        const TOGETHER: usize = 64;
        let number = page / PAGE;
        let block = ((number / TOGETHER) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 40;
        block.wrapping_mul(TOGETHER) + number % TOGETHER
    }

    /// Copied pages that a drop would give back.
    pub fn changing_pages(&self) -> u64 {
        self.changing_count as u64
    }

    /// Empties the table. Its parts that were never written to stay as they are, which takes no memory.
    pub(super) fn clear_present(&mut self) {
        if self.present_count > 0 {
            self.present.iter_mut().filter(|word| **word != 0).for_each(|word| *word = 0);
        }
        self.present_count = 0;
    }

    /// Whether a touch of the page would raise no signal.
    pub(super) fn is_there(&self, page: usize) -> bool {
        VIEWS.get().show(page).unwrap_or_else(|| self.is_present(page))
    }

    pub(super) fn is_present(&self, page: usize) -> bool {
        let wanted = (page / PAGE) as u64 + 1;
        let mut slot = Self::slot_of(page);
        loop {
            match self.present[slot % self.present.len()] {
                0 => return false,
                found if found == wanted => return true,
                _ => slot += 1,
            }
        }
    }

    pub(super) fn remember(&mut self, page: usize, stable: bool) {
        if self.is_present(page) {
            return;
        }
        self.enter(page);
        if !stable && let Some(place) = self.changing.get_mut(self.changing_count) {
            *place = page;
            self.changing_count += 1;
        }
    }

    /// Takes a page out of the table; those behind it in its run move up.
    pub(super) fn leave(&mut self, page: usize) {
        let length = self.present.len();
        let wanted = (page / PAGE) as u64 + 1;
        let mut slot = Self::slot_of(page) % length;
        while self.present[slot] != wanted {
            if self.present[slot] == 0 {
                return;
            }
            slot = (slot + 1) % length;
        }
        self.present_count -= 1;
        let mut next = slot;
        loop {
            self.present[slot] = 0;
            loop {
                next = (next + 1) % length;
                if self.present[next] == 0 {
                    return;
                }
                let home = Self::slot_of((self.present[next] as usize - 1) * PAGE) % length;
                // It may move up if its home does not lie between the gap and itself.
                if (next + length - home) % length >= (next + length - slot) % length {
                    break;
                }
            }
            self.present[slot] = self.present[next];
            slot = next;
        }
    }

    pub(super) fn enter(&mut self, page: usize) {
        let length = self.present.len();
        let mut slot = Self::slot_of(page);
        while self.present[slot % length] != 0 {
            slot += 1;
        }
        self.present[slot % length] = (page / PAGE) as u64 + 1;
        self.present_count += 1;
    }
}
