"""Δ-IRIS: returns, who learns from what, the curriculum, dreams, and resume in the middle of everything."""

from __future__ import annotations

import os
import signal

import gymnasium as gym
import numpy as np
import pytest
import torch
from dream_door import assert_a_door
from torch import nn

import gymlab
from gymlab.components import winograd
from gymlab.components.compiled import kernels
from gymlab.components.token_world_model import TokenWorldModel
from gymlab.engine.setup import prepare
from gymlab.engine.workflow import PhaseView, Recording, WorldModel
from gymlab.envs.world_model_env import WorldModelEnv
from gymlab.errors import ConfigError
from gymlab.workflows.delta_iris import DeltaIRIS, make_optimizer, returns_of

TINY = {
    "multiples": (1,), "halves": (1,), "fold": 4, "codebook_size": 8, "codebook_dim": 4, "token_features": 4, "tokenizer_channels": 8,
    "tokenizer_frame_channels": 8, "tokenizer_frame_features": 2, "action_channels": 1, "width": 16, "layers": 1, "heads": 2, "blocks": 4,
    "frame_channels": 8, "frame_features": 4, "actor_channels": 8, "actor_features": 2, "lstm": 8, "burn_in": 1, "horizon": 3,
    "tokenizer_batch": 2, "tokenizer_length": 4, "model_batch": 2, "actor_batch": 3, "alpha": 1.0, "collect_env_steps": 20, "first_env_steps": 40,
    "collect_steps": 5, "tokenizer_updates": 2, "model_updates": 2, "actor_updates": 2, "first_tokenizer_updates": 3, "first_model_updates": 2,
    "first_actor_updates": 2, "collect_epochs": None, "max_epochs": 3, "replay_size": 1000, "n_envs": 2, "quiet": True, "video": False,
    "eval_freq_epochs": 2, "eval_episodes": 2, "eval_max_episode_steps": 10, "torch_threads": 1, "max_env_steps": 10_000, "seed": 0,
}  # fmt: skip
FIRST = PhaseView("first", "online", 0.0, 0, 0, 0, None, {"actions": "random", "counts": False})
LATER = PhaseView("later", "online", 0.0, 0, 0, 0, None)


class Tile(gym.Env):
    """A bright tile that the action moves around a ring of 4; it pays to be on the last, and the fifth step is the end."""

    observation_space = gym.spaces.Box(0, 255, (16, 16, 3), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = int(self.np_random.integers(4)), 0
        return self._look(), {}

    def step(self, action):
        self.steps += 1
        self.place = (self.place + int(action) - 1) % 4
        return self._look(), float(self.place == 3), self.steps == 5, False, {}

    def _look(self):
        picture = np.zeros((16, 16, 3), np.uint8)
        picture[4:8, 4 * self.place : 4 * self.place + 4] = 200
        return picture


class LimitedTile(Tile):
    """The same, cut off by a time limit after five steps; after three where it pays, it is over."""

    def step(self, action):
        picture, reward, _, _, info = super().step(action)
        over = self.steps == 3 and reward > 0
        return picture, reward, over, self.steps == 5 and not over, info


gym.register("Tile-v0", Tile)
gym.register("LimitedTile-v0", LimitedTile)


def session(experiment="Tile-v0", **fields):
    return prepare(gymlab.resolve(experiment, algo="delta_iris", **{**TINY, **fields}).config)


@pytest.fixture(scope="module")
def workflow():
    made = session()
    workflow = made.workflow
    for _ in range(6):
        workflow.episodes.add(workflow.collect(FIRST).trajectory)
    yield workflow
    made.close()


def column(*values):
    return torch.tensor(values).unsqueeze(1)


@pytest.mark.parametrize(
    ("ended", "expected"), [((0.0, 0.0, 0.0), (4.685345, 3.846173, 3.99)), ((0.0, 1.0, 0.0), (1.04975, 0.0, 3.99))]
)
def test_returns_by_hand(ended, expected):
    returns, _ = returns_of(column(1.0, 0.0, 2.0), column(*ended), column(0.5, 1.0, 1.5, 2.0), 0.995, 0.95)
    assert returns.flatten().tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("ended", "counts"), [((0.0, 1.0, 0.0, 0.0), [1, 1, 0, 0]), ((0.0,) * 4, [1, 1, 1, 1])])
def test_nothing_counts_after_the_first_end(ended, counts):
    _, weight = returns_of(torch.zeros(4, 1), column(*ended), torch.zeros(5, 1), 0.99, 0.95)
    assert weight.flatten().tolist() == counts


def everything(workflow):
    return {
        name: {key: value.clone() for key, value in module.state_dict().items()}
        for name, module in workflow.modules.items()
    }


@pytest.mark.parametrize(
    ("component", "moved"),
    [("tokenizer", {"tokenizer"}), ("world_model", {"world_model"}), ("controller", {"controller", "slow_controller"})],
)
def test_a_component_learns_alone(workflow, component, moved):
    before = everything(workflow)
    result = getattr(workflow, f"update_{component}")(workflow.samplers[component].sample(), LATER)
    after = everything(workflow)
    changed = {
        name for name in before if any(not torch.equal(before[name][key], after[name][key]) for key in before[name])
    }
    assert changed == moved
    assert result.updates == 1
    assert all(np.isfinite(float(value)) for value in result.metrics.values())
    assert not any(module.training for module in workflow.modules.values())


def test_gradients_of_several_batches_are_one_step():
    """Two parts of one batch, and the same batch at once: the controller's losses aside, which draw dreams, means of equal parts agree."""
    made = [session(accumulate=parts, tokenizer_batch=4 // parts) for parts in (1, 2)]
    steps = []
    for one in made:
        workflow = one.workflow
        for _ in range(4):
            workflow.episodes.add(workflow.collect(FIRST).trajectory)
        batch = workflow.samplers["tokenizer"].sample()
        batch.mask[:] = True
        workflow.tokenizer.quantizer.eval()
        workflow.tokenizer.train = lambda mode=True, net=workflow.tokenizer: net
        workflow.update_tokenizer(batch, LATER)
        steps.append(workflow.tokenizer.encoder.layers[0].weight.grad.clone())
        one.close()
    assert torch.allclose(steps[0], steps[1], atol=1e-5)


@pytest.mark.parametrize("name", ["tokenizer", "world_model", "controller"])
def test_a_part_without_a_step_adds_no_gradient(name):
    one = session(accumulate=2, tokenizer_batch=2, model_batch=2, actor_batch=2)
    workflow = one.workflow
    for _ in range(4):
        workflow.episodes.add(workflow.collect(FIRST).trajectory)
    batch = workflow.samplers[name].sample()
    batch.mask[2:] = False
    batch.mask[2:, -1] = True
    result = getattr(workflow, f"update_{name}")(batch, LATER)
    assert result.updates == 1
    assert all(np.isfinite(float(value)) for key, value in result.metrics.items() if key.startswith("loss/"))
    batch.mask[:, :-1] = False
    assert getattr(workflow, f"update_{name}")(batch, LATER).updates == 0
    one.close()


def test_only_weights_of_linear_layers_decay():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Linear(4, 5), nn.LayerNorm(5), nn.Embedding(6, 5))
    decayed, others = make_optimizer(module, 0.01).param_groups
    assert decayed["weight_decay"] == 0.01
    assert [parameter.shape for parameter in decayed["params"]] == [(5, 4)]
    assert others["weight_decay"] == 0
    assert len(others["params"]) == 8


@pytest.mark.parametrize("end", ["is_terminal", "is_last"])
def test_a_dream_that_would_begin_after_an_end_counts_nothing(workflow, end):
    batch = workflow.samplers["controller"].sample()
    batch.values[end][:, -1] = True
    losses, metrics = workflow._controller_losses(workflow._segments("controller", batch)[0])
    assert [loss.item() for loss in losses.values()] == [0, 0, 0]
    assert metrics["controller/length"].item() == 0


def learned_ends(monkeypatch, **fields):
    """What the world model is told of ends by default, beside terminations and time limits."""
    told, losses = [], TokenWorldModel.losses

    def watched(self, frames, actions, tokens, reward, ended, mask):
        told.append(ended.clone())
        return losses(self, frames, actions, tokens, reward, ended, mask)

    made = session("LimitedTile-v0", **fields)
    workflow = made.workflow
    for _ in range(10):
        workflow.episodes.add(workflow.collect(FIRST).trajectory)
    with monkeypatch.context() as patched:
        patched.setattr(TokenWorldModel, "losses", watched)
        batches = [workflow.samplers["world_model"].sample() for _ in range(20)]
        for batch in batches:
            workflow.update_world_model(batch, LATER)
    made.close()
    flags = {name: np.concatenate([b.values[name][:, 1:] for b in batches]) for name in ("is_terminal", "is_last")}
    return torch.cat(told).numpy(), flags["is_terminal"], flags["is_last"]


def test_a_time_limit_is_an_end_in_the_data_unless_it_is_not_to_be(monkeypatch):
    told, terminations, lasts = learned_ends(monkeypatch)
    assert terminations.any()
    assert (lasts & ~terminations).any()
    np.testing.assert_array_equal(told, lasts)
    told, terminations, _ = learned_ends(monkeypatch, truncation_is_end=False)
    np.testing.assert_array_equal(told, terminations)


def test_the_authors_sizes_take_time_limits_for_ends_and_ours_does_not():
    ends = {}
    for size in ("crafter", "atari", "tiny"):
        config = gymlab.resolve("ALE/Breakout-v5", algo="delta_iris", size=size, max_env_steps=100).config
        ends[size] = config.truncation_is_end
    assert ends == {"crafter": True, "atari": True, "tiny": False}


def test_words_are_found_once_until_the_tokenizer_learns(workflow, monkeypatch):
    asked = []
    encode = workflow.tokenizer.encode
    monkeypatch.setattr(
        workflow.tokenizer, "encode", lambda before, *rest: (asked.append(len(before)), encode(before, *rest))[1]
    )
    batch = workflow.samplers["world_model"].sample()
    (segment,) = workflow._segments("world_model", batch)
    real = segment.mask[:, :-1] & segment.mask[:, 1:]
    assert sum(asked) == real.sum()
    expected = workflow.dreams.words(segment.frames, segment.actions[:, :-1])
    assert torch.equal(segment.words[real], expected[real])
    assert not segment.words[~real].any()
    asked.clear()
    (again,) = workflow._segments("world_model", batch)
    assert torch.equal(again.words, segment.words)
    assert not asked
    workflow.update_tokenizer(workflow.samplers["tokenizer"].sample(), LATER)
    asked.clear()
    workflow._segments("world_model", batch)
    assert sum(asked) == real.sum()


def test_what_an_experiment_says_of_its_episodes_wins():
    made = session(buffers={"episodes": {"_target_": "episodes", "_partial_": True, "capacity": 640}})
    assert made.workflow.episodes.capacity == 640
    made.close()


def test_draws_of_the_first_epoch_do_not_count(workflow):
    workflow.collect(FIRST)
    assert all(sampler.frozen for sampler in workflow.samplers.values())
    workflow.collect(LATER)
    assert not any(sampler.frozen for sampler in workflow.samplers.values())


def test_the_curriculum_of_atari():
    config = gymlab.resolve("ALE/Breakout-v5", algo="delta_iris", size="atari", max_env_steps=100_000).config
    found = []
    for phase in config.curriculum():
        hooks = [hook["name"].removeprefix("update_") for hook in phase["hooks"]]
        found.append((phase["name"], phase.get("duration_cycles"), hooks))
    everyone = ["tokenizer", "world_model", "controller"]
    assert found == [
        ("first", 1, ["collect"]),
        ("from_epoch_2", 4, ["collect"]),
        ("from_epoch_6", 45, ["collect", "tokenizer"]),
        ("from_epoch_51", 25, ["collect", "tokenizer", "world_model"]),
        ("from_epoch_76", 416, ["collect", *everyone]),
        ("from_epoch_492", 109, everyone),
    ]


def test_rewards_are_learned_in_units_and_told_as_they_are():
    found = []
    for unit in (1.0, 0.25):
        made = session(reward_unit=unit)
        workflow = made.workflow
        workflow.episodes.add(workflow.collect(FIRST).trajectory)
        batch = workflow.samplers["world_model"].sample()
        (segment,) = workflow._segments("world_model", batch)
        np.testing.assert_allclose(segment.reward.numpy() * unit, batch.values["reward"], rtol=1e-6)
        nn.init.normal_(workflow.model.reward_head[-1].weight)
        nn.init.normal_(workflow.actor.critic.weight, std=0.1, generator=torch.Generator().manual_seed(0))
        observation = batch.values[f"observation/{workflow.key}"][0, -1]
        recording = Recording(observation[None], np.array([0]), np.array([True]))
        _, step = workflow.dream_step(workflow.dream_start(recording), np.array([0]))
        _, _, shown = workflow.act(observation[None], deterministic=True)
        found.append((step.reward.item(), shown["value"].item()))
        made.close()
    assert found[1] == pytest.approx([value / 4 for value in found[0]], rel=1e-5)
    assert 0 not in found[0]


def test_dreams_are_a_door(workflow):
    assert isinstance(workflow, WorldModel)
    environment, observations = Tile(), []
    observations.append(environment.reset(seed=3)[0])
    actions = np.array([0, 1, 2, 2, 0])
    for action in actions[:4]:
        observations.append(environment.step(action)[0])
    begins = np.array([True, False, False, False, False])
    recording = Recording(np.stack(observations).transpose(0, 3, 1, 2), actions, begins)
    # Weights near 0 would make all words equally likely: the first would always be taken.
    for parameter in workflow.model.parameters():
        nn.init.normal_(parameter, std=0.5)
    assert_a_door(workflow, recording, start=1, horizon=3)


def test_dreams_of_ten_times_the_context_go_on():
    """Step by step, beside the truth, as an environment, and where the controller learns."""
    made = session(horizon=40)
    workflow = made.workflow
    assert workflow.config.blocks == 4
    told = workflow.describe()["dream"]
    assert told == "2 real frames, then 40 steps, of which the context holds 3: then it is emptied"
    for parameter in workflow.model.parameters():
        nn.init.normal_(parameter, std=0.5)
    generator = np.random.default_rng(0)
    pictures = generator.integers(0, 255, (50, 3, 16, 16), np.uint8)
    recording = Recording(pictures, generator.integers(3, size=50), np.arange(50) == 0)
    steps = assert_a_door(workflow, recording, start=5, horizon=40)
    assert len({step.observation.tobytes() for step in steps}) > 10
    spaces = (workflow.context.observation_space, workflow.context.action_space)
    seen = Recording(recording.observations[:3], recording.actions[:3], recording.is_first[:3])
    environment = WorldModelEnv(workflow, *spaces, lambda generator: seen, max_steps=45, render_mode=None)
    environment.reset(seed=1)
    lasted = [environment.step(step % 3) for step in range(45)]
    assert lasted[-1][3] or any(step[2] for step in lasted)
    workflow.episodes.add(workflow.collect(FIRST).trajectory)
    result = workflow.update_controller(workflow.samplers["controller"].sample(), LATER)
    assert all(np.isfinite(float(value)) for value in result.metrics.values())
    made.close()


def test_what_was_just_seen_is_judged_before_it_is_learned(workflow):
    workflow.judged = -1
    workflow.config.__dict__["collect_steps"] = 25
    result = workflow.collect(LATER)
    workflow.config.__dict__["collect_steps"] = 5
    assert workflow.held_out is not None
    assert set(result.metrics) <= {f"world_model/open_loop/{steps}" for steps in (1, 5, 15)}
    assert workflow.judged == workflow.context.counters.epoch


def test_epochs_later_the_newest_steps_are_dreamt_of_anew(workflow):
    workflow.judged, counters = -1, workflow.context.counters
    workflow.config.__dict__["collect_steps"] = 25
    workflow.collect(LATER)
    workflow.config.__dict__["collect_steps"] = 5
    first = workflow.dreams_held_out()
    with torch.no_grad():
        workflow.tokenizer.decoder.layers[-1].bias += 0.5
    counters.epoch += 1
    assert workflow.dreams_held_out() is first  # the epoch that just ended
    counters.epoch += 1
    later = workflow.dreams_held_out()
    counters.epoch -= 2
    np.testing.assert_array_equal(later.truth["image"], first.truth["image"])
    assert (later.dream["image"] != first.dream["image"]).any()


@pytest.mark.parametrize(
    ("experiment", "fields", "message"),
    [
        ("Pendulum-v1", {}, "chooses among actions"),
        ("CartPole-v1", {}, "sees one square picture"),
        ("Tile-v0", {"width": 32}, "width: 32 is to be 4 places"),
        ("Tile-v0", {"fold": 1}, "width: 16 is to be 64 places"),
    ],
)
def test_what_it_cannot_do_is_said(experiment, fields, message):
    with pytest.raises(ConfigError, match=message):
        session(experiment, **fields)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return gymlab.train("Tile-v0", algo="delta_iris", runs_dir=tmp_path_factory.mktemp("whole"), **TINY)


def cut_and_resumed(directory, monkeypatch, hook, fields):
    """A run that was stopped in the fifth call of a hook, and went on."""
    calls, function = [], getattr(DeltaIRIS, hook)

    def cut(self, *arguments):
        calls.append(hook)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return function(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(DeltaIRIS, hook, cut)
        run = gymlab.train("Tile-v0", algo="delta_iris", runs_dir=directory, run_id="cut", **fields)
        assert run.status == "stopped"
    return gymlab.resume("cut", runs_dir=directory)


def assert_equal_runs(whole, resumed):
    assert resumed.status == whole.status == "finished"
    rows = [{k: v for k, v in run.metrics.items() if not k.startswith("sys/")} for run in (whole, resumed)]
    assert rows[0] == rows[1]
    first, second = (run.checkpoints.find().read_model() for run in (whole, resumed))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("hook", ["update_tokenizer", "update_world_model", "update_controller", "collect"])
def test_resume_is_exact_in_the_middle_of_an_epoch(tmp_path, monkeypatch, whole, hook):
    assert_equal_runs(whole, cut_and_resumed(tmp_path, monkeypatch, hook, TINY))


@pytest.mark.skipif(kernels("winograd") is None, reason="no C compiler, or a processor of another kind")
def test_resume_is_exact_where_the_kernel_computes_on_two_threads(tmp_path, monkeypatch):
    shared, weight_gradient = [], winograd.weight_gradient

    def watched(x, gradient):
        shared.append(winograd._threads(x))
        return weight_gradient(x, gradient)

    monkeypatch.setattr(winograd, "is_wanted", lambda: True)
    monkeypatch.setattr(winograd, "FEWEST_TILES", 1)
    monkeypatch.setattr(winograd, "FEWEST_A_THREAD", 1)
    monkeypatch.setattr(winograd, "weight_gradient", watched)
    fields = TINY | {"tokenizer_channels": 32, "torch_threads": 2}
    whole = gymlab.train("Tile-v0", algo="delta_iris", runs_dir=tmp_path, **fields)
    assert set(shared) == {2}
    resumed = cut_and_resumed(tmp_path, monkeypatch, "update_tokenizer", fields)
    torch.set_num_threads(1)
    assert_equal_runs(whole, resumed)
