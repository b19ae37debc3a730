"""A descriptor as a match kernel: what each position adds, and what each pair of positions adds to the similarity.

Every descriptor here is, before l2 normalisation, a sum over positions of A_p phi^p + b [M18]. For `fc` the matrix A_p
is the learned W_p; for the spatially encoded ones it is M contracted with the position code F_p; for `sum` it is the
identity. So one set of functions shows them all. BatchNorm is folded first: it is linear at inference.
"""

import torch
from torch import Tensor, nn

from matchkernel.backbone import RECEPTIVE_FIELD, STRIDE
from matchkernel.config import VARIANTS
from matchkernel.descriptors import Descriptor
from matchkernel.encoding import SpatialEncoding
from matchkernel.errors import ArgumentError


def position_encodings(model: Descriptor, patches: Tensor, *, weighted: bool = True) -> Tensor:
    """What each position adds to the descriptor: their sum over positions is the descriptor before l2 [M18].

    The paper's per-position encodings w_p M g + m (or W_p v + w / n^2 for `fc`), times the factor c of [M12].

    Args:
        model: any descriptor; its mode does not matter, running statistics are used.
        patches: (B, 1, N, N) floats.
        weighted: False leaves w_p out, as the paper's similarity maps do.

    Returns:
        (B, n * n, D), positions row by row.
    """
    with torch.no_grad():
        folded = model.fold()
        maps = folded.feature_maps(patches)
        parts = [
            _part(folded, k, phi, matrix)
            for k, (phi, matrix) in enumerate(zip(maps, _position_matrices(folded, maps, weighted), strict=True))
        ]
        n = maps[0].shape[-1]
        return torch.stack(parts).sum(0) + _bias(folded, maps[0]) / n**2


def raw_encodings(phi: Tensor, F: Tensor) -> Tensor:
    """The encodings g(v, p) = v (x) f(first) (x) f(second) themselves, before M and without sum [M11].

    This is the expanded form the aggregation avoids: d * P numbers a position.

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
    """
    return encodings_a @ encodings_b.transpose(-2, -1)


def similarity_map(model: Descriptor, patch_a: Tensor, patch_b: Tensor, row: int, column: int) -> Tensor:
    """How similar position (row, column) of patch a is to every position of patch b [M20].

    Args:
        model: any descriptor.
        patch_a: (1, N, N) floats.
        patch_b: (1, N, N) floats.
        row: of the position in the n x n map of patch a, from 0.
        column: likewise.

    Returns:
        (n, n).
    """
    encodings = position_encodings(model, torch.stack([patch_a, patch_b]), weighted=False)
    n = patch_a.shape[-1] // STRIDE
    if not (0 <= row < n and 0 <= column < n):
        raise ArgumentError(f"the map has {n} x {n} positions, got row {row}, column {column}")
    return (encodings[1] @ encodings[0, row * n + column]).reshape(n, n)


def display_map(similarity: Tensor, patch_size: int) -> Tensor:
    """A similarity map for the eye: scaled to [0, 1] and upsampled to the patch, each cell on its own pixel 4 i.

    Args:
        similarity: (n, n).
        patch_size: N = 4 n.

    Returns:
        (N, N) in [0, 1]; zeros for a constant map.
    """
    low, high = similarity.min(), similarity.max()
    scaled = (similarity - low) / (high - low).clamp_min(torch.finfo(similarity.dtype).tiny)
    cell = torch.arange(patch_size, dtype=similarity.dtype) / STRIDE  # cell i is centred on pixel 4 i
    weights = (1 - (cell[:, None] - torch.arange(len(similarity), dtype=similarity.dtype)).abs()).clamp_min(0)
    weights = weights / weights.sum(1, keepdim=True)  # past the last cell: its value
    return weights @ scaled @ weights.T


def receptive_field(row: int, column: int) -> tuple[int, int, int, int]:
    """The pixels cell (row, column) sees: (left, top, right, bottom), both ends included, uncut at the border."""
    half = RECEPTIVE_FIELD // 2
    x, y = STRIDE * column, STRIDE * row
    return x - half, y - half, x + half, y + half


def _position_matrices(folded: Descriptor, maps: list[Tensor], weighted: bool) -> list[Tensor]:
    """A_p of every aggregation, each (n * n, D, d)."""
    config, n = folded.config, maps[0].shape[-1]
    d, cells = config.d, n * n
    if not isinstance(folded.projection, nn.Linear):
        identity = torch.eye(d).to(maps[0])
        if VARIANTS[config.variant].any_size:
            return [identity.expand(cells, d, d) / cells]
        slots = torch.eye(cells).to(identity)  # concat: position p fills the numbers p, p + n^2, ...
        return [torch.einsum("pq,ed->peqd", slots, identity).flatten(1, 2)]
    if not VARIANTS[config.variant].systems:
        return [folded.projection.weight.reshape(-1, d, cells).permute(2, 0, 1)]
    matrices = folded.projection.weight.reshape(folded.projection.out_features, len(maps), d, -1).unbind(1)
    result = []
    for M, encoding in zip(matrices, folded.aggregations, strict=True):
        assert isinstance(encoding, SpatialEncoding)
        F = encoding.position_matrix(n, weighted=weighted, device=M.device).to(M.dtype)
        result.append(torch.einsum("edk,pk->ped", M, F))
    return result


def _part(folded: Descriptor, k: int, phi: Tensor, matrices: Tensor) -> Tensor:
    """A_p phi^p of aggregation k, with the factor the aggregation gives its sum."""
    terms = torch.einsum("ped,bdp->bpe", matrices, phi.flatten(2))
    encoding = folded.aggregations[k]
    if not isinstance(encoding, SpatialEncoding):
        return terms
    n = phi.shape[-1]
    F = encoding.position_matrix(n, device=phi.device).to(phi.dtype)
    scale = encoding.scale((phi.flatten(2) @ F).flatten(1), n)
    return terms * (scale[:, None] if isinstance(scale, Tensor) else scale)


def _bias(folded: Descriptor, like: Tensor) -> Tensor:
    bias = getattr(folded.projection, "bias", None)
    return bias if isinstance(bias, Tensor) else torch.zeros((), dtype=like.dtype, device=like.device)
