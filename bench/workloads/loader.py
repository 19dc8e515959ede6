"""A data loader as training scripts have it: small files in an order that is shuffled anew each epoch, each
read whole and taken apart, some of them put together into a batch.
"""

import collections
import random
import sys

BATCH = 32


class Files:
    """A data set of files: the sample of a number is what the file of that number holds."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: int) -> collections.Counter:
        with open(self.names[number], "rb") as file:
            return collections.Counter(file.read().split())


def batches(files: Files, seed: int):
    order = list(range(len(files)))
    random.Random(seed).shuffle(order)
    for start in range(0, len(order), BATCH):
        yield [files[number] for number in order[start : start + BATCH]]


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as names:
        files = Files(names.read().splitlines())
    words = 0
    for number, batch in enumerate(batches(files, seed=1)):
        words += sum(sum(sample.values()) for sample in batch)
        if number % 50 == 0:
            print(f"batch {number}: {words} words")
    print(f"{words} words")


main()
