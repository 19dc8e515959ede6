//! What the speculator itself puts into the mirror: the agent's state page, room for stacks, and code.

use super::Mirror;
use crate::absent::ABSENT;
use runahead_abi::opened::OPENINGS_AT;
use runahead_abi::sites::ENTRY_BY_NUMBER_AT;
use runahead_kernel::PAGE;
use runahead_kernel::memory::{self, PROT_READ, PROT_WRITE};
use runahead_kernel::uapi::general as n;

impl Mirror {
    /// Puts a page of our own where the agent's state page is in the program: stubs that the mirrored
    /// code jumps through enter the runtime at `entry`, every time.
    pub fn set_state_page(&mut self, address: usize, entry: usize) -> bool {
        if self.region_at(address).is_none_or(|region| region.stable) {
            return false;
        }
        self.state_page = address;
        self.stub_entry = entry;
        self.renew_state_page()
    }

    /// Address of the agent's state page.
    pub fn state_page(&self) -> usize {
        self.state_page
    }

    /// Writes the state page's content: it may have been dropped with the pages around it. False if it cannot
    /// be there.
    pub(super) fn renew_state_page(&self) -> bool {
        let area = self.region_at(self.state_page).map(|region| region.area());
        if area.is_none_or(|area| ABSENT.get().place_zeros(area, self.state_page).is_err()) {
            return false;
        }
        for at in [0, ENTRY_BY_NUMBER_AT] {
            // SAFETY: a page that is there, of a region that is writable; the layout is that of
            // `agent::state::Fixed`.
            unsafe { ((self.state_page + at) as *mut usize).write(self.stub_entry) };
        }
        self.keep_calm_off();
        true
    }

    /// Stubs count one of these words down and enter when it is negative.
    pub fn keep_calm_off(&self) {
        for at in [size_of::<usize>(), OPENINGS_AT] {
            // SAFETY: the state page, which `renew_state_page` has seen to.
            unsafe { ((self.state_page + at) as *mut i32).write(i32::MIN / 2) };
        }
    }

    /// Speculation's stack has grown below the program's: gives it zero pages as the kernel would. True
    /// if `address` is there now.
    pub fn grow_stack(&mut self, address: usize, stack_pointer: usize) -> bool {
        /// The red zone, and room for a large frame's probe.
        const SLACK: usize = 64 * 1024;
        const GROWTH_MOST: usize = 1 << 20;
        let page = address & !(PAGE - 1);
        let index = self.first_after(address);
        let Some(above) = self.regions.get(index).filter(|_| index < self.region_count).copied() else {
            return false;
        };
        let near = address + SLACK >= stack_pointer && above.start - page <= GROWTH_MOST;
        let holds_stack = stack_pointer < above.end && stack_pointer + GROWTH_MOST >= above.start;
        if !near || !holds_stack || above.protection & PROT_WRITE == 0 {
            return false;
        }
        let flags = n::MAP_PRIVATE | n::MAP_ANONYMOUS | n::MAP_FIXED_NOREPLACE | n::MAP_NORESERVE;
        // SAFETY: replaces nothing. Not part of the regions: the next sync finds the program's own
        // stack there, if it has grown so far.
        let mapped = unsafe { memory::map(page, above.start - page, above.protection, flags, -1, 0) };
        mapped == Ok(page) && self.remember_growth(page, above.start)
    }

    fn remember_growth(&mut self, start: usize, end: usize) -> bool {
        let Some(place) = self.grown.get_mut(self.grown_count) else {
            return false;
        };
        *place = (start, end);
        self.grown_count += 1;
        true
    }

    /// Takes back what `grow_stack` gave.
    pub(super) fn shrink_stack(&mut self) {
        for &(start, end) in self.grown.get(..self.grown_count).unwrap_or(&[]) {
            // SAFETY: our own zero pages.
            let _ = unsafe { memory::unmap(start, end - start) };
        }
        self.grown_count = 0;
    }

    /// Overwrites code in the mirror (the vDSO's functions).
    pub fn write_code(&mut self, process: i32, address: usize, code: &[u8]) -> bool {
        if !self.populate(process, address, code.len()) {
            return false;
        }
        let page = address & !(PAGE - 1);
        let length = (address + code.len()).next_multiple_of(PAGE) - page;
        let Some(region) = self.region_at(address) else {
            return false;
        };
        // SAFETY: mirror memory, made writable for the time of the copy.
        unsafe {
            if memory::protect(page, length, PROT_READ | PROT_WRITE).is_err() {
                return false;
            }
            core::ptr::copy_nonoverlapping(code.as_ptr(), address as *mut u8, code.len());
            memory::protect(page, length, region.protection).is_ok()
        }
    }
}
