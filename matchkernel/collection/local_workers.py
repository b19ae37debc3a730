"""Workers that are processes of this machine; they need nothing but Python, and end with the process that started them.

Each is a new Python that runs worker_process.py, not a fork of this one; tasks and results go through pipes.
"""

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from matchkernel.collection.workers import Crew, Event, Work
from matchkernel.photos.devices import CPU, open_place
from matchkernel.storage.system import cores, memory_here

GPU_WORKERS = 1  # processes share a GPU no better than threads do


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


def _has_gpu() -> bool:
    return open_place("auto") != CPU


@dataclass(eq=False)
class _Process:
    process: "subprocess.Popen[bytes]"
    listener: threading.Thread | None = None


class _Processes(Crew):
    def __init__(self, work: Work, size: int, threads: int, gpu: bool) -> None:
        super().__init__(work, size)
        self._message = pickle.dumps((work, threads, gpu))
        self._threads = threads
        self._alive: set[_Process] = set()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def start(self) -> _Process:
        paths = [path or os.getcwd() for path in sys.path]  # noqa: PTH109 - it may import what we can
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "OMP_NUM_THREADS": str(self._threads),
            "MKL_NUM_THREADS": str(self._threads),
            "OPENBLAS_NUM_THREADS": str(self._threads),
        }
        command = [sys.executable, "-P", "-m", "matchkernel.collection.worker_process"]
        process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        worker = _Process(process)
        worker.listener = threading.Thread(target=self._listen, args=(worker,), daemon=True)
        worker.listener.start()
        self._alive.add(worker)
        self._post(worker, self._message)
        return worker

    def send(self, worker: _Process, task: Any) -> None:
        self._post(worker, pickle.dumps(task))

    def events(self) -> list[Event]:
        try:
            event = self._events.get(timeout=1)
        except queue.Empty:
            return []
        if event.kind == "died":
            self._close(event.worker)
        return [event]

    def _post(self, worker: _Process, message: bytes) -> None:
        assert worker.process.stdin is not None
        with suppress(OSError):  # it has died; the event follows
            worker.process.stdin.write(message)
            worker.process.stdin.flush()

    def _listen(self, worker: _Process) -> None:
        """In a thread: make events of what a worker says, until it has died."""
        assert worker.process.stdout is not None
        try:
            while True:
                self._events.put(Event(worker, *pickle.load(worker.process.stdout)))
        except (EOFError, OSError, pickle.UnpicklingError):  # cut off
            pass
        except Exception:  # nothing that can be read here
            worker.process.kill()
        self._events.put(Event(worker, "died", _death_of(worker.process)))

    def _close(self, worker: _Process) -> None:
        assert worker.process.stdin is not None
        assert worker.process.stdout is not None
        assert worker.listener is not None
        self._alive.remove(worker)
        worker.listener.join()
        worker.process.stdout.close()
        with suppress(OSError):  # what it has not read
            worker.process.stdin.close()

    def end(self) -> None:
        for worker in self._alive:
            worker.process.kill()
        for worker in list(self._alive):
            self._close(worker)


def _death_of(process: "subprocess.Popen[bytes]") -> str:
    code = process.wait()
    if code >= 0:
        return f"its process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    hint = "; there may be too little memory" if name == "SIGKILL" else ""
    return f"its process was killed ({name}{hint})"
