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
use std::ffi::CString;

/// Arguments taken at most; as many as names of a directory.
const MOST: usize = 65_536;

/// PATH_MAX.
const LONGEST: usize = 4096;

/// Where looking may have effects, or would be about us.
const OFF_LIMITS: [&[u8]; 3] = [b"proc", b"sys", b"dev"];

/// Numbers of inodes that nobody has: no file system counts from here.
const MADE_UP: u64 = 1 << 63;
/// Names that stand together in one directory, at most, before the numbers of another could begin.
const TOGETHER: u64 = 1 << 20;

/// The names behind `path` in a process's arguments (as in /proc/PID/cmdline), none unless it is one of them: of relative
/// paths if `path` is one, else of absolute ones, without the slash that they begin with.
pub fn after(arguments: &[u8], path: &[u8]) -> Vec<Name> {
    let all = arguments.split(|&byte| byte == 0).skip(1);
    let behind = all.enumerate().skip_while(|(_, argument)| *argument != path).skip(1);
    let mut names = Vec::new();
    let (mut directory, mut number) = (&b""[..], 0);
    for (place, argument) in behind {
        let Some(name) = name(argument, path.first() == Some(&b'/')) else { continue };
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

/// An argument as a name to look up, or none: options, and what must be left alone.
fn name(argument: &[u8], absolute: bool) -> Option<&[u8]> {
    if argument.is_empty() || argument.len() >= LONGEST || argument.first() == Some(&b'-') {
        return None;
    }
    if !absolute {
        return (argument.first() != Some(&b'/')).then_some(argument);
    }
    let name = argument.strip_prefix(b"/")?;
    let top = name.split(|&byte| byte == b'/').next().unwrap_or_default();
    (!top.is_empty() && !OFF_LIMITS.contains(&top)).then_some(name)
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
        assert_eq!(text(&after(arguments, b"/a/b")), ["a/d", "device", "f"]);
        assert_eq!(text(&after(arguments, b"c")), [""; 0]);
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
