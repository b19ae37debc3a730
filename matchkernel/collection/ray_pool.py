"""Workers of a Ray cluster, one actor each, and the choice between them and processes of this machine.

Ray decides on which machine an actor runs. If it dies, alone or with its machine, another one is requested, which waits
until there is room for it, while the other workers continue. All machines must have this package and see the same
files under the same paths.
"""

import os
import platform
import re
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matchkernel import __version__
from matchkernel.errors import ArgumentError, FileError, WorkError, short_message
from matchkernel.storage.extras import need
from matchkernel.storage.files import write_errors
from matchkernel.storage.pool import LocalWorkers, Pool, Run, Work, WorkerDiedError, Workers, reply
from matchkernel.storage.work import Say, cores

ONE_PROCESS_UP_TO = 100  # items for which starting processes does not pay
REACHED_WITHIN = 10  # seconds
PATIENCE = 15  # seconds without any worker until a message says what Ray is asked for
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
        items: number of images or pairs to work on.
        has_gpu: True if this process would use a GPU.
        say: called with messages for the user.
    """
    if count is not None and count < 1:
        raise ArgumentError(f"workers must be at least 1, got {count}")
    if on == LOCAL:
        return None if count is None and (has_gpu or items <= ONE_PROCESS_UP_TO) else LocalWorkers(count, has_gpu)
    if on != RAY and not re.fullmatch(r"(ray://)?(\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}", on):
        raise ArgumentError(f"work is done on local, ray, or a cluster at ray://HOST:PORT or HOST:PORT, got {on!r}")
    return RayWorkers(None if on == RAY else on, count, say=say)


@dataclass(frozen=True)
class RayWorkers:
    """Actors of a Ray cluster."""

    # ray://HOST:PORT of Ray's client server, or HOST:PORT of a head node, for a program on one of its machines; None:
    # RAY_ADDRESS or, if that is not set, a Ray of this machine, which ends with the work.
    address: str | None = None
    count: int | None = None  # None: one per CPU (or per GPU, if the work uses them), as far as memory reaches
    say: Say = field(default=lambda line: None, repr=False)

    @property
    def label(self) -> str:
        """For messages."""
        place = self.address or RAY
        return place if self.count is None else f"{place}, {self.count} worker{'s' * (self.count != 1)}"

    @contextmanager
    def pool(self, work: Work, tasks: int) -> Iterator[Pool]:
        """Actors for this work, at most as many as there are tasks; they end with the block."""
        ray = need("ray", "ray", "--on ray")
        with ExitStack() as stack:
            if not ray.is_initialized():
                stack.enter_context(redirect_stdout(sys.stderr))  # Ray prints there that a machine was lost
                self._join(ray)
                stack.callback(ray.shutdown)
            resources = ray.cluster_resources()
            gpus, cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 0))
            gpu = work.uses_gpu and gpus > 0
            count = self.count or max(1, gpus if gpu else cpus)
            needs = {"num_cpus": max(1, cpus // gpus) if gpu else 1, "num_gpus": int(gpu)}
            if self.count is None:
                needs["memory"] = offered_memory(ray.nodes(), work.memory)
            mark = None if work.folder is None else stack.enter_context(visible_mark(work.folder))
            cluster = _Cluster(ray, ray.put((work, os.getcwd(), mark)), needs, self.say)  # noqa: PTH109 - a string
            pool = Pool([_RayWorker(cluster) for _ in range(max(1, min(count, tasks)))])
            stack.callback(pool.close)
            yield pool

    def _join(self, ray: Any) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns
        options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        address = self.address or os.environ.get("RAY_ADDRESS") or LOCAL
        _check_reachable(address)
        if address == LOCAL:
            os.environ.setdefault("RAY_worker_niceness", "0")  # as local processes have it; Ray's own is 15
            options |= {"num_cpus": self.count or cores(), "include_dashboard": False, "object_store_memory": 2**27}
        try:
            ray.init(address, **options)
        except Exception as error:  # it raises ConnectionError, RuntimeError, ValueError, TimeoutError and gRPC's
            reason = f"{type(error).__name__}: {short_message(error)}"
            raise WorkError(f"{address}: no Ray cluster could be reached ({reason})") from None


def offered_memory(nodes: Sequence[dict[str, Any]], wanted: int) -> int:
    """Bytes to request: at most those of the largest machine, as an actor that fits nowhere would wait forever."""
    return min(wanted, int(max((node["Resources"].get("memory", 0) for node in nodes if node["Alive"]), default=0)))


def _check_reachable(address: str) -> None:
    """Refuse an address where nothing listens; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return  # "local", "auto"
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACHED_WITHIN).close()
    except (OSError, OverflowError) as error:
        raise WorkError(f"{address}: no Ray cluster could be reached ({error})") from None


@contextmanager
def visible_mark(folder: Path) -> Iterator[Path]:
    """A file in a folder by which workers on other machines can tell that they see the same folder."""
    mark = folder / f".shared.{os.getpid()}.{os.getpid()}.part"  # removed as a leftover if this process is killed
    with write_errors(mark):
        mark.touch()
    try:
        yield mark
    finally:
        with suppress(OSError):
            mark.unlink()


def begin_elsewhere(
    work: Work, directory: str, mark: Path | None, threads: int, gpu: bool
) -> tuple[dict[str, Any], Run]:
    """Prepare the work on another machine, which must see the mark, with relative paths as the user gave them."""
    with suppress(OSError):  # a directory that is not shared; absolute paths may be
        os.chdir(directory)
    if mark is not None and not mark.exists():
        raise FileError(
            f"{mark.parent}: the machine {platform.node()} does not see this folder of the run; inputs and outputs "
            "must be on a file system that all machines share, under the same path"
        )
    facts, run = work.begin(threads, gpu)
    return facts | {"matchkernel": __version__}, run


class RayActor:
    """A process of the cluster. Its methods return what `reply` gives."""

    def open(self, work: tuple[Work, str, Path | None], threads: int, gpu: bool) -> tuple[bool, Any, str]:
        """Prepare the work; returns whether that succeeded, the facts or the error, and the machine."""
        import ray

        is_open, opened = reply(begin_elsewhere, *work, threads, gpu)
        if is_open:
            opened, self._run = opened
        return is_open, opened, ray.get_runtime_context().get_node_id()

    def run(self, items: Sequence[Any]) -> tuple[bool, Any]:
        """Run a task."""
        return reply(self._run, items)


class _Cluster:
    """What the workers of a pool share: the connection, the work, and what each actor needs."""

    def __init__(self, ray: Any, work: Any, needs: dict[str, int], say: Say) -> None:
        self.ray, self.work, self.needs, self.say = ray, work, needs, say
        self.gpu = bool(needs["num_gpus"])
        self.threads = needs["num_cpus"] if self.gpu else 1
        self.actor = ray.remote(RayActor).options(
            max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD", **needs
        )
        self.is_quiet = threading.Event()  # a worker has been ready, or the message was printed

    def report_waiting(self) -> None:
        """Print what each worker needs, unless one has been ready."""
        if not self.is_quiet.is_set():
            self.is_quiet.set()
            units = {"num_cpus": "CPUs", "num_gpus": "GPUs", "memory": "bytes of memory"}
            wanted = ", ".join(f"{value:,} {units[name]}" for name, value in self.needs.items() if value)
            self.say(f"waiting for the Ray cluster to have room for a worker ({wanted} each)")


class _RayWorker:
    """An actor, and the machine that it runs on."""

    def __init__(self, cluster: _Cluster) -> None:
        self._cluster = cluster
        self._actor: Any = None
        self._node: str | None = None

    def start(self) -> dict[str, Any]:
        self._node, cluster = None, self._cluster
        self._actor = cluster.actor.remote()
        reference = self._actor.open.remote(cluster.work, cluster.threads, cluster.gpu)
        if not cluster.ray.wait([reference], timeout=PATIENCE)[0]:
            cluster.report_waiting()
        is_open, opened, self._node = self._get(reference)
        cluster.is_quiet.set()
        if not is_open:
            raise opened
        return dict(opened)

    def run(self, items: Sequence[Any]) -> Any:
        is_done, result = self._get(self._actor.run.remote(items))
        if not is_done:
            raise result
        return result

    def kill(self) -> None:
        if self._actor is not None:
            with suppress(Exception):
                self._cluster.ray.kill(self._actor)

    close = kill

    def _get(self, reference: Any) -> Any:
        ray = self._cluster.ray
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:  # before or after our code
            raise WorkError(f"a Ray worker failed: {short_message(error.cause)}") from None
        except ray.exceptions.RayError as error:
            self.kill()
            reason = f"its Ray worker died ({short_message(error)})"
            raise WorkerDiedError(reason, by_task=not self._is_machine_lost()) from None

    def _is_machine_lost(self) -> bool:
        nodes = self._cluster.ray.nodes()
        return self._node is not None and not any(one["NodeID"] == self._node and one["Alive"] for one in nodes)
