"""Features of a collection as they lie on disk: a folder of .npz files, or a features.h5 in hloc's layout."""

from dataclasses import dataclass
from pathlib import Path

from matchkernel.errors import FileError
from matchkernel.photos.features import Features, load_features
from matchkernel.photos.hloc import image_names, read_features

H5_SUFFIXES = (".h5", ".hdf5")
SUFFIX = ".npz"


@dataclass(frozen=True)
class FeatureFiles:
    """The features that a place holds.

    Attributes:
        place: folder or .h5.
        names: of the images, sorted.
    """

    place: Path
    names: list[str]

    def load(self, name: str) -> Features:
        """The features of one image; without regions, as most networks write them, these are small squares."""
        if is_h5(self.place):
            return read_features(self.place, name, need_regions=False)
        return load_features(self.place / f"{name}{SUFFIX}")


def open_features(place: str | Path) -> FeatureFiles:
    """Look which images a folder of .npz files or an .h5 holds features of; none are refused."""
    place = Path(place)
    if is_h5(place):
        names = image_names(place)
    elif place.is_dir():
        paths = (path for path in place.rglob(f"*{SUFFIX}") if path.is_file() and not path.name.startswith("."))
        names = sorted(path.relative_to(place).as_posix().removesuffix(SUFFIX) for path in paths)
    else:
        reason = "is neither a folder nor an .h5" if place.exists() else "no such file or folder"
        raise FileError(f"{place}: {reason}; features are what `matchkernel extract` writes")
    if not names:
        raise FileError(f"{place}: contains no features")
    return FeatureFiles(place, names)


def is_h5(place: Path) -> bool:
    """Whether features at this place are one HDF5 file, by its name."""
    return place.suffix.lower() in H5_SUFFIXES
