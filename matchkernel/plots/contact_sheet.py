"""Contact sheet of a patch set: rows are points, columns their patches."""

from collections.abc import Sequence

import numpy as np

GAP, BORDER = 4, 2
PAPER, MARK = (255, 255, 255), (213, 94, 0)


def draw_contact_sheet(
    rows: Sequence[np.ndarray], marked: Sequence[np.ndarray] | None = None, columns: int = 12
) -> np.ndarray:
    """Lay patches out, a row for each point; marked ones get an orange border.

    Args:
        rows: (k, N, N) uint8 patches of each point; those beyond `columns` are left out.
        marked: (k,) bool for each point.
        columns: of the sheet at most.

    Returns:
        (H, W, 3) uint8.
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
