#!/usr/bin/env python3
"""where.py [--rounds N] [--list] [ROW...]: what programs gain where people run.

Each row is a program in one place: beside an old or a new C library, in a default container, through sudo,
on a file system of a server. It runs cold, alone and under Runahead in alternation, as an ordinary user
(rows.py says which rows do not), first in a fresh home and then again; what it prints is compared. Beside it
stands what the program takes alone with all in memory: more cannot be gained.

A row is one word of rows.py, or the name of a group of them. Root is needed to set things up.

Prints a line a row; appends each row as a JSON line to bench/where/results/DATE-COMMIT.jsonl.
"""

import argparse
import datetime
import json
import statistics
import sys

import places
import rows


def measure(row, rounds):
    """Runs `row` and returns what is stored of it; raises places.Missing where it cannot be run here."""
    with places.ready(row) as place:
        place.run("", "alone")  # once for the reference, not measured
        reference = place.printed
        times = {"warm": [], "alone": [], "first": [], "again": []}
        equal = 0
        for _ in range(rounds):
            for kind in times:
                if kind == "first":
                    place.forget()
                prefix = "" if kind in ("warm", "alone") else place.runahead
                times[kind].append(place.run(prefix, kind, is_cold=kind != "warm"))
                equal += place.printed == reference
        medians = {kind: statistics.median(of) for kind, of in times.items()}
        return {
            "row": row.name,
            "group": row.group,
            "about": row.about,
            "wanted": row.wanted,
            "rounds": rounds,
            "seconds": {kind: [round(t, 3) for t in of] for kind, of in times.items()},
            **{kind: round(medians["alone"] / medians[kind], 2) for kind in ("first", "again")},
            "equal": equal == len(times) * rounds,
        }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--list", action="store_true", help="say what rows there are")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    options = parser.parse_args()
    chosen = [row for row in rows.ROWS if not options.rows or {row.name, row.group} & set(options.rows)]
    if options.list:
        for row in chosen:
            print(f"{row.group:12} {row.name:28} {row.about}")
        return
    if not chosen:
        sys.exit(f"no row or group has such a name: {' '.join(options.rows)}")
    results = places.ROOT / "bench/where/results" / f"{datetime.date.today()}-{places.commit()}.jsonl"
    results.parent.mkdir(exist_ok=True)
    failed = False
    with places.machine():
        print(f"{'row':28} {'warm':>8} {'alone':>8} {'first':>8} {'again':>8}   times as fast     wanted")
        for row in chosen:
            try:
                found = measure(row, options.rounds)
            except places.Missing as why:
                print(f"{row.name:28} cannot be run here: {why}", flush=True)
                continue
            with open(results, "a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            seconds = " ".join(f"{statistics.median(of):7.2f}s" for of in found["seconds"].values())
            print(
                f"{row.name:28} {seconds} {found['first']:7.2f} {found['again']:7.2f} {row.wanted:>9}"
                f" {'' if found['equal'] else 'NOT THE SAME'}",
                flush=True,
            )
            failed |= not found["equal"]
    sys.exit(failed)


main()
