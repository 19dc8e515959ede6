//! A suite is one file in `tests/conformance/suites`: its head says what it needs, its shell functions
//! how it is built, which cases it has, how one is run and which verdicts a case's output holds.
//!
//! ```sh
//! # about: what it tests, in one line
//! # source: coreutils        the machine's own release's source package of that name; may repeat
//! # package: libcap-dev      a package that is installed first; may repeat
//! # command: cc gcc          a command, and the package to install where it is not there; may repeat
//! # user: nobody             whom the cases run as; root if not said, which skips them for others
//! # limit: 60                seconds for one run of one case; 120 if not said
//! # programs: perl           those whose files, with their libraries, leave the cache for cold runs
//! # quick: a b               the cases of the quick subset, or how many, spread evenly; none if not said
//! # left out: NAME: why      a case that is not run; may repeat
//! ```
//!
//! `common.sh` tells what the functions are called with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const KNOWN: [&str; 9] =
    ["about", "source", "package", "command", "user", "limit", "programs", "quick", "left out"];

/// Where everything is.
pub struct Places {
    /// `tests/conformance`.
    pub folder: PathBuf,
    /// `target/conformance`.
    pub scratch: PathBuf,
    /// The suites: those beside `common.sh`, or other ones (`CONFORMANCE_SUITES`).
    pub suites: PathBuf,
}

impl Places {
    pub fn find() -> Places {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let scratch = folder.join("../../target/conformance");
        let scratch = fs::canonicalize(&scratch).unwrap_or(scratch);
        let suites =
            std::env::var_os("CONFORMANCE_SUITES").map_or_else(|| folder.join("suites"), PathBuf::from);
        Places { folder, scratch, suites }
    }

    /// A call of a suite's function, as `common.sh` carries it out.
    pub fn call(&self, suite: &str, function: &str) -> Command {
        let mut command = Command::new("/bin/bash");
        command.arg(self.folder.join("common.sh")).args([suite, function]);
        command.env("CONFORMANCE", &self.scratch).env("CONFORMANCE_SUITES", &self.suites);
        command
    }
}

pub struct Suite {
    pub name: String,
    directives: Vec<(String, String)>,
}

impl Suite {
    /// Every suite, in the order of names.
    pub fn all(places: &Places) -> Result<Vec<Suite>, String> {
        let folder = &places.suites;
        let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut suites = Vec::new();
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|kind| kind == "sh") {
                suites.push(Suite::read(&path)?);
            }
        }
        suites.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(suites)
    }

    fn read(path: &Path) -> Result<Suite, String> {
        let wrong = |what: String| format!("{}: {what}", path.display());
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let mut directives = Vec::new();
        for line in text.lines().map_while(|line| line.strip_prefix('#')) {
            let Some((key, value)) = line.trim().split_once(':') else {
                return Err(wrong(format!("'{line}' is no 'key: value'")));
            };
            if !KNOWN.contains(&key) {
                return Err(wrong(format!("'{key}' is not known")));
            }
            directives.push((key.to_owned(), value.trim().to_owned()));
        }
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Suite { name, directives })
    }

    fn each(&self, key: &str) -> impl Iterator<Item = &str> {
        self.directives.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    pub fn about(&self) -> &str {
        self.each("about").next().unwrap_or("")
    }

    /// What must be there before it is built, as kind and name.
    pub fn wants(&self) -> impl Iterator<Item = (&str, &str)> {
        let kinds = ["source", "package", "command"];
        kinds.into_iter().flat_map(|kind| self.each(kind).map(move |name| (kind, name)))
    }

    pub fn as_nobody(&self) -> bool {
        self.each("user").next() == Some("nobody")
    }

    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.each("limit").next().and_then(|value| value.parse().ok()).unwrap_or(120))
    }

    fn left_out(&self) -> Vec<(&str, &str)> {
        self.each("left out").filter_map(|value| value.split_once(':')).collect()
    }

    /// Builds the suite, unless what is there comes from the same function.
    pub fn build(&self, places: &Places) -> Result<(), String> {
        let log = places.scratch.join("logs").join(format!("{}.build", self.name));
        fs::create_dir_all(log.parent().unwrap_or(Path::new("/"))).map_err(|error| error.to_string())?;
        let output = fs::File::create(&log).map_err(|error| error.to_string())?;
        let errors = output.try_clone().map_err(|error| error.to_string())?;
        let status = places
            .call(&self.name, "build-if-new")
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .status()
            .map_err(|error| error.to_string())?;
        if status.success() {
            return Ok(());
        }
        let text = fs::read_to_string(&log).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(3).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        Err(format!("it cannot be built ({}): {}", log.display(), last.join(" | ")))
    }

    /// The names of its cases, and how many are left out and why.
    pub fn cases(&self, places: &Places) -> Result<(Vec<String>, Vec<String>), String> {
        let lines = lines_of(&mut places.call(&self.name, "cases"))?;
        let left_out = self.left_out();
        let mut cases = Vec::new();
        let mut skipped = Vec::new();
        for case in lines {
            match left_out.iter().find(|(name, _)| *name == case) {
                Some((_, why)) => skipped.push(format!("{case}: {}", why.trim())),
                None => cases.push(case),
            }
        }
        if cases.is_empty() { Err("it has no cases".to_owned()) } else { Ok((cases, skipped)) }
    }

    /// Whether it has cases in the quick subset.
    pub fn is_quick(&self) -> bool {
        self.each("quick").next().is_some()
    }

    /// Those of its cases that are in the quick subset.
    pub fn quick(&self, cases: &[String]) -> Vec<String> {
        let wanted = self.each("quick").next().unwrap_or("0");
        match wanted.parse() {
            Ok(number) => spread(cases, number),
            Err(_) => {
                let names: Vec<&str> = wanted.split_whitespace().collect();
                cases.iter().filter(|case| names.contains(&case.as_str())).cloned().collect()
            }
        }
    }

    /// The files that leave the page cache before a cold run.
    pub fn cold_files(&self, places: &Places) -> Vec<PathBuf> {
        let mut call = places.call(&self.name, "cold");
        call.env("PROGRAMS", self.each("programs").collect::<Vec<_>>().join(" "));
        lines_of(&mut call).unwrap_or_default().into_iter().map(PathBuf::from).collect()
    }
}

/// At most `number` of the cases, evenly spread over all of them.
pub fn spread(cases: &[String], number: usize) -> Vec<String> {
    let number = number.min(cases.len());
    (0..number).map(|n| cases[n * cases.len() / number].clone()).collect()
}

fn lines_of(command: &mut Command) -> Result<Vec<String>, String> {
    let output =
        command.stdin(Stdio::null()).stderr(Stdio::piped()).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_takes_evenly_and_never_more_than_there_are() {
        let cases: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        assert_eq!(spread(&cases, 3), ["0", "3", "6"]);
        assert_eq!(spread(&cases, 20).len(), 10);
        assert!(spread(&cases, 0).is_empty());
    }

    #[test]
    fn every_suite_says_what_it_is_about_and_has_its_functions() {
        let places = Places::find();
        let suites = Suite::all(&places).expect("every suite's head can be read");
        assert!(suites.len() > 10);
        for suite in suites {
            assert!(!suite.about().is_empty(), "{} says not what it is about", suite.name);
            let text = fs::read_to_string(places.suites.join(format!("{}.sh", suite.name)))
                .expect("it was read before");
            for function in ["cases()", "run()"] {
                assert!(text.contains(function), "{} has no {function}", suite.name);
            }
        }
    }
}
