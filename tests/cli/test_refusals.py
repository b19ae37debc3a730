"""Command lines that every verb refuses: exit code 2, one line on stderr, no file written or changed."""

import shutil
import socket
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from commands import good, refused, run
from made_images import save, texture, turned, write_bad_images

from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.runtime.context import SHIPPED

PHOTO_PAIR = "photos/0.png photos/1.png --keypoints 50"
PATCHES, STRIPS = "evaluate phototourism one -o new", "evaluate hpatches strips -o new"
REFUSED = f"""
info nothing

describe absent.npy -o x.npy --model sum.safetensors
describe patches.npy -o x.npy --model sum                               # there are no trained weights of this name
describe patches.npy -o x.txt --model sum.safetensors
describe patches.npy -o odd.npy/x.npy --model sum.safetensors         # a file as a folder
describe patches.npy -o x.npy --model patches.npy
describe patches.npy -o x.npy --model mystery --untrained
describe patches.npy -o x.npy --model sum.safetensors --device abacus
describe odd.npy -o x.npy --model fc --untrained                        # 30 px
describe nothing.npy -o x.npy --model sum.safetensors --resize
describe patches.npy -o patches.npy --model sum.safetensors           # inputs are not replaced
describe patches.npy -o weights.npy --model weights.npy

export weights.onnx -o weights.onnx
export seed0.safetensors -o x.onnx --int8                               # without --calibrate
export seed0.safetensors -o x.onnx --calibrate many
export seed0.safetensors -o x.onnx --int8 --calibrate nowhere
export light -o many/x.onnx --int8 --calibrate many
export mystery -o x.onnx
export fc --untrained -o x.onnx --patch-size 64
export sum --untrained -o x.pt

reduce seed0.safetensors -o x.safetensors --calibrate many --dimensions 0
reduce seed0.safetensors -o x.safetensors --calibrate many --dimensions 8  # as many as there are
reduce seed0.safetensors -o x.safetensors --calibrate many --dimensions 20
reduce seed0.safetensors -o x.safetensors --calibrate nowhere --dimensions 4
reduce seed0.safetensors -o x.onnx --calibrate many --dimensions 4
reduce seed0.safetensors -o many/x.safetensors --calibrate many --dimensions 4

plot kernels --kappa -1
plot kernels --s 100000
plot kernels -o patches.npy
plot maps rgb.npy -o x.png --model seed0.safetensors
plot maps patches.npy -o x.png --model seed0.safetensors --b 4          # constant
plot maps patches.npy -o x.png --model seed0.safetensors --b 99
plot maps patches.npy -o x.png --model seed0.safetensors --at 0.5
plot maps patches.npy -o x.png --model seed0.safetensors --at 2,0.5
plot maps patches.npy -o x.png --model seed0.safetensors --at nan,0.5
plot maps patches.npy -o x.png --model seed0.safetensors:polar
plot maps patches.npy -o x.png --model fc:polar
plot maps patches.npy -o x.jpg --model seed0.safetensors
plot maps patches.npy -o x.png --model seed0.safetensors --match 1      # not photos
plot maps patch.png patch.png -o x.png --model seed0.safetensors --match 1
plot maps patch.png patch.png -o x.png --model seed0.safetensors --a 0  # not a stack
plot maps -o x.png --model seed0.safetensors --b 1
plot maps patch.png small.png -o x.png --model seed0.safetensors
plot maps patch.png patch.png patch.png -o x.png --model seed0.safetensors
plot maps patch.png absent.png -o x.png --model seed0.safetensors
plot maps photos/0.png -o x.png --model seed0.safetensors               # a second one is missing
plot maps bad/words.jpg -o x.png --model seed0.safetensors
plot maps strip.png -o strip.png --model seed0.safetensors
plot conventions -o x.pdf
plot overview patches.npy -o x.png --model fc
plot overview patches.npy -o x.png --patch 99
plot overview patches.npy -o x.png --patch 4                            # constant
plot overview photos/0.png -o x.png
plot overview bad/words.jpg -o x.png
plot scores patches.npy -o x.png
plot training log.jsonl -o log.jsonl
plot augmentation run.toml -o run.toml

match photos/0.png absent.png
match photos/0.png bad/empty.png -o m.png --json --model sift
match photos/0.png bad/words.jpg -o m.png --json --model sift
match photos/0.png bad/cut.png -o m.png --json --model sift
match photos/0.png bad/bomb.png -o m.png --json --model sift
match {PHOTO_PAIR} --model mystery
match {PHOTO_PAIR} --model sum                                          # there are no trained weights of this name
match {PHOTO_PAIR} --model mystery --untrained
match {PHOTO_PAIR} --model sift --filter ratio:3
match {PHOTO_PAIR} --model sift --pixels 0
match {PHOTO_PAIR} --model sift --contrast -1
match {PHOTO_PAIR} --model sift -o photos/0.png/m.png
match {PHOTO_PAIR} --model sift -o photos/0.png
match {PHOTO_PAIR} --model weights.png -o weights.png
match {PHOTO_PAIR} --json weights.png                                   # once took the name of a file
match {PHOTO_PAIR} --model sum --untrained --device abacus
match {PHOTO_PAIR} --model light --engine fastest
match {PHOTO_PAIR} --model light --engine none.onnx
match {PHOTO_PAIR} --model light --engine cuda-half --device cpu
match {PHOTO_PAIR} --model rootsift --engine torch
match {PHOTO_PAIR} --model sift --untrained
match {PHOTO_PAIR} --geometry none --guided
match {PHOTO_PAIR} --guided --no-mutual
match {PHOTO_PAIR} --model sift --align --guided
match {PHOTO_PAIR} --model dual --matcher context -o m.png              # rows of another model
match {PHOTO_PAIR} --matcher context:seed0.safetensors -o m.png         # weights of a descriptor
match {PHOTO_PAIR} --matcher context:cut.safetensors -o m.png
match {PHOTO_PAIR} --keynet keynet.pth --contrast 0.02
match {PHOTO_PAIR} --keynet keynet.pth --edge 9
match {PHOTO_PAIR} --model sift --choice spread --density 0.01          # only the largest are searched in copies
match photos/0.png photos/1.png --model sift --keypoints 0 --density 0.02

extract bad/words.jpg -o f --model sift
extract photos -o strip.png --model sift
extract photos -o f --model mystery
extract photos -o strip.png/f.h5 --model sift
extract photos -o f --model rootsift --engine torch
extract photos -o f --model rootsift --pooling 6;8
extract photos -o f --model rootsift --affnet nothing.pth
extract photos -o f --model rootsift --choice best
extract photos -o rows --model rootsift --keypoints 51                  # made with other settings
extract photos -o rows --model light --keypoints 50

pairs absent -o p.txt
pairs empty -o p.txt
pairs damaged.h5 -o p.txt
pairs photos -o photos/p.txt
pairs photos -o p.h5
pairs photos -o p.txt --add absent.txt
pairs photos -o p.txt --from-colmap photos
pairs scene/images -o scene/sparse/images.txt --from-colmap scene/sparse
pairs photos -o p.txt --retrieval absent.h5
pairs photos -o p.txt --model sift --untrained
pairs rows -o p.txt --features more                                     # features: nothing is extracted
pairs rows -o p.txt --model rootsift --keypoints 50
pairs rows.h5 -o p.txt --untrained --upright
pairs rows.h5 -o p.txt --engine torch
pairs photos -o p.txt --exhaustive --features more                      # and photos: neither
pairs photos -o p.txt --sequential 2 --model sift
pairs rows.h5 -o p.txt --model light-wide

match-pairs rows.h5 absent.txt -o m.h5
match-pairs rows.h5 blank.txt -o m.h5
match-pairs rows.h5 strangers.txt -o m.h5                               # pairs of another collection only
match-pairs rows.h5 pairs.txt -o m.csv
match-pairs rows.h5 pairs.txt -o m.h5 --filter odd
match-pairs rows.h5 pairs.txt -o m.h5 --matcher context:missing.safetensors
match-pairs rows.h5 pairs.txt -o m.h5 --matcher context                 # rows of another model
match-pairs points.h5 pairs.txt -o m.h5 --matcher context               # without scales
colmap photos -o w --matcher context:rows.h5.safetensors
match-pairs rows.h5 pairs.txt -o m.h5 --on cluster
match-pairs rows.h5 pairs.txt -o m.h5 --guided
match-pairs nothing pairs.txt -o m.h5
match-pairs rows.h5 pairs.txt -o pairs.txt
match-pairs rows.h5 pairs.txt -o m.h5 -o pairs.txt
match-pairs rows.h5 pairs.txt -o m.h5 -o m.hdf5

colmap photos -o w --model rootsift --engine torch
colmap photos -o w --keynet keynet.pth
colmap absent -o w
colmap empty -o w
colmap photos -o photos/w
colmap photos -o w --model mystery
colmap photos -o w --camera-model ROUND
colmap photos -o w --pairs some

explore photos/0.png
explore photos/0.png absent.jpg
explore photos/0.png photos
explore photos/0.png bad/words.jpg
explore --no-open --port 70000
explore --no-open --host 0.0.0.0
explore --no-open --host 0
explore --no-open --host 0.0
explore --no-open --host 0x0
explore --no-open --host ::ffff:0.0.0.0
explore --no-open --host ::
explore --no-open --port 0 --model lihgt
explore --no-open --port 0 --compare light
explore --keypoints 5
explore --results absent
explore --save page.html --port 1
explore --save page.html --host localhost
explore --save page.html --no-open
explore photos/0.png photos/1.png --save page.txt
explore photos/0.png photos/1.png --save page.html --model lihgt
explore photos/0.png photos/1.png --save page.html --compare nothing

train absent.toml
train-matcher nowhere -o x.safetensors
train-matcher photos -o x.safetensors
train-matcher scene -o x.pth
train-matcher scene -o scene/x.safetensors
train-matcher scene -o x.safetensors --model nobody
train-matcher scene -o x.safetensors --set pairs=3
train-matcher scene -o x.safetensors --config nowhere.toml
train-matcher scene -o x.safetensors --validate scene
train-matcher scene -o x.safetensors --set shared_points=100000
train-matcher scene -o x.safetensors --device abacus
train-matcher scene scene -o x.safetensors
train-matcher scene -o x.safetensors --model tiny --set keypoints=50 --set warps=0 --set pose_pairs=0 --set warp_pairs=0
adapt absent -o new
adapt photos/0.png -o new
adapt photos -o new --layers first
adapt photos -o new --device abacus
adapt photos -o new --minutes 0
adapt photos -o new --model nothing
adapt photos -o new --model scene/sparse
adapt photos -o new --check nowhere
adapt photos -o new --mix one                                           # patches of another size
adapt photos -o new --database patches.npy                              # without its model
adapt photos -o new --from-colmap light
adapt photos -o new --from-colmap empty                                 # without a database
adapt scene/images -o scene/images/new --from-colmap scene/sparse --database patches.npy
adapt scene/images -o scene --from-colmap scene/sparse --database patches.npy  # holds other files

report one -o new
report nothing.json -o new

data pack absent -o new
data verify absent
data info absent
data show absent -o x.png
data from-colmap absent absent absent -o new
data from-homographies absent -o new
data synthetic -o .
data synthetic -o /
data synthetic -o patches.npy/set
data synthetic -o new --size 1000000
data show one -o sheet.jpg
data show one -o one/sheet.png
data show strips -o strips/i_light/ref.png
data from-homographies sequences -o sequences/new
data pack one -o one/new
data from-colmap photos one patches.npy -o photos/new
data from-photos photos -o photos/new

{PATCHES}
{PATCHES} --baseline sift --model seed0.safetensors
{PATCHES} --baseline surf
{PATCHES} --baseline tfeat
{PATCHES} --baseline sift --baseline-weights x
{PATCHES} --baseline sift --training-set two
{PATCHES} --baseline sift --distance cosine
{PATCHES} --baseline orb --distance l2
{PATCHES} --model seed0.safetensors                                     # trained on every set
{PATCHES} --model three=seed0.safetensors                               # trained on another set, by its card
{PATCHES} --model seed0.safetensors --training-set two
{PATCHES} --model seed0.safetensors --device abacus
{PATCHES} --model seed0.safetensors --model ./seed0.safetensors
{PATCHES} --model untold0.safetensors --model sum.safetensors --name x
{PATCHES} --model absent.safetensors
evaluate phototourism A=one A=one --baseline sift
evaluate phototourism nowhere --baseline sift
evaluate phototourism one ./one --baseline sift
evaluate phototourism one two --baseline sift -o x.json                 # two results
evaluate phototourism one --baseline sift -o seed0.safetensors/x.json
evaluate phototourism one --baseline sift -o seed0.safetensors
evaluate phototourism one --baseline sift -o one
evaluate phototourism A=one --baseline sift -o one/new
evaluate phototourism two --model weights.json -o weights.json
evaluate phototourism a=one a-n=two --model n-b=untold0.safetensors --model b=untold1.safetensors --name n -o new

{STRIPS}
{STRIPS} --baseline sift --bits
{STRIPS} --baseline sift --split a
{STRIPS} --baseline sift --split full --split full
{STRIPS} --baseline sift --tasks one
{STRIPS} --baseline sift --task detection
{STRIPS} --baseline sift --whitening zca
{STRIPS} --baseline sift --whitening pcapl
{STRIPS} --baseline orb --distance l1
{STRIPS} --baseline sift --write-csv one
{STRIPS} --baseline sift --descriptors csv
evaluate hpatches --baseline sift
evaluate hpatches strips --model tiny --model light -o scores           # of which one would be scored
evaluate hpatches one --baseline sift
evaluate hpatches strips --baseline sift -o strips/new
evaluate hpatches strips --baseline sift --write-csv strips/x
evaluate hpatches --descriptors csv
evaluate hpatches --descriptors nowhere --tasks strips/tasks -o new

evaluate photos scene --model rootsift --filter nearest
evaluate photos scene --model rootsift --matcher context:missing.safetensors
evaluate photos scene --model rootsift --matcher context
evaluate photos scene --model aliked-n16 --align
evaluate photos scene --model rootsift --filter ratio:2
evaluate photos scene --model rootsift --pixels 0
evaluate photos scene --model rootsift --repeats 0
evaluate photos scene --model rootsift --pairs nowhere.txt
evaluate photos scene --model rootsift --model nobody
evaluate photos scene --model rootsift --model sift -o one.json
evaluate photos scene --model rootsift --shared-points 100000
evaluate photos scene --model rootsift -o mine                          # mine.work is a folder of the user
evaluate photos scene --model rootsift -o scene/results
evaluate photos scene --model rootsift --work scene/work
"""
LINES = [line.partition(" #")[0].strip() for line in REFUSED.splitlines() if line]


@pytest.fixture(scope="module")
def inputs(place, rendered):
    """The sets and weights of `place`, with photos, features and files of the wrong kind."""
    folder, stack = place, np.random.default_rng(0).integers(0, 256, (20, 32, 32), dtype=np.uint8)
    stack[4] = 100
    np.save(folder / "patches.npy", stack)
    for name, pixels in {"strip": stack.reshape(-1, 32), "patch": stack[0], "small": stack[0, :16, :16]}.items():
        save(pixels, folder / f"{name}.png")
    for name, shape in {"odd": (2, 30, 30), "rgb": (2, 3, 32, 32), "nothing": (2, 0, 0)}.items():
        np.save(folder / f"{name}.npy", np.zeros(shape))
    for name, text in {
        "log.jsonl": "",
        "run.toml": "",
        "blank.txt": "\n",
        "pairs.txt": "0.png 1.png\n",
        "strangers.txt": "a b\n",
    }.items():
        (folder / name).write_text(text)
    for suffix in ("npy", "onnx", "png", "json"):
        shutil.copy(folder / "seed0.safetensors", folder / f"weights.{suffix}")
    for name in ("photos", "bad", "empty", "mine.work"):
        (folder / name).mkdir()
    (folder / "mine.work" / "notes.txt").touch()
    for number in range(3):
        save(turned(texture(0, 90, 110), 9 * number)[0], folder / "photos" / f"{number}.png")
    write_bad_images(folder / "bad")
    build_synthetic(folder / "many", SyntheticSettings(points=130, patches=2, size=16))  # enough to calibrate on
    for name in ("images", "sparse"):
        shutil.copytree(rendered / name, folder / "scene" / name)
    for name in ("rows", "rows.h5"):
        good("extract", folder / "photos", "-o", folder / name, "--model", "rootsift", "--keypoints", 50)
    damage_descriptors(folder / "rows.h5", folder / "damaged.h5")
    good("extract", folder / "photos", "-o", folder / "points.h5", "--keypoints", 20)
    with h5py.File(folder / "points.h5", "a") as points:
        for name in ("0.png", "1.png"):
            del points[name]["scales"]
    (folder / "cut.safetensors").write_bytes((SHIPPED / "light-wide.safetensors").read_bytes()[:5000])
    return folder


def damage_descriptors(source, target):
    """Copy features with the descriptors of one image overwritten: the damage is found only when they are read."""
    with h5py.File(source) as file:
        place = file["1.png"]["descriptors"].id.get_chunk_info(0)
    content = bytearray(source.read_bytes())
    content[place.byte_offset : place.byte_offset + place.size] = b"\xff" * place.size
    target.write_bytes(content)


@pytest.mark.parametrize("line", LINES)
def test_a_mistake_is_one_line_and_exit_2(line, inputs, monkeypatch):
    monkeypatch.chdir(inputs)
    refused(*line.split())


@pytest.mark.parametrize("verb", ["match photos/0.png photos/1.png", "evaluate photos scene --model light"])
def test_an_option_that_keynet_would_ignore_is_named_even_if_it_repeats_the_default(verb, inputs, monkeypatch):
    monkeypatch.chdir(inputs)
    for option in ("--contrast 0.01", "--edge 10", "--density 0.01"):
        assert option.split()[0] in refused(*f"{verb} --keynet keynet.pth {option}".split())


def test_no_density_is_what_other_choices_have_anyway(inputs, monkeypatch):
    monkeypatch.chdir(inputs)
    good(*f"match {PHOTO_PAIR} --model sift --choice spread --density 0".split())


def test_every_verb_is_in_the_table():
    from matchkernel.cli.app import VERBS

    assert {line.split()[0] for line in LINES} == VERBS.keys() - {"params", "demo"}


def test_a_port_that_is_taken_is_one_line(inputs, monkeypatch):
    monkeypatch.chdir(inputs)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused("explore", "--no-open", "--port", taken.getsockname()[1])


@pytest.mark.parametrize(
    ("package", "line"),
    [("starlette", "explore --no-open"), ("onnxruntime", f"match {PHOTO_PAIR} --model light --engine onnx-int8")],
)
def test_a_missing_package_is_one_line_with_the_command_that_installs_it(package, line, inputs, monkeypatch):
    monkeypatch.chdir(inputs)
    monkeypatch.setitem(sys.modules, package, None)
    assert "pip install" in refused(*line.split())


@pytest.mark.parametrize("line", ["plot kernels -o", "extract photos -o", "train x.toml -o"])
def test_an_empty_path_is_not_the_current_folder(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(*line.split(), "")


READ_ONLY = Path("/proc")  # even for root


@pytest.mark.skipif(not READ_ONLY.exists(), reason="needs a folder in which nobody can write")
@pytest.mark.parametrize(
    "line",
    [
        "match photos/0.png photos/1.png --keypoints 50 --out m.png",
        "extract photos --keypoints 50 --out f.h5",
        "extract photos --keypoints 50 --out f",
        "demo",
        "data synthetic --points 9 --out set",
    ],
)
def test_a_current_folder_that_cannot_be_written_is_one_line(line, inputs, monkeypatch):
    monkeypatch.chdir(READ_ONLY)
    done = run(*line.replace("photos", str(inputs / "photos")).split())
    assert done.exit_code in (1, 2)  # root is allowed to write, and fails later
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
