"""Cutting patches: our sampler against kornia's on the same keypoints of the same image, and how well they agree."""

from functools import partial

import kornia
import kornia.feature as KF
import numpy as np
import skimage.data
import torch
from timing import interleaved_medians, write_result

from matchkernel.geometry.conventions import MAGNIFICATION
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import extract_patches

SIZES = (32, 64)


def main() -> None:
    """Measure, print, write."""
    image = skimage.data.camera()
    frames = Detector(keypoints=0, contrast=0.04, magnification=MAGNIFICATION).detect(image).frames
    tensor = torch.from_numpy(image).float()[None, None]
    lafs = torch.from_numpy(np.concatenate([frames.shapes, frames.centers[..., None]], -1)).float()[None]
    result = {"keypoints": len(frames), "kornia": kornia.__version__, "sizes": {}}
    for size in SIZES:
        theirs = partial(KF.extract_patches_from_pyramid, tensor, lafs, PS=size)
        ours = partial(extract_patches, image, frames, size)
        seconds = interleaved_medians({"kornia": theirs, "matchkernel": ours})
        step = 2 * frames.half_widths / size
        ours_level, theirs_level = (np.maximum(rule(np.log2(step)), 0) for rule in (np.round, np.floor))
        difference = np.abs(ours().astype(float) - theirs()[0, :, 0].numpy()).mean((1, 2))
        row = {
            "microseconds_a_patch": {name: round(1e6 * time / len(frames), 1) for name, time in seconds.items()},
            "times_faster": round(seconds["kornia"] / seconds["matchkernel"], 1),
            "mean_gray_difference_same_level": round(float(difference[ours_level == theirs_level].mean()), 3),
            "share_same_level": round(float((ours_level == theirs_level).mean()), 3),
        }
        result["sizes"][size] = row
        print(f"{len(frames)} keypoints, {size} px: {row}")
    write_result("patch_cutting", result)


if __name__ == "__main__":
    main()
