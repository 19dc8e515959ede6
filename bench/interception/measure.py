#!/usr/bin/env python3
"""What interception costs: a call through a stub, and a Go program's cold reads with 1 to 8 goroutines.

    bench/interception/measure.py [--runahead target/release/runahead] [--rounds 7] [--files 4000] [FOLDER]

The Go program is the suite's guest `go_readers`, built with cgo, position-independent. Its files are made
in FOLDER (a new one below it, removed afterwards), written through, and evicted before each run. Alone and
under Runahead in alternation; printed are medians.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def build(folder: Path) -> tuple[Path, Path | None]:
    calls, reader = folder / "calls", folder / "reader"
    subprocess.run(["gcc", "-O2", "-o", calls, HERE / "calls.c"], check=True)
    go = shutil.which("go", path=os.environ.get("PATH", "") + ":/usr/local/go/bin")
    if go is None:
        print("SKIPPED the Go reader: this machine lacks: go")
        return calls, None
    environment = os.environ | {"CGO_ENABLED": "1", "GO111MODULE": "off", "GOFLAGS": ""}
    source = ROOT / "tests/guests/go_readers.go"
    subprocess.run([go, "build", "-buildmode=pie", "-o", reader, source], check=True, env=environment)
    return calls, reader


def make_files(folder: Path, count: int) -> list[Path]:
    (folder / "many").mkdir()
    paths = [folder / "many" / str(number) for number in range(count)]
    for path in paths:
        path.write_bytes(os.urandom(4096))
    os.sync()
    return paths


def evict(paths: list[Path]) -> None:
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def timed(words: list[str], folder: Path) -> tuple[float, str]:
    began = time.monotonic()
    done = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)
    return time.monotonic() - began, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runahead", default=ROOT / "target/release/runahead")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--files", type=int, default=4000)
    parser.add_argument("folder", nargs="?", default=".")
    options = parser.parse_args()
    under = [str(Path(options.runahead).resolve()), "run", "--"]
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="interception-") as name:
        folder = Path(name).resolve()
        calls, reader = build(folder)
        data = folder / "data"
        data.write_bytes(os.urandom(1 << 16))
        for what, words in (("alone", []), ("calm", under), ("active", under)):
            last = ["active"] if what == "active" else []
            # Once before: a program that nobody has met yet is known a moment later.
            for _ in range(2):
                done = subprocess.run(words + [str(calls), str(data)] + last, check=True, capture_output=True, text=True)
            print(what, done.stdout, sep="\n", end="")
        if reader is None:
            return
        paths = make_files(folder, options.files)
        for readers in (1, 2, 4, 8):
            times: dict[str, list[float]] = {"alone": [], "under": []}
            outputs = set()
            for round_ in range(options.rounds + 1):
                for what, words in (("alone", []), ("under", under)):
                    evict(paths)
                    took, output = timed(words + [str(reader), str(readers)], folder)
                    outputs.add(output)
                    if round_ > 0:
                        times[what].append(took)
            alone, with_us = statistics.median(times["alone"]), statistics.median(times["under"])
            same = "same result" if len(outputs) == 1 else f"DIFFERENT RESULTS {outputs}"
            print(f"{readers} goroutines: alone {alone:.3f} s, under {with_us:.3f} s, {with_us / alone:.3f}; {same}")


main()
