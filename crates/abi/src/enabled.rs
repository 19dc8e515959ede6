//! What the host of all of a user's programs publishes (`runahead enable`): where its session is, and which
//! programs it is for.
//!
//! Their environment says [`WORD`] in the place of a session's address, and the agent looks into
//! [`PLACES`]. Hosts come and go meanwhile. Nothing there is believed that is not the user's own, and a
//! session that is over is told by its cookie ([`crate::trust`]).

use crate::environment::Session;

/// Value of the variable for the session; where programs are under filters of system calls anyway (in a
/// container) with a colon and how many these are.
pub const WORD: &[u8] = b"enabled";

/// If the variable's value is such a one, under how many filters programs may be.
pub fn filters(value: &[u8]) -> Option<u64> {
    match value.strip_prefix(WORD)? {
        [] => Some(0),
        [b':', digit @ b'0'..=b'9'] => Some(u64::from(digit - b'0')),
        _ => None,
    }
}

/// Folders of a user that may have the file, in this order: each is what is said here, with the user's number
/// between both parts. The second is for who has no session of the login manager's.
pub const PLACES: [(&str, &str); 2] = [("/run/user/", "/runahead"), ("/var/tmp/runahead-", "")];

/// Name of the file in the folder, and of the one that a living host has locked.
pub const FILE: &str = "session";
pub const LOCK: &str = "lock";

/// Longest file.
pub const FILE_BYTES: usize = 4096;

/// Beginnings of lines that name programs.
pub const ONLY: &[u8] = b"only ";
pub const EXCEPT: &[u8] = b"except ";

/// The last line: a file without is not whole.
pub const END: &[u8] = b"end\n";

/// The file: a session's address, and a line for each pattern of programs that it is for or not for.
#[derive(Clone, Copy, Debug)]
pub struct Published<'a> {
    pub session: Session,
    rules: &'a [u8],
}

impl<'a> Published<'a> {
    /// None: it is not such a file, or not all of one.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let text = text.strip_suffix(END)?;
        let end = text.iter().position(|&byte| byte == b'\n')?;
        let (address, rules) = text.split_at_checked(end)?;
        Some(Self { session: Session::parse(address)?, rules })
    }

    /// Whether a program with these names (the one that it was started by, its file's) is served.
    pub fn takes<'n>(&self, names: impl Iterator<Item = &'n [u8]> + Clone) -> bool {
        takes(self.rules, names)
    }
}

/// Whether lines of [`ONLY`] and [`EXCEPT`] let in a program with these names.
pub fn takes<'n>(rules: &[u8], names: impl Iterator<Item = &'n [u8]> + Clone) -> bool {
    let (mut is_restricted, mut is_meant) = (false, false);
    for line in rules.split(|&byte| byte == b'\n') {
        let matches_any = |pattern: &[u8]| names.clone().any(|name| matches(pattern, name));
        if let Some(pattern) = line.strip_prefix(ONLY) {
            is_restricted = true;
            is_meant |= matches_any(pattern);
        } else if let Some(pattern) = line.strip_prefix(EXCEPT)
            && matches_any(pattern)
        {
            return false;
        }
    }
    is_meant || !is_restricted
}

/// Whether a name is what a pattern says: `*` stands for any bytes, `?` for one.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut pattern, mut name) = (pattern, name);
    // Behind the latest `*`, and the name there: it stands for one byte more each time.
    let mut again: Option<(&[u8], &[u8])> = None;
    loop {
        match (pattern.split_first(), name.split_first()) {
            (Some((b'*', behind)), _) => {
                again = Some((behind, name));
                pattern = behind;
            }
            (Some((wanted, behind)), Some((byte, rest))) if *wanted == b'?' || wanted == byte => {
                (pattern, name) = (behind, rest);
            }
            (None, None) => return true,
            _ => match again {
                Some((behind, [_, rest @ ..])) => {
                    again = Some((behind, rest));
                    (pattern, name) = (behind, rest);
                }
                _ => return false,
            },
        }
    }
}

/// What follows the last slash.
pub fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "12:3:2:0:0123456789abcdeffedcba9876543210:5";

    #[test]
    fn the_variable_says_how_many_filters_there_are() {
        assert_eq!(filters(b"enabled"), Some(0));
        assert_eq!(filters(b"enabled:2"), Some(2));
        for value in ["", "enabled:", "enabled:12", "enabled:x", "enabled2", "disabled", ADDRESS] {
            assert_eq!(filters(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn a_file_is_taken_whole_or_not_at_all() {
        let good = format!("{ADDRESS}\nexcept sudo\nend\n");
        let published = Published::parse(good.as_bytes()).unwrap();
        assert_eq!(published.session.to_string(), ADDRESS);
        for length in 0..good.len() {
            assert!(Published::parse(&good.as_bytes()[..length]).is_none(), "{length}");
        }
        assert!(Published::parse(format!("{ADDRESS}\nend\n").as_bytes()).is_some());
        for bad in ["end\n", "\nend\n", "x\nend\n", &format!("{ADDRESS} \nend\n")] {
            assert!(Published::parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn rules_let_in_whom_they_say() {
        let takes = |rules: &str, names: &[&str]| takes(rules.as_bytes(), names.iter().map(|n| n.as_bytes()));
        assert!(takes("", &["grep"]));
        assert!(!takes("except grep\n", &["grep"]));
        assert!(takes("except grep\n", &["egrep"]));
        assert!(!takes("except chrom*\nexcept x", &["run", "chromium"]), "either of its names");
        assert!(takes("only grep\nonly tar\n", &["tar"]));
        assert!(!takes("only grep\n", &["tar"]));
        assert!(takes("only python*\n", &["script", "python3.11"]));
        assert!(!takes("only a*\nexcept ab\n", &["ab"]));
        assert!(!takes("only a\n", &[]));
        assert!(takes("nonsense\n\n", &["a"]));
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        let cases = [
            ("a", "a", true),
            ("a", "ab", false),
            ("", "", true),
            ("*", "", true),
            ("*", "anything", true),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "abcd", false),
            ("*b*", "abc", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*aab", "aaaab", true),
            ("x*y*z", "xyyzyz", true),
            ("?", "", false),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
        assert_eq!(file_name(b"/usr/bin/grep"), b"grep");
        assert_eq!(file_name(b"grep"), b"grep");
    }
}
