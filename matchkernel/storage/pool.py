"""A pool of worker processes: they take tasks, return results, and may die.

A task is a list of items. If a worker dies (a crash, a kill, a lost machine) or fails, its task is repeated item by
item, so that one bad item cannot take others with it; an item that fails three times is reported as a Failure.

Local workers are new Python processes that run this module. Tasks and results are pickled and go through pipes, and a
worker ends with the process that started it. Workers of a Ray cluster are in collection/ray_pool.py.
"""

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from matchkernel.errors import MatchKernelError, WorkError, short_message
from matchkernel.storage.settings import first_difference
from matchkernel.storage.work import cores, memory_here, use_threads

TRIES = 3  # failures after which an item, or a worker that cannot start, is given up
SECONDS_TO_END = 30  # before workers that do not react are left behind


Run = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class Work:
    """What workers do. It is pickled and sent to each of them once, with everything it needs, such as a model."""

    # Prepares the work in a worker, with or without a GPU. It returns facts that must be the same in every worker (JSON
    # values), and a function that runs a task. Its result should be small: large results are better written to files.
    open: Callable[[bool], tuple[dict[str, Any], Run]]
    memory: int  # maximum number of bytes that a worker needs
    uses_gpu: bool = False  # where there is one
    folder: Path | None = None  # where workers write files; those on other machines must see it

    def begin(self, threads: int, gpu: bool) -> tuple[dict[str, Any], Run]:
        """In a worker: prepare the work for this number of threads."""
        use_threads(threads)
        return self.open(gpu)


class Workers(Protocol):
    """Where work is done. `label` is for messages, such as "local, 2 processes"."""

    @property
    def label(self) -> str: ...  # noqa: D102

    def pool(self, work: Work, tasks: int) -> "AbstractContextManager[Pool]":
        """Workers for this work, at most as many as there are tasks; they end with the block."""
        ...


@dataclass(frozen=True)
class Failure:
    """Stands in place of a result: every attempt at the task failed, the last one for this reason."""

    reason: str


class WorkerDiedError(Exception):
    """A worker died. `by_task` is False if the task cannot be the cause, as when its machine was lost."""

    def __init__(self, reason: str, by_task: bool = True) -> None:
        super().__init__(reason)
        self.by_task = by_task


class Worker(Protocol):
    """One worker, wherever it runs. `start` and `run` raise WorkerDiedError, or the error that the work raised."""

    def start(self) -> dict[str, Any]:
        """Start it, again if it has died; returns the facts of the work."""
        ...

    def run(self, items: Sequence[Any]) -> Any:
        """The result of a task."""
        ...

    def kill(self) -> None:
        """End it; `start` and `run`, which may be waiting in another thread, then raise WorkerDiedError."""
        ...

    def close(self) -> None:
        """End it and release what it holds; called in the same thread as `start` and `run`."""
        ...


class _Task(NamedTuple):
    items: list[Any]
    failures: int = 0


class Pool:
    """Gives tasks to workers and repeats those that fail. Each worker has a thread that waits for its results."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.size = len(workers)
        self._facts: dict[str, Any] | None = None
        self._given_up = 0  # workers that could not be started
        self._is_closed = False
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[tuple[_Task | None, Any]] = queue.SimpleQueue()
        self._threads = [
            (worker, threading.Thread(target=self._serve, args=(worker,), daemon=True)) for worker in workers
        ]
        for _, thread in self._threads:
            thread.start()

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of the work, once the first worker is ready."""
        while self._facts is None:
            self._next_outcome()
        return self._facts

    def run(self, tasks: Iterable[Sequence[Any]]) -> Iterator[tuple[list[Any], Any]]:
        """Each task, or the single items into which it was split, with its result or Failure, as they finish."""
        unfinished = self._give([_Task(list(items)) for items in tasks])
        while unfinished:
            task, outcome = self._next_outcome()
            if task is None:
                continue
            unfinished -= 1
            if isinstance(outcome, MatchKernelError):
                raise outcome
            if not isinstance(outcome, Exception):
                yield task.items, outcome
                continue
            failures = task.failures + getattr(outcome, "by_task", True)
            if failures >= TRIES:
                yield task.items, Failure(one_line(outcome))
            else:
                parts = [[item] for item in task.items] if failures else [task.items]
                unfinished += self._give([_Task(part, failures) for part in parts])

    def close(self) -> None:
        """End all workers."""
        self._is_closed = True
        for worker, _ in self._threads:
            self._tasks.put(None)
            worker.kill()
        until = time.monotonic() + SECONDS_TO_END
        for worker, thread in self._threads:
            while thread.is_alive() and time.monotonic() < until:
                thread.join(0.1)
                worker.kill()  # again, as it may have been about to start

    def _give(self, tasks: Sequence[_Task]) -> int:
        for task in tasks:
            self._tasks.put(task)
        return len(tasks)

    def _next_outcome(self) -> tuple[_Task | None, Any]:
        """A task and what became of it; None and a worker's start, or None and None after a second."""
        try:
            task, outcome = self._outcomes.get(timeout=1)  # without a limit, Windows would not notice Ctrl-C
        except queue.Empty:
            return None, None
        if task is None:
            self._handle_start(outcome)
        return task, outcome

    def _handle_start(self, outcome: Any) -> None:
        if isinstance(outcome, WorkerDiedError):
            self._given_up += 1
            if self._given_up == self.size:
                raise WorkError(f"workers die while they start: {outcome}")
        elif isinstance(outcome, MatchKernelError):
            raise outcome
        elif isinstance(outcome, Exception):
            raise WorkError(f"a worker could not start: {one_line(outcome)}")
        elif differs := first_difference(self._facts or outcome, outcome):
            raise WorkError(
                f"workers differ: {differs[0]} is {differs[1]!r} on one, {differs[2]!r} on another; "
                "give them the same versions, --device and --engine"
            )
        else:
            self._facts = outcome

    def _serve(self, worker: Worker) -> None:
        """In a thread: keep a worker alive and give it tasks."""
        failed_starts = 0
        while not self._is_closed:
            try:
                facts = worker.start()
            except Exception as error:  # whatever it is, the thread of the caller reports it
                failed_starts += 1
                if failed_starts == TRIES or not isinstance(error, WorkerDiedError):
                    self._outcomes.put((None, error))
                    break
            else:
                failed_starts = 0
                self._outcomes.put((None, facts))
                self._run_tasks(worker)
        worker.close()

    def _run_tasks(self, worker: Worker) -> None:
        """Give tasks to a worker until it dies or the pool is closed."""
        outcome: Any = None
        while not isinstance(outcome, WorkerDiedError) and (task := self._tasks.get()) is not None:
            try:
                outcome = worker.run(task.items)
            except Exception as error:  # whatever it is, the thread of the caller reports it
                outcome = error
            self._outcomes.put((task, outcome))


def one_line(error: BaseException) -> str:
    """An error in one line; a RuntimeError comes from a worker, which has written the kind of error into it."""
    text = short_message(error, 200)
    return text if isinstance(error, RuntimeError | WorkerDiedError) else f"{type(error).__name__}: {text}"


@dataclass(frozen=True)
class LocalWorkers:
    """Processes of this machine."""

    count: int | None = None  # one per core, as far as the memory reaches, or one if there is a GPU
    has_gpu: bool = False  # this machine has a GPU that work may use

    @property
    def label(self) -> str:
        """For messages."""
        return "local" if self.count is None else f"local, {self.count} process{'es' * (self.count != 1)}"

    @contextmanager
    def pool(self, work: Work, tasks: int) -> Iterator[Pool]:
        """Processes for this work, at most as many as there are tasks; they are killed when the block ends."""
        gpu = work.uses_gpu and self.has_gpu
        count = self.count or (1 if gpu else processes_that_fit(work.memory))
        threads = max(1, cores() // count) if gpu else 1
        message = pickle.dumps((work.begin, threads, gpu))
        with closing(Pool([_LocalWorker(message, threads) for _ in range(max(1, min(count, tasks)))])) as pool:
            yield pool


def processes_that_fit(memory: int) -> int:
    """One process per core, but no more than fit into the memory if each needs this number of bytes."""
    return max(1, min(cores(), memory_here() // memory))


class _LocalWorker:
    """A process of this machine, and the pipes to it."""

    def __init__(self, message: bytes, threads: int) -> None:
        self._message, self._threads = message, threads
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> dict[str, Any]:
        self.close()
        paths = [path or os.getcwd() for path in sys.path]  # noqa: PTH109 - it can import what this process can
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **dict.fromkeys(names, str(self._threads))}
        command = [sys.executable, "-P", "-m", "matchkernel.storage.pool"]
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return dict(self._reply_to(self._process, self._message))

    def run(self, items: Sequence[Any]) -> Any:
        assert self._process is not None
        return self._reply_to(self._process, pickle.dumps(items))

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                with suppress(OSError):  # what it has not read
                    pipe.close()

    def _reply_to(self, process: "subprocess.Popen[bytes]", message: bytes) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(message)
            process.stdin.flush()
            is_done, value = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):  # cut off
            raise WorkerDiedError(_cause_of_death(process)) from None
        except Exception as error:  # a reply that cannot be read here
            process.kill()
            raise WorkerDiedError(f"its reply cannot be read: {one_line(error)}") from None
        if not is_done:
            raise value
        return value


def _cause_of_death(process: "subprocess.Popen[bytes]") -> str:
    code = process.wait()
    if code >= 0:
        return f"its process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    hint = "; there may be too little memory" if name == "SIGKILL" else ""
    return f"its process was killed ({name}{hint})"


def reply(function: Callable[..., Any], *arguments: Any) -> tuple[bool, Any]:
    """In a worker: (True, result) or (False, error) of a call. The error can be pickled: if it is not one of this
    package, it becomes a RuntimeError with its kind and text.
    """
    try:
        return True, function(*arguments)
    except Exception as error:  # whatever it is, it is reported to the pool
        with suppress(Exception):  # a class whose constructor needs other arguments
            if isinstance(error, MatchKernelError):
                return False, pickle.loads(pickle.dumps(error))
        return False, RuntimeError(f"{type(error).__name__}: {error}")


def serve() -> None:
    """The main function of a worker process: open the work that comes through stdin, then run the tasks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the process with the pool decides
    messages, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # on Windows a library that looks at stdin would wait for the thread
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what libraries print is not a reply
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(messages, tasks), daemon=True).start()
    is_open, opened = reply(*tasks.get())
    pickle.dump((is_open, opened[0] if is_open else opened), replies)
    replies.flush()
    while is_open:
        pickle.dump(reply(opened[1], tasks.get()), replies)
        replies.flush()


def _receive(messages: IO[bytes], tasks: "queue.SimpleQueue[Any]") -> None:
    """In a thread: receive tasks, and end the process when the one with the pool has ended."""
    try:
        while True:
            tasks.put(pickle.load(messages))
    except (EOFError, OSError):
        pass
    except Exception:  # such as a class that cannot be imported here
        traceback.print_exc()
    os._exit(1)


if __name__ == "__main__":
    serve()
