//! A check that has never failed is worth nothing. Each canary runs a test of the suite under a
//! stand-in for Runahead that breaks just one property, and demands that the test fails, and says why.

use crate::suite::Suite;
use crate::{contract, programs, starts};
use runahead_end_to_end::Verdict;
use runahead_end_to_end::guest::{Guest, stand_in};
use runahead_end_to_end::locate::Runahead;
use runahead_end_to_end::scenario::{COLD, HARNESS_FAILED, Scenario};
use runahead_end_to_end::supervise::{Harm, Stdin, Torture};
use std::time::Duration;

/// Property broken, the guest's test that must notice, what its complaint must contain, and what the
/// machine must have.
const GUEST_CANARIES: &[(&str, &str, &str, &[&str])] = &[
    ("descriptor", "observe::streams", "descriptor 7", &[]),
    ("low-descriptor", "observe::streams", "descriptor 3", &[]),
    ("ignored-signal", "observe::streams", "signal 12: ignored", &[]),
    ("blocked-signal", "observe::streams", "signal 12: blocked", &[]),
    ("pending-signal", "observe::streams", "signal 12: pending", &[]),
    ("child", "observe::streams", "children: some", &[]),
    ("silent-child", "observe::streams", "wait4 with __WALL: 0", &[]),
    ("waited-child", "observe::streams", "children have used: something", &[]),
    ("interval-timer", "observe::streams", "timer 0: 1", &[]),
    ("umask", "observe::streams", "umask 77", &[]),
    ("nice", "observe::streams", "nice ", &[]),
    ("scheduling", "observe::streams", "policy 3", &[]),
    ("affinity", "observe::streams", "processors 1", &[]),
    ("directory", "observe::streams", "ending", &[]),
    ("limit", "observe::streams", "limit 7", &[]),
    ("personality", "observe::streams", "personality 40000", &[]),
    ("no-new-privileges", "observe::streams", "no_new_privs 1", &[]),
    ("seccomp", "observe::streams", "seccomp 2", &[]),
    ("out-of-memory-score", "observe::streams", "oom_score_adj 500", &[]),
    ("environment", "observe::streams", "environment: EXTRA", &[]),
    ("argument", "observe::streams", "argument: another-name", &[]),
    ("another-process", "observe::streams", "leads its group: 0", &[]),
    ("terminal", "job_control", "stdout", &[]),
    ("output", "observe::streams", "something of Runahead", &[]),
    ("error-output", "observe::streams", "stderr", &[]),
    ("file", "observe::streams", "file extra: only under Runahead", &[]),
    ("changed-file", "observe::streams", "f0600", &[]),
    ("touched-file", "observe::streams", "Fresh", &[]),
    ("status", "observe::streams", "ending: alone Exited(0), under Exited(1)", &[]),
    ("stop", "observe::streams", "stopped by signals", &[]),
    ("hang", "observe::streams", "TimedOut", &[]),
    ("left-file", "observe::streams", "temporary files left behind", &[]),
    ("left-shared-memory", "observe::streams", "temporary files left behind", &["root"]),
    ("left-process", "observe::streams", "processes left behind", &[]),
    ("held-output", "observe::streams", "output held open", &[]),
    ("held-descriptors", "locks", "ending", &[]),
    ("held-descriptors", "lease", "lease: -1", &[]),
    ("held-descriptors", "pipe_ends", "hung up: 0", &[]),
    ("handler", "observe::streams", "signal 12: handled", &[]),
    ("alternate-stack", "observe::streams", "alternate stack", &[]),
    ("thread", "observe::streams", "threads: 2", &[]),
    ("not-dumpable", "observe::streams", "dumpable 0", &[]),
    ("rounding", "observe::streams", "mxcsr 7f80", &[]),
    ("errno", "observe::streams", "errno after successful calls: 11", &[]),
    ("wrong-bytes", "observe::streams", "hash", &[]),
    ("heap", "heap_untouched", "stdout", &[]),
    ("short-pread", "half_cold::pread", "ending", &[]),
    ("short-read", "half_cold::read", "ending", &[]),
    ("seeking", "half_cold::read", "ending", &[]),
    ("seeking", "fork_shared::fork", "position", &[]),
    ("torn-position", "threads_one_descriptor::read", "ending", &[]),
    ("seeking", "copies::range", "ending", &[]),
    ("seeking", "copies::send-offset", "ending", &[]),
    ("seeking", "copies::positions", "stdout", &[]),
    ("short-copy", "copies::full", "stdout", &[]),
    ("short-copy", "copies::errors", "stdout", &[]),
    ("restarted", "eintr::plain", "handled 1", &[]),
    ("fault-code", "read_matrix::libc", "errno 22", &[]),
    ("raw-result", "read_matrix::inline", "errno 22", &[]),
    ("short-pread", "read_model::1::plain", "lines differ", &[]),
    ("fault-code", "read_model::1::plain", "lines differ", &[]),
    ("seeking", "read_model::1::plain", "lines differ", &[]),
    ("wrong-bytes", "read_model::1::plain", "lines differ", &[]),
    ("not-cancelled", "cancel::deferred-pipe", "TimedOut", &[]),
    ("not-cancelled", "cancel_one_site::pipe", "TimedOut", &["release trixie libc6"]),
    ("stack-use", "coroutines", "signal: 11", &[]),
    ("signal", "observe::streams", "signal: 29", &[]),
    ("early-file", "effects_ahead::create", "seen early", &[]),
    ("early-file", "effects_ahead::copies", "seen early", &[]),
    ("early-fifo", "effects_ahead::fifo", "seen early", &[]),
    ("low-memory", "own_mappings", "at 10000: 0", &[]),
    ("beyond-the-end", "readable", "signal 7 0 pages into", &[]),
    ("forbidden-call", "own_seccomp::filter", "signal: 31", &[]),
    ("addresses", "limited::tight", "is ours: 0", &[]),
    ("red-zone", "red_zone", "ending", &[]),
    ("register", "registers::general", "r12 changed", &[]),
    ("flags", "registers::flags", "flags", &[]),
    ("sse-register", "registers_sse", "xmm11 changed", &[]),
    ("avx-register", "registers_avx", "ymm3 changed", &["flag avx"]),
    ("blank-pages", "faults_gather", "gather", &[]),
    ("blank-pages", "faults_vectors::read", "sum", &["flag avx2"]),
    ("blank-pages", "memory_pressed::gather::300::0", "walk", &[]),
    ("fault-handler", "faults_gather", "errno 11", &[]),
    ("stray-write", "faults_gather", "memory", &[]),
    ("mapping-descriptor", "faults_gather", "5 descriptors", &[]),
    ("thread", "faults_gather", "2 threads", &[]),
    ("mapping-descriptor", "faults_mapped", "descriptors", &[]),
    ("thread", "faults_mapped", "2 threads", &[]),
    ("blank-pages", "faults_mapped", "shared", &[]),
    ("unshared-mapping", "faults_mapped", "private", &[]),
    ("not-inherited", "faults_mapped", "child b", &[]),
    ("stale-mapping", "faults_mapped", "replaced", &[]),
    ("zeros-behind-the-end", "faults_mapped", "bus at", &[]),
    ("unshared-mapping", "faults_nameless", "columns", &[]),
    ("not-inherited", "faults_nameless", "child b", &[]),
    ("opened-beside", "beside::watched", "others 0", &[]),
    ("read-beside", "beside::plain", "readers of the pipe", &[]),
    ("unblocked-signals", "inherited::look", "SigBlk", &[]),
    ("discarded-signal", "inherited::look", "pending 13", &[]),
    ("reaped-child", "inherited::look", "children", &[]),
    ("umask", "inherited::look", "Umask", &[]),
    ("child", "reaper::waits", "TimedOut", &[]),
    ("held-descriptors", "gives_back::space", "not back", &["root"]),
    ("held-descriptors", "gives_back::nameless", "not back", &["root"]),
    ("held-descriptors", "gives_back::replaced", "not back", &["root"]),
    ("memory-reader", "user_faults::seen", "of 64 pages", &["root"]),
    ("memory-reader", "user_faults::shared", "of 64 pages", &["root"]),
    ("vector-control", "registers_mask_x87", "mxcsr changed", &["flag avx512bw"]),
    ("stack-use", "small_stacks::512", "bytes below the stack changed", &[]),
    ("stack-use", "small_stacks::2048", "bytes below the stack changed", &[]),
    ("moved-in", "unmapped_hole::early::munmap::fixed::1048576", "changed: 1", &[]),
    ("moved-in", "unmapped_hole::early::munmap::noreplace::1048576", "errno 17", &[]),
    ("moved-in", "unmapped_hole::early::mremap::noreplace::1048576", "errno 17", &[]),
    ("moved-in", "unmapped_hole::early::munmap::file::1048576", "file shared.bin", &[]),
    ("written-code", "shared_code::shared", "as it was: 0", &[]),
    ("written-code", "shared_code::memory-file", "as it was: 0", &[]),
    ("left-mapping", "library_comes_and_goes::sites.so", "more memory: 1", &[]),
    ("unwinding", "unwinding::deferred", "destructors skipped", &[]),
    ("unwinding", "unwinding::asynchronous", "destructors skipped", &[]),
    ("unwinding", "unwinding::exception", "terminate called", &[]),
    ("unwinding", "unwinding::exception-alternate-stack", "terminate called", &[]),
    ("unwinding", "unwinding::profiler", "do not reach main", &[]),
    ("unforked", "fork_in_handler::fork", "did not end well", &[]),
    ("unforked", "fork_in_handler::fork-and-go-on", "did not end well", &[]),
    ("forbidden-call", "filters::unseen::kill", "signal: 31", &[]),
    ("forbidden-call", "filters::constant::kill", "signal: 31", &[]),
    ("forbidden-call", "filters::together::unseen", "signal: 31", &[]),
    ("forbidden-call", "unwinding_filter::later", "signal: 31", &["root"]),
    ("forbidden-call", "dispatched::library", "from libraries", &[]),
    ("thread-pointer", "foreign_threads::zero", "signal: 11", &[]),
    ("thread-pointer", "foreign_threads::unreadable", "signal: 11", &[]),
    ("brief-descriptor", "lowest_descriptor::sites.so", "was taken: ", &[]),
    ("another-tracer", "own_tracer", "whom it let: 1", &["file /proc/sys/kernel/yama/ptrace_scope"]),
    ("growing-helper", "many_files", "more descriptors: 1", &[]),
    ("red-zone", "go_small_stacks", "ending", &["go"]),
    ("red-zone", "go_readers::8", "ending", &["go"]),
];

type Check = fn(&Runahead) -> Verdict;

/// Property broken, and the contract's check that must notice.
const CONTRACT_CANARIES: &[(&str, &str, Check)] = &[
    ("not-found", "exit code 127", contract::not_found),
    ("not-found", "exit code 126", contract::not_executable),
    ("unwritable-report", "unwritable report", contract::unwritable_report),
    ("report", "report's form", contract::report_is_json),
    ("statistics", "statistics", contract::statistics),
    ("status", "exit statuses", contract::exit_statuses),
    ("another-process", "process kept", contract::same_process),
    ("not-off", "switched off", contract::switched_off),
    ("last-argument", "arguments", contract::arguments),
    ("error-output", "verbose", |runahead| match contract::verbose(runahead) {
        // Words on standard error are what --verbose is for; this canary must stay silent.
        Ok(()) => Err("rightly not minded".to_owned()),
        Err(why) => Err(format!("wrongly minded: {why}")),
    }),
];

pub fn add(suite: &mut Suite) {
    for (property, test, complaint, needs) in GUEST_CANARIES.iter().copied() {
        let name = format!("canary::the harness notices {property} by {test}");
        suite.add(name, needs.iter().copied(), move || guest_canary(property, test, complaint));
    }
    for (property, what, check) in CONTRACT_CANARIES.iter().copied() {
        let name = format!("canary::the contract notices {property} by {what}");
        suite.add_plain(name, move || {
            let verdict = check(&stand_in(property)?);
            must_fail(verdict, if property == "error-output" { "rightly" } else { "" })
        });
    }
    suite.add_plain("canary::the torture reaches Runahead's helpers", torture_canary);
    suite.add_plain("canary::a helper that leaves in time is not minded", harmless_helper);
    suite.add_plain("canary::a stream that was closed must stay closed", || {
        let line = "exec \"$@\" <&-";
        must_fail(starts::started("canary closed input", line, &stand_in("reopened-stream")?), "descriptor 0")
    });
    suite.add_plain("canary::shared standard input is compared", shared_stdin);
    suite.add_plain("canary::two tests with one directory are noticed", one_directory);
}

/// The verdict must be a complaint that contains the given words, and about the command.
fn must_fail(verdict: Verdict, complaint: &str) -> Verdict {
    match verdict {
        Ok(()) => Err("the broken property was not noticed".to_owned()),
        Err(why) if why.contains("the run alone, our model, is wrong") => Err(why),
        Err(why) if why.contains(HARNESS_FAILED) => Err(why),
        Err(why) if why.contains(complaint) => Ok(()),
        Err(why) => Err(format!("noticed, but without '{complaint}' in the complaint: {why}")),
    }
}

fn find(test: &str) -> Result<Scenario, String> {
    for guest in Guest::all()? {
        for run in guest.runs() {
            if run.name == format!("guest::{test}") {
                return guest.scenario(&run);
            }
        }
    }
    Err(format!("there is no guest test '{test}'"))
}

fn guest_canary(property: &str, test: &str, complaint: &str) -> Verdict {
    // Only who is to hang is not worth waiting for, however busy the machine is.
    let seconds = if complaint == "TimedOut" { 6 } else { 60 };
    let mut scenario = find(test)?.modes([COLD]).timeout(Duration::from_secs(seconds));
    scenario.name = format!("canary {property} {test}");
    must_fail(scenario.check(&stand_in(property)?), complaint)
}

/// Kills must hit helpers: here the program's life hangs on one.
fn torture_canary() -> Verdict {
    let scenario = |name: &str| {
        Scenario::new(format!("canary {name}"), ["bash", "-c", "cat tree/*/*.txt | cksum; sleep 0.3"])
            .prepare(programs::files)
            .modes([COLD])
    };
    let dependent = stand_in("needs-its-helper")?;
    scenario("left in peace").check(&dependent)?;
    let torture = Torture { harm: Harm::Kill, seed: 1, longest_pause_us: 5000 };
    must_fail(scenario("tortured").torture(torture).check(&dependent), "signal: 15")
}

fn harmless_helper() -> Verdict {
    let scenario = find("observe::streams")?.modes([COLD]);
    let outcome =
        scenario.run(&COLD, &stand_in("nothing-but-a-helper")?).map_err(|error| error.to_string())?;
    if !outcome.report.helpers_seen.iter().any(|name| name == "runahead-helper") {
        return Err(format!("the helper was not seen: {:?}", outcome.report.helpers_seen));
    }
    let mut scenario = find("observe::streams")?.modes([COLD]);
    scenario.name = "canary harmless helper".to_owned();
    scenario.check(&stand_in("nothing-but-a-helper")?)
}

fn shared_stdin() -> Verdict {
    let scenario = Scenario::shell("canary shared stdin", "cksum tree/noise.bin > sum; ($UNDER head -n 1; cat) < sum; ($UNDER bash -c 'read line; echo $line'; cat)")
        .prepare(programs::files)
        .stdin(Stdin::File("tree/folder-1/file-1.txt".into()))
        .modes([COLD]);
    must_fail(scenario.check(&stand_in("seeking")?), "stdout")
}

/// Each run begins by removing what lies in its directory, be it another's that is still running.
fn one_directory() -> Verdict {
    let none = stand_in("none")?;
    let run = || Scenario::new("canary one directory", ["sleep", "1"]).run(&COLD, &none).map(drop);
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(run);
        (run(), first.join())
    });
    let second = second.map_err(|_| "a run panicked")?;
    match (first, second) {
        (Ok(()), Err(error)) | (Err(error), Ok(())) => must_fail(Err(error.to_string()), "two tests at once"),
        both => Err(format!("one of both runs has to be refused: {both:?}")),
    }
}
