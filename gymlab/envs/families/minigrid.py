"""MiniGrid: small worlds of walls, doors, keys and goals, seen as symbols or as pictures.

Symbols are what learns: the 7x7 cells in front of the agent (`view: full`: all cells of the grid), each a one-hot of its
object, one of its colour and one of its state, then the agent's direction, then the mission. MiniGrid's own 7x7x3 numbers
are names and not amounts, so that a network would first have to undo them.

The mission is a sentence with words that change ("go to the red door"): each place for such a word is a one-hot. Most
environments have one mission and spend nothing on it. Pictures (`obs_type: rgb`) do not show it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from gymlab.envs.families import Family, register_family, require
from gymlab.envs.vector import EnvironmentSpec
from gymlab.errors import ConfigError, EnvironmentFailure, did_you_mean

VIEWS = ("partial", "full")
OBJECTS, COLOURS, STATES = 11, 6, 4
"""Values of the three numbers of a cell; the state of the agent's own cell is its direction."""
CELL = OBJECTS + COLOURS + STATES
OWN_OPTIONS = ("view", "tile_size")
"""env_kwargs that are for our view of the environment; all others are MiniGrid's."""


class MissionCode:
    """Where a mission's words stand in the observation: a one-hot for each place in the sentence that may change."""

    def __init__(self, space: Any) -> None:
        choices = space.ordered_placeholders or []
        self.width = sum(len(words) for words in choices)
        starts = np.cumsum([0, *(len(words) for words in choices)])[: len(choices)]
        self._positions: dict[str, np.ndarray] = {}
        for picked in itertools.product(*(range(len(words)) for words in choices)):
            text = space.mission_func(*(words[index] for words, index in zip(choices, picked, strict=True)))
            self._positions.setdefault(text, starts + np.array(picked, dtype=np.int64))

    def write(self, mission: str, out: np.ndarray) -> None:
        """Set the ones of a mission in zeros."""
        if self.width:
            out[self._positions[mission]] = 1.0


class SymbolicView(gym.Wrapper):
    """The world as one vector of zeros and ones. An episode that ends says whether its goal was met."""

    def __init__(self, env: gym.Env, view: str) -> None:
        super().__init__(env)
        world: Any = env.unwrapped
        self._world = world
        self._full = view == "full"
        cells = world.width * world.height if self._full else world.agent_view_size**2
        self._offsets = np.arange(cells)[:, None] * CELL + np.array([0, OBJECTS, OBJECTS + COLOURS])
        self._mission = MissionCode(world.observation_space["mission"])
        self._seen = cells * CELL
        self._carried = self._seen + 4
        self._told = self._carried + (OBJECTS + COLOURS if self._full else 0)
        self.observation_space = gym.spaces.Box(0.0, 1.0, (self._told + self._mission.width,), np.float32)

    def _vector(self, observation: dict[str, Any]) -> np.ndarray:
        world = self._world
        vector = np.zeros(self.observation_space.shape or (), dtype=np.float32)
        image = self._whole_grid() if self._full else observation["image"]
        vector[self._offsets + image.reshape(-1, 3)] = 1.0
        vector[self._seen + world.agent_dir] = 1.0
        if self._full and world.carrying is not None:
            # The partial view shows in the agent's own cell what it carries; the whole grid does not.
            kind, colour, _ = world.carrying.encode()
            vector[[self._carried + kind, self._carried + OBJECTS + colour]] = 1.0
        self._mission.write(observation["mission"], vector[self._told :])
        return vector

    def _whole_grid(self) -> np.ndarray:
        from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX

        world = self._world
        image = world.grid.encode()
        image[world.agent_pos[0], world.agent_pos[1]] = (OBJECT_TO_IDX["agent"], COLOR_TO_IDX["red"], world.agent_dir)
        return image

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in a world of its own."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._vector(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step; only a met goal is rewarded, so an ending with a reward is a success."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            info = {**info, "is_success": bool(terminated and float(reward) > 0)}
        return self._vector(observation), reward, terminated, truncated, info


class PictureView(gym.ObservationWrapper):
    """The agent's field of view, or the whole grid, drawn with `tile_size` pixels a cell."""

    def __init__(self, env: gym.Env, view: str, tile_size: int) -> None:
        super().__init__(env)
        self._world: Any = env.unwrapped
        self._view = view
        self._tile_size = tile_size
        env.reset(seed=0)
        self.observation_space = gym.spaces.Box(0, 255, self.observation(None).shape, np.uint8)

    def observation(self, observation: Any) -> np.ndarray:
        """The picture in place of the symbols."""
        world = self._world
        return world.get_frame(world.highlight, self._tile_size, agent_pov=self._view == "partial")


class MiniGridFamily(Family):
    """`MiniGrid-*`: env_kwargs `view` (partial or full) and `tile_size` are ours, the others MiniGrid's own."""

    name: ClassVar[str] = "minigrid"
    prefixes: ClassVar[tuple[str, ...]] = ("MiniGrid-",)

    def resolve(self, env_id: str) -> str:
        """An id that MiniGrid registers."""
        require("minigrid", env_id, "minigrid")
        if env_id in gym.registry:
            return env_id
        raise EnvironmentFailure(f"Unknown environment {env_id!r}. {did_you_mean(env_id, self.ids())}")

    def env_kwargs(self, env_id: str, env_kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments with our two filled in."""
        filled = {"view": "partial", "tile_size": 8, **env_kwargs}
        if filled["view"] not in VIEWS:
            hint = did_you_mean(str(filled["view"]), VIEWS)
            raise ConfigError(f"env_kwargs of {env_id}: view is {filled['view']!r}; expected partial or full. {hint}")
        return filled

    def spec(self, env_id: str, env_kwargs: dict[str, Any]) -> EnvironmentSpec:
        """MiniGrid truncates by itself, after `max_steps` of its own env_kwargs."""
        return EnvironmentSpec(env_id, gym.spec(env_id).reward_threshold, None)

    def make(self, env_id: str, env_kwargs: dict[str, Any], render_mode: str | None) -> gym.Env:
        """One world as symbols."""
        own = {key: value for key, value in env_kwargs.items() if key not in OWN_OPTIONS}
        try:
            env: gym.Env = gym.make(env_id, render_mode=render_mode, disable_env_checker=True, **own).unwrapped
        except TypeError as error:
            raise ConfigError(f"{env_id} does not take env_kwargs {own!r}: {error}") from error
        return SymbolicView(env, env_kwargs["view"])

    def pixels(self, env: gym.Env, env_kwargs: dict[str, Any]) -> gym.Env:
        """The partial or full view as a picture."""
        return PictureView(env, env_kwargs["view"], int(env_kwargs["tile_size"]))

    def ids(self) -> Iterable[str]:
        """Every world that the installed MiniGrid registers."""
        require("minigrid", "MiniGrid", "minigrid")
        return sorted(name for name in gym.registry if name.startswith("MiniGrid-"))


register_family(MiniGridFamily())
