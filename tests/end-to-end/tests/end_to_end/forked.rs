//! The build that makes a copy of the program at each sync (the agent's option `forked`, built by `./x test`): is a copy
//! there, for as long as it must be, and does the program get its results all the same?

use crate::slow_disk::{self, Disk};
use crate::suite::Suite;
use crate::{hostile, programs};
use runahead_end_to_end::Verdict;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::locate::Runahead;
use runahead_end_to_end::scenario::{COLD, Mode, Scenario};
use std::path::Path;

/// Children that are waited for, ends of pipes, locks, signals, exec, threads, a limit on processes, and a violent end.
const SAME: [&str; 9] = [
    "guest::fork_shared::fork",
    "guest::fork_shared::vfork",
    "guest::pipe_ends",
    "guest::locks",
    "guest::alarm_storm::quiet-handler",
    "guest::exec_itself::5::plain",
    "guest::threads_own_files::fork",
    "guest::limited::processes",
    "guest::endings::kill",
];

pub fn add(suite: &mut Suite) {
    let forked = Runahead::forked();
    let wants = [format!("file {}", forked.command)];
    for name in SAME {
        let runahead = forked.clone();
        suite.add(format!("forked::{name}"), wants.clone(), move || guest(name)?.check(&runahead));
    }
    let (runahead, wants_nm) = (forked.clone(), [wants[0].clone(), "command nm".to_owned()]);
    suite.add("forked::nothing in the agent's binary can panic", wants_nm, move || {
        hostile::no_panic(&runahead)
    });
    let wants =
        wants.into_iter().chain(slow_disk::WANTS.map(str::to_owned)).chain(["command bash".to_owned()]);
    suite.add("forked::a copy is there until exec", wants, move || comes_and_goes(&forked));
}

fn guest(name: &str) -> Result<Scenario, String> {
    for guest in Guest::all()? {
        if let Some(run) = guest.runs().into_iter().find(|run| run.name == name) {
            let mut scenario = guest.scenario(&run)?.modes([COLD]);
            scenario.name = format!("forked {name}");
            return Ok(scenario);
        }
    }
    Err(format!("there is no test '{name}'"))
}

/// All signals but SIGKILL and SIGSTOP, as /proc shows a mask.
const ALL_BLOCKED: &str = "fffffffffffbfeff";

/// bash reads cold files and tells whether it has a child, and which signals each of them blocks; what it becomes then
/// has none.
const TELLING: &str = r#"
    for file in "$0"/tree/folder-*/*.txt; do mapfile < $file; done
    read -r children < /proc/$$/task/$$/children; echo "before: ${children:+some}"
    for child in $children; do while read -r word value; do
        [ $word = State: ] && [ "$value" != "Z (zombie)" ] && echo alive
        [ $word = SigBlk: ] && echo "blocks $value"; done < /proc/$child/status; done
    exec sed "s/.*/after: some/" /proc/$$/task/$$/children"#;

/// On a slow disk: where nothing waits, nothing is copied.
fn comes_and_goes(forked: &Runahead) -> Verdict {
    let disk = Disk::new("forked", "cloud", programs::files)?.under(forked);
    let words = |mount: &Path| ["bash".into(), "-c".into(), TELLING.into(), mount.to_owned()].to_vec();
    let said = |options| -> Result<Option<String>, String> {
        let outcome = disk.run(&words, &Mode { options: Some(options), ..COLD })?;
        Ok(outcome.map(|outcome| String::from_utf8_lossy(&outcome.stdout).into_owned()))
    };
    let (Some(speculating), Some(watching)) = (said(&[])?, said(&["--no-speculate"])?) else { return Ok(()) };
    if speculating == format!("before: some\nalive\nblocks {ALL_BLOCKED}\n") && watching == "before: \n" {
        return Ok(());
    }
    Err(format!("with speculation: {speculating}without: {watching}"))
}
