#!/usr/bin/env python3
"""Random programs of csmith (Debian: csmith, libcsmith-dev), compiled with the pass at three
levels, must print what they print without it.

csmith.py --build DIR [--programs N] [--seed S] [--seconds T] [--keep DIR]

Their arrays are small, so the eager build of the pass is used, to which no nest is too small,
and their static arrays lie on a file with less memory than they take. A function that did not
verify and was given back is a failure as well.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

LEVELS = ["-O1", "-O2", "-O3"]
# One of these for each program in turn.
MORE = [[], ["-g"], ["-fwrapv"], ["-march=native"], ["-fno-strict-aliasing", "-g"],
        ["-fsanitize=undefined", "-fno-sanitize-recover=undefined"]]
SHAPES = [[], ["--max-array-dim", "3", "--max-array-len-per-dim", "40"],
          ["--max-array-dim", "2", "--max-array-len-per-dim", "120", "--max-funcs", "4"],
          ["--float"], ["--no-jumps", "--max-block-depth", "6"], ["--inline-function"]]


def run(command, timeout, **more):
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout, **more)
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return None, "", "timed out"


class Fuzzer:
    def __init__(self, options, work):
        self.work, self.build = work, options.build
        self.broken = options.break_it
        self.wrapper = os.path.join(options.build, "bin", "runahead-cc")
        self.environment = dict(os.environ, RUNAHEAD_OOC_DIR=work, RUNAHEAD_OOC_STATS="1",
                                RUNAHEAD_OOC_MEMORY="200000",
                                RUNAHEAD_COMPILER_HOME=os.path.join(options.build, "eager"))
        self.inserted = self.entered = self.compared = self.skipped = 0
        self.failed = []

    def compile(self, flags, out):
        source = os.path.join(self.work, "p.c")
        return run([self.wrapper, "-w", "-I/usr/include/csmith", *flags, source, "-o", out], 120,
                   env=self.environment)

    def fail(self, name, what):
        kept = os.path.join(self.work, f"failed-{name.replace(' ', '')}.c")
        shutil.copy(os.path.join(self.work, "p.c"), kept)
        self.failed.append(name)
        print(f"{name}: {what}; kept {kept}", flush=True)

    def program(self, seed):
        source = os.path.join(self.work, "p.c")
        plain, ours = os.path.join(self.work, "plain"), os.path.join(self.work, "ours")
        more = MORE[seed % len(MORE)]
        # (It writes a file of its own where it runs.)
        if run(["csmith", "--seed", str(seed), *SHAPES[seed // len(MORE) % len(SHAPES)],
                "-o", source], 30, cwd=self.work)[0] != 0 or self.compile(["--runahead-off", "-O1", *more], plain)[0] != 0:
            self.skipped += 1
            return
        expected = run([plain], 3)
        if expected[0] is None or (expected[0] != 0 and "-fsanitize" in " ".join(more)):
            self.skipped += 1  # never ends, or is no valid program
            return
        for level in LEVELS:
            name = f"program {seed} {level} {' '.join(more)}"
            code, _, said = self.compile(
                [level, *more, "--runahead-static", "-Rpass=runahead", "-Rpass-missed=runahead"], ours)
            if code != 0:
                self.fail(name, "does not compile\n" + said[-1500:])
                continue
            if "did not verify" in said:
                self.fail(name, "a function did not verify")
            self.inserted += said.count("prefetch inserted for")
            got = run([ours, *(["1"] if self.broken else [])], 60, env=self.environment)
            if got[:2] != expected[:2]:
                # The compiler itself may be at fault, or the program not be valid.
                self.compile(["--runahead-off", level, *more], plain)
                if run([plain], 3)[:2] == expected[:2] or self.broken:
                    self.fail(name, "timed out" if got[0] is None else "results differ")
                else:
                    self.skipped += 1
                continue
            self.compared += 1
            self.entered += sum(map(int, re.findall(r"nests entered (\d+)", got[2])))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--build", required=True)
    options.add_argument("--programs", type=int, default=20)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--seconds", type=float, help="start no program after so many")
    options.add_argument("--keep")
    options.add_argument("--break-it", action="store_true",
                         help="run ours with another output: the comparison has to fail")
    o = options.parse_args()
    work = o.keep or tempfile.mkdtemp(prefix="runahead-csmith-")
    os.makedirs(work, exist_ok=True)
    fuzzer, start, programs = Fuzzer(o, work), time.monotonic(), 0
    for seed in range(o.seed, o.seed + o.programs):
        if o.seconds and time.monotonic() - start > o.seconds:
            break
        fuzzer.program(seed)
        programs += 1
    print(f"csmith: {programs} programs, {fuzzer.compared} executables compared at three levels, "
          f"{fuzzer.skipped} skipped, {fuzzer.inserted} nests transformed, entered {fuzzer.entered} times, "
          f"{len(fuzzer.failed)} failed", flush=True)
    if not o.keep and not fuzzer.failed:
        shutil.rmtree(work)
    sys.exit(bool(fuzzer.failed) or fuzzer.inserted == 0 or fuzzer.compared == 0)


if __name__ == "__main__":
    main()
