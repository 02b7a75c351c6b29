"""What a checkpoint holds of a running loop, and how a loop takes it back: the two sides of exact resume in one place."""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gymlab.engine.agent import load_model
from gymlab.engine.chunk_store import referenced_by
from gymlab.engine.workflow import Counters
from gymlab.envs.spaces import space_to_json

if TYPE_CHECKING:
    from gymlab.engine.checkpoint import Checkpoint
    from gymlab.engine.orchestrator import Orchestrator


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
            "pending_metrics": loop.recorder.get_state(),
            "observation_space": space_to_json(environment.observation_space),
            "raw_observation_space": space_to_json(environment.raw_observation_space),
            "action_space": space_to_json(environment.action_space),
        },
    }


def restore(loop: Orchestrator, checkpoint: Checkpoint) -> None:
    """Put a fresh loop exactly where the checkpoint was written."""
    restore_shared(loop, checkpoint)
    workflow, state = loop.workflow, checkpoint.read_state()
    loop.session.environment.set_state(checkpoint.read_part("envs")["train"])
    for name, saved in checkpoint.read_part("buffers").items():
        loop.buffers[name].set_state(saved)
    workflow.set_state(checkpoint.read_part("workflow"))
    workflow.context.controller_manager.set_states(checkpoint.read_part("controllers"))
    loop.statistics.set_state(state["statistics"])
    loop.recorder.set_state(state["pending_metrics"])
    _set_random_states(checkpoint.read_part("rng"))


def restore_shared(loop: Orchestrator, checkpoint: Checkpoint) -> None:
    """Take from a checkpoint what all processes of a training have in common; environments and randomness stay a process's own."""
    workflow, state = loop.workflow, checkpoint.read_state()
    load_model(workflow, checkpoint.read_model(), where=str(checkpoint.path))
    for name, saved in checkpoint.read_part("optimizer").items():
        workflow.optimizers[name].load_state_dict(saved)
    for name, value in asdict(Counters(**state["counters"])).items():
        setattr(loop.counters, name, value)
    loop.scheduler.set_state(state["phase"])
    loop.hyperparameters.set_state(state["hyperparameters"])
    for callback in loop.callbacks:
        saved = state.get("callbacks", {}).get(type(callback).__name__)
        if saved:
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
    np.random.set_state(states["numpy"])
    random.setstate(states["python"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
