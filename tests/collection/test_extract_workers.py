"""Features by several processes: the bytes of one, whatever happens to the processes, the disk or the photos."""

import os
import signal
from pathlib import Path

import pytest
import torch
from helpers import refuses
from made_collection import DETECTOR, find_images, write_photos
from made_images import save, texture
from made_poison import PoisonedDescriber

from matchkernel.collection.extract import extract_images
from matchkernel.errors import WriteError
from matchkernel.photos.extract import open_describer
from matchkernel.photos.feature_files import image_names
from matchkernel.storage.pool import LocalWorkers


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rows", "features.h5"])
def test_the_same_bytes_though_a_worker_is_killed(kind, tmp_path):
    """The model runs in torch, whose sums depend on the number of threads: the work does not."""
    images = write_photos(tmp_path / "photos", 8)
    describer, killed = open_describer("sum", untrained=True), []
    torch.set_num_threads(2)
    try:
        extract_images(images, tmp_path / "here" / kind, describer, DETECTOR)
    finally:
        torch.set_num_threads(1)

    def kill_one(done, total):
        if done == 2 and not killed:
            children = [
                child for path in Path("/proc/self/task").glob("*/children") for child in path.read_text().split()
            ]
            killed.append(max(children, key=int))
            os.kill(int(killed[0]), signal.SIGKILL)

    report = extract_images(
        images, tmp_path / "workers" / kind, describer, DETECTOR, workers=LocalWorkers(2), progress=kill_one
    )
    assert killed
    assert report.done == list(images)
    here, there = (
        {
            path.relative_to(tmp_path / place): path.read_bytes()
            for path in (tmp_path / place).rglob("*")
            if path.is_file()
        }
        for place in ("here", "workers")
    )
    assert here == there
    assert len(here) == (8 if kind == "rows" else 1)


@pytest.mark.slow
def test_a_photo_that_kills_its_worker_is_named_once_and_costs_no_other(tmp_path):
    images = write_photos(tmp_path / "photos", 4)
    poison = texture(5, 80, 90)
    poison[0, :4] = 13, 66, 6, 99
    save(poison, tmp_path / "photos" / "00poison.png")
    (tmp_path / "photos" / "bad.png").write_text("no photo")
    said, counts = [], []
    report = extract_images(
        find_images([tmp_path / "photos"]), tmp_path / "features.h5", PoisonedDescriber("sift"), DETECTOR,
        workers=LocalWorkers(1), say=said.append, progress=lambda *count: counts.append(count),
    )  # fmt: skip
    assert report.done == list(images) == image_names(tmp_path / "features.h5")
    assert list(report.skipped) == ["00poison.png", "bad.png"]
    assert "SIGSEGV" in report.skipped["00poison.png"]
    assert sorted(len(line) > 0 for line in said) == [True, True]
    assert counts[-1] == (4, 4)  # without those that cannot be used


def test_a_full_disk_ends_the_run_and_what_is_done_stays(small_disk, tmp_path):
    images, out = write_photos(tmp_path / "photos", 5), small_disk("120k") / "f.h5"
    with refuses(WriteError):
        extract_images(images, out, open_describer("sift"), DETECTOR, workers=LocalWorkers(1))
    left = list((out.parent / "f.h5.parts").glob("[!.]*.npz"))
    assert left
    small_disk("9m")
    report = extract_images(images, out, open_describer("sift"), DETECTOR)
    assert (len(report.kept), len(report.done)) == (len(left), 5 - len(left))
