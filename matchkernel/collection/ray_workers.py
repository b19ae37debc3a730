"""Workers of a Ray cluster: one actor each, so that a model is sent to it and opened once.

Ray decides on which machine an actor runs. If it dies, alone or with its machine, another one is asked for, and waits
until there is room for it; meanwhile the others go on. All machines must have this package and see the same files.
"""

import os
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from typing import Any

from matchkernel import __version__
from matchkernel.collection.worker_process import do, open_here
from matchkernel.collection.workers import Crew, Event, Work
from matchkernel.errors import ArgumentError, WorkError, short_message
from matchkernel.storage.extras import need
from matchkernel.storage.progress import Say
from matchkernel.storage.system import cores

REACHED_WITHIN = 10  # seconds
PATIENCE = 15  # seconds without any worker until the user is told what Ray is asked for


@dataclass(frozen=True)
class RayWorkers:
    """Actors of a Ray cluster.

    Attributes:
        address: ray://HOST:PORT of Ray's client server, or HOST:PORT of a head node, for a program on one of its
            machines; None for RAY_ADDRESS or, if that is not set, a Ray of this machine, which ends with the work.
        count: number of actors; None for one per CPU (or per GPU, if the work uses them), as far as memory reaches.
        sharing: actors that share one process, as threads; for work that waits and does not compute.
        say: called with a line if no worker can be placed for a while.
    """

    address: str | None = None
    count: int | None = None
    sharing: int = 1
    say: Say = field(default=lambda line: None, repr=False)

    @property
    def label(self) -> str:
        """For messages."""
        place = self.address or "ray"
        return place if self.count is None else f"{place}, {self.count} worker{'s' * (self.count != 1)}"

    @contextmanager
    def opened(self, work: Work, tasks: int) -> Iterator[Crew]:
        """Actors for this work, at most as many as there are tasks; they end with the block."""
        ray = need("ray", "ray", "--on ray")
        was_joined = ray.is_initialized()
        with ExitStack() as stack:
            if not was_joined:
                stack.enter_context(redirect_stdout(sys.stderr))  # Ray prints there that a machine was lost
                self._join(ray)
                stack.callback(ray.shutdown)
            there = ray.cluster_resources()
            gpus, cpus = int(there.get("GPU", 0)), int(there.get("CPU", 0))
            gpu = work.uses_gpu and gpus > 0
            count = self.count or max(1, gpus if gpu else cpus)
            needs: dict[str, Any] = {"num_cpus": max(1, cpus // gpus) if gpu else 1 if self.sharing == 1 else 0}
            needs["num_gpus"] = 1 if gpu else 0
            if self.count is None:
                needs["memory"] = offered_memory(ray.nodes(), work.memory)
            crew = _Actors(ray, work, min(count, tasks), needs, self.sharing, gpu, self.say)
            stack.callback(crew.end)
            yield crew

    def _join(self, ray: Any) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns
        options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        address = self.address or os.environ.get("RAY_ADDRESS") or "local"
        _check_reachable(address)
        if address == "local":
            os.environ.setdefault("RAY_worker_niceness", "0")  # as the processes of LocalWorkers; Ray's own is 15
            options |= {"num_cpus": self.count or cores(), "include_dashboard": False, "object_store_memory": 2**27}
        try:
            ray.init(address, **options)
        except Exception as error:  # it raises ConnectionError, RuntimeError, ValueError, TimeoutError and gRPC's
            reason = short_message(error)
            raise WorkError(f"{address}: no Ray cluster could be reached ({type(error).__name__}: {reason})") from None


def offered_memory(nodes: Sequence[dict[str, Any]], wanted: int) -> int:
    """Bytes to ask for: no more than the largest machine has, as an actor that no machine can hold waits for ever."""
    return min(wanted, int(max((node["Resources"].get("memory", 0) for node in nodes if node["Alive"]), default=0)))


def check_address(text: str) -> str:
    """An address of a Ray cluster, with its port; anything else is refused."""
    if not re.fullmatch(r"(ray://)?(\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}", text):
        raise ArgumentError(f"a Ray cluster is given as ray://HOST:PORT or HOST:PORT, got {text!r}")
    return text


def _check_reachable(address: str) -> None:
    """Refuse an address where nothing listens; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return  # "local", "auto"
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACHED_WITHIN).close()
    except (OSError, OverflowError) as error:
        raise WorkError(f"{address}: no Ray cluster could be reached ({error})") from None


class Actor:
    """One process of the cluster."""

    def __init__(self) -> None:
        self._opened: Any = None

    def open(self, work: Work, threads: int, gpu: bool) -> tuple[tuple[str, Any], str]:
        """("ready", facts) or ("error", why), and on which machine."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        if self._opened is not None:  # another one of those that share this process
            return ("ready", self._opened.facts | {"matchkernel": __version__}), node
        reply, self._opened = open_here(work, threads, gpu)
        if reply[0] == "ready":
            reply = ("ready", reply[1] | {"matchkernel": __version__})
        return reply, node

    def do(self, task: Any) -> tuple[str, Any]:
        """("done", result) or ("error", why)."""
        return do(self._opened, task)


@dataclass(eq=False)
class _Worker:
    actor: Any
    node: str | None = None


class _Actors(Crew):
    def __init__(
        self, ray: Any, work: Work, size: int, needs: dict[str, Any], sharing: int, gpu: bool, say: Say
    ) -> None:
        super().__init__(work, size)
        self._ray, self._gpu, self._sharing = ray, gpu, sharing
        self._threads = needs["num_cpus"] if gpu else 1
        self._needs, self._say, self._silent = needs, say, 0
        self._sent = ray.put(work)
        more = {"max_concurrency": sharing} if sharing > 1 else {}
        self._class = ray.remote(Actor).options(
            max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD", **needs, **more
        )
        self._waiting: dict[Any, _Worker] = {}
        self._shared: list[Any] = []  # the actor that has room for another worker, once for each

    def start(self) -> _Worker:
        if not self._shared:
            self._shared = [self._class.remote()] * self._sharing
        worker = _Worker(self._shared.pop())
        self._waiting[worker.actor.open.remote(self._sent, self._threads, self._gpu)] = worker
        return worker

    def send(self, worker: _Worker, task: Any) -> None:
        self._waiting[worker.actor.do.remote(task)] = worker

    def events(self) -> list[Event]:
        finished, _ = self._ray.wait(list(self._waiting), num_returns=1, timeout=1)
        self._silent = 0 if finished or self._idle or self._busy else self._silent + 1
        if self._silent == PATIENCE:
            room = {"num_cpus": "CPUs", "num_gpus": "GPUs", "memory": "bytes of memory"}
            wanted = ", ".join(f"{value:,} {room[name]}" for name, value in self._needs.items() if value)
            self._say(f"waiting for the Ray cluster to have room for a worker ({wanted} each)")
        return [self._event(reference, self._waiting.pop(reference)) for reference in finished]

    def _event(self, reference: Any, worker: _Worker) -> Event:
        try:
            found = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # before or after our code
            return Event(worker, "error", WorkError(f"a Ray worker failed: {short_message(error.cause)}"))
        except self._ray.exceptions.RayError as error:
            with suppress(Exception):
                self._ray.kill(worker.actor)
            reason = short_message(error)
            return Event(worker, "died", f"its Ray worker died ({reason})", is_guilty=not self._is_gone(worker.node))
        if worker.node is None:
            reply, worker.node = found
            return Event(worker, *reply)
        return Event(worker, *found)

    def _is_gone(self, node: str | None) -> bool:
        """Whether the machine has been lost."""
        return node is not None and not any(one["NodeID"] == node and one["Alive"] for one in self._ray.nodes())

    def end(self) -> None:
        for worker in {*self._starting, *self._idle, *self._busy, *self._waiting.values()}:
            with suppress(Exception):
                self._ray.kill(worker.actor)
        self._waiting.clear()
