//! `runahead enable`, `disable`, `status` and `serve`: every program that a user starts runs beside one host,
//! not each command beside its own.
//!
//! A host without a command ([`host`]) says in a folder of the user's where its session is ([`place`]). The
//! environment of the user's programs names the agent and no session but "that of my user" ([`shells`]), so
//! it stays true when the host ends or another one begins. Where there is none, programs run plainly.

mod host;
mod opted_out;
mod place;
mod rules;
mod shells;

pub use host::{serve_beside, serve_here};
pub use rules::Rules;
pub use shells::Whom;

use place::{Host, Place};
use runahead_abi::enabled::filters;
use runahead_abi::environment::SESSION;
use runahead_sites::location::effective_user;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// How long a host may take to end once nobody names it any more; then it is ended.
const ENDS: Duration = Duration::from_secs(3);

/// Has every program run beside one host from the next login on. What there is to say, or why not.
pub fn enable(whom: Whom, rules: &Rules) -> Result<String, String> {
    if whom == Whom::System && effective_user() != 0 {
        return Err("--system is the superuser's to say".into());
    }
    if let Some(problem) = rules.problem() {
        return Err(problem);
    }
    crate::launch::may_serve().map_err(|why| format!("it could not work here: {why}"))?;
    let names = shells::Names::find(whom)?;
    let place = Place::make().map_err(|error| error.to_string())?;
    // Of another version, or with other rules.
    let was_on = !shells::found(whom).is_empty();
    shells::remove(whom);
    let begun =
        shells::write(&names, whom, &rules.text()).and_then(|()| end_hosts()).and_then(|()| serve_beside());
    if let Err(why) = begun {
        shells::remove(whom);
        place.clear();
        let now = if was_on { "it was on, and is off now" } else { "nothing is changed" };
        return Err(format!("{why}; {now}"));
    }
    let all = match whom {
        Whom::User => "your programs",
        Whom::System => "everybody's programs",
    };
    Ok(format!(
        "Runahead is on for {all}, from the next login on. In this shell now, with:\n  \
         export $(runahead enable --print-env)"
    ))
}

/// What the environment of programs has to say, for containers, cron and services.
pub fn print_env() -> Result<String, String> {
    Ok(shells::Names::find(Whom::User)?.environment().trim_end().to_owned())
}

/// Leaves nothing behind. What there is to say, or what could not be mended.
pub fn disable(whom: Whom) -> Result<String, String> {
    if whom == Whom::System && effective_user() != 0 {
        return Err("--system is the superuser's to say".into());
    }
    let was_there = !shells::found(whom).is_empty();
    let mut failed = shells::remove(whom);
    let before = programs();
    // Where it is on for everybody it stays on for this user.
    if whom == Whom::System || shells::found(Whom::System).is_empty() {
        failed.extend(end_hosts().err());
    }
    if !failed.is_empty() {
        return Err(failed.join("\nrunahead: "));
    }
    let mut said = match (was_there, whom) {
        (false, _) => "Runahead was not on".to_owned(),
        (true, Whom::User) => "Runahead is off for your programs".to_owned(),
        (true, Whom::System) => "Runahead is off for everybody's programs".to_owned(),
    };
    if whom == Whom::System {
        said += "\nHosts of other users end at their next login, or with: runahead disable";
    } else if !shells::found(Whom::System).is_empty() {
        said += ", but on for everybody's: runahead disable --system";
    }
    if !before.is_empty() {
        let _ = write!(said, "\nStill there from before, plainly from now on: {}", listed(&before));
    }
    if std::env::var_os(SESSION).is_some_and(|value| filters(value.as_encoded_bytes()).is_some()) {
        let _ =
            write!(said, "\nThis shell keeps two variables that do nothing now: unset LD_PRELOAD {SESSION}");
    }
    Ok(said)
}

/// How it stands; and whether it is on and served.
pub fn status() -> (String, bool) {
    let (users, systems) = (shells::found(Whom::User), shells::found(Whom::System));
    let mut said = match (users.is_empty(), systems.is_empty()) {
        (true, true) => "not enabled",
        (false, true) => "enabled for this user",
        (true, false) => "enabled for everybody",
        (false, false) => "enabled for this user, and for everybody",
    }
    .to_owned();
    for path in users.iter().chain(&systems) {
        let _ = write!(said, "\n  {}", path.display());
    }
    let host = Place::all().into_iter().find_map(|place| match place.host() {
        Host::Lives(host) => Some((place, host)),
        Host::None => None,
    });
    let is_served = host.as_ref().is_some_and(|(place, host)| place.published() == Some(*host));
    match &host {
        Some((place, host)) if is_served => {
            let _ = write!(said, "\nhost: process {host}, found in {}", place.path().display());
        }
        Some((_, host)) => {
            let _ = write!(said, "\nhost: process {host}, which serves nobody at present");
        }
        None => said += "\nhost: none; programs run plainly until the next login",
    }
    let programs = programs();
    if !programs.is_empty() {
        let _ = write!(said, "\nprograms beside it: {}", listed(&programs));
    }
    let shell = match std::env::var_os(SESSION) {
        Some(value) if filters(value.as_encoded_bytes()).is_some() => match is_served {
            true => "what is started here runs beside it",
            false => {
                "it has the variables, which do nothing while nobody serves: what is started here runs plainly"
            }
        },
        Some(_) => "it is a part of a `runahead run`",
        None => "what is started here does not run beside it (log in anew)",
    };
    let _ = write!(said, "\nthis shell: {shell}");
    let preload = fs::read_to_string("/etc/ld.so.preload").unwrap_or_default();
    let ours = preload.contains("librunahead_agent");
    said += match ours {
        true => "\n/etc/ld.so.preload: names the agent, which Runahead never does: take the line away",
        false => "\n/etc/ld.so.preload: names nothing of Runahead's",
    };
    let is_on = !users.is_empty() || !systems.is_empty();
    (said, is_on && is_served)
}

/// Ends all hosts of this user's, and first who waits to be the next one.
fn end_hosts() -> Result<(), String> {
    let hosts: Vec<Host> = Place::all().iter().map(Place::host).collect();
    for process in processes().filter(|process| !hosts.contains(&Host::Lives(*process)) && serves(*process)) {
        if let Some(process) = crate::processes::pid_of(process) {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
    }
    for place in Place::all() {
        if !place.is_ours() {
            continue;
        }
        let folder = place.path().display();
        // Nobody joins it any more; it sees that it is not wanted.
        place.take_back().map_err(|error| format!("cannot remove what is in {folder}: {error}"))?;
        let mut end = Instant::now() + ENDS;
        let mut is_told = false;
        while let Host::Lives(host) = place.host() {
            if Instant::now() > end {
                if is_told {
                    return Err(format!("the host (process {host}) does not end"));
                }
                is_told = true;
                end = Instant::now() + ENDS;
                end_process(host);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        place.clear();
    }
    Ok(())
}

/// Ends a host that does not end itself. It has the lock that nobody but this user's processes may have.
fn end_process(host: u32) {
    let is_host =
        fs::read_to_string(format!("/proc/{host}/comm")).is_ok_and(|name| name.starts_with("runahead"));
    if let Some(process) = crate::processes::pid_of(host).filter(|_| is_host) {
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    }
}

/// This user's.
fn processes() -> impl Iterator<Item = u32> {
    let numbers = fs::read_dir("/proc").into_iter().flatten();
    let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(|process: &u32| {
        fs::metadata(format!("/proc/{process}")).is_ok_and(|found| found.uid() == effective_user())
    })
}

/// Whether a process is a host, or waits to be one.
fn serves(process: u32) -> bool {
    let is_ours = fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|file| {
        file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"runahead-tools"))
    });
    let line =
        if is_ours { fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default() } else { Vec::new() };
    line.split(|&byte| byte == 0).nth(1) == Some(host::SERVE.as_bytes())
}

/// Processes of this user's that have joined such a session, with their names.
fn programs() -> Vec<(u32, String)> {
    let mut found: Vec<(u32, String)> =
        processes().filter_map(|process| Some((process, joined(process)?))).collect();
    found.sort_unstable();
    found
}

/// Its name, if it is one.
fn joined(process: u32) -> Option<String> {
    let path = |name: &str| format!("/proc/{process}/{name}");
    let is_ours = |entry: &[u8]| {
        let value = entry.strip_prefix(SESSION.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
        value.and_then(filters).is_some()
    };
    let environment = fs::read(path("environ")).ok()?;
    let is_named = environment.split(|&byte| byte == 0).any(is_ours);
    let maps = is_named.then(|| fs::read_to_string(path("maps")).ok()).flatten()?;
    let name = fs::read_to_string(path("comm")).ok()?;
    maps.contains("/memfd:runahead-session").then(|| name.trim_end().to_owned())
}

/// Some of them, and how many more there are.
fn listed(programs: &[(u32, String)]) -> String {
    const MOST: usize = 20;
    let some: Vec<String> =
        programs.iter().take(MOST).map(|(process, name)| format!("{name} ({process})")).collect();
    match programs.len().checked_sub(MOST) {
        None | Some(0) => some.join(", "),
        Some(more) => format!("{} and {more} more", some.join(", ")),
    }
}
