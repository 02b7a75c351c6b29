"""Sub-environments stepped one after the other in this process, written straight into preallocated arrays."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gymlab.envs.crash import describe_crash
from gymlab.envs.restarts import Restarts, construct
from gymlab.envs.step import LIFE_LOST, Episode, Step
from gymlab.envs.subenv import SubEnv
from gymlab.envs.subvector import SubEnvVector, action_splitter, close_quietly, names_of, replay
from gymlab.envs.vector import EnvironmentSpec, Seeds
from gymlab.errors import GymlabError

logger = logging.getLogger(__name__)


class SyncVector(SubEnvVector):
    """A plain loop over sub-environments that resets a finished one in the same step."""

    backend = "sync"

    def __init__(
        self, factories: Sequence[Callable[[], SubEnv]], spec: EnvironmentSpec, purpose: str, restarts: Restarts
    ) -> None:
        names = names_of(spec, purpose, len(factories))
        self.envs = [construct(factory, name, restarts) for factory, name in zip(factories, names, strict=True)]
        super().__init__(spec, names, self.envs[0], restarts)
        self._factories = factories
        self._to_rows = action_splitter(self.action_space)

    def reset(self, seeds: Seeds | None = None) -> np.ndarray:
        """Begin a new episode everywhere; with `seeds`, with numbering anew from that tree."""
        if seeds is not None:
            for env in self.envs:
                env.number_from(seeds)
            self.episode_counts.fill(0)
        self._turn ^= 1
        self.action_mask = None
        for index in range(self.num_envs):
            self._begin(index)
        self.restarts.proved = True
        self._check.first(self.observation)
        return self.observation

    def _begin(self, index: int) -> None:
        """The next episode of an environment; one that cannot begin it is replaced."""
        while True:
            try:
                observation, info = self.envs[index].reset()
                break
            except GymlabError:
                raise
            except Exception as error:  # An environment may raise anything.
                self._replace(index, describe_crash(error))
        self._place(index, observation, info)

    def _place(self, index: int, observation: Any, info: dict[str, Any]) -> None:
        self.observation[index] = observation
        self._take_first(index, info)

    def _replace(self, index: int, cause: str) -> None:
        self.restarts.allow(self._names[index], cause)
        failed = self.envs[index]
        # Closed before its successor is made: there are environments of which a process can hold but one.
        close_quietly(failed)
        self.envs[index] = construct(self._factories[index], self._names[index], self.restarts)
        self.envs[index].succeed(failed)

    def step(self, actions: np.ndarray) -> Step:
        """Take one action in each environment."""
        self._turn ^= 1
        slot = self._slots[self._turn]
        observations, reward = slot.observation, slot.reward
        slot.terminated.fill(False)
        slot.truncated.fill(False)
        self._allow_all(slice(None))
        step = Step(observations, reward, slot.terminated, slot.truncated, None, None, None, [], {})
        for index, (env, action) in enumerate(zip(self.envs, self._to_rows(actions), strict=True)):
            try:
                observation, reward[index], terminated, truncated, info = env.step(action)
            except GymlabError:
                raise
            except Exception as error:  # An environment may raise anything.
                self._fail(step, index, action, error)
                continue
            if info:
                self._merge(step.info, index, info)
            if terminated or truncated:
                self._end(step, index, observation, terminated)
            else:
                observations[index] = observation
        if LIFE_LOST in step.info:
            self._lose_lives(step)
        step.action_mask = self.action_mask
        self._check(step, lambda index: self._position(index, step.episodes))
        return step

    def _end(self, step: Step, index: int, observation: Any, terminated: bool) -> None:
        step.terminated[index] = terminated
        step.truncated[index] = not terminated
        step.final_observation = self._slots[self._turn].final_observation
        step.final_observation[index] = observation
        step.episodes.append(self.envs[index].finish(terminated))
        self.episode_counts[index] += 1
        self.restarts.whole_episode(self._names[index])
        self._begin(index)

    def _fail(self, step: Step, index: int, action: Any, error: Exception) -> None:
        cause = describe_crash(error)
        self._refuse_wrong_action(index, action, cause)
        self._cut_off(step, index, self.envs[index].abandon())
        self._replace(index, cause)
        self._begin(index)

    def _position(self, index: int, episodes: list[Episode]) -> tuple[int, int]:
        for episode in episodes:
            if episode.env_index == index:
                return episode.episode_index, episode.length
        return self.envs[index].episode_index, self.envs[index].length

    def get_state(self) -> dict[str, Any]:
        """The open episode of each environment, and the observation that its replay must reach."""
        return {
            "environments": {str(env.env_index): env.get_state() for env in self.envs},
            "observation": self.observation.copy(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Replay the open episodes. One that does not reach the saved observation is left for a fresh episode."""
        self.action_mask = None
        saved = self._saved_environments(state)
        for index, one in enumerate(saved):
            try:
                observation, info, complaint = replay(self.envs[index], one, state["observation"][index])
            except GymlabError:
                raise
            except Exception as error:  # An environment may raise anything.
                self._replace(index, describe_crash(error))
                self._begin(index)
            else:
                self._place(index, observation, info)
                if complaint:
                    logger.warning("%s: %s Continuing from a fresh episode.", self.spec.id, complaint)
            self.episode_counts[index] = self.envs[index].episodes_finished
        for index, one in enumerate(saved):
            self.envs[index].restore_wrappers(one)

    def render(self) -> np.ndarray | None:
        """Environment 0, or None when it was made without rendering."""
        if self.envs[0].render_mode is None:
            return None
        try:
            frame: Any = self.envs[0].render()
        except GymlabError:
            raise
        except Exception as error:  # An environment may raise anything.
            raise self._cannot_be_drawn(describe_crash(error)) from error
        return None if frame is None else np.asarray(frame)

    def close(self) -> None:
        """Close every environment."""
        for env in self.envs:
            close_quietly(env)
