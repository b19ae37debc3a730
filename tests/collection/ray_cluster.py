"""A Ray cluster of two nodes on this machine, with real processes that can be killed."""

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A node that is gone should be noticed in seconds, not in a minute.
QUICK = {
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_NUM_THREADS": "1",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),  # of this cluster alone; nobody else can join it
}


def environment() -> dict[str, str]:
    """Of the nodes and of the programs that use them."""
    paths = [str(ROOT), str(ROOT / "tests" / "collection"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, **QUICK, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


def processes_below(parent: int) -> list[int]:
    """All descendants of a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            above = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(above, []).append(int(entry.name))
    found, waiting = [], [parent]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


class Node:
    """A head, or a node that joins it: one CPU each."""

    def __init__(self, *arguments: str) -> None:
        self.log = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed by kill
        options = ["--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats", "--block", *arguments]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *options]
        self.process = subprocess.Popen(command, env=environment(), stdout=self.log, stderr=self.log)

    def wait(self) -> str:
        """Until it is up; what it has said."""
        until = time.monotonic() + 60
        while True:
            said = Path(self.log.name).read_text(errors="replace")
            if "Ray runtime started" in said and "--block" in said:
                return said
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"the node did not start: {said[-2000:]}")
            time.sleep(0.1)

    def is_working(self) -> bool:
        """Whether one of its workers is at a task."""
        for one in processes_below(self.process.pid):
            with suppress(OSError):
                if b"RayActor.run" in Path(f"/proc/{one}/cmdline").read_bytes():
                    return True
        return False

    def kill(self) -> None:
        """As if the power had failed: all of its processes at once."""
        for one in [*processes_below(self.process.pid), self.process.pid]:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        self.process.wait()
        self.log.close()


class Cluster:
    """The head and at most one more node."""

    def __init__(self, folder: Path) -> None:
        self.client = free_port()
        ports = [f"--port={free_port()}", f"--ray-client-server-port={self.client}"]
        self.head = Node("--head", "--include-dashboard=false", f"--temp-dir={folder}", *ports)
        self.second: Node | None = None
        self.address = ""

    def begin(self) -> None:
        """Wait for the head, and start the second node unless it runs."""
        if not self.address:
            self.address = re.findall(r"ray start --address='([^']+)'", self.head.wait())[0]
        if self.second is None:
            self.second = Node(f"--address={self.address}")
            self.second.wait()

    def kill_second(self) -> None:
        assert self.second is not None
        self.second.kill()
        self.second = None


@contextmanager
def running_cluster():
    """Two nodes; nothing of them is left behind."""
    folder = Path(tempfile.mkdtemp(prefix="mkray"))  # short: sockets are made below it
    cluster = Cluster(folder)
    try:
        cluster.begin()
        yield cluster
    finally:
        if cluster.second is not None:
            cluster.second.kill()
        cluster.head.kill()
        shutil.rmtree(folder, ignore_errors=True)
