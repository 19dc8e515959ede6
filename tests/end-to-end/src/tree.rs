//! What a run leaves in its directory: every name with type, mode, owner, size, contents, links and
//! time of change, in a form that can be compared and printed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// All prepared files carry this time (2020-01-01), so that a run's own changes stand out: a time
/// before the run is compared exactly, a later one only as *fresh*.
pub const PREPARED: Duration = Duration::from_secs(1_577_836_800);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub kind: char,
    pub mode: u32,
    pub owner: (u32, u32),
    pub size: u64,
    pub modified: Modified,
    /// Hard links: the first name, in order, of the same inode.
    pub first_name: PathBuf,
    pub contents: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Modified {
    At { seconds: i64, nanoseconds: i64 },
    Fresh,
}

pub type Tree = BTreeMap<PathBuf, Entry>;

/// Reads the tree below `root`. `started` is when the run began.
pub fn snapshot(root: &Path, started: SystemTime) -> io::Result<Tree> {
    let mut tree = Tree::new();
    let mut first_names = BTreeMap::new();
    let started = started.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |age| age.as_secs() as i64);
    for path in walk(root)? {
        let metadata = fs::symlink_metadata(&path)?;
        let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
        let kind = metadata.file_type();
        let (kind, contents) = if kind.is_dir() {
            ('d', Vec::new())
        } else if kind.is_symlink() {
            ('l', fs::read_link(&path)?.into_os_string().into_encoded_bytes())
        } else if kind.is_file() {
            ('f', read_anyway(&path, &metadata)?)
        } else if kind.is_fifo() {
            ('p', Vec::new())
        } else if kind.is_socket() {
            ('s', Vec::new())
        } else {
            ('?', Vec::new())
        };
        let modified = if metadata.mtime() >= started - 1 {
            Modified::Fresh
        } else {
            Modified::At { seconds: metadata.mtime(), nanoseconds: metadata.mtime_nsec() }
        };
        let first_name = first_names.entry(metadata.ino()).or_insert_with(|| name.clone()).clone();
        // A directory's size is the file system's business.
        let size = if kind == 'd' { 0 } else { metadata.size() };
        let entry = Entry {
            kind,
            mode: metadata.mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
            size,
            modified,
            first_name,
            contents,
        };
        tree.insert(name, entry);
    }
    Ok(tree)
}

/// The contents, also of a file whose mode forbids reading (when we own it and are not root). A
/// sparse giant is represented by its size alone.
fn read_anyway(path: &Path, metadata: &fs::Metadata) -> io::Result<Vec<u8>> {
    if metadata.size() > 256 << 20 {
        return Ok(Vec::new());
    }
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
            let contents = fs::read(path);
            fs::set_permissions(path, metadata.permissions())?;
            contents
        }
        other => other,
    }
}

/// Everything below `root`, parents before children, in the order of names.
pub fn walk(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        let mut names = fs::read_dir(&directory)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort();
        for path in names {
            if fs::symlink_metadata(&path)?.is_dir() {
                open.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The names below a directory that may not exist.
pub fn names(root: &Path) -> Vec<String> {
    let found = walk(root).unwrap_or_default();
    found.iter().map(|path| path.display().to_string()).collect()
}

/// Gives everything below `root` the [`PREPARED`] time, children before parents.
pub fn set_prepared_times(root: &Path) -> io::Result<()> {
    use nix::fcntl::AT_FDCWD;
    use nix::sys::stat::{UtimensatFlags, utimensat};
    use nix::sys::time::TimeSpec;
    let time = TimeSpec::from_duration(PREPARED);
    for path in walk(root)?.iter().rev() {
        utimensat(AT_FDCWD, path, &time, &time, UtimensatFlags::NoFollowSymlink)?;
    }
    utimensat(AT_FDCWD, root, &time, &time, UtimensatFlags::NoFollowSymlink)?;
    Ok(())
}

fn line(entry: &Entry) -> String {
    format!(
        "{}{:04o} {}:{} {} bytes {:?} same file as {}",
        entry.kind,
        entry.mode,
        entry.owner.0,
        entry.owner.1,
        entry.size,
        entry.modified,
        entry.first_name.display()
    )
}

/// What differs, one line each.
pub fn differences(alone: &Tree, under: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (name, entry) in alone {
        let name = name.display();
        match under.get(Path::new(&name.to_string())) {
            None => found.push(format!("file {name}: missing under Runahead")),
            Some(other) if line(entry) != line(other) => {
                found.push(format!("file {name}: alone {}, under {}", line(entry), line(other)));
            }
            Some(other) if entry.contents != other.contents => {
                let at = entry.contents.iter().zip(&other.contents).position(|(a, b)| a != b);
                found.push(format!("file {name}: contents differ from byte {}", at.unwrap_or(0)));
            }
            Some(_) => {}
        }
    }
    for name in under.keys().filter(|name| !alone.contains_key(*name)) {
        found.push(format!("file {}: only under Runahead", name.display()));
    }
    found
}
