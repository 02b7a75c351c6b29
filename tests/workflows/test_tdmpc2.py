"""TD-MPC2: what learns from what, where windows cross episodes, planning, and every kind of action and observation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gymlab
from gymlab.components.dreaming import time_first
from gymlab.engine.setup import prepare
from gymlab.engine.workflow import PhaseView, Recording
from gymlab.errors import ConfigError

TINY = {
    "size": "tiny",
    "latent": 16,
    "hidden": 16,
    "encoder_hidden": 16,
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
PICTURES = {"obs_type": "rgb", "resize_obs": [64, 64], "encoder_channels": 4, "encoder_hidden": 128}
TRAIN = PhaseView("train", "online", 0.0, 0, 0, 0, None)
RANDOM = PhaseView("seed", "online", 0.0, 0, 0, 0, None, {"actions": "random"})


def session(env: str = "Pendulum-v1", algo: str = "tdmpc2", **fields):
    torch.manual_seed(0)
    made = prepare(gymlab.resolve(env, algo=algo, **{**TINY, **fields}).config)
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
        ("CartPole-v1", {**PICTURES, "latent": 64}),
        ("Pendulum-v1", {"algo": "tdmpc"}),
        ("CartPole-v1", {"algo": "tdmpc", "episodic": True}),
        ("CartPole-v1", {**PICTURES, "algo": "tdmpc", "resize_obs": [84, 84]}),
        ("Pendulum-v1", {"prioritised": True}),
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
    losses, _, latents, _ = losses_of(workflow, data, alive)
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
        for number, q in enumerate(workflow.slow["qs"]):
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


def test_the_policys_entropy_is_that_before_tanh_and_does_not_pull_its_mean() -> None:
    made = session(ent_coef=0.01)
    workflow = made.workflow  # values begin at 0, whatever is done: the entropy alone teaches
    with torch.no_grad():
        workflow.policy[-1].weight.zero_()
        workflow.policy[-1].bias.copy_(torch.tensor([2.0, 0.0]))  # mean and log deviation
    rho = 0.5 ** torch.arange(4.0).unsqueeze(1)
    workflow._policy_loss(torch.rand(4, 8, 16), torch.ones(3, 8), rho)[0].backward()
    expected = -0.01 * 6 * (1 + 0.5 + 0.25 + 0.125) / 4
    assert workflow.policy[-1].bias.grad.tolist() == pytest.approx([0.0, expected])


def test_the_first_version_adds_up_the_policys_loss_over_its_states() -> None:
    made = session(algo="tdmpc", horizon=3)
    workflow = made.workflow
    with torch.no_grad():
        for q, value in zip(workflow.model.qs, (3.0, 2.0, 4.0), strict=True):
            q[-1].bias.fill_(value)
    rho = 0.5 ** torch.arange(4.0).unsqueeze(1)
    torch.manual_seed(0)
    seen = {round(workflow._policy_loss(torch.rand(4, 8, 16), torch.ones(3, 8), rho)[0].item(), 4) for _ in range(20)}
    assert seen == {-2 * 1.875, -3 * 1.875}  # the smaller of two of the three
    assert [group["eps"] for group in workflow.optimizers["policy"].param_groups] == [1e-8]


def test_slow_values_follow_and_the_encoder_learns_slower() -> None:
    made = session()
    workflow = made.workflow
    slow = [p.clone() for p in workflow.slow["qs"].parameters()]
    workflow.update_agent(made.buffers["replay"].sample(), TRAIN)
    for old, new, fast in zip(slow, workflow.slow["qs"].parameters(), workflow.model.qs.parameters(), strict=True):
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
    workflow.model.imagined_from = lambda bases, action: (action[:, 0], torch.rand(len(action), 16))
    planned = workflow._plan(torch.rand(3, 16), workflow.initial_state(3), np.random.default_rng(0))
    assert (planned.mean > 0.7).all()


@pytest.mark.parametrize(
    ("logits", "steps"),
    [((-0.1, -0.1, -0.1), 4), ((0.1, -9.0, -9.0), 1), ((-0.1, 0.1, -9.0), 2), ((-9.0, -9.0, 9.0), 3)],
)
def test_nothing_behind_an_end_that_the_model_expects_counts_in_a_plan(logits, steps) -> None:
    made = session("CartPole-v1", episodic=True, gamma=0.9)
    workflow = made.workflow
    model, ends = workflow.model, iter(logits)
    # A reward of 1 at each step, and of 2 behind them: the value of the last state.
    model.imagined = model.imagined_from = lambda z, action: (torch.ones(len(action)), torch.rand(len(action), 16))
    model.end.forward = lambda z: torch.full((len(z), 1), next(ends))
    with torch.no_grad():
        for q in model.qs:
            q[-1].bias.fill_(-1e4)[workflow.config.bins // 2 + 5] = 0  # symexp(1) = 1.718282
    value = workflow._value_of_plans(torch.rand(1, 16), np.random.default_rng(0), None)
    with torch.no_grad():
        found = value(torch.zeros(1, 16, 3, 2))
    expected = sum([1, 0.9, 0.81, 0.729 * (np.e - 1)][:steps])
    assert found.flatten().tolist() == pytest.approx([expected] * 16, rel=1e-4)


def planned_with_scores(made, rows: int, *, deterministic: bool):
    """Actions at `rows` observations, and the sequences that they were drawn among: worth 4, 2 and 1."""
    workflow = made.workflow
    found = {}
    plan = workflow._plan

    def kept(*arguments, **options):
        found["planned"] = plan(*arguments, **options)
        return found["planned"]

    def value(sequences):
        worth = torch.full(sequences.shape[:2], -100.0)
        worth[:, :3] = torch.tensor([1.0, 4.0, 2.0])
        return worth

    workflow._plan, workflow._value_of_plans = kept, lambda *_: value
    observation = np.stack([made.environment.observation_space.sample()] * rows)
    action, _, _ = workflow.act(observation, deterministic=deterministic)
    workflow._plan = plan
    return action, found["planned"]


@pytest.mark.parametrize("algo", ["tdmpc", "tdmpc2"])
def test_an_evaluation_draws_among_the_best_sequences_by_their_scores(algo) -> None:
    rows = 3000
    made = session(algo=algo, plan_samples=5, plan_elites=3, plan_policy_samples=1, plan_horizon=3)
    action, planned = planned_with_scores(made, rows, deterministic=True)
    firsts = made.workflow.actions.to_environment(planned.elites[:, :, 0].numpy())
    same = (firsts == action[:, None]).all(-1)
    assert same.any(1).all()  # no noise on top
    alone = same.sum(1) == 1  # two may be clipped to the same bound
    shares = same[alone].mean(0)
    assert shares.tolist() == pytest.approx([0.628532, 0.231224, 0.140244], abs=0.05)
    noisy, planned = planned_with_scores(made, rows, deterministic=False)
    firsts = made.workflow.actions.to_environment(planned.elites[:, :, 0].numpy())
    assert not (firsts == noisy[:, None]).all(-1).any(1).all()


@pytest.mark.parametrize(
    ("fields", "moved"), [({"latent": 64}, True), ({"algo": "tdmpc", "resize_obs": [84, 84]}, False)]
)
def test_pictures_are_moved_about_while_acting_but_not_in_the_first_version(fields, moved) -> None:
    made = session("CartPole-v1", **{**PICTURES, **fields})
    workflow, seen = made.workflow, []
    workflow.model.encoder.register_forward_pre_hook(lambda _, pictures: seen.append(pictures[0].numpy()))
    shown = made.environment.observation.copy()
    observation = np.repeat(shown[:1], 8, 0)
    for _ in range(2):
        workflow.generators["act"] = np.random.default_rng(3)
        workflow.act(observation, deterministic=True)
    workflow.collect(TRAIN)
    first, again, collected = seen
    assert bool((first != observation).any()) is moved
    assert np.array_equal(first, again)  # the agent's own stream decides
    assert bool((collected != shown).any()) is moved


def test_the_first_versions_targets_see_the_same_moved_pictures() -> None:
    made = session("CartPole-v1", **{**PICTURES, "algo": "tdmpc", "resize_obs": [84, 84], "horizon": 2})
    workflow = made.workflow
    seen = {"online": [], "slow": []}
    for name, encoder in (("online", workflow.model.encoder), ("slow", workflow.slow["encoder"])):
        encoder.register_forward_hook(lambda _, __, found, name=name: seen[name].append(found.detach()))
    workflow.update_agent(made.buffers["replay"].sample(), TRAIN)
    # The slow encoder begins as a copy: what it is shown are the next observations as the values' targets see them.
    ahead = [found for found in seen["online"] if len(found) == 16]
    torch.testing.assert_close(seen["slow"], ahead)


def test_every_window_is_learned_from() -> None:
    made = session()
    replay = made.buffers["replay"]
    records = [stream.written for stream in replay._streams]
    drawn = {int(start) for _ in range(300) for start in replay.sample().ids[:, 0] // 2}
    assert drawn == set(range(min(records) - 3))


@pytest.mark.parametrize(
    ("env", "fields", "message"),
    [
        ("Pendulum-v1", {"held_out": 0.1}, "held_out.*the model is not evaluated on steps set aside"),
        ("Pendulum-v1", {"algo": "tdmpc", "held_out": 0.1}, "held_out"),
        ("Pendulum-v1", {"end_coef": 2.0}, "end_coef.*episodic"),
        ("Pendulum-v1", {"priority_beta": 0.5}, "priority_beta.*prioritised"),
        ("Pendulum-v1", {"planner": "cem", "temperature": 0.1}, "temperature.*mppi"),
        ("Pendulum-v1", {"algo": "tdmpc", "ent_coef": 0.1}, "ent_coef.*noise of fixed size"),
        ("Pendulum-v1", {"algo": "tdmpc", "bins": 51}, "bins.*tdmpc2"),
        ("Pendulum-v1", {"algo": "tdmpc", "dropout": 0.1}, "dropout.*tdmpc2"),
    ],
)
def test_settings_without_effect_are_refused_by_name(env, fields, message) -> None:
    with pytest.raises(ConfigError, match=message):
        session(env, **fields)


def test_the_range_of_values_follows_at_the_rate_of_the_target_network() -> None:
    assert session(tau=0.25).workflow.scale.rate == 0.25


def test_priorities_are_bounded() -> None:
    made = session(algo="tdmpc", horizon=3)
    data = batch(made)
    data["reward"] += 1e6
    assert losses_of(made.workflow, data, torch.ones(3, 8))[3].tolist() == pytest.approx([1e4] * 8)


def test_the_first_version_may_reward_the_entropy_of_choices() -> None:
    session("CartPole-v1", algo="tdmpc", ent_coef=0.1)


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
    assert "size" not in described


@pytest.mark.parametrize("size", ["19m", "48m", "317m"])
def test_sizes_for_many_tasks_say_so(size) -> None:
    assert "30 or 80 tasks" in session(size=size, encoder_layers=1).workflow.describe()["size"]


@pytest.mark.parametrize(("fields", "rounds"), [({}, 4), ({"algo": "tdmpc"}, 2)])
def test_many_dimensions_of_action_take_two_rounds_more_but_not_in_the_first_version(
    fields, rounds, monkeypatch
) -> None:
    monkeypatch.setattr("gymlab.workflows.tdmpc2.MANY_ACTIONS", 1)
    assert session(**fields).workflow.planner.iterations == rounds


def test_the_first_version_learns_latents_from_a_slow_encoder() -> None:
    made = shaken(session(algo="tdmpc", horizon=3))
    workflow = made.workflow
    data = batch(made)
    losses, _, latents, priority = losses_of(workflow, data, torch.ones(3, 8))
    with torch.no_grad():
        ahead = workflow.slow["encoder"](data["observation/vector"][1:])
        errors = (latents[1:] - ahead).square().mean((1, 2))
    torch.testing.assert_close(losses["consistency"].detach(), 2 * (errors[0] + 0.5 * errors[1] + 0.25 * errors[2]) / 3)
    assert (priority > 0).all()
    # Slow copies follow every second update.
    slow = [p.clone() for p in workflow.slow.parameters()]
    moved = []
    for _ in range(2):
        workflow.update_agent(made.buffers["replay"].sample(), TRAIN)
        made.counters.updates += 1
        moved.append(not torch.equal(slow[0], next(iter(workflow.slow.parameters()))))
    assert moved == [False, True]


def test_the_first_version_weighs_sequences_and_tells_how_far_values_were_off() -> None:
    made = shaken(session(algo="tdmpc", horizon=2, rho=0.5))
    workflow = made.workflow
    sampled = made.buffers["replay"].sample()
    sampled.weight[:] = 0.0
    before = [p.clone() for p in workflow.model.parameters()]
    result = workflow.update_agent(sampled, TRAIN)
    for old, new in zip(before, workflow.model.parameters(), strict=True):
        torch.testing.assert_close(new, old)
    ids, update = result.write_back
    assert np.array_equal(ids, sampled.ids[:, 0])
    assert (update["priority"] > 0).all()


def test_plans_grow_longer_and_bolder_by_their_schedules() -> None:
    made = session(
        algo="tdmpc", min_std={"start": 0.5, "end": 0.1, "to": 100}, plan_horizon={"start": 1, "end": 5, "to": 100}
    )
    workflow = made.workflow
    lengths, least = [], []
    for steps in (0, 24, 25, 49, 50, 99, 100):  # 1 + 4 steps / 100: 1, 1.96, 2, 2.96, 3, 4.96 and 5, cut off
        workflow.hyperparameters.follow_schedules(steps)
        planned = workflow._plan(torch.rand(2, 16), workflow.initial_state(2), np.random.default_rng(0))
        lengths.append(planned.mean.shape[1])
        least.append(round(float(planned.std.min()), 3))
    assert lengths == [1, 1, 2, 2, 3, 4, 5]
    assert least[0] >= 0.5 > least[-1] >= 0.1
    assert workflow._followed(planned).mean.shape == (2, 5, 1)


@pytest.mark.parametrize(
    ("env", "fields"), [("Pendulum-v1", {"reward_unit": 2.0}), ("CartPole-v1", {"episodic": True})]
)
def test_plans_are_told_in_the_units_of_the_environment(env, fields) -> None:
    made = shaken(session(env, horizon=2, **fields))
    workflow, space = made.workflow, made.environment.action_space
    observations = np.stack([made.environment.observation_space.sample() for _ in range(6)])
    actions = np.stack([space.sample() for _ in range(6)])
    told = workflow.plans(Recording(observations, actions, np.arange(6) == 0), 2, 3)
    assert told.actions.shape == (4, 2, *space.shape)
    assert all(space.contains(action) for action in told.actions.reshape(8, *space.shape))
    assert told.rewards.shape == (4, 2)
    assert (np.diff(told.values) <= 0).all()
    assert told.weights.sum() == pytest.approx(1)
    assert told.drift.shape == (3,)
    # The first steps by hand: the model's reward of the best sequence's first action, and where the recorded action leads.
    with torch.no_grad():
        latents = workflow._encoded(workflow.parts.split(observations))
        best = torch.from_numpy(workflow.actions.from_environment(told.actions[:1, 0]))
        reward, _ = workflow.model.imagined(latents[2:3], best)
        after = workflow.model.next(latents[2:3], torch.from_numpy(workflow.actions.from_environment(actions[2:3])))
        spread = (latents - latents.mean(0)).norm(dim=1).mean() * 2**0.5
    assert told.rewards[0, 0] == pytest.approx(reward.item() * fields.get("reward_unit", 1.0), rel=1e-4)
    assert told.drift[0] == pytest.approx(((after - latents[3]).norm() / spread).item(), rel=1e-4)
