"""What a baseline is made of: weight files whole, damaged or of another method, missing packages, no downloads."""

import os
import pickle
import socket
import sys

import cv2
import kornia.feature as kornia_feature
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_baselines import FILES, made_patches, torch7_bytes
from safetensors.torch import save_file

from matchkernel.errors import MatchKernelError, MissingExtraError, WeightsError
from matchkernel.evaluation.baselines.by_name import baseline
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
    assert method.dimension == 128
    assert method.parameters == sum(p.numel() for p in module.parameters())
    assert not method.hand_crafted
    assert method.settings["weights"] == "weights.pth"


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def one_line(call):
    with pytest.raises(MatchKernelError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    return caught.value


@pytest.mark.parametrize(
    "name", ["tfeat", "hardtfeat", "desdis-8", "deepdesc", "binboost", "mkd-liberty", "kornia:HardNet"]
)
def test_weight_files_that_are_no_weights(name, tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("hello\n")
    (tmp_path / "folder").mkdir()
    torch.save([1, 2], tmp_path / "list")
    torch.save({1: torch.zeros(3)}, tmp_path / "numbers")
    torch.save({"features.0.weight": "no tensor", "liberty": {"pca": {"mean": 1}}}, tmp_path / "words")
    torch.save({"liberty": {"pca": dict.fromkeys(("mean", "eigvecs", "eigvals"), torch.zeros(2))}}, tmp_path / "small")
    torch.save(Bomb(tmp_path / "boom"), tmp_path / "code")
    (tmp_path / "pickle").write_bytes(pickle.dumps(Bomb(tmp_path / "boom")))
    for file in ("empty", "text", "folder", "list", "numbers", "words", "small", "code", "pickle", "missing"):
        error = one_line(lambda path=tmp_path / file: baseline(name, weights=path))
        assert isinstance(error, WeightsError), file
        assert str(error).startswith(str(tmp_path / file)), file
    os.mkfifo(tmp_path / "pipe")
    error = one_line(lambda: baseline(name, weights=tmp_path / "pipe"))
    assert "not a regular file" in str(error)
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize("name", ["tfeat", "desdis-32", "mkd-liberty"])
def test_damaged_safetensors_are_one_line(name, tmp_path):
    path = tmp_path / "bad.safetensors"
    save_file({"x": torch.zeros(9)}, path)
    for content in (path.read_bytes()[:-5], path.read_bytes()[:20], b"hello, this is text", b""):
        path.write_bytes(content)
        error = one_line(lambda: baseline(name, weights=path))
        assert isinstance(error, WeightsError)
        assert str(error).startswith(f"{path}: damaged, or not a safetensors file, as its name says (Error while")


def test_text_is_refused_without_the_unpicklers_own_words(tmp_path):
    for content in (b"hello world this is text", b"empty", b"", b"G"):  # a KeyError of 101, and others
        (tmp_path / "bad.pth").write_bytes(content)
        error = one_line(lambda: baseline("tfeat", weights=tmp_path / "bad.pth"))
        assert str(error) == f"{tmp_path / 'bad.pth'}: damaged, or not a file of torch.save"


@pytest.mark.parametrize("name", ["tfeat", "hardtfeat", "desdis-8", "deepdesc", "binboost", "mkd-liberty"])
def test_files_cut_anywhere_are_refused(name, baseline_weights, tmp_path):
    whole = (baseline_weights / FILES[name]).read_bytes()
    path = tmp_path / "cut"
    for share in (0.001, 0.1, 0.5, 0.9, 0.999):
        path.write_bytes(whole[: int(share * len(whole))])
        error = one_line(lambda: baseline(name, weights=path))
        assert isinstance(error, WeightsError)
        assert str(path) in str(error)


def test_files_with_flipped_bytes_never_fail_otherwise(baseline_weights, tmp_path):
    """Flipped numbers may pass, as those files carry no digest; whatever is noticed is one line."""
    whole = (baseline_weights / FILES["tfeat"]).read_bytes()
    generator = np.random.default_rng(0)
    places = np.concatenate([generator.integers(0, 2000, 15), len(whole) - generator.integers(1, 2000, 15)])
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(generator.integers(8))
        (tmp_path / "flipped").write_bytes(damaged)
        try:
            baseline("tfeat", weights=tmp_path / "flipped")
        except WeightsError as error:
            assert "\n" not in str(error)  # noqa: PT017 (it need not be raised)


@pytest.mark.parametrize(
    ("name", "file", "reason"),
    [
        ("tfeat", "HardTFeat.pth", "not weights of TFeat"),
        ("hardtfeat", "tfeat-liberty.params", "not weights of HardTFeat"),
        ("kornia:HardNet", "tfeat-liberty.params", "not weights of HardNet"),
        ("tfeat", "mkd-concat-64.pth", "not weights of TFeat"),
        ("mkd-liberty", "tfeat-liberty.params", "not MKD's whitening file"),
        ("tfeat", "AffNet.pth", "not weights of TFeat"),
        ("desdis-8", "desdis-16.pth", "not weights of desdis-8"),
        ("desdis-32", "tfeat-liberty.params", "not weights of desdis-32"),
        ("deepdesc", "binboost-256.bin", "not a binary file of Torch 7"),
        ("binboost", "deepdesc-split4.t7", "not a file of BinBoost's tests"),
    ],
)
def test_weights_of_another_method_are_refused(name, file, reason, baseline_weights):
    error = one_line(lambda: baseline(name, weights=baseline_weights / file))
    assert isinstance(error, WeightsError)
    assert reason in str(error)
    assert file in str(error)


def test_weights_that_are_not_numbers_are_refused(tmp_path):
    module = kornia_feature.TFeat(pretrained=False)
    module.descr[0].weight.data[3, 4] = float("nan")
    torch.save(module.state_dict(), tmp_path / "nan")
    with pytest.raises(WeightsError, match=r"NaN or infinite values in descr\.0\.weight"):
        baseline("tfeat", weights=tmp_path / "nan")
    pca = {"mean": torch.zeros(238), "eigvecs": torch.eye(238), "eigvals": torch.zeros(238)}
    torch.save({"liberty": {"pca": pca}}, tmp_path / "flat")
    with pytest.raises(WeightsError, match="eigenvalues that are not positive"):
        baseline("mkd-liberty", weights=tmp_path / "flat")


def test_torch_7_networks_of_another_kind_are_refused(tmp_path):
    for number, content in enumerate((None, 3.0, {}, {"desc": 1.0}, {"desc": ("nn.Tanh", {}), "mean": "x"})):
        path = tmp_path / f"{number}.t7"
        path.write_bytes(torch7_bytes(content))
        assert "not weights of deepdesc" in str(one_line(lambda path=path: baseline("deepdesc", weights=path)))


@given(place=st.integers(0, 16 + 256 * 1028 - 1), byte=st.integers(0, 255), cut=st.none() | st.integers(0, 263_184))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_damaged_tests_of_binboost_are_read_or_refused_in_one_line(place, byte, cut, baseline_weights, tmp_path):
    damaged = bytearray((baseline_weights / FILES["binboost"]).read_bytes()[:cut])
    if place < len(damaged):
        damaged[place] = byte
    (tmp_path / "damaged").write_bytes(damaged)
    try:
        method = baseline("binboost", weights=tmp_path / "damaged")
    except WeightsError as error:
        assert "\n" not in str(error)  # noqa: PT017 (it need not be raised)
    else:
        assert len(damaged) == 16 + 256 * 1028
        assert method.dimension == 256


def test_names_and_files_that_do_not_go_together(patches, tmp_path):
    for call, words in [
        (lambda: baseline("surf"), "no baseline 'surf'; there are sift, rootsift"),
        (lambda: baseline("binboost"), "binboost needs a weight file"),
        (lambda: baseline("tfeat"), "tfeat needs a weight file"),
        (lambda: baseline("mkd"), "give training_patches"),
        (lambda: baseline("mkd", weights=tmp_path, training_patches=patches), "takes no weight file"),
        (lambda: baseline("sift", weights=tmp_path), "sift takes no weight file"),
        (lambda: baseline("orb", training_patches=patches), "orb learns nothing"),
        (lambda: baseline("kornia:L2Net", weights=tmp_path), "kornia has no patch descriptor 'L2Net'; it has HardNet"),
        (lambda: baseline("kornia:KeyNet", weights=tmp_path), "kornia has no patch descriptor 'KeyNet'"),
    ]:
        assert words in str(one_line(call))


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    without_cv2 = [("cv2", name, None) for name in ("sift", "brief", "vgg")]
    for missing, name, file in (*without_cv2, ("kornia", "tfeat", tmp_path)):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, missing, None)
            with pytest.raises(MissingExtraError, match=r"pip install 'matchkernel\[baselines\]'"):
                baseline(name, weights=file)


@pytest.mark.parametrize("name", ["brief", "vgg", "beblid", "teblid"])
def test_an_opencv_without_contrib_is_named(name, monkeypatch):
    monkeypatch.delattr(cv2, "xfeatures2d")
    with pytest.raises(MissingExtraError, match=f"{name} needs opencv-contrib-python-headless"):
        baseline(name)


def test_nothing_is_downloaded(patches, tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("network was asked for")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    torch.save(kornia_feature.HardNet(pretrained=False).state_dict(), tmp_path / "w.pth")
    assert baseline("mkd", training_patches=patches).name == "mkd"
    assert baseline("kornia:HardNet", weights=tmp_path / "w.pth").name == "kornia:HardNet"
