"""Dreamer as its authors publish it: presets, and what of their programs a small run can show."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import gymlab
from gymlab.buffers import room
from gymlab.buffers.episode_ends import EndsReplay
from gymlab.config.dump import dump, from_dict
from gymlab.engine.setup import prepare
from gymlab.engine.workflow import PhaseView, find_workflow
from gymlab.errors import ConfigError

SMALL = {"deter": 16, "hidden": 8, "units": 8, "stoch": 4, "batch_size": 4, "batch_length": 8}
SMALL |= {"horizon": 4, "replay_size": 2000, "n_envs": 2, "max_env_steps": 10_000, "seed": 0, "torch_threads": 1}
PHASE = PhaseView("train", "online", 0.0, 0, 0, 0, None)
RANDOM = PhaseView("prefill", "online", 0.0, 0, 0, 0, None, {"actions": "random"})

V1 = {
    "deter": 200, "hidden": 200, "stoch": 30, "units": 400, "cnn_depth": 32, "latent": "gaussian", "cell": "keras_gru",
    "actor_layers": 4, "critic_layers": 3, "reward_layers": 2, "free_nats": 3.0, "free_nats_of": "mean", "continue_scale": 0.0,
    "gamma": 0.99, "lam": 0.95, "horizon": 15, "ent_coef": 0.0, "exploration_noise": 0.3, "continuous_actor": "tanh_normal",
    "model_lr": 6e-4, "critic_lr": 8e-5, "actor_lr": 8e-5, "adam_eps": 1e-7, "max_grad_norm": 100.0, "weight_decay": 0.0,
    "batch_size": 50, "batch_length": 50, "train_ratio": 500.0, "prefill_steps": 2500, "pretrain_updates": 100,
    "pretrain_hook": "update_agent", "prefill_actions": "random", "slow_critic": "none", "eval_deterministic": True,
}  # fmt: skip
V2 = {
    "deter": 1024, "hidden": 1024, "stoch": 32, "classes": 32, "units": 400, "cnn_depth": 48, "unimix": 0.0, "vector_layers": 4,
    "reward_layers": 4, "continue_layers": 4, "actor_layers": 4, "critic_layers": 4, "prior_layers": 1,
    "cell": "biased_layer_norm_gru", "dyn_scale": 0.8, "rep_scale": 0.2, "free_nats": 0.0, "free_nats_of": "mean",
    "continue_scale": 1.0, "reward_transform": "tanh", "gamma": 0.99, "lam": 0.95, "horizon": 15, "ent_coef": 2e-3,
    "actor_gradient": "auto", "continuous_actor": "truncated_normal", "slow_critic": "target", "slow_every": 100, "slow_rate": 1.0,
    "model_lr": 1e-4, "critic_lr": 2e-4, "actor_lr": 8e-5, "adam_eps": 1e-5, "max_grad_norm": 100.0, "weight_decay": 1e-6,
    "batch_size": 16, "batch_length": 50, "train_ratio": 160.0, "prefill_steps": 10_000, "pretrain_updates": 1,
    "pretrain_hook": "update_agent", "prefill_actions": "random", "replay_size": 2_000_000, "prioritize_ends": True,
    "eval_deterministic": True,
}  # fmt: skip
ATARI = {
    **V2, "deter": 600, "hidden": 600, "model_lr": 2e-4, "critic_lr": 1e-4, "actor_lr": 4e-5, "ent_coef": 1e-3, "gamma": 0.999,
    # The KL's weight of 0.1, balanced 0.8 to 0.2; an update of 16 x 50 steps every 16 steps.
    "dyn_scale": 0.08, "rep_scale": 0.02, "continue_scale": 5.0, "prefill_steps": 50_000, "train_ratio": 50.0,
}  # fmt: skip
DMC = {
    **V2, "deter": 200, "hidden": 200, "model_lr": 3e-4, "critic_lr": 8e-5, "actor_lr": 8e-5, "ent_coef": 1e-4, "free_nats": 1.0,
    "continue_scale": 0.0, "reward_transform": "none", "prioritize_ends": False, "prefill_steps": 1000, "pretrain_updates": 100,
}  # fmt: skip
V3 = {
    "unimix": 0.01, "actor_unimix": 0.0, "discrete_obs": "categorical", "dyn_scale": 1.0, "rep_scale": 0.1, "free_nats": 1.0,
    "continue_scale": 1.0, "gamma": 1 - 1 / 333, "ent_coef": 3e-4, "model_lr": 4e-5, "agc": 0.3, "warmup_updates": 1000,
    "batch_size": 16, "batch_length": 64, "train_ratio": 32.0, "replay_size": 5_000_000, "prefill_actions": "actor",
    "prioritize_ends": False, "eval_deterministic": False, "reward_transform": "none",
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "published"),
    [
        ({"version": "v1"}, V1),
        ({"version": "v2"}, V2),
        ({"version": "v2", "suite": "atari"}, ATARI),
        ({"version": "v2", "suite": "dmc"}, DMC),
        ({}, V3),
    ],
)
def test_what_is_left_open_is_as_published(fields: dict, published: dict) -> None:
    config = gymlab.resolve("CartPole-v1", algo="dreamer", **fields).config
    assert {name: getattr(config, name) for name in published} == published


@pytest.mark.parametrize(
    ("experiment", "published"),
    [
        ("ALE/Pong-v5:dreamer_v2_atari", ATARI),
        ("dmc/walker-walk:dreamer_v2_dmc", DMC),
        ("dmc/cartpole-swingup:dreamer_v2_dmc", DMC),
    ],
)
def test_shipped_experiments_of_the_second_version_change_nothing_of_it(experiment: str, published: dict) -> None:
    config = gymlab.resolve(experiment).config
    assert {name: getattr(config, name) for name in published} == published


def test_atari_as_the_authors_play_it() -> None:
    atari = pytest.importorskip("gymlab.envs.families.atari")
    pytest.importorskip("ale_py")
    family = atari.AtariFamily()
    third = gymlab.resolve("ALE/Pong-v5:dreamer_v3_atari100k").config
    settings = family.configured("ALE/Pong-v5", third, "train")
    wanted = {"episodic_life": False, "reward_clipping": False, "noop_max": 30, "repeat_action_probability": 0.0}
    assert {name: settings[name] for name in wanted} == wanted
    second = gymlab.resolve("ALE/Pong-v5:dreamer_v2_atari").config
    settings = family.configured("ALE/Pong-v5", second, "train")
    wanted = {"episodic_life": False, "reward_clipping": False, "noop_max": 30, "repeat_action_probability": 0.25}
    assert {name: settings[name] for name in wanted} == wanted
    assert (second.grayscale_obs, second.resize_obs, second.frame_skip) == (True, (64, 64), third.frame_skip)


def session(experiment: str = "CartPole-v1", **fields: Any):
    return prepare(gymlab.resolve(experiment, algo="dreamer", **{**SMALL, **fields}).config)


def batch_of(made):
    replay = made.buffers["replay"]
    while not replay.ready():
        replay.add(made.workflow.collect(RANDOM).trajectory)
    return replay.sample()


def test_weights_of_the_second_version_lose_a_millionth_each_step() -> None:
    """AdamW took the learning rate times that: 3,300 times less."""
    made = session(version="v2", model_lr=3e-4, reward_transform="none")
    optimizer = made.workflow.optimizers["model"]
    weight = optimizer.param_groups[0]["params"][0]
    with torch.no_grad():
        weight.fill_(1000.0)
    for group in optimizer.param_groups:
        group["lr"] = 3e-4
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    for _ in range(10):
        optimizer.step()
    # Each step of 0.001 is rounded to whole units of the last place, 0.00006.
    assert (1000 - weight).mean().item() == pytest.approx(0.01, rel=0.05)


def test_the_target_critic_is_copied_after_the_first_update_and_every_so_many_after_it() -> None:
    made = session(version="v2", slow_every=3, reward_transform="none")
    workflow, batch = made.workflow, batch_of(made)
    copied = []
    for _ in range(7):
        workflow.update_agent(batch, PHASE)
        pairs = zip(workflow.slow_critic.parameters(), workflow.critic.parameters(), strict=True)
        copied.append(all(torch.equal(slow, fast) for slow, fast in pairs))
    assert copied == [True, False, False, True, False, False, True]


@pytest.mark.parametrize("fields", [{"version": "v1"}, {"version": "v2", "suite": "dmc"}])
def test_without_a_continue_head_no_dream_ends(fields: dict) -> None:
    made = session("Pendulum-v1", **fields)
    workflow = made.workflow
    assert workflow.model.going_on is None
    batch = batch_of(made)
    # An end of an episode is no news either: theirs asks for it with a continue head only.
    batch.values["is_terminal"][:, -1] = True
    result = workflow.update_agent(batch, PHASE)
    assert "loss/continue" not in result.metrics
    assert "world_model/end_bias" not in result.metrics
    assert "parameters/continue" not in workflow.describe()
    # 1 + 0.99 + 0.99^2 + 0.99^3: from every state.
    assert float(result.metrics["controller/length"]) == pytest.approx(3.940399, abs=1e-5)
    state = workflow.model.rssm.initial(3)
    for _ in range(3):
        state, step = workflow.dream_step(state, np.zeros((3, 1), np.float32))
        assert not step.ended.any()


def test_with_a_continue_head_the_end_of_an_episode_is_known() -> None:
    made = session("Pendulum-v1", version="v2", reward_transform="none")
    assert made.workflow.model.going_on is not None
    batch = batch_of(made)
    batch.values["is_terminal"][:] = True
    assert float(made.workflow.update_agent(batch, PHASE).metrics["controller/length"]) == 0


def test_rewards_are_learned_as_their_tanh() -> None:
    made = session(version="v2", reward_unit=2.0)
    batch = batch_of(made)
    batch.values["reward"][0, :4] = [0.0, 1.0, -4.0, 30.0]
    data = made.workflow._sequence(batch)["reward"]
    assert data[:4, 0].tolist() == pytest.approx([0.0, math.tanh(0.5), -math.tanh(2.0), 1.0])
    plain = session(version="v2", suite="dmc", reward_unit=2.0)
    assert plain.workflow._sequence(batch)["reward"][:4, 0].tolist() == pytest.approx([0.0, 0.5, -2.0, 15.0])


def test_ends_of_episodes_are_drawn_more_often_where_they_are_to_be() -> None:
    assert isinstance(session(version="v2").buffers["replay"], EndsReplay)
    assert not isinstance(session(version="v2", suite="dmc").buffers["replay"], EndsReplay)
    named = {"_target_": "sequence_replay", "_partial_": True}
    with pytest.raises(ConfigError, match="prioritize_ends"):
        session(version="v2", buffers={"replay": named})
    named["_target_"] = "ends_replay"
    assert isinstance(session(version="v2", buffers={"replay": named}).buffers["replay"], EndsReplay)


@pytest.mark.parametrize(
    ("version", "hook", "actions"), [("v1", "update_agent", "random"), ("v3", "update_world_model", None)]
)
def test_what_comes_before_training(version: str, hook: str, actions: str | None) -> None:
    made = session(version=version, prefill_steps=64, pretrain_updates=5)
    prefill, pretrain, _ = made.scheduler.phases
    assert prefill.options.get("actions") == actions
    assert [spec.name for spec in pretrain.hooks] == [hook]


@pytest.mark.parametrize(("version", "by_mode"), [("v1", True), ("v2", True), ("v3", False)])
def test_the_first_two_versions_are_evaluated_by_the_mode(tmp_path, version: str, by_mode: bool) -> None:
    fields = {**SMALL, "version": version, "max_env_steps": 32, "prefill_steps": 16, "quiet": True, "video": False}
    fields |= {"eval_freq_epochs": None, "eval_episodes": 2, "eval_max_episode_steps": 20, "pretrain_updates": 0}
    gymlab.train("Pendulum-v1", algo="dreamer", runs_dir=tmp_path, run_id="one", **fields)
    agent = gymlab.load("one", runs_dir=tmp_path)
    # Nothing is drawn: an evaluation after others gives the same returns.
    first, second = (agent.evaluate(3, seed=1).returns for _ in range(2))
    assert (list(first) == list(second)) == by_mode


def test_the_actor_of_the_third_version_may_be_certain() -> None:
    workflow = session().workflow
    with torch.no_grad():
        workflow.actor.layers[-1].weight.zero_()
        workflow.actor.layers[-1].bias.copy_(torch.tensor([200.0, 0.0]))
    _, _, extras = workflow.act(np.zeros((1, 4), np.float32))
    assert extras["probabilities"][0].tolist() == [1.0, 0.0]


def test_discrete_observations_are_seen_as_one_hots_and_learned_by_cross_entropy() -> None:
    made = session("FrozenLake-v1")
    workflow, batch = made.workflow, batch_of(made)
    seen: list[torch.Tensor] = []
    workflow.model.encoder.vector.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        decoder = workflow.model.decoder.vector.layers[-1]
        decoder.weight.zero_()
        decoder.bias.zero_()
    result = workflow.update_agent(batch, PHASE)
    assert float(result.metrics["loss/reconstruction/vector"]) == pytest.approx(math.log(16), abs=1e-5)
    assert seen[0].unique().tolist() == [0, 1]
    # What is expected is a distribution.
    expected = workflow.model.decoder(workflow.model.rssm.initial(2))["vector"]
    assert expected.sum(-1).tolist() == pytest.approx([1, 1], abs=1e-5)


class Panel(gym.Env):
    """A number, a dial of three positions, two of two, and a switch: parts of one vector."""

    observation_space = gym.spaces.Dict(
        {
            "a": gym.spaces.Box(-9, 9, (1,), np.float32),
            "b": gym.spaces.Discrete(3),
            "c": gym.spaces.MultiDiscrete([2, 2]),
            "d": gym.spaces.MultiBinary(1),
        }
    )
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action):
        self.steps += 1
        return self._look(), 0.0, self.steps == 9, False, {}

    def _look(self):
        k = self.steps
        return {"a": np.array([k], np.float32), "b": k % 3, "c": np.array([k % 2, 1]), "d": np.array([k % 2], np.int8)}


def test_parts_of_a_mixed_vector_are_learned_each_by_its_own_loss() -> None:
    gym.register("Panel-v0", Panel)
    made = session("Panel-v0")
    workflow = made.workflow
    assert workflow.parts.discrete.choices == ((1, 3), (4, 2), (6, 2))
    assert workflow.parts.discrete.bits == (8,)
    batch_of(made)
    state = workflow.model.rssm.initial(1)
    logits = torch.tensor([[1.5, 1.0, 0.0, -1.0, 0.0, 0.0, 0.0, 2.0, -1.0]])
    workflow.model.decoder.vector.forward = lambda features: logits.clone()
    truth = {"vector": torch.tensor([[math.e - 1, 1, 0, 0, 0, 1, 0, 1, 1]])}
    loss = workflow.model.decoder.losses(state, truth)["vector"].item()
    # (1.5 - 1)^2, -log softmax(1, 0, -1)[0], log 2, log(1 + e^-2), log(1 + e)
    assert loss == pytest.approx(0.25 + 0.407606 + 0.693147 + 0.126928 + 1.313262, abs=1e-5)
    expected = workflow.model.decoder(state)["vector"][0].tolist()
    assert expected[:4] == pytest.approx([math.expm1(1.5), 0.665241, 0.244728, 0.090031], abs=1e-5)
    assert expected[8] == pytest.approx(1 / (1 + math.e), abs=1e-5)
    # A dream shows what the environment could have shown.
    _, step = workflow.dream_step(state, np.array([0]))
    assert step.observation[0].tolist() == pytest.approx([math.expm1(1.5), 1, 0, 0, 1, 0, 0, 1, 0], abs=1e-5)


def test_five_million_records_take_memory_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image replay of that size would be 61 GB: what counts is what a run of its length can fill."""
    monkeypatch.setattr(room, "available_memory", lambda: 10**9)
    pictures = {"obs_type": "rgb", "resize_obs": [64, 64], "replay_size": 5_000_000, "n_envs": 1, "cnn_depth": 2}
    made = session(max_env_steps=20_000, **pictures)
    replay = made.buffers["replay"]
    assert replay.nbytes == 0
    batch_of(made)
    assert replay.nbytes < 20e6
    told = made.workflow.describe()
    assert "5,000,000 records" in told["replay"]
    assert "61.7 GB in memory when full" in told["replay"]
    assert "for the 20,000 of this run" in told["replay"]
    assert 0.2e9 < told["replay_memory_bytes"] < 0.3e9
    with pytest.raises(ConfigError, match="replay_on_disk: true"):
        session(max_env_steps=200_000, **pictures)
    made.close()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"suite": "dmc"}, "suite has no effect with version: v3"),
        ({"version": "v2", "size": "12m"}, "size has no effect with version: v2"),
        ({"weight_decay": 1e-6}, "weight_decay has no effect with optimizer: laprop"),
        ({"version": "v1", "agc": 0.1}, "agc has no effect with optimizer: adam"),
        ({"version": "v1", "classes": 8}, "classes has no effect with latent: gaussian"),
        (
            {"version": "v2", "suite": "dmc", "continue_layers": 2},
            "continue_layers has no effect with continue_scale: 0",
        ),
        ({"version": "v1", "slow_every": 3}, "slow_every has no effect with slow_critic: none"),
        ({"pretrain_hook": "update_agent"}, "pretrain_hook has no effect with pretrain_updates: 0"),
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(fields: dict, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        gymlab.resolve("CartPole-v1", algo="dreamer", **fields)


def test_the_settings_of_a_run_of_an_earlier_release_open_as_they_were() -> None:
    config = gymlab.resolve("CartPole-v1", algo="dreamer", version="v2", cell="layer_norm_gru", deter=64).config
    added = (
        "suite",
        "discrete_obs",
        "reward_transform",
        "adam_eps",
        "prefill_actions",
        "pretrain_hook",
        "prioritize_ends",
    )
    stored = {name: value for name, value in dump(config).items() if name not in added}
    opened = from_dict(stored, lambda name: find_workflow(name).Config)
    before = {
        "reward_transform": "none",
        "prioritize_ends": False,
        "discrete_obs": "numbers",
        "prefill_actions": "random",
    }
    assert {name: getattr(opened, name) for name in before} == before
    assert (opened.pretrain_hook, opened.adam_eps, opened.deter) == ("update_world_model", 1e-5, 64)
    # A run of this release comes back as it is.
    assert from_dict(dump(config), lambda name: find_workflow(name).Config) == config
