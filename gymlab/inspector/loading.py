"""Checkpoints to choose from, and the agents loaded from them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Lock
from typing import Any

from gymlab.api import load_plugins
from gymlab.engine.agent import Agent, SavedAgent
from gymlab.engine.checkpoint import Checkpoint
from gymlab.engine.run import Run
from gymlab.errors import CheckpointError
from gymlab.inspector.routes import HttpError, Inspector
from gymlab.metrics import names

MOST_AGENTS = 4
"""Agents kept loaded: those that were looked at last."""


def checkpoint_name(checkpoint: Checkpoint) -> str:
    """What the page calls a checkpoint."""
    return checkpoint.name.removesuffix(".ckpt")


def own_checkpoints(run: Run) -> list[Checkpoint]:
    """Finished checkpoints of a run, oldest first; one that is, or holds, a link out of the run is none of its own."""
    own = []
    for checkpoint in run.checkpoints.all():
        with suppress(CheckpointError):
            refuse_foreign(run, checkpoint)
            own.append(checkpoint)
    return own


def refuse_foreign(run: Run, checkpoint: Checkpoint) -> None:
    """An error for a checkpoint that is, or holds, a link out of the run."""
    root = run.dir.resolve()
    try:
        paths = [checkpoint.path, *checkpoint.path.iterdir()]
    except OSError as error:
        raise CheckpointError(f"{checkpoint.path} cannot be read: {error.strerror}.") from error
    if not all(path.resolve().is_relative_to(root) for path in paths):
        raise CheckpointError(f"{checkpoint.path} leads out of {run.id}. It is not read.")


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
                "best": checkpoint.name == links["best"],
                "last": checkpoint.name == links["last"],
            }
        )
    return found


def meant_by(run: Run, name: str) -> str:
    """What a name of the page is to the run: one of its own checkpoints; `best` is the best one of the moment, else the newest."""
    names = [checkpoint_name(checkpoint) for checkpoint in own_checkpoints(run)]
    if not names:
        raise HttpError(404, f"{run.id} has no finished checkpoint yet. Wait for one, or pick another run.")
    if name == "best":
        best = run.checkpoints.best
        return "@best" if best is not None and best.removesuffix(".ckpt") in names else "@last"
    if name not in names:
        raise HttpError(404, f"{run.id} has no such checkpoint any more. Reload the page for those it has.")
    return name


def read_agent(inspector: Inspector, run: Run, name: str) -> SavedAgent:
    """What a checkpoint holds, verified, to build an agent with what the user's plugins register."""
    load_plugins(inspector.plugins)
    env_kwargs = inspector.env_kwargs if run.id == inspector.initial else ()
    return SavedAgent.read(run, meant_by(run, name), env_kwargs, partial(refuse_foreign, run))


class Agents:
    """The agents that were looked at last, each used by one request at a time."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, str, float], tuple[Agent, Lock]] = OrderedDict()

    @contextmanager
    def use(self, run: Run, name: str) -> Iterator[Agent]:
        """The agent of a checkpoint, for the caller alone; its random stream and its state are nobody's to rely on."""
        with self._lock:
            key = run.checkpoints.read(
                meant_by(run, name), lambda checkpoint: _key(run, checkpoint.name, checkpoint.written)
            )
            if key not in self._kept:
                saved = read_agent(self._inspector, run, name)
                key = _key(run, saved.checkpoint.name, saved.written)
                self._kept[key] = (saved.build(), Lock())
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_AGENTS:
                self._kept.popitem(last=False)
            agent, lock = self._kept[key]
        with lock:
            yield agent


def _key(run: Run, name: str, written: float) -> tuple[str, str, float]:
    """By when it was written too: a run may write another one under the same name."""
    return run.id, name, written


def agents_of(inspector: Inspector) -> Agents:
    """The loaded agents of a server."""
    return inspector.shared("agents", lambda: Agents(inspector))
