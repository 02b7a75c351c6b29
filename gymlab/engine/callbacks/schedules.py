"""Hyperparameters that follow a schedule, and the metrics columns of all that move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymlab.engine.callbacks.base import Callback
from gymlab.metrics.names import hyperparameter

if TYPE_CHECKING:
    from gymlab.engine.orchestrator import Orchestrator


class Schedules(Callback):
    """Sets each scheduled value once at the start of an epoch, from the env steps done so far: the first epoch gets the start value."""

    def on_epoch_start(self, loop: Orchestrator) -> None:
        """Read the schedules at the current env step; record what they or a change have moved."""
        loop.hyperparameters.follow_schedules(loop.counters.env_steps)
        for name, value in loop.hyperparameters.moving.items():
            loop.recorder.record(hyperparameter(name), value)
