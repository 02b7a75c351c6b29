"""Sub-environments in processes of their own, for environments slow enough to pay for the way there and back.

Each worker serves a block of environments. Rows and actions go through shared memory, the rest through one pipe a worker:
a message down and an answer up for each step, and one more where episodes ended. An environment that raises is replaced
inside its worker; a worker that dies or falls silent is replaced with its whole block; the others notice nothing.
"""

from __future__ import annotations

import functools
import logging
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from gymlab.envs.restarts import Restarts, construct
from gymlab.envs.step import LIFE_LOST, Episode, Step
from gymlab.envs.subenv import SubEnv
from gymlab.envs.subvector import SubEnvVector, close_quietly, names_of
from gymlab.envs.vector import EnvironmentSpec, FiniteCheck, Seeds
from gymlab.envs.worker import (
    CLOSE_TIMEOUT,
    NOBODY,
    Failed,
    Ready,
    Restored,
    SharedArrays,
    Stepped,
    Worker,
    blocks_of,
    serve,
)

logger = logging.getLogger(__name__)

STEP_TIMEOUT = 60.0
"""Seconds that an environment may take for one step or reset."""
STOP_PATIENCE = 5.0
"""Seconds of the same, at the most, when the run was asked to stop: who asked may not wait for long either."""
LOOK_SECONDS = 0.2
"""How often it is looked whether the run was asked to stop."""
START_TIMEOUT = 120.0
"""Seconds that making an environment may take, at the least."""
STEP = tuple(ForkingPickler.dumps(("step", turn)) for turn in (0, 1))
"""The message of a step in each turn, ready to be sent."""


@dataclass(slots=True)
class _Part:
    """Environments that are stepped together: all, or a half."""

    rows: slice
    workers: range
    check: FiniteCheck
    turn: int = 0
    """Slot that its newest step was written to."""


class AsyncVector(SubEnvVector):
    """Blocks of sub-environments in processes, resetting in the same step.

    With an even number of environments and of workers the halves can be stepped apart: `step_async` sends actions to
    one, `step_wait` takes its rows. Everything else needs both halves to have taken equally many steps.
    """

    backend = "async"

    def __init__(
        self,
        factories: Sequence[Callable[[], SubEnv]],
        spec: EnvironmentSpec,
        seeds: Seeds,
        purpose: str,
        restarts: Restarts,
        *,
        workers: int | None = None,
        timeout: float = STEP_TIMEOUT,
    ) -> None:
        names = names_of(spec, purpose, len(factories))
        # Made here to know its spaces, and to have its modules imported before the workers are forked.
        example = construct(factories[0], names[0], restarts)
        super().__init__(spec, names, example, restarts)
        self.render_mode = example.render_mode
        close_quietly(example)
        self._factories = factories
        self._timeout = timeout
        self._seeds = seeds
        self._episode_indices = np.full(self.num_envs, -1, dtype=np.int64)
        self._blocks = blocks_of(self.num_envs, min(workers or self.num_envs, self.num_envs))
        self._arrays = SharedArrays.make(self._slots, self.action_space, len(self._blocks))
        self._whole = _Part(slice(0, self.num_envs), range(len(self._blocks)), self._check)
        self._halves: list[_Part] = []
        if self.num_envs % 2 == 0 and len(self._blocks) % 2 == 0:
            middle = len(self._blocks) // 2
            self._halves = [self._part(range(middle)), self._part(range(middle, 2 * middle))]
            self.halves = tuple(half.rows for half in self._halves)
        self._lost: dict[int, Failed] = {}
        """Workers that are gone."""
        self._failed: dict[int, str] = {}
        """Environments that raised, in workers that are there."""
        self._waiting: set[int] = set()
        """Environments whose next episode has yet to begin."""
        self._workers: list[Worker] = []
        # Workers ignore SIGTERM, by which multiprocessing would end them at exit: an unclosed pool is closed before.
        self._finalizer = weakref.finalize(self, _close_all, self._workers, 0.0)
        self._start_all()

    def _part(self, workers: range) -> _Part:
        rows = slice(self._blocks[workers[0]].start, self._blocks[workers[-1]].stop)
        return _Part(rows, workers, FiniteCheck(self.spec.id, self._slots[0], rows))

    @property
    def num_workers(self) -> int:
        """Processes that step the environments."""
        return len(self._blocks)

    @property
    def stepped_by(self) -> str:
        """The backend and its workers, in words."""
        return f"async, {self.num_workers} worker{'s' * (self.num_workers > 1)}"

    def _start_all(self) -> None:
        for number in self._whole.workers:
            self._workers.append(self._worker(number))
        self._wait_for(self._whole.workers, self._take_ready, self._start_timeout)
        self._mend(self._whole.workers, constructing=True)

    @property
    def _start_timeout(self) -> float:
        return max(self._timeout, START_TIMEOUT)

    def _worker(self, number: int) -> Worker:
        self._arrays.current[number] = NOBODY
        self._arrays.since[number] = time.monotonic()
        return Worker(functools.partial(serve, number, self._blocks[number], self._factories, self._arrays))

    def _ask(self, number: int, *message: Any) -> None:
        self._arrays.since[number] = time.monotonic()
        self._workers[number].send(message)

    def _ask_all(self, message: Callable[[int], tuple[Any, ...]]) -> list[int]:
        """Send a message to every worker that is there; returns their numbers."""
        asked = [number for number in self._whole.workers if number not in self._lost]
        for number in asked:
            self._ask(number, *message(number))
        return asked

    def _wait_for(self, workers: Iterable[int], take: Callable[[int, Any], bool], timeout: float | None = None) -> None:
        """Hand every answer to `take` until it has said of each worker that this was all; who fails is in `_lost`.

        A worker that is busy with one environment for longer than `timeout` is given up; without one, for longer than
        a step may take, or a stop that was asked for.
        """
        # In order, not as they arrive: when the first has answered most others have, and this process wakes up but once.
        for number in workers:
            answer = self._answer(number, timeout)
            while type(answer) is not Failed and not take(number, answer):
                answer = self._answer(number, timeout)
            if type(answer) is Failed:
                self._lose(number, answer)

    def _answer(self, number: int, timeout: float | None) -> Any:
        worker, since = self._workers[number], self._arrays.since
        patience, hurry = timeout or self._timeout, ""
        while not worker.has_answered(min(LOOK_SECONDS, since[number] + patience - time.monotonic())):
            if timeout is None and self.restarts.stop_requested():
                patience, hurry = min(self._timeout, STOP_PATIENCE), ", and the run was asked to stop"
            if time.monotonic() - since[number] >= patience:
                return Failed(f"The environment did not answer within {patience:g} s{hurry}.")
        return worker.receive()

    def _lose(self, number: int, failed: Failed) -> None:
        """Give a worker up; it is replaced when the next step or reset needs it."""
        self._workers[number].kill()
        if failed.own_error is not None:
            raise failed.own_error
        self._lost[number] = failed

    def _culprit(self, number: int) -> int:
        """The environment that a lost worker was busy with; its first, when it was idle."""
        index = int(self._arrays.current[number])
        return self._blocks[number].start if index == NOBODY else index

    def _mend(self, workers: Iterable[int], *, constructing: bool = False) -> None:
        """Until every environment of these workers is there, and in its next episode unless nothing has begun yet."""
        for number in workers:
            block, made = self._blocks[number], not constructing
            while True:
                failed = [index for index in block if index in self._failed]
                waiting = sorted(self._waiting.intersection(block))
                if number in self._lost:
                    self._replace_worker(number, constructing=not made)
                    made = False
                elif failed:
                    self._replace_environment(number, failed[0], constructing=not made)
                    made = False
                elif waiting:
                    self._begin_next(number, waiting)
                    made = True
                else:
                    break

    def _replace_worker(self, number: int, *, constructing: bool) -> None:
        culprit, block = self._culprit(number), self._blocks[number]
        cause = self._lost[number].cause
        if len(block) > 1:
            cause = f"{cause}\nEnvironments {block[0]} to {block[-1]} shared its process and lose their episodes."
        self.restarts.allow(self._names[culprit], cause, constructing=constructing)
        if not constructing:
            self.restarts.episodes_lost += len(block) - 1
        del self._lost[number]
        for index in block:
            self._failed.pop(index, None)
        self._expect_episodes(block)
        self._workers[number] = self._worker(number)
        self._wait_for([number], self._take_ready, self._start_timeout)

    def _replace_environment(self, number: int, index: int, *, constructing: bool) -> None:
        self.restarts.allow(self._names[index], self._failed.pop(index), constructing=constructing)
        self._expect_episodes([index])
        self._ask(number, "replace", index)
        self._wait_for([number], self._take_ready, self._start_timeout)

    def _expect_episodes(self, indices: Iterable[int]) -> None:
        self._waiting.update(index for index in indices if self._episode_indices[index] >= 0)

    def _begin_next(self, number: int, indices: list[int]) -> None:
        numbering = {
            index: (self._seeds, int(self._episode_indices[index]), int(self.episode_counts[index]))
            for index in indices
        }
        self._episode_indices[indices] += 1
        self._waiting.difference_update(indices)
        self._ask(number, "number_from", numbering)
        self._ask(number, "reset", self._turn, indices)
        self._wait_for([number], self._take_ready)

    def _take_ready(self, number: int, answer: Ready) -> bool:
        self._failed |= answer.failed
        for index, info in answer.infos.items():
            self._take_first(index, info)
        return True

    def reset(self, seeds: Seeds | None = None) -> np.ndarray:
        """Begin a new episode everywhere; with `seeds`, with numbering anew from that tree."""
        if seeds is not None:
            self._seeds = seeds
            self._episode_indices.fill(-1)
            self.episode_counts.fill(0)
            self._ask_all(lambda number: ("number_from", dict.fromkeys(self._blocks[number], (seeds,))))
        self._set_turn(self._turn ^ 1)
        self.action_mask = None
        self._episode_indices += 1
        asked = self._ask_all(lambda number: ("reset", self._turn, self._blocks[number]))
        self._wait_for(asked, self._take_ready)
        self._mend(self._whole.workers)
        self.restarts.proved = True
        self._whole.check.first(self.observation)
        return self.observation

    def _set_turn(self, turn: int) -> None:
        self._turn = turn
        for part in (self._whole, *self._halves):
            part.turn = turn

    def step(self, actions: np.ndarray) -> Step:
        """Take one action in each environment."""
        self._send(self._whole, actions)
        step = self._receive(self._whole)
        self._set_turn(self._turn)
        return step

    def step_async(self, actions: np.ndarray, half: int) -> None:
        """Let the environments of a half take one action each; `step_wait` gives what comes of it."""
        self._send(self._halves[half], actions)

    def step_wait(self, half: int) -> Step:
        """The step of a half that `step_async` began: its rows alone; episodes have the numbers of their environments."""
        step = self._receive(self._halves[half])
        self._whole.turn = self._turn
        return step

    def _send(self, part: _Part, actions: np.ndarray) -> None:
        expected = part.rows.stop - part.rows.start
        if len(actions) != expected:
            raise ValueError(f"{len(actions)} actions for {expected} environments")
        self._arrays.actions[part.rows] = np.reshape(actions, self._arrays.actions[part.rows].shape)
        part.turn ^= 1
        self._arrays.since[part.workers.start : part.workers.stop] = time.monotonic()
        for number in part.workers:
            if number not in self._lost:
                self._workers[number].send_bytes(STEP[part.turn])

    def _receive(self, part: _Part) -> Step:
        self._turn = part.turn
        slot = self._slots[part.turn]
        self._allow_all(part.rows)
        step = Step(slot.observation, slot.reward, slot.terminated, slot.truncated)
        told: set[int] = set()
        """Workers whose rows are there."""

        def take(number: int, answer: Stepped | Ready) -> bool:
            if isinstance(answer, Ready):
                return self._take_ready(number, answer)
            told.add(number)
            return self._take_rows(step, answer)

        self._wait_for([number for number in part.workers if number not in self._lost], take)
        for number in part.workers:
            if number in self._lost:
                self._cut_off_block(step, number, told=number in told)
            elif self._failed:
                self._cut_off_failed(step, self._blocks[number])
        self._mend(part.workers)
        # Broken episodes come behind the others.
        step.episodes.sort()
        if LIFE_LOST in step.info:
            self._lose_lives(step)
        step.action_mask = self.action_mask
        step = step if part is self._whole else step.part(part.rows)
        part.check(step, lambda index: self._position(index, step.episodes))
        return step

    def _take_rows(self, step: Step, answer: Stepped) -> bool:
        for index, info in answer.infos.items():
            self._merge(step.info, index, info)
        self._failed |= answer.failed
        for episode in answer.episodes:
            index = episode.env_index
            step.final_observation = self._slots[self._turn].final_observation
            step.episodes.append(episode)
            self.episode_counts[index] += 1
            self._episode_indices[index] += 1
            self.restarts.whole_episode(self._names[index])
        return not answer.episodes

    def _cut_off_failed(self, step: Step, block: range) -> None:
        """Rows of environments that raised; one that did so in the reset after an episode has its row."""
        ended = {episode.env_index for episode in step.episodes}
        for index in block:
            if index in self._failed and index not in ended:
                self._refuse_wrong_action(index, self._action(index), self._failed[index])
                self._cut_off(step, index, self._broken_episode(index, self._turn ^ 1))

    def _cut_off_block(self, step: Step, number: int, *, told: bool) -> None:
        """Rows of a lost worker; with `told` it got as far as the resets."""
        block = self._blocks[number]
        if not told:
            culprit = self._culprit(number)
            self._refuse_wrong_action(culprit, self._action(culprit), self._lost[number].cause)
            for index in block:
                self._cut_off(step, index, self._broken_episode(index, self._turn ^ 1))
            return
        self._cut_off_failed(step, block)
        ended = {episode.env_index for episode in step.episodes}
        slot = self._slots[self._turn]
        for index in block:
            if index not in ended:
                # Its step is whole, but there will be no other.
                step.truncated[index] = True
                slot.final_observation[index] = slot.observation[index]
                step.episodes.append(self._broken_episode(index, self._turn))
                self.episode_counts[index] += 1

    def _action(self, index: int) -> Any:
        return self._arrays.actions[index]

    def _broken_episode(self, index: int, turn: int) -> Episode:
        env_return, shaped_return, length = self._arrays.progress[turn, index].tolist()
        return Episode(
            index, int(self._episode_indices[index]), env_return, shaped_return, int(length), False, broken=True
        )

    def _position(self, index: int, episodes: list[Episode]) -> tuple[int, int]:
        for episode in episodes:
            if episode.env_index == index:
                return episode.episode_index, episode.length
        return int(self._episode_indices[index]), int(self._arrays.progress[self._turn, index, 2])

    def get_state(self) -> dict[str, Any]:
        """The open episode of each environment, and the observation that its replay must reach."""
        # What remains of an environment whose worker is found dead here: its numbering.
        states: dict[int, dict[str, Any]] = {
            index: {"episode_index": int(episode), "episodes_finished": int(self.episode_counts[index])}
            for index, episode in enumerate(self._episode_indices)
        }

        def take(number: int, answer: dict[int, dict[str, Any]]) -> bool:
            states.update(answer)
            return True

        self._wait_for(self._ask_all(lambda number: ("save",)), take)
        return {
            "environments": {str(index): state for index, state in states.items()},
            "observation": self.observation.copy(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Replay the open episodes in their workers; what the sync backend or other workers saved is understood as well."""
        self.action_mask = None
        saved = self._saved_environments(state)
        if not saved:
            return
        for index, one in enumerate(saved):
            self._episode_indices[index] = one["episode_index"]
            self.episode_counts[index] = one["episodes_finished"]
        expected = state["observation"]

        def message(number: int) -> tuple[Any, ...]:
            block = self._blocks[number]
            states, observations = ({index: rows[index] for index in block} for rows in (saved, expected))
            return "restore", self._turn, states, observations

        self._wait_for(self._ask_all(message), self._take_restored)
        self._mend(self._whole.workers)

    def _take_restored(self, number: int, answer: Restored) -> bool:
        for index, episode_index in answer.episode_indices.items():
            self._episode_indices[index] = episode_index
        for complaint in answer.complaints:
            logger.warning("%s: %s Continuing from a fresh episode.", self.spec.id, complaint)
        return self._take_ready(number, Ready(answer.infos, answer.failed))

    def render(self) -> np.ndarray | None:
        """Environment 0, or None when it was made without rendering."""
        if self.render_mode is None:
            return None
        frame: np.ndarray | None = None

        def take(number: int, answer: np.ndarray | None) -> bool:
            nonlocal frame
            frame = answer
            return True

        if 0 not in self._lost:
            self._ask(0, "render", 0)
            self._wait_for([0], take)
        if 0 in self._lost:
            raise self._cannot_be_drawn(self._lost[0].cause)
        return frame

    def close(self) -> None:
        """End the processes."""
        self._finalizer.detach()
        _close_all(self._workers, CLOSE_TIMEOUT)


def _close_all(workers: list[Worker], timeout: float) -> None:
    """Ask the workers to end, and kill those that do not."""
    for worker in workers:
        worker.send(("close",))
    for worker in workers:
        worker.close(timeout)
