"""Dimensions that only the environment knows, bound at set-up."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from gymlab.config.dump import dump
from gymlab.config.interpolation import ENVIRONMENT_DIMENSIONS, has_references, resolve_references
from gymlab.config.schema import Config
from gymlab.config.validation import validate
from gymlab.config.yaml_reader import Located
from gymlab.errors import ConfigError

C = TypeVar("C", bound=Config)


def _size(written: Any) -> Any:
    """How many numbers a shape stands for; what is none, as it is."""
    is_shape = isinstance(written, list) and all(isinstance(length, int) for length in written)
    return math.prod(written) if is_shape else written


def bind_dimensions(config: C, **known: int) -> C:
    """The config with `${_dims.observation}` and `${_dims.action}` filled in from the environment.

    A dimension that the config writes out must be the environment's.
    """
    data = dump(config)
    for name, value in known.items():
        if name not in ENVIRONMENT_DIMENSIONS:
            raise ValueError(f"{name!r} is no dimension of an environment")
        written = data["dims"].get(name)
        if written is not None and _size(written) != value:
            raise ConfigError(
                f"_dims.{name} is {written} in the config, but {config.env_id} has {value}: leave it out."
            )
    if not has_references(data):
        return config
    data["dims"] = {**data["dims"], **known}
    return validate(type(config), resolve_references(Located(data), config.env_id), config.env_id)
