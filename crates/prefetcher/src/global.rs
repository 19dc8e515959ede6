//! The prefetcher as others see it: one for the process, made at the first hint.

use crate::intake::{Cancel, Counts, Hint, Intake, Place};
use crate::limits::Options;
use crate::manager;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

/// Virtual size of the manager's stack; it builds its queue there once.
const STACK: usize = 1 << 20;

/// What has to be free when the first hint comes: more than starting allocates. A process that has come to the end of
/// its memory gets no prefetcher, since an allocation that fails would end it.
const PROBE: usize = 4 << 20;

const NEW: u8 = 0;
const STARTED: u8 = 1;
const OFF: u8 = 2;

/// Takes hints; carries them out with threads of its own. All functions are for any thread, none waits, none
/// fails. Not async-signal-safe: they allocate.
pub struct Prefetcher {
    /// None where there is no memory for it.
    intake: Option<Arc<Intake>>,
    options: Options,
    state: AtomicU8,
}

impl Prefetcher {
    /// One more, apart from the process's own ([`global`]). Its threads start with the first hint and end
    /// when it is dropped.
    pub fn new(options: Options) -> Self {
        // Where nothing will ever be fetched nobody has to look whether something may be.
        let state = AtomicU8::new(if options.enabled && options.allow_any() { NEW } else { OFF });
        Prefetcher { intake: Some(Arc::new(Intake::new())), options, state }
    }

    /// Discloses what will be read, in this order, after what was disclosed before.
    pub fn hint(&self, hints: &[Hint]) {
        if let Some(intake) = self.on() {
            intake.hint(hints);
        }
    }

    /// Bytes `offset..offset + length` (length 0: to the end) of a file will not be needed again.
    pub fn release(&self, place: Place, offset: u64, length: u64) {
        if let Some(intake) = self.on() {
            intake.release(place, offset, length);
        }
    }

    /// Forgets all hints that have not been carried out.
    pub fn cancel_all(&self) {
        self.cancel(Cancel::All);
    }

    /// Forgets those with this token.
    pub fn cancel_token(&self, token: u64) {
        self.cancel(Cancel::Token(token));
    }

    /// Forgets those for this path.
    pub fn cancel_path(&self, path: &[u8]) {
        if let Some(cancel) = Cancel::path(path) {
            self.cancel(cancel);
        }
    }

    fn cancel(&self, cancel: Cancel) {
        if let (STARTED, Some(intake)) = (self.state.load(Ordering::Relaxed), &self.intake) {
            intake.cancel(cancel);
        }
    }

    /// What became of the hints so far.
    pub fn counts(&self) -> Counts {
        self.intake.as_ref().map_or_else(Counts::default, |intake| intake.counts.read())
    }

    /// Where hints go, if anywhere. Starts the manager at the first call.
    fn on(&self) -> Option<&Intake> {
        let on = match self.state.load(Ordering::Relaxed) {
            STARTED => true,
            NEW => self.start(),
            _ => false,
        };
        self.intake.as_deref().filter(|_| on)
    }

    #[cold]
    fn start(&self) -> bool {
        if self.state.compare_exchange(NEW, STARTED, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return self.state.load(Ordering::Relaxed) == STARTED;
        }
        let started = self.intake.clone().filter(|_| there_is_memory()).is_some_and(|intake| {
            let options = self.options;
            without_signals(|| {
                let builder = std::thread::Builder::new().name("runahead".into()).stack_size(STACK);
                builder.spawn(move || manager::run(&intake, options)).is_ok()
            })
        });
        if !started {
            self.state.store(OFF, Ordering::Relaxed);
        }
        started
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        if let Some(intake) = &self.intake {
            intake.close();
        }
    }
}

/// The threads that are started in between block all signals, which stay the program's business.
fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are ours and are written before they are read; only this thread's mask changes, and
    // changes back.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
        result
    }
}

fn there_is_memory() -> bool {
    Vec::<u8>::new().try_reserve_exact(PROBE).is_ok()
}

/// By what our threads are known. No thread-local variable: in a library that a program loads while it runs, a thread's own
/// are allocated when the thread first looks at them, and this is looked at where there is no memory.
static MARK: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();

/// The calling thread is one of ours from now on.
pub(crate) fn becomes_ours() {
    let mark = MARK.get_or_init(|| {
        let mut key = 0;
        // SAFETY: writes the key, which is ours.
        (unsafe { libc::pthread_key_create(&mut key, None) } == 0).then_some(key)
    });
    if let Some(key) = mark {
        // SAFETY: the key is there for good. The value is never looked into.
        unsafe { libc::pthread_setspecific(*key, (&raw const MARK).cast()) };
    }
}

/// Whether the calling thread is one of ours, which may wait: for memory, too.
pub fn is_ours() -> bool {
    // SAFETY: the key is there for good.
    MARK.get().copied().flatten().is_some_and(|key| unsafe { !libc::pthread_getspecific(key).is_null() })
}

/// Stands for the prefetcher where there is no memory for one.
static ABSENT: Prefetcher =
    Prefetcher { intake: None, options: Options::UNLIMITED, state: AtomicU8::new(OFF) };

static GLOBAL: AtomicPtr<Prefetcher> = AtomicPtr::new(ptr::null_mut());

/// This process's prefetcher, configured by the environment ([`Options::from_environment`]).
pub fn global() -> &'static Prefetcher {
    let present = GLOBAL.load(Ordering::Acquire);
    if !present.is_null() {
        // SAFETY: what is stored there was leaked, so it lives as long as the process.
        return unsafe { &*present };
    }
    if !there_is_memory() {
        return &ABSENT;
    }
    let made = Box::into_raw(Box::new(Prefetcher::new(Options::from_environment())));
    match GLOBAL.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: the handler only stores to a static.
            unsafe { libc::pthread_atfork(None, None, Some(begin_anew)) };
            // SAFETY: as above; `made` has just been leaked.
            unsafe { &*made }
        }
        Err(first) => {
            // SAFETY: nobody else has seen ours; the first one's was leaked.
            unsafe {
                drop(Box::from_raw(made));
                &*first
            }
        }
    }
}

/// In a forked child: the threads are the parent's, so the child has none until its own first hint.
extern "C" fn begin_anew() {
    GLOBAL.store(ptr::null_mut(), Ordering::Release);
}
