"""A training from end to end: what it writes, that it repeats, that it stops and fails cleanly."""

import os
import time

import gymnasium as gym
import numpy as np
import pytest
import torch

import gymlab
from gymlab.config import dump
from gymlab.engine.orchestrator import Orchestrator
from gymlab.engine.run import Run, sitting_times, wall_seconds
from gymlab.engine.train import run_config
from gymlab.errors import GymlabError
from gymlab.metrics.report import format_duration

TINY = {
    "max_env_steps": 2048,
    "n_envs": 8,
    "n_steps": 32,
    "batch_size": 64,
    "n_epochs": 2,
    "quiet": True,
    "video": False,
}


def tiny(tmp_path, experiment="CartPole-v1:ppo", **fields):
    return gymlab.train(experiment, runs_dir=tmp_path, **{**TINY, "eval_freq_epochs": 4, "eval_episodes": 10, **fields})


def columns(run, *, without=("sys/",)):
    return {name: values for name, values in run.metrics.items() if not name.startswith(without)}


def parameters(run):
    return run.checkpoints.find().read_model()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("runs"), seed=0)


def test_the_run_directory_is_complete(run):
    names = {path.name for path in run.dir.iterdir()}
    assert {"config.json", "run.json", "metrics.csv", "run.log", "report.md", "curve.png", "checkpoints"} <= names
    assert os.readlink(run.dir.parent / "@last") == run.id
    assert run.status == "finished"
    assert {"torch", "gymnasium", "commit"} <= run.record["versions"].keys()
    assert (run.dir / "checkpoints" / "best.ckpt").exists()
    assert {"mean", "ci95", "n", "min", "max", "solved"} <= run.result.keys()
    assert run.result["n"] == 10


def test_the_saved_config_loads_back_to_the_same(run):
    config = run_config(run)
    assert config.n_envs == 8
    assert dump(config) == run.config_data


def test_counters_and_budget(run):
    steps = run.metrics["train/cnt/env_steps"]
    assert steps == [256 * (index + 1) for index in range(8)]
    assert run.metrics["train/cnt/vec_steps"][-1] == 256
    assert run.metrics["train/cnt/updates"][-1] == 8 * 2 * 4
    assert run.metrics["train/cnt/epoch"] == list(range(1, 9))
    assert [value is not None for value in run.metrics["val/roll/ep_rew/mean"]] == [False, False, False, True] * 2


def test_a_budget_that_is_no_multiple_of_the_rollout_is_met_exactly(tmp_path):
    assert tiny(tmp_path, max_env_steps=1000).metrics["train/cnt/env_steps"][-1] == 1000


def test_no_file_of_a_run_needs_pickle(run):
    kinds = {path.suffix for path in run.dir.rglob("*") if path.is_file()}
    assert kinds <= {".json", ".csv", ".log", ".md", ".png", ".safetensors", ".mp4", ".lock"}


def test_two_seeded_runs_are_equal_and_seeds_differ(tmp_path, run):
    again = tiny(tmp_path, seed=0)
    other = tiny(tmp_path, seed=1)
    assert columns(again) == columns(run)
    for name, tensor in parameters(run).items():
        assert torch.equal(parameters(again)[name], tensor), name
    assert columns(other) != columns(run)


def test_evaluation_changes_nothing_in_training(tmp_path):
    fields = {"seed": 3, "normalize_obs": "rolling", "normalize_reward": True}
    with_evaluation = tiny(tmp_path, **fields, eval_freq_epochs=1, eval_deterministic=False)
    without = tiny(tmp_path, **fields, eval_freq_epochs=None)
    assert columns(with_evaluation, without=("sys/", "val/")) == columns(without)
    for name, tensor in parameters(without).items():
        assert torch.equal(parameters(with_evaluation)[name], tensor), name


def test_the_loaded_agent_acts_as_the_trained_one(run):
    agent = gymlab.load(str(run.dir))
    observations = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    expected, _, _ = agent.workflow.act(observations, deterministic=True)
    assert np.array_equal(agent.act(observations), expected)
    assert agent.act(observations[0]) == expected[0]
    assert agent.action_space.contains(agent.act(observations[0]))


def test_normalisation_travels_with_the_agent(tmp_path):
    run = tiny(tmp_path, normalize_obs="rolling")
    means = [
        tensor for name, tensor in parameters(run).items() if name.startswith("encoder.") and name.endswith("mean")
    ]
    assert means[0].abs().sum() > 0
    before = {name: tensor.clone() for name, tensor in run.agent.workflow.modules["encoder"].state_dict().items()}
    run.agent.evaluate(5)
    for name, tensor in run.agent.workflow.modules["encoder"].state_dict().items():
        assert torch.equal(tensor, before[name])


def test_transfer_starts_from_the_other_runs_parameters(tmp_path):
    source = tiny(tmp_path, seed=1)
    target = tiny(tmp_path, seed=2, init_from_run=source.id, max_env_steps=256, policy_lr=0.0, run_id="target")
    for name, tensor in parameters(source).items():
        assert torch.allclose(parameters(target)[name], tensor), name


def test_transfer_of_a_part_leaves_the_others_as_they_begin(tmp_path):
    source = tiny(tmp_path, seed=1)
    settings = {"max_env_steps": 256, "policy_lr": 0.0}
    fresh = parameters(tiny(tmp_path, seed=2, run_id="fresh", **settings))
    options = {"init_from_run": source.id, "init_parts": ["policy"], **settings}
    mixed = parameters(tiny(tmp_path, seed=2, run_id="mixed", **options))
    for name, tensor in mixed.items():
        expected = parameters(source) if name.startswith("policy.") else fresh
        assert torch.equal(tensor, expected[name]), name
    with pytest.raises(GymlabError, match=r"no part 'polcy'. Did you mean 'policy'"):
        tiny(tmp_path, run_id="wrong", **{**options, "init_parts": ["polcy"]})


def test_transfer_that_does_not_fit_names_the_tensor(tmp_path):
    source = tiny(tmp_path, "Acrobot-v1:ppo")
    with pytest.raises(GymlabError, match=r"does not fit.*policy\."):
        tiny(tmp_path, init_from_run=source.id)


def test_schedules_start_high_and_never_reach_below_the_end(tmp_path):
    values = tiny(tmp_path, policy_lr="lin_0.001", clip_range="lin_0.2").metrics["train/policy_lr"]
    assert values[0] == pytest.approx(0.001)
    assert values[-1] == pytest.approx(0.001 / 8)


def test_evaluation_has_its_own_cap_on_steps(tmp_path):
    run = tiny(tmp_path, eval_max_episode_steps=5, max_env_steps=1024)
    assert run.metrics["val/roll/ep_len/mean"][-1] == 5
    assert run.metrics["train/roll/ep_len/mean"][-1] > 5


def test_a_time_limit_ends_an_evaluation_early(tmp_path):
    run = tiny(tmp_path, eval_time_limit=1e-9, max_env_steps=1024, n_envs=4, vectorization_mode="sync")
    assert run.metrics["train/cnt/env_steps"][-1] == 1024
    assert run.metrics.get("val/roll/episodes", [None])[-1] is None


def test_a_phase_ends_when_its_metric_is_reached(tmp_path):
    hooks = {"hooks": ["collect", "update_controller"], "buffer": "rollout", "type": "online"}
    first = {"name": "until", **hooks, "until": {"metric": "train/roll/ep_rew/mean", "at_least": 1}}
    phases = [first, {"name": "twice", **hooks, "cycles": 2}]
    run = tiny(tmp_path, training={"phases": phases}, max_env_steps=100_000)
    assert run.metrics["train/cnt/epoch"][-1] == 3


def test_early_stop_on_the_training_threshold(tmp_path):
    run = tiny(tmp_path, max_env_steps=200_000, early_stop_on_train_threshold=15, eval_freq_epochs=None)
    assert run.metrics["train/cnt/env_steps"][-1] < 200_000
    assert "reached 15" in run.record["reason"]


def test_a_bandit_with_episodes_of_one_step_has_as_many_steps_as_episodes(tmp_path):
    run = tiny(tmp_path, "Bandit-v0:ppo", max_env_steps=512)
    assert run.metrics["train/cnt/episodes"] == run.metrics["train/cnt/env_steps"]


def test_a_run_that_was_never_evaluated_claims_no_best(tmp_path):
    run = tiny(tmp_path, eval_freq_epochs=None)
    assert not os.path.lexists(run.dir / "checkpoints" / "best.ckpt")
    assert run.record["best_return"] is None
    assert "best" not in (run.dir / "report.md").read_text()
    with pytest.raises(GymlabError, match="None is the best before an evaluation has said so"):
        gymlab.load(f"{run.id}/@best", runs_dir=tmp_path)
    assert gymlab.load(run.id, runs_dir=tmp_path).checkpoint is not None


def test_wall_time_holds_more_than_the_training(tmp_path):
    began = time.time()
    run = tiny(tmp_path)
    whole = time.time() - began
    record = run.record
    assert 0 < record["seconds"] < record["wall_seconds"] <= whole
    assert f"({format_duration(record['seconds'])} of training" in (run.dir / "report.md").read_text()


def test_the_wall_time_of_a_run_with_a_killed_sitting_is_not_known(tmp_path):
    run = Run(tmp_path)
    run.update_record(started=time.time() - 10)
    run.update_record(**sitting_times(run))
    assert 10 <= wall_seconds(run) < 60
    ended = wall_seconds(run)
    run.update_record(wall_seconds=ended, resumed=[{"from": "epoch=0001.ckpt", "time": time.time() - 5}])
    run.update_record(**sitting_times(run))
    assert ended + 5 <= wall_seconds(run) < ended + 55
    # Killed here: the next sitting finds none.
    run.update_record(resumed=[*run.record["resumed"], {"from": "epoch=0002.ckpt", "time": time.time()}])
    run.update_record(**sitting_times(run))
    assert wall_seconds(run) is None


class Countdown(gym.Env):
    """Ten steps an episode."""

    observation_space, action_space = gym.spaces.Box(0, 10, (1,), np.float32), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 10
        return np.array([10], np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.array([self.left], np.float32), 1.0, self.left == 0, False, {}


def test_frames_are_those_that_were_played_where_an_episode_ends_within_a_skip(tmp_path):
    if "Countdown-v0" not in gym.registry:
        gym.register("Countdown-v0", Countdown)
    settings = {
        "max_env_steps": 32,
        "n_envs": 1,
        "n_steps": 16,
        "batch_size": 16,
        "frame_skip": 4,
        "eval_freq_epochs": None,
    }
    run = tiny(tmp_path, "Countdown-v0", algo="ppo", **settings)
    metrics = run.metrics
    steps, episodes, frames = (metrics[f"train/cnt/{name}"][-1] for name in ("env_steps", "episodes", "frames"))
    # An episode of ten frames takes three steps: 4 + 4 + 2.
    open_steps = steps - 3 * episodes
    assert 0 <= open_steps <= 4
    assert frames == 10 * episodes + 4 * open_steps


SHORT = {"n_envs": 2, "quiet": True, "video": False, "eval_episodes": 1, "eval_max_episode_steps": 5}
REPLAY = {
    **SHORT,
    "batch_size": 2,
    "seed_steps": 64,
    "latent": 16,
    "hidden": 16,
    "encoder_hidden": 16,
    "plan_samples": 12,
    "plan_policy_samples": 4,
    "plan_elites": 4,
    "plan_iterations": 2,
}


def test_a_run_shorter_than_an_epoch_has_a_row_and_says_that_nothing_was_learned(tmp_path):
    run = gymlab.train("CartPole-v1:tdmpc2", runs_dir=tmp_path, **REPLAY, max_env_steps=20)
    assert run.record["counters"]["updates"] == run.record["counters"]["epoch"] == 0
    assert (run.metrics["train/cnt/epoch"], run.metrics["train/cnt/env_steps"]) == ([1], [20])
    assert "sys/time/wall" in run.metrics
    (notice,) = (notice for notice in run.record["notices"] if "0 updates" in notice)
    assert notice.startswith("0 updates in 20 env steps: the agent is the one that the run began with.")
    assert "lower seed_steps (64)" in notice
    assert notice in (run.dir / "report.md").read_text()


def test_the_epoch_that_the_end_breaks_off_has_a_row(tmp_path):
    settings = {**REPLAY, "epoch_env_steps": 30, "max_env_steps": 100}
    run = gymlab.train("CartPole-v1:tdmpc2", runs_dir=tmp_path, run_id="one", **settings)
    steps = run.metrics["train/cnt/env_steps"]
    epochs = run.record["counters"]["epoch"]
    assert steps[-1] == run.record["counters"]["env_steps"]
    assert steps[-1] - steps[-2] < 30
    assert run.metrics["train/cnt/epoch"] == list(range(1, epochs + 2))
    # A run that goes on ends that epoch, and its row is the whole one's.
    longer = gymlab.resume("one", runs_dir=tmp_path, max_env_steps=160)
    assert longer.metrics["train/cnt/epoch"][: epochs + 1] == list(range(1, epochs + 2))
    assert longer.metrics["train/cnt/env_steps"][epochs] - steps[-2] == 30
    assert len(set(longer.metrics["train/cnt/epoch"])) == len(longer.metrics["train/cnt/epoch"])


def test_a_run_that_learned_says_nothing_about_updates(run):
    assert not any("updates" in notice for notice in run.record["notices"])


STREAMS = {
    "native": {},
    "sampled": {"eval_deterministic": False, "normalize_obs": "rolling", "vectorization_mode": "sync"},
    "workers": {"vectorization_mode": "async", "env_workers": 2, "n_envs": 4},
}


@pytest.mark.parametrize("kind", STREAMS)
def test_the_episodes_of_the_report_can_be_played_again(tmp_path, monkeypatch, kind):
    """Whatever the videos before them have drawn."""
    seen = []
    play = Orchestrator.play

    def listening(self, environment, phase):
        seen.append((phase, play(self, environment, phase)))
        return seen[-1][1]

    monkeypatch.setattr(Orchestrator, "play", listening)
    run = tiny(tmp_path, **STREAMS[kind], video=True, video_max_seconds=0.2, max_env_steps=512, seed=5)
    phase, reported = seen[-1]
    again = run.agent.evaluate_as_reported(run.record["backend"])
    assert phase == "test"
    assert again.n == 10
    np.testing.assert_array_equal(again.returns, reported.returns)
    np.testing.assert_array_equal(again.lengths, reported.lengths)
    if kind == "sampled":
        assert again.returns.tolist() != run.agent.evaluate(10, seed=5).returns.tolist()
