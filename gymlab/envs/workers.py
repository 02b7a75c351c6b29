"""Sub-environments in processes of their own, for environments slow enough to pay for the way there and back.

Observations come back through shared memory, the rest through a pipe each. A worker that dies, raises or falls silent is
replaced; every other worker's answer is taken as usual.
"""

from __future__ import annotations

import functools
import logging
import select
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from gymlab.envs.restarts import Restarts, construct
from gymlab.envs.step import LIFE_LOST, Episode, Step
from gymlab.envs.subenv import SubEnv
from gymlab.envs.subvector import SubEnvVector, action_splitter, names_of
from gymlab.envs.vector import EnvironmentSpec, Seeds
from gymlab.envs.worker import (
    CLOSE_TIMEOUT,
    Alive,
    Began,
    Failed,
    Restored,
    SharedArrays,
    Stepped,
    Worker,
    serve,
    shared_zeros,
)
from gymlab.errors import EnvironmentFailure

logger = logging.getLogger(__name__)

STEP_TIMEOUT = 60.0
"""Seconds that a worker may take for one step or reset."""
START_TIMEOUT = 120.0
"""Seconds that making an environment may take, at the least."""


class AsyncVector(SubEnvVector):
    """One process for each sub-environment, resetting in the same step."""

    backend = "async"

    def __init__(
        self,
        factories: Sequence[Callable[[], SubEnv]],
        spec: EnvironmentSpec,
        seeds: Seeds,
        purpose: str,
        restarts: Restarts,
        *,
        timeout: float = STEP_TIMEOUT,
    ) -> None:
        names = names_of(spec, purpose, len(factories))
        # Made here to know its spaces, and to have its modules imported before the workers are forked.
        example = construct(factories[0], names[0], restarts)
        super().__init__(spec, names, example, restarts)
        self.render_mode = example.render_mode
        example.close()
        self._factories = factories
        self._timeout = timeout
        self._to_rows = action_splitter(self.action_space)
        self._seeds = seeds
        self._episode_indices = np.full(self.num_envs, -1, dtype=np.int64)
        self._arrays = self._share_arrays()
        self._poller = select.poll()
        self._by_descriptor: dict[int, int] = {}
        self._lost: dict[int, Failed] = {}
        self._workers: list[Worker] = []
        # Workers ignore SIGTERM, by which multiprocessing would end them at exit: an unclosed pool is closed before.
        self._finalizer = weakref.finalize(self, _close_all, self._workers, 0.0)
        self._start_all()

    def _share_arrays(self) -> SharedArrays:
        for slot in self._slots:
            slot.observation = shared_zeros(slot.observation.shape, slot.observation.dtype)
            slot.final_observation = shared_zeros(slot.final_observation.shape, slot.final_observation.dtype)
        first, second = self._slots
        return SharedArrays(
            (first.observation, second.observation),
            (first.final_observation, second.final_observation),
            shared_zeros((self.num_envs, 3), np.float64),
        )

    def _start_all(self) -> None:
        for index in range(self.num_envs):
            self._workers.append(self._worker(index))
            self._watch(index)
        for index in self._wait_for(range(self.num_envs), max(self._timeout, START_TIMEOUT)):
            self._replace(index, constructing=True)

    def _worker(self, index: int) -> Worker:
        return Worker(functools.partial(serve, index, self._factories[index], self._arrays))

    def _watch(self, index: int) -> None:
        descriptor = self._workers[index].pipe.fileno()
        self._by_descriptor[descriptor] = index
        self._poller.register(descriptor, select.POLLIN)

    def _answers(self, pending: set[int], timeout: float) -> list[tuple[int, Any]]:
        """What has arrived. When nobody of the `pending` has answered for `timeout` seconds, all of them are given up."""
        events = self._poller.poll(timeout * 1000)
        if not events:
            silent = Failed(f"it did not answer within {timeout:g} s.")
            return [(index, self._lose(index, silent)) for index in sorted(pending)]
        answers = []
        for descriptor, _ in events:
            index = self._by_descriptor[descriptor]
            answer = self._workers[index].receive()
            if type(answer) is Failed:
                self._lose(index, answer)
            answers.append((index, answer))
        return answers

    def _lose(self, index: int, failed: Failed) -> Failed:
        """Give a worker up; it is replaced when the next step or reset needs it."""
        worker = self._workers[index]
        descriptor = worker.pipe.fileno()
        self._poller.unregister(descriptor)
        del self._by_descriptor[descriptor]
        worker.kill()
        if failed.own_error is not None:
            raise failed.own_error(failed.cause)
        self._lost[index] = failed
        return failed

    def _wait_for(
        self,
        indices: Iterable[int],
        timeout: float,
        take: Callable[[int, Any], bool] = lambda index, answer: True,
    ) -> list[int]:
        """Hand every answer to `take` until it has said of each environment that this was all; returns who failed."""
        pending = set(indices)
        failed = []
        while pending:
            for index, answer in self._answers(pending, timeout):
                if type(answer) is Failed:
                    # One that dies after its answer is found out by the next step.
                    if index in pending:
                        pending.remove(index)
                        failed.append(index)
                elif type(answer) is not Alive and take(index, answer):
                    pending.remove(index)
        return sorted(failed)

    def _ask(self, messages: Callable[[int], tuple[Any, ...]]) -> list[int]:
        """Send a message to every worker that is there; returns their numbers."""
        asked = [index for index in range(self.num_envs) if index not in self._lost]
        for index in asked:
            self._workers[index].send(messages(index))
        return asked

    def _replace(self, index: int, *, constructing: bool = False) -> None:
        """Start another worker in the place of a lost one, with the next episode unless nothing has begun yet."""
        while index in self._lost:
            self.restarts.allow(self._names[index], self._lost[index].cause, constructing=constructing)
            del self._lost[index]
            self._workers[index] = worker = self._worker(index)
            self._watch(index)
            constructing = bool(self._wait_for([index], max(self._timeout, START_TIMEOUT)))
            if constructing or self._episode_indices[index] < 0:
                continue
            numbering = (self._seeds, int(self._episode_indices[index]), int(self.episode_counts[index]))
            self._episode_indices[index] += 1
            worker.send(("number_from", *numbering))
            worker.send(("reset", self._turn))
            self._wait_for([index], self._timeout, self._began)

    def _began(self, index: int, answer: Began) -> bool:
        self._take_mask(index, answer.info)
        return True

    def reset(self, seeds: Seeds | None = None) -> np.ndarray:
        """Begin a new episode everywhere; with `seeds`, with numbering anew from that tree."""
        if seeds is not None:
            self._seeds = seeds
            self._episode_indices.fill(-1)
            self.episode_counts.fill(0)
            self._ask(lambda index: ("number_from", seeds))
        self._turn ^= 1
        self.action_mask = None
        self._episode_indices += 1
        self._wait_for(self._ask(lambda index: ("reset", self._turn)), self._timeout, self._began)
        for index in sorted(self._lost):
            self._replace(index)
        self.restarts.proved = True
        self._check.first(self.observation)
        return self.observation

    def step(self, actions: np.ndarray) -> Step:
        """Take one action in each environment."""
        self._turn ^= 1
        turn, slot = self._turn, self._slots[self._turn]
        slot.terminated.fill(False)
        slot.truncated.fill(False)
        if self.action_mask is not None:
            self.action_mask = self.action_mask.copy()
        step = Step(slot.observation, slot.reward, slot.terminated, slot.truncated)
        rows = self._to_rows(actions)
        if len(rows) != self.num_envs:
            raise ValueError(f"{len(rows)} actions for {self.num_envs} environments")
        lost = sorted(self._lost)
        asked = self._ask(lambda index: ("step", turn, rows[index]))
        lost += self._wait_for(asked, self._timeout, lambda index, answer: self._take(step, index, answer))
        for index in lost:
            if not (step.terminated[index] or step.truncated[index]):
                self._refuse_wrong_action(index, rows[index], self._lost[index].cause)
                self._cut_off(step, index, self._broken_episode(index))
            self._replace(index)
        # Answers come in any order; what is made of them must not depend on it.
        step.episodes.sort()
        if LIFE_LOST in step.info:
            self._lose_lives(step)
        step.action_mask = self.action_mask
        self._check(step, lambda index: self._position(index, step.episodes))
        return step

    def _take(self, step: Step, index: int, answer: Stepped | Began) -> bool:
        if isinstance(answer, Began):
            return self._began(index, answer)
        step.reward[index], info, episode = answer
        if info:
            self._merge(step.info, index, info)
        if episode is None:
            self._take_mask(index, info)
            return True
        step.terminated[index] = episode.terminated
        step.truncated[index] = not episode.terminated
        step.final_observation = self._slots[self._turn].final_observation
        step.episodes.append(episode)
        self.episode_counts[index] += 1
        self._episode_indices[index] += 1
        self.restarts.whole_episode(self._names[index])
        return False

    def _broken_episode(self, index: int) -> Episode:
        env_return, shaped_return, length = self._arrays.progress[index].tolist()
        return Episode(
            index, int(self._episode_indices[index]), env_return, shaped_return, int(length), False, broken=True
        )

    def _position(self, index: int, episodes: list[Episode]) -> tuple[int, int]:
        for episode in episodes:
            if episode.env_index == index:
                return episode.episode_index, episode.length
        return int(self._episode_indices[index]), int(self._arrays.progress[index, 2])

    def get_state(self) -> dict[str, Any]:
        """The open episode of each environment, and the observation that its replay must reach."""
        # What remains of an environment whose worker is found dead here: its numbering.
        states: dict[int, dict[str, Any]] = {
            index: {"episode_index": int(episode), "episodes_finished": int(self.episode_counts[index])}
            for index, episode in enumerate(self._episode_indices)
        }

        def take(index: int, answer: dict[str, Any]) -> bool:
            states[index] = answer
            return True

        self._wait_for(self._ask(lambda index: ("save",)), self._timeout, take)
        return {
            "environments": {str(index): state for index, state in states.items()},
            "observation": self.observation.copy(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Replay the open episodes in their workers; what the sync backend saved is understood as well."""
        self.action_mask = None
        saved = self._saved_environments(state)
        if not saved:
            return
        for index, one in enumerate(saved):
            self._episode_indices[index] = one["episode_index"]
            self.episode_counts[index] = one["episodes_finished"]
        expected = state["observation"]
        asked = self._ask(lambda index: ("restore", self._turn, saved[index], expected[index]))
        self._wait_for(asked, self._timeout, self._restored)
        for index in sorted(self._lost):
            self._replace(index)

    def _restored(self, index: int, answer: Restored) -> bool:
        self._episode_indices[index] = answer.episode_index
        self._take_mask(index, answer.info)
        if answer.complaint:
            logger.warning("%s: %s Continuing from a fresh episode.", self.spec.id, answer.complaint)
        return True

    def render(self) -> np.ndarray | None:
        """Environment 0, or None when it was made without rendering."""
        if self.render_mode is None:
            return None
        frame: np.ndarray | None = None

        def take(index: int, answer: np.ndarray | None) -> bool:
            nonlocal frame
            frame = answer
            return True

        if 0 not in self._lost:
            self._workers[0].send(("render",))
            self._wait_for([0], self._timeout, take)
        if 0 in self._lost:
            raise EnvironmentFailure(f"{self._names[0]} cannot be drawn: {self._lost[0].cause}")
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
