"""Peers whose packages do not fit beside gymlab's: each in a virtual environment of its own, made on first use."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gymlab.bench.launch import run_worker
from gymlab.bench.plan import Worker
from gymlab.errors import GymlabError


def peer_python(directory: Path, packages: Sequence[str], say: Callable[[str], None]) -> Path:
    """The interpreter of an environment with these packages (`name==version`) and gymlab's torch."""
    python, ready = directory / "bin" / "python", directory / ".".join(["", *(p.replace("==", "-") for p in packages)])
    if not ready.exists():
        say(f"installing {', '.join(packages)} into {directory}, once")
        torch_version = importlib.metadata.version("torch").partition("+")[0]
        _run(packages, sys.executable, "-m", "venv", "--clear", str(directory))
        _run(packages, str(python), "-m", "pip", "install", "--quiet", *packages, f"torch=={torch_version}")
        ready.touch()
    return python.absolute()


def peer_worker(peer: str, python: Path, script: Path) -> Worker:
    """A worker that does gymlab's jobs in this environment and the peer's by its script in its own."""

    def run(job: dict[str, Any], timeout: float) -> dict[str, Any]:
        if job["library"] != peer:
            return run_worker(job, timeout)
        # Without -P the script's neighbours could be imported in place of installed packages.
        return run_worker(job, timeout, [str(python), "-P", str(script), json.dumps(job)])

    return run


def peer_source_arguments(parser: argparse.ArgumentParser, repository: str, directory: Path) -> None:
    """Options of a peer that is no package: a clone of its repository, and an environment for it."""
    parser.add_argument(
        "--peer-source",
        type=Path,
        metavar="DIR",
        help=f"a clone of github.com/{repository}, to be measured beside gymlab",
    )
    parser.add_argument(
        "--peer-env",
        type=Path,
        default=directory,
        metavar="DIR",
        help=f"virtual environment for it, made when missing (default {directory})",
    )


def check_peer_source(source: Path | None, repository: str, file: str) -> None:
    """An error for a folder that is no clone of the repository, told by a file that it has."""
    if source is not None and not (source / file).is_file():
        raise GymlabError(f"--peer-source: {source} has no {file}. Give a clone of github.com/{repository}.")


def _run(packages: Sequence[str], *command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        tail = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise GymlabError(f"{', '.join(packages)} could not be installed: `{' '.join(command)}` said:\n{tail}")
