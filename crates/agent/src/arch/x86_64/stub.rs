//! x86-64: the stub of a site.
//!
//! # A rewritten site
//! ```text
//! before: mov eax, NUMBER       after: jmp stub
//!         syscall                      syscall          <- the stub jumps here ("plain") ...
//!         cmp rax, -4096               cmp rax, -4096   <- ... or the agent here ("done")
//! ```
//! The stub may use rcx, r11 and the flags: the `syscall` destroys the first two by itself, and the
//! site file only lists sites after which the flags are dead. It must not touch anything else, the red
//! zone below the stack pointer included.
//!
//! Who hooks a function writes a jump over its beginning and calls a copy of what stood there. Where the
//! `syscall` lies so near to the beginning that it is written over as well ([`HOOK_BYTES`]), the copied jump
//! leads to a stub whose way back is gone. So such a stub has a *tail*: it looks whether the `syscall` is
//! still there; if not it makes the call itself, does what stood behind, and goes on where nothing is
//! written over.
//!
//! Stubs near the agent's own code lie in its pool, a part of its image: unwinders find its unwind
//! information there as for any code, and everything of ours has its place before the program's first
//! instruction.

use super::SYSCALL_BYTES;
use super::any_call::{any_call_address, any_call_back_address};
use super::cancellation::{cancellation_address, cancellation_back_address};
use crate::state::Fixed;
use core::arch::global_asm;
use core::mem::offset_of;
use runahead_abi::sites::SHORT_BRANCH;
use runahead_kernel::PAGE;

/// Bytes of one stub with its description.
pub const STUB_BYTES: usize = 128;
/// Where in a stub its [`Description`] lies.
pub const DESCRIPTION_AT: usize = 64;

/// Bytes of the pool: 128 pages, of which each file with sites takes one at least. Untouched ones cost
/// nothing.
pub const POOL_BYTES: usize = 512 * 1024;

/// Bytes of a conditional jump with a distance of four bytes.
const LONG_BRANCH: usize = 6;

/// Bytes that are rewritten together, in one store.
pub const CODE_BYTES: usize = 8;

/// What a stub hands to the agent, and how to undo it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Description {
    /// Address of the `syscall` instruction.
    pub syscall_address: usize,
    /// For the speculator: this site is the agent's own.
    pub owner: u64,
    pub state: *const Fixed,
    /// Not 0: the agent makes the call itself and measures it.
    pub measured: u16,
    /// Bytes from where the program goes on to make the call to where it goes on if the agent has made it. 0: the
    /// agent makes no call in the program's stead ([`write_stub_ahead`]).
    pub behind: u16,
    /// Bytes from the `syscall` to where the program goes on to make the call: 0, or to the stub's own way
    /// back ([`write_stub_ahead`]) or tail.
    pub detour: i32,
    pub site: Patch,
    /// The padding that a short site jumps through; address 0: there is none.
    pub padding: Patch,
}

/// Eight bytes of code that were rewritten, or are to be.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Patch {
    pub address: usize,
    pub before: [u8; CODE_BYTES],
}

impl Description {
    pub fn new(
        state: *const Fixed,
        syscall_address: usize,
        measured: bool,
        site: Patch,
        padding: Patch,
    ) -> Self {
        Description {
            syscall_address,
            owner: 0,
            state,
            measured: u16::from(measured),
            behind: SYSCALL_BYTES as u16,
            detour: 0,
            site,
            padding,
        }
    }
}

/// What a stub does first: it brings the system call's number into eax.
#[derive(Clone, Copy)]
pub enum Load<'a> {
    /// `mov eax, NUMBER`.
    Number(u16),
    /// The site's own instruction, which may stand anywhere and does that, or comes after it.
    Displaced(&'a [u8]),
    /// Instructions that may stand anywhere, then a conditional jump of two bytes: where it is not taken eax
    /// holds the number. `end`: where the jump ends at the site.
    Branched { before: &'a [u8], jump: [u8; SHORT_BRANCH], end: usize },
    /// The same, where eax holds the number if the jump is taken.
    Taken { before: &'a [u8], jump: [u8; SHORT_BRANCH], end: usize },
}

/// Which calls of a site may pass unseen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sampled {
    Never,
    /// While the agent is calm.
    Calm,
    /// While nobody wants to know what is opened.
    Openings,
    /// Any call is made there: its number says it (`super::by_number`).
    ByNumber,
}

impl Sampled {
    /// Where in [`Fixed`] it is counted how many may.
    const fn place(self) -> Option<u8> {
        match self {
            Sampled::Never | Sampled::ByNumber => None,
            Sampled::Calm => Some(offset_of!(Fixed, calm) as u8),
            Sampled::Openings => Some(offset_of!(Fixed, openings) as u8),
        }
    }

    /// Where in [`Fixed`] it stands where the others enter.
    const fn entry(self) -> u8 {
        match self {
            Sampled::ByNumber => offset_of!(Fixed, entry_by_number) as u8,
            _ => offset_of!(Fixed, entry) as u8,
        }
    }
}

/// Writes a stub at `at`, with a tail if there is one and room for it. False if the site's `syscall` is out of a
/// near jump's reach, or the instruction too long.
pub fn write_stub(
    at: &mut [u8; STUB_BYTES],
    load: Load,
    description: &Description,
    sampled: Sampled,
    tail: Option<Tail>,
) -> bool {
    // What stands behind the `syscall` may be too long to be done in the stub, and not be written over.
    let near = tail.map(|tail| Tail { code: &[], ..tail });
    let mut tails = [tail, near].into_iter().flatten();
    tails.any(|tail| write_with_tail(at, load, description, sampled, &tail))
        || write_without_tail(at, load, description, sampled)
}

fn write_without_tail(
    at: &mut [u8; STUB_BYTES],
    load: Load,
    description: &Description,
    sampled: Sampled,
) -> bool {
    let base = at.as_ptr() as usize;
    let mut code = Code { bytes: at, length: 0 };
    if !code.put_load(base, load) {
        return false;
    }
    code.put(&[0x49, 0xbb]); // mov r11, state
    code.put(&(description.state as usize).to_le_bytes());
    if let Some(place) = sampled.place() {
        code.put(&[0x41, 0xff, 0x4b, place]); // dec dword [r11 + place]
        code.put(&[0x78, 5]); // js over the jump
        let next = base + code.length + 5;
        let Ok(distance) = i32::try_from(description.syscall_address as i64 - next as i64) else {
            return false;
        };
        code.put(&[0xe9]); // jmp syscall
        code.put(&distance.to_le_bytes());
    }
    code.put(&[0x48, 0x8d, 0x0d]); // lea rcx, [description]
    code.put_distance_to_description();
    code.put(&[0x41, 0xff, 0x63, sampled.entry()]); // jmp [r11 + entry]
    code.describe(description)
}

/// Bytes from a function's beginning within which a hook may write over it: a far jump has 14, and may stand
/// behind the 4 to which indirect branches are to lead.
pub const HOOK_BYTES: usize = 18;

/// Where a hook of 14 bytes that begins at the function's first has ended.
const LEFT_FROM: usize = 14;

/// What stands behind a `syscall`, as it can be done elsewhere.
#[derive(Clone, Copy)]
pub struct Tail<'a> {
    /// The bytes behind the `syscall`, as many as are known; none: the program goes on there.
    pub code: &'a [u8],
    /// Bytes from the function's beginning to them.
    pub into_function: usize,
}

/// Bytes of the look whether the `syscall` is still there: a comparison and a jump.
const LOOK_BYTES: usize = 15;

fn write_with_tail(
    at: &mut [u8; STUB_BYTES],
    load: Load,
    description: &Description,
    sampled: Sampled,
    tail: &Tail,
) -> bool {
    const SYSCALL: [u8; SYSCALL_BYTES] = [0x0f, 0x05];
    let base = at.as_ptr() as usize;
    let mut code = Code { bytes: at, length: 0 };
    if !code.put_load(base, load) {
        return false;
    }
    code.put(&[0x48, 0x8d, 0x0d]); // lea rcx, [description]
    code.put_distance_to_description();
    code.put(&[0x4c, 0x8b, 0x59, offset_of!(Description, state) as u8]); // mov r11, [rcx + state]
    if let Some(place) = sampled.place() {
        code.put(&[0x41, 0xff, 0x4b, place]); // dec dword [r11 + place]
        code.put(&[0x79, 4]); // jns over the jump, to the tail
    }
    code.put(&[0x41, 0xff, 0x63, sampled.entry()]); // jmp [r11 + entry]
    let tail_at = code.length;
    let [low, high] = SYSCALL;
    code.put(&[0x66, 0x81, 0x3d]); // cmp word [syscall], the bytes of one
    // The distance counts from the instruction's end.
    let is_near = code.put_distance(base, description.syscall_address, SYSCALL_BYTES);
    code.put(&[low, high]);
    code.put(&[0x0f, 0x84]); // je syscall
    if !is_near || !code.put_distance(base, description.syscall_address, 0) {
        return false;
    }
    if code.length != tail_at + LOOK_BYTES {
        return false;
    }
    code.put(&SYSCALL);
    let detour = i32::try_from((base + tail_at) as i64 - description.syscall_address as i64);
    let (Ok(detour), true) = (detour, code.put_tail(base, description.syscall_address + SYSCALL_BYTES, tail))
    else {
        return false;
    };
    code.describe(&Description { detour, behind: (LOOK_BYTES + SYSCALL_BYTES) as u16, ..*description })
}

/// A site at which a call is seen ahead of the place where it is made.
pub struct Ahead<'a> {
    pub way: Way,
    /// The site's own instructions, which may stand anywhere.
    pub displaced: &'a [u8],
    /// Where the program goes on behind them.
    pub onward: usize,
}

/// Where number and arguments of such a call are.
#[derive(Clone, Copy)]
pub enum Way {
    /// At the place where all calls are made that may be cancelled ([`super::cancellation`]).
    Cancellable,
    /// They are those of a function that makes any call ([`super::any_call`]).
    Any,
}

/// Where in such a stub the way onward begins.
pub const ONWARD_AT: usize = 34;

/// Writes the stub of a site at which a call is seen ahead. It has a way there, with r10 = description, one
/// back, with rcx = description, and one onward, with the site's registers but for r10, r11 and the flags.
/// False if something is out of reach.
pub fn write_stub_ahead(at: &mut [u8; STUB_BYTES], ahead: &Ahead, description: &Description) -> bool {
    let base = at.as_ptr() as usize;
    let mut code = Code { bytes: at, length: 0 };
    let [there, back] = match ahead.way {
        Way::Cancellable => [cancellation_address(), cancellation_back_address()],
        Way::Any => [any_call_address(), any_call_back_address()],
    };
    code.put(&[0x49, 0xbb]); // mov r11, state
    code.put(&(description.state as usize).to_le_bytes());
    code.put(&[0x4c, 0x8d, 0x15]); // lea r10, [description]
    code.put_distance_to_description();
    let Some(there) = near_jump(base + code.length, there) else { return false };
    code.put(&there);
    let back_at = base + code.length;
    code.put(&[0x48, 0x8d, 0x0d]); // lea rcx, [description]
    code.put_distance_to_description();
    let Some(back) = near_jump(base + code.length, back) else { return false };
    code.put(&back);
    if code.length != ONWARD_AT {
        return false;
    }
    code.put(ahead.displaced);
    let Some(onward) = near_jump(base + code.length, ahead.onward) else { return false };
    code.put(&onward);
    let detour = i32::try_from(back_at as i64 - description.syscall_address as i64);
    let (Ok(detour), true) = (detour, code.length <= DESCRIPTION_AT) else { return false };
    // SAFETY: as in `write_stub`.
    unsafe {
        at.as_mut_ptr().add(DESCRIPTION_AT).cast::<Description>().write(Description {
            detour,
            measured: 0,
            behind: 0,
            ..*description
        });
    };
    true
}

/// The description of the stub at `stub`.
///
/// # Safety
/// A stub that `write_stub` has written is there.
pub unsafe fn description_at<'a>(stub: usize) -> &'a Description {
    // SAFETY: the caller's promise.
    unsafe { &*((stub + DESCRIPTION_AT) as *const Description) }
}

struct Code<'a> {
    bytes: &'a mut [u8; STUB_BYTES],
    length: usize,
}

impl Code<'_> {
    fn put(&mut self, more: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(self.length).zip(more) {
            *to = *from;
        }
        self.length += more.len();
    }

    /// Puts the instructions that bring the number into eax. False if something is out of reach.
    fn put_load(&mut self, base: usize, load: Load) -> bool {
        match load {
            Load::Number(number) => {
                self.put(&[0xb8]); // mov eax, number
                self.put(&u32::from(number).to_le_bytes());
            }
            Load::Displaced(instruction) => self.put(instruction),
            Load::Branched { before, jump, end } | Load::Taken { before, jump, end } => {
                self.put(before);
                let is_taken = matches!(load, Load::Taken { .. });
                let [condition, distance] = jump;
                // The last bit of a condition says that the opposite is meant.
                let condition = condition ^ u8::from(is_taken);
                let target =
                    if is_taken { end as i64 } else { end as i64 + i64::from(distance.cast_signed()) };
                let next = base + self.length + LONG_BRANCH;
                let Ok(distance) = i32::try_from(target - next as i64) else {
                    return false;
                };
                self.put(&[0x0f, condition.wrapping_add(0x10)]); // jcc rel8 is 0x70 + condition, jcc rel32 0x0f, 0x80 + condition
                self.put(&distance.to_le_bytes());
            }
        }
        true
    }

    /// Puts what stands behind the `syscall`, whose end is `from`: results are told apart and returned, or
    /// their sign is changed, or the break is noted. False if something else stands there.
    fn put_tail(&mut self, base: usize, from: usize, tail: &Tail) -> bool {
        const RETURN: u8 = 0xc3;
        let skipped = match *tail.code {
            [] | [RETURN, ..] => 0,
            [0xf7, 0xd8, RETURN, ..] => {
                self.put(&[0xf7, 0xd8]); // neg eax
                2
            }
            // mov rdx, [somewhere near]
            [0x48, 0x8b, 0x15, d0, d1, d2, d3, ..] => {
                const BYTES: usize = 7;
                let distance = i32::from_le_bytes([d0, d1, d2, d3]);
                self.put(&[0x48, 0x8b, 0x15]);
                if !self.put_distance(base, (from + BYTES).wrapping_add_signed(distance as isize), 0) {
                    return false;
                }
                BYTES
            }
            // cmp rax or eax, a constant; then a jump for errors
            [0x48, 0x3d, ..] => match self.put_branch(base, from, tail.code, 6) {
                Some(skipped) => skipped,
                None => return false,
            },
            [0x3d, ..] => match self.put_branch(base, from, tail.code, 5) {
                Some(skipped) => skipped,
                None => return false,
            },
            _ => return false,
        };
        if tail.code.get(skipped) == Some(&RETURN) {
            self.put(&[RETURN]);
            return true;
        }
        self.put(&[0xe9]);
        tail.into_function + skipped >= LEFT_FROM && self.put_distance(base, from + skipped, 0)
    }

    /// Puts a comparison of so many bytes and the conditional jump of two behind it. Returns the bytes of both
    /// where they stand.
    fn put_branch(&mut self, base: usize, from: usize, code: &[u8], comparison: usize) -> Option<usize> {
        let skipped = comparison + SHORT_BRANCH;
        let &[condition, distance] = code.get(comparison..skipped)? else { return None };
        if condition & 0xf0 != 0x70 {
            return None;
        }
        self.put(code.get(..comparison)?);
        self.put(&[0x0f, condition + 0x10]); // as in `put_load`
        let target = (from + skipped).wrapping_add_signed(isize::from(distance.cast_signed()));
        self.put_distance(base, target, 0).then_some(skipped)
    }

    /// The operand of an instruction that names `target` by its distance, with so many bytes of the instruction
    /// behind it. False if that is out of reach.
    fn put_distance(&mut self, base: usize, target: usize, more: usize) -> bool {
        let end = base + self.length + 4 + more;
        let distance = i32::try_from(target as i64 - end as i64);
        self.put(&distance.unwrap_or(0).to_le_bytes());
        distance.is_ok()
    }

    /// Puts the description behind the code. False if that is too long.
    fn describe(self, description: &Description) -> bool {
        if self.length > DESCRIPTION_AT {
            return false;
        }
        // SAFETY: the description's place is inside the stub, aligned as every stub and the offset are
        // (asserted below), and is ours to write, as the bytes are.
        unsafe {
            self.bytes.as_mut_ptr().add(DESCRIPTION_AT).cast::<Description>().write(*description);
        }
        true
    }

    /// The last operand of an instruction that names the description.
    fn put_distance_to_description(&mut self) {
        let after = self.length + 4;
        self.put(&(DESCRIPTION_AT as i32 - after as i32).to_le_bytes());
    }
}

/// `jmp rel32` from `at` to `target`; None if it is out of reach.
pub fn near_jump(at: usize, target: usize) -> Option<[u8; 5]> {
    let distance = i32::try_from(target as i64 - (at as i64 + 5)).ok()?;
    let d = distance.to_le_bytes();
    Some([JUMP, d[0], d[1], d[2], d[3]])
}

/// What a site becomes: a jump to `stub`, or a call of it where the site is a call.
pub fn lead(site: &Patch, stub: usize) -> Option<[u8; 5]> {
    const CALL: u8 = 0xe8;
    let [_, distance @ ..] = near_jump(site.address, stub)?;
    let [d0, d1, d2, d3] = distance;
    let operation = if site.before[0] == CALL { CALL } else { JUMP };
    Some([operation, d0, d1, d2, d3])
}

/// `jmp rel32`.
const JUMP: u8 = 0xe9;

/// `jmp rel8` from `at` to `target`; None if it is out of reach.
pub fn short_jump(at: usize, target: usize) -> Option<[u8; 2]> {
    let distance = i8::try_from(target as i64 - (at as i64 + 2)).ok()?;
    Some([0xeb, distance as u8])
}

/// Address of the pool: [`POOL_BYTES`] from a page's start, readable and executable.
pub fn pool_address() -> usize {
    &raw const runahead_agent_stubs as usize
}

unsafe extern "C" {
    static runahead_agent_stubs: u8;
}

// SAFETY: no code yet: zeros, of which only pages with stubs are ever jumped to. The unwind information
// holds for every stub at each of its instructions: nothing is saved anywhere, the caller is the
// program at its site, whose address stands in the stub: *((rip & -128) + 64).
global_asm!(
    // Behind a whole page of the file, so that the loader has nothing to clear in a page of code: it would
    // make that writable, and code again.
    ".section .runahead_before_stubs, \"axR\", @progbits",
    ".p2align 12",
    ".fill {page}, 1, 0xcc",
    ".section .runahead_stubs, \"ax\", @nobits",
    ".p2align 12",
    ".globl runahead_agent_stubs",
    ".hidden runahead_agent_stubs",
    ".type runahead_agent_stubs, @object",
    ".size runahead_agent_stubs, {bytes}",
    "runahead_agent_stubs:",
    ".cfi_startproc",
    ".cfi_signal_frame",
    ".cfi_def_cfa rsp, 0",
    // breg16 0; const1s -128; and; plus_uconst 64; deref
    ".cfi_escape 0x16, 0x10, 8, 0x80, 0, 0x09, 0x80, 0x1a, 0x23, 64, 0x06",
    ".skip {bytes}",
    ".cfi_endproc",
    ".text",
    bytes = const POOL_BYTES,
    page = const PAGE,
);

const _: () = assert!(STUB_BYTES == 128 && DESCRIPTION_AT == 64);
const _: () = assert!(DESCRIPTION_AT + size_of::<Description>() <= STUB_BYTES);
const _: () = assert!(DESCRIPTION_AT.is_multiple_of(align_of::<Description>()));
const _: () = assert!(offset_of!(Description, owner) == 8);
// Displacements of one byte.
const _: () = assert!(offset_of!(Fixed, calm) < 128 && offset_of!(Fixed, openings) < 128);
const _: () = assert!(offset_of!(Fixed, entry_by_number) < 128);
