"""The numbers of docs/collections.md, and what its experiments count."""

from pathlib import Path

import numpy as np
import pytest
from collection_tables import RESULTS, models, recall, storage, vectors
from one_folder import TRUTH, Mixed, mix, shared_points
from recall import recalls

from matchkernel.errors import FileError

PAGE = Path(__file__).parents[2] / "docs" / "collections.md"


@pytest.mark.parametrize(
    ("name", "table"), [("vectors", vectors), ("recall", recall), ("collection_models", models), ("storage", storage)]
)
def test_tables_are_those_of_the_results(name, table):
    if not (RESULTS / f"{name}.json").exists():
        pytest.skip(f"{name}.json has not been measured")
    page = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line for line in table() if line not in page] == []


def test_photos_of_two_scenes_in_one_folder(rendered, tmp_path):
    scenes = [tmp_path / "one", tmp_path / "two"]
    for scene in scenes:
        scene.symlink_to(rendered)
    mixed = mix(scenes, tmp_path / "mixed")
    assert len(mixed.names) == 12
    assert sorted(mixed.scene.values()) == ["one"] * 6 + ["two"] * 6
    assert sorted(path.name for path in mixed.images.iterdir()) == mixed.names == sorted(mixed.names)
    assert len(mixed.shared) == 2 * len(shared_points(rendered / "sparse"))
    assert all(mixed.scene[a] == mixed.scene[b] and a < b for a, b in mixed.shared)
    again = mix(scenes, tmp_path / "mixed")
    assert (again.scene, again.shared) == (mixed.scene, mixed.shared)
    with pytest.raises(FileError, match="made from other scenes"):
        mix(scenes[:1], tmp_path / "mixed")
    assert (tmp_path / "mixed" / TRUTH).is_file()


def test_recall_by_hand():
    """Photo 0 has partners 1 to 12, of which 1 shares most; the vectors find 1 to 10 but put a stranger first."""
    names = [f"{number:02}" for number in range(14)]
    shared = {("00", name): 100 - int(name) for name in names[1:13]} | {("00", "13"): 29}
    mixed = Mixed(Path(), dict.fromkeys(names, "scene") | {"13": "other"}, shared)
    similar = np.zeros((14, 14))
    similar[0] = [9, *range(50, 40, -1), -1, -2, 99]
    found = recalls(mixed, names, similar)["scene"]
    assert found["recall at 10"][0] == 0.9
    assert found["recall at 20"][0] == 1
    assert found["best 5 at 20"][0] == 1
    assert len(found["recall at 10"]) == 13  # every partner has photo 0 as its only one; 13 has none
