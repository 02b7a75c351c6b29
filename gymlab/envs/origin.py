"""Which plugin registered an environment: a command that names its id alone needs the plugin as well."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import gymnasium as gym

_PLUGINS: dict[str, str] = {}
"""By environment id, as the user gave it: a module or a file."""


@contextmanager
def registers(plugin: str) -> Iterator[None]:
    """Note the ids that are registered within as those of a plugin."""
    before = set(gym.registry)
    yield
    _PLUGINS.update(dict.fromkeys(set(gym.registry) - before, plugin))


def as_typed(env_id: str) -> str:
    """The environment as a command line names it: `Maze-v0 --plugin mazes.py`, `mazes:Maze-v0`."""
    plugin = _PLUGINS.get(env_id)
    return env_id if plugin is None else shlex.join([env_id, "--plugin", plugin])
