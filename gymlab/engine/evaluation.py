"""Evaluation: the same rule for callbacks, the final report and `gymlab eval`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gymlab.engine.statistics import EpisodeStatistics
from gymlab.metrics.statistics import estimate
from gymlab.metrics.video import VideoWriter

if TYPE_CHECKING:
    from gymlab.engine.seeding import SeedTree
    from gymlab.engine.workflow import Workflow
    from gymlab.envs.vector import VectorEnv


@dataclass(frozen=True)
class EvaluationResult:
    """Returns of finished episodes on the environment's own reward."""

    returns: np.ndarray
    lengths: np.ndarray
    seconds: float
    complete: bool
    """False when the time limit cut the evaluation short."""
    told: dict[str, float] = field(default_factory=dict)
    """What else the environment told of its episodes: success rate, achievements and their score."""

    @property
    def n(self) -> int:
        """Episodes counted."""
        return len(self.returns)

    def summary(self) -> dict[str, Any]:
        """mean, ci95 (None below 5 episodes), n, min, max, mean length, and what the environment told."""
        found = estimate(self.returns, episodes=True)
        return {
            "mean": found.mean,
            "ci95": found.ci95,
            "n": self.n,
            "min": found.smallest,
            "max": found.largest,
            "ep_len": float(self.lengths.mean()),
            "complete": self.complete,
            "told": self.told,
        }


def evaluate(
    workflow: Workflow,
    environment: VectorEnv,
    episodes: int,
    *,
    deterministic: bool,
    seeds: SeedTree | None = None,
    time_limit: float | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> EvaluationResult:
    """Play `episodes` episodes; with `seeds`, the same ones each time.

    Each sub-environment has a fixed quota: taking the first episodes to finish would favour short ones. Where the
    environment fails in the middle of an episode, the next one is played instead.
    """
    count = environment.num_envs
    quota = np.full(count, episodes // count)
    quota[: episodes % count] += 1
    finished = np.zeros(count, dtype=int)
    returns: list[float] = []
    lengths: list[int] = []
    statistics = EpisodeStatistics(episodes)
    start = time.monotonic()
    observation = environment.reset(seeds)
    state = workflow.initial_state(count)
    complete = True
    while (finished < quota).any():
        action, state, _ = workflow.act(
            observation, state, deterministic=deterministic, action_mask=environment.action_mask
        )
        step = environment.step(action)
        observation = step.observation
        for episode in step.episodes:
            if not episode.broken and finished[episode.env_index] < quota[episode.env_index]:
                finished[episode.env_index] += 1
                returns.append(episode.env_return)
                lengths.append(episode.length)
                statistics.update([episode])
        if state is not None:
            state = workflow.reset_state(state, step.is_first)
        if (time_limit is not None and time.monotonic() - start > time_limit) or should_stop():
            complete = not (finished < quota).any()
            break
    told = {name: value for name, value in statistics.metrics().items() if not name.startswith("ep_")}
    return EvaluationResult(np.array(returns), np.array(lengths), time.monotonic() - start, complete, told)


def record_episode(
    workflow: Workflow,
    environment: VectorEnv,
    path: Path,
    *,
    deterministic: bool,
    seeds: SeedTree,
    max_seconds: float,
    should_stop: Callable[[], bool] = lambda: False,
) -> Path | None:
    """Stream one episode of a rendering environment to an mp4, cut at `max_seconds`; None when the environment draws nothing."""
    observation = environment.reset(seeds)
    frame = environment.render()
    if frame is None:
        return None
    state = workflow.initial_state(environment.num_envs)
    with VideoWriter(path, environment.render_fps, round(max_seconds * environment.render_fps)) as video:
        while frame is not None and not should_stop() and video.add(frame):
            action, state, _ = workflow.act(
                observation, state, deterministic=deterministic, action_mask=environment.action_mask
            )
            step = environment.step(action)
            if step.terminated[0] or step.truncated[0]:
                break
            observation, frame = step.observation, environment.render()
    return path if path.exists() else None
