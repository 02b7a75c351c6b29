"""Pieces of work tried side by side, each in a forked process with a log and a time limit: one that crashes harms no other."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

from gymlab.errors import NotInstalled

CONTEXT = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Outcome:
    """How a piece of work went."""

    name: str
    state: Literal["PASS", "FAIL", "SKIP"]
    seconds: float
    message: str = ""
    """The last line of the error, or what is missing."""
    log: str = ""
    """Everything that was printed, kept where it failed."""


def attempt_all(
    names: Sequence[str], work: Callable[[str], Any], directory: Path, jobs: int, timeout: float
) -> Iterator[Outcome]:
    """Outcomes of `work(name)` as they come, `jobs` at a time; logs go to `directory`."""
    waiting, running = list(reversed(names)), list[_Attempt]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop()
                running.append(_Attempt(name, work, directory / f"{_file_name(name)}.log", timeout))
            wait([attempt.process.sentinel for attempt in running], timeout=0.2)
            for attempt in [attempt for attempt in running if attempt.is_over]:
                running.remove(attempt)
                yield attempt.finish()
    finally:
        for attempt in running:
            attempt.kill()


class _Attempt:
    """One piece of work in a process, and the group of processes that it starts."""

    def __init__(self, name: str, work: Callable[[str], Any], log: Path, timeout: float) -> None:
        self.name = name
        self.log = log
        self._timeout = timeout
        self._started = time.monotonic()
        self._pipe, other_end = CONTEXT.Pipe(duplex=False)
        sys.stdout.flush()
        sys.stderr.flush()
        self.process = CONTEXT.Process(target=_try, args=(name, work, log, other_end))
        self.process.start()
        other_end.close()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or has had its time."""
        return not self.process.is_alive() or time.monotonic() - self._started > self._timeout

    def finish(self) -> Outcome:
        """What became of it; its processes are gone afterwards."""
        seconds = time.monotonic() - self._started
        state, message = self._answer()
        self.kill()
        if state == "FAIL":
            return Outcome(self.name, "FAIL", seconds, message, str(self.log))
        self.log.unlink(missing_ok=True)
        return Outcome(self.name, state, seconds, message)

    def _answer(self) -> tuple[Literal["PASS", "FAIL", "SKIP"], str]:
        if self._pipe.poll():
            with contextlib.suppress(EOFError):
                return self._pipe.recv()
        if self.process.is_alive():
            return "FAIL", f"not done within {self._timeout:g} s"
        code = self.process.exitcode or 0
        return "FAIL", f"its process died: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"

    def kill(self) -> None:
        """End it and whatever it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self._pipe.close()


def _try(name: str, work: Callable[[str], Any], log: Path, pipe: Connection) -> None:
    os.setsid()
    with log.open("w", buffering=1, encoding="utf-8") as file:
        # Python's streams and what C code writes to.
        sys.stdout = sys.stderr = file
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        faulthandler.enable(file)
        pipe.send(_answer_of(name, work))


def _answer_of(name: str, work: Callable[[str], Any]) -> tuple[str, str]:
    try:
        work(name)
    except NotInstalled as error:
        return "SKIP", str(error)
    except Exception as error:  # Whatever goes wrong is what is looked for.
        traceback.print_exc()
        return "FAIL", last_line(error)
    return "PASS", ""


def last_line(error: Exception) -> str:
    """An error on one line, its class included where it is nobody's message to the user."""
    return " ".join("".join(traceback.format_exception_only(error)).split()).removeprefix("gymlab.errors.")


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)
