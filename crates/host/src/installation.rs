//! Where the parts of Runahead are: beside the command itself, or in `../lib/runahead`.

use std::io;
use std::path::{Path, PathBuf};

/// The files that a run needs besides the command.
#[derive(Clone, Debug)]
pub struct Installation {
    pub agent: PathBuf,
    pub speculator: PathBuf,
    /// Tells reports to people; it need not be there.
    pub teller: PathBuf,
    /// Analyses of the machine's files, by content; it need not be there.
    pub known: PathBuf,
}

const AGENT: &str = "librunahead_agent.so";
const SPECULATOR: &str = "runahead-speculator";
pub const TELLER: &str = "runahead-report";

impl Installation {
    /// Looks beside the running executable. The error names what is missing.
    pub fn find() -> io::Result<Installation> {
        let executable = std::env::current_exe()?;
        let beside = executable.parent().unwrap_or(Path::new("/"));
        let library = beside.join("../lib/runahead");
        for directory in [beside, library.as_path()] {
            let found = Installation {
                agent: directory.join(AGENT),
                speculator: directory.join(SPECULATOR),
                teller: directory.join(TELLER),
                known: directory.join(runahead_sites::KNOWN_NAME),
            };
            if found.agent.is_file() && found.speculator.is_file() {
                return found.usable();
            }
        }
        let message =
            format!("neither {} nor {} holds {AGENT} and {SPECULATOR}", beside.display(), library.display());
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
