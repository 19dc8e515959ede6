//! What commands are put together from.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Floor, Place};
use crate::data;

/// All files of a set.
pub(super) const EVERY: usize = usize::MAX;

/// What issue 2 asks for: on the machine's own disk, and on the one of 1 ms.
pub(super) const fn floor(native: f64, cloud: f64) -> Option<Floor> {
    Some(Floor { native, cloud })
}

pub(super) fn words(words: &[&str]) -> Result<Vec<OsString>> {
    Ok(words.iter().map(OsString::from).collect())
}

pub(super) fn with_files(place: &Place, command: &[&str], set: &str, count: usize) -> Result<Vec<OsString>> {
    let mut all = words(command)?;
    all.extend(data::files(&place.data, set)?.into_iter().take(count).map(OsString::from));
    Ok(all)
}

/// Debian's own where there is one: version managers put a script in its place.
pub(super) fn python() -> OsString {
    let system = Path::new("/usr/bin/python3");
    if system.exists() { system.into() } else { "python3".into() }
}

/// A file that holds the first names of a set's list; the same for every run.
pub(super) fn list(place: &Place, set: &str, count: usize) -> Result<PathBuf> {
    let which = if count == EVERY { "all".to_string() } else { format!("first-{count}") };
    let path = place.data.join(format!("{set}.{which}"));
    let names =
        data::files(&place.data, set)?.into_iter().take(count).map(|name| name + "\n").collect::<String>();
    if std::fs::read_to_string(&path).is_ok_and(|found| found == names) {
        return Ok(path);
    }
    std::fs::write(&path, names).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

pub(super) fn own(place: &Place, program: &str, arguments: &[&str]) -> Result<Vec<OsString>> {
    let mut all = vec![place.programs.join(program).into_os_string()];
    all.extend(words(arguments)?);
    Ok(all)
}

pub(super) fn look_up(place: &Place, queries: &str) -> Result<Vec<OsString>> {
    look_up_with(place, &[], queries)
}

/// Look-ups for which sqlite3 maps the whole database.
pub(super) fn look_up_mapped(place: &Place, queries: &str) -> Result<Vec<OsString>> {
    look_up_with(place, &["-cmd", "PRAGMA mmap_size = 2000000000"], queries)
}

fn look_up_with(place: &Place, options: &[&str], queries: &str) -> Result<Vec<OsString>> {
    // The script lies beside the database's original, not on the disk under test.
    let script = place.data.join("database").join(queries);
    let read = format!(".read {}", script.display());
    let first = ["sqlite3", "-init", "/dev/null", "-batch", "-readonly"];
    words(&[&first[..], options, &["database/rows.db", &read]].concat())
}

/// Python with the modules of the set `python`.
pub(super) fn numeric_python(arguments: &[&str]) -> Result<Vec<OsString>> {
    let mut all = words(&["env", "PYTHONPATH=python/modules", "LD_LIBRARY_PATH=python/libraries"])?;
    all.push(python());
    all.push("-B".into());
    all.extend(words(arguments)?);
    Ok(all)
}

/// Slices of the volume through NumPy's memmap.
pub(super) fn memmap(place: &Place, order: &str) -> Result<Vec<OsString>> {
    let script = place.bench.join("workloads/memmap.py");
    numeric_python(&[&script.to_string_lossy(), "volume/volume.raw", order])
}

/// A C program of ours, compiled when its source is newer.
pub(super) fn compiled(place: &Place, name: &str) -> Result<String> {
    compiled_from(place, name, &[&format!("bench/programs/c/{name}.c")], &["-g", "-Wall", "-Wextra"])
}

/// The same of several sources, named from the checkout on.
fn compiled_from(place: &Place, name: &str, sources: &[&str], options: &[&str]) -> Result<String> {
    let checkout = place.bench.parent().context("the bench lies nowhere")?;
    let sources: Vec<PathBuf> = sources.iter().map(|source| checkout.join(source)).collect();
    let program = place.programs.join(format!("bench-c-{name}"));
    let age = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified());
    let mut written = Vec::new();
    for source in &sources {
        written.push(age(source).with_context(|| format!("there is no {}", source.display()))?);
    }
    if age(&program).is_ok_and(|made| written.iter().all(|written| made >= *written)) {
        return Ok(program.to_string_lossy().into_owned());
    }
    let mut words: Vec<&OsStr> = vec!["-O2".as_ref(), "-o".as_ref(), program.as_os_str()];
    words.extend(sources.iter().map(|source| source.as_os_str()));
    words.extend(options.iter().map(OsStr::new));
    slowdisk::system::run("cc", &words)?;
    Ok(program.to_string_lossy().into_owned())
}

/// One step of a NAS code of class A (`compiler/nas`), compiled plainly. `on_a_file`: its arrays are a mapped file in the
/// directory where it runs, else they are memory. What it prints of its own times is left out.
pub(super) fn nas(place: &Place, code: &str, on_a_file: bool) -> Result<Vec<OsString>> {
    let source = format!("compiler/nas/{code}.c");
    let mut sources = vec![source.as_str()];
    if on_a_file {
        sources.extend(["compiler/runtime/static_arrays.c", "bench/programs/c/plain_arrays.c"]);
    }
    let name = if on_a_file { format!("{code}-on-a-file") } else { code.to_string() };
    let options = ["-mcmodel=medium", "-DCLASS=NAS_A", "-DNAS_STEPS=1", "-lm"];
    let program = compiled_from(place, &name, &sources, &options)?;
    words(&["env", "RUNAHEAD_OOC_DIR=.", "sh", "-c", "exec \"$0\" 2>/dev/null", &program])
}

/// Links what the set holds into `objdump` in the scratch directory.
pub(super) fn link(place: &Place, set: &str) -> Result<Vec<OsString>> {
    let files = data::files(&place.data, set)?;
    let named = |name: &str| OsString::from(format!("{set}/{name}"));
    let mut all = words(&["ld", "-o"])?;
    all.push(place.scratch.join("objdump").into());
    all.extend(words(&["-dynamic-linker", "/lib64/ld-linux-x86-64.so.2"])?);
    all.extend(["crt1.o", "crti.o", "crtbegin.o"].map(named));
    let start_files = ["crt1.o", "crti.o", "crtn.o", "crtbegin.o", "crtend.o"];
    let ours = |name: &&String| {
        name.ends_with(".o") && !start_files.iter().any(|start| Path::new(name.as_str()).ends_with(start))
    };
    all.extend(files.iter().filter(ours).map(OsString::from));
    all.extend(["libctf.a", "libsframe.a", "libiberty.a", "libz.a", "libgcc.a"].map(named));
    all.extend(words(&["-L/usr/lib/x86_64-linux-gnu", "-lc"])?);
    all.extend(["libgcc.a", "crtend.o", "crtn.o"].map(named));
    Ok(all)
}
