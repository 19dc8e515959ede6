//! The disks, as slowdisk's model has them, and what may go wrong with one meanwhile.

use slowdisk::model::Model;
use slowdisk::profile::{Kind, Profile};

/// The disks that recorded programs are replayed on: this machine's own kind, and those of the bench. The
/// local one is quick and serves many at once; `hydrating` is a volume that is made of a snapshot.
pub const DISKS: [&str; 6] = ["local", "cloud", "array4", "disk1", "gp3", "hydrating"];

/// Bytes of a disk on whose platter a program's files are spread.
const SPREAD: u64 = 4 << 30;

/// A disk.
pub struct Device {
    kind: Kind,
    model: Option<Model>,
    troubles: Vec<Trouble>,
}

/// From one time to another the disk is different, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trouble {
    /// Answers take so many times as long, in hundredths.
    Pace { from: u64, to: u64, percent: u64 },
    /// It answers nothing.
    Silence { from: u64, to: u64 },
}

impl Device {
    /// One of slowdisk's profiles, or of [`DISKS`].
    pub fn named(name: &str) -> Result<Device, String> {
        let kind = match name {
            "local" => Kind::Fixed { latency_ns: 80_000, parallel: 64 },
            "hydrating" => Kind::Hydrating {
                first_ns: 40_000_000,
                block: 512 << 10,
                latency_ns: 1_000_000,
                parallel: 64,
            },
            _ => Profile::by_name(name).map_err(|error| error.to_string())?.kind,
        };
        Ok(Device::of(kind))
    }

    pub fn of(kind: Kind) -> Device {
        Device { kind, model: None, troubles: Vec::new() }
    }

    pub fn with(mut self, troubles: Vec<Trouble>) -> Device {
        self.troubles = troubles;
        self
    }

    /// When a request for `length` bytes at `offset` that arrives at `now` is answered.
    pub fn admit(&mut self, now: u64, offset: u64, length: u64) -> u64 {
        let model = self.model.get_or_insert_with(|| Model::new(&self.kind, SPREAD));
        let mut answered = model.admit(now, offset, length);
        let pace = self.troubles.iter().find_map(|trouble| match *trouble {
            Trouble::Pace { from, to, percent } if (from..to).contains(&now) => Some(percent),
            _ => None,
        });
        if let Some(percent) = pace {
            answered = now.saturating_add((answered - now).saturating_mul(percent) / 100);
        }
        for trouble in &self.troubles {
            if let Trouble::Silence { from, to } = *trouble
                && (from..to).contains(&answered)
            {
                answered = to;
            }
        }
        answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_disk_is_there_and_answers() {
        for name in DISKS {
            let mut disk = Device::named(name).unwrap();
            assert!(disk.admit(5, 1 << 20, 4096) > 5, "{name}");
        }
        assert!(Device::named("floppy").is_err());
    }

    #[test]
    fn troubles_last_as_long_as_they_do() {
        let slow = Trouble::Pace { from: 10, to: 20, percent: 10_000 };
        let mut disk =
            Device::named("cloud").unwrap().with(vec![slow, Trouble::Silence { from: 50, to: 2_000_000 }]);
        assert_eq!(disk.admit(15, 0, 4096), 100_000_015);
        assert_eq!(disk.admit(30, 0, 4096), 2_000_000);
        assert_eq!(disk.admit(1_500_000, 0, 4096), 2_500_000);
    }
}
