//! tbd
use crate::suite::Suite;
pub fn add(_suite: &mut Suite) {}
