"""Train a context matcher: the loss, the updates, checkpoints, and the weights at the end."""

import copy
import json
import math
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as nnf

from matchkernel.errors import ArgumentError, FileError, WorkError
from matchkernel.evaluation.photos.scenes import read_scenes
from matchkernel.model.context import ContextNetwork
from matchkernel.photos.extract import SIFTS, open_describer
from matchkernel.storage.arrays import digest, read_header, read_tensors
from matchkernel.storage.files import check_output, json_digest
from matchkernel.storage.folders import exclusive
from matchkernel.storage.settings import describe_differences, to_dict
from matchkernel.storage.tensors import as_tensor, first_not_finite, write_tensors
from matchkernel.storage.work import Progress, Say
from matchkernel.training.distributed import chosen_device
from matchkernel.training.feed import generator_at
from matchkernel.training.log import Log
from matchkernel.training.loop import stop_signals
from matchkernel.training.matcher.config import MatcherConfig
from matchkernel.training.matcher.labels import RIGHT, UNKNOWN
from matchkernel.training.matcher.pairs import CandidateSet, draw_pairs, make_candidates
from matchkernel.training.matcher.scenes import read_matcher_scenes, read_photos
from matchkernel.training.matcher.validation import PoseValidation
from matchkernel.training.network import torch_settings

LAST = "last.safetensors"  # the checkpoint in the folder of the run
KEY = "matcher_checkpoint"  # of its metadata
KEPT = (0.4, 0.6, 0.8, 1.0)  # share of the candidates that an update uses
EARLY = 0.3  # weight of the loss after each layer but the last
RARER = 4.0  # maximum weight of right or wrong candidates, whichever are fewer
LOWEST = 0.01  # of the rate, at the end of the cosine


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
    model: str = "light-wide",
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
        model: name or weight file of the descriptor whose rows are judged.
        validate: scenes with cameras (see docs/evaluation.md) to measure poses on; none of them may be trained on.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.
        say: called with the name of each stage and the results of validations.
        progress: called with the number of photos, pairs or updates done in a stage and their total.
        stop_when: called after every update; True stops the run as SIGTERM does.
    """
    config, out, place = config or MatcherConfig(), Path(out), chosen_device(device)
    folder = out.with_suffix(".run")
    check_output(out, *folders, *validate, suffixes=(".safetensors",))
    if model in SIFTS:
        raise ArgumentError(f"{model} is not a network: a matcher is trained for rows of trained weights")
    scenes = read_matcher_scenes(folders, config.shared_points)
    if not scenes:
        raise ArgumentError("give at least one scene to train on")
    judged = read_scenes(validate)
    if both := {scene.name for scene in judged} & {scene.name for scene in scenes}:
        raise ArgumentError(f"{', '.join(sorted(both))}: trained on and validated on; choose other scenes to validate")
    describer = open_describer(model, device=str(place))
    weights = describer.settings["weights"]
    data = json_digest([weights, *(scene.scene.content for scene in scenes)])
    with ExitStack() as stack:
        stack.enter_context(torch_settings(place))
        stack.enter_context(exclusive(folder, f"{folder}: another run is using this folder"))
        torch.manual_seed(config.seed)
        trainer = Trainer(ContextNetwork(config.network(describer.name, weights)).to(place), config, folder, data)
        trainer.resume()
        say(f"extracting from {sum(len(scene.scene.images) for scene in scenes)} images, {config.warps} copies of each")
        photos = read_photos(scenes, describer, config, place, progress)
        pairs = draw_pairs(scenes, photos, config)
        say(f"matching {len(pairs)} pairs")
        lists = make_candidates(pairs, config, progress)
        validation = PoseValidation(judged, describer, place) if judged else None
        trainer.log = stack.enter_context(Log(folder, trainer.step))
        kinds = dict(Counter(pair.kind for pair in pairs))
        trainer.log.write(
            trainer.step, "start", config=to_dict(config), device=str(place), pairs=kinds, **lists.shares()
        )
        if validation is not None:
            trainer.report("ratio test", validation.ratio(), say)
        say(f"training on {len(lists)} pairs")
        with stop_signals() as signals:
            while not trainer.is_done and not trainer.is_stopped:
                trainer.update(lists)
                trainer.is_stopped = bool(signals) or stop_when()
                progress(*trainer.progress)
                if validation is not None and trainer.step % config.validate_every == 0 and not trainer.is_done:
                    trainer.report("validation", validation.measure(trainer.averaged()), say)
                if trainer.step % config.save_every == 0 or trainer.is_stopped or trainer.is_done:
                    trainer.save()
        if signals and signals[0] == signal.SIGINT:
            raise KeyboardInterrupt(f"saved after step {trainer.step}; the same command resumes")
        if not trainer.is_done:
            return MatcherOutcome(trainer.step, False, trainer.loss, {})
        network = trainer.averaged()
        scores = {} if validation is None else validation.measure(network)
        trainer.report("validation", scores, say)
        network.card = {
            "trained_on": ", ".join(scene.name for scene in scenes),
            "scenes": {s.name: {"images": len(s.scene.images), "pairs": len(s.scene.pairs)} for s in scenes},
            "licence": config.licence,
            "seconds": round(trainer.seconds, 1),
            "step": trainer.step,
            "training": to_dict(config),
            "validation": scores,
        }
        network.save(out)
        (folder / LAST).unlink(missing_ok=True)
    return MatcherOutcome(trainer.step, True, trainer.loss, scores)


class Trainer:
    """A network being trained, with everything that must survive a stop.

    Random numbers follow from the seed and the step, so that a resumed run makes the same updates.

    Args:
        network: on its device.
        config: the recipe.
        folder: of the checkpoint.
        data: digest of what it is trained on.
    """

    def __init__(self, network: ContextNetwork, config: MatcherConfig, folder: Path, data: str) -> None:
        self.network, self.config, self.folder, self.data = network, config, folder, data
        self.parameters = list(network.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=config.rate, weight_decay=config.weight_decay)
        self.average = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
        self.sums = torch.zeros(4, device=self.parameters[0].device)  # since the last line: loss, hits, chosen, right
        self.step, self.seconds, self.loss, self.is_stopped = 0, 0.0, math.nan, False
        self.log: Log | None = None

    @property
    def done(self) -> float:
        """The part of the run that is done, from 0 to 1."""
        limit = 60 * self.config.minutes
        return min(1.0, max(self.step / self.config.steps, self.seconds / limit if limit else 0.0))

    @property
    def is_done(self) -> bool:
        """True after the last update."""
        return self.done >= 1

    @property
    def progress(self) -> tuple[int, int]:
        """Updates done and their number, or seconds if these decide."""
        if self.config.minutes and self.done > self.step / self.config.steps:
            return int(self.seconds), int(60 * self.config.minutes)
        return self.step, self.config.steps

    def update(self, lists: CandidateSet) -> None:
        """One update of the weights and of their running average; a line of the log when it is due."""
        start, config = time.perf_counter(), self.config
        rate = config.rate * min(1.0, (self.step + 1) / config.warmup)
        rate *= 0.5 * (1 + math.cos(math.pi * self.done)) + LOWEST
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        batch = draw_batch(lists, config, self.step)
        logits = self.network(batch.f, batch.zi, batch.zj, batch.a, batch.is_real)
        loss = loss_of(logits, batch.labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.step += 1
        with torch.no_grad():
            decay = min(config.average, self.step / (self.step + 10))
            state = self.network.state_dict()
            torch._foreach_lerp_(list(self.average.values()), [state[name] for name in self.average], 1 - decay)
            chosen, right = (logits[-1] > 0) & (batch.labels != UNKNOWN), batch.labels == RIGHT
            self.sums += torch.stack([loss.detach(), (chosen & right).sum(), chosen.sum(), right.sum()])
        if self.step % config.log_every == 0 or self.step == config.steps:
            self._write_line(rate)
        self.seconds += time.perf_counter() - start

    def _write_line(self, rate: float) -> None:
        loss, hits, chosen, right = self.sums.tolist()
        self.loss = loss / ((self.step - 1) % self.config.log_every + 1)
        if not math.isfinite(loss):
            raise WorkError(f"step {self.step}: the loss is no longer finite; is rate = {self.config.rate:g} too high?")
        self.sums.zero_()
        shares = {"precision": hits / max(chosen, 1), "recall": hits / max(right, 1)}
        if self.log is not None:
            self.log.write(self.step, "training", loss=self.loss, rate=rate, seconds=self.seconds, **shares)

    def report(self, what: str, scores: dict[str, float], say: Say) -> None:
        """Log the scores of a validation, and say them."""
        if scores and self.log is not None:
            self.log.write(self.step, what, **scores)
            say(f"step {self.step}  {what}: " + ", ".join(f"{name} {value:g}" for name, value in scores.items()))

    def averaged(self) -> ContextNetwork:
        """A copy of the network with the running average of its weights."""
        network = copy.deepcopy(self.network)
        network.load_state_dict(self.average)
        return network.eval()

    def save(self) -> None:
        """Write a checkpoint, atomically."""
        tensors = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        tensors |= {f"average.{name}": tensor for name, tensor in self.average.items()} | {"sums": self.sums}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": tensor for name, tensor in state.items()}
        if bad := first_not_finite(tensors):
            raise WorkError(f"step {self.step}: {bad} is no longer finite; is rate = {self.config.rate:g} too high?")
        facts = {"step": self.step, "seconds": self.seconds, "config": self.config.binding(), "data": self.data}
        on_cpu = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        write_tensors(self.folder / LAST, on_cpu, {KEY: json.dumps(facts)})

    def resume(self) -> None:
        """Continue from the folder's checkpoint, if it has one; a foreign or damaged one is refused."""
        path = self.folder / LAST
        if not path.exists():
            return
        metadata, stored = read_header(path)[0], read_tensors(path)
        if KEY not in metadata or metadata.get("sha256") != digest(metadata, stored):
            raise FileError(f"{path}: damaged, or not a checkpoint of train-matcher; remove it to start anew")
        facts = json.loads(metadata[KEY])
        if differences := describe_differences(facts["config"], json.loads(json.dumps(self.config.binding()))):
            raise ArgumentError(f"{path}: {differences}; use the same settings, or remove {self.folder}")
        if facts["data"] != self.data:
            raise ArgumentError(f"{path}: was trained on other scenes or another --model; remove {self.folder}")
        tensors = {name: as_tensor(part) for name, part in stored.items()}
        self.network.load_state_dict(_under("network.", tensors))
        state = {number: _under(f"optimizer.{number}.", tensors) for number in range(len(self.parameters))}
        self.optimizer.load_state_dict({"state": state, "param_groups": self.optimizer.state_dict()["param_groups"]})
        for name, tensor in self.average.items():
            tensor.copy_(tensors[f"average.{name}"])
        self.sums.copy_(tensors["sums"])
        self.step, self.seconds = facts["step"], facts["seconds"]


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def draw_batch(lists: CandidateSet, config: MatcherConfig, step: int) -> CandidateSet:
    """Some pairs, a random share of their candidates, with noise on their features."""
    random, device = generator_at(config.seed, step, 0), lists.f.device
    pairs = torch.from_numpy(random.integers(len(lists), size=config.batch)).to(device)
    count = max(1, int(lists.f.shape[1] * random.choice(KEPT)))
    kept = torch.from_numpy(random.permutation(lists.f.shape[1])[:count]).to(device)
    parts = {field.name: getattr(lists, field.name)[pairs][:, kept] for field in fields(lists)}
    noise = torch.Generator(device).manual_seed(int(random.integers(2**62)))
    parts["f"] = parts["f"] + config.noise * torch.randn(parts["f"].shape, generator=noise, device=device)
    return CandidateSet(**parts)


def loss_of(logits: Sequence[Tensor], labels: Tensor) -> Tensor:
    """The cross-entropy of (B, C) logits after each layer.

    Every pair of photos counts the same; its right and wrong candidates have equal shares, up to a factor of RARER.
    """
    known, target = (labels != UNKNOWN).float(), (labels == RIGHT).float()
    right, wrong = (known * target).sum(1, keepdim=True), (known * (1 - target)).sum(1, keepdim=True)
    share_right, share_wrong = (((right + wrong) / (2 * part.clamp(min=1))).clamp(max=RARER) for part in (right, wrong))
    weights = known * (target * share_right + (1 - target) * share_wrong)
    weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-6)
    losses = [nnf.binary_cross_entropy_with_logits(z.float(), target, weights, reduction="sum") for z in logits]
    factors = [EARLY] * (len(losses) - 1) + [1.0]
    return torch.stack([factor * loss for factor, loss in zip(factors, losses, strict=True)]).sum() / len(labels)
