"""Work in many processes, whoever provides them: give tasks to workers, take results as they come, survive deaths.

A task that dies with its worker (a crash, a kill, a lost machine) is done again by another one. If it was several
items, these are done one by one from then on, so that one poisoned item cannot take others with it; an item that has
cost three workers is given up and named.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from matchkernel.errors import MatchKernelError, WorkError, short_message

TRIES = 3  # workers that a task may cost


class Opened(Protocol):
    """Work that is ready in one worker.

    Attributes:
        facts: what determines the results, JSON values; they must be the same in every worker.
    """

    @property
    def facts(self) -> dict[str, Any]: ...  # noqa: D102

    def do(self, task: Any) -> Any:
        """The result of a task, which should be small: files are better written here."""
        ...


class Work(Protocol):
    """What workers do. It is pickled and sent to each of them once, with all it needs, such as a model.

    Attributes:
        memory: bytes that a worker takes at most.
        uses_gpu: whether a worker takes a GPU where there are any.
    """

    @property
    def memory(self) -> int: ...  # noqa: D102
    @property
    def uses_gpu(self) -> bool: ...  # noqa: D102

    def open(self, threads: int, gpu: bool) -> Opened:
        """Make ready, once in every worker, for so many threads, on a GPU or without one."""
        ...

    def split(self, task: Any) -> Sequence[Any]:
        """Smaller tasks instead of this one; only itself if it has one item."""
        ...


@dataclass(frozen=True)
class Lost:
    """Instead of a result: every worker that tried the task died, for this reason."""

    reason: str


class Workers(Protocol):
    """Where work is done.

    Attributes:
        label: for messages, such as "2 processes".
    """

    @property
    def label(self) -> str: ...  # noqa: D102

    def opened(self, work: Work, tasks: int) -> "AbstractContextManager[Crew]":
        """Workers for this work, at most as many as there are tasks, until the block ends."""
        ...


class Event(NamedTuple):
    """What happened to a worker: it is ready, has done its task, met an error, or died."""

    worker: Any
    kind: Literal["ready", "done", "error", "died"]
    value: Any  # its facts, the result, the exception, or the reason
    is_guilty: bool = True  # whether the task may be why it died


class Queue:
    """Tasks that wait, and how many workers each has cost."""

    def __init__(self, tasks: Iterable[Any], split: Callable[[Any], Sequence[Any]]) -> None:
        self._waiting = deque((task, 0) for task in tasks)
        self._split = split
        self._running = 0

    @property
    def is_unfinished(self) -> bool:
        """Whether tasks wait or run."""
        return bool(self._waiting or self._running)

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> tuple[Any, int]:
        """The next task and how many workers it has cost; it runs now."""
        self._running += 1
        return self._waiting.popleft()

    def finish(self) -> None:
        """A task that ran is done."""
        self._running -= 1

    def retry(self, task: Any, tries: int, is_guilty: bool) -> bool:
        """A task that ran died with its worker: it is done again, item by item; False if it is given up."""
        self._running -= 1
        tries += is_guilty
        if tries >= TRIES:
            return False
        self._waiting.extendleft((part, tries) for part in reversed(self._split(task) if tries else [task]))
        return True


class Crew(ABC):
    """Workers that are being started, wait, or have a task; subclasses know how to reach them.

    Args:
        work: what they do.
        size: how many there are at most.
    """

    def __init__(self, work: Work, size: int) -> None:
        self.work, self.size = work, max(1, size)
        self._starting: set[Any] = set()
        self._idle: list[Any] = []
        self._busy: dict[Any, tuple[Any, int]] = {}
        self._facts: dict[str, Any] | None = None
        self._failed_starts = 0

    @abstractmethod
    def start(self) -> Any:
        """Begin to start one more worker; an event follows. Returns what it is known by."""

    @abstractmethod
    def send(self, worker: Any, task: Any) -> None:
        """Give a task to an idle worker; an event follows."""

    @abstractmethod
    def events(self) -> list[Event]:
        """Wait until something happened, or a second has passed."""

    @property
    def facts(self) -> dict[str, Any]:
        """What the workers say about themselves, once the first is ready."""
        while self._facts is None:
            self._start_missing(self.size)
            for event in self.events():
                self._handle_start(event)
        return self._facts

    def run(self, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Each task, or the smaller ones it was split into, with its result or Lost, as they finish."""
        queue = Queue(tasks, self.work.split)
        while queue.is_unfinished:
            while self._idle and len(queue):
                worker = self._idle.pop()
                task, tries = queue.take()
                self._busy[worker] = task, tries
                self.send(worker, task)
            self._start_missing(len(queue))
            for event in self.events():
                if event.worker in self._busy:
                    yield from self._handle_task(queue, event)
                else:
                    self._handle_start(event)

    def _start_missing(self, wanted: int) -> None:
        """Start workers until there are enough for the tasks that wait."""
        there = len(self._starting) + len(self._idle)
        for _ in range(min(wanted - there, self.size - there - len(self._busy))):
            self._starting.add(self.start())

    def _handle_task(self, queue: Queue, event: Event) -> Iterator[tuple[Any, Any]]:
        task, tries = self._busy.pop(event.worker)
        if event.kind == "done":
            self._idle.append(event.worker)
            queue.finish()
            yield task, event.value
            return
        if event.kind == "error":
            self._idle.append(event.worker)
            if isinstance(event.value, MatchKernelError):
                raise event.value
        reason = event.value if event.kind == "died" else described(event.value)
        if not queue.retry(task, tries, event.is_guilty):
            yield task, Lost(reason)

    def _handle_start(self, event: Event) -> None:
        self._starting.discard(event.worker)
        if event.kind == "died" and event.worker in self._idle:
            self._idle.remove(event.worker)
            return
        if event.kind == "died":
            self._failed_starts += 1
            if self._failed_starts >= TRIES * self.size:
                raise WorkError(f"workers die while they start: {event.value}")
            return
        if event.kind == "error":
            ours = isinstance(event.value, MatchKernelError)
            raise event.value if ours else WorkError(f"a worker could not start: {described(event.value)}")
        self._failed_starts = 0
        self._facts = self._facts or event.value
        if event.value != self._facts:
            differs = next(key for key in self._facts if event.value.get(key) != self._facts[key])
            raise WorkError(
                f"workers differ: {differs} is {event.value.get(differs)!r} on one, {self._facts[differs]!r} on "
                "another; give them the same versions, --device and --engine"
            )
        self._idle.append(event.worker)


def described(error: BaseException) -> str:
    """An error in one line; a RuntimeError comes from a worker, which has written its kind into it."""
    text = short_message(error, 200)
    return text if isinstance(error, RuntimeError) else f"{type(error).__name__}: {text}"
