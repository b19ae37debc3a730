"""Several processes train one model: torchrun starts them, and each takes its share of every batch."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor, distributed

from matchkernel.errors import ArgumentError, MatchKernelError, WorkError, short_message

# How long to wait for a silent process, which may be validating; the end of a process is noticed at once.
PATIENCE = timedelta(minutes=10)


@dataclass(frozen=True)
class Team:
    """This process among those of a run; a single process is rank 0 of 1."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def share(self, pairs: int) -> slice:
        """The pairs of a batch that this process takes."""
        if pairs % self.size:
            raise ArgumentError(f"a batch of {pairs} pairs cannot be shared equally by {self.size} processes")
        part = pairs // self.size
        if part < 2:
            raise ArgumentError(f"{self.size} processes need at least {2 * self.size} pairs per batch, got {pairs}")
        return slice(self.rank * part, (self.rank + 1) * part)

    def gathered(self, rows: Tensor) -> Tensor:
        """The rows of all processes, in the order of the batch; gradients flow to this process's own.

        Every process computes the same loss of the whole batch, so that the gradient of its own rows is complete, and
        the sum of the processes' parameter gradients is that of one process.
        """
        if self.size == 1:
            return rows
        parts = [torch.empty_like(rows) for _ in range(self.size)]
        distributed.all_gather(parts, rows.detach().contiguous())
        parts[self.rank] = rows
        return torch.cat(parts)

    def sum_gradients(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """Each gradient summed over the processes."""
        if self.size == 1:
            return gradients
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        parts = flat.split([gradient.numel() for gradient in gradients])
        return [part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True)]

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether the flag is set in any process."""
        if self.size == 1:
            return flag
        value = torch.tensor(float(flag), device=device)
        distributed.all_reduce(value, distributed.ReduceOp.MAX)
        return bool(value)

    def wait(self) -> None:
        """Wait until all processes have called this."""
        if self.size > 1:
            distributed.barrier()


def chosen_device(device: str) -> torch.device:
    """The requested device; under torchrun, the GPU of this process."""
    if device not in ("auto", "cpu", "cuda"):
        raise ArgumentError(f"device must be auto, cpu or cuda, got {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ArgumentError("device cuda: there is no GPU that PyTorch can use")
    if device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(place)
    return place


@contextmanager
def joined_team(device: torch.device) -> Iterator[Team]:
    """Join the processes started by torchrun, if any; their failures are reported in one line."""
    size = _size()
    if size == 1:
        yield Team()
        return
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield Team(distributed.get_rank(), size)
    except MatchKernelError:
        raise
    except RuntimeError as error:
        if not isinstance(error, (distributed.DistBackendError, distributed.DistError)) and not _is_lost(error):
            raise
        reason = short_message(error)
        raise WorkError(
            f"another process of this run ended or does not answer ({reason}); resume with --resume"
        ) from None
    finally:
        distributed.destroy_process_group()


def _size() -> int:
    """The number of processes that torchrun started."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size != "1" and not (size.isdecimal() and os.environ.keys() >= {"RANK", "MASTER_ADDR", "MASTER_PORT"}):
        raise ArgumentError("WORLD_SIZE is set, but torchrun did not start this process: use torchrun, or unset it")
    return int(size)


def _is_lost(error: RuntimeError) -> bool:
    """Whether a plain RuntimeError is gloo's report that another process is gone."""
    return any(part in str(error) for part in ("gloo", "Connection closed", "Connection reset", "Timed out", "peer"))
