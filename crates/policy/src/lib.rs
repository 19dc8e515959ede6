//! The policy, in one place and pure.
//!
//! State machines without clocks, memory or system calls: events go in, decisions come out, so that each
//! can be tested with a recorded trace. The agent drives [`track`], [`attention`], [`hold`], [`worth`],
//! [`futile`], [`restart`], [`kin`], [`coldness`], [`in_order`], [`noting`], [`toll`], [`untold`],
//! [`mapped`], [`served`] and [`crowd`] inside the program ([`per_thread`]: of each thread); the speculator
//! drives [`depth`], [`ledger`], [`copies`], [`misses`], [`scattered`], [`overlay`], [`passed_names`],
//! [`together`], [`views`], [`allowance`], and `coldness` and `noting` too; the host drives [`arming`],
//! [`followed`], [`strides`], [`swapped`], [`touches`], [`presence`], [`sampling`] and [`memory`]. Every
//! constant carries its reason.
//!
//! Rules of this room: no I/O, no atomics, no allocation, nothing that can panic.
#![cfg_attr(not(test), no_std)]

pub mod allowance;
pub mod arming;
pub mod attention;
pub mod coldness;
pub mod copies;
pub mod crowd;
pub mod depth;
pub mod drift;
pub mod followed;
pub mod following;
pub mod futile;
pub mod hold;
pub mod in_order;
pub mod kin;
pub mod ledger;
pub mod mapped;
pub mod memory;
pub mod misses;
pub mod noting;
pub mod overlay;
pub mod passed_names;
pub mod per_thread;
pub mod pieces;
pub mod presence;
pub mod regret;
pub mod restart;
pub mod sampling;
pub mod scattered;
pub mod served;
pub mod shown;
pub mod strides;
pub mod swapped;
pub mod together;
pub mod toll;
pub mod touches;
pub mod track;
pub mod untold;
pub mod views;
pub mod waits_alone;
pub mod windows;
pub mod worth;

/// Bytes of a page.
const PAGE: u64 = 4096;
