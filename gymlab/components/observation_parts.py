"""What a world model observes: images by name, and everything else as one vector."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from gymnasium import Space, spaces

from gymlab.components.discrete_parts import DiscreteParts
from gymlab.components.observation import ObservationEncoder
from gymlab.envs.spaces import leaves

VECTOR = "vector"
"""Key of everything observed that is no image."""
IMAGE = "image"
"""Key of the image where nothing else is observed."""
COLOURS = (1, 3, 4)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A part of a nested observation, at its place in the flat vector that environments give."""

    place: slice
    shape: tuple[int, ...]
    """[C, H, W] of an image; () for other numbers."""
    channels_last: bool = False


class ObservationParts:
    """Takes a batch of observations apart, and puts it together again.

    `nested` is the space before dicts and tuples were flattened; its uint8 boxes of rank 3 become images of their own, stored
    in bytes. Images are channel first throughout.
    """

    def __init__(self, space: Space, nested: Space | None = None) -> None:
        self.space = space
        self.images: dict[str, Leaf] = {}
        self.rest: list[slice] = []
        self.discrete = DiscreteParts()
        """Where in the vector one-hots and bits are."""
        self.encoder: ObservationEncoder | None = None
        if isinstance(nested, spaces.Dict | spaces.Tuple):
            self._take_apart(nested)
        else:
            self.encoder = ObservationEncoder(space)
            self.discrete = _discrete_parts([space])

    def _take_apart(self, nested: Space) -> None:
        start, others = 0, []
        for path, leaf in leaves(nested):
            name = ".".join(map(str, path))
            place = slice(start, start := start + spaces.flatdim(leaf))
            if isinstance(leaf, spaces.Box) and leaf.dtype == np.uint8 and len(leaf.shape) == 3:
                last = leaf.shape[-1] in COLOURS and leaf.shape[0] not in COLOURS
                height, width, channels = leaf.shape if last else (*leaf.shape[1:], leaf.shape[0])
                self.images[name] = Leaf(place, (channels, height, width), last)
            else:
                self.rest.append(place)
                others.append(leaf)
        self.discrete = _discrete_parts(others)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each part."""
        if self.encoder is not None:
            return {IMAGE if self.encoder.is_image else VECTOR: self.encoder.output_shape}
        shapes = {name: leaf.shape for name, leaf in self.images.items()}
        if self.rest:
            shapes[VECTOR] = (sum(place.stop - place.start for place in self.rest),)
        return shapes

    def split(self, observation: np.ndarray) -> dict[str, np.ndarray]:
        """[N, ...] -> each part [N, ...]: images in bytes, the vector in float32."""
        if self.encoder is not None:
            return {IMAGE if self.encoder.is_image else VECTOR: self.encoder.encode(observation)}
        parts = {}
        for name, leaf in self.images.items():
            pixels = observation[:, leaf.place].astype(np.uint8)
            channels, height, width = leaf.shape
            if leaf.channels_last:
                pixels = pixels.reshape(-1, height, width, channels).transpose(0, 3, 1, 2)
            parts[name] = np.ascontiguousarray(pixels.reshape(-1, *leaf.shape))
        if self.rest:
            vectors = [observation[:, place] for place in self.rest]
            parts[VECTOR] = np.concatenate(vectors, axis=1, dtype=np.float32)
        return parts

    def join(self, parts: Mapping[str, np.ndarray]) -> np.ndarray:
        """Parts that a model made up, in the shape and units of the environment's observations."""
        if self.encoder is not None:
            (values,) = parts.values()
            if isinstance(self.space, spaces.Discrete):
                return values.argmax(-1) + self.space.start
            if isinstance(self.space, spaces.MultiDiscrete):
                parts_of = np.split(values, np.cumsum(self.space.nvec.ravel())[:-1], axis=-1)
                numbers = np.stack([part.argmax(-1) for part in parts_of], axis=-1)
                return numbers.reshape(len(values), *self.space.shape) + self.space.start
            shape = self.space.shape or ()
            return values.reshape(len(values), *shape) if math.prod(shape) == values[0].size else values
        flat = np.empty((len(next(iter(parts.values()))), *(self.space.shape or ())), np.float32)
        for name, leaf in self.images.items():
            pixels = parts[name].transpose(0, 2, 3, 1) if leaf.channels_last else parts[name]
            flat[:, leaf.place] = pixels.reshape(len(pixels), -1)
        start = 0
        for place in self.rest:
            flat[:, place] = parts[VECTOR][:, start : (start := start + place.stop - place.start)]
        return flat

    def restored(self, parts: Mapping[str, np.ndarray]) -> np.ndarray:
        """The same as the environment could have given it: in its type, whole where that is, and within its bounds."""
        joined, dtype = self.join(parts), self.space.dtype
        assert dtype is not None
        if self.encoder is None and VECTOR in parts:
            joined = self.join({**parts, VECTOR: self._decided(parts[VECTOR])})
        if isinstance(self.space, spaces.Box):
            joined = np.clip(joined, self.space.low, self.space.high)
        if isinstance(self.space, spaces.MultiBinary):
            return (joined > 0.5).astype(dtype)
        return (joined if np.issubdtype(dtype, np.floating) else np.rint(joined)).astype(dtype)

    def _decided(self, vectors: np.ndarray) -> np.ndarray:
        """[N, V] with one-hots and bits where there were probabilities."""
        vectors, rows = vectors.copy(), np.arange(len(vectors))
        for start, length in self.discrete.choices:
            chosen = vectors[:, start : start + length].argmax(-1)
            vectors[:, start : start + length] = 0
            vectors[rows, start + chosen] = 1
        bits = list(self.discrete.bits)
        vectors[:, bits] = vectors[:, bits] > 0.5
        return vectors


def _discrete_parts(leaves_in_order: Sequence[Space]) -> DiscreteParts:
    """Where the discrete ones among these are, one after the other in a vector."""
    choices: list[tuple[int, int]] = []
    bits: list[int] = []
    start = 0
    for leaf in leaves_in_order:
        if isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete):
            sizes = [int(leaf.n)] if isinstance(leaf, spaces.Discrete) else leaf.nvec.ravel().tolist()
            choices += zip(np.cumsum([start, *sizes[:-1]]).tolist(), sizes, strict=True)
        elif isinstance(leaf, spaces.MultiBinary):
            bits += range(start, start + spaces.flatdim(leaf))
        start += spaces.flatdim(leaf)
    return DiscreteParts(tuple(choices), tuple(bits))
