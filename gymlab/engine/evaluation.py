"""Evaluation: the same rule for callbacks, the final report and `gymlab eval`."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from gymlab.config.dotted import flat
from gymlab.engine.statistics import EpisodeStatistics
from gymlab.envs.build import episode_steps
from gymlab.metrics.results import judge
from gymlab.metrics.statistics import estimate
from gymlab.metrics.video import VideoWriter

if TYPE_CHECKING:
    from gymlab.config.schema import Config
    from gymlab.engine.seeding import SeedTree
    from gymlab.engine.workflow import Workflow
    from gymlab.envs.vector import VectorEnv


STEP_LIMIT = 100_000
"""Steps after which an evaluation gives up on an episode that does not end, unless told otherwise."""
PROGRESS_SECONDS = 0.5
SAME_TASK = frozenset(
    {
        *("render_mode", "render_fps", "height", "width", "camera", "camera_id", "camera_name", "screen_size"),
        *("screen_resolution", "tile_size", "view", "obs_type"),
        *("protocol", "episodic_life", "reward_clipping", "noop_max", "use_fire_reset", "full_action_space"),
    }
)
"""Arguments of environments that change what is seen, or how a game is played for learning: not what an episode's return means."""


@dataclass(frozen=True)
class Limits:
    """Where an evaluation gives up. What has not ended by then is unfinished: no episode with a low return."""

    seconds: float | None = None
    """For all episodes together."""
    steps: int = STEP_LIMIT
    """For each episode."""

    @classmethod
    def of(cls, config: Config, *, steps: int | None = None, seconds: float | None = None) -> Limits:
        """Those of a config unless given; an environment whose own limit is longer than the default keeps it."""
        steps = steps or config.eval_step_limit or max(STEP_LIMIT, episode_steps(config) or 0)
        return cls(seconds or config.eval_time_limit, steps)

    @property
    def of_time(self) -> str:
        """The limit in words."""
        return f"time limit of {self.seconds:,g} s"

    @property
    def of_steps(self) -> str:
        """The limit in words."""
        return f"limit of {self.steps:,} steps an episode"


@dataclass(frozen=True)
class EvaluationResult:
    """Returns of finished episodes on the environment's own reward."""

    returns: np.ndarray
    lengths: np.ndarray
    seconds: float
    asked: int
    """Episodes that were to be played."""
    steps: int
    """Steps that each environment took."""
    cut: str | None = None
    """What ended the evaluation before all episodes had ended; None: nothing."""
    told: dict[str, float] = field(default_factory=dict)
    """What else the environment told of its episodes: success rate, achievements and their score."""

    @property
    def n(self) -> int:
        """Episodes counted."""
        return len(self.returns)

    @property
    def complete(self) -> bool:
        """Whether every episode ended."""
        return self.n == self.asked

    def summary(self) -> dict[str, Any]:
        """mean, ci95 (None below 5 episodes), n, min, max, mean length (None where no episode ended), what was asked for, and what the environment told."""
        found = estimate(self.returns, episodes=True) if self.n else None
        return {
            "mean": found and found.mean,
            "ci95": found and found.ci95,
            "n": self.n,
            "asked": self.asked,
            "min": found and found.smallest,
            "max": found and found.largest,
            "ep_len": float(self.lengths.mean()) if self.n else None,
            "complete": self.complete,
            "cut": None if self.complete else self.cut,
            "steps": self.steps,
            "told": self.told,
        }

    def judged(self, config: Config, threshold: float | None) -> dict[str, Any]:
        """The summary with what may be said of it against the return that means solved."""
        longest = int(self.lengths.max()) if self.n else 0
        shortened = shortened_episodes(config, longest=longest)
        facts = {"threshold": threshold, "shortened": shortened, "changed": changed_task(config)}
        return judge({**self.summary(), **facts})


def evaluate(
    workflow: Workflow,
    environment: VectorEnv,
    episodes: int,
    *,
    deterministic: bool,
    seeds: SeedTree | None = None,
    limits: Limits = Limits(),
    should_stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] | None = None,
) -> EvaluationResult:
    """Play `episodes` episodes; with `seeds`, the same ones each time. `progress` is told finished episodes and steps now and then.

    Each sub-environment has a fixed quota: taking the first episodes to finish would favour short ones. Where the
    environment fails in the middle of an episode, the next one is played instead. A sub-environment whose episode passes
    the limit of steps is given up on, with what is left of its quota.
    """
    count = environment.num_envs
    quota = np.full(count, episodes // count)
    quota[: episodes % count] += 1
    finished = np.zeros(count, dtype=int)
    begun = np.zeros(count, dtype=int)
    """Steps before the open episode of each sub-environment."""
    returns: list[float] = []
    lengths: list[int] = []
    statistics = EpisodeStatistics(episodes)
    start = shown = time.monotonic()
    observation = environment.reset(seeds)
    state = workflow.initial_state(count)
    steps, look_again, cut = 0, limits.steps, None
    while (finished < quota).any():
        action, state, _ = workflow.act(
            observation, state, deterministic=deterministic, action_mask=environment.action_mask
        )
        step = environment.step(action)
        observation = step.observation
        steps += 1
        for episode in step.episodes:
            begun[episode.env_index] = steps
            if not episode.broken and finished[episode.env_index] < quota[episode.env_index]:
                finished[episode.env_index] += 1
                returns.append(episode.env_return)
                lengths.append(episode.length)
                statistics.update([episode])
        if state is not None:
            state = workflow.reset_state(state, step.is_first)
        if steps >= look_again:
            # An open episode of so many steps will not end: what it leaves of the quota is not played.
            quota = np.where(steps - begun >= limits.steps, np.minimum(quota, finished), quota)
            cut = limits.of_steps if quota.sum() < episodes else None
            look_again = int(begun[finished < quota].min(initial=steps)) + limits.steps
        now = time.monotonic()
        if limits.seconds is not None and now - start > limits.seconds:
            cut = limits.of_time
            break
        if should_stop():
            cut = "stopped"
            break
        if progress is not None and now - shown > PROGRESS_SECONDS:
            shown = now
            progress(len(returns), steps)
    told = {name: value for name, value in statistics.metrics().items() if not name.startswith("ep_")}
    return EvaluationResult(np.array(returns), np.array(lengths), time.monotonic() - start, episodes, steps, cut, told)


def shortened_episodes(
    config: Config, *, training: bool = False, longest: int = sys.maxsize
) -> list[int | None] | None:
    """Steps at which episodes are cut before the task would end them, and the task's own limit (None: unknown); None: never.

    A task's limit is what its environment is registered with, else the config's. Who gives a `reward_threshold` beside a
    `max_episode_steps` has set a task of their own. Where nothing tells the limit, the `longest` episode does.
    """
    caps = [config.max_episode_steps, None if training else config.eval_max_episode_steps]
    cap = min((steps for steps in caps if steps is not None), default=None)
    if cap is None:
        return None
    task = episode_steps(config.model_copy(update={"max_episode_steps": None}))
    if task is None or (config.reward_threshold is not None and config.max_episode_steps is not None):
        task = config.max_episode_steps
    return [cap, task] if (longest * config.frame_skip >= cap if task is None else cap < task) else None


def changed_task(config: Config) -> list[str]:
    """Settings of the environment that are others than those that the threshold holds for.

    A spec's threshold holds for the settings of its file, a registered one for those that the environment is registered with;
    who gives a `reward_threshold` gives it for their own. What wraps an environment changes no return: its own reward counts.
    """
    if config.reward_threshold is not None or (config.solved_threshold is not None and not config.spec.task):
        return []
    task, limit = config.spec.task, episode_steps(config.model_copy(update={"max_episode_steps": None}))
    left_out = _default_kwargs(config.env_id)
    of_task, of_config = flat({**left_out, **task.get("env_kwargs", {})}), flat({**left_out, **config.env_kwargs})
    names = [name for name in {**of_task, **of_config} if name.partition(".")[0] not in SAME_TASK]
    changed = [f"env_kwargs.{name}" for name in names if of_task.get(name) != of_config.get(name)]
    steps = [config.max_episode_steps or limit, task.get("max_episode_steps") or limit]
    return changed + (["max_episode_steps"] if steps[0] != steps[1] else [])


def _default_kwargs(env_id: str) -> dict[str, Any]:
    """What Gymnasium passes to an environment that is given nothing: what it is registered with, else the default of the parameter."""
    registered = gym.registry.get(env_id)
    if registered is None or registered.entry_point is None:
        return {}
    entry = registered.entry_point
    made_by = gym.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    parameters = inspect.signature(made_by).parameters.values()
    defaults = {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}
    return {**defaults, **registered.kwargs}


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
