"""ONNX Runtime on a CPU: float32, or int8 with ranges that were calibrated for exactly these weights."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.errors import FileError, MissingExtraError, WeightsError
from matchkernel.runtime.card import SHIPPED
from matchkernel.runtime.config import DescriptorConfig
from matchkernel.runtime.engine import AUTO, ENGINE, INT8, ONNX, UnfitError
from matchkernel.runtime.int8 import Ranges, int8_file
from matchkernel.runtime.onnx_graph import INPUT, OUTPUT, float_file
from matchkernel.runtime.weights import FoldedNetwork, Weights, fold
from matchkernel.storage.extras import CORE, need

BATCH_VALUES = 2**20  # of the largest map of a batch, so that maps stay in the cache: 32 patches of the paper's network
STATE, PATCH_SIZE = "state_sha256", "patch_size"  # in the metadata of a file: what it was made from and for


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
    ) -> None:
        self.content, self.size, self.name, self.source = content, size, name, source
        self.batch_pixels = batch_pixels
        self.settings = {ENGINE: name, **({"engine_sha256": digest} if digest else {})}
        self.session = open_session(content, source)

    def __call__(self, patches: Any) -> np.ndarray:
        """The rows of patches, of numpy or of torch."""
        rows: np.ndarray = self.session.run([OUTPUT], {INPUT: np.asarray(patches)})[0]
        return rows

    def __getstate__(self) -> dict[str, Any]:  # a session cannot be sent to another process
        return {name: value for name, value in vars(self).items() if name != "session"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.session = open_session(self.content, self.source)


def open_onnx(weights: Weights, engine: str, size: int) -> OnnxEngine:
    """The engine of this name on a CPU.

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
        try:
            return _open_int8(weights, size)
        except (UnfitError, WeightsError):  # none for these weights, or a damaged file
            pass  # the engine that is used is named in every output
    check_kind(weights.kind)
    return open_float(fold(weights, size), weights.name)


def check_kind(kind: str) -> None:
    """Refuse weights of a kind that float32 cannot hold."""
    if kind == "F64":
        raise UnfitError(f"engine {ONNX} computes in float32, these weights are float64: use engine torch")


def open_float(network: FoldedNetwork, name: str) -> OnnxEngine:
    """A folded descriptor of this name in float32."""
    return OnnxEngine(float_file(network, {}), network.size, ONNX, f"the graph of {name}", batch_pixels(network.config))


def _open_int8(weights: Weights, size: int) -> OnnxEngine:
    """The descriptor in int8, its graph made from the weights and from the ranges the package has for exactly these."""
    path = ranges_file(weights.name)
    if not path.is_file():
        raise UnfitError(no_ranges(weights.name))
    ranges = Ranges.read(path)
    _check_fits(path, weights, size, ranges.state_sha256, str(ranges.patch_size))
    content, source = int8_file(fold(weights, size), ranges.limits, {}), f"the int8 graph of {weights.name}"
    return OnnxEngine(content, size, INT8, source, batch_pixels(weights.config), ranges.sha256)


def no_ranges(name: str) -> str:
    """The message about a model without int8 ranges."""
    return (
        f"the package has no int8 ranges for {name}: make a file with `matchkernel export --int8`, "
        "and give it as the engine"
    )


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
    digest = found.get("content_sha256") or hashlib.sha256(content).hexdigest()  # earlier versions recorded one
    engine.settings = {ENGINE: engine.name, "engine_sha256": digest}
    return engine


def _check_fits(path: Path, weights: Weights, size: int, state_sha256: str | None, patch_size: str | None) -> None:
    if state_sha256 != weights.state_sha256:
        raise UnfitError(f"{path}: made from other weights than {weights.name}; make it again")
    if patch_size != str(size):
        raise UnfitError(f"{path}: describes patches of {patch_size} px, got {size} px")


def open_session(content: bytes, source: str) -> Any:
    """A session that computes in the thread that calls it; a file that ONNX Runtime cannot use is one line."""
    runtime = need("onnxruntime", CORE, "describing on a CPU")
    if not hasattr(runtime, "SessionOptions"):
        raise MissingExtraError("onnxruntime is installed but incomplete: pip install --force-reinstall onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # errors become exceptions
    try:
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own classes, which are not exported under stable names
        reason = " ".join(str(error).split())[:120]
        raise WeightsError(
            f"{source}: cannot be used by onnxruntime {runtime.__version__} ({reason});"
            " if it is older than 1.22: pip install --upgrade onnxruntime"
        ) from None
