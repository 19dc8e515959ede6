//! What facts mean: pure functions from facts to lines.
//!
//! A remedy is a command that was seen to help, or the one thing that would; where nothing helps there is
//! none.

pub mod command;
pub mod machine;
pub mod place;

use runahead_remedies::without_filter;

/// What lines are about. Each is in docs/doctor.md.
pub mod about {
    macro_rules! about {
        ($($name:ident = $word:literal;)*) => {
            $(pub const $name: &str = $word;)*
            #[cfg(test)]
            pub const ALL: &[&str] = &[$($word),*];
        };
    }
    about! {
        KERNEL = "kernel";
        SWITCH = "switch";
        TRACED = "traced";
        PROC = "/proc";
        RIGHTS = "rights";
        INSTALLATION = "installation";
        FILTERS = "filters";
        RESOURCES = "ulimit";
        SHARED = "shared memory";
        MIRROR = "memory copies";
        READING = "processes";
        TRACING = "tracing";
        FAULTS = "page faults";
        SWAP = "swap";
        CACHE = "cachestat";
        MEMORY = "memory";
        KNOWN = "site file";
        PROCESSORS = "processors";
        PATH = "path";
        FILE_SYSTEM = "file system";
        DEVICE = "device";
        CACHED = "what is cached";
        PAGE_CACHE = "page cache";
        COLD_READ = "cold read";
        COMMAND = "command";
        PROGRAM = "program";
        FILE_RIGHTS = "its rights";
        CALLS = "system calls";
        PRELOAD = "LD_PRELOAD";
    }
}

/// A number of bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..0x10_0000 => format!("{} KB", bytes >> 10),
        0x10_0000..0x2_8000_0000 => format!("{} MB", bytes >> 20),
        _ => format!("{} GB", bytes >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const MANUAL: &str = include_str!("../../../../../docs/doctor.md");

    #[test]
    fn the_manual_explains_every_line_and_no_other() {
        let row = |line: &'static str| line.strip_prefix("| `")?.split_once('`').map(|(about, _)| about);
        let explained: BTreeSet<&str> = MANUAL.lines().filter_map(row).collect();
        assert_eq!(explained, about::ALL.iter().copied().collect::<BTreeSet<&str>>());
    }

    #[test]
    fn sizes_are_short() {
        let told = [0, 1023, 4096, 1 << 20, 23 << 30, 9 << 30].map(size);
        assert_eq!(told, ["0 bytes", "1023 bytes", "4 KB", "1 MB", "23 GB", "9216 MB"]);
    }
}
