"""What the checks share: a way to pip and uv that sees the public package index and nothing of this machine."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

# Settings that lead to other packages than a stranger gets. Certificates, proxies and caches stay.
PRIVATE = (
    "INDEX",
    "FIND_LINKS",
    "CONSTRAINT",
    "OVERRIDE",
    "CONFIG",
    "REQUIREMENT",
    "PRERELEASE",
    "RESOLUTION",
    "NO_BINARY",
    "NO_BUILD",
    "EXCLUDE_NEWER",
    "TORCH_BACKEND",
)


def public_environment() -> dict[str, str]:
    """The environment without what points pip or uv to other indexes, to local wheels or to settings of the user."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not (name.startswith(("PIP_", "UV_")) and any(word in name for word in PRIVATE))
        and name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    return {**kept, "PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def run() -> None:
    """Run the command of the arguments in that environment."""
    environment = {**public_environment(), "UV_CUSTOM_COMPILE_COMMAND": "make pins"}
    sys.exit(subprocess.run(sys.argv[1:], env=environment, check=False).returncode)


def find_uv() -> str | None:
    """The program uv: the one beside this Python (the extra `dev` brings it), else any."""
    return shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")


if __name__ == "__main__":
    run()
