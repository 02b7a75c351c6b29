"""Which row of a table an observation is: numbered by its space, or in the order in which it is first seen."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from gymlab.errors import ConfigError

UNSEEN = -1
"""Row of an observation that is not in the table."""


class NumberedStates(nn.Module):
    """Discrete observations, or MultiDiscrete ones counted like the digits of a number, the last one fastest."""

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        super().__init__()
        sizes = np.array([space.n]) if isinstance(space, spaces.Discrete) else space.nvec.ravel()
        self.sizes = tuple(sizes.tolist())
        self._start = np.asarray(space.start).ravel()
        self.count = math.prod(self.sizes)

    def rows(self, observation: np.ndarray, *, add: bool = False) -> np.ndarray:
        """[B, ...] observations as [B] row numbers; every one has its row, so there is nothing to add."""
        digits = observation.reshape(len(observation), -1) - self._start
        return digits[:, 0] if len(self.sizes) == 1 else np.ravel_multi_index(tuple(digits.T), self.sizes)

    @property
    def known(self) -> int:
        """Rows that stand for a state."""
        return self.count


class SeenStates(nn.Module):
    """Vectors of zeros and ones (bits, one-hots, flattened tuples), numbered as they are first seen.

    Of a vector the space tells only its width, and most of its patterns never occur, so that the table holds those that do. The patterns
    are a buffer: an agent that is loaded knows its rows again.
    """

    keys: torch.Tensor
    seen: torch.Tensor

    def __init__(self, width: int, most: int) -> None:
        super().__init__()
        self.count = min(2**width, most)
        self.register_buffer("keys", torch.zeros((self.count, (width + 7) // 8), dtype=torch.uint8))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self._bind()

    def _bind(self) -> None:
        self._rows = {key.tobytes(): row for row, key in enumerate(self.keys.numpy()[: int(self.seen)])}

    def rows(self, observation: np.ndarray, *, add: bool = False) -> np.ndarray:
        """[B, ...] observations as [B] row numbers; a new one gets the next row with `add` and is UNSEEN without."""
        bits = observation.reshape(len(observation), -1)  # [B, width]
        ones = bits == 1
        if not (ones | (bits == 0)).all():
            raise ConfigError(
                "q_learning was shown an observation with values other than 0 and 1, so the states cannot be told apart by a table. "
                "Wrap the environment so that it observes Discrete numbers, or use an algorithm with a network (ppo)."
            )
        packed = np.packbits(ones, axis=1)
        numbers = [self._row(key, add) for key in packed]
        return np.array(numbers, dtype=np.int64)

    def _row(self, key: np.ndarray, add: bool) -> int:
        text = key.tobytes()
        row = self._rows.get(text, UNSEEN)
        if row == UNSEEN and add:
            row = len(self._rows)
            if row == self.count:
                raise ConfigError(
                    f"q_learning has seen more than {self.count} different states. Raise max_states, or use an algorithm with a network (ppo)."
                )
            self._rows[text] = row
            self.keys.numpy()[row] = key
            self.seen += 1
        return row

    @property
    def known(self) -> int:
        """Rows that stand for a state."""
        return len(self._rows)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._bind()


def state_index(space: spaces.Space, most: int) -> NumberedStates | SeenStates:
    """The index of a space of at most `most` states; a space that no table can hold is an error that says what to do."""
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        numbered = NumberedStates(space)
        if numbered.count > most:
            raise ConfigError(
                f"q_learning: {space} has {numbered.count} states, and max_states is {most}. "
                "Raise max_states, or use an algorithm with a network (ppo)."
            )
        return numbered
    if isinstance(space, spaces.MultiBinary):
        return SeenStates(math.prod(space.shape), most)
    if isinstance(space, spaces.Box) and (space.low == 0).all() and (space.high == 1).all():
        return SeenStates(math.prod(space.shape), most)
    raise ConfigError(
        f"q_learning keeps one row a state and cannot learn on observations of {space}. It takes Discrete, MultiDiscrete, MultiBinary, "
        "tuples of Discrete, and DiscreteEncoder with encoding binary or onehot. Drop a wrapper that turns numbers into something else, "
        "add one that cuts the observation into classes, or use an algorithm with a network (ppo)."
    )
