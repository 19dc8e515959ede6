#!/usr/bin/env python3
"""Kernels and NAS codes on a disk, with less memory than data: alone and with the pass.

    compiler/measure.py --disk native --directory DIRECTORY [CODE...]

Each code runs under a memory limit (a cgroup, hence root) of a half and of a tenth of its data.
The kernels map files, cold; the NAS codes have their static arrays on a nameless file; the dense programs (dense-sum
and others) have arrays of the heap, are timed as a whole and limited from their start, and alone lie on mapped
files. Alone
they get each kind of advice that --advice names, and the best of them is the rival: one that takes
half as long again as another has taken is ended. Runs alternate; medians are shown. Stall: the part of the timed stretch in which the program neither ran nor
waited for a processor (kernels/stall.h). Covered: of the pages that came from the disk, those
that were prefetched. Dropped: of the requests for pages in memory, those without a system call.

With each line go the disk's read-ahead and how busy the machine was, on which times depend: other
work may change both.

One JSON line for each code, limit and disk goes to --results; --show FILE... prints the table of
such files and measures nothing.
"""
import argparse
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
KERNELS = ["gather", "spmv", "column", "sum", "matvec", "stencil"]
DENSE = ["dense-" + name for name in ("sum", "triad", "stream", "atax", "jacobi", "mvt")]
# Class and steps out of core: as much as takes a minute alone on a disk of 1 ms. 0: all steps.
NAS = {"ep": ("W", 0), "is": ("A", 10), "mg": ("A", 1), "cg": ("A", 1), "ft": ("A", 1),
       "bt": ("A", 1), "sp": ("A", 1), "lu": ("A", 1)}


class Group:
    """A memory cgroup of our own, of either version."""

    def __init__(self):
        old = Path("/sys/fs/cgroup/memory")
        root, self.limit = (old, "memory.limit_in_bytes") if old.is_dir() else (Path("/sys/fs/cgroup"), "memory.max")
        self.path = root / f"runahead-measure-{os.getpid()}"
        self.path.mkdir()
        # Data is on files; a swap that somebody has set up, on whatever disk, is not what is measured. (MG on
        # the machine's own disk: a third of its stall was its stack's pages coming back from one.)
        for name in ("memory.swappiness", "memory.swap.max"):
            if (self.path / name).exists():
                (self.path / name).write_text("0")

    def set_limit(self, size):
        (self.path / self.limit).write_text(str(size))

    def empty(self):
        """Takes everything out of memory that the members do not need at once."""
        reclaim = self.path / "memory.reclaim"
        try:
            if reclaim.exists():
                reclaim.write_text("1T")
            else:
                (self.path / "memory.force_empty").write_text("0")
        except OSError:
            pass  # not all of it could go; the limit does the rest

    def members(self):
        return [int(pid) for pid in (self.path / "cgroup.procs").read_text().split()]

    def close(self):
        for _ in range(100):
            for pid in self.members():
                os.kill(pid, signal.SIGKILL)
            try:
                self.path.rmdir()
                return
            except OSError:
                time.sleep(0.1)


def run(group, limit, command, environment, patience, timed, directory=None):
    """Output and errors of a command under the limit; None if it, or the part of it that is timed, took
    too long. With a directory the limit holds from the timed stretch on, where the program stops itself;
    by then its data is on that disk and not in memory."""
    group.set_limit(-1 if directory else limit)
    if directory:
        environment = {**environment, "STALL_PAUSE": "1", "RUNAHEAD_OOC_MEMORY": str(limit)}

    def enter():
        (group.path / "cgroup.procs").write_text(str(os.getpid()))

    # Files, not pipes: nobody reads while the program stops itself, and one that has more to say
    # than a pipe holds would never come to that.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(command, env={**os.environ, **environment}, preexec_fn=enter,
                                 stdout=out, stderr=err)
        try:
            if directory:
                stopped(child, patience)
                subprocess.run(["sync", "-f", str(directory)], check=True)
                group.empty()
                group.set_limit(limit)
                os.kill(child.pid, signal.SIGCONT)
            child.wait(timeout=timed)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        for file in (out, err):
            file.seek(0)
        return (out.read(), err.read()) if child.returncode == 0 else None


def stopped(child, patience):
    """Waits until the program has stopped itself, or ended; its data is made by then."""
    until = time.monotonic() + patience
    while not os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG):
        if time.monotonic() > until:
            raise subprocess.TimeoutExpired(child.args, patience)
        time.sleep(0.01)


def counts(err):
    """Coverage and the filter's share, from the run-time layer's statistics."""
    def number(pattern):
        found = re.search(pattern, err)
        return float(found[1]) if found else None
    hit, late = number(r"in time (\d+)"), number(r"and late (\d+)")
    faults = number(r"read the disk (\d+)")
    found = {"faults": faults}
    if hit is None or hit + late == 0:
        return found
    asked = number(r"asked for (\d+)")
    evicted = re.search(r"of which missing (\d+)", err)
    return {**found, "evicted": int(evicted[1]) if evicted else None, "covered": (hit + late) / (hit + late + faults), "late": late / (hit + late + faults),
            "dropped": number(r"of which dropped ([\d.]+)%") / 100, "asked": asked,
            "sent": number(r"prefetched (\d+) in"), "calls": number(r"prefetched \d+ in (\d+)")}


class Kernels:
    def __init__(self, arguments, work):
        self.arguments, self.work = arguments, work
        build, source = arguments.build, HERE / "kernels"
        cc = str(build / "bin/runahead-cc")
        mains = [str(source / name) for name in ("main.c", "map.c")]
        self.plain, self.ours = str(work / "plain"), str(work / "ours")
        call([cc, "--runahead-off", "-O2", *mains, str(source / "kernels.c"), "-o", self.plain])
        call([cc, "-O2", "-c", str(source / "kernels.c"), "-o", str(work / "kernels.o")])
        call([cc, "--runahead-off", "-O2", "-DRUNAHEAD", f"-I{HERE}/runtime", *mains, str(work / "kernels.o"),
              str(build / "librunahead_ooc.a"), "-lpthread", "-o", self.ours])
        self.data = arguments.directory / "kernels"
        stamp = self.data / f"made-{arguments.megabytes}"
        if not stamp.exists():
            shutil.rmtree(self.data, ignore_errors=True)
            self.data.mkdir(parents=True)
            call([self.plain, "make", str(self.data), str(arguments.megabytes)])
            stamp.touch()
        self.read_once()

    def read_once(self):
        """A virtual machine's disk is its host's, which keeps what was ever read or written and cannot be told to drop it: a
        place that nobody was at takes milliseconds, whoever comes first pays. So nobody does."""
        self.drop()
        for file in self.data.iterdir():
            with open(file, "rb") as opened:
                while opened.read(1 << 20):
                    pass

    def drop(self):
        call(["sync", "-f", str(self.data)])
        for file in self.data.iterdir():
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)

    def bytes(self, _):
        return self.arguments.megabytes << 20

    def variants(self, _):
        return [*self.arguments.advice, "ours"]

    def details(self, _):
        return {"megabytes": self.arguments.megabytes}

    def one(self, group, limit, code, variant, patience):
        self.drop()
        program = self.ours if variant == "ours" else self.plain
        environment = {"RUNAHEAD_OOC_STATS": "1", "KERNEL_ADVICE": variant}
        done = run(group, limit, [program, code, str(self.data), str(self.arguments.megabytes)], environment,
                   self.arguments.patience, patience)
        if not done:
            return None
        bits, seconds, stalled = done[0].split()
        return {"bits": bits, "seconds": float(seconds), "stalled": float(stalled), **counts(done[1])}


class Dense:
    """Whole programs, so that making the data is part of what is timed, and of what is counted."""

    def __init__(self, arguments, work):
        self.arguments, self.work = arguments, work
        cc, source = str(arguments.build / "bin/runahead-cc"), str(HERE / "kernels/dense.c")
        call([cc, "--runahead-off", "-O2", "-DMAPPED", source, "-o", str(work / "dense-alone")])
        call([cc, "-O2", "--runahead-heap", source, "-o", str(work / "dense-ours")])

    def bytes(self, _):
        return self.arguments.megabytes << 20

    def variants(self, _):
        return [*self.arguments.advice, "ours"]

    def details(self, _):
        return {"megabytes": self.arguments.megabytes}

    def one(self, group, limit, code, variant, patience):
        program = str(self.work / f"dense-{'ours' if variant == 'ours' else 'alone'}")
        environment = {"RUNAHEAD_OOC_STATS": "1", "RUNAHEAD_OOC_DIR": str(self.arguments.directory), "KERNEL_ADVICE": variant}
        command = [program, code.removeprefix("dense-"), str(self.arguments.megabytes)]
        done = run(group, limit, command, environment, self.arguments.patience, patience)
        group.empty()
        if not done:
            return None
        if self.arguments.verbose:
            print(f"{variant}: {done[0]}{done[1]}", file=sys.stderr)
        bits, seconds, stalled = done[0].split()
        phases = re.findall(r"user ([\d.]+), system ([\d.]+), read (\d+) MB, written (\d+) MB, major (\d+)", done[1])
        sums = [round(sum(float(phase[i]) for phase in phases), 3) for i in range(5)]
        return {"bits": bits, "seconds": float(seconds), "stalled": float(stalled), **counts(done[1]), "user": sums[0],
                "system": sums[1], "read_mb": sums[2], "written_mb": sums[3], "faults": sums[4]}


class Nas:
    def __init__(self, arguments, work):
        self.arguments, self.work, self.size = arguments, work, {}
        self.codes = dict(NAS)
        for word in arguments.classes:
            code, size, steps = word.split(":")
            self.codes[code] = (size, int(steps))

    def build(self, code):
        size, steps = self.codes[code]
        build = self.arguments.build
        cc = str(build / "bin/runahead-cc")
        flags = ["-O2", "-mcmodel=medium", f"-DCLASS=NAS_{size}", str(HERE / f"nas/{code}.c")]
        if steps:
            flags.append(f"-DNAS_STEPS={steps}")
        # Both with their arrays on a file; they differ by the pass alone.
        call([cc, "--runahead-off", *flags, str(build / "runahead_static.o"), str(HERE / "kernels/advice.c"),
              str(build / "librunahead_ooc.a"), "-lm", "-o", str(self.work / f"{code}-alone")])
        call([cc, "--runahead-static", *flags, "-lm", "-o", str(self.work / f"{code}-ours")])
        sizes = subprocess.run(["size", str(self.work / f"{code}-alone")], capture_output=True, text=True, check=True)
        self.size[code] = sum(int(field) for field in sizes.stdout.splitlines()[1].split()[1:3])

    def bytes(self, code):
        if code not in self.size:
            self.build(code)
        return self.size[code]

    def variants(self, _):
        return [*self.arguments.advice, "ours"]

    def details(self, code):
        size, steps = self.codes[code]
        return {"class": size, "steps": steps or "all", "megabytes": self.size[code] >> 20}

    def one(self, group, limit, code, variant, patience):
        environment = {"RUNAHEAD_OOC_STATS": "1", "RUNAHEAD_OOC_DIR": str(self.arguments.directory),
                       "RUNAHEAD_OOC": "1" if variant == "ours" else "0", "KERNEL_ADVICE": variant}
        # Less than a few megabytes hold a program, but not its page tables and its reads under way.
        program = str(self.work / f"{code}-{'ours' if variant == 'ours' else 'alone'}")
        done = run(group, max(limit, 3 << 20), [program], environment, self.arguments.patience, patience,
                   self.arguments.directory)
        if not done:
            return None
        time_line = re.search(r"seconds ([\d.]+) stalled ([\d.]+)", done[1])
        if "successful" not in done[0] and "steps only" not in done[0]:
            return None
        return {"bits": done[0], "seconds": float(time_line[1]), "stalled": float(time_line[2]), **counts(done[1])}


def call(command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def read_ahead_kb(directory):
    device = os.stat(directory).st_dev
    setting = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    return int(setting.read_text()) if setting.exists() else None


def median(runs, field):
    values = [r[field] for r in runs if r and r.get(field) is not None]
    return round(statistics.median(values), 4) if values else None


def measure(arguments, group, suite, code, share):
    limit = suite.bytes(code) // share
    runs = {variant: [] for variant in suite.variants(code)}
    for _ in range(arguments.runs):
        for variant in runs:
            # What did not end in time once will not the next time.
            if None in runs[variant]:
                continue
            # The second for what is not in the timed stretch.
            others = [] if variant == "ours" else [r["seconds"] * 1.5 + 1 for name, of in runs.items()
                                                   if name not in ("ours", variant) for r in of if r]
            runs[variant].append(suite.one(group, limit, code, variant, min([arguments.patience, *others])))
    bits = {r["bits"] for of in runs.values() for r in of if r}
    fields = ("seconds", "stalled", "faults", "covered", "late", "dropped", "asked", "sent", "calls", "evicted", "user",
              "system", "read_mb", "written_mb")
    medians = {variant: {field: median(of, field) for field in fields if median(of, field) is not None}
               for variant, of in runs.items()}
    return {"code": code, **suite.details(code), "share": share, "limit_mb": limit >> 20, "disk": arguments.disk,
            "runs": arguments.runs, "patience": arguments.patience, "same": len(bits) <= 1,
            "times": {variant: [r and r["seconds"] for r in of] for variant, of in runs.items()}, **medians}


def table(lines):
    print("| code | disk | limit | alone, s | ours, s | gain | stall alone, s | ours, s | covered | dropped | result |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for line in lines:
        ways = {name: line[name] for name in line["times"] if name != "ours" and "seconds" in line[name]}
        best = min(ways, key=lambda name: ways[name]["seconds"], default=None)
        ours = line["ours"]
        rival = ways.get(best, {})
        percent = lambda field: f"{100 * ours[field]:.1f}%" if field in ours else "-"
        first = f'{rival["seconds"]:.2f}' + (f" ({best})" if best != "alone" else "") if best else f'over {line["patience"]}'
        a, o = rival.get("seconds", line["patience"]), ours.get("seconds")
        gain = f'{"" if best else "over "}{a / o:.2f}x' if o else "-"
        # Nothing to compare where one of the two did not end in time.
        result = "-" if not best or o is None else "bit-equal" if line["same"] else "DIFFERENT"
        name = line["code"] + (f' {line["class"]}, {line["steps"]}' if "class" in line else "")
        print(f'| {name} | {line["disk"]} | {line["limit_mb"]} of {line["megabytes"]} MB | {first} | '
              f'{o if o is None else format(o, ".2f")} | {gain} | {rival.get("stalled", "-")} | {ours.get("stalled", "-")} | '
              f'{percent("covered")} | {percent("dropped")} | {result} |')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("codes", nargs="*", default=KERNELS + list(NAS) + DENSE, metavar="CODE")
    parser.add_argument("--build", type=Path, default=HERE.parent / "target/compiler-19")
    parser.add_argument("--directory", type=Path, help="on the disk to measure")
    parser.add_argument("--disk", default="native", help="its name in the results")
    parser.add_argument("--megabytes", type=int, default=512, help="of the kernels' array")
    parser.add_argument("--shares", type=lambda s: [int(x) for x in s.split(",")], default=[2, 10])
    parser.add_argument("--advice", type=lambda s: s.split(","), default=["normal", "random", "sequential"])
    parser.add_argument("--classes", type=lambda s: s.split(","), default=[], metavar="CODE:CLASS:STEPS,...",
                        help="other classes of NAS codes; 0 steps are all")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--verbose", action="store_true", help="what dense programs and the run-time layer count")
    parser.add_argument("--patience", type=int, default=120, help="seconds after which a run is ended")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--show", nargs="+", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if arguments.show:
        lines = [json.loads(text) for file in arguments.show for text in file.read_text().splitlines()]
        # Beside them lie what nas/overhead.sh and nas/sweep.sh have measured.
        table([line for line in lines if "times" in line])
        return
    if not arguments.directory:
        parser.error("--directory is missing: a directory on the disk to measure")
    if os.geteuid() != 0:
        parser.error("limits on memory are set through cgroups, which needs root")
    if not (arguments.build / "bin/runahead-cc").exists():
        parser.error(f"no build in {arguments.build}: run ./x compiler first")
    arguments.directory.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = Path(tempfile.mkdtemp())
    group = Group()
    lines = []
    try:
        kernels = Kernels(arguments, work) if set(arguments.codes) & set(KERNELS) else None
        nas = Nas(arguments, work)
        dense = Dense(arguments, work) if set(arguments.codes) & set(DENSE) else None
        for code in arguments.codes:
            for share in arguments.shares:
                suite = kernels if code in KERNELS else dense if code in DENSE else nas
                line = measure(arguments, group, suite, code, share)
                line.update(kernel=platform.release(), load=round(os.getloadavg()[0], 1),
                            read_ahead_kb=read_ahead_kb(arguments.directory))
                lines.append(line)
                print(json.dumps(line["times"]), code, share, file=sys.stderr)
                if arguments.results:
                    with open(arguments.results, "a") as out:
                        out.write(json.dumps(line) + "\n")
    finally:
        group.close()
        shutil.rmtree(work)
    table(lines)


if __name__ == "__main__":
    main()
