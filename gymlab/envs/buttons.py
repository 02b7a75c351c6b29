"""Actions as sets of buttons, for games that are played with several at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from gymlab.errors import ConfigError, did_you_mean

ButtonSets = str | Sequence[Sequence[str]]
"""`discrete`, `combinations`, `multi_binary`, or lists of button names."""


class ButtonActions:
    """What the agent chooses from, and the buttons that each choice presses.

    discrete      0 nothing, then one button each, in their order
    combinations  every set of at most `most` buttons, as one Discrete: nothing first, small sets before large ones
    multi_binary  each button on its own
    [[...], ...]  a Discrete over lists of button names
    """

    def __init__(self, names: Sequence[str], actions: ButtonSets = "discrete", most: int = 2) -> None:
        self.names = list(names)
        self._table: np.ndarray | None = None
        count = len(self.names)
        if actions == "multi_binary":
            self.space: gym.Space = gym.spaces.MultiBinary(count)
            return
        sets = self._sets(actions, most)
        self._table = np.zeros((len(sets), count), dtype=np.int8)
        for row, chosen in zip(self._table, sets, strict=True):
            row[list(chosen)] = 1
        self.space = gym.spaces.Discrete(len(sets))

    def _sets(self, actions: ButtonSets, most: int) -> list[tuple[int, ...]]:
        count = len(self.names)
        if actions == "discrete":
            return [(), *((index,) for index in range(count))]
        if actions == "combinations":
            if not 1 <= most <= count:
                raise ConfigError(f"env_kwargs.max_buttons is {most}; expected 1 to {count}, the number of buttons.")
            return [chosen for size in range(most + 1) for chosen in itertools.combinations(range(count), size)]
        if isinstance(actions, str) or not actions or any(isinstance(chosen, str) for chosen in actions):
            raise ConfigError(
                f"env_kwargs.actions is {actions!r}; expected discrete, combinations, multi_binary or lists of button "
                f"names such as [[], [{self.names[0]}]]."
            )
        return [tuple(self._place(name) for name in chosen) for chosen in actions]

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise ConfigError(
                f"env_kwargs.actions names the button {name!r}. {did_you_mean(name, self.names)} "
                f"Known: {', '.join(self.names)}."
            )
        return self.names.index(name)

    def switches(self, action: Any) -> np.ndarray:
        """0 or 1 for each button."""
        return action if self._table is None else self._table[int(action)]

    def pressed(self, action: Any) -> list[str]:
        """Names of the buttons that an action presses."""
        return [name for name, on in zip(self.names, self.switches(action), strict=True) if on]
