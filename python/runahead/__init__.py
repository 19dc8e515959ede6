"""Say what your program will read, and have it read ahead.

Hints never change a result, never wait and never raise for what is wrong with a file: what cannot be read
ahead is dropped and counted. Without the library (see :func:`available`) every function does nothing.
"""

from __future__ import annotations

import collections
import ctypes
import operator
import os
from typing import Iterable, Iterator, Optional, Tuple, TypeVar, Union

__all__ = [
    "ENTRIES", "LINK", "LIST", "STAT", "available", "cancel_all", "cancel_path", "cancel_token", "counts", "hint",
    "hint_fd", "hint_many", "hint_name", "prefetch", "release", "release_fd",
]

StrPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Item = TypeVar("Item")


# What will be done with a name: stat or open, readlink, list the directory, list it and look each entry up.
STAT, LINK, LIST, ENTRIES = range(4)


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
    "jobs", "unmapped_pages",
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
                "runahead_hint_name": (ctypes.c_char_p, ctypes.c_int),
                "runahead_release_fd": (ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64),
                "runahead_cancel_all": (),
                "runahead_cancel_path": (ctypes.c_char_p,),
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


def _range(offset: int, length: int) -> Optional[Tuple[int, int]]:
    """Both as plain integers (NumPy's are none); None if they make no sense."""
    offset, length = operator.index(offset), operator.index(length)
    return (offset, length) if 0 <= offset < 1 << 63 and 0 <= length < 1 << 63 else None


def _name(path: StrPath) -> Optional[bytes]:
    """None: no file can have this name."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        return None
    # A zero byte would end the path early: another file.
    return None if b"\0" in name else name


def _descriptor(file: "Union[int, HasFileno]") -> Optional[int]:  # noqa: F821
    """None: the file is closed, or has no descriptor."""
    try:
        number = file.fileno() if hasattr(file, "fileno") else operator.index(file)
    except (OSError, ValueError):
        return None
    return number if -(1 << 31) <= number < 1 << 31 else None


def hint(path: StrPath, offset: int = 0, length: int = 0) -> None:
    """Disclose a read of bytes ``offset`` to ``offset + length`` of a file; length 0 means to its end."""
    hint_many([(path, offset, length)])


def hint_fd(file: Union[int, "HasFileno"], offset: int = 0, length: int = 0) -> None:  # noqa: F821
    """The same of an open file."""
    if _library is not None:
        descriptor, part = _descriptor(file), _range(offset, length)
        if descriptor is not None and part is not None:
            _library.runahead_hint_fd(descriptor, *part)


def hint_name(path: StrPath, lookup: int = STAT) -> None:
    """Disclose that a name will be looked up: ``STAT``, ``LINK``, ``LIST`` or ``ENTRIES``."""
    if _library is not None:
        name = _name(path)
        if name is not None:
            _library.runahead_hint_name(name, lookup)


def hint_many(hints: Iterable[Union[StrPath, Tuple[StrPath, int, int]]], token: int = 0) -> None:
    """Disclose many reads together, in their order: paths, or tuples of path, offset and length."""
    if _library is None:
        return
    segments = []
    for one in hints:
        path, offset, length = one if isinstance(one, tuple) else (one, 0, 0)
        name, part = _name(path), _range(offset, length)
        if name is not None and part is not None:
            segments.append(_Segment(name, *part, token & 0xFFFFFFFFFFFFFFFF, -1, 0))
    if segments:
        _library.runahead_hint_batch((_Segment * len(segments))(*segments), len(segments))


def release(path: StrPath, offset: int = 0, length: int = 0) -> None:
    """These bytes will not be needed again, by anybody: the page cache may drop them."""
    if _library is not None:
        name, part = _name(path), _range(offset, length)
        if name is not None and part is not None:
            _library.runahead_release(name, *part)


def release_fd(file: "Union[int, HasFileno]", offset: int = 0, length: int = 0) -> None:  # noqa: F821
    """The same of an open file."""
    if _library is not None:
        descriptor, part = _descriptor(file), _range(offset, length)
        if descriptor is not None and part is not None:
            _library.runahead_release_fd(descriptor, *part)


def cancel_all() -> None:
    """Forget all hints that have not been carried out."""
    if _library is not None:
        _library.runahead_cancel_all()


def cancel_token(token: int) -> None:
    """Forget those that were given with this token."""
    if _library is not None:
        _library.runahead_cancel_token(token & 0xFFFFFFFFFFFFFFFF)


def cancel_path(path: StrPath) -> None:
    """Forget those for this path, spelt the same way."""
    if _library is not None:
        name = _name(path)
        if name is not None:
            _library.runahead_cancel_path(name)


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
    ahead of the consumer, so it may be endless. Where it raises, that comes after the items before, as without
    this. Left early, the loop takes its open hints back.
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1, not {depth}")
    ahead: "collections.deque[Item]" = collections.deque()
    source = iter(items)
    # Hints are cheapest together: what is missing is filled up in strides of a quarter of the depth.
    stride = max(1, depth // 4)
    token = id(ahead)
    finished = False
    failure: Optional[Exception] = None
    try:
        while True:
            if not finished and len(ahead) <= depth - stride:
                fresh = []
                try:
                    for item in source:
                        fresh.append(item)
                        if len(ahead) + len(fresh) >= depth:
                            break
                    else:
                        finished = True
                except Exception as error:
                    finished, failure = True, error
                ahead.extend(fresh)
                hint_many((path for item in fresh for path in _paths(item)), token)
            if not ahead:
                if failure is not None:
                    raise failure
                return
            yield ahead.popleft()
    finally:
        if _library is not None and ahead:
            _library.runahead_cancel_token(token)


def _paths(item: object) -> Iterable[StrPath]:
    many = isinstance(item, (list, tuple))
    return [path for path in (item if many else [item]) if isinstance(path, (str, bytes, os.PathLike))]
