"""A data loader that reads files one after another, each read ahead while the ones before are worked on.

    python3 loader.py FILES...
"""

import sys
import zlib

import runahead


def main() -> None:
    checksum = total = 0
    for path in runahead.prefetch(sys.argv[1:], depth=64):
        with open(path, "rb") as file:
            data = file.read()
        checksum = zlib.crc32(data, checksum)
        total += len(data)
    print(f"{total} bytes, checksum {checksum:08x}")


main()
