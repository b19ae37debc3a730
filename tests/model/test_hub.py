"""Folders of model hubs: the same model back, bit for bit, and what `load` refuses is refused; addresses on a hub."""

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from helpers import refuses, textures, trained_like

import matchkernel
from matchkernel.cli.options import weight_files
from matchkernel.errors import ArgumentError, MissingExtraError, WeightsError
from matchkernel.runtime.weights import read_card

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path):
    matchkernel.save_pretrained(matchkernel.load("tiny"), tmp_path / "mine")
    return tmp_path / "mine"


def test_a_file_may_have_the_name_that_a_folder_has_inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matchkernel.save(matchkernel.load("tiny"), "model.safetensors")
    assert matchkernel.load("./model.safetensors").name == matchkernel.load("model.safetensors").name == "model"


def test_a_folder_is_no_place_for_what_is_made_from_it(folder):
    assert weight_files(str(folder), "tiny", "absent") == [folder / "model.safetensors"]


@pytest.mark.parametrize("name", [*matchkernel.available(), "half", "own"])
def test_the_same_model_comes_back_bit_for_bit(name, tmp_path):
    if name == "own":
        model = trained_like(matchkernel.build("polar", s=1, d=8, D=16))
        model.name = "a/b: \u00e4"
    else:
        model = matchkernel.load("light" if name == "half" else name)
    model = model.half() if name == "half" else model
    matchkernel.save_pretrained(model, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    again = matchkernel.from_pretrained(tmp_path)
    assert (again.name, again.config, again.training) == (model.name, model.config, False)
    assert again.card.to_strings() == model.card.to_strings()
    states = model.state_dict(), again.state_dict()
    assert states[0].keys() == states[1].keys()
    for key, value in states[0].items():
        assert value.dtype == states[1][key].dtype
        assert value.numpy().tobytes() == states[1][key].numpy().tobytes()
    patches = textures(3, model.config.patch_size)
    if name != "half":
        assert torch.equal(model(patches), again(patches))


def test_the_head_of_the_readme_tells_a_hub_what_it_is(folder):
    import yaml

    _, head, text = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    facts = yaml.safe_load(head)
    assert (facts["library_name"], facts["license"]) == ("matchkernel", "apache-2.0")
    assert read_card("tiny").trained_on in text
    matchkernel.save_pretrained(matchkernel.build("sum"), folder, {"licence": "Mine: ask"})
    assert "\nlicense: other\n" in (folder / "README.md").read_text(encoding="utf-8")


def test_photos_are_matched_with_a_folder(folder):
    from matchkernel.data.sample_pair import FOLDER

    features = [matchkernel.extract(FOLDER / "left.png", model, keypoints=20) for model in (folder, "tiny")]
    assert features[0].model == features[1].model == "tiny"
    assert (features[0].descriptors == features[1].descriptors).all()


def changed(name, change):
    def do(folder):
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return do


def other_config(data):
    values = json.loads(data)
    values["config"]["D"] = 64
    return json.dumps(values).encode()


@pytest.mark.parametrize(
    "damage",
    [
        changed("model.safetensors", lambda data: data[:-3]),
        changed("model.safetensors", lambda data: data[:-9] + b"\x01" + data[-8:]),
        changed("model.safetensors", lambda data: b""),
        changed("config.json", lambda data: b"{"),
        changed("config.json", lambda data: b"[]"),
        changed("config.json", lambda data: b"[" * 100_000),
        changed("config.json", other_config),
        changed("config.json", lambda data: data.replace(b'"tiny"', b'"ti\\u001bny"')),
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: (folder / "model.safetensors").unlink(),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(damage, folder):
    damage(folder)
    with refuses(matchkernel.MatchKernelError):
        matchkernel.from_pretrained(folder)


def test_what_cannot_be_saved_is_refused_and_writes_nothing(tmp_path):
    for model in (matchkernel.load("tiny").fold(), None):
        with refuses(matchkernel.MatchKernelError):
            matchkernel.save_pretrained(model, tmp_path / "new")
    assert not list(tmp_path.rglob("*.*"))


@pytest.mark.parametrize("address", ["hf://", "hf://name", "hf://a/b/c", "hf:///b", "hf://a/b@"])
def test_addresses_that_are_none_are_refused(address):
    with refuses(WeightsError):
        matchkernel.load(address)


def test_a_hub_needs_its_library_and_a_revision_needs_a_hub(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'matchkernel\[hub\]'"):
        matchkernel.load("hf://owner/name")
    with refuses(ArgumentError):
        matchkernel.load("tiny", revision="main")


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers as the hub does where files of a repository are resolved."""

    commits: dict = {}  # noqa: RUF012 - revision: folder
    asked: list = []  # noqa: RUF012

    def do_HEAD(self):
        self.answer(with_body=False)

    def do_GET(self):
        self.answer(with_body=True)

    def answer(self, with_body):
        self.asked.append(self.path)
        owner, name, _, revision, file = self.path.strip("/").split("/")
        path = self.commits.get(revision, Path("nowhere")) / file
        if (owner, name) != ("owner", "name") or not path.is_file():
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound" if revision in self.commits else "RevisionNotFound")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        data = path.read_bytes()
        self.send_response(200)
        self.send_header("X-Repo-Commit", hashlib.sha1(str(path.parent).encode()).hexdigest())
        self.send_header("ETag", hashlib.sha256(data).hexdigest())
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        return self.wfile.write(data) if with_body else None

    def log_message(self, *_):
        pass


CODE = """
import json, sys
import matchkernel
for address, revision in json.loads(sys.argv[1]):
    try:
        model = matchkernel.load(address, revision=revision)
        print(json.dumps([model.name, model.config.variant]))
    except matchkernel.MatchKernelError as error:
        print(json.dumps([type(error).__name__, str(error)]))
print(json.dumps(sorted({"huggingface_hub"} & set(sys.modules))))
"""


def loaded(home, port, *addresses):
    own = {
        "HF_ENDPOINT": f"http://127.0.0.1:{port}",
        "HF_HOME": str(home),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(addresses)],
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.skipif(not find_spec("huggingface_hub"), reason="huggingface_hub is not installed (matchkernel[hub])")
def test_a_model_comes_from_a_hub_when_it_is_asked_for(tmp_path, folder):
    other = tmp_path / "other"
    matchkernel.save_pretrained(matchkernel.load("light"), other)
    Hub.commits, Hub.asked = {"main": folder, "v2": other}, []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        port, home = server.server_address[1], tmp_path / "cache"
        *found, imported = loaded(home, port, ("tiny", None), (str(folder), None))
        assert (found, imported, Hub.asked) == ([["tiny", "cartesian"]] * 2, [], [])  # nothing unless asked
        asked = [
            ("hf://owner/name", None), ("hf://owner/name", "v2"), ("hf://owner/name@v2", None),
            ("hf://owner/name", "v3"), ("hf://owner/others", None),
        ]  # fmt: skip
        *found, _ = loaded(home, port, *asked)
        assert found[:3] == [["tiny", "cartesian"], ["light", found[1][1]], found[1]]
        assert [kind for kind, _ in found[3:]] == ["WeightsError"] * 2
        assert all("\n" not in text for _, text in found)
        assert all("hf://owner" in text for _, text in found[3:])
        fetched = len(Hub.asked)
        (other / "model.safetensors").write_bytes(b"not weights")
        again, _ = loaded(tmp_path / "other cache", port, ("hf://owner/name", "v2"))
        assert again[0] == "WeightsError"
        assert len(Hub.asked) > fetched
    finally:
        server.shutdown()
        server.server_close()
    found, _ = loaded(home, port, ("hf://owner/name@v2", None))
    assert found[0] == "light"  # of the cache, when the hub cannot be reached
