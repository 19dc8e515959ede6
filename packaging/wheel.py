"""Adds the command to the wheel of the Python module: wheel.py WHEEL PREFIX GLIBC OUT.

The command goes where a wheel's scripts go, its parts to lib/runahead beside that folder, where it looks for them. So no
Python runs between the user and the command.
"""

import base64
import hashlib
import stat
import sys
import zipfile
from pathlib import Path


def main(wheel, prefix, glibc, out):
    source = zipfile.ZipFile(wheel)
    names = source.namelist()
    info = next(name.split("/")[0] for name in names if name.endswith(".dist-info/WHEEL"))
    data = info.replace(".dist-info", ".data")
    # Installers refuse it where the C library is older than what the module's library needs (PEP 600).
    machine = Path(wheel).stem.split("linux_")[1]
    tag = f"py3-none-manylinux_{glibc.replace('.', '_')}_{machine}"
    files = {name: (source.read(name), 0o644) for name in names if not name.endswith("/RECORD")}
    told = files[f"{info}/WHEEL"][0].decode().splitlines()
    told = [line for line in told if line and not line.startswith(("Tag:", "Root-Is-Purelib:"))]
    files[f"{info}/WHEEL"] = ("\n".join([*told, "Root-Is-Purelib: false", f"Tag: {tag}", ""]).encode(), 0o644)
    prefix = Path(prefix)
    for file in sorted(prefix.rglob("*")):
        place = file.relative_to(prefix)
        if place.parts[:2] == ("bin", "runahead"):
            name = f"{data}/scripts/runahead"
        elif place.parts[:2] == ("lib", "runahead") or place.parts[0] == "share":
            name = f"{data}/data/{place}"
        else:
            continue
        if file.is_file():
            files[name] = (file.read_bytes(), stat.S_IMODE(file.stat().st_mode))
    record = "".join(f"{name},sha256={digest(content)},{len(content)}\n" for name, (content, _) in files.items())
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)
    name = f"{info.removesuffix('.dist-info')}-{tag}.whl"
    with zipfile.ZipFile(Path(out) / name, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as made:
        for name, (content, mode) in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (stat.S_IFREG | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            made.writestr(entry, content)


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


main(*sys.argv[1:])
