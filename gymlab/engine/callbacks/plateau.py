"""Changes that a run makes by itself when a metric stops improving."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gymlab.engine.callbacks.base import Callback
from gymlab.engine.changes import Change, ChangeLog, shown
from gymlab.engine.hyperparameters import checked_value
from gymlab.errors import ConfigError
from gymlab.metrics.recorder import numbers_only

if TYPE_CHECKING:
    from gymlab.config.schema import PlateauIntervention
    from gymlab.engine.orchestrator import Orchestrator


class Plateau(Callback):
    """Applies `plateau_interventions`; every process of a distributed training sees the same row and does the same."""

    def __init__(self, rules: Sequence[PlateauIntervention], log: ChangeLog | None = None) -> None:
        self.watches = [Watch(rule) for rule in rules]
        self.log = log

    def on_metrics(self, loop: Orchestrator, row: dict[str, float]) -> None:
        """Look for a plateau in the epoch's metrics; what changes is in effect from the next epoch on."""
        for watch in self.watches:
            value = row.get(watch.rule.metric)
            if value is not None and math.isfinite(value) and watch.fires(value, loop.counters.epoch):
                self._change(loop, watch.rule)

    def _change(self, loop: Orchestrator, rule: PlateauIntervention) -> None:
        epoch, env_steps = loop.counters.epoch, loop.counters.env_steps
        source = f"{rule.metric} no better in {rule.window} values"
        for name in rule.set:
            before = getattr(loop.hyperparameters, name)
            try:
                to = rule.new_value(name, before)
                checked_value(loop.config, name, to, "plateau_interventions")
            except (ConfigError, ValueError) as error:
                loop.monitor.notice(f"{name} stays {shown(before)} at {env_steps:,} env steps ({source}): {error}")
                continue
            change = Change(name, to, source, time.time(), before, epoch, env_steps, by_hand=False)
            if self.log is not None:
                self.log.append([change])
            loop.hyperparameters.set(name, to, env_steps=env_steps, reason=source)
            loop.monitor.notice(str(change))

    def get_state(self) -> dict[str, Any]:
        """What each rule has seen."""
        return {"watches": [watch.get_state() for watch in self.watches]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        for watch, saved in zip(self.watches, state["watches"], strict=True):
            watch.set_state(saved)


class Watch:
    """One rule and the metric's values so far: the window of newest ones, and the best before it."""

    def __init__(self, rule: PlateauIntervention) -> None:
        self.rule = rule
        self._sign = 1.0 if rule.mode == "max" else -1.0
        self._best: float | None = None
        self._window: list[float] = []
        self._rests_until = 0

    def fires(self, value: float, epoch: int) -> bool:
        """Take in a value; whether the window is full and holds no improvement. It begins anew after it has fired and the rest is over."""
        self._window.append(self._sign * value)
        if epoch <= self._rests_until:
            self._forget(len(self._window))
            return False
        self._forget(len(self._window) - self.rule.window)
        if len(self._window) < self.rule.window or self._best is None:
            return False
        if max(self._window) - self._best > self.rule.min_improvement:
            return False
        self._forget(len(self._window))
        self._rests_until = epoch + self.rule.cooldown
        return True

    def _forget(self, count: int) -> None:
        """Move the oldest values out of the window: of them the best is kept."""
        for _ in range(count):
            oldest = self._window.pop(0)
            self._best = oldest if self._best is None else max(self._best, oldest)

    def get_state(self) -> dict[str, Any]:
        """The window, the best before it, and how long the rule rests."""
        return {"best": self._best, "window": list(self._window), "rests_until": self._rests_until}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        state = numbers_only(state)
        self._best, self._window = state["best"], list(state["window"])
        self._rests_until = state["rests_until"]
