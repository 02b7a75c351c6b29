"""The chunk files of a run: written once, referred to by checkpoints, deleted when neither a checkpoint nor a buffer needs them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from gymlab.buffers.chunk_files import NAME, ChunkFiles, ChunkReference
from gymlab.engine.files import sha256, sync
from gymlab.errors import CheckpointError

logger = logging.getLogger(__name__)

DIRECTORY = "replay"
"""Where in a run they are."""
_READERS = 4


@runtime_checkable
class ChunkedBuffer(Protocol):
    """A buffer too large to be copied into every checkpoint: its state refers to files that it has written."""

    def attach(self, files: ChunkFiles, name: str) -> None:
        """Where its files lie; called before the first step and before `set_state`."""

    def references(self) -> list[ChunkReference]:
        """The files that the state, as last given, refers to."""


def attach_buffers(buffers: Mapping[str, Any], files: ChunkFiles) -> None:
    """Tell the buffers that have files where to put them."""
    for name, buffer in buffers.items():
        if isinstance(buffer, ChunkedBuffer):
            buffer.attach(files, name)


def referenced_by(buffers: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Size and checksum by name of the files that the state of these buffers refers to: what a manifest says of them."""
    return {
        reference.name: {"size": reference.size, "sha256": reference.sha256}
        for buffer in buffers.values()
        if isinstance(buffer, ChunkedBuffer)
        for reference in buffer.references()
    }


class ChunkStore(ChunkFiles):
    """The directory of a run. Several checkpoints may refer to one file, so that `release` alone deletes nothing."""

    def release(self, reference: ChunkReference) -> None:
        """The buffer needs this file no more; it goes at the next `collect` unless a checkpoint refers to it."""
        self.held.discard(reference.name)

    def collect(self, referenced: Iterable[str]) -> None:
        """Delete files that neither a checkpoint nor a buffer needs, and what a kill left half written; links are none of ours."""
        if self.directory.is_symlink() or not self.directory.is_dir():
            return
        needed = self.held | set(referenced)
        for path in self.directory.iterdir():
            half = path.name.startswith(".") and ".tmp" in path.suffixes
            if half or (NAME.fullmatch(path.name) and path.name not in needed):
                path.unlink()

    def settle(self) -> None:
        """Wait until the names of all files are on the disk."""
        if self.directory.is_dir():
            sync(self.directory)

    def verify(self, references: Mapping[str, Mapping[str, Any]], *, contents: bool) -> None:
        """Compare files with what a manifest says: their size or, with `contents`, their checksum; an error names the one that differs."""
        for name, entry in references.items():
            path = self.directory / name
            if not NAME.fullmatch(name) or path.is_symlink() or not path.is_file():
                raise CheckpointError(f"{path} is missing: a checkpoint's replay needs it.")
            if path.stat().st_size != entry["size"]:
                raise CheckpointError(
                    f"{path} is damaged: it has {path.stat().st_size} bytes instead of {entry['size']}."
                )
        if contents:
            with ThreadPoolExecutor(_READERS) as readers:
                found = readers.map(lambda name: sha256(self.directory / name), references)
                for (name, entry), digest in zip(references.items(), found, strict=True):
                    if digest != entry["sha256"]:
                        raise CheckpointError(
                            f"{self.directory / name} is damaged: it does not match its checksum. Use an earlier checkpoint of the run."
                        )


def store_of(checkpoints: Path) -> ChunkStore:
    """The chunk files that belong to a directory of checkpoints."""
    return ChunkStore(checkpoints.parent / DIRECTORY)
