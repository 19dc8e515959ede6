//! What `--version` says: the commit, and what it was built for.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let told = |name: &str| env::var(name).unwrap_or_default();
    // A source package has no history, and says itself what it was made of.
    let commit = env::var("RUNAHEAD_COMMIT").ok().or_else(commit).unwrap_or("unknown".to_owned());
    let target = format!("{} {}", told("CARGO_CFG_TARGET_ARCH"), told("CARGO_CFG_TARGET_ENV"));
    let version = told("CARGO_PKG_VERSION");
    println!("cargo:rustc-env=RUNAHEAD_VERSION={version} (commit {commit}, {target})");
    println!("cargo:rerun-if-env-changed=RUNAHEAD_COMMIT");
    // See `src/arch`.
    if told("CARGO_CFG_TARGET_ARCH") == "x86_64" && told("CARGO_CFG_TARGET_ENV") == "musl" {
        println!("cargo:rustc-link-arg-bin=runahead=-Wl,-e,runahead_start");
    }
}

fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // A commit moves what these files say.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}
