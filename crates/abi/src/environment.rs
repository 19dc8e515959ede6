//! What `runahead run` tells the agent: one environment variable beside `LD_PRELOAD`.

use core::fmt;

/// The variable that carries the [session's address](Session) to the agents.
pub const SESSION: &str = "RUNAHEAD_SESSION";

/// Set to `off` by the user: the command (and what it starts) runs plainly.
pub const SWITCH: &str = "RUNAHEAD";

/// Variables that have glibc's loader say what it loads, the agent among it, to people (ldd(1) sets the first)
/// and to programs that gather a program's libraries.
pub const TELLING: [&str; 2] = ["LD_TRACE_LOADED_OBJECTS", "LD_DEBUG"];

/// Whether an entry of an environment, of which `head` is the beginning at least, is one of these.
pub fn has_loader_tell(head: &[u8]) -> bool {
    TELLING.iter().map(|name| name.as_bytes()).any(|name| {
        let rest = head.strip_prefix(name);
        rest.map_or(!head.is_empty() && !head.contains(&b'=') && name.starts_with(head), |rest| {
            rest.starts_with(b"=")
        })
    })
}

/// What cold commands open is remembered, and asked for when they start cold again, unless the user sets this
/// to `off`. With `on` each command is looked at from its start.
pub const REMEMBER: &str = "RUNAHEAD_REMEMBER";

/// Names that are not remembered: patterns with `:` between them.
pub const REMEMBER_EXCEPT: &str = "RUNAHEAD_REMEMBER_EXCEPT";

/// `HOST:DESCRIPTOR:FLAGS:FILTERS:COOKIE:SITES`: the host's process id, the number of the session's
/// descriptor in the host, [`flags`], how many seccomp filters the host runs under (a process with
/// more has one of its own, which may forbid what the agent does), the session's cookie, and the number of
/// the site file's descriptor in the host.
///
/// Process ids are used again: the cookie (random, in the session's header as well) tells that what is
/// found behind the numbers is what they stood for ([`crate::trust`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    pub host: u32,
    pub descriptor: u32,
    pub flags: u32,
    pub filters: u32,
    pub cookie: Cookie,
    pub sites: u32,
}

/// 128 random bits; all zeros are none.
pub type Cookie = [u64; 2];

/// Digits of a cookie: each word as sixteen of base 16.
const COOKIE_DIGITS: usize = 32;

pub mod flags {
    /// Intercept and compare, but never speculate (the papers' "hints ignored").
    pub const NO_SPECULATION: u32 = 1;
    /// A report is wanted: hand the counts over before the process ends.
    pub const REPORT: u32 = 2;
    /// Look for stalls from the first read and never calm down (tests, `runahead stat`).
    pub const ALWAYS_ACTIVE: u32 = 4;
    /// Processes may be read by others of their user only if they say so (Yama's scope 1).
    pub const RESTRICTED_TRACING: u32 = 8;
    /// Of one process: the last two entries of its environment are ours, its program was started without
    /// them, and is not to find them ([`crate::executions`]).
    pub const HIDDEN: u32 = 16;
    /// Programs of another user that come of this one become [runs of their own](super::again).
    pub const OWN_RUNS: u32 = 32;
    /// The command gets the orphans of its descendants (the first process of a pid namespace, a child
    /// subreaper).
    pub const REAPS: u32 = 64;
    /// The run is traced: events are left in the slots' rings ([`crate::trace`]), and the host is waited for
    /// at the end.
    pub const TRACE: u32 = 128;
    /// The host serves all of the user's programs ([`crate::enabled`]): short ones that never wait are left
    /// alone ([`crate::lives`]).
    pub const LASTING: u32 = 256;
    /// What is opened may be wanted ([`crate::opened`]): sites that open files get stubs.
    pub const REMEMBERS: u32 = 512;
    /// The run is recorded: all that it opens is wanted, from its start, so that the analysis of all code is
    /// waited for.
    pub const RECORDS: u32 = 1024;
    /// Of a traced run: each read that is looked at is an event, so that the run can be replayed
    /// (`bench/replay`), and all are looked at.
    pub const TRACE_READS: u32 = 2048;
}

/// The launcher's command line when an agent starts it in place of a program that was executed already
/// (`agent::own_run`): `runahead again DESCRIPTOR FILE NAME ARGUMENT...` executes FILE with the rest as its
/// arguments, the first being what it finds as its name. DESCRIPTOR, which is the launcher's to close, is the
/// file that is meant, whatever FILE leads to by now; [`NONE`](again::NONE): a script, which is found by its
/// name anyway. Nothing is said, and no such run has further ones.
pub mod again {
    use core::ffi::CStr;

    pub const WORD: &CStr = c"again";
    /// In the place of a descriptor.
    pub const NONE: &CStr = c"-";
    /// Number of the descriptor among the launcher's arguments.
    pub const DESCRIPTOR: usize = 2;
    /// Number of the file's path.
    pub const FILE: usize = 3;
    /// Number of the command's name.
    pub const FIRST: usize = 4;
}

/// Limits (getrlimit(2), bytes) below which an agent leaves its program alone: what it needs beside the
/// program would be more than a hundredth of them. A program that just fits (suites measure how little a tool
/// needs, and give it a little more) does not find room missing.
pub mod least {
    /// RLIMIT_AS.
    pub const ADDRESSES: u64 = 288 << 20;
    /// RLIMIT_DATA.
    pub const DATA: u64 = 64 << 20;
    /// RLIMIT_STACK: the loader and the agent's start take some of it.
    pub const STACK: u64 = 64 << 10;
    /// RLIMIT_NPROC, for a run that the program's user has not asked for himself: our threads count among his
    /// processes.
    pub const PROCESSES: u64 = 4096;
    /// One in so many bytes.
    pub const SHARE: usize = 100;
}

impl Session {
    /// Takes the variable's value apart; None if it is not one.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (host, rest) = field(value)?;
        let (descriptor, rest) = field(rest)?;
        let (flags, rest) = field(rest)?;
        let (filters, rest) = field(rest)?;
        let (cookie, rest) = rest.split_at_checked(COOKIE_DIGITS)?;
        let sites = number(rest.strip_prefix(b":")?)?;
        let (first, second) = cookie.split_at(COOKIE_DIGITS / 2);
        let cookie = [word(first)?, word(second)?];
        (cookie != [0; 2]).then_some(Self { host, descriptor, flags, filters, cookie, sites })
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, descriptor, flags, filters, cookie: [first, second], sites } = self;
        write!(f, "{host}:{descriptor}:{flags}:{filters}:{first:016x}{second:016x}:{sites}")
    }
}

/// A word of a cookie, in small digits of base 16.
fn word(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |value, &digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(digit))
    })
}

fn field(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let end = bytes.iter().position(|&b| b == b':')?;
    let (digits, rest) = bytes.split_at_checked(end)?;
    Some((number(digits)?, rest.strip_prefix(b":")?))
}

fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 9 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |value, &digit| value * 10 + u32::from(digit - b'0')))
}

/// What stands between the names in `LD_PRELOAD` (ld.so(8)).
const PRELOAD_SEPARATORS: [u8; 2] = *b": ";

/// Writes the value of `LD_PRELOAD` without the names that are `ours`, and without a separator of each, into
/// `left`, which is at least as long and is changed no further than that.
pub fn preload_without(value: &[u8], left: &mut [u8], ours: impl Fn(&[u8]) -> bool) {
    let (mut bytes, mut rest) = (0, value);
    while !rest.is_empty() {
        let name = first_preloaded(rest);
        let piece = rest.get(..=name.len()).unwrap_or(rest);
        rest = rest.get(piece.len()..).unwrap_or_default();
        if !ours(name) {
            left.iter_mut().skip(bytes).zip(piece).for_each(|(to, from)| *to = *from);
            bytes += piece.len();
        } else if name.len() == piece.len()
            && let Some(separator) = left.get_mut(..bytes).and_then(|left| left.last_mut())
        {
            // The last one's separator is the one before it.
            *separator = 0;
        }
    }
}

/// The first name in a value of `LD_PRELOAD` that is one of `ours`, wherever it stands: whoever preloads
/// something himself may name that before it.
pub fn find_preloaded(value: &[u8], ours: impl Fn(&[u8]) -> bool) -> Option<&[u8]> {
    let mut rest = value;
    loop {
        let name = first_preloaded(rest);
        if ours(name) {
            return Some(name);
        }
        rest = rest.get(name.len() + 1..)?;
    }
}

/// The first name in a value of `LD_PRELOAD`, which may be empty. (An iterator over all of them can panic, which
/// the agent must not.)
fn first_preloaded(value: &[u8]) -> &[u8] {
    let end = value.iter().position(|byte| PRELOAD_SEPARATORS.contains(byte)).unwrap_or(value.len());
    value.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_the_loader_tell_is_known_by_the_beginning() {
        for told in ["LD_DEBUG=files", "LD_TRACE_LOADED_", "LD_TRACE_LOADED_OBJECTS=1"] {
            assert!(has_loader_tell(told.as_bytes()), "{told}");
        }
        for not in ["", "LD_DEBUG_OUTPUT=a", "LD_TRACE_PRELINKI", "LD_PRELOAD=x", "LD=", "LD_BIND_NOW=1"] {
            assert!(!has_loader_tell(not.as_bytes()), "{not}");
        }
    }

    #[test]
    fn parses_what_the_host_writes_and_nothing_else() {
        let cookie = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];
        let session = Session { host: 12, descriptor: 3, flags: 2, filters: 0, cookie, sites: 5 };
        let good = "12:3:2:0:0123456789abcdeffedcba9876543210:5";
        assert_eq!(Session::parse(good.as_bytes()), Some(session));
        assert_eq!(session.to_string(), good);
        let digits = "0123456789abcdeffedcba9876543210";
        let bad = [
            String::new(),
            "12:3:2:0".into(),
            "12:3:2:0:/a:b".into(),
            format!("12:3:2:0:{digits}"),
            format!("12:3:2:0:{digits}:"),
            format!("12:3:2:0:{digits}5:5"),
            format!("12:3:2:0:{}:5", &digits[1..]),
            format!("12:3:2:0:{}:5", digits.to_uppercase()),
            format!("12:3:2:0:{digits}:x"),
            format!("x:3:2:0:{digits}:5"),
            format!("-1:3:2:0:{digits}:5"),
            format!("9999999999:3:2:0:{digits}:5"),
            format!("12:3:2:0:{}:5", "0".repeat(32)),
        ];
        for bad in bad {
            assert_eq!(Session::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn what_is_preloaded_is_found_wherever_it_stands() {
        let find = |value: &'static str| find_preloaded(value.as_bytes(), |name| name.ends_with(b"/ours"));
        for found in ["/x/ours", "/x/ours:a.so", "a.so:/x/ours", "a.so b.so::/x/ours:/y/ours"] {
            assert_eq!(find(found), Some(b"/x/ours".as_slice()), "{found}");
        }
        for other in ["", ":", "a.so", "/x/ours.so:/x/our"] {
            assert_eq!(find(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_preloaded_is_left_but_ours_wherever_that_stands() {
        for (value, expected) in [
            ("/x/ours", ""),
            ("/x/ours:a.so", "a.so"),
            ("/x/ours:a.so b.so", "a.so b.so"),
            ("a.so:/x/ours", "a.so"),
            ("a.so:/x/ours b.so", "a.so:b.so"),
            ("/x/ours:/y/ours:b.so", "b.so"),
            ("b.so /x/ours:/y/ours", "b.so"),
            ("", ""),
            ("a.so", "a.so"),
            ("::a.so /x/ours: ", "::a.so  "),
        ] {
            let mut left = vec![0; value.len()];
            preload_without(value.as_bytes(), &mut left, |name| name.ends_with(b"/ours"));
            let bytes = left.iter().position(|&byte| byte == 0).unwrap_or(left.len());
            assert_eq!(String::from_utf8_lossy(&left[..bytes]), expected, "{value}");
            assert!(left[bytes..].iter().all(|&byte| byte == 0), "{value}");
        }
    }
}
