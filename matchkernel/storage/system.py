"""The process and its machine: where Linux, macOS and Windows differ, except locks and ports (explore/serve.py)."""

import os
import select
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

# To open a file for reading: its bytes, and without waiting for somebody to write to a pipe.
READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
CONTAINER_LIMITS = (  # of cgroups, version 2 and 1
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
ASSUMED_MEMORY = 8 * 2**30  # bytes, where the system cannot be asked

_ending: list[bool] = []  # a list needs no lock, which a signal handler could not take


def cores() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_here() -> int:
    """Bytes of memory of the machine or of its container; an assumed number on Windows."""
    limits = []
    with suppress(AttributeError, OSError, ValueError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit in CONTAINER_LIMITS:
        with suppress(OSError, ValueError):  # not there, or "max"
            limits.append(int(limit.read_text(encoding="ascii")))
    return min(limits, default=ASSUMED_MEMORY)


def announce_end() -> None:
    """Note that the process is about to end: what its threads still compute is lost, and nobody should wait for it."""
    _ending.append(True)


def is_ending() -> bool:
    """True once `announce_end` has been called."""
    return bool(_ending)


def is_running(process: int) -> bool:
    """True if there is a process with this number; always on Windows, where the question would interrupt it."""
    if os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def lost_its_reader(place: int) -> bool:
    """True if nobody reads what is written here any more; for use after a failed write.

    Args:
        place: file descriptor. On Windows every pipe counts as one without a reader, as the system cannot tell.
    """
    if not hasattr(select, "poll"):
        return stat.S_ISFIFO(os.fstat(place).st_mode)
    look = select.poll()
    look.register(place, select.POLLOUT)
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in look.poll(0))


def output_of(*command: str) -> tuple[int, str]:
    """Exit code and output of a program, of both streams; it needs no screen."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=offscreen(), check=False)
    return done.returncode, done.stdout + done.stderr


def offscreen() -> dict[str, str]:
    """The environment for a program that would look for a screen."""
    return {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
