"""Frames to features and back: what is computed cleverly is what the plain operations compute."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from gymlab.components.frame_codecs import Doubled, FrameDecoder, FrameEncoder, ResidualBlock, Stages

PAPER = Stages((1, 1, 2, 2, 4), (1, 0, 1, 1, 0))


def plain(layer, x):
    """Repeat pixels, then convolve."""
    return layer.convolution(functional.interpolate(x, scale_factor=2.0, mode="nearest"))


def test_doubling_is_repeating_pixels_and_a_convolution():
    torch.manual_seed(0)
    layer, x = Doubled(5).double(), torch.randn(3, 5, 4, 6, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(3, 5, 8, 12, dtype=torch.float64)
    found = []
    for way in (layer, lambda value: plain(layer, value)):
        value = way(x)
        gradients = torch.autograd.grad((value * weights).sum(), [x, *layer.parameters()])
        found.append([value, *gradients])
    for ours, expected in zip(*found, strict=True):
        assert torch.allclose(ours, expected, atol=1e-12)


def test_a_block_is_two_normed_convolutions_beside_a_short_cut():
    torch.manual_seed(0)
    block, x = ResidualBlock(32, 64), torch.randn(2, 32, 8, 8)
    norms = nn.GroupNorm(32, 32), nn.GroupNorm(32, 64)
    plain = nn.Sequential(norms[0], nn.SiLU(), block.first, norms[1], nn.SiLU(), block.second)
    with torch.no_grad():
        assert torch.allclose(block(x), plain(x) + block.skip(x), atol=1e-5)
        learning = torch.enable_grad()
        with learning:
            assert torch.allclose(block(x), plain(x) + block.skip(x), atol=1e-5)
    assert torch.equal(ResidualBlock(32, 32).skip(x), x)


@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_three_stages_halve_and_double(batch):
    encoder, decoder = FrameEncoder(7, 6, 16, PAPER), FrameDecoder(6, 3, 16, PAPER)
    features = encoder(torch.rand(*batch, 7, 32, 32))
    assert features.shape == (*batch, 6, 4, 4)
    assert decoder(features).shape == (*batch, 3, 32, 32)


def test_parameters_of_the_tokenizers_networks():
    counted = [
        sum(p.numel() for p in net.parameters())
        for net in (FrameEncoder(7, 64, 64, PAPER), FrameDecoder(76, 3, 64, PAPER))
    ]
    assert counted == [1_892_992, 1_548_867]


def test_folded_pixels_are_channels_of_one_place():
    folded = Stages((1,), (1,), fold=4)
    assert folded.stride == 8
    features = FrameEncoder(3, 5, 8, folded)(torch.rand(2, 3, 16, 16))
    assert features.shape == (2, 5, 2, 2)
    assert FrameDecoder(5, 3, 8, folded)(features).shape == (2, 3, 16, 16)
