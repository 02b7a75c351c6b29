"""Convolutions with weight gradients by Winograd's method, against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from gymlab.components import winograd
from gymlab.components.winograd import Convolution3x3, weight_gradient


def test_a_tile_by_hand() -> None:
    """One row of four pixels 1 2 3 4, of whose outputs only the second counts: its window is 1 2 3."""
    x = torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
    gradient = torch.tensor([[[[0.0, 1.0, 0.0, 0.0]]]])
    found = weight_gradient(x, gradient)[0, 0]
    expected = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("at_once", [1, winograd.AT_ONCE])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize(("inputs", "outputs", "height", "width"), [(3, 2, 5, 4), (2, 3, 8, 8), (4, 4, 1, 12)])
def test_gradients_are_those_of_torch(
    inputs: int, outputs: int, height: int, width: int, layout, at_once: int, monkeypatch
) -> None:
    monkeypatch.setattr(winograd, "AT_ONCE", at_once)
    monkeypatch.setattr(winograd, "FEWEST_CHANNELS", 1)
    monkeypatch.setattr(winograd, "_is_slow", lambda: True)
    torch.manual_seed(0)
    layer = Convolution3x3(inputs, outputs).double().to(memory_format=layout)
    x = torch.randn(5, inputs, height, width, dtype=torch.float64).to(memory_format=layout).requires_grad_()
    ours = layer(x)
    assert "_Convolution" in ours.grad_fn.name()
    theirs = functional.conv2d(x, layer.weight, layer.bias, padding=1)
    torch.testing.assert_close(ours, theirs)
    push, learned = torch.randn_like(theirs), (x, layer.weight, layer.bias)
    for one, other in zip(
        torch.autograd.grad(ours, learned, push), torch.autograd.grad(theirs, learned, push), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_five_digits_are_right_in_32_bits() -> None:
    torch.manual_seed(0)
    x, gradient = (torch.randn(8, 64, 32, 32).to(memory_format=torch.channels_last) for _ in range(2))
    exact = torch.nn.grad.conv2d_weight(x.double(), (64, 64, 3, 3), gradient.double(), padding=1)
    ours = weight_gradient(x, gradient)
    assert (ours - exact).abs().max() < 1e-5 * exact.abs().max()


@pytest.mark.parametrize(
    ("slow", "inputs", "width", "dtype", "own"),
    [
        (True, 64, 8, torch.float32, True),
        (False, 64, 8, torch.float32, False),
        (True, 32, 8, torch.float32, False),
        (True, 64, 6, torch.float32, False),
        (True, 64, 8, torch.bfloat16, False),
    ],
)
def test_it_steps_back_where_torch_is_as_good(
    slow: bool, inputs: int, width: int, dtype: torch.dtype, own: bool, monkeypatch
) -> None:
    monkeypatch.setattr(winograd, "_is_slow", lambda: slow)
    out = Convolution3x3(inputs, 64).to(dtype)(torch.randn(1, inputs, 4, width, dtype=dtype))
    assert ("_Convolution" in out.grad_fn.name()) == own


def test_autocast_is_left_to_torch(monkeypatch) -> None:
    monkeypatch.setattr(winograd, "_is_slow", lambda: True)
    with torch.autocast("cpu", torch.bfloat16):
        assert Convolution3x3(64, 64)(torch.randn(1, 64, 4, 4)).dtype == torch.bfloat16


def test_what_is_frozen_gets_no_gradient(monkeypatch) -> None:
    monkeypatch.setattr(winograd, "_is_slow", lambda: True)
    layer = Convolution3x3(64, 64).requires_grad_(False)
    x = torch.randn(1, 64, 4, 4, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert layer.weight.grad is None
    assert layer.bias.grad is None
