//! What tells shells and the user's service manager of us: files of our own, and a line in files of the
//! user's. All of it can be taken away again, and nothing else is touched.

use super::host::{FOREGROUND, SERVE};
use crate::installation::{self, Installation};
use runahead_abi::enabled::WORD;
use runahead_abi::environment::SESSION;
use runahead_sites::location::effective_user;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Ends the line in a file of the user's: whatever has it is ours.
const MARK: &str = "# runahead enable";

/// For whom it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    User,
    /// Everybody who logs in.
    System,
}

/// A file, and all of it, or the one line of ours in it.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Whole(PathBuf, String),
    Line(PathBuf, String),
    Link(PathBuf, PathBuf),
}

/// The user's home, where it is his own (`sudo` may keep another's).
fn home() -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let home = home.ok_or("HOME is not set")?;
    match fs::metadata(&home) {
        Ok(found) if found.uid() == effective_user() => Ok(home),
        Ok(_) => Err(format!("{} belongs to another user (HOME)", home.display())),
        Err(error) => Err(format!("{}: {error} (HOME)", home.display())),
    }
}

/// `XDG_CONFIG_HOME`, or what it is where that says nothing.
fn config_home(home: &Path) -> PathBuf {
    let said = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let is_ours = |path: &PathBuf| fs::metadata(path).map_or(true, |found| found.uid() == effective_user());
    said.filter(is_ours).unwrap_or_else(|| home.join(".config"))
}

/// Our folder among the user's.
pub(super) fn config_folder() -> Option<PathBuf> {
    Some(config_home(&home().ok()?).join("runahead"))
}

/// What all the files name.
pub(super) struct Names {
    tools: String,
    agent: String,
}

impl Names {
    pub(super) fn find() -> Result<Names, String> {
        let said = |error: io::Error| error.to_string();
        let agent = Installation::find().map_err(said)?.agent.to_string_lossy().into_owned();
        let tools = installation::tools().map_err(said)?.to_string_lossy().into_owned();
        if agent.contains('\'') || tools.contains(['\'', '\n', '%', '"', '\\']) {
            return Err(format!("shells and systemd would not take the path {tools} as it is"));
        }
        Ok(Names { tools, agent })
    }

    /// The environment as lines, for crontab(5), `docker --env-file` and systemd's `EnvironmentFile`.
    pub(super) fn environment(&self) -> String {
        format!("LD_PRELOAD={}\n{SESSION}={}\n", self.agent, word())
    }

    /// For a shell of POSIX's kind.
    fn snippet(&self) -> String {
        let Names { tools, agent } = self;
        let word = word();
        format!(
            "# Written by `runahead enable`; `runahead disable` takes it away.\n\
             if [ -x '{tools}' ] && [ \"${{RUNAHEAD-}}\" != off ]; then\n\
             \x20 case \"${{{SESSION}-}}\" in\n\
             \x20   ''|enabled*)\n\
             \x20     if '{tools}' {SERVE} </dev/null >/dev/null 2>&1 && [ -z \"${{{SESSION}-}}\" ]; then\n\
             \x20       LD_PRELOAD='{agent}'\"${{LD_PRELOAD:+:$LD_PRELOAD}}\"\n\
             \x20       {SESSION}={word}\n\
             \x20       export LD_PRELOAD {SESSION}\n\
             \x20     fi ;;\n\
             \x20 esac\n\
             fi\n"
        )
    }

    fn fish(&self) -> String {
        let Names { tools, agent } = self;
        let word = word();
        format!(
            "# Written by `runahead enable`; `runahead disable` takes it away.\n\
             if status is-login; and test -x '{tools}'; and test \"$RUNAHEAD\" != off; and string match -qr '^(enabled.*)?$' -- \"${SESSION}\"\n\
             \x20 if '{tools}' {SERVE} </dev/null >/dev/null 2>&1; and test -z \"${SESSION}\"\n\
             \x20   if test -n \"$LD_PRELOAD\"\n\
             \x20     set -gx LD_PRELOAD '{agent}':\"$LD_PRELOAD\"\n\
             \x20   else\n\
             \x20     set -gx LD_PRELOAD '{agent}'\n\
             \x20   end\n\
             \x20   set -gx {SESSION} {word}\n\
             \x20 end\n\
             end\n"
        )
    }

    /// environment.d(5): programs that the user's service manager starts, a desktop's among them.
    fn environment_d(&self) -> String {
        let Names { agent, .. } = self;
        format!(
            "# Written by `runahead enable`; `runahead disable` takes it away.\n\
             LD_PRELOAD={agent}${{LD_PRELOAD:+:$LD_PRELOAD}}\n{SESSION}={}\n",
            word()
        )
    }

    fn unit(&self) -> String {
        format!(
            "# Written by `runahead enable`; `runahead disable` takes it away.\n\
             [Unit]\n\
             Description=Runahead beside the user's programs\n\
             Documentation=man:runahead-enable(1)\n\
             \n\
             [Service]\n\
             ExecStart=\"{}\" {SERVE} {FOREGROUND} --wait\n\
             UnsetEnvironment=LD_PRELOAD\n\
             Restart=on-failure\n\
             RestartSec=30\n\
             \n\
             [Install]\n\
             WantedBy=default.target\n",
            self.tools
        )
    }
}

/// The variable's value. Where the shell is under filters of system calls all of its programs are.
fn word() -> String {
    let word = str::from_utf8(WORD).unwrap_or_default();
    match crate::standing::filters() {
        0 => word.to_owned(),
        filters => format!("{word}:{}", filters.min(9)),
    }
}

const UNIT: &str = "runahead-enabled.service";
const ENVIRONMENT: &str = "60-runahead.conf";

/// All that is to be there.
fn pieces(names: &Names, whom: Whom, rules: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    match whom {
        Whom::System => {
            let system = Path::new(super::rules::SYSTEM);
            pieces.push(Piece::Whole(system.join(super::rules::NAME), rules.to_owned()));
            pieces.push(Piece::Whole("/etc/profile.d/runahead.sh".into(), names.snippet()));
            if Path::new("/etc/fish").is_dir() {
                pieces.push(Piece::Whole("/etc/fish/conf.d/runahead.fish".into(), names.fish()));
            }
            if Path::new("/etc/zsh").is_dir() {
                let line =
                    format!("[ -r /etc/profile.d/runahead.sh ] && . /etc/profile.d/runahead.sh {MARK}");
                pieces.push(Piece::Line("/etc/zsh/zprofile".into(), line));
            }
            service(&mut pieces, names, Path::new("/etc/systemd/user"), Path::new("/etc/environment.d"));
        }
        Whom::User => {
            let home = home()?;
            let config = config_home(&home);
            let ours = config.join("runahead");
            let snippet = ours.join("enabled.sh");
            let path = snippet.to_string_lossy().into_owned();
            if path.contains('\'') {
                return Err(format!("shells would not take the path {path} as it is"));
            }
            pieces.push(Piece::Whole(ours.join(super::rules::NAME), rules.to_owned()));
            pieces.push(Piece::Whole(snippet, names.snippet()));
            let line = format!("[ -r '{path}' ] && . '{path}' {MARK}");
            // bash reads the first of these that is there.
            let profiles = [".bash_profile", ".bash_login", ".profile"].map(|name| home.join(name));
            let mut there: Vec<_> = profiles.iter().filter(|path| path.is_file()).cloned().collect();
            if there.is_empty() {
                there.push(home.join(".profile"));
            }
            let zsh = [".zshrc", ".zprofile", ".zshenv"].map(|name| home.join(name));
            if zsh.iter().any(|path| path.is_file()) {
                there.push(home.join(".zprofile"));
            }
            pieces.extend(there.into_iter().map(|path| Piece::Line(path, line.clone())));
            if config.join("fish").is_dir() {
                pieces.push(Piece::Whole(config.join("fish/conf.d/runahead.fish"), names.fish()));
            }
            service(&mut pieces, names, &config.join("systemd/user"), &config.join("environment.d"));
        }
    }
    Ok(pieces)
}

/// For the user's service manager, where the machine has one.
fn service(pieces: &mut Vec<Piece>, names: &Names, units: &Path, environment: &Path) {
    if !Path::new("/run/systemd/system").is_dir() {
        return;
    }
    pieces.push(Piece::Whole(environment.join(ENVIRONMENT), names.environment_d()));
    pieces.push(Piece::Whole(units.join(UNIT), names.unit()));
    pieces.push(Piece::Link(units.join("default.target.wants").join(UNIT), units.join(UNIT)));
}

/// Every place where something of ours may be, whoever has put it there, and whichever version.
fn places(whom: Whom) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let own = |paths: &[&str], base: &Path| paths.iter().map(|path| base.join(path)).collect::<Vec<_>>();
    match whom {
        Whom::System => (
            own(
                &[
                    "runahead/enabled.conf",
                    "profile.d/runahead.sh",
                    "fish/conf.d/runahead.fish",
                    "systemd/user/default.target.wants/runahead-enabled.service",
                    "systemd/user/runahead-enabled.service",
                    "environment.d/60-runahead.conf",
                ],
                Path::new("/etc"),
            ),
            vec!["/etc/zsh/zprofile".into()],
        ),
        Whom::User => {
            let Ok(home) = home() else { return (Vec::new(), Vec::new()) };
            let config = config_home(&home);
            (
                own(
                    &[
                        "runahead/enabled.sh",
                        "runahead/enabled.conf",
                        "fish/conf.d/runahead.fish",
                        "systemd/user/default.target.wants/runahead-enabled.service",
                        "systemd/user/runahead-enabled.service",
                        "environment.d/60-runahead.conf",
                    ],
                    &config,
                ),
                own(&[".bash_profile", ".bash_login", ".profile", ".zprofile"], &home),
            )
        }
    }
}

/// Begins a line of a folder that was made, in the file of rules.
const MADE: &str = "made ";

/// Writes everything, or nothing.
pub(super) fn write(names: &Names, whom: Whom, rules: &str) -> Result<(), String> {
    let mut pieces = pieces(names, whom, rules)?;
    let made = missing_folders(&pieces);
    if let Some(Piece::Whole(_, text)) = pieces.first_mut() {
        made.iter().for_each(|folder| *text += &format!("{MADE}{}\n", folder.display()));
    }
    for piece in pieces {
        let (path, written) = match &piece {
            Piece::Whole(path, text) => (path, whole(path, text)),
            Piece::Line(path, line) => (path, with_line(path, Some(line))),
            Piece::Link(path, to) => (path, link(path, to)),
        };
        if let Err(error) = written {
            return Err(format!("cannot write {}: {error}", path.display()));
        }
    }
    Ok(())
}

/// Folders that will have to be made, each behind what it is in.
fn missing_folders(pieces: &[Piece]) -> Vec<PathBuf> {
    let mut missing = Vec::new();
    for piece in pieces {
        let (Piece::Whole(path, _) | Piece::Line(path, _) | Piece::Link(path, _)) = piece;
        let mut above: Vec<&Path> = path.ancestors().skip(1).take_while(|folder| !folder.exists()).collect();
        above.reverse();
        for folder in above {
            if !missing.iter().any(|known: &PathBuf| known == folder) {
                missing.push(folder.to_owned());
            }
        }
    }
    missing
}

/// What of ours is there.
pub(super) fn found(whom: Whom) -> Vec<PathBuf> {
    let (whole, lines) = places(whom);
    let is_marked = |path: &PathBuf| fs::read(path).is_ok_and(|text| has_mark(&text));
    let is_there = |path: &PathBuf| fs::symlink_metadata(path).is_ok();
    whole.into_iter().filter(is_there).chain(lines.into_iter().filter(is_marked)).collect()
}

/// Takes everything away. Returns what could not be.
pub(super) fn remove(whom: Whom) -> Vec<String> {
    let (whole, lines) = places(whom);
    let made = whole.iter().find(|path| path.ends_with(super::rules::NAME)).map(fs::read_to_string);
    let made = made.and_then(Result::ok).unwrap_or_default();
    let mut failed = Vec::new();
    let mut note = |path: &Path, done: io::Result<()>| {
        if let Err(error) = done
            && error.kind() != io::ErrorKind::NotFound
        {
            failed.push(format!("cannot mend {}: {error}", path.display()));
        }
    };
    // First who reads them.
    for path in &lines {
        note(path, with_line(path, None));
    }
    for path in &whole {
        note(path, fs::remove_file(path));
    }
    // What somebody else has put there keeps its folder.
    for folder in made.lines().rev().filter_map(|line| line.strip_prefix(MADE)) {
        let _ = fs::remove_dir(folder);
    }
    failed
}

/// Replaces a file by another one as a whole, with the old one's mode.
fn replace(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    // What a link leads to, and not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.runahead.{}", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&new)
        .and_then(|mut file| {
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            if let Ok(before) = fs::metadata(&path) {
                std::os::unix::fs::fchown(&file, Some(before.uid()), Some(before.gid()))?;
            }
            file.write_all(text)
        })
        .and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn whole(path: &Path, text: &str) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    replace(path, text.as_bytes(), 0o644)
}

fn link(path: &Path, to: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => std::os::unix::fs::symlink(to, path),
    }
}

fn has_mark(text: &[u8]) -> bool {
    text.windows(MARK.len()).any(|part| part == MARK.as_bytes())
}

/// Has exactly this line of ours at the end of a file, or none. A file that has none but ours goes.
fn with_line(path: &Path, line: Option<&str>) -> io::Result<()> {
    let before = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let after = lines_with(&before, line);
    if after == before {
        return Ok(());
    }
    if after.is_empty() {
        return fs::remove_file(path);
    }
    let mode = fs::metadata(path).map_or(0o644, |found| found.mode() & 0o7777);
    replace(path, &after, mode)
}

fn lines_with(before: &[u8], line: Option<&str>) -> Vec<u8> {
    let mut after: Vec<u8> = before
        .split_inclusive(|&byte| byte == b'\n')
        .filter(|line| !has_mark(line))
        .flatten()
        .copied()
        .collect();
    if let Some(line) = line {
        // A last line without an end gets one, which stays.
        if !after.is_empty() && after.last() != Some(&b'\n') {
            after.push(b'\n');
        }
        after.extend_from_slice(line.as_bytes());
        after.push(b'\n');
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names { tools: "/opt/r/runahead-tools".into(), agent: "/opt/r/librunahead_agent.so".into() }
    }

    #[test]
    fn our_line_comes_once_and_goes_whole() {
        let line = format!("x {MARK}");
        for before in ["", "a\nb\n", "a\n\nexit 0\n"] {
            let with = lines_with(before.as_bytes(), Some(&line));
            assert_eq!(with, format!("{before}{line}\n").as_bytes());
            assert_eq!(lines_with(&with, Some(&line)), with, "once");
            assert_eq!(lines_with(&with, None), before.as_bytes());
        }
        let with = lines_with(b"a", Some(&line));
        assert_eq!(with, format!("a\n{line}\n").as_bytes());
        assert_eq!(lines_with(b"\xff\n", None), b"\xff\n");
    }

    #[test]
    fn a_file_that_was_made_for_our_line_goes_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".profile");
        let line = format!("x {MARK}");
        with_line(&path, None).unwrap();
        assert!(!path.exists());
        with_line(&path, Some(&line)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{line}\n"));
        with_line(&path, None).unwrap();
        assert!(!path.exists());
        fs::write(&path, "a\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        with_line(&link, Some(&line)).unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        with_line(&link, None).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\n");
    }

    #[test]
    fn shells_take_the_snippets() {
        let snippet = names().snippet();
        assert!(!has_mark(snippet.as_bytes()));
        for shell in ["sh", "bash", "dash", "zsh"] {
            let checked = std::process::Command::new(shell).args(["-n", "-c", &snippet]).output();
            let Ok(checked) = checked else { continue };
            assert!(checked.status.success(), "{shell}: {}", String::from_utf8_lossy(&checked.stderr));
        }
        if let Ok(checked) = std::process::Command::new("fish").args(["-n", "-c", &names().fish()]).output() {
            assert!(checked.status.success(), "fish: {}", String::from_utf8_lossy(&checked.stderr));
        }
    }
}
