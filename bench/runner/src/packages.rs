//! Which commands are here, and which Debian packages hold those that are not.

use std::path::{Path, PathBuf};

/// The packages of those commands that are missing here, each once.
pub fn missing<'a>(needs: impl IntoIterator<Item = &'a (&'static str, &'static str)>) -> Vec<&'static str> {
    let mut missing: Vec<&str> = needs
        .into_iter()
        .filter(|(command, _)| find_program(command).is_none())
        .map(|(_, package)| *package)
        .collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// Where a command lies: itself if it has a slash, else the first in `$PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Path::new(name).is_file().then(|| PathBuf::from(name));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_named_and_once() {
        let needs = [("sh", "dash"), ("no-such-command", "b"), ("/no/such/file", "b"), ("nor-this", "a")];
        assert_eq!(missing(&needs), ["a", "b"]);
    }
}
