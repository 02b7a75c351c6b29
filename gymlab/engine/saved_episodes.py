"""Episodes that a run has saved, whatever saved them: listed by split, read when somebody looks.

    entries = saved_episodes(run, agent)          # test, then train, the newest first
    episode = entries[0].load()
    episode.observations, episode.actions, episode.rewards

A source is a function of a run and its agent that gives entries; `SOURCES` has them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

from gymlab.buffers.chunk_files import ChunkFiles, ChunkReference, Field
from gymlab.buffers.streams import checked_rows
from gymlab.components.observation_parts import ObservationParts
from gymlab.engine.checkpoint import understood
from gymlab.engine.chunk_store import store_of
from gymlab.engine.episodes import list_episodes, read_episode
from gymlab.errors import CheckpointError
from gymlab.metrics.video import FrameReader

if TYPE_CHECKING:
    from gymlab.engine.agent import Agent
    from gymlab.engine.checkpoint import Checkpoint
    from gymlab.engine.run import Run

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = ("test", "train")
OBSERVATION = "observation/"


@dataclass(frozen=True)
class SavedEpisode:
    """What was seen and done in one episode; None where nothing was saved of it."""

    observations: np.ndarray | None = None
    """[T + 1, ...] as the agent saw them."""
    actions: np.ndarray | None = None
    """[T, ...] as the environment took them."""
    rewards: np.ndarray | None = None
    """[T] as the agent was given them."""
    frames: FrameReader | None = None
    """[T + 1] pictures, where a video is all there is."""

    @property
    def steps(self) -> int:
        """How often something was done."""
        seen = self.frames if self.observations is None else self.observations
        return 0 if seen is None else len(seen) - 1


@dataclass(frozen=True)
class EpisodeEntry:
    """One episode in the list."""

    split: Split
    source: str
    """replay, kept or video."""
    name: str
    """What people know it by."""
    length: int | None
    """Steps; None where it takes reading to know."""
    env_return: float | None
    """Sum of its rewards."""
    ending: str
    """terminated, truncated, unfinished, or empty where nobody knows."""
    load: Callable[[], SavedEpisode]


@runtime_checkable
class ActionVectors(Protocol):
    """How action vectors of replay become actions again."""

    def to_environment(self, vectors: np.ndarray) -> np.ndarray:
        """[N, A] -> the environment's actions."""


Source = Callable[["Run", "Agent"], Iterable[EpisodeEntry]]


def saved_episodes(run: Run, agent: Agent) -> list[EpisodeEntry]:
    """All that a run has kept: test, then train, each with the newest first."""
    found = [entry for source in SOURCES for entry in source(run, agent)]
    return [entry for split in SPLITS for entry in found if entry.split == split]


def from_videos(run: Run, agent: Agent) -> Iterator[EpisodeEntry]:
    """Films of episodes that the agent was tested on, in the run's videos/."""
    directory = run.dir / "videos"
    if directory.is_symlink() or not directory.is_dir():
        return
    # Films of dreams beside the truth lie there too, and are no episodes.
    films = [path for path in directory.glob("*.mp4") if path.is_file() and not path.is_symlink()]
    films = [path for path in films if not path.stem.startswith("dream_")]
    for path in sorted(films, key=lambda path: path.stat().st_mtime, reverse=True):
        yield EpisodeEntry("test", "video", path.stem, None, None, "", partial(_film, path))


def _film(path: Path) -> SavedEpisode:
    return SavedEpisode(frames=FrameReader(path))


def from_kept_episodes(run: Run, agent: Agent) -> Iterator[EpisodeEntry]:
    """The best and the last episodes, of a run with `keep_episodes`."""
    for file in list_episodes(run.dir):
        ending = "terminated" if file.terminated else "truncated"
        name = f"{file.kind}, number {file.number} of epoch {file.epoch}"
        yield EpisodeEntry(file.split, "kept", name, file.length, file.env_return, ending, partial(_kept, file.path))


def _kept(path: Path) -> SavedEpisode:
    episode = read_episode(path)
    return SavedEpisode(episode.observations, episode.actions, episode.rewards)


def from_sequence_replay(run: Run, agent: Agent) -> Iterator[EpisodeEntry]:
    """Episodes of training in the sequence replay that the newest checkpoint refers to."""
    actions = getattr(agent.workflow, "actions", None)
    if not run.checkpoints.all() or not isinstance(actions, ActionVectors):
        return
    context = agent.workflow.context
    parts = ObservationParts(context.observation_space, context.raw_observation_space)

    def take(checkpoint: Checkpoint) -> list[EpisodeEntry]:
        where = f"The part 'buffers' of {checkpoint.path}"
        with understood(where):
            found = [entry for streams in _streams(checkpoint) for entry in _episodes_of(streams, parts, actions)]
        return [replace(entry, load=partial(_load, entry.load, where)) for entry in found]

    yield from run.checkpoints.read("@last", take)


def _load(load: Callable[[], SavedEpisode], where: str) -> SavedEpisode:
    with understood(where):
        return load()


def _streams(checkpoint: Checkpoint) -> Iterator[list[RecordStream]]:
    """The streams of each sequence replay of a checkpoint, with their files open: those can be read even when they are deleted."""
    files = store_of(checkpoint.path.parent)
    for name, state in (checkpoint.read_part("buffers") or {}).items():
        if not isinstance(state, Mapping) or "streams" not in state or files.directory.is_symlink():
            continue
        files.verify({key: entry for key, entry in checkpoint.chunks.items() if key.startswith(name)}, contents=False)
        yield [RecordStream(stream, state["layout"], files) for stream in state["streams"]]


def _episodes_of(
    streams: Sequence[RecordStream], parts: ObservationParts, actions: ActionVectors
) -> Iterator[EpisodeEntry]:
    """Episodes of all streams whose beginning is still held; the newest of each stream in turns, and those that were going on at last."""
    by_age: list[tuple[bool, int, int, int, int]] = []
    for number, stream in enumerate(streams):
        first = stream.oldest + np.flatnonzero(stream.column("is_first", stream.oldest, stream.written))
        stops = [*first[1:].tolist(), stream.written]
        spans = [(start, stop) for start, stop in zip(first.tolist(), stops, strict=True) if stop - start > 1]
        is_last = stream.column("is_last", stream.oldest, stream.written)
        by_age += [
            (not is_last[stop - 1 - stream.oldest], age, number, start, stop)
            for age, (start, stop) in enumerate(reversed(spans))
        ]
    for unfinished, _, number, start, stop in sorted(by_age):
        stream = streams[number]
        reward, is_terminal = (stream.column(name, start, stop) for name in ("reward", "is_terminal"))
        ending = "unfinished" if unfinished else "terminated" if is_terminal[-1] else "truncated"
        yield EpisodeEntry(
            "train",
            "replay",
            f"environment {number}, records {start:,} to {stop - 1:,}",
            stop - start - 1,
            float(reward[1:].sum()),
            ending,
            partial(_recorded, stream, start, stop, parts, actions),
        )


def _recorded(
    stream: RecordStream, start: int, stop: int, parts: ObservationParts, actions: ActionVectors
) -> SavedEpisode:
    observed = {key: stream.column(f"{OBSERVATION}{key}", start, stop) for key in parts.shapes}
    taken = actions.to_environment(stream.column("action", start, stop - 1))
    return SavedEpisode(parts.restored(observed), taken, stream.column("reward", start, stop)[1:])


class RecordStream:
    """The records of one environment as a checkpoint refers to them: files that are looked at where they are, and the newest ones."""

    def __init__(self, state: Mapping[str, Any], layout: Mapping[str, Any], files: ChunkFiles) -> None:
        self.oldest, self.written, self._rows = int(state["oldest"]), int(state["written"]), int(layout["chunk"])
        fields = {name: Field(tuple(shape), dtype) for name, (shape, dtype) in layout["fields"].items()}
        first = self.oldest // self._rows
        self._chunks: dict[int, Mapping[str, np.ndarray]] = {
            number: files.open(ChunkReference.from_json(saved), fields, self._rows)
            for number, saved in enumerate(state["records"], first)
        }
        if state["newest"] is not None:
            number, filled = divmod(self.written, self._rows)
            self._chunks[number] = checked_rows(state["newest"]["records"], fields, filled)
        held = range(first, -(-self.written // self._rows))
        # Compared by number first: a damaged count may be too large for a list.
        if not 0 <= self.oldest <= self.written or len(self._chunks) != len(held) or list(self._chunks) != list(held):
            raise CheckpointError(f"The checkpoint's replay is damaged: records {self.oldest} to {self.written}.")

    def column(self, name: str, start: int, stop: int) -> np.ndarray:
        """A field of the records from start to stop, copied."""
        pieces = []
        for number in range(start // self._rows, -(-stop // self._rows)):
            begin = number * self._rows
            pieces.append(self._chunks[number][name][max(0, start - begin) : stop - begin])
        return np.concatenate(pieces)


SOURCES: list[Source] = [from_kept_episodes, from_videos, from_sequence_replay]
"""Where episodes of a run are looked for. One more is a function with these two arguments, appended here."""
