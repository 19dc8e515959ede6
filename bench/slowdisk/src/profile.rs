//! The disks, by name.
//!
//! A profile is data only: which kind of disk, with which figures. `nvme` and `cloud` answer every request
//! after a fixed time, so many in parallel. `gp3` is such a disk with caps on requests and bytes. `disk1`,
//! `array4` and `disk10` are the disks of the 1999 paper, one request at a time each, 64 KB stripes: an arm
//! that moves, a platter that turns. `net` is a file server across a network, where names cost a request too.
//!
//! A name may carry two figures: `array4x3` is three times as slow in everything (the 1999 paper's way to
//! widen the gap between processor and disk), `cloud@8` answers 8 requests at once instead of its own number.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// A disk's name and figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    pub name: String,
    pub kind: Kind,
}

/// What stands behind the mount point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// No emulation: a directory of the machine's own disk.
    Native,
    /// Every request takes `latency_ns`, at most `parallel` of them at once.
    Fixed { latency_ns: u64, parallel: usize },
    /// The same, with caps as volumes are sold with: no more requests and bytes a second than these.
    Capped { latency_ns: u64, parallel: usize, requests_per_second: u64, bytes_per_second: u64 },
    /// A volume made of a snapshot: the first touch of each block of so many bytes takes `first_ns`, any other
    /// `latency_ns`. Only replayed: a daemon's blocks would stay touched from one run to the next.
    Hydrating { first_ns: u64, block: u64, latency_ns: u64, parallel: usize },
    /// Disks with an arm and a platter, one request at a time each.
    Spinning(Spinning),
    /// A file system across a network: every request, names too, takes `latency_ns`.
    Names { latency_ns: u64, parallel: usize },
}

/// Figures of a set of spinning disks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spinning {
    pub disks: usize,
    /// Bytes that lie on one disk before the next one's turn.
    pub stripe: u64,
    /// The shortest and the longest movement of the arm; between them it grows with the square root
    /// of the distance.
    pub seek_min_ns: u64,
    pub seek_max_ns: u64,
    /// One turn of the platter.
    pub turn_ns: u64,
    /// From the platter, once in position.
    pub bytes_per_second: u64,
}

/// The names, in the order in which lists show them, with what each is.
pub const KNOWN: [(&str, &str); 9] = [
    ("native", "a directory on the machine's own disk, no emulation"),
    ("nvme", "100 us, 64 in parallel (see `slowdisk check` for whether this machine can hold it)"),
    ("cloud", "1 ms, 64 in parallel"),
    ("gp3", "0.7 ms, 64 in parallel, 3000 requests and 125 MB a second at most"),
    ("disk1", "one spinning disk, one request at a time, about 14 ms each"),
    ("disk2", "two of them, 64 KB stripe"),
    ("array4", "four of them: the papers' disks"),
    ("disk10", "ten of them"),
    ("net", "a file system over a network: 5 ms a request, names too"),
];

/// Positioning and transfer of the disks that the 1999 paper measured on, as far as it says: 15 ms
/// average access for blocks of 8 KB, 5400 turns a minute. The arm's 1.5 to 12 ms average 7.1 over
/// random pairs of places (the mean square root of the distance is 8/15), half a turn 5.6, and 4 KB
/// at 4 MB/s 1.0: 13.7 ms.
fn spinning(disks: usize) -> Kind {
    Kind::Spinning(Spinning {
        disks,
        stripe: 64 << 10,
        seek_min_ns: 1_500_000,
        seek_max_ns: 12_000_000,
        turn_ns: 11_111_111,
        bytes_per_second: 4_000_000,
    })
}

impl Profile {
    /// The profile of that name, `xN` and `@N` behind it (see above); an unknown name fails with the list.
    pub fn by_name(name: &str) -> Result<Profile> {
        let (rest, parallel) = split_number(name, '@');
        let (base, slower) = split_number(rest, 'x');
        let mut profile = Profile::plain(base)?;
        if let Some(times) = slower {
            profile = profile.slower(times)?;
        }
        if let Some(count) = parallel {
            profile = profile.with_parallel(count as usize)?;
        }
        Ok(Profile { name: name.to_string(), ..profile })
    }

    fn plain(name: &str) -> Result<Profile> {
        let kind = match name {
            "native" => Kind::Native,
            "nvme" => Kind::Fixed { latency_ns: 100_000, parallel: 64 },
            "cloud" => Kind::Fixed { latency_ns: 1_000_000, parallel: 64 },
            "gp3" => Kind::Capped {
                latency_ns: 700_000,
                parallel: 64,
                requests_per_second: 3_000,
                bytes_per_second: 125_000_000,
            },
            "disk1" => spinning(1),
            "disk2" => spinning(2),
            "array4" => spinning(4),
            "disk10" => spinning(10),
            "net" => Kind::Names { latency_ns: 5_000_000, parallel: 64 },
            _ => bail!("there is no disk profile '{name}'; these exist:\n{}", list()),
        };
        Ok(Profile { name: name.to_string(), kind })
    }

    /// The same disk, everything taking so many times as long.
    fn slower(mut self, times: u64) -> Result<Profile> {
        match &mut self.kind {
            _ if times == 0 => bail!("a disk cannot take no time at all: 'x0' in '{}x0'", self.name),
            Kind::Native => bail!("the machine's own disk cannot be slowed; use one of:\n{}", list()),
            Kind::Fixed { latency_ns, .. } | Kind::Names { latency_ns, .. } => *latency_ns *= times,
            Kind::Capped { latency_ns, requests_per_second, bytes_per_second, .. } => {
                *latency_ns *= times;
                *requests_per_second = (*requests_per_second / times).max(1);
                *bytes_per_second = (*bytes_per_second / times).max(1);
            }
            Kind::Hydrating { first_ns, latency_ns, .. } => {
                *first_ns *= times;
                *latency_ns *= times;
            }
            Kind::Spinning(spinning) => {
                spinning.seek_min_ns *= times;
                spinning.seek_max_ns *= times;
                spinning.turn_ns *= times;
                spinning.bytes_per_second /= times;
            }
        }
        Ok(self)
    }

    /// The same disk with another latency; only the profiles with one fixed latency have it.
    pub fn with_latency(mut self, nanoseconds: u64) -> Result<Profile> {
        match &mut self.kind {
            Kind::Fixed { latency_ns, .. }
            | Kind::Names { latency_ns, .. }
            | Kind::Capped { latency_ns, .. } => *latency_ns = nanoseconds,
            _ => bail!(
                "the profile '{}' has no single latency to change; use nvme, cloud, gp3 or net",
                self.name
            ),
        }
        Ok(self)
    }

    /// The same disk with another number of requests served at once.
    pub fn with_parallel(mut self, count: usize) -> Result<Profile> {
        match &mut self.kind {
            Kind::Fixed { parallel, .. } | Kind::Names { parallel, .. } | Kind::Capped { parallel, .. }
                if count > 0 =>
            {
                *parallel = count;
            }
            _ => bail!(
                "the profile '{}' cannot serve {count} requests at once; use nvme, cloud, gp3 or net and 1 or more",
                self.name
            ),
        }
        Ok(self)
    }
}

/// `NAME` and the number behind the last `mark`, where there is one: "array4x3" is ("array4", 3).
fn split_number(name: &str, mark: char) -> (&str, Option<u64>) {
    match name.rsplit_once(mark).and_then(|(base, number)| Some((base, number.parse().ok()?))) {
        Some((base, number)) => (base, Some(number)),
        None => (name, None),
    }
}

/// One line for each profile, and how a name is varied.
pub fn list() -> String {
    let plain = KNOWN.iter().map(|(name, what)| format!("  {name:<8} {what}\n"));
    let varied = [
        ("NAMExN", "the same, N times as slow (array4x3)"),
        ("NAME@N", "the same, N requests at once (cloud@8); not the spinning ones"),
    ];
    plain.chain(varied.map(|(name, what)| format!("  {name:<8} {what}\n"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_name_exists() {
        for (name, _) in KNOWN {
            assert_eq!(Profile::by_name(name).unwrap().name, name);
        }
    }

    #[test]
    fn an_unknown_name_fails_with_the_list() {
        let message = Profile::by_name("floppy").unwrap_err().to_string();
        for (name, _) in KNOWN {
            assert!(message.contains(name), "{message}");
        }
    }

    #[test]
    fn names_are_varied() {
        let kind = |name: &str| Profile::by_name(name).map(|profile| profile.kind);
        assert_eq!(kind("cloudx3").unwrap(), Kind::Fixed { latency_ns: 3_000_000, parallel: 64 });
        assert_eq!(kind("cloudx3@8").unwrap(), Kind::Fixed { latency_ns: 3_000_000, parallel: 8 });
        let Kind::Spinning(slow) = kind("array4x9").unwrap() else { panic!("array4 spins") };
        assert_eq!((slow.turn_ns, slow.disks), (99_999_999, 4));
        assert_eq!(Profile::by_name("array4x9").unwrap().name, "array4x9");
        for wrong in ["nativex2", "array4@8", "cloudx0", "cloud@0", "cloudx", "x3"] {
            assert!(kind(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn spinning_disks_have_no_single_latency() {
        assert!(Profile::by_name("array4").unwrap().with_latency(1).is_err());
        assert!(Profile::by_name("cloud").unwrap().with_latency(1).is_ok());
    }
}
