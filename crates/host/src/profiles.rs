//! `runahead profile` and `runahead warm`: what is in a profile, and asking for it without a program.

use crate::remembered::room;
use crate::report::printable;
use crate::room::Room;
use runahead_abi::session::remembering;
use runahead_gate::Gate;
use runahead_remembered::look::Mounts;
use runahead_remembered::profile::{self, Prefixes, Standing, Trim};
use runahead_remembered::replay::{Bounds, Replay, Words};
use runahead_remembered::{Memory, PAGE, Want, What};
use serde::Serialize;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::thread;
use std::time::Duration;

/// What one of these commands has come to.
#[derive(Debug)]
pub enum Outcome {
    /// All that was wanted, and what there is to say.
    All(String),
    /// Not all of it.
    Partly(String),
    /// Nothing: why.
    Failed(String),
}

/// `OLD=NEW` from the command line: what was recorded below OLD is below NEW.
pub fn prefix(text: &OsStr) -> Result<(Vec<u8>, Vec<u8>), String> {
    let wrong = || format!("'{}' is no OLD=NEW of two folders, OLD from the root", text.display());
    let bytes = text.as_bytes();
    let at = bytes.iter().position(|&byte| byte == b'=').ok_or_else(wrong)?;
    let (old, new) = (&bytes[..at], &bytes[at + 1..]);
    if old.first() != Some(&b'/') || new.is_empty() {
        return Err(wrong());
    }
    Ok((old.to_vec(), from_the_root(Path::new(OsStr::from_bytes(new)))))
}

fn from_the_root(path: &Path) -> Vec<u8> {
    std::env::current_dir().unwrap_or_default().join(path).into_os_string().into_encoded_bytes()
}

fn read(path: &Path) -> Result<Memory, String> {
    profile::read(path).map_err(|why| printable(&format!("{}: {why}", path.display())))
}

fn write(path: &Path, memory: &Memory) -> Result<(), String> {
    profile::save(path, memory).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// A name of a profile, for the JSON.
#[derive(Serialize)]
struct Entry {
    path: String,
    kind: &'static str,
    /// Of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified_ns: Option<u64>,
    /// First byte and length of what is wanted of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<Vec<(u64, u64)>>,
    bytes: u64,
    /// What has become of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    standing: Option<&'static str>,
}

impl Entry {
    fn of(want: &Want, standing: Option<Standing>) -> Entry {
        let path = String::from_utf8_lossy(&want.path).into_owned();
        let standing = standing.map(Standing::word);
        let bytes = wanted(want);
        match &want.what {
            What::File { identity, pages, .. } => {
                let bytes_of = |range: std::ops::Range<u32>| {
                    let start = u64::from(range.start) * PAGE;
                    (start, (u64::from(range.end) * PAGE).min(identity.size) - start)
                };
                let ranges = Some(pages.iter().map(bytes_of).collect());
                let (size, modified_ns) = (Some(identity.size), Some(identity.modified));
                Entry { path, kind: "file", size, modified_ns, ranges, bytes, standing }
            }
            What::Directory { .. } => Entry::plain(path, "directory", standing),
            What::Name => Entry::plain(path, "name", standing),
        }
    }

    fn plain(path: String, kind: &'static str, standing: Option<&'static str>) -> Entry {
        Entry { path, kind, size: None, modified_ns: None, ranges: None, bytes: 0, standing }
    }
}

/// Version of the JSON's layout.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document {
    version: u32,
    /// None: of several.
    executable: Option<String>,
    files: u64,
    directories: u64,
    names: u64,
    bytes: u64,
    entries: Vec<Entry>,
}

impl Document {
    fn text(memory: &Memory, wants: &[Want], standings: Option<&[Standing]>) -> String {
        let Counts { files, directories, names, bytes } = Counts::of(wants);
        let entry = |(at, want)| Entry::of(want, standings.map(|standings| standings[at]));
        let entries = wants.iter().enumerate().map(entry).collect();
        let executable = executable(memory);
        let document = Document { version: VERSION, executable, files, directories, names, bytes, entries };
        serde_json::to_string_pretty(&document).unwrap_or_default()
    }
}

#[derive(Default)]
struct Counts {
    files: u64,
    directories: u64,
    names: u64,
    bytes: u64,
}

impl Counts {
    fn of<'a>(wants: impl IntoIterator<Item = &'a Want>) -> Counts {
        let mut counts = Counts::default();
        for want in wants {
            match &want.what {
                What::File { .. } => counts.files += 1,
                What::Directory { .. } => counts.directories += 1,
                What::Name => counts.names += 1,
            }
            counts.bytes += wanted(want);
        }
        counts
    }

    fn words(&self) -> String {
        format!(
            "{} ({}), {}, {}",
            count(self.files, "file", "files"),
            size(self.bytes),
            count(self.directories, "directory", "directories"),
            count(self.names, "name that is only looked up", "names that are only looked up")
        )
    }
}

fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Bytes that are wanted of a name; of a file no more than it has.
fn wanted(want: &Want) -> u64 {
    match &want.what {
        What::File { identity, pages, .. } => (pages.pages() * PAGE).min(identity.size),
        What::Directory { .. } | What::Name => 0,
    }
}

fn executable(memory: &Memory) -> Option<String> {
    (!memory.path.is_empty()).then(|| String::from_utf8_lossy(&memory.path).into_owned())
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// Says what is in a profile: a table, or JSON.
pub fn show(path: &Path, as_json: bool) -> Outcome {
    let memory = match read(path) {
        Ok(memory) => memory,
        Err(why) => return Outcome::Failed(why),
    };
    let wants = profile::wants(&memory);
    if as_json {
        return Outcome::All(Document::text(&memory, &wants, None));
    }
    let of = executable(&memory).unwrap_or_else(|| "several programs".to_owned());
    let mut text = format!("of {}: {}\n\n", printable(&of), Counts::of(&wants).words());
    let _ = writeln!(text, "{:>10}  {:>10}  PATH", "WANTED", "OF");
    for want in &wants {
        let path = printable(&String::from_utf8_lossy(&want.path));
        let _ = match &want.what {
            What::File { identity, .. } => {
                writeln!(text, "{:>10}  {:>10}  {path}", size(wanted(want)), size(identity.size))
            }
            What::Directory { .. } => writeln!(text, "{:>10}  {:>10}  {path}", "listing", ""),
            What::Name => writeln!(text, "{:>10}  {:>10}  {path}", "name", ""),
        };
    }
    Outcome::All(text.trim_end().to_owned())
}

/// Makes one profile of several, in `output`.
pub fn merge(paths: &[PathBuf], output: &Path) -> Outcome {
    let merged = || {
        let all = paths.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
        let merged = profile::merge(&all).ok_or("together they have more names than a profile can have")?;
        write(output, &merged)?;
        Ok(Counts::of(&profile::wants(&merged)).words())
    };
    merged().map_or_else(Outcome::Failed, Outcome::All)
}

/// Keeps a part of a profile: in `output`, or in its own place. `only`, `except`: folders.
pub fn trim(
    path: &Path,
    output: Option<&Path>,
    (only, except): (&[PathBuf], &[PathBuf]),
    most: Option<u64>,
) -> Outcome {
    let folders = |paths: &[PathBuf]| paths.iter().map(|path| from_the_root(path)).collect();
    let trimmed = || {
        let how = Trim { only: folders(only), except: folders(except), most };
        let trimmed = profile::trim(&read(path)?, &how);
        write(output.unwrap_or(path), &trimmed)?;
        Ok(Counts::of(&profile::wants(&trimmed)).words())
    };
    trimmed().map_or_else(Outcome::Failed, Outcome::All)
}

/// Says which files of a profile are here, and opens none.
pub fn check(path: &Path, prefixes: &Prefixes, as_json: bool) -> Outcome {
    let memory = match read(path) {
        Ok(memory) => memory,
        Err(why) => return Outcome::Failed(why),
    };
    let mounts = Mounts::look();
    let wants = profile::here(&memory, prefixes, &mounts);
    let standings: Vec<Standing> = wants.iter().map(|want| profile::standing(want, &mounts)).collect();
    let is_whole = standings.iter().all(|standing| standing.is_asked_for());
    let text = match as_json {
        true => Document::text(&memory, &wants, Some(&standings)),
        false => checked(&wants, &standings),
    };
    if is_whole { Outcome::All(text) } else { Outcome::Partly(text) }
}

fn checked(wants: &[Want], standings: &[Standing]) -> String {
    let both = || wants.iter().zip(standings);
    let asked = both().filter(|(_, standing)| standing.is_asked_for()).map(|(want, _)| want);
    let mut text = format!("would be asked for: {}\n", Counts::of(asked).words());
    let number = |which| standings.iter().filter(|&&standing| standing == which).count() as u64;
    for (which, says) in [
        (Standing::Touched, "have another time and the same size, and would be asked for"),
        (Standing::Changed, "have another size or are something else, and would be passed over"),
        (Standing::Missing, "are missing"),
        (Standing::Refused, "may not be read, or are on no disk"),
    ] {
        if number(which) > 0 {
            let _ = writeln!(text, "{:>8}: {} {says}", which.word(), number(which));
        }
    }
    for (want, standing) in
        both().filter(|(_, standing)| !matches!(standing, Standing::Same | Standing::Name))
    {
        let _ = write!(text, "\n{:>8}  {}", standing.word(), printable(&String::from_utf8_lossy(&want.path)));
    }
    text.trim_end().to_owned()
}

/// Nobody says that he bears nobody: there is no program.
static REMEMBERING: AtomicU32 = AtomicU32::new(remembering::WAITING);
static REPLAYING: AtomicU32 = AtomicU32::new(0);

/// How often the bar is drawn.
const EVERY: Duration = Duration::from_millis(100);

/// How long it is waited at most until what was asked for has come: a disk that others keep busy never rests.
const COMES_WITHIN: Duration = Duration::from_secs(5);

/// Asks for all that a profile has, for `most` bytes or what memory allows; shows how far it is if stderr is
/// a terminal.
pub fn warm(path: &Path, prefixes: &Prefixes, most: Option<u64>) -> Outcome {
    let memory = match read(path) {
        Ok(memory) => memory,
        Err(why) => return Outcome::Failed(why),
    };
    let mounts = Mounts::look();
    let wants = profile::here(&memory, prefixes, &mounts);
    let all = wants.len();
    let whole = Counts::of(&wants).bytes;
    let bounds = Bounds {
        bytes: most.map_or(room(), |most| most.min(room())),
        threads: Room::look().threads(),
        credit: u64::MAX,
        quick: Duration::ZERO,
    };
    let words = Words { remembering: &REMEMBERING, replaying: &REPLAYING };
    let replay = Replay::begin(wants, mounts, Gate::default(), words, bounds);
    let shows = io::stderr().is_terminal();
    while !replay.is_over() {
        if shows {
            draw(&bar(replay.come_to(), all, replay.done().bytes, whole));
        }
        thread::sleep(EVERY);
    }
    replay.settle(COMES_WITHIN);
    if shows {
        draw("");
    }
    let done = replay.done();
    let mut text = format!(
        "asked for {} ({}) and {}",
        count(done.files, "file", "files"),
        size(done.bytes),
        count(done.names, "name", "names")
    );
    let left = (all as u64).saturating_sub(done.files + done.names + done.changed + done.refused);
    let short = bounds.bytes < whole && replay.is_full();
    for (number, says) in [
        (done.changed, "changed or missing"),
        (done.refused, "not to be read, or on no disk"),
        (left, "not come to"),
    ] {
        if number > 0 {
            let _ = write!(text, "; {number} {says}");
        }
    }
    if replay.is_held_by_leases() {
        text += "; somebody holds a lease on a file, so nothing more is opened";
    }
    if short {
        let _ = write!(text, "; no more than {} may be asked for", size(bounds.bytes));
    }
    let is_whole = done.changed + done.refused + left == 0 && !short;
    if is_whole { Outcome::All(text) } else { Outcome::Partly(text) }
}

/// Columns between the bar's ends.
const COLUMNS: usize = 24;

fn bar(come_to: usize, all: usize, bytes: u64, whole: u64) -> String {
    let full = (COLUMNS * come_to).checked_div(all).unwrap_or(COLUMNS);
    format!("[{:<COLUMNS$}] {} of {}", "#".repeat(full), size(bytes), size(whole))
}

/// Puts a line in the place of the one before, which nobody else writes to.
fn draw(line: &str) {
    let _ = write!(io::stderr(), "\r{line}\x1b[K");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_two_folders() {
        let of = |text: &str| prefix(OsStr::new(text));
        assert_eq!(of("/a/b=/c=d"), Ok((b"/a/b".to_vec(), b"/c=d".to_vec())));
        assert_eq!(of("/=."), Ok((b"/".to_vec(), from_the_root(Path::new(".")))));
        for wrong in ["", "/a", "a=/b", "=/b", "/a="] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_bar_is_short_and_never_too_long() {
        assert_eq!(bar(0, 0, 0, 0), format!("[{}] 0 B of 0 B", "#".repeat(COLUMNS)));
        assert_eq!(bar(1, 2, 1_500, 3_000_000), "[############            ] 1.5 KB of 3.0 MB");
        assert!(bar(20_000, 20_000, u64::MAX, u64::MAX).len() < 79);
    }
}
