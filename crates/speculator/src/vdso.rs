//! The vDSO in the mirror.
//!
//! Its functions read kernel pages ([vvar]) that cannot be copied, and a kernel may forbid moving them
//! (sealed since 6.16). So in the mirror each function becomes the system call that it stands for. The
//! image is the same in every process; only its address differs.

use crate::arch::system_call_function;
use crate::mirror::{self, Mirror};
use runahead_kernel::files::{self, open_at};
use runahead_kernel::text;
use runahead_kernel::uapi::general as n;

/// The functions and the system calls that they stand for.
const KNOWN: [(&[u8], u32); 5] = [
    (b"__vdso_clock_gettime", n::__NR_clock_gettime),
    (b"__vdso_gettimeofday", n::__NR_gettimeofday),
    (b"__vdso_time", n::__NR_time),
    (b"__vdso_getcpu", n::__NR_getcpu),
    (b"__vdso_clock_getres", n::__NR_clock_getres),
];

/// Offsets of the functions in the image; 0: not there.
pub struct Functions {
    offsets: [usize; KNOWN.len()],
}

impl Functions {
    /// Reads our own vDSO's symbols. `image`: its address, 0 if there is none.
    pub fn find(image: usize) -> Functions {
        let mut offsets = [0; KNOWN.len()];
        if image != 0 {
            // SAFETY: the kernel mapped a well-formed shared object there.
            unsafe { find_symbols(image, &mut offsets) };
        }
        Functions { offsets }
    }

    /// Replaces the functions in the mirror of the program whose `/proc` directory is given.
    pub fn replace(&self, mirror: &mut Mirror, directory: i32) {
        let Some(image) = program_vdso(directory) else {
            return;
        };
        for (&offset, (_, number)) in self.offsets.iter().zip(KNOWN) {
            if offset != 0 {
                mirror.write_code(mirror::process(), image + offset, &system_call_function(number));
            }
        }
    }
}

/// # Safety
/// `image` is the address of a mapped, well-formed ELF64 shared object.
unsafe fn find_symbols(image: usize, offsets: &mut [usize; KNOWN.len()]) {
    const PT_DYNAMIC: u32 = 2;
    const DT_HASH: u64 = 4;
    const DT_STRTAB: u64 = 5;
    const DT_SYMTAB: u64 = 6;
    const DT_GNU_HASH: u64 = 0x6fff_fef5;
    // SAFETY: all reads stay inside the object by its own tables.
    unsafe {
        let word64 = |at: usize| (at as *const u64).read_unaligned();
        let word32 = |at: usize| (at as *const u32).read_unaligned();
        let word16 = |at: usize| (at as *const u16).read_unaligned();
        let headers = image + word64(image + 32) as usize;
        let count = word16(image + 56) as usize;
        let mut dynamic = 0;
        for index in 0..count {
            let header = headers + index * 56;
            if word32(header) == PT_DYNAMIC {
                dynamic = image + word64(header + 8) as usize;
            }
        }
        if dynamic == 0 {
            return;
        }
        let (mut names, mut symbols, mut hash, mut gnu_hash) = (0, 0, 0, 0);
        let mut entry = dynamic;
        while word64(entry) != 0 {
            let value = image + word64(entry + 8) as usize;
            match word64(entry) {
                DT_STRTAB => names = value,
                DT_SYMTAB => symbols = value,
                DT_HASH => hash = value,
                DT_GNU_HASH => gnu_hash = value,
                _ => {}
            }
            entry += 16;
        }
        // The old hash table says how many symbols there are; the vDSO of newer kernels has only the
        // new one, whose first symbol and buckets bound it well enough: the table has few entries.
        let symbol_count = if hash != 0 {
            word32(hash + 4) as usize
        } else if gnu_hash != 0 {
            (names - symbols) / 24
        } else {
            0
        };
        for index in 1..symbol_count.min(64) {
            let symbol = symbols + index * 24;
            let name = core::ffi::CStr::from_ptr((names + word32(symbol) as usize) as *const _).to_bytes();
            for (offset, (known, _)) in offsets.iter_mut().zip(KNOWN) {
                if name == known {
                    *offset = word64(symbol + 8) as usize;
                }
            }
        }
    }
}

/// Where the program's vDSO is.
fn program_vdso(directory: i32) -> Option<usize> {
    let fd = open_at(directory, c"maps", n::O_RDONLY | n::O_CLOEXEC, 0).ok()?;
    let mut buffer = [0u8; 8192];
    let mut held = 0;
    let mut found = None;
    while let Ok(length @ 1..) = files::read(fd, buffer.get_mut(held..).unwrap_or(&mut [])) {
        held += length;
        let filled = buffer.get(..held).unwrap_or(&[]);
        let complete = filled.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        for line in filled.get(..complete).unwrap_or(&[]).split(|&b| b == b'\n') {
            if let Some(map) = text::maps_line(line)
                && map.name == b"[vdso]"
            {
                found = Some(map.start);
            }
        }
        buffer.copy_within(complete..held, 0);
        held -= complete;
    }
    let _ = files::close(fd);
    found
}
