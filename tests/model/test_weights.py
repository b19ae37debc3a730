import dataclasses
import json
import multiprocessing
import pickle
import signal
import time

import pytest
import torch
from helpers import refuses
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from matchkernel.errors import ArgumentError, ArgumentTypeError, WeightsError, WriteError
from matchkernel.model.describe import describe
from matchkernel.model.descriptors import build
from matchkernel.model.weights import load, save
from matchkernel.runtime.config import VARIANTS
from matchkernel.runtime.weights import Card, available, find_weights, read_card
from matchkernel.storage.tensors import write_tensors


@pytest.fixture(scope="module")
def small_file(tmp_path_factory):
    """A whole weight file, as small as they get."""
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    save(build("cartesian", d=1, D=2, s=0), path, {"licence": "Apache-2.0"})
    return path


def metadata_of(path):
    with safe_open(path, framework="np") as file:
        return dict(file.metadata())


def rewritten(path, target, change_tensors=lambda tensors: None, change_metadata=lambda metadata: None):
    """A valid safetensors file with other contents, its digest left as it was."""
    tensors, metadata = load_file(path), metadata_of(path)
    change_tensors(tensors)
    change_metadata(metadata)
    save_file(tensors, target, metadata)
    return target


@pytest.mark.parametrize("variant", VARIANTS)
def test_round_trip(variant, tmp_path, textures, trained_like):
    model = trained_like(build(variant, d=8))
    save(model, tmp_path / "w.safetensors")
    again = load(tmp_path / "w.safetensors")
    assert again.config == model.config
    assert not any(module.training for module in again.modules())
    assert torch.equal(again(textures(3)), model(textures(3)))
    assert list(tmp_path.iterdir()) == [tmp_path / "w.safetensors"]


def test_a_file_records_what_it_is(small_file):
    card = read_card(small_file)
    assert (card.config.variant, card.config.kappa_cartesian) == ("cartesian", 1.0)  # the resolved number
    assert (card.licence, card.normalization) == ("Apache-2.0", "per patch: (x - mean) / (std + 1e-7)")
    assert len(card.sha256) == 64
    assert load(small_file).card == card
    assert "\nimport" not in small_file.read_bytes().decode("latin1")


@pytest.mark.parametrize("variant", ["cartesian", "dual", "sum"])
def test_load_at_another_size(variant, tmp_path, textures, trained_like):
    model = trained_like(build(variant, d=8))
    save(model, tmp_path / "w.safetensors")
    there = load(tmp_path / "w.safetensors", patch_size=64)
    assert there.config.patch_size == 64
    assert torch.equal(there(textures(2, 64)), model(textures(2, 64)))


@pytest.mark.parametrize("variant", ["fc", "concat"])
def test_fc_and_concat_load_at_their_own_size_only(variant, tmp_path):
    save(build(variant, d=4), tmp_path / "w.safetensors")
    with refuses(WeightsError):
        load(tmp_path / "w.safetensors", patch_size=64)


def assert_refused(path):
    """In one line that names the file."""
    with pytest.raises(WeightsError) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_every_kind_of_wrong_file_is_refused(tmp_path):
    pth, foreign, checkpoint = (tmp_path / name for name in ("model.pth", "foreign.safetensors", "last.safetensors"))
    torch.save(build("sum", d=1).state_dict(), pth)
    save_file({"x": torch.zeros(3)}, foreign)
    save_file({"x": torch.zeros(3)}, checkpoint, {"checkpoint": "{}"})
    contents = {
        "old.pkl": pickle.dumps({"a": 1}),
        "empty.safetensors": b"",
        "text.safetensors": b"these are not weights, but a long line of words all the same",
        "too_long_a_header.safetensors": (2**62).to_bytes(8, "little") + b"{}",
        "too_much.safetensors": header_of({"x": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}}),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    for path in (*tmp_path.iterdir(), tmp_path / "absent.safetensors", tmp_path):
        assert_refused(path)
    with refuses(WeightsError):
        load("a" * 5000)  # a name too long for the file system
    with refuses(WeightsError):
        load("concat")  # a descriptor without trained weights


def header_of(header):
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


def set_config(**changes):
    def change(metadata):
        metadata["config"] = json.dumps({**json.loads(metadata["config"]), **changes})

    return change


def keep(_):
    """Change nothing."""


CHANGES = {
    "a tensor is missing": (lambda tensors: tensors.pop("projection.bias"), keep),
    "a tensor too many": (lambda tensors: tensors.update(extra=torch.zeros(1)), keep),
    "an odd name": (lambda tensors: tensors.update({"a\nb" * 100: torch.zeros(1)}), keep),
    "another shape": (lambda tensors: tensors.update({"projection.bias": torch.zeros(3)}), keep),
    "another type": (lambda tensors: tensors.update({"projection.bias": torch.zeros(2).int()}), keep),
    "another number": (lambda tensors: tensors["projection.bias"].add_(1e-3), keep),
    "another variant": (keep, set_config(variant="polar", kappa_cartesian=None, kappa_polar=1.0, s=1)),
    "another kappa": (keep, set_config(kappa_cartesian=2.0)),
    "another licence": (keep, lambda metadata: metadata.update(licence="none")),
    "an unknown setting": (keep, set_config(**{"x\ny": 1})),
    "another D": (keep, set_config(D=60_000)),
    "a D of many digits": (keep, set_config(D=10**400)),
    "a configuration that is a list": (keep, lambda metadata: metadata.update(config="[]")),
    "a configuration that is cut": (keep, lambda metadata: metadata.update(config="{")),
    "no digest": (keep, lambda metadata: metadata.pop("sha256")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_contents_that_do_not_fit_are_refused(change, small_file, tmp_path):
    assert_refused(rewritten(small_file, tmp_path / "changed.safetensors", *CHANGES[change]))


def test_statistics_of_other_patch_sizes_in_older_files_are_ignored(small_file, tmp_path):
    """Written for models trained at several patch sizes, which training no longer offers."""
    path, metadata = tmp_path / "sizes.safetensors", metadata_of(small_file)
    tensors = {**load_file(small_file), "statistics.12.output_norm.running_var": torch.rand(2)}
    write_tensors(path, tensors, {name: text for name, text in metadata.items() if name != "sha256"})
    found, expected = load(path).state_dict(), load(small_file).state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_flipped_bit_anywhere_is_noticed(data, small_file, tmp_path):
    content = bytearray(small_file.read_bytes())
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(content)
    assert_refused(damaged)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_cut_anywhere_is_refused(data, small_file, tmp_path):
    content = small_file.read_bytes()
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    assert_refused(cut)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_not_a_number_is_neither_saved_nor_loaded(value, tmp_path, small_file):
    model = build("sum", d=1)
    model.backbones[0].layers[0].weight.data[0, 0, 0, 0] = value
    with refuses(ArgumentError):
        save(model, tmp_path / "w.safetensors")
    assert not list(tmp_path.iterdir())
    tensors, metadata = load_file(small_file), metadata_of(small_file)
    tensors["projection.bias"][0] = value
    write_tensors(tmp_path / "w.safetensors", tensors, {name: metadata[name] for name in metadata if name != "sha256"})
    assert_refused(tmp_path / "w.safetensors")


def test_saving_what_was_loaded_keeps_its_card(small_file, tmp_path):
    save(load(small_file), tmp_path / "copy.safetensors")
    assert read_card(tmp_path / "copy.safetensors") == read_card(small_file)  # with the digest of everything
    save(load(small_file), tmp_path / "mine.safetensors", {"trained_on": "mine"})
    assert load(tmp_path / "mine.safetensors").card.to_strings() == {"trained_on": "mine"}
    save(load(small_file), tmp_path / "bare.safetensors", {})
    assert load(tmp_path / "bare.safetensors").card.to_strings() == {}


def test_a_card_is_the_same_after_saving(tmp_path):
    card = Card(
        licence="CC0", trained_on="a, b", training_sets=(("a", "12"), ("b", "")), training={"seed": 3, "data": {}},
        command="train", step=7, metrics={"map": 0.5}, validation={"fpr95": 0.1}, match_threshold=0.85,
        match_ratio=0.9, other={"author": "me"},
    )  # fmt: skip
    save(build("sum", d=1), tmp_path / "w.safetensors", card)
    again = read_card(tmp_path / "w.safetensors")
    assert dataclasses.replace(again, config=None, sha256="") == card
    assert again.training_seed == 3
    assert Card(seed=4, training={"seed": 3}).training_seed == 4
    assert Card().training_seed is Card(training={"seed": True}).training_seed is None


@pytest.mark.parametrize("name", available())
def test_the_weights_of_the_package_saved_again_are_the_same(name, tmp_path):
    model = load(name)
    save(model, tmp_path / "again.safetensors")
    assert metadata_of(tmp_path / "again.safetensors") == metadata_of(find_weights(name))


CARDS = [
    ("match_threshold", "near"), ("match_threshold", "nan"), ("match_threshold", "-1"), ("match_threshold", "2.5"),
    ("match_ratio", "0"), ("match_ratio", "1.01"), ("match_ratio", "nan"), ("match_ratio", "wide"),
    ("training", "{"), ("training", "[1]"), ("metrics", "good"), ("validation", "[" * 10**5), ("step", "2.5"),
    ("seed", "x"), ("training_sets", "{"), ("training_sets", "3"), ("training_sets", "[1]"),
    ("training_sets", '[{"patches_sha256": "x"}]'), ("training_sets", '[{"name": 1}]'),
]  # fmt: skip


def test_invalid_cards_are_neither_saved_nor_read(small_file, tmp_path):
    for name, text in CARDS:
        with refuses(ArgumentError):
            save(build("sum", d=1), tmp_path / "w.safetensors", {name: text})
        path = tmp_path / "odd.safetensors"
        rewritten(small_file, path, change_metadata=lambda metadata, odd={name: text}: metadata.update(odd))
        with refuses(WeightsError):
            read_card(path)
        assert_refused(path)


@pytest.mark.parametrize(
    ("model", "card", "error"),
    [
        (build("sum", d=1).fold(), None, ArgumentError),
        (build("sum", d=1), {"sha256": "0"}, ArgumentError),
        (build("sum", d=1), {"epochs": 3}, ArgumentTypeError),
        (build("sum", d=1), 3, ArgumentTypeError),
        (torch.nn.Linear(1, 1), None, ArgumentTypeError),
    ],
    ids=["folded", "reserved name", "not a string", "not a card", "not a descriptor"],
)
def test_what_cannot_be_saved_is_refused(model, card, error, tmp_path):
    with refuses(error):
        save(model, tmp_path / "w.safetensors", card)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_the_precision_is_kept(dtype, tmp_path, textures):
    model = build("dual", d=4).to(dtype).eval()
    save(model, tmp_path / "w.safetensors")
    again = load(tmp_path / "w.safetensors")
    assert {tensor.dtype for tensor in again.parameters()} == {dtype}
    assert torch.equal(describe(textures(2), again), describe(textures(2), model))


def save_for_ever(models, path, ready):
    while True:
        for model in models:
            save(model, path)
            ready.set()


def test_kill_while_saving_leaves_a_whole_file(tmp_path):
    """A forked process, which need not import torch again."""
    path = tmp_path / "w.safetensors"
    models = [build(variant, d=32) for variant in ("sum", "cartesian")]
    fork = multiprocessing.get_context("fork")
    for wait in (0.01, 0.02, 0.03, 0.05, 0.07):
        ready = fork.Event()
        process = fork.Process(target=save_for_ever, args=(models, path, ready))
        process.start()
        assert ready.wait(60)
        time.sleep(wait)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert load(path).config.variant in ("sum", "cartesian")


def test_disk_full_keeps_the_old_file(small_disk):
    """/dev/full cannot be renamed onto, so a tiny real file system is made where the test may mount one."""
    mount = small_disk("1m")
    save(build("sum", d=1), mount / "w.safetensors")
    before = (mount / "w.safetensors").read_bytes()
    with refuses(WriteError):
        save(build("fc"), mount / "w.safetensors")
    assert (mount / "w.safetensors").read_bytes() == before
    assert [path.name for path in mount.iterdir()] == ["w.safetensors"]
