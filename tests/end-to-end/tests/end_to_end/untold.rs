//! Where the kernel does not tell what is cached: file systems that refuse `RWF_NOWAIT` (an overlay, as below a container's root), and, for
//! `cachestat`, files that one neither owns nor may write to. Before Linux 6.5 it tells nobody; `older_kernel` stands for that.
//!
//! The command makes itself a mount namespace and an overlay in it, on a disk of 1 ms, so that nothing of it is there beforehand or
//! afterwards.

use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::scenario::bytes;
use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

pub const OLDER_KERNEL: &str = env!("CARGO_BIN_EXE_older_kernel");
/// An ordinary user by all but the number, which is the superuser's for the report's sake.
pub const ORDINARY: [&str; 2] = ["setpriv", "--bounding-set=-all"];

const FILES: u64 = 300;
pub const NOBODY: u32 = 65534;
const FILE_BYTES: usize = 6000;

/// Bytes of the mapped file, and how many words of it are read.
const MAPPED: usize = 16 << 20;
const WORDS: u64 = 800;

pub fn add(suite: &mut Suite) {
    let wants = slow_disk::WANTS.into_iter().chain(["command unshare"]);
    suite.add("untold::reads on an overlay are run ahead of", wants.clone(), reads);
    suite.add("untold::mapped files on an overlay are run ahead of", wants.clone(), mapped);
    let wants = wants.chain(["command python3"]);
    suite.add("untold::what cached data leads to on an overlay is run ahead of", wants.clone(), led_to);
    suite.add("untold::what small mappings lead to on an overlay is run ahead of", wants, led_to_by_mappings);
    let wants = slow_disk::WANTS.into_iter().chain(["command python3", "command setpriv"]);
    suite.add(
        "untold::cold files after warm ones on an overlay are noticed, whoever owns them",
        wants,
        led_to_others,
    );
    suite.add("untold::reads under an older kernel are run ahead of", slow_disk::WANTS, || {
        reads_around("older", &[OLDER_KERNEL])
    });
    let wants = slow_disk::WANTS.into_iter().chain(["command python3"]);
    suite.add("untold::reads whose misses start nothing are prefetched", wants, misses_that_only_tell);
    let wants = slow_disk::WANTS.into_iter().chain(["command python3"]);
    suite.add("untold::cold files after warm ones are noticed, whatever their calls", wants, after_warm_ones);
    let wants = slow_disk::WANTS.into_iter().chain(["command setpriv"]);
    suite.add("untold::files of somebody else are run ahead of", wants.clone(), || {
        reads_around("others", &ORDINARY)
    });
    suite.add("untold::files of somebody else under an older kernel are run ahead of", wants, || {
        reads_around("others-older", &[OLDER_KERNEL, ORDINARY[0], ORDINARY[1]])
    });
}

fn fill(folder: &Path) -> io::Result<()> {
    (0..FILES).try_for_each(|number| fs::write(folder.join(format!("{number}")), bytes(number, FILE_BYTES)))
}

fn most_are_foretold(counts: &serde_json::Value) -> Verdict {
    let (reads, hinted) = (number(counts, "reads")?, number(counts, "reads_hinted")?);
    if hinted > FILES / 2 { Ok(()) } else { Err(format!("{hinted} of {reads} reads")) }
}

fn reads() -> Verdict {
    on_an_overlay("reads", fill, "sha256sum *", most_are_foretold)
}

fn reads_around(name: &'static str, around: &'static [&'static str]) -> Verdict {
    let theirs = |folder: &Path| {
        fill(folder)?;
        (0..FILES).try_for_each(|number| chown(folder.join(number.to_string()), Some(NOBODY), Some(NOBODY)))
    };
    let disk = Disk::new(name, "cloud", theirs)?.around(around.iter().copied());
    let words = |mount: &Path| -> Vec<PathBuf> {
        let files = (0..FILES).map(|number| mount.join(number.to_string()));
        std::iter::once(PathBuf::from("sha256sum")).chain(files).collect()
    };
    disk.until(&words, 1, most_are_foretold)
}

/// 4 KB each at computed places of a file of 16 MB, far from each other.
const SCATTERED: &str = "
import os, sys, zlib
file = os.open(sys.argv[1], os.O_RDONLY)
# The disk may have been unmounted in vain, where some other namespace has it.
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
print([zlib.crc32(os.pread(file, 4096, number * 1201 % 4096 * 4096)) for number in range(600)])
";

/// To the program each of its reads is one that would wait there: so what was brought in ahead shows in
/// how long they took.
fn misses_that_only_tell() -> Verdict {
    let fill = |mount: &Path| fs::write(mount.join("data"), bytes(1, MAPPED));
    let disk = Disk::new("only-tell", "cloud", fill)?.around([OLDER_KERNEL, "--misses-only-tell"]);
    let words = |mount: &Path| -> Vec<PathBuf> {
        let data = mount.join("data");
        [Path::new("python3"), "-c".as_ref(), SCATTERED.as_ref(), &data].map(PathBuf::from).into()
    };
    disk.until(&words, 1, |counts| {
        let (hinted, waited) = (number(counts, "reads_hinted")?, number(counts, "stall_ns")?);
        match waited / 1000 {
            // A disk of 1 ms, one request after the other: 300 to 600 ms.
            0..200_000 if hinted > 300 => Ok(()),
            waited => Err(format!("{hinted} reads were foretold, all took {waited} us")),
        }
    })
}

/// So many calls as the agent looks at from the start on are warm, and a few more or less of them; then each
/// cold file has two, one for its data and one for its end.
fn after_warm_ones() -> Verdict {
    (0..4).try_for_each(|more| {
        script(
            &format!("after-warm-{more}"),
            "cloud",
            format!(
                "
import os, sys, zlib
with open(sys.executable, 'rb', 0) as warm:
    for _ in range(200 + {more}): warm.read(64)
found = 0
for name in range(300):
    file = os.open(sys.argv[1] + '/' + str(name), os.O_RDONLY)
    while data := os.read(file, 1 << 20): found = zlib.crc32(data, found)
    os.close(file)
print(found)
"
            ),
        )
    })
}

fn script(name: &str, profile: &'static str, text: String) -> Verdict {
    let name: &'static str = name.to_owned().leak();
    let disk = Disk::new(name, profile, fill)?;
    let words = |mount: &Path| -> Vec<PathBuf> {
        [Path::new("python3"), "-S".as_ref(), "-c".as_ref(), text.as_ref(), mount].map(PathBuf::from).into()
    };
    disk.until(&words, 1, most_are_foretold)
}

fn mapped() -> Verdict {
    let guest = Guest::all()?.into_iter().find(|guest| guest.name() == "words").ok_or("no such guest")?;
    let program = guest.build()?;
    let fill = |lower: &Path| fs::write(lower.join("data"), bytes(1, MAPPED));
    on_an_overlay("mapped", fill, &format!("{} data {WORDS}", program.display()), |counts| {
        let foretold = number(&counts["faults"], "foretold_pages")?;
        if foretold > WORDS / 4 { Ok(()) } else { Err(format!("{foretold} words foretold")) }
    })
}

/// Records of a file of 16 MB that are found through an index in it: 4 KB each, in an order of the
/// index's own. Before that so many warm reads as the agent looks at from the start on, and more.
const LED_TO: &str = "
import os, sys
with open(sys.executable, 'rb', 0) as warm:
    for _ in range(500): warm.read(64)
file = os.open('data', os.O_RDONLY)
found = 0
for number in range(400):
    entry = os.pread(file, 8, number * 4096)
    place = 2048 + int.from_bytes(entry, 'little') % 2048
    found += os.pread(file, 100, place * 4096)[7]
print(found, any(line.endswith('/data\\n') for line in open('/proc/self/maps')))
";

fn led_to() -> Verdict {
    let fill = |lower: &Path| {
        fs::write(lower.join("led_to.py"), LED_TO)?;
        fs::write(lower.join("data"), bytes(1, MAPPED))
    };
    // Half of the reads are of the index, which is foretold whatever is in it.
    on_an_overlay("led-to", fill, "python3 led_to.py", |counts| {
        let (reads, hinted) = (number(counts, "reads")?, number(counts, "reads_hinted")?);
        let posts = number(counts, "posts")?;
        match hinted {
            600.. => Ok(()),
            _ => Err(format!("{hinted} of {reads} reads, {posts} posts")),
        }
    })
}

/// The same, where the index is cached, and each of its pages is mapped by itself.
const LED_TO_BY_MAPPINGS: &str = "
import mmap, os
index, file = os.open('index', os.O_RDONLY), os.open('data', os.O_RDONLY)
while os.read(index, 1 << 16): pass
found = 0
for number in range(400):
    with mmap.mmap(index, 4096, prot=mmap.PROT_READ, offset=number * 4096) as page:
        place = int.from_bytes(page[:8], 'little') % 4096
    found += os.pread(file, 100, place * 4096)[7]
print(found)
";

fn led_to_by_mappings() -> Verdict {
    let fill = |lower: &Path| {
        fs::write(lower.join("by_mappings.py"), LED_TO_BY_MAPPINGS)?;
        fs::write(lower.join("index"), bytes(2, 400 * 4096))?;
        fs::write(lower.join("data"), bytes(1, MAPPED))
    };
    on_an_overlay("by-mappings", fill, "python3 by_mappings.py", |counts| {
        let (reads, hinted) = (number(counts, "reads")?, number(counts, "reads_hinted")?);
        match hinted {
            600.. => Ok(()),
            _ => Err(format!("{hinted} of {reads} reads")),
        }
    })
}

/// Each of 400 cold files of somebody else is read from end to end, in two calls, after warm ones.
const WARM_FIRST: &str = "
import os, sys, zlib
with open(sys.executable, 'rb', 0) as warm:
    for _ in range(500): warm.read(64)
found = 0
for name in range(400):
    file = os.open(sys.argv[1] + '/' + str(name), os.O_RDONLY)
    while data := os.read(file, 1 << 20): found = zlib.crc32(data, found)
    os.close(file)
print(found)
";

fn led_to_others() -> Verdict {
    let disk = Disk::new("led-to-others", "cloud", |mount| {
        OVERLAY.iter().try_for_each(|folder| fs::create_dir(mount.join(folder)))?;
        (0..400u64).try_for_each(|number| {
            let path = mount.join("lower").join(number.to_string());
            fs::write(&path, bytes(number, FILE_BYTES))?;
            chown(&path, Some(NOBODY), Some(NOBODY))
        })
    })?;
    let enters = format!("cd {} && {MOUNT} && cd \"$OLDPWD\" && exec \"$@\"", disk.mount().display());
    let around = ["unshare", "-m", "sh", "-c", &enters, "sh"].into_iter().chain(ORDINARY);
    let disk = disk.around(around);
    let words = |mount: &Path| -> Vec<PathBuf> {
        let merged = mount.join("merged");
        [Path::new("python3"), "-c".as_ref(), WARM_FIRST.as_ref(), &merged].map(PathBuf::from).into()
    };
    disk.until(&words, 1, |counts| {
        let (reads, hinted) = (number(counts, "reads")?, number(counts, "reads_hinted")?);
        match hinted {
            600.. => Ok(()),
            _ => Err(format!("{hinted} of {reads} reads")),
        }
    })
}

const OVERLAY: [&str; 4] = ["lower", "upper", "work", "merged"];

const MOUNT: &str = "mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged";

/// A command line in the root of an overlay on a slow disk that is filled so.
pub fn on_an_overlay(
    name: &'static str,
    fill: impl Fn(&Path) -> io::Result<()>,
    line: &str,
    good: impl Fn(&serde_json::Value) -> Verdict,
) -> Verdict {
    let disk = Disk::new(name, "cloud", |mount| {
        OVERLAY.iter().try_for_each(|folder| fs::create_dir(mount.join(folder)))?;
        fill(&mount.join("lower"))
    })?;
    let words = |mount: &Path| -> Vec<PathBuf> {
        let script = format!("cd {} && {MOUNT} && cd merged && exec {line}", mount.display());
        ["unshare", "-m", "sh", "-c", &script].map(PathBuf::from).into()
    };
    disk.until(&words, 1, good)
}
