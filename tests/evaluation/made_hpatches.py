"""A small HPatches set made from documented numbers, and the golden results made from it.

Three sequences, `i_one` (12 patches), `i_two` (9) and `v_one` (15), 8 numbers a descriptor. With NumPy's
default_rng(7), in the order of sequences and images: for each sequence a base N(0, I) for each patch, then for each
image base + sigma N(0, I), sigma 0.1 (ref), 0.4 (e), 0.8 (h), 1.2 (t).

    float    the rows divided by their norm, float32
    ties     the raw values rounded to whole numbers
    bits     whether a raw value is above 0, then whether it is above 0.7 or below -0.7: 16 bits packed in two bytes

The lists: 60 pairs by the official generator (seed 42); queries are the patches 0, 3, 6, ... of every ref, distractors
all others. `python tests/evaluation/made_hpatches.py` writes tests/golden/our_hpatches_results/ again.
"""

from pathlib import Path

import numpy as np

from matchkernel.data.hpatches import HPatchesTasks, PatchList, draw_verification
from matchkernel.evaluation.hpatches.descriptors import stack_descriptors
from matchkernel.evaluation.hpatches.evaluate import score_split
from matchkernel.evaluation.results import write_result

COUNTS = {"i_one": 12, "i_two": 9, "v_one": 15}
SIGMAS = [0.1, *[0.4] * 5, *[0.8] * 5, *[1.2] * 5]
RUNS = [("float", "l2"), ("ties", "l2"), ("ties", "l1"), ("bits", "hamming")]
GOLDEN = Path(__file__).parents[1] / "golden" / "our_hpatches_results"


def made_descriptors(kind, counts=COUNTS):
    """The descriptors described above."""
    random = np.random.default_rng(7)
    sequences = {}
    for name, count in counts.items():
        base = random.standard_normal((count, 8))
        raw = np.stack([base + sigma * random.standard_normal((count, 8)) for sigma in SIGMAS])
        sequences[name] = {
            "float": lambda raw=raw: (raw / np.linalg.norm(raw, axis=-1, keepdims=True)).astype(np.float32),
            "ties": lambda raw=raw: np.rint(raw),
            "bits": lambda raw=raw: np.packbits(np.concatenate([raw > 0, abs(raw) > 0.7], -1), axis=-1),
        }[kind]()
    return stack_descriptors(kind, sequences)


def made_tasks(counts=COUNTS, test=None, train=()):
    """The lists described above."""
    test = list(counts) if test is None else test
    names = np.concatenate([np.full(counts[name], name) for name in test])
    indices = np.concatenate([np.arange(counts[name]) for name in test])
    is_query = indices % 3 == 0
    queries, distractors = (
        PatchList(names[part], np.zeros(part.sum(), np.int64), indices[part]) for part in (is_query, ~is_query)
    )
    return HPatchesTasks("made", test, list(train), draw_verification(counts, test, 60), queries, distractors)


def made_result(kind, distance):
    """The scores of all three tasks."""
    return score_split(made_descriptors(kind), made_tasks(), distance=distance)


if __name__ == "__main__":
    for kind, distance in RUNS:
        write_result(GOLDEN / f"{kind}-{distance}.json", made_result(kind, distance))
