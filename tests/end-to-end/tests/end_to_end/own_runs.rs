//! Commands of root's that go on as another user (setpriv, gosu, a container's entry point): the first program
//! that the other user executes becomes a run of its own (`agent::own_run`).

use crate::programs::files;
use crate::suite::Suite;
use runahead_end_to_end::Verdict;
use runahead_end_to_end::guest::Guest;
use runahead_end_to_end::locate::Runahead;
use runahead_end_to_end::scenario::{COLD, Mode, NO_SPECULATION, Scenario, WARM, bytes};

/// Changes to another user.
const AS: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups --";

/// Does what its first argument says, changes to that user, and executes the second with the others.
const CHANGES: &str = "import os, resource, signal, sys\n\
    exec(sys.argv[1])\n\
    os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n\
    os.execv(sys.argv[2], sys.argv[3:])\n";

/// Ways of going on as another user; `$SEES` is a program that says what it sees of its start, `$AS` and
/// `$CHANGES` change to that user.
const WAYS: &[(&str, &str)] = &[
    ("a program", "$UNDER $AS $SEES tell; $UNDER $AS $SEES empty"),
    ("children", "$UNDER $AS sh -c '$1 tell; $1 quick; md5sum tree/*/*.txt; $1 many' sh $SEES"),
    (
        "another name",
        "for name in '- a name' ''; do $UNDER $CHANGES '' $SEES \"$name\" tell; \
         $UNDER $CHANGES '' /bin/cat \"$name\" /proc/self/cmdline /proc/self/comm; done",
    ),
    (
        "scripts",
        "printf '#!%s tell\\n' $SEES > one; printf '#!%s\\n' $SEES > two; \
         printf '#! /bin/sh\\necho $0 $#; $1 tell' > three; printf '#!%s/two tell\\n' $PWD > four; \
         chmod 755 one two three four; for name in ./one $PWD/one ./two ./three ./four; do \
         $UNDER $AS $name tell '' 'a b' $SEES; $UNDER $CHANGES '' $name another tell; done; \
         rm one two three four",
    ),
    (
        "a script by its name",
        "mkdir p; printf '#!/bin/sh\\necho $0 $*; md5sum tree/*/*.txt\\n' > p/reads; chmod 755 p p/reads; \
         PATH=$PWD/p:$PATH $UNDER $AS reads x; rm -r p",
    ),
    (
        "something else preloaded",
        "export LD_PRELOAD=libm.so.6; $UNDER $AS $SEES tell | sed 's/ LD_PRELOAD=[^ ]*//'; $UNDER $AS grep -o 'libm.so' /proc/self/maps; \
         LD_PRELOAD=libm.so.6:libdl.so.2; $UNDER $AS grep -oE 'lib(m|dl).so' /proc/self/maps",
    ),
    ("the loader as the program", "$UNDER $AS /lib64/ld-linux-x86-64.so.2 $SEES tell"),
    ("a file that may not be read", "chmod 711 sees; $UNDER $AS $SEES tell; chmod 755 sees"),
    (
        "a descriptor",
        "sed -i 's/os.execv(sys.argv.2./os.execve(os.open(sys.argv[2], 0)/; s/:])$/:], os.environ)/' changes.py; \
         $UNDER $CHANGES '' $SEES it tell",
    ),
    ("closed descriptors", "$UNDER $CHANGES 'os.close(0); os.close(2); os.dup2(1, 7)' $SEES it tell"),
    (
        "signals",
        "$UNDER $CHANGES '[signal.signal(number, signal.SIG_IGN) for number in (10, 13, 17)]' $SEES it tell; \
         $UNDER $CHANGES 'signal.pthread_sigmask(0, [10, 12, 17]); os.kill(os.getpid(), 10)' $SEES it tell",
    ),
    ("many arguments", "$UNDER $AS $SEES tell $(seq 3000) | cksum"),
    ("a large environment", "for n in $(seq 2000); do export V$n=$n; done; $UNDER $AS $SEES tell | cksum"),
    (
        "what says how it is loaded",
        "LD_DEBUG=statistics $UNDER $AS $SEES tell 2> said; grep -c 'number of relocations' said; \
         LD_BIND_NOW=1 $UNDER $AS $SEES tell; rm said",
    ),
    (
        "limits",
        "for limit in AS,20000000 STACK,30000 FSIZE,0 NOFILE,4; do \
         $UNDER $CHANGES \"resource.setrlimit(resource.RLIMIT_${limit%,*}, (${limit#*,}, ${limit#*,}))\" $SEES it tell; done",
    ),
    (
        "fewer rights again",
        // What is executed then may find the variable without the agent.
        "($UNDER $AS setpriv --nnp $SEES tell; $UNDER $AS setpriv --nnp sh -c '$1 tell' sh $SEES) | \
         sed -E 's/ LD_PRELOAD=( |$)/\\1/'",
    ),
    (
        "both users by turns",
        "$UNDER sh -c '$1 tell; $2 $1 tell; $1 tell; $2 sh -c \"$1 tell\"' sh $SEES \"$AS\"",
    ),
    (
        "a group",
        "$UNDER setpriv --regid=65534 --clear-groups -- $SEES tell; \
         $UNDER setpriv --reuid=65534 --keep-groups -- $SEES tell",
    ),
    (
        "its own executable by /proc",
        "$UNDER $CHANGES '' /proc/self/exe python3 -S -c 'import sys; print(sys.argv)' it; \
         ln -s /proc/self/exe link; $UNDER $CHANGES '' ./link python3 -S -c 'import sys; print(sys.argv)'; rm link",
    ),
    (
        "a name that another program has",
        "cp sees ls; $UNDER $CHANGES '' ls it tell; $UNDER $CHANGES '' sees it tell; rm ls",
    ),
    (
        "rights that only the first execution has",
        "chmod 700 sees; $UNDER $CHANGES 'import ctypes; c = ctypes.CDLL(None); c.prctl(8, 1, 0, 0, 0); real = os.execv; \
         number = ctypes.c_uint; os.execv = lambda *a: (c.capset((number * 2)(0x20080522, 0), (number * 6)(2, 2)), real(*a))' \
         $SEES it tell; chmod 755 sees",
    ),
    (
        "a script's name twice",
        "printf '#!/bin/sh ./one\\necho $# $*\\n' > one; chmod 755 one; $UNDER $CHANGES '' ./one it tell; \
         printf '#!/bin/sh\\necho $# $*\\n' > one; $UNDER $CHANGES '' ./one it ./one tell; rm one",
    ),
    (
        "locks on what is executed",
        "cp /usr/bin/grep counts; for file in counts script; do printf '#!/bin/sh\\ngrep \"$@\"\\n' > script; \
         chmod 755 script; $UNDER $CHANGES 'import fcntl; file = open(sys.argv[2]); fcntl.lockf(file, fcntl.LOCK_SH); \
         os.set_inheritable(file.fileno(), True); sys.argv += [\"POSIX.* %d \" % os.getpid(), \"/proc/locks\"]' \
         ./$file it -c; done; rm counts script",
    ),
    (
        "a file that is gone once it runs",
        "for n in 1 2 3; do cp /bin/echo gone; $UNDER $CHANGES 'import shutil; r, w = os.pipe(); child = os.fork()\n\
         if child: os.close(w); os.read(r, 1); os.unlink(\"gone\"); sys.exit(os.waitpid(child, 0)[1])' ./gone it tells; \
         echo $?; done",
    ),
    (
        "a file that is another once it runs",
        "for n in 1 2 3; do cp /bin/echo gone; cp /bin/false new; $UNDER $CHANGES 'import shutil; r, w = os.pipe(); \
         child = os.fork()\n\
         if child: os.close(w); os.read(r, 1); os.rename(\"new\", \"gone\"); sys.exit(os.waitpid(child, 0)[1])' ./gone it tells; \
         echo $?; done; rm gone",
    ),
    (
        "what the loader says",
        "LD_PRELOAD=/nowhere.so $UNDER $AS $SEES tell | sed 's/ LD_PRELOAD=[^ ]*//'; LD_SHOW_AUXV=1 $UNDER $AS $SEES tell | grep -c AT_PAGESZ; \
         LD_PRELOAD=libm.so.6:nowhere.so $UNDER $CHANGES '' $SEES it tell | sed 's/ LD_PRELOAD=[^ ]*//'",
    ),
    (
        "few processes",
        "sed -i s/65534/65533/g changes.py; $UNDER $CHANGES 'resource.setrlimit(resource.RLIMIT_NPROC, (4, 4))' /usr/bin/python3 it -S -c '\
         import os\nr, w = os.pipe()\nfor n in range(6):\n  try:\n    if os.fork() == 0: os.close(w); os.read(r, 1); os._exit(0)\n\
         \x20   print(\"forked\", flush=True)\n  except OSError: print(\"no more\", flush=True)\n\
         os.close(w)'; sleep 0.2",
    ),
    (
        "a command that gets orphans",
        "printf %s '\
         import ctypes, os, sys, time\n\
         if not os.fork():\n  os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n\
         \x20 os.execv(sys.argv[1], [\"it\", \"tell\"])\n\
         os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)\ntime.sleep(0.4)\nchildren = 0\n\
         try:\n  while os.waitpid(-1, os.WNOHANG)[0]: children += 1\nexcept ChildProcessError: print(children)\n' > reaps.py; \
         reaper='import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])'; \
         unshare --pid --fork --mount-proc sh -c \"$UNDER /usr/bin/python3 -S reaps.py $SEES\"; \
         /usr/bin/python3 -S -c \"$reaper\" /usr/bin/env $UNDER /usr/bin/python3 -S reaps.py $SEES; \
         unshare --pid --fork --mount-proc sh -c \"exec $UNDER $AS $SEES tell\"; rm reaps.py",
    ),
    ("switched off", "$UNDER $AS env RUNAHEAD=off $SEES tell; RUNAHEAD=off $UNDER $AS $SEES tell"),
];

/// A program with a library, of which it has taken a version and the size of a variable.
const LIBRARY: &str = "mkdir library; cd library; printf 'V1 { global: *; };' > versions; \
    printf '#include <stdio.h>\nint f(void) { return puts(\"f\") < 0; }\nint v[SIZE];\n' > l.c; \
    printf 'int f(void); extern int v[]; int main(void) { return f() + v[1]; }' > p.c; \
    makes() { cc -shared -fPIC -o libl.so l.c \"$@\"; }; makes -DSIZE=2 -Wl,--version-script,versions; \
    cc -fno-pie -no-pie -o needs p.c -L. -ll -Wl,-rpath,$PWD; ";

/// What becomes of the library; the loader says something of all but the first.
const LIBRARIES: &[(&str, &str)] = &[
    ("a library as it was", "$UNDER $AS ./needs; cd .."),
    ("a library without versions", "makes -DSIZE=2; $UNDER $AS ./needs; cd .."),
    ("a variable that has grown", "makes -DSIZE=20 -Wl,--version-script,versions; $UNDER $AS ./needs; cd .."),
];

pub fn add(suite: &mut Suite) {
    let needs = ["root", "command setpriv"];
    for (name, line) in WAYS.iter().copied() {
        suite.add(format!("own_runs::{name}"), needs, move || {
            scenario(name, line)?.modes([COLD, WARM, NO_SPECULATION]).check(&Runahead::built()?)
        });
    }
    let needs_compiler = ["root", "command setpriv", "command cc"];
    for (name, line) in LIBRARIES.iter().copied() {
        suite.add(format!("own_runs::{name}"), needs_compiler, move || {
            let line = format!("{LIBRARY}{line}; rm -r library");
            scenario(name, &line)?.modes([COLD, WARM]).check(&Runahead::built()?)
        });
    }
    suite.add("own_runs::all arguments that the launcher is given reach the command", ["root"], || {
        is_given_all(&Runahead::built()?)
    });
    suite.add("own_runs::the host is that user's", needs, || is_helped(&Runahead::built()?));
}

fn scenario(name: &str, line: &str) -> Result<Scenario, String> {
    let guests = Guest::all()?;
    let guest =
        guests.iter().find(|guest| guest.name() == "executes").ok_or("the guest 'executes' has gone")?;
    let line = format!(
        "umask 022; chmod 755 .; cp {} sees; SEES=$PWD/sees; AS='{AS}'; printf %s '{CHANGES}' > changes.py; \
         CHANGES='/usr/bin/python3 -S changes.py'; {line}; rm sees changes.py",
        guest.build()?.display()
    );
    Ok(Scenario::shell(format!("own run {name}"), &line).prepare(|directory| {
        // What the guest reads: without it, it says nothing.
        std::fs::write(directory.join("cold.bin"), bytes(7, 1 << 20))?;
        files(directory)
    }))
}

/// The other user's program has a session, of a host that is that user's, and a speculator that reads ahead.
fn is_helped(runahead: &Runahead) -> Verdict {
    const READS: &str = "import os, sys, time\n\
        if len(sys.argv) == 2: os.execv(sys.executable, [sys.executable, '-S', *sys.argv, 'again'])\n\
        host = os.environ['RUNAHEAD_SESSION'].split(':')[0]\n\
        print(os.stat('/proc/' + host).st_uid, open('/proc/' + host + '/comm').read().strip().removesuffix('-host'))\n\
        print('runahead-session' in open('/proc/self/maps').read())\n";
    let line = format!(
        "cat > reads.py <<'END'\n{READS}END\n\
         set -- $UNDER; $1 run -- $AS /usr/bin/python3 -S reads.py once; rm reads.py"
    );
    let told = scenario("helped", &line)?.run(&UNDER, runahead).map_err(|error| error.to_string())?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    match told.as_str() {
        "65534 runahead\nTrue\n" => Ok(()),
        _ => Err(format!("the other user's program says: {told}")),
    }
}

/// With as many bytes of arguments as the kernel takes of the launcher the command is executed as well,
/// though our variables come on top.
fn is_given_all(runahead: &Runahead) -> Verdict {
    const GIVES: &str = "import os, resource, sys\n\
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))\n\
        def ends(length):\n\
        \x20   words = [*sys.argv[1:], '/bin/true', *['a' * 1000] * (length // 1000), 'b' * (length % 1000)]\n\
        \x20   try: child = os.posix_spawn(words[0], words, os.environ)\n\
        \x20   except OSError: return None\n\
        \x20   return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n\
        least, most = 1000, 400000\n\
        while most - least > 1:\n\
        \x20   length = (least + most) // 2\n\
        \x20   least, most = (least, length) if ends(length) is None else (length, most)\n\
        print({ends(least - less) for less in range(0, 400, 20)})\n";
    let line = format!(
        "cat > gives.py <<'END'\n{GIVES}END\nset -- $UNDER; /usr/bin/python3 -S gives.py $1 run --; rm gives.py"
    );
    let told = scenario("given", &line)?.run(&UNDER, runahead).map_err(|error| error.to_string())?;
    match String::from_utf8_lossy(&told.stdout).as_ref() {
        "{0}\n" => Ok(()),
        told => Err(format!("the commands end with: {told}")),
    }
}

const UNDER: Mode = Mode { name: "under", options: Some(&[]), cold: true };
