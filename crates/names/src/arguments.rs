//! A program's arguments as names to look up: who is met at one of them goes on to those behind it.
//!
//! Linkers, compilers, grep and archivers open the files that they are told, in that order. Where speculation waits for one
//! of them, no directory's listing says as much about what comes next, nor in what order.
//!
//! Neighbours in a directory often lie in one block of inodes, but nobody has listed it to know their numbers. So numbers
//! are made up: those that stand together count on within one directory, and [`crate::neighbours`] tries whether that is
//! so.
//!
//! Pure: the arguments are a program's, anything may be in there.

use crate::walk::Name;
use std::collections::HashSet;
use std::ffi::CString;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Arguments taken at most; as many as names of a directory.
const MOST: usize = 65_536;

/// Words of a process that are known: a MB of hashes.
const WORDS_MOST: usize = 131_072;

/// PATH_MAX.
const LONGEST: usize = 4096;

/// Where looking may have effects, or would be about us.
const OFF_LIMITS: [&[u8]; 3] = [b"proc", b"sys", b"dev"];

/// Numbers of inodes that nobody has: no file system counts from here.
const MADE_UP: u64 = 1 << 63;
/// Names that stand together in one directory, at most, before the numbers of another could begin.
const TOGETHER: u64 = 1 << 20;

/// Which words a process was given, by their hashes: told apart nearly always, and asked at each wait without a look at the words.
#[derive(Debug, Default)]
pub struct Words(HashSet<u64>);

impl Words {
    /// Of the arguments as in /proc/PID/cmdline.
    pub fn of(arguments: &[u8]) -> Words {
        Words(arguments.split(|&byte| byte == 0).skip(1).take(WORDS_MOST).map(hash).collect())
    }

    pub fn contain(&self, path: &[u8]) -> bool {
        self.0.contains(&hash(path))
    }
}

fn hash(word: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    word.hash(&mut hasher);
    hasher.finish()
}

/// The names behind `path` in a process's arguments (as in /proc/PID/cmdline), none unless it is one of them: of relative
/// paths if `path` is one, else of absolute ones, without the slash that they begin with.
pub fn after(arguments: &[u8], path: &[u8]) -> Vec<Name> {
    let all = arguments.split(|&byte| byte == 0).skip(1);
    let behind = all.enumerate().skip_while(|(_, argument)| *argument != path).skip(1);
    let mut names = Vec::new();
    let (mut directory, mut number) = (&b""[..], 0);
    for (place, argument) in behind {
        let Some(name) = name(argument, path) else { continue };
        let here = name.rsplitn(2, |&byte| byte == b'/').nth(1).unwrap_or_default();
        let same = !names.is_empty() && here == directory && !(number + 1u64).is_multiple_of(TOGETHER);
        number = if same { number + 1 } else { MADE_UP | (place as u64 * TOGETHER) };
        directory = here;
        let Ok(name) = CString::new(name) else { continue };
        names.push(Name { name, inode: number, is_directory: false });
        if names.len() >= MOST {
            break;
        }
    }
    names
}

/// An argument as a name to look up, or none: options, what must be left alone, and what may be no name at all, as it leads
/// elsewhere than the one that was met: up by another number of steps, or from the root to another directory there.
fn name<'a>(argument: &'a [u8], met: &[u8]) -> Option<&'a [u8]> {
    if argument.is_empty() || argument.len() >= LONGEST || argument.first() == Some(&b'-') {
        return None;
    }
    let is_absolute = |path: &[u8]| path.first() == Some(&b'/');
    let top = |path: &'a [u8]| parts(path).next().unwrap_or_default();
    let leads_as_far = is_absolute(argument) == is_absolute(met) && ups(argument)? == ups(met)?;
    let same = !is_absolute(argument) || parts(met).next() == Some(top(argument));
    let name = argument.strip_prefix(b"/").unwrap_or(argument);
    (leads_as_far && same && name.first() != Some(&b'/') && !OFF_LIMITS.contains(&top(argument)))
        .then_some(name)
}

fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".")
}

/// How many steps up a path begins with; None if there are others in it.
fn ups(path: &[u8]) -> Option<usize> {
    let first = parts(path).take_while(|part| *part == b"..").count();
    (parts(path).filter(|part| *part == b"..").count() == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(names: &[Name]) -> Vec<&str> {
        names.iter().map(|name| name.name.to_str().unwrap()).collect()
    }

    #[test]
    fn those_behind_it_come_next() {
        let arguments = b"search\0-a\0word\0d/one\0d/two\0-v\0/abs\0\0e/three\0";
        assert_eq!(text(&after(arguments, b"d/one")), ["d/two", "e/three"]);
        assert_eq!(text(&after(arguments, b"e/three")), [""; 0]);
        assert_eq!(text(&after(arguments, b"d/none")), [""; 0]);
        // The command itself is no argument.
        assert_eq!(text(&after(arguments, b"search")), [""; 0]);
    }

    #[test]
    fn absolute_ones_are_another_matter() {
        let arguments = b"ld\0/a/b\0c\0/a/d\0/proc/self/maps\0//e\0/dev\0/device\0/\0/f";
        assert_eq!(text(&after(arguments, b"/a/b")), ["a/d"]);
        assert_eq!(text(&after(arguments, b"c")), [""; 0]);
        assert_eq!(text(&after(b"ld\0/dev/b\0/dev/c", b"/dev/b")), [""; 0]);
    }

    #[test]
    fn what_leads_elsewhere_is_no_name() {
        let arguments = b"x\0../a\0../b\0../../c\0d\0../e/../f\0./../g\0proc/h";
        assert_eq!(text(&after(arguments, b"../a")), ["../b", "./../g"]);
        assert_eq!(text(&after(b"x\0a\0./b\0../c\0dev/d\0a/../e", b"a")), ["./b"]);
    }

    #[test]
    fn words_are_known_by_their_hashes() {
        let words = Words::of(b"ld\0a\0b/c\0");
        assert!(words.contain(b"a") && words.contain(b"b/c"));
        assert!(!words.contain(b"ld") && !words.contain(b"b"));
        assert!(!Words::of(b"").contain(b"a"));
    }

    #[test]
    fn whatever_is_there_ends() {
        assert!(after(b"", b"").is_empty());
        assert!(after(&[0; 100], b"").is_empty());
        let long = [&b"x\0y\0"[..], &[b'z'; 2 * LONGEST]].concat();
        assert!(after(&long, b"y").is_empty());
        let many = [&b"x\0y\0"[..], &b"z\0".repeat(2 * MOST)].concat();
        assert_eq!(after(&many, b"y").len(), MOST);
    }

    #[test]
    fn those_of_one_directory_count_on() {
        let names = after(b"x\0y\0d/a\0d/b\0e/a\0d/c\0", b"y");
        let inodes: Vec<u64> = names.iter().map(|name| name.inode).collect();
        assert_eq!(inodes[1], inodes[0] + 1);
        assert!(inodes[2].abs_diff(inodes[1]) > 16 && inodes[3].abs_diff(inodes[1]) > 16);
        assert!(inodes.iter().all(|inode| inode & MADE_UP != 0));
    }
}
