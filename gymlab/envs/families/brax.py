"""Brax: physics that JAX compiles, `brax/<name>`, stepped a thousand at a time in one program.

An episode ends by its task or after 1000 steps, which is a truncation. MuJoCo draws the pictures. `env_kwargs` go to the
environment: `backend` chooses the physics (generalized, spring, positional or mjx).
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np

from gymlab.config.schema import Config
from gymlab.envs.families import Family, register_family, require
from gymlab.envs.families.brax_vector import BraxVector, jax_key, options_text, program, space_sizes, spaces, strong
from gymlab.envs.gl import prepare_gl
from gymlab.envs.vector import EnvironmentSpec, Seeds, VectorEnv
from gymlab.errors import ConfigError, EnvironmentFailure, did_you_mean

PREFIX = "brax/"
MAX_EPISODE_STEPS = 1000
PHYSICS = ("generalized", "spring", "positional", "mjx")
VIDEO_SIZE = (240, 320)
WITHOUT_PHYSICS = "fast"
"""What Brax tests itself with: there is nothing to see or to learn."""


class Single(NamedTuple):
    """One environment, compiled for one: all that are made with the same arguments share it."""

    environment: Any
    reset: Callable[[Any], Any]
    step: Callable[[Any, Any], Any]


class BraxEnv(gym.Env):
    """One environment as Gymnasium has it, for wrappers and pictures. A seed gives the same episode each time."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}

    def __init__(self, name: str, options: str, render_mode: str | None = None) -> None:
        self._compiled = _single(name, options)
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": frames_per_second(self._compiled.environment)}
        self.observation_space, self.action_space = spaces(*space_sizes(self._compiled.environment))
        self._state: Any = None
        self._renderer: Any = None
        self._drawn: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode; without a seed, one that follows from those before."""
        super().reset(seed=seed)
        chosen = int(self.np_random.integers(2**63)) if seed is None else seed
        self._state = self._compiled.reset(jax_key(chosen))
        return np.array(self._state.obs, dtype=np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step of the task, which may be several of its physics."""
        self._state = self._compiled.step(self._state, np.asarray(action, dtype=np.float32))
        state = self._state
        return np.array(state.obs, dtype=np.float32), float(state.reward), bool(state.done), False, {}

    def render(self) -> Any:
        """What MuJoCo's camera sees of the present positions."""
        if self.render_mode != "rgb_array" or self._state is None:
            return None
        import mujoco

        model = self._compiled.environment.sys.mj_model
        if self._renderer is None:
            self._renderer = mujoco.Renderer(model, *VIDEO_SIZE)
            self._drawn = mujoco.MjData(model)
        self._drawn.qpos, self._drawn.qvel = self._state.pipeline_state.q, self._state.pipeline_state.qd
        mujoco.mj_forward(model, self._drawn)
        self._renderer.update_scene(self._drawn)
        return self._renderer.render()

    def close(self) -> None:
        """Free the GL context."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


class BraxFamily(Family):
    """All environments of Brax. env_kwargs: backend, and what an environment takes beside."""

    name: ClassVar[str] = "brax"
    prefixes: ClassVar[tuple[str, ...]] = (PREFIX,)
    can_fork: ClassVar[bool] = False

    def resolve(self, env_id: str) -> str:
        """A registered name; `-` and `_` are alike."""
        name = env_id.removeprefix(PREFIX).replace("-", "_")
        if name not in _registered(env_id):
            raise EnvironmentFailure(
                f"Unknown environment {env_id!r}. {did_you_mean(env_id, self.ids())} Known: {', '.join(self.ids())}."
            )
        return PREFIX + name

    def env_kwargs(self, env_id: str, env_kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments, with a backend that exists."""
        physics = env_kwargs.get("backend", PHYSICS[0])
        if physics not in PHYSICS:
            raise ConfigError(
                f"env_kwargs.backend of {env_id} is {physics!r}; expected {', '.join(PHYSICS)}. "
                f"{did_you_mean(str(physics), PHYSICS)}"
            )
        return dict(env_kwargs)

    def spec(self, env_id: str, env_kwargs: dict[str, Any]) -> EnvironmentSpec:
        """1000 steps; no threshold is agreed on."""
        return EnvironmentSpec(env_id, None, MAX_EPISODE_STEPS)

    def make(self, env_id: str, env_kwargs: dict[str, Any], render_mode: str | None) -> gym.Env:
        """One environment."""
        prepare_gl(drawing=render_mode == "rgb_array")
        return BraxEnv(_name(env_id), options_text(env_kwargs), render_mode)

    def ids(self) -> Iterable[str]:
        """Every environment that Brax, or a plugin by Brax's `register_environment`, has registered."""
        return sorted(PREFIX + name for name in _registered("brax") if name != WITHOUT_PHYSICS)

    def obstacle_to_native(self, config: Config, env_kwargs: dict[str, Any]) -> str:
        """The program steps states: wrappers and pictures are for single environments."""
        for name in ("env_wrappers", "grayscale_obs", "resize_obs"):
            if getattr(config, name):
                return f"{name} works on single environments."
        if config.frame_stack > 1:
            return "frame_stack works on single environments."
        return "obs_type: rgb renders single environments." if config.obs_type == "rgb" else ""

    def make_native(
        self,
        config: Config,
        spec: EnvironmentSpec,
        env_kwargs: dict[str, Any],
        num_envs: int,
        seeds: Seeds,
        purpose: str,
    ) -> VectorEnv:
        """All of them in one program, actions repeated by it."""
        name, options = _name(spec.id), options_text(env_kwargs)
        compiled = program(make_environment, name, options, spec.max_episode_steps, config.frame_skip)
        fps = frames_per_second(make_environment(name, options)) / config.frame_skip
        return BraxVector(compiled, spec, num_envs, seeds, purpose, fps=fps)


def frames_per_second(environment: Any) -> float:
    """Steps in a second of the simulation's own time."""
    return float(round(1.0 / float(environment.dt)))


@cache
def make_environment(name: str, options: str) -> Any:
    """Brax's own object, which holds no state: `options` are its arguments as JSON."""
    arguments = json.loads(options)
    try:
        with _quiet():
            return import_brax(PREFIX + name).get_environment(name, **arguments)
    except TypeError as error:
        raise ConfigError(f"{PREFIX}{name} does not take env_kwargs {arguments!r}: {error}") from error


@cache
def _single(name: str, options: str) -> Single:
    import jax

    environment = make_environment(name, options)
    compiled = [jax.jit(partial(_strongly, function)) for function in (environment.reset, environment.step)]
    return Single(environment, *compiled)


def _strongly(function: Callable[..., Any], *arguments: Any) -> Any:
    return strong(function(*arguments))


def import_brax(env_id: str) -> ModuleType:
    """`brax.envs`; where Brax is missing, the error is the pip line."""
    if find_spec("mujoco") is not None:
        # MuJoCo, which Brax imports, reads the choice of a GL backend once.
        prepare_gl(drawing=False)
    if not logging.root.handlers:
        # Otherwise Brax's first message installs a handler that prints every message of ours a second time.
        logging.root.addHandler(logging.NullHandler())
    # JAX warns of every fork; what ours do (a video's ffmpeg, git) is to become another program at once.
    warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
    with _quiet():
        return require("brax.envs", env_id, "brax")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without Brax's remarks on other libraries that nobody asked for."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _registered(env_id: str) -> dict[str, Any]:
    # Brax offers no other list of what it knows.
    return import_brax(env_id)._envs


def _name(env_id: str) -> str:
    return env_id.removeprefix(PREFIX)


register_family(BraxFamily())
