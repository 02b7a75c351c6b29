"""Layers with LayerNorm and Mish against torch's own, values and gradients; dropout by its statistics."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gymlab.components import mish_layers
from gymlab.components.mish_layers import MishLayer, left_out, mish_, mish_and_rise_


def test_mish_is_torchs() -> None:
    x = torch.tensor([-100.0, -5.0, -0.3, 0.0, 3.0, 15.0, 30.0, 1e4], dtype=torch.float64, requires_grad=True)
    expected = functional.mish(x)
    expected.sum().backward()
    torch.testing.assert_close(mish_(x.detach().clone()), expected.detach())
    value, rise = mish_and_rise_(x.detach().clone())
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(1 + 4 * rise, x.grad, atol=1e-7, rtol=1e-6)
    # By hand: mish(1) = tanh(log(1 + e)).
    assert mish_(torch.ones(1)).item() == pytest.approx(math.tanh(math.log(1 + math.e)))


def layer(dropout: float = 0.0) -> MishLayer:
    torch.manual_seed(1)
    made = MishLayer(4, 6, dropout).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


def plain(made: MishLayer, x: Tensor, kept: Tensor | None = None) -> Tensor:
    hidden = made.linear(x) if kept is None else made.linear(x) * kept / (1 - made.dropout)
    return functional.mish(made.norm(hidden))


def gradients(made: MishLayer, x: Tensor, value: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad((value * torch.arange(6.0).double()).sum(), [x, *made.parameters()]))


@pytest.mark.parametrize("dropped", [False, True])
def test_a_layer_is_what_autograd_finds(dropped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = layer(0.3 if dropped else 0.0)
    x = torch.randn(5, 3, 4, dtype=torch.float64, requires_grad=True)
    places = torch.tensor([0, 7, 8, 89])
    monkeypatch.setattr(mish_layers, "left_out", lambda count, share: places)
    kept = torch.ones(90, dtype=torch.float64).index_fill_(0, places, 0.0).view(5, 3, 6) if dropped else None
    expected = plain(made, x, kept)
    found = made(x)
    torch.testing.assert_close(found, expected)
    for one, other in zip(gradients(made, x, found), gradients(made, x, expected), strict=True):
        torch.testing.assert_close(one, other)


def test_without_gradients_and_at_rest_nothing_is_left_out() -> None:
    made = layer(0.5).eval()
    x = torch.randn(7, 4, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(made(x), plain(made, x))
    torch.testing.assert_close(made(x), plain(made, x))


@pytest.mark.parametrize("rows", [False, True])
def test_a_base_stands_for_the_first_features(rows: bool) -> None:
    made = layer()
    first = torch.randn(3, dtype=torch.float64)
    first = first.expand(5, 3) if rows else first
    rest = torch.randn(5, 1, dtype=torch.float64, requires_grad=True)
    whole = torch.cat([first.expand(5, 3), rest], -1)
    expected, found = plain(made, whole), made(rest, made.base(first))
    torch.testing.assert_close(found, expected)
    for one, other in zip(gradients(made, rest, found), gradients(made, rest, expected), strict=True):
        torch.testing.assert_close(one, other)
    with torch.no_grad():
        torch.testing.assert_close(made(rest, made.base(first)), expected.detach())


def test_each_unit_is_left_out_as_often_as_any_other() -> None:
    torch.manual_seed(0)
    count, share, draws = 40, 0.1, 4000
    times = torch.zeros(count)
    sizes = torch.zeros(draws)
    for draw in range(draws):
        places = left_out(count, share)
        assert (places.diff() > 0).all()
        times[places] += 1
        sizes[draw] = len(places)
    # 0.1 with a deviation of 0.0047 over 4000 draws; as many at once as independent ones: variance 40 * 0.1 * 0.9.
    assert (times / draws - share).abs().max() < 5 * 0.0047
    assert sizes.var().item() == pytest.approx(3.6, rel=0.15)
    assert len(left_out(1, 1e-9)) == 0


def test_more_random_numbers_are_drawn_when_they_did_not_reach_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    # The smallest gaps there are: a first draw of them ends long before the last place.
    monkeypatch.setattr(torch, "rand", lambda size, dtype: torch.zeros(size, dtype=dtype))
    assert left_out(1000, 0.01).tolist() == list(range(1000))


def test_low_precision_takes_the_common_way() -> None:
    made = MishLayer(4, 8, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        value = made(torch.randn(3, 4))
    value.float().sum().backward()
    assert torch.isfinite(made.linear.weight.grad).all()
