//! The usual command lines of `run` and `stat`, as far as a look tells that takes no memory.

use runahead_host::{Detail, Limits, Options, Remember};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// What the command line says.
#[derive(Debug, Default, PartialEq)]
pub struct Words<'a> {
    is_stat: bool,
    stats: bool,
    no_speculate: bool,
    no_remember: bool,
    verbose: bool,
    report: Option<&'a OsStr>,
    /// Number of the command among the arguments.
    pub first: usize,
}

/// Arguments among which the command's name is, where nothing is out of the ordinary.
const LOOKED_AT: usize = 16;

impl<'a> Words<'a> {
    /// None where anything is out of the ordinary: clap is asked then (`runahead-tools`), which knows more
    /// forms and options, and what to say.
    pub fn take_apart(arguments: impl Iterator<Item = &'a OsStr>) -> Option<Words<'a>> {
        let mut arguments = arguments.take(LOOKED_AT).enumerate().skip(1);
        let is_stat = match arguments.next()?.1.to_str()? {
            "run" => false,
            "stat" => true,
            _ => return None,
        };
        let mut words = Words { is_stat, ..Words::default() };
        loop {
            let (place, word) = arguments.next()?;
            if !word.as_bytes().starts_with(b"-") {
                return Some(Words { first: place, ..words });
            }
            let switch = match word.to_str()? {
                "--" => {
                    let (first, command) = arguments.next()?;
                    return (command != "--").then_some(Words { first, ..words });
                }
                "--report" => {
                    let file = arguments.next()?.1;
                    if file.is_empty() || file.as_bytes().starts_with(b"-") || words.report.is_some() {
                        return None;
                    }
                    words.report = Some(file);
                    continue;
                }
                "--stats" => &mut words.stats,
                "--no-speculate" if !is_stat => &mut words.no_speculate,
                "--no-remember" if !is_stat => &mut words.no_remember,
                "--verbose" | "-v" if !is_stat => &mut words.verbose,
                _ => return None,
            };
            if std::mem::replace(switch, true) {
                return None;
            }
        }
    }

    pub fn options(&self) -> Options {
        let report = self.report.map(Into::into);
        let stats = (self.stats || self.is_stat).then_some(Detail::Words);
        if self.is_stat {
            return Options { stats, report, no_speculate: true, ..Options::default() };
        }
        let Words { no_speculate, verbose, .. } = *self;
        let limits = Limits::from_environment();
        let remember = if self.no_remember { None } else { Remember::usual() };
        Options { stats, report, no_speculate, verbose, limits, remember, ..Options::default() }
    }

    /// Whether it is said why a command runs plainly.
    pub fn speaks(&self) -> bool {
        self.verbose || self.stats || self.is_stat
    }
}
