#!/usr/bin/env python3
"""circles.py OBJECT-OR-ARCHIVE...: fails where files use each other in a circle, and names them.

Who uses whom is what the linker sees: a file uses those that define what is undefined in it.
"""
import os
import re
import subprocess
import sys


def uses(files):
    """For each object by its name: those that it uses."""
    listed = subprocess.run(["nm", "-A", *files], capture_output=True, text=True, check=True).stdout
    defined, wanted = {}, {}
    for line in listed.splitlines():
        place, kind, symbol = re.fullmatch(r"(.*):[0-9a-f ]{16} (\S) (\S+)", line).groups()
        name = os.path.basename(place.split(":")[-1])
        name = re.sub(r"(\.c)?\.o$", "", name)
        wanted.setdefault(name, set())
        if kind in "Uwv":
            wanted[name].add(symbol)
        elif kind.isupper():
            defined[symbol] = name
    return {name: {defined[s] for s in symbols if s in defined} - {name} for name, symbols in wanted.items()}


def circles(graph):
    """Sets of names that reach each other (Tarjan's)."""
    number, low, stack, found = {}, {}, [], []

    def visit(name):
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in number:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], number[other])
        if low[name] == number[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in sorted(graph):
        if name not in number:
            visit(name)
    return found


def main():
    graph = uses(sys.argv[1:])
    print(f"{len(graph)} files, {sum(map(len, graph.values()))} uses")
    found = circles(graph)
    for names in found:
        print("circle: " + ", ".join(names))
        for name in names:
            print(f"  {name} uses {', '.join(sorted(graph[name] & set(names)))}")
    return bool(found) or len(graph) < 2


if __name__ == "__main__":
    sys.exit(main())
