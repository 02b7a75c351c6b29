"""Crafter: an open world in which to survive, seen from above, with 22 achievements to unlock.

Crafter speaks Gym's old language and walks through sets of objects in the order of their addresses, so that two processes
part ways after some hundred steps. Here the sets keep the order of insertion, and the same seed gives the same episode.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from gymlab.envs.families import Family, register_family, require
from gymlab.envs.vector import EnvironmentSpec
from gymlab.errors import ConfigError, EnvironmentFailure, did_you_mean

CRAFTERS = {"Crafter-v1": True, "CrafterReward-v1": True, "CrafterNoReward-v1": False}
"""Whether an id gives rewards."""
OPTIONS = ("area", "view", "size")
"""env_kwargs: cells of the world, cells in view, pixels of an observation."""
MAX_EPISODE_STEPS = 10_000
VIDEO_SIZE = 504


class OrderedSet(dict[Any, None]):
    """What Crafter does with its sets, in the order of insertion."""

    def add(self, item: Any) -> None:
        """Put an object at the end."""
        self[item] = None

    def remove(self, item: Any) -> None:
        """Take an object out."""
        del self[item]


@cache
def _repeatable_world() -> type:
    from crafter.engine import World

    class RepeatableWorld(World):
        """Crafter's world with chunks that do not depend on addresses."""

        def reset(self, seed: int | None = None) -> None:
            super().reset(seed)
            self._chunks: Any = defaultdict(OrderedSet)

    return RepeatableWorld


class CrafterEnv(gym.Env):
    """Crafter in Gymnasium's language."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 15}

    def __init__(self, reward: bool, render_mode: str | None = None, **options: Any) -> None:
        import crafter

        # Length 0: our own time limit truncates. The seed is set at each reset.
        self._game = crafter.Env(reward=reward, length=0, seed=0, **options)
        self._game._world.__class__ = _repeatable_world()
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(0, 255, self._game.observation_space.shape, np.uint8)
        self.action_names: list[str] = [name.replace("_", " ") for name in self._game.action_names]
        """Each action in words."""
        self.action_space = gym.spaces.Discrete(len(self.action_names))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode in a new world."""
        super().reset(seed=seed)
        # Crafter numbers its worlds by its seed and a count of episodes.
        self._game._seed = int(self.np_random.integers(2**31)) if seed is None else seed
        self._game._episode = 0
        return self._game.reset(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step; death terminates."""
        observation, reward, dead, _ = self._game.step(int(action))
        return observation, float(reward), bool(dead), False, {}

    def episode_metrics(self) -> dict[str, float]:
        """1 for each achievement that the episode has unlocked, 0 for the others."""
        return {f"achievement/{name}": float(count > 0) for name, count in self._game._player.achievements.items()}

    def render(self) -> Any:
        """A large picture. Crafter draws the night with the world's random numbers, which a look must not use up."""
        if self.render_mode != "rgb_array":
            return None
        generator = self._game._world.random
        before = generator.get_state()
        picture = self._game.render((VIDEO_SIZE, VIDEO_SIZE))
        generator.set_state(before)
        return picture


class CrafterFamily(Family):
    """`Crafter-v1`, the same as `CrafterReward-v1`, and `CrafterNoReward-v1`."""

    name: ClassVar[str] = "crafter"
    prefixes: ClassVar[tuple[str, ...]] = ("Crafter-", "CrafterReward-", "CrafterNoReward-")

    def resolve(self, env_id: str) -> str:
        """One of the three ids."""
        if env_id in CRAFTERS:
            return env_id
        raise EnvironmentFailure(
            f"Unknown environment {env_id!r}. {did_you_mean(env_id, CRAFTERS)} Known: {', '.join(CRAFTERS)}."
        )

    def env_kwargs(self, env_id: str, env_kwargs: dict[str, Any]) -> dict[str, Any]:
        """Sizes of the world, the view and the picture."""
        for name in env_kwargs:
            if name not in OPTIONS:
                hint = did_you_mean(name, OPTIONS)
                raise ConfigError(
                    f"env_kwargs of {env_id}: unknown argument {name!r}. {hint} Known: {', '.join(OPTIONS)}. "
                    "The length of episodes is max_episode_steps."
                )
        return dict(env_kwargs)

    def spec(self, env_id: str, env_kwargs: dict[str, Any]) -> EnvironmentSpec:
        """10,000 steps; there is no return that counts as solved."""
        return EnvironmentSpec(env_id, None, MAX_EPISODE_STEPS)

    def make(self, env_id: str, env_kwargs: dict[str, Any], render_mode: str | None) -> gym.Env:
        """One world."""
        require("crafter", env_id, "crafter")
        return CrafterEnv(CRAFTERS[env_id], render_mode, **env_kwargs)

    def ids(self) -> Iterable[str]:
        """All three."""
        return list(CRAFTERS)


register_family(CrafterFamily())
