from types import SimpleNamespace

import torch

from matchkernel.model.precision import full_precision, has_bfloat16, unit_rows


def test_rows_have_length_one():
    rows = torch.randn(5, 7, dtype=torch.float64)
    assert (unit_rows(rows).norm(dim=1) - 1).abs().max() < 1e-12
    assert (torch.nn.functional.cosine_similarity(unit_rows(rows), rows) - 1).abs().max() < 1e-12


def test_zero_rows_stay_zero_with_a_finite_gradient():
    for dtype in (torch.float16, torch.float32, torch.float64):
        rows = torch.zeros(2, 4, dtype=dtype, requires_grad=True)
        unit_rows(rows).sum().backward()
        assert not unit_rows(rows).any()
        assert rows.grad.isfinite().all()


def test_squares_beyond_half_precision():
    rows = torch.full((1, 4), 300.0, dtype=torch.float16)  # 300^2 does not fit float16
    assert unit_rows(rows).tolist() == [[0.5] * 4]
    assert unit_rows(rows).dtype == torch.float16


def test_full_precision_lasts_until_the_last_of_several_threads_has_left():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        first, second = full_precision(), full_precision()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_float32_matmul_precision() == "highest"
        second.__exit__(None, None, None)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_cpu_without_bfloat16_is_known(monkeypatch):
    """Asked of torch, as torch does before it warns; a torch that cannot tell is taken not to have it."""
    assert has_bfloat16(torch.device("cuda"))
    for answer in (True, False):
        fake = SimpleNamespace(_is_mkldnn_bf16_supported=lambda answer=answer: answer)
        monkeypatch.setattr(torch.ops, "mkldnn", fake)
        assert has_bfloat16(torch.device("cpu")) is answer
    monkeypatch.setattr(torch.ops, "mkldnn", SimpleNamespace())
    assert not has_bfloat16(torch.device("cpu"))
