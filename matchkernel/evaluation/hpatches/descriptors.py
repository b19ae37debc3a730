"""The descriptors of an HPatches set in one array, and the row of each patch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from matchkernel.data.hpatches import IMAGES, NOISES, HPatchesSet, PatchList, sequence_numbers
from matchkernel.errors import ArgumentError, ArgumentTypeError, FileError
from matchkernel.photos.nearest import LARGEST
from matchkernel.storage.work import Progress, progress_counter

PIECE = 2**18  # rows checked at a time


@dataclass(frozen=True)
class HPatchesDescriptors:
    """Descriptors of every patch: sequence by sequence, within each image by image in the order of IMAGES."""

    name: str
    rows: np.ndarray  # (R, D) float32; or (R, D / 8) uint8, bits packed
    counts: dict[str, int]  # patches of each sequence, in the order of the rows

    @property
    def dimension(self) -> int:
        """Dimension of a descriptor: number of values, or of bits."""
        return self.rows.shape[1] * (8 if self.rows.dtype == np.uint8 else 1)

    def sequence(self, name: str) -> np.ndarray:
        """(16, N, D) view of one sequence."""
        if name not in self.counts:
            raise FileError(f"{self.name}: sequence {name!r} is missing")
        start, count = self.starts()[name], self.counts[name]
        return self.rows[start : start + 16 * count].reshape(16, count, -1)

    def starts(self) -> dict[str, int]:
        """The first row of each sequence."""
        ends = np.cumsum([0, *(16 * count for count in self.counts.values())])
        return dict(zip(self.counts, ends.tolist(), strict=False))

    def find_rows(self, patches: PatchList, noise: str, what: str) -> np.ndarray:
        """(M,) rows of listed patches at a noise level; image 0 is ref, image k the k-th of the level."""
        return self.rows_in_sequences(patches, self.sequence_numbers(patches, what), noise)

    def sequence_numbers(self, patches: PatchList, what: str) -> np.ndarray:
        """(M,) the number of each listed patch's sequence; refuses a patch that does not exist, naming the row."""
        return sequence_numbers(patches, self.counts, what)

    def rows_in_sequences(self, patches: PatchList, numbers: np.ndarray, noise: str) -> np.ndarray:
        """As `find_rows`, given the (M,) sequence numbers."""
        starts, counts = np.array([*self.starts().values()]), np.array([*self.counts.values()])
        image = np.where(patches.images > 0, patches.images + 5 * NOISES.index(noise), 0)
        return starts[numbers] + image * counts[numbers] + patches.indices


def stack_descriptors(name: str, sequences: Mapping[str, np.ndarray]) -> HPatchesDescriptors:
    """Stack the descriptors of a set into one array.

    Args:
        name: name of the descriptor.
        sequences: name -> (16, N, D) floats, or uint8 with bits packed; images in the order of IMAGES.

    Example:
        >>> import numpy as np
        >>> from matchkernel.evaluation.hpatches.descriptors import stack_descriptors
        >>> mine = stack_descriptors("mine", {"v_wall": np.zeros((16, 5, 128)), "i_dome": np.zeros((16, 3, 128))})
        >>> mine.rows.shape, mine.dimension, mine.sequence("i_dome").shape
        ((128, 128), 128, (16, 3, 128))
    """
    counts = {key: array.shape[1] for key, array in sequences.items() if array.ndim == 3}
    shapes = {(array.shape[0], array.shape[-1], array.dtype == np.uint8) for array in sequences.values()}
    if len(counts) != len(sequences) or len(shapes) != 1 or next(iter(shapes))[0] != 16:
        found = ", ".join(f"{key} {array.shape}" for key, array in list(sequences.items())[:3])
        raise ArgumentError(f"{name}: expected (16, N, D) descriptors of each sequence with the same D, got {found}")
    _, D, is_binary = next(iter(shapes))
    rows = np.empty((16 * sum(counts.values()), D), np.uint8 if is_binary else np.float32)
    descriptors = HPatchesDescriptors(name, rows, counts)
    for key, array in sequences.items():
        with np.errstate(over="ignore"):  # too large becomes infinite, and is refused below
            descriptors.sequence(key)[:] = array
    check_values(descriptors)
    return descriptors


def describe_hpatches(
    name: str,
    patches: HPatchesSet,
    describe: Callable[[np.ndarray], np.ndarray],
    sequences: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> HPatchesDescriptors:
    """Describe a set, or some of its sequences, strip by strip.

    `describe` makes (N, D) floats, or uint8 with bits packed, of (N, 65, 65) uint8 patches.
    """
    wanted = list(patches.counts) if sequences is None else sequences
    missing = [key for key in wanted if key not in patches.counts]
    if missing:
        raise FileError(f"{patches.root}: sequence {missing[0]!r} is missing")
    counts = {key: patches.counts[key] for key in wanted}
    total = 16 * sum(counts.values())
    add = progress_counter(progress, total)
    descriptors: HPatchesDescriptors | None = None
    for key in counts:
        for image, strip in enumerate(IMAGES):
            rows = np.atleast_1d(describe(patches.read(key, strip)))
            dtype = np.uint8 if rows.dtype == np.uint8 else np.float32
            if descriptors is None:
                descriptors = HPatchesDescriptors(name, np.empty((total, rows.shape[-1]), dtype), counts)
            shape = (counts[key], descriptors.rows.shape[1])
            if rows.shape != shape or dtype != descriptors.rows.dtype:
                raise ArgumentTypeError(
                    f"{name}: {key}/{strip} has {rows.dtype} rows of shape {rows.shape}, expected "
                    f"{descriptors.rows.dtype} of shape {shape}"
                )
            descriptors.sequence(key)[image] = rows
            add(len(rows))
    if descriptors is None:
        raise ArgumentError(f"{name}: there are no sequences to describe")
    check_values(descriptors)
    return descriptors


def check_values(descriptors: HPatchesDescriptors) -> None:
    """Refuse NaN and values too large to be squared, naming sequence, image and patch."""
    if descriptors.rows.dtype == np.uint8:
        return
    for start in range(0, len(descriptors.rows), PIECE):
        bad = ~(np.abs(descriptors.rows[start : start + PIECE]) <= LARGEST).all(1)
        if bad.any():
            row = start + int(bad.argmax())
            name, first = [entry for entry in descriptors.starts().items() if entry[1] <= row][-1]
            image, patch = divmod(row - first, descriptors.counts[name])
            where = f"{descriptors.name}: {name}/{IMAGES[image]}, patch {patch}"
            raise ArgumentError(f"{where} contains NaN, or a value whose magnitude exceeds {LARGEST:g}")
