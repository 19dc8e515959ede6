//! The data that workloads read, made from Debian packages or generators, never committed.
//!
//! Everything lies below one root (`$RUNAHEAD_DATA`, by default `data` in the checkout): a directory for
//! each set, beside it `NAME.files` (one path a line, relative to the set's parent) where a workload
//! wants a list, and `NAME.stamp`, which says what the set was made of. A set is made as `NAME.partial` and
//! renamed when whole; its stamp comes last, so an interrupted or outdated one is made again, and
//! downloads are kept.

pub mod generated;
mod kernel;
mod objects;
pub mod postgres;
mod unpacked;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::packages;

/// One set.
pub struct DataSet {
    pub name: &'static str,
    pub about: &'static str,
    /// Bytes on a disk, roughly, file system overhead included: to size an image by.
    pub megabytes: u64,
    /// Changes when the recipe does.
    pub version: u32,
    /// Commands that making it takes, and the Debian packages that hold them.
    pub needs: &'static [(&'static str, &'static str)],
    /// Sets that it is made from.
    from: &'static [&'static str],
    make: fn(&Maker) -> Result<()>,
}

const COMPILER: &[(&str, &str)] = &[("gcc", "gcc"), ("make", "make"), ("ar", "binutils")];

/// All sets, an ingredient before what is made from it.
pub const SETS: [DataSet; 18] = [
    DataSet {
        name: "kernel",
        about: "the first 9000 .c and .h files of Debian's linux-source-6.1, by path",
        megabytes: 110,
        version: 1,
        needs: &[],
        from: &[],
        make: kernel::sources,
    },
    DataSet {
        name: "git",
        about: "those files as a git repository of one commit",
        megabytes: 140,
        version: 1,
        needs: &[("git", "git")],
        from: &["kernel"],
        make: kernel::repository,
    },
    DataSet {
        name: "packs",
        about: "all of linux-source-6.1 as a bare git repository of one commit, in one pack",
        megabytes: 260,
        version: 1,
        needs: &[("git", "git")],
        from: &[],
        make: kernel::packs,
    },
    DataSet {
        name: "tree",
        about: "the first 48,000 files of linux-source-6.1, at most 4 KiB of each",
        megabytes: 260,
        version: 1,
        needs: &[],
        from: &[],
        make: kernel::tree,
    },
    DataSet {
        name: "objects",
        about: "the objects of GNU objdump and its libraries for all targets, with -g, from Debian's binutils-source",
        megabytes: 150,
        version: 1,
        needs: COMPILER,
        from: &[],
        make: objects::binutils,
    },
    DataSet {
        name: "database",
        about: "an sqlite database of 1 GB with an index, and 1500 look-ups of two kinds",
        megabytes: 1130,
        version: 1,
        needs: &[("sqlite3", "sqlite3")],
        from: &[],
        make: generated::database,
    },
    DataSet {
        name: "volume",
        about: "512 x 512 x 512 floats",
        megabytes: 513,
        version: 1,
        needs: &[],
        from: &[],
        make: generated::volume,
    },
    DataSet {
        name: "blocks",
        about: "1 GB of random bytes",
        megabytes: 1025,
        version: 1,
        needs: &[],
        from: &[],
        make: generated::blocks,
    },
    DataSet {
        name: "entries",
        about: "a B-tree of 1,300,000 entries in 530 MB, its pages anywhere",
        megabytes: 535,
        version: 1,
        needs: &[],
        from: &[],
        make: generated::entries,
    },
    DataSet {
        name: "small",
        about: "the first 1000 files of the set kernel, for smoke tests",
        megabytes: 16,
        version: 1,
        needs: &[],
        from: &["kernel"],
        make: kernel::few,
    },
    DataSet {
        name: "source-1999",
        about: "1349 C files of 18 MB out of linux-source-6.1: Agrep's files in 1999",
        megabytes: 25,
        version: 1,
        needs: &[],
        from: &[],
        make: kernel::sources_1999,
    },
    DataSet {
        name: "source-2003",
        about: "8971 C files of 105 MB out of linux-source-6.1: Agrep's files in 2003",
        megabytes: 135,
        version: 1,
        needs: &[],
        from: &[],
        make: kernel::sources_2003,
    },
    DataSet {
        name: "objects-562",
        about: "the set objects and more of its libraries, 562 objects in all, every other without -g",
        megabytes: 120,
        version: 1,
        needs: COMPILER,
        from: &["objects"],
        make: objects::as_many_as_the_papers,
    },
    DataSet {
        name: "postgres",
        about: "a PostgreSQL cluster with AS3AP's four relations, 500 MB, and 3000 look-ups",
        megabytes: 900,
        version: 1,
        needs: &[("/usr/lib/postgresql/15/bin/initdb", "postgresql-15")],
        from: &[],
        make: postgres::cluster,
    },
    DataSet {
        name: "speech",
        about: "pocketsphinx's English model (Debian's pocketsphinx-en-us) and 18 seconds of speech",
        megabytes: 45,
        version: 1,
        needs: &[],
        from: &[],
        make: unpacked::speech,
    },
    DataSet {
        name: "python",
        about: "numpy, pandas and what they need, unpacked from Debian's packages",
        megabytes: 140,
        version: 1,
        needs: &[("/usr/bin/python3", "python3")],
        from: &[],
        make: unpacked::python,
    },
    DataSet {
        name: "library",
        about: "GNU libiberty's sources out of binutils-source, with a makefile",
        megabytes: 10,
        version: 1,
        needs: COMPILER,
        from: &[],
        make: unpacked::library,
    },
    DataSet {
        name: "compiler",
        about: "the C compiler's largest program, unpacked from Debian's cpp-12",
        megabytes: 40,
        version: 1,
        needs: COMPILER,
        from: &[],
        make: unpacked::compiler,
    },
];

/// The set of that name; an unknown name fails with the list.
pub fn by_name(name: &str) -> Result<&'static DataSet> {
    SETS.iter().find(|set| set.name == name).with_context(|| {
        let known: String = SETS.iter().map(|set| format!("  {:<10} {}\n", set.name, set.about)).collect();
        format!("there is no data set '{name}'; these exist:\n{known}")
    })
}

/// What making the set takes, its ingredients included.
pub fn needs(set: &'static DataSet) -> Vec<(&'static str, &'static str)> {
    let ingredients = set.from.iter().filter_map(|name| by_name(name).ok()).flat_map(needs);
    set.needs.iter().copied().chain(ingredients).collect()
}

/// The root of the data: `$RUNAHEAD_DATA`, or `data` in the checkout.
pub fn root(checkout: &Path) -> PathBuf {
    std::env::var_os("RUNAHEAD_DATA").map_or_else(|| checkout.join("data"), PathBuf::from)
}

/// Makes the set, and first those that it is made from, unless it is there. Says what it does on
/// standard error.
pub fn ensure_made(root: &Path, set: &DataSet) -> Result<()> {
    let maker = Maker { root: root.to_path_buf(), set: set.name };
    let stamp = format!("{} {}\n", set.name, set.version);
    if fs::read_to_string(maker.beside("stamp")).is_ok_and(|found| found == stamp)
        && maker.finished().is_dir()
    {
        return Ok(());
    }
    for ingredient in set.from {
        ensure_made(root, by_name(ingredient)?)?;
    }
    let missing = packages::missing(set.needs);
    ensure!(
        missing.is_empty(),
        "making the data set '{}' takes these Debian packages: {}",
        set.name,
        missing.join(" ")
    );
    eprintln!("making the data set '{}': {} (about {} MB)", set.name, set.about, set.megabytes);
    fs::create_dir_all(root).with_context(|| {
        format!("cannot make {}; set RUNAHEAD_DATA to a directory of yours", root.display())
    })?;
    let free = free_megabytes(root)?;
    // Ingredients and downloads come on top; the set twice over is room for them.
    ensure!(
        free > 2 * set.megabytes,
        "{} has {free} MB free, the data set '{}' wants {}",
        root.display(),
        set.name,
        2 * set.megabytes
    );
    let _ = fs::remove_file(maker.beside("stamp"));
    remove(&maker.partial())?;
    remove(&maker.finished())?;
    fs::create_dir_all(maker.partial())?;
    (set.make)(&maker).with_context(|| format!("cannot make the data set '{}'", set.name))?;
    fs::rename(maker.partial(), maker.finished())?;
    fs::write(maker.beside("stamp"), stamp)?;
    Ok(())
}

/// The list that belongs to a set: paths below the root (`kernel/arch/…`).
pub fn files(root: &Path, set: &str) -> Result<Vec<String>> {
    let path = root.join(format!("{set}.files"));
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().map(String::from).collect())
}

fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

/// Megabytes free at `path` for an ordinary user.
pub fn free_megabytes(path: &Path) -> Result<u64> {
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the name ends with a zero byte, the result is a statvfs of our own.
    if unsafe { libc::statvfs(name.as_ptr(), found.as_mut_ptr()) } != 0 {
        return Err(std::io::Error::last_os_error())
            .with_context(|| format!("cannot look at {}", path.display()));
    }
    // SAFETY: zeroed is a valid statvfs, and the call has filled it.
    let found = unsafe { found.assume_init() };
    Ok(((u128::from(found.f_bavail) * u128::from(found.f_frsize)) >> 20) as u64)
}

/// Where a set is being made.
pub struct Maker {
    pub root: PathBuf,
    set: &'static str,
}

impl Maker {
    /// The directory to fill.
    pub fn partial(&self) -> PathBuf {
        self.beside("partial")
    }

    /// What it will be called.
    pub fn finished(&self) -> PathBuf {
        self.root.join(self.set)
    }

    /// A file beside the set: `NAME.EXTENSION`.
    pub fn beside(&self, extension: &str) -> PathBuf {
        self.root.join(format!("{}.{extension}", self.set))
    }

    /// Fetches a Debian package without installing it. Returns the file.
    pub fn package(&self, name: &str) -> Result<PathBuf> {
        let downloads = self.root.join("downloads");
        fs::create_dir_all(&downloads)?;
        let find = || -> Option<PathBuf> {
            let entries = fs::read_dir(&downloads).ok()?.flatten();
            let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            found.retain(|path| {
                let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                file.starts_with(&format!("{name}_")) && file.ends_with(".deb")
            });
            found.sort();
            found.pop()
        };
        if let Some(found) = find() {
            return Ok(found);
        }
        eprintln!("fetching the Debian package {name}");
        let fetched = command("apt-get", &["download", "-qq", name]).current_dir(&downloads).output()?;
        if !fetched.status.success() {
            bail!(
                "apt-get download {name} failed: {}; run `apt-get update` first, or put the package into {}",
                String::from_utf8_lossy(&fetched.stderr).trim(),
                downloads.display()
            );
        }
        find().with_context(|| {
            format!("apt-get said that it fetched {name}, but it is not in {}", downloads.display())
        })
    }

    /// Runs a script with `sh -e` (and bash's pipefail, for pipes), in the directory to fill.
    pub fn shell(&self, script: &str, arguments: &[&Path]) -> Result<()> {
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", script, "bash"])
            .args(arguments)
            .current_dir(self.partial())
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
            .context("cannot run bash")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let tail: Vec<&str> = said.lines().rev().take(5).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            bail!("the script `{}` failed ({}): {}", script.trim(), output.status, tail.join(" / "));
        }
        Ok(())
    }
}

fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).env("LC_ALL", "C");
    command
}
