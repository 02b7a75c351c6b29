"""Parts of a run between two stops: where each ended to the step, and how a repetition trains one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gymlab.engine.manifest import STATE, damaged
from gymlab.engine.record import is_place

if TYPE_CHECKING:
    from pathlib import Path

    from gymlab.engine.changes import Change
    from gymlab.engine.checkpoint import Checkpoint
    from gymlab.engine.workflow import Counters


@dataclass(frozen=True)
class Place:
    """A moment of a run at which a checkpoint was written."""

    env_steps: int
    updates: int
    epoch: int
    hook: str = ""
    """The collection that a signal cut short there; empty between two hooks."""
    looks: int = 0
    """How often that collection had asked whether to stop since it was last begun or resumed."""
    epoch_ending: bool = False
    """Whether a signal cut the evaluation at the epoch's end short there."""

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Place:
        """Where a checkpoint was written."""
        state, counters = checkpoint.read_state("counters"), checkpoint.read_counters()
        place = {"env_steps": counters.env_steps, "updates": counters.updates, "epoch": counters.epoch}
        place |= {**(state.get("cut") or {}), "epoch_ending": state.get("epoch_ending", False)}
        if not is_place(place):
            raise damaged(checkpoint.path / STATE, "`cut` says nothing that a run is cut at")
        return cls.from_json(place)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Place:
        """What `to_json` gave."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})

    def to_json(self) -> dict[str, Any]:
        """The place in plain values."""
        return asdict(self)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Counters that never go down while a run goes on: in this order of places."""
        return self.env_steps, self.updates, self.epoch

    def is_passed_by(self, counters: Counters) -> bool:
        """Whether a run is there or beyond, as far as the counters tell."""
        return (counters.env_steps, counters.updates, counters.epoch) >= self.counts

    def is_at(self, counters: Counters) -> bool:
        """Whether a run is there, as far as the counters tell."""
        return (counters.env_steps, counters.updates, counters.epoch) == self.counts


@dataclass(frozen=True)
class Leg:
    """One of the parts that a repetition trains one after the other, each as the run did."""

    of: str
    """The run that is repeated."""
    runs_dir: Path
    """Where that run lies, and the one that it took its first parameters from."""
    backend: str | None = None
    """How its environments were stepped."""
    threads: int | None = None
    """Torch threads that it computed with."""
    changes: tuple[Change, ...] = ()
    """Changes by hand, to be made again at the epoch at which they were made."""
    stop_at: Place | None = None
    """Where it ended; None: it ends by itself."""
    is_last: bool = True
