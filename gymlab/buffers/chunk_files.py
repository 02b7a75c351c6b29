"""Chunk files: safetensors that are written once and named by their content.

Plain ones are read back as memory maps, packed ones whole. A header is compared with what the reader expects, so that a wrong or hostile file is an error.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from safetensors.numpy import save

from gymlab.buffers.tensor_files import check_arrays, pack, read_header, read_packed
from gymlab.errors import CheckpointError
from gymlab.plain_files import replace_file, replacing

NAME = re.compile(r"[a-z0-9_-]{1,80}-[0-9a-f]{12}\.safetensors(\.z)?")
"""What chunk files are called, `.z` where they are packed; nothing else is ever opened or deleted."""


@dataclass(frozen=True, slots=True, init=False)
class Field:
    """What one record holds under a name."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "dtype", np.dtype(dtype))

    @property
    def nbytes(self) -> int:
        """Bytes of one record."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class ChunkReference:
    """How a checkpoint names a chunk file, and knows it again."""

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, stem: str, size: int, digest: bytes, *, packed: bool = False) -> ChunkReference:
        """The reference to a file with this content."""
        name = f"{stem}-{digest.hex()[:12]}.safetensors{'.z' if packed else ''}"
        assert NAME.fullmatch(name), name
        return cls(name, size, digest.hex())

    @classmethod
    def from_json(cls, data: Any) -> ChunkReference:
        """A reference as `to_json` wrote it; one that could lead out of the directory is refused."""
        if (
            not isinstance(data, Mapping)
            or data.keys() != {"name", "size", "sha256"}
            or not isinstance(data["name"], str)
            or not NAME.fullmatch(data["name"])
            or not isinstance(data["size"], int)
            or not isinstance(data["sha256"], str)
        ):
            raise CheckpointError(f"A checkpoint refers to {str(data)[:200]!r}, which is no chunk file. It is damaged.")
        return cls(data["name"], data["size"], data["sha256"])

    def to_json(self) -> dict[str, Any]:
        """Name, size and checksum for a checkpoint's state."""
        return asdict(self)


class ChunkFiles:
    """A directory of chunk files. Whoever writes or opens one holds it; `release` gives it up, and here that deletes it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.held: set[str] = set()
        """Names of the files that a buffer needs."""

    def path(self, reference: ChunkReference) -> Path:
        """Where a file is."""
        return self.directory / reference.name

    def write(self, stem: str, arrays: Mapping[str, np.ndarray], *, packed: bool = False) -> ChunkReference:
        """Write arrays to a file that is whole or absent; its name is the stem and the beginning of its checksum."""
        content = pack(arrays) if packed else save(dict(arrays))
        reference = ChunkReference.of(stem, len(content), hashlib.sha256(content).digest(), packed=packed)
        self.directory.mkdir(exist_ok=True)
        replace_file(self.path(reference), content)
        self.held.add(reference.name)
        return reference

    def adopt(self, reference: ChunkReference, source: Path) -> None:
        """Take over a file from elsewhere: the same content under the same name, without a copy where the file system can."""
        self.directory.mkdir(exist_ok=True)
        if not self.path(reference).exists():
            try:
                os.link(source, self.path(reference))
            except OSError:
                with replacing(self.path(reference)) as temporary:
                    shutil.copyfile(source, temporary)
        self.held.add(reference.name)

    def open(self, reference: ChunkReference, fields: Mapping[str, Field], rows: int) -> dict[str, np.ndarray]:
        """The arrays of a file as read-only views of the disk: `rows` records of exactly these fields."""
        path = self.path(reference)
        with _readable(path, reference.size):
            places = read_header(path)
            check_arrays(path, places, _expected(fields, rows))
            raw = np.asarray(np.memmap(path, np.uint8, mode="r"))
        self.held.add(reference.name)
        return {name: raw[slice(*place)].view(dtype).reshape(shape) for name, (dtype, shape, place) in places.items()}

    def read(self, reference: ChunkReference, fields: Mapping[str, Field], rows: int) -> dict[str, np.ndarray]:
        """The arrays of a packed file, which cannot be written to: `rows` records of exactly these fields."""
        path = self.path(reference)
        with _readable(path, reference.size):
            arrays, _ = read_packed(path, _expected(fields, rows))
        self.held.add(reference.name)
        return arrays

    def hold(self, reference: ChunkReference) -> None:
        """Keep a file that will be read later."""
        with _readable(self.path(reference), reference.size):
            self.held.add(reference.name)

    def release(self, reference: ChunkReference) -> None:
        """The buffer needs this file no more. What is mapped stays readable."""
        self.held.discard(reference.name)
        self.path(reference).unlink(missing_ok=True)

    @property
    def nbytes(self) -> int:
        """Bytes of the files that are there."""
        total = 0
        if self.directory.is_dir():
            for path in self.directory.iterdir():
                # Another process may be cleaning up.
                with suppress(FileNotFoundError):
                    total += path.stat().st_size
        return total


@contextmanager
def _readable(path: Path, size: int) -> Iterator[None]:
    """Read a file that has the size that it should have; what the system says against it becomes an error that names the file."""
    try:
        found = path.stat().st_size
        if found != size:
            raise CheckpointError(f"{path} is damaged: it has {found} bytes instead of {size}.")
        yield
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error


def _expected(fields: Mapping[str, Field], rows: int) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    return {name: (field.dtype, (rows, *field.shape)) for name, field in fields.items()}
