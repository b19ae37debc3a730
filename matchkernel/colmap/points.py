"""The points of a model: numbers that describe it, and a PLY file for viewers and trainers of splats."""

from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.colmap.model import read_points, read_reconstruction
from matchkernel.storage.files import replacing

# As the trainers of Gaussian splats expect it; viewers ignore normals of zeros.
PLY = np.dtype(
    [(name, "<f4") for name in ("x", "y", "z", "nx", "ny", "nz")] + [(name, "u1") for name in ("red", "green", "blue")]
)


def analyze(sparse: str | Path) -> dict[str, Any]:
    """Registered images, points, observations, mean track length and mean reprojection error (pixels) of a model."""
    points = list(read_points(sparse).values())
    observations = sum(point.images for point in points)
    errors = [point.error for point in points if point.error >= 0]
    return {
        "registered": len(read_reconstruction(sparse).images),
        "points": len(points),
        "observations": observations,
        "track_length": observations / max(1, len(points)),
        "error": float(np.mean(errors)) if errors else 0.0,
    }


def point_cloud(sparse: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """The points of a model in the order of their ids: (P, 3) places, (P, 3) uint8 colours.

    Args:
        sparse: folder of the model.

    Example:
        >>> from matchkernel.colmap.points import point_cloud
        >>> places, colours = point_cloud("workspace/sparse")  # doctest: +SKIP
    """
    points = [point for _, point in sorted(read_points(sparse).items())]
    places = np.array([point.place for point in points]).reshape(-1, 3)
    return places, np.array([point.colour for point in points], np.uint8).reshape(-1, 3)


def write_ply(path: str | Path, places: np.ndarray, colours: np.ndarray) -> None:
    """Write a point cloud as binary PLY, with normals of zeros, which some trainers of splats ask for.

    Args:
        path: the file.
        places: (P, 3).
        colours: (P, 3) uint8.

    Example:
        >>> import numpy as np
        >>> from pathlib import Path
        >>> from matchkernel.colmap.points import write_ply
        >>> write_ply("one.ply", np.zeros((1, 3)), np.full((1, 3), 255, np.uint8))
        >>> Path("one.ply").read_bytes().splitlines()[:3]
        [b'ply', b'format binary_little_endian 1.0', b'element vertex 1']
    """
    rows = np.zeros(len(places), PLY)
    for column, name in enumerate("xyz"):
        rows[name] = places[:, column]
    for column, name in enumerate(("red", "green", "blue")):
        rows[name] = colours[:, column]
    kinds = {"<f4": "float", "|u1": "uchar"}
    properties = "".join(f"property {kinds[PLY[name].str]} {name}\n" for name in PLY.names or ())
    head = f"ply\nformat binary_little_endian 1.0\nelement vertex {len(rows)}\n{properties}end_header\n"
    with replacing(path) as part:
        part.write_bytes(head.encode() + rows.tobytes())
