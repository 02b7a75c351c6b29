"""What happens around the loop. A callback sees the orchestrator and overrides the moments it cares about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gymlab.config.schema import Phase
    from gymlab.engine.orchestrator import Orchestrator


class Callback:
    """Moments of a run, in the order in which they come."""

    def on_start(self, loop: Orchestrator) -> None:
        """Before the first hook."""

    def on_epoch_start(self, loop: Orchestrator) -> None:
        """Before the first hook of an epoch."""

    def on_epoch_end(self, loop: Orchestrator) -> None:
        """After the last hook of an epoch, before its metrics are read: the place to add some."""

    def on_metrics(self, loop: Orchestrator, row: dict[str, float]) -> None:
        """The epoch's metrics have been read and are about to be logged: the place to judge them, and to add the verdict."""

    def on_row(self, loop: Orchestrator, row: Mapping[str, float]) -> None:
        """The epoch's metrics have been logged."""

    def on_phase_end(self, loop: Orchestrator, phase: Phase) -> None:
        """A phase of the curriculum is over."""

    def on_stop(self, loop: Orchestrator) -> None:
        """The loop has ended, for whatever reason but an error."""

    def get_state(self) -> dict[str, Any]:
        """What a resumed run needs to go on as if it had never stopped: numbers, strings, lists and dicts."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
