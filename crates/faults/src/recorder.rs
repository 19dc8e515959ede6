//! Every fault of one thread, with its registers where they may be wanted.
//!
//! What a record costs the program depends on what is in it. 20,000 touches at random of a cached file of 256 MB, a
//! fault in five, one processor's virtual machine, Linux 6.18: a fault that nobody records takes 3.0 us, one that is
//! counted 0.1 more, one that is recorded with instruction, time and address 0.6 more, and with 18 registers
//! besides 1.3. Speculation begins with registers, but while it is on track, or a stride is followed, nobody looks at
//! them. So there are two events for the same faults, which write into one ring, and one of them is on.
//!
//! Going from one to the other takes two system calls, and an interrupt where the thread is running. A fault between them
//! is seen by nobody.

use crate::event::{Event, Kind, Sharing};
use crate::record::Fault;
use std::io;

pub struct Recorder {
    whole: Event,
    /// The same without registers. None where there could be no second event: then registers are always there.
    lean: Option<Sharing>,
    registers: bool,
    one_in: u64,
}

impl Recorder {
    /// Begins to record every fault of a thread, without registers. Fails with EACCES where `perf_event_paranoid` forbids it.
    pub fn start(thread: i32) -> io::Result<Recorder> {
        let whole = Event::open(thread, Kind::Every)?;
        let lean = Sharing::open(thread, &whole).ok();
        let recorder = Recorder { whole, registers: lean.is_none(), lean, one_in: 1 };
        recorder.enable();
        Ok(recorder)
    }

    fn enable(&self) {
        match &self.lean {
            Some(lean) if !self.registers => {
                self.whole.enable(false);
                lean.enable(true);
            }
            Some(lean) => {
                lean.enable(false);
                self.whole.enable(true);
            }
            None => self.whole.enable(true),
        }
    }

    /// From now on faults are recorded with their registers, or without.
    pub fn want_registers(&mut self, wanted: bool) {
        if self.lean.is_some() && wanted != self.registers {
            self.registers = wanted;
            self.enable();
        }
    }

    /// Of so many faults one is recorded.
    pub fn one_in(&self) -> u64 {
        self.one_in
    }

    /// From now on one of so many is recorded, if the kernel agrees. The others cost the program next to nothing.
    pub fn record_one_in(&mut self, period: u64) {
        if period != self.one_in
            && self.whole.record_one_in(period)
            && self.lean.as_ref().is_none_or(|lean| lean.record_one_in(period))
        {
            self.one_in = period;
        }
    }

    /// Takes out what was recorded since the last time.
    pub fn take(&mut self, each: impl FnMut(Fault)) {
        self.whole.take(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::tests::fault_on_512_pages;

    fn recorded(recorder: &mut Recorder) -> Vec<Fault> {
        recorder.take(|_| ());
        fault_on_512_pages();
        let mut recorded = Vec::new();
        recorder.take(|fault| recorded.push(fault));
        recorded
    }

    #[test]
    fn registers_are_there_when_they_are_wanted() {
        // SAFETY: takes no address.
        let thread = unsafe { libc::gettid() };
        let mut recorder = match Recorder::start(thread) {
            Ok(recorder) => recorder,
            Err(error) => return eprintln!("SKIPPED: {error}"),
        };
        for wanted in [false, true, false, true] {
            recorder.want_registers(wanted);
            let faults = recorded(&mut recorder);
            assert!((512..530).contains(&faults.len()), "{}", faults.len());
            assert!(faults.iter().all(|fault| fault.registers.is_some() == wanted));
            assert!(faults.is_sorted_by_key(|fault| fault.time));
        }
        // The kernel takes two at once for the first of a new period, and where there were 400 in this tick lets none be recorded
        // until the next one (`__perf_event_account_interrupt`).
        std::thread::sleep(std::time::Duration::from_millis(20));
        recorder.record_one_in(8);
        for wanted in [true, false] {
            recorder.want_registers(wanted);
            let count = recorded(&mut recorder).len();
            assert!((63..=68).contains(&count), "{wanted}: {count}");
        }
    }
}
