#!/usr/bin/env python3
"""table.py FOLDER: what the kernels' runs in FOLDER have shown; exit status 1 if anything is wrong.

Wrong is: an output or a status that differs, a program that takes longer than 1 / 0.97 of its time alone, or one
that gains less than 0.7 of what it gains on the best of these kernels, unless Runahead's report says why.
"""
import collections
import json
import sys
from pathlib import Path

LEAST, SHARE = 0.97, 0.7
WHO = {"0": "root", "1000": "user"}


def reason(report):
    """Why nothing was gained, as the report says it."""
    counts = report["counts"]
    told = (report["plainly_because"], report["left_because"], counts["speculator"]["refused_because"])
    told = next(filter(None, told), None)
    # Nobody watched the faults, and there was nothing else to wait for.
    return told or (counts["faults"]["unseen_because"] if counts["reads"] < 100 else None)


def read(folder):
    """{(program, who): (alone, under Runahead, all the same, reason)}, seconds being the least of all rounds (the real machine can only add to them); None if it did not end."""
    times, same, reasons, ended = collections.defaultdict(list), collections.defaultdict(lambda: True), {}, False
    for line in (folder / "lines").read_text().splitlines():
        match line.split()[1:]:
            case ["time", name, who, way, _, microseconds, _, *verdict]:
                times[name, who, way].append(int(microseconds) / 1e6)
                same[name, who] &= verdict in ([], ["same"])
            case ["done"]:
                ended = True
    for file in (folder / "reports").glob("report-*.json"):
        _, name, who, _ = file.stem.split("-")
        reasons[name, who] = reason(json.loads(file.read_text()))
    rows = {}
    for name, who in dict.fromkeys((name, who) for name, who, _ in times):
        alone, ahead = (times[name, who, way] for way in ("alone", "ahead"))
        if alone and ahead:
            both = (min(alone), min(ahead))
            rows[name, who] = (*both, same[name, who], reasons.get((name, who)))
    return rows if ended else None


def main():
    kernels = {folder.parent.name: read(folder.parent) for folder in sorted(Path(sys.argv[1]).glob("*/lines"))}
    best = collections.defaultdict(float)
    for rows in filter(None, kernels.values()):
        for key, (alone, ahead, _, _) in rows.items():
            best[key] = max(best[key], alone / ahead)
    wrong = 0
    for kernel, rows in kernels.items():
        print(f"\nLinux {kernel}\n  program  who    alone s  ahead s  times  ")
        if not rows:
            wrong += 1
            print(f"  did not come to its end: {sys.argv[1]}/{kernel}/console")
            continue
        for (name, who), (alone, ahead, same, why) in rows.items():
            times = alone / ahead
            slow = "slower" if times < LEAST else f"{best[name, who]:.1f} elsewhere" if times < SHARE * best[name, who] else None
            bad = not same or (slow and not why)
            wrong += bool(bad)
            notes = [note for note in ("OUTPUT DIFFERS" if not same else None, slow and slow.upper() if bad else slow, why) if note]
            print(f"  {name:8} {WHO.get(who, who):5}{alone:9.2f}{ahead:9.2f}{times:7.2f}  {'; '.join(notes)}".rstrip())
    sys.exit(wrong > 0)


main()
