"""Families of environments, one file each. A file in this folder registers itself; a plugin may register more."""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cache
from typing import Any, ClassVar

import gymnasium as gym

from gymlab.envs.vector import EnvironmentSpec
from gymlab.errors import EnvironmentFailure

FAMILIES: list[Family] = []
"""Every family known, in the order of registration."""


class Family(ABC):
    """How environments whose id begins with one of `prefixes` are made."""

    name: ClassVar[str]
    prefixes: ClassVar[tuple[str, ...]]
    one_per_process: ClassVar[bool] = False
    """Whether a process can hold but one environment: each then gets a worker of its own."""

    @abstractmethod
    def resolve(self, env_id: str) -> str:
        """The id under which the environment is made; an unknown one raises an error that names the nearest."""

    def env_kwargs(self, env_id: str, env_kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments with which a resolved id is made: the config's, on top of what the family adds."""
        return dict(env_kwargs)

    @abstractmethod
    def spec(self, env_id: str, env_kwargs: dict[str, Any]) -> EnvironmentSpec:
        """What is known about a resolved id without making it."""

    @abstractmethod
    def make(self, env_id: str, env_kwargs: dict[str, Any], render_mode: str | None) -> gym.Env:
        """One environment without time limit or wrappers of ours."""

    @abstractmethod
    def ids(self) -> Iterable[str]:
        """Ids that can be made now."""

    def has_vector(self, env_id: str) -> bool:
        """Whether somebody else than we wrote a vector version of the environment."""
        return False

    def make_vector(self, env_id: str, env_kwargs: dict[str, Any], num_envs: int) -> gym.vector.VectorEnv:
        """That vector version."""
        raise EnvironmentFailure(f"{env_id} has no vector version.")


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
