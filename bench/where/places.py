"""Where rows run: the slow disk and what is on it, users, roots of other releases, containers, servers of
files.

All is set up below /run/runahead-where and taken down at the end. Used by where.py only, as root.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

import files

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ROOT / "target/where"  # roots, programs and environments: made once
BASE = pathlib.Path("/run/runahead-where")
DISK = "where"
USER = 1000
FUSE = pathlib.Path("/etc/fuse.conf")  # lets ordinary users' mounts be seen by root
SETTINGS = {"/proc/sys/kernel/perf_event_paranoid": "3", "/proc/sys/vm/unprivileged_userfaultfd": "0"}
ENVIRONMENT = {
    "PATH": "/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "LC_ALL": "C.UTF-8",
    "W": str(BASE),
    "PYTHON": str(KEPT / "python/bin/python3"),
}
PATIENCE = 300  # seconds for one run


class Missing(Exception):
    """A row cannot be run on this machine; the text says why."""


def sh(*words, **more):
    """Runs a command that sets something up; raises Missing with what it printed if that fails."""
    done = subprocess.run(
        [str(word) for word in words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **more,
    )
    if done.returncode:
        raise Missing(f"{words[0]}: {done.stdout.strip()[-200:]}")
    return done.stdout


def commit():
    """The short name of the commit that is measured."""
    return subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()


def slowdisk(*words):
    """Runs the emulator's command; returns what it prints."""
    return sh(ROOT / "target/release/slowdisk", *words)


@contextlib.contextmanager
def machine():
    """The slow disk, filled, and the kernel's settings as distributions have them; all as before afterwards."""
    before = {name: pathlib.Path(name).read_text(encoding="ascii") for name in SETTINGS}
    device = os.stat("/dev/fuse").st_mode & 0o777
    configuration = FUSE.read_text(encoding="utf-8") if FUSE.exists() else ""
    slowdisk("up", "cloud", "--name", DISK, "--size", "8G")
    try:
        BASE.mkdir(exist_ok=True)
        for name in SETTINGS:
            pathlib.Path(name).write_text(SETTINGS[name], encoding="ascii")
        os.chmod("/dev/fuse", 0o666)
        FUSE.write_text(configuration + "\nuser_allow_other\n", encoding="utf-8")
        install()
        data = Disk().mount
        os.chown(data, USER, USER)
        slowdisk("pace", DISK, "off")
        files.make(data)
        sh("chown", "-R", f"{USER}:{USER}", data)
        os.sync()
        slowdisk("pace", DISK, "on")
        yield
    finally:
        for name, text in before.items():
            pathlib.Path(name).write_text(text, encoding="ascii")
        os.chmod("/dev/fuse", device)
        FUSE.write_text(configuration, encoding="utf-8")
        slowdisk("down", DISK)
        shutil.rmtree(BASE, ignore_errors=True)


class Disk:
    """Where the slow disk is."""

    def __init__(self):
        told = next(one["disk"] for one in json.loads(slowdisk("status")) if one["disk"]["name"] == DISK)
        self.mount, self.device = pathlib.Path(told["mount"]), told["loop_device"]


def install():
    """Puts Runahead below BASE as people install it."""
    sh(ROOT / "x", "install", f"--prefix={BASE}/runahead", "--only=core", cwd=ROOT)
    shutil.copytree(ROOT / "bench/where/programs", BASE / "programs")
    shutil.copytree(KEPT / "bin", BASE / "bin")
    shutil.copy(ROOT / "target/release/bench-mapped", BASE / "bin")


class Place:
    """Where one row runs. `run` takes what stands before the program, and returns seconds."""

    def __init__(self, row):
        self.row, self.printed = row, None
        self.runahead = f"{BASE}/runahead/bin/runahead run --"
        self.disk = Disk()
        self.home = BASE / "home"
        self.mounts = []  # what lies on the disk: (set up, take down), in order
        self.wrap = lambda script: script  # what surrounds the command: a list of words
        self.at = self.disk.mount

    def up(self):
        """Mounts the disk, freshly, so that nothing of it is cached, and all that lies on it."""
        sh("mount", "-o", "noatime", self.disk.device, self.disk.mount)
        for begin, _ in self.mounts:
            begin()

    def down(self):
        """Takes down what `up` has set up."""
        for _, end in reversed(self.mounts):
            end()
        for _ in range(100):
            if (
                subprocess.run(["umount", self.disk.mount], stderr=subprocess.DEVNULL, check=False).returncode
                == 0
            ):
                return
            time.sleep(0.1)
        sh("umount", self.disk.mount)

    def forget(self):
        """Nothing is remembered of earlier runs."""
        time.sleep(0.5)
        shared = (f"{place}/runahead-{USER}" for place in ("/tmp", "/var/tmp", BASE / "overlay/var"))
        for kept in (self.home, *shared):
            shutil.rmtree(kept, ignore_errors=True)
        self.home.mkdir()
        os.chown(self.home, USER, USER)

    def run(self, prefix, kind, is_cold=True):
        """Runs the row's command, cold if so wanted; leaves what it printed in `printed`. Returns seconds."""
        if not self.home.exists():
            self.forget()
        if is_cold:
            self.down()
            os.sync()
            self.up()
        out = BASE / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        os.chown(out, USER, USER)
        script = f"cd {self.at}; R='{prefix}'; {self.row.command}"
        words = self.wrap(["sh", "-c", script])
        env = {"HOME": str(self.home), "T": str(out), **ENVIRONMENT}
        user = (
            [] if self.row.root else ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups"]
        )
        begun = time.monotonic()
        with subprocess.Popen(
            user + words if not self.wrap_is_outer else words,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        ) as child:
            try:
                printed, error = child.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                raise Missing(f"{kind}: not done after {PATIENCE} s") from None
        took = time.monotonic() - begun
        if child.returncode or not printed.strip():
            raise Missing(f"{kind}: status {child.returncode}: {error.decode(errors='replace')[-300:]}")
        self.printed = printed
        return took

    wrap_is_outer = False  # whether `wrap` changes the user itself


@contextlib.contextmanager
def ready(row):
    """The place that `row` wants."""
    place = Place(row)
    place.down()
    place.up()
    try:
        row.place(place)
        yield place
    finally:
        if subprocess.run(["mountpoint", "-q", place.disk.mount], check=False).returncode == 0:
            place.down()
        place.mounts = []
        place.up()


# Places. Each takes a Place and changes it.


def plain(_place):
    """The disk itself."""


def release(name):
    """A root of another release of Debian, entered by chroot."""

    def on(place):
        root = KEPT / "roots" / name
        if not (root / "done").exists():
            raise Missing(f"no root of {name}")
        shares = ["/proc", "/dev", str(BASE), str(place.disk.mount), str(KEPT)]

        def begin():
            for share in shares:
                os.makedirs(f"{root}{share}", exist_ok=True)
                sh("mount", "--bind", share, f"{root}{share}")

        def end():
            for share in reversed(shares):
                subprocess.run(["umount", f"{root}{share}"], check=False, stderr=subprocess.DEVNULL)

        place.mounts.append((begin, end))
        place.wrap_is_outer = True
        place.wrap = lambda words: ["chroot", f"--userspec={USER}:{USER}", root] + words

    return on


# What the profiles of Docker, containerd and Podman forbid of what Runahead uses: EPERM, or ENOSYS if unknown.
DENIED = {
    "SCMP_ACT_ERRNO": [
        "userfaultfd",
        "perf_event_open",
        "kcmp",
        "bpf",
        "mount",
        "umount2",
        "setns",
        "unshare",
        "keyctl",
    ],
    "unknown": ["cachestat", "map_shadow_stack", "futex_wake", "futex_wait"],
}


def container(place):
    """A default container: runc, an overlay, the profile's refusals, no capability, no new rights."""
    contained(place, DENIED)


def without_perf(place):
    """Where performance events are refused, as kernels of Debian and Ubuntu refuse them to users, and
    nothing else.
    """
    contained(place, {"SCMP_ACT_ERRNO": ["perf_event_open"], "unknown": ["map_shadow_stack"]})


def contained(place, denied):
    """A container of runc in which these calls are refused."""
    bundle, lower = BASE / "bundle", place.disk.mount
    overlay = BASE / "overlay"
    for folder in ("upper", "work", "merged", "var"):
        (overlay / folder).mkdir(parents=True, exist_ok=True)
    os.chmod(overlay / "var", 0o1777)
    os.makedirs(bundle, exist_ok=True)

    root = BASE / "rootfs"
    root.mkdir(exist_ok=True)

    def begin():
        sh("mount", "--bind", "/", root)
        sh(
            "mount",
            "-t",
            "overlay",
            "overlay",
            "-o",
            f"lowerdir={lower},upperdir={overlay}/upper,workdir={overlay}/work",
            overlay / "merged",
        )

    def end():
        subprocess.run(["umount", overlay / "merged", root], check=False, stderr=subprocess.DEVNULL)

    def mount(at, kind, source, *options):
        return {"destination": at, "type": kind, "source": source, "options": list(options)}

    def wrap(words):
        shared = [str(BASE), str(KEPT)]
        variables = {"HOME": place.home, "T": BASE / "out", **ENVIRONMENT}
        told = {
            "ociVersion": "1.0.0",
            "process": {
                "terminal": False,
                "user": {"uid": USER, "gid": USER},
                "args": words,
                "cwd": "/",
                "noNewPrivileges": True,
                "env": [f"{name}={of}" for name, of in variables.items()],
                "capabilities": {},
            },
            "root": {"path": str(root), "readonly": True},
            "mounts": [
                mount("/proc", "proc", "proc"),
                mount("/dev", "tmpfs", "tmpfs", "nosuid", "mode=755"),
                mount("/dev/shm", "tmpfs", "shm", "nosuid", "nodev", "mode=1777"),
                mount("/tmp", "tmpfs", "tmp", "mode=1777"),
                *(mount(path, "bind", path, "rbind", "rw") for path in shared),
                mount("/var/tmp", "bind", str(overlay / "var"), "bind", "rw"),
            ],
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network")],
                "seccomp": {
                    "defaultAction": "SCMP_ACT_ALLOW",
                    "architectures": ["SCMP_ARCH_X86_64"],
                    "syscalls": [
                        {"names": denied["SCMP_ACT_ERRNO"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
                        {"names": denied["unknown"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
                    ],
                },
            },
        }
        (bundle / "config.json").write_text(json.dumps(told), encoding="utf-8")
        return ["runc", "run", "--bundle", str(bundle), f"where-{os.getpid()}"]

    place.at = overlay / "merged"
    place.mounts.append((begin, end))
    place.wrap_is_outer = True
    place.wrap = wrap


def mounted(folder, command, options=(), user=False, stays=True):
    """What `command` mounts: its words, {disk}, {at} and {base} filled in. It stays in the foreground, or
    ends.
    """

    def on(place):
        at = BASE / folder
        at.mkdir(exist_ok=True)
        os.chown(at, USER, USER)
        running = []

        def begin():
            words = [word.format(disk=place.disk.mount, at=at, base=BASE, kept=KEPT) for word in command]
            who = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups"] if user else []
            running.append(subprocess.Popen(who + words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
            for _ in range(100):
                if not stays:
                    running[0].wait()
                if subprocess.run(["mountpoint", "-q", at], check=False).returncode == 0:
                    return
                time.sleep(0.05)
            raise Missing(f"{words[0]} did not mount")

        def end():
            subprocess.run(["umount", at], check=False, stderr=subprocess.DEVNULL)
            for child in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=5)
                if child.poll() is None:
                    child.terminate()
                    child.wait()
            running.clear()

        for option in options:
            option(place)
        place.mounts.append((begin, end))
        place.at = at

    return on


def ended(running):
    """Ends servers, and forgets them."""
    for child in running:
        child.terminate()
        child.wait()
    running.clear()


def served(name, *words):
    """A server that stands between, of relay.py: `words` are its arguments."""

    def on(place):
        running = []

        def begin():
            arguments = [word.format(disk=place.disk.mount, base=BASE) for word in words]
            relay = [sys.executable, ROOT / "bench/where/relay.py", *arguments]
            running.append(subprocess.Popen(relay, stdout=subprocess.PIPE))
            if running[-1].stdout.readline().strip() != b"ready":
                raise Missing(f"the relay for {name} did not begin")

        place.mounts.append((begin, lambda: ended(running)))

    return on


def web_server(place):
    """rclone's web server of the disk, at port 4024."""
    running = []

    def begin():
        command = [
            "rclone",
            "serve",
            "http",
            place.disk.mount,
            "--addr",
            "127.0.0.1:4024",
            "--config",
            "/dev/null",
        ]
        running.append(
            subprocess.Popen([*command, "--read-only"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )
        for _ in range(100):
            with contextlib.suppress(OSError):
                urllib.request.urlopen("http://127.0.0.1:4024/names").close()
                return
            time.sleep(0.05)
        raise Missing("rclone's server did not begin")

    place.mounts.append((begin, lambda: ended(running)))
