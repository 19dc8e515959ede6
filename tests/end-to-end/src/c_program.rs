//! Programs in C that a test writes itself.

use crate::locate::build_folder;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// What was written more recently than 20 ms ago, no run analyses (`sites::site_file`): a program that is
/// executed at once is left alone or helped as the machine is quick.
const SETTLES: Duration = Duration::from_millis(50);

/// Compiles `source` with gcc and these flags. The program is the caller's, who removes it; `name` keeps it
/// apart from others' of this process. It is old enough then for a run to analyse it.
pub fn compiled(name: &str, source: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let program = build_folder().join(format!("{name}-{}", std::process::id()));
    let file = program.with_extension("c");
    let written = fs::create_dir_all(build_folder()).and_then(|()| fs::write(&file, source));
    written.map_err(|error| error.to_string())?;
    let output = Command::new("gcc").args(flags).arg("-o").arg(&program).arg(&file).output();
    let _ = fs::remove_file(file);
    let output = output.map_err(|error| format!("gcc: {error}"))?;
    match output.status.success() {
        true => {
            std::thread::sleep(SETTLES);
            Ok(program)
        }
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
