"""The options that say who does the work on a collection."""

from typing import TYPE_CHECKING, Annotated

import typer

from matchkernel.cli.console import say

if TYPE_CHECKING:
    from matchkernel.storage.pool import Workers

On = Annotated[
    str,
    typer.Option(
        "--on", help="who works: local; ray (a Ray of this machine, or RAY_ADDRESS); ray://HOST:PORT or HOST:PORT"
    ),
]
WorkerCount = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="number of processes (default: this one for up to 100 items or on a GPU, otherwise one per core)",
    ),
]


def open_workers(on: str, count: int | None, items: int, device: str) -> "Workers | None":
    """The workers that these options ask for; None for this process."""
    from matchkernel.collection.ray_pool import choose_workers
    from matchkernel.photos.describers import open_place

    has_gpu = on == "local" and device != "cpu" and open_place(device).startswith("cuda")
    return choose_workers(on, count, items=items, has_gpu=has_gpu, say=say)


def speed(items: int, seconds: float, unit: str) -> dict[str, float]:
    """The time that passed and the items per second, for JSON."""
    return {"elapsed": round(seconds, 3), f"{unit}_per_second": round(items / seconds, 3) if seconds > 0 else 0.0}
