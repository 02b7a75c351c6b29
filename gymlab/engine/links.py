"""Links in a run's directory that lead out of it. A run may come from somebody else: what is written through such a link is written elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from gymlab.errors import GymlabError

TRACKER = "wandb"
"""Where Weights & Biases keeps its files. It links to its own logs in the user's cache, and writes new directories only."""
MOST_NAMED = 5


def links_out(directory: Path, names: Iterable[str] | None = None) -> list[str]:
    """Links below a directory, at any depth, to outside of it, by their path from it; with `names`, only these of its entries are looked at.

    A link to nothing counts by where it points. The directory itself may be reached through links: that is its owner's choice.
    """
    root = os.path.realpath(directory)
    found, waiting = [], [""]
    if names is not None:
        found, waiting = [name for name in names if _leads_out(os.path.join(root, name), root)], []
    while waiting:
        below = waiting.pop()
        with os.scandir(os.path.join(root, below)) as entries:
            for entry in entries:
                path = os.path.join(below, entry.name)
                if _leads_out(entry.path, root):
                    found.append(path)
                elif entry.is_dir(follow_symlinks=False) and path != TRACKER:
                    waiting.append(path)
    return sorted(found)


def _leads_out(path: str, root: str) -> bool:
    return os.path.islink(path) and not Path(os.path.realpath(path)).is_relative_to(root)


def refuse_links_out(directory: Path) -> None:
    """An error before anything is written into a run whose links would lead it elsewhere."""
    try:
        found = links_out(directory)
    except OSError as error:
        raise GymlabError(f"{error.filename or directory} cannot be read: {error.strerror}.") from error
    if found:
        named = ", ".join(found[:MOST_NAMED]) + (f" and {len(found) - MOST_NAMED} more" if found[MOST_NAMED:] else "")
        raise GymlabError(
            f"Run {directory.name}: {named} {'leads' if len(found) == 1 else 'lead'} out of {directory}. Nothing is written through links, "
            "which gymlab does not make: delete them, or put in their place what they lead to."
        )
