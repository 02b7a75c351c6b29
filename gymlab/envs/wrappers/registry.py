"""Wrappers by name: what `env_wrappers` in a config may refer to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import gymnasium as gym

from gymlab.errors import ConfigError, did_you_mean
from gymlab.registry import Registry


@dataclass(frozen=True)
class WrapperContext:
    """What a wrapper may know about its place; given to those whose constructor has a `context` parameter."""

    purpose: str = "train"
    """train, val, test, play ...: exploration bonuses are for training only."""
    env_index: int = 0
    gamma: float = 0.99
    """Discount of the algorithm, for potential-based shaping."""
    shared: dict[str, Any] = field(default_factory=dict)
    """Lives as long as the vector environment and is the same for all of its sub-environments."""


class WrapperRegistry(Registry[type[gym.Wrapper]]):
    """Wrappers by id. `register("Name")` and plain `register` (the class's own name) both decorate a class."""

    def register(self, name: str | type[gym.Wrapper]) -> Any:
        """Make a wrapper class known."""
        if isinstance(name, str):
            return super().register(name)
        return super().register(name.__name__)(name)


EnvWrapperRegistry = WrapperRegistry("environment wrapper")
"""Wrapper classes that a config may name."""


def parse_wrapper(entry: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Id and keyword arguments of an entry: `X`, `{id: X, **kwargs}` or `{X: {kwargs}}`."""
    if isinstance(entry, str):
        return entry, {}
    if "id" in entry:
        return str(entry["id"]), {key: value for key, value in entry.items() if key != "id"}
    if len(entry) == 1:
        name, kwargs = next(iter(entry.items()))
        if kwargs is None or isinstance(kwargs, Mapping):
            return str(name), dict(kwargs or {})
    raise ConfigError(
        f"env_wrappers has the entry {entry!r}; expected a name, {{id: Name, argument: value}} or "
        "{Name: {argument: value}}."
    )


def wrapper_classes(entries: Iterable[str | Mapping[str, Any]]) -> list[type[gym.Wrapper]]:
    """The classes that a config's `env_wrappers` names."""
    return [EnvWrapperRegistry.get(parse_wrapper(entry)[0]) for entry in entries]


def needs_shared_state(wrapper: type[gym.Wrapper]) -> bool:
    """Whether the wrapper's state is one for all sub-environments, so that they must live in one process."""
    return bool(getattr(wrapper, "needs_shared_state", False))


def apply_wrappers(
    env: gym.Env, entries: Iterable[str | Mapping[str, Any]], context: WrapperContext, env_id: str
) -> gym.Env:
    """The environment with the wrappers of the config, the first one innermost."""
    for entry in entries:
        name, kwargs = parse_wrapper(entry)
        env = build_wrapper(EnvWrapperRegistry.get(name), env, kwargs, context, f"env_wrappers of {env_id}")
    return env


def build_wrapper(
    wrapper: type[gym.Wrapper], env: gym.Env, kwargs: dict[str, Any], context: WrapperContext, where: str
) -> gym.Env:
    """One wrapper around an environment; arguments it does not have are refused by name."""
    signature = inspect.signature(wrapper)
    known = [name for name in list(signature.parameters)[1:] if name != "context"]
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in signature.parameters.values())
    for name in kwargs:
        if name not in known and not takes_any:
            raise ConfigError(
                f"{where}: {wrapper.__name__} has no argument {name!r}. {did_you_mean(name, known)} "
                f"Known: {', '.join(known) or 'none'}."
            )
    missing = [
        name for name in known if signature.parameters[name].default is inspect.Parameter.empty and name not in kwargs
    ]
    if missing and not takes_any:
        raise ConfigError(f"{where}: {wrapper.__name__} needs the argument {missing[0]!r}.")
    if "context" in signature.parameters:
        kwargs = {**kwargs, "context": context}
    return cast(Callable[..., gym.Env], wrapper)(env, **kwargs)
