//! Sets that are computed. Each is the same on every machine.

use std::fs::{self, File};
use std::io::{BufWriter, Write};

use anyhow::{Context, Result};
use bench_programs::{Random, btree, scramble};

use super::Maker;

/// Rows of the database: 1 GB at some 480 bytes a row and 45 for its index entry.
const ROWS: u64 = 1_950_000;
const LOOK_UPS: u64 = 1500;
const EDGE: u64 = 512;

/// Two megabytes at a time: few calls, and still inside the processor's cache.
const CHUNK: usize = 2 << 20;

/// One table of rows with a unique number, an indexed key without order, and a text of 400 characters.
pub fn database(maker: &Maker) -> Result<()> {
    // Numbers with no order but no chance either: multiplication by an odd constant permutes them.
    let key = "printf('%08x', (number * 2654435761) & 4294967295)";
    let make = format!(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -400000;
         PRAGMA page_size = 4096;
         CREATE TABLE rows (number INTEGER PRIMARY KEY, key TEXT, content TEXT);
         WITH RECURSIVE counted(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM counted WHERE number < {ROWS})
         INSERT INTO rows SELECT number, {key}, replace(printf('%050d', number * 7919), '0', {key}) || number
         FROM counted;
         CREATE INDEX keys ON rows (key);"
    );
    let script = maker.beside("sql");
    fs::write(&script, make)?;
    maker.shell("sqlite3 rows.db < \"$1\"", &[&script])?;
    fs::remove_file(&script)?;
    let mut random = Random::new(11);
    let mut by_key = String::new();
    let mut by_number = String::new();
    for _ in 0..LOOK_UPS {
        let number = 1 + random.below(ROWS);
        let key = (number * 2_654_435_761) & 0xFFFF_FFFF;
        by_key += &format!("SELECT number, substr(content, 1, 40) FROM rows WHERE key = '{key:08x}';\n");
        by_number += &format!(
            "SELECT key, substr(content, 1, 40) FROM rows WHERE number = {};\n",
            1 + random.below(ROWS)
        );
    }
    fs::write(maker.partial().join("by-key.sql"), by_key)?;
    fs::write(maker.partial().join("by-number.sql"), by_number)?;
    list(maker, &["rows.db", "by-key.sql", "by-number.sql"])
}

/// A cube of floats from 0 to 1, smooth along x as measured data are.
pub fn volume(maker: &Maker) -> Result<()> {
    let mut file = BufWriter::with_capacity(CHUNK, create(maker, "volume.raw")?);
    for row in 0..EDGE * EDGE {
        let (base, slope) = (scramble(row) % 500, scramble(row + 1) % 1000);
        for x in 0..EDGE {
            let value = (base as f32 + slope as f32 * x as f32 / EDGE as f32) / 1500.0;
            file.write_all(&value.to_le_bytes())?;
        }
    }
    file.flush()?;
    list(maker, &["volume.raw"])
}

/// Entries of the B-tree, 400 bytes each.
pub const ENTRIES: u64 = 1_300_000;

/// A B-tree whose pages lie anywhere.
pub fn entries(maker: &Maker) -> Result<()> {
    let mut file = BufWriter::with_capacity(CHUNK, create(maker, "tree.pages")?);
    btree::write(ENTRIES, |page| file.write_all(page))?;
    file.flush()?;
    list(maker, &["tree.pages"])
}

/// A gigabyte without any order.
pub fn blocks(maker: &Maker) -> Result<()> {
    let mut file = BufWriter::with_capacity(CHUNK, create(maker, "blocks.raw")?);
    let mut random = Random::new(12);
    for _ in 0..(1u64 << 30) / 8 {
        file.write_all(&random.number().to_le_bytes())?;
    }
    file.flush()?;
    list(maker, &["blocks.raw"])
}

fn create(maker: &Maker, name: &str) -> Result<File> {
    let path = maker.partial().join(name);
    File::create(&path).with_context(|| format!("cannot write {}", path.display()))
}

fn list(maker: &Maker, names: &[&str]) -> Result<()> {
    let set = maker.finished();
    let set = set.file_name().unwrap_or_default().to_string_lossy();
    let lines: String = names.iter().map(|name| format!("{set}/{name}\n")).collect();
    fs::write(maker.beside("files"), lines).context("cannot write the list of files")
}
