"""Updates of gymlab's DreamerV3, timed as sheeprl's are. Runs in worker processes."""

from __future__ import annotations

import resource
import statistics
from collections.abc import Iterator
from typing import Any

import gymlab
from gymlab.bench.parts import Seconds, clock
from gymlab.bench.watch import watch
from gymlab.engine.setup import Session, prepare

EXPERIMENT = "CartPole-v1:dreamer_v3"
PICTURES = {"obs_type": "rgb", "resize_obs": [64, 64]}
"""Fields under which CartPole is seen, not told in four numbers."""


def time_updates(job: dict[str, Any]) -> dict[str, Any]:
    """Median seconds of an update after the warm-up, peak memory of the process, and how many numbers are learned."""
    options = {
        "size": job["size"],
        "batch_size": job["batch_size"],
        "batch_length": job["length"],
        "horizon": job["horizon"],
        "imag_last": None,
        # An update for every step, as soon as there are sequences enough.
        "train_ratio": job["batch_size"] * job["length"],
        "replay_size": 20_000,
        "torch_threads": job["threads"],
        "seed": job["seed"],
        **(PICTURES if job["image"] else {}),
    }
    session = prepare(gymlab.resolve(EXPERIMENT, **options).config)
    updates = seconds_of_updates(session)
    for _ in range(job["warmup"]):
        next(updates)
    inside = watch(watched(session.workflow))
    spent = [next(updates) for _ in range(job["updates"])]
    session.close()
    optimizers = session.workflow.optimizers.values()
    learned = [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    return {
        "seconds": statistics.median(update.wall for update in spent),
        "cpu_seconds": statistics.median(update.cpu for update in spent),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "parameters": sum(parameter.numel() for parameter in learned),
        **shares(inside, sum(update.wall for update in spent)),
    }


def watched(workflow: Any) -> list[tuple[Any, str]]:
    """Methods that an update's time is told apart by."""
    methods = [(workflow, name) for name in ("_model_losses", "_behaviour_losses", "_dream", "_step")]
    methods += [(workflow.model.rssm, "observe")]
    return methods + [(optimizer, "step") for optimizer in workflow.optimizers.values()]


def shares(inside: dict[str, float], whole: float) -> dict[str, float]:
    """Of an update's time, by part; methods that call others are counted without them."""
    seconds = {
        "share/recurrent loop": inside["observe"],
        "share/encoder, decoder, heads": inside["_model_losses"] - inside["observe"],
        "share/dreams": inside["_dream"],
        "share/losses of dreams": inside["_behaviour_losses"] - inside["_dream"],
        "share/backward": inside["_step"] - inside["step"],
        "share/optimiser": inside["step"],
    }
    seconds["share/rest"] = whole - sum(seconds.values())
    return {name: value / whole for name, value in seconds.items()}


def seconds_of_updates(session: Session) -> Iterator[Seconds]:
    """Train as the orchestrator does, and give the time of every update, sampling and writing back left out."""
    scheduler = session.scheduler
    while (action := scheduler.next_action()) is not None:
        assert action.phase.buffer is not None
        hook, buffer = getattr(session.workflow, action.hook), session.buffers[action.phase.buffer]
        if action.collects:
            collected = hook(action.view)
            buffer.add(collected.trajectory)
            session.counters.env_steps += collected.env_steps
            scheduler.advance(action, env_steps=collected.env_steps)
        elif not buffer.ready():
            scheduler.advance(action)
        else:
            batch = buffer.sample()
            began = clock()
            updated = hook(batch, action.view)
            ended = clock()
            yield Seconds(ended.wall - began.wall, ended.cpu - began.cpu)
            buffer.write_back(updated.write_back)
            session.counters.updates += updated.updates
            scheduler.advance(action, updates=updated.updates)
