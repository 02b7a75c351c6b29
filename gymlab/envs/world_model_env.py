"""A world model as an environment: whoever plays in it, a person or an agent, plays in a dream.

    env = WorldModelEnv(workflow, real.observation_space, real.action_space, starts, max_steps=500)
    observation, info = env.reset(seed=7)                    # where a real episode began
    observation, reward, terminated, truncated, info = env.step(action)     # all of it made up by the model

Any workflow that offers `dream_start` and `dream_step` (`WorldModel` in `gymlab/engine/workflow.py`) can be handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import gymnasium as gym
import numpy as np

from gymlab.envs.painting import SHOWN_STEPS, Painter, painter_of

FRAMES_PER_SECOND = 15.0


class Start(Protocol):
    """What was seen before a dream: a `Recording` of the engine."""

    @property
    def observations(self) -> np.ndarray:
        """[T, ...]; the dream goes on from the last one."""


class Dreamt(Protocol):
    """What is expected of one action: a `DreamStep` of the engine."""

    @property
    def observation(self) -> np.ndarray:
        """[1, ...]."""

    @property
    def reward(self) -> np.ndarray:
        """[1]."""

    @property
    def ended(self) -> np.ndarray:
        """[1] bool."""


class DreamModel(Protocol):
    """What can be dreamt in."""

    def dream_start(self, recording: Any) -> Any:
        """The state of a dream that has seen a recording."""

    def dream_step(self, state: Any, action: np.ndarray, generator: np.random.Generator | None) -> tuple[Any, Any]:
        """The next state, and a `Dreamt`."""


Starts = Callable[[np.random.Generator], Start]
"""Gives what the next dream begins with; where there is a choice, it is made by the generator."""


class WorldModelEnv(gym.Env[np.ndarray, Any]):
    """Dreams of a world model, one after the other, in the spaces of the real environment as the agent sees them."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": FRAMES_PER_SECOND}  # type: ignore[misc]

    def __init__(
        self,
        model: DreamModel,
        observation_space: gym.Space,
        action_space: gym.Space,
        starts: Starts,
        *,
        max_steps: int | None = None,
        likeliest: bool = False,
        painter: Painter | None = None,
        render_mode: str | None = "rgb_array",
        behind: gym.Env | None = None,
    ) -> None:
        """Make it; nothing is dreamt before `reset`.

        max_steps: steps after which a dream is cut off; the model alone ends one before.
        likeliest: what the model takes to be likeliest, instead of what it draws.
        painter: draws the observations (`envs/painting.py`).
        behind: the environment that starts come from; it is closed with this one.
        """
        self.model = model
        self.observation_space = observation_space
        self.action_space = action_space
        self.starts = starts
        self.max_steps = max_steps
        self.likeliest = likeliest
        self.render_mode = render_mode
        self._behind = behind
        self._painter = painter or painter_of(observation_space)
        self._state: Any = None
        self._seen: list[np.ndarray] = []
        """Newest observations, as many as a picture shows."""
        self.steps = 0
        """Taken in the dream that is open."""
        self.start: Start | None = None
        """What the dream that is open began with."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin another dream, at the last observation of its start."""
        super().reset(seed=seed)
        self.start = self.starts(self.np_random)
        self._state = self.model.dream_start(self.start)
        self._seen, self.steps = [np.array(self.start.observations[-1])], 0
        return self._seen[-1].copy(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """What the model expects of an action."""
        if self.start is None:
            raise gym.error.ResetNeeded("Cannot call env.step() before calling env.reset()")
        generator = None if self.likeliest else self.np_random
        self._state, dreamt = self.model.dream_step(self._state, np.asarray(action)[None], generator)
        self._seen = [*self._seen[1 - SHOWN_STEPS :], dreamt.observation[0]]
        self.steps += 1
        terminated = bool(dreamt.ended[0])
        truncated = not terminated and self.max_steps is not None and self.steps >= self.max_steps
        return self._seen[-1].copy(), float(dreamt.reward[0]), terminated, truncated, {}

    def render(self) -> np.ndarray | None:
        """A picture of what is seen now."""
        if self.render_mode is None or not self._seen:
            return None
        return self._painter(self._seen)

    def close(self) -> None:
        """Free what is behind it."""
        if self._behind is not None:
            self._behind.close()
