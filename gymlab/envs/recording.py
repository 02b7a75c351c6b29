"""Filming an environment while somebody else steps it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from gymlab.errors import EnvironmentFailure


class Film(Protocol):
    """What frames are added to: `metrics.video.VideoWriter`, or anything else that takes pictures."""

    def add(self, frame: np.ndarray) -> bool:
        """Take one picture; False when there is no room left."""


@contextlib.contextmanager
def recorder(environment: Any, film: Film) -> Iterator[None]:
    """Add a frame to the film after each reset and step of the environment.

    Both methods are shadowed for as long as it films: a question in every step would be paid by everybody.
    """
    shadows = {name: vars(environment).get(name) for name in ("reset", "step")}
    for name in shadows:
        setattr(environment, name, _filmed(environment, getattr(environment, name), film))
    try:
        yield
    finally:
        for name, before in shadows.items():
            if before is None:
                delattr(environment, name)
            else:
                setattr(environment, name, before)


def _filmed(environment: Any, method: Callable[..., Any], film: Film) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        result = method(*arguments, **named)
        frame = environment.render()
        if frame is None:
            raise EnvironmentFailure(
                f"{type(environment).__name__} cannot be filmed: it was made without rendering. "
                "Make it with render_mode: rgb_array."
            )
        film.add(np.asarray(frame))
        return result

    return call
