"""What random steps in the bare environment say about it: one small function a check."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from gymlab.envs.check.findings import Finding, failed, ok, warning
from gymlab.envs.check.play import Record
from gymlab.envs.spaces import describe_space, stored_space
from gymlab.envs.vector import EnvironmentSpec, is_image_space
from gymlab.errors import EnvironmentFailure

LARGE_REWARD = 100.0
"""Deviation of the reward from which on value losses drown the policy's."""
ALWAYS = 10
"""Episodes of one length after which that counts as the task's own."""
LARGE_IMAGE = 128
"""Height or width from which on a convolution takes most of the time of a training."""


def judge(record: Record, spec: EnvironmentSpec) -> list[Finding]:
    """All that random steps in the bare environment can tell."""
    return [
        api(record),
        observation(record),
        action(record.action_space),
        finite(record),
        reward(record),
        episode(record, spec),
    ]


def api(record: Record) -> Finding:
    """Everything had the types that the interface says; it would have ended the steps otherwise."""
    if record.loose_types:
        return warning("api", "; ".join(sorted(record.loose_types)), "It works here, other libraries may refuse it.")
    return ok("api", f"reset and step as Gymnasium has them, {record.steps:,} random steps")


def observation(record: Record) -> Finding:
    """Observations lie in a space that can be stored."""
    try:
        stored_space(record.observation_space)
    except EnvironmentFailure as error:
        return failed("observation", f"no network for {record.observation_space}", str(error))
    if record.misfit is not None:
        kind = warning if record.misfit.harmless else failed
        return kind("observation", record.misfit.detail, record.misfit.advice)
    return ok("observation", describe_space(record.observation_space))


def shown(record: Record) -> Finding:
    """What wrappers, image settings and flattening make of an observation lies in the space they promise."""
    if record.misfit is not None and not record.misfit.harmless:
        return failed("shown", record.misfit.detail, f"A wrapper is wrong about its space. {record.misfit.advice}")
    space = record.observation_space
    if is_image_space(space) and any(side > LARGE_IMAGE for side in (space.shape or ())[-2:]):
        advice = "resize_obs=true makes images 84x84, grayscale_obs=true one channel; both train many times faster."
        return warning("shown", describe_space(space), advice)
    return ok("shown", describe_space(space))


def action(space: gym.Space) -> Finding:
    """Policies exist for these actions."""
    known = isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)
    if not known and not (isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)):
        advice = (
            "Supported: Discrete, MultiDiscrete, MultiBinary and a Box of floats. A wrapper of your own, registered by "
            "a module given with --plugin, can turn the actions into one of these."
        )
        return failed("action", f"no policy for {space}", advice)
    if isinstance(space, spaces.Box):
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            advice = "Bound the Box (usually -1 to 1) and scale inside the environment: a policy begins around 0."
            return warning("action", f"{describe_space(space)} is not bounded", advice)
        widest, narrowest = float(np.max(space.high - space.low)), float(np.min(space.high - space.low))
        if widest > 20 or narrowest < 0.2:
            advice = "Scale the actions to about -1 to 1: a policy begins around 0 with a deviation of 1."
            return warning("action", f"{describe_space(space)} is far from -1 to 1", advice)
    return ok("action", describe_space(space))


def finite(record: Record) -> Finding:
    """No NaN, no Inf."""
    if record.not_finite:
        advice = "Look for a division by zero or a simulation that diverges; a training stops at such a number."
        return failed("finite", record.not_finite, advice)
    return ok("finite", f"no NaN or Inf in {record.steps:,} steps")


def reward(record: Record) -> Finding:
    """Random actions meet rewards of a size that can be learned from."""
    rewards = np.array(record.rewards)
    if not np.isfinite(rewards).all():
        return failed("reward", "not finite", "See the check `finite`.")
    shown = f"mean {rewards.mean():.3g}, from {rewards.min():.3g} to {rewards.max():.3g}"
    if not rewards.any():
        advice = "It may be rare: try more --steps. If it never comes, no algorithm finds it; shape it in a wrapper."
        return warning("reward", f"always 0 in {record.steps:,} random steps", advice)
    if rewards.std() > LARGE_REWARD:
        return warning("reward", shown, "normalize_reward=true, or smaller numbers: losses grow with their square.")
    if (rewards == rewards[0]).all() and not record.terminated:
        advice = "Nothing that the agent does changes it, and no episode ended by itself: there is nothing to learn."
        return warning("reward", f"always {rewards[0]:.3g} in {record.steps:,} random steps", advice)
    return ok("reward", shown)


def episode(record: Record, spec: EnvironmentSpec) -> Finding:
    """Episodes end."""
    limit, lengths = spec.max_episode_steps or record.own_limit, record.lengths
    shown = f"none ended in {record.steps:,} steps"
    if lengths:
        shown = f"{len(lengths):,} ended, mean length {np.mean(lengths):,.1f}, {record.terminated:,} with the task"
    if limit is not None:
        return ok("episode", f"{shown}, time limit {limit:,}")
    if record.terminated >= ALWAYS and len(set(lengths)) == 1:
        return ok("episode", f"the task ends at step {lengths[0]}, {len(lengths):,} times")
    advice = "Set max_episode_steps=1000 (or so) in the config, or where the environment is registered."
    if lengths:
        return warning("episode", f"{shown}; no time limit is known, and an agent may learn to go on forever", advice)
    return warning("episode", f"{shown}, and no time limit is known: statistics come at an episode's end", advice)
