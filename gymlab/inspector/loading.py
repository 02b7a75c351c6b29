"""Checkpoints to choose from, and the agents loaded from them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from gymlab.api import load_plugins
from gymlab.engine.agent import Agent
from gymlab.engine.checkpoint import Checkpoint
from gymlab.engine.run import Run
from gymlab.errors import CheckpointError
from gymlab.inspector.routes import HttpError, Inspector
from gymlab.metrics import names

MOST_AGENTS = 4
"""Agents kept loaded: those that were looked at last."""


def checkpoint_name(checkpoint: Checkpoint) -> str:
    """What the page calls a checkpoint."""
    return checkpoint.path.name.removesuffix(".ckpt")


def own_checkpoints(run: Run) -> list[Checkpoint]:
    """Finished checkpoints of a run, oldest first; one that is, or holds, a link out of the run is none of its own."""
    root = run.dir.resolve()
    return [
        checkpoint
        for checkpoint in run.checkpoints.all()
        if all(path.resolve().is_relative_to(root) for path in (checkpoint.path, *checkpoint.path.iterdir()))
    ]


def checkpoint_list(run: Run) -> list[dict[str, Any]]:
    """Checkpoints of a run, newest first, with their place, their return and whether they are best or last."""
    links = {}
    for word in ("best", "last"):
        path = run.checkpoints.directory / f"{word}.ckpt"
        links[word] = path.readlink().name if path.is_symlink() else None
    found = []
    for checkpoint in reversed(own_checkpoints(run)):
        try:
            metrics, counters = checkpoint.metrics(), checkpoint.read_state().get("counters") or {}
        except (OSError, CheckpointError):
            # A run that trains may take it away while it is looked at.
            continue
        found.append(
            {
                "name": checkpoint_name(checkpoint),
                "epoch": checkpoint.place[0],
                "env_steps": counters.get("env_steps"),
                "return": metrics.get(names.episode_return("val"), metrics.get(names.episode_return("train"))),
                "best": checkpoint.path.name == links["best"],
                "last": checkpoint.path.name == links["last"],
            }
        )
    return found


def find_checkpoint(run: Run, name: str) -> Checkpoint:
    """The checkpoint of that name in the run's own list, verified; `best` means the best one, else the newest."""
    checkpoints = own_checkpoints(run)
    if not checkpoints:
        raise HttpError(404, f"{run.id} has no finished checkpoint yet. Wait for one, or pick another run.")
    if name == "best":
        marked = [entry["name"] for entry in checkpoint_list(run) if entry["best"]]
        name = marked[0] if marked else checkpoint_name(checkpoints[-1])
    for checkpoint in checkpoints:
        if checkpoint_name(checkpoint) == name:
            checkpoint.verify(resumable=False)
            return checkpoint
    raise HttpError(404, f"{run.id} has no such checkpoint any more. Reload the page for those it has.")


def load_agent(inspector: Inspector, run: Run, checkpoint: Checkpoint) -> Agent:
    """A fresh agent, with what the user's plugins register."""
    load_plugins(inspector.plugins)
    return Agent.from_checkpoint(run, checkpoint)


class Agents:
    """The agents that were looked at last, each used by one request at a time."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, str, float], tuple[Agent, Lock]] = OrderedDict()

    @contextmanager
    def use(self, run: Run, name: str) -> Iterator[Agent]:
        """The agent of a checkpoint, for the caller alone; its random stream and its state are nobody's to rely on."""
        checkpoint = find_checkpoint(run, name)
        key = (run.id, checkpoint.path.name, (checkpoint.path / "manifest.json").stat().st_mtime)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = (load_agent(self._inspector, run, checkpoint), Lock())
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_AGENTS:
                self._kept.popitem(last=False)
            agent, lock = self._kept[key]
        with lock:
            yield agent


def agents_of(inspector: Inspector) -> Agents:
    """The loaded agents of a server."""
    return inspector.shared("agents", lambda: Agents(inspector))
