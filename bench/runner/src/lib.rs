//! The bench: real programs, alone and under Runahead, on disks of known behaviour.
//!
//! A session ([`session`]) takes a disk ([`slowdisk`]), puts the data sets on it ([`data`]), and runs each
//! workload ([`workload`]) in rounds: every configuration once a round ([`configuration`]), the order
//! turning, each run cold ([`cold`]), measured ([`run`]) and its output compared with the first run's.
//! The papers' experiments ([`experiment`]) are such sessions with the papers' figures beside ours; what is
//! measured where follows from what was named ([`plan`]).
//! Beside the runs stands what could be reached at best ([`limit`]). Results ([`results`]) are JSON lines.
//!
//! Rules that hold here:
//! - A figure that was not measured under the conditions it claims is marked, never dropped and never
//!   mended ([`marks`]): a disk whose self-check failed, data that were not cold, outputs that differ, a
//!   machine that was busy with something else.
//! - A run in whose course somebody else emptied the machine's caches is no figure at all: it is made again ([`drops`]).
//! - Whatever a session sets up is taken down again even if it is killed ([`guard`]).

pub mod certainty;
pub mod cold;
pub mod compare;
pub mod configuration;
pub mod data;
pub mod demo;
pub mod drops;
pub mod experiment;
pub mod group;
pub mod guard;
pub mod limit;
pub mod load;
pub mod lock;
pub mod machine;
pub mod marks;
pub mod memory;
pub mod neighbour;
pub mod outputs;
pub mod packages;
pub mod plan;
pub mod report;
pub mod results;
pub mod run;
pub mod session;
pub mod table;
pub mod workload;
