//! A B-tree in one file that is read through a mapping, as LMDB's are: pages of 4 KiB, keys in order within a page, and
//! pages anywhere in the file, as after many changes. Nothing here is for changing it.
//!
//! Page 0 tells where the root is and how many levels of inner pages there are. A page begins with the number of its
//! entries; those of an inner page are the lowest key below a child, and the child's page.

use crate::{Random, scramble};

const PAGE: usize = 4096;
const WORD: usize = size_of::<u64>();
/// Entries of an inner page.
const INNER: usize = (PAGE - WORD) / (2 * WORD);
/// Bytes of a leaf's entry, its key included, and how many there are.
const ENTRY: usize = 400;
const LEAF: usize = (PAGE - WORD) / ENTRY;

/// The key of entry `number`.
pub fn key(number: u64) -> u64 {
    number * 3 + 1
}

/// Writes a tree of so many entries, from the first page to the last. The same for every machine.
pub fn write<Failure>(
    entries: u64,
    mut each: impl FnMut(&[u8; PAGE]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // Nodes are counted through all levels, leaves first.
    let mut levels = vec![entries.div_ceil(LEAF as u64)];
    while let Some(&below) = levels.last()
        && below > 1
    {
        levels.push(below.div_ceil(INNER as u64));
    }
    let nodes: u64 = levels.iter().sum();
    let mut at: Vec<u64> = (0..nodes).collect();
    let mut random = Random::new(13);
    for last in (1..nodes).rev() {
        at.swap(last as usize, random.below(last + 1) as usize);
    }
    // `at`: the node of each page behind the header; `place`: the page of each node.
    let mut place = vec![0; at.len()];
    for (page, &node) in at.iter().enumerate() {
        place[node as usize] = page as u64 + 1;
    }
    let mut page = [0; PAGE];
    put(&mut page, 1, place[nodes as usize - 1]);
    put(&mut page, 2, levels.len() as u64 - 1);
    each(&page)?;
    for &node in &at {
        each(&contents(node, entries, &levels, &place))?;
    }
    Ok(())
}

fn contents(node: u64, entries: u64, levels: &[u64], place: &[u64]) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    if node < levels[0] {
        let first = node * LEAF as u64;
        let count = (entries - first).min(LEAF as u64);
        put(&mut page, 0, count);
        for number in 0..count {
            let key = key(first + number);
            let entry = &mut page[WORD + number as usize * ENTRY..][..ENTRY];
            for (word, bytes) in entry.chunks_mut(WORD).enumerate() {
                let value = if word == 0 { key } else { scramble(key + word as u64) };
                bytes.copy_from_slice(&value.to_le_bytes());
            }
        }
        return page;
    }
    // The nodes below this level, those on the level below, and entries below each of these.
    let (mut level, mut base, mut below, mut spans) = (1, levels[0], 0, LEAF as u64);
    while node >= base + levels[level] {
        (below, base) = (base, base + levels[level]);
        spans *= INNER as u64;
        level += 1;
    }
    let first = (node - base) * INNER as u64;
    let count = (levels[level - 1] - first).min(INNER as u64);
    put(&mut page, 0, count);
    for number in 0..count {
        put(&mut page, 1 + 2 * number as usize, key((first + number) * spans));
        put(&mut page, 2 + 2 * number as usize, place[(below + first + number) as usize]);
    }
    page
}

fn put(page: &mut [u8], word: usize, value: u64) {
    page[word * WORD..][..WORD].copy_from_slice(&value.to_le_bytes());
}

fn word(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| page[at * WORD + byte]))
}

fn page(tree: &[u8], number: u64) -> Option<&[u8]> {
    let start = usize::try_from(number).ok()?.checked_mul(PAGE)?;
    tree.get(start..)?.get(..PAGE)
}

/// The value behind a key.
pub fn look_up(tree: &[u8], key: u64) -> Option<&[u8]> {
    let header = page(tree, 0)?;
    let mut node = page(tree, word(header, 1))?;
    for _ in 0..word(header, 2) {
        let count = (word(node, 0) as usize).min(INNER);
        let after = first_beyond(count, |number| word(node, 1 + 2 * number) > key);
        node = page(tree, word(node, 2 * after.checked_sub(1)? + 2))?;
    }
    let count = (word(node, 0) as usize).min(LEAF);
    let entry = |number: usize| &node[WORD + number * ENTRY..][..ENTRY];
    let after = first_beyond(count, |number| word(entry(number), 0) > key);
    let found = entry(after.checked_sub(1)?);
    (word(found, 0) == key).then_some(&found[WORD..])
}

/// The first of `count` numbers for which `beyond` holds, as it does for all after it.
fn first_beyond(count: usize, beyond: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = (low + high) / 2;
        if beyond(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(entries: u64) -> Vec<u8> {
        let mut tree = Vec::new();
        let written: Result<(), ()> = write(entries, |page| {
            tree.extend_from_slice(page);
            Ok(())
        });
        written.unwrap();
        tree
    }

    #[test]
    fn what_is_there_is_found_and_nothing_else() {
        for entries in [1, 10, 11, 2550, 2551, 30_000] {
            let tree = tree(entries);
            for number in (0..entries).step_by(entries as usize / 1000 + 1).chain([entries - 1]) {
                let found = look_up(&tree, key(number)).unwrap();
                assert_eq!(word(found, 0), scramble(key(number) + 1), "{number} of {entries}");
                assert_eq!(look_up(&tree, key(number) + 1), None);
            }
            assert_eq!([0, key(entries)].map(|key| look_up(&tree, key)), [None; 2]);
        }
    }

    #[test]
    fn pages_that_are_zeros_hold_nothing() {
        let mut tree = tree(30_000);
        tree[PAGE..].fill(0);
        assert_eq!(look_up(&tree, key(7)), None);
    }

    #[test]
    fn neighbours_lie_apart() {
        let tree = tree(30_000);
        let at = |number| look_up(&tree, key(number)).unwrap().as_ptr() as usize;
        let near = (0..2999).filter(|leaf| at(leaf * 10).abs_diff(at(leaf * 10 + 10)) <= 8 * PAGE).count();
        assert!(near < 60, "{near} of 3000 leaves lie near the one before");
    }
}
