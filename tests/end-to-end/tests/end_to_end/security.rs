//! Attacks that succeeded once, and others of their kinds: docs/security.md names the test that
//! holds each of its lines.
//!
//! Each attack has a twin that differs in what makes it an attack alone, and must succeed: a test
//! in which nothing could have happened proves nothing.

use crate::suite::Suite;
use runahead_abi::environment::SESSION;
use runahead_abi::executions::{self, Executions};
use runahead_abi::session::{
    AgentPart, HEADER_BYTES, Header, MAGIC, SESSION_BYTES, SLOT_BYTES, SLOTS, Slot, sites,
};
use runahead_end_to_end::Verdict;
use runahead_end_to_end::locate::{self, Runahead};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::mem::offset_of;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PYTHON: &str = "/usr/bin/python3";

/// Another user.
const NOBODY: u32 = 65534;

pub fn add(suite: &mut Suite) {
    let needs = ["root", "command python3", "command setpriv"];
    suite.add("security::what has the host's number is not the host", needs, false_hosts);
    suite.add("security::a site file of somebody else is not believed", needs, false_site_files);
    suite.add("security::who gives up rights is left alone", needs, rights_given_up);
    suite.add(
        "security::who asks for his rights, or sets those that he has, is run ahead of",
        needs,
        nothing_given_up,
    );
    suite.add("security::who has other rights is not served", needs, other_rights);
    suite.add("security::a process that is none of the run's is not served", needs, strangers);
    suite.add("security::a process that is none of the run's is not traced", needs, not_traced);
    suite.add("security::nothing is made in a home without a cache", needs, empty_home);
}

/// A fresh folder that every user may enter.
fn folder(name: &str) -> Result<PathBuf, String> {
    let folder = locate::scratch().join(format!("security-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).map_err(|error| error.to_string())?;
    Ok(folder)
}

fn script(folder: &Path, name: &str, text: &str) -> Result<PathBuf, String> {
    let path = folder.join(name);
    fs::write(&path, text).map_err(|error| error.to_string())?;
    Ok(path)
}

/// A host that is none: keeps a session and a site file open, says its number and theirs, and cuts
/// the session when it is told to.
const FALSE_HOST: &str = r#"
import fcntl, os, struct, sys
size, magic, first, second, word, there, sealed = [int(word, 0) for word in sys.argv[1:8]]
sites, mode = sys.argv[8:10]
session = os.memfd_create("runahead-session", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
os.fchmod(session, int(mode, 8))
os.ftruncate(session, size)
os.pwrite(session, struct.pack("<QQQ", magic, first, second), 0)
os.pwrite(session, struct.pack("<I", there), word)
if sealed: fcntl.fcntl(session, fcntl.F_ADD_SEALS, 1 | 2 | 4)
file = os.open(sites, os.O_RDONLY)
print(os.getpid(), session, file, flush=True)
sys.stdin.readline()
if not sealed: os.ftruncate(session, 0)
print("cut", flush=True)
sys.stdin.readline()
"#;

/// Says whether the agent has mapped a session and rewritten the C library; then, after a line,
/// whether it goes on reading.
const VICTIM: &str = r#"
import os, sys
def read(rounds):
    file = os.open(sys.argv[1], os.O_RDONLY)
    for at in range(rounds):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.pread(file, 4096, at * 7919 * 4096 % (8 << 20))
        os.read(file, 4096)
    os.close(file)
read(300)
maps = open("/proc/self/maps").read().splitlines()
session = any("memfd:runahead-session" in line for line in maps)
changed = False
for line in maps:
    if "/libc.so" in line and "r-x" in line.split()[1]:
        span, _, offset, _, _, path = line.split(None, 5)
        start, end = [int(word, 16) for word in span.split("-")]
        with open("/proc/self/mem", "rb", 0) as memory, open(path, "rb") as file:
            memory.seek(start); file.seek(int(offset, 16))
            length = min(end - start, os.fstat(file.fileno()).st_size - int(offset, 16))
            changed |= memory.read(length) != file.read(length)
print(int(session), int(changed), flush=True)
sys.stdin.readline()
read(300)
print("alive", flush=True)
"#;

struct Talk {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Talk {
    fn begin(command: &mut Command) -> Result<Talk, String> {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| format!("{command:?}: {error}"))?;
        let output = child.stdout.take().ok_or("no output")?;
        Ok(Talk { child, answers: BufReader::new(output) })
    }

    /// The next line; empty at the end.
    fn hear(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|error| error.to_string())?;
        Ok(line.trim().to_owned())
    }

    fn go_on(&mut self) {
        if let Some(input) = &mut self.child.stdin {
            let _ = input.write_all(b"\n");
        }
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cold file of 8 MB in `folder`.
fn cold_file(folder: &Path) -> Result<PathBuf, String> {
    let path = folder.join("cold");
    let bytes: Vec<u8> =
        (0..8u32 << 18).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    fs::write(&path, bytes).map_err(|error| error.to_string())?;
    fs::File::open(&path).and_then(|file| file.sync_all()).map_err(|error| error.to_string())?;
    Ok(path)
}

/// A site file that knows the C library.
fn good_sites(folder: &Path, runahead: &Runahead) -> Result<PathBuf, String> {
    let cache = folder.join("cache");
    fs::create_dir_all(&cache).map_err(|error| error.to_string())?;
    let run = Command::new(&runahead.command)
        .args(["run", "--", PYTHON, "-c", "pass"])
        .env("XDG_CACHE_HOME", &cache)
        .status();
    run.map_err(|error| error.to_string())?;
    Ok(cache.join("runahead/sites"))
}

/// How a false host is made.
#[derive(Clone)]
struct Claimed {
    what: &'static str,
    user: u32,
    cookie: [u64; 2],
    sealed: bool,
    mode: &'static str,
    sites: PathBuf,
}

const COOKIE: [u64; 2] = [0x1234_5678_9abc_def1, 0x0fed_cba9_8765_4321];

/// What a victim with the false host in its environment says: session mapped, C library rewritten;
/// and whether it lived on when the session was cut.
fn meet(folder: &Path, runahead: &Runahead, claimed: &Claimed) -> Result<(String, bool), String> {
    let host = script(folder, "host.py", FALSE_HOST)?;
    let victim = script(folder, "victim.py", VICTIM)?;
    let cold = cold_file(folder)?;
    let number = |number: u64| number.to_string();
    let mut command = Command::new("setpriv");
    if claimed.user != 0 {
        command.args([format!("--reuid={}", claimed.user), "--clear-groups".into()]);
    } else {
        command.arg("--no-new-privs");
    }
    let [first, second] = claimed.cookie;
    let (word, there) = (offset_of!(Header, sites) as u64, u64::from(sites::THERE));
    command.arg(PYTHON).arg(host);
    command.args([SESSION_BYTES as u64, MAGIC, first, second, word, there].map(number));
    command.arg(if claimed.sealed { "1" } else { "0" }).arg(&claimed.sites).arg(claimed.mode);
    let mut host = Talk::begin(&mut command)?;
    let said = host.hear()?;
    let [process, session, sites] = said.split(' ').collect::<Vec<_>>()[..] else {
        return Err(format!("the false host says '{said}'"));
    };
    let agent = Path::new(&runahead.command).with_file_name("librunahead_agent.so");
    // Every read is looked at: 4.
    let value = format!("{process}:{session}:4:0:{:016x}{:016x}:{sites}", COOKIE[0], COOKIE[1]);
    let mut command = Command::new(PYTHON);
    command.args(["-B", "-S"]).arg(victim).arg(cold).env("LD_PRELOAD", agent).env(SESSION, value);
    let mut victim = Talk::begin(&mut command)?;
    let seen = victim.hear()?;
    host.go_on();
    host.hear()?;
    victim.go_on();
    let alive = victim.hear()? == "alive";
    Ok((seen, alive))
}

fn all_are_refused(folder: &Path, runahead: &Runahead, good: &Claimed, bad: &[Claimed]) -> Verdict {
    let found = meet(folder, runahead, good)?;
    if found != ("1 1".to_owned(), true) {
        return Err(format!("nothing is proven: what is right comes to {found:?}"));
    }
    for claimed in bad {
        let (seen, alive) = meet(folder, runahead, claimed)?;
        let refused = if claimed.sites == good.sites { seen == "0 0" } else { seen.ends_with(" 0") };
        if !refused || !alive {
            return Err(format!("{}: {seen} (session mapped, code rewritten), alive: {alive}", claimed.what));
        }
    }
    Ok(())
}

/// A process that has the number of a host that is over, with a file that looks like the session.
fn false_hosts() -> Verdict {
    let runahead = Runahead::built()?;
    let folder = folder("hosts")?;
    let sites = good_sites(&folder, &runahead)?;
    let readable = folder.join("sites");
    fs::copy(&sites, &readable).map_err(|error| error.to_string())?;
    fs::set_permissions(&readable, fs::Permissions::from_mode(0o644)).map_err(|error| error.to_string())?;
    let good = Claimed { what: "right", user: 0, cookie: COOKIE, sealed: true, mode: "600", sites: readable };
    let bad = [
        Claimed { what: "another user's", user: NOBODY, ..good.clone() },
        Claimed { what: "another user's, open to all", user: NOBODY, mode: "666", ..good.clone() },
        Claimed { what: "another user's, not sealed", user: NOBODY, sealed: false, ..good.clone() },
        Claimed { what: "not sealed", sealed: false, ..good.clone() },
        Claimed { what: "another session", cookie: [COOKIE[0], COOKIE[1] + 1], ..good.clone() },
        Claimed { what: "open to all", mode: "666", ..good.clone() },
    ];
    all_are_refused(&folder, &runahead, &good, &bad)
}

/// The site file, through a host that is right otherwise.
fn false_site_files() -> Verdict {
    let runahead = Runahead::built()?;
    let folder = folder("sites")?;
    let sites = good_sites(&folder, &runahead)?;
    let copy = |name: &str, owner: u32, mode: u32| {
        let path = folder.join(name);
        fs::copy(&sites, &path)
            .and_then(|_| chown(&path, Some(owner), None))
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
            .map_err(|error| error.to_string())
            .map(|()| path)
    };
    let good = Claimed {
        what: "right",
        user: 0,
        cookie: COOKIE,
        sealed: true,
        mode: "600",
        sites: copy("right", 0, 0o600)?,
    };
    let bad = [
        Claimed { what: "another user's", sites: copy("another", NOBODY, 0o644)?, ..good.clone() },
        Claimed { what: "writable by all", sites: copy("writable", 0, 0o666)?, ..good.clone() },
        Claimed { what: "writable by its group", sites: copy("group", 0, 0o660)?, ..good.clone() },
    ];
    all_are_refused(&folder, &runahead, &good, &bad)
}

/// Reads until a speculator is there for this process, gives up rights, reads on, and says whether
/// one was there, and whether one is there half a second later. In the second argument: how. What
/// begins with "raw" is done by an instruction that the agent has never seen.
const GIVES_UP: &str = r#"
import ctypes, mmap, os, struct, sys, time
cold, how = sys.argv[1:3]
def speculators():
    found = 0
    for process in filter(str.isdigit, os.listdir("/proc")):
        try: name, rest = open(f"/proc/{process}/stat", "rb").read().rsplit(b")", 1)
        except OSError: continue
        state, parent = rest.split()[:2]
        found += name.endswith(b"(runahead-specul") and parent == host and state != b"Z"
    return found
host = os.environb.get(b"RUNAHEAD_SESSION", b"0").split(b":")[0]
file = os.open(cold, os.O_RDONLY)
place = 1
def read(seconds, until=lambda: False):
    global place
    end = time.monotonic() + seconds
    while time.monotonic() < end and not until():
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        for _ in range(50):
            place = place * 7919 % 2039
            place = 1 + sum(os.pread(file, 64, place * 4096)) % 2000
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
# mov rax, rdi; mov rdi, rsi; mov rsi, rdx; mov rdx, rcx; xor r10d, r10d; xor r8d, r8d; syscall; ret
code.write(bytes.fromhex("4889f8 4889f7 4889d6 4889ca 4531d2 4531c0 0f05 c3"))
unseen = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_ulong] * 4)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
libc = ctypes.CDLL(None, use_errno=True)
seen = lambda number, *a: libc.syscall(ctypes.c_long(number), *map(ctypes.c_ulong, (*a, 0, 0, 0)))
call = (lambda *a: unseen(*(list(a) + [0] * (4 - len(a))))) if how.startswith("raw ") else seen
empty = ctypes.create_string_buffer(struct.pack("<IiII", 0x20080522, 0, 0, 0))
action = ctypes.addressof(allowed := ctypes.c_uint32(0x7fff0000))
nothing = ctypes.create_string_buffer(24)
group = ctypes.create_string_buffer(struct.pack("<I", 4711))
place_of_root = ctypes.create_string_buffer(b"/usr")
allow = ctypes.create_string_buffer(struct.pack("<HBBI", 6, 0, 0, 0x7fff0000))
filters = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 1, ctypes.addressof(allow)))
ways = {
    "setuid": lambda: call(105, 65534),
    "setresuid": lambda: call(117, 65534, 65534, 0),
    "setfsuid": lambda: call(122, 65534) * 0,
    "setgid": lambda: call(106, 65534),
    "setgroups": lambda: call(116, 1, ctypes.addressof(group)),
    "capset": lambda: call(126, ctypes.addressof(empty), ctypes.addressof(nothing)),
    "chroot": lambda: call(161, ctypes.addressof(place_of_root)),
    "unshare": lambda: call(272, 0x00020000),
    "no_new_privs": lambda: call(157, 38, 1),
    "capbset": lambda: call(157, 24, 22),
    "seccomp": lambda: call(317, 1, 0, ctypes.addressof(filters)),
    "nothing": lambda: 0,
    "ambient": lambda: call(157, 47, 1, 0),
    "asks about filters": lambda: 0 if [call(317, 0, 1), call(317, 1, 1), call(317, 1, 8), call(157, 22, 2),
        call(317, 2, 0, action), call(317, 3, 0, ctypes.addressof(nothing))] == [-1] * 4 + [0] * 2 else 1,
    "same user": lambda: call(105, 0) or call(113, 0, 0xffffffff) or call(117, 0xffffffff, 0, 0),
    "same group": lambda: call(106, 0) or call(114, 0xffffffff, 0) or call(119, 0, 0, 0xffffffff),
}
read(10, lambda: speculators() > 0)
before = speculators()
result = ways[how.removeprefix("raw ")]()
read(0.5)
print(before, speculators() if not how.endswith("chroot") else -1, result, host.decode(), flush=True)
sys.stdin.readline()
"#;

const WAYS: [&str; 11] = [
    "setuid",
    "setresuid",
    "setfsuid",
    "setgid",
    "setgroups",
    "capset",
    "chroot",
    "unshare",
    "no_new_privs",
    "capbset",
    "seccomp",
];

/// Calls of the same kind by which nothing changes.
const CHANGES_NOTHING: [&str; 4] = ["ambient", "asks about filters", "same user", "same group"];

/// Speculators of the run of this host: each run here has one process that it may be for.
fn speculators(host: &str) -> usize {
    let all = fs::read_dir("/proc").map(|all| all.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let is_one = |entry: &fs::DirEntry| {
        let line = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((name, rest)) = line.rsplit_once(") ") else { return false };
        let mut words = rest.split(' ');
        name.ends_with("(runahead-specul") && words.next() != Some("Z") && words.next() == Some(host)
    };
    all.iter().filter(|entry| is_one(entry)).count()
}

/// What a process that gives up rights `how` says: speculators before, result; and how many there
/// are afterwards, seen from outside. And why the command was left alone, by the report.
fn give_up(folder: &Path, runahead: &Runahead, how: &str) -> Result<(String, usize, Option<String>), String> {
    let program = script(folder, "gives_up.py", GIVES_UP)?;
    let cold = cold_file(folder)?;
    let report = folder.join("report.json");
    let mut command = Command::new(&runahead.command);
    command.args(["run", "--report"]).arg(&report).arg("--").args([PYTHON, "-B", "-S"]).arg(program);
    let cache = locate::scratch().join("cache");
    fs::create_dir_all(&cache).map_err(|error| error.to_string())?;
    let mut talk = Talk::begin(command.arg(cold).arg(how).env("XDG_CACHE_HOME", cache))?;
    let said = talk.hear()?;
    let [before, _, result, host] = said.split(' ').collect::<Vec<_>>()[..] else {
        return Err(format!("{how}: the program says '{said}'"));
    };
    let after = speculators(host);
    talk.go_on();
    let _ = talk.child.wait();
    // Where the program could not wait for it any more it comes a little later.
    let mut left = None;
    for _ in 0..100 {
        if let Ok(text) = fs::read_to_string(&report)
            && let Ok(report) = serde_json::from_str::<serde_json::Value>(&text)
        {
            left = report["left_because"].as_str().map(str::to_owned);
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Ok((format!("{before} {result}"), after, left))
}

fn rights_given_up() -> Verdict {
    let runahead = Runahead::built()?;
    let folder = folder("rights")?;
    let control = give_up(&folder, &runahead, "raw nothing")?;
    if control != ("1 0".to_owned(), 1, None) {
        return Err(format!("nothing is proven: who gives up nothing comes to {control:?}"));
    }
    let mut complaints = Vec::new();
    for way in WAYS.iter().flat_map(|way| [(*way).to_owned(), format!("raw {way}")]) {
        let (before, after, left) = give_up(&folder, &runahead, &way)?;
        if before != "1 0" {
            complaints.push(format!("{way}: nothing is proven, {before} (speculators before, result)"));
        } else if after != 0 {
            complaints.push(format!("{way}: {after} speculators afterwards"));
        } else if left.as_deref() != Some("a process gave up rights") {
            complaints.push(format!("{way}: left because {left:?}"));
        }
    }
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n")) }
}

fn nothing_given_up() -> Verdict {
    let runahead = Runahead::built()?;
    let folder = folder("changes-nothing")?;
    for way in CHANGES_NOTHING {
        let seen = give_up(&folder, &runahead, way)?;
        if seen != ("1 0".to_owned(), 1, None) {
            return Err(format!(
                "{way}: {seen:?} (speculators before, result; speculators afterwards; left because)"
            ));
        }
    }
    Ok(())
}

/// A child of the command that is another user, or has less, from its first instruction on.
fn other_rights() -> Verdict {
    let runahead = Runahead::built()?;
    let folder = folder("others")?;
    let program = script(&folder, "gives_up.py", &GIVES_UP.replace("read(10,", "read(1,"))?;
    let cold = cold_file(&folder)?;
    let ways: [(&[&str], &str); 6] = [
        (&["setpriv", "--nnp"], "0 0"),
        // A run of its own (`own_runs`).
        (&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"], "1 1"),
        (&["setpriv", "--bounding-set=-sys_boot"], "0 0"),
        (&["unshare", "--user", "--map-root-user", "--mount"], "0 0"),
        // Other mounts confine only who could not leave them.
        (&["unshare", "--mount"], "1 1"),
        (&["env"], "1 1"),
    ];
    for (around, expected) in ways {
        let mut command = Command::new(&runahead.command);
        command.args(["run", "--"]).args(around).args([PYTHON, "-B", "-S"]).arg(&program).arg(&cold);
        let mut talk =
            Talk::begin(command.arg("nothing").env("XDG_CACHE_HOME", locate::scratch().join("cache")))?;
        let said = talk.hear()?;
        if said.split(' ').take(2).collect::<Vec<_>>().join(" ") != expected {
            return Err(format!(
                "{around:?}: '{said}' (speculators, and half a second later), not {expected}"
            ));
        }
    }
    Ok(())
}

/// A process of the run that claims a slot for another one: the numbers are those of the session's
/// layout, the process and a place in its memory the last ones.
const CLAIMS_FOR: &str = r#"
import mmap, os, struct, sys, time
name, owners, slots, header, slot_bytes, address_at, cookie_at, wanted_at, pid, place, content = sys.argv[1], *[int(w, 0) for w in sys.argv[2:]]
host, descriptor = os.environ[name].split(":")[:2]
file = os.open(f"/proc/{host}/fd/{descriptor}", os.O_RDWR)
index = slots - 1
base = header + index * slot_bytes
os.pwrite(file, struct.pack("<Q", content), base + cookie_at)
os.pwrite(file, struct.pack("<Q", place), base + address_at)
os.pwrite(file, struct.pack("<I", 1), base + wanted_at)
os.pwrite(file, struct.pack("<I", pid), owners + 4 * index)
# It looks by itself, five times a second.
time.sleep(1.5)
print(struct.unpack("<I", os.pread(file, 4, owners + 4 * index))[0], host, flush=True)
sys.stdin.readline()
"#;

/// Somebody who has eight bytes of his memory known.
const OUTSIDER: &str = r#"
import ctypes, os, sys
words = (ctypes.c_uint64 * 4)(*[int(word, 0) for word in sys.argv[1:5]])
print(os.getpid(), ctypes.addressof(words) - 16, flush=True)
sys.stdin.readline()
"#;

fn strangers() -> Verdict {
    let runahead = Runahead::built()?;
    let folder = folder("strangers")?;
    let program = script(&folder, "claims.py", CLAIMS_FOR)?;
    let outsider = script(&folder, "outsider.py", OUTSIDER)?;
    let known = 0x0123_4567_89ab_cdef_u64;
    let mut command = Command::new(PYTHON);
    let words = [known, 0, 0, 0].map(|word| word.to_string());
    let mut outsider = Talk::begin(command.args(["-B", "-S"]).arg(outsider).args(words))?;
    let said = outsider.hear()?;
    let (process, place) = said.split_once(' ').ok_or("the outsider says nothing")?;
    let in_agent = |offset: usize| (offset_of!(Slot, agent) + offset) as u64;
    let numbers = [
        offset_of!(Header, owners) as u64,
        SLOTS as u64,
        HEADER_BYTES as u64,
        SLOT_BYTES as u64,
        in_agent(offset_of!(AgentPart, state_address)),
        in_agent(offset_of!(AgentPart, state_cookie)),
        in_agent(offset_of!(AgentPart, speculator_wanted)),
    ];
    let mut command = Command::new(&runahead.command);
    command.args(["run", "--", PYTHON, "-B", "-S"]).arg(program).arg(SESSION);
    command.args(numbers.map(|number| number.to_string())).args([process, place, &known.to_string()]);
    let mut talk = Talk::begin(command.env("XDG_CACHE_HOME", locate::scratch().join("cache")))?;
    let said = talk.hear()?;
    let (owner, host) = said.split_once(' ').ok_or("the claimer says nothing")?;
    let served = speculators(host);
    if owner == process || served != 0 {
        return Err(format!("the slot is {owner}'s ({process} is the outsider), with {served} speculators"));
    }
    Ok(())
}

/// A process of the run that says that another one is about to execute something: the numbers are those of
/// the session's layout, the process and a place in its memory, where the session's cookie may be, and what
/// the answer must be.
const ASKS_FOR: &str = r#"
import os, struct, sys, time
name, doorbell, holder, state, state_address, path, pid, place, words = sys.argv[1], *[int(w, 0) for w in sys.argv[2:]]
host, descriptor = os.environ[name].split(":")[:2]
file = os.open(f"/proc/{host}/fd/{descriptor}", os.O_RDWR)
def put(kind, value, at): os.pwrite(file, struct.pack(kind, value), at)
def tracer():
    lines = open(f"/proc/{pid}/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("TracerPid")).split()[1])
seen, answers = 0, []
put("<I", 1, doorbell)
for address in (place, 0, 4096):
    put("<I", pid, holder)
    put("<Q", address, state_address)
    # A path and an environment that can be read.
    put("<Q", words, path)
    put("<Q", 0, path + 8)
    put("<I", 1, state)
    end = time.monotonic() + 0.6
    while time.monotonic() < end: seen = max(seen, tracer())
    answers.append(struct.unpack("<I", os.pread(file, 4, state))[0])
    put("<I", 0, state)
print(seen, *answers, flush=True)
sys.stdin.readline()
"#;

fn not_traced() -> Verdict {
    let runahead = Runahead::built()?;
    let folder = folder("traced")?;
    let program = script(&folder, "asks.py", ASKS_FOR)?;
    let outsider = script(&folder, "outsider.py", OUTSIDER)?;
    let path = u64::from_le_bytes(*b"/bin/ls\0");
    let mut command = Command::new(PYTHON);
    let words = [1, 2, 3, path].map(|word| word.to_string());
    let mut outsider = Talk::begin(command.args(["-B", "-S"]).arg(outsider).args(words))?;
    let said = outsider.hear()?;
    let (process, place) = said.split_once(' ').ok_or("the outsider says nothing")?;
    let place: u64 = place.parse().map_err(|_| "the outsider says no number")?;
    let in_mailbox = |offset: usize| (offset_of!(Header, executions) + offset) as u64;
    let numbers = [
        offset_of!(Header, doorbell) as u64,
        in_mailbox(offset_of!(Executions, holder)),
        in_mailbox(offset_of!(Executions, state)),
        in_mailbox(offset_of!(Executions, state_address)),
        in_mailbox(offset_of!(Executions, path)),
        process.parse().map_err(|_| "the outsider says no number")?,
        place,
        place + 16 + 24,
    ];
    let mut command = Command::new(&runahead.command);
    command.args(["run", "--", PYTHON, "-B", "-S"]).arg(program).arg(SESSION);
    command.args(numbers.map(|number| number.to_string()));
    let mut talk = Talk::begin(command.env("XDG_CACHE_HOME", locate::scratch().join("cache")))?;
    let said = talk.hear()?;
    let left = executions::state::LEFT;
    if said != format!("0 {left} {left} {left}") {
        return Err(format!("tracers of the outsider and the host's answers: {said}"));
    }
    Ok(())
}

/// Who empties his home and removes it finds it as he left it; and nothing lies in the temporary
/// folder.
fn empty_home() -> Verdict {
    let runahead = Runahead::built()?;
    let folder = folder("home")?;
    for (name, user) in [("root", 0), ("nobody", NOBODY)] {
        let (home, temporary) =
            (folder.join(format!("{name}-home")), folder.join(format!("{name}-temporary")));
        for made in [&home, &temporary] {
            fs::create_dir(made)
                .and_then(|()| chown(made, Some(user), None))
                .map_err(|error| error.to_string())?;
        }
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={user}"), "--clear-groups".into(), runahead.command.clone()]);
        command.args([
            "run",
            "--",
            PYTHON,
            "-c",
            "import os, sys; print(os.listdir(sys.argv[1]), os.listdir(sys.argv[2]))",
        ]);
        command
            .arg(&home)
            .arg(&temporary)
            .env_remove("XDG_CACHE_HOME")
            .env("HOME", &home)
            .env("TMPDIR", &temporary);
        let said = Talk::begin(&mut command)?.hear()?;
        if said != "[] []" {
            return Err(format!("as {name}: {said}"));
        }
    }
    Ok(())
}
