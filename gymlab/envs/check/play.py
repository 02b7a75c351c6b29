"""Random steps in the bare environment, written down as they come; whatever breaks the interface ends them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from gymlab.envs.check.values import Misfit, first_not_finite, misfit

PLAY_SECONDS = 15.0
"""Time after which a slow environment is not stepped further; what was seen by then is judged."""


class BrokenInterface(Exception):
    """The environment does not keep to Gymnasium's interface: what it did, and how to mend it."""

    def __init__(self, detail: str, advice: str) -> None:
        super().__init__(detail)
        self.detail = detail
        self.advice = advice


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
    try:
        answer: Any = env.reset(seed=seed, options=None)
    except TypeError as error:
        if "seed" not in str(error) and "options" not in str(error):
            raise
        raise BrokenInterface(
            f"reset does not take a seed: {error}",
            "Write `def reset(self, *, seed=None, options=None)` and begin it with `super().reset(seed=seed)`.",
        ) from error
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise BrokenInterface(
            f"reset gave {_kind(answer)}, not (observation, info)",
            "End reset with `return observation, {}`: that is Gymnasium's interface since 0.26.",
        )
    _need_info("reset", answer[1])
    return answer[0]


def _step(env: gym.Env, record: Record) -> tuple[Any, float, bool, bool]:
    answer: Any = env.step(env.action_space.sample())
    if not isinstance(answer, tuple) or len(answer) != 5:
        raise BrokenInterface(
            f"step gave {_kind(answer)}, not (observation, reward, terminated, truncated, info)",
            "Split the old `done`: terminated when the task itself ended, truncated when only the time was up.",
        )
    observation, reward, terminated, truncated, info = answer
    _need_info("step", info)
    if isinstance(reward, bool) or not np.isscalar(reward) or not np.isreal(reward):
        if not isinstance(reward, np.ndarray) or reward.size != 1:
            raise BrokenInterface(f"step gave the reward {reward!r}, which is no number", "Give `float(reward)`.")
        record.loose_types.add(f"reward is an array of shape {reward.shape}: give `float(reward)`")
        reward = reward.item()
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            if not isinstance(flag, int | np.integer):
                raise BrokenInterface(
                    f"step gave {name} as {flag!r}, which is neither true nor false", f"Give `bool({name})`."
                )
            record.loose_types.add(f"{name} is {type(flag).__name__}: give `bool({name})`")
    return observation, float(reward), bool(terminated), bool(truncated)


def _need_info(method: str, info: Any) -> None:
    if not isinstance(info, dict):
        raise BrokenInterface(f"{method} gave {_kind(info)} as info, not a dict", "Give `{}` where there is nothing.")


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"a {type(value).__name__}"
