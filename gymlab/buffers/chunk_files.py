"""Chunk files: safetensors that are written once, named by their content, and read back as memory maps.

    <8 bytes: length of the header> <header: JSON, name -> dtype, shape, place> <the arrays, one after the other>

Nothing in such a file can run code. Its header is compared with what the reader expects, so that a wrong or hostile one is an error.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from safetensors.numpy import save

from gymlab.errors import CheckpointError

NAME = re.compile(r"[a-z0-9_-]{1,80}-[0-9a-f]{12}\.safetensors")
"""What chunk files are called; nothing else is ever opened or deleted."""
HEADER_LIMIT_BYTES = 1 << 20
_LENGTH_BYTES = 8
_DTYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.uint16,
    "I16": np.int16,
    "F16": np.float16,
    "U32": np.uint32,
    "I32": np.int32,
    "F32": np.float32,
    "U64": np.uint64,
    "I64": np.int64,
    "F64": np.float64,
}


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

    def write(self, stem: str, arrays: Mapping[str, np.ndarray]) -> ChunkReference:
        """Write arrays to a file that is whole or absent; its name is the stem and the beginning of its checksum."""
        content = save(dict(arrays))
        digest = hashlib.sha256(content).hexdigest()
        reference = ChunkReference(f"{stem}-{digest[:12]}.safetensors", len(content), digest)
        assert NAME.fullmatch(reference.name), reference.name
        self.directory.mkdir(parents=True, exist_ok=True)
        temporary = self.directory / f".{reference.name}.{os.getpid()}.tmp"
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path(reference))
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        self.held.add(reference.name)
        return reference

    def adopt(self, reference: ChunkReference, source: Path) -> None:
        """Take over a file from elsewhere: the same content under the same name, without a copy where the file system can."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self.path(reference).exists():
            try:
                os.link(source, self.path(reference))
            except OSError:
                temporary = self.directory / f".{reference.name}.{os.getpid()}.tmp"
                shutil.copyfile(source, temporary)
                os.replace(temporary, self.path(reference))
        self.held.add(reference.name)

    def open(self, reference: ChunkReference, fields: Mapping[str, Field], rows: int) -> dict[str, np.ndarray]:
        """The arrays of a file as read-only views of the disk: `rows` records of exactly these fields."""
        path = self.path(reference)
        try:
            size = path.stat().st_size
            if size != reference.size:
                raise CheckpointError(f"{path} is damaged: it has {size} bytes instead of {reference.size}.")
            places = read_header(path)
            raw = np.asarray(np.memmap(path, np.uint8, mode="r"))
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
        expected = {name: (field.dtype, (rows, *field.shape)) for name, field in fields.items()}
        found = {name: (dtype, shape) for name, (dtype, shape, _) in places.items()}
        if found != expected:
            wrong = sorted(name for name in found.keys() | expected if found.get(name) != expected.get(name))
            raise CheckpointError(
                f"{path} does not hold what the replay stores: {', '.join(wrong[:5])} differ in name, type or shape."
            )
        self.held.add(reference.name)
        return {name: raw[slice(*place)].view(dtype).reshape(shape) for name, (dtype, shape, place) in places.items()}

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


def read_header(path: Path) -> dict[str, tuple[np.dtype, tuple[int, ...], tuple[int, int]]]:
    """Type, shape and place in the file of each array; every number is held against the file's size before it is used."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if size < _LENGTH_BYTES or length > min(HEADER_LIMIT_BYTES, size - _LENGTH_BYTES):
            raise CheckpointError(f"{path} is no safetensors file: its header would have {length} bytes.")
        header = file.read(length)
    try:
        tree = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: its header is not JSON.") from error
    if not isinstance(tree, dict):
        raise CheckpointError(f"{path} is damaged: its header names no arrays.")
    begin = _LENGTH_BYTES + length
    return {name: _place(path, name, entry, begin, size) for name, entry in tree.items() if name != "__metadata__"}


def _place(
    path: Path, name: str, entry: Any, begin: int, size: int
) -> tuple[np.dtype, tuple[int, ...], tuple[int, int]]:
    try:
        dtype, shape, (low, high) = np.dtype(_DTYPES[entry["dtype"]]), tuple(entry["shape"]), entry["data_offsets"]
    except (TypeError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is damaged: the entry of {name[:80]!r} in its header makes no sense.") from error
    numbers = (*shape, low, high)
    if any(type(number) is not int or not 0 <= number <= size for number in numbers) or len(shape) > 32:
        raise CheckpointError(f"{path} is damaged: {name[:80]!r} lies outside of the file.")
    if begin + high > size or high - low != math.prod(shape) * dtype.itemsize:
        raise CheckpointError(f"{path} is damaged: {name[:80]!r} does not fill its place in the file.")
    return dtype, shape, (begin + low, begin + high)
