"""An opened matcher gives what match_images gives, extracts an image once, and serves several threads."""

import gc
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import refuses
from made_images import texture, turned

import matchkernel
from matchkernel import Matcher, match_images
from matchkernel.errors import ArgumentError, ArgumentTypeError, FileError
from matchkernel.photos import matcher as opened
from matchkernel.photos.extract import extract
from matchkernel.runtime.config import PHOTO_MODEL

IMAGE = texture()
COPY, H = turned(IMAGE, 15)


def same(one, two):
    np.testing.assert_array_equal(one.matches.indices, two.matches.indices)
    np.testing.assert_array_equal(one.points, two.points)
    np.testing.assert_array_equal(one.model, two.model)
    np.testing.assert_array_equal(one.features[0].descriptors, two.features[0].descriptors)


@pytest.fixture
def counted(monkeypatch):
    """The images that were extracted."""
    calls, extract_with = [], opened.extract_with

    def count(image, *arguments):
        calls.append(image)
        return extract_with(image, *arguments)

    monkeypatch.setattr(opened, "extract_with", count)
    return calls


@pytest.mark.parametrize("options", [{}, {"align": True}])
def test_it_gives_what_match_images_gives(options):
    with Matcher("tiny", keypoints=80) as matcher:
        for pair in ((IMAGE, COPY), (COPY, IMAGE), (IMAGE, COPY)):
            same(matcher(*pair, **options), match_images(*pair, "tiny", keypoints=80, **options))


def test_an_image_is_extracted_once_and_again_when_it_has_changed(counted, tmp_path):
    from PIL import Image

    path, array = tmp_path / "a.png", IMAGE.copy()
    Image.fromarray(IMAGE).save(path)
    with Matcher("sift", keep=3) as matcher:
        for _ in range(3):
            matcher(path, array)
        assert len(counted) == 2
        array[:40] = 0
        Image.fromarray(COPY).save(path)
        assert matcher.extract(path).frames.centers.shape != matcher.extract(IMAGE).frames.centers.shape
        assert len(counted) == 3
        matcher.extract(array)
        assert len(counted) == 4  # more than are kept
        matcher.extract(IMAGE)
        assert len(counted) == 4
        matcher.extract(COPY.copy())
        matcher.extract(texture(1))
        matcher.extract(IMAGE)
        assert len(counted) == 6


def test_frames_are_tracked_as_long_as_they_are_seen(counted):
    wide = texture(2, 160, 400)
    frames = [np.ascontiguousarray(wide[:, x : x + 200]) for x in range(0, 200, 40)]
    with Matcher("sift") as matcher:
        seen = list(matcher.track(iter(frames)))
    assert len(counted) == len(seen) == len(frames)
    assert seen[0].found is None
    places = {}
    for number, frame in enumerate(seen):
        assert len(set(frame.tracks.tolist())) == len(frame.features)
        if number:
            same(frame.found, match_images(frames[number - 1], frames[number], "sift"))
        for track, x in zip(frame.tracks.tolist(), frame.features.keypoints[:, 0] + 40 * number, strict=True):
            places.setdefault(track, []).append(x)
    assert sorted(places) == list(range(len(places)))
    long = [xs for xs in places.values() if len(xs) >= 3]
    assert len(long) > 20
    assert max(np.ptp(xs) for xs in long) < 3 * 2  # each match moves by an inlier's error at most
    assert list(matcher.track([])) == []


def test_threads_share_one_matcher(counted):
    images = [texture(seed) for seed in range(6)]
    pairs = [(a, b) for a in range(6) for b in range(6) if a != b]
    with Matcher("sift", keypoints=60, keep=6) as matcher, ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda pair: matcher(images[pair[0]], images[pair[1]]), pairs))
        assert len(counted) == 6
        for (a, b), one in zip(pairs, found, strict=True):
            same(one, match_images(images[a], images[b], "sift", keypoints=60))


def test_a_closed_matcher_and_mistakes_are_refused_in_one_line(tmp_path):
    matcher = Matcher("sift", keypoints=20)
    for image, error in ((tmp_path / "no.png", FileError), ("\0", FileError), (None, ArgumentTypeError)):
        with refuses(error):
            matcher(image, IMAGE)
    with refuses(ArgumentError):
        Matcher("sift", keypoint=20)
    with refuses(ArgumentError):
        Matcher("sift", guided=True)(IMAGE, COPY, align=True)
    matcher.close()
    for use in (lambda: matcher(IMAGE, COPY), lambda: matcher.extract(IMAGE), lambda: next(matcher.track([IMAGE]))):
        with refuses(ArgumentError):
            use()


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")  # noqa: PTH110
def test_memory_stays_flat_over_many_pairs():
    """benchmarks/matcher.py shows it over 10,000."""
    wide = texture(2, 60, 800)

    def pages():
        gc.collect()
        with open("/proc/self/statm") as file:  # noqa: PTH123
            return int(file.read().split()[1])

    with Matcher("tiny", keypoints=20, contrast=0.001) as matcher:
        sizes = []
        for start in (0, 350):
            for x in range(start, start + 350):
                matcher(wide[:, x : x + 80].copy(), wide[:, x + 1 : x + 81].copy())
            sizes.append(pages())
    assert (sizes[1] - sizes[0]) * os.sysconf("SC_PAGE_SIZE") < 350 * 4000  # 80 x 60 pixels and more would stay of each


def test_features_are_matched_without_their_photos():
    a, b = (extract(image, "tiny", keypoints=80) for image in (IMAGE, COPY))
    expected = match_images(IMAGE, COPY, "tiny", keypoints=80)
    for pair in ((a, COPY), (IMAGE, b)):
        same(match_images(*pair, "tiny", keypoints=80), expected)
    same(match_images(a, b), expected)
    with refuses(ArgumentError):
        match_images(a, b, keypoints=10)
    with refuses(ArgumentError):
        match_images(a, COPY, "tiny", align=True)
    with refuses(ArgumentError):
        match_images(a, COPY, "sift")


def test_a_result_tells_its_points_and_itself_in_a_line():
    found = match_images(IMAGE, COPY, "sift")
    a, b = found.inlier_points
    assert len(a) == len(b) == found.inliers.sum() > 30
    np.testing.assert_array_equal(b, found.points[1][found.inliers])
    for thing, words in (
        (found, "agree on a homography"),
        (found.features[0], "200 x 160"),
        (found.matches, "Matches"),
    ):
        assert words in repr(thing)
        assert len(repr(thing)) < 200
        assert "\n" not in repr(thing)


def test_the_relative_pose_follows_from_intrinsics(monkeypatch):
    """A plane seen by two cameras: B turned by H and moved."""
    K = np.array([[150.0, 0, 99.5], [0, 150, 79.5], [0, 0, 1]])
    K_b = np.array([[170.0, 0, 90.0], [0, 165, 70.0], [0, 0, 1]])
    angle, t, n = np.deg2rad(8), np.array([0.3, 0.05, 0.1]), np.array([0.1, 0, 1])
    R = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]])
    import cv2

    view = cv2.warpPerspective(texture(height=160), K_b @ (R + np.outer(t, n) / 2) @ np.linalg.inv(K), (200, 160))
    found = match_images(texture(height=160), view, "sift")
    pose = found.pose(K, K_b)
    assert np.rad2deg(np.arccos((np.trace(pose.R @ R.T) - 1) / 2)) < 1
    assert np.rad2deg(np.arccos(pose.t @ t / np.linalg.norm(t))) < 6
    assert pose.inliers.sum() > 30
    one = found.pose(K)
    np.testing.assert_array_equal(one.R, found.pose(K, K).R)
    assert match_images(IMAGE[:9, :9], view, "sift").pose(K) is None
    for wrong in (K[:2], K.T, -K, np.full((3, 3), np.nan), "K", 2 * K):
        with refuses((ArgumentError, ArgumentTypeError)):
            found.pose(wrong)


def test_the_names_of_the_package_are_the_functions():
    from matchkernel.photos.match import match
    from matchkernel.photos.verify import verify

    assert (matchkernel.extract, matchkernel.match, matchkernel.verify) == (extract, match, verify)
    assert extract(IMAGE, keypoints=5).model == PHOTO_MODEL
