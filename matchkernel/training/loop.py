"""Train a descriptor: set up, run the steps, and handle interruptions."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from matchkernel.training.checkpoint import BEST, FINAL, run_folder
from matchkernel.training.config import TrainingConfig
from matchkernel.training.distributed import chosen_device, joined_team
from matchkernel.training.feed import Feed
from matchkernel.training.log import Log, LogLine
from matchkernel.training.network import torch_settings
from matchkernel.training.sets import open_data
from matchkernel.training.state import TrainingState

AGREE_EVERY = 10  # steps after which several processes check whether one of them was asked to stop


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    folder: Path
    step: int
    is_finished: bool
    best: dict[str, float]  # the best validation, empty without validation sets
    is_first: bool  # whether this process is the one that writes files and prints

    @property
    def weights(self) -> Path | None:
        """The best weights on validation, or otherwise the final ones, if there are any."""
        paths = [self.folder / name for name in ((BEST, FINAL) if self.best else (FINAL,))]
        return next((path for path in paths if path.exists()), None)


def train(
    config: TrainingConfig,
    out: str | Path,
    *,
    resume: bool = False,
    device: str = "auto",
    report: Callable[[LogLine], object] | None = None,
    stop_when: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train a descriptor into a folder: checkpoints, log.jsonl, best.safetensors and final.safetensors.

    SIGTERM and Ctrl-C save a checkpoint first; then SIGTERM makes it return an Outcome that is not finished, and
    Ctrl-C raises KeyboardInterrupt. Under torchrun every process calls this; the first one writes. A run that starts
    from trained weights is validated before its first update too, so that `best` is never worse than its start.

    Args:
        config: what to train on what, and how.
        out: folder of the run; created if it does not exist.
        resume: continue from the folder's last checkpoint; refused if there is none.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.
        report: called at every line of the log.
        stop_when: called after every update; True stops the run as SIGTERM does.

    Returns:
        The last step, the best validation, and the path of the weights.

    Example:
        Two updates on synthetic patches; `load` opens the weights.

        >>> from matchkernel.training.config import TrainingConfig
        >>> from matchkernel.training.loop import train
        >>> config = TrainingConfig.from_dict({
        ...     "model": {"variant": "cartesian", "s": 1, "patch_size": 8, "d": 8, "D": 8},
        ...     "data": {"synthetic": {"points": 8, "patches": 2, "validation_points": 4}},
        ...     "sampling": {"pairs": 4, "steps": 2},
        ... })
        >>> outcome = train(config, "run", device="cpu")
        >>> outcome.is_finished, outcome.weights.name
        (True, 'best.safetensors')
    """
    place, folder, steps, loop = chosen_device(device), Path(out), config.sampling.steps, config.loop
    with ExitStack() as stack:
        team = stack.enter_context(joined_team(place))
        stack.enter_context(torch_settings(place))
        if team.is_first:
            inputs = (*config.data.train, *config.data.mix, *config.data.validation)
            stack.enter_context(run_folder(folder, inputs, resume=resume))
        training, validation = open_data(config, folder, team)
        feed = Feed(config, training, team, pins=place.type == "cuda")
        state = TrainingState(config, folder, training, validation, team, place, report)
        feed.streams = state.source is None
        if resume:
            state.resume()
        team.wait()
        if team.is_first:
            state.log = stack.enter_context(Log(folder, state.step, tensorboard=loop.tensorboard))
        state.write_log("start", config=config.to_dict(), device=str(place), processes=team.size)

        state.validate_start()
        with stop_signals() as signals, feed.running(state.step + 1, steps) as batches:
            for batch in batches:
                state.update(batch)
                is_last = state.step == steps
                asks = team.size == 1 or state.step % AGREE_EVERY == 0
                must_stop = asks and team.any(bool(signals) or stop_when(), place)
                if state.step % loop.validate_every == 0 or is_last:
                    state.validate()
                if state.step % loop.save_every == 0 or is_last or must_stop:
                    state.save()
                if must_stop:
                    break

        is_finished = state.step == steps
        if is_finished:
            state.write_final_weights()
        team.wait()
        state.write_log("end", is_finished=is_finished)
    if signals and signals[0] == signal.SIGINT:
        raise KeyboardInterrupt(f"saved after step {state.step}, --resume continues in {folder}")
    return Outcome(folder, state.step, is_finished, state.best, team.is_first)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT instead of ending the process (in the main thread, where Python allows it)."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    kinds = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(kind, lambda number, _: received.append(number)) for kind in kinds]
    try:
        yield received
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)
