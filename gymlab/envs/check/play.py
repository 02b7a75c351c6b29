"""Random steps in the bare environment, written down as they come; whatever breaks the interface ends them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from gymlab.envs.check.values import Misfit, first_not_finite, misfit
from gymlab.envs.contract import call_reset, reset_answer, step_answer

PLAY_SECONDS = 15.0
"""Time after which a slow environment is not stepped further; what was seen by then is judged."""


@dataclass
class Record:
    """What random steps showed."""

    observation_space: gym.Space
    action_space: gym.Space
    steps: int = 0
    rewards: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    """Of the episodes that the environment ended by itself or that its time limit cut."""
    terminated: int = 0
    """Episodes that ended with the task."""
    own_limit: int | None = None
    """Length of the longest episode that the environment itself truncated."""
    misfit: Misfit | None = None
    """The first observation outside of its space."""
    not_finite: str = ""
    """The first NaN or Inf."""
    loose_types: set[str] = field(default_factory=set)
    """Types that work but are not what the interface says."""


def play(env: gym.Env, limit: int | None, steps: int, seconds: float = PLAY_SECONDS) -> Record:
    """Take up to `steps` random actions; an episode is cut after `limit` steps."""
    record = Record(env.observation_space, env.action_space)
    env.action_space.seed(0)
    _look_at(record, "the first observation", _reset(env, seed=0))
    start, length = time.perf_counter(), 0
    while record.steps < steps and time.perf_counter() - start < seconds:
        observation, reward, terminated, truncated = _step(env, record)
        record.steps += 1
        if record.steps == 1:
            # The first step may compile or load: that says nothing about how slow the others are.
            start = time.perf_counter()
        length += 1
        record.rewards.append(reward)
        _look_at(record, f"the observation of step {record.steps}", observation)
        if not record.not_finite and not np.isfinite(reward):
            record.not_finite = f"the reward of step {record.steps} is {reward}"
        if terminated or truncated or length == limit:
            record.lengths.append(length)
            record.terminated += terminated
            if truncated:
                record.own_limit = max(length, record.own_limit or 0)
            length = 0
            _look_at(record, f"the first observation after step {record.steps}", _reset(env, seed=None))
    return record


def _look_at(record: Record, what: str, observation: Any) -> None:
    if record.misfit is None:
        found = misfit(record.observation_space, observation)
        record.misfit = None if found is None else found.of(what)
    if not record.not_finite:
        value = first_not_finite(observation)
        record.not_finite = "" if value is None else f"{what} holds {value}"


def _reset(env: gym.Env, seed: int | None) -> Any:
    return reset_answer(call_reset(env, seed, None))[0]


def _step(env: gym.Env, record: Record) -> tuple[Any, float, bool, bool]:
    answer: Any = env.step(env.action_space.sample())
    observation, reward, terminated, truncated, _ = step_answer(answer)
    if isinstance(answer[1], bool | np.bool_) or not isinstance(answer[1], int | float | np.number):
        record.loose_types.add(f"reward is {_type(answer[1])}: give `float(reward)`")
    for name, flag in (("terminated", answer[2]), ("truncated", answer[3])):
        if not isinstance(flag, bool | np.bool_):
            record.loose_types.add(f"{name} is {_type(flag)}: give `bool({name})`")
    return observation, float(reward), terminated, truncated


def _type(value: Any) -> str:
    return f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
