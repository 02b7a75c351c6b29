"""The curriculum: which hook comes next, and when a phase is over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymlab.config.schema import HookSpec, Phase
from gymlab.engine.workflow import PhaseView
from gymlab.errors import ConfigError

IDLE_CYCLES_ALLOWED = 100


@dataclass(frozen=True, slots=True)
class Action:
    """One call of a hook in a phase."""

    hook: str
    phase: Phase
    view: PhaseView
    buffer: str | None
    """What it adds to or draws from."""

    @property
    def collects(self) -> bool:
        """Whether the hook gathers experience rather than learning from it."""
        return collects(self.hook)


def collects(hook: str) -> bool:
    """Whether a hook of this name gathers experience."""
    return hook.startswith("collect")


def buffer_of(hook: HookSpec, phase: Phase) -> str | None:
    """Name of the buffer that a hook adds to or draws from: its own, or the phase's."""
    return phase.buffer if hook.buffer is None else hook.buffer


class PhaseScheduler:
    """Walks the phases hook by hook.

    A cycle is one pass over a phase's hooks. Durations in steps and cycles, `until`, and the budget are looked at when a cycle ends, so that
    what was collected is also learned from; a duration in updates ends the phase at once. A skipped update counts as nothing.
    """

    def __init__(
        self,
        phases: Sequence[Phase],
        budget: int | None = None,
        processes: int = 1,
        *,
        smallest: int = 1,
        stepless: Collection[str] = (),
    ) -> None:
        if not phases:
            raise ConfigError("The curriculum has no phases. Add at least one under training.phases.")
        self.phases = tuple(phases)
        self.budget = budget
        self.processes = processes
        self.smallest = smallest
        """Env steps of one vector step of all processes: nothing is collected where the budget leaves fewer."""
        self.stepless = stepless
        """Hooks that gather without stepping an environment, and that no budget holds back."""
        self.lacks: Callable[[str], str] = lambda buffer: ""
        """What a buffer has and needs, in words."""
        self.env_steps = 0
        self.phase_index = 0
        self.cycle_ended = False
        self.phase_ended: Phase | None = None
        self._enter_phase()

    def _enter_phase(self) -> None:
        self.steps_done = self.updates_done = self.cycles_done = 0
        self._accumulators: dict[str, float] = {}
        self._idle_cycles = 0
        self._begin_cycle()

    def _begin_cycle(self) -> None:
        self._hook_index = 0
        self._calls_of_hook = 0
        self._progressed = False

    @property
    def phase(self) -> Phase:
        """The phase that the run is in."""
        return self.phases[self.phase_index]

    @property
    def finished(self) -> bool:
        """Whether all phases, or the budget, are used up."""
        if self.phase_index >= len(self.phases):
            return True
        return self._at_cycle_start and self._budget_spent and any(map(self._steps, self.phase.hooks))

    @property
    def _at_cycle_start(self) -> bool:
        return self._hook_index == 0 and self._calls_of_hook == 0

    @property
    def _budget_spent(self) -> bool:
        return self.budget is not None and self.budget - self.env_steps < self.smallest

    def _steps(self, hook: HookSpec) -> bool:
        """Whether a hook steps environments."""
        return collects(hook.name) and hook.name not in self.stepless

    def next_action(self) -> Action | None:
        """The hook to call next; None when the curriculum is over."""
        while not self.finished:
            spec = self.phase.hooks[self._hook_index]
            if self._is_due(spec):
                return Action(spec.name, self.phase, self._view(), buffer_of(spec, self.phase))
            self._next_hook()
        return None

    def _is_due(self, spec: HookSpec) -> bool:
        if self._budget_spent and self._steps(spec):
            return False
        if spec.ratio is not None:
            return self._accumulators.get(spec.name, 0.0) >= 1.0
        return self._calls_of_hook < spec.times

    def advance(self, action: Action, *, env_steps: int = 0, updates: int = 0) -> None:
        """Count what the action did and move on. Steps count only in collect, updates only in updates."""
        self.cycle_ended = False
        self.phase_ended = None
        spec = self.phase.hooks[self._hook_index]
        self._calls_of_hook += 1
        self._progressed |= env_steps > 0 or updates > 0 or action.hook == "evaluate"
        if action.collects:
            self.steps_done += env_steps
            self.env_steps += env_steps
            for hook in self.phase.hooks:
                if hook.ratio is not None:
                    self._accumulators[hook.name] = self._accumulators.get(hook.name, 0.0) + hook.ratio * env_steps
        else:
            self.updates_done += updates
        if spec.ratio is not None:
            # Steps of a buffer that is still filling are not owed updates later.
            self._accumulators[spec.name] = self._accumulators[spec.name] - updates if updates else 0.0
        if self.phase.duration_updates is not None and self.updates_done >= self.phase.duration_updates:
            self._end_cycle()
        elif not self._is_due(spec):
            self._next_due_hook()

    def _next_due_hook(self) -> None:
        """Pass over hooks whose ratio owes nothing yet, so that the end of a cycle is seen with the action that ended it."""
        while True:
            self._next_hook()
            if self._at_cycle_start or self._is_due(self.phase.hooks[self._hook_index]):
                return

    def _next_hook(self) -> None:
        self._hook_index += 1
        self._calls_of_hook = 0
        if self._hook_index == len(self.phase.hooks):
            self._end_cycle()

    def _end_cycle(self) -> None:
        self.cycle_ended = True
        self.cycles_done += 1
        self._idle_cycles = 0 if self._progressed else self._idle_cycles + 1
        if self._idle_cycles >= IDLE_CYCLES_ALLOWED:
            raise ConfigError(self._without_progress())
        if self._phase_over():
            self._leave_phase()
        else:
            self._begin_cycle()

    def _without_progress(self) -> str:
        """Which of the buffers that hooks draw from are never ready: all of them, as any that was would have been progress."""
        drawing = [hook for hook in self.phase.hooks if hook.name != "evaluate" and not collects(hook.name)]
        names = dict.fromkeys(buffer_of(hook, self.phase) for hook in drawing)
        waiting = "; ".join(
            f"buffer {name!r} of {', '.join(h.name for h in drawing if buffer_of(h, self.phase) == name)}{self.lacks(name) if name else ''}"
            for name in names
        )
        return (
            f"Phase {self.phase.name!r} makes no progress: no batch is ever ready ({waiting}) and no hook collects. "
            "Add a collect hook or an earlier phase that fills what they draw from."
        )

    def _phase_over(self) -> bool:
        phase = self.phase
        # Steps that are fewer than one vector step, and that the budget does not leave, end no run before its next phase.
        unreachable = self.smallest - 1 if self._budget_spent else 0
        limits = (
            (phase.duration_steps, self.steps_done + unreachable),
            (phase.duration_updates, self.updates_done),
            (phase.duration_cycles, self.cycles_done),
        )
        if any(limit is not None and done >= limit for limit, done in limits):
            return True
        return phase.type == "eval_only" and all(limit is None for limit, _ in limits)

    def _leave_phase(self) -> None:
        self.phase_ended = self.phase
        self.phase_index += 1
        self._begin_cycle()
        if self.phase_index < len(self.phases):
            self._enter_phase()

    def observe(self, metrics: Mapping[str, float]) -> None:
        """End the phase if its `until` is met by these metrics; called at the end of an epoch."""
        if self.phase_index >= len(self.phases) or self.phase.until is None:
            return
        until = self.phase.until
        value = metrics.get(until.metric)
        if value is None:
            return
        if (until.at_least is not None and value >= until.at_least) or (
            until.at_most is not None and value <= until.at_most
        ):
            self._leave_phase()

    @property
    def remaining_env_steps(self) -> int | None:
        """Environment steps that each process may still collect in this phase."""
        limits = []
        if self.phase.duration_steps is not None:
            limits.append(self.phase.duration_steps - self.steps_done)
        if self.budget is not None:
            limits.append(self.budget - self.env_steps)
        return max(0, min(limits)) // self.processes if limits else None

    @property
    def progress(self) -> float:
        """0..1 of the phase; of the budget, for a phase without a duration."""
        if self.phase_index >= len(self.phases):
            return 1.0
        phase = self.phase
        limits = (
            (phase.duration_steps, self.steps_done),
            (phase.duration_updates, self.updates_done),
            (phase.duration_cycles, self.cycles_done),
        )
        fractions = [done / limit for limit, done in limits if limit]
        if not fractions and self.budget:
            fractions = [self.env_steps / self.budget]
        return min(1.0, max(fractions, default=0.0))

    def _view(self) -> PhaseView:
        return PhaseView(
            name=self.phase.name,
            type=self.phase.type,
            progress=self.progress,
            steps_done=self.steps_done,
            updates_done=self.updates_done,
            cycles_done=self.cycles_done,
            remaining_env_steps=self.remaining_env_steps,
            options=self.phase.options,
        )

    def get_state(self) -> dict[str, Any]:
        """Where in the curriculum the run is, down to the hook."""
        return {
            "phase_index": self.phase_index,
            "env_steps": self.env_steps,
            "steps_done": self.steps_done,
            "updates_done": self.updates_done,
            "cycles_done": self.cycles_done,
            "hook_index": self._hook_index,
            "calls_of_hook": self._calls_of_hook,
            "progressed": self._progressed,
            "idle_cycles": self._idle_cycles,
            "accumulators": dict(self._accumulators),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `get_state` was."""
        self.phase_index = state["phase_index"]
        self.env_steps = state["env_steps"]
        self.steps_done = state["steps_done"]
        self.updates_done = state["updates_done"]
        self.cycles_done = state["cycles_done"]
        self._hook_index = state["hook_index"]
        self._calls_of_hook = state["calls_of_hook"]
        self._progressed = state["progressed"]
        self._idle_cycles = state["idle_cycles"]
        self._accumulators = dict(state["accumulators"])
