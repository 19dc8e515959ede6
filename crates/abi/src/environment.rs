//! What `runahead run` tells the agent: one environment variable beside `LD_PRELOAD`.

/// The variable that carries the [session's address](Session) to the agents.
pub const SESSION: &str = "RUNAHEAD_SESSION";

/// Set to `off` by the user: the command (and what it starts) runs plainly.
pub const SWITCH: &str = "RUNAHEAD";

/// `HOST:DESCRIPTOR:FLAGS:FILTERS:SITE_FILE`: the host's process id, the number of the session's
/// descriptor in the host, [`flags`], how many seccomp filters the host runs under (a process with
/// more has one of its own, which may forbid what the agent does), and the path of the site file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session<'a> {
    pub host: u32,
    pub descriptor: u32,
    pub flags: u32,
    pub filters: u32,
    pub site_file: &'a [u8],
}

pub mod flags {
    /// Intercept and compare, but never speculate (the papers' "hints ignored").
    pub const NO_SPECULATION: u32 = 1;
    /// A report is wanted: hand the counts over before the process ends.
    pub const REPORT: u32 = 2;
    /// Look for stalls from the first read and never calm down (tests, `runahead stat`).
    pub const ALWAYS_ACTIVE: u32 = 4;
    /// Processes may be read by others of their user only if they say so (Yama's scope 1).
    pub const RESTRICTED_TRACING: u32 = 8;
}

impl<'a> Session<'a> {
    /// Takes the variable's value apart; None if it is not one.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (host, rest) = field(value)?;
        let (descriptor, rest) = field(rest)?;
        let (flags, rest) = field(rest)?;
        let (filters, site_file) = field(rest)?;
        (!site_file.is_empty()).then_some(Self { host, descriptor, flags, filters, site_file })
    }
}

fn field(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let end = bytes.iter().position(|&b| b == b':')?;
    let digits = &bytes[..end];
    if digits.is_empty() || digits.len() > 9 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0, |value, &digit| value * 10 + u32::from(digit - b'0'));
    Some((value, &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_the_host_writes_and_nothing_else() {
        let session = Session { host: 12, descriptor: 3, flags: 2, filters: 0, site_file: b"/a:b" };
        assert_eq!(Session::parse(b"12:3:2:0:/a:b"), Some(session));
        for bad in ["", "12", "12:3:2", "12:3:2:", "x:3:2:/a", "-1:3:2:/a", "9999999999:3:2:/a"] {
            assert_eq!(Session::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
