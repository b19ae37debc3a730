"""A worker process: opens the work that it is sent, then does one task after the other, until its starter is gone."""

import os
import pickle
import queue
import signal
import threading
import traceback
from typing import IO, Any

from matchkernel.collection.workers import Work
from matchkernel.errors import MatchKernelError


def main() -> None:
    """Do what comes by stdin, and tell it by stdout."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the starter decides
    starter, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # on Windows a library that looks at stdin would wait for the thread
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what libraries print is no reply
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(starter, tasks), daemon=True).start()
    reply, opened = open_here(*tasks.get())
    while True:
        pickle.dump(reply, replies)
        replies.flush()
        if opened is None:
            return
        reply = do(opened, tasks.get())


def _listen(starter: IO[bytes], tasks: "queue.SimpleQueue[Any]") -> None:
    """In a thread: take tasks in, and end with the starter."""
    try:
        while True:
            tasks.put(pickle.load(starter))
    except (EOFError, OSError):
        pass
    except Exception:  # such as a class that cannot be imported here
        traceback.print_exc()
    os._exit(1)


def open_here(work: Work, threads: int, gpu: bool) -> tuple[tuple[str, Any], Any]:
    """Open work in this process: ("ready", its facts) or ("error", why), and the opened work."""
    try:
        opened = work.open(threads, gpu)
    except Exception as error:  # whatever it is, the starter is told
        return ("error", portable(error)), None
    return ("ready", opened.facts), opened


def do(opened: Any, task: Any) -> tuple[str, Any]:
    """("done", result) or ("error", why)."""
    try:
        return "done", opened.do(task)
    except Exception as error:  # whatever it is, the starter is told
        return "error", portable(error)


def portable(error: Exception) -> Exception:
    """One of our errors as it is if it can be pickled and read back; otherwise a RuntimeError with its text."""
    try:
        return pickle.loads(pickle.dumps(error)) if isinstance(error, MatchKernelError) else _told(error)
    except Exception:  # a class with arguments of its own
        return _told(error)


def _told(error: Exception) -> RuntimeError:
    return RuntimeError(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
