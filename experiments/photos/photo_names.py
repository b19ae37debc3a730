"""Names beside the points of a chart."""

from typing import TYPE_CHECKING

from matplotlib.transforms import Bbox

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OFFSETS = [(6, 3), (6, -9), (-6, 3), (-6, -9), (6, 12), (6, -18), (-6, 12), (-6, -18), (6, 21), (-6, 21)]  # points


def write_names(axes: "Axes", places: dict[str, tuple[float, float]]) -> None:
    """Write names beside their points, where they cover no other name or point if there is such a place."""
    axes.figure.draw_without_rendering()
    points = axes.transData.transform(list(places.values()))
    taken: list[Bbox] = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in points]
    for name, place in places.items():
        tried = []
        for offset in OFFSETS:
            side = "left" if offset[0] > 0 else "right"
            text = axes.annotate(name, place, xytext=offset, textcoords="offset points", fontsize=8, ha=side)
            box = text.get_window_extent()
            tried.append((sum(box.overlaps(other) for other in taken), text, box))
            text.set_visible(False)
            if not tried[-1][0]:
                break
        _, text, box = min(tried, key=lambda one: one[0])
        text.set_visible(True)
        taken.append(box)
