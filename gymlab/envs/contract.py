"""Gymnasium's interface as environments are held to it: what `reset` and `step` may answer, and what counts as a crash.

A wrong answer is a bug that no restart puts right: it ends the run, with the environment and the step. Whatever an
environment raises is a crash, after which it is replaced. Both are decided here, so that every backend does the same.
"""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from numpy import ndarray

from gymlab.errors import EnvironmentFailure

NUMBERS = frozenset({bool, float, np.bool_, *(np.dtype(code).type for code in "bhilqBHILQefd")})
"""Types of a reward that need no second look."""
MOST_SHOWN = 80
"""Characters of a wrong value that a message shows."""


class WrongAnswer(EnvironmentFailure):
    """An environment answered with something unusable: what it was and, in a second line, how to put it right."""

    def __init__(self, detail: str, advice: str) -> None:
        super().__init__(f"{detail}.\n{advice}")
        self.detail = detail
        self.advice = advice

    def __reduce__(self) -> tuple[type[WrongAnswer], tuple[str, str]]:
        """From a worker's process to its parent's."""
        return WrongAnswer, (self.detail, self.advice)

    def at(self, place: str) -> WrongAnswer:
        """The same, with the environment and the step, or the part of an observation."""
        return WrongAnswer(f"{place}{self.detail}", self.advice)


class EnvironmentExit(RuntimeError):
    """An environment raised what would have ended the program."""


def is_ctrl_c(error: BaseException) -> bool:
    """Whether the user may have raised it. Where Ctrl-C raises nothing (a training, a worker) the environment did."""
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


@contextmanager
def contained() -> Iterator[None]:
    """Let nothing that an environment raises pass for an end of the program: `sys.exit` is a crash like any other."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise EnvironmentExit(f"the environment tried to end the program ({text})") from error


def call_reset(env: gym.Env, seed: int | None, options: dict[str, Any] | None) -> Any:
    """What `reset` gives; one of before Gymnasium 0.26, which takes no seed, is a wrong answer and no crash."""
    try:
        return env.reset(seed=seed, options=options)
    except TypeError:
        refusing = next((layer for layer in layers(env) if not _takes_seed(layer.reset)), None)
        if refusing is None:
            raise
        raise WrongAnswer(
            f"reset does not take a seed and options: {type(refusing).__name__}.reset{inspect.signature(refusing.reset)}",
            "Write `def reset(self, *, seed=None, options=None):` and begin it with `super().reset(seed=seed)`.",
        ) from None


def layers(env: gym.Env) -> list[Any]:
    """The wrappers from the outside in, and the environment."""
    found: list[Any] = [env]
    while isinstance(env, gym.Wrapper):
        env = env.env
        found.append(env)
    return found


def _takes_seed(reset: Callable[..., Any]) -> bool:
    try:
        inspect.signature(reset).bind(seed=None, options=None)
    except TypeError:
        return False
    except ValueError:  # Written in another language: it says nothing of its parameters.
        return True
    return True


def reset_answer(answer: Any) -> tuple[Any, dict[str, Any]]:
    """Observation and info of a reset; the observation is for an `ObservationCheck` to look at."""
    if not _has_parts(answer, 2):
        raise WrongAnswer(
            f"reset gave {_kind(answer)}, not (observation, info)",
            "End reset with `return observation, {}`: that is Gymnasium's interface since 0.26.",
        )
    observation, info = answer
    if not isinstance(info, dict):
        raise _no_info("reset", info)
    return observation, info


def step_answer(answer: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
    """The five parts of a step, with a number as reward and two truth values; the observation is looked at elsewhere."""
    if type(answer) is tuple and len(answer) == 5:
        _, reward, terminated, truncated, info = answer
        # Nearly every answer is plain, and each step pays for the question.
        if (
            type(reward) in NUMBERS
            and (terminated is False or terminated is True)
            and (truncated is False or truncated is True)
            and type(info) is dict
        ):
            return answer
    return _plain(answer)


def _plain(answer: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
    if not _has_parts(answer, 5):
        raise _no_step(answer)
    observation, reward, terminated, truncated, info = answer
    if type(reward) not in NUMBERS:
        reward = _number(reward)
    terminated, truncated = _flag("terminated", terminated), _flag("truncated", truncated)
    if not isinstance(info, dict):
        raise _no_info("step", info)
    return observation, reward, terminated, truncated, info


def _no_step(answer: Any) -> WrongAnswer:
    parts = "observation, reward, terminated, truncated, info"
    if _has_parts(answer, 4):
        advice = "Split the old `done`: terminated when the task itself ended, truncated when only the time was up."
    else:
        advice = f"End step with `return {parts}`."
    given = "step returns nothing" if answer is None else f"step gave {_kind(answer)}"
    return WrongAnswer(f"{given}, not ({parts})", advice)


def _number(reward: Any) -> float:
    """A reward in an array of one element counts as that element; whole numbers of Python may be too large for a float."""
    if type(reward) is int:
        try:
            return float(reward)
        except OverflowError:
            raise WrongAnswer(
                f"step gave a reward of {reward.bit_length()} bits, which no float can hold", "Scale the reward down."
            ) from None
    array = as_numbers(reward)
    if array is None or array.size != 1:
        one = "float(reward)" if array is None else "float(reward.sum())"
        raise WrongAnswer(f"step gave the reward {_shown(reward)}, which is no number", f"Give one number: `{one}`.")
    return float(array.item())


def _flag(name: str, value: Any) -> bool:
    """A truth value: a bool, 0 or 1, or one of them in an array of one element."""
    if type(value) is bool or type(value) is np.bool_:
        return bool(value)
    array = as_numbers(value)
    if array is None or array.size != 1 or array.dtype.kind == "f" or array.item() not in (0, 1):
        raise WrongAnswer(
            f"step gave {name} as {_shown(value)}, which is neither true nor false", f"Give `bool({name})`."
        )
    return bool(array.item())


def success_of(info: dict[str, Any]) -> bool | None:
    """Whether the goal was met, where the environment says so in `info["is_success"]`: some say it with a float."""
    success = info.get("is_success")
    if success is None:
        return None
    array = as_numbers(success)
    if array is None or array.size != 1:
        raise WrongAnswer(
            f"step gave info['is_success'] as {_shown(success)}, which is neither true nor false",
            "Give `bool(is_success)`.",
        )
    return bool(array.item())


def check_mask(mask: Any, space: gym.Space) -> None:
    """Raise WrongAnswer for an action mask that has not one entry for each action."""
    width = mask_width(space)
    array = as_numbers(mask)
    if width is not None and (array is None or array.shape != (width,)):
        given = _shown(mask) if array is None else f"of shape {array.shape}"
        raise WrongAnswer(
            f"info has an action_mask {given} for {width} actions", "Give one truth value for each action."
        )


def mask_width(space: gym.Space) -> int | None:
    """Entries of an action mask; None for actions that cannot be masked."""
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return int(np.prod(space.shape)) if isinstance(space, gym.spaces.MultiBinary) else None


class ObservationCheck:
    """Passes observations on whose shape is that of their space and whose values its dtype can hold.

    Floats are rounded to the space's (float64 to float32, as Gymnasium's own environments need it), and integers may
    stand for floats. Floats for integers are refused, whatever their value: a picture from 0 to 1 would become black.
    Lists count as the array that they make. With `shape`, for arrays of many observations.
    """

    def __init__(self, space: gym.Space, shape: tuple[int, ...] | None = None) -> None:
        own = space.shape if shape is None else shape
        assert own is not None
        assert space.dtype is not None
        self._shape = own
        self._dtype = np.dtype(space.dtype)
        self._trusted: np.dtype | None = None
        """The newest dtype all of whose values can be taken: numpy has but one object of each, which is quick to compare."""
        self._states: range | None = None
        self._is_binary = isinstance(space, gym.spaces.MultiBinary)
        if isinstance(space, gym.spaces.Discrete) and shape is None:
            self._states = range(int(space.start), int(space.start + space.n))

    def taken(self, observation: Any) -> Any:
        """The observation, as an array or a state's number; raises WrongAnswer where it does not fit."""
        if type(observation) is ndarray and observation.dtype is self._trusted and observation.shape == self._shape:
            return observation
        if self._states is not None:
            return self._state(observation)
        return self._array(observation)

    def _state(self, observation: Any) -> int:
        state: int = observation if type(observation) is int else self._array(observation).item()
        assert self._states is not None
        if state not in self._states:
            first, last = self._states[0], self._states[-1]
            raise WrongAnswer(f"an observation of {state}, which is not in {first} to {last}", "Widen the space.")
        return state

    def _array(self, observation: Any) -> np.ndarray:
        array = as_numbers(observation)
        if array is None:
            raise WrongAnswer(
                f"{_shown(observation)} as observation, which is no array of numbers",
                f"Give `np.array(..., dtype=np.{self._dtype})`.",
            )
        if array.shape != self._shape:
            raise WrongAnswer(
                f"an observation of shape {array.shape}, its space {self._shape}",
                "Make the observation_space of the shape that reset and step give.",
            )
        if self._dtype.kind != "f" and array.dtype.kind == "f":
            raise WrongAnswer(
                f"an observation of {array.dtype} values for a space of {self._dtype}",
                f"Give `.astype(np.{self._dtype})`, or make the observation_space a Box of floats.",
            )
        if self._dtype.kind == "f" or np.can_cast(array.dtype, self._dtype):
            # A state and bits are also looked at for their values.
            self._trusted = array.dtype if self._states is None and not self._is_binary else None
            return self._bits(array)
        stored = array.astype(self._dtype)
        if (stored != array).any():
            value = array[stored != array].flat[0]
            raise WrongAnswer(
                f"an observation of {value}, which {self._dtype} cannot hold", "Widen the observation_space."
            )
        return self._bits(stored)

    def _bits(self, array: np.ndarray) -> np.ndarray:
        if self._is_binary and ((array != 0) & (array != 1)).any():
            value = array[(array != 0) & (array != 1)].flat[0]
            raise WrongAnswer(f"an observation of {value}, which is no bit", "Give 0 or 1, or make the space a Box.")
        return array


def rows(name: str, values: Any, count: int, kinds: str = "biuf") -> np.ndarray:
    """One value for each of `count` environments of a vector version; `kinds` of numpy's dtypes."""
    array = as_numbers(values)
    if array is None or array.dtype.kind not in kinds:
        wanted = "numbers" if "f" in kinds else "truth values"
        raise WrongAnswer(f"step gave {name} {_shown(values)}, which is no array of {wanted}", "Give one of numpy's.")
    if array.shape != (count,):
        raise WrongAnswer(f"step gave {name} of shape {array.shape}, not ({count},)", "Give one for each environment.")
    return array


def as_numbers(value: Any) -> np.ndarray | None:
    """The value as an array of truth values, integers or floats; None when it is none."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        # A ragged list, or a tensor that is not in this memory.
        return None
    return array if array.dtype.kind in "biuf" else None


def _has_parts(answer: Any, count: int) -> bool:
    return isinstance(answer, tuple | list) and len(answer) == count


def _no_info(method: str, info: Any) -> WrongAnswer:
    return WrongAnswer(f"{method} gave {_kind(info)} as info, not a dict", "Give `{}` where there is nothing.")


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _kind(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
