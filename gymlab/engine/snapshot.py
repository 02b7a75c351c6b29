"""What a checkpoint holds of a running loop, and how a loop takes it back: the two sides of exact resume in one place."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gymlab.components.optimizers import restore_optimizer
from gymlab.engine.agent import load_model
from gymlab.engine.checkpoint import understood
from gymlab.engine.chunk_store import referenced_by
from gymlab.engine.manifest import STATE
from gymlab.envs.spaces import space_to_json

if TYPE_CHECKING:
    from gymlab.engine.checkpoint import Checkpoint
    from gymlab.engine.orchestrator import Orchestrator

SHARED = ("counters", "phase", "hyperparameters", "best_score", "seconds", "epoch_began")
"""Of state.json, what all processes of a training have in common."""


def take(loop: Orchestrator) -> dict[str, Any]:
    """Model, parts, state and chunk files for `CheckpointManager.save`."""
    workflow, environment = loop.workflow, loop.session.environment
    buffers = {name: buffer.get_state() for name, buffer in loop.buffers.items()}
    return {
        "chunks": referenced_by(loop.buffers),
        "model": {
            f"{name}.{key}": value
            for name, module in workflow.modules.items()
            for key, value in module.state_dict().items()
        },
        "parts": {
            "optimizer": {name: optimizer.state_dict() for name, optimizer in workflow.optimizers.items()},
            "rng": _random_states(),
            "envs": {"train": environment.get_state()},
            "buffers": buffers,
            "workflow": workflow.get_state(),
            "controllers": workflow.context.controller_manager.states(),
        },
        "state": {
            "workflow": loop.config.algo_id,
            "counters": asdict(loop.counters),
            "phase": loop.scheduler.get_state(),
            "hyperparameters": loop.hyperparameters.get_state(),
            "statistics": loop.statistics.get_state(),
            "callbacks": {type(callback).__name__: callback.get_state() for callback in loop.callbacks},
            "best_score": loop.best_score,
            "seconds": loop.seconds,
            "cpu_seconds": loop.cpu_seconds,
            "epoch_began": loop.epoch_began,
            "epoch_ending": loop.epoch_ending,
            "cut": loop.cut,
            "pending_metrics": loop.recorder.get_state(),
            "observation_space": space_to_json(environment.observation_space),
            "raw_observation_space": space_to_json(environment.raw_observation_space),
            "action_space": space_to_json(environment.action_space),
        },
    }


def restore(loop: Orchestrator, checkpoint: Checkpoint) -> None:
    """Put a fresh loop exactly where the checkpoint was written."""
    restore_shared(loop, checkpoint)
    workflow, state = loop.workflow, checkpoint.read_state("statistics", "pending_metrics")
    with _part(checkpoint, "envs") as saved:
        loop.session.environment.set_state(saved["train"])
    with _part(checkpoint, "buffers") as saved:
        for name, buffer in saved.items():
            loop.buffers[name].set_state(buffer)
    with _part(checkpoint, "workflow") as saved:
        workflow.set_state(saved)
    with _part(checkpoint, "controllers") as saved:
        workflow.context.controller_manager.set_states(saved)
    with understood(f"statistics in {checkpoint.path / STATE}"):
        loop.statistics.set_state(state["statistics"])
        loop.recorder.set_state(state["pending_metrics"])
    with _part(checkpoint, "rng") as saved:
        _set_random_states(saved)


@contextmanager
def _part(checkpoint: Checkpoint, name: str) -> Iterator[Any]:
    """A part of the state; what is wrong with it, when it is taken back, becomes an error that names it."""
    saved = checkpoint.read_part(name)
    with understood(f"The part {name!r} of {checkpoint.path}"):
        yield saved


def restore_shared(loop: Orchestrator, checkpoint: Checkpoint) -> None:
    """Take from a checkpoint what all processes of a training have in common; environments and randomness stay a process's own."""
    workflow, state = loop.workflow, checkpoint.read_state(*SHARED)
    load_model(workflow, checkpoint.read_model(), where=str(checkpoint.path))
    with _part(checkpoint, "optimizer") as saved:
        for name, optimizer in saved.items():
            restore_optimizer(workflow.optimizers[name], optimizer)
    for name, value in asdict(checkpoint.read_counters()).items():
        setattr(loop.counters, name, value)
    with understood(f"phase or hyperparameters in {checkpoint.path / STATE}"):
        loop.scheduler.set_state(state["phase"])
        loop.hyperparameters.set_state(state["hyperparameters"])
    for callback in loop.callbacks:
        kind = type(callback).__name__
        saved = state.get("callbacks", {}).get(kind)
        if saved:
            with understood(f"callbacks.{kind} in {checkpoint.path / STATE}"):
                callback.set_state(saved)
    loop.best_score = state["best_score"]
    loop.seconds_before = state["seconds"]
    loop.cpu_seconds_before = state.get("cpu_seconds", 0.0)
    loop.epoch_began = state["epoch_began"]
    loop.epoch_ending = state.get("epoch_ending", False)


def _random_states() -> dict[str, Any]:
    """States of the global generators of torch, NumPy and Python."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    states: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": (name, keys, position, has_gauss, cached),
        "python": random.getstate(),
    }
    if torch.cuda.is_available():
        states["cuda"] = list(torch.cuda.get_rng_state_all())
    return states


def _set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    _, keys, position, *_ = states["numpy"]
    if not 0 <= position <= len(keys):
        # NumPy would read there without a look.
        raise ValueError(f"position {position} of NumPy's generator")
    np.random.set_state(states["numpy"])
    random.setstate(states["python"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
