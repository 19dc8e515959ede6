//! `stepper PLAN.json`: carries out a plan of the library's `stepping`, and prints its report.
//!
//! `stepper --active COMMAND…` runs a command whose agent never calms down.

use runahead_end_to_end::stepping::{Plan, step};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// `abi::environment::flags::ALWAYS_ACTIVE`.
const ALWAYS_ACTIVE: u32 = 4;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("--active") => run_active(&words[1..]),
        Some(path) => {
            let text = std::fs::read_to_string(path).expect("the plan is readable");
            let plan: Plan = serde_json::from_str(&text).expect("the plan is well formed");
            let report = step(&plan).expect("the guest could be stepped through");
            println!("{}", serde_json::to_string(&report).expect("a report is always expressible"));
        }
        None => panic!("usage: stepper PLAN.json"),
    }
}

/// The session's third field holds the flags.
fn run_active(words: &[String]) {
    let mut command = Command::new(&words[0]);
    if let Ok(session) = std::env::var("RUNAHEAD_SESSION") {
        let mut fields: Vec<String> = session.split(':').map(str::to_owned).collect();
        let flags: u32 = fields[2].parse().expect("the session's flags are a number");
        fields[2] = (flags | ALWAYS_ACTIVE).to_string();
        command.env("RUNAHEAD_SESSION", fields.join(":"));
    }
    panic!("{}: {}", words[0], command.args(&words[1..]).exec());
}
