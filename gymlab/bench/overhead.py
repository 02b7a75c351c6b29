"""How much of a training is neither environment, policy nor update: measured inside a whole run, its logging and alerts on."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import Any

import gymlab
from gymlab.bench.peers import own
from gymlab.bench.settings import Setting
from gymlab.engine import train as training
from gymlab.engine.setup import Session

POLICY_CALLS = ("noise", "sample", "log_prob", "to_environment", "mask")


class Clock:
    """Adds up the time of wrapped calls by name; a call within a call counts once."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside = False
        self._stopped = False

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed under `name`."""
        self.seconds.setdefault(name, 0.0)

        def timed(*arguments: Any, **keywords: Any) -> Any:
            if self._inside or self._stopped:
                return function(*arguments, **keywords)
            self._inside = True
            begin = time.perf_counter()
            try:
                return function(*arguments, **keywords)
            finally:
                self.seconds[name] += time.perf_counter() - begin
                self._inside = False

        return timed

    def watch(self, session: Session) -> Session:
        """Time a session's environment, policy and update."""
        workflow: Any = session.workflow
        parts = [("env", session.environment, "step"), ("update", workflow, "update_controller")]
        parts += [("policy", workflow.policy, name) for name in ("actor", "critic")]
        parts += [("policy", workflow.encoder, "encode")]
        parts += [("policy", workflow.distribution, name) for name in POLICY_CALLS]
        for part, owner, name in parts:
            setattr(owner, name, self.wrap(part, getattr(owner, name)))
        make_evaluation = session.make_evaluation_environment

        def stop(*arguments: Any, **keywords: Any) -> Any:
            # The loop is over: what the evaluation takes is no part of it.
            self._stopped = True
            return make_evaluation(*arguments, **keywords)

        session.make_evaluation_environment = stop  # type: ignore[method-assign]
        return session


def time_outside(setting: Setting, seed: int, options: dict[str, Any], env_steps: int) -> dict[str, float]:
    """Shares of the loop's wall time; `outside` is what is none of the three. This process does nothing but measure."""
    clock, prepare = Clock(), training.prepare

    def watched(*arguments: Any, **keywords: Any) -> Session:
        return clock.watch(prepare(*arguments, **keywords))

    training.prepare = watched
    try:
        with tempfile.TemporaryDirectory() as runs:
            fields = own.fields(setting, seed, env_steps, options)
            run = gymlab.train(f"{setting.env_id}:ppo", runs_dir=runs, **fields)
            total = run.record["seconds"]
    finally:
        training.prepare = prepare
    shares = {name: seconds / total for name, seconds in clock.seconds.items()}
    return {**shares, "outside": 1 - sum(shares.values()), "steps_per_second": env_steps / total}
