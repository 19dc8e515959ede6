//! On behalf of programs that nobody sees and that ask nobody before they give something back: what an agent
//! does otherwise before such a program begins (`agent::release::lets_all_go`).

use crate::futex::wake;
use runahead_abi::opened;
use runahead_abi::release::What::All;
use runahead_abi::session::Header;
use runahead_kernel::process::monotonic_ns;
use runahead_remembered::replay::Words;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What earlier runs have opened may still be being opened so long after that was said to be over first.
const REPLAY_LONGEST: Duration = Duration::from_secs(1);

/// How long those who hold something are waited for.
const LONGEST: Duration = Duration::from_millis(20);

/// How long it is to be believed that somebody waits: past the next time that anybody looks.
const BELIEVED: Duration = Duration::from_secs(1);

const AGAIN: Duration = Duration::from_micros(200);

/// What is on its way to be opened and is not to be any more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voids {
    All,
    Nothing,
}

/// The process stands still, or is not to be seen from now on. What is held is let go when this returns, or has
/// been waited for for as long as an agent would, and what earlier runs have opened is not opened any more. Not from the host's loop, which is waited for.
pub(crate) fn lets_all_go(header: &'static Header, process: u32, voids: Voids) {
    opened::ends_replay(&header.remembering);
    let now = monotonic_ns();
    let since = match header.over_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => now,
        Err(since) => since.min(now),
    };
    let words = Words { remembering: &header.remembering, replaying: &header.replaying };
    words.settle(REPLAY_LONGEST.saturating_sub(Duration::from_nanos(now - since)));
    header.unseen.note(process);
    if voids == Voids::All {
        header.releasing.begins_unasked();
    }
    let until = monotonic_ns().saturating_add((LONGEST + BELIEVED).as_nanos() as u64);
    header.releasing.begins(All, until);
    header.doorbell.fetch_add(1, Ordering::Release);
    wake(&header.doorbell);
    let began = Instant::now();
    let host = [&header.host_nameless, &header.host_files, &header.host_places];
    while (header.holders.is_any() || host.iter().any(|holding| holding.is_any()))
        && began.elapsed() < LONGEST
    {
        std::thread::sleep(AGAIN);
    }
    header.releasing.ends(All);
}
