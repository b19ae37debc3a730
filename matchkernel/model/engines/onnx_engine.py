"""ONNX Runtime on a CPU: float32, or int8 with ranges that were calibrated for exactly these weights."""

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from matchkernel.errors import FileError, WeightsError
from matchkernel.model.card import SHIPPED
from matchkernel.model.config import DescriptorConfig
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.engines.engine import ENGINE, INT8, ONNX, UnfitError
from matchkernel.model.engines.int8 import Ranges, int8_model
from matchkernel.model.engines.onnx_graph import INPUT, OUTPUT, onnx_model
from matchkernel.model.weights import state_digest
from matchkernel.storage.extras import need

BATCH_VALUES = 2**20  # of the largest map of a batch, so that maps stay in the cache: 32 patches of the paper's network
# Names in the metadata of a file: digest of the weights it was made from, and of the file itself.
STATE, SEAL = "state_sha256", "content_sha256"
BROKEN_SEAL = b"0" * 64  # in place of the digest, while it is computed
SEAL_BYTES = b"\n" + bytes([len(SEAL)]) + SEAL.encode() + b"\x12\x40"  # as protobuf writes it
MAX_BYTES = 2**28  # of an ONNX file
CPU = torch.device("cpu")


class OnnxEngine:
    """A session of ONNX Runtime that computes in the thread that calls it.

    Pieces in several threads at once are described faster than one after the other by a session with as many threads.

    Args:
        content: bytes of an ONNX file.
        size: side of the patches.
        name: of the engine.
        source: what to call the file in messages.
        batch_pixels: pixels per batch.
        file_digest: recorded in the settings, if rows depend on how the file was made.
        session: one that was opened from these bytes.
    """

    device, dtype, takes_one_core = CPU, torch.float32, True

    def __init__(
        self,
        content: bytes,
        size: int,
        name: str,
        source: str,
        batch_pixels: int = BATCH_VALUES // 32,
        file_digest: str | None = None,
        session: Any = None,
    ) -> None:
        self.content, self.size, self.name, self.source = content, size, name, source
        self.batch_pixels = batch_pixels
        self.settings = {ENGINE: name, **({"engine_sha256": file_digest} if file_digest else {})}
        self._open(session)

    def __call__(self, patches: Tensor) -> Tensor:
        """The rows of patches."""
        return torch.from_numpy(self.session.run([OUTPUT], {INPUT: patches.numpy()})[0])

    def __getstate__(self) -> dict[str, Any]:  # a session cannot be sent to another process
        return {name: value for name, value in vars(self).items() if name != "session"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    def _open(self, session: Any = None) -> None:
        self.session = session or open_session(self.content, self.source)


def open_float(model: Descriptor, size: int) -> OnnxEngine:
    """The descriptor in float32, its graph made from the weights at once."""
    need("onnxruntime", "onnx", f"engine {ONNX}")
    if next(model.parameters()).dtype != torch.float32:
        raise UnfitError(f"engine {ONNX} computes in float32, these weights are {_type_of(model)}: use engine torch")
    proto = onnx_model(model.fold(size, CPU), size, {})
    return OnnxEngine(proto.SerializeToString(), size, ONNX, f"the graph of {model.name}", batch_pixels(model.config))


def open_int8(model: Descriptor, size: int) -> OnnxEngine:
    """The descriptor in int8, its graph made from the weights and from the ranges the package has for exactly these."""
    need("onnxruntime", "onnx", f"engine {INT8}")
    path = ranges_file(model.name)
    if not path.is_file() or model.is_folded:
        raise UnfitError(
            f"the package has no int8 ranges for {model.name}: make a file with `matchkernel export --int8`, "
            "and give it as the engine"
        )
    ranges = Ranges.read(path)
    _check_fits(path, model, size, (ranges.state_sha256, ranges.patch_size))
    proto = int8_model(model.fold(size, CPU), size, ranges.limits, {})
    content, source = proto.SerializeToString(), f"the int8 graph of {model.name}"
    return OnnxEngine(content, size, INT8, source, batch_pixels(model.config), ranges.sha256)


def batch_pixels(config: DescriptorConfig) -> int:
    """Pixels of patches per batch, so many that the largest map of the network has BATCH_VALUES values."""
    step, most = 1, 0.0  # values per pixel of the patch
    for _, outputs, stride in config.convolutions:
        step *= stride
        most = max(most, outputs / step**2)
    return int(BATCH_VALUES / most)


def ranges_file(name: str) -> Path:
    """The file of int8 ranges of a model of the package."""
    return SHIPPED / f"{Path(name).name}.int8.json"


def open_file(path: Path, model: Descriptor, size: int) -> OnnxEngine:
    """A file made by `matchkernel export` from exactly these weights; any other is refused."""
    need("onnxruntime", "onnx", "an ONNX file")
    content = read_onnx(path)
    sha256 = _check_seal(content, path)
    session = open_session(content, str(path))
    words = session.get_modelmeta().custom_metadata_map
    _check_fits(path, model, size, (words.get(STATE), int(words.get("patch_size", 0))))
    return OnnxEngine(content, size, words[ENGINE], str(path), batch_pixels(model.config), sha256, session)


def _check_fits(path: Path, model: Descriptor, size: int, made_for: tuple[str | None, int]) -> None:
    if made_for[0] != state_digest(model):
        raise UnfitError(f"{path}: made from other weights than {model.name}; make it again")
    if made_for[1] != size:
        raise UnfitError(f"{path}: describes patches of {made_for[1]} px, got {size} px")


def seal(content: bytes) -> bytes:
    """The bytes of an ONNX file whose metadata has BROKEN_SEAL, with the digest of these bytes in its place."""
    start = content.rindex(SEAL_BYTES + BROKEN_SEAL) + len(SEAL_BYTES)
    return content[:start] + hashlib.sha256(content).hexdigest().encode() + content[start + 64 :]


def _check_seal(content: bytes, path: Path) -> str:
    """The digest of a sealed file."""
    start = content.rfind(SEAL_BYTES) + len(SEAL_BYTES)
    if start < len(SEAL_BYTES):
        raise WeightsError(f"{path}: not an ONNX file that `matchkernel export` wrote, or damaged; export it again")
    found = hashlib.sha256(content[:start] + BROKEN_SEAL + content[start + 64 :]).hexdigest()
    if content[start : start + 64] != found.encode():
        raise WeightsError(f"{path}: damaged, its contents do not match its recorded sha256; export it again")
    return found


def read_onnx(path: Path) -> bytes:
    """The bytes of a file that may be an ONNX file."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror or error})") from None
    if len(content) > MAX_BYTES:
        raise WeightsError(f"{path}: larger than {MAX_BYTES:,} bytes, so not a descriptor")
    return content


def open_session(content: bytes, source: str) -> Any:
    """A session that computes in the thread that calls it; a file that ONNX Runtime cannot use is one line."""
    runtime = need("onnxruntime", "onnx", "an ONNX file")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # errors become exceptions
    try:
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own classes, which are not exported under stable names
        reason = " ".join(str(error).split())[:120]
        raise WeightsError(f"{source}: not a usable ONNX file ({reason})") from None


def _type_of(model: Descriptor) -> str:
    return str(next(model.parameters()).dtype).removeprefix("torch.")
