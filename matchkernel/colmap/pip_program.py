"""COLMAP's stages as a program, by the package pycolmap: the same names and options as those of COLMAP's own program.

It is run as a script, in a process of its own, so that a crash or Ctrl-C inside COLMAP ends a stage and not the caller.
"""

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pycolmap

Options = dict[str, str]


def _import(options: Options) -> None:
    reader = pycolmap.ImageReaderOptions()
    for name in ("camera_model", "camera_params"):
        if value := options.get(f"ImageReader.{name}"):
            setattr(reader, name, value)
    is_single = options.get("ImageReader.single_camera") == "1"
    mode = pycolmap.CameraMode.SINGLE if is_single else pycolmap.CameraMode.AUTO
    with pycolmap.Database.open(options["database_path"]):
        pass  # makes it
    names = Path(options["image_list_path"]).read_text(encoding="utf-8").split("\n")
    pycolmap.import_images(
        options["database_path"], options["image_path"], mode, [name for name in names if name], reader
    )


def _verify(options: Options) -> None:
    """Verify every pair of the database that has matches."""
    verifier = pycolmap.GeometricVerifierOptions()
    verifier.num_threads = int(options.get("num_threads", -1))
    two_view = pycolmap.TwoViewGeometryOptions()
    two_view.ransac.random_seed = 0  # the same samples in each run
    pycolmap.geometric_verification(options["database_path"], verifier, two_view_geometry_options=two_view)


def _map(options: Options) -> None:
    pipeline = pycolmap.IncrementalPipelineOptions()
    pipeline.random_seed = 0
    _set(pipeline, options, INCREMENTAL)
    done, total = 1, _images(options["database_path"])

    def count() -> None:
        nonlocal done
        done = min(done + 1, total)
        _say(f"[{done}/{total}]")

    paths = (options[name] for name in ("database_path", "image_path", "output_path"))
    found = pycolmap.incremental_mapping(*paths, pipeline, initial_image_pair_callback=count, next_image_callback=count)
    enough = pipeline.mapper.abs_pose_min_num_inliers
    for number, model in found.items():  # some photos are placed by their neighbours alone, often wrongly
        placed = [image for image in model.images.values() if image.has_pose]
        weak = [image for image in placed if image.num_points3D < enough]
        if weak and len(placed) - len(weak) > 1:
            for image in weak:
                model.deregister_frame(image.frame_id)
            model.write(Path(options["output_path"]) / str(number))


def _map_globally(options: Options) -> None:
    pipeline = pycolmap.GlobalPipelineOptions()
    pipeline.random_seed = 0
    _set(pipeline, options, GLOBAL)
    out = Path(options["output_path"])
    found = pycolmap.global_mapping(options["database_path"], options["image_path"], out, pipeline)
    for number, model in found.items():
        model.extract_colors_for_all_images(options["image_path"])
        model.write(out / str(number))


def _undistort(options: Options) -> None:
    paths = (options[name] for name in ("output_path", "input_path", "image_path"))
    pycolmap.undistort_images(*paths, jpeg_quality=95)


def _extract(options: Options) -> None:
    with pycolmap.Database.open(options["database_path"]):
        pass
    pycolmap.extract_features(options["database_path"], options["image_path"], device=pycolmap.Device.cpu)


def _match(options: Options) -> None:
    pycolmap.match_exhaustive(options["database_path"], device=pycolmap.Device.cpu)


def _match_sequence(options: Options) -> None:
    pycolmap.match_sequential(options["database_path"], device=pycolmap.Device.cpu)


# Names of options, as COLMAP's program has them, and where pycolmap has them.
INCREMENTAL = {
    "Mapper.min_model_size": "min_model_size",
    "Mapper.ba_refine_focal_length": "ba_refine_focal_length",
    "Mapper.ba_refine_extra_params": "ba_refine_extra_params",
}
GLOBAL = {
    "GlobalMapper.min_model_size": "min_model_size",
    "GlobalMapper.ba_refine_focal_length": "mapper.bundle_adjustment.refine_focal_length",
    "GlobalMapper.ba_refine_extra_params": "mapper.bundle_adjustment.refine_extra_params",
}
# What runs each stage, what of pycolmap it needs, and its options that not every version of the program has.
STAGES: dict[str, tuple[Callable[[Options], None], str, tuple[str, ...]]] = {
    "feature_importer": (_import, "import_images", ()),
    "matches_importer": (_verify, "geometric_verification", ("num_threads",)),
    "mapper": (_map, "incremental_mapping", tuple(INCREMENTAL)),
    "global_mapper": (_map_globally, "global_mapping", tuple(GLOBAL)),
    "image_undistorter": (_undistort, "undistort_images", ()),
    "feature_extractor": (_extract, "extract_features", ()),
    "exhaustive_matcher": (_match, "match_exhaustive", ()),
    "sequential_matcher": (_match_sequence, "match_sequential", ()),
}


def _set(pipeline: Any, options: Options, places: dict[str, str]) -> None:
    """Set the numbers that are given, each at its place."""
    for name, place in places.items():
        if name in options:
            *inside, last = place.split(".")
            part = pipeline
            for attribute in inside:
                part = getattr(part, attribute)
            setattr(part, last, type(getattr(part, last))(int(options[name])))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _images(database: str) -> int:
    with closing(sqlite3.connect(database)) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM images").fetchone()[0])


def main(words: list[str]) -> None:
    """Run `STAGE --name value ...`; `help` names the stages that this pycolmap has, `STAGE --help` its options."""
    stage, *rest = words
    if stage == "help":
        _say(f"COLMAP {pycolmap.__version__} (pycolmap)")
        _say("\n".join(f"  {name}" for name, (_, needed, _) in STAGES.items() if hasattr(pycolmap, needed)))
    elif rest == ["--help"]:
        _say("\n".join(f"  --{name}" for name in STAGES[stage][2]))
    else:
        STAGES[stage][0]({name.removeprefix("--"): value for name, value in zip(rest[::2], rest[1::2], strict=True)})


if __name__ == "__main__":
    main(sys.argv[1:])
