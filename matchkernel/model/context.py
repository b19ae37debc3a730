"""The context matcher in torch, for training: candidates, their agreement, and the network that judges them.

`matchkernel.runtime.context` has the definitions and the weight file, and runs the same network without torch.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as nnf

from matchkernel.errors import ArgumentError, MatchKernelError, WeightsError
from matchkernel.runtime.context import FEATURES, FORMAT, KEY, KIND, SMALLEST, read_context
from matchkernel.storage.settings import check_ranges, from_dict, setting
from matchkernel.storage.tensors import fill, first_not_finite, write_tensors

# At the start of training, of each kernel: the width of the error e, and of the distance in half longer sides.
WIDTHS = [
    (0.15, math.inf), (0.35, math.inf), (0.7, math.inf), (0.2, 0.1), (0.4, 0.1), (0.8, 0.1),
    (0.2, 0.3), (0.4, 0.3), (0.8, 0.3), (math.inf, 0.05), (math.inf, 0.15), (0.25, 0.6),
]  # fmt: skip
K = len(WIDTHS)
NO_WIDTH = -6.0  # log of the factor of a kernel that (almost) ignores a quantity
OCTAVES = 4.0  # maximum change of scale of a candidate
ALIGNED = 8  # columns of matrices: a GPU multiplies others several times more slowly
EXCLUDED = 1e6  # a quantity so large that every kernel is 0
OPPOSITE = 2.0  # distance of unit rows where there is no neighbour


@dataclass(frozen=True)
class ContextConfig:
    """A context network, and the descriptor whose rows it judges.

    Attributes:
        descriptor: name of the descriptor.
        descriptor_sha256: digest of its configuration and tensors, as features record it (setting `weights`); the name
            of SIFT or RootSIFT, which have no weights.
        d: numbers per candidate.
        layers: sums over all candidates, one after the other.
        dv: numbers per candidate and kernel that are averaged in each layer.
        candidates: the maximum number per pair of photos.
        top: neighbours of each keypoint that become candidates.
        threshold: the minimum probability of a match.
    """

    descriptor: str = ""
    descriptor_sha256: str = ""
    d: int = setting(64, low=1, high=1024)
    layers: int = setting(5, low=1, high=100)
    dv: int = setting(6, low=1, high=1024)
    candidates: int = setting(1024, low=2, high=2**16)
    top: int = setting(2, low=1, high=16)
    threshold: float = setting(0.5, above=0, below=1)

    def __post_init__(self) -> None:
        check_ranges(self, "context")


@dataclass(frozen=True)
class Keypoints:
    """Keypoints of B photos as the network sees them; photos with fewer than K are padded.

    Attributes:
        z: (B, K) complex: x + iy from the centre of the photo, in half longer sides.
        theta: (B, K) orientation in radians.
        scale: (B, K) log2 of sigma, in pixels of a photo whose longer side is 1000.
        rows: (B, K, D) descriptors, unit rows.
        is_real: (B, K) False where padded, or where a row is zero.
    """

    z: Tensor
    theta: Tensor
    scale: Tensor
    rows: Tensor
    is_real: Tensor

    def __len__(self) -> int:
        return self.z.shape[1]

    @classmethod
    def of(cls, centers: Tensor, angles: Tensor, sigmas: Tensor, rows: Tensor, size: tuple[int, int]) -> "Keypoints":
        """Of one photo: (K, 2) centres in pixels, (K,) angles and sigmas, (K, D) rows, width and height; B = 1."""
        side = max(size)
        x, y = ((centers - (centers.new_tensor(size) - 1) / 2) / (side / 2)).float().unbind(-1)
        scale = torch.log2(sigmas * (1000 / side)).float()
        return cls(torch.complex(x, y)[None], angles.float()[None], scale[None], rows[None], rows.any(-1)[None])

    @classmethod
    def joined(cls, parts: "Sequence[Keypoints]") -> "Keypoints":
        """Several photos as one batch."""
        wide = [part.padded(max(map(len, parts))) for part in parts]
        return cls(*(torch.cat([getattr(part, name) for part in wide]) for name in cls.__dataclass_fields__))

    def padded(self, count: int) -> "Keypoints":
        """With keypoints that are not real, up to this number of each photo."""
        missing, tensors = max(0, count - len(self)), (getattr(self, name) for name in self.__dataclass_fields__)
        return Keypoints(*(torch.cat([t, t.new_zeros(len(t), missing, *t.shape[2:])], 1) for t in tensors))

    def take(self, index: Tensor) -> "Keypoints":
        """The keypoints (k,) of every photo."""
        return Keypoints(*(getattr(self, name)[:, index] for name in self.__dataclass_fields__))


class ContextMatches(NamedTuple):
    """M matches of one pair of photos, in the order of A."""

    indices: Tensor  # (M, 2) rows in A and B
    p: Tensor  # (M,) probability
    distances: Tensor  # (M,) of their rows
    ratios: Tensor  # (M,) of distances, to the best other neighbour in A or B, whichever is nearer; at most 1


class Candidates(NamedTuple):
    """C candidates of each of B pairs of photos, the best by ratio first.

    Attributes:
        i: (B, C) keypoint of A.
        j: (B, C) keypoint of B.
        f: (B, C, 7) distance of the rows; the larger and the smaller of the log-ratios to the best other neighbour, in
            both photos; whether both are below 0; the larger and the smaller scale; their difference.
        zi: (B, C) complex place in A.
        zj: (B, C) complex place in B.
        a: (B, C) complex similarity from A to B.
        is_real: (B, C) False where there are fewer.
    """

    i: Tensor
    j: Tensor
    f: Tensor
    zi: Tensor
    zj: Tensor
    a: Tensor
    is_real: Tensor


def candidates(a: Keypoints, b: Keypoints, count: int, top: int = 2) -> Candidates:
    """The best `count` pairs of keypoints of which one is among the `top` nearest neighbours of the other.

    Best means the smallest q = r + r' / 2, with r the larger and r' the smaller log-ratio of the distance to that of
    the best other neighbour, in A and in B.
    """
    k = max(top, 2)
    a, b = a.padded(k), b.padded(k)
    squares = 2 - 2 * a.rows.float() @ b.rows.float().transpose(-1, -2)
    is_pair = a.is_real[:, :, None] & b.is_real[:, None]
    d = squares.clamp(min=1e-4).sqrt().masked_fill(~is_pair, math.inf)
    (va, ja), (vb, ib) = d.topk(k, 2, largest=False), d.transpose(1, 2).topk(k, 2, largest=False)
    own_a, own_b = (torch.arange(len(part), device=d.device)[:, None].expand(len(d), -1, top) for part in (a, b))
    # Both lists: neighbours of A's keypoints, then those of B's which the first list does not have.
    listed = _rows_at(ja.masked_fill(va.isinf(), -1)[..., :top], ib[..., :top].flatten(1))
    is_new = (listed != own_b.flatten(1)[..., None]).all(-1)
    use = torch.cat([va[..., :top].isfinite().flatten(1), vb[..., :top].isfinite().flatten(1) & is_new], 1)
    i = torch.cat([own_a, ib[..., :top]], 1).flatten(1)
    j = torch.cat([ja[..., :top], own_b], 1).flatten(1)
    dij = d.flatten(1).gather(1, i * len(b) + j)
    ra, rb = (
        (dij / _other(values, index, own, partner)).log()
        for values, index, own, partner in ((va, ja, i, j), (vb, ib, j, i))
    )
    high, low = torch.maximum(ra, rb), torch.minimum(ra, rb)
    q, order = (high + 0.5 * low).masked_fill(~use, math.inf).sort(stable=True)
    order, is_real = order[:, :count], q[:, :count].isfinite()
    mutual = ((ra < 0) & (rb < 0)).float()
    picked = [part.gather(1, order) for part in (i, j, dij, high, low, mutual)]
    return _tokens(a, b, picked[0], picked[1], torch.stack(picked[2:], -1), is_real)


def _tokens(a: Keypoints, b: Keypoints, i: Tensor, j: Tensor, f: Tensor, is_real: Tensor) -> Candidates:
    """Candidates from their keypoints and the four features of their rows."""
    la, lb = a.scale.gather(1, i), b.scale.gather(1, j)
    turn = b.theta.gather(1, j) - a.theta.gather(1, i)
    similarity = torch.polar(torch.exp2((lb - la).clamp(-OCTAVES, OCTAVES)), turn)
    sizes = [(torch.maximum(la, lb) - 3) / 2, (torch.minimum(la, lb) - 3) / 2, (la - lb).abs()]
    f = torch.cat([f, torch.stack(sizes, -1)], -1).masked_fill(~is_real[..., None], 0.0)
    similarity = torch.where(is_real, similarity, torch.ones_like(similarity))
    return Candidates(i, j, f, a.z.gather(1, i), b.z.gather(1, j), similarity, is_real)


def agreement(zi: Tensor, zj: Tensor, a: Tensor, is_real: Tensor, logs: Sequence[Tensor]) -> Tensor:
    """(B, K, C, C) kernels of agreement of every two candidates c, c'; 0 for c = c' and where padded.

    With v = z_i' - z_i, w = z_j' - z_j, and the relative error of carrying v by the similarity of c,

        e_c = |w - a_c v| / (|w| + |a_c v|),    e^2 = (e_c^2 + e_c'^2) / 2,

    kernel k is the exponential of

        -(alpha_k e^2 + beta_k |v| |w| + kappa_k (1 - cos(theta_c - theta_c')) + gamma_k (log2 s_c / s_c')^2),

    Gaussians of the error, of the distance (the geometric mean over both photos) and of the scale, and a Von Mises
    kernel of the rotation.

    Args:
        zi: (B, C) complex, and zj, a: see Candidates.
        zj: places in B.
        a: similarities.
        is_real: (B, C).
        logs: (K,) logarithms of alpha, beta, kappa and gamma.
    """
    maps = quantities(zi, zj, a, is_real)
    factors = torch.stack(list(logs), 1).exp()  # (K, 4)
    return torch.exp(-(factors @ maps.flatten(2)).unflatten(2, maps.shape[2:]))


@torch.no_grad()
def quantities(zi: Tensor, zj: Tensor, a: Tensor, is_real: Tensor) -> Tensor:
    """(B, 4, C, C) what the kernels of `agreement` are functions of; EXCLUDED for c = c' and where padded.

    In place and in real numbers, because reading and writing these maps takes most of the time of training.
    """
    vx, vy, wx, wy = (x[:, None, :] - x[:, :, None] for x in (zi.real, zi.imag, zj.real, zj.imag))  # [c, c']
    v, w = torch.hypot(vx, vy), torch.hypot(wx, wy)
    s = a.abs()
    cos, sin, octaves = a.real / s.clamp(min=1e-9), a.imag / s.clamp(min=1e-9), s.log2()
    maps = v.new_empty(len(v), 4, *v.shape[1:])
    torch.mul(v, w, out=maps[:, 1])
    torch.mul(cos[:, :, None], cos[:, None], out=maps[:, 2]).addcmul_(sin[:, :, None], sin[:, None]).neg_().add_(1)
    torch.sub(octaves[:, :, None], octaves[:, None], out=maps[:, 3]).square_()
    e2 = maps[:, 0].zero_()
    for side in (slice(None), slice(None), None), (slice(None), None, slice(None)):  # the similarities of c, and of c'
        re, im, length = a.real[side], a.imag[side], s[side]
        off = torch.addcmul(wx, re, vx, value=-1).addcmul_(im, vy).square_()
        off += torch.addcmul(wy, re, vy, value=-1).addcmul_(im, vx, value=-1).square_()
        e2 += off.div_(torch.addcmul(w, length, v).add_(SMALLEST).square_())
    e2 /= 2
    is_same = torch.eye(zi.shape[1], dtype=torch.bool, device=zi.device)
    return maps.masked_fill_((is_same | ~(is_real[:, :, None] & is_real[:, None]))[:, None], EXCLUDED)


class ContextLayer(nn.Module):
    """One sum over all other candidates: with g_k = sigmoid(gate(x))_k and v_k = value(x)_k of each candidate,

    n_k(c) = sum_c' phi_k(c, c') g_k(c'),    m_k(c) = sum_c' phi_k(c, c') g_k(c') v_k(c') / (n_k(c) + 0.1),
    x <- x + down(GELU(norm(up([x, log(1 + n), m])))).
    """

    def __init__(self, d: int, dv: int) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(d, K), nn.Linear(d, K * dv)
        self.up, self.norm, self.down = nn.Linear(d + K * (dv + 1), 2 * d), nn.LayerNorm(2 * d), nn.Linear(2 * d, d)

    def forward(self, x: Tensor, phi: Tensor) -> Tensor:
        """(B, C, d) -> (B, C, d), with phi (B, K, C, C)."""
        gate = torch.sigmoid(self.gate(x)).transpose(1, 2)[..., None]  # (B, K, C, 1)
        value = self.value(x).unflatten(-1, (K, -1)).transpose(1, 2)  # (B, K, C, dv)
        given = torch.cat([gate, gate * value], -1)
        aligned = nnf.pad(given, (0, -given.shape[-1] % ALIGNED)).to(phi.dtype)
        sums = (phi @ aligned).float()
        n, m = sums[..., :1], sums[..., 1 : given.shape[-1]]
        context = torch.cat([torch.log1p(n), m / (n + 0.1)], -1).transpose(1, 2).flatten(2)
        change: Tensor = self.down(nnf.gelu(self.norm(self.up(torch.cat([x, context], -1)))))
        return x + change


class ContextNetwork(nn.Module):
    """Judge the candidates of a pair of photos: the logit that each is right.

    Example:
        >>> from matchkernel.model.context import ContextConfig, ContextNetwork
        >>> sum(p.numel() for p in ContextNetwork(ContextConfig()).parameters())
        170005
    """

    def __init__(self, config: ContextConfig | None = None, card: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.config = config = config or ContextConfig()
        self.card = dict(card or {})  # trained_on, scenes, licence, seconds, validation
        errors, distances = zip(*WIDTHS, strict=True)
        self.log_e, self.log_r = (
            nn.Parameter(torch.tensor([_log_factor(w) for w in part])) for part in (errors, distances)
        )
        self.log_t, self.log_s = nn.Parameter(torch.zeros(K)), nn.Parameter(torch.full((K,), -1.0))
        self.first = nn.Sequential(nn.Linear(FEATURES, config.d), nn.GELU(), nn.Linear(config.d, config.d))
        self.layers = nn.ModuleList(ContextLayer(config.d, config.dv) for _ in range(config.layers))
        self.out = nn.Linear(config.d, 1)

    def forward(self, f: Tensor, zi: Tensor, zj: Tensor, a: Tensor, is_real: Tensor) -> list[Tensor]:
        """(B, C) logits after each layer, for the fields of Candidates; the last are the result."""
        phi = agreement(zi, zj, a, is_real, (self.log_e, self.log_r, self.log_t, self.log_s))
        phi = phi.bfloat16() if f.is_cuda else phi
        x, logits = self.first(f), []
        for layer in self.layers:
            x = layer(x, phi)
            logits.append(self.out(x).squeeze(-1))
        return logits

    @torch.no_grad()
    def match(self, a: Keypoints, b: Keypoints) -> ContextMatches:
        """Matches of one pair of photos: the candidates above the threshold that are the best of both keypoints."""
        found = candidates(a, b, self.config.candidates, self.config.top)
        logits = self(*found[2:])[-1]
        i, j, f, p = (part[found.is_real] for part in (found.i, found.j, found.f, torch.sigmoid(logits.float())))
        best_a, best_b = (
            p.new_zeros(len(photo)).scatter_reduce(0, index, p, "amax")[index] for photo, index in ((a, i), (b, j))
        )
        chosen = torch.nonzero((p > self.config.threshold) & (p >= best_a) & (p >= best_b))[:, 0]
        chosen = chosen[i[chosen].argsort(stable=True)]
        ratios = f[chosen, 1].exp().clamp(max=1)
        return ContextMatches(torch.stack([i, j], 1)[chosen], p[chosen], f[chosen, 0], ratios)

    def save(self, path: str | Path) -> None:
        """Write the weights with configuration, card and digest, atomically."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}
        if bad := first_not_finite(tensors):
            raise ArgumentError(f"the network contains NaN or infinite values in {bad}: not saved")
        facts = {"kind": KIND, "format": FORMAT, **asdict(self.config), "card": self.card}
        write_tensors(path, tensors, {KEY: json.dumps(facts, sort_keys=True)})

    @classmethod
    def load(cls, path: str | Path) -> "ContextNetwork":
        """Read a network, ready for inference, on the CPU; a damaged or foreign file is refused."""
        weights = read_context(path)
        facts = {name: value for name, value in weights.facts.items() if name not in ("kind", "format", "card")}
        try:
            network = cls(from_dict(ContextConfig, facts), weights.facts.get("card"))
        except MatchKernelError as error:
            raise WeightsError(f"{path}: its configuration cannot be used ({error})") from None
        state = {name: torch.tensor(values) for name, values in weights.tensors.items()}
        fill(network, state, Path(path), "a context matcher")
        return network


def _log_factor(width: float) -> float:
    """log of 1 / (2 width^2)."""
    return -math.log(2 * width**2) if math.isfinite(width) else NO_WIDTH


def _rows_at(table: Tensor, index: Tensor) -> Tensor:
    """(B, N, k) at (B, M) -> (B, M, k)."""
    return table.gather(1, index[..., None].expand(-1, -1, table.shape[-1]))


def _other(values: Tensor, index: Tensor, own: Tensor, partner: Tensor) -> Tensor:
    """Distance of each keypoint `own` to its nearest neighbour other than `partner`; OPPOSITE if there is none."""
    nearest, first = _rows_at(values[..., :2], own), _rows_at(index[..., :1], own)[..., 0]
    return torch.where(first == partner, nearest[..., 1], nearest[..., 0]).clamp(max=OPPOSITE)
