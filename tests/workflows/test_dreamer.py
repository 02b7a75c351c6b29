"""Dreamer: sizes, what learns from what, memory, resume, and that it solves something."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from dream_door import assert_a_door

import gymlab
from gymlab.cli.main import main
from gymlab.engine.agent import load
from gymlab.engine.setup import prepare
from gymlab.engine.workflow import PhaseView, Recording, WorldModel
from gymlab.errors import ConfigError

TINY = {
    "deter": 16,
    "hidden": 8,
    "units": 8,
    "stoch": 4,
    "classes": 4,
    "blocks": 2,
    "batch_size": 4,
    "batch_length": 8,
    "horizon": 4,
    "replay_size": 2000,
    "prefill_steps": 64,
    "train_ratio": 8,
    "n_envs": 2,
    "quiet": True,
    "video": False,
    "eval_episodes": 2,
    "eval_max_episode_steps": 20,
    "torch_threads": 1,
}
PHASE = PhaseView("train", "online", 0.0, 0, 0, 0, None)
RANDOM = PhaseView("prefill", "online", 0.0, 0, 0, 0, None, {"actions": "random"})


class Odd(gym.Env):
    """A picture and a vector at once, and two kinds of choices."""

    observation_space = gym.spaces.Dict(
        {
            "eye": gym.spaces.Box(0, 255, (32, 32, 3), np.uint8),
            "ear": gym.spaces.Box(-1, 1, (3,), np.float32),
        }
    )
    action_space = gym.spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action):
        self.steps += 1
        return self._look(), float(action[0]), self.steps == 9, False, {}

    def _look(self):
        eye = np.full((32, 32, 3), self.steps * 20, np.uint8)
        eye[..., 0] = 7
        return {"eye": eye, "ear": np.array([self.steps / 10, 0, 1], np.float32)}


class Recall(gym.Env):
    """The first observation says which action the third step asks for; what comes between looks always the same."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.sign = int(self.np_random.integers(2))
        self.steps = 0
        return np.array([2.0 * self.sign - 1, 0], np.float32), {}

    def step(self, action):
        self.steps += 1
        reward = float(self.steps == 3 and action == self.sign)
        return np.array([0, self.steps / 3], np.float32), reward, self.steps == 3, False, {}


def tiny(version: str = "v3") -> dict:
    """Small settings, but those that do nothing in a version."""
    idle = {"v1": ("blocks", "classes"), "v2": ("blocks",), "v3": ()}[version]
    return {name: value for name, value in TINY.items() if name not in idle}


def session(experiment: str = "CartPole-v1", **fields):
    small = tiny(fields.get("version", "v3"))
    resolved = gymlab.resolve(experiment, algo="dreamer", **{**small, "max_env_steps": 10_000, "seed": 0, **fields})
    return prepare(resolved.config)


def batch_of(made):
    replay = made.buffers["replay"]
    while not replay.ready():
        replay.add(made.workflow.collect(RANDOM).trajectory)
    return replay.sample()


def test_parameters_of_the_smallest_size() -> None:
    class Wide(gym.Env):
        observation_space = gym.spaces.Box(-np.inf, np.inf, (24,), np.float32)
        action_space = gym.spaces.Box(-1, 1, (6,), np.float32)

        def reset(self, *, seed=None, options=None):
            return np.zeros(24, np.float32), {}

        def step(self, action):
            return np.zeros(24, np.float32), 0.0, False, True, {}

    gym.register("Wide-v0", Wide)
    sizes = {
        name: value
        for name, value in TINY.items()
        if name not in ("deter", "hidden", "units", "stoch", "classes", "blocks")
    }
    made = prepare(gymlab.resolve("Wide-v0", algo="dreamer", **{**sizes, "size": "1m", "max_env_steps": 1000}).config)
    described = made.workflow.describe()
    assert sum(count for name, count in described.items() if name.startswith("parameters/")) == 640_867


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_the_actor_does_not_teach_the_model(version: str) -> None:
    made = session("Pendulum-v1", version=version, latent="categorical" if version != "v1" else "gaussian")
    workflow = made.workflow
    data = workflow._sequence(batch_of(made))
    _, _, states = workflow._model_losses(data)
    losses, _ = workflow._behaviour_losses(data, states)
    losses["policy"].backward(retain_graph=True)
    assert all(p.grad is None for p in workflow.model.parameters())
    assert all(p.grad is None or not p.grad.any() for p in workflow.critic.parameters())
    assert all(p.grad is not None for p in workflow.actor.parameters())
    losses["value"].backward(retain_graph=True)
    assert all(p.grad is None for p in workflow.model.parameters())
    assert any(p.grad.abs().sum() > 0 for p in workflow.critic.parameters())


def test_replayed_values_teach_the_model_too() -> None:
    made = session()
    workflow = made.workflow
    data = workflow._sequence(batch_of(made))
    _, _, states = workflow._model_losses(data)
    with torch.no_grad():
        workflow.critic.output.weight.normal_()
    workflow._behaviour_losses(data, states)[0]["replay_value"].backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in workflow.model.rssm.parameters())


def test_kl_terms_teach_one_side_each() -> None:
    made = session(free_nats=0.0)
    workflow = made.workflow
    losses, _, _ = workflow._model_losses(workflow._sequence(batch_of(made)))
    (encoder,) = {next(workflow.model.encoder.parameters())}
    prior = workflow.model.rssm.prior_net[-1].weight
    (through_rep,) = torch.autograd.grad(losses["rep"], prior, retain_graph=True, allow_unused=True)
    assert through_rep is None
    (through_dyn,) = torch.autograd.grad(losses["dyn"], prior, retain_graph=True)
    assert through_dyn.abs().sum() > 0
    (through_rep,) = torch.autograd.grad(losses["rep"], encoder, retain_graph=True)
    assert through_rep.abs().sum() > 0


def test_free_nats_of_a_step_have_no_gradient() -> None:
    made = session(free_nats=100.0)
    losses, _, _ = made.workflow._model_losses(made.workflow._sequence(batch_of(made)))
    assert losses["dyn"].item() == losses["rep"].item() == 100.0
    assert not torch.autograd.grad(losses["dyn"], made.workflow.model.rssm.prior_net[-1].weight)[0].any()


def test_rewards_and_values_begin_at_zero() -> None:
    made = session()
    batch = batch_of(made)
    result = made.workflow.update_agent(batch, PHASE)
    assert result.metrics["controller/value"] == 0
    assert result.metrics["controller/reward"] == 0
    assert float(result.metrics["loss/reward"]) == pytest.approx(np.log(255), abs=1e-3)


def test_stored_latents_are_those_of_training_with_the_same_weights() -> None:
    """With frozen weights and no noise, the memory while acting equals the memory along the replayed sequence."""
    made = session(n_envs=1)
    workflow = made.workflow
    workflow.latent.noise_from = lambda generator, *shape: torch.full((*shape, 1, workflow.latent.groups), 0.5)  # type: ignore[method-assign]
    workflow.latent.noise = lambda *shape, device=None: torch.full((*shape, 1, workflow.latent.groups), 0.5)  # type: ignore[method-assign]
    batch = batch_of(made)
    with torch.no_grad():
        _, _, states = workflow._model_losses(workflow._sequence(batch))
    stored = torch.from_numpy(batch.values["latent/deter"])[:, 1:].float().transpose(0, 1)
    live = ~torch.from_numpy(batch.values["is_last"])[:, 1:].transpose(0, 1)
    torch.testing.assert_close(states.deter[live], stored[live], atol=2e-3, rtol=0)


@pytest.mark.parametrize(
    ("experiment", "fields"),
    [
        ("CartPole-v1", {}),
        ("CartPole-v1", {"version": "v2"}),
        ("CartPole-v1", {"version": "v1", "exploration_noise": 0.3}),
        ("CartPole-v1", {"version": "v1", "continue_scale": 10.0}),
        ("Pendulum-v1", {"version": "v2"}),
        ("Pendulum-v1", {"version": "v2", "suite": "dmc"}),
        ("FrozenLake-v1", {}),
        ("FrozenLake-v1", {"version": "v2"}),
        ("Pendulum-v1", {"imag_last": 2}),
        ("Odd-v0", {"cnn_depth": 2}),
        ("Odd-v0", {"vectorization_mode": "async", "cnn_depth": 2}),
    ],
)
def test_every_kind_takes_a_step_and_moves_all_its_networks(experiment: str, fields: dict) -> None:
    gym.register("Odd-v0", Odd)
    small = {"deter": 16, "hidden": 8, "units": 8}
    made = session(experiment, **{**small, **fields})
    workflow, replay = made.workflow, made.buffers["replay"]
    batch = batch_of(made)
    before = {name: p.clone() for name, m in workflow.modules.items() for p in [next(m.parameters(), torch.zeros(1))]}
    # The first step of the warm-up has the rate 0, and behind heads that begin at 0 there is no gradient in the second.
    for _ in range(3):
        result = workflow.update_agent(batch, PHASE)
        assert all(np.isfinite(float(value)) for value in result.metrics.values())
        replay.write_back(result.write_back) if result.write_back is not None else None
    for name in ("model", "actor", "critic"):
        assert not torch.equal(before[name], next(workflow.modules[name].parameters())), name
    made.close()


def test_mixed_observations_are_stored_apart_and_in_bytes() -> None:
    gym.register("Odd-v0", Odd)
    made = session("Odd-v0", cnn_depth=2)
    batch = batch_of(made)
    eye = batch.values["observation/eye"]
    assert eye.dtype == np.uint8
    assert eye.shape[2:] == (3, 32, 32)
    assert (eye[:, :, 0] == 7).all()
    # The picture's brightness and the vector tell the same time.
    np.testing.assert_allclose(eye[:, :, 1, 0, 0] / 200, batch.values["observation/vector"][..., 0], atol=1e-6)
    last = batch.values["is_last"]
    assert (batch.values["observation/vector"][..., 0][last] == np.float32(0.9)).all()
    assert (batch.values["is_terminal"] == last).all()
    assert not batch.values["action"][last].any()


def test_dreams_beside_the_truth() -> None:
    gym.register("Odd-v0", Odd)
    made = session("Odd-v0", cnn_depth=2)
    workflow = made.workflow
    assert isinstance(workflow, WorldModel)
    environment = made.environment
    environment.reset()
    observations, actions = [], []
    for _ in range(8):
        action = np.array([[1, 2], [0, 1]])
        observations.append(environment.observation[0].copy())
        actions.append(action[0])
        environment.step(action)
    recording = Recording(np.stack(observations), np.stack(actions), np.arange(8) == 0)
    dream = workflow.imagine(recording, 2, 4)
    assert dream.truth.shape == dream.reconstruction.shape == dream.dream.shape == (4, 3 * 32 * 32 + 3)
    np.testing.assert_array_equal(dream.truth, recording.observations[3:7])
    # What was observed after the start reaches the reconstruction and not the dream.
    changed = recording.observations.copy()
    changed[4:] = 0
    again = workflow.imagine(Recording(changed, recording.actions, recording.is_first), 2, 4)
    np.testing.assert_array_equal(again.dream, dream.dream)
    assert not np.array_equal(again.reconstruction[1:], dream.reconstruction[1:])
    assert_a_door(workflow, recording, 2, 4, atol=0.01)


@pytest.mark.parametrize(
    ("version", "fields"),
    [
        ("v3", {"reward_unit": 10.0}),
        ("v1", {}),
        ("v2", {"obs_type": "rgb", "resize_obs": [64, 64], "grayscale_obs": True, "cnn_depth": 2}),
    ],
)
def test_a_dream_is_entered_step_by_step(version: str, fields: dict) -> None:
    made = session(version=version, **fields)
    workflow, environment = made.workflow, made.environment
    generator = np.random.default_rng(0)
    observations = [environment.reset()[0].copy()]
    actions = generator.integers(2, size=7)
    for action in actions[:-1]:
        observations.append(environment.step(np.array([action, action])).observation[0].copy())
    recording = Recording(np.stack(observations), actions, np.arange(7) == 0)
    # What is predicted is what the heads say, in the units of the environment.
    workflow.model.reward.mean = lambda features: torch.full((len(features),), 0.25)
    if workflow.model.going_on is not None:
        workflow.model.going_on.forward = lambda features: torch.zeros(len(features), 1)
    steps = assert_a_door(workflow, recording, 2, 4, atol=1e-5)
    assert [float(step.reward[0]) for step in steps] == [0.25 * fields.get("reward_unit", 1.0)] * 4
    assert (workflow.model.going_on is None) == (version == "v1")
    if version == "v1":
        return
    # An even chance of going on, the discount taken out, is more than a half.
    assert not any(step.ended[0] for step in steps)
    workflow.model.going_on.forward = lambda features: torch.full((len(features), 1), -0.1)
    assert workflow.dream_step(workflow.dream_start(recording), actions[:1])[1].ended.all()
    made.close()


def test_a_buffer_of_the_experiment_sets_the_replays_options() -> None:
    named = {"_target_": "sequence_replay", "_partial_": True, "least": 7, "capacity": 640}
    replay = session(buffers={"replay": named}).buffers["replay"]
    assert (replay.least, replay.capacity_per_env, replay.batch_size) == (7, 320, 4)


def test_phases_follow_the_train_ratio() -> None:
    made = session(train_ratio=8, prefill_steps=64, pretrain_updates=5)
    names = [phase.name for phase in made.scheduler.phases]
    assert names == ["prefill", "pretrain", "train"]
    assert made.scheduler.phases[2].hooks[1].ratio == pytest.approx(8 / (4 * 8))


def test_the_updates_of_a_run_are_those_of_its_ratio(tmp_path) -> None:
    run = gymlab.train(
        "CartPole-v1", algo="dreamer", runs_dir=tmp_path, max_env_steps=264, eval_freq_epochs=None, seed=1, **TINY
    )
    assert run.record["counters"]["updates"] in (49, 50)


def test_unknown_versions_and_spaces_are_refused() -> None:
    with pytest.raises(ConfigError, match="scales observations and returns itself"):
        gymlab.resolve("CartPole-v1", algo="dreamer", normalize_obs="rolling")
    with pytest.raises(ConfigError, match="version"):
        gymlab.resolve("CartPole-v1", algo="dreamer", version="v4")

    class Free(Recall):
        action_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    gym.register("Free-v0", Free)
    with pytest.raises(ConfigError, match="no bounds"):
        session("Free-v0")


def test_an_agent_comes_back_from_its_run(tmp_path) -> None:
    gymlab.train(
        "CartPole-v1", algo="dreamer", runs_dir=tmp_path, run_id="one", max_env_steps=96, eval_freq_epochs=None, **TINY
    )
    agent = load("one", runs_dir=tmp_path)
    agent.seed(3)
    first = [agent.act(np.array([0.1, 0, 0.02 * k, 0], np.float32), deterministic=False) for k in range(12)]
    agent.reset()
    agent.seed(3)
    second = [agent.act(np.array([0.1, 0, 0.02 * k, 0], np.float32), deterministic=False) for k in range(12)]
    assert first == second
    assert agent.extras["probabilities"].shape == (1, 2)


def test_memory_is_used(tmp_path) -> None:
    """Which action pays is told two steps before: without a memory half of all episodes fail."""
    gym.register("Recall-v0", Recall)
    fields = {
        **TINY,
        "deter": 32,
        "hidden": 32,
        "units": 32,
        "batch_size": 32,
        "batch_length": 8,
        "train_ratio": 64,
        "model_lr": 2e-3,
        "warmup_updates": 20,
        "ent_coef": 3e-3,
        "n_envs": 8,
        "eval_episodes": 100,
        "eval_deterministic": True,
    }
    run = gymlab.train(
        "Recall-v0", algo="dreamer", runs_dir=tmp_path, max_env_steps=1600, eval_freq_epochs=None, seed=0, **fields
    )
    assert run.record["result"]["mean"] >= 0.9


def test_a_model_is_learned_from_a_recorded_dataset_alone(tmp_path) -> None:
    pytest.importorskip("minari")
    gymlab.train(
        "CartPole-v1:ppo", runs_dir=tmp_path, run_id="one", max_env_steps=256, quiet=True, video=False, eval_episodes=1
    )
    assert (
        main(["record", "one", "--runs-dir", str(tmp_path), "--episodes", "12", "--out", str(tmp_path / "demos")]) == 0
    )
    (metadata,) = (tmp_path / "demos").glob("**/data/metadata.json")
    fields = {"dataset": str(metadata.parents[1]), "prefill_steps": 0, "pretrain_updates": 6, "n_envs": 2}
    made = session(**fields)
    assert len(made.buffers["replay"]) > 100
    batch = made.buffers["replay"].sample()
    # Every action of CartPole is one of two, but for the last record of an episode, which has none.
    np.testing.assert_array_equal(batch.values["action"].sum(-1), ~batch.values["is_last"])
    run = gymlab.train(
        "CartPole-v1", algo="dreamer", runs_dir=tmp_path, max_env_steps=16, eval_freq_epochs=None, **{**TINY, **fields}
    )
    assert run.record["counters"]["updates"] >= 6
