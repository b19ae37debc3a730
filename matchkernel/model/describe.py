"""Describe patches: any array of any length, in bounded memory, to an array or directly to a file."""

from functools import cache
from pathlib import Path
from typing import Literal, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.model.descriptors import Descriptor, check_model, check_patch_size
from matchkernel.model.engines.choose import open_engine
from matchkernel.model.precision import exact_type
from matchkernel.model.transfer import open_transfer
from matchkernel.runtime.onnx import Engine, describe_patches, resize_weights
from matchkernel.storage.files import replacing
from matchkernel.storage.work import Progress, in_threads, part_progress, spare_threads

Array = TypeVar("Array", np.ndarray, Tensor)
Device = str | torch.device | None

SOURCE_PIXELS = 2**24  # read at a time, if patches are much larger than the network's input
SLAB = 8192  # rows described before they are written to a file
CSV_FORMAT = {"<f4": "%.9g", "<f8": "%.17g"}  # enough digits to read back the same values


@overload
def describe(
    patches: Array,
    model: Descriptor,
    *,
    resize: bool = ...,
    batch_size: int | None = ...,
    device: Device = ...,
    engine: str | Engine = ...,
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
    device: Device = ...,
    engine: str | Engine = ...,
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
    device: Device = None,
    engine: str | Engine = "torch",
    out: Array | None = None,
    progress: Progress | None = None,
    return_valid: bool = False,
) -> Array | tuple[Array, Array]:
    """Describe patches: one unit row per patch, in the order given.

    A constant patch, or one with a NaN or infinite pixel, cannot be described: its row is zeros and its entry in the
    mask is False; the other rows are not affected. Gray values may have any range far above 1e-7, since every patch is
    normalised separately. The model is not changed, moved or switched to another mode: a copy is used, with
    BatchNorm folded into its weights (see Descriptor.fold). On a CPU
    half-precision models are computed in float32; their rows differ from the float32 model's only because the stored
    weights are rounded. Making the copy takes milliseconds; pass `model.fold()` to describe a few patches many times.

    Args:
        patches: (B, N, N) or (B, 1, N, N), numpy or torch, integers or floats (not bool), any strides; a memory map is
            read piece by piece. B = 0 is fine.
        model: the descriptor.
        resize: first resize patches to the model's patch size (see resize_patches); otherwise patches of another size
            are used as they are by the resolution-independent descriptors and refused by `fc` and `concat`.
        batch_size: patches per batch (default: chosen so that memory stays bounded at any patch size).
        device: where to compute: "cpu", "cuda", ..., "auto" for a GPU if there is one (default: the model's device).
        engine: what to compute with: "torch", the definition, or one that is faster and less exact (see open_engine),
            by name, or opened once to be used many times.
        out: (B, D) array or tensor to fill, such as a memory map (default: a new one).
        progress: called with the number of patches done and their total.
        return_valid: also return the mask.

    Returns:
        (B, D) float32 (float64 from a float64 model), numpy for numpy and torch for torch (on the patches' device);
        with `return_valid` also (B,) bool.

    Example:
        >>> import matchkernel, numpy as np
        >>> patches = np.random.default_rng(0).integers(0, 256, (5, 32, 32), dtype=np.uint8)
        >>> patches[3] = 7
        >>> rows, valid = matchkernel.describe(patches, matchkernel.load("tiny"), return_valid=True)
        >>> rows.shape, valid.tolist()
        ((5, 128), [True, True, True, False, True])
    """
    _check_patches(patches)
    _check_batch_size(batch_size)
    runner = _engine_for(patches, model, engine, resize, device)
    B, N = int(patches.shape[0]), int(patches.shape[-1])
    place, dtype = torch.device(runner.device), getattr(torch, runner.dtype)
    rows, valid = _outputs(patches, out, (B, model.config.D or 0), runner.dtype)
    largest = max(1, min(runner.batch_pixels // runner.size**2, SOURCE_PIXELS // N**2))
    step = batch_size or (min(largest, max(1, -(-B // spare_threads()))) if runner.takes_one_core else largest)
    transfer = open_transfer(patches, rows, valid, place, dtype, step)
    starts = range(0, B, step)
    threads = min(spare_threads(), len(starts)) if runner.takes_one_core else 1
    described = in_threads(lambda start: describe_piece(transfer.upload(start, start + step), runner), starts, threads)
    for start, (some, good) in zip(starts, described, strict=True):
        transfer.download(start, some, good)
        if progress is not None:
            progress(start + len(good), B)
    transfer.finish()
    return (rows, valid) if return_valid else rows


def describe_file(
    patches: np.ndarray,
    model: Descriptor,
    out: str | Path,
    *,
    resize: bool = False,
    batch_size: int | None = None,
    device: Device = None,
    engine: str | Engine = "torch",
    progress: Progress | None = None,
) -> np.ndarray:
    """Describe patches and write the descriptors to a file, atomically and without holding all of them in memory.

    Args:
        patches: as for describe.
        model: the descriptor.
        out: .npy, or .csv in the HPatches layout: no header, one row per patch, separated by commas.
        resize, batch_size, device, engine, progress: as for describe.

    Returns:
        (B,) bool, which patches were valid.
    """
    out = Path(out)
    if out.suffix.lower() not in (".npy", ".csv"):
        raise ArgumentError(f"descriptors are written as .npy or .csv, got {out.name!r}")
    dtype = "<f8" if next(model.parameters()).dtype == torch.float64 else "<f4"
    _check_patches(patches)
    runner = _engine_for(patches, model, engine, resize, device)  # once for all slabs
    valid = np.empty(len(patches), bool)
    # Rows are appended rather than written through a memory map: on a full disk that is an error, not a crash.
    with replacing(out) as part, part.open("wb") as file:
        if out.suffix.lower() == ".npy":
            header = {"descr": dtype, "fortran_order": False, "shape": (len(patches), model.config.D)}
            np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, max(len(patches), 1), SLAB):
            rows, valid[start : start + SLAB] = describe(
                patches[start : start + SLAB],
                model,
                resize=resize,
                batch_size=batch_size,
                device=device,
                engine=runner,
                progress=part_progress(progress, start, len(patches)),
                return_valid=True,
            )
            if out.suffix.lower() == ".npy":
                file.write(rows.astype(dtype).tobytes())
            else:
                np.savetxt(file, rows, fmt=CSV_FORMAT[dtype], delimiter=",")
    return valid


def _engine_for(
    patches: np.ndarray | Tensor, model: Descriptor, engine: str | Engine, resize: bool, device: Device
) -> Engine:
    check_model(model)
    N = int(patches.shape[-1])
    size = model.config.patch_size if resize and N else N
    check_patch_size(model.config, size)
    runner = open_engine(model, engine, size=size, device=device) if isinstance(engine, str) else engine
    if runner.size != size:
        raise ArgumentError(f"this engine was opened for {runner.size} px patches, got {size} px")
    return runner


def resize_patches(patches: Tensor, size: int) -> Tensor:
    """Resize square patches as `resize_weights` says.

    Args:
        patches: (B, 1, H, W) floats.
        size: new side.

    Returns:
        (B, 1, size, size).
    """
    rows, columns = (_resize_matrix(side, size, patches.dtype, patches.device) for side in patches.shape[-2:])
    return rows @ patches @ columns.T


@cache
def _resize_matrix(old: int, new: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.from_numpy(resize_weights(old, new)).to(exact_type(device)).to(device, dtype)


@torch.no_grad()
def describe_piece(piece: Tensor, runner: Engine) -> tuple[Tensor, Tensor]:
    """(b, D) rows and (b,) validity of (b, 1, N, N) bytes or floats of the engine's type, on its device."""
    if piece.device.type == "cpu":

        def compute(values: np.ndarray) -> np.ndarray:
            return np.asarray(runner(torch.from_numpy(values)))

        found = describe_patches(piece.numpy(), runner.size, runner.dtype, compute)
        return torch.from_numpy(found[0]), torch.from_numpy(found[1])
    values, good = _prepared(piece, runner.size, getattr(torch, runner.dtype))
    rows = runner(values)
    squares = torch.linalg.vecdot(rows, rows)  # 1, unless a row is zeros or not finite
    good &= (squares > 0) & (squares < torch.inf)
    return torch.where(good[:, None], rows, 0), good  # without waiting for the GPU


def _prepared(piece: Tensor, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Like prepare_patches, on a GPU."""
    side, good = piece.shape[-1], _has_content(piece)
    values = piece.to(dtype) if piece.dtype == torch.uint8 else torch.where(good[:, None, None, None], piece, 0)
    if side != size:
        values = resize_patches(values, size)
        good &= _has_content(values, 16 * torch.finfo(dtype).eps)
    return values, good


def _has_content(piece: Tensor, relative: float = 0.0) -> Tensor:
    """Like has_content, on a GPU."""
    flat = piece.flatten(1)
    low, high = flat.aminmax(dim=1)
    if piece.dtype == torch.uint8:
        return low < high
    largest = torch.maximum(high.abs(), low.abs())
    limit = (torch.finfo(piece.dtype).max / flat.shape[1]) ** 0.5 / 2
    return (largest < limit) & (high - low > relative * largest)


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


def _outputs(patches: Array, out: Array | None, shape: tuple[int, int], dtype: str) -> tuple[Array, Array]:
    """The rows to fill and the mask, of the same array type as the patches."""
    if out is not None:
        kind = Tensor if isinstance(patches, Tensor) else np.ndarray
        if not isinstance(out, kind):
            raise ArgumentTypeError(f"out must have the type of the patches, {kind.__name__}, got {type(out).__name__}")
        if tuple(out.shape) != shape:
            raise ArgumentError(f"out must have shape {shape}, got {tuple(out.shape)}")
        is_float = out.is_floating_point() if isinstance(out, Tensor) else out.dtype.kind == "f" and out.flags.writeable
        if not is_float:
            raise ArgumentTypeError(f"out must be a writable array of floats, got {out.dtype}")
    if isinstance(patches, Tensor):
        rows = torch.empty(shape, dtype=getattr(torch, dtype), device=patches.device) if out is None else out
        return rows, torch.empty(shape[0], dtype=torch.bool, device=patches.device)
    return np.empty(shape, dtype) if out is None else out, np.empty(shape[0], bool)
