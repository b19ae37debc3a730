"""A descriptor as a match kernel: what each position contributes, and what each pair adds to the similarity.

Every descriptor here is, before l2 normalisation, a sum over positions of A_p phi^p + b [M18]. For `fc` the matrix A_p
is the learned W_p; for the spatially encoded ones it is M contracted with the position code F_p; for `sum` it is the
identity. So the same functions work for all of them. BatchNorm is folded first, as it is linear at inference.
"""

import torch
from torch import Tensor, nn

from matchkernel.errors import ArgumentError
from matchkernel.model.descriptors import Descriptor, FixedNorm
from matchkernel.model.encoding import SpatialEncoding
from matchkernel.runtime.config import STRIDE, VARIANTS, DescriptorConfig


def position_encodings(model: Descriptor, patches: Tensor, *, weighted: bool = True) -> Tensor:
    """What each position contributes: the sum over positions is the descriptor before l2 normalisation [M18].

    The paper's per-position encodings w_p M g + m (or W_p v + w / n^2 for `fc`), times the factor c of [M12]. For
    visualisation, not for training: no gradient is kept.

    Args:
        model: any descriptor; its mode does not matter, running statistics are used.
        patches: (B, 1, N, N) floats.
        weighted: False leaves w_p out, as the paper's similarity maps do.

    Returns:
        (B, n * n, D), positions row by row.

    Example:
        >>> import matchkernel, torch
        >>> from matchkernel.model.kernel_view import position_encodings
        >>> model, patches = matchkernel.load("tiny"), torch.rand(2, 1, 32, 32)
        >>> encodings = position_encodings(model, patches)
        >>> encodings.shape
        torch.Size([2, 64, 128])
        >>> descriptors = torch.nn.functional.normalize(encodings.sum(1))
        >>> bool(torch.allclose(descriptors, model(patches), atol=1e-5))
        True
    """
    with torch.no_grad():
        folded = model.fold()
        maps = folded.feature_maps(patches)
        parts = [_terms(folded, k, phi, weighted) for k, phi in enumerate(maps)]
        n = maps[0].shape[-1]
        return _normed(folded, torch.stack(parts).sum(0) + _bias(folded, maps[0]) / n**2)


def encodings_by_system(model: Descriptor, patches: Tensor, *, weighted: bool = True) -> dict[str, Tensor]:
    """What each position contributes in each coordinate system, with an equal share of m; their sum is the whole.

    Args:
        model: a descriptor that encodes positions.
        patches: (B, 1, N, N) floats.
        weighted: as for position_encodings.

    Returns:
        (B, n * n, D) for "cartesian", "polar" or both.

    Example:
        >>> import matchkernel, torch
        >>> list(encodings_by_system(matchkernel.load("dual"), torch.rand(1, 1, 32, 32)))
        ['cartesian', 'polar']
    """
    systems = VARIANTS[model.config.variant].systems
    if not systems:
        raise ArgumentError(f"{model.config.variant} encodes no positions")
    with torch.no_grad():
        folded = model.fold()
        maps = folded.feature_maps(patches)
        share = _bias(folded, maps[0]) / len(maps) / maps[0].shape[-1] ** 2
        return {name: _terms(folded, k, maps[k], weighted) + share for k, name in enumerate(systems)}


def raw_encodings(phi: Tensor, F: Tensor) -> Tensor:
    """The encodings g(v, p) = v (x) f(first) (x) f(second) themselves, before M and before summation [M11].

    This is the expanded form that the aggregation avoids: d * P values per position.

    Args:
        phi: (B, d, n, n) feature map.
        F: (n * n, P) position matrix; unweighted for the paper's g.

    Returns:
        (B, n * n, d * P).
    """
    return (phi.flatten(2).mT.contiguous()[..., None] * F.to(phi)[:, None, :]).flatten(2)


def pairwise_terms(encodings_a: Tensor, encodings_b: Tensor) -> Tensor:
    """Similarity of every position of patch a with every position of patch b [M4, M19].

    Their sum is the inner product of the two descriptors before l2 normalisation.

    Args:
        encodings_a: (..., n * n, D) of patch a.
        encodings_b: (..., n * n, D) of patch b.

    Returns:
        (..., n * n, n * n): row p of a, column q of b.

    Example:
        >>> import torch
        >>> from matchkernel.model.kernel_view import pairwise_terms
        >>> pairwise_terms(torch.rand(64, 128), torch.rand(64, 128)).shape
        torch.Size([64, 64])
    """
    return encodings_a @ encodings_b.transpose(-2, -1)


def similarity_map(model: Descriptor, patch_a: Tensor, patch_b: Tensor, row: int, column: int) -> Tensor:
    """How similar position (row, column) of patch a is to every position of patch b [M20].

    Args:
        model: any descriptor.
        patch_a: (1, N, N) floats.
        patch_b: (1, N, N) floats.
        row: of the position in the n x n map of patch a, from 0.
        column: of the position, from 0.

    Returns:
        (n, n).

    Example:
        >>> import matchkernel, torch
        >>> from matchkernel.model.kernel_view import similarity_map
        >>> similarity_map(matchkernel.load("tiny"), torch.rand(1, 32, 32), torch.rand(1, 32, 32), 3, 4).shape
        torch.Size([8, 8])
    """
    if patch_a.shape != patch_b.shape or patch_a.ndim != 3:
        shapes = f"{tuple(patch_a.shape)} and {tuple(patch_b.shape)}"
        raise ArgumentError(f"expected two patches of the same size, each (1, N, N), got {shapes}")
    encodings = position_encodings(model, torch.stack([patch_a, patch_b]), weighted=False)
    n = patch_a.shape[-1] // STRIDE
    if not (0 <= row < n and 0 <= column < n):
        raise ArgumentError(f"the map has {n} x {n} positions, got row {row}, column {column}")
    return (encodings[1] @ encodings[0, row * n + column]).reshape(n, n)


def display_map(similarity: Tensor) -> Tensor:
    """A similarity map for display: scaled to [0, 1] and upsampled to the patch, with cell i at pixel 4 i.

    Args:
        similarity: (n, n).

    Returns:
        (4n, 4n) in [0, 1]; zeros for a constant map.

    Example:
        >>> import torch
        >>> display_map(torch.rand(8, 8)).shape
        torch.Size([32, 32])
    """
    n = len(similarity)
    low, high = similarity.min(), similarity.max()
    scaled = (similarity - low) / (high - low).clamp_min(torch.finfo(similarity.dtype).tiny)
    cells = torch.arange(n, dtype=similarity.dtype, device=similarity.device)
    place = torch.arange(STRIDE * n, dtype=similarity.dtype, device=similarity.device) / STRIDE
    # Linear between cells; pixels past the last cell, centred on pixel 4 (n - 1), take its value.
    weights = (1 - (place.clamp(max=n - 1)[:, None] - cells).abs()).clamp_min(0)
    return weights @ scaled @ weights.T


def receptive_field(config: DescriptorConfig, row: int, column: int) -> tuple[int, int, int, int]:
    """Receptive field of cell (row, column): (left, top, right, bottom), inclusive, not clipped to the patch.

    Example:
        >>> receptive_field(DescriptorConfig(), 2, 5)
        (9, -3, 31, 19)
    """
    half = config.receptive_side // 2
    x, y = STRIDE * column, STRIDE * row
    return x - half, y - half, x + half, y + half


def _terms(folded: Descriptor, k: int, phi: Tensor, weighted: bool) -> Tensor:
    """A_p phi^p of aggregation k, (B, n * n, D)."""
    encoding, vectors = folded.aggregations[k], phi.flatten(2)  # (B, d, n * n)
    d, cells, n = phi.shape[1], phi.shape[2] * phi.shape[3], phi.shape[3]
    if isinstance(encoding, SpatialEncoding):
        assert isinstance(folded.projection, nn.Linear)
        M = folded.projection.weight.reshape(folded.projection.out_features, len(folded.aggregations), d, -1)[:, k]
        F = encoding.position_matrix(n, weighted=weighted, device=M.device).to(M.dtype) * (64 / n**2)
        terms = torch.einsum("ped,bdp->bpe", torch.einsum("edk,pk->ped", M, F), vectors)
        return terms * encoding.unit_factor(encoding.sum_of(phi))[:, None] if encoding.unit_norm else terms
    if isinstance(folded.projection, nn.Linear):  # fc: the slices W_p
        W = folded.projection.weight.reshape(-1, d, cells)
        return torch.einsum("edp,bdp->bpe", W, vectors)
    if VARIANTS[folded.config.variant].any_size:  # sum, computed as a mean
        return vectors.mT / cells
    return torch.diag_embed(vectors).permute(0, 2, 1, 3).flatten(2)  # concat: p fills the elements p, p + n^2, ...


def _normed(folded: Descriptor, terms: Tensor) -> Tensor:
    """Terms under the BatchNorm that `sum` and `concat` may have; every position gets an equal share of its shift."""
    norm = folded.output_norm
    return terms * norm.scale + norm.shift / terms.shape[1] if isinstance(norm, FixedNorm) else terms


def _bias(folded: Descriptor, like: Tensor) -> Tensor:
    bias = getattr(folded.projection, "bias", None)
    return bias if isinstance(bias, Tensor) else torch.zeros((), dtype=like.dtype, device=like.device)
