"""Time inside of methods, added up while something else is timed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any


def watch(methods: Iterable[tuple[Any, str]]) -> dict[str, float]:
    """Seconds inside of each method (owner, name), which are added up by name from here on."""
    inside: dict[str, float] = defaultdict(float)

    def timed(call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*arguments, **options)
            finally:
                inside[name] += time.perf_counter() - began

        return run

    for owner, name in methods:
        setattr(owner, name, timed(getattr(owner, name), name))
    return inside
