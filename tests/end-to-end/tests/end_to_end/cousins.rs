//! Programs that read files at the same place in many directories, in an order that their contents say: no
//! speculation foretells it, and little stands beside them.

use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::c_program::compiled;
use serde_json::Value;
use std::fs;
use std::io;
use std::path::Path;

/// Files that the program reads.
const READ: u64 = 200;

/// Follows the names from file to file. Each file is mapped, and its descriptor closed before it is touched.
const PROGRAM: &str = r#"
    #include <fcntl.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>
    int main(int words, char **word) {
        char name[256];
        unsigned long files = 0, sum = 0;
        for (strcpy(name, word[1]); *name; files++) {
            int fd = open(name, O_RDONLY);
            char *at = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
            close(fd);
            if (at == MAP_FAILED) { perror(name); return 1; }
            for (int place = 0; place < 2000; place++) sum = sum * 33 + at[place];
            strcpy(name, at);
            munmap(at, 4096);
        }
        printf("%lu %lu\n", files, sum);
        return 0;
    }
"#;

pub fn add(suite: &mut Suite) {
    let wants = slow_disk::WANTS.into_iter().chain(["command gcc"]);
    suite.add("cousins::files of one name are asked for", wants.clone(), || read("named", named, most_used));
    suite.add("cousins::files of a store are asked for", wants.clone(), || read("hashed", hashed, most_used));
    suite.add("cousins::few where few are wanted", wants, || read("scattered", scattered, few_asked));
}

/// Writes the files in this order, each of which names the next.
fn chain(folder: &Path, names: &[String]) -> io::Result<()> {
    for (name, next) in names.iter().zip(names.iter().skip(1).map(String::as_str).chain([""])) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        let mut text = format!("{next}\0").into_bytes();
        text.resize(3000, name.len() as u8);
        fs::write(path, text)?;
    }
    Ok(())
}

/// The same name in each directory.
fn named(folder: &Path) -> io::Result<String> {
    let names: Vec<String> = (0..READ).map(|at| format!("m/d{:03}/lib/index", at * 37 % READ)).collect();
    chain(folder, &names)?;
    Ok(names[0].clone())
}

/// Other names in each directory, five in each.
fn hashed(folder: &Path) -> io::Result<String> {
    let name = |at: u64| {
        let file = at * 37 % READ;
        format!("m/{:02}/{:x}", file / 5, file * 0x9e37_79b9)
    };
    let names: Vec<String> = (0..READ).map(name).collect();
    chain(folder, &names)?;
    Ok(names[0].clone())
}

/// The same name in each directory, of which the program wants a few; and files that stand nowhere else.
fn scattered(folder: &Path) -> io::Result<String> {
    let all: Vec<String> = (0..5 * READ).map(|at| format!("m/d{at:04}/lib/index")).collect();
    chain(folder, &all)?;
    let own = |at: u64| format!("n{at}/{at}.{at}");
    let wanted = |at: u64| if at * 37 % READ < READ / 10 { all[at as usize * 5].clone() } else { own(at) };
    let names: Vec<String> = (0..READ).map(wanted).collect();
    chain(folder, &names)?;
    Ok(names[0].clone())
}

fn most_used(counts: &Value) -> Verdict {
    let (asked, used) = (number(counts, "companions")?, number(counts, "companions_used")?);
    let good = (READ / 2..=READ).contains(&used);
    if good { Ok(()) } else { Err(format!("{asked} asked for, {used} used")) }
}

fn few_asked(counts: &Value) -> Verdict {
    let (asked, used) = (number(counts, "companions")?, number(counts, "companions_used")?);
    let good = (4..=READ / 4).contains(&(asked - used));
    if good { Ok(()) } else { Err(format!("{asked} asked for, {used} used {counts}")) }
}

fn read(name: &'static str, fill: fn(&Path) -> io::Result<String>, good: fn(&Value) -> Verdict) -> Verdict {
    let program = compiled(&format!("cousins-{name}"), PROGRAM, &["-O1"])?;
    let filled = |folder: &Path| {
        fs::copy(&program, folder.join("follow"))?;
        let first = fill(folder)?;
        fs::write(folder.join("first"), first)
    };
    let line = "cd $0; exec ./follow $(cat first)";
    let words = |mount: &Path| vec!["bash".into(), "-c".into(), line.into(), mount.into()];
    let verdict = Disk::new(name, "cloud", filled)?.until(&words, 1, good);
    let _ = fs::remove_file(program);
    verdict
}
