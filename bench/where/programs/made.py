"""made.py FOLDER: tensors, an index of vectors and a key-value store, with the libraries that read them."""

import sys

import faiss
import lmdb
import numpy
from safetensors.numpy import save_file

folder = sys.argv[1]
rng = numpy.random.default_rng(1)
save_file(
    {f"layer{n}": rng.random((1024, 1024), dtype=numpy.float32) for n in range(100)},
    f"{folder}/model.safetensors",
)
vectors = rng.random((200_000, 256), dtype=numpy.float32)
index = faiss.index_factory(256, "IVF1000,Flat")
index.train(vectors[:40_000])
index.add(vectors)
faiss.write_index(index, f"{folder}/vectors.faiss")
with lmdb.open(f"{folder}/store.lmdb", map_size=2 << 30, subdir=False) as store, store.begin(
    write=True
) as change:
    for n in range(400_000):
        change.put(n.to_bytes(8, "big"), n.to_bytes(8, "little") * 100)
