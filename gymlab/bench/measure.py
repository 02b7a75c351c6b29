"""From marks along a training to rates, and from interleaved repeats to medians and ratios."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

WARMUP_FRACTION = 0.1
"""Share of the marks at the start of a training that is left out: caches, lazy imports and compilation happen there."""
WARMUP_MARKS = 2
"""At least so many marks are left out, whatever the fraction says."""


class Mark(NamedTuple):
    """A point between two training cycles: how many steps were done by when."""

    env_steps: int
    wall: float
    """Seconds of wall time on any fixed clock."""
    cpu: float
    """CPU seconds of the process, all threads."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Speed of one training after its warm-up."""

    env_steps: int
    wall: float
    cpu: float

    @property
    def per_second(self) -> float:
        """Environment steps a second of wall time."""
        return self.env_steps / self.wall

    @property
    def per_cpu_second(self) -> float:
        """Environment steps a second of CPU time."""
        return self.env_steps / self.cpu


def warmup_marks(count: int) -> int:
    """How many of `count` marks are warm-up."""
    return max(WARMUP_MARKS, math.ceil(count * WARMUP_FRACTION))


def rate_of(marks: Sequence[Mark]) -> Rate:
    """The rate between the end of the warm-up and the last mark."""
    if len(marks) < 2:
        raise ValueError(f"A rate needs at least two marks, got {len(marks)}: train for more cycles.")
    first = marks[min(warmup_marks(len(marks)), len(marks) - 2)]
    last = marks[-1]
    return Rate(last.env_steps - first.env_steps, last.wall - first.wall, last.cpu - first.cpu)


@dataclass(slots=True)
class Repeats:
    """What one contender measured in each repeat: a dict of figures, or None where it failed."""

    results: list[dict[str, Any] | None] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def values(self, key: str) -> list[float]:
        """The figure `key` of the repeats that succeeded."""
        return [result[key] for result in self.results if result is not None]

    def median(self, key: str) -> float | None:
        """Median of the figure `key`; None when every repeat failed."""
        values = self.values(key)
        return statistics.median(values) if values else None


def interleave(
    contenders: Iterable[str],
    repeats: int,
    measure: Callable[[str, int], dict[str, Any]],
    failures: tuple[type[Exception], ...] = (),
    progress: Callable[[str, int], None] | None = None,
) -> dict[str, Repeats]:
    """Measure A B C A B C ...: a machine that slows down for a while slows all contenders of a repeat alike.

    A contender that raises one of `failures` is noted and not tried again; the others go on.
    """
    measured = {name: Repeats() for name in contenders}
    for repeat in range(repeats):
        for name, collected in measured.items():
            if collected.errors:
                collected.results.append(None)
                continue
            if progress is not None:
                progress(name, repeat)
            try:
                collected.results.append(measure(name, repeat))
            except failures as error:
                collected.results.append(None)
                collected.errors.append(str(error))
    return measured


def ratios(of: Repeats, to: Repeats, key: str) -> list[float]:
    """`of` divided by `to`, repeat by repeat, where both have a figure."""
    return [
        mine[key] / theirs[key]
        for mine, theirs in zip(of.results, to.results, strict=True)
        if mine is not None and theirs is not None
    ]


def median_ratio(of: Repeats, to: Repeats, key: str) -> float | None:
    """Median of the ratios of the single repeats, in which the noise of the machine cancels; None without a pair."""
    paired = ratios(of, to, key)
    return statistics.median(paired) if paired else None


def failures(measured: Mapping[str, Repeats]) -> list[str]:
    """A line for every contender that failed: its name and the last line of what it said."""
    return [
        f"{name} failed: {repeats.errors[0].splitlines()[-1].strip()}"
        for name, repeats in measured.items()
        if repeats.errors
    ]


def fastest(measured: Mapping[str, Repeats], names: Iterable[str], key: str) -> str | None:
    """The one of `names` with the highest median of `key`."""
    medians = {name: measured[name].median(key) for name in names if name in measured}
    known = {name: value for name, value in medians.items() if value is not None}
    return max(known, key=lambda name: known[name]) if known else None
