//! Recorded programs, as text.
//!
//! Lines of words. Numbers name files, names and instructions; times are ns, but those of steps, which are
//! tenths of microseconds. What a step says of places is left out where it goes on behind the one before it.
//!
//! ```text runahead-replay 1 name grep-r processors 2 costs start 2000000 sync 300000 restart 20000 look 1500
//! operation 10000 measured cloud alone 123456789 ours 23456789 warm thread 120 r3 0 4096        computes 12
//! us, then reads 4096 bytes at 0 of file 3 15 r3 + 4096 d       at where the latest read of file 3 ended;
//! which follows from the data of the step before 7 n12 !              looks name 12 up; speculation does not
//! get beyond what is before that 30 t4 120 8          touches page 120 of file 4, at instruction 8 ```

use std::collections::HashMap;
use std::fmt::Write as _;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// A program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    pub name: String,
    /// Processors that it has to share with its speculator.
    pub processors: u32,
    /// All that it reads is cached when it begins.
    pub warm: bool,
    pub costs: Costs,
    pub measured: Vec<Measured>,
    pub threads: Vec<Vec<Step>>,
}

/// What our own parts take, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// The first start of a speculator.
    pub start: u64,
    pub sync: u64,
    /// To hand the registers over, in the program.
    pub restart: u64,
    /// To look at a read, in the program.
    pub look: u64,
    /// To emulate an operation.
    pub operation: u64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs { start: 2_000_000, sync: 300_000, restart: 20_000, look: 1_500, operation: 10_000 }
    }
}

/// What the program took on a disk of slowdisk's, ns.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub disk: String,
    pub alone: u64,
    pub ours: u64,
}

/// One thing that a thread does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Computing before it, ns.
    pub compute: u64,
    pub what: What,
    pub known: Known,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    Read { file: u32, place: u64, length: u64 },
    Name { number: u32 },
    Touch { file: u32, page: u64, instruction: u32 },
}

/// Whether speculation can know of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    Always,
    /// Once the data of the step before is there.
    AfterData,
    /// Not if it began before it.
    Never,
}

impl Trace {
    /// Reads what [`Trace::text`] has written.
    pub fn parse(text: &str) -> Result<Trace, String> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
        if lines.next().map(|(_, line)| line) != Some("runahead-replay 1") {
            return Err("it is no recorded program of version 1".to_owned());
        }
        let mut trace = Trace { processors: 2, ..Trace::default() };
        let mut ends = HashMap::new();
        for (number, line) in lines {
            trace
                .line(line, &mut ends)
                .ok_or_else(|| format!("line {}: '{line}' says nothing", number + 1))?;
        }
        Ok(trace)
    }

    fn line(&mut self, line: &str, ends: &mut HashMap<u32, u64>) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        match *words.first()? {
            "name" => self.name = (*words.get(1)?).to_owned(),
            "processors" => self.processors = u32::try_from(number(1)?).ok()?,
            "warm" => self.warm = true,
            "thread" => self.threads.push(Vec::new()),
            "costs" => {
                self.costs = Costs {
                    start: number(2)?,
                    sync: number(4)?,
                    restart: number(6)?,
                    look: number(8)?,
                    operation: number(10)?,
                };
            }
            "measured" => {
                let disk = (*words.get(1)?).to_owned();
                self.measured.push(Measured { disk, alone: number(3)?, ours: number(5)? });
            }
            _ => {
                let step = step(&words, ends)?;
                self.threads.last_mut()?.push(step);
            }
        }
        Some(())
    }

    /// The program as text.
    pub fn text(&self) -> String {
        let Costs { start, sync, restart, look, operation } = self.costs;
        let mut text = format!(
            "runahead-replay 1\nname {}\nprocessors {}\ncosts start {start} sync {sync} restart {restart} \
             look {look} operation {operation}\n",
            self.name, self.processors
        );
        for Measured { disk, alone, ours } in &self.measured {
            let _ = writeln!(text, "measured {disk} alone {alone} ours {ours}");
        }
        if self.warm {
            text += "warm\n";
        }
        let mut ends = HashMap::new();
        for thread in &self.threads {
            text += "thread\n";
            for step in thread {
                let _ = write!(text, "{} ", step.compute / 100);
                let _ = match step.what {
                    What::Read { file, place, length } => {
                        let goes_on = ends.insert(file, place + length).unwrap_or(0) == place;
                        let place = if goes_on { "+".to_owned() } else { place.to_string() };
                        write!(text, "r{file} {place} {length}")
                    }
                    What::Name { number } => write!(text, "n{number}"),
                    What::Touch { file, page, instruction } => write!(text, "t{file} {page} {instruction}"),
                };
                text += match step.known {
                    Known::Always => "\n",
                    Known::AfterData => " d\n",
                    Known::Never => " !\n",
                };
            }
        }
        text
    }
}

fn step(words: &[&str], ends: &mut HashMap<u32, u64>) -> Option<Step> {
    let (words, known) = match words.split_last()? {
        (&"d", before) => (before, Known::AfterData),
        (&"!", before) => (before, Known::Never),
        _ => (words, Known::Always),
    };
    let compute = words.first()?.parse::<u64>().ok()?.checked_mul(100)?;
    let (kind, number) = words.get(1)?.split_at_checked(1)?;
    let number: u32 = number.parse().ok()?;
    let what = match (kind, words.get(2..)?) {
        ("r", [place, length]) => {
            let end = ends.entry(number).or_default();
            let place = if *place == "+" { *end } else { place.parse().ok()? };
            let length = length.parse().ok()?;
            *end = place.checked_add(length)?;
            What::Read { file: number, place, length }
        }
        ("n", []) => What::Name { number },
        ("t", [page, instruction]) => {
            What::Touch { file: number, page: page.parse().ok()?, instruction: instruction.parse().ok()? }
        }
        _ => return None,
    };
    Some(Step { compute, what, known })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let step = |compute, what, known| Step { compute, what, known };
        let read = |file, place, length| What::Read { file, place, length };
        let trace = Trace {
            name: "some".to_owned(),
            processors: 1,
            warm: true,
            costs: Costs::default(),
            measured: vec![Measured { disk: "cloud".to_owned(), alone: 3, ours: 2 }],
            threads: vec![
                vec![
                    step(1_200, read(3, 0, 4096), Known::Always),
                    step(100, read(3, 4096, 4096), Known::AfterData),
                    step(0, read(3, 0, 100), Known::Never),
                ],
                vec![
                    step(0, read(3, 100, 1), Known::Always),
                    step(700, What::Name { number: 9 }, Known::Always),
                    step(0, What::Touch { file: 7, page: 1 << 40, instruction: 2 }, Known::AfterData),
                ],
            ],
        };
        assert_eq!(Trace::parse(&trace.text()).unwrap(), trace);
        assert!(trace.text().contains("r3 + 4096 d\n"), "{}", trace.text());
    }

    #[test]
    fn what_is_none_is_refused() {
        for (text, why) in [
            ("", "version"),
            ("runahead-replay 2\n", "version"),
            ("runahead-replay 1\n1 r1 0 1\n", "line 2"),
            ("runahead-replay 1\nthread\n1 r1 0\n", "line 3"),
            ("runahead-replay 1\nthread\n99999999999999999999 n1\n", "line 3"),
            ("runahead-replay 1\nthread\n1 x1\n", "line 3"),
        ] {
            let error = Trace::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
