//! Programs that copy files, on a slow disk: what they read is foretold, though they make files all the time,
//! which speculation must not.

use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::scenario::bytes;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const FOLDERS: u64 = 4;
/// In each of them.
const FILES: u64 = 60;
const FILE_BYTES: usize = 5000;

/// A name, and what is done in the disk's folder. What is left is printed, so that it is compared.
const WAYS: [(&str, &str, &str); 6] = [
    ("cp-r", "command cp", "cp -r many copy"),
    ("cp-a", "command cp", "cp -a many copy"),
    ("cp-over", "command cp", "cp -r many made; cp -r many made"),
    ("other", "command cp", "cp -r many /dev/shm/runahead-copy-$$; mv /dev/shm/runahead-copy-$$ copy"),
    ("install", "command install", "mkdir copy; install -m 640 -t copy many/0/* many/1/*"),
    ("copytree", "command python3", "python3 -c 'import shutil; shutil.copytree(\"many\", \"copy\")'"),
];

pub fn add(suite: &mut Suite) {
    for (name, needs, line) in WAYS {
        let wants = slow_disk::WANTS.into_iter().chain([needs]);
        suite.add(format!("copying::{name} is run ahead of"), wants, move || copies(name, line));
    }
}

fn fill(folder: &Path) -> io::Result<()> {
    for number in 0..FOLDERS {
        let within = folder.join("many").join(number.to_string());
        fs::create_dir_all(&within)?;
        for file in 0..FILES {
            fs::write(within.join(format!("f{file}")), bytes(number * FILES + file, FILE_BYTES))?;
        }
    }
    Ok(())
}

fn copies(name: &'static str, line: &'static str) -> Verdict {
    let disk = Disk::new(name, "cloud", fill)?;
    let text = format!(
        "cd \"$0\"; {line}; find . -type f -exec sha256sum {{}} + | sort; ls -lRn --time-style=+ copy | cut -c1-10"
    );
    let words = |mount: &Path| {
        vec![PathBuf::from("sh"), PathBuf::from("-c"), PathBuf::from(&text), mount.to_path_buf()]
    };
    disk.until(&words, 1, |counts| {
        let (reads, hinted) = (number(counts, "reads")?, number(counts, "reads_hinted")?);
        let (stopped, syncs) = (&counts["speculator"]["endings"], number(&counts["speculator"], "syncs")?);
        if hinted > FILES {
            Ok(())
        } else {
            Err(format!("{hinted} of {reads} reads foretold, in {syncs} speculations: {stopped}"))
        }
    })
}
