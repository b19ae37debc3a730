"""The COLMAP that is installed, as package or as program, and whether it has what a reconstruction asks for."""

import importlib.util
import os
import re
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

from matchkernel.errors import ArgumentError, MissingExtraError
from matchkernel.storage.work import help_of, output_of

CHOICE = "MATCHKERNEL_COLMAP"  # environment variable: pycolmap or program; otherwise pycolmap where it can
PIP = "pip install 'matchkernel[colmap]' (in a clone: '.[colmap]')"
INSTALL = (
    f"COLMAP is not installed: {PIP} on Linux (x86), macOS and Windows, or its program: on Debian and Ubuntu"
    " apt-get install colmap (or see colmap.github.io/install.html)"
)
MAPPERS = {"incremental": "mapper", "global": "global_mapper"}  # what COLMAP calls them
NEEDED = ("feature_importer", "matches_importer", "mapper", "image_undistorter")  # stages
OLD_CAMERA_MODELS = (  # that every COLMAP has
    *("SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "OPENCV_FISHEYE", "FULL_OPENCV", "FOV"),
    *("SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE", "THIN_PRISM_FISHEYE"),
)
Command = tuple[str, ...]  # the words that run COLMAP; a stage and its options follow


def find_colmap(mapper: str = "incremental", camera_model: str = "SIMPLE_RADIAL") -> Command:
    """The command that runs COLMAP; one that is missing, or lacks this mapper or camera model, is an error."""
    choice = os.environ.get(CHOICE, "")
    if choice not in ("", "pycolmap", "program"):
        raise ArgumentError(f"{CHOICE} must be pycolmap or program, got {choice!r}")
    package = _package() if choice != "program" else None
    path = shutil.which("colmap") if choice != "pycolmap" else None
    commands = [command for command in (package, (path,) if path else None) if command]
    if not commands:
        raise MissingExtraError(INSTALL)
    problems = [_lacks(command, mapper, camera_model) for command in commands]
    for command, problem in zip(commands, problems, strict=True):
        if not problem:
            return command
    raise MissingExtraError(problems[0])


@cache
def _package() -> Command | None:
    """The command that runs pycolmap; None if it is missing, broken or too old."""
    if importlib.util.find_spec("pycolmap") is None:
        return None
    command = (sys.executable, "-P", str(Path(__file__).with_name("pip_program.py")))
    return command if all(_has_stage(command, stage) for stage in NEEDED) else None


def _lacks(command: Command, mapper: str, camera_model: str) -> str:
    """What this COLMAP lacks; empty if nothing."""
    if mapper != "incremental" and not _has_stage(command, MAPPERS[mapper]):
        return (
            f"the {mapper} mapper needs COLMAP 4 ({_version(command)}): {PIP} where there are wheels, or leave"
            " --mapper out for the usual one"
        )
    if camera_model not in OLD_CAMERA_MODELS and not _has_camera_model(command, camera_model):
        return f"camera model {camera_model} needs a newer COLMAP ({_version(command)})"
    return ""


def _has_stage(command: Command, stage: str) -> bool:
    return re.search(rf"^\s+{stage}\s*$", help_of(command), re.MULTILINE) is not None


def _has_camera_model(command: Command, model: str) -> bool:
    """Try a camera model on an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "names.txt")
        listed.touch()
        paths = ["--image_path", folder, "--import_path", folder, "--database_path", str(Path(folder, "empty.db"))]
        options = ["--ImageReader.camera_model", model, "--image_list_path", str(listed)]
        code, text = output_of(*command, "feature_importer", *paths, *options)
    return not code or not re.search(r"ExistsCameraModel|[Cc]amera model does not exist", text)


def _version(command: Command) -> str:
    version = re.search(r"COLMAP (\d[\w.]*)", help_of(command))
    return f"this one is {version[1]}" if version else " ".join(command)
