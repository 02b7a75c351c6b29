import copy
import math

import numpy as np
import pytest
import torch
from fake_environment import FakeEnvironment, clocked, identity
from gymnasium import spaces

from gymlab.buffers.rollout import Rollout
from gymlab.components.distributions import Categorical, DiagonalGaussian
from gymlab.components.minibatch import Coefficients, Minibatch
from gymlab.config.schema import Config
from gymlab.engine.seeding import SeedTree
from gymlab.engine.workflow import PhaseView, find_workflow
from gymlab.envs import make_vector
from gymlab.workflows.reinforce import Reinforce, ReinforceConfig, policy_gradient_loss

VIEW = PhaseView("reinforce", "online", 0.0, 0, 0, 0, None)
PLAIN = Coefficients(None, None, vf_coef=0.0, ent_coef=0.0)
QUICK = {"n_steps": 16, "batch_size": 128, "policy_lr": 1e-2, "gamma": 0.5}


def cartpole(num_envs=4):
    return make_vector(Config(env_id="CartPole-v1", algo_id="reinforce"), num_envs, SeedTree(0))


def gradient(logits, actions, psi):
    """d loss / d logits [B, A] of the policy's part alone."""
    logits = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    weights = torch.as_tensor(psi, dtype=torch.float64)
    zeros = torch.zeros_like(weights)
    batch = Minibatch(None, torch.as_tensor(actions), zeros, weights, zeros, zeros)
    loss, _ = policy_gradient_loss(logits, zeros, batch, PLAIN, Categorical(logits.shape[-1]))
    return torch.autograd.grad(loss, logits)[0].numpy()


def rollout_of(rewards, *, ended=(), truncated=(), values=0.0, valid=None, seed=0):
    """A rollout with the given rewards [T, N] of a clocked environment; rows (t, n) in `ended` are terminated."""
    rewards = np.array(rewards, np.float32)
    generator = np.random.default_rng(seed)
    flags = np.zeros((2, *rewards.shape), bool)
    for kind, places in enumerate((ended, truncated)):
        for place in places:
            flags[kind][place] = True
    cut_rows = np.flatnonzero(flags[1])
    return Rollout(
        observations=generator.random((*rewards.shape, 1), np.float32),
        actions=generator.integers(2, size=rewards.shape),
        log_probs=np.full(rewards.shape, math.log(0.5), np.float32),
        values=np.full(rewards.shape, values, np.float32),
        bootstrap_values=np.full(len(cut_rows), 10, np.float32),
        rewards=rewards,
        terminated=flags[0],
        truncated=flags[1],
        bootstrap_observations=np.zeros((len(cut_rows), 1), np.float32),
        bootstrap_rows=cut_rows,
        valid=None if valid is None else np.array(valid, bool),
    )


def psi_of(workflow, rollout):
    return workflow._columns(rollout).advantages.reshape(rollout.rewards.shape)


@pytest.mark.parametrize(
    ("returns_type", "expected"), [("mc:rtg", (2.62, 1.8, 2.0)), ("mc:episode", (2.62, 2.62, 2.62))]
)
def test_returns_by_hand(make_reinforce, returns_type, expected):
    workflow = make_reinforce(clocked(1, 3), returns_type=returns_type, gamma=0.9)
    np.testing.assert_allclose(psi_of(workflow, rollout_of([[1], [0], [2]], ended=[(2, 0)]))[:, 0], expected, rtol=1e-6)
    perturbed = psi_of(workflow, rollout_of([[5], [0], [2]], ended=[(2, 0)]))[:, 0]
    changed = ~np.isclose(perturbed, expected)
    np.testing.assert_array_equal(changed, [True, returns_type == "mc:episode", returns_type == "mc:episode"])


@pytest.mark.parametrize(
    ("returns_type", "expected"), [("mc:rtg", (2.12, 1.3, 1.5)), ("mc:episode", (2.12, 2.12, 2.12))]
)
def test_the_baseline_is_taken_off_the_return_or_off_that_of_the_first_step(make_reinforce, returns_type, expected):
    workflow = make_reinforce(clocked(1, 3), returns_type=returns_type, gamma=0.9, policy_targets="advantages")
    rollout = rollout_of([[1], [0], [2]], ended=[(2, 0)], values=0.5)
    np.testing.assert_allclose(psi_of(workflow, rollout)[:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(workflow._columns(rollout).returns, [2.62, 1.8, 2.0], rtol=1e-6)


@pytest.mark.parametrize(("targets", "expected"), [("returns", (1.9, 1.0)), ("advantages", (10.0, 10.0))])
def test_a_time_limit_ends_the_episode_unless_a_baseline_sees_further(make_reinforce, targets, expected):
    """gamma .9 and V = 10 behind the cut: 1 + .9 (1 + .9 x 10) = 10 = 1 + .9 x 10."""
    workflow = make_reinforce(clocked(1, 2), gamma=0.9, policy_targets=targets)
    found = psi_of(workflow, rollout_of([[1], [1]], truncated=[(1, 0)]))[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_textbook_s_power_of_gamma(make_reinforce):
    workflow = make_reinforce(clocked(1, 3), gamma=0.5, discount_states=True)
    found = psi_of(workflow, rollout_of([[1], [1], [1], [1]], ended=[(1, 0), (3, 0)]))[:, 0]
    np.testing.assert_allclose(found, [1.5, 0.5, 1.5, 0.5])


def test_score_of_a_softmax():
    np.testing.assert_allclose(-gradient([[0.0, 0.0]], [0], [1.0]), [[0.5, -0.5]])


def test_the_expected_score_is_zero():
    logits = [0.3, -1.2, 2.0]
    p = np.exp(logits) / np.exp(logits).sum()
    scores = [-gradient([logits], [action], [1.0])[0] for action in range(3)]
    np.testing.assert_allclose(p @ np.array(scores), 0, atol=1e-7)


@pytest.mark.parametrize("baseline", [0.0, 0.5, 3.0])
def test_two_armed_bandit_and_any_constant_baseline(baseline):
    """Rewards (1, 0) at p = .5: the gradient of the first logit is p (1 - p) = .25, whatever is taken off."""
    exact = [-gradient([[0.0, 0.0]], [arm], [reward - baseline])[0, 0] for arm, reward in ((0, 1.0), (1, 0.0))]
    assert np.mean(exact) == pytest.approx(0.25)
    arms = np.random.default_rng(0).integers(2, size=100_000)
    sampled = -gradient(np.zeros((len(arms), 2)), arms, (arms == 0) - baseline).sum(0)
    deviation = np.std(exact)
    assert sampled[0] == pytest.approx(0.25, abs=4 * deviation / math.sqrt(len(arms)) + 1e-9)
    assert deviation == pytest.approx(0.5 * abs(baseline - 0.5)), "none at all where it is the expected return"


def test_no_gradient_of_the_policy_s_loss_reaches_the_baseline(make_reinforce):
    workflow = make_reinforce(cartpole(), policy_targets="advantages", **QUICK)
    columns = workflow._columns(workflow.collect(VIEW).trajectory)
    found = {}
    for weight in (0.0, 1.0):
        workflow.gradient(columns, Coefficients(None, None, vf_coef=weight, ent_coef=0.01))
        found[weight] = {
            part: [parameter.grad.clone() for parameter in parameters] for part, parameters in workflow.parts.items()
        }
    assert all(not gradient.any() for gradient in found[0.0]["value"])
    assert all(gradient.any() for gradient in found[1.0]["value"])
    assert any(gradient.any() for gradient in found[0.0]["policy"])
    for alone, together in zip(found[0.0]["policy"], found[1.0]["policy"], strict=True):
        torch.testing.assert_close(alone, together)


def test_a_rewarded_action_becomes_likelier(make_reinforce):
    environment = FakeEnvironment(
        8,
        spaces.Discrete(3),
        observe=lambda generator, clock: np.ones((8, 3), np.float32),
        reward=lambda observation, action: action == 1,
        length=1,
    )
    workflow = make_reinforce(environment, **QUICK, ent_coef=0.0)
    shown = environment.reset()
    before = workflow.act(shown)[2]["probabilities"]
    workflow.update_controller([workflow.collect(VIEW).trajectory], VIEW)
    after = workflow.act(shown)[2]["probabilities"]
    assert np.all(after[:, 1] > before[:, 1])


def test_continuous_log_probs_are_summed_over_dimensions_before_they_are_weighted():
    distribution = DiagonalGaussian(spaces.Box(-1, 1, (2,), np.float32))
    means, log_stds = torch.tensor([[0.1, -0.2], [0.5, 0.0]]), torch.tensor([[0.3, -0.4]]).expand(2, 2)
    actions, psi = torch.tensor([[2.0, -3.0], [0.0, 1.0]]), torch.tensor([1.5, -0.5])
    zeros = torch.zeros(2)
    loss, statistics = policy_gradient_loss(
        torch.cat([means, log_stds], -1), zeros, Minibatch(None, actions, zeros, psi, zeros, zeros), PLAIN, distribution
    )
    expected = -(torch.distributions.Normal(means, log_stds.exp()).log_prob(actions).sum(-1) * psi).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert statistics.shape == (3,)


def test_episodes_of_unequal_length_are_as_one_after_the_other(make_reinforce):
    """Two environments, episodes of 3 and 1 steps, the rest given up: the same update as on the four steps in one column."""
    side_by_side = rollout_of(
        [[1, 4], [2, 9], [3, 9]], ended=[(2, 0), (0, 1)], valid=[[True, True], [True, False], [True, False]]
    )
    column = rollout_of([[1], [2], [3], [4]], ended=[(2, 0), (3, 0)])
    for name in ("observations", "actions"):
        array = getattr(side_by_side, name)
        setattr(column, name, np.concatenate([array[:, :1], array[:1, 1:]]))
    found = []
    for num_envs, rollout in ((2, side_by_side), (1, column)):
        workflow = make_reinforce(clocked(num_envs, 3), **QUICK)
        workflow.update_controller([rollout], VIEW)
        found.append(workflow.flat.gradient.clone())
    assert found[0].any()
    torch.testing.assert_close(*found)


def test_with_a_baseline_it_is_ppo_s_first_gradient_at_lambda_one(make_reinforce, make_ppo):
    settings = {"n_steps": 64, "batch_size": 10_000, "gamma": 0.9, "ent_coef": 0.01, "max_grad_norm": None}
    reinforce = make_reinforce(cartpole(), policy_targets="advantages", **settings)
    ppo = make_ppo(cartpole(), n_epochs=1, gae_lambda=1.0, vf_coef=1.0, normalize_advantages="off", **settings)
    ppo.modules["policy"].load_state_dict(reinforce.modules["policy"].state_dict())
    rollout = reinforce.collect(VIEW).trajectory
    ppo.update_controller([copy.deepcopy(rollout)], VIEW)
    reinforce.update_controller([rollout], VIEW)
    torch.testing.assert_close(reinforce.flat.gradient, ppo.flat.gradient, rtol=1e-4, atol=1e-5)


def test_the_running_mean_knows_earlier_rollouts_only(make_reinforce):
    workflow = make_reinforce(clocked(1, 1), normalize_returns="baseline")
    assert [float(workflow._running_mean(mean)) for mean in (4.0, 10.0, 1.0)] == [4.0, 4.0, 7.0]
    for _ in range(30):
        workflow._running_mean(3.0)
    assert float(workflow._running_mean(0.0)) == 3.0


def test_one_environment_and_one_step_is_one_episode_an_update(make_reinforce):
    workflow = make_reinforce(clocked(1, 7), n_steps=1, batch_size=1)
    for _ in range(2):
        collected = workflow.collect(VIEW)
        assert (collected.env_steps, collected.vec_steps, len(collected.episodes)) == (7, 7, 1)
        assert workflow.update_controller([collected.trajectory], VIEW).updates == 1


def test_the_budget_is_kept_and_an_episode_without_an_end_teaches_nothing(make_reinforce):
    workflow = make_reinforce(clocked(2, 7), **QUICK)
    view = PhaseView("reinforce", "online", 0.0, 0, 0, 0, 8)
    collected = workflow.collect(view)
    assert collected.env_steps == 8
    assert workflow.update_controller([collected.trajectory], view).updates == 0


def test_registered_with_the_documented_defaults():
    assert find_workflow("reinforce") is Reinforce
    config = ReinforceConfig(env_id="CartPole-v1", algo_id="reinforce")
    assert (config.n_steps, config.batch_size, config.n_epochs, config.policy_lr) == (2048, 2048, 1, 1e-2)
    assert (config.gamma, config.ent_coef, config.returns_type) == (0.99, 0.01, "mc:rtg")
    assert (config.policy_targets, config.unfinished, config.discount_states) == ("returns", "finish", False)
    for field in ReinforceConfig.model_fields.keys() - Config.model_fields.keys():
        assert ReinforceConfig.model_fields[field].description, f"{field} has no docstring"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"unfinished": "bootstrap"}, "policy_targets"),
        ({"unfinished": "bootstrap", "policy_targets": "advantages", "discount_states": True}, "unfinished"),
        ({"value_lr": -1.0}, "value_lr"),
        ({"gamma": 1.5}, "gamma"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(settings, named):
    with pytest.raises(ValueError, match=named):
        ReinforceConfig(env_id="x", algo_id="reinforce", **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"policy_targets": "advantages", "value_lr": 1e-2},
        {"policy_targets": "advantages", "unfinished": "bootstrap"},
        {"normalize_returns": "batch"},
        {"normalize_returns": "baseline", "returns_type": "mc:episode"},
    ],
    ids=str,
)
def test_identity_is_solved(make_reinforce, train, settings):
    workflow = make_reinforce(identity(length=1), **QUICK, **settings)
    trained = train(workflow, 12_000)
    assert np.mean(trained.returns[-200:]) > 0.95
    symbols = np.arange(4)
    actions, _, extras = workflow.act(symbols, deterministic=True)
    np.testing.assert_array_equal(actions, symbols)
    learns_values = "policy_targets" in settings
    assert ("value" in extras) == ("loss/value" in trained.metrics[-1]) == learns_values
    assert "opt/grads/norm/policy" in trained.metrics[-1]


def test_equal_seeds_give_equal_runs_and_other_seeds_others(make_reinforce, train):
    def parameters(seed):
        environment = make_vector(Config(env_id="CartPole-v1", algo_id="reinforce"), 4, SeedTree(seed))
        workflow = make_reinforce(environment, seed=seed, policy_targets="advantages", normalize_obs="rolling", **QUICK)
        train(workflow, 1_000)
        return workflow.flat.parameter.detach()

    assert torch.equal(parameters(3), parameters(3))
    assert not torch.equal(parameters(3), parameters(4))


def test_images_have_networks_apart(make_reinforce):
    environment = FakeEnvironment(
        2,
        spaces.Discrete(2),
        observation_space=spaces.Box(0, 255, (3, 36, 36), np.uint8),
        observe=lambda generator, clock: generator.integers(256, size=(2, 3, 36, 36), dtype=np.uint8),
    )
    workflow = make_reinforce(environment, policy_targets="advantages", n_steps=8, batch_size=16)
    assert workflow.update_controller([workflow.collect(VIEW).trajectory], VIEW).updates == 1
    names = dict(workflow.modules["policy"].named_parameters())
    assert {name.split(".")[0] for name in names} == {"actor_trunk", "critic_trunk", "actor_head", "critic_head"}
    assert workflow.describe()["parameters/policy"] > workflow.describe()["parameters/value"]


def test_both_optimizers_decay_by_what_is_set(make_reinforce):
    for settings, decay, text in (
        ({}, 0.0, "AdamW, eps 1e-05, weight decay 0 (so it is Adam)"),
        ({"weight_decay": 0.1}, 0.1, "AdamW, eps 1e-05, weight decay 0.1"),
    ):
        workflow = make_reinforce(identity(), policy_targets="advantages", n_steps=8, batch_size=8, **settings)
        assert [group["weight_decay"] for part in workflow.optimizers.values() for group in part.param_groups] == [
            decay
        ] * 2
        numbers = workflow.describe()
        assert (numbers["policy_optimizer"], numbers["value_optimizer"]) == (text, text)
