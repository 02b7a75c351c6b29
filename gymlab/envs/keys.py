"""Playing an environment by hand: which keys give which action.

Keys follow from what actions are called (`envs/labels.py`). A name is taken apart into words that have a key each
(`up right fire` is up, right and the space bar together), so that one table serves a joystick of 18 actions, a game with
buttons and a world of four directions. What has no word gets a number key. Continuous actions have a pair of keys for
each number.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from gymlab.envs.labels import short
from gymlab.errors import EnvironmentFailure

RESERVED = ("p", "r", "o", "h", "escape", "backspace", "+", "=", "-", ".")
"""Keys of the window itself, which no action takes."""

IDLE = ("noop", "nothing", "no push", "no torque", "idle")
"""Actions that stand for no key at all."""

WORDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("turn left",), ("left", "a")),
    **dict.fromkeys(("turn right",), ("right", "d")),
    **dict.fromkeys(("up", "north", "forward", "move forward", "move up", "main engine", "gas"), ("up", "w")),
    **dict.fromkeys(("down", "south", "backward", "move backward", "move down", "brake"), ("down", "s")),
    **dict.fromkeys(
        ("left", "steer left", "west", "move left", "push left", "left engine", "torque -1"), ("left", "a")
    ),
    **dict.fromkeys(
        ("right", "steer right", "east", "move right", "push right", "right engine", "torque +1"), ("right", "d")
    ),
    **dict.fromkeys(("fire", "attack", "do", "toggle"), ("space", "e")),
    **dict.fromkeys(("use",), ("e", "u")),
    **dict.fromkeys(("speed", "run"), ("left shift", "v")),
    **dict.fromkeys(("jump",), ("j", "x")),
    **dict.fromkeys(("select next weapon",), ("tab", "t")),
    **dict.fromkeys(("pick up",), ("g",)),
    **dict.fromkeys(("drop", "drop off"), ("f",)),
    **dict.fromkeys(("done",), ("return",)),
    **dict.fromkeys(("sleep",), ("z",)),
    # A console's pad.
    **dict.fromkeys(("b",), ("z",)),
    **dict.fromkeys(("a",), ("x",)),
    **dict.fromkeys(("c",), ("c",)),
    **dict.fromkeys(("y",), ("a",)),
    **dict.fromkeys(("x",), ("s",)),
    **dict.fromkeys(("z",), ("d",)),
    **dict.fromkeys(("l",), ("w",)),
    **dict.fromkeys(("start",), ("return",)),
    **dict.fromkeys(("select", "mode"), ("tab", "m")),
}
"""Keys of a word in the order of preference; words that stand further up choose first."""

NUMBERS = "1234567890"
LETTERS = "tyuijklbvmgcxzfewsad"
PAIRS = (("left", "right"), ("down", "up"), ("a", "d"), ("s", "w"), ("j", "l"), ("k", "i"), ("f", "t"), ("g", "y"))
"""Keys that lower and raise a number, one pair for each number of an action; numbers beyond take `LETTERS`."""

TURNS = ("Taxi", "FrozenLake", "CliffWalking", "Blackjack", "Bandit", "MiniGrid", "BabyAI", "Crafter")
"""Environments (by the beginning of their id) in which nothing happens until somebody acts: a step is taken for each key."""


@dataclass(frozen=True)
class Controls:
    """What the keys of an environment do."""

    table: list[tuple[str, str]]
    """Key and what it does, for people."""
    keys: frozenset[str]
    """Every key that means something."""
    waits: bool
    """Whether the environment stands still until a key is pressed."""
    _choose: Any = field(repr=False)

    def action(self, pressed: frozenset[str], last: Any = None) -> Any:
        """The action for the keys that are down; None: stand still. `last` goes on where an environment has no idle action."""
        return self._choose(pressed & self.keys, last)


def controls_of(space: gym.Space, labels: Sequence[str], env_id: str = "") -> Controls:
    """The keys for a space whose actions, buttons or numbers are called `labels`."""
    waits = env_id.partition(":")[2].startswith(TURNS) or env_id.startswith(TURNS)
    if isinstance(space, gym.spaces.Discrete):
        return _discrete(space, labels, waits)
    if isinstance(space, gym.spaces.MultiBinary):
        return _buttons(space, labels, waits)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return _choices(space, labels, waits)
    if isinstance(space, gym.spaces.Box) and space.dtype is not None and np.dtype(space.dtype).kind == "f":
        return _numbers(space, labels, waits)
    raise EnvironmentFailure(f"Actions in {space} cannot be played with a keyboard.")


def _discrete(space: gym.spaces.Discrete, labels: Sequence[str], waits: bool) -> Controls:
    first = int(space.start)
    words = [_words(label) for label in labels]
    keys = _keys_of([word for action in words for word in action])
    aliases = _aliases(labels, keys)
    chords = {frozenset(keys[word] for word in action): first + index for index, action in enumerate(words)}
    idle = chords.pop(frozenset(), None)
    if waits and idle is not None:
        # Where nothing happens by itself, letting a turn go by is a key, too.
        keys["wait"] = next(key for key in ("return", "n", "m") if key not in keys.values())
        chords[frozenset([keys["wait"]])] = idle

    def choose(pressed: frozenset[str], last: Any) -> Any:
        down = frozenset(aliases.get(key, key) for key in pressed)
        if down in chords:
            return chords[down]
        # Of keys that mean nothing together, as many as do.
        fitting = [chord for chord in chords if chord <= down]
        if fitting:
            return chords[max(fitting, key=len)]
        if waits:
            return None
        return last if idle is None else idle

    single = {action[0]: label for action, label in zip(words, labels, strict=True) if len(action) == 1}
    table = [(_with_aliases(key, aliases), single.get(word, word)) for word, key in keys.items()]
    if idle is not None and not waits:
        table.append(("nothing", labels[idle - first]))
    elif not waits:
        table.append(("nothing", "goes on with the last action"))
    combined = [label for action, label in zip(words, labels, strict=True) if len(action) > 1]
    if combined:
        table.append(("together", f"keys combine: {combined[0]}"))
    return Controls(table, frozenset(keys.values()) | frozenset(aliases), waits, choose)


def _buttons(space: gym.spaces.MultiBinary, labels: Sequence[str], waits: bool) -> Controls:
    keys = _keys_of(labels)
    order = [keys[label] for label in labels]

    def choose(pressed: frozenset[str], last: Any) -> Any:
        if waits and not pressed:
            return None
        return np.array([key in pressed for key in order], dtype=space.dtype).reshape(space.shape)

    return Controls([(keys[label], label) for label in labels], frozenset(order), waits, choose)


def _choices(space: gym.spaces.MultiDiscrete, labels: Sequence[str], waits: bool) -> Controls:
    """Each value but the first of each part has a key."""
    sizes, starts = space.nvec.ravel(), space.start.ravel()
    values = [(part, value) for part, size in enumerate(sizes) for value in range(1, int(size))]
    keys = dict(zip(values, _free(()), strict=False))
    if len(keys) < len(values):
        raise EnvironmentFailure(f"{space} has {len(values)} choices; the keyboard has keys for {len(keys)}.")

    def choose(pressed: frozenset[str], last: Any) -> Any:
        if waits and not pressed:
            return None
        chosen = np.array(starts)
        for (part, value), key in keys.items():
            if key in pressed:
                chosen[part] = starts[part] + value
        return chosen.reshape(space.shape).astype(space.dtype)

    table = [(key, f"{labels[part]} = {starts[part] + value}") for (part, value), key in keys.items()]
    return Controls(table, frozenset(keys.values()), waits, choose)


def _numbers(space: gym.spaces.Box, labels: Sequence[str], waits: bool) -> Controls:
    """A pair of keys for a number with two sides, one key for a number with one, each to the end of its range."""
    low, high = (
        np.where(np.isfinite(bound), bound, end).ravel() for bound, end in ((space.low, -1.0), (space.high, 1.0))
    )
    rest = np.clip(0.0, low, high)
    effects: dict[str, tuple[int, float]] = {}
    table = []
    for index, label in enumerate(labels):
        name = short(label)
        if low[index] < rest[index] < high[index]:
            down, up = _pair(name, effects)
            effects |= {down: (index, low[index]), up: (index, high[index])}
            table += [(down, f"{name} {low[index]:+g}"), (up, f"{name} {high[index]:+g}")]
        else:
            key = next(itertools.chain(_preferred(name, effects), _free(effects)), None)
            if key is None:
                raise _too_many(len(labels))
            far = high[index] if rest[index] == low[index] else low[index]
            effects[key] = (index, far)
            table.append((key, f"{name} {far:+g}"))
    table.append(("nothing", "0" if not rest.any() else "the middle of each range"))

    def choose(pressed: frozenset[str], last: Any) -> Any:
        if waits and not pressed:
            return None
        action = rest.copy()
        for key in pressed:
            index, value = effects[key]
            # Both keys of a pair together are none.
            action[index] = rest[index] if action[index] not in (rest[index], value) else value
        return action.reshape(space.shape).astype(space.dtype)

    return Controls(table, frozenset(effects), waits, choose)


def _pair(name: str, taken: dict[str, Any]) -> tuple[str, str]:
    """Two free keys; an engine that lifts is raised with the arrow that points up."""
    pairs = sorted(PAIRS, key=lambda pair: pair[1] not in WORDS.get(name, ()))
    for pair in pairs:
        if not any(key in taken for key in pair):
            return pair
    free = list(itertools.islice(_free(taken), 2))
    if len(free) < 2:
        raise _too_many(len(taken) // 2 + 1)
    return free[0], free[1]


def _too_many(count: int) -> EnvironmentFailure:
    return EnvironmentFailure(f"An action of {count} numbers needs more keys than a keyboard has.")


def _words(label: str) -> list[str]:
    """What has a key of its own in a label: `move forward and attack` has two, `up right fire` three, `nothing` none."""
    plain = re.sub(r"\(.*?\)", "", label.lower()).strip()
    plain = re.sub(r"\s+", " ", plain)
    if plain in IDLE:
        return []
    found: list[str] = []
    for part in plain.split(" and "):
        words = part.split(" ")
        found += words if part not in WORDS and all(word in WORDS for word in words) else [part]
    return found


def _keys_of(words: Sequence[str]) -> dict[str, str]:
    """A key for each word: the known ones choose in the order of the table, the others get what is free."""
    keys: dict[str, str] = {}
    wanted = list(dict.fromkeys(words))
    order = {word: place for place, word in enumerate(WORDS)}
    for word in sorted(wanted, key=lambda word: order.get(word, len(order))):
        key = next(_preferred(word, keys.values()), None)
        if key is not None:
            keys[word] = key
    free = _free(keys.values())
    for word in wanted:
        if word not in keys:
            key = next(free, None)
            if key is None:
                raise EnvironmentFailure(f"{len(wanted)} actions need more keys than a keyboard has.")
            keys[word] = key
    return keys


def _preferred(word: str, taken: Any) -> Iterator[str]:
    taken = set(taken)
    known = (word,) if len(word) == 1 and word in NUMBERS else WORDS.get(word, ())
    return (key for key in known if key not in taken)


def _free(taken: Any) -> Iterator[str]:
    taken = set(taken)
    return iter([key for key in NUMBERS + LETTERS if key not in taken])


def _aliases(labels: Sequence[str], keys: dict[str, str]) -> dict[str, str]:
    """Further keys for what a label says in brackets: Pong's `right (up)` listens to both arrows."""
    aliases = {}
    for label in labels:
        words, said = _words(label), re.search(r"\((\w+)\)", label)
        if said is None or len(words) != 1:
            continue
        key = next(iter(WORDS.get(said[1], ())), None)
        if key is not None and key not in keys.values():
            aliases[key] = keys[words[0]]
    return aliases


def _with_aliases(key: str, aliases: dict[str, str]) -> str:
    return " or ".join([key, *(other for other, meant in aliases.items() if meant == key)])
