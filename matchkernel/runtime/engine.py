"""The engines: programs that compute the same descriptors, some faster and less exactly than others."""

from typing import Any, Protocol

from matchkernel.errors import ArgumentError

AUTO, TORCH, ONNX, INT8, CUDA_HALF = "auto", "torch", "onnx", "onnx-int8", "cuda-half"
ENGINES = (AUTO, TORCH, ONNX, INT8, CUDA_HALF)
ENGINE = "engine"  # key of the name in settings and in the metadata of files
FILE = ".onnx"  # a file of `matchkernel export` can be given instead of a name


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
