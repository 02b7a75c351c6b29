"""The real environment and a dream side by side: the same start, the same actions, and how far they drift apart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from gymlab.engine.dream_game import Canvas, beginning, world_model_of
from gymlab.engine.playing import Game
from gymlab.engine.seeding import SeedTree
from gymlab.engine.workflow import Recording
from gymlab.envs.painting import SHOWN_STEPS
from gymlab.envs.vector import is_image_space
from gymlab.envs.world_model_env import WorldModelEnv

if TYPE_CHECKING:
    from gymlab.engine.agent import Agent

APART = 0.5
"""Dream and reality are apart where they differ by this share of how far two observations of the episode lie apart on average."""


class BesideGame(Game):
    """An episode of the real environment. The dream beside it has seen its first observation, and then the actions alone."""

    def __init__(self, agent: Agent, *, seed: int, likeliest: bool = False, enlarge: bool = True) -> None:
        model = world_model_of(agent)
        super().__init__(agent.config, seed=seed, render=False, agent=agent)
        space = self.env.observation_space
        self.scale = 255.0 if is_image_space(space) else 1.0
        """Errors of images are shares of the full range."""
        self._canvas = Canvas(agent.config, self.env, enlarge=enlarge)
        self.dream = WorldModelEnv(
            model, space, self.env.action_space, self._start, likeliest=likeliest, painter=self._canvas.paint
        )
        self.dream.np_random = SeedTree(seed).child("dream").generator()

    def _start(self, generator: np.random.Generator) -> Recording:
        return beginning(self._seen[-1], self.env.action_space)

    def begin(self) -> None:
        """The next episode, and a dream from its first observation."""
        super().begin()
        self._seen = [self._stored()]
        self._sums = [np.zeros(()), np.zeros(())]
        self._count = 0
        self._take_in()
        self.dreamt, _ = self.dream.reset()
        self.errors: list[float] = []
        """Root of the mean squared difference after each step."""
        self.dream_reward: float | None = None
        self.dream_return = 0.0
        self.dream_ended: int | None = None
        """Step at which the model took the episode to be over; the dream goes on beside reality all the same."""

    def step(self, action: Any = None) -> None:
        """Do the same in both."""
        super().step(action)
        self._seen = [*self._seen[1 - SHOWN_STEPS :], self._stored()]
        self._take_in()
        self.dreamt, self.dream_reward, ended, _, _ = self.dream.step(self.action)
        self.dream_return += self.dream_reward
        if ended and self.dream_ended is None:
            self.dream_ended = self.steps
        self.errors.append(self._error())

    def _stored(self) -> np.ndarray:
        return np.array(self.observation, dtype=self.env.observation_space.dtype)

    def _take_in(self) -> None:
        newest = self._seen[-1].astype(np.float64) / self.scale
        self._sums = [self._sums[0] + newest, self._sums[1] + np.square(newest)]
        self._count += 1

    def _error(self) -> float:
        if isinstance(self.env.observation_space, spaces.Discrete):
            return float(self.dreamt != self._seen[-1])
        return float(np.sqrt(np.square(self.difference()).mean()))

    def difference(self) -> np.ndarray:
        """Dream less reality, entry by entry; of images as a share of the full range."""
        return (self.dreamt.astype(np.float64) - self._seen[-1]) / self.scale

    @property
    def distance(self) -> float:
        """How far two observations of the real episode so far lie apart on average."""
        if isinstance(self.env.observation_space, spaces.Discrete):
            return 1.0
        mean, square = (total / self._count for total in self._sums)
        return math.sqrt(2.0 * max(0.0, float((square - np.square(mean)).mean())))

    @property
    def apart(self) -> int | None:
        """The first step after which dream and reality are apart, and stay so until now; None while they are together."""
        limit, first = APART * self.distance, None
        for step in range(len(self.errors), 0, -1):
            if self.errors[step - 1] <= limit:
                break
            first = step
        return first

    @property
    def is_image(self) -> bool:
        """Whether observations are images."""
        return is_image_space(self.env.observation_space)

    def frames(self) -> tuple[np.ndarray, np.ndarray]:
        """What is seen, and what is dreamt, drawn alike."""
        dreamt = self.dream.render()
        assert dreamt is not None
        return self._canvas.paint(self._seen), dreamt

    def close(self) -> None:
        """Free the environments."""
        self._canvas.close()
        super().close()
