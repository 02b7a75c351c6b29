"""Families of environments, one file each. A file in this folder registers itself; a plugin may register more."""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cache
from types import ModuleType
from typing import Any, ClassVar

import gymnasium as gym

from gymlab.config.schema import Config
from gymlab.envs.extras import missing_extra
from gymlab.envs.vector import EnvironmentSpec, Seeds, VectorEnv
from gymlab.envs.wrappers import PixelObservationWrapper
from gymlab.errors import EnvironmentFailure

FAMILIES: list[Family] = []
"""Every family known, in the order of registration."""


class Family(ABC):
    """How environments whose id begins with one of `prefixes` are made."""

    name: ClassVar[str]
    prefixes: ClassVar[tuple[str, ...]]
    one_a_process: ClassVar[bool] = False
    """Whether a process can hold one environment only."""
    can_fork: ClassVar[bool] = True
    """Whether environments work in a process forked from one that has used them."""
    skips_frames: ClassVar[bool] = False
    """Whether `make` repeats actions by itself, so that no wrapper has to."""
    own_files: ClassVar[str] = ""
    """Which files `is_own_file` takes, in words."""

    @abstractmethod
    def resolve(self, env_id: str) -> str:
        """The id under which the environment is made; an unknown one raises an error that names the nearest."""

    def env_kwargs(self, env_id: str, env_kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments with which a resolved id is made: the config's, on top of what the family adds."""
        return dict(env_kwargs)

    def configured(self, env_id: str, config: Config, purpose: str) -> dict[str, Any]:
        """Arguments with which the environment of a config is made; families that need more of it than `env_kwargs` look."""
        return self.env_kwargs(env_id, config.env_kwargs)

    def notice(self, env_kwargs: dict[str, Any], config: Config) -> str:
        """What is to be said about these arguments before training; nothing unless a family has a protocol."""
        return ""

    def is_own_file(self, option: str, text: str) -> bool:
        """Whether `env_kwargs.<option>` names a file of the family's package or of a folder that the user set; a run may name no other."""
        return False

    @abstractmethod
    def spec(self, env_id: str, env_kwargs: dict[str, Any]) -> EnvironmentSpec:
        """What is known about a resolved id without making it."""

    @abstractmethod
    def make(self, env_id: str, env_kwargs: dict[str, Any], render_mode: str | None) -> gym.Env:
        """One environment without time limit or wrappers of ours."""

    def pixels(self, env: gym.Env, env_kwargs: dict[str, Any]) -> gym.Env:
        """`obs_type: rgb` of an environment that gives no pictures by itself: what it draws, unless a family knows better."""
        return PixelObservationWrapper(env)

    def shown(self, env: gym.Env, env_kwargs: dict[str, Any]) -> gym.Env:
        """What stands between the recorder of the environment's own reward and the agent."""
        return env

    @abstractmethod
    def ids(self) -> Iterable[str]:
        """Ids that can be made now."""

    def has_vector(self, env_id: str) -> bool:
        """Whether somebody else than we wrote a vector version of the environment."""
        return False

    def make_vector(self, env_id: str, env_kwargs: dict[str, Any], num_envs: int) -> gym.vector.VectorEnv:
        """That vector version."""
        raise EnvironmentFailure(f"{env_id} has no vector version.")

    def obstacle_to_native(self, config: Config, env_kwargs: dict[str, Any]) -> str | None:
        """Why `make_native` cannot do what a config asks for, empty when it can; None: the family has none of its own."""
        return None

    def make_native(
        self,
        config: Config,
        spec: EnvironmentSpec,
        env_kwargs: dict[str, Any],
        num_envs: int,
        seeds: Seeds,
        purpose: str,
    ) -> VectorEnv:
        """The family's own vector environment."""
        raise EnvironmentFailure(f"{spec.id} has no vector version.")


def require(module: str, env_id: str, needs: str) -> ModuleType:
    """Import a package that environments need; where it is missing, the error is the pip line to run (`needs`: a name in `extras.NEEDS`)."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing_extra(needs, env_id, error) from error


def register_family(family: Family) -> Family:
    """Make a family known."""
    FAMILIES.append(family)
    return family


@cache
def _load_shipped() -> None:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def family_of(env_id: str) -> Family:
    """The family with the longest prefix that fits; standard Gymnasium fits everything."""
    _load_shipped()
    fitting = [(len(prefix), family) for family in FAMILIES for prefix in family.prefixes if env_id.startswith(prefix)]
    return max(fitting, key=lambda pair: pair[0])[1]
