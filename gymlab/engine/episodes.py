"""Episodes of a run that are kept to be looked at: the best and the last ones, of training and of evaluation.

    episodes/train/best-000012.safetensors.z     observations [n + 1, ...], actions [n, ...], rewards [n], and in the header what is known of them
    episodes/test/last-000031.safetensors.z

They are packed safetensors: nothing in them can run code, and a header is held against limits before anything is read by it.
"""

from __future__ import annotations

import logging
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from gymlab.buffers.tensor_files import Header, pack, read_packed, read_packed_header
from gymlab.errors import CheckpointError
from gymlab.plain_files import replace_file

logger = logging.getLogger(__name__)

DIRECTORY = "episodes"
"""Where in a run they are."""
SPLITS: tuple[Literal["train", "test"], ...] = ("train", "test")
NAME = re.compile(r"(?P<kind>best|last)-(?P<number>\d{6,12})\.safetensors\.z")
ARRAYS = {"observations", "actions", "rewards"}


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode from its first observation to its last."""

    observations: np.ndarray
    """[n + 1, ...] as the environment gave them, after all wrappers."""
    actions: np.ndarray
    """[n, ...] as the environment took them."""
    rewards: np.ndarray
    """[n] as the agent was shown them."""
    terminated: bool
    """Whether the task itself ended; else it was cut off (`truncated`)."""
    env_return: float
    """Sum of the environment's own reward, before shaping, clipping and normalisation."""
    epoch: int
    """Of the training in which it happened."""

    @property
    def truncated(self) -> bool:
        """Whether a time limit ended it."""
        return not self.terminated

    @property
    def length(self) -> int:
        """Actions n."""
        return len(self.actions)


@dataclass(frozen=True, slots=True)
class EpisodeFile:
    """What can be said of a kept episode without reading it."""

    path: Path
    split: Literal["train", "test"]
    kind: str
    """`best` or `last`."""
    number: int
    """Later episodes of a split have higher ones."""
    env_return: float
    length: int
    """Actions."""
    epoch: int
    terminated: bool


def write_episode(path: Path, episode: Episode) -> None:
    """Write an episode to a file that is whole or absent."""
    arrays = {name: getattr(episode, name) for name in ARRAYS}
    notes = {
        "return": repr(float(episode.env_return)),
        "epoch": str(episode.epoch),
        "terminated": str(episode.terminated).lower(),
    }
    for directory in (path.parent.parent, path.parent):
        directory.mkdir(exist_ok=True)
    replace_file(path, pack(arrays, notes))


def read_episode(path: Path) -> Episode:
    """A kept episode; a file that is damaged, or is none, is an error that names it."""
    try:
        # Looked at first: what is no episode is not unpacked.
        _told(path, read_packed_header(path))
        arrays, notes = read_packed(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    terminated = notes["terminated"] == "true"
    return Episode(**arrays, terminated=terminated, env_return=float(notes["return"]), epoch=int(notes["epoch"]))


def _told(path: Path, header: Header) -> tuple[float, int, int, bool]:
    """Return, length, epoch and whether it terminated, if the file holds an episode."""
    shapes = {name: shape for name, (_, shape, _) in header.places.items()}
    if shapes.keys() != ARRAYS or not all(shapes.values()):
        raise CheckpointError(f"{path} is no episode: it holds {', '.join(sorted(shapes))[:200] or 'nothing'}.")
    length = shapes["actions"][0]
    if length < 1 or shapes["observations"][0] != length + 1 or shapes["rewards"] != (length,):
        raise CheckpointError(f"{path} is damaged: {length} actions do not fit its observations and rewards.")
    notes = header.notes
    try:
        found, epoch = float(notes["return"]), int(notes["epoch"])
        terminated = {"true": True, "false": False}[notes["terminated"]]
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: its header does not tell return, epoch and ending.") from error
    if not math.isfinite(found) or epoch < 0:
        raise CheckpointError(f"{path} is damaged: a return of {found} in epoch {epoch} makes no sense.")
    return found, length, epoch, terminated


def list_episodes(run_dir: Path) -> list[EpisodeFile]:
    """Kept episodes: of training before those of evaluation, the best by return, then the last, the newest first.

    A damaged file is passed over with a warning that names it; links are not followed.
    """
    found = [episode for split in SPLITS for episode in list_split(run_dir / DIRECTORY / split, split)]
    best = sorted((e for e in found if e.kind == "best"), key=lambda e: (-e.env_return, -e.number))
    last = sorted((e for e in found if e.kind == "last"), key=lambda e: -e.number)
    return [episode for split in SPLITS for episode in (*best, *last) if episode.split == split]


def list_split(directory: Path, split: Literal["train", "test"]) -> list[EpisodeFile]:
    """The kept episodes of one split, in no order."""
    found: list[EpisodeFile] = []
    if directory.is_symlink() or directory.parent.is_symlink() or not directory.is_dir():
        return found
    for path in sorted(directory.iterdir()):
        match = NAME.fullmatch(path.name)
        if match is None or path.is_symlink() or not path.is_file():
            continue
        try:
            told = _told(path, read_packed_header(path))
        except (CheckpointError, OSError) as error:
            logger.warning("An episode is passed over: %s", error)
            continue
        found.append(EpisodeFile(path, split, match["kind"], int(match["number"]), *told))
    return found
