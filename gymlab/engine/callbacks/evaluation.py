"""Evaluation during training, on a stream of episodes of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymlab.engine.callbacks.base import Callback

if TYPE_CHECKING:
    from gymlab.engine.orchestrator import Orchestrator


class Evaluation(Callback):
    """Evaluates on multiples of the cadence once the warm-up is over; the same episodes each time, so that evaluations compare."""

    def __init__(self, every_epochs: int, warmup_epochs: int) -> None:
        self.every_epochs = every_epochs
        self.warmup_epochs = warmup_epochs

    def is_due(self, epoch: int) -> bool:
        """Warm-up 50, every 15: first at epoch 60."""
        return epoch > self.warmup_epochs and epoch % self.every_epochs == 0

    def on_epoch_end(self, loop: Orchestrator) -> None:
        """Evaluate if it is time."""
        if self.is_due(loop.counters.epoch):
            loop.evaluate()
