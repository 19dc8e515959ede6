"""What is on the slow disk: the same each time it is made. Used by places.py only."""

import contextlib
import os
import pathlib
import random
import shutil
import sqlite3
import subprocess

FILES, ROWS, LOOK_UPS = 3000, 1_500_000, 1000
KEPT = pathlib.Path(__file__).resolve().parents[2] / "target/where"


def tree(folder, rng):
    """3000 text files as of source code, half a kilobyte to 200, in 60 folders."""
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 10))) for _ in range(4000)]
    page = "\n".join(" ".join(rng.choices(words, k=9)) for _ in range(8000))
    for number in range(FILES):
        file = folder / f"part{number % 60:02}" / f"file{number:04}.c"
        file.parent.mkdir(parents=True, exist_ok=True)
        size = min(200_000, max(500, int(rng.lognormvariate(8.8, 1.1))))
        begin = rng.randrange(len(page) - 1000)
        file.write_text(f"int number{number};\n" + (page[begin:] + page)[:size], encoding="ascii")
    names = sorted(str(file.relative_to(folder.parent)) for file in folder.rglob("*.c"))
    (folder.parent / "names").write_text("".join(name + "\n" for name in names), encoding="ascii")


def blocks(file, megabytes, rng):
    """A file that looks random, without zeros in a row."""
    block = rng.randbytes(1 << 20)
    with open(file, "wb") as out:
        for number in range(megabytes):
            out.write(number.to_bytes(8, "little") + block[8:])


def database(folder, rng):
    """Rows by number and by name, and look-ups of both kinds."""
    base = sqlite3.connect(folder / "rows.db")
    base.execute("PRAGMA journal_mode = OFF")
    base.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, name TEXT, payload TEXT)")
    names = [f"{rng.getrandbits(64):016x}" for _ in range(ROWS)]
    payload = "x" * 300
    base.executemany("INSERT INTO rows (name, payload) VALUES (?, ?)", ((name, payload) for name in names))
    base.execute("CREATE INDEX by_name ON rows (name)")
    base.commit()
    base.close()
    (folder / "by-name.sql").write_text(
        "".join(
            f"SELECT number, payload FROM rows WHERE name = '{name}';\n"
            for name in rng.sample(names, LOOK_UPS)
        ),
        encoding="ascii",
    )
    (folder / "by-name-mapped.sql").write_text(
        "PRAGMA mmap_size = 2000000000;\n" + (folder / "by-name.sql").read_text(encoding="ascii"),
        encoding="ascii",
    )


def modules(folder):
    """600 modules of JavaScript, each in its file."""
    folder.mkdir()
    for number in range(600):
        (folder / f"m{number}.js").write_text(
            f"// {'x' * 2000}\nmodule.exports = {{ value: {number} }};\n", encoding="ascii"
        )
    (folder / "all.js").write_text(
        "let s = 0; for (let i = 0; i < 600; i++) s += require(`./m${i}.js`).value; console.log(s);\n",
        encoding="ascii",
    )


def libraries(folder):
    """Files of the libraries in the environment KEPT/python, if there is one: see README.md."""
    python = KEPT / "python/bin/python3"
    if python.exists():
        subprocess.run([python, pathlib.Path(__file__).parent / "programs/made.py", folder], check=True)


def go_source(folder):
    """A part of Go's own library, if there is one."""
    root = subprocess.run(["go", "env", "GOROOT"], capture_output=True, text=True, check=False).stdout.strip()
    if root:
        shutil.copytree(f"{root}/src/cmd/compile/internal", folder)


def make(folder):
    """Makes all that the rows read."""
    rng = random.Random(1)
    with contextlib.suppress(OSError):
        go_source(folder / "gosource")
    tree(folder / "tree", rng)
    blocks(folder / "blocks.raw", 1024, rng)
    blocks(folder / "volume.raw", 512, rng)
    blocks(folder / "large.bin", 400, rng)
    database(folder, rng)
    modules(folder / "modules")
    libraries(folder)
    with open(folder / "indices", "wb") as out:
        for _ in range(20_000):
            out.write(rng.randrange((1 << 30) // 4).to_bytes(4, "little"))
    subprocess.run(["git", "init", "-q", "-b", "main", folder / "repository"], check=True)
    shutil.copytree(folder / "tree", folder / "repository/tree")
    environment = dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null")
    for words in (["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "all"]):
        subprocess.run(["git", "-C", folder / "repository", *words], check=True, env=environment)
    squashed = folder / "squashed"
    subprocess.run(
        [
            "mksquashfs",
            folder / "tree",
            folder / "modules",
            squashed,
            "-quiet",
            "-no-progress",
            "-comp",
            "gzip",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
