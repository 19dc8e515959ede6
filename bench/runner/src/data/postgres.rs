//! A PostgreSQL cluster with the four relations of the AS3AP benchmark (the 2003 paper's data: 500 MB).
//!
//! The server does not run as root, so the cluster belongs to `nobody` where we are root, and to us
//! elsewhere. It is filled and later measured in single-user mode: one process, no daemon to clean up
//! after, the same code below.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bench_programs::Random;

use super::Maker;

/// Debian 12's.
pub const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// Of each relation; a row takes some 165 bytes with its header.
const ROWS: u64 = 800_000;
const LOOK_UPS: u64 = 3000;

/// AS3AP's columns. They differ in how often a value repeats: never, in a tenth of the rows, a hundred
/// values in all.
const RELATIONS: [(&str, &str); 4] =
    [("uniques", "800000"), ("updates", "800000"), ("hundred", "100"), ("tenpct", "80000")];

/// A prefix that gives root's rights up; PostgreSQL wants that.
pub fn as_nobody() -> &'static [&'static str] {
    if slowdisk::system::is_root() {
        &["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    } else {
        &[]
    }
}

pub fn cluster(maker: &Maker) -> Result<()> {
    let mut fill = String::new();
    for (relation, values) in RELATIONS {
        // Multiplication by a prime permutes the numbers; every line is a statement in this mode.
        fill += &format!(
            "CREATE TABLE {relation} (col_key int NOT NULL, col_int int, col_signed int, col_float real, \
             col_double double precision, col_decim numeric(18,2), col_date char(20), col_code char(10), \
             col_name char(20), col_address varchar(80))\n\
             INSERT INTO {relation} SELECT (number * 7919) % {ROWS}, (number * 104729) % {values}, \
             (number * 104729) % {values} - {values} / 2, (number * 31) % {values}, (number * 37) % {values}, \
             (number * 41) % {values}, '1/1/' || 1900 + number % 100, lpad(((number * 43) % {values})::text, 10), \
             lpad(((number * 47) % {values})::text, 20), repeat('a', (number % 30)::int) \
             FROM generate_series(0::bigint, {ROWS} - 1) AS number\n"
        );
    }
    fill += "CREATE INDEX uniques_key ON uniques (col_key)\n";
    // Rows marked as settled for good: reading them later writes nothing.
    fill += "VACUUM (FREEZE, ANALYZE)\nCHECKPOINT\n";
    let mut look_up = String::new();
    let mut random = Random::new(13);
    for _ in 0..LOOK_UPS {
        look_up += &format!("SELECT col_code FROM uniques WHERE col_key = {}\n", random.below(ROWS));
    }
    let build: String = RELATIONS
        .iter()
        .flat_map(|(relation, _)| {
            [("int", "col_int"), ("code", "col_code")]
                .map(|(name, column)| format!("CREATE INDEX {relation}_{name} ON {relation} ({column})\n"))
        })
        .collect();
    let script = maker.beside("sql");
    fs::write(&script, fill)?;
    let owner = as_nobody().join(" ");
    let make = format!(
        r#"
        chmod 755 .
        mkdir -m 700 cluster
        [ -z "$2" ] || chown nobody:nogroup cluster
        here=$PWD
        cd /
        $2 {PROGRAMS}/initdb -D "$here/cluster" --no-locale -E UTF8 -A trust --no-sync
        $2 {PROGRAMS}/postgres --single -D "$here/cluster" -F -c log_min_messages=panic \
            -c max_wal_size=256MB -c min_wal_size=32MB postgres < "$1"
    "#
    );
    maker.shell(&make, &[&script, Path::new(&owner)]).with_context(|| {
        format!(
            "the server could not work in {}; 'nobody' must be able to reach it",
            maker.partial().display()
        )
    })?;
    fs::remove_file(&script)?;
    fs::write(maker.partial().join("look-up.sql"), look_up)?;
    // Taken back at the end, so that every run finds the cluster as the first did.
    fs::write(maker.partial().join("build.sql"), format!("BEGIN\n{build}ROLLBACK\n"))?;
    list(maker)
}

/// The relations' files and the index; the catalogue is small and written to.
fn list(maker: &Maker) -> Result<()> {
    let mut names = Vec::new();
    for database in fs::read_dir(maker.partial().join("cluster/base"))? {
        for file in fs::read_dir(database?.path())? {
            let file = file?.path();
            if file.metadata()?.size() > 8 << 20
                && let Some(name) = file.strip_prefix(maker.partial())?.to_str()
            {
                names.push(format!("postgres/{name}\n"));
            }
        }
    }
    names.sort();
    ensure!(names.len() > RELATIONS.len(), "the cluster has only {} large files", names.len());
    fs::write(maker.beside("files"), names.concat()).context("cannot write the list of files")
}
