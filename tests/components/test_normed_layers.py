"""Layers of DreamerV3: their numbers by hand, and the block-diagonal map against the full matrix it stands for."""

import math

import pytest
import torch

from gymlab.components.normed_layers import BlockLinear, RMSNorm, init_truncated_normal, normed_linear
from gymlab.errors import ConfigError


def test_truncated_normal_has_the_variance_of_its_fan_in_and_ends_at_two_deviations():
    torch.manual_seed(0)
    weight = init_truncated_normal(torch.empty(400, 250), fan_in=100)
    assert weight.std().item() == pytest.approx(0.1, rel=0.01)
    assert weight.mean().item() == pytest.approx(0.0, abs=0.002)
    assert weight.abs().max().item() <= 2 * 1.1368 / 10
    assert weight.abs().max().item() > 1.9 * 1.1368 / 10


def test_scale_multiplies_the_weights_and_zero_means_zero():
    torch.manual_seed(3)
    plain = init_truncated_normal(torch.empty(20, 30), fan_in=30)
    torch.manual_seed(3)
    small = init_truncated_normal(torch.empty(20, 30), fan_in=30, scale=0.01)
    torch.testing.assert_close(small, 0.01 * plain)
    assert init_truncated_normal(torch.empty(5, 5), fan_in=5, scale=0.0).count_nonzero() == 0


def test_a_linear_layer_starts_without_biases():
    torch.manual_seed(0)
    layer = normed_linear(64, 512, scale=0.5)
    assert layer.bias.count_nonzero() == 0
    assert layer.weight.std().item() == pytest.approx(0.5 / 8, rel=0.02)


def test_rms_norm_divides_by_the_root_mean_square():
    norm = RMSNorm(2)
    torch.nn.init.constant_(norm.scale, 2.0)
    # (3^2 + 4^2) / 2 = 12.5
    expected = torch.tensor([[3.0, 4.0]]) * 2 / math.sqrt(12.5 + 1e-4)
    torch.testing.assert_close(norm(torch.tensor([[3.0, 4.0]])), expected)
    # The epsilon is inside the root: a vector of 0.01 has a mean square as large as it.
    torch.testing.assert_close(norm(torch.full((1, 2), 0.01)), torch.full((1, 2), 0.02 / math.sqrt(2e-4)))


def test_rms_norm_has_the_right_gradients():
    torch.manual_seed(0)
    norm = RMSNorm(5).double()
    torch.nn.init.normal_(norm.scale)
    x = torch.randn(3, 4, 5, dtype=torch.double, requires_grad=True)

    def normed(x, scale):
        return torch.func.functional_call(norm, {"scale": scale}, (x,))

    assert torch.autograd.gradcheck(normed, (x, norm.scale))


def test_block_linear_is_the_full_matrix_with_zeros_off_the_diagonal():
    torch.manual_seed(0)
    layer = BlockLinear(6, 9, blocks=3)
    torch.nn.init.normal_(layer.bias)
    x = torch.randn(2, 4, 6)
    full = torch.block_diag(*layer.weight)  # [6, 9]
    torch.testing.assert_close(layer(x), x @ full + layer.bias)
    torch.testing.assert_close(layer(x[0, 0]), x[0, 0] @ full + layer.bias)


def test_block_linear_counts_the_whole_input_as_fan_in():
    torch.manual_seed(0)
    layer = BlockLinear(1024, 1024, blocks=8)
    assert sum(parameter.numel() for parameter in layer.parameters()) == 1024 * 128 + 1024
    assert layer.weight.std().item() == pytest.approx(1 / 32, rel=0.02)


def test_block_linear_refuses_sizes_its_blocks_do_not_divide():
    with pytest.raises(ConfigError, match=r"8 blocks.*in_features is 100"):
        BlockLinear(100, 64, blocks=8)
