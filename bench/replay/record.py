#!/usr/bin/env python3
"""record.py LIST DISK OUT [NAME...]: records programs for the replay (docs/design/replay.md).

LIST has a line for each program: its name, a bar, options (cpu=N; warm; faults: it waits in page faults; hangs=all: each
follows from the page before), a bar, its command, in which
{disk} is DISK: a directory on a disk of slowdisk's, paced, with fixed latency. As root: caches are dropped.
OUT gets a file for each. Nothing of a program's names is kept: files are numbers in the order of their first use.
"""
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILT = os.path.join(HERE, "../../target/release")
LATENCY = 1e6
# `abi::environment::flags`: no speculation, always active, each read told.
NO_SPECULATION, ALWAYS_ACTIVE, TRACE_READS = 1, 4, 2048
# Steps that are kept of a program, and reads of a thread from which on it is one.
MOST_STEPS, LEAST_READS = 2200, 8
PAGE = 4096
# What it takes to look at a read, and what the program's own read takes besides (`engine::READ`), ns.
LOOK = 2_500


def cold(command):
    """Drops all caches, and brings in what does not lie on the disk."""
    subprocess.run(["sync"], check=True)
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")
    ours = [os.path.join(BUILT, name) for name in os.listdir(BUILT) if re.fullmatch(r"(lib)?runahead[a-z-]*(\.so)?", name)]
    found = [subprocess.run(["which", word], capture_output=True, text=True).stdout.strip() for word in command[:1]]
    if "gcc" in command[0] or "g++" in command[0]:
        found += [subprocess.run([command[0], f"-print-prog-name={name}"], capture_output=True, text=True).stdout.strip() for name in ("cc1", "cc1plus")]
    paths = [path for path in ours + found if os.path.isfile(path)]
    for path in list(paths):
        libraries = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
        paths += [word for word in libraries.split() if word.startswith("/")]
    for path in sorted(set(paths)):
        with open(os.path.realpath(path), "rb") as file:
            while file.read(1 << 20):
                pass


def run(command, wrap=()):
    began = time.monotonic_ns()
    # (With a time limit the end would be looked for now and then only.)
    subprocess.run([*wrap, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return time.monotonic_ns() - began


def traced(command, flags, report=None):
    """The events of a run under Runahead."""
    path = "/tmp/runahead-replay-trace.json"
    words = [f"{BUILT}/runahead", "run", "--trace", path]
    if report:
        words += ["--report", report]
    run(command, [*words, "--", f"{BUILT}/runahead-replay", "under", str(flags)])
    with open(path) as file:
        trace = json.load(file)
    return trace["traceEvents"], trace["runahead"]["elapsed_ns"]


def threads_of(told):
    """What each thread did, in order: reads with what was found out about them, times in ns."""
    (events, elapsed), threads = told, {}
    for event in sorted((event for event in events if "ts" in event), key=lambda event: event["ts"]):
        key, name, at = (event["pid"], event.get("tid")), event["name"], event["ts"] * 1000
        thread = threads.setdefault(key, {"reads": [], "names": [], "left": False, "restarted": False})
        arguments = event.get("args", {})
        if name == "read begins" and arguments["bytes"] > 0:
            thread["reads"].append({
                "at": at, "file": arguments["file"], "place": arguments["at"], "bytes": arguments["bytes"],
                "foretold": arguments["foretold"], "left": thread["left"], "wait": 0, "restart": False,
            })
            thread["left"] = False
        elif name == "not as foretold":
            thread["left"] = True
        elif name == "restart" and thread["reads"]:
            thread["reads"][-1]["restart"] = True
        elif name.startswith("read") and event["ph"] == "X" and thread["reads"]:
            thread["reads"][-1]["wait"] = event["dur"] * 1000
        elif name == "name":
            thread["names"].append(at)
    for thread in threads.values():
        thread["elapsed"] = elapsed
    return {key: thread for key, thread in threads.items() if len(thread["reads"]) >= LEAST_READS}


def same(one, other):
    return (one["file"], one["place"], one["bytes"]) == (other["file"], other["place"], other["bytes"])


def aligned(reads, others):
    """For each of `reads` the index of the same one among `others`, where they go the same way."""
    found, at = [], 0
    for read in reads:
        ahead = next((next_ for next_ in range(at, min(at + 50, len(others))) if same(read, others[next_])), None)
        found.append(ahead)
        at = at if ahead is None else ahead + 1
    return found


def best(thread, others):
    """Which of another run's threads did most of what `thread` did."""
    score = lambda other: sum(index is not None for index in aligned(thread["reads"][:500], other["reads"]))
    return max(others.values(), key=score, default=None) or {"reads": [], "elapsed": 0}


def steps_of(thread, warm, others, speculated, is_main):
    """The lines of a thread. `is_main`: what comes before its first read and behind its last is the run's."""
    reads = thread["reads"]
    ours = best(thread, speculated)
    in_ours = aligned(reads, ours["reads"])
    gap = lambda all_, index: all_[index]["at"] - all_[index - 1]["at"] if index else 0
    computes = [None] * len(reads)
    for run_ in [warm, *others]:
        other = best(thread, run_)["reads"]
        where = aligned(reads, other)
        for number, index in enumerate(where):
            if index and number and where[number - 1] == index - 1:
                computes[number] = min(computes[number] or 1e12, gap(other, index))
    known = [compute for compute in computes if compute is not None]
    usual = statistics.median(known) if known else 20_000
    lines, names = [], 0
    for number, read in enumerate(reads):
        # What a look takes is booked by itself.
        compute = min(usual if computes[number] is None else computes[number], 200e6)
        compute = max(0, compute - LOOK)
        # What the cold run took longer than its reads explain were names, and what else lies on the disk.
        extra = 0
        if number:
            before = reads[number - 1]
            windows = -(-before["bytes"] // (128 << 10)) if before["wait"] else 0
            extra = int((gap(reads, number) - compute) / LATENCY + 0.3) - windows
        for _ in range(max(0, min(extra, 200))):
            lines.append((0, f"n{names}", ""))
            names += 16
        mark = ""
        if in_ours[number] is not None:
            one = ours["reads"][in_ours[number]]
            before = ours["reads"][in_ours[number] - 1] if in_ours[number] else None
            mark = " d" if one["left"] else ""
            # The speculation that had begun, or was followed, did not get here.
            ended = before and not one["foretold"] and not one["left"] and (before["foretold"] or before["restart"]) and one["restart"]
            mark = " !" if ended else mark
        lines.append((compute, f"r{read['file']} {read['place']} {read['bytes']}", mark))
    first = best(thread, warm)
    if is_main and first["reads"]:
        before = (reads[0]["at"] - first["reads"][0]["at"]) / LATENCY
        lines[:0] = [(0, f"n{names + 16 * number}", "") for number in range(max(0, int(before + 0.3)))]
        names += 16 * len(lines)
        ends = lambda one: one["elapsed"] - one["reads"][-1]["at"]
        behind = (ends(thread) - ends(first)) / LATENCY - (1 if reads[-1]["wait"] else 0)
        lines += [(0, f"n{names + 16 * number}", "") for number in range(max(0, int(behind + 0.3)))]
        # What is computed behind the last read ends at one that is cached.
        last = reads[-1]
        lines.append((min(max(ends(first), 0), 200e6), f"r{last['file']} {last['place']} 1", ""))
    return lines


def numbered(lines, files):
    text, ends = [], {}
    for compute, what, mark in lines:
        if what[0] == "r":
            file, place, length = what[1:].split()
            file = files.setdefault(file, len(files))
            goes_on = ends.get(file, 0) == int(place)
            ends[file] = int(place) + int(length)
            what = f"r{file} {'+' if goes_on else place} {length}"
        text.append(f"{int(compute / 100)} {what}{mark}")
    return text


def faults_of(command, disk):
    """Page faults in files on the disk, of a cold run alone: time, file, page, instruction."""
    path = "/tmp/runahead-replay-perf.data"
    run(command, ["perf", "record", "-q", "-e", "page-faults", "-c", "1", "-d", "-o", path])
    text = subprocess.run(["perf", "script", "-i", path, "-F", "time,event,ip,addr", "--show-mmap-events"], capture_output=True, text=True).stdout
    os.unlink(path)
    maps, found = [], []
    for line in text.splitlines():
        mapped = re.search(r"(\d+\.\d+): PERF_RECORD_MMAP2? .*\[0x([0-9a-f]+)\(0x([0-9a-f]+)\) @ (?:0x)?([0-9a-f]+) .*: \S+ (/\S+)", line)
        if mapped and mapped[5].startswith(disk):
            maps.append((int(mapped[2], 16), int(mapped[3], 16), int(mapped[4], 16), mapped[5]))
        fault = re.search(r"(\d+\.\d+):\s+page-faults\S*\s+([0-9a-f]+)\s+([0-9a-f]+)", line)
        if not fault:
            continue
        at, address, instruction = float(fault[1]) * 1e9, int(fault[2], 16), int(fault[3], 16)
        for start, length, offset, name in reversed(maps):
            if start <= address < start + length:
                found.append((at, name, (address - start + offset) // PAGE, instruction))
                break
    return found


def record_faults(name, options, command, out, disk):
    """A program that waits in page faults: nothing is known of what hangs on what, but by `options`."""
    run(command)
    cold(command)
    alone = run(command)
    cold(command)
    ours = run(command, [f"{BUILT}/runahead", "run", "--"])
    cold(command)
    found = faults_of(command, disk)[:MOST_STEPS]
    gaps = [found[index][0] - found[index - 1][0] for index in range(1, len(found))]
    usual = statistics.median([gap for gap in gaps if gap < LATENCY / 2] or [5_000])
    text = ["runahead-replay 1", f"name {name}", "processors 2"]
    text.append("costs start 2000000 sync 60000 restart 20000 look 1500 operation 15000")
    text.append(f"measured cloud alone {alone} ours {ours}")
    text.append("thread")
    files, instructions = {}, {}
    for index, (_, file, page, instruction) in enumerate(found):
        gap = gaps[index - 1] if index else usual
        compute = gap if gap < LATENCY / 2 else usual
        file, instruction = (known.setdefault(one, len(known)) for known, one in ((files, file), (instructions, instruction)))
        mark = " d" if options.get("hangs") == "all" else ""
        text.append(f"{int(compute / 100)} t{file} {page} {instruction}{mark}")
    with open(f"{out}/{name}.trace", "w") as file:
        file.write("\n".join(text) + "\n")
    print(f"{name}: alone {alone / 1e6:.0f} ms, ours {ours / 1e6:.0f}; {len(found)} faults", flush=True)


def main():
    listed, disk, out, *only = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    with open(listed) as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    for line in lines:
        name, options, text = (part.strip() for part in line.split("|", 2))
        if only and name not in only:
            continue
        options = dict((word.split("=") + [""])[:2] for word in options.split())
        command = shlex.split(text.replace("{disk}", disk).replace("{built}", BUILT))
        if "cpu" in options:
            command = ["taskset", "1", *command]
        lock()
        try:
            if "faults" in options:
                record_faults(name, options, command, out, disk)
            else:
                record(name, options, command, out)
        except Exception as error:
            print(f"{name}: {error!r}", flush=True)
        finally:
            os.rmdir(LOCK) if LOCK else None


LOCK = os.environ.get("RECORD_LOCK")


def lock():
    while LOCK:
        try:
            return os.mkdir(LOCK)
        except FileExistsError:
            time.sleep(1)


def record(name, options, command, out):
    report = "/tmp/runahead-replay-report.json"
    run(command)
    # Others may be at work: of three runs each step's least.
    warm, *others = [threads_of(traced(command, NO_SPECULATION | ALWAYS_ACTIVE | TRACE_READS)) for _ in range(3)]
    is_warm = "warm" in options
    make_ready = (lambda _: run(command)) if is_warm else cold
    alone, ours = [], []
    for _ in range(2):
        make_ready(command)
        alone.append(run(command))
        make_ready(command)
        ours.append(run(command, [f"{BUILT}/runahead", "run", "--"]))
    alone, ours = min(alone), min(ours)
    make_ready(command)
    told = threads_of(traced(command, NO_SPECULATION | ALWAYS_ACTIVE | TRACE_READS)) if not is_warm else warm
    make_ready(command)
    events, elapsed = traced(command, ALWAYS_ACTIVE | TRACE_READS, report)
    speculated = threads_of((events, elapsed))
    with open(report) as file:
        counts = json.load(file)["counts"]
    syncs = [event["dur"] * 1000 for event in events if event["name"] == "sync"]
    speculator = counts["speculator"]
    operation = (speculator["processor_ns"] - speculator["sync_ns"]) // max(speculator["reads"], 1)
    costs = (
        2_000_000, int(statistics.median(syncs)) if syncs else 300_000, counts["post_ns_median"] or 20_000, 1_500,
        max(3_000, min(int(operation) // 2, 60_000)),
    )
    text = ["runahead-replay 1", f"name {name}", f"processors {options.get('cpu', 2)}"]
    text.append("costs start {} sync {} restart {} look {} operation {}".format(*costs))
    if is_warm:
        text.append("warm")
    files, left = {}, MOST_STEPS
    # The one that reads most first, and no more than eight.
    for number, (_, thread) in enumerate(sorted(told.items(), key=lambda one: -len(one[1]["reads"]))[:8]):
        lines = steps_of(thread, warm, others, speculated, number == 0)[:left]
        left -= len(lines)
        if lines:
            text += ["thread", *numbered(lines, files)]
    if left > 0:
        # Else it is only the beginning of the program that is kept.
        text.insert(4, f"measured {'local' if is_warm else 'cloud'} alone {alone} ours {ours}")
    with open(f"{out}/{name}.trace", "w") as file:
        file.write("\n".join(text) + "\n")
    reads = sum(len(thread["reads"]) for thread in told.values())
    print(f"{name}: alone {alone / 1e6:.0f} ms, ours {ours / 1e6:.0f}; {len(told)} threads, {reads} reads, steps left {left}, "
          f"restarts {counts['posts']}, foretold {counts['reads_hinted']}", flush=True)


main()
