"""The networks of TD-MPC2, by hand-computed values."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch.nn import functional

from gymlab.components.symlog import TwoHot
from gymlab.components.tdmpc_config import SIZES, TDMPCConfig, heuristic_discount
from gymlab.components.tdmpc_networks import LatentModel, Mish, PictureEncoder, RunningScale, SimNorm, values
from gymlab.errors import ConfigError

TINY = {"env_id": "Pendulum-v1", "algo_id": "tdmpc", "latent": 16, "hidden": 12, "encoder_hidden": 10, "q_count": 3}


def model(shape: tuple[int, ...] = (3,), **fields) -> LatentModel:
    torch.manual_seed(0)
    return LatentModel(TDMPCConfig(**{**TINY, **fields}), {"observation": shape}, 2, gamma=0.9)


def test_simnorm_is_a_softmax_in_each_group() -> None:
    # Groups of 4: (1, 2, 3, 4) and (0, 0, 0, 0), whose members stand apart.
    x = torch.tensor([[1.0, 0.0, 2.0, 0.0, 3.0, 0.0, 4.0, 0.0]])
    found = SimNorm(8, 4)(x)
    assert found[0, 0::2].tolist() == pytest.approx([0.032059, 0.087144, 0.236883, 0.643914], abs=1e-6)
    assert found[0, 1::2].tolist() == pytest.approx([0.25] * 4)
    with pytest.raises(ConfigError, match="groups of 8"):
        SimNorm(12, 8)


def test_mish_is_torchs() -> None:
    x = torch.tensor([-100.0, -5.0, -0.3, 0.0, 3.0, 30.0, 1e4], dtype=torch.float64, requires_grad=True)
    twin = x.detach().clone().requires_grad_()
    found, expected = Mish()(x), functional.mish(twin)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(x.grad, twin.grad, atol=1e-8, rtol=1e-6)


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
    first = [q[0].weight for q in model(hidden=256).qs]
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


def test_ends_are_learned_where_asked_for() -> None:
    assert model().going_on(torch.rand(3, 16)) == 1.0
    going_on = model(episodic=True).going_on(torch.rand(3, 16))
    assert going_on.shape == (3,)
    assert ((going_on > 0) & (going_on < 1)).all()


def test_pictures_are_moved_about_only_while_learning() -> None:
    encoder = PictureEncoder((3, 64, 64), 8, 16, 8)
    picture = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    encoder.eval()
    assert torch.equal(encoder(picture), encoder(picture))
    assert encoder(picture).shape == (2, 16)
    encoder.train()
    moved = encoder._moved(picture.float())
    assert moved.shape == picture.shape
    padded = functional.pad(picture.float(), (3, 3, 3, 3), mode="replicate")
    windows = [padded[0, :, r : r + 64, c : c + 64] for r in range(7) for c in range(7)]
    assert any(torch.equal(moved[0], window) for window in windows)


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
        LatentModel(TDMPCConfig(**TINY), {"image": (3, 64, 64), "vector": (2,)}, 1, 0.9)


def test_sizes_fill_in_what_is_left_open() -> None:
    filled = TDMPCConfig.fill_in({"size": "1m", "latent": 64})
    assert filled["latent"] == 64
    assert filled["hidden"] == SIZES["1m"]["hidden"]
