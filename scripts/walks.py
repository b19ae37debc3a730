"""Count the files of the package that each command enters, and those it returns to: python scripts/walks.py [CHECKOUT]

A file is entered when a function in it is called from another file. A return is a call site that enters a file for the
first time after that file was left. Calls at import do not count, nor do returns to the floors that everything uses.
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("errors.py", "storage", "geometry", "runtime", "cli")


class Walk:
    """Follows the calls of every thread (`sys.setprofile`)."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.active: dict[str, int] = {}  # frames of each file now on the stack
        self.sites: dict[str, set[tuple[CodeType, int]]] = {}  # where each file was entered from
        self.left: set[str] = set()
        self.returns: list[tuple[str, str]] = []
        self.importing = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Take note of a call or a return."""
        file = frame.f_code.co_filename
        if event not in ("call", "return") or not file.startswith(self.package):
            return
        if frame.f_code.co_name == "<module>":
            self.importing += 1 if event == "call" else -1
        elif not self.importing:
            self._call(frame, file) if event == "call" else self._leave(file)

    def _call(self, frame: FrameType, file: str) -> None:
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(self.package):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != file:
            site = caller.f_code, caller.f_lineno
            known = self.sites.setdefault(file, set())
            if site not in known and file in self.left and not self.active.get(file):
                self.returns.append((self._short(caller.f_code.co_filename), self._short(file)))
            known.add(site)
        self.active[file] = self.active.get(file, 0) + 1

    def _leave(self, file: str) -> None:
        self.active[file] = self.active.get(file, 0) - 1
        if self.active[file] <= 0:
            self.left.add(file)

    def _short(self, file: str) -> str:
        return file.removeprefix(self.package)

    def result(self) -> dict[str, list]:
        """The files entered, and who returned to which."""
        returns = [(caller, file) for caller, file in self.returns if not file.startswith(FLOORS)]
        return {"files": sorted(map(self._short, self.sites)), "returns": returns}


def command(*arguments: str) -> Callable[[], None]:
    """What `matchkernel ARGUMENTS` does, in this process."""

    def run() -> None:
        from matchkernel.__main__ import main

        sys.argv = ["matchkernel", *arguments]
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                raise RuntimeError(f"exit code {ended.code}") from None

    return run


def page_request() -> Callable[[], None]:
    """A request of the explorer page, to a real server in a thread: the matches of its two photos."""
    import http.client

    import uvicorn

    from matchkernel.explore.serve import listen
    from matchkernel.explore.server import create_app
    from matchkernel.explore.settings import ExploreSettings

    def ask(method: str, path: str, fields: dict | None = None) -> dict:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        kind = {"content-type": "application/json", "host": f"127.0.0.1:{port}"}
        connection.request(method, path, json.dumps(fields or {}), kind)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return json.loads(body) if "json" in answer.headers["content-type"] else {}

    def run() -> None:
        ask("POST", "/api/match", {"a": photos[0], "b": photos[1], "model": "tiny", "keypoints": 300})

    settings = ExploreSettings(port=0, model="tiny", keypoints=300)
    socket = listen(settings)
    port = socket.getsockname()[1]
    app = create_app(dataclasses.replace(settings, port=port))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    threading.setprofile(lambda *event: WALK and WALK(*event))
    threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True).start()
    photos = [photo["id"] for photo in ask("POST", "/api/sample")]
    return run


def scene(photos: int = 9, missed: float = 0.4) -> None:
    """Write rendered photos and their model: the folder `scene`."""
    from made_scene import render_scene  # type: ignore[import-not-found]

    render_scene(Path("scene"), photos, seed=1, missed=missed)


def scene_to_split() -> None:
    """The same with enough points to split into training, validation and test."""
    scene(photos=10, missed=0.0)


def strips() -> None:
    """Write one small sequence in the layout of HPatches: the folder `strips`."""
    from helpers import write_sequence  # type: ignore[import-not-found]

    write_sequence(Path("sequences", "v_texture"))
    command("data", "from-homographies", "sequences", "-o", "strips")()


def patches() -> None:
    """Write five patches: patches.npy."""
    import numpy as np

    np.save("patches.npy", np.random.default_rng(0).integers(0, 256, (5, 32, 32), dtype=np.uint8))


WALK: Walk | None = None
PHOTOS = [str(ROOT / "matchkernel" / "data" / "motorcycle" / f"{side}.png") for side in ("left", "right")]
FEW = ("--keypoints", "300", "--model", "tiny")
EXTRACT = ("extract", "scene/images", "-o", "features", *FEW)
QUICK = ("--set", "sampling.steps=2", "--set", "data.synthetic.points=100", "--device", "cpu")
ADAPT = (
    "--from-colmap",
    "scene/sparse",
    "--model",
    "tiny",
    "--minutes",
    "0.02",
    "--pairs",
    "8",
    "--keep",
    "--device",
    "cpu",
)
# What is done before each walk, and the command of the walk.
WALKS: dict[str, tuple[list[Callable[[], None]], tuple[str, ...]]] = {
    "match": ([], ("match", *PHOTOS, "-o", "x.png", *FEW)),
    "describe": ([patches], ("describe", "patches.npy", "-o", "rows.npy", "--device", "cpu")),
    "train": ([], ("train", str(ROOT / "configs" / "tiny.toml"), *QUICK, "-o", "run")),
    "extract": ([scene], EXTRACT),
    "match-pairs": (
        [scene, command(*EXTRACT), command("pairs", "features", "-o", "pairs.txt")],
        ("match-pairs", "features", "pairs.txt", "-o", "matches.h5"),
    ),
    "colmap": ([scene], ("colmap", "scene/images", "-o", "model", *FEW)),
    "adapt": ([scene_to_split], ("adapt", "scene/images", "-o", "adapted", *ADAPT)),
    "evaluate hpatches": (
        [strips],
        ("evaluate", "hpatches", "strips", "--model", "tiny", "--task", "matching", "--device", "cpu"),
    ),
    "page": ([], ()),
}


def walk(name: str) -> None:
    """Do one walk in this process and print its result as JSON."""
    import matchkernel

    global WALK
    checkout = Path(matchkernel.__file__).parents[1]
    sys.path[:0] = [str(checkout / "tests"), str(checkout / "experiments" / "photos")]
    before, arguments = WALKS[name]
    for step in before:
        step()
    run = command(*arguments) if arguments else page_request()
    WALK = Walk(str(Path(matchkernel.__file__).parent) + os.sep)
    sys.setprofile(WALK)
    threading.setprofile(WALK)
    try:
        run()
    finally:
        sys.setprofile(None)
    Path("walk.json").write_text(json.dumps(WALK.result()))


def main(checkout: Path, names: list[str]) -> None:
    """Print a line for each walk, and the files of those that are named."""
    for name in names or WALKS:
        with tempfile.TemporaryDirectory() as folder:
            code = f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); from walks import walk; walk({name!r})"
            place = {**os.environ, "PYTHONPATH": str(checkout)}
            done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=place, capture_output=True, text=True)
            if done.returncode:
                print(f"{name}: failed: {done.stderr.strip().splitlines()[-1:]}")
                continue
            found = json.loads(Path(folder, "walk.json").read_text())
        print(f"{name}: {len(found['files'])} files, {len(found['returns'])} returns")
        if names:
            print("\n".join([*found["files"], *(f"{a} returns to {b}" for a, b in found["returns"])]))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT).resolve(), sys.argv[2:])
