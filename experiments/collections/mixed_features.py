"""Features of the photos of a folder with several descriptors at the same keypoints, each extracted once and kept."""

from dataclasses import replace
from pathlib import Path

from matchkernel.collection.extract import extract_images
from matchkernel.geometry.detect import Detector
from matchkernel.photos.extract import describe_frames, open_describer, recorded_settings
from matchkernel.photos.features import load_features, save_features
from matchkernel.photos.files import FeatureFiles, open_features
from matchkernel.storage.images import read_gray


def features_of(images: Path, names: list[str], work: Path, models: list[str]) -> list[FeatureFiles]:
    """Features of every photo by every model, in work/<model>; keypoints are detected once, for the first model."""
    first, detector = work / models[0], Detector()
    missing = {name: images / name for name in names if not (first / f"{name}.npz").exists()}
    if missing:
        extract_images(missing, first, open_describer(models[0]), detector)
    for model in models[1:]:
        describer = open_describer(model)
        settings = recorded_settings(describer, detector)
        for name in names:
            target = work / model / f"{name}.npz"
            if not target.exists():
                found = load_features(first / f"{name}.npz")
                rows = describe_frames(read_gray(images / name), found.frames, describer, detector)
                save_features(replace(found, descriptors=rows, model=describer.name, settings=settings), target)
    return [open_features(work / model) for model in models]
