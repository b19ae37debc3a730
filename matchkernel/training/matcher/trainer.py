"""The updates of a context matcher: loss, optimiser, running average, and checkpoints that resume."""

import copy
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as nnf

from matchkernel.errors import ArgumentError, FileError, WorkError
from matchkernel.model.context import ALIGNED, ContextNetwork
from matchkernel.storage.arrays import digest, read_header, read_tensors
from matchkernel.storage.settings import describe_differences
from matchkernel.storage.tensors import as_tensor, first_not_finite, write_tensors
from matchkernel.storage.work import Say
from matchkernel.training.feed import generator_at
from matchkernel.training.log import Log
from matchkernel.training.matcher.config import MatcherConfig
from matchkernel.training.matcher.labels import RIGHT, UNKNOWN
from matchkernel.training.matcher.pairs import CandidateSet

LAST = "last.safetensors"  # the checkpoint in the folder of the run
KEY = "matcher_checkpoint"  # of its metadata
KEPT = (0.4, 0.6, 0.8, 1.0)  # share of the candidates that an update uses
EARLY = 0.3  # weight of the loss after each layer but the last
RARER = 4.0  # maximum weight of right or wrong candidates, whichever are fewer
LOWEST = 0.01  # of the rate, at the end of the cosine


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
        self.step, self.seconds, self.loss = 0, 0.0, math.nan
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

    def forget(self) -> None:
        """Remove the checkpoint of a finished run."""
        (self.folder / LAST).unlink(missing_ok=True)

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
            raise ArgumentError(f"{path}: of other scenes or another --model; give those, or remove {self.folder}")
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
    listed = lists.f.shape[1]
    count = max(min(listed, ALIGNED), int(listed * random.choice(KEPT)) // ALIGNED * ALIGNED)
    kept = torch.from_numpy(random.permutation(listed)[:count]).to(device)
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
