//! Disks of known behaviour, to measure on.
//!
//! Latency and parallelism decide what prefetching can gain, and no two machines agree on them. This
//! crate emulates a disk by name ([`profile`]) so that a result can be repeated elsewhere:
//!
//! ```text
//!   program → page cache → ext4 → loop device (direct I/O) → FUSE file (direct I/O) → our daemon
//!                                                              image in locked memory ┘
//! ```
//!
//! The daemon ([`block`]) asks a [`model`] when a real disk of that kind would have answered, and a
//! timing thread ([`pacer`]) keeps the answer back until then. Everything above the loop device is
//! the kernel's own: page cache, read-ahead and `RWF_NOWAIT` behave as on a disk. The `net` profile
//! is different: there the FUSE file system itself is what programs see ([`names`]), so that names
//! cost a request too.
//!
//! Rules that hold here:
//! - Whatever is set up is first written down ([`state`]), so that [`teardown`] can undo it after any
//!   process was killed at any moment.
//! - A device's read-ahead is put back by the last who had it changed, or by whoever comes next ([`read_ahead`]).
//! - Nothing is mounted over a directory that holds something or is a mount point already.
//! - A disk says by itself whether it can be trusted ([`check`]): a result on a disk whose check fails
//!   has to be marked.

pub mod block;
pub mod check;
pub mod control;
pub mod image;
pub mod measure;
pub mod model;
pub mod names;
pub mod pacer;
pub mod profile;
pub mod read_ahead;
pub mod serve;
pub mod setup;
pub mod state;
pub mod system;
pub mod teardown;
