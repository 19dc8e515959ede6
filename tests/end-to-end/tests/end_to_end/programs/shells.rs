//! Shells with what they start, terminals, debuggers, core files.

use super::{add, each_line, program, script, setup};
use crate::suite::Suite;
use runahead_end_to_end::compare::{Expectation, Outcome};
use std::fs;
use std::path::Path;

pub fn suite(suite: &mut Suite) {
    shells(suite);
    debuggers(suite);
    core_file(suite);
}

/// Tells of its word size, and executes a program of the machine's own.
const NARROW: &str = "#include <stdio.h>\n#include <unistd.h>\n\
    int main(void) { printf(\"%d\\n\", (int)sizeof(long)); fflush(stdout); execl(\"/bin/echo\", \"echo\", \"wide\", (char *)NULL); }\n";

/// Has four threads spawn it at the same time.
const SPAWNS: &str = "#include <pthread.h>\n#include <spawn.h>\n#include <sys/wait.h>\nextern char **environ;\n\
    static void *spawns(void *of) { char *with[] = {\"narrow\", 0}; pid_t child; for (int at = 0; at < 100; at++)\n\
        if (!posix_spawn(&child, \"./narrow\", 0, 0, with, environ)) waitpid(child, 0, 0); return of; }\n\
    int main(void) { pthread_t threads[4]; for (int at = 0; at < 4; at++) pthread_create(&threads[at], 0, spawns, 0);\n\
        for (int at = 0; at < 4; at++) pthread_join(threads[at], 0); }\n";

fn shells(suite: &mut Suite) {
    // What is read of a shared standard input is gone for the next reader, and no more than that.
    add(
        suite,
        &[],
        script(
            "shared-stdin-head",
            "cd tree/folder-1; cat *.txt > all; ($UNDER head -n 1; cat | cksum; echo) < all",
        ),
    );
    // Programs of 32 bits, whose loader would complain: of a child of fork, of vfork, by a script of
    // theirs, of several threads at a time, and where something else is preloaded before the agent.
    add(
        suite,
        &["multilib", "command dash", "command python3"],
        script(
            "narrow-children",
            "$UNDER bash -c './narrow; ./narrow; ./script; (exec ./narrow)'; $UNDER dash -c './narrow; ./script'; \
             $UNDER python3 -c \"import subprocess; [print(subprocess.run(['./narrow'], capture_output=True)) for at in range(12)]\"; \
             $UNDER bash -c 'export LD_PRELOAD=libm.so.6:$LD_PRELOAD; ./narrow; ./script; (exec ./narrow)'; \
             $UNDER ./spawns > /dev/null",
        )
        .prepare(|directory| {
            fs::write(directory.join("narrow.c"), NARROW)?;
            fs::write(directory.join("spawns.c"), SPAWNS)?;
            setup(directory, "cc -m32 -o narrow narrow.c; cc -pthread -o spawns spawns.c; echo '#!./narrow' > script; chmod +x script")
        }),
    );
    add(
        suite,
        &[],
        script(
            "shared-stdin-twice",
            "cat tree/folder-1/*.txt > all; { $UNDER head -c 1000 | cksum; $UNDER head -c 777 | cksum; $UNDER cat | cksum; } < all",
        ),
    );
    add(
        suite,
        &[],
        script(
            "shared-stdin-read",
            "cat tree/folder-1/*.txt > all; { $UNDER bash -c 'read a; read b; echo $a; echo $b'; head -n 2; } < all",
        ),
    );
    add(suite, &[], script("shared-stdin-loop", "ls tree/folder-1 > names; while read name; do echo $name; $UNDER cat tree/folder-1/$name < /dev/null | cksum; done < names").expect(None));
    add(
        suite,
        &[],
        script(
            "shared-stdin-eaten",
            "ls tree > names; while read name; do echo $name; $UNDER head -c 1 > /dev/null; done < names",
        ),
    );
    add(
        suite,
        &[],
        script(
            "shared-output",
            "exec 3> log; for at in 1 2 3; do $UNDER bash -c 'cat tree/folder-1/file-1.txt >&3; echo at $0 >&3' $at; echo between >&3; done",
        ),
    );
    add(
        suite,
        &[],
        script("append", "for at in 1 2 3; do $UNDER tee -a log < tree/folder-$at/file-1.txt | wc -c; done"),
    );
    // The shell itself under Runahead, with everything that it starts.
    for (name, text) in [
        ("pipes", "cat tree/*/*.txt | tr a-z A-Z | sort | uniq -c | sort -rn | head -20; exit 3"),
        (
            "substitution",
            "for name in tree/folder-1/*.txt; do echo \"$name $(cksum < $name)\"; done; diff <(sort tree/folder-1/file-1.txt) <(sort tree/folder-2/file-1.txt) | tail -3",
        ),
        (
            "background",
            "for at in 0 1 2 3; do cksum tree/folder-$at/*.txt > sum-$at & done; wait; cat sum-*; trap 'echo got it' USR1; kill -USR1 $$; ulimit -n",
        ),
        (
            "early-reader",
            "cat tree/*/*.txt | head -n 2; echo ${PIPESTATUS[0]}; yes | head -n 1; set -o pipefail; cat tree/noise.bin | true; echo $?",
        ),
        (
            "here",
            "cat <<< 'a here string'; cat << END\n$(cat tree/folder-1/file-2.txt | wc -c)\nEND\ncoproc cat; echo line >&${COPROC[1]}; read -u ${COPROC[0]} line; echo $line",
        ),
        (
            "timeout",
            "exec 2> /dev/null; timeout 0.2 cat /dev/zero > /dev/null; echo $?; timeout -s KILL 0.1 sleep 5; echo $?; nice -n 5 cat tree/folder-1/file-1.txt | cksum; nohup cksum tree/noise.bin 2> /dev/null",
        ),
        (
            "subshells",
            "(cd tree/folder-1 && cat *.txt | md5sum; umask 077; touch ../made); umask; (ulimit -t 1000; exec cksum tree/noise.bin)",
        ),
        (
            "find-exec",
            "find tree -name 'file-1*.txt' | sort | xargs -P 2 -n 3 md5sum | sort; find tree -name 'file-3.txt' -exec cat {} + | cksum",
        ),
    ] {
        add(suite, &[], program(&format!("bash-{name}"), &["bash", "-c", text]).expect(None));
    }
    add(
        suite,
        &["command dash"],
        program(
            "sh-script",
            &["sh", "-c", "for f in tree/*/*.txt; do wc -c < $f; done | sort -n | tail -3; . ./tree/nothing"],
        )
        .expect(None),
    );
    add(
        suite,
        &["command script"],
        program(
            "script-in-a-terminal",
            &[
                "script",
                "-q",
                "-e",
                "-c",
                "stty size; cat tree/folder-1/file-1.txt | wc -c; tty | cut -c1-8",
                "/dev/null",
            ],
        )
        .terminal(),
    );
    add(
        suite,
        &[],
        program(
            "in-a-terminal",
            &[
                "bash",
                "-i",
                "-c",
                "set -m; cat tree/folder-1/file-1.txt | cksum; sleep 0.01 & wait %1; jobs; stty -a | head -1",
            ],
        )
        .terminal()
        .expect(None)
        .normalize(|outcome| {
            each_line(outcome, |line| (!line.starts_with("[1] ")).then(|| line.to_owned()));
        }),
    );
}

fn debuggers(suite: &mut Suite) {
    // Traced from outside: `strace -f runahead run …`. What the tracer wrote is not compared.
    let forget_trace = |outcome: &mut Outcome| {
        outcome.tree.remove(Path::new("trace.out"));
    };
    add(
        suite,
        &["command strace"],
        program("strace-outside", &["cat", "tree/folder-1/file-1.txt", "tree/noise.bin"])
            .around(["strace", "-f", "-o", "trace.out"])
            .normalize(forget_trace),
    );
    add(
        suite,
        &["command strace"],
        program(
            "strace-inside",
            &["strace", "-f", "-o", "trace.out", "cat", "tree/folder-1/file-1.txt", "tree/noise.bin"],
        )
        .normalize(forget_trace),
    );
    // Whose errors are the exit status: what the agent does must not be among them.
    add(
        suite,
        &["command valgrind"],
        program(
            "valgrind",
            &["valgrind", "-q", "--error-exitcode=9", "cat", "tree/folder-1/file-1.txt", "tree/noise.bin"],
        ),
    );
    // gdb tells of processes by number and of the exec; the program's own lines are compared.
    let own_lines = |outcome: &mut Outcome| {
        each_line(outcome, |line| line.contains("sum is").then(|| line.to_owned()));
        outcome.stderr.clear();
    };
    let summing = ["bash", "-c", "echo sum is $(cat tree/*/*.txt | cksum)"];
    for (name, around) in [
        ("gdb-run", vec!["-ex", "run"]),
        (
            "gdb-break",
            vec![
                "-ex",
                "catch syscall exit_group",
                "-ex",
                "run",
                "-ex",
                "info registers rip",
                "-ex",
                "continue",
            ],
        ),
    ] {
        let mut words = vec![
            "gdb",
            "-q",
            "-nx",
            "-batch",
            "-iex",
            "set debuginfod enabled off",
            "-iex",
            "set startup-with-shell off",
        ];
        words.extend(around);
        words.push("--args");
        let inside: Vec<&str> = words.iter().copied().chain(summing).collect();
        add(
            suite,
            &["command gdb"],
            program(&format!("{name}-outside"), &summing)
                .around(words.clone())
                .normalize(own_lines)
                .expect(None),
        );
        add(
            suite,
            &["command gdb"],
            program(&format!("{name}-inside"), &inside).normalize(own_lines).expect(None),
        );
    }
}
/// A program that dumps core: the file is there, with the same mode; its contents are not compared.
fn core_file(suite: &mut Suite) {
    let scenario = program("core-file", &["bash", "-c", "cat tree/*/*.txt | cksum; kill -SEGV $$"])
        .around(["bash", "-c", "ulimit -c unlimited; exec \"$@\"", "bash"])
        .expect(Some(Expectation::Signal(11)))
        .normalize(|outcome| {
            let cores = |path: &Path| path.to_string_lossy().starts_with("core");
            for (_, entry) in outcome.tree.iter_mut().filter(|(path, _)| cores(path)) {
                (entry.contents, entry.size) = (Vec::new(), 0);
            }
        });
    add(suite, &[], scenario);
}
