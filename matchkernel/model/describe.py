"""Patches in, unit rows out: any array, any amount, in bounded memory."""

import copy
from typing import Literal, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.model.descriptors import Descriptor, check_patch_size
from matchkernel.model.devices import open_device
from matchkernel.model.precision import unit_rows
from matchkernel.model.resize import resize_patches
from matchkernel.storage.progress import Progress, adding

Array = TypeVar("Array", np.ndarray, Tensor)

# Into the network at a time. On a CPU 64 patches of 32 x 32, whose activations stay in the cache; 512 at a time take
# about twice as long (benchmarks/describe_speed.py). A GPU wants more to be kept busy.
CPU_PIXELS, GPU_PIXELS = 2**16, 2**21
SOURCE_PIXELS = 2**24  # read at a time, where patches are much larger than what the network takes


@overload
def describe(
    patches: Array,
    model: Descriptor,
    *,
    resize: bool = ...,
    batch_size: int | None = ...,
    device: str | torch.device | None = ...,
    out: Array | None = ...,
    progress: Progress | None = ...,
    return_valid: Literal[False] = ...,
) -> Array: ...
@overload
def describe(
    patches: Array,
    model: Descriptor,
    *,
    resize: bool = ...,
    batch_size: int | None = ...,
    device: str | torch.device | None = ...,
    out: Array | None = ...,
    progress: Progress | None = ...,
    return_valid: Literal[True],
) -> tuple[Array, Array]: ...
def describe(
    patches: Array,
    model: Descriptor,
    *,
    resize: bool = False,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    out: Array | None = None,
    progress: Progress | None = None,
    return_valid: bool = False,
) -> Array | tuple[Array, Array]:
    """Describe patches: one unit row each, in the order given.

    A constant patch, or one with a NaN or infinite pixel, has no description: its row is zeros and its entry in the
    mask False; the other rows are what they would be without it. Gray levels may have any range far above 1e-7, since
    every patch is normalised by itself. The model is neither changed, moved nor switched to another mode.

    Args:
        patches: (B, N, N) or (B, 1, N, N), numpy or torch, integers or floats (not bool), any strides; a memory map is
            read piece by piece. B = 0 is fine.
        model: the descriptor.
        resize: bring patches to the model's patch size first (see resize_patches); otherwise another size is used as
            it is by the resolution-free descriptors and refused by `fc` and `concat`.
        batch_size: patches at a time (default: so many that memory stays bounded at any patch size).
        device: where to compute: "cpu", "cuda", ..., "auto" for a GPU if there is one (default: where the model is).
        out: (B, D) array or tensor to fill, such as a memory map (default: a new one).
        progress: called with the number of patches done and their total.
        return_valid: return the mask too.

    Returns:
        (B, D) float32 (float64 from a float64 model), numpy for numpy and torch for torch (on the patches' device);
        with `return_valid` also (B,) bool.
    """
    _check_patches(patches)
    _check_batch_size(batch_size)
    if not isinstance(model, Descriptor):
        raise ArgumentTypeError(f"model must be a matchkernel Descriptor, got {type(model).__name__}")
    B, N = int(patches.shape[0]), int(patches.shape[-1])
    size = model.config.patch_size if resize and N else N
    runner = inference_copy(model.at_size(size), device)
    check_patch_size(model.config, size)
    weight = next(runner.parameters())
    dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
    rows, valid = _outputs(patches, out, (B, model.config.D or 0), dtype)
    most_pixels = CPU_PIXELS if weight.device.type == "cpu" else GPU_PIXELS
    step = batch_size or max(1, min(most_pixels // size**2, SOURCE_PIXELS // N**2))
    add = adding(progress, B)
    for start in range(0, B, step):
        piece = _piece(patches, start, start + step, weight.device, dtype)
        described, good = _describe_piece(piece, runner, size)
        _store(rows, start, described)
        _store(valid, start, good)
        add(len(piece))
    return (rows, valid) if return_valid else rows


@torch.no_grad()
def _describe_piece(piece: Tensor, runner: Descriptor, size: int) -> tuple[Tensor, Tensor]:
    good = _has_content(piece)
    piece = torch.where(good[:, None, None, None], piece, 0)  # keeps NaN out of the network
    if piece.shape[-1] != size:
        piece = resize_patches(piece, size)
        good &= _has_content(piece, 16 * torch.finfo(piece.dtype).eps)  # a fine checkerboard resizes to rounding noise
    rows = runner(piece)
    if rows.dtype != piece.dtype:
        rows = unit_rows(rows.to(piece.dtype))  # half precision rounds the length too
    good &= rows.isfinite().all(1) & (rows != 0).any(1)
    return torch.where(good[:, None], rows, 0), good


def _has_content(piece: Tensor, relative: float = 0.0) -> Tensor:
    """(b,) whether a patch is finite, not constant, and small enough for its squares to be summed."""
    flat = piece.flatten(1)
    low, high = flat.aminmax(dim=1)  # NaN if any pixel is
    largest = torch.maximum(high.abs(), low.abs())
    limit = (torch.finfo(piece.dtype).max / flat.shape[1]) ** 0.5 / 2
    return (largest < limit) & (high - low > relative * largest)


def inference_copy(model: Descriptor, device: str | torch.device | None = None) -> Descriptor:
    """The model itself where it can be used as it is, else a copy: in eval mode, on the device asked for."""
    if not isinstance(model, Descriptor):
        raise ArgumentTypeError(f"model must be a matchkernel Descriptor, got {type(model).__name__}")
    wanted = open_device(next(model.parameters()).device if device is None else device)
    moved = next(model.parameters()).device != wanted
    if moved or any(module.training for module in model.modules()):
        return copy.deepcopy(model).to(wanted).eval()
    return model


def _check_batch_size(batch_size: object) -> None:
    if batch_size is None:
        return
    if isinstance(batch_size, bool) or not isinstance(batch_size, int):
        raise ArgumentTypeError(f"batch_size must be a whole number, got {batch_size!r}")
    if batch_size < 1:
        raise ArgumentError(f"batch_size must be 1 or more, got {batch_size}")


def _check_patches(patches: object) -> None:
    if isinstance(patches, np.ndarray):
        if patches.dtype.kind not in "uif" or patches.dtype.itemsize > 8:
            raise ArgumentTypeError(f"patches must be integers or floats of at most 64 bits, got {patches.dtype}")
    elif not isinstance(patches, Tensor):
        raise ArgumentTypeError(f"patches must be a numpy array or a torch tensor, got {type(patches).__name__}")
    elif patches.is_complex() or patches.dtype == torch.bool:
        raise ArgumentTypeError(f"patches must be integers or floats, got {patches.dtype}")
    elif patches.layout != torch.strided or patches.device.type == "meta":
        raise ArgumentTypeError(f"patches must be an ordinary tensor, got {patches.layout} on {patches.device}")
    shape = tuple(patches.shape)
    if len(shape) not in (3, 4) or (len(shape) == 4 and shape[1] != 1) or shape[-1] != shape[-2]:
        raise ArgumentError(f"patches must have shape (B, N, N) or (B, 1, N, N), got {shape}")


def _outputs(patches: Array, out: Array | None, shape: tuple[int, int], dtype: torch.dtype) -> tuple[Array, Array]:
    """The rows to fill and the mask, of the same kind as the patches."""
    if out is not None:
        _check_out(out, isinstance(patches, Tensor), shape)
    if isinstance(patches, Tensor):
        rows = torch.empty(shape, dtype=dtype, device=patches.device) if out is None else out
        return rows, torch.empty(shape[0], dtype=torch.bool, device=patches.device)
    return np.empty(shape, _numpy_dtype(dtype)) if out is None else out, np.empty(shape[0], bool)


def _check_out(out: object, wants_tensor: bool, shape: tuple[int, int]) -> None:
    kind = Tensor if wants_tensor else np.ndarray
    if not isinstance(out, kind):
        raise ArgumentTypeError(f"out must be of the kind of the patches, {kind.__name__}, got {type(out).__name__}")
    if tuple(out.shape) != shape:
        raise ArgumentError(f"out must have shape {shape}, got {tuple(out.shape)}")
    is_float = out.is_floating_point() if isinstance(out, Tensor) else out.dtype.kind == "f"
    if not is_float or (isinstance(out, np.ndarray) and not out.flags.writeable):
        raise ArgumentTypeError(f"out must be floats that can be written, got {out.dtype}")


def _piece(patches: Array, start: int, stop: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(b, 1, N, N) floats on the device; from numpy a copy, since the source may be read-only or of any strides."""
    if isinstance(patches, Tensor):
        piece = patches[start:stop].detach().to(device)
    else:
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, and so invalid
            kind = np.uint8 if patches.dtype == np.uint8 else _numpy_dtype(dtype)  # bytes are the cheapest to move
            piece = torch.from_numpy(np.array(patches[start:stop], dtype=kind, order="C")).to(device)
    return piece.to(dtype).reshape(len(piece), 1, *piece.shape[-2:])


def _numpy_dtype(dtype: torch.dtype) -> type[np.floating]:
    return np.float64 if dtype == torch.float64 else np.float32


def _store(target: Array, start: int, values: Tensor) -> None:
    if isinstance(target, Tensor):
        target[start : start + len(values)] = values.to(target.device)
    else:
        target[start : start + len(values)] = values.cpu().numpy()
