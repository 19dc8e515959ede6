//! A trace as it is read: docs/trace.md says what each record means. What is not known is passed
//! over.

use serde::Deserialize;
use std::io::Read;

/// The layout that is read.
const VERSION: u64 = 1;

/// No trace of ours is larger.
const MAX_BYTES: u64 = 512 << 20;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Trace {
    #[serde(rename = "traceEvents")]
    pub records: Vec<Record>,
    #[serde(rename = "otherData")]
    about: Option<About>,
    pub runahead: Closing,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct About {
    version: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Closing {
    pub complete: bool,
    pub elapsed_ns: u64,
    pub lost_events: u64,
    pub left_out_events: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Record {
    pub ph: String,
    pub name: String,
    pub pid: u64,
    pub tid: u64,
    /// Microseconds, as are those of `dur`.
    pub ts: f64,
    pub dur: f64,
    pub args: Arguments,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Arguments {
    pub name: Option<String>,
    pub value: f64,
    pub ended: Option<String>,
    pub call: Option<String>,
}

impl Trace {
    /// Reads one to its end; the error is one line.
    pub fn read(from: impl Read) -> Result<Trace, String> {
        let mut text = Vec::new();
        from.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
        if text.len() as u64 > MAX_BYTES {
            return Err(format!("it is larger than {} MB, which no trace is", MAX_BYTES >> 20));
        }
        if text.iter().all(u8::is_ascii_whitespace) {
            return Err("it is empty: the disk was full".to_owned());
        }
        let trace: Trace = serde_json::from_slice(&text).map_err(|error| match error.is_eof() {
            true => "it is cut short".to_owned(),
            false => format!("it is no trace ({})", error.to_string().replace(char::is_control, " ")),
        })?;
        match trace.about.as_ref().map(|about| about.version) {
            Some(VERSION) => Ok(trace),
            Some(other) if other > VERSION => {
                Err(format!("it is a trace of version {other}, and this Runahead reads version {VERSION}"))
            }
            _ => Err("it is no trace of Runahead's (it has no version)".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_trace_is_one_clear_line() {
        let why = |text: &[u8]| Trace::read(text).expect_err("no trace");
        let whole = br#"{"otherData":{"version":1},"traceEvents":[{"ph":"X","ts":1.5}],"runahead":{}}"#;
        assert_eq!(Trace::read(&whole[..]).unwrap().records[0].ts, 1.5);
        for cut in 2..whole.len() {
            assert_eq!(why(&whole[..cut]), "it is cut short", "{cut} bytes");
        }
        assert!(why(b"").contains("empty"));
        assert!(why(b"hello").contains("no trace"));
        assert!(why(br#"{"traceEvents":[]}"#).contains("no version"));
        assert!(
            why(br#"{"otherData":{"version":2}}"#).contains("version 2, and this Runahead reads version 1")
        );
        assert!(why(br#"{"otherData":{"version":1},"traceEvents":[7]}"#).contains("no trace"));
    }
}
