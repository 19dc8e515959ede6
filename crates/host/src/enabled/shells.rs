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

/// Behind the mark: the line before had no end, or the file was there and had nothing in it.
const UNENDED: &str = " (the line before had no end)";
const EMPTY: &str = " (the file was empty)";

/// Begins files that are ours.
const HEAD: &str = "# Written by `runahead enable`; `runahead disable` takes it away.\n";

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
    /// `whom`: who is to run what is named.
    pub(super) fn find(whom: Whom) -> Result<Names, String> {
        let said = |error: io::Error| error.to_string();
        let agent = Installation::find().map_err(said)?.agent.to_string_lossy().into_owned();
        let tools = installation::tools().map_err(said)?.to_string_lossy().into_owned();
        if agent.contains('\'') || tools.contains(['\'', '\n', '%', '"', '\\']) {
            return Err(format!("shells and systemd would not take the path {tools} as it is"));
        }
        // Everybody's programs, or root's, load it: whoever may exchange it acts as all of them.
        if (whom == Whom::System || effective_user() == 0)
            && let Some(theirs) = [&agent, &tools].into_iter().find_map(|path| others_may_change(path))
        {
            return Err(format!("others than root may change {}", theirs.display()));
        }
        Ok(Names { tools, agent })
    }

    /// The environment as lines, for crontab(5), `docker --env-file` and systemd's `EnvironmentFile`.
    pub(super) fn environment(&self) -> String {
        format!("LD_PRELOAD={}\n{SESSION}={}\n", self.agent, word())
    }

    /// For a shell of POSIX's kind. (It would take a command with nothing in it for one that is done.)
    fn snippet(&self) -> String {
        let Names { tools, agent } = self;
        let word = word();
        format!(
            "{HEAD}\
             if [ -x '{tools}' ] && [ -s '{tools}' ] && [ \"${{RUNAHEAD-}}\" != off ]; then\n\
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
            "{HEAD}\
             if status is-login; and test -x '{tools}' -a -s '{tools}'; and test \"$RUNAHEAD\" != off; and string match -qr '^(enabled.*)?$' -- \"${SESSION}\"\n\
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

    fn unit(&self) -> String {
        format!(
            "{HEAD}\
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

/// What on the way to a file is not root's alone.
fn others_may_change(path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let target = fs::canonicalize(path).ok();
    let mut all = path.ancestors().chain(target.iter().flat_map(|target| target.ancestors()));
    let is_roots = |path: &&Path| {
        fs::metadata(path).is_ok_and(|found| {
            // In a sticky folder nobody exchanges what is root's.
            let is_sticky = found.is_dir() && found.mode() & 0o1000 != 0;
            found.uid() == 0 && (found.mode() & 0o022 == 0 || is_sticky)
        })
    };
    all.find(|path| !is_roots(path)).map(Path::to_owned)
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
            service(&mut pieces, names, Path::new("/etc/systemd/user"));
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
            service(&mut pieces, names, &config.join("systemd/user"));
        }
    }
    Ok(pieces)
}

/// For the user's service manager, where the machine has one. (Not environment.d(5): nothing there asks
/// whether the agent's file is still to be had, and each program of a desktop would say that it is not.)
fn service(pieces: &mut Vec<Piece>, names: &Names, units: &Path) {
    if !Path::new("/run/systemd/system").is_dir() {
        return;
    }
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
            let why = format!("cannot write {}: {error}", path.display());
            remove(whom);
            // The file that says which folders were made may be what could not be written.
            made.iter().rev().for_each(|folder| drop(fs::remove_dir(folder)));
            return Err(why);
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
    whole.into_iter().filter(|path| is_ours(path)).chain(lines.into_iter().filter(is_marked)).collect()
}

/// Whether we have written a file: somebody may have one of the same name.
fn is_ours(path: &Path) -> bool {
    if path.parent().is_some_and(|folder| folder.ends_with("default.target.wants")) {
        return fs::read_link(path).is_ok_and(|to| to.ends_with(UNIT));
    }
    let is_rules = path.ends_with(super::rules::NAME) && path.is_file();
    is_rules || fs::read(path).is_ok_and(|text| text.starts_with(HEAD.as_bytes()))
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
    for path in whole.iter().filter(|path| is_ours(path)) {
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
    let path = match fs::canonicalize(path) {
        // A link that leads nowhere at present stays one.
        Err(error) if error.kind() != io::ErrorKind::NotFound || path.is_symlink() => return Err(error),
        found => found.unwrap_or_else(|_| path.to_owned()),
    };
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
    if fs::symlink_metadata(path).is_ok() && !is_ours(path) {
        return Err(io::Error::other("it is there, and not Runahead's"));
    }
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    replace(path, text.as_bytes(), 0o644)
}

fn link(path: &Path, to: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    if fs::symlink_metadata(path).is_ok() && !is_ours(path) {
        return Err(io::Error::other("it is there, and not Runahead's"));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => std::os::unix::fs::symlink(to, path),
    }
}

fn has_mark(text: &[u8]) -> bool {
    contains(text, MARK)
}

fn contains(text: &[u8], part: &str) -> bool {
    text.windows(part.len()).any(|there| there == part.as_bytes())
}

/// Has exactly this line of ours at the end of a file, or none. A file that was made for it goes with it.
fn with_line(path: &Path, line: Option<&str>) -> io::Result<()> {
    let (before, is_there) = match fs::read(path) {
        Ok(text) => (text, true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (Vec::new(), false),
        Err(error) => return Err(error),
    };
    let was_empty = is_there && (before.is_empty() || contains(&before, &format!("{MARK}{EMPTY}")));
    let line = line.map(|line| if was_empty { format!("{line}{EMPTY}") } else { line.to_owned() });
    let after = lines_with(&before, line.as_deref());
    if after == before {
        return Ok(());
    }
    if after.is_empty() && !was_empty {
        return fs::remove_file(path);
    }
    let mode = fs::metadata(path).map_or(0o644, |found| found.mode() & 0o7777);
    replace(path, &after, mode)
}

fn lines_with(before: &[u8], line: Option<&str>) -> Vec<u8> {
    let mut after: Vec<u8> = Vec::with_capacity(before.len());
    let mut is_unended = false;
    for part in before.split_inclusive(|&byte| byte == b'\n') {
        if has_mark(part) {
            is_unended = contains(part, UNENDED);
        } else {
            is_unended = false;
            after.extend_from_slice(part);
        }
    }
    // Nobody has written behind us.
    if is_unended && after.last() == Some(&b'\n') {
        after.pop();
    }
    if let Some(line) = line {
        let is_unended = after.last().is_some_and(|&byte| byte != b'\n');
        if is_unended {
            after.push(b'\n');
        }
        after.extend_from_slice(line.as_bytes());
        after.extend_from_slice(if is_unended { UNENDED.as_bytes() } else { b"" });
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
        assert_eq!(with, format!("a\n{line}{UNENDED}\n").as_bytes());
        assert_eq!(lines_with(&with, Some(&line)), with, "once");
        assert_eq!(lines_with(&with, None), b"a");
        let later = [&with, &b"b\n"[..]].concat();
        assert_eq!(lines_with(&later, None), b"a\nb\n", "somebody's line came behind");
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
    fn an_empty_file_and_a_link_to_nothing_stay_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".profile");
        let line = format!("x {MARK}");
        fs::write(&path, "").unwrap();
        for line in [Some(line.as_str()), Some(&line), None] {
            with_line(&path, line).unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), b"");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path().join("not mounted"), &link).unwrap();
        assert!(with_line(&link, Some(&line)).is_err());
        assert!(link.is_symlink());
    }

    #[test]
    fn somebody_elses_file_of_the_same_name_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runahead.sh");
        fs::write(&path, "alias r='runahead run'\n").unwrap();
        assert!(!is_ours(&path) && whole(&path, &names().snippet()).is_err());
        assert!(fs::read_to_string(&path).unwrap().starts_with("alias"));
        fs::remove_file(&path).unwrap();
        whole(&path, &names().snippet()).unwrap();
        whole(&path, &names().snippet()).unwrap();
        assert!(is_ours(&path));
        for (name, text) in [("a.fish", names().fish()), (UNIT, names().unit())] {
            let path = directory.path().join(name);
            whole(&path, &text).unwrap();
            assert!(is_ours(&path));
        }
        let wanted = directory.path().join("default.target.wants").join(UNIT);
        link(&wanted, &directory.path().join(UNIT)).unwrap();
        link(&wanted, &directory.path().join(UNIT)).unwrap();
        assert!(is_ours(&wanted));
    }

    #[test]
    fn everybody_loads_only_what_is_roots() {
        assert_eq!(others_may_change("/bin/sh"), None);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(others_may_change(path.to_str().unwrap()).is_some());
        assert!(others_may_change("/nowhere/agent").is_some());
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
