"""What identifies a split of HPatches: sha256 of its lists, its numbers of patches and its strips."""

import hashlib
import json
from collections.abc import Mapping, Sequence

from matchkernel.data.hpatches import IMAGES, HPatchesSet, HPatchesTasks
from matchkernel.storage.files import file_hash


def digest_of(tasks: HPatchesTasks, counts: Mapping[str, int], patches_sha256: str | None = None) -> str:
    """sha256 of what must be the same for scores to be compared: lists, numbers of patches, patches where known."""
    known = [] if patches_sha256 is None else [patches_sha256]
    return _sha256([tasks.digest, [[name, counts[name]] for name in tasks.test], *known])


def strips_digest(tasks: HPatchesTasks, strips: Mapping[str, Sequence[str]] | None) -> str | None:
    """sha256 of the patches of a split's test sequences, from those of their strips; None where these are not known."""
    return None if strips is None else _sha256([[name, list(strips[name])] for name in tasks.test])


def strip_hashes(patches: HPatchesSet, sequences: Sequence[str]) -> dict[str, list[str]]:
    """sha256 of each strip file of some sequences, in the order of IMAGES; read from the files, not the manifest."""
    return {name: [file_hash(patches.root / name / f"{image}.png") for image in IMAGES] for name in sequences}


def _sha256(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
