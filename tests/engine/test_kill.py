"""A run that is killed without warning goes on from its newest whole checkpoint as if nothing had happened."""

import multiprocessing
import os
import random
import signal
import time

import gymnasium as gym
import numpy as np
import pytest
import torch

import gymlab
from gymlab.engine.checkpoint import CheckpointManager
from gymlab.engine.run import Run

COMMON = {
    "quiet": True,
    "video": False,
    "eval_freq_epochs": 4,
    "eval_episodes": 5,
    "eval_max_episode_steps": 50,
    "early_stop_on_eval_threshold": False,
    "seed": 3,
}
ROLLOUTS = {"n_envs": 2, "n_steps": 64, "batch_size": 64, "n_epochs": 4, "max_env_steps": 72 * 128}
KINDS = {
    "ppo, native": ("CartPole-v1:ppo", {**ROLLOUTS, "normalize_obs": "rolling"}),
    "ppo, replayed": ("Acrobot-v1:ppo", {**ROLLOUTS, "vectorization_mode": "sync"}),
    "ppo, workers": ("Acrobot-v1:ppo", {**ROLLOUTS, "vectorization_mode": "async"}),
    "reinforce, native": ("CartPole-v1:reinforce", {**ROLLOUTS, "unfinished": "bootstrap"}),
    "reinforce, replayed": (
        "CartPole-v1:reinforce",
        {**ROLLOUTS, "unfinished": "bootstrap", "vectorization_mode": "sync"},
    ),
    "dreamer, with its replay": (
        "CartPole-v1:dreamer_v3",
        {
            "n_envs": 2,
            "deter": 16,
            "hidden": 8,
            "units": 8,
            "stoch": 4,
            "horizon": 3,
            "batch_size": 4,
            "batch_length": 8,
            "train_ratio": 8,
            "prefill_steps": 64,
            "epoch_env_steps": 16,
            "max_env_steps": 72 * 16,
            "replay_size": 400,
            "torch_threads": 1,
        },
    ),
    "q_learning, replayed": (
        "FrozenLake-v1:q_learning",
        {"n_envs": 2, "n_steps": 64, "max_env_steps": 72 * 128, "vectorization_mode": "sync"},
    ),
}


def columns(run):
    return {name: values for name, values in run.metrics.items() if not name.startswith("sys/")}


def train_apart(tmp_path, experiment, settings):
    """Train, or go on, as the leader of a process group of its own."""
    os.setsid()
    if (tmp_path / "cut").exists():
        gymlab.resume("cut", runs_dir=tmp_path)
    else:
        gymlab.train(experiment, runs_dir=tmp_path, run_id="cut", **settings)


def start(tmp_path, experiment, settings):
    process = multiprocessing.get_context("fork").Process(target=train_apart, args=(tmp_path, experiment, settings))
    process.start()
    return process


def kill_after(process, run, epoch, seconds):
    """SIGKILL the whole process group some time after the epoch's checkpoint is there."""
    deadline = time.monotonic() + 120
    while process.is_alive() and time.monotonic() < deadline:
        if any(checkpoint.place[0] >= epoch for checkpoint in run.checkpoints.all()):
            time.sleep(seconds)
            os.killpg(process.pid, signal.SIGKILL)
            break
        time.sleep(0.001)
    process.join(timeout=30)


def kill_three_times(tmp_path, experiment, settings):
    """The run after three kills at random points, gone on with to its end."""
    cut, generator = Run(tmp_path / "cut"), random.Random(0)
    process = start(tmp_path, experiment, settings)
    for epoch in sorted(generator.sample(range(4, 64), 3)):
        kill_after(process, cut, epoch, generator.uniform(0, 0.03))
        assert cut.status == "crashed"
        process = start(tmp_path, experiment, settings)
    process.join(timeout=120)
    assert process.exitcode == 0
    assert cut.status == "finished"
    assert len(cut.record["resumed"]) == 3
    return cut


@pytest.mark.parametrize("kind", KINDS)
def test_three_kills_change_nothing(tmp_path, kind):
    experiment, fields = KINDS[kind]
    settings = {**COMMON, **fields}
    whole = gymlab.train(experiment, runs_dir=tmp_path, run_id="whole", **settings)
    cut = kill_three_times(tmp_path, experiment, settings)
    assert columns(cut) == columns(whole)
    first, second = whole.checkpoints.find().read_model(), cut.checkpoints.find().read_model()
    assert all((first[name] == second[name]).all() for name in first)


class Hidden(gym.Env):
    """A walk that draws from the operating system's randomness: no seed brings it back to where it was."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = np.zeros(1, np.float32), 0
        return self.place.copy(), {}

    def step(self, action):
        self.steps += 1
        self.place += np.float32(os.urandom(1)[0] / 256 + action)
        return self.place.copy(), 1.0, self.steps == 40, False, {}


def test_an_environment_that_does_not_repeat_itself_says_so_and_begins_a_new_episode(tmp_path):
    gym.register("Hidden-v0", Hidden)
    settings = {**COMMON, **ROLLOUTS, "algo": "ppo"}
    cut = kill_three_times(tmp_path, "Hidden-v0", settings)
    assert cut.metrics["train/cnt/epoch"] == list(range(1, 73))
    assert cut.metrics["train/cnt/env_steps"] == list(range(128, 72 * 128 + 1, 128))
    log = (cut.dir / "run.log").read_text()
    assert log.count("does not repeat itself from the same seed. Continuing from a fresh episode") >= 3


def save_forever(directory, first, count=100_000, same_name=False):
    """Save one checkpoint after the other, under ever new names or under the first one, each with values that tell it from the others."""
    manager = CheckpointManager(directory, keep=2)
    for value in range(first, first + count):
        epoch = first if same_name else value
        manager.save(
            epoch=epoch,
            env_steps=epoch,
            mid_epoch=False,
            model={"policy.weight": torch.full((128, 128), float(value))},
            parts={"workflow": {"value": value}},
            state={"counters": {"epoch": epoch}},
            metrics={"value": value},
            best=value % 3 == 0,
        )


def test_a_kill_at_any_instant_of_saving_leaves_a_whole_checkpoint(tmp_path):
    generator = random.Random(0)
    context = multiprocessing.get_context("fork")
    began = time.monotonic()
    save_forever(tmp_path, 1, count=4)
    one_save = (time.monotonic() - began) / 4
    manager, newest = CheckpointManager(tmp_path, keep=2), 4
    for number in range(50):
        # By turns: the next epochs, or the newest one again and again.
        again = number % 2 == 1
        first = newest if again else newest + 1
        process = context.Process(target=save_forever, args=(tmp_path, first), kwargs={"same_name": again})
        process.start()
        time.sleep(generator.uniform(0, 6) * one_save)
        process.kill()
        process.join()
        checkpoint = manager.find("@last")
        epoch, value = checkpoint.place[0], checkpoint.read_part("workflow")["value"]
        assert epoch == newest if again else epoch >= newest
        assert value >= epoch
        assert (checkpoint.read_model()["policy.weight"] == value).all()
        manager.recover()
        assert manager.find("@last").path.name == f"epoch={epoch:04d}.ckpt"
        newest = epoch
    assert newest > 8
