"""What Linux, macOS and Windows do in different ways, apart from locks (locks.py) and ports (explore/serve.py)."""

import os
import select
import stat
from contextlib import suppress
from pathlib import Path

# To open a file for reading: its bytes, and without waiting for somebody to write to a pipe.
READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
CONTAINER_LIMITS = (  # of cgroups, version 2 and 1
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
ASSUMED_MEMORY = 8 * 2**30  # bytes, where the system cannot be asked


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_here() -> int:
    """Bytes that the machine has, or that its container may use; a usual number on Windows."""
    there = []
    with suppress(AttributeError, OSError, ValueError):
        there.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit in CONTAINER_LIMITS:
        with suppress(OSError, ValueError):  # not there, or "max"
            there.append(int(limit.read_text(encoding="ascii")))
    return min(there, default=ASSUMED_MEMORY)


def is_running(process: int) -> bool:
    """Whether there is a process of this number; on Windows, where asking would interrupt it, True."""
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
    """Whether nobody reads any more what is written here, asked after writing has failed somewhere.

    Args:
        place: file descriptor. Windows cannot tell: there, any pipe has lost its reader.
    """
    if not hasattr(select, "poll"):
        return stat.S_ISFIFO(os.fstat(place).st_mode)
    look = select.poll()
    look.register(place, select.POLLOUT)
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in look.poll(0))
