//! The C interface: include/runahead.h says what each function does.
//!
//! Null pointers are hints that make no sense: dropped. `errno` is as it was before the call.

mod memory;

use runahead_prefetcher::{Counts, Hint, Lookup, Place, global};
use std::ffi::{CStr, c_char, c_int, c_void};

/// `struct runahead_segment`.
#[repr(C)]
pub struct Segment {
    /// Null: the descriptor counts.
    path: *const c_char,
    offset: u64,
    length: u64,
    token: u64,
    descriptor: c_int,
    reserved: c_int,
}

/// The program's `errno` is its own.
fn unnoticed<T>(work: impl FnOnce() -> T) -> T {
    unsafe extern "C" {
        fn __errno_location() -> *mut c_int;
    }
    // SAFETY: the C library's errno of this thread, which is there as long as the thread runs.
    let errno = unsafe { __errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let result = work();
    // SAFETY: as above.
    unsafe { *errno = before };
    result
}

/// # Safety
/// Null, or a string that ends with a zero.
unsafe fn bytes<'a>(path: *const c_char) -> &'a [u8] {
    if path.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(path) }.to_bytes()
}

fn one(place: Place, offset: u64, length: u64) {
    unnoticed(|| global().hint(&[Hint { place, offset, length, token: 0 }]));
}

/// # Safety
/// `path` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runahead_hint(path: *const c_char, offset: u64, length: u64) {
    // SAFETY: the caller's promise.
    one(Place::Path(unsafe { bytes(path) }), offset, length);
}

#[unsafe(no_mangle)]
pub extern "C" fn runahead_hint_fd(descriptor: c_int, offset: u64, length: u64) {
    one(Place::Descriptor(descriptor), offset, length);
}

#[unsafe(no_mangle)]
pub extern "C" fn runahead_hint_memory(address: *const c_void, length: usize) {
    one(Place::Memory, address as u64, length as u64);
}

/// # Safety
/// `path` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runahead_hint_name(path: *const c_char, lookup: c_int) {
    let lookup = match lookup {
        1 => Lookup::Link,
        2 => Lookup::List,
        3 => Lookup::Entries,
        _ => Lookup::Stat,
    };
    // SAFETY: the caller's promise.
    one(Place::Name(unsafe { bytes(path) }, lookup), 0, 0);
}

/// Segments that are handed on together: as many as fit on a small stack.
const TOGETHER: usize = 64;

/// # Safety
/// `segments` points to `count` segments, whose paths are null or strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runahead_hint_batch(segments: *const Segment, count: usize) {
    if segments.is_null() || count > isize::MAX as usize / size_of::<Segment>() {
        return;
    }
    // SAFETY: the caller's promise; null and absurd counts are excluded.
    let segments = unsafe { std::slice::from_raw_parts(segments, count) };
    unnoticed(|| {
        for segments in segments.chunks(TOGETHER) {
            let mut hints = [Hint { place: Place::Memory, offset: 0, length: 0, token: 0 }; TOGETHER];
            for (hint, segment) in hints.iter_mut().zip(segments) {
                let place = match segment.path.is_null() {
                    true => Place::Descriptor(segment.descriptor),
                    // SAFETY: the caller's promise.
                    false => Place::Path(unsafe { bytes(segment.path) }),
                };
                *hint = Hint { place, offset: segment.offset, length: segment.length, token: segment.token };
            }
            global().hint(&hints[..segments.len()]);
        }
    });
}

/// # Safety
/// `path` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runahead_release(path: *const c_char, offset: u64, length: u64) {
    // SAFETY: the caller's promise.
    let place = Place::Path(unsafe { bytes(path) });
    unnoticed(|| global().release(place, offset, length));
}

#[unsafe(no_mangle)]
pub extern "C" fn runahead_release_fd(descriptor: c_int, offset: u64, length: u64) {
    unnoticed(|| global().release(Place::Descriptor(descriptor), offset, length));
}

#[unsafe(no_mangle)]
pub extern "C" fn runahead_cancel_all() {
    unnoticed(|| global().cancel_all());
}

#[unsafe(no_mangle)]
pub extern "C" fn runahead_cancel_token(token: u64) {
    unnoticed(|| global().cancel_token(token));
}

/// # Safety
/// `path` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runahead_cancel_path(path: *const c_char) {
    // SAFETY: the caller's promise.
    let path = unsafe { bytes(path) };
    unnoticed(|| global().cancel_path(path));
}

/// # Safety
/// `counts` points to `size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runahead_counts(counts: *mut Counts, size: usize) {
    if counts.is_null() {
        return;
    }
    let now = unnoticed(|| global().counts());
    // An older program's structure is shorter, a newer one's longer: the common part is filled in.
    let common = size.min(size_of::<Counts>());
    // SAFETY: `common` bytes are within both.
    unsafe { std::ptr::copy_nonoverlapping((&raw const now).cast::<u8>(), counts.cast::<u8>(), common) };
}
