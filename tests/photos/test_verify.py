"""Geometry from matches with known truth, and matches that determine none."""

import numpy as np
import pytest
from helpers import refuses
from rendering import turn

from matchkernel.errors import ArgumentError
from matchkernel.geometry.two_view import corner_error, essential_matrix, sampson_distances, warp_points
from matchkernel.photos.verify import ERRORS, SIGNIFICANT, WITHIN, transfer_errors, verify

H = np.array([[0.9, -0.2, 40], [0.15, 1.1, -20], [1e-4, 5e-5, 1]])


def planar(count=80, outliers=40, noise=0.3, seed=0):
    generator = np.random.default_rng(seed)
    a = generator.uniform(0, 500, (count + outliers, 2))
    b = warp_points(H, a)[0] + noise * generator.normal(size=a.shape)
    b[count:] = generator.uniform(0, 500, (outliers, 2))
    return a, b


def two_views(count=120, outliers=40, seed=0):
    """Points in space seen by two cameras: pixels, and the true fundamental matrix."""
    generator = np.random.default_rng(seed)
    K = np.array([[500, 0, 320], [0, 500, 240], [0, 0, 1]], float)
    R, t = turn(1, 0.2), np.array([-1.0, 0.2, 0.1])
    points = generator.uniform([-2, -2, 4], [2, 2, 9], (count, 3))
    first, second = points @ K.T, (points @ R.T + t) @ K.T
    a, b = first[:, :2] / first[:, 2:], second[:, :2] / second[:, 2:]
    F = np.linalg.inv(K).T @ essential_matrix(R, t) @ np.linalg.inv(K)
    wrong = generator.uniform(0, 480, (2, outliers, 2))
    return np.concatenate([a, wrong[0]]), np.concatenate([b, wrong[1]]), F


def test_a_homography_takes_a_to_b():
    a, b = planar()
    found = verify(a, b, "homography")
    assert corner_error(found.model, H, (500, 500)) < 1
    assert found.inliers[:80].mean() > 0.97
    assert found.inliers[80:].mean() < 0.05
    expected = np.linalg.norm(warp_points(found.model, a)[0] - b, axis=1)
    assert found.errors == pytest.approx(expected)
    assert (found.inliers == (found.errors <= 3)).all()
    assert corner_error(verify(b, a, "homography").model, np.linalg.inv(H), (500, 500)) < 2


def test_a_fundamental_matrix_puts_b_on_the_line_of_a():
    a, b, F = two_views()
    found = verify(a, b, "fundamental", threshold=1.0)
    assert found.inliers[:120].mean() > 0.97
    assert found.inliers[120:].mean() < 0.2  # some wrong ones lie on the line by chance
    x_a, x_b = (np.column_stack([points[:120], np.ones(120)]) for points in (a, b))
    lines = x_a @ found.model.T
    distances = np.abs((x_b * lines).sum(1)) / np.linalg.norm(lines[:, :2], axis=1)
    assert np.median(distances) < 0.2
    wrong_way = x_a @ found.model
    assert np.median(np.abs((x_b * wrong_way).sum(1)) / np.linalg.norm(wrong_way[:, :2], axis=1)) > 5
    assert sampson_distances(F, a[:120], b[:120]).max() < 1e-9
    assert np.linalg.norm(found.model) == pytest.approx(1)


def test_sampson_distances_are_in_pixels():
    """Off its line by e in both images' lines of equal slope, a point is e / sqrt 2 away to first order."""
    F = np.array([[0, 0, 0], [0, 0, -1], [0, 1, 0]], float)  # the same row in both images
    a = np.array([[10.0, 20.0]])
    assert sampson_distances(F, a, a + np.array([30, 2])) == pytest.approx([2 / np.sqrt(2)])


@pytest.mark.parametrize("geometry", ["auto", "homography", "fundamental"])
def test_the_same_matches_give_the_same_answer(geometry):
    a, b = planar()
    first, second = verify(a, b, geometry), verify(a, b, geometry)
    assert first.model.tobytes() == second.model.tobytes()
    assert (first.inliers == second.inliers).all()


line = np.linspace(0, 300, 60)
generator = np.random.default_rng(0)
DEGENERATE = {
    "none": (np.empty((0, 2)), np.empty((0, 2))),
    "one": (np.ones((1, 2)), np.ones((1, 2))),
    "three": (generator.uniform(0, 99, (3, 2)), generator.uniform(0, 99, (3, 2))),
    "the same match again and again": (np.tile([[3.0, 4.0]], (50, 1)), np.tile([[5.0, 6.0]], (50, 1))),
    "three again and again": (np.tile([[0, 0], [9, 0], [0, 9]], (9, 1)), np.tile([[1, 1], [9, 2], [2, 9]], (9, 1))),
    "on a line": (np.column_stack([line, 2 * line + 1]), np.column_stack([line + 5, 2 * line])),
    "on a line in one image": (np.column_stack([line, line]), generator.uniform(0, 300, (60, 2))),
    "all to one point": (generator.uniform(0, 300, (60, 2)), np.full((60, 2), 7.0)),
}  # fmt: skip


@pytest.mark.parametrize("geometry", ["auto", "homography", "fundamental"])
@pytest.mark.parametrize("name", DEGENERATE)
def test_matches_that_determine_nothing(name, geometry):
    a, b = DEGENERATE[name]
    found = verify(a, b, geometry)
    assert found.model is None
    assert found.inliers.shape == found.errors.shape == (len(a),)
    assert not found.inliers.any()
    assert np.isinf(found.errors).all()


def test_few_matches_determine_a_homography_and_fewer_prove_nothing():
    a = np.array([[0, 0], [400, 10], [390, 300], [5, 310.0], [200, 150], [100, 250]])
    found = verify(a, warp_points(H, a)[0], "homography")
    assert corner_error(found.model, H, (400, 300)) < 0.01
    assert found.inliers.all()
    found = verify(a[:4], warp_points(H, a[:4])[0], "homography")  # any four matches agree on one
    assert found.model is None
    assert found.significance <= 0


POINTS = np.random.default_rng(0).uniform(0, 300, (50, 2))


@pytest.mark.parametrize(
    ("b", "options"),
    [
        (POINTS, {"geometry": "affine"}), (POINTS, {"threshold": 0}), (POINTS, {"threshold": np.nan}),
        (POINTS, {"iterations": 0}), (POINTS[:3], {}), (np.where(POINTS > 290, np.nan, POINTS), {}),
    ],
)  # fmt: skip
def test_what_cannot_be_verified(b, options):
    with refuses(ArgumentError):
        verify(POINTS, b, **options)


def test_accuracy_against_the_truth():
    a, b = planar(60, 20, noise=0)
    assert (transfer_errors(H, a, b) <= 3).mean() == pytest.approx(0.75, abs=0.02)
    assert corner_error(None, H, (9, 9)) == np.inf
    shifted = np.array([[1, 0, 3], [0, 1, 4], [0, 0, 1.0]])
    assert corner_error(shifted, np.eye(3), (50, 40)) == pytest.approx(5)


WIDTH, HEIGHT = 640, 480


def seen_scene(kind, seed, count=150, wrong=0.4):
    """Matches of a known scene, some of them wrong: a plane, a camera that only turns, or depth (some or all)."""
    random = np.random.default_rng([seed, 77])
    K = np.array([[560, 0, 320], [0, 560, 240], [0, 0, 1]], float)
    R = turn(1, random.uniform(-0.2, 0.2)) @ turn(0, random.uniform(-0.1, 0.1)) @ turn(2, random.uniform(-0.3, 0.3))
    t = random.normal(size=3)
    t *= 0 if kind == "turned" else 0.8 / np.linalg.norm(t)
    a = random.uniform(0, [WIDTH, HEIGHT], (6 * count, 2))
    rays = np.column_stack([a, np.ones(len(a))]) @ np.linalg.inv(K).T
    depths = 6 / (rays @ [random.uniform(-0.4, 0.4), random.uniform(-0.3, 0.3), 1])
    if kind == "flat with things before it":
        depths *= np.where(random.uniform(size=len(a)) < 0.35, random.uniform(0.4, 0.8, len(a)), 1)
    elif kind != "flat":
        depths = random.uniform(3, 12, len(a))
    points = (rays * depths[:, None] @ R.T + t) @ K.T
    b = points[:, :2] / points[:, 2:]
    seen = ((b > 0) & (b < [WIDTH, HEIGHT])).all(1) & (points[:, 2] > 0)
    a, b = a[seen][:count], b[seen][:count] + random.normal(0, 0.5, (min(count, seen.sum()), 2))
    b[: int(wrong * len(b))] = random.uniform(0, [WIDTH, HEIGHT], (int(wrong * len(b)), 2))
    return a, b


@pytest.mark.parametrize(
    ("kind", "geometry"),
    [
        ("flat", "homography"),
        ("turned", "homography"),
        ("depth", "fundamental"),
        ("flat with things before it", "fundamental"),
    ],
)
def test_the_geometry_follows_from_the_scene(kind, geometry):
    for seed in range(8):
        found = verify(*seen_scene(kind, seed, count=250), size_b=(WIDTH, HEIGHT))
        assert found.geometry == geometry, seed
        assert found.significance > 15
        assert found.inliers.sum() >= 145  # of 150 right ones


@pytest.mark.parametrize("geometry", ["auto", "homography", "fundamental"])
def test_matches_by_chance_give_no_model(geometry):
    for seed in range(5):
        random = np.random.default_rng(seed)
        spots = random.uniform(0, [WIDTH, HEIGHT], (2, 6, 2))
        for count in (9, 30, 300):
            scattered = random.uniform(0, [WIDTH, HEIGHT], (2, count, 2))
            crowded = np.stack([s[random.integers(0, 6, count)] + random.normal(0, 12, (count, 2)) for s in spots])
            for a, b in (scattered, crowded):
                found = verify(a, b, geometry, size_b=(WIDTH, HEIGHT))
                assert found.model is None
                assert not found.inliers.any()
                assert found.geometry == (None if geometry == "auto" else geometry)
                assert found.significance is None or found.significance < SIGNIFICANT


def test_one_place_counts_once():
    """Keypoints of several sizes and directions at one place repeat a match, and prove no more than one."""
    a = np.array([[0, 0], [400, 10], [390, 300], [5, 310.0], [200, 150], [100, 250]])
    b = warp_points(H, a)[0]
    many = np.repeat(np.arange(6), 10)
    jitter = np.random.default_rng(0).uniform(0, 0.2, (2, 60, 2))
    once, again = verify(a, b, "homography"), verify(a[many] + jitter[0], b[many] + jitter[1], "homography")
    assert once.significance > SIGNIFICANT
    assert again.significance < once.significance + 0.1


def test_homographies_that_no_two_photos_have_are_refused():
    a = np.random.default_rng(0).uniform(0, [WIDTH, HEIGHT], (60, 2))
    mirrored, squeezed, enlarged = np.diag([-1.0, 1, 1]), np.diag([1.0, 0.02, 1]), np.diag([40.0, 40, 1])
    mirrored[0, 2] = WIDTH
    for matrix in (mirrored, squeezed, enlarged):
        found = verify(a, warp_points(matrix, a)[0], "homography", size_b=(WIDTH, HEIGHT))
        assert found.model is None
        assert not found.inliers.any()


@pytest.mark.parametrize("geometry", ERRORS)
def test_all_pairs_are_told_as_one_by_one(geometry):
    random = np.random.default_rng(0)
    model = random.normal(size=(3, 3)) * [1, 1, 100] + 100 * np.eye(3)
    a, b = random.uniform(0, 500, (40, 2)), random.uniform(0, 500, (30, 2))
    errors = ERRORS[geometry](model, np.repeat(a, 30, axis=0), np.tile(b, (40, 1))).reshape(40, 30)
    limit = float(np.median(errors[np.isfinite(errors)]))
    table = WITHIN[geometry](model, a, b, limit * (1 + 1e-9))
    assert table.any()
    assert not table.all()
    assert np.array_equal(table, errors <= limit)
