"""Opening a baseline: weight files whole, damaged or of another method, functions of users, no downloads."""

import os
import pickle
import socket
import sys
from functools import partial

import cv2
import kornia.feature as kornia_feature
import numpy as np
import pytest
import torch
from damage import Evil
from helpers import attempt, refuses
from made_baselines import FILES, made_patches
from safetensors.torch import save_file

from matchkernel.errors import ArgumentError, ArgumentTypeError, FileError, MissingExtraError, WeightsError
from matchkernel.evaluation.baselines.kornia import mkd
from matchkernel.evaluation.methods import baseline
from matchkernel.model.describe import resize_patches


@pytest.fixture(scope="module")
def patches():
    return made_patches()


@pytest.mark.parametrize(
    "class_name", ["TFeat", "HardNet", "SOSNet", pytest.param("HardNet8", marks=pytest.mark.slow), "HyNet"]
)
def test_any_network_of_kornia_by_path(class_name, patches, tmp_path):
    torch.manual_seed(0)
    module = getattr(kornia_feature, class_name)(pretrained=False).eval()
    path = tmp_path / "weights.pth"
    is_checkpoint = class_name in ("TFeat", "HardNet")  # which holds more than the weights
    torch.save({"epoch": 9, "state_dict": module.state_dict()} if is_checkpoint else module.state_dict(), path)
    method = baseline(f"kornia:{class_name}", weights=path)
    with torch.no_grad():
        expected = module(resize_patches(torch.from_numpy(patches[:5])[:, None].float(), 32)).numpy()
    assert method.describe(patches[:5]) == pytest.approx(expected, abs=1e-5)
    assert method.facts["parameters"] == sum(p.numel() for p in module.parameters())
    assert not method.facts["hand_crafted"]
    assert method.facts["settings"]["weights"] == "weights.pth"


USERS_MODULE = """
from matchkernel.evaluation.method import patch_method

def mean(*files):
    names = {"files": str([file.name for file in files])}
    return patch_method("mean", 8, lambda batch: batch.mean(2).flatten(1).numpy(), names)

def nothing():
    return None

other = 3
"""


def test_a_function_of_a_user_opens_a_baseline(patches, tmp_path, monkeypatch):
    (tmp_path / "my_baselines.py").write_text(USERS_MODULE)
    monkeypatch.chdir(tmp_path)
    for weights, expected in ((None, "[]"), (tmp_path / "a.bin", "['a.bin']")):
        method = baseline("my_baselines:mean", weights=weights)
        assert method.facts["settings"] == {"files": expected}
        assert method.describe(patches[:3]).shape == (3, 8)
    assert str(tmp_path) not in sys.path
    for name, error in (("absent", ArgumentError), ("other", ArgumentError), ("nothing", ArgumentTypeError)):
        with refuses(error):
            baseline(f"my_baselines:{name}")
    for name in ("no_such_module:mean", ":mean", "my_baselines:", "x:y:z"):
        with refuses(ArgumentError):
            baseline(name)
    with refuses(ArgumentError):
        baseline("my_baselines:nothing", weights=tmp_path)


@pytest.mark.parametrize("name", ["tfeat", "hardtfeat", "mkd-liberty", "kornia:HardNet"])
def test_files_that_are_no_weights_are_refused_and_run_no_code(name, tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    for number, text in enumerate((b"hello\n", b"hello world this is text", b"G")):  # a KeyError of 101, and others
        (tmp_path / f"text{number}").write_bytes(text)
    torch.save([1, 2], tmp_path / "list")
    torch.save({1: torch.zeros(3)}, tmp_path / "numbers")
    torch.save({"features.0.weight": "no tensor", "liberty": {"pca": {"mean": 1}}}, tmp_path / "strings")
    torch.save({"liberty": {"pca": dict.fromkeys(("mean", "eigvecs", "eigvals"), torch.zeros(2))}}, tmp_path / "small")
    torch.save(Evil(tmp_path / "boom"), tmp_path / "code")
    (tmp_path / "pickle").write_bytes(pickle.dumps(Evil(tmp_path / "boom")))
    save_file({"x": torch.zeros(9)}, tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    for number, content in enumerate((whole, whole[:-5], whole[:20], b"hello, this is text", b"")):
        (tmp_path / f"{number}.safetensors").write_bytes(content)
    for path in [*tmp_path.iterdir(), tmp_path / "missing"]:
        with refuses(WeightsError):
            baseline(name, weights=path)
    os.mkfifo(tmp_path / "pipe")
    with refuses(FileError):
        baseline(name, weights=tmp_path / "pipe")
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize("name", ["tfeat", "hardtfeat", "mkd-liberty"])
def test_files_cut_anywhere_are_refused(name, baseline_weights, tmp_path):
    whole = (baseline_weights / FILES[name]).read_bytes()
    for share in (0.001, 0.1, 0.5, 0.9, 0.999):
        (tmp_path / "cut").write_bytes(whole[: int(share * len(whole))])
        with refuses(WeightsError):
            baseline(name, weights=tmp_path / "cut")


def test_files_with_flipped_bytes_are_read_or_refused_in_one_line(baseline_weights, tmp_path):
    """Flipped numbers may pass, as these files carry no digest."""
    whole = (baseline_weights / FILES["tfeat"]).read_bytes()
    generator = np.random.default_rng(0)
    places = np.concatenate([generator.integers(0, 2000, 15), len(whole) - generator.integers(1, 2000, 15)])
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(generator.integers(8))
        (tmp_path / "flipped").write_bytes(damaged)
        _, message = attempt(partial(baseline, "tfeat", weights=tmp_path / "flipped"), expected=WeightsError)
        assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("tfeat", "HardTFeat.pth"),
        ("hardtfeat", "tfeat-liberty.params"),
        ("kornia:HardNet", "tfeat-liberty.params"),
        ("tfeat", "mkd-concat-64.pth"),
        ("mkd-liberty", "tfeat-liberty.params"),
        ("tfeat", "AffNet.pth"),
    ],
)
def test_weights_of_another_method_are_refused(name, file, baseline_weights):
    with refuses(WeightsError):
        baseline(name, weights=baseline_weights / file)


def test_weights_that_are_not_numbers_are_refused(tmp_path):
    module = kornia_feature.TFeat(pretrained=False)
    module.descr[0].weight.data[3, 4] = float("nan")
    torch.save(module.state_dict(), tmp_path / "nan")
    with refuses(WeightsError):
        baseline("tfeat", weights=tmp_path / "nan")
    pca = {"mean": torch.zeros(238), "eigvecs": torch.eye(238), "eigvals": torch.zeros(238)}
    torch.save({"liberty": {"pca": pca}}, tmp_path / "flat")
    with refuses(WeightsError):
        baseline("mkd-liberty", weights=tmp_path / "flat")


def test_names_and_files_that_do_not_go_together(patches, tmp_path):
    for name, options in [
        ("surf", {}),
        ("deepdesc", {"weights": tmp_path}),
        ("tfeat", {}),
        ("mkd", {}),
        ("mkd", {"weights": tmp_path, "training_set": patches}),
        ("sift", {"weights": tmp_path}),
        ("orb", {"training_set": patches}),
        ("kornia:L2Net", {"weights": tmp_path}),
        ("kornia:KeyNet", {"weights": tmp_path}),
    ]:
        with refuses(ArgumentError):
            baseline(name, **options)


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    without_cv2 = [("cv2", name, None) for name in ("sift", "brief", "vgg")]
    for missing, name, file in (*without_cv2, ("kornia", "tfeat", tmp_path)):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, missing, None)
            with refuses(MissingExtraError):
                baseline(name, weights=file)
    monkeypatch.delattr(cv2, "xfeatures2d")
    for name in ("brief", "vgg", "beblid", "teblid"):
        with refuses(MissingExtraError):
            baseline(name)


def test_nothing_is_downloaded(patches, tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("network was asked for")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    torch.save(kornia_feature.HardNet(pretrained=False).state_dict(), tmp_path / "w.pth")
    assert mkd(patches).name == "mkd"
    assert baseline("kornia:HardNet", weights=tmp_path / "w.pth").name == "kornia:HardNet"
