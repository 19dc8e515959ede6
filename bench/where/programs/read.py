"""read.py NAMES [thread]: reads the files named in a list; with `thread`, while another thread sleeps."""

import sys
import threading
import zlib

if sys.argv[2:] == ["thread"]:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
checksum = 0
with open(sys.argv[1], encoding="ascii") as names:
    for name in names:
        with open(name.rstrip("\n"), "rb") as file:
            checksum = zlib.crc32(file.read(), checksum)
print(f"{checksum:08x}")
