"""Everything that can be given as an image, as gray or colour pixels: files, bytes, PIL images, arrays, tensors."""

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.storage.images import decode, open_image, to_colour, to_gray
from matchkernel.storage.upright import AS_STORED, Turn, turn_of

if TYPE_CHECKING:
    import PIL.Image
    import torch

ImageLike = Union[str, os.PathLike[str], bytes, np.ndarray, "PIL.Image.Image", "torch.Tensor"]
KINDS = "a file, its bytes, a PIL image, a numpy array or a torch tensor"
LUMA = np.array([19595, 38470, 7471], np.uint32)  # of 2^16: ITU-R 601-2, as Pillow weights colours
NAME = "the image"  # in messages, of one that has no file


def as_gray(image: ImageLike) -> np.ndarray:
    """(H, W) uint8 gray of an image, whatever it is given as.

    Args:
        image: a file or its bytes; a PIL image; an array (H, W), (H, W, 3) RGB or (H, W, 4) RGBA; a tensor (H, W) or
            (C, H, W) on any device. Numbers are uint8, uint16 (the lower byte is lost) or floats from 0 to 1.
            Transparency is dropped, and a header that says how to turn the picture is ignored: pixels are in the order
            of the file.

    Example:
        >>> import numpy as np
        >>> from matchkernel.data.sample_pair import FOLDER
        >>> from matchkernel.storage.pixels import as_gray
        >>> gray = as_gray((FOLDER / "left.png").read_bytes())
        >>> gray.shape, np.array_equal(as_gray(gray / 255), gray)
        ((500, 741), True)
    """
    pixels = _read(image, to_gray)
    return ((pixels[..., :3] @ LUMA + 2**15) >> 16).astype(np.uint8) if pixels.ndim == 3 else pixels


def as_colour(image: ImageLike) -> tuple[np.ndarray, Turn]:
    """(H, W, 3) uint8 RGB of an image in any form (see as_gray), or (H, W) if it is gray or very large.

    Also how to turn it for display, by its header.
    """
    turns = [AS_STORED]

    def read(opened: "PIL.Image.Image", name: str | Path) -> np.ndarray:
        pixels = to_colour(opened, name)
        turns.append(turn_of(opened))
        return pixels

    pixels = _read(image, read)
    return pixels[..., :3] if pixels.ndim == 3 else pixels, turns[-1]


def _read(image: Any, of_pillow: Any) -> np.ndarray:
    """(H, W) or (H, W, 3 or 4) uint8; what Pillow decodes or holds goes through `of_pillow`."""
    if isinstance(image, str | os.PathLike):
        with open_image(Path(image)) as opened:
            return np.asarray(of_pillow(opened, image))
    if isinstance(image, bytes | bytearray | memoryview):
        with decode(io.BytesIO(bytes(image)), NAME) as opened:
            return np.asarray(of_pillow(opened, NAME))
    if isinstance(image, np.ndarray):
        return _as_bytes(image)
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(image).__mro__]
    if "PIL.Image.Image" in names:
        with decode(image, NAME) as opened:
            return np.asarray(of_pillow(opened, NAME))
    if "torch.Tensor" in names:
        return _of_tensor(image)
    others = {"read": "; pass what its read() returns", "keypoints": "; features are matched by match_images"}
    hint = next((advice for attribute, advice in others.items() if hasattr(image, attribute)), "")
    raise ArgumentTypeError(f"an image must be {KINDS}, got {type(image).__name__}{hint}")


def _of_tensor(tensor: "torch.Tensor") -> np.ndarray:
    shape = tuple(tensor.shape)
    if len(shape) == 3:
        if shape[0] not in (1, 3, 4):
            raise ArgumentError(f"a tensor must be (C, H, W) with 1, 3 or 4 channels, or (H, W), got {shape}")
        tensor = tensor.permute(1, 2, 0)
    elif len(shape) != 2:
        raise ArgumentError(f"a tensor must be one image, (C, H, W) or (H, W), got {shape}; pass a batch one by one")
    try:
        if tensor.is_floating_point():
            tensor = tensor.float()  # numpy has no bfloat16
        pixels = tensor.detach().cpu().numpy()
    except (TypeError, RuntimeError, NotImplementedError):  # sparse, quantised, on no device
        raise ArgumentTypeError(f"a tensor must be an ordinary one, got {tensor.layout} on {tensor.device}") from None
    return _as_bytes(pixels)


def _as_bytes(image: np.ndarray) -> np.ndarray:
    """Numbers of any type that is taken as uint8, contiguous; one channel as (H, W)."""
    pixels = image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image
    if not pixels.size or (pixels.ndim != 2 and (pixels.ndim != 3 or pixels.shape[2] not in (3, 4))):
        is_first = image.ndim == 3 and image.shape[0] in (3, 4)
        hint = "; numpy.moveaxis(image, 0, -1) moves its channels to the end" if is_first else ""
        raise ArgumentError(
            f"an image must be (H, W) gray or (H, W, 3 or 4) RGB(A) and not empty, got {image.shape}{hint}"
        )
    if pixels.dtype.kind == "f":
        if not np.isfinite(pixels).all():
            raise ArgumentError("pixels must be finite; some are NaN or infinite")
        with np.errstate(over="ignore"):
            pixels = np.rint(pixels * np.float32(255))
        if pixels.min() < 0 or pixels.max() > 255:
            raise ArgumentError(
                f"pixels that are {image.dtype} must be from 0 to 1, found {image.min():.4g} to {image.max():.4g}; "
                "divide them by their maximum, or convert 0 to 255 to uint8"
            )
    elif pixels.dtype.newbyteorder("=") == np.uint16:
        pixels = pixels >> 8
    elif pixels.dtype != np.uint8:
        raise ArgumentTypeError(
            f"pixels must be uint8, uint16 or floats from 0 to 1, got {pixels.dtype}; "
            "convert 0 to 255 by .astype(numpy.uint8)"
        )
    return np.ascontiguousarray(pixels, np.uint8)
