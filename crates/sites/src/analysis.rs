//! The analysis of one executable file: which of its `syscall` instructions become sites.
//!
//! Candidates are all places where the two bytes of `syscall` occur in executable segments. Only
//! functions with candidates are decoded (and their neighbours, where a padding between the two is
//! wanted, and functions they jump to, which may jump back). For each `syscall` of a proven function
//! the instruction before it decides the form; whatever fails a check is listed with its reason.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::Path;
use std::rc::Rc;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use object::ReadCache;
use runahead_abi::sites::{ANY_NUMBER, CHECKED_BYTES, NEAR_JUMP, Site, form};

use crate::flags;
use crate::forms::{self, Draft, SYSCALL};
use crate::function::{Distrust, Function, direct_target};
use crate::image::{self, Image, NoImage};
use crate::numbers::{self, EXIT_GROUP, Load, MUST_SEE, NEVER_PATCHED, Numbers, RT_SIGRETURN};
use crate::padding::{Paddings, Run, run_between, runs_inside, traps_at_end};
use crate::source::Source;

/// The first of the five bytes of a `call` to where a distance says.
const NEAR_CALL: u8 = 0xe8;

/// Farthest that a `jmp rel8` reaches, with room for the instruction and the padding themselves.
const SHORT_REACH: u64 = 160;

/// Functions that are decoded to learn who jumps into one; tail calls can chain up, and a function
/// with more relatives than this goes without paddings and constants of its own.
const RELATIVES_LIMIT: usize = 64;

/// Calls that are followed to see whether they return: what ends a process calls what does it.
const CALLS_DEEP: usize = 3;

/// Functions that are kept decoded: those that a function has to do with mostly lie near it, and all of a C
/// library's take 2 MB, whose pages cost more than to decode a few again.
const DECODED_MOST: usize = 32;

/// What was found in one file.
#[derive(Debug, Default)]
pub struct Analysis {
    /// Sorted by [`Site::patch_offset`].
    pub sites: Vec<Site>,
    /// The `syscall` instructions that are not (or not only) reached through a site, whatever their
    /// number; sorted by offset.
    pub others: Vec<Unproven>,
    /// `syscall` instructions found: in proven functions true ones, elsewhere what looks like one.
    pub found: usize,
    /// `false`: not an ELF64 x86-64 file, or too large; nothing was looked at.
    pub understood: bool,
    /// It is the C library, its part for threads or its loader: what it does at the places that nobody can
    /// follow is known (it passes a change of user on to all threads).
    pub is_c_library: bool,
    /// Frames of it have something to be done when they are unwound.
    pub unwinds: bool,
}

impl Analysis {
    /// Whether calls may be made of which nobody can say what they are, filters of system calls among them
    /// (`runahead_abi::sites::BLIND`).
    pub fn is_blind(&self) -> bool {
        !self.is_c_library && self.others.iter().any(Unproven::may_filter)
    }

    /// Elsewhere than in the C library what looks like its place of cancellation is one where any call is
    /// made.
    fn leave_cancellation(&mut self, image: &Image) {
        for site in self.sites.extract_if(.., |site| site.form == form::CANCELLATION) {
            let file_offset = site.patch_offset + u64::from(site.syscall_distance);
            let address = image.code.iter().find_map(|code| {
                let end = code.file_offset_of(code.end());
                let start = code.file_offset_of(code.address);
                (start..end).contains(&file_offset).then(|| code.address + (file_offset - start))
            });
            self.others.push(Unproven {
                file_offset,
                address: address.unwrap_or(file_offset),
                number: None,
                reason: Reason::NoForm,
                first_argument: None,
                goes_on: true,
                is_harmless: false,
            });
        }
        self.others.sort_by_key(|other| other.file_offset);
    }

    /// Those that the agent may miss something through: number unknown or one of [`MUST_SEE`].
    pub fn unproven(&self) -> impl Iterator<Item = &Unproven> {
        self.others.iter().filter(|other| other.matters())
    }
}

/// A `syscall` instruction that is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unproven {
    /// Of the `syscall` instruction, in bytes from the start of the file.
    pub file_offset: u64,
    /// As the file has it: its address before it is loaded anywhere else.
    pub address: u64,
    /// The call's number where constants tell.
    pub number: Option<u32>,
    pub reason: Reason,
    /// The call's first argument, likewise.
    pub first_argument: Option<u32>,
    /// What stands behind it can be executed.
    pub goes_on: bool,
    /// Its number is one of some that are known, and none of these may install a filter.
    pub is_harmless: bool,
}

impl Unproven {
    /// Whether it may install a filter. What looks like an instruction, but stands in no function and has
    /// nothing sensible behind it, is data.
    fn may_filter(&self) -> bool {
        match (self.number, self.reason) {
            (None, Reason::NoFunction) => self.goes_on,
            (None, Reason::CLibrarys | Reason::SeenBefore) => false,
            (None, _) => !self.is_harmless,
            (Some(number), _) => numbers::may_forbid(number, self.first_argument),
        }
    }

    fn matters(&self) -> bool {
        match self.number {
            None => true,
            Some(number) => u16::try_from(number).is_ok_and(|n| MUST_SEE.contains(&n)),
        }
    }
}

/// Why a `syscall` instruction did not become a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// No unwind table or symbol says which function it is in.
    NoFunction,
    /// Its function's instruction boundaries are not proven.
    Function(Distrust),
    /// Nothing visible leads to it from the function's start.
    NotReached,
    /// The instruction before it has no form.
    NoForm,
    /// It has a prefix, so it does not end where the agent would go on behind it.
    Prefixed,
    /// The status flags may be read behind it.
    FlagsLive,
    /// No unused padding within reach.
    NoPadding,
    /// Too near to the end of the executable segment.
    SegmentEnd,
    /// A branch leads to the `syscall` itself, past the rewritten instruction: that path stays as it
    /// is, although the other one is a site.
    Bypassed,
    /// One of [`NEVER_PATCHED`], or beside an `rt_sigreturn`.
    Never,
    /// A place in musl's C library, or in a C library that is a part of a static program: where a change of
    /// user is passed on to all threads, or where calls are made that may be cancelled. Nothing else is
    /// called there.
    CLibrarys,
    /// It is seen where its function begins ([`form::ENTRANCE`]).
    SeenBefore,
}

/// Analyses the file at `path`. A file that is no program for this machine, or a broken one, has
/// nothing to patch: that is a result, not an error;
/// an error is that it cannot be opened.
pub fn analyse(path: &Path) -> io::Result<Analysis> {
    File::open(path).map(analyse_file)
}

/// Analyses an open file, from its start, wherever its position is.
pub fn analyse_file(file: File) -> Analysis {
    let Ok(length) = file.metadata().map(|metadata| metadata.len()) else { return Analysis::default() };
    analyse_source(Source::new(Rc::new(file), length))
}

/// The same of a file that is had in whatever way.
pub fn analyse_source(source: Source) -> Analysis {
    let again = source.clone();
    let cache = ReadCache::new(source);
    match Image::parse(&cache, &again) {
        Ok(mut image) => {
            let is_musl = image.is_static && image::is_musl(&cache);
            if is_musl {
                image.sweep(&cache);
            } else if image.is_static {
                image.sweep_unlisted(&cache);
            }
            let syscall = is_musl.then(|| image::function_named(&cache, b"syscall")).flatten();
            let mut analysis = Analyser::new(&image).run(syscall);
            if !image.is_static && analysis.is_blind() && !image::is_c_library(&cache) {
                image.sweep_unlisted(&cache);
                if image.swept.is_some() {
                    analysis = Analyser::new(&image).run(None);
                }
            }
            let is_cancellation = |site: &Site| site.form == form::CANCELLATION;
            if analysis.sites.iter().any(is_cancellation) && !image::is_c_library(&cache) {
                analysis.leave_cancellation(&image);
            }
            // Not worth the look where nothing depends on it.
            analysis.is_c_library = analysis.is_blind() && image::is_c_library(&cache);
            analysis.unwinds = !analysis.sites.is_empty() && image::unwinds(&cache);
            analysis
        }
        Err(NoImage::NotForUs | NoImage::TooLarge) => Analysis::default(),
    }
}

struct Analyser<'image> {
    image: &'image Image<'image>,
    decoded: HashMap<usize, Result<Rc<Function>, Distrust>>,
    paddings: Paddings,
    /// Functions whose gap to the next one has been added to `paddings`.
    gaps: HashSet<usize>,
    result: Analysis,
    /// Places that look like glibc's two that change a thread's user, and those of them that look like its
    /// handler.
    identities: usize,
    identity_handlers: usize,
    /// Where calls are made that may be cancelled, each place with its `syscall`.
    cancellable: Vec<(u64, u64)>,
    /// Where functions begin that make whatever call they are told.
    any_calls: Vec<u64>,
}

impl<'image> Analyser<'image> {
    fn new(image: &'image Image<'image>) -> Self {
        Analyser {
            image,
            decoded: HashMap::new(),
            paddings: Paddings::default(),
            gaps: HashSet::new(),
            result: Analysis { understood: true, ..Analysis::default() },
            identities: 0,
            identity_handlers: 0,
            cancellable: Vec::new(),
            any_calls: Vec::new(),
        }
    }

    /// `syscall`: where the function begins that C programs make any call by, if its name is known.
    fn run(mut self, syscall: Option<u64>) -> Analysis {
        let mut functions: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for &address in &self.image.calls {
            match self.image.function_at(address) {
                Some(index) => functions.entry(index).or_default().push(address),
                None if self.image.holds_instructions(address) && !self.is_within_one(address) => {
                    match self.image.is_executed(address) {
                        Some(true) => self.leave_executed(address),
                        Some(false) => {}
                        None => self.leave_raw(address, Reason::NoFunction),
                    }
                }
                None => {}
            }
        }
        for (index, candidates) in functions {
            if let Err(distrust) = self.function(index) {
                for address in candidates {
                    self.leave_raw(address, Reason::Function(distrust));
                }
            }
        }
        self.believe();
        self.see_cancellable_calls();
        for start in syscall.into_iter().chain(std::mem::take(&mut self.any_calls)) {
            self.see_at_entrance(start);
        }
        self.result.sites.sort_by_key(|site| site.patch_offset);
        self.result.others.sort_by_key(|other| other.file_offset);
        self.result
    }

    /// glibc has two places where it changes a thread's user: in the thread that asks, and in the handler of
    /// the others. Where there are more or fewer of that look, some are somebody else's, who may install
    /// filters there.
    fn believe(&mut self) {
        if self.identities != 0 && (self.identities, self.identity_handlers) != (2, 1) {
            let of_c_library = |other: &&mut Unproven| other.reason == Reason::CLibrarys;
            self.result
                .others
                .iter_mut()
                .filter(of_c_library)
                .for_each(|other| other.reason = Reason::NoForm);
        }
    }

    /// Whether the address lies inside an instruction of a short section, decoded from its start. (`.init` is
    /// one: nothing says which function it is, and what it loads may be at a distance that has the two bytes.)
    fn is_within_one(&self, address: u64) -> bool {
        const SHORT: u64 = 64;
        let within = |(start, end): &&(u64, u64)| (*start..*end).contains(&address) && *end - *start <= SHORT;
        let section = self.image.instruction_sections.iter().find(within);
        let bytes =
            section.and_then(|(start, end)| Some((*start, self.image.code_at(*start)?.slice(*start, *end)?)));
        let Some((start, bytes)) = bytes else { return false };
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() || instruction.ip() >= address {
                return false;
            }
            if instruction.next_ip() > address {
                return true;
            }
        }
        false
    }

    /// Notes a `syscall` that something leads to, and of which nothing else is known.
    fn leave_executed(&mut self, address: u64) {
        let Some(code) = self.image.code_at(address) else { return };
        self.result.found += 1;
        self.result.others.push(Unproven {
            file_offset: code.file_offset_of(address),
            address,
            number: numbers::guess_from_bytes(code.before(address, STREAMS.end as u64)),
            reason: Reason::NoFunction,
            first_argument: None,
            goes_on: true,
            is_harmless: false,
        });
    }

    /// Notes a candidate of which only the bytes are known.
    fn leave_raw(&mut self, address: u64, reason: Reason) {
        let Some(code) = self.image.code_at(address) else {
            return;
        };
        let before = code.before(address, STREAMS.end as u64);
        let number = numbers::guess_from_bytes(before);
        if number.is_none() && !looks_like_instruction(before) && !is_set_otherwise(before) {
            return;
        }
        self.result.found += 1;
        self.result.others.push(Unproven {
            file_offset: code.file_offset_of(address),
            address,
            number,
            reason,
            first_argument: None,
            goes_on: code.from(address, FORWARD).is_none_or(goes_on),
            is_harmless: false,
        });
    }

    /// Turns the system calls of one function into sites, or says why the function is not trusted.
    fn function(&mut self, position: usize) -> Result<(), Distrust> {
        let function = self.decode(position)?;
        let calls: Vec<usize> = (0..function.instructions().len())
            .filter(|index| numbers::is_syscall(&function.instructions()[*index]))
            .collect();
        let relatives = self.jumps_from_relatives(position, &function);
        let from_outside = relatives.as_deref().unwrap_or_default();
        if from_outside.iter().any(|a| function.arrival(*a).is_none()) {
            return Err(Distrust::BranchIntoInstruction);
        }
        // Constants and addresses may hold the two bytes.
        if calls.is_empty() {
            return Ok(());
        }
        let numbers = Numbers::beside(&function, &calls, relatives.as_deref())
            .unwrap_or_else(|| self.follow(&function, &calls, relatives.as_deref()));
        self.result.found += calls.len();
        let sigreturn = calls.iter().any(|call| numbers.at(*call) == Some(u32::from(RT_SIGRETURN)));

        let mut drafts = Vec::new();
        for call in calls {
            let number = numbers.at(call);
            let draft = if sigreturn { Err(Reason::Never) } else { self.draft(&function, call, &numbers) };
            if number.is_none() && forms::makes_cancellable_calls(&function, call) {
                self.cancellable.push((function.range().start, function.instructions()[call].ip()));
            }
            if number.is_none() && function.is_closed() && forms::makes_the_call_it_is_told(&function, call) {
                self.any_calls.push(function.range().start);
            }
            match draft {
                Ok(_) | Err(_) if number.is_none() && self.is_c_librarys(&function, call) => {
                    self.identities += usize::from(forms::changes_identity(&function, call));
                    self.identity_handlers += usize::from(forms::is_identity_handler(&function, call));
                    self.leave(&function, call, &numbers, Reason::CLibrarys);
                }
                Ok(draft) => drafts.push((call, draft)),
                Err(reason) => self.leave(&function, call, &numbers, reason),
            }
        }
        self.paddings.forget_before(function.range().start.saturating_sub(SHORT_REACH));
        if drafts.iter().any(|(_, draft)| draft.short) {
            self.add_paddings(position, &function, relatives.as_deref());
        }
        // Paddings are scarce: the calls that must be seen come first.
        drafts.sort_by_key(|(_, draft)| !MUST_SEE.contains(&draft.number));
        for (call, draft) in drafts {
            let run = |analyser: &mut Self| {
                let is_named = |address| analyser.image.symbols.binary_search(&address).is_ok();
                let is_entered = |address: u64| {
                    function.is_target(address) || from_outside.contains(&address) || is_named(address)
                };
                // Where others may jump into it nobody knows what may be overwritten.
                let may_stand_anywhere = |index| analyser.may_be_displaced(&function, index, &numbers);
                let run = relatives
                    .as_ref()
                    .and_then(|_| forms::run(&function, call, draft.number, may_stand_anywhere, is_entered));
                run.ok_or(Reason::NoPadding).and_then(|run| analyser.site(&function, &run, call))
            };
            // Go's profiler ends a program that it finds behind a function's last instruction: no jump is to
            // stand there.
            let first = (draft.short && self.image.is_go).then(|| run(self));
            let site = match first {
                Some(Ok(site)) => Ok(site),
                _ => match self.site(&function, &draft, call) {
                    Err(Reason::NoPadding) if draft.form != form::CANCELLATION => run(self),
                    site => site,
                },
            };
            match site {
                Ok(site) => {
                    self.result.sites.push(site);
                    let bypasses = |past: &Instruction| {
                        function.is_target(past.ip()) || from_outside.contains(&past.ip())
                    };
                    if function.instructions()[draft.index + 1..=call].iter().any(bypasses) {
                        self.leave(&function, call, &numbers, Reason::Bypassed);
                    }
                }
                Err(reason) => self.leave(&function, call, &numbers, reason),
            }
        }
        if let Some(swept) = self.image.swept_at(function.range().start) {
            let taken: Vec<_> = forms::taken(&function, &numbers, Some(swept)).collect();
            for draft in taken {
                // Its end is where the instruction behind the jump begins.
                let end = draft.index + forms::TAKEN_INSTRUCTIONS;
                let site = self.site(&function, &draft, end).ok();
                self.result.sites.extend(site.filter(|site| !self.is_rewritten(site)));
            }
        }
        Ok(())
    }

    fn follow(&mut self, function: &Function, calls: &[usize], relatives: Option<&[u64]>) -> Numbers {
        let numbers = Numbers::follow(function, relatives, &HashSet::new());
        if !function.is_closed() || calls.iter().all(|call| is_harmless(&numbers, *call)) {
            return numbers;
        }
        let without_end = self.called_without_end(function, CALLS_DEEP);
        if without_end.is_empty() { numbers } else { Numbers::follow(function, relatives, &without_end) }
    }

    /// Of the functions that this one calls those that surely do not return, where all code is proven: nothing
    /// leads to a return in them, nor out of them.
    fn called_without_end(&mut self, function: &Function, deep: usize) -> HashSet<u64> {
        if deep == 0 {
            return HashSet::new();
        }
        let is_call = |instruction: &&Instruction| instruction.flow_control() == FlowControl::Call;
        let called: HashSet<u64> =
            function.instructions().iter().filter(is_call).filter_map(direct_target).collect();
        called.into_iter().filter(|address| self.has_no_end(*address, deep - 1)).collect()
    }

    fn has_no_end(&mut self, address: u64, deep: usize) -> bool {
        /// What only ends the process is short.
        const BYTES_MOST: u64 = 256;
        let Some(position) = self.image.function_at(address) else { return false };
        let range = self.image.functions[position];
        if range.start != address || range.end - range.start > BYTES_MOST {
            return false;
        }
        let Ok(function) = self.decode(position) else { return false };
        let without_end = self.called_without_end(&function, deep);
        let mut seen = HashSet::new();
        let mut work = vec![0];
        while let Some(index) = work.pop() {
            if !seen.insert(index) {
                continue;
            }
            let Some(instruction) = function.instructions().get(index) else { return false };
            let target = direct_target(instruction);
            match instruction.flow_control() {
                FlowControl::Next => work.push(index + 1),
                FlowControl::Call => {
                    if !target.is_some_and(|target| without_end.contains(&target)) {
                        work.push(index + 1);
                    }
                }
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    let Some(target) = target.and_then(|target| function.index_of(target)) else {
                        return false;
                    };
                    work.push(target);
                    if instruction.flow_control() == FlowControl::ConditionalBranch {
                        work.push(index + 1);
                    }
                }
                _ => return false,
            }
        }
        true
    }

    /// Whether this may be a place in a C library that is a part of the file, of which is known what it does
    /// ([`Analyser::believe`]).
    fn is_c_librarys(&self, function: &Function, call: usize) -> bool {
        self.image.is_static
            && (forms::changes_identity(function, call) || forms::makes_cancellable_calls(function, call))
    }

    fn leave(&mut self, function: &Function, call: usize, numbers: &Numbers, reason: Reason) {
        let (mut number, first_argument) = (numbers.at(call), numbers.first_argument_at(call));
        let address = function.instructions()[call].ip();
        let Some(code) = self.image.code_at(address) else {
            return;
        };
        // glibc's `clone` is listed up to where its call stands, as nobody is to unwind from there.
        if number.is_none()
            && self.image.swept_at(address).is_some_and(|swept| swept.is_only_gone_on_to(address))
        {
            number = self.number_at_end(address);
        }
        self.result.others.push(Unproven {
            file_offset: code.file_offset_of(address),
            address,
            number,
            reason,
            first_argument,
            goes_on: true,
            is_harmless: is_harmless(numbers, call),
        });
    }

    /// The number that the function which ends at an address loads right before.
    fn number_at_end(&mut self, address: u64) -> Option<u32> {
        let position = self.image.function_at(address.checked_sub(1)?)?;
        let function = self.decode(position).ok().filter(|function| function.range().end == address)?;
        let last = function.instructions().len().checked_sub(1).filter(|last| function.is_reached(*last))?;
        match numbers::load_of(&function.instructions()[last])? {
            Load::Constant(number) => Some(number),
            Load::Zero => Some(0),
        }
    }

    fn decode(&mut self, position: usize) -> Result<Rc<Function>, Distrust> {
        let image = self.image;
        if self.decoded.len() >= DECODED_MOST {
            self.decoded.clear();
        }
        self.decoded
            .entry(position)
            .or_insert_with(|| {
                let range = image.functions[position];
                let bytes = image
                    .code_at(range.start)
                    .and_then(|code| code.slice(range.start, range.end))
                    .ok_or(Distrust::Range)?;
                let pads = image.landing_pads(&range);
                let swept = image.swept_at(range.start);
                Function::decode(range, bytes, &image.entries, pads.as_deref(), swept).map(Rc::new)
            })
            .clone()
    }

    /// Addresses in the function that are jumped to by the functions that it jumps to, and by those
    /// that they jump to: its cold part, or the function whose cold part it is. `None`: unknown.
    fn jumps_from_relatives(&mut self, position: usize, function: &Function) -> Option<Vec<u64>> {
        let range = function.range();
        if let Some(swept) = self.image.swept_at(range.start) {
            return Some(swept.arrivals_in(range.start, range.end).to_vec());
        }
        let mut seen = HashSet::from([position]);
        let mut work = function.exits().to_vec();
        let mut jumps = Vec::new();
        while let Some(address) = work.pop() {
            let relative = self.image.function_at(address)?;
            if !seen.insert(relative) {
                continue;
            }
            if seen.len() > RELATIVES_LIMIT {
                return None;
            }
            let relative = self.decode(relative).ok()?;
            let (into, onward): (Vec<u64>, Vec<u64>) =
                relative.exits().iter().partition(|exit| (range.start..range.end).contains(exit));
            jumps.extend(into);
            work.extend(onward);
        }
        jumps.sort_unstable();
        jumps.dedup();
        Some(jumps)
    }

    fn add_paddings(&mut self, position: usize, function: &Function, relatives: Option<&[u64]>) {
        // Those are added below.
        let at_end = traps_at_end(function, &self.image.symbols);
        let is_apart =
            |run: &Run| at_end.is_none_or(|traps| run.end <= traps.start || traps.end <= run.start);
        if let Some(from_outside) = relatives {
            for run in runs_inside(function, from_outside).into_iter().filter(is_apart) {
                self.paddings.add(run);
            }
        }
        for before in [position.checked_sub(1), Some(position)].into_iter().flatten() {
            if self.gaps.insert(before) {
                self.add_gap(before);
            }
        }
    }

    /// Adds the padding at the end of the function `before`, and between that and the next one.
    fn add_gap(&mut self, before: usize) {
        let image = self.image;
        if let Ok(function) = self.decode(before)
            && let Some(run) = traps_at_end(&function, &image.symbols)
        {
            self.paddings.add(run);
        }
        let (Some(range), Some(next)) = (image.functions.get(before), image.functions.get(before + 1)) else {
            return;
        };
        let bytes = image.code_at(range.start).and_then(|code| code.slice(range.end, next.start));
        let (Some(bytes), false) = (bytes, next.contradicted) else {
            return;
        };
        if bytes.len() < NEAR_JUMP {
            return;
        }
        if let Ok(function) = self.decode(before)
            && let Some(run) = run_between(&function, bytes, &image.symbols)
        {
            self.paddings.add(run);
        }
    }

    /// The site of the `syscall` with index `call`.
    fn site(&mut self, function: &Function, draft: &Draft, call: usize) -> Result<Site, Reason> {
        let instruction = &function.instructions()[draft.index];
        let distance = function.instructions()[call].ip() - instruction.ip();
        let code = self.image.code_at(instruction.ip()).ok_or(Reason::SegmentEnd)?;
        let expected = code
            .slice(instruction.ip(), instruction.ip() + CHECKED_BYTES as u64)
            .and_then(|bytes| <[u8; CHECKED_BYTES]>::try_from(bytes).ok())
            .ok_or(Reason::SegmentEnd)?;
        let mut site = Site {
            patch_offset: code.file_offset_of(instruction.ip()),
            pad_offset: 0,
            number: draft.number,
            form: draft.form,
            syscall_distance: u8::try_from(distance).map_err(|_| Reason::NoForm)?,
            into_function: self.begun_before(function, function.instructions()[call].ip()),
            expected,
            expected_pad: [0; 8],
        };
        if draft.short {
            // `jmp rel8` is two bytes long, and counts from its end.
            let pad = self.paddings.take(instruction.ip() + 2).ok_or(Reason::NoPadding)?;
            site.expected_pad = code
                .slice(pad, pad + site.expected_pad.len() as u64)
                .and_then(|bytes| bytes.try_into().ok())
                .ok_or(Reason::SegmentEnd)?;
            site.pad_offset = code.file_offset_of(pad);
        }
        Ok(site)
    }

    /// Bytes from where the function begins, or the last symbol in it before `address`, to `address`.
    fn begun_before(&self, function: &Function, address: u64) -> u32 {
        let symbols = &self.image.symbols;
        let named = symbols[..symbols.partition_point(|symbol| *symbol <= address)].last();
        let start = named.map_or(function.range().start, |named| function.range().start.max(*named));
        u32::try_from(address - start).unwrap_or(0)
    }

    /// The form that the instruction before the `syscall` with index `call` allows, if its place is proven
    /// and the flags are dead behind it.
    fn draft(&self, function: &Function, call: usize, numbers: &Numbers) -> Result<Draft, Reason> {
        let swept = self.image.swept_at(function.range().start);
        let number = numbers.at(call);
        if function.instructions()[call].len() != SYSCALL.len() {
            return Err(Reason::Prefixed);
        }
        if let Some(draft) = forms::cancellation(function, call) {
            return Ok(draft);
        }
        if number.is_none() && forms::looks_at_cancellation(function) {
            return Err(Reason::NoForm);
        }
        if number.is_none()
            && let Some(draft) = self.identity(function, call)
        {
            return Ok(draft);
        }
        let index = call.checked_sub(1).ok_or(Reason::NoForm)?;
        let before = &function.instructions()[index];
        let (number, form, short) = match numbers::load_of(before) {
            Some(Load::Constant(value)) => {
                let number = u16::try_from(value).map_err(|_| Reason::NoForm)?;
                (number, form::MOV_IMM32, false)
            }
            Some(Load::Zero) => (0, form::SHORT_VIA_PAD, true),
            None => {
                let number = forms::displaced_number(function, number, numbers.choices_at(call))
                    .ok_or(Reason::NoForm)?;
                if NEVER_PATCHED.contains(&number) {
                    return Err(Reason::Never);
                }
                if number != ANY_NUMBER
                    && let Some(first) = forms::branched(&function.instructions()[..call])
                {
                    let is_reached = (first..=call).all(|index| function.is_reached(index));
                    return if is_reached && flags::dead_at(function, call + 1, swept) {
                        Ok(Draft { index: first, number, form: form::BRANCHED, short: false })
                    } else {
                        Err(Reason::NoForm)
                    };
                }
                if !self.may_be_displaced(function, index, numbers) {
                    return Err(Reason::NoForm);
                }
                if before.len() < NEAR_JUMP {
                    (number, form::SHORT_DISPLACED, true)
                } else {
                    (number, form::DISPLACED, false)
                }
            }
        };
        if NEVER_PATCHED.contains(&number) {
            return Err(Reason::Never);
        }
        if !function.is_reached(index) || !function.is_reached(call) {
            return Err(Reason::NotReached);
        }
        // Nothing is behind the end of the process.
        if number != EXIT_GROUP && !flags::dead_at(function, call + 1, swept) {
            return Err(Reason::FlagsLive);
        }
        Ok(Draft { index, number, form, short })
    }

    /// Whether the instruction does the same wherever it stands, and cannot fault.
    fn may_be_displaced(&self, function: &Function, index: usize, numbers: &Numbers) -> bool {
        let instruction = &function.instructions()[index];
        let reads_own = || {
            let target = instruction.op0_register();
            matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Movsxd)
                && target.is_gpr()
                && target.full_register() != Register::RSP
                && numbers.reads_stack(index)
        };
        forms::may_be_displaced(instruction) || function.is_closed() && reads_own()
    }

    /// Where musl does in each thread what one has asked of all: number and arguments are four fields of a
    /// record, loaded right before the call. What stands at their end cannot fault where what stands before
    /// it has not.
    fn identity(&self, function: &Function, call: usize) -> Option<Draft> {
        const FIELDS: [(Register, u64); 4] =
            [(Register::RDI, 0), (Register::RSI, 4), (Register::RDX, 8), (Register::RAX, 12)];
        let swept = Some(self.image.swept_at(function.range().start)?);
        let first = call.checked_sub(FIELDS.len())?;
        let loads = &function.instructions()[first..call];
        let is_field = |load: &Instruction| {
            load.mnemonic() == Mnemonic::Movsxd
                && load.op1_kind() == OpKind::Memory
                && load.memory_index() == Register::None
                && load.segment_prefix() == Register::None
                && FIELDS.contains(&(load.op0_register(), load.memory_displacement64()))
        };
        let targets: HashSet<Register> = loads.iter().map(Instruction::op0_register).collect();
        let mut index = call;
        let mut length = 0;
        while length < NEAR_JUMP {
            // One load at least has been done by then.
            index = index.checked_sub(1).filter(|index| *index > first)?;
            length += function.instructions()[index].len();
        }
        let is_entered =
            (index + 1..=call).any(|index| function.is_target(function.instructions()[index].ip()));
        let is_reached = (first..=call).all(|index| function.is_reached(index));
        let is_so = loads.iter().all(is_field)
            && targets.len() == FIELDS.len()
            && is_reached
            && !is_entered
            && length + SYSCALL.len() <= CHECKED_BYTES
            && flags::dead_at(function, call + 1, swept);
        is_so.then_some(Draft { index, number: ANY_NUMBER, form: form::DISPLACED, short: false })
    }

    /// musl makes all calls that may be cancelled at one place, which is called from one: there they are
    /// seen. Where a thread is not to be cancelled that makes them itself.
    fn see_cancellable_calls(&mut self) {
        let (Some(swept), &[(place, syscall)]) = (&self.image.swept, self.cancellable.as_slice()) else {
            return;
        };
        let mut calls = swept.calls.iter().filter(|(_, target)| *target == place);
        let (Some((call, _)), None) = (calls.next(), calls.next()) else { return };
        if swept.jumps.binary_search(&place).is_ok() {
            return;
        }
        let Ok(function) =
            self.image.function_at(*call).ok_or(Distrust::Range).and_then(|at| self.decode(at))
        else {
            return;
        };
        // There may be something else in its range that nothing leads to.
        let is_its = |address: u64| function.index_of(address).is_some_and(|index| function.is_led_to(index));
        for other in &mut self.result.others {
            if other.number.is_none() && is_its(other.address) {
                other.reason = Reason::CLibrarys;
            }
        }
        let distance = u8::try_from(syscall - place).ok();
        let site = distance.and_then(|distance| self.site_with_place(*call, place, distance, form::CALLED));
        // With a prefix it is longer than what is written.
        self.result.sites.extend(site.filter(|site| site.expected[0] == NEAR_CALL));
    }

    /// Has the function that makes any call be seen where it begins, if it is not seen where it makes it.
    fn see_at_entrance(&mut self, start: u64) {
        let Some(site) = self.entrance(start).filter(|site| !self.is_rewritten(site)) else { return };
        let function = self.image.function_at(start).and_then(|index| self.decode(index).ok());
        let is_there = |other: &&mut Unproven| {
            let function = function.as_ref();
            function.is_some_and(|function| {
                function.index_of(other.address).is_some_and(|index| function.is_led_to(index))
            })
        };
        let mut is_needed = false;
        for other in self.result.others.iter_mut().filter(is_there).filter(|other| other.may_filter()) {
            other.reason = Reason::SeenBefore;
            is_needed = true;
        }
        if is_needed {
            self.result.sites.push(site);
        }
    }

    fn entrance(&mut self, start: u64) -> Option<Site> {
        let swept = self.image.swept_at(start)?;
        let position = self.image.function_at(start)?;
        let function = self.decode(position).ok()?;
        let range = function.range();
        // Only where it begins.
        if range.start != start || *swept.arrivals_in(range.start, range.end) != [start] {
            return None;
        }
        let instructions = function.instructions();
        // Where indirect branches are checked they lead to its very first instruction.
        let first = usize::from(instructions.first()?.mnemonic() == Mnemonic::Endbr64);
        let mut length = 0;
        let mut index = first;
        while length < NEAR_JUMP {
            let instruction = instructions.get(index)?;
            if !forms::begins_anywhere(instruction) || index > first && function.is_target(instruction.ip()) {
                return None;
            }
            length += instruction.len();
            index += 1;
        }
        let onward = instructions.get(index)?;
        if function.is_target(onward.ip()) || !forms::ignores_rax(instructions) {
            return None;
        }
        let back = instructions
            .iter()
            .find(|instruction| instruction.mnemonic() == Mnemonic::Ret && instruction.len() == 1)?;
        let length = u8::try_from(length).ok().filter(|length| usize::from(*length) <= CHECKED_BYTES)?;
        self.site_with_place(instructions[first].ip(), back.ip(), length, form::ENTRANCE)
    }

    /// Whether something between the site's beginning and where it goes on is rewritten for another one.
    fn is_rewritten(&self, site: &Site) -> bool {
        let end = |site: &Site| site.patch_offset + u64::from(site.syscall_distance).max(NEAR_JUMP as u64);
        self.result.sites.iter().any(|other| other.patch_offset < end(site) && site.patch_offset < end(other))
    }

    /// A site that a second place belongs to, which is not rewritten.
    fn site_with_place(&self, patch: u64, place: u64, distance: u8, form: u8) -> Option<Site> {
        let bytes = |address: u64, length: usize| {
            self.image.code_at(address)?.slice(address, address.checked_add(length as u64)?)
        };
        let offset = |address: u64| Some(self.image.code_at(address)?.file_offset_of(address));
        Some(Site {
            patch_offset: offset(patch)?,
            pad_offset: offset(place)?,
            number: ANY_NUMBER,
            form,
            syscall_distance: distance,
            into_function: 0,
            expected: bytes(patch, CHECKED_BYTES)?.try_into().ok()?,
            expected_pad: bytes(place, 8)?.try_into().ok()?,
        })
    }
}

/// Whether all that the number of a `syscall` may be is known, and none of it may forbid other calls.
fn is_harmless(numbers: &Numbers, call: usize) -> bool {
    let choices = numbers.choices_at(call);
    choices.is_some_and(|choices| choices.iter().all(|number| !numbers::may_forbid(*number, None)))
}

/// Whether something starts behind these bytes, where no function tells: decoding from any place
/// finds back to the true boundaries within a few instructions, so most of the streams that start
/// shortly before hit a true one. For counting only; it keeps constants and operands that happen to
/// have the two bytes out of the count, and some data in.
fn looks_like_instruction(before: &[u8]) -> bool {
    let hits = |start: usize| {
        let mut decoder = Decoder::new(64, &before[start..], DecoderOptions::NONE);
        while decoder.can_decode() {
            if decoder.decode().is_invalid() {
                return false;
            }
        }
        true
    };
    let starts = || STREAMS.filter_map(|back| before.len().checked_sub(back));
    starts().filter(|start| hits(*start)).count() * 2 >= starts().count()
}

/// Whether these bytes end with what sets the number ([`numbers::sets_otherwise`]), and an instruction may
/// stand before it: only they are looked at, as what stands in front of them may be data.
fn is_set_otherwise(before: &[u8]) -> bool {
    const LONGEST: usize = 15;
    let at = numbers::sets_otherwise(before).and_then(|length| before.len().checked_sub(length));
    at.is_some_and(|at| {
        (at.saturating_sub(LONGEST)..at).any(|start| {
            let mut decoder = Decoder::new(64, &before[start..at], DecoderOptions::NONE);
            !decoder.decode().is_invalid() && !decoder.can_decode()
        })
    })
}

/// Whether the `syscall` at the start of `code` is followed by what a program may execute, up to where it
/// jumps or returns, or far enough.
fn goes_on(code: &[u8]) -> bool {
    const ENOUGH: usize = 16;
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    for _ in 0..ENOUGH {
        if !decoder.can_decode() {
            return false;
        }
        let instruction = decoder.decode();
        if instruction.is_invalid() || instruction.is_privileged() {
            return false;
        }
        match instruction.flow_control() {
            FlowControl::Next
            | FlowControl::Call
            | FlowControl::IndirectCall
            | FlowControl::ConditionalBranch => {}
            _ => return true,
        }
    }
    true
}

/// Bytes that are looked at from an address on: as many instructions as [`goes_on`] wants, at their longest.
const FORWARD: u64 = 16 * 15;

/// How far back the streams start, in bytes: farther than the longest instruction.
const STREAMS: std::ops::Range<usize> = 16..48;
