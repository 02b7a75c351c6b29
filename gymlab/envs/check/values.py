"""Whether a value lies in a space, told in words; and whether it is finite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces

from gymlab.envs.contract import ObservationCheck, WrongAnswer


@dataclass(frozen=True)
class Misfit:
    """How a value does not fit its space."""

    detail: str
    advice: str
    harmless: bool = False
    """Whether a training takes it all the same, for it loses nothing on its way to the agent."""

    def of(self, what: str) -> Misfit:
        """The same, said of something."""
        return replace(self, detail=f"{what} {self.detail}")

    def below(self, part: Any) -> Misfit:
        """The same, of a part of a dict or tuple."""
        return replace(self, detail=f"at {part!r} {self.detail}")


def misfit(space: spaces.Space, value: Any) -> Misfit | None:
    """Why `value` is not in `space`; None when it is."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or set(value) != set(space.spaces):
            given = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
            return Misfit(f"has {given}, not the keys {sorted(space.spaces)}", "Give every key of the space.")
        return _first_below((key, part, value[key]) for key, part in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple) or len(value) != len(space.spaces):
            return Misfit(f"is {type(value).__name__}, not a tuple of {len(space.spaces)}", "Give a tuple.")
        return _first_below((index, part, value[index]) for index, part in enumerate(space.spaces))
    if isinstance(space, spaces.Box):
        return _misfit_of_box(space, value)
    if isinstance(space, spaces.Discrete):
        if not isinstance(value, int | np.integer) and getattr(value, "shape", None) != ():
            return Misfit(f"is {type(value).__name__}, not an integer", "Give `int(...)`.")
        low, high = int(space.start), int(space.start + space.n - 1)
        return None if low <= int(value) <= high else Misfit(f"is {value}, outside of {low} to {high}", _WIDEN)
    return None if space.contains(value) else Misfit(f"is {value!r}, which is not in {space}", _WIDEN)


_WIDEN = "Widen the space, or keep the value inside."


def _first_below(parts: Any) -> Misfit | None:
    for key, space, value in parts:
        found = misfit(space, value)
        if found is not None:
            return found.below(key)
    return None


def _misfit_of_box(space: spaces.Box, value: Any) -> Misfit | None:
    if not isinstance(value, np.ndarray | np.generic):
        advice = f"Give `np.array(..., dtype=np.{space.dtype})`."
        return Misfit(f"is {type(value).__name__}, not an array", advice, _is_taken(space, value))
    value = np.asarray(value)
    if value.shape != space.shape:
        advice = "Make the observation_space of the shape that reset and step give."
        return Misfit(f"has shape {value.shape}, the space {space.shape}", advice)
    outside = (value < space.low) | (value > space.high)
    if outside.any():
        place = tuple(int(index) for index in np.argwhere(outside)[0])
        bounds = f"[{space.low[place]:g}, {space.high[place]:g}]"
        advice = f"{_WIDEN} (np.inf is a bound, too.)"
        return Misfit(f"is {value[place]:g} at {list(place)}, outside of {bounds}", advice)
    if value.dtype != space.dtype:
        advice = f"Give `.astype(np.{space.dtype})`."
        return Misfit(f"is {value.dtype}, the space {space.dtype}", advice, _is_taken(space, value))
    return None


def _is_taken(space: spaces.Space, value: Any) -> bool:
    try:
        ObservationCheck(space).taken(value)
    except WrongAnswer:
        return False
    return True


def first_not_finite(value: Any) -> float | None:
    """The first NaN or Inf in a number, an array, or a dict or tuple of them."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | list) and not all(isinstance(part, int | float) for part in value):
        return next((found for part in value if (found := first_not_finite(part)) is not None), None)
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return None
    bad = array[~np.isfinite(array)]
    return float(bad.flat[0]) if bad.size else None
