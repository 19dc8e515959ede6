//! What a process is allowed to do, as `/proc/PID/status` tells it, in one word.
//!
//! Host and speculator act for a process only while it is allowed what they are: who has given
//! something up (a user, a group, a capability, by a filter) must not have it done by somebody who
//! still may.

/// The lines that tell. (What a process is confined to by Landlock no file tells.)
const TELLING: [&[u8]; 11] = [
    b"Uid:",
    b"Gid:",
    b"Groups:",
    b"CapInh:",
    b"CapPrm:",
    b"CapEff:",
    b"CapBnd:",
    b"CapAmb:",
    b"NoNewPrivs:",
    b"Seccomp:",
    b"Seccomp_filters:",
];

/// Those that every kernel has; what is cut off before them tells nothing.
const NEEDED: usize = 10;

/// Bytes of the file that are looked at. Whoever is in a thousand groups has a longer one, and gets
/// no help.
pub const STATUS_BYTES: usize = 8192;

/// Equal for two processes that are allowed the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(u64);

impl Rights {
    /// From the content of `/proc/PID/status`; None if it is cut short, or something else.
    pub fn of(status: &[u8]) -> Option<Rights> {
        let mut hash = FIRST;
        let mut found = 0;
        // What has no end of its own may be cut.
        for line in status.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            if TELLING.iter().any(|name| line.starts_with(name)) {
                hash = line.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
                found += 1;
            }
        }
        (found >= NEEDED).then_some(Rights(hash))
    }

    /// For what is shared between threads.
    pub fn word(self) -> u64 {
        self.0
    }
}

/// Whether a process with this content of `/proc/PID/status` may go into mount namespaces by setns(2), and so out
/// of the one that it is in.
pub fn moves_freely(status: &[u8]) -> bool {
    const CAP_SYS_CHROOT: u64 = 1 << 18;
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"CapEff:"));
    let digit = |digit: u8| char::from(digit).to_digit(16).map(u64::from);
    let add = |value: u64, next: u8| digit(next).map(|next| value << 4 | next);
    let capabilities = line.and_then(|line| line.trim_ascii().iter().copied().try_fold(0, add));
    let both = CAP_SYS_CHROOT | CAP_SYS_ADMIN;
    capabilities.is_some_and(|capabilities| capabilities & both == both)
}

/// The bits that new files do not get (umask), of a process with this content of `/proc/PID/status`.
pub fn mask(status: &[u8]) -> Option<u32> {
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"Umask:"))?;
    let digit = |digit: u8| char::from(digit).to_digit(8);
    let digits = line.trim_ascii();
    let mask = digits.iter().copied().try_fold(0, |mask, next| Some(mask << 3 | digit(next)?));
    mask.filter(|mask| !digits.is_empty() && *mask <= 0o777)
}

/// FNV-1a. Nobody can choose among many: each of the lines changes by what its process is still
/// allowed to do.
const FIRST: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Whether a thread that is `now` (real, effective, saved) stays who it is where it sets these three
/// (setresuid(2); `u32::MAX`: as before). Who is several is taken for one that changes, and so is whoever has
/// no name here (user_namespaces(7)): all of these have one number.
pub fn stays(now: [u32; 3], wanted: [u32; 3]) -> bool {
    const OVERFLOW: u32 = 65534;
    now[0] != OVERFLOW
        && now.iter().all(|&id| id == now[0])
        && wanted.iter().all(|&id| id == u32::MAX || id == now[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tcat\nUmask:\t0022\nPid:\t12\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n\
        FDSize:\t256\nGroups:\t4 24 \nVmRSS:\t476 kB\nCapInh:\t00\nCapPrm:\t1ff\nCapEff:\t1ff\n\
        CapBnd:\t1ff\nCapAmb:\t00\nNoNewPrivs:\t0\nSeccomp:\t0\nSeccomp_filters:\t0\nThreads:\t1\n";

    #[test]
    fn who_becomes_who_he_is_stays() {
        const SAME: u32 = u32::MAX;
        assert!(stays([7; 3], [7; 3]) && stays([7; 3], [SAME, 7, SAME]) && stays([0; 3], [SAME; 3]));
        assert!(!stays([7; 3], [7, 8, 7]) && !stays([0; 3], [1, SAME, SAME]));
        assert!(!stays([65534; 3], [65534; 3]));
        // Of a setuid program nothing is certain.
        assert!(!stays([7, 0, 0], [SAME; 3]) && !stays([7, 7, 0], [7; 3]));
    }

    #[test]
    fn the_mask_is_in_its_line() {
        assert_eq!(mask(STATUS.as_bytes()), Some(0o022));
        assert_eq!(mask(b"Umask:\t0777\n"), Some(0o777));
        for other in ["", "Umask:\n", "Umask:\t0929\n", "Umask:\t1777\n", "Mask:\t0022\n"] {
            assert_eq!(mask(other.as_bytes()), None, "{other:?}");
        }
    }

    #[test]
    fn what_is_allowed_tells_and_nothing_else() {
        let rights = Rights::of(STATUS.as_bytes()).unwrap();
        for (from, to) in [("12", "13"), ("476", "477"), ("cat", "dog"), ("Threads:\t1", "Threads:\t9")] {
            assert_eq!(Rights::of(STATUS.replace(from, to).as_bytes()), Some(rights), "{from}");
        }
        let changes = [
            ("Uid:\t0\t0\t0\t0", "Uid:\t0\t1\t0\t0"),
            ("Uid:\t0\t0\t0\t0", "Uid:\t0\t0\t0\t1"),
            ("Gid:\t0\t0\t0\t0", "Gid:\t0\t0\t1\t0"),
            ("4 24", "4"),
            ("CapInh:\t00", "CapInh:\t01"),
            ("CapPrm:\t1ff", "CapPrm:\t0ff"),
            ("CapEff:\t1ff", "CapEff:\t0ff"),
            ("CapBnd:\t1ff", "CapBnd:\t0ff"),
            ("CapAmb:\t00", "CapAmb:\t01"),
            ("NoNewPrivs:\t0", "NoNewPrivs:\t1"),
            ("Seccomp:\t0", "Seccomp:\t2"),
            ("Seccomp_filters:\t0", "Seccomp_filters:\t1"),
        ];
        for (from, to) in changes {
            let other = Rights::of(STATUS.replacen(from, to, 1).as_bytes());
            assert!(other.is_some() && other != Some(rights), "{from} to {to}");
        }
    }

    #[test]
    fn whoever_lacks_one_of_the_two_does_not_move_freely() {
        assert!(moves_freely(b"Uid:\t0\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n"));
        for caps in ["000001ffffdfffff", "000001fffffbffff", "0000000000000000", "", "x"] {
            let status = format!("CapBnd:\t000001ffffffffff\nCapEff:\t{caps}\n");
            assert!(!moves_freely(status.as_bytes()), "{caps}");
        }
    }

    #[test]
    fn what_is_cut_tells_nothing() {
        let end = STATUS.find("Seccomp_filters").unwrap();
        let seccomp = STATUS.find("Seccomp:").unwrap();
        for length in 0..=seccomp + "Seccomp:\t0".len() {
            assert_eq!(Rights::of(&STATUS.as_bytes()[..length]), None, "{length}");
        }
        // Before Linux 5.9 there is no count of filters.
        assert!(Rights::of(&STATUS.as_bytes()[..end]).is_some());
    }

    #[test]
    fn our_own_are_told() {
        let status = std::fs::read("/proc/self/status").unwrap();
        let rights = Rights::of(&status).unwrap();
        assert!(status.len() < STATUS_BYTES);
        assert_eq!(Rights::of(&std::fs::read("/proc/thread-self/status").unwrap()), Some(rights));
    }
}
