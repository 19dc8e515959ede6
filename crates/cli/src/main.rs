//! What a plain run does not need (`runahead-tools`, which `runahead` becomes): the other subcommands, and
//! all of the command line, with what to say of a wrong one. No policy lives here.
//!
//! `main` is the C library's: the standard library's start-up changes what a command inherits (`host::program`).
#![cfg_attr(not(test), no_main)]

mod again;
mod arguments;
#[cfg(test)]
mod words;

use arguments::{Action, Arguments, Doctor, Enable, Profile, Run, Warm};
use clap::Parser as _;
use runahead_host::profiles::{self, Outcome};
use runahead_host::{
    Detail, DoctorSubject, Failure, Limits, Options, Prefixes, Remember, SayHowFar, TraceTo, enabled,
};
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::PathBuf;

#[global_allocator]
static ALLOCATOR: runahead_host::Allocator = runahead_host::Allocator;

fn daemon(socket: Option<PathBuf>) -> u8 {
    let Err(error) = runahead_host::daemon(socket.as_deref());
    eprintln!("runahead: cannot serve the view: {error}");
    Failure::OURS
}

fn prepare(places: Vec<PathBuf>, output: Option<PathBuf>) -> u8 {
    match runahead_host::prepare(places, output) {
        Ok(said) => {
            println!("{said}");
            0
        }
        Err(why) => {
            eprintln!("runahead: {why}");
            1
        }
    }
}

fn forget(command: Option<&OsStr>) -> u8 {
    match runahead_host::forget(command) {
        Ok(said) => {
            println!("{said}");
            0
        }
        Err(why) => {
            eprintln!("runahead: {why}");
            1
        }
    }
}

impl Run {
    /// What stands on the command line, else in the environment, where it means the same to the library.
    fn limits(&self) -> Limits {
        let limits = Limits::from_environment();
        Limits {
            memory: self.max_memory.unwrap_or(limits.memory),
            in_flight: self.max_inflight.unwrap_or(limits.in_flight),
            bandwidth: self.max_bandwidth.unwrap_or(limits.bandwidth),
            ..limits
        }
    }
}

impl Run {
    /// What the run begins with and is kept in, if it is.
    fn remember(&self) -> Option<Remember> {
        let remember = match (self.remember, self.no_remember) {
            (true, _) => Some(Remember::asked_for()),
            (false, true) => None,
            (false, false) => Remember::usual(),
        };
        match &self.profile {
            Some(profile) => Some(Remember::with_profile(remember, profile, Prefixes(self.prefix.clone()))),
            None => remember,
        }
    }
}

impl Profile {
    fn act(self) -> Outcome {
        match self {
            Profile::Show { json, profile } => profiles::show(&profile, json),
            Profile::Merge { output, profiles } => profiles::merge(&profiles, &output),
            Profile::Trim { output, only, except, max_bytes, profile } => {
                profiles::trim(&profile, output.as_deref(), (&only, &except), max_bytes)
            }
            Profile::Check { json, prefix, profile } => profiles::check(&profile, &Prefixes(prefix), json),
        }
    }
}

/// Says what came of it; returns the exit status.
fn tell(outcome: Outcome) -> u8 {
    let (status, said) = match outcome {
        Outcome::All(said) => (0, said),
        Outcome::Partly(said) => (1, said),
        Outcome::Failed(why) => {
            eprintln!("runahead: {why}");
            return 2;
        }
    };
    // Nobody may be listening.
    let _ = writeln!(std::io::stdout(), "{said}");
    status
}

impl Doctor {
    fn examine(self, allowed: Result<(), String>) -> u8 {
        let subject = match self.command.is_empty() {
            true => DoctorSubject::Place(self.path.unwrap_or_else(|| ".".into())),
            false => DoctorSubject::Command(self.command),
        };
        runahead_host::doctor(subject, allowed, self.json)
    }
}

/// Arguments among which the command's name surely is, since our own options are few. Only these are taken
/// apart: a command may have ten thousand, and clap takes a microsecond for each.
const LOOKED_AT: usize = 64;

/// Our options that have a value as a word of its own.
const WITH_VALUES: [&str; 9] = [
    "--report",
    "--trace",
    "--max-memory",
    "--max-inflight",
    "--max-bandwidth",
    "--profile",
    "--prefix",
    "--output",
    "-o",
];

/// Where the command begins, as far as a look tells that takes no memory: for the last resort, before the command line is
/// taken apart. None: there is no command, or the command line is wrong.
fn place_of_command<'a>(words: impl Iterator<Item = &'a std::ffi::OsStr>) -> Option<usize> {
    let mut words = words.enumerate().skip(1);
    match words.next()?.1.to_str()? {
        "run" | "stat" | "record" => {}
        _ => return None,
    }
    while let Some((place, word)) = words.next() {
        match word.to_str() {
            Some("--") => return words.next().map(|(place, _)| place),
            Some(word) if WITH_VALUES.contains(&word) => drop(words.next()),
            Some(word) if word.starts_with('-') && word != "-" => {}
            _ => return Some(place),
        }
    }
    None
}

/// Called by the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn main(_count: i32, _arguments: *const *const std::ffi::c_char) -> i32 {
    if again::is_again() {
        return again::run(runahead_host::serve).into();
    }
    let allowed = runahead_host::check_filters();
    let status = match place_of_command(runahead_host::arguments()) {
        Some(place) => {
            // What may not be done is not done for the last resort's sake either.
            if allowed.is_ok() {
                runahead_host::arm_last_resort(place, false);
            }
            act(allowed)
        }
        None => act_with_room(allowed),
    };
    let _ = std::io::stdout().flush();
    status.into()
}

/// Bytes of stack for what becomes no command: a limit may leave us less than that takes (clap alone 20 KB),
/// and there is no command that could be run plainly instead.
const ROOM: usize = 1 << 20;

/// Does on a stack of its own, if one is to be had, what becomes no command; returns the exit status.
fn act_with_room(allowed: Result<(), String>) -> u8 {
    let before = allowed.clone();
    let thread = std::thread::Builder::new().stack_size(ROOM).spawn(move || match take_apart() {
        Ok(arguments) => answer(arguments.action, before),
        Err(status) => Some(status),
    });
    // A process of one thread becomes the command.
    thread.ok().and_then(|thread| thread.join().ok()).flatten().unwrap_or_else(|| act(allowed))
}

/// Words of our own command line that are looked at.
fn looked_at() -> usize {
    let most = if place_of_command(runahead_host::arguments()).is_some() { LOOKED_AT } else { usize::MAX };
    runahead_host::arguments().take(most).count()
}

/// The command line, or the exit status for one that is wrong.
fn take_apart() -> Result<Arguments, u8> {
    runahead_host::fill_standard_descriptors();
    Arguments::try_parse_from(runahead_host::arguments().take(looked_at())).map_err(|error| {
        let _ = error.print();
        if error.use_stderr() { Failure::OURS } else { 0 }
    })
}

/// Options and command of what becomes one.
fn split(action: Action) -> Result<(Options, Vec<OsString>), Box<Action>> {
    match action {
        Action::Run(run) => {
            let remember = run.remember();
            let options = Options {
                limits: run.limits(),
                stats: run.stats,
                report: run.report,
                trace: run.trace.map(TraceTo::new),
                progress: run.progress.then_some(runahead_host::progress as SayHowFar),
                no_speculate: run.no_speculate,
                verbose: run.verbose,
                remember,
                again: false,
            };
            Ok((options, run.command))
        }
        Action::Stat(stat) => {
            let options = Options {
                stats: Some(stat.stats.unwrap_or(Detail::Words)),
                report: stat.report,
                no_speculate: true,
                ..Options::default()
            };
            Ok((options, stat.command))
        }
        other => Err(Box::new(other)),
    }
}

/// Does what becomes no command; returns the exit status. None: it is to become one.
fn answer(action: Action, allowed: Result<(), String>) -> Option<u8> {
    Some(match action {
        Action::Run(_) | Action::Stat(_) | Action::Record(_) => return None,
        Action::Warm(Warm { prefix, max_memory, profile }) => {
            tell(profiles::warm(&profile, &Prefixes(prefix), max_memory))
        }
        Action::Profile { action } => tell(action.act()),
        Action::Doctor(doctor) => doctor.examine(allowed),
        Action::Report { report, output, trace } => {
            let why = runahead_host::make_page(&report, output.as_deref(), trace.as_deref());
            eprintln!("runahead: {why}");
            Failure::OURS
        }
        Action::Daemon { socket } => daemon(socket),
        Action::Prepare { output, places } => prepare(places, output),
        Action::Enable(enable) if enable.print_env => say(enabled::print_env()),
        Action::Enable(enable) => {
            let Enable { whom, only, except, .. } = enable;
            say(enabled::enable(whom.meant(), &enabled::Rules { only, except }))
        }
        Action::Disable { whom } => say(enabled::disable(whom.meant())),
        Action::Status => {
            let (said, is_on) = enabled::status();
            println!("{said}");
            u8::from(!is_on)
        }
        Action::Serve { foreground, wait } => {
            let served = if foreground { enabled::serve_here(wait) } else { enabled::serve_beside() };
            said(served)
        }
        Action::Forget { command } => forget(command.as_deref()),
    })
}

fn say(result: Result<String, String>) -> u8 {
    said(result.map(|text| println!("{text}")))
}

/// The exit status of what is done or is not.
fn said(result: Result<(), String>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("runahead: {why}");
            1
        }
    }
}

impl arguments::Whom {
    fn meant(&self) -> enabled::Whom {
        if self.system { enabled::Whom::System } else { enabled::Whom::User }
    }
}

/// Does what the command line says; returns the exit status. A command has taken this process over by then,
/// if it could.
///
/// Not a part of `main`: should there be no room for all that this has on the stack, the last resort is armed
/// by then.
#[inline(never)]
fn act(allowed: Result<(), String>) -> u8 {
    let may_arm = allowed.is_ok();
    let arguments = match take_apart() {
        Ok(arguments) => arguments,
        Err(status) => return status,
    };
    let (options, command) = match split(arguments.action) {
        Ok(both) => both,
        Err(other) => match *other {
            Action::Record(record) => match Remember::record(&record.output) {
                Ok(remember) => {
                    let limits = Limits::from_environment();
                    let options = Options { limits, remember: Some(remember), ..Options::default() };
                    (options, record.command)
                }
                Err(why) => {
                    eprintln!("runahead: cannot write the profile to {why}; nothing was started");
                    return Failure::OURS;
                }
            },
            other => return answer(other, allowed).unwrap_or(Failure::OURS),
        },
    };
    let first = looked_at() - command.len();
    runahead_host::take_name();
    if may_arm {
        runahead_host::arm_last_resort(first, options.speaks());
    }
    let failure = runahead_host::run(options, first, allowed, runahead_host::serve);
    eprintln!("runahead: {}", failure.message());
    failure.status()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Words;
    use clap::CommandFactory;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn the_command_is_found_where_clap_finds_it() {
        for line in [
            "runahead run true",
            "runahead run -- true",
            "runahead run --stats -v true --report x",
            "runahead run --stats=full true",
            "runahead stat --stats=full -- true",
            "runahead run --report x --max-memory 1M -- true a",
            "runahead run --report=x --max-inflight 3 --max-bandwidth=1G cat - --",
            "runahead stat --report x cat",
            "runahead run - a",
            "runahead run --trace x --progress cat y",
            "runahead run --profile x --prefix /a=/b -- cat y",
            "runahead run --profile=x --prefix=/a=/b cat y",
            "runahead record -o x -- cat y",
            "runahead record -ox cat y",
            "runahead record --output x cat y",
        ] {
            let words: Vec<&OsStr> = line.split(' ').map(OsStr::new).collect();
            let command = match Arguments::try_parse_from(&words).unwrap().action {
                Action::Run(run) => run.command,
                Action::Stat(stat) => stat.command,
                Action::Record(record) => record.command,
                _ => unreachable!(),
            };
            let place = place_of_command(words.iter().copied());
            assert_eq!(place, Some(words.len() - command.len()), "{line}");
        }
        for line in [
            "runahead",
            "runahead run",
            "runahead daemon --socket x",
            "runahead doctor a",
            "runahead run --report x",
            "runahead record -o x",
            "runahead warm x",
            "runahead profile show x",
        ] {
            assert_eq!(place_of_command(line.split(' ').map(OsStr::new)), None, "{line}");
        }
    }

    /// The options that clap makes of a command line, and the number of the command.
    fn asked(words: &[&OsStr]) -> Option<(Options, usize)> {
        let (options, command) = split(Arguments::try_parse_from(words).ok()?.action).ok()?;
        Some((options, words.len() - command.len()))
    }

    /// All command lines of up to four or five of these words: a look says what clap says, or that it does
    /// not know.
    #[test]
    fn what_a_look_tells_is_what_clap_says() {
        const WORDS: [&str; 23] = [
            "run",
            "stat",
            "doctor",
            "--",
            "--stats",
            "--stats=full",
            "-v",
            "--verbose",
            "--no-speculate",
            "--remember",
            "--no-remember",
            "--report",
            "--report=x",
            "--max-memory",
            "--max-memory=1K",
            "again",
            "0",
            "7M",
            "",
            "-",
            "-vv",
            "--profile",
            "--profile=x",
        ];
        let (mut known, mut wrong) = (0, 0);
        let mut look = |words: &[&str]| {
            let words: Vec<&OsStr> =
                std::iter::once("runahead").chain(words.iter().copied()).map(OsStr::new).collect();
            let expected = asked(&words);
            match Words::take_apart(words.iter().copied()) {
                Some(found) => {
                    known += 1;
                    let options = found.options();
                    assert_eq!(found.speaks(), options.speaks());
                    let found = (options, found.first);
                    let [found, expected] = [Some(found), expected].map(|asked| format!("{asked:?}"));
                    assert_eq!(found, expected, "{words:?}");
                }
                None => wrong += u32::from(expected.is_none()),
            }
        };
        for first in WORDS {
            for second in WORDS {
                look(&[first, second]);
                for third in WORDS {
                    look(&[first, second, third]);
                    if first == "run" || first == "stat" {
                        WORDS.iter().for_each(|fourth| look(&[first, second, third, fourth]));
                    }
                }
            }
        }
        assert!(known > 1000 && wrong > 1000, "{known} {wrong}");
    }

    #[test]
    fn a_usual_command_line_needs_nobody_else() {
        for line in [
            "runahead run true",
            "runahead run -- true -x",
            "runahead run --stats --verbose --report x --no-speculate --no-remember -- true",
            "runahead stat --report x -- true",
        ] {
            let words: Vec<&OsStr> = line.split(' ').map(OsStr::new).collect();
            assert!(Words::take_apart(words.into_iter()).is_some(), "{line}");
        }
        let odd = OsStr::from_bytes(b"--report=\xff");
        let words = [OsStr::new("runahead"), OsStr::new("run"), odd, odd];
        assert_eq!(Words::take_apart(words.into_iter()), None);
    }

    #[test]
    fn options_with_values_are_all_known() {
        for action in ["run", "stat", "record"] {
            let command = Arguments::command();
            let action = command.find_subcommand(action).unwrap();
            let options = action.get_arguments().filter(|one| {
                // One that takes a value only behind `=` is one word.
                one.get_action().takes_values() && !one.is_require_equals_set()
            });
            for long in options.filter_map(|one| one.get_long()) {
                assert!(WITH_VALUES.contains(&format!("--{long}").as_str()), "--{long}");
            }
            let short = |one: &&clap::Arg| one.get_short().is_some() && one.get_action().takes_values();
            for short in action.get_arguments().filter(short).filter_map(|one| one.get_short()) {
                assert!(WITH_VALUES.contains(&format!("-{short}").as_str()), "-{short}");
            }
        }
    }
}
