//! Keeps each answer back until its time.
//!
//! One mutex holds the model and the answers not yet due; one thread sleeps until the next is due and
//! sends it. Whoever submits wakes that thread only if the new answer comes before all others: at a
//! constant latency that happens only when nothing is in flight, which keeps a request at two or three
//! context switches.
//!
//! An answer reaches the program later than it is sent (the way through FUSE and the loop device).
//! That overhead is measured at set-up and given to [`Pacer::set_overhead`]; answers go out so much
//! earlier, never before their arrival.
//!
//! Who sleeps until a time wakes up later than that, by how much depends on how deep the machine below this one sleeps,
//! and changes from second to second. So the thread notes how late it was and sleeps so much less ([`Lateness`]). If it
//! then wakes up before the time, it sleeps again: a disk that answers early flatters whoever has much in flight.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::model::Model;

/// Sends one answer.
pub type Answer = Box<dyn FnOnce() + Send>;

/// Answers due within this time go out in one go. A wake-up costs more than that (2-5 us on the
/// machines we know), and it is far below what the self-check can tell apart (10% of 100 us).
const TOGETHER_NS: u64 = 3_000;

/// How late a sleeper wakes up of late, in nanoseconds.
#[derive(Default)]
struct Lateness(f64);

impl Lateness {
    /// One wake-up in so many: a disk of 1 ms, asked for one thing at a time, has learned a change within a
    /// twentieth of a second, and a single accident moves it little.
    const MEMORY: f64 = 16.0;

    /// An accident (somebody else had the processor) is no habit.
    const MOST: f64 = 300_000.0;

    fn woke(&mut self, wanted: u64, now: u64) {
        let late = (now.saturating_sub(wanted) as f64).min(Self::MOST);
        self.0 += (late - self.0) / Self::MEMORY;
    }

    /// When to sleep until, to be awake at `due`.
    fn alarm(&self, due: u64) -> u64 {
        due.saturating_sub(self.0 as u64)
    }
}

/// What the timing thread does about the answer that is due next.
#[derive(Debug, PartialEq)]
enum Step {
    Answer,
    SleepUntil(u64),
}

/// Decides when to sleep; pure, so that a test can let years pass.
#[derive(Default)]
struct Timing {
    lateness: Lateness,
    /// The answer that the thread has slept for already.
    slept_for: Option<u64>,
}

impl Timing {
    /// However late sleepers wake up, and even if the time is nearer than that: no answer goes out early.
    fn step(&self, due: u64, now: u64) -> Step {
        if due <= now + TOGETHER_NS {
            Step::Answer
        } else {
            Step::SleepUntil(self.lateness.alarm(due).max(now + 1))
        }
    }

    /// A sleep for `due` that was to end at `wanted` is over. Only the first for an answer teaches anything: a second one,
    /// after waking up too early, is as short as can be, and many of those would hide how late the long ones end.
    fn woke(&mut self, due: u64, wanted: u64, now: u64) {
        if self.slept_for.replace(due) != Some(due) {
            self.lateness.woke(wanted, now);
        }
    }
}

struct Waiting {
    due: u64,
    /// Order of submission, so that equal deadlines are answered in order.
    number: u64,
    answer: Answer,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Waiting {}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiting {
    /// Reversed: the heap's greatest is what is due first.
    fn cmp(&self, other: &Waiting) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

struct Queue {
    model: Model,
    waiting: BinaryHeap<Waiting>,
    submitted: u64,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    overhead_ns: AtomicU64,
    paced: AtomicBool,
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// Handle to the timing thread; clones share it.
#[derive(Clone)]
pub struct Pacer(Arc<Shared>);

impl Pacer {
    /// Starts the timing thread, which lives as long as the process.
    pub fn start(model: Model) -> std::io::Result<Pacer> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue { model, waiting: BinaryHeap::new(), submitted: 0 }),
            changed: Condvar::new(),
            overhead_ns: AtomicU64::new(0),
            paced: AtomicBool::new(true),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        });
        let pacer = Pacer(shared);
        let timing = pacer.clone();
        std::thread::Builder::new().name("slowdisk-timing".into()).spawn(move || timing.run())?;
        Ok(pacer)
    }

    /// Takes a request for `length` bytes at `offset`; `answer` is called when it is due. Unpaced, the
    /// caller answers at once.
    pub fn submit(&self, offset: u64, length: u64, answer: Answer) {
        self.0.requests.fetch_add(1, Relaxed);
        self.0.bytes.fetch_add(length, Relaxed);
        if !self.0.paced.load(Relaxed) {
            return answer();
        }
        let now = now_ns();
        let mut queue = self.lock();
        let due =
            queue.model.admit(now, offset, length).saturating_sub(self.0.overhead_ns.load(Relaxed)).max(now);
        let first = queue.waiting.peek().is_none_or(|next| due < next.due);
        let number = queue.submitted;
        queue.submitted += 1;
        queue.waiting.push(Waiting { due, number, answer });
        drop(queue);
        if first {
            self.0.changed.notify_one();
        }
    }

    /// Answers go out `nanoseconds` before their time, to make up for the way to the program.
    pub fn set_overhead(&self, nanoseconds: u64) {
        self.0.overhead_ns.store(nanoseconds, Relaxed);
    }

    pub fn overhead_ns(&self) -> u64 {
        self.0.overhead_ns.load(Relaxed)
    }

    /// Off: requests are answered at once, to fill the disk with data. What waits is still kept back.
    pub fn set_paced(&self, paced: bool) {
        self.0.paced.store(paced, Relaxed);
    }

    pub fn paced(&self) -> bool {
        self.0.paced.load(Relaxed)
    }

    /// Requests and bytes so far, paced or not.
    pub fn served(&self) -> (u64, u64) {
        (self.0.requests.load(Relaxed), self.0.bytes.load(Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code that can panic runs under this lock, so what it guards is sound even if poisoned.
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut queue = self.lock();
        let mut timing = Timing::default();
        loop {
            let Some(due) = queue.waiting.peek().map(|next| next.due) else {
                queue = self.0.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let now = now_ns();
            match timing.step(due, now) {
                Step::Answer => {
                    let next = queue.waiting.pop();
                    drop(queue);
                    if let Some(next) = next {
                        (next.answer)();
                    }
                    queue = self.lock();
                }
                Step::SleepUntil(alarm) => {
                    let sleep = Duration::from_nanos(alarm - now);
                    let (guard, woken) =
                        self.0.changed.wait_timeout(queue, sleep).unwrap_or_else(PoisonError::into_inner);
                    queue = guard;
                    if woken.timed_out() {
                        timing.woke(due, alarm, now_ns());
                    }
                }
            }
        }
    }
}

/// CLOCK_MONOTONIC, which is what the waits above use too.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of our own that outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Kind;
    use std::sync::mpsc;

    fn pacer(latency_ns: u64, parallel: usize) -> Pacer {
        Pacer::start(Model::new(&Kind::Fixed { latency_ns, parallel }, 1 << 20)).unwrap()
    }

    fn submit_and_wait(pacer: &Pacer, count: usize) -> Duration {
        let start = std::time::Instant::now();
        let (done, finished) = mpsc::channel();
        for number in 0..count {
            let done = done.clone();
            pacer.submit(0, 4096, Box::new(move || done.send(number).unwrap()));
        }
        let order: Vec<usize> = finished.iter().take(count).collect();
        assert!(order.is_sorted(), "equal latency, so answers come in the order of the requests");
        start.elapsed()
    }

    #[test]
    fn a_sleeper_that_wakes_up_late_sleeps_less() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.alarm(5_000_000), 5_000_000);
        (0..200).for_each(|_| lateness.woke(1_000_000, 1_080_000));
        assert!((79_000..=81_000).contains(&(5_000_000 - lateness.alarm(5_000_000))));
        // One accident of a tenth of a second is none of its habits.
        lateness.woke(1_000_000, 100_000_000);
        assert!(5_000_000 - lateness.alarm(5_000_000) < 100_000);
        (0..200).for_each(|_| lateness.woke(1_000_000, 1_000_000));
        assert!(5_000_000 - lateness.alarm(5_000_000) < 1_000);
        assert_eq!(lateness.alarm(0), 0);
    }

    /// A disk of 100 us with 16 requests always in flight, served by a thread that wakes up `late` after each sleep, in
    /// virtual time. Returns how early and how late the worst answers were.
    fn serve(timing: &mut Timing, late: u64, answers: usize) -> (u64, u64) {
        let mut disk = Model::new(&Kind::Fixed { latency_ns: 100_000, parallel: 16 }, 1 << 20);
        let mut now = 1_000_000_000;
        let mut waiting: std::collections::VecDeque<u64> =
            (0..16).map(|number| disk.admit(now + number * 6_000, 0, 4096)).collect();
        let (mut most_early, mut most_late) = (0, 0);
        for _ in 0..answers {
            let due = waiting.pop_front().unwrap();
            while let Step::SleepUntil(alarm) = timing.step(due, now) {
                assert!(alarm > now && alarm <= due);
                now = alarm + late;
                timing.woke(due, alarm, now);
            }
            most_early = most_early.max(due.saturating_sub(now));
            most_late = most_late.max(now.saturating_sub(due));
            waiting.push_back(disk.admit(now, 0, 4096));
        }
        (most_early, most_late)
    }

    #[test]
    fn no_answer_goes_out_early_whatever_was_learned_and_learning_goes_on() {
        for learned in [80_000.0, Lateness::MOST] {
            for late in [80_000, 5_000, 0] {
                let mut timing = Timing { lateness: Lateness(learned), slept_for: None };
                let (early, _) = serve(&mut timing, late, 5_000);
                assert!(early <= TOGETHER_NS, "{early} ns early, learned {learned}, late by {late}");
                let learned_now = timing.lateness.0;
                assert!((learned_now - late as f64).abs() < 1_000.0, "{learned_now} learned, late by {late}");
                let (_, most_late) = serve(&mut timing, late, 5_000);
                assert!(most_late <= late + 1_000, "{most_late} ns late, sleepers by {late}");
            }
        }
    }

    #[test]
    fn who_woke_up_early_sleeps_again_and_learns_nothing_from_that() {
        let mut timing = Timing { lateness: Lateness(80_000.0), slept_for: None };
        assert_eq!(timing.step(1_000_000, 0), Step::SleepUntil(920_000));
        timing.woke(1_000_000, 920_000, 960_000);
        let learned = timing.lateness.0;
        assert!(learned < 80_000.0);
        assert_eq!(timing.step(1_000_000, 960_000), Step::SleepUntil(960_001));
        timing.woke(1_000_000, 960_001, 965_000);
        assert_eq!(timing.lateness.0, learned);
        assert_eq!(timing.step(1_000_000, 997_000), Step::Answer);
    }

    #[test]
    fn an_answer_is_never_early() {
        let pacer = pacer(20_000_000, 4);
        assert!(submit_and_wait(&pacer, 4) >= Duration::from_millis(19));
        assert!(submit_and_wait(&pacer, 5) >= Duration::from_millis(39));
    }

    #[test]
    fn parallel_requests_wait_together() {
        // Serially this would be 3.2 s.
        assert!(submit_and_wait(&pacer(50_000_000, 64), 64) < Duration::from_secs(2));
    }

    #[test]
    fn unpaced_answers_come_at_once_and_are_counted() {
        let pacer = pacer(3_600_000_000_000, 1);
        pacer.set_paced(false);
        submit_and_wait(&pacer, 100);
        assert_eq!(pacer.served(), (100, 409_600));
    }

    #[test]
    fn the_overhead_is_taken_off_but_never_more_than_there_is() {
        let pacer = pacer(500_000_000, 64);
        pacer.set_overhead(u64::MAX);
        assert!(submit_and_wait(&pacer, 3) < Duration::from_millis(400));
    }
}
