"""Pictures of an episode, kept compressed: each different one once, made visible when it is asked for."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator

import numpy as np
from PIL import Image

MOST_PNG_PIXELS = 100_000
"""Larger pictures are kept as JPEG: a PNG of them takes longer to make than the step it shows."""
JPEG_QUALITY = 92


class Frames:
    """A list of pictures [height, width, 3] or [height, width], uint8. Equal ones share their bytes."""

    def __init__(self, *, lossless: bool = False) -> None:
        self.lossless = lossless
        self.nbytes = 0
        self._blobs: list[bytes] = []
        self._places: list[int] = []
        self._seen: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, picture: np.ndarray) -> None:
        """Append a picture; transparency is left out."""
        if picture.ndim == 3:
            picture = picture[:, :, 0] if picture.shape[2] == 1 else picture[:, :, :3]
        pixels = np.ascontiguousarray(picture)
        digest = hashlib.sha1(pixels.data, usedforsecurity=False).digest()
        place = self._seen.get(digest)
        if place is None:
            place = self._seen[digest] = len(self._blobs)
            self._blobs.append(png(pixels) if self.lossless else encoded(pixels))
            self.nbytes += len(self._blobs[-1])
        self._places.append(place)

    def blob(self, index: int) -> bytes:
        """The compressed picture, as it was stored."""
        return self._blobs[self._places[index]]

    def pixels(self, index: int) -> np.ndarray:
        """The picture itself."""
        return decode(self.blob(index))

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self.pixels(index) for index in range(len(self)))


def encoded(pixels: np.ndarray) -> bytes:
    """A picture as PNG; a large one as JPEG."""
    if pixels.shape[0] * pixels.shape[1] <= MOST_PNG_PIXELS:
        return png(pixels)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=JPEG_QUALITY, subsampling=0)
    return out.getvalue()


def png(pixels: np.ndarray) -> bytes:
    """A picture as PNG, made quickly rather than small."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", compress_level=3)
    return out.getvalue()


def decode(blob: bytes) -> np.ndarray:
    """The pixels of a PNG or a JPEG."""
    with Image.open(io.BytesIO(blob)) as image:
        return np.array(image)


def media_type(blob: bytes) -> str:
    """image/png or image/jpeg, by its first bytes."""
    return "image/png" if blob.startswith(b"\x89PNG") else "image/jpeg"


class Film:
    """How an image observation [k * C, H, W] lies in one wide picture: k frames side by side, the oldest on the left."""

    def __init__(self, shape: tuple[int, ...], frame_stack: int) -> None:
        channels, self.height, self.width = shape
        stack = frame_stack if channels % max(1, frame_stack) == 0 else 1
        colours = channels // stack
        # Planes that are no colours are shown one by one.
        self.colours = colours if colours in (1, 3) else 1
        self.count = channels // self.colours

    def strip(self, observation: np.ndarray) -> np.ndarray:
        """[k * C, H, W] -> [H, k * W] or [H, k * W, 3]."""
        frames = observation.reshape(self.count, self.colours, self.height, self.width)
        picture = frames.transpose(2, 0, 3, 1).reshape(self.height, self.count * self.width, self.colours)
        return picture[:, :, 0] if self.colours == 1 else picture

    def newest(self, strip: np.ndarray) -> np.ndarray:
        """The frame on the right."""
        return strip[:, (self.count - 1) * self.width :]

    def observation(self, strip: np.ndarray) -> np.ndarray:
        """[H, k * W(, 3)] -> [k * C, H, W]: what `strip` was made of."""
        frames = strip.reshape(self.height, self.count, self.width, self.colours)
        return frames.transpose(1, 3, 0, 2).reshape(self.count * self.colours, self.height, self.width)
