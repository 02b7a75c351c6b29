"""Minari datasets as records of a sequence replay, one episode in memory at a time.

Minari    observations[0..n], actions[0..n-1], rewards[0..n-1]: rewards[t] belongs to the step from t to t + 1
records   n + 1 of them: action[t] chosen at t and zeros at the last, reward[t] received on arriving at t and 0 at the first
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from gymlab.buffers.chunk_files import Field
from gymlab.buffers.sequence import Records, SequenceReplay
from gymlab.envs.families import require
from gymlab.errors import GymlabError, did_you_mean

ROOT = "MINARI_DATASETS_PATH"
"""Names the folder of datasets where it is not `~/.minari/datasets`."""
METADATA_LIMIT_BYTES = 16 << 20

SINGLE = "observation"
"""Key of an observation that is one array."""
Split = Callable[[np.ndarray], dict[str, np.ndarray]]
"""Observations [n, ...] to the parts that a replay stores, by key."""
EncodeAction = Callable[[np.ndarray], np.ndarray]
"""Actions [n, ...] as the environment takes them to the float vectors [n, A] that are stored."""


@dataclass(frozen=True, slots=True)
class OfflineEpisode:
    """One episode as it was recorded."""

    observations: dict[str, np.ndarray]
    """[n + 1, ...] by key; a single observation has the key `observation`."""
    actions: np.ndarray
    """[n, ...] as the environment took them."""
    rewards: np.ndarray
    """[n] float."""
    terminated: bool
    """Whether the task itself ended; otherwise it was cut off."""

    def records(self, encode_action: EncodeAction, env: int = 0) -> Records:
        """The n + 1 records of the episode, for the stream of `env`."""
        count = len(self.rewards) + 1
        encoded = np.asarray(encode_action(self.actions), np.float32)
        first, last = np.zeros((2, count), np.bool_)
        first[0] = last[-1] = True
        values = {
            **{f"observation/{key}": array for key, array in self.observations.items()},
            "action": np.concatenate([encoded, np.zeros_like(encoded, shape=(1, *encoded.shape[1:]))]),
            "reward": np.concatenate([[0.0], self.rewards]),
            "is_first": first,
            "is_last": last,
            "is_terminal": last & self.terminated,
        }
        return Records(np.full(count, env), values)


class OfflineDataset:
    """A Minari dataset on disk."""

    def __init__(self, directory: Path) -> None:
        require("minari", "A dataset", "offline")
        require("h5py", "A dataset", "offline")
        from minari.dataset.minari_storage import MinariStorage

        self.directory = directory
        metadata = _read_metadata(directory / "data" / "metadata.json")
        try:
            self._storage = MinariStorage.read(directory / "data")
        except (ValueError, KeyError, TypeError, AssertionError, OSError) as error:
            raise GymlabError(f"{directory} cannot be read as a Minari dataset: {error}.") from error
        self.observation_space: spaces.Space = self._storage.observation_space
        self.action_space: spaces.Space = self._storage.action_space
        self.total_episodes = int(metadata["total_episodes"])
        self.total_steps = int(metadata["total_steps"])
        self.lossy_images = self._storage.jpeg_encoding and any(
            field.dtype == np.uint8 and len(field.shape) == 3
            for field in observation_fields(self.observation_space).values()
        )
        """Whether pictures were stored as JPEG: they are near, but not equal, to what was seen."""

    def __iter__(self) -> Iterator[OfflineEpisode]:
        """The episodes in the order in which they were recorded."""
        for number, raw in enumerate(self._storage.get_episodes(range(self.total_episodes))):
            yield self._episode(number, raw)

    def _episode(self, number: int, raw: Mapping[str, Any]) -> OfflineEpisode:
        """The episode, if its parts agree in length and it ends where it ends."""
        observations = dict(_leaves(raw["observations"]))
        rewards = np.asarray(raw["rewards"], np.float64)
        terminations, truncations = np.asarray(raw["terminations"], bool), np.asarray(raw["truncations"], bool)
        count = len(rewards)
        lengths = {len(array) - 1 for array in observations.values()}
        lengths |= {len(raw["actions"]), len(terminations), len(truncations)}
        if lengths != {count} or isinstance(raw["actions"], dict | tuple):
            raise GymlabError(
                f"Episode {number} of {self.directory} is damaged: {count} rewards need {count + 1} observations, {count} actions and "
                "flags, and actions that are one array."
            )
        if (terminations | truncations)[:-1].any():
            raise GymlabError(f"Episode {number} of {self.directory} is damaged: it goes on after it has ended.")
        return OfflineEpisode(observations, raw["actions"], rewards, bool(terminations[-1:].any()))

    def fill(self, replay: SequenceReplay, encode_action: EncodeAction, split: Split | None = None) -> int:
        """Add all episodes to a replay, each to the stream that has the fewest records so far; how many records they are.

        `split` takes a single observation apart into what the replay stores of it.
        """
        written = [0] * replay.num_envs
        for episode in self:
            env = written.index(min(written))
            if split is not None:
                if set(episode.observations) != {SINGLE}:
                    raise GymlabError(
                        f"Observations of the dataset are nested ({', '.join(episode.observations)}); one array is expected here."
                    )
                episode = replace(episode, observations=split(episode.observations[SINGLE]))
            records = episode.records(encode_action, env)
            replay.add([records])
            written[env] += len(records.env)
        return sum(written)


def open_dataset(dataset_id: str, root: Path | None = None) -> OfflineDataset:
    """The dataset of that id below a folder of datasets, Minari's own unless one is given; or the one in the directory named."""
    if root is None and names_directory(dataset_id):
        return OfflineDataset(Path(dataset_id))
    folder = root or Path(os.environ.get(ROOT) or Path.home() / ".minari" / "datasets")
    directory = folder / dataset_id
    inside = directory.resolve().is_relative_to(folder.resolve())
    if not inside or not (directory / "data" / "metadata.json").is_file():
        known = sorted(str(path.parents[1].relative_to(folder)) for path in folder.glob("**/data/metadata.json"))
        raise GymlabError(
            f"No dataset {dataset_id!r} in {folder}. {did_you_mean(dataset_id, known)} There: {', '.join(known[:10]) or 'none'}. "
            "`gymlab record` makes one, `minari download` fetches one."
        )
    return OfflineDataset(directory)


def names_directory(dataset_id: str) -> bool:
    """Whether a name is the directory of a dataset; otherwise it is an id."""
    return (Path(dataset_id) / "data" / "metadata.json").is_file()


def observation_fields(space: spaces.Space, *, float_dtype: type = np.float32) -> dict[str, Field]:
    """What a replay stores of such observations: integers and pictures as they are, floats as `float_dtype`."""
    fields = {}
    for key, leaf in _space_leaves(space):
        if leaf.shape is None or leaf.dtype is None or leaf.dtype.kind not in "biuf":
            raise GymlabError(f"Observations {key!r} of {leaf} cannot be stored: they are no arrays of numbers.")
        fields[f"observation/{key}"] = Field(leaf.shape, float_dtype if leaf.dtype.kind == "f" else leaf.dtype)
    return fields


def one_hot(space: spaces.Discrete) -> EncodeAction:
    """Discrete actions as one-hot vectors."""
    table = np.eye(int(space.n), dtype=np.float32)
    return lambda actions: table[np.asarray(actions, np.int64) - int(space.start)]


def as_floats(space: spaces.Box) -> EncodeAction:
    """Continuous actions as vectors in the environment's own units."""
    size = math.prod(space.shape)
    return lambda actions: np.asarray(actions, np.float32).reshape(len(actions), size)


def _read_metadata(path: Path) -> dict[str, Any]:
    """The metadata, if it says all that is needed: Minari would make the environment, from what the file says, to learn its spaces."""
    try:
        if path.stat().st_size > METADATA_LIMIT_BYTES:
            raise GymlabError(f"{path} is larger than {METADATA_LIMIT_BYTES >> 20} MB and is not read.")
        metadata = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise GymlabError(f"{path} cannot be read: {error}.") from error
    needed = {"observation_space": str, "action_space": str, "total_episodes": int, "total_steps": int}
    found = metadata if isinstance(metadata, dict) else {}
    missing = [key for key, kind in needed.items() if not isinstance(found.get(key), kind)]
    if missing:
        raise GymlabError(f"{path} does not say {', '.join(missing)}. Record or export the dataset again.")
    return found


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Names and arrays of nested observations: keys joined by slashes, the parts of a tuple by their number."""
    if isinstance(value, Mapping | tuple):
        parts = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, part in parts:
            yield from _leaves(part, f"{key}/{name}" if key else str(name))
    else:
        yield key or "observation", np.asarray(value)


def _space_leaves(space: spaces.Space, key: str = "") -> Iterator[tuple[str, spaces.Space]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for name, part in parts:
            yield from _space_leaves(part, f"{key}/{name}" if key else str(name))
    else:
        yield key or "observation", space
