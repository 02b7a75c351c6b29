"""Numbers that change over a run: the schedule itself, a pure function of env steps, and the ways people write one."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from gymlab.config.model import Frozen
from gymlab.errors import ConfigError


class Schedule(Frozen):
    """A number that changes over the run. Positions up to 1 are fractions of the budget, above 1 absolute env steps."""

    start: float
    """Value before and at the start position (after the warm-up, when there is one)."""
    end: float = 0.0
    """Value at and after the end position."""
    from_: Annotated[float, Field(ge=0)] = Field(0.0, alias="from")
    """Position where the change begins."""
    to: Annotated[float, Field(ge=0)] = 1.0
    """Position where the change ends."""
    schedule: Literal["linear", "cosine", "exponential"] = "linear"
    """Shape of the change."""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of the span over which the value first rises linearly from 0 to `start`."""
    points: tuple[float, ...] = ()
    """Values from `start` to `end` at equal distances, joined by straight lines: they are the shape then."""

    @model_validator(mode="after")
    def _shape_is_possible(self) -> Schedule:
        if self.schedule == "exponential" and self.start * self.end <= 0:
            raise ValueError(
                f"an exponential schedule cannot go from {self.start:g} to {self.end:g}: it never reaches or crosses "
                "0; give an `end` other than 0 with the sign of `start`, or use schedule: linear"
            )
        if self.points and (len(self.points) < 2 or (self.points[0], self.points[-1]) != (self.start, self.end)):
            raise ValueError("the points of a schedule begin with its `start` and end with its `end`")
        if (self.from_ <= 1) == (self.to <= 1) and self.to <= self.from_:
            raise ValueError(f"the schedule ends at {self.to:g}, which is not after its start at {self.from_:g}")
        return self

    @model_serializer(mode="wrap")
    def _without_empty_points(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = dump(self)
        if not self.points:
            fields.pop("points", None)
        return fields

    def span(self, budget: int | None) -> tuple[float, float]:
        """First and last env step of the change. A fraction without a budget or an end before the start is an error."""
        positions = [self._absolute(position, budget) for position in (self.from_, self.to)]
        if positions[1] <= positions[0]:
            raise ConfigError(
                f"a schedule that begins at step {positions[0]:g} cannot end at step {positions[1]:g} "
                f"(from: {self.from_:g}, to: {self.to:g}; up to 1 is a fraction of the budget of {budget} env steps)"
            )
        return positions[0], positions[1]

    @staticmethod
    def _absolute(position: float, budget: int | None) -> float:
        if position > 1 or position == 0:
            return position
        if budget is None:
            raise ConfigError(
                f"the schedule position {position:g} is a fraction of the budget, and there is no budget: "
                "set max_env_steps, or give positions in env steps (above 1)"
            )
        return position * budget

    def value(self, env_steps: int, budget: int | None) -> float:
        """The value after `env_steps` of a run of `budget` env steps: depends on nothing else."""
        first, last = self.span(budget)
        risen = first + self.warmup * (last - first)
        if self.warmup and env_steps < risen:
            return self.start * max(0.0, env_steps - first) / (risen - first)
        fraction = min(max((env_steps - risen) / (last - risen), 0.0), 1.0)
        if self.points:
            index = min(int(fraction * (len(self.points) - 1)), len(self.points) - 2)
            below, above = self.points[index : index + 2]
            return below + (above - below) * (fraction * (len(self.points) - 1) - index)
        if self.schedule == "cosine":
            return self.end + (self.start - self.end) * 0.5 * (1.0 + math.cos(math.pi * fraction))
        if self.schedule == "exponential":
            return float(self.start * (self.end / self.start) ** fraction)
        return self.start + (self.end - self.start) * fraction


Scalar = float | Schedule
"""A hyperparameter that may be scheduled and changed while a run goes on."""

SCHEDULE_KEYS = ("start", "end", "from", "to", "schedule", "warmup", "points")

_SUFFIXES = {
    "_schedule": "schedule",
    "_schedule_start_value": "start",
    "_schedule_end_value": "end",
    "_schedule_target_value": "end",
    "_schedule_start": "from",
    "_schedule_end": "to",
    "_schedule_target_progress": "to",
    "_schedule_warmup": "warmup",
}
_LINEAR = re.compile(r"lin_(?P<start>[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?)")


def split_schedule_key(key: str) -> tuple[str, str] | None:
    """`policy_lr_schedule_end_value` as ("policy_lr", "end"); None for a key that is no part of a schedule."""
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if key.endswith(suffix) and len(key) > len(suffix):
            return key[: -len(suffix)], _SUFFIXES[suffix]
    return None


def is_schedule(value: Any) -> bool:
    """Whether a mapping can only be a schedule, whichever algorithm's field it is the value of."""
    return isinstance(value, Mapping) and "start" in value and set(value) <= {*SCHEDULE_KEYS}


def parse_linear(value: Any) -> Any:
    """`lin_0.001` as a schedule mapping; anything else as it is."""
    match = _LINEAR.fullmatch(value.strip()) if isinstance(value, str) else None
    return {"start": float(match["start"])} if match else value


def join_schedule(value: Any, parts: Mapping[str, Any]) -> Any:
    """A number and its `_schedule...` keys as one schedule mapping; the number alone when that is switched off."""
    given = {key: part for key, part in parts.items() if part is not None}
    if not given.get("schedule"):
        return value
    base = parse_linear(value)
    schedule = dict(base) if isinstance(base, Mapping) else {} if base is None else {"start": base}
    return {**schedule, **given}


def schedule_ends(value: Scalar) -> tuple[float, ...]:
    """The numbers that bound a hyperparameter: one, or where its schedule starts and ends and the points between."""
    return (value.start, value.end, *value.points) if isinstance(value, Schedule) else (value,)


def share(value: Scalar) -> Scalar:
    """`value` if it lies between 0 and 1 all the way; for field validators."""
    if not all(0 <= number <= 1 for number in schedule_ends(value)):
        raise ValueError("must lie between 0 and 1")
    return value


def not_always_zero(value: Scalar) -> Scalar:
    """`value` if it is not 0 all the way, which a schedule may end at; for field validators."""
    if not any(schedule_ends(value)):
        raise ValueError(
            "must be more than 0: at 0 every ratio is clipped and nothing is learned. A schedule may end at 0"
        )
    return value


def not_negative(value: Scalar | None) -> Scalar | None:
    """`value` if it is never below 0; for field validators."""
    if value is not None and min(schedule_ends(value)) < 0:
        raise ValueError("must not be negative")
    return value
