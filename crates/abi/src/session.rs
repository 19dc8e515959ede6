//! The session: the memory that the programs, the speculators and the host of one `runahead run`
//! share.
//!
//! One memfd, owned by the host. It starts with a [`Header`] of some pages, then [`SLOTS`] slots of
//! [`SLOT_BYTES`]. A process of the program claims a slot at its first stall; a speculator serves one
//! slot. A slot is cut into parts by page, so that each process can map the others' parts read-only:
//!
//! | part | written by | read by |
//! |---|---|---|
//! | [`AgentPart`] | the agent | speculator, host |
//! | [`SpeculatorPart`] | the speculator | agent, host |
//! | [`Log`] | the speculator | agent |
//! | [`Log`] of touches | the speculator | host |
//! | [`FaultPart`] | the host | agent, speculator |
//!
//! Nothing in it is ever trusted: whoever reads a number uses it so that any value does no harm.

use crate::begun;
use crate::check::Checks;
use crate::durations::Durations;
use crate::environment::Cookie;
use crate::executions::{Executions, Latest};
use crate::kin;
use crate::lives::Lives;
pub use crate::log::LANES;
use crate::log::Log;
use crate::names::Ring;
use crate::opened;
use crate::registers::{FaultRegisters, Registers, VECTOR_STATE_BYTES};
use crate::release::{Closings, Holding, Numbers, Releasing};
use crate::trace;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub const MAGIC: u64 = u64::from_le_bytes(*b"RAsess19");

/// Processes that may be attached at a time; more run plainly.
pub const SLOTS: usize = 256;

const PAGE: usize = 4096;

/// Bytes of the header.
pub const HEADER_BYTES: usize = size_of::<Header>();

/// Bytes of one slot, a whole number of pages.
pub const SLOT_BYTES: usize = AGENT_BYTES + SPECULATOR_BYTES + 2 * size_of::<Log>() + size_of::<FaultPart>();
pub const AGENT_BYTES: usize = size_of::<AgentPart>();
pub const SPECULATOR_BYTES: usize = size_of::<SpeculatorPart>();

/// Bytes of the whole session.
pub const SESSION_BYTES: usize = HEADER_BYTES + SLOTS * SLOT_BYTES;

/// Where a slot starts, bytes from the start of the session.
pub const fn slot_offset(slot: usize) -> usize {
    HEADER_BYTES + slot * SLOT_BYTES
}

#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Header {
    pub magic: u64,
    /// What the environment says as well: this is the session that is meant. Written once, before anybody else has it.
    pub cookie: Cookie,
    /// Counts requests to the host; a futex that the host sleeps on.
    pub doorbell: AtomicU32,
    /// Set by the host once the report is out, to one of [`reported`]: futex for agents that wait with their
    /// exit.
    pub reported: AtomicU32,
    /// Process id of the command that was run: its exit is what the report waits for.
    pub main_process: AtomicU32,
    /// Set by the main process's agent when it is about to exit.
    pub main_leaves: AtomicU32,
    /// Set by the main process's agent when nothing comes any more before its exit: whoever is there for it alone
    /// sees its end at once.
    pub main_exits: AtomicU32,
    /// What the main process's agent does with the program: one of [`care`].
    pub care: AtomicU32,
    /// What the run's processes have waited together, ns, until that is enough for somebody to be called
    /// (`runahead_policy::regret`).
    pub waited_ns: AtomicU64,
    /// Who is being loaded.
    pub latest: Latest,
    /// 1: our own files had to be read from the disk, so the host's have to be as well. Said before the
    /// command starts.
    pub is_cold: AtomicU32,
    /// One of [`sites`]: futex for agents that start.
    pub sites: AtomicU32,
    /// Whether the host is there. It says so before it looks at anybody's slot, whose process says first that
    /// it ends, or what else bears nobody: one of the two sees the other.
    pub serves: AtomicU32,
    /// What is remembered of the run, one of [`remembering`].
    pub remembering: AtomicU32,
    /// 1: the main process is to let the host look at what it has opened before it ends.
    pub remembers: AtomicU32,
    /// Files that the host is opening since they were opened in an earlier run, see [`remembering::OVER`]. A
    /// futex.
    pub replaying: AtomicU32,
    /// Openings, at least, that no agent has entered though they were wanted.
    pub openings_missed: AtomicU32,
    /// When an agent has first said [`remembering::OVER`], monotonic ns: nobody waits for the host long after
    /// that.
    pub over_since: AtomicU64,
    pub analysis: AnalysisRequest,
    /// For each slot the process id of the program that it belongs to, or what [`crate::owner`] says.
    pub owners: [AtomicU32; SLOTS],
    /// What the run's processes leave behind for later ones of the same executable.
    pub kin: kin::Table,
    /// Of which executables nearly all processes are left alone ([`crate::environment::flags::LASTING`]).
    pub lives: Lives,
    /// Calls of the run's processes that give something back.
    pub releasing: Releasing,
    /// Files of the programs' that the host holds, and whatever keeps a file system busy: files, directories, look-ups.
    pub host_files: Holding,
    pub host_places: Holding,
    /// Files that have no name any more, of which mappings are watched.
    pub host_nameless: Holding,
    /// Set by an agent that has waited in vain for a speculator, to the number of its slot and one: the host
    /// is to end it.
    pub overdue: AtomicU32,
    /// How often the host has gone round, which shows that it lives. It wraps.
    pub rounds: AtomicU32,
    /// Calls that gave something back although one of ours held it still.
    pub kept_open: AtomicU32,
    /// Not 0: the run is traced. Written once, before anybody else has it.
    pub traces: AtomicU32,
    /// Bytes that the user's limits let a thread ask for ahead of what it reads in order. Written once, as
    /// that.
    pub in_order_most: AtomicU64,
    /// Processes that were left alone.
    pub unseen: Unseen,
    pub holders: Holders,
    /// Programs that are about to be executed.
    pub executions: Executions,
    /// Processes whose code is looked at while they run.
    pub checks: Checks,
}

/// Processes of the run whose calls nobody sees, so that the host looks whether they watch who opens files:
/// their ids as the host knows them, 0: none. Where there are more, later ones take the places of others.
#[repr(C)]
#[derive(Debug)]
pub struct Unseen(pub [AtomicU32; 32]);

impl Unseen {
    /// The process goes on without anybody. Async-signal-safe.
    pub fn note(&self, process: u32) {
        let is_it = |place: &AtomicU32| place.load(Ordering::Relaxed) == process;
        let takes = |place: &AtomicU32| {
            place.compare_exchange(0, process, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if !self.0.iter().any(is_it)
            && !self.0.iter().any(takes)
            && let Some(place) = self.0.get(process as usize % self.0.len())
        {
            place.store(process, Ordering::Relaxed);
        }
    }
}

/// Which speculators hold something of a program's: a page by itself, as each speculator may write to it. (One that runs wild
/// can make others wait there, for a bounded time each, until the host ends it.)
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Holders {
    /// For each slot: its speculator holds files, directories or mappings of its program's. A futex.
    pub speculators: [Holding; SLOTS],
}

impl Holders {
    /// Whether any speculator holds something. A call that gives something back looks at all of them, so without a branch for each.
    pub fn is_any(&self) -> bool {
        self.speculators.iter().fold(0, |all, holding| all | holding.0.load(Ordering::Acquire)) != 0
    }
}

/// Where [`Lives`] lies, bytes from the start of the session.
pub const LIVES_AT: usize = core::mem::offset_of!(Header, lives);

/// Where [`Holders`] lies, bytes from the start of the session.
pub const HOLDERS_AT: usize = core::mem::offset_of!(Header, holders);
pub const HOLDERS_BYTES: usize = size_of::<Holders>();

/// One mailbox in which agents ask for executable files to be analysed, one at a time.
#[repr(C)]
#[derive(Debug)]
pub struct AnalysisRequest {
    /// Process id of the agent that holds the mailbox, 0 free. Taken by compare-and-swap; futex for agents
    /// that wait for their turn.
    pub holder: AtomicU32,
    /// 0 empty, 1 asked, 2 answered, [`ANALYSIS_GIVEN_UP`], [`ANALYSIS_CLOSED`]: futex for both sides.
    pub state: AtomicU32,
    /// The path, zero-terminated.
    pub path: [AtomicU64; 128],
}

/// Who has asked for an analysis has waited in vain: the mailbox stays taken, so that nobody else waits, until
/// the host comes to it.
pub const ANALYSIS_GIVEN_UP: u32 = 3;

/// Nobody answers any more.
pub const ANALYSIS_CLOSED: u32 = 4;

/// What stopped the program when it posted.
pub mod stalled {
    /// A read-type call at the registers' `rip`; the speculator acts as if it had returned.
    pub const READ: u32 = 1;
    /// A call that looks a name up.
    pub const NAME: u32 = 2;
}

/// Hands the state of one stalled thread over, and says how far that thread has come. Written by the agent:
/// by the thread whose lane it is, or by one that takes it over.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct LanePost {
    /// Operations of the lane's log that the thread has passed in the present epoch.
    pub passed: AtomicU32,
    pub _gap0: [u32; 15],
    /// Twice the epoch of the latest post; odd while it is being written. Epochs are the process's: no two
    /// lanes have the same one.
    pub posted: AtomicU32,
    /// One of [`holding`]: while the thread waits the speculator must wake it.
    pub holding: AtomicU32,
    /// Stop hinting until the next post: the thread has gone another way in this epoch.
    pub cancelled: AtomicU32,
    /// One of [`stalled`].
    pub reason: AtomicU32,
    /// Thread that posted.
    pub thread: AtomicU32,
    /// The lane's epoch before, and what `passed` was in the end of it.
    pub epoch_before: AtomicU32,
    pub passed_before: AtomicU32,
    /// What [`AgentPart::voids`] was at the post.
    pub posted_voids: AtomicU32,
    /// The descriptor's position where the stalled read starts (-1: not known).
    pub position: AtomicU64,
    /// The program break.
    pub program_break: AtomicU64,
    /// Names that the agent had counted by the post.
    pub names_before: AtomicU64,
    pub registers: SharedRegisters,
    pub vector_state: VectorState,
}

/// The speculator's answer to a [`LanePost`].
#[repr(C, align(64))]
#[derive(Debug)]
pub struct LaneAnswer {
    /// Latest epoch whose post was taken. A thread that has gone on since a post that was not posts anew.
    pub taken: AtomicU32,
    /// Latest epoch whose sync is complete. Futex for a thread that holds.
    pub synced: AtomicU32,
    /// Latest epoch whose speculation has settled: it has run for some operations, so that the pages that it
    /// touches are there, or it has ended. Stored while the thread waits for it. Futex.
    pub settled: AtomicU32,
    /// Operations written to the lane's log in the present epoch.
    pub written: AtomicU32,
    /// When `passed` reaches this, wake the speculator; 0: it does not sleep over this lane.
    pub wake_at: AtomicU32,
    /// Latest epoch in which nothing more will be written.
    pub over: AtomicU32,
}

#[repr(C, align(4096))]
#[derive(Debug)]
pub struct AgentPart {
    /// Counts what there is for the speculator: posts, cancellations, operations passed that it waits for. A
    /// futex, the one that it sleeps on.
    pub bell: AtomicU32,
    pub _gap0: [u32; 15],
    /// One of [`retire`]: the speculator shall end, for good.
    pub retire: AtomicU32,
    /// The program has stalled on a read: it is worth a speculator.
    pub speculator_wanted: AtomicU32,
    /// Number of this slot, for [`Holders`].
    pub number: AtomicU32,
    /// Changes when all that was posted so far is void: the program becomes another one.
    pub voids: AtomicU32,
    /// Closings of descriptors begun so far, see [`crate::release`].
    pub closings: Closings,
    /// Descriptors that the program waits with closing until the speculator holds none of them, and how often one was added.
    pub closing: Numbers,
    pub closing_requests: AtomicU32,
    /// The program's page faults are worth watching: one of [`watch`].
    pub watch_wanted: AtomicU32,
    /// The thread because of which, and the base of its local storage, which the kernel's records leave out.
    pub watch_thread: AtomicU32,
    pub watch_thread_base: AtomicU64,
    /// The program break at the latest post.
    pub program_break: AtomicU64,
    /// Address of the agent's state page in the program, see `agent::state`.
    pub state_address: AtomicU64,
    /// What is found at that address, to recognise the process across pid namespaces.
    pub state_cookie: AtomicU64,
    /// The latest mismatch: what the program did and what the log had said, each as kind, subject, detail
    /// and place.
    pub mismatch: [AtomicU64; 8],
    /// What a stall takes at present, ns (`policy::hold`); 0: none has ended yet.
    pub expected_stall_ns: AtomicU64,
    /// What is asked for in vain was seen to stand in line before the program's own requests (`policy::toll`).
    pub is_crowded: AtomicU32,
    // ---- counts, only ever growing
    pub counts: AgentCounts,
    // ---- directories whose names are cold, and files that the program waits for
    pub names: Ring,
    // ---- files that the program begins to read, while the host wants to know (`SpeculatorPart::companions`)
    pub begun: begun::Ring,
    // ---- names that the program opens, while the host wants to know (`Header::remembering`)
    pub opened: opened::Ring,
    pub snapshot: Snapshot,
    pub lanes: [LanePost; LANES],
    // ---- what a traced run leaves
    pub trace: trace::Ring<{ trace::AGENT_EVENTS }>,
}

/// Bytes of a thread's stack that a [`Snapshot`] has at most: more would make the agent's block larger than
/// [`crate::environment::least`] allows.
pub const SNAPSHOT_STACK: usize = 3 * PAGE;

/// What of the stack is in a [`Snapshot`] begins so many bytes below the stack pointer: as many as a function
/// may use there (System V ABI, x86-64).
pub const SNAPSHOT_BELOW: usize = 128;

/// Where a thread was, about to make a call: speculation may begin there later on, where nobody sees the page
/// faults in which the thread waits. What it has on its stack changes meanwhile, so that was copied; the copy
/// is in the program's own memory, which not everybody who has the session may read. Written by the agent, by
/// one thread at a time.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Snapshot {
    /// Twice its number; odd while it is being written, see [`crate::post`].
    pub taken: AtomicU32,
    pub thread: AtomicU32,
    /// What [`AgentPart::voids`] was.
    pub voids: AtomicU32,
    /// Bytes of the stack that were copied, 0 if none could be, from where, and where the copy is.
    pub stack_bytes: AtomicU32,
    pub stack_from: AtomicU64,
    pub stack_copy: AtomicU64,
    pub registers: SharedFaultRegisters,
}

/// The registers in shared memory. Plain words behind an `UnsafeCell`: written by the agent between
/// the two stores of `posted`, read by the speculator and believed only if `posted` did not change.
#[repr(C)]
#[derive(Debug)]
pub struct SharedRegisters(pub core::cell::UnsafeCell<Registers>);

// SAFETY: readers copy the words with volatile reads and discard them if the epoch changed meanwhile.
unsafe impl Sync for SharedRegisters {}

#[repr(C, align(64))]
#[derive(Debug)]
pub struct VectorState(pub core::cell::UnsafeCell<[u8; VECTOR_STATE_BYTES]>);

// SAFETY: as for `SharedRegisters`.
unsafe impl Sync for VectorState {}

/// The agent's counts. Times in ns, sizes in bytes.
#[repr(C)]
#[derive(Debug, Default)]
pub struct AgentCounts {
    /// Read-type calls seen on regular files while active.
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    /// Of those, calls that the log foretold.
    pub reads_hinted: AtomicU64,
    pub read_bytes_hinted: AtomicU64,
    /// Foretold reads for which a prefetch had been issued and that found everything there.
    pub full: AtomicU64,
    /// Foretold reads whose prefetch was still in flight.
    pub partial: AtomicU64,
    /// Calls that had to wait for the disk (partial ones included), and the time, an upper bound: it
    /// ends at the program's next call.
    pub stalls: AtomicU64,
    pub stall_ns: AtomicU64,
    /// Of that the time of those for which nothing had been asked ahead.
    pub whole_stall_ns: AtomicU64,
    /// Look-ups of names and listings that the agent saw, those that had to wait for the disk, and the time
    /// of these.
    pub names: AtomicU64,
    pub name_stalls: AtomicU64,
    pub name_stall_ns: AtomicU64,
    /// Listings among them.
    pub listings: AtomicU64,
    pub posts: AtomicU64,
    pub post_ns: AtomicU64,
    pub post_lengths: Durations,
    pub holds: AtomicU64,
    pub hold_ns: AtomicU64,
    /// Times that the log was found wrong.
    pub mismatches: AtomicU64,
    /// Stalls at which the log was merely empty.
    pub lags: AtomicU64,
    /// Of files that are read in order: bytes asked for ahead that were not there; windows of the kernel's
    /// read-ahead of these that were gone through without a wait, and what that has spared, ns.
    pub in_order_bytes: AtomicU64,
    pub in_order: AtomicU64,
    pub in_order_ns: AtomicU64,
    /// Waits for these, and the time; not among the stalls, from which it is judged what speculation is
    /// worth.
    pub in_order_stalls: AtomicU64,
    pub in_order_stall_ns: AtomicU64,
}

impl AgentCounts {
    /// How often the process has waited for a read.
    pub fn all_stalls(&self) -> u64 {
        let [stalls, in_order] =
            [&self.stalls, &self.in_order_stalls].map(|count| count.load(Ordering::Relaxed));
        stalls.wrapping_add(in_order)
    }

    /// What prefetches have spared, ns: full ones whole stalls, partial ones what they were shorter by.
    pub fn saved_ns(&self) -> u64 {
        let [full, partial, stalls, all_ns, whole_ns] =
            [&self.full, &self.partial, &self.stalls, &self.stall_ns, &self.whole_stall_ns]
                .map(|count| count.load(Ordering::Relaxed));
        let whole = whole_ns.checked_div(stalls.saturating_sub(partial)).unwrap_or(0);
        let shortened = whole.saturating_mul(partial).saturating_sub(all_ns.saturating_sub(whole_ns));
        full.saturating_mul(whole).saturating_add(shortened)
    }
}

#[repr(C, align(4096))]
#[derive(Debug)]
pub struct SpeculatorPart {
    /// One of [`activity`]. A futex for a program that has asked the speculator to end.
    pub activity: AtomicU32,
    /// What the latest sync cost, ns: the agent's estimate for a hold.
    pub sync_cost_ns: AtomicU64,
    /// Why the latest speculation ended: one of [`ended`].
    pub ended: AtomicU32,
    /// The latest system call that ended a speculation because it is not known to be harmless.
    pub ended_by: AtomicU32,
    /// For a fault: the instruction and the address that it touched.
    pub fault_instruction: AtomicU64,
    pub fault_address: AtomicU64,
    pub counts: SpeculatorCounts,
    /// Written by the host: one of [`names_ahead`]. A futex for a program that has asked it to end that.
    pub names_ahead: AtomicU32,
    /// Written by the host: one of [`companions`].
    pub companions: AtomicU32,
    /// Latest fault post (its epoch) whose sync is complete.
    pub fault_synced: AtomicU32,
    /// The fault epoch, if any, whose speculation ran into a scan.
    pub fault_scan: AtomicU32,
    /// Touches written in the present fault epoch.
    pub touched: AtomicU32,
    /// `st_dev` of the file that was asked for last; 0: none yet.
    pub device: AtomicU64,
    /// `st_dev` of the file system behind which a FUSE server was met last; 0: none.
    pub server: AtomicU64,
    /// Bytes that devices have delivered for the speculator.
    pub delivered: AtomicU64,
    /// Written by the host.
    pub allowance: Allowance,
    /// Descriptors of the program's behind which the speculator holds the same file.
    pub held: Numbers,
    /// Changes when one of those was let go on request. A futex for the program that waits with closing it.
    pub let_go: AtomicU32,
    /// Names that the speculator has waited for.
    pub names: Ring,
    pub lanes: [LaneAnswer; LANES],
    /// What a traced run leaves.
    pub trace: trace::Ring<{ trace::SPECULATOR_EVENTS }>,
}

/// What a speculator may ask for. 0: no limit.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Allowance {
    /// Requests and pages that are asked for and that the program has not passed.
    pub requests: AtomicU32,
    pub pages: AtomicU32,
    pub bytes_a_second: AtomicU64,
    /// Not 0: nothing at all, as speculation has cost more memory than it was worth. The speculator is gone then.
    pub off: AtomicU32,
    /// Times that it was so, and for how long, ns.
    pub pauses: AtomicU64,
    pub paused_ns: AtomicU64,
    /// Stalls that prefetching is taken to have removed and added.
    pub stalls_removed: AtomicU64,
    pub stalls_added: AtomicU64,
    /// Processor time of speculators before the present one, ns.
    pub processor_before_ns: AtomicU64,
    /// Numbers of the latest posts, of reads in each lane and of faults, that were made before the present
    /// speculator: the program has gone on long since.
    pub stale_posts: [AtomicU32; LANES],
    pub stale_fault: AtomicU32,
}

/// What the host does about the names that a process looks up.
pub mod names_ahead {
    /// Nothing at present.
    pub const IDLE: u32 = 0;
    /// It looks up names ahead of the process, and wants to know of each look-up.
    pub const BUSY: u32 = 1;
    /// It has stopped for good, on request or since it does not pay, and holds no directory open.
    pub const GONE: u32 = 2;
    /// Nothing on the file system where the process was met last. A note in a while tells whether it is
    /// elsewhere.
    pub const LEFT: u32 = 3;
}

/// What the agent does with a program.
pub mod care {
    /// There is none, or none that has begun.
    pub const NONE: u32 = 0;
    /// It looks at its calls.
    pub const HELPED: u32 = 1;
    /// It leaves it alone from its start on, as some of its code makes, or may make, calls that nobody can see.
    pub const BLIND_AT_START: u32 = 2;
    /// The same, as some of its code could not be analysed: it has just been written, say.
    pub const UNKNOWN_AT_START: u32 = 3;
    /// It leaves it alone since it has loaded code of either kind.
    pub const BLIND_LATER: u32 = 4;
    /// It leaves it alone since the check ([`crate::check`]) has found code whose sites would have had to be
    /// rewritten at the start.
    pub const NOT_READY: u32 = 5;
    /// It leaves it alone since that has given up rights.
    pub const WITHOUT_RIGHTS: u32 = 6;
}

/// What a main process that waits with its exit is told.
pub mod reported {
    pub const NOT_YET: u32 = 0;
    pub const DONE: u32 = 1;
    /// It has other threads, which run on behind what it does at its exit: it is not to wait for anything
    /// more.
    pub const DONE_WITH_THREADS: u32 = 2;
}

/// Whose openings of files the host wants to hear of, so that the next run of the command begins with them.
pub mod remembering {
    /// Nobody's.
    pub const NOTHING: u32 = 0;
    /// Those of processes that have waited for the disk, from then on.
    pub const WAITING: u32 = 1;
    /// All.
    pub const ALL: u32 = 2;
    /// Nobody's any more; nor does the host open what was opened in an earlier run: it counts in
    /// [`super::Header::replaying`] what it is about to open and then looks at this, and whoever says this
    /// then looks at that.
    pub const OVER: u32 = crate::opened::OVER;
}

/// Why nobody is to look at files on the program's behalf any more.
pub mod retire {
    pub const NOT: u32 = 0;
    /// It does something that bears no onlooker, or ends.
    pub const BEARS_NOBODY: u32 = 1;
    /// It has asked to be told who opens files: other programs of the run are not to be guessed for either.
    pub const WATCHES: u32 = 2;
}

/// What the host wants to know of the files that a process begins to read.
pub mod companions {
    /// Those that it waits for.
    pub const WAITS: u32 = 0;
    /// All of them: it has asked for some on a guess.
    pub const ALL: u32 = 1;
    /// None: it has stopped for good.
    pub const NONE: u32 = 2;
}

/// Whether the site file's descriptor, whose number the environment says, is the site file's.
pub mod sites {
    /// Not yet.
    pub const OPENING: u32 = 0;
    pub const THERE: u32 = 1;
    /// It never will be.
    pub const NONE: u32 = 2;
}

/// What a program waits for at a post.
pub mod holding {
    pub const NOTHING: u32 = 0;
    /// `synced` reaching the epoch.
    pub const SYNC: u32 = 1;
    /// `settled` reaching the epoch.
    pub const SETTLED: u32 = 2;
}

/// What a speculator is doing.
pub mod activity {
    /// Nobody has begun to start one.
    pub const NONE: u32 = 0;
    pub const STARTING: u32 = 5;
    /// Waits for a post.
    pub const IDLE: u32 = 1;
    pub const RUNNING: u32 = 2;
    /// Far enough ahead; sleeps until the program has come closer.
    pub const AHEAD: u32 = 3;
    /// Will not serve any more.
    pub const GONE: u32 = 4;
}

/// Exit statuses of a speculator that cannot begin.
pub mod speculator_exit {
    pub const USAGE: i32 = 2;
    pub const NO_MEMORY: i32 = 3;
    pub const NOT_THE_PROGRAM: i32 = 4;
    pub const NO_MIRROR: i32 = 5;
    pub const NO_SANDBOX: i32 = 6;
    pub const PANIC: i32 = 7;
    pub const OTHER_RIGHTS: i32 = 8;
    /// The kernel does not tell what of the program's memory may be copied.
    pub const NOTHING_TOLD: i32 = 9;
    /// The program has something where the speculator has to be.
    pub const TAKEN: i32 = 10;
    pub const TOO_MANY_MAPPINGS: i32 = 11;
    pub const NO_ADDRESSES: i32 = 12;
    /// The kernel lets it read no other process.
    pub const NOTHING_READ: i32 = 13;
    /// Said by who was to become it.
    pub const NOT_EXECUTED: i32 = 14;
}

/// Why a speculation ended.
pub mod ended {
    pub const NOT_YET: u32 = 0;
    /// The program posted anew.
    pub const OVERTAKEN: u32 = 1;
    /// The program went another way.
    pub const CANCELLED: u32 = 2;
    /// A system call that is not known to be harmless (`ended_by`: its number).
    pub const SYSTEM_CALL: u32 = 3;
    /// A signal: a wild jump, a bad address .
    pub const FAULT: u32 = 4;
    /// It ran on without meeting a read for too long.
    pub const TIME: u32 = 5;
    /// The program would exit here.
    pub const EXIT: u32 = 6;
    /// The mirror reached its bound.
    pub const MEMORY: u32 = 7;
    /// A descriptor that is not (any more) what it was.
    pub const DESCRIPTOR: u32 = 8;
    /// It would wait here for something that only the program can bring about.
    pub const WAITS: u32 = 9;
    /// Pages of a mapped file one after the other: read-ahead's business.
    pub const SCAN: u32 = 10;
    /// Something is given back, or the program stands still for long: nothing of its may be held.
    pub const RELEASED: u32 = 11;
    /// More names were changed than are kept in mind.
    pub const NAMES: u32 = 12;
    /// Another thread of the program has stalled, and it is its turn.
    pub const TURN: u32 = 13;
    pub const COUNT: usize = 14;
}

#[repr(C)]
#[derive(Debug, Default)]
pub struct SpeculatorCounts {
    pub syncs: AtomicU64,
    pub sync_ns: AtomicU64,
    /// Pages of the mirror that were filled, and refreshed at syncs.
    pub pages_filled: AtomicU64,
    pub pages_refreshed: AtomicU64,
    /// Greatest number of pages held at a time.
    pub pages_most: AtomicU64,
    /// Blocks of mapped files that were mapped rather than copied page by page.
    pub views: AtomicU64,
    /// What it took to look at blocks and to map them, ns.
    pub view_ns: AtomicU64,
    /// Reads that speculation met, and of them those that needed a prefetch.
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub prefetches: AtomicU64,
    /// Pages asked for.
    pub prefetched_pages: AtomicU64,
    /// Of those, pages that neither the program reached nor a later speculation used.
    pub unused_pages: AtomicU64,
    /// Pages of which that is not known yet.
    pub open_pages: AtomicU64,
    /// Names that the program has passed, as speculation and the reads that it has passed tell, and that the agent has
    /// not counted.
    pub names_passed: AtomicU64,
    /// Notes of names that the speculator has waited for.
    pub names_noted: AtomicU64,
    pub system_calls: AtomicU64,
    /// Of those, calls that came through a signal (unpatched sites).
    pub trapped_calls: AtomicU64,
    pub signals: AtomicU64,
    pub processor_ns: AtomicU64,
    /// Speculations by how they ended, indexed by [`ended`].
    pub endings: [AtomicU64; ended::COUNT],
    /// Those that a system call ended, by its number.
    pub calls: CallCounts,
}

/// Numbers of system calls that are counted apart: more than there are.
pub const CALL_NUMBERS: usize = 512;

/// A count for each system call.
#[repr(C)]
#[derive(Debug)]
pub struct CallCounts(pub [AtomicU32; CALL_NUMBERS]);

impl Default for CallCounts {
    fn default() -> CallCounts {
        CallCounts([const { AtomicU32::new(0) }; CALL_NUMBERS])
    }
}

/// What the host writes about the process's page faults.
#[repr(C, align(4096))]
#[derive(Debug, Default)]
pub struct FaultPart {
    /// One of [`watching`]. A futex for a program that has asked for the end of it.
    pub watching: AtomicU32,
    /// Why the faults cannot be seen by perf events, and not by what is present either: error numbers, 0 for
    /// none.
    pub refused: AtomicU32,
    pub pagemap_refused: AtomicU32,
    /// How they are seen, one of [`seen_by`].
    pub seen_by: AtomicU32,
    /// Times that watching began.
    pub armed: AtomicU64,
    /// Faults seen while armed, pages asked for because of them, and waits that these have spared the program.
    pub faults: AtomicU64,
    pub asked: AtomicU64,
    pub useful: AtomicU64,
    /// Pages that had been asked for so and that the program has come to.
    pub used: AtomicU64,
    /// Touches of the present fault epoch that the program has passed. A futex for a speculator that is far ahead.
    pub passed: AtomicU32,
    /// Twice the epoch of the latest post of a fault, see [`crate::post`]. The speculator is woken through
    /// `AgentPart::bell`, which it sleeps on.
    pub posted: AtomicU32,
    /// Posts need a speculator.
    pub speculator_wanted: AtomicU32,
    /// Missing pages of which the speculator may be ahead; 0: nobody reads what it writes, and a speculation from a fault is
    /// to end.
    pub ahead: AtomicU32,
    /// Pages that a speculation from a fault may copy of the program's memory while some of that is on swap; 0: nothing
    /// is, or nobody looks; [`NO_ROOM`]: something is, and is not brought in.
    pub room: AtomicU32,
    /// Why what is on swap cannot be brought in: an error number, 0 for none.
    pub swap_refused: AtomicU32,
    pub posts: AtomicU64,
    /// [`AgentPart::voids`] at the latest post.
    pub posted_voids: AtomicU32,
    /// The thread whose fault, or whose snapshot, it was.
    pub thread: AtomicU32,
    /// Number of the [`Snapshot`] that was posted; 0: it was a fault.
    pub snapshot: AtomicU32,
    /// How often a snapshot was asked for: the next read, or mapping of a file, that is looked at leaves one,
    /// once.
    pub snapshots_wanted: AtomicU32,
    /// Pages that speculation had asked for and the program then reached.
    pub foretold: AtomicU64,
    pub registers: SharedFaultRegisters,
}

/// What is on swap stays there: there is no room for it, or nobody may bring it in. See [`FaultPart::room`].
pub const NO_ROOM: u32 = 1;

/// As [`SharedRegisters`], of a fault, or at a call.
#[repr(C)]
#[derive(Debug, Default)]
pub struct SharedFaultRegisters(pub core::cell::UnsafeCell<FaultRegisters>);

// SAFETY: as for `SharedRegisters`.
unsafe impl Sync for SharedFaultRegisters {}

/// Why a program's page faults are worth watching.
pub mod watch {
    pub const NOT: u32 = 0;
    /// It has much memory of its own, and there is swap: once some of it is there.
    pub const MEMORY: u32 = 1;
    /// It has mapped a large file, or is large itself and was loaded from a disk: at once.
    pub const FILE: u32 = 2;
}

/// What the host does about the page faults of a process.
pub mod watching {
    /// None of the program's files is open, and none will be once [`super::AgentPart::retire`] is set.
    pub const NOT_YET: u32 = 0;
    /// Said before it begins, and before it looks at `retire` for the last time: who sets that and does not find this has
    /// nobody to wait for.
    pub const ON: u32 = 1;
    /// It has stopped for good and holds none of the program's files open.
    pub const GONE: u32 = 2;
}

/// How the host sees the page faults of a process.
pub mod seen_by {
    pub const NOBODY: u32 = 0;
    /// Perf events record each.
    pub const EVENTS: u32 = 1;
    /// `/proc/PID/pagemap` tells what is present afterwards.
    pub const PAGEMAP: u32 = 2;
}

/// A slot, as the agent sees it.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    pub agent: AgentPart,
    pub speculator: SpeculatorPart,
    pub log: Log,
    pub touches: Log,
    pub faults: FaultPart,
}

const _: () = assert!(HOLDERS_AT == PAGE && size_of::<Header>() == 8 * PAGE);
const _: () = assert!(size_of::<AgentPart>() == 15 * PAGE + 8 * PAGE);
const _: () = assert!(size_of::<SpeculatorPart>() == 3 * PAGE + 4 * PAGE);
const _: () = assert!(size_of::<FaultPart>() == PAGE);
const _: () = assert!(size_of::<Slot>() == SLOT_BYTES);
