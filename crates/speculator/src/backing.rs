//! What backs a mapping of the program's: memory, a file on a disk, or a device.

use crate::cell::Global;
use crate::rights;
use runahead_kernel::files::{self, open_at};
use runahead_kernel::filesystem::FileSystem;
use runahead_kernel::text::{MapsLine, Text};
use runahead_kernel::uapi::general as n;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Memory that the program gets when it touches it, its own or shared.
    Memory,
    /// A file, whose pages the kernel has or reads.
    File,
    /// A device, or the kernel: what a touch does there is its driver's affair.
    Device,
}

/// File systems without a device of their own that were asked about: their number, and whether they are in memory.
static ASKED: Global<([(u32, bool); 16], usize)> = Global::new(([(0, false); 16], 0));

/// Tells by the mapping's line, and by its file where the line does not tell.
pub fn of(process_directory: i32, map: &MapsLine) -> Backing {
    if map.name.starts_with(b"[vdso") {
        return Backing::File;
    }
    if map.inode == 0 && !map.name.starts_with(b"anon_inode:") && !map.name.starts_with(b"/") {
        return Backing::Memory;
    }
    if !map.name.starts_with(b"/") {
        return Backing::Device;
    }
    let may_be_device = map.name.starts_with(b"/dev/");
    // A file system on a disk: its files are files, and its device nodes are where such nodes are.
    if map.device.0 != 0 && !may_be_device {
        return Backing::File;
    }
    let (asked, next) = ASKED.get();
    let known = asked.iter().find(|(number, _)| *number == map.device.1 && *number != 0);
    if let (Some(&(_, in_memory)), false) = (known, may_be_device) {
        return if in_memory { Backing::Memory } else { Backing::File };
    }
    let Some(found) = ask(process_directory, map) else {
        // What has no name: memory that is shared (memfd, SysV), but for the nodes of a device.
        return if may_be_device && map.device.0 != 0 { Backing::Device } else { Backing::Memory };
    };
    if found != Backing::Device && !may_be_device {
        asked[*next % asked.len()] = (map.device.1, found == Backing::Memory);
        *next += 1;
    }
    found
}

/// Looks at the mapping's file. None if it is not to be found.
fn ask(process_directory: i32, map: &MapsLine) -> Option<Backing> {
    let path = Text::<1024>::new().push(b"root").push(map.name);
    rights::hold();
    let seen = open_at(process_directory, path.as_c_str(), n::O_PATH | n::O_CLOEXEC, 0).ok()?;
    let asked =
        files::fstat(seen).and_then(|stat| Ok((stat, FileSystem::of(files::file_system_type(seen)?))));
    let _ = files::close(seen);
    let (stat, kind) = asked.ok()?;
    Some(match stat.st_mode & n::S_IFMT {
        _ if stat.st_ino != map.inode => return None,
        n::S_IFREG if kind.is_in_memory() => Backing::Memory,
        n::S_IFREG => Backing::File,
        _ => Backing::Device,
    })
}
