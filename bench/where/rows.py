"""The rows of where.py: what runs, where, and what was wanted of it. Used by where.py only."""

import dataclasses
import typing

from places import container, mounted, plain, release, served, web_server, without_perf


@dataclasses.dataclass
class Row:
    """`command` is for a shell, in the folder of the place. $R stands where Runahead belongs; $T is an empty
    folder on the machine's own disk; $W holds programs/ and what README.md says how to make, $PYTHON is a
    Python with libraries.
    """

    group: str
    name: str
    wanted: str  # times as fast as alone, as issues asked for it; empty if nobody did
    about: str
    command: str
    place: typing.Callable = plain
    root: bool = False  # runs as root


PROGRAMS = "$W/programs"
READERS = [
    ("grep", "grep -r over 3000 files", "$R grep -rc zzzq tree | cksum"),
    ("tar", "tar of 3000 files to a pipe", "$R tar cf - tree | cksum"),
    ("python", "Python, reading them", f"$R /usr/bin/python3 {PROGRAMS}/read.py names"),
    (
        "python-thread",
        "the same while a second thread sleeps",
        f"$R /usr/bin/python3 {PROGRAMS}/read.py names thread",
    ),
    ("node", "node, readFileSync of them", f"$R node {PROGRAMS}/read.js names"),
]
SQLITE = "$R sqlite3 -init /dev/null -batch -readonly rows.db < by-name.sql | cksum"
LIBRARY = f"$R $PYTHON {PROGRAMS}/library.py"


def readers(group, place, wanted, names=None):
    """READERS at one place; `wanted` for all, or by name."""
    for name, about, command in READERS:
        if names is None or name in names:
            bar = wanted if isinstance(wanted, str) else wanted[name]
            yield Row(group, f"{group}-{name}", bar, about, command, place)


def small(group, place, wanted="0.97"):
    """What must not be slower where nothing can be gained."""
    for name, about, command in (
        ("grep", "grep -r over 3000 files", "$R grep -rc zzzq tree | cksum"),
        ("du", "du of them", "$R du -s --apparent-size tree; $R du -s --inodes tree"),
        ("tar", "tar of them to a pipe", "$R tar cf - tree | cksum"),
        ("sqlite", "sqlite3, 1000 look-ups by index", SQLITE),
    ):
        if not (group in ("squashfs", "tmpfs") and name == "sqlite"):
            yield Row(group, f"{group}-{name}", wanted, about, command, place)


def mapped():
    """Programs that map their files, without performance events, and with them."""
    words = "$W/bin/bench-mapped"
    for name, wanted, about, command in (
        ("gather", "12", "10,000 words of a mapped file of 1 GB", f"$R {words} blocks.raw computed 10000"),
        ("column", "", "a column of a mapped matrix", f"$R {words} blocks.raw columns"),
        (
            "sqlite",
            "",
            "sqlite3, 1000 look-ups by index, mapped",
            SQLITE.replace("by-name", "by-name-mapped"),
        ),
        ("memmap", "", "NumPy, slices of a memmap", f"{LIBRARY} memmap"),
        ("memmap-thread", "", "the same by another thread", f"{LIBRARY} memmap thread"),
        ("safetensors", "", "rows of 100 tensors of 4 MB", f"{LIBRARY} safetensors"),
        ("safetensors-thread", "", "the same by another thread", f"{LIBRARY} safetensors thread"),
        ("faiss", "", "100 searches in an index of 200 MB", f"{LIBRARY} faiss"),
        ("lmdb", "", "3000 look-ups in LMDB", f"{LIBRARY} lmdb"),
        ("avx2", "15", "a gather by AVX2, 20,000 words", "$R $W/bin/gather blocks.raw indices"),
    ):
        yield Row(
            "mapped", f"mapped-{name}", wanted, f"{about}, without performance events", command, without_perf
        )
        yield Row("seen", f"seen-{name}", "", f"{about}, with them", command)


SFTP = ["sshfs", "-f", "-o", "directport=4022", "-o", "allow_other", "localhost:{disk}", "{at}"]


def sshfs(*options):
    """The disk through sshfs, two milliseconds a round trip."""
    return mounted(
        "sshfs",
        SFTP[:2] + [word for option in options for word in ("-o", option)] + SFTP[2:],
        [served("sftp", "sftp", "4022", "2")],
    )


def rclone(*options):
    """The disk as an object store, by rclone's mount of its web server, ten milliseconds a round trip."""

    def server(place):
        web_server(place)
        served("http", "tcp", "4023", "4024", "10")(place)

    return mounted(
        "rclone",
        [
            "rclone",
            "mount",
            ":http:",
            "{at}",
            "--http-url",
            "http://127.0.0.1:4023",
            "--config",
            "/dev/null",
            "--allow-other",
            "--read-only",
            *options,
        ],
        [server],
    )


BINDFS = mounted("bindfs", ["bindfs", "-f", "-s", "{disk}", "{at}"])
SQUASHFS = mounted("squashfs", ["mount", "-o", "loop,ro", "{disk}/squashed", "{at}"], stays=False)
SQUASHFUSE = mounted(
    "squashfuse", ["squashfuse", "-f", "-o", "allow_root", "{disk}/squashed", "{at}"], user=True
)
FUSE_OVERLAY = mounted(
    "fuse-overlayfs", ["fuse-overlayfs", "-f", "-o", "allow_root,lowerdir={disk}", "{at}"], user=True
)
TMPFS = mounted("tmpfs", ["sh", "-c", "mount -t tmpfs tmpfs {at} && cp -a {disk}/tree {at}"], stays=False)
COPY = "; find $T/copy tree-copy -type f 2>/dev/null | wc -l; find $T/copy tree-copy -type f -print0 2>/dev/null | sort -z | head -z -n 40 | xargs -0 cat | cksum"

ROWS = [
    *readers("bullseye", release("bullseye"), "7"),
    *readers("bookworm", release("bookworm"), "7"),
    *readers("trixie", release("trixie"), "7"),
    *readers("container", container, {"grep": "8", "tar": "8", "python": "6"}, ("grep", "tar", "python")),
    Row("container", "container-sqlite", "4", "sqlite3, 1000 look-ups by index", SQLITE, container),
    Row(
        "container",
        "container-gather",
        "",
        "10,000 words of a mapped file",
        "$R $W/bin/bench-mapped blocks.raw computed 10000",
        container,
    ),
    *mapped(),
    Row(
        "static",
        "busybox-grep",
        "8",
        "busybox grep -r (static, glibc)",
        "$R busybox grep -rc zzzq tree | cksum",
    ),
    Row("static", "busybox-tar", "8", "busybox tar", "$R busybox tar cf - tree | cksum"),
    Row(
        "static",
        "musl-grep",
        "8",
        "busybox grep -r (static, musl)",
        "$R $W/bin/busybox grep -rc zzzq tree | cksum",
    ),
    Row("static", "musl-tar", "8", "busybox tar (static, musl)", "$R $W/bin/busybox tar cf - tree | cksum"),
    Row("static", "rg", "10", "rg -j1 (static, musl)", "$R $W/bin/rg -j1 --sort path -c int tree | cksum"),
    Row("static", "go-static", "8", "a Go reader of 3000 files, static", "$R $W/bin/read-static names"),
    Row("static", "go-pie", "8", "the same, pie", "$R $W/bin/read-pie names"),
    Row("static", "go-cgo", "8", "the same with cgo", "$R $W/bin/read-cgo names"),
    Row(
        "static",
        "restic",
        "2",
        "restic backup",
        "export RESTIC_PASSWORD=a; restic -q init -r $T/r >/dev/null; $R restic -r $T/r backup tree 2>&1 | grep processed | cut -d, -f1",
    ),
    Row(
        "static",
        "rclone-hashsum",
        "3",
        "rclone hashsum",
        "$R rclone --config /dev/null hashsum md5 tree 2>/dev/null | sort | cksum",
    ),
    Row("static", "gofmt", "3", "gofmt -l of Go's library", "$R gofmt -l gosource | cksum"),
    Row(
        "between",
        "sudo",
        "7",
        "sudo -u between, grep -r",
        "$R sudo -u '#1000' grep -rc zzzq tree | cksum",
        root=True,
    ),
    Row("between", "env-i", "7", "env -i between, grep -r", "$R env -i /usr/bin/grep -rc zzzq tree | cksum"),
    Row(
        "between",
        "setpriv",
        "7",
        "setpriv to another user between, grep -r",
        "$R setpriv --reuid 1000 --regid 1000 --clear-groups grep -rc zzzq tree | cksum",
        root=True,
    ),
    Row(
        "copying",
        "cp-same",
        "5",
        "cp -r on one file system",
        "rm -rf tree-copy; $R cp -r tree tree-copy" + COPY,
    ),
    Row("copying", "cp-other", "5", "cp -r to another", "$R cp -r tree $T/copy" + COPY),
    Row(
        "copying",
        "copytree",
        "5",
        "shutil.copytree",
        '$R /usr/bin/python3 -c \'import os, shutil; shutil.copytree("tree", os.environ["T"] + "/copy")\''
        + COPY,
    ),
    Row(
        "copying",
        "install",
        "3",
        "install of 3000 files",
        "mkdir $T/copy; $R install -t $T/copy $(cat names)" + COPY,
    ),
    Row("network", "sshfs-grep", "8", "sshfs, 2 ms, as it comes: grep -r", READERS[0][2], sshfs()),
    Row("network", "sshfs-du", "8", "the same: du", "$R du -s --apparent-size tree", sshfs()),
    Row(
        "network",
        "sshfs-git-status",
        "6",
        "the same: git status",
        "$R git -C repository -c safe.directory='*' status --short --branch",
        sshfs(),
    ),
    Row(
        "network",
        "sshfs-cache-grep",
        "8",
        "sshfs with auto_cache: grep -r",
        READERS[0][2],
        sshfs("auto_cache"),
    ),
    Row("network", "sshfs-cache-tar", "", "the same: tar", READERS[1][2], sshfs("auto_cache")),
    Row(
        "network",
        "rclone-small",
        "10",
        "rclone mount, 10 ms: 500 files",
        f"head -500 names > $T/names; $R /usr/bin/python3 {PROGRAMS}/read.py $T/names",
        rclone(),
    ),
    Row("network", "rclone-large", "2", "the same: 400 MB from end to end", "$R cksum large.bin", rclone()),
    *small("bindfs", BINDFS),
    *small("squashfs", SQUASHFS),
    *small("tmpfs", TMPFS),
    Row(
        "user-fuse",
        "squashfuse-node",
        "2",
        "node requiring 600 modules, squashfuse",
        "$R node modules/all.js",
        SQUASHFUSE,
    ),
    Row("user-fuse", "overlay-node", "2", "the same, fuse-overlayfs", "$R node modules/all.js", FUSE_OVERLAY),
    Row(
        "user-fuse",
        "overlay-one",
        "6",
        "fuse-overlayfs: 3000 files, one read each",
        f"$R /usr/bin/python3 {PROGRAMS}/read.py names",
        FUSE_OVERLAY,
    ),
    Row(
        "children",
        "children",
        "0.95",
        "250 children at once, 8 cold reads each",
        f"$R sh {PROGRAMS}/children.sh names",
    ),
]
