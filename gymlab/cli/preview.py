"""What a training would be like: sizes, rates, memory and plans, from a session that is built and never run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import psutil
import torch
from gymnasium import spaces

from gymlab.bench.processor import computes_bfloat16
from gymlab.components.turns import seconds_by_turns
from gymlab.config import budget_of, describe_fields, dump
from gymlab.config.schema import Config, Schedule
from gymlab.engine.setup import MIXED, prepare
from gymlab.engine.train import return_threshold
from gymlab.envs.spaces import describe_space, space_line
from gymlab.metrics.table import History

if TYPE_CHECKING:
    from gymlab.engine.setup import Session

SCHEDULE_POINTS = 25
MATMUL_SIZE, MATMUL_CALLS = 512, 8
"""Of the product that tells what bfloat16 does on this processor: under a tenth of a second."""
PARAMETERS, BYTES = "parameters/", "_memory_bytes"
"""How a workflow marks, in what it tells of itself, parameter counts and sizes in memory."""


def preview(config: Config) -> dict[str, Any]:
    """Everything about a training that is known before its first step."""
    session = prepare(config)
    try:
        told = session.workflow.describe()
        return {
            "experiment": f"{config.project_id or config.env_id}:{config.variant or config.algo_id}",
            "algorithm": config.algo_id,
            "environment": _environment(session),
            "modules": _modules(session, told),
            "derived": {
                name: value
                for name, value in told.items()
                if not name.startswith(PARAMETERS) and not name.endswith(BYTES)
            },
            "budget": _budget(config, told),
            "evaluation": _evaluation(config),
            "precision": _precision(session),
            "memory": _memory(session, told),
            "process_bytes": psutil.Process().memory_info().rss,
            "phases": [phase.model_dump(mode="json") for phase in session.scheduler.phases],
            "schedules": _schedules(config),
            "settings": _settings(config),
        }
    finally:
        session.close()


def _environment(session: Session) -> dict[str, Any]:
    environment = session.environment
    raw = environment.raw_observation_space
    return {
        "id": session.config.env_id,
        "n_envs": environment.num_envs,
        "backend": environment.backend,
        "stepped_by": environment.stepped_by,
        "observation_space": space_line(environment.observation_space),
        "flattened_from": describe_space(raw) if isinstance(raw, spaces.Dict | spaces.Tuple) else None,
        "action_space": space_line(environment.action_space),
        "max_episode_steps": environment.spec.max_episode_steps,
        "threshold": return_threshold(session),
        "notice": environment.notice,
    }


def _modules(session: Session, told: dict[str, Any]) -> dict[str, Any]:
    """Parameters of each module, and of its parts as the workflow names them, or else of its direct children."""
    found = {}
    for name, module in session.workflow.modules.items():
        prefix = f"{PARAMETERS}{name}/"
        parts = {key.removeprefix(prefix): count for key, count in told.items() if key.startswith(prefix)}
        parts = parts or {child: _parameters(part) for child, part in module.named_children()}
        counted = {part: count for part, count in parts.items() if count}
        found[name] = {"parameters": _parameters(module), "parts": counted if len(counted) > 1 else {}}
    return found


def _parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _memory(session: Session, told: dict[str, Any]) -> dict[str, int]:
    """Bytes of what the training holds: parameters, gradients, optimizer state, and what it collects."""
    modules, optimizers = session.workflow.modules.values(), session.workflow.optimizers.values()
    saved = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    memory = {
        "parameters": sum(tensor.numel() * tensor.element_size() for tensor in saved),
        "gradients": 0,
        "optimizers": 0,
    }
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            count = sum(parameter.numel() * parameter.element_size() for parameter in group["params"])
            memory["gradients"] += count
            memory["optimizers"] += count * _state_copies(group)
    collected = {name.removesuffix(BYTES): int(count) for name, count in told.items() if name.endswith(BYTES)}
    memory |= collected or {name: int(buffer.nbytes) for name, buffer in session.buffers.items()}
    return memory | {"total": sum(memory.values())}


def _state_copies(group: dict[str, Any]) -> int:
    """Numbers an optimizer keeps for each parameter: two moments (Adam and kin), a momentum, or none."""
    if "betas" in group:
        return 3 if group.get("amsgrad") else 2
    return 1 if group.get("momentum") else 0


def _budget(config: Config, told: dict[str, Any]) -> dict[str, Any]:
    """The budget in env steps, epochs and gradient steps, as far as they follow from each other."""
    env_steps = budget_of(config)
    epoch = config.epoch_env_steps or told.get("rollout_rows")
    epochs = math.ceil(env_steps / epoch) if env_steps and epoch else config.max_epochs
    rate = told.get("updates_per_env_step")
    return {
        "env_steps": env_steps,
        "epochs": epochs,
        "updates": round(env_steps * rate) if env_steps and rate else None,
    }


def _evaluation(config: Config) -> dict[str, Any]:
    how = "deterministic" if config.eval_deterministic else "sampled actions"
    final = f"{config.eval_episodes} fresh episodes at the end ({how})"
    every, first = config.eval_freq_epochs, None
    plan = f"{final}; none during training"
    if every:
        first = (math.floor(config.eval_warmup_epochs) // every + 1) * every
        plan = f"{config.eval_episodes} episodes every {every} epochs from epoch {first}, and {final}"
    return {
        "plan": plan,
        "episodes": config.eval_episodes,
        "every_epochs": every,
        "first_epoch": first,
        "deterministic": config.eval_deterministic,
    }


def _precision(session: Session) -> dict[str, Any]:
    """The number format, and, where the processor multiplies in bfloat16 and the algorithm can, what that does to a matrix product here and now."""
    offered = session.workflow.mixed_precision and session.fabric.device.type == "cpu" and computes_bfloat16()
    share = bfloat16_share() if offered and session.config.precision != MIXED else None
    return {"format": session.config.precision, "bf16_matmul_share": share}


def bfloat16_share() -> float:
    """Time of a matrix product in bfloat16, its inputs in float32 as under autocast, as a share of that in float32: the quickest of a few of each."""
    generator = torch.Generator().manual_seed(0)
    inputs, weight = torch.rand(2, MATMUL_SIZE, MATMUL_SIZE, generator=generator)
    half = weight.bfloat16()
    in_full, in_half = seconds_by_turns([lambda: inputs @ weight, lambda: inputs.bfloat16() @ half], MATMUL_CALLS)
    return round(in_half / in_full, 2)


def _schedules(config: Config) -> dict[str, Any]:
    """Each scheduled value over the budget, as numbers and as a line."""
    found = {}
    budget = budget_of(config)
    for name in type(config).model_fields:
        schedule = getattr(config, name)
        if isinstance(schedule, Schedule):
            last = budget or schedule.span(budget)[1]
            values = [
                schedule.value(round(last * point / (SCHEDULE_POINTS - 1)), budget) for point in range(SCHEDULE_POINTS)
            ]
            found[name] = {
                "shape": "points" if schedule.points else schedule.schedule,
                "values": values,
                "line": History(means=values).sparkline(SCHEDULE_POINTS),
            }
    return found


def _settings(config: Config) -> dict[str, dict[str, Any]]:
    """Every setting with its default, and whether it differs from it."""
    values = dump(config)
    return {
        field.name: {
            "value": values[field.name],
            "default": field.default,
            "changed": values[field.name] != field.default,
        }
        for field in describe_fields(type(config))
    }
