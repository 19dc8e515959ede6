//! What a run opens, and what is to be remembered of it.
//!
//! While the run lasts names are collected, no more: nobody waits for a disk on their behalf. Only large
//! files are looked at when they are met ([`before`]), as what of them was cached by then the program did not
//! have to wait for. At the main process's end, while it waits, all names are in the kernel's cache, and each
//! is looked at ([`Recorder::finish`]).

use crate::PAGE;
use crate::look::{self, Found, Mounts, Opened};
use crate::memory::{Identity, MOST_PATH, MOST_RANGES, MOST_WANTS, Variant, Want, What};
use crate::ranges::Ranges;
use runahead_abi::release::What::{All, Files};
use runahead_gate::Gate;
use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Files up to so many bytes are asked for whole: which of their pages were wanted is not worth a look, and
/// the kernel reads as much ahead.
const SMALL: u64 = 64 << 10;

/// Of larger ones than this it matters what was cached before.
const LARGE: u64 = 4 << 20;

/// Bytes remembered of one file, and of one run.
const MOST_OF_FILE: u64 = 256 << 20;
const MOST_OF_RUN: u64 = 2 << 30;

/// Openings of names that are known already after which no more is learned, and how many more for each name
/// (of a build, whose compilers open the same headers): each costs the program 2.5 us, and one that opens the
/// same files for ever is not to pay for that.
const REPEATED_MOST: usize = 16_384;
const REPEATED_FOR_EACH: usize = 256;

/// Runs in a row that wanted other pages of a file after which none is asked for any more.
const WRONG_MOST: u8 = 2;

/// What the program wanted of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// It has opened it, or mapped it.
    Opened,
    /// It has opened it as a directory.
    Listed,
    /// It has waited for the look-up.
    LookedUp,
}

/// What was asked for in this run as earlier ones had wanted it.
#[derive(Clone, Copy, Debug)]
pub struct Earlier<'a> {
    pub variant: Option<&'a Variant>,
    pub was_asked_for: bool,
    /// What was found to be as it had been, and asked for.
    pub found: &'a HashMap<&'a [u8], &'a Want>,
}

impl Earlier<'_> {
    /// What need not be looked at again. (A file that was written to since is passed over next time.)
    fn known(&self, path: &[u8], interest: Interest) -> Option<&What> {
        let what = &self.found.get(path)?.what;
        let is_known = match (what, interest) {
            (What::File { identity, .. }, Interest::Opened) => identity.size <= SMALL,
            (What::Directory { .. }, Interest::Listed) | (What::Name, Interest::LookedUp) => true,
            _ => false,
        };
        is_known.then_some(what)
    }
}

pub struct Recorder {
    began: SystemTime,
    names: Vec<(Vec<u8>, Interest)>,
    places: HashMap<Vec<u8>, usize>,
    repeated: u32,
    /// Not all that was opened is here.
    is_partial: bool,
}

impl Recorder {
    /// `complete`: all that the run opens will be entered, from its start.
    pub fn new(began: SystemTime, complete: bool) -> Recorder {
        Recorder { began, names: Vec::new(), places: HashMap::new(), repeated: 0, is_partial: !complete }
    }

    /// Enters a name; true if it is a new one.
    pub fn enter(&mut self, path: &[u8], interest: Interest) -> bool {
        if path.first() != Some(&b'/') || path.len() > MOST_PATH || path.contains(&0) {
            return false;
        }
        if let Some(&at) = self.places.get(path) {
            self.repeated = self.repeated.saturating_add(1);
            if interest != Interest::LookedUp {
                self.names[at].1 = interest;
            }
            return false;
        }
        if self.names.len() >= MOST_WANTS {
            self.is_partial = true;
            return false;
        }
        self.places.insert(path.to_vec(), self.names.len());
        self.names.push((path.to_vec(), interest));
        true
    }

    /// Some were lost.
    pub fn misses_some(&mut self) {
        self.is_partial = true;
    }

    /// Nothing more is to be learned. What is opened from now on is missing.
    pub fn is_full(&mut self) -> bool {
        let is_full = self.names.len() >= MOST_WANTS
            || self.repeated as usize > REPEATED_MOST + REPEATED_FOR_EACH * self.names.len();
        self.is_partial |= is_full;
        is_full
    }

    /// Since when what is written to is this run's.
    pub fn began(&self) -> SystemTime {
        self.began
    }

    pub fn names(&self) -> usize {
        self.names.len()
    }

    /// What was opened, in that order.
    pub fn opened(&self) -> impl Iterator<Item = &[u8]> {
        self.names.iter().filter(|(_, interest)| *interest != Interest::LookedUp).map(|(path, _)| &path[..])
    }

    pub fn has(&self, path: &[u8]) -> bool {
        self.places.contains_key(path)
    }

    /// Whether it has all that was opened, as far as anybody knows.
    pub fn is_complete(&self) -> bool {
        !self.is_partial
    }

    /// What is to be remembered. Takes some us for each name that is to be looked at, and no longer than
    /// `longest` for all of these; `before`: what was cached of large files when they were met. `looked`: what
    /// has been [looked over](look_over) already.
    pub fn finish(
        &mut self,
        mounts: &Mounts,
        gate: Gate,
        before: &HashMap<Vec<u8>, Ranges>,
        looked: &HashMap<Vec<u8>, (Interest, Looked)>,
        earlier: Earlier,
        longest: Duration,
    ) -> Vec<Want> {
        let began = Instant::now();
        // Larger files take most of it, and are met first.
        let (names_end, end) = (began + longest / 2, began + longest);
        let mut known: HashMap<&[u8], &Want> = HashMap::new();
        known.extend(
            earlier.variant.into_iter().flat_map(|variant| &variant.wants).map(|want| (&want.path[..], want)),
        );
        let mut whats = Vec::with_capacity(self.names.len());
        for (path, interest) in &self.names {
            // What has been looked at costs no time any more.
            let at_once = earlier.known(path, *interest).cloned().map(Looked::Known).or_else(|| {
                looked.get(path).filter(|(before, _)| before == interest).map(|(_, looked)| looked.clone())
            });
            let looks = at_once.is_none() && Instant::now() < names_end;
            whats.push(if looks { look_over(path, *interest, mounts, gate, self.began) } else { at_once });
        }
        let (mut wants, mut bytes) = (Vec::new(), 0u64);
        for ((path, interest), looked) in self.names.iter().zip(whats) {
            // What the larger ones have left is for the other names.
            let is_late = || Instant::now() >= end;
            let looked = match looked {
                None if is_late() => {
                    self.is_partial = true;
                    continue;
                }
                None => look_over(path, *interest, mounts, gate, self.began),
                looked => looked,
            };
            let what = match looked {
                Some(Looked::Known(what)) => what,
                None | Some(Looked::Nothing) => continue,
                Some(Looked::Larger(_)) if is_late() => {
                    self.is_partial = true;
                    continue;
                }
                Some(Looked::Larger(identity)) => {
                    let same = known.get(&path[..]).map(|want| &want.what).filter(|earlier| {
                        matches!(earlier, What::File { identity: earlier, .. } if *earlier == identity)
                    });
                    let of =
                        Of { before: before.get(path), earlier: same, was_asked_for: earlier.was_asked_for };
                    match wanted(path, identity, mounts, gate, &of) {
                        Some(what) => what,
                        None => continue,
                    }
                }
            };
            if let What::File { pages, .. } = &what {
                bytes = bytes.saturating_add(pages.pages() * PAGE);
                if bytes > MOST_OF_RUN {
                    break;
                }
            }
            wants.push(Want { path: path.clone(), what, unseen: 0 });
        }
        wants
    }
}

/// What is known of a file's pages.
struct Of<'a> {
    before: Option<&'a Ranges>,
    earlier: Option<&'a What>,
    was_asked_for: bool,
}

/// What a look at a name has told, without its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    Known(What),
    /// Nothing that is to be remembered.
    Nothing,
    /// A file of which it matters what is cached at the end.
    Larger(Identity),
}

/// Looks at a name that the program has used a while ago, so that the look does not wait for the disk. None:
/// not at present.
pub fn look_over(
    path: &[u8],
    interest: Interest,
    mounts: &Mounts,
    gate: Gate,
    began: SystemTime,
) -> Option<Looked> {
    let began = began.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let name = look::name(path)?;
    let _pass = gate.pass(All)?;
    Some(match (look::find(&name, mounts), interest) {
        (None, _) => Looked::Nothing,
        (Some(Found::Nothing), _) | (Some(_), Interest::LookedUp) => Looked::Known(What::Name),
        (Some(Found::Directory { device, inode }), Interest::Listed) => {
            Looked::Known(What::Directory { device, inode })
        }
        (Some(Found::Directory { .. }), Interest::Opened) | (Some(Found::File(_)), Interest::Listed) => {
            Looked::Nothing
        }
        // It was written to in this run, and the next one may find something else.
        (Some(Found::File(identity)), _) if identity.modified >= began => Looked::Nothing,
        (Some(Found::File(identity)), _) if identity.size == 0 => Looked::Known(What::Name),
        (Some(Found::File(identity)), _) if identity.size <= SMALL => {
            let pages = Ranges::first(identity.size.div_ceil(PAGE) as u32);
            Looked::Known(What::File { identity, pages, wrong: 0 })
        }
        (Some(Found::File(identity)), _) => Looked::Larger(identity),
    })
}

/// What was wanted of a file that is not small. None: it could not be found out.
fn wanted(path: &[u8], identity: Identity, mounts: &Mounts, gate: Gate, of: &Of) -> Option<What> {
    let name = look::name(path)?;
    let _places = gate.pass(All)?;
    let _files = gate.pass(Files)?;
    let what = What::File { identity, pages: Ranges::default(), wrong: 0 };
    let Opened::File(file) = look::open(&name, &what, mounts) else { return None };
    let now = look::cached(&file, identity.size);
    let (pages, wrong) = match of.earlier {
        Some(What::File { pages: earlier, wrong, .. }) if of.was_asked_for || *wrong >= WRONG_MOST => {
            learned(&now, earlier, *wrong)
        }
        _ => (of.before.map_or_else(|| now.clone(), |before| now.without(before)), 0),
    };
    let pages = pages.cut(MOST_OF_FILE / PAGE, MOST_RANGES);
    Some(What::File { identity, pages, wrong })
}

/// What is to be asked for next time where `earlier` was, of a file of which `now` is cached; and how often
/// in a row it was other pages that were wanted.
fn learned(now: &Ranges, earlier: &Ranges, wrong: u8) -> (Ranges, u8) {
    /// A program that goes another way in a MB of a file is not wrong yet.
    const FEW: u64 = (1 << 20) / PAGE;
    if wrong >= WRONG_MOST {
        return (Ranges::default(), wrong);
    }
    let others = now.without(earlier);
    if others.pages() > FEW && others.pages() * 2 > earlier.pages() {
        let wrong = wrong + 1;
        return (if wrong < WRONG_MOST { others } else { Ranges::default() }, wrong);
    }
    (now.clone(), 0)
}

/// What is cached of a large file, as it is met for the first time. None: it is small, or little is, so that
/// what will be is the program's doing; or it could not be found out.
pub fn before(path: &[u8], mounts: &Mounts, gate: Gate) -> Option<Ranges> {
    let name = look::name(path)?;
    let _places = gate.pass(All)?;
    let Found::File(identity) = look::find(&name, mounts)? else { return None };
    if identity.size <= LARGE {
        return None;
    }
    let _files = gate.pass(Files)?;
    let what = What::File { identity, pages: Ranges::default(), wrong: 0 };
    let Opened::File(file) = look::open(&name, &what, mounts) else { return None };
    let cached = look::cached(&file, identity.size);
    (cached.pages() * PAGE > LARGE && cached.pages() * PAGE * 4 > identity.size).then_some(cached)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    const LONG: Duration = Duration::from_secs(60);

    fn bytes(path: &Path) -> &[u8] {
        path.as_os_str().as_bytes()
    }

    #[test]
    fn what_was_opened_is_remembered_as_what_it_is() {
        let folder = crate::folder_on_a_disk();
        let at = |name: &str| folder.path().join(name);
        let mounts = Mounts::look();
        if !mounts.has(bytes(folder.path())) {
            return eprintln!("SKIPPED: {} is on no disk", folder.path().display());
        }
        std::fs::write(at("small"), [1; 5000]).unwrap();
        std::fs::write(at("larger"), vec![1; 300 << 10]).unwrap();
        std::fs::write(at("empty"), []).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let mut recorder = Recorder::new(SystemTime::now(), true);
        std::thread::sleep(Duration::from_millis(20));
        std::fs::write(at("written"), [1; 5000]).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        for (name, interest) in [
            ("small", Interest::Opened),
            ("larger", Interest::Opened),
            ("empty", Interest::Opened),
            ("folder", Interest::Listed),
            ("absent", Interest::LookedUp),
            ("written", Interest::Opened),
            ("pipe", Interest::Opened),
        ] {
            assert!(recorder.enter(bytes(&at(name)), interest));
            assert!(!recorder.enter(bytes(&at(name)), interest));
        }
        assert!(!recorder.enter(b"relative", Interest::Opened) && !recorder.enter(b"/\0", Interest::Opened));
        let nothing = HashMap::new();
        let none = Earlier { variant: None, was_asked_for: false, found: &nothing };
        let wants = recorder.finish(&mounts, Gate::default(), &HashMap::new(), &HashMap::new(), none, LONG);
        let found: Vec<(&[u8], u64)> = wants
            .iter()
            .map(|want| {
                let pages = if let What::File { pages, .. } = &want.what { pages.pages() } else { 0 };
                (want.path.rsplit(|&byte| byte == b'/').next().unwrap(), pages)
            })
            .collect();
        let expected: [(&[u8], u64); 5] =
            [(b"small", 2), (b"larger", 75), (b"empty", 0), (b"folder", 0), (b"absent", 0)];
        assert_eq!(found, expected);
        assert!(matches!(wants[3].what, What::Directory { .. }) && recorder.is_complete());
        // What was looked over while it was there.
        let looked: HashMap<Vec<u8>, (Interest, Looked)> = ["small", "larger", "absent", "written"]
            .into_iter()
            .map(|name| {
                let interest = if name == "absent" { Interest::LookedUp } else { Interest::Opened };
                let look = look_over(bytes(&at(name)), interest, &mounts, Gate::default(), recorder.began())
                    .unwrap();
                (bytes(&at(name)).to_vec(), (interest, look))
            })
            .collect();
        std::fs::rename(at("small"), at("away")).unwrap();
        let again = recorder.finish(&mounts, Gate::default(), &HashMap::new(), &looked, none, LONG);
        assert_eq!(again, wants);
        std::fs::rename(at("away"), at("small")).unwrap();
        // What was asked for and found is not looked at again.
        std::fs::remove_file(at("small")).unwrap();
        std::fs::remove_file(at("larger")).unwrap();
        let found: HashMap<&[u8], &Want> = wants.iter().map(|want| (&want.path[..], want)).collect();
        let again = Earlier { variant: None, was_asked_for: true, found: &found };
        let again = recorder.finish(&mounts, Gate::default(), &HashMap::new(), &HashMap::new(), again, LONG);
        assert_eq!(again[0], wants[0]);
        assert_eq!(again[1].what, What::Name);
        let late =
            recorder.finish(&mounts, Gate::default(), &HashMap::new(), &HashMap::new(), none, Duration::ZERO);
        assert!(late.is_empty() && !recorder.is_complete());
        // What has been looked over needs no time.
        let late = recorder.finish(&mounts, Gate::default(), &HashMap::new(), &looked, none, Duration::ZERO);
        let kept = |name: &str| late.iter().any(|want| want.path == bytes(&at(name)));
        assert!(kept("small") && kept("absent") && !kept("larger"));
    }

    #[test]
    fn who_opens_the_same_for_ever_is_left_alone() {
        let mut recorder = Recorder::new(SystemTime::now(), true);
        recorder.enter(b"/a", Interest::Opened);
        recorder.enter(b"/b", Interest::Opened);
        for number in 0..REPEATED_MOST + 2 * REPEATED_FOR_EACH {
            assert!(!recorder.is_full());
            // Nor does a new one now and then make it pay for ever.
            recorder.enter(if number == 5000 { b"/c" } else { b"/a" }, Interest::Opened);
        }
        (0..=REPEATED_FOR_EACH + 1).for_each(|_| {
            recorder.enter(b"/a", Interest::Opened);
        });
        assert!(recorder.is_complete() && recorder.is_full() && !recorder.is_complete());
        for number in 0..=MOST_WANTS {
            recorder.enter(format!("/{number}").as_bytes(), Interest::Opened);
        }
        assert!(recorder.is_full() && !recorder.is_complete() && recorder.names() == MOST_WANTS);
    }

    #[test]
    fn a_file_of_which_other_pages_are_wanted_each_time_is_given_up() {
        let first = Ranges::first(1000);
        assert_eq!(learned(&Ranges::first(1200), &first, 1), (Ranges::first(1200), 0));
        let mut others = Ranges::first(1000);
        others.push(5000..6000);
        let (next, wrong) = learned(&others, &first, 0);
        assert_eq!((next.pages(), wrong), (1000, 1));
        let mut more = others.clone();
        more.push(8000..9000);
        let (next, wrong) = learned(&more, &next, wrong);
        assert_eq!((next.is_empty(), wrong), (true, WRONG_MOST));
        assert_eq!(learned(&more, &next, wrong), (Ranges::default(), WRONG_MOST));
    }
}
