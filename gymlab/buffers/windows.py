"""Which windows of a stream may be drawn: arithmetic on record numbers alone, so that it is exact, quick and the same after a resume."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gymlab.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of `size` records, and the rule of what is held out from training.

    A stream is cut into blocks of `size` records, beginning with its first. The first of every `every` blocks is held out: no window that is
    trained on overlaps it. With `every` 4 and `size` 3, H held out and s where a window may start:

        record  0 1 2 3 4 5 6 7 8 9 10 11 | 12 13 14 15 ...
                H H H s s s s s s s .  .  |  H  H  H  s ...
    """

    size: int
    every: int = 0
    """Of so many blocks one is held out; 0: none is."""

    @classmethod
    def holding_out(cls, size: int, share: float) -> Windows:
        """Hold out this share of all records, rounded to one block in a whole number of blocks."""
        if not 0 <= share <= 0.5:
            raise ConfigError(f"held_out: expected a share from 0 to 0.5 of the records, got {share}.")
        return cls(size, round(1 / share) if share else 0)

    @property
    def period(self) -> int:
        """Records after which the rule repeats itself."""
        return self.every * self.size if self.every else 1

    @property
    def starts_a_period(self) -> int:
        """Start positions among the records of a period."""
        return self.period - 2 * self.size + 1 if self.every else 1

    @property
    def first(self) -> int:
        """Number of the first start position in a period."""
        return self.size if self.every else 0

    def rank(self, index: np.ndarray) -> np.ndarray:
        """How many start positions there are before a record."""
        whole, rest = np.divmod(index, self.period)
        ranks: np.ndarray = whole * self.starts_a_period + np.clip(rest - self.first, 0, self.starts_a_period)
        return ranks

    def start(self, rank: np.ndarray) -> np.ndarray:
        """The start position with so many before it."""
        whole, rest = np.divmod(rank, self.starts_a_period)
        starts: np.ndarray = whole * self.period + self.first + rest
        return starts

    def least_starts(self, records: int) -> int:
        """Start positions that any so many records in a row have at least."""
        whole, rest = divmod(max(0, records - self.size + 1), self.period)
        return whole * self.starts_a_period + max(0, rest - (self.period - self.starts_a_period))

    def is_held_out(self, block: int) -> bool:
        """Whether a block is kept from training."""
        return self.every > 0 and block % self.every == 0

    def held_out(self, oldest: int, written: int) -> list[int]:
        """Starts of the held-out blocks that are whole in a stream."""
        if not self.every:
            return []
        return list(range(-(-oldest // self.period) * self.period, written - self.size + 1, self.period))
