"""Writing files so that a reader, or a crash, never sees half of one."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from gymlab.errors import CheckpointError

JSON_LIMIT_BYTES = 64 * 1024 * 1024


def sync(path: Path) -> None:
    """Wait until a file's (or directory's) content is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a file under a temporary name, wait for the disk, rename it into place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON (no NaN) atomically."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON of a sane size; damage is reported with the file's name."""
    if path.stat().st_size > JSON_LIMIT_BYTES:
        raise CheckpointError(f"{path} is larger than {JSON_LIMIT_BYTES >> 20} MB and is not read.")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not valid JSON ({error}). The file is damaged; use another checkpoint or run."
        ) from error


def sha256(path: Path) -> str:
    """Hex digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def relative_link(link: Path, target_name: str) -> None:
    """Point `link` at a sibling, replacing it in one step."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target_name)
    os.replace(temporary, link)
