"""Sub-environments in processes of their own, for environments slow enough to pay for the way there and back.

Observations come back through shared memory. A worker that fails or falls silent ends the step with an error that
carries its traceback; what should then happen to its episode is decided by the caller of `AsyncVector.step`.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import signal
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np

from gymlab.envs.adapter import REPORT, UNKNOWN, GymnasiumVector
from gymlab.envs.subenv import SubEnv
from gymlab.envs.sync import replay
from gymlab.envs.vector import EnvironmentSpec, Seeds
from gymlab.errors import ConfigError, EnvironmentFailure

STEP_TIMEOUT = 60.0
"""Seconds that a worker may take for one step or reset."""
CLOSE_TIMEOUT = 2.0


class WorkerEnv(gym.Wrapper):
    """A sub-environment in a worker: tells of finished episodes in `info`, and restores itself there."""

    env: SubEnv

    def __init__(self, env: SubEnv) -> None:
        super().__init__(env)
        if multiprocessing.parent_process() is not None:
            # Ctrl-C and SIGTERM go to the whole process group; the parent needs the workers to save their state.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step; at the end of an episode its statistics go with the info."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            episode = self.env.finish(terminated, info)
            report = {
                "env_return": episode.env_return,
                "shaped_return": episode.shaped_return,
                "length": episode.length,
                "success": UNKNOWN if episode.success is None else int(episode.success),
            }
            info = {**info, REPORT: report}
        return observation, reward, terminated, truncated, info

    def save_state(self) -> dict[str, Any]:
        """The state of the sub-environment."""
        return self.env.get_state()

    def restore(self, state: dict[str, Any], expected: np.ndarray, env_id: str) -> tuple[Any, Any, int, int]:
        """Replay the open episode; returns observation, action mask, number of the episode and episodes finished."""
        observation, info = replay(self.env, state, expected, env_id)
        self.env.restore_wrappers(state)
        return observation, info.get("action_mask"), self.env.episode_index, self.env.episodes_finished


class WorkerPool(gym.vector.AsyncVectorEnv):
    """Gymnasium's worker processes, with the worker's traceback in the error and a close that cannot hang."""

    def call_each(self, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of each environment with arguments of its own."""
        for pipe, values in zip(self.parent_pipes, arguments, strict=True):
            pipe.send(("_call", (name, values, {})))
        answers = [pipe.recv() for pipe in self.parent_pipes]
        self._raise_if_errors([success for _, success in answers])
        return [answer for answer, _ in answers]

    def call_first(self, name: str) -> Any:
        """Call a method of environment 0 only."""
        self.parent_pipes[0].send(("_call", (name, (), {})))
        answer, success = self.parent_pipes[0].recv()
        self._raise_if_errors([success] + [True] * (self.num_envs - 1))
        return answer

    def dead_workers(self) -> dict[int, int | None]:
        """Exit codes of the workers that have ended, by number. A pipe breaks a moment before its process has ended."""
        ended = multiprocessing.connection.wait([process.sentinel for process in self.processes], CLOSE_TIMEOUT)
        for process in self.processes:
            if process.sentinel in ended:
                process.join()
        return {index: process.exitcode for index, process in enumerate(self.processes) if not process.is_alive()}

    def _raise_if_errors(self, successes: Any) -> None:
        failures = self.num_envs - sum(successes)
        if failures == 0:
            return
        reports = [self.error_queue.get() for _ in range(failures)]
        traces = "\n".join(f"Environment {index}:\n{_tail(trace)}" for index, _, _, trace in reports)
        raise EnvironmentFailure(f"{failures} environment worker(s) failed.\n{traces}")

    def close_extras(self, timeout: float | None = CLOSE_TIMEOUT, terminate: bool = False) -> None:
        """Ask the workers to end, and kill those that do not."""
        for pipe, process in zip(self.parent_pipes, self.processes, strict=True):
            if pipe is not None and not pipe.closed and process.is_alive():
                with _ignoring_broken_pipes():
                    pipe.send(("close", None))
        for pipe, process in zip(self.parent_pipes, self.processes, strict=True):
            process.join(0.0 if terminate else timeout)
            if process.is_alive():
                process.kill()
                process.join()
            if pipe is not None:
                pipe.close()


class AsyncVector(GymnasiumVector):
    """One process for each sub-environment, resetting in the same step."""

    def __init__(
        self,
        factories: Sequence[Callable[[], WorkerEnv]],
        spec: EnvironmentSpec,
        seeds: Seeds,
        purpose: str = "train",
        *,
        timeout: float = STEP_TIMEOUT,
    ) -> None:
        # Forked workers know what plugins registered in this process; elsewhere Gymnasium's default has to do.
        context = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
        self._pool = WorkerPool(
            factories, context=context, copy=False, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
        )
        super().__init__(self._pool, spec, seeds, purpose, backend="async")
        self.resumable = True
        self.resume_note = ""
        self._timeout = timeout
        # Workers ignore SIGTERM, by which multiprocessing would end them at exit: an unclosed pool is closed before.
        self._finalizer = weakref.finalize(self, self._pool.close, terminate=True)

    def _reseed(self, seeds: Seeds) -> None:
        super()._reseed(seeds)
        with self._watched():
            self._pool.call("reseed", seeds)

    def _raw_reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        with self._watched():
            self._pool.reset_async(**kwargs)
            return self._pool.reset_wait(self._timeout)

    def _raw_step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        with self._watched():
            self._pool.step_async(actions)
            return self._pool.step_wait(self._timeout)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except multiprocessing.TimeoutError as error:
            silent = [index for index, pipe in enumerate(self._pool.parent_pipes) if not pipe.poll(0)]
            raise EnvironmentFailure(
                f"{self.spec.id}: environment worker(s) {silent} did not answer within {self._timeout:g} s."
            ) from error
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            dead = self._pool.dead_workers()
            raise EnvironmentFailure(
                f"{self.spec.id}: environment worker(s) died, exit codes {dead} (-9: killed, often for lack of memory)."
            ) from error

    def get_state(self) -> dict[str, Any]:
        """The open episode of each environment, and the observation that its replay must reach."""
        with self._watched():
            states = self._pool.call("save_state")
        return {
            "environments": {str(index): state for index, state in enumerate(states)},
            "observation": self.observation.copy(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Replay the open episodes in their workers; what the sync backend saved is understood as well."""
        expected = state["observation"]
        if len(expected) != self.num_envs:
            raise ConfigError(
                f"The saved state of {self.spec.id} has {len(expected)} environments, this one {self.num_envs}."
            )
        saved = [state["environments"][str(index)] for index in range(self.num_envs)]
        if saved[0]["episode_index"] < 0:
            return  # Saved before the first reset: nothing has begun.
        with self._watched():
            answers = self._pool.call_each(
                "restore", [(one, expected[index], self.spec.id) for index, one in enumerate(saved)]
            )
        self.action_mask = None
        for index, (observation, mask, episode, finished) in enumerate(answers):
            self.observation[index] = observation
            self._episode_indices[index] = episode
            self.episode_counts[index] = finished
            self._lengths[index] = len(saved[index]["actions"])
            if mask is not None:
                present = np.arange(self.num_envs) == index
                self._take_mask({"action_mask": np.tile(mask, (self.num_envs, 1)), "_action_mask": present})

    def render(self) -> np.ndarray | None:
        """Environment 0, or None when it was made without rendering."""
        if self._pool.render_mode is None:
            return None
        with self._watched():
            frame = self._pool.call_first("render")
        return None if frame is None else np.asarray(frame)


@contextmanager
def _ignoring_broken_pipes() -> Iterator[None]:
    try:
        yield
    except (BrokenPipeError, ConnectionResetError):
        # The worker ended between the look at it and the message.
        return


def _tail(trace: str, lines: int = 20) -> str:
    return "\n".join(trace.strip().splitlines()[-lines:])
