//! What facts mean: pure functions from facts to lines.
//!
//! A remedy is a command that was seen to help, or the one thing that would; where nothing helps there is none.

pub mod command;
pub mod machine;
pub mod place;

use super::facts::machine::Surroundings;

/// What lines are about.
pub mod about {
    pub const KERNEL: &str = "kernel";
    pub const SWITCH: &str = "switch";
    pub const TRACED: &str = "traced";
    pub const PROC: &str = "/proc";
    pub const RIGHTS: &str = "rights";
    pub const INSTALLATION: &str = "installation";
    pub const FILTERS: &str = "filters";
    pub const RESOURCES: &str = "ulimit";
    pub const SHARED: &str = "shared memory";
    pub const MIRROR: &str = "mirror";
    pub const READING: &str = "processes";
    pub const TRACING: &str = "tracing";
    pub const FAULTS: &str = "page faults";
    pub const SWAP: &str = "swap";
    pub const CACHE: &str = "cachestat";
    pub const MEMORY: &str = "memory";
    pub const KNOWN: &str = "site file";
    pub const PROCESSORS: &str = "processors";
    pub const PATH: &str = "path";
    pub const FILE_SYSTEM: &str = "file system";
    pub const DEVICE: &str = "device";
    pub const CACHED: &str = "what is cached";
    pub const PAGE_CACHE: &str = "page cache";
    pub const COLD_READ: &str = "cold read";
    pub const COMMAND: &str = "command";
    pub const PROGRAM: &str = "program";
    pub const FILE_RIGHTS: &str = "its rights";
    pub const CALLS: &str = "system calls";
    pub const PRELOAD: &str = "LD_PRELOAD";
}

/// What lets system call `name` through the filter that refuses it.
fn without_filter(name: &str, around: &Surroundings) -> String {
    if around.in_container {
        return "docker (or podman) run --security-opt seccomp=unconfined …".to_owned();
    }
    if around.in_service {
        return format!("systemctl edit UNIT, and there: [Service] SystemCallFilter={name}");
    }
    format!("a filter (seccomp) that allows {name}, which only who sets it up can give")
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
