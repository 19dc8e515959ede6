//! The environment of a program that cannot have the agent: without our variables.
//!
//! glibc's loader says on standard error which files it was to preload and could not: in a root where the
//! agent's file is not, as another user who may not read it, in a program for another machine. So at an
//! execution of a program that names the agent it is asked whether the file can be read under that name, by
//! the process as it is. If not, the program is executed with a list of variables of which the two are left
//! out. The list is made in memory of the agent's; nothing of the program's is changed, for a child of vfork
//! has its parent's memory and an execution may fail.
//!
//! What a program may be that has given up rights ([`calls`](crate::calls)) is of no more interest, but its
//! executions are looked at even then (`state::BUT_EXECUTIONS`). From a filter of system calls on nothing is.
//! So if the agent could not be loaded just before, the variable is cut there and then, where it stood when
//! the program began.
//!
//! Everything is read and written through the kernel: addresses are the program's.

use crate::arch::{Answer, Frame};
use crate::executions::{ENTRIES, ENTRIES_MOST, Execution, HEAD, PRELOAD, entries, heads_of};
use crate::loader::{OWN_NAME, file_name};
use crate::patch::read_own;
use crate::state::Fixed;
use core::ffi::CStr;
use core::ops::Range;
use core::sync::atomic::Ordering;
use runahead_abi::environment::SESSION;
use runahead_kernel::files::{IoVec, is_readable};
use runahead_kernel::memory::{read_process, write_process};
use runahead_kernel::process::{effective_user, prctl, process_id};
use runahead_kernel::uapi::general as n;
use runahead_kernel::uapi::prctl::{PR_GET_NO_NEW_PRIVS, PR_SET_SYSCALL_USER_DISPATCH};
use runahead_kernel::uapi::ptrace::PTRACE_TRACEME;

/// Longest value of the variable that is looked at.
const VALUE_BYTES: usize = 512;

/// What separates names in the value.
const SEPARATORS: [u8; 2] = *b": ";

/// What an environment says of us.
struct Named {
    /// Number of its entries.
    count: usize,
    /// Which names the agent, and its address; the loader believes the last of several.
    preload: (usize, usize),
    session: Option<usize>,
    /// There is another such variable before it, which comes into force where this one is not.
    has_another: bool,
    /// The value with its end, and where in it the agent's path is.
    value: [u8; VALUE_BYTES],
    bytes: usize,
    path: Range<usize>,
}

impl Named {
    /// None: the environment does not name the agent, or not so that it can be left out.
    fn find(address: usize) -> Option<Named> {
        let (mut count, mut preload, mut session, mut preloads) = (0, None, None, 0);
        for first in (0..ENTRIES_MOST).step_by(ENTRIES) {
            let mut pointers = [0usize; ENTRIES];
            let found = entries(address.wrapping_add(first * size_of::<usize>()), &mut pointers);
            let mut heads = [[0u8; HEAD]; ENTRIES];
            for (index, (head, pointer)) in heads_of(&pointers, found, &mut heads).enumerate() {
                if head.starts_with(SESSION.as_bytes()) {
                    session = Some(first + index);
                } else if head.starts_with(PRELOAD) {
                    preload = Some((first + index, pointer));
                    preloads += 1;
                }
            }
            count += found;
            if found < ENTRIES {
                break;
            }
        }
        Some(Named { has_another: preloads > 1, ..Named::at(count, preload?, session)? })
    }

    /// None: the variable there does not name the agent.
    fn at(count: usize, preload: (usize, usize), session: Option<usize>) -> Option<Named> {
        let mut named = Named {
            count,
            preload,
            session,
            has_another: false,
            value: [0; VALUE_BYTES],
            bytes: 0,
            path: 0..0,
        };
        named.read().then_some(named)
    }

    fn value_at(&self) -> usize {
        self.preload.1.wrapping_add(PRELOAD.len())
    }

    fn read(&mut self) -> bool {
        let local = [IoVec { base: self.value.as_mut_ptr() as usize, length: VALUE_BYTES }];
        let remote = [IoVec { base: self.value_at(), length: VALUE_BYTES }];
        // SAFETY: the local piece is as long as said. What lies behind the string is read as far as it is there.
        let got = unsafe { read_process(process_id(), &local, &remote) }.unwrap_or(0);
        let value = self.value.get(..got).unwrap_or_default();
        let Some(end) = value.iter().position(|&byte| byte == 0) else { return false };
        self.bytes = end;
        let mut begin = 0;
        for path in value.get(..end).unwrap_or_default().split(|byte| SEPARATORS.contains(byte)) {
            if path.starts_with(b"/") && file_name(path) == OWN_NAME {
                self.path = begin..begin + path.len();
                return true;
            }
            begin += path.len() + 1;
        }
        false
    }

    /// Whether the process as it is finds the agent's file.
    fn is_there(&self) -> bool {
        let mut path = [0; VALUE_BYTES];
        let named = self.value.get(self.path.clone()).unwrap_or_default();
        // There is an end behind it: the value has one.
        path.iter_mut().zip(named).for_each(|(to, from)| *to = *from);
        CStr::from_bytes_until_nul(&path).is_ok_and(is_readable)
    }

    /// What is preloaded beside the agent: before it, with a separator, and behind it.
    fn others(&self) -> (&[u8], &[u8]) {
        let before = self.value.get(..self.path.start).unwrap_or_default();
        match self.value.get(self.path.end + 1..self.bytes).unwrap_or_default() {
            [] => (before.split_last().map_or(&[], |(_, names)| names), &[]),
            behind => (before, behind),
        }
    }

    /// A list without our entries in a call's spare memory. None: there is too little of it.
    fn without_us(&self, frame: &Frame, list: usize) -> Option<usize> {
        let (address, bytes) = frame.spare();
        let (before, behind) = self.others();
        let others_bytes = before.len() + behind.len();
        let is_named = others_bytes != 0 || self.has_another;
        let string_bytes = if is_named { PRELOAD.len() + others_bytes + 1 } else { 0 };
        let words = (bytes - VALUE_BYTES - PRELOAD.len() - 1) / size_of::<usize>();
        if self.count >= words {
            return None;
        }
        // SAFETY: memory that nobody uses (`Frame::spare`), aligned to pages; zeros or whatever is there are
        // values of words and bytes. The words and what lies behind them are apart.
        let (list_words, string) = unsafe {
            let words_at = address as *mut usize;
            let string_at = words_at.add(words).cast::<u8>();
            (
                core::slice::from_raw_parts_mut(words_at, words),
                core::slice::from_raw_parts_mut(string_at, bytes - words * size_of::<usize>()),
            )
        };
        let read = list_words.get_mut(..self.count)?;
        // SAFETY: the words, as bytes.
        let read =
            unsafe { core::slice::from_raw_parts_mut(read.as_mut_ptr().cast::<u8>(), size_of_val(read)) };
        if !read_own(list, read) {
            return None;
        }
        let named = if string_bytes == 0 {
            None
        } else {
            let text = PRELOAD.iter().chain(before).chain(behind).chain(&[0]);
            string.get_mut(..string_bytes)?.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
            Some(string.as_ptr() as usize)
        };
        let mut kept = 0;
        for index in 0..self.count {
            let entry = *list_words.get(index)?;
            let stays = match index {
                _ if index == self.preload.0 => named,
                _ if Some(index) == self.session => None,
                _ => Some(entry),
            };
            if let Some(entry) = stays {
                *list_words.get_mut(kept)? = entry;
                kept += 1;
            }
        }
        *list_words.get_mut(kept)? = 0;
        Some(address)
    }

    /// Cuts the agent out of the variable where that stands: the loader passes empty names over.
    fn cut(&self) {
        let separators = [SEPARATORS[0]; VALUE_BYTES];
        let Some(separators) = separators.get(..self.path.len()) else { return };
        let local = [IoVec { base: separators.as_ptr() as usize, length: separators.len() }];
        let remote = [IoVec { base: self.value_at() + self.path.start, length: separators.len() }];
        // SAFETY: bytes of a variable that names us, which has just been read; where they cannot be written to the
        // kernel says so.
        let _ = unsafe { write_process(process_id(), &local, &remote) };
    }
}

/// What is to be asked about an execution beforehand: a tracer that is to go with it lets the process go at
/// any call that does not lead to the execution.
pub struct Asked {
    /// None: the environment does not name the agent.
    named: Option<Named>,
    is_there: bool,
}

/// Looks at the environment of a program that is about to be executed.
pub fn look(execution: &Execution) -> Asked {
    let named = Named::find(execution.environment);
    let is_there = named.as_ref().is_none_or(Named::is_there);
    Asked { named, is_there }
}

/// The process executes something: with our variables, or without them if `fits` is false or the agent's
/// file is not to be found.
pub fn executes(frame: &Frame, execution: &Execution, asked: &Asked, fits: bool) -> Answer {
    let Some(named) = asked.named.as_ref().filter(|_| !fits || !asked.is_there) else {
        return Answer::plain(frame);
    };
    let list = named.without_us(frame, execution.environment);
    list.and_then(|list| Answer::executes_with(frame, list)).unwrap_or_else(|| {
        named.cut();
        Answer::plain(frame)
    })
}

/// A call of a process that has given up rights.
pub fn call(frame: &Frame) -> Answer {
    let (state, a) = (frame.state(), frame.arguments());
    match frame.rax as u32 {
        number @ (n::__NR_execve | n::__NR_execveat) => {
            let execution = Execution::of(number, a);
            executes(frame, &execution, &look(&execution), !is_cut_off(state))
        }
        number if is_filter(number, a[0]) => {
            before_filter(state);
            state.stand_down();
            Answer::plain(frame)
        }
        // Its sites are not rewritten any more: a filter put on from there would not be seen.
        n::__NR_mmap if a[2] as u32 & n::PROT_EXEC != 0 && a[3] as u32 & n::MAP_ANONYMOUS == 0 => {
            before_filter(state);
            state.stand_down();
            Answer::plain(frame)
        }
        // As in `calls`: somebody else is to see each call.
        n::__NR_prctl if a[0] as u32 == PR_SET_SYSCALL_USER_DISPATCH => {
            state.stand_down();
            Answer::plain(frame)
        }
        n::__NR_ptrace if a[0] as u32 == PTRACE_TRACEME => {
            state.stand_down();
            Answer::plain(frame)
        }
        _ => Answer::plain(frame),
    }
}

/// Whether the call may put the process under a filter of system calls.
pub fn is_filter(number: u32, first: usize) -> bool {
    use runahead_kernel::uapi::prctl::PR_SET_SECCOMP;
    number == n::__NR_seccomp || number == n::__NR_prctl && first as u32 == PR_SET_SECCOMP
}

/// The process may be under a filter from now on, and what it executes is not looked at any more.
pub fn before_filter(state: &Fixed) {
    let at = state.preload_at.load(Ordering::Relaxed);
    if at == 0 {
        return;
    }
    let mut name = [0; PRELOAD.len()];
    if !read_own(at, &mut name) || name != *PRELOAD {
        return;
    }
    if let Some(named) = Named::at(0, (0, at), None)
        && (is_cut_off(state) || !named.is_there())
    {
        named.cut();
    }
}

/// What is to be known of the process before it gives up rights for the first time.
pub fn before_giving_up(state: &Fixed) {
    if state.has_given_up.swap(1, Ordering::Relaxed) == 0 {
        state.user.store(effective_user(), Ordering::Relaxed);
        state.had_no_new_privileges.store(has_no_new_privileges().into(), Ordering::Relaxed);
    }
}

/// Whether nothing that the process executes can be served any more: it is allowed less than the host for
/// good, and is not another user, who would have a run of his own.
fn is_cut_off(state: &Fixed) -> bool {
    state.has_given_up.load(Ordering::Relaxed) != 0
        && effective_user() == state.user.load(Ordering::Relaxed)
        && (state.is_in_own_users.load(Ordering::Relaxed) != 0
            || state.had_no_new_privileges.load(Ordering::Relaxed) == 0 && has_no_new_privileges())
}

fn has_no_new_privileges() -> bool {
    // SAFETY: a question.
    let told = unsafe { prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) };
    told == Ok(1)
}
