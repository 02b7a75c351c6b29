"""PPO that learns from older rollouts as well."""

import numpy as np
import pytest
import torch
from fake_environment import identity

from gymlab.engine.workflow import PhaseView
from gymlab.workflows.ppo import effective_share

VIEW = PhaseView("ppo", "online", 0.0, 0, 0, 0, None)
QUICK = {"n_steps": 16, "batch_size": 32, "n_epochs": 4, "policy_lr": 3e-3, "gamma": 0.5}


@pytest.mark.learns
def test_replay_learns_and_is_tracked(make_ppo, train):
    workflow = make_ppo(identity(length=1), replay_ratio=2, replay_buffer_size=512, **QUICK)
    trained = train(workflow, 6_000)
    assert np.mean(trained.returns[-200:]) > 0.95
    shares = [row["opt/replay/effective_sample_share"] for row in trained.metrics[1:]]
    assert all(0 < share <= 1 for share in shares)
    assert trained.updates > make_plain_updates(6_000)


def make_plain_updates(env_steps):
    return env_steps // (16 * 8) * 16


def test_replay_ratio_zero_changes_nothing(make_ppo, train):
    weights = []
    for settings in ({}, {"replay_ratio": 0, "replay_buffer_size": 64, "replay_is_clip": 2.0}):
        workflow = make_ppo(identity(), **QUICK | settings)
        train(workflow, 512)
        assert workflow.default_buffers()["rollout"].capacity == 0
        weights.append(workflow.flat.parameter.detach().clone())
    assert torch.equal(*weights)


def test_rollouts_too_far_from_the_policy_are_not_reused(make_ppo):
    workflow = make_ppo(identity(), replay_ratio=3, **QUICK)
    rollout = workflow.collect(VIEW).trajectory.copy()
    rollout.log_probs[::4] -= 8
    updated = workflow.update_controller([workflow.collect(VIEW).trajectory, rollout], VIEW)
    assert updated.metrics["opt/replay/passes"] == 0
    assert updated.metrics["opt/replay/effective_sample_share"] < 0.5
    assert updated.updates == 16


def test_effective_share():
    assert effective_share(np.ones(8, np.float32)) == pytest.approx(1.0)
    assert effective_share(np.array([1.0, 0, 0, 0])) == pytest.approx(0.25)
    assert effective_share(np.array([])) == 0.0
