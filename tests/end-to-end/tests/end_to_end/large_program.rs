//! A program of many megabytes of code on a cold disk: its start and its course go through its own files by page faults, and these
//! are watched.

use crate::slow_disk::{self, Disk, number};
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::locate::build_folder;
use std::fs;
use std::path::Path;
use std::process::Command;

/// How often it waits for pages of its code alone, of 12 MB, where the kernel reads 128 KB around each.
const WAITS: u64 = 12 * 8;

/// A table for the loader to relocate, at places so far apart that it waits for each; and 3000 pages of code, each a
/// function of its own, which it calls in an order that nobody foresees.
const SOURCE: &str = r#"
    #include <stdio.h>
    __asm__(".data\n.globl table\ntable:\n.rept 64\n.quad code\n.fill 262136,1,1\n.endr\n"
            ".text\n.balign 4096\n.globl code\ncode:\n.rept 3000\nlea 1(%rdi), %rax\nret\n.balign 4096, 0x90\n.endr\n");
    extern char code[], table[];
    int main(void) {
        unsigned long sum = 0;
        for (unsigned long at = 0; at < 3000; at++)
            sum += ((unsigned long (*)(unsigned long))(code + at * 577 % 3000 * 4096))(at);
        printf("%lu\n", sum + (*(char **)table != code));
    }
"#;

pub fn add(suite: &mut Suite) {
    let wants = slow_disk::WANTS.into_iter().chain(["command gcc"]);
    suite.add("large program::its own pages are asked for ahead when it is cold", wants, cold);
}

fn cold() -> Verdict {
    let made = build_folder().join(format!("large-{}", std::process::id()));
    let written =
        fs::create_dir_all(build_folder()).and_then(|()| fs::write(made.with_extension("c"), SOURCE));
    written.map_err(|error| error.to_string())?;
    let (source, program) = (made.with_extension("c"), made.clone());
    let compiled = Command::new("gcc").args(["-O1", "-pie", "-o"]).arg(&program).arg(&source).output();
    let compiled = compiled.map_err(|error| format!("gcc: {error}"))?;
    if !compiled.status.success() {
        return Err(String::from_utf8_lossy(&compiled.stderr).into_owned());
    }
    let on_disk = |folder: &Path| fs::copy(&program, folder.join("large")).map(drop);
    // At its first start it is analysed, for which all of it is read; and then it is put out of the cache.
    let line = "$0 && dd if=$0 iflag=nocache count=0 status=none && $0";
    let verdict = Disk::new("large", "cloud", on_disk)?.until(
        &|mount: &Path| vec!["sh".into(), "-c".into(), line.into(), mount.join("large")],
        1,
        |counts| {
            let faults = &counts["faults"];
            let (watched, spared) = (number(faults, "watched")?, number(faults, "useful_pages")?);
            match watched > 0 && spared > WAITS / 4 {
                true => Ok(()),
                false => Err(format!("watched {watched} times, {spared} waits spared")),
            }
        },
    );
    for file in [source, made] {
        let _ = fs::remove_file(file);
    }
    verdict
}
