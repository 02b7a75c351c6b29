"""Environments whose step takes a stated time, collected from in every way that workers offer. Runs in worker processes."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np

import gymlab
from gymlab.bench.sections.workers import ways
from gymlab.engine.setup import Session, prepare
from gymlab.envs.pace import cores

ROWS = 24
"""Rows of a rollout: steps in each environment between two looks at the clock."""
NETWORKS: dict[str, dict[str, Any]] = {"mlp": {"hidden_dims": [64, 64]}, "cnn_nature": {"model_id": "cnn_nature"}}
"""Policies by name: one that takes as long for half of the environments, and one that takes half as long."""


class Paced(gym.Env):
    """Steps of a stated time, in which it computes or waits; observations are pictures or a few numbers."""

    def __init__(self, milliseconds: float, waits: bool, pictures: bool) -> None:
        shape, dtype = ((4, 84, 84), np.uint8) if pictures else ((8,), np.float32)
        self.observation_space = gym.spaces.Box(0, 1, shape, dtype)
        self.action_space = gym.spaces.Discrete(4)
        self._observation = np.zeros(shape, dtype)
        self._seconds = milliseconds / 1000
        self._waits = waits

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode without an end."""
        super().reset(seed=seed)
        return self._observation, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take the stated time."""
        if self._waits:
            time.sleep(self._seconds)
        else:
            # Time of this thread's own: on a busy machine a computing step takes longer.
            end = time.thread_time() + self._seconds
            while time.thread_time() < end:
                pass
        return self._observation, 0.0, False, False, {}


def time_ways(
    num_envs: int, milliseconds: float, waits: bool, model_id: str, seed: int, repeats: int
) -> dict[str, list[float]]:
    """Seconds of a row (one step in each environment) by way, turn by turn in this process; and of the policy alone."""
    pictures = model_id == "cnn_nature"
    given = {"milliseconds": milliseconds, "waits": waits, "pictures": pictures}
    gym.register("Paced-v0", entry_point=f"{__name__}:Paced", kwargs=given, max_episode_steps=10_000)
    common: dict[str, Any] = {
        "n_envs": num_envs,
        "n_steps": ROWS,
        "batch_size": num_envs * ROWS,
        "seed": seed,
    }
    sessions: dict[str, Session] = {}
    for name, own in ways(num_envs, cores()).items():
        fields: dict[str, Any] = common | NETWORKS[model_id] | own
        sessions[name] = prepare(gymlab.resolve("Paced-v0", algo="ppo", quiet=True, **fields).config)
    seconds: dict[str, list[float]] = {name: [] for name in sessions}
    for repeat in range(repeats + 1):
        for name, session in sessions.items():
            workflow: Any = session.workflow
            begin = time.perf_counter()
            workflow.collector.collect(ROWS)
            # The first turn is to warm up.
            if repeat:
                seconds[name].append((time.perf_counter() - begin) / ROWS)
    chosen: Any = sessions["auto"]
    collector = chosen.workflow.collector
    whole, half = collector.policy_seconds(num_envs, num_envs // 2)
    figures = {
        **seconds,
        "policy": [whole],
        "half policy": [half],
        "auto workers": [float(getattr(chosen.environment, "num_workers", 0))],
        "auto by turns": [float(bool(collector.halves))],
    }
    for session in sessions.values():
        session.close()
    return figures
