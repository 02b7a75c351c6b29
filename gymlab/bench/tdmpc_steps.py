"""Plans and updates of gymlab's TD-MPC2, timed as the authors' are. Runs in worker processes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import gymlab
from gymlab.bench.watch import watch
from gymlab.engine.setup import Session, prepare
from gymlab.engine.workflow import PhaseView

EXPERIMENT = "Pendulum-v1:tdmpc2"
RANDOM_STEPS = 600
"""Steps that the batch is drawn from."""


def time_steps(job: dict[str, Any]) -> dict[str, Any]:
    """Median seconds of a plan and of an update, turn by turn, and where each one's time went."""
    options = {
        **{name: job[name] for name in ("size", "batch_size", "horizon", "seed")},
        **{f"plan_{name}": job[name] for name in ("samples", "policy_samples", "elites", "iterations")},
        "n_envs": 1,
        "replay_size": 2 * RANDOM_STEPS,
        "torch_threads": job["threads"],
        "precision": job["precision"],
    }
    session = prepare(gymlab.resolve(EXPERIMENT, **options).config)
    calls = {"plan": planning(session), "update": updating(session)}
    spent: dict[str, list[float]] = {name: [] for name in calls}
    inside: dict[str, float] = {}
    for number in range(job["warmup"] + job["repeats"]):
        if number == job["warmup"]:
            inside = watch(watched(session.workflow))
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            if number >= job["warmup"]:
                spent[name].append(time.perf_counter() - began)
    session.close()
    learned = [
        p for optimizer in session.workflow.optimizers.values() for g in optimizer.param_groups for p in g["params"]
    ]
    return {
        **{name: statistics.median(seconds) for name, seconds in spent.items()},
        "parameters": sum(parameter.numel() for parameter in learned),
        **shares(inside, {name: sum(seconds) for name, seconds in spent.items()}),
    }


def planning(session: Session) -> Callable[[], Any]:
    """An action for one observation, each plan begun with the last one."""
    workflow: Any = session.workflow
    observation = workflow.context.observation_space.sample()[None]
    state = [workflow.initial_state(1)]

    def plan() -> None:
        _, state[0], _ = workflow.act(observation, state[0])

    return plan


def updating(session: Session) -> Callable[[], Any]:
    """An update on a batch of random steps."""
    workflow: Any = session.workflow
    replay = session.buffers["replay"]
    at_random = PhaseView("seed", "online", 0, 0, 0, 0, None, {"actions": "random"})
    for _ in range(RANDOM_STEPS):
        replay.add(workflow.collect(at_random).trajectory)
    batch, view = replay.sample(), PhaseView("train", "online", 0, 0, 0, 0, None, {})
    return lambda: workflow.update_agent(batch, view)


def watched(workflow: Any) -> list[tuple[Any, str]]:
    """Methods that the time is told apart by."""
    methods = [(workflow, name) for name in ("_proposals", "_model_losses", "_policy_loss", "_step")]
    methods += [
        (workflow.model, "imagined"),
        (workflow.model, "imagined_from"),
        (workflow.planner, "_draw"),
        (workflow.planner, "_fit"),
    ]
    return methods + [(optimizer, "step") for optimizer in workflow.optimizers.values()]


def shares(inside: dict[str, float], whole: dict[str, float]) -> dict[str, float]:
    """Of a plan's and of an update's time, by part."""
    plan = {"steps in the model": inside["imagined"] + inside["imagined_from"], "proposals": inside["_proposals"]}
    plan["drawing and fitting"] = inside["_draw"] + inside["_fit"]
    plan["values behind, rest"] = whole["plan"] - sum(plan.values())
    update = {
        "model, forward": inside["_model_losses"],
        "policy, forward": inside["_policy_loss"],
        "backward": inside["_step"] - inside["step"],
        "optimisers": inside["step"],
    }
    update["rest"] = whole["update"] - sum(update.values())
    parts = {"plan": plan, "update": update}
    return {f"{what}/{part}": seconds / whole[what] for what in parts for part, seconds in parts[what].items()}
