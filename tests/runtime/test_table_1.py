import pytest
from helpers import count_parameters

from matchkernel.model.descriptors import build
from matchkernel.runtime.table_1 import TABLE_1, table_1


@pytest.mark.parametrize("row", TABLE_1, ids=lambda row: f"{row.variant}-s{row.s}-{row.patch_size}")
def test_every_count_of_table_1(row):
    model = build(row.variant, patch_size=row.patch_size, **({} if row.s is None else {"s": row.s}))
    assert count_parameters(model) == row.total
    assert sum(parameter.numel() for parameter in model.projection.parameters()) == row.head


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
