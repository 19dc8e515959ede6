"""The package with and without the library. Run by crates/hints-c/tests/python.rs, or by hand:

    RUNAHEAD_LIBRARY=.../librunahead.so python3 -m unittest discover python/tests
"""

import io
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))

import runahead  # noqa: E402


def until(condition) -> bool:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.002)
    return False


def pages() -> int:
    now = runahead.counts()
    return now["asked_pages"] + now["cached_pages"]


def worker(path: str) -> bool:
    before = pages()
    runahead.hint(path)
    return until(lambda: pages() >= before + 3)


class WithLibrary(unittest.TestCase):
    def setUp(self) -> None:
        self.assertTrue(runahead.available(), "RUNAHEAD_LIBRARY must name the library")
        self.folder = tempfile.TemporaryDirectory()
        self.paths = [os.path.join(self.folder.name, f"file{number}") for number in range(100)]
        for path in self.paths:
            with open(path, "wb") as file:
                file.write(b"x" * 10_000)

    def tearDown(self) -> None:
        self.folder.cleanup()

    def test_items_come_out_as_they_went_in(self) -> None:
        # In a process of its own: hints of other tests may still be under way in this one.
        subprocess.run([sys.executable, __file__, "items", *self.paths], check=True)

    def test_batches_and_other_items(self) -> None:
        batches = [self.paths[at : at + 8] for at in range(0, 100, 8)] + [None, 5, []]
        before = runahead.counts()["hints"]
        self.assertEqual(list(runahead.prefetch(batches, depth=3)), batches)
        self.assertEqual(runahead.counts()["hints"] - before, 100)

    def test_an_endless_source_is_taken_only_depth_ahead(self) -> None:
        taken = 0

        def endless():
            nonlocal taken
            while True:
                taken += 1
                yield self.paths[taken % 100]

        loop = runahead.prefetch(endless(), depth=16)
        for _ in range(50):
            next(loop)
        self.assertLessEqual(taken, 50 + 16)
        loop.close()

    def test_single_hints_release_and_nonsense(self) -> None:
        before = runahead.counts()
        with open(self.paths[1], "rb") as file:
            runahead.hint_fd(file, 0, 4096)
            done = until(lambda: runahead.counts()["jobs"] > before["jobs"])
            pressure = pathlib.Path("/proc/pressure/memory")
            state = (before, runahead.counts(), pressure.exists() and pressure.read_text())
            self.assertTrue(done, state)
        runahead.hint(self.paths[2], 4096, 4096)
        runahead.hint("/not/there")
        runahead.hint(self.paths[3], -1, 1 << 70)
        runahead.hint("a\0b")
        runahead.release(self.paths[2])
        runahead.cancel_all()
        self.assertEqual(runahead.counts()["hints"] - before["hints"], 4)

    def test_an_exception_of_the_source_comes_after_the_items_before_it(self) -> None:
        def broken():
            yield from self.paths[:10]
            raise KeyError("the source")

        for depth in [1, 8, 64]:
            got = []
            with self.assertRaisesRegex(KeyError, "the source"):
                for path in runahead.prefetch(broken(), depth=depth):
                    got.append(path)
            self.assertEqual(got, self.paths[:10])

    def test_what_is_wrong_with_a_file_raises_nothing(self) -> None:
        closed = open(self.paths[0], "rb")
        closed.close()
        for file in [closed, io.BytesIO(), -1, 1 << 40]:
            runahead.hint_fd(file)
            runahead.release_fd(file)
        # A name that no file can have, as far as this system's encoding goes.
        for name in ["\ud800", "a\0b", b"\xff" * 10_000]:
            runahead.hint(name)
            runahead.hint_name(name)
            runahead.release(name)
            runahead.cancel_path(name)
            self.assertEqual(list(runahead.prefetch([name])), [name])

    def test_numbers_that_are_no_plain_integers(self) -> None:
        class Number:
            def __index__(self):
                return 4096

        before = runahead.counts()["hints"]
        runahead.hint(self.paths[4], Number(), Number())
        with open(self.paths[4], "rb") as file:
            runahead.hint_fd(file, Number(), Number())
            runahead.release_fd(file, Number(), Number())
        self.assertEqual(runahead.counts()["hints"] - before, 3)

    def test_names_and_cancelling(self) -> None:
        before = runahead.counts()["names"]
        runahead.hint_name(self.folder.name, runahead.ENTRIES)
        self.assertTrue(until(lambda: runahead.counts()["names"] - before == 101), runahead.counts())
        runahead.hint_many(self.paths, token=7)
        runahead.cancel_token(7)
        runahead.cancel_path(self.paths[0])

    def test_workers_that_were_forked_have_hints_of_their_own(self) -> None:
        runahead.hint(self.paths[0])
        with multiprocessing.get_context("fork").Pool(2) as workers:
            self.assertEqual(workers.map(worker, self.paths[:20], chunksize=1), [True] * 20)

    def test_a_depth_of_nothing_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "at least 1"):
            next(runahead.prefetch([], depth=0))


class Example(unittest.TestCase):
    def run_example(self, library: str) -> str:
        environment = dict(os.environ, PYTHONPATH=str(HERE), RUNAHEAD_LIBRARY=library)
        files = sorted(str(path) for path in (HERE / "runahead").glob("*.py"))
        command = [sys.executable, str(HERE / "examples" / "loader.py"), *files]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    def test_the_example_is_the_same_with_and_without_the_library(self) -> None:
        output = self.run_example(os.environ["RUNAHEAD_LIBRARY"])
        self.assertRegex(output, r"^\d+ bytes, checksum [0-9a-f]{8}$")
        self.assertEqual(self.run_example("/not/there.so"), output)

    def test_without_the_library_nothing_happens(self) -> None:
        code = (
            "import runahead; assert not runahead.available(); runahead.hint('x'); runahead.cancel_all();"
            "runahead.release('x'); runahead.hint_fd(0); runahead.hint_name('x'); runahead.release_fd(0);"
            "runahead.cancel_path('x'); runahead.cancel_token(1); assert runahead.counts() == {};"
            "assert list(runahead.prefetch(range(5), depth=2)) == [0, 1, 2, 3, 4]"
        )
        environment = dict(os.environ, PYTHONPATH=str(HERE), RUNAHEAD_LIBRARY="/not/there.so")
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def items_come_out_and_their_pages_are_asked_for(paths: list[str]) -> None:
    assert list(runahead.prefetch(paths, depth=10)) == paths
    assert until(lambda: pages() == 3 * len(paths)), runahead.counts()


if __name__ == "__main__":
    if sys.argv[1:2] == ["items"]:
        items_come_out_and_their_pages_are_asked_for(sys.argv[2:])
    else:
        unittest.main()
