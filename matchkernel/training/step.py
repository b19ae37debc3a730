"""One update of the model: sample, describe, loss, gradients, optimiser; on a GPU compiled and replayed as a graph."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

import torch
from torch import Tensor, nn

from matchkernel.model.descriptors import Descriptor
from matchkernel.training.augment import augmented
from matchkernel.training.config import TrainingConfig
from matchkernel.training.distributed import Team
from matchkernel.training.feed import NETWORK, Batch, generator_at
from matchkernel.training.loss import pair_loss
from matchkernel.training.optimizer import Updater
from matchkernel.training.teacher import Teacher

WARM_UP = 3  # updates before a graph is captured; undone afterwards
COMPILED_LIMIT = 256  # versions of a function that torch compiles in one process


class Update:
    """Carries out the updates of batches with a fixed number of pairs.

    Each batch is copied into the same tensors, from which an update reads everything, so that one recorded graph serves
    every step and nothing waits for the device.

    Args:
        model: prepared for training (see network.prepare_for_training).
        updater: the optimiser's state.
        config: the run.
        source: (K, S, S) uint8 patches on the device, or None if every batch contains its own.
        team: the processes.
        monitor: (2,) float64 on the device: sum of all losses, and the first step whose loss was not finite.
        teacher: to learn from as well.
        is_half: compute in bfloat16.
        is_captured: compile, and replay as a CUDA graph.
    """

    def __init__(
        self,
        model: Descriptor,
        updater: Updater,
        config: TrainingConfig,
        source: Tensor | None,
        team: Team,
        monitor: Tensor,
        teacher: Teacher | None = None,
        *,
        is_half: bool,
        is_captured: bool,
    ) -> None:
        self.model, self.updater, self.config, self.team, self.monitor = model, updater, config, team, monitor
        self.source, self.teacher, self.is_half, self.is_captured = source, teacher, is_half, is_captured
        self.device, self.size = monitor.device, config.model.patch_size
        self.drawn: Callable[[], Tensor] = self._drawn
        self.networks: list[Callable[[Tensor, Tensor | None], list[Tensor]]] = [
            partial(self._aggregated, k) for k in range(len(model.backbones))
        ]
        self.streams = [torch.cuda.Stream(self.device) for _ in self.networks] if is_captured else []
        # Networks then go on as far as their shares of the rows.
        self.are_apart = bool(self.streams) and is_half and isinstance(model.projection, nn.Linear)
        self.loss_of: Callable[[list[Tensor], Tensor | None], Tensor] = self._loss
        self.apply: Callable[[Sequence[Tensor], Tensor], None] = self._apply
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: dict[str, Tensor] = {}

    def capture(self, batch: Batch) -> None:
        """Compile and record the update for batches like this one, if wanted; the training state does not change."""
        if self.is_captured and self.graph is None:
            self._load(batch)
            self._capture()

    def __call__(self, batch: Batch) -> None:
        """Do the update of this batch; returns before the device has finished."""
        self.capture(batch)
        self._load(batch)  # after the warm-up, which advanced the random number generator
        if self.graph is not None:
            self.graph.replay()
        else:
            self._run()

    def _load(self, batch: Batch) -> None:
        given = {"index": batch.index, "warps": batch.warps, "photometric": batch.photometric, "patches": batch.patches}
        for name, tensor in given.items():
            if tensor is not None:
                if name not in self.inputs:
                    self.inputs[name] = torch.empty_like(tensor, device=self.device)
                self.inputs[name].copy_(tensor, non_blocking=True)
        for name, value in {"rate": batch.rate, "step": float(batch.step)}.items():
            if name not in self.inputs:
                self.inputs[name] = torch.empty((), device=self.device)
            self.inputs[name].fill_(value)
        self._seed_dropout(batch.step)

    def _seed_dropout(self, step: int) -> None:
        """Dropout is determined by (seed, step, process), like all random numbers."""
        if not self.model.config.dropout:
            return
        seed = int(generator_at(self.config.seed, step, NETWORK).integers(2**62)) + self.team.rank
        if self.device.type == "cuda":
            torch.cuda.default_generators[self.device.index or 0].manual_seed(seed)
        else:
            torch.default_generator.manual_seed(seed)

    def _run(self) -> None:
        patches = self.drawn()
        taught = None if self.teacher is None else self.teacher(patches)  # not compiled: it has kernels of its own
        loss = self.loss_of(self._all_aggregated(patches), taught)
        gradients = torch.autograd.grad(loss, self.updater.parameters)
        self.apply(self.team.sum_gradients(gradients), loss.detach())

    def _drawn(self) -> Tensor:
        source = self.inputs["patches"] if self.source is None else self.source
        index, warps = self.inputs["index"].flatten(), self.inputs["warps"].flatten(0, 1)
        drawn = self.inputs["photometric"].flatten(0, 1) if "photometric" in self.inputs else None
        return augmented(source, index, warps, drawn, self.size, self.config.augmentation)

    def _all_aggregated(self, patches: Tensor) -> list[Tensor]:
        """The aggregated maps of all networks, or their shares of the rows; on a GPU they run side by side."""
        M = self.model.projection.get_parameter("weight").chunk(len(self.networks), 1) if self.are_apart else None
        if not self.streams:
            return [part for network in self.networks for part in network(patches, None)]
        now, parts = torch.cuda.current_stream(self.device), []
        for stream in self.streams:
            stream.wait_stream(now)
        for stream, network, own in zip(self.streams, self.networks, M or [None] * len(self.networks), strict=True):
            with torch.cuda.stream(stream):
                parts += network(patches, own)
        for stream in self.streams:
            now.wait_stream(stream)
        return parts

    def _aggregated(self, k: int, patches: Tensor, M: Tensor | None) -> list[Tensor]:
        """The aggregated maps of network k; with its part of M, their product with it."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_half):
            phi = self.model.feature_map(k, patches)
        shared = len(self.model.aggregations) // len(self.networks)
        aggregations = list(self.model.aggregations)[k * shared : (k + 1) * shared]
        # Results are float32 from here: it costs little.
        parts = [aggregate(phi if hasattr(aggregate, "takes_half") else phi.float()) for aggregate in aggregations]
        if M is None:
            return parts
        from matchkernel.training.head_kernels import Product  # needs triton

        return [Product.apply(torch.cat(parts, 1), M)]  # type: ignore[no-untyped-call]

    def _loss(self, parts: list[Tensor], taught: Tensor | None) -> Tensor:
        if self.are_apart:
            assert isinstance(self.model.projection, nn.Linear)
            m = self.model.projection.bias
            rows = self.model.output_norm(sum(parts) if m is None else sum(parts, m))
        else:
            rows = self.model.project(parts)
        anchors, positives = (self.team.gathered(part) for part in rows.chunk(2))
        if taught is None:
            return pair_loss(anchors, positives, self.config.loss)
        assert self.teacher is not None
        assert self.config.teacher is not None
        joined = tuple(self.team.gathered(part) for part in taught.chunk(2))
        copied = self.teacher.loss((anchors, positives), joined, self.config.teacher.rows)
        share = self.config.teacher.pairs
        return copied + share * pair_loss(anchors, positives, self.config.loss) if share else copied

    @torch.no_grad()
    def _apply(self, gradients: Sequence[Tensor], loss: Tensor) -> None:
        self.updater.update(gradients, self.inputs["rate"], self.inputs["step"])
        is_finite, step = loss.isfinite(), self.inputs["step"].double()
        self.monitor[0] += torch.where(is_finite, loss, 0).double()
        is_first_bad = ~is_finite & (self.monitor[1] == 0)
        self.monitor[1] = torch.where(is_first_bad, step, self.monitor[1])

    def _capture(self) -> None:
        # Each run is compiled for its own settings; a process may train more than the few that torch expects.
        from torch._dynamo import config as compiler  # takes seconds, and only compiled steps need it

        with compiler.patch(recompile_limit=COMPILED_LIMIT):
            self._record()

    def _record(self) -> None:
        self.drawn = torch.compile(self._drawn, fullgraph=True, dynamic=False)
        self.networks = [torch.compile(network, fullgraph=True, dynamic=False) for network in self.networks]
        self.loss_of = torch.compile(self._loss, fullgraph=True, dynamic=False)
        self.apply = torch.compile(self._apply, dynamic=False)
        state = [*self.updater.parameters, *self.model.buffers(), *chain(*self.updater.state.values()), self.monitor]
        before = [tensor.detach().clone() for tensor in state]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about the compiler's own code
            warnings.filterwarnings("ignore", "TensorFloat32")  # what is in float32 is meant to be
            for _ in range(WARM_UP):
                self._run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # the feed allocates pinned memory
            self._run()
        with torch.no_grad():
            for tensor, old in zip(state, before, strict=True):
                tensor.copy_(old)
        self.graph = graph
