//! The end-to-end suite's harness: a command is run *alone* and *under Runahead*, in the same
//! freshly made directory, and everything that can be observed of the two runs is compared.
//!
//! The rules that hold here:
//!
//! * The run alone is the model. Nobody writes down what a program should print; the kernel says.
//! * Every run has its own [`supervisor`](supervise) process, which is the subreaper of everything
//!   the run starts. So whatever is left behind is found by descent, never by name, and a run can
//!   only ever end processes of its own.
//! * Both runs happen at the same path, one after the other, so that no output has to be edited
//!   before it is compared.
//! * A comparison that has never failed is worth nothing: for each property there is a stand-in for
//!   Runahead which violates just that one (`stand-ins/`), and a test that the harness notices.

pub mod c_program;
pub mod cold;
pub mod compare;
pub mod guest;
pub mod locate;
pub mod needs;
pub mod scenario;
pub mod scribble;
pub mod stepping;
pub mod supervise;
pub mod trace;
pub mod tree;

/// What a check reports: everything that differed, ready to be read by a person.
pub type Verdict = Result<(), String>;
