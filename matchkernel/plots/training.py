"""Pictures of training: the curves of a run, and augmented patches."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import torch

from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.errors import FileError
from matchkernel.plots.canvas import BLACK, BLUE, GRAY, GREEN, new_figure, save_png
from matchkernel.plots.contact_sheet import draw_contact_sheet
from matchkernel.storage.images import write_png
from matchkernel.training.augment import augmented, draw_photometric, draw_warps, sample_patches
from matchkernel.training.config import TrainingConfig
from matchkernel.training.feed import PHOTOMETRIC, WARPS, PairSampler, generator_at
from matchkernel.training.log import LOG, read_log
from matchkernel.training.sets import TrainingSet, open_sets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAIRS, UPDATES = 5, 10  # shown by augmentation_picture
IDENTITY = torch.tensor([[1.0, 0, 0], [0, 1, 0]])


def training_picture(run: str | Path, out: str | Path) -> None:
    """Draw loss and validation of a run's folder, or of a log file."""
    path = Path(run) / LOG if Path(run).is_dir() else Path(run)
    entries = read_log(path)
    try:
        losses = [(e["step"], float(e["loss"])) for e in entries if e.get("event") == "training"]
        measured = [(e["step"], float(e["fpr95"]), float(e["map"])) for e in entries if e.get("event") == "validation"]
    except (KeyError, TypeError, ValueError):
        raise FileError(f"{path}: not the log of a training run") from None
    if not losses:
        raise FileError(f"{path}: contains no log lines yet")
    save_png(draw_training(np.array(losses), np.array(measured).reshape(-1, 3)), out)


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


def draw_training(losses: np.ndarray, validations: np.ndarray) -> "Figure":
    """Loss, FPR@95 and retrieval mAP, one panel each.

    Args:
        losses: (L, 2) step and mean loss.
        validations: (V, 3) step, FPR@95 and mAP, V may be 0.
    """
    figure = new_figure(11, 3.2)
    panels = figure.subplots(1, 3)
    panels[0].plot(losses[:, 0], losses[:, 1], color=BLACK, linewidth=1.5)
    panels[0].set(title="loss", xlabel="step")
    for axes, column, title, colour in ((panels[1], 1, "FPR@95 (%)", BLUE), (panels[2], 2, "retrieval mAP (%)", GREEN)):
        axes.set(title=f"validation: {title}", xlabel="step")
        if len(validations):
            axes.plot(validations[:, 0], 100 * validations[:, column], color=colour, marker="o", markersize=4)
            axes.annotate(
                f"{100 * validations[-1, column]:.1f}",
                (validations[-1, 0], 100 * validations[-1, column]),
                xytext=(0, 7 if validations[-1, column] >= validations[0, column] else -14),
                textcoords="offset points",
                ha="right",
            )
        else:
            axes.text(0.5, 0.5, "no validation set", transform=axes.transAxes, ha="center", color=GRAY)
    for axes in panels:
        axes.set_xlim(left=0)
        axes.margins(y=0.15)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=GRAY, alpha=0.25, linewidth=0.6)
    return figure
