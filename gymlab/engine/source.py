"""The commit of gymlab's own source. Where the user stands, or which repository holds the virtual environment, says nothing of it."""

from __future__ import annotations

import json
import os
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from gymlab.metrics.report import DIRTY

DIGITS = 12


def source_commit(package: Path | None = None) -> str | None:
    """The commit that the package was checked out at, with `+dirty` if it was changed since; of one that pip took from a
    repository, the commit that pip wrote down; else None.
    """
    package = (package or Path(__file__).parents[1]).resolve()
    # A package in the virtual environment of somebody's project lies in that project's checkout, but is not tracked there.
    if _git(package, "rev-parse", "--show-toplevel") != str(package.parent) or not _git(
        package, "ls-files", "__init__.py"
    ):
        return _installed_commit(package)
    commit = _git(package, "rev-parse", f"--short={DIGITS}", "HEAD")
    if not commit:
        return None
    changed = _git(package, "status", "--porcelain", "--", ".")
    return commit + DIRTY if changed else commit


def _git(directory: Path, *arguments: str) -> str | None:
    """What git says in a directory, whatever repository the environment's variables name; None where it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(directory), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _installed_commit(package: Path) -> str | None:
    try:
        installed = distribution("gymlab")
        if Path(str(installed.locate_file("gymlab"))).resolve() != package:
            return None
        commit = json.loads(installed.read_text("direct_url.json") or "{}").get("vcs_info", {}).get("commit_id")
    except (PackageNotFoundError, ValueError, AttributeError):
        return None
    return str(commit)[:DIGITS] if commit else None
