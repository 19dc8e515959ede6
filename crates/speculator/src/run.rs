//! The speculator's loop: wait for a post, sync, run the program's code, end.
//!
//! Posts come from two sides. The agent's are of reads; the hint log is what comes out, and how far ahead one may
//! be follows from what its pages were good for. The host's are of page faults; what comes out is the log of
//! touches, and one may be as many missing pages ahead as the host says. The latest post counts, whoever made it.
//!
//! Threads that stall have a *lane* each, with posts and a log of its own. They take turns: there is one
//! mirror, and who has had its turn and is ahead makes room for another one that has stalled. What was
//! written for the first stays valid.

use crate::arch;
use crate::cell::Global;
use crate::descriptors;
use crate::emulate;
use crate::late;
use crate::ledger::{self, Moment};
use crate::mapped::MAPPED;
use crate::mirror::MIRROR;
use crate::pagemap::PAGEMAP;
use crate::rights;
use crate::shared::{self, Post, agent, at_least, count, speculator};
use crate::together::TOGETHER;
use crate::trace::trace;
use crate::usage;
use crate::views::VIEWS;
use core::sync::atomic::{AtomicU32, Ordering};
use runahead_abi::log::{Prediction, kind, mark};
use runahead_abi::registers::{FaultRegisters, Registers, VECTOR_STATE_BYTES};
use runahead_abi::session::{LANES, NO_ROOM, activity, ended, holding};
use runahead_abi::trace::kind as event;
use runahead_abi::{pace, post};
use runahead_kernel::PAGE;
use runahead_kernel::process::{exit, futex_wait, futex_wake, monotonic_ns, processor_ns};
use runahead_kernel::signals;
use runahead_policy::allowance::Amount;
use runahead_policy::depth::{Depth, Disk};
use runahead_policy::memory;
use runahead_policy::passed_names::PassedNames;
use runahead_prefetch::budget::Bandwidth;

/// While the program's code runs, SIGALRM looks every ms whether there is a new post: wrong paths
/// normally end at a system call within microseconds, this is for those that compute.
const TICK_US: u64 = 1000;

/// Ticks of one speculation without any logged operation after which it ends.
const TICKS_WITHOUT_PROGRESS: u32 = 100;

/// Questions without any logged operation in between that a speculation may ask in vain: it would spin until
/// it has had all of its ticks, on a processor that the one whom the program waits for may need.
const VAIN_MOST: u32 = 16;

/// Looks of a sleep ahead of the program after which the alarm is turned off: a tenth of a second.
const LOOKS_WITH_ALARM: u32 = 100;

/// How long a thread's turn lasts, where another one waits for its own: so many syncs, within these bounds.
/// Shorter, the time goes into syncs; longer, the others wait.
const TURN_SYNCS: u64 = 4;
const TURN_LEAST_NS: u64 = 300_000;
const TURN_MOST_NS: u64 = 4_000_000;

/// How often a speculator looks whether it may ask for more where bandwidth is limited.
const PAYDAY_NS: u64 = 1_000_000;

/// A speculator far enough ahead sleeps; this bounds the sleep, should a wake-up be lost.
const AHEAD_SLEEP_NS: u64 = 20_000_000;

/// Touches, missing or not, that the program has not reached yet: less than the log holds.
const TOUCHES_MOST: u32 = 3072;

/// Pages touched one after the other after which it is a scan.
const SCAN_PAGES: u32 = 16;

/// How often it is looked whether what is given back has been given back.
const RELEASED_LOOK_NS: u64 = 1_000_000;

/// A speculator sleeps so long over files of a program that does not move, or so many stalls: then it lets them go. Shorter, it
/// would begin anew where a program computes for long; longer, what others have to wait for is held.
const HELD_MOST_NS: u64 = 50_000_000;
const HELD_MOST_STALLS: u64 = 4;

/// A speculator far enough ahead of a fault looks again after so long, should a wake-up be lost.
const TOUCHES_SLEEP_NS: u64 = 1_000_000;

/// The present speculation.
pub struct Run {
    /// The post of a fault, or of a snapshot, that it started from; 0: it started from a read.
    fault: u32,
    /// The program has gone on since it was where this speculation has begun.
    late: bool,
    /// Something was on swap when it began.
    swapping: bool,
    /// Number of the latest fault post that was served, twice the epoch.
    fault_posted: u32,
    touches: u32,
    /// Missing pages among them.
    missing: u32,
    scan_next: usize,
    scan_pages: u32,
    /// Whose thread is run ahead of.
    lane: usize,
    pub epoch: u32,
    /// Speculations from reads that have begun. Posts of several threads are not taken in the order of their
    /// epochs.
    begun: u32,
    /// What the bell said when the other lanes were last looked at, and whether one of them waited.
    bell: u32,
    others_wait: bool,
    /// When the turn began, ns.
    turn_began: u64,
    /// Operations written to the log.
    pub written: u32,
    /// Alarms since the last operation.
    ticks: u32,
    /// Questions since then whether something has come, to which the answer was no.
    vain: u32,
    /// What it was when the post was made.
    voids: u32,
    pub depth: Depth,
    pages_next: u64,
    /// All that was asked for so far, and up to before each of the latest operations.
    asked: Amount,
    /// The same, before the operation that will be written next.
    asked_before_next: Amount,
    asked_before: [Amount; OPERATIONS],
    bandwidth: Bandwidth,
    /// The limit that `bandwidth` keeps, as the host has put it.
    bytes_a_second: u64,
    /// The call at hand is the one that the program waits in.
    programs_own: bool,
    pub position: i64,
    pub program_break: u64,
    pub thread: u32,
    /// Pages of its own that it had when it began and keeps in any case: text, tables. Known where there is a limit.
    kept: u64,
}

/// Operations whose pages are remembered: more than the greatest depth.
const OPERATIONS: usize = 1024;

pub static RUN: Global<Run> = Global::new(Run {
    fault: 0,
    late: false,
    swapping: false,
    fault_posted: 0,
    touches: 0,
    missing: 0,
    scan_next: 0,
    scan_pages: 0,
    lane: 0,
    epoch: 0,
    begun: 0,
    bell: 0,
    others_wait: false,
    turn_began: 0,
    written: 0,
    ticks: 0,
    vain: 0,
    voids: 0,
    depth: Depth::new(),
    pages_next: 0,
    asked: Amount::NONE,
    asked_before_next: Amount::NONE,
    asked_before: [Amount::NONE; OPERATIONS],
    bandwidth: Bandwidth::UNLIMITED,
    bytes_a_second: 0,
    programs_own: false,
    position: -1,
    program_break: 0,
    thread: 0,
    kept: 0,
});

/// What is known of the latest speculation in a lane.
struct Lane {
    /// Number of the post that it started from, twice the epoch; or of the latest one that was passed over.
    posted: u32,
    epoch: u32,
    written: u32,
    /// Operations whose passing the ledger knows.
    settled: u32,
    /// Which pages in the ledger each of the latest operations asked for: from, and up to.
    pages: [(u64, u64); OPERATIONS],
}

static LANE: Global<[Lane; LANES]> = Global::new(
    [const { Lane { posted: 0, epoch: 0, written: 0, settled: 0, pages: [(0, 0); OPERATIONS] } }; LANES],
);

/// Missing pages up to each of the latest touches. Apart from [`RUN`], since zeros do not lie in the executable file.
static MISSING_AT: Global<[u32; TOUCHES_MOST as usize + 1]> = Global::new([0; TOUCHES_MOST as usize + 1]);

static NAMES: Global<PassedNames> = Global::new(PassedNames::new());

/// How often the ledger hears of what the program has passed, in operations: well before it is full.
const SETTLE_EVERY: u32 = 64;

/// How often the host can see what was delivered to us, in operations: what it does not see yet, it takes for others'.
const TELL_EVERY: u32 = 16;

/// The same, in touches. (Not told until it ended, a long run ahead of page faults was taken for somebody else at the disk, to whom
/// it gave way after 0.2 s: a gather slept 600 times.)
const TELL_TOUCHES_EVERY: u32 = 64;

/// Registers and vector state of the present post, in our own memory.
#[repr(C, align(64))]
struct Loaded {
    vector_state: [u8; VECTOR_STATE_BYTES],
    registers: Registers,
    faulted: FaultRegisters,
}

const NO_REGISTERS: Registers = Registers {
    rax: 0,
    rbx: 0,
    rdx: 0,
    rsi: 0,
    rdi: 0,
    rbp: 0,
    rsp: 0,
    r8: 0,
    r9: 0,
    r10: 0,
    r12: 0,
    r13: 0,
    r14: 0,
    r15: 0,
    rflags: 0,
    rip: 0,
    fs_base: 0,
};

static LOADED: Global<Loaded> = Global::new(Loaded {
    vector_state: [0; VECTOR_STATE_BYTES],
    registers: NO_REGISTERS,
    faulted: FaultRegisters { registers: NO_REGISTERS, rcx: 0, r11: 0 },
});

/// Leaves posts alone that were made to a speculator before this one.
pub fn begin() {
    let allowance = &speculator().allowance;
    let run = RUN.get();
    for (number, (lane, stale)) in LANE.get().iter_mut().zip(&allowance.stale_posts).enumerate() {
        lane.posted = stale.load(Ordering::Relaxed);
        shared::answer(number).over.store(post::epoch_of(lane.posted), Ordering::Release);
    }
    run.fault_posted = allowance.stale_fault.load(Ordering::Relaxed);
}

/// Waits for posts and serves them, for ever. Entered on an empty stack, after the start and after
/// each speculation.
pub fn serve() -> ! {
    loop {
        let loaded = LOADED.get();
        let (lane, posted) = match wait_for_post(RUN.get()) {
            Posted::Read(lane, posted) => (lane, posted),
            Posted::Fault(posted) => {
                let voids = shared::faults().posted_voids.load(Ordering::Relaxed);
                let Some((faulted, snapshot)) = shared::take_fault(posted) else { continue };
                RUN.get().fault_posted = posted;
                RUN.get().voids = voids;
                if !may_hold(voids) {
                    continue;
                }
                if !sync_to_fault(posted, snapshot) {
                    end(ended::OVERTAKEN, 0);
                }
                arch::fresh_vector_state(&mut loaded.vector_state);
                loaded.faulted = faulted;
                let _ = signals::set_alarm_interval(TICK_US);
                // SAFETY: the mirror is in step, and the registers are the program's.
                unsafe { arch::enter_at_fault(&loaded.faulted, loaded.vector_state.as_ptr()) }
            }
        };
        let Some(post) = shared::take_post(lane, posted, &mut loaded.vector_state) else {
            continue;
        };
        begins_lane(lane, posted, &post);
        RUN.get().voids = post.voids;
        if !may_hold(post.voids) {
            shared::answer(lane).over.store(post.epoch, Ordering::Release);
            continue;
        }
        sync(&post);
        loaded.registers = post.registers;
        arch::make_vector_state_sound(&mut loaded.vector_state);
        let _ = signals::set_alarm_interval(TICK_US);
        // The stalled call is the first operation: act as if it had returned.
        let returned = emulate::stalled_call(&loaded.registers);
        // SAFETY: the mirror is in step, and the registers are the program's.
        unsafe { arch::enter_program(&loaded.registers, loaded.vector_state.as_ptr(), returned) }
    }
}

/// Goes away, if the program has asked for it: everything that we hold open is closed by that.
fn retire_if_asked() {
    if agent().retire.load(Ordering::Acquire) != 0 {
        leave();
    }
}

/// Goes away if the program has become another one: the page tables that we look into are nobody's then. No post tells.
fn leave_if_replaced() {
    if !PAGEMAP.get().is_alive() {
        leave();
    }
}

/// Lets go of all files and directories of the program's. A sync has to come before anything else is done with what is left.
pub fn let_go() {
    TOGETHER.get().send_all();
    emulate::reset();
    descriptors::let_go();
    MAPPED.get().let_go();
    MIRROR.get().drop_views();
    shared::holds_nothing();
}

/// Whether files of the program's may be held, to serve a post that was made when [`voids`] was `voids`. Waits while something is
/// being given back.
///
/// [`voids`]: runahead_abi::session::AgentPart::voids
pub fn may_hold(voids: u32) -> bool {
    loop {
        let may = shared::begins_to_hold();
        let void = agent().voids.load(Ordering::Acquire) != voids;
        if may && !void {
            return true;
        }
        let_go();
        if void {
            return false;
        }
        retire_if_asked();
        let seen = post::heard(&agent().bell);
        futex_wait(&agent().bell, seen, Some(RELEASED_LOOK_NS));
    }
}

/// Goes away for good.
pub fn leave() -> ! {
    let_go();
    settle();
    pass_names_now();
    count_time();
    let part = speculator();
    part.activity.store(activity::GONE, Ordering::Release);
    futex_wake(&part.activity);
    exit(0)
}

/// A post's number, and whose it is.
enum Posted {
    /// The lane, and the number.
    Read(usize, u32),
    Fault(u32),
}

/// The next lane, beginning with the one behind the latest, with a post that was not served: one whose thread
/// still waits where it has posted before any other, since what is copied of its stack is whole then.
fn next_lane(run: &Run) -> Option<(usize, u32)> {
    let unserved = |turn: usize| {
        let number = (run.lane + turn) % LANES;
        let posted = shared::latest_post(number)?;
        let withdrawn = shared::lane(number).cancelled.load(Ordering::Relaxed) == post::epoch_of(posted);
        (posted != LANE.get()[number].posted && !withdrawn).then_some((number, posted))
    };
    let waits = |&(number, _): &(usize, u32)| shared::lane(number).passed.load(Ordering::Relaxed) <= 1;
    (1..=LANES).filter_map(unserved).find(waits).or_else(|| (1..=LANES).find_map(unserved))
}

/// Whether another thread than the present lane's has stalled and waits for its turn.
fn others_wait(run: &mut Run) -> bool {
    let bell = post::heard(&agent().bell);
    if bell != run.bell {
        run.bell = bell;
        run.others_wait = next_lane(run).is_some_and(|(number, _)| number != run.lane);
    }
    run.others_wait
}

/// Whether the present turn has to end: another thread waits, and this one has had its time.
fn turn_is_over(run: &mut Run) -> bool {
    if !others_wait(run) {
        return false;
    }
    let sync = speculator().sync_cost_ns.load(Ordering::Relaxed);
    let stall = agent().expected_stall_ns.load(Ordering::Relaxed);
    let turn = sync.saturating_mul(TURN_SYNCS).max(stall).clamp(TURN_LEAST_NS, TURN_MOST_NS);
    monotonic_ns().saturating_sub(run.turn_began) >= turn
}

/// How many threads take turns.
fn threads() -> u32 {
    LANE.get().iter().filter(|lane| lane.posted != 0).count().max(1) as u32
}

fn wait_for_post(run: &Run) -> Posted {
    let part = speculator();
    loop {
        retire_if_asked();
        let seen = post::heard(&agent().bell);
        if let Some((lane, posted)) = next_lane(run) {
            return Posted::Read(lane, posted);
        }
        if let Some(posted) = shared::latest_fault()
            && posted != run.fault_posted
        {
            return Posted::Fault(posted);
        }
        count_time();
        give_back();
        let_go();
        part.activity.store(activity::IDLE, Ordering::Release);
        futex_wait(&agent().bell, seen, None);
    }
}

/// Nobody knows when the next post comes. What that would drop goes now: the program may have use for the memory.
/// (pocketsphinx in 110 MB: its speculator slept over 41 MB that it had read ahead, and the program, which had grown into the
/// rest meanwhile, went round through its own code on the disk, 13 to 50 s for 5.)
fn give_back() {
    emulate::reset();
    MIRROR.get().drop_stale_files();
    if holds_too_much() {
        MIRROR.get().drop_changing();
    }
    if speculator().ended.load(Ordering::Relaxed) == ended::EXIT {
        VIEWS.get().rest();
    }
}

/// Whether it has more memory of its own than it may have, besides what it keeps: that nothing brings down.
fn holds_too_much() -> bool {
    let allowed = own_most();
    allowed != u64::MAX && usage::pages().saturating_sub(RUN.get().kept) > allowed
}

/// Pages of memory that a speculation may have of its own. One from a fault may have as many again, since what it copies of files has a
/// bound of its own ([`crate::mapped`]), and so have copies where some of the memory is on swap ([`swap_room`]).
pub fn own_most() -> u64 {
    let own = memory::own_most(allowed().pages);
    match (RUN.get().fault != 0, is_swapping()) {
        (true, true) => u64::MAX,
        (true, false) => own.saturating_mul(2),
        (false, _) => own,
    }
}

/// Takes down what it keeps in any case, where that matters.
fn know_what_is_kept() {
    if own_most() != u64::MAX {
        let copied = MIRROR.get().changing_pages() + MAPPED.get().filled_pages();
        RUN.get().kept = usage::pages().saturating_sub(copied);
    }
}

/// Brings the counts up to date that are not kept at each event.
fn count_time() {
    let counts = &speculator().counts;
    at_least(&counts.processor_ns, processor_ns());
    at_least(&speculator().delivered, usage::delivered());
    counts.open_pages.store(ledger::ledger().open(), Ordering::Relaxed);
}

/// The speculation of lane `number` from `post` begins: what is known of the one before in that lane is
/// settled.
fn begins_lane(number: usize, posted: u32, post: &Post) {
    shared::answer(number).taken.store(post.epoch, Ordering::Release);
    settle();
    let lane = &mut LANE.get()[number];
    if post.epoch_before == lane.epoch {
        lane.settle(post.passed_before);
    }
    (lane.posted, lane.epoch, lane.written, lane.settled) = (posted, post.epoch, 0, 0);
    let run = RUN.get();
    let follows = post.epoch_before == run.epoch && run.lane == number;
    count_names(NAMES.get().begins(follows.then_some(post.passed_before), post.names_before));
    run.lane = number;
    run.begins_turn();
}

/// Brings mirror, descriptors and log to the state of `post`, and tells the program, which may wait.
fn sync(post: &Post) {
    let began = monotonic_ns();
    let part = speculator();
    part.activity.store(activity::RUNNING, Ordering::Release);
    let answer = shared::answer(post.lane);
    answer.written.store(0, Ordering::Release);
    let run = RUN.get();
    (run.fault, run.late) = (0, false);
    run.swapping = is_swapping_now();
    run.epoch = post.epoch;
    run.begun = run.begun.wrapping_add(1);
    ledger::with(|ledger, depth| ledger.age(depth, run.begun, threads()));
    run.written = 0;
    run.programs_own = false;
    run.pages_next = ledger::ledger().position();
    run.asked_before_next = run.asked;
    run.ticks = 0;
    run.vain = 0;
    run.position = post.position;
    run.program_break = post.program_break;
    run.thread = post.thread;
    bring_into_step();
    emulate::find_posted(&post.registers);
    // What a hold costs; what follows the program does not wait for.
    let took = monotonic_ns().saturating_sub(began);
    answer.synced.store(post.epoch, Ordering::Release);
    if shared::lane(post.lane).holding.load(Ordering::Acquire) == holding::SYNC {
        futex_wake(&answer.synced);
    }
    run.turn_began = monotonic_ns();
    rights::copied();
    rights::hold();
    know_what_is_kept();
    // The first sync fills nothing yet and says nothing; the estimate starts with the second.
    part.sync_cost_ns.store(took.max(1), Ordering::Relaxed);
    count(&part.counts.syncs, 1);
    count(&part.counts.sync_ns, took);
    trace(event::SYNCED, post.epoch.into(), took);
    // The agent weighs it against what speculation is good for. (One that is overtaken finds the next post
    // waiting, and never comes to rest.)
    at_least(&part.counts.processor_ns, processor_ns());
}

/// Brings the mirror and the descriptors to the program's present state: it is at the fault posted as
/// `posted`, or a little beyond; or far beyond, where the snapshot with this number was posted (0: none).
/// False: its stack is not to be had any more.
fn sync_to_fault(posted: u32, snapshot: u32) -> bool {
    let began = monotonic_ns();
    let part = speculator();
    part.activity.store(activity::RUNNING, Ordering::Release);
    let run = RUN.get();
    (run.fault, run.late) = (post::epoch_of(posted), snapshot != 0);
    run.begins_turn();
    run.swapping = is_swapping_now();
    (run.touches, run.missing, run.ticks) = (0, 0, 0);
    (run.scan_next, run.scan_pages) = (0, 0);
    run.programs_own = false;
    part.touched.store(0, Ordering::Relaxed);
    run.thread = shared::faults().thread.load(Ordering::Relaxed);
    bring_into_step();
    run.program_break = agent().program_break.load(Ordering::Relaxed);
    let is_whole = snapshot == 0 || late::takes_up(snapshot, &mut run.program_break);
    rights::copied();
    rights::hold();
    part.fault_synced.store(run.fault, Ordering::Release);
    know_what_is_kept();
    count(&part.counts.syncs, 1);
    let took = monotonic_ns().saturating_sub(began);
    count(&part.counts.sync_ns, took);
    trace(event::SYNCED_TO_FAULT, run.fault.into(), took);
    // The host weighs it against what speculation is good for.
    at_least(&part.counts.processor_ns, processor_ns());
    is_whole
}

/// Descriptors first: they may show that nothing is to be copied.
fn bring_into_step() {
    leave_if_replaced();
    emulate::reset();
    descriptors::sync();
    MIRROR.get().refresh(crate::mirror::process());
    rights::is_in_step();
}

fn is_swapping_now() -> bool {
    shared::faults().room.load(Ordering::Relaxed) != 0
}

/// Whether the program has gone on since it was where this speculation has begun ([`late`]).
pub fn is_late() -> bool {
    RUN.get().late
}

/// Whether some of the program's memory is on swap, or was at the latest sync: copying that would bring it in, which may
/// end with the program being killed. (A speculation goes on for a while after the host has ceased to look.)
pub fn is_swapping() -> bool {
    RUN.get().swapping || is_swapping_now()
}

/// Pages of the program's memory that may be copied, blank ones included, while some of it is on swap. None: nobody brings
/// in what is there, as there is no room for it, or this is a speculation from a read, of which the host does not read what it
/// touches.
pub fn swap_room() -> Option<usize> {
    let room = shared::faults().room.load(Ordering::Relaxed);
    (RUN.get().fault != 0 && room > NO_ROOM).then_some(room as usize)
}

/// A page of the program's own memory was touched for the first time, which is on swap. The host, which reads the log, brings
/// it in. Sleeps if that is as far ahead as one may be.
pub fn touched_on_swap(page: usize) {
    touch(page, 1, mark::PREFETCHED | mark::ON_SWAP, speculator().device.load(Ordering::Relaxed));
}

/// Pages of a mapped file were touched for the first time; `missing`: they are not in memory, and the disk has been
/// asked for them. Sleeps if that is as far ahead as one may be.
pub fn touched(page: usize, pages: usize, missing: bool, device: u64) {
    touch(page, pages, if missing { mark::PREFETCHED } else { 0 }, device);
}

fn touch(page: usize, pages: usize, marks: u8, device: u64) {
    let missing = marks & mark::PREFETCHED != 0;
    let run = RUN.get();
    let part = speculator();
    run.ticks = 0;
    run.vain = 0;
    if missing {
        count(&part.counts.prefetches, 1);
        count(&part.counts.prefetched_pages, pages as u64);
        asked(device, pages as u32);
    }
    if run.fault == 0 {
        return;
    }
    for number in 0..pages {
        let place = (page + number * PAGE) as u64;
        let touch = Prediction { kind: kind::TOUCH, marks, file: 0, subject: 0, detail: 0, place };
        shared::touches().write(run.fault, run.touches, &touch);
        run.missing = run.missing.wrapping_add(u32::from(missing));
        let missing_at = MISSING_AT.get();
        missing_at[run.touches as usize % missing_at.len()] = run.missing;
        run.touches = run.touches.wrapping_add(1);
    }
    part.touched.store(run.touches, Ordering::Release);
    // Up to 16 pages are touched at a time, which may step over any one number.
    let before = run.touches.wrapping_sub(pages as u32);
    if run.touches / TELL_TOUCHES_EVERY != before / TELL_TOUCHES_EVERY {
        at_least(&part.delivered, usage::delivered());
    }
    run.scan_pages = if page == run.scan_next { run.scan_pages + pages as u32 } else { 0 };
    run.scan_next = page + pages * PAGE;
    if run.scan_pages >= SCAN_PAGES {
        part.fault_scan.store(run.fault, Ordering::Release);
        end(ended::SCAN, 0);
    }
    if run.touches_are_far_ahead(shared::faults().passed.load(Ordering::Acquire)) {
        sleep_ahead_of_faults();
    }
    part.activity.store(activity::RUNNING, Ordering::Release);
}

/// Sleeps until the program has come nearer to what was touched.
fn sleep_ahead_of_faults() {
    TOGETHER.get().send_all();
    // Behind a disk that answers slowly the next touches may be long in coming.
    at_least(&speculator().delivered, usage::delivered());
    let run = RUN.get();
    let mut sleep = Sleep::begin();
    while run.touches_are_far_ahead(shared::faults().passed.load(Ordering::Acquire)) {
        speculator().activity.store(activity::AHEAD, Ordering::Release);
        let passed = shared::faults().passed.load(Ordering::Acquire);
        check();
        let longest = if sleep.deepens(passed) { AHEAD_SLEEP_NS } else { TOUCHES_SLEEP_NS };
        futex_wait(&shared::faults().passed, passed, Some(longest));
    }
    sleep.ends();
}

fn held_most() -> u64 {
    let stall = agent().expected_stall_ns.load(Ordering::Relaxed);
    HELD_MOST_NS.max(stall.saturating_mul(HELD_MOST_STALLS))
}

/// A sleep ahead of the program. The alarm goes on at first, and ends each wait within a tick; a program that stands still, or
/// computes for long, is not worth a thousand looks a second.
struct Sleep {
    looks: u32,
    /// What the program had passed at the latest look, and since when.
    passed: u32,
    since: u64,
}

impl Sleep {
    fn begin() -> Sleep {
        trace(event::SLEEPS_AHEAD, RUN.get().written.into(), 0);
        Sleep { looks: 0, passed: u32::MAX, since: 0 }
    }

    /// One more look is over, at which the program had passed so much. True if the alarm is off. Ends the speculation if the
    /// program stands still, as what is open is held for nothing.
    fn deepens(&mut self, passed: u32) -> bool {
        leave_if_replaced();
        let now = monotonic_ns();
        if passed != self.passed {
            (self.passed, self.since) = (passed, now);
        } else if now.saturating_sub(self.since) >= held_most() {
            end(ended::RELEASED, 0);
        }
        self.looks = self.looks.saturating_add(1);
        if self.looks == LOOKS_WITH_ALARM {
            let _ = signals::set_alarm_interval(0);
        }
        self.looks >= LOOKS_WITH_ALARM
    }

    fn ends(self) {
        trace(event::GOES_ON, 0, 0);
        if self.looks >= LOOKS_WITH_ALARM {
            let _ = signals::set_alarm_interval(TICK_US);
        }
    }
}

/// Ends the present speculation: it waits for the next post. May be called anywhere in the runtime, on
/// any of its stacks.
pub fn end(reason: u32, by: u32) -> ! {
    TOGETHER.get().send_all();
    let _ = signals::set_alarm_interval(0);
    settled();
    let part = speculator();
    let run = RUN.get();
    if run.fault == 0 {
        settle();
        run.depth.grow(disk());
        pass_names_now();
        let answer = shared::answer(run.lane);
        answer.wake_at.store(0, Ordering::Relaxed);
        // After all that was written.
        answer.over.store(run.epoch, Ordering::Release);
    }
    part.ended.store(reason, Ordering::Relaxed);
    trace(event::ENDED, reason.into(), by.into());
    if reason == ended::SYSTEM_CALL {
        part.ended_by.store(by, Ordering::Relaxed);
        if let Some(counter) = part.counts.calls.0.get(by as usize) {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }
    if let Some(counter) = part.counts.endings.get(reason as usize) {
        count(counter, 1);
    }
    arch::leave_for_server()
}

/// Operations after which a speculation has settled: several rounds of a loop over files, in which it has
/// touched most pages that it ever will.
const SETTLED_AFTER: u32 = 16;

/// Lets go of a program that waits until this speculation has settled. Pages that are filled while it waits
/// are consistent with those that the sync brought.
fn settled() {
    let run = RUN.get();
    let answer = shared::answer(run.lane);
    if shared::lane(run.lane).holding.load(Ordering::Acquire) == holding::SETTLED {
        answer.settled.store(run.epoch, Ordering::Release);
        futex_wake(&answer.settled);
    }
}

/// Whether the present speculation has become pointless, and why.
fn pointless() -> Option<u32> {
    let run = RUN.get();
    let lane = shared::lane(run.lane);
    if lane.posted.load(Ordering::Relaxed) != LANE.get()[run.lane].posted {
        return Some(ended::OVERTAKEN);
    }
    if run.fault != 0 && others_wait(run) {
        return Some(ended::OVERTAKEN);
    }
    if shared::faults().posted.load(Ordering::Relaxed) != RUN.get().fault_posted {
        return Some(ended::OVERTAKEN);
    }
    if RUN.get().fault != 0 {
        let unread = shared::faults().ahead.load(Ordering::Relaxed) == 0;
        return unread.then_some(ended::CANCELLED);
    }
    (lane.cancelled.load(Ordering::Relaxed) == run.epoch).then_some(ended::CANCELLED)
}

/// What is asked for next is (not any more) what the program has asked for itself: neither our merit nor our
/// waste. (Counting it as useful made a chain of dependent reads look like one page in twelve well spent.)
pub fn programs_own(yes: bool) {
    RUN.get().programs_own = yes;
}

pub fn is_programs_own() -> bool {
    RUN.get().programs_own
}

/// Where in which speculation we are.
pub fn now() -> Moment {
    Moment { speculation: RUN.get().begun, distance: RUN.get().written }
}

/// Called at each emulated call.
pub fn check() {
    retire_if_asked();
    if shared::is_asked_to_let_go() || agent().voids.load(Ordering::Acquire) != RUN.get().voids {
        end(ended::RELEASED, 0);
    }
    descriptors::let_go_if_asked();
    if let Some(reason) = pointless() {
        end(reason, 0);
    }
}

/// The program asks whether something has come, or lets some time go by, and nothing will come here. Who does
/// nothing else waits.
pub fn asks_in_vain() -> bool {
    let run = RUN.get();
    run.vain += 1;
    run.vain > VAIN_MOST
}

/// Called by the alarm while the program's code runs.
pub fn tick() {
    TOGETHER.get().send_all();
    leave_if_replaced();
    check();
    let run = RUN.get();
    if run.fault != 0 {
        // The host ends one that is not worth it.
        at_least(&speculator().counts.processor_ns, processor_ns());
    }
    if holds_too_much() {
        end(ended::MEMORY, 0);
    }
    if turn_is_over(run) {
        end(ended::TURN, 0);
    }
    run.ticks += 1;
    if run.ticks > TICKS_WITHOUT_PROGRESS {
        end(ended::TIME, 0);
    }
}

/// Writes an operation to the log, and sleeps if that is as far ahead as one may be. Pages that were asked
/// for since the operation before belong to this one.
pub fn log(prediction: &Prediction) {
    if RUN.get().fault != 0 {
        // Nobody compares reads with a log that began at a fault.
        return;
    }
    let run = RUN.get();
    let part = speculator();
    run.ticks = 0;
    run.vain = 0;
    let lane = &mut LANE.get()[run.lane];
    let passed = shared::lane(run.lane).passed.load(Ordering::Acquire);
    let asked_to = ledger::ledger().position();
    if run.written < passed {
        // The program was here before us, without a log to compare with: nobody knows whether it read the same.
        // (Counted as passed, it hid from the depth that a chain of dependent reads wastes what is fetched for
        // it; counted as waste, it made agrep, which is hardly slower than its speculator, look wasteful.)
        ledger::with(|ledger, depth| ledger.forget(depth, run.pages_next, asked_to));
    }
    lane.pages[run.written as usize % OPERATIONS] = (run.pages_next, asked_to);
    run.pages_next = asked_to;
    let before = run.asked_before_next;
    run.asked_before[run.written as usize % OPERATIONS] = before;
    run.asked_before_next = run.asked;
    shared::log().write_lane(run.lane, run.epoch, run.written, prediction);
    run.written += 1;
    lane.written = run.written;
    shared::answer(run.lane).written.store(run.written, Ordering::Release);
    NAMES.get().wrote(run.written <= passed, names_seen());
    if run.written == SETTLED_AFTER {
        settled();
    }
    pass_names_now();
    if run.written.is_multiple_of(SETTLE_EVERY) {
        settle();
    }
    if run.written.is_multiple_of(TELL_EVERY) {
        at_least(&part.delivered, usage::delivered());
        if holds_too_much() {
            end(ended::MEMORY, 0);
        }
    }
    if turn_is_over(run) {
        end(ended::TURN, 0);
    }
    if run.is_far_ahead(passed, run.depth.operations(disk()), share(allowed())) {
        sleep_ahead();
    }
}

/// How the disk that the program waits for takes what is asked for ahead.
fn disk() -> Disk {
    let agent = agent();
    let is_crowded = agent.is_crowded.load(Ordering::Relaxed) != 0;
    Disk::of(agent.expected_stall_ns.load(Ordering::Relaxed), is_crowded)
}

/// Speculation has looked a name up.
pub fn looked_up() {
    NAMES.get().looked_up();
}

/// Names that the agent has counted.
fn names_seen() -> u64 {
    agent().counts.names.load(Ordering::Relaxed)
}

/// The program has passed so many operations of the present epoch.
fn pass_names(passed: u32) {
    count_names(NAMES.get().passed(passed, names_seen()));
}

fn count_names(more: u32) {
    count(&speculator().counts.names_passed, u64::from(more));
}

/// As far as the program has come by now, unless it has posted anew: then it counts from there.
fn pass_names_now() {
    let run = RUN.get();
    let lane = shared::lane(run.lane);
    let passed = lane.passed.load(Ordering::Acquire);
    if lane.posted.load(Ordering::Acquire) == LANE.get()[run.lane].posted {
        pass_names(passed);
    }
}

/// What the host allows at present.
pub fn allowed() -> Amount {
    let allowance = &speculator().allowance;
    let limit = |word: &AtomicU32| match word.load(Ordering::Relaxed) {
        0 => u32::MAX,
        limit => limit,
    };
    Amount { requests: limit(&allowance.requests), pages: limit(&allowance.pages) }
}

/// What of it is each thread's that takes turns.
fn share(allowed: Amount) -> Amount {
    let share = |limit: u32| if limit == u32::MAX { limit } else { limit.div_ceil(threads()) };
    Amount { requests: share(allowed.requests), pages: share(allowed.pages) }
}

/// Books pages of the device `device` that were just asked for, and waits as long as the limit on bandwidth
/// demands: for what the pages before these have cost, since it is not known beforehand what is cached.
pub fn asked(device: u64, pages: u32) {
    let run = RUN.get();
    let part = speculator();
    run.asked.asked(pages);
    part.device.store(device, Ordering::Relaxed);
    let limit = part.allowance.bytes_a_second.load(Ordering::Relaxed);
    if limit != run.bytes_a_second {
        run.bytes_a_second = limit;
        run.bandwidth = match limit {
            0 => Bandwidth::UNLIMITED,
            limit => Bandwidth::new(limit, monotonic_ns()),
        };
    }
    if limit == 0 {
        return;
    }
    let mut left = u64::from(pages);
    while left > 0 {
        let chunk = left.min(runahead_prefetch::CHUNK_PAGES);
        if run.bandwidth.take(chunk * runahead_prefetch::PAGE, monotonic_ns()) {
            left -= chunk;
        } else {
            TOGETHER.get().send_all();
            check();
            let seen = post::heard(&agent().bell);
            futex_wait(&agent().bell, seen, Some(PAYDAY_NS));
            run.ticks = 0;
        }
    }
}

/// Sleeps until the program has used half of what is ahead of it.
fn sleep_ahead() {
    TOGETHER.get().send_all();
    settled();
    let part = speculator();
    let run = RUN.get();
    let (word, answer) = (&shared::lane(run.lane).passed, shared::answer(run.lane));
    if others_wait(run) {
        end(ended::TURN, 0);
    }
    let wake_at = run.worth_waking_at(word.load(Ordering::Acquire));
    part.activity.store(activity::AHEAD, Ordering::Release);
    pace::ask_to_be_woken(&answer.wake_at, wake_at);
    let mut sleep = Sleep::begin();
    loop {
        // Before anything is looked at.
        let seen = post::heard(&agent().bell);
        check();
        if others_wait(run) {
            end(ended::TURN, 0);
        }
        let passed = word.load(Ordering::Acquire);
        pass_names_now();
        if passed >= wake_at {
            break;
        }
        sleep.deepens(passed);
        futex_wait(&agent().bell, seen, Some(AHEAD_SLEEP_NS));
    }
    sleep.ends();
    answer.wake_at.store(0, Ordering::Relaxed);
    part.activity.store(activity::RUNNING, Ordering::Release);
    run.ticks = 0;
    run.vain = 0;
    settle();
    run.depth.grow(disk());
}

impl Run {
    /// A turn begins: the other lanes are looked at anew.
    fn begins_turn(&mut self) {
        (self.bell, self.others_wait) = (post::heard(&agent().bell).wrapping_sub(1), false);
        self.turn_began = monotonic_ns();
    }

    /// Whether the touches are as far ahead of the program, which has passed so many, as they may be.
    fn touches_are_far_ahead(&self, passed: u32) -> bool {
        let ahead = self.touches.saturating_sub(passed);
        let allowed = allowed();
        let most = shared::faults().ahead.load(Ordering::Relaxed).min(allowed.requests).min(allowed.pages);
        let missing_at = MISSING_AT.get();
        let before = match passed.checked_sub(1) {
            Some(last) => missing_at[last as usize % missing_at.len()],
            None => 0,
        };
        ahead >= TOUCHES_MOST || (ahead > 0 && self.missing.wrapping_sub(before) >= most.max(1))
    }

    /// Whether so many operations, or what they have asked for, are all that may be ahead.
    fn is_far_ahead(&self, passed: u32, operations: u32, allowed: Amount) -> bool {
        let ahead = self.written.saturating_sub(passed);
        if ahead <= 1 || allowed == Amount::UNLIMITED {
            return ahead >= operations;
        }
        // More operations than are remembered are more than any depth allows.
        let first = self.written.saturating_sub(ahead.min(OPERATIONS as u32));
        let asked = self.asked.since(self.asked_before[first as usize % OPERATIONS]);
        ahead >= operations || asked.exhausts(allowed)
    }

    /// The operation whose passing leaves room enough: half of the depth, and an eighth of what is allowed.
    fn worth_waking_at(&self, passed: u32) -> u32 {
        let (operations, allowed) = (self.depth.operations(disk()) / 2, share(allowed()));
        let low = if allowed == Amount::UNLIMITED { allowed } else { allowed.low() };
        let first = self.written.saturating_sub(operations).max(passed + 1).min(self.written);
        (first..self.written)
            .find(|&operation| !self.is_far_ahead(operation, u32::MAX, low))
            .unwrap_or(self.written)
    }
}

/// Tells the ledger which operations the program's threads have passed.
fn settle() {
    for (number, lane) in LANE.get().iter_mut().enumerate() {
        let shared = shared::lane(number);
        // Of this epoch, if the lane has posted no other by then.
        let passed = shared.passed.load(Ordering::Acquire);
        if shared.posted.load(Ordering::Acquire) == lane.posted {
            lane.settle(passed);
        }
    }
}

impl Lane {
    fn settle(&mut self, passed: u32) {
        let passed = passed.min(self.written);
        let first = self.settled.max(self.written.saturating_sub(OPERATIONS as u32));
        for operation in first..passed {
            let (from, to) = self.pages[operation as usize % OPERATIONS];
            ledger::with(|ledger, depth| ledger.passed(depth, from, to));
        }
        self.settled = self.settled.max(passed);
    }
}
