//! Where the site file is: a directory of the user's own, that nobody else may write.
//!
//! What is in a site file is written over instructions, so whoever can write it can have the user's
//! programs do what he likes. A directory that belongs to somebody else, or that others may write, is
//! refused, whatever is in it.
//!
//! A home that has no cache folder gets none: whoever empties his home and removes it would not find it
//! empty. Then there is a folder of the user's below [`SHARED`].

use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What the user has in his own folders, and nobody else.
const PRIVATE: u32 = 0o700;

/// Group and others may write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Where every user may have a folder that stays.
const SHARED: &str = "/var/tmp";

/// The directories that the site file may be in, the best first; none of them is created. The second is
/// looked up only where it is asked for: a cold start waits for each name.
pub fn directories() -> impl Iterator<Item = PathBuf> {
    let shared = || shared_directory(Path::new(SHARED), effective_user());
    cache_directory().into_iter().chain(std::iter::once_with(shared).flatten())
}

/// The user's cache directory for Runahead, in `XDG_CACHE_HOME` or `HOME`; `None` where neither is an
/// absolute path, where it is the home of another user (`sudo` may keep `HOME`), or where there is no
/// such folder yet. Not created.
pub fn cache_directory() -> Option<PathBuf> {
    cache_directory_from(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))
}

fn cache_directory_from(cache: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |value: OsString| Some(PathBuf::from(value)).filter(|p| p.is_absolute());
    let cache = cache.and_then(absolute);
    let home = home.and_then(absolute);
    let (owned, base) = match (cache, home) {
        (Some(cache), _) => (cache.clone(), cache),
        (None, Some(home)) => (home.clone(), home.join(".cache")),
        (None, None) => return None,
    };
    let mine = fs::metadata(&owned).is_ok_and(|metadata| metadata.uid() == effective_user());
    (mine && base.is_dir()).then(|| base.join("runahead"))
}

/// This user's folder in `shared`, if nobody else can put another one in its place there: `shared` is root's or the user's,
/// and what others may write to is sticky.
fn shared_directory(shared: &Path, user: u32) -> Option<PathBuf> {
    const STICKY: u32 = 0o1000;
    let there = fs::symlink_metadata(shared).ok()?;
    let kept = there.mode() & WRITABLE_BY_OTHERS == 0 || there.mode() & STICKY != 0;
    let ours = there.is_dir() && [0, user].contains(&there.uid());
    (ours && kept).then(|| shared.join(format!("runahead-{user}")))
}

/// Makes `directory` with mode 0700, or checks the one that is there: it must be a directory of the
/// effective user that only he may write.
pub fn private_directory(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(PRIVATE).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
        Ok(()) => unmask(directory)?,
    }
    let metadata = fs::symlink_metadata(directory)?;
    let problem = if !metadata.is_dir() {
        "it is not a directory"
    } else if metadata.uid() != effective_user() {
        "it belongs to another user"
    } else if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        "others may write it (mend with: chmod go-w)"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

/// Gives a directory that was just made the rights that the user's mask may have taken: without those of the
/// user himself (`umask 777`) it would be of no use to any later run.
fn unmask(directory: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::open(directory, flags, Mode::empty())?;
    let there = rustix::fs::fstat(&made)?;
    // One that others may write is told of by whoever checks it.
    if there.st_mode & 0o777 & !PRIVATE != 0
        || there.st_mode & PRIVATE == PRIVATE
        || there.st_uid != effective_user()
    {
        return Ok(());
    }
    // fchmod(2) takes no place.
    let path = format!("/proc/self/fd/{}", made.as_raw_fd());
    Ok(rustix::fs::chmod(path, Mode::from_raw_mode(PRIVATE))?)
}

/// Gives a file of the user's own that was just made the rights `mode`, if his mask has taken any of them: what he may not
/// read himself would be of no use to a later run.
///
/// # Errors
/// It has not got them.
pub fn unmask_file(file: &File, mode: u32) -> io::Result<()> {
    match file.metadata()?.mode() & mode == mode {
        true => Ok(()),
        false => Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?),
    }
}

pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_cache_comes_first_then_the_home() {
        let directory = tempfile::tempdir().unwrap();
        let cache = directory.path().join("cache");
        let home = directory.path().join("home");
        fs::create_dir_all(&cache).unwrap();
        fs::create_dir_all(home.join(".cache")).unwrap();
        let both = cache_directory_from(Some(cache.clone().into()), Some(home.clone().into()));
        assert_eq!(both, Some(cache.join("runahead")));
        let only_home = cache_directory_from(None, Some(home.clone().into()));
        assert_eq!(only_home, Some(home.join(".cache/runahead")));
        let relative = cache_directory_from(Some("cache".into()), Some(home.clone().into()));
        assert_eq!(relative, Some(home.join(".cache/runahead")));
        assert_eq!(cache_directory_from(None, Some("".into())), None);
        assert_eq!(cache_directory_from(None, None), None);
    }

    #[test]
    fn a_home_without_a_cache_folder_gets_none() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(cache_directory_from(None, Some(directory.path().into())), None);
        assert_eq!(cache_directory_from(Some(directory.path().join("none").into()), None), None);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_shared_folder_is_used_where_nobody_can_exchange_what_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let user = effective_user();
        let with = |mode| {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
            shared_directory(directory.path(), user)
        };
        let expected = Some(directory.path().join(format!("runahead-{user}")));
        assert_eq!(with(0o1777), expected);
        assert_eq!(with(0o755), expected);
        assert_eq!(with(0o777), None);
        assert_eq!(with(0o775), None);
        let link = directory.path().join("link");
        with(0o700);
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        assert_eq!(shared_directory(&link, user), None);
        if user != 0 {
            assert_eq!(shared_directory(directory.path(), user + 1), None);
        }
    }

    #[test]
    fn a_directory_is_made_for_the_user_alone() {
        let directory = tempfile::tempdir().unwrap();
        let wanted = directory.path().join("a");
        private_directory(&wanted).unwrap();
        private_directory(&wanted).unwrap();
        assert_eq!(fs::metadata(&wanted).unwrap().mode() & 0o7777, 0o700);
    }

    #[test]
    fn a_directory_that_others_may_write_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o770)).unwrap();
        let error = private_directory(directory.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_link_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().join("real");
        private_directory(&real).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(private_directory(&link).is_err());
    }
}
