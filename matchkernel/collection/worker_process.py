"""A worker process: opens the work that it is sent, then does one task after the other, until its starter is gone."""

import os
import pickle
import select
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from matchkernel.collection.workers import Work
from matchkernel.errors import MatchKernelError


def main() -> None:
    """Serve the socket whose number is the argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the starter decides
    pipe = Connection(int(sys.argv[1]))
    threading.Thread(target=_end_with_the_starter, args=(pipe.fileno(),), daemon=True).start()
    try:
        work, threads, gpu = pickle.loads(pipe.recv_bytes())
        reply, opened = open_here(work, threads, gpu)
        pipe.send_bytes(pickle.dumps(reply))
        while opened is not None:
            pipe.send_bytes(pickle.dumps(do(opened, pickle.loads(pipe.recv_bytes()))))
    except (EOFError, OSError):
        pass


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


def _end_with_the_starter(place: int) -> None:
    hangup = select.poll()
    hangup.register(place, 0)  # 0: only the end of the other side
    hangup.poll()
    os._exit(1)


if __name__ == "__main__":
    main()
