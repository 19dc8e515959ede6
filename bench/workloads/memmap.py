"""Takes parts of a cube of floats through NumPy's memmap, and prints sums over them.

Slices are perpendicular to the second axis: a row of 2 KB in each MB of the file. Rows are taken by a list of
numbers without order.
"""

import sys

import numpy

EDGE = 512
SLICES = 8
ROWS = 4000


def main() -> None:
    path, order = sys.argv[1:]
    cube = numpy.memmap(path, dtype="<f4", mode="r", shape=(EDGE, EDGE, EDGE))
    if order == "slices":
        for slice in range(SLICES):
            part = cube[:, (slice * 61 + 30) % EDGE, :]
            print(f"slice {slice}: {part.sum(dtype=numpy.float64):.6f}")
    else:
        numbers = numpy.random.RandomState(7).randint(EDGE * EDGE, size=ROWS)
        rows = cube.reshape(-1, EDGE)[numbers]
        print(f"{len(rows)} rows: {rows.sum(dtype=numpy.float64):.6f}")


main()
