"""bf16-mixed: every algorithm that takes it trains and goes on in it, and its losses are float32's but for the rounding of networks."""

import csv

import numpy as np
import pytest
import torch
from small_experiments import DREAMER, EXPERIMENTS, ON_POLICY, TDMPC, train_small

import gymlab
from gymlab.components.full_precision import full_precision
from gymlab.components.symlog import TwoHot, UnitNormal
from gymlab.engine.workflow import find_workflow
from gymlab.errors import ConfigError

MIXED = "bf16-mixed"
CNN = {"policy": "cnn", "policy_kwargs": {"channels": [4], "kernel_sizes": [4], "strides": [4]}}
EXPERIMENTS |= {
    "ppo_pixels": ("BriefPicture-v0", "ppo", {**ON_POLICY, **CNN}),
    "dreamer_pixels": (
        "BriefPicture-v0",
        "dreamer",
        {**DREAMER, "classes": 4, "blocks": 2, "cnn_depth": 2, "resize_obs": [32, 32]},
    ),
    "dreamer_v2_pixels": (
        "BriefPicture-v0",
        "dreamer",
        {**DREAMER, "version": "v2", "classes": 4, "cnn_depth": 2, "pretrain_updates": 2, "resize_obs": [64, 64]},
    ),
    "tdmpc2_pixels": (
        "BriefPicture-v0",
        "tdmpc2",
        {**TDMPC, "latent": 64, "encoder_channels": 4, "resize_obs": [64, 64]},
    ),
}
TAKES_IT = [name for name, (_, algorithm, _) in EXPERIMENTS.items() if find_workflow(algorithm).mixed_precision]
REFUSES = {"q_learning": "q_learning", "world_models": "world_models"}
TOLERANCE = 0.02
"""Of a loss, and of 1 where it is smaller: bfloat16 keeps 8 bits, which is 0.4% of a number."""


def rows(run):
    with (run.dir / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def losses(run):
    """The first of each loss that was logged."""
    found = {}
    for row in rows(run):
        for name, value in row.items():
            if name.startswith("train/loss/") and value and name not in found:
                found[name] = float(value)
    return found


@pytest.mark.parametrize("name", TAKES_IT)
def test_it_trains_with_the_losses_of_float32_and_goes_on_where_it_stopped(tmp_path, name):
    """The same seed, steps and batches: what differs in the first losses is the rounding of products."""
    short = {"n_envs": 4, "max_env_steps": 56, "epoch_env_steps": 8}
    full, half = (train_small(name, tmp_path / kind, precision=kind, **short) for kind in ("32-true", MIXED))
    expected, found = losses(full), losses(half)
    assert expected.keys() == found.keys()
    assert expected
    for key, value in expected.items():
        assert abs(found[key] - value) <= TOLERANCE * max(1.0, abs(value)), (key, value, found[key])
    model = half.checkpoints.find().read_model()
    assert all(tensor.dtype != torch.bfloat16 and tensor.isfinite().all() for tensor in model.values())
    updates = half.record["counters"]["updates"]
    again = gymlab.resume(name, runs_dir=tmp_path / MIXED, max_env_steps=84)
    assert again.record["counters"]["env_steps"] == 84
    assert again.record["counters"]["updates"] > updates > 0
    assert all(np.isfinite(value) for value in losses(again).values())
    agent = gymlab.load(str(again.dir))
    seen = np.zeros(agent.observation_space.shape, agent.observation_space.dtype)
    assert np.isfinite(agent.act(seen)).all()


@pytest.mark.parametrize("name", REFUSES)
def test_an_algorithm_without_it_refuses_it_by_name(tmp_path, name):
    with pytest.raises(ConfigError, match=r"precision"):
        train_small(name, tmp_path, n_envs=4, max_env_steps=96, precision=MIXED)


@pytest.mark.parametrize("precision", ["16-mixed", "16-true", "bf16-true", "64-true", "8"])
@pytest.mark.parametrize("name", ["ppo", "dreamer_v3"])
def test_other_formats_are_refused_by_name(tmp_path, name, precision):
    with pytest.raises(ConfigError, match=f"precision: '{precision}' is none of 32-true and bf16-mixed"):
        train_small(name, tmp_path, n_envs=4, max_env_steps=96, precision=precision)


@pytest.mark.parametrize("spacing", ["symexp", "symlog"])
def test_bins_are_read_and_learned_in_float32_under_autocast(spacing):
    bins, generator = TwoHot(spacing=spacing), torch.Generator().manual_seed(0)
    layer, hidden = torch.nn.Linear(8, bins.size), torch.randn(40, 8, generator=generator)
    logits, target = torch.randn(40, bins.size, generator=generator), 300 * torch.randn(40, generator=generator)
    weight = torch.rand(40, generator=generator)

    def computed():
        return [
            bins.mean(logits),
            bins.loss(logits, target),
            bins.behind(layer, hidden),
            bins.loss_behind(layer, hidden, [target, -target], weight),
        ]

    expected = computed()
    with torch.autocast("cpu", torch.bfloat16):
        found = computed()
    for one, other in zip(expected, found, strict=True):
        assert torch.equal(one, other)


def test_halves_are_widened_before_a_scalar_is_compared():
    normal, target = UnitNormal(), torch.tensor([1000.25])
    with torch.autocast("cpu", torch.bfloat16):
        loss = normal.loss(torch.tensor([[1000.0]], dtype=torch.bfloat16), target)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(0.5 * 0.25**2)


def test_without_autocast_nothing_is_changed():
    seen = []

    @full_precision
    def look(x):
        seen.append(x)
        return x

    half = torch.ones(2, dtype=torch.bfloat16)
    assert look(half) is half
    with torch.autocast("cpu", torch.bfloat16):
        assert look(half).dtype == torch.float32
