//! Writes the manual pages and the shells' completions into a folder: both are made of the command line's
//! definition, so that neither can say what the command does not do.
//!
//! `runahead-manual FOLDER` writes `man/*.1` and `completions/*`. Called by `./x build`.

// Its own main takes it apart; here nothing of it is read.
#[allow(dead_code)]
#[path = "../../cli/src/arguments.rs"]
mod arguments;

use arguments::Arguments;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

const SECTION: &str = "1";

/// What a definition does not say, behind what it says. In roff, man(7).
const MORE: &[(&str, &str)] = &[
    ("runahead", include_str!("runahead.roff")),
    ("run", include_str!("run.roff")),
    ("record", include_str!("record.roff")),
    ("stat", include_str!("stat.roff")),
    ("report", include_str!("report.roff")),
    ("enable", include_str!("enable.roff")),
];

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("runahead-manual: say: runahead-manual FOLDER");
        return ExitCode::FAILURE;
    };
    match write(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("runahead-manual: {}: {error}", Path::new(&folder).display());
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path) -> io::Result<()> {
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    // Not the page of `help`, which there is none of.
    let mut whole = Arguments::command().disable_help_subcommand(true);
    whole.build();
    // The command's own pages, each option of which is documented where it is.
    fs::write(man.join("runahead.1"), page(&whole, "runahead")?)?;
    for (name, one) in pages(&whole) {
        fs::write(man.join(format!("{name}.1")), page(one, &name)?)?;
    }
    for (shell, name) in
        [(Shell::Bash, "runahead"), (Shell::Zsh, "_runahead"), (Shell::Fish, "runahead.fish")]
    {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Arguments::command(), "runahead", &mut text);
        fs::write(completions.join(name), text)?;
    }
    Ok(())
}

/// All subcommands and theirs, with the names of their pages.
fn pages(command: &Command) -> Vec<(String, &Command)> {
    let (mut all, mut rest) = (Vec::new(), vec![("runahead".to_owned(), command)]);
    while let Some((above, command)) = rest.pop() {
        for one in command.get_subcommands().filter(|one| one.get_name() != "help") {
            let name = format!("{above}-{}", one.get_name());
            all.push((name.clone(), one));
            rest.push((name, one));
        }
    }
    all
}

/// A page: what the definition says, then what [`MORE`] has.
fn page(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    let version = env!("CARGO_PKG_VERSION");
    let own = command.get_name().to_owned();
    let usage = name.replace('-', " ");
    let named = if own == "runahead" { command.clone() } else { command.clone().bin_name(usage) };
    let man = Man::new(named.display_name(name.to_owned()).disable_version_flag(own != "runahead"))
        .title(name.to_uppercase())
        .section(SECTION)
        .date(DATE)
        .source(format!("runahead {version}"))
        .manual("User Commands");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.get_subcommands().any(|one| one.get_name() != "help") {
        man.render_subcommands_section(&mut text)?;
    }
    let more = MORE.iter().find(|(of, _)| *of == own).map_or("", |(_, more)| more);
    text.write_all(more.as_bytes())?;
    if command.get_after_help().is_some() && more.is_empty() {
        man.render_extra_section(&mut text)?;
    }
    if own != "runahead" {
        text.write_all(b".SH SEE ALSO\n.BR runahead (1)\n")?;
    }
    Ok(tidy(&String::from_utf8_lossy(&text)).into_bytes())
}

/// Of the pages' text, not of the build, so that the same sources make the same pages.
const DATE: &str = "2026-11-26";

/// Bytes of a line of text.
const LINE: usize = 80;

/// As mandoc(1) wants it: no empty paragraph, no break after a break, no long line.
fn tidy(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let mut kept = String::new();
    let (mut before, mut as_it_is) = ("", false);
    for (at, &line) in lines.iter().enumerate() {
        let next = lines.get(at + 1).copied().unwrap_or("");
        let paragraph = matches!(line, ".PP" | ".P") && next.starts_with(".SH");
        if paragraph || (line == ".br" && before == ".br") {
            continue;
        }
        as_it_is = line == ".nf" || (as_it_is && line != ".fi");
        before = line;
        match as_it_is || line.starts_with(['.', '\'']) {
            true => kept += line,
            false => kept += &wrapped(line),
        }
        kept.push('\n');
    }
    kept
}

/// A line that begins with a dot would be a request, so a word that does stays where it is.
fn wrapped(line: &str) -> String {
    let mut text = String::new();
    let mut length = 0;
    for (number, word) in line.split(' ').enumerate() {
        let breaks = length + 1 + word.len() > LINE && !word.starts_with(['.', '\'']) && !word.is_empty();
        if number > 0 {
            text.push(if breaks { '\n' } else { ' ' });
            length = if breaks { 0 } else { length + 1 };
        }
        text += word;
        length += word.len();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs it and gives what it says, on both streams; None, and said so, where this machine lacks it.
    fn said(command: &str, arguments: &[&str]) -> Option<String> {
        match std::process::Command::new(command).args(arguments).output() {
            Ok(output) => {
                Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
            }
            Err(_) => {
                eprintln!("SKIPPED: this machine lacks {command}");
                None
            }
        }
    }

    #[test]
    fn mandoc_has_nothing_to_say_against_the_pages() {
        let folder = written("lint");
        for entry in fs::read_dir(folder.join("man")).unwrap() {
            let page = entry.unwrap().path();
            let Some(said) = said("mandoc", &["-Tlint", "-Wall", &page.to_string_lossy()]) else { break };
            assert_eq!(said, "", "{}", page.display());
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn shells_complete() {
        let folder = written("shells");
        let shown = folder.join("completions");
        let shown = shown.display();
        let bash = format!(
            "source {shown}/runahead; COMP_WORDS=(runahead run --st); COMP_CWORD=2; _runahead runahead --st run; echo ${{COMPREPLY[@]}}"
        );
        let zsh = format!(
            "fpath=({shown} $fpath); autoload -U compinit; compinit -u -D; zsh -n {shown}/_runahead && print $_comps[runahead]"
        );
        let fish = format!("source {shown}/runahead.fish; complete -C 'runahead run --st'");
        for (shell, line, says) in
            [("bash", bash, "--stats"), ("zsh", zsh, "_runahead"), ("fish", fish, "--stats")]
        {
            let Some(said) = said(shell, &["-c", &line]) else { continue };
            assert!(said.starts_with(says), "{shell}: {said}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    fn written(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("runahead-manual-{name}-{}", std::process::id()));
        write(&folder).unwrap();
        folder
    }

    #[test]
    fn all_options_are_in_the_pages_and_in_the_completions() {
        let folder = written("options");
        let read = |name: &str| {
            fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        let shells =
            ["runahead", "_runahead", "runahead.fish"].map(|name| read(&format!("completions/{name}")));
        let mut whole = Arguments::command();
        whole.build();
        let overview = read("man/runahead.1");
        let all = pages(&whole);
        assert!(all.iter().any(|(name, _)| name == "runahead-profile-show"));
        for (name, one) in all {
            let page = read(&format!("man/{name}.1"));
            let above = name.rsplit_once('-').map(|(above, _)| above).filter(|above| above.contains('-'));
            let over = above.map_or(overview.clone(), |above| read(&format!("man/{above}.1")));
            assert!(over.contains(one.get_name()), "{name} is not in the page above it");
            for long in one.get_arguments().filter_map(clap::Arg::get_long) {
                assert!(
                    page.replace("\\-", "-").contains(&format!("--{long}")),
                    "--{long} is not in {name}.1"
                );
                for shell in &shells {
                    assert!(shell.contains(long), "--{long} of {name} is not completed");
                }
            }
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
