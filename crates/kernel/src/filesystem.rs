//! What each kind of file system is like: one place for what the rooms have to know of it.
//!
//! A file system is known by the number that statfs(2) tells (`f_type`; linux/magic.h, else the file system's
//! own source), or by the name in /proc/PID/mountinfo. One that is not listed here is taken for one with
//! files on a disk.

/// What the files of a file system are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Files {
    /// Data on a disk, behind a server, or on another file system.
    Stored,
    /// Data in memory: nothing waits for a disk, but for swap.
    InMemory,
    /// No data: the kernel answers as it is asked, and to look, open or read may have effects.
    MadeUp,
}

/// Who answers a look-up or a read of what is not cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answers {
    Kernel,
    /// A process, through FUSE.
    Process,
    /// The kernel, which unpacks for each request and keeps few blocks.
    Unpacker,
}

/// What a kind of file system is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSystem {
    pub files: Files,
    pub answers: Answers,
    /// It is known to keep its files on this machine's disks: no request goes elsewhere.
    pub is_on_disk: bool,
    /// stat(2) of a file tells another device than /proc/PID/maps does of its mapping.
    pub maps_another_device: bool,
}

const STORED: FileSystem = FileSystem {
    files: Files::Stored,
    answers: Answers::Kernel,
    is_on_disk: false,
    maps_another_device: false,
};
const IN_MEMORY: FileSystem = FileSystem { files: Files::InMemory, ..STORED };
const MADE_UP: FileSystem = FileSystem { files: Files::MadeUp, ..STORED };
const ON_DISK: FileSystem = FileSystem { is_on_disk: true, ..STORED };
const OTHER_DEVICE: FileSystem = FileSystem { maps_another_device: true, ..ON_DISK };
const FUSE: FileSystem = FileSystem { answers: Answers::Process, ..STORED };
const UNPACKED: FileSystem = FileSystem { answers: Answers::Unpacker, ..STORED };

/// By number and name.
const KNOWN: [(u32, &str, FileSystem); 44] = [
    (0x0102_1994, "tmpfs", IN_MEMORY),
    (0x0102_1994, "devtmpfs", IN_MEMORY),
    (0x8584_58f6, "ramfs", IN_MEMORY),
    (0x8584_58f6, "rootfs", IN_MEMORY),
    (0x9584_58f6, "hugetlbfs", IN_MEMORY),
    (0x9123_683e, "btrfs", OTHER_DEVICE),
    (0x794c_7630, "overlay", OTHER_DEVICE),
    (0xef53, "ext2", ON_DISK),
    (0xef53, "ext3", ON_DISK),
    (0xef53, "ext4", ON_DISK),
    (0x5846_5342, "xfs", ON_DISK),
    (0xf2f5_2010, "f2fs", ON_DISK),
    (0x3153_464a, "jfs", ON_DISK),
    (0x4d44, "vfat", ON_DISK),
    (0x2011_bab0, "exfat", ON_DISK),
    (0xe0f5_e1e2, "erofs", ON_DISK),
    (0xca45_1a4e, "bcachefs", ON_DISK),
    (0x2fc1_2fc1, "zfs", ON_DISK),
    (0x6573_5546, "fuse", FUSE),
    (0x6573_5546, "fuseblk", FUSE),
    (0x7371_7368, "squashfs", UNPACKED),
    (0x9fa0, "proc", MADE_UP),
    (0x9fa1, "openpromfs", MADE_UP),
    (0x6265_6572, "sysfs", MADE_UP),
    (0x6462_6720, "debugfs", MADE_UP),
    (0x7472_6163, "tracefs", MADE_UP),
    (0x7363_6673, "securityfs", MADE_UP),
    (0x0027_e0eb, "cgroup", MADE_UP),
    (0x6367_7270, "cgroup2", MADE_UP),
    (0x6265_6570, "configfs", MADE_UP),
    (0x6165_676c, "pstore", MADE_UP),
    (0xde5e_81e4, "efivarfs", MADE_UP),
    (0xcafe_4a11, "bpf", MADE_UP),
    (0xf97c_ff8c, "selinuxfs", MADE_UP),
    (0x4341_5d53, "smackfs", MADE_UP),
    (0x4249_4e4d, "binfmt_misc", MADE_UP),
    (0x6e73_6673, "nsfs", MADE_UP),
    (0x6573_5543, "fusectl", MADE_UP),
    (0x0765_5821, "resctrl", MADE_UP),
    (0x1980_0202, "mqueue", MADE_UP),
    (0xabba_1974, "xenfs", MADE_UP),
    (0x6759_6969, "rpc_pipefs", MADE_UP),
    (0x1cd1, "devpts", MADE_UP),
    // A look-up there mounts what is to be there.
    (0x0187, "autofs", MADE_UP),
];

impl FileSystem {
    /// By `f_type` of statfs(2), which some C libraries have as a signed number.
    pub fn of(number: i64) -> FileSystem {
        let known = KNOWN.iter().find(|(known, ..)| *known == number as u32);
        known.map_or(STORED, |(.., traits)| *traits)
    }

    /// By its name in mountinfo. What follows a dot there is FUSE's server (`fuse.sshfs`).
    pub fn named(name: &str) -> FileSystem {
        let kind = name.split('.').next().unwrap_or(name);
        let known = KNOWN.iter().find(|(_, known, _)| *known == kind);
        known.map_or(STORED, |(.., traits)| *traits)
    }

    /// Whether the files are data that is not in memory anyway.
    pub fn is_stored(self) -> bool {
        self.files == Files::Stored
    }

    pub fn is_in_memory(self) -> bool {
        self.files == Files::InMemory
    }

    pub fn is_made_up(self) -> bool {
        self.files == Files::MadeUp
    }

    pub fn is_fuse(self) -> bool {
        self.answers == Answers::Process
    }

    pub fn is_unpacked(self) -> bool {
        self.answers == Answers::Unpacker
    }

    /// Whether each request takes the time of somebody who serves it. No inode there brings others along.
    pub fn is_served(self) -> bool {
        self.answers != Answers::Kernel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern crate std;

    #[test]
    fn what_is_said_of_each_is_what_statfs_and_mountinfo_are_asked_for() {
        assert!(FileSystem::of(0x9fa0).is_made_up() && FileSystem::named("proc").is_made_up());
        assert!(FileSystem::of(0x0187).is_made_up());
        assert!(FileSystem::of(0xef53).is_stored() && !FileSystem::of(0xef53).is_served());
        assert!(FileSystem::named("fuse.sshfs").is_fuse() && FileSystem::named("fuseblk").is_served());
        assert!(!FileSystem::of(0x7371_7368).is_fuse() && FileSystem::named("squashfs").is_served());
        assert!(FileSystem::named("devtmpfs").is_in_memory() && FileSystem::named("xfs").is_stored());
        assert!(FileSystem::named("btrfs").is_on_disk && FileSystem::named("ext4").is_on_disk);
        for name in ["nfs4", "fuse.sshfs", "squashfs", "tmpfs", "proc", "of a later kernel"] {
            assert!(!FileSystem::named(name).is_on_disk, "{name}");
        }
        assert!(FileSystem::of(0x9123_683e).maps_another_device);
        // As a signed word of 32 bits.
        assert!(FileSystem::of(0xf97c_ff8c_u32 as i32 as i64).is_made_up());
    }

    #[test]
    fn names_of_one_number_are_of_one_kind_and_no_name_is_there_twice() {
        for (index, (number, name, traits)) in KNOWN.iter().enumerate() {
            for (other, its, likewise) in &KNOWN[index + 1..] {
                assert_ne!(name, its);
                assert!(other != number || traits == likewise, "{name} {its}");
            }
        }
    }

    /// The numbers are those of the kernel that runs this, as far as such file systems are mounted.
    #[test]
    fn numbers_are_the_kernels() {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut seen = 0;
        for line in mounts.lines() {
            let (Some(place), Some(kind)) = (line.split(' ').nth(4), line.split(" - ").nth(1)) else {
                continue;
            };
            let kind = kind.split(' ').next().unwrap();
            let Some((number, ..)) = KNOWN.iter().find(|(_, name, _)| *name == kind) else { continue };
            let Ok(path) = std::ffi::CString::new(place) else { continue };
            let flags = crate::uapi::general::O_PATH | crate::uapi::general::O_CLOEXEC;
            let Ok(fd) = crate::files::open_at(crate::uapi::general::AT_FDCWD, &path, flags, 0) else {
                continue;
            };
            let told = crate::files::file_system_type(fd);
            let _ = crate::files::close(fd);
            // A FUSE mount whose server has ended, or is just ending, has no number to tell.
            let Ok(told) = told else { continue };
            let told = told as u32;
            // What was mounted over it is another one.
            let covered = mounts.lines().filter(|other| other.split(' ').nth(4) == Some(place)).count() > 1;
            if !covered {
                assert_eq!(told, *number, "{kind} at {place}");
                seen += 1;
            }
        }
        assert!(seen > 0, "not even /proc");
    }
}
