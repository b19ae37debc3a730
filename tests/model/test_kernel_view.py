import pytest
import torch
from helpers import refuses

from matchkernel.errors import ArgumentError
from matchkernel.model.descriptors import build
from matchkernel.model.kernel_view import (
    display_map,
    encodings_by_system,
    pairwise_terms,
    position_encodings,
    raw_encodings,
    receptive_field,
    similarity_map,
)
from matchkernel.runtime.config import VARIANTS, DescriptorConfig
from matchkernel.runtime.positions import fourier_coefficients, positions, truncated_kernel

SPATIAL = [name for name, variant in VARIANTS.items() if variant.systems]


def model_of(variant, trained_like, **settings):
    return trained_like(build(variant, d=6, **settings)).double()


def before_l2(model, patches):
    with torch.no_grad():
        return model.embed(model.feature_maps(patches))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("output_norm", ["batch", "none"])
def test_encodings_sum_to_the_descriptor_before_l2(variant, output_norm, textures, trained_like):
    settings = {"output_norm": output_norm} if VARIANTS[variant].projects or output_norm == "batch" else {}
    model = model_of(variant, trained_like, **settings)
    patches = textures(3, dtype=torch.float64)
    assert (position_encodings(model, patches).sum(1) - before_l2(model, patches)).abs().max() < 1e-10


@pytest.mark.parametrize("variant", SPATIAL)
def test_encodings_sum_also_with_encoding_norm_and_at_another_size(variant, textures, trained_like):
    model = model_of(variant, trained_like, encoding_norm=True)
    patches = textures(2, 48, dtype=torch.float64)
    assert (position_encodings(model, patches).sum(1) - before_l2(model, patches)).abs().max() < 1e-10


@pytest.mark.parametrize("variant", VARIANTS)
def test_inner_product_is_the_sum_of_all_pairwise_terms(variant, textures, trained_like):
    """Eq. (4) for fc, the same for the spatially encoded ones of eq. (9)."""
    model = model_of(variant, trained_like)
    patches = textures(2, dtype=torch.float64)
    encodings = position_encodings(model, patches)
    terms = pairwise_terms(encodings[0], encodings[1])
    assert terms.shape == (64, 64)
    rows = before_l2(model, patches)
    assert float(terms.sum()) == pytest.approx(float(rows[0] @ rows[1]), rel=1e-10)
    p, q = 13, 40
    assert float(terms[p, q]) == pytest.approx(float(encodings[0, p] @ encodings[1, q]), rel=1e-10)


def test_fc_encodings_are_w_p_v_by_a_double_loop(textures, trained_like):
    """Eq. (5)'s g(v, p) = W_p v + w / n^2, with W_p the slice of HardNet's 8 x 8 convolution at p."""
    model = model_of("fc", trained_like)
    patches = textures(2, dtype=torch.float64)
    folded = model.fold()
    phi = folded.feature_maps(patches)[0].detach()
    W = folded.projection.weight.reshape(128, 6, 8, 8)
    encodings = position_encodings(model, patches)
    for j in range(8):
        for i in range(8):
            expected = phi[:, :, j, i] @ W[:, :, j, i].T + folded.projection.bias / 64
            assert (encodings[:, 8 * j + i] - expected).abs().max() < 1e-12


@pytest.mark.parametrize("system", ["cartesian", "polar"])
def test_raw_encodings_give_vector_times_position_similarity(system, textures, trained_like):
    """Eq. 8: g(a, p) . g(b, q) = (phi_a^p . phi_b^q) k(first_p - first_q) k(second_p - second_q)."""
    model = model_of(system, trained_like)
    a, b = (model.feature_maps(textures(1, seed=seed, dtype=torch.float64))[0].detach() for seed in (0, 1))
    F = model.aggregations[0].position_matrix(8, weighted=False)
    products = pairwise_terms(raw_encodings(a, F)[0], raw_encodings(b, F)[0])
    place, gamma = positions(8), fourier_coefficients(8.0, 2)
    expected = a.flatten(2)[0].T @ b.flatten(2)[0]
    for values in (place.x, place.y) if system == "cartesian" else (place.rho, place.theta):
        flat = values.flatten()
        expected = expected * torch.from_numpy(truncated_kernel(flat[:, None] - flat[None, :], gamma))
    assert (products - expected).abs().max() < 1e-10


def encodings_by_hand(model, patches, weighted):
    """w_p M g_c + m from the raw encodings; c = 1 at n = 8, and the paper's m is ours / 64."""
    folded = model.fold()
    maps = [phi.detach() for phi in folded.feature_maps(patches)]
    g = [
        raw_encodings(phi, e.position_matrix(8, weighted=False))
        for phi, e in zip(maps, folded.aggregations, strict=True)
    ]
    w = torch.from_numpy(positions(8).weight).flatten()[:, None] if weighted else 1
    return w * (torch.cat(g, -1) @ folded.projection.weight.T) + folded.projection.bias / 64


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("variant", SPATIAL)
def test_encodings_are_w_p_m_g_plus_m(variant, weighted, textures, trained_like):
    model = model_of(variant, trained_like)
    patches = textures(2, dtype=torch.float64)
    expected = encodings_by_hand(model, patches, weighted)
    assert (position_encodings(model, patches, weighted=weighted) - expected).abs().max() < 1e-10


def test_concat_compares_equal_positions_only(textures, trained_like):
    encodings = position_encodings(model_of("concat", trained_like), textures(1, dtype=torch.float64))[0]
    terms = pairwise_terms(encodings, encodings)
    assert not (terms - torch.diag(terms.diagonal())).any()


def test_display_map_keeps_each_cell_on_pixel_4i():
    values = torch.rand(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    shown = display_map(values)
    assert shown.shape == (32, 32)
    assert (float(shown.min()), float(shown.max())) == (0, 1)
    scaled = (values - values.min()) / (values.max() - values.min())
    assert (shown[::4, ::4] - scaled).abs().max() < 1e-12
    assert torch.equal(shown[28:], shown[28].expand(4, 32))  # past the last cell its value
    assert not display_map(torch.ones(8, 8)).any()


def test_receptive_field_is_centred_on_pixel_4i():
    assert receptive_field(DescriptorConfig(), 2, 5) == (20 - 11, 8 - 11, 20 + 11, 8 + 11)


def test_the_model_stays_as_it_was(textures):
    model = build("dual", d=6).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    position_encodings(model, textures(2))
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("variant", SPATIAL)
@pytest.mark.parametrize("weighted", [True, False])
def test_the_encodings_of_all_systems_sum_to_the_whole(variant, weighted, textures, trained_like):
    model, patches = model_of(variant, trained_like), textures(2, dtype=torch.float64)
    whole = position_encodings(model, patches, weighted=weighted)
    parts = encodings_by_system(model, patches, weighted=weighted)
    assert tuple(parts) == VARIANTS[variant].systems
    assert (sum(parts.values()) - whole).abs().max() < 1e-12
    if len(parts) > 1:
        assert (parts["cartesian"] - parts["polar"]).abs().max() > 1e-3


@pytest.mark.parametrize("variant", ["dual", "fc"])
def test_a_similarity_map_holds_the_unweighted_products_with_one_position(variant, textures, trained_like):
    model, patches = model_of(variant, trained_like), textures(2, dtype=torch.float64)
    encodings = position_encodings(model, patches, weighted=False)
    values = similarity_map(model, patches[0], patches[1], row=2, column=5)
    expected = [encodings[0, 2 * 8 + 5] @ encodings[1, q] for q in range(64)]
    assert (values.flatten() - torch.stack(expected)).abs().max() < 1e-10


def test_what_has_no_map_is_refused(textures, trained_like):
    model, (a, b) = model_of("fc", trained_like), textures(2, dtype=torch.float64)
    with refuses(ArgumentError):  # patches of different sizes
        similarity_map(model, a, textures(1, 48)[0], 0, 0)
    with refuses(ArgumentError):  # a position outside the map
        similarity_map(model, a, b, 8, 0)
    with refuses(ArgumentError):  # no coordinate systems
        encodings_by_system(model, a[None])
