#!/usr/bin/env python3
"""data.py FOLDER: what the programs read on each kernel. The same each time it is made."""
import random
import sqlite3
import sys
from pathlib import Path

FILES, ROWS, LOOK_UPS, GATHER, EDGE = 600, 120_000, 400, 128 << 20, 192

folder = Path(sys.argv[1])
rng = random.Random(1)
words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 10))) for _ in range(4000)]

for number in range(FILES):
    file = folder / "tree" / f"part{number % 24:02}" / f"file{number:03}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = " ".join(rng.choices(words, k=rng.randint(500, 3000)))
    file.write_text(text.replace(words[0] + " ", words[0] + "\n"))
(folder / "pattern").write_text(words[1] + " " + words[2][:1])

# Bytes that look random are made quickest by repeating: the checksum tells where a word came from all the same.
block = rng.randbytes(1 << 20)
with open(folder / "gather.bin", "wb") as file:
    for number in range(GATHER >> 20):
        file.write(number.to_bytes(8, "little") + block[8:])
with open(folder / "volume.bin", "wb") as file:
    for number in range(EDGE):
        file.write((block * 2)[number : number + EDGE * EDGE * 4])

base = sqlite3.connect(folder / "rows.db")
base.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, name TEXT, payload TEXT)")
names = [f"{rng.getrandbits(64):016x}" for _ in range(ROWS)]
base.executemany("INSERT INTO rows (name, payload) VALUES (?, ?)", ((name, rng.choice(words) * 20) for name in names))
base.execute("CREATE INDEX by_name ON rows (name)")
base.commit()
base.close()
(folder / "look-ups.sql").write_text(
    "".join(f"SELECT number, payload FROM rows WHERE name = '{name}';\n" for name in rng.sample(names, LOOK_UPS))
)
