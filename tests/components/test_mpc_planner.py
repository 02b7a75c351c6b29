"""Planning by sampling: the update by hand-computed numbers, and known objectives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gymlab.components.mpc_planner import MPCPlanner
from gymlab.errors import ConfigError


def test_weights_mean_and_deviation_of_the_best() -> None:
    planner = MPCPlanner(1, 1, samples=3, elites=3, temperature=0.5, momentum=0.0)
    weights = planner.weights(torch.tensor([[1.0, 2.0, 4.0]]))
    torch.testing.assert_close(weights, torch.tensor([[0.140244, 0.231224, 0.628532]]), atol=1e-6, rtol=0)
    elites = torch.tensor([-1.0, 0.0, 0.5]).view(1, 3, 1, 1)
    mean, std = planner._fit(elites, weights[:, :, None, None], torch.zeros(1, 1, 1))
    assert mean.item() == pytest.approx(0.174021, abs=1e-6)
    assert std.item() == pytest.approx(0.516811, abs=1e-6)


def test_momentum_keeps_a_share_of_the_old_mean() -> None:
    planner = MPCPlanner(1, 1, samples=2, elites=1, momentum=0.1)
    mean, _ = planner._fit(torch.full((1, 1, 1, 1), 0.5), torch.ones(1, 1, 1, 1), torch.full((1, 1, 1), -0.5))
    assert mean.item() == pytest.approx(0.1 * -0.5 + 0.9 * 0.5)


def test_cem_weighs_the_best_evenly() -> None:
    weights = MPCPlanner(1, kind="cem").weights(torch.tensor([[1.0, 2.0, 4.0, 9.0]]))
    torch.testing.assert_close(weights, torch.full((1, 4), 0.25))


@pytest.mark.parametrize("kind", ["mppi", "cem"])
def test_it_finds_the_best_of_a_parabola_for_each_environment(kind) -> None:
    planner = MPCPlanner(1, 1, kind, samples=512, elites=64)
    targets = torch.tensor([0.3, -0.6]).view(2, 1, 1, 1)
    planned = planner.plan(
        lambda actions: -(actions - targets).square().sum((2, 3)), planner.start(2), np.random.default_rng(0)
    )
    torch.testing.assert_close(planned.mean, targets[:, 0], atol=0.05, rtol=0)
    assert planned.action.shape == (2, 1)
    assert planned.elites.shape == (2, 64, 1, 1)
    assert (planned.std >= 0.05).all()
    assert planned.value[0] == pytest.approx(0, abs=0.05)
    assert planned.unusable == 0


def test_it_finds_the_best_choices() -> None:
    planner = MPCPlanner(3, 4, choices=[3], samples=256, elites=16)
    best = torch.eye(3)[torch.tensor([2, 0, 1, 1])]
    planned = planner.plan(lambda actions: (actions * best).sum((2, 3)), planner.start(1), np.random.default_rng(0))
    assert torch.equal(planned.mean[0].argmax(-1), torch.tensor([2, 0, 1, 1]))
    torch.testing.assert_close(planned.mean.sum(-1), torch.ones(1, 4))
    assert (planned.mean > 0).all()
    assert torch.equal(planned.action[0], best[0])


def test_choices_side_by_side_are_made_each_for_itself() -> None:
    planner = MPCPlanner(5, 1, choices=[2, 3], samples=64, elites=8)
    best = torch.tensor([0.0, 1.0, 0.0, 0.0, 1.0])
    planned = planner.plan(lambda actions: (actions * best).sum((2, 3)), planner.start(1), np.random.default_rng(0))
    assert planned.action[0].tolist() == best.tolist()
    assert planner.start(1).flatten().tolist() == pytest.approx([1 / 2] * 2 + [1 / 3] * 3)


def test_proposals_take_part_in_every_round() -> None:
    planner = MPCPlanner(1, 2, samples=8, elites=1, iterations=3, max_std=0.05)
    proposal = torch.full((1, 1, 2, 1), 0.9)
    planned = planner.plan(lambda a: a.sum((2, 3)), planner.start(1), np.random.default_rng(0), proposal)
    assert planned.action.item() >= 0.9


def test_a_plan_is_followed_and_forgotten_where_an_episode_begins() -> None:
    planner = MPCPlanner(1, 3)
    mean = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).unsqueeze(-1)
    moved = planner.follow(mean, torch.tensor([False, True]))
    assert moved.squeeze(-1).tolist() == [[2.0, 3.0, 0.0], [0.0, 0.0, 0.0]]
    choices = MPCPlanner(4, 2, choices=[4])
    assert choices.follow(torch.ones(1, 2, 4), torch.tensor([True])).flatten().tolist() == [0.25] * 8


def test_exploring_adds_the_plans_own_noise() -> None:
    planner = MPCPlanner(1, 1, samples=16, elites=4, min_std=0.3, max_std=0.3)
    actions = [
        planner.plan(
            lambda a: -a.square().sum((2, 3)), planner.start(1), np.random.default_rng(seed), explore=True
        ).action.item()
        for seed in range(200)
    ]
    assert np.std(actions) > 0.25
    assert np.abs(actions).max() <= 1


def test_values_that_are_no_numbers_count_as_zero_and_are_counted() -> None:
    planner = MPCPlanner(1, 1, samples=4, elites=4, iterations=2)
    planned = planner.plan(lambda a: torch.full(a.shape[:2], torch.nan), planner.start(1), np.random.default_rng(0))
    assert planned.unusable == 8
    assert planned.value.item() == 0


def test_the_same_generator_plans_the_same() -> None:
    planner = MPCPlanner(1, 2, samples=32, elites=4)
    found = [planner.plan(lambda a: a.sum((2, 3)), planner.start(1), np.random.default_rng(5)) for _ in range(2)]
    assert torch.equal(found[0].action, found[1].action)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"elites": 9}, "elites must be 1 to samples"),
        ({"min_std": 3.0}, "min_std"),
        ({"choices": [2, 3]}, "no action vector of 1"),
    ],
)
def test_what_cannot_be_planned_with_is_refused(options, said) -> None:
    with pytest.raises(ConfigError, match=said):
        MPCPlanner(1, samples=8, **{"elites": 4, **options})
