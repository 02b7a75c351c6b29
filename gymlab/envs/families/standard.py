"""Everything that Gymnasium's registry knows: classic control, toy text, Box2D, MuJoCo and what users registered."""

from __future__ import annotations

import copy
import logging
import sys
import warnings
from collections.abc import Iterable
from functools import cache
from typing import Any, ClassVar

import gymnasium as gym

from gymlab.envs.car_racing import QuickCarRacing
from gymlab.envs.crash import raised_by_author
from gymlab.envs.extras import missing_extra, missing_library, needs_of
from gymlab.envs.families import Family, register_family
from gymlab.envs.vector import EnvironmentSpec
from gymlab.errors import ConfigError, EnvironmentFailure, NotInstalled, UnknownEnvironment, Unregistered, did_you_mean

logger = logging.getLogger(__name__)


class StandardFamily(Family):
    """Gymnasium's own registry. It has no prefix, so it takes what no other family claims."""

    name: ClassVar[str] = "gymnasium"
    prefixes: ClassVar[tuple[str, ...]] = ("",)

    def resolve(self, env_id: str) -> str:
        """A registered id; a retired version becomes the newest one, with a notice."""
        module, _, name = env_id.rpartition(":")
        if module and module not in sys.modules:
            raise Unregistered(
                f"{env_id!r} asks for the module {module!r}, which is not loaded. A config may not import code: "
                f"give it on the command line with --plugin {module}."
            )
        if name in gym.registry:
            return name
        try:
            newest = _newest_version(name)
        except gym.error.Error:
            newest = None  # An id of another form is unknown like any other.
        if newest is not None:
            _notice_retired(name, newest)
            return newest
        raise UnknownEnvironment(
            f"Unknown environment {env_id!r}. {did_you_mean(name, gym.registry)} "
            "`gymlab list` shows what ships; an environment of your own is registered by a module given with --plugin."
        )

    def spec(self, env_id: str, env_kwargs: dict[str, Any]) -> EnvironmentSpec:
        """Threshold and time limit as registered."""
        registered = gym.spec(env_id)
        return EnvironmentSpec(env_id, registered.reward_threshold, registered.max_episode_steps)

    def make(self, env_id: str, env_kwargs: dict[str, Any], render_mode: str | None) -> gym.Env:
        """The environment without Gymnasium's checks, order enforcement and time limit: the vector env does these."""
        spec = copy.deepcopy(gym.spec(env_id))
        spec.order_enforce = False
        # An environment that cannot render need not know the word.
        rendering = {} if render_mode is None else {"render_mode": render_mode}
        try:
            with warnings.catch_warnings():
                # One that cannot render is told by us, when a picture is asked for.
                warnings.filterwarnings("ignore", message=".*is being initialised with render_mode")
                env = gym.make(spec, max_episode_steps=-1, disable_env_checker=True, **rendering, **env_kwargs)
            return QuickCarRacing(env) if env_id == "CarRacing-v3" else env
        except (gym.error.DependencyNotInstalled, ImportError) as error:
            known = isinstance(error, ModuleNotFoundError) or missing_library(error)
            if not known and raised_by_author(error):
                raise
            raise missing_package(env_id, error) from error
        except TypeError as error:
            # Gymnasium words anew what the environment raised, which may as well be a bug in its `__init__`.
            cause = error.__context__ or error
            if raised_by_author(cause):
                raise cause from None
            if rendering and "render_mode" in str(error):
                raise EnvironmentFailure(f"{env_id} does not render: it takes no render_mode.") from error
            raise ConfigError(f"{env_id} does not take env_kwargs {env_kwargs!r}: {error}") from error

    def ids(self) -> Iterable[str]:
        """Every id in Gymnasium's registry."""
        return sorted(gym.registry)

    def has_vector(self, env_id: str) -> bool:
        """Whether a vector entry point is registered."""
        return gym.spec(env_id).vector_entry_point is not None

    def make_vector(self, env_id: str, env_kwargs: dict[str, Any], num_envs: int) -> gym.vector.VectorEnv:
        """The registered vector entry point."""
        try:
            return gym.make_vec(env_id, num_envs, vectorization_mode="vector_entry_point", **env_kwargs)
        except (gym.error.DependencyNotInstalled, ImportError) as error:
            raise missing_package(env_id, error) from error


def missing_package(env_id: str, error: Exception) -> EnvironmentFailure:
    """The error whose message is the pip line to run, where one is known."""
    needs = needs_of(env_id)
    library = missing_library(error)
    if library:
        return NotInstalled(f"{env_id} cannot be made: {library}")
    if needs is None:
        return NotInstalled(f"{env_id} needs a package that is not installed: {error}")
    return missing_extra(needs.name, env_id, error)


def _newest_version(name: str) -> str | None:
    namespace, base, version = gym.envs.registration.parse_env_id(name)
    if version is None:
        return None
    candidates = [
        (spec.version, spec.id)
        for spec in gym.registry.values()
        if spec.namespace == namespace and spec.name == base and spec.version is not None and spec.version > version
    ]
    return max(candidates)[1] if candidates else None


@cache
def _notice_retired(name: str, newest: str) -> None:
    logger.warning("%s has been retired by Gymnasium; using %s.", name, newest)


register_family(StandardFamily())
