"""DreamerV3's image codecs against their plain definition: values, gradients, sizes, and what is refused."""

from itertools import pairwise

import pytest
import torch
from torch.nn import functional

from gymlab.components import image_codecs
from gymlab.components.image_codecs import ImageDecoder, ImageEncoder, image_decoder, image_encoder
from gymlab.components.image_kernels import largest_of_blocks, normed_silu, sigmoid_squared_error
from gymlab.components.strided_codecs import StridedImageDecoder, StridedImageEncoder
from gymlab.errors import ConfigError


def random_images(*shape):
    return torch.randint(256, shape, dtype=torch.uint8)


def rms(x, scale, dim):
    shape = [-1 if index == dim else 1 for index in range(x.dim())]
    return x / (x.square().mean(dim, keepdim=True) + 1e-4).sqrt() * scale.view(shape)


def plain_encoder(encoder, images):
    x = images.to(encoder.convolutions[0].weight.dtype) / 255 - 0.5
    for layer, norm in zip(encoder.convolutions, encoder.norms, strict=True):
        x = functional.max_pool2d(functional.conv2d(x, layer.weight, layer.bias, padding=2), 2)
        x = functional.silu(rms(x, norm.scale, 1))
    return x.permute(0, 2, 3, 1).flatten(1)


def plain_decoder(decoder, deter, stoch):
    height, width, channels = decoder.start
    groups = [
        (part @ weight).view(-1, height, width, channels // 8)
        for part, weight in zip(deter.chunk(8, 1), decoder.from_deter.weight, strict=True)
    ]
    hidden = functional.silu(rms(decoder.from_stoch(stoch), decoder.stoch_norm.scale, 1))
    bias = decoder.from_deter.bias.view(8, height, width, channels // 8).permute(1, 2, 0, 3).flatten(2)
    x = torch.cat(groups, -1) + bias + decoder.to_start(hidden).view(-1, height, width, channels)
    x = x.permute(0, 3, 1, 2)
    for layer, norm in zip(decoder.convolutions, decoder.norms, strict=True):
        x = functional.silu(rms(x, norm.scale, 1))
        x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
        x = functional.conv2d(x, layer.weight, layer.bias, padding=2)
    return torch.sigmoid(x)


def shaken(module):
    """No weight left at the 0 or 1 at which it starts, where a wrong place would not show."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module.double()


def gradients(value, module):
    module.zero_grad()
    value.backward()
    return {name: parameter.grad.clone() for name, parameter in module.named_parameters()}


@pytest.fixture
def few_at_once(monkeypatch):
    """Batches are cut even when they are as small as those here."""
    monkeypatch.setattr(image_codecs, "CACHED", 3 * 64 * 64 * 4)


@pytest.mark.usefixtures("few_at_once")
@pytest.mark.parametrize(("channels", "height", "width"), [(3, 64, 64), (1, 32, 48)])
def test_encoder_is_its_plain_definition(channels, height, width):
    encoder = shaken(ImageEncoder((channels, height, width), depth=2))
    images = random_images(7, channels, height, width)
    code, plain = encoder(images), plain_encoder(encoder, images)
    assert code.shape == (7, encoder.size)
    torch.testing.assert_close(code, plain)
    weights = torch.randn_like(plain)
    expected = gradients((plain * weights).sum(), encoder)
    torch.testing.assert_close(gradients((code * weights).sum(), encoder), expected)


@pytest.mark.usefixtures("few_at_once")
@pytest.mark.parametrize(("channels", "height", "width"), [(3, 64, 64), (1, 32, 48)])
def test_decoder_and_its_loss_are_their_plain_definition(channels, height, width):
    decoder = shaken(ImageDecoder((channels, height, width), depth=2, deter=32, stoch=12, units=5))
    deter = torch.randn(7, 32, dtype=torch.double, requires_grad=True)
    stoch = torch.randn(7, 12, dtype=torch.double, requires_grad=True)
    images = random_images(7, channels, height, width)
    plain = plain_decoder(decoder, deter, stoch)
    torch.testing.assert_close(decoder(deter, stoch), plain)
    assert decoder(deter, stoch).shape == images.shape
    assert decoder.pixels(plain).max() <= 255
    plain_loss = (plain - images.double() / 255).square().sum(dim=(1, 2, 3))
    loss = decoder.loss(deter, stoch, images)
    torch.testing.assert_close(loss, plain_loss)
    weights = torch.rand(7, dtype=torch.double)
    expected = gradients((weights * plain_loss).sum(), decoder), deter.grad.clone(), stoch.grad.clone()
    deter.grad = stoch.grad = None
    found = gradients((weights * loss).sum(), decoder), deter.grad, stoch.grad
    torch.testing.assert_close(found, expected)


def test_sizes_and_parameters_of_the_smallest_preset():
    encoder = ImageEncoder((3, 64, 64), depth=4)
    decoder = ImageDecoder((3, 64, 64), depth=4, deter=512, stoch=128, units=64)
    assert encoder.size == 4 * 4 * 16
    channels = [3, 8, 12, 16, 16]
    pairs = list(pairwise(channels))
    assert count(encoder) == sum(25 * inputs * outputs + 2 * outputs for inputs, outputs in pairs)
    start = 512 // 8 * 256 + 256 + 128 * 128 + 2 * 128 + 128 * 256 + 256 + 16
    stages = [(16, 16), (16, 12), (12, 8)]
    assert count(decoder) == start + sum(25 * a * b + 2 * b for a, b in stages) + 25 * 8 * 3 + 3
    assert ImageEncoder((3, 96, 96), depth=4).size == 6 * 6 * 16


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_weights_start_at_the_deviation_of_their_fan_in():
    torch.manual_seed(0)
    layer = ImageEncoder((3, 64, 64), depth=32).convolutions[2]
    assert layer.weight.std().item() == pytest.approx((25 * 96) ** -0.5, rel=0.02)
    assert layer.bias.count_nonzero() == 0


def test_equal_pixels_share_one_gradient():
    """In a flat image all four of a block are largest; the block's gradient must not be counted four times."""
    blocks = torch.full((1, 3, 1, 8), 0.7, requires_grad=True)
    weights = torch.tensor([1.0, -2.0])
    (largest_of_blocks(blocks) * weights).sum().backward()
    torch.testing.assert_close(blocks.grad.view(3, 4, 2).sum(1), weights.expand(3, 2))


def test_gradients_of_the_fused_parts():
    torch.manual_seed(0)
    scale = torch.randn(3, dtype=torch.double, requires_grad=True)
    x = torch.randn(16, 12, dtype=torch.double, requires_grad=True)
    target = torch.rand(5, 4, dtype=torch.double)
    logits = torch.randn(5, 4, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, scale: normed_silu(x, scale, 1e-4), (x, scale))
    assert torch.autograd.gradcheck(lambda x, scale: normed_silu(x, scale, 1e-4), (x[:3], scale))
    assert torch.autograd.gradcheck(lambda logits: sigmoid_squared_error(logits, target), (logits,))


def test_half_the_bits_come_near():
    encoder = ImageEncoder((3, 64, 64), depth=4)
    decoder = ImageDecoder((3, 64, 64), depth=4, deter=32, stoch=256, units=8)
    images, deter = random_images(2, 3, 64, 64), torch.randn(2, 32)
    exact = decoder.loss(deter, encoder(images), images)
    with torch.autocast("cpu", torch.bfloat16):
        near = decoder.loss(deter, encoder(images), images)
    assert near.dtype == torch.float32
    near.sum().backward()
    torch.testing.assert_close(near, exact, rtol=0.01, atol=0)


@pytest.mark.parametrize("shape", [(3, 84, 84), (3, 64, 40), (3, 0, 64), (64, 64)])
def test_other_sizes_are_refused(shape):
    with pytest.raises(ConfigError, match=r"multiples of 16.*resize_obs: \[64, 64\]"):
        ImageEncoder(shape, depth=4)
    with pytest.raises(ConfigError, match=r"multiples of 16.*resize_obs: \[64, 64\]"):
        ImageDecoder(shape, depth=4, deter=64, stoch=16, units=8)


def test_an_odd_depth_is_refused():
    with pytest.raises(ConfigError, match=r"cnn_depth.*even.*5"):
        ImageDecoder((3, 64, 64), depth=5, deter=64, stoch=16, units=8)


def test_each_version_has_its_codecs():
    shape = (3, 64, 64)
    assert isinstance(image_encoder("v3", shape, 4), ImageEncoder)
    assert isinstance(image_decoder("v3", shape, 4, 64, 16, 8), ImageDecoder)
    for version, activation in (("v1", torch.nn.ReLU), ("v2", torch.nn.ELU)):
        encoder, decoder = image_encoder(version, shape, 4), image_decoder(version, shape, 4, 64, 16, 8)
        assert isinstance(encoder, StridedImageEncoder)
        assert isinstance(decoder, StridedImageDecoder)
        assert isinstance(encoder.activation, activation)
        assert isinstance(decoder.activation, activation)
