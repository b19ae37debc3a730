"""Pictures of training: the curves of a run, and augmented patches."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.errors import FileError
from matchkernel.plots.canvas import BLACK, BLUE, GRAY, GREEN, ORANGE, new_figure, save_png
from matchkernel.plots.contact_sheet import draw_contact_sheet
from matchkernel.storage.images import write_png
from matchkernel.training.augment import augmented, draw_photometric, draw_warps, sample_patches
from matchkernel.training.config import TrainingConfig
from matchkernel.training.feed import PHOTOMETRIC, WARPS, PairSampler, generator_at
from matchkernel.training.log import LOG, read_log
from matchkernel.training.sets import TrainingSet, open_sets

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAIRS, UPDATES = 5, 10  # shown by augmentation_picture
IDENTITY = torch.tensor([[1.0, 0, 0], [0, 1, 0]])


def training_picture(run: str | Path, out: str | Path) -> None:
    """Draw loss and validation of a run's folder, or of a log file, side by side."""
    panels = read_panels(run)
    figure = new_figure(11, 3.2)
    for axes, panel in zip(figure.subplots(1, 3), panels, strict=True):
        draw_panel(axes, panel)
    save_png(figure, out)


class Panel(NamedTuple):
    """A title, and (update, value) of each curve, the first in this colour."""

    title: str
    colour: str
    curves: dict[str, list[tuple[int, float]]]


def read_panels(run: str | Path) -> list[Panel]:
    """What is drawn of a run's folder, or of a log file."""
    path = Path(run) / LOG if Path(run).is_dir() else Path(run)
    entries = read_log(path)
    try:
        panels = drawn_panels(entries)
    except (KeyError, TypeError, ValueError):
        raise FileError(f"{path}: not the log of a training run") from None
    if not panels[0].curves["loss"]:
        raise FileError(f"{path}: contains no log lines yet")
    return panels


def drawn_panels(entries: list[dict[str, Any]]) -> list[Panel]:
    """What the log of a descriptor or of a matcher shows."""

    def curve(event: str, name: str, factor: float = 1.0) -> list[tuple[int, float]]:
        return [(e["step"], factor * float(e[name])) for e in entries if e.get("event") == event]

    loss = Panel("loss", BLACK, {"loss": curve("training", "loss")})
    if any("precision" in entry for entry in entries):
        shares = {name: curve("training", name, 100) for name in ("precision", "recall")}
        scores = {"the matcher": curve("validation", "maa10", 100), "ratio test": curve("ratio test", "maa10", 100)}
        others = Panel("training: candidates (%)", BLUE, shares), Panel("validation: mAA(10°) (%)", GREEN, scores)
        return [loss, *others]
    kinds = ("FPR@95", BLUE, "fpr95"), ("retrieval mAP", GREEN, "map")
    return [loss, *(Panel(f"validation: {t} (%)", c, {t: curve("validation", n, 100)}) for t, c, n in kinds)]


def augmentation_picture(config: TrainingConfig, out: str | Path) -> None:
    """Draw pairs of the training set, two rows each: the original patches, then what ten updates would see."""
    N, settings = config.model.patch_size, config.augmentation
    with TemporaryDirectory() as folder:
        synthetic = config.data.synthetic
        if synthetic is None:
            data = TrainingSet(open_sets(config.data.train), open_sets(config.data.mix))
        else:
            few = SyntheticSettings(min(synthetic.points, 50), synthetic.patches, seed=synthetic.seed)
            data = TrainingSet([build_synthetic(Path(folder) / "set", few)])
        pairs = min(PAIRS, int((np.bincount(data.labels) > 1).sum()))
        index = PairSampler(data.labels, pairs, config.seed).draw(1, pairs)
        source = torch.from_numpy(data.gather(index.ravel()))
    numbers = torch.arange(2 * pairs)
    columns = [sample_patches(source, numbers, IDENTITY.expand(2 * pairs, 2, 3), N)]
    for step in range(1, UPDATES + 1):
        warps = torch.from_numpy(draw_warps(settings, generator_at(config.seed, step, WARPS), pairs)).flatten(0, 1)
        drawn = None
        if settings.is_photometric:
            random = generator_at(config.seed, step, PHOTOMETRIC)
            drawn = torch.from_numpy(draw_photometric(settings, random, pairs)).flatten(0, 1)
        columns.append(augmented(source, numbers, warps, drawn, N, settings))
    sheet = torch.cat(columns, 1).round().byte().numpy()  # (2 pairs, columns, N, N): anchors, then positives
    sheet = sheet.repeat(max(1, 64 // N), -1).repeat(max(1, 64 // N), -2)
    rows = [sheet[k + side * pairs] for k in range(pairs) for side in range(2)]
    first = np.arange(UPDATES + 1) == 0
    write_png(out, draw_contact_sheet(rows, [first] * len(rows), columns=UPDATES + 1))


def draw_panel(axes: "Axes", panel: Panel, scored: int | None = None) -> None:
    """Loss or scores by update, one of which is marked (default: the last); that of the ratio test is a line across."""
    axes.set(title=panel.title, xlabel="update")
    many = max(map(len, panel.curves.values()), default=0)
    for (name, points), colour in zip(panel.curves.items(), (panel.colour, ORANGE), strict=False):
        steps, values = np.array(points).reshape(-1, 2).T
        if name == "ratio test" and len(points):
            axes.axhline(values[-1], color=colour, linewidth=1.5, linestyle="--", label=name)
        elif len(points):
            marker: dict[str, Any] = {"marker": "o", "markersize": 4} if panel.title.startswith("validation") else {}
            axes.plot(steps, values, color=colour, linewidth=1.5, label=name, **marker)
    if len(panel.curves) > 1 and many:
        axes.legend(frameon=False)
    elif many and panel.title != "loss":
        at = len(steps) - 1 if scored is None else int(np.searchsorted(steps, scored))
        text = f"{values[at]:.1f}" + ", scored" * (scored is not None)
        side = "left" if at == 0 else "right"
        above = 7 if values[at] >= values[max(at - 1, 0)] else -14
        axes.annotate(text, (steps[at], values[at]), xytext=(0, above), textcoords="offset points", ha=side)
        axes.plot(steps[at], values[at], "o", color=panel.colour, markersize=8 if scored is not None else 4)
    if not many:
        axes.text(0.5, 0.5, "no validation set", transform=axes.transAxes, ha="center", color=GRAY)
    axes.set_xlim(left=0)
    axes.margins(y=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=GRAY, alpha=0.25, linewidth=0.6)
