"""ONNX files written by hand, read by the package `onnx`."""

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from matchkernel.runtime.graph import IR_VERSION, OPSET, TYPES, Graph, onnx_file

names = st.text(max_size=300)
whole = st.integers(-(2**63), 2**63 - 1)
keys = names.filter(lambda name: name not in ("self", "operator", "inputs", "output"))
nodes = st.tuples(names, st.lists(names, max_size=4), names, st.dictionaries(keys, whole | st.lists(whole, max_size=5)))
tensors = st.sampled_from(list(TYPES)).flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=1, min_side=0, max_side=5))
)


@given(st.lists(nodes, max_size=4), st.dictionaries(names, tensors, max_size=4), st.dictionaries(names, names))
def test_whatever_is_written_comes_back(nodes, constants, metadata):
    graph = Graph()
    for operator, inputs, output, attributes in nodes:
        assert graph.add(operator, inputs, output, **attributes) == output
    for name, values in constants.items():
        assert graph.constant(name, values, values.dtype) == name
    file = onnx.load_from_string(onnx_file(graph, {"in": ("batch", 1, 32, 32)}, {"out": ("batch", 7)}, metadata))
    assert (file.ir_version, file.producer_name) == (IR_VERSION, "matchkernel")
    assert [(entry.domain, entry.version) for entry in file.opset_import] == [("", OPSET)]
    assert {entry.key: entry.value for entry in file.metadata_props} == metadata
    read = [
        (node.op_type, list(node.input), node.output[0], {entry.name: entry for entry in node.attribute})
        for node in file.graph.node
    ]
    assert [entry[:3] for entry in read] == [entry[:3] for entry in nodes]
    for (*_, attributes), (*_, found) in zip(nodes, read, strict=True):
        assert {name: onnx.helper.get_attribute_value(entry) for name, entry in found.items()} == attributes
    assert [entry.name for entry in file.graph.initializer] == list(constants)
    for entry in file.graph.initializer:
        found, expected = onnx.numpy_helper.to_array(entry), constants[entry.name]
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()  # NaN too


def test_arrays_of_any_order_are_written_row_by_row():
    graph = Graph()
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    for name, given_ in {"turned": values.T, "reversed": values[::-1], "big": values.astype(">f4")}.items():
        graph.constant(name, given_)
    found = onnx.load_from_string(
        onnx_file(graph, {"in": ("batch", 1, 8, 8)}, {"out": ("batch", 1)}, {})
    ).graph.initializer
    for entry, expected in zip(found, (values.T, values[::-1], values), strict=True):
        assert np.array_equal(onnx.numpy_helper.to_array(entry), expected)
