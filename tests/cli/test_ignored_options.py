"""Options that would have no effect beside others are refused in one line, before any work."""

from pathlib import Path

import pytest
from commands import good, run

GUIDED = "guided matching needs a geometry: auto, homography or fundamental, not none"
DOG = "cannot be combined with --keynet, which replaces DoG"


def check(message, *arguments):
    before = sorted(Path().rglob("*"))
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), arguments
    assert message in result.stderr, arguments
    assert result.stderr.count("\n") == 1
    assert sorted(Path().rglob("*")) == before


def test_of_geometry(photos):
    check(GUIDED, "match", "photos/0.png", "photos/1.png", "--geometry", "none", "--guided")
    check(GUIDED, "match-pairs", "f.h5", "pairs.txt", "-o", "m.h5", "--guided")


@pytest.mark.parametrize(
    "verb",
    [("match", "photos/0.png", "photos/1.png"), ("extract", "photos", "-o", "o"), ("colmap", "photos", "-o", "o")],
)
def test_of_networks_with_sift(photos, verb):
    check("rootsift is not a network: leave out --engine", *verb, "--model", "rootsift", "--engine", "torch")
    both = ("--untrained", "--engine", "onnx")
    check("sift is not a network: leave out --untrained and --engine", *verb, "--model", "sift", *both)


def test_of_the_detector_with_keynet(photos):
    verb = ("match", "photos/0.png", "photos/1.png", "--keynet", "keynet.pth")
    check(f"--contrast {DOG}", *verb, "--contrast", 0.02)
    check(f"--contrast and --edge {DOG}", *verb, "--contrast", 0.02, "--edge", 9)
    check("keynet.pth", "colmap", "photos", "-o", "o", "--keynet", "keynet.pth")  # whose own contrast is 0.02


@pytest.mark.parametrize("option", [("--port", 1), ("--host", "localhost"), ("--no-open",)])
def test_of_serving_with_a_saved_page(photos, option):
    check("are for the page that is served, not for --save", "explore", "--save", "page.html", *option)


@pytest.mark.parametrize("place", ["rows", "rows.h5"])
def test_of_extraction_with_features(photos, place):
    good("extract", photos, "-o", place, "--model", "rootsift", "--keypoints", 50)
    verb = ("pairs", place, "-o", "p.txt")
    told = f"{place}: holds features already: %s can only be given with photos"
    check(told % "--features", *verb, "--features", "more")
    check(told % "--model, --keypoints", *verb, "--model", "rootsift", "--keypoints", 50)
    check(told % "--untrained, --upright", *verb, "--untrained", "--upright")
    check(told % "--engine", *verb, "--engine", "torch")
    check(told % "--model", *verb, "--model", "light-wide")  # the default, but not what the features are
    check("sift is not a network", "pairs", photos, "-o", "p.txt", "--model", "sift", "--untrained")
