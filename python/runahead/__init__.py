"""Say what your program will read, and have it read ahead.

Hints never change a result, never wait and never raise for what is wrong with a file: what cannot be read
ahead is dropped and counted. Without the library (see :func:`available`) every function does nothing.
"""

from __future__ import annotations

import collections
import ctypes
import os
from typing import Iterable, Iterator, Optional, Tuple, TypeVar, Union

__all__ = [
    "available", "cancel_all", "counts", "hint", "hint_fd", "hint_many", "prefetch", "release",
]

StrPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Item = TypeVar("Item")


class _Segment(ctypes.Structure):
    _fields_ = [
        ("path", ctypes.c_char_p),
        ("offset", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
        ("token", ctypes.c_uint64),
        ("descriptor", ctypes.c_int),
        ("reserved", ctypes.c_int),
    ]


# The order is that of struct runahead_counts in runahead.h.
_COUNTS = (
    "hints", "repeated", "overflowed", "absurd", "unreadable", "not_a_file", "cancelled", "cached_pages",
    "asked_pages", "left_pages", "used_pages", "unused_pages", "names", "released_pages", "most_in_flight",
    "jobs",
)


class _Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in _COUNTS]


def _load() -> Optional[ctypes.CDLL]:
    here = os.path.join(os.path.dirname(__file__), "librunahead.so")
    named = os.environ.get("RUNAHEAD_LIBRARY")
    for name in [named] if named else [here, "librunahead.so"]:
        try:
            library = ctypes.CDLL(name)
            signatures = {
                "runahead_hint": (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64),
                "runahead_hint_fd": (ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64),
                "runahead_hint_batch": (ctypes.POINTER(_Segment), ctypes.c_size_t),
                "runahead_release": (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64),
                "runahead_cancel_all": (),
                "runahead_cancel_token": (ctypes.c_uint64,),
                "runahead_counts": (ctypes.POINTER(_Counts), ctypes.c_size_t),
            }
            for function, arguments in signatures.items():
                getattr(library, function).argtypes = arguments
                getattr(library, function).restype = None
            return library
        except (OSError, AttributeError):
            continue
    return None


_library = _load()


def available() -> bool:
    """Whether the library was found. Without it hints have no effect."""
    return _library is not None


def _bounded(offset: int, length: int) -> bool:
    return 0 <= offset < 1 << 63 and 0 <= length < 1 << 63


def hint(path: StrPath, offset: int = 0, length: int = 0) -> None:
    """Disclose a read of bytes ``offset`` to ``offset + length`` of a file; length 0 means to its end."""
    hint_many([(path, offset, length)])


def hint_fd(file: Union[int, "HasFileno"], offset: int = 0, length: int = 0) -> None:  # noqa: F821
    """The same of an open file."""
    if _library is not None and _bounded(offset, length):
        descriptor = file if isinstance(file, int) else file.fileno()
        if -(1 << 31) <= descriptor < 1 << 31:
            _library.runahead_hint_fd(descriptor, offset, length)


def hint_many(hints: Iterable[Union[StrPath, Tuple[StrPath, int, int]]], token: int = 0) -> None:
    """Disclose many reads together, in their order: paths, or tuples of path, offset and length."""
    if _library is None:
        return
    segments = []
    for one in hints:
        path, offset, length = one if isinstance(one, tuple) else (one, 0, 0)
        if _bounded(offset, length):
            # A zero byte would end the path early: another file.
            name = os.fsencode(path)
            if b"\0" not in name:
                segments.append(_Segment(name, offset, length, token & 0xFFFFFFFFFFFFFFFF, -1, 0))
    if segments:
        _library.runahead_hint_batch((_Segment * len(segments))(*segments), len(segments))


def release(path: StrPath, offset: int = 0, length: int = 0) -> None:
    """These bytes will not be needed again, by anybody: the page cache may drop them."""
    name = os.fsencode(path)
    if _library is not None and _bounded(offset, length) and b"\0" not in name:
        _library.runahead_release(name, offset, length)


def cancel_all() -> None:
    """Forget all hints that have not been carried out."""
    if _library is not None:
        _library.runahead_cancel_all()


def counts() -> "dict[str, int]":
    """What became of this process's hints; empty without the library."""
    if _library is None:
        return {}
    now = _Counts()
    _library.runahead_counts(ctypes.byref(now), ctypes.sizeof(now))
    return {name: getattr(now, name) for name in _COUNTS}


def prefetch(items: Iterable[Item], depth: int = 64) -> Iterator[Item]:
    """Yield the items as they are, with the files of the next ``depth`` of them being read ahead.

    An item is a path, or a list or tuple of paths (a batch). The items are taken from the iterable ``depth``
    ahead of the consumer, so it may be endless. Left early, the loop takes its open hints back.
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1, not {depth}")
    ahead: "collections.deque[Item]" = collections.deque()
    source = iter(items)
    # Hints are cheapest together: what is missing is filled up in strides of a quarter of the depth.
    stride = max(1, depth // 4)
    token = id(ahead)
    finished = False
    try:
        while True:
            if not finished and len(ahead) <= depth - stride:
                fresh = []
                for item in source:
                    fresh.append(item)
                    if len(ahead) + len(fresh) >= depth:
                        break
                else:
                    finished = True
                ahead.extend(fresh)
                hint_many((path for item in fresh for path in _paths(item)), token)
            if not ahead:
                return
            yield ahead.popleft()
    finally:
        if _library is not None and ahead:
            _library.runahead_cancel_token(token)


def _paths(item: object) -> Iterable[StrPath]:
    many = isinstance(item, (list, tuple))
    return [path for path in (item if many else [item]) if isinstance(path, (str, bytes, os.PathLike))]
