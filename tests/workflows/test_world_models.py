"""World Models: the pipeline, what C is given, dreams, resume in every phase, and that it solves something, awake and in a dream."""

from __future__ import annotations

import dataclasses
import os
import signal
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from dream_door import assert_a_door

import gymlab
from gymlab.components.mdn_rnn import MDNRNN, Hidden
from gymlab.engine.agent import load
from gymlab.engine.setup import prepare
from gymlab.engine.workflow import PhaseView, Recording, WorldModel
from gymlab.errors import ConfigError
from gymlab.workflows.world_models import CODE, WorldModels

TINY = {
    "hidden": 8,
    "mixtures": 2,
    "batch_size": 4,
    "batch_length": 8,
    "replay_size": 2000,
    "collect_env_steps": 256,
    "model_updates": 4,
    "population": 4,
    "rollouts": 2,
    "n_envs": 4,
    "n_steps": 16,
    "quiet": True,
    "video": False,
    "elite_rollouts": 16,
    "predict_reward": True,
    "predict_end": True,
    "eval_episodes": 2,
    "eval_max_episode_steps": 20,
    "torch_threads": 1,
}
DREAMING = {"evolve_in": "dream", "generations": 1}
RANDOM = PhaseView("collect", "online", 0.0, 0, 0, 0, None, {"actions": "random"})
EVOLVE = PhaseView("evolve", "online", 0.0, 0, 0, 0, None)


class Remember(gym.Env):
    """The first observation says which of two actions pays, from the second step on; it is not said again."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.sign = int(self.np_random.integers(2))
        self.steps = 0
        return np.array([2.0 * self.sign - 1, 1], np.float32), {}

    def step(self, action):
        self.steps += 1
        reward = float(self.steps > 1 and action == self.sign)
        return np.array([0, 0], np.float32), reward, self.steps == 5, False, {}


class Lane(gym.Env):
    """A place on a lane that the action moves; it pays to be near the middle, and the edge is the end."""

    observation_space = gym.spaces.Box(-2, 2, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = float(self.np_random.uniform(-0.7, 0.7)), 0
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.steps += 1
        # Left alone it drifts outwards.
        self.place = 1.1 * self.place + 0.3 * float(action[0])
        return np.array([self.place], np.float32), 1.0, abs(self.place) > 1, self.steps == 30, {}


class Picture(gym.Env):
    """A bright bar that moves to the right, in pictures of 64 x 64."""

    observation_space = gym.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action):
        self.steps += 1
        return self._look(), float(action == 1), self.steps == 6, False, {}

    def _look(self):
        picture = np.zeros((64, 64, 3), np.uint8)
        picture[:, 8 * self.steps : 8 * self.steps + 8] = 200
        return picture


class Named(gym.Env):
    """Every observation tells which episode it belongs to and which step of it it is; episodes last 3 to 11 steps."""

    observation_space = gym.spaces.Box(0, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.name, self.last, self.steps = float(self.np_random.random()), int(self.np_random.integers(3, 12)), 0
        return self._look(), {}

    def step(self, action):
        self.steps += 1
        return self._look(), 1.0, self.steps == self.last, False, {}

    def _look(self):
        return np.array([self.name, self.steps / 16], np.float32)


for name, kind in (("Remember-v0", Remember), ("Lane-v0", Lane), ("Picture-v0", Picture), ("Named-v0", Named)):
    gym.register(name, kind)


def session(experiment: str = "CartPole-v1", **fields):
    fields = {**TINY, "max_env_steps": 10_000, "seed": 0, **fields}
    return prepare(gymlab.resolve(experiment, algo="world_models", **fields).config)


def filled(made, records: int = 256):
    replay = made.buffers["replay"]
    while len(replay) < records:
        replay.add(made.workflow.collect(RANDOM).trajectory)
    return replay


def test_the_pipeline_is_a_list_of_phases() -> None:
    made = session(rounds=2, generations=3, model_updates=250)
    phases = {phase.name: phase for phase in made.scheduler.phases}
    assert list(phases) == [f"{part}_{k}" for k in (1, 2) for part in ("collect", "encode", "model", "evolve")]
    assert [phases[f"collect_{k}"].options["actions"] for k in (1, 2)] == ["random", "controller"]
    assert (phases["model_1"].hooks[0].times, phases["model_1"].duration_updates) == (100, 250)
    assert [hook.name for hook in phases["evolve_1"].hooks] == ["collect_returns", "update_controller"]
    pictures = session("Picture-v0", generations=3, evolve_in="dream")
    assert [p.name for p in pictures.scheduler.phases] == ["collect", "vision", "encode", "model", "evolve"]
    assert [hook.name for hook in pictures.scheduler.phases[-1].hooks] == ["update_controller"]


def test_sizes_of_the_papers_tasks() -> None:
    car = session("Picture-v0", hidden=256, mixtures=5, predict_reward=False, predict_end=False)
    described = car.workflow.describe()
    assert described["parameters/vision"] == 4_348_547
    # One-hots of three choices are as long as steering, gas and brake.
    assert described["parameters/model"] == 422_368
    assert described["parameters/controller"] == 867


def test_c_acts_on_the_memory_from_before_this_step() -> None:
    workflow = session().workflow
    workflow.elite.weights.normal_()
    first, second = np.full((1, 4), 0.1, np.float32), np.full((1, 4), -0.2, np.float32)
    seen = []
    features = workflow._features
    workflow._features = lambda z, hidden: seen.append(hidden.h.clone()) or features(z, hidden)
    action, state, extras = workflow.act(first)
    assert not seen[0].any()
    assert state.hidden.h.any()
    _, after, _ = workflow.act(second, state)
    torch.testing.assert_close(seen[1], state.hidden.h)
    # That memory is M's after the first observation and the action that was taken on it.
    vector = torch.from_numpy(workflow.actions.from_environment(action))
    expected = workflow.model.step(
        torch.from_numpy(first), vector, torch.ones(1, dtype=torch.bool), workflow.model.initial(1)
    )
    torch.testing.assert_close(state.hidden.h, expected.h)
    assert extras["probabilities"].sum() == 1
    forgotten = workflow.reset_state(after, np.array([True]))
    workflow.act(first, forgotten)
    assert not seen[2].any()


def test_controllers_on_trial_act_as_they_would_alone() -> None:
    """Environments with one and the same controller on trial end as an agent with these weights does."""
    made = session("Lane-v0", population=4, rollouts=1, n_envs=4, n_steps=40)
    workflow = made.workflow
    workflow.collect_returns(EVOLVE)
    weights = workflow.trial.weights
    assert workflow.trial.finished
    played = np.array(workflow.trial.returns)[:, 0]
    # The same episodes again, by `act`.
    returns = np.zeros(4)
    for row in range(4):
        alone = session("Lane-v0", population=4, rollouts=1, n_envs=4, n_steps=40)
        alone.workflow.elite.weights.copy_(torch.from_numpy(weights[row]))
        alone.environment.reset()
        state = alone.workflow.initial_state(4)
        while not returns[row]:
            action, state, _ = alone.workflow.act(alone.environment.observation, state, deterministic=True)
            step = alone.environment.step(action)
            state = alone.workflow.reset_state(state, step.is_first)
            returns[row] = sum(e.env_return for e in step.episodes if e.env_index == row)
    np.testing.assert_array_equal(played, returns)


def test_a_generation_is_told_once_it_is_played_and_the_elite_judged_before_it_is_called_so() -> None:
    made = session(elite_every=2, n_steps=8)
    workflow = made.workflow
    kinds, updates = [], []
    for _ in range(400):
        workflow.collect_returns(EVOLVE)
        trial = workflow.trial
        result = workflow.update_controller(None, EVOLVE)
        if workflow.trial is None:
            kinds.append((trial.kind, len(trial.weights), trial.rollouts))
            updates.append(result.updates)
        if len(kinds) == 5:
            break
    generation = ("generation", 4, 2)
    assert kinds == [generation, ("elite", 2, 16), generation, ("elite", 3, 16), generation]
    assert updates == [0, 1, 0, 1, 1]
    assert workflow.elite.episodes.item() in (16, 32)
    assert workflow.history[1][2] == workflow.elite.mean_return
    assert workflow.evolution.generation == 3


def test_a_batch_of_dreams_is_each_dream_alone() -> None:
    made = session(**DREAMING, dream_steps=12)
    workflow = made.workflow
    filled(made)
    workflow.collect_codes(RANDOM)
    workflow.hyperparameters.temperature = 0.0
    workflow.starts = workflow.starts[:1]
    weights = np.random.default_rng(0).normal(size=(5, workflow.controllers.size))
    together = workflow.dream_returns(weights, 3)
    assert together.shape == (5, 3)
    assert np.ptp(together, axis=1).max() < 1e-5
    alone = [workflow.dream_returns(weights[k : k + 1], 1)[0, 0] for k in range(5)]
    np.testing.assert_allclose(together[:, 0], alone, rtol=1e-4, atol=1e-5)


def test_nothing_counts_after_the_end_of_a_dream() -> None:
    made = session(**DREAMING, dream_steps=50)
    workflow = made.workflow
    workflow.starts = np.zeros((1, 4), np.float32)
    ends = iter([False, False, True] + [False] * 50)

    def dream(z, action, begins, hidden, temperature):
        rewards = torch.full((len(z),), 2.0)
        return z, rewards, torch.full((len(z),), next(ends)), Hidden(hidden.h, hidden.c)

    workflow.model.dream = dream
    assert workflow.dream_returns(np.zeros((2, workflow.controllers.size)), 1).tolist() == [[6.0], [6.0]]


def test_a_dream_without_rewards_counts_frames() -> None:
    made = session(**DREAMING, dream_steps=10, predict_reward=False, frame_skip=4, vectorization_mode="sync")
    made.workflow.starts = np.zeros((1, 4), np.float32)
    never = torch.zeros(2, dtype=torch.bool)
    made.workflow.model.dream = lambda z, action, begins, hidden, temperature: (z, torch.ones(2), never, hidden)
    assert made.workflow.dream_returns(np.zeros((2, made.workflow.controllers.size)), 1).tolist() == [[40], [40]]


def test_v_and_m_of_another_run_are_kept_and_its_controller_is_not(tmp_path) -> None:
    fields = {**TINY, "generations": 1, "evolve_in": "dream", "dream_steps": 5, "max_env_steps": 256, "sigma": 0.5}
    first = gymlab.train("CartPole-v1", algo="world_models", runs_dir=tmp_path, run_id="first", seed=0, **fields)
    learned = ("model_updates", "batch_size", "batch_length")
    kept = {name: value for name, value in fields.items() if name not in learned}
    options = {**kept, "init_from_run": "first/@last", "reuse_model": True, "sigma": 1e-6}
    second = gymlab.train("CartPole-v1", algo="world_models", runs_dir=tmp_path, run_id="second", seed=1, **options)
    before, after = (load(f"{run.id}/@last", runs_dir=tmp_path).workflow for run in (first, second))
    for name, value in before.model.state_dict().items():
        torch.testing.assert_close(after.model.state_dict()[name], value)
    assert before.elite.weights.abs().max() > 0.1
    # So small a deviation leaves it where it began: at nothing.
    assert after.elite.weights.abs().max() < 1e-3
    with pytest.raises(ConfigError, match="--init-from-run"):
        gymlab.resolve("CartPole-v1", algo="world_models", reuse_model=True)


def test_first_observations_are_where_dreams_begin() -> None:
    made = session("Remember-v0", n_envs=2)
    filled(made, 100)
    made.workflow.collect_codes(RANDOM)
    assert len(made.workflow.starts) >= 16
    assert (made.workflow.starts[:, 1] == 1).all()
    assert set(made.workflow.starts[:, 0]) == {-1, 1}


def test_pictures_are_learned_encoded_and_expected() -> None:
    made = session("Picture-v0", n_envs=2, vae_batch=4, latent_size=4, vae_lr=1e-3)
    filled(made, 128)
    workflow, sequences = made.workflow, made.buffers["sequences"]
    before = workflow.vision.net.mean.weight.clone()
    pictures = made.buffers["pictures"].sample()
    assert pictures.values["observation/image"].shape == (4, 1, 3, 64, 64)
    result = workflow.update_vision(pictures, RANDOM)
    assert {"loss/reconstruction", "loss/kl", "world_model/vision_kl"} <= result.metrics.keys()
    assert not torch.equal(before, workflow.vision.net.mean.weight)
    assert not sequences.sample().values[CODE].any()
    workflow.collect_codes(RANDOM)
    batch = sequences.sample()
    # The codes are new: sequences begin anew, and M is given no picture that it does not look at.
    assert batch.values["is_first"][:, 0].all()
    assert "observation/image" not in batch.values
    seen = made.buffers["replay"].gather(batch.ids, ("observation/image",))["observation/image"]
    frames = torch.from_numpy(seen[0])
    with torch.no_grad():
        expected = workflow.vision(frames).numpy()
    np.testing.assert_allclose(batch.values[CODE][0], expected, atol=1e-5)
    torch.manual_seed(0)
    z, *_ = workflow._sequences(batch)
    torch.manual_seed(1)
    again, *_ = workflow._sequences(batch)
    assert not torch.equal(z, again)
    metrics = workflow.update_world_model(batch, RANDOM).metrics
    assert metrics["world_model/held_out_nll"] == metrics["world_model/untrained_nll"]
    assert {"loss/nll", "loss/reward", "loss/end"} <= metrics.keys()
    assert {"Dream of image"} == workflow.pictures().keys()
    frame = next(workflow.films()["dream_image"])
    assert frame.dtype == np.uint8
    assert frame.shape[1] > frame.shape[0], "truth, reconstruction and dream stand side by side"


def test_encoding_stops_when_it_is_asked_to_and_goes_on() -> None:
    made = session()
    workflow = made.workflow
    filled(made, 1500)
    context = workflow.context
    workflow.context = dataclasses.replace(context, stop_requested=lambda: True)
    assert workflow.collect_codes(RANDOM).interrupted
    begun = workflow.encoded
    assert 0 < begun < len(made.buffers["replay"])
    workflow.context = context
    result = workflow.collect_codes(RANDOM)
    assert not result.interrupted
    assert workflow.encoded == 0
    whole = workflow.starts
    workflow.collect_codes(RANDOM)
    np.testing.assert_array_equal(workflow.starts, whole)


def test_dreams_beside_the_truth() -> None:
    workflow = session().workflow
    assert isinstance(workflow, WorldModel)
    generator = np.random.default_rng(0)
    observations = generator.normal(size=(9, 4)).astype(np.float32)
    recording = Recording(observations, generator.integers(2, size=9), np.arange(9) == 1)
    dream = workflow.imagine(recording, 3, 4)
    assert dream.truth.shape == dream.reconstruction.shape == dream.dream.shape == (4, 4)
    np.testing.assert_array_equal(dream.truth, observations[4:8])
    np.testing.assert_array_equal(dream.reconstruction, dream.truth)
    # What was observed after the start, and in another episode, does not reach the dream; what was done does.
    changed = observations.copy()
    changed[4:] = changed[0] = 0
    again = workflow.imagine(Recording(changed, recording.actions, recording.is_first), 3, 4)
    np.testing.assert_array_equal(again.dream, dream.dream)
    assert list(dream.others) == ["temperature 0.5", "temperature 1", "temperature 1.5"]
    for name, drawn in dream.others.items():
        assert drawn.shape == (4, 4)
        assert not np.array_equal(drawn, dream.dream)
        np.testing.assert_array_equal(drawn, again.others[name])
    other = recording.actions.copy()
    other[3] = 1 - other[3]
    assert not np.array_equal(
        workflow.imagine(Recording(observations, other, recording.is_first), 3, 4).dream, dream.dream
    )


def test_a_dream_is_entered_step_by_step() -> None:
    workflow = session(predict_end=True, predict_reward=True).workflow
    generator = np.random.default_rng(0)
    observations = generator.uniform(-0.2, 0.2, size=(9, 4)).astype(np.float32)
    # Two episodes: the dream has seen the last one alone.
    recording = Recording(observations, generator.integers(2, size=9), np.isin(np.arange(9), (0, 2)))
    steps = assert_a_door(workflow, recording, 4, 4)
    alone = Recording(observations[2:5], recording.actions[2:5], np.array([True, False, False]))
    _, step = workflow.dream_step(workflow.dream_start(alone), recording.actions[4:5])
    np.testing.assert_array_equal(step.observation, steps[0].observation)
    # A dream may begin at an episode's first observation, and the temperature says how wild it is.
    first = workflow.dream_start(Recording(observations[:1], recording.actions[:1], np.array([True])))
    drawn = []
    for temperature in (0.0, 0.1, 10.0):
        workflow.hyperparameters = SimpleNamespace(temperature=temperature)
        ways = [workflow.dream_step(first, np.array([1]), np.random.default_rng(s))[1].observation for s in range(20)]
        drawn.append(float(np.ptp(ways, axis=0).mean()))
    assert drawn[0] == 0 < drawn[1] < drawn[2]
    # M that predicts no rewards counts frames, and one that predicts no ends has none.
    counting = session(predict_end=False, predict_reward=False, frame_skip=3).workflow
    _, step = counting.dream_step(counting.dream_start(recording), np.array([1]))
    assert (step.reward.tolist(), step.ended.tolist()) == ([3.0], [False])


def test_a_dream_of_pictures_is_entered_step_by_step() -> None:
    workflow = session("Picture-v0", n_envs=2, latent_size=4).workflow
    recording = Recording(
        np.random.default_rng(0).integers(0, 255, (6, 3, 64, 64), np.uint8),
        np.array([0, 1, 2, 0, 1, 2]),
        np.arange(6) == 0,
    )
    assert_a_door(workflow, recording, 1, 3)


def test_a_dream_is_told_of_a_start_only_where_its_recording_has_one() -> None:
    workflow = session(sees_start=True).workflow
    generator = np.random.default_rng(0)
    rows = (generator.normal(size=(5, 4)).astype(np.float32), generator.integers(2, size=5))
    later, begun = (Recording(*rows, np.arange(5) == first) for first in (-1, 0))
    assert workflow.dream_start(Recording(*(part[:1] for part in (*rows, begun.is_first)))).begins.item()
    assert not workflow.dream_start(Recording(*(part[:1] for part in (*rows, later.is_first)))).begins.item()
    hidden = [workflow.dream_start(recording).hidden.h for recording in (begun, later)]
    assert not torch.equal(*hidden)
    dreams = [workflow.imagine(recording, 0, 3).dream for recording in (begun, later)]
    assert not np.array_equal(*dreams)


def test_defaults_are_the_authors_for_carracing() -> None:
    config = gymlab.resolve("Picture-v0", algo="world_models", max_env_steps=1000).config
    published = {
        "latent_size": 32, "vae_lr": 1e-4, "vae_batch": 100, "hidden": 256, "mixtures": 5, "mixture": "per_dimension", "predict_reward": False,
        "predict_end": False, "sees_start": False, "model_lr": 1e-3, "clip_value": 1.0, "model_updates": 4000, "batch_size": 100, "batch_length": 999,
        "controller_sees": "z_h", "controller_bias": True, "evolve_in": "environment", "population": 64, "rollouts": 16, "sigma": 0.1,
        "weight_decay": 0.01, "elite_every": 25, "elite_rollouts": 1024,
    }  # fmt: skip
    assert {name: getattr(config, name) for name in published} == published


def test_phases_that_draw_from_the_replay_are_told_what_to_draw_from() -> None:
    """As an experiment wrote them before V and M had buffers of their own."""
    collect = {"name": "collect", "type": "online", "hooks": ["collect"], "buffer": "replay", "duration_steps": 256}
    model = {"name": "model", "type": "offline", "hooks": ["update_world_model"], "buffer": "replay"}
    model["duration_updates"] = 4
    with pytest.raises(ConfigError, match=r"'update_world_model' .* draws from the buffer 'replay'.*: sequences"):
        session(training={"phases": [collect, model]})
    with pytest.raises(ConfigError, match=r"_target_: record_replay.*not a SequenceReplay \(missing a required arg"):
        session(buffers={"replay": {"_target_": "sequence_replay", "_partial_": True, "capacity": 640}})
    named = session(buffers={"replay": {"_target_": "record_replay", "_partial_": True, "capacity": 640}})
    assert named.workflow.replay.capacity_per_env == 160


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="as they are"):
        gymlab.resolve("CartPole-v1", algo="world_models", normalize_obs="rolling")
    with pytest.raises(ConfigError, match="need a number of them"):
        gymlab.resolve("CartPole-v1", algo="world_models", evolve_in="dream")
    with pytest.raises(ConfigError, match="all dreams are alike"):
        gymlab.resolve(
            "CartPole-v1",
            algo="world_models",
            evolve_in="dream",
            generations=3,
            predict_reward=False,
            predict_end=False,
        )
    with pytest.raises(ConfigError, match="elite_rollouts"):
        gymlab.resolve("CartPole-v1", algo="world_models", elite_rollouts=4)
    with pytest.raises(ConfigError, match="first observation"):
        session().workflow.dream_returns(np.zeros((1, 26)), 1)


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """Every sequence that M reads while it learns at a rate of 0: its untouched weights, inputs and what came out."""
    taken, forward = [], MDNRNN.forward

    def watched(self, z, action, is_first, state):
        h, last = forward(self, z, action, is_first, state)
        if torch.is_grad_enabled():
            taken.append((z.clone(), action.clone(), is_first.clone(), h.detach().clone()))
        return h, last

    fields = {**TINY, "model_lr": 0.0, "model_updates": 60, "batch_length": 4, "sees_start": True, "generations": 1}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MDNRNN, "forward", watched)
        directory = tmp_path_factory.mktemp("read")
        gymlab.train("Named-v0", algo="world_models", runs_dir=directory, run_id="one", **fields, max_env_steps=1000)
    return load("one/@last", runs_dir=directory).workflow.model, taken


def test_m_is_told_of_a_start_only_where_an_episode_begins(read) -> None:
    _, taken = read
    told = torch.cat([is_first.flatten() for _, _, is_first, _ in taken])
    real = torch.cat([(z[..., 1] == 0).flatten() for z, _, _, _ in taken])
    assert len(taken) == 60
    assert real.any()
    assert torch.equal(told, real)


def test_m_remembers_an_episode_from_its_start_in_windows_that_are_shorter(read) -> None:
    model, taken = read
    steps = {}
    for z, action, _, h in taken:
        for place, moved, after in zip(z.flatten(0, 1), action.flatten(0, 1), h.flatten(0, 1), strict=True):
            steps.setdefault(place[0].item(), {})[round(16 * place[1].item())] = (place, moved, after)
    assert max(len(episode) for episode in steps.values()) > 8
    for episode in steps.values():
        whole = [episode[step] for step in range(len(episode))]
        z, action = (torch.stack([row[k] for row in whole]).unsqueeze(1) for k in (0, 1))
        with torch.no_grad():
            h, _ = model(z, action, z[..., 1] == 0, model.initial(1))
        torch.testing.assert_close(h[:, 0], torch.stack([row[2] for row in whole]))


RESUMED = {
    "environment": ("CartPole-v1", {"rounds": 2, "generations": 2, "elite_every": 2, "population": 5}),
    "dream": ("Lane-v0", {"evolve_in": "dream", "generations": 3, "dream_steps": 10}),
    "pictures": ("Picture-v0", {"n_envs": 2, "vae_updates": 2, "vae_batch": 2, "latent_size": 3, "collect_env_steps": 64, "generations": 1}),
}  # fmt: skip


@pytest.mark.parametrize("kind", RESUMED)
def test_resumed_equals_uninterrupted_wherever_it_was_cut(tmp_path, kind: str) -> None:
    """A run goes back further and further: in the middle of trials, between generations, and to where M was still learning."""
    experiment, fields = RESUMED[kind]
    fields = {**TINY, **fields, "max_env_steps": 6000, "keep_checkpoints": 99, "eval_freq_epochs": 1, "seed": 3}
    fields |= {"early_stop_on_eval_threshold": False, "eval_episodes": 1}
    whole = gymlab.train(experiment, algo="world_models", runs_dir=tmp_path, run_id="whole", **fields)
    expected = {name: values for name, values in whole.metrics.items() if not name.startswith("sys/")}
    model = whole.checkpoints.find().read_model()
    saved = sorted(int(path.name[6:10]) for path in (whole.dir / "checkpoints").glob("epoch=????.ckpt"))
    assert len(saved) >= 4
    for epoch in saved[-2 :: -max(1, len(saved) // 4)]:
        resumed = gymlab.resume("whole", epoch=epoch, runs_dir=tmp_path)
        rows = {name: values for name, values in resumed.metrics.items() if not name.startswith("sys/")}
        assert rows == expected, epoch
        again = resumed.checkpoints.find().read_model()
        assert all(torch.equal(tensor, again[name]) for name, tensor in model.items())


def test_resume_in_the_middle_of_ms_learning_goes_on_with_the_carried_state(tmp_path, monkeypatch) -> None:
    fields = {**TINY, "model_updates": 12, "batch_length": 3, "generations": 1, "max_env_steps": 1000, "seed": 2}
    whole = gymlab.train("Named-v0", algo="world_models", runs_dir=tmp_path, run_id="whole", **fields)
    calls, update = [], WorldModels.update_world_model

    def cut(self, *arguments):
        calls.append(0)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(WorldModels, "update_world_model", cut)
        stopped = gymlab.train("Named-v0", algo="world_models", runs_dir=tmp_path, run_id="cut", **fields)
    assert (stopped.status, len(calls)) == ("stopped", 5)
    carried = stopped.checkpoints.find().read_part("workflow")["carried"]["h"]
    assert torch.as_tensor(carried).any()
    resumed = gymlab.resume("cut", runs_dir=tmp_path)
    first, second = (run.checkpoints.find().read_model() for run in (whole, resumed))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_an_agent_comes_back_from_its_run(tmp_path) -> None:
    fields = {**TINY, "generations": 2, "eval_freq_epochs": None, "max_env_steps": 4000}
    gymlab.train("CartPole-v1", algo="world_models", runs_dir=tmp_path, run_id="one", **fields)
    agent = load("one", runs_dir=tmp_path)
    assert agent.workflow.elite.episodes >= 16
    observations = [np.array([0.1, 0, 0.02 * k, 0], np.float32) for k in range(12)]
    first = [agent.act(observation) for observation in observations]
    agent.reset()
    assert first == [agent.act(observation) for observation in observations]


@pytest.mark.learns
def test_the_memory_of_m_is_what_a_linear_controller_remembers_by(tmp_path) -> None:
    """What pays is told once, at the start: without h half of the later steps fail, 2 of 4."""
    fields = {**TINY, "hidden": 16, "n_envs": 64, "n_steps": 8, "population": 16, "rollouts": 16, "sigma": 0.5}
    fields |= {"model_updates": 100, "collect_env_steps": 2000, "elite_every": 5, "eval_episodes": 64}
    fields |= {"generations": 20, "max_env_steps": 100_000, "eval_freq_epochs": None, "replay_size": 5000}
    run = gymlab.train("Remember-v0", algo="world_models", runs_dir=tmp_path, seed=0, **fields)
    assert run.record["result"]["mean"] >= 3.8
    blind = gymlab.train("Remember-v0", algo="world_models", runs_dir=tmp_path, seed=0, controller_sees="z", **fields)
    assert blind.record["result"]["mean"] < 3


@pytest.mark.learns
def test_a_controller_that_was_evolved_in_dreams_alone_works_awake(tmp_path) -> None:
    fields = {**TINY, "hidden": 32, "n_envs": 8, "evolve_in": "dream", "population": 16, "rollouts": 8, "sigma": 0.5}
    fields |= {"model_updates": 400, "model_lr": 3e-3, "batch_size": 16, "batch_length": 16, "replay_size": 10_000}
    fields |= {"collect_env_steps": 4000, "dream_steps": 30, "generations": 12, "elite_every": 4}
    fields |= {"eval_freq_epochs": None, "eval_episodes": 50, "eval_max_episode_steps": None, "max_env_steps": 4000}
    run = gymlab.train("Lane-v0", algo="world_models", runs_dir=tmp_path, seed=0, **fields)
    nll = [run.metrics[f"train/world_model/{name}_nll"] for name in ("held_out", "untrained")]
    learned, untrained = ([value for value in column if value is not None][-1] for column in nll)
    assert learned < untrained - 1
    # Random actions last about 12 steps of 30.
    assert run.record["result"]["mean"] >= 25
