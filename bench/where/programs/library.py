"""library.py memmap|safetensors|faiss|lmdb [thread]: reads scattered parts of a file that the library maps.

With `thread`, another thread reads than the one that has mapped.
"""

import sys
import threading

import numpy


def memmap():
    cube = numpy.memmap("volume.raw", dtype="<i4", mode="r", shape=(512, 512, 512))
    return lambda: sum(int(cube[:, (n * 61 + 30) % 512, :].sum(dtype=numpy.int64)) for n in range(4))


def safetensors():
    from safetensors import safe_open

    file = safe_open("model.safetensors", framework="numpy")
    slices = [file.get_slice(f"layer{n}") for n in range(100)]
    return lambda: sum(float(one[row : row + 1].sum()) for one in slices for row in range(0, 1024, 41))


def faiss():
    import faiss as library

    library.omp_set_num_threads(1)
    index = library.read_index("vectors.faiss", library.IO_FLAG_MMAP)
    index.nprobe = 2
    wanted = numpy.random.default_rng(2).random((100, 256), dtype=numpy.float32)
    return lambda: index.search(wanted, 5)[1].sum()


def lmdb():
    import lmdb as library

    store = library.open("store.lmdb", readonly=True, lock=False, subdir=False, readahead=False)
    numbers = numpy.random.default_rng(3).integers(400_000, size=3000)
    change = store.begin()
    return lambda: sum(change.get(int(n).to_bytes(8, "big"))[0] for n in numbers)


def main():
    read = {"memmap": memmap, "safetensors": safetensors, "faiss": faiss, "lmdb": lmdb}[sys.argv[1]]()
    if sys.argv[2:] == ["thread"]:
        thread = threading.Thread(target=lambda: print(read()))
        thread.start()
        thread.join()
    else:
        print(read())


main()
