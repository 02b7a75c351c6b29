"""Alerts in a run: judged each epoch, told where people look, and kept in alerts.json."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymlab.engine.callbacks.base import Callback
from gymlab.engine.files import read_json, write_json
from gymlab.engine.record import is_text, is_whole
from gymlab.errors import CheckpointError
from gymlab.metrics.alerts import Recap, Watch
from gymlab.metrics.names import alert
from gymlab.metrics.styles import MetricStyles

if TYPE_CHECKING:
    from gymlab.engine.orchestrator import Orchestrator

ALERTS_FILE = "alerts.json"
RECAP_TEXTS = {"id", "metric", "message", "tip"}
RECAP_COUNTS = {field.name for field in fields(Recap)} - RECAP_TEXTS


class Alerts(Callback):
    """Judges each epoch's metrics and adds `train/alerts/<id>`: 1 while an alert holds, 0 after it.

    Switched off it judges nothing, but keeps what an earlier sitting of the run has found.
    """

    def __init__(self, directory: Path, threshold: float | None, styles: MetricStyles, *, enabled: bool) -> None:
        self.path = directory / ALERTS_FILE
        self.enabled = enabled
        self.watch = Watch(styles, threshold)
        self._collecting = True

    def on_start(self, loop: Orchestrator) -> None:
        """Make the file say what is known here: a resumed run gives up what came after its checkpoint."""
        self._write()

    def on_epoch_start(self, loop: Orchestrator) -> None:
        """Keep whether env steps are expected: by the epoch's end the phase may be another."""
        phase = loop.scheduler.phase
        self._collecting = phase.type == "online" and any(hook.name.startswith("collect") for hook in phase.hooks)

    def on_metrics(self, loop: Orchestrator, row: dict[str, float]) -> None:
        """Judge the row, tell what has begun, add the columns."""
        if not self.enabled:
            return
        counters, watch = loop.counters, self.watch
        began = watch.judge(
            row,
            env_steps=counters.env_steps,
            epoch=counters.epoch,
            episodes=counters.episodes,
            collecting=self._collecting,
        )
        for name, value in watch.active.items():
            row[alert(name)] = value
        if began:
            for one in began:
                loop.monitor.alert(one)
            self._write()

    def on_stop(self, loop: Orchestrator) -> None:
        """Write how long each lasted."""
        self._write()

    def _write(self) -> None:
        if self.watch.recaps:
            write_json(self.path, [asdict(recap) for recap in self.watch.recaps.values()])
        else:
            self.path.unlink(missing_ok=True)

    def get_state(self) -> dict[str, Any]:
        """What the rules have seen and found."""
        return {"watch": self.watch.get_state(), "collecting": self._collecting}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.watch.set_state(state["watch"])
        self._collecting = state["collecting"]


def read_alerts(run_dir: str | Path) -> list[Recap]:
    """The alerts of a run with their messages and tips, in the order in which they first began; none: an empty list.

    After a crash `last_env_steps` and `epochs` are those of the moment when the newest alert began.
    """
    path = Path(run_dir) / ALERTS_FILE
    fix = "delete it: the run writes a new one when it is resumed"
    try:
        found = read_json(path, fix)
    except FileNotFoundError:
        return []
    if not isinstance(found, list) or not all(map(_is_recap, found)):
        raise CheckpointError(f"{path} is damaged: it is no list of alerts; {fix}.")
    return [Recap(**recap) for recap in found]


def _is_recap(recap: Any) -> bool:
    """Whether a value has the fields of a recap, each of its kind."""
    if not isinstance(recap, dict) or recap.keys() != RECAP_TEXTS | RECAP_COUNTS:
        return False
    return all(is_text(recap[name]) for name in RECAP_TEXTS) and all(is_whole(recap[name]) for name in RECAP_COUNTS)
