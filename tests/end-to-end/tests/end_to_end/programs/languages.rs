//! Interpreters and databases.

use super::{add, files, program, script, setup};
use crate::suite::Suite;
use runahead_end_to_end::locate;
use std::fs;
use std::path::Path;

pub fn suite(suite: &mut Suite) {
    languages(suite);
    databases(suite);
}

/// The scripts in `tests/scripts`, each as the program `python3` or `perl` runs.
fn languages(suite: &mut Suite) {
    let scripts = locate::tests_folder().join("scripts");
    let mut names: Vec<_> = fs::read_dir(scripts).into_iter().flatten().flatten().collect();
    names.sort_by_key(|entry| entry.file_name());
    for entry in names {
        let path = entry.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        // Not the bare name: a script beside a module of its own name is found first.
        let file = format!("script-{stem}");
        let interpreter: &[&str] = match path.extension().and_then(|kind| kind.to_str()) {
            Some("py") => &["/usr/bin/python3", "-B"],
            _ => &["/usr/bin/perl"],
        };
        let argv = interpreter.iter().copied().chain([file.as_str()]).collect::<Vec<_>>();
        let name = format!("script-{}", path.file_name().unwrap_or_default().to_string_lossy());
        let need = format!("file {}", interpreter[0]);
        let scenario = program(&name, &argv).prepare(move |directory| {
            files(directory)?;
            fs::copy(&path, directory.join(&file)).map(|_| ())
        });
        add(suite, &[&need], scenario);
    }
}

fn databases(suite: &mut Suite) {
    let filled = |directory: &Path| {
        setup(directory, "sqlite3 test.db \"pragma page_size = 4096; create table t (id integer primary key, key text, payload blob);
            with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
            insert into t select i, printf('%08x', (i * 7919) % 20011), zeroblob(100 + i % 200) from n; create index by_key on t(key);\"")
    };
    let look_ups: String = (0..200)
        .map(|at| format!("select id, length(payload) from t where key = printf('%08x', {});", at * 101))
        .collect();
    add(
        suite,
        &["command sqlite3"],
        program("sqlite-look-ups", &["sqlite3", "test.db", &look_ups]).prepare(filled),
    );
    add(
        suite,
        &["command sqlite3"],
        program(
            "sqlite-scan",
            &["sqlite3", "test.db", "select count(*), sum(length(payload)), min(key) from t;"],
        )
        .prepare(filled),
    );
    add(
        suite,
        &["command sqlite3"],
        program(
            "sqlite-mmap",
            &[
                "sqlite3",
                "test.db",
                "pragma mmap_size = 100000000; select sum(length(payload)) from t where key > '00002000';",
            ],
        )
        .prepare(filled),
    );
    add(suite, &["command sqlite3"], program("sqlite-update", &["sqlite3", "test.db", "begin; update t set payload = zeroblob(150) where id % 100 = 0; delete from t where id % 97 = 1; commit; vacuum; pragma integrity_check; select count(*) from t;"]).prepare(filled));
    // Two of them share the database, by its locks.
    add(suite, &["command sqlite3"], script("sqlite-two", "for at in 1 2 3 4 5; do $UNDER sqlite3 -cmd '.timeout 20000' test.db \"update t set payload = zeroblob(10) where id % 50 = $at\" & done; wait; $UNDER sqlite3 test.db 'select sum(length(payload)) from t'").prepare(filled).normalize(|outcome| {
        // Which of the two wrote a page first shows in the file, not in what it holds.
        outcome.tree.clear();
    }));
}
