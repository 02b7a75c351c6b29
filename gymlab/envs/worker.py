"""What runs in an environment's own process, and how the parent holds it."""

from __future__ import annotations

import contextlib
import logging
import mmap
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from gymlab.envs.restarts import trace_of
from gymlab.envs.step import Episode
from gymlab.envs.subenv import SubEnv
from gymlab.envs.subvector import replay
from gymlab.errors import GymlabError

# Forked workers know what plugins registered in this process and see the arrays that it made.
CONTEXT = multiprocessing.get_context("fork")
CLOSE_TIMEOUT = 2.0
"""Seconds that a worker has to end by itself."""
ALIVE_SECONDS = 0.2
"""Seconds between the signs of life that a worker gives while it replays an episode."""


class Stepped(NamedTuple):
    """Answer to a step. Where it ended an episode, `Began` or `Failed` follows."""

    reward: float
    info: dict[str, Any]
    episode: Episode | None


class Began(NamedTuple):
    """A new episode has begun; its first observation is in the shared array."""

    info: dict[str, Any]


class Restored(NamedTuple):
    """A saved episode was replayed, or another begun where `complaint` says why it could not be."""

    info: dict[str, Any]
    episode_index: int
    episodes_finished: int
    complaint: str


class Alive(NamedTuple):
    """A long replay goes on."""


class Failed(NamedTuple):
    """The environment cannot go on: the traceback, or what is known of the end of its process."""

    cause: str
    own_error: type[GymlabError] | None = None
    """Class in `gymlab.errors`, where the error is one of ours and ends the run."""


@dataclass(frozen=True)
class SharedArrays:
    """Arrays that the workers write and the parent reads."""

    observations: tuple[np.ndarray, np.ndarray]
    """[N, ...] of each turn: the newest are not overwritten by the next step."""
    final_observations: tuple[np.ndarray, np.ndarray]
    """[N, ...] of each turn; a row holds where an episode ended."""
    progress: np.ndarray
    """[N, 3] own return, shaped return and length of the open episodes: known even when the process is gone."""


def shared_zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array that this process and those forked from it see alike."""
    count = int(np.prod(shape))
    memory = mmap.mmap(-1, max(1, count * np.dtype(dtype).itemsize))
    return np.frombuffer(memory, dtype=dtype, count=count).reshape(shape)


class Worker:
    """The parent's side of one process, in which `work` is called with the other end of the pipe."""

    def __init__(self, work: Callable[[Connection], None]) -> None:
        self.pipe, other_end = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_main, args=(work, other_end, self.pipe), daemon=True)
        self.process.start()
        other_end.close()

    def receive(self) -> Any:
        """The next answer; `Failed` when the process has ended."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            # The pipe breaks a moment before the process has ended.
            self.process.join(CLOSE_TIMEOUT)
            return Failed(f"its process ended with {_exit_text(self.process.exitcode)}.")

    def send(self, message: tuple[Any, ...]) -> None:
        """Ask something; that nobody is there to hear it is found when the answer is waited for."""
        try:
            self.pipe.send(message)
        except OSError:
            return

    def kill(self) -> None:
        """End the process, whatever it does, and what it started: a game may be a program of its own."""
        if self.process.exitcode != 0 and self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join(CLOSE_TIMEOUT)
        self.pipe.close()

    def close(self, timeout: float) -> None:
        """Let the process end by itself, and kill it when it does not."""
        self.process.join(timeout)
        self.kill()


def _exit_text(code: int | None) -> str:
    if code is None:
        return "its pipe closed"
    if code >= 0:
        return f"exit code {code}"
    hint = ", often for lack of memory" if -code == signal.SIGKILL else ""
    return f"exit code {code} ({signal.Signals(-code).name}{hint})"


def call_apart(function: Callable[[], Any], timeout: float) -> Any:
    """The value of a function called in a process of its own; `Failed` when that raises, dies or takes too long."""
    worker = Worker(lambda pipe: pipe.send(function()))
    answer = worker.receive() if worker.pipe.poll(timeout) else Failed(f"it did not answer within {timeout:g} s.")
    worker.kill()
    return answer


def serve(index: int, factory: Callable[[], SubEnv], arrays: SharedArrays, pipe: Connection) -> None:
    """Make an environment, then do with it what the parent asks for until that closes the pipe."""
    desk = _Desk(factory(), index, arrays, pipe)
    pipe.send(Began({}))
    desk.serve()


def _main(work: Callable[[Connection], None], pipe: Connection, parent_end: Connection) -> None:
    # Ctrl-C goes to the whole process group, so the worker and the programs that its environment starts leave it: the
    # parent needs them to save their state.
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # The log and the live table belong to the parent.
    logging.getLogger("gymlab").handlers.clear()
    parent_end.close()
    try:
        work(pipe)
    except EOFError:
        return  # The parent has gone.
    except GymlabError as error:
        pipe.send(Failed(str(error), _own_class(error)))
    except Exception as error:  # An environment may raise anything.
        pipe.send(Failed(trace_of(error)))


def _own_class(error: GymlabError) -> type[GymlabError]:
    return next(kind for kind in type(error).__mro__ if kind.__module__ == GymlabError.__module__)


class _Desk:
    """Answers the parent's messages with one environment."""

    def __init__(self, env: SubEnv, index: int, arrays: SharedArrays, pipe: Connection) -> None:
        self._env = env
        self._pipe = pipe
        # Slices of one row stay views when an observation is a single number.
        self._observations = [array[index : index + 1] for array in arrays.observations]
        self._final_observations = [array[index : index + 1] for array in arrays.final_observations]
        self._progress = arrays.progress[index]
        self._heard_of = time.monotonic()

    def serve(self) -> None:
        while True:
            command, *arguments = self._pipe.recv()
            if command == "close":
                self._env.close()
                return
            getattr(self, f"_{command}")(*arguments)

    def _step(self, turn: int, action: Any) -> None:
        env = self._env
        observation, reward, terminated, truncated, info = env.step(action)
        self._note_progress()
        if terminated or truncated:
            self._final_observations[turn][0] = observation
            self._pipe.send(Stepped(float(reward), info, env.finish(terminated, info)))
            self._reset(turn)
        else:
            self._observations[turn][0] = observation
            self._pipe.send(Stepped(float(reward), info, None))

    def _note_progress(self) -> None:
        env = self._env
        self._progress[:] = env.env_return, env.shaped_return, env.length

    def _reset(self, turn: int) -> None:
        self._observations[turn][0], info = self._env.reset()
        self._note_progress()
        self._pipe.send(Began(info))

    def _number_from(self, *numbering: Any) -> None:
        self._env.number_from(*numbering)

    def _restore(self, turn: int, state: dict[str, Any], expected: np.ndarray) -> None:
        env = self._env
        observation, info, complaint = replay(env, state, expected, self._sign_of_life)
        env.restore_wrappers(state)
        self._observations[turn][0] = observation
        self._note_progress()
        self._pipe.send(Restored(info, env.episode_index, env.episodes_finished, complaint))

    def _sign_of_life(self) -> None:
        if time.monotonic() - self._heard_of >= ALIVE_SECONDS:
            self._heard_of = time.monotonic()
            self._pipe.send(Alive())

    def _save(self) -> None:
        self._pipe.send(self._env.get_state())

    def _render(self) -> None:
        frame: Any = self._env.render()
        self._pipe.send(None if frame is None else np.asarray(frame))
