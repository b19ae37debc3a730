"""Make an int8 ONNX file of a descriptor, and measure what it loses on patches it was not calibrated on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matchkernel.data.patch_set import PatchSet
from matchkernel.errors import WorkError
from matchkernel.evaluation.held_out import shown_and_held_out
from matchkernel.evaluation.patch_sets import retrieval_map
from matchkernel.model.describe import describe
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.engines.calibrate import calibrate
from matchkernel.model.engines.choose import folded_network
from matchkernel.model.weights import state_digest
from matchkernel.photos.adapters.onnx import metadata_of, prepare
from matchkernel.runtime.graph import Ranges, int8_file
from matchkernel.runtime.onnx import FILE, INT8, OnnxEngine
from matchkernel.storage.files import check_output, replacing

MIN_COSINE, MAX_LOSS = 0.995, 1.0  # mean cosine, and loss of mAP in points, beyond which a file is not kept


@dataclass(frozen=True)
class Calibration:
    """Ranges for int8, and what is lost with them.

    Attributes:
        ranges: what an int8 graph needs besides the weights.
        calibrated: number of patches the ranges were chosen on.
        held_out: number of other patches, of other points, that the rest was measured on.
        cosine: mean cosine of the rows of int8 and of torch.
        lowest_cosine: the lowest.
        torch_map: retrieval mAP of torch's rows among the patches held out, in per cent.
        int8_map: the same of int8's.
    """

    ranges: Ranges
    calibrated: int
    held_out: int
    cosine: float
    lowest_cosine: float
    torch_map: float
    int8_map: float


def calibrate_int8(model: Descriptor, sets: Sequence[PatchSet], patch_size: int | None = None) -> Calibration:
    """Choose ranges for int8 on patch sets, and measure what is lost; too much is refused.

    Every other point of the sets is for calibration, the rest for the comparison with torch. The same sets give the
    same ranges.

    Args:
        model: the descriptor.
        sets: patches like those it was trained on, with at least two patches of some points.
        patch_size: N (default: the size the model was trained at).
    """
    N, reference = prepare(model, patch_size)
    shown, held_out, labels = shown_and_held_out(sets, N)
    names = tuple(part.folder.resolve().name for part in sets)
    ranges = Ranges(state_digest(model), N, calibrate(reference, shown), names)
    content = int8_file(folded_network(model, N), ranges.limits, {})
    engine = OnnxEngine(content, N, INT8, f"the int8 graph of {model.name}")
    rows, ours = describe(held_out, reference), describe(held_out, reference, engine=engine)
    cosines = (rows * ours).sum(1)
    scores = [100 * retrieval_map(found, labels)[0] for found in (rows, ours)]
    found = Calibration(
        ranges, len(shown), len(held_out), float(cosines.mean()), float(cosines.min()), scores[0], scores[1]
    )
    if not (found.cosine >= MIN_COSINE and found.torch_map - found.int8_map <= MAX_LOSS):
        raise WorkError(
            f"int8 is too far from torch and not kept: mean cosine {found.cosine:.4f} (allowed {MIN_COSINE}), "
            f"mAP {found.int8_map:.2f} instead of {found.torch_map:.2f}"
        )
    return found


def export_int8(
    model: Descriptor,
    path: str | Path,
    sets: Sequence[PatchSet],
    patch_size: int | None = None,
    card: Mapping[str, str] | None = None,
) -> Calibration:
    """Write a descriptor to an int8 ONNX file, atomically, unless its rows differ too much from torch's.

    Args:
        model: the descriptor.
        path: file to write, .onnx.
        sets: see calibrate_int8.
        patch_size: N (default: the size the model was trained at).
        card: as for export_onnx.
    """
    path = Path(path)
    check_output(path, suffixes=(FILE,))
    found = calibrate_int8(model, sets, patch_size)
    N = found.ranges.patch_size
    strings = metadata_of(model, N, INT8, card)
    strings["calibrated_on"] = ", ".join(found.ranges.calibrated_on)
    content = int8_file(folded_network(model, N), found.ranges.limits, strings)
    with replacing(path) as part:
        part.write_bytes(content)
    return found
