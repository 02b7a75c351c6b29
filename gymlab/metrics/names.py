"""Canonical metric names: `<purpose>/<area>/...`. Everything that writes or reads a metric takes its name from here."""

from __future__ import annotations

from functools import cache
from typing import Protocol

from gymlab.errors import ConfigError, did_you_mean

PURPOSES = ("train", "val", "test", "sys")
"""First part of every name: what the number was measured for."""

WORKFLOW_PREFIXES = ("collect", "world_model", "controller", "eval", "workflow")
"""Areas a workflow may use for numbers of its own; they land below the purpose like any other."""

ENV_STEPS = "train/cnt/env_steps"
"""Transitions over all environments: the step metric of every tracker and the x-axis of every curve."""
FRAMES = "train/cnt/frames"
VEC_STEPS = "train/cnt/vec_steps"
UPDATES = "train/cnt/updates"
EPISODES = "train/cnt/episodes"
EPOCH = "train/cnt/epoch"

WALL_SECONDS = "sys/time/wall"
"""Seconds since the run began, over all its sittings."""
GENERATION = "train/controller/generation"
"""Generations of an evolved controller: the x-axis of its population's returns."""
CPU_SECONDS = "sys/time/cpu"
"""Processor seconds of this process since its loop began."""
EVAL_SECONDS = "sys/time/eval"
"""Seconds that the newest evaluation took."""
STEPS_PER_SECOND = "sys/speed/env_steps"
"""Environment steps per wall second."""
MEMORY_MB = "sys/memory/rss_mb"


class HasCounters(Protocol):
    """The counters of a run, by attribute (the engine's `Counters`)."""

    env_steps: int
    frames: int
    vec_steps: int
    updates: int
    episodes: int
    epoch: int


def counter_row(counters: HasCounters) -> dict[str, float]:
    """The counters under their metric names."""
    return {
        ENV_STEPS: counters.env_steps,
        FRAMES: counters.frames,
        VEC_STEPS: counters.vec_steps,
        UPDATES: counters.updates,
        EPISODES: counters.episodes,
        EPOCH: counters.epoch,
    }


@cache
def prefixed(purpose: str, name: str) -> str:
    """The full name of a metric that a workflow calls `name`; a name that has its purpose already stays as it is."""
    if purpose not in PURPOSES:
        hint = did_you_mean(purpose, PURPOSES)
        raise ConfigError(f"Unknown purpose {purpose!r} of metric {name!r}. {hint} Known: {', '.join(PURPOSES)}.")
    if not name or name.startswith("/") or name.endswith("/") or any(character in name for character in ',"\r\n'):
        raise ConfigError(
            f"{name!r} is no metric name: parts joined by '/', no commas, quotes or line breaks, e.g. 'loss/policy'."
        )
    return name if name.split("/", 1)[0] in PURPOSES else f"{purpose}/{name}"


def episode_return(purpose: str, statistic: str = "mean") -> str:
    """Return of episodes on the environment's own reward: mean, std, min, max, best, last, ci95_low, ci95_high."""
    return prefixed(purpose, f"roll/ep_rew/{statistic}")


def episode_length(purpose: str, statistic: str = "mean") -> str:
    """Length of episodes in environment steps."""
    return prefixed(purpose, f"roll/ep_len/{statistic}")


def episode_count(purpose: str) -> str:
    """How many episodes the statistics beside it are taken over."""
    return prefixed(purpose, "roll/episodes")


def unfinished_count(purpose: str) -> str:
    """How many episodes did not end: the statistics beside it favour short ones. Absent where all did."""
    return prefixed(purpose, "roll/unfinished")


def hyperparameter(name: str) -> str:
    """Current value of a hyperparameter that schedules may change, e.g. `train/policy_lr`."""
    return prefixed("train", name)


def alert(name: str) -> str:
    """Whether an alert holds, 1 or 0, e.g. `train/alerts/entropy_collapse`."""
    return prefixed("train", f"alerts/{name}")


def namespace(name: str) -> str:
    """The group a metric is shown in: `train/roll/ep_rew/mean` -> `train/roll`, `train/policy_lr` -> `train`, `sys`."""
    parts = name.split("/")
    depth = 1 if parts[0] == "sys" else 2
    return "/".join(parts[: min(depth, len(parts) - 1)]) or name
