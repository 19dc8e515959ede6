//! `supervisor SPEC.json`: one watched run, see the library's `supervise`.

use runahead_end_to_end::supervise::{RunSpec, supervise};
use std::fs;

fn main() {
    let path = std::env::args_os().nth(1).expect("usage: supervisor SPEC.json");
    let text = fs::read_to_string(path).expect("the specification is readable");
    let spec: RunSpec = serde_json::from_str(&text).expect("the specification is well formed");
    let report = supervise(&spec).expect("the run could be set up");
    let text = serde_json::to_string(&report).expect("a report is always expressible");
    fs::write(&spec.report, text).expect("the report is writable");
}
