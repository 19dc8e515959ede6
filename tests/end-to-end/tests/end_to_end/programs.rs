//! Real programs on real files, alone and under Runahead.

use crate::suite::Suite;
use runahead_end_to_end::compare::Outcome;
use runahead_end_to_end::locate::Runahead;
use runahead_end_to_end::scenario::{COLD, Scenario, bytes};
use runahead_end_to_end::supervise::Stdin;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// A program's test: cold only (a warm second run of a real program shows nothing that the guests
/// do not), with the tree of [`files`] as `tree`.
fn add(suite: &mut Suite, needs: &[&str], scenario: Scenario) {
    let name = scenario.name.clone();
    suite.add(name, needs.iter().map(|need| need.to_string()), move || {
        scenario.check(&Runahead::built()?)
    });
}

fn program(name: &str, argv: &[&str]) -> Scenario {
    Scenario::new(format!("program::{name}"), argv.iter().copied()).prepare(files).modes([COLD])
}

fn script(name: &str, text: &str) -> Scenario {
    Scenario::shell(format!("program::{name}"), text).prepare(files).modes([COLD])
}

/// 160 text files of 2 to 40 KB in 8 folders, with a rare word, links of both kinds, an empty file,
/// a sparse one, a closed one, one of incompressible bytes.
pub fn files(directory: &Path) -> io::Result<()> {
    let words = ["alpha", "beta", "gamma", "delta", "epsilon", "needle", "zeta", "eta", "theta"];
    for folder in 0..8 {
        let place = directory.join(format!("tree/folder-{folder}/deeper"));
        fs::create_dir_all(&place)?;
        for number in 0..20 {
            let seed = bytes(folder * 100 + number + 1, 8000);
            let length = 2000 + usize::from(seed[0]) * 150;
            let mut text = String::new();
            for at in 0.. {
                if text.len() >= length {
                    break;
                }
                let pick = usize::from(seed[at % seed.len()]) + at;
                text += words[pick % words.len()];
                text.push(if pick % 11 == 0 { '\n' } else { ' ' });
            }
            text.push('\n');
            let place = if number % 4 == 0 { place.clone() } else { place.join("..") };
            fs::write(place.join(format!("file-{number}.txt")), text)?;
        }
    }
    let tree = directory.join("tree");
    File::create(tree.join("empty"))?;
    File::create(tree.join("sparse"))?.set_len(300_000)?;
    fs::write(tree.join("closed"), "nobody may read this\n")?;
    fs::set_permissions(tree.join("closed"), fs::Permissions::from_mode(0))?;
    fs::write(tree.join("noise.bin"), bytes(77, 1 << 20))?;
    fs::write(tree.join("with spaces and ünïcode"), "contents\n")?;
    symlink("folder-1/file-1.txt", tree.join("link"))?;
    symlink("nowhere", tree.join("dangling"))?;
    fs::hard_link(tree.join("noise.bin"), tree.join("noise-again.bin"))
}

/// Runs a preparing command, which must succeed.
fn setup(directory: &Path, text: &str) -> io::Result<()> {
    let status = Command::new("bash")
        .args(["-e", "-c", text])
        .current_dir(directory)
        .env("HOME", directory)
        .env_remove("CARGO_TARGET_DIR")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("'{text}' failed"))) }
}

/// Keeps, of each line of standard output, what `keep` makes of it.
fn each_line(outcome: &mut Outcome, keep: impl Fn(&str) -> Option<String>) {
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    outcome.stdout = text.lines().filter_map(keep).map(|line| line + "\n").collect::<String>().into_bytes();
}

fn sort_lines(outcome: &mut Outcome) {
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    outcome.stdout = lines.join("\n").into_bytes();
}

pub fn suite(suite: &mut Suite) {
    readers(suite);
    writers(suite);
    git(suite);
    languages(suite);
    databases(suite);
    builders(suite);
    shells(suite);
    debuggers(suite);
}

fn readers(suite: &mut Suite) {
    let all = "find tree -type f -name '*.txt' | sort | xargs";
    for (name, command) in [
        ("cat", "cat"),
        ("cat-numbered", "cat -A"),
        ("md5sum", "md5sum"),
        ("sha256sum", "sha256sum"),
        ("wc", "wc"),
        ("sort", "sort"),
        ("grep", "grep -c needle"),
        ("head", "head -n 3"),
        ("tail", "tail -n 3"),
        ("awk", "awk '{ n += NF } END { print n }'"),
        ("od", "od -x"),
        ("perl", "perl -ne '$n{$_}++ for split; END { print \"$_ $n{$_}\\n\" for sort keys %n }'"),
    ] {
        // xargs runs under Runahead too: the reader is its child.
        add(suite, &[], script(name, &format!("{} $UNDER {command}", all)));
        add(suite, &[], script(&format!("{name}-below-xargs"), &format!("find tree -name '*.txt' | sort > names; $UNDER xargs -n 25 -a names {command}")));
    }
    add(suite, &[], program("grep-r", &["grep", "-r", "needle", "tree"]).expect(None).normalize(sort_lines));
    add(suite, &[], program("find-ls", &["find", "tree", "-ls"]).normalize(|outcome| {
        // Without inode numbers and blocks; the order of a directory is the file system's own.
        each_line(outcome, |line| Some(line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ")));
        sort_lines(outcome);
    }));
    add(suite, &[], program("du", &["du", "-ab", "tree"]).normalize(sort_lines));
    add(suite, &[], program("ls-lR", &["ls", "-lRn", "--full-time", "tree"]).normalize(|outcome| {
        each_line(outcome, |line| (!line.starts_with("total")).then(|| line.to_owned()));
    }));
    add(suite, &[], program("diff-r", &["diff", "-r", "tree/folder-1", "tree/folder-2"]).expect(None));
    add(suite, &[], program("cmp", &["cmp", "tree/noise.bin", "tree/sparse"]).expect(None));
    add(suite, &[], program("cat-nothing", &["cat", "tree/nothing", "tree/folder-1", "tree/empty"]).expect(None));
    add(suite, &[], program("cat-stdin", &["cat"]).stdin(Stdin::File("tree/noise.bin".into())));
    add(suite, &[], program("dd-direct", &["dd", "if=tree/noise.bin", "iflag=direct", "bs=64K", "status=none"]));
    add(suite, &[], program("dd-skip", &["dd", "if=tree/noise.bin", "bs=1000", "skip=333", "count=99", "status=none"]));
    add(suite, &[], program("tail-of-pipe", &["tail", "-c", "100"]).stdin(Stdin::Pipe(bytes(5, 50_000))));
    add(suite, &["command rg"], program("ripgrep", &["rg", "-j1", "--sort", "path", "needle", "tree"]).expect(None));
}

fn writers(suite: &mut Suite) {
    add(suite, &[], program("cp-a", &["cp", "-a", "tree", "copy"]));
    add(suite, &[], program("cp-r", &["cp", "-r", "--reflink=never", "tree", "copy"]));
    add(suite, &[], program("tar-create", &["tar", "--sort=name", "-cf", "out.tar", "tree"]));
    add(suite, &[], program("tar-to-pipe", &["tar", "--sort=name", "-cf", "-", "tree"]));
    add(suite, &[], program("tar-gz", &["tar", "--sort=name", "-czf", "out.tgz", "tree"]));
    add(suite, &[], program("tar-extract", &["tar", "-xf", "in.tar", "-C", "out"]).prepare(|directory| {
        files(directory)?;
        setup(directory, "tar --sort=name --mtime=@1500000000 -cf in.tar tree; mkdir out")
    }));
    add(suite, &["command rsync"], program("rsync", &["rsync", "-a", "-c", "tree/", "copy"]));
    add(suite, &["command rsync"], program("rsync-dry", &["rsync", "-anic", "tree/", "copy"]));
    for tool in ["gzip", "xz", "zstd", "bzip2"] {
        let need = format!("command {tool}");
        let pack = format!("tree/noise.bin tree/sparse tree/folder-*/*.txt");
        add(suite, &[&need], program(tool, &["bash", "-c", &format!("{tool} -q -k -f -3 {pack}")]));
        let there_and_back = format!("cat {pack} > all; {tool} -q -k all; rm all; $UNDER {tool} -q -d all.*; cksum all");
        add(suite, &[&need], script(&format!("{tool}-back"), &there_and_back));
    }
    add(suite, &[], program("sort-big", &["sort", "-S", "200K", "-T", ".", "-o", "sorted", "big"]).prepare(|directory| {
        let mut out = File::create(directory.join("big"))?;
        for chunk in bytes(9, 400_000).chunks(8) {
            writeln!(out, "{:?}", chunk)?;
        }
        Ok(())
    }));
    add(suite, &[], program("split", &["split", "-b", "100000", "tree/noise.bin", "part-"]));
    add(suite, &[], program("sed-in-place", &["bash", "-c", "sed -i s/needle/pin/g tree/folder-*/*.txt"]));
    add(suite, &[], program("install", &["install", "-m", "0750", "-D", "tree/noise.bin", "a/b/c"]));
    add(suite, &["command ssh-keygen"], program("ssh-keygen", &["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "key"]).normalize(|outcome| {
        // The key is random; that it is there, and who may read it, is not.
        for entry in outcome.tree.values_mut().filter(|entry| entry.size < 1000) {
            (entry.contents, entry.size) = (Vec::new(), 0);
        }
    }));
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

fn languages(suite: &mut Suite) {
    for (name, text) in [
        ("walk", "import os, hashlib\nfor folder, folders, names in os.walk('tree'):\n    folders.sort()\n    for name in sorted(names):\n        path = os.path.join(folder, name)\n        if os.path.exists(path): print(path, hashlib.md5(open(path, 'rb').read()).hexdigest())"),
        ("json", "import json, glob\ndata = {path: open(path).read().split()[:50] for path in sorted(glob.glob('tree/*/*.txt'))}\njson.dump(data, open('out.json', 'w'))\nprint(len(json.load(open('out.json'))))"),
        ("sqlite3", "import sqlite3, glob\ndb = sqlite3.connect('words.db')\ndb.execute('create table words (word text, path text)')\nfor path in sorted(glob.glob('tree/*/*.txt')):\n    db.executemany('insert into words values (?, ?)', [(word, path) for word in open(path).read().split()[:100]])\ndb.commit()\nfor row in db.execute('select word, count(*) from words group by word order by word'): print(row)"),
        ("subprocess", "import subprocess, glob\nfor path in sorted(glob.glob('tree/*/*.txt'))[:20]:\n    print(subprocess.run(['cksum', path], capture_output=True, text=True).stdout, end='')\nprint(subprocess.run('cat tree/*/file-1.txt | sort | head -3', shell=True, capture_output=True).stdout)"),
        ("threading", "import threading, glob, zlib\nnames, sums = sorted(glob.glob('tree/*/*.txt')), {}\ndef work(mine):\n    for name in mine: sums[name] = zlib.crc32(open(name, 'rb').read())\nthreads = [threading.Thread(target=work, args=(names[at::4],)) for at in range(4)]\n[t.start() for t in threads]; [t.join() for t in threads]\nfor name in names: print(name, sums[name])"),
        ("multiprocessing", "import multiprocessing, glob, zlib\ndef work(name): return name, zlib.crc32(open(name, 'rb').read())\nif __name__ == '__main__':\n    with multiprocessing.get_context('fork').Pool(3) as pool:\n        for result in pool.map(work, sorted(glob.glob('tree/*/*.txt'))): print(*result)"),
        ("spawned-pool", "import concurrent.futures, glob, zlib\ndef work(name): return zlib.crc32(open(name, 'rb').read())\nwith concurrent.futures.ThreadPoolExecutor(5) as pool:\n    print(list(pool.map(work, sorted(glob.glob('tree/*/*.txt')))))"),
        ("asyncio", "import asyncio\nasync def one(at):\n    process = await asyncio.create_subprocess_exec('cksum', f'tree/folder-{at}/file-1.txt', stdout=asyncio.subprocess.PIPE)\n    return (await process.communicate())[0]\nasync def main():\n    print(await asyncio.gather(*[one(at) for at in range(8)]))\nasyncio.run(main())"),
        ("mmap", "import mmap, zlib\nwith open('tree/noise.bin', 'r+b') as file:\n    view = mmap.mmap(file.fileno(), 0)\n    print(zlib.crc32(view), view.find(b'zz'))\n    view[100:105] = b'hello'\n    file.seek(98); print(file.read(9))"),
        ("shutil", "import shutil, tempfile, os\nshutil.copytree('tree/folder-1', 'copy')\nshutil.make_archive('packed', 'zip', 'tree/folder-2')\nprint(sorted(os.listdir('copy')))\nos.remove('packed.zip')"),
        ("signals", "import signal, os, time\nticks = []\nsignal.signal(signal.SIGALRM, lambda *a: ticks.append(1))\nsignal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)\ntotal = 0\nfor round in range(30):\n    for at in range(8): total += len(open(f'tree/folder-{at}/file-1.txt').read())\n    time.sleep(0.001)\nsignal.setitimer(signal.ITIMER_REAL, 0)\nprint(total, len(ticks) > 2)"),
    ] {
        // Not the bare name: a script beside a module of its own name is found first.
        let file = format!("script-{name}.py");
        let text = text.to_owned();
        let scenario = Scenario::new(format!("program::python-{name}"), ["/usr/bin/python3", "-B", &file])
            .prepare(move |directory| {
                files(directory)?;
                fs::write(directory.join(&file), &text)
            })
            .modes([COLD]);
        add(suite, &["file /usr/bin/python3"], scenario);
    }
    add(suite, &["command perl"], program("perl-files", &["perl", "-MFile::Find", "-e",
        "my @found; find(sub { push @found, $File::Find::name if -f && -r }, 'tree'); for (sort @found) { open my $f, '<', $_ or die; local $/; my $t = <$f>; print \"$_ \", length($t), ' ', unpack('%32C*', $t), \"\\n\" }"]));
}

fn databases(suite: &mut Suite) {
    let filled = |directory: &Path| {
        setup(directory, "sqlite3 test.db \"pragma page_size = 4096; create table t (id integer primary key, key text, payload blob);
            with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
            insert into t select i, printf('%08x', (i * 7919) % 20011), zeroblob(100 + i % 200) from n; create index by_key on t(key);\"")
    };
    let look_ups: String =
        (0..200).map(|at| format!("select id, length(payload) from t where key = printf('%08x', {});", at * 101)).collect();
    add(suite, &["command sqlite3"], program("sqlite-look-ups", &["sqlite3", "test.db", &look_ups]).prepare(filled));
    add(suite, &["command sqlite3"], program("sqlite-scan", &["sqlite3", "test.db", "select count(*), sum(length(payload)), min(key) from t;"]).prepare(filled));
    add(suite, &["command sqlite3"], program("sqlite-mmap", &["sqlite3", "test.db", "pragma mmap_size = 100000000; select sum(length(payload)) from t where key > '00002000';"]).prepare(filled));
    add(suite, &["command sqlite3"], program("sqlite-update", &["sqlite3", "test.db", "begin; update t set payload = zeroblob(150) where id % 100 = 0; delete from t where id % 97 = 1; commit; vacuum; pragma integrity_check; select count(*) from t;"]).prepare(filled));
    // Two of them share the database, by its locks.
    add(suite, &["command sqlite3"], script("sqlite-two", "for at in 1 2 3 4 5; do $UNDER sqlite3 -cmd '.timeout 20000' test.db \"update t set payload = zeroblob(10) where id % 50 = $at\" & done; wait; $UNDER sqlite3 test.db 'select sum(length(payload)) from t'").prepare(filled).normalize(|outcome| {
        // Which of the two wrote a page first shows in the file, not in what it holds.
        outcome.tree.clear();
    }));
}

fn builders(suite: &mut Suite) {
    let sources = |directory: &Path| {
        let mut main = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
        let mut makefile = String::from("all: program\nOBJECTS = main.o");
        for at in 0..12 {
            let text = format!("#include <stdio.h>\n#include <math.h>\n#include <sys/types.h>\nint part_{at}(int x) {{ return x * {at} + (int)sizeof(FILE); }}\n");
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
    add(suite, &["command gcc"], program("gcc", &["gcc", "-g", "-O2", "-c", "main.c", "part_1.c", "part_2.c"]).prepare(sources));
    add(suite, &["command gcc"], program("gcc-error", &["gcc", "-c", "Makefile", "-x", "c"]).prepare(sources).expect(None));
    add(suite, &["command make"], program("make-j2", &["make", "-s", "-j2"]).prepare(sources));
    let objects = move |directory: &Path| {
        sources(directory)?;
        setup(directory, "gcc -g -O1 -c *.c")
    };
    add(suite, &["command ld"], program("ld", &["bash", "-c", "exec ld -r -o all.o main.o part_*.o"]).prepare(objects));
    add(suite, &["command gcc"], program("link", &["bash", "-c", "gcc -o program *.o && ./program"]).prepare(objects));
    add(suite, &["command ar"], program("ar", &["bash", "-c", "ar rcsD all.a *.o && nm all.a && objdump -d all.a | cksum"]).prepare(objects));
}

fn shells(suite: &mut Suite) {
    // What is read of a shared standard input is gone for the next reader, and no more than that.
    add(suite, &[], script("shared-stdin-head", "cd tree/folder-1; cat *.txt > all; ($UNDER head -n 1; cat | cksum; echo) < all"));
    add(suite, &[], script("shared-stdin-twice", "cat tree/folder-1/*.txt > all; { $UNDER head -c 1000 | cksum; $UNDER head -c 777 | cksum; $UNDER cat | cksum; } < all"));
    add(suite, &[], script("shared-stdin-read", "cat tree/folder-1/*.txt > all; { $UNDER bash -c 'read a; read b; echo $a; echo $b'; head -n 2; } < all"));
    add(suite, &[], script("shared-stdin-loop", "ls tree/folder-1 > names; while read name; do echo $name; $UNDER cat tree/folder-1/$name < /dev/null | cksum; done < names").expect(None));
    add(suite, &[], script("shared-stdin-eaten", "ls tree > names; while read name; do echo $name; $UNDER head -c 1 > /dev/null; done < names"));
    add(suite, &[], script("shared-output", "exec 3> log; for at in 1 2 3; do $UNDER bash -c 'cat tree/folder-1/file-1.txt >&3; echo at $0 >&3' $at; echo between >&3; done"));
    add(suite, &[], script("append", "for at in 1 2 3; do $UNDER tee -a log < tree/folder-$at/file-1.txt | wc -c; done"));
    // The shell itself under Runahead, with everything that it starts.
    for (name, text) in [
        ("pipes", "cat tree/*/*.txt | tr a-z A-Z | sort | uniq -c | sort -rn | head -20; exit 3"),
        ("substitution", "for name in tree/folder-1/*.txt; do echo \"$name $(cksum < $name)\"; done; diff <(sort tree/folder-1/file-1.txt) <(sort tree/folder-2/file-1.txt) | tail -3"),
        ("background", "for at in 0 1 2 3; do cksum tree/folder-$at/*.txt > sum-$at & done; wait; cat sum-*; trap 'echo got it' USR1; kill -USR1 $$; ulimit -n"),
        ("early-reader", "cat tree/*/*.txt | head -n 2; echo ${PIPESTATUS[0]}; yes | head -n 1; set -o pipefail; cat tree/noise.bin | true; echo $?"),
        ("here", "cat <<< 'a here string'; cat << END\n$(cat tree/folder-1/file-2.txt | wc -c)\nEND\ncoproc cat; echo line >&${COPROC[1]}; read -u ${COPROC[0]} line; echo $line"),
        ("timeout", "exec 2> /dev/null; timeout 0.2 cat /dev/zero > /dev/null; echo $?; timeout -s KILL 0.1 sleep 5; echo $?; nice -n 5 cat tree/folder-1/file-1.txt | cksum; nohup cksum tree/noise.bin 2> /dev/null"),
        ("subshells", "(cd tree/folder-1 && cat *.txt | md5sum; umask 077; touch ../made); umask; (ulimit -t 1000; exec cksum tree/noise.bin)"),
        ("find-exec", "find tree -name 'file-1*.txt' | sort | xargs -P 2 -n 3 md5sum | sort; find tree -name 'file-3.txt' -exec cat {} + | cksum"),
    ] {
        add(suite, &[], program(&format!("bash-{name}"), &["bash", "-c", text]).expect(None));
    }
    add(suite, &["command dash"], program("sh-script", &["sh", "-c", "for f in tree/*/*.txt; do wc -c < $f; done | sort -n | tail -3; . ./tree/nothing"]).expect(None));
    add(suite, &["command script"], program("script-in-a-terminal", &["script", "-q", "-e", "-c", "stty size; cat tree/folder-1/file-1.txt | wc -c; tty | cut -c1-8", "/dev/null"]).terminal());
    add(suite, &[], program("in-a-terminal", &["bash", "-i", "-c", "set -m; cat tree/folder-1/file-1.txt | cksum; sleep 0.01 & wait %1; jobs; stty -a | head -1"]).terminal().expect(None).normalize(|outcome| {
        each_line(outcome, |line| (!line.starts_with("[1] ")).then(|| line.to_owned()));
    }));
}

fn debuggers(suite: &mut Suite) {
    // Traced from outside: `strace -f runahead run …`. What the tracer wrote is not compared.
    let forget_trace = |outcome: &mut Outcome| {
        outcome.tree.remove(Path::new("trace.out"));
    };
    add(suite, &["command strace"], program("strace-outside", &["cat", "tree/folder-1/file-1.txt", "tree/noise.bin"])
        .around(["strace", "-f", "-o", "trace.out"]).normalize(forget_trace));
    add(suite, &["command strace"], program("strace-inside", &["strace", "-f", "-o", "trace.out", "cat", "tree/folder-1/file-1.txt", "tree/noise.bin"])
        .normalize(forget_trace));
    // gdb tells of processes by number and of the exec; the program's own lines are compared.
    let own_lines = |outcome: &mut Outcome| {
        each_line(outcome, |line| line.contains("sum is").then(|| line.to_owned()));
        outcome.stderr.clear();
    };
    let summing = ["bash", "-c", "echo sum is $(cat tree/*/*.txt | cksum)"];
    for (name, around) in [("gdb-run", vec!["-ex", "run"]), ("gdb-break", vec!["-ex", "catch syscall exit_group", "-ex", "run", "-ex", "info registers rip", "-ex", "continue"])] {
        let mut words = vec!["gdb", "-q", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set startup-with-shell off"];
        words.extend(around);
        words.push("--args");
        let inside: Vec<&str> = words.iter().copied().chain(summing).collect();
        add(suite, &["command gdb"], program(&format!("{name}-outside"), &summing).around(words.clone()).normalize(own_lines).expect(None));
        add(suite, &["command gdb"], program(&format!("{name}-inside"), &inside).normalize(own_lines).expect(None));
    }
}
