"""Contact sheets: rows are points of a set, columns their patches."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from matchkernel.data.hpatches import IMAGES, open_hpatches
from matchkernel.data.patch_set import open_patch_set
from matchkernel.errors import ArgumentError
from matchkernel.storage.files import check_output
from matchkernel.storage.images import write_png

GAP, BORDER = 4, 2
PAPER, MARK = (255, 255, 255), (213, 94, 0)


def write_contact_sheet(
    folder: str | Path,
    out: str | Path,
    *,
    points: int = 12,
    columns: int = 16,
    only_geometric: bool = False,
    seed: int = 0,
) -> None:
    """Draw random points of a set, one row per point; patches found by geometry get an orange border.

    In a set in the HPatches layout rows are patches, and columns are the strips.
    """
    check_output(out, folder, suffixes=(".png",))
    random = np.random.default_rng(seed)
    if any(Path(folder).glob("*/ref.png")):
        write_png(out, draw_contact_sheet(_strips(folder, points, random), columns=columns))
        return
    patch_set = open_patch_set(folder)
    geometric = np.asarray(patch_set.columns.get("geometric", np.zeros(len(patch_set), bool)))
    groups = patch_set.groups().members()
    if only_geometric:
        groups = [group for group in groups if geometric[group].any()]
    if not groups:
        raise ArgumentError(f"{folder}: has no point to show" + (" with geometric positives" if only_geometric else ""))
    chosen = [groups[k] for k in sorted(random.permutation(len(groups))[:points])]
    rows = [_balanced(group, geometric, columns) for group in chosen]
    write_png(out, draw_contact_sheet([patch_set.patches[r] for r in rows], [geometric[r] for r in rows], columns))


def draw_contact_sheet(
    rows: Sequence[np.ndarray], marked: Sequence[np.ndarray] | None = None, columns: int = 12
) -> np.ndarray:
    """(H, W, 3) uint8: patches laid out, one row per point; marked ones get an orange border.

    Args:
        rows: (k, N, N) uint8 patches of each point; those beyond `columns` are left out.
        marked: (k,) bool for each point.
    """
    side = rows[0].shape[-1] + 2 * BORDER if rows else 1
    columns = min(columns, max((len(patches) for patches in rows), default=1))
    sheet = np.empty((len(rows) * (side + GAP) + GAP, columns * (side + GAP) + GAP, 3), np.uint8)
    sheet[:] = PAPER
    for i, patches in enumerate(rows):
        for j, patch in enumerate(patches[:columns]):
            top, left = GAP + i * (side + GAP), GAP + j * (side + GAP)
            if marked is not None and marked[i][j]:
                sheet[top : top + side, left : left + side] = MARK
            inner = sheet[top + BORDER : top + side - BORDER, left + BORDER : left + side - BORDER]
            inner[:] = patch[..., None]
    return sheet


def _balanced(group: np.ndarray, geometric: np.ndarray, columns: int) -> np.ndarray:
    """Tracked patches first, then those found by geometry, with room for both."""
    found, tracked = group[geometric[group]], group[~geometric[group]]
    room = columns - min(len(found), columns // 2)
    return np.concatenate([tracked[:room], found])[:columns]


def _strips(folder: str | Path, points: int, random: np.random.Generator) -> list[np.ndarray]:
    patches = open_hpatches(folder)
    names = list(patches.counts)
    rows = []
    for number in range(points):
        name = names[number * len(names) // points]
        index = int(random.integers(patches.counts[name]))
        rows.append(np.stack([patches.read(name, image)[index] for image in IMAGES]))
    return rows
