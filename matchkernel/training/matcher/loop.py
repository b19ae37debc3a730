"""Train a context matcher: read scenes, make candidates, make the updates, and write the weights."""

import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.photos.scenes import read_scenes
from matchkernel.model.context import ContextNetwork
from matchkernel.photos.context import row_identity
from matchkernel.photos.extract import open_describer
from matchkernel.runtime.config import PHOTO_MODEL
from matchkernel.storage.files import check_output, json_digest
from matchkernel.storage.folders import exclusive
from matchkernel.storage.settings import to_dict
from matchkernel.storage.work import Progress, Say
from matchkernel.training.distributed import chosen_device
from matchkernel.training.log import Log
from matchkernel.training.loop import stop_signals
from matchkernel.training.matcher.config import MatcherConfig
from matchkernel.training.matcher.pairs import NO_PAIRS, CandidateSet, draw_pairs, make_candidates
from matchkernel.training.matcher.scenes import MatcherScene, read_matcher_scenes, read_photos
from matchkernel.training.matcher.trainer import Trainer
from matchkernel.training.matcher.validation import PoseValidation
from matchkernel.training.network import torch_settings


@dataclass(frozen=True)
class MatcherOutcome:
    """How a run ended: its last step, the mean loss of the last lines of the log, and scores by name."""

    step: int
    is_finished: bool
    loss: float
    scores: dict[str, float]


def train_matcher(
    folders: Sequence[str | Path],
    out: str | Path,
    config: MatcherConfig | None = None,
    *,
    model: str = PHOTO_MODEL,
    validate: Sequence[str | Path] = (),
    device: str = "auto",
    say: Say = lambda line: None,
    progress: Progress = lambda done, total: None,
    stop_when: Callable[[], bool] = lambda: False,
) -> MatcherOutcome:
    """Train a matcher on scenes with COLMAP models, and write its weights.

    Checkpoints and log.jsonl are kept in a folder beside `out`, with the ending .run: the same call resumes a run that
    was stopped. SIGTERM and Ctrl-C save a checkpoint first.

    Args:
        folders: scenes, each with images/ and sparse/.
        out: .safetensors file to write.
        config: the recipe.
        model: name or weight file of the descriptor whose rows are judged, "sift" or "rootsift".
        validate: scenes with cameras (see docs/evaluation.md) to measure poses on; none of them may be trained on.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.
        say: called with the name of each stage and the results of validations.
        progress: called with the number of photos, pairs or updates done in a stage and their total.
        stop_when: called after every update; True stops the run as SIGTERM does.

    Example:
        >>> scenes = ["scenes/church", "scenes/square"]  # each with images/ and sparse/
        >>> train_matcher(scenes, "matcher.safetensors", MatcherConfig(minutes=5), model="tiny")  # doctest: +SKIP
        >>> match_images("a.jpg", "b.jpg", "tiny", filter="context:matcher.safetensors")  # doctest: +SKIP
    """
    config, out, place = config or MatcherConfig(), Path(out), chosen_device(device)
    folder = out.with_suffix(".run")
    check_output(out, *folders, *validate, suffixes=(".safetensors",))
    scenes, judged = read_matcher_scenes(folders, config.shared_points), read_scenes(validate)
    if both := {scene.name for scene in judged} & {scene.name for scene in scenes}:
        raise ArgumentError(f"{', '.join(sorted(both))}: trained on and validated on; choose other scenes to validate")
    if not (config.pose_pairs or (config.warps and config.warp_pairs) or (len(scenes) > 1 and config.other_pairs)):
        raise ArgumentError(NO_PAIRS)
    describer = open_describer(model, device=str(place))
    rows = row_identity(describer.name, describer.settings)
    with ExitStack() as stack:
        stack.enter_context(torch_settings(place))
        stack.enter_context(exclusive(folder, f"{folder}: another run is using this folder"))
        torch.manual_seed(config.seed)
        network = ContextNetwork(config.network(describer.name, rows)).to(place)
        trainer = Trainer(network, config, folder, json_digest([rows, *(part.scene.content for part in scenes)]))
        trainer.resume()
        say(f"extracting from {sum(len(part.scene.images) for part in scenes)} images, {config.warps} copies of each")
        pairs = draw_pairs(scenes, read_photos(scenes, describer, config, place, progress), config)
        say(f"matching {len(pairs)} pairs")
        lists = make_candidates(pairs, config, progress)
        validation = PoseValidation(judged, describer, place) if judged else None
        trainer.log = log = stack.enter_context(Log(folder, trainer.step))
        facts = {"config": to_dict(config), "device": str(place), "pairs": Counter(pair.kind for pair in pairs)}
        log.write(trainer.step, "start", **facts, **lists.shares())
        if validation is not None:
            trainer.report("ratio test", validation.ratio_test(), say)
        say(f"training on {len(lists)} pairs")
        _update(trainer, lists, validation, say, progress, stop_when)
        if not trainer.is_done:
            return MatcherOutcome(trainer.step, False, trainer.loss, {})
        network = trainer.averaged()
        scores = {} if validation is None else validation.measure(network)
        trainer.report("validation", scores, say)
        network.card = _card(scenes, trainer, scores)
        network.save(out)
        trainer.forget()
    return MatcherOutcome(trainer.step, True, trainer.loss, scores)


def _update(
    trainer: Trainer,
    lists: CandidateSet,
    validation: PoseValidation | None,
    say: Say,
    progress: Progress,
    stop_when: Callable[[], bool],
) -> None:
    """Make the updates that are left, until one of them is the last or the run is stopped."""
    config, must_stop = trainer.config, False
    with stop_signals() as signals:
        while not trainer.is_done and not must_stop:
            trainer.update(lists)
            progress(*trainer.progress)
            must_stop = bool(signals) or stop_when()
            if validation is not None and trainer.step % config.validate_every == 0 and not trainer.is_done:
                trainer.report("validation", validation.measure(trainer.averaged()), say)
            if trainer.step % config.save_every == 0 or trainer.is_done or must_stop:
                trainer.save()
    if signals and signals[0] == signal.SIGINT:
        raise KeyboardInterrupt(f"saved after step {trainer.step}; run the same command again to resume")


def _card(scenes: Sequence[MatcherScene], trainer: Trainer, scores: dict[str, float]) -> dict[str, Any]:
    """What is known about the weights."""
    return {
        "trained_on": ", ".join(part.name for part in scenes),
        "scenes": {part.name: {"images": len(part.scene.images), "pairs": len(part.scene.pairs)} for part in scenes},
        "licence": trainer.config.licence,
        "seconds": round(trainer.seconds, 1),
        "step": trainer.step,
        "training": to_dict(trainer.config),
        "validation": scores,
    }
