//! On behalf of programs that nobody sees and that ask nobody before they give something back: what an agent
//! does otherwise before such a program begins (`agent::release::lets_all_go`).

use crate::futex::wake;
use runahead_abi::opened::{self, REPLAY_LONGEST_NS};
use runahead_abi::release::What::All;
use runahead_abi::release::{BELIEVED_NS, UNASKED_LONGEST_NS};
use runahead_abi::session::Header;
use runahead_kernel::process::monotonic_ns;
use runahead_remembered::replay::Words;
use std::sync::atomic::Ordering;
use std::time::Duration;

const AGAIN: Duration = Duration::from_micros(200);

/// What is on its way to be opened and is not to be any more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voids {
    All,
    Nothing,
}

/// The process stands still, or is not to be seen from now on. What is held is let go when this returns, or
/// has been waited for for as long as an agent would, and what earlier runs have opened is not opened any
/// more. Not from the host's loop, which is waited for.
pub(crate) fn lets_all_go(header: &'static Header, process: u32, voids: Voids) {
    opened::ends_replay(&header.remembering);
    let now = monotonic_ns();
    let since = match header.over_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => now,
        Err(since) => since.min(now),
    };
    let words = Words { remembering: &header.remembering, replaying: &header.replaying };
    words.settle(Duration::from_nanos(REPLAY_LONGEST_NS.saturating_sub(now - since)));
    header.unseen.note(process);
    if voids == Voids::All {
        header.releasing.begins_unasked();
    }
    let end = monotonic_ns().saturating_add(UNASKED_LONGEST_NS);
    header.releasing.begins(All, end.saturating_add(BELIEVED_NS));
    header.doorbell.fetch_add(1, Ordering::Release);
    wake(&header.doorbell);
    let host = [&header.host_nameless, &header.host_files, &header.host_places];
    while (header.holders.is_any() || host.iter().any(|holding| holding.is_any())) && monotonic_ns() < end {
        std::thread::sleep(AGAIN);
    }
    header.releasing.ends(All);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Session;
    use runahead_abi::session::remembering;

    #[test]
    fn what_is_held_is_waited_for_and_what_is_on_its_way_is_void() {
        let session = Session::create().unwrap();
        let header = session.share().header();
        let (releasing, places) = (&header.releasing, &header.host_places);
        assert!(places.begins(releasing, All, monotonic_ns));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while releasing.generation() == 0 {
                    std::thread::sleep(AGAIN);
                }
                std::thread::sleep(10 * AGAIN);
                places.ends();
            });
            lets_all_go(header, 7, Voids::All);
            assert!(!places.is_any());
        });
        assert!(!releasing.forbids(All, monotonic_ns) && releasing.generation() == 1);
        assert_eq!(header.remembering.load(Ordering::Relaxed), remembering::OVER);
        assert!(header.unseen.0.iter().any(|place| place.load(Ordering::Relaxed) == 7));
        // Who does not let go is not waited for for ever, and what was guessed may stay.
        assert!(places.begins(releasing, All, monotonic_ns));
        lets_all_go(header, 7, Voids::Nothing);
        assert!(places.is_any() && releasing.generation() == 1);
    }
}
