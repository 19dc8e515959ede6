//! Which libraries a program's loader will bring in, as far as files tell: nothing is run.
//!
//! As glibc's loader looks for them (ld.so(8)): run paths, `LD_LIBRARY_PATH`, the cache, the usual folders.
//! What is not found so is passed over, and so is what a program loads later.

use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use object::{ReadCache, ReadRef as _};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a file says of what it needs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    loader: Option<PathBuf>,
    libraries: Vec<Vec<u8>>,
    /// Folders, with colons between them.
    run_path: Vec<u8>,
}

/// Bytes of one of the tables that are read, at most.
const TABLE_MOST: u64 = 1 << 20;

fn needs(path: &Path) -> Option<Needs> {
    let file = runahead_insert::file::open(path)?;
    let cache = ReadCache::new(file);
    let data = &cache;
    let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let mut found = Needs::default();
    let text = |place: u64, most: u64| -> Option<Vec<u8>> {
        let bytes = data.read_bytes_at_until(place..place.saturating_add(most), 0).ok()?;
        Some(bytes.to_vec())
    };
    for segment in segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_INTERP) {
        let name = text(segment.p_offset(endian), segment.p_filesz(endian).min(TABLE_MOST))?;
        found.loader = Some(PathBuf::from(OsStr::from_bytes(&name)));
    }
    let entries = segments.iter().find_map(|segment| segment.dynamic(endian, data).ok().flatten());
    let entries: Vec<(i64, u64)> = entries
        .unwrap_or_default()
        .iter()
        .map(|entry| (entry.d_tag(endian).0, entry.d_val(endian)))
        .collect();
    let strings = entries.iter().find(|(tag, _)| *tag == elf::DT_STRTAB.0).map(|(_, address)| *address);
    let Some(strings) = strings else { return Some(found) };
    let place = segments.iter().find_map(|segment| {
        let begin = segment.p_vaddr(endian);
        let is_there = segment.p_type(endian) == elf::PT_LOAD
            && (begin..begin.saturating_add(segment.p_filesz(endian))).contains(&strings);
        is_there.then(|| segment.p_offset(endian) + (strings - begin))
    })?;
    for (tag, value) in entries {
        let string = || text(place.saturating_add(value), 4096);
        if tag == elf::DT_NEEDED.0 {
            found.libraries.extend(string());
        } else if tag == elf::DT_RPATH.0 || tag == elf::DT_RUNPATH.0 {
            found.run_path = string().unwrap_or_default();
        }
    }
    Some(found)
}

/// The program's loader.
pub fn loader(program: &Path) -> Option<PathBuf> {
    needs(program)?.loader
}

/// More libraries than this nobody looks through for a question.
const MOST: usize = 200;

/// The loader of a program and the libraries that it needs, and `preloaded` ones with theirs.
pub fn of(program: &Path, preloaded: &[PathBuf]) -> Vec<PathBuf> {
    let cache = fs::read(CACHE).unwrap_or_default();
    let mut found: Vec<PathBuf> = loader(program).into_iter().chain(preloaded.iter().cloned()).collect();
    let mut waiting: VecDeque<PathBuf> =
        std::iter::once(program.to_owned()).chain(preloaded.iter().cloned()).collect();
    let from_environment = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    while let Some(path) = waiting.pop_front() {
        let Some(needs) = needs(&path) else { continue };
        let origin = path.canonicalize().ok().and_then(|real| real.parent().map(Path::to_owned));
        let run_path = expand(&needs.run_path, origin.as_deref());
        for name in needs.libraries {
            let folders = [&run_path, from_environment.as_bytes()];
            let Some(library) = resolve(&name, folders, &cache) else { continue };
            let real = library.canonicalize().unwrap_or(library);
            let is_known = found.iter().any(|known| known.canonicalize().is_ok_and(|known| known == real));
            if !is_known && found.len() < MOST {
                found.push(real.clone());
                waiting.push_back(real);
            }
        }
    }
    found
}

/// `$ORIGIN` is the folder of the file that says so.
fn expand(run_path: &[u8], origin: Option<&Path>) -> Vec<u8> {
    let text = String::from_utf8_lossy(run_path);
    let origin = origin.map_or(String::new(), |origin| origin.to_string_lossy().into_owned());
    text.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin).into_bytes()
}

const CACHE: &str = "/etc/ld.so.cache";
const USUAL: [&str; 4] = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"];

fn resolve(name: &[u8], folders: [&[u8]; 2], cache: &[u8]) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(name));
    if name.contains(&b'/') {
        return path.is_file().then(|| path.to_owned());
    }
    let named = folders.into_iter().flat_map(|list| list.split(|&byte| byte == b':'));
    let named = named.filter(|folder| !folder.is_empty()).map(|folder| Path::new(OsStr::from_bytes(folder)));
    let usual = USUAL.into_iter().map(Path::new);
    let in_folder = |folder: &Path| Some(folder.join(path)).filter(|path| path.is_file());
    named
        .filter_map(in_folder)
        .next()
        .or_else(|| cached(cache, name).filter(|path| path.is_file()))
        .or_else(|| usual.filter_map(in_folder).next())
}

/// What the loader's cache says of a library of this machine (glibc's `sysdeps/generic/dl-cache.h`, `struct
/// cache_file_new`). Everything in it is bounded: it may be garbage.
fn cached(cache: &[u8], name: &[u8]) -> Option<PathBuf> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    const FOR_US: u32 = 0x303;
    let base = cache.windows(MAGIC.len()).position(|bytes| bytes == MAGIC)?;
    let cache = cache.get(base..)?;
    let word = |at: usize| Some(u32::from_le_bytes(*cache.get(at..)?.first_chunk()?));
    let string = |at: u32| cache.get(at as usize..)?.split(|&byte| byte == 0).next();
    let count = word(MAGIC.len())? as usize;
    for at in (0..count).map(|index| HEADER + index * ENTRY) {
        let (kind, key, value, for_newer) = (word(at)?, word(at + 4)?, word(at + 8)?, word(at + 20)?);
        if kind == FOR_US && for_newer == 0 && string(key)? == name {
            return Some(PathBuf::from(OsStr::from_bytes(string(value)?)));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tests_own_libraries_are_found() {
        let found = of(&std::env::current_exe().unwrap(), &[]);
        let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap().to_string_lossy()).collect();
        assert!(names.iter().any(|name| name.starts_with("ld-linux")), "{names:?}");
        assert_eq!(names.iter().filter(|name| name.starts_with("libc.so.6")).count(), 1, "{names:?}");
    }

    #[test]
    fn a_run_path_is_taken_from_where_it_stands() {
        assert_eq!(expand(b"$ORIGIN/../lib:/x", Some(Path::new("/a/b"))), b"/a/b/../lib:/x");
        assert_eq!(expand(b"${ORIGIN}", Some(Path::new("/a"))), b"/a");
    }

    #[test]
    fn a_cache_of_garbage_names_nothing() {
        assert_eq!(cached(b"", b"libc.so.6"), None);
        let mut bytes = b"glibc-ld.so.cache1.1".to_vec();
        bytes.extend([0xff; 200]);
        for end in 0..bytes.len() {
            assert_eq!(cached(&bytes[..end], b"libc.so.6"), None);
        }
    }
}
