//! Names that are not to be remembered, as the user says it.

use runahead_abi::enabled::matches;

/// Patterns of paths and names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Except(Vec<Pattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    /// Of one name, wherever it stands in a path.
    Name(Vec<u8>),
    /// Of a path from the root.
    Path(Vec<u8>),
}

impl Except {
    /// Patterns with `:` between them. In each `*` stands for any bytes and `?` for one. One with a slash is meant
    /// from the root, or from `home` where it begins with `~/`, or from any folder where it begins with none of
    /// these; one without a slash is meant of any name in a path. What is below a folder that is meant is meant
    /// as well.
    pub fn parse(text: &[u8], home: &[u8]) -> Except {
        let patterns = text.split(|&byte| byte == b':').filter_map(|pattern| {
            let whole = match pattern.strip_prefix(b"~") {
                Some(rest) if matches!(rest, [] | [b'/', ..]) => [home, rest].concat(),
                _ => pattern.to_vec(),
            };
            // As paths are compared: without what names no folder of its own.
            let parts: Vec<&[u8]> =
                whole.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
            let kept = parts.join(&b'/');
            Some(match &whole[..] {
                [] => return None,
                // The root alone is everything.
                [b'/', ..] if kept.is_empty() => Pattern::Path(Vec::new()),
                [b'/', ..] => Pattern::Path([b"/", &kept[..]].concat()),
                _ if kept.is_empty() => return None,
                _ if parts.len() > 1 => Pattern::Path([b"*/", &kept[..]].concat()),
                _ => Pattern::Name(kept),
            })
        });
        Except(patterns.collect())
    }

    /// Whether this path from the root, or a folder above it, is meant, with `..` in it or after that.
    pub fn has(&self, path: &[u8]) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let mut names: Vec<&[u8]> =
            path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
        if self.means(&names) {
            return true;
        }
        let mut at = 0;
        while at < names.len() {
            if names[at] == b".." {
                drop(names.drain(at.saturating_sub(1)..=at));
                at = at.saturating_sub(1);
            } else {
                at += 1;
            }
        }
        self.means(&names)
    }

    fn means(&self, names: &[&[u8]]) -> bool {
        let (mut path, mut ends) = (Vec::new(), vec![0]);
        for name in names {
            path.push(b'/');
            path.extend_from_slice(name);
            ends.push(path.len());
        }
        self.0.iter().any(|pattern| match pattern {
            Pattern::Name(pattern) => names.iter().any(|name| matches(pattern, name)),
            Pattern::Path(pattern) => ends.iter().any(|&end| matches(pattern, &path[..end])),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_names_paths_and_what_is_below() {
        let has =
            |patterns: &str, path: &str| Except::parse(patterns.as_bytes(), b"/home/a").has(path.as_bytes());
        for (patterns, path) in [
            ("*.kdbx", "/home/a/keys.kdbx"),
            ("*.kdbx", "/home/a/old.kdbx/x"),
            (".ssh", "/home/a/.ssh/id"),
            ("/home/a/private", "/home/a/private"),
            ("/home/a/private/", "/home/a/private/x/y"),
            ("/home/*/private", "/home/b/private/x"),
            ("~/private", "/home/a/private/x"),
            ("~", "/home/a/x"),
            ("private/keys", "/srv/private/keys/x"),
            ("x:.ssh:y", "/home/a/.ssh"),
            ("/home/a/private", "/home//a/./private/x"),
            ("/home/a/private", "/home/a/public/../private/x"),
            (".ssh", "/home/a/.ssh/../x"),
            ("/srv", "/../srv/x"),
            ("/home//a/./private/", "/home/a/private/x"),
            ("private//", "/srv/private/x"),
            ("/", "/anything"),
            ("*", "/anything"),
        ] {
            assert!(has(patterns, path), "{patterns} {path}");
        }
        for (patterns, path) in [
            ("", "/home/a"),
            (":", "/home/a"),
            ("*.kdbx", "/home/a/kdbx"),
            ("ssh", "/home/a/.ssh"),
            ("/home/a/private", "/home/a/private2"),
            ("/home/a/private", "/srv/home/a/private"),
            ("~/private", "/home/b/private"),
            ("~b", "/home/a"),
            ("private/keys", "/srv/private/x/keys"),
        ] {
            assert!(!has(patterns, path), "{patterns} {path}");
        }
        for home in ["/", "//", "/home/a/", "/home/./a"] {
            let except = Except::parse(b"~/private", home.as_bytes());
            let folder = if home.contains('a') { "/home/a" } else { "" };
            assert!(except.has(format!("{folder}/private/x").as_bytes()), "{home}");
            assert!(!except.has(format!("{folder}/public/x").as_bytes()), "{home}");
        }
    }
}
