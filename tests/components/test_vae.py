"""V: sizes of the paper, the loss by hand, and that it learns to draw."""

from __future__ import annotations

import pytest
import torch

from gymlab.components.flat import count_parameters
from gymlab.components.vae import ConvVAE, FromPoint, Vision, draw_code, kl_to_standard_normal
from gymlab.errors import ConfigError


@pytest.mark.parametrize(("size", "count"), [(32, 4_348_547), (64, 4_446_915)])
def test_parameters_are_those_of_the_paper(size: int, count: int) -> None:
    assert count_parameters(ConvVAE(size)) == count


def test_pictures_shrink_and_grow_as_in_the_paper() -> None:
    vae = ConvVAE(8)
    x, sides = torch.rand(2, 3, 64, 64), []
    for layer in vae.encoder:
        x = layer(x)
        sides += [x.shape[-1]] if isinstance(layer, torch.nn.Conv2d) else []
    assert sides == [31, 14, 6, 2]
    assert x.shape == (2, 1024)
    assert vae.decode(torch.zeros(2, 8)).shape == (2, 3, 64, 64)


def test_a_point_grows_as_by_a_transposed_convolution() -> None:
    layer, x = FromPoint(6, 4, 5), torch.randn(3, 6, 1, 1)
    expected = torch.nn.functional.conv_transpose2d(x, layer.weight, layer.bias, stride=2)
    torch.testing.assert_close(layer(x), expected)


def test_kl_by_hand() -> None:
    mean, log_variance = torch.tensor([[0.5, -0.5], [0.0, 0.0]]), torch.tensor([[0.0, -1.0], [0.0, 0.0]])
    torch.testing.assert_close(kl_to_standard_normal(mean, log_variance), torch.tensor([0.433940, 0.0]))


def test_a_code_is_drawn_by_its_log_variance() -> None:
    drawn = draw_code(torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([3.0]))
    assert drawn.item() == pytest.approx(1 + 3 * 2.718281828)


def test_the_floor_holds_for_each_picture_and_has_no_gradient() -> None:
    vae = ConvVAE(2)  # a floor of 1
    codes = [(torch.tensor([[0.5, -0.5], [2.0, 0.0]]), torch.tensor([[0.0, -1.0], [0.0, 0.0]]))]
    mean = codes[0][0].requires_grad_()
    vae.encode = lambda images: (mean, codes[0][1])  # type: ignore[method-assign]
    losses = vae.losses(torch.zeros(2, 3, 64, 64))
    # KL 0.43394 and 2: the first counts as 1, which the mean of both, 1.217, would not show.
    assert losses["kl"].item() == pytest.approx((1 + 2) / 2)
    assert losses["raw_kl"].item() == pytest.approx((0.433940 + 2) / 2, abs=1e-5)
    (gradient,) = torch.autograd.grad(losses["kl"], mean)
    torch.testing.assert_close(gradient, torch.tensor([[0.0, 0.0], [1.0, 0.0]]))


def test_the_error_is_summed_over_pixels() -> None:
    vae = ConvVAE(2)
    vae.decode = lambda code: torch.full((len(code), 3, 64, 64), 0.5)  # type: ignore[method-assign]
    assert vae.losses(torch.ones(4, 3, 64, 64))["reconstruction"].item() == pytest.approx(0.25 * 3 * 64 * 64)


def test_it_learns_to_draw_two_pictures() -> None:
    torch.manual_seed(0)
    vae = ConvVAE(4, channels=1)
    images = torch.zeros(8, 1, 64, 64)
    images[:4, :, :32] = 1
    images[4:, :, :, :32] = 1
    optimizer = torch.optim.Adam(vae.parameters(), 1e-3)
    errors = []
    for _ in range(40):
        losses = vae.losses(images)
        errors.append(losses["reconstruction"].item())
        optimizer.zero_grad()
        (losses["reconstruction"] + losses["kl"]).backward()
        optimizer.step()
    assert errors[-1] < 0.3 * errors[0]


def test_pictures_in_bytes_become_codes_and_come_back_in_grey_levels() -> None:
    vision = Vision({"image": (3, 64, 64)}, 5)
    code = vision(torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8))
    assert code.shape == (2, vision.code_size) == (2, 10)
    torch.testing.assert_close(vision.draw(code, None), code[:, :5])
    noisy = vision.draw(code, torch.ones(2, 5))
    torch.testing.assert_close(noisy, code[:, :5] + (code[:, 5:] / 2).exp())
    decoded = vision.decode(noisy)
    assert decoded.shape == (2, 3, 64, 64)
    assert 100 < decoded.mean() < 155


def test_a_vector_is_its_own_code() -> None:
    vision, x = Vision({"vector": (4,)}, 32), torch.randn(3, 4)
    assert (vision.size, vision.code_size) == (4, 4)
    torch.testing.assert_close(vision.decode(vision.draw(vision(x), torch.ones(3, 4))), x)


def test_other_observations_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"resize_obs: \[64, 64\]"):
        Vision({"image": (3, 96, 96)}, 32)
    with pytest.raises(ConfigError, match="eye, vector"):
        Vision({"eye": (3, 64, 64), "vector": (3,)}, 32)
