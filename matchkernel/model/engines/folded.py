"""The folded network of a descriptor of torch, from which ONNX graphs are written."""

import numpy as np
from torch import Tensor, nn

from matchkernel.errors import ArgumentError
from matchkernel.model.backbone import Backbone
from matchkernel.model.descriptors import Descriptor, FixedNorm
from matchkernel.model.weights import weights_of
from matchkernel.runtime.weights import Convolution, FoldedNetwork, aggregation_matrices, fold


def folded_network(model: Descriptor, size: int) -> FoldedNetwork:
    """What a descriptor, folded or not, computes at inference for patches of this size."""
    layers = [convolutions_of(network) for network in model.backbones]
    if not model.is_folded:
        return fold(weights_of(model), size)
    networks = [
        [Convolution(_array(layer.weight), _array(layer.bias), layer.stride[0]) for layer in network]
        for network in layers
    ]
    projection = scale_and_shift = None
    if isinstance(model.projection, nn.Linear):
        bias = model.projection.bias
        zeros = np.zeros(model.projection.out_features, np.float32)
        projection = _array(model.projection.weight), zeros if bias is None else _array(bias)
    if isinstance(model.output_norm, FixedNorm):
        scale_and_shift = _array(model.output_norm.scale), _array(model.output_norm.shift)
    matrices = aggregation_matrices(model.config, size)
    return FoldedNetwork(model.config, size, networks, matrices, projection, scale_and_shift)


def convolutions_of(network: nn.Module) -> list[nn.Conv2d]:
    """The convolutions of a network, each followed by ReLU, perhaps after BatchNorm; other networks are refused."""
    assert isinstance(network, Backbone)
    skipped = (nn.Identity, nn.BatchNorm2d)
    layers = [layer for layer in network.layers if not isinstance(layer, skipped)]
    found = [layer for layer in layers[::2] if isinstance(layer, nn.Conv2d)]
    if 2 * len(found) != len(layers) or not all(isinstance(layer, nn.ReLU) for layer in layers[1::2]):
        kinds = ", ".join(sorted({type(layer).__name__ for layer in layers}))
        raise ArgumentError(
            f"a network of other layers than convolutions with ReLU cannot be written as ONNX ({kinds})"
        )
    return found


def _array(tensor: Tensor | None) -> np.ndarray:
    assert tensor is not None
    return tensor.detach().cpu().float().numpy()
