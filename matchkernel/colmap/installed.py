"""The COLMAP that is installed: where it is, and whether it has what a reconstruction asks for."""

import re
import shutil
import tempfile
from pathlib import Path

from matchkernel.errors import MissingExtraError
from matchkernel.storage.work import help_of, output_of

INSTALL = "COLMAP is not installed; on Debian and Ubuntu: apt-get install colmap (or see colmap.github.io/install.html)"
MAPPERS = {"incremental": "mapper", "global": "global_mapper"}  # what COLMAP calls them
OLD_CAMERA_MODELS = (  # that every COLMAP has
    *("SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "OPENCV_FISHEYE", "FULL_OPENCV", "FOV"),
    *("SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE", "THIN_PRISM_FISHEYE"),
)


def find_colmap(mapper: str = "incremental", camera_model: str = "SIMPLE_RADIAL") -> str:
    """The path of COLMAP's program; one that is missing, or lacks this mapper or camera model, is an error."""
    program = shutil.which("colmap")
    if program is None:
        raise MissingExtraError(INSTALL)
    if mapper != "incremental" and not re.search(rf"^\s+{MAPPERS[mapper]}\s*$", help_of(program), re.MULTILINE):
        raise MissingExtraError(
            f"the {mapper} mapper needs COLMAP 4 ({_version(program)}); leave --mapper out for the usual one"
        )
    if camera_model not in OLD_CAMERA_MODELS and not _has_camera_model(program, camera_model):
        raise MissingExtraError(f"camera model {camera_model} needs a newer COLMAP ({_version(program)})")
    return program


def _has_camera_model(program: str, model: str) -> bool:
    """Try a camera model on an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        paths = ["--image_path", folder, "--import_path", folder, "--database_path", str(Path(folder, "empty.db"))]
        code, text = output_of(program, "feature_importer", *paths, "--ImageReader.camera_model", model)
    return not code or not re.search(r"ExistsCameraModel|[Cc]amera model does not exist", text)


def _version(program: str) -> str:
    version = re.search(r"COLMAP (\d[\w.]*)", help_of(program))
    return f"this one is {version[1]}" if version else program
