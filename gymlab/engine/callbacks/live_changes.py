"""Changes by hand while a run trains: config.json is looked at when an epoch begins."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymlab.config import dump
from gymlab.config.dialects import canonical_name
from gymlab.config.field_types import describe_value
from gymlab.config.schema import Config, tunable_fields
from gymlab.engine.callbacks.base import Callback
from gymlab.engine.changes import Change, ChangeLog, due, read_config_file, split_settings, to_make_again
from gymlab.engine.hyperparameters import checked_value, refusal
from gymlab.engine.lock import refuse_if_gone
from gymlab.engine.resume import MAY_CHANGE
from gymlab.engine.run import CONFIG
from gymlab.errors import GymlabError
from gymlab.metrics.redact import redact

if TYPE_CHECKING:
    from gymlab.engine.orchestrator import Orchestrator
    from gymlab.engine.run import Run

LOOK_SECONDS = 0.2
"""The file is looked at no more often than this: an epoch of a small run takes a millisecond."""


class LiveChanges(Callback):
    """Takes what config.json asks for at the start of an epoch, and makes changes of the log again when a run has gone back behind them.

    In a distributed training the first process looks and the others, which have no run, are told.
    """

    def __init__(self, run: Run | None) -> None:
        self.run = run
        self._seen: tuple[int, int, int] | None = None
        self._next_look = 0.0
        self._ahead: list[Change] = []
        self._refused: dict[str, Any] = {}

    def on_start(self, loop: Orchestrator) -> None:
        """Find the changes that are still ahead of the place where the run begins."""
        if self.run is None:
            return
        # Changes are made when an epoch begins: one that is going on has had its own.
        first = loop.counters.epoch + (loop.epoch_began is not None)
        self._ahead = to_make_again(ChangeLog(self.run.dir).read(), first)
        self._fixed = redact(dump(loop.config))

    def on_epoch_start(self, loop: Orchestrator) -> None:
        """Make the changes that are due."""
        changes = [] if self.run is None else self._due(loop, self.run)
        if loop.processes > 1:
            changes = loop.session.fabric.broadcast(changes)
        for change in changes:
            value = checked_value(loop.config, change.name, change.to, change.source)
            loop.hyperparameters.set(change.name, value, env_steps=loop.counters.env_steps, reason=change.source)
            loop.monitor.notice(str(change))

    def _due(self, loop: Orchestrator, run: Run) -> list[Change]:
        epoch, env_steps = loop.counters.epoch, loop.counters.env_steps
        wishes = self._look(loop, run)
        # The newest wish counts: what was once wanted later gives way to what is wanted now.
        names = {wish.name for wish in wishes}
        ahead = [change for change in self._ahead if change.name not in names]
        self._ahead = [change for change in ahead if change.epoch != epoch]
        again = [replace(change, source=f"{change.source}, again") for change in ahead if change.epoch == epoch]
        if wishes:
            # The log tells what a schedule had come to at this step, not an epoch ago.
            loop.hyperparameters.follow_schedules(env_steps)
        made = [
            replace(wish, before=getattr(loop.hyperparameters, wish.name), epoch=epoch, env_steps=env_steps)
            for wish in wishes
        ]
        if made:
            ChangeLog(run.dir).append(made)
        return again + made

    def _look(self, loop: Orchestrator, run: Run) -> list[Change]:
        """What config.json asks for, if it is time to look and the file is another one than before."""
        now = time.monotonic()
        if now < self._next_look:
            return []
        self._next_look = now + LOOK_SECONDS
        refuse_if_gone(run.dir)
        path = run.dir / CONFIG
        seen = _identity(path)
        if seen in (None, self._seen):
            return []
        self._seen = seen
        try:
            wanted, others = split_settings(read_config_file(path), type(loop.config))
            changes, refused = due(wanted, loop.config, ChangeLog(run.dir).read())
        except GymlabError as error:
            loop.monitor.notice(f"{error} Training goes on with what it had; the file is read again when it changes.")
            return []
        for name, reason in refused.items():
            self._refuse(loop, name, wanted[name], f"{reason} It stays as it was.")
        for key, value in others.items():
            name = canonical_name(key)
            if name not in self._fixed or value != self._fixed[name]:
                self._refuse(loop, name, value, self._why_not(loop.config, name, run.id))
        return changes

    def _refuse(self, loop: Orchestrator, name: str, value: Any, reason: str) -> None:
        """Say it once for each value that is asked for."""
        if name not in self._refused or self._refused[name] != value:
            self._refused[name] = value
            loop.monitor.notice(reason)

    def _why_not(self, config: Config, name: str, run_id: str) -> str:
        told = f"{CONFIG}: {refusal(type(config), name)}"
        if name in self._fixed:
            told += f" It stays {describe_value(self._fixed[name])}."
        if name in MAY_CHANGE:
            return f"{told} Stop the run and give it on resume: gymlab train --resume {run_id} {name}=..."
        return f"{told} What can change: {', '.join(tunable_fields(type(config)))}."


def _identity(path: Path) -> tuple[int, int, int] | None:
    """What differs when a file was written to or replaced; None while there is none, as some editors have it."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
