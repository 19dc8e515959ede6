//! The ways to run a command that are compared.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// One way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Configuration {
    pub name: &'static str,
    pub about: &'static str,
    pub subject: Subject,
    /// Its ratio is the time of this configuration over its own.
    pub base: &'static str,
    /// On the first processor only.
    pub one_core: bool,
    /// Everything cached.
    pub warm: bool,
    /// The kernel's read-ahead, in KB, if not the session's.
    pub read_ahead_kb: Option<u64>,
    /// Everything that the command will read is read beforehand, 64 requests at a time, and that time
    /// counts.
    pub prefetch: bool,
    /// The program with hints written into it by hand, for workloads that have one.
    pub manual: bool,
    /// The program with hints through Runahead's own interface, for workloads that have one.
    pub hinted: bool,
}

/// Whether Runahead has a part in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Subject {
    None,
    Runahead,
    /// With everything in place but hints ignored: what it costs.
    HintsIgnored,
    /// Another build of it, which copies the program at each sync: what the 2003 base design costs.
    Forked,
}

/// Where the builds of Runahead are.
#[derive(Clone, Debug)]
pub struct Builds {
    /// The one to test.
    pub usual: PathBuf,
    pub forked: PathBuf,
}

impl Builds {
    /// The build that `subject` runs, if Runahead has a part in it.
    pub fn of(&self, subject: Subject) -> Option<&Path> {
        match subject {
            Subject::None => None,
            Subject::Runahead | Subject::HintsIgnored => Some(&self.usual),
            Subject::Forked => Some(&self.forked),
        }
    }
}

const ALONE: Configuration = Configuration {
    name: "alone",
    about: "the command by itself",
    subject: Subject::None,
    base: "alone",
    one_core: false,
    warm: false,
    read_ahead_kb: None,
    prefetch: false,
    manual: false,
    hinted: false,
};

/// All of them, bases first.
pub const CONFIGURATIONS: [Configuration; 13] = [
    ALONE,
    Configuration { name: "runahead", about: "under Runahead", subject: Subject::Runahead, ..ALONE },
    Configuration {
        name: "ignored",
        about: "under Runahead, hints ignored",
        subject: Subject::HintsIgnored,
        ..ALONE
    },
    Configuration {
        name: "forked",
        about: "under a Runahead that copies the program at each sync, as the 2003 base design does",
        subject: Subject::Forked,
        ..ALONE
    },
    Configuration {
        name: "manual",
        about: "alone, hints written into the program by hand (preads, slices, search, xds)",
        manual: true,
        ..ALONE
    },
    Configuration {
        name: "hinted",
        about: "alone, hints through Runahead's interface (the list 'hints')",
        hinted: true,
        ..ALONE
    },
    Configuration { name: "prefetched", about: "everything prefetched beforehand", prefetch: true, ..ALONE },
    Configuration {
        name: "readahead-0",
        about: "alone, kernel read-ahead off",
        read_ahead_kb: Some(0),
        ..ALONE
    },
    Configuration {
        name: "readahead-4096",
        about: "alone, kernel read-ahead large",
        read_ahead_kb: Some(4096),
        ..ALONE
    },
    Configuration {
        name: "alone-one-core",
        about: "alone, one processor",
        one_core: true,
        base: "alone-one-core",
        ..ALONE
    },
    Configuration {
        name: "runahead-one-core",
        about: "under Runahead, one processor",
        subject: Subject::Runahead,
        one_core: true,
        base: "alone-one-core",
        ..ALONE
    },
    Configuration { name: "alone-warm", about: "alone, all cached", warm: true, base: "alone-warm", ..ALONE },
    Configuration {
        name: "runahead-warm",
        about: "under Runahead, all cached",
        subject: Subject::Runahead,
        warm: true,
        base: "alone-warm",
        ..ALONE
    },
];

/// The configuration of that name; an unknown name fails with the list.
pub fn by_name(name: &str) -> Result<Configuration> {
    match CONFIGURATIONS.iter().find(|configuration| configuration.name == name) {
        Some(found) => Ok(*found),
        None => bail!("there is no configuration '{name}'; these exist:\n{}", known()),
    }
}

/// One line for each.
pub fn known() -> String {
    CONFIGURATIONS.iter().map(|one| format!("  {:<18} {}\n", one.name, one.about)).collect()
}

impl Configuration {
    /// The command line to start: `command`, or Runahead in front of it, and `prefix` before all. `report`
    /// is where Runahead writes its own.
    pub fn wrap(
        &self,
        prefix: &[OsString],
        builds: &Builds,
        report: &Path,
        command: &[OsString],
    ) -> Vec<OsString> {
        let mut all: Vec<OsString> = prefix.to_vec();
        if let Some(build) = builds.of(self.subject) {
            all.extend([build.into(), "run".into(), "--report".into(), report.into()]);
            if self.subject == Subject::HintsIgnored {
                all.push("--no-speculate".into());
            }
            all.push("--".into());
        }
        all.extend(command.iter().cloned());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_base_exists_and_is_its_own() {
        for configuration in CONFIGURATIONS {
            let base = by_name(configuration.base).unwrap();
            assert_eq!(base.base, base.name);
            assert_eq!(base.subject, Subject::None);
        }
        assert!(by_name("turbo").unwrap_err().to_string().contains("prefetched"));
    }

    #[test]
    fn runahead_stands_before_the_command() {
        let command: Vec<OsString> = vec!["grep".into(), "-c".into()];
        let builds = Builds { usual: "/r".into(), forked: "/f".into() };
        let wrap = |name: &str| by_name(name).unwrap().wrap(&[], &builds, Path::new("/j"), &command);
        assert_eq!(wrap("alone"), command);
        let nobody = by_name("runahead").unwrap().wrap(
            &["as".into(), "nobody".into()],
            &builds,
            Path::new("/j"),
            &command,
        );
        assert_eq!(nobody, ["as", "nobody", "/r", "run", "--report", "/j", "--", "grep", "-c"]);
        assert_eq!(wrap("runahead"), ["/r", "run", "--report", "/j", "--", "grep", "-c"]);
        assert_eq!(wrap("forked"), ["/f", "run", "--report", "/j", "--", "grep", "-c"]);
        assert_eq!(wrap("ignored"), ["/r", "run", "--report", "/j", "--no-speculate", "--", "grep", "-c"]);
    }
}
