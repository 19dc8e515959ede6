//! Where the parts of Runahead are: beside the command itself, or in `../lib/runahead`.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files that a run needs besides the command.
#[derive(Clone, Debug)]
pub struct Installation {
    pub agent: PathBuf,
    /// Serves a run once there is something to be done.
    pub host: PathBuf,
    pub speculator: PathBuf,
    /// Tells reports to people; it need not be there.
    pub teller: PathBuf,
    /// Analyses of the machine's files, by content; it need not be there.
    pub known: PathBuf,
}

const AGENT: &str = "librunahead_agent.so";
const HOST: &str = "runahead-host";
const SPECULATOR: &str = "runahead-speculator";
pub const TELLER: &str = "runahead-report";
const TOOLS: &str = "runahead-tools";

/// Where parts are, looked for in this order.
fn directories() -> io::Result<[PathBuf; 2]> {
    let executable = std::env::current_exe()?;
    let beside = executable.parent().unwrap_or(Path::new("/"));
    Ok([beside.to_owned(), beside.join("../lib/runahead")])
}

/// What of the command is not in its executable.
pub fn tools() -> io::Result<PathBuf> {
    let files = directories()?.map(|directory| directory.join(TOOLS));
    files.into_iter().find(|file| file.is_file()).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// What tells whether files are still those that they were (device, inode, size, time of the last change of
/// the contents): an upgrade puts others there. None: a file is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity([Option<OfFile>; 3]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OfFile {
    place: (u64, u64),
    bytes: u64,
    changed: (i64, i64),
}

impl Installation {
    /// Of the files that have to fit together.
    pub(crate) fn identity(&self) -> Identity {
        Identity([&self.agent, &self.host, &self.speculator].map(|path| {
            let found = std::fs::metadata(path).ok()?;
            Some(OfFile {
                place: (found.dev(), found.ino()),
                bytes: found.size(),
                changed: (found.mtime(), found.mtime_nsec()),
            })
        }))
    }

    /// The one of which all parts are in `folder`, if it is there.
    pub(crate) fn in_folder(folder: &Path) -> Installation {
        Installation {
            agent: folder.join(AGENT),
            host: folder.join(HOST),
            speculator: folder.join(SPECULATOR),
            teller: folder.join(TELLER),
            known: folder.join(runahead_sites::KNOWN_NAME),
        }
    }

    /// Where all parts are.
    pub(crate) fn folder(&self) -> &Path {
        self.agent.parent().unwrap_or(Path::new("/"))
    }

    /// Looks beside the running executable. The error names what is missing.
    pub fn find() -> io::Result<Installation> {
        let directories = directories()?;
        for directory in &directories {
            let found = Installation::in_folder(directory);
            if [&found.agent, &found.host, &found.speculator].into_iter().all(|part| part.is_file()) {
                return found.usable();
            }
        }
        let [beside, library] = directories.each_ref().map(|directory| directory.display());
        let message = format!("neither {beside} nor {library} holds {AGENT}, {HOST} and {SPECULATOR}");
        Err(io::Error::new(io::ErrorKind::NotFound, message))
    }

    /// The loader splits `LD_PRELOAD` at spaces and colons, and expands `$`.
    fn usable(self) -> io::Result<Installation> {
        let path = self.agent.to_string_lossy();
        if path.contains([' ', ':', '$', '\n', '\t']) {
            let message = format!("the loader cannot preload from a path with spaces, colons or '$': {path}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(self)
    }
}
