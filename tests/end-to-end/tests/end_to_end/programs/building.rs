//! Version control, compilers, linkers, make.

use super::{add, files, program, setup};
use crate::suite::Suite;
use std::fs;
use std::path::Path;

pub fn suite(suite: &mut Suite) {
    git(suite);
    builders(suite);
}

fn git(suite: &mut Suite) {
    let repository = |directory: &Path| {
        files(directory)?;
        setup(
            directory,
            "rm tree/closed tree/dangling; export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
             cd tree; git init -q -b main .; git config user.name Nobody; git config user.email nobody@example.org
             git config gc.auto 0; git add .; git commit -q -m first
             sed -i s/needle/pin/ folder-*/file-1.txt; git commit -q -a -m second; git rm -q -r folder-7; git commit -q -m third
             echo more >> folder-2/file-2.txt; echo new > untracked",
        )
    };
    for (name, arguments) in [
        ("status", "status --porcelain"),
        ("grep", "grep -c needle"),
        ("grep-threads-1", "-c grep.threads=1 grep needle"),
        ("log", "log -p --stat"),
        ("diff", "diff HEAD~2"),
        ("fsck", "fsck --strict --no-progress"),
        ("archive", "archive --format=tar HEAD"),
        ("blame", "blame folder-1/file-1.txt"),
        ("repack", "repack -q -a -d --threads=1"),
        ("clone", "clone -q --no-hardlinks . ../copy"),
        ("checkout", "checkout -q HEAD~2"),
    ] {
        let argv = format!("git -C tree {arguments}");
        let scenario = program(&format!("git-{name}"), &argv.split(' ').collect::<Vec<_>>())
            .prepare(repository)
            .environment("GIT_OPTIONAL_LOCKS", "0")
            .normalize(|outcome| {
                // The index keeps inode numbers and times of change, a log the time of day.
                for (path, entry) in &mut outcome.tree {
                    if path.ends_with(".git/index") || path.to_string_lossy().contains(".git/logs/") {
                        entry.contents.clear();
                    }
                }
            });
        add(suite, &["command git"], scenario);
    }
}

fn builders(suite: &mut Suite) {
    let sources = |directory: &Path| {
        let mut main = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
        let mut makefile = String::from("all: program\nOBJECTS = main.o");
        for at in 0..12 {
            let text = format!(
                "#include <stdio.h>\n#include <math.h>\n#include <sys/types.h>\nint part_{at}(int x) {{ return x * {at} + (int)sizeof(FILE); }}\n"
            );
            fs::write(directory.join(format!("part_{at}.c")), text)?;
            main += &format!("int part_{at}(int);\n");
            makefile += &format!(" part_{at}.o");
        }
        main += "int main(void) { int sum = 0;\n";
        for at in 0..12 {
            main += &format!("sum += part_{at}({at});\n");
        }
        main += "printf(\"%d\\n\", sum != 0); return 0; }\n";
        makefile += "\nprogram: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\n\t./program > result\n%.o: %.c\n\t$(CC) -g -O1 -c -o $@ $<\n";
        fs::write(directory.join("main.c"), main)?;
        fs::write(directory.join("Makefile"), makefile)
    };
    add(
        suite,
        &["command gcc"],
        program("gcc", &["gcc", "-g", "-O2", "-c", "main.c", "part_1.c", "part_2.c"]).prepare(sources),
    );
    add(
        suite,
        &["command gcc"],
        program("gcc-error", &["gcc", "-c", "Makefile", "-x", "c"]).prepare(sources).expect(None),
    );
    add(suite, &["command make"], program("make-j2", &["make", "-s", "-j2"]).prepare(sources));
    let objects = move |directory: &Path| {
        sources(directory)?;
        setup(directory, "gcc -g -O1 -c *.c")
    };
    add(
        suite,
        &["command ld"],
        program("ld", &["bash", "-c", "exec ld -r -o all.o main.o part_*.o"]).prepare(objects),
    );
    add(
        suite,
        &["command gcc"],
        program("link", &["bash", "-c", "gcc -o program *.o && ./program"]).prepare(objects),
    );
    add(
        suite,
        &["command ar"],
        program("ar", &["bash", "-c", "ar rcsD all.a *.o && nm all.a && objdump -d all.a | cksum"])
            .prepare(objects),
    );
}
