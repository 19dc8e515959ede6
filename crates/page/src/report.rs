//! A report as it is read: docs/report.md says what each field means. A field that is missing counts nothing.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;

/// The layout that is read.
pub const VERSION: u64 = 1;

/// A report has some 3 KB, and its command's words.
const MOST_BYTES: u64 = 64 << 20;

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default)]
pub struct Report {
    pub command: Vec<String>,
    pub elapsed_ns: u64,
    pub plainly_because: Option<String>,
    pub left_because: Option<String>,
    pub speculated: bool,
    pub program: Option<Program>,
    pub counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default)]
pub struct Program {
    pub processor_ns: u64,
    pub queued_ns: u64,
    pub major_faults: u64,
    pub device_bytes: u64,
    pub read_ahead_bytes: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default)]
pub struct Counts {
    pub processes: u64,
    pub reads: u64,
    pub read_bytes: u64,
    pub reads_hinted: u64,
    pub read_bytes_hinted: u64,
    pub full_prefetches: u64,
    pub partial_prefetches: u64,
    pub behind_a_server: bool,
    pub stalls: u64,
    pub stall_ns: u64,
    pub saved_ns: u64,
    pub names: u64,
    pub name_stalls: u64,
    pub name_stall_ns: u64,
    pub names_looked_ahead: u64,
    pub companions: u64,
    pub companions_used: u64,
    pub posts: u64,
    pub post_ns: u64,
    pub post_ns_median: u64,
    pub holds: u64,
    pub hold_ns: u64,
    pub mismatches: u64,
    pub lags: u64,
    pub faults: Faults,
    pub memory: Memory,
    pub disks: Disks,
    pub remembered: Remembered,
    pub speculator: Speculator,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default)]
pub struct Faults {
    pub unseen_because: Option<String>,
    pub seen_by: Option<String>,
    pub swap_left_because: Option<String>,
    pub watched: u64,
    pub seen: u64,
    pub prefetched_pages: u64,
    pub useful_pages: u64,
    pub posts: u64,
    pub foretold_pages: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default)]
pub struct Memory {
    pub stalls_removed: u64,
    pub stalls_added: u64,
    pub pauses: u64,
    pub paused_ns: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default)]
pub struct Disks {
    pub looks: u64,
    pub others: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default)]
pub struct Remembered {
    pub files: u64,
    pub bytes: u64,
    pub names: u64,
    pub changed: u64,
    pub used: u64,
    pub kept: u64,
    pub wait_ns: u64,
    pub left_because: Option<String>,
    pub profile_because: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default)]
pub struct Speculator {
    pub refused_because: Option<String>,
    pub syncs: u64,
    pub sync_ns: u64,
    pub pages_filled: u64,
    pub pages_refreshed: u64,
    pub pages_most: u64,
    pub reads: u64,
    pub read_bytes: u64,
    pub prefetches: u64,
    pub prefetched_pages: u64,
    pub unused_pages: u64,
    pub names_noted: u64,
    pub system_calls: u64,
    pub trapped_calls: u64,
    pub signals: u64,
    pub processor_ns: u64,
    pub endings: Endings,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default)]
pub struct Endings {
    pub overtaken: u64,
    pub cancelled: u64,
    pub system_call: u64,
    pub fault: u64,
    pub time: u64,
    pub exit: u64,
    pub memory: u64,
    pub descriptor: u64,
    pub waits: u64,
    pub scan: u64,
    pub released: u64,
    pub names: u64,
    pub turn: u64,
    pub system_calls: BTreeMap<String, u64>,
}

impl Report {
    /// Reads one to its end, and gives the document besides; the error is one line.
    pub fn read(from: impl Read) -> Result<(Report, Value), String> {
        let mut text = Vec::new();
        from.take(MOST_BYTES + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
        if text.len() as u64 > MOST_BYTES {
            return Err(format!("it is larger than {} MB, which no report is", MOST_BYTES >> 20));
        }
        if text.iter().all(u8::is_ascii_whitespace) {
            return Err("it is empty: the command has not ended, or the disk was full".to_owned());
        }
        let value: Value = serde_json::from_slice(&text).map_err(|error| match error.is_eof() {
            true => "it is cut short".to_owned(),
            false => format!("it is no report ({})", one_line(&error)),
        })?;
        match value.get("version").map(Value::as_u64) {
            Some(Some(VERSION)) => {}
            Some(Some(other)) => {
                return Err(format!(
                    "it is a report of version {other}, and this Runahead reads version {VERSION}"
                ));
            }
            _ => return Err("it is no report (it has no version)".to_owned()),
        }
        let report =
            Report::deserialize(&value).map_err(|error| format!("it is no report ({})", one_line(&error)))?;
        Ok((report, value))
    }
}

fn one_line(error: &serde_json::Error) -> String {
    error.to_string().replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &[u8]) -> String {
        Report::read(text).expect_err("no report")
    }

    /// The manual's example is held to what the host writes by a test of the host's.
    const MANUAL: &str = include_str!("../../../docs/report.md");

    /// Fields below `read` that are not among those below `written`, by their paths.
    fn missing(read: &Value, written: &Value, path: &str) -> Vec<String> {
        let Value::Object(fields) = read else { return Vec::new() };
        let look = |(name, value): (&String, &Value)| match written.get(name) {
            None => vec![format!("{path}.{name}")],
            Some(inner) => missing(value, inner, &format!("{path}.{name}")),
        };
        fields.iter().flat_map(look).collect()
    }

    /// A field of another name counts nothing, and nobody would notice.
    #[test]
    fn all_that_is_read_is_written() {
        let example = MANUAL.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let written: Value = serde_json::from_str(example).unwrap();
        let whole = Report { program: Some(Program::default()), ..Report::default() };
        let read = serde_json::to_value(whole).unwrap();
        assert_eq!(missing(&read, &written, ""), [""; 0]);
    }

    #[test]
    fn what_is_no_report_is_one_clear_line() {
        let whole = br#"{"version": 1, "command": ["a"], "counts": {"reads": 7}}"#;
        assert_eq!(Report::read(&whole[..]).unwrap().0.counts.reads, 7);
        for cut in 2..whole.len() {
            assert_eq!(why(&whole[..cut]), "it is cut short", "{cut} bytes");
        }
        assert!(why(b"").contains("empty"));
        assert!(why(b"hello").contains("no report"));
        assert!(why(b"[1]").contains("no version"));
        assert!(why(br#"{"version": 2}"#).contains("version 2, and this Runahead reads version 1"));
        assert!(why(br#"{"version": 1, "elapsed_ns": "x"}"#).contains("no report"));
        let huge = std::io::repeat(b' ').take(MOST_BYTES + 5);
        assert!(Report::read(huge).expect_err("huge").contains("larger than 64 MB"));
    }
}
