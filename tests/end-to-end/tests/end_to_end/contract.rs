//! The command line's contract: exit codes, options, what happens before the command starts, and the
//! switch that turns everything off.

use crate::faults;
use crate::programs;
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::compare::{self, Outcome};
use runahead_end_to_end::locate::Runahead;
use runahead_end_to_end::scenario::{ALONE, COLD, HARNESS_FAILED, Mode, Scenario};
use runahead_end_to_end::supervise::Ending;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub fn add(suite: &mut Suite) {
    let built = |check: fn(&Runahead) -> Verdict| move || check(&Runahead::built()?);
    suite.add_plain("contract::command not found is 127", built(not_found));
    suite.add_plain("contract::command not executable is 126", built(not_executable));
    suite.add_plain("contract::wrong usage is 125", built(wrong_usage));
    suite.add_plain(
        "contract::an unwritable report is 125 before the command starts",
        built(unwritable_report),
    );
    suite.add_plain("contract::the report is JSON", built(report_is_json));
    suite.add_plain("contract::the report of a plain run says why", built(report_of_a_plain_run));
    suite.add_plain("contract::the report says that somebody notices who opens files", built(told_of_notice));
    suite.add_plain(
        "contract::a report that may not be written keeps nothing from running",
        built(report_limited),
    );
    suite.add_plain(
        "contract::a static program's report is there at its end, and says why",
        built(static_program),
    );
    suite.add_plain("contract::a command that is run by the loader is helped", built(loader_as_the_command));
    suite.add_plain("contract::what was read is reported, not what was asked for", built(bytes_read));
    suite.add_plain("contract::code that cannot be seen is a reason to run plainly", built(blind));
    suite.add_plain("contract::loaded code that cannot be seen is a reason to leave", built(blind_later));
    suite.add_plain("contract::a program that is traced at its start is said to be", built(traced));
    suite.add_plain("contract::whatever is limited, the command runs", built(limited));
    suite.add(
        "contract::without another process the command runs",
        ["root", "command setpriv"],
        built(no_more_processes),
    );
    suite.add_plain("contract::limits are kept, and wrong ones refused", built(limits));
    suite.add_plain("contract::a limit of nothing lets nothing be fetched", built(limits_of_nothing));
    suite.add_plain("contract::statistics go to standard error after the program", built(statistics));
    suite.add_plain("contract::exit statuses pass through", built(exit_statuses));
    suite.add_plain("contract::the command keeps the process", built(same_process));
    suite.add_plain("contract::RUNAHEAD=off runs the command plainly", built(switched_off));
    suite.add_plain("contract::arguments pass through untouched", built(arguments));
    suite.add_plain(
        "contract::thousands of arguments are reported whole and shown short",
        built(many_arguments),
    );
    suite.add_plain("contract::a script without an interpreter's line runs", built(script));
    suite.add_plain("contract::verbose says something and changes nothing", built(verbose));
}

/// One run of a shell line, in which `$UNDER` is the command under test with the given options.
pub fn run(
    name: &str,
    options: &'static [&'static str],
    line: &str,
    runahead: &Runahead,
) -> Result<Outcome, String> {
    let mode = Mode { name: "under", options: Some(options), cold: true };
    let scenario = Scenario::shell(format!("contract {name}"), line).prepare(|directory| {
        fs::write(directory.join("plain-file"), "not a program\n")?;
        fs::create_dir(directory.join("folder"))?;
        fs::write(directory.join("bad-interpreter"), "#!/nonexistent/interpreter\n")?;
        fs::set_permissions(directory.join("bad-interpreter"), fs::Permissions::from_mode(0o755))?;
        programs::files(directory)
    });
    scenario.run(&mode, runahead).map_err(|error| scenario.broken(&error))
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn expect_code(outcome: &Outcome, code: i32) -> Verdict {
    if outcome.report.ending == Ending::Exited(code) {
        return Ok(());
    }
    Err(format!(
        "expected exit status {code}, got {:?}; standard error: {}",
        outcome.report.ending,
        text(&outcome.stderr)
    ))
}

/// A message for people: at least one line, that names what it is about, and no flood.
pub fn expect_message(outcome: &Outcome, about: &str) -> Verdict {
    let said = text(&outcome.stderr);
    let lines = said.lines().count();
    if said.contains(about) && (1..=12).contains(&lines) {
        return Ok(());
    }
    Err(format!("expected a short message about '{about}', got: {said}"))
}

pub fn expect_not_started(outcome: &Outcome) -> Verdict {
    if outcome.stdout.is_empty() && !outcome.tree.contains_key(Path::new("started")) {
        return Ok(());
    }
    Err("the command was started all the same".to_owned())
}

pub fn not_found(runahead: &Runahead) -> Verdict {
    for missing in ["./nothing-here", "no-such-command-anywhere", "plain-file/below"] {
        let outcome = run("not found", &[], &format!("exec $UNDER {missing} argument"), runahead)?;
        // A path through a file is ENOTDIR, which a shell calls 126 and env 127; either will do.
        if missing.contains('/') && !missing.starts_with('.') {
            expect_code(&outcome, 126).or_else(|_| expect_code(&outcome, 127))?;
        } else {
            expect_code(&outcome, 127)?;
        }
        expect_message(&outcome, missing)?;
    }
    Ok(())
}

pub fn not_executable(runahead: &Runahead) -> Verdict {
    for refused in ["./plain-file", "./folder"] {
        let outcome = run("not executable", &[], &format!("exec $UNDER {refused}"), runahead)?;
        expect_code(&outcome, 126)?;
        expect_message(&outcome, refused)?;
    }
    // An interpreter that is not there is "not found" to the kernel: 127 or 126, but a message.
    let outcome = run("bad interpreter", &[], "exec $UNDER ./bad-interpreter", runahead)?;
    expect_code(&outcome, 127).or_else(|_| expect_code(&outcome, 126))?;
    expect_message(&outcome, "bad-interpreter")
}

fn wrong_usage(runahead: &Runahead) -> Verdict {
    // $UNDER is "…/runahead run --"; its first word is the command.
    for (line, about) in [
        ("set -- $UNDER; exec $1 run --no-such-option -- touch started", "no-such-option"),
        ("set -- $UNDER; exec $1 run", "ommand"),
        ("set -- $UNDER; exec $1 run --", "ommand"),
        ("set -- $UNDER; exec $1 run --report", "report"),
        ("set -- $UNDER; exec $1 no-such-verb -- touch started", "no-such-verb"),
    ] {
        let outcome = run("usage", &[], line, runahead)?;
        expect_code(&outcome, 125).map_err(|why| format!("{line}: {why}"))?;
        expect_not_started(&outcome)?;
        let said = text(&outcome.stderr).to_lowercase();
        if said.is_empty() || !(said.contains(&about.to_lowercase()) || said.contains("usage")) {
            return Err(format!("{line}: said '{said}', nothing about '{about}'"));
        }
    }
    Ok(())
}

pub fn unwritable_report(runahead: &Runahead) -> Verdict {
    for path in ["/proc/nonexistent/report.json", "folder", "plain-file/report"] {
        let line = format!("set -- $UNDER; exec $1 run --report {path} -- touch started");
        let outcome = run("unwritable report", &[], &line, runahead)?;
        expect_code(&outcome, 125).map_err(|why| format!("--report {path}: {why}"))?;
        expect_not_started(&outcome)?;
        expect_message(&outcome, path)?;
    }
    Ok(())
}

pub fn report_is_json(runahead: &Runahead) -> Verdict {
    // The report is there when the command is done, also for one that fails or is killed.
    for (name, command) in
        [("ok", "cat tree/noise.bin"), ("fails", "false"), ("killed", "bash -c 'kill -9 $$'")]
    {
        let line = format!(
            "set -- $UNDER; $1 run --report {name}.json -- {command} > /dev/null; \
             for wait in 1 2 3 4 5 6 7 8 9 10; do [ -s {name}.json ] && break; sleep 0.05; done; exit 0"
        );
        let outcome = run("report", &[], &line, runahead)?;
        expect_code(&outcome, 0)?;
        let file = format!("{name}.json");
        let Some(entry) = outcome.tree.get(Path::new(&file)) else {
            return Err(format!("{command}: no report was written"));
        };
        if let Err(error) = serde_json::from_slice::<serde_json::Value>(&entry.contents) {
            return Err(format!("{command}: the report is not JSON: {error}: {}", text(&entry.contents)));
        }
    }
    Ok(())
}

/// Of who takes a lease, and of who watches a directory.
fn told_of_notice(runahead: &Runahead) -> Verdict {
    let guest = faults::guest("noticed")?;
    for arguments in [["lease"], ["inotify"]] {
        let mut scenario = guest.scenario(&guest.run_with(&arguments))?;
        scenario.name = format!("told of notice {}", arguments[0]);
        let mode = Mode { name: "reported", options: Some(&["--report", "report.json"]), cold: true };
        let outcome = scenario.run(&mode, runahead).map_err(|error| error.to_string())?;
        let entry = outcome.tree.get(Path::new("report.json")).ok_or("no report was written")?;
        let report: serde_json::Value =
            serde_json::from_slice(&entry.contents).map_err(|error| format!("not JSON: {error}"))?;
        match report["left_because"].as_str() {
            Some(reason) if reason.contains("a lease, or watches") => {}
            reason => return Err(format!("{}: {reason:?}", arguments[0])),
        }
    }
    Ok(())
}

pub fn report_of_a_plain_run(runahead: &Runahead) -> Verdict {
    let line = "export RUNAHEAD=off; set -- $UNDER; $1 run --report plain.json -- true";
    let outcome = run("plain report", &[], line, runahead)?;
    expect_code(&outcome, 0)?;
    let entry = outcome.tree.get(Path::new("plain.json")).ok_or("no report was written")?;
    let report: serde_json::Value =
        serde_json::from_slice(&entry.contents).map_err(|error| format!("not JSON: {error}"))?;
    match report["plainly_because"].as_str() {
        Some(reason) if reason.contains("RUNAHEAD") && report["command"][0] == "true" => Ok(()),
        _ => Err(format!("the report does not say why: {report}")),
    }
}

/// Where files may not grow, or there are no descriptors for us, the command runs; in the second case the report says so.
pub fn report_limited(runahead: &Runahead) -> Verdict {
    // What it prints goes through a pipe, which may grow, and has room in it when it is made.
    let line =
        "set -- $UNDER; (ulimit -f 0; exec $1 run --verbose --report small.json -- echo ran 2> said) | cat";
    let outcome = run("report of no size", &[], line, runahead)?;
    if text(&outcome.stdout) != "ran\n" {
        return Err(format!("no file may grow: printed '{}'", text(&outcome.stdout)));
    }
    let line = "set -- $UNDER; ulimit -n 4; exec $1 run --report few.json -- echo ran";
    let outcome = run("report without descriptors", &[], line, runahead)?;
    expect_code(&outcome, 0)?;
    let entry = outcome.tree.get(Path::new("few.json")).ok_or("no report was written")?;
    let report: serde_json::Value =
        serde_json::from_slice(&entry.contents).map_err(|error| format!("not JSON: {error}"))?;
    match report["plainly_because"].as_str() {
        Some(_) => Ok(()),
        None => Err(format!("the report does not say why: {report}")),
    }
}

/// However little of something there is: where the command alone runs, it runs. (Below 16 KB of stack, the kernel's random
/// gap of up to 8 KB and the longer command line decide whether the launcher gets as far as its last resort.)
pub fn limited(runahead: &Runahead) -> Verdict {
    let limits = "d 500 600 700 800 900 1000 1100 1200 1500 2000 2500 3000 5000 \
                  v 3000 3500 4000 5000 7000 10000 20000 40000 80000 s 16 20 24 32 48 64 128 l 0 t 1 i 0";
    let line = format!(
        "set -- $UNDER; one=$1; for word in {limits}; do case $word in [a-z]) which=$word; continue;; esac; \
         alone=$(ulimit -$which $word; exec /bin/echo ran) 2> /dev/null; \
         [ \"$alone\" = ran ] || {{ echo \"$which $word: not alone\"; continue; }}; \
         under=$(ulimit -$which $word; exec $one run --verbose --report said-$which-$word.json -- /bin/echo ran 2> said); \
         echo \"$which $word: $under; $(cat said); $(grep -o 'plainly_because.*' said-$which-$word.json)\"; done"
    );
    let outcome = run("limited", &[], &line, runahead)?;
    let told = text(&outcome.stdout);
    let mut ran = 0;
    for line in told.lines().filter(|line| !line.ends_with("not alone")) {
        if !line.contains(": ran; ") {
            return Err(format!("alone the command runs: {line}"));
        }
        ran += 1;
    }
    if ran < 20 {
        return Err(format!("few of these leave enough for the command alone: {told}"));
    }
    for limit in ["d 1000", "v 7000"] {
        let line = told.lines().find(|line| line.starts_with(limit)).unwrap_or_default();
        if !line.contains("running the command plainly: ") || !line.contains("plainly_because\": \"") {
            return Err(format!("not said why: {line}"));
        }
    }
    Ok(())
}

/// A reader asks for a buffer's length each time, however little a file has.
fn bytes_read(runahead: &Runahead) -> Verdict {
    let line = "set -- $UNDER; stat -Lc %s tree/*/*.txt | awk '{ sum += $1 } END { print sum }'; \
                $1 run --report read.json -- cat tree/*/*.txt | cksum >&2";
    let outcome = run("bytes read", &[], line, runahead)?;
    expect_code(&outcome, 0)?;
    let bytes: u64 = text(&outcome.stdout).trim().parse().map_err(|_| "nothing is counted".to_owned())?;
    let report = report_in(&outcome, "read.json")?;
    let count = |name: &str| report["counts"][name].as_u64().unwrap_or(u64::MAX);
    // The first ones may go by unseen; what is not the folder's is the locale's.
    match (count("read_bytes"), count("read_bytes_hinted")) {
        (all, hinted) if 0 < all && all <= bytes + 100_000 && hinted <= all => Ok(()),
        (all, hinted) => Err(format!("{all} bytes read, {hinted} of them foretold, of {bytes}")),
    }
}

/// The report that a run has left in its folder.
fn report_in(outcome: &Outcome, name: &str) -> Result<serde_json::Value, String> {
    let entry = outcome.tree.get(Path::new(name)).ok_or("no report was written")?;
    serde_json::from_slice(&entry.contents).map_err(|error| format!("not JSON: {error}"))
}

/// A call of which nobody can say what it is, and in front of which nobody can put another.
pub const BLIND_CALL: &str = r#"
    volatile long number = 39;
    long blind(void) {
        long result;
        __asm__ volatile("mov (%1), %%rax\n jmp 1f\n 1: syscall"
                         : "=&a"(result) : "r"(&number), "D"(0L), "S"(0L), "d"(0L) : "rcx", "r11", "memory");
        return result;
    }
"#;

/// Tells the report's reasons after `command`, time and again. (What was built this moment is not analysed yet.)
pub fn reasons(
    name: &str,
    files: &[(&str, &str)],
    build: &str,
    command: &str,
    runahead: &Runahead,
) -> Result<String, String> {
    let written: String =
        files.iter().map(|(file, text)| format!("cat > {file} <<'END'\n{text}\nEND\n")).collect();
    let line = format!(
        "{written}{build} || exit 77\nsleep 0.2\nset -- $UNDER\nfor at in 1 2 3 4 5 6 7 8; do\n{command}\n\
         grep -E '_because.*\"[^\"]*\"|\"refused_because' said.json | grep -v null; rm said.json; done"
    );
    let outcome = run(name, &[], &line, runahead)?;
    Ok(text(&outcome.stdout))
}

pub fn expect_eight(told: &str, reason: &str) -> Verdict {
    match told.lines().filter(|line| line.contains(reason)).count() {
        8 => Ok(()),
        count => Err(format!("said {count} times of 8 '{reason}': {told}")),
    }
}

/// The agent leaves it alone at its start, and is not there at its end: soon after that the report tells of
/// all of it.
fn blind(runahead: &Runahead) -> Verdict {
    let program = format!(
        "#include <unistd.h>\n{BLIND_CALL} int main(void) {{ usleep(100000); return blind() <= 0; }}"
    );
    let command = "$1 run --verbose --report said.json -- ./program 2> told || exit 1; cat told
        grep plainly_because said.json | tr _ ' '
        for wait in 1 2 3 4 5 6 7 8 9 10; do
            grep -E '\"elapsed_ns\": [0-9]{9}' said.json && break; sleep 0.05; done
        grep -c ran.plainly told | sed 's/^/told /'";
    let told =
        reasons("blind", &[("program.c", &program)], "gcc -O1 -o program program.c", command, runahead)?;
    expect_eight(&told, "\"plainly_because\": \"some of its code")?;
    expect_eight(&told, "\"plainly because\": \"some of its code")?;
    expect_eight(&told, "elapsed_ns")?;
    expect_eight(&told, "told 1")?;
    expect_eight(&told, "runahead: the command ran plainly: some of its code")
}

fn blind_later(runahead: &Runahead) -> Verdict {
    let program = "
        #include <dlfcn.h>
        int main(void) { return dlopen(\"./library.so\", RTLD_NOW) == 0; }";
    let build = "gcc -O1 -shared -fPIC -o library.so library.c && gcc -O1 -o program program.c -ldl";
    // Nobody in it waits for the report any more.
    let command = "$1 run --verbose --report said.json -- ./program 2> told || exit 1
        for wait in 1 2 3 4 5 6 7 8 9 10; do [ -s said.json ] && break; sleep 0.05; done; cat told";
    let files = [("program.c", program), ("library.c", BLIND_CALL)];
    let told = reasons("blind later", &files, build, command, runahead)?;
    expect_eight(&told, "\"left_because\": \"it has loaded code")?;
    expect_eight(&told, "runahead: the command was left alone: it has loaded code")
}

fn traced(runahead: &Runahead) -> Verdict {
    let tracer = r#"
        #include <sys/ptrace.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(int count, char **words) {
            int state, child = fork();
            if (child == 0) { ptrace(PTRACE_TRACEME, 0, 0, 0); execv(words[1], words + 1); _exit(127); }
            while (waitpid(child, &state, 0) == child && WIFSTOPPED(state))
                ptrace(PTRACE_CONT, child, 0, WSTOPSIG(state) == 5 ? 0 : WSTOPSIG(state));
            return WEXITSTATUS(state);
        }"#;
    let command = "./tracer $1 run --verbose --report said.json -- /bin/true 2> told || exit 1
        for wait in 1 2 3 4 5 6 7 8 9 10; do [ -s said.json ] && break; sleep 0.05; done; cat told";
    let told = reasons("traced", &[("tracer.c", tracer)], "gcc -o tracer tracer.c", command, runahead)?;
    expect_eight(&told, "\"plainly_because\": \"nothing of ours has begun in it")?;
    expect_eight(&told, "runahead: the command ran plainly: nothing of ours has begun in it")
}

/// Nobody in it waits for the report: it has to be there before.
fn static_program(runahead: &Runahead) -> Verdict {
    // Where nobody may be traced.
    let line = "echo 'int main(void) { return 0; }' > static.c; gcc -static -o static static.c || exit 77; \
                printf '%s\\n' '#include <stddef.h>' '#include <unistd.h>' '#include <linux/filter.h>' \
                '#include <linux/seccomp.h>' '#include <sys/prctl.h>' '#include <sys/syscall.h>' \
                'int main(int c, char **v) { (void)c; struct sock_filter f[] = {' \
                'BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),' \
                'BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 1),' \
                'BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),' \
                'BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};' \
                'struct sock_fprog p = {4, f}; prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);' \
                'prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p); execv(v[1], v + 1); return 1; }' > filter.c; \
                gcc -o filter filter.c || exit 77; set -- $UNDER; for at in 1 2 3 4 5 6 7 8; do \
                ./filter $1 run --verbose --report said.json -- ./static; cat said.json; done";
    let outcome = run("static program", &[], line, runahead)?;
    expect_code(&outcome, 0)?;
    let reports = text(&outcome.stdout).matches("statically linked").count();
    let said = text(&outcome.stderr).matches("statically linked").count();
    if (reports, said) == (8, 8) {
        return Ok(());
    }
    Err(format!("said {said} times, {reports} reports of 8: {}", text(&outcome.stdout)))
}

/// The loader itself has no loader, and brings the agent in all the same.
fn loader_as_the_command(runahead: &Runahead) -> Verdict {
    let line = "set -- $UNDER; loader=$(ls /lib64/ld-linux-*.so.2 /lib/ld-linux-*.so.* 2>/dev/null | head -n 1); \
                exec $1 run --report said.json -- $loader /bin/cat tree/*/*.txt";
    let outcome = run("loader", &[], line, runahead)?;
    expect_code(&outcome, 0)?;
    let report = report_in(&outcome, "said.json")?;
    if report["plainly_because"].is_null() && report["counts"]["reads"].as_u64() > Some(0) {
        return Ok(());
    }
    Err(format!("{report}"))
}

/// A user who may have no more processes.
fn no_more_processes(runahead: &Runahead) -> Verdict {
    let line = "set -- $UNDER; touch said.json; chmod 666 said.json; \
                exec setpriv --reuid=65533 --regid=65533 --clear-groups \
                bash -c 'ulimit -u 1; exec \"$@\"' bash $1 run --verbose --report said.json -- /bin/echo ran";
    let outcome = run("no more processes", &[], line, runahead)?;
    expect_code(&outcome, 0)?;
    let said = text(&outcome.stderr);
    let entry = outcome.tree.get(Path::new("said.json")).ok_or("no report was written")?;
    let report: serde_json::Value =
        serde_json::from_slice(&entry.contents).map_err(|error| format!("not JSON: {error}"))?;
    if text(&outcome.stdout) == "ran\n"
        && said.contains("plainly")
        && report["plainly_because"].as_str().is_some()
    {
        return Ok(());
    }
    Err(format!("printed '{}', said '{said}', reported {report}", text(&outcome.stdout)))
}

pub fn statistics(runahead: &Runahead) -> Verdict {
    let line = "exec $UNDER bash -c 'echo own words >&2; cat tree/*/*.txt | cksum'";
    let plain = run("statistics", &[], line, runahead)?;
    let outcome = run("statistics", &["--stats"], line, runahead)?;
    expect_code(&outcome, 0)?;
    if outcome.stdout != plain.stdout {
        return Err(format!("standard output with --stats: {}", text(&outcome.stdout)));
    }
    let said = text(&outcome.stderr);
    match said.strip_prefix("own words\n") {
        Some(rest) if !rest.trim().is_empty() => Ok(()),
        _ => Err(format!("expected the program's own words and then statistics, got: {said}")),
    }
}

/// However little may be prefetched, the program gets its results; and what is no size is no run.
pub fn limits(runahead: &Runahead) -> Verdict {
    let line = "exec $UNDER bash -c 'cat tree/*/*.txt | cksum'";
    let plain = run("limits", &[], line, runahead)?;
    let options: &[&str] = &["--max-memory", "1", "--max-inflight", "1", "--max-bandwidth", "100K"];
    let tight = run("tight limits", options, line, runahead)?;
    expect_code(&tight, 0)?;
    if tight.stdout != plain.stdout {
        return Err(format!("standard output under tight limits: {}", text(&tight.stdout)));
    }
    const WRONG: [&[&str]; 3] =
        [&["--max-memory", "12Q"], &["--max-inflight", "0"], &["--max-bandwidth", ""]];
    for wrong in WRONG {
        let refused = run("wrong limits", wrong, line, runahead)?;
        expect_code(&refused, 125)?;
        if !refused.stdout.is_empty() || !text(&refused.stderr).contains(wrong[0]) {
            return Err(format!("{wrong:?} was not refused: {}", text(&refused.stderr)));
        }
    }
    Ok(())
}

fn limits_of_nothing(runahead: &Runahead) -> Verdict {
    for limit in ["--max-memory 0", "--max-memory 4095", "--max-bandwidth 0"] {
        let line = format!("set -- $UNDER; exec $1 run {limit} --report counts.json -- cat tree/*/*.txt");
        let outcome = run("limits of nothing", &[], &line, runahead)?;
        expect_code(&outcome, 0)?;
        let entry = outcome.tree.get(Path::new("counts.json")).ok_or("no report was written")?;
        let report: serde_json::Value =
            serde_json::from_slice(&entry.contents).map_err(|error| format!("not JSON: {error}"))?;
        let counts = &report["counts"];
        if counts["posts"] != 0 || counts["speculator"]["prefetched_pages"] != 0 {
            return Err(format!("{limit}: {report}"));
        }
    }
    Ok(())
}

pub fn exit_statuses(runahead: &Runahead) -> Verdict {
    for code in [0, 1, 2, 77, 124, 125, 126, 127, 128, 254, 255] {
        let outcome = run("status", &[], &format!("exec $UNDER bash -c 'exit {code}'"), runahead)?;
        expect_code(&outcome, code)?;
    }
    for signal in [1, 2, 9, 10, 13, 15, 31] {
        let outcome = run("signal", &[], &format!("exec $UNDER bash -c 'kill -{signal} $$'"), runahead)?;
        match outcome.report.ending {
            Ending::Signalled { signal: got, .. } if got == signal => {}
            other => return Err(format!("signal {signal}: the run ended with {other:?}")),
        }
    }
    Ok(())
}

pub fn same_process(runahead: &Runahead) -> Verdict {
    // bash's own number before, and the program's after.
    let line = "echo $$; exec $UNDER bash -c 'echo $$; cat tree/folder-1/*.txt > /dev/null; echo $$'";
    let outcome = run("process", &[], line, runahead)?;
    let numbers = text(&outcome.stdout);
    let mut lines = numbers.lines();
    let first = lines.next();
    if first.is_some() && lines.clone().count() == 2 && lines.all(|line| Some(line) == first) {
        return Ok(());
    }
    Err(format!("process numbers before, at the start and at the end: {numbers}"))
}

pub fn switched_off(runahead: &Runahead) -> Verdict {
    // Nothing at all of Runahead's is in the program then, not even in its environment or mappings.
    let line =
        "export RUNAHEAD=off; exec $UNDER bash -c 'cat tree/*/*.txt | cksum; cat /proc/self/maps; env'";
    let outcome = run("off", &[], line, runahead)?;
    expect_code(&outcome, 0)?;
    let said = text(&outcome.stdout);
    let traces: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("LD_PRELOAD=") || (line.starts_with('7') && line.contains("agent")))
        .collect();
    if traces.is_empty() { Ok(()) } else { Err(format!("left in the program: {traces:?}")) }
}

pub fn arguments(runahead: &Runahead) -> Verdict {
    let scenario = Scenario::new(
        "contract arguments",
        ["printf", "<%s>\\n", "--stats", "--", "-x", "", "two words", "new\nline", "ünï", "$HOME", "*"],
    )
    .modes([COLD]);
    scenario.check(runahead)
}

/// More arguments than the launcher takes apart, non-ASCII and control characters among them.
pub fn many_arguments(runahead: &Runahead) -> Verdict {
    let line = "exec $UNDER bash -c 'echo $#' $'\\033[31m' $(seq 5000)";
    let outcome = run("many arguments", &["--stats", "--report", "many.json"], line, runahead)?;
    expect_code(&outcome, 0)?;
    if text(&outcome.stdout) != "5000\n" {
        return Err(format!("the command was given {} arguments", text(&outcome.stdout)));
    }
    let shown = text(&outcome.stderr);
    let shown = shown.lines().find(|line| line.contains("command")).unwrap_or_default().to_owned();
    if !shown.ends_with(" more") || shown.len() > 300 || shown.contains('\u{1b}') {
        return Err(format!("shown as: {shown}"));
    }
    let entry = outcome.tree.get(Path::new("many.json")).ok_or("no report was written")?;
    let report: serde_json::Value =
        serde_json::from_slice(&entry.contents).map_err(|error| format!("not JSON: {error}"))?;
    match report["command"].as_array() {
        Some(command) if command.len() == 5004 && command[5003] == "5000" => Ok(()),
        _ => Err("the report does not hold the whole command".to_owned()),
    }
}

/// The kernel refuses such a file, the C library's execvp hands it to the shell.
pub fn script(runahead: &Runahead) -> Verdict {
    let script = "set -- \"$@\" last; printf '<%s>' \"$@\"\n";
    for command in ["./script", "script"] {
        let scenario = Scenario::shell(
            "contract script",
            &format!("PATH=.:$PATH; exec $UNDER {command} 'two words' ''"),
        )
        .prepare(move |directory| {
            fs::write(directory.join("script"), script)?;
            fs::set_permissions(directory.join("script"), fs::Permissions::from_mode(0o755))
        });
        scenario.check(runahead)?;
    }
    Ok(())
}

pub fn verbose(runahead: &Runahead) -> Verdict {
    let scenario = |options: Option<&'static [&'static str]>| {
        let mode = Mode { name: "verbose", options, cold: true };
        Scenario::new("contract verbose", ["bash", "-c", "cat tree/*/*.txt | cksum"])
            .prepare(programs::files)
            .run(&mode, runahead)
            .map_err(|error| format!("{HARNESS_FAILED} {error}"))
    };
    let alone = scenario(ALONE.options)?;
    let mut outcome = scenario(Some(&["--verbose"]))?;
    outcome.stderr.clear();
    let found = compare::differences(&alone, &outcome);
    if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
}
