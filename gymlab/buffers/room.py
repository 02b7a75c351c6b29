"""Whether a replay fits this machine, said before training rather than hours into it."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil

from gymlab.errors import ConfigError

CGROUP = Path("/sys/fs/cgroup")
"""Where a container reads its own limits."""


def readable(nbytes: float) -> str:
    """Bytes in the unit in which people say them."""
    for unit in ("B", "kB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} GB"


def available_memory() -> int:
    """Bytes that this process may still take: of the machine, or of the container that it runs in."""
    available = int(psutil.virtual_memory().available)
    try:
        limit, used = ((CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return available
    return min(available, int(limit) - int(used)) if limit.isdigit() else available


def check_memory(needed: int) -> None:
    """Refuse a replay that is larger, when full, than the memory that is there."""
    available = available_memory()
    if needed > available:
        raise ConfigError(
            f"The replay takes {readable(needed)} of memory when it is full, and {readable(available)} are available. "
            "Set a smaller replay_size, or replay_on_disk: true to keep it in files of the run."
        )


def check_disk(needed: int, directory: Path) -> None:
    """Refuse a replay whose files, when it is full, do not fit the disk they are to lie on."""
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed > free:
        raise ConfigError(
            f"The replay's files take {readable(needed)} more when it is full, and {readable(free)} are free at {place}. "
            "Set a smaller replay_size, make room, or put the run on another disk: --runs-dir or GYMLAB_RUNS."
        )
