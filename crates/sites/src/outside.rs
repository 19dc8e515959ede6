//! What the code whose functions tables list has to do with the code that is swept ([`crate::sweep`]).
//!
//! # The proof
//! Not all of it is decoded: it is looked where four bytes could be a distance that leads into swept code. The
//! functions of the places so found are decoded, and only what an instruction there says counts, whether it
//! speaks for the sweep's boundaries or against them (but what leads to where many lead needs no second look).
//! Jumps of one byte's distance reach swept code from near it alone: all that lies there is decoded.

use std::cell::RefCell;
use std::collections::HashMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};

use crate::function::direct_target;
use crate::image::{Image, Range};
use crate::sweep::{Arriving, Outside, Seen, is_in, plain_addresses};

/// Farthest that a jump of one byte's distance and its instruction reach, in bytes.
const SHORT_REACH: u64 = 144;

/// Bytes of an immediate that may stand behind a distance.
const IMMEDIATES: [u64; 4] = [0, 1, 2, 4];

/// From the byte before an opcode to the end of a distance: what two pieces have in common.
const WINDOW: u64 = 8;

/// Where so many places seem to call, or to take the address of, is taken for a function's beginning.
const MANY: usize = 4;

/// More places are not looked at.
const MAX_HITS: usize = 1 << 20;

/// The code beside what is swept.
pub struct Listed<'a, 'data> {
    pub image: &'a Image<'data>,
    /// Functions that tables list; sorted, disjoint but for those that contradict each other.
    pub functions: &'a [Range],
    /// Where those are that contradict each other.
    pub contradicted: &'a [(u64, u64)],
    /// What is swept; sorted.
    pub stretches: &'a [(u64, u64)],
    /// The file is loaded where it says.
    pub is_fixed: bool,
}

/// A place that looks as if it led to swept code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Hit {
    at: u64,
    target: u64,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Call,
    Jump,
    /// Its address is taken.
    Taken,
    /// It is read or written.
    Named,
    /// Its address may be there as a number.
    Number,
}

/// A range of addresses by their lower halves: what is taken for near and is not is seen to be so afterwards.
#[derive(Clone, Copy)]
struct Near {
    start: u32,
    bytes: u32,
}

impl Near {
    fn of(range: std::ops::Range<u64>) -> Near {
        let bytes = range.end.saturating_sub(range.start);
        Near { start: range.start as u32, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) }
    }

    fn may_hold(self, address: u32) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }
}

/// What the instructions of one function, or between two, name.
struct Named {
    /// All of it; sorted.
    addresses: Vec<u64>,
    calls: Vec<(u64, u64)>,
    jumps: Vec<(u64, u64)>,
}

impl Outside for Listed<'_, '_> {
    fn contains(&self, address: u64) -> bool {
        self.image.holds_instructions(address) && self.image.code_at(address).is_some()
    }

    fn looks_in(&self, seen: &Seen<'_>) -> Option<Arriving> {
        let mut arriving = Arriving::default();
        let mut hits = Vec::new();
        for code in &self.image.code {
            code.each_piece(WINDOW, |address, bytes| {
                if hits.len().max(arriving.named.len()) <= MAX_HITS {
                    self.scan(address, bytes, seen, &mut hits, &mut arriving.named);
                }
            })?;
        }
        if hits.len().max(arriving.named.len()) > MAX_HITS {
            return None;
        }
        let decoded = RefCell::new(HashMap::new());
        let is_listed = |hit: &Hit| {
            let is_data = hit.kind == Kind::Named && (seen.may_hold_data)(hit.target);
            !is_data && !self.is_swept(hit.at) && self.contains(hit.at)
        };
        hits.retain(is_listed);
        // Pieces have something in common.
        hits.sort_unstable();
        hits.dedup();
        let is_begin = |hit: &&Hit| matches!(hit.kind, Kind::Call | Kind::Taken);
        let mut begun: HashMap<u64, usize> = HashMap::new();
        for hit in hits.iter().filter(is_begin) {
            *begun.entry(hit.target).or_default() += 1;
        }
        for Hit { at, target, kind } in hits {
            let is_many = begun.get(&target).is_some_and(|times| *times >= MANY);
            let may_be = matches!(kind, Kind::Call | Kind::Taken | Kind::Jump);
            let is_plain = may_be && is_many && (seen.is_arrival)(target);
            if !is_plain && !self.is_named(at, target, &decoded)? {
                continue;
            }
            if !is_plain && matches!(kind, Kind::Call | Kind::Jump) {
                arriving.sure.push(target);
            }
            match kind {
                Kind::Call => arriving.calls.push((at, target)),
                Kind::Jump => arriving.jumps.push((at, target)),
                Kind::Taken => arriving.taken.push(target),
                Kind::Number => arriving.numbers.push(target),
                Kind::Named => return None,
            }
        }
        for &(start, end) in self.stretches {
            for near in [start.saturating_sub(SHORT_REACH)..start, end..end.saturating_add(SHORT_REACH)] {
                self.decode_near(near, seen, &decoded, &mut arriving)?;
            }
        }
        Some(arriving)
    }
}

type Decoded = RefCell<HashMap<u64, Option<Named>>>;

impl Listed<'_, '_> {
    fn is_swept(&self, address: u64) -> bool {
        is_in(self.stretches, address)
    }

    /// Collects the places in these bytes that look as if they led to swept code, and what addresses of
    /// possible tables are taken.
    fn scan(&self, address: u64, bytes: &[u8], seen: &Seen<'_>, hits: &mut Vec<Hit>, named: &mut Vec<u64>) {
        let longest = IMMEDIATES[IMMEDIATES.len() - 1];
        let low = seen.hull.start.min(seen.tables.start).saturating_sub(longest);
        let near = Near::of(low..seen.hull.end.max(seen.tables.end));
        let numbers = Near::of(if self.is_fixed { seen.hull.clone() } else { 0..0 });
        // Behind an opcode, and the byte before it, where there is any.
        let begins = self.image.code.iter().any(|code| code.address == address);
        for (index, distance) in bytes.windows(4).enumerate().skip(if begins { 1 } else { 2 }) {
            let Some(distance) = distance.first_chunk() else { continue };
            let number = u32::from_le_bytes(*distance);
            let end = (address as u32).wrapping_add(index as u32 + 4);
            // Nearly all of it ends here, and is foreseen to.
            if near.may_hold(number.wrapping_add(end)) | numbers.may_hold(number) {
                let before = index.checked_sub(2).map_or(0, |before| bytes[before]);
                let at = address + index as u64 - 1;
                if hits.len().max(named.len()) > MAX_HITS {
                    return;
                }
                self.look(at, [before, bytes[index - 1]], number.cast_signed(), seen, hits, named);
            }
        }
    }

    /// `before`: the two bytes before a distance, of which `at` is the address of the last.
    fn look(
        &self,
        at: u64,
        before: [u8; 2],
        distance: i32,
        seen: &Seen<'_>,
        hits: &mut Vec<Hit>,
        named: &mut Vec<u64>,
    ) {
        let target = (at + 5).wrapping_add_signed(distance.into());
        let number = u64::from(distance.cast_unsigned());
        if self.is_fixed && (seen.is_code)(number) {
            hits.push(Hit { at, target: number, kind: Kind::Number });
        }
        let kind = match before {
            [_, 0xe8] => Kind::Call,
            [_, 0xe9] | [0x0f, 0x80..=0x8f] | [0xc7, 0xf8] => Kind::Jump,
            [0x8d, opcode] if opcode & 0xc7 == 0x05 => Kind::Taken,
            [_, opcode] if opcode & 0xc7 == 0x05 => Kind::Named,
            _ => return,
        };
        if kind == Kind::Taken && seen.tables.contains(&target) && !self.is_swept(at) {
            named.push(target);
        }
        let behind: &[u64] = if kind == Kind::Named { &IMMEDIATES } else { &IMMEDIATES[..1] };
        let targets = behind.iter().map(|immediate| target.wrapping_add(*immediate));
        hits.extend(targets.filter(|target| (seen.is_code)(*target)).map(|target| Hit { at, target, kind }));
    }

    /// Whether an instruction around `at` really names `target`. None: that cannot be told.
    fn is_named(&self, at: u64, target: u64, decoded: &Decoded) -> Option<bool> {
        let around = self.around(at)?;
        self.with(around, decoded, |named| named.addresses.binary_search(&target).is_ok())
    }

    /// Adds what leads to swept code from functions, and what lies between them, in this range.
    fn decode_near(
        &self,
        range: std::ops::Range<u64>,
        seen: &Seen<'_>,
        decoded: &Decoded,
        arriving: &mut Arriving,
    ) -> Option<()> {
        let mut at = range.start;
        while at < range.end {
            if self.is_swept(at) || !self.contains(at) {
                at += 1;
                continue;
            }
            let around = self.around(at)?;
            self.with(around, decoded, |named| {
                let leads_in = |(_, target): &&(u64, u64)| (seen.is_code)(*target);
                arriving.calls.extend(named.calls.iter().filter(leads_in));
                arriving.jumps.extend(named.jumps.iter().filter(leads_in));
            })?;
            at = around.1;
        }
        Some(())
    }

    /// The function at an address, or what lies there between two. None: nobody can say where to begin to
    /// decode.
    fn around(&self, at: u64) -> Option<(u64, u64)> {
        let next = self.functions.partition_point(|function| function.start <= at);
        let last = next.checked_sub(1).and_then(|last| self.functions.get(last));
        // Of those that contradict each other a wide one may end behind a later one.
        if is_in(self.contradicted, at) {
            return None;
        }
        if let Some(function) = last.filter(|function| at < function.end) {
            return Some((function.start, function.end));
        }
        let section =
            self.image.instruction_sections.iter().find(|(start, end)| (*start..*end).contains(&at))?;
        let start = last.map_or(section.0, |function| function.end.max(section.0));
        let end = self.functions.get(next).map_or(section.1, |function| function.start.min(section.1));
        Some((start, end))
    }

    /// What the instructions in this range name. None: they are none.
    fn with<T>(
        &self,
        (start, end): (u64, u64),
        decoded: &Decoded,
        of: impl FnOnce(&Named) -> T,
    ) -> Option<T> {
        let mut decoded = decoded.borrow_mut();
        decoded.entry(start).or_insert_with(|| self.decode(start, end)).as_ref().map(of)
    }

    fn decode(&self, start: u64, end: u64) -> Option<Named> {
        let bytes = self.image.code_at(start)?.slice(start, end)?;
        let mut named = Named { addresses: Vec::new(), calls: Vec::new(), jumps: Vec::new() };
        let mut boundaries = Vec::new();
        let is_inside = |address: u64| (start..end).contains(&address);
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return None;
            }
            boundaries.push(instruction.ip());
            // A prefix may be jumped over.
            boundaries.extend(instruction.has_lock_prefix().then(|| instruction.ip() + 1));
            if let Some(target) = direct_target(&instruction) {
                named.addresses.push(target);
                let is_call = instruction.flow_control() == FlowControl::Call;
                if is_call { &mut named.calls } else { &mut named.jumps }.push((instruction.ip(), target));
            }
            if instruction.is_ip_rel_memory_operand() {
                let address = instruction.ip_rel_memory_address();
                // Behind data that is read here the boundaries may be others.
                if is_inside(address) && instruction.mnemonic() != Mnemonic::Lea {
                    return None;
                }
                named.addresses.push(address);
            }
            if self.is_fixed {
                named.addresses.extend(plain_addresses(&instruction));
            }
        }
        let led_to = named.calls.iter().chain(&named.jumps).map(|(_, target)| target);
        if !led_to.filter(|target| is_inside(**target)).all(|target| boundaries.binary_search(target).is_ok())
        {
            return None;
        }
        named.addresses.sort_unstable();
        Some(named)
    }
}
