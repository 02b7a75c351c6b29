"""run.log: everything notable about a run as plain text with timestamps."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from gymlab.metrics.monitor import Sink
from gymlab.metrics.names import EPOCH, episode_return
from gymlab.metrics.results import return_text
from gymlab.metrics.terminal import CleanFormatter
from gymlab.plain_files import open_plain

if TYPE_CHECKING:
    from gymlab.metrics.alerts import Alert
    from gymlab.metrics.report import ReportData

LOGGER = logging.getLogger("gymlab")


def run_log_enabled() -> bool:
    """Whether run.log is written: not with `VIBES_DISABLE_SESSION_LOGS=1`."""
    return not _is_set("VIBES_DISABLE_SESSION_LOGS")


def checkpoint_lines_enabled() -> bool:
    """Whether written checkpoints are mentioned: not with `VIBES_QUIET=1` or `VIBES_DISABLE_CHECKPOINT_LOGS=1`."""
    return not (_is_set("VIBES_QUIET") or _is_set("VIBES_DISABLE_CHECKPOINT_LOGS"))


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() not in ("", "0", "false", "no", "off")


class RunLogSink(Sink):
    """Writes run.log through the `gymlab` logger, so that what any module logs lands there too, secrets blanked."""

    def __init__(self, path: str | Path) -> None:
        self._handler = _PlainFileHandler(path, encoding="utf-8")
        self._handler.setFormatter(_UtcFormatter("%(asctime)s %(levelname)-7s %(message)s"))
        self._level_before = LOGGER.level
        LOGGER.setLevel(logging.INFO)
        LOGGER.addHandler(self._handler)
        self._phase = ""

    def log(self, row: Mapping[str, float], env_steps: int) -> None:
        """Write a line when the epoch was evaluated."""
        evaluated = row.get(episode_return("val"))
        if evaluated is not None:
            trained = row.get(episode_return("train"), float("nan"))
            text = "epoch %d, %s env steps: evaluation return %.2f, training return %.2f"
            LOGGER.info(text, row.get(EPOCH, 0), f"{env_steps:,}", evaluated, trained)

    def log_video(self, path: Path, name: str, env_steps: int) -> None:
        """Write where the video is."""
        LOGGER.info("video %s at %s env steps: %s", name, f"{env_steps:,}", path)

    def log_text(self, message: str) -> None:
        """Write the line."""
        LOGGER.info("%s", message)

    def notice(self, message: str) -> None:
        """Write the notice."""
        LOGGER.info("notice: %s", message)

    def alert(self, alert: Alert) -> None:
        """Write the alert with its tip; not as a warning, which the console would show beside its own."""
        place = f"epoch {alert.epoch}, {alert.env_steps:,} env steps"
        LOGGER.info("alert %s at %s: %s Tip: %s", alert.id, place, alert.message, alert.tip)

    def checkpoint(self, message: str) -> None:
        """Write the line unless the environment quiets it."""
        if checkpoint_lines_enabled():
            LOGGER.info("%s", message)

    def set_phase(self, phase: str) -> None:
        """Write the first word of a phase when it changes (`evaluation 3/100` and `evaluation 4/100` are one)."""
        name = phase.split(" ", 1)[0]
        if name and name != self._phase:
            self._phase = name
            LOGGER.info("phase %s", name)

    def report(self, summary: ReportData) -> None:
        """Write how the run ended."""
        found = "" if summary.result is None else f", return {return_text(summary.result)}"
        LOGGER.info("%s: %s%s", summary.status, summary.verdict, found)

    def flush(self) -> None:
        """Hand the lines to the operating system."""
        self._handler.flush()

    def close(self) -> None:
        """Let go of the logger and close the file."""
        LOGGER.removeHandler(self._handler)
        LOGGER.setLevel(self._level_before)
        self._handler.close()


class _PlainFileHandler(logging.FileHandler):
    """Appends to a regular file; through a link it would write to any file of the user's.

    A disk that takes no more lines is told once, and no end of the run: what it cannot do without ends it.
    """

    _failed = False

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, opener=open_plain)

    def flush(self) -> None:
        """Hand the lines to the operating system."""
        try:
            super().flush()
        except OSError as error:
            self._tell(error)

    def handleError(self, record: logging.LogRecord) -> None:
        """Say that a line could not be written; logging itself would print a traceback for each."""
        error = sys.exception()
        if isinstance(error, OSError):
            self._tell(error)
        else:
            super().handleError(record)

    def close(self) -> None:
        """Close the file, also one whose last lines find no room."""
        with suppress(OSError):
            super().close()

    def _tell(self, error: OSError) -> None:
        if not self._failed:
            self._failed = True
            name = Path(self.baseFilename).name
            LOGGER.warning("%s cannot be written (%s): the run goes on without it.", name, error.strerror)


class _UtcFormatter(CleanFormatter):
    """Times in UTC."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"
