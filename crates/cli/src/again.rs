//! A program that an agent has had started anew, as a run of its own (`runahead_abi::environment::again`).

use runahead_abi::environment::again;
use runahead_host::{Beside, Limits, Options};

/// Whether an agent has started us in place of a program that was executed already.
pub fn is_again() -> bool {
    let mut words = runahead_host::arguments().skip(1);
    let word = words.next();
    word.is_some_and(|word| word.as_encoded_bytes() == again::WORD.to_bytes())
        && words.nth(again::FIRST - 2).is_some()
}

/// Executes such a program, with a run of its own that `beside` serves; returns the exit status if it could
/// not.
pub fn run(beside: Beside) -> u8 {
    runahead_host::set_file(again::FILE, again::DESCRIPTOR);
    let allowed = runahead_host::check_filters();
    // What may not be done is not done for the last resort's sake either.
    if allowed.is_ok() {
        runahead_host::arm_last_resort(again::FIRST, false);
    }
    start(allowed, beside)
}

/// Not a part of `run`: should there be no room for all that this has on the stack, the last resort is armed
/// by then.
#[inline(never)]
fn start(allowed: Result<(), String>, beside: Beside) -> u8 {
    runahead_host::fill_standard_descriptors();
    let options = Options { limits: Limits::from_environment(), again: true, ..Options::default() };
    let failure = runahead_host::run(options, again::FIRST, allowed, beside);
    eprintln!("runahead: {}", failure.message());
    failure.status()
}
