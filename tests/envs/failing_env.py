"""An environment that fails when and how it is told."""

import os
import signal
import time

from counting_env import Counting


class Failing(Counting):
    """Fails on action 2, in the way it is told, and when it is reset with a seed that it cannot stand."""

    how = "raise"
    how_in_reset: str | None = None
    """The same way, unless told."""
    bad_seeds: frozenset[int] = frozenset()
    constructions = 0
    bad_constructions: tuple[int, ...] = ()

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        Failing.constructions += 1
        if Failing.constructions in Failing.bad_constructions:
            raise RuntimeError("no licence")

    def _fail(self, how):
        if how == "raise":
            raise ZeroDivisionError("the gears are stuck")
        if how == "sleep":
            time.sleep(60)
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)

    def reset(self, *, seed=None, options=None):
        if seed in Failing.bad_seeds:
            self._fail(Failing.how_in_reset or Failing.how)
        observation, info = super().reset(seed=seed)
        return observation, {**info, "seed": seed}

    def step(self, action):
        if action == 2:
            self._fail(Failing.how)
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "seed": self.seeds[-1]}
