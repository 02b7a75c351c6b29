"""Segments of episodes, drawn by how often each episode was drawn before (Micheli et al. 2024, section 5 of Δ-IRIS' training).

    p(episode) ~ (1 / (1 + count))^alpha      t uniform in the episode      a window of `length` records around it

                        t                                            t
    past_end    . . 0 1 2 3 | 4 5          not past_end    . . 0 1 2 3
                padding on both sides                      padding on the left, and the last record has an action to choose

Every sampler counts by itself: what one component has seen often may be new to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gymlab.buffers.batches import SegmentBatch
from gymlab.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from gymlab.buffers.episodes import Episodes


class EpisodeSampler:
    """Draws batches for one component, as a buffer of the engine; its state is its counts and its generator."""

    def __init__(
        self,
        episodes: Episodes,
        name: str,
        generator: np.random.Generator,
        *,
        batch_size: int,
        length: int,
        alpha: float,
        past_end: bool,
    ) -> None:
        """Made by `Episodes.sampler`.

        alpha: 0 draws all episodes alike, 5 nearly always those that were drawn least.
        past_end: segments may run beyond an episode's end, not only begin before its start. Without, a segment's last record is real and its
            action was taken: something to go on from. An episode that ended has none such at its end.
        """
        if batch_size < 1 or length < 1 or alpha < 0:
            raise ConfigError(
                f"Sampler {name!r}: batch_size {batch_size} and length {length} must be at least 1, and alpha {alpha} at least 0."
            )
        self.episodes, self.name, self.generator = episodes, name, generator
        self.batch_size, self.length, self.alpha, self.past_end = batch_size, length, alpha, past_end
        self.frozen = False
        """While True, drawing counts nothing."""
        self._ids = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._weights = np.empty(0)

    def _align(self) -> None:
        """Follow the episodes that have come and gone. Their ids are replaced, never written to, so that the same array means no change."""
        ids = self.episodes.ids
        if ids is self._ids:
            return
        counts = np.zeros(len(ids), np.int64)
        _, here, before = np.intersect1d(ids, self._ids, assume_unique=True, return_indices=True)
        counts[here] = self._counts[before]
        self._ids, self._counts, self._weights = ids, counts, self._weigh(counts)

    def _weigh(self, counts: np.ndarray) -> np.ndarray:
        weights: np.ndarray = (1.0 + counts) ** -self.alpha
        return weights

    @property
    def counts(self) -> np.ndarray:
        """[E] how often each of `episodes.ids` was drawn."""
        self._align()
        return self._counts.copy()

    @property
    def probabilities(self) -> np.ndarray:
        """[E] how likely each of `episodes.ids` is drawn next."""
        self._align()
        shares: np.ndarray = self._weights / self._weights.sum()
        return shares

    def ready(self) -> bool:
        """Whether there is an episode to draw from."""
        return len(self.episodes) > 0

    def sample(self) -> SegmentBatch:
        """The next batch; its episodes count as drawn once more, unless `frozen`."""
        self._align()
        if not len(self._ids):
            raise IndexError("There is no episode yet: collect some before learning.")
        place, start = self._draw()
        ids, count, spread = self._ids[place], self._counts[place], float(self._counts.std())
        at = start[:, None] + np.arange(self.length)
        mask = (at >= 0) & (at < self.episodes.lengths[place][:, None])
        values = self.episodes.gather(ids, start, self.length)
        if not self.frozen:
            np.add.at(self._counts, place, 1)
            drawn = np.unique(place)
            self._weights[drawn] = self._weigh(self._counts[drawn])
        age = self.episodes.begun - 1 - ids
        return SegmentBatch(values, mask, ids, start, age, count, spread, self.name)

    def _draw(self) -> tuple[np.ndarray, np.ndarray]:
        """[B] which episodes, and where in them segments begin."""
        ends, generator = np.cumsum(self._weights), self.generator
        place = np.searchsorted(ends, generator.random(self.batch_size) * ends[-1], side="right")
        # A number just below 1 may be rounded up to the end.
        place = np.minimum(place, len(ends) - 1)
        lengths = self.episodes.lengths[place]
        if not self.past_end:
            lengths = lengths - self.episodes.ended[place]
        moment = generator.integers(lengths)
        shift = generator.integers(self.length, size=self.batch_size)
        if self.past_end:
            return place, moment - shift
        return place, np.minimum(lengths, moment + 1 + shift) - self.length

    def get_state(self) -> dict[str, Any]:
        """Counts, generator, and whether they are frozen; the episodes themselves are saved by `Episodes`."""
        self._align()
        return {
            "layout": self._layout(),
            "generator": self.generator.bit_generator.state,
            "frozen": self.frozen,
            "ids": self._ids.copy(),
            "counts": self._counts.copy(),
        }

    def _layout(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("batch_size", "length", "alpha", "past_end")}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `get_state` was, before or after the episodes do."""
        layout = self._layout()
        differing = [key for key in layout if state["layout"].get(key) != layout[key]]
        if differing:
            told = "; ".join(f"{key} {state['layout'].get(key)}, here {layout[key]}" for key in differing)
            raise CheckpointError(f"The checkpoint's sampler {self.name!r} does not fit this one: {told}.")
        ids, counts = np.array(state["ids"], np.int64), np.array(state["counts"], np.int64)
        if ids.ndim != 1 or ids.shape != counts.shape or (np.diff(ids) <= 0).any() or (counts < 0).any():
            raise CheckpointError(f"The checkpoint's sampler {self.name!r} is damaged: its counts make no sense.")
        self._ids, self._counts, self._weights = ids, counts, self._weigh(counts)
        self.generator.bit_generator.state = state["generator"]
        self.frozen = bool(state["frozen"])

    def describe(self) -> dict[str, Any]:
        """What to say before training."""
        return {f"{self.name}_batch": f"{self.batch_size} x {self.length}"}
