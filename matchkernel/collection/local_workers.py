"""Workers that are processes of this machine; they need nothing but Python, and end with the process that started them.

Each is a new Python that runs worker_process.py, not a fork of this one, and is reached by a pair of sockets.
"""

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from matchkernel.collection.workers import Crew, Event, Work
from matchkernel.photos.devices import CPU, open_place
from matchkernel.storage.threads import cores

GPU_WORKERS = 1  # processes share a GPU no better than threads do
CONTAINER_LIMITS = (  # of cgroups, version 2 and 1
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


@dataclass(frozen=True)
class LocalWorkers:
    """Processes of this machine.

    Attributes:
        count: how many; None for one per core, as far as the memory reaches. With a GPU, one.
    """

    count: int | None = None

    @property
    def label(self) -> str:
        """For messages."""
        return "local" if self.count is None else f"local, {self.count} process{'es' * (self.count != 1)}"

    @contextmanager
    def opened(self, work: Work, tasks: int) -> Iterator[Crew]:
        """Workers for this work, at most as many as there are tasks; they are killed when the block ends."""
        gpu = work.uses_gpu and _has_gpu()
        count = self.count or (GPU_WORKERS if gpu else processes_that_fit(work.memory))
        crew = _Processes(work, min(count, tasks), max(1, cores() // count) if gpu else 1, gpu)
        try:
            yield crew
        finally:
            crew.end()


def processes_that_fit(memory: int) -> int:
    """One per core, but no more than fit into the memory if each takes so many bytes."""
    return max(1, min(cores(), memory_here() // memory))


def memory_here() -> int:
    """Bytes that the machine has, or that its container may use."""
    there = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in CONTAINER_LIMITS:
        with suppress(OSError, ValueError):  # not there, or "max"
            there.append(int(limit.read_text()))
    return min(there)


def _has_gpu() -> bool:
    return open_place("auto") != CPU


@dataclass(eq=False)
class _Process:
    process: subprocess.Popen[bytes]
    pipe: Connection


class _Processes(Crew):
    def __init__(self, work: Work, size: int, threads: int, gpu: bool) -> None:
        super().__init__(work, size)
        self._message = pickle.dumps((work, threads, gpu))
        self._threads = threads
        self._alive: dict[Connection, _Process] = {}

    def start(self) -> _Process:
        ours, theirs = socket.socketpair()
        paths = [path or os.getcwd() for path in sys.path]  # noqa: PTH109 - it may import what we can
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "OMP_NUM_THREADS": str(self._threads),
            "MKL_NUM_THREADS": str(self._threads),
            "OPENBLAS_NUM_THREADS": str(self._threads),
        }
        command = [sys.executable, "-m", "matchkernel.collection.worker_process", str(theirs.fileno())]
        with theirs:
            process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        worker = _Process(process, Connection(ours.detach()))
        self._alive[worker.pipe] = worker
        self._post(worker, self._message)
        return worker

    def send(self, worker: _Process, task: Any) -> None:
        self._post(worker, pickle.dumps(task))

    def events(self) -> list[Event]:
        return [self._event(self._alive[pipe]) for pipe in wait(list(self._alive), timeout=1) if pipe in self._alive]

    def _post(self, worker: _Process, message: bytes) -> None:
        with suppress(OSError):  # it has died; the event follows
            worker.pipe.send_bytes(message)

    def _event(self, worker: _Process) -> Event:
        try:
            kind, value = pickle.loads(worker.pipe.recv_bytes())
        except (EOFError, OSError):
            del self._alive[worker.pipe]
            worker.pipe.close()
            return Event(worker, "died", _death_of(worker.process))
        return Event(worker, kind, value)

    def end(self) -> None:
        for worker in self._alive.values():
            worker.pipe.close()
            worker.process.kill()
        for worker in self._alive.values():
            worker.process.wait()
        self._alive.clear()


def _death_of(process: "subprocess.Popen[bytes]") -> str:
    code = process.wait()
    if code >= 0:
        return f"its process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    hint = "; there may be too little memory" if -code == signal.SIGKILL else ""
    return f"its process was killed ({name}{hint})"
