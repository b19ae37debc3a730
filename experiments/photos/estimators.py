"""Compare estimators of the relative pose on the same matches."""

import argparse
import sys
from functools import cache
from pathlib import Path

import numpy as np

from matchkernel.evaluation.photos.evaluate import extract_image, threads
from matchkernel.evaluation.photos.methods import MethodSpec
from matchkernel.evaluation.photos.poses import relative_pose
from matchkernel.evaluation.photos.scenes import read_scene
from matchkernel.geometry.detect import Detector
from matchkernel.photos.features import load_features
from matchkernel.storage.files import json_digest

SCENES = {"validation": ("sceaux", "british_museum"), "training": ("castle", "brandenburg", "liberty", "lund_door", "fox")}
METHODS = {"validation": ("light-wide", "rootsift", "tiny", "aliked-n16+lightglue"), "training": ("rootsift", "light-wide")}


def cache_matches(data, work, group, method):
    spec = MethodSpec(method, Detector(keypoints=2000))
    opened = spec.open()
    for name in SCENES[group]:
        target = work / f"{name}.{method}.npz"
        if target.is_file():
            continue
        scene = read_scene(data / "scenes" / name, most_pairs=30 if group == "training" else None)
        folder = work / "features" / method / name
        folder.mkdir(parents=True, exist_ok=True)
        for image, path in scene.images.items():
            extract_image(spec, image, path, folder / f"{image}.npz")
        loaded = cache(lambda image: load_features(folder / f"{image}.npz"))
        out = {}
        for number, (a, b) in enumerate(scene.pairs):
            fa, fb = loaded(a), loaded(b)
            matches = opened.match(fa, fb)
            ia, ib = matches.indices.T
            ca, cb = scene.cameras[a], scene.cameras[b]
            R, t = relative_pose(ca, cb)
            rays = ca.rays(fa.keypoints[ia], fa.image_size), cb.rays(fb.keypoints[ib], fb.image_size)
            parts = dict(
                points=np.concatenate([fa.keypoints[ia], fb.keypoints[ib]], 1),
                rays=np.concatenate(rays, 1),
                focals=np.array([ca.focal(fa.image_size), cb.focal(fb.image_size)]),
                quality=np.column_stack([matches.distances, matches.ratios]),
                frames=np.column_stack([fa.frames.half_widths[ia], fa.frames.angles[ia], fb.frames.half_widths[ib], fb.frames.angles[ib]]),
                truth=np.column_stack([R, t]),
                sizes=np.array([*fa.image_size, *fb.image_size]),
            )
            out |= {f"{number}/{key}": value for key, value in parts.items()}
        np.savez(target, **out)
        print(group, method, name, len(scene.pairs), flush=True)


if __name__ == "__main__":
    work = Path("/tmp/estimators"); work.mkdir(exist_ok=True)
    with threads(1):
        for group, methods in METHODS.items():
            for method in methods:
                if len(sys.argv) < 2 or sys.argv[1] == f"{group}:{method}":
                    cache_matches(Path("/work/shared/data"), work, group, method)
