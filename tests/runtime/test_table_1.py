import pytest
from helpers import count_parameters

from matchkernel.model.descriptors import build
from matchkernel.runtime.overview import TABLE_1, table_1


@pytest.mark.parametrize(("variant", "s", "patch_size", "head", "total"), TABLE_1)
def test_every_count_of_table_1(variant, s, patch_size, head, total):
    model = build(variant, s=s, patch_size=patch_size)
    assert count_parameters(model) == total
    assert count_parameters(model.projection) == head


def test_the_convolutions_one_by_one():
    counts = tuple(parameter.numel() for parameter in build("sum").parameters())
    assert counts == (288, 9_216, 18_432, 36_864, 73_728, 147_456)
    assert sum(counts) == 285_984


@pytest.mark.parametrize("variant", ["sum", "concat"])
def test_sum_and_concat_learn_the_convolutions_only(variant):
    assert count_parameters(build(variant)) == 285_984


def test_the_table_is_counted_and_agrees():
    rows = table_1()
    assert len(rows) == len(TABLE_1)
    assert all(row.agrees for row in rows)
    assert [row.variant for row in rows if not row.independent_of_size] == ["fc", "fc"]
    assert all(row.convolutions + row.head == row.total for row in rows)
    assert all(row.convolutions == (2 if row.variant == "dual" else 1) * 285_984 for row in rows)
