//! What a test may need of the machine, and whether it is there. A test whose need is not met is
//! skipped loudly: a line on standard error, and counted as ignored in the summary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The first need that is not met, in words; `None` if the test can run. Needs are written `root`, `kernel
/// 6.0`, `command gdb`, `file /dev/fuse`, `flag avx512f`, `header zlib.h`, `release trixie libc6`,
/// `multilib`, `filesystem squashfs` (known to the kernel now), `userns`, `memory-cgroup`, `tty`, `go` (with
/// cgo).
pub fn missing(needs: &[String]) -> Option<String> {
    needs.iter().find(|need| !is_met(need)).cloned()
}

fn is_met(need: &str) -> bool {
    let (kind, rest) = need.split_once(' ').unwrap_or((need, ""));
    match kind {
        "root" => nix::unistd::geteuid().is_root(),
        "kernel" => kernel_at_least(rest),
        "command" => find_command(rest),
        "file" => Path::new(rest).exists(),
        "flag" => cpu_has(rest),
        "multilib" => compiles("int main(void){return 0;}", &["-m32"]),
        "header" => compiles(&format!("#include <{rest}>\nint main(void){{return 0;}}"), &[]),
        "go" => go().is_some(),
        "release" => crate::locate::other_release(rest).join(crate::locate::LOADER).exists(),
        "filesystem" => fs::read_to_string("/proc/filesystems")
            .is_ok_and(|known| known.split_whitespace().any(|word| word == rest)),
        "memory-cgroup" => memory_cgroup().is_some(),
        _ => panic!("unknown need '{need}': see needs.rs for the list"),
    }
}

fn kernel_at_least(wanted: &str) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version = |text: &str| -> Vec<u32> {
        text.split(['.', '-']).map_while(|part| part.trim().parse().ok()).take(2).collect()
    };
    version(&release) >= version(wanted)
}

fn find_command(name: &str) -> bool {
    crate::scenario::PATH.split(':').any(|folder| Path::new(folder).join(name).exists())
}

/// Go's toolchain, which many keep in a folder of its own.
pub fn go() -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/local/go/bin", "/usr/lib/go/bin"]);
    folders.map(|folder| Path::new(folder).join("go")).find(|go| go.is_file())
}

fn cpu_has(flag: &str) -> bool {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .filter(|line| line.starts_with("flags"))
        .any(|line| line.split_whitespace().any(|word| word == flag))
}

fn compiles(source: &str, flags: &[&str]) -> bool {
    use std::io::Write;
    let child = Command::new("cc")
        .args(flags)
        .args(["-x", "c", "-", "-o", "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else { return false };
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(source.as_bytes());
    }
    child.wait().is_ok_and(|status| status.success())
}

/// A memory cgroup below which we may make our own: the folder, and the name of the limit's file.
pub fn memory_cgroup() -> Option<(std::path::PathBuf, &'static str)> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let path = path.trim_start_matches('/');
        let (root, limit) = if controllers.split(',').any(|name| name == "memory") {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max")
        } else {
            continue;
        };
        // A cgroup of version 2 with processes in it can have no children with controllers, so the
        // parents are tried too.
        for folder in Path::new(root).join(path).ancestors() {
            if !folder.starts_with(root) {
                break;
            }
            let probe = folder.join(format!("runahead-test-probe-{}", std::process::id()));
            if fs::create_dir(&probe).is_err() {
                continue;
            }
            let usable = probe.join(limit).exists();
            let _ = fs::remove_dir(&probe);
            if usable {
                return Some((folder.to_owned(), limit));
            }
        }
    }
    None
}
