"""How often failed environments are replaced in a run, and what is said about each failure."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from gymlab.envs.crash import describe_crash
from gymlab.envs.origin import as_typed
from gymlab.envs.subenv import SubEnv
from gymlab.errors import EnvironmentFailure, GymlabError

logger = logging.getLogger(__name__)

MOST_RESTARTS = 100
"""Restarts in a run, unless its config says otherwise."""
MOST_IN_A_ROW = 5
"""Restarts of one environment without a whole episode in between: more is no accident."""


class Restarts:
    """Shared by all environments of a run: counts their failures and ends the run when there are too many."""

    def __init__(
        self,
        limit: int = MOST_RESTARTS,
        stop_requested: Callable[[], bool] = lambda: False,
        *,
        env_id: str = "module:EnvId",
    ) -> None:
        self.limit = limit
        self.env_id = env_id
        """What the config calls the environment."""
        self.stop_requested = stop_requested
        """Whether the run was asked to stop: nobody waits long for a silent environment then."""
        self.count = 0
        """Environments restarted so far."""
        self.episodes_lost = 0
        """Open episodes of other environments that shared the process of one that took it along."""
        self.proved = False
        """Whether environments of this run have ever begun an episode: if not, one that cannot be made is set up wrongly."""
        self.finished = False
        """Whether one has ever come to the end of an episode: if not, a failure is a bug in it and no accident."""
        self.failed_trial = ""
        """How one failed before training began: told once an episode has come to its end, as training on a bug ends with the same error."""
        self._in_a_row: Counter[str] = Counter()
        self._told: set[str] = set()

    def allow(self, name: str, cause: str, *, constructing: bool = False) -> None:
        """Take note that the environment `name` failed; returns if it may be restarted, raises if not."""
        if constructing and not self.proved:
            raise EnvironmentFailure(f"{cause}\n{name} could not be made.{self._check}")
        if not self.finished:
            raise EnvironmentFailure(
                f"{cause}\n{name} failed before any episode was finished, so it is not restarted: most likely a bug in the environment.{self._check}"
            )
        in_a_row = self._in_a_row[name]
        if self.count >= self.limit or in_a_row >= MOST_IN_A_ROW:
            raise EnvironmentFailure(self._refusal(name, cause, in_a_row))
        self.count += 1
        self._in_a_row[name] += 1
        # A failure that repeats itself is told in full once: a hundred tracebacks hide everything else.
        seen = cause in self._told
        self._told.add(cause)
        told = cause.splitlines()[0] if seen else cause
        logger.warning("%s\n%s failed and is restarted (restart %d, at most %d).", told, name, self.count, self.limit)

    def whole_episode(self, name: str) -> None:
        """Take note that an episode of the environment ended by itself."""
        self.finished = True
        if self.failed_trial:
            logger.warning("%s", self.failed_trial)
            self.failed_trial = ""
        self._in_a_row.pop(name, None)

    @property
    def _check(self) -> str:
        return f"\nTest it without training: gymlab env check {as_typed(self.env_id)}"

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
        told = f"{cause}\n{name} failed. "
        if self.count >= self.limit:
            return told + (
                f"Environments of this run were restarted {self.count} times and env_restarts is {self.limit}. Mend the "
                f"environment, or allow more restarts with env_restarts=N if it fails by chance only.{self._check}"
            )
        return told + (
            f"It was restarted {in_a_row} times in a row ({self.count} restarts in the run, env_restarts is {self.limit}) "
            "and finished no episode in between. Mend the environment, or raise env_step_timeout if it is only slow."
            f"{self._check}"
        )


def construct(factory: Callable[[], SubEnv], name: str, restarts: Restarts) -> SubEnv:
    """Make an environment; a failure counts as one of its restarts."""
    while True:
        try:
            return factory()
        except GymlabError:
            raise
        except Exception as error:  # An environment may raise anything.
            restarts.allow(name, describe_crash(error), constructing=True)
