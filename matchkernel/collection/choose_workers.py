"""Who does the work on a collection: this process, processes of this machine, or a Ray cluster."""

from matchkernel.collection.local_workers import LocalWorkers
from matchkernel.collection.ray_workers import RayWorkers, check_address
from matchkernel.collection.workers import Workers
from matchkernel.errors import ArgumentError
from matchkernel.storage.progress import Say

HERE_UP_TO = 100  # items for which starting processes does not pay
LOCAL, RAY = "local", "ray"


def choose_workers(
    on: str = LOCAL,
    count: int | None = None,
    *,
    items: int,
    has_gpu: bool = False,
    say: Say = lambda line: None,
) -> Workers | None:
    """Workers by name; None for this process with its threads.

    Args:
        on: "local"; "ray" for a Ray of this machine (or that of RAY_ADDRESS); the address of a cluster.
        count: how many. Without it, "local" is this process for few items or a GPU, otherwise one process per core.
        items: images or pairs to work on.
        has_gpu: whether this process would use a GPU.
        say: for what the user should know meanwhile.
    """
    if count is not None and count < 1:
        raise ArgumentError(f"workers must be at least 1, got {count}")
    if on == LOCAL:
        return None if count is None and (has_gpu or items <= HERE_UP_TO) else LocalWorkers(count)
    if on != RAY and ":" not in on:
        raise ArgumentError(f"work is done on local, ray, or a cluster at ray://HOST:PORT or HOST:PORT, got {on!r}")
    return RayWorkers(None if on == RAY else check_address(on), count, say=say)
