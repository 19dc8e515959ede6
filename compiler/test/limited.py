#!/usr/bin/env python3
"""limited.py MEGABYTES COMMAND...: runs the command in a memory cgroup of so much, without swap. Root's.

Its status is the command's, 128 and the signal's number where one ended it; 99 where there is no such cgroup.
"""
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from measure import Group  # noqa: E402


def main():
    try:
        group = Group()
        group.set_limit(int(sys.argv[1]) << 20)
    except OSError as error:
        print(f"no memory cgroup: {error}", file=sys.stderr)
        return 99
    try:
        child = os.fork()
        if child == 0:
            (group.path / "cgroup.procs").write_text(str(os.getpid()))
            os.execvp(sys.argv[2], sys.argv[2:])
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return status if status >= 0 else 128 - status
    finally:
        group.empty()
        group.close()


if __name__ == "__main__":
    sys.exit(main())
