//! What speculation has done to names, and the files that it alone has.
//!
//! Speculation changes nothing outside its own memory. What its program would make, remove, rename or
//! empty is noted here, and what it looks up later is looked up here first. A name is one in a
//! directory, and that is known by device and inode, so that it does not matter which way leads there.
//! A directory that speculation has made has an inode of our own; so has a file.
//!
//! The table is bounded: whoever fills it ends the speculation. Names are kept as hashes of 64 bits; two
//! that collide are a wrong prediction, nothing more. Both tables are filled from their beginnings, so
//! that what is not used is never touched.

/// Names that one speculation may change, and files that it may make: some minutes of copying, or 200 KB.
pub const MAX_NAMES: usize = 4096;
pub const MAX_FILES: usize = 4096;

/// Files that exist and of which what is said was changed: as a rule one, which the program had open.
const MAX_CHANGED: usize = 16;

/// Places in the index: twice the names, a power of two.
const INDEX: usize = 2 * MAX_NAMES;

/// Inodes of our own begin here: no file system of today gives such numbers.
const FIRST_INODE: u64 = 0x4d61_6465_0000_0000;

pub const S_IFMT: u32 = 0o170_000;
pub const S_IFDIR: u32 = 0o040_000;
pub const S_IFREG: u32 = 0o100_000;
pub const S_IFLNK: u32 = 0o120_000;
const S_ISGID: u32 = 0o2000;

/// A directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Directory {
    pub device: u64,
    pub inode: u64,
}

/// Number of a file in the table, from 1: 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileId(pub u16);

impl FileId {
    pub const NONE: FileId = FileId(0);

    pub fn is_none(self) -> bool {
        self == FileId::NONE
    }
}

/// A file, directory or link that only speculation has, or that it has emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct File {
    pub device: u64,
    /// 0: it gets one of ours.
    pub inode: u64,
    /// Of the mount, as the kernel numbers them.
    pub mount: u64,
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    pub links: u32,
    pub size: i64,
    /// When it was made, or last changed, ns since 1970.
    pub time: i64,
    /// What is in it exists, but is not known here: a file that another name was given.
    pub opaque: bool,
}

const NO_FILE: File = File {
    device: 0,
    inode: 0,
    mount: 0,
    mode: 0,
    user: 0,
    group: 0,
    links: 0,
    size: 0,
    time: 0,
    opaque: false,
};

impl File {
    pub fn kind(&self) -> u32 {
        self.mode & S_IFMT
    }

    pub fn is_directory(&self) -> bool {
        self.kind() == S_IFDIR
    }

    /// As a place for names.
    pub fn directory(&self) -> Directory {
        Directory { device: self.device, inode: self.inode }
    }

    /// Bytes up to `end` have been written.
    pub fn reaches(&mut self, end: i64) {
        self.size = self.size.max(end);
    }

    /// Whether whoever is this user and group may do with it what is `wanted`: bits 4 to read, 2 to write, 1
    /// to execute or pass. Other groups that he is in are not asked for: None where they would decide.
    pub fn allows(&self, user: u32, group: u32, wanted: u32) -> Option<bool> {
        let has = |shift: u32| self.mode >> shift & wanted == wanted;
        if user == 0 {
            return Some(wanted & 1 == 0 || self.is_directory() || self.mode & 0o111 != 0);
        }
        if user == self.user {
            return Some(has(6));
        }
        if group == self.group {
            return Some(has(3));
        }
        (has(0) == has(3)).then(|| has(0))
    }
}

/// What becomes of a file that is made in a directory with these facts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Maker {
    pub user: u32,
    pub group: u32,
    pub mask: u32,
    /// Mode and group of the directory.
    pub directory_mode: u32,
    pub directory_group: u32,
}

impl Maker {
    /// A new file of `kind`, for which this `mode` was asked.
    pub fn make(&self, kind: u32, mode: u32, within: Directory, mount: u64, time: i64) -> File {
        let inherits = self.directory_mode & S_ISGID != 0;
        let (links, size, mode) = match kind {
            S_IFDIR => (2, 4096, mode & 0o1777 & !self.mask | if inherits { S_ISGID } else { 0 }),
            S_IFLNK => (1, 0, 0o777),
            _ => (1, 0, mode & 0o7777 & !self.mask),
        };
        File {
            device: within.device,
            mount,
            mode: kind | mode,
            user: self.user,
            group: if inherits { self.directory_group } else { self.group },
            links,
            size,
            time,
            ..NO_FILE
        }
    }
}

/// What is known here of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Nothing: the kernel knows.
    Untouched,
    /// Speculation has taken it away.
    Removed,
    /// It is this file.
    Made(FileId),
}

/// The table is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

#[derive(Clone, Copy)]
struct Name {
    within: Directory,
    hash: u64,
    /// 0: removed.
    file: FileId,
}

/// Zeros are its start.
pub struct Overlay {
    names: [Name; MAX_NAMES],
    count: usize,
    /// Numbers of names, from 1, at their hashes.
    index: [u16; INDEX],
    files: [File; MAX_FILES],
    file_count: usize,
    changed: [FileId; MAX_CHANGED],
    changed_count: usize,
}

const _: () = assert!(MAX_NAMES < u16::MAX as usize);
const _: () = assert!(MAX_FILES < u16::MAX as usize);
const _: () = assert!(INDEX.is_power_of_two());

impl Overlay {
    pub const fn new() -> Overlay {
        Overlay {
            names: [Name { within: Directory { device: 0, inode: 0 }, hash: 0, file: FileId::NONE };
                MAX_NAMES],
            count: 0,
            index: [0; INDEX],
            files: [NO_FILE; MAX_FILES],
            file_count: 0,
            changed: [FileId::NONE; MAX_CHANGED],
            changed_count: 0,
        }
    }

    /// Whether speculation has changed nothing so far.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.file_count == 0
    }

    /// All is as the kernel knows it.
    pub fn clear(&mut self) {
        if self.count > 0 {
            self.index.fill(0);
        }
        (self.count, self.file_count, self.changed_count) = (0, 0, 0);
    }

    pub fn look(&self, within: Directory, name: &[u8]) -> Seen {
        match self.find(within, hash(within, name)) {
            Err(_) => Seen::Untouched,
            Ok(at) => match self.names.get(at) {
                Some(name) if !name.file.is_none() => Seen::Made(name.file),
                _ => Seen::Removed,
            },
        }
    }

    /// Has a file appear, without a name yet.
    pub fn add(&mut self, file: File) -> Result<FileId, Full> {
        let place = self.files.get_mut(self.file_count).ok_or(Full)?;
        let inode = if file.inode == 0 { FIRST_INODE + self.file_count as u64 } else { file.inode };
        *place = File { inode, ..file };
        self.file_count += 1;
        Ok(FileId(self.file_count as u16))
    }

    /// A file that exists is said to be otherwise from now on, by whichever name.
    pub fn change(&mut self, file: File) -> Result<FileId, Full> {
        if let Some(id) = self.changed(file.device, file.inode) {
            return Ok(id);
        }
        let id = self.add(file)?;
        *self.changed.get_mut(self.changed_count).ok_or(Full)? = id;
        self.changed_count += 1;
        Ok(id)
    }

    /// What is said of the file with this device and inode, if that is not what the kernel says.
    pub fn changed(&self, device: u64, inode: u64) -> Option<FileId> {
        let is_it = |id: &FileId| self.file(*id).is_some_and(|f| (f.device, f.inode) == (device, inode));
        self.changed.iter().take(self.changed_count).copied().find(is_it)
    }

    /// The name is that of this file from now on.
    pub fn name(&mut self, within: Directory, name: &[u8], file: FileId) -> Result<(), Full> {
        let hash = hash(within, name);
        let at = match self.find(within, hash) {
            Ok(at) => at,
            Err(free) => {
                let at = self.count;
                if at >= MAX_NAMES {
                    return Err(Full);
                }
                if let Some(index) = self.index.get_mut(free) {
                    *index = at as u16 + 1;
                }
                self.count += 1;
                at
            }
        };
        if let Some(place) = self.names.get_mut(at) {
            *place = Name { within, hash, file };
        }
        Ok(())
    }

    /// There is no such name from now on.
    pub fn remove(&mut self, within: Directory, name: &[u8]) -> Result<(), Full> {
        self.name(within, name, FileId::NONE)
    }

    pub fn file(&self, id: FileId) -> Option<&File> {
        self.files.get(usize::from(id.0).checked_sub(1)?)
    }

    pub fn file_mut(&mut self, id: FileId) -> Option<&mut File> {
        self.files.get_mut(usize::from(id.0).checked_sub(1)?)
    }

    /// Whether any name of the directory was changed.
    pub fn has_changed(&self, within: Directory) -> bool {
        self.names.iter().take(self.count).any(|name| name.within == within)
    }

    /// Whether speculation has put something into the directory that is there still.
    pub fn has_made_in(&self, within: Directory) -> bool {
        self.names.iter().take(self.count).any(|name| name.within == within && !name.file.is_none())
    }

    /// Where the name is, or the place in the index that it would have.
    fn find(&self, within: Directory, hash: u64) -> Result<usize, usize> {
        let mut place = hash as usize % INDEX;
        loop {
            let Some(at) = usize::from(self.index.get(place).copied().unwrap_or(0)).checked_sub(1) else {
                return Err(place);
            };
            if self.names.get(at).is_some_and(|name| name.hash == hash && name.within == within) {
                return Ok(at);
            }
            // Half of the index is free, so there is an end.
            place = (place + 1) % INDEX;
        }
    }
}

impl Default for Overlay {
    fn default() -> Self {
        Self::new()
    }
}

/// FNV-1a over directory and name, mixed once more for its low bits.
fn hash(within: Directory, name: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ within.device.rotate_left(32) ^ within.inode;
    let hash = name.iter().fold(start, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (hash ^ hash >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash >> 32
}

/// How a copy between two files begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cloning {
    /// The file system says that it cannot share blocks.
    Refuses,
    /// They are on two file systems.
    Apart,
    /// It may share them.
    Unknown,
}

/// What FICLONE says between two files; `kind`: the file system's magic number.
pub fn clone_of(is_same: bool, kind: i64) -> Cloning {
    const BTRFS: i64 = 0x9123_683e;
    const XFS: i64 = 0x5846_5342;
    const OCFS2: i64 = 0x7461_636f;
    const BCACHEFS: i64 = 0xca45_1a4e;
    const ZFS: i64 = 0x2fc1_2fc1;
    const NFS: i64 = 0x6969;
    const SMB2: i64 = 0xfe53_4d42;
    const CIFS: i64 = 0xff53_4d42;
    const OVERLAY: i64 = 0x794c_7630;
    match (is_same, kind) {
        (false, _) => Cloning::Apart,
        (true, BTRFS | XFS | OCFS2 | BCACHEFS | ZFS | NFS | SMB2 | CIFS | OVERLAY) => Cloning::Unknown,
        (true, _) => Cloning::Refuses,
    }
}

/// Bytes that a transfer of `count` bytes from `place` of a file of `size` bytes moves.
pub fn moved(count: usize, size: i64, place: i64) -> usize {
    /// No call moves more (the kernel's MAX_RW_COUNT), whatever it was asked for.
    const TRANSFER_MOST: usize = 0x7fff_f000;
    let there = usize::try_from(size.saturating_sub(place)).unwrap_or(0);
    there.min(count).min(TRANSFER_MOST)
}

/// Whether a copy between two places of one file would read what it writes: the kernel refuses it.
pub fn overlaps(from: i64, to: i64, bytes: usize) -> bool {
    from.abs_diff(to) < bytes as u64
}

/// Parent and name of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split<'a> {
    /// Without the slashes behind it; empty: where the path begins ([`Split::absolute`] or not).
    pub parent: &'a [u8],
    pub absolute: bool,
    /// Empty: the path is that of where it begins.
    pub name: &'a [u8],
    /// A slash is behind it: it is to be a directory.
    pub slashed: bool,
}

impl Split<'_> {
    /// Whether the name is one that a directory holds for itself, or none.
    pub fn is_special(&self) -> bool {
        matches!(self.name, b"" | b"." | b"..")
    }
}

pub fn split(path: &[u8]) -> Split<'_> {
    let absolute = path.first() == Some(&b'/');
    let trimmed = trim(path);
    let begins = trimmed.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let (parent, name) = trimmed.split_at_checked(begins).unwrap_or((&[], trimmed));
    Split { parent: trim(parent), absolute, name, slashed: trimmed.len() < path.len() && !name.is_empty() }
}

/// Without slashes at its end.
fn trim(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    path.get(..end).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Directory = Directory { device: 8, inode: 2 };
    const MAKER: Maker =
        Maker { user: 1000, group: 100, mask: 0o022, directory_mode: 0o40755, directory_group: 50 };

    fn empty() -> Box<Overlay> {
        // SAFETY: zeros are its start.
        unsafe { Box::<Overlay>::new_zeroed().assume_init() }
    }

    fn file() -> File {
        MAKER.make(S_IFREG, 0o666, HERE, 7, 0)
    }

    #[test]
    fn a_name_is_what_was_last_done_to_it() {
        let mut overlay = empty();
        assert!(overlay.is_empty());
        assert_eq!(overlay.look(HERE, b"a"), Seen::Untouched);
        let id = overlay.add(file()).unwrap();
        overlay.name(HERE, b"a", id).unwrap();
        assert_eq!(overlay.look(HERE, b"a"), Seen::Made(id));
        assert_eq!(overlay.look(HERE, b"b"), Seen::Untouched);
        assert_eq!(overlay.look(Directory { inode: 3, ..HERE }, b"a"), Seen::Untouched);
        overlay.remove(HERE, b"a").unwrap();
        assert_eq!(overlay.look(HERE, b"a"), Seen::Removed);
        overlay.clear();
        assert_eq!(overlay.look(HERE, b"a"), Seen::Untouched);
        assert!(overlay.is_empty());
    }

    #[test]
    fn files_have_inodes_of_their_own_unless_they_exist() {
        let mut overlay = empty();
        let (one, other) = (overlay.add(file()).unwrap(), overlay.add(file()).unwrap());
        assert_ne!(overlay.file(one).unwrap().inode, overlay.file(other).unwrap().inode);
        let emptied = overlay.add(File { inode: 99, ..file() }).unwrap();
        assert_eq!(overlay.file(emptied).unwrap().inode, 99);
        assert_eq!(overlay.file(FileId::NONE), None);
    }

    #[test]
    fn what_is_said_of_a_file_that_exists_is_kept_by_inode() {
        let mut overlay = empty();
        let exists = File { inode: 99, opaque: true, ..file() };
        let id = overlay.change(exists).unwrap();
        overlay.file_mut(id).unwrap().reaches(500);
        assert_eq!(overlay.change(exists), Ok(id));
        assert_eq!(overlay.changed(HERE.device, 99), Some(id));
        assert_eq!(overlay.changed(HERE.device, 98), None);
        assert_eq!(overlay.file(id).unwrap().size, 500);
        for inode in 100..200 {
            if overlay.change(File { inode, ..exists }).is_err() {
                assert_eq!(overlay.changed(HERE.device, inode), None);
            }
        }
        overlay.clear();
        assert_eq!(overlay.changed(HERE.device, 99), None);
    }

    #[test]
    fn a_made_directory_holds_names_and_keeps_them_when_it_is_renamed() {
        let mut overlay = empty();
        let made = overlay.add(MAKER.make(S_IFDIR, 0o777, HERE, 7, 0)).unwrap();
        overlay.name(HERE, b"d", made).unwrap();
        let within = overlay.file(made).unwrap().directory();
        assert!(!overlay.has_made_in(within));
        let id = overlay.add(file()).unwrap();
        overlay.name(within, b"a", id).unwrap();
        overlay.name(HERE, b"e", made).unwrap();
        overlay.remove(HERE, b"d").unwrap();
        assert_eq!(overlay.look(within, b"a"), Seen::Made(id));
        assert!(overlay.has_made_in(within));
        overlay.remove(within, b"a").unwrap();
        assert!(!overlay.has_made_in(within) && overlay.has_changed(within));
    }

    #[test]
    fn a_full_table_refuses_and_still_knows_what_is_in_it() {
        let mut overlay = empty();
        for number in 0..MAX_NAMES {
            let id = overlay.add(file()).unwrap();
            overlay.name(HERE, number.to_string().as_bytes(), id).unwrap();
        }
        assert_eq!(overlay.add(file()), Err(Full));
        assert_eq!(overlay.remove(HERE, b"more"), Err(Full));
        for number in 0..MAX_NAMES {
            let id = FileId(number as u16 + 1);
            assert_eq!(overlay.look(HERE, number.to_string().as_bytes()), Seen::Made(id));
        }
        // What is known may change all the same.
        overlay.remove(HERE, b"17").unwrap();
        assert_eq!(overlay.look(HERE, b"17"), Seen::Removed);
    }

    #[test]
    fn modes_follow_the_mask_and_the_directory() {
        let made = MAKER.make(S_IFREG, 0o6666, HERE, 7, 5);
        assert_eq!((made.mode, made.user, made.group), (S_IFREG | 0o6644, 1000, 100));
        assert_eq!((made.size, made.links, made.mount, made.time), (0, 1, 7, 5));
        let shared = Maker { directory_mode: 0o42775, ..MAKER };
        assert_eq!(shared.make(S_IFREG, 0o600, HERE, 7, 0).group, 50);
        let directory = shared.make(S_IFDIR, 0o777, HERE, 7, 0);
        assert_eq!((directory.mode, directory.group), (S_IFDIR | 0o2755, 50));
        assert_eq!(MAKER.make(S_IFLNK, 0, HERE, 7, 0).mode, S_IFLNK | 0o777);
    }

    #[test]
    fn who_may_what_follows_the_mode() {
        let made = File { mode: S_IFREG | 0o640, user: 1000, group: 100, ..file() };
        assert_eq!(made.allows(1000, 5, 4 | 2), Some(true));
        assert_eq!(made.allows(1000, 5, 1), Some(false));
        assert_eq!(made.allows(7, 100, 4), Some(true));
        assert_eq!(made.allows(7, 100, 2), Some(false));
        assert_eq!(made.allows(7, 5, 2), Some(false));
        assert_eq!(made.allows(7, 5, 4), None, "another of his groups may be the file's");
        assert_eq!(made.allows(0, 0, 4 | 2), Some(true));
        assert_eq!(made.allows(0, 0, 1), Some(false));
        assert_eq!(File { mode: S_IFDIR, ..made }.allows(0, 0, 1), Some(true));
    }

    #[test]
    fn clones_are_foretold_only_where_they_are_refused() {
        const EXT4: i64 = 0xef53;
        assert_eq!(clone_of(true, EXT4), Cloning::Refuses);
        assert_eq!(clone_of(false, EXT4), Cloning::Apart);
        assert_eq!(clone_of(true, 0x5846_5342), Cloning::Unknown);
        assert_eq!(clone_of(false, 0x5846_5342), Cloning::Apart);
    }

    #[test]
    fn transfers_end_where_the_file_ends() {
        assert_eq!(moved(100, 1000, 950), 50);
        assert_eq!(moved(100, 1000, 0), 100);
        assert_eq!(moved(100, 1000, 1000), 0);
        assert_eq!(moved(100, 1000, 2000), 0);
        assert_eq!(moved(usize::MAX, i64::MAX, 0), 0x7fff_f000);
        assert!(overlaps(0, 99, 100) && overlaps(99, 0, 100) && !overlaps(0, 100, 100));
        assert!(!overlaps(5, 5, 0));
    }

    #[test]
    fn paths_are_split_as_the_kernel_walks_them() {
        let of = |path: &'static str| {
            let split = split(path.as_bytes());
            let text = |bytes: &'static [u8]| std::str::from_utf8(bytes).unwrap();
            (text(split.parent), text(split.name), split.absolute, split.slashed)
        };
        assert_eq!(of("a"), ("", "a", false, false));
        assert_eq!(of("a/b"), ("a", "b", false, false));
        assert_eq!(of("/a"), ("", "a", true, false));
        assert_eq!(of("/a//b//"), ("/a", "b", true, true));
        assert_eq!(of("/"), ("", "", true, false));
        assert_eq!(of(""), ("", "", false, false));
        assert_eq!(of("a/.."), ("a", "..", false, false));
        assert!(split(b"a/..").is_special() && split(b"/").is_special() && !split(b"...").is_special());
    }
}
