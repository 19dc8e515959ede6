#!/usr/bin/env python3
"""README's picture, docs/gains.svg, from a stored result: bench/picture.py > docs/gains.svg

A test (bench/runner/tests/documents.rs) holds the stored picture to what this prints.
"""

import json
import statistics
from html import escape
from pathlib import Path

RESULT = "2026-11-25-core-8dc98df.jsonl"
DISK = "cloud"
# As README and docs/figures.md call them.
PROGRAMS = {
    "tar": "tar, 9000 files",
    "ripgrep": "rg -j1",
    "git-status": "git status",
    "md5sum": "md5sum, 3000 files",
    "python": "python3 reading them",
    "sqlite-index": "sqlite3, by index",
    "ld": "GNU ld",
    "du": "du -s, 48,000 files",
    "python-import": "import numpy, pandas",
    "chain": "a pure chain of reads",
}

WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 760, 190, 90, 64, 34, 11
STYLE = """
svg{--back:#fff;--text:#1d2429;--quiet:#5c6870;--alone:#a9b4bd;--ours:#2a9d6f}
@media (prefers-color-scheme: dark){svg{--back:#14181b;--text:#e4e9ec;--quiet:#9aa7b0;--alone:#66727c;--ours:#3cb684}}
.back{fill:var(--back)}text{fill:var(--text);font:13px system-ui,"DejaVu Sans",sans-serif}
.quiet{fill:var(--quiet);font-size:12px}.alone{fill:var(--alone)}.ours{fill:var(--ours)}.times{font-weight:600}
"""


def medians():
    seconds = {}
    for line in (Path(__file__).parent / "results" / RESULT).read_text().splitlines():
        record = json.loads(line)
        if record["disk"]["profile"] == DISK:
            for run in record["runs"]:
                seconds.setdefault((record["workload"], run["configuration"]), []).append(run["wall"])
    return {key: statistics.median(values) for key, values in seconds.items()}


def number(value):
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"


def picture():
    of = medians()
    most = max(of[name, "alone"] for name in PROGRAMS)
    scale = (WIDTH - LEFT - RIGHT) / most
    height = TOP + ROW * len(PROGRAMS) + 26
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
        "<title>Seconds that programs take on a disk that answers in 1 ms, alone and with Runahead</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="back" width="{WIDTH}" height="{height}" rx="8"/>',
        '<text x="16" y="26" font-size="15">Seconds on a disk that answers in 1 ms, cold</text>',
        f'<rect class="alone" x="{LEFT}" y="40" width="11" height="11"/><text class="quiet" x="{LEFT + 17}" y="50">alone</text>',
        f'<rect class="ours" x="{LEFT + 76}" y="40" width="11" height="11"/>'
        f'<text class="quiet" x="{LEFT + 93}" y="50">with Runahead, and how many times as fast</text>',
    ]
    for row, (name, label) in enumerate(PROGRAMS.items()):
        alone, ours = of[name, "alone"], of[name, "runahead"]
        y = TOP + ROW * row
        parts.append(f'<text x="{LEFT - 12}" y="{y + 17}" text-anchor="end">{escape(label)}</text>')
        for kind, value, top, said in [
            ("alone", alone, y, f"{alone:.1f} s"),
            ("ours", ours, y + BAR + 1, f"{number(alone / ours)} times"),
        ]:
            width = max(value * scale, 1)
            parts.append(f'<rect class="{kind}" x="{LEFT}" y="{top}" width="{width:.1f}" height="{BAR}"/>')
            bold = "times" if kind == "ours" else "quiet"
            parts.append(
                f'<text class="{bold}" font-size="12" x="{LEFT + width + 6:.1f}" y="{top + 10}">{said}</text>'
            )
    parts.append(f'<text class="quiet" x="16" y="{height - 10}">bench/results/{RESULT}, medians</text></svg>')
    return "\n".join(parts)


if __name__ == "__main__":
    print(picture())
