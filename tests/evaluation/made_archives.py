"""PhotoTourism archives as they are published, made small: few patches, pair lists of full length."""

import numpy as np

from matchkernel.data.phototourism import write_mosaics, write_tables

PROTOCOL = "m50_100000_100000_0"
LENGTHS = (1_000, 5_000, 10_000, 20_000, 100_000, 200_000)  # some of those published, the protocol's among them
POINTS, PER_POINT = 40, 3


def write_archive(folder, seed=0, lengths=LENGTHS):
    """A folder of mosaics, tables and lists of these lengths; patches of a point are alike, each list has own pairs."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    labels = np.repeat(np.arange(POINTS), PER_POINT)
    own = random.normal(0, 40, (len(labels), 8, 8))  # as much as what the patches of a point share: some are confused
    patches = (128 + random.normal(0, 40, (POINTS, 8, 8)).repeat(PER_POINT, 0) + own).clip(0, 255).astype(np.uint8)
    patches = patches.repeat(8, 1).repeat(8, 2)
    write_mosaics(folder, patches)
    lists = {f"m50_{length}_{length}_0": some_pairs(random, labels, length) for length in lengths}
    write_tables(folder, labels, np.zeros((len(labels), 5)), lists)
    return folder


def some_pairs(random, labels, length, different=30):
    """(length, 3) pairs, half of them matches: a few, repeated."""
    a = random.integers(len(labels), size=different)
    matches = np.column_stack([a, a // PER_POINT * PER_POINT + (a + 1) % PER_POINT, np.ones_like(a)])
    b = (a + random.integers(PER_POINT, len(labels) - 2 * PER_POINT, different)) % len(labels)
    others = np.column_stack([a, b, np.zeros_like(a)])[labels[a] != labels[b]]
    half = [part[np.arange(length // 2) % len(part)] for part in (matches, others)]
    return np.concatenate(half)
