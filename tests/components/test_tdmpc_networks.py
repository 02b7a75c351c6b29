"""The networks of TD-MPC2, by hand-computed values."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from gymlab.components.symlog import TwoHot
from gymlab.components.tdmpc_config import SIZES, TDMPC2Config, TDMPCConfig, heuristic_discount
from gymlab.components.tdmpc_networks import (
    LatentModel,
    PictureEncoder,
    RunningScale,
    SimNorm,
    values,
    values_of_actions,
)
from gymlab.errors import ConfigError

TINY = {"env_id": "Pendulum-v1", "algo_id": "tdmpc2", "latent": 16, "hidden": 12, "encoder_hidden": 10, "q_count": 3}


def model(shape: tuple[int, ...] = (3,), **fields) -> LatentModel:
    torch.manual_seed(0)
    return LatentModel(TDMPC2Config(**{**TINY, **fields}), {"observation": shape}, 2, gamma=0.9)


def test_simnorm_is_a_softmax_in_each_group() -> None:
    # Groups of 4: (1, 2, 3, 4) and (0, 0, 0, 0), whose members stand apart.
    x = torch.tensor([[1.0, 0.0, 2.0, 0.0, 3.0, 0.0, 4.0, 0.0]])
    found = SimNorm(8, 4)(x)
    assert found[0, 0::2].tolist() == pytest.approx([0.032059, 0.087144, 0.236883, 0.643914], abs=1e-6)
    assert found[0, 1::2].tolist() == pytest.approx([0.25] * 4)
    with pytest.raises(ConfigError, match="groups of 8"):
        SimNorm(12, 8)


@pytest.mark.parametrize(
    ("x", "places"),
    [
        (1.0, {53: 0.534264, 54: 0.465736}),
        (-1.0, {46: 0.465736, 47: 0.534264}),
        (500.0, {81: 0.916969, 82: 0.083031}),
        (1e6, {100: 1.0}),
    ],
)
def test_numbers_in_bins(x: float, places: dict[int, float]) -> None:
    weights = TwoHot(101, 10.0, "symlog").encode(torch.tensor([x]))[0]
    assert {k: weights[k].item() for k in places} == pytest.approx(places, abs=1e-5)
    assert weights.sum().item() == pytest.approx(1)
    assert (weights > 1e-6).sum() == len(places)


def test_rewards_and_values_begin_at_exactly_zero() -> None:
    made = model()
    z, a = torch.rand(5, 16), torch.rand(5, 2)
    reward, after = made.imagined(z, a)
    assert not reward.any()
    assert not values(list(made.qs), made.scalar, z, a).any()
    assert after.shape == (5, 16)
    torch.testing.assert_close(after.unflatten(-1, (8, 2)).sum(-2), torch.ones(5, 2))
    loss = made.scalar.loss(made.reward(torch.cat([z, a], -1)), torch.ones(5))
    assert loss.tolist() == pytest.approx([math.log(101)] * 5, abs=1e-5)


def test_value_networks_begin_apart_and_small() -> None:
    first = [q[0].linear.weight for q in model(hidden=256).qs]
    for one, other in itertools.combinations(first, 2):
        assert not torch.equal(one, other)
    assert all(weight.std().item() == pytest.approx(0.02, rel=0.15) for weight in first)


def test_dropout_only_while_learning() -> None:
    made = model(dropout=0.5)
    x = torch.rand(4, 18)
    with torch.no_grad():
        made.qs[0][-1].weight.normal_()
        made.eval()
        assert torch.equal(made.qs[0](x), made.qs[0](x))
        made.train()
        assert not torch.equal(made.qs[0](x), made.qs[0](x))


def test_an_episode_ends_where_its_termination_is_more_likely_than_not() -> None:
    assert model().continues(torch.rand(3, 16)) == 1.0
    made = model(episodic=True)
    with torch.no_grad():
        made.end[-1].weight.zero_()
        for logit, continues in ((-0.01, 1.0), (0.0, 1.0), (0.01, 0.0)):
            made.end[-1].bias.fill_(logit)
            assert made.continues(torch.rand(3, 16)).tolist() == [continues] * 3


def picture_encoder(shape: tuple[int, ...] = (9, 64, 64), algo: str = "tdmpc2", **fields) -> PictureEncoder:
    torch.manual_seed(0)
    schema = TDMPCConfig if algo == "tdmpc" else TDMPC2Config
    return PictureEncoder(shape, schema(**schema.fill_in({"env_id": "Pendulum-v1", "algo_id": algo, **fields})))


@pytest.mark.parametrize(
    ("shape", "algo", "parameters"),
    [
        # Convolutions of 32 channels, 7x7, 5x5 and twice 3x3: 14,144 + 25,632 + 2 x 9,248, and nothing behind them.
        ((9, 64, 64), "tdmpc2", 58_272),
        # The same, and a layer from 3 x 3 x 32 features to 50.
        ((9, 84, 84), "tdmpc", 58_272 + 288 * 50 + 50),
    ],
)
def test_the_encoder_of_pictures_has_the_authors_parameters(shape, algo, parameters) -> None:
    encoder = picture_encoder(shape, algo)
    assert sum(parameter.numel() for parameter in encoder.parameters()) == parameters


def test_softmaxes_of_pictures_go_over_eight_neighbours_of_one_channel() -> None:
    encoder = picture_encoder()
    pictures = torch.randint(0, 256, (2, 9, 64, 64), dtype=torch.uint8)
    convolutions = [part for part in encoder.modules() if isinstance(part, torch.nn.Conv2d)]
    x = pictures / 255 - 0.5
    for number, convolution in enumerate(convolutions):
        x = convolution(x.relu() if number else x)
    expected = x.reshape(2, 64, 8).softmax(-1)  # 4 x 4 places of 32 channels: two softmaxes for each channel
    # A group's members stand apart in memory.
    torch.testing.assert_close(encoder(pictures).unflatten(-1, (8, 64)).transpose(-1, -2), expected)


def test_a_latent_that_the_convolutions_do_not_give_is_refused_by_name() -> None:
    with pytest.raises(
        ConfigError, match=r"latent: .* 512 numbers, and latent is 128. Set latent: 512 or encoder_channels: 8"
    ):
        picture_encoder(size="1m")
    assert picture_encoder(size="1m", encoder_channels=8)(torch.zeros(1, 9, 64, 64)).shape == (1, 128)
    with pytest.raises(ConfigError, match="resize_obs"):
        picture_encoder((3, 20, 20))


def shifts(algo: str, side: int, **fields) -> set[int]:
    """How far pictures are moved, in pixels, from a picture that shows its own rows and columns."""
    encoder = picture_encoder((2, side, side), algo, **fields)
    lines = torch.arange(side, dtype=torch.uint8)
    picture = torch.stack([lines[:, None].expand(side, side), lines.expand(side, side)])
    moved = encoder.shifted(picture.expand(1000, -1, -1, -1)).long()
    assert moved.shape == (1000, 2, side, side)
    middle = side // 2
    down, right = (moved[:, 0, middle, middle] - middle).tolist(), (moved[:, 1, middle, middle] - middle).tolist()
    for number in range(0, 1000, 100):
        # Edges are repeated.
        assert torch.equal(
            moved[number, 0], (lines.long() + down[number]).clamp(0, side - 1)[:, None].expand(side, side)
        )
        assert torch.equal(moved[number, 1], (lines.long() + right[number]).clamp(0, side - 1).expand(side, side))
    assert any(one != other for one, other in zip(down, right, strict=True))
    assert set(down) == set(right)
    return set(down)


def test_pictures_are_moved_by_up_to_three_pixels_and_four_in_the_first_version() -> None:
    assert shifts("tdmpc2", 64) == set(range(-3, 4))
    assert shifts("tdmpc2", 84, latent=1152) == set(range(-3, 4))
    assert shifts("tdmpc", 84) == set(range(-4, 5))
    assert shifts("tdmpc", 64) == set(range(-3, 4))


def test_the_first_version_sees_pixels_from_zero_to_one() -> None:
    encoder = picture_encoder((3, 84, 84), "tdmpc")
    black, white = encoder(torch.tensor([0, 255], dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 84, 84))
    assert not black.any()  # biases begin at 0
    x = torch.ones(1, 3, 84, 84)
    for part in encoder.modules():
        if isinstance(part, torch.nn.Conv2d):
            x = part(x).relu()
        elif isinstance(part, torch.nn.Linear):
            x = part(x.flatten(1))
    torch.testing.assert_close(white, x[0])


def test_convolutions_of_the_first_version_begin_orthogonal() -> None:
    convolutions = [
        part for part in picture_encoder((9, 84, 84), "tdmpc").modules() if isinstance(part, torch.nn.Conv2d)
    ]
    assert len(convolutions) == 4
    for convolution in convolutions:
        rows = convolution.weight.flatten(1)
        torch.testing.assert_close(rows @ rows.T, 2 * torch.eye(32), atol=1e-4, rtol=0)  # the gain of ReLU is sqrt(2)
        assert not convolution.bias.any()


def test_the_scale_of_values_follows_slowly_and_stays_above_one() -> None:
    scale = RunningScale(rate=0.5)
    assert scale.update(torch.zeros(10)).item() == 1.0
    assert scale.update(torch.linspace(0, 100, 101)).item() == pytest.approx(0.5 * 1 + 0.5 * 90)


@pytest.mark.parametrize(
    ("steps", "gamma"), [(50, 0.95), (100, 0.95), (250, 0.98), (500, 0.99), (1000, 0.995), (None, 0.99)]
)
def test_the_discount_by_the_length_of_episodes(steps: int | None, gamma: float) -> None:
    assert heuristic_discount(steps) == pytest.approx(gamma)


def test_mixed_observations_are_refused() -> None:
    with pytest.raises(ConfigError, match="one vector or one picture"):
        LatentModel(TDMPC2Config(**TINY), {"image": (3, 64, 64), "vector": (2,)}, 1, 0.9)


def test_sizes_fill_in_what_is_left_open() -> None:
    filled = TDMPC2Config.fill_in({"size": "1m", "latent": 64})
    assert filled["latent"] == 64
    assert filled["hidden"] == SIZES["1m"]["hidden"]


def test_a_first_step_from_shared_latents_is_any_step() -> None:
    made = model().double()
    latent, action = torch.rand(2, 16).double(), torch.randn(6, 2).double()
    torch.nn.init.normal_(made.reward[-1].weight)
    for rows in (latent, latent[:1]):
        repeated = rows.repeat_interleave(6 // len(rows), 0)
        expected = made.imagined(repeated, action)
        found = made.imagined_from(made.bases(rows, 6 // len(rows)), action)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)


def test_values_of_actions_teach_nothing_but_actions() -> None:
    made = model().double().eval()
    for q in made.qs:
        torch.nn.init.normal_(q[-1].weight)
    latent = torch.rand(4, 5, 16, dtype=torch.float64, requires_grad=True)
    action = torch.randn(4, 5, 2, dtype=torch.float64, requires_grad=True)
    twin = action.detach().clone().requires_grad_()
    expected, found = (
        values(made.qs, made.scalar, latent, action),
        values_of_actions(made.qs, made.scalar, latent, twin),
    )
    torch.testing.assert_close(found, expected)
    expected.sum().backward()
    assert latent.grad is not None
    latent.grad = None
    found.sum().backward()
    torch.testing.assert_close(twin.grad, action.grad)
    assert latent.grad is None
