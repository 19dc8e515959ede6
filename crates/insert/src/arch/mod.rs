//! What the processor decides.

mod x86_64;
pub use x86_64::{
    MACHINE, NUMBERS, OF_SYMBOL, RELATIVE, Start, code, enter, executes, leads_out, set_stack, start,
};
