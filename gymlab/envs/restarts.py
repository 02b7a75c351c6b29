"""How often failed environments are replaced in a run, and what is said about each failure."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Callable

from gymlab.envs.subenv import SubEnv
from gymlab.errors import EnvironmentFailure, GymlabError

logger = logging.getLogger(__name__)

MOST_RESTARTS = 100
"""Restarts in a run, unless its config says otherwise."""
MOST_IN_A_ROW = 5
"""Restarts of one environment without a whole episode in between: more is no accident."""
TRACEBACK_LINES = 20


class Restarts:
    """Shared by all environments of a run: counts their failures and ends the run when there are too many."""

    def __init__(self, limit: int = MOST_RESTARTS, stop_requested: Callable[[], bool] = lambda: False) -> None:
        self.limit = limit
        self.stop_requested = stop_requested
        """Whether the run was asked to stop: nobody waits long for a silent environment then."""
        self.count = 0
        """Environments restarted so far."""
        self.episodes_lost = 0
        """Open episodes of other environments that shared the process of one that took it along."""
        self.proved = False
        """Whether environments of this run have ever begun an episode: if not, one that cannot be made is set up wrongly."""
        self._in_a_row: Counter[str] = Counter()
        self._told: set[str] = set()

    def allow(self, name: str, cause: str, *, constructing: bool = False) -> None:
        """Take note that the environment `name` failed; returns if it may be restarted, raises if not."""
        if constructing and not self.proved:
            raise EnvironmentFailure(f"{name} could not be made: {cause}")
        in_a_row = self._in_a_row[name]
        if self.count >= self.limit or in_a_row >= MOST_IN_A_ROW:
            raise EnvironmentFailure(self._refusal(name, cause, in_a_row))
        self.count += 1
        self._in_a_row[name] += 1
        # A failure that repeats itself is told in full once: a hundred tracebacks hide everything else.
        seen = cause in self._told
        self._told.add(cause)
        logger.warning(
            "%s failed and is restarted (restart %d, at most %d): %s",
            name,
            self.count,
            self.limit,
            cause.splitlines()[-1] if seen else cause,
        )

    def whole_episode(self, name: str) -> None:
        """Take note that an episode of the environment ended by itself."""
        self._in_a_row.pop(name, None)

    def summary(self) -> str:
        """What the report says; empty when nothing failed."""
        if not self.count:
            return ""
        lost = (
            f", and {self.episodes_lost} episodes of others in the same processes were cut off"
            if self.episodes_lost
            else ""
        )
        return f"Environments failed and were restarted {self.count} times{lost} (why is in run.log)."

    def _refusal(self, name: str, cause: str, in_a_row: int) -> str:
        told = f"{name} failed: {cause}\n"
        if self.count >= self.limit:
            return told + (
                f"Environments of this run were restarted {self.count} times and env_restarts is {self.limit}. Mend the "
                "environment, or allow more restarts with env_restarts=N if it fails by chance only."
            )
        return told + (
            f"It was restarted {in_a_row} times in a row ({self.count} restarts in the run, env_restarts is {self.limit}) "
            "and finished no episode in between. Mend the environment, or raise env_step_timeout if it is only slow."
        )


def trace_of(error: BaseException) -> str:
    """The end of an exception's traceback: long enough to find the line, short enough for a screen."""
    lines = "".join(traceback.format_exception(error)).strip().splitlines()
    return "\n".join(["", *lines[-TRACEBACK_LINES:]])


def construct(factory: Callable[[], SubEnv], name: str, restarts: Restarts) -> SubEnv:
    """Make an environment; a failure counts as one of its restarts."""
    while True:
        try:
            return factory()
        except GymlabError:
            raise
        except Exception as error:  # An environment may raise anything.
            restarts.allow(name, trace_of(error), constructing=True)
