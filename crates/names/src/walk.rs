//! The order of a walk: what a program that walks a tree wants next.
//!
//! Programs that walk trees look all names of a directory up, then descend into its directories, each with
//! all that is below it before the next (fts, and so du, find, grep -r, tar; git's index is in this order
//! too). Several look-ups are under way at a time, so directories become known out of order. Each directory
//! therefore has a key, the path of places that leads to it, and the job with the least key goes first:
//! keys compare as the walk goes.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;

/// Names that wait in all directories together beyond which no further directory is listed: bounds memory
/// to some tens of MB whatever a tree looks like.
const NAMES_MOST: usize = 200_000;

/// What a look-up is good for, as whoever chooses says: see `neighbours`.
pub use crate::neighbours::Verdict;

/// Where a directory is in the walk: the root's number (later roots come first), then places in listings.
pub type Key = Vec<i64>;

/// A name in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub name: CString,
    pub inode: u64,
    /// As far as the listing says.
    pub is_directory: bool,
}

/// Something to look up in a directory `D`.
#[derive(Debug)]
pub enum Job<D> {
    /// A name's inode. `number`: its place in the listing at `key`.
    LookUp { key: Key, number: usize, directory: Arc<D>, name: CString, sample: bool },
    /// A directory's names, to be known as `key`.
    List { key: Key, directory: Arc<D>, name: CString },
}

struct Frame<D> {
    directory: Arc<D>,
    names: Vec<Name>,
    /// The next name to be looked up.
    next: usize,
    /// The next name has been chosen to be looked up, as a sample or not.
    chosen: Option<bool>,
    /// Directories among the names, by place, and the next of these to be listed.
    directories: Vec<usize>,
    next_directory: usize,
    /// A name that turns out to be a directory is one of these.
    goes_down: bool,
    /// Look-ups that were given out and have not come back: any may turn out to be a directory.
    under_way: usize,
}

impl<D> Frame<D> {
    /// Nothing is left to be done here.
    fn is_finished(&self) -> bool {
        self.next == self.names.len() && self.next_directory == self.directories.len() && self.under_way == 0
    }

    /// Goes on to the next name that is worth a look-up; returns how many were not.
    fn pass_over(&mut self, choose: &mut dyn FnMut(&Name) -> Verdict) -> usize {
        let from = self.next;
        while self.chosen.is_none() && self.next < self.names.len() {
            match choose(&self.names[self.next]) {
                Verdict::LookUp => self.chosen = Some(false),
                Verdict::Sample => self.chosen = Some(true),
                Verdict::Skip => self.next += 1,
            }
        }
        self.next - from
    }
}

/// The walk: directories whose names are known and not all dealt with.
pub struct Walk<D> {
    frames: BTreeMap<Key, Frame<D>>,
    roots: i64,
    waiting: usize,
}

impl<D> Default for Walk<D> {
    fn default() -> Self {
        Self { frames: BTreeMap::new(), roots: 0, waiting: 0 }
    }
}

impl<D> Walk<D> {
    /// The program is at a directory that the walk has not reached: walk on from there first.
    pub fn root(&mut self, directory: Arc<D>, names: Vec<Name>) -> Key {
        self.roots -= 1;
        let key = vec![self.roots];
        self.listed(key.clone(), directory, names);
        key
    }

    /// The program is below this directory, and these are the names behind the one where it is: the directories among
    /// them are walked when later roots are done. A program that goes down has looked all names up by then.
    pub fn root_above(&mut self, directory: Arc<D>, mut names: Vec<Name>) -> Key {
        names.retain(|one| one.is_directory);
        let key = self.root(directory, names);
        if let Some(frame) = self.frames.get_mut(&key) {
            self.waiting -= frame.names.len();
            frame.next = frame.names.len();
        }
        key
    }

    /// These names below the directory come first, and nothing that may be below them: a program that is told of a directory
    /// need not list it. One that does is met there.
    pub fn root_of_arguments(&mut self, directory: Arc<D>, names: Vec<Name>) -> Key {
        let key = self.root(directory, names);
        if let Some(frame) = self.frames.get_mut(&key) {
            frame.goes_down = false;
        }
        key
    }

    /// Whether something is left to be done in this directory.
    pub fn holds(&self, key: &Key) -> bool {
        self.frames.contains_key(key)
    }

    /// Whether so much waits that nothing is to be added.
    pub fn is_full(&self) -> bool {
        self.waiting >= NAMES_MOST
    }

    /// A listing has come in.
    pub fn listed(&mut self, key: Key, directory: Arc<D>, names: Vec<Name>) {
        let directories = (0..names.len()).filter(|&place| names[place].is_directory).collect();
        self.waiting += names.len();
        self.frames.insert(
            key,
            Frame {
                directory,
                names,
                next: 0,
                chosen: None,
                directories,
                next_directory: 0,
                goes_down: true,
                under_way: 0,
            },
        );
    }

    /// A look-up that was given out has come back. A name may turn out to be a directory although its listing did
    /// not say so.
    pub fn looked_up(&mut self, key: &Key, number: usize, is_directory: bool) {
        // Gone meanwhile: cleared, or hurried to another key.
        let Some(frame) = self.frames.get_mut(key) else { return };
        frame.under_way = frame.under_way.saturating_sub(1);
        if is_directory && frame.goes_down && frame.names.get(number).is_some_and(|name| !name.is_directory) {
            frame.directories.push(number);
        }
        if frame.is_finished() {
            self.frames.remove(key);
        }
    }

    /// The program is at a directory whose names wait far behind: they come first now. False if none wait.
    pub fn hurry(&mut self, key: &Key) -> bool {
        match self.frames.remove(key) {
            None => false,
            Some(mut frame) => {
                self.roots -= 1;
                // Those under way come back under the old key.
                frame.under_way = 0;
                self.frames.insert(vec![self.roots], frame);
                true
            }
        }
    }

    /// The next job, and the names passed over on the way to it. `choose` says of each name once whether it is
    /// worth a look-up; listings are always wanted.
    pub fn take(&mut self, mut choose: impl FnMut(&Name) -> Verdict) -> (Option<Job<D>>, u64) {
        let waited = self.waiting;
        let job = self.find(&mut choose);
        let passed_over = waited - self.waiting - usize::from(matches!(job, Some(Job::LookUp { .. })));
        (job, passed_over as u64)
    }

    fn find(&mut self, choose: &mut dyn FnMut(&Name) -> Verdict) -> Option<Job<D>> {
        let mut best: Option<(Key, Key)> = None;
        let mut finished: Vec<Key> = Vec::new();
        for (key, frame) in &mut self.frames {
            if best.as_ref().is_some_and(|(_, least)| key > least) {
                break;
            }
            self.waiting -= frame.pass_over(choose);
            if frame.is_finished() {
                finished.push(key.clone());
                continue;
            }
            let at = if frame.chosen.is_some() {
                key.clone()
            } else if frame.next_directory < frame.directories.len() && self.waiting < NAMES_MOST {
                child(key, frame.directories[frame.next_directory])
            } else {
                continue;
            };
            if best.as_ref().is_none_or(|(_, least)| at < *least) {
                best = Some((key.clone(), at));
            }
        }
        // At once, wherever they stand: the root has something left until the end, and whatever is met again at each
        // step makes the walk of a large tree slower and slower.
        for key in finished {
            self.frames.remove(&key);
        }
        let (key, at) = best?;
        let frame = self.frames.get_mut(&key)?;
        let directory = frame.directory.clone();
        if at == key {
            let number = frame.next;
            let sample = frame.chosen.take() == Some(true);
            frame.next += 1;
            frame.under_way += 1;
            self.waiting -= 1;
            let name = frame.names[number].name.clone();
            return Some(Job::LookUp { key, number, directory, name, sample });
        }
        let name = frame.names[frame.directories[frame.next_directory]].name.clone();
        frame.next_directory += 1;
        Some(Job::List { key: at, directory, name })
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub fn clear(&mut self) {
        self.frames.clear();
        self.waiting = 0;
    }
}

fn child(key: &Key, place: usize) -> Key {
    key.iter().copied().chain([place as i64]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<Name> {
        let name = |text: &&str| Name {
            name: CString::new(text.trim_end_matches('/')).unwrap(),
            inode: 0,
            is_directory: text.ends_with('/'),
        };
        list.iter().map(name).collect()
    }

    fn all(_: &Name) -> Verdict {
        Verdict::LookUp
    }

    fn none(_: &Name) -> Verdict {
        Verdict::Skip
    }

    fn text(job: &Option<Job<&'static str>>) -> String {
        match job {
            None => "none".into(),
            Some(Job::LookUp { directory, name, .. }) => format!("{directory}:{}", name.to_str().unwrap()),
            Some(Job::List { directory, name, .. }) => format!("{directory}:{}/", name.to_str().unwrap()),
        }
    }

    /// Answers each listing at once.
    fn order(walk: &mut Walk<&'static str>, choose: fn(&Name) -> Verdict) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let job = walk.take(choose).0;
            if job.is_none() {
                return all;
            }
            all.push(text(&job));
            if let Some(Job::LookUp { key, number, .. }) = &job {
                walk.looked_up(key, *number, false);
            }
            if let Some(Job::List { key, name, .. }) = job {
                match name.to_str().unwrap() {
                    "b" => walk.listed(key, Arc::new("b"), names(&["x", "y/"])),
                    "y" => walk.listed(key, Arc::new("y"), names(&["z"])),
                    "d" => walk.listed(key, Arc::new("d"), names(&["w"])),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn walks_as_programs_do() {
        let mut walk = Walk::default();
        walk.root(Arc::new("/"), names(&["a", "b/", "c", "d/"]));
        let wanted = ["/:a", "/:b", "/:c", "/:d", "/:b/", "b:x", "b:y", "b:y/", "y:z", "/:d/", "d:w"];
        assert_eq!(order(&mut walk, all), wanted);
        assert!(walk.is_empty());
    }

    #[test]
    fn lists_alone_where_names_are_not_wanted() {
        let mut walk = Walk::default();
        walk.root(Arc::new("/"), names(&["a", "b/", "c", "d/"]));
        assert_eq!(order(&mut walk, none), ["/:b/", "b:y/", "/:d/"]);
        assert!(walk.is_empty());
    }

    #[test]
    fn what_is_finished_is_not_met_again() {
        let mut walk = Walk::default();
        walk.root(Arc::new("/"), (0..1000).flat_map(|_| names(&["b/"])).collect());
        for _ in 0..900 {
            // Its names are passed over, and its listing is the last that is wanted of it.
            if let Some(Job::List { key, .. }) = walk.take(none).0 {
                walk.listed(key, Arc::new("b"), names(&["x", "z"]));
            }
            assert!(walk.frames.len() <= 2, "{} directories are still held", walk.frames.len());
        }
    }

    #[test]
    fn a_name_that_turns_out_to_be_a_directory_is_walked() {
        let mut walk = Walk::default();
        walk.root(Arc::new("/"), names(&["a", "b"]));
        let jobs = [walk.take(all).0, walk.take(all).0];
        // Nothing is left to be given out, and it is not over.
        assert_eq!(text(&walk.take(all).0), "none");
        let Some(Job::LookUp { key, number, .. }) = &jobs[1] else { panic!("{jobs:?}") };
        walk.looked_up(key, *number, true);
        assert_eq!(text(&walk.take(all).0), "/:b/");
        let Some(Job::LookUp { key, number, .. }) = &jobs[0] else { panic!("{jobs:?}") };
        walk.looked_up(key, *number, false);
        assert!(walk.is_empty());
    }

    #[test]
    fn an_argument_that_is_a_directory_is_looked_up_and_not_walked() {
        let mut walk = Walk::default();
        walk.root(Arc::new("/"), names(&["b/"]));
        walk.root_of_arguments(Arc::new("."), names(&["a", "d"]));
        for number in 0..2 {
            let Some(Job::LookUp { key, number: at, .. }) = walk.take(all).0 else { panic!("no job") };
            assert_eq!(at, number);
            walk.looked_up(&key, at, true);
        }
        assert_eq!(order(&mut walk, all), ["/:b", "/:b/", "b:x", "b:y", "b:y/", "y:z"]);
        assert!(walk.is_empty());
    }

    #[test]
    fn above_where_the_program_is_directories_alone_are_walked_and_last() {
        let mut walk = Walk::default();
        walk.root_above(Arc::new("/"), names(&["file", "b/", "c", "d/"]));
        walk.root(Arc::new("a"), names(&["f"]));
        assert_eq!(order(&mut walk, all), ["a:f", "/:b/", "b:x", "b:y", "b:y/", "y:z", "/:d/", "d:w"]);
        assert!(walk.is_empty());
        assert_eq!(walk.waiting, 0);
    }

    #[test]
    fn what_is_passed_over_is_said() {
        let mut walk = Walk::default();
        walk.root(Arc::new("/"), names(&["a", "b", "c", "d/", "e"]));
        let choose = |name: &Name| if name.name.as_c_str() == c"c" { Verdict::Sample } else { Verdict::Skip };
        let (job, passed_over) = walk.take(choose);
        assert!(matches!(job, Some(Job::LookUp { number: 2, sample: true, .. })));
        assert_eq!(passed_over, 2);
        let (job, passed_over) = walk.take(choose);
        assert!(matches!(job, Some(Job::List { .. })));
        assert_eq!(passed_over, 2);
    }

    #[test]
    fn goes_on_elsewhere_while_a_listing_is_under_way() {
        let mut walk = Walk::default();
        walk.root(Arc::new("/"), names(&["b/", "d/"]));
        let jobs: Vec<_> = (0..4).map(|_| walk.take(all).0).collect();
        assert_eq!(jobs.iter().map(text).collect::<Vec<_>>(), ["/:b", "/:d", "/:b/", "/:d/"]);
        let mut keys = jobs.into_iter().filter_map(|job| match job {
            Some(Job::List { key, .. }) => Some(key),
            _ => None,
        });
        let (b, d) = (keys.next().unwrap(), keys.next().unwrap());
        walk.listed(d, Arc::new("d"), names(&["w"]));
        walk.listed(b, Arc::new("b"), names(&["x"]));
        assert_eq!(text(&walk.take(all).0), "b:x");
        assert_eq!(text(&walk.take(all).0), "d:w");
        assert_eq!(text(&walk.take(all).0), "none");
    }

    #[test]
    fn where_the_program_is_comes_first() {
        let mut walk = Walk::default();
        walk.root(Arc::new("/"), names(&["a", "b"]));
        let far = walk.root(Arc::new("far"), names(&["f", "g"]));
        walk.root(Arc::new("near"), names(&["n"]));
        assert_eq!(text(&walk.take(all).0), "near:n");
        assert_eq!(text(&walk.take(all).0), "far:f");
        walk.root(Arc::new("other"), names(&["o"]));
        assert!(walk.hurry(&far));
        assert_eq!(text(&walk.take(all).0), "far:g");
        assert_eq!(text(&walk.take(all).0), "other:o");
        assert_eq!(text(&walk.take(all).0), "/:a");
        assert!(!walk.hurry(&far));
    }

    #[test]
    fn memory_has_a_bound() {
        let mut walk = Walk::default();
        let many: Vec<Name> = (0..NAMES_MOST + 10).map(|_| names(&["d/"]).remove(0)).collect();
        walk.root(Arc::new("/"), many);
        for _ in 0..NAMES_MOST / 2 {
            assert!(matches!(walk.take(all).0, Some(Job::LookUp { .. })));
        }
        // Still too many: another root's directories are not listed.
        let many = (0..NAMES_MOST).map(|_| names(&["d/"]).remove(0)).collect();
        walk.root(Arc::new("more"), many);
        for _ in 0..NAMES_MOST + NAMES_MOST / 2 + 9 - NAMES_MOST {
            assert!(matches!(walk.take(all).0, Some(Job::LookUp { .. })));
        }
    }
}
