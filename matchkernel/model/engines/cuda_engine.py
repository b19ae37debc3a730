"""Half precision on an NVIDIA GPU: the folded network, captured once for each batch size and replayed.

Convolutions and matrix products are computed in float16 with sums in float32. What half precision cannot hold stays in
float32: mean and standard deviation of a patch, lengths of vectors, the rows themselves.

Measured on an H200 (benchmarks/results/describe_gpu.json): float16 is a quarter faster than bfloat16, and the captured
network is a fifth to a quarter faster than what torch.compile makes of it. cuDNN's convolution with bias and ReLU in
one matters most: with ReLU as an operation of its own less than half as many patches are described per second. Batches
of 16384 are 1 to 2 % faster than those of 8192, and take one and a half times the memory.
"""

import copy
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as nnf

from matchkernel.model.backbone import Backbone, normalize_patches
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.precision import unit_rows
from matchkernel.runtime.config import CUDA_HALF
from matchkernel.runtime.onnx import UnfitError

BATCH_PIXELS = 2**23  # 8192 patches of 32 x 32
SMALLER = 4  # a few patches are computed in a batch that is smaller by a power of this, padded
LEAST = 128  # patches of the smallest batch
CAPABILITY = (7, 0)  # of the first GPUs that are faster in half precision


class CudaHalfEngine:
    """A folded copy of the model in half precision.

    Args:
        model: the descriptor; it is not changed.
        size: side of the patches.
        device: a GPU; on a CPU the same operations are computed one by one, for tests.
        dtype: of convolutions and matrix products; float32 is for tests.
    """

    name, dtype, takes_one_core = CUDA_HALF, "float32", False

    def __init__(
        self, model: Descriptor, size: int, device: torch.device, *, dtype: torch.dtype = torch.float16
    ) -> None:
        self.size, self.device, self.batch_pixels = size, str(device), BATCH_PIXELS
        self._place = device
        self.settings = {"engine": self.name}
        folded = model.fold(device=device)
        self.model = (copy.deepcopy(folded) if folded is model else folded).to(dtype)
        if not all(bool(weight.isfinite().all()) for weight in self.model.parameters()):
            raise UnfitError(
                f"engine {CUDA_HALF} cannot compute {model.name}: a weight is too large for half precision"
            )
        self.fused = device.type == "cuda" and torch.version.hip is None
        self._batches: dict[int, _Captured] = {}
        self._lock = threading.Lock()  # the captured batches have one place each for patches and rows

    @torch.no_grad()
    def __call__(self, patches: Tensor) -> Tensor:
        """The rows of patches."""
        if self._place.type != "cuda":
            return self.rows(patches)
        largest = max(LEAST, self.batch_pixels // self.size**2)
        with self._lock, torch.cuda.device(self._place):
            parts = [self._batch(len(part), largest)(part) for part in patches.split(largest)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _batch(self, count: int, largest: int) -> "_Captured":
        """The smallest batch that has room for so many patches."""
        size = largest
        while size >= max(SMALLER * count, SMALLER * LEAST):
            size //= SMALLER
        if size not in self._batches:
            self._batches[size] = _Captured(self.rows, size, self.size, self._place)
        return self._batches[size]

    def rows(self, patches: Tensor) -> Tensor:
        """The rows of patches (b, 1, N, N), operation by operation, for a caller that captures a larger graph."""
        weight = next(self.model.parameters())
        normalized = normalize_patches(patches).to(weight.dtype)
        maps = [_feature_map(backbone, normalized, self.fused) for backbone in self.model.backbones]
        rows = self.model.embed(maps * (len(self.model.aggregations) // len(maps)))
        return unit_rows(rows.float())


class _Captured:
    """One batch of fixed size as a CUDA graph: hundreds of operations are started as one."""

    @torch.inference_mode(mode=False)  # patches are copied into it later, perhaps in another mode
    @torch.no_grad()
    def __init__(self, compute: Callable[[Tensor], Tensor], count: int, size: int, device: torch.device) -> None:
        self.patches = torch.zeros(count, 1, size, size, device=device)
        now, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)
        side.wait_stream(now)
        with torch.cuda.stream(side), _fastest_algorithms():
            for _ in range(2):  # libraries choose their algorithms and take their memory
                compute(self.patches)
        now.wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"), _fastest_algorithms():
            self.rows = compute(self.patches)
        self.done = torch.cuda.Event()

    def __call__(self, patches: Tensor) -> Tensor:
        stream = torch.cuda.current_stream()
        stream.wait_event(self.done)  # of another stream, if any
        self.patches[: len(patches)].copy_(patches)
        self.graph.replay()
        rows = self.rows[: len(patches)].clone()
        self.done.record(stream)
        return rows


def open_cuda_half(model: Descriptor, size: int, device: torch.device) -> CudaHalfEngine:
    """The engine of a model, made once for as long as its weights stay the same; capturing takes a second."""
    weight = next(model.parameters())
    if device.type != "cuda":
        raise UnfitError(f"engine {CUDA_HALF} runs on an NVIDIA GPU, not on {device}")
    if weight.dtype == torch.float64:
        raise UnfitError(f"engine {CUDA_HALF} computes in half precision, these weights are float64: use engine torch")
    if torch.cuda.get_device_capability(device) < CAPABILITY:
        raise UnfitError(f"this GPU is too old to be faster in half precision than engine torch: {device}")
    state = (size, str(device), *state_of(model))
    known = _OPENED.get(model)
    if known is None or known[0] != state:
        known = _OPENED[model] = (state, CudaHalfEngine(model, size, device))
    return known[1]


def state_of(model: Descriptor) -> list[object]:
    """What changes when weights do: places, versions, and distances, as edits of `.data` leave the others unchanged.

    Distances are from random points, which edits do not keep as they may keep lengths: signs, orders, rotations.
    """
    tensors = list(model.state_dict().values())
    weights = [tensor for tensor in tensors if tensor.is_floating_point()]
    point = _random_point(max(map(Tensor.numel, weights)), weights[0].device)
    differences = torch._foreach_sub(weights, [point[: weight.numel()].view(weight.shape) for weight in weights])
    distances = torch._foreach_norm(differences)
    versions = [0 if tensor.is_inference() else tensor._version for tensor in tensors]
    known = torch.stack([*map(Tensor.float, distances)]).cpu().numpy().tobytes()
    return [*(tensor.data_ptr() for tensor in tensors), *versions, known]


@lru_cache(maxsize=4)
def _random_point(size: int, device: torch.device) -> Tensor:
    """(size,) numbers, always the same, about as large as weights: rounding hides edits that are far smaller."""
    return (0.05 * torch.randn(size, generator=torch.Generator("cpu").manual_seed(0), device="cpu")).to(device)


_OPENED: "weakref.WeakKeyDictionary[Descriptor, tuple[tuple[object, ...], CudaHalfEngine]]" = (
    weakref.WeakKeyDictionary()
)


def _feature_map(network: nn.Module, values: Tensor, fused: bool) -> Tensor:
    """The map of a folded network, ReLU within the convolution before it."""
    assert isinstance(network, Backbone)
    rest = [layer for layer in network.layers if not isinstance(layer, nn.Identity)]
    while rest:
        layer = rest.pop(0)
        if isinstance(layer, nn.Conv2d) and rest and isinstance(rest[0], nn.ReLU):
            rest.pop(0)
            values = _rectified(layer, values, fused)
        else:
            values = layer(values)
    return values


def _rectified(layer: nn.Conv2d, values: Tensor, fused: bool) -> Tensor:
    assert not isinstance(layer.padding, str)
    options = (layer.stride, layer.padding, layer.dilation, layer.groups)
    if fused:
        return torch.cudnn_convolution_relu(values, layer.weight, layer.bias, *options)
    return nnf.conv2d(values, layer.weight, layer.bias, *options).relu_()


@contextmanager
def _fastest_algorithms() -> Iterator[None]:
    """Let cuDNN measure its algorithms instead of guessing."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=True):
        yield
