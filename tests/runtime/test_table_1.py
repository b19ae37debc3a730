from matchkernel.model.descriptors import build
from matchkernel.runtime.overview import TABLE_1, table_1


def test_the_convolutions_one_by_one():
    counts = tuple(parameter.numel() for parameter in build("sum").parameters())
    assert counts == (288, 9_216, 18_432, 36_864, 73_728, 147_456)
    assert sum(counts) == 285_984


def test_the_table_is_counted_and_agrees():
    rows = table_1()
    assert len(rows) == len(TABLE_1)
    assert all(row.agrees for row in rows)
    assert [row.variant for row in rows if not row.independent_of_size] == ["fc", "fc"]
    assert all(row.convolutions + row.head == row.total for row in rows)
    assert all(row.convolutions == (2 if row.variant == "dual" else 1) * 285_984 for row in rows)
