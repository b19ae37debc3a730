"""Which workers a choice stands for."""

from pathlib import Path

import pytest
from helpers import refuses

from matchkernel.collection.ray_pool import RayWorkers, begin_elsewhere, choose_workers, offered_memory, visible_mark
from matchkernel.errors import ArgumentError, FileError
from matchkernel.storage.pool import LocalWorkers, Work


def test_few_items_or_a_gpu_need_no_other_process():
    assert choose_workers(items=100) is None
    assert choose_workers(items=101) == LocalWorkers(None)
    assert choose_workers(items=10**6, has_gpu=True) is None
    assert choose_workers("local", 3, items=2) == LocalWorkers(3)


def test_a_ray_cluster_is_given_by_its_address():
    assert choose_workers("ray", items=2).address is None
    assert choose_workers("ray://head:10001", 8, items=2).label == "ray://head:10001, 8 workers"
    assert choose_workers("10.0.0.1:6379", items=2).address == "10.0.0.1:6379"
    assert choose_workers("[::1]:6379", items=2).address == "[::1]:6379"
    assert RayWorkers().label == "ray"


@pytest.mark.parametrize(
    ("on", "count"),
    [("cluster", 1), ("ray:head", 1), ("ray://head", 1), ("ray://a b:1", 1), ("host:port", 1), ("local", 0)],
)
def test_other_choices_are_refused(on, count):
    with refuses(ArgumentError):
        choose_workers(on, count, items=2)


def test_a_worker_asks_ray_for_no_more_than_the_largest_machine_has():
    nodes = [{"Alive": alive, "Resources": there} for alive, there in
             ((True, {"memory": 3e9, "CPU": 2.0}), (True, {"CPU": 1.0}), (False, {"memory": 9e9}))]  # fmt: skip
    assert offered_memory(nodes, 4_440_000_000) == 3_000_000_000
    assert offered_memory(nodes, 1_100_000_000) == 1_100_000_000
    assert offered_memory([], 5) == 0


def test_a_machine_must_see_the_folder_and_takes_relative_paths_as_the_user_does(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    monkeypatch.setattr("matchkernel.storage.pool.use_threads", lambda threads: None)
    (tmp_path / "run").mkdir()
    work = Work(lambda gpu: ({"gpu": gpu}, len), memory=1)
    with visible_mark(tmp_path / "run") as mark:
        facts, run = begin_elsewhere(work, str(tmp_path), mark.relative_to(tmp_path), threads=1, gpu=False)
        assert (facts["gpu"], run([1, 2])) == (False, 2)
        assert Path.cwd() == tmp_path
    assert not any((tmp_path / "run").iterdir())
    with refuses(FileError):
        begin_elsewhere(work, "/nowhere", mark, threads=1, gpu=False)
