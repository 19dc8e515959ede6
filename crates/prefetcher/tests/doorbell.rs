//! Every interleaving of two givers and a sleeper, by loom: nothing that is put in is slept over.

mod sync {
    pub use loom::sync::atomic::{AtomicBool, Ordering};
}

#[path = "../src/doorbell.rs"]
mod doorbell;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let bell = Arc::new(doorbell::Doorbell::new());
        let things = Arc::new(AtomicU32::new(0));
        let sleeper = {
            let (bell, things) = (bell.clone(), things.clone());
            thread::spawn(move || {
                let mut taken = 0;
                // Ends only if both things are found; parking for good would be a deadlock, which loom reports.
                while taken < 2 {
                    bell.doze();
                    let found = things.swap(0, Ordering::Relaxed);
                    if found == 0 {
                        thread::park();
                    }
                    bell.awake();
                    taken += found;
                }
            })
        };
        let giver = {
            let (bell, things, sleeper) = (bell.clone(), things.clone(), sleeper.thread().clone());
            thread::spawn(move || {
                things.fetch_add(1, Ordering::Relaxed);
                if bell.ring() {
                    sleeper.unpark();
                }
            })
        };
        things.fetch_add(1, Ordering::Relaxed);
        if bell.ring() {
            sleeper.thread().unpark();
        }
        giver.join().unwrap();
        sleeper.join().unwrap();
    });
}
