"""Sub-environments stepped one after the other in this process, written straight into preallocated arrays."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import gymnasium as gym
import numpy as np

from gymlab.envs.step import Episode, Step
from gymlab.envs.subenv import SubEnv
from gymlab.envs.vector import EnvironmentSpec, FiniteCheck, Seeds, Slot, VectorEnv
from gymlab.errors import ConfigError, EnvironmentFailure

logger = logging.getLogger(__name__)


class SyncVector(VectorEnv):
    """A plain loop over sub-environments that resets a finished one in the same step."""

    backend = "sync"

    def __init__(self, spec: EnvironmentSpec, envs: list[SubEnv]) -> None:
        first = envs[0]
        super().__init__(
            spec=spec,
            num_envs=len(envs),
            observation_space=first.observation_space,
            action_space=first.action_space,
            raw_observation_space=first.raw_observation_space,
        )
        self.envs = envs
        self._slots = (Slot(self.num_envs, self.observation_space), Slot(self.num_envs, self.observation_space))
        self._turn = 0
        self._check = FiniteCheck(spec.id, self._slots[0])
        self._to_rows = action_splitter(self.action_space)
        self.render_fps = render_fps(first)

    @property
    def observation(self) -> np.ndarray:
        """[N, ...] the newest observation."""
        return self._slots[self._turn].observation

    def reset(self, seeds: Seeds | None = None) -> np.ndarray:
        """Begin a new episode everywhere; with `seeds`, with numbering anew from that tree."""
        if seeds is not None:
            for env in self.envs:
                env.reseed(seeds)
            self.episode_counts.fill(0)
        self._turn ^= 1
        self.action_mask = None
        for index, env in enumerate(self.envs):
            self._place(index, *env.reset())
        self._check.first(self.observation)
        return self.observation

    def _place(self, index: int, observation: Any, info: dict[str, Any]) -> None:
        self._slots[self._turn].observation[index] = observation
        mask = info.get("action_mask")
        if mask is not None:
            if self.action_mask is None:
                self.action_mask = np.ones((self.num_envs, len(mask)), dtype=np.bool_)
            self.action_mask[index] = mask

    def step(self, actions: np.ndarray) -> Step:
        """Take one action in each environment."""
        self._turn ^= 1
        slot = self._slots[self._turn]
        observations, reward = slot.observation, slot.reward
        slot.terminated.fill(False)
        slot.truncated.fill(False)
        if self.action_mask is not None:
            self.action_mask = self.action_mask.copy()
        final_observation: np.ndarray | None = None
        episodes: list[Episode] = []
        infos: dict[str, Any] = {}
        for index, (env, action) in enumerate(zip(self.envs, self._to_rows(actions), strict=True)):
            observation, reward[index], terminated, truncated, info = env.step(action)
            if info:
                self._merge(infos, index, info)
            if terminated or truncated:
                slot.terminated[index] = terminated
                slot.truncated[index] = not terminated
                final_observation = slot.final_observation
                final_observation[index] = observation
                episodes.append(env.finish(terminated, info))
                self.episode_counts[index] += 1
                self._place(index, *env.reset())
            else:
                observations[index] = observation
                if self.action_mask is not None:
                    self.action_mask[index] = info["action_mask"]
        step = Step(
            observations,
            reward,
            slot.terminated,
            slot.truncated,
            final_observation,
            None,
            self.action_mask,
            episodes,
            infos,
        )
        self._check(step, lambda index: self._position(index, episodes))
        return step

    def _position(self, index: int, episodes: list[Episode]) -> tuple[int, int]:
        for episode in episodes:
            if episode.env_index == index:
                return episode.episode_index, episode.length
        return self.envs[index].episode_index, self.envs[index].length

    def _merge(self, infos: dict[str, Any], index: int, info: dict[str, Any]) -> None:
        for key, value in info.items():
            if key == "action_mask":
                continue
            if key not in infos:
                infos[key] = [None] * self.num_envs
            infos[key][index] = value

    def get_state(self) -> dict[str, Any]:
        """The open episode of each environment, and the observation that its replay must reach."""
        return {
            "environments": {str(env.env_index): env.get_state() for env in self.envs},
            "observation": self.observation.copy(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Replay the open episodes. One that does not reach the saved observation is left for a fresh episode."""
        expected = state["observation"]
        if len(expected) != self.num_envs:
            raise ConfigError(
                f"The saved state of {self.spec.id} has {len(expected)} environments, this one {self.num_envs}."
            )
        self.action_mask = None
        saved = [state["environments"][str(index)] for index in range(self.num_envs)]
        if saved[0]["episode_index"] < 0:
            return  # Saved before the first reset: nothing has begun.
        for index, env in enumerate(self.envs):
            self._place(index, *replay(env, saved[index], expected[index], self.spec.id))
            self.episode_counts[index] = env.episodes_finished
        for env, one in zip(self.envs, saved, strict=True):
            env.restore_wrappers(one)

    def render(self) -> np.ndarray | None:
        """Environment 0, or None when it was made without rendering."""
        if self.envs[0].render_mode is None:
            return None
        frame: Any = self.envs[0].render()
        return None if frame is None else np.asarray(frame)

    def close(self) -> None:
        """Close every environment."""
        for env in self.envs:
            env.close()


def replay(env: SubEnv, state: dict[str, Any], expected: np.ndarray, env_id: str) -> tuple[Any, dict[str, Any]]:
    """Bring an environment back to a saved state; where it cannot repeat itself, say so and begin its next episode."""
    try:
        observation, info = env.replay(state)
    except EnvironmentFailure as error:
        logger.warning("%s: %s Continuing from a fresh episode.", env_id, error)
        return env.reset()
    if not np.array_equal(np.asarray(observation, dtype=expected.dtype), expected):
        logger.warning(
            "%s: the replay of episode %d of environment %d gave another observation than before, so the environment "
            "does not repeat itself from the same seed. Continuing from a fresh episode.",
            env_id,
            env.episode_index,
            env.env_index,
        )
        return env.reset()
    return observation, info


def action_splitter(space: gym.Space) -> Callable[[np.ndarray], Iterable[Any]]:
    """How a batch of actions is handed out: Python ints for Discrete, rows of a private copy otherwise."""
    if isinstance(space, gym.spaces.Discrete):
        return lambda actions: np.asarray(actions).reshape(-1).tolist()
    dtype = space.dtype
    # The copy lets an environment and the replay log keep the rows.
    return lambda actions: np.array(actions, dtype=dtype)


def render_fps(env: gym.Env) -> float:
    """Frames a second that the environment was made for."""
    return float(env.metadata.get("render_fps") or 30.0)
