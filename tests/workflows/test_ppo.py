import copy
import math
from functools import partial

import numpy as np
import pytest
import torch
from fake_environment import FakeEnvironment, clocked, identity
from gymnasium import spaces

from gymlab.components.analytic import AnalyticGradient
from gymlab.components.distributions import Categorical
from gymlab.components.flat import FlatParameters
from gymlab.components.minibatch import Coefficients, Minibatch
from gymlab.components.networks import build_policy
from gymlab.components.optimizers import FlatOptimizer, make_optimizer
from gymlab.components.returns import standardize
from gymlab.config.schema import Config
from gymlab.engine.seeding import SeedTree
from gymlab.engine.workflow import PhaseView, UpdateResult, find_workflow
from gymlab.envs import make_vector
from gymlab.errors import ConfigError, NonFiniteError
from gymlab.workflows.ppo import PPO, PPOConfig, surrogate_loss

VIEW = PhaseView("ppo", "online", 0.0, 0, 0, 0, None)
QUICK = {"n_steps": 16, "batch_size": 32, "n_epochs": 4, "policy_lr": 3e-3, "gamma": 0.5}


def cartpole(num_envs=8, seed=0):
    return make_vector(Config(env_id="CartPole-v1", algo_id="ppo"), num_envs, SeedTree(seed))


def loss_of(ratio, advantage, *, clip_range=0.2):
    """Loss and d loss / d log-prob of one row with the given probability ratio, the value part aside."""
    log_prob = torch.tensor([math.log(0.5) + math.log(ratio)], dtype=torch.float64, requires_grad=True)
    logits = torch.stack([log_prob, torch.log1p(-log_prob.exp())], dim=-1)
    old = torch.tensor([math.log(0.5)], dtype=torch.float64)
    zero = torch.zeros(1, dtype=torch.float64)
    batch = Minibatch(None, torch.tensor([0]), old, torch.tensor([advantage], dtype=torch.float64), zero, zero)
    loss, statistics = surrogate_loss(logits, zero, batch, Coefficients(clip_range, None, 0.0, 0.0), Categorical(2))
    return loss, torch.autograd.grad(loss, log_prob)[0], statistics


@pytest.mark.parametrize(
    ("advantage", "ratio", "objective", "gradient"),
    [(1.0, 1.3, 1.2, 0.0), (1.0, 0.7, 0.7, 1.0), (-1.0, 0.7, -0.8, 0.0), (-1.0, 1.3, -1.3, -1.0)],
)
def test_clip_table(advantage, ratio, objective, gradient):
    loss, d_log_prob, _ = loss_of(ratio, advantage)
    assert -loss.item() == pytest.approx(objective)
    assert -d_log_prob.item() / ratio == pytest.approx(gradient)


@pytest.mark.parametrize(("value", "squared_error"), [(1.5, 0.64), (0.5, 2.25)])
def test_value_clip(value, squared_error):
    one = torch.ones(1)
    batch = Minibatch(None, torch.tensor([0]), torch.tensor([math.log(0.5)]), 0 * one, 2 * one, one)
    loss, statistics = surrogate_loss(
        torch.zeros(1, 2), value * one, batch, Coefficients(0.2, 0.2, 1.0, 0.0), Categorical(2)
    )
    assert 2 * loss.item() == pytest.approx(squared_error)
    assert 2 * statistics[1].item() == pytest.approx(squared_error)


# Two rows, V = (1.5, 0), R = (2, 1), V at collection (1, 0.5), vf_coef 0.5. Half the mean squared error, as in CleanRL:
#   unclipped:      1/2 * (0.25 + 1) / 2 = 0.3125                       gradient vf_coef (V - R) / 2 = (-0.125, -0.25)
#   clipped at 0.2: row 1 max(0.25, (1.2 - 2)^2 = 0.64), no gradient;   row 2 max(1, (0.3 - 1)^2 = 0.49), gradient
#                   1/2 * (0.64 + 1) / 2 = 0.41                                                      (0, -0.25)
VALUE_LOSSES = [(None, 0.3125, (-0.125, -0.25)), (0.2, 0.41, (0.0, -0.25))]
VALUES, RETURNS, OLD_VALUES = np.array([[1.5, 0.0], [2.0, 1.0], [1.0, 0.5]], np.float32)


@pytest.mark.parametrize(("clip_range_vf", "half_error", "gradient"), VALUE_LOSSES)
def test_value_loss_by_hand(clip_range_vf, half_error, gradient):
    values = torch.tensor(VALUES, requires_grad=True)
    zero, action = torch.zeros(2), torch.zeros(2, dtype=torch.long)
    log_prob = torch.full((2,), math.log(0.5))
    batch = Minibatch(None, action, log_prob, zero, torch.tensor(RETURNS), torch.tensor(OLD_VALUES))
    loss, statistics = surrogate_loss(
        torch.zeros(2, 2), values, batch, Coefficients(0.2, clip_range_vf, 0.5, 0.0), Categorical(2)
    )
    assert statistics[1].item() == pytest.approx(half_error)
    assert loss.item() == pytest.approx(0.5 * half_error)
    np.testing.assert_allclose(torch.autograd.grad(loss, values)[0], gradient, atol=1e-6)


@pytest.mark.parametrize(("clip_range_vf", "half_error", "gradient"), VALUE_LOSSES)
def test_written_out_value_loss_by_hand(clip_range_vf, half_error, gradient):
    """A critic without hidden layers on two one-hot rows: its weights are the values, and so are their gradients."""
    network = build_policy((2,), Categorical(2), is_image=False, hidden_dims=())
    with torch.no_grad():
        network.critic_head.weight.copy_(torch.tensor(VALUES))
        network.actor_head.weight.zero_()
    flat = FlatParameters(network)
    log_prob = np.full(2, math.log(0.5), np.float32)
    batch = Minibatch(
        np.eye(2, dtype=np.float32), np.zeros(2, int), log_prob, np.zeros(2, np.float32), RETURNS, OLD_VALUES
    )
    statistics = AnalyticGradient(network, flat, Categorical(2))(batch, Coefficients(0.2, clip_range_vf, 0.5, 0.0))
    assert statistics[1] == pytest.approx(half_error)
    np.testing.assert_allclose(network.critic_head.weight.grad[0], gradient, atol=1e-6)


def test_a_step_is_that_of_stable_baselines3_with_twice_its_vf_coef(tmp_path):
    """Its whole update on its own rollout, from its weights: loss, clipping, epsilon and (no) decay at once."""
    sb3 = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is an extra: pip install 'gymlab[peers]'")
    from stable_baselines3.common.callbacks import CallbackList
    from stable_baselines3.common.logger import configure

    size = {"n_steps": 32, "batch_size": 32, "n_epochs": 1}
    model = sb3.PPO("MlpPolicy", "CartPole-v1", vf_coef=0.58, ent_coef=0.01, seed=0, device="cpu", **size)
    model.set_logger(configure(str(tmp_path), []))
    _, callback = model._setup_learn(32, CallbackList([]))
    model.collect_rollouts(model.env, callback, model.rollout_buffer, 32)

    def weights():
        return [parameter.detach().clone() for parameter in model.policy.parameters()]

    network = build_policy((4,), Categorical(2), is_image=False)
    trunks = [*network.actor_trunk.parameters(), *network.critic_trunk.parameters()]
    ours = [*trunks, *network.actor_head.parameters(), *network.critic_head.parameters()]
    with torch.no_grad():
        for own, theirs in zip(ours, weights(), strict=True):
            own.copy_(theirs)
    flat = FlatParameters(network)
    stepper = FlatOptimizer(
        flat, make_optimizer(PPOConfig(env_id="x", algo_id="ppo").optimizer, [flat.parameter], 3e-4)
    )
    for _ in range(3):
        buffer = model.rollout_buffer
        batch = Minibatch(
            *(
                np.array(getattr(buffer, name)).reshape(32, -1).squeeze()
                for name in ("observations", "actions", "log_probs")
            ),
            standardize(buffer.advantages.flatten().copy()),
            *(np.array(getattr(buffer, name)).reshape(32) for name in ("returns", "values")),
        )
        batch.actions = batch.actions.astype(np.int64)
        AnalyticGradient(network, flat, Categorical(2))(batch, Coefficients(0.2, None, 2 * 0.58, 0.01))
        assert math.hypot(*stepper.clip(0.5)) > 0.5, "the gradient must meet the clip"
        stepper.step()
        before = weights()
        model.train()
        for own, theirs, old in zip(ours, weights(), before, strict=True):
            assert not torch.equal(theirs, old)
            torch.testing.assert_close(own.detach(), theirs, rtol=0, atol=3e-6)


def test_k3_of_a_log_ratio_of_a_tenth():
    _, _, statistics = loss_of(math.exp(0.1), 1.0)
    assert statistics[3].item() == pytest.approx(0.005171, abs=1e-6)


def test_shapes_that_would_broadcast_are_refused():
    column = torch.zeros(2, 1)
    row = torch.zeros(2)
    batch = Minibatch(None, torch.zeros(2, dtype=torch.long), row, row, row, row)
    with pytest.raises(AssertionError):
        surrogate_loss(torch.zeros(2, 2), column, batch, Coefficients(0.2, None, 0.5, 0.0), Categorical(2))


def test_registered_with_the_documented_defaults():
    assert find_workflow("ppo") is PPO
    config = PPOConfig(env_id="CartPole-v1", algo_id="ppo")
    assert (config.n_steps, config.batch_size, config.n_epochs, config.policy_lr) == (2048, 64, 10, 3e-4)
    assert (config.gamma, config.gae_lambda, config.clip_range, config.clip_range_vf) == (0.99, 0.95, 0.2, None)
    assert (config.ent_coef, config.vf_coef, config.max_grad_norm, config.target_kl) == (0.0, 0.5, 0.5, None)
    assert (config.normalize_advantages, config.optimizer, config.returns_type) == ("batch", "adamw", "gae:rtg")
    assert (config.weight_decay, config.policy_kwargs) == (0.0, {})
    assert (config.replay_ratio, config.replay_is_clip, config.update_backend) == (0, 10.0, "auto")
    off = PPOConfig(env_id="x", algo_id="ppo", normalize_advantages=False, hidden_dims=32)
    assert (off.normalize_advantages, off.hidden_dims) == ("off", (32,))
    for field in PPOConfig.model_fields.keys() - Config.model_fields.keys():
        assert PPOConfig.model_fields[field].description, f"{field} has no docstring"


@pytest.mark.parametrize(
    "setting",
    [{"gamma": 1.01}, {"gae_lambda": {"start": 0.9, "end": -0.1}}, {"policy_lr": -1e-3}, {"batch_size": 0}],
    ids=str,
)
def test_numbers_out_of_range_are_refused(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        PPOConfig(env_id="x", algo_id="ppo", **setting)


def test_learning_rate_falls_by_its_share_and_not_to_zero(make_ppo, train, monkeypatch):
    workflow = make_ppo(cartpole(), **QUICK | {"policy_lr": {"start": 1e-3}, "max_env_steps": 4 * 128})
    rates = []
    update = workflow.update_controller
    monkeypatch.setattr(
        workflow,
        "update_controller",
        lambda *arguments: rates.append(lr_after(update, workflow, arguments)) or UpdateResult(0),
    )
    train(workflow, 4 * 128)
    assert rates == pytest.approx([1e-3, 7.5e-4, 5e-4, 2.5e-4])


def lr_after(update, workflow, arguments):
    update(*arguments)
    return workflow.optimizers["policy"].param_groups[0]["lr"]


def test_acting_leaves_the_agent_as_it_is(make_ppo):
    workflow = make_ppo(cartpole(), normalize_obs="rolling", **QUICK)
    workflow.collect(VIEW)
    before = copy.deepcopy(workflow.encoder.state_dict())
    collecting = copy.deepcopy(workflow.generators["collect"].bit_generator.state)
    workflow.act(np.full((3, 4), 100.0, np.float32))
    assert all(torch.equal(before[name], tensor) for name, tensor in workflow.encoder.state_dict().items())
    assert workflow.generators["collect"].bit_generator.state == collecting


@pytest.mark.parametrize("backend", ["analytic", "eager"])
def test_first_minibatch_has_ratio_one(make_ppo, backend):
    workflow = make_ppo(cartpole(), update_backend=backend, **QUICK)
    rollout = workflow.collect(VIEW).trajectory
    workflow.update_controller([rollout], VIEW)
    policy_loss, _, entropy, approx_kl, clip_fraction = np.asarray(workflow.log.statistics[0])
    assert abs(approx_kl) < 1e-6
    assert clip_fraction == 0
    assert entropy == pytest.approx(math.log(2), abs=1e-3)
    assert abs(policy_loss) < 1e-5, "minus the mean of standardised advantages"
    assert np.asarray(workflow.log.statistics[-1])[3] > 0


@pytest.mark.parametrize("backend", ["analytic", "eager"])
def test_identity_is_solved(make_ppo, train, backend):
    workflow = make_ppo(identity(length=1), update_backend=backend, **QUICK)
    trained = train(workflow, 8_000)
    assert np.mean(trained.returns[-200:]) > 0.95
    symbols = np.arange(4)
    actions, _, extras = workflow.act(symbols, deterministic=True)
    np.testing.assert_array_equal(actions, symbols)
    assert np.all(extras["probabilities"][symbols, symbols] > 0.5)
    assert {"loss/policy", "loss/value", "loss/total", "opt/policy/entropy", "opt/ppo/approx_kl"} <= trained.metrics[
        -1
    ].keys()
    assert {f"opt/grads/norm/{part}" for part in ("trunk", "actor_head", "critic_head")} <= trained.metrics[-1].keys()


@pytest.mark.learns
def test_cartpole_is_learned(make_ppo, train):
    workflow = make_ppo(
        cartpole(),
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        policy_lr={"start": 1e-3},
        clip_range={"start": 0.2},
        vf_coef=1.0,
        max_env_steps=50_000,
    )
    trained = train(workflow, 50_000)
    assert trained.env_steps == 49_920 + 80
    assert np.mean(trained.returns[-20:]) >= 300


def test_equal_seeds_give_equal_runs_and_others_do_not(make_ppo, train):
    def run(seed):
        workflow = make_ppo(cartpole(seed=seed), seed=seed, normalize_obs="rolling", normalize_reward=True, **QUICK)
        return train(workflow, 1_024), workflow.flat.parameter.detach().clone()

    (first, weights), (again, same_weights), (_, other_weights) = run(3), run(3), run(4)
    assert torch.equal(weights, same_weights)
    assert first.metrics == again.metrics
    assert not torch.equal(weights, other_weights)


def test_adamw_without_decay_is_adam(make_ppo, train):
    def trained(**settings):
        workflow = make_ppo(cartpole(), **QUICK, **settings)
        train(workflow, 512)
        return workflow.flat.parameter.detach().clone()

    default, adam, decayed = trained(), trained(optimizer="adam"), trained(weight_decay=0.1)
    torch.testing.assert_close(default, adam, rtol=0, atol=1e-6)
    assert (default - decayed).abs().max() > 1e-4


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_analytic_and_eager_train_alike(make_ppo, train, optimizer):
    weights = []
    for backend in ("analytic", "eager"):
        rate = 0.1 if optimizer == "sgd" else 1e-3
        settings = QUICK | {"policy_lr": rate, "ent_coef": 0.01, "clip_range_vf": 0.2, "optimizer": optimizer}
        workflow = make_ppo(cartpole(), update_backend=backend, **settings)
        start = workflow.flat.parameter.detach().clone()
        train(workflow, 256)
        weights.append(workflow.flat.parameter.detach() - start)
        assert workflow.update_backend == backend
    apart = (weights[0] - weights[1]).norm() / weights[0].norm()
    assert weights[0].norm() > 0.01
    assert apart < 1e-4


def test_resume_equals_uninterrupted(make_ppo, train):
    def fresh():
        return make_ppo(cartpole(), normalize_obs="rolling", normalize_reward=True, **QUICK)

    whole = fresh()
    train(whole, 1_024)
    first, second = fresh(), fresh()
    train(first, 512)
    second.set_state(copy.deepcopy(first.get_state()))
    for name, module in first.modules.items():
        second.modules[name].load_state_dict(copy.deepcopy(module.state_dict()))
    second.optimizers["policy"].load_state_dict(copy.deepcopy(first.optimizers["policy"].state_dict()))
    second.context.train_environment.set_state(first.context.train_environment.get_state())
    train(second, 512)
    assert torch.equal(whole.flat.parameter, second.flat.parameter)


@pytest.mark.parametrize(
    "action_space",
    [
        spaces.Discrete(3, start=1),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(3),
        spaces.Box(-0.2, 0.3, (2,), np.float32),
    ],
    ids=["discrete", "multi-discrete", "multi-binary", "continuous"],
)
@pytest.mark.parametrize("backend", ["analytic", "eager"])
def test_every_action_space_trains(make_ppo, train, action_space, backend):
    workflow = make_ppo(FakeEnvironment(4, action_space), update_backend=backend, ent_coef=0.01, **QUICK)
    trained = train(workflow, 256)
    assert all(math.isfinite(value) for row in trained.metrics for value in row.values())
    observation = np.zeros((2, 3), np.float32)
    actions, state, extras = workflow.act(observation)
    assert state is None
    assert all(action_space.contains(action) for action in actions)
    assert extras["value"].shape == extras["log_prob"].shape == (2,)
    greedy, _, _ = workflow.act(observation, deterministic=True)
    np.testing.assert_array_equal(greedy[0], greedy[1])


def test_continuous_actions_are_learned(make_ppo, train):
    """Reward for being near the number that is shown; the best policy gets 0."""
    environment = FakeEnvironment(
        8,
        spaces.Box(-1, 1, (1,), np.float32),
        observe=lambda generator, clock: generator.uniform(-0.8, 0.8, size=(8, 3)).astype(np.float32),
        reward=lambda observation, action: -np.abs(observation[:, 0] - action[:, 0]),
        length=1,
    )
    workflow = make_ppo(environment, **QUICK)
    trained = train(workflow, 16_000)
    assert np.mean(trained.returns[-200:]) > -0.35
    assert np.mean(trained.returns[:200]) < -0.6
    target = np.array([[-0.5, 0, 0], [0.5, 0, 0]], np.float32)
    actions, _, _ = workflow.act(target, deterministic=True)
    np.testing.assert_allclose(actions[:, 0], [-0.5, 0.5], atol=0.25)


@pytest.mark.parametrize("backend", ["analytic", "eager"])
def test_masked_actions_are_never_taken(make_ppo, train, backend):
    mask = np.array([[True, False, True, False]] * 4)
    environment = FakeEnvironment(
        4, spaces.Discrete(4), action_mask=mask, reward=lambda observation, action: action == 2
    )
    workflow = make_ppo(environment, update_backend=backend, ent_coef=0.01, **QUICK)
    train(workflow, 2_048)
    assert set(np.unique(environment.actions)) == {0, 2}
    _, _, extras = workflow.act(environment.observation, action_mask=mask)
    assert np.all(extras["probabilities"][:, [1, 3]] == 0)
    assert np.all(extras["probabilities"][:, 2] > 0.8)


def test_images_train_through_a_cnn_and_stay_uint8(make_ppo, train):
    environment = FakeEnvironment(
        2,
        spaces.Discrete(2),
        observation_space=spaces.Box(0, 255, (1, 12, 12), np.uint8),
        observe=lambda generator, clock: generator.integers(0, 256, size=(2, 1, 12, 12)).astype(np.uint8),
    )
    kwargs = {"channels": [4], "kernel_sizes": [4], "strides": [2]}
    workflow = make_ppo(environment, n_steps=8, batch_size=8, n_epochs=1, policy_kwargs=kwargs, hidden_dims=(16,))
    trained = train(workflow, 32)
    assert workflow.update_backend == "eager"
    assert workflow.collector.storage.observations.dtype == np.uint8
    assert trained.updates == 4
    assert math.isfinite(trained.metrics[-1]["loss/total"])


def test_act_agrees_between_the_numpy_and_the_torch_network(make_ppo):
    workflow = make_ppo(cartpole(), normalize_obs="rolling", **QUICK)
    workflow.update_controller([workflow.collect(VIEW).trajectory], VIEW)
    observation = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    _, _, extras = workflow.act(observation, deterministic=True)
    encoded = workflow.encoder.encode(observation, update=False)
    with torch.no_grad():
        logits, values = workflow.modules["policy"](torch.from_numpy(encoded))
    np.testing.assert_allclose(extras["value"], values, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(extras["probabilities"], logits.softmax(-1), rtol=1e-5, atol=1e-6)


def test_an_agent_that_is_only_loaded_acts(make_ppo):
    trained = make_ppo(cartpole(), **QUICK)
    context = copy.copy(trained.context)
    object.__setattr__(context, "train_environment", None)
    agent = PPO(context)
    agent.initialize()
    agent.modules["policy"].load_state_dict(trained.modules["policy"].state_dict())
    agent.set_state(trained.get_state())
    observation = np.zeros((3, 4), np.float32)
    for a, b in zip(agent.act(observation)[2].values(), trained.act(observation)[2].values(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not agent.optimizers
    assert "parameters/policy" in agent.describe()


@pytest.mark.learns
@pytest.mark.parametrize(("truncate", "expected"), [(True, 10.0), (False, None)])
def test_values_at_a_time_limit(make_ppo, train, truncate, expected):
    """Reward 1 for ever, cut after 10 steps, gamma 0.9: V is 10 everywhere when the cut is no end, else it decays."""
    workflow = make_ppo(
        clocked(8, length=10, truncate=truncate),
        n_steps=20,
        batch_size=80,
        n_epochs=10,
        policy_lr=3e-3,
        gamma=0.9,
        max_grad_norm=None,
    )
    train(workflow, 16_000)
    values = workflow.act(np.linspace(0, 0.9, 10, dtype=np.float32)[:, None])[2]["value"]
    if expected is None:
        expected = [(1 - 0.9**left) / 0.1 for left in range(10, 0, -1)]
    np.testing.assert_allclose(values, expected, atol=0.5)


def test_dead_rows_are_counted_and_learned_from_nowhere(make_ppo):
    """Episodes of one step with next-step reset: half of the rows are dead; env steps equal episodes."""
    environment = FakeEnvironment(4, spaces.Discrete(2), length=1, truncate=False, next_step_reset=True)
    workflow = make_ppo(environment, n_steps=10, batch_size=40, n_epochs=1)
    result = workflow.collect(VIEW)
    assert result.env_steps == len(result.episodes) == 20
    assert result.vec_steps == 10
    rollout = result.trajectory
    assert rollout.valid.sum() == 20
    for array in (rollout.observations, rollout.values, rollout.rewards):
        array[~rollout.valid] = 1e6
    updated = workflow.update_controller([rollout], VIEW)
    assert abs(updated.metrics["loss/value"]) < 100
    assert updated.metrics["opt/advantages/mean"] < 100
    assert updated.updates == 1


def test_autoreset_modes_give_the_same_training_rows(make_ppo):
    """The same walk through next-step and same-step resets: equal rows where they are valid."""

    def columns(next_step_reset, steps):
        workflow = make_ppo(clocked(1, length=3, next_step_reset=next_step_reset), n_steps=steps, batch_size=steps)
        rollout = workflow.collect(VIEW).trajectory
        flat = workflow._columns(rollout, rollout.values, rollout.bootstrap_values, rollout.log_probs)
        rows = rollout.valid_rows()
        return flat.observations[rows], flat.advantages[rows], flat.returns[rows], flat.values[rows]

    for same, following in zip(columns(False, 9), columns(True, 12), strict=True):
        np.testing.assert_allclose(same, following, rtol=1e-6)


def test_the_budget_is_not_exceeded(make_ppo, train):
    workflow = make_ppo(cartpole(), n_steps=32, batch_size=64, n_epochs=1)
    trained = train(workflow, 32 * 8 + 40)
    assert trained.env_steps == 32 * 8 + 40
    assert trained.updates == 4 + 1


def test_target_kl_stops_an_update(make_ppo):
    workflow = make_ppo(cartpole(), target_kl=1e-6, **QUICK)
    updated = workflow.update_controller([workflow.collect(VIEW).trajectory], VIEW)
    assert 1 <= updated.updates < 16
    assert updated.metrics["opt/ppo/stopped_early"] == 1.0
    relaxed = make_ppo(cartpole(), target_kl=10.0, **QUICK)
    updated = relaxed.update_controller([relaxed.collect(VIEW).trajectory], VIEW)
    assert updated.updates == 16
    assert updated.metrics["opt/ppo/stopped_early"] == 0.0


@pytest.mark.parametrize(
    "settings",
    [
        {"returns_type": "mc:rtg"},
        {"returns_type": "mc:episode", "advantages_type": "baseline"},
        {"policy_targets": "returns", "normalize_returns": "rollout"},
        {"normalize_advantages": "rollout"},
        {"normalize_advantages": "off"},
        {"model_id": "mlp_tiny"},
        {"activation": "gelu"},
        {"optimizer": "sgd"},
        {"max_grad_norm": None},
    ],
    ids=str,
)
def test_options_learn_the_identity(make_ppo, train, settings):
    rate = 0.5 if settings.get("optimizer") == "sgd" else 3e-3
    workflow = make_ppo(identity(length=1), **QUICK | {"policy_lr": rate} | settings)
    assert np.mean(train(workflow, 8_000).returns[-200:]) > 0.8


def test_returns_and_advantages_by_type(make_ppo):
    """One episode of rewards 1, 1, 1 that terminates, gamma 0.5, values v."""

    def columns(**settings):
        environment = clocked(1, length=3, truncate=False)
        workflow = make_ppo(environment, n_steps=3, batch_size=3, gamma=0.5, gae_lambda=1.0, **settings)
        rollout = workflow.collect(VIEW).trajectory
        return workflow._columns(rollout, rollout.values, rollout.bootstrap_values, rollout.log_probs)

    to_go = np.array([1.75, 1.5, 1.0])
    np.testing.assert_allclose(columns().returns, to_go, rtol=1e-5)
    np.testing.assert_allclose(columns(returns_type="mc:rtg").returns, to_go, rtol=1e-5)
    np.testing.assert_allclose(columns(returns_type="mc:episode").returns, [1.75] * 3, rtol=1e-5)
    baseline = columns(returns_type="mc:episode", advantages_type="baseline")
    np.testing.assert_allclose(baseline.advantages, 1.75 - baseline.values, rtol=1e-5)
    np.testing.assert_allclose(columns(policy_targets="returns").advantages, to_go, rtol=1e-5)


def test_a_reward_that_is_not_a_number_stops_the_run(make_ppo):
    workflow = make_ppo(identity(), **QUICK)
    rollout = workflow.collect(VIEW).trajectory
    rollout.rewards[3, 2] = np.nan
    with pytest.raises(NonFiniteError, match=r"loss/\w+ is nan in minibatch 1 of the update after 0 env steps"):
        workflow.update_controller([rollout], VIEW)


def test_analytic_says_why_it_cannot(make_ppo):
    with pytest.raises(ConfigError, match=r"tanh and relu, not gelu\. Set update_backend: auto"):
        make_ppo(cartpole(), update_backend="analytic", activation="gelu", **QUICK)


def test_mixed_precision_on_the_cpu(make_ppo, train):
    from lightning_fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    workflow = make_ppo(identity(length=1), fabric=fabric, precision="bf16-mixed", **QUICK)
    assert workflow.update_backend == "eager"
    trained = train(workflow, 6_000)
    assert np.mean(trained.returns[-200:]) > 0.9
    assert workflow.flat.parameter.dtype == torch.float32


def test_compiled_loss_trains_like_eager_and_reports_its_time(make_ppo, train, monkeypatch):
    """Traced and differentiated ahead of time as always, but run without generating C++, which takes a minute."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    weights = []
    for backend in ("eager", "compile"):
        workflow = make_ppo(identity(), update_backend=backend, policy_kwargs={"hidden_dims": [8]}, **QUICK)
        trained = train(workflow, 256)
        weights.append(workflow.flat.parameter.detach().clone())
    torch.testing.assert_close(*weights, rtol=1e-3, atol=1e-4)
    assert trained.metrics[-1]["sys/compile_seconds"] > 0


def test_describe(make_ppo):
    numbers = make_ppo(
        cartpole(), n_steps=128, batch_size=256, n_epochs=4, replay_ratio=1, replay_buffer_size=4096
    ).describe()
    assert numbers["parameters/policy"] == 9155
    assert numbers["parameters/policy/trunk"] + numbers["parameters/policy/actor_head"] == 9090
    assert numbers["rollout_rows"] == 1024
    assert numbers["minibatches_per_epoch"] == 4
    assert numbers["updates_per_rollout"] == 16
    assert numbers["updates_per_env_step"] == 16 / 1024
    assert numbers["update_backend"] == "analytic"
    assert numbers["optimizer"] == "AdamW, eps 1e-05, weight decay 0 (so it is Adam)"
    assert numbers["replay_memory_bytes"] == 4 * numbers["rollout_memory_bytes"]
