//! Sets from the Linux kernel's source, as Debian packs it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::Maker;

const PACKAGE: &str = "linux-source-6.1";
/// Prints the source's tar: the package ($1) holds another, compressed one.
const TAR: &str = "dpkg-deb --fsys-tarfile \"$1\" | tar -xO ./usr/src/linux-source-6.1.tar.xz | xz -dc -T0";

/// The paper's Agrep had 8971 files in 2003; 9000 round numbers.
const SOURCES: usize = 9000;
const TREE: usize = 48_000;
const FEW: usize = 1000;

/// The first 9000 .c and .h files, in the order of their paths.
pub fn sources(maker: &Maker) -> Result<()> {
    let package = maker.package(PACKAGE)?;
    let names = list(maker, &package, |name| name.ends_with(".c") || name.ends_with(".h"), SOURCES)?;
    extract(maker, &package, &names)?;
    write_list(maker, "kernel", &names)
}

/// The same files under git; dates and names are fixed, so that every machine has the same commit.
pub fn repository(maker: &Maker) -> Result<()> {
    let script = r#"
        cp -r --reflink=auto "$1/." .
        export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1
        export GIT_AUTHOR_NAME=bench GIT_AUTHOR_EMAIL=bench@localhost GIT_AUTHOR_DATE=2001-01-01T00:00:00Z
        export GIT_COMMITTER_NAME=bench GIT_COMMITTER_EMAIL=bench@localhost GIT_COMMITTER_DATE=2001-01-01T00:00:00Z
        git -c init.defaultBranch=main init -q .
        git -c gc.auto=0 add -A
        git -c gc.auto=0 commit -q -m 'The sources'
        git repack -q -a -d
    "#;
    maker.shell(script, &[&maker.root.join("kernel")])?;
    let names: Vec<String> = super::files(&maker.root, "kernel")?
        .iter()
        .filter_map(|name| name.strip_prefix("kernel/").map(String::from))
        .collect();
    write_list(maker, "git", &names)
}

/// The whole source as one pack, as a clone has it: nothing is checked out. Dates and names are fixed, so that every
/// machine has the same commit; where in the pack its objects lie may differ from one git to another.
pub fn packs(maker: &Maker) -> Result<()> {
    let package = maker.package(PACKAGE)?;
    let script = format!(
        r#"
        export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1
        export GIT_AUTHOR_NAME=bench GIT_AUTHOR_EMAIL=bench@localhost GIT_AUTHOR_DATE=2001-01-01T00:00:00Z
        export GIT_COMMITTER_NAME=bench GIT_COMMITTER_EMAIL=bench@localhost GIT_COMMITTER_DATE=2001-01-01T00:00:00Z
        mkdir files
        {TAR} | tar -x --strip-components=1 --no-same-owner -C files
        git -c init.defaultBranch=main init -q --bare linux.git
        files="--git-dir=linux.git --work-tree=files"
        git $files -c gc.auto=0 -c core.compression=1 add -A -f
        git $files -c gc.auto=0 commit -q -m 'The sources'
        git -C linux.git repack -q -a -d -F
        rm -rf files linux.git/index
        find linux.git/objects/pack -type f | sed "s|^|packs/|" > "$2"
    "#
    );
    maker.shell(&script, &[&package, &maker.beside("files")])
}

/// Agrep's files in 1999: 1349 of 18,091,527 bytes.
pub fn sources_1999(maker: &Maker) -> Result<()> {
    alike(maker, "source-1999", 1349, 18_091_527)
}

/// Agrep's files in 2003: 8971 of 105 MB.
pub fn sources_2003(maker: &Maker) -> Result<()> {
    alike(maker, "source-2003", 8971, 105_000_000)
}

/// So many C files of so many bytes together: of all stretches of that many files in the order of their
/// paths, the one that comes nearest.
fn alike(maker: &Maker, set: &str, count: usize, bytes: u64) -> Result<()> {
    let package = maker.package(PACKAGE)?;
    let c_files = |name: &str| name.ends_with(".c") || name.ends_with(".h");
    let all: Vec<(String, u64)> =
        sizes(maker, &package)?.into_iter().filter(|(name, _)| c_files(name)).collect();
    let total = |stretch: &[(String, u64)]| stretch.iter().map(|(_, size)| size).sum::<u64>();
    let nearest = all.windows(count).min_by_key(|stretch| total(stretch).abs_diff(bytes));
    let chosen = nearest.context("the package has too few C files")?;
    ensure!(
        total(chosen).abs_diff(bytes) < bytes / 20,
        "no {count} files of the package come near {bytes} bytes"
    );
    let names: Vec<String> = chosen.iter().map(|(name, _)| name.clone()).collect();
    extract(maker, &package, &names)?;
    write_list(maker, set, &names)
}

/// 48,000 files for programs that only look at names and sizes: real names, short contents.
pub fn tree(maker: &Maker) -> Result<()> {
    let package = maker.package(PACKAGE)?;
    let names = list(maker, &package, |_| true, TREE)?;
    extract(maker, &package, &names)?;
    for name in &names {
        let path = maker.partial().join(name);
        // Links stay links, and would lead to a target twice.
        let metadata = path.symlink_metadata().with_context(|| format!("{} is missing", path.display()))?;
        if metadata.is_file() && metadata.len() > 4096 {
            fs::OpenOptions::new().write(true).open(&path)?.set_len(4096)?;
        }
    }
    write_list(maker, "tree", &names)
}

/// The first 1000 files of the set `kernel`.
pub fn few(maker: &Maker) -> Result<()> {
    let names: Vec<String> = super::files(&maker.root, "kernel")?
        .iter()
        .take(FEW)
        .filter_map(|name| name.strip_prefix("kernel/").map(String::from))
        .collect();
    for name in &names {
        let to = maker.partial().join(name);
        fs::create_dir_all(to.parent().unwrap_or(Path::new("/")))?;
        fs::copy(maker.root.join("kernel").join(name), to)?;
    }
    write_list(maker, "small", &names)
}

/// Names of the source's files, sorted, without the leading directory.
fn list(maker: &Maker, package: &Path, wanted: fn(&str) -> bool, count: usize) -> Result<Vec<String>> {
    let mut names: Vec<String> =
        sizes(maker, package)?.into_iter().map(|(name, _)| name).filter(|name| wanted(name)).collect();
    names.truncate(count);
    ensure!(names.len() == count, "the package has only {} such files, {count} are wanted", names.len());
    Ok(names)
}

/// Names of the source's files, sorted, without the leading directory, and their sizes.
fn sizes(maker: &Maker, package: &Path) -> Result<Vec<(String, u64)>> {
    let all = maker.beside("all");
    maker.shell(&format!("{TAR} | tar -tv > \"$2\""), &[package, &all])?;
    let text = fs::read_to_string(&all)?;
    fs::remove_file(&all)?;
    // mode, owner, size, date, time, name; of a link, also what it leads to.
    let entry = |line: &str| -> Option<(String, u64)> {
        let mut fields = line.split_whitespace();
        let size = fields.nth(2)?.parse().ok()?;
        let name = line.split_once(" linux-source-6.1/")?.1;
        let name = name.split(" -> ").next()?;
        (!name.ends_with('/') && !name.is_empty()).then(|| (name.to_string(), size))
    };
    let mut found: Vec<(String, u64)> = text.lines().filter_map(entry).collect();
    found.sort();
    Ok(found)
}

fn extract(maker: &Maker, package: &Path, names: &[String]) -> Result<()> {
    let wanted: PathBuf = maker.beside("wanted");
    let lines: String = names.iter().map(|name| format!("linux-source-6.1/{name}\n")).collect();
    fs::write(&wanted, lines)?;
    let script =
        format!("{TAR} | tar -x --strip-components=1 --no-same-owner --verbatim-files-from -T \"$2\"");
    maker.shell(&script, &[package, &wanted])?;
    fs::remove_file(&wanted)?;
    Ok(())
}

fn write_list(maker: &Maker, set: &str, names: &[String]) -> Result<()> {
    let lines: String = names.iter().map(|name| format!("{set}/{name}\n")).collect();
    fs::write(maker.beside("files"), lines).context("cannot write the list of files")
}
