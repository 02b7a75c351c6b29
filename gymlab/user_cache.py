"""Where gymlab keeps what it found out about a machine; all of it can be deleted at any time."""

from __future__ import annotations

import os
from pathlib import Path


def in_user_cache(name: str) -> Path:
    """A file in gymlab's directory of the user's cache; neither need exist."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "gymlab" / name
