"""Keeping what environments live through while somebody else steps them: whole episodes, as they were seen and acted in."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gymlab.envs.step import Episode, Step

MEMORY = 512 << 20
"""Bytes that unfinished episodes of one vector environment may take; beyond, the longest are given up."""


@dataclass(slots=True)
class Lived:
    """What happened in an episode so far."""

    observations: list[np.ndarray]
    """One more than actions: the last is where the newest action led."""
    actions: list[np.ndarray] = field(default_factory=list)
    """As the environment took them."""
    rewards: list[float] = field(default_factory=list)
    """As the agent is shown them."""


class EpisodeTap:
    """Gives each whole episode of a vector environment to `take`, with what the environment tells of it.

    `reset` and `step` are shadowed: a question in every step would be paid by everybody. Episodes that had begun before, that the environment broke off,
    or whose steps went by halves (`step_async`) are passed over. A lost life ends nothing.
    """

    def __init__(self, environment: Any, take: Callable[[Lived, Episode], None], memory: int = MEMORY) -> None:
        self.take, self.memory = take, memory
        self.open: list[Lived | None] = [None] * environment.num_envs
        """By environment; None until an episode begins."""
        self._bytes = 0
        for name, shadow in (("reset", self._reset), ("step", self._step), ("step_async", self._step_async)):
            if hasattr(environment, name):
                method = getattr(environment, name)
                setattr(environment, name, functools.wraps(method)(functools.partial(shadow, method)))

    def _reset(self, method: Callable[..., np.ndarray], *arguments: Any, **named: Any) -> np.ndarray:
        observation = method(*arguments, **named)
        for index, first in enumerate(observation):
            self._begin(index, first)
        return observation

    def _step_async(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        for index in range(len(self.open)):
            self._give_up(index)
        return method(*arguments, **named)

    def _step(self, method: Callable[[np.ndarray], Step], actions: np.ndarray) -> Step:
        taken = np.array(actions)
        step = method(actions)
        ended = {episode.env_index: episode for episode in step.episodes}
        for index, lived in enumerate(self.open):
            if step.valid is not None and not step.valid[index]:
                self._begin(index, step.observation[index])
            elif lived is not None:
                self._add(lived, taken[index], step, index, ended.get(index))
            if index in ended:
                self._end(index, ended[index], step)
        while self._bytes > self.memory:
            self._give_up(max(range(len(self.open)), key=lambda index: _length(self.open[index])))
        return step

    def _add(self, lived: Lived, action: np.ndarray, step: Step, index: int, ended: Episode | None) -> None:
        source = step.observation if ended is None or step.final_observation is None else step.final_observation
        lived.observations.append(source[index].copy())
        lived.actions.append(action)
        lived.rewards.append(float(step.reward[index]))
        self._bytes += lived.observations[-1].nbytes

    def _end(self, index: int, episode: Episode, step: Step) -> None:
        lived = self.open[index]
        self._give_up(index)
        if lived is not None and not episode.broken:
            self.take(lived, episode)
        if step.valid is None:
            self._begin(index, step.observation[index])

    def _begin(self, index: int, observation: np.ndarray) -> None:
        self._give_up(index)
        first = observation.copy()
        self.open[index] = Lived([first])
        self._bytes += first.nbytes

    def _give_up(self, index: int) -> None:
        lived, self.open[index] = self.open[index], None
        if lived is not None:
            self._bytes -= sum(observation.nbytes for observation in lived.observations)


def _length(lived: Lived | None) -> int:
    return 0 if lived is None else len(lived.observations)
