"""Describe patches without torch: the names of the engines, and ONNX Runtime on a CPU.

Engines are programs that compute the same descriptors, some faster and less exactly than others. ONNX Runtime computes
in float32, or in int8 with ranges that were calibrated for exactly these weights.
"""

import hashlib
import math
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from matchkernel.errors import ArgumentError, FileError, MissingExtraError, WeightsError
from matchkernel.runtime.config import AUTO, ENGINES, INT8, ONNX, DescriptorConfig
from matchkernel.runtime.graph import INPUT, OUTPUT, Ranges, descriptor_file
from matchkernel.runtime.weights import SHIPPED, Weights, fold
from matchkernel.storage.arrays import UNIT_WITHIN
from matchkernel.storage.extras import CORE, need
from matchkernel.storage.memo import Memo

ENGINE = "engine"  # key of the name in settings and in the metadata of files
ARM = ("aarch64", "arm64")  # names of the machine
FILE = ".onnx"  # a file of `matchkernel export` can be given instead of a name
BATCH_VALUES = 2**20  # of the largest map of a batch, so that maps stay in the cache: 32 patches of the paper's network
# Where a file may have tensors besides itself: nowhere, instead of in the working directory.
NO_OTHER_FILES = ("session.model_external_initializers_file_folder_path", os.path.join(os.devnull, "none"))  # noqa: PTH118
KEPT_OPEN = 4  # engines, so that describing a few patches again and again does not open them each time
STATE, PATCH_SIZE = "state_sha256", "patch_size"  # in the metadata of a file: what it was made from and for
LARGEST = "largest_value"  # the same, in int8: normalised values beyond it are clipped


class Engine(Protocol):
    """Computes the descriptors of one model at one patch size."""

    name: str  # one of ENGINES, recorded in every output
    settings: dict[str, str]  # what determines the rows besides the weights: the name as `engine`, a digest if any
    size: int  # side of the patches
    device: str  # where patches must lie, as torch names it: "cpu", "cuda:0"
    dtype: str  # of the patches and of the rows: "float32" or "float64"
    batch_pixels: int  # pixels per batch that suit it
    takes_one_core: bool  # whether a call keeps only one core busy, so that calls in several threads are faster

    def __call__(self, patches: Any) -> Any:
        """(b, 1, N, N) patches, finite and not constant -> (b, D) unit rows; arrays of numpy, or tensors of torch."""
        ...


class UnfitError(ArgumentError):
    """An engine cannot compute this model, or not here; `auto` then takes another one."""


def check_name(engine: str) -> None:
    """Refuse what is neither the name of an engine nor an ONNX file."""
    if engine not in ENGINES and not str(engine).lower().endswith(FILE):
        raise ArgumentError(f"engine must be one of {', '.join(ENGINES)} or an .onnx file, got {engine!r}")


def runs_on_cpu(engine: str) -> bool:
    """Whether an engine runs on a CPU only: those of ONNX Runtime, by name or by file."""
    return engine in (ONNX, INT8) or engine.lower().endswith(FILE)


class OnnxEngine:
    """A session of ONNX Runtime that computes in the thread that calls it.

    Pieces in several threads at once are described faster than one after the other by a session with as many threads.

    Args:
        content: bytes of an ONNX file.
        size: side of the patches.
        name: of the engine.
        source: what to call the file in messages.
        batch_pixels: pixels per batch.
        digest: recorded in the settings, if rows depend on more than the weights and the engine.
        exact: an ONNX file in float32, and the largest normalised value that `content` holds: patches with larger ones,
            such as a single bright pixel, are described by the former.
    """

    device, dtype, takes_one_core = "cpu", "float32", True

    def __init__(
        self,
        content: bytes,
        size: int,
        name: str,
        source: str,
        batch_pixels: int = BATCH_VALUES // 32,
        digest: str | None = None,
        exact: tuple[bytes, float] | None = None,
    ) -> None:
        self.content, self.size, self.name, self.source, self.exact = content, size, name, source, exact
        self.batch_pixels = batch_pixels
        self.settings = {ENGINE: name, **({"engine_sha256": digest} if digest else {})}
        self.session = open_session(content, source)

    def __call__(self, patches: Any) -> np.ndarray:
        """The rows of patches, of numpy or of torch."""
        values = np.asarray(patches)
        rows: np.ndarray = self.session.run([OUTPUT], {INPUT: values})[0]
        if self.exact is not None and (is_beyond := peaks(values) > self.exact[1]).any():
            rows[is_beyond] = self._in_float32.run([OUTPUT], {INPUT: values[is_beyond]})[0]
        return rows

    @cached_property
    def _in_float32(self) -> Any:
        """The session for patches that are beyond int8, opened when one comes."""
        assert self.exact is not None
        return open_session(self.exact[0], self.source)

    def __getstate__(self) -> dict[str, Any]:  # a session cannot be sent to another process
        return {name: value for name, value in vars(self).items() if name not in ("session", "_in_float32")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.session = open_session(self.content, self.source)


def peaks(patches: np.ndarray) -> np.ndarray:
    """(b,) largest absolute value of each patch when it is normalised."""
    flat = patches.reshape(len(patches), math.prod(patches.shape[1:]))
    mean, low, high = flat.mean(1), flat.min(1, initial=np.inf), flat.max(1, initial=-np.inf)
    with np.errstate(all="ignore"):  # of patches without content, whose rows are not used
        squares, of_mean = np.einsum("ij,ij->i", flat, flat), flat.shape[1] * mean**2
        squares -= of_mean
        faint = np.flatnonzero(squares < 1e-3 * of_mean)  # most digits have cancelled
        some = flat[faint] - mean[faint, None]
        squares[faint] = np.einsum("ij,ij->i", some, some)
        return np.asarray(np.maximum(high - mean, mean - low) / np.sqrt(squares / (flat.shape[1] - 1)))


def open_onnx(weights: Weights, engine: str, size: int) -> OnnxEngine:
    """The engine of this name on a CPU; those opened last are kept, by the digest of what they compute.

    Args:
        weights: of the descriptor.
        engine: "onnx"; "onnx-int8"; an .onnx file that `matchkernel export` made from these weights; "auto": onnx-int8
            if the package has int8 ranges for these weights, otherwise onnx.
        size: side of the patches.
    """
    if engine == INT8:
        return _open_int8(weights, size)
    if engine not in (AUTO, ONNX):
        return _open_file(Path(engine), weights, size)
    if engine == AUTO:
        with suppress(UnfitError, WeightsError):  # none for these weights, or a damaged file
            return _open_int8(weights, size)  # the engine that is used is named in every output
    if weights.kind == "F64":
        raise UnfitError(f"engine {ONNX} computes in float32, these weights are float64: use engine torch")
    _check_runtime()
    return _opened(weights, size, None, key=(weights.name, weights.state_sha256, size))


def _open_int8(weights: Weights, size: int) -> OnnxEngine:
    """The descriptor in int8, its graph made from the weights and from the ranges the package has for exactly these."""
    path = ranges_file(weights.name)
    if not path.is_file():
        raise UnfitError(
            f"the package has no int8 ranges for {weights.name}: make a file with `matchkernel export --int8`, "
            "and give it as the engine"
        )
    ranges = Ranges.read(path)
    _check_fits(path, weights, size, ranges.state_sha256, str(ranges.patch_size))
    _check_runtime()
    form = platform.machine()  # of the graph
    return _opened(weights, size, ranges, key=(weights.name, weights.state_sha256, size, ranges.sha256, form))


def _open_graph(weights: Weights, size: int, ranges: Ranges | None) -> OnnxEngine:
    """The descriptor in float32, or in int8 with these ranges."""
    folded, batch = fold(weights, size), batch_pixels(weights.config)
    exact = descriptor_file(folded, {})
    if ranges is None:
        return OnnxEngine(exact, size, ONNX, f"the graph of {weights.name}", batch)
    content, source = descriptor_file(folded, {}, ranges.limits, platform.machine().lower() in ARM), "the int8 graph of"
    limit = ranges.limits.patches
    return OnnxEngine(content, size, INT8, f"{source} {weights.name}", batch, ranges.sha256, (exact, limit))


_opened = Memo(_open_graph, KEPT_OPEN)


def batch_pixels(config: DescriptorConfig) -> int:
    """Pixels of patches per batch, so many that the largest map of the network has BATCH_VALUES values."""
    step, largest = 1, 0.0  # values per pixel of the patch
    for _, outputs, stride in config.convolutions:
        step *= stride
        largest = max(largest, outputs / step**2)
    return int(BATCH_VALUES / largest)


def ranges_file(name: str) -> Path:
    """The file of int8 ranges of a model of the package."""
    return SHIPPED / f"{Path(name).name}.int8.json"


def _open_file(path: Path, weights: Weights, size: int) -> OnnxEngine:
    """A file made by `matchkernel export` from exactly these weights; any other is refused."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror or error})") from None
    engine = OnnxEngine(content, size, ONNX, str(path), batch_pixels(weights.config))
    found = engine.session.get_modelmeta().custom_metadata_map
    _check_fits(path, weights, size, found.get(STATE), found.get(PATCH_SIZE))
    engine.name = found.get(ENGINE, ONNX)
    with suppress(ValueError):  # files of earlier versions do not say
        engine.exact = descriptor_file(fold(weights, size), {}), float(found.get(LARGEST, ""))
    _try(engine, path, weights.config.D or 0)
    digest = found.get("content_sha256") or hashlib.sha256(content).hexdigest()  # earlier versions recorded one
    engine.settings = {ENGINE: engine.name, "engine_sha256": digest}
    return engine


def _try(engine: OnnxEngine, path: Path, D: int) -> None:
    """Refuse a file whose metadata are those of these weights, but whose rows are not."""
    if engine.name not in (ONNX, INT8):
        raise WeightsError(f"{path}: names an engine that does not exist, {engine.name[:40]!r}; export it again")
    patches = np.random.default_rng(0).random((2, 1, engine.size, engine.size), np.float32)
    try:
        rows = np.asarray(engine(patches))
        is_good = rows.shape == (2, D) and np.abs(np.linalg.norm(rows, axis=1) - 1).max() < UNIT_WITHIN
    except Exception:  # onnxruntime's own classes, which are not exported under stable names
        is_good = False
    if not is_good:
        raise WeightsError(f"{path}: does not compute rows of {D} numbers and of length 1; export it again")


def _check_fits(path: Path, weights: Weights, size: int, state_sha256: str | None, patch_size: str | None) -> None:
    if state_sha256 != weights.state_sha256:
        raise UnfitError(f"{path}: made from other weights than {weights.name}; make it again")
    if patch_size != str(size):
        raise UnfitError(f"{path}: describes patches of {patch_size} px, got {size} px")


def open_session(content: bytes, source: str, threads: int = 1) -> Any:
    """A session, by default one that computes in the thread that calls it; an unusable file is refused in one line."""
    runtime = _check_runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # errors become exceptions
    try:
        options.add_session_config_entry(*NO_OTHER_FILES)
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own classes, which are not exported under stable names
        reason = " ".join(str(error).split())[:120]
        raise WeightsError(
            f"{source}: cannot be used by onnxruntime {runtime.__version__} ({reason});"
            " if it is older than 1.22: pip install --upgrade onnxruntime"
        ) from None


def _check_runtime() -> Any:
    """The module onnxruntime, or a one-line error."""
    runtime = need("onnxruntime", CORE, "describing on a CPU")
    if not hasattr(runtime, "SessionOptions"):
        raise MissingExtraError("onnxruntime is installed but incomplete: pip install --force-reinstall onnxruntime")
    return runtime


def describe_patches(
    patches: np.ndarray, size: int, dtype: str, compute: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """(b, D) rows and (b,) validity of patches; the row of an invalid one is zeros.

    Args:
        patches: (b, 1, N, N) bytes, or floats of the type `dtype`.
        size: of the patches that `compute` takes.
        dtype: "float32" or "float64".
        compute: (b, 1, size, size) floats to (b, D) unit rows, such as an engine.
    """
    values, good = prepare_patches(patches, size, dtype)
    rows = compute(values)
    squares = np.einsum("ij,ij->i", rows, rows)  # 1, unless a row is zeros or not finite
    good &= (squares > 0) & (squares < np.inf)
    return rows if good.all() else np.where(good[:, None], rows, rows.dtype.type(0)), good


def prepare_patches(patches: np.ndarray, size: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Floats of the size that an engine takes, and which patches have content."""
    side, good = patches.shape[-1], has_content(patches)
    if patches.dtype != np.uint8:
        values = np.where(good[:, None, None, None], patches, patches.dtype.type(0))  # keeps NaN out of the network
    elif side == 2 * size:
        values = _halved_bytes(patches).astype(dtype, copy=False)
    else:
        values = patches.astype(dtype)
    if values.shape[-1] != size:
        matrix = _resize_matrix(side, size, dtype)
        values = matrix @ values @ matrix.T
    if side != size:  # a fine checkerboard becomes rounding noise when resized
        good &= has_content(values, 16 * float(np.finfo(dtype).eps))
    return values, good


def has_content(patches: np.ndarray, relative: float = 0.0) -> np.ndarray:
    """(b,) whether a patch is finite, not constant, and its values small enough to sum their squares."""
    flat = patches.reshape(len(patches), math.prod(patches.shape[1:]))
    low, high = flat.min(1), flat.max(1)
    if patches.dtype == np.uint8:
        return np.asarray(low < high)
    with np.errstate(invalid="ignore", over="ignore"):
        largest = np.maximum(np.abs(high), np.abs(low))
        limit = (float(np.finfo(patches.dtype).max) / flat.shape[1]) ** 0.5 / 2
        return np.asarray((largest < limit) & (high - low > relative * largest))


def _halved_bytes(patches: np.ndarray) -> np.ndarray:
    """The resized patches of half the side, equal to the last bit, in a tenth of the time."""
    pairs = np.ascontiguousarray(patches).view(np.uint16)  # two neighbours in a row
    sums = (pairs & 255) + (pairs >> 8)
    return (sums[..., 0::2, :] + sums[..., 1::2, :]).astype(np.float32) * np.float32(0.25)


@cache
def _resize_matrix(old: int, new: int, dtype: str) -> np.ndarray:
    return resize_weights(old, new).astype(dtype)


def resize_weights(old: int, new: int) -> np.ndarray:
    """(new, old) float64 matrix that resizes one axis; every row sums to 1.

    By the exact mean over the area of a new pixel, or by linear interpolation to enlarge. Pixels are unit squares and
    the borders of the patch stay in place. Halving the side takes the mean of 2 x 2 pixels, as HardNet does from 64 to
    32; with a non-integer ratio (65 to 32), partly covered pixels count in part.
    """
    scale = old / new
    left = np.arange(new)[:, None] * scale
    pixel = np.arange(old)
    if new <= old:
        overlap = np.minimum(left + scale, pixel + 1) - np.maximum(left, pixel)
        return np.maximum(overlap, 0) / scale
    # Outside the outermost pixel centres, their values are repeated.
    centre = np.clip(left + scale / 2 - 0.5, 0, old - 1)
    return np.maximum(1 - np.abs(centre - pixel), 0)
