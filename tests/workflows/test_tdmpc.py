"""TD-MPC2: what learns from what, where windows cross episodes, planning, and every kind of action and observation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gymlab
from gymlab.components.dreaming import time_first
from gymlab.engine.setup import prepare
from gymlab.engine.workflow import PhaseView
from gymlab.errors import ConfigError

TINY = {
    "size": "tiny",
    "latent": 16,
    "hidden": 16,
    "encoder_hidden": 16,
    "encoder_channels": 4,
    "q_count": 3,
    "batch_size": 8,
    "plan_samples": 16,
    "plan_policy_samples": 4,
    "plan_elites": 4,
    "plan_iterations": 2,
    "seed_steps": 60,
    "replay_size": 2000,
    "n_envs": 2,
    "quiet": True,
    "video": False,
    "torch_threads": 1,
}
TRAIN = PhaseView("train", "online", 0.0, 0, 0, 0, None)
RANDOM = PhaseView("seed", "online", 0.0, 0, 0, 0, None, {"actions": "random"})


def session(env: str = "Pendulum-v1", **fields):
    torch.manual_seed(0)
    made = prepare(gymlab.resolve(env, algo="tdmpc", **{**TINY, **fields}).config)
    for _ in range(60):
        made.buffers["replay"].add(made.workflow.collect(RANDOM).trajectory)
    return made


def shaken(made):
    """Last layers begin at zero: give everything something to say."""
    with torch.no_grad():
        for parameter in made.workflow.model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


@pytest.mark.parametrize(
    ("env", "fields"),
    [
        ("Pendulum-v1", {}),
        ("CartPole-v1", {"episodic": True}),
        ("CartPole-v1", {"planner": "cem"}),
        ("CartPole-v1", {"obs_type": "rgb", "resize_obs": [64, 64]}),
    ],
)
def test_every_kind_takes_a_step_and_moves_all_its_networks(env, fields) -> None:
    made = session(env, **fields)
    workflow = made.workflow
    made.buffers["replay"].add(workflow.collect(TRAIN).trajectory)
    before = {name: p.clone() for m in ("model", "policy") for name, p in workflow.modules[m].named_parameters(m)}
    for _ in range(3):
        result = workflow.update_agent(made.buffers["replay"].sample(), TRAIN)
    for module in ("model", "policy"):
        for name, parameter in workflow.modules[module].named_parameters(module):
            assert not torch.equal(parameter, before[name]), name
    assert np.isfinite([float(value) for value in result.metrics.values()]).all()
    action, state, extras = workflow.act(made.environment.observation)
    again, _, _ = workflow.act(made.environment.observation, state, deterministic=True)
    assert made.environment.action_space.contains(action[0])
    assert action.shape == again.shape
    assert extras["value"].shape == (2,)
    made.close()


def losses_of(workflow, data, alive):
    rho = 0.5 ** torch.arange(4.0).unsqueeze(1)
    workflow.model.eval()
    return workflow._model_losses(data, alive, rho)


def test_steps_weigh_by_rho_and_are_divided_by_the_horizon() -> None:
    made = shaken(session())
    workflow = made.workflow
    data = batch(made)
    alive = torch.ones(3, 8)
    losses, _, latents = losses_of(workflow, data, alive)
    with torch.no_grad():
        ahead = workflow.model.encoder(data["observation/vector"][1:])
        errors = (latents[1:] - ahead).square().mean((1, 2))
    expected = 20 * (errors[0] + 0.5 * errors[1] + 0.25 * errors[2]) / 3
    torch.testing.assert_close(losses["consistency"].detach(), expected)


def batch(made) -> dict[str, torch.Tensor]:
    return time_first(made.buffers["replay"].sample().values, 0, torch.device("cpu"))


def test_nothing_behind_an_episodes_end_counts() -> None:
    made = shaken(session())
    workflow = made.workflow
    data = batch(made)
    alive = torch.ones(3, 8)
    alive[1:, 0] = 0  # row 0 begins another episode at its third record
    torch.manual_seed(1)
    one = losses_of(workflow, data, alive)[0]
    data["observation/vector"][2:, 0] += 5
    data["reward"][2:, 0] += 5
    torch.manual_seed(1)
    two = losses_of(workflow, data, alive)[0]
    for name, loss in one.items():
        torch.testing.assert_close(loss, two[name], msg=name)


def test_targets_are_the_smaller_of_two_slow_values_and_end_with_the_episode() -> None:
    made = session(q_count=2)
    workflow = made.workflow
    middle = workflow.config.bins // 2
    with torch.no_grad():
        for number, q in enumerate(workflow.slow_qs):
            q[-1].bias.fill_(-1e4)[middle + 5 * (number + 1)] = 0  # symexp(1) and symexp(2)
    reward, terminal = torch.tensor([[1.0, 1.0]]), torch.tensor([[0.0, 1.0]])
    target = workflow._targets(torch.rand(1, 2, 16), reward, terminal)
    gamma = float(workflow.model.gamma)
    assert gamma == pytest.approx(0.975)  # episodes of 200 steps
    assert target[0].tolist() == pytest.approx([1 + gamma * (np.e - 1), 1.0], rel=1e-4)


def test_the_policy_teaches_nobody_else() -> None:
    made = shaken(session())
    workflow = made.workflow
    latents = torch.rand(4, 8, 16, requires_grad=True)
    loss, _ = workflow._policy_loss(latents.detach(), torch.ones(3, 8), 0.5 ** torch.arange(4.0).unsqueeze(1))
    loss.backward()
    assert all(p.grad is None for p in workflow.model.parameters())
    assert all(p.grad is not None for p in workflow.policy.parameters())
    assert all(p.requires_grad for p in workflow.model.parameters())


def test_slow_values_follow_and_the_encoder_learns_slower() -> None:
    made = session()
    workflow = made.workflow
    slow = [p.clone() for p in workflow.slow_qs.parameters()]
    workflow.update_agent(made.buffers["replay"].sample(), TRAIN)
    for old, new, fast in zip(slow, workflow.slow_qs.parameters(), workflow.model.qs.parameters(), strict=True):
        torch.testing.assert_close(new, torch.lerp(old, fast.detach(), 0.01))
    rates = [group["lr"] for group in workflow.optimizers["model"].param_groups]
    assert rates == pytest.approx([0.3 * 3e-4, 3e-4])


def test_plans_begin_anew_with_an_episode() -> None:
    made = session()
    workflow = made.workflow
    state = workflow.initial_state(2)
    _, followed, _ = workflow.act(made.environment.observation, state)
    assert followed.mean.abs().sum() > 0
    kept = workflow.reset_state(followed, np.array([False, True]))
    assert torch.equal(kept.mean[0], followed.mean[0])
    assert not kept.mean[1].any()
    assert not followed.mean[:, -1].any()


def test_plans_go_where_the_model_sees_reward() -> None:
    made = session(plan_samples=128, plan_elites=16, plan_iterations=6)
    workflow = made.workflow
    # Rewards of the model: the larger the action, the better; values say nothing.
    workflow.model.imagined = lambda z, action: (action[:, 0], z)
    planned = workflow._plan(torch.rand(3, 16), workflow.initial_state(3), np.random.default_rng(0))
    assert (planned.mean > 0.7).all()


def test_forbidden_choices_are_not_planned() -> None:
    made = session("CartPole-v1")
    workflow = made.workflow
    mask = np.array([[True, False], [False, True]])
    for _ in range(5):
        action, _, _ = workflow.act(made.environment.observation, action_mask=mask)
        assert action.tolist() == [0, 1]
    continuous = session()
    with pytest.raises(ConfigError, match="continuous actions cannot be masked"):
        continuous.workflow.act(continuous.environment.observation, action_mask=mask)


def test_an_agent_that_is_loaded_keeps_its_discount() -> None:
    made = session(max_episode_steps=500)
    assert float(made.workflow.model.gamma) == pytest.approx(0.99)
    assert "gamma" in made.workflow.model.state_dict()


def test_it_is_described() -> None:
    described = session().workflow.describe()
    assert described["gamma"] == 0.975
    assert described["plan"] == "16 sequences of 3 actions, 2 rounds"
