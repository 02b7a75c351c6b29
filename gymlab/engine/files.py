"""Writing files so that a reader, or a crash, never sees half of one."""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any, NoReturn

from gymlab.errors import CheckpointError
from gymlab.plain_files import open_to_read, replace_file

JSON_LIMIT_BYTES = 64 * 1024 * 1024
MOST_DIGITS = 80
"""Of a number in JSON. The states of generators have up to 39; what has hundreds is no count, and overflows where it is computed with."""


def sync(path: Path) -> None:
    """Wait until a file's (or directory's) content is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a file under a temporary name, wait for the disk, rename it into place."""
    replace_file(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON (no NaN) atomically."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path, fix: str = "use another checkpoint or run") -> Any:
    """Read JSON of a sane size; damage is reported with the file's name and what can be done about it."""
    with open_to_read(path) as file:
        content = file.read(JSON_LIMIT_BYTES + 1)
    if len(content) > JSON_LIMIT_BYTES:
        raise CheckpointError(f"{path} is larger than {JSON_LIMIT_BYTES >> 20} MB and is not read: {fix}.")
    try:
        return json.loads(
            content.decode("utf-8"), parse_int=_whole_number, parse_float=_number, parse_constant=refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}). The file is damaged; {fix}.") from error


def read_mapping(path: Path, fix: str = "use another checkpoint or run") -> dict[str, Any]:
    """Read JSON that must be named fields."""
    found = read_json(path, fix)
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} is damaged: it holds a {type(found).__name__} instead of named fields; {fix}.")
    return found


def _whole_number(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    """Python would take 1e400 for infinity, which is no number of JSON and could not be written again."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is larger than any number")
    return number


def refuse_constant(name: str) -> NoReturn:
    """Python would read and write NaN and Infinity, which nobody else takes for JSON."""
    raise ValueError(f"{name} is no number of JSON")


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
