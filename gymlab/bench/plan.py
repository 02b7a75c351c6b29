"""How a bench is run: what is compared, how often, how long, and by what kind of worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gymlab.bench.launch import WorkerFailure, run_worker
from gymlab.bench.measure import Repeats, interleave
from gymlab.bench.settings import SETTINGS, Setting

Worker = Callable[[dict[str, Any], float], dict[str, Any]]
"""Takes a job and a time limit, gives the answer."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Choices of one bench run."""

    settings: Sequence[Setting] = tuple(SETTINGS.values())
    peers: Sequence[str] = ("stable-baselines3",)
    backends: Sequence[str] = ("eager", "compile")
    """Values of gymlab's `update_backend` that are measured beside its default."""
    repeats: int = 5
    seconds: float = 6.0
    """Length of a training, as a number of steps that the reference does in about this time. All do the same steps."""
    seeds: Sequence[int] = (0, 1, 2, 3, 4)
    """Seeds of the time to threshold."""
    timeout: float = 600.0
    """Seconds after which a worker counts as failed."""
    worker: Worker = run_worker
    say: Callable[[str], None] = field(default=lambda message: None)
    """Told what is measured at the moment."""

    def interleave(
        self, what: str, jobs: Mapping[str, Callable[[int], dict[str, Any]]], repeats: int | None = None
    ) -> dict[str, Repeats]:
        """Measure the jobs A B C A B C ...; each is made from the number of its repeat."""
        total = self.repeats if repeats is None else repeats
        return interleave(
            jobs,
            total,
            lambda name, repeat: self.worker(jobs[name](repeat), self.timeout),
            failures=(WorkerFailure,),
            progress=lambda name, repeat: self.say(f"{what}: {name}, {repeat + 1} of {total}"),
        )
