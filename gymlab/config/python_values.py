"""Settings given from Python as the plain values that a config holds: numpy's scalars and arrays, paths, schedules as functions."""

from __future__ import annotations

import inspect
import json
import math
import os
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from gymlab.config.schedules import Schedule
from gymlab.errors import ConfigError

POINTS = 101
"""Points of a run at which a function is asked; between them its values are joined by straight lines."""


def as_json(name: str, value: Any) -> str:
    """A setting as JSON, which is what overrides are read as; an object that no config can hold is an error by its name."""
    return json.dumps(plain(name, value))


def plain(name: str, value: Any) -> Any:
    """A setting in values of JSON."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Schedule):
        return value.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if isinstance(value, Mapping):
        return {str(key): plain(f"{name}.{key}", item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(name, item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        # Scalars and arrays of numpy, tensors of torch.
        return plain(name, value.tolist())
    if isinstance(value, Enum):
        return plain(name, value.value)
    if isinstance(value, int | float | str):
        return value
    if callable(value) and not isinstance(value, type):
        return _sampled(name, value)
    kind = type(value)
    of = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    raise ConfigError(
        f"{name} is of {of}, which no config can hold: a run's settings are "
        "written as JSON. Give numbers, truth values, text, lists or dicts of them."
    )


def _sampled(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """A function of the share of the budget that is done (or, where its parameter says so, that remains) as a schedule."""
    try:
        (parameter,) = inspect.signature(function).parameters
        remaining = "remaining" in parameter
        shares = [point / (POINTS - 1) for point in range(POINTS)]
        values = [float(function(1.0 - share if remaining else share)) for share in shares]
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ConfigError(
            f"{name} is a function that gives no number for each part of the budget from 0 to 1 ({error}). "
            "Give a function of one number, such as `lambda progress: 3e-4 * (1 - progress)`."
        ) from error
    if not all(math.isfinite(value) for value in values):
        raise ConfigError(f"{name} is a function whose values are not all finite: {values[0]:g} to {values[-1]:g}.")
    start, end = values[0], values[-1]
    slack = 1e-9 * max(map(abs, values))
    if all(abs(start + (end - start) * share - value) <= slack for share, value in zip(shares, values, strict=True)):
        return {"start": start, "end": end}
    return {"start": start, "end": end, "points": values}
