//! A device's read-ahead, changed for a while and put back.
//!
//! The setting is the machine's, and several may change it at once: a session, a test of the bench beside it,
//! a `slowdisk up native`. If each kept for itself what it found, the second would find the first's value
//! and put that back when the first is long gone. (So a disk of 8192 KB once stayed at 128.) So there is one
//! ledger for the machine, an entry for each device: what it was before anybody changed it, and who holds it
//! changed. The last to let go puts it back.
//!
//! Holders may be killed, and whoever should clean up after them too. So whoever comes next, whichever disks of
//! its own it has, first lets go for those that are dead: a holder lives as long as its disk is
//! written down ([`crate::state`]) and its process, where it named one, runs.
//!
//! What a user sets meanwhile is the user's: a value that no holder has set is left alone.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::system::{self, Process};

/// The machine's ledger, whatever `$SLOWDISK_RUN` says of the disks: only root can change the setting.
const MACHINE: &str = "/run/runahead-read-ahead";

pub struct Ledger(PathBuf);

/// One device.
#[derive(Serialize, Deserialize)]
struct Entry {
    /// Of sysfs.
    file: PathBuf,
    before: u64,
    holders: Vec<Holder>,
}

#[derive(Serialize, Deserialize)]
struct Holder {
    /// The disk's directory ([`crate::state::directory`]).
    disk: PathBuf,
    owner: Option<Process>,
    /// What it has set, the latest last. It is written here before it is set.
    values: Vec<u64>,
}

impl Holder {
    fn lives(&self) -> bool {
        self.disk.join("state.json").exists() && self.owner.is_none_or(|owner| owner.lives())
    }
}

impl Ledger {
    pub fn of_machine() -> Ledger {
        Ledger(MACHINE.into())
    }

    /// Sets the read-ahead in `file` for the disk written down in `disk`, until [`Ledger::release`] or until
    /// `owner` is gone. Returns what it was before anybody changed it.
    pub fn set(&self, file: &Path, disk: &Path, owner: Option<Process>, kilobytes: u64) -> Result<u64> {
        let _lock = self.lock()?;
        // The kernel keeps it in pages, and says it so.
        let kilobytes = kilobytes / 4 * 4;
        let now = system::read_number(file)?;
        let mut entry = match self.load(file)? {
            Some(entry) if entry.is_ours(now) => entry,
            _ => Entry { file: file.to_path_buf(), before: now, holders: Vec::new() },
        };
        entry.holders.retain(Holder::lives);
        match entry.holders.iter_mut().find(|holder| holder.disk == disk) {
            Some(holder) => holder.values.push(kilobytes),
            None => entry.holders.push(Holder { disk: disk.to_path_buf(), owner, values: vec![kilobytes] }),
        }
        self.save(&entry)?;
        write(file, kilobytes)?;
        Ok(entry.before)
    }

    /// `disk` needs its setting no longer. Returns what the setting is now if that has changed.
    pub fn release(&self, file: &Path, disk: &Path) -> Result<Option<u64>> {
        let _lock = self.lock()?;
        self.let_go(file, |holder| holder.lives() && holder.disk != disk)
    }

    /// Puts back what the dead have left. Returns what went wrong.
    pub fn restore_abandoned(&self) -> Vec<String> {
        let restore = || -> Result<()> {
            let _lock = self.lock()?;
            for entry in fs::read_dir(&self.0)?.flatten() {
                if entry.path().extension().is_some_and(|extension| extension == "json") {
                    let file = parse(&entry.path())?.file;
                    self.let_go(&file, Holder::lives)?;
                }
            }
            Ok(())
        };
        if !self.0.exists() {
            return Vec::new();
        }
        restore().err().map(|error| format!("read-ahead: {error:#}")).into_iter().collect()
    }

    /// The caller holds the lock.
    fn let_go(&self, file: &Path, stays: impl Fn(&Holder) -> bool) -> Result<Option<u64>> {
        let Some(mut entry) = self.load(file)? else {
            return Ok(None);
        };
        let now = system::read_number(file).ok();
        let ours = now.is_some_and(|now| entry.is_ours(now));
        let count = entry.holders.len();
        entry.holders.retain(stays);
        if entry.holders.len() == count && count > 0 {
            return Ok(None);
        }
        let wanted = entry.holders.last().and_then(|holder| holder.values.last()).copied();
        let wanted = wanted.unwrap_or(entry.before);
        // A device may be gone by now, with its setting.
        if ours && now != Some(wanted) {
            write(file, wanted)?;
        }
        // Only now, so that whoever comes next finds it if we are killed here.
        match entry.holders.is_empty() {
            true => fs::remove_file(self.path(file))?,
            false => self.save(&entry)?,
        }
        Ok(ours.then_some(wanted))
    }

    fn lock(&self) -> Result<File> {
        fs::create_dir_all(&self.0).with_context(|| format!("cannot make {}", self.0.display()))?;
        let path = self.0.join("lock");
        let file = File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
        // Held for a few writes to sysfs.
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(file)
    }

    fn path(&self, file: &Path) -> PathBuf {
        self.0.join(file.to_string_lossy().trim_matches('/').replace('/', "-")).with_added_extension("json")
    }

    fn load(&self, file: &Path) -> Result<Option<Entry>> {
        let path = self.path(file);
        if path.exists() { parse(&path).map(Some) } else { Ok(None) }
    }

    fn save(&self, entry: &Entry) -> Result<()> {
        let path = self.path(&entry.file);
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(entry)?)
            .and_then(|()| fs::rename(&new, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Entry {
    /// Whether the present value is one that was there before or that a holder has set.
    fn is_ours(&self, now: u64) -> bool {
        now == self.before || self.holders.iter().any(|holder| holder.values.contains(&now))
    }
}

fn parse(path: &Path) -> Result<Entry> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} makes no sense", path.display()))
}

fn write(file: &Path, kilobytes: u64) -> Result<()> {
    fs::write(file, kilobytes.to_string()).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ledger, a device's file that says 8192, and two disks.
    struct World {
        path: PathBuf,
        ledger: Ledger,
        file: PathBuf,
    }

    impl World {
        fn new(name: &str) -> World {
            let path = std::env::temp_dir().join(format!("slowdisk-ledger-{name}-{}", std::process::id()));
            for disk in ["one", "two"] {
                fs::create_dir_all(path.join(disk)).unwrap();
                fs::write(path.join(disk).join("state.json"), "{}").unwrap();
            }
            let file = path.join("read_ahead_kb");
            write(&file, 8192).unwrap();
            World { ledger: Ledger(path.join("ledger")), path, file }
        }

        fn set(&self, disk: &str, owner: Option<Process>, kilobytes: u64) -> u64 {
            self.ledger.set(&self.file, &self.path.join(disk), owner, kilobytes).unwrap()
        }

        fn release(&self, disk: &str) -> Option<u64> {
            self.ledger.release(&self.file, &self.path.join(disk)).unwrap()
        }

        fn now(&self) -> u64 {
            system::read_number(&self.file).unwrap()
        }

        fn is_closed(&self) -> bool {
            fs::read_dir(&self.ledger.0).unwrap().flatten().all(|entry| entry.file_name() == "lock")
        }
    }

    impl Drop for World {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.path);
        }
    }

    const DEAD: Option<Process> = Some(Process { id: 1, started: u64::MAX });

    #[test]
    fn the_last_to_let_go_puts_it_back_whoever_came_first() {
        for (first, second) in [("one", "two"), ("two", "one")] {
            let world = World::new("turns");
            assert_eq!(world.set("one", None, 128), 8192);
            assert_eq!(world.set("two", None, 256), 8192);
            assert_eq!(world.now(), 256);
            let left = if first == "one" { 256 } else { 128 };
            assert_eq!(world.release(first), Some(left));
            assert_eq!(world.now(), left);
            assert_eq!(world.release(second), Some(8192));
            assert_eq!((world.now(), world.is_closed()), (8192, true));
            assert_eq!(world.release(second), None, "twice does no harm");
        }
    }

    #[test]
    fn whoever_comes_next_puts_back_what_the_dead_have_left() {
        let world = World::new("dead");
        world.set("one", DEAD, 128);
        world.set("one", DEAD, 4096);
        assert_eq!(world.now(), 4096);
        assert_eq!(world.set("two", None, 128), 8192, "the next finds what was before the dead");
        assert_eq!(world.release("two"), Some(8192));
        world.set("one", DEAD, 128);
        assert_eq!(world.ledger.restore_abandoned(), Vec::<String>::new());
        assert_eq!((world.now(), world.is_closed()), (8192, true));
        // A disk that was taken down without its read-ahead.
        world.set("one", None, 128);
        fs::remove_file(world.path.join("one/state.json")).unwrap();
        world.ledger.restore_abandoned();
        assert_eq!(world.now(), 8192);
    }

    #[test]
    fn killed_between_writing_down_and_setting() {
        let world = World::new("between");
        world.set("one", DEAD, 128);
        // Written down, not set: as if it had been killed there.
        let mut entry = world.ledger.load(&world.file).unwrap().unwrap();
        entry.holders[0].values.push(4096);
        world.ledger.save(&entry).unwrap();
        world.ledger.restore_abandoned();
        assert_eq!(world.now(), 8192);
    }

    #[test]
    fn the_living_are_left_alone() {
        let world = World::new("living");
        let ours = Process::find(std::process::id() as i32);
        assert!(ours.is_some());
        world.set("one", ours, 128);
        world.ledger.restore_abandoned();
        assert_eq!(world.now(), 128);
        assert_eq!(world.release("one"), Some(8192));
    }

    #[test]
    fn what_a_user_sets_meanwhile_stays() {
        let world = World::new("user");
        world.set("one", DEAD, 128);
        write(&world.file, 512).unwrap();
        world.ledger.restore_abandoned();
        assert_eq!((world.now(), world.is_closed()), (512, true));
        world.set("one", DEAD, 128);
        write(&world.file, 1024).unwrap();
        assert_eq!(world.set("two", None, 256), 1024);
        assert_eq!(world.release("two"), Some(1024));
    }
}
