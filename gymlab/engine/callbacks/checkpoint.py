"""When checkpoints are written, and which one is best."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gymlab.engine.callbacks.base import Callback
from gymlab.metrics.names import episode_return, unfinished_count

if TYPE_CHECKING:
    from gymlab.config.schema import Phase
    from gymlab.engine.orchestrator import Orchestrator

VAL_RETURN = episode_return("val")


class Checkpoints(Callback):
    """Saves at each evaluation, every few minutes, at each phase's end and at every stop.

    Best is the highest mean of an evaluation whose episodes all ended; before the first one, and in a run without any, no checkpoint is best.
    """

    def __init__(self, minutes: float) -> None:
        self.seconds = minutes * 60
        self._saved_at = time.monotonic()
        self._saved_steps = -1
        self._row: dict[str, float] = {}

    def on_row(self, loop: Orchestrator, row: Mapping[str, float]) -> None:
        """Save after an evaluation, or when the last checkpoint is old."""
        self._row = dict(row)
        evaluated = VAL_RETURN in row
        if evaluated or time.monotonic() - self._saved_at >= self.seconds:
            self._save(loop)

    def on_phase_end(self, loop: Orchestrator, phase: Phase) -> None:
        """Save what the phase made."""
        self._save(loop)

    def on_stop(self, loop: Orchestrator) -> None:
        """Save the last state, whatever ended the run."""
        self._save(loop)

    def _save(self, loop: Orchestrator) -> None:
        if self._saved_steps == loop.counters.env_steps + loop.counters.updates:
            return
        score = None if unfinished_count("val") in self._row else self._row.get(VAL_RETURN)
        best = score is not None and (loop.best_score is None or score > loop.best_score or not loop.checkpoints.best)
        if best:
            loop.best_score = score
        loop.save_checkpoint(self._row, best=best)
        self._saved_steps = loop.counters.env_steps + loop.counters.updates
        self._saved_at = time.monotonic()
