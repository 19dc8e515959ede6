//! Finds the system call sites of executable files that may be rewritten, and remembers them.
//!
//! The agent inside a program patches the instruction right before a `syscall`. Whether that is safe
//! is a question about the whole function around it, too slow to ask at a program's start. So it is
//! asked here, once for each executable file, by the `runahead` command: [`analyse`] proves sites,
//! [`SiteFile`] keeps them where the agent looks them up (`runahead_abi::sites`).
//!
//! # What is proven
//! Instruction boundaries come from functions with a known start (unwind tables, symbols), decoded in
//! two ways that must agree: linearly from start to end, and along every direct path from the start.
//! A site lies on such a path. Where something speaks against it (an invalid instruction, a branch into
//! the middle of one, data between instructions), all of the function is left alone. A site left
//! alone costs benefit, never correctness.
//!
//! # Rooms
//! | module | concern |
//! |---|---|
//! | `image` | what the ELF file says: executable ranges, function ranges |
//! | `go` | functions of a Go program, by its run-time's own table |
//! | `landing` | where exceptions land in a function |
//! | `function` | one decoded function: boundaries, branches, reachability; the proof |
//! | `sweep` | all code of a file at once whose functions nothing lists; the proof for that |
//! | `reached` | what may be executed of code that has data in it |
//! | `outside` | what the other code has to do with that |
//! | `flags` | whether the status flags are dead after a system call |
//! | `numbers` | which call it is; which ones must be seen, which ones are never patched |
//! | `padding` | bytes that are never executed, for the sites too short for a near jump |
//! | `source` | the file's bytes, and when it may be open |
//! | `analysis` | the above put together for one file |
//! | `site_file` | the file in which the results are kept |
//! | `known` | what comes with the installation, by content |
//! | `location` | the user's directory, in which that file is |

mod analysis;
mod flags;
mod forms;
mod function;
mod go;
mod image;
mod known;
mod landing;
pub mod location;
mod numbers;
mod outside;
mod padding;
mod reached;
mod site_file;
mod source;
mod sweep;

pub use analysis::{Analysis, Reason, Unproven, analyse, analyse_file};
pub use function::Distrust;
pub use known::{NAME as KNOWN_NAME, Prepared, prepare};
pub use location::{directories, effective_user, private_directory, unmask_file};
pub use numbers::{MUST_SEE, NEVER_PATCHED};
pub use site_file::{Outcome, SiteFile, SiteFileError, file_key};
pub use source::Turns;
