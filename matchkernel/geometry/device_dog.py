"""DoG keypoints in torch, for a GPU: OpenCV's SIFT detector step by step, so that the same keypoints are found.

The octaves lie one after the other in flat tensors. Keypoints of all sizes are refined and oriented together, so that
the processor waits for the GPU only a few times in a photo.
"""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as nnf

from matchkernel.geometry.device_orientation import orientations_on
from matchkernel.geometry.dog import SearchImage
from matchkernel.storage.extras import need_opencv

# As OpenCV has them: levels of an octave, their first blur, that of photos, a border without keypoints, refinements.
LAYERS, SIGMA, PHOTO_SIGMA, BORDER, STEPS = 3, 1.6, 0.5, 5, 5
NOISE = 0.01  # gray values; where an image is flat, smaller differences are rounding, and all pixels might be extrema
FAR = 1e8  # pixels; steps so far end outside the image
PIXELS_AT_A_TIME, EXTREMA_AT_A_TIME = 2**23, 2**17  # about 500 MB

_one_photo = threading.Lock()  # at a time: it keeps a GPU busy, and its memory may hold no other


@dataclass(frozen=True)
class ScaleSpace:
    """The octaves of a photo in flat tensors."""

    dogs: Tensor  # LAYERS + 2 differences of blurred images of each octave
    blurred: Tensor  # images 1 to LAYERS of each octave
    sizes: list[tuple[int, int]]  # height and width of each octave
    starts: list[int]  # pixels of all octaves before each one, and of all

    def images(self, flat: Tensor, octave: int) -> Tensor:
        """(count, height, width) images of an octave in a flat tensor."""
        count = len(flat) // self.starts[-1]
        return flat[count * self.starts[octave] : count * self.starts[octave + 1]].view(count, *self.sizes[octave])


def dog_points_on(image: SearchImage, contrast: float, edge: float, device: "str | torch.device") -> np.ndarray:
    """The rows of dog.dog_points in another order, computed on a device; rounding may decide differently in few."""
    if 2 * min(image.gray.shape) <= 2 * BORDER:
        return np.zeros((0, 6))
    with _one_photo, torch.inference_mode(), torch.autocast(torch.device(device).type, enabled=False):
        space = _scale_space(torch.tensor(np.ascontiguousarray(image.gray), device=device))
        found = _keypoints(space, contrast, edge).cpu()
    rows = found.numpy().astype(np.float64)
    if image.mask is None:
        return rows
    x, y = (rows[:, :2] + 0.5).astype(np.int64).T
    return np.asarray(rows[image.mask[y, x] != 0])


def _scale_space(gray: Tensor) -> ScaleSpace:
    """Blurred images of the doubled photo, of its half and so on, while there can be keypoints; differences."""
    factor = 2 ** (1 / LAYERS)
    kernels = [_kernel(SIGMA * factor**level * math.sqrt(factor**2 - 1), gray.device) for level in range(LAYERS + 2)]
    image = _blur(_doubled(gray.float()), _kernel(math.sqrt(SIGMA**2 - (2 * PHOTO_SIGMA) ** 2), gray.device))
    sizes = [(image.shape[0], image.shape[1])]
    while min(sizes[-1]) // 2 > 2 * BORDER:
        sizes.append((sizes[-1][0] // 2, sizes[-1][1] // 2))
    starts = [0, *accumulate(height * width for height, width in sizes)]
    space = ScaleSpace(image.new_empty((LAYERS + 2) * starts[-1]), image.new_empty(LAYERS * starts[-1]), sizes, starts)
    for octave, (height, width) in enumerate(sizes):
        dogs, blurred = space.images(space.dogs, octave), space.images(space.blurred, octave)
        for level, kernel in enumerate(kernels):
            before, image = image, _blur(image, kernel)
            torch.sub(image, before, out=dogs[level])
            if level < LAYERS:
                blurred[level] = image
        image = blurred[-1, : height // 2 * 2 : 2, : width // 2 * 2 : 2]
    return space


def _doubled(gray: Tensor) -> Tensor:
    """Pixel (i, j) is the photo at (i / 2, j / 2), interpolated linearly; its border is repeated."""
    for _ in range(2):
        after = torch.cat([gray[1:], gray[-1:]])
        gray = torch.stack([gray, (gray + after) / 2], 1).flatten(0, 1).T
    return gray


@cache
def _kernel(sigma: float, device: torch.device) -> Tensor:
    """The kernel of OpenCV's GaussianBlur of floats."""
    cv2 = need_opencv()
    return torch.tensor(cv2.getGaussianKernel(round(8 * sigma + 1) | 1, sigma, cv2.CV_32F)[:, 0], device=device)


def _blur(image: Tensor, kernel: Tensor) -> Tensor:
    """Blur rows, then columns, mirrored at the border.

    Every row is a channel with its own kernel: for such convolutions torch uses float32 on every GPU, and no cuDNN,
    which would round to TF32 and look for an algorithm for each new size.
    """
    left, image = len(kernel) // 2, image[None, None]
    while left:  # again if the kernel is larger than the image
        step = min(left, image.shape[2] - 1, image.shape[3] - 1)
        image, left = nnf.pad(image, (step, step, step, step), mode="reflect"), left - step
    image = image[0, 0]
    for _ in range(2):
        kernels = kernel.expand(len(image), 1, 1, -1).contiguous()
        image = nnf.conv2d(image.contiguous()[None, :, None], kernels, groups=len(image))[0, :, 0].T
    return image.contiguous()


def _keypoints(space: ScaleSpace, contrast: float, edge: float) -> Tensor:
    """(K, 6) x, y, size, angle, response, octave of all keypoints."""
    octaves = [(start, *size) for start, size in zip(space.starts, space.sizes, strict=False)]
    table = torch.tensor(octaves, device=space.dogs.device)
    at = _extrema(space, max(math.floor(0.5 * contrast / LAYERS * 255), NOISE))
    octave = torch.bucketize(at, LAYERS * table[1:, 0], right=True)
    start, height, width = table[octave].unbind(1)
    row, column = (at - LAYERS * start) // width, (at - LAYERS * start) % width
    extrema = torch.stack([row // height + 1, row % height, column, start, height, width, octave], 1)
    parts = [_refined(space.dogs, part, contrast, edge) for part in extrema.split(EXTREMA_AT_A_TIME)]
    found, step, value = (torch.cat(column) for column in zip(*parts, strict=True))
    order = _first_of_each(found)
    found, step, value = found[order], step[order], value[order]

    layer, row, column, start, height, width, octave = found.unbind(1)
    level, y, x = (found[:, :3] + step).unbind(1)
    sigma, scale = SIGMA * torch.exp2(level / LAYERS), torch.exp2(octave.float() - 1)  # in the octave, of the octave
    code = ((octave - 1) & 255) | (layer << 8) | (((step[:, 0] + 0.5) * 255).round().long() << 16)
    rows = torch.stack([x * scale, y * scale, 2 * sigma * scale, sigma, value, code.float()], 1)
    places = torch.stack([LAYERS * start + (layer - 1) * height * width, height, width, row, column], 1)
    owner, angles = orientations_on(space.blurred, places, sigma)
    rows = rows[owner]
    rows[:, 3] = angles
    return rows


def _extrema(space: ScaleSpace, limit: float) -> Tensor:
    """Flat indices, in `blurred`, of differences farther from 0 than the limit and not nearer than any neighbour."""
    flags = torch.zeros(len(space.blurred), dtype=torch.bool, device=space.dogs.device)
    for octave, (height, width) in enumerate(space.sizes):
        dogs, found = space.images(space.dogs, octave), space.images(flags, octave)
        step = max(1, PIXELS_AT_A_TIME // width)
        for top in range(BORDER, height - BORDER, step):
            end = min(top + step, height - BORDER)
            near = dogs[:, top - 1 : end + 1, BORDER - 1 : width - BORDER + 1]
            value = near[1:-1, 1:-1, 1:-1]
            is_high = (value > limit) & (value >= _of_neighbours(near, torch.maximum))
            is_low = (value < -limit) & (value <= _of_neighbours(near, torch.minimum))
            found[:, top:end, BORDER : width - BORDER] = is_high | is_low
    return flags.nonzero()[:, 0]


def _of_neighbours(values: Tensor, pick: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The largest or smallest of the 3 x 3 x 3 values around each inner one."""
    for axis in range(3):
        first, second, third = (values.narrow(axis, start, values.shape[axis] - 2) for start in range(3))
        values = pick(pick(first, second), third)
    return values


@cache
def _stencils(device: torch.device) -> tuple[Tensor, Tensor]:
    """(27, 3) steps to neighbours and (27, 13) weights: of the value, 3 first and 3 x 3 second derivatives."""
    steps = np.stack(np.meshgrid(*[np.arange(-1, 2)] * 3, indexing="ij"), -1).reshape(27, 3)
    still = steps == 0

    def along(values: np.ndarray, *axes: int) -> np.ndarray:
        return np.asarray(values * np.delete(still, axes, 1).all(1))

    columns = [along(np.ones(27)), *(along(steps[:, a] / 2, a) for a in range(3))]
    for a, b in np.ndindex(3, 3):
        columns.append(along(1.0 - 3 * still[:, a] if a == b else steps[:, a] * steps[:, b] / 4, a, b))
    weights = torch.tensor(np.stack(columns, 1) / 255, dtype=torch.float32, device=device)
    return torch.tensor(steps, device=device), weights


def _refined(dogs: Tensor, extrema: Tensor, contrast: float, edge: float) -> tuple[Tensor, Tensor, Tensor]:
    """Those that Newton's steps end at, with the (K, 3) last steps, of less than half a pixel, and (K,) contrasts.

    Extrema are (K, 7): layer, row, column, start, height, width and number of the octave.
    """
    around, weights = _stencils(dogs.device)
    place, (start, height, width) = extrema[:, :3], extrema[:, 3:6].unbind(1)
    strides = torch.stack([height * width, width, torch.ones_like(width)], 1)
    near = (strides[:, None] * around).sum(2) + (LAYERS + 2) * start[:, None]
    lowest = place.new_tensor([1, BORDER, BORDER])
    highest = torch.stack([torch.full_like(width, LAYERS), height - BORDER - 1, width - BORDER - 1], 1)
    is_good = torch.ones_like(width, dtype=torch.bool)
    for _ in range(STEPS):
        values = dogs[near + (place * strides).sum(1, keepdim=True)]
        value, slope, curve = (values[:, :, None] * weights).sum(1).split([1, 3, 9], 1)
        curve = curve.view(-1, 3, 3)
        normals = torch.linalg.cross(curve.roll(-1, 1), curve.roll(-2, 1), dim=2)  # / volume: the inverse
        volume = (curve[:, 0] * normals[:, 0]).sum(1, keepdim=True)
        step = torch.where(volume == 0, 0, -(slope[:, :, None] * normals).sum(1) / volume)
        is_there = (step.abs() < 0.5).all(1)
        moved = place + step.nan_to_num(FAR).clamp(-FAR, FAR).round().long()
        is_good &= is_there | ((moved >= lowest) & (moved <= highest)).all(1)
        place = torch.where((is_good & ~is_there)[:, None], moved, place)
    contrasts = (value[:, 0] + (slope * step).sum(1) / 2).abs()
    (yy, yx), (_, xx) = curve[:, 1, 1:].unbind(1), curve[:, 2, 1:].unbind(1)
    product = yy * xx - yx * yx
    is_good &= is_there & (LAYERS * contrasts >= contrast)
    is_good &= (product > 0) & ((yy + xx) ** 2 * edge < (edge + 1) ** 2 * product)
    kept = is_good.nonzero()[:, 0]
    return torch.cat([place, extrema[:, 3:]], 1)[kept], step[kept], contrasts[kept]


def _first_of_each(found: Tensor) -> Tensor:
    """Indices of one of each place: several extrema may end at the same."""
    layer, row, column, start, height, width, _ = found.unbind(1)
    key, order = ((LAYERS + 2) * start + (layer * height + row) * width + column).sort()
    is_new = torch.ones_like(key, dtype=torch.bool)
    is_new[1:] = key[1:] != key[:-1]
    return order[is_new]
