//! Whether the loader has said something on the program's stderr while it loaded the program.
//!
//! It would say so again for a program that is started anew. Nobody keeps what it has said, so it is worked
//! out from what it has loaded. Where that cannot be told it counts as said.

use crate::arch;
use crate::loader::{Loaded, file_name};
use core::ffi::{CStr, c_char};
use runahead_kernel::files::stat_at;
use runahead_kernel::uapi::general as n;

/// Variables for the loader that have it say nothing. Others do, or change where it says it.
const SILENT: [&[u8]; 3] = [b"LD_PRELOAD=", b"LD_LIBRARY_PATH=", b"LD_BIND_NOW="];

/// Whether an entry of the environment may have the loader say something.
pub fn is_heard(entry: &[u8]) -> bool {
    let is_silent = SILENT.iter().any(|name| entry.starts_with(name));
    entry.starts_with(b"LD_") && !is_silent || entry.starts_with(b"GLIBC_TUNABLES=")
}

/// Whether it has said something about what it has loaded; `preloaded`: the names of the files, apart from the
/// agent's, that it was told to load first.
///
/// # Safety
/// Called while the loader runs initialisers: its list, and all that is in it, stays as it is.
pub unsafe fn may_be_there(preloaded: &[u8]) -> bool {
    let debug = arch::loader_debug();
    // What stands in that file and is not to be had is said each time.
    let listed = stat_at(n::AT_FDCWD, c"/etc/ld.so.preload", 0).is_ok_and(|file| file.st_size != 0);
    if debug.is_null() || listed {
        return true;
    }
    // SAFETY: the loader's own; the caller's promise.
    unsafe {
        let first = (*debug).first();
        let mut names = preloaded.split(|&byte| byte == b':' || byte == b' ').filter(|name| !name.is_empty());
        names.any(|name| find(first, name).is_none())
            || each(first).any(|object| lacks_versions(first, object))
            || each(first).next().is_some_and(|program| has_other_sizes(&program))
    }
}

/// The dynamic section of a loaded file (elf(5)).
#[derive(Clone, Copy)]
struct Object {
    loaded: *const Loaded,
}

mod tag {
    pub const STRINGS: usize = 5;
    pub const SYMBOLS: usize = 6;
    pub const RELOCATIONS: usize = 7;
    pub const RELOCATIONS_BYTES: usize = 8;
    pub const OWN_NAME: usize = 14;
    pub const HASH: usize = 0x6fff_fef5;
    pub const RELATIVE_RELOCATIONS: usize = 0x6fff_fff9;
    pub const VERSIONS_DEFINED: usize = 0x6fff_fffc;
    pub const VERSIONS_NEEDED: usize = 0x6fff_fffe;
    pub const VERSIONS_NEEDED_COUNT: usize = 0x6fff_ffff;
}

/// # Safety
/// The loader's list, as for all here.
unsafe fn each(first: *const Loaded) -> impl Iterator<Item = Object> {
    let mut next = first;
    core::iter::from_fn(move || {
        let loaded = next;
        if loaded.is_null() {
            return None;
        }
        // SAFETY: an entry of the list.
        next = unsafe { (*loaded).next };
        Some(Object { loaded })
    })
}

impl Object {
    /// The value of the first entry with `tag`.
    ///
    /// # Safety
    /// As for all here.
    unsafe fn value(&self, tag: usize) -> Option<usize> {
        // SAFETY: pairs of words, the last of which has the tag 0.
        unsafe {
            let mut entry = (*self.loaded).dynamic as *const [usize; 2];
            if entry.is_null() {
                return None;
            }
            loop {
                let [kind, value] = *entry;
                if kind == tag {
                    return Some(value);
                }
                if kind == 0 {
                    return None;
                }
                entry = entry.add(1);
            }
        }
    }

    /// The same of an entry that is an address: the loader has moved those of most files, and not of the
    /// kernel's.
    ///
    /// # Safety
    /// As for all here.
    unsafe fn address(&self, tag: usize) -> Option<usize> {
        // SAFETY: the caller's promise.
        let (value, offset) = unsafe { (self.value(tag)?, (*self.loaded).offset) };
        Some(if value < offset { value.wrapping_add(offset) } else { value })
    }

    /// # Safety
    /// As for all here; `offset` is one of the object's names.
    unsafe fn string(&self, offset: usize) -> Option<&CStr> {
        // SAFETY: a C string of the object's table of strings.
        unsafe { Some(CStr::from_ptr((self.address(tag::STRINGS)? + offset) as *const c_char)) }
    }
}

/// The loaded file that the loader knows as `name`.
///
/// # Safety
/// As for all here.
unsafe fn find(first: *const Loaded, name: &[u8]) -> Option<Object> {
    let is_meant = |object: &Object| {
        // SAFETY: the caller's promise; a name is null or a C string.
        unsafe {
            let path = (*object.loaded).name;
            let path = if path.is_null() { b"" } else { CStr::from_ptr(path).to_bytes() };
            let own = || object.value(tag::OWN_NAME).and_then(|offset| object.string(offset));
            path == name
                || !name.contains(&b'/')
                    && (file_name(path) == name || own().is_some_and(|own| own.to_bytes() == name))
        }
    };
    // SAFETY: the caller's promise.
    unsafe { each(first) }.find(is_meant)
}

/// Whether the object needs versions of a file that has none ("no version information available").
///
/// # Safety
/// As for all here.
unsafe fn lacks_versions(first: *const Loaded, object: Object) -> bool {
    /// `Elf64_Verneed`.
    #[repr(C)]
    struct Needed {
        _version: u16,
        _count: u16,
        file: u32,
        _versions: u32,
        next: u32,
    }
    // SAFETY: the table is as long as the object says.
    unsafe {
        let Some(mut at) = object.address(tag::VERSIONS_NEEDED) else { return false };
        for _ in 0..object.value(tag::VERSIONS_NEEDED_COUNT).unwrap_or(0) {
            let needed = &*(at as *const Needed);
            let file = object.string(needed.file as usize).and_then(|name| find(first, name.to_bytes()));
            if file.and_then(|file| file.value(tag::VERSIONS_DEFINED)).is_none() {
                return true;
            }
            at += needed.next as usize;
        }
    }
    false
}

/// `Elf64_Sym`.
#[repr(C)]
struct Symbol {
    name: u32,
    _kind: u8,
    _other: u8,
    section: u16,
    _value: u64,
    size: u64,
}

/// Whether a library's variable, for which the program has the room, has another size than the program knows
/// ("has different size in shared object").
///
/// # Safety
/// As for all here.
unsafe fn has_other_sizes(program: &Object) -> bool {
    /// `Elf64_Rela`.
    #[repr(C)]
    struct Relocation {
        _place: u64,
        kind: u32,
        symbol: u32,
        _addend: u64,
    }
    // SAFETY: the tables are as long as the program says, and name symbols that are there.
    unsafe {
        let (Some(table), Some(bytes), Some(symbols)) = (
            program.address(tag::RELOCATIONS),
            program.value(tag::RELOCATIONS_BYTES),
            program.address(tag::SYMBOLS),
        ) else {
            return false;
        };
        let passed = program.value(tag::RELATIVE_RELOCATIONS).unwrap_or(0);
        for number in passed..bytes / size_of::<Relocation>() {
            let relocation = &*(table as *const Relocation).add(number);
            if relocation.kind != arch::COPY_RELOCATION {
                continue;
            }
            let symbol = &*(symbols as *const Symbol).add(relocation.symbol as usize);
            let Some(name) = program.string(symbol.name as usize) else { return true };
            let libraries = each((*program.loaded).next);
            let defined = libraries.filter_map(|library| defined_size(&library, name.to_bytes())).next();
            if defined.is_none_or(|size| size != symbol.size) {
                return true;
            }
        }
    }
    false
}

/// The size of a symbol that the library defines.
///
/// # Safety
/// As for all here.
unsafe fn defined_size(library: &Object, name: &[u8]) -> Option<u64> {
    let hash = name.iter().fold(5381u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(byte.into()));
    // SAFETY: a table as ld(1) writes it with `--hash-style=gnu`: four words, a filter of 64-bit words,
    // buckets, chains.
    unsafe {
        let table = library.address(tag::HASH)? as *const u32;
        let (buckets, first, filter) = (*table, *table.add(1), *table.add(2));
        let all = table.add(4 + 2 * filter as usize);
        let bucket = hash.checked_rem(buckets)?;
        let mut number = *all.add(bucket as usize);
        if number < first {
            return None;
        }
        let chains = all.add(buckets as usize);
        let symbols = library.address(tag::SYMBOLS)? as *const Symbol;
        loop {
            let chained = *chains.add((number - first) as usize);
            let symbol = &*symbols.add(number as usize);
            if chained | 1 == hash | 1
                && symbol.section != 0
                && library.string(symbol.name as usize).is_some_and(|own| own.to_bytes() == name)
            {
                return Some(symbol.size);
            }
            if chained & 1 != 0 {
                return None;
            }
            number += 1;
        }
    }
}
