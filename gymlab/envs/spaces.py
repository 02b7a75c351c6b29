"""Spaces: to JSON and back, and how dict and tuple observations become one vector."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from gymlab.envs.contract import ObservationCheck, WrongAnswer
from gymlab.errors import ConfigError, EnvironmentFailure


class Flattener:
    """Turns an observation of `space` into one array; Dict and Tuple become one float32 vector.

    Order: the keys of a Dict as Gymnasium keeps them (sorted when it was made from a plain dict), the parts of a Tuple
    from the first to the last, each part row by row. A Discrete part becomes a one-hot, each part of a MultiDiscrete
    likewise; images keep their values 0..255. Any other space is left as it is.
    """

    def __init__(self, space: spaces.Space) -> None:
        self.is_identity = not isinstance(space, spaces.Dict | spaces.Tuple)
        self.space = _vector_space(space) if isinstance(space, spaces.Dict | spaces.Tuple) else space
        self._containers = containers(space)
        self._leaves = [(path, leaf, ObservationCheck(leaf).taken) for path, leaf in leaves(space)]

    def __call__(self, observation: Any) -> np.ndarray:
        """The observation as one array; raises WrongAnswer for a part that is missing or does not fit its space."""
        if self.is_identity:
            return np.asarray(observation)
        for path, parts in self._containers:
            _refuse_more(_part(observation, path), parts, path)
        vector = np.empty(self.space.shape or (), dtype=np.float32)
        start = 0
        for path, leaf, checked in self._leaves:
            end = start + _width(leaf)
            value = _part(observation, path)
            try:
                _write(leaf, checked(value), vector[start:end])
            except WrongAnswer as error:
                raise error.at(f"in {_named(path)} ") from None
            start = end
        return vector

    def batch(self, observations: Any, num_envs: int) -> np.ndarray:
        """A batch of observations in Gymnasium's layout (arrays with a leading axis at the leaves) as one array."""
        if self.is_identity:
            return np.asarray(observations)
        return np.stack([self(_row(observations, index, num_envs)) for index in range(num_envs)])


def flatten_observation(space: spaces.Space, observation: Any) -> np.ndarray:
    """One observation of `space` as the array that a vector environment gives for it."""
    flattened = Flattener(space)(observation)
    return flattened.astype(stored_space(space).dtype, copy=False)


def stored_space(space: spaces.Space) -> spaces.Space:
    """The space of what a vector environment stores: dicts and tuples flattened, float64 as float32."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _vector_space(space)
    if isinstance(space, spaces.Box):
        if space.dtype == np.float64:
            return spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)
        return space
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return space
    raise _unsupported(space)


def _vector_space(space: spaces.Space) -> spaces.Box:
    lows, highs = [], []
    for _, leaf in leaves(space):
        if isinstance(leaf, spaces.Box):
            lows.append(leaf.low.ravel().astype(np.float32))
            highs.append(leaf.high.ravel().astype(np.float32))
        else:
            lows.append(np.zeros(_width(leaf), dtype=np.float32))
            highs.append(np.ones(_width(leaf), dtype=np.float32))
    return spaces.Box(np.concatenate(lows), np.concatenate(highs), dtype=np.float32)


MOST_PARTS = 4
"""Parts of a Dict or Tuple that are named when it is described."""
MOST_CHARACTERS = 100


def describe_space(space: spaces.Space) -> str:
    """A space in a few words: bounds of many numbers and many parts are not written out."""
    if isinstance(space, spaces.Box):
        low, high = float(space.low.min()), float(space.high.max())
        return f"Box {'x'.join(map(str, space.shape)) or 'of one number'} {space.dtype} in [{low:g}, {high:g}]"
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = leaves(space)
        named = [f"{'.'.join(map(str, path))} ({_width(leaf):,})" for path, leaf in parts[:MOST_PARTS]]
        more = [f"{len(parts) - MOST_PARTS:,} more"] if len(parts) > MOST_PARTS else []
        return f"{type(space).__name__} of {len(parts):,} parts: {', '.join([*named, *more])}"
    return str(space)


def space_line(space: spaces.Space) -> str:
    """A space as Gymnasium writes it where that is a line, else in a few words."""
    text = " ".join(str(space).split())
    return text if len(text) <= MOST_CHARACTERS else describe_space(space)


def flattened_images(space: spaces.Space) -> str:
    """What to know where a picture is a part of the observation: it becomes a row of numbers; empty where none is."""
    parts = leaves(space) if isinstance(space, spaces.Dict | spaces.Tuple) else []
    images = [(path, leaf) for path, leaf in parts if leaf.dtype == np.uint8 and len(leaf.shape or ()) == 3]
    if not images:
        return ""
    path, leaf = images[0]
    shape = "x".join(map(str, leaf.shape or ()))
    others = f" and {len(images) - 1} more" if len(images) > 1 else ""
    return (
        f"The picture {'.'.join(map(str, path))!r} ({shape}){others} is a part of a {type(space).__name__}: it is flattened to "
        f"{_width(leaf):,} of the {sum(_width(part) for _, part in parts):,} numbers of the observation, and no convolution sees it. "
        "A wrapper that gives the picture alone brings a CNN."
    )


def leaves(space: spaces.Space, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], spaces.Space]]:
    """Paths and spaces that are neither dicts nor tuples, in the order in which they are flattened."""
    if isinstance(space, spaces.Dict):
        parts: Any = space.spaces.items()
    elif isinstance(space, spaces.Tuple):
        parts = enumerate(space.spaces)
    elif isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return [(path, space)]
    else:
        raise _unsupported(space)
    return [leaf for key, part in parts for leaf in leaves(part, (*path, key))]


def containers(space: spaces.Space, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], frozenset[Any]]]:
    """Paths and the keys or positions of the dicts and tuples that a space is made of, the outer ones first."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return []
    parts = dict(space.spaces if isinstance(space, spaces.Dict) else enumerate(space.spaces))
    inner = [one for key, part in parts.items() for one in containers(part, (*path, key))]
    return [(path, frozenset(parts)), *inner]


def _refuse_more(value: Any, parts: frozenset[Any], path: tuple[Any, ...]) -> None:
    """Raise WrongAnswer for a part of an observation that its space does not have; one that is missing is found as it is read."""
    if isinstance(value, Mapping):
        more = [key for key in value if key not in parts]
    else:
        more = list(range(len(parts), len(value))) if isinstance(value, tuple | list) else []
    if more:
        named = ", ".join(_named((*path, key)) for key in more[:MOST_PARTS])
        raise WrongAnswer(f"the observation has {named}, its space has not", "Give what the observation_space has.")


def _width(leaf: spaces.Space) -> int:
    if isinstance(leaf, spaces.Discrete):
        return int(leaf.n)
    if isinstance(leaf, spaces.MultiDiscrete):
        return int(leaf.nvec.sum())
    return math.prod(leaf.shape or ())


def _part(observation: Any, path: tuple[Any, ...]) -> Any:
    value = observation
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            raise WrongAnswer(
                f"the observation has no {_named(path)}", "Give every part of the observation_space."
            ) from None
    return value


def _named(path: tuple[Any, ...]) -> str:
    return "".join(f"[{key!r}]" for key in path)


def _write(leaf: spaces.Space, value: Any, out: np.ndarray) -> None:
    """Write a value that was checked: its shape is that of the leaf."""
    if isinstance(leaf, spaces.Discrete):
        out.fill(0.0)
        out[value - int(leaf.start)] = 1.0
    elif isinstance(leaf, spaces.MultiDiscrete):
        out.fill(0.0)
        counts, states = leaf.nvec.ravel(), value.ravel() - leaf.start.ravel()
        if ((states < 0) | (states >= counts)).any():
            # It would be written into the part of a neighbour.
            raise WrongAnswer(
                f"an observation of {value!r}, which is not in {leaf}", "Widen the space, or keep the value inside."
            )
        out[np.cumsum(counts) - counts + states] = 1.0
    else:
        out[...] = value.ravel()


def _row(observations: Any, index: int, num_envs: int) -> Any:
    if isinstance(observations, dict):
        return {key: _row(value, index, num_envs) for key, value in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_row(value, index, num_envs) for value in observations)
    if np.shape(observations)[:1] != (num_envs,):
        raise WrongAnswer(
            f"an observation of shape {np.shape(observations)} for {num_envs} environments", "Give a row for each."
        )
    return observations[index]


def _unsupported(space: Any) -> EnvironmentFailure:
    return EnvironmentFailure(
        f"Observations of type {type(space).__name__} are not supported ({space}). "
        "Supported: Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of them. "
        "A wrapper registered by a module given with --plugin can turn them into one of these."
    )


def space_to_json(space: spaces.Space) -> dict[str, Any]:
    """A space as JSON; equal bounds of a Box are written once, infinities as "inf" and "-inf"."""
    if isinstance(space, spaces.Box):
        return {
            "type": "Box",
            "low": _bounds_to_json(space.low),
            "high": _bounds_to_json(space.high),
            "shape": list(space.shape),
            "dtype": str(space.dtype),
        }
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, spaces.Dict):
        # A list of pairs: JSON objects may be re-ordered on the way, the order of the keys is the order of the vector.
        return {"type": "Dict", "spaces": [[key, space_to_json(part)] for key, part in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [space_to_json(part) for part in space.spaces]}
    raise _unsupported(space)


def same_form(one: spaces.Space, other: spaces.Space) -> bool:
    """Whether values of both have the same shapes and choices; the bounds of numbers may differ."""
    return _form(one) == _form(other)


def _form(space: spaces.Space) -> Any:
    if isinstance(space, spaces.Box):
        return space.shape
    if isinstance(space, spaces.Dict):
        return [(key, _form(part)) for key, part in space.spaces.items()]
    if isinstance(space, spaces.Tuple):
        return [_form(part) for part in space.spaces]
    return space_to_json(space)


def space_from_json(data: dict[str, Any]) -> spaces.Space:
    """The space that `space_to_json` wrote."""
    kind = data.get("type")
    if kind == "Box":
        shape, dtype = tuple(data["shape"]), np.dtype(data["dtype"])
        low, high = (_bounds_from_json(data[side], shape, dtype) for side in ("low", "high"))
        return spaces.Box(low, high, dtype=dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(int(data["n"]), start=int(data["start"]))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.array(data["nvec"]), start=np.array(data["start"]))
    if kind == "MultiBinary":
        shape = data["shape"]
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    if kind == "Dict":
        # Pairs, not a dict: Gymnasium sorts the keys of a plain dict and keeps the order of pairs.
        return spaces.Dict([(key, space_from_json(part)) for key, part in data["spaces"]])
    if kind == "Tuple":
        return spaces.Tuple([space_from_json(part) for part in data["spaces"]])
    raise ConfigError(
        f"A saved space has the unknown type {kind!r}; known: Box, Discrete, MultiDiscrete, MultiBinary, Dict, Tuple."
    )


def _bounds_to_json(bounds: np.ndarray) -> Any:
    flat = bounds.ravel()
    if flat.size and (flat == flat[0]).all():
        return _number_to_json(flat[0])
    return [_number_to_json(value) for value in flat]


def _number_to_json(value: Any) -> float | int | str:
    number = value.item()
    return str(number) if isinstance(number, float) and math.isinf(number) else number


def _bounds_from_json(data: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if isinstance(data, list):
        return np.array([float(value) if isinstance(value, str) else value for value in data], dtype=dtype).reshape(
            shape
        )
    return np.full(shape, float(data) if isinstance(data, str) else data, dtype=dtype)
