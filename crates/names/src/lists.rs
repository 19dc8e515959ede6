//! Lists of names that a program was given to read: `cscope -i LIST`, `tar -T LIST`, a data loader's manifest, standard input.
//!
//! To the program such a name is as good as an argument: it opens them in this order, and no directory's listing says so.
//! Which file is the list, if any is, nobody tells; so the files among its arguments are read, and the one in which a name
//! stands for which it waited is one.
//!
//! Rules: regular files only, looked at before they are opened (opening a FIFO lets its writer go on); no trace of the access; only as much as
//! is cached, as the program has read the list when it comes to the names (of what is not the kernel begins to read a window,
//! and is not waited for); nothing that is longer than a list is likely to be; and of a program with many arguments none, as those are
//! its names.

use crate::arguments::Words;
use crate::look;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::{ReadWriteFlags, preadv2};
use std::ffi::OsStr;
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of a list at most: some 25,000 names.
const LONGEST: u64 = 1 << 20;

/// Bytes of all that is read for one process, which may be no lists at all.
const TOGETHER: usize = 2 << 20;

/// Arguments of a program that may still be given its names in a list.
const FEW: usize = 32;

/// A list, as arguments would stand in /proc/PID/cmdline.
#[derive(Debug)]
pub struct List {
    words: Words,
    text: Vec<u8>,
}

impl List {
    /// Of a file's contents: names by line, or with a zero behind each. None: it does not look so.
    fn of(contents: &[u8]) -> Option<List> {
        let by_line = !contents.contains(&0);
        let first = contents.split(is_end).next().filter(|first| !first.is_empty())?;
        if first.iter().any(u8::is_ascii_control) {
            return None;
        }
        // Where a process's own name would be.
        let mut text = vec![0];
        text.extend(contents.iter().map(|&byte| if by_line && byte == b'\n' { 0 } else { byte }));
        Some(List { words: Words::of(&text), text })
    }

    pub fn contains(&self, path: &[u8]) -> bool {
        self.words.contain(path)
    }

    /// The list as arguments, for [`crate::arguments::after`].
    pub fn as_arguments(&self) -> &[u8] {
        &self.text
    }
}

/// The lists that the process may have been given, by its arguments (as in /proc/PID/cmdline). `process` is its folder in
/// /proc. Asks the disk for the files' names at most.
pub fn of_process(process: &Path, command_line: &[u8]) -> Vec<List> {
    let given = candidates(command_line).map(|name| match name.first() {
        Some(b'/') => join(process.join("root"), name),
        _ => join(process.join("cwd/"), name),
    });
    let standard_input = process.join("fd/0");
    let mut left = TOGETHER;
    let lists = std::iter::once(standard_input).chain(given).filter_map(|path| {
        let contents = contents(&path).ok().filter(|contents| contents.len() <= left)?;
        left -= contents.len();
        List::of(&contents)
    });
    lists.collect()
}

/// Bytes at the beginning that are whole names, where the last one may go on.
fn whole_names(contents: &[u8]) -> usize {
    contents.iter().rposition(is_end).map_or(0, |end| end + 1)
}

fn is_end(byte: &u8) -> bool {
    *byte == 0 || *byte == b'\n'
}

/// Arguments, and values of long options, that may name a file.
fn candidates(command_line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let many = command_line.split(|&byte| byte == 0).nth(FEW + 2).is_some();
    let words = command_line.split(|&byte| byte == 0).skip(1).take(if many { 0 } else { FEW });
    words.filter_map(|word| match word.first()? {
        b'-' => word.splitn(2, |&byte| byte == b'=').nth(1).filter(|value| !value.is_empty()),
        _ => Some(word),
    })
}

fn join(folder: PathBuf, name: &[u8]) -> PathBuf {
    let mut path = folder.into_os_string();
    path.push(OsStr::from_bytes(name));
    path.into()
}

fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let no_list = || io::Error::from(io::ErrorKind::InvalidData);
    let seen = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&seen)?;
    let length = u64::try_from(stat.st_size).unwrap_or(0);
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_regular || length == 0 || length > LONGEST || look::is_pseudo(&seen)? {
        return Err(no_list());
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOATIME;
    let file = openat(CWD, format!("/proc/self/fd/{}", seen.as_raw_fd()), flags, Mode::empty())?;
    let mut contents = vec![0; length as usize];
    let cached = preadv2(&file, &mut [IoSliceMut::new(&mut contents)], 0, ReadWriteFlags::NOWAIT)?;
    contents.truncate(match cached == length as usize {
        true => cached,
        false => whole_names(&contents[..cached]),
    });
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::after;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    /// The process's folder, with such files in its working directory.
    fn process(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for inner in ["cwd", "root", "fd"] {
            fs::create_dir(folder.path().join(inner)).unwrap();
        }
        for (name, contents) in files {
            fs::write(folder.path().join(name), contents).unwrap();
        }
        folder
    }

    fn names(list: &List, path: &[u8]) -> Vec<String> {
        after(list.as_arguments(), path).iter().map(|name| name.name.to_str().unwrap().into()).collect()
    }

    #[test]
    fn a_file_among_the_arguments_is_read_as_names() {
        let folder = process(&[("cwd/list", b"a/one\na/two\nb/three\n"), ("root/zeros", b"x\0y\nz\0")]);
        let lists = of_process(folder.path(), b"cscope\0-b\0-i\0list\0--files-from=/zeros\0absent\0.\0");
        assert_eq!(lists.len(), 2, "{lists:?}");
        assert!(lists[0].contains(b"a/one") && !lists[0].contains(b"a"));
        assert_eq!(names(&lists[0], b"a/one"), ["a/two", "b/three"]);
        assert_eq!(names(&lists[1], b"x"), ["y\nz"]);
    }

    #[test]
    fn standard_input_may_be_one() {
        let folder = process(&[("fd/0", b"one\ntwo\n")]);
        let lists = of_process(folder.path(), b"cpio\0-o\0");
        assert_eq!(names(&lists[0], b"one"), ["two"]);
    }

    #[test]
    fn what_is_no_list_is_left_alone() {
        let long = vec![b'x'; LONGEST as usize + 1];
        let folder = process(&[("cwd/program", b"\x7fELF\x02\n"), ("cwd/long", &long), ("cwd/empty", b"")]);
        assert!(of_process(folder.path(), b"x\0program\0long\0empty\0").is_empty());
        // One that has many has its names there.
        let folder = process(&[("cwd/list", b"one\ntwo\n")]);
        let many = [&b"grep\0"[..], &b"list\0".repeat(FEW + 1)].concat();
        assert!(of_process(folder.path(), &many).is_empty());
        assert_eq!(of_process(folder.path(), &[&b"grep\0"[..], &b"list\0".repeat(FEW)].concat()).len(), FEW);
    }

    #[test]
    fn a_name_of_which_a_part_is_known_is_not() {
        for (contents, whole) in [("one\ntw", 4), ("one\n", 4), ("on", 0), ("", 0), ("a\0b\0c", 4)] {
            assert_eq!(whole_names(contents.as_bytes()), whole, "{contents:?}");
        }
    }

    #[test]
    fn a_fifo_is_not_opened_and_a_list_keeps_its_access_time() {
        let folder = process(&[("cwd/list", b"one\n")]);
        let (fifo, list) = (folder.path().join("cwd/fifo"), folder.path().join("cwd/list"));
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let old = rustix::fs::Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: old, last_modification: old };
        rustix::fs::utimensat(CWD, &list, &times, rustix::fs::AtFlags::empty()).unwrap();
        assert_eq!(of_process(folder.path(), b"x\0fifo\0list\0").len(), 1);
        assert_eq!(fs::metadata(&list).unwrap().atime(), 1_000_000_000);
    }
}
