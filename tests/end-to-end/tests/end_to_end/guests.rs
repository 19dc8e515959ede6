//! Every guest program in `tests/guests`, alone and under Runahead.

use crate::suite::Suite;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::locate::Runahead;
use std::sync::Arc;

pub fn add(suite: &mut Suite) {
    let guests = match Guest::all() {
        Ok(guests) => guests,
        Err(complaint) => {
            return suite.add_plain("guest::all guests can be read", move || Err(complaint));
        }
    };
    // Without glibc's loader the agent is put in at the program's first instruction, and all is to be as with
    // it.
    let otherwise: Vec<_> = guests
        .iter()
        .flat_map(|guest| [guest.statically(), guest.with_musl(), guest.statically_with_musl()])
        .flatten()
        .map(Arc::new)
        .collect();
    for guest in guests.into_iter().chain(otherwise) {
        for run in guest.runs() {
            let guest = Arc::clone(&guest);
            suite.add(run.name.clone(), guest.needs(), move || {
                guest.scenario(&run)?.check(&Runahead::built()?)
            });
        }
    }
}
