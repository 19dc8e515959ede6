//! Memory of the program's own that is on swap: what of it is asked for, ahead of a constant stride or of speculation.
//!
//! `/proc/PID/pagemap` tells what is on swap (bit 62, shown to whoever may read the process), 0.5 us a question. Nothing
//! else is ever asked for: a page that the program never touched would appear as a page of zeros, and cost it another
//! fault when it writes there. The kernel counts for each process what it has on swap (`VmSwap`); where that is
//! nothing, nobody looks at all.

use crate::PAGE;
use crate::swap_in::{Pages, SwapIn};
use runahead_policy::strides::Ask;
use runahead_policy::swapped::Streams;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

const SWAPPED: u64 = 1 << 62;

/// Pages that are asked about together, where they lie side by side.
const LOOKED_AT: usize = 128;
const WORD: usize = size_of::<u64>();

/// Speculation takes memory of its own, for copies. Where less than so much of what the program has in memory is on swap, that
/// costs more than it gains: words of 100 MB in a group of 96 MB took 0.8 to 0.9 s with it, 0.5 to 0.6 without.
const WORTH_ONE_IN: u64 = 2;

/// Bytes that a process has on swap; 0 where the kernel does not say.
pub fn on_swap(process: u32) -> u64 {
    bytes(&status(process), "VmSwap:")
}

fn status(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default()
}

fn bytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}

/// What came of a fault.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Followed {
    /// Pages that were asked for, and earlier ones that the program has passed.
    pub new: u32,
    pub useful: u32,
    /// Pages that were asked for and that the program has come to.
    pub used: u32,
    /// A stride serves it.
    pub served: bool,
    /// A stride may soon.
    pub steady: bool,
}

/// A process's memory on swap.
pub struct Memory {
    process: u32,
    /// While somebody watches.
    way: Option<Way>,
    /// There is none, and will be none.
    refused: bool,
    /// Pages that will be asked for together.
    collected: Pages,
    swapped: bool,
    /// Something is on swap, whether it can be brought in or not.
    any: bool,
    /// It is worth speculation.
    much: bool,
    /// There is room to bring some of it in.
    allowed: bool,
}

/// How it is seen, and brought in.
struct Way {
    pagemap: File,
    swap_in: SwapIn,
}

impl Way {
    fn to(process: u32) -> io::Result<Way> {
        let swap_in = SwapIn::new(process)?;
        Ok(Way { pagemap: File::open(format!("/proc/{process}/pagemap"))?, swap_in })
    }
}

/// Whether a process's memory can be brought in from swap; the error tells why not.
pub fn is_allowed(process: u32) -> io::Result<()> {
    Way::to(process).map(drop)
}

impl Memory {
    pub fn new(process: u32) -> Memory {
        Memory {
            process,
            way: None,
            refused: false,
            collected: Pages::NONE,
            swapped: false,
            any: false,
            much: false,
            allowed: false,
        }
    }

    /// Looks whether there is anything on swap at present. The error tells, once, why it cannot be brought in.
    pub fn refresh(&mut self) -> io::Result<()> {
        let status = status(self.process);
        let swapped = bytes(&status, "VmSwap:");
        self.any = swapped > 0;
        self.swapped = self.any && !self.refused;
        self.much = swapped.saturating_mul(WORTH_ONE_IN) >= bytes(&status, "VmRSS:");
        if self.swapped && self.way.is_none() {
            match Way::to(self.process) {
                Ok(way) => self.way = Some(way),
                Err(error) => {
                    (self.swapped, self.refused) = (false, true);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Whether some of it may be brought in at present.
    pub fn allow(&mut self, allowed: bool) {
        self.allowed = allowed;
    }

    /// Whether faults on it are of interest.
    pub fn is_swapped(&self) -> bool {
        self.swapped
    }

    /// Whether there is something on swap that nobody but the program may touch: also where it cannot be brought in.
    pub fn is_any_on_swap(&self) -> bool {
        self.any
    }

    /// Nobody watches any more: what waits is not brought in.
    pub fn rest(&mut self) {
        self.forget();
        self.way = None;
        (self.swapped, self.any) = (false, false);
    }

    /// What was asked for and is not begun yet is not wanted any more.
    pub fn forget(&mut self) {
        self.collected = Pages::NONE;
        self.way.iter().for_each(|way| way.swap_in.clear());
    }

    /// Whether the page at an address is on swap still, and speculation from there is worth it: who has faulted there
    /// waits.
    pub fn is_waited_for(&self, address: u64) -> bool {
        self.much
            && self.allowed
            && self
                .way
                .as_ref()
                .is_some_and(|way| Look::at(&way.pagemap, i64::MAX).is_swapped(address / PAGE))
    }

    /// Has a page brought in that speculation has foretold: together with others that follow.
    pub fn bring_page(&mut self, address: u64) {
        self.collected.add(address);
        if self.collected.is_full() {
            self.no_more_pages();
        }
    }

    /// Those that were foretold last are not to wait for others.
    pub fn no_more_pages(&mut self) {
        let pages = std::mem::replace(&mut self.collected, Pages::NONE);
        // Those for which there is no room the program brings in itself.
        if self.allowed
            && pages.count() > 0
            && let Some(way) = &mut self.way
        {
            way.swap_in.bring(pages);
        }
    }

    /// Takes in a fault in the mapping from `start` to `end`. `room`: pages that may be ahead of the thread.
    pub fn follow(
        &mut self,
        streams: &mut Streams,
        (instruction, address): (u64, u64),
        (start, end): (u64, u64),
        room: u32,
    ) -> Followed {
        let outcome = streams.fault(instruction, address, room);
        let (useful, served) = (outcome.useful, outcome.served);
        let mut followed = Followed { useful, used: useful, served, ..Followed::default() };
        if let Some(ask) = outcome.ask {
            let (taken, brought) = self.bring(ask, start..end);
            streams.asked(outcome.stream, ask, taken, brought);
            followed.new = brought;
        }
        followed
    }

    /// Has brought in what is on swap of what is asked for. Returns how many steps of it were taken and how many pages
    /// they are.
    fn bring(&mut self, ask: Ask, within: std::ops::Range<u64>) -> (u32, u32) {
        let Some(Way { pagemap, swap_in }) = &mut self.way else { return (ask.count, 0) };
        let mut look = Look::at(pagemap, ask.stride);
        let (mut taken, mut brought, mut together, mut page_before) = (0, 0, Pages::NONE, None);
        for (number, address) in ask.addresses().enumerate() {
            let page = address / PAGE;
            let wanted = within.contains(&address) && page_before != Some(page) && look.is_swapped(page);
            page_before = Some(page);
            if wanted {
                together.add(address);
            }
            if together.is_full() {
                let count = together.count() as u32;
                if !swap_in.bring(together) {
                    return (taken, brought);
                }
                brought += count;
                together = Pages::NONE;
                taken = number as u32 + 1;
            }
        }
        let last = together.count() as u32;
        if last > 0 && swap_in.bring(together) {
            brought += last;
        }
        (ask.count, brought)
    }
}

/// Some words of a process's pagemap.
struct Look<'a> {
    pagemap: &'a File,
    /// Pages that are read at a time, and whether those before the one that is asked about.
    together: usize,
    backwards: bool,
    first: u64,
    bytes: [u8; LOOKED_AT * WORD],
    filled: usize,
}

impl Look<'_> {
    fn at(pagemap: &File, stride: i64) -> Look<'_> {
        let apart = (stride.unsigned_abs() / PAGE).max(1) as usize;
        let together = (LOOKED_AT / apart).max(1);
        Look { pagemap, together, backwards: stride < 0, first: 0, bytes: [0; LOOKED_AT * WORD], filled: 0 }
    }

    /// Whether the page of this number is on swap. What cannot be told is not.
    fn is_swapped(&mut self, page: u64) -> bool {
        if !(self.first..self.first + self.filled as u64).contains(&page) {
            let before = if self.backwards { self.together as u64 - 1 } else { 0 };
            self.first = page.saturating_sub(before);
            let room = &mut self.bytes[..self.together * WORD];
            self.filled = self.pagemap.read_at(room, self.first * WORD as u64).unwrap_or(0) / WORD;
        }
        let Some(at) = page.checked_sub(self.first).filter(|&at| at < self.filled as u64) else {
            return false;
        };
        let word = std::array::from_fn(|byte| self.bytes[at as usize * WORD + byte]);
        u64::from_ne_bytes(word) & SWAPPED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_swap_is_read() {
        let status = "VmRSS:\t 5 kB\nVmSwap:\t     12 kB\nHugetlb: 0 kB\n";
        assert_eq!(["VmRSS:", "VmSwap:"].map(|name| bytes(status, name)), [5 << 10, 12 << 10]);
        assert_eq!(["", "VmSwap: x kB"].map(|status| bytes(status, "VmSwap:")), [0, 0]);
    }

    #[test]
    fn what_is_in_memory_is_not_asked_for() {
        let map = memmap2::MmapMut::map_anon(256 * PAGE as usize).unwrap();
        let start = map.as_ptr() as u64;
        let end = start + 256 * PAGE;
        let mut memory = Memory::new(std::process::id());
        memory.way = Way::to(std::process::id()).inspect_err(|error| eprintln!("SKIPPED: {error}")).ok();
        let mut streams = Streams::default();
        let mut served = 0;
        for step in 0..256 {
            let followed = memory.follow(&mut streams, (7, start + step * PAGE), (start, end), 1024);
            assert_eq!((followed.new, followed.useful), (0, 0));
            served += u32::from(followed.served);
        }
        assert!(served > 200, "{served}");
    }
}
