//! Stubs of the speculator's own, in its own copy of the program's code.
//!
//! The agent rewrites only the sites that the program itself needs watched. All other system calls of
//! mirrored code would come through a signal, 1.2 us each. So a site that traps once is led through a
//! stub from then on. Unlike the agent we do not have to prove anything: the bytes before the `syscall`
//! are taken for `mov eax, NUMBER` if they look like it and the number is the one that was just called;
//! should that ever be wrong, a speculation goes astray and ends.

use crate::arch;
use crate::cell::Global;
use crate::layout;
use crate::mirror::MIRROR;
use runahead_kernel::memory::{self, PROT_EXEC, PROT_READ, PROT_WRITE};
use runahead_kernel::uapi::general as n;

/// Bytes of one area of stubs: room for 1024.
const AREA_BYTES: usize = 64 * 1024;

/// Libraries lie within 2 GiB of each other, and so does the program's own text; two areas for each.
const AREAS: usize = 4;

/// How far below the code an area is put: where the program is unlikely to map anything later, and well
/// within a near jump's reach.
const BELOW: usize = 0x4000_0000;

struct Areas {
    areas: [(usize, usize); AREAS],
    count: usize,
}

static STUBS: Global<Areas> = Global::new(Areas { areas: [(0, 0); AREAS], count: 0 });

/// Leads the site whose `syscall` ends at `after`, and which has just called `number`, through a stub.
pub fn adopt(after: usize, number: usize) {
    let site = after.wrapping_sub(arch::SITE_BYTES);
    let stable = |address: usize| MIRROR.get().region_at(address).is_some_and(|region| region.stable);
    if layout::is_ours(site, after) || !stable(site) || !stable(after) {
        return;
    }
    // SAFETY: the code that has just run, and what lies right before it in the same region.
    if !unsafe { arch::loads_number(site, number as u32) } {
        return;
    }
    let Some(stub) = STUBS.get().room(site) else {
        return;
    };
    // SAFETY: room for a stub in an area of our own.
    unsafe { arch::write_stub(stub, MIRROR.get().state_page(), after - arch::SYSCALL_BYTES, number as u32) };
    if let Some(jump) = arch::near_jump(site, stub) {
        MIRROR.get().write_code(crate::mirror::process(), site, &jump);
    }
}

impl Areas {
    /// Room for one stub in reach of `site`.
    fn room(&mut self, site: usize) -> Option<usize> {
        for (base, used) in self.areas.iter_mut().take(self.count) {
            if base.abs_diff(site) < BELOW * 3 / 2 && *used + arch::STUB_BYTES <= AREA_BYTES {
                *used += arch::STUB_BYTES;
                return Some(*base + *used - arch::STUB_BYTES);
            }
        }
        let place = self.areas.get_mut(self.count)?;
        let wanted = site.checked_sub(BELOW)? & !0xffff;
        let flags = n::MAP_PRIVATE | n::MAP_ANONYMOUS | n::MAP_FIXED_NOREPLACE;
        // SAFETY: replaces nothing; lies outside what is ours and what the mirror holds.
        let area =
            unsafe { memory::map(wanted, AREA_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC, flags, -1, 0) };
        if area != Ok(wanted) {
            return None;
        }
        *place = (wanted, arch::STUB_BYTES);
        self.count += 1;
        Some(wanted)
    }
}
