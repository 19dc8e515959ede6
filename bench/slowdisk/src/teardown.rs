//! Undoes a disk, whatever state it is in.
//!
//! The order is the reverse of set-up, and every step holds when what it undoes was never made, is half
//! made, or lost its daemon: a busy mount is detached lazily, a daemon that does not answer is killed
//! (which ends every request in flight with an error), loop devices are found by their backing file.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::control::{self, Ask};
use crate::profile::Kind;
use crate::read_ahead::Ledger;
use crate::state::{self, Lock, State};
use crate::system::{self, Process};

/// What was done, in words, and what is left because somebody uses it.
#[derive(Debug, Default, serde::Serialize)]
pub struct Undone {
    pub did: Vec<String>,
    pub left: Vec<String>,
}

/// Tears down the disk `name`. A name that is not set up is an error.
pub fn down(name: &str) -> Result<Undone> {
    let _lock = Lock::take()?;
    let Some(state) = State::load(name)? else {
        bail!("there is no disk '{name}' to take down; these are set up: {}", state::names().join(", "));
    };
    Ok(undo(&state))
}

/// How long a daemon may take from its start to its first trace in the run directory. A set-up that is killed in
/// between leaves one that nobody knows of yet.
const BIRTH: Duration = Duration::from_secs(5);

/// The caller holds the [`Lock`].
pub(crate) fn undo(state: &State) -> Undone {
    let mut undone = Undone::default();
    let deadline = Instant::now() + BIRTH;
    loop {
        undo_what_shows(state, &mut undone);
        if !undone.left.is_empty() {
            return undone;
        }
        match forget(&state.directory()) {
            // Somebody has just put something there: a daemon that is being born. Its pid is there next time.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => {
                undone.left.push(format!("{}: {error}", state.directory().display()));
                return undone;
            }
            Ok(()) => return undone,
        }
    }
}

fn undo_what_shows(state: &State, undone: &mut Undone) {
    let directory = state.directory();
    let daemon =
        fs::read(directory.join("pid")).ok().and_then(|text| serde_json::from_slice::<Process>(&text).ok());
    if let Some(daemon) = daemon.filter(Process::lives) {
        // Written-back data need not wait for a slow disk now.
        if control::ask(&state.socket(), Ask::Paced(false)).is_err() {
            daemon.kill();
            undone.did.push(format!("killed the daemon {}, which did not answer", daemon.id));
        }
    }
    if state.profile.kind != Kind::Native {
        unmount(&state.mount, undone);
    }
    let in_use = detach_loops(&state.image_file(), undone);
    unmount(&state.image_mount(), undone);
    // What it is called now that nothing is mounted there, to be told from what somebody else puts behind the device.
    let in_use =
        in_use.into_iter().filter_map(|device| Some((system::loop_file(&device)?, device))).collect();
    if let Some(daemon) = daemon {
        end(daemon, undone);
    }
    wait_for_users(in_use, undone);
    if let Some(source) = state.source.as_deref().filter(|_| state.own_source) {
        unmount(source, undone);
    }
    if let Some((file, _)) = &state.read_ahead_before {
        match Ledger::of_machine().release(file, &directory) {
            Ok(Some(now)) => undone.did.push(format!("read-ahead is {now} KB again ({})", file.display())),
            Ok(None) => {}
            Err(error) => undone.left.push(format!("read-ahead in {}: {error:#}", file.display())),
        }
    }
    for made in state.made_directories.iter().rev() {
        // Only empty directories go: what somebody put there stays.
        let _ = fs::remove_dir(made);
    }
}

/// Removes the run directory, file by file: were something still mounted below it, a recursive removal
/// would go into it.
fn forget(directory: &Path) -> std::io::Result<()> {
    for directory_of_ours in ["image", "source", "mnt"] {
        let _ = fs::remove_dir(directory.join(directory_of_ours));
    }
    for file in ["pid", "socket", "log", "state.new", "state.json"] {
        let _ = fs::remove_file(directory.join(file));
    }
    fs::remove_dir(directory)
}

/// Unmounts everything at `point`, lazily if it is busy.
fn unmount(point: &Path, undone: &mut Undone) {
    // More than one only if somebody mounted over us; ten is a bound, not an expectation.
    for _ in 0..10 {
        if !system::is_mount_point(point) {
            return;
        }
        if system::run("umount", &[point]).is_ok() {
            undone.did.push(format!("unmounted {}", point.display()));
        } else if let Err(error) = system::run("umount", &[Path::new("-l"), point]) {
            undone.left.push(format!("{error:#}"));
            return;
        } else {
            undone.did.push(format!("detached {}, which is still in use by a process", point.display()));
        }
    }
}

/// Returns the devices that somebody has open still: they go when their last user does.
fn detach_loops(file: &Path, undone: &mut Undone) -> Vec<PathBuf> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let devices = system::loops_over(file);
        if devices.is_empty() {
            return devices;
        }
        for device in &devices {
            // The device goes when its last user does; asking again does no harm.
            if system::run("losetup", &[Path::new("-d"), device]).is_ok()
                && system::loops_over(file).is_empty()
            {
                undone.did.push(format!("detached {}", device.display()));
            }
        }
        if Instant::now() > deadline {
            return system::loops_over(file);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The user may be a command of a set-up that was killed in its midst, mkfs for one: its requests have failed
/// since the daemon has gone, so it ends. Or a process whose mount namespace was copied while the disk was
/// mounted, and has nothing to do with it: a container that is made beside it.
fn wait_for_users(devices: Vec<(String, PathBuf)>, undone: &mut Undone) {
    let deadline = Instant::now() + Duration::from_secs(60);
    for (file, device) in devices {
        let has_file = || system::loop_file(&device).as_ref() == Some(&file);
        while has_file() && Instant::now() < deadline {
            let _ = system::run("losetup", &[Path::new("-d"), &device]);
            std::thread::sleep(Duration::from_millis(20));
        }
        match has_file() {
            true => {
                let mut users = system::users_of(&device).join(", ");
                if users.is_empty() {
                    users.push_str("somebody who has a file of it open");
                }
                let device = device.display();
                undone.left.push(format!("{device} is in use, by {users}; it goes when its last user does"));
            }
            false => undone.did.push(format!("detached {}", device.display())),
        }
    }
}

/// The daemon ends by itself once it is unmounted.
fn end(daemon: Process, undone: &mut Undone) {
    let deadline = Instant::now() + Duration::from_secs(3);
    while daemon.lives() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    if daemon.lives() {
        daemon.kill();
        undone.did.push(format!("killed the daemon {}, which did not end by itself", daemon.id));
        let deadline = Instant::now() + Duration::from_secs(3);
        while daemon.lives() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    if daemon.lives() {
        undone.left.push(format!("the daemon {}", daemon.id));
    }
}
