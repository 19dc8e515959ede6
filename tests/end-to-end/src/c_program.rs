//! Programs in C that a test writes itself.

use crate::locate::build_folder;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Compiles `source` with gcc and these flags. The program is the caller's, who removes it; `name` keeps it
/// apart from others' of this process.
pub fn compiled(name: &str, source: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let program = build_folder().join(format!("{name}-{}", std::process::id()));
    let file = program.with_extension("c");
    let written = fs::create_dir_all(build_folder()).and_then(|()| fs::write(&file, source));
    written.map_err(|error| error.to_string())?;
    let output = Command::new("gcc").args(flags).arg("-o").arg(&program).arg(&file).output();
    let _ = fs::remove_file(file);
    let output = output.map_err(|error| format!("gcc: {error}"))?;
    match output.status.success() {
        true => Ok(program),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
