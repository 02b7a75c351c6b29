"""stable-baselines3 as its documentation uses it: `make_vec_env` (in-process, monitored), MlpPolicy, logger on."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure

from gymlab.bench.measure import WARMUP_MARKS, Mark
from gymlab.bench.settings import Setting


class MarkCycles(BaseCallback):
    """A mark before each rollout and at the end; ends the training when its time is up and enough marks are there."""

    def __init__(self, max_seconds: float | None) -> None:
        super().__init__()
        self.max_seconds = max_seconds
        self.marks: list[Mark] = []

    def _on_rollout_start(self) -> None:
        self.marks.append(Mark(self.num_timesteps, time.perf_counter(), time.process_time()))

    def _on_step(self) -> bool:
        if self.max_seconds is None or len(self.marks) < WARMUP_MARKS + 3:
            return True
        return self.marks[-1].wall - self.marks[0].wall < self.max_seconds

    def _on_training_end(self) -> None:
        # A training that was cut off ends inside a rollout, whose steps have had no update: that is no whole cycle.
        if self.num_timesteps == self.model._total_timesteps:
            self._on_rollout_start()


class ReachThreshold(BaseCallback):
    """Ends the training when the mean return of the newest episodes passes a threshold, and notes when that was."""

    def __init__(self, threshold: float, window: int) -> None:
        super().__init__()
        self.threshold = threshold
        self.returns: deque[float] = deque(maxlen=window)
        self.reached: tuple[float, int] | None = None
        self.started = 0.0

    def _on_training_start(self) -> None:
        self.started = time.perf_counter()

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self.returns.append(info["episode"]["r"])
        return self.reached is None

    def _on_rollout_end(self) -> None:
        full = len(self.returns) == self.returns.maxlen
        if self.reached is None and full and sum(self.returns) / len(self.returns) >= self.threshold:
            self.reached = (time.perf_counter() - self.started, self.num_timesteps)


def linear(start: float) -> Callable[[float], float]:
    """A schedule that falls to 0 with the progress that remains."""
    return lambda remaining: remaining * start


def atari_environments(setting: Setting, seed: int) -> Any:
    """Its documented way to Atari, which is gymlab's protocol `classic`; the wrappers skip frames, so that the emulator must not."""
    import ale_py
    import gymnasium
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gymnasium.register_envs(ale_py)
    emulator = {"frameskip": 1, "repeat_action_probability": 0.0}
    games = make_atari_env(setting.env_id, n_envs=setting.n_envs, seed=seed, env_kwargs=emulator)
    return VecFrameStack(games, n_stack=4)


def build(setting: Setting, seed: int, log_dir: str, algorithm: Any = PPO) -> Any:
    """A model of the setting. Its network is two separate tanh MLPs 64-64 or, on pictures, one Nature network with two
    heads, and its optimizer Adam, as in gymlab.
    """
    if setting.pixels:
        policy, environments, network = "CnnPolicy", atari_environments(setting, seed), None
    else:
        policy, environments = "MlpPolicy", make_vec_env(setting.env_id, n_envs=setting.n_envs, seed=seed)
        network = {"net_arch": {"pi": [64, 64], "vf": [64, 64]}}
    model = algorithm(
        policy,
        environments,
        learning_rate=linear(setting.learning_rate) if setting.linear else setting.learning_rate,
        n_steps=setting.n_steps,
        batch_size=setting.batch_size,
        n_epochs=setting.n_epochs,
        gamma=setting.gamma,
        gae_lambda=setting.gae_lambda,
        clip_range=linear(setting.clip_range) if setting.linear else setting.clip_range,
        ent_coef=0.0,
        vf_coef=0.5,
        max_grad_norm=0.5,
        policy_kwargs=network,
        device="cpu",
        verbose=0,
        seed=seed,
    )
    model.set_logger(configure(log_dir, ["csv"]))
    return model


def train(
    setting: Setting,
    env_steps: int,
    seed: int,
    options: dict[str, Any],
    max_seconds: float | None,
    algorithm: Any = PPO,
) -> list[Mark]:
    """Train for `env_steps` and give a mark for every cycle."""
    with tempfile.TemporaryDirectory() as log_dir:
        model = build(setting, seed, log_dir, algorithm)
        callback = MarkCycles(max_seconds)
        model.learn(env_steps, callback=callback)
        model.logger.close()
    return callback.marks


def time_to_threshold(
    setting: Setting, env_steps: int, seed: int, options: dict[str, Any], threshold: float, window: int
) -> tuple[float, int] | None:
    """Seconds and steps from the start of the training loop until the threshold; None when the budget ends first."""
    with tempfile.TemporaryDirectory() as log_dir:
        model = build(setting, seed, log_dir)
        callback = ReachThreshold(threshold, window)
        model.learn(env_steps, callback=callback)
        model.logger.close()
    return callback.reached
