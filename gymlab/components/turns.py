"""Which of several ways is quicker on a machine that others use too."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

QUICK = 0.25
"""Share of the turns that counts as undisturbed."""


def seconds_by_turns(ways: Sequence[Callable[[], Any]], turns: int, at_least: float = 0.0) -> list[float]:
    """What each way takes when little holds it up, measured by turns: so many, and for so many seconds.

    A thread's own time leaves out that other programs have the core. A virtual machine also takes off what its host gave to others, in
    lumps that may swallow a whole call: the very quickest turn says nothing.
    """
    taken: list[list[float]] = []
    end = time.perf_counter() + at_least
    while len(taken) < turns or time.perf_counter() < end:
        taken.append([_thread_seconds(way) for way in ways])
    return [float(seconds) for seconds in np.quantile(taken, QUICK, axis=0)]


def _thread_seconds(work: Callable[[], Any]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began
