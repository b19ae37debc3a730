"""Distillation: trained models, an ensemble if there are several, whose rows a model copies."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from matchkernel.errors import ArgumentError
from matchkernel.model.describe import resize_patches
from matchkernel.model.descriptors import Descriptor, check_patch_size
from matchkernel.model.engines.cuda_engine import CudaHalfEngine
from matchkernel.model.precision import unit_rows
from matchkernel.model.weights import load, state_digest
from matchkernel.runtime.config import DescriptorConfig
from matchkernel.storage.files import json_digest
from matchkernel.training.config import TeacherSettings
from matchkernel.training.sets import TrainingSet

SAMPLE = 4096  # patches from which the principal dimensions of an ensemble's rows are computed
AT_A_TIME = 512


class Teacher(nn.Module):
    """An ensemble of trained models.

    Their unit rows are joined and scaled to unit length, so that a product of two joined rows is the mean of the
    models' similarities.

    Args:
        models: trained, folded, on their device.
        names: of their weights, with the start of their digests, for the card.
        size: side of the patches.
        in_half: compute in half precision by the engine for GPUs, which takes a third of the time.
    """

    basis: Tensor  # (sum of the models' D, D of the student): what a row of the student should be, from joined rows

    def __init__(self, models: list[Descriptor], names: list[str], *, size: int = 0, in_half: bool = False) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        device = next(models[0].parameters()).device
        self.engines = [CudaHalfEngine(model, size, device) for model in models] if in_half else []
        self.digests = [state_digest(model) for model in models]
        self.described = ", ".join(names)
        self.training_sets = tuple(dict.fromkeys(entry for model in models for entry in model.card.seen_sets))
        self.unknown = [name for name, model in zip(names, models, strict=True) if model.card.has_unknown_sets]
        self.digest = json_digest(self.digests)

    @torch.no_grad()
    def forward(self, patches: Tensor) -> Tensor:
        """(B, 1, N, N) -> (B, sum of D) joined unit rows in float32."""
        rows = [engine.rows(patches) for engine in self.engines]
        for model in () if rows else self.models:
            assert isinstance(model, Descriptor)
            maps = model.feature_maps(patches)
            rows.append(unit_rows(model.embed(maps)))
        return torch.cat(rows, 1) / math.sqrt(len(rows))

    @torch.no_grad()
    def find_basis(self, patches: Tensor, D: int) -> None:
        """Find the D directions that keep most of the products of joined rows: the principal ones, not centred.

        Their signs do not depend on the machine, or a run that another one resumes would copy other rows.
        Without this, a model with as many dimensions as the joined rows copies them as they are.
        """
        joined = torch.cat([self(part) for part in patches.split(AT_A_TIME)]).double()
        _, vectors = torch.linalg.eigh(joined.T @ joined)
        vectors = vectors[:, -D:].flip(1)
        largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
        self.register_buffer("basis", (vectors * largest.sign()).float().contiguous(), persistent=False)

    def loss(self, rows: tuple[Tensor, Tensor], joined: tuple[Tensor, ...], weight: float) -> Tensor:
        """The weighted mean squared distance of a batch's rows to the teacher's.

        Args:
            rows: (B, D) of the anchors and of the positives, before l2 normalisation.
            joined: the teacher's joined rows of the same patches.
            weight: of the distance.
        """
        distances = [
            (unit_rows(mine.float()) - unit_rows(theirs @ self.basis)).square().sum(1).mean()
            for mine, theirs in zip(rows, joined, strict=True)
        ]
        return weight * (distances[0] + distances[1]) / 2


def open_teacher(
    settings: TeacherSettings,
    student: DescriptorConfig,
    data: TrainingSet,
    device: torch.device,
    *,
    in_half: bool,
    turns: bool = True,
) -> Teacher:
    """Load the teacher of a run, and find the dimensions of its rows that the student is to copy.

    Args:
        settings: the teacher.
        student: the model that learns from it.
        data: what it learns on.
        device: where it computes.
        in_half: in half precision.
        turns: rows of as many dimensions as the student's are turned too, to their principal ones; not wanted for a
            student that starts from trained weights.
    """
    models = [load(name) for name in settings.weights]
    for model in models:
        check_patch_size(model.config, student.patch_size)
    size, names = student.patch_size, [f"{model.name} {state_digest(model)[:16]}" for model in models]
    folded = [model.fold().float().to(device).eval().requires_grad_(False) for model in models]
    teacher = Teacher(folded, names, size=size, in_half=in_half)
    D, dimensions = student.D or 0, sum(model.config.D or 0 for model in models)
    if dimensions < D:
        raise ArgumentError(f"the student has {D} dimensions, its teachers only {dimensions} together: lower model.D")
    if dimensions == D and not turns:
        teacher.register_buffer("basis", torch.eye(D, device=device), persistent=False)
    else:
        every = max(1, len(data) // SAMPLE)
        sample = torch.from_numpy(data.gather(np.arange(0, len(data), every))).to(device)
        teacher.find_basis(resize_patches(sample[:, None].float(), student.patch_size), D)
    return teacher
