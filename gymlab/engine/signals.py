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


class StopSignal:
    """Context manager that turns SIGINT and SIGTERM into a flag which the loop polls."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.requested_at: float | None = None
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

    @property
    def requested(self) -> bool:
        """Whether the run was asked to stop."""
        return self.name is not None
