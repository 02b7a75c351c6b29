"""Image codecs of Dreamer v1 and v2: sizes, the loss by hand, gradients that reach every layer."""

import pytest
import torch

from gymlab.components.strided_codecs import StridedImageDecoder, StridedImageEncoder, centred
from gymlab.errors import ConfigError


def images(count=2, channels=3):
    return torch.randint(256, (count, channels, 64, 64), dtype=torch.uint8)


def test_images_are_centred():
    levels = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    torch.testing.assert_close(centred(levels).flatten(), torch.tensor([-0.5, -0.3, 0.5]))


@pytest.mark.parametrize(("depth", "activation", "channels"), [(4, "relu", 3), (2, "elu", 1)])
def test_sizes(depth, activation, channels):
    encoder = StridedImageEncoder((channels, 64, 64), depth, activation)
    decoder = StridedImageDecoder((channels, 64, 64), depth, 5, encoder.size, activation)
    code = encoder(images(channels=channels))
    assert code.shape == (2, 32 * depth)
    assert decoder(torch.zeros(2, 5), code).shape == (2, channels, 64, 64)


def test_parameter_counts_of_version_one():
    def count(module):
        return sum(parameter.numel() for parameter in module.parameters())

    encoder = StridedImageEncoder((3, 64, 64))
    assert encoder.size == 1024
    # 4x4 kernels: 3->32, 32->64, 64->128, 128->256
    assert count(encoder) == 16 * (3 * 32 + 32 * 64 + 64 * 128 + 128 * 256) + 32 + 64 + 128 + 256
    # linear 230->1024; kernels 5, 5, 6, 6: 1024->128, 128->64, 64->32, 32->3
    linear = 230 * 1024 + 1024
    transposed = 25 * (1024 * 128 + 128 * 64) + 36 * (64 * 32 + 32 * 3) + 128 + 64 + 32 + 3
    assert count(StridedImageDecoder((3, 64, 64), 32, 200, 30)) == linear + transposed


def test_loss_is_half_the_squared_error_and_trains_every_layer():
    torch.manual_seed(0)
    encoder, decoder = StridedImageEncoder((3, 64, 64), 2), StridedImageDecoder((3, 64, 64), 2, 3, 64)
    batch, deter = images(), torch.randn(2, 3)
    code = encoder(batch)
    loss = decoder.loss(deter, code, batch)
    expected = [0.5 * ((decoder(deter, code) - (batch / 255 - 0.5))[row] ** 2).sum() for row in range(2)]
    torch.testing.assert_close(loss, torch.stack(expected))
    loss.mean().backward()
    for parameter in [*encoder.parameters(), *decoder.parameters()]:
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0


def test_a_grey_mean_loses_what_the_images_weigh():
    decoder = StridedImageDecoder((1, 64, 64), 2, 5, 4)
    for parameter in decoder.parameters():
        torch.nn.init.zeros_(parameter)
    white = torch.full((1, 1, 64, 64), 255, dtype=torch.uint8)
    # The mean is 0, the target 0.5 everywhere: 0.5 * 64 * 64 * 0.25
    deter, stoch = torch.zeros(1, 5), torch.zeros(1, 4)
    torch.testing.assert_close(decoder.loss(deter, stoch, white), torch.tensor([512.0]))
    torch.testing.assert_close(decoder.pixels(decoder(deter, stoch)), torch.full((1, 1, 64, 64), 127.5))


@pytest.mark.parametrize("shape", [(3, 84, 84), (3, 64, 63), (64, 64)])
def test_other_sizes_are_refused(shape):
    with pytest.raises(ConfigError, match=r"resize_obs: \[64, 64\]"):
        StridedImageEncoder(shape)
    with pytest.raises(ConfigError, match=r"resize_obs: \[64, 64\]"):
        StridedImageDecoder(shape, 32, 8, 2)
