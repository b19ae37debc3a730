"""The folder of a run: used by one process at a time, with checkpoints that hold everything needed to resume."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from matchkernel.errors import ArgumentError, FileError, MatchKernelError
from matchkernel.model.descriptors import Descriptor
from matchkernel.storage.arrays import digest, readable
from matchkernel.storage.files import check_folder, link_or_copy, part_of, write_errors
from matchkernel.storage.folders import LOCK, exclusive
from matchkernel.storage.settings import first_difference
from matchkernel.storage.tensors import as_stored, write_tensors
from matchkernel.training.config import TrainingConfig, without_removed
from matchkernel.training.optimizer import Updater

LAST, PREVIOUS = "last.safetensors", "previous.safetensors"  # checkpoints
BEST, FINAL = "best.safetensors", "final.safetensors"  # weights


@dataclass(frozen=True)
class Checkpoint:
    """A run's state after `step` updates.

    Random numbers need no state of their own: all follow from the configuration's seed and the step.
    """

    step: int
    tensors: dict[str, Tensor]
    config: dict[str, Any]  # TrainingConfig.binding()
    data: str  # identity of the training sets
    validation: str  # of the validation sets
    best: dict[str, float]  # the best validation so far, with its step
    loss_sum: float  # of all updates


def collect(model: Descriptor, updater: Updater) -> dict[str, Tensor]:
    """The tensors of a checkpoint, copied to the CPU."""
    named = _named_tensors(model, updater)
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in named.items()}


@torch.no_grad()
def restore(checkpoint: Checkpoint, model: Descriptor, updater: Updater, path: Path) -> None:
    """Load a checkpoint's tensors into a model and an optimiser of the same configuration."""
    targets = _named_tensors(model, updater)
    for name in sorted(targets.keys() | checkpoint.tensors.keys()):
        old, new = targets.get(name), checkpoint.tensors.get(name)
        if old is None or new is None or old.shape != new.shape or old.dtype != new.dtype:
            raise FileError(f"{path}: does not fit its own configuration (tensor {name[:80]})")
        old.copy_(new)


def _named_tensors(model: Descriptor, updater: Updater) -> dict[str, Tensor]:
    named = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, tensors in updater.state.items():
        named |= {f"optimizer.{name}.{k}": tensor for k, tensor in enumerate(tensors)}
    return named


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the last checkpoint and keep the one before it; the last one is complete even if the process is killed."""
    facts = {name: value for name, value in vars(checkpoint).items() if name != "tensors"}
    last, previous = folder / LAST, folder / PREVIOUS
    if last.exists():
        with write_errors(previous):
            link = part_of(previous)
            link.unlink(missing_ok=True)  # renaming one link of a file to another one leaves both
            link_or_copy(last, link)
            link.replace(previous)
    write_tensors(last, checkpoint.tensors, {"checkpoint": json.dumps(facts, sort_keys=True)})


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; a damaged file or one of another kind is refused, and the one before it suggested."""
    offer = ""
    if path.name == LAST and (path.parent / PREVIOUS).exists():
        offer = f"; the one before it exists: remove or rename this one, and --resume will use {PREVIOUS}"
    try:
        with readable(path), safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            if "checkpoint" not in metadata:
                raise FileError(f"{path}: a safetensors file, but not a checkpoint")
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (no dict); copies: the file will be replaced
        if metadata.get("sha256") != digest(metadata, as_stored(tensors)):
            raise FileError(f"{path}: damaged, its contents do not match its recorded sha256")
        return Checkpoint(tensors=tensors, **json.loads(metadata["checkpoint"]))
    except MatchKernelError as error:
        raise FileError(f"{error}{offer}") from None
    except (ValueError, TypeError):
        raise FileError(f"{path}: was written by another version{offer}") from None


def find_checkpoint(folder: Path) -> Path | None:
    """The checkpoint from which the run in this folder would continue: the last, else the previous."""
    return next((folder / name for name in (LAST, PREVIOUS) if (folder / name).exists()), None)


def checkpoint_to_resume(folder: Path) -> Path:
    """The same, or an error if the folder has no checkpoint."""
    path = find_checkpoint(folder)
    if path is None:
        raise FileError(f"{folder}: nothing to resume: it has no checkpoint; leave out --resume to start a new run")
    return path


@contextmanager
def run_folder(folder: Path, inputs: Sequence[str], *, resume: bool) -> Iterator[None]:
    """Keep other processes out of the folder of a run, which is created if it does not exist.

    Args:
        folder: the folder; if the run fails before it has written a log, it is left as it was.
        inputs: folders that are read, and must not be written to.
        resume: whether a run continues there; otherwise the folder must not hold weights or checkpoints.
    """
    if resume:
        checkpoint_to_resume(folder)
    before = _entries(folder)
    check_folder(folder, *inputs)
    with exclusive(folder, f"{folder}: another run is using this folder"):
        try:
            for name in () if resume else (LAST, PREVIOUS, BEST, FINAL):
                if (folder / name).exists():
                    raise FileError(f"{folder}: holds {name} of an earlier run; use --resume, or choose another --out")
            yield
        except BaseException:
            if _entries(folder) - before <= {LOCK, "sets"} and "sets" not in before:  # the run wrote nothing else
                shutil.rmtree(folder / "sets", ignore_errors=True)
            raise


def _entries(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()


def check_same_run(checkpoint: Checkpoint, config: TrainingConfig, data: str, path: Path) -> None:
    """Refuse to resume with another configuration or other data, naming the difference."""
    difference = first_difference(config.binding(), without_removed(checkpoint.config))
    if difference:
        name, mine, theirs = difference
        raise ArgumentError(
            f"{path}: was trained with {name} = {theirs!r}, not {mine!r}; use the same value, or another --out"
        )
    if checkpoint.data != data:
        raise ArgumentError(
            f"{path}: was trained on other patches, by another teacher or from other weights (data.train differs:"
            f" sha256 {checkpoint.data[:12]}, now {data[:12]})"
        )
