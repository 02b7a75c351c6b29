"""What the actions of an environment are called: by the emulator or the game itself, else by the experiment's spec."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from gymlab.envs.buttons import ButtonActions

MINIGRID = {"left": "turn left", "right": "turn right", "pickup": "pick up"}
"""MiniGrid's names of actions in plain words."""

GYMNASIUM = {
    "AcrobotEnv": ("torque -1", "no torque", "torque +1"),
    "BlackjackEnv": ("stick", "hit"),
    "CarRacing": ("nothing", "steer right", "steer left", "gas", "brake"),
    "CartPoleEnv": ("push left", "push right"),
    "CliffWalkingEnv": ("up", "right", "down", "left"),
    "FrozenLakeEnv": ("left", "down", "right", "up"),
    "LunarLander": ("nothing", "left engine", "main engine", "right engine"),
    "MountainCarEnv": ("push left", "no push", "push right"),
    "TaxiEnv": ("south", "north", "east", "west", "pick up", "drop off"),
}
"""Gymnasium's own environments by class, for variants of them (`FrozenLake8x8-v1`) that no experiment describes."""


def action_labels(env: gym.Env, spec: dict[str, Any] | None = None) -> list[str]:
    """A name for each action of a Discrete, each button of a MultiBinary, each number of a Box; numbers where nothing is known.

    `spec` is the `action_space` of an experiment's spec: `labels` by action, or `components`. It counts the actions of
    the environment itself, so that a wrapper that renames actions renames their labels.
    """
    space = env.action_space
    if isinstance(space, gym.spaces.Discrete):
        own = env.unwrapped.action_space
        names = _spec_labels(spec, own) or next(filter(None, map(_named_actions, layers(env))), [])
        numbers = next((layer.mapping for layer in layers(env) if hasattr(layer, "mapping")), range(int(space.n)))
        return [names[number] if number < len(names) else str(number + int(space.start)) for number in numbers]
    count = int(np.prod(space.shape or (1,)))
    known = [str(name) for name in (spec or {}).get("components", ())]
    known = known or next(filter(None, map(_named_buttons, layers(env))), [])
    return known if len(known) == count else [f"action {index}" for index in range(count)]


def action_text(action: Any, labels: list[str], space: gym.Space) -> str:
    """An action in words: `push left`, `LEFT + B`, `steering 0.250, gas 1.000`."""
    if isinstance(space, gym.spaces.Discrete):
        return labels[int(action) - int(space.start)]
    values = np.asarray(action).ravel()
    if isinstance(space, gym.spaces.MultiBinary):
        return " + ".join(name for name, on in zip(labels, values, strict=True) if on) or "nothing"
    if isinstance(space, gym.spaces.MultiDiscrete):
        return ", ".join(f"{name} {value}" for name, value in zip(labels, values, strict=True))
    return ", ".join(f"{short(name)} {value:+.2f}" for name, value in zip(labels, values, strict=True))


def short(label: str) -> str:
    """A component without its range: `steering` of `steering from -1 to 1`."""
    return re.split(r" from | \(|,", label)[0]


def _spec_labels(spec: dict[str, Any] | None, space: gym.Space) -> list[str]:
    """The spec's labels in order, if they are for as many actions as the environment has."""
    labels = {int(action): str(label) for action, label in (spec or {}).get("labels", {}).items()}
    if not isinstance(space, gym.spaces.Discrete) or len(labels) != int(space.n):
        return []
    return [labels.get(action, str(action)) for action in range(int(space.start), int(space.start) + int(space.n))]


def _named_actions(layer: Any) -> list[str]:
    """What an environment or a wrapper calls its discrete actions itself."""
    if "action_names" in dir(layer):
        return list(layer.action_names)
    buttons = vars(layer).get("buttons")
    if isinstance(buttons, ButtonActions) and isinstance(buttons.space, gym.spaces.Discrete):
        pressed = [buttons.pressed(action) for action in range(int(buttons.space.n))]
        return [" and ".join(_plain(name) for name in names) or "nothing" for names in pressed]
    members = getattr(vars(layer).get("actions"), "__members__", {})
    return [MINIGRID.get(name, name) for name in members] or list(GYMNASIUM.get(type(layer).__name__, ()))


def _named_buttons(layer: Any) -> list[str]:
    """Names of the buttons of a game that takes each on its own."""
    buttons = vars(layer).get("buttons")
    return [_plain(name) for name in buttons.names] if isinstance(buttons, ButtonActions) else []


def _plain(button: str) -> str:
    return button.replace("_", " ").lower()


def layers(env: gym.Env) -> Iterator[gym.Env]:
    """An environment with its wrappers, the outermost first."""
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env
    yield env
