"""Steps a native environment beside Gymnasium's own, which is put into the native one's state before every step."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from gymlab.engine.seeding import SeedTree
from gymlab.envs import make_vector
from gymlab.envs.native import NativeVector

Pose = Callable[[Any, dict[str, np.ndarray], int], None]
"""Puts the state of one environment, from the native arrays, into Gymnasium's own."""


def native(config, env_id: str, count: int = 4, seed: int = 3, **fields) -> NativeVector:
    """The environment as the automatic choice makes it, which is to be native."""
    vector = make_vector(config(env_id, **fields), count, SeedTree(seed))
    assert vector.backend == "native"
    return vector


def own(env_id: str, **env_kwargs) -> gym.Env:
    """Gymnasium's own, without its checks and its time limit."""
    env = gym.make(env_id, disable_env_checker=True, max_episode_steps=-1, **env_kwargs)
    env.reset(seed=0)
    return env


def draw_actions(space: gym.Space, generator: np.random.Generator, count: int) -> np.ndarray:
    """Random actions of a vector."""
    if isinstance(space, gym.spaces.Discrete):
        return generator.integers(0, space.n, count)
    return generator.uniform(space.low, space.high, (count, *space.shape)).astype(space.dtype)


class Sticky:
    """Random actions that stay for about 15 steps, so that cars and links gain speed."""

    def __init__(self, vector: NativeVector, seed: int = 0) -> None:
        self.generator = np.random.default_rng(seed)
        self.space = vector.action_space
        self.actions = draw_actions(self.space, self.generator, vector.num_envs)

    def __call__(self) -> np.ndarray:
        """The next actions."""
        fresh = self.generator.random(len(self.actions)) < 1 / 15
        self.actions = self.actions.copy()
        self.actions[fresh] = draw_actions(self.space, self.generator, len(self.actions))[fresh]
        return self.actions


def compare(
    vector: NativeVector, env: gym.Env, pose: Pose, steps: int, choose: Callable[[], np.ndarray], ulps: int = 0
) -> tuple[int, int]:
    """Step both; floats may differ by `ulps` units in the last place of float32. How many episodes ended in which way."""
    ended_itself = cut = 0
    vector.reset()
    for _ in range(steps):
        before = vector.get_state()
        actions = choose()
        step = vector.step(actions)
        for index in range(vector.num_envs):
            pose(env.unwrapped, before["arrays"], index)
            action = actions[index] if actions.ndim > 1 else int(actions[index])
            observation, reward, terminated, _, _ = env.step(action)
            seen = step.final_observation[index] if step.ended[index] else step.observation[index]
            assert observation.dtype == seen.dtype
            np.testing.assert_array_max_ulp(seen, observation, maxulp=ulps)
            np.testing.assert_array_max_ulp(step.reward[index], np.float32(reward), maxulp=ulps)
            assert step.terminated[index] == terminated
            over = before["lengths"][index] + 1 == vector.get_max_episode_steps()
            assert step.truncated[index] == (over and not terminated)
            ended_itself += bool(step.terminated[index])
            cut += bool(step.truncated[index])
    return ended_itself, cut


def run(vector: NativeVector, steps: int, seed: int) -> list[tuple]:
    """Copies of what random actions give."""
    choose = Sticky(vector, seed)
    rows = []
    for _ in range(steps):
        step = vector.step(choose())
        mask = None if step.action_mask is None else step.action_mask.tolist()
        arrays = (step.observation, step.reward, step.terminated, step.truncated)
        rows.append(([array.tolist() for array in arrays], mask, tuple(step.episodes)))
    return rows


def assert_continues(config, env_id: str, **fields) -> None:
    """`get_state` and `set_state` continue bit for bit, and `reset(seeds)` repeats."""
    whole = native(config, env_id, **fields)
    whole.reset()
    run(whole, 33, seed=0)
    state = whole.get_state()
    resumed = native(config, env_id, seed=99, **fields)
    resumed.set_state(state)
    np.testing.assert_array_equal(resumed.observation, whole.observation)
    expected = run(whole, 100, seed=5)
    assert any(episodes for _, _, episodes in expected)
    assert run(resumed, 100, seed=5) == expected
    again = []
    for _ in range(2):
        first = whole.reset(SeedTree(4)).tolist()
        assert (whole.episode_counts == 0).all()
        again.append((first, run(whole, 50, seed=1)))
    assert again[0] == again[1]
    assert whole.reset(SeedTree(5)).tolist() != again[0][0] or len(np.unique(again[0][0])) == 1


def assert_drawn_by_gymnasium(config, env_id: str, pose: Pose, **env_kwargs) -> None:
    """The picture of environment 0 is Gymnasium's own of that state."""
    vector = native(config, env_id, render_mode="rgb_array", env_kwargs=env_kwargs)
    vector.reset()
    vector.step(Sticky(vector)())
    frame = vector.render()
    env = gym.make(env_id, render_mode="rgb_array", disable_env_checker=True, **env_kwargs)
    env.reset(seed=0)
    pose(env.unwrapped, vector.get_state()["arrays"], 0)
    np.testing.assert_array_equal(frame, env.render())
    assert vector.render_fps == env.metadata["render_fps"]
    vector.close()
    env.close()
    assert native(config, env_id).render() is None
