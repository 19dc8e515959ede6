//! What is remembered of an executable's runs, and how it is written down.
//!
//! ```text
//! magic, checksum of all that follows, then varints (LEB128) and bytes:
//! the executable: path, identity
//! number of variants; of each: key, how often it was wrong in a row, number of wants; of each want:
//!   bytes that its path has in common with the one before, the rest's length, the rest
//!   kind, runs in a row that did not want it
//!   a file:      identity, how often its pages were others, number of ranges; of each: gap, length (pages)
//!   a directory: device, inode
//! ```
//! Whoever can write the file is the user himself; all the same each number is checked against its bound, and what is out
//! of bounds makes the whole file nothing.

use crate::ranges::Ranges;
use crate::{PAGE, hash};
use std::collections::{HashMap, HashSet};

/// What every version begins with, and this one's number.
const KIND: &[u8; 5] = b"RArem";
const VERSION: &[u8; 3] = b"001";

/// Bytes before the body: kind, version, checksum.
#[cfg(test)]
const HEAD: usize = 16;

/// Bytes of a whole file, more than any bound below lets it have in practice.
pub const MOST_BYTES: usize = 8 << 20;

/// Runs with different arguments that are kept, the newest.
pub const MOST_VARIANTS: usize = 8;

/// Names of one run: a build has opened 20,000.
pub const MOST_WANTS: usize = 20_000;

/// Bytes of a path.
pub const MOST_PATH: usize = 1024;

/// Bytes of all paths once they are written out: a path may be short where it stands, and repeat a long one.
const MOST_PATHS: usize = 64 << 20;

/// Pieces of one file.
pub const MOST_RANGES: usize = 4096;

/// A variant that was wrong so often in a row is not replayed any more.
pub const WRONG_MOST: u8 = 3;

/// What so many runs in a row did not want is dropped; a name that was only looked up shows only when that
/// waits.
const UNSEEN_MOST: u8 = 2;
const UNSEEN_NAME_MOST: u8 = 6;

/// One version of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// ns since the epoch.
    pub modified: u64,
}

impl Identity {
    /// Whether what was found is this file. One that was taken along has no inode, and is known by its size:
    /// a copy has other inodes and may have another time.
    pub fn is(&self, found: &Identity) -> bool {
        if self.inode == 0 { self.size == found.size } else { self == found }
    }
}

/// What is wanted of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Pages of the regular file there. `wrong`: runs in a row that wanted other pages of it.
    File { identity: Identity, pages: Ranges, wrong: u8 },
    /// The listing of a directory.
    Directory { device: u64, inode: u64 },
    /// The look-up alone; perhaps it found nothing.
    Name,
}

impl What {
    /// Whether it says of which inode it is, so that nothing else is meant.
    pub fn is_exact(&self) -> bool {
        match self {
            What::File { identity: Identity { inode, .. }, .. } | What::Directory { inode, .. } => {
                *inode != 0
            }
            What::Name => true,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Absolute.
    pub path: Vec<u8>,
    pub what: What,
    /// Runs in a row that did not want it.
    pub unseen: u8,
}

/// Runs with the same arguments in the same directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// Hash of both.
    pub key: u64,
    /// Runs in a row that wanted little of it.
    pub wrong: u8,
    pub wants: Vec<Want>,
}

/// Why bytes are no [`Memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    Empty,
    TooLong,
    /// Something else altogether.
    Foreign,
    OtherVersion,
    /// What follows is not what was written.
    Damaged,
    /// It is whole, and something in it is out of bounds.
    OutOfBounds,
}

/// What is remembered of an executable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub path: Vec<u8>,
    pub identity: Identity,
    /// The newest first.
    pub variants: Vec<Variant>,
}

impl Memory {
    /// What is worth asking for at the start of a run with this key: what the latest run with it wanted, else
    /// what two of the others did.
    pub fn wants(&self, key: u64) -> Vec<Want> {
        if let Some(variant) = self.variants.iter().find(|variant| variant.key == key) {
            let is_good = variant.wrong < WRONG_MOST;
            return if is_good { variant.wants.clone() } else { Vec::new() };
        }
        let mut times: HashMap<&[u8], u32> = HashMap::new();
        let good = || self.variants.iter().filter(|variant| variant.wrong < WRONG_MOST);
        for want in good().flat_map(|variant| &variant.wants) {
            *times.entry(&want.path).or_default() += 1;
        }
        let newest = good().next().map_or(&[][..], |variant| &variant.wants);
        newest
            .iter()
            .filter(|want| times.get(&want.path[..]).is_some_and(|&times| times > 1))
            .cloned()
            .collect()
    }

    pub fn variant(&self, key: u64) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.key == key)
    }

    /// Puts it first, in the place of the one with its key.
    pub fn put(&mut self, variant: Variant) {
        self.variants.retain(|other| other.key != variant.key);
        self.variants.insert(0, variant);
        self.variants.truncate(MOST_VARIANTS);
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut body = Writer(Vec::new());
        body.bytes(&self.path);
        body.identity(&self.identity);
        body.number(self.variants.len() as u64);
        for variant in &self.variants {
            body.variant(variant);
        }
        let checksum = hash(0, &body.0).to_le_bytes();
        [&KIND[..], VERSION, &checksum, &body.0].concat()
    }

    /// What `encode` has made, or why it is not that.
    pub fn decode(bytes: &[u8]) -> Result<Memory, Flaw> {
        if bytes.len() > MOST_BYTES {
            return Err(Flaw::TooLong);
        }
        let rest = match bytes.strip_prefix(KIND) {
            Some(rest) => rest,
            None if bytes.is_empty() => return Err(Flaw::Empty),
            None if KIND.starts_with(bytes) => return Err(Flaw::Damaged),
            None => return Err(Flaw::Foreign),
        };
        let (version, rest) = rest.split_first_chunk().ok_or(Flaw::Damaged)?;
        if version != VERSION {
            return Err(Flaw::OtherVersion);
        }
        let (checksum, body) = rest.split_first_chunk().ok_or(Flaw::Damaged)?;
        if hash(0, body) != u64::from_le_bytes(*checksum) {
            return Err(Flaw::Damaged);
        }
        Self::of_body(body).ok_or(Flaw::OutOfBounds)
    }

    fn of_body(body: &[u8]) -> Option<Memory> {
        let mut body = Reader { rest: body, paths: MOST_PATHS };
        let path = body.bytes(MOST_PATH)?.to_vec();
        let identity = body.identity()?;
        let count = body.at_most(MOST_VARIANTS as u64)?;
        let variants = (0..count).map(|_| body.variant()).collect::<Option<_>>()?;
        body.rest.is_empty().then_some(Memory { path, identity, variants })
    }
}

impl Variant {
    /// What is remembered after another run with the same key that wanted `now`. `complete`: that is all it
    /// opened; else it may have wanted more.
    pub fn after(&self, mut now: Vec<Want>, complete: bool) -> Vec<Want> {
        let places: HashSet<Vec<u8>> = now.iter().map(|want| want.path.clone()).collect();
        for want in &self.wants {
            if places.contains(&want.path) {
                continue;
            }
            let unseen = want.unseen.saturating_add(u8::from(complete));
            let most = if want.what == What::Name { UNSEEN_NAME_MOST } else { UNSEEN_MOST };
            if unseen < most && now.len() < MOST_WANTS {
                now.push(Want { unseen, ..want.clone() });
            }
        }
        now
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn identity(&mut self, identity: &Identity) {
        let Identity { device, inode, size, modified } = *identity;
        [device, inode, size, modified].into_iter().for_each(|number| self.number(number));
    }

    fn variant(&mut self, variant: &Variant) {
        self.number(variant.key);
        self.number(variant.wrong.into());
        self.number(variant.wants.len() as u64);
        let mut before: &[u8] = &[];
        for want in &variant.wants {
            let common = before.iter().zip(&want.path).take_while(|(a, b)| a == b).count();
            self.number(common as u64);
            self.bytes(&want.path[common..]);
            before = &want.path;
            match &want.what {
                What::File { identity, pages, wrong } => {
                    self.number(FILE);
                    self.number(want.unseen.into());
                    self.identity(identity);
                    self.number((*wrong).into());
                    self.number(pages.iter().len() as u64);
                    let mut end = 0;
                    for range in pages.iter() {
                        self.number(u64::from(range.start - end));
                        self.number(range.len() as u64);
                        end = range.end;
                    }
                }
                What::Directory { device, inode } => {
                    self.number(DIRECTORY);
                    self.number(want.unseen.into());
                    self.number(*device);
                    self.number(*inode);
                }
                What::Name => {
                    self.number(NAME);
                    self.number(want.unseen.into());
                }
            }
        }
    }
}

const NAME: u64 = 0;
const FILE: u64 = 1;
const DIRECTORY: u64 = 2;

struct Reader<'a> {
    rest: &'a [u8],
    /// Bytes of paths that may still come.
    paths: usize,
}

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            // The tenth has one bit.
            if shift == 63 && bits > 1 {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn at_most(&mut self, most: u64) -> Option<u64> {
        self.number().filter(|&number| number <= most)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.at_most(u8::MAX.into())? as u8)
    }

    fn bytes(&mut self, most: usize) -> Option<&'a [u8]> {
        let length = self.at_most(most as u64)? as usize;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    fn identity(&mut self) -> Option<Identity> {
        let [device, inode, size, modified] =
            [self.number()?, self.number()?, self.at_most(i64::MAX as u64)?, self.number()?];
        Some(Identity { device, inode, size, modified })
    }

    fn variant(&mut self) -> Option<Variant> {
        let (key, wrong) = (self.number()?, self.byte()?);
        let count = self.at_most(MOST_WANTS as u64)?;
        let mut wants = Vec::new();
        let mut before = Vec::new();
        for _ in 0..count {
            let common = self.at_most(before.len() as u64)? as usize;
            let path = [before.get(..common)?, self.bytes(MOST_PATH)?].concat();
            let is_path = path.first() == Some(&b'/') && path.len() <= MOST_PATH && !path.contains(&0);
            self.paths = self.paths.checked_sub(path.len())?;
            let kind = is_path.then(|| self.number())??;
            let unseen = self.byte()?;
            let what = match kind {
                NAME => What::Name,
                FILE => self.file()?,
                DIRECTORY => What::Directory { device: self.number()?, inode: self.number()? },
                _ => return None,
            };
            before.clone_from(&path);
            wants.push(Want { path, what, unseen });
        }
        Some(Variant { key, wrong, wants })
    }

    fn file(&mut self) -> Option<What> {
        let identity = self.identity()?;
        let wrong = self.byte()?;
        let count = self.at_most(MOST_RANGES as u64)?;
        let last = u32::try_from(identity.size.div_ceil(PAGE)).unwrap_or(u32::MAX);
        let mut pages = Ranges::default();
        let mut end = 0u32;
        for _ in 0..count {
            let start = end.checked_add(self.at_most(u32::MAX.into())? as u32)?;
            end = start.checked_add(self.at_most(u32::MAX.into())? as u32)?;
            if end > last || start == end {
                return None;
            }
            pages.push(start..end);
        }
        Some(What::File { identity, pages, wrong })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges() -> impl Strategy<Value = (u64, Ranges)> {
        prop::collection::vec((1u32..50, 1u32..50), 0..20).prop_map(|steps| {
            let (mut pages, mut end) = (Ranges::default(), 0);
            for (gap, length) in steps {
                pages.push(end + gap..end + gap + length);
                end += gap + length;
            }
            (u64::from(end) * PAGE, pages)
        })
    }

    fn want() -> impl Strategy<Value = Want> {
        let file = (ranges(), any::<[u64; 3]>(), any::<u8>()).prop_map(|((size, pages), numbers, wrong)| {
            let [device, inode, modified] = numbers;
            What::File { identity: Identity { device, inode, size, modified }, pages, wrong }
        });
        let directory = any::<[u64; 2]>().prop_map(|[device, inode]| What::Directory { device, inode });
        (prop_oneof![file, directory, Just(What::Name)], "/[a-c/.]{0,12}", 0u8..3)
            .prop_map(|(what, path, unseen)| Want { path: path.into_bytes(), what, unseen })
    }

    fn memory() -> impl Strategy<Value = Memory> {
        let variant = (any::<u64>(), 0u8..4, prop::collection::vec(want(), 0..20))
            .prop_map(|(key, wrong, wants)| Variant { key, wrong, wants });
        (prop::collection::vec(variant, 0..MOST_VARIANTS), any::<[u64; 3]>(), 0..i64::MAX as u64).prop_map(
            |(variants, [device, inode, modified], size)| Memory {
                path: b"/bin/program".to_vec(),
                identity: Identity { device, inode, size, modified },
                variants,
            },
        )
    }

    /// With a checksum that is right.
    fn signed(body: &[u8]) -> Vec<u8> {
        [&KIND[..], VERSION, &hash(0, body).to_le_bytes(), body].concat()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read(memory in memory()) {
            prop_assert_eq!(Memory::decode(&memory.encode()), Ok(memory));
        }

        #[test]
        fn what_is_cut_or_changed_is_nothing(memory in memory(), at: prop::sample::Index, bit in 0u32..8) {
            let whole = memory.encode();
            let at = at.index(whole.len());
            let cut = if at == 0 { Flaw::Empty } else { Flaw::Damaged };
            prop_assert_eq!(Memory::decode(&whole[..at]), Err(cut));
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            let expected = match at {
                ..5 => Flaw::Foreign,
                5..8 => Flaw::OtherVersion,
                _ => Flaw::Damaged,
            };
            prop_assert_eq!(Memory::decode(&changed), Err(expected));
        }

        /// Somebody who knows the checksum may write anything.
        #[test]
        fn crafted_files_are_bounded(memory in memory(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6), garbage in prop::collection::vec(any::<u8>(), 0..200), whole: bool) {
            let mut body = memory.encode()[HEAD..].to_vec();
            for (at, byte) in changes {
                let at = at.index(body.len());
                body[at] = byte;
            }
            let body = if whole { body } else { garbage };
            let read = match Memory::decode(&signed(&body)) {
                Ok(read) => read,
                Err(flaw) => {
                    prop_assert_eq!(flaw, Flaw::OutOfBounds);
                    return Ok(());
                }
            };
            prop_assert!(read.variants.len() <= MOST_VARIANTS);
            for want in read.variants.iter().flat_map(|variant| &variant.wants) {
                prop_assert!(want.path.starts_with(b"/") && want.path.len() <= MOST_PATH && !want.path.contains(&0));
                if let What::File { identity, pages, .. } = &want.what {
                    prop_assert!(pages.pages() <= identity.size.div_ceil(PAGE));
                    prop_assert!(pages.iter().all(|range| u64::from(range.end) <= identity.size.div_ceil(PAGE)));
                }
            }
        }
    }

    #[test]
    fn absurd_counts_take_no_memory() {
        let mut body = Writer(Vec::new());
        body.bytes(b"/bin/program");
        body.identity(&Identity::default());
        let start = body.0;
        for count in [MOST_VARIANTS as u64 + 1, u64::MAX] {
            let mut body = Writer(start.clone());
            body.number(count);
            assert_eq!(Memory::decode(&signed(&body.0)), Err(Flaw::OutOfBounds));
        }
        for count in [MOST_WANTS as u64, MOST_WANTS as u64 + 1, u64::MAX] {
            let mut body = Writer(start.clone());
            [1, 7, 0, count].into_iter().for_each(|number| body.number(number));
            assert_eq!(Memory::decode(&signed(&body.0)), Err(Flaw::OutOfBounds), "{count}");
        }
        assert_eq!(Memory::decode(&[0; 100]), Err(Flaw::Foreign));
        assert_eq!(Memory::decode(&vec![0; MOST_BYTES + 1]), Err(Flaw::TooLong));
    }

    /// Each name repeats all of a long one and adds a letter.
    #[test]
    fn short_names_for_long_ones_take_no_memory() {
        let long = format!("/{}", "x".repeat(MOST_PATH - 2));
        let wants = vec![Want { path: long.into_bytes(), what: What::Name, unseen: 0 }; MOST_WANTS];
        let variants = |count: u64| (0..count).map(|key| Variant { key, wrong: 0, wants: wants.clone() });
        let of = |count| Memory { variants: variants(count).collect(), ..Memory::default() }.encode();
        assert!(Memory::decode(&of(3)).is_ok());
        assert_eq!(Memory::decode(&of(4)), Err(Flaw::OutOfBounds));
    }

    fn named(path: &str) -> Want {
        let what = What::Directory { device: 1, inode: 1 };
        Want { path: path.into(), what, unseen: 0 }
    }

    fn paths(wants: &[Want]) -> Vec<&str> {
        wants.iter().map(|want| std::str::from_utf8(&want.path).unwrap()).collect()
    }

    fn remembered(variants: &[(u64, u8, &[&str])]) -> Memory {
        let variants = variants.iter().map(|(key, wrong, names)| Variant {
            key: *key,
            wrong: *wrong,
            wants: names.iter().map(|name| named(name)).collect(),
        });
        Memory { variants: variants.collect(), ..Memory::default() }
    }

    #[test]
    fn the_same_arguments_want_the_same_and_others_what_two_have_wanted() {
        let memory = remembered(&[(1, 0, &["/lib", "/a", "/both"]), (2, 0, &["/both", "/lib", "/b"])]);
        assert_eq!(paths(&memory.wants(2)), ["/both", "/lib", "/b"]);
        assert_eq!(paths(&memory.wants(3)), ["/lib", "/both"]);
        let one = remembered(&[(1, 0, &["/lib"])]);
        assert!(one.wants(3).is_empty());
        let wrong = remembered(&[(1, WRONG_MOST, &["/lib"]), (2, 0, &["/lib"])]);
        assert!(wrong.wants(1).is_empty() && wrong.wants(3).is_empty());
    }

    #[test]
    fn what_is_not_wanted_any_more_is_dropped_after_some_runs() {
        let mut variant = Variant { wants: vec![named("/a"), named("/b")], ..Variant::default() };
        variant.wants = variant.after(vec![named("/c"), named("/a")], true);
        assert_eq!(paths(&variant.wants), ["/c", "/a", "/b"]);
        variant.wants = variant.after(vec![named("/a")], false);
        assert_eq!(paths(&variant.wants), ["/a", "/c", "/b"]);
        variant.wants = variant.after(vec![named("/a")], true);
        assert_eq!(paths(&variant.wants), ["/a", "/c"]);
    }

    #[test]
    fn the_newest_variants_are_kept() {
        let mut memory = Memory::default();
        (0..20).for_each(|key| memory.put(Variant { key, ..Variant::default() }));
        memory.put(Variant { key: 15, ..Variant::default() });
        let keys: Vec<u64> = memory.variants.iter().map(|variant| variant.key).collect();
        assert_eq!(keys, [15, 19, 18, 17, 16, 14, 13, 12]);
    }
}
