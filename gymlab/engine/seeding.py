"""One tree of seeds: run seed -> purpose -> environment index -> episode index. No two leaves share a stream."""

from __future__ import annotations

import zlib

import numpy as np


class SeedTree:
    """A node of the tree. `child` goes down by name or number; a leaf gives an integer seed or a generator."""

    def __init__(self, seed: int, path: tuple[int, ...] = ()) -> None:
        self.seed = seed
        self.path = path

    def child(self, *keys: str | int) -> SeedTree:
        """The node below this one; names are hashed the same way on every machine."""
        steps = tuple(zlib.crc32(key.encode()) if isinstance(key, str) else key for key in keys)
        return SeedTree(self.seed, self.path + steps)

    def _sequence(self) -> np.random.SeedSequence:
        return np.random.SeedSequence(entropy=self.seed, spawn_key=self.path)

    def integer(self) -> int:
        """A seed in [0, 2**63): so many episodes can be drawn that no two of a run share one."""
        return int(self._sequence().generate_state(1, np.uint64)[0] >> np.uint64(1))

    def generator(self) -> np.random.Generator:
        """A fresh generator that starts at this node's stream."""
        return np.random.Generator(np.random.PCG64(self._sequence()))
