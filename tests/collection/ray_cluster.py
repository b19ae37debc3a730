"""A Ray cluster of two nodes on this machine, with real processes that can be killed."""

import os
import secrets
import socket
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

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
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000}


class TwoNodes:
    """A head, and a second node that can be killed and started again."""

    def __init__(self, folder: str) -> None:
        from ray.cluster_utils import Cluster

        with socket.socket() as place:
            place.bind(("127.0.0.1", 0))
            self.client = place.getsockname()[1]
        head = {**NODE, "include_dashboard": False, "temp_dir": folder, "ray_client_server_port": self.client}
        self.nodes = Cluster(initialize_head=True, head_node_args=head)
        self.address, self.second = self.nodes.address, None

    def begin(self) -> None:
        """Start the second node unless it runs."""
        if self.second is None:
            self.second = self.nodes.add_node(**NODE)

    def is_second_working(self) -> bool:
        """True if one of its workers is at a task."""
        raylet = self.second.all_processes["raylet"][0].process.pid
        with suppress(OSError):
            for path in Path(f"/proc/{raylet}/task").glob("*/children"):
                if any(
                    b"RayActor.run" in Path(f"/proc/{one}/cmdline").read_bytes() for one in path.read_text().split()
                ):
                    return True
        return False

    def kill_second(self) -> None:
        """As if the power had failed."""
        self.nodes.remove_node(self.second, allow_graceful=False)
        self.second = None


@contextmanager
def running_cluster():
    """Two nodes, and the environment of the programs that use them; nothing of them is left behind."""
    paths = [str(ROOT), str(ROOT / "tests" / "collection"), os.environ.get("PYTHONPATH", "")]
    short = tempfile.TemporaryDirectory(prefix="mkray", ignore_cleanup_errors=True)  # sockets are made below it
    with pytest.MonkeyPatch.context() as patch, short as folder:
        Path(folder, "ray").mkdir()  # Ray notes the address of the cluster there, and does not make the folder
        for name, value in {**QUICK, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "RAY_TMPDIR": folder}.items():
            patch.setenv(name, value)
        cluster = TwoNodes(folder)
        try:
            yield cluster
        finally:
            cluster.nodes.shutdown()
