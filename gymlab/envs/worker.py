"""What runs in a process with environments of its own, and how the parent holds it."""

from __future__ import annotations

import contextlib
import itertools
import logging
import mmap
import multiprocessing
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from gymlab.envs.contract import WrongAnswer
from gymlab.envs.crash import describe_crash
from gymlab.envs.step import Episode
from gymlab.envs.subenv import SubEnv
from gymlab.envs.subvector import action_splitter, close_quietly, replay
from gymlab.envs.vector import Slot
from gymlab.errors import EnvironmentFailure, GymlabError

# Forked workers know what plugins registered in this process and see the arrays that it made.
CONTEXT = multiprocessing.get_context("fork")
CLOSE_TIMEOUT = 2.0
"""Seconds that a worker has to end by itself."""
NOBODY = -1
"""In `SharedArrays.current`: the worker waits for a message."""


class Stepped(NamedTuple):
    """Answer to a step, whose rows are in the shared arrays. Where episodes ended, `Ready` follows."""

    infos: dict[int, dict[str, Any]]
    """By environment, where it told anything."""
    episodes: list[Episode]
    failed: dict[int, str]
    """What was raised, by environment."""


class Ready(NamedTuple):
    """Environments were made or have begun an episode, whose first observation is in the shared arrays."""

    infos: dict[int, dict[str, Any]]
    failed: dict[int, str]


class Restored(NamedTuple):
    """Saved episodes were replayed, or others begun where `complaints` say why they could not be."""

    infos: dict[int, dict[str, Any]]
    episode_indices: dict[int, int]
    complaints: list[str]
    failed: dict[int, str]


class Failed(NamedTuple):
    """A worker cannot go on: what was raised, or what is known of the end of its process."""

    cause: str
    own_error: GymlabError | None = None
    """The error itself, where it is one of ours and ends the run."""


QUIET = ForkingPickler.dumps(Stepped({}, [], {}))
"""The most frequent answer, ready to be sent: nothing happened that the arrays do not tell."""


@dataclass(frozen=True)
class SharedArrays:
    """Arrays that the workers and the parent see alike."""

    slots: tuple[Slot, Slot]
    """Rows of each turn: the newest are not overwritten by the next step. A final observation holds where an episode ended."""
    action_space: gym.Space
    actions: np.ndarray
    """[N, ...] what to do in the next step."""
    progress: np.ndarray
    """[2, N, 3] own return, shaped return and length of the open episodes after each turn: known even when the process is gone."""
    current: np.ndarray
    """[W] environment that each worker is busy with, or NOBODY."""
    since: np.ndarray
    """[W] when it began with that, on the monotonic clock of the machine."""

    @classmethod
    def make(cls, slots: tuple[Slot, Slot], action_space: gym.Space, workers: int) -> SharedArrays:
        """Move the slots into shared memory, and put the other arrays beside them."""
        for slot in slots:
            for name in Slot.__slots__:
                array = getattr(slot, name)
                setattr(slot, name, shared_zeros(array.shape, array.dtype))
        num_envs = len(slots[0].reward)
        shape = (num_envs, *(action_space.shape or ()))
        current = shared_zeros((workers,), np.int64)
        current.fill(NOBODY)
        return cls(
            slots,
            action_space,
            shared_zeros(shape, action_space.dtype),
            shared_zeros((2, num_envs, 3), np.float64),
            current,
            shared_zeros((workers,), np.float64),
        )


def shared_zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array that this process and those forked from it see alike."""
    count = int(np.prod(shape))
    memory = mmap.mmap(-1, max(1, count * np.dtype(dtype).itemsize))
    return np.frombuffer(memory, dtype=dtype, count=count).reshape(shape)


def blocks_of(num_envs: int, workers: int) -> list[range]:
    """Environments by worker, in order and as evenly as can be; with even numbers of both, no worker is in two halves."""
    parts = 2 if num_envs % 2 == 0 and workers % 2 == 0 else 1
    length, extra = divmod(num_envs // parts, workers // parts)
    ends = np.cumsum([0, *([length + 1] * extra + [length] * (workers // parts - extra)) * parts]).tolist()
    return [range(start, stop) for start, stop in itertools.pairwise(ends)]


class Worker:
    """The parent's side of one process, in which `work` is called with the other end of the pipe."""

    def __init__(self, work: Callable[[Connection], None]) -> None:
        self.pipe, other_end = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_main, args=(work, other_end, self.pipe), daemon=True)
        self.process.start()
        other_end.close()
        self._poller = select.poll()
        self._poller.register(self.pipe.fileno(), select.POLLIN)

    def has_answered(self, seconds: float) -> bool:
        """Wait for an answer, or for the end of the process."""
        return bool(self._poller.poll(max(0.0, seconds) * 1000))

    def receive(self) -> Any:
        """The next answer; `Failed` when the process has ended."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            # The pipe breaks a moment before the process has ended.
            self.process.join(CLOSE_TIMEOUT)
            return Failed(f"The process of the environment ended with {_exit_text(self.process.exitcode)}.")

    def send(self, message: tuple[Any, ...]) -> None:
        """Ask something; that nobody is there to hear it is found when the answer is waited for."""
        self.send_bytes(ForkingPickler.dumps(message))

    def send_bytes(self, message: Any) -> None:
        """The same with a message made ready before."""
        try:
            self.pipe.send_bytes(message)
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
        return "a closed pipe"
    if code >= 0:
        return f"exit code {code}"
    hint = ", often for lack of memory" if -code == signal.SIGKILL else ""
    return f"exit code {code} ({signal.Signals(-code).name}{hint})"


def call_apart(function: Callable[[], Any], timeout: float) -> Any:
    """The value of a function called in a process of its own; `Failed` when that raises, dies or takes too long."""
    worker = Worker(lambda pipe: pipe.send(function()))
    answer = (
        worker.receive()
        if worker.has_answered(timeout)
        else Failed(f"The environment did not answer within {timeout:g} s.")
    )
    worker.kill()
    return answer


def serve(
    number: int, block: range, factories: Sequence[Callable[[], SubEnv]], arrays: SharedArrays, pipe: Connection
) -> None:
    """Make the environments of a block, then do with them what the parent asks for until that closes the pipe."""
    desk = _Desk(number, block, factories, arrays, pipe)
    desk.make()
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
    except GymlabError as error:
        _tell(pipe, Failed(str(error), _own_error(error)))
    except Exception as error:  # An environment may raise anything.
        _tell(pipe, Failed(describe_crash(error)))


def _tell(pipe: Connection, failed: Failed) -> None:
    # A parent that was killed in the middle of a step needs no answer, and its terminal no traceback.
    with contextlib.suppress(ConnectionError):
        pipe.send(failed)


def _own_error(error: GymlabError) -> GymlabError:
    """The error as another process can take it: of a class of ours, and with nothing but its message."""
    if type(error) is WrongAnswer:
        return error
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == GymlabError.__module__)
    return kind(str(error))


class _Desk:
    """Answers the parent's messages with the environments of one block, one after the other."""

    def __init__(
        self,
        number: int,
        block: range,
        factories: Sequence[Callable[[], SubEnv]],
        arrays: SharedArrays,
        pipe: Connection,
    ) -> None:
        self._block = block
        self._to_rows = action_splitter(arrays.action_space)
        self._factories = factories
        self._pipe = pipe
        self._slots = arrays.slots
        self._actions = arrays.actions[block.start : block.stop]
        self._progress = arrays.progress
        # Slices of one row: they stay views.
        self._current = arrays.current[number : number + 1]
        self._since = arrays.since[number : number + 1]
        self._envs: dict[int, SubEnv] = {}

    def make(self) -> None:
        """Construct all of them."""
        self._pipe.send(Ready({}, self._each(self._block, self._construct)))

    def serve(self) -> None:
        """Answer until the parent closes, or is gone: what environments have started must not outlive it."""
        try:
            while (message := self._next())[0] != "close":
                getattr(self, f"_{message[0]}")(*message[1:])
        except BrokenPipeError:
            parent = multiprocessing.parent_process()
            if parent is None or parent.is_alive():
                raise
        for env in self._envs.values():
            close_quietly(env)

    def _next(self) -> tuple[Any, ...]:
        try:
            message: tuple[Any, ...] = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            return ("close",)
        return message

    def _each(self, indices: Iterable[int], work: Callable[[int], None]) -> dict[int, str]:
        """Work on environments one after the other; what those that failed raised."""
        failed = {}
        for index in indices:
            self._current[0] = index
            self._alive()
            try:
                work(index)
            except GymlabError:
                raise
            except Exception as error:  # An environment may raise anything.
                failed[index] = describe_crash(error)
        self._current[0] = NOBODY
        return failed

    def _send(self, answer: Stepped | Ready | Restored) -> None:
        try:
            message = ForkingPickler.dumps(answer)
        except Exception as error:  # A value in an info may raise anything when it is packed.
            raise EnvironmentFailure(self._unsendable(answer.infos, error)) from error
        self._pipe.send_bytes(message)

    def _unsendable(self, infos: dict[int, dict[str, Any]], error: Exception) -> str:
        for index, info in infos.items():
            for key, value in info.items():
                try:
                    ForkingPickler.dumps(value)
                except Exception as reason:  # It may raise anything.
                    return (
                        f"{self._envs[index].place}: info[{key!r}] cannot be sent from its process ({reason}). "
                        "Leave it out in a wrapper, or use vectorization_mode: sync."
                    )
        return f"what an environment told cannot be sent from its process: {error}"

    def _alive(self) -> None:
        self._since[0] = time.monotonic()

    def _construct(self, index: int) -> None:
        self._envs[index] = self._factories[index]()

    def _step(self, turn: int) -> None:
        answer = Stepped({}, [], {})
        rows = self._to_rows(self._actions)
        first = self._block.start
        failed = self._each(self._block, lambda index: self._step_one(turn, index, rows[index - first], answer))
        if failed or answer.infos or answer.episodes:
            self._send(answer._replace(failed=failed))
        else:
            self._pipe.send_bytes(QUIET)
        if answer.episodes:
            # The rows are told before: if a reset takes the process with it, the episodes that ended stay whole.
            self._reset(turn, [episode.env_index for episode in answer.episodes])

    def _step_one(self, turn: int, index: int, action: Any, answer: Stepped) -> None:
        env, slot = self._envs[index], self._slots[turn]
        observation, slot.reward[index], terminated, truncated, info = env.step(action)
        slot.terminated[index] = terminated
        slot.truncated[index] = truncated and not terminated
        ended = terminated or truncated
        (slot.final_observation if ended else slot.observation)[index] = observation
        self._note_progress(turn, index)
        if info:
            answer.infos[index] = info
        if ended:
            answer.episodes.append(env.finish(terminated))

    def _note_progress(self, turn: int, index: int) -> None:
        env = self._envs[index]
        self._progress[turn, index] = env.env_return, env.shaped_return, env.length

    def _reset(self, turn: int, indices: Iterable[int]) -> None:
        infos = {}

        def begin(index: int) -> None:
            self._slots[turn].observation[index], infos[index] = self._envs[index].reset()
            self._note_progress(turn, index)

        failed = self._each(indices, begin)
        self._send(Ready(infos, failed))

    def _number_from(self, numberings: dict[int, tuple[Any, ...]]) -> None:
        for index, numbering in numberings.items():
            self._envs[index].number_from(*numbering)

    def _replace(self, index: int) -> None:
        failed = self._envs.get(index)

        def make(index: int) -> None:
            # Closed before its successor is made: there are environments of which a process can hold but one.
            if failed is not None:
                close_quietly(failed)
            self._construct(index)
            if failed is not None:
                self._envs[index].succeed(failed)

        self._pipe.send(Ready({}, self._each([index], make)))

    def _restore(self, turn: int, states: dict[int, dict[str, Any]], expected: dict[int, np.ndarray]) -> None:
        infos, complaints = {}, []

        def restore(index: int) -> None:
            env, state = self._envs[index], states[index]
            observation, infos[index], complaint = replay(env, state, expected[index], self._alive)
            env.restore_wrappers(state)
            self._slots[turn].observation[index] = observation
            self._note_progress(turn, index)
            if complaint:
                complaints.append(complaint)

        failed = self._each(self._block, restore)
        numbers = {index: env.episode_index for index, env in self._envs.items()}
        self._send(Restored(infos, numbers, complaints, failed))

    def _save(self) -> None:
        self._pipe.send({index: env.get_state() for index, env in self._envs.items()})

    def _render(self, index: int) -> None:
        frame: Any = self._envs[index].render()
        self._pipe.send(None if frame is None else np.asarray(frame))
