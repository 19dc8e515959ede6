//! Global state of a single-threaded process.

use core::cell::UnsafeCell;

/// A value that only the speculator's one thread touches. Handlers of that same thread may interrupt a
/// borrow; the rule that makes this sound in practice: code that can fault (touches the mirror) holds
/// no reference into a global, and what a handler changes (the mirror's page list, counts) is never
/// held across such a touch.
#[repr(transparent)]
pub struct Global<T>(UnsafeCell<T>);

// SAFETY: there is one thread.
unsafe impl<T> Sync for Global<T> {}

impl<T> Global<T> {
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    #[allow(clippy::mut_from_ref)]
    pub fn get(&self) -> &mut T {
        // SAFETY: one thread, and the rule above.
        unsafe { &mut *self.0.get() }
    }
}
