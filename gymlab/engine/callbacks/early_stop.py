"""Stopping when the task is solved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gymlab.engine.callbacks.base import Callback
from gymlab.metrics.names import episode_return, unfinished_count

if TYPE_CHECKING:
    from gymlab.engine.orchestrator import Orchestrator

VAL_RETURN = episode_return("val")
TRAIN_RETURN = episode_return("train")


class EarlyStop(Callback):
    """Ends the run when the return, on the environment's own reward, reaches a threshold."""

    def __init__(self, *, on_eval: float | None, on_train: float | None) -> None:
        self.thresholds = {VAL_RETURN: on_eval, TRAIN_RETURN: on_train}

    def on_row(self, loop: Orchestrator, row: Mapping[str, float]) -> None:
        """Compare this epoch's returns with the thresholds; a training mean counts once its window is full, an evaluation if all its episodes ended."""
        for name, threshold in self.thresholds.items():
            value = row.get(name)
            if threshold is None or value is None or value < threshold:
                continue
            if name == TRAIN_RETURN and not loop.statistics.window_full:
                continue
            if name == VAL_RETURN and unfinished_count("val") in row:
                continue
            loop.request_stop(f"finished: {name} {value:.6g} reached {threshold:.6g}")
