"""Brax's `ppo.train` as something that takes one training step at a time.

`train` is one long call that reports by callbacks. It runs in a thread, and its report of a training step waits there until the next
one is asked for: between two of them it neither computes nor changes anything.

    advance() --go on-->  rollout of all environments, gradient steps   (one compiled call)
              <--report-- parameters, losses, episodes that ended
"""

from __future__ import annotations

import atexit
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gymlab.envs.step import Episode

UNENDING = 10**9
"""Training steps that Brax is asked for: the engine's budget ends a run long before."""
POLL_SECONDS = 0.1


class Progress(NamedTuple):
    """What one training step made."""

    parameters: Any
    """Statistics of observations, policy, value: in Brax's order."""
    metrics: dict[str, float]
    episodes: tuple[Episode, ...]


class Ended(BaseException):
    """Unwinds Brax's call when nothing more is wanted of it."""


class Line:
    """What the two threads share."""

    def __init__(self, environment: Any, arguments: dict[str, Any]) -> None:
        self.thread = threading.Thread(target=_run, args=(self, environment, arguments), name="brax", daemon=True)
        self.asked: queue.Queue[bool] = queue.Queue()
        self.told: queue.Queue[Progress | BaseException] = queue.Queue()
        self.parameters: Any = None
        self.episodes: list[Episode] = []
        self.counts: np.ndarray | None = None

    def note_parameters(self, steps: int, make_policy: Any, parameters: Any) -> None:
        """Brax's `policy_params_fn`: comes before the report of the same training step."""
        self.parameters = parameters

    def report(self, steps: int, metrics: dict[str, Any]) -> None:
        """Brax's `progress_fn`: tell what was done and wait until more is wanted."""
        import jax

        jax.effects_barrier()
        episodes, self.episodes = tuple(self.episodes), []
        self.told.put(Progress(self.parameters, {name: float(value) for name, value in metrics.items()}, episodes))
        if not self.asked.get():
            raise Ended

    def note_episodes(self, ended: Any, returns: Any, lengths: Any, truncated: Any) -> None:
        """Take in the episodes that ended in one step of all environments; called by the compiled program."""
        ended, returns, lengths, truncated = (np.asarray(array) for array in (ended, returns, lengths, truncated))
        if self.counts is None:
            self.counts = np.zeros(len(ended), dtype=np.int64)
        for index in np.flatnonzero(ended).tolist():
            total = float(returns[index])
            self.episodes.append(
                Episode(index, int(self.counts[index]), total, total, int(lengths[index]), not bool(truncated[index]))
            )
            self.counts[index] += 1

    def end(self) -> None:
        """Let the thread run out."""
        self.asked.put(False)

    def finish(self) -> None:
        """Wait until the thread has run out: a process that ends while JAX computes would crash in its clean-up."""
        self.end()
        self.thread.join()


class BraxTraining:
    """One call of `ppo.train`, from the first step on until it is let go or the process ends."""

    def __init__(self, environment: Any, **arguments: Any) -> None:
        self._line = Line(environment, arguments)
        self._waiting = False
        # Who lets go of this need not wait for the thread; the end of the process does.
        weakref.finalize(self, self._line.end).atexit = False

    def advance(self, should_stop: Callable[[], bool]) -> Progress | None:
        """The next training step; None when a stop is wanted before it is done: a later call then gets it."""
        if self._line.thread.ident is None:
            atexit.register(self._line.finish)
            self._line.thread.start()
        elif not self._waiting:
            self._line.asked.put(True)
        self._waiting = True
        while True:
            try:
                told = self._line.told.get(timeout=POLL_SECONDS)
            except queue.Empty:
                if should_stop():
                    return None
                continue
            self._waiting = False
            if isinstance(told, BaseException):
                raise told
            return told


def _run(line: Line, environment: Any, arguments: dict[str, Any]) -> None:
    from brax.training.agents.ppo.train import train

    try:
        train(
            environment,
            # One device: the rounding of a sum over several would depend on their number.
            max_devices_per_host=1,
            wrap_env_fn=_telling(line),
            run_evals=False,
            policy_params_fn=line.note_parameters,
            progress_fn=line.report,
            **arguments,
        )
    except Ended:
        return
    except BaseException as error:  # Whatever it is belongs to whoever waits for the step.
        line.told.put(error)
    finally:
        atexit.unregister(line.finish)


def _telling(line: Line) -> Callable[..., Any]:
    """Brax's own wrappers for training, and one around them that tells of each episode that ends."""
    import jax
    from brax.envs.base import Wrapper
    from brax.envs.wrappers import training

    class Telling(Wrapper):
        def __init__(self, env: Any, action_repeat: int) -> None:
            super().__init__(env)
            self._repeat = action_repeat

        def step(self, state: Any, action: Any) -> Any:
            state = self.env.step(state, action)
            sums = state.info["episode_metrics"]
            told = (state.done > 0, sums["sum_reward"], sums["length"] // self._repeat, state.info["truncation"] > 0)
            jax.lax.cond(told[0].any(), lambda: jax.debug.callback(line.note_episodes, *told), lambda: None)
            return state

    def wrap(env: Any, episode_length: int, action_repeat: int, **further: Any) -> Any:
        return Telling(training.wrap(env, episode_length, action_repeat, **further), action_repeat)

    return wrap
