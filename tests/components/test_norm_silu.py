"""Norm and SiLU in one, against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from gymlab.components import norm_silu
from gymlab.components.norm_silu import NormSiLU, _NormSiLU


@pytest.mark.parametrize("at_once", [1, norm_silu.AT_ONCE])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize(
    ("groups", "channels", "side"), [(4, 4, 8), (4, 8, 4), (2, 8, 8), (4, 4, 32), (4, 8, 33), (2, 32, 4)]
)
def test_values_and_gradients_are_those_of_torch(
    groups: int, channels: int, side: int, layout, at_once: int, monkeypatch
) -> None:
    monkeypatch.setattr(norm_silu, "AT_ONCE", at_once)
    torch.manual_seed(0)
    module = NormSiLU(groups, channels).double()
    torch.nn.init.normal_(module.weight)
    torch.nn.init.normal_(module.bias)
    x = (3 + 2 * torch.randn(3, channels, side, side, dtype=torch.float64)).to(memory_format=layout).requires_grad_()
    theirs = functional.silu(functional.group_norm(x, groups, module.weight, module.bias, module.eps))
    ours = module(x)
    torch.testing.assert_close(ours, theirs)
    push = torch.randn_like(theirs)
    inputs = (x, module.weight, module.bias)
    for one, other in zip(
        torch.autograd.grad(ours, inputs, push), torch.autograd.grad(theirs, inputs, push), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_half_the_bits_are_left_to_torch() -> None:
    torch.manual_seed(0)
    module, x = NormSiLU(4, 8).bfloat16(), torch.randn(2, 8, 4, 4, dtype=torch.bfloat16)
    assert torch.equal(module(x), functional.silu(functional.group_norm(x, 4, module.weight, module.bias)))


def test_by_hand() -> None:
    """Two groups of one channel: 1 and 3 have mean 2 and deviation 1, 5 and 5 have none."""
    module = NormSiLU(2, 2, eps=0.0)
    module.bias.data[1] = 1.0
    module.eps = 1e-12
    x = torch.tensor([[[[1.0, 3.0]], [[5.0, 5.0]]]])
    out = module(x)
    assert out[0, 0].flatten().tolist() == pytest.approx([-0.268941, 0.731059], abs=1e-5)
    assert out[0, 1].flatten().tolist() == pytest.approx([0.731059, 0.731059], abs=1e-5)


@pytest.mark.parametrize(("channels", "dtype", "own"), [(8, None, True), (64, None, False), (8, torch.bfloat16, False)])
def test_it_steps_back_where_torch_is_as_good(channels: int, dtype, own: bool, monkeypatch) -> None:
    used = []
    apply = _NormSiLU.apply
    monkeypatch.setattr(_NormSiLU, "apply", lambda *inputs: (used.append(1), apply(*inputs))[1])
    module = NormSiLU(8, channels)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype is not None):
        module(torch.randn(2, channels, 4, 4, dtype=dtype))
    assert bool(used) == own
