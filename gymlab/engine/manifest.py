"""Which directories are checkpoints, and what belongs to one: its manifest.json has size and checksum of each file.

The manifest is written last, and what it does not name is not read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymlab.engine.files import read_mapping, sha256
from gymlab.errors import CheckpointError

MANIFEST = "manifest.json"
MODEL, STATE = "model.safetensors", "state.json"
NEEDED = (MODEL, STATE)
"""Files without which a directory is no checkpoint."""

NAME = re.compile(
    r"(?P<aside>\.(?:tmp|old)-\d+-)?(?P<name>epoch=(?P<epoch>\d+)(?:-step=(?P<step>\d+))?\.ckpt)", re.ASCII
)
"""A checkpoint's directory. With a prefix it is one that is being written (`tmp`) or makes way for another of its name (`old`)."""

MOST_LOOKS = 100
"""How often a directory that changes under the eyes is listed before it is taken to hold no checkpoint."""

Entry = Mapping[str, Any]
"""`size` in bytes and `sha256` of a file."""


def finished_checkpoints(directory: Path) -> list[Path]:
    """Directories that have a manifest, oldest first.

    A kill may leave a checkpoint whole under the name that it was written or set aside under: it counts unless there is one of its own name.
    """
    before: list[str] | None = None
    for _ in range(MOST_LOOKS):
        try:
            entries = [match for name in os.listdir(directory) if (match := NAME.fullmatch(name))]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise CheckpointError(
                f"{directory} cannot be read: {error.strerror}. Look at what it is, then delete it."
            ) from error
        whole = [match for match in entries if (directory / match.string / MANIFEST).is_file()]
        names = [match.string for match in entries]
        # A training may have put the next one in place of all that were listed before they were looked at.
        if whole or names == before:
            break
        before = names
    named = {match["name"] for match in whole if match["aside"] is None}
    found = [directory / match.string for match in whole if match["aside"] is None or match["name"] not in named]
    # By the path too: of one that was being replaced, `.old-` comes before `.tmp-`, which is newer.
    return sorted(found, key=lambda path: (name_and_place(path)[1], path.name))


def name_and_place(path: Path) -> tuple[str, tuple[int, int]]:
    """What a checkpoint is called, and where in the run it was written: epochs that had ended, and env steps if it was in the middle of one."""
    match = NAME.fullmatch(path.name)
    assert match is not None, path
    return match["name"], (int(match["epoch"]), int(match["step"] or 0))


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint says it consists of."""

    files: Mapping[str, Entry]
    """Files in its directory by name."""
    chunks: Mapping[str, Entry]
    """Chunk files of the run that its replay refers to."""

    def verify(self, directory: Path) -> None:
        """Compare the files of a checkpoint's directory with what the manifest says of them."""
        for name, entry in self.files.items():
            file = directory / name
            if Path(name).name != name or not file.is_file():
                raise damaged(directory, f"{name} is missing")
            if file.stat().st_size != entry["size"] or sha256(file) != entry["sha256"]:
                raise damaged(directory, f"{name} does not match its checksum")
        absent = [name for name in NEEDED if name not in self.files]
        if absent:
            raise damaged(directory, f"{MANIFEST} does not list {', '.join(absent)}")


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a checkpoint's directory; one that is not there, or is none, is an error in words."""
    path = directory / MANIFEST
    if not path.is_file():
        raise CheckpointError(
            f"{directory} has no {MANIFEST}: it was never finished. Use an earlier checkpoint of the run."
        )
    tree = read_named_fields(path)
    return Manifest(*(_entries(directory, tree, kind) for kind in ("files", "chunks")))


def read_named_fields(path: Path) -> dict[str, Any]:
    """A JSON file of a checkpoint, which holds an object."""
    try:
        return read_mapping(path, "use an earlier checkpoint of the run")
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error


def damaged(path: Path, how: str) -> CheckpointError:
    """The error for a checkpoint, or a file of one, that cannot be used."""
    return CheckpointError(f"{path} is damaged: {how}. Use an earlier checkpoint of the run.")


def _entries(directory: Path, tree: Mapping[str, Any], kind: str) -> dict[str, Entry]:
    entries = tree.get(kind, {})
    if not isinstance(entries, dict):
        raise damaged(
            directory / MANIFEST, f"{kind!r} is a {type(entries).__name__} instead of names with size and sha256"
        )
    for name, entry in entries.items():
        size, digest = (entry.get(key) for key in ("size", "sha256")) if isinstance(entry, dict) else (None, None)
        if type(size) is not int or size < 0 or not isinstance(digest, str):
            raise damaged(directory / MANIFEST, f"{name[:80]!r} in {kind!r} has no size and sha256")
    return entries
