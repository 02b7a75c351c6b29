"""Safetensors as files that anybody may have written: the header is held against limits before anything is read or allocated by it.

    plain    <8 bytes: length of the header> <header: JSON, name -> dtype, shape, place> <the arrays, one after the other>
    packed   the same bytes, compressed by zlib: for what is read whole, such as an episode of pictures

Nothing in such a file can run code.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from gymlab.errors import CheckpointError

HEADER_LIMIT_BYTES = 1 << 20
PACKED_LIMIT_BYTES = 1 << 30
"""Most bytes that a packed file may have once it is unpacked."""
LEVEL = 1
"""Of the compression: higher ones take several times as long and save little on pictures."""
_MOST_RATIO = 1032
"""How often smaller zlib makes a file at most; one that claims to unpack to more is a lie."""
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

Place = tuple[np.dtype, tuple[int, ...], tuple[int, int]]
"""Type and shape of an array, and where in the file it is."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says about itself."""

    places: dict[str, Place]
    notes: dict[str, str]
    """Words that were written with the arrays."""
    begin: int
    """Where the arrays begin."""

    @property
    def end(self) -> int:
        """Where the last of them ends."""
        return max((high for _, _, (_, high) in self.places.values()), default=self.begin)


def read_header(path: Path) -> dict[str, Place]:
    """Type, shape and place in a plain file of each array; every number is held against the file's size before it is used."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if size < _LENGTH_BYTES or length > min(HEADER_LIMIT_BYTES, size - _LENGTH_BYTES):
            raise CheckpointError(f"{path} is no safetensors file: its header would have {length} bytes.")
        header = file.read(length)
    return _parse(path, header, size).places


def _parse(path: Path, header: bytes, size: int) -> Header:
    try:
        tree = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: its header is not JSON.") from error
    if not isinstance(tree, dict):
        raise CheckpointError(f"{path} is damaged: its header names no arrays.")
    begin = _LENGTH_BYTES + len(header)
    notes = tree.pop("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(note, str) for note in notes.values()):
        raise CheckpointError(f"{path} is damaged: the notes in its header are no texts.")
    return Header({name: _place(path, name, entry, begin, size) for name, entry in tree.items()}, notes, begin)


def _place(path: Path, name: str, entry: Any, begin: int, size: int) -> Place:
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


def pack(arrays: Mapping[str, np.ndarray], notes: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a packed file."""
    return zlib.compress(save(dict(arrays), metadata=dict(notes) if notes else None), LEVEL)


def read_packed_header(path: Path) -> Header:
    """What a packed file holds, from its first bytes alone."""
    # What is compressed is never larger than its content by more than this.
    with path.open("rb") as file:
        content = file.read(HEADER_LIMIT_BYTES + (HEADER_LIMIT_BYTES >> 10) + 64)
    return _unpack_header(path, content, path.stat().st_size)[0]


def _unpack_header(path: Path, content: bytes, size: int) -> tuple[Header, Any]:
    """The header, and the decompressor behind it."""
    unpacker = zlib.decompressobj()
    try:
        length = int.from_bytes(unpacker.decompress(content, _LENGTH_BYTES), "little")
        if not 0 < length <= HEADER_LIMIT_BYTES:
            raise CheckpointError(f"{path} is no packed safetensors file: its header would have {length} bytes.")
        header = unpacker.decompress(unpacker.unconsumed_tail, length)
    except zlib.error as error:
        raise CheckpointError(f"{path} is no packed safetensors file, or damaged: {error}.") from error
    if len(header) != length:
        raise CheckpointError(f"{path} is damaged: it ends within its header.")
    return _parse(path, header, min(PACKED_LIMIT_BYTES, size * _MOST_RATIO)), unpacker


def read_packed(
    path: Path, expected: Mapping[str, tuple[np.dtype, tuple[int, ...]]] | None = None
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays, which cannot be written to, and notes of a packed file; with `expected`, types and shapes must be just these."""
    if path.stat().st_size > PACKED_LIMIT_BYTES:
        raise CheckpointError(f"{path} is larger than {PACKED_LIMIT_BYTES >> 20} MB and is not read.")
    content = path.read_bytes()
    header, unpacker = _unpack_header(path, content, len(content))
    if expected is not None:
        check_arrays(path, header.places, expected)
    size = header.end - header.begin
    try:
        # One byte more than there should be shows whether there is more.
        body = unpacker.decompress(unpacker.unconsumed_tail, size + 1)
    except zlib.error as error:
        raise CheckpointError(f"{path} is damaged: {error}.") from error
    if len(body) != size or not unpacker.eof or unpacker.unused_data:
        raise CheckpointError(f"{path} is damaged: it does not end where its header says.")
    raw = np.frombuffer(body, np.uint8)
    arrays = {
        name: raw[low - header.begin : high - header.begin].view(dtype).reshape(shape)
        for name, (dtype, shape, (low, high)) in header.places.items()
    }
    return arrays, header.notes


def check_arrays(
    path: Path, places: Mapping[str, Place], expected: Mapping[str, tuple[np.dtype, tuple[int, ...]]]
) -> None:
    """An error that names what differs in name, type or shape."""
    found = {name: (dtype, shape) for name, (dtype, shape, _) in places.items()}
    if found != expected:
        wrong = sorted(name for name in found.keys() | expected if found.get(name) != expected.get(name))
        raise CheckpointError(
            f"{path} does not hold what the replay stores: {', '.join(wrong[:5])} differ in name, type or shape."
        )
