"""Pictures of training: the curves of a run, and what augmentation makes of patches."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.errors import FileError
from matchkernel.plots.canvas import save_png
from matchkernel.plots.contact_sheet import draw_contact_sheet
from matchkernel.plots.training import draw_training
from matchkernel.storage.images import write_png
from matchkernel.training.augment import augmented, draw_photometric, draw_warps, sample_patches
from matchkernel.training.config import TrainingConfig
from matchkernel.training.feed import PHOTOMETRIC, WARPS, PairSampler, generator_at
from matchkernel.training.log import LOG, read_log
from matchkernel.training.sets import TrainingSet, open_sets

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
        raise FileError(f"{path}: nothing was logged yet")
    save_png(draw_training(np.array(losses), np.array(measured).reshape(-1, 3)), out)


def augmentation_picture(config: TrainingConfig, out: str | Path, pairs: int = 5, draws: int = 10) -> None:
    """Draw pairs of the training set as they are, two rows each, and beside them as ten updates would see them.

    Args:
        config: of the run.
        out: PNG to write.
        pairs: to show.
        draws: updates.
    """
    N, settings = config.model.patch_size, config.augmentation
    with TemporaryDirectory() as folder:
        data = _training_set(config, Path(folder))
        pairs = min(pairs, int((np.bincount(data.labels) > 1).sum()))
        index = PairSampler(data.labels, pairs, config.seed).draw(1, pairs)
        source = torch.from_numpy(data.gather(index.ravel()))
    numbers = torch.arange(2 * pairs)
    columns = [sample_patches(source, numbers, IDENTITY.expand(2 * pairs, 2, 3), N)]
    for step in range(1, draws + 1):
        warps = torch.from_numpy(draw_warps(settings, generator_at(config.seed, step, WARPS), pairs)).flatten(0, 1)
        drawn = None
        if settings.is_photometric:
            random = generator_at(config.seed, step, PHOTOMETRIC)
            drawn = torch.from_numpy(draw_photometric(settings, random, pairs)).flatten(0, 1)
        columns.append(augmented(source, numbers, warps, drawn, N, settings))
    sheet = torch.cat(columns, 1).round().byte().numpy()  # (2 pairs, columns, N, N): anchors, then positives
    sheet = sheet.repeat(max(1, 64 // N), -1).repeat(max(1, 64 // N), -2)
    rows = [sheet[k + side * pairs] for k in range(pairs) for side in range(2)]
    first = np.arange(draws + 1) == 0
    write_png(out, draw_contact_sheet(rows, [first] * len(rows), columns=draws + 1))


def _training_set(config: TrainingConfig, folder: Path) -> TrainingSet:
    synthetic = config.data.synthetic
    if synthetic is None:
        return TrainingSet(open_sets(config.data.train))
    settings = SyntheticSettings(min(synthetic.points, 50), synthetic.patches, seed=synthetic.seed)
    return TrainingSet([build_synthetic(folder / "set", settings)])
