"""Hyperparameters that follow a schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymlab.engine.callbacks.base import Callback
from gymlab.metrics.names import hyperparameter

if TYPE_CHECKING:
    from gymlab.engine.orchestrator import Orchestrator


class Schedules(Callback):
    """Sets each scheduled value once at the start of an epoch, from the env steps done so far: the first epoch gets the start value."""

    def on_epoch_start(self, loop: Orchestrator) -> None:
        """Read the schedules at the current env step."""
        loop.hyperparameters.follow_schedules(loop.counters.env_steps)
        for name, value in loop.hyperparameters.scheduled.items():
            loop.recorder.record(hyperparameter(name), value)
