//! The end-to-end suite. See `tests/README.md` for how a test is written and run.

mod attendant;
mod calls;
mod canaries;
mod contract;
mod copying;
mod cousins;
mod doctor;
mod enabled;
mod faults;
mod forked;
mod given_back;
mod guests;
mod hostile;
mod in_order;
mod inserted;
mod installation;
mod large_program;
mod memory;
mod mirror_ways;
mod model;
mod musl;
mod names;
mod own_runs;
mod profiles;
mod programs;
mod progress;
mod releases;
mod remembered;
mod rooms;
mod sampled;
mod security;
mod servers;
mod shared_gather;
mod slow_disk;
mod small_maps;
mod starts;
mod stepping;
mod suite;
mod swap;
mod threads;
mod told;
mod torture;
mod traced;
mod unchecked;
mod untold;

use libtest_mimic::Arguments;
use runahead_end_to_end::locate;

/// As from nohup, or from a script's background job, but always: what the suite was started with must not reach the
/// programs that it starts (`contract::exit statuses pass through` ends some by these signals). It keeps minding the
/// signals that people send it.
fn badly_started() {
    // SAFETY: no handler is involved, and nothing here sends these signals or waits for them.
    unsafe {
        libc::signal(libc::SIGUSR1, libc::SIG_IGN);
        libc::signal(libc::SIGSYS, libc::SIG_IGN);
    }
}

/// Descriptors that the suite was started with would be there in the programs too, where some count theirs (started under flock,
/// which hands one down, two tests failed).
fn without_descriptors_of_others() {
    // SAFETY: nothing has been opened here yet.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
}

fn main() {
    without_descriptors_of_others();
    let arguments = Arguments::from_args();
    badly_started();
    locate::set_paths(env!("CARGO_BIN_EXE_supervisor"), env!("CARGO_TARGET_TMPDIR"));
    let mut suite = suite::Suite::default();
    guests::add(&mut suite);
    given_back::add(&mut suite);
    programs::suite(&mut suite);
    releases::add(&mut suite);
    musl::add(&mut suite);
    contract::add(&mut suite);
    attendant::add(&mut suite);
    installation::add(&mut suite);
    starts::add(&mut suite);
    threads::add(&mut suite);
    shared_gather::add(&mut suite);
    torture::add(&mut suite);
    stepping::add(&mut suite);
    faults::add(&mut suite);
    sampled::add(&mut suite);
    in_order::add(&mut suite);
    memory::add(&mut suite);
    mirror_ways::add(&mut suite);
    names::add(&mut suite);
    remembered::add(&mut suite);
    profiles::add(&mut suite);
    untold::add(&mut suite);
    unchecked::add(&mut suite);
    copying::add(&mut suite);
    cousins::add(&mut suite);
    calls::add(&mut suite);
    small_maps::add(&mut suite);
    doctor::add(&mut suite);
    enabled::add(&mut suite);
    told::add(&mut suite);
    traced::add(&mut suite);
    progress::add(&mut suite);
    large_program::add(&mut suite);
    swap::add(&mut suite);
    hostile::add(&mut suite);
    inserted::add(&mut suite);
    own_runs::add(&mut suite);
    rooms::add(&mut suite);
    servers::add(&mut suite);
    security::add(&mut suite);
    forked::add(&mut suite);
    model::add(&mut suite);
    canaries::add(&mut suite);
    let listing = arguments.list;
    if !listing {
        suite.tell_skips();
    }
    let conclusion = libtest_mimic::run(&arguments, suite.into_trials());
    if !listing {
        suite::tell_slowest();
        eprintln!("{}", locate::runs_summary());
    }
    // A failed run's directory is kept: it is what one looks at next.
    if !conclusion.has_failed() {
        let _ = std::fs::remove_dir_all(locate::scratch());
    }
    conclusion.exit()
}
