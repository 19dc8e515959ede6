//! Which programs are served: what users have said, and what goes without saying.

use super::opted_out::OPTED_OUT;
use super::shells::config_folder;
use runahead_abi::enabled::{EXCEPT, FILE_BYTES, ONLY};
use std::fs;
use std::path::Path;

/// Name of the file that keeps what was said, in the user's or the system's folder.
pub(super) const NAME: &str = "enabled.conf";
pub(super) const SYSTEM: &str = "/etc/runahead";

/// Bytes left for what stands before and behind the rules.
const RULES_BYTES: usize = FILE_BYTES - 256;

/// Programs that are meant, or are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub only: Vec<String>,
    pub except: Vec<String>,
}

impl Rules {
    /// What is wrong with them.
    pub(super) fn problem(&self) -> Option<String> {
        let is_name = |pattern: &String| {
            !pattern.is_empty() && pattern.len() < 256 && !pattern.contains(['/', '\n', '\0'])
        };
        let all = || self.only.iter().chain(&self.except);
        if let Some(wrong) = all().find(|pattern| !is_name(pattern)) {
            return Some(format!("'{wrong}' is no pattern of programs' names, such as 'python*'"));
        }
        let is_too_long = self.text().len() + of_all_others().len() > RULES_BYTES;
        is_too_long.then(|| format!("so many patterns are too long: {RULES_BYTES} bytes in all"))
    }

    pub(super) fn text(&self) -> String {
        let lines = |word: &[u8], patterns: &[String]| -> String {
            let word = String::from_utf8_lossy(word).into_owned();
            patterns.iter().map(|pattern| format!("{word}{pattern}\n")).collect()
        };
        lines(ONLY, &self.only) + &lines(EXCEPT, &self.except)
    }

    fn read(folder: &Path) -> Rules {
        let text = fs::read_to_string(folder.join(NAME)).unwrap_or_default();
        let patterns = |word: &[u8]| {
            let word = String::from_utf8_lossy(word).into_owned();
            text.lines().filter_map(|line| line.strip_prefix(word.as_str()).map(str::to_owned)).collect()
        };
        Rules { only: patterns(ONLY), except: patterns(EXCEPT) }
    }
}

fn of_all_others() -> String {
    Rules { only: Vec::new(), except: OPTED_OUT.iter().map(ToString::to_string).collect() }.text()
}

/// What the host publishes. Who names those that are meant has named all of them.
pub(super) fn published() -> Vec<u8> {
    let users = config_folder().map(|folder| Rules::read(&folder)).unwrap_or_default();
    combined(&users, &Rules::read(Path::new(SYSTEM))).into_bytes()
}

fn combined(users: &Rules, systems: &Rules) -> String {
    let only = if users.only.is_empty() { &systems.only } else { &users.only };
    let except = systems.except.iter().chain(&users.except).cloned().collect();
    let mut text = Rules { only: only.clone(), except }.text();
    if only.is_empty() {
        text = of_all_others() + &text;
    }
    // A line that is cut would be another pattern.
    if text.len() > RULES_BYTES {
        text.truncate(RULES_BYTES);
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use runahead_abi::enabled::takes;

    fn rules(only: &[&str], except: &[&str]) -> Rules {
        let own = |patterns: &[&str]| patterns.iter().map(ToString::to_string).collect();
        Rules { only: own(only), except: own(except) }
    }

    fn serves(users: &Rules, systems: &Rules, name: &str) -> bool {
        takes(combined(users, systems).as_bytes(), [name.as_bytes()].into_iter())
    }

    #[test]
    fn some_programs_are_left_out_unless_they_are_named() {
        let nothing = Rules::default();
        for name in ["grep", "python3.11", "bash", "cc1", "git", "summarize", "code-generator"] {
            assert!(serves(&nothing, &nothing, name), "{name}");
        }
        for name in ["sudo", "su", "firefox-esr", "chromium", "apt-get", "dpkg-deb", "systemd", "sshd"] {
            assert!(!serves(&nothing, &nothing, name), "{name}");
        }
        assert!(serves(&rules(&["firefox*"], &[]), &nothing, "firefox-esr"));
        assert!(!serves(&rules(&["firefox*"], &[]), &nothing, "grep"));
        assert!(!serves(&rules(&[], &["gr*"]), &nothing, "grep"));
    }

    #[test]
    fn the_users_word_on_what_is_meant_counts_and_exceptions_add_up() {
        let systems = rules(&["tar"], &["grep"]);
        assert!(serves(&Rules::default(), &systems, "tar"));
        assert!(serves(&rules(&["cat", "grep"], &[]), &systems, "cat"));
        assert!(!serves(&rules(&["cat", "grep"], &[]), &systems, "grep"));
        assert!(!serves(&rules(&["cat"], &[]), &systems, "tar"));
    }

    #[test]
    fn what_is_shipped_fits_and_is_names() {
        let all = OPTED_OUT.iter().map(ToString::to_string).collect();
        assert_eq!(Rules { only: Vec::new(), except: all }.problem(), None);
        assert!(rules(&["a/b"], &[]).problem().is_some());
        assert!(rules(&[], &[""]).problem().is_some());
        assert!(rules(&[], &["a\nonly b"]).problem().is_some());
        assert!(rules(&["x".repeat(250).as_str(); 20], &[]).problem().is_some());
    }
}
