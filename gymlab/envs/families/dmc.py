"""DeepMind's control suite: `dmc/<domain>-<task>`, as state vectors or as pictures.

Every task gives rewards in [0, 1] and runs for 1000 steps, so returns are in [0, 1000]. That limit is a truncation; a task
that ends by itself (its discount is then 0) terminates. `frame_skip` is the usual action repeat.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from gymlab.envs.families import Family, register_family, require
from gymlab.envs.gl import prepare_gl
from gymlab.envs.vector import EnvironmentSpec
from gymlab.errors import ConfigError, EnvironmentFailure, did_you_mean

MAX_EPISODE_STEPS = 1000
SHORT_NAMES = {"cup": "ball_in_cup", "pointmass": "point_mass"}
"""Names of domains that the literature uses."""
DEFAULTS: dict[str, Any] = {"height": 64, "width": 64, "camera": 0}
"""Size and camera of the pictures that `obs_type: rgb` gives to the agent."""
UNLIMITED = 1e10
VIDEO_SIZE = (240, 320)
OWN_CAMERA = {"quadruped": 2}
"""Domains whose camera 0 does not show the robot well; the others are seen by camera 0."""


class DmControlEnv(gym.Env):
    """One task. Observations are its parts in the suite's order, as one float32 vector."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}

    def __init__(
        self, domain: str, task: str, task_kwargs: dict[str, Any], camera: int | str, render_mode: str | None = None
    ) -> None:
        from dm_control import suite

        # Our own time limit truncates: the suite's would have to be told apart from a task's own end.
        options = {"time_limit": float("inf"), **task_kwargs, "random": 0}
        self._environment = suite.load(domain, task, task_kwargs=options)
        self._camera = camera
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": round(1.0 / self._environment.control_timestep())}
        actions = self._environment.action_spec()
        low, high = (_bounds(bound, actions.shape) for bound in (actions.minimum, actions.maximum))
        self.action_space = gym.spaces.Box(low, high, dtype=np.float32)
        width = sum(int(np.prod(part.shape)) for part in self._environment.observation_spec().values())
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (width,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode; its seed starts the task's own random numbers."""
        super().reset(seed=seed)
        if seed is not None:
            halves = np.array([seed & 0xFFFFFFFF, seed >> 32], dtype=np.uint32)
            self._environment.task.random.seed(halves)
        return _vector(self._environment.reset().observation), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One control step."""
        timestep = self._environment.step(np.asarray(action, dtype=np.float64))
        terminated = bool(timestep.last() and timestep.discount == 0.0)
        truncated = bool(timestep.last() and not terminated)
        return _vector(timestep.observation), float(timestep.reward), terminated, truncated, {}

    def picture(self, height: int, width: int) -> np.ndarray:
        """[height, width, 3] uint8 from the camera."""
        return self._environment.physics.render(height, width, camera_id=self._camera)

    def render(self) -> Any:
        """A picture for videos, larger than what the agent sees."""
        return self.picture(*VIDEO_SIZE) if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Free the simulation and its GL context."""
        self._environment.close()


def _bounds(bound: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    # MuJoCo's largest number stands for no bound (lqr); taken at its word, random actions would blow up the simulation.
    bound = np.broadcast_to(bound, shape)
    return np.where(np.abs(bound) >= UNLIMITED, np.copysign(np.inf, bound), bound).astype(np.float32)


def _vector(observation: dict[str, Any]) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float32)


class DmControlPixels(gym.ObservationWrapper):
    """The picture of the camera in place of the state."""

    def __init__(self, env: gym.Env, height: int, width: int) -> None:
        super().__init__(env)
        self._task: Any = env.unwrapped
        self._size = (height, width)
        self.observation_space = gym.spaces.Box(0, 255, (height, width, 3), np.uint8)

    def observation(self, observation: Any) -> np.ndarray:
        """What the camera sees now."""
        return self._task.picture(*self._size)


class DmControlFamily(Family):
    """All tasks of the suite. env_kwargs: height, width and camera of pictures; others are the task's own."""

    name: ClassVar[str] = "dmc"
    prefixes: ClassVar[tuple[str, ...]] = ("dmc/",)

    def resolve(self, env_id: str) -> str:
        """A task of the suite; `-` and `_` are alike, and `cup` is `ball_in_cup`."""
        found = _tasks(env_id).get(_plain(env_id))
        if found is None:
            raise EnvironmentFailure(
                f"Unknown task {env_id!r}: expected dmc/<domain>-<task>, e.g. dmc/cartpole-swingup. "
                f"{did_you_mean(env_id, self.ids())}"
            )
        return found

    def env_kwargs(self, env_id: str, env_kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments over a camera and a size of pictures."""
        domain = _parts(env_id)[0]
        filled = {**DEFAULTS, "camera": OWN_CAMERA.get(domain, DEFAULTS["camera"]), **env_kwargs}
        for name in ("height", "width"):
            if not isinstance(filled[name], int) or filled[name] < 1:
                raise ConfigError(f"env_kwargs of {env_id}: {name} is {filled[name]!r}; expected a count of pixels.")
        return filled

    def spec(self, env_id: str, env_kwargs: dict[str, Any]) -> EnvironmentSpec:
        """1000 steps; no threshold is agreed on."""
        return EnvironmentSpec(env_id, None, MAX_EPISODE_STEPS)

    def make(self, env_id: str, env_kwargs: dict[str, Any], render_mode: str | None) -> gym.Env:
        """One task."""
        prepare_gl(drawing=render_mode == "rgb_array")
        domain, task = _parts(env_id)
        own = {name: value for name, value in env_kwargs.items() if name not in DEFAULTS}
        try:
            return DmControlEnv(domain, task, own, env_kwargs["camera"], render_mode)
        except TypeError as error:
            raise ConfigError(f"{env_id} does not take env_kwargs {own!r}: {error}") from error

    def pixels(self, env: gym.Env, env_kwargs: dict[str, Any]) -> gym.Env:
        """Pictures of height x width."""
        return DmControlPixels(env, env_kwargs["height"], env_kwargs["width"])

    def ids(self) -> Iterable[str]:
        """Every task of the installed suite."""
        return sorted(set(_tasks("dmc").values()))


def _plain(env_id: str) -> str:
    return env_id.lower().removeprefix("dmc/").replace("-", "_")


def _parts(env_id: str) -> tuple[str, str]:
    domain, _, task = env_id.removeprefix("dmc/").partition("-")
    return domain, task


@cache
def _tasks(env_id: str) -> dict[str, str]:
    """Ids by their plain names, those of short domain names too."""
    if find_spec("mujoco") is not None:
        prepare_gl(drawing=False)
    if not logging.root.handlers:
        # Otherwise dm_control's first message installs a handler that prints every message of ours a second time.
        logging.root.addHandler(logging.NullHandler())
    suite = require("dm_control.suite", env_id, "dmc")
    found = {}
    for domain, task in suite.ALL_TASKS:
        for name in (domain, *(short for short, full in SHORT_NAMES.items() if full == domain)):
            found[_plain(f"{name}-{task}")] = f"dmc/{domain}-{task}"
    return found


register_family(DmControlFamily())
