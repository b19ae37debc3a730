"""Train a descriptor: open the data, go through the steps, survive being stopped."""

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import torch

from matchkernel.data.patch_set import PatchSet, open_patch_set
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.errors import ArgumentError, FileError, WriteError
from matchkernel.storage.locks import has_lock, is_at
from matchkernel.training.checkpoint import check_same_run, find_checkpoint, read_checkpoint
from matchkernel.training.config import Synthetic, TrainingConfig
from matchkernel.training.data import TrainingSet, open_sets
from matchkernel.training.distributed import Team, team
from matchkernel.training.feed import Feed
from matchkernel.training.log import Log
from matchkernel.training.network import own_settings
from matchkernel.training.state import BEST, FINAL, Report, Run
from matchkernel.training.validation import validation_pairs

OWN_SETS = "made_by_train"  # a file in <out>/sets: who made that folder, and may make its sets anew
AGREE_EVERY = 10  # steps between questions whether any process was asked to stop


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    folder: Path
    step: int
    is_finished: bool
    best: dict[str, float]  # the best validation, empty without validation sets
    is_first: bool  # of the processes: the one that writes and speaks

    @property
    def weights(self) -> Path | None:
        """The best weights on validation, else the final ones, if there are any."""
        path = self.folder / (BEST if self.best else FINAL)
        return path if path.exists() else None


def train(
    config: TrainingConfig,
    out: str | Path,
    *,
    resume: bool = False,
    device: str = "auto",
    report: Callable[[Report], object] | None = None,
) -> Outcome:
    """Train a descriptor into a folder: checkpoints, log.jsonl, best.safetensors and final.safetensors.

    SIGTERM and Ctrl-C save a checkpoint first; then SIGTERM makes it return an Outcome that is not finished, and
    Ctrl-C raises KeyboardInterrupt. Under torchrun every process calls this; the first one writes.

    Args:
        config: what to train on what, and how.
        out: folder of the run; made if it is not there.
        resume: go on from the folder's last checkpoint, or start where there is none.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.
        report: called at every line of the log.
    """
    place = chosen_device(device)
    folder = Path(out)
    with ExitStack() as stack:
        processes = stack.enter_context(team(place))
        stack.enter_context(own_settings(place))
        if processes.is_first:
            stack.enter_context(_claimed(folder, resume=resume))
        training, validation = _open_data(config, folder, processes)
        Feed(config, training, processes, streams=False, pins=False)  # refuses at once what cannot be sampled
        run = Run(config, folder, training, validation, processes, place, report)
        found = find_checkpoint(folder) if resume else None
        if found is not None:
            run.resume(found)
        elif processes.is_first:
            for name in (BEST, FINAL):  # of a run that was stopped before its first checkpoint
                (folder / name).unlink(missing_ok=True)
        processes.wait()
        if processes.is_first:
            run.log = stack.enter_context(Log(folder, run.step, tensorboard=config.loop.tensorboard))
            run.log.write(run.step, "start", config=config.to_dict(), device=str(place), processes=processes.size)
        stopped_by = _go_through_steps(run)
        is_finished = run.step == config.sampling.steps
        if is_finished:
            run.finish()
        processes.wait()
        if run.log is not None:
            run.log.write(run.step, "end", is_finished=is_finished)
    if stopped_by == signal.SIGINT:
        raise KeyboardInterrupt(f"saved after step {run.step}, --resume goes on with {folder}")
    return Outcome(folder, run.step, is_finished, run.best, processes.is_first)


def chosen_device(device: str) -> torch.device:
    """The device asked for; under torchrun the GPU of this process."""
    if device not in ("auto", "cpu", "cuda"):
        raise ArgumentError(f"device must be auto, cpu or cuda, got {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ArgumentError("device cuda: there is no GPU here that PyTorch can use")
    if device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(place)
    return place


def _go_through_steps(run: Run) -> int:
    """Train until the end or until asked to stop; returns the signal, 0 for none. The run is saved in either case."""
    config, loop = run.config, run.config.loop
    last = config.sampling.steps
    feed = Feed(config, run.data, run.team, streams=run.streams, pins=run.device.type == "cuda")
    with _signals() as asked, feed.running(run.step + 1, last) as batches:
        for batch in batches:
            run.update(batch)
            step = run.step
            must_stop = _agreed(run, asked)
            if step % loop.validate_every == 0 or step == last:
                with run.clock_stopped():
                    _validate(run)
            if step % loop.save_every == 0 or step == last or must_stop:
                with run.clock_stopped():
                    run.checkpoint()
            if must_stop:
                break
        return asked[0] if asked else 0


def _validate(run: Run) -> None:
    """Measure the model; should that fail, the work is saved first."""
    try:
        run.validate()
    except Exception:
        run.checkpoint()
        raise


def _agreed(run: Run, asked: list[int]) -> bool:
    """Whether to stop now: all processes together."""
    if run.team.size > 1 and run.step % AGREE_EVERY:
        return False
    return run.team.any(bool(asked), run.device)


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT instead of dying of them (in the main thread, where Python lets one)."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    kinds = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(kind, lambda number, _: asked.append(number)) for kind in kinds]
    try:
        yield asked
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)


@contextmanager
def _claimed(folder: Path, *, resume: bool) -> Iterator[None]:
    """Make the folder this run's and nobody else's while it lasts."""
    existed, path = folder.exists(), folder / "lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock: IO[str] = path.open("w")
    except OSError as error:
        raise WriteError(f"{folder}: cannot be made or written ({error.strerror})") from None
    with lock:
        if not has_lock(lock.fileno(), path):
            raise FileError(f"{folder}: another run is using this folder right now")
        try:
            _check_contents(folder, resume=resume)
            yield
        finally:
            is_empty = not existed and {entry.name for entry in folder.iterdir()} <= {"lock", "sets"}
            if is_empty:  # nothing came of it
                shutil.rmtree(folder / "sets", ignore_errors=True)
            if is_at(lock.fileno(), path):
                path.unlink()
            if is_empty:
                with suppress(OSError):  # another run has just come
                    folder.rmdir()


def _check_contents(folder: Path, *, resume: bool) -> None:
    """Refuse a folder whose run would be lost."""
    checkpoint, has_final = find_checkpoint(folder), (folder / FINAL).exists()
    if not resume and (checkpoint or has_final or (folder / BEST).exists()):
        raise FileError(f"{folder}: holds a run already; --resume goes on with it, another --out starts a new one")
    if has_final and not checkpoint:
        raise FileError(f"{folder}: holds final weights and no checkpoint to go on from; choose another --out")


def _open_data(config: TrainingConfig, folder: Path, processes: Team) -> tuple[TrainingSet, list[PatchSet]]:
    """The sets of a run; synthetic ones are rendered first, by the first process."""
    synthetic = config.data.synthetic
    if synthetic is None:
        return TrainingSet(open_sets(config.data.train)), _validation_sets(config.data.validation)
    if processes.is_first:
        found = find_checkpoint(folder)
        if found is not None:  # other settings are refused before sets are made anew for them
            checkpoint = read_checkpoint(found)
            check_same_run(checkpoint, config, checkpoint.data, found)
        _render(synthetic, folder)
    processes.wait()
    names = ["train", "validation"] if synthetic.validation_points else ["train"]
    training, *validation = [str(folder / "sets" / name) for name in names]
    return TrainingSet(open_sets([training])), _validation_sets([*validation, *config.data.validation])


def _validation_sets(folders: Sequence[str]) -> list[PatchSet]:
    """Open them; one that cannot be validated on is refused now, not after the training."""
    sets = open_sets(folders)
    for patch_set in sets:
        validation_pairs(patch_set)
    return sets


def _render(synthetic: Synthetic, folder: Path) -> None:
    """Make the sets of a run; those of other settings are made anew if a run made them, else refused and left alone."""
    home = folder / "sets"
    if not home.exists():
        home.mkdir()
        (home / OWN_SETS).write_text("made by matchkernel train, which may replace these sets\n", encoding="utf-8")
    amounts = {"train": (synthetic.points, synthetic.seed)}
    if synthetic.validation_points:
        amounts["validation"] = (synthetic.validation_points, synthetic.seed + 1)
    wanted = {home / name: SyntheticSettings(k, synthetic.patches, seed=seed) for name, (k, seed) in amounts.items()}
    for place, settings in wanted.items():
        if place.exists() and not _is_made_with(settings, place):
            shutil.rmtree(place)
    for place, settings in wanted.items():
        if not place.exists():
            build_synthetic(place, settings)


def _is_made_with(settings: SyntheticSettings, place: Path) -> bool:
    """Whether a set is the one wanted; False for another that a run made, and any other set is refused."""
    source = open_patch_set(place).manifest.get("source")
    source = source if isinstance(source, dict) else {}
    if source.get("settings") == asdict(settings):
        return True
    if source.get("kind") != "synthetic" or not (place.parent / OWN_SETS).exists():
        raise FileError(f"{place}: a set of another configuration or source; remove it or choose another --out")
    return False
