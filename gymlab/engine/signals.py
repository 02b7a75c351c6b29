"""Ctrl-C and termination: the first asks the run to save and stop, a second Ctrl-C quits at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from types import FrameType
from typing import Any

EXIT_AT_ONCE = 130
REPEATED = "gymlab repeat"
"""What has stopped a repetition where the run that it repeats ended."""


class StopSignal:
    """Context manager that turns SIGINT and SIGTERM into a flag which the loop polls."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.requested_at: float | None = None
        self.looks = 0
        """How often the hook that is going on has asked whether to stop."""
        self.last_look = 0
        """After so many the stop is requested: a repetition ends in the middle of a collection as its run did. 0: never."""
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.name is not None and number == signal.SIGINT:
            for child in multiprocessing.active_children():
                child.kill()
            os._exit(EXIT_AT_ONCE)
        self.name = signal.Signals(number).name
        self.requested_at = time.monotonic()

    def request(self, name: str) -> None:
        """Ask the run to stop without a signal."""
        self.name = self.name or name
        self.requested_at = self.requested_at or time.monotonic()

    def look(self) -> bool:
        """`requested`, for a collection to ask before each of its steps: counted, so that a stop has a place that can be found again."""
        self.looks += 1
        if self.looks == self.last_look:
            self.request(REPEATED)
        return self.name is not None

    @property
    def requested(self) -> bool:
        """Whether the run was asked to stop."""
        return self.name is not None
